"""Does a row find its partner? Retrieval both ways over the whole target, as anchor optimisation is scored.

The definitions are those of relreps' word notebook (``evaluate_retrieval``), which arXiv 2303.00721 uses with K = 10:
the index is every row of the target, similarity is cosine, MRR counts a rank beyond K as 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from relcore.ops import neighbors
from relcore.space import Pairs


def retrieval(
    x: Tensor, y: Tensor, pairs: Pairs, k: int = 10, at: Sequence[int] = (1, 5, 10), *, block: int | None = None
) -> dict[str, dict[str, Any]]:
    """Scores of the given pairs in both directions, among all rows of the target.

    Parameters
    ----------
    x, y : (n, r), (m, r), the common space; any norm.
    pairs : the true pairs to score; the caller leaves the seeds out.
    k : K of MRR and Jaccard.
    at : ranks of recall, ``r@1`` and so on.

    Returns
    -------
    ``{"x_to_y": scores, "y_to_x": scores}``. With B the K nearest targets of the query:

    - ``r@N`` : share of queries whose partner is among the N nearest.
    - ``mrr`` : mean of 1 / rank of the partner in B, 0 where it is not in B.
    - ``jaccard`` : mean of |A n B| / |A u B|, A the K nearest targets of the partner itself, itself among them.
    - ``cosine`` : mean cosine of the two sides of a pair.
    - ``n`` : pairs scored; ``k`` : the K used. Where the target has fewer rows than K, K is their number and ``note``
      says so.

    Raises
    ------
    ValueError
        No pairs, k or a rank below 1, or coordinates that are NaN or infinite.
    """
    if not len(pairs):
        raise ValueError("retrieval needs at least one true pair to score, got none.")
    if min(k, *at) < 1:
        raise ValueError(f"retrieval counts ranks from 1, got k = {k} and at = {tuple(at)}.")
    return {
        "x_to_y": _one_way(x, y, pairs, k, at, block, "y"),
        "y_to_x": _one_way(y, x, pairs.flip(), k, at, block, "x"),
    }


def _one_way(x: Tensor, y: Tensor, pairs: Pairs, k: int, at: Sequence[int], block: int | None, target: str) -> dict:
    rows_x, rows_y = (torch.from_numpy(np.array(rows)).to(x.device) for rows in (pairs.x, pairs.y))
    source, partner = x[rows_x], y[rows_y]
    kept = min(k, len(y))
    _, found = neighbors.topk_cosine(source, y, min(max(k, *at), len(y)), block=block)
    _, around = neighbors.topk_cosine(partner, y, kept, block=block)
    hit = found == rows_y[:, None]
    rank = torch.where(hit.any(1), hit.int().argmax(1) + 1, len(y) + 1)
    both = torch.cat([around, found[:, :kept]], 1).sort(1).values  # each list is free of repeats
    shared = (both[:, 1:] == both[:, :-1]).sum(1).double()
    out: dict[str, Any] = {f"r@{depth}": float((rank <= depth).double().mean()) for depth in at}
    out["mrr"] = float(torch.where(rank <= kept, 1 / rank.double(), 0.0).mean())
    out["jaccard"] = float((shared / (2 * kept - shared)).mean())
    out["cosine"] = float((neighbors.unit_rows(source) * neighbors.unit_rows(partner)).sum(1).double().mean())
    out |= {"n": len(pairs), "k": kept}
    if kept < k:
        out["note"] = f"k limited to {kept}, the number of rows of {target}"
    return out
