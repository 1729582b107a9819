"""Exact neighbours by cosine, in blocks of queries: top-k, ranks, CSLS, inverted softmax, mutual neighbours, N_k.

Tensors in, tensors out; float32; the inputs' device. No n x m matrix is held: ``block`` is the number of query rows
scored at once, by default as many as make :data:`BLOCK_ELEMENTS` scores. Rows need not be unit; cosine is taken.

Ties: equal float32 scores are ordered by target index, lowest first, in every function here, so the rank of a
partner is its position in the list of :func:`topk_cosine`. A collapsed space, where everything ties, therefore
scores at chance and not at the top. Exact duplicates among the targets can differ by a rounding in the product
(about 1e-7), and then that decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

BLOCK_ELEMENTS = 1 << 23  # 32 MiB of float32 scores at once; larger blocks were not faster
GROUP = 32  # columns a group in the search for the k largest
TINY = 1e-30
TEMPERATURE = 1 / 30  # of the inverted softmax


def unit_rows(v: Tensor) -> Tensor:
    """The rows of (n, d) scaled to norm 1, float32. A zero row stays zero: its cosine with everything is 0."""
    v = v.float()
    return v / torch.linalg.vector_norm(v, dim=1, keepdim=True).clamp_min(TINY)


class Rule(NamedTuple):
    """A score of every pair as one product, ``queries_i . targets_j + shift_j + offset_i``: what all rules here are.

    Tensors float32: queries (p, r), targets (m, r), shift (m,), offset (p,).
    """

    queries: Tensor
    targets: Tensor
    shift: Tensor
    offset: Tensor

    def top_k(self, k: int, *, block: int | None = None) -> tuple[Tensor, Tensor]:
        """Scores (p, k), descending, and indices int64 (p, k) of the best targets; equal scores by lowest index."""
        scores, indices = topk_product(self.queries, self.targets, k, self.shift, block)
        return scores + self.offset[:, None], indices

    def rank(self, rows: Tensor, partners: Tensor, *, block: int | None = None) -> Tensor:
        """Rank, from 1, of target ``partners[i]`` among all targets of query ``rows[i]``: int64 as ``rows``."""
        out = [self.queries.new_zeros(0, dtype=torch.int64)]
        for part, scores in _blocks(self.queries[rows], self.targets, block):
            scores += self.shift
            out.append(rank_of(scores, partners[part].to(scores.device)))
        return torch.cat(out)


def rank_of(scores: Tensor, partners: Tensor) -> Tensor:
    """Rank, from 1, of column ``partners[i]`` in row i of the scores (p, m): int64 (p,).

    One more than the number of columns that score strictly higher, or the same with a lower index.
    """
    partner = partners[:, None]
    own = scores.gather(1, partner)
    ahead = _count(scores > own)
    tied = torch.nonzero(_count(scores >= own) > ahead + 1)[:, 0]
    before = torch.arange(scores.shape[1], device=scores.device) < partner[tied]
    ahead[tied] += ((scores[tied] == own[tied]) & before).sum(1)
    return ahead + 1


def cosine_rule(queries: Tensor, targets: Tensor) -> Rule:
    """Cosine, of (p, r) to (m, r)."""
    queries, targets = _ready(queries, targets)
    return Rule(queries, targets, targets.new_zeros(len(targets)), queries.new_zeros(len(queries)))


def csls_rule(x: Tensor, y: Tensor, means: tuple[Tensor, Tensor]) -> Rule:
    """CSLS, ``2 cos(x, y) - r(x) - r(y)``, with ``means`` as :func:`csls_means` gives them."""
    x, y = _ready(x, y)
    return Rule(2 * x, y, -means[1], -means[0])


def inverted_softmax_rule(x: Tensor, y: Tensor, temperature: float = TEMPERATURE, *, block: int | None = None) -> Rule:
    """Inverted softmax: log-probabilities ``cos / T - logsumexp_x'(cos(x', y) / T)``, for each y over all rows of x."""
    x, y = _ready(x, y)
    sums = [torch.logsumexp(scores / temperature, 1) for _, scores in _blocks(y, x, block)]
    return Rule(x / temperature, y, -torch.cat(sums), x.new_zeros(len(x)))


def topk_cosine(queries: Tensor, targets: Tensor, k: int, *, block: int | None = None) -> tuple[Tensor, Tensor]:
    """The k targets of largest cosine for each query.

    Parameters
    ----------
    queries, targets : (p, r), (m, r).
    k : 1 to m.

    Returns
    -------
    scores : float32 (p, k), descending.
    indices : int64 (p, k); equal scores by lowest index.

    Raises
    ------
    ValueError
        k out of range, dimensions that differ, NaN or infinite numbers.
    """
    return cosine_rule(queries, targets).top_k(k, block=block)


def partner_rank(x: Tensor, y: Tensor, rows_x: Tensor, rows_y: Tensor, *, block: int | None = None) -> Tensor:
    """Rank, from 1, of ``y[rows_y[i]]`` among all rows of y by cosine to ``x[rows_x[i]]``.

    The partner's own score is read from the same product as the others', so rounding cannot set it against itself.

    Parameters
    ----------
    x, y : (n, r), (m, r).
    rows_x, rows_y : int64 (p,).

    Returns
    -------
    int64 (p,).
    """
    return cosine_rule(x, y).rank(rows_x, rows_y, block=block)


def csls_means(x: Tensor, y: Tensor, k: int = 10, *, block: int | None = None) -> tuple[Tensor, Tensor]:
    """Mean cosine of each row to its k nearest rows of the other side: float32 (n,), (m,). k is at most that side.

    Conneau et al. 2018 (Word translation without parallel data), section 2.3: r_T and r_S.
    """
    means_x = topk_cosine(x, y, min(k, len(y)), block=block)[0].mean(1)
    means_y = topk_cosine(y, x, min(k, len(x)), block=block)[0].mean(1)
    return means_x, means_y


def topk_csls(
    x: Tensor,
    y: Tensor,
    k: int,
    *,
    neighbors: int = 10,
    means: tuple[Tensor, Tensor] | None = None,
    block: int | None = None,
) -> tuple[Tensor, Tensor]:
    """As :func:`topk_cosine` from each row of x to y, by CSLS: ``2 cos(x, y) - r(x) - r(y)``.

    Parameters
    ----------
    neighbors : neighbourhood of the means; at most the size of the other side.
    means : (r(x), r(y)) as :func:`csls_means` gives them, when x is only a part of the queries or they are at hand.
    """
    means = csls_means(x, y, neighbors, block=block) if means is None else means
    return csls_rule(x, y, means).top_k(k, block=block)


def topk_inverted_softmax(
    x: Tensor, y: Tensor, k: int, *, temperature: float = TEMPERATURE, block: int | None = None
) -> tuple[Tensor, Tensor]:
    """As :func:`topk_cosine`, by inverted softmax: each target's weights over all rows of x sum to 1.

    Scores are log-probabilities ``cos / T - logsumexp_x'(cos(x', y) / T)``. Smith et al. 2017 (Offline bilingual word
    vectors), section 2.2; the default temperature is 1/30, as in MUSE's evaluation.
    """
    return inverted_softmax_rule(x, y, temperature, block=block).top_k(k, block=block)


def nearest_both(x: Tensor, y: Tensor, *, block: int | None = None) -> tuple[Tensor, Tensor]:
    """Nearest row by cosine on the other side, both ways in one pass: int64 (n,) rows of y and int64 (m,) rows of x."""
    x, y = _ready(x, y)
    nearest_y = torch.empty(len(x), dtype=torch.int64, device=x.device)
    nearest_x = torch.zeros(len(y), dtype=torch.int64, device=x.device)
    best = torch.full((len(y),), -torch.inf, device=x.device)
    for rows, scores in _blocks(x, y, block):
        nearest_y[rows] = scores.max(1).indices
        top = scores.amax(0)
        better = torch.nonzero(top > best)[:, 0]  # ever fewer from block to block
        best[better] = top[better]
        nearest_x[better] = scores[:, better].argmax(0) + rows.start
    return nearest_y, nearest_x


def mutual_nearest(x: Tensor, y: Tensor, *, block: int | None = None) -> Tensor:
    """Pairs of rows that are each other's nearest by cosine: int64 (pairs, 2), ordered by x row."""
    nearest_y, nearest_x = nearest_both(x, y, block=block)
    there = torch.arange(len(nearest_y), device=nearest_y.device)
    mutual = nearest_x[nearest_y] == there
    return torch.stack([there[mutual], nearest_y[mutual]], 1)


def k_occurrence(indices: Tensor, m: int) -> Tensor:
    """N_k: how often each of m targets occurs in the neighbour lists (p, k). int64 (m,)."""
    return torch.bincount(indices.flatten(), minlength=m)


def _ready(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise ValueError(f"neighbours need two tables of equal width, got {tuple(a.shape)} and {tuple(b.shape)}.")
    if not len(b):
        raise ValueError("neighbours need at least one target row, got none.")
    for name, v in (("first", a), ("second", b)):
        if not torch.isfinite(v).all():
            row = int(torch.nonzero(~torch.isfinite(v).all(1))[0])
            raise ValueError(f"row {row} of the {name} table holds NaN or infinite numbers.")
    return unit_rows(a), unit_rows(b)


def _blocks(queries: Tensor, targets: Tensor, block: int | None) -> Iterator[tuple[slice, Tensor]]:
    """Consecutive rows of the queries with their scores (rows, m)."""
    block = block or max(1, BLOCK_ELEMENTS // len(targets))
    for start in range(0, len(queries), block):
        rows = slice(start, min(start + block, len(queries)))
        yield rows, queries[rows] @ targets.T


def _count(mask: Tensor) -> Tensor:
    """True entries of each row, int64. Summed as float32, four times faster and exact below 2^24 columns."""
    return mask.sum(1, dtype=torch.float32).long()


def topk_product(
    queries: Tensor, targets: Tensor, k: int, shift: Tensor, block: int | None = None
) -> tuple[Tensor, Tensor]:
    """Top-k of ``queries @ targets.T + shift``, of their type and of finite numbers; equal scores by lowest index."""
    m = len(targets)
    if not 1 <= k <= m:
        raise ValueError(f"k is {k}, wanted 1 to {m}, the number of target rows.")
    scores_out = torch.empty((len(queries), k), dtype=queries.dtype, device=queries.device)
    indices_out = torch.empty((len(queries), k), dtype=torch.int64, device=queries.device)
    grouped = m > 4 * GROUP * (k + 1)
    if grouped and m % GROUP:  # whole groups; what fills the last one up scores below everything
        missing = GROUP - m % GROUP
        targets = torch.cat([targets, targets.new_zeros(missing, targets.shape[1])])
        shift = torch.cat([shift, shift.new_full((missing,), -torch.inf)])
    for rows, scores in _blocks(queries, targets, block):
        scores += shift
        top, index = _topk_by_groups(scores, k + 1) if grouped else scores.topk(min(k + 1, m), dim=1)
        cut = torch.nonzero(top[:, k - 1] == top[:, k])[:, 0] if k < m else index.new_zeros(0)
        top, index = top[:, :k], index[:, :k]
        # topk leaves the order of equal scores open: by index first, then stably by score
        index, order = index.sort(dim=1)
        top, order = top.gather(1, order).sort(dim=1, descending=True, stable=True)
        index = index.gather(1, order)
        if len(cut):  # equal scores on both sides of the k-th place: which of them are in is open too
            tied, order = scores[cut].sort(dim=1, descending=True, stable=True)
            top[cut], index[cut] = tied[:, :k], order[:, :k]
        scores_out[rows], indices_out[rows] = top, index
    return scores_out, indices_out


def _topk_by_groups(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """``scores.topk(k, 1)`` at half its cost: the k largest lie in the k groups of columns with the largest maxima."""
    groups = scores.view(len(scores), -1, GROUP)
    chosen = groups.amax(2).topk(k, dim=1).indices
    candidates = groups.gather(1, chosen[:, :, None].expand(-1, -1, GROUP)).flatten(1)
    top, place = candidates.topk(k, dim=1)
    return top, chosen.gather(1, place // GROUP) * GROUP + place % GROUP
