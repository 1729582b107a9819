"""Preprocessing that belongs to an alignment: fitted on each side, stored with it, applied to vectors never seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from relcore.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

DEFAULT = ("center", "unit")
STEPS = {
    "center": "subtract the mean of the side",
    "unit": "scale every row to norm 1",
    "whiten": "make the covariance of the side the identity (eigenvalues clipped at 1e-6 of their mean)",
    "topK": "remove the K leading principal directions, for example top1",
}


def parse_steps(text: str) -> tuple[str, ...]:
    """``"center,unit"`` as a tuple of steps; ``"none"`` is the empty one.

    Raises
    ------
    InputError
        If a step is not known.
    """
    steps = tuple(s.strip() for s in text.split(",") if s.strip())
    if steps == ("none",):
        return ()
    for step in steps:
        if step not in ("center", "unit", "whiten") and not (step.startswith("top") and step[3:].isdigit()):
            raise InputError(f"preprocess: {step!r} is no step; choose from none, {', '.join(STEPS)}.")
    return steps


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted chain. ``parameters[i]`` belongs to ``steps[i]``: a mean (d,), a matrix (d, d), or None."""

    steps: tuple[str, ...]
    parameters: tuple[Tensor | None, ...]

    def __call__(self, v: Tensor) -> Tensor:
        """Apply to rows (p, d), float32; the result has the same shape."""
        for step, parameter in zip(self.steps, self.parameters, strict=True):
            v = _apply(step, parameter, v)
        return v


def fit(steps: tuple[str, ...], v: Tensor) -> tuple[Fitted, Tensor]:
    """Fit the chain on rows (n, d) and return it with the preprocessed rows.

    Raises
    ------
    InputError
        If a row becomes zero on the way, such as a row equal to the mean.
    """
    import torch

    from relcore.ops import linalg

    parameters = []
    for step in steps:
        if step == "center":
            parameter = v.double().mean(0).float()
        elif step == "whiten":
            parameter = linalg.whitening(v)
        elif step.startswith("top"):
            parameter = linalg.remove_top(v, int(step[3:]))
        else:
            parameter = None
        parameters.append(parameter)
        v = _apply(step, parameter, v)
    zero = torch.nonzero(v.norm(dim=1) == 0)
    if len(zero):
        raise InputError(
            f"preprocess {','.join(steps)}: {len(zero)} rows become zero (first: position {int(zero[0])}); "
            "leave out the step that does it, or the rows."
        )
    return Fitted(tuple(steps), tuple(parameters)), v


def _apply(step: str, parameter: Tensor | None, v: Tensor) -> Tensor:
    if step == "center":
        return v - parameter
    if step == "unit":
        return v / v.norm(dim=1, keepdim=True).clamp_min(1e-30)
    return v @ parameter
