"""PARAM: anchors as mixtures of the seeds, learned; and k-means averages, its simple rival."""

from __future__ import annotations

from dataclasses import dataclass

from relcore.errors import RunFailed
from relcore.methods import anchored
from relcore.methods.base import Alignment, Cost, Method, Needs, Snapshot, Step, param

PAPER = "arXiv 2605.30596"
LOST = "the paper's table was not to be had; measured on digits (benchmarks/param.py)"
VIEWS = 25  # steps of a training that are shown with maps and figures


class Mixed(Method):
    """A method whose anchors are mixtures of the seeds, the same mixtures on both sides."""

    def check(self, n, m, dx, dy, seeds):
        anchored.check_pairs(self.title, self.needs.min_seeds, seeds)
        super().check(n, m, dx, dy, seeds)
        anchored.check_whitening(self.title, seeds, dx, dy, self.shrinkage, self.shrinkage_amount, self.similarity)

    def most(self, seeds: int) -> int:
        """Anchors that so many seeds bear: at most as many, of which each then is one. Few seeds want them all."""
        return seeds

    def wanted(self, seeds: int) -> tuple[int, list[str]]:
        """How many anchors there are to be, and a note where they are fewer than asked for."""
        count = min(self.anchors, self.most(seeds))
        if count == self.anchors:
            return count, []
        return count, [f"{self.anchors} anchors asked for, {count} used: {seeds} seeds bear no more"]

    def described(self, x, y, rows, mixture, white: anchored.Whitening, notes: list[str]) -> Alignment:
        """The alignment by mixtures (m, K) of the seeds' rows."""
        encoders = self.encoders(rows, mixture, self.fits(rows, white, mixture))
        if white.agreement is not None:
            notes = notes + anchored.parallel_note(white.agreement)
        notes = white.notes + notes
        if self.similarity in ("wip", "whitened"):
            notes += anchored.size_notes(len(mixture), len(rows[0]), x.shape[1], y.shape[1])
        return Alignment(
            x=encoders[0](x),
            y=encoders[1](y),
            encode_x=encoders[0],
            encode_y=encoders[1],
            anchors_x=anchored.directions(rows[0], mixture),
            anchors_y=anchored.directions(rows[1], mixture),
            mixture=mixture.float().cpu(),
            chosen=white.chosen,
            notes=notes,
        )

    def encoders(self, rows, mixture, fits: list) -> list:
        """Of both sides, by mixtures of the seeds' rows and fitted similarities."""
        return [
            anchored.encoder(f, v, mixture @ v.double(), self.standardise, mixture)
            for f, v in zip(fits, rows, strict=True)
        ]

    def fits(self, rows, white: anchored.Whitening, mixture) -> list:
        return white.similarities(self.similarity, rows, self.gamma, mixture, self.kernel_ridge)

    def agreed_anew(self, rows, white: anchored.Whitening, mixture) -> anchored.Whitening:
        """The ridge that the sides agree on by the anchors found, in place of that of all seeds.

        Few averages bear, and want, less whitening, canonical directions more; for a kernel, which has a ridge of its
        own, more whitening was worse.
        """
        if white.agreement is None:
            return white
        anew = anchored.whitening(rows, self.shrinkage, self.shrinkage_amount, mixture, white.left_out)
        return white if self.similarity == "kernel" and anew.ridges[0] < white.ridges[0] else anew

    def base_cost(self, n: int, m: int, dx: int, dy: int, seeds: int, anchors: int, anew: int) -> Cost:
        """Of whitening the seeds and of the similarity; ``anew`` anchors agree on a ridge again, 0 for none."""
        from relcore.methods import costs

        told = anchored.cost(self, n, m, dx, dy, seeds, anchors)
        seconds = told.seconds
        if self.similarity not in anchored.SHRUNK:  # anchors are found in whitened coordinates all the same
            seconds += costs.whitening(seeds, dx, dy)
        elif self.shrinkage == "agreed":
            seconds -= costs.agreement(seeds, dx, dy, anchors)
        if self.shrinkage == "agreed":
            seconds += costs.agreement(seeds, dx, dy, seeds) + (costs.agreement(seeds, dx, dy, anew) if anew else 0.0)
        return Cost(told.memory + 16.0 * min(seeds, 500) * seeds, seconds)


@dataclass(frozen=True)
class KMeans(Mixed):
    r"""Anchors are the averages of k-means clusters of the seeds, found on x; rows are compared by whitened products.

    The simple rival of PARAM: nothing is learned from both sides together. Where averages and whitening are what
    matters, it is as good, at a small part of the time.

    Source: k-means prototypes as in arXiv 2411.19719, with the whitened product of arXiv 2605.30596; the comparison is
    ours.
    """

    name = "kmeans"
    title = "k-means anchors"
    summary = "Averages of clusters of the seeds are the anchors, compared by whitened inner product."
    source = "arXiv 2411.19719; arXiv 2605.30596 (whitening)"
    needs = Needs(min_seeds=anchored.FEWEST)

    anchors: int = param(
        128, "Anchors; at most as many as seeds, which then are they", low=1, high=100_000, source=anchored.MEASURED
    )
    similarity: str = anchored.similarity_param("wip", PAPER)
    shrinkage: str = anchored.shrinkage_param()
    shrinkage_amount: float = anchored.amount_param()
    gamma: float = anchored.gamma_param()
    kernel_ridge: float = anchored.kernel_ridge_param()
    standardise: bool = anchored.standardise_param()

    def steps(self, x, y, seeds, *, generator, device="cpu"):
        from relcore.ops.param import cluster_averages

        rows = anchored.supports(x, y, seeds, device)
        count, notes = self.wanted(len(seeds))
        white = anchored.whitening(rows, self.shrinkage, self.shrinkage_amount)
        mixture = cluster_averages(white.white()[0], count, generator)
        white = self.agreed_anew(rows, white, mixture)
        maps = map(anchored.as_map, self.encoders(rows, mixture, self.fits(rows, white, mixture)))
        yield Step(1, 1, "cluster", {}, Snapshot(*maps, mixture=mixture.float().cpu()))
        return self.described(x, y, rows, mixture, white, notes)

    def estimate(self, n, m, dx, dy, seeds):
        from relcore.methods import costs

        k = min(self.anchors, self.most(seeds))
        told = self.base_cost(n, m, dx, dy, seeds, k, k)
        return Cost(told.memory, told.seconds + costs.clusters(seeds, k, dx))


@dataclass(frozen=True)
class Param(Mixed):
    r"""Anchors are mixtures of the seeds with weights that are learned, the same on both sides.

    .. math:: P = \mathrm{softmax}(\Theta), \quad A_x = P X_s, \quad A_y = P Y_s,

    X_s and Y_s being the seeds' rows. Rows are compared to anchors by whitened inner product, which no affine map of a
    space changes. The weights descend four losses in whitened coordinates: *coverage* (soft k-means), *orthogonality*
    of anchors, their *length*, and, with ``mode="multi"``, symmetric *InfoNCE* between the representations of the seeds
    on both sides. ``mode="single"`` learns on x alone; y only gets its anchors.

    The seeds have to be pairs, row for row: everything follows from that. Rows that are not seeds have no part in the
    fit. The paper's whitening is blind to affine maps only if the covariance is not shrunk; how far it is shrunk
    matters more on real encoders than how anchors are chosen, and is found from the seeds by default.

    Ours, as the paper's table of settings was not to be had: the losses' formulas and weights, the start at k-means
    averages of x, and that InfoNCE sees each seed as if it had been left out of the support (``left_out``), in closed
    form: with few seeds for the dimensions a seed otherwise tells itself apart by its own weight.

    Measured against simpler things (benchmarks/param.py): with about as many seeds as half the dimensions, or fewer,
    all seeds as anchors with the same whitened product (:class:`relcore.methods.relative.Relative`,
    ``similarity="wip"``) find partners better; with many, canonical correlations
    (:class:`relcore.methods.cca.GeneralisedCCA`) are as good or better, and faster.
    """

    name = "param"
    title = "PARAM"
    summary = "Mixtures of the seeds, learned for both sides at once, are the anchors; compared by whitened products."
    source = PAPER
    needs = Needs(min_seeds=anchored.FEWEST)

    anchors: int = param(
        128, "Anchors; at most as many as seeds. The paper has 300", low=1, high=100_000, source=anchored.MEASURED
    )
    mode: str = param(
        "multi",
        "multi: learn on both sides, with InfoNCE. single: on A alone",
        choices=("multi", "single"),
        source=PAPER,
    )
    descent_steps: int = param(
        150, "Steps of Adam; more overfit", low=1, high=100_000, source="measured on digits; 95 epochs in the paper"
    )
    similarity: str = anchored.similarity_param("wip", PAPER)
    shrinkage: str = anchored.shrinkage_param()
    shrinkage_amount: float = anchored.amount_param()
    gamma: float = anchored.gamma_param()
    kernel_ridge: float = anchored.kernel_ridge_param()
    learning_rate: float = param(
        0.05, "Rate of Adam, falling as a cosine", low=1e-6, high=10.0, source=LOST, log=True, advanced=True
    )
    batch: int = param(256, "Seeds in a step", low=2, high=100_000, source=LOST, advanced=True)
    coverage: float = param(
        1.0, "Weight of coverage: anchors among the rows", low=0.0, high=1000.0, source=LOST, advanced=True
    )
    orthogonality: float = param(
        0.03, "Weight of orthogonality: anchors unlike each other", low=0.0, high=1000.0, source=LOST, advanced=True
    )
    length: float = param(
        0.1,
        "Weight of length: anchors neither at the mean nor far out",
        low=0.0,
        high=1000.0,
        source=LOST,
        advanced=True,
    )
    infonce: float = param(
        2.0,
        "Weight of InfoNCE: a seed told from others across sides",
        low=0.0,
        high=1000.0,
        source=LOST,
        advanced=True,
        only_if=("mode", ("multi",)),
    )
    temperature: float = param(
        0.1,
        "Temperature of InfoNCE",
        low=1e-3,
        high=10.0,
        source=LOST,
        log=True,
        advanced=True,
        only_if=("mode", ("multi",)),
    )
    left_out: bool = param(
        True,
        "InfoNCE sees each seed as if it had no part in the anchors and the covariance",
        source=anchored.MEASURED,
        advanced=True,
        only_if=("mode", ("multi",)),
    )
    standardise: bool = anchored.standardise_param()

    def steps(self, x, y, seeds, *, generator, device="cpu"):
        return (yield from self._steps(x, y, seeds, generator, device, VIEWS))

    def check_steps(self, x, y, seeds, *, generator, device="cpu"):
        return (yield from self._steps(x, y, seeds, generator, device, 0))  # without figures and maps on the way

    def _steps(self, x, y, seeds, generator, device, views):
        rows = anchored.supports(x, y, seeds, device)
        count, notes = self.wanted(len(seeds))
        white = anchored.whitening(rows, self.shrinkage, self.shrinkage_amount)
        training = self.training(white.white(), count, generator)
        fits = self.fits(rows, white, training.mixture) if views else None
        every = max(1, self.descent_steps // views) if views else self.descent_steps + 1
        descent = iter(training)
        while training.done < self.descent_steps:
            try:
                losses = next(descent)
            except FloatingPointError as e:
                raise RunFailed(f"{e}; kept is step {training.done}.", training.done) from None
            metrics = {"loss": losses.total, "coverage": losses.coverage, "orthogonality": losses.orthogonality}
            metrics["length"] = losses.length
            if self.mode == "multi":
                metrics["infonce"] = losses.infonce
            snapshot = None
            if views and (losses.step % every == 0 or losses.step in (1, self.descent_steps)):
                metrics |= figures(training)
                maps = self.encoders(rows, training.mixture, fits)
                snapshot = Snapshot(*map(anchored.as_map, maps), mixture=training.mixture.float().cpu())
            yield Step(losses.step, self.descent_steps, "learn", metrics, snapshot)
        if self.mode == "single":  # y had no part in these mixtures, as in k-means
            white = self.agreed_anew(rows, white, training.mixture)
        return self.described(x, y, rows, training.mixture, white, notes)

    def training(self, supports: list, count: int, generator):
        """The training on whitened supports, of one side or both, from k-means averages of x."""
        from relcore.ops.param import Training, Weights, cluster_averages

        start = cluster_averages(supports[0], count, generator)
        weights = Weights(
            coverage=self.coverage,
            orthogonality=self.orthogonality,
            length=self.length,
            infonce=self.infonce,
            temperature=self.temperature,
        )
        return Training(
            supports[:1] if self.mode == "single" else supports,
            start,
            steps=self.descent_steps,
            generator=generator,
            weights=weights,
            learning_rate=self.learning_rate,
            batch=self.batch,
            left_out=self.left_out,
        )

    def estimate(self, n, m, dx, dy, seeds):
        from relcore.methods import costs

        k = min(self.anchors, self.most(seeds))
        dims = dx if self.mode == "single" else dx + dy
        told = self.base_cost(n, m, dx, dy, seeds, k, 0 if self.mode == "multi" else k)
        seconds = told.seconds + costs.clusters(seeds, k, dx)
        seconds += self.descent_steps * costs.mixture_step(seeds, k, dims, min(self.batch, seeds))
        seconds += VIEWS * costs.mixture_view(seeds, k, dx, dy)
        return Cost(told.memory + 24.0 * seeds * k, seconds)


def figures(training) -> dict[str, float]:
    """What is read of a training on the way, each figure by itself, of the seeds as if left out."""
    import torch

    from relcore.metrics.alignment import effective_rank
    from relcore.ops.neighbors import partner_rank
    from relcore.ops.param import effective_rows

    seen = training.relative()
    out = {"effective rank": effective_rank(seen[0]), "seeds in an anchor": effective_rows(training.mixture)}
    if len(seen) > 1:
        rows = torch.linspace(0, len(seen[0]) - 1, min(500, len(seen[0]))).round().long().to(seen[0].device)
        own = torch.arange(len(rows), device=rows.device)
        ranks = torch.cat([partner_rank(a[rows], b[rows], own, own) for a, b in (seen, seen[::-1])])
        out["mrr of seeds left out"] = float((1 / ranks.double()).mean())
    return out
