"""Wasserstein-Procrustes: a turn and a transport plan found in turns, on batches that grow."""

from __future__ import annotations

from dataclasses import dataclass

from relcore.errors import InputError
from relcore.methods import costs
from relcore.methods.base import Alignment, Cost, Linear, Method, Needs, Snapshot, Step, param

PAPER = "arXiv 1805.11222, section 4"
CODE = "the authors' code (fastText, alignment)"
LOOKS = 100  # steps of a fit that are told, about
ROW_COST = 4e-8  # seconds an entry of a batch: its plan


@dataclass(frozen=True)
class WassersteinProcrustes(Method):
    """The orthogonal map under which one cloud is cheapest to transport onto the other. Each step draws a batch of
    rows of both sides, solves its transport, moves the map along the gradient and makes it orthogonal again; after
    each epoch batches are twice as large, and a quarter as many.

    It starts from the seeds' Procrustes map; without seeds from a convex relaxation of matching both sides' Gram
    matrices, on the first rows. The seeds enter the start alone.

    Differences from the authors: the start takes the same number of rows of both sides, of which a smaller side may
    not have enough; batches cannot exceed the sides; dimensions may differ, the map is then a partial isometry.

    Source: Grave, Joulin and Berthet, AISTATS 2019, arXiv 1805.11222; defaults as in their released code.
    """

    name = "wasserstein_procrustes"
    title = "Wasserstein-Procrustes"
    summary = "Turn A so that it is cheapest to transport onto B, by batches; with seeds, or from a convex start."
    source = "arXiv 1805.11222"
    needs = Needs()

    epochs: int = param(5, "Epochs; each doubles the batch and quarters the steps", low=1, high=20, source=CODE)
    steps_first: int = param(5000, "Steps of the first epoch", low=1, high=1_000_000, source=CODE, log=True)
    batch: int = param(500, "Rows of each side in a step of the first epoch", low=2, high=10_000, source=CODE, log=True)
    reg: float = param(
        0.05, "Entropic regularisation, in units of the cosine", low=0.005, high=10.0, source=CODE, log=True
    )
    cutoff: int = param(
        20_000,
        "Rows of each side that batches are drawn from, from the first: in files of words the most frequent",
        low=2,
        high=1_000_000,
        source=CODE,
        log=True,
    )
    start_rows: int = param(
        2500,
        "Rows of each side, from the first, of the convex start, where there are no seeds",
        low=2,
        high=10_000,
        source=CODE,
        log=True,
    )
    start_steps: int = param(100, "Steps of the convex start", low=1, high=10_000, source=CODE, advanced=True)
    rate: float = param(
        500.0,
        "Rate of the gradient's mean over the first batch; a batch twice as large has the same",
        low=1e-3,
        high=1e6,
        source=CODE,
        log=True,
        advanced=True,
    )

    def steps(self, x, y, seeds, *, generator, device="cpu"):
        import torch

        from relcore.ops import wasserstein
        from relcore.ops.linalg import procrustes, procrustes_of
        from relcore.ops.neighbors import unit_rows

        notes: list[str] = []
        a, b = (unit_rows(v[: self.cutoff].to(device)) for v in (x, y))
        for side, v in (("A", x), ("B", y)):
            if len(v) > self.cutoff:
                notes.append(f"batches are drawn from the first {self.cutoff} of {len(v)} rows of {side}")
        stay, done = torch.eye(y.shape[1]), 0
        schedule = self._schedule()
        total = sum(count for _, count in schedule) + (0 if len(seeds) else self.start_steps)
        every = max(1, total // LOOKS)
        if len(seeds):
            turn, rank = procrustes(*(unit_rows(v[r.tolist()].to(device)) for v, r in ((x, seeds.x), (y, seeds.y))))
            if rank < min(x.shape[1], y.shape[1]):
                notes.append(f"the start is determined only on a {rank}-dimensional subspace ({len(seeds)} seeds)")
        else:
            k = min(self.start_rows, len(a), len(b))
            if k < max(len(x), len(y)):
                notes.append(f"the start is of the first {k} rows of both sides")
            for side, v in (("A", a[:k]), ("B", b[:k])):
                if float((v - v[0]).abs().max()) < 1e-5:
                    raise InputError(
                        f"all {k} rows of {side} are one point on the sphere: there is no shape to start from; "
                        "give seeds, or check the file, or the preprocessing."
                    )
            looks = max(1, self.start_steps // 10)
            for done, mismatch, matching in wasserstein.convex_start(a[:k], b[:k], self.reg, self.start_steps):
                if done % looks == 0 or done in (1, self.start_steps):
                    turn, _ = procrustes_of(a[:k].T @ matching @ b[:k])
                    yield Step(done, total, "convex start", {"mismatch": mismatch}, Snapshot(turn.cpu(), stay, "x"))
            del matching
        for epoch, (size, count) in enumerate(schedule):
            cosines, sizes = [], [min(size, len(v)) for v in (a, b)]
            for i in range(1, count + 1):
                drawn = [v[torch.randperm(len(v), generator=generator)[:size].to(device)] for v in (a, b)]
                turn, cosine = wasserstein.step(turn, *drawn, self.reg, self.rate)
                cosines.append(cosine)
                done += 1
                if len(cosines) == every or i == count:
                    metrics = {"transport cost": 1 - sum(cosines) / len(cosines), "batch": float(min(sizes))}
                    phase = f"epoch {epoch + 1} of {self.epochs}"
                    yield Step(done, total, phase, metrics, Snapshot(turn.cpu(), stay, "x"))
                    cosines = []
        dx, dy = x.shape[1], y.shape[1]
        if dx != dy:
            notes.append(f"dimensions differ ({dx} and {dy}): the map is semi-orthogonal, from the thin SVD")
        turn = turn.cpu()
        return Alignment(x=x @ turn, y=y.clone(), encode_x=Linear(turn), encode_y=Linear(stay), map=turn, notes=notes)

    def _schedule(self) -> list[tuple[int, int]]:
        """Rows of a batch and number of steps of each epoch."""
        return [(self.batch * 2**e, max(1, self.steps_first // 4**e)) for e in range(self.epochs)]

    def estimate(self, n, m, dx, dy, seeds):
        p, q = min(n, self.cutoff), min(m, self.cutoff)
        polar = 2 * costs.decomposition(dx, dy)
        seconds, largest = 0.0, 0
        for size, count in self._schedule():
            r, s = min(size, p), min(size, q)
            one = polar + r * s * (ROW_COST + 1e-10 * dy) + 1e-10 * r * dx * dy
            seconds, largest = seconds + count * one, max(largest, r * s)
        k = 0 if seeds else min(self.start_rows, p, q)
        start = self.start_steps * k * k * (2e-7 + 1e-10 * (dx + dy)) if k else 0.0
        rows = 4.0 * (2 * n * dx + n * dy + 3 * m * dy)
        return Cost(rows + 16.0 * largest + 20.0 * k * k, start + seconds, None)
