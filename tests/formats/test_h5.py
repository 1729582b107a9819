"""HDF5 files by h5py: what is found in them, what is never followed, and that no damage reaches this process."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import h5py
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from relcore import formats, memory
from relcore.errors import InputError
from relcore.formats import AmbiguousError, base, hdf5, load
from relcore.space import make_space
from tests import fuzz

ROWS = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)


def made(path, **arrays):
    with h5py.File(path, "w") as f:
        for name, values in arrays.items():
            f[name.replace("__", "/")] = values
    return path


@pytest.fixture(autouse=True)
def quick(monkeypatch, request):
    """Most tests fork the reading child, which is much faster than to start one; these start it as users do."""
    if not any(
        word in request.node.name
        for word in ("is_written", "progress", "truncated", "crash_or_hang", "nothing_outside")
    ):
        monkeypatch.setattr(hdf5, "_start", fuzz.Forked)


def refused(spec, *words, **kw):
    with pytest.raises(InputError) as e:
        load(spec, **kw)
    for word in words:
        assert word in str(e.value), str(e.value)
    assert "Traceback" not in str(e.value)
    return str(e.value)


# ------------------------------------------------------------------------------------------------------ what is found


def test_lists_every_array_by_its_path(tmp_path):
    made(tmp_path / "a.h5", g__emb=ROWS, other=ROWS[:, :3].astype(">f8"), g__names=["a"] * 50)
    listed = {a.name: (a.shape, a.dtype) for a in formats.arrays(tmp_path / "a.h5")}
    assert listed == {"g/emb": ((50, 8), "<f4"), "other": ((50, 3), ">f8"), "g/names": ((50,), "str")}


def test_one_matrix_is_the_vectors_with_names_labels_and_metadata_of_its_group(tmp_path):
    path = made(
        tmp_path / "a.h5",
        g__emb=ROWS,
        g__names=[f"n{i}" for i in range(50)],
        labels=np.arange(50) % 3,
        g__meta__age=np.arange(50) * 0.5,
        other__labels=["no"] * 50,
        short=np.arange(7),
    )
    space, report = load(path)
    np.testing.assert_array_equal(space.vectors, ROWS)
    assert list(space.names[:2]) == ["n0", "n1"] and list(space.labels[:4]) == ["0", "1", "2", "0"]
    assert list(space.meta) == ["age"] and space.meta["age"][3] == 1.5
    assert report.format == "h5" and any("'g/emb'" in a for a in report.assumed)


def test_several_matrices_are_not_guessed_between(tmp_path):
    path = made(tmp_path / "a.h5", a=ROWS, b=ROWS[:, :3])
    with pytest.raises(AmbiguousError) as e:
        load(path)
    assert "a (50, 8), b (50, 3)" in str(e.value) and {a.name for a in e.value.arrays} == {"a", "b"}
    assert load(f"{path}:b")[0].dim == 3
    assert load(f"{path}:/b")[0].dim == 3
    refused(f"{path}:c", "no array 'c'", "a (50, 8)")
    assert formats.inspect(path)["rows_read"] is None


def test_a_name_decides_between_several(tmp_path):
    space, report = load(made(tmp_path / "a.h5", weights=ROWS[:, :3], x__Embeddings=ROWS))
    assert space.dim == 8 and any("by its name" in a for a in report.assumed)


@pytest.mark.parametrize(
    "values, words",
    [
        (np.zeros(5), ["(5,)", "two dimensions"]),
        (np.zeros((5, 2, 2)), ["(5, 2, 2)", "two dimensions"]),
        (np.zeros(5, dtype=[("a", "f4"), ("b", "i4")]), ["records of several fields", "plain numbers"]),
        (["a", "b"], ["(2,)", "two dimensions"]),
        (h5py.Empty("f4"), ["is empty"]),
    ],
)
def test_what_cannot_be_vectors_is_an_error(tmp_path, values, words):
    refused(made(tmp_path / "a.h5", x=values), "a.h5:x", *words)
    refused(f"{tmp_path}/a.h5:x", "a.h5:x", *words)


def test_complex_numbers_and_text_matrices_are_no_vectors(tmp_path):
    refused(f"{made(tmp_path / 'a.h5', x=ROWS.astype(complex))}:x", "<c16", "numbers")
    path = made(tmp_path / "t.h5", x=np.array([[b"a", b"b"]]))
    refused(f"{path}:x", "str", "numbers")


def test_a_file_without_arrays(tmp_path):
    refused(made(tmp_path / "a.h5"), "a.h5", "no array at all")


def test_b07_texts_that_are_no_utf8_are_counted(tmp_path):
    made(tmp_path / "a.h5", vectors=ROWS[:3], names=np.array([b"ok", b"caf\xe9", "caf\u00e9".encode()]))
    space, report = load(tmp_path / "a.h5")
    assert list(space.names) == ["ok", "caf\ufffd", "caf\u00e9"]
    assert any("1 texts hold bytes that are no UTF-8" in w for w in report.warnings)


@pytest.mark.parametrize("dtype", ["<f2", ">f4", ">f8", "<i8", ">u2", "?", "<f4"])
@pytest.mark.parametrize(
    "packed", [{}, {"compression": "gzip", "chunks": (7, 3)}, {"compression": "lzf", "shuffle": True}]
)
def test_b10_b11_every_dtype_and_filter(tmp_path, dtype, packed):
    values = (ROWS * 100).astype(dtype)
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f.create_dataset("x", data=values, **packed)
    space, report = load(tmp_path / "a.h5")
    np.testing.assert_array_equal(space.vectors, values.astype(np.float32)[space.ids])
    assert report.dtype == str(np.dtype(dtype))


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    hnp.arrays(
        st.sampled_from(["<f2", "<f4", ">f4", "<f8", "<i4", "|u1"]),
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=9),
        fill=st.just(0),
    ),
    st.booleans(),
)
def test_what_h5py_wrote_reads_back_bit_equal(tmp_path, values, chunked):
    path = tmp_path / "p.h5"
    path.unlink(missing_ok=True)
    with h5py.File(path, "w") as f:
        f.create_dataset("x", data=values, chunks=True if chunked else None)
    with np.errstate(over="ignore"):
        canonical = values.astype(np.float32)
    good = np.isfinite(canonical).all(1) & (canonical != 0).any(1)
    if not good.any():
        refused(path)
        return
    space, report = load(path)
    np.testing.assert_array_equal(space.ids, np.flatnonzero(good))
    assert space.vectors.tobytes() == canonical[good].tobytes()
    assert len(report.set_aside) == (~good).sum()


def test_reading_in_blocks_gives_the_same_and_tells_its_progress(tmp_path):
    values = np.random.default_rng(1).normal(size=(300_000, 40)).astype(np.float64)  # 96 MB: six blocks
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f.create_dataset("x", data=values, chunks=(999, 40))
    shares = []
    space, _ = load(tmp_path / "a.h5", progress=shares.append)
    np.testing.assert_array_equal(space.vectors, values.astype(np.float32))
    assert len(shares) > 4 and shares == sorted(shares) and shares[-1] == 1


def test_matlab_files_are_turned_as_matlab_shows_them(tmp_path):
    with h5py.File(tmp_path / "a.mat", "w", userblock_size=512) as f:
        f["x"] = ROWS.T.astype(np.float64)
        f["x"].attrs["MATLAB_class"] = np.bytes_(b"double")
    with (tmp_path / "a.mat").open("r+b") as f:
        f.write(b"MATLAB 7.3 MAT-file")
    space, report = load(tmp_path / "a.mat")
    np.testing.assert_array_equal(space.vectors, ROWS)
    assert any("MATLAB" in a for a in report.assumed) and any("ends in .mat" in w for w in report.warnings)


def test_names_and_labels_for_another_file(tmp_path):
    np.save(tmp_path / "v.npy", ROWS)
    made(tmp_path / "l.h5", labels=np.arange(50) % 4, g__who=[f"w{i}" for i in range(50)])
    space, _ = load(tmp_path / "v.npy", labels=f"{tmp_path}/l.h5", names=f"{tmp_path}/l.h5:g/who")
    assert list(space.labels[:3]) == ["0", "1", "2"] and space.names[49] == "w49"
    with pytest.raises(InputError, match="choose one as"):
        load(tmp_path / "v.npy", names=tmp_path / "l.h5")


def test_b14_labels_of_another_count_are_not_used(tmp_path):
    space, report = load(made(tmp_path / "a.h5", vectors=ROWS, labels=np.arange(49)))
    assert space.labels is None and any("49 values for 50 vectors" in w for w in report.warnings)


def test_the_chosen_array_gives_the_labels(tmp_path):
    path = made(tmp_path / "a.h5", vectors=ROWS, labels=np.arange(50), kind=["x", "y"] * 25)
    assert list(load(path, labels="kind")[0].labels[:2]) == ["x", "y"]
    refused(path, "no array 'kinds'", labels="kinds")


# ----------------------------------------------------------------------------------------------------- what is refused


def test_nothing_outside_the_file_is_read(tmp_path):
    secret = made(tmp_path / "secret.h5", x=ROWS)
    (tmp_path / "raw.bin").write_bytes(ROWS.tobytes())
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f["vectors"] = ROWS
        f["far"] = h5py.ExternalLink(str(secret), "/x")
        f["soft"] = h5py.SoftLink("/far")
        f.create_dataset("raw", (50, 8), "f4", external=[(str(tmp_path / "raw.bin"), 0, ROWS.nbytes)])
        layout = h5py.VirtualLayout((50, 8), "f4")
        layout[:] = h5py.VirtualSource(str(secret), "x", (50, 8))
        f.create_virtual_dataset("virtual", layout)
    assert [a.name for a in formats.arrays(tmp_path / "a.h5")] == ["vectors"]
    _, report = load(tmp_path / "a.h5")
    assert any("4 objects of the file are not read" in w for w in report.warnings)
    refused(f"{tmp_path}/a.h5:far", "link to another file")
    refused(f"{tmp_path}/a.h5:soft", "link")
    refused(f"{tmp_path}/a.h5:raw", "in another file")
    refused(f"{tmp_path}/a.h5:virtual", "in another file")
    refused(f"{tmp_path}/a.h5:far/x", "no array")


def test_a_group_inside_itself_is_not_walked_for_ever(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f["g/vectors"] = ROWS
        f["g/again"] = f["g"]
        f["root"] = f["/"]
    assert load(tmp_path / "a.h5")[1].rows_used == 50


def test_a_small_file_that_claims_very_much_is_refused_at_once(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f.create_dataset("x", (10**6, 300), "f4", chunks=(1000, 300), compression="gzip")
    refused(tmp_path / "a.h5", "a.h5:x", "1.2 GB", "decompression bomb")
    with h5py.File(tmp_path / "b.h5", "w") as f:
        f.create_dataset("x", data=np.ones((300_000, 100), "f4"), chunks=(3000, 100), compression="gzip")
    refused(tmp_path / "b.h5", "b.h5:x", "120 MB", "decompression bomb")


def test_more_than_the_memory_is_refused(tmp_path, monkeypatch):
    path = made(tmp_path / "a.h5", x=ROWS)
    monkeypatch.setattr(memory, "available", lambda: 1000)
    refused(path, "a.h5", "memory are free")


def test_an_unknown_compression_is_named(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as f:
        dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        dcpl.set_chunk((10, 8))
        dcpl.set_filter(32001, h5py.h5z.FLAG_OPTIONAL, ())  # Blosc
        h5py.h5d.create(f.id, b"x", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((50, 8)), dcpl)
    refused(tmp_path / "a.h5", "a.h5:x", "compressed with", "gzip")


def test_without_h5py_the_error_says_what_to_install(tmp_path, monkeypatch):
    path = made(tmp_path / "a.h5", x=ROWS)

    def missing(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(base, "import_module", missing)
    refused(path, "a.h5", "pip install h5py")
    with pytest.raises(InputError, match="pip install h5py"):
        formats.write(make_space(ROWS)[0], tmp_path / "b.h5")


# ------------------------------------------------------------------------------------------------------ damaged files


@pytest.mark.parametrize("cut", [8, 60, 200, 1000, 2500])
def test_truncated_files(tmp_path, cut):
    data = made(tmp_path / "a.h5", vectors=ROWS, names=["a"] * 50).read_bytes()
    (tmp_path / "b.h5").write_bytes(data[:cut])
    refused(tmp_path / "b.h5", "b.h5", "damaged")


def _child(monkeypatch, code):
    """Every child runs this instead of the reader."""
    real = subprocess.Popen
    monkeypatch.setattr(hdf5.subprocess, "Popen", lambda _, **kw: real([sys.executable, "-c", code], **kw))


@pytest.mark.parametrize(
    "code, words",
    [
        ("import os; os.kill(os.getpid(), 11)", ["damaged", "SIGSEGV"]),
        ("import os; os._exit(3)", ["damaged", "exit code 3"]),
        ("print('{\"items\": [', end='')", ["damaged"]),
        (
            "import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, -1))\nwhile True: pass",
            ["damaged", "would not come to an end"],
        ),
    ],
)
def test_a_crash_or_hang_of_the_library_is_an_error(tmp_path, monkeypatch, code, words):
    path = made(tmp_path / "a.h5", x=ROWS)
    _child(monkeypatch, code)
    refused(path, "a.h5", *words)


def test_the_child_limits_its_own_time_and_memory():
    code = (
        "import resource; from relcore.formats.hdf5 import _allow; _allow(7, 10**10);"
        "print(resource.getrlimit(resource.RLIMIT_CPU)[0], resource.getrlimit(resource.RLIMIT_AS)[0])"
    )
    cpu, space = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split()
    assert 7 <= int(cpu) <= 10 and int(space) == 10**10
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY  # only there


def test_a_changed_file_is_looked_at_anew(tmp_path):
    path = made(tmp_path / "a.h5", x=ROWS)
    assert load(path)[0].dim == 8
    os.unlink(path)
    made(path, x=ROWS[:, :3])
    assert load(path)[0].dim == 3


# --------------------------------------------------------------------------------------------------------- round trip


def test_what_is_written_is_read_back(tmp_path):
    meta = pd.DataFrame({"age": np.arange(50), "w": np.linspace(0, 1, 50), "ok": [True, False] * 25, "t": ["é"] * 50})
    names, labels = [f"n{i % 40}" for i in range(50)], ["a", "", "b", "ü", "1"] * 10
    space, _ = make_space(ROWS, names=names, labels=labels, media=["☃"] * 50, meta=meta)
    assert formats.write(space, tmp_path / "a.h5") == []
    back, _ = load(tmp_path / "a.h5")
    assert back.vectors.tobytes() == space.vectors.tobytes()
    for column in ("names", "labels", "media"):
        np.testing.assert_array_equal(getattr(back, column), getattr(space, column))
    pd.testing.assert_frame_equal(back.meta[list(meta)], meta)
    assert [back.meta[c].dtype for c in meta] == [meta[c].dtype for c in meta]
    with h5py.File(tmp_path / "a.h5") as f:  # anybody can read it
        np.testing.assert_array_equal(f["vectors"][:], ROWS)


def test_what_cannot_be_kept_is_said(tmp_path):
    meta = pd.DataFrame({"a/b": ["x", None], "when": pd.to_datetime(["2020-01-01", "2021-01-01"])})
    space, _ = make_space(ROWS[:2], meta=meta)
    notes = formats.write(space, tmp_path / "a.h5")
    assert (
        any("'a_b'" in n for n in notes) and any("1 missing" in n for n in notes) and any("as text" in n for n in notes)
    )
    assert list(load(tmp_path / "a.h5")[0].meta["a_b"]) == ["x", ""]
    for name in ("a\0b", "\ud800"):
        bad, _ = make_space(ROWS[:2], names=[name, "y"])
        with pytest.raises(InputError, match="row 0"):
            formats.write(bad, tmp_path / "b.h5")
    assert not (tmp_path / "b.h5").exists()
