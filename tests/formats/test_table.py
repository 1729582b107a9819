"""CSV, TSV and whitespace tables: which columns are numbers, which are words, and where a bad cell is."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest

from relcore.errors import InputError
from relcore.formats import inspect, load
from relcore.space import SetAside


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
    assert report.assumed == (
        *("first line read as the header", "'word' read as names", "'class' read as labels"),
        *("columns read as metadata: note", "2 numeric columns read as the vector"),
        "1 rows have the name of an earlier row; all are kept",
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
