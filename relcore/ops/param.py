"""Anchors as mixtures of support rows: learned by gradient (PARAM), or in closed form (generalised CCA).

    training = Training([xw, yw], anchors=32, start=start, steps=150, generator=generator)
    for losses in training:
        ...                                 # step, total loss and its terms
    training.mixture                        # P (m, K): one for all spaces

A support set is K rows that every space has, in one order. An anchor is a mixture of them, ``P @ support``, with one P,
of rows that are not negative and sum to 1, for every space. A space that had no part in the training gets its anchors
from its own K rows: that is all it needs. So any number of spaces train, and any number attach (Algorithm 1)::

    shared = share([support_a, support_b], "param", anchors=128, steps=150, generator=generator)
    similarity, anchors = attach(support_c, shared)
    rr = similarity(rows_of_c, anchors)

Everything here works in whitened coordinates, where the whitened inner product is the inner product.

Source: Svendsen, Jakobsen, Mager, Nassar, "Improving Relative Representations with Learned Anchors and Whitened Inner
Products", arXiv 2605.30596 (PARAM). The losses' names and aims are the paper's, their formulas and weights ours: the
paper's table of hyper-parameters and its appendix were not to be had. Generalised CCA (MAXVAR): Kettenring 1971.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from relcore.ops.kmeans import kmeans
from relcore.ops.similarity import Agreement, LeftOut, Similarity, agreed_ridge, fit

TINY = 1e-12


class Losses(NamedTuple):
    """Terms of the loss, each a mean over spaces or over pairs of spaces, as scalars; and the step they belong to."""

    step: int
    total: float
    coverage: float
    orthogonality: float
    length: float
    infonce: float


class Weights(NamedTuple):
    """What the terms of the loss count, and their own parameters."""

    coverage: float = 1.0
    orthogonality: float = 0.03
    length: float = 0.1
    infonce: float = 2.0
    softness: float = 0.1  # temperature of coverage, in squared whitened distances over d
    norm: float = 0.5  # length aimed at, in roots of d
    temperature: float = 0.1  # of InfoNCE


def coverage(rows: Tensor, anchors: Tensor, softness: float) -> Tensor:
    """Soft k-means: mean squared distance over d of rows (b, d) to anchors (m, d), each row's weighed by softmax."""
    squares = (rows**2).sum(1, keepdim=True) - 2 * rows @ anchors.T + (anchors**2).sum(1)
    distance = squares / rows.shape[1]
    return ((-distance / softness).softmax(1) * distance).sum(1).mean()


def orthogonality(anchors: Tensor) -> Tensor:
    """Mean squared cosine between two different anchors (m, d), times min(m, d): about 1 for random ones.

    With m > d it cannot fall below (m - d) / (m - 1), which is Welch's bound.
    """
    m, d = anchors.shape
    if m < 2:
        return anchors.new_zeros(())
    unit = normalize(anchors, dim=1)
    gram = unit @ unit.T if m <= d else unit.T @ unit  # of one Frobenius norm
    return ((gram**2).sum() - (unit**2).sum(1).square().sum()) / (m * (m - 1)) * min(m, d)


def length(anchors: Tensor, norm: float) -> Tensor:
    """Mean squared deviation of the norms of anchors (m, d) from ``norm`` roots of d, in such units."""
    d = anchors.shape[1]
    return ((anchors.norm(dim=1) / (norm * math.sqrt(d)) - 1) ** 2).mean()


def infonce(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """Symmetric InfoNCE of parallel rows (b, m) by cosine."""
    scores = normalize(first, dim=1) @ normalize(second, dim=1).T / temperature
    own = torch.arange(len(first), device=first.device)
    return (cross_entropy(scores, own) + cross_entropy(scores.T, own)) / 2


class Support(NamedTuple):
    """A whitened support set: rows (K, r), and of each its leverage (K,), how much of its prediction it is itself."""

    rows: Tensor
    leverage: Tensor

    @classmethod
    def of(cls, white: Tensor) -> Support:
        k = len(white)
        leverage = (white.double() ** 2).sum(1) / (k - 1) + 1 / k
        return cls(white.float(), leverage.clamp_max(1 - 1e-4).float())

    def relative(self, mixture: Tensor, anchors: Tensor, rows: Tensor) -> Tensor:
        """Relative representation (b, m) of support rows, each as if it had no part in covariance, mean and anchors.

        The whitened inner product is K - 1 times a regression of the mixture's weights; this is its prediction of a
        row left out. With the row left in, as K comes near d, every row is told from all others by its own weight in
        the anchors, and nothing is learned that holds for another row.
        """
        k = len(self.rows)
        h = self.leverage[rows, None]
        own = mixture[:, rows].T - 1 / k
        return (self.rows[rows] @ anchors.T - (k - 1) * h * own) / (1 - h) + own


class Training:
    """Iterate over it to train; :attr:`mixture` is that of the latest step, number :attr:`done`.

    Parameters
    ----------
    supports : for each space that trains, its whitened support rows (K, r_i), on the device to train on. With one space
        InfoNCE has no part (PARAM Single), with more it has (PARAM Multi).
    start : (m, K) mixture to start from, such as the averages of k-means clusters.
    steps, learning_rate : of Adam; the rate falls as a cosine, to a twentieth.
    batch : support rows that a step looks at.
    left_out : rows are seen as if left out of the support (:meth:`Support.relative`).
    gain : what the largest weight of a row of ``start`` is in logits above a weight of zero.
    generator : CPU generator.

    Raises
    ------
    ValueError
        No space, supports of different numbers of rows, or a start for another number.
    FloatingPointError
        While iterating: the loss became NaN or infinite. The mixture is that of the step before.
    """

    def __init__(
        self,
        supports: Sequence[Tensor],
        start: Tensor,
        *,
        steps: int,
        generator: torch.Generator,
        weights: Weights | None = None,
        learning_rate: float = 0.05,
        batch: int = 256,
        left_out: bool = True,
        gain: float = 5.0,
    ) -> None:
        sizes = [len(s) for s in supports]
        if not sizes or len(set(sizes)) > 1 or start.shape[1] != sizes[0]:
            raise ValueError(f"one support set in every space, got {sizes} rows and a start for {start.shape[1]}.")
        self.supports = [Support.of(s) for s in supports]
        self.steps, self.learning_rate, self.batch, self.left_out = steps, learning_rate, min(batch, sizes[0]), left_out
        self.generator, self.weights, self.done = generator, weights or Weights(), 0
        noise = 0.01 * torch.randn(start.shape, generator=generator)
        peak = start.amax(1, keepdim=True).clamp_min(TINY)
        self._logits = (gain * (start / peak).float() + noise.to(start.device)).to(supports[0].device)
        self._logits.requires_grad_()

    @property
    def mixture(self) -> Tensor:
        """(m, K) float64, not negative, of row sums 1."""
        return self._logits.detach().double().softmax(1)

    def relative(self) -> list[Tensor]:
        """Relative representations (K, m) of the support rows in every space, each row as if left out."""
        every = torch.arange(len(self.supports[0].rows), device=self._logits.device)
        mixture = self._logits.detach().softmax(1)
        return [s.relative(mixture, mixture @ s.rows, every) for s in self.supports]

    def __iter__(self) -> Iterator[Losses]:
        count = len(self.supports[0].rows)
        first, second = torch.zeros_like(self._logits), torch.zeros_like(self._logits)
        for step in range(1, self.steps + 1):
            rows = torch.randperm(count, generator=self.generator)[: self.batch].to(self._logits.device)
            terms = self._terms(rows)
            total = sum(weight * term for weight, term in zip(self.weights[:4], terms, strict=True))
            (gradient,) = torch.autograd.grad(total, self._logits)
            found = [t.item() for t in (total, *terms)]
            if not all(map(math.isfinite, found)) or not torch.isfinite(gradient).all():
                names = ("loss", *Losses._fields[2:])
                bad = next((f"{n} became {v}" for n, v in zip(names, found, strict=True) if not math.isfinite(v)), "")
                raise FloatingPointError(f"{bad or 'the gradient became NaN'} at step {step}")
            # Adam by hand: torch.optim takes a second to load
            first.mul_(0.9).add_(gradient, alpha=0.1)
            second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            falling = 0.05 + 0.95 * (1 + math.cos(math.pi * (step - 1) / self.steps)) / 2
            with torch.no_grad():
                move = first / (1 - 0.9**step) / ((second / (1 - 0.999**step)).sqrt() + 1e-8)
                self._logits.sub_(move, alpha=self.learning_rate * falling)
            self.done = step
            yield Losses(step, *found)

    def _terms(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Coverage, orthogonality, length and InfoNCE of the support rows, means over spaces."""
        w, mixture = self.weights, self._logits.softmax(1)
        anchors = [mixture @ s.rows for s in self.supports]
        each = len(anchors)
        terms = [
            sum(coverage(s.rows[rows], a, w.softness) for s, a in zip(self.supports, anchors, strict=True)) / each,
            sum(map(orthogonality, anchors)) / each,
            sum(length(a, w.norm) for a in anchors) / each,
            mixture.new_zeros(()),
        ]
        if each > 1:
            if self.left_out:
                seen = [s.relative(mixture, a, rows) for s, a in zip(self.supports, anchors, strict=True)]
            else:
                seen = [s.rows[rows] @ a.T for s, a in zip(self.supports, anchors, strict=True)]
            pairs = list(combinations(seen, 2))
            terms[3] = sum(infonce(a, b, w.temperature) for a, b in pairs) / len(pairs)
        return tuple(terms)


def generalised_cca(supports: Sequence[Tensor], anchors: int) -> tuple[Tensor, Tensor]:
    """Mixtures whose anchors are the directions that all spaces share best: PARAM Multi's aim in closed form.

    MAXVAR generalised canonical scores g of the whitened supports, as rows ``(1 + c g) / K``: with c small enough they
    are not negative and sum to 1, and the anchors ``P @ support`` are those of the scores but for their length. Lengths
    follow the correlation between spaces of a score as predicted at rows left out, so that a direction that only seems
    to be shared counts less. Not nothing: the score itself was found with all rows, and of noise of 60 dimensions on
    both sides the first has .9 at K = 100, .65 at K = 300. :func:`agreed_ridge` without a mixture tells pairs from
    others.

    Parameters
    ----------
    supports : whitened support rows (K, r_i) of each space, centred.
    anchors : at most so many; no more than K - 1 and the ranks together.

    Returns
    -------
    mixture (m, K) float64, and the correlation (m,) of each score's predictions between spaces, a mean over their
    pairs, at least 0; with one space, with the score itself.
    """
    k = len(supports[0])
    if len({len(s) for s in supports}) > 1:
        raise ValueError(f"one support set in every space, got {[len(s) for s in supports]} rows.")
    sides = [s.double() - s.double().mean(0) for s in supports]
    z = torch.cat(sides, 1)
    wide = k <= z.shape[1]
    values, vectors = torch.linalg.eigh(z @ z.T if wide else z.T @ z)
    kept = min(anchors, k - 1, int((values > 1e-10 * values[-1]).sum()))
    values, vectors = values.flip(0)[:kept], vectors.flip(1)[:, :kept]
    scores = (vectors if wide else z @ vectors / values.sqrt()) * math.sqrt(k)  # mean 0, variance 1
    scores = scores * torch.where((scores**3).sum(0) < 0, -1.0, 1.0)  # one sign of the two, whatever the coordinates
    seen = []
    for side in sides:
        h = ((side**2).sum(1) / (k - 1) + 1 / k).clamp_max(1 - 1e-9)[:, None]
        seen.append((side @ (side.T @ scores) / (k - 1) - h * scores) / (1 - h))
    # what a side cannot predict it predicts against the score when left out, and so do the others: that is no agreement
    predicted = [correlation(a, scores) > 0 for a in seen]
    pairs = list(combinations(zip(seen, predicted, strict=True), 2)) or [((seen[0], predicted[0]), (scores, True))]
    told = [torch.where(p & q, correlation(a, b), 0.0) for (a, p), (b, q) in pairs]
    shared = (sum(told) / len(told)).clamp_min(0)
    room = 1 / (-scores.amin(0)).clamp_min(TINY)
    return (1 + room.min() * shared[:, None] * scores.T) / k, shared


def correlation(a: Tensor, b: Tensor) -> Tensor:
    """Correlation (m,) of the columns of (K, m) with those of another such table; 0 where one is constant."""
    a, b = a - a.mean(0), b - b.mean(0)
    return (a * b).sum(0) / (a.norm(dim=0) * b.norm(dim=0)).clamp_min(TINY)


def cluster_averages(rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """The mixture (count, K) float64 whose anchors are averages of k-means clusters of rows (K, d); count is 1 to K."""
    seed = int(torch.randint(2**62, (), generator=generator))
    _, label = kmeans(rows.double().cpu().numpy(), count, np.random.default_rng(seed))
    mixture = torch.zeros(count, len(rows), dtype=torch.float64)
    mixture[torch.from_numpy(label), torch.arange(len(rows))] = 1
    return (mixture / mixture.sum(1, keepdim=True)).to(rows.device)


class Shared(NamedTuple):
    """What spaces have in common once anchors are found: all that another space needs beside its own support rows.

    Attributes
    ----------
    mixture : (m, K) float64, not negative, of row sums 1.
    ridge : of the whitened inner product, in units of the mean eigenvalue, for every space.
    agreement : of the spaces that trained, at seeds left out; None where one trained or the ridge was given.
    """

    mixture: Tensor
    ridge: float
    agreement: Agreement | None


WAYS = ("param", "cca", "kmeans")


def share(
    supports: Sequence[Tensor],
    how: str = "param",
    *,
    anchors: int,
    generator: torch.Generator,
    ridge: float | None = None,
    **training,
) -> Shared:
    """Anchors for any number of spaces (Algorithm 1 of PARAM, steps 1 and 2); :func:`attach` is for each space then.

    Parameters
    ----------
    supports : of each space that trains, its K support rows (K, d_i), as they are; row for row the same things. One
        space alone trains without InfoNCE (PARAM Single), has ordinary principal directions (cca) or clusters. A space
        that is to be held out is simply not given.
    how : ``param``, learned; ``cca``, in closed form; ``kmeans``, averages of clusters of the first space.
    anchors : 1 to K; more than the dimensions of a space are allowed and add no rank there.
    ridge : None lets two or more spaces agree on one; one space alone needs it.
    training : further arguments of :class:`Training`, ``steps`` among them.

    Raises
    ------
    ValueError
        Supports that are not parallel or have no covariance, an unknown way, anchors out of range, no ridge.
    FloatingPointError
        The loss of PARAM became NaN or infinite.
    """
    if how not in WAYS:
        raise ValueError(f"there is no way {how!r} of finding anchors; choose one of {', '.join(WAYS)}.")
    sizes = [len(s) for s in supports]
    if not sizes or len(set(sizes)) > 1 or not 1 <= anchors <= sizes[0]:
        raise ValueError(f"one support set in every space and 1 to K anchors; got {sizes} rows and {anchors} anchors.")
    if ridge is None and len(supports) < 2:
        raise ValueError("one space has nobody to agree on a ridge with; give one.")
    known = [LeftOut(s) for s in supports]
    agreement = agreed_ridge(known) if ridge is None else None
    chosen = ridge if agreement is None else agreement.ridge
    white = [k.white(chosen) for k in known]
    if how == "cca":
        mixture, shared = generalised_cca(white, anchors)
        mixture = mixture[shared > 0] if bool((shared > 0).any()) else mixture[:1]
    else:
        mixture = cluster_averages(white[0], anchors, generator)
    if how == "param":
        learning = Training(white, mixture, generator=generator, **training)
        for _ in learning:
            pass
        mixture = learning.mixture
    elif agreement is not None:  # few anchors, not made of pairs, want less whitening; canonical ones more
        chosen = agreed_ridge(known, mixture).ridge
    return Shared(mixture, chosen, agreement)


def attach(support: Tensor, shared: Shared) -> tuple[Similarity, Tensor]:
    """A space's similarity and its anchors (m, d), float64: ``similarity(rows, anchors)`` are their representation.

    Parameters
    ----------
    support : (K, d), the space's own rows of the support, in its order; the space need not have trained.

    Raises
    ------
    ValueError
        A support of another number of rows, or without a covariance.
    """
    if len(support) != shared.mixture.shape[1]:
        raise ValueError(
            f"{len(support)} support rows, wanted {shared.mixture.shape[1]}, as in the spaces that trained."
        )
    return fit("wip", support, ridge=shared.ridge), shared.mixture.to(support.device) @ support.double()


def one_row_each(rows: Sequence[int] | Tensor, count: int) -> Tensor:
    """The mixture (m, count) float64 whose anchors are support rows themselves."""
    rows = torch.as_tensor(rows)
    mixture = torch.zeros(len(rows), count, dtype=torch.float64)
    mixture[torch.arange(len(rows)), rows] = 1
    return mixture


def effective_rows(mixture: Tensor) -> float:
    """Mean over anchors of 1 / sum P^2: of how many rows an anchor is the average, in effect."""
    return float((1 / (mixture**2).sum(1)).mean())
