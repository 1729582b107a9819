"""HGA: planted turns in both modes, spaces of any size, wrong seeds, and honest words where nothing can be found."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from relcore import preprocess
from relcore.errors import InputError
from relcore.methods import method
from relcore.ops import kernel
from relcore.ops.neighbors import unit_rows
from relcore.space import Pairs

SMALL = dict(restarts=64)


def ready(v: torch.Tensor) -> torch.Tensor:
    return preprocess.fit(preprocess.DEFAULT, v)[1]


def clusters(n: int, d: int = 12, seed: int = 1, k: int = 7) -> tuple[torch.Tensor, np.ndarray]:
    """Rows about k centres of unequal weight, and which; the centres depend on d alone."""
    g = torch.Generator().manual_seed(seed)
    centres = torch.randn(k, d, generator=torch.Generator().manual_seed(99))
    member = torch.multinomial(0.75 ** torch.arange(k).float(), n, True, generator=g)
    return centres[member] + 0.3 * torch.randn(n, d, generator=g), member.numpy()


def turn(d: int, seed: int = 0, sign: float = 1.0) -> torch.Tensor:
    q = torch.linalg.qr(torch.randn(d, d, generator=torch.Generator().manual_seed(seed)))[0]
    q[:, 0] *= sign * torch.linalg.det(q).sign()
    return q


def fit(x, y, seeds=None, seed: int = 0, **params):
    m = method("hga", **params)
    return m.fit(x, y, Pairs.empty() if seeds is None else seeds, generator=torch.Generator().manual_seed(seed))


def found(run) -> np.ndarray:
    return (unit_rows(run.x) @ unit_rows(run.y).T).argmax(1).numpy()


# ---------------------------------------------------------------- planted turns


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_turned_copy_is_found_exactly_in_any_order_of_rows(sign):
    x = ready(clusters(240)[0])
    q, order = turn(12, 1, sign), torch.randperm(240, generator=torch.Generator().manual_seed(3))
    run = fit(x, (x @ q)[order], **SMALL)
    torch.testing.assert_close(run.map, q, atol=1e-4, rtol=0)
    assert (order[found(run)] == torch.arange(240)).all()
    torch.testing.assert_close(run.encode_x(x), run.x)
    assert torch.equal(run.encode_y(x), x)
    assert run.confidence["votes"] >= 3 and run.confidence["margin"] > 0.05


def test_the_papers_search_finds_it_too():
    x = ready(clusters(150, 4, k=4)[0])
    run = fit(x, x @ turn(4), mode="paper", random_starts=24, ascent_steps=30)
    assert (found(run) == np.arange(150)).mean() > 0.9
    torch.testing.assert_close(run.map @ run.map.T, torch.eye(4), atol=1e-4, rtol=0)


def test_sides_without_a_common_row_are_aligned_by_shape():
    (x, a), (y, b) = clusters(400, seed=1), clusters(300, seed=2)
    run = fit(ready(x), ready(y @ turn(12)), **SMALL)
    assert (b[found(run)] == a).mean() > 0.98
    assert run.x.shape == (400, 12) and run.y.shape == (300, 12)


@pytest.mark.parametrize(("dx", "dy"), [(12, 20), (20, 12)])
def test_different_dimensions_are_aligned_and_said(dx, dy):
    v = clusters(240)[0]
    wide = v @ torch.linalg.qr(torch.randn(20, 12, generator=torch.Generator().manual_seed(2)))[0].T
    x, y = (ready(v), ready(wide)) if dx == 12 else (ready(wide), ready(v))
    run = fit(x, y, **SMALL)
    assert (found(run) == np.arange(240)).mean() > 0.98
    assert run.map.shape == (dx, dy)
    assert any(n.startswith(f"dimensions differ ({dx} and {dy}): searched in 12") for n in run.notes)
    run = fit(x, y, mode="paper", random_starts=1, ascent_steps=2)
    assert run.x.shape[1] == run.y.shape[1] == 20 and run.map.shape == (dx, dy)
    assert any("filled up with zeros" in n for n in run.notes)
    run = fit(x, y, dims=0, **SMALL)
    assert (found(run) == np.arange(240)).mean() > 0.98 and any("filled up with zeros" in n for n in run.notes)


def test_without_reflections_a_reflected_copy_is_not_found():
    x = ready(clusters(240)[0])
    free, bound = (fit(x, x @ turn(12, 1, -1.0), reflections=r, **SMALL) for r in (True, False))
    assert torch.linalg.det(free.map) < 0 < torch.linalg.det(bound.map)
    assert bound.confidence["score"] < free.confidence["score"]
    right = fit(x, x @ turn(12, 1), reflections=False, **SMALL)
    assert (found(right) == np.arange(240)).all()


def test_large_spaces_are_searched_on_a_sample_and_mapped_whole():
    x = ready(clusters(900)[0])
    run = fit(x, x @ turn(12), sample=200, polish_rows=250, **SMALL)
    assert "searched on 200 of 900 rows of A; the map is applied to all" in run.notes
    assert run.x.shape == (900, 12) and (found(run) == np.arange(900)).mean() > 0.95


def test_a_seed_gives_the_same_run_again_and_another_draws_anew():
    x = ready(clusters(300)[0])
    y = ready(clusters(300, seed=2)[0])
    first, again, other = (fit(x, y, seed=s, sample=150, **SMALL) for s in (1, 1, 2))
    assert torch.equal(first.map, again.map) and first.history.equals(again.history)
    assert not torch.equal(first.map, other.map)


# ---------------------------------------------------------------- what is watched


@pytest.mark.parametrize("params", [dict(restarts=96, agree=0), dict(mode="paper", random_starts=3, ascent_steps=15)])
def test_steps_carry_restarts_scores_and_maps(params):
    x, y = ready(clusters(150)[0]), ready(clusters(140, seed=2)[0])
    steps = list(method("hga", **params).steps(x, y, Pairs.empty(), generator=torch.Generator().manual_seed(0)))
    assert [s.iteration for s in steps] == list(range(1, len(steps) + 1))
    assert all(s.total >= s.iteration for s in steps) and steps[-1].total == len(steps)
    best = [s.metrics["score"] for s in steps]
    assert best == sorted(best), "the best score never falls"
    assert all(s.metrics["sigma"] > 0 and s.phase for s in steps)
    drawn = [s.snapshot for s in steps if s.snapshot is not None]
    assert len(drawn) >= 3 and all(d.moving == "x" for d in drawn)
    assert all((x @ d.map_x).shape[1] == (y @ d.map_y).shape[1] for d in drawn)
    seen, gone = set(), set()
    for s in steps:
        if s.restarts is None:
            continue
        assert len(s.restarts.ids) == len(s.restarts.scores)
        assert not gone & set(s.restarts.ids.tolist()), "a restart given up does not come back"
        seen |= set(s.restarts.ids.tolist())
        gone |= set(s.restarts.pruned)
        assert s.restarts.best is None or s.restarts.best in seen
    if "agree" in params:
        assert set(range(96)) <= seen and len(gone) == 96 - 4 * 3


def test_restarts_the_papers_search_gives_up_are_told_with_the_step_that_did():
    x = ready(clusters(120, 6, k=5)[0])
    m = method("hga", mode="paper", random_starts=40, ascent_steps=5, give_up=0.95)
    steps = list(m.steps(x, x @ turn(6), Pairs.empty(), generator=torch.Generator().manual_seed(0)))
    told = [(i, s.restarts.pruned) for i, s in enumerate(steps) if s.restarts.pruned]
    assert len(told) == 1
    ((when, gone),) = told
    before = {r for s in steps[: when + 1] for r in s.restarts.ids.tolist()}
    after = {r for s in steps[when + 1 :] for r in s.restarts.ids.tolist()}
    assert before == set(range(40)) and after == before - set(gone) and after
    assert (
        {s.metrics["sigma"] for s in steps[when + 1 :]}
        == {steps[-1].metrics["sigma"]}
        != {steps[when].metrics["sigma"]}
    )


def test_the_score_is_the_geodesic_objective_at_the_judging_bandwidth():
    x = ready(clusters(200)[0])
    run = fit(x, x @ turn(12), center=False, **SMALL)
    cosine = (unit_rows(run.x).double() @ unit_rows(run.y).double().T).clamp(-1, 1)
    want = torch.exp(-(torch.acos(cosine) ** 2) / (2 * kernel.JUDGE**2)).mean()
    assert run.confidence["score"] == pytest.approx(float(want), rel=1e-3)
    assert run.confidence["fit"] == pytest.approx(1.0)


def test_enough_restarts_that_agree_end_the_search_early():
    x = ready(clusters(240)[0])
    early, full = (fit(x, x @ turn(12), restarts=128, agree=a) for a in (3, 0))
    assert len(early.history) < len(full.history)
    torch.testing.assert_close(early.map, full.map, atol=1e-3, rtol=0)


# ---------------------------------------------------------------- seeds


def corrupted(n: int, count: int, share: float) -> tuple[Pairs, set[int]]:
    g = np.random.default_rng(0)
    rows = g.permutation(n)[:count]
    wrong = round(share * count)
    partner = rows.copy()
    partner[:wrong] = np.roll(partner[:wrong], 1)
    return Pairs(np.stack([rows, partner], 1)), set(rows[:wrong].tolist())


@pytest.mark.parametrize(("count", "share"), [(200, 0.85), (60, 0.85), (60, 0.0), (3, 0.0), (1, 0.0)])
def test_wrong_seeds_do_no_harm_and_are_named(count, share):
    x = ready(clusters(300)[0])
    seeds, wrong = corrupted(300, count, share)
    run = fit(x, x @ turn(12), seeds, **SMALL)
    assert (found(run) == np.arange(300)).all()
    said = [n for n in run.notes if "look wrong" in n]
    if not wrong:
        assert not said
        return
    named = int(said[0].split(" of ")[0])
    assert 0.6 * len(wrong) <= named <= len(wrong), "a wrong one may lie near by chance, no right one looks wrong"
    first = int(said[0].split("A-B: ")[1].split("-")[0])
    assert first in wrong


def test_seeds_decide_where_shapes_cannot():
    """Clusters at the corners of a simplex: every permutation of them is as good as any other."""
    g = torch.Generator().manual_seed(0)
    a, b = (torch.randint(6, (n,), generator=g) for n in (300, 280))
    x, y = (ready(torch.eye(6)[m] + 0.05 * torch.randn(len(m), 6, generator=g)) for m in (a, b))
    one_each = torch.stack([torch.tensor([int((m == c).nonzero()[0]) for c in range(6)]) for m in (a, b)], 1)
    blind, led = fit(x, y, **SMALL), fit(x, y, Pairs(one_each.numpy()), **SMALL)
    assert (b[found(led)] == a).all()
    assert blind.confidence["margin"] < 0.02 and any(n.startswith("ambiguous") for n in blind.notes)
    assert led.confidence["margin"] > 0.05


def test_the_check_rests_on_seeds_alone():
    x = ready(clusters(300)[0])
    seeds, _ = corrupted(300, 40, 0.0)
    for params in (SMALL, dict(mode="paper", ascent_steps=5, random_starts=4)):
        steps = method("hga", **params).check_steps(x, x @ turn(12), seeds, generator=torch.Generator().manual_seed(0))
        phases = set()
        while True:
            try:
                phases.add(next(steps).phase)
            except StopIteration as end:
                checked = end.value
                break
        assert (found(checked) == np.arange(300)).mean() > 0.95
        assert not any("random" in p or "shapes" in p for p in phases)


# ---------------------------------------------------------------- bad input


def quick(mode: str) -> dict:
    return dict(mode=mode) | (dict(random_starts=2, ascent_steps=10) if mode == "paper" else dict(restarts=32))


@pytest.mark.parametrize("mode", ["informed", "paper"])
@pytest.mark.parametrize("point", [torch.ones(50, 5), torch.full((50, 5), -0.3), torch.ones(1, 5)])
def test_a_side_of_one_point_is_refused(mode, point):
    with pytest.raises(InputError, match="rows of B are one point on the sphere: there is no shape to align"):
        fit(ready(clusters(60)[0]), point, **quick(mode))


@pytest.mark.parametrize("mode", ["informed", "paper"])
def test_few_rows_lines_and_copies_give_finite_maps(mode):
    g = torch.Generator().manual_seed(0)
    line = torch.cat([torch.ones(20, 1), -torch.ones(30, 1)]) @ torch.randn(1, 6, generator=g)
    few = torch.randn(5, 4, generator=g)
    cases = [
        (torch.randn(3, 5, generator=g), torch.randn(3, 4, generator=g)),
        (torch.randn(2, 5, generator=g), torch.randn(3, 5, generator=g)),
        (line, torch.randn(40, 7, generator=g)),
        (line, line[:30, :3]),
        (few.repeat(30, 1), few.repeat(20, 1)),
        (torch.randn(90, 8, generator=g), torch.randn(70, 8, generator=g)),  # one class, no shape
        (line[:, :1], line[:30, :1]),
    ]
    for x, y in cases:
        x, y = (unit_rows(v) if v.shape[1] == 1 else ready(v) for v in (x, y))
        run = fit(x, y, **quick(mode))
        assert torch.isfinite(run.x).all() and torch.isfinite(run.map).all()
        assert all(np.isfinite(v) for v in run.confidence.values())


def test_a_line_is_said_and_its_direction_found():
    v = torch.cat([torch.ones(10, 1), -torch.ones(30, 1)])
    x, y = ready(v @ torch.randn(1, 6)), ready(v @ torch.randn(1, 3))
    run = fit(x, y, restarts=32)
    assert "a side lies on a line: no more than a direction can be aligned" in run.notes
    assert ((unit_rows(run.x) * unit_rows(run.y)).sum(1) > 0.99).all()


@pytest.mark.parametrize("mode", ["informed", "paper"])
def test_a_bandwidth_that_sees_nothing_is_raised_and_said(mode):
    x = ready(clusters(200)[0])
    run = fit(x, x @ turn(12), sigma_last=0.01, **quick(mode))
    (said,) = [n for n in run.notes if n.startswith("bandwidth raised from 0.01 to ")]
    raised = float(said.split(" to ")[1].split(":")[0])
    assert run.history["sigma"].min() == pytest.approx(raised)


def test_identical_spaces_keep_their_place():
    x = ready(clusters(200)[0])
    run = fit(x, x, **SMALL)
    torch.testing.assert_close(run.map, torch.eye(12), atol=1e-4, rtol=0)


def test_columns_nothing_was_matched_by_confirm_common_items_and_no_others():
    g = torch.Generator().manual_seed(0)
    v = clusters(500, 12)[0] + 0.2 * torch.randn(500, 12, generator=g)
    other = clusters(500, 12, seed=2)[0] + 0.2 * torch.randn(500, 12, generator=g)
    same, apart = fit(ready(v), ready(v @ turn(12)), dims=6, **SMALL), fit(ready(v), ready(other), dims=6, **SMALL)
    assert same.confidence["left_out"] > 0.8 and same.confidence["left_out_z"] > 20
    assert abs(apart.confidence["left_out_z"]) < 5 and apart.confidence["left_out"] < 0.1


def test_the_estimate_grows_with_what_costs():
    small = method("hga").estimate(500, 500, 32, 32, 0)
    assert small.seconds < method("hga").estimate(20_000, 20_000, 300, 300, 0).seconds
    assert small.memory < method("hga").estimate(20_000, 20_000, 300, 300, 0).memory
    assert method("hga", mode="paper").estimate(2000, 2000, 64, 64, 0).seconds > 10 * small.seconds
