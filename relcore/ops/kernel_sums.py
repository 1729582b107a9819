"""Sums of the geodesic Gaussian kernel over whole spaces, at many bandwidths from one pass over the angles.

Rows are unit vectors. With ``theta_ij = arccos<x_i, y_j>`` and ``K_sigma = exp(-theta^2 / (2 sigma^2))``, the sum
``s(x_i) = sum_j K_sigma(theta_ij)`` is low where the other space has nothing near x_i (HGA, arXiv 2608.28840, section
F). A bandwidth smaller by the root of 2 squares the kernel, so a grid of such steps costs one exponential a chain.

Nothing of size n x m is held.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from relcore.ops import neighbors

BLOCK_ELEMENTS = 1 << 17  # 512 KiB of float32 and two temporaries: the second-level cache
BLOCK_ELEMENTS_CUDA = 1 << 24
SAME = 1e-6  # relative difference at which two bandwidths are one step of a chain


def kernel_sums(
    x: Tensor,
    y: Tensor,
    sigmas: Tensor,
    *,
    parts: Tensor | None = None,
    own: Tensor | None = None,
    block: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Sums of K over the rows of y for each row of x, and over the rows of x for each row of y.

    Parameters
    ----------
    x, y : unit rows (n, r), (m, r), float32.
    sigmas : (S,), radians, any order.
    parts : (m, g), weight of each row of y in each of g sums; None is one sum of all.
    own : int64 (n,), the row of y that is this row of x itself, which takes no part; -1 for none.
    block : rows of x at once.

    Returns
    -------
    (n, S, g) and (m, S), float32. The second is of all rows of x, whatever the parts.
    """
    n, m = len(x), len(y)
    parts = x.new_ones(m, 1) if parts is None else parts.to(x)
    rows = x.new_zeros(n, len(sigmas), parts.shape[1])
    columns = x.new_zeros(m, len(sigmas))
    elements = BLOCK_ELEMENTS_CUDA if x.device.type == "cuda" else BLOCK_ELEMENTS
    step = block or max(1, elements // max(1, m))
    chains = _chains(sigmas.double().tolist())
    for start in range(0, n, step):
        some = slice(start, start + step)
        squares = torch.acos((x[some] @ y.T).clamp_(-1.0, 1.0)).square_()
        if own is not None:
            itself = own[some]
            has = (itself >= 0).nonzero()[:, 0]
            squares[has, itself[has]] = torch.inf
        for sigma, positions in chains:
            value = (squares * (-0.5 / sigma**2)).exp_()
            for i, position in enumerate(positions):
                if i:
                    value.mul_(value)
                rows[some, position] = value @ parts
                columns[:, position] += value.sum(0)
    return rows, columns


def _chains(sigmas: list[float]) -> list[tuple[float, list[int]]]:
    """Bandwidths in chains, each the one before it divided by the root of 2: (largest, positions)."""
    left = sorted(range(len(sigmas)), key=lambda i: -sigmas[i])
    out = []
    while left:
        chain = [left.pop(0)]
        while True:
            wanted = sigmas[chain[-1]] / math.sqrt(2)
            found = next((i for i in left if abs(sigmas[i] - wanted) <= SAME * wanted), None)
            if found is None:
                break
            left.remove(found)
            chain.append(found)
        out.append((sigmas[chain[0]], chain))
    return out


def neighbour_angle(v: Tensor, k: int, *, rows: Tensor | None = None) -> float:
    """Median angle of the rows of (n, r), unit, to their k-th other row, in radians; of some rows only where given.

    Fewer than k other rows: to the last of them. A single row: 0.
    """
    k = min(k, len(v) - 1)
    if k < 1:
        return 0.0
    queries = v if rows is None else v[rows]
    scores, _ = neighbors.topk_cosine(queries, v, k + 1)  # the first is the row itself, or its copy
    return float(torch.acos(scores[:, -1].clamp(-1.0, 1.0)).median())
