"""Self-learning: planted turns with few, wrong and no seeds; what it says; whole runs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from relcore import preprocess
from relcore.errors import InputError
from relcore.methods import method
from relcore.methods.self_learning import SelfLearning
from relcore.ops.neighbors import unit_rows
from relcore.pipeline import align
from relcore.space import Pair, Pairs, make_space

QUICK = dict(keep_first=0.3, patience=3)


def clusters(n: int, d: int = 12, seed: int = 1, k: int = 7) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    centres = torch.randn(k, d, generator=torch.Generator().manual_seed(99))
    member = torch.multinomial(0.75 ** torch.arange(k).float(), n, True, generator=g)
    return centres[member] + 0.3 * torch.randn(n, d, generator=g)


def ready(v: torch.Tensor) -> torch.Tensor:
    return preprocess.fit(preprocess.DEFAULT, v)[1]


def turn(d: int, seed: int = 0) -> torch.Tensor:
    return torch.linalg.qr(torch.randn(d, d, generator=torch.Generator().manual_seed(seed)))[0]


def fit(x, y, seeds=None, seed=0, **params):
    seeds = Pairs.empty() if seeds is None else seeds
    return SelfLearning(**QUICK | params).fit(x, y, seeds, generator=torch.Generator().manual_seed(seed))


def found(run) -> np.ndarray:
    return (unit_rows(run.x) @ unit_rows(run.y).T).argmax(1).numpy()


@pytest.mark.parametrize("dictionary", ["union", "mutual"])
def test_a_turned_copy_is_found_without_a_seed_in_any_order_of_rows(dictionary):
    x = ready(clusters(240))
    q, order = turn(12), torch.randperm(240, generator=torch.Generator().manual_seed(3))
    run = fit(x, (x @ q)[order], dictionary=dictionary)
    torch.testing.assert_close(run.map, q, atol=1e-4, rtol=0)
    assert (order[found(run)] == torch.arange(240)).all() and run.converged and run.notes == []
    torch.testing.assert_close(run.encode_x(x), run.x)


@pytest.mark.parametrize("neighbors", [0, 10])
def test_it_makes_more_of_few_seeds_than_procrustes_does(neighbors):
    x = ready(clusters(300, 24))
    g = torch.Generator().manual_seed(5)
    y = ready(x @ turn(24) + 0.02 * torch.randn(300, 24, generator=g))
    seeds = Pairs.by_row(12)
    before = method("procrustes").fit(x, y, seeds, generator=g)
    run = fit(x, y, seeds, neighbors=neighbors)
    right = [(found(r) == np.arange(300)).mean() for r in (before, run)]
    assert right[0] < 0.7 and right[1] > 0.95
    assert run.history["mean best cosine"].iloc[-1] > run.history["mean best cosine"].iloc[0]


@pytest.mark.parametrize(("dx", "dy"), [(12, 20), (20, 12)])
def test_different_dimensions_are_aligned_and_said(dx, dy):
    v = clusters(240)
    wide = v @ turn(20)[:12]
    x, y = (ready(v), ready(wide)) if dx == 12 else (ready(wide), ready(v))
    run = fit(x, y)
    assert (found(run) == np.arange(240)).mean() > 0.98 and run.map.shape == (dx, dy)
    assert f"dimensions differ ({dx} and {dy})" in run.notes[0]


def test_a_dictionary_of_the_first_rows_maps_all_and_says_so():
    x = ready(clusters(500))
    run = fit(x, x @ turn(12), cutoff=250, start_rows=200)
    assert (found(run) == np.arange(500)).mean() > 0.98 and run.x.shape == (500, 12)
    assert run.notes[0] == "the dictionary is of the first 250 of 500 rows of A"
    assert run.notes[2] == "the first dictionary is of the first 200 rows of both sides"


def test_the_steps_end_when_nothing_improves_and_count_true():
    x, y = ready(clusters(150)), ready(clusters(130, seed=2))
    steps = list(SelfLearning(**QUICK).steps(x, y, Pairs.empty(), generator=torch.Generator().manual_seed(0)))
    assert [s.iteration for s in steps] == list(range(1, len(steps) + 1)) and steps[-1].total == len(steps)
    assert all(s.total >= s.iteration and s.snapshot.moving == "x" for s in steps)
    keep = [s.metrics["keep"] for s in steps]
    assert keep[0] == 0.3 and keep[-1] == 1.0 and keep == sorted(keep)
    last = [s.metrics["mean best cosine"] for s in steps]
    assert max(last[-4:]) - max(last[:-4]) < 1e-6, "the last rounds did not improve"


def test_a_limit_of_rounds_is_told():
    x = ready(clusters(150))
    run = fit(x, ready(clusters(150, seed=2)), rounds=2)
    assert not run.converged and "stopped after 2 rounds" in run.notes[0] and len(run.history) == 2


def test_a_seed_gives_the_same_run_again_and_another_draws_anew():
    x, y = ready(clusters(150)), ready(clusters(150, seed=2))
    first, again, other = (fit(x, y, seed=s, rounds=5) for s in (1, 1, 2))
    assert torch.equal(first.map, again.map) and not torch.equal(first.map, other.map)


def test_held_seeds_pull_at_the_map():
    x, y = ready(clusters(100)), ready(clusters(100, seed=2))
    far = [
        float((unit_rows(r.x[:9]) * unit_rows(r.y[:9])).sum(1).mean())
        for r in (fit(x, y, Pairs.by_row(9), hold_seeds=h) for h in (False, True))
    ]
    assert far[1] > far[0]


def test_one_point_is_refused_without_seeds_and_few_rows_work():
    x = ready(clusters(20))
    with pytest.raises(InputError, match="all 5 rows of B are one point"):
        fit(x[:5], torch.ones(5, 12))
    assert torch.isfinite(fit(x[:2], x[:2] @ turn(12)).x).all()
    assert torch.isfinite(fit(x, torch.ones(5, 12), Pairs.by_row(3)).x).all()
    with pytest.raises(InputError, match="keep_first is 0"):
        SelfLearning(keep_first=0.0)


def test_a_whole_run_finds_the_seeds_held_out():
    v = clusters(200).numpy()
    pair = Pair(*(make_space(w.astype(np.float32))[0] for w in (v, v @ turn(12).numpy())), truth=Pairs.by_row(200))
    outcome = align(pair, SelfLearning(**QUICK), Pairs.by_row(20), device="cpu")
    assert outcome.metrics["x_to_y"]["mrr"] > 0.99 and outcome.verdict is not None
    assert SelfLearning().estimate(200, 200, 12, 12, 20).seconds > 0
