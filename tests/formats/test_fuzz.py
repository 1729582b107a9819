"""The fuzzer: each reader stands a short run, and a bug that is planted is found."""

from __future__ import annotations

import os
import time

import pytest

from relcore.formats.registry import REGISTRY
from tests import fuzz

COUNT = {"h5": 8, "h5ad": 8}  # each has a process of its own for each file


@pytest.fixture(scope="module")
def worker():
    worker = fuzz.Worker()
    yield worker
    worker.close()


@pytest.mark.parametrize("format", fuzz.WRITERS)
def test_the_undamaged_files_and_some_damaged_ones(format, worker, tmp_path):
    if format not in REGISTRY:
        pytest.skip(f"no reader called {format} is registered")
    for i, seed in enumerate(fuzz.seeds(format)):
        path = tmp_path / f"{i}{seed.ending}"
        path.write_bytes(seed.data)
        worker.start(path, 60)
        assert worker.connection.poll(120) and worker.result() is None, path
    done, findings = fuzz.fuzz(
        format, count=COUNT.get(format, 30), seed=7, out=tmp_path / "out", workers=[worker], timeout=120
    )
    assert done == COUNT.get(format, 30) and not findings, "\n".join(map(str, findings))


def test_the_same_seed_gives_the_same_files():
    given = fuzz.seeds("npz")
    first, again, other = ([fuzz.mutant("npz", given, s, i) for i in range(40)] for s in (3, 3, 4))
    assert first == again and first != other
    assert len({m.data for m in first}) > 30 and not {m.data for m in first} <= {s.data for s in given}


def planted(path):
    """A reader with three bugs."""
    data = path.read_bytes()
    if len(data) % 4 == 1:
        raise ValueError("planted")
    if len(data) % 4 == 2:
        time.sleep(60)
    if len(data) % 4 == 3:
        os._exit(9)


def test_planted_bugs_are_found_and_kept(tmp_path, monkeypatch):
    given = fuzz.seeds("npy")[0].data
    files = [fuzz.Seed(".npy", given + bytes(k)) for k in ((i - len(given)) % 4 for i in range(4))]
    monkeypatch.setattr(fuzz, "mutant", lambda format, given, seed, index: files[index])
    worker = fuzz.Worker(planted)
    said = []
    try:
        worker.start(tmp_path / "missing", 60)  # the first start takes long; so that 2 seconds are enough below
        assert worker.connection.poll(60) and worker.result()[0] == "FileNotFoundError"
        monkeypatch.setattr(fuzz.Worker, "START", 20)
        done, findings = fuzz.fuzz("npy", count=4, out=tmp_path / "out", workers=[worker], timeout=2, say=said.append)
    finally:
        worker.close()
    assert done == 4
    assert {f.index: f.kind for f in findings} == {1: "ValueError", 2: "hang", 3: "crash"}
    for f in findings:
        assert f.path.read_bytes() == files[f.index].data
        assert f.path.with_name(f.path.name + ".log").read_text().strip() == f.detail.strip()
    assert "planted" in findings[0].detail and len(said) == 3


def test_a_wrong_space_is_a_finding():
    import numpy as np

    from relcore.space import make_space

    space, report = make_space(np.ones((3, 2), np.float32))
    fuzz.valid(space, report)
    for wrong in (np.array([[1, np.nan]] * 3, np.float32), np.zeros((3, 2), np.float32), np.ones((2, 2), np.float32)):
        object.__setattr__(space, "vectors", wrong)
        with pytest.raises(AssertionError):
            fuzz.valid(space, report)


def test_the_command_ends_with_1_for_findings_and_0_without(tmp_path, monkeypatch, capsys):
    found = fuzz.Finding("npy", 3, "crash", "the process ended with -11", tmp_path / "3.npy")
    for findings, code in (([found], 1), ([], 0)):
        monkeypatch.setattr(fuzz, "fuzz", lambda format, findings=findings, **kw: (5, findings))
        assert fuzz.main(["npy", "--minutes", "0.01", "--out", str(tmp_path)]) == code
    assert "npy 3: crash" in capsys.readouterr().out


def test_a_format_without_reader_is_skipped_with_a_word(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("relcore.formats.registry.REGISTRY", ("npz",))
    assert fuzz.main(["npy"]) == 0
    assert "npy: skipped, no reader" in capsys.readouterr().out
