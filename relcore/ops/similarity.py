"""Similarities of rows to anchors, each fitted on rows of one space: what a relative representation is made of.

    s = fit("wip", support, ridge=ridge_of(0.01))    # mean, spectrum: from the rows of one space
    s(v, anchors)                                     # (n, m) float32, in chunks of rows, float64 inside

===========  ========================================================================================================
cosine       cos(v, a)
centred      cos(v - mu, a - mu), mu the mean of the rows fitted on
wip          the whitened inner product ``(v - mu)' S^-1 (a - mu)``, S their covariance plus a ridge
whitened     the cosine that belongs to that product
mahalanobis  the distance that belongs to it, negative
euclidean    the distance, negative
gamma        ``v' (M + ridge mean(eig) I)^(-gamma / 2) a``, M their second moment: :mod:`relcore.ops.relative`, one side
kernel       wip in the feature space of a Gaussian kernel on whitened rows: :class:`KernelLeftOut`
===========  ========================================================================================================

Cosine sees no rotation and no scale, centred cosine no shift either, Euclidean neither rotation nor shift. WIP without
a ridge sees no invertible affine map at all: under v -> L v + b the covariance becomes L S L', and L cancels. A ridge
of S in units of its mean eigenvalue leaves rotation, shift and scale unseen, and the rest only nearly. The larger the
condition number of L, the less (measured in tests/ops/test_similarity.py).

Shrinkage lambda is ``(1 - lambda) S + lambda mean(eig) I``; here it is the ridge ``lambda / (1 - lambda)``, which is
the same but for a factor 1 / (1 - lambda) that would set spaces of different lambda apart.

Sources: Moschella et al., ICLR 2023, section 3 (cosine); Svendsen et al., arXiv 2605.30596 (WIP, in words; the formula
is fixed by its invariance); Cannistraci et al., arXiv 2310.01211 (Euclidean). Kernel WIP is ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import NamedTuple

import torch
from torch import Tensor

from relcore.ops.neighbors import partner_rank
from relcore.ops.relative import CLIP, Side

KINDS = ("cosine", "centred", "wip", "whitened", "mahalanobis", "euclidean", "gamma")  # of :func:`fit`
WHITE = ("wip", "whitened", "mahalanobis")
RANK = 1e-11  # of the largest eigenvalue of the covariance: below it a direction is rounding
TINY = 1e-30
BLOCK_ELEMENTS = 1 << 22  # float64 numbers of a chunk of rows and its similarities
JUDGED = 500  # rows that a ridge is chosen on, at most
GRID = (1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0)  # ridges that leave-one-out chooses from
KERNEL_GRID = (1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # of the kernel's own


def ridge_of(shrinkage: float) -> float:
    """The ridge, in units of the mean eigenvalue, of a shrinkage lambda from 0 to below 1."""
    if not 0 <= shrinkage < 1:
        raise ValueError(f"shrinkage is {shrinkage}, wanted 0 to below 1.")
    return shrinkage / (1 - shrinkage)


class Spectrum(NamedTuple):
    """Covariance of K rows: mean (d,), axes (d, r) orthonormal, values (r,) descending, all above rounding; float64.

    ``scale`` is its trace over d, the mean of all d eigenvalues.
    """

    mean: Tensor
    axes: Tensor
    values: Tensor
    scale: float

    @property
    def rank(self) -> int:
        return len(self.values)


def spectrum(rows: Tensor) -> Spectrum:
    """Mean and covariance (divisor K - 1) of rows (K, d), decomposed in float64 on their smaller side.

    Raises
    ------
    ValueError
        Fewer than two rows, NaN or infinite numbers, or all rows alike.
    """
    if rows.ndim != 2 or len(rows) < 2:
        raise ValueError(f"a covariance needs a table of at least two rows, got {tuple(rows.shape)}.")
    bad = torch.nonzero(~torch.isfinite(rows).all(1))
    if len(bad):
        raise ValueError(f"row {int(bad[0])} holds NaN or infinite numbers; a covariance has no place for them.")
    v = rows.double()
    mean = v.mean(0)
    v = v - mean
    count, dim = v.shape
    wide = count <= dim
    values, axes = torch.linalg.eigh((v @ v.T if wide else v.T @ v) / (count - 1))
    scale = float(values.clamp_min(0).sum() / dim)
    # a mean of equal numbers is off by a rounding, which is no variance
    if scale <= (1e-14 * float(rows.abs().max())) ** 2:
        raise ValueError(f"all {count} rows are alike; their covariance is zero.")
    kept = values > RANK * values[-1]
    values, axes = values[kept].flip(0), axes[:, kept].flip(1)
    if wide:
        axes = v.T @ axes / (values * (count - 1)).sqrt()
    return Spectrum(mean, axes, values, scale)


@dataclass(frozen=True, eq=False)
class Similarity:
    """A similarity as fitted on rows of one space. Call it on rows of that space and anchors in it.

    Attributes
    ----------
    kind : one of :data:`KINDS`.
    centre : (d,) float64, what is subtracted from rows and anchors; zero where nothing is.
    root : (d, r) float64, ``root root'`` is the metric of the inner product; None where that is the identity.
    rank : of the rows fitted on, less their mean (whitened kinds); 0 where the similarity does not ask.
    condition : largest over smallest eigenvalue of what was inverted; 1 where nothing was.
    """

    kind: str
    centre: Tensor
    root: Tensor | None = None
    rank: int = 0
    condition: float = 1.0

    def __call__(self, v: Tensor, anchors: Tensor, *, block: int | None = None) -> Tensor:
        """Similarities (n, m), float32, of rows (n, d) to anchors (m, d). ``block`` rows at a time.

        A row, or an anchor, of norm 0 has cosine 0 to everything.
        """
        a = self.white(anchors) if self.is_distance else self._anchors(anchors)
        block = block or max(1, BLOCK_ELEMENTS // (v.shape[1] + len(anchors)))
        out = torch.empty(len(v), len(anchors), device=v.device)
        for start in range(0, len(v), block):
            rows = v[start : start + block]
            if self.is_distance:
                seen = -torch.cdist(self.white(rows), a, compute_mode="donot_use_mm_for_euclid_dist")
            else:
                rows = rows.double() - self.centre
                seen = (rows / self._norm(rows) if self.is_cosine else rows) @ a.T
            out[start : start + block] = seen
        return out

    @property
    def is_cosine(self) -> bool:
        return self.kind in ("cosine", "centred", "whitened")

    @property
    def is_distance(self) -> bool:
        return self.kind in ("euclidean", "mahalanobis")

    def _norm(self, rows: Tensor) -> Tensor:
        """What a cosine divides a centred row by (n, 1)."""
        white = rows if self.root is None else rows @ self.root
        return torch.linalg.vector_norm(white, dim=1, keepdim=True).clamp_min(TINY)

    def white(self, v: Tensor) -> Tensor:
        """Rows in coordinates whose inner product is the similarity (but for norms), float64: (n, r)."""
        rows = v.double() - self.centre
        return rows if self.root is None else rows @ self.root

    def affine(self, anchors: Tensor) -> tuple[Tensor, Tensor]:
        """shift (d,) and matrix (d, m), float64: ``(v - shift) matrix`` are the similarities; for the cosines, times
        the norm of ``v - shift``, whitened where the cosine is.

        Raises
        ------
        ValueError
            A distance is no linear function of the row.
        """
        if self.is_distance:
            raise ValueError("a distance is no linear function of the row.")
        return self.centre, self._anchors(anchors).T.contiguous()

    def _anchors(self, anchors: Tensor) -> Tensor:
        """Anchors as the rows (m, d) that a centred row is multiplied with, or is compared to."""
        a = anchors.double() - self.centre
        if self.is_cosine:
            a = a / self._norm(a)
        return a if self.root is None else (a @ self.root) @ self.root.T


def fit(kind: str, rows: Tensor, *, ridge: float = 0.0, gamma: float = 1.0) -> Similarity:
    """Fit a similarity on rows (K, d) of one space; never on rows that are to judge it.

    Parameters
    ----------
    ridge : of the whitened kinds and gamma, in units of the mean eigenvalue. The former need rows of full rank where
        there is none. Directions the rows do not vary in are left out: anchors that are mixtures of the rows have no
        part in them, so that this changes no whitened inner product with such an anchor. A whitened length or distance
        is that within the rows' span; outside, nothing is known of the variance.
    gamma : of the gamma profile: 0 the plain inner product, 1 evens out half of the spectrum, 2 all of it.

    Raises
    ------
    ValueError
        No such kind; rows that have no covariance (:func:`spectrum`); whitening without a ridge of rows of lower rank.
    """
    if kind not in KINDS:
        raise ValueError(f"there is no similarity {kind!r}; choose one of {', '.join(KINDS)}.")
    dim = rows.shape[1]
    zero = torch.zeros(dim, dtype=torch.float64, device=rows.device)
    if kind in ("cosine", "euclidean"):
        return Similarity(kind, zero)
    if kind == "centred":
        return Similarity(kind, rows.double().mean(0))
    if kind == "gamma":
        v = rows.double()
        values, axes = torch.linalg.eigh(v.T @ v / len(v))
        side = Side(axes, values.clamp_min(0))
        powers = side.power(gamma / 2, ridge, CLIP)  # its square is the metric
        return Similarity(kind, zero, axes * powers, condition=float((powers[0] / powers[-1]) ** 2))
    s = spectrum(rows)
    if ridge == 0 and s.rank < dim:
        still = torch.nonzero((rows == rows[0]).all(0))[:, 0].tolist()
        why = f"column {still[0]} is constant" if still else f"{len(rows)} rows span {s.rank} of {dim} dimensions"
        raise ValueError(f"the covariance is singular ({why}); whitening needs a shrinkage above 0 here.")
    return whitened(s, ridge, kind)


def whitened(s: Spectrum, ridge: float, kind: str = "wip") -> Similarity:
    """The whitened inner product, or its cosine or distance, of a space whose spectrum is known; see :func:`fit`."""
    raised = s.values + ridge * s.scale
    return Similarity(kind, s.mean, s.axes / raised.sqrt(), s.rank, float(raised[0] / raised[-1]))


class Regression:
    """A ridge regression of anchors' weights on support rows, seen row by row as if that row had been left out.

    Attributes
    ----------
    count : K. scores : (K, r) float64, orthonormal columns, each of mean 0. values : (r,), above 0, what the ridge is
        held against, and ``scale`` what it counts in.
    """

    count: int
    scores: Tensor
    values: Tensor
    scale: float

    def share(self, ridge: float) -> Tensor:
        """What is left of each score under a ridge (r,)."""
        return self.values / (self.values + ridge * self.scale)

    def predict(self, mixture: Tensor | None, ridge: float, rows: Tensor | None = None) -> Tensor:
        """WIP over K - 1, float64 (b, m), of each of the rows to anchors (m, K), by all other rows.

        It predicts the weights of the anchors at the row, less their mean over the other rows. ``mixture`` None: every
        support row is an anchor. ``rows`` None: all K.
        """
        k, share = self.count, self.share(ridge)
        at = slice(None) if rows is None else rows
        leverage = (self.scores[at] ** 2 @ share + 1 / k).clamp_max(1 - 1e-9)[:, None]
        if mixture is None:  # the scores are centred: so are the weights they predict
            inner = self.scores.T
            own = torch.full((len(leverage), k), -1 / k, dtype=torch.float64, device=inner.device)
            number = torch.arange(k, device=inner.device)[at]
            own[torch.arange(len(leverage), device=inner.device), number] += 1
        else:
            own = mixture.double().T[at] - 1 / k
            inner = self.scores.T @ mixture.double().T
        fitted = self.scores[at] @ (share[:, None] * inner)
        return (fitted - leverage * own) / (1 - leverage) + own / (k - 1)


class LeftOut(Regression):
    """What WIP says of each support row by all the others: a ridge regression left out row by row, in closed form.

    With anchors ``P @ rows`` and the covariance of the same K rows, WIP is K - 1 times the slope part of a ridge
    regression of the anchors' weights on the row. So its value at a row that had no part in mean, covariance and
    anchors follows from the row's leverage, for any ridge, from one decomposition. The regression's intercept, the mean
    weight of the others, is no part of WIP and must not be one here: it is the same in every space and names the row.

    Parameters
    ----------
    rows : (K, d), a support set.
    """

    def __init__(self, rows: Tensor) -> None:
        self.spectrum = s = spectrum(rows)
        self.count = len(rows)
        self.values, self.scale = s.values, s.scale
        self.scores = (rows.double() - s.mean) @ s.axes / (s.values * (self.count - 1)).sqrt()

    def white(self, ridge: float) -> Tensor:
        """The support rows in whitened coordinates (K, r), float64, as :meth:`Similarity.white` has them."""
        s = self.spectrum
        return self.scores * ((self.count - 1) * s.values / (s.values + ridge * s.scale)).sqrt()


class KernelLeftOut(Regression):
    """Kernel WIP of a support set: the regression that WIP is, with a Gaussian kernel on whitened rows.

    ``k(v, w) = exp(-|z_v - z_w|^2 / (2 w))``, z whitened rows and w their mean squared norm over the support, which
    without a ridge is the dimension. With K_c the support's kernel matrix, centred, and P_c the anchors' weights less
    their mean, kernel WIP is ``(K - 1) k_c(v) (K_c + ridge mean(eig) I)^-1 P_c'``; a linear kernel makes it WIP.

    Mean, covariance and width are those of all K rows: what is left out of :meth:`predict` is a row's part in the
    regression alone.

    float64, and of K x K numbers: the decomposition takes about ``40 K^2`` bytes, 1 GB at K = 5,000, and what is kept
    ``8 K^2``. The time grows as K^3: about half a minute a side there, on one core.

    Parameters
    ----------
    rows : (K, d), a support set, or what is known of it.
    white : the ridge that rows are whitened with, in units of the covariance's mean eigenvalue.
    """

    def __init__(self, rows: Tensor | LeftOut, white: float) -> None:
        known = rows if isinstance(rows, LeftOut) else LeftOut(rows)
        s, self.count = known.spectrum, known.count
        width = float(known.share(white).sum()) * (self.count - 1) / self.count
        self.origin = s.mean
        self.root = s.axes / (s.values + white * s.scale).sqrt() / math.sqrt(2 * width)
        self.points = known.white(white) / math.sqrt(2 * width)
        kernel = gaussian(self.points, self.points)
        self.mean = kernel.mean(0)
        kernel -= self.mean[:, None]
        kernel -= self.mean - self.mean.mean()
        self.scale = float(kernel.diagonal().mean())
        values, vectors = torch.linalg.eigh(kernel)
        kept = values > RANK * values[-1]
        self.values, self.scores = values[kept].flip(0), vectors[:, kept].flip(1)

    def similarity(self, mixture: Tensor | None, ridge: float) -> Kernel:
        """Kernel WIP to the anchors of a mixture (m, K), or to every support row."""
        inner = self.scores.T if mixture is None else self.scores.T @ mixture.double().T
        dual = (self.count - 1) * (self.scores / (self.values + ridge * self.scale)) @ inner
        dual -= dual.mean(0)  # 0 but for rounding; it stands for the centring of k(v)
        return Kernel(self.origin, self.root, self.points, dual, -self.mean @ dual)


@dataclass(frozen=True, eq=False)
class Kernel:
    """``v -> k(v) dual + offset``: kernel WIP to the anchors it was made for.

    Attributes
    ----------
    origin : (d,). root : (d, r), rows ``(v - origin) root`` have the kernel ``exp(-|z - z'|^2)``. points : (K, r), the
        support rows so. dual : (K, m), of columns of sum 0. offset : (m,). All float64.
    """

    origin: Tensor
    root: Tensor
    points: Tensor
    dual: Tensor
    offset: Tensor

    kind = "kernel"

    def __call__(self, v: Tensor, *, block: int | None = None) -> Tensor:
        """Similarities (n, m), float32, of rows (n, d), ``block`` at a time."""
        block = block or max(1, BLOCK_ELEMENTS // sum(self.dual.shape))
        out = torch.empty(len(v), len(self.offset), device=v.device)
        for start in range(0, len(v), block):
            rows = (v[start : start + block].double() - self.origin) @ self.root
            out[start : start + block] = gaussian(rows, self.points) @ self.dual + self.offset
        return out


def gaussian(a: Tensor, b: Tensor) -> Tensor:
    """``exp(-|a - b|^2)`` (n, m) of rows (n, r) and (m, r), float64."""
    out = torch.mm(a, b.T).mul_(2)
    out -= (a**2).sum(1)[:, None]
    out -= (b**2).sum(1)
    return out.clamp_max_(0).exp_()


def leave_one_out(rows: Tensor | Regression, mixture: Tensor, grid: Sequence[float] = GRID) -> tuple[float, Tensor]:
    """The ridge under which the anchors' weights are predicted best at rows left out, and how well.

    No labels and no second space. What is predicted best within a space need not be what two spaces agree on:
    :func:`agreed_ridge`.

    Parameters
    ----------
    rows : (K, d), or what is known of them. mixture : (m, K), rows that sum to 1.

    Returns
    -------
    The ridge of the grid, and R^2 (m,) float64 of each anchor at it: about 0, or below, for an anchor that cannot be
    told from the row, as a single random row mostly is. Uniform weights have R^2 0.
    """
    left_out = rows if isinstance(rows, Regression) else LeftOut(rows)
    count = left_out.count
    weights = mixture.double().T - 1 / count
    norm = torch.linalg.vector_norm(weights, dim=0)
    weights = weights / norm.clamp_min(TINY)
    best: tuple[float, Tensor] | None = None
    for ridge in grid:
        slopes = left_out.predict(mixture, ridge) / norm.clamp_min(TINY)
        error = ((weights + weights / (count - 1) - slopes) ** 2).sum(0)
        fitted = torch.where(norm > 1e-12, 1 - error, 0.0)
        if best is None or fitted.mean() > best[1].mean():
            best = (ridge, fitted)
    return best


class Agreement(NamedTuple):
    """``ridge`` that was chosen; ``found``, the MRR at each ridge of the grid; ``judged``, among how many rows."""

    ridge: float
    found: dict[float, float]
    judged: int

    @property
    def mrr(self) -> float:
        """At the ridge chosen."""
        return self.found[self.ridge]

    @property
    def above_chance(self) -> float:
        """How many standard errors the MRR lies above that of rows in random order, for which ranks are uniform."""
        ranks = 1 / torch.arange(1, self.judged + 1, dtype=torch.float64)
        error = float(ranks.std(correction=0)) / math.sqrt(self.judged)
        return (self.mrr - float(ranks.mean())) / max(error, TINY)


def agreed_ridge(
    supports: Sequence[Tensor | Regression],
    mixture: Tensor | None = None,
    grid: Sequence[float] = GRID,
    judged: int = JUDGED,
) -> Agreement:
    """The ridge under which spaces agree best on rows left out: where a row finds its own partner by WIP.

    On real encoders this matters more than the choice of anchors (benchmarks/param.py): directions of little variance
    are mostly noise there, and whitening blows them up.

    Parameters
    ----------
    supports : of two or more spaces, parallel rows (K, d_i), or what is known of them; of :class:`KernelLeftOut` it is
        the kernel's own ridge that is chosen.
    mixture : (m, K) of the anchors; by default every support row is one.
    judged : the figure is read on so many of the K rows, evenly spaced, where there are more.

    Returns
    -------
    The ridge of the grid and the MRR at each, by cosine, of partners among the rows judged, each described as if left
    out; a mean over ordered pairs of spaces. Of equal MRR the middle ridge.
    """
    left_out = [s if isinstance(s, Regression) else LeftOut(s) for s in supports]
    count, device = left_out[0].count, left_out[0].scores.device
    rows = torch.linspace(0, count - 1, min(judged, count), device=device).round().long()
    own = torch.arange(len(rows), device=device)
    found = {}
    for ridge in grid:
        seen = [s.predict(mixture, ridge, rows).float() for s in left_out]
        ranks = [partner_rank(a, b, own, own) for a, b in permutations(seen, 2)]
        found[ridge] = sum(float((1 / r.double()).mean()) for r in ranks) / len(ranks)
    best = [ridge for ridge in sorted(found) if found[ridge] == max(found.values())]
    return Agreement(best[(len(best) - 1) // 2], found, len(rows))
