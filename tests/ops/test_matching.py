"""Matching against brute force in float64 numpy, and Sinkhorn against POT."""

from __future__ import annotations

import math

import numpy as np
import ot
import pytest
import torch
from scipy.special import logsumexp

from relcore.ops import matching
from relcore.ops.neighbors import unit_rows

TILES = [1, 50, 333, 1 << 22]  # elements of a tile: one row at a time up to everything at once
SHAPES = [(5, 9, 7), (5, 9, 40), (9, 5, 7), (9, 5, 3), (9, 5, 40), (6, 6, 6)]  # d_x, d_y, anchors


def draw(n: int, m: int, dx: int = 5, dy: int = 9, k: int = 40, seed: int = 0):
    """Unit rows and anchors of two sides that have nothing to do with each other."""
    g = torch.Generator().manual_seed(seed)
    return [unit_rows(torch.randn(rows, d, generator=g)) for rows, d in ((n, dx), (m, dy), (k, dx), (k, dy))]


def points(n: int, m: int, d: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, matching.Factors]:
    """Random float64 rows and the factors of their plain Euclidean distances."""
    g = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(rows, d, generator=g, dtype=torch.float64) for rows in (n, m))
    return x, y, matching.Factors(x, y, (x * x).sum(1), (y * y).sum(1))


def distances(x: torch.Tensor, y: torch.Tensor) -> np.ndarray:
    a, b = x.double().numpy(), y.double().numpy()
    return np.sqrt(((a[:, None] - b[None]) ** 2).sum(2))


def relative_distances(x, y, anchors_x, anchors_y) -> np.ndarray:
    return distances(x.double() @ anchors_x.double().T, y.double() @ anchors_y.double().T)


def plan_of(m: np.ndarray, u, v, epsilon: float) -> np.ndarray:
    return np.exp((np.asarray(u)[:, None] + np.asarray(v) - m) / epsilon)


# ---------------------------------------------------------------- tiles and factors


@pytest.mark.parametrize(("n", "m", "elements"), [(1, 1, 1), (10, 3, 1), (10, 3, 7), (10, 3, 30), (10, 3, 1000)])
def test_tiles_cover_every_row_once_within_the_limit(n, m, elements):
    ranges = list(matching.tiles(n, m, elements))
    assert [i for r in ranges for i in range(r.start, r.stop)] == list(range(n))
    assert all((r.stop - r.start) * m <= elements or r.stop - r.start == 1 for r in ranges)


@pytest.mark.parametrize(("dx", "dy", "k"), SHAPES)
def test_factors_give_the_distances_of_the_relative_representations(dx, dy, k):
    x, y, ax, ay = (t.double() for t in draw(30, 20, dx, dy, k))
    f = matching.distance_factors(x, y, ax, ay)
    square = f.square_left[:, None] + f.square_right - 2 * f.left @ f.right.T
    np.testing.assert_allclose(square.numpy(), relative_distances(x, y, ax, ay) ** 2, atol=1e-12)
    assert f.left.shape[1] == min(dx, dy, k)


# ---------------------------------------------------------------- votes


def vote_by_brute_force(m: np.ndarray, x: np.ndarray):
    """The definition, one row at a time."""
    favourite = m.argmin(1)
    gap = m - m.min(1, keepdims=True)
    target, best = np.empty((m.shape[1], x.shape[1])), []
    for j in range(m.shape[1]):
        voters = np.flatnonzero(favourite == j)
        best.append(voters[0] if len(voters) else gap[:, j].argmin())
        target[j] = x[voters].mean(0) if len(voters) else x[best[j]]
    return target, np.array(best), m.min(1)


@pytest.mark.parametrize("elements", TILES)
@pytest.mark.parametrize(("n", "m"), [(60, 60), (60, 25), (25, 60), (1, 4), (4, 1), (150, 170)])
def test_vote_is_the_definition(n, m, elements):
    x, y, ax, ay = draw(n, m)
    match = matching.vote(matching.distance_factors(x, y, ax, ay), x, elements)
    target, best, nearest = vote_by_brute_force(relative_distances(x, y, ax, ay), x.double().numpy())
    np.testing.assert_array_equal(match.best.numpy(), best)
    np.testing.assert_allclose(match.target.numpy(), target, atol=1e-6)
    np.testing.assert_allclose(match.nearest.numpy(), nearest, atol=1e-5)


def test_voters_of_a_row_all_count():
    """A plain arg-min over the gaps would take the first voter alone."""
    x = torch.tensor([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0]], dtype=torch.float64)
    y = torch.tensor([[0.05, 1.0], [1.0, 0.1]], dtype=torch.float64)
    match = matching.vote(matching.Factors(x, y, (x * x).sum(1), (y * y).sum(1)), x)
    torch.testing.assert_close(match.target, torch.stack([x[:2].mean(0), x[2]]))


def test_vote_is_the_plan_for_vanishing_epsilon():
    x, y, f = points(40, 50, 6, seed=3)
    m = distances(x, y)
    two = np.sort(m, 1)[:, :2]
    gap = np.sort(m - m.min(1, keepdims=True), 0)[:2]
    lone = np.bincount(m.argmin(1), minlength=50) == 0
    epsilon = 1e-5
    assert np.diff(two, axis=1).min() > 50 * epsilon, "near ties: choose another draw"
    assert np.diff(gap[:, lone], axis=0).min() > 50 * epsilon, "near ties: choose another draw"
    votes, plan = matching.vote(f, x), matching.sinkhorn_match(f, x, epsilon)
    torch.testing.assert_close(votes.target, plan.match.target, rtol=0, atol=1e-9)
    assert len(np.unique(m.argmin(1))) < len(m), "some row must have several voters for the test to mean anything"


@pytest.mark.parametrize("elements", TILES)
def test_nearest_is_the_column_minimum(elements):
    x, y, ax, ay = draw(60, 25)
    match = matching.nearest(matching.distance_factors(x, y, ax, ay), x, elements)
    m = relative_distances(x, y, ax, ay)
    np.testing.assert_array_equal(match.best.numpy(), m.argmin(0))
    torch.testing.assert_close(match.target, x[m.argmin(0)])
    np.testing.assert_allclose(match.nearest.numpy(), m.min(1), atol=1e-5)


# ---------------------------------------------------------------- Sinkhorn


@pytest.mark.parametrize("elements", TILES)
@pytest.mark.parametrize(("n", "m"), [(80, 60), (60, 80)])
@pytest.mark.parametrize("epsilon", [1e-4, 1e-2, 0.3])
def test_one_iteration_is_the_inverted_softmax(n, m, epsilon, elements):
    """P(x_i | y_j) is proportional to exp(-M_ij / eps) / sum_j' exp(-M_ij' / eps) (Smith et al. 2017)."""
    x, y, f = points(n, m, 4)
    plan = matching.sinkhorn_match(f, x, epsilon, elements=elements)
    score = -distances(x, y) / epsilon
    score -= logsumexp(score, 1, keepdims=True)
    weight = np.exp(score - logsumexp(score, 0, keepdims=True))
    np.testing.assert_allclose(plan.match.target.numpy(), weight.T @ x.numpy(), atol=1e-8)
    np.testing.assert_allclose(weight[plan.match.best.numpy(), np.arange(m)], weight.max(0), atol=1e-8)  # many tie
    np.testing.assert_allclose(plan_of(distances(x, y), plan.u, plan.v, epsilon) * m, weight, atol=1e-8)
    assert plan.iterations == 1 and not plan.converged


def test_column_sums_are_exact_after_one_iteration_and_row_sums_are_not():
    x, y, f = points(100, 70, 5)
    plan = matching.sinkhorn_match(f, x, 1e-2)
    row_sums, column_sums = matching.marginals(f, plan.u, plan.v, 1e-2)
    np.testing.assert_allclose(column_sums.numpy(), 1 / 70, rtol=1e-9)
    assert float((row_sums - 1 / 100).abs().sum()) > 0.1


@pytest.mark.parametrize("elements", TILES)
def test_marginals_are_the_sums_of_the_plan(elements):
    x, y, f = points(30, 20, 4)
    g = torch.Generator().manual_seed(1)
    u, v = (torch.rand(rows, generator=g, dtype=torch.float64) for rows in (30, 20))
    row_sums, column_sums = matching.marginals(f, u, v, 0.2, elements)
    want = plan_of(distances(x, y), u, v, 0.2)
    np.testing.assert_allclose(row_sums.numpy(), want.sum(1), rtol=1e-9)
    np.testing.assert_allclose(column_sums.numpy(), want.sum(0), rtol=1e-9)


@pytest.mark.parametrize("epsilon", [0.05, 0.5])
def test_many_iterations_agree_with_pot(epsilon):
    x, y, f = points(40, 30, 5)
    m = distances(x, y)
    plan = matching.sinkhorn_match(f, x, epsilon, 5000, stop_error=1e-12)
    a, b = np.full(40, 1 / 40), np.full(30, 1 / 30)
    want, log = ot.bregman.sinkhorn_log(a, b, m, epsilon, numItermax=20000, stopThr=1e-13, log=True)
    assert plan.converged and plan.iterations < 5000
    got = plan_of(m, plan.u, plan.v, epsilon)
    np.testing.assert_allclose(got, want, atol=1e-6 * want.max())
    u, v = epsilon * log["log_u"], epsilon * log["log_v"]
    shift = plan.u.numpy().mean() - u.mean()
    np.testing.assert_allclose(plan.u.numpy() - shift, u, atol=1e-6)
    np.testing.assert_allclose(plan.v.numpy() + shift, v, atol=1e-6)
    np.testing.assert_allclose(plan.match.target.numpy(), (want / want.sum(0)).T @ x.numpy(), atol=1e-5)


@pytest.mark.parametrize("elements", TILES)
def test_tiles_do_not_change_the_plan(elements):
    x, y, f = points(70, 40, 4)
    whole = matching.sinkhorn_match(f, x, 0.1, 7)
    tiled = matching.sinkhorn_match(f, x, 0.1, 7, elements=elements)
    for a, b in zip((whole.match.target, whole.u, whole.v), (tiled.match.target, tiled.u, tiled.v), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
    assert torch.equal(whole.match.best, tiled.match.best)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # POT's, on its way to the empty plan
@pytest.mark.parametrize("epsilon", [1e-1, 1e-3, 1e-4])
@pytest.mark.parametrize("cost", ["euclidean", "cosine"])
def test_small_epsilon_never_empties_the_plan(epsilon, cost):
    """POT #54 and others: 120 x 100 random rows, reg 1e-4, and a kernel that is 0 everywhere (case B18)."""
    x, y, f = points(120, 100, 32)
    if cost == "cosine":
        x, y = (v / v.norm(dim=1, keepdim=True) for v in (x, y))  # 1 - cos is half the square of this distance
        f = matching.Factors(x, y, (x * x).sum(1), (y * y).sum(1))
    if epsilon == 1e-4:
        with pytest.warns(UserWarning):
            empty = ot.sinkhorn(np.full(120, 1 / 120), np.full(100, 1 / 100), distances(x, y), epsilon)
        assert not empty.sum() > 0.5, "the trap this test is about is gone from POT"
    plan = matching.sinkhorn_match(f, x, epsilon, 200)
    row_sums, column_sums = matching.marginals(f, plan.u, plan.v, epsilon)
    assert float(row_sums.sum()) == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(column_sums.numpy(), 1 / 100, rtol=1e-6)
    assert torch.isfinite(plan.match.target).all() and torch.isfinite(plan.u).all() and torch.isfinite(plan.v).all()
    error = float((row_sums - 1 / 120).abs().sum())
    if epsilon == 1e-4:
        assert not plan.converged and plan.iterations == 200  # a state, not an exception
        assert error > 1e-3, "not converged must be visible in the row marginals"
    if epsilon == 1e-1:
        assert error < 1e-3


def test_converged_plan_is_the_one_returned():
    x, y, f = points(30, 40, 4)
    long = matching.sinkhorn_match(f, x, 0.5, 10_000, stop_error=1e-9)
    assert long.converged and long.iterations < 10_000
    same = matching.sinkhorn_match(f, x, 0.5, long.iterations, stop_error=0.0)
    torch.testing.assert_close(long.u, same.u, rtol=0, atol=1e-12)
    torch.testing.assert_close(long.match.target, same.match.target, rtol=0, atol=1e-12)


@pytest.mark.parametrize("match", [matching.vote, matching.nearest])
def test_equal_points_give_no_nan(match):
    x, y, ax, ay = draw(20, 20, 6, 6)
    f = matching.distance_factors(x, x, ax, ax)
    out = match(f, x)
    assert torch.isfinite(out.target).all() and torch.isfinite(out.nearest).all()
    assert out.best.tolist() == list(range(20))
    plan = matching.sinkhorn_match(f, x, 1e-4)
    assert plan.match.best.tolist() == list(range(20))
    torch.testing.assert_close(plan.match.target, x, rtol=0, atol=1e-4)
    assert math.isclose(float(sum(matching.marginals(f, plan.u, plan.v, 1e-4)[0])), 1, rel_tol=1e-6)


# ---------------------------------------------------------------- CSLS both ways


def csls_by_brute_force(a: torch.Tensor, b: torch.Tensor, k: int) -> np.ndarray:
    cosine = a.double().numpy() @ b.double().numpy().T
    mean_a = np.sort(cosine, 1)[:, -min(k, cosine.shape[1]) :].mean(1)
    mean_b = np.sort(cosine, 0)[-min(k, cosine.shape[0]) :].mean(0)
    return 2 * cosine - mean_a[:, None] - mean_b


@pytest.mark.parametrize("elements", TILES)
@pytest.mark.parametrize(
    ("n", "m", "k"), [(80, 120, 10), (120, 80, 10), (4, 7, 10), (7, 4, 1), (1, 1, 10), (90, 90, 3)]
)
def test_best_both_ways_is_csls_by_brute_force(n, m, k, elements):
    a, b, *_ = draw(n, m, 6, 6)
    to_b, to_a = matching.best_both_ways(a, b, k, elements=elements)
    score = csls_by_brute_force(a, b, k)
    np.testing.assert_array_equal(to_b.numpy(), score.argmax(1))
    np.testing.assert_array_equal(to_a.numpy(), score.argmax(0))


@pytest.mark.parametrize("columns", [1, 15, 63, 64, 65, 640, 641, 655, 1000])
@pytest.mark.parametrize("k", [1, 3, 10])
def test_largest_is_topk(columns, k):
    """Lengths around whole groups, with ties; values are those of topk, and the columns hold them, each once."""
    scores = torch.randn(20, columns, generator=torch.Generator().manual_seed(columns))
    scores[10:] = scores[10:].round()
    k = min(k, columns)
    top, places = matching._largest(scores, k)
    assert torch.equal(top, scores.topk(k, 1).values) and torch.equal(scores.gather(1, places), top)
    assert all(len(set(row)) == k for row in places.tolist())


def test_csls_corrects_a_hub_that_cosine_falls_for():
    """Every a row is nearest to the hub, yet each has a partner of its own."""
    g = torch.Generator().manual_seed(0)
    partner = unit_rows(torch.randn(30, 40, generator=g))
    hub = unit_rows(partner.mean(0, keepdim=True))
    a = unit_rows(partner + 1.5 * hub)
    b = torch.cat([unit_rows(partner + 0.25 * hub), hub])
    assert ((a @ b.T).argmax(1) == 30).all()
    to_b, to_a = matching.best_both_ways(a, b)
    assert to_b.tolist() == list(range(30)) and to_a[:30].tolist() == list(range(30))
