"""Two encoders trained to agree with a coupling, with known pairs, or with both.

    training = Training(x, y, pairs, coupling, steps=600, generator=generator)
    for state in training:               # step, loss, learning_rate
        ...
    training.weights                     # of both encoders

A step takes a chunk of rows of each side and the exact block of the plan between them. Its rows, and its columns, each
scaled to sum 1, are what softmax(similarity / temperature) should be; known pairs are a chunk whose plan is the
identity. With one-hot rows this is InfoNCE, so that without a coupling it is contrastive learning on the pairs alone.

Sources: AnchorDOT (distillation of a global plan in chunks); van den Oord et al., "Representation Learning with
Contrastive Predictive Coding", 2018 (InfoNCE). The encoders' form, the temperature and the number of steps are ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import gelu, log_softmax, normalize

from relcore.ops.sinkhorn import Coupling


class State(NamedTuple):
    """``step`` from 1, the loss of its chunk, and the rate it was taken at."""

    step: int
    loss: float
    learning_rate: float


class Weights(NamedTuple):
    """``v skip + bias + gelu(v hidden + hidden_bias) out``, scaled to norm 1; a linear encoder has ``skip`` only."""

    skip: Tensor
    bias: Tensor | None = None
    hidden: Tensor | None = None
    hidden_bias: Tensor | None = None
    out: Tensor | None = None

    def __call__(self, v: Tensor) -> Tensor:
        z = v @ self.skip
        if self.hidden is not None:
            z = z + self.bias + gelu(v @ self.hidden + self.hidden_bias) @ self.out
        return normalize(z, dim=1)


class Training:
    """Iterate over it to train; :attr:`weights` are those of the latest step, number :attr:`done`.

    Parameters
    ----------
    x, y : float32 (n, d_x), (m, d_y), on the device to train on.
    pairs : int64 (k,), (k,) rows that belong together; may be empty with a coupling.
    coupling : between the rows of x and y, or None.
    start : (d_x, r), (d_y, r) linear maps the encoders start from; by default random ones of ``width``.
    width, hidden : of the common space, and of the hidden layer, 0 for a linear encoder.
    chunk : rows of each side in a step, at most.
    pair_weight : weight of the pairs beside a chunk of the plan.
    sharpen : power of the plan's entries before they are normalised.
    generator : CPU generator.
    """

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        pairs: tuple[Tensor, Tensor],
        coupling: Coupling | None = None,
        *,
        steps: int,
        generator: torch.Generator,
        start: tuple[Tensor, Tensor] | None = None,
        width: int = 96,
        hidden: int = 256,
        chunk: int = 250,
        temperature: float = 0.1,
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-4,
        pair_weight: float = 1.0,
        sharpen: float = 1.0,
    ) -> None:
        if coupling is None and not len(pairs[0]):
            raise ValueError("training needs a coupling or at least one pair.")
        self.x, self.y, self.pairs, self.coupling = x, y, pairs, coupling
        self.steps, self.generator, self.chunk = steps, generator, chunk
        self.temperature, self.learning_rate, self.weight_decay = temperature, learning_rate, weight_decay
        self.pair_weight, self.sharpen = pair_weight, sharpen
        self.done = 0
        begin = (None, None) if start is None else start
        # trained on rows of entries about 1, whatever they are given as, weights all learn at one rate
        self._scales = [v.shape[1] ** 0.5 / v.double().norm(dim=1).mean().clamp_min(1e-30).item() for v in (x, y)]
        self._weights = [self._first(*of, width, hidden) for of in zip((x, y), begin, self._scales, strict=True)]

    @property
    def weights(self) -> tuple[Weights, Weights]:
        """Of the two encoders, for rows as they were given; copies."""
        return tuple(
            Weights(*(t if t is None else t.detach().clone() for t in w))._replace(
                skip=w.skip.detach() * s, hidden=None if w.hidden is None else w.hidden.detach() * s
            )
            for w, s in zip(self._weights, self._scales, strict=True)
        )

    def __iter__(self) -> Iterator[State]:
        tensors = [t for w in self._weights for t in w if t is not None]
        optimiser = torch.optim.AdamW(tensors, lr=self.learning_rate, weight_decay=self.weight_decay)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(1, self.steps))
        rows_x, rows_y, rows_p = (self._chunks(k) for k in (len(self.x), len(self.y), len(self.pairs[0])))
        for step in range(1, self.steps + 1):
            loss = self._plan_loss(next(rows_x), next(rows_y)) if self.coupling is not None else 0.0
            if len(self.pairs[0]) and self.pair_weight:
                loss = loss + self.pair_weight * self._pair_loss(next(rows_p))
            optimiser.zero_grad()
            loss.backward()
            rate = schedule.get_last_lr()[0]
            optimiser.step()
            schedule.step()
            self.done = step
            yield State(step, loss.item(), rate)

    def _first(self, v: Tensor, start: Tensor | None, scale: float, width: int, hidden: int) -> Weights:
        def drawn(rows: int, columns: int) -> Tensor:
            return (torch.randn(rows, columns, generator=self.generator) / rows**0.5).to(v)

        d = v.shape[1]
        if start is None:
            skip = drawn(d, width)
        else:  # of norm 1 on the mean, whatever its scale
            skip = start.to(v) / (v @ start.to(v)).norm(dim=1).mean().clamp_min(1e-30) / scale
        parts = [skip]
        if hidden:
            width = skip.shape[1]
            out = drawn(hidden, width) if start is None else torch.zeros(hidden, width).to(v)
            parts += [torch.zeros(width).to(v), drawn(d, hidden), torch.zeros(hidden).to(v), out]
        return Weights(*(t.detach().requires_grad_() for t in parts))

    def _chunks(self, rows: int) -> Iterator[Tensor]:
        """Chunks of the rows in random order, for ever; all of them where they are one chunk."""
        size = min(self.chunk, rows)
        while True:
            order = torch.randperm(rows, generator=self.generator).to(self.x.device)
            for begin in range(0, rows - size + 1, size):
                yield order[begin : begin + size]

    def _encoded(self, rows_x: Tensor, rows_y: Tensor) -> list[Tensor]:
        drawn = (self.x[rows_x], self.y[rows_y])
        return [w(v * s) for w, v, s in zip(self._weights, drawn, self._scales, strict=True)]

    def _plan_loss(self, rows_x: Tensor, rows_y: Tensor) -> Tensor:
        log = (self.sharpen * self.coupling.log_block(rows_x, rows_y)).float()
        a, b = self._encoded(rows_x, rows_y)
        scores = a @ b.T / self.temperature
        return -sum((log.softmax(k) * log_softmax(scores, k)).sum(k).mean() for k in (1, 0)) / 2

    def _pair_loss(self, rows: Tensor) -> Tensor:
        return pair_loss(*self._encoded(self.pairs[0][rows], self.pairs[1][rows]), self.temperature)


def pair_loss(a: Tensor, b: Tensor, temperature: float) -> Tensor:
    """InfoNCE both ways of paired rows of norm 1."""
    scores = a @ b.T / temperature
    return -sum(log_softmax(scores, k).diagonal().mean() for k in (1, 0)) / 2
