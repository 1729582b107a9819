"""One run from two spaces to a judged alignment: preprocess, fit, check on held-out seeds, analyse.

:class:`Task` says what to do, :class:`Fit` does it step by step and can be looked at on the way, :class:`Outcome` is
what comes out. The command line, the worker and a script all go through here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from relcore import analysis, preprocess
from relcore.errors import InputError, RunFailed
from relcore.methods.base import Alignment, Linear, Method, Restarts, Snapshot, mapped
from relcore.metrics import health, mismatch, retrieval, spectrum
from relcore.ops import neighbors, relative
from relcore.parallel import Workers
from relcore.projection import Projection, fit_pca
from relcore.space import Pair, Pairs

WATCHED_ROWS = 1000  # live figures are read on at most so many rows; the final ones on all
WATCHED_STEPS = 50  # at about so many steps of a run
REFERENCE_ANCHORS = 300  # true pairs used as ground-truth anchors when the method has no count of its own


@dataclass(frozen=True, eq=False)
class Task:
    """Everything, beside the two spaces, that determines a run.

    Attributes
    ----------
    folds : the seeds are split in so many parts; each is held out once to see whether the others recover it.
        0 leaves the check out. It needs at least :data:`relcore.metrics.health.MIN_SEEDS` seeds.
    workers : where a method that spreads its work does so; the result is the same.
    """

    method: Method
    seeds: Pairs
    preprocess: tuple[str, ...] = preprocess.DEFAULT
    seed: int = 0
    device: str = "auto"
    folds: int = 3
    workers: Workers = Workers()


@dataclass(frozen=True, eq=False)
class Progress:
    """Where a run is. ``iteration`` of ``total`` counts within the phase; ``frame`` is the map of the moving side."""

    iteration: int
    total: int
    phase: str
    metrics: dict[str, float] = field(default_factory=dict)
    frame: np.ndarray | None = None
    seconds: float = 0.0
    restarts: Restarts | None = None


@dataclass(eq=False)
class Outcome:
    """A judged alignment.

    Attributes
    ----------
    arrays : what the pages read, by name (see :mod:`relcore.analysis`).
    metrics : retrieval both ways and hubness, with the references ``seed`` and ``gt``; only where truth is known.
    health : label-free checks; ``verdict`` puts them in words.
    """

    alignment: Alignment
    preprocess_x: preprocess.Fitted
    preprocess_y: preprocess.Fitted
    arrays: dict[str, np.ndarray]
    health: dict[str, Any]
    verdict: health.Verdict
    metrics: dict[str, Any] | None
    steps: int
    seconds: float


def pick_device(name: str) -> str:
    """``auto`` is the first CUDA device, else the CPU."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise InputError(f"device {name}: no CUDA device is to be had on this machine; use --device cpu.")
    return name


def unit_coordinates(v: torch.Tensor, how: torch.Tensor | Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    return neighbors.unit_rows(mapped(v, how))


class Fit:
    """A run that can be stepped, watched and stopped. Drain :meth:`steps`, then :meth:`finish`.

    Attributes
    ----------
    snapshot : the last good :class:`Snapshot`, None before the first step.
    alignment : None until the method is done; after :meth:`stop_early`, the snapshot's.
    history : one dict a step (iteration, phase, metrics).
    restarts : (iteration, :class:`Restarts`) of every step that told of restarts.
    references : live figures of the seed baseline and the ground-truth anchors, where they exist.
    fixed_map : (rows, 2) map of the side that does not move, from the first snapshot on.
    watched : whether figures and maps are made on the way; without, the alignment is the same, and comes sooner.
    """

    def __init__(self, pair: Pair, task: Task, watched: bool = True):
        self.pair, self.task, self.watched = pair, task, watched
        self.device = pick_device(task.device)
        x, y = pair.x, pair.y
        task.method.check(len(x), len(y), x.dim, y.dim, len(task.seeds))
        self.preprocess_x, self.x = preprocess.fit(task.preprocess, x.tensor())
        self.preprocess_y, self.y = preprocess.fit(task.preprocess, y.tensor())
        self.scored = None if pair.truth is None else pair.truth.without(task.seeds)
        self.snapshot: Snapshot | None = None
        self.alignment: Alignment | None = None
        self.history: list[dict] = []
        self.restarts: list[tuple[int, Restarts]] = []
        self.folds: list[health.Fold] = []
        self.covered: list[tuple[np.ndarray, np.ndarray]] = []  # coverage of both sides in each fold
        self.held_out_skipped = "stopped before the check was done"
        self.stopped = False
        self.fixed_map: np.ndarray | None = None
        self.projection: Projection | None = None
        self.frames = 0
        self.started = time.monotonic()
        self._watch = self._watched_rows()
        self.references = self._live_references() if watched else {}

    # ---------------------------------------------------------------- the run

    def steps(self) -> Generator[Progress, None, None]:
        """Fit, then refit with seeds held out. Sets :attr:`alignment` between the two.

        Raises
        ------
        RunFailed
            A quantity became NaN or infinite, or the method broke off.
        """
        generator = torch.Generator().manual_seed(self.task.seed)
        steps = self.task.method.steps(self.x, self.y, self.task.seeds, generator=generator, **self._where())
        watched = 0
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                self.alignment = end.value
                break
            for name, value in step.metrics.items():
                if not np.isfinite(value):
                    raise RunFailed(
                        f"{name} became {value} at step {step.iteration}; kept is step {len(self.history)}.",
                        len(self.history),
                    )
            metrics, frame = dict(step.metrics), None
            if step.snapshot is not None:
                self.snapshot = step.snapshot
            if step.snapshot is not None and self.watched:
                every = max(1, step.total // WATCHED_STEPS)
                if step.iteration - watched >= every or step.iteration in (1, step.total):
                    watched = step.iteration
                    metrics |= self._live_figures(step.snapshot.map_x, step.snapshot.map_y)
                    frame = self._frame(step.snapshot)
            self.history.append({"iteration": step.iteration, "phase": step.phase, **metrics})
            if step.restarts is not None:
                self.restarts.append((step.iteration, step.restarts))
            yield self._progress(step.iteration, step.total, step.phase, metrics, frame, step.restarts)
        yield from self._hold_out()

    def _where(self) -> dict[str, Any]:
        return {"device": self.device} | ({"workers": self.task.workers} if self.task.method.spreads else {})

    def _hold_out(self) -> Generator[Progress, None, None]:
        """Refit without a part of the seeds and rank their partners: the one check a confident mistake cannot pass."""
        seeds, folds = self.task.seeds, self.task.folds
        if folds < 2 or len(seeds) < health.MIN_SEEDS:
            self.held_out_skipped = (
                "the check was switched off" if folds < 2 else f"{len(seeds)} seeds, {health.MIN_SEEDS} needed"
            )
            return
        parts = health.fold_rows(len(seeds), folds, self.task.seed)
        if len(seeds) - max(map(len, parts)) < self.task.method.needs.min_seeds:
            self.held_out_skipped = "too few seeds remain when some are held out"
            return
        checked, covered = [], []
        for i, part in enumerate(parts):
            rest = seeds.take(np.setdiff1d(np.arange(len(seeds)), part))
            generator = torch.Generator().manual_seed(self.task.seed + 1 + i)
            steps = self.task.method.check_steps(self.x, self.y, rest, generator=generator, **self._where())
            phase = f"check: seeds held out, part {i + 1} of {len(parts)}"
            while True:
                try:
                    step = next(steps)
                except StopIteration as end:
                    fold = end.value
                    break
                yield self._progress(step.iteration, step.total, phase, {}, None)
            checked.append(health.check_fold(fold.x, fold.y, seeds.take(part), self.alignment.x, self.alignment.y))
            covered.append(mismatch.default_coverage(fold.x, fold.y, seed=self.task.seed))
        self.folds, self.covered, self.held_out_skipped = checked, covered, ""

    def stop_early(self) -> bool:
        """Make an alignment of the last snapshot, marked as stopped. False when there is nothing to keep."""
        self.stopped = True
        if self.alignment is not None:
            return True
        if self.snapshot is None:
            return False
        s = self.snapshot
        self.alignment = Alignment(
            x=mapped(self.x, s.map_x),
            y=mapped(self.y, s.map_y),
            encode_x=s.map_x if callable(s.map_x) else Linear(s.map_x),
            encode_y=s.map_y if callable(s.map_y) else Linear(s.map_y),
            anchors=s.anchors,
            coupling=s.coupling,
            mixture=s.mixture,
            converged=False,
            notes=[f"stopped at step {len(self.history)}, before the method was done" + self._below_seed_baseline()],
        )
        return True

    def finish(self) -> Generator[Progress, None, Outcome]:
        """Analyse, score and judge the alignment. Needs :attr:`alignment`."""
        a, seeds = self.alignment, self.task.seeds
        total = 5
        yield self._progress(1, total, "neighbours both ways", {}, None)
        seed_x = seed_y = None
        if len(seeds):
            seed_x, seed_y = self._relative(seeds)
        for name, v in (("x", a.x), ("y", a.y)):
            if not torch.isfinite(v).all():
                raise RunFailed(f"the coordinates of {name} hold NaN or infinite numbers.", len(self.history))
        arrays = analysis.analyse(a.x, a.y, truth=self.pair.truth, seed_x=seed_x, seed_y=seed_y, coupling=a.coupling)
        arrays |= self._spectrum()
        yield self._progress(2, total, "what one side lacks", {}, None)
        arrays |= mismatch.analyse(a.x, a.y, folds=self.covered, seed_x=seed_x, seed_y=seed_y, seed=self.task.seed)
        yield self._progress(3, total, "map", {}, None)
        arrays |= self._final_map()
        yield self._progress(4, total, "metrics", {}, None)
        measured = health.measure(
            a.x, a.y, self.folds, seeds=seeds, skipped=self.held_out_skipped, confidence=a.confidence
        )
        metrics = self._metrics(arrays, seed_x, seed_y)
        verdict = health.verdict(measured)
        yield self._progress(5, total, "done", {}, None)
        return Outcome(
            alignment=a,
            preprocess_x=self.preprocess_x,
            preprocess_y=self.preprocess_y,
            arrays=arrays,
            health=measured,
            verdict=verdict,
            metrics=metrics,
            steps=len(self.history),
            seconds=time.monotonic() - self.started,
        )

    # ---------------------------------------------------------------- figures on the way

    def _progress(self, iteration, total, phase, metrics, frame, restarts=None) -> Progress:
        return Progress(iteration, total, phase, metrics, frame, time.monotonic() - self.started, restarts)

    def _relative(self, pairs: Pairs) -> tuple[torch.Tensor, torch.Tensor]:
        """Unit relative representations of both sides with the given pairs as anchors."""
        return tuple(
            neighbors.unit_rows(relative.relative(v, v[torch.from_numpy(rows.copy())]))
            for v, rows in ((self.x, pairs.x), (self.y, pairs.y))
        )

    def _reference_pairs(self) -> Pairs | None:
        """As many true pairs as the method has anchors, seeds first: the ground-truth anchors of the papers."""
        if self.pair.truth is None:
            return None
        count = min(getattr(self.task.method, "anchors", REFERENCE_ANCHORS), len(self.pair.truth))
        rest = self.pair.truth.without(self.task.seeds)
        order = np.random.default_rng(self.task.seed).permutation(len(rest))[: max(0, count - len(self.task.seeds))]
        true_seeds = _common(self.task.seeds, self.pair.truth)
        return Pairs(np.concatenate([true_seeds.array, rest.take(order).array]))

    def _watched_rows(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The x rows (and their partners, where truth is known) that live figures are read on."""
        generator = np.random.default_rng(self.task.seed)
        if self.scored is not None and len(self.scored):
            rows = np.sort(generator.permutation(len(self.scored))[:WATCHED_ROWS])
            return torch.from_numpy(self.scored.x[rows]), torch.from_numpy(self.scored.y[rows])
        rows = np.sort(generator.permutation(len(self.x))[:WATCHED_ROWS])
        return torch.from_numpy(rows), None

    def _live_references(self) -> dict[str, dict[str, float]]:
        if self._watch[1] is None:
            return {}
        out = {}
        for name, pairs in (("seed", self.task.seeds), ("gt", self._reference_pairs())):
            if pairs is not None and len(pairs):
                out[name] = self._scores(*self._relative(pairs))
        return out

    def _live_figures(self, map_x, map_y) -> dict[str, float]:
        return self._scores(unit_coordinates(self.x, map_x), unit_coordinates(self.y, map_y))

    def _scores(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, float]:
        """MRR both ways of the watched rows, or without truth the share that are mutual nearest neighbours."""
        rows_x, rows_y = self._watch
        if rows_y is not None:
            k = min(10, len(x), len(y))
            out = {}
            for name, a, b, ra, rb in (("mrr x to y", x, y, rows_x, rows_y), ("mrr y to x", y, x, rows_y, rows_x)):
                _, found = neighbors.topk_cosine(a[ra], b, k)
                hit = found == rb[:, None]
                rank = hit.int().argmax(1) + 1
                out[name] = float((hit.any(1) / rank).mean())
            return out
        _, there = neighbors.topk_cosine(x[rows_x], y, 1)
        _, back = neighbors.topk_cosine(y[there[:, 0]], x, 1)
        return {"mutual neighbours": float((back[:, 0] == rows_x).float().mean())}

    def _frame(self, snapshot: Snapshot) -> np.ndarray:
        """Map of the moving side. The frame is fixed by the other side, so that motion seen is motion made."""
        sides = {"x": (self.x, snapshot.map_x), "y": (self.y, snapshot.map_y)}
        moving = unit_coordinates(*sides.pop(snapshot.moving))
        if self.projection is None:
            (fixed,) = sides.values()
            still = unit_coordinates(*fixed).numpy()
            self.projection = fit_pca(still)
            self.fixed_map = self.projection(still)
        self.frames += 1
        known = len(self.projection.mean)  # a later phase may add coordinates after those of the first
        return self.projection(moving.numpy()[:, :known])

    def _below_seed_baseline(self) -> str:
        """AO starts below the seed baseline and crosses it later; whoever stops before should know."""
        key, reference = "mrr x to y", self.references.get("seed")
        last = next((h[key] for h in reversed(self.history) if key in h), None)
        if reference is None or last is None or last >= reference[key]:
            return ""
        return f"; still below the seed-only baseline (MRR {last:.2f} against {reference[key]:.2f})"

    # ---------------------------------------------------------------- figures at the end

    def _final_map(self) -> dict[str, np.ndarray]:
        x, y = (neighbors.unit_rows(v).numpy() for v in (self.alignment.x, self.alignment.y))
        if self.projection is None or len(self.projection.mean) != x.shape[1]:
            self.projection = fit_pca(x)
        return {"map_x": self.projection(x), "map_y": self.projection(y)}

    def _spectrum(self) -> dict[str, np.ndarray]:
        """Of both sides and, with seeds, of their profiles against gamma, as they are and at the method's ridge."""
        seeds, method = self.task.seeds, self.task.method
        given = 0.0 if getattr(method, "mode", "") == "paper" else float(getattr(method, "ridge", 0.0))
        ridge = self.alignment.chosen.get("ridge", given)
        rows, aligned = {"x": self.x.numpy(), "y": self.y.numpy()}, {}
        aligned["x"], aligned["y"] = (neighbors.unit_rows(v).numpy() for v in (self.alignment.x, self.alignment.y))
        anchors = {"x": rows["x"][seeds.x], "y": rows["y"][seeds.y]}
        return spectrum.analyse(rows, aligned, anchors, (0.0, ridge) if ridge else (0.0,))

    def _metrics(self, arrays, seed_x, seed_y) -> dict[str, Any] | None:
        rules = analysis.by_rule(arrays, self.scored)
        out: dict[str, Any] = {
            "hubness": {way: rules["nearest"][way]["hubness"]["skewness"] for way in analysis.WAYS},
            "rules": rules,
        }
        if self.scored is None or not len(self.scored):
            return out
        a = self.alignment
        out |= retrieval.retrieval(a.x, a.y, self.scored)
        references = {}
        if seed_x is not None:
            references["seed"] = retrieval.retrieval(seed_x, seed_y, self.scored)
        gt = self._reference_pairs()
        if a.anchors is not None:  # the fair reference has the same x anchors, each with its true partner
            partner = self.pair.truth.partner(len(self.x))[a.anchors.x]
            known = partner >= 0
            if known.any():
                gt = Pairs(np.stack([a.anchors.x[known], partner[known]], 1))
                found = (a.anchors.y == partner) & known
                fresh = known & ~np.isin(a.anchors.x, self.task.seeds.x)
                out["anchors"] = {
                    "count": len(a.anchors),
                    "distinct": int(len(np.unique(a.anchors.y))),
                    "found": float(found[fresh].mean()) if fresh.any() else 1.0,
                }
            rx, ry = self._relative(a.anchors)
            out["discretised"] = retrieval.retrieval(rx, ry, self.scored)
        references["gt"] = retrieval.retrieval(*self._relative(gt), self.scored)
        references["gt"]["anchors"] = len(gt)
        return out | {"references": references}


def _common(a: Pairs, b: Pairs) -> Pairs:
    """The pairs of ``a`` that are also in ``b``."""
    partner = b.partner(int(max(a.x.max(initial=-1), b.x.max(initial=-1))) + 1)
    return a.take(np.flatnonzero(partner[a.x] == a.y))


def align(pair: Pair, method: Method, seeds: Pairs, **settings) -> Outcome:
    """Run to the end without watching. ``settings`` are the other fields of :class:`Task`.

    Raises
    ------
    InputError
        The method cannot work on this input.
    RunFailed
        The computation broke off.
    """
    fit = Fit(pair, Task(method=method, seeds=seeds, **settings))
    for _ in fit.steps():
        pass
    return drain(fit.finish())


def drain(generator: Generator) -> Any:
    """Run a generator to its end and return its value."""
    while True:
        try:
            next(generator)
        except StopIteration as end:
            return end.value
