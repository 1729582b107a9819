"""Which column is what, in every kind of table; and vectors written as text."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from relcore.errors import InputError
from relcore.formats import AmbiguousError, columns, load, peek
from relcore.formats import arrays as arrays_of

FORMATS = ("csv", "tsv", "parquet", "feather", "jsonl")


@pytest.fixture(params=FORMATS)
def save(request, tmp_path):
    """Write a DataFrame as pandas does, in each format in turn."""

    def write(df: pd.DataFrame):
        path = tmp_path / f"t.{request.param}"
        if request.param in ("csv", "tsv"):
            df.to_csv(path, index=False, sep="," if request.param == "csv" else "\t")
        elif request.param == "jsonl":
            df.to_json(path, orient="records", lines=True, double_precision=15)
        else:
            getattr(df, f"to_{request.param}")(path)
        return path

    return write


def roles(path, **kw):
    return {c.name: c.role for c in peek(path, **kw).columns}


N = 20
V = np.random.default_rng(0).normal(size=(N, 3)).astype(np.float32)


def numeric(**more) -> pd.DataFrame:
    return pd.DataFrame(
        {"word": [f"w{i}" for i in range(N)], **dict(zip("abc", V.astype(float).T, strict=True)), **more}
    )


def packed(**more) -> pd.DataFrame:
    return pd.DataFrame({"word": [f"w{i}" for i in range(N)], "emb": V.astype(float).tolist(), **more})


def test_the_same_table_has_the_same_roles_in_every_format(save):
    kind, code = ["cat", "dog"] * (N // 2), [f"{i % 3:02d}" for i in range(N)]
    path = save(numeric(kind=kind, id=range(100, 100 + N), code=code))
    seen = peek(path)
    expected = dict(word="name", a="vector", b="vector", c="vector", kind="label", id="id", code="meta")
    assert {c.name: c.role for c in seen.columns} == expected
    assert {c.name: c.kind for c in seen.columns}["code"] == "text" and seen.dim == 3
    assert {c.name: c.examples for c in seen.columns}["kind"] == ("cat", "dog", "cat", "dog", "cat")
    np.testing.assert_array_equal(seen.head, V[:5])
    space, _ = load(path)
    np.testing.assert_array_equal(space.vectors, V)
    assert list(space.labels) == kind and list(space.names) == [f"w{i}" for i in range(N)]
    assert list(map(str, space.meta["id"])) == [str(i) for i in range(100, 100 + N)]
    assert list(space.meta["code"]) == code


def test_a_column_of_vectors_makes_numbers_metadata(save):
    path = save(packed(year=range(1990, 1990 + N)))
    assert roles(path) == dict(word="name", emb="vector", year="meta")
    seen = peek(path)
    assert seen.dim == 3 and seen.columns[1].kind == "vector" and seen.columns[1].examples[0].startswith("[")
    space, report = load(path)
    np.testing.assert_array_equal(space.vectors, V)
    assert list(map(str, space.meta["year"])) == [str(y) for y in range(1990, 1990 + N)]
    assert "column 'emb' read as the vectors" in report.assumed


def test_roles_can_be_changed_before_reading(save):
    path = save(numeric(year=range(N), note=["x"] * N))
    assert load(path)[0].dim == 4
    for role in ("meta", "id", "ignore"):
        space, _ = load(path, columns={"year": role})
        np.testing.assert_array_equal(space.vectors, V)
        assert (space.meta is not None and "year" in space.meta) == (role != "ignore")
        assert roles(path, columns={"year": role})["year"] == role
    space, _ = load(path, columns={"year": "label", "word": "meta", "note": "name"})
    assert list(space.labels) == [str(i) for i in range(N)] and list(space.names) == ["x"] * N
    with pytest.raises(InputError, match="'word' holds 'w0', wanted a number"):
        load(path, columns={"word": "vector", "a": "meta", "b": "meta", "c": "vector", "year": "meta"})
    with pytest.raises(InputError, match="no column 'z'"):
        load(path, columns={"z": "meta"})
    with pytest.raises(InputError, match="'year' is to be"):
        load(path, labels="year", columns={"year": "vector"})


def test_a_chosen_column_of_vectors_replaces_the_assumed_one(save):
    other = (V[:, :2] * 2).astype(float)
    path = save(packed(second=other.tolist()))
    with pytest.raises(AmbiguousError, match="2 columns of vectors: emb, second; choose one as"):
        load(path)
    assert [a.name for a in arrays_of(path)] == ["emb", "second"]
    assert "2 columns of vectors" in peek(path).warned[0]
    for kw in (dict(key="second"), dict(columns={"second": "vector"}), dict(columns={"emb": "ignore"})):
        space, _ = load(path, **kw)
        np.testing.assert_array_equal(space.vectors, other.astype(np.float32))
    np.testing.assert_array_equal(load(f"{path}:emb")[0].vectors, V)
    with pytest.raises(InputError, match="are all to be the vector"):
        load(path, columns={"emb": "vector", "second": "vector"})
    named = save(packed(embedding=other.tolist()))
    np.testing.assert_array_equal(load(named)[0].vectors, other.astype(np.float32))


def test_numbers_win_over_vectors_when_chosen(save):
    path = save(packed(a=V[:, 0].astype(float), b=V[:, 1].astype(float)))
    space, _ = load(path, columns={"a": "vector", "b": "vector", "emb": "ignore"})
    np.testing.assert_array_equal(space.vectors, V[:, :2])
    with pytest.raises(InputError, match="are all to be the vector"):
        load(path, columns={"a": "vector", "emb": "vector"})


def test_b03_missing_vectors_are_not_zeros(save):
    df = packed()
    for row in (2, 5, 11):
        df.at[row, "emb"] = None
    space, report = load(save(df))
    assert [tuple(s) for s in report.set_aside] == [(r, "missing vector") for r in (2, 5, 11)]
    keep = [i for i in range(N) if i not in (2, 5, 11)]
    np.testing.assert_array_equal(space.vectors, V[keep])
    assert list(space.ids) == keep and list(space.names) == [f"w{i}" for i in keep]
    df["emb"] = [None] * N
    with pytest.raises(InputError, match="emb"):
        load(save(df))


def test_b16_labels_stay_as_they_were(save):
    labels = pd.Series([i % 10 for i in range(N)], dtype="Int64")
    space, _ = load(save(packed(label=labels)))
    assert list(space.labels) == [str(i % 10) for i in range(N)]
    labels[3] = pd.NA
    space, _ = load(save(packed(label=labels)))
    assert space.labels[3] == "" and space.labels[4] == "4"
    floats = labels.astype(float)  # 1.0, nan, 2.0: what pandas makes of whole numbers where one is missing
    space, _ = load(save(packed(label=floats)))
    assert space.labels[3] == "" and space.labels[4] == "4"
    space, _ = load(save(packed(label=["1", "01"] * (N // 2))))
    assert list(space.labels[:2]) == ["1", "01"]
    space, _ = load(save(packed(label=[True, False] * (N // 2))))
    assert [x.lower() for x in space.labels[:2]] == ["true", "false"]


def test_wrong_lengths_are_set_aside_and_named(save):
    df = packed()
    df.at[4, "emb"] = [1.0, 2.0]
    df.at[7, "emb"] = [1.0, 2.0, 3.0, 4.0]
    df.at[8, "emb"] = []
    space, report = load(save(df))
    assert {s.row: s.reason for s in report.set_aside} == {
        4: "wrong length (2 numbers, wanted 3)",
        7: "wrong length (4 numbers, wanted 3)",
        8: "missing vector",
    }
    np.testing.assert_array_equal(space.vectors, V[[i for i in range(N) if i not in (4, 7, 8)]])
    df["emb"] = [[1.0] * (2 + i % 2) for i in range(N)]
    with pytest.raises(InputError, match="10 of 2 numbers, 10 of 3 numbers"):
        load(save(df))


def test_numbers_that_a_vector_lacks(save):
    df = packed()
    df.at[4, "emb"] = [1.0, None, 2.0]
    df.at[6, "emb"] = [None, None, None]
    _, report = load(save(df))
    assert [tuple(s) for s in report.set_aside] == [(4, "NaN or infinite"), (6, "NaN or infinite")]
    df = numeric()
    df.loc[3, ["a", "b", "c"]] = np.nan
    df.loc[5, "b"] = np.nan
    _, report = load(save(df))
    assert [tuple(s) for s in report.set_aside] == [(3, "missing vector"), (5, "NaN or infinite")]


def test_the_memory_estimate_is_from_above(save):
    path = save(packed())
    assert peek(path).memory >= V.nbytes


def test_counted_columns_are_the_vector_and_other_numbers_metadata(save):
    path = save(pd.DataFrame({**{str(i): V[:, i].astype(float) for i in range(3)}, "year": range(N)}))
    assert roles(path) == {"0": "vector", "1": "vector", "2": "vector", "year": "meta"}
    np.testing.assert_array_equal(load(path)[0].vectors, V)


def test_a_blank_label_column_is_no_label(save):
    space, report = load(save(packed(label=[None] * N, kind=["a", "b"] * (N // 2))))
    assert space.labels is None and "'label' is blank: no labels" in report.assumed
    assert list(space.meta["kind"][:2]) == ["a", "b"]


# ---------------------------------------------------------------- vectors as text

ONE = [0.5, -2.0, 1e-7]
SPELLED = {
    "list": "[0.5, -2.0, 1e-07]",
    "numpy": "[ 5.e-01 -2.e+00  1.e-07]",
    "numpy on two lines": "[ 5.e-01 -2.e+00\n  1.e-07]",
    "numpy repr": "array([ 5.e-01, -2.e+00,  1.e-07], dtype=float32)",
    "numpy scalars": repr([np.float32(0.5), np.float64(-2.0), np.float32(1e-7)]),
    "torch": "tensor([ 5.0000e-01, -2.0000e+00,  1.0000e-07])",
    "torch device": "tensor([0.5, -2., 1e-7], device='cuda:0', grad_fn=<AddBackward0>)",
    "torch dtype": "tensor([0.5, -2., 1e-7], dtype=torch.float64, requires_grad=True)",
    "torch parameter": "Parameter containing:\ntensor([0.5, -2., 1e-7], requires_grad=True)",
    "torch scalars": "[tensor(0.5), tensor(-2.), tensor(1e-7)]",
    "tensorflow": "tf.Tensor([0.5 -2. 1e-7], shape=(3,), dtype=float32)",
    "tuple": "(0.5, -2.0, 1e-07)",
    "trailing comma": "(0.5, -2.0, 1e-07,)",
    "postgres": "{0.5,-2,1e-07}",
    "semicolons": "0.5;-2.0;1e-07",
    "spaces": "0.5 -2.0 1e-07",
    "bars": "0.5|-2.0|1e-07",
    "one row": "[[0.5, -2.0, 1e-07]]",
    "strings": "['0.5', '-2.0', '1e-07']",
}


@pytest.mark.parametrize("text", SPELLED.values(), ids=SPELLED)
def test_every_spelling_of_a_vector(text):
    assert list(columns.vector(text)) == ONE


def test_what_the_libraries_print_today():
    v = torch.tensor([0.25, -3.0])
    printed = (v, v.clone().requires_grad_() * 1, torch.nn.Parameter(v), v.numpy(), repr(v.numpy()), v.tolist())
    for text in map(str, printed):
        assert list(columns.vector(text)) == [0.25, -3.0], text


@pytest.mark.parametrize("text", [str(np.arange(2000.0)), str(torch.arange(2000.0)), "[0.1, 0.2, ...", "[1 2 … 3 4]"])
def test_a_printed_vector_is_gone(text):
    assert columns.vector(text) == "printed and truncated, the data is gone"


@pytest.mark.parametrize("text", ["[0.1, 0.2, 0.", "tensor([0.1, 0.2, -", "[0.1 0.2 0.3"])
def test_a_cut_vector_is_gone(text):
    assert columns.vector(text) == "cut off before its end, the data is gone"


@pytest.mark.parametrize("text", ["", "nan", "None", "null", "NA", "<NA>", " "])
def test_a_missing_vector(text):
    assert columns.vector(text) == "missing vector"


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "[1,2]+[3]",
        "[1, 2",
        "[1_0, 2]",
        "[0,1; 0,2]",
        "[[1,2],[3,4]]",
        "[1,,2]",
        "hello",
    ]
    + [
        "12",
        "1,234",
        "1,5",
        "1,234,567",
        "[1+2j, 3]",
        "[a, b]",
        "2020-01-01 10:00",
        "see ... 3",
        "[0x10, 1]",
        "print([1,2])",
    ]
    + ["[1, 2] and more", "tensor([1, 2]) + 1", "tensor([1, 2], f(x))", "{'a': 1}"],
)
def test_what_is_no_vector(text):
    assert columns.vector(text) in (None, "cut off before its end, the data is gone")
    if text != "[1, 2":
        assert columns.vector(text) is None


def test_missing_numbers_inside_are_nan():
    found = columns.vector("[null, 1, NaN]")
    assert math.isnan(found[0]) and found[1] == 1 and math.isnan(found[2])


@settings(max_examples=60, deadline=None)
@given(arrays(np.float32, st.integers(2, 40), elements=st.floats(width=32, allow_nan=False)), st.sampled_from("lrsj"))
def test_what_numpy_prints_reads_back_bit_equal(v, how):
    with np.printoptions(threshold=10**6, precision=9, floatmode="unique"):
        text = {"l": str(v.tolist()), "r": repr(v), "s": str(v), "j": ";".join(map(str, v))}[how]
    np.testing.assert_array_equal(np.array(columns.vector(text)).astype(np.float32), v)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="[](){}0123456789.,;| e-+_nantesorfly='\n<>…", max_size=60))
def test_no_text_breaks_the_parser(text):
    found = columns.vector(text)
    assert found is None or isinstance(found, str) or all(isinstance(x, float) for x in found)


def test_long_nonsense_takes_no_time():
    for text in ("[" * 10**5, "tensor([1]" + " ," * 10**5 + ")", "(" + "1 " * 10**5, "[1]" + "=" * 10**5, "1," * 10**5):
        columns.vector(text)


def test_gathered_vectors_keep_their_rows():
    v = columns.Vectors()
    rng, want = np.random.default_rng(1), {}
    for row in range(500):
        if row % 7 == 3:
            v.lose(row, "gone")
        else:
            length = 5 if row % 11 == 5 else 4
            block = rng.normal(size=(1, length)).astype(np.float32)
            v.add((row,), block)
            if length == 4:
                want[row] = block[0]
    matrix, aside = v.finish(500, "f")
    assert set(aside) == set(range(500)) - set(want)
    for row, x in want.items():
        np.testing.assert_array_equal(matrix[row], x)
    assert not matrix[list(aside)].any()


@pytest.mark.parametrize("kind", ["parquet", "feather", "jsonl"])
def test_text_that_spells_numbers_can_be_chosen(kind, tmp_path):
    df = numeric(text=[f"{i}.5" for i in range(N - 1)] + [None])
    path = tmp_path / f"t.{kind}"
    df.to_json(path, orient="records", lines=True) if kind == "jsonl" else getattr(df, f"to_{kind}")(path)
    space, report = load(path, columns={"text": "vector"})
    assert space.dim == 4 and space.vectors[:, 3].tolist() == [i + 0.5 for i in range(N - 1)]
    assert report.set_aside[0].row == N - 1
