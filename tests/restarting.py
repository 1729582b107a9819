"""A tiny method with restarts for tests of what watches one: planted scores, no search."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass

import numpy as np

from relcore import methods
from relcore.methods.base import Alignment, Cost, Linear, Method, Restarts, Snapshot, Step, param


def planted_score(restart: int, iteration: int) -> float:
    """Rises with both, so the last restart is the best at every step."""
    return 0.01 * restart + 0.001 * iteration


@dataclass(frozen=True)
class Restarting(Method):
    """Restart r is scored at every step until it is given up: half of the rest, the lower ones, at each tenth."""

    name = "restarting"
    title = "Restarting"
    summary = "Planted scores."
    source = "none"

    count: int = param(8, "restarts", low=1)
    length: int = param(20, "steps", low=1)

    def steps(self, x, y, seeds, *, generator, device="cpu"):
        import torch

        r = min(x.shape[1], y.shape[1])
        maps = [torch.eye(v.shape[1])[:, :r] for v in (x, y)]
        alive = np.arange(self.count)
        for i in range(1, self.length + 1):
            scores = np.array([planted_score(k, i) for k in alive])
            gone = tuple(alive[: len(alive) // 2].tolist()) if i % 10 == 0 else ()
            sigma = 0.5 if i <= self.length // 2 else 0.2
            metrics = {"sigma": sigma, "score": float(scores[-1])}
            yield Step(
                i, self.length, "search", metrics, Snapshot(*maps), Restarts(alive, scores, gone, self.count - 1)
            )
            alive = np.setdiff1d(alive, gone)
        confidence = {
            "score": float(scores[-1]),
            "fit": 0.9,
            "margin": 0.4,
            "votes": 3.0,
            "restarts": float(self.count),
        }
        ends = [v @ m for v, m in zip((x, y), maps, strict=True)]
        return Alignment(*ends, *(Linear(m) for m in maps), confidence=confidence)

    def estimate(self, n, m, dx, dy, seeds):
        return Cost(1e6)


def register(monkeypatch) -> type[Method]:
    """Make it a method by name, for as long as the test lasts."""
    module = types.ModuleType("relcore.methods.restarting")
    module.Restarting = Restarting
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(methods.REGISTRY, "restarting", "restarting:Restarting")
    return Restarting
