"""JSON lines and JSON lists as Python, pandas and services write them; good lines, and broken ones."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as hypothesis_arrays

from relcore.errors import InputError
from relcore.formats import jsonl, load, peek, write
from relcore.formats.base import Request
from relcore.space import make_space
from tests.formats.test_table import same, spaces

N = 20
V = np.random.default_rng(0).normal(size=(N, 4))


@pytest.fixture
def lines(tmp_path):
    """Write objects (or texts) one a line, and load them."""

    def save(rows, name="t.jsonl", **kw):
        text = "\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows)
        (tmp_path / name).write_text(text + "\n", encoding="utf-8")
        return load(tmp_path / name, **kw)

    return save


def refused(lines, rows, *words, **kw):
    with pytest.raises(InputError) as e:
        lines(rows, **kw)
    for word in words:
        assert word in str(e.value), str(e.value)


ROWS = [{"id": f"r{i}", "text": f"a text, {i}", "embedding": row} for i, row in enumerate(V.tolist())]


@pytest.mark.parametrize("name", ["t.jsonl", "t.ndjson", "t.json"])
def test_one_object_a_line(lines, name):
    space, report = lines(ROWS, name)
    np.testing.assert_array_equal(space.vectors, V.astype(np.float32))
    assert list(space.names) == [r["text"] for r in ROWS] and list(space.meta["id"]) == [r["id"] for r in ROWS]
    assert report.format == "jsonl" and report.dtype == "text"


def test_a_json_file_with_a_list(tmp_path):
    path = tmp_path / "t.json"
    answer = {"object": "list", "model": "x", "usage": {"total_tokens": 3}}
    answer["data"] = [{"object": "embedding", "index": i, "embedding": r} for i, r in enumerate(V.tolist())]
    shapes = {
        "a list": ROWS,
        "an answer of OpenAI": answer,
        "columns": {k: [r[k] for r in ROWS] for k in ROWS[0]},
        "vectors by name": {r["id"]: r["embedding"] for r in ROWS},
        "a matrix": V.tolist(),
        "pandas": json.loads(pd.DataFrame(ROWS).to_json(double_precision=15)),
    }
    for what, value in shapes.items():
        for indent in (None, 2):
            path.write_text(json.dumps(value, indent=indent))
            space, _ = load(path)
            np.testing.assert_array_equal(space.vectors, V.astype(np.float32), err_msg=what)
        if what == "vectors by name":
            assert list(space.names) == [r["id"] for r in ROWS]
    for value in (3, "x", {"a": 1}, [1, 2], [], {}, None):
        path.write_text(json.dumps(value))
        with pytest.raises(InputError, match="t.json"):
            load(path)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings(tmp_path, encoding):
    rows = [{"name": f"é\u4e2d{i}", "v": [i, 1]} for i in range(5)]
    text = "\n".join(json.dumps(r, ensure_ascii=False) for r in rows)
    (tmp_path / "t.jsonl").write_bytes(text.encode(encoding))
    assert list(load(tmp_path / "t.jsonl")[0].names) == [r["name"] for r in rows]
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress(text.encode(encoding)))
    assert list(load(tmp_path / "t.jsonl.gz")[0].names) == [r["name"] for r in rows]


def test_bytes_that_are_no_text_are_counted_with_their_rows(tmp_path):
    (tmp_path / "t.jsonl").write_bytes(b'{"name":"a","v":[1,2]}\n{"name":"caf\xe9","v":[3,4]}\n')
    space, report = load(tmp_path / "t.jsonl")
    assert space.names[1] == "caf\ufffd" and "1 rows hold bytes that are no UTF-8" in report.warnings[0]


def test_numbers_that_json_has_not(lines):
    rows = [*ROWS[:3], {"id": "x", "text": "y", "embedding": [float("nan"), 1, 2, 3]}]
    rows += ['{"id": "z", "text": "q", "embedding": [-Infinity, 1, 2, 3]}']
    space, report = lines(rows)
    assert [tuple(s) for s in report.set_aside] == [(3, "NaN or infinite"), (4, "NaN or infinite")]


def test_a_bad_line_is_named(lines):
    refused(lines, [*ROWS[:3], '{"id": 3, "embedding": [1, 2'], "line 4 is no JSON object")
    refused(lines, [*ROWS[:3], "", "{'id': 3}"], "line 5 is no JSON object")
    refused(lines, [*ROWS[:3], "7"], "line 4 holds '7', wanted an object")
    refused(lines, [*ROWS[:3], "[" * 100_000], "line 4 is no JSON object")
    bad = {"id": "x", "text": "y", "embedding": [1, "oops", 2, 3]}
    refused(lines, [*ROWS[:3], bad], "row 3 (line 4), 'embedding' holds", "oops")
    refused(lines, [*ROWS[:3], bad | {"embedding": {"a": 1}}], "row 3 (line 4)", "wanted a list of numbers")
    refused(lines, [{"a": 1, "b": 2}, {"a": 3, "b": 4}, {"a": 1, "b": "lots"}], "row 2 (line 3), 'b' holds 'lots'")


def test_missing_keys_and_late_ones(lines):
    rows = [dict(r) for r in ROWS * 15]
    del rows[5]["embedding"], rows[6]["id"]
    rows[250]["new"] = 3
    rows[251]["other"] = [1.0, 2.0]
    space, report = lines(rows)
    assert [tuple(s) for s in report.set_aside] == [(5, "missing vector")]
    assert space.meta["id"].isna().sum() == 1 and list(space.meta["new"].dropna()) == ["3"]
    assert list(space.meta["new"]).index("3") == 249  # the row that was set aside is gone from everything
    assert "keys that not all objects have read as metadata: new" in report.assumed
    assert "columns not used: other" in report.assumed


def test_single_numbers_nested_values_and_types(lines):
    rows = [{"w": f"w{i}", "a": i + 1, "b": 0.5, "more": {"x": [i]}, "ok": i % 2 == 0, "when": None} for i in range(6)]
    space, _ = lines(rows, columns={"ok": "meta"})
    assert space.vectors.tolist() == [[i + 1, 0.5] for i in range(6)]
    assert space.meta["more"][2] == '{"x": [2]}' and space.meta["ok"].tolist() == [True, False] * 3


def test_numbers_too_large(lines):
    space, report = lines([{"v": [1, 2]}, {"v": [10**400, 1]}, {"v": [2**70, 1]}])
    assert [s.row for s in report.set_aside] == [1] and space.vectors[1, 0] == np.float32(2.0**70)


def test_half_characters_do_not_stop_it(lines):
    space, _ = lines(['{"name": "a\\ud83d", "v": [1, 2]}', '{"name": "\\ud83d\\ude00", "v": [1, 2]}'])
    assert list(space.names) == ["a\ufffd", "\U0001f600"]


def test_vectors_written_as_text(lines):
    rows = [{"n": f"n{i}", "v": str(row)} for i, row in enumerate(V.tolist())]
    rows[3]["v"] = "[0.1 ... 0.2]"
    space, report = lines(rows)
    np.testing.assert_array_equal(space.vectors, np.delete(V, 3, 0).astype(np.float32))
    assert report.set_aside[0].row == 3


def test_metadata_beside_vectors(tmp_path):
    np.save(tmp_path / "v.npy", V)
    rows = [{"name": f"n{i}", "kind": i % 2, "note": None} for i in range(N)]
    (tmp_path / "m.jsonl").write_text("\n".join(map(json.dumps, rows)))
    space, _ = load(tmp_path / "v.npy", names=tmp_path / "m.jsonl", labels=f"{tmp_path}/m.jsonl:kind")
    assert space.names[3] == "n3" and list(space.labels[:2]) == ["0", "1"]
    frame = jsonl.frame(tmp_path / "m.jsonl")
    assert frame.columns.tolist() == ["name", "kind", "note"] and frame["note"].isna().all()
    with pytest.raises(InputError, match="no key 'z' for the labels; it has name, kind, note"):
        load(tmp_path / "v.npy", labels=f"{tmp_path}/m.jsonl:z")


def test_no_rows_and_too_many_keys(lines):
    refused(lines, ["{}"], "none of the 0 columns")
    refused(
        lines, [{f"k{i}": "x"} | ROWS[0] for i in range(300)] + [{f"l{i}": 1 for i in range(11_000)} | ROWS[0]], "keys"
    )


def test_peek_reads_the_first_rows_only(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS * 11)) + "\nbroken")
    seen = peek(path)
    assert seen.rows is None and seen.dim == 4 and seen.memory > V.nbytes
    np.testing.assert_array_equal(seen.head, V[:5].astype(np.float32))


@settings(max_examples=40, deadline=None)
@given(
    hypothesis_arrays(np.float32, st.tuples(st.integers(1, 9), st.integers(1, 6)), elements=st.floats(width=32)),
    st.sampled_from(["lines", "list"]),
)
def test_what_python_writes_reads_back_bit_equal(v, how):
    rows = [{"v": row} for row in v.tolist()]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("t.jsonl" if how == "lines" else "t.json")
        path.write_text(json.dumps(rows) if how == "list" else "\n".join(map(json.dumps, rows)))
        raw = jsonl.read(Request(path))
    finite = np.isfinite(v)
    np.testing.assert_array_equal(raw.vectors.view(np.uint32)[finite], v.view(np.uint32)[finite])
    assert not np.isfinite(raw.vectors[~finite]).any() and not raw.aside


@settings(max_examples=40, deadline=None)
@given(spaces(), st.sampled_from(["jsonl", "json"]))
def test_what_is_written_reads_back_bit_equal(space, ending):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"t.{ending}"
        notes = write(space, path)
        same(space, load(path)[0], notes)


def test_metadata_keeps_its_types(tmp_path):
    meta = pd.DataFrame({"n": range(3), "f": [0.5, np.nan, 2], "ok": [True, False, True], "s": ["a", None, "c"]})
    space, _ = make_space(np.eye(3), meta=meta)
    assert write(space, tmp_path / "t.jsonl") == []
    back, _ = load(tmp_path / "t.jsonl")
    assert back.labels is None and list(back.names) == ["0", "1", "2"]
    pd.testing.assert_frame_equal(back.meta, meta, check_dtype=False)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=4), st.floats(0, 1, exclude_max=True), st.sampled_from(["cut", "put", "over"]), st.booleans())
def test_a_mutated_file_is_an_input_error_or_a_space(data, where, how, listed):
    good = (json.dumps(ROWS) if listed else "\n".join(map(json.dumps, ROWS))).encode()
    at = int(where * len(good))
    rest = {"cut": b"", "put": data + good[at:], "over": data + good[at + len(data) :]}[how]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("t.json" if listed else "t.jsonl")
        path.write_bytes(good[:at] + rest)
        try:
            space, report = load(path)
        except InputError:
            return
        assert len(space) == report.rows_used


def test_matrices_of_one_row_and_other_endings(lines):
    space, _ = lines([{"v": [row]} for row in V.tolist()])
    np.testing.assert_array_equal(space.vectors, V.astype(np.float32))
    _, report = lines(ROWS, "t.csv")
    assert report.format == "jsonl" and "the file holds jsonl" in report.warnings[0]


def test_numbers_longer_than_python_reads_are_infinite(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"embedding": [' + "9" * 5000 + ', 1]}\n{"embedding": [1, 2]}\n')
    space, report = load(tmp_path / "a.jsonl")
    assert space.vectors.tolist() == [[1, 2]] and [s.row for s in report.set_aside] == [0]


def test_half_characters_nested_deeply_are_bad_input(tmp_path):
    for depth in (300, 450, 600, 800, 950):
        (tmp_path / "a.jsonl").write_text("[" * depth + '"\\ud800"' + "]" * depth + "\n")
        with pytest.raises(InputError):
            load(tmp_path / "a.jsonl")
