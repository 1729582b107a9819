"""The command line: exit codes, what goes where, JSON keys. Truth is a planted rotation or brute force."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from relcore import methods, runs
from relcore.cli import Heartbeat, main
from relcore.errors import RunFailed
from relcore.formats import registry

ROOT = Path(__file__).resolve().parent.parent
ENV = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
ROWS, DIM = 150, 6
SCORES = {"r@1", "r@5", "r@10", "mrr", "jaccard", "cosine"}
ALIGN_KEYS = {
    *("method", "params", "seed", "status", "converged", "seconds", "peak_memory_mb", "steps", "notes"),
    *("health", "metrics", "run"),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """x.npy and y.npy = x times a rotation, in another row order; names say who is who; pairs.csv and seeds.csv."""
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, DIM)).astype(np.float32)
    rotation, _ = np.linalg.qr(rng.standard_normal((DIM, DIM)))
    order = rng.permutation(ROWS)
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", (x @ rotation).astype(np.float32)[order])
    (folder / "x.txt").write_text("".join(f"word{i}\n" for i in range(ROWS)))
    (folder / "y.txt").write_text("".join(f"word{i}\n" for i in order))
    (folder / "pairs.csv").write_text("".join(f"{i},{p}\n" for p, i in enumerate(order)))
    (folder / "seeds.csv").write_text("".join(f"word{i},word{i}\n" for i in range(20)) + "word3,nobody\n")
    dirty = x.copy()
    dirty[7, 2], dirty[9] = np.nan, 0
    np.save(folder / "dirty.npy", dirty)
    return folder


@pytest.fixture
def align(files, capsys):
    """Run align on the planted pair with further arguments; returns (exit code, stdout, stderr)."""

    def run(*arguments: str, method: str = "procrustes") -> tuple[int, str, str]:
        names = ["--x-names", str(files / "x.txt"), "--y-names", str(files / "y.txt")]
        spaces = ["--x", str(files / "x.npy"), "--y", str(files / "y.npy"), *names]
        code = main(["align", *spaces, "--method", method, *arguments])
        return code, *capsys.readouterr()

    return run


def relcore(*arguments: str, **options) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "relcore", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=ENV, timeout=120, **options)


# ---------------------------------------------------------------------- methods, inspect


def test_methods_are_listed_without_loading_torch():
    code = (
        "import sys; from relcore.cli import main; code = main(['methods']);"
        "assert 'torch' not in sys.modules; raise SystemExit(code)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ENV)
    assert out.returncode == 0 and not out.stderr
    assert [line.split()[0] for line in out.stdout.splitlines()] == list(methods.REGISTRY)


@pytest.mark.parametrize("name", methods.REGISTRY)
def test_a_method_tells_every_parameter(name, capsys):
    assert main(["methods", name, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    expected = {f.name: f.default for f in dataclasses.fields(methods.method_class(name))}
    assert {p["name"]: p["default"] for p in told["params"]} == expected
    assert all(p["help"] and p["type"] for p in told["params"])
    assert main(["methods", name]) == 0
    text = capsys.readouterr().out
    assert all(key in text for key in expected)


def test_inspect_tells_rows_set_aside(files, capsys):
    assert main(["inspect", str(files / "dirty.npy"), "--json"]) == 0
    seen = json.loads(capsys.readouterr().out)
    assert seen["set_aside"] == [{"row": 7, "reason": "NaN or infinite"}, {"row": 9, "reason": "zero norm"}]
    assert (seen["format"], seen["rows_read"], seen["rows_used"]) == ("npy", ROWS, ROWS - 2)
    assert (seen["dim"], seen["dtype"], seen["warnings"]) == (DIM, "float32", [])
    assert main(["inspect", str(files / "dirty.npy")]) == 0
    assert "row 7: NaN or infinite" in capsys.readouterr().out


TABLE = "word,class,a,b,year\nred,1,1,2,1990\nblue,2,3,nan,1991\nRed,1,5,6,1992\n"


def test_inspect_takes_the_options_of_a_load(tmp_path, capsys):
    (tmp_path / "t.csv").write_text(TABLE)
    (tmp_path / "l.txt").write_text("p\nq\n")

    def inspect(*options: str) -> dict:
        assert main(["inspect", str(tmp_path / "t.csv"), "--json", *options]) == 0
        return json.loads(capsys.readouterr().out)

    seen = inspect()
    assert (seen["dim"], seen["rows_used"], seen["refused"]) == (3, 2, [])
    assert {c["name"]: c["role"] for c in seen["columns"]} == {
        **{"word": "name", "class": "label"},
        **{"a": "vector", "b": "vector", "year": "vector"},
    }
    assert inspect("--column", "year=meta")["dim"] == 2
    assert inspect("--column", "b=ignore", "--column", "year=ignore")["rows_used"] == 3
    assert inspect("--missing", "column mean")["rows_used"] == 3
    folded = inspect("--column", "b=meta", "--fold-case")
    assert folded["set_aside"] == [{"row": 2, "reason": "duplicate name (of row 0, 'Red')"}]
    refused = inspect("--labels", str(tmp_path / "l.txt"))["refused"]
    assert refused == [{"what": "labels", "source": "l.txt", "found": 2, "wanted": 3}]
    assert inspect("--labels", str(tmp_path / "l.txt"), "--match", "first")["refused"] == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--column", "year"], "COLUMN=ROLE"),
        (["--column", "year=vectors"], "no role"),
        (["--column", "yeer=meta"], "yeer"),
        (["--missing", "drop"], "column mean"),
        (["--missing", "stop"], "row 1"),
    ],
)
def test_wrong_options_of_a_load_are_told_in_a_line(tmp_path, capsys, options, words):
    (tmp_path / "t.csv").write_text(TABLE)
    assert main(["inspect", str(tmp_path / "t.csv"), *options]) == 2
    told = capsys.readouterr().err.strip()
    assert words in told and "\n" not in told


def test_a_load_that_takes_much_memory_is_announced(files, capsys, monkeypatch):
    x = str(files / "x.npy")
    size = ROWS * DIM * 4
    monkeypatch.setattr("relcore.memory.available", lambda: size * 3)
    assert main(["inspect", x]) == 0
    assert "of 11 kB free memory" in capsys.readouterr().err
    monkeypatch.setattr("relcore.memory.available", lambda: size * 100)
    assert main(["inspect", x]) == 0
    assert not capsys.readouterr().err
    monkeypatch.setattr("relcore.memory.available", lambda: size // 2)
    assert main(["inspect", x]) == 2
    assert "takes about 4 kB, but 2 kB of memory are free" in capsys.readouterr().err


# ---------------------------------------------------------------------- convert

ENDINGS = sorted({e for m in registry.modules() if hasattr(m, "write") for e in m.ENDINGS})


@pytest.mark.parametrize("ending", ENDINGS)
def test_convert_there_and_back_keeps_every_bit(ending, files, tmp_path, capsys):
    x, there, back = str(files / "x.npy"), str(tmp_path / f"there{ending}"), tmp_path / "back.npy"
    assert main(["convert", x, there, "--names", str(files / "x.txt")]) == 0
    assert main(["convert", there, str(back)]) == 0
    np.testing.assert_array_equal(np.load(back), np.load(x))
    capsys.readouterr()
    assert main(["convert", there, str(back), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rows_used"], told["dim"], told["out"]) == (ROWS, DIM, str(back))
    assert any("names" in line for line in told["not_kept"]) or ending == ".npy"


def test_convert_says_what_it_leaves_out(files, tmp_path, capsys):
    assert main(["convert", str(files / "dirty.npy"), str(tmp_path / "out.npy")]) == 0
    told = capsys.readouterr()
    assert f"{ROWS:,} rows read, {ROWS - 2:,} used" in told.out and "row 7: NaN or infinite" in told.err
    assert np.load(tmp_path / "out.npy").shape == (ROWS - 2, DIM)
    np.save(tmp_path / "double.npy", np.random.default_rng(0).standard_normal((5, 3)))
    assert main(["convert", str(tmp_path / "double.npy"), str(tmp_path / "out.npy")]) == 0
    assert "float64 are written as float32" in capsys.readouterr().err


@pytest.mark.parametrize(("out", "words"), [("x.npy", "file to be read"), ("a.xyz", ".xyz"), ("no/a.npy", "folder")])
def test_convert_refuses_what_it_cannot_write(files, capsys, out, words):
    before = (files / "x.npy").read_bytes()
    assert main(["convert", str(files / "x.npy"), str(files / out)]) == 2
    told = capsys.readouterr().err.strip()
    assert words in told and "\n" not in told
    assert (files / "x.npy").read_bytes() == before and not list(files.glob(".relcore-*"))


# ---------------------------------------------------------------------- align


@pytest.mark.parametrize("how", [["--pair-by", "name"], ["--pairs", "pairs.csv"]], ids=["names", "file"])
def test_a_planted_rotation_is_found(how, align, files):
    how = [str(files / a) if a.endswith(".csv") else a for a in how]
    code, out, err = align(*how, "--seeds", "20", "--json")
    record = json.loads(out)  # nothing else on stdout
    assert code == 0
    assert ALIGN_KEYS <= record.keys()
    for way in ("x_to_y", "y_to_x"):
        scores = record["metrics"][way]
        assert scores.keys() >= SCORES
        assert (scores["r@1"], scores["mrr"], scores["n"]) == (1.0, 1.0, ROWS - 20)
        assert scores["cosine"] == pytest.approx(1, abs=1e-4)
    assert record["metrics"]["hubness"].keys() == {"x_to_y", "y_to_x"}
    assert record["status"] == "done" and record["seeds"] == 20 and record["run"] is None
    assert record["seeds_origin"] == "20 drawn at random (seed 0)"
    assert record["params"] == methods.method("procrustes").params()
    assert f"{ROWS} rows read" in err


def test_rows_pair_by_number_only_when_asked(align):
    """The row order of y is shuffled: by row the truth is wrong, and a rotation from true seeds scores at chance."""
    _, out, _ = align("--pair-by", "row", "--seeds", "20", "--json")
    assert json.loads(out)["metrics"]["x_to_y"]["r@1"] < 0.1


def test_the_draw_of_seeds_and_the_run_follow_the_seed(align):
    def shown(seed: str) -> dict:
        return json.loads(align("--pair-by", "name", "--seeds", "7", "--seed", seed, "--json")[1])["metrics"]

    assert shown("1") == shown("1") != shown("2")


def test_seeds_from_a_file_list_the_lines_that_gave_none(align, files):
    code, out, err = align("--seeds", str(files / "seeds.csv"), "--json")
    record = json.loads(out)
    assert code == 0 and record["seeds"] == 20
    assert record["seeds_origin"] == f"20 from {files / 'seeds.csv'}"
    assert "metrics" not in record  # nothing is known to be true
    assert "seeds: line 21" in err and "nobody" in err
    assert any("1 lines" in note and "line 21" in note for note in record["notes"])


def test_without_json_the_numbers_are_a_table(align):
    code, out, _ = align("--pair-by", "name", "--seeds", "20")
    assert code == 0
    row = next(line.split() for line in out.splitlines() if line.startswith("this run"))
    assert row[:6] == ["this", "run", "x", "to", "y", "1.000"]


def test_settings_and_preprocessing_reach_the_run(align, tmp_path):
    code, _, _ = align("--seeds", "9", "--pair-by", "name", "--preprocess", "none", "--out", str(tmp_path / "r"))
    assert code == 0
    assert runs.Run.load(tmp_path / "r").record["preprocess"] == []
    cls = methods.method_class("ao")
    code, _, err = align("--seeds", "9", "--pair-by", "name", "--set", "anchors=many", method="ao")
    assert code == 2 and "anchors" in err and any(f.name == "anchors" for f in dataclasses.fields(cls))


CHOICES = ("random", "farthest", "medoids", "first", "stratified")


@pytest.mark.parametrize("how", CHOICES)
def test_seeds_are_chosen_as_asked_and_the_run_tells_how(how, align, files, tmp_path):
    """The kept seeds against the properties of each choice, by name: y is in another order."""
    np.savetxt(tmp_path / "labels.txt", np.repeat(["a", "b", "c"], (120, 20, 10)), fmt="%s")
    options = ["--x-labels", str(tmp_path / "labels.txt"), "--choose", how, "--seed", "3", "--out", str(tmp_path / "r")]
    code, out, _ = align("--pair-by", "name", "--seeds", "9", "--folds", "0", *options, "--json")
    assert code == 0
    run = runs.Run.load(tmp_path / "r")
    pairs = run.pairs[0]
    names = [(files / f"{side}.txt").read_text().split() for side in "xy"]
    assert len(set(pairs.x)) == 9 and [names[0][i] for i in pairs.x] == [names[1][j] for j in pairs.y]
    told = json.loads(out)["seeds_origin"]
    assert told == run.record["seeds_origin"] and "9" in told and ("seed 3" in told) == (how != "first")
    x = np.load(files / "x.npy")
    x = x - x.mean(0)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    if how == "random":  # as it was before there was a choice
        np.testing.assert_array_equal(pairs.x, run.pairs[1].x[np.random.default_rng(3).permutation(ROWS)[:9]])
    if how == "first":
        assert pairs.x.tolist() == list(range(9))
    if how == "stratified":
        assert np.bincount(np.digitize(pairs.x, (120, 140))).tolist() == [3, 3, 3]
    if how == "farthest":
        near = x @ x[pairs.x[:-1]].T
        assert near.max(1).argmin() == pairs.x[-1]
    if how == "medoids":  # of nine clusters that hold every row, each has one
        from sklearn.cluster import KMeans

        spread = KMeans(9, n_init=3, random_state=0).fit(x).inertia_
        to_medoids = ((x[:, None] - x[pairs.x]) ** 2).sum(2).min(1).sum()
        drawn = [np.random.default_rng(i).permutation(ROWS)[:9] for i in range(20)]
        to_drawn = [((x[:, None] - x[rows]) ** 2).sum(2).min(1).sum() for rows in drawn]
        assert spread < to_medoids < min(to_drawn)


def test_seeds_that_cannot_be_chosen_so(align, files):
    code, _, err = align("--pair-by", "name", "--seeds", "9", "--choose", "stratified")
    assert code == 2 and "labels of x, and there are none" in err and len(err.splitlines()) == 1
    code, _, err = align("--seeds", str(files / "seeds.csv"), "--choose", "farthest")
    assert code == 2 and "say how many with --seeds N" in err
    code, _, err = align("--pair-by", "name", "--seeds", "9", "--choose", "kmeans")
    assert code == 2 and "choose from" in err and "stratified" in err


def test_the_words_of_the_choice_are_those_of_the_seeds():
    from relcore import cli, seeds

    assert cli.CHOOSE == tuple(seeds.WAYS) == CHOICES


# ---------------------------------------------------------------------- bad input and usage: exit 2, one line

BAD = {
    "no command": [],
    "unknown command": ["allign"],
    "unknown option": ["align", "--fast"],
    "missing y": ["align", "--x", "x.npy", "--method", "relative"],
    "no such file": ["align", "--x", "nosuch.npy", "--y", "y.npy", "--method", "relative"],
    "a folder": ["inspect", "."],
    "no such method": ["methods", "magic"],
    "no such method to run": ["align", "--x", "x.npy", "--y", "y.npy", "--method", "magic"],
    "no such parameter": ["align", "--x", "x.npy", "--y", "y.npy", "--method", "relative", "--set", "magic=1"],
    "no value": ["align", "--x", "x.npy", "--y", "y.npy", "--method", "relative", "--set", "magic"],
    "no such step": ["align", "--x", "x.npy", "--y", "y.npy", "--method", "relative", "--preprocess", "iron"],
    "no truth to draw from": ["align", "--x", "x.npy", "--y", "y.npy", "--method", "relative", "--seeds", "15"],
    "too few true pairs": [
        *("align", "--x", "x.npy", "--y", "y.npy", "--method", "relative", "--pair-by", "row", "--seeds", "999")
    ],
    "no seeds": ["align", "--x", "x.npy", "--y", "y.npy", "--method", "relative"],
    "no such seed file": ["align", "--x", "x.npy", "--y", "y.npy", "--method", "relative", "--seeds", "none.csv"],
    "useless seed file": ["align", "--x", "x.npy", "--y", "y.npy", "--method", "relative", "--seeds", "x.txt"],
    "too few names": ["align", "--x", "x.npy", "--y", "y.npy", "--method", "relative", "--x-names", "seeds.csv"],
    "two truths": [
        *("align", "--x", "x.npy", "--y", "y.npy", "--method", "relative"),
        *("--pair-by", "row", "--pairs", "pairs.csv"),
    ],
    "no such device": ["align", "--x", "x.npy", "--y", "y.npy", "--method", "relative", "--device", "abacus"],
    "out is taken": [
        *("align", "--x", "x.npy", "--y", "y.npy", "--method", "relative"),
        *("--pair-by", "row", "--seeds", "15", "--out", "."),
    ],
    "out below a file": [
        *("align", "--x", "x.npy", "--y", "y.npy", "--method", "relative"),
        *("--pair-by", "row", "--seeds", "15", "--out", "x.npy/run"),
    ],
    "no run": ["evaluate", "."],
    "no rank": ["evaluate", ".", "--k", "0"],
}


@pytest.mark.parametrize("arguments", BAD.values(), ids=BAD)
def test_bad_input_is_one_line_and_exit_2(arguments, files, monkeypatch, capsys):
    monkeypatch.chdir(files)
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert not out
    assert len(err.splitlines()) == 1 and err.startswith("relcore: ") and len(err) > 25


def test_a_file_that_may_not_be_read(files, monkeypatch, capsys):
    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", str(files / "x.npy"))

    monkeypatch.setattr("relcore.formats.load", refuse)
    assert main(["align", "--x", str(files / "x.npy"), "--y", str(files / "y.npy"), "--method", "relative"]) == 2
    assert capsys.readouterr().err == f"relcore: {files / 'x.npy'}: Permission denied\n"


def test_a_refused_pickle_shows_its_recipe_in_one_line(tmp_path, capsys):
    np.save(tmp_path / "p.npy", np.array([{}, {}], dtype=object))
    assert main(["inspect", str(tmp_path / "p.npy")]) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1 and "import numpy as np; np.save(" in err


def test_the_front_door_exits_with_the_code():
    out = relcore("align", "--x", "nosuch.npy", "--y", "nosuch.npy", "--method", "ao")
    assert (out.returncode, out.stdout, len(out.stderr.splitlines())) == (2, "", 1)
    assert "nosuch.npy" in out.stderr


# ---------------------------------------------------------------------- runs that fail or are stopped: exit 1


def test_restarts_in_two_processes_give_the_same_run(align):
    options = ("--pair-by", "name", "--set", "restarts=96", "--set", "agree=0", "--folds", "0", "--json")
    one, two = (json.loads(align(*options, *jobs, method="hga")[1]) for jobs in ((), ("--jobs", "2")))
    for key in ("metrics", "health", "steps", "chosen", "verdict"):
        assert one[key] == two[key]
    assert one["health"]["confidence"]["restarts"] >= 3 * 4  # finalists of three chunks


def test_processes_for_a_method_that_uses_one_are_refused(align):
    code, out, err = align("--jobs", "2", "--folds", "0", "--pair-by", "name", "--seeds", "10")
    assert code == 2 and "works in one process; several are for hga" in err and len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "error",
    [RunFailed("loss became nan at step 4", 3), MemoryError(), OSError(errno.ENOSPC, "No space left on device")],
)
def test_a_failed_run_exits_1_and_says_why(error, align, monkeypatch):
    def steps(self):
        raise error
        yield

    monkeypatch.setattr("relcore.pipeline.Fit.steps", steps)
    code, out, err = align("--pair-by", "name", "--seeds", "20", "--json")
    record = json.loads(out)
    assert code == 1 and record["status"] == "failed"
    reason = "MemoryError" if isinstance(error, MemoryError) else str(error).rpartition("] ")[2]
    assert reason in record["message"] and reason in err.splitlines()[-1]


def test_a_reader_who_leaves_is_no_traceback():
    process = subprocess.Popen(
        [sys.executable, "-m", "relcore", "methods"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENV
    )
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 1


def test_ctrl_c_keeps_what_there_is(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1500, 16)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", x[:, ::-1] + 0.1 * rng.standard_normal(x.shape))
    out = tmp_path / "run"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "relcore", "align", "--x", "x.npy", "--y", "y.npy", "--pair-by", "row"),
            *("--seeds", "15", "--method", "ao", "--out", str(out), "--json"),
            *("--set", "mode=paper", "--set", "adam_steps=100000"),
        ],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENV,
    )
    try:
        deadline = time.monotonic() + 60
        while not (out / "frames" / "000.npy").exists():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1 and "Traceback" not in stderr
    record = json.loads(stdout)
    assert record["status"] == "cancelled" and record["metrics"].keys() >= {"x_to_y", "y_to_x"}
    assert record["converged"] is False
    assert runs.Run.load(out).usable


def test_what_takes_long_says_what_it_is_doing(monkeypatch, capsys):
    monkeypatch.setattr("relcore.cli.HEARTBEAT", 0.05)
    with Heartbeat() as beat:
        beat.says("reading x.npy")
        deadline = time.monotonic() + 30
        while "reading x.npy (" not in (err := capsys.readouterr().err):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert err.endswith(" s)\n")


def test_what_is_quick_says_nothing(monkeypatch, capsys):
    monkeypatch.setattr("relcore.cli.HEARTBEAT", 60.0)
    with Heartbeat() as beat:
        beat.says("reading x.npy")
    assert capsys.readouterr().err == ""


# ---------------------------------------------------------------------- evaluate


def test_evaluate_scores_as_brute_force_does(align, tmp_path, capsys):
    out = tmp_path / "run"
    assert align("--pair-by", "name", "--seeds", "4", "--out", str(out))[0] == 0  # too few for a perfect score
    assert main(["evaluate", str(out), "--k", "2", "7", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    run = runs.Run.load(out)
    x, y = (run.alignment_arrays()[side].astype(np.float64) for side in "xy")
    x, y = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (x, y))
    seeds, truth = run.pairs
    rows = truth.without(seeds)
    assert record["pairs"] == len(rows) == ROWS - 4
    similarity = x @ y.T
    for way, s, a, b in (("x_to_y", similarity, rows.x, rows.y), ("y_to_x", similarity.T, rows.y, rows.x)):
        rank = 1 + (s[a] > s[a, b][:, None]).sum(1)
        assert record["metrics"][way]["r@2"] == pytest.approx((rank <= 2).mean())
        assert record["metrics"][way]["r@7"] == pytest.approx((rank <= 7).mean())
        assert record["metrics"][way]["mrr"] == pytest.approx(np.where(rank <= 10, 1 / rank, 0).mean())
        assert 0 < record["metrics"][way]["r@2"] < 1
    assert {"hubness", "x_to_y", "y_to_x"} <= record["metrics"].keys()
    rules = record["metrics"]["rules"]
    assert rules.keys() == {"nearest", "csls", "isf"}  # this method finds no coupling
    for way in ("x_to_y", "y_to_x"):
        for name in ("r@2", "r@7", "mrr"):
            assert rules["nearest"][way][name] == pytest.approx(record["metrics"][way][name])
        nearest = np.argsort(-(similarity if way == "x_to_y" else similarity.T), axis=1)[:, :10]
        n_10 = np.bincount(nearest.ravel(), minlength=ROWS)
        assert rules["nearest"][way]["hubness"]["largest"] == n_10.max()
    assert record["spectrum"]["gamma"][0] == 0.0 and record["spectrum"]["x"]["data"]["participation_ratio"] > 1
    assert main(["evaluate", str(out)]) == 0
    said = capsys.readouterr().out
    assert "this run" in said and "inverted softmax" in said and f"{ROWS} queries, {ROWS} targets, k = 10" in said


def test_evaluate_without_truth_says_so(align, files, tmp_path, capsys):
    out = tmp_path / "run"
    assert align("--seeds", str(files / "seeds.csv"), "--out", str(out))[0] == 0
    assert main(["evaluate", str(out), "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out)["metrics"]
    assert metrics.keys() == {"hubness", "rules"} and "mrr" not in metrics["rules"]["nearest"]["x_to_y"]
    assert main(["evaluate", str(out)]) == 0
    assert "no truth is known" in capsys.readouterr().out


def test_hubness_of_few_rows_is_said_to_say_nothing(files, tmp_path, capsys):
    for side, rows in (("x", 9), ("y", 7)):
        np.save(tmp_path / f"{side}.npy", np.load(files / "x.npy")[:rows])
    out = str(tmp_path / "run")
    spaces = ["--x", str(tmp_path / "x.npy"), "--y", str(tmp_path / "y.npy"), "--pair-by", "row", "--seeds", "3"]
    for command in (["align", *spaces, "--method", "relative", "--out", out], ["evaluate", out]):
        assert main(command) == 0
        said = capsys.readouterr().out
        assert "hubness x to y (skewness of N_7): 0.00" in said and "hubness y to x (skewness of N_9): 0.00" in said
        assert "note       x to y: 9 queries, 7 targets: skewness is not informative below 20" in said
        assert "note       x to y: each list holds all 7 targets, so all have the same N_k" in said


# ---------------------------------------------------------------------- real data, from outside


def test_a_sample_pair_from_the_shell():
    sample = ROOT / "sample_data" / "emoji"
    out = relcore(
        *("align", "--x", f"{sample / 'x.npz'}:vectors", "--y", f"{sample / 'y.npz'}:vectors", "--pair-by", "row"),
        *("--seeds", "300", "--method", "procrustes", "--json"),
    )
    record = json.loads(out.stdout)
    assert out.returncode == 0 and ALIGN_KEYS <= record.keys()
    assert record["health"] and record["metrics"]["x_to_y"]["mrr"] > 10 / 1911  # far above a guess
    assert "Traceback" not in out.stderr


def test_names_from_a_file_cannot_write_over_the_screen(tmp_path, capsys):
    heading = "year\x1b[2J" + "x" * 5000
    (tmp_path / "t.csv").write_text(f'a,b,"{heading}"\n1,2,cat\n3,4,dog\n')
    assert main(["inspect", str(tmp_path / "t.csv")]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\\x1b" in out and max(map(len, out.splitlines())) < 2100
    assert main(["inspect", str(tmp_path / "no\x1b[2J.csv")]) == 2
    assert "\x1b" not in capsys.readouterr().err
