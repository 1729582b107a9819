"""Self-learning: a dictionary makes a map, the map a better dictionary, as tools for bilingual lexicons do."""

from __future__ import annotations

import math
from dataclasses import dataclass

from relcore.errors import InputError
from relcore.methods import costs
from relcore.methods.base import Alignment, Cost, Linear, Method, Needs, Snapshot, Step, param

VECMAP = "Artetxe et al. 2018, section 4"
OPEN = "ours"


@dataclass(frozen=True)
class SelfLearning(Method):
    """Procrustes on a dictionary, a new dictionary of the rows that now match by CSLS, and again, until the mean best
    similarity no longer grows. The first dictionary are the seeds. Without seeds it is of rows whose sorted
    similarities within their own side match: the root of X X', as published.

    At first each candidate match is looked at with probability .1, so that the search leaves bad solutions; where
    nothing has improved for a while the probability doubles, and at 1 it ends.

    Differences from the authors: the map is orthogonal to the end (theirs whitens and re-weights in a last step); a
    candidate that chance drops is out, where theirs scores 0; ``rounds`` is a limit of ours.

    Source: Artetxe, Labaka and Agirre, ACL 2018, arXiv 1805.06297 (vecmap). ``dictionary="mutual"``,
    ``keep_first=1`` and ``patience=0``, with the rows first in the file, is the refinement of Conneau et al., ICLR
    2018, arXiv 1710.04087 (MUSE), until it stops gaining.
    """

    name = "self_learning"
    title = "Self-learning"
    summary = "Procrustes on a dictionary of rows that match by CSLS, made anew each round; with seeds or without."
    source = "arXiv 1805.06297; arXiv 1710.04087"
    needs = Needs()

    dictionary: str = param(
        "union",
        "union: matches of both ways, a mutual pair counting twice. mutual: only pairs that are each other's match",
        choices=("union", "mutual"),
        source=f"{VECMAP}; mutual: MUSE",
    )
    neighbors: int = param(
        10, "Neighbours whose mean similarity CSLS subtracts. 0: plain cosine", low=0, high=1000, source=VECMAP
    )
    cutoff: int = param(
        20_000,
        "Rows of each side that a dictionary is made of, from the first: in files of words the most frequent",
        low=2,
        high=1_000_000,
        source=VECMAP,
        log=True,
    )
    start_rows: int = param(
        4000,
        "Rows of each side that the first dictionary is made of where there are no seeds",
        low=2,
        high=20_000,
        source=VECMAP,
        log=True,
    )
    keep_first: float = param(
        0.1,
        "Probability of a candidate match to be looked at, at first. 1: no chance",
        low=0.001,
        high=1.0,
        source=VECMAP,
        log=True,
    )
    grow: float = param(
        2.0, "Factor of that probability where nothing improves", low=1.01, high=1000.0, source=VECMAP, advanced=True
    )
    patience: int = param(
        50, "Rounds without improvement before it grows", low=0, high=10_000, source="vecmap's code", advanced=True
    )
    tolerance: float = param(
        1e-6,
        "Growth of the mean best similarity that counts as improvement",
        low=0.0,
        high=1.0,
        source="vecmap's code",
        advanced=True,
    )
    rounds: int = param(2000, "Rounds at most", low=1, high=1_000_000, source=OPEN, log=True, advanced=True)
    hold_seeds: bool = param(
        False, "Keep the seeds in every dictionary, not only in the first", source=f"{OPEN}; published: no"
    )

    def steps(self, x, y, seeds, *, generator, device="cpu"):
        import torch

        from relcore.ops.dictionary import matches, profiles
        from relcore.ops.linalg import procrustes
        from relcore.ops.neighbors import unit_rows

        notes: list[str] = []
        x, y = x.to(device), y.to(device)
        a, b = (unit_rows(v[: self.cutoff]) for v in (x, y))
        for side, v in (("A", x), ("B", y)):
            if len(v) > self.cutoff:
                notes.append(f"the dictionary is of the first {self.cutoff} of {len(v)} rows of {side}")
        known = torch.from_numpy(seeds.array.copy()).to(device)
        if len(known):
            # all of them, also beyond the cutoff
            turn, rank = procrustes(unit_rows(x[known[:, 0]]), unit_rows(y[known[:, 1]]))
        else:
            k = min(self.start_rows, len(a), len(b))
            _shaped(a[:k], "A"), _shaped(b[:k], "B")
            if k < max(len(x), len(y)):
                notes.append(f"the first dictionary is of the first {k} rows of both sides")
            pairs = matches(profiles(a[:k]), profiles(b[:k]), min(self.neighbors, k)).union
            turn, rank = procrustes(a[pairs[:, 0]], b[pairs[:, 1]])
        stay = torch.eye(y.shape[1])
        keep, best, since, done, why = self.keep_first, -math.inf, 0, 0, ""
        while not why:
            done += 1
            found = matches(unit_rows(a @ turn), b, min(self.neighbors, len(a), len(b)), keep, generator)
            since = 0 if found.best - best >= self.tolerance and found.best > best else since + 1
            best = max(best, found.best)
            pairs = found.union if self.dictionary == "union" else found.mutual
            if since > self.patience:
                if keep >= 1:
                    why = "converged"
                keep, since = min(1.0, keep * self.grow), 0
            if done == self.rounds:
                why = why or "rounds"
            metrics = {"mean best cosine": found.best, "pairs": float(len(pairs)), "keep": keep}
            yield Step(done, self._total(done, since, keep, why), "rounds", metrics, Snapshot(turn.cpu(), stay, "x"))
            if why == "converged":
                break  # the map that was judged, not the one of the next dictionary
            rows = [a[pairs[:, 0]], b[pairs[:, 1]]]
            if len(known) and self.hold_seeds:
                rows = [torch.cat([r, unit_rows(v[s])]) for r, v, s in zip(rows, (x, y), known.T, strict=True)]
            if len(rows[0]):  # none by chance, of few rows: the map stays
                turn, rank = procrustes(*rows)
        if why == "rounds":
            notes.append(f"stopped after {self.rounds} rounds, before it ceased to improve")
        dx, dy = x.shape[1], y.shape[1]
        if dx != dy:
            notes.append(f"dimensions differ ({dx} and {dy}): the map is semi-orthogonal, from the thin SVD")
        if rank < min(dx, dy):
            notes.append(f"rotation determined only on a {rank}-dimensional subspace by the last dictionary")
        turn, x, y = turn.cpu(), x.cpu(), y.cpu()
        return Alignment(
            x=x @ turn,
            y=y.clone(),
            encode_x=Linear(turn),
            encode_y=Linear(stay),
            map=turn,
            converged=why == "converged",
            notes=notes,
        )

    def _total(self, done: int, since: int, keep: float, why: str) -> int:
        """Rounds there will be at least."""
        if why:
            return done
        doublings = math.ceil(math.log(1 / keep, self.grow) - 1e-9)
        return min(self.rounds, done + self.patience + 1 - since + doublings * (self.patience + 1))

    def estimate(self, n, m, dx, dy, seeds):
        p, q, d = min(n, self.cutoff), min(m, self.cutoff), dy
        rounds = min(self.rounds, self._total(0, 0, self.keep_first, "") + 20)
        drawn = 1e-8 * p * q * (self.keep_first < 1)
        one = costs.both_ways(p, q, d) + drawn + costs.decomposition(dx, dy) + 2e-10 * (p + q) * dx * dy
        k = 0 if seeds else min(self.start_rows, p, q)
        start = 2 * k * k * (2e-10 * k + 5e-8) + 2 * costs.decomposition(k, dx) if k else 0.0
        memory = 4.0 * (3 * n * dx + n * dy + 3 * m * dy + 4 * dx * dy) + 2 * costs.TILE_BYTES + 4.0 * 5 * k * k
        return Cost(memory, start + rounds * one, None if seeds else start + rounds * one)


def _shaped(v, side: str) -> None:
    """Raise :class:`InputError` where all rows are one point: their profiles tell none from another."""
    if float((v - v[0]).abs().max()) < 1e-5:
        raise InputError(
            f"all {len(v)} rows of {side} are one point on the sphere: there is no shape to start from; "
            "give seeds, or check the file, or the preprocessing."
        )
