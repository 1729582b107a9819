"""What the pages read of an alignment: plain arrays, computed once by the worker and stored with the run.

Names of the arrays (``WAY`` is ``x_to_y`` or ``y_to_x``; n is the number of queries, m of targets):

- ``WAY/RULE/indices`` int32 (n, k) and ``WAY/RULE/scores`` float32 (n, k): neighbours, best first, for the rules
  ``nearest`` (cosine in the common space) and ``csls``.
- ``WAY/RULE/n_k`` int32 (m,): how often each target is among the 10 nearest of a query.
- ``WAY/rank`` and ``WAY/rank_seed`` int32 (n,): rank of the true partner among all targets in the run and under the
  seed baseline, counted from 1; 0 where no partner is known.
- ``seed_x``, ``seed_y`` float32 (rows, L): unit relative representations by the seeds, to rank any pair under the
  baseline without a heavy table.
- ``map_x``, ``map_y`` float32 (rows, 2): both sides in one picture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from relcore.space import Pairs

if TYPE_CHECKING:  # the app server reads RULES from here and must not load torch
    import torch

NEIGHBORS = 50  # stored neighbours a row
HUB_K = 10
RULES = {"nearest": "nearest by cosine", "csls": "CSLS (hub-corrected)"}


def analyse(
    x: torch.Tensor,
    y: torch.Tensor,
    *,
    truth: Pairs | None = None,
    seed_x: torch.Tensor | None = None,
    seed_y: torch.Tensor | None = None,
    k: int = NEIGHBORS,
) -> dict[str, np.ndarray]:
    """The arrays named above, except the maps.

    Parameters
    ----------
    x, y : float32 (n, r), (m, r), the common space.
    seed_x, seed_y : unit coordinates under the seed baseline, or None.
    """
    import torch

    from relcore.ops import neighbors

    x, y = neighbors.unit_rows(x), neighbors.unit_rows(y)
    out: dict[str, np.ndarray] = {}
    for way, a, b, pairs in (
        ("x_to_y", x, y, truth),
        ("y_to_x", y, x, None if truth is None else truth.flip()),
    ):
        kept = min(k, len(b))
        for rule, search in (("nearest", neighbors.topk_cosine), ("csls", neighbors.topk_csls)):
            scores, indices = search(a, b, kept)
            out[f"{way}/{rule}/indices"] = indices.to(torch.int32).numpy()
            out[f"{way}/{rule}/scores"] = scores.numpy()
            n_k = neighbors.k_occurrence(indices[:, : min(HUB_K, kept)], len(b))
            out[f"{way}/{rule}/n_k"] = n_k.to(torch.int32).numpy()
        if pairs is not None and len(pairs):
            rows = torch.from_numpy(pairs.x.copy()), torch.from_numpy(pairs.y.copy())
            out[f"{way}/rank"] = _by_row(pairs, neighbors.partner_rank(a, b, *rows), len(a))
            if seed_x is not None:
                sa, sb = (seed_x, seed_y) if way == "x_to_y" else (seed_y, seed_x)
                out[f"{way}/rank_seed"] = _by_row(pairs, neighbors.partner_rank(sa, sb, *rows), len(a))
    if seed_x is not None:
        out["seed_x"], out["seed_y"] = seed_x.numpy(), seed_y.numpy()
    return out


def _by_row(pairs: Pairs, ranks: torch.Tensor, n: int) -> np.ndarray:
    out = np.zeros(n, dtype=np.int32)
    out[pairs.x] = ranks.numpy()
    return out
