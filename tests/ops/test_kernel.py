"""The kernel against its definition, its gradient against autograd in float64, and both where arccos has no slope."""

from __future__ import annotations

import math

import pytest
import torch

from relcore.ops import kernel
from relcore.ops.neighbors import unit_rows


def sphere(n: int, d: int, seed: int) -> torch.Tensor:
    v = torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return v / v.norm(dim=1, keepdim=True)


def turns(b: int, dx: int, dy: int, seed: int) -> torch.Tensor:
    v = torch.randn(b, max(dx, dy), max(dx, dy), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.linalg.qr(v)[0][:, :dx, :dy].contiguous()


def by_definition(m, x, y, sigma, a, b, kind):
    cosines = (x @ m) @ y.T
    k = torch.exp(-(torch.acos(cosines) ** 2) / (2 * sigma**2)) if kind is kernel.geodesic else None
    k = torch.exp((cosines - 1) / sigma**2) if k is None else k
    return (a[:, None] * b[None] * k).sum()


@pytest.mark.parametrize("kind", [kernel.geodesic, kernel.chordal])
@pytest.mark.parametrize("sigma", [0.1, 0.2, 0.7])
@pytest.mark.parametrize(("dx", "dy"), [(5, 5), (7, 4), (4, 7)])
@pytest.mark.parametrize("limit", [1 << 17, 40])
def test_value_and_gradient_are_autograds_in_float64(kind, sigma, dx, dy, limit, monkeypatch):
    monkeypatch.setattr(kernel, "BLOCK_ELEMENTS", limit)  # all at once, and a row at a time
    x, y, maps = sphere(23, dx, 1), sphere(31, dy, 2), turns(3, dx, dy, 3) * 0.97
    a, b = (torch.softmax(torch.randn(len(v), dtype=torch.float64), 0) for v in (x, y))
    value, slope = kernel.gradient(maps, x, y, sigma, weights=(a, b), kernel=kind)
    for i, m in enumerate(maps):
        m = m.clone().requires_grad_()
        want = by_definition(m, x, y, sigma, a, b, kind)
        want.backward()
        torch.testing.assert_close(value[i], want.detach(), rtol=1e-10, atol=1e-14)
        torch.testing.assert_close(slope[i], m.grad, rtol=1e-8, atol=1e-12)
    torch.testing.assert_close(kernel.objective(maps, x, y, sigma, weights=(a, b), kernel=kind), value)


def test_known_pairs_count_as_much_as_all_others_together():
    x, y, maps = sphere(9, 4, 1), sphere(8, 4, 2), turns(2, 4, 4, 3)
    weight = 0.7
    known = (x[[1, 2, 5]], y[[0, 7, 3]])
    value, slope = kernel.gradient(maps, x, y, 0.5, known=known, known_weight=weight)
    for i, m in enumerate(maps):
        m = m.clone().requires_grad_()
        pairs = torch.exp(-(torch.acos((x @ m) @ y.T) ** 2) / 0.5)
        apart = torch.exp(-(torch.acos(((known[0] @ m) * known[1]).sum(1)) ** 2) / 0.5)
        w = weight * pairs.numel()  # in the paper's units: w of a pair among m n of weight 1
        want = (pairs.sum() + w * apart.sum()) / (pairs.numel() + w * 3)
        want.backward()
        torch.testing.assert_close(value[i], want.detach())
        torch.testing.assert_close(slope[i], m.grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sigma", [0.001, 0.1, 1.0])
def test_at_angle_zero_the_slope_is_its_limit(dtype, sigma):
    value, slope = kernel.geodesic(torch.tensor([1.0, 1.0 + 2e-7], dtype=dtype), sigma)
    assert value.tolist() == [1.0, 1.0]
    torch.testing.assert_close(slope, torch.full((2,), 1 / sigma**2, dtype=dtype))


def test_near_one_float32_keeps_the_closed_form():
    """What autograd gets wrong by 80 %: the slope of angles that float32 cosines can just tell from 0."""
    cosines = 1 - torch.arange(0, 60, dtype=torch.float32) * 2.0**-24 * 2
    exact = cosines.double()
    angle = 2 * torch.asin(((1 - exact) / 2).sqrt())
    ratio = torch.where(angle > 0, angle / torch.sin(angle).clamp_min(1e-300), 1.0)
    want = torch.exp(-(angle**2) / (2 * 0.1**2)) * ratio / 0.1**2
    _, slope = kernel.geodesic(cosines.clone(), 0.1)
    torch.testing.assert_close(slope.double(), want, rtol=1e-5, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_at_the_antipode_the_slope_is_finite_and_the_value_right(dtype):
    value, slope = kernel.geodesic(torch.tensor([-1.0, -1.0 - 2e-7], dtype=dtype), 1.0)
    torch.testing.assert_close(value, torch.full((2,), math.exp(-(math.pi**2) / 2), dtype=dtype), rtol=5e-3, atol=0)
    assert torch.isfinite(slope).all() and (slope < 100).all()


def test_a_map_onto_itself_in_float32_has_the_gradient_of_float64():
    x = sphere(50, 6, 1)
    maps = torch.eye(6, dtype=torch.float64)[None]
    wide = kernel.gradient(maps, x, x, 0.1)[1]
    narrow = kernel.gradient(maps.float(), x.float(), x.float(), 0.1)[1]
    assert (narrow.double() - wide).norm() / wide.norm() < 1e-5


def test_chord_and_angle_agree_at_small_angles():
    angle = torch.tensor([0.0, 0.05, 0.1], dtype=torch.float64)
    near, far = kernel.geodesic(torch.cos(angle), 0.2)[0], kernel.chordal(torch.cos(angle), 0.2)[0]
    torch.testing.assert_close(near, far, rtol=2e-4, atol=0)


def test_sums_are_those_of_the_whole_matrix(monkeypatch):
    monkeypatch.setattr(kernel, "BLOCK_ELEMENTS", 50)
    x, y = sphere(17, 3, 1), sphere(12, 3, 2)
    want = torch.exp(-(torch.acos(x @ y.T) ** 2) / (2 * 0.3**2)).sum(1)
    torch.testing.assert_close(kernel.kernel_sums(x, y, 0.3), want)


def test_zero_rows_are_at_a_right_angle_to_everything():
    x = unit_rows(torch.zeros(2, 3))
    value = kernel.objective(torch.eye(3)[None], x, unit_rows(torch.ones(1, 3)), 0.5)
    assert value.item() == pytest.approx(math.exp(-((math.pi / 2) ** 2) / 0.5), rel=1e-5)
