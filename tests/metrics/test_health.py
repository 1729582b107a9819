"""Health: three outcomes that a loss confuses are told apart, and every figure has an independent reference."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from scipy import stats

from relcore.methods import method
from relcore.metrics import health
from relcore.metrics.retrieval import retrieval
from relcore.ops.neighbors import unit_rows
from relcore.space import Pairs

LEVELS = {"aligned", "unclear", "chance", "collapsed"}


def same_rows(rows: np.ndarray) -> Pairs:
    return Pairs(np.repeat(np.asarray(rows)[:, None], 2, 1))


def random_seeds(n: int, count: int, seed: int = 1) -> Pairs:
    return same_rows(np.random.default_rng(seed).permutation(n)[:count])


def word_like(n: int = 400, dx: int = 100, dy: int = 150, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Clusters with a decaying spectrum about a common direction, seen by two sides under a rotation and noise."""
    g = torch.Generator().manual_seed(seed)
    scale = torch.arange(1, dx + 1).float() ** -0.3
    centres = unit_rows(torch.randn(40, dx, generator=g) * scale)
    spread = unit_rows(torch.randn(n, dx, generator=g) * scale)
    cone = unit_rows(torch.randn(1, dx, generator=g))
    x = unit_rows(unit_rows(centres[torch.randint(40, (n,), generator=g)] + 0.6 * spread) + 0.5 * cone)
    turn = torch.linalg.qr(torch.randn(dy, dx, generator=g))[0].T
    return tuple(
        unit_rows(v + 0.7 * unit_rows(torch.randn(n, v.shape[1], generator=g))) for v in (x, unit_rows(x @ turn))
    )


def check(x, y, seeds, fit) -> dict:
    """Fit, refit with seeds held out, measure; ``fit(seeds, number) -> (x, y)``."""
    full = fit(seeds, 0)
    folds = []
    for i, part in enumerate(health.fold_rows(len(seeds), 3, 0)):
        rest = seeds.take(np.setdiff1d(np.arange(len(seeds)), part))
        folds.append(health.check_fold(*fit(rest, i + 1), seeds.take(part), *full))
    return health.measure(*full, folds, seeds=seeds)


def ao_loss(x, y, alignment, hubs_corrected: bool) -> float:
    """The loss of anchor optimisation with its own correspondence, from the definition: mean((R_y - C' R_x)^2).

    C is the plan of one Sinkhorn iteration for epsilon to 0 (votes); without the row potential, the nearest row.
    """
    rx, ry = unit_rows(x) @ alignment.anchors_x.T, unit_rows(y) @ alignment.anchors_y.T
    gap = torch.cdist(rx, ry)
    if hubs_corrected:
        gap = gap - gap.min(1, keepdim=True).values
    weights = (gap <= gap.min(0, keepdim=True).values + 1e-6).float()
    return float(((ry - (weights / weights.sum(0)).T @ rx) ** 2).mean())


def test_collapsed_stuck_and_aligned_are_told_apart_where_the_loss_is_not():
    x, y = word_like()
    seeds = random_seeds(len(x), 15)
    cases = {
        "collapsed": method("ao", mode="paper", correspondence="nearest", adam_steps=60),
        "stuck": method("ao", mode="paper", start="random", adam_steps=60),
        "aligned": method("ao", mode="alternating"),
    }
    loss, mrr, level = {}, {}, {}
    for name, m in cases.items():
        alignments = []

        def fit(s, number, m=m, alignments=alignments):
            alignments.append(m.fit(x, y, s, generator=torch.Generator().manual_seed(number)))
            return alignments[-1].x, alignments[-1].y

        measured = check(x, y, seeds, fit)
        level[name] = health.verdict(measured).level
        loss[name] = ao_loss(x, y, alignments[0], hubs_corrected=name != "collapsed")
        scores = retrieval(alignments[0].x, alignments[0].y, Pairs.by_row(len(x)).without(seeds))
        mrr[name] = (scores["x_to_y"]["mrr"] + scores["y_to_x"]["mrr"]) / 2
    assert mrr["collapsed"] < 0.1 and mrr["stuck"] < 0.3 and mrr["aligned"] > 0.7
    assert loss["collapsed"] < loss["aligned"] < loss["stuck"]  # the loss would pick the collapsed run
    assert level["collapsed"] == "collapsed" and level["aligned"] == "aligned"
    assert level["stuck"] in ("chance", "unclear")


def test_wrong_seeds_look_like_chance():
    x, y = word_like()
    wrong = Pairs(np.stack([np.arange(15), np.arange(100, 115)], 1))
    measured = check(x, y, wrong, lambda s, _: (x @ x[s.x.copy()].T, y @ y[s.y.copy()].T))
    verdict = health.verdict(measured)
    assert verdict.level == "chance"
    assert verdict.text.startswith("looks like chance: ") and "mutual neighbours" in verdict.text


def test_a_consistent_mistake_is_never_called_aligned():
    """y is matched to the wrong x, perfectly: every row has a mutual neighbour, every seed is wrong."""
    x, _ = word_like()
    rolled = torch.roll(x, 1, 0)
    measured = check(x, rolled, random_seeds(len(x), 15), lambda s, _: (x, rolled))
    assert measured["mutual_rate"] == 1.0
    assert health.verdict(measured).level == "chance"


def test_good_folds_do_not_vouch_for_a_full_run_that_ended_elsewhere():
    x, y = word_like()
    seeds = random_seeds(len(x), 15)
    measured = check(x, y, seeds, lambda s, number: (x, x if number else torch.roll(x, 1, 0)))
    assert measured["held_out"]["mrr"] == 1.0 and measured["confirmed"] is None
    verdict = health.verdict(measured)
    assert verdict.level == "unclear" and "ended elsewhere" in verdict.text


def test_too_few_seeds_are_unclear_at_most_and_say_why():
    x, _ = word_like()
    seeds = random_seeds(len(x), health.MIN_SEEDS - 1)
    verdict = health.verdict(health.measure(x, x, seeds=seeds, skipped="5 seeds, 6 needed"))
    assert verdict.level == "unclear" and "5 seeds, 6 needed" in verdict.text
    nothing = health.verdict(health.measure(x, x))
    assert nothing.level == "unclear" and f"{health.MIN_SEEDS} seeds are needed" in nothing.text


def test_one_point_is_collapsed():
    x, y = word_like()
    point = torch.ones_like(y)
    measured = health.measure(x @ torch.eye(100, 150), point, seeds=random_seeds(len(x), 15))
    assert measured["dimension"]["y"] == 0.0
    assert measured["distinct"]["x_to_y"] == 1 / len(x)
    assert health.verdict(measured).level == "collapsed"


def test_chance_is_what_a_random_turn_gives():
    """Isotropic clouds in few dimensions: the turned copy has as many mutual neighbours as an independent cloud."""
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(800, 6, generator=g), torch.randn(800, 6, generator=g)
    measured = health.measure(x, x)
    independent = health.measure(x, y)
    assert measured["mutual_rate"] == 1.0
    assert measured["mutual_chance"] == pytest.approx(independent["mutual_rate"], abs=0.06)
    assert independent["mutual_chance"] == pytest.approx(independent["mutual_rate"], abs=0.06)


def test_summary_figures_by_hand():
    ranks = np.array([[1, 2], [4, 1], [300, 11], [2, 1]])
    s = health.held_out_summary(ranks, n=1000, m=500)
    assert s["count"] == 4
    assert s["mrr"] == pytest.approx(np.mean([1, 0.5, 0.25, 1, 0, 0, 0.5, 1]))
    assert s["recall@1"] == 3 / 8 and s["recall@10"] == 6 / 8
    assert s["median_rank"] == 3.0
    assert (s["near"], s["hits"]) == (10, 3)
    assert s["expected"] == pytest.approx(4 * 10 / 500)
    by_way = [stats.combine_pvalues(ranks[:, i] / size).pvalue for i, size in enumerate((500, 1000))]
    assert s["p_luck"] == pytest.approx(max(by_way), rel=1e-9)


def test_luck_is_rarely_taken_for_skill():
    """Uniform ranks pass the bar of one in a thousand no more often than that, by simulation."""
    rng = np.random.default_rng(0)
    for m in (7, 1000):
        passed = [health.held_out_summary(rng.integers(1, m + 1, (15, 2)), m, m)["p_luck"] < 0.01 for _ in range(2000)]
        assert np.mean(passed) < 0.015


def test_effective_dimension_is_the_participation_ratio():
    g = torch.Generator().manual_seed(0)
    v = torch.randn(4000, 5, generator=g) * torch.tensor([3.0, 1, 1, 0, 0])
    spectrum = np.linalg.eigvalsh(np.cov(v.double().numpy().T))
    assert health.effective_dimension(v) == pytest.approx(spectrum.sum() ** 2 / (spectrum**2).sum(), rel=1e-9)


def test_folds_part_the_seeds():
    parts = health.fold_rows(16, 3, 5)
    assert sorted(np.concatenate(parts)) == list(range(16))
    assert sorted(map(len, parts)) == [5, 5, 6]
    assert all((p == q).all() for p, q in zip(parts, health.fold_rows(16, 3, 5), strict=True))
    with pytest.raises(ValueError, match="cannot be split"):
        health.fold_rows(2, 3, 0)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 1), (1, 3), (3, 3), (4, 2)])
def test_few_rows_give_a_verdict_and_plain_numbers(n, m):
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(n, 3, generator=g), torch.randn(m, 3, generator=g)
    measured = health.measure(x, y, seeds=same_rows(np.arange(min(n, m))))
    assert json.loads(json.dumps(measured, allow_nan=False)) == measured
    assert health.verdict(measured).level in LEVELS - {"aligned"}


def test_blocks_change_nothing():
    x, y = word_like(n=120)
    a, b = (health.measure(x @ torch.eye(100, 150), y, seeds=random_seeds(120, 8), block=block) for block in (None, 7))
    assert a == b


# ---------------------------------------------------------------- without seeds

SURE = {"score": 0.01, "fit": 0.9, "margin": 0.2, "votes": 7.0, "restarts": 20.0}


def alone(mutual: float = 3.0, **figures: float | None) -> health.Verdict:
    """The verdict on a run without seeds: mutual neighbours in those of chance, and the method's own figures."""
    g = torch.Generator().manual_seed(0)
    v = torch.randn(60, 4, generator=g)
    confidence = {name: value for name, value in (SURE | figures).items() if value is not None}
    measured = health.measure(v, v, confidence=confidence) | {"mutual_rate": 0.1 * mutual, "mutual_chance": 0.1}
    measured["distinct"] = {"x_to_y": 0.5, "y_to_x": 0.5}
    return health.verdict(measured)


@pytest.mark.parametrize(
    ("figures", "level", "words"),
    [
        ({}, "aligned", "looks aligned, without seeds: fit 0.90, the next different map scores 82%; 7 of 20 restarts"),
        (dict(margin=0.001), "unclear", "ambiguous: the next different map scores 100% of this one"),
        (dict(margin=-0.05), "unclear", "ambiguous: the next different map scores 105%"),
        (dict(votes=1.0), "unclear", "not to be relied on"),
        (dict(margin=None), "unclear", "no different map was found"),
        (dict(fit=0.65), "aligned", "fit 0.65, the next different map scores 82%"),
        (dict(fit=0.65, margin=0.05), "unclear", "fit 0.65, 0.76 wanted"),
        (dict(fit=0.5), "unclear", "not to be relied on"),
        (dict(fit=0.5, mutual=1.1), "chance", "looks like chance: fit 0.50"),
        (dict(mutual=1.1), "unclear", "not to be relied on"),
        (dict(mutual=0.3), "chance", "looks like chance"),
        (dict(fit=0.3, left_out=0.07, left_out_z=16.0), "aligned", "coordinates left out of the search agree"),
        (dict(fit=0.3, left_out=0.07, left_out_z=4.0), "unclear", "not to be relied on"),
        (dict(fit=0.3, left_out=0.01, left_out_z=16.0, mutual=1.5), "unclear", "not to be relied on"),
    ],
)
def test_a_search_without_seeds_is_judged_by_its_own_evidence(figures, level, words):
    verdict = alone(**figures)
    assert verdict.level == level and words in verdict.text


def test_held_out_seeds_count_for_more_than_a_methods_own_opinion():
    x, _ = word_like()
    rolled = torch.roll(x, 1, 0)
    seeds = random_seeds(len(x), 15)
    folds = [health.check_fold(x, rolled, seeds.take(p), x, rolled) for p in health.fold_rows(15, 3, 0)]
    measured = health.measure(x, rolled, folds, seeds=seeds, confidence=SURE)
    assert health.verdict(measured).level == "chance"


def blobs(n: int, seed: int, centres: torch.Tensor) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    share = 0.75 ** torch.arange(len(centres)).float()
    member = torch.multinomial(share, n, True, generator=g)
    v = centres[member] + 0.3 * torch.randn(n, centres.shape[1], generator=g)
    return unit_rows(v - v.mean(0))


def hga(x: torch.Tensor, y: torch.Tensor) -> health.Verdict:
    run = method("hga", restarts=64).fit(x, y, Pairs.empty(), generator=torch.Generator().manual_seed(0))
    return health.verdict(health.measure(run.x, run.y, confidence=run.confidence))


def test_related_unrelated_and_symmetric_spaces_without_seeds():
    g = torch.Generator().manual_seed(0)
    centres = torch.randn(7, 12, generator=g)
    x = blobs(400, 1, centres)
    assert hga(x, blobs(400, 2, centres)).level == "aligned"
    noise = unit_rows(torch.randn(400, 12, generator=g) * torch.linspace(2, 0.3, 12))
    assert hga(x, noise).level in ("chance", "unclear")
    shuffled = torch.stack([c[torch.randperm(400, generator=g)] for c in blobs(400, 3, centres).T], 1)
    assert hga(x, unit_rows(shuffled)).level in ("chance", "unclear")
    even = torch.eye(6)
    member = [torch.randint(6, (300,), generator=g) for _ in range(2)]
    symmetric = [unit_rows(even[m] + 0.05 * torch.randn(300, 6, generator=g) - 1 / 6) for m in member]
    verdict = hga(*symmetric)
    assert verdict.level == "unclear" and verdict.text.startswith("ambiguous: ")
