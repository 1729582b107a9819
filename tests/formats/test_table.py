"""CSV, TSV and whitespace tables: which columns are numbers, which are words, and where a bad cell is."""

from __future__ import annotations

import csv
import io
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as hypothesis_arrays

from relcore.errors import InputError
from relcore.formats import inspect, load, write
from relcore.formats import table as table_module
from relcore.formats.base import Request
from relcore.space import SetAside, make_space


@pytest.fixture
def table(tmp_path):
    """Write text (or bytes) as a file, and load it."""

    def write(text, name="t.csv", **kw):
        data = text if isinstance(text, bytes) else text.encode()
        (tmp_path / name).write_bytes(data)
        return load(tmp_path / name, **kw)

    return write


def refused(table, text, *words, name="t.csv", **kw):
    with pytest.raises(InputError) as e:
        table(text, name, **kw)
    for word in words:
        assert word in str(e.value), str(e.value)


ABC = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]


def test_header_names_labels_metadata(table):
    space, report = table("word,class,a,b,note\nx,1,1,2,hi\ny,2,3,4,\nx,1,5,6,hi\n")
    np.testing.assert_array_equal(space.vectors, ABC)
    assert list(space.names) == ["x", "y", "x"] and list(space.labels) == ["1", "2", "1"]
    assert space.meta.to_dict("list") == {"note": ["hi", "", "hi"]}
    assert report.assumed[:5] == (
        *("first line read as the header", "'word' read as names", "'class' read as labels"),
        *("columns read as metadata: note", "2 numeric columns read as the vector"),
    )
    assert report.dtype == "text" and report.format == "table"


def test_b15_a_class_in_the_last_column_without_header(table):
    text = "".join(f"{i}\t{i * 2}\t{i + 0.5}\t-{i}\t{'fwd left back'.split()[i % 3]}\n" for i in range(1, 11))
    space, _ = table(text, "t.tsv")
    assert space.dim == 4 and list(space.labels)[:3] == ["left", "back", "fwd"]


def test_words_in_front_without_header(table):
    space, report = table("the,1,2\nof,3,4\nto,5,6\n")
    assert list(space.names) == ["the", "of", "to"] and "no header line" in report.assumed
    np.testing.assert_array_equal(space.vectors, ABC)


@pytest.mark.parametrize("index", [True, False])
def test_a_data_frame_of_numbers_as_pandas_writes_it(table, index):
    v = np.random.default_rng(0).normal(size=(20, 6))
    space, report = table(pd.DataFrame(v).to_csv(index=index))
    np.testing.assert_array_equal(space.vectors, v.astype(np.float32))
    assert "first line read as the header" in report.assumed


def test_numbers_are_read_as_numpy_reads_them(table):
    v = np.random.default_rng(1).normal(size=(300, 5)).astype(np.float32) * 1e20
    for delimiter, name in ((",", "t.csv"), ("\t", "t.tsv"), (" ", "t.txt"), (";", "t.csv"), ("   ", "t.txt")):
        out = io.StringIO()
        np.savetxt(out, v, delimiter=delimiter)
        space, _ = table(out.getvalue(), name)
        np.testing.assert_array_equal(space.vectors, v)


def test_rows_beyond_the_first_block(table):
    n = 9000  # several blocks of the parser, and the last one not full
    v = np.arange(n * 2, dtype=np.float32).reshape(n, 2) + 1
    space, report = table("\n".join(f"w{i},{a},{b}" for i, (a, b) in enumerate(v)))
    np.testing.assert_array_equal(space.vectors, v)
    assert space.names[-1] == "w8999" and report.rows_read == n


def test_columns_of_the_same_heading_are_kept_apart(table):
    space, _ = table("a,a,note,note\n1,2,x,y\n3,4,z,w\n5,6,x,v\n", names=["p", "q", "r"], labels=["1", "2", "1"])
    np.testing.assert_array_equal(space.vectors, ABC)
    space, _ = table("word,a,a,note,note\nk,1,2,x,y\nl,3,4,x,y\nm,5,6,x,y\n", labels=["1", "2", "1"])
    assert list(space.meta.columns) == ["column 3", "column 4"]


def test_one_row_is_a_table(table):
    space, _ = table("1.5,2.5")
    assert space.vectors.tolist() == [[1.5, 2.5]]
    space, _ = table("a,b\n1,2\n")
    assert space.vectors.tolist() == [[1, 2]]


def test_a_bad_number_names_row_line_and_column(table):
    refused(table, "word,a,b\nx,1,2\n\ny,3,oops\nz,5,6\n", "t.csv: row 1 (line 4)", "'b'", "'oops'", "a number")
    refused(table, "1,2\n3,4\n5,1_000\n", "row 2 (line 3)", "column 1", "'1_000'")
    late = "".join("1,2\n" for _ in range(5000)) + "1,x\n"
    refused(table, late, "row 5000 (line 5001)", "'x'")


@pytest.mark.parametrize("bad", ["3", "3,4,5"])
def test_ragged_rows_are_an_error_where_they_are_many_and_set_aside_where_few(table, bad):
    fields = bad.count(",") + 1
    refused(table, f"1,2\n{bad}\n5,6\n", "row 1 (line 2)", f"{fields} fields", "wanted 2")
    space, report = table("1,2\n" * 3000 + bad + "\n9,9\n")
    assert report.set_aside == (SetAside(3000, f"wrong number of fields ({fields}, wanted 2, line 3001)"),)
    assert len(space) == 3001 and space.vectors[-1].tolist() == [9, 9] and space.ids[-1] == 3001


def test_missing_cells_set_the_row_aside(table):
    space, report = table("a,b\n1,2\n,4\nNaN,1\n5,NULL\ninf,1\n7,8\n")
    assert [s.row for s in report.set_aside] == [1, 2, 3, 4]
    _, all_blank = table("word,a,b\nx,1,2\ny,,\n")
    assert all_blank.set_aside == (SetAside(1, "missing vector"),)
    assert report.set_aside[0] == SetAside(1, "NaN or infinite")
    np.testing.assert_array_equal(space.ids, [0, 5])


def test_words_that_look_missing_stay_words(table):
    space, _ = table("word,a\nnull,1\nNA,2\nnan,3\ntrue,4\n007,5\n")
    assert list(space.names) == ["null", "NA", "nan", "true", "007"]


def test_names_are_verbatim(table):
    space, _ = table('word,a\n" New, York ",1\n"say ""hi""",2\nÜber,3\n')
    assert list(space.names) == [" New, York ", 'say "hi"', "Über"]
    space, _ = table("\"\t1\t2\nthe\t3\t4\n'\t5\t6\n", "t.tsv")  # a lone quote is a word
    assert list(space.names) == ['"', "the", "'"]


def test_ids_never_enter_the_vector(table):
    space, report = table("id,a,b\n17,1,2\n4,3,4\n99,5,6\n")
    assert space.dim == 2 and list(space.names) == ["17", "4", "99"]
    assert list(space.meta["id"]) == ["17", "4", "99"]
    space, _ = table("id,word,a,b\n17,x,1,2\n4,y,3,4\n")
    assert space.dim == 2 and list(space.names) == ["x", "y"]


def test_a_chosen_column_leaves_the_vector(table, tmp_path):
    text = "p,q,r\n1,2,0\n3,4,1\n5,6,0\n"
    assert table(text)[0].dim == 3
    space, _ = table(text, labels="r")
    assert space.dim == 2 and list(space.labels) == ["0", "1", "0"]
    space, _ = table(text, labels=f"{tmp_path}/t.csv:r")
    assert space.dim == 2
    refused(table, text, "no column 'z' for the labels", "p, q, r", labels="z")
    refused(table, text, "leave out ':p'", key="p")


def test_labels_from_a_column_of_another_table(table, tmp_path):
    (tmp_path / "meta.csv").write_text("name,kind\na,1\nb,2\nc,1\n")
    space, _ = table("1,2\n3,4\n5,6\n", labels=f"{tmp_path}/meta.csv:kind", names=tmp_path / "meta.csv")
    assert list(space.labels) == ["1", "2", "1"] and list(space.names) == ["a", "b", "c"]
    refused(table, "1,2\n", "meta.csv has 2 columns", labels=tmp_path / "meta.csv")
    refused(table, "1,2\n", "no column 'colour'", labels=f"{tmp_path}/meta.csv:colour")
    _, report = table("1,2\n", labels=f"{tmp_path}/meta.csv:kind")
    assert report.refused[0][1:] == ("meta.csv:kind", 3, 1)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_unicode_marks_do_not_stick_to_the_first_number(table, encoding):
    space, _ = table("3,1,é\n5,2,ü\n".encode(encoding))
    np.testing.assert_array_equal(space.vectors, [[3, 1], [5, 2]])
    assert list(space.names) == ["é", "ü"]


def test_bytes_that_are_no_text_are_counted(table):
    space, report = table(b"word,a\ncaf\xe9,1\nok,2\n")
    assert list(space.names) == ["caf\ufffd", "ok"] and "1 cells" in report.warnings[0]


def test_decimal_commas_are_named(table):
    refused(table, "1,5;2,5\n3,5;4,5\n", "not a comma")


def test_no_numbers_no_rows(table):
    refused(table, "a,b\nx,y\nz,w\n", "none of the 2 columns holds numbers")
    refused(table, "\n\n", "no rows")


def test_inspect_of_a_table(table, tmp_path):
    table("a,b\n1,2\n0,0\n")
    seen = inspect(tmp_path / "t.csv")
    assert (seen["format"], seen["rows_read"], seen["rows_used"], seen["dim"]) == ("table", 2, 1, 2)
    assert seen["set_aside"] == [{"row": 1, "reason": "zero norm"}] and "arrays" not in seen


def test_missing_words_in_a_column_of_numbers(table):
    words = ("n/a", "missing", "#N/A", "NULL", "", "?", "<NA>", "None")
    text = "a,b\n1,2\n" + "".join(f"{w},3\n" for w in words) + "4,5\n" * 9
    space, report = table(text)
    assert [s.row for s in report.set_aside] == list(range(1, len(words) + 1)) and len(space) == 10
    refused(table, "a,b\n1,2\nn/a,3\nlots,4\n5,6\n", "row 2 (line 4)", "'a' holds 'lots'")


def test_b13_vectors_written_as_text_in_five_ways(table):
    rows = ["[0.1, 0.2, 0.3]", "[0.1 0.2\n 0.3]", "tensor([0.1, 0.2, 0.3])", "[0.1 0.2 ... 0.3]", "[0.1, 0.2]"]
    text = "name,vec\n" + "".join(f'n{i},"{r}"\n' for i, r in enumerate(rows))
    space, report = table(text)
    np.testing.assert_array_equal(space.vectors, np.array([[0.1, 0.2, 0.3]] * 3, dtype=np.float32))
    assert list(space.names) == ["n0", "n1", "n2"]
    assert [tuple(s) for s in report.set_aside] == [
        (3, "printed and truncated, the data is gone"),
        (4, "wrong length (2 numbers, wanted 3)"),
    ]
    refused(table, text + 'n5,"[0.1, oops, 0.3]"\n', "row 5 (line 8)", "'vec' holds '[0.1, oops, 0.3]'")
    refused(table, text.replace("[", "f([").replace("]", "])"), "none of the 2 columns holds numbers")
    all_gone = 'name,vec\na,"[0.1 ... 0.3]"\nb,"[0.1 ... 0.3]"\n'
    refused(table, all_gone, "'vec'", "no vector in any of its 2 rows", "truncated")


@pytest.mark.parametrize("name", ["v.csv", "v.tsv", "v.txt"])
def test_a_data_frame_with_arrays_as_pandas_writes_it(table, name):
    v = np.random.default_rng(0).normal(size=(30, 40)).astype(np.float32)  # numpy breaks such lines
    with np.printoptions(floatmode="unique"):
        text = pd.DataFrame({"word": [f"w{i}" for i in range(30)], "v": list(v)}).to_csv(
            sep="\t" if name == "v.tsv" else ","
        )
    space, report = table(text, name)
    np.testing.assert_array_equal(space.vectors, v)
    assert space.names[29] == "w29" and space.meta.columns.tolist() == ["column 0"]


def test_vectors_in_brackets_without_quotes(table):
    refused(table, "w,v\na,[0.1, 0.2, 0.3]\nb,[0.4, 0.5, 0.6]\n", "cut at its commas")
    refused(table, "a,[0.1, 0.2, 0.3]\nb,[0.4, 0.5, 0.6]\n", "cut at its commas")
    space, _ = table("a\t[0.1, 0.2]\nb\t[0.4, 0.5]\n", "t.tsv")
    assert space.dim == 2 and list(space.names) == ["a", "b"]
    space, _ = table("a;[0.1, 0.2]\nb;[0.4, 0.5]\n")
    assert space.dim == 2 and list(space.names) == ["a", "b"]


def test_one_column(table):
    space, _ = table("1.5\n2.5\n3.5\n")
    assert space.vectors[:, 0].tolist() == [1.5, 2.5, 3.5]
    space, _ = table("value\n1.5\n2.5\n3.5\n")
    assert space.vectors[:, 0].tolist() == [1.5, 2.5, 3.5]
    space, _ = table('vector\n"[1, 2]"\n"[3, 4]"\n')
    assert space.vectors.tolist() == [[1, 2], [3, 4]]
    space, _ = table("pixels\n1 2 3\n4 5 6\n")
    assert space.vectors.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_separators(table):
    for d in ",;|\t":
        space, _ = table(f"word{d}a{d}b\nx{d}1{d}2\ny{d}3{d}4\nz{d}5{d}6\n")
        np.testing.assert_array_equal(space.vectors, ABC)
    space, _ = table("a,b,\n1,2,\n3,4,\n5,6,\n")  # a separator at each line's end
    np.testing.assert_array_equal(space.vectors, ABC)
    assert space.meta is None
    space, _ = table("a,b\nx,1,2\ny,3,4\nz,5,6\n")  # as R writes row names
    np.testing.assert_array_equal(space.vectors, ABC)
    assert list(space.names) == ["x", "y", "z"]


def test_quotes_that_do_not_match_are_an_error(table):
    refused(table, 'w,a\nx,1\n"y,2\nz,3\n', "line", "check its quotes")
    refused(table, 'w,a\nx,1\n"y"s,2\nz,3\n', "line 3", "check its quotes")


def test_long_fields_and_many_columns(table, monkeypatch):
    v = np.random.default_rng(0).normal(size=(4, 8_000)).astype(np.float32)
    space, _ = table("v\n" + "".join(f'"{row.tolist()}"\n' for row in v))
    np.testing.assert_array_equal(space.vectors, v)
    space, _ = table("\n".join(",".join(map(str, row.tolist())) for row in v))
    np.testing.assert_array_equal(space.vectors, v)
    monkeypatch.setattr(table_module, "MAX_FIELD", 10_000)
    refused(table, "a,b\n1," + "9" * 10_001 + "\n", "check its quotes")


def test_nul_bytes(table):
    good = "".join(f"w{i},1,2\n" for i in range(3000))
    refused(table, good + "x,1\0,2\n", "row 3000", "wanted a number")


@pytest.mark.parametrize("cell", ["1,234", "1,234.5", "1.234,5", "$5", "5 %", "5%", "3€", "1,5", "1'234.5"])
def test_numbers_in_other_spellings_are_refused(table, cell):
    rows = "".join(f'x{i},{i},"{cell}"\n' for i in range(10))
    refused(table, "word,a,price\n" + rows, "'price' holds numbers such as", cell, "1234.5")
    space, _ = table("word,a,price\n" + rows.replace("0,", "0.5,", 1), columns={"price": "meta"})
    assert space.dim == 1 and space.meta["price"].iloc[0] == cell
    refused(table, 'word,a,b\nx,1,2\ny,2,3\nz,4,5\nw,"1,234",5\n', "row 3", "'1,234'")


def test_b07_bytes_that_are_no_text_are_counted_with_their_rows(table):
    text = "".join(f"w{i},{i + 1},2\n" for i in range(5000)).encode()
    text = text.replace(b"w7,", b"caf\xe9,").replace(b"w4000,", b"\xff\xfe\xe9,")
    space, report = table(text)
    assert "2 cells hold bytes that are no UTF-8" in report.warnings[0] and "rows 7, 4000" in report.warnings[0]
    assert space.names[7] == "caf\ufffd" and len(space) == 5000 and space.vectors[4000, 0] == 4001


def test_b07_utf16_tsv(table):
    text = "word\ta\tb\nça\t1\t2\nüb\t3\t4\nz\t5\t6\n"
    for encoding in ("utf-16", "utf-8-sig"):
        space, _ = table(text.encode(encoding), "t.tsv")
        np.testing.assert_array_equal(space.vectors, ABC)
        assert list(space.names) == ["ça", "üb", "z"]


@pytest.mark.parametrize("name", ["t.csv.gz", "t.csv.bz2", "t.tsv.xz"])
def test_compressed_tables(tmp_path, name):
    v = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    pd.DataFrame(v, columns=list("abc")).to_csv(tmp_path / name, index=False, sep="\t" if "tsv" in name else ",")
    space, _ = load(tmp_path / name)
    np.testing.assert_array_equal(space.vectors, v)
    assert write(space, tmp_path / f"o{name}") == []
    assert (tmp_path / f"o{name}").read_bytes()[:2] == (tmp_path / name).read_bytes()[:2]
    np.testing.assert_array_equal(load(tmp_path / f"o{name}")[0].vectors, v)


# ---------------------------------------------------------------- the fast way and the slow way

CELLS = st.sampled_from(
    "0 1 -2.5 1e-7 +3 .5 5. nan NaN inf -Infinity 1e400 1e-400 4.9e-324 16777217 0.1 123456789.123456789".split()
    + ["", " 7 ", "n/a", "NULL", "\u0663", "1\u00a0", "9007199254740993"]
)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.text('ab\u00e9\u4e2d ()\t\ufeff\u2028"', max_size=3), CELLS, CELLS), min_size=1, max_size=60)
)
def test_blocks_through_pyarrow_are_read_as_row_by_row(rows):
    head = "".join(f"w{i},{i + 1},0.5\n" for i in range(table_module.SAMPLE))
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    read = {}
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "t.csv"
        path.write_text("word,a,b\n" + head + out.getvalue(), newline="")
        for way in ("fast", "slow"):
            patch.setattr(table_module, "BLOCK", 40)
            if way == "slow":
                patch.setattr(table_module._Reader, "fast", lambda self, lines: False)
            raw = table_module.read(Request(path))
            read[way] = (raw.vectors.tobytes(), list(raw.names), raw.aside, raw.warned)
    assert read["fast"] == read["slow"]
    assert read["fast"][1][table_module.SAMPLE :] == [r[0] for r in rows]


def test_the_fast_way_is_taken(table, monkeypatch):
    seen = []
    fast = table_module._Reader.fast
    monkeypatch.setattr(table_module._Reader, "fast", lambda *a: seen.append(fast(*a)) or seen[-1])
    space, _ = table("".join(f"w{i},{i + 1},0.5,1e-3\n" for i in range(3000)))
    assert seen == [True] and len(space) == 3000 and space.names[2999] == "w2999"


# ---------------------------------------------------------------- writing

TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=8)


@st.composite
def spaces(draw):
    n, d = draw(st.integers(1, 12)), draw(st.integers(1, 5))
    finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
    v = draw(hypothesis_arrays(np.float32, (n, d), elements=finite))
    v[~v.any(1)] = 1
    column = st.lists(TEXT, min_size=n, max_size=n).filter(lambda c: any(x.strip() for x in c))
    optional = st.one_of(st.none(), column)
    meta = draw(st.dictionaries(st.sampled_from(["kind", "id", "class", "text", "7", "vector"]), column, max_size=3))
    words = dict(names=draw(optional), labels=draw(optional), media=draw(optional))
    return make_space(v, meta=pd.DataFrame(meta) if meta else None, **words)[0]


def same(space, back, notes):
    np.testing.assert_array_equal(back.vectors, space.vectors)
    whole = any("whole numbers" in note for note in notes)
    if not whole:
        assert list(back.names) == list(space.names)
    for role in ("labels", "media"):
        was, now = getattr(space, role), getattr(back, role)
        assert (was is None) == (now is None)
        assert was is None or whole or list(was) == list(now)
    if space.meta is not None:
        assert back.meta.astype(object).fillna("").values.tolist() == space.meta.values.tolist()


@settings(max_examples=30, deadline=None)
@given(spaces(), st.sampled_from(["csv", "tsv"]))
def test_what_is_written_reads_back_bit_equal(space, ending):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"t.{ending}"
        try:
            notes = write(space, path)
        except InputError as e:
            assert "control characters" in str(e) or (
                ending == "tsv" and ("line break" in str(e) or "quotes" in str(e))
            )
            return
        same(space, load(path)[0], notes)


def test_what_tsv_cannot_hold_is_refused_with_its_row(tmp_path):
    space, _ = make_space(np.eye(3), names=["a", "b\nc", "d"])
    with pytest.raises(InputError, match="row 1, 'name'.*tab or a line break"):
        write(space, tmp_path / "t.tsv")
    assert write(space, tmp_path / "t.csv") == []
    assert list(load(tmp_path / "t.csv")[0].names) == ["a", "b\nc", "d"]


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=4), st.integers(0, 400), st.sampled_from(["cut", "put", "drop"]), st.booleans())
def test_a_mutated_table_is_an_input_error_or_a_space(data, at, how, packed):
    body = 'n,"[1, 2]"\n' if packed else "n,1,2\n"
    text = ("name,vector\n" if packed else "name,a,b\n").encode() + body.encode() * 30
    at %= len(text)
    text = {"cut": text[:at], "put": text[:at] + data + text[at:], "drop": text[:at] + text[at + 3 :]}[how]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        path.write_bytes(text)
        try:
            space, report = load(path)
        except InputError:
            return
        assert len(space) == report.rows_used


def test_frames(tmp_path):
    (tmp_path / "t.csv").write_text('id,name,year\n01,"a, b",1990\n2,,\n')
    df = table_module.frame(tmp_path / "t.csv")
    assert df.to_dict("list") == {"id": ["01", "2"], "name": ["a, b", ""], "year": ["1990", ""]} and df.attrs["header"]
    (tmp_path / "u.tsv").write_text("cat\tgatto\ndog\tcane\n")
    df = table_module.frame(tmp_path / "u.tsv")
    assert df.values.tolist() == [["cat", "gatto"], ["dog", "cane"]] and not df.attrs["header"]
    df = table_module.frame(tmp_path / "u.tsv", header=True)
    assert df.columns.tolist() == ["cat", "gatto"] and len(df) == 1


def test_one_vector_a_line_without_quotes(table):
    for name in ("t.csv", "t.tsv", "t.txt"):
        for text in ("[1, 2]\n[3, 4]\n[5, 6]\n", "{1,2}\n{3,4}\n{5,6}\n", "embedding\n(1, 2)\n(3, 4)\n(5, 6)\n"):
            np.testing.assert_array_equal(table(text, name)[0].vectors, ABC)


def test_a_header_alone(table):
    refused(table, "a,b\n", "no rows")


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("gap", [True, False])
def test_what_pandas_writes_is_read_with_its_heading(table, index, gap):
    frame = pd.DataFrame(ABC, columns=["d0", "d1"])
    frame["label"] = [1.0, None, 2.0] if gap else [1, 2, 3]
    frame["word"] = ["x", "y", "z"]
    space, report = table(frame.to_csv(index=index))
    np.testing.assert_array_equal(space.vectors, ABC)
    assert list(space.names) == ["x", "y", "z"] and list(space.labels) == (["1", "", "2"] if gap else ["1", "2", "3"])


@pytest.mark.parametrize("header", ["", "a b", "made by a program\nof several words\na b", "three words here"])
def test_what_savetxt_writes_above_the_numbers_is_no_row(tmp_path, header):
    np.savetxt(tmp_path / "a.txt", ABC, header=header)
    space, report = load(tmp_path / "a.txt")
    np.testing.assert_array_equal(space.vectors, ABC)
    assert ("first line read as the header" in report.assumed) == header.endswith("a b")
    above = header.count("\n") + (0 if header.endswith("a b") or not header else 1)
    assert any(f"not read: {above}" in a for a in report.assumed) == (above > 0)


def test_a_word_that_is_a_hash_is_a_word(table):
    space, _ = table("# 1 2\nb 3 4\nc 5 6\n", name="a.txt")
    assert list(space.names) == ["#", "b", "c"]


def test_decimal_commas_are_told_beside_words_too(table):
    refused(table, "d0;d1;word\n0,5;-0,25;x\n1,5;2,25;y\n3,5;-4,75;z\n", "write decimals with a point")


def test_a_column_without_a_name_among_named_ones_does_not_hide_the_header(tmp_path):
    pd.DataFrame(np.eye(3), columns=["a", "", "c"]).to_csv(tmp_path / "a.csv", index=False)
    space, report = load(tmp_path / "a.csv")
    assert space.vectors.shape == (3, 3) and "first line read as the header" in report.assumed


def test_a_header_with_a_field_less_than_the_rows_is_told(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1.5,2,3\n4.5,5,6\n")  # R writes row names so
    space, report = load(tmp_path / "a.csv")
    assert space.vectors.shape == (2, 3)
    assert any("first column has no name" in a for a in report.assumed)


def test_a_table_on_its_side_is_refused_at_once(tmp_path):
    (tmp_path / "a.csv").write_text("1," * 400_000 + "1\n")
    with pytest.raises(InputError, match=r"400,001 columns, at most 100,000"):
        load(tmp_path / "a.csv")


def test_a_file_cut_while_it_is_read_is_no_shorter_table(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("name,a,b\n" + "".join(f"w{i},{i},1\n" for i in range(400_000)))

    def cut(share):
        if 0.3 < share < 0.9:
            with path.open("r+b") as f:
                f.truncate(path.stat().st_size // 2)

    with pytest.raises(InputError, match="became shorter"):
        load(path, progress=cut)
