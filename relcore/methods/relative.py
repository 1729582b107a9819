"""Relative representation by the given pairs: the baseline everything is measured against."""

from __future__ import annotations

from dataclasses import dataclass

from relcore.methods.base import Alignment, Cost, Linear, Method, Needs, Snapshot, Step


@dataclass(frozen=True)
class Relative(Method):
    """Describe every row by its cosine to the anchors of its own side.

    With the seeds as anchors this is the Seed baseline, with true pairs the ground-truth reference.
    Source: Moschella et al., ICLR 2023, §3.
    """

    name = "relative"
    title = "Relative representation"
    summary = "Describe each row by its cosines to the seeds of its own side; nothing is learned."
    source = "Moschella et al., ICLR 2023, §3"
    needs = Needs(min_seeds=1)

    def steps(self, x, y, seeds, *, generator, device="cpu"):
        from relcore.ops.neighbors import unit_rows

        anchors_x, anchors_y = (unit_rows(v[rows.tolist()].to(device)) for v, rows in ((x, seeds.x), (y, seeds.y)))
        map_x, map_y = anchors_x.T.contiguous().cpu(), anchors_y.T.contiguous().cpu()
        yield Step(1, 1, "project", {}, Snapshot(map_x, map_y))
        return Alignment(
            x=x @ map_x,
            y=y @ map_y,
            encode_x=Linear(map_x),
            encode_y=Linear(map_y),
            anchors=seeds,
            anchors_x=anchors_x.cpu(),
            anchors_y=anchors_y.cpu(),
        )

    def estimate(self, n, m, dx, dy, seeds):
        return Cost(memory=4.0 * (n * (dx + seeds) + m * (dy + seeds)), seconds=1e-10 * seeds * (n * dx + m * dy))
