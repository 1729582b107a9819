"""Hubness figures against scipy, closed forms and a planted hub."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from relcore.metrics import hubness


def test_skewness_is_scipys():
    n_k = np.random.default_rng(0).poisson(3, 500)
    assert hubness.skewness(n_k) == pytest.approx(stats.skew(n_k), rel=1e-12)


def test_a_constant_has_no_skew():
    assert hubness.skewness(np.full(7, 3)) == 0.0
    assert hubness.summary(np.array([1])) == {
        "skewness": 0.0,
        "anti_hubs": 0.0,
        "robin_hood": 0.0,
        "top_1_percent": 1.0,
        "largest": 1,
    }


def test_one_hub_takes_all():
    n_k = np.zeros(200, dtype=int)
    n_k[3] = 1000
    figures = hubness.summary(n_k)
    assert figures["anti_hubs"] == pytest.approx(199 / 200)
    assert figures["robin_hood"] == pytest.approx(199 / 200)
    assert figures["top_1_percent"] == 1.0
    assert figures["largest"] == 1000
    p = 1 / 200  # a Bernoulli variable times 1000
    assert figures["skewness"] == pytest.approx((1 - 2 * p) / np.sqrt(p * (1 - p)))


def test_top_share_counts_at_least_one_target():
    assert hubness.top_share(np.array([4, 1, 1, 2])) == 0.5
    assert hubness.top_share(np.arange(300)) == pytest.approx((299 + 298 + 297) / np.arange(300).sum())


def test_nobody_in_any_list():
    assert hubness.robin_hood(np.zeros(5, dtype=int)) == 0.0
    assert hubness.top_share(np.zeros(5, dtype=int)) == 0.0


def test_both_ways_are_told_apart():
    """Every x row is nearest to y row 0, and no two y rows share their nearest x row."""
    x = torch.nn.functional.normalize(torch.eye(6) + 2, dim=1)
    y = torch.cat([torch.ones(1, 6), torch.eye(6)[1:]])
    got = hubness.hubness(x, y, k=1, block=4)
    assert got["x_to_y"]["largest"] == 6 and got["x_to_y"]["anti_hubs"] == pytest.approx(5 / 6)
    assert got["y_to_x"]["largest"] == 1 and got["y_to_x"]["skewness"] == 0.0


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_few_rows_limit_k(n):
    x = torch.randn(n, 5, generator=torch.Generator().manual_seed(n))
    got = hubness.hubness(x, x)
    assert got["x_to_y"]["k"] == n
    assert got["x_to_y"]["skewness"] == 0.0  # every list holds every row
