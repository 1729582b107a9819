"""Profiles by any similarity: to AnchorDOT what :mod:`relcore.ops.relative` is for the gamma profile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from relcore.methods import anchored
from relcore.methods.base import Linear

if TYPE_CHECKING:
    import torch
    from torch import Tensor

FITTED_ROWS = 2000  # of a side, that the linear part of a similarity is fitted on


@dataclass(eq=False)
class Described:
    """Similarities of the rows of both sides to the anchors, N wide.

    Attributes
    ----------
    map_x, map_y : from rows to similarities. sides : the rows.
    """

    map_x: Callable[[Tensor], Tensor]
    map_y: Callable[[Tensor], Tensor]
    sides: tuple[Tensor, Tensor]

    def factors_x(self, x: Tensor) -> Tensor:
        """Rows (n, N) of norm 1, whose products with those of y are the cosines of the profiles."""
        return _unit(self.map_x(x))

    def factors_y(self, y: Tensor) -> Tensor:
        return _unit(self.map_y(y))

    @property
    def left(self) -> Tensor:
        """(d_x, r): ``x @ left . y @ right`` is the product of the profiles' linear parts; encoders start from it."""
        return self._split[0]

    @property
    def right(self) -> Tensor:
        return self._split[1]

    @cached_property
    def _split(self) -> tuple[Tensor, Tensor]:
        from relcore.ops.relative import split_form

        a, b = (_linear_part(e, v).double() for e, v in zip((self.map_x, self.map_y), self.sides, strict=True))
        left, right, _ = split_form(a @ b.T)
        return left.float(), right.float()


class Describer:
    """Fits a similarity on pairs of anchors; :meth:`profile` is what it makes of the sides.

    Parameters
    ----------
    method : with ``similarity`` and what belongs to it as fields (:mod:`relcore.methods.anchored`).
    anchors : (N, d_x), (N, d_y), paired. sides : the rows of both.

    Attributes
    ----------
    rank_x, rank_y : of the anchors. notes, chosen : for the alignment.
    """

    trivial = 0

    def __init__(self, method: Any, anchors: tuple[Tensor, Tensor], sides: tuple[Tensor, Tensor]) -> None:
        from relcore.ops.relative import Moments
        from relcore.ops.similarity import fit

        moments = Moments(*anchors)
        self.rank_x, self.rank_y = moments.rank_x, moments.rank_y
        self.notes, self.chosen = [], {}
        kind = method.similarity
        if kind in anchored.SHRUNK:
            white = anchored.whitening(anchors, method.shrinkage, method.shrinkage_amount, what="anchors")
            fits = white.similarities(kind, anchors, 1.0, None, method.kernel_ridge)
            self.notes, self.chosen = white.notes, white.chosen
            if white.agreement is not None:
                self.notes += anchored.parallel_note(white.agreement)
        else:
            fits = [fit(kind, a) for a in anchors]
        encoders = [
            moved(anchored.encoder(f, a, a, method.standardise), a.device) for f, a in zip(fits, anchors, strict=True)
        ]
        self._profile = Described(*encoders, sides)

    def profile(self, gamma: float = 0.0, ridge: float = 0.0) -> Described:
        """Whatever gamma and ridge: they are of the gamma profile."""
        return self._profile


def moved(value: Any, device: torch.device | str) -> Any:
    """The same encoder with its tensors on a device."""
    if is_dataclass(value):
        return replace(value, **{f.name: moved(getattr(value, f.name), device) for f in fields(value)})
    return value.to(device)


def _linear_part(encode: Any, rows: Tensor) -> Tensor:
    """Matrix (d, N) of what is linear in an encoder but for the norm of a row; of others the best fit on some rows."""
    import torch

    from relcore.methods.kept import Affine, Cosines, WhiteCosines

    if isinstance(encode, Linear | Affine):
        return encode.matrix
    if isinstance(encode, Cosines):
        return encode.directions
    if isinstance(encode, WhiteCosines):
        return encode.root @ encode.directions
    v = rows[torch.linspace(0, len(rows) - 1, min(FITTED_ROWS, len(rows))).round().long().to(rows.device)]
    seen = encode(v).double()
    v = v.double() - v.double().mean(0)
    gram = v.T @ v
    gram.diagonal().add_(1e-3 * float(gram.diagonal().mean()) + 1e-30)
    return torch.linalg.solve(gram, v.T @ (seen - seen.mean(0))).float()


def _unit(v: Tensor) -> Tensor:
    from relcore.ops.neighbors import unit_rows

    return unit_rows(v)
