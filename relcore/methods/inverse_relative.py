"""Inverse relative projection: through the relative space into the frame of y."""

from __future__ import annotations

from dataclasses import dataclass

from relcore.errors import InputError
from relcore.methods import anchored, costs
from relcore.methods.base import Alignment, Cost, Linear, Method, Needs, Snapshot, Step, param

PRUNING = ("pivoted", "farthest", "none")


@dataclass(frozen=True)
class InverseRelative(Method):
    """Describe rows of x by their cosines to x's anchors, and read that as a description by y's: ``x A_x' (A_y')^+``.

    Unlike a translation it never sees the two spaces together: each side needs its own anchors alone. The inverse of
    anchors that hardly differ blows noise up, so that they are pruned until their condition number is bearable.

    Deviations. The lengths of rows, which the paper draws anew by their distribution, are left out: rows are compared
    by cosine. That anchors are pruned is the paper's; in what order and how far is ours, since its text was not to be
    had: from the largest number of ``pivoted`` (or ``farthest``) ones down to the condition number allowed.

    Source: Maiorca et al., "Latent Space Translation via Inverse Relative Projection", arXiv 2406.15057.
    """

    name = "irp"
    title = "Inverse relative projection"
    summary = "Describe A by its similarities to the seeds, and turn that back into the coordinates of B."
    source = "arXiv 2406.15057"
    needs = Needs(min_seeds=2)

    pruning: str = param(
        "pivoted",
        "Which of the seeds are kept as anchors where all of them are ill-conditioned in y. pivoted: always the one "
        "farthest from the span of those before; farthest: the one of the widest angle to those before; none: all stay",
        choices=PRUNING,
        source="arXiv 2406.15057 prunes; the order is ours",
    )
    condition: float = param(
        30.0,
        "Largest condition number of y's anchors",
        low=1.0,
        high=1e7,
        log=True,
        source="ours: of 3, 10, 30 and 100 the best on Banking77, 300 and 1,000 seeds",
        only_if=("pruning", PRUNING[:2]),
    )
    centre: str = param(
        "seeds",
        "What is subtracted from each side first. seeds: the mean of its seeds; none: nothing, for sides that are "
        "centred already and seeds too few to do better",
        choices=("seeds", "none"),
        source="arXiv 2406.15057",
    )

    def check(self, n, m, dx, dy, seeds):
        anchored.check_pairs(self.title, self.needs.min_seeds, seeds)
        super().check(n, m, dx, dy, seeds)

    def steps(self, x, y, seeds, *, generator, device="cpu"):
        import torch

        from relcore.methods.kept import Cosines
        from relcore.ops.neighbors import unit_rows
        from relcore.ops.translation import condition, inverse_projection, rank_of, spreads

        rows = [v.double() for v in anchored.supports(x, y, seeds, device)]
        for side, v in zip("xy", rows, strict=True):
            if not spreads(v)[2].any():
                raise InputError(
                    f"the {len(seeds)} seeds' rows of {side} are all alike and span nothing; take other seeds."
                )
        centres = [v.mean(0) if self.centre == "seeds" else torch.zeros_like(v[0]) for v in rows]
        a, b = (unit_rows(v - c).double() for v, c in zip(rows, centres, strict=True))
        kept = self.anchors_of(b, generator)
        matrix = inverse_projection(a[kept], b[kept])
        notes = [] if len(kept) == len(a) else [f"{len(kept)} of {len(a)} seeds are anchors: {self._why()}"]
        rank = min(rank_of(a[kept]), rank_of(b[kept]))
        if rank < min(x.shape[1], y.shape[1]):
            notes.append(f"the map is determined only on a {rank}-dimensional subspace ({len(seeds)} seeds)")
        matrix, stay = matrix.float().cpu(), torch.eye(y.shape[1])
        if self.centre == "none":
            encoders = Linear(matrix), Linear(stay)
        else:
            encoders = tuple(
                Cosines(c.float().cpu(), w, torch.zeros(y.shape[1]))
                for c, w in zip(centres, (matrix, stay), strict=True)
            )
        figures = {"anchors": float(len(kept)), "condition": condition(b[kept])}
        yield Step(1, 1, "project", figures, Snapshot(*map(anchored.as_map, encoders), moving="x"))
        return Alignment(
            x=encoders[0](x),
            y=encoders[1](y),
            encode_x=encoders[0],
            encode_y=encoders[1],
            anchors=seeds.take(kept.cpu().numpy()),
            anchors_x=a[kept].float().cpu(),
            anchors_y=b[kept].float().cpu(),
            map=matrix if self.centre == "none" else None,
            notes=notes,
        )

    def _why(self):
        return f"more would have a condition number above {self.condition:g}"

    def anchors_of(self, b, generator):
        """Positions of the seeds that stay as anchors, by y's rows (K, d_y) of norm 1; in the order of the choice."""
        import torch

        from relcore import seeds as choosing
        from relcore.ops.translation import condition, longest_prefix, pivoted
        from relcore.space import Pairs

        every = torch.arange(len(b), device=b.device)
        if self.pruning == "none" or condition(b) <= self.condition:
            return every
        if self.pruning == "pivoted":
            order = pivoted(b)
        else:
            seed = int(torch.randint(2**62, (), generator=generator))
            most = min(b.shape)
            chosen = choosing.farthest_point(b.cpu().numpy(), Pairs.by_row(len(b)), most, seed)
            order = torch.from_numpy(chosen.x.copy())
        order = order.to(b.device)
        return order[: longest_prefix(b[order], self.condition)]

    def estimate(self, n, m, dx, dy, seeds):
        prune = 0.0 if self.pruning == "none" else 10 * costs.decomposition(seeds, dy)
        return Cost(
            memory=4.0 * (2 * n * dx + n * dy + 2 * m * dy) + 24.0 * (seeds * (dx + dy) + dx * dy),
            seconds=1e-3 + 1e-10 * (n * dx * dy + m * dy * dy) + costs.decomposition(seeds, dy) + prune,
        )
