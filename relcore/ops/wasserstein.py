"""Wasserstein-Procrustes: transport of small batches, steps of an orthogonal map, and a convex start.

Rows are unit vectors x (n, d_x), y (m, d_y), float32; maps (d_x, d_y) are orthogonal, or partial isometries.

Source: Grave, Joulin and Berthet 2019 (Unsupervised alignment of embeddings with Wasserstein Procrustes), sections 3
and 4, from the formulas; the convex relaxation of graph matching is Gold and Rangarajan 1996, as they use it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from relcore.ops.linalg import polar

TOLERANCE = 1e-3  # of the row sums, relative: as the authors stop Sinkhorn's iteration
MOST = 1000  # iterations of it
DEEP = 60.0  # exponents below minus this underflow, with what the scaling does to them, in float32


def plan(cost: Tensor, reg: float) -> Tensor:
    """Entropic transport plan (p, q) of sum 1 between uniform masses, of the cost's type; columns exact.

    The cost is shifted first so that each row and each column has a zero: that changes no plan, and of a kernel so
    made none underflows as a whole. Where entries would underflow all the same, it is iterated on logarithms.
    """
    cost = cost - cost.amin(1, keepdim=True)
    cost = cost - cost.amin(0, keepdim=True)
    if float(cost.max()) > DEEP * reg:
        return _plan_of_logs(cost / -reg)
    kernel = (cost / -reg).exp_()
    p, q = cost.shape
    v = cost.new_full((q,), 1 / q)
    tiny = torch.finfo(cost.dtype).tiny
    for _ in range(MOST):
        sums = (kernel @ v).clamp_min_(tiny)
        u = 1 / (p * sums)
        v = 1 / (q * (kernel.T @ u).clamp_min_(tiny))
        if float((u * (kernel @ v) * p - 1).abs().mean()) < TOLERANCE:
            break
    return u[:, None] * kernel * v


def _plan_of_logs(kernel: Tensor) -> Tensor:
    """:func:`plan` of the logarithm of its kernel."""
    p, q = kernel.shape
    g = kernel.new_zeros(q)
    for _ in range(MOST):
        f = -math.log(p) - torch.logsumexp(kernel + g, 1)
        g = -math.log(q) - torch.logsumexp(kernel + f[:, None], 0)
        if float((torch.exp(f + torch.logsumexp(kernel + g, 1)) * p - 1).abs().mean()) < TOLERANCE:
            break
    return (kernel + f[:, None] + g).exp_()


def step(turn: Tensor, x: Tensor, y: Tensor, reg: float, rate: float) -> tuple[Tensor, float]:
    """The map after one step on a batch x (p, d_x), y (q, d_y), and the batch's mean cosine under the plan before it.

    ``turn + rate * mean of x_i' y_j under the plan``, and the nearest orthogonal map.
    """
    image = x @ turn
    coupled = plan(-(image @ y.T), reg) @ y
    return polar(turn + rate * (x.T @ coupled)), float((image * coupled).sum())


def convex_start(x: Tensor, y: Tensor, reg: float, steps: int) -> Iterator[tuple[int, float, Tensor]]:
    """Step, relative mismatch of the matched Gram matrices, and the matching (n, n), by Frank-Wolfe.

    Minimises ``|K_x P - P K_y|`` over P whose rows and columns sum to 1, K being the roots of both Gram matrices, of
    equal norm; the linear step is entropic transport. x, y have equally many rows. The mismatch is of the matching
    before the step, in units of ``|K|``; no product is wider than the spaces' dimensions.
    """
    n, mass = len(x), float(x.square().sum())  # the squared norm of K_x
    a, b = _root(x), _root(y)
    a, b = ((v / torch.linalg.matrix_norm(v.T @ v).sqrt()).float() for v in (a, b))  # both K of norm 1
    aa, bb = a.T @ a, b.T @ b
    p = a.new_full((n, n), 1 / n)
    for t in range(1, steps + 1):
        left, right = a.T @ p, p @ b
        inner, outer = aa @ left, right @ bb
        square = (left * inner).sum() + (right * outer).sum() - 2 * ((left @ b) * (a.T @ right)).sum()
        gradient = a @ (inner - 2 * (left @ b) @ b.T) + outer @ b.T
        share = 2 / (2 + t)
        p = p.mul_(1 - share).add_(plan(gradient * mass, reg), alpha=share * n)
        yield t, float(square.clamp_min(0).sqrt()), p


def _root(v: Tensor) -> Tensor:
    """Rows whose Gram matrix is the root of that of v (n, d): float64 (n, min(n, d))."""
    u, s, _ = torch.linalg.svd(v.double(), full_matrices=False)
    return u * s.sqrt()
