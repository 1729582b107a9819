"""Sparse matrices by ``scipy.sparse.save_npz`` and by ``np.save``."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from relcore import formats
from relcore.errors import InputError
from relcore.formats import load, sparse
from relcore.formats.base import Request

LAYOUTS = ["csr", "csc", "coo", "bsr", "dia"]


@pytest.fixture
def rows():
    a = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    return np.where(np.random.default_rng(1).random(a.shape) < 0.4, a, np.float32(0))


def refused(spec, *words, **kw):
    with pytest.raises(InputError) as e:
        load(spec, **kw)
    for word in words:
        assert word in str(e.value), str(e.value)


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csr_array])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_b12_every_layout_of_save_npz_is_made_dense(tmp_path, rows, layout, kind, compressed):
    sp.save_npz(tmp_path / "a.npz", kind(rows).asformat(layout), compressed=compressed)
    space, report = load(tmp_path / "a.npz")
    kept = rows.any(1)
    assert space.vectors.tobytes() == rows[kept].tobytes()
    assert (report.format, report.rows_read, report.rows_used, report.dtype) == ("sparse", 50, kept.sum(), "float32")
    assert layout in report.assumed[0] and "made dense" in report.assumed[0]
    assert all(s.reason == "zero norm" for s in report.set_aside)
    peek = formats.peek(tmp_path / "a.npz")
    assert (peek.rows, peek.dim, peek.dtype) == (50, 8, "float32")
    assert [(a.shape, a.dtype) for a in formats.arrays(tmp_path / "a.npz")] == [((50, 8), "<f4")]


@pytest.mark.parametrize("dtype", ["f4", "f8", "i1", "u2", "i8", "?", ">f4", ">i4"])
def test_b12_every_dtype(tmp_path, rows, dtype):
    wanted = (rows * 10).astype(dtype)
    sp.save_npz(tmp_path / "a.npz", sp.csr_array(wanted.astype(np.dtype(dtype).newbyteorder("="))))
    parts = dict(np.load(tmp_path / "a.npz"))
    np.savez(
        tmp_path / "a.npz", **parts | {"data": parts["data"].astype(dtype), "indptr": parts["indptr"].astype(">i8")}
    )
    assert load(tmp_path / "a.npz")[0].vectors.tobytes() == wanted[wanted.any(1)].astype(np.float32).tobytes()


def test_b12_half_precision_which_scipy_does_not_know(tmp_path):
    csr = sp.csr_array(np.eye(4, dtype=np.float32) * 300)
    parts = {"indices": csr.indices, "indptr": csr.indptr, "format": b"csr", "shape": csr.shape}
    np.savez(tmp_path / "a.npz", data=csr.data.astype(np.float16), **parts)
    space, report = load(tmp_path / "a.npz")
    assert (space.vectors == csr.toarray()).all() and report.dtype == "float16"


def test_b12_a_sparse_matrix_in_an_object_array_is_refused(tmp_path, rows):
    np.save(tmp_path / "a.npy", sp.csr_matrix(rows))
    refused(tmp_path / "a.npy", "a.npy", "Python objects", "np.save('vectors.npy'")


def test_b12_too_large_once_dense_says_how_large(tmp_path, monkeypatch):
    sp.save_npz(tmp_path / "a.npz", sp.coo_array(([1.0], ([0], [0])), shape=(10**7, 10**6)))
    refused(tmp_path / "a.npz", "10,000,000 x 1,000,000", "40.0 TB once dense", "TruncatedSVD")
    sp.save_npz(tmp_path / "b.npz", sp.eye_array(100, format="csr"))
    monkeypatch.setattr("relcore.memory.available", lambda: 39_999)
    refused(tmp_path / "b.npz", "100 x 100", "40 kB once dense")


def test_entries_that_occur_twice_are_summed_as_scipy_does(tmp_path):
    coo = sp.coo_array(([0.1, 0.2, 1.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    sp.save_npz(tmp_path / "a.npz", coo)
    assert load(tmp_path / "a.npz")[0].vectors.tobytes() == coo.toarray().astype(np.float32).tobytes()


def test_many_blocks(tmp_path, rows, monkeypatch):
    monkeypatch.setattr(sparse, "BLOCK", 20)
    sp.save_npz(tmp_path / "a.npz", sp.csc_array(rows))
    told = []
    assert load(tmp_path / "a.npz", progress=told.append)[0].vectors.tobytes() == rows[rows.any(1)].tobytes()
    assert told == sorted(told) and told[-1] == 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_reading_takes_no_more_memory_than_announced(tmp_path, layout):
    matrix = sp.random(20_000, 200, 0.05, format="csr", rng=0)
    matrix = sp.eye_array(20_000, 200, k=-3) if layout == "dia" else matrix.asformat(layout)
    sp.save_npz(tmp_path / "a.npz", matrix, compressed=False)
    load(tmp_path / "a.npz")  # what is imported is not counted
    request = Request(tmp_path / "a.npz")
    announced = sparse.peek(request).memory
    tracemalloc.start()
    sparse.read(request)
    _, height = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert height <= announced + 2**20


def parts_of(rows, **changed):
    csr = sp.csr_array(rows)
    parts = {"data": csr.data, "indices": csr.indices, "indptr": csr.indptr, "format": b"csr", "shape": csr.shape}
    return parts | changed


@pytest.mark.parametrize("role", ["indices", "indptr"])
@pytest.mark.parametrize("value", [-1, 10**6, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("at", [0, 7, -1])
def test_indices_outside_the_matrix(tmp_path, rows, role, value, at):
    wrong = parts_of(rows)[role].copy()
    wrong[at] = value
    np.savez(tmp_path / "a.npz", **parts_of(rows, **{role: wrong}))
    refused(tmp_path / "a.npz", "a.npz", "damaged")


@pytest.mark.parametrize(
    "changed, words",
    [
        ({"format": b"xyz"}, ["unknown layout 'xyz'", "csr"]),
        ({"format": np.array([], "S3")}, ["unknown layout"]),
        ({"format": np.array([b"c" * 999])}, ["too long"]),
        ({"format": b"coo"}, ["no array 'row'"]),
        ({"shape": (50, 4)}, ["damaged"]),
        ({"shape": (40, 8)}, ["damaged"]),
        ({"shape": (50, -8)}, ["shape", "damaged"]),
        ({"shape": (50.0, 8.0)}, ["shape", "damaged"]),
        ({"shape": (400,)}, ["(400,)", "two dimensions"]),
        ({"shape": (2, 25, 8)}, ["(2, 25, 8)", "two dimensions"]),
        ({"shape": (2**62, 2**62)}, ["once dense"]),
        ({"data": np.ones(3, complex)}, ["complex128", "wanted numbers"]),
        ({"data": np.array(["a"])}, ["wanted numbers"]),
        ({"data": np.array([{}], dtype=object)}, ["Python objects"]),
        ({"data": np.ones((3, 3))}, ["damaged"]),
        ({"indices": np.ones(160, "f4")}, ["wanted whole numbers"]),
    ],
)
def test_parts_that_do_not_fit(tmp_path, rows, changed, words):
    np.savez(tmp_path / "a.npz", **parts_of(rows, **changed))
    refused(tmp_path / "a.npz", "a.npz", *words)


def test_keys_and_roles(tmp_path, rows):
    sp.save_npz(tmp_path / "a.npz", sp.csr_array(rows + 1))
    refused(f"{tmp_path}/a.npz:data", "one sparse matrix", ":data")
    refused(tmp_path / "a.npz", "no labels called 'kind'", labels="kind")
    (tmp_path / "l.txt").write_text("\n".join(str(i % 3) for i in range(50)))
    assert load(tmp_path / "a.npz", labels=tmp_path / "l.txt")[0].labels[4] == "1"
    np.save(tmp_path / "v.npy", rows)
    refused(tmp_path / "v.npy", "sparse matrix, no labels", labels=tmp_path / "a.npz")


def test_a_plain_npz_stays_one(tmp_path, rows):
    np.savez(tmp_path / "a.npz", data=rows, shape=np.arange(50), labels=np.arange(50))
    assert load(tmp_path / "a.npz")[1].format == "npz"


@settings(max_examples=40, deadline=None)
@given(
    data=st.data(),
    layout=st.sampled_from(LAYOUTS),
    shape=hnp.array_shapes(min_dims=2, max_dims=2, max_side=7),
    dtype=st.sampled_from(["f4", "f8", "i4", "u1"]),
)
def test_what_scipy_wrote_reads_back_bit_equal(tmp_path_factory, data, layout, shape, dtype):
    path = tmp_path_factory.mktemp("sparse") / "a.npz"
    matrix = sp.csr_array(data.draw(hnp.arrays(dtype, shape))).asformat(layout)
    sp.save_npz(path, matrix)
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = sp.load_npz(path).toarray().astype(np.float32)
    np.testing.assert_array_equal(sparse.read(Request(path)).vectors, wanted)


@settings(max_examples=120, deadline=None)
@given(data=st.data(), layout=st.sampled_from(LAYOUTS), compressed=st.booleans())
def test_a_mutated_file_is_refused_or_read(tmp_path_factory, data, layout, compressed):
    path = tmp_path_factory.mktemp("sparse") / "a.npz"
    sp.save_npz(path, sp.eye_array(4, format=layout), compressed=compressed)
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(whole[: data.draw(st.integers(1, len(whole)))] if data.draw(st.booleans()) else whole)
    try:
        np.testing.assert_array_equal(load(path)[0].vectors, np.eye(4))
    except InputError as e:
        assert str(e)
