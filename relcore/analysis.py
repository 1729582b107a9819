"""What the pages read of an alignment: plain arrays, computed once by the worker and stored with the run.

Names of the arrays (``WAY`` is ``x_to_y`` or ``y_to_x``, ``RULE`` one of :data:`RULES`; n is the number of queries, m
of targets):

- ``WAY/RULE/indices`` int32 (n, k) and ``WAY/RULE/scores`` float32 (n, k): neighbours, best first. The rule
  ``coupling`` is there where the method found one; its scores are log pi.
- ``WAY/RULE/n_k`` int32 (m,): how often each target is among the 10 nearest of a query.
- ``WAY/RULE/rank`` and ``WAY/rank_seed`` int32 (n,): rank of the true partner among all targets by the rule, and by
  cosine under the seed baseline, counted from 1; 0 where no partner is known.
- ``mean_distance_x``, ``mean_distance_y`` float32 (rows,): distance of a row of norm 1 to the mean of the other side's,
  which are the queries that may choose it.
- ``seed_x``, ``seed_y`` float32 (rows, L): unit relative representations by the seeds, to rank any pair under the
  baseline without a heavy table.
- ``map_x``, ``map_y`` float32 (rows, 2): both sides in one picture.
- ``spectrum/...``: see :mod:`relcore.metrics.spectrum`.
- ``mismatch/...``: see :mod:`relcore.metrics.mismatch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from relcore.metrics import hubness
from relcore.space import Pairs

if TYPE_CHECKING:  # the app server reads RULES from here and must not load torch
    import torch

    from relcore.ops.neighbors import Rule
    from relcore.ops.sinkhorn import Coupling

NEIGHBORS = 50  # stored neighbours a row
HUB_K = 10
CSLS_K = 10
MRR_K = 10  # the reciprocal of a rank beyond it counts as 0
WAYS = ("x_to_y", "y_to_x")
RULES = {
    "nearest": "nearest by cosine",
    "csls": "CSLS (hub-corrected)",
    "isf": "inverted softmax",
    "coupling": "coupling (transport plan)",
}
RANK_ENTRIES = 1 << 23  # of a coupling, looked at at once


def rules_of(arrays: dict[str, np.ndarray]) -> list[str]:
    """The rules a run was analysed by, in the order of :data:`RULES`."""
    return [rule for rule in RULES if f"x_to_y/{rule}/indices" in arrays]


def ranks_of(arrays: dict[str, np.ndarray], way: str, rule: str = "nearest") -> np.ndarray | None:
    """Ranks of the true partners by a rule, None where no truth is known. Older runs have those by cosine alone."""
    older = arrays.get(f"{way}/rank") if rule == "nearest" else None
    return arrays.get(f"{way}/{rule}/rank", older)


def analyse(
    x: torch.Tensor,
    y: torch.Tensor,
    *,
    truth: Pairs | None = None,
    seed_x: torch.Tensor | None = None,
    seed_y: torch.Tensor | None = None,
    coupling: Coupling | None = None,
    k: int = NEIGHBORS,
) -> dict[str, np.ndarray]:
    """The arrays named above, except maps and spectrum.

    Parameters
    ----------
    x, y : float32 (n, r), (m, r), the common space.
    seed_x, seed_y : unit coordinates under the seed baseline, or None.
    coupling : between all rows of x and all of y, or None.
    """
    import torch

    from relcore.ops import neighbors

    x, y = neighbors.unit_rows(x), neighbors.unit_rows(y)
    if coupling is not None and coupling.shape != (len(x), len(y)):
        raise ValueError(f"the coupling is {coupling.shape}, wanted {(len(x), len(y))}, all rows of both sides.")
    swapped = None if coupling is None else coupling.swapped
    sides = {
        "x_to_y": (x, y, coupling, truth),
        "y_to_x": (y, x, swapped, None if truth is None else truth.flip()),
    }
    found = {way: neighbors.topk_cosine(a, b, min(k, len(b))) for way, (a, b, *_) in sides.items()}
    means = {way: scores[:, :CSLS_K].mean(1) for way, (scores, _) in found.items()}
    out: dict[str, np.ndarray] = {}
    for way, (a, b, plan, pairs) in sides.items():
        back = WAYS[1 - WAYS.index(way)]
        kept = min(k, len(b))
        known = pairs is not None and len(pairs) > 0
        rows = [torch.from_numpy(np.array(v)) for v in ((pairs.x, pairs.y) if known else ([], []))]
        for name in RULES:
            if name == "coupling":
                if plan is None:
                    continue
                scores, indices = plan.top_k(kept)
                rank = _CouplingRank(plan)
            else:
                rank = _rule(name, a, b, (means[way], means[back]))
                scores, indices = found[way] if name == "nearest" else rank.top_k(kept)
            out[f"{way}/{name}/indices"] = indices.to(torch.int32).cpu().numpy()
            out[f"{way}/{name}/scores"] = scores.float().cpu().numpy()
            n_k = neighbors.k_occurrence(indices[:, : min(HUB_K, kept)], len(b))
            out[f"{way}/{name}/n_k"] = n_k.to(torch.int32).cpu().numpy()
            if known:
                out[f"{way}/{name}/rank"] = _by_row(pairs, _ranks(rank, indices.cpu(), *rows), len(a))
        if known and seed_x is not None:
            sa, sb = (seed_x, seed_y) if way == "x_to_y" else (seed_y, seed_x)
            out[f"{way}/rank_seed"] = _by_row(pairs, neighbors.partner_rank(sa, sb, *rows), len(a))
        distance = torch.linalg.vector_norm(b - a.double().mean(0).float(), dim=1)
        out[f"mean_distance_{way[-1]}"] = distance.cpu().numpy()
    if seed_x is not None:
        out["seed_x"], out["seed_y"] = seed_x.numpy(), seed_y.numpy()
    return out


def by_rule(
    arrays: dict[str, np.ndarray], pairs: Pairs | None = None, at: tuple[int, ...] = (1, 5, 10)
) -> dict[str, dict[str, dict[str, Any]]]:
    """Figures of each rule, both ways: ``{rule: {way: figures}}``.

    Figures are ``hubness`` (:func:`relcore.metrics.hubness.summary` at k = 10) and, for the pairs given, ``r@k``,
    ``mrr`` (cut at rank 10) and ``n``.
    """
    out: dict[str, dict[str, dict[str, Any]]] = {}
    for rule in rules_of(arrays):
        out[rule] = {}
        for way in WAYS:
            n_k = arrays[f"{way}/{rule}/n_k"]
            figures: dict[str, Any] = {"hubness": hubness.summary(n_k, min(HUB_K, len(n_k)))}
            ranks = ranks_of(arrays, way, rule)
            if ranks is not None and pairs is not None and len(pairs):
                ranks = ranks[pairs.x if way == "x_to_y" else pairs.y]
                figures |= {f"r@{depth}": float((ranks <= depth).mean()) for depth in at}
                figures |= {"mrr": float(np.where(ranks <= MRR_K, 1 / ranks, 0.0).mean()), "n": len(ranks)}
            out[rule][way] = figures
    return out


def _rule(name: str, a: torch.Tensor, b: torch.Tensor, means: tuple[torch.Tensor, torch.Tensor]) -> Rule:
    from relcore.ops import neighbors

    if name == "nearest":
        return neighbors.cosine_rule(a, b)
    return neighbors.csls_rule(a, b, means) if name == "csls" else neighbors.inverted_softmax_rule(a, b)


class _CouplingRank:
    """Ranks by a coupling, as :meth:`relcore.ops.neighbors.Rule.rank`."""

    def __init__(self, coupling: Coupling) -> None:
        self.coupling = coupling

    def rank(self, rows: torch.Tensor, partners: torch.Tensor) -> torch.Tensor:
        import torch

        from relcore.ops import neighbors

        step = max(1, RANK_ENTRIES // self.coupling.shape[1])
        device = self.coupling.f.device
        ranks = [torch.zeros(0, dtype=torch.int64)]
        for part in (slice(start, start + step) for start in range(0, len(rows), step)):
            block = self.coupling.log_block(rows[part].to(device), slice(None))
            ranks.append(neighbors.rank_of(block, partners[part].to(device)).cpu())
        return torch.cat(ranks)


def _ranks(rank: Rule | _CouplingRank, indices: torch.Tensor, rows: torch.Tensor, partners: torch.Tensor):
    """Rank of each partner: its place in the stored list of its query; counted among all only where it is not there."""
    hit = indices[rows] == partners[:, None]
    out = hit.int().argmax(1) + 1
    missed = ~hit.any(1)
    out[missed] = rank.rank(rows[missed], partners[missed]).cpu().to(out.dtype)
    return out


def _by_row(pairs: Pairs, ranks: torch.Tensor, n: int) -> np.ndarray:
    out = np.zeros(n, dtype=np.int32)
    out[pairs.x] = ranks.cpu().numpy()
    return out
