"""``relcore stitch``: of a run, of files, with labels and heads from files; what it prints and what it refuses."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from relcore import stitching
from relcore.cli import main
from tests.test_stitching import LABELS, N, turned


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """Three spaces that are rotations of one, their labels, and a run by Procrustes over the first two."""
    folder = tmp_path_factory.mktemp("stitch")
    for i, dim in enumerate((8, 8, 10)):
        np.save(folder / f"s{i}.npy", turned(dim, i).astype(np.float32))
    (folder / "labels.txt").write_text("\n".join(f"k{v}" for v in LABELS) + "\n")
    files = ["--x", str(folder / "s0.npy"), "--y", str(folder / "s1.npy"), "--pair-by", "row", "--seeds", "20"]
    assert main(["align", *files, "--method", "procrustes", "--out", str(folder / "run")]) == 0
    return folder


def told(capsys, *arguments) -> dict:
    capsys.readouterr()
    assert main(["stitch", "--json", *map(str, arguments)]) == 0
    return json.loads(capsys.readouterr().out)


def by(record: dict, name: str, decoder: int = 0, encoder: int = 1) -> dict:
    (found,) = [
        r for r in record["results"] if (r["representation"], r["decoder"], r["encoder"]) == (name, decoder, encoder)
    ]
    return found


def test_a_run_with_labels_from_a_file(out, capsys):
    record = told(capsys, out / "run", "--labels", out / "labels.txt")
    assert record["classes"] == ["k0", "k1", "k2", "k3"] and record["items"] == N
    run, own = by(record, "run"), by(record, "absolute", 1, 1)
    assert run["title"] == "Procrustes" and run["accuracy"] > 0.9
    assert run["accuracy"] == pytest.approx(own["accuracy"], abs=0.02)
    assert by(record, "absolute")["accuracy"] < 0.6  # rotated, and of equal dimension
    assert {r["representation"] for r in record["results"]} == {*stitching.REFERENCES, "run"}
    assert main(["stitch", str(out / "run"), "--labels", str(out / "labels.txt")]) == 0
    text = capsys.readouterr().out
    assert "learned on s0.npy, read on s1.npy" in text and "all pairs, least squares" in text


def test_files_of_three_spaces_and_one_held_out(out, capsys):
    files = [a for i in range(3) for a in ("--space", out / f"s{i}.npy")]
    more = ["--way", "multi+wip", "--anchors", "8", "--hold-out", "--draws", "2", "--pair-by", "row"]
    record = told(capsys, *files, "--labels", out / "labels.txt", *more)
    ways = [r for r in record["results"] if r["representation"] == "multi+wip"]
    assert len(ways) == 12 and all(r["accuracy"] > 0.85 for r in ways)
    assert record["settings"]["hold_out"] and record["run"] is None


def test_without_labels_partners_can_be_looked_for(out, capsys):
    files = ["--space", out / "s0.npy", "--space", out / "s2.npy", "--pair-by", "row"]
    record = told(capsys, *files, "--classifier", "none", "--way", "cca+wip", "--anchors", "8")
    assert by(record, "cca+wip")["r@1"] > 0.9 and "accuracy" not in by(record, "cca+wip")


def test_a_head_from_a_file(out, capsys):
    x = turned(8, 0)
    model = LogisticRegression(max_iter=500).fit(x, [f"k{v}" for v in LABELS])
    np.savez(out / "head.npz", W=model.coef_, b=model.intercept_, classes=model.classes_.astype(str))
    record = told(capsys, out / "run", "--labels", out / "labels.txt", "--head", out / "head.npz")
    assert record["settings"]["classifier"] == "head"
    own = by(record, "absolute", 0, 0)["accuracy"]
    assert own > 0.9 and by(record, "run")["accuracy"] == pytest.approx(own, abs=0.05)


def test_a_run_whose_files_have_moved_is_read_without_references(out, capsys, tmp_path):
    for i in range(2):
        (out / f"s{i}.npy").rename(tmp_path / f"s{i}.npy")
    try:
        capsys.readouterr()
        assert main(["stitch", str(out / "run"), "--labels", str(out / "labels.txt"), "--json"]) == 0
        told_so = capsys.readouterr()
        assert {r["representation"] for r in json.loads(told_so.out)["results"]} == {"run"}
        assert "give --x FILE" in told_so.err
        record = told(
            capsys, out / "run", "--labels", out / "labels.txt", "--x", tmp_path / "s0.npy", "--y", tmp_path / "s1.npy"
        )
        assert len({r["representation"] for r in record["results"]}) == 5
        np.save(tmp_path / "other.npy", np.ones((7, 8), np.float32) + np.arange(7)[:, None])
        for side in "xy":
            code = main(["stitch", str(out / "run"), f"--{side}", str(tmp_path / "other.npy")])
            assert code == 2 and "the run was made from 240 of 8" in capsys.readouterr().err
    finally:
        for i in range(2):
            (tmp_path / f"s{i}.npy").rename(out / f"s{i}.npy")


def test_labels_are_of_the_rows_of_a_file_that_is_gone(capsys, tmp_path):
    """Two rows were set aside when the run was made: the labels of the others stay theirs."""
    mixed = np.random.default_rng(0).permutation(N)  # labels without an order that a shift would keep
    first, second = (turned(8, i).astype(np.float32)[mixed] for i in range(2))
    first[0], first[50] = 0, np.nan
    for name, rows in (("x", first), ("y", second)):
        np.save(tmp_path / f"{name}.npy", rows)
    (tmp_path / "labels.txt").write_text("\n".join(f"k{v}" for v in LABELS[mixed]) + "\n")
    files = ["--x", str(tmp_path / "x.npy"), "--y", str(tmp_path / "y.npy"), "--pair-by", "row", "--seeds", "20"]
    assert main(["align", *files, "--method", "procrustes", "--out", str(tmp_path / "run")]) == 0
    asked = tmp_path / "run", "--labels", tmp_path / "labels.txt"
    there = by(told(capsys, *asked), "run")
    for name in "xy":
        (tmp_path / f"{name}.npy").unlink()
    gone = by(told(capsys, *asked), "run")
    assert gone["accuracy"] == there["accuracy"] > 0.9


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{run}"], "has no labels"),
        ([], "give the folder of a run, or two or more files"),
        (["{run}", "--space", "{s0}"], "not both"),
        (["--space", "{s0}", "--labels", "{labels}"], "1 space is given"),
        (["--space", "{s0}", "--space", "{s1}", "--labels", "{labels}"], "say how rows pair up"),
        (["{run}", "--labels", "{short}"], "3 labels, and .* has 240 rows"),
        (["{run}", "--labels", "{labels}", "--ordered"], "one of them is 'k0'"),
        (["{run}", "--labels", "{labels}", "--way", "multi"], "'multi' is no description of rows"),
        (["{run}", "--labels", "{labels}", "--head", "{s0}"], "240 classes without names and the data have 4"),
    ],
)
def test_what_is_refused(out, capsys, arguments, said):
    (out / "short.txt").write_text("a\nb\nc\n")
    names = {"run": out / "run", "s0": out / "s0.npy", "s1": out / "s1.npy"}
    names |= {"labels": out / "labels.txt", "short": out / "short.txt"}
    capsys.readouterr()
    assert main(["stitch", *(a.format(**names) for a in arguments)]) == 2
    err = capsys.readouterr().err
    assert re.search(said, err), err
    assert len([line for line in err.splitlines() if line.startswith("relcore:")]) == 1
