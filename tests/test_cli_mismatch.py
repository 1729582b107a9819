"""``relcore mismatch``: what it says of a class that one side lacks, against sums in float64."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from relcore import runs
from relcore.cli import main

CLASSES, EACH, DIM, GONE = 6, 40, 12, "c<b>2"
NAMES = [f"c<b>{i}" for i in range(CLASSES)]


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """A run by Procrustes from clusters to their rotated copy, one cluster left out of y."""
    folder = tmp_path_factory.mktemp("mismatch")
    rng = np.random.default_rng(0)
    labels = np.repeat(NAMES, EACH)
    x = (rng.normal(size=(CLASSES, DIM)) * 2).repeat(EACH, 0) + rng.normal(size=(CLASSES * EACH, DIM)) * 0.7
    q, _ = np.linalg.qr(rng.normal(size=(DIM, DIM)))
    kept = np.flatnonzero(labels != GONE)
    y = (x @ q + 0.05 * rng.normal(size=x.shape))[kept]
    np.save(folder / "x.npy", x.astype(np.float32))
    np.save(folder / "y.npy", y.astype(np.float32))
    (folder / "x.txt").write_text("\n".join(labels) + "\n")
    (folder / "y.txt").write_text("\n".join(labels[kept]) + "\n")
    (folder / "pairs.csv").write_text("".join(f"{i},{j}\n" for j, i in enumerate(kept)))
    spaces = ["--x", str(folder / "x.npy"), "--y", str(folder / "y.npy")]
    labels = ["--x-labels", str(folder / "x.txt"), "--y-labels", str(folder / "y.txt")]
    truth = ["--pairs", str(folder / "pairs.csv"), "--seeds", "30", "--method", "procrustes"]
    assert main(["align", *spaces, *labels, *truth, "--out", str(folder / "run")]) == 0
    assert main(["align", *spaces, *truth, "--out", str(folder / "plain")]) == 0
    return folder


def told(out, capsys, *arguments: str) -> dict:
    capsys.readouterr()
    assert main(["mismatch", str(out / "run"), "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_class_that_y_lacks_is_named_on_x_and_nothing_on_y(out, capsys):
    record = told(out, capsys)
    assert record["gate"]["x"]["level"] == "green" and record["gate"]["x"]["missing"] == [GONE]
    assert record["gate"]["y"]["missing"] == [] and record["auroc"] is None
    classes = [c for c in record["classes"] if c["side"] == "x"]
    assert classes[0]["label"] == GONE and classes[0]["rows"] == EACH and classes[0]["flagged"] > 0.9
    assert {c["label"] for c in record["classes"] if c["side"] == "y"} == set(NAMES) - {GONE}


@pytest.mark.parametrize("sigma", [None, "0.2"])
def test_sums_and_auroc_are_those_of_brute_force(out, capsys, sigma):
    record = told(out, capsys, "--missing", GONE, *(["--sigma", sigma] if sigma else []))
    if sigma:
        assert record["sigma"] == pytest.approx(0.2)
    arrays = runs.Run.load(out / "run").alignment_arrays()
    x, y = (arrays[side].astype(np.float64) for side in "xy")
    x, y = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (x, y))

    def kernel(a, b):
        return np.exp(-(np.arccos(np.clip(a @ b.T, -1, 1)) ** 2) / (2 * record["sigma"] ** 2))

    raw, own = kernel(x, y).mean(1), kernel(x, x)
    np.fill_diagonal(own, 0)
    ratio = raw / (own.sum(1) / (len(x) - 1))
    mine = np.repeat(NAMES, EACH) == GONE
    for name, values in (("raw", raw), ("coverage", ratio)):
        less = values[mine][:, None] < values[~mine][None]
        assert record["auroc"]["x"][name] == pytest.approx(less.mean(), abs=1e-3)
    assert "y" not in record["auroc"]
    first = next(row for row in record["lowest"] if row["side"] == "x")
    assert ratio[first["row"]] == pytest.approx(ratio.min(), abs=1e-5)
    assert record["sides"]["x"]["median"] == pytest.approx(np.median(ratio), rel=1e-3)


def test_text_says_the_same_and_rows_go_to_a_file(out, capsys, tmp_path):
    capsys.readouterr()
    assert main(["mismatch", str(out / "run"), "--missing", GONE, "--rows", str(tmp_path / "rows.csv")]) == 0
    said = capsys.readouterr().out
    assert f"A has rows with no counterpart in B: {GONE}" in said and f"AUROC      {GONE} in x (40 rows)" in said
    with open(tmp_path / "rows.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == CLASSES * EACH + (CLASSES - 1) * EACH
    flagged = [row["label"] for row in rows if row["side"] == "x" and row["flagged"] == "1"]
    assert flagged.count(GONE) / len(flagged) > 0.8


def test_without_labels_regions_are_told(out, capsys):
    capsys.readouterr()
    assert main(["mismatch", str(out / "plain"), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["classes"] == [] and record["regions"][0]["side"] == "x"
    assert record["regions"][0]["rows"] == pytest.approx(EACH, abs=4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--missing", "nobody"], "no row has this label"),
        (["--sigma", "3.1"], "kept are"),
        (["--sigma", "0"], "no angle above 0"),
        (["--sigma", "wide"], "no angle above 0"),
    ],
)
def test_what_cannot_be_told_is_refused_in_one_line(out, capsys, arguments, words):
    assert main(["mismatch", str(out / "run"), *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error and len(error.strip().splitlines()) == 1


def test_a_class_declared_of_a_run_without_labels_is_refused(out, capsys):
    assert main(["mismatch", str(out / "plain"), "--missing", GONE]) == 2
    assert "the run has no labels" in capsys.readouterr().err
