"""Hubness figures against scipy, closed forms, brute force and a planted hub."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
import torch
from scipy import stats

from relcore.metrics import hubness


def random_lists(n: int, m: int, k: int, seed: int = 0) -> np.ndarray:
    """Lists without repeats, in which low targets are more frequent."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, m + 1)
    return np.stack([rng.choice(m, k, replace=False, p=weights / weights.sum()) for _ in range(n)])


@pytest.mark.parametrize("n, m", [(60, 40), (40, 60), (50, 50)])
@pytest.mark.parametrize("k", [1, 7, 12])
def test_n_k_is_counted_at_any_k_and_fills_every_place(n, m, k):
    lists = random_lists(n, m, 12)
    got = hubness.n_k(lists, m, k)
    count = Counter(int(t) for row in lists for t in row[:k])
    assert got.tolist() == [count[t] for t in range(m)]
    assert got.sum() == n * k


def test_more_than_all_stored_places_are_all_of_them():
    lists = random_lists(20, 15, 6)
    np.testing.assert_array_equal(hubness.n_k(lists, 15, 99), hubness.n_k(lists, 15, 6))


def test_skewness_is_scipys():
    n_k = np.random.default_rng(0).poisson(3, 500)
    assert hubness.skewness(n_k) == pytest.approx(stats.skew(n_k), rel=1e-12)


def test_robin_hood_is_the_largest_gap_of_the_lorenz_curve():
    n_k = np.random.default_rng(0).geometric(0.2, 333) - 1
    lorenz = np.concatenate([[0], np.cumsum(np.sort(n_k)) / n_k.sum()])
    gap = np.linspace(0, 1, len(n_k) + 1) - lorenz
    assert hubness.robin_hood(n_k) == pytest.approx(gap.max(), rel=1e-12)


@pytest.mark.parametrize("n, m", [(300, 300), (300, 500)])
def test_hubs_hold_twice_k_as_scikit_hubness_has_it(n, m):
    k = 5
    lists = random_lists(n, m, k)
    n_k = hubness.n_k(lists, m, k)
    hubs = [t for t in range(m) if n_k[t] >= 2 * k]
    assert 0 < len(hubs) < m
    assert hubness.hub_share(n_k, k) == pytest.approx(np.isin(lists, hubs).mean(), rel=1e-12)
    assert hubness.anti_hubs(n_k) == pytest.approx(1 - len(set(lists.ravel().tolist())) / m, rel=1e-12)


def test_with_more_queries_than_targets_a_hub_holds_twice_its_share():
    """By 2 k alone every one of these would be a hub: each has 100 places when all have the same."""
    n_k = np.full(10, 100)
    assert hubness.hub_share(n_k, k=1) == 0.0
    n_k[0] += 150
    assert hubness.hub_share(n_k, k=1) == pytest.approx(250 / 1150)


def test_a_constant_has_no_skew():
    assert hubness.skewness(np.full(7, 3)) == 0.0
    assert hubness.summary(np.array([1]), 1) == {
        "skewness": 0.0,
        "anti_hubs": 0.0,
        "hub_share": 0.0,
        "robin_hood": 0.0,
        "top_1_percent": 1.0,
        "largest": 1,
        "k": 1,
    }


@pytest.mark.parametrize("n, m", [(12, 12), (30, 7)])
def test_when_each_list_holds_every_target_all_is_even_and_it_is_said(n, m):
    """k = n: N_k is constant."""
    x, y = (torch.randn(rows, 4, generator=torch.Generator().manual_seed(rows)) for rows in (n, m))
    figures = hubness.hubness(x, y, k=m)["x_to_y"]
    assert figures == {
        "skewness": 0.0,
        "anti_hubs": 0.0,
        "hub_share": 0.0,
        "robin_hood": 0.0,
        "top_1_percent": pytest.approx(1 / m),
        "largest": n,
        "k": m,
    }
    assert any(f"all {m} targets" in line for line in hubness.remarks(n, m, m))


def test_one_hub_takes_all():
    n_k = np.zeros(200, dtype=int)
    n_k[3] = 1000
    figures = hubness.summary(n_k, 1)
    assert figures["anti_hubs"] == pytest.approx(199 / 200)
    assert figures["robin_hood"] == pytest.approx(199 / 200)
    assert figures["top_1_percent"] == figures["hub_share"] == 1.0
    assert figures["largest"] == 1000
    p = 1 / 200  # a Bernoulli variable times 1000
    assert figures["skewness"] == pytest.approx((1 - 2 * p) / np.sqrt(p * (1 - p)))


def test_top_share_counts_at_least_one_target():
    assert hubness.top_share(np.array([4, 1, 1, 2])) == 0.5
    assert hubness.top_share(np.arange(300)) == pytest.approx((299 + 298 + 297) / np.arange(300).sum())


def test_nobody_in_any_list():
    nobody = np.zeros(5, dtype=int)
    assert hubness.robin_hood(nobody) == hubness.top_share(nobody) == hubness.hub_share(nobody, 3) == 0.0


def test_both_ways_are_told_apart():
    """Every x row is nearest to y row 0, and no two y rows share their nearest x row."""
    x = torch.nn.functional.normalize(torch.eye(6) + 2, dim=1)
    y = torch.cat([torch.ones(1, 6) + 0.1 * torch.eye(6)[:1], torch.eye(6)[1:]])
    got = hubness.hubness(x, y, k=1, block=4)
    assert got["x_to_y"]["largest"] == 6 and got["x_to_y"]["anti_hubs"] == pytest.approx(5 / 6)
    assert got["y_to_x"]["largest"] == 1 and got["y_to_x"]["skewness"] == 0.0


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_few_rows_limit_k(n):
    x = torch.randn(n, 5, generator=torch.Generator().manual_seed(n))
    got = hubness.hubness(x, x)
    assert got["x_to_y"]["k"] == n
    assert got["x_to_y"]["skewness"] == 0.0  # every list holds every row


@pytest.mark.parametrize("n, m, said", [(12, 12, "n = 12"), (500, 19, "500 queries, 19 targets"), (19, 500, "19 quer")])
def test_few_rows_are_said_to_be_too_few(n, m, said):
    (line,) = hubness.remarks(n, m, 5)
    assert said in line and "not informative" in line


def test_enough_rows_need_no_remark():
    assert hubness.remarks(20, 500, 10) == []


def test_groupies_are_the_queries_that_list_the_hub():
    lists = random_lists(80, 30, 9)
    for k in (1, 4, 9):
        rows, places = hubness.groupies(lists, 2, k)
        assert rows.tolist() == [q for q in range(80) if 2 in lists[q, :k]]
        assert [lists[q, p - 1] for q, p in zip(rows, places, strict=True)] == [2] * len(rows)
        assert len(rows) == hubness.n_k(lists, 30, k)[2]


def test_a_hub_steals_from_the_queries_whose_partner_it_precedes():
    lists = random_lists(80, 30, 9)
    rng = np.random.default_rng(1)
    order = np.stack([np.concatenate([row, rng.permutation(np.setdiff1d(np.arange(30), row))]) for row in lists])
    partner = rng.integers(-1, 30, size=80)  # -1: not known
    ranks = np.array([0 if p < 0 else order[q].tolist().index(p) + 1 for q, p in enumerate(partner)])
    want = np.zeros(30, dtype=int)
    for q in range(80):
        for target in lists[q, :4]:
            if partner[q] < 0:
                continue
            full = order[q].tolist()
            want[target] += full.index(target) < full.index(partner[q])
    np.testing.assert_array_equal(hubness.stolen(lists, ranks, 30, 4), want)
    assert (want > 0).any()


def test_copies_are_found_whatever_the_sign_of_zero():
    v = np.array([[1, 0], [2, 3], [1, -0.0], [2, 3], [1, 0], [5, 5]], dtype=np.float32)
    assert hubness.copies(v).tolist() == [0, 1, 0, 1, 0, 5]


def test_a_copied_target_shares_no_place_with_itself():
    """Copies tie everywhere: each list takes them in their order, none twice, and all places are filled."""
    x = torch.randn(50, 6, generator=torch.Generator().manual_seed(0))
    y = torch.cat([x[:10], x[:10], x[:10]])
    one = hubness.hubness(x, y, k=1)["x_to_y"]
    assert one["anti_hubs"] >= 20 / 30  # the first of three equal ones has it all
    three = hubness.hubness(x, y, k=3)["x_to_y"]
    assert three["anti_hubs"] <= 1 / 3 and three["largest"] <= 50


def test_the_counting_needs_no_torch():
    code = "import sys; from relcore.metrics import hubness, spectrum; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"
