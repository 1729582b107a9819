"""Seeds that a covariance, or a shared mixture, is not to be had of: through a whole run, in every method that asks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from relcore.errors import InputError, RunFailed
from relcore.methods import method
from relcore.ops import param as ops
from relcore.pipeline import Fit, Task, align, drain
from relcore.space import Pair, Pairs, make_space

KINDS = [
    ("param", {"descent_steps": 20}),
    ("param", {"descent_steps": 20, "mode": "single"}),
    ("kmeans", {}),
    ("cca", {}),
    ("relative", {"similarity": "wip"}),
    ("relative", {"similarity": "mahalanobis"}),
    ("relative", {"similarity": "kernel"}),
    ("cca", {"similarity": "kernel"}),
]
FOUND = [  # whose support is found, or small beside the pools
    ("ao", {"similarity": "wip", "anchors": 60}),
    ("ao", {"similarity": "kernel", "anchors": 60}),
    ("anchordot", {"similarity": "wip", "student": "none"}),
    ("anchordot", {"similarity": "kernel", "student": "none"}),
]


def views(n: int = 240, dims=(8, 10), seed: int = 0) -> list[np.ndarray]:
    """Two noisy rotations of the same clustered rows."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(6, 6))[rng.integers(6, size=n)] + rng.normal(size=(n, 6))
    return [
        np.pad(z, ((0, 0), (0, d - 6))) @ np.linalg.qr(rng.normal(size=(d, d)))[0] + 0.1 * rng.normal(size=(n, d)) + 1
        for d in dims
    ]


def pair(x: np.ndarray, y: np.ndarray) -> Pair:
    return Pair(*(make_space(v.astype(np.float32))[0] for v in (x, y)), truth=Pairs.by_row(len(x)))


def run(name, params, x, y, seeds=80, **settings):
    settings = {"preprocess": ("center",), "device": "cpu", "folds": 0} | settings
    return align(pair(x, y), method(name, **params), Pairs.by_row(seeds), **settings)


def recall(outcome) -> float:
    return outcome.metrics["x_to_y"]["r@1"]


@pytest.mark.parametrize(("name", "params"), KINDS + FOUND, ids=str)
def test_a_covariance_of_low_rank_is_shrunk_and_without_a_shrinkage_refused(name, params):
    x, y = views()
    low = np.concatenate([x, x[:, :1], x[:, 1:2] - x[:, 2:3]], 1)
    outcome = run(name, params, low, y)
    assert torch.isfinite(outcome.alignment.x).all() and recall(outcome) > 0.2
    fixed = params | {"shrinkage": "fixed", "shrinkage_amount": 0.0}
    what = "anchors" if (name, params) in FOUND else "seeds"
    with pytest.raises(InputError, match=rf"the \d+ {what} of x span 8 of 10 dimensions; take a shrinkage above 0"):
        run(name, fixed, low, y)


@pytest.mark.parametrize(("name", "params"), KINDS + FOUND, ids=str)
def test_a_constant_column_has_no_part_and_is_told(name, params):
    x, y = views()
    flat = np.concatenate([x, np.full((240, 2), 0.25)], 1)
    outcome, plain = run(name, params, flat, y), run(name, params, x, y)
    what = "anchors" if (name, params) in FOUND else "seeds"
    assert f"2 columns of x are constant over the {what} and have no part" in " ".join(outcome.alignment.notes)
    assert recall(outcome) > recall(plain) - 0.15


@pytest.mark.parametrize(("name", "params"), [k for k in KINDS if k[0] != "relative"], ids=str)
def test_fewer_seeds_than_anchors_are_told(name, params):
    x, y = views()
    outcome = run(name, params | {"anchors": 50}, x, y, seeds=20)
    used = 10 if name == "cca" else 20
    assert outcome.alignment.x.shape[1] <= used
    assert f"50 anchors asked for, {used} used: 20 seeds bear no more" in outcome.alignment.notes


def test_fewer_seeds_than_chosen_anchors_are_refused():
    with pytest.raises(InputError, match="50 anchors are to be chosen of 20 seeds; ask for at most 20, or add seeds"):
        run("relative", {"similarity": "wip", "choose": "kmeans", "count": 50}, *views(), seeds=20)


@pytest.mark.parametrize(("name", "params"), KINDS, ids=str)
def test_more_anchors_than_dimensions_work_and_are_told(name, params):
    x, y = views()
    more = {"choose": "kmeans", "count": 40} if name == "relative" else {"anchors": 40}
    outcome = run(name, params | more, x, y, seeds=100)
    assert recall(outcome) > 0.25 and torch.isfinite(outcome.alignment.x).all()
    words = " ".join(outcome.alignment.notes)
    if name in ("param", "kmeans"):
        assert "40 anchors, but of rank at most 8 (100 seeds, 8 and 10 dimensions)" in words
    if name == "cca":
        assert "directions used of 40 asked for" in words


@pytest.mark.parametrize(("name", "params"), KINDS, ids=str)
def test_spaces_that_are_not_parallel_are_told_and_methods_named_that_need_no_pairs(name, params):
    x, y = views()
    outcome = run(name, params, x, y[np.random.default_rng(0).permutation(240)], seeds=100, folds=3)
    words = " ".join(outcome.alignment.notes)
    assert "find their partners no better than by chance" in words and "check that row for row" in words
    assert "take a method that does with less: ao, from a few seeds, or hga, which needs no pairs" in words
    assert outcome.verdict.level != "aligned"


@pytest.mark.parametrize(("name", "params"), KINDS, ids=str)
def test_without_pairs_methods_are_named_that_do_with_less(name, params):
    wanted = 1 if name == "relative" else 4
    with pytest.raises(InputError, match=f"needs at least {wanted} seed pairs, got 0.*add seeds.*ao.*hga"):
        run(name, params, *views(), seeds=0)


@pytest.mark.parametrize("term", ["coverage", "orthogonality", "length", "infonce"])
def test_a_loss_that_becomes_nan_stops_the_run_at_the_last_good_state(monkeypatch, term):
    real, calls = getattr(ops, term), []
    each = 1 if term == "infonce" else 2  # sides a step

    def broken(*args):
        calls.append(1)
        return real(*args) * (float("nan") if len(calls) > 6 * each else 1.0)

    monkeypatch.setattr(ops, term, broken)
    x, y = views()
    task = Task(method("param", descent_steps=20), Pairs.by_row(80), device="cpu", folds=0)
    fit = Fit(pair(x, y), task)
    with pytest.raises(RunFailed, match="loss became nan at step 7; kept is step 6") as caught:
        for _ in fit.steps():
            pass
    assert caught.value.step == 6 and len(fit.history) == 6
    assert fit.stop_early()
    kept = drain(fit.finish())
    assert torch.isfinite(kept.alignment.x).all() and not kept.alignment.converged
    assert any("stopped at step 6" in note for note in kept.alignment.notes)
