"""Relative representation by the given pairs: the baseline everything is measured against."""

from __future__ import annotations

from dataclasses import dataclass, replace

from relcore.errors import InputError
from relcore.methods import anchored
from relcore.methods.base import Alignment, Cost, Method, Needs, Snapshot, Step, param

CHOICES = ("all", "random", "farthest", "medoids", "kmeans", "first")
SOME = CHOICES[1:]


@dataclass(frozen=True)
class Relative(Method):
    """Describe every row by its similarity to the anchors of its own side.

    With the seeds as anchors and cosine this is the Seed baseline, with true pairs the ground-truth reference.
    Anchors may be some of the seeds, or averages of clusters of seeds: what is chosen on the x side, rows or weights,
    holds for the y side too. ``wip`` and ``gamma`` look at the seeds' spectrum, and the former is blind to affine maps
    of a space; scaling rows to norm 1 beforehand is no affine map, so whoever is after that leaves it out
    (``--preprocess center``).

    Sources: Moschella et al., ICLR 2023, §3; Svendsen et al., arXiv 2605.30596 (wip); Cannistraci et al., arXiv
    2310.01211 (Euclidean).
    """

    name = "relative"
    title = "Relative representation"
    summary = "Describe each row by its similarities to the seeds of its own side; nothing is learned."
    source = "Moschella et al., ICLR 2023, §3"
    needs = Needs(min_seeds=1)

    similarity: str = anchored.similarity_param("cosine", "Moschella et al., §3")
    choose: str = param(
        "all",
        "Which seeds are anchors: all; random ones; farthest: spread out on x; medoids: nearest to the centroids of "
        "clusters of x; kmeans: the averages of the clusters; first: in the order of x, the most frequent words of a "
        "file that is sorted so",
        choices=CHOICES,
        source="Moschella et al., appendix",
    )
    count: int = param(
        100, "Anchors", low=1, high=100_000, source="of the order of the paper's 300", only_if=("choose", SOME)
    )
    shrinkage: str = anchored.shrinkage_param(("similarity", anchored.SHRUNK))
    shrinkage_amount: float = anchored.amount_param()
    gamma: float = anchored.gamma_param()
    kernel_ridge: float = anchored.kernel_ridge_param()
    standardise: bool = anchored.standardise_param()

    def check(self, n, m, dx, dy, seeds):
        anchored.check_pairs(self.title, self.needs.min_seeds, seeds)
        super().check(n, m, dx, dy, seeds)
        if self.choose != "all" and self.count > seeds:
            raise InputError(
                f"{self.count} anchors are to be chosen of {seeds} seeds; ask for at most {seeds}, or add seeds."
            )
        if self.similarity in anchored.SHRUNK:
            anchored.check_whitening(self.title, seeds, dx, dy, self.shrinkage, self.shrinkage_amount, self.similarity)

    def check_steps(self, x, y, seeds, *, generator, device="cpu"):
        fewer = replace(self, count=min(self.count, len(seeds)))  # a part of the seeds is held out
        return (yield from fewer.steps(x, y, seeds, generator=generator, device=device))

    def steps(self, x, y, seeds, *, generator, device="cpu"):
        from relcore.ops.neighbors import unit_rows
        from relcore.ops.similarity import fit

        rows = anchored.supports(x, y, seeds, device)
        chosen, mixture = self.anchors_of(x, seeds, generator)
        mixture = None if mixture is None else mixture.to(device)
        anchors = [(mixture @ v.double()) if chosen is None else v[chosen].double() for v in rows]
        notes, found = [], {}
        if self.similarity in anchored.SHRUNK:
            white = anchored.whitening(rows, self.shrinkage, self.shrinkage_amount, mixture)
            fits = white.similarities(self.similarity, rows, self.gamma, mixture, self.kernel_ridge)
            notes, found = white.notes, white.chosen
            if white.agreement is not None:
                notes += anchored.parallel_note(white.agreement)
        else:
            fits = [fit(self.similarity, v) for v in rows]
        encoders = [
            anchored.encoder(f, v, a, self.standardise, mixture) for f, v, a in zip(fits, rows, anchors, strict=True)
        ]
        yield Step(1, 1, "project", {}, Snapshot(*map(anchored.as_map, encoders)))
        return Alignment(
            x=encoders[0](x),
            y=encoders[1](y),
            encode_x=encoders[0],
            encode_y=encoders[1],
            anchors=None if chosen is None else seeds.take(chosen.numpy()),
            anchors_x=unit_rows(anchors[0]).cpu(),
            anchors_y=unit_rows(anchors[1]).cpu(),
            mixture=None if mixture is None else mixture.float().cpu(),
            chosen=found,
            notes=notes,
        )

    def anchors_of(self, x, seeds, generator):
        """Which of the seeds are anchors, int64 (k,), or None where none is; and weights (k, K), None where all are."""
        import numpy as np
        import torch

        from relcore import seeds as choosing
        from relcore.ops.neighbors import unit_rows
        from relcore.ops.param import one_row_each
        from relcore.space import Pairs

        k, seed = len(seeds), int(torch.randint(2**62, (), generator=generator))
        every = Pairs.by_row(k)  # positions among the seeds
        if self.choose == "all":
            return torch.arange(k), None
        if self.choose == "random":
            of = choosing.draw(every, self.count, seed=seed)
        elif self.choose == "first":
            of = every.take(np.argsort(seeds.x, kind="stable")[: self.count])  # seeds.most_frequent, as positions
        else:
            rows = unit_rows(x[torch.from_numpy(seeds.x.copy())]).numpy()
            if self.choose == "kmeans":
                return None, torch.from_numpy(choosing.centroids(rows, every, self.count, seed))
            choice = choosing.farthest_point if self.choose == "farthest" else choosing.medoids
            of = choice(rows, every, self.count, seed)
        chosen = torch.from_numpy(of.x.copy())
        return chosen, one_row_each(chosen, k)

    def estimate(self, n, m, dx, dy, seeds):
        from relcore.methods import costs

        k = seeds if self.choose == "all" else min(self.count, seeds)
        told = anchored.cost(self, n, m, dx, dy, seeds, k)
        chosen = costs.clusters(seeds, k, dx) if self.choose in ("kmeans", "medoids") else 0.0
        return Cost(memory=told.memory + 4.0 * (n * dx + m * dy), seconds=told.seconds + chosen)
