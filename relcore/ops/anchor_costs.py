"""Costs between two spaces by way of shared anchors that have no low-rank form: comparators of the profile's.

They are held in full, (n, m) float32, and handed to the solver by :func:`from_matrix`.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from relcore.ops import sinkhorn
from relcore.ops.neighbors import unit_rows

TILE = 1 << 22  # entries of a temporary


def from_matrix(matrix: Tensor) -> sinkhorn.Cost:
    """Any (n, m) matrix as a cost; its factors are the matrix and an identity."""
    n, m = matrix.shape
    left, right = (1 - matrix, torch.eye(m)) if m <= n else (torch.eye(n), (1 - matrix).T.contiguous())
    return sinkhorn.dot(left.to(matrix), right.to(matrix))


def bridge(x: Tensor, y: Tensor, anchors_x: Tensor, anchors_y: Tensor) -> Iterator[Tensor]:
    """``min_k d_x(x_i, a_k) + d_y(b_k, y_j)``: through the one anchor that makes the way shortest.

    d is ``1 - cos``, on each side in medians of its own. Yields the rows of the matrix (n, m), in parts.

    Source: AnchorDOT, appendix C.3.1, which does not give the distances; these are ours.
    """
    there, back = (1 - unit_rows(v) @ unit_rows(a).T for v, a in ((x, anchors_x), (y, anchors_y)))
    there, back = (d / d.median().clamp_min(1e-12) for d in (there, back))
    back = back.T.contiguous()
    for part in there.split(max(1, TILE // back.shape[1])):
        best = part[:, :1] + back[0]
        for k in range(1, len(back)):
            torch.minimum(best, part[:, k, None] + back[k], out=best)
        yield best


def keypoint(x: Tensor, y: Tensor, anchors_x: Tensor, anchors_y: Tensor, temperature: float = 0.1) -> Iterator[Tensor]:
    """Jensen-Shannon divergence between the relations of x_i and y_j to the anchors, in parts of rows.

    The relation is softmax(-2 d / temperature), d the squared distance over the largest of its side.

    Source: Gu et al., "Keypoint-Guided Optimal Transport", NeurIPS 2022, arXiv 2303.13102; without the mask that
    forces keypoints onto each other, as AnchorDOT uses it.
    """
    p, q = (_relation(v, a, temperature) for v, a in ((x, anchors_x), (y, anchors_y)))
    entropy_p, entropy_q = (torch.xlogy(r, r).sum(1) for r in (p, q))
    height = max(1, TILE // (len(q) * 8))
    for rows in torch.arange(len(p)).split(height):
        shared = torch.zeros(len(rows), len(q)).to(p)
        for k in torch.arange(p.shape[1]).split(8):  # never (n, m, N) at once
            mean = (p[rows][:, None, k] + q[None, :, k]) / 2
            shared += torch.xlogy(mean, mean).sum(2)
        yield ((entropy_p[rows, None] + entropy_q) / 2 - shared).clamp_min(0)


def _relation(v: Tensor, anchors: Tensor, temperature: float) -> Tensor:
    distance = 1 - unit_rows(v) @ unit_rows(anchors).T  # half the squared distance of unit rows
    return torch.softmax(-2 * distance / (distance.max().clamp_min(1e-12) * temperature), 1)


def gromov_gradient(inner_x: Tensor, inner_y: Tensor, plan: Tensor) -> Tensor:
    """Gradient (n, m) of the Gromov-Wasserstein discrepancy, by squares, at a plan.

    Parameters
    ----------
    inner_x, inner_y : symmetric distances (n, n), (m, m) within each side.

    Source: Peyre, Cuturi and Solomon, "Gromov-Wasserstein Averaging of Kernel and Distance Matrices", ICML 2016.
    """
    a, b = plan.sum(1), plan.sum(0)
    own = (inner_x.square() @ a)[:, None] + inner_y.square() @ b
    return 2 * (own - 2 * inner_x @ plan @ inner_y)
