"""Orthogonal Procrustes on the seeds: moves x into the frame of y."""

from __future__ import annotations

from dataclasses import dataclass

from relcore.methods.base import Alignment, Cost, Linear, Method, Needs, Snapshot, Step


@dataclass(frozen=True)
class Procrustes(Method):
    """The orthogonal map W from x to y that fits the seeds best; coordinates are ``x W`` and ``y``.

    Source: Schoenemann, Psychometrika 1966; as a translator between encoders: Maiorca et al., arXiv 2311.00664.
    """

    name = "procrustes"
    title = "Procrustes"
    summary = "Turn A into the frame of B by the orthogonal map that fits the seeds best."
    source = "Schoenemann 1966; arXiv 2311.00664"
    needs = Needs(min_seeds=1)

    def steps(self, x, y, seeds, *, generator, device="cpu"):
        import torch

        from relcore.ops.linalg import procrustes

        turn, rank = procrustes(x[seeds.x.tolist()].to(device), y[seeds.y.tolist()].to(device))
        turn, stay = turn.cpu(), torch.eye(y.shape[1])
        yield Step(1, 1, "fit", {}, Snapshot(turn, stay, moving="x"))
        dx, dy = x.shape[1], y.shape[1]
        notes = []
        if dx != dy:
            notes.append(f"dimensions differ ({dx} and {dy}): the map is semi-orthogonal, from the thin SVD")
        if rank < min(dx, dy):
            notes.append(f"rotation determined only on a {rank}-dimensional subspace ({len(seeds)} seeds)")
        return Alignment(x=x @ turn, y=y.clone(), encode_x=Linear(turn), encode_y=Linear(stay), map=turn, notes=notes)

    def estimate(self, n, m, dx, dy, seeds):
        return Cost(
            memory=4.0 * (n * dx + n * dy + m * dy + 4 * dx * dy),
            seconds=1e-10 * n * dx * dy + 1e-8 * dx * dy * min(dx, dy),
        )
