"""What a run gives away reads back as it was, and its recipes make it again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from relcore import export, formats, methods, runs
from relcore.errors import InputError
from relcore.space import LoadReport, Pair, Pairs, make_space

ROOT = Path(__file__).resolve().parent.parent
N = 90


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Spaces with rows set aside, so that row numbers and positions differ; runs by three kinds of method.

    Each is executed in a process of its own with one thread, as a worker does it: this process may have any number by
    now, and sums of another order have other last digits.
    """
    folder = tmp_path_factory.mktemp("made")
    patch = pytest.MonkeyPatch()
    patch.setenv("RELCORE_HOME", str(folder / "home"))
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    program = "import sys; from relcore.runs import Run, execute; [list(execute(Run.load(f))) for f in sys.argv[1:]]"
    rng = np.random.default_rng(0)
    x = 2 * rng.standard_normal((6, 7))[np.arange(N) % 6] + rng.standard_normal((N, 7))
    y = x @ rng.standard_normal((7, 9)) + 0.2 * rng.standard_normal((N, 9))
    x[4] = np.nan
    y[10] = 0
    labels = [f"k{i % 6}" for i in range(N)]
    x, report_x = make_space(x, names=[f"a, \u00e9 {i}" for i in range(N)], labels=labels, title="left")
    y, report_y = make_space(y, names=[f"b {i}" for i in range(N)], labels=labels, title="right")
    rows = np.array([i for i in range(N) if i not in (4, 10)])
    truth = Pairs(np.stack([x.positions(rows), y.positions(rows)], 1))
    pair = Pair(x, y, truth)
    out = {}
    for name, params in (
        ("ao", {"anchors": 20, "rounds": 3}),
        ("anchordot", {}),
        ("relative", {"similarity": "wip"}),
    ):
        run = runs.create(
            pair,
            method=methods.method(name, **params),
            seeds=truth.take(np.arange(0, 80, 4)),
            reports=(report_x, report_y),
            folder=folder / name,
            seed=3,
            folds=0,
            device="cpu",
        )
        out[name] = run.folder
    subprocess.run([sys.executable, "-c", program, *map(str, out.values())], env=env, check=True, capture_output=True)
    patch.undo()
    return pair, {name: runs.Run.load(path) for name, path in out.items()}


@pytest.mark.parametrize("ending", ["npz", "parquet", "csv", "safetensors"])
def test_aligned_vectors_read_back_with_names_and_labels(made, tmp_path, ending):
    pair, of = made
    run = of["relative"]
    export.write_all(run, pair, tmp_path / "out", ending=ending)
    spec = tmp_path / "out" / f"aligned_x.{ending}"
    again, _ = formats.load(f"{spec}:vectors" if ending in ("npz", "safetensors") else spec)
    np.testing.assert_array_equal(again.vectors, run.alignment_arrays()["x"])
    assert list(again.names) == list(pair.x.names) and list(again.labels) == list(pair.x.labels)


def test_tables_hold_what_the_run_found(made, tmp_path):
    pair, of = made
    run = of["ao"]
    export.write_all(run, pair, tmp_path / "out", k=3)
    seeds = pd.read_csv(tmp_path / "out" / "seeds.csv")
    np.testing.assert_array_equal(pair.x.positions(seeds["x_row"].to_numpy()), run.pairs[0].x)
    assert seeds["x_name"].tolist() == list(pair.x.names[run.pairs[0].x])
    anchors = pd.read_csv(tmp_path / "out" / "anchors.csv")
    assert len(anchors) == 20 and (anchors["y_row"] != 10).all()
    best = pd.read_csv(tmp_path / "out" / "matches_y_to_x.csv")
    a, b = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (run.alignment_arrays()[s] for s in "yx"))
    first = best[best["rank"] == 1]
    np.testing.assert_array_equal(pair.x.positions(first["match_row"].to_numpy()), (a @ b.T).argmax(1))
    np.testing.assert_allclose(first["score"], (a @ b.T).max(1), atol=1e-5)
    told = pd.read_csv(tmp_path / "out" / "metrics.csv").set_index("what")["value"]
    assert float(told["metrics.x_to_y.mrr"]) == run.record["metrics"]["x_to_y"]["mrr"]
    assert json.loads((tmp_path / "out" / "run" / "run.json").read_text()) == run.record


@pytest.mark.parametrize("name", ["ao", "relative", "anchordot"])
def test_both_recipes_make_the_run_again(made, tmp_path, name):
    pair, of = made
    run = of[name]
    export.write_recipe(run, pair, tmp_path)
    env = os.environ | {"PYTHONPATH": str(ROOT), "RELCORE_HOME": str(tmp_path / "home")}
    assert f"OMP_NUM_THREADS={run.record['threads']} python" in (tmp_path / "make_again.sh").read_text()
    line = (tmp_path / "make_again.sh").read_text().replace("python -m", f"{sys.executable} -m", 1)
    subprocess.run(["sh", "-c", line], cwd=tmp_path, env=env, check=True, capture_output=True)
    again = runs.Run.load(tmp_path / "again")
    assert again.record["metrics"] == run.record["metrics"]
    assert again.record["params"] == run.record["params"]
    done = subprocess.run(
        [sys.executable, "make_again.py"], cwd=tmp_path, env=env, check=True, capture_output=True, text=True
    )
    assert repr(run.record["metrics"]["x_to_y"]["mrr"]) in done.stdout


def test_the_usage_text_does_what_it_says(made, tmp_path, monkeypatch):
    pair, of = made
    run = of["relative"]
    text = export.usage(run)
    assert len(text.splitlines()) <= 6
    monkeypatch.chdir(run.folder.parent)
    held = {"vectors_x": pair.x.vectors, "vectors_y": pair.y.vectors}
    exec(text, held)
    np.testing.assert_allclose(held["z_x"], run.alignment_arrays()["x"], atol=1e-5)
    np.testing.assert_allclose(held["z_y"], run.alignment_arrays()["y"], atol=1e-5)


def test_the_exported_encoders_are_used_as_the_exported_text_says(made, tmp_path, monkeypatch):
    pair, of = made
    run = of["anchordot"]
    export.write_all(run, pair, tmp_path / "out")
    monkeypatch.chdir(tmp_path / "out")
    held = {"vectors_x": pair.x.vectors[:1], "vectors_y": pair.y.vectors}
    exec((tmp_path / "out" / "usage.txt").read_text(), held)
    np.testing.assert_allclose(held["z_x"], run.alignment_arrays()["x"][:1], atol=1e-5)
    np.testing.assert_allclose(held["z_y"], run.alignment_arrays()["y"], atol=1e-5)


def test_names_that_are_no_unicode_are_exported_too(made, tmp_path):
    pair, of = made
    names = np.array([f"\udcff{i}" for i in range(len(pair.x))], dtype=object)
    half = np.array([f"\ud800{i}" for i in range(len(pair.y))], dtype=object)
    odd = Pair(replace(pair.x, names=names), replace(pair.y, names=half), pair.truth)
    notes = export.write_all(of["relative"], odd, tmp_path / "out")
    assert "seeds.csv: names that are no Unicode have a ? in their place" in notes
    assert b",?" in (tmp_path / "out" / "matches_x_to_y.csv").read_bytes()
    data, exact = export.csv_bytes(pd.DataFrame({"name": names[:1]}))
    assert exact and data == b"name\n\xff0\n"


def test_a_full_disk_leaves_no_half_of_an_export(made, tmp_path, monkeypatch):
    pair, of = made

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as m:
        m.setattr(export, "write_recipe", full)
        with pytest.raises(OSError, match="No space left"):
            export.write_all(of["relative"], pair, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "out").mkdir()  # an empty one is as good as none
    export.write_all(of["relative"], pair, tmp_path / "out")
    assert (tmp_path / "out" / "make_again" / "make_again.sh").exists()
    assert not [p for p in (tmp_path / "out").iterdir() if p.name.startswith(".")]


def test_a_folder_of_any_name_stands_in_the_usage_text(made):
    _, of = made
    run = runs.Run(of["relative"].folder.with_name("a\"b'c"), of["relative"].record)
    run.alignment_arrays = of["relative"].alignment_arrays
    assert compile(export.usage(run), "usage", "exec")


def test_what_cannot_be_exported_is_told(made, tmp_path):
    pair, of = made
    run = of["relative"]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    for folder, more, said in (
        ("full", {}, "not an empty folder"),
        ("new", {"ending": "xyz"}, "no format is written as"),
    ):
        with pytest.raises(InputError, match=said):
            export.write_all(run, pair, tmp_path / folder, **more)
    assert not (tmp_path / "new").exists()
    with pytest.raises(InputError, match="has no matches by 'coupling'"):
        export.matches(run, pair, rule="coupling")
    with pytest.raises(InputError, match="500 matches a row"):
        export.matches(run, pair, k=500)
    waiting = runs.create(
        pair,
        method=methods.method("procrustes"),
        seeds=run.pairs[0],
        reports=(LoadReport("a", "npy", N, N, 7, "float32"),) * 2,
        folder=tmp_path / "waiting",
        keep_spaces=False,
    )
    with pytest.raises(InputError, match="is queued and has no alignment"):
        export.write_all(waiting, pair, tmp_path / "new")
