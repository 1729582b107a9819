"""Dictionaries between two spaces that no one gave: matches by CSLS, with chance, and by profiles of similarity.

Tensors in, tensors out; float32; the inputs' device. Scores are made in tiles, none of them held.

Sources: Conneau et al. 2018 (Word translation without parallel data), section 2.3 (CSLS); Artetxe, Labaka and Agirre
2018 (A robust self-learning method), sections 3.2 to 3.4 (profiles, stochastic dictionaries). From the formulas.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Generator, Tensor

from relcore.ops.matching import tiles
from relcore.ops.neighbors import csls_means, unit_rows


class Matches(NamedTuple):
    """Each row's match on the other side: int64 (n,) rows of b, (m,) rows of a, -1 where all candidates were dropped.

    ``best`` is the mean largest cosine of a row to the other side, both ways: what self-learning improves.
    """

    to_b: Tensor
    to_a: Tensor
    best: float

    @property
    def mutual(self) -> Tensor:
        """Pairs that are each other's match, int64 (p, 2), by row of a."""
        rows = torch.arange(len(self.to_b), device=self.to_b.device)
        found = self.to_b >= 0
        found[found.clone()] = self.to_a[self.to_b[found]] == rows[found]
        return torch.stack([rows[found], self.to_b[found]], 1)

    @property
    def union(self) -> Tensor:
        """Matches of both ways one after the other, int64 (p, 2); a mutual pair stands there twice."""
        there, back = (torch.nonzero(v >= 0)[:, 0] for v in (self.to_b, self.to_a))
        return torch.cat([torch.stack([there, self.to_b[there]], 1), torch.stack([self.to_a[back], back], 1)])


def matches(a: Tensor, b: Tensor, neighbors: int, keep: float = 1.0, generator: Generator | None = None) -> Matches:
    """Best match of every row by CSLS of so many neighbours, or by cosine (0), among candidates kept with chance.

    Parameters
    ----------
    a, b : unit rows (n, r), (m, r).
    keep : probability of each candidate of each row to be looked at, drawn from ``generator``, a way at a time.
    """
    means = csls_means(a, b, neighbors) if neighbors else (a.new_zeros(len(a)), b.new_zeros(len(b)))
    to_b, best_b = _one_way(a, b, means[1], keep, generator)
    to_a, best_a = _one_way(b, a, means[0], keep, generator)
    return Matches(to_b, to_a, (best_a + best_b) / 2)


def _one_way(a: Tensor, b: Tensor, mean: Tensor, keep: float, generator: Generator | None) -> tuple[Tensor, float]:
    found, total = torch.empty(len(a), dtype=torch.int64, device=a.device), 0.0
    for rows in tiles(len(a), len(b)):
        scores = a[rows] @ b.T
        total += float(scores.amax(1).double().sum())
        scores.sub_(mean / 2)
        if keep < 1:
            dropped = torch.rand(scores.shape, generator=generator) >= keep
            scores.masked_fill_(dropped.to(scores.device), -torch.inf)
        value, column = scores.max(1)
        found[rows] = torch.where(value > -torch.inf, column, -1)
    return found, total / len(a)


def profiles(v: Tensor) -> Tensor:
    """Unit profiles (n, n) of rows (n, d): each row of the root of ``v v'``, sorted, of norm 1, centred, of norm 1.

    The root has the singular values where ``v v'`` has their squares. Memory: a few n x n matrices.
    """
    u, s, _ = torch.linalg.svd(v.double(), full_matrices=False)
    u = (u * s.sqrt()).float()
    sorted_ = unit_rows((u @ u.T).sort(dim=1).values)
    return unit_rows(sorted_ - sorted_.mean(0))
