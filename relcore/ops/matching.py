"""Matching two point sets in tiles: the correspondences anchor optimisation is built on.

Distances are given by factors, ``M_ij^2 = a_i + b_j - 2 left_i . right_j``, so a relative representation of any number
of anchors costs no more than the width of the factors. No n x m matrix is held: rows are taken in tiles of at most
:data:`TILE_ELEMENTS` entries, unless said otherwise.

Source: "Bootstrapping Parallel Anchors for Relative Representations", arXiv 2303.00721, method section and the
authors' released Sinkhorn; what is not stated there is marked in :mod:`relcore.methods.anchor_optimization`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

TILE_ELEMENTS = 1 << 22  # 16 MiB of float32: a tile and its temporaries stay near the processor
GROUP = 16  # columns a group in the search for the largest
SQUARE_FLOOR = 1e-12  # of a squared distance, before its root is taken


class Factors(NamedTuple):
    """Squared distances in factored form: ``square_left[i] + square_right[j] - 2 left[i] . right[j]``.

    ``left`` (n, w), ``right`` (m, w), ``square_left`` (n,), ``square_right`` (m,).
    """

    left: Tensor
    right: Tensor
    square_left: Tensor
    square_right: Tensor


class Match(NamedTuple):
    """For each y row its target among the x rows.

    Attributes
    ----------
    target : (m, d), the barycentre of the x rows that y row j corresponds to.
    best : int64 (m,), the x row of largest weight.
    nearest : float (n,), distance of each x row to its nearest y row.
    """

    target: Tensor
    best: Tensor
    nearest: Tensor


def tiles(n: int, m: int, elements: int = TILE_ELEMENTS) -> Iterator[slice]:
    """Consecutive row ranges whose rows hold at most ``elements`` entries together (at least one row)."""
    height = max(1, elements // max(1, m))
    for start in range(0, n, height):
        yield slice(start, min(start + height, n))


def distance_factors(x: Tensor, y: Tensor, anchors_x: Tensor, anchors_y: Tensor) -> Factors:
    """Factors of the distances between the relative representations ``x anchors_x'`` and ``y anchors_y'``.

    With k anchors and widths d_x, d_y the product ``(x anchors_x') (y anchors_y')'`` is
    ``x (anchors_x' anchors_y) y'``: its inner width is the smaller of d_x and d_y, not k, whenever that is less.

    Parameters
    ----------
    x, y : (n, d_x), (m, d_y). anchors_x, anchors_y : (k, d_x), (k, d_y).
    """
    relative_x, relative_y = x @ anchors_x.T, y @ anchors_y.T
    squares = (relative_x * relative_x).sum(1), (relative_y * relative_y).sum(1)
    width = min(x.shape[1], y.shape[1])
    if len(anchors_x) <= width:
        return Factors(relative_x, relative_y, *squares)
    middle = anchors_x.T @ anchors_y
    if x.shape[1] <= y.shape[1]:
        return Factors(x, y @ middle.T, *squares)
    return Factors(x @ middle, y, *squares)


def vote(f: Factors, x: Tensor, elements: int = TILE_ELEMENTS) -> Match:
    """Each x row votes for its nearest y row; a y row's target is the mean of its voters.

    This is the limit of one Sinkhorn iteration as epsilon goes to 0: after the row update every x row has its zero gap
    at its nearest y row, and a y row shares its mass among those. One without voters takes the x row of smallest gap,
    its distance less that row's smallest distance.

    Parameters
    ----------
    x : (n, d), what targets are made of.
    """
    n, m = len(f.left), len(f.right)
    # one column more on both sides, and the product itself is largest where the distance is smallest
    left, right = _beside(f.left, torch.ones_like(f.square_left)), _beside(f.right, -f.square_right / 2)
    favourite = torch.empty(n, dtype=torch.int64, device=x.device)
    score = torch.empty(n, dtype=f.left.dtype, device=x.device)
    for rows in tiles(n, m, elements):
        value, column = _largest(left[rows] @ right.T, 1)
        score[rows], favourite[rows] = value[:, 0], column[:, 0]
    nearest = _distance(f.square_left, score)
    votes = torch.bincount(favourite, minlength=m)
    target = torch.zeros((m, x.shape[1]), dtype=x.dtype, device=x.device).index_add_(0, favourite, x)
    target /= votes.clamp_min(1)[:, None]
    best = torch.zeros(m, dtype=torch.int64, device=x.device)
    # the voter of largest weight is the one for which this y row is least contested; all tie at gap 0, so the first
    best.scatter_reduce_(0, favourite, torch.arange(n, device=x.device), "amin", include_self=False)
    lone = torch.nonzero(votes == 0)[:, 0]
    if len(lone):
        best[lone] = _smallest_gap(f, nearest, lone, elements)
        target[lone] = x[best[lone]]
    return Match(target, best, nearest)


def _distance(square: Tensor, score: Tensor) -> Tensor:
    """Distances from ``score = left . right - square_right / 2``."""
    return (square - 2 * score).clamp_min(SQUARE_FLOOR).sqrt()


def _smallest_gap(f: Factors, nearest: Tensor, columns: Tensor, elements: int) -> Tensor:
    """For the given y rows the x row i of least ``M_ij - min_j' M_ij'``: int64."""
    left = _beside(f.left, torch.ones_like(f.square_left), f.square_left)
    right = _beside(-2 * f.right[columns], f.square_right[columns], torch.ones_like(f.square_right[columns]))
    best = torch.empty(len(columns), dtype=torch.int64, device=columns.device)
    # y rows as rows: a smallest value is found several times faster along rows than along columns
    for part in tiles(len(columns), len(left), elements):
        gap = (right[part] @ left.T).clamp_min_(SQUARE_FLOOR).sqrt_().sub_(nearest).neg_()
        best[part] = _largest(gap, 1)[1][:, 0]
    return best


def _beside(matrix: Tensor, *columns: Tensor) -> Tensor:
    return torch.cat([matrix, *(c[:, None] for c in columns)], 1)


def nearest(f: Factors, x: Tensor, elements: int = TILE_ELEMENTS) -> Match:
    """Each y row takes its nearest x row, with no correction for hubs. Anchor optimisation collapses with it."""
    n, m = len(f.left), len(f.right)
    least = torch.full((m,), math.inf, dtype=f.left.dtype, device=x.device)
    best = torch.zeros(m, dtype=torch.int64, device=x.device)
    row_least = torch.empty(n, dtype=f.left.dtype, device=x.device)
    for rows in tiles(n, m, elements):
        square = _squares(f, rows)
        row_least[rows] = square.min(1).values
        value, row = square.min(0)
        better = value < least
        least = torch.where(better, value, least)
        best = torch.where(better, row + rows.start, best)
    return Match(x[best], best, row_least.sqrt())


def _squares(f: Factors, rows: slice) -> Tensor:
    square = (f.left[rows] @ f.right.T).mul_(-2).add_(f.square_right).add_(f.square_left[rows, None])
    return square.clamp_min_(SQUARE_FLOOR)


class Plan(NamedTuple):
    """What a few Sinkhorn iterations give.

    Attributes
    ----------
    match : targets by the column-normalised plan.
    u, v : dual potentials (n,), (m,), in units of the cost; ``P_ij = exp((u_i + v_j - M_ij) / epsilon)``.
    iterations : done; fewer than asked when both potentials moved less than the stop error.
    converged : whether that happened.
    """

    match: Match
    u: Tensor
    v: Tensor
    iterations: int
    converged: bool


def sinkhorn_match(
    f: Factors,
    x: Tensor,
    epsilon: float,
    iterations: int = 1,
    stop_error: float = 1e-5,
    elements: int = TILE_ELEMENTS,
) -> Plan:
    """Entropic transport between uniform marginals in the log domain, rows first, columns last.

    The cost is the Euclidean distance, its root taken, as in the authors' code. The last update is that of the
    columns, so column marginals are exact after any number of iterations and row marginals are not. One iteration from
    constant v makes the column-normalised plan the inverted softmax. Computes in float64: at epsilon 1e-4 the rounding
    of a float32 distance near zero is several units of the exponent.

    Parameters
    ----------
    epsilon : regularisation, in units of the distance.
    stop_error : largest change of both potentials at which the iterations end.
    """
    f = Factors(*(t.double() for t in f))
    n, m = len(f.left), len(f.right)
    source = x.double()
    log_a, log_b = -math.log(n), -math.log(m)
    u = torch.zeros(n, dtype=torch.float64, device=x.device)
    v = torch.full((m,), epsilon * log_b, dtype=torch.float64, device=x.device)
    done, converged = 0, False
    for done in range(1, iterations + 1):
        last = done == iterations
        old_u, old_v = u, v
        u, v, match = _sweep(f, source, v, epsilon, log_a, log_b, elements, want_match=last)
        converged = done > 1 and max((u - old_u).abs().max(), (v - old_v).abs().max()) < stop_error
        if converged and not last:
            _, _, match = _sweep(f, source, old_v, epsilon, log_a, log_b, elements, want_match=True)
            break
    return Plan(Match(match.target.to(x.dtype), match.best, match.nearest.to(x.dtype)), u, v, done, bool(converged))


def _sweep(f, x, v, epsilon, log_a, log_b, elements, want_match):
    """One row update and the column update that follows it, in one pass over the tiles."""
    n, m = len(f.left), len(f.right)
    u = torch.empty(n, dtype=torch.float64, device=x.device)
    row_least = torch.empty(n, dtype=torch.float64, device=x.device)
    peak = torch.full((m,), -math.inf, dtype=torch.float64, device=x.device)  # largest exponent of each column so far
    total = torch.zeros(m, dtype=torch.float64, device=x.device)  # sum of exp(exponent - peak)
    mass = torch.zeros((m, x.shape[1]), dtype=torch.float64, device=x.device) if want_match else None
    best = torch.zeros(m, dtype=torch.int64, device=x.device)
    for rows in tiles(n, m, elements // 2):
        distance = _squares(f, rows).sqrt_()
        row_least[rows] = distance.min(1).values
        u[rows] = epsilon * (log_a - torch.logsumexp((v - distance) / epsilon, 1))
        exponent = (u[rows, None] - distance) / epsilon
        value, row = exponent.max(0)
        best = torch.where(value > peak, row + rows.start, best)
        higher = torch.maximum(peak, value)
        shrink = (peak - higher).exp()
        weight = exponent.sub_(higher).exp_()
        total = total * shrink + weight.sum(0)
        if want_match:
            mass = mass * shrink[:, None] + weight.T @ x[rows]
        peak = higher
    v = epsilon * (log_b - peak - total.log())
    match = Match(mass / total[:, None], best, row_least) if want_match else None
    return u, v, match


def marginals(f: Factors, u: Tensor, v: Tensor, epsilon: float, elements: int = TILE_ELEMENTS) -> tuple[Tensor, Tensor]:
    """Row and column sums (n,), (m,) of the plan of the given potentials, float64."""
    f = Factors(*(t.double() for t in f))
    n, m = len(f.left), len(f.right)
    row_sums = torch.empty(n, dtype=torch.float64, device=u.device)
    column_sums = torch.zeros(m, dtype=torch.float64, device=u.device)
    for rows in tiles(n, m, elements // 2):
        part = ((u[rows, None] + v - _squares(f, rows).sqrt_()) / epsilon).exp_()
        row_sums[rows] = part.sum(1)
        column_sums += part.sum(0)
    return row_sums, column_sums


def best_both_ways(a: Tensor, b: Tensor, neighbors: int = 10, elements: int = TILE_ELEMENTS) -> tuple[Tensor, Tensor]:
    """Best match of every row on the other side by CSLS: int64 (n,) rows of b and int64 (m,) rows of a.

    CSLS is ``2 a_i . b_j - r(a_i) - r(b_j)``, r being the mean cosine to the k nearest of the other side (Conneau et
    al. 2018, section 2.3): a row near to everything is worth less. The scores are computed three times, in tiles:
    reading them along rows is so much faster than along columns that a product more is the smaller price.

    Parameters
    ----------
    a, b : unit rows (n, w), (m, w).
    """
    n, m = len(a), len(b)
    mean_a, mean_b = torch.empty(n, dtype=a.dtype, device=a.device), torch.empty(m, dtype=a.dtype, device=a.device)
    to_b, to_a = (torch.empty(size, dtype=torch.int64, device=a.device) for size in (n, m))
    for rows in tiles(n, m, elements):
        mean_a[rows] = _largest(a[rows] @ b.T, min(neighbors, m))[0].mean(1)
    for rows in tiles(m, n, elements):
        part = b[rows] @ a.T
        mean_b[rows] = _largest(part, min(neighbors, n))[0].mean(1)
        to_a[rows] = _largest(part.sub_(mean_a / 2), 1)[1][:, 0]
    for rows in tiles(n, m, elements):
        to_b[rows] = _largest((a[rows] @ b.T).sub_(mean_b / 2), 1)[1][:, 0]
    return to_b, to_a


def _largest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """``scores.topk(k, 1)``, exact, at a fraction of its cost where rows are long.

    The k largest lie in the k groups of columns with the largest maxima. A group is every ``width``-th column, so that
    the maxima of neighbouring groups are found side by side; the columns left over are all looked at.
    """
    h, m = scores.shape
    width = m // GROUP
    if width < 4 * k:
        return scores.topk(k, 1)
    groups = scores[:, : width * GROUP].unflatten(1, (GROUP, width))
    chosen = groups.amax(1).topk(k, 1).indices
    columns = (chosen[:, None] + width * torch.arange(GROUP, device=scores.device)[:, None]).view(h, -1)
    rest = torch.arange(width * GROUP, m, device=scores.device).expand(h, -1)
    columns = torch.cat([columns, rest], 1)
    top, place = scores.gather(1, columns).topk(k, 1)
    return top, columns.gather(1, place)
