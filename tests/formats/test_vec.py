"""Word vectors as text: headers, words with spaces, bad bytes, what is no vector; all numbers to the last bit."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os

import numpy as np
import pytest
from gensim.models import KeyedVectors
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as np_arrays

from relcore import formats
from relcore.errors import InputError
from relcore.formats import inspect, load, vec
from relcore.space import make_space

ROWS = "the 1 2\nof 3 4\nto 5 6\n"
NUMBERS = [[1, 2], [3, 4], [5, 6]]
HEADED = ("first line read as the header: 3 rows of 2 numbers",)


@pytest.fixture
def read(tmp_path):
    """Write text (or bytes) as a file, and load it."""

    def write(data, name="a.vec", **kw):
        (tmp_path / name).write_bytes(data if isinstance(data, bytes) else data.encode())
        return load(tmp_path / name, **kw)

    return write


def refused(read, data, *words, name="a.vec", **kw):
    with pytest.raises(InputError) as e:
        read(data, name, **kw)
    for word in (name, *words):
        assert word in str(e.value), str(e.value)


def plain(space, names=("the", "of", "to"), numbers=NUMBERS):
    assert list(space.names) == list(names)
    np.testing.assert_array_equal(space.vectors, np.array(numbers, dtype=np.float32))


def aside(report):
    return [tuple(s) for s in report.set_aside]


# ------------------------------------------------------------------------------------------------------- headers


@pytest.mark.parametrize("name", ["a.vec", "a.txt", "a", "a.emb"])
@pytest.mark.parametrize("header", ["", "3 2\n", "3 2 \n", "3\t2\n", "\n3 2\n"])
def test_b04_with_and_without_header(read, name, header):
    space, report = read(header + ROWS, name)
    plain(space)
    assert report.format == "vec" and report.dtype == "text" and not report.set_aside
    assert report.assumed[:1] == (
        HEADED if header else ("no header line; 2 numbers a row, as in most of the first rows",)
    )


@pytest.mark.parametrize("count", ["5", "2", "0", "999999999999999999"])
def test_b04_a_wrong_count_is_a_warning(read, count):
    space, report = read(f"{count} 2\n{ROWS}")
    plain(space)
    assert f"header says {int(count):,}, found 3" in report.warnings


@pytest.mark.parametrize("dim", ["300", "3", "1", "0", "99999999999"])
def test_b04_a_wrong_length_is_an_error(read, dim):
    refused(read, f"3 {dim}\n{ROWS}", f"says {dim} numbers", "rows have 2")
    refused(read, f"4 {dim}\n{ROWS}New York 7 8\n", f"says {dim} numbers", "rows have 2")


def test_b04_the_first_row_of_a_file_of_one_number_is_not_eaten(read):
    space, report = read("400000 300\nof 1\nto 2\n")
    plain(space, ["400000", "of", "to"], [[300], [1], [2]])
    assert "read as a row" in report.assumed[0]
    plain(read("7 1\nof 1\nto 2\n")[0], ["7", "of", "to"], [[1], [1], [2]])
    space, report = read("2 1\nof 1\nto 2\n")  # counts the rows that follow
    plain(space, ["of", "to"], [[1], [2]])
    assert "as many rows follow: 2 rows of 1 number" in report.assumed[0]


def test_b04_words_that_are_whole_numbers_are_no_header(read):
    plain(read("1 1 2\n2 3 4\n3 5 6\n")[0], "123")
    plain(read("3 1 2\n2.5 3 4\nnan 5 6\n")[0], ["3", "2.5", "nan"])


def test_a_header_and_nothing_else(read):
    refused(read, "3 2\n", "a header (3 2) and no rows")
    refused(read, "3 2", "no rows")
    refused(read, "\n \n", "no rows")


# ------------------------------------------------------------------------------------------------- words and lines


SPACED = ". . . 1 2 3\nto name@domain.com 4 5 6\nNew York 7 8 9\nnormal 1 1 1\n"


@pytest.mark.parametrize("name", ["a.vec", "a.txt"])
@pytest.mark.parametrize("header", ["", "4 3\n"])
def test_b05_words_keep_their_spaces(read, name, header):
    space, report = read(header + SPACED, name)
    plain(space, [". . .", "to name@domain.com", "New York", "normal"], [[1, 2, 3], [4, 5, 6], [7, 8, 9], [1, 1, 1]])
    assert "3 words with spaces: rows 0, 1, 2" in report.assumed and not report.warnings


def test_b05_a_word_that_ends_in_a_number_is_said(read):
    space, report = read("iPhone 5 1 2\nof 3 4\nto 5 6\n")
    plain(space, ["iPhone 5", "of", "to"])
    assert report.warnings == ("1 words end in a number after a space, perhaps a row with too many numbers: rows 0",)


def test_b06_the_first_of_two_is_kept_and_case_is_too(read):
    space, report = read("the 1 2\nthe 3 4\nThe 5 6\nlife 1 1\nlife, 2 2\n")
    assert list(space.names) == ["the", "The", "life", "life,"] and list(space.ids) == [0, 2, 3, 4]
    assert aside(report) == [(1, "exact duplicate (of row 0, 'the')")]
    assert any(w.startswith("1 exact duplicate") for w in report.warnings)


def test_b07_one_bad_word_does_not_stop_the_file(read):
    space, report = read(b"4 2\nof 1 2\ncaf\xe9 3 4\nna\xefve x 5 6\nnaive 7 8\n")
    assert list(space.names) == ["of", "caf\ufffd", "na\ufffdve x", "naive"]
    assert report.warnings == ("2 words hold bytes that are no UTF-8, shown as \ufffd: rows 1, 2",)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("name", ["a.vec", "a.txt"])
def test_b07_marks(read, encoding, name):
    mark = "\ufeff" if encoding[-2:] in ("le", "be") else ""
    for header in ("", "3 2\n"):
        plain(read((mark + header + ROWS.replace("of", "öf")).encode(encoding), name)[0], ["the", "öf", "to"])


def test_a_mark_inside_the_file_is_part_of_its_word(read, monkeypatch):
    monkeypatch.setattr(vec, "BLOCK", 16)  # so that some block begins with it
    names = [f"\ufeffw{i}" for i in range(40)]
    space, _ = read("40 1\n" + "".join(f"{n} {i + 1}\n" for i, n in enumerate(names)))
    plain(space, names, np.arange(1, 41)[:, None])


@pytest.mark.parametrize(
    "junk", [b"PK\x03\x04" + b"\0" * 60, b"\x80\x04\x95abc.", b"<html><body>404", b"\n<!DOCTYPE html>"]
)
@pytest.mark.parametrize("name", ["a.vec", "a.txt", "a.bin"])
def test_b08_something_else_renamed(read, junk, name):
    refused(read, junk, "looks like" if junk[:1] in b"P<\n" else "Python objects", name=name)


def test_words_that_look_like_markup_or_json_are_words(read):
    for name in ("a.vec", "a.txt"):
        plain(read("</s> 1 2\n<unk> 3 4\n{ 5 6\n", name)[0], ["</s>", "<unk>", "{"])
        plain(read('{ 1 2\n[ 3 4\n" 5 6\n', name)[0], ["{", "[", '"'])


@pytest.mark.parametrize("header", ["", "3 2\n"])
@pytest.mark.parametrize(
    "change",
    [("\n", "\r\n"), ("\n", " \n"), ("\n", " \r\n"), ("\n", "\n\n"), ("\n", "\r"), ("\n", "  \n"), ("\n", "\n \n")]
    + [(" ", "\t"), (" ", "  "), (" ", " \t"), ("the ", "the\t"), ("of 3", "of  3"), ("3 4", "3\t4")],
)
def test_the_usual_variants_of_white_space(read, header, change):
    space, report = read((header + ROWS).replace(*change))
    plain(space)
    assert not report.set_aside and not report.warnings
    blank = [a for a in report.assumed if "blank" in a]
    assert blank == (
        [f"{4 if header else 3} blank lines are no rows"] if change[1] in ("\n\n", "\n \n") and not header else blank
    )


def test_only_a_line_feed_ends_a_line(read):
    names = ["a\u00a0b", "a\u2028b", "a\x85b", "a\x0bb", "a\x0cb", "a\u3000b", "a\rb", "a\x1cb"]
    data = "".join(f"{name} {i} 1\n" for i, name in enumerate(names))
    for header in ("", f"{len(names)} 2\n"):
        plain(read(header + data)[0], names, [[i, 1] for i in range(len(names))])


def test_the_last_line(read):
    space, report = read("3 2\n" + ROWS[:-1])
    plain(space)
    assert "no line break at its end" in report.assumed[-1]
    space, report = read("3 2\n" + ROWS[:-3])
    assert list(space.names) == ["the", "of"] and aside(report) == [(2, "too few numbers (1 numbers, wanted 2)")]


def test_bad_rows_are_set_aside_and_the_others_stay_where_they_were(read):
    space, report = read(
        "a 1 2\nb 1\nc x 2\nd 1_0 2\ne 3 4\nf 1,5 2\ng 5 6\nh 1 0x10\ni\nj 7 8\n"
        "k nan 2\nl 9 9\nm 1 ٣\nn 2 2\no 3 3\np 4 4\n"
    )
    assert list(space.ids) == [0, 4, 6, 9, 11, 13, 14, 15] and "".join(space.names) == "aegjlnop"
    assert aside(report)[:6] == [
        (1, "too few numbers (1 numbers, wanted 2)"),
        *[(2, "not a number ('x')"), (3, "not a number ('1_0')"), (5, "not a number ('1,5')")],
        *[(7, "not a number ('0x10')"), (8, "too few numbers (0 numbers, wanted 2)")],
    ]
    assert aside(report)[6:] == [(10, "NaN or infinite"), (12, "not a number ('٣')")]


def test_comments_and_headings_are_rows_set_aside(read):
    for line in ("# comment", "word x y"):
        space, report = read(f"{line}\n{ROWS}")
        plain(space)
        assert list(space.ids) == [1, 2, 3] and [s.row for s in report.set_aside] == [0]


def test_mostly_bad_is_an_error(read):
    refused(read, "3 2\na x 1\nb y 2\nc 1 2\n", "2 of 3 rows", "row 0", "'x'")
    refused(read, "2 2\na 0,1 0,2\nb 0,3 0,4\n", "not a comma")
    refused(read, "a 0,1 0,2\nb 0,3 0,4\n", "not a comma")
    refused(read, "hello there\nfoo bar\n", "'hello there'")


def test_numbers_are_spelt_in_many_ways(read):
    space, report = read("a 1e3 -.5\nb +2 1E-3\nc 1. 0.1\nd inf 1\ne 1 -Infinity\nf NaN 1\ng 1e40 1\nh 1 1e-50\n")
    plain(space, "abch", [[1000, -0.5], [2, 1e-3], [1, 0.1], [1, 0]])
    assert aside(report) == [(i, "NaN or infinite") for i in (3, 4, 5, 6)]


def test_an_empty_word_is_said(read):
    space, report = read("3 2\n 1 2\nof 3 4\nto 5 6\n")
    plain(space, ["", "of", "to"])
    assert "1 words are empty: rows 0" in report.warnings


def test_a_carriage_return_does_not_swallow_a_row(read):
    space, report = read("a 1 2\rb 3 4\nc 5 6\nd 7 8\n")
    assert list(space.names) == ["c", "d"] and "line break" in report.set_aside[0].reason


def test_odd_rows_anywhere_in_a_long_file(read, monkeypatch):
    monkeypatch.setattr(vec, "BLOCK", 1000)
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(500, 7)).astype(np.float32)
    names = [f"w {i} x" if i % 50 == 3 else f"w{i}" for i in range(500)]
    lines = [f"{n} {' '.join(map(repr, v.tolist()))}" for n, v in zip(names, numbers, strict=True)]
    lines[250] = "short 1 2"
    lines[400] = lines[400] + "x"
    space, report = read("\n".join(["500 7", *lines]))
    kept = np.delete(np.arange(500), [250, 400])
    plain(space, np.array(names, dtype=object)[kept], numbers[kept])
    np.testing.assert_array_equal(space.ids, kept)
    assert [s.row for s in report.set_aside] == [250, 400] and not report.warnings


def test_very_long_rows(read, monkeypatch):
    numbers = np.random.default_rng(0).normal(size=(3, 30_000)).astype(np.float32)
    text = "".join(f"w{i} {' '.join(map(str, v))}\n" for i, v in enumerate(numbers))
    for name, header in (("a.vec", ""), ("a.txt", "3 30000\n"), ("a.txt", "")):
        plain(read(header + text, name)[0], ["w0", "w1", "w2"], numbers)
    monkeypatch.setattr(vec, "WIDE", 10**6)
    monkeypatch.setattr(vec, "BATCH", 2**16)  # shorter than a row
    plain(read(text)[0], ["w0", "w1", "w2"], numbers)
    monkeypatch.setattr(vec, "BLOCK", 1000)
    monkeypatch.setattr(vec, "MAX_LINE", 10_000)
    refused(read, text, "a line has more than 10,000 bytes")


@pytest.mark.parametrize("opener", [gzip.open, bz2.open, lzma.open])
def test_compressed(tmp_path, opener):
    ending = {gzip.open: "gz", bz2.open: "bz2", lzma.open: "xz"}[opener]
    for name in ("a.vec", "a.txt"):
        path = tmp_path / f"{name}.{ending}"
        with opener(path, "wb") as f:
            f.write(b"3 2\n" + ROWS.encode())
        space, report = load(path)
        plain(space)
        assert not report.warnings
    with opener(path, "wb") as f:
        f.write("".join(f"w{i} {v} 1\n" for i, v in enumerate(np.random.default_rng(0).normal(size=20_000))).encode())
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(InputError, match=r"a.txt.*(damaged|unpack it first)"):  # bzip2 has one block of these
        load(path)


# ------------------------------------------------------------------------------------------- what is left to others


@pytest.mark.parametrize(
    "text",
    ["1 2 3\n4 5 6\n", "word x y\nthe 1 2\nof 3 4\n", "the\t1\t2\nof\t3\t4\n"] + ["a, 1, 2\nb, 3, 4\n", "7 1\n5 2\n"],
)
def test_tables_stay_tables(read, text):
    assert read(text, "a.txt")[1].format == "table"


def test_tsv_and_csv_stay_tables(read):
    assert read("the\t1\t2\nof\t3\t4\n", "a.tsv")[1].format == "table"
    assert read("the 1 2\nof 3 4\n", "a.csv")[1].format == "table"


@pytest.mark.parametrize(
    "text", ["one\ntwo\nthree\n", "item 1\nitem 2\nitem 3\n", "I am here\nso are you\nand he\n", "5\n6\n7\n"]
)
def test_lists_of_names_are_lists_of_names(read, tmp_path, text):
    np.save(tmp_path / "v.npy", np.eye(3, dtype=np.float32))
    (tmp_path / "n.txt").write_text(text)
    space, _ = load(tmp_path / "v.npy", names=tmp_path / "n.txt")
    assert list(space.names) == text.split("\n")[:-1]


def test_words_as_names_for_another_file(tmp_path):
    (tmp_path / "n.vec").write_text("3 2\n" + ROWS)
    assert vec.column(tmp_path / "n.vec", None, "names") == ["the", "of", "to"]


def test_keys_and_columns_are_refused(read, tmp_path):
    refused(read, ROWS, "leave out ':x'", key="x")
    refused(read, ROWS, "no labels 'kind'", labels="kind")


def test_peek_and_inspect(read, tmp_path):
    read("9 2\n" + ROWS)
    seen = formats.peek(tmp_path / "a.vec")
    assert (seen.rows, seen.dim, seen.dtype) == (9, 2, "text") and seen.memory > 24
    np.testing.assert_array_equal(seen.head, NUMBERS)
    seen = inspect(tmp_path / "a.vec")
    assert (seen["format"], seen["rows_read"], seen["dim"]) == ("vec", 3, 2) and "columns" not in seen
    read("999999999999999999 2\n" + ROWS)  # a lying header is no reason to refuse
    assert formats.peek(tmp_path / "a.vec").memory < 2**28


def test_progress_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(vec, "BLOCK", 2**18)
    told = []
    (tmp_path / "a.vec").write_text("".join(f"w{i} 0.123456789 0.123456789\n" for i in range(200_000)))
    load(tmp_path / "a.vec", progress=told.append)
    assert len(told) > 3 and told == sorted(told) and told[-1] == 1


# -------------------------------------------------------------------------------------- other writers, and our own


def keyed(names, numbers) -> KeyedVectors:
    kv = KeyedVectors(numbers.shape[1])
    kv.add_vectors(names, numbers)
    return kv


NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters=" "), min_size=1, max_size=6)
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def spaces(draw, names=NAMES, most=6):
    words = draw(st.lists(names, min_size=1, max_size=most, unique=True))
    numbers = draw(np_arrays(np.float32, (len(words), draw(st.integers(1, 5))), elements=FLOATS))
    numbers[:, 0] = np.where(numbers.any(1), numbers[:, 0], 1)
    return words, numbers


@settings(max_examples=60, deadline=None)
@given(spaces())
def test_what_gensim_wrote_is_read_to_the_last_bit(tmp_path_factory, made):
    names, numbers = made
    path = tmp_path_factory.mktemp("g") / "a.vec"
    keyed(names, numbers).save_word2vec_format(str(path))
    space, report = load(path)
    assert list(space.names) == names and space.vectors.tobytes() == numbers.tobytes(), report
    assert not report.set_aside


@settings(max_examples=80, deadline=None)
@given(spaces(st.text(st.characters(exclude_categories=["Cs"]), max_size=6)), st.sampled_from(["vec", "txt", "vec.gz"]))
def test_what_is_written_is_read_to_the_last_bit(tmp_path_factory, made, ending):
    names, numbers = made
    path = tmp_path_factory.mktemp("w") / f"a.{ending}"
    try:
        assert formats.write(make_space(numbers, names=names)[0], path) == []
    except InputError as e:
        assert not path.exists() and "row" in str(e)
        hard = any(n.strip(" \t") != n or not n or set(n) & set("\n\0") or n[0] == "\ufeff" for n in names)
        hard |= any("\r" in n and " " in n for n in names)
        assert hard or (ending == "txt" and numbers.shape[1] == 1), names
        return
    space, report = load(path)
    assert list(space.names) == names and space.vectors.tobytes() == numbers.tobytes(), (names, report)
    assert not report.set_aside and report.format == "vec"


def test_gensim_reads_what_is_written(tmp_path):
    numbers = np.random.default_rng(0).normal(size=(50, 9)).astype(np.float32)
    names = [f"wörd{i}" for i in range(50)]
    labels = ["a", "b"] * 25
    space = make_space(numbers, names=names, labels=labels)[0]
    for name, header in (("a.vec", False), ("a.txt", True), ("a.vec.bz2", False)):
        assert formats.write(space, tmp_path / name) == ["labels are not kept by vec"]
        kv = KeyedVectors.load_word2vec_format(str(tmp_path / name), no_header=header)
        assert kv.index_to_key == names and kv.vectors.tobytes() == numbers.tobytes()
    assert (tmp_path / "a.vec").read_text().startswith("50 9\n")
    assert (tmp_path / "a.txt").read_text().startswith("wörd0 ")


@pytest.mark.parametrize("name", ["", "a\nb", " a", "a\t", "a\0b", "\udc80"])
def test_names_that_a_line_cannot_hold(tmp_path, name):
    space = make_space(np.eye(2), names=["fine", name])[0]
    with pytest.raises(InputError, match=r"a\.vec.*row 1"):
        formats.write(space, tmp_path / "a.vec")
    assert not os.listdir(tmp_path)


def test_numbers_as_words_survive_in_txt(tmp_path):
    for numbers, name in ((np.eye(3), "a.txt"), (np.ones((3, 1)), "a.vec")):
        formats.write(make_space(numbers)[0], tmp_path / name)
        plain(load(tmp_path / name)[0], "012", numbers)
    with pytest.raises(InputError, match=r"row 0.*write \.vec"):
        formats.write(make_space(np.ones((3, 1)))[0], tmp_path / "b.txt")


def test_numbers_are_written_short_and_exact(tmp_path):
    bits = np.random.default_rng(0).integers(0, 2**32, 40_000, dtype=np.uint32).view(np.float32)
    numbers = np.where(np.isfinite(bits), bits, np.float32(0.1)).reshape(-1, 4)
    numbers[0] = [0.1, -0.0, 1e-45, 3.4028235e38]
    formats.write(make_space(numbers)[0], tmp_path / "a.vec")
    assert load(tmp_path / "a.vec")[0].vectors.tobytes() == numbers.tobytes()
    assert (tmp_path / "a.vec").read_text().split("\n")[1].startswith("0 0.1 -0")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_mutated_file_is_an_error_or_a_space(tmp_path_factory, data):
    text = bytearray(("4 3\n" + SPACED).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        piece = data.draw(
            st.one_of(st.binary(max_size=3), st.sampled_from([b" ", b"\n", b"\t", b"\r", b"1", b"nan", b"\xff\xfe"]))
        )
        text[at : at + data.draw(st.integers(0, 6))] = piece
        text = text or bytearray(b" ")
    text = text[: data.draw(st.integers(1, len(text)))]
    path = tmp_path_factory.mktemp("m") / data.draw(st.sampled_from(["a.vec", "a.txt", "a.bin"]))
    path.write_bytes(bytes(text))
    try:
        space, report = load(path)
    except InputError:
        return
    assert report.rows_read == len(space) + len(report.set_aside)
