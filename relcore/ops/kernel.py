"""Gaussian of the great-circle angle between two spheres: value, objective over all pairs, gradient in closed form.

Rows are unit vectors, x (n, d_x) and y (m, d_y); a map M (d_x, d_y) takes x to ``x M``; maps come in batches
(b, d_x, d_y), one a restart. With ``theta = arccos<x M, y>``

    K = exp(-theta^2 / (2 sigma^2)),    J(M) = sum_ij a_i b_j K_ij,    dJ/dM = X' (a b' * W) Y,
    W = dK/d<x M, y> = K (theta / sin theta) / sigma^2,

with weights a, b of sum 1, by default all alike. arccos has no derivative at 1, and autograd through it is wrong near
it in float32; ``theta / sin theta`` goes to 1 and is exact there. At -1, the antipode, W grows without bound while
its tangential part vanishes: cosines are held at :data:`ANTIPODE`.

The chordal form ``exp((cos - 1) / sigma^2)`` agrees with the angle's up to theta^4; it makes J convex in M and needs
one exponential. Nothing of size b x n x m is held: blocks of :data:`BLOCK_ELEMENTS` stay in the cache.

Source: HGA, arXiv 2608.28840 (kernel and objective; the factor 2 and the closed form are ours).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

JUDGE = 0.2  # the bandwidth scores are compared at; at wider ones a high score is necessary, not sufficient
BLOCK_ELEMENTS = 1 << 17  # 512 KiB of float32 and its temporaries: the second-level cache
BLOCK_ELEMENTS_CUDA = 1 << 24
ANTIPODE = -1 + 1e-6

Kernel = Callable[[Tensor, float], tuple[Tensor, Tensor]]


def geodesic(cosines: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
    """K and W of the angle. ``cosines``, of any shape, is overwritten."""
    angle = torch.acos(cosines.clamp_(ANTIPODE, 1.0))
    value = (angle * angle).mul_(-0.5 / sigma**2).exp_()
    tiny = torch.finfo(angle.dtype).tiny ** 0.5  # 0 / 0 at angle 0 becomes tiny / tiny, the limit
    sine = (1 - cosines).mul_(cosines.add_(1)).sqrt_().add_(tiny)
    slope = angle.add_(tiny).div_(sine).mul_(value).mul_(1 / sigma**2)
    return value, slope


def chordal(cosines: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
    """K and W of the chord. ``cosines``, of any shape, is overwritten."""
    value = cosines.clamp_(max=1.0).sub_(1).mul_(1 / sigma**2).exp_()
    return value, value / sigma**2


def objective(
    maps: Tensor,
    x: Tensor,
    y: Tensor,
    sigma: float = JUDGE,
    *,
    weights: tuple[Tensor, Tensor] | None = None,
    kernel: Kernel = geodesic,
) -> Tensor:
    """J of each map: (b,), of the maps' type.

    Parameters
    ----------
    maps : (b, d_x, d_y).
    x, y : unit rows (n, d_x), (m, d_y).
    weights : a (n,), b (m,), each of sum 1; None weighs all rows alike.
    """
    a, b = _weights(x, y, weights)
    out = maps.new_zeros(len(maps))
    for some, rows in _blocks(len(maps), len(x), len(y), x.device):
        value = _value((x[rows] @ maps[some]) @ y.T, sigma, kernel)
        out[some] += (value @ b) @ a[rows]
    return out


def gradient(
    maps: Tensor,
    x: Tensor,
    y: Tensor,
    sigma: float,
    *,
    weights: tuple[Tensor, Tensor] | None = None,
    known: tuple[Tensor, Tensor] | None = None,
    known_weight: float = 0.0,
    kernel: Kernel = geodesic,
) -> tuple[Tensor, Tensor]:
    """J of each map (b,) and its Euclidean gradient (b, d_x, d_y).

    Parameters
    ----------
    known : rows (p, d_x) and (p, d_y) of known pairs. Each pair's kernel counts ``known_weight`` times as much as all
        other pairs together, which is the paper's w = m n at 1, and the sum is divided by the weights' total.
    """
    a, b = _weights(x, y, weights)
    value, slope = maps.new_zeros(len(maps)), torch.zeros_like(maps)
    weighted = y * b[:, None]
    for some, rows in _blocks(len(maps), len(x), len(y), x.device):
        k, w = kernel((x[rows] @ maps[some]) @ y.T, sigma)
        value[some] += (k @ b) @ a[rows]
        slope[some] += (x[rows] * a[rows, None]).T @ (w @ weighted)
    if known is not None and len(known[0]) and known_weight > 0:
        p, q = known
        k, w = kernel(((p @ maps) * q).sum(-1), sigma)
        value += known_weight * k.sum(1)
        slope += known_weight * (p.T @ (w[:, :, None] * q))
        total = 1 + known_weight * len(p)
        value, slope = value / total, slope / total
    return value, slope


def kernel_sums(x: Tensor, y: Tensor, sigma: float, *, kernel: Kernel = geodesic) -> Tensor:
    """Sum of each row's kernel over all rows of the other side, in common coordinates: (n,).

    Parameters
    ----------
    x, y : unit rows (n, r), (m, r).
    """
    out = x.new_empty(len(x))
    for _, rows in _blocks(1, len(x), len(y), x.device):
        out[rows] = _value(x[rows] @ y.T, sigma, kernel).sum(1)
    return out


def _value(cosines: Tensor, sigma: float, kernel: Kernel) -> Tensor:
    """K alone; the angle's needs no sine then."""
    if kernel is geodesic:
        angle = torch.acos(cosines.clamp_(-1.0, 1.0))
        return angle.mul_(angle).mul_(-0.5 / sigma**2).exp_()
    return kernel(cosines, sigma)[0]


def _weights(x: Tensor, y: Tensor, weights: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
    if weights is not None:
        return weights
    return x.new_full((len(x),), 1 / len(x)), y.new_full((len(y),), 1 / len(y))


def _blocks(maps: int, n: int, m: int, device: torch.device) -> Iterator[tuple[slice, slice]]:
    """Some maps with all rows of x, where many fit in a block; else each map with some rows."""
    limit = BLOCK_ELEMENTS_CUDA if device.type == "cuda" else BLOCK_ELEMENTS
    together, rows = max(1, limit // max(1, n * m)), max(1, min(n, limit // max(1, m)))
    for first in range(0, maps, together):
        for start in range(0, n, rows):
            yield slice(first, first + together), slice(start, min(start + rows, n))
