"""Relative representations: rows described by their similarities to anchors, plain or evened out by their spectrum.

    moments = Moments(anchors_x, anchors_y)      # decompositions, once
    profile = moments.profile(gamma=1.5, ridge=1.5)
    profile.factors_x(x) @ profile.factors_y(y).T   # cosines of profiles, of width min(d_x, d_y, N)

The profile of a row is ``r(x) = A (M + ridge mean(eig) I)^(-gamma / 2) x`` with ``M = A'A / N``: its similarities to N
anchors, in coordinates that the anchors' own second moment has evened out. gamma 0 is the relative representation,
gamma 1 leaves lengths among the anchors' span as they are, gamma 2 evens all directions out (canonical correlations).
The cosine of two profiles is bilinear in the rows but for their norms, hence of the rank of the smaller side: the
profiles themselves, of width N, need not be made.

Sources: Moschella et al., "Relative representations enable zero-shot latent space communication", ICLR 2023, section 3
(gamma 0); the family in gamma is AnchorDOT's, there with eigenvalues clipped at 1e-6 of their mean. The ridge is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from relcore.ops.neighbors import TINY, unit_rows

CLIP = 1e-6  # of the mean eigenvalue
RANK = 1e-6  # of the largest singular value of the anchors: below it a direction is rounding


def relative(v: Tensor, anchors: Tensor) -> Tensor:
    """Cosine relative representation (n, k) of rows (n, d) by anchors (k, d), float32.

    Source: Moschella et al., ICLR 2023, section 3.
    """
    return unit_rows(v) @ unit_rows(anchors).T


@dataclass(frozen=True, eq=False)
class Profile:
    """The gamma profile of both sides, for rows of any number.

    Attributes
    ----------
    map_x, map_y : (d_x, w), (d_y, w), w = min(N, d_x + d_y): ``x @ map_x`` is the profile of x but for a rotation that
        both sides share, so that cosines between them are those of the profiles.
    left, right : (d_x, r), (d_y, r), r = min(d_x, d_y, N) or less: ``x @ left . y @ right`` is the product of the
        profiles.
    weights : (r,) singular values of the bilinear form, the largest 1.
    """

    map_x: Tensor
    map_y: Tensor
    left: Tensor
    right: Tensor
    weights: Tensor

    def factors_x(self, x: Tensor) -> Tensor:
        """Factors (n, r) of rows of x: their products with those of y are the cosines of the profiles."""
        return factors(x, self.left, self.map_x)

    def factors_y(self, y: Tensor) -> Tensor:
        return factors(y, self.right, self.map_y)


def factors(v: Tensor, split: Tensor, profile: Tensor) -> Tensor:
    """``v @ split`` over the norm of ``v @ profile``; zero where that is zero, as for a row no anchor has a part in."""
    norm = torch.linalg.vector_norm(v @ profile, dim=1, keepdim=True)
    return torch.where(norm > TINY, v @ split / norm.clamp_min(TINY), 0.0)


class Side(NamedTuple):
    """Second moment of one side's anchors: axes (d, d), values (d,) ascending, not negative."""

    axes: Tensor
    values: Tensor

    def power(self, gamma: float, ridge: float, clip: float) -> Tensor:
        """``(M + ridge mean(eig) I)^(-gamma / 2)`` in its own axes (d,), eigenvalues from ``clip`` times the mean."""
        mean = self.values.mean()
        return (self.values + ridge * mean).clamp_min(clip * mean) ** (-gamma / 2)


def split_form(form: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """left (d_x, r), right (d_y, r), ``left @ right.T`` the bilinear form (d_x, d_y), evenly, and its singular values.

    By the smaller Gram matrix: at gamma 1 half of the singular values are 1, and LAPACK's decomposition of the form
    itself was seen to return NaN there. The product is exact whatever the accuracy of the values.
    """
    if form.shape[0] > form.shape[1]:
        right, left, weights = split_form(form.T)
        return left, right, weights
    squares, u = torch.linalg.eigh(form @ form.T)
    values, u = squares.flip(0).clamp_min(0).sqrt(), u.flip(1)
    kept = max(1, int((values > RANK * values[0]).sum()))
    root = values[:kept].sqrt().clamp_min(TINY)
    return u[:, :kept] * root, form.T @ u[:, :kept] / root, values[:kept] / values[0].clamp_min(TINY)


class Moments:
    """Everything about the anchors that does not depend on gamma or the ridge, float64.

    Parameters
    ----------
    anchors_x, anchors_y : paired rows (N, d_x), (N, d_y), at least one, not all zero.

    Attributes
    ----------
    rank_x, rank_y : of the anchors.
    """

    def __init__(self, anchors_x: Tensor, anchors_y: Tensor) -> None:
        self.anchors = anchors_x.double(), anchors_y.double()
        self.count = len(anchors_x)
        self.sides = []
        for a in self.anchors:
            values, axes = torch.linalg.eigh(a.T @ a / len(a))
            self.sides.append(Side(axes, values.clamp_min(0)))
        self.rank_x, self.rank_y = (int((s.values > RANK**2 * s.values[-1]).sum()) for s in self.sides)
        self.turned = [a @ s.axes for a, s in zip(self.anchors, self.sides, strict=True)]

    @property
    def trivial(self) -> int:
        """Canonical correlations that are 1 whatever the data: two subspaces of R^N that are too large to miss."""
        return max(0, self.rank_x + self.rank_y - self.count)

    def profile(self, gamma: float, ridge: float = 0.0, clip: float = CLIP) -> Profile:
        """The profile at a gamma, 0 or larger; ``ridge`` in units of the mean eigenvalue of each side."""
        scaled = [t * s.power(gamma, ridge, clip) for t, s in zip(self.turned, self.sides, strict=True)]
        left, right, weights = split_form(scaled[0].T @ scaled[1])
        both = scaled
        if self.count > sum(t.shape[1] for t in scaled):  # the profiles fill a smaller space than R^N
            basis = torch.linalg.qr(torch.cat(scaled, 1))[0]
            both = [basis.T @ t for t in scaled]
        maps = [s.axes @ t.T for s, t in zip(self.sides, both, strict=True)]
        splits = [s.axes @ t for s, t in zip(self.sides, (left, right), strict=True)]
        return Profile(*(t.float().contiguous() for t in (*maps, *splits)), weights.float())
