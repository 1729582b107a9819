"""Wasserstein-Procrustes: planted turns with seeds and without, batches, dimensions, what it says; whole runs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from relcore import preprocess
from relcore.errors import InputError
from relcore.methods import method
from relcore.methods.wasserstein_procrustes import WassersteinProcrustes
from relcore.ops.neighbors import unit_rows
from relcore.pipeline import align
from relcore.space import Pair, Pairs, make_space

QUICK = dict(epochs=2, steps_first=60, batch=60, rate=50.0)


def clusters(n: int, d: int = 10, seed: int = 1, k: int = 5) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    centres = 1.5 * torch.randn(k, d, generator=torch.Generator().manual_seed(98))
    member = torch.multinomial(0.7 ** torch.arange(k).float(), n, True, generator=g)
    return centres[member] + torch.randn(n, d, generator=g) * 0.7


def ready(v: torch.Tensor) -> torch.Tensor:
    return preprocess.fit(preprocess.DEFAULT, v)[1]


def turn(d: int, seed: int = 0) -> torch.Tensor:
    return torch.linalg.qr(torch.randn(d, d, generator=torch.Generator().manual_seed(seed)))[0]


def fit(x, y, seeds=None, seed=0, **params):
    seeds = Pairs.empty() if seeds is None else seeds
    return WassersteinProcrustes(**QUICK | params).fit(x, y, seeds, generator=torch.Generator().manual_seed(seed))


def found(run) -> np.ndarray:
    return (unit_rows(run.x) @ unit_rows(run.y).T).argmax(1).numpy()


def test_a_turned_copy_is_found_without_a_seed_in_any_order_of_rows():
    x = ready(clusters(150))
    q, order = turn(10), torch.randperm(150, generator=torch.Generator().manual_seed(3))
    run = fit(x, (x @ q)[order])
    assert (order[found(run)] == torch.arange(150)).float().mean() > 0.95
    assert float((run.map - q).abs().max()) < 0.1
    torch.testing.assert_close(run.map @ run.map.T, torch.eye(10), atol=1e-4, rtol=0)
    torch.testing.assert_close(run.encode_x(x), run.x)
    phases = run.history["phase"].unique().tolist()
    assert phases == ["convex start", "epoch 1 of 2", "epoch 2 of 2"]
    batches = run.history.groupby("phase")["batch"].max()
    assert batches["epoch 1 of 2"] == 60 and batches["epoch 2 of 2"] == 120
    mismatch = run.history["mismatch"].dropna()
    assert mismatch.iloc[-1] < mismatch.iloc[0], "the convex start descends"


def test_it_makes_more_of_few_seeds_than_procrustes_does_and_costs_fall():
    x = ready(clusters(200, 16))
    y = ready(x @ turn(16) + 0.02 * torch.randn(200, 16, generator=torch.Generator().manual_seed(5)))
    seeds = Pairs.by_row(8)
    before = method("procrustes").fit(x, y, seeds, generator=torch.Generator())
    run = fit(x, y, seeds, batch=100)
    right = [(found(r) == np.arange(200)).mean() for r in (before, run)]
    assert right[0] < 0.8 and right[1] > 0.9
    first = run.history[run.history["phase"] == "epoch 1 of 2"]["transport cost"]
    assert first.iloc[-5:].mean() < first.iloc[:3].mean()
    assert "the start is determined only on a 8-dimensional subspace (8 seeds)" in run.notes


@pytest.mark.parametrize(("dx", "dy"), [(10, 14), (14, 10)])
def test_different_dimensions_are_aligned_and_said(dx, dy):
    v = clusters(150)
    wide = v @ turn(14)[:10]
    x, y = (ready(v), ready(wide)) if dx == 10 else (ready(wide), ready(v))
    run = fit(x, y, Pairs.by_row(20))
    assert (found(run) == np.arange(150)).mean() > 0.9 and run.map.shape == (dx, dy)
    assert any(f"dimensions differ ({dx} and {dy})" in n for n in run.notes)


def test_the_steps_count_true_and_a_seed_gives_the_same_run_again():
    x, y = ready(clusters(90)), ready(clusters(70, seed=2))
    search = WassersteinProcrustes(**QUICK | dict(start_steps=5))
    steps = list(search.steps(x, y, Pairs.empty(), generator=torch.Generator().manual_seed(0)))
    assert steps[-1].iteration == steps[-1].total == 60 + 15 + 5
    assert [s.iteration for s in steps] == sorted({s.iteration for s in steps})
    assert all(s.snapshot.moving == "x" for s in steps)
    first, again, other = (fit(x, y, seed=s, start_steps=5) for s in (1, 1, 2))
    assert torch.equal(first.map, again.map) and not torch.equal(first.map, other.map)
    assert "the start is of the first 70 rows of both sides" in first.notes


def test_a_cutoff_is_told_and_the_map_is_of_all_rows():
    x = ready(clusters(150))
    run = fit(x, x @ turn(10), Pairs.by_row(15), cutoff=100)
    assert run.notes[0] == "batches are drawn from the first 100 of 150 rows of A" and run.x.shape == (150, 10)


def test_one_point_is_refused_without_seeds_and_few_rows_work():
    x = ready(clusters(20))
    with pytest.raises(InputError, match="all 5 rows of B are one point"):
        fit(x, torch.ones(5, 10))
    assert torch.isfinite(fit(x[:2], x[:2] @ turn(10), start_steps=3).x).all()
    assert torch.isfinite(fit(x, torch.ones(5, 10), Pairs.by_row(2)).x).all()
    with pytest.raises(InputError, match="reg is 0.0"):
        WassersteinProcrustes(reg=0.0)


def test_a_whole_run_finds_the_seeds_held_out():
    v = clusters(160).numpy()
    pair = Pair(*(make_space(w.astype(np.float32))[0] for w in (v, v @ turn(10).numpy())), truth=Pairs.by_row(160))
    outcome = align(pair, WassersteinProcrustes(**QUICK), Pairs.by_row(24), device="cpu")
    assert outcome.metrics["x_to_y"]["mrr"] > 0.95
    assert WassersteinProcrustes().estimate(160, 160, 10, 10, 24).seconds > 0
