"""Annotated matrices by anndata: which array is meant, what obs gives, and what is never guessed."""

from __future__ import annotations

import warnings

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from relcore import formats
from relcore.errors import InputError
from relcore.formats import AmbiguousError, base, hdf5, load
from relcore.space import make_space
from tests import fuzz

ROWS = np.random.default_rng(0).normal(size=(30, 6)).astype(np.float32)
CELLS = [f"cell-{i}" for i in range(30)]


def made(path, x=ROWS, obsm=None, layers=None, index=CELLS, **obs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = anndata.AnnData(X=x, obs=pd.DataFrame(obs, index=index), obsm=obsm, layers=layers)
        data.write_h5ad(path)
    return path


@pytest.fixture(autouse=True)
def quick(monkeypatch, request):
    """Most tests fork the reading child, which is much faster than to start one; these start it as users do."""
    if not any(word in request.node.name for word in ("is_written", "x_with_names")):
        monkeypatch.setattr(hdf5, "_start", fuzz.Forked)


def refused(spec, *words, **kw):
    with pytest.raises(InputError) as e:
        load(spec, **kw)
    for word in words:
        assert word in str(e.value), str(e.value)


def test_x_with_names_labels_and_metadata_of_obs(tmp_path):
    types = pd.Categorical(["B cell", "T cell", None] * 10)
    path = made(tmp_path / "a.h5ad", cell_type=types, n=np.arange(30), batch=pd.Categorical([2, 1, 2] * 10))
    space, report = load(path)
    assert space.vectors.tobytes() == ROWS.tobytes()
    assert list(space.names) == CELLS
    assert list(space.labels[:3]) == ["B cell", "T cell", ""]
    assert list(space.meta["n"]) == list(range(30)) and list(space.meta["batch"][:3]) == [2, 1, 2]
    assert report.format == "h5ad" and any("cell_type" in a and "labels" in a for a in report.assumed)


@pytest.mark.parametrize("kind", ["csr", "csc"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "?"])
def test_b12_a_sparse_x_is_read_as_a_full_matrix(tmp_path, kind, dtype):
    dense = (ROWS * (ROWS > 0.3) * 10).astype(dtype)
    dense[4] = 0
    path = made(tmp_path / "a.h5ad", sp.csr_matrix(dense).asformat(kind))
    space, report = load(path)
    kept = np.flatnonzero(dense.any(1))
    np.testing.assert_array_equal(space.vectors, dense.astype(np.float32)[kept])
    assert list(space.names) == [CELLS[i] for i in kept] and 4 not in space.ids
    assert any(f"sparse ({kind})" in a for a in report.assumed) and report.dtype == str(np.dtype(dtype))


def test_sparse_in_blocks(tmp_path):
    dense = sp.random(
        9000, 700, density=0.02, format="csc", random_state=0, dtype=np.float32
    )  # several blocks each way
    index = [str(i) for i in range(9000)]
    for kind in ("csr", "csc"):
        space, _ = load(made(tmp_path / f"{kind}.h5ad", dense.asformat(kind), index=index))
        np.testing.assert_array_equal(space.vectors, dense.toarray()[space.ids])


def test_a_sparse_matrix_larger_than_the_memory_says_how_large(tmp_path, monkeypatch):
    path = made(tmp_path / "a.h5ad", sp.csr_matrix((30, 2_000_000), dtype=np.float32))
    monkeypatch.setattr("relcore.memory.available", lambda: 10**8)
    refused(path, "a.h5ad", "MB", "memory are free")


def test_x_and_obsm_are_not_guessed_between(tmp_path):
    path = made(tmp_path / "a.h5ad", obsm={"X_pca": ROWS[:, :3], "X_umap": ROWS[:, :2]}, leiden=["1", "2"] * 15)
    with pytest.raises(AmbiguousError) as e:
        load(path)
    assert "X (30, 6), obsm/X_pca (30, 3), obsm/X_umap (30, 2)" in str(e.value)
    assert "a.h5ad:obsm/X_pca" in str(e.value)
    space, report = load(f"{path}:obsm/X_pca")
    np.testing.assert_array_equal(space.vectors, ROWS[:, :3])
    assert list(space.names) == CELLS and list(space.labels[:2]) == ["1", "2"] and report.dim == 3
    assert load(f"{path}:X")[0].dim == 6
    refused(f"{path}:obsm/X_tsne", "no array 'obsm/X_tsne'", "obsm/X_pca")
    assert formats.inspect(path)["rows_read"] is None
    assert {a.name for a in formats.arrays(path)} == {"X", "obsm/X_pca", "obsm/X_umap", "obs/leiden"}


def test_only_obsm(tmp_path):
    space, _ = load(made(tmp_path / "a.h5ad", None, obsm={"X_emb": ROWS}))
    np.testing.assert_array_equal(space.vectors, ROWS)


def test_layers_are_there_when_asked_for(tmp_path):
    path = made(tmp_path / "a.h5ad", layers={"counts": sp.csr_matrix(ROWS * 2)})
    assert load(path)[0].vectors.tobytes() == ROWS.tobytes()
    np.testing.assert_array_equal(load(f"{path}:layers/counts")[0].vectors, ROWS * 2)


def test_names_that_repeat_are_kept_and_said(tmp_path):
    path = made(tmp_path / "a.h5ad", index=["a"] * 3 + CELLS[3:])
    space, report = load(path)
    assert len(space) == 30 and any("earlier row, kept: 2" in a for a in report.assumed)


def test_roles_can_be_chosen(tmp_path):
    path = made(tmp_path / "a.h5ad", cell_type=["a", "b"] * 15, donor=["x", "y", "z"] * 10, barcode=CELLS[::-1])
    for spelled in ("donor", "obs/donor"):
        space, _ = load(path, labels=spelled, names="barcode")
        assert list(space.labels[:3]) == ["x", "y", "z"] and space.names[0] == "cell-29"
        assert list(space.meta) == ["cell_type"]
    refused(path, "obs/donors", labels="donors")


def test_obs_for_another_file(tmp_path):
    np.save(tmp_path / "v.npy", ROWS)
    path = made(
        tmp_path / "a.h5ad", cell_type=pd.Categorical(["a", "b"] * 15), n=pd.array([1, None] * 15, dtype="Int64")
    )
    space, _ = load(tmp_path / "v.npy", labels=f"{path}:obs/cell_type", names=path)
    assert list(space.labels[:2]) == ["a", "b"] and list(space.names) == CELLS
    assert list(load(tmp_path / "v.npy", labels=f"{path}:n")[0].labels[:2]) == ["1", ""]
    assert list(load(tmp_path / "v.npy", labels=path)[0].labels[:2]) == ["a", "b"]


def test_a_plain_h5_file_called_h5ad_and_the_other_way_round(tmp_path):
    with h5py.File(tmp_path / "a.h5ad", "w") as f:
        f["v"] = ROWS
    assert load(tmp_path / "a.h5ad")[1].format == "h5"
    made(tmp_path / "b.h5ad").rename(tmp_path / "b.h5")
    assert load(tmp_path / "b.h5")[1].format == "h5ad"


def test_links_out_of_the_file_are_not_followed(tmp_path):
    other = made(tmp_path / "other.h5ad", cell_type=["secret"] * 30)
    path = made(tmp_path / "a.h5ad")
    with h5py.File(path, "a") as f:
        f["obs/cell_type"] = h5py.ExternalLink(str(other), "/obs/cell_type")
    space, report = load(path)
    assert space.labels is None and any("1 parts of obs are not read" in w for w in report.warnings)
    with h5py.File(path, "a") as f:
        del f["X"]
        f["X"] = h5py.ExternalLink(str(other), "/X")
    refused(path, "a.h5ad:X", "another file")


def test_damaged_sparse_indices_never_give_a_matrix(tmp_path):
    path = made(tmp_path / "a.h5ad", sp.csr_matrix(ROWS))
    with h5py.File(path, "a") as f:
        f["X/indices"][5] = 6
    refused(path, "a.h5ad", "damaged", "6")
    with h5py.File(path, "a") as f:
        f["X/indices"][5] = 5
        f["X/indptr"][3] = 10**9
    refused(path, "a.h5ad", "damaged", "row pointers")
    with h5py.File(path, "a") as f:
        del f["X/indptr"]
    refused(path, "a.h5ad:X", "damaged")


@pytest.mark.parametrize("cut", [60, 1000, 5000, 12000])
def test_truncated_files(tmp_path, cut):
    data = made(tmp_path / "a.h5ad").read_bytes()
    (tmp_path / "b.h5ad").write_bytes(data[:cut])
    refused(tmp_path / "b.h5ad", "b.h5ad", "damaged")


def test_without_anndata_the_error_says_what_to_install(tmp_path, monkeypatch):
    path = made(tmp_path / "a.h5ad", cell_type=pd.Categorical(["a", "b"] * 15))
    real = base.import_module

    def missing(name):
        if name == "anndata":
            raise ImportError(f"No module named {name!r}")
        return real(name)

    monkeypatch.setattr(base, "import_module", missing)
    refused(path, "a.h5ad", "pip install anndata")
    with pytest.raises(InputError, match="pip install anndata"):
        formats.write(make_space(ROWS)[0], tmp_path / "b.h5ad")


def test_what_is_written_is_read_back_and_anndata_reads_it(tmp_path):
    meta = pd.DataFrame({"age": np.arange(30), "w": np.linspace(0, 1, 30), "ok": [True, False] * 15, "t": ["é"] * 30})
    names, labels = [f"n{i % 20}" for i in range(30)], ["a", "", "ü"] * 10
    space, _ = make_space(ROWS, names=names, labels=labels, media=["☃"] * 30, meta=meta)
    assert formats.write(space, tmp_path / "a.h5ad") == []
    back, _ = load(tmp_path / "a.h5ad")
    assert back.vectors.tobytes() == space.vectors.tobytes()
    for column in ("names", "labels", "media"):
        np.testing.assert_array_equal(getattr(back, column), getattr(space, column))
    pd.testing.assert_frame_equal(back.meta[list(meta)], meta)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = anndata.read_h5ad(tmp_path / "a.h5ad")
    np.testing.assert_array_equal(data.X, ROWS)
    assert list(data.obs_names) == names and list(data.obs["label"]) == labels


def test_a_space_without_names_labels_or_metadata(tmp_path):
    formats.write(make_space(ROWS)[0], tmp_path / "a.h5ad")
    back, _ = load(tmp_path / "a.h5ad")
    assert list(back.names) == [str(i) for i in range(30)] and back.labels is None and back.meta is None
