"""``.npz`` by numpy's own writers: what is chosen, what is beside it, zip files that lie, and the way back."""

from __future__ import annotations

import io
import struct
import zipfile

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from relcore import formats
from relcore.errors import InputError
from relcore.formats import load, npz
from relcore.formats.base import Request
from relcore.space import make_space


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)


def refused(spec, *words, **kw):
    with pytest.raises(InputError) as e:
        load(spec, **kw)
    for word in words:
        assert word in str(e.value), str(e.value)


def npy_bytes(array) -> bytes:
    f = io.BytesIO()
    np.save(f, array)
    return f.getvalue()


def zipped(path, members: dict, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as z:
        for name, data in members.items():
            z.writestr(name, data)
    return path


# ------------------------------------------------------------------------------------------------- what is in the file


def test_arrays_are_told_by_their_headers_alone(tmp_path, rows):
    np.savez_compressed(tmp_path / "a.npz", **{"deep/er/v": rows, "w": rows[:, :3], "n": np.arange(50)})
    assert [(a.name, a.shape, a.dtype) for a in formats.arrays(tmp_path / "a.npz")] == [
        ("deep/er/v", (50, 8), "<f4"),
        ("w", (50, 3), "<f4"),
        ("n", (50,), "<i8"),
    ]
    assert load(f"{tmp_path}/a.npz:deep/er/v")[0].vectors.tobytes() == rows.tobytes()
    peek = formats.peek(f"{tmp_path}/a.npz:w")
    assert (peek.rows, peek.dim, peek.dtype) == (50, 3, "float32")
    assert peek.memory == 50 * 3 * 4 + 50 * 8
    refused(tmp_path / "a.npz", "2 arrays that can be the vectors", "deep/er/v (50, 8)")


def test_the_role_itself_wins_over_other_words_for_it(tmp_path, rows):
    words = {"word": np.array([f"w{i}" for i in range(50)]), "names": np.array([f"n{i}" for i in range(50)])}
    np.savez(tmp_path / "a.npz", v=rows, **words)
    space, _ = load(tmp_path / "a.npz")
    assert space.names[1] == "n1" and space.meta["word"][1] == "w1"


@pytest.mark.parametrize("count", [8, 60])
def test_b14_labels_chosen_from_the_file_that_do_not_fit_are_refused_with_both_counts(tmp_path, rows, count):
    np.savez(tmp_path / "a.npz", v=rows, kind=np.arange(count))
    space, report = load(tmp_path / "a.npz", labels="kind")
    assert space.labels is None and len(space) == 50
    assert (report.refused[0].found, report.refused[0].wanted) == (count, 50)


def test_arrays_that_are_no_vectors(tmp_path, rows):
    np.savez(tmp_path / "a.npz", c=rows.astype(complex), r=np.zeros(50, [("x", "f4")]), t=np.array([["a", "b"]]))
    refused(tmp_path / "a.npz", "no array of rows and numbers", "c (50, 8)")
    refused(f"{tmp_path}/a.npz:c", "a.npz:c", "complex128", "wanted numbers")
    refused(f"{tmp_path}/a.npz:r", "a.npz:r", "records")
    np.savez(tmp_path / "b.npz", v=rows, r=np.zeros(50, [("x", "f4")]))
    assert load(tmp_path / "b.npz")[0].meta is None
    refused(tmp_path / "b.npz", "b.npz:r", "records", labels="r")


# ------------------------------------------------------------------------------------------------- zip files that lie


def test_two_members_of_one_name(tmp_path, rows):
    with pytest.warns(UserWarning, match="Duplicate"):
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as z:
            z.writestr("v.npy", npy_bytes(rows))
            z.writestr("v.npy", npy_bytes(rows + 1))
    refused(tmp_path / "a.npz", "2 members called 'v.npy'", "wanted one")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compression_that_numpy_does_not_write(tmp_path, rows, method):
    refused(zipped(tmp_path / "a.npz", {"v.npy": npy_bytes(rows)}, method), "v.npy", f"method {method}", "savez")


def test_an_encrypted_file(tmp_path, rows):
    np.savez(tmp_path / "a.npz", v=rows)
    data = bytearray((tmp_path / "a.npz").read_bytes())
    for mark, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        data[data.index(mark) + flags] |= 1
    (tmp_path / "a.npz").write_bytes(data)
    refused(tmp_path / "a.npz", "encrypted", "without a password")


def test_zip64_and_members_beside(tmp_path, rows):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as z:
        with z.open("v.npy", "w", force_zip64=True) as f:
            f.write(npy_bytes(rows))
        z.writestr("readme.txt", "hello")
    space, report = load(tmp_path / "a.npz")
    assert space.vectors.tobytes() == rows.tobytes()
    assert any("1 members that are no arrays" in w and "readme.txt" in w for w in report.warnings)


def test_too_many_members(tmp_path, rows, monkeypatch):
    monkeypatch.setattr(npz, "MAX_MEMBERS", 3)
    monkeypatch.setattr(npz.check_members, "__defaults__", (3,))
    np.savez(tmp_path / "a.npz", *[rows] * 4)
    refused(tmp_path / "a.npz", "4 members", "at most 3")


def test_a_directory_that_claims_another_size(tmp_path, rows):
    """The size in the zip directory is made larger and smaller than what is there."""
    for claimed in (100, 2**31):
        np.savez(tmp_path / "a.npz", v=rows)
        data = bytearray((tmp_path / "a.npz").read_bytes())
        at = data.index(b"PK\1\2")
        data[at + 20 : at + 28] = struct.pack("<II", claimed, claimed)
        (tmp_path / "a.npz").write_bytes(data)
        refused(tmp_path / "a.npz", "a.npz")


def test_the_checksum_is_looked_at_even_if_bytes_follow_the_array(tmp_path, rows):
    member = npy_bytes(rows) + b"\0" * 100
    zipped(tmp_path / "a.npz", {"v.npy": member})
    assert load(tmp_path / "a.npz")[0].vectors.tobytes() == rows.tobytes()
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "a.npz").write_bytes(data)
    refused(tmp_path / "a.npz", "a.npz", "damaged", "CRC")


def test_a_bomb_among_the_names_is_refused_too(tmp_path, rows):
    np.savez_compressed(tmp_path / "a.npz", v=rows, names=np.zeros(50, "<U500000"))
    assert (tmp_path / "a.npz").stat().st_size < 200_000
    refused(tmp_path / "a.npz", "a.npz:names", "zip bomb")


# --------------------------------------------------------------------------------------------------------- the way back


def same(a, b):
    assert a.vectors.tobytes() == b.vectors.tobytes() and a.vectors.shape == b.vectors.shape
    for role in ("names", "labels", "media"):
        one, other = getattr(a, role), getattr(b, role)
        assert (one is None) == (other is None) and (one is None or list(one) == list(other)), role
    assert (a.meta is None) == (b.meta is None)
    if a.meta is not None:
        pd.testing.assert_frame_equal(a.meta, b.meta, check_like=True)


TEXTS = ["", "a", "trailing\0", "\0", "wörter", "名前", "\ud800", " space ", "two\nlines", "x" * 300]


def full_space(rows, n=50):
    meta = pd.DataFrame(
        {
            "year": np.arange(n),
            "score": np.linspace(0, 1, n, dtype=np.float32),
            "ok": np.arange(n) % 2 == 0,
            "note": [f"ñ{i}" for i in range(n)],
            "word": [f"other {i}" for i in range(n)],
            "label": np.arange(n),
            "vectors": np.arange(n),
            "a/b": np.arange(n),
        }
    )
    names = [TEXTS[i % len(TEXTS)] + str(i) if i % 3 else f"t{i}\0" for i in range(n)]
    return make_space(rows, names=names, labels=np.arange(n) % 4, media=[f"{i}.png" for i in range(n)], meta=meta)[0]


def test_everything_is_kept(tmp_path, rows):
    space = full_space(rows)
    assert formats.write(space, tmp_path / "a.npz") == []
    same(space, load(tmp_path / "a.npz")[0])
    with np.load(tmp_path / "a.npz") as z:  # and numpy reads it
        assert z["vectors"].tobytes() == rows.tobytes() and list(z["labels"]) == list(space.labels)
    space = make_space(rows, names=[f"n{i}" for i in range(50)])[0]
    formats.write(space, tmp_path / "b.npz")
    with np.load(tmp_path / "b.npz") as z:
        assert list(z["names"]) == list(space.names)


def test_row_numbers_need_no_names(tmp_path, rows):
    space = make_space(rows, meta=pd.DataFrame({"word": [f"w{i}" for i in range(50)]}))[0]
    formats.write(space, tmp_path / "a.npz")
    assert {a.name for a in formats.arrays(tmp_path / "a.npz")} == {"vectors", "meta/word"}
    same(space, load(tmp_path / "a.npz")[0])


def test_one_long_text_does_not_blow_up_the_file(tmp_path):
    n = 2000
    space = make_space(np.ones((n, 2)), names=["x" * 1_000_000, *map(str, range(n - 1))])[0]  # 8 GB as unicode array
    formats.write(space, tmp_path / "a.npz")
    assert (tmp_path / "a.npz").stat().st_size < 2_000_000
    same(space, load(tmp_path / "a.npz")[0])


def test_what_changes_is_said(tmp_path, rows):
    mixed = [None if i == 3 else {"a": i} for i in range(50)]
    space = make_space(rows, meta=pd.DataFrame({"mixed": mixed, "when": pd.date_range("2020", periods=50)}))[0]
    notes = formats.write(space, tmp_path / "a.npz")
    assert len(notes) == 2 and "1 missing" in notes[0] and "'mixed'" in notes[1]
    back = load(tmp_path / "a.npz")[0].meta
    assert back["mixed"][3] == "" and back["mixed"][4] == "{'a': 4}" and (back["when"] == space.meta["when"]).all()


def test_damaged_ends_of_texts(tmp_path, rows):
    for ends in ([5, 3], [2, 99]):
        np.savez(tmp_path / "a.npz", **{"v": rows[:2], "names:utf8": np.frombuffer(b"hello", "u1"), "names:ends": ends})
        refused(tmp_path / "a.npz", "a.npz:names", "damaged")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(st.characters(), max_size=8), min_size=1, max_size=12))
def test_any_texts_come_back(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("npz") / "a.npz"
    space = make_space(np.ones((len(texts), 2)), names=texts, labels=texts, media=[t + "!" for t in texts])[0]
    assert formats.write(space, path) == []
    same(space, load(path)[0])


# ----------------------------------------------------------------------------------------------------------- properties


@settings(max_examples=50, deadline=None)
@given(
    data=st.data(),
    dtype=st.one_of(hnp.floating_dtypes(), hnp.integer_dtypes(), hnp.boolean_dtypes()),
    shape=hnp.array_shapes(min_dims=2, max_dims=2, max_side=8),
    name=st.text(st.characters(codec="utf-8", exclude_characters="\0\\"), min_size=1, max_size=6),
    save=st.sampled_from([np.savez, np.savez_compressed]),
    order=st.sampled_from("CF"),
)
def test_what_numpy_wrote_reads_back_bit_equal(tmp_path_factory, data, dtype, shape, name, save, order):
    path = tmp_path_factory.mktemp("npz") / "a.npz"
    array = np.asarray(data.draw(hnp.arrays(dtype, shape)), order=order)
    name = name if name not in ("file", "allow_pickle") else "v"
    save(path, **{name: array})
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = np.ascontiguousarray(array.astype(np.float32))
    np.testing.assert_array_equal(npz.read(Request(path, name)).vectors, wanted)


@settings(max_examples=120, deadline=None)
@given(data=st.data(), save=st.sampled_from([np.savez, np.savez_compressed]))
def test_a_mutated_file_is_refused_or_read(tmp_path_factory, data, save):
    path = tmp_path_factory.mktemp("npz") / "a.npz"
    save(path, v=np.eye(4, dtype=np.float32), names=np.array(["a", "b", "c", "d"]))
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(whole[: data.draw(st.integers(1, len(whole)))] if data.draw(st.booleans()) else whole)
    try:
        space, _ = load(path)
        np.testing.assert_array_equal(space.vectors, np.eye(4))  # whatever is read has passed its checksum
    except InputError as e:
        assert str(e)


def test_labels_that_are_python_objects_are_said_not_to_be_read(tmp_path, rows):
    np.savez(tmp_path / "a.npz", v=rows, labels=pd.Series(["cat"] * 50, dtype=object).to_numpy())
    space, report = load(tmp_path / "a.npz")
    assert space.labels is None
    assert [w for w in report.warnings if "Python objects" in w and "labels" in w and "numpy.array(texts, str)" in w]


def test_names_of_arrays_are_short_and_printable_in_messages(tmp_path, rows):
    np.savez(tmp_path / "a.npz", **{"x\ny": rows, "\x1b[31m": rows, "e" * 3000: rows})
    with pytest.raises(InputError) as e:
        load(f"{tmp_path}/a.npz", key="zz")
    assert str(e.value).isprintable() and len(str(e.value)) < 500 and r"x\ny" in str(e.value)
