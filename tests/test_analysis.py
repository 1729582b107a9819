"""What the pages read, against brute force in float64: every rule both ways, with a coupling and without."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from relcore import analysis
from relcore.metrics import hubness
from relcore.ops import sinkhorn
from relcore.space import Pairs

EPSILON = 0.05


def sides(n: int, m: int, d: int = 8, noise: float = 0.4, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """y row i is x row i with noise, for the rows both have."""
    g = torch.Generator().manual_seed(seed)
    both = torch.randn(max(n, m), d, generator=g) + 0.5
    return both[:n], both[:m] + noise * torch.randn(m, d, generator=g)


def coupled(x: torch.Tensor, y: torch.Tensor) -> sinkhorn.Coupling:
    return sinkhorn.solve(sinkhorn.Problem(sinkhorn.cosine(x, y), EPSILON), tolerance=1e-8).coupling


def scores_of(rule: str, x: torch.Tensor, y: torch.Tensor, plan: np.ndarray | None) -> np.ndarray:
    a, b = (v.double().numpy() / np.linalg.norm(v.double().numpy(), axis=1, keepdims=True) for v in (x, y))
    c = a @ b.T
    if rule == "nearest":
        return c
    if rule == "isf":
        return np.log(np.exp(30 * c) / np.exp(30 * c).sum(0))
    if rule == "coupling":
        return np.log(plan)
    k = 10
    return 2 * c - (-np.sort(-c, 1)[:, :k].mean(1))[:, None] - (-np.sort(-c, 0)[:k].mean(0))


SIZES = [(80, 80), (90, 70), (70, 90), (30, 200)]


@pytest.mark.parametrize("n, m", SIZES)
@pytest.mark.parametrize("rule", list(analysis.RULES))
def test_lists_n_k_and_ranks_are_brute_force(n, m, rule):
    x, y = sides(n, m)
    common = min(n, m)
    rng = np.random.default_rng(1)
    truth = Pairs(np.stack([rng.permutation(n)[: common - 5], rng.permutation(m)[: common - 5]], 1))
    coupling = coupled(x, y)
    arrays = analysis.analyse(x, y, truth=truth, coupling=coupling, k=20)
    plan = coupling.dense().numpy()
    for way, a, b, p, pairs in (("x_to_y", x, y, plan, truth), ("y_to_x", y, x, plan.T, truth.flip())):
        scores = scores_of(rule, a, b, p)
        order = np.argsort(-scores, axis=1, kind="stable")
        found = arrays[f"{way}/{rule}/indices"]
        assert found.dtype == np.int32 and found.shape == (len(a), 20)
        np.testing.assert_array_equal(found, order[:, :20])
        np.testing.assert_allclose(
            arrays[f"{way}/{rule}/scores"], np.take_along_axis(scores, order[:, :20], 1), atol=1e-4
        )
        np.testing.assert_array_equal(arrays[f"{way}/{rule}/n_k"], np.bincount(order[:, :10].ravel(), minlength=len(b)))
        want = np.zeros(len(a), dtype=int)
        for q, t in pairs.array:
            want[q] = order[q].tolist().index(t) + 1
        np.testing.assert_array_equal(analysis.ranks_of(arrays, way, rule), want)
        assert (want > 20).any() and (want[want > 0] <= 20).any()  # ranks from the list and counted ones


def test_recall_and_hubness_by_rule_follow_from_the_lists():
    x, y = sides(80, 70)
    truth = Pairs.by_row(70)
    arrays = analysis.analyse(x, y, truth=truth, coupling=coupled(x, y))
    scored = truth.take(np.arange(10, 70))
    rules = analysis.by_rule(arrays, scored, at=(1, 3))
    assert list(rules) == list(analysis.RULES)
    for rule, ways in rules.items():
        for way, figures in ways.items():
            lists = arrays[f"{way}/{rule}/indices"][10:70]
            place = [row.tolist().index(i) + 1 if i in row.tolist() else 99 for i, row in enumerate(lists, 10)]
            assert figures["r@1"] == pytest.approx(np.mean([p <= 1 for p in place]))
            assert figures["r@3"] == pytest.approx(np.mean([p <= 3 for p in place]))
            assert figures["mrr"] == pytest.approx(np.mean([1 / p if p <= 10 else 0 for p in place]))
            assert figures["n"] == 60
            assert figures["hubness"] == hubness.summary(arrays[f"{way}/{rule}/n_k"], 10)


def test_hubs_lie_near_the_mean_of_the_queries_and_the_coupling_flattens_them():
    """Rows in a cone, a falling spectrum, one side noisier: hubs as real encoders have them."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(300, 60, generator=g) * torch.arange(1, 61) ** -0.4 + 0.15
    y = x + torch.randn(300, 60, generator=g)
    arrays = analysis.analyse(x, y, coupling=coupled(x, y))
    rules = analysis.by_rule(arrays)
    skewness = {rule: ways["x_to_y"]["hubness"]["skewness"] for rule, ways in rules.items()}
    assert skewness["nearest"] > 1.5 and abs(skewness["coupling"]) < 0.5 and skewness["csls"] < skewness["nearest"]
    assert np.corrcoef(arrays["x_to_y/nearest/n_k"], arrays["mean_distance_y"])[0, 1] < -0.5
    unit = x / x.norm(dim=1, keepdim=True)
    want = (y / y.norm(dim=1, keepdim=True) - unit.mean(0)).norm(dim=1)
    np.testing.assert_allclose(arrays["mean_distance_y"], want, atol=1e-5)


def test_without_coupling_or_truth_there_is_neither():
    arrays = analysis.analyse(*sides(40, 30))
    assert analysis.rules_of(arrays) == ["nearest", "csls", "isf"]
    assert analysis.ranks_of(arrays, "x_to_y") is None
    assert set(analysis.by_rule(arrays, Pairs.by_row(3))["csls"]["x_to_y"]) == {"hubness"}


def test_a_run_of_before_the_rules_is_read_as_it_is():
    arrays = analysis.analyse(*sides(40, 30), truth=Pairs.by_row(30))
    older = {k: v for k, v in arrays.items() if "/isf/" not in k and not k.endswith("/rank")}
    older["x_to_y/rank"] = arrays["x_to_y/nearest/rank"]
    assert analysis.rules_of(older) == ["nearest", "csls"]
    np.testing.assert_array_equal(analysis.ranks_of(older, "x_to_y"), arrays["x_to_y/nearest/rank"])
    assert analysis.ranks_of(older, "x_to_y", "csls") is None


@pytest.mark.parametrize("n, m", [(1, 1), (1, 5), (5, 1), (3, 12)])
def test_tiny_sides_have_every_rule(n, m):
    x, y = sides(n, m)
    arrays = analysis.analyse(x, y, truth=Pairs.by_row(min(n, m)), coupling=coupled(x, y))
    for rule in analysis.RULES:
        assert arrays[f"x_to_y/{rule}/indices"].shape == (n, m)
        assert (np.sort(arrays[f"y_to_x/{rule}/indices"], axis=1) == np.arange(n)).all()
        assert (arrays[f"x_to_y/{rule}/n_k"].sum()) == n * min(10, m)
        assert np.isfinite(arrays[f"x_to_y/{rule}/scores"]).all()


def test_rows_that_repeat_are_listed_once_each_and_by_their_order():
    x, y = sides(60, 20)
    y = y.repeat(3, 1)
    arrays = analysis.analyse(x, y, coupling=coupled(x, y))
    for rule in ("nearest", "csls", "isf", "coupling"):
        lists = arrays[f"x_to_y/{rule}/indices"]
        assert all(len(set(row.tolist())) == len(row) for row in lists)
        first = lists[:, :3] % 20
        assert (first == first[:, :1]).all()  # the three copies stand together
    assert hubness.copies(y.numpy()).tolist() == list(range(20)) * 3


def test_a_coupling_of_other_rows_is_refused():
    x, y = sides(40, 30)
    with pytest.raises(ValueError, match=r"coupling is \(30, 30\), wanted \(40, 30\)"):
        analysis.analyse(x, y, coupling=coupled(x[:30], y))
