"""Encoders in training, as a run shows them: what AnchorDOT's distillation and the contrastive baseline share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from relcore.methods.base import Linear, Snapshot, Step, mapped

if TYPE_CHECKING:
    from torch import Tensor

    from relcore.ops.distill import Training, Weights
    from relcore.ops.relative import Profile
    from relcore.ops.sinkhorn import Coupling

YIELDS = 100  # steps of a training that are shown
VIEWS = 20  # of them with the encoders themselves
WATCHED_ROWS = 500  # rows that figures on the way are read on
TURN_ROWS = 2000  # rows that say how the common space is to be turned


class Count:
    """Numbers the steps of all phases through."""

    def __init__(self) -> None:
        self.done = 0

    def step(self, phase: str, metrics: dict[str, float], left: int, snapshot: Snapshot | None = None) -> Step:
        """The next step, ``left`` of which are expected after it."""
        self.done += 1
        return Step(self.done, self.done + left, phase, metrics, snapshot)


def encoder(weights: Weights) -> Linear | Any:
    """The encoder that trained weights make."""
    from relcore.methods.kept import Residual

    return Linear(weights.skip) if weights.hidden is None else Residual(*weights)


def to_cpu(value: Any) -> Any:
    """The same value with every tensor in it on the CPU."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.cpu()
    if is_dataclass(value):
        return replace(value, **{f.name: to_cpu(getattr(value, f.name)) for f in fields(value)})
    return value


class Watch:
    """What is looked at while encoders train.

    Parameters
    ----------
    sides : the rows of both.
    profile : the frame that the moving map is drawn in: the common space is turned towards it, which changes no cosine.
    coupling : what the encoders are to agree with, or None.
    """

    def __init__(self, sides: tuple[Tensor, Tensor], profile: Profile, coupling: Coupling | None = None) -> None:
        import torch

        from relcore.ops.neighbors import unit_rows

        self.sides, self.best, self.coupling = sides, None, to_cpu(coupling)
        some = [v[torch.linspace(0, len(v) - 1, min(TURN_ROWS, len(v))).round().long().to(v.device)] for v in sides]
        self.some = some
        maps = (profile.map_x, profile.map_y)
        self.frame = torch.cat([unit_rows(mapped(v, m)) for v, m in zip(some, maps, strict=True)])
        self.rows = torch.linspace(0, len(sides[0]) - 1, min(WATCHED_ROWS, len(sides[0]))).round().long()
        self.rows = self.rows.to(sides[0].device)
        if coupling is not None:
            self.best = coupling.log_block(self.rows, slice(None)).argmax(1)

    def agreement(self, weights: tuple[Weights, Weights]) -> dict[str, float]:
        """Share of some x rows whose nearest y row is the plan's first choice."""
        if self.best is None:
            return {}
        found = (weights[0](self.sides[0][self.rows]) @ weights[1](self.sides[1]).T).argmax(1)
        return {"agrees with the plan": float((found == self.best).double().mean())}

    def snapshot(self, weights: tuple[Weights, Weights]) -> Snapshot:
        """The encoders, turned towards the frame; in a wider space the frame is that of its first coordinates."""
        import torch

        from relcore.ops.linalg import procrustes

        turn, _ = procrustes(torch.cat([w(v) for w, v in zip(weights, self.some, strict=True)]), self.frame)
        wide, narrow = turn.shape
        if wide > narrow:  # what the frame says nothing of stays, or cosines would change
            turn = torch.cat([turn, torch.linalg.qr(turn, mode="complete")[0][:, narrow:]], 1)
        turn = turn.to(self.frame.device)
        return Snapshot(*(_as_map(encoder(_turned(w, turn))) for w in weights), coupling=self.coupling)


def _turned(weights: Weights, turn: Tensor) -> Weights:
    return weights._replace(
        **{k: getattr(weights, k) @ turn for k in ("skip", "bias", "out") if getattr(weights, k) is not None}
    )


def _as_map(encode: Any) -> Any:
    encode = to_cpu(encode)
    return encode.matrix if isinstance(encode, Linear) else encode


def trained(
    training: Training, watch: Watch, step: Callable[..., Step], phase: str, more: Callable[[], dict] = dict
) -> Iterator[Step]:
    """Train, showing about :data:`YIELDS` steps.

    Parameters
    ----------
    step : ``step(phase, metrics, left, snapshot)`` makes the step that is shown.
    more : further figures, asked for at each view.
    """
    every = max(1, training.steps // YIELDS)
    shown = -(-training.steps // every)
    view = max(1, shown // VIEWS)
    for state in training:
        if state.step % every and state.step != training.steps:
            continue
        number = -(-state.step // every)
        metrics, snapshot = {"loss": state.loss, "learning rate": state.learning_rate}, None
        if number % view == 0 or number == shown:
            weights = training.weights
            metrics |= watch.agreement(weights) | more()
            snapshot = watch.snapshot(weights)
        yield step(phase, metrics, shown - number, snapshot)
