"""Sparse relative representations: a row is what few anchors, the most similar ones, say of it.

Source: Norelli et al., "ASIF: Coupled Data Turns Unimodal Models to Multimodal Without Training", NeurIPS 2023, arXiv
2210.01738.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from relcore.ops.neighbors import TINY, partner_rank, topk_product, unit_rows

NON_ZEROS = (1, 2, 5, 10, 20, 50, 100, 200, 400, 800)  # of which as many are tried as there are seeds for
EXPONENTS = (1.0, 2.0, 4.0, 8.0)
JUDGED = 500  # seeds that are looked for, at most


def sparse_relative(v: Tensor, anchors: Tensor, non_zeros: int, exponent: float) -> Tensor:
    """Cosines (n, K) of rows (n, d) to anchors (K, d), the largest few, to a power, and the row scaled to norm 1.

    Of equal cosines the anchors of lowest index are in. Negative ones count as 0, so that a row no anchor has a part
    in stays zero.
    """
    v, anchors = unit_rows(v), unit_rows(anchors)
    kept = min(non_zeros, len(anchors))
    scores, at = topk_product(v, anchors, kept, anchors.new_zeros(len(anchors)))
    return unit_rows(v.new_zeros(len(v), len(anchors)).scatter_(1, at, powers(scores, exponent)))


def powers(scores: Tensor, exponent: float) -> Tensor:
    """Scores (n, k), descending, in parts of the first of their row, to a power: nothing vanishes in float32."""
    return (scores.clamp_min(0) / scores[:, :1].clamp_min(TINY)) ** exponent


class Agreed(NamedTuple):
    """``non_zeros`` and ``exponent`` that were chosen, and the MRR they came to among ``judged`` seeds."""

    non_zeros: int
    exponent: float
    mrr: float
    judged: int


def agreed(
    a: Tensor, b: Tensor, non_zeros: Sequence[int] = NON_ZEROS, exponents: Sequence[float] = EXPONENTS
) -> Agreed:
    """The sparsity and exponent with which seeds find their partners best, each described by the other seeds.

    Parameters
    ----------
    a, b : paired rows (K, p), (K, q), K at least 2. Of more than :data:`JUDGED` so many, evenly spaced, are looked for.

    Returns
    -------
    The best by MRR, a mean of both ways; of equal ones the fewest numbers, then the smallest power.
    """
    count = len(a)
    rows = torch.linspace(0, count - 1, min(JUDGED, count), device=a.device).round().long()
    own = torch.arange(len(rows), device=a.device)
    sorted_sides = []
    for v in (a, b):
        v = unit_rows(v)
        scores = v[rows] @ v.T
        scores[own, rows] = -2.0  # below every cosine: a seed left out is no anchor
        sorted_sides.append(scores.sort(dim=1, descending=True, stable=True))
    best: Agreed | None = None
    for k in [k for k in non_zeros if k < count - 1] + [min(count - 1, max(non_zeros))]:
        for p in exponents:
            seen = [
                scores.new_zeros(len(rows), count).scatter_(1, at[:, :k], powers(scores[:, :k], p))
                for scores, at in sorted_sides
            ]
            ranks = [partner_rank(s, t, own, own) for s, t in (seen, seen[::-1])]
            mrr = sum(float((1 / r.double()).mean()) for r in ranks) / 2
            if best is None or mrr > best.mrr:
                best = Agreed(k, p, mrr, len(rows))
    return best
