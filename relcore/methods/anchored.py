"""What methods share that describe rows by similarities to anchors: the similarity as parameters, and its encoders."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from relcore.errors import InputError
from relcore.methods import costs
from relcore.methods.base import Cost, Linear, param

if TYPE_CHECKING:
    from torch import Tensor

    from relcore.ops.similarity import Agreement, Kernel, KernelLeftOut, LeftOut, Similarity
    from relcore.space import Pairs

SIMILARITIES = ("cosine", "centred", "wip", "whitened", "mahalanobis", "euclidean", "gamma", "kernel")
SHRUNK = ("wip", "whitened", "mahalanobis", "gamma", "kernel")
KERNEL_SEEDS = 8000  # of which the kernel's matrix takes half a GiB, and its decomposition 2.4 for a while
MEASURED = "measured on the real pairs of benchmarks/param.py"
FEWEST = 4  # seeds that a covariance is taken of
OTHERS = "a method that does with less: ao, from a few seeds, or hga, which needs no pairs"
UNSURE = 2.0  # standard errors above chance, below which rows left out are said not to find their partners


SAID = {
    "cosine": "",
    "centred": "cosine after the mean of the {support} is subtracted",
    "wip": "inner product after whitening by the covariance of the {support}, which sees no affine map of a space. "
    "Scaling rows to norm 1 beforehand is no affine map: for the exact thing preprocess by center alone",
    "whitened": "the cosine that goes with wip",
    "mahalanobis": "the distance that goes with wip",
    "euclidean": "distance",
    "gamma": "inner product after whitening in part",
    "kernel": "wip of a Gaussian kernel, for spaces that no linear map makes alike. A new row needs all {support}, and "
    "time grows with their cube",
}


def similarity_param(default: str, source: str, support: str = "seeds", choices: tuple[str, ...] = SIMILARITIES) -> Any:
    told = "; ".join(f"{c}: {SAID[c]}" if SAID[c] else c for c in choices).format(support=support)
    return param(default, f"How a row is compared to an anchor. {told}", choices=choices, source=source)


def shrinkage_param(only_if: tuple | None = None) -> Any:
    return param(
        "agreed",
        "How far the covariance is drawn towards even. agreed: so that seeds, each seen as if left out, find their "
        "partners best. ledoit_wolf: each side's own, for the covariance's sake. fixed: by hand",
        choices=("agreed", "ledoit_wolf", "fixed"),
        source=MEASURED,
        only_if=only_if,
    )


def amount_param() -> Any:
    return param(
        0.01,
        "Share of the mean eigenvalue in the covariance; 0 whitens fully, needs more seeds than dimensions, and is "
        "exactly blind to affine maps",
        low=0.0,
        high=0.99,
        source="measured on digits; on larger encoders 0.1 to 0.9 is better (benchmarks/param.py)",
        only_if=("shrinkage", ("fixed",)),
    )


def gamma_param() -> Any:
    return param(
        1.5,
        "How much of the spectrum is evened out: 0 none, the plain product; 1 half; 2 all",
        low=0.0,
        high=4.0,
        source="AnchorDOT's profile",
        advanced=True,
        only_if=("similarity", ("gamma",)),
    )


def kernel_ridge_param() -> Any:
    return param(
        0.0,
        "Ridge of the kernel in means of its eigenvalues; 0: that under which pairs left out find their partners best",
        low=0.0,
        high=1000.0,
        source=MEASURED,
        advanced=True,
        only_if=("similarity", ("kernel",)),
    )


def standardise_param(only_if: tuple | None = None) -> Any:
    return param(
        False,
        "Give every feature of each side mean 0 and variance 1 over the seeds. Distances need it, since the shares all "
        "rows have in common hide the rest",
        source="measured on digits: it mends most of what the plain cosine lacks there",
        advanced=True,
        only_if=only_if,
    )


def check_pairs(title: str, wanted: int, seeds: int) -> None:
    """Raise :class:`InputError`, naming methods that do with less, where there are too few parallel rows."""
    if seeds < wanted:
        raise InputError(
            f"{title} needs at least {wanted} seed pairs, got {seeds}: rows that are the same thing in both spaces, "
            f"which is all that it learns from; add seeds, or take {OTHERS}."
        )


def check_whitening(
    title: str,
    seeds: int,
    dx: int,
    dy: int,
    shrinkage: str,
    amount: float,
    similarity: str = "wip",
    what: str = "seeds",
) -> None:
    """Raise :class:`InputError` where a covariance, or a kernel, of so many seeds or anchors cannot be whitened."""
    if seeds < FEWEST:
        raise InputError(
            f"{title} takes a covariance of the {what} and needs at least {FEWEST} of them, got {seeds}; add {what}."
        )
    if shrinkage == "fixed" and amount == 0 and seeds <= max(dx, dy):
        raise InputError(
            f"shrinkage_amount is 0, but {seeds} {what} have no covariance of full rank in {max(dx, dy)} dimensions; "
            f"take a shrinkage above 0, or more than {max(dx, dy)} {what}."
        )
    if similarity == "kernel" and seeds > KERNEL_SEEDS:
        raise InputError(
            f"{title}: the kernel keeps a number for every pair of {what} and takes at most {KERNEL_SEEDS:,} of them, "
            f"got {seeds:,}; take fewer, or the similarity wip."
        )


def cost(method: Any, n: int, m: int, dx: int, dy: int, seeds: int, anchors: int) -> Cost:
    """Of a method's similarity: fitting it on seeds, and similarities of all rows to anchors."""
    seconds, memory = 1e-3, 4.0 * (n + m) * anchors + 24.0 * seeds * (dx + dy + anchors)
    if method.similarity in SHRUNK:
        seconds += costs.whitening(seeds, dx, dy)
        if method.shrinkage == "agreed":
            seconds += costs.agreement(seeds, dx, dy, anchors)
            memory += 16.0 * min(seeds, 500) * seeds
    if method.similarity != "kernel":
        return Cost(memory, seconds + 3e-11 * anchors * (n * dx + m * dy))
    seconds += costs.kernel(seeds, dx, dy, anchors)
    seconds += costs.kernel_rows(n, seeds, dx, anchors) + costs.kernel_rows(m, seeds, dy, anchors)
    return Cost(memory + 48.0 * seeds * seeds + 16.0 * seeds * anchors, seconds)


def supports(x: Tensor, y: Tensor, seeds: Pairs, device: str) -> tuple[Tensor, Tensor]:
    """The seeds' rows of both sides: parallel, the support set of every method here."""
    import torch

    return tuple(v[torch.from_numpy(rows.copy())].to(device) for v, rows in ((x, seeds.x), (y, seeds.y)))


@dataclass(eq=False)
class Whitening:
    """The ridge of each side, in units of its mean eigenvalue, and how it came about.

    Attributes
    ----------
    left_out : of each side, what :class:`~relcore.ops.similarity.LeftOut` knows of its support.
    agreement : where the two sides chose it, else None.
    notes, chosen : for the alignment.
    kernels : of both sides, once asked for.
    """

    left_out: tuple[LeftOut, LeftOut]
    ridges: tuple[float, float]
    agreement: Agreement | None = None
    notes: list[str] = field(default_factory=list)
    chosen: dict[str, float] = field(default_factory=dict)
    kernels: tuple[KernelLeftOut, KernelLeftOut] | None = None

    def white(self) -> list[Tensor]:
        """The supports in whitened coordinates, float64 (K, r)."""
        return [v.white(r) for v, r in zip(self.left_out, self.ridges, strict=True)]

    def similarities(
        self,
        kind: str,
        rows: tuple[Tensor, Tensor],
        gamma: float,
        mixture: Tensor | None = None,
        kernel_ridge: float = 0.0,
    ) -> list[Similarity | KernelFit]:
        """A similarity fitted on the seeds' rows of each side.

        ``mixture`` and ``kernel_ridge``, of the kernel: the anchors (m, K) its ridge is agreed by (None: all seeds),
        unless one is given.
        """
        from relcore.ops.similarity import WHITE, fit, whitened

        if kind in WHITE:
            return [whitened(v.spectrum, r, kind) for v, r in zip(self.left_out, self.ridges, strict=True)]
        if kind == "kernel":
            return self._kernels(mixture, kernel_ridge)
        return [fit(kind, v, ridge=r, gamma=gamma) for v, r in zip(rows, self.ridges, strict=True)]

    def _kernels(self, mixture: Tensor | None, ridge: float) -> list[KernelFit]:
        from relcore.ops.similarity import KERNEL_GRID, KernelLeftOut, agreed_ridge

        if self.kernels is None:
            self.kernels = tuple(KernelLeftOut(v, r) for v, r in zip(self.left_out, self.ridges, strict=True))
        if not ridge:
            self.chosen["kernel_ridge"] = ridge = agreed_ridge(self.kernels, mixture, KERNEL_GRID).ridge
        return [KernelFit(k, ridge) for k in self.kernels]


@dataclass(frozen=True, eq=False)
class KernelFit:
    """The kernel of one side's seeds and its ridge; :meth:`at` the anchors of a mixture it is a similarity."""

    known: KernelLeftOut
    ridge: float

    kind = "kernel"

    def at(self, mixture: Tensor | None) -> Kernel:
        return self.known.similarity(mixture, self.ridge)


def whitening(
    rows: tuple[Tensor, Tensor],
    shrinkage: str,
    amount: float,
    mixture: Tensor | None = None,
    known: tuple[LeftOut, LeftOut] | None = None,
    what: str = "seeds",
) -> Whitening:
    """Choose the ridges for the seeds' rows of both sides.

    Parameters
    ----------
    mixture : (m, K) anchors that the sides are to agree by; by default all seeds are anchors.
    known : what an earlier call knows of the rows.
    what : what the rows are called.

    Raises
    ------
    InputError
        Seeds without a covariance: all alike, or of low rank with a shrinkage of 0.
    """
    from relcore.ops.similarity import LeftOut, agreed_ridge, ridge_of

    try:
        left_out = known or tuple(LeftOut(v) for v in rows)
    except ValueError as e:
        raise InputError(f"the {what}' rows: {e}") from None
    notes = []
    for side, v, known_side in zip("xy", rows, left_out, strict=True):
        still = int((v == v[0]).all(0).sum())
        if still:
            notes.append(f"{still} columns of {side} are constant over the {what} and have no part")
        if shrinkage == "fixed" and amount == 0 and known_side.spectrum.rank < v.shape[1]:
            raise InputError(
                f"shrinkage_amount is 0, but the {len(v)} {what} of {side} span {known_side.spectrum.rank} of "
                f"{v.shape[1]} dimensions; take a shrinkage above 0."
            )
    if shrinkage == "fixed":
        return Whitening(left_out, (ridge_of(amount),) * 2, notes=notes)
    if shrinkage == "ledoit_wolf":
        amounts = [ledoit_wolf(v) for v in rows]
        notes.append(f"Ledoit-Wolf shrinkage: {amounts[0]:.3f} of x, {amounts[1]:.3f} of y")
        return Whitening(left_out, tuple(ridge_of(min(a, 0.99)) for a in amounts), notes=notes)
    agreement = agreed_ridge(left_out, mixture)
    share = agreement.ridge / (1 + agreement.ridge)
    chosen = {"shrinkage_amount": round(share, 4)}
    return Whitening(left_out, (agreement.ridge,) * 2, agreement, notes, chosen)


def ledoit_wolf(rows: Tensor) -> float:
    """Ledoit and Wolf's shrinkage of the covariance of rows (K, d) towards even, by scikit-learn."""
    from sklearn.covariance import ledoit_wolf_shrinkage

    return float(ledoit_wolf_shrinkage(rows.double().cpu().numpy()))


def parallel_note(agreement: Agreement) -> list[str]:
    """A warning where rows left out do not find their partners, which is what seeds that are no pairs look like."""
    if agreement.above_chance >= UNSURE:
        return []
    return [
        f"seeds left out find their partners no better than by chance (MRR {agreement.mrr:.3f} of {agreement.judged}): "
        "check that row for row they are the same things; this method learns from that alone. Where rows are not "
        f"parallel take {OTHERS}"
    ]


def size_notes(anchors: int, seeds: int, dx: int, dy: int) -> list[str]:
    """What rank a relative representation of so many anchors can have."""
    rank = min(seeds - 1, dx, dy)
    if anchors <= rank:
        return []
    return [f"{anchors} anchors, but of rank at most {rank} ({seeds} seeds, {dx} and {dy} dimensions)"]


def encoder(
    fitted: Similarity | KernelFit,
    rows: Tensor,
    anchors: Tensor,
    standardise: bool = False,
    mixture: Tensor | None = None,
) -> Any:
    """The encoder of one side: similarities of its rows to its anchors, on the CPU.

    Cosines that are not standardised keep the length of the row: the common space is compared by cosine.

    Parameters
    ----------
    rows : (K, d), the support of the side. anchors : (m, d).
    mixture : (m, K) that the anchors are of the support, for a kernel, which needs that alone; None: all rows of it.
    """
    import torch

    from relcore.methods.kept import Affine, Cosines, Distances, Kernelled, WhiteCosines, WhiteDistances

    kernel = fitted.at(mixture) if fitted.kind == "kernel" else None
    gain = torch.ones(len(anchors), dtype=torch.float64, device=rows.device)
    offset = torch.zeros_like(gain)
    if standardise:
        seen = (fitted(rows, anchors) if kernel is None else kernel(rows)).double()
        spread = seen.std(0, correction=0)
        gain = torch.where(spread > 1e-7 * seen.abs().amax(0), 1 / spread.clamp_min(1e-300), 0.0)
        offset = -seen.mean(0) * gain

    def ready(*tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(t.float().contiguous().cpu() for t in tensors)

    if kernel is not None:
        dual = kernel.dual * gain
        return Kernelled(*ready(kernel.origin, kernel.root, kernel.points, dual, kernel.offset * gain + offset))
    if fitted.kind == "euclidean":
        return Distances(*ready(anchors, gain, offset))
    if fitted.kind == "mahalanobis":
        return WhiteDistances(*ready(fitted.centre, fitted.root, fitted.white(anchors), gain, offset))
    if fitted.kind == "whitened" and standardise:
        a = fitted.white(anchors)
        directions = (a / a.norm(dim=1, keepdim=True).clamp_min(1e-30)).T * gain
        return WhiteCosines(*ready(fitted.centre, fitted.root, directions, offset))
    shift, matrix = fitted.affine(anchors)
    if fitted.is_cosine and standardise:
        return Cosines(*ready(shift, matrix * gain, offset))
    if fitted.kind in ("cosine", "gamma") and not standardise:
        return Linear(*ready(matrix))
    return Affine(*ready(shift, matrix * gain, offset))


def directions(rows: Tensor, mixture: Tensor) -> Tensor:
    """Anchors (m, d) that are mixtures (m, K) of a side's rows, as an alignment has them: of norm 1, on the CPU."""
    from relcore.ops.neighbors import unit_rows

    return unit_rows(mixture @ rows.double()).cpu()


def as_map(encode: Any) -> Any:
    """An encoder as a snapshot has it."""
    return encode.matrix if isinstance(encode, Linear) else encode
