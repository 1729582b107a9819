"""Hubness: how unevenly the targets share the places in the queries' neighbour lists.

All figures are read from N_k, how often each target is among the k nearest of a query (Radovanovic et al. 2010, Hubs in
space). Robin Hood index after Feldbauer et al. 2018 (Fast approximate hubness reduction).
"""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from relcore.ops import neighbors

TOP_SHARE = 0.01


def skewness(n_k: np.ndarray) -> float:
    """Third standardised moment of N_k over the targets. 0 when all targets occur equally often: no hub, no skew."""
    d = np.asarray(n_k, dtype=np.float64)
    d = d - d.mean()
    variance = (d**2).mean()
    return float((d**3).mean() / variance**1.5) if variance > 0 else 0.0


def anti_hubs(n_k: np.ndarray) -> float:
    """Share of targets that are in nobody's list."""
    return float((np.asarray(n_k) == 0).mean())


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


def summary(n_k: np.ndarray) -> dict[str, float]:
    """All figures of one N_k, int (m,): skewness, anti_hubs, robin_hood, top_1_percent, largest."""
    return {
        "skewness": skewness(n_k),
        "anti_hubs": anti_hubs(n_k),
        "robin_hood": robin_hood(n_k),
        "top_1_percent": top_share(n_k),
        "largest": int(np.max(n_k)),
    }


def hubness(x: Tensor, y: Tensor, k: int = 10, *, block: int | None = None) -> dict[str, dict[str, float]]:
    """Figures of N_k by cosine, both ways; ``k`` in the result is the one used, at most the rows of the target.

    Parameters
    ----------
    x, y : (n, r), (m, r), the common space.

    Returns
    -------
    ``{"x_to_y": figures of y as target, "y_to_x": figures of x as target}``.
    """
    out = {}
    for way, queries, targets in (("x_to_y", x, y), ("y_to_x", y, x)):
        kept = min(k, len(targets))
        _, indices = neighbors.topk_cosine(queries, targets, kept, block=block)
        out[way] = summary(neighbors.k_occurrence(indices, len(targets)).cpu().numpy()) | {"k": kept}
    return out
