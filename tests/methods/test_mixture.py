"""Anchors as mixtures of the seeds: what a method hands on, against what its encoders say of it; kept with a run."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from relcore import runs
from relcore.methods import method
from relcore.methods.base import Alignment
from relcore.methods.kept import Affine
from relcore.runs import Run
from relcore.space import Pair, Pairs, make_space
from tests.methods.test_param import fit, planted

SEEDS = Pairs(np.stack([np.arange(60)[::-1], np.arange(60) + 5], 1))  # partners are not of one row number
QUICK = {"param": {"descent_steps": 5}, "kmeans": {}, "cca": {}}


def sides(dims=(10, 14)) -> tuple[torch.Tensor, torch.Tensor]:
    """Partners of SEEDS are the same things."""
    x, y = planted(200, dims=dims)
    order = torch.arange(200)
    order[torch.from_numpy(SEEDS.y.copy())] = torch.from_numpy(SEEDS.x.copy())
    order[:5] = torch.arange(60, 65)
    return x, y[order]


@pytest.mark.parametrize("name", QUICK)
def test_the_mixture_of_the_seeds_is_what_the_encoders_compare_rows_to(name):
    """With full whitening an affine encoder is (v - mu) S^-1 (a - mu): the anchors solve for it, in float64."""
    x, y = sides()
    run = fit(name, x, y, SEEDS, anchors=6, shrinkage="fixed", shrinkage_amount=0.0, **QUICK[name])
    p = run.mixture.double()
    assert run.mixture.dtype == torch.float32 and run.mixture.shape[1] == 60 and 1 <= len(p) <= 6
    assert bool((p >= 0).all())
    torch.testing.assert_close(p.sum(1), torch.ones(len(p), dtype=torch.float64), rtol=0, atol=1e-5)
    for v, rows, encode, anchors in (
        (x, SEEDS.x, run.encode_x, run.anchors_x),
        (y, SEEDS.y, run.encode_y, run.anchors_y),
    ):
        support = v[rows.tolist()].double()
        mean = support.mean(0)
        assert isinstance(encode, Affine)
        wanted = torch.linalg.solve(torch.cov(support.T), (p @ support - mean).T)
        scale = (wanted * encode.matrix).sum() / (encode.matrix.double() ** 2).sum()  # of the divisor of the covariance
        torch.testing.assert_close(
            encode.matrix.double() * scale, wanted, rtol=0.02, atol=2e-3 * float(wanted.abs().max())
        )
        assert 0.95 < float(scale) < 1.05
        unit = torch.nn.functional.normalize(p @ support, dim=1)
        torch.testing.assert_close(anchors.double(), unit, rtol=0, atol=1e-5)


def test_chosen_seeds_are_anchors_of_one_row_each_and_clusters_are_averages():
    x, y = sides()
    run = fit("relative", x, y, SEEDS, choose="farthest", count=7)
    where = {pair: i for i, pair in enumerate(map(tuple, SEEDS.array.tolist()))}
    rows = [where[pair] for pair in map(tuple, run.anchors.array.tolist())]
    np.testing.assert_array_equal(run.mixture, np.eye(60)[rows])
    run = fit("relative", x, y, SEEDS, choose="kmeans", count=7)
    weights = run.mixture.numpy()
    assert weights.shape == (7, 60) and ((weights > 0).sum(0) == 1).all()
    for row in weights:
        np.testing.assert_allclose(row[row > 0], 1 / (row > 0).sum(), rtol=1e-6)
    unit = torch.nn.functional.normalize(run.mixture @ y[SEEDS.y.tolist()], dim=1)
    torch.testing.assert_close(run.anchors_y, unit, rtol=0, atol=1e-5)


def test_all_seeds_are_no_mixture():
    x, y = sides()
    assert fit("relative", x, y, SEEDS).mixture is None
    assert Alignment(x=x, y=y).mixture is None


def made(folder, **params) -> Run:
    x, y = ((make_space(v.numpy())) for v in sides())
    return runs.create(
        Pair(x[0], y[0]), method=method("param", **params), seeds=SEEDS, folds=0, reports=(x[1], y[1]), folder=folder
    )


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("RELCORE_HOME", str(tmp_path / "home"))


def test_a_run_keeps_the_mixture_done_or_stopped_and_older_runs_have_none(tmp_path):
    run = made(tmp_path / "a", descent_steps=6, anchors=9)
    list(runs.execute(run))
    kept = Run.load(run.folder)
    arrays = kept.alignment_arrays()
    np.testing.assert_array_equal(kept.mixture(), arrays["mixture"])
    assert arrays["mixture"].shape == (9, 60) and arrays["mixture"].dtype == np.float32
    assert arrays["anchors_x"].shape == (9, 10) and arrays["anchors_y"].shape == (9, 14)

    stopped = made(tmp_path / "b", descent_steps=6, anchors=9)
    steps = runs.execute(stopped)
    for _ in range(3):
        next(steps)
    steps.close()
    half = Run.load(stopped.folder)
    assert half.status == "cancelled" and half.mixture().shape == (9, 60)
    assert np.abs(half.mixture() - kept.mixture()).max() > 1e-4  # of the step it was stopped at

    old = {name: a for name, a in arrays.items() if name not in ("mixture", "anchors_x", "anchors_y")}
    runs._write_arrays(kept.folder / "alignment.safetensors", old)
    assert Run.load(kept.folder).mixture() is None
    (kept.folder / "alignment.safetensors").unlink()
    assert Run.load(kept.folder).mixture() is None
