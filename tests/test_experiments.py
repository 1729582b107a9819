"""Sweeps: what is read, which cells, what a cell finds, and what a kill, a fault or a stop leaves."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from relcore import experiments, parallel, pipeline, seeds, store
from relcore.errors import InputError
from relcore.experiments import Cell, Kept
from relcore.methods import method

ROOT = Path(__file__).resolve().parent.parent
CONFIG = """
name = "tiny"
seeds = [10, 30]
corruption = [0, 0.5]
random_seeds = [0, 1]
[data]
x = "x.npz:vectors"
y = "y.npz:vectors"
[[methods]]
name = "procrustes"
[[methods]]
name = "relative"
label = "RR"
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("RELCORE_HOME", str(tmp_path / "home"))
    experiments._open.cache_clear()
    return tmp_path / "home"


@pytest.fixture(scope="module", autouse=True)
def nothing_left():
    yield
    parallel.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """A planted rotation of four classes, and a sweep beside it."""
    folder = tmp_path_factory.mktemp("sweep")
    rng = np.random.default_rng(0)
    label = np.arange(120) % 4
    x = 2 * rng.standard_normal((4, 6))[label] + rng.standard_normal((120, 6))
    turn = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    names = np.array([f"class {k}" for k in label])
    for side, v in (("x", x), ("y", x @ turn)):
        np.savez(folder / f"{side}.npz", vectors=v.astype(np.float32), labels=names)
    (folder / "tiny.toml").write_text(CONFIG)
    return folder


def write(folder: Path, name: str, **changes: str) -> Path:
    text = CONFIG
    for old, new in changes.items():
        line = next(s for s in CONFIG.splitlines() if s.startswith(f"{old} ="))
        text = text.replace(line, f"{old} = {new}")
    path = folder / name
    path.write_text(text)
    return path


def drained(kept: Kept) -> list[int]:
    return [p.iteration for p in experiments.execute(kept)]


# ---------------------------------------------------------------- what is read


def test_a_sweep_is_read_and_written_back(files):
    sweep = experiments.read(files / "tiny.toml")
    assert experiments.from_dict(sweep.to_dict(), "again") == sweep
    assert [e.label for e in sweep.entrants] == ["Procrustes", "RR"]
    assert sweep.data.x == str(files / "x.npz:vectors")  # wherever a cell runs
    cells = [cell for _, cell in sweep.cells().values()]
    assert len(cells) == 2 * 2 * 2 * 2
    assert [c.seed for c in cells] == [0] * 8 + [1] * 8  # whole curves early


def test_without_seeds_there_is_nothing_to_corrupt(files):
    sweep = experiments.read(write(files, "none.toml", seeds="[0, 10]", random_seeds="[0]"))
    assert sorted((c.seeds, c.corruption) for _, c in sweep.cells().values()) == sorted(
        2 * [(0, 0.0), (10, 0.0), (10, 0.5)]
    )


SHIPPED = sorted(p.stem for p in experiments.SHIPPED.glob("*.toml"))


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_sweep_can_be_read_and_its_data_allow_it(name):
    sweep = experiments.read(name)
    assert sweep.name == name and sweep.description and sweep.axes()
    assert experiments.from_dict(sweep.to_dict(), "again") == sweep
    sweep.check()
    assert sweep.seconds({}) > 0


def test_the_sweeps_of_the_four_papers_are_there():
    assert {"anchors", "pool", "overlap", "corruption", "score", "mixtures", "support", "seeds"} <= set(SHIPPED)


def pooled(files: Path, name: str = "pool.toml", **changes: str) -> Path:
    path = write(files, name, seeds="[10]", corruption="[0]", random_seeds="[0, 1]", **changes)
    path.write_text(path.read_text().replace("[data]", "pool = [20, 30]\noverlap = [0, 0.5]\ntest = 40\n[data]", 1))
    return path


def test_a_pool_is_what_it_says(files):
    sweep = experiments.read(pooled(files))
    assert experiments.from_dict(sweep.to_dict(), "again") == sweep
    pair = sweep.check()
    cells = [cell for _, cell in sweep.cells().values()]
    assert len(cells) == 2 * 2 * 2 * 2 and set(sweep.axes()) == {"pool", "overlap"}
    for cell in cells:
        sub, known = experiments.pooled(pair, cell)
        assert len(sub.x) == len(sub.y) == 10 + 40 + cell.pool
        assert known.array.tolist() == [[i, i] for i in range(10)] and len(sub.truth) == 50
        told, beside = slice(0, 50), slice(50, None)  # row i of x is row i of y in these files
        assert sub.x.ids[told].tolist() == sub.y.ids[told].tolist()
        shared = set(sub.x.ids[beside]) & set(sub.y.ids[beside])
        assert len(shared) == round(cell.overlap * cell.pool)
        assert not set(sub.x.ids[told]) & (set(sub.x.ids[beside]) | set(sub.y.ids[beside]))
        np.testing.assert_array_equal(sub.y.vectors, pair.y.vectors[pair.y.positions(sub.y.ids)])


def test_cells_with_pools_and_grids_are_scored_and_drawn(files):
    path = pooled(files, "grid.toml")
    grid = '[[methods]]\nname = "relative"\nlabel = "random"\nparams = {choose = "random"}\ngrid = {count = [3, 8]}\n'
    path.write_text(path.read_text() + grid)
    sweep = experiments.read(path)
    assert sweep.axes()["varied"] == "count"
    kept = experiments.create(sweep)
    drained(kept)
    table = kept.table(sweep)
    assert len(table) == 2 * 2 * 2 * 4 and not table["error"].any() and (table["scored"] == 40).all()
    of = table[table["label"] == "random"]
    assert sorted(set(of["varied"])) == [3, 8] and of.groupby("varied")["mrr x_to_y"].mean().is_monotonic_increasing
    assert table[table["label"] == "Procrustes"]["varied"].isna().all()
    bands = experiments.bands(table, "mrr x_to_y", "pool")
    assert bands["n"].tolist() == [2] * 16 and bands["pool"].is_monotonic_increasing
    by_hand = table[(table["label"] == "RR") & (table["pool"] == 30) & (table["overlap"] == 0.5)]["mrr x_to_y"]
    line = bands[(bands["label"] == "RR") & (bands["pool"] == 30) & (bands["overlap"] == 0.5)].iloc[0]
    assert (line["mean"], line["low"], line["high"]) == pytest.approx((by_hand.mean(), by_hand.min(), by_hand.max()))
    assert "count" not in experiments.columns(table) and "overlap" not in experiments.columns(table)


def test_a_pool_is_read_among_the_test_rows_by_cosine_or_by_the_plan(files):
    path = pooled(files, "plan.toml")
    plan = '[[methods]]\nname = "anchordot"\nlabel = "plan"\nparams = {student = "none"}\nby = "coupling"\n'
    path.write_text(path.read_text() + plan)
    sweep = experiments.read(path)
    assert experiments.from_dict(sweep.to_dict(), "again") == sweep
    pair, record = sweep.check(), sweep.to_dict()
    prints = (pair.x.fingerprint, pair.y.fingerprint)
    for entrant, cell in [c for c in sweep.cells().values() if c[1].seed == 0 and c[1].overlap == 0.5]:
        got = experiments.run_cell((record, dataclasses.asdict(cell), prints))
        sub, known = experiments.pooled(pair, cell)
        fit = pipeline.Fit(sub, pipeline.Task(entrant.build()[0], known, seed=0, folds=0))
        pipeline.drain(fit.steps())
        a, test = fit.alignment, slice(10, 50)
        if entrant.label == "plan":
            scores = a.coupling.log_block(torch.arange(10, 50), torch.arange(10, 50)).double().numpy()
        else:
            x, y = (v[test].double() / v[test].double().norm(dim=1, keepdim=True) for v in (a.x, a.y))
            scores = (x @ y.T).numpy()
        rank = 1 + (scores > scores.diagonal()[:, None] + 1e-12).sum(1)
        assert got["mrr x_to_y"] == pytest.approx(np.where(rank <= 10, 1 / rank, 0).mean(), abs=1e-6)
        back = 1 + (scores > scores.diagonal()[None] + 1e-12).sum(0)
        assert got["r@1 y_to_x"] == pytest.approx((back == 1).mean(), abs=1e-6)
    record["methods"][0]["by"] = "coupling"
    cell = next(c for e, c in experiments.from_dict(record, "again").cells().values() if e.label == "Procrustes")
    assert "makes no coupling" in experiments.run_cell((record, dataclasses.asdict(cell), prints))["error"]


def test_pools_that_the_data_cannot_fill_are_refused_or_left_out(files):
    path = pooled(files, "big.toml")
    path.write_text(path.read_text().replace("[20, 30]", "[20, 90]"))
    sweep = experiments.read(path)
    with pytest.raises(InputError, match="two pools of 90 take 230 true pairs, and 120 are known"):
        sweep.check()
    smaller, notes = sweep.on(sweep.data)
    assert smaller.pool == (20,) and notes == ["a pool of 90 is left out: 120 true pairs are known here"]
    smaller.check()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seeds = [", "cannot be read as TOML"),
        ('surprise = 1\nname = "a"', "there is no key 'surprise'"),
        ('random_seed = [1]\nname = "a"', "Did you mean random_seeds?"),
        ('name = "a"\nseeds = [5]\noverlap = [0.5]', "give pool too"),
        ('name = "a"\nseeds = [5]\npool = [0]', "pool is [0]"),
        (
            'name = "a"\nseeds = [5]\n[data]\nsample = "fashion"\n[[methods]]\nname = "ao"\ngrid = {anchors = 3}',
            "grid is {'anchors': 3}",
        ),
        (
            'name = "a"\nseeds = [5]\n[data]\nsample = "fashion"\n[[methods]]\nname = "ao"\nby = "votes"',
            "by is 'votes'",
        ),
        (
            'name = "a"\nseeds = [5]\n[data]\nsample = "fashion"\n[[methods]]\nname = "ao"\ngrid = {anchors = [0]}',
            "anchors is 0",
        ),
        (
            'name = "a"\nseeds = [5]\n[data]\nsample = "fashion"\n[[methods]]\nname = "ao"\ngrid = {anchors = [[1]]}',
            "grid is {'anchors': [[1]]}",
        ),
        (
            'name = "a"\nseeds = [5]\n[data]\nsample = "fashion"\n[[methods]]\nname = "ao"\ngrid = 3',
            "grid is 3",
        ),
        ('name = "a"\nseeds = [5]\n[data]\nsampel = "fashion"', "Did you mean sample?"),
        ('name = "a"\nseeds = [5]\n[data]\nsample = "fashion"\n[[methods]]\nnames = "ao"', "Did you mean name?"),
        ('name = "A b"', "name is 'A b'"),
        ('name = "a"\nseeds = []', "seeds is []"),
        ('name = "a"\nseeds = [1.5]', "seeds is [1.5]"),
        ('name = "a"\nseeds = [true]', "seeds is [True]"),
        ('name = "a"\nseeds = [5]\ncorruption = [2]', "corruption is [2]"),
        ('name = "a"\nseeds = [5]', "data is missing"),
        ('name = "a"\nseeds = [5]\n[data]\nsample = "fashion"\nx = "f"', "either sample, or x and y"),
        ('name = "a"\nseeds = [5]\n[data]\nsample = 3', "data.sample is 3"),
        ('name = "a"\nseeds = [5]\n[data]\nsample = "fashion"', "methods is missing"),
        ('name = "a"\nseeds = [5]\n[data]\nsample = "fashion"\n[[methods]]\nname = "no"', "no method 'no'"),
        (
            'name = "a"\nseeds = [5]\n[data]\nsample = "fashion"\n[[methods]]\nname = "ao"\nparams = {anchors = "x"}',
            "anchors is 'x', wanted int",
        ),
        (
            'name = "a"\nseeds = [5]\n[data]\nsample = "fashion"\n' + '[[methods]]\nname = "ao"\n' * 2,
            "same label",
        ),
        ('name = "a"\nseeds = [5]\nfolds = 1\n[data]\nsample = "f"\n[[methods]]\nname = "ao"', "folds is 1"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_a_sentence(tmp_path, text, words):
    path = tmp_path / "a.toml"
    path.write_text(text)
    with pytest.raises(InputError) as e:
        experiments.read(path)
    assert words in str(e.value) and str(path) in str(e.value)


def test_a_cell_that_cannot_be_keeps_its_reason_and_the_rest_is_done(files):
    path = write(files, "some.toml", seeds="[4, 20]", corruption="[0]", random_seeds="[0]")
    grid = '[[methods]]\nname = "relative"\nlabel = "some"\nparams = {choose = "random"}\ngrid = {count = [3, 15]}\n'
    path.write_text(path.read_text() + grid)
    kept = experiments.create(experiments.read(path))
    drained(kept)
    table = kept.table()
    bad = table[table["error"] != ""]
    assert len(table) == 8 and bad[["label", "seeds", "varied"]].to_numpy().tolist() == [["some", 4, 15]]
    assert "15 anchors are to be chosen of 4 seeds" in bad["error"].iloc[0]
    path.write_text(path.read_text().replace("[3, 15]", "[90]").replace('name = "procrustes"', 'name = "relative"'))
    path.write_text(
        path.read_text().replace('[[methods]]\nname = "relative"\n[[methods]]\nname = "relative"\nlabel = "RR"\n', "")
    )
    with pytest.raises(InputError, match="90 anchors are to be chosen of 4 seeds"):
        experiments.create(experiments.read(path))


def test_more_seeds_than_pairs_are_refused_before_anything_runs(files):
    with pytest.raises(InputError, match="seeds holds 500, and 120 true pairs are known"):
        experiments.create(experiments.read(write(files, "many.toml", seeds="[500]")))
    with pytest.raises(InputError, match="there is no such file; give a TOML file, or one of anchors, corruption"):
        experiments.read("nowhere")


def test_on_other_data_budgets_that_cannot_be_had_are_left_out_and_told(files):
    sweep = experiments.read("corruption")
    data = experiments.read(files / "tiny.toml").data
    here, notes = sweep.on(data)
    assert here.seeds == (100,) and notes == ["1,000 seeds are left out: 120 true pairs are known here"]


# ---------------------------------------------------------------- cells


def test_a_key_tells_what_determines_the_result():
    cell = Cell("ao", (("anchors", 60),), 10, 0.5, 1)
    assert cell.key == Cell("ao", (("anchors", 60),), 10, 0.5, 1).key
    others = [
        Cell("procrustes", (), 10, 0.5, 1),
        Cell("ao", (("anchors", 61),), 10, 0.5, 1),
        Cell("ao", (("anchors", 60),), 11, 0.5, 1),
        Cell("ao", (("anchors", 60),), 10, 0.25, 1),
        Cell("ao", (("anchors", 60),), 10, 0.5, 2),
    ]
    assert len({cell.key, *(o.key for o in others)}) == 6
    assert Cell("ao", (("anchors", method("ao").anchors),)).key == Cell("ao").key  # said or left out: the same run


def test_a_cell_is_the_alignment_of_the_pipeline(files):
    kept = experiments.create(experiments.read(files / "tiny.toml"))
    drained(kept)
    row = next(
        r
        for r in kept.wanted().values()
        if (r["method"], r["seeds"], r["corruption"], r["seed"]) == ("relative", 30, 0.5, 1)
    )
    pair = kept.sweep.data.open()
    known, wrong = seeds.corrupt(seeds.draw(pair.truth, 30, seed=1), 0.5, pair.y.labels, 120, seed=1)
    outcome = pipeline.align(pair, method("relative"), known, seed=1, folds=0, device="cpu")
    assert row["wrong_seeds"] == wrong.sum() == 15
    for way in ("x_to_y", "y_to_x"):
        assert row[f"mrr {way}"] == pytest.approx(outcome.metrics[way]["mrr"], abs=1e-6)
    assert row["verdict"] == outcome.verdict.level and row["mutual_rate"] == outcome.health["mutual_rate"]
    assert row["scored"] == outcome.metrics["x_to_y"]["n"]


def test_wrong_seeds_cost_what_they_must(files):
    """Procrustes on a noiseless rotation is exact with clean seeds; half of them in other classes spoil it."""
    kept = experiments.create(experiments.read(files / "tiny.toml"))
    drained(kept)
    means = experiments.bands(kept.table(), "r@1 x_to_y", "corruption").set_index(["label", "seeds", "corruption"])
    assert means.loc[("Procrustes", 30, 0.0), "mean"] == 1 and means.loc[("Procrustes", 30, 0.5), "mean"] < 0.9
    assert (means["n"] == 2).all() and (means["low"] <= means["mean"]).all() and (means["mean"] <= means["high"]).all()
    assert "stitching x_to_y" in experiments.columns(kept.table())


def test_results_do_not_depend_on_the_number_of_processes(files, home):
    tables = []
    for jobs in (1, 2):
        kept = experiments.create(experiments.read(files / "tiny.toml"), jobs=jobs)
        drained(kept)
        tables.append({k: {n: v for n, v in r.items() if n != "seconds"} for k, r in kept.wanted().items()})
        (kept.folder / "rows.jsonl").unlink()
    assert tables[0] == tables[1] and len(tables[0]) == 16


# ---------------------------------------------------------------- faults, stops, kills


def test_a_cell_that_fails_is_kept_with_its_reason_and_tried_again(files, monkeypatch):
    monkeypatch.setattr(seeds, "corrupt", lambda *a, **k: 1 / 0)
    kept = experiments.create(experiments.read(files / "tiny.toml"))
    drained(kept)
    assert kept.status == "done" and kept.record["message"] == "8 of 16 cells failed"
    table = kept.table()
    assert set(table[table["corruption"] == 0.5]["error"]) == {"ZeroDivisionError: division by zero"}
    assert set(table[table["corruption"] == 0]["error"]) == {""}
    monkeypatch.undo()
    monkeypatch.setenv("RELCORE_HOME", str(kept.folder.parent.parent))
    again = experiments.create(kept.sweep)
    assert drained(again)[0] == 8 and again.record["message"] == ""
    assert len(again.wanted()) == 16 and (again.table()["error"] == "").all()


def test_stopped_it_goes_on_where_it_was(files):
    kept = experiments.create(experiments.read(files / "tiny.toml"))
    steps = experiments.execute(kept)
    for _ in range(6):
        next(steps)
    steps.close()
    kept = Kept.load(kept.folder)
    assert (kept.status, kept.record["message"]) == ("cancelled", "stopped with 5 of 16 cells done")
    assert len(kept.table()) == 5
    assert drained(experiments.create(kept.sweep)) == list(range(5, 17))


def test_longer_lists_go_on_where_shorter_ended(files):
    drained(experiments.create(experiments.read(files / "tiny.toml")))
    longer = experiments.create(experiments.read(write(files, "longer.toml", random_seeds="[0, 1, 2]")))
    assert drained(longer) == list(range(16, 25))


def test_a_kill_costs_the_cell_under_way(files, home):
    """Killed between and within writes, the rows before it are read, and none is made twice."""
    kept = experiments.create(experiments.read(files / "tiny.toml"))
    code = (
        "import sys, os, signal; from relcore import experiments\n"
        f"kept = experiments.Kept.load({str(kept.folder)!r})\n"
        "for p in experiments.execute(kept):\n"
        "    if p.iteration == 3:\n"
        "        open(kept.folder / 'rows.jsonl', 'a').write('{\"key\": \"brok')\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    assert subprocess.run([sys.executable, "-c", code], env=env).returncode == -signal.SIGKILL
    kept = Kept.load(kept.folder)
    assert kept.status == "failed" and "is gone" in kept.record["message"] and len(kept.wanted()) == 3
    before = list(kept.rows().values())
    again = experiments.create(kept.sweep)
    assert drained(again) == list(range(3, 17))
    assert list(again.rows().values())[:3] == before
    assert len((again.folder / "rows.jsonl").read_text().splitlines()) == 16 + 1


SIXTY = dict(seeds="[8, 10, 12, 20, 30]", corruption="[0, 0.25, 0.5]", random_seeds="[0, 1]")


def figures_of(kept: Kept) -> dict:
    """Every row but the seconds it took."""
    return {key: {n: v for n, v in row.items() if n != "seconds"} for key, row in kept.wanted().items()}


def test_sixty_cells_killed_on_the_way_come_to_the_same_table(files, home, monkeypatch):
    """From the shell, in two processes, killed wherever they were."""
    path = write(files, "sixty.toml", **SIXTY)
    undisturbed = experiments.create(experiments.read(path))
    drained(undisturbed)
    wanted = figures_of(undisturbed)
    assert len(wanted) == 60 and not any(row.get("error") for row in wanted.values())
    monkeypatch.setenv("RELCORE_HOME", str(home.with_name("killed")))
    folder = experiments.folder_of(undisturbed.sweep, undisturbed.sweep.data.open())
    rows, line = folder / "rows.jsonl", [sys.executable, "-m", "relcore", "sweep", str(path), "--jobs", "2"]
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(line, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 120
        while not rows.exists() or len(rows.read_bytes().splitlines()) < 25:
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.002)
        process.kill()
    killed = Kept.load(folder)
    assert killed.status == "failed" and 25 <= len(killed.wanted()) < 60
    before = rows.read_bytes()
    again = experiments.create(killed.sweep)
    drained(again)
    assert figures_of(again) == wanted and again.status == "done"
    assert rows.read_bytes().startswith(before)  # what was finished was not made again
    keys = [json.loads(s)["key"] for s in rows.read_text().splitlines() if s.endswith("}")]
    assert len(keys) == len(set(keys)) == 60
    assert again.table().drop(columns="seconds").equals(undisturbed.table().drop(columns="seconds"))


def test_a_sweep_whose_dask_worker_is_killed_comes_to_the_same_table(files, monkeypatch):
    distributed = pytest.importorskip("distributed")
    path = write(files, "dask.toml")
    here = experiments.create(experiments.read(path))
    drained(here)
    wanted = figures_of(here)
    (here.folder / "rows.jsonl").unlink()
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        there = experiments.create(experiments.read(path), scheduler=cluster.scheduler_address)
        for p in experiments.execute(there):
            if p.iteration == 3:
                os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)
    assert figures_of(there) == wanted and there.status == "done" and there.record["message"] == ""


def test_a_stop_does_not_wait_for_the_cell(files):
    stopper = parallel.Stopper()
    kept = experiments.create(experiments.read(files / "tiny.toml"))
    signal.signal(signal.SIGUSR1, lambda *_: stopper.ask())
    steps = experiments.execute(kept, stopper)
    next(steps)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(experiments, "run_cell", lambda task: (os.kill(os.getpid(), signal.SIGUSR1), time.sleep(600)))
            assert list(steps) == []
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    assert Kept.load(kept.folder).status == "cancelled"


def test_two_processes_do_not_write_the_same_rows(files):
    kept = experiments.create(experiments.read(files / "tiny.toml"))
    steps = experiments.execute(kept)
    next(steps)
    with pytest.raises(InputError, match="under way"):
        experiments.create(kept.sweep)
    with pytest.raises(InputError, match="another process is working on this sweep"):
        list(experiments.execute(Kept.load(kept.folder)))
    assert Kept.load(kept.folder).status == "running"  # who was refused changed nothing
    steps.close()
    assert Kept.load(kept.folder).status == "cancelled"


def test_a_full_disk_is_told_and_the_rows_before_it_stay(files, monkeypatch):
    kept = experiments.create(experiments.read(files / "tiny.toml"))
    steps = experiments.execute(kept)
    for _ in range(4):
        next(steps)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(experiments, "_append", full)
        patch.setattr(store, "write_atomic", full)
        with pytest.raises(OSError, match="No space left"):
            list(steps)
        kept.record |= {"process": {"pid": 2**22 - 3, "started": "1"}}
        (kept.folder / "sweep.json").write_text(json.dumps(kept.record))
        assert Kept.load(kept.folder).status == "failed" and len(kept.wanted()) == 3
    assert drained(experiments.create(kept.sweep)) == list(range(3, 17))


def test_other_data_at_the_same_place_are_noticed(files):
    kept = experiments.create(experiments.read(files / "tiny.toml"))
    kept.update(x="0" * 64)
    drained(kept)
    assert all("not those the sweep was started with" in r["error"] for r in kept.wanted().values())


def test_grids_of_numbers_and_of_words_stand_in_one_table(files):
    path = write(files, "mixed.toml", seeds="[20]", corruption="[0]", random_seeds="[0]")
    grids = '[[methods]]\nname = "relative"\nlabel = "how"\nparams = {count = 5}\ngrid = {choose = ["random", "all"]}\n'
    grids += '[[methods]]\nname = "relative"\nlabel = "many"\nparams = {choose = "random"}\ngrid = {count = [8, 3]}\n'
    path.write_text(path.read_text() + grids)
    kept = experiments.create(experiments.read(path))
    drained(kept)
    bands = experiments.bands(kept.table(), "mrr x_to_y", "varied")
    assert [v for v in bands["varied"] if v == v] == [3, 8, "random", "all"] and len(bands) == 6


def test_files_that_changed_are_read_anew(files, tmp_path):
    for name in ("x.npz", "y.npz", "tiny.toml"):
        shutil.copy(files / name, tmp_path / name)
    before = experiments.read(tmp_path / "tiny.toml").check()
    loaded = dict(np.load(tmp_path / "x.npz"))
    np.savez(tmp_path / "x.npz", **(loaded | {"vectors": loaded["vectors"][:, ::-1]}))
    os.utime(tmp_path / "x.npz", (1, 1))  # whatever the clock's step
    assert experiments.read(tmp_path / "tiny.toml").check().x.fingerprint != before.x.fingerprint


def test_rank_correlation_is_that_of_scipy():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 5, 40).astype(float), rng.standard_normal(40)
    assert experiments.spearman(a, a + b) == pytest.approx(spearmanr(a, a + b).statistic, abs=1e-12)
    assert experiments.spearman([1, 1, 1], [1, 2, 3]) is None and experiments.spearman([1, 2], [1, 2]) is None


# ---------------------------------------------------------------- from the shell


def relcore(*arguments: str) -> subprocess.CompletedProcess:
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-m", "relcore", *arguments], env=env, capture_output=True, text=True)


def test_a_sweep_from_the_shell_goes_on_and_tells(files, capsys):
    from relcore import cli

    assert cli.main(["sweep", str(files / "tiny.toml"), "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["status"], first["cells"], first["done"], first["failed"], first["kept_before"]) == (
        "done",
        16,
        16,
        0,
        0,
    )
    assert {"label", "seeds", "corruption", "seed", "mrr x_to_y", "stitching x_to_y", "seconds"} <= first["rows"][
        0
    ].keys()
    assert cli.main(["sweep", str(files / "tiny.toml")]) == 0
    out, err = capsys.readouterr()
    assert "16 done before" in err and "16 of 16 cells done, 0 failed" in out
    assert [line.split()[:4] for line in out.splitlines()[1:3]] == [
        ["Procrustes", "10", "0%", "2"],
        ["Procrustes", "10", "50%", "2"],
    ]


def test_a_sweep_with_pools_and_a_grid_is_a_table_in_the_shell(files, capsys):
    from relcore import cli

    path = pooled(files, "shell.toml")
    grid = '[[methods]]\nname = "relative"\nlabel = "random"\nparams = {choose = "random"}\ngrid = {count = [3, 8]}\n'
    path.write_text(path.read_text() + grid)
    assert cli.main(["sweep", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:6] == ["seeds", "wrong", "pool", "overlap", "count", "n"]
    table = experiments.find(experiments.read(path)).table()
    assert len(lines) == 1 + 2 * 2 * 4 + 1  # heads, pools by overlaps by settings, the last word
    (line,) = [x for x in lines if x.split()[:6] == ["random", "10", "0%", "30", "50%", "8"]]
    of = table[
        (table["label"] == "random") & (table["pool"] == 30) & (table["overlap"] == 0.5) & (table["varied"] == 8)
    ]
    assert f"{of['mrr x_to_y'].mean():.4g}" in line


def test_bad_input_of_a_sweep_is_one_line(files):
    done = relcore("sweep", str(files / "nothing.toml"))
    assert done.returncode == 2 and done.stdout == "" and len(done.stderr.splitlines()) == 1
