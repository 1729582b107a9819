"""Whitening, projections and Procrustes against closed forms and scipy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import torch

from relcore.ops import linalg


def rows(n: int, d: int, seed: int = 0) -> torch.Tensor:
    """Correlated rows with unequal scales, so that nothing holds by accident of isotropy."""
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=g) * torch.arange(1, d + 1) @ torch.randn(d, d, generator=g)


def test_whitening_makes_the_second_moment_the_identity_and_is_the_inverse_root():
    v = rows(500, 12)
    w = linalg.whitening(v)
    white = (v @ w).double().numpy()
    np.testing.assert_allclose(white.T @ white / 500, np.eye(12), atol=2e-4)
    moment = v.double().numpy().T @ v.double().numpy() / 500
    want = np.linalg.inv(scipy.linalg.sqrtm(moment).real)
    np.testing.assert_allclose(w.numpy(), want, rtol=1e-3, atol=1e-5 * np.abs(want).max())


def test_whitening_clips_directions_that_are_not_there():
    v = rows(200, 6)
    v = torch.cat([v, v[:, :1]], 1)  # a copied column: one eigenvalue is 0
    values = np.linalg.eigvalsh(v.double().numpy().T @ v.double().numpy() / 200)
    w = linalg.whitening(v, clip=1e-2)
    assert torch.isfinite(w).all()
    want = np.sort(np.maximum(values, 1e-2 * np.maximum(values, 0).mean()) ** -0.5)
    np.testing.assert_allclose(np.sort(np.linalg.eigvalsh(w.double().numpy())), want, rtol=1e-3)


@pytest.mark.parametrize("k", [0, 1, 3])
def test_remove_top_leaves_the_other_principal_directions(k):
    v = rows(300, 8)
    p = linalg.remove_top(v, k)
    _, s, vt = np.linalg.svd(v.double().numpy(), full_matrices=False)
    want = np.eye(8) - vt[:k].T @ vt[:k]
    np.testing.assert_allclose(p.numpy(), want, atol=1e-5)
    left = np.linalg.svd((v.double() @ p.double()).numpy(), compute_uv=False)
    np.testing.assert_allclose(left[: 8 - k], s[k:], rtol=1e-4)


def test_procrustes_equals_scipy_for_equal_dimensions():
    a, b = rows(60, 9, seed=1), rows(60, 9, seed=2)
    w, rank = linalg.procrustes(a, b)
    want, _ = scipy.linalg.orthogonal_procrustes(a.double().numpy(), b.double().numpy())
    np.testing.assert_allclose(w.numpy(), want, atol=1e-5)
    assert rank == 9 and w.dtype == torch.float32


@pytest.mark.parametrize(("da", "db"), [(8, 5), (5, 8)])
def test_procrustes_is_semi_orthogonal_and_best_when_dimensions_differ(da, db):
    a, b = rows(60, da, seed=1), rows(60, db, seed=2)
    w, rank = linalg.procrustes(a, b)
    assert w.shape == (da, db) and rank == 5
    small = w.double() if da < db else w.double().T
    np.testing.assert_allclose((small @ small.T).numpy(), np.eye(5), atol=1e-5)
    cross = a.double().T @ b.double()
    best = float((w.double() * cross).sum())
    assert best == pytest.approx(np.linalg.svd(cross.numpy(), compute_uv=False).sum(), rel=1e-6)
    g = torch.Generator().manual_seed(0)
    for _ in range(50):  # no other semi-orthogonal map does better
        q = torch.linalg.qr(torch.randn(max(da, db), 5, generator=g, dtype=torch.float64))[0]
        other = q if da > db else q.T
        assert float((other * cross).sum()) <= best + 1e-9


def test_procrustes_of_few_pairs_says_its_rank_and_fits_them():
    x = rows(15, 48, seed=3)
    q = torch.linalg.qr(torch.randn(64, 48, generator=torch.Generator().manual_seed(4)))[0]
    w, rank = linalg.procrustes(x, x @ q.T)
    assert rank == 15 and w.shape == (48, 64)
    torch.testing.assert_close(x @ w, x @ q.T, rtol=1e-3, atol=1e-3 * float(x.abs().max()))


@pytest.mark.parametrize(("dx", "dy"), [(20, 30), (30, 20), (25, 25)])
def test_leading_directions_are_those_the_pairs_determine(dx, dy):
    a, b = rows(7, dx, seed=5), rows(7, dy, seed=6)
    cross = a.T @ b / 7
    left, values, right = linalg.leading_directions(cross)
    want = np.linalg.svd(cross.double().numpy(), compute_uv=False)
    r = int((want > 1e-3 * want[0]).sum())
    assert r <= 7 and left.shape == (dx, r) and values.shape == (r,) and right.shape == (dy, r)
    np.testing.assert_allclose(values.numpy(), want[:r] / want[0], rtol=1e-4)
    for basis in (left, right):
        np.testing.assert_allclose((basis.T @ basis).numpy(), np.eye(r), atol=1e-5)
    full = left.double() * values * float(want[0]) @ right.double().T
    assert float((full - cross.double()).norm()) < 2e-3 * float(cross.double().norm())


@pytest.mark.parametrize("limit", [1, 4, 100])
def test_principal_axes_are_the_right_singular_vectors(limit):
    g = torch.Generator().manual_seed(3)
    v = torch.randn(50, 7, generator=g, dtype=torch.float64) * torch.tensor([5.0, 4, 3, 2, 1, 0.5, 1e-6])
    _, s, vt = np.linalg.svd(v.numpy())
    axes, scale = linalg.principal_axes(v.T @ v, limit)
    q = min(limit, 6)  # the seventh is 2e-7 of the first
    assert axes.shape == (7, q) and axes.dtype == torch.float32
    np.testing.assert_allclose(scale.numpy(), s[:q] / s[0], rtol=1e-6)
    np.testing.assert_allclose(np.abs(vt[:q] @ axes.double().numpy()), np.eye(q), atol=1e-5)
