"""Generalised canonical correlations of the seeds, as anchors: what PARAM aims at, in closed form."""

from __future__ import annotations

from dataclasses import dataclass

from relcore.methods import anchored
from relcore.methods.base import Cost, Needs, Snapshot, Step, param
from relcore.methods.param import Mixed

KINDS = ("wip", "whitened", "centred", "kernel")


@dataclass(frozen=True)
class GeneralisedCCA(Mixed):
    """Anchors are the mixtures of the seeds that both sides predict best: one decomposition, nothing to descend.

    The whitened inner product is a regression of an anchor's weights on the row. So the best weights are scores that
    every side predicts well, which are the canonical scores (MAXVAR); scaled and shifted they are mixtures, not
    negative and of sum 1, and the anchors keep their directions. A direction counts by how well the two sides'
    predictions of it correlate at seeds left out; found with all seeds, it has some of that by chance, more the fewer
    seeds there are for the dimensions, so that the correlations are no proof of pairs.

    ``similarity="kernel"`` compares rows to the same anchors by a Gaussian kernel on whitened rows; it had the best
    F1 on MNIST, Fashion-MNIST and CIFAR-10 of two networks in benchmarks/param.py, at three times the time. Cosine and
    distances are not offered: the anchors lie close to the mean, where they tell nothing.

    Sources: Hotelling 1936; Kettenring, "Canonical analysis of several sets of variables", Biometrika 1971 (MAXVAR).
    That it is the closed form of PARAM's aim, and the scaling, are ours.
    """

    name = "cca"
    title = "Canonical correlations"
    summary = "The directions that the seeds of both sides share best, in closed form, as anchors."
    source = "Hotelling 1936; Kettenring 1971"
    needs = Needs(min_seeds=anchored.FEWEST)

    anchors: int = param(
        128, "Directions; at most half as many as seeds", low=1, high=100_000, source=anchored.MEASURED
    )
    similarity: str = anchored.similarity_param(
        "wip",
        "arXiv 2605.30596; kernel had the better F1 on the image pairs of benchmarks/param.py, and takes longer",
        choices=KINDS,
    )
    shrinkage: str = anchored.shrinkage_param()
    shrinkage_amount: float = anchored.amount_param()
    kernel_ridge: float = anchored.kernel_ridge_param()

    gamma = 1.0
    standardise = False

    def most(self, seeds):
        return max(1, seeds // 2)  # more are mostly chance, and make the rest worse

    def steps(self, x, y, seeds, *, generator, device="cpu"):
        from relcore.ops.param import generalised_cca

        rows = anchored.supports(x, y, seeds, device)
        count, notes = self.wanted(len(seeds))
        white = anchored.whitening(rows, self.shrinkage, self.shrinkage_amount)
        notes += [] if white.agreement is None else anchored.parallel_note(white.agreement)
        mixture, shared = generalised_cca(white.white(), count)
        mixture, shared = mixture[shared > 0], shared[shared > 0]
        if not len(shared):
            mixture, shared = generalised_cca(white.white(), 1)
            notes.append("no direction is shared at seeds left out; kept is the first canonical one")
        elif len(shared) < count:
            notes.append(f"{len(shared)} directions used of {count} asked for: the others are not shared")
        white = self.agreed_anew(rows, white, mixture)
        white.agreement = None  # by now of anchors that come from the pairs: it does not say whether they are any
        figures = {"correlation of the first": float(shared[0]), "sum of correlations": float(shared.sum())}
        encoders = self.encoders(rows, mixture, self.fits(rows, white, mixture))
        snapshot = Snapshot(*map(anchored.as_map, encoders), mixture=mixture.float().cpu())
        yield Step(1, 1, "decompose", figures, snapshot)
        return self.described(x, y, rows, mixture, white, notes)

    def estimate(self, n, m, dx, dy, seeds):
        from relcore.methods import costs

        k = min(self.anchors, self.most(seeds))
        told = self.base_cost(n, m, dx, dy, seeds, k, k)
        return Cost(told.memory, told.seconds + costs.eigen(min(seeds, dx + dy)) + 1e-10 * seeds * k * (dx + dy))
