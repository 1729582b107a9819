"""Starts: what they promise of themselves, and planted turns that they must find."""

from __future__ import annotations

import itertools

import pytest
import torch

from relcore.ops import starts
from relcore.ops.climb import agreement
from relcore.ops.linalg import polar
from relcore.ops.neighbors import unit_rows


def clustered(n: int, d: int, seed: int, spread: float = 0.3) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    centres = torch.randn(7, d, generator=torch.Generator().manual_seed(99))
    share = torch.tensor([0.3, 0.2, 0.15, 0.12, 0.1, 0.08, 0.05])
    member = torch.multinomial(share, n, True, generator=g)
    return unit_rows(centres[member] + spread * torch.randn(n, d, generator=g))


def turn(d: int, seed: int) -> torch.Tensor:
    return starts.random_orthogonal(d, [seed], 5)[0]


def test_random_starts_are_orthogonal_with_both_determinants_and_their_own_draws():
    maps = starts.random_orthogonal(6, [0, 1, 2, 3], 3)
    torch.testing.assert_close(maps @ maps.transpose(1, 2), torch.eye(6).expand(4, 6, 6), atol=1e-5, rtol=0)
    assert torch.linalg.det(maps).sign().tolist() == [1, -1, 1, -1]
    assert torch.linalg.det(starts.random_orthogonal(6, [0, 1, 2], 3, reflections=False)).sign().tolist() == [1, 1, 1]
    assert torch.equal(starts.random_orthogonal(6, [2], 3)[0], maps[2])  # alone or in company
    assert not torch.equal(starts.random_orthogonal(6, [2], 4)[0], maps[2])
    assert torch.equal(starts.random_signs(6, [7, 9], 3)[1], starts.random_signs(6, [9], 3)[0])
    signs = starts.random_signs(5, list(range(40)), 3)
    assert set(signs.abs().unique().tolist()) == {0.0, 1.0} and len(signs.unique(dim=0)) > 20


def test_random_starts_are_uniform_enough():
    """Entries of a uniform orthogonal matrix have mean 0 and mean square 1 / d."""
    maps = starts.random_orthogonal(4, list(range(2000)), 1)
    assert maps.mean(0).abs().max() < 0.05
    assert ((maps**2).mean(0) - 0.25).abs().max() < 0.03


@pytest.mark.parametrize("size", [300, 40])
def test_profiles_find_a_planted_turn_of_other_rows(size):
    x, y = clustered(300, 8, 1, 0.2), clustered(size, 8, 2, 0.2) @ turn(8, 4)
    found = starts.profile_match(x, y)
    assert agreement(found, turn(8, 4), x) > (0.85 if size == 300 else 0.6)


def test_profiles_find_a_turned_copy_exactly():
    x = clustered(200, 8, 1)
    found = starts.profile_match(x, (x @ turn(8, 5))[torch.randperm(200)])
    assert agreement(found, turn(8, 5), x) > 0.999


def test_matched_centroids_find_a_planted_turn_and_are_orthogonal():
    x, y = clustered(300, 8, 1, 0.15), clustered(250, 8, 2, 0.15) @ turn(8, 3)
    found = starts.matched_centroids(x, y, 4, 7, torch.Generator().manual_seed(0))
    assert 1 <= len(found) <= 4
    torch.testing.assert_close(found @ found.transpose(1, 2), torch.eye(8).expand_as(found), atol=1e-5, rtol=0)
    assert agreement(found, turn(8, 3), x).max() > 0.75


def test_swaps_end_where_no_swap_improves_and_find_the_best_of_a_small_problem():
    g = torch.Generator().manual_seed(2)
    a, b = (m + m.T for m in torch.randn(2, 6, 6, generator=g))
    order, value = starts.match_by_swaps(a, b, 40, g)
    for p, v in zip(order[:5], value[:5], strict=True):
        assert v == pytest.approx(float((a * b[p][:, p]).sum()), rel=1e-5)
        for i, j in itertools.combinations(range(6), 2):
            q = p.clone()
            q[i], q[j] = p[j], p[i]
            assert float((a * b[q][:, q]).sum()) <= v + 1e-4
    best = max(float((a * b[list(p)][:, list(p)]).sum()) for p in itertools.permutations(range(6)))
    assert float(value.max()) == pytest.approx(best, rel=1e-5)


def test_skewed_signs_undo_signs():
    g = torch.Generator().manual_seed(0)
    x = unit_rows(torch.rand(500, 5, generator=g) ** 3 - 0.25)
    signs = torch.tensor([1.0, -1, -1, 1, -1])
    assert torch.equal(starts.skewed_signs(x, x * signs)[0], torch.diag(signs))


def test_kmeans_finds_points_far_apart_and_counts_them():
    centres = 10 * torch.eye(4)
    v = centres[torch.tensor([0] * 5 + [1] * 10 + [2] * 15 + [3] * 20)] + 0.01 * torch.randn(50, 4)
    centroids, share = starts.kmeans(v, 4, torch.Generator().manual_seed(0))
    order = share.argsort()
    torch.testing.assert_close(centroids[order], centres, atol=0.05, rtol=0)
    torch.testing.assert_close(share[order], torch.tensor([0.1, 0.2, 0.3, 0.4]))


def test_kmeans_of_one_point_many_times():
    centroids, share = starts.kmeans(torch.ones(9, 3), 4, torch.Generator().manual_seed(0))
    assert torch.isfinite(centroids).all() and share.sum() == 1


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_polar_with_a_determinant_is_the_best_of_its_kind(sign):
    g = torch.Generator().manual_seed(1)
    m = torch.randn(5, 3, 3, generator=g)
    found = polar(m, torch.tensor(sign))
    assert torch.linalg.det(found).sign().tolist() == [sign] * 5
    torch.testing.assert_close(found @ found.transpose(1, 2), torch.eye(3).expand(5, 3, 3), atol=1e-5, rtol=0)
    others = starts.random_orthogonal(3, list(range(4000)), 2, reflections=False)
    if sign < 0:
        others[:, :, 0] *= -1
    best = torch.einsum("ijk,ljk->il", m, others).max(1).values
    assert ((found * m).sum((1, 2)) >= best - 1e-4).all()
    free = polar(m)
    torch.testing.assert_close((free * m).sum((1, 2)), torch.linalg.svdvals(m).sum(1))
