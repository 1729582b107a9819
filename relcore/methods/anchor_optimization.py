"""Anchor optimisation: a few seed pairs grow to hundreds of parallel anchors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from relcore.errors import RunFailed
from relcore.methods import anchored
from relcore.methods.base import Alignment, Cost, Linear, Method, Needs, Snapshot, Step, param
from relcore.space import Pairs

if TYPE_CHECKING:
    from torch import Tensor

PAPER = "arXiv 2303.00721, implementation details"
OPEN = "not stated in the paper; chosen by experiment"
MEASURED = "measured on the real pairs of benchmarks/ao.py"
PAPER_MODE = ("mode", ("paper",))
ALTERNATING = ("mode", ("alternating",))
PLAN = ("correspondence", ("soft", "argmax"))
COMPARED = (
    "the paper's is cosine. In benchmarks/ao.py real --similarity wip kernel, wip on the anchors found raised MRR on "
    "Banking77 (MiniLM-L6 / WordLlama, 15 seeds) from .68 to .78, with 1,000 anchors from .70 to .87, on MNIST from "
    ".83 to .91 (kernel: .96); on GloVe 50 / 100, where cosine has .999, it cost .006"
)
FEWEST = 100  # rows a side drawn for a turn, where there are so many
SETTLED = 0.01  # share of rows that changed their match in the last turn, below which the matches have settled


@dataclass(frozen=True)
class AnchorOptimization(Method):
    r"""Given k anchors on the x side, of which the first L have known partners, find the partners of the others.

    Both sides are described by their similarities to the anchors, ``R_x = X A_x'`` and ``R_y = Y A_y'``, rows of unit
    norm; the anchors A_y are the unknowns, on the unit sphere.

    ``mode="paper"`` is the published method ("Bootstrapping Parallel Anchors for Relative Representations", arXiv
    2303.00721, ICLR 2023 Tiny Papers): Adam on

    .. math:: \min_{A_y} \sum_j \mathrm{MSE}(\pi(y_j) A_x', y_j A_y'), \qquad |a| = 1,

    where :math:`\pi(y_j)` is the barycentre of the x rows that y_j corresponds to, by one Sinkhorn iteration between
    the relative representations. The authors published no training loop; every choice they leave open is a parameter.
    The correspondence is held fixed within a step (its gradient made the method fail), and the gradient is the closed
    form ``2/(m k) (A_y Y'Y - A_x B'Y)`` on the sphere, B being the barycentres: nothing of size n x m is kept.

    ``mode="alternating"`` replaces the descent by turns of matching and orthogonal Procrustes; then ``A_y`` is ``A_x``
    under the map. It takes off from few seeds where the descent is stuck, and needs a small part of its time. Four
    things make it take off. The map is kept to the directions that the matches determine, the leading singular
    directions of their cross-covariance, and each is weighted by its singular value when rows are compared. Rows are
    matched by CSLS both ways. Every turn matches other rows, drawn at random, so that errors do not feed themselves.
    And rows are compared in their leading principal directions, by variance at first, when little else is certain,
    and more and more evenly later: the weights fall and each side is whitened in part. The last rounds, on all rows
    and in all dimensions, are plain votes and full orthogonal Procrustes.

    The anchors found, as pairs of rows, may in the end be compared by another ``similarity`` than the cosine they were
    found by. It is fitted on them as a support, with each row of y once: a row that serves several anchors would weigh
    more in a covariance, and could not be left out of it.

    Departures from the paper, all of them switchable: preprocessing is the caller's (the paper does not centre); the
    plan is replaced by its limit for epsilon to 0, votes (``correspondence="soft"`` is the plan itself); seeds stay
    fixed (``fix_seeds``); unequal numbers of rows are allowed (the authors' code refuses them).
    """

    name = "ao"
    title = "Anchor optimisation"
    summary = "A few seed pairs grow to hundreds of parallel anchors."
    source = "arXiv 2303.00721"
    needs = Needs(min_seeds=1)

    mode: str = param(
        "alternating",
        "alternating: match and turn, the fast and robust form. paper: Adam on the anchors, as published.",
        choices=("alternating", "paper"),
        source=MEASURED,
    )
    anchors: int = param(300, "Anchors on the x side, seeds included", low=1, high=100_000, source=PAPER)
    rounds: int = param(
        30, "Turns of matching and refitting the weighted map", low=0, high=1000, source=MEASURED, only_if=ALTERNATING
    )
    subset: int = param(
        2000,
        "Rows a side matched in a turn, drawn anew each time so that a wrong match cannot confirm itself; the first "
        "turns take a quarter. 0 takes all rows. The last turns always take all",
        low=0,
        high=1_000_000,
        source=MEASURED,
        advanced=True,
        only_if=ALTERNATING,
    )
    polish: int = param(
        15,
        "Last turns: plain votes and full orthogonal Procrustes",
        low=1,
        high=1000,
        source=MEASURED,
        advanced=True,
        only_if=ALTERNATING,
    )
    weight: float = param(
        1.0,
        "Power of the singular values that weigh the directions rows are compared in; 0 compares all alike",
        low=0.0,
        high=4.0,
        source=MEASURED,
        advanced=True,
        only_if=ALTERNATING,
    )
    directions: int = param(
        128,
        "Leading principal directions of each side that rows are compared in; 0 takes all. The last turns take all",
        low=0,
        high=100_000,
        source=MEASURED,
        advanced=True,
        only_if=ALTERNATING,
    )
    taper: float = param(
        0.5,
        "By the last weighted turn the power of the weights has fallen by this, and each side is whitened to this "
        "power; 0 keeps both as they are at first",
        low=0.0,
        high=1.0,
        source=MEASURED,
        advanced=True,
        only_if=ALTERNATING,
    )
    seed_weight: float = param(
        0.1,
        "Weight of the seeds beside all matches, as a share",
        low=0.0,
        high=100.0,
        source=MEASURED,
        advanced=True,
        only_if=ALTERNATING,
    )
    neighbors: int = param(
        10,
        "Neighbourhood of CSLS",
        low=1,
        high=1000,
        source="Conneau et al. 2018, section 2.3",
        advanced=True,
        only_if=ALTERNATING,
    )
    adam_steps: int = param(
        250, "Optimisation steps, full batch", low=1, high=100_000, source=PAPER, only_if=PAPER_MODE
    )
    learning_rate: float = param(
        0.02, "Learning rate of Adam", low=1e-6, high=10.0, source=PAPER, log=True, only_if=PAPER_MODE
    )
    start: str = param(
        "random",
        "Unknown anchors start at random points of the sphere, or where the rotation fitted to the seeds puts them",
        choices=("random", "procrustes"),
        source=PAPER,
        only_if=PAPER_MODE,
    )
    correspondence: str = param(
        "vote",
        "vote: each x row votes for its nearest y row. soft: the Sinkhorn plan. argmax: the plan's largest entry. "
        "nearest: no correction for hubs, which collapses",
        choices=("vote", "soft", "argmax", "nearest"),
        source="soft in the paper; vote is its limit for small epsilon",
        only_if=PAPER_MODE,
    )
    epsilon: float = param(
        1e-4,
        "Entropic regularisation of Sinkhorn",
        low=1e-8,
        high=100.0,
        source=PAPER,
        log=True,
        advanced=True,
        only_if=PLAN,
    )
    epsilon_scale: str = param(
        "absolute",
        "relative: epsilon counts in medians of the distance to the nearest row",
        choices=("absolute", "relative"),
        source="absolute in the paper, which does not carry over between encoders",
        advanced=True,
        only_if=PLAN,
    )
    sinkhorn_iterations: int = param(
        1, "Sinkhorn iterations a step", low=1, high=10_000, source=PAPER, advanced=True, only_if=PLAN
    )
    stop_error: float = param(
        1e-5,
        "Potentials that move less end the Sinkhorn iterations",
        low=0.0,
        high=1.0,
        source=PAPER,
        log=True,
        advanced=True,
        only_if=PLAN,
    )
    fix_seeds: bool = param(
        True, "Keep the seeds' anchors where they are", source=OPEN, advanced=True, only_if=PAPER_MODE
    )
    loss: str = param(
        "mean",
        "Squared errors of a row: their mean, or their sum over anchors",
        choices=("mean", "sum"),
        source=OPEN,
        advanced=True,
        only_if=PAPER_MODE,
    )
    discretise: str = param(
        "one_to_one",
        "How an anchor becomes a row of y: each row at most once (linear assignment), or the nearest row",
        choices=("one_to_one", "nearest"),
        source="nearest in the paper; whether a row may serve twice is not stated",
        advanced=True,
    )
    similarity: str = anchored.similarity_param("cosine", COMPARED, "anchors")
    shrinkage: str = anchored.shrinkage_param(("similarity", anchored.SHRUNK))
    shrinkage_amount: float = anchored.amount_param()
    gamma: float = anchored.gamma_param()
    kernel_ridge: float = anchored.kernel_ridge_param()
    standardise: bool = anchored.standardise_param(("similarity", anchored.SIMILARITIES[1:]))

    def check(self, n, m, dx, dy, seeds):
        super().check(n, m, dx, dy, seeds)
        if self.similarity in anchored.SHRUNK:
            anchors = max(min(self.anchors, n), seeds)
            how = self.shrinkage, self.shrinkage_amount, self.similarity
            anchored.check_whitening(self.title, anchors, dx, dy, *how, what="anchors")

    def steps(self, x, y, seeds, *, generator, device="cpu"):
        from relcore.ops.neighbors import unit_rows

        x, y = unit_rows(x).to(device), unit_rows(y).to(device)
        rows, notes = self.choose_anchors(len(x), seeds, generator)
        anchors_x = x[rows]
        seed_x, seed_y = x[rows[: len(seeds)]], y[torch_rows(seeds.y)]
        if self.mode == "paper":
            anchors_y, converged = yield from self._descend(x, y, anchors_x, seed_x, seed_y, generator)
            turn = None
        else:
            turn, converged = yield from self._alternate(x, y, anchors_x, seed_x, seed_y, generator)
            anchors_y = unit_rows(anchors_x @ turn)
            turn = turn.cpu()
        found = self.discretised(anchors_y, y, seeds)
        encoders, chosen = [Linear(a.T.contiguous().cpu()) for a in (anchors_x, anchors_y)], {}
        distinct = len(np.unique(found))
        if self.discretise == "one_to_one" and len(found) > len(y):
            notes.append(f"{len(found)} anchors for {len(y)} rows of y: not one to one, each takes its nearest row")
        if distinct < len(found):
            notes.append(f"{len(found)} anchors lie on {distinct} distinct rows of y")
        if self.similarity != "cosine":
            nearness = (anchors_y * y[torch_rows(found)]).sum(1).cpu().numpy()
            own = once(found, nearness, len(seeds))
            if distinct < len(found):
                notes.append(f"{self.similarity}: of anchors that share a row of y only the nearest has a part")
            support = x[rows[torch_rows(own)]], y[torch_rows(found[own])]
            encoders, chosen = self.compared(support, notes)
        return Alignment(
            x=encoders[0](x.cpu()),
            y=encoders[1](y.cpu()),
            encode_x=encoders[0],
            encode_y=encoders[1],
            anchors=Pairs(np.stack([rows.cpu().numpy(), found], 1), unique=distinct == len(found)),
            anchors_x=anchors_x.cpu(),
            anchors_y=anchors_y.cpu(),
            map=turn,
            converged=converged,
            chosen=chosen,
            notes=notes,
        )

    def compared(self, support: tuple[Tensor, Tensor], notes: list[str]) -> tuple[list, dict[str, float]]:
        """Encoders of both sides by similarity to the anchors, and the numbers that were chosen; adds to the notes.

        Parameters
        ----------
        support : (k, d_x), (k, d_y), the anchors as rows of both sides, each row once.
        """
        from relcore.ops.similarity import fit

        chosen = {}
        if self.similarity in anchored.SHRUNK:
            if len(support[0]) < anchored.FEWEST:
                raise RunFailed(
                    f"{self.similarity} takes a covariance of at least {anchored.FEWEST} anchors, but those found lie "
                    f"on {len(support[0])} rows of y; take the similarity cosine, or more seeds."
                )
            white = anchored.whitening(support, self.shrinkage, self.shrinkage_amount, what="anchors")
            fits = white.similarities(self.similarity, support, self.gamma, None, self.kernel_ridge)
            notes += white.notes
            chosen = white.chosen
        else:
            fits = [fit(self.similarity, v) for v in support]
        return [anchored.encoder(f, v, v, self.standardise) for f, v in zip(fits, support, strict=True)], chosen

    def choose_anchors(self, n: int, seeds: Pairs, generator) -> tuple[Tensor, list[str]]:
        """Rows of x that serve as anchors: the seeds' first, then others at random. int64 (k,) and notes."""
        import torch

        notes = []
        count = self.anchors
        if count > n:
            notes.append(f"{count} anchors asked for, {n} used: x has only so many rows")
            count = n
        if count < len(seeds):
            notes.append(f"{count} anchors asked for, {len(seeds)} used: every seed is one")
            count = len(seeds)
        taken = torch.zeros(n, dtype=torch.bool)
        taken[torch_rows(seeds.x)] = True
        order = torch.randperm(n, generator=generator)
        return torch.cat([torch_rows(seeds.x), order[~taken[order]][: count - len(seeds)]]), notes

    def discretised(self, anchors_y: Tensor, y: Tensor, seeds: Pairs) -> np.ndarray:
        """Row of y for each anchor, int64 (k,): the seeds' own, the others' by cosine.

        With more anchors than rows no assignment is one to one: each then takes its nearest row, which
        :meth:`steps` notes.
        """
        from scipy.optimize import linear_sum_assignment

        free = anchors_y[len(seeds) :]
        out = np.empty(len(anchors_y), dtype=np.int64)
        out[: len(seeds)] = seeds.y
        if not len(free):
            return out
        similarity = (free @ y.T).cpu().numpy()
        if self.discretise == "nearest" or len(free) > len(y) - len(seeds):
            out[len(seeds) :] = similarity.argmax(1)
            return out
        similarity[:, seeds.y] = -2.0  # below every cosine: a seed's row is taken
        out[len(seeds) :] = linear_sum_assignment(similarity, maximize=True)[1]
        return out

    # ---------------------------------------------------------------- the published descent

    def _descend(self, x, y, anchors_x, seed_x, seed_y, generator):
        """Adam on the unknown anchors. Returns them, unit (k, d_y), and whether they had come to rest."""
        import torch

        from relcore.ops import linalg, matching
        from relcore.ops.neighbors import unit_rows

        k, known = len(anchors_x), len(seed_x)
        if self.start == "procrustes":
            unknown = unit_rows(anchors_x[known:] @ linalg.procrustes(seed_x, seed_y)[0])
        else:
            unknown = unit_rows(torch.randn((k - known, y.shape[1]), generator=generator)).to(y)
        raw = torch.cat([seed_y, unknown])
        free = slice(known if self.fix_seeds else 0, None)
        first, second = torch.zeros_like(raw), torch.zeros_like(raw)
        gram = y.T @ y
        scale = 1.0 if self.loss == "sum" else 1.0 / k
        epsilon = self.epsilon
        moved = math.inf
        for t in range(1, self.adam_steps + 1):
            anchors_y = unit_rows(raw)
            factors = matching.distance_factors(x, y, anchors_x, anchors_y)
            metrics = {}
            if self.correspondence in ("soft", "argmax"):
                if t == 1 and self.epsilon_scale == "relative":
                    epsilon *= float(matching.vote(factors, x).nearest.median())
                plan = matching.sinkhorn_match(factors, x, epsilon, self.sinkhorn_iterations, self.stop_error)
                match = plan.match
                target = match.target if self.correspondence == "soft" else x[match.best]
                if t == self.adam_steps:
                    row_sums, column_sums = matching.marginals(factors, plan.u, plan.v, epsilon)
                    metrics["row marginal error"] = float((row_sums - 1 / len(x)).abs().sum())
                    metrics["column marginal error"] = float((column_sums - 1 / len(y)).abs().sum())
            else:
                match = (matching.vote if self.correspondence == "vote" else matching.nearest)(factors, x)
                target = match.target
            cross = target.T @ y  # (d_x, d_y)
            loss = scale / len(y) * self._squared_error(anchors_y, gram, anchors_x, cross, target)
            if not math.isfinite(loss):
                raise RunFailed(f"loss became {loss} at step {t}; kept is step {t - 1}.", t - 1)
            gradient = scale / len(y) * sphere_gradient(raw, gram, anchors_x, cross)
            first.mul_(0.9).add_(gradient, alpha=0.1)
            second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            update = first / (1 - 0.9**t) / ((second / (1 - 0.999**t)).sqrt() + 1e-8)
            raw[free] -= self.learning_rate * update[free]
            after = unit_rows(raw)
            moved = float((after - anchors_y).norm(dim=1).max())
            metrics |= {"loss": loss, "anchors moved": moved, "distinct targets": len(match.best.unique()) / len(y)}
            yield Step(t, self.adam_steps, "descend", metrics, Snapshot(anchors_x.T.cpu(), after.T.contiguous().cpu()))
        return unit_rows(raw), moved < self.learning_rate

    @staticmethod
    def _squared_error(anchors_y, gram, anchors_x, cross, target) -> float:
        """``|Y A_y' - B A_x'|^2`` from matrices of the size of the dimensions alone, in float64."""
        ay, ax = anchors_y.double(), anchors_x.double()
        own = (ay @ gram.double() * ay).sum()
        mixed = (ax @ cross.double() * ay).sum()
        theirs = (ax @ (target.T @ target).double() * ax).sum()
        return float((own - 2 * mixed + theirs).clamp_min(0))

    # ---------------------------------------------------------------- the alternation

    def _alternate(self, x, y, anchors_x, seed_x, seed_y, generator):
        """Turns of matching and fitting. Returns the orthogonal map (d_x, d_y) and whether the matches had settled."""
        import torch

        from relcore.ops import linalg, matching
        from relcore.ops.neighbors import unit_rows

        seeds = seed_x.T @ seed_y / len(seed_x)
        cross = seeds
        total = self.rounds + self.polish
        (axes_x, scale_x), (axes_y, scale_y) = (
            linalg.principal_axes(finite(v.T @ v, 1, f"second moment of {side}"), self.directions or v.shape[1])
            for side, v in (("x", x), ("y", y))
        )
        for t in range(1, self.rounds + 1):
            progress = (t - 1) / max(1, self.rounds - 1)
            taper = self.taper * progress
            even_x, even_y = axes_x * scale_x**-taper, axes_y * scale_y**-taper
            left, weight, right = linalg.leading_directions(even_x.T @ cross @ even_y)
            weight = weight ** (max(0.0, self.weight - taper) / 2)
            part_x, part_y = (self._drawn(v, progress, generator) for v in (x, y))
            to_y, to_x = matching.best_both_ways(
                unit_rows(part_x @ (even_x @ (left * weight))),
                unit_rows(part_y @ (even_y @ (right * weight))),
                self.neighbors,
            )
            matched = (part_x.T @ part_y[to_y] + part_x[to_x].T @ part_y) / (len(part_x) + len(part_y))
            cross = finite(matched + self.seed_weight * seeds, t)
            mutual = float((to_x[to_y] == torch.arange(len(part_x), device=x.device)).float().mean())
            turn = (axes_x @ left) @ (axes_y @ right).T
            yield self._turned(t, total, "match and turn", anchors_x, turn, {"mutual matches": mutual})
        ones = torch.ones(max(len(x), len(y)), device=x.device)
        turn, _ = linalg.procrustes_of(cross)
        old = None
        moved = 1.0
        for t in range(self.rounds + 1, total + 1):
            factors = matching.Factors(unit_rows(x @ turn), y, ones[: len(x)], ones[: len(y)])
            match = matching.vote(factors, x)
            turn, _ = linalg.procrustes_of(finite(match.target.T @ y + seed_x.T @ seed_y, t))
            metrics = {}
            if old is not None:
                metrics["matches moved"] = moved = float((match.best != old).float().mean())
            old = match.best
            yield self._turned(t, total, "polish", anchors_x, turn, metrics)
            if moved <= SETTLED / 10:
                break
        return turn, moved <= SETTLED

    def _drawn(self, v: Tensor, progress: float, generator) -> Tensor:
        """The rows of one side matched in a turn: drawn anew, from a quarter of ``subset`` at first to all of it.

        A quarter, but not below :data:`FEWEST`: too few rows hold too few partners.
        """
        import torch

        if not self.subset:
            return v
        size = min(self.subset, len(v))
        count = round(min(size, max(FEWEST, size // 4)) ** (1 - progress) * size**progress)
        if count >= len(v):
            return v
        return v[torch.randperm(len(v), generator=generator)[:count].to(v.device)]

    @staticmethod
    def _turned(t, total, phase, anchors_x, turn, metrics) -> Step:
        from relcore.ops.neighbors import unit_rows

        anchors_y = unit_rows(anchors_x @ turn)
        return Step(t, total, phase, metrics, Snapshot(anchors_x.T.cpu(), anchors_y.T.contiguous().cpu()))

    # ---------------------------------------------------------------- what it costs

    def estimate(self, n, m, dx, dy, seeds):
        from relcore.methods import costs

        k = min(self.anchors, n)
        width = min(dx, dy)
        memory = 4.0 * (2 * n * dx + 2 * m * dy + (n + m) * k) + costs.TILE_BYTES
        if self.mode == "alternating":
            narrow = min(width, self.directions or width)
            each = costs.both_ways(min(n, self.subset or n), min(m, self.subset or m), narrow)
            each += costs.decomposition(narrow, narrow)
            last = costs.vote(n, m, width) + costs.decomposition(dx, dy)
            seconds = (
                self.rounds * each + self.polish * last + costs.decomposition(dx, dx) + costs.decomposition(dy, dy)
            )
        elif self.correspondence == "vote":
            seconds = self.adam_steps * costs.vote(n, m, min(width, k))
        else:
            seconds = self.adam_steps * self.sinkhorn_iterations * costs.sweep(n, m, min(width, k), dx)
        more = anchored.cost(self, n, m, dx, dy, k, k)
        seconds, memory = seconds + more.seconds, memory + more.memory
        return Cost(memory=memory, seconds=seconds)


def sphere_gradient(raw: Tensor, gram: Tensor, anchors_x: Tensor, cross: Tensor) -> Tensor:
    """Gradient (k, d_y) in ``raw`` of ``|Y A' - B A_x'|^2``, A being the rows of ``raw`` scaled to norm 1.

    Parameters
    ----------
    raw : (k, d_y), no zero row. anchors_x : (k, d_x).
    gram, cross : ``Y'Y`` (d_y, d_y) and ``B'Y`` (d_x, d_y), for rows Y (m, d_y) and their targets B (m, d_x).
    """
    norm = raw.norm(dim=1, keepdim=True)
    anchors_y = raw / norm
    gradient = 2.0 * (anchors_y @ gram - anchors_x @ cross)
    # through a -> a / |a|: only what is tangent to the sphere remains
    return (gradient - anchors_y * (anchors_y * gradient).sum(1, keepdim=True)) / norm


def once(found: np.ndarray, nearness: np.ndarray, seeds: int) -> np.ndarray:
    """Positions, ascending, of one anchor for each row found: a seed's where it has one, else the nearest."""
    order = np.lexsort((-nearness, np.arange(len(found)) >= seeds, found))
    first = np.unique(found[order], return_index=True)[1]
    return np.sort(order[first])


def finite(matrix: Tensor, t: int, what: str = "cross-covariance") -> Tensor:
    """A matrix of step t, if it is finite; a decomposition would break off without saying where."""
    if not matrix.isfinite().all():
        raise RunFailed(f"{what} became NaN or infinite at step {t}; kept is step {t - 1}.", t - 1)
    return matrix


def torch_rows(rows: np.ndarray) -> Tensor:
    import torch

    return torch.from_numpy(rows.copy())
