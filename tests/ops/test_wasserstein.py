"""Plans beside POT's, the step beside its formula, the convex start beside a dense Frank-Wolfe."""

from __future__ import annotations

import numpy as np
import ot
import torch

from relcore.ops import wasserstein
from relcore.ops.neighbors import unit_rows


def rows(n: int, d: int, seed: int = 0) -> torch.Tensor:
    return unit_rows(torch.randn(n, d, generator=torch.Generator().manual_seed(seed)))


def test_a_plan_is_pots(monkeypatch):
    monkeypatch.setattr(wasserstein, "TOLERANCE", 1e-9)
    cost = 1 - rows(40, 6, 1) @ rows(55, 6, 2).T
    want = ot.sinkhorn(np.full(40, 1 / 40), np.full(55, 1 / 55), cost.double().numpy(), 0.1, stopThr=1e-12)
    np.testing.assert_allclose(wasserstein.plan(cost.double(), 0.1).numpy(), want, rtol=1e-4, atol=1e-9)


def test_a_plan_of_costs_far_beyond_the_regularisation_is_finite_and_has_its_sums():
    cost = 300 * torch.rand(50, 50, generator=torch.Generator().manual_seed(0))
    got = wasserstein.plan(cost, 0.05)
    assert torch.isfinite(got).all()
    torch.testing.assert_close(got.sum(0), torch.full((50,), 0.02), rtol=1e-3, atol=0)


def test_a_step_is_the_formula():
    x, y = rows(30, 5, 1), rows(40, 5, 2)
    turn = torch.linalg.qr(torch.randn(5, 5, generator=torch.Generator().manual_seed(3)))[0]
    cost = -(x @ turn @ y.T).double().numpy()
    p = ot.sinkhorn(np.full(30, 1 / 30), np.full(40, 1 / 40), cost, 0.2, stopThr=1e-12)
    moved = turn.double().numpy() + 7 * x.double().numpy().T @ p @ y.double().numpy()
    u, _, v = np.linalg.svd(moved)
    got, cosine = wasserstein.step(turn, x, y, 0.2, 7.0)
    np.testing.assert_allclose(got.numpy(), u @ v, atol=2e-3)
    assert abs(cosine + (p * cost).sum()) < 2e-3


def test_the_convex_start_is_frank_wolfe_on_dense_matrices():
    x, y, n = rows(30, 5, 1), rows(30, 7, 2), 30

    def root(v):
        values, vectors = np.linalg.eigh(v.double().numpy() @ v.double().numpy().T)
        return (vectors * np.sqrt(values.clip(0))) @ vectors.T

    a, b = root(x), root(y)
    b *= np.linalg.norm(a) / np.linalg.norm(b)
    p = np.full((n, n), 1 / n)
    for t, (done, mismatch, got) in enumerate(wasserstein.convex_start(x, y, 0.5, 8), 1):
        assert done == t
        np.testing.assert_allclose(mismatch, np.linalg.norm(a @ p - p @ b) / np.linalg.norm(a), atol=2e-3)
        gradient = a @ a @ p + p @ b @ b - 2 * a @ p @ b
        vertex = ot.sinkhorn(np.ones(n), np.ones(n), gradient, 0.5, stopThr=1e-12)
        p = p + 2 / (2 + t) * (vertex - p)
        np.testing.assert_allclose(got.numpy(), p, atol=2e-3)
