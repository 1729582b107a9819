"""The word2vec binary: as gensim and as the C tool write it, whole and cut off, and what is something else."""

from __future__ import annotations

import gzip
import os
import struct

import numpy as np
import pytest
from gensim.models import KeyedVectors
from hypothesis import given, settings
from hypothesis import strategies as st

from relcore import formats
from relcore.errors import InputError
from relcore.formats import inspect, load, word2vec
from relcore.space import make_space
from tests.formats.test_vec import FLOATS, keyed, spaces

NUMBERS = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
WORDS = ["</s>", "the", "wörd", "1", "日本", "a,b"]


def packed(words=WORDS, numbers=NUMBERS, header=None, end=b"\n") -> bytes:
    """As word2vec.c writes it; gensim leaves out the line break."""
    rows = [w.encode() if isinstance(w, str) else w for w in words]
    body = b"".join(w + b" " + v.tobytes() + end for w, v in zip(rows, numbers, strict=True))
    return (header or f"{len(words)} {numbers.shape[1]}\n".encode()) + body


@pytest.fixture
def read(tmp_path):
    def write(data, name="a.bin", **kw):
        (tmp_path / name).write_bytes(data)
        return load(tmp_path / name, **kw)

    return write


def refused(read, data, *words, name="a.bin"):
    with pytest.raises(InputError) as e:
        read(data, name)
    for word in (name, *words):
        assert word in str(e.value), str(e.value)


@pytest.mark.parametrize("name", ["a.bin", "a.vec", "a.txt", "a.model", "a.npy"])
@pytest.mark.parametrize("end", [b"\n", b""])
def test_the_bytes_tell(read, name, end):
    space, report = read(packed(end=end), name)
    assert list(space.names) == WORDS and space.vectors.tobytes() == NUMBERS.tobytes()
    assert report.format == "word2vec" and report.dtype == "float32" and not report.set_aside
    assert bool(report.warnings) == (name != "a.bin")


@settings(max_examples=60, deadline=None)
@given(spaces())
def test_what_gensim_wrote_is_read_to_the_last_bit(tmp_path_factory, made):
    names, numbers = made
    path = tmp_path_factory.mktemp("g") / "a.bin"
    keyed(names, numbers).save_word2vec_format(str(path), binary=True)
    space, _ = load(path)
    assert list(space.names) == names and space.vectors.tobytes() == numbers.tobytes()


@settings(max_examples=60, deadline=None)
@given(spaces(), st.sampled_from(["bin", "bin.gz"]))
def test_what_is_written_is_read_by_us_and_by_gensim(tmp_path_factory, made, ending):
    names, numbers = made
    path = tmp_path_factory.mktemp("w") / f"a.{ending}"
    assert formats.write(make_space(numbers, names=names)[0], path) == []
    space, _ = load(path)
    assert list(space.names) == names and space.vectors.tobytes() == numbers.tobytes()
    kv = KeyedVectors.load_word2vec_format(str(path), binary=True)
    assert kv.index_to_key == names and kv.vectors.tobytes() == numbers.tobytes()


@pytest.mark.parametrize("block", [1, 7, 50, 1000])
def test_rows_across_blocks(read, monkeypatch, block):
    monkeypatch.setattr(word2vec, "BLOCK", block)
    space, _ = read(packed())
    assert list(space.names) == WORDS and space.vectors.tobytes() == NUMBERS.tobytes()


def test_b07_a_word_cut_in_the_middle_of_a_character(read):
    space, report = read(packed([*WORDS[:2], "wör".encode()[:2], *WORDS[3:]]))
    assert space.names[2] == "w\ufffd" and space.vectors.tobytes() == NUMBERS.tobytes()
    assert "1 words hold bytes that are no UTF-8, shown as \ufffd: rows 2" in report.warnings


def test_b06_duplicates(read):
    space, report = read(packed(["a", "a", "A", "b", "c", "d"]))
    assert list(space.ids) == [0, 2, 3, 4, 5] and "exact duplicate" in report.set_aside[0].reason


def test_a_wrong_row_count(read):
    refused(read, packed(header=b"9 5\n"), "says 9 rows of 5", "6 whole rows", "cut off")
    refused(read, packed(header=b"999999999999999 5\n"), "6 whole rows")
    space, report = read(packed(header=b"2 5\n"))
    assert len(space) == 6 and "header says 2, found 6" in report.warnings


@pytest.mark.parametrize("dim", [1, 4, 6, 300, 10**12])
def test_a_wrong_length(read, dim):
    refused(read, packed(header=f"6 {dim}\n".encode()), "damaged")


@pytest.mark.parametrize("cut", range(1, 24))
def test_a_file_that_is_cut_off(read, cut):
    refused(read, packed(end=b"")[:-cut], "says 6 rows", "5 whole rows", "20 bytes", "cut off")


def test_nothing_in_it(read):
    refused(read, b"0 5\n" + b"\0" * 40, "0 rows")
    refused(read, b"5 0\na b c " + b"\0" * 40, "0 numbers")
    refused(read, b"5 3\n", "")


FASTTEXT = struct.pack("<ii", 793712314, 12) + bytes(200)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"PK\x03\x04" + bytes(80), "zip"),
        (b"\x80\x04\x95" + bytes(80), "Python objects"),
        (FASTTEXT, "fastText"),
        (b"<html>404", "web page"),
        (b"\x93NUMPY\x01\0" + bytes(80), "header is damaged"),
        (bytes(range(256)), "no known format"),
    ],
)
def test_b08_something_else_renamed(read, data, word):
    refused(read, data, word)


def test_text_renamed_is_read_as_text(read):
    space, report = read(b"2 3\nthe 1 2 3\nof 4 5 6\n")
    assert report.format == "vec" and space.vectors.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_numbers_that_look_like_text(read):
    numbers = np.frombuffer(b"wordtext", np.float32).reshape(2, 1)
    space, _ = read(packed(["a", "b"], numbers))
    assert list(space.names) == ["a", "b"] and space.vectors.tobytes() == numbers.tobytes()


def test_peek_and_inspect(read, tmp_path):
    read(packed())
    seen = formats.peek(tmp_path / "a.bin")
    assert (seen.rows, seen.dim, seen.dtype) == (6, 5, "float32")
    np.testing.assert_array_equal(seen.head, NUMBERS[:5])
    assert inspect(tmp_path / "a.bin")["format"] == "word2vec"
    (tmp_path / "b.bin").write_bytes(packed(header=b"999999999999 5\n"))
    assert formats.peek(tmp_path / "b.bin").memory < 2**28  # a lying header takes no memory


@pytest.mark.parametrize("name", ["", "a b", "a\nb", "a\0", "\udc80"])
def test_names_that_cannot_be_written(tmp_path, name):
    space = make_space(np.eye(2), names=["fine", name])[0]
    with pytest.raises(InputError, match=r"a\.bin.*row 1"):
        formats.write(space, tmp_path / "a.bin")
    assert not os.listdir(tmp_path)


def test_damaged_inside_a_packed_file(tmp_path):
    numbers = np.random.default_rng(0).normal(size=(2000, 50)).astype(np.float32)
    path = tmp_path / "a.bin.gz"
    path.write_bytes(gzip.compress(packed([f"w{i}" for i in range(2000)], numbers)))
    assert load(path)[0].vectors.tobytes() == numbers.tobytes()
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(InputError, match=r"a\.bin\.gz is damaged"):
        load(path)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_mutated_file_is_an_error_or_a_space(tmp_path_factory, data):
    raw = bytearray(packed(end=data.draw(st.sampled_from([b"", b"\n"]))))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 6))] = data.draw(
            st.one_of(st.binary(max_size=4), FLOATS.map(np.float32).map(bytes))
        )
        raw = raw or bytearray(b" ")
    path = tmp_path_factory.mktemp("m") / "a.bin"
    path.write_bytes(bytes(raw[: data.draw(st.integers(1, len(raw)))]))
    try:
        space, report = load(path)
    except InputError:
        return
    assert report.rows_read == len(space) + len(report.set_aside)
