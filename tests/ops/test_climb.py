"""Climbing: it climbs, finds planted turns, takes chunks alike wherever they run, and says when it cannot."""

from __future__ import annotations

import pytest
import torch

from relcore.ops import climb, kernel, starts
from relcore.ops.climb import Problem
from relcore.ops.neighbors import unit_rows
from tests.ops.test_starts import clustered, turn


def problem(n: int = 120, d: int = 6, turned: int = 3, **kw) -> Problem:
    return Problem(clustered(n, d, 1), clustered(n, d, 2) @ turn(d, turned), **kw)


def near(found: torch.Tensor, d: int, turned: int, seed: int = 0) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    return climb.polar(turn(d, turned) + 0.25 * torch.randn(len(found), d, d, generator=g))


def test_every_step_of_the_step_free_ascent_raises_the_chordal_objective():
    p, maps = problem(), starts.random_orthogonal(6, list(range(8)), 1)
    before = kernel.objective(maps, p.x, p.y, 0.3, kernel=kernel.chordal)
    for _ in range(10):
        maps = climb.climb(p, maps, ((0.3, 1),), p).maps
        after = kernel.objective(maps, p.x, p.y, 0.3, kernel=kernel.chordal)
        assert (after >= before * (1 - 1e-5)).all()
        before = after
    torch.testing.assert_close(maps @ maps.transpose(1, 2), torch.eye(6).expand_as(maps), atol=1e-4, rtol=0)


@pytest.mark.parametrize("weighted", [False, True])
def test_from_nearby_both_ascents_find_the_planted_turn(weighted):
    p = problem()
    if weighted:  # a row twice, or once with twice the weight
        a = torch.full((120,), 1 / 120)
        p = p._replace(weights=(a, a))
    begin = near(torch.zeros(4), 6, 3)
    assert (climb.agreement(begin, turn(6, 3), p.x) < 0.97).all()
    found = climb.climb(p, begin, ((0.5, 6), (0.3, 6), (0.2, 6)), p)
    assert (climb.agreement(found.maps, turn(6, 3), p.x) > 0.97).all()
    assert found.scores.shape == (3, 4)
    torch.testing.assert_close(found.scores[-1], kernel.objective(found.maps, p.x, p.y, 0.2))
    if not weighted:
        walked = climb.ascend(p, begin, 0.5, tuple(0.3 * 0.9**i for i in range(30)), p)
        assert (climb.agreement(walked.maps, turn(6, 3), p.x) > 0.95).all()


def test_a_step_has_the_length_asked_for_and_keeps_the_determinant():
    p, maps = problem(), starts.random_orthogonal(6, [0, 1, 2], 1)
    moved = climb.ascend(p, maps, 0.7, (0.01,), p).maps
    torch.testing.assert_close(torch.linalg.matrix_norm(moved - maps), torch.full((3,), 0.01), rtol=1e-2, atol=0)
    far = climb.ascend(p, maps, 0.7, (0.5,) * 20, p).maps
    assert torch.equal(torch.linalg.det(far).sign(), torch.linalg.det(maps).sign())


def test_known_pairs_pull_and_wrong_ones_lose_their_pull():
    d = 6
    x = clustered(200, d, 1)
    y = x @ turn(d, 3)
    wrong = torch.randperm(80, generator=torch.Generator().manual_seed(0))
    known = (x[:200], torch.cat([y[:80][wrong], y[80:]]))
    p = Problem(x, y, known=known, known_weight=1.0)
    start = climb.polar((known[0].T @ known[1])[None])
    found = climb.climb(p, start, ((1.0, 4), (0.5, 4), (0.2, 6)), p).maps
    assert climb.agreement(found, turn(d, 3), x) > 0.999
    # and without them a start elsewhere stays elsewhere
    pulled = climb.climb(p, starts.random_orthogonal(d, [0], 1), ((2.0, 4), (0.5, 4), (0.2, 6)), p).maps
    assert climb.agreement(pulled, turn(d, 3), x) > 0.999


def test_proper_holds_the_determinant():
    p = problem()._replace(proper=torch.tensor(-1.0))
    found = climb.climb(p, starts.random_orthogonal(6, list(range(6)), 1), ((0.5, 3),), p).maps
    assert torch.linalg.det(found).sign().tolist() == [-1.0] * 6


def test_out_of_reach_of_everything_a_map_stays():
    x = torch.eye(3)[:1]
    p = Problem(x, -x)
    found = climb.climb(p, torch.eye(3)[None], ((0.05, 3),), p)
    assert torch.equal(found.maps, torch.eye(3)[None]) and torch.isfinite(found.scores).all()


def test_agreement_ignores_directions_without_extent():
    x = torch.cat([unit_rows(torch.randn(50, 2)), torch.zeros(50, 2)], 1)
    other = torch.block_diag(torch.eye(2), -torch.eye(2))
    assert climb.agreement(other[None], torch.eye(4), x).item() == pytest.approx(1, abs=1e-5)
    assert climb.agreement(-torch.eye(4)[None], torch.eye(4), x).item() == pytest.approx(-1, abs=1e-5)
    turned = starts.random_orthogonal(4, [1], 0)
    want = (unit_rows(x @ turned[0]) * x).sum(1).mean()
    torch.testing.assert_close(climb.agreement(turned, torch.eye(4), x)[0], want)


def test_distinct_keeps_the_best_of_each_solution():
    x = unit_rows(torch.randn(50, 4))
    a, b = starts.random_orthogonal(4, [0, 1], 2)
    maps = torch.stack([a, b, a, b, -a])
    kept = climb.distinct(maps, torch.tensor([1.0, 5.0, 3.0, 4.0, 2.0]), x, 3)
    assert kept.tolist() == [1, 2, 4]
    assert climb.distinct(maps, torch.tensor([1.0, 5.0, 3.0, 4.0, 2.0]), x, 2).tolist() == [1, 2]


def plan(seed: int = 1) -> climb.Plan:
    p = problem()
    g = torch.Generator().manual_seed(0)
    sides = [starts.kmeans(v, 20, g) for v in (p.x, p.y)]
    landmarks = Problem(*(unit_rows(c) for c, _ in sides), weights=tuple(s for _, s in sides))
    points = (p._replace(x=p.x[:60], y=p.y[:60]), p)
    return climb.Plan(landmarks, ((0.6, 6), (0.4, 6)), points, ((0.35, 6), (0.2, 6)), p, 3, seed)


@pytest.mark.parametrize("anywhere", [False, True])
def test_a_chunk_is_a_pure_function_and_finds_the_planted_turn(anywhere):
    ids = list(range(32))
    first, again = (climb.random_chunk(plan(), ids, anywhere) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert first.landmark_scores.shape == (2 + anywhere, 32) and first.scores.shape == (2, len(first.finalists))
    best = first.maps[first.scores[-1].argmax()]
    assert climb.agreement(best[None], turn(6, 3), problem().x) > 0.97
    other = climb.random_chunk(plan(), list(range(32, 64)), anywhere)
    assert not torch.equal(first.landmark_scores, other.landmark_scores)


def test_an_exchange_of_two_clusters_is_among_the_swaps():
    g = torch.Generator().manual_seed(0)
    member = torch.randint(4, (200,), generator=g)
    x = unit_rows(torch.eye(4)[member] + 0.05 * torch.randn(200, 4, generator=g))
    p = Problem(x, x)
    wrong = torch.eye(4)[[1, 0, 2, 3]]
    tried = climb.swapped(p, wrong, 4, g)
    assert tried.shape == (6, 4, 4)
    assert climb.agreement(tried, torch.eye(4), x).max() > 0.99


def test_polish_finds_a_turned_copy_in_all_dimensions():
    g = torch.Generator().manual_seed(0)
    x = unit_rows(torch.randn(150, 8, generator=g))
    y = (x @ turn(8, 3))[torch.randperm(150, generator=g)]
    begin = climb.polar((turn(8, 3) + 0.1 * torch.randn(8, 8, generator=g))[None])[0]
    found, pairs = climb.polish(x, y, begin, 10)
    assert pairs == 150
    torch.testing.assert_close(found, turn(8, 3), atol=1e-4, rtol=0)
    none, _ = climb.polish(x, y, begin, 0)
    assert torch.equal(none, begin)


def test_polish_between_different_dimensions_and_of_few_pairs():
    x, y = unit_rows(torch.randn(5, 8)), unit_rows(torch.randn(4, 3))
    found, pairs = climb.polish(x, y, torch.linalg.qr(torch.randn(8, 3))[0], 3)
    assert 1 <= pairs <= 4
    torch.testing.assert_close(found.T @ found, torch.eye(3), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("n", "m"), [(60, 80), (5, 3), (1, 1)])
def test_csls_both_ways_is_that_of_neighbors_by_table_and_by_blocks(n, m, monkeypatch):
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(n, 6, generator=g), torch.randn(m, 6, generator=g)
    table = climb.csls_both(x, y)
    monkeypatch.setattr(climb, "TABLE_ELEMENTS", 0)
    blocks = climb.csls_both(x, y)
    assert all(torch.equal(a, b) for a, b in zip(table, blocks, strict=True))
    cosine = unit_rows(x) @ unit_rows(y).T
    r_x = cosine.topk(min(10, m), 1).values.mean(1)
    r_y = cosine.T.topk(min(10, n), 1).values.mean(1)
    score = 2 * cosine - r_x[:, None] - r_y
    assert torch.equal(table[0], score.argmax(1)) and torch.equal(table[1], score.argmax(0))


def left_out_rows(common: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Sides that agree in their first 3 coordinates, and in 5 more to the extent given."""
    g = torch.Generator().manual_seed(0)
    seen = 3 * torch.randn(400, 3, generator=g)
    x, own = torch.randn(2, 400, 5, generator=g)
    y = common * x + (1 - common**2) ** 0.5 * own
    noise = 0.01 * torch.randn(400, 3, generator=g)
    return unit_rows(torch.cat([seen, x], 1)), unit_rows(torch.cat([seen + noise, y], 1))


@pytest.mark.parametrize(("common", "low", "high"), [(0.9, 10, 1e9), (0.0, -4, 4)])
def test_coordinates_left_out_speak_only_where_items_are_common(common, low, high):
    x, y = left_out_rows(common)
    axes = torch.eye(8)[:, :3]
    found = climb.left_out(x, y, axes, axes, torch.eye(3))
    assert low < found.z < high and found.pairs > 100
    if common:
        assert found.excess > 0.4
    lost = climb.left_out(x, y.roll(7, 0), axes, axes, starts.random_orthogonal(3, [1], 0)[0])
    assert abs(lost.z) < 4


def test_nothing_left_out_gives_no_evidence():
    x, y = left_out_rows(0.5)
    assert climb.left_out(x, y, torch.eye(8), torch.eye(8), torch.eye(8)) is None
    assert climb.left_out(x[:20], y[:20], torch.eye(8)[:, :3], torch.eye(8)[:, :3], torch.eye(3)) is None


def test_turns_on_halves_find_a_planted_turn_from_far_off():
    g = torch.Generator().manual_seed(0)
    x = unit_rows(torch.randn(400, 30, generator=g) * torch.arange(1, 31).float() ** -0.4)
    q = turn(30, 3)
    y = unit_rows(x @ q + 0.02 * torch.randn(400, 30, generator=g))[torch.randperm(400, generator=g)]
    begin = climb.polar((q + 0.25 * torch.randn(30, 30, generator=g))[None])[0]
    assert climb.agreement(begin[None], q, x) < 0.7
    found, again = (climb.stir(x, y, begin, 12, torch.Generator().manual_seed(1)) for _ in range(2))
    assert climb.agreement(found[None], q, x) > 0.97 and torch.equal(found, again)
    torch.testing.assert_close(found.T @ found, torch.eye(30), atol=1e-4, rtol=0)


def test_known_pairs_join_every_turn_on_halves():
    x = unit_rows(torch.randn(40, 6, generator=torch.Generator().manual_seed(0)))
    y, known = x @ turn(6, 3), torch.stack([torch.arange(40)] * 2, 1)
    found = climb.stir(x, y, starts.random_orthogonal(6, [1], 0)[0], 3, torch.Generator().manual_seed(1), known=known)
    assert float(climb.agreement(found[None], turn(6, 3), x)) > 0.9
