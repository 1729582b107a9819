"""Procrustes as a method: what it moves, and what it says when the seeds leave it open (case B20)."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import torch

from relcore.errors import InputError
from relcore.methods import method
from relcore.space import Pairs


def rows(n: int, d: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def fit(x, y, seeds):
    return method("procrustes").fit(x, y, seeds, generator=torch.Generator().manual_seed(0))


def test_it_is_scipys_map_on_the_seeds():
    x, y = rows(80, 12, 1), rows(90, 12, 2)
    seeds = Pairs(np.stack([np.arange(40), np.arange(40)[::-1] + 5], 1))
    run = fit(x, y, seeds)
    want, _ = scipy.linalg.orthogonal_procrustes(x[seeds.x.tolist()].double(), y[seeds.y.tolist()].double())
    np.testing.assert_allclose(run.map.numpy(), want, atol=1e-5)
    assert run.notes == []


def test_mapping_a_to_b_moves_a():
    x = rows(100, 16)
    q = torch.linalg.qr(rows(16, 16, 9))[0]
    y = x @ q
    run = fit(x, y, Pairs.by_row(20))
    assert torch.equal(run.y, y), "the reference stays where it is"
    torch.testing.assert_close(run.x, y, rtol=0, atol=1e-4)
    torch.testing.assert_close(run.map, q, rtol=0, atol=1e-4)
    new = rows(7, 16, 3)
    torch.testing.assert_close(run.encode_x(new), new @ q, rtol=0, atol=1e-4)
    assert torch.equal(run.encode_y(new), new)


@pytest.mark.parametrize(("dx", "dy"), [(64, 48), (48, 64)])
def test_different_dimensions_and_few_seeds_work_and_are_said(dx, dy):
    x, y = rows(100, dx, 1), rows(90, dy, 2)
    run = fit(x, y, Pairs.by_row(15))
    assert run.x.shape == (100, dy) and run.y.shape == (90, dy) and run.map.shape == (dx, dy)
    small = run.map.T if dx > dy else run.map
    torch.testing.assert_close(small @ small.T, torch.eye(48), rtol=0, atol=1e-5)
    assert f"dimensions differ ({dx} and {dy})" in run.notes[0]
    assert run.notes[1] == "rotation determined only on a 15-dimensional subspace (15 seeds)"


def test_fewer_seeds_than_dimensions_still_fit_the_seeds():
    x = rows(50, 300)
    y = x @ torch.linalg.qr(rows(300, 300, 4))[0]
    run = fit(x, y, Pairs.by_row(15))
    torch.testing.assert_close(run.x[:15], y[:15], rtol=0, atol=1e-3)
    assert run.notes == ["rotation determined only on a 15-dimensional subspace (15 seeds)"]


def test_repeated_seed_vectors_lower_the_rank_that_is_said():
    x = rows(30, 8)
    x[1:5] = x[0]
    run = fit(x, x.clone(), Pairs.by_row(6))
    assert run.notes == ["rotation determined only on a 2-dimensional subspace (6 seeds)"]


def test_no_seeds_is_refused():
    with pytest.raises(InputError, match="Procrustes needs at least 1 seed pairs, got 0"):
        fit(rows(5, 3), rows(5, 3), Pairs.empty())


def test_the_run_is_one_step_that_moves_x():
    x = rows(30, 8)
    (step,) = list(method("procrustes").steps(x, x, Pairs.by_row(9), generator=torch.Generator()))
    assert (step.iteration, step.total, step.snapshot.moving) == (1, 1, "x")
