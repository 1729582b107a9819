"""Linear maps from one space to another, fitted on paired rows: least squares, ridge, and which rows make a basis.

Everything is float64. A spectrum is decomposed once; every map and every leave-one-out error follows from it::

    known = Regression(a, b)             # paired rows (K, p), (K, q)
    known.solution(0.0)                  # least squares; of all solutions the shortest
    known.left_out(ridge)                # error (K,) of each row, predicted by the others, without refitting
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

RANK = 1e-6  # of the largest singular value: below it a direction of float32 rows is rounding
GRID = tuple(10 ** (0.5 * i) for i in range(-8, 7))  # ridges that leave-one-out chooses from, 1e-4 to 1e3
TIE = 1e-6  # of a norm: rows as near to the longest as that are as long
FULL = 1e-9  # a row whose own weight in its prediction comes so near to 1 is not predicted by the others at all


class Regression:
    """Least squares and ridge of b on a.

    Parameters
    ----------
    a, b : paired rows (K, p), (K, q).
    intercept : fit a constant too, which no ridge shrinks; rows are then centred here.

    Attributes
    ----------
    scale : mean eigenvalue of the second moment ``a' a``, the unit of ridges.
    rank : of a.
    """

    def __init__(self, a: Tensor, b: Tensor, intercept: bool) -> None:
        a, b = a.double(), b.double()
        nothing = a.new_zeros(())
        self.mean_a, self.mean_b = (v.mean(0) if intercept else nothing for v in (a, b))
        self.a, self.b, self.intercept = a - self.mean_a, b - self.mean_b, intercept
        u, s, vt = torch.linalg.svd(self.a, full_matrices=False)
        # against what centring took away, too: rows that are all alike leave their rounding
        largest = max(float(s[0]), float(self.mean_a.norm()) * len(a) ** 0.5)
        kept = s > RANK * largest
        self.u, self.s, self.v = u[:, kept], s[kept], vt[kept].T
        self.rank = len(self.s)
        self.scale = float((self.s**2).sum() / a.shape[1])
        self.turned = self.u.T @ self.b  # (r, q)

    def solution(self, ridge: float) -> Tensor:
        """M (p, q) that minimises ``|a M - b|^2 + ridge scale |M|^2``; of ridge 0 the shortest solution."""
        return self.v @ ((self.s / (self.s**2 + ridge * self.scale))[:, None] * self.turned)

    def offset(self, solution: Tensor) -> Tensor:
        """The constant (q,) that goes with a solution; zeros without an intercept."""
        return self.mean_b - self.mean_a @ solution if self.intercept else solution.new_zeros(solution.shape[1])

    def left_out(self, ridge: float) -> Tensor:
        """Squared errors (K,) of each row of b under the map of the other rows, with their own constant.

        Infinite where the others say nothing of a row: at ridge 0, of a row that alone has a direction.
        """
        shrunk = self.s**2 / (self.s**2 + ridge * self.scale)
        own = (self.u**2 * shrunk).sum(1) + (1 / len(self.a) if self.intercept else 0.0)
        errors = ((self.b - self.u @ (shrunk[:, None] * self.turned)) ** 2).sum(1)
        return torch.where(1 - own > FULL, errors / (1 - own).clamp_min(FULL) ** 2, torch.inf)

    def best_ridge(self, grid: Sequence[float] = GRID) -> tuple[float, float]:
        """The ridge of the grid of least error at rows left out, and its share of b's own (R^2 is 1 less it)."""
        errors = [float(self.left_out(ridge).mean()) for ridge in grid]
        at = min(range(len(grid)), key=errors.__getitem__)
        count = len(self.b)
        alone = float((self.b**2).sum(1).mean()) * ((count / (count - 1)) ** 2 if self.intercept else 1.0)
        return grid[at], errors[at] / max(alone, 1e-300)


def spreads(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean (d,) and standard deviation (d,) of rows (K, d), float64, and which columns vary, bool (d,)."""
    rows = rows.double()
    mean, spread = rows.mean(0), rows.std(0, correction=0)
    return mean, spread, spread > 1e-7 * rows.abs().amax(0)


def condition(rows: Tensor) -> float:
    """Ratio of the largest to the smallest of the min(K, d) singular values of rows (K, d); infinite for a zero."""
    s = torch.linalg.svdvals(rows.double())
    return float(s[0] / s[-1]) if s[-1] > 0 else float("inf")


def rank_of(rows: Tensor) -> int:
    """Singular values of rows (K, d) above :data:`RANK` of the largest."""
    s = torch.linalg.svdvals(rows.double())
    return int((s > RANK * s[0]).sum())


def pivoted(rows: Tensor) -> Tensor:
    """Positions int64 (r,) of rows (K, d), always the one farthest from the span of those before; r is their rank.

    Of rows equally far, as all rows of norm 1 are at the start, the first. QR with column pivoting of ``rows.T``
    (Businger and Golub 1965), by Gram-Schmidt.
    """
    rest = rows.double().clone()
    largest = torch.linalg.vector_norm(rest, dim=1).max()
    chosen, basis = [], rest.new_zeros(0, rest.shape[1])
    for _ in range(min(rest.shape)):
        norms = torch.linalg.vector_norm(rest, dim=1)
        at = int((norms >= (1 - TIE) * norms.max()).int().argmax())
        if norms[at] <= RANK * largest:
            break
        q = rest[at] / norms[at]
        q = q - (q @ basis.T) @ basis
        q = q / torch.linalg.vector_norm(q)
        basis = torch.cat([basis, q[None]])
        rest -= (rest @ q)[:, None] * q
        rest[at] = 0
        chosen.append(at)
    return torch.tensor(chosen, dtype=torch.int64)


def longest_prefix(rows: Tensor, limit: float) -> int:
    """How many of the first rows (K, d), K at most d, have a condition number of at most ``limit``; at least 1.

    A further row lowers the smallest singular value and raises the largest, so that halving finds it.
    """
    low, high = 1, len(rows) + 1
    while high - low > 1:
        middle = (low + high) // 2
        if condition(rows[:middle]) <= limit:
            low = middle
        else:
            high = middle
    return low


def inverse_projection(a: Tensor, b: Tensor) -> Tensor:
    """``a' (b')^+`` (p, q), float64: products with the anchors a (K, p), read as products with the anchors b (K, q).

    Singular values of b below :data:`RANK` of the largest count as none.
    """
    return a.double().T @ torch.linalg.pinv(b.double().T, rtol=RANK)
