"""Parquet as pandas, pyarrow and Hugging Face write it; good files, missing values, and broken ones."""

from __future__ import annotations

import datetime
import decimal
import io
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as hypothesis_arrays
from PIL import Image

from relcore import memory
from relcore.errors import InputError
from relcore.formats import arrow, load, parquet, peek, write
from relcore.formats.base import Request
from relcore.space import make_space
from tests.formats.test_table import same, spaces

N = 20
V = np.random.default_rng(0).normal(size=(N, 4))


def lists(kind: str, v: np.ndarray) -> pa.Array:
    flat, width = pa.array(np.ascontiguousarray(v).reshape(-1)), v.shape[1]
    if kind == "fixed":
        return pa.FixedSizeListArray.from_arrays(flat, width)
    ends = np.arange(len(v) + 1) * width
    if kind == "large":
        return pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), flat)
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), flat)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "u1", "i4", "i8"])
@pytest.mark.parametrize("kind", ["list", "large", "fixed"])
def test_lists_of_every_kind_and_number(tmp_path, kind, dtype):
    v = (V * 20).astype(dtype)
    v[~v.any(1)] = 1
    pq.write_table(pa.table({"emb": lists(kind, v)}), tmp_path / "t.parquet", row_group_size=7)
    space, report = load(tmp_path / "t.parquet")
    np.testing.assert_array_equal(space.vectors, v.astype(np.float32))
    assert report.dtype == str(np.dtype(dtype)) and report.format == "parquet"
    seen = peek(tmp_path / "t.parquet")
    assert (seen.rows, seen.dim, seen.dtype) == (N, 4, report.dtype) and seen.memory >= space.vectors.nbytes
    np.testing.assert_array_equal(seen.head, space.vectors[:5])


@pytest.mark.parametrize("kind", ["list", "large", "fixed"])
@pytest.mark.parametrize("dtype", ["f2", "f4", "i8"])
def test_nulls_in_lists_of_every_kind(tmp_path, kind, dtype):
    v = (V * 20).astype(dtype)
    cells = v.tolist()
    cells[2] = cells[9] = None
    cells[4][1] = None
    inner = pa.from_numpy_dtype(v.dtype)
    type = {"list": pa.list_(inner), "large": pa.large_list(inner), "fixed": pa.list_(inner, 4)}[kind]
    cells = [c and [x if x is None else v.dtype.type(x) for x in c] for c in cells]
    pq.write_table(pa.table({"emb": pa.array(cells, type), "x": range(N)}), tmp_path / "t.parquet", row_group_size=6)
    space, report = load(tmp_path / "t.parquet")
    assert [tuple(s) for s in report.set_aside] == [
        *((2, "missing vector"), (4, "NaN or infinite"), (9, "missing vector"))
    ]
    np.testing.assert_array_equal(space.vectors, np.delete(v, [2, 4, 9], 0).astype(np.float32))
    assert list(space.meta["x"]) == [i for i in range(N) if i not in (2, 4, 9)]


@pytest.mark.parametrize("compression", ["snappy", "gzip", "zstd", "brotli", "lz4", None])
def test_compressions_and_row_groups(tmp_path, compression):
    df = pd.DataFrame({"word": [f"w{i}" for i in range(N)], "emb": V.tolist()})
    df.to_parquet(tmp_path / "t.parquet", compression=compression, row_group_size=3)
    space, _ = load(tmp_path / "t.parquet")
    np.testing.assert_array_equal(space.vectors, V.astype(np.float32))
    assert list(space.names) == list(df["word"])


def test_numeric_columns_of_every_kind(tmp_path):
    columns = {
        "a": pa.array(V[:, 0]),
        "b": pa.array(range(N), pa.uint8()),
        "c": pa.array([decimal.Decimal(f"{i}.25") for i in range(N)]),
        "d": pa.array(np.arange(N, dtype=np.float16)),
        "flag": pa.array([True, False] * (N // 2)),
        "when": pa.array([datetime.datetime(2020, 1, 1 + i) for i in range(N)]),
        "day": pa.array([datetime.date(2020, 1, 1 + i) for i in range(N)]),
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    space, report = load(tmp_path / "t.parquet")
    expected = np.stack([V[:, 0], np.arange(N), np.arange(N) + 0.25, np.arange(N)], 1).astype(np.float32)
    np.testing.assert_array_equal(space.vectors, expected)
    assert list(space.labels[:2]) == ["True", "False"] and report.dtype == "decimal128(4, 2), float16, float64, uint8"
    assert space.meta["when"][3] == "2020-01-04 00:00:00" and space.meta["day"][3] == "2020-01-04"


def test_categories_nulls_and_the_index_of_a_data_frame(tmp_path):
    df = pd.DataFrame({"kind": pd.Categorical((["a", "b", None, "b"] * N)[:N]), "emb": V.tolist()})
    df.index = [f"w{i}" for i in range(N)]
    df.to_parquet(tmp_path / "t.parquet")
    space, _ = load(tmp_path / "t.parquet")
    assert list(space.names) == [f"w{i}" for i in range(N)] and list(space.labels[:4]) == ["a", "b", "", "b"]
    numbers = pd.DataFrame(V, columns=list("abcd"), index=np.arange(N) * 3)  # rows filtered: an index of numbers
    numbers.to_parquet(tmp_path / "n.parquet")
    space, _ = load(tmp_path / "n.parquet")
    np.testing.assert_array_equal(space.vectors, V.astype(np.float32))
    assert list(space.meta["__index_level_0__"]) == [str(i * 3) for i in range(N)]


def png(i: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (2, 2), (i, 0, 0)).save(out, "png")
    return out.getvalue()


def test_pictures_as_hugging_face_datasets_keep_them(tmp_path):
    pictures = [{"bytes": png(i), "path": f"{i}.png"} for i in range(N - 2)] + [{"bytes": None, "path": "x.png"}, None]
    table = pa.table({"image": pictures, "emb": V.tolist(), "label": [i % 2 for i in range(N)]})
    pq.write_table(table, tmp_path / "t.parquet")
    raw = parquet.read(Request(tmp_path / "t.parquet"))
    assert raw.media == [*map(png, range(N - 2)), "x.png", None]
    seen = {c.name: (c.kind, c.role) for c in peek(tmp_path / "t.parquet").columns}
    assert seen == {"image": ("image", "media"), "emb": ("vector", "vector"), "label": ("number", "label")}
    raw_bytes = pa.table({"thing": [png(i) for i in range(N)], "emb": V.tolist()})
    pq.write_table(raw_bytes, tmp_path / "b.parquet")
    assert parquet.read(Request(tmp_path / "b.parquet")).media == [png(i) for i in range(N)]


def test_nested_columns_and_bytes_are_metadata(tmp_path):
    table = pa.table(
        {
            "emb": V.tolist(),
            "about": [{"x": i, "y": ["é"]} for i in range(N)],
            "raw": [b"\xff\xfe"] * N,
            "t": [b"ok"] * N,
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    space, _ = load(tmp_path / "t.parquet")
    assert space.meta.iloc[1].to_dict() == {"about": '{"x": 1, "y": ["é"]}', "raw": "2 bytes", "t": "ok"}


def test_b03_all_null(tmp_path):
    for type in (pa.list_(pa.float32()), pa.list_(pa.float32(), 4), pa.null()):
        pq.write_table(pa.table({"emb": pa.array([None] * N, type)}), tmp_path / "t.parquet")
        with pytest.raises(InputError, match="emb"):
            load(tmp_path / "t.parquet")


def test_vectors_as_text_in_a_string_column(tmp_path):
    texts = [str(row.tolist()) for row in V]
    texts[3], texts[4] = "[0.1 ... 0.2]", None
    pd.DataFrame({"emb": texts}).to_parquet(tmp_path / "t.parquet")
    space, report = load(tmp_path / "t.parquet")
    np.testing.assert_array_equal(space.vectors, np.delete(V, [3, 4], 0).astype(np.float32))
    assert [s.row for s in report.set_aside] == [3, 4] and report.dtype == "text"
    texts[5] = "oops"
    pd.DataFrame({"emb": texts}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(InputError, match="row 5, 'emb' holds 'oops'"):
        load(tmp_path / "t.parquet")


def test_columns_of_other_files(tmp_path):
    np.save(tmp_path / "v.npy", V)
    table = pa.table({"name": [f"n{i}" for i in range(N)], "kind": pa.array([1, None] * (N // 2)), "emb": V.tolist()})
    pq.write_table(table, tmp_path / "m.parquet")
    space, _ = load(tmp_path / "v.npy", names=tmp_path / "m.parquet", labels=f"{tmp_path}/m.parquet:kind")
    assert space.names[3] == "n3" and list(space.labels[:2]) == ["1", ""]
    with pytest.raises(InputError, match="no column 'z' for the labels; it has name, kind"):
        load(tmp_path / "v.npy", labels=f"{tmp_path}/m.parquet:z")
    frame = parquet.frame(tmp_path / "m.parquet")
    assert frame.columns.tolist() == ["name", "kind"] and frame["kind"].tolist()[:2] == ["1", None]


def test_names_of_columns(tmp_path):
    pq.write_table(pa.table([V.tolist(), ["x"] * N, ["y"] * N], ["emb", "a", "a"]), tmp_path / "t.parquet")
    with pytest.raises(InputError, match="several columns called a"):
        load(tmp_path / "t.parquet")
    pq.write_table(pa.table([V.tolist(), ["x"] * N], ["v.emb", "v.a"]), tmp_path / "t.parquet")
    assert load(tmp_path / "t.parquet")[0].meta["v.a"][0] == "x"


def test_damaged_files(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"emb": V.tolist()}), path)
    good = path.read_bytes()
    for bad in (good[:-20], good[: len(good) // 2], b"PAR1" + bytes(100), good[:-8] + b"\xff\xff\xff\x7fPAR1", b"PAR1"):
        path.write_bytes(bad)
        with pytest.raises(InputError, match="t.parquet is damaged"):
            load(path)
    pq.write_table(pa.table({"emb": pa.array([], pa.list_(pa.float32()))}), path)
    with pytest.raises(InputError, match="holds no rows"):
        load(path)


def test_a_file_that_takes_more_memory_than_there_is(tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    ones = lists("fixed", np.ones((2**14, 2**7), dtype=np.float32))
    pq.write_table(pa.table({"emb": ones}), path)
    assert path.stat().st_size < 2**16  # one value, repeated, unpacks to 8 MiB
    monkeypatch.setattr(memory, "available", lambda: 2**20)
    with pytest.raises(InputError, match="takes about"):
        load(path)


def test_the_memory_held_stays_near_the_matrix(tmp_path, monkeypatch):
    v = np.random.default_rng(0).normal(size=(40_000, 64)).astype(np.float32)
    pq.write_table(pa.table({"emb": lists("fixed", v)}), tmp_path / "t.parquet", row_group_size=2000)
    monkeypatch.setattr(arrow, "BATCH", 2**17)
    before, held = pa.total_allocated_bytes(), []
    request = Request(tmp_path / "t.parquet", progress=lambda share: held.append(pa.total_allocated_bytes() - before))
    np.testing.assert_array_equal(parquet.read(request).vectors, v)
    assert len(held) > 5 and max(held) < v.nbytes / 2


@settings(max_examples=40, deadline=None)
@given(
    hypothesis_arrays(np.float32, st.tuples(st.integers(1, 9), st.integers(1, 6)), elements=st.floats(width=32)),
    st.sampled_from(["list", "large", "fixed"]),
)
def test_what_pyarrow_writes_reads_back_bit_equal(v, kind):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.parquet"
        pq.write_table(pa.table({"emb": lists(kind, v)}), path)
        raw = parquet.read(Request(path))
    np.testing.assert_array_equal(raw.vectors.view(np.uint32)[~np.isnan(v)], v.view(np.uint32)[~np.isnan(v)])
    assert np.isnan(raw.vectors[np.isnan(v)]).all() and not raw.aside


@settings(max_examples=40, deadline=None)
@given(spaces())
def test_what_is_written_reads_back_bit_equal(space):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.parquet"
        assert write(space, path) == []
        back = load(path)[0]
    same(space, back, [])
    if space.meta is not None:
        assert back.meta.columns.tolist() == space.meta.columns.tolist()


def test_metadata_keeps_its_types(tmp_path):
    meta = pd.DataFrame({"n": range(3), "f": [0.5, np.nan, 2], "ok": [True, False, True], "s": ["a", None, "c"]})
    space, _ = make_space(np.eye(3), meta=meta)
    assert write(space, tmp_path / "t.parquet") == []
    back, report = load(tmp_path / "t.parquet")
    pd.testing.assert_frame_equal(back.meta, meta, check_dtype=False)
    assert [back.meta[c].dtype.kind for c in "nf"] == ["i", "f"] and report.assumed[-1].startswith("column 'vectors'")


SEEDS = None


def seeds() -> list[bytes]:
    global SEEDS
    if SEEDS is None:
        df = pd.DataFrame(
            {"w": [f"w{i}" for i in range(N)], "k": pd.Categorical(["a", "b"] * (N // 2)), "emb": V.tolist()}
        )
        SEEDS = []
        for compression in ("snappy", None):
            out = io.BytesIO()
            df.to_parquet(out, compression=compression)
            SEEDS.append(out.getvalue())
    return SEEDS


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 1), st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=8), st.booleans())
def test_a_mutated_file_is_an_input_error_or_a_space(which, where, data, cut):
    good = seeds()[which]
    at = int(where * len(good))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.parquet"
        path.write_bytes(good[:at] if cut else good[:at] + data + good[at + len(data) :])
        try:
            space, report = load(path)
        except InputError:
            return
        assert len(space) == report.rows_used


def test_numbers_with_nulls_are_exact():
    big = [2**24 + 1, None, 2**53 + 1, -7]
    np.testing.assert_array_equal(
        arrow.numbers(pa.array(big, pa.int64())), np.array([2**24 + 1, np.nan, 2**53 + 1, -7], dtype=np.float32)
    )


def test_matrices_of_one_row_are_vectors(tmp_path):
    cells = [[row] for row in V.tolist()]
    cells[2], cells[5], cells[6] = None, [[1.0] * 4] * 2, []
    for inner in (pa.list_(pa.float64()), pa.list_(pa.float64(), 4)):
        pq.write_table(pa.table({"emb": pa.array(cells, pa.list_(inner))}), tmp_path / "t.parquet", row_group_size=3)
        space, report = load(tmp_path / "t.parquet")
        np.testing.assert_array_equal(space.vectors, np.delete(V, [2, 5, 6], 0).astype(np.float32))
        reasons = ["missing vector", "a matrix, not a vector (2 rows)", "missing vector"]
        assert [s.reason for s in report.set_aside] == reasons and report.dtype == "float64"
        assert peek(tmp_path / "t.parquet").dim == 4
