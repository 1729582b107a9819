"""Feather and Arrow streams as pandas, pyarrow and Hugging Face write them; good files, and broken ones."""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather_file
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as hypothesis_arrays

from relcore.errors import InputError
from relcore.formats import feather, load, peek, write
from relcore.formats.base import Request
from relcore.formats.registry import reader
from tests.formats.test_parquet import lists, png
from tests.formats.test_table import same, spaces

N = 20
V = np.random.default_rng(0).normal(size=(N, 4))


def save(path: Path, table: pa.Table, how: str = "file", **options) -> Path:
    new = pa.ipc.new_file if how == "file" else pa.ipc.new_stream
    with new(str(path), table.schema, options=pa.ipc.IpcWriteOptions(**options)) as out:
        out.write_table(table, max_chunksize=7)
    return path


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "u1", "i8"])
@pytest.mark.parametrize("kind", ["list", "large", "fixed"])
@pytest.mark.parametrize("how", ["file", "stream"])
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_files_and_streams_of_every_kind(tmp_path, kind, dtype, how, compression):
    v = (V * 20).astype(dtype)
    v[~v.any(1)] = 1
    table = pa.table({"word": [f"w{i}" for i in range(N)], "emb": lists(kind, v)})
    path = save(tmp_path / "t.arrow", table, how, compression=compression)
    space, report = load(path)
    np.testing.assert_array_equal(space.vectors, v.astype(np.float32))
    assert list(space.names) == [f"w{i}" for i in range(N)] and report.dtype == str(np.dtype(dtype))
    seen = peek(path)
    assert (seen.rows, seen.dim) == (N, 4) and seen.memory >= space.vectors.nbytes


def test_feather_as_pandas_writes_it(tmp_path):
    kind = pd.Categorical(["a", "b", None, "b"] * (N // 4))
    df = pd.DataFrame({"kind": kind, "emb": V.tolist(), "n": [1, None] * (N // 2)})
    df.at[3, "emb"] = None
    df.to_feather(tmp_path / "t.feather")
    space, report = load(tmp_path / "t.feather")
    np.testing.assert_array_equal(space.vectors, np.delete(V, 3, 0).astype(np.float32))
    assert list(space.labels[:3]) == ["a", "b", ""] and [tuple(s) for s in report.set_aside] == [(3, "missing vector")]


def test_a_data_set_as_hugging_face_keeps_it(tmp_path):
    pictures = [{"bytes": png(i), "path": None} for i in range(N)]
    table = pa.table({"img": pictures, "emb": lists("list", V.astype("f4")), "label": [i % 3 for i in range(N)]})
    path = save(tmp_path / "data-00000-of-00001.arrow", table, "stream")
    raw = feather.read(Request(path))
    assert raw.media == [png(i) for i in range(N)] and raw.labels == [str(i % 3) for i in range(N)]
    np.testing.assert_array_equal(raw.vectors, V.astype("f4"))


def test_tensors_of_arrow(tmp_path):
    type = pa.fixed_shape_tensor(pa.float32(), [4])
    column = pa.ExtensionArray.from_storage(type, lists("fixed", V.astype("f4")))
    for how in ("file", "stream"):
        space, _ = load(save(tmp_path / "t.arrow", pa.table({"emb": column}), how))
        np.testing.assert_array_equal(space.vectors, V.astype("f4"))


def test_batches_with_slices_and_nulls(tmp_path):
    cells = V.tolist()
    cells[8] = cells[15] = None
    for type in (pa.list_(pa.float64()), pa.list_(pa.float64(), 4)):
        table = pa.table({"emb": pa.array(cells, type)}).slice(3, 14)
        space, report = load(save(tmp_path / "t.arrow", table))
        assert [s.row for s in report.set_aside] == [5, 12]
        np.testing.assert_array_equal(space.vectors, np.delete(V[3:17], [5, 12], 0).astype(np.float32))


def test_frames_and_single_columns(tmp_path):
    np.save(tmp_path / "v.npy", V)
    table = pa.table({"kind": pa.array([1, None] * (N // 2)), "emb": V.tolist()})
    path = save(tmp_path / "m.arrow", table, "stream")
    assert list(load(tmp_path / "v.npy", labels=path)[0].labels[:2]) == ["1", ""]
    assert feather.frame(path)["kind"].tolist()[:2] == ["1", None]


def test_damaged_files(tmp_path):
    table = pa.table({"emb": lists("fixed", V)})
    for how in ("file", "stream"):
        path = save(tmp_path / "t.arrow", table, how)
        good = path.read_bytes()
        for bad in (good[:40], good[: len(good) // 2], good[:8] + bytes(len(good) - 8)):
            path.write_bytes(bad)
            with pytest.raises(InputError, match="t.arrow"):
                load(path)
    path.write_bytes(b"FEA1" + bytes(100))
    with pytest.raises(InputError, match="Feather version 1"):
        load(path)
    with pytest.raises(InputError, match="holds no rows"):
        load(save(tmp_path / "e.feather", table.slice(0, 0)))


def test_a_bomb_is_not_unpacked(tmp_path):
    flat = pa.array(np.zeros(2**25, dtype=np.float32))
    path = save(
        tmp_path / "t.arrow", pa.table({"emb": pa.FixedSizeListArray.from_arrays(flat, 2**25)}), compression="zstd"
    )
    assert path.stat().st_size < 2**17
    before = pa.total_allocated_bytes()
    with pytest.raises(InputError, match="decompression bomb"):
        load(path)
    assert pa.total_allocated_bytes() - before < 2**20


def test_files_of_another_name(tmp_path):
    path = save(tmp_path / "t.feather", pa.table({"emb": V.tolist()}))
    path.rename(tmp_path / "t.bin")
    assert reader(tmp_path / "t.bin") is feather and len(load(tmp_path / "t.bin")[0]) == N


@settings(max_examples=40, deadline=None)
@given(
    hypothesis_arrays(np.float32, st.tuples(st.integers(1, 9), st.integers(1, 6)), elements=st.floats(width=32)),
    st.sampled_from(["list", "large", "fixed"]),
    st.sampled_from(["file", "stream"]),
)
def test_what_pyarrow_writes_reads_back_bit_equal(v, kind, how):
    with tempfile.TemporaryDirectory() as folder:
        raw = feather.read(Request(save(Path(folder) / "t.arrow", pa.table({"emb": lists(kind, v)}), how)))
    np.testing.assert_array_equal(raw.vectors.view(np.uint32)[~np.isnan(v)], v.view(np.uint32)[~np.isnan(v)])
    assert np.isnan(raw.vectors[np.isnan(v)]).all() and not raw.aside


@settings(max_examples=40, deadline=None)
@given(spaces(), st.sampled_from(["feather", "arrow"]))
def test_what_is_written_reads_back_bit_equal(space, ending):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"t.{ending}"
        assert write(space, path) == []
        back = load(path)[0]
    same(space, back, [])
    if space.meta is not None:
        assert back.meta.columns.tolist() == space.meta.columns.tolist()


SEEDS: list[bytes] = []


def seeds() -> list[bytes]:
    if not SEEDS:
        words, kinds = [f"w{i}" for i in range(N)], pd.Categorical(["a", "b"] * (N // 2))
        df = pd.DataFrame({"w": words, "k": kinds, "emb": V.tolist()})
        for compression in ("lz4", "uncompressed"):
            out = io.BytesIO()
            df.to_feather(out, compression=compression)
            SEEDS.append(out.getvalue())
        out, table = io.BytesIO(), pa.Table.from_pandas(df)
        with pa.ipc.new_stream(out, table.schema) as stream:
            stream.write_table(table)
        SEEDS.append(out.getvalue())
    return SEEDS


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2), st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=8), st.booleans())
def test_a_mutated_file_is_an_input_error_or_a_space(which, where, data, cut):
    good = seeds()[which]
    at = int(where * len(good))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.feather"
        path.write_bytes(good[:at] if cut else good[:at] + data + good[at + len(data) :])
        try:
            space, report = load(path)
        except InputError:
            return
        assert len(space) == report.rows_used


def test_an_uncompressed_file_is_read_in_place(tmp_path):
    rows = pa.array(np.random.default_rng(0).normal(size=(20_000, 64)).tolist())
    table = pa.table({"name": [f"w{i}" for i in range(20_000)], "v": rows})
    feather_file.write_feather(table, tmp_path / "a.feather", compression="uncompressed")
    code = (
        "import sys, pyarrow as pa; from relcore.formats import load; load(sys.argv[1]); "
        "print(pa.default_memory_pool().max_memory())"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "a.feather"], capture_output=True, check=True)
    assert int(done.stdout) < 2**20  # the numbers alone take 10 MB


@pytest.mark.parametrize("compression", ["lz4", "zstd", "uncompressed"])
def test_the_estimate_holds_what_arrow_takes_beside_the_matrix(tmp_path, compression):
    rows = pa.array(np.random.default_rng(0).normal(size=(200_000, 64)).tolist())
    feather_file.write_feather(pa.table({"v": rows}), tmp_path / "a.feather", compression=compression)
    del rows
    code = (
        "import sys, pyarrow as pa; from relcore.formats import load; load(sys.argv[1]); "
        "print(pa.default_memory_pool().max_memory())"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "a.feather"], capture_output=True, check=True)
    assert peek(tmp_path / "a.feather").memory >= int(done.stdout) + 200_000 * 64 * 4


def test_tensors_of_two_dimensions_are_told(tmp_path):
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(48, dtype="f4").reshape(12, 2, 2))
    space, report = load(save(tmp_path / "a.arrow", pa.table({"v": tensors})))
    assert space.vectors.shape == (12, 4) and any("shape (2, 2)" in a for a in report.assumed)
