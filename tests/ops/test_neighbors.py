"""Neighbours against brute force in float64 numpy, hand-made ties, and sizes down to one row."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from relcore.ops import neighbors

SIZES = [(1, 1), (2, 3), (3, 2), (4, 4), (57, 41), (41, 57)]


def sides(n: int, m: int, r: int = 7, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, r, generator=g), torch.randn(m, r, generator=g)


def cosine(x: torch.Tensor, y: torch.Tensor) -> np.ndarray:
    a, b = x.double().numpy(), y.double().numpy()
    return (a / np.linalg.norm(a, axis=1)[:, None]) @ (b / np.linalg.norm(b, axis=1)[:, None]).T


def csls_means(c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return -np.sort(-c, 1)[:, :10].mean(1), -np.sort(-c, 0)[:10].mean(0)


def csls(x: torch.Tensor, y: torch.Tensor) -> np.ndarray:
    c = cosine(x, y)
    rx, ry = csls_means(c)
    return 2 * c - rx[:, None] - ry[None]


def ordered(scores: np.ndarray, k: int) -> np.ndarray:
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


def tied(n: int, m: int, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """One-hot rows: every cosine is exactly 0 or 1, so nearly everything ties."""
    rng = np.random.default_rng(seed)
    return tuple(torch.eye(4)[torch.from_numpy(rng.integers(0, 4, size))] for size in (n, m))


def test_unit_rows_scales_and_leaves_zero():
    v = torch.tensor([[3.0, 4.0], [0.0, 0.0], [1e-20, 0.0]])
    u = neighbors.unit_rows(v)
    torch.testing.assert_close(u, torch.tensor([[0.6, 0.8], [0.0, 0.0], [1.0, 0.0]]))
    assert u.dtype == torch.float32


@pytest.mark.parametrize(("n", "m"), SIZES)
@pytest.mark.parametrize("block", [None, 1, 5])
def test_topk_is_the_brute_force_list(n, m, block):
    x, y = sides(n, m)
    for k in {1, (m + 1) // 2, m}:
        scores, indices = neighbors.topk_cosine(x, y, k, block=block)
        want = ordered(cosine(x, y), k)
        assert scores.dtype == torch.float32 and indices.dtype == torch.int64
        np.testing.assert_array_equal(indices.numpy(), want)
        np.testing.assert_allclose(scores.numpy(), np.take_along_axis(cosine(x, y), want, 1), atol=1e-6)


@pytest.mark.parametrize("k", [1, 3, 10, 40])
def test_equal_scores_come_by_lowest_index(k):
    x, y = tied(30, 40)
    _, indices = neighbors.topk_cosine(x, y, k, block=7)
    np.testing.assert_array_equal(indices.numpy(), ordered((x @ y.T).numpy(), k))


@pytest.mark.parametrize("m", [2560, 2571])
@pytest.mark.parametrize("make", [sides, tied])
def test_many_targets_are_searched_by_groups_with_the_same_result(m, make):
    x, y = make(20, m)
    assert m > 4 * neighbors.GROUP * 11
    for search, scores in ((neighbors.topk_cosine, cosine(x, y)), (neighbors.topk_csls, csls(x, y))):
        np.testing.assert_array_equal(search(x, y, 10)[1].numpy(), ordered(scores, 10))


@pytest.mark.parametrize("make", [sides, tied])
def test_rank_is_the_position_in_the_list(make):
    x, y = make(30, 40)
    rows_x, rows_y = torch.arange(30).flip(0), torch.arange(30)
    rank = neighbors.partner_rank(x, y, rows_x, rows_y, block=7)
    position = (ordered(cosine(x, y), 40)[rows_x.numpy()] == rows_y.numpy()[:, None]).argmax(1) + 1
    assert rank.dtype == torch.int64
    np.testing.assert_array_equal(rank.numpy(), position)


def rules(x, y):
    c = cosine(x, y)
    weights = np.exp(c * 30)
    return {
        "csls": (neighbors.csls_rule(x, y, neighbors.csls_means(x, y)), csls(x, y)),
        "inverted softmax": (neighbors.inverted_softmax_rule(x, y), np.log(weights / weights.sum(0))),
    }


@pytest.mark.parametrize("name", ["csls", "inverted softmax"])
def test_every_rule_ranks_as_its_formula_orders(name):
    x, y = sides(57, 41)
    rule, scores = rules(x, y)[name]
    rows, partners = torch.arange(57).flip(0), torch.arange(57) % 41
    position = (ordered(scores, 41)[rows.numpy()] == partners.numpy()[:, None]).argmax(1) + 1
    np.testing.assert_array_equal(rule.rank(rows, partners, block=7).numpy(), position)
    np.testing.assert_array_equal(rule.top_k(41, block=7)[1][rows, rule.rank(rows, partners) - 1].numpy(), partners)


def test_copies_of_a_target_are_ranked_in_their_order():
    """Equal scores by lowest index, under every rule: a copy stands just behind the row it repeats."""
    x, y = sides(20, 6)
    y = y.repeat(3, 1)
    for rule in (neighbors.cosine_rule(x, y), *(rule for rule, _ in rules(x, y).values())):
        ranks = torch.stack([rule.rank(torch.arange(20), torch.full((20,), 4 + 6 * copy)) for copy in range(3)])
        assert (ranks[1] == ranks[0] + 1).all() and (ranks[2] == ranks[0] + 2).all()


def test_nothing_to_rank_is_no_rank():
    x, y = sides(5, 6)
    nothing = torch.zeros(0, dtype=torch.int64)
    assert neighbors.partner_rank(x, y, nothing, nothing).shape == (0,)


def test_a_space_against_itself_ranks_first():
    x, _ = sides(3000, 1, r=50)
    rows = torch.arange(3000)
    assert (neighbors.partner_rank(x, x, rows, rows) == 1).all()


def test_a_collapsed_space_does_not_rank_first():
    x, y = torch.ones(100, 5), torch.ones(100, 5)
    rows = torch.arange(100)
    np.testing.assert_array_equal(neighbors.partner_rank(x, y, rows, rows).numpy(), rows.numpy() + 1)


@pytest.mark.parametrize(("n", "m"), SIZES)
def test_csls_is_its_formula(n, m):
    x, y = sides(n, m)
    rx, ry = csls_means(cosine(x, y))
    means = neighbors.csls_means(x, y, block=9)
    np.testing.assert_allclose(means[0].numpy(), rx, atol=1e-6)
    np.testing.assert_allclose(means[1].numpy(), ry, atol=1e-6)
    want = csls(x, y)
    k = min(5, m)
    scores, indices = neighbors.topk_csls(x, y, k, block=9)
    np.testing.assert_array_equal(indices.numpy(), ordered(want, k))
    np.testing.assert_allclose(scores.numpy(), np.take_along_axis(want, ordered(want, k), 1), atol=1e-5)
    part = neighbors.topk_csls(x[:1], y, k, means=(means[0][:1], means[1]))
    np.testing.assert_array_equal(part[1].numpy(), indices[:1].numpy())


@pytest.mark.parametrize(("n", "m"), SIZES)
def test_inverted_softmax_is_its_formula(n, m):
    x, y = sides(n, m)
    weights = np.exp(cosine(x, y) * 30)
    want = np.log(weights / weights.sum(0))
    k = min(5, m)
    scores, indices = neighbors.topk_inverted_softmax(x, y, k, block=9)
    best = ordered(want, k)
    np.testing.assert_allclose(scores.numpy(), np.take_along_axis(want, best, 1), atol=1e-4)
    if n > 1:  # a single query has probability 1 everywhere: rounding orders the list
        np.testing.assert_array_equal(indices.numpy(), best)


@pytest.mark.parametrize(("n", "m"), SIZES)
@pytest.mark.parametrize("make", [sides, tied])
def test_mutual_neighbours_are_brute_force(n, m, make):
    x, y = make(n, m)
    c = cosine(x, y)
    want = [(i, c[i].argmax()) for i in range(n) if c[:, c[i].argmax()].argmax() == i]
    for block in (None, 4):
        got = neighbors.mutual_nearest(x, y, block=block)
        assert got.dtype == torch.int64
        np.testing.assert_array_equal(got.numpy(), np.array(want).reshape(-1, 2))
        to_y, to_x = neighbors.nearest_both(x, y, block=block)
        np.testing.assert_array_equal(to_y.numpy(), c.argmax(1))
        np.testing.assert_array_equal(to_x.numpy(), c.argmax(0))


def test_k_occurrence_counts_every_target():
    _, indices = neighbors.topk_cosine(*sides(57, 41), 10)
    counts = neighbors.k_occurrence(indices, 41)
    assert counts.tolist() == [int((indices == j).sum()) for j in range(41)]
    assert counts.sum() == 570


@pytest.mark.parametrize("k", [0, 42])
def test_k_out_of_range_is_named(k):
    with pytest.raises(ValueError, match=f"k is {k}, wanted 1 to 41"):
        neighbors.topk_cosine(*sides(57, 41), k)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_named(bad):
    x, y = sides(10, 12)
    y[7, 2] = bad
    for call in (lambda: neighbors.topk_cosine(x, y, 3), lambda: neighbors.mutual_nearest(x, y)):
        with pytest.raises(ValueError, match="row 7 of the second table"):
            call()


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match="equal width"):
        neighbors.topk_cosine(torch.ones(3, 2), torch.ones(3, 4), 1)
    with pytest.raises(ValueError, match="at least one target"):
        neighbors.topk_cosine(torch.ones(3, 2), torch.ones(0, 2), 1)
