"""Hubness: how unevenly the targets share the places in the queries' neighbour lists.

All figures are read from N_k, how often each target is among the k nearest of a query (Radovanovic et al. 2010, Hubs in
space). Robin Hood index after Feldbauer et al. 2018 (Fast approximate hubness reduction); hubs, anti-hubs and groupies
as in scikit-hubness, computed anew. Lists are int (n, K) with the best first; the first k columns are the k nearest.

Importing this module loads no torch: the pages count on their own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

TOP_SHARE = 0.01
HUB_SIZE = 2.0  # times its fair share that a hub has, at least
INFORMATIVE = 20  # rows of either side below which a skewness says nothing


def n_k(lists: np.ndarray, m: int, k: int) -> np.ndarray:
    """How often each of m targets is in the first k places of the lists: int64 (m,). All lists where k is larger."""
    return np.bincount(lists[:, :k].ravel(), minlength=m)


def skewness(n_k: np.ndarray) -> float:
    """Third standardised moment of N_k over the targets. 0 when all targets occur equally often: no hub, no skew."""
    d = np.asarray(n_k, dtype=np.float64)
    d = d - d.mean()
    variance = (d**2).mean()
    return float((d**3).mean() / variance**1.5) if variance > 0 else 0.0


def anti_hubs(n_k: np.ndarray) -> float:
    """Share of targets that are in nobody's list."""
    return float((np.asarray(n_k) == 0).mean())


def hub_threshold(n_k: np.ndarray, k: int) -> float:
    """Places from which a target is a hub: 2 k as in scikit-hubness; twice the mean where that is more, which it is
    where there are more queries than targets and everything would be a hub."""
    return HUB_SIZE * max(k, float(np.mean(n_k)))


def hub_share(n_k: np.ndarray, k: int) -> float:
    """Share of all places held by hubs."""
    n_k = np.asarray(n_k)
    total = n_k.sum()
    return float(n_k[n_k >= hub_threshold(n_k, k)].sum() / total) if total else 0.0


def robin_hood(n_k: np.ndarray) -> float:
    """Share of all places that would have to change hands for every target to have the same: 0 to 1."""
    n_k = np.asarray(n_k, dtype=np.float64)
    total = n_k.sum()
    return float(np.abs(n_k - n_k.mean()).sum() / (2 * total)) if total else 0.0


def top_share(n_k: np.ndarray, share: float = TOP_SHARE) -> float:
    """Share of all places held by the most frequent ``share`` of the targets (at least one target)."""
    n_k = np.sort(np.asarray(n_k))[::-1]
    total = n_k.sum()
    return float(n_k[: math.ceil(share * len(n_k))].sum() / total) if total else 0.0


def summary(n_k: np.ndarray, k: int) -> dict[str, float]:
    """All figures of one N_k, int (m,): skewness, anti_hubs, hub_share, robin_hood, top_1_percent, largest, k."""
    return {
        "skewness": skewness(n_k),
        "anti_hubs": anti_hubs(n_k),
        "hub_share": hub_share(n_k, k),
        "robin_hood": robin_hood(n_k),
        "top_1_percent": top_share(n_k),
        "largest": int(np.max(n_k)),
        "k": int(k),
    }


def remarks(n: int, m: int, k: int) -> list[str]:
    """What must be known of figures over n queries and m targets at k: too few rows, lists that hold everything."""
    out = []
    if min(n, m) < INFORMATIVE:
        what = f"n = {m}" if n == m else f"{n:,} queries, {m:,} targets"
        out.append(f"{what}: skewness is not informative below {INFORMATIVE}")
    if k >= m:
        out.append(f"each list holds all {m:,} targets, so all have the same N_k")
    return out


# ---------------------------------------------------------------------------------------------------- who, not how much


def groupies(lists: np.ndarray, target: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The queries that have the target among their k nearest, int64 (g,), and its place there, from 1."""
    rows, places = np.nonzero(lists[:, :k] == target)
    return rows, places + 1


def stolen(lists: np.ndarray, ranks: np.ndarray, m: int, k: int) -> np.ndarray:
    """How many queries list each of m targets, within k, ahead of their true partner: int64 (m,).

    Parameters
    ----------
    ranks : int (n,), rank of each query's true partner by the same rule, from 1; 0 where none is known.
    """
    lists = lists[:, :k]
    ahead = np.arange(1, lists.shape[1] + 1) < ranks[:, None]
    return np.bincount(lists[ahead], minlength=m)


def copies(vectors: np.ndarray) -> np.ndarray:
    """For each row the first row equal to it, itself where there is none before: int64 (n,)."""
    first: dict[bytes, int] = {}
    rows = np.ascontiguousarray(vectors) + 0.0  # the two zeros are equal
    return np.array([first.setdefault(row.tobytes(), i) for i, row in enumerate(rows)], dtype=np.int64)


def hubness(x: Tensor, y: Tensor, k: int = 10, *, block: int | None = None) -> dict[str, dict[str, float]]:
    """Figures of N_k by cosine, both ways; ``k`` in the result is the one used, at most the rows of the target.

    Parameters
    ----------
    x, y : (n, r), (m, r), the common space.

    Returns
    -------
    ``{"x_to_y": figures of y as target, "y_to_x": figures of x as target}``.
    """
    from relcore.ops import neighbors

    out = {}
    for way, queries, targets in (("x_to_y", x, y), ("y_to_x", y, x)):
        kept = min(k, len(targets))
        _, indices = neighbors.topk_cosine(queries, targets, kept, block=block)
        out[way] = summary(neighbors.k_occurrence(indices, len(targets)).cpu().numpy(), kept)
    return out
