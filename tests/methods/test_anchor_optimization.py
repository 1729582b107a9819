"""Anchor optimisation against autograd, brute force and planted rotations (ao.md, tests a to g)."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from relcore.errors import InputError, RunFailed
from relcore.methods import anchored, method
from relcore.methods.anchor_optimization import AnchorOptimization, once, sphere_gradient
from relcore.ops import linalg
from relcore.ops.neighbors import unit_rows
from relcore.space import Pairs


def planted(n=400, extra=0, dx=20, dy=28, noise=0.0, seed=0):
    """Clustered x, and y its rotation into dy dimensions in another order, with ``extra`` rows of its own."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(12, dx))
    x = centres[rng.integers(12, size=n + extra)] + 0.7 * rng.normal(size=(n + extra, dx))
    x -= x.mean(0)
    q, _ = np.linalg.qr(rng.normal(size=(max(dx, dy), max(dx, dy))))
    y = x @ q[:dx, :dy] + noise * rng.normal(size=(n + extra, dy))
    order = rng.permutation(n + extra)
    truth = Pairs(np.stack([np.arange(n), np.argsort(order)[:n]], 1))
    to_tensor = lambda v: unit_rows(torch.from_numpy(v))  # noqa: E731
    return to_tensor(x[:n]), to_tensor(y[order]), truth


X, Y, TRUTH = planted()
SEEDS = TRUTH.take(np.arange(0, 400, 27)[:15])


def fit(x, y, seeds, seed=0, **params):
    return method("ao", **params).fit(x, y, seeds, generator=torch.Generator().manual_seed(seed))


def walk(x, y, seeds, seed=0, **params):
    """The steps one by one, and the alignment."""
    run = method("ao", **params).steps(x, y, seeds, generator=torch.Generator().manual_seed(seed))
    steps = []
    while True:
        try:
            steps.append(next(run))
        except StopIteration as end:
            return steps, end.value


def found(alignment, truth=TRUTH) -> float:
    return float((truth.partner(100_000)[alignment.anchors.x] == alignment.anchors.y).mean())


def targets_by_vote(x, y, anchors_x, anchors_y) -> np.ndarray:
    """Barycentres (m, d_x) by the definition, in float64."""
    rx, ry = x @ anchors_x.T, y @ anchors_y.T
    m = np.sqrt(((rx[:, None] - ry[None]) ** 2).sum(2))
    favourite, gap = m.argmin(1), m - m.min(1, keepdims=True)
    voters = [np.flatnonzero(favourite == j) for j in range(len(y))]
    return np.stack([x[v].mean(0) if len(v) else x[gap[:, j].argmin()] for j, v in enumerate(voters)])


# ---------------------------------------------------------------- what it finds


@pytest.mark.parametrize("correspondence", ["vote", "soft", "argmax"])
def test_paper_mode_from_the_procrustes_start_finds_every_anchor_of_a_rotation(correspondence):
    run = fit(
        X, Y, TRUTH.take(np.arange(0, 400, 13)), mode="paper", start="procrustes", correspondence=correspondence,
        anchors=100, adam_steps=20, learning_rate=0.005,
    )  # fmt: skip
    assert len(run.anchors) == 100 and found(run) == 1.0


def test_paper_mode_climbs_from_a_start_that_is_wrong():
    """12 seeds determine 12 of 20 dimensions: the start misses anchors that the descent finds."""
    settings = dict(mode="paper", start="procrustes", anchors=100)
    start = fit(X, Y, SEEDS.take(np.arange(12)), adam_steps=1, learning_rate=1e-6, **settings)
    end = fit(X, Y, SEEDS.take(np.arange(12)), adam_steps=100, learning_rate=0.01, **settings)
    assert found(start) < 0.9 and found(end) == 1.0


@pytest.mark.parametrize(("dx", "dy"), [(20, 28), (20, 20)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_alternation_finds_every_anchor_of_a_rotation_from_15_seeds(dx, dy, seed):
    x, y, truth = planted(dx=dx, dy=dy, seed=seed)
    run = fit(x, y, truth.take(np.random.default_rng(seed).permutation(400)[:15]), seed, anchors=100)
    assert found(run, truth) == 1.0 and run.converged


@pytest.mark.parametrize("mode", ["alternating", "paper"])
def test_unequal_numbers_of_rows(mode):
    """The authors' code refuses them."""
    x, y, truth = planted(n=300, extra=80)
    seeds = truth.take(np.arange(0, 300, 10))
    run = fit(x, y, seeds, mode=mode, start="procrustes", anchors=100, adam_steps=50, learning_rate=0.01)
    assert run.x.shape == (300, 100) and run.y.shape == (380, 100)
    assert found(run, truth) > 0.97
    back = fit(y, x, seeds.flip(), mode=mode, start="procrustes", anchors=100, adam_steps=50, learning_rate=0.01)
    assert back.x.shape == (380, 100) and back.y.shape == (300, 100)
    known = np.isin(back.anchors.x, truth.y)
    partner = truth.flip().partner(380)[back.anchors.x]
    assert (back.anchors.y == partner)[known].mean() > 0.97


def test_the_map_moves_x_onto_y():
    """Case B20: mapping A to B must move A."""
    x, y, truth = planted(dx=20, dy=20)
    run = fit(x, y, truth.take(np.arange(15)), anchors=100)
    order = torch.from_numpy(truth.y.copy())
    assert float((x @ run.map - y[order]).norm(dim=1).max()) < 1e-3
    assert float((x - y[order]).norm(dim=1).min()) > 0.1
    torch.testing.assert_close(run.map @ run.map.T, torch.eye(20), rtol=0, atol=1e-5)


# ---------------------------------------------------------------- the alternation


def test_turns_draw_rows_anew_and_more_of_them_towards_the_end():
    ao, g = method("ao", subset=400), torch.Generator().manual_seed(0)
    v = torch.arange(1000.0)[:, None]
    first, half, last = (ao._drawn(v, progress, g)[:, 0] for progress in (0.0, 0.5, 1.0))
    assert [len(first), len(half), len(last)] == [100, 200, 400]
    assert len(last.unique()) == 400
    again = ao._drawn(v, 1.0, g)[:, 0]
    shared = len(set(again.tolist()) & set(last.tolist()))
    assert 100 < shared < 220, "two independent draws of 400 of 1000 share 160 rows, give or take"
    assert [len(ao._drawn(v[:150], progress, g)) for progress in (0.0, 1.0)] == [100, 150]
    assert [len(ao._drawn(v[:80], progress, g)) for progress in (0.0, 1.0)] == [80, 80]
    assert len(method("ao", subset=0)._drawn(v, 0.0, g)) == 1000


@pytest.mark.parametrize(("seeds", "directions", "rank"), [(15, 0, 15), (15, 5, 5), (6, 128, 6), (15, 128, 15)])
def test_the_first_map_keeps_what_seeds_and_directions_determine(seeds, directions, rank):
    steps, run = walk(X, Y, SEEDS.take(np.arange(seeds)), anchors=100, directions=directions)
    assert np.linalg.matrix_rank(steps[0].snapshot.map_y.numpy(), tol=1e-3) == rank
    assert np.linalg.matrix_rank(run.anchors_y.numpy(), tol=1e-3) == 20, "the last turns take all dimensions"


# ---------------------------------------------------------------- the descent


def test_the_closed_form_gradient_is_autograds():
    g = torch.Generator().manual_seed(0)
    new = lambda *shape: torch.randn(*shape, generator=g, dtype=torch.float64)  # noqa: E731
    y, b, anchors_x, raw = new(50, 9), new(50, 6), new(13, 6), new(13, 9).requires_grad_(True)
    anchors_y = raw / raw.norm(dim=1, keepdim=True)
    ((y @ anchors_y.T - b @ anchors_x.T) ** 2).sum().backward()
    got = sphere_gradient(raw.detach(), y.T @ y, anchors_x, b.T @ y)
    torch.testing.assert_close(got, raw.grad, rtol=1e-10, atol=1e-10)
    assert float((got * raw.detach()).sum(1).abs().max()) < 1e-10, "nothing of it points off the sphere"


@pytest.mark.parametrize("fix_seeds", [True, False])
def test_the_descent_is_adam_on_the_loss(fix_seeds):
    """Ten steps beside torch.optim.Adam and autograd, matches by brute force, all in float64."""
    x, y, truth = planted(n=60, extra=15, dx=8, dy=11, noise=0.3)
    seeds, steps = truth.take(np.arange(10)), 10
    run = fit(
        x, y, seeds, mode="paper", start="procrustes", anchors=25, adam_steps=steps, learning_rate=0.02,
        fix_seeds=fix_seeds,
    )  # fmt: skip
    ax, seed_y = run.anchors_x.double(), y[seeds.y.tolist()].double()
    x, y = x.double(), y.double()
    start = ax[10:] @ linalg.procrustes(ax[:10], seed_y)[0].double()
    raw = torch.cat([seed_y, start / start.norm(dim=1, keepdim=True)]).requires_grad_(True)
    optimiser = torch.optim.Adam([raw], lr=0.02)
    for _ in range(steps):
        anchors_y = raw / raw.norm(dim=1, keepdim=True)
        if fix_seeds:
            anchors_y = torch.cat([seed_y, anchors_y[10:]])
        b = targets_by_vote(*(v.detach().numpy() for v in (x, y, ax, anchors_y)))
        optimiser.zero_grad()
        ((y @ anchors_y.T - torch.from_numpy(b) @ ax.T) ** 2).mean().backward()
        optimiser.step()
    want = (raw / raw.norm(dim=1, keepdim=True)).detach()
    if fix_seeds:
        want[:10] = seed_y
    torch.testing.assert_close(run.anchors_y.double(), want, rtol=0, atol=1e-3)
    assert float((want[10:] - start).norm(dim=1).min()) > 0.02, "ten steps must have moved the anchors"


@pytest.mark.parametrize("loss", ["mean", "sum"])
def test_the_loss_reported_is_the_loss_by_brute_force(loss):
    x, y, truth = planted(n=60, extra=15, dx=8, dy=11, noise=0.3)
    steps, run = walk(x, y, truth.take(np.arange(10)), mode="paper", anchors=25, adam_steps=6, loss=loss)
    ax = run.anchors_x.double().numpy()
    for before, step in zip(steps, steps[1:], strict=False):  # a step reports the loss of the anchors it starts from
        ay = before.snapshot.map_y.T.double().numpy()
        b = targets_by_vote(x.double().numpy(), y.double().numpy(), ax, ay)
        square = (y.double().numpy() @ ay.T - b @ ax.T) ** 2
        want = square.mean() if loss == "mean" else square.sum(1).mean()
        assert step.metrics["loss"] == pytest.approx(want, rel=1e-4)


def test_fixed_seeds_stay_and_free_ones_move():
    seed_y = Y[SEEDS.y.tolist()]
    fixed = fit(X, Y, SEEDS, mode="paper", anchors=60, adam_steps=5)
    free = fit(X, Y, SEEDS, mode="paper", anchors=60, adam_steps=5, fix_seeds=False)
    torch.testing.assert_close(fixed.anchors_y[:15], seed_y, rtol=0, atol=1e-6)
    assert float((free.anchors_y[:15] - seed_y).norm(dim=1).max()) > 1e-2


def test_the_random_start_is_random_on_the_sphere():
    steps, run = walk(X, Y, SEEDS, mode="paper", anchors=100, adam_steps=1, learning_rate=1e-6)
    start = steps[0].snapshot.map_y.T[15:]
    np.testing.assert_allclose(start.norm(dim=1).numpy(), 1, atol=1e-5)
    assert float(start.mean(0).norm()) < 0.3 and not run.converged


def test_the_plan_reports_its_marginals():
    """Case B18: mass and marginals after the last solve; columns exact, rows not."""
    steps, _ = walk(X, Y, SEEDS, mode="paper", anchors=60, adam_steps=3, correspondence="soft")
    assert steps[-1].metrics["column marginal error"] < 1e-6
    assert steps[-1].metrics["row marginal error"] > 1e-2
    many, _ = walk(
        X, Y, SEEDS, mode="paper", anchors=60, adam_steps=3, correspondence="soft", epsilon=1.0,
        epsilon_scale="relative", sinkhorn_iterations=500,
    )  # fmt: skip
    assert many[-1].metrics["row marginal error"] < 1e-2


def test_no_correction_for_hubs_collapses():
    """Without the row potential few x rows serve as everybody's target, and the loss is lower (ao.md, section 6)."""
    x, y, truth = planted(n=300, noise=0.3)
    x, y = unit_rows(x + unit_rows(torch.ones(1, 20))), unit_rows(y + unit_rows(torch.ones(1, 28)))
    params = dict(mode="paper", anchors=100, adam_steps=60)
    collapsed, _ = walk(x, y, truth.take(np.arange(15)), correspondence="nearest", **params)
    voted, _ = walk(x, y, truth.take(np.arange(15)), correspondence="vote", **params)
    assert collapsed[-1].metrics["distinct targets"] < 0.5 * voted[-1].metrics["distinct targets"]
    assert collapsed[-1].metrics["loss"] < voted[-1].metrics["loss"]


@pytest.mark.parametrize("side", ["x", "y"])
@pytest.mark.parametrize(
    ("params", "quantity"),
    [
        ({"mode": "paper"}, "loss became nan"),
        ({"mode": "paper", "correspondence": "soft"}, "loss became nan"),
        ({}, "second moment of SIDE became NaN or infinite"),
        ({"rounds": 0}, "second moment of SIDE became NaN or infinite"),
    ],
)
def test_nan_breaks_off_with_step_and_quantity(params, quantity, side):
    x, y = X.clone(), Y.clone()
    (x if side == "x" else y)[1, 2] = torch.nan  # no seed
    assert 1 not in SEEDS.x and 1 not in SEEDS.y
    with pytest.raises(RunFailed, match=rf"^{quantity.replace('SIDE', side)} at step 1; kept is step 0\.$") as caught:
        fit(x, y, SEEDS, anchors=60, adam_steps=3, **params)
    assert caught.value.step == 0


# ---------------------------------------------------------------- symmetries and seeds of randomness


@pytest.mark.parametrize("mode", ["alternating", "paper"])
def test_permuting_the_rows_of_y_permutes_the_result(mode):
    x, y, truth = planted(n=150, extra=30, noise=0.1)
    order = np.random.default_rng(5).permutation(len(y))
    place = np.argsort(order)
    seeds = truth.take(np.arange(0, 150, 8))
    moved = Pairs(np.stack([seeds.x, place[seeds.y]], 1))
    params = dict(mode=mode, start="procrustes", anchors=50, adam_steps=10)
    a, b = fit(x, y, seeds, **params), fit(x, y[order.tolist()], moved, **params)
    np.testing.assert_array_equal(place[a.anchors.y], b.anchors.y)
    torch.testing.assert_close(a.y[order.tolist()], b.y, rtol=0, atol=2e-3)
    torch.testing.assert_close(a.x, b.x, rtol=0, atol=1e-6)


@pytest.mark.parametrize("params", [{}, {"mode": "paper", "adam_steps": 5}], ids=["alternating", "paper"])
def test_one_seed_one_result(params):
    a, b, other = (fit(X, Y, SEEDS, seed, anchors=60, **params) for seed in (0, 0, 1))
    assert torch.equal(a.x, b.x) and torch.equal(a.y, b.y) and torch.equal(a.anchors_y, b.anchors_y)
    np.testing.assert_array_equal(a.anchors.array, b.anchors.array)
    assert set(a.anchors.x) != set(other.anchors.x)


# ---------------------------------------------------------------- anchors and rows


@pytest.mark.parametrize("params", [{}, {"mode": "paper", "adam_steps": 3}], ids=["alternating", "paper"])
def test_the_alignment_is_relative_to_the_anchors_it_names(params):
    run = fit(3 * X, 0.5 * Y, SEEDS, anchors=60, **params)
    torch.testing.assert_close(run.anchors_x, X[run.anchors.x.tolist()], rtol=0, atol=1e-6)
    np.testing.assert_allclose(run.anchors_y.norm(dim=1).numpy(), 1, atol=1e-5)
    torch.testing.assert_close(run.x, X @ run.anchors_x.T, rtol=0, atol=1e-5)
    torch.testing.assert_close(run.y, Y @ run.anchors_y.T, rtol=0, atol=1e-5)
    torch.testing.assert_close(run.encode_x(X), run.x, rtol=0, atol=1e-5)
    torch.testing.assert_close(run.encode_y(Y), run.y, rtol=0, atol=1e-5)
    assert list(run.history["iteration"]) == list(range(1, len(run.history) + 1))


@pytest.mark.parametrize("discretise", ["one_to_one", "nearest"])
@pytest.mark.parametrize("mode", ["alternating", "paper"])
def test_seeds_keep_their_rows(mode, discretise):
    run = fit(X, Y, SEEDS, mode=mode, anchors=60, adam_steps=3, discretise=discretise, fix_seeds=False)
    np.testing.assert_array_equal(run.anchors.array[:15], SEEDS.array)
    assert len(set(run.anchors.x)) == 60


def test_one_to_one_has_no_row_twice_and_nearest_may():
    """Anchors that have barely left a random start: many share their nearest row."""
    params = dict(mode="paper", anchors=200, adam_steps=1, learning_rate=1e-6)
    single = fit(X, Y, SEEDS, discretise="one_to_one", **params)
    nearest = fit(X, Y, SEEDS, discretise="nearest", **params)
    assert len(set(single.anchors.y)) == 200 and not any("distinct" in n for n in single.notes)
    distinct = len(set(nearest.anchors.y))
    assert distinct < 200 and f"200 anchors lie on {distinct} distinct rows of y" in nearest.notes
    want = (nearest.anchors_y[15:].double() @ Y.double().T).argmax(1).numpy()
    np.testing.assert_array_equal(nearest.anchors.y[15:], want)


def test_one_to_one_is_the_best_assignment():
    """No swap of two anchors' rows, and no free row, makes the sum of cosines larger."""
    run = fit(X, Y, SEEDS, mode="paper", anchors=80, adam_steps=1)
    similarity = (run.anchors_y[15:].double() @ Y.double().T).numpy()
    rows = run.anchors.y[15:]
    own = similarity[np.arange(65), rows]
    swapped = similarity[:, rows]
    assert (swapped + swapped.T <= own[:, None] + own + 1e-6).all()
    free = np.setdiff1d(np.arange(len(Y)), run.anchors.y)
    assert (similarity[:, free] <= own[:, None] + 1e-6).all()


def test_more_anchors_than_rows_are_said():
    x, y, truth = planted(n=80, extra=10)
    run = fit(x, y, truth.take(np.arange(15)), anchors=300)
    assert len(run.anchors) == 80 and set(run.anchors.x) == set(range(80))
    assert any(n.startswith("300 anchors asked for, 80 used") for n in run.notes)


def test_fewer_anchors_than_seeds_are_said():
    run = fit(X, Y, SEEDS, anchors=5)
    np.testing.assert_array_equal(run.anchors.array, SEEDS.array)
    assert any(n.startswith("5 anchors asked for, 15 used") for n in run.notes)


def test_more_anchors_than_rows_of_y_share_rows_and_say_so():
    """One-to-one is impossible then."""
    x, y, truth = planted(n=90, extra=10)
    small = truth.take(np.arange(60))
    keep = torch.from_numpy(np.sort(small.y))
    seeds = Pairs(np.stack([small.x[:15], np.searchsorted(keep.numpy(), small.y[:15])], 1))
    run = fit(x, y[keep], seeds, anchors=90)
    assert len(run.anchors) == 90 and len(set(run.anchors.y)) <= 60
    assert any("distinct rows of y" in n for n in run.notes)


def test_no_seeds_is_refused():
    with pytest.raises(InputError, match="needs at least 1 seed pair"):
        fit(X, Y, Pairs.empty())


# ---------------------------------------------------------------- options


def every_choice():
    for f in dataclasses.fields(AnchorOptimization):
        values = f.metadata["choices"] or ((True, False) if isinstance(f.default, bool) else ())
        for value in values:
            for mode in ("alternating", "paper"):
                if f.name == "mode" and value != mode:
                    continue
                yield pytest.param({"mode": mode, f.name: value}, id=f"{mode}-{f.name}-{value}")


@pytest.mark.parametrize("params", list(every_choice()))
def test_every_choice_of_every_option_runs(params):
    x, y, truth = planted(n=60, extra=7, dx=8, dy=11, noise=0.1)
    run = fit(x, y, truth.take(np.arange(10)), **{"anchors": 30, "adam_steps": 3, "rounds": 2, "polish": 2} | params)
    assert run.x.shape == (60, 30) and run.y.shape == (67, 30)
    assert torch.isfinite(run.x).all() and torch.isfinite(run.y).all()


def test_relative_epsilon_counts_in_medians_of_the_nearest_distance():
    x, y, truth = planted(n=60, extra=7, dx=8, dy=11, noise=0.2)
    seeds = truth.take(np.arange(10))
    params = dict(mode="paper", correspondence="soft", start="procrustes", adam_steps=3, anchors=30)
    ax = fit(x, y, seeds, **params).anchors_x
    seed_y = y[seeds.y.tolist()]
    start = torch.cat([seed_y, unit_rows(ax[10:] @ linalg.procrustes(ax[:10], seed_y)[0])])
    distance = torch.cdist((x @ ax.T).double(), (y @ start.T).double())
    median = float(distance.min(1).values.median())
    assert median < 0.9 or median > 1.1, "an absolute epsilon must not be the same by accident"
    relative = fit(x, y, seeds, epsilon=0.3, epsilon_scale="relative", **params)
    absolute = fit(x, y, seeds, epsilon=0.3 * median, **params)
    other = fit(x, y, seeds, epsilon=0.3, **params)
    torch.testing.assert_close(relative.anchors_y, absolute.anchors_y, rtol=0, atol=1e-4)
    assert float((relative.anchors_y - other.anchors_y).abs().max()) > 1e-3


@pytest.mark.parametrize("params", [{}, {"mode": "paper"}, {"mode": "paper", "correspondence": "soft"}])
def test_the_estimate_grows_with_the_data(params):
    ao = method("ao", **params)
    small, large = ao.estimate(1000, 1000, 100, 150, 15), ao.estimate(20_000, 20_000, 100, 150, 15)
    assert 0 < small.seconds < large.seconds and 0 < small.memory < large.memory
    assert large.memory < 2 * 2**30  # no n x m matrix: 20k x 20k float32 alone is 1.5 GiB


def test_more_anchors_than_rows_of_y_are_not_one_to_one_and_that_is_said():
    run = fit(X, Y[:60], Pairs.by_row(15), anchors=100)
    assert len(run.anchors) == 100 and len(np.unique(run.anchors.y)) <= 60
    assert any("not one to one" in note for note in run.notes)
    assert not any("not one to one" in note for note in fit(X, Y, SEEDS, anchors=60).notes)


# ---------------------------------------------------------------- other similarities to the anchors found


def bent():
    """Y under a map of condition 30: a rotation no more."""
    g = torch.Generator().manual_seed(5)
    return Y @ (torch.linalg.qr(torch.randn(28, 28, generator=g))[0] * torch.logspace(0, 1.2, 28))


def partners(run, truth=TRUTH) -> float:
    """Share of rows whose partner is nearest."""
    best = (unit_rows(run.x) @ unit_rows(run.y).T).argmax(1).numpy()
    return float((best[truth.x] == truth.y).mean())


@pytest.mark.parametrize("similarity", anchored.SIMILARITIES[1:])
def test_the_anchors_found_are_the_support_of_another_similarity(similarity):
    from relcore.ops.similarity import KernelLeftOut, ridge_of
    from relcore.ops.similarity import fit as fitted

    params = dict(anchors=60, shrinkage="fixed", shrinkage_amount=0.2, gamma=1.3, kernel_ridge=0.5)
    plain, run = fit(X, Y, SEEDS, anchors=60), fit(X, Y, SEEDS, similarity=similarity, **params)
    np.testing.assert_array_equal(run.anchors.array, plain.anchors.array)  # the search is the same
    torch.testing.assert_close(run.map, plain.map, rtol=0, atol=0)
    for v, at, out, encode in (
        (X, run.anchors.x, run.x, run.encode_x),
        (Y, run.anchors.y, run.y, run.encode_y),
    ):
        support = v[at.tolist()]
        if similarity == "kernel":
            want = KernelLeftOut(support, ridge_of(0.2)).similarity(None, 0.5)(v)
        else:
            s = fitted(similarity, support, ridge=ridge_of(0.2), gamma=1.3)
            want = s(v, support)
            if s.is_cosine:  # which keep the length of the row
                want = want * s.white(v).norm(dim=1, keepdim=True).float()
        torch.testing.assert_close(out, want, rtol=1e-3, atol=1e-3 * float(want.abs().max()))
        torch.testing.assert_close(encode(v), out, rtol=1e-5, atol=1e-5)


def test_whitening_the_anchors_found_undoes_a_map_that_is_no_rotation():
    """With all seeds given, so that what is found is right: only the comparison differs."""
    seeds = TRUTH.take(np.arange(150))
    runs = [fit(X, bent(), seeds, anchors=150, similarity=s) for s in ("cosine", "wip")]
    assert partners(runs[1]) > max(0.9, partners(runs[0]) + 0.1)
    assert set(runs[1].chosen) == {"shrinkage_amount"} and runs[0].chosen == {}


def test_a_row_of_y_that_serves_several_anchors_counts_once():
    assert once(np.array([7, 3, 7, 3, 5, 7]), np.array([0.1, 0.2, 0.9, 0.8, 0.5, 0.95]), 1).tolist() == [0, 3, 4]
    x, y, truth = planted(n=90, extra=10)
    small = truth.take(np.arange(60))
    keep = torch.from_numpy(np.sort(small.y))
    seeds = Pairs(np.stack([small.x[:15], np.searchsorted(keep.numpy(), small.y[:15])], 1))
    run = fit(x, y[keep], seeds, anchors=90, similarity="wip")
    distinct = len(set(run.anchors.y))
    assert run.x.shape[1] == run.y.shape[1] == distinct < 90 and len(run.anchors) == 90
    assert "wip: of anchors that share a row of y only the nearest has a part" in run.notes


def test_too_few_anchors_for_a_covariance_are_refused():
    with pytest.raises(InputError, match="covariance of the anchors and needs at least 4 of them, got 3; add anchors"):
        fit(X, Y, SEEDS.take(np.arange(2)), anchors=3, similarity="wip")
    with pytest.raises(InputError, match="20 anchors have no covariance of full rank in 28 dimensions"):
        fit(X, Y, SEEDS, anchors=20, similarity="wip", shrinkage="fixed", shrinkage_amount=0.0)
    with pytest.raises(RunFailed, match="covariance of at least 4 anchors, but those found lie on 2 rows of y"):
        fit(X, Y[:2], Pairs.by_row(2), anchors=30, similarity="wip")
    assert fit(X, Y, SEEDS.take(np.arange(2)), anchors=3).x.shape == (400, 3)


def test_another_similarity_is_estimated():
    sizes = (5000, 5000, 300, 300, 15)
    plain, white, kernel = (
        method("ao", anchors=2000, similarity=s).estimate(*sizes) for s in ("cosine", "wip", "kernel")
    )
    assert plain.seconds < white.seconds < kernel.seconds and plain.memory < white.memory < kernel.memory
