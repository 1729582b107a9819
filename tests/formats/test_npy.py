"""``.npy`` by numpy's own writer: every dtype, byte order and layout, and what is no vectors."""

from __future__ import annotations

import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from relcore import formats
from relcore.errors import InputError
from relcore.formats import load, load_bytes, npy
from relcore.formats.base import Request
from relcore.space import make_space


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)


def save(path, array):
    np.save(path, array)
    return path


def refused(spec, *words, **kw):
    with pytest.raises(InputError) as e:
        load(spec, **kw)
    for word in words:
        assert word in str(e.value), str(e.value)


NUMBERS = ["f2", "f4", "f8", "g", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]
LAYOUTS = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "reversed": lambda a: a[::-1],
    "every other column": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("dtype", NUMBERS)
def test_b10_every_dtype_byte_order_and_layout_is_what_numpy_reads(tmp_path, rows, monkeypatch, dtype, order, layout):
    array = LAYOUTS[layout]((rows * 100).astype(np.dtype(dtype).newbyteorder(order)))
    wanted = np.load(save(tmp_path / "a.npy", array)).astype(np.float32)
    for block in (2**25, 100):  # at once, and in many blocks
        monkeypatch.setattr("relcore.formats.npy.BLOCK", block)
        raw = npy.read(Request(tmp_path / "a.npy"))
        assert raw.vectors.tobytes() == wanted.tobytes()
        assert raw.vectors.flags.c_contiguous and raw.dtype == str(array.dtype)
    space, report = load(tmp_path / "a.npy")
    assert report.dtype == str(array.dtype)
    assert space.vectors.tobytes() == wanted[wanted.any(1)].tobytes()
    peek = formats.peek(tmp_path / "a.npy")
    assert (peek.rows, peek.dim, peek.dtype) == (50, 8, str(array.dtype))
    np.testing.assert_array_equal(peek.head, array[:5])


def test_b10_a_read_only_map_gives_a_space_that_torch_can_use(tmp_path, rows, monkeypatch):
    monkeypatch.setattr("relcore.formats.npy.MAP_ABOVE", 0)
    space, _ = load(save(tmp_path / "a.npy", rows))
    assert not space.vectors.flags.writeable
    assert space.tensor().sum().item() == pytest.approx(rows.sum(), rel=1e-5)


def test_b10_an_array_at_an_odd_place_is_not_mapped(tmp_path, rows, monkeypatch):
    """A header of an odd length would put float32 numbers where no processor likes them."""
    monkeypatch.setattr("relcore.formats.npy.MAP_ABOVE", 0)
    text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (50, 8), }".ljust(78) + b"\n"
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text + rows.tobytes())
    assert (10 + len(text)) % 4
    space, _ = load(tmp_path / "a.npy")
    assert space.vectors.flags.aligned and space.vectors.tobytes() == rows.tobytes()


def test_b11_half_precision_is_widened_before_anything_is_computed(tmp_path):
    rows = np.full((6, 4), 300, np.float16)
    rows[1], rows[2], rows[3, 0] = 6e-8, 65504, np.inf
    space, report = load(save(tmp_path / "a.npy", rows))
    assert report.dtype == "float16" and [s.row for s in report.set_aside] == [3]
    assert space.vectors.dtype == np.float32 and (space.vectors[0] == 300).all() and (space.vectors[2] == 65504).all()


def test_numbers_beyond_float32_are_set_aside_and_not_made_infinite_in_silence(tmp_path):
    rows = np.ones((4, 3))
    rows[2, 1] = 1e300
    _, report = load(save(tmp_path / "a.npy", rows))
    assert [(s.row, s.reason) for s in report.set_aside] == [(2, "NaN or infinite")]


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_the_header(tmp_path, rows, version):
    with (tmp_path / "a.npy").open("wb") as f:
        np.lib.format.write_array(f, rows, version=version)
    assert load(tmp_path / "a.npy")[0].vectors.tobytes() == rows.tobytes()


@pytest.mark.parametrize("version", [(3, 1), (4, 0), (0, 0), (2, 1)])
def test_versions_that_are_not_known(tmp_path, rows, version):
    save(tmp_path / "a.npy", rows)
    data = bytearray((tmp_path / "a.npy").read_bytes())
    data[6:8] = bytes(version)
    (tmp_path / "a.npy").write_bytes(data)
    refused(tmp_path / "a.npy", "a.npy", f"version {version[0]}.{version[1]}")


@pytest.mark.parametrize(
    "array, words",
    [
        (np.ones((3, 2), np.complex64), ["complex64", "wanted numbers"]),
        (np.zeros((3, 2), "M8[s]"), ["datetime64", "wanted numbers"]),
        (np.zeros((3, 2), "m8[s]"), ["timedelta64", "wanted numbers"]),
        (np.array([["1.0", "2.0"]]), ["<U3", "wanted numbers"]),
        (np.array([[b"1.0", b"2.0"]]), ["S3", "wanted numbers"]),
        (np.zeros(3, [("x", "f4"), ("y", "f4")]), ["records", "structured_to_unstructured"]),
        (np.zeros(3, [("größe", "f4"), ("重さ", "f4")]), ["records"]),  # a header of version 3.0
        (np.zeros((3, 2), "V4"), ["records"]),
        (np.array([[1, "a"]], dtype=object), ["Python objects", "np.save("]),
        (np.array(None), ["Python objects"]),
        (np.float32(3), ["()", "two dimensions"]),
        (np.ones(7), ["(7,)", "two dimensions", "reshape"]),
        (np.ones((2, 3, 4)), ["(2, 3, 4)", "two dimensions"]),
        (np.ones((0, 3)), ["(0, 3)", "nothing to align"]),
        (np.ones((3, 0)), ["(3, 0)", "nothing to align"]),
        (np.asfortranarray(np.ones((0, 3), "f8")), ["(0, 3)", "nothing to align"]),
    ],
    ids=lambda v: f"{v.dtype}{v.shape}" if hasattr(v, "dtype") else "",
)
@pytest.mark.filterwarnings("ignore:Stored array in format 3.0")
def test_what_is_no_matrix_of_numbers_is_refused_in_words(tmp_path, array, words):
    refused(save(tmp_path / "a.npy", array), "a.npy", *words)


def test_a_damaged_boolean_is_true(tmp_path):
    data = bytearray(save(tmp_path / "a.npy", np.eye(3, dtype=bool)).read_bytes())
    data[-1] = 7
    assert load_bytes(bytes(data), "a.npy")[0].vectors.max() == 1


@pytest.mark.parametrize("layout", ["C", "Fortran"])
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "f8", "f2"])
def test_reading_takes_no_more_memory_than_announced(tmp_path, monkeypatch, dtype, layout):
    monkeypatch.setattr("relcore.formats.npy.BLOCK", 2**20)
    monkeypatch.setattr("relcore.formats.npy.MAP_ABOVE", 2**20)
    save(tmp_path / "a.npy", LAYOUTS[layout](np.ones((40_000, 100), dtype)))
    request = Request(tmp_path / "a.npy")
    announced = npy.peek(request).memory
    tracemalloc.start()
    npy.read(request)
    _, height = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert height <= announced + 2**18
    assert announced == (0 if (dtype, layout) == ("<f4", "C") else npy.cost(npy._header_of(tmp_path / "a.npy")[0]))


def test_progress_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("relcore.formats.npy.BLOCK", 8 * 10 * 10)
    told = []
    load(save(tmp_path / "a.npy", np.ones((100, 10))), progress=told.append)
    assert told == sorted(told) and len(told) == 10 and told[-1] == 1


def test_labels_from_an_array_of_their_own(tmp_path, rows):
    save(tmp_path / "v.npy", rows)
    for labels in (np.arange(50) % 3, (np.arange(50) % 3)[:, None], np.array([b"0", b"1", b"2"])[np.arange(50) % 3]):
        space, _ = load(tmp_path / "v.npy", labels=save(tmp_path / "l.npy", labels))
        assert list(space.labels[:4]) == ["0", "1", "2", "0"]
    refused(tmp_path / "v.npy", "l.npy", "one value a row", labels=save(tmp_path / "l.npy", rows))
    records = np.zeros(50, [("a", "f4")])
    refused(tmp_path / "v.npy", "l.npy", "records", labels=save(tmp_path / "l.npy", records))


def test_written_and_read_back(tmp_path, rows):
    rows[3] = 0
    space, _ = make_space(rows, labels=np.arange(50))
    notes = formats.write(space, tmp_path / "b.npy")
    assert np.load(tmp_path / "b.npy").tobytes() == space.vectors.tobytes()
    assert load(tmp_path / "b.npy")[0].vectors.tobytes() == space.vectors.tobytes()
    assert [n.split()[0] for n in notes] == ["names", "labels"]  # names: row 3 is gone, so they are no row numbers
    assert formats.write(make_space(rows[4:])[0], tmp_path / "c.npy") == []


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    dtype=st.one_of(hnp.floating_dtypes(), hnp.integer_dtypes(), hnp.unsigned_integer_dtypes(), hnp.boolean_dtypes()),
    shape=hnp.array_shapes(min_dims=2, max_dims=2, max_side=9),
    layout=st.sampled_from("CF"),
)
def test_what_numpy_wrote_reads_back_bit_equal(tmp_path_factory, data, dtype, shape, layout):
    path = tmp_path_factory.mktemp("npy") / "a.npy"
    np.save(path, np.asarray(data.draw(hnp.arrays(dtype, shape)), order=layout))
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = np.ascontiguousarray(np.load(path).astype(np.float32))
    np.testing.assert_array_equal(npy.read(Request(path)).vectors, wanted)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), order=st.sampled_from("CF"), dtype=st.sampled_from(["<f4", ">f8", "?", "f2"]))
def test_a_mutated_file_is_refused_or_read(tmp_path_factory, data, order, dtype):
    path = tmp_path_factory.mktemp("npy") / "a.npy"
    np.save(path, np.asarray(np.eye(6), order=order, dtype=dtype))
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, 140))] = data.draw(st.integers(0, 255))
    path.write_bytes(whole[: data.draw(st.integers(1, len(whole)))] if data.draw(st.booleans()) else whole)
    try:
        space, _ = load(path)
        assert len(space) <= 6 * 6
    except InputError as e:
        assert str(e)


@pytest.mark.parametrize("order", ["<", ">"])
def test_texts_of_numbers_that_stand_for_no_character_are_damaged(tmp_path, order):
    np.save(tmp_path / "v.npy", np.eye(3))
    texts = np.array(["a", "b", "c"]).astype(f"{order}U1")
    texts.view(f"{order}u4")[1] = 0x7FFFFFFF
    np.save(tmp_path / "n.npy", texts)
    with pytest.raises(InputError, match=r"n\.npy.*damaged"):
        load(tmp_path / "v.npy", names=tmp_path / "n.npy")


def test_a_shape_of_truth_values_is_a_damaged_header(tmp_path):
    text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (True, 4), }"
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text + bytes(16))
    refused(tmp_path / "a.npy", "header is damaged", "True")


def test_numbers_that_numpy_cannot_name_are_refused_in_words(tmp_path, rows):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    np.save(tmp_path / "a.npy", rows.astype(ml_dtypes.bfloat16))
    refused(tmp_path / "a.npy", "bfloat16", "astype(numpy.float32)")


def test_an_ending_in_capitals_is_written_as_it_is(tmp_path, rows):
    space, _ = load(np_saved(tmp_path / "a.npy", rows))
    formats.write(space, tmp_path / "B.NPY")
    assert load(tmp_path / "B.NPY")[0].vectors.tobytes() == rows.tobytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["B.NPY", "a.npy"]


def np_saved(path, array):
    np.save(path, array)
    return path
