"""Relative representations against the definition: cosine to each anchor."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics.pairwise import cosine_similarity

from relcore.ops.neighbors import unit_rows
from relcore.ops.relative import Moments, relative


def test_relative_is_the_cosine_to_each_anchor():
    g = torch.Generator().manual_seed(0)
    v, anchors = 5 * torch.randn(40, 7, generator=g), 0.1 * torch.randn(11, 7, generator=g)
    out = relative(v, anchors)
    assert out.shape == (40, 11) and out.dtype == torch.float32
    np.testing.assert_allclose(out.numpy(), cosine_similarity(v.numpy(), anchors.numpy()), atol=1e-6)


def test_relative_does_not_change_under_rotation_and_scale():
    """The invariance that makes two encoders comparable (Moschella et al. 2023, section 3)."""
    g = torch.Generator().manual_seed(1)
    v = torch.randn(50, 12, generator=g)
    q = torch.linalg.qr(torch.randn(12, 12, generator=g))[0]
    turned = 3.7 * v @ q
    torch.testing.assert_close(relative(v, v[:9]), relative(turned, turned[:9]), rtol=0, atol=1e-5)


def test_a_zero_row_has_no_similarity_to_anything():
    v = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    assert relative(v, v[1:])[0].tolist() == [0.0]


# ---------------------------------------------------------------- the gamma profile


def paired(n=40, dx=7, dy=11, rank=None, seed=3):
    g = torch.Generator().manual_seed(seed)
    shared = torch.randn(n, rank or 5, generator=g)
    sides = [shared @ torch.randn(rank or 5, d, generator=g) for d in (dx, dy)]
    noise = 0.0 if rank else 0.3
    return [s + noise * torch.randn(s.shape, generator=g) for s in sides]


def profiles(anchors, v, gamma, ridge, clip=1e-6):
    """The definition, with NumPy alone: r(x) = A (M + ridge mean(eig) I)^(-gamma / 2) x."""
    a = anchors.double().numpy()
    values, vectors = np.linalg.eigh(a.T @ a / len(a))
    values = np.maximum(values + ridge * values.mean(), clip * values.mean())
    return v.double().numpy() @ (vectors * values ** (-gamma / 2)) @ vectors.T @ a.T


@pytest.mark.parametrize(("gamma", "ridge"), [(0, 0), (0.5, 0), (1, 0), (1, 0.3), (1.5, 1.5), (2, 3)])
@pytest.mark.parametrize("count", [4, 15, 40])
def test_factors_multiply_to_the_cosine_of_the_profiles(gamma, ridge, count):
    ax, ay = paired(count)
    x, y = paired(30, seed=4)
    profile = Moments(ax, ay).profile(gamma, ridge)
    wanted = cosine_similarity(profiles(ax, x, gamma, ridge), profiles(ay, y, gamma, ridge))
    fx, fy = profile.factors_x(x), profile.factors_y(y)
    assert fx.shape[1] <= min(7, 11, count)
    np.testing.assert_allclose(fx @ fy.T, wanted, atol=2e-5)
    np.testing.assert_allclose(cosine_similarity(x @ profile.map_x, y @ profile.map_y), wanted, atol=2e-5)
    np.testing.assert_allclose(
        cosine_similarity(x @ profile.map_x), cosine_similarity(profiles(ax, x, gamma, ridge)), atol=2e-5
    )
    assert profile.map_x.shape == (7, min(count, 18)) and profile.map_y.shape == (11, min(count, 18))


def test_gamma_0_is_the_relative_representation():
    ax, ay = (unit_rows(a) for a in paired(12))
    x, _ = (unit_rows(v) for v in paired(30, seed=4))
    np.testing.assert_allclose(x @ Moments(ax, ay).profile(0.0).map_x, relative(x, ax), atol=1e-5)


def test_gamma_1_keeps_the_geometry_of_the_anchors_own_span():
    """Gram of the profiles is N times that of the rows: M and its inverse cancel (anchordot.md, section 1.3)."""
    ax, ay = paired(40)
    profile = Moments(ax, ay).profile(1.0)
    r = ax @ profile.map_x
    torch.testing.assert_close(r @ r.T, 40 * ax @ ax.T, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("gamma", [0.0, 1.0, 2.0])
def test_the_spectrum_is_that_of_the_data_to_the_power_2_less_gamma(gamma):
    ax, ay = paired(5000)
    profile = Moments(ax, ay).profile(gamma)
    r = (ax @ profile.map_x).double()
    found = torch.linalg.eigvalsh(r.T @ r / len(r)).flip(0)[:7].log()
    wanted = (2 - gamma) * torch.linalg.eigvalsh((ax.T @ ax / len(ax)).double()).flip(0).log()
    torch.testing.assert_close(found - found[0], wanted - wanted[0], rtol=0, atol=1e-3)


def test_trivial_canonical_correlations_are_counted():
    """Unrelated sides of 20 and 30 dimensions share 14 directions of R^36; numerically so (section 0.4)."""
    g = torch.Generator().manual_seed(0)
    ax, ay = torch.randn(36, 20, generator=g), torch.randn(36, 30, generator=g)
    moments = Moments(ax, ay)
    qx, qy = torch.linalg.qr(ax.double())[0], torch.linalg.qr(ay.double())[0]
    ones = int((torch.linalg.svdvals(qx.T @ qy) > 1 - 1e-9).sum())
    assert moments.trivial == ones == 14
    assert Moments(*paired(200)).trivial == 0


def test_half_of_the_singular_values_being_one_does_no_harm():
    g = torch.Generator().manual_seed(0)
    ax, ay = torch.randn(60, 70, generator=g), torch.randn(60, 50, generator=g)
    profile = Moments(ax, ay).profile(1.0)
    assert float((profile.weights > 0.999).double().mean()) > 0.5
    wanted = cosine_similarity(profiles(ax, ax, 1, 0), profiles(ay, ay, 1, 0))
    np.testing.assert_allclose(profile.factors_x(ax) @ profile.factors_y(ay).T, wanted, atol=1e-4)


def test_anchors_on_one_line_give_a_profile_of_rank_1():
    ax, ay = paired(20, rank=1)
    moments = Moments(ax, ay)
    assert (moments.rank_x, moments.rank_y) == (1, 1)
    profile = moments.profile(0.0)
    assert profile.left.shape[1] == 1
    x, y = paired(30, seed=4)
    products = profile.factors_x(x) @ profile.factors_y(y).T
    np.testing.assert_allclose(products.abs(), 1.0, atol=1e-4)


def test_a_row_no_anchor_has_a_part_in_is_zero():
    ax, ay = torch.tensor([[1.0, 0, 0], [0, 1.0, 0]]), torch.eye(2)
    profile = Moments(ax, ay).profile(1.5, 1.5)
    out = profile.factors_x(torch.tensor([[0.0, 0, 1.0], [1.0, 0, 0]]))
    assert out[0].tolist() == [0.0, 0.0] and out[1].norm() > 0 and torch.isfinite(out).all()
