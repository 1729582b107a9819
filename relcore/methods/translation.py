"""Translation: x is moved into the frame of y by a linear or affine map fitted on the seeds."""

from __future__ import annotations

from dataclasses import dataclass

from relcore.errors import InputError
from relcore.methods import anchored, costs
from relcore.methods.base import Alignment, Cost, Linear, Method, Needs, Snapshot, Step, param

KINDS = ("ridge", "affine", "linear", "l_ortho", "ortho")
PAPER = "arXiv 2311.00664"
PREDICTED = 0.02  # R^2 at seeds left out that pairs in random order do not come to


@dataclass(frozen=True)
class Translation(Method):
    """The map of the seeds of x to those of y; coordinates are the moved rows of x, and y as it is.

    ``affine``, ``linear``, ``l_ortho`` and ``ortho`` are the paper's four, ``ridge`` ours. By default all see columns
    that are standardised over the seeds of their side, and what they say of y is scaled back. What it moves it moves
    well in squares, not in ranks: whoever wants partners found both ways compares it to ``procrustes`` and ``cca``.

    Deviations. The paper descends ``affine`` by SGD, 300 steps from a random start; here it is the minimum itself. Once
    columns are centred the seeds leave an intercept nothing to do, so that affine is linear there. The paper pads the
    smaller side with zeros; the thin SVD is the same map (tests/methods/test_translation.py), and needs no padding.
    With fewer seeds than dimensions least squares has many solutions, and the shortest is taken.

    Sources: Maiorca et al., "Latent Space Translation via Semantic Alignment", NeurIPS 2023, arXiv 2311.00664, section
    3; the ridge's strength by the leave-one-out error in closed form: Allen, "The relationship between variable
    selection and data augmentation", Technometrics 1974 (PRESS).
    """

    name = "translate"
    title = "Translation"
    summary = "Move A into the frame of B by least squares, a ridge or an orthogonal map fitted on the seeds."
    source = "Maiorca et al., NeurIPS 2023, arXiv 2311.00664"
    needs = Needs(min_seeds=2)

    how: str = param(
        "ridge",
        "How the map is fitted. ridge: least squares that are held short; affine: least squares with an intercept; "
        "linear: without; l_ortho: the orthogonal map nearest to linear; ortho: the orthogonal map that fits best",
        choices=KINDS,
        source=f"{PAPER}, but for ridge, which is ours: the others have no hold with fewer seeds than dimensions",
    )
    scaling: str = param(
        "standard",
        "What is done to the columns of each side first, by their seeds, and undone after. standard: mean 0 and "
        "variance 1; centre: mean 0; none: nothing",
        choices=("standard", "centre", "none"),
        source=f"{PAPER}, section 3",
    )
    strength: str = param(
        "left_out",
        "How the ridge is chosen. left_out: by the error at each seed, predicted by the others; fixed: by hand",
        choices=("left_out", "fixed"),
        source="Allen 1974",
        only_if=("how", ("ridge",)),
    )
    ridge: float = param(
        0.1,
        "Ridge in units of the mean eigenvalue of the seeds' second moment",
        low=1e-6,
        high=1e6,
        log=True,
        source="ours: what left_out found on Banking77 with 1,000 seeds (.3 with 300, 3 with 30)",
        only_if=(("how", ("ridge",)), ("strength", ("fixed",))),
    )

    def check(self, n, m, dx, dy, seeds):
        anchored.check_pairs(self.title, self.needs.min_seeds, seeds)
        super().check(n, m, dx, dy, seeds)

    def steps(self, x, y, seeds, *, generator, device="cpu"):
        import torch

        from relcore.methods.kept import Affine
        from relcore.ops.translation import spreads

        rows = anchored.supports(x, y, seeds, device)
        known, notes = [spreads(v) for v in rows], []
        for side, (_, _, varies) in zip("xy", known, strict=True):
            if not varies.any():
                raise InputError(
                    f"the {len(seeds)} seeds' rows of {side} are all alike: there is no map to fit; take other seeds."
                )
            if self.scaling != "none" and not varies.all():
                still = int((~varies).sum())
                notes.append(f"{still} columns of {side} are constant over the seeds and have no part")
        shift, gain = zip(*(self._scale(*found) for found in known), strict=True)
        scaled = [(v.double() - s) * g for v, s, g in zip(rows, shift, gain, strict=True)]
        matrix, offset, chosen, said = self._fit(*scaled)
        notes += said
        # undone on the side of y: of a constant column remains its mean
        back = torch.where(gain[1] > 0, 1 / gain[1].clamp_min(1e-300), 0.0)
        matrix = (gain[0][:, None] * matrix * back).float().cpu()
        offset = (offset * back + shift[1]).float().cpu()
        plain = self.scaling == "none" and self.how != "affine"
        encode = Linear(matrix) if plain else Affine(shift[0].float().cpu(), matrix, offset)
        stay = torch.eye(y.shape[1])
        yield Step(1, 1, "fit", {}, Snapshot(anchored.as_map(encode), stay, moving="x"))
        return Alignment(
            x=encode(x),
            y=y.clone(),
            encode_x=encode,
            encode_y=Linear(stay),
            map=matrix if plain else None,
            chosen=chosen,
            notes=notes,
        )

    def _scale(self, mean, spread, varies):
        """What is subtracted from a side, and then multiplied with; 0 for a column without variance."""
        import torch

        if self.scaling == "none":
            return torch.zeros_like(mean), torch.ones_like(mean)
        gain = 1 / spread.clamp_min(1e-300) if self.scaling == "standard" else torch.ones_like(spread)
        return mean, torch.where(varies, gain, 0.0)

    def _fit(self, a, b):
        """Map (d_x, d_y) and offset (d_y,) of scaled seeds, float64, what was chosen, and what is to be said."""
        import torch

        from relcore.ops.linalg import procrustes
        from relcore.ops.translation import Regression

        (count, p), q = a.shape, b.shape[1]
        if self.how == "ortho":
            turn, rank = procrustes(a, b)
            return turn.double(), b.new_zeros(q), {}, self._open(rank, min(p, q), count)
        known = Regression(a, b, intercept=self.scaling != "none" or self.how == "affine")
        chosen = {}
        if self.how == "ridge":
            ridge = self.ridge
            if self.strength == "left_out":
                ridge, share = known.best_ridge()
                chosen["ridge"] = ridge
            matrix = known.solution(ridge)
            notes = []
            if chosen and share > 1 - PREDICTED:
                notes.append(
                    f"seeds left out are hardly predicted by the others (R^2 {1 - share:.3f}): check that row for row "
                    "they are the same things; this method learns from that alone. Where rows are not parallel take "
                    f"{anchored.OTHERS}"
                )
        else:
            matrix = known.solution(0.0)
            notes = self._open(known.rank, p, count)
        if self.how == "l_ortho":
            u, s, vt = torch.linalg.svd(matrix, full_matrices=False)
            matrix = u @ vt
            notes = self._open(int((s > 1e-7 * s[0]).sum()), min(p, q), count)
        return matrix, known.offset(matrix), chosen, notes

    def _open(self, rank, full, count):
        return [] if rank >= full else [f"the map is determined only on a {rank}-dimensional subspace ({count} seeds)"]

    def estimate(self, n, m, dx, dy, seeds):
        fit = costs.decomposition(dx, dy) if self.how.endswith("ortho") else 0.0
        if self.how != "ortho":
            fit += costs.decomposition(seeds, dx) + 1e-10 * seeds * min(seeds, dx) * dy * 20
        return Cost(
            memory=4.0 * (n * dx + n * dy + m * dy) + 24.0 * (seeds * (dx + dy) + dx * dy),
            seconds=1e-3 + 1e-10 * n * dx * dy + fit,
        )
