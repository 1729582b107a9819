"""PARAM and its closed-form rivals as methods: planted affine maps, bad input, stopping, what is kept and told."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from relcore.errors import InputError, RunFailed
from relcore.methods import costs, method
from relcore.methods.anchored import SIMILARITIES
from relcore.methods.kept import (
    Affine,
    Cosines,
    Distances,
    Kernelled,
    WhiteCosines,
    WhiteDistances,
    encoder_arrays,
    encoder_of,
)
from relcore.ops import param as ops
from relcore.space import Pairs

NAMES = ("param", "kmeans", "cca")


def planted(n: int = 400, noise: float = 0.2, seed: int = 0, dims=(10, 14)) -> list[torch.Tensor]:
    """Six shared directions and small ones of each side's own, each side under an affine map of condition 30."""
    g = torch.Generator().manual_seed(seed)
    shared = torch.randn(n, 6, generator=g)
    out = []
    for d in dims:
        v = torch.cat([shared, noise * torch.randn(n, d - 6, generator=g)], 1)
        q1, q2 = (torch.linalg.qr(torch.randn(d, d, generator=g))[0] for _ in range(2))
        out.append(v @ (q1 * torch.logspace(0, 1.5, d) @ q2) + 2)
    return out


def fit(name, x, y, seeds, seed=0, **params):
    return method(name, **params).fit(x, y, seeds, generator=torch.Generator().manual_seed(seed))


def found(run, seeds: int) -> float:
    """Share of rows, seeds aside, whose partner is nearest."""
    a, b = (torch.nn.functional.normalize(v[seeds:], dim=1) for v in (run.x, run.y))
    return float(((a @ b.T).argmax(1) == torch.arange(len(a))).double().mean())


@pytest.mark.parametrize("name", NAMES)
def test_rows_find_their_partners_through_affine_maps_that_cosine_does_not_see_through(name):
    x, y = planted()
    seeds = Pairs.by_row(150)
    run = fit(name, x, y, seeds)
    assert found(run, 150) > max(0.4, 3 * found(fit("relative", x, y, seeds), 150))
    assert not [n for n in run.notes if "by chance" in n]
    assert 0 < run.chosen["shrinkage_amount"] < 1


@pytest.mark.parametrize("name", NAMES)
def test_without_shrinkage_an_affine_map_changes_nothing(name):
    x, y = planted()
    seeds, params = Pairs.by_row(150), {"shrinkage": "fixed", "shrinkage_amount": 0.0}
    g = torch.Generator().manual_seed(7)
    linear = torch.linalg.qr(torch.randn(14, 14, generator=g))[0] * torch.logspace(0, 1, 14)
    runs = [fit(name, x, v, seeds, anchors=6, **params) for v in (y, y @ linear - 5)]
    first, second = (  # canonical directions of equal correlation may turn among themselves, on both sides alike
        torch.nn.functional.normalize(r.x, dim=1) @ torch.nn.functional.normalize(r.y, dim=1).T for r in runs
    )
    torch.testing.assert_close(first, second, rtol=0, atol=5e-3)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ["agreed", "ledoit_wolf", "fixed"])
def test_every_shrinkage_is_taken_and_one_seed_gives_one_result(name, how):
    x, y = planted(200)
    first, second = (fit(name, x, y, Pairs.by_row(80), shrinkage=how) for _ in range(2))
    torch.testing.assert_close(first.x, second.x, rtol=0, atol=0)
    assert found(first, 80) > 0.2
    assert bool(first.chosen) == (how == "agreed")
    assert any("Ledoit-Wolf shrinkage: 0." in n for n in first.notes) == (how == "ledoit_wolf")


def test_ledoit_wolf_is_that_of_scikit_learn():
    from sklearn.covariance import LedoitWolf

    from relcore.methods.anchored import whitening

    x, y = planted(60)
    white = whitening((x, y), "ledoit_wolf", 0.0)
    for v, ridge, rows in zip((x, y), white.ridges, white.white(), strict=True):
        model = LedoitWolf().fit(v.double().numpy())
        assert ridge / (1 + ridge) == pytest.approx(model.shrinkage_, rel=1e-9)
        # whitened by it, up to the common factor and the divisor of the covariance
        centred = v.double().numpy() - model.location_
        want = centred @ model.precision_ @ centred.T
        got = (rows @ rows.T).numpy()
        np.testing.assert_allclose(
            got / got[0, 0], want / want[0, 0], rtol=0.03, atol=0.03 * np.abs(want / want[0, 0]).max()
        )


def test_rows_that_are_no_seeds_have_no_part_in_the_fit():
    x, y = planted()
    seeds = Pairs.by_row(100)
    changed = x.clone()
    changed[100:] = torch.flip(x[100:], [0]) * 2
    for name in NAMES:
        a, b = fit(name, x, y, seeds), fit(name, changed, y, seeds)
        torch.testing.assert_close(a.y, b.y, rtol=0, atol=0)


@pytest.mark.parametrize("name", NAMES)
def test_new_vectors_are_encoded_like_the_rows_one_by_one_too_and_the_encoder_is_kept(name):
    x, y = planted(200)
    run = fit(name, x, y, Pairs.by_row(80))
    for v, out, encode in ((x, run.x, run.encode_x), (y, run.y, run.encode_y)):
        assert isinstance(encode, Affine)
        torch.testing.assert_close(encode(v[5:6])[0], out[5], rtol=1e-4, atol=1e-4)
        kept = encoder_of("encode_x", encoder_arrays("encode_x", encode))
        torch.testing.assert_close(kept(v), out, rtol=0, atol=0)


def test_float32_encoders_are_the_float64_similarities():
    from relcore.ops.similarity import fit as fitted

    x, y = planted(300)
    run = fit("cca", x, y, Pairs.by_row(150), shrinkage="fixed", shrinkage_amount=0.001, anchors=8)
    s = fitted("wip", x[:150], ridge=0.001 / 0.999)
    # the anchors are not given out, but rows of the encoder are: S^-1 (a - mu)
    exact = (x.double() - s.centre) @ run.encode_x.matrix.double()
    torch.testing.assert_close(run.x.double(), exact, rtol=0, atol=1e-5 * float(exact.abs().max()))


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("name", ["param", "kmeans"])
def test_learned_anchors_are_compared_by_any_similarity(name, similarity):
    x, y = planted(200)
    run = fit(name, x, y, Pairs.by_row(80), similarity=similarity, standardise=True)
    assert torch.isfinite(run.x).all() and found(run, 80) > 0.02
    kinds = {"cosine": Cosines, "centred": Cosines, "euclidean": Distances, "kernel": Kernelled}
    kinds |= {"whitened": WhiteCosines, "mahalanobis": WhiteDistances}
    assert isinstance(run.encode_x, kinds.get(similarity, Affine))
    torch.testing.assert_close(run.x[:80].mean(0), torch.zeros(run.x.shape[1]), atol=1e-3, rtol=0)
    torch.testing.assert_close(run.x[:80].std(0, correction=0), torch.ones(run.x.shape[1]), atol=1e-2, rtol=0)


@pytest.mark.parametrize("similarity", ["whitened", "centred", "kernel"])
def test_canonical_anchors_are_compared_by_other_similarities_too(similarity):
    x, y = planted(200)
    if similarity == "centred":  # which sees affine maps, but no rotation
        y = x @ torch.linalg.qr(y[:14, :10])[0].T
    run = fit("cca", x, y, Pairs.by_row(80), similarity=similarity)
    assert found(run, 80) > 0.2
    with pytest.raises(InputError, match="similarity is 'euclidean', wanted one of wip, whitened, centred, kernel"):
        method("cca", similarity="euclidean")


def bent(n: int, seed: int = 0) -> list[torch.Tensor]:
    """Three hidden coordinates as they are, and what no linear map makes of them."""
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(n, 3, generator=g)
    sides = z, torch.cat([z.abs() * 2, z[:, :1] * z[:, 1:], z.sin()], 1)
    return [v + 0.02 * torch.randn(v.shape, generator=g) for v in sides]


@pytest.mark.parametrize("name", NAMES)
def test_the_kernel_finds_partners_that_no_linear_map_finds(name):
    x, y = bent(500)
    seeds, params = Pairs.by_row(300), dict(anchors=30) | (dict(descent_steps=40) if name == "param" else {})
    runs = [fit(name, x, y, seeds, similarity=s, **params) for s in ("wip", "kernel")]
    assert found(runs[1], 300) > found(runs[0], 300) + 0.05
    assert set(runs[1].chosen) == {"shrinkage_amount", "kernel_ridge"}


# ---------------------------------------------------------------- the run


def test_every_loss_is_a_metric_of_its_own_and_a_stopped_run_can_be_kept():
    x, y = planted(200)
    m = method("param", descent_steps=30)
    steps = list(m.steps(x, y, Pairs.by_row(80), generator=torch.Generator().manual_seed(0)))
    assert [s.iteration for s in steps] == list(range(1, 31))
    for s in steps:
        total = s.metrics["coverage"] + 0.03 * s.metrics["orthogonality"] + 0.1 * s.metrics["length"]
        assert s.metrics["loss"] == pytest.approx(total + 2 * s.metrics["infonce"], rel=1e-4)
    seen = [s for s in steps if s.snapshot]
    assert seen[0] is steps[0] and seen[-1] is steps[-1] and 10 < len(seen) <= 30
    assert {"effective rank", "seeds in an anchor", "mrr of seeds left out"} <= seen[3].metrics.keys()
    run = fit("param", x, y, Pairs.by_row(80), descent_steps=30)
    torch.testing.assert_close(seen[-1].snapshot.map_x(x), run.x, rtol=1e-4, atol=1e-3)
    assert seen[3].snapshot.map_y(y).shape == run.y.shape
    assert seen[-1].metrics["mrr of seeds left out"] > seen[0].metrics["mrr of seeds left out"]


def test_the_check_has_the_same_result_without_the_figures_on_the_way():
    x, y = planted(200)
    m, seeds = method("param", descent_steps=20), Pairs.by_row(80)
    out = []
    for steps in (m.steps, m.check_steps):
        generator, seen = torch.Generator().manual_seed(0), 0
        run = steps(x, y, seeds, generator=generator)
        while True:
            try:
                seen += next(run).snapshot is not None
            except StopIteration as end:
                out.append((end.value.x, seen))
                break
    torch.testing.assert_close(out[0][0], out[1][0], rtol=0, atol=0)
    assert out[0][1] > 0 and out[1][1] == 0


def test_single_learns_on_x_alone():
    x, y = planted(200)
    other = y[torch.randperm(200, generator=torch.Generator().manual_seed(0))]
    maps = [
        fit("param", x, v, Pairs.by_row(80), mode="single", shrinkage="fixed", descent_steps=20) for v in (y, other)
    ]
    torch.testing.assert_close(maps[0].x, maps[1].x, rtol=0, atol=0)
    history = maps[0].history
    assert "infonce" not in history and "mrr of seeds left out" not in history


def test_nan_in_the_loss_stops_the_run_at_the_last_good_step(monkeypatch):
    x, y = planted(200)
    real, calls = ops.coverage, []

    def broken(*args):
        calls.append(1)
        return real(*args) * (float("nan") if len(calls) > 8 else 1.0)  # two sides a step

    monkeypatch.setattr(ops, "coverage", broken)
    steps = method("param").steps(x, y, Pairs.by_row(80), generator=torch.Generator().manual_seed(0))
    seen = []
    with pytest.raises(RunFailed, match="loss became nan at step 5; kept is step 4") as caught:
        for step in steps:
            seen.append(step)
    assert caught.value.step == 4 and len(seen) == 4 and seen[0].snapshot is not None


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize("name", NAMES)
def test_too_few_seeds_or_no_shrinkage_for_few_are_refused(name):
    x, y = planted(100)
    with pytest.raises(
        InputError, match="needs at least 4 seed pairs, got 3.*take a method that does with less: ao.*hga"
    ):
        fit(name, x, y, Pairs.by_row(3))
    with pytest.raises(InputError, match="shrinkage_amount is 0, but 12 seeds have no covariance of full rank in 14"):
        fit(name, x, y, Pairs.by_row(12), shrinkage="fixed", shrinkage_amount=0.0)
    assert torch.isfinite(fit(name, x, y, Pairs.by_row(4)).x).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_support_smaller_than_the_count_of_anchors_is_told(name):
    x, y = planted(100)
    run = fit(name, x, y, Pairs.by_row(30), anchors=40)
    used = 15 if name == "cca" else 30
    assert run.x.shape[1] <= used
    assert f"40 anchors asked for, {used} used: 30 seeds bear no more" in run.notes
    if name != "cca":
        assert "30 anchors, but of rank at most 10 (30 seeds, 10 and 14 dimensions)" in run.notes


@pytest.mark.parametrize("name", NAMES)
def test_more_anchors_than_dimensions_work_and_are_told(name):
    x, y = planted(300)
    run = fit(name, x, y, Pairs.by_row(200), anchors=60)
    assert found(run, 200) > 0.4
    words = " ".join(run.notes)
    assert ("of rank at most 10" in words) or (name == "cca" and "directions used of 60 asked for" in words)


@pytest.mark.parametrize("name", NAMES)
def test_constant_and_doubled_columns(name):
    x, y = planted(200)
    flat = torch.cat([x, torch.full((200, 2), 0.1), x[:, :1]], 1)
    run = fit(name, flat, y, Pairs.by_row(80))
    assert "2 columns of x are constant over the seeds and have no part" in run.notes
    assert torch.isfinite(run.x).all() and found(run, 80) > 0.2
    with pytest.raises(InputError, match="the 80 seeds of x span 10 of 13 dimensions; take a shrinkage above 0"):
        fit(name, flat, y, Pairs.by_row(80), shrinkage="fixed", shrinkage_amount=0.0)
    with pytest.raises(InputError, match="the seeds' rows: all 80 rows are alike"):
        fit(name, torch.cat([torch.ones(80, 10), x[80:]]), y, Pairs.by_row(80))


@pytest.mark.parametrize("name", NAMES)
def test_seeds_that_are_no_pairs_are_told(name):
    x, y = planted(300)
    order = torch.randperm(300, generator=torch.Generator().manual_seed(0))
    run = fit(name, x, y[order], Pairs.by_row(100))
    assert any(
        "no better than by chance" in n and "row for row" in n and "hga, which needs no pairs" in n for n in run.notes
    )


def test_a_direction_that_no_side_shares_is_left_out():
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(200, 6, generator=g), torch.randn(200, 8, generator=g)
    run = fit("cca", x, y, Pairs.by_row(100))
    assert run.x.shape[1] < 14 and torch.isfinite(run.x).all()
    assert any("directions used of" in n or "no direction is shared" in n for n in run.notes)


@pytest.mark.parametrize("name", NAMES)
def test_held_out_checks_with_fewer_seeds_than_anchors_still_run(name):
    from relcore.pipeline import Fit, Task
    from relcore.space import Pair, make_space

    x, y = planted(300)
    spaces = [make_space(v.numpy(), title=t)[0] for v, t in ((x, "x"), (y, "y"))]
    task = Task(method(name), Pairs.by_row(60), seed=0, device="cpu")
    run = Fit(Pair(*spaces, Pairs.by_row(300)), task)
    for _ in run.steps():
        pass
    steps = run.finish()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            outcome = end.value
            break
    assert len(run.folds) == 3 and outcome.metrics["x_to_y"]["mrr"] > 0.3


def test_costs_grow_with_what_they_count():
    """Numbers of seeds, anchors, dimensions and steps; whether they are right is for benchmarks/param.py to say."""
    assert costs.mixture_step(2000, 64, 700, 256) > costs.mixture_step(500, 64, 700, 256)
    small, large = (method("param", descent_steps=s).estimate(5000, 5000, 300, 300, 500) for s in (10, 1000))
    assert large.seconds > 5 * small.seconds and large.memory == small.memory
