"""Hyperspherical Gaussian alignment: an orthogonal map between two spaces from their shapes alone."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from relcore.errors import InputError
from relcore.methods import costs
from relcore.methods.base import Alignment, Cost, Linear, Method, Needs, Restarts, Snapshot, Step, param
from relcore.parallel import Workers

if TYPE_CHECKING:
    from torch import Generator as TorchGenerator
    from torch import Tensor

    from relcore.ops.climb import Chunk, LeftOut, Problem
    from relcore.space import Pairs

PAPER = "arXiv 2608.28840"
OPEN = "not stated in the paper; ours"
MEASURED = "measured by benchmarks/hga.py and on networks trained on digits"
INFORMED_MODE = ("mode", ("informed",))
PAPER_MODE = ("mode", ("paper",))

LADDER = (1.4, 1.0, 0.7, 0.5, 0.35, 0.25, 0.2, 0.14, 0.1, 0.07, 0.05)  # bandwidths between the first and the last
WIDEST = 2.0
LANDMARK_STAGES = ((0.6, 6), (0.4, 6), (0.3, 6))  # bandwidth, iterations: on centroids
ANCHOR_STAGES = ((1.0, 4), (0.7, 4), (0.5, 4), (0.35, 4))  # from the seeds' map: wrong seeds lose their pull
ITERATIONS = 6  # of the step-free ascent at one bandwidth
FINALISTS = 4  # starts of a chunk that climb on points
POINTS = (256, 384)  # rows a side at the first bandwidths; later ones take the whole sample
JUDGES = 512  # rows a side that scores of the search are read on
CENTROID_STARTS, CENTROIDS, CENTROID_DRAWS = 4, 16, 2
SWAP_CLUSTERS, SWAP_ROUNDS, SWAP_KEPT = 12, 3, 16
WIDER = 4  # rows of B for one of A in the last turns: of large spaces few rows drawn on both sides are partners
CLEAR = 10.0  # standard errors in the coordinates left out that need no further search
FILLED = 0.8  # fit of a summit, before the last turns: unrelated spaces reach .75
STIRS = 12  # turns on halves of the rows
STIRRED_ID = 900
ELSEWHERE = 8.0  # standard errors that speak for a solution the last turns went to
LEFT_OUT_ROWS = 2000  # rows a side that the coordinates left out are read on
TIE = 0.01  # maps that score this close, as a share, are told apart at TIE_SIGMA
TIE_SIGMA = 0.3
GAIN = 1e-3  # a swap must raise the score by this share
RIVALS = 8  # different solutions that the best is compared with on all rows of the sample
WITHIN_REACH = 0.01  # neighbours a row, weighed by the kernel, below which a bandwidth sees nothing
MARGIN = 0.05  # in log score, to the best different solution: below it the two are not told apart
LIKELY_SIGMA = 0.5  # kernel that seeds are judged by
LOG_SCORE = 30.0  # weight of the log score beside the seeds' log likelihood
LED = 1.0  # log likelihood that a summit must be better by, because the seeds led to it
NAMED = 40  # wrong seeds written out in a note
CHUNK_STEPS = 10  # of the paper's ascent between two looks
SEARCH_SEED = 2**31 - 1


@dataclass(frozen=True)
class HGA(Method):
    r"""Rows lie on the unit sphere of their space; if corresponding rows have about the same angles among themselves,
    one space is a rotation or reflection of the other. Its orthogonal map R maximises

    .. math:: J_\sigma(R) = \frac{1}{mn} \sum_{ij} \exp(-\theta_{ij}^2 / 2\sigma^2), \qquad
              \theta_{ij} = \arccos \langle R x_i, y_j \rangle .

    ``mode="paper"`` is the published search: random orthogonal starts, projected gradient ascent, retraction by the
    SVD, step lengths on a cosine, bandwidths that fall from stage to stage, restarts that score low at the last stage
    given up. The paper prints only the last bandwidth, .2; the others, the steps and their lengths are ours.

    ``mode="informed"`` searches the same maps in the leading principal axes of both sides. A restart is cheap there,
    because it climbs on centroids first and by a step-free ascent (each step is the polar factor of the gradient of
    the chordal kernel); and starts that use what the sides tell of themselves (profiles of distances within a side,
    Gram matrices of centroids, signs of principal axes) succeed more often than random ones. The best finalists climb
    on points, clusters are exchanged where that helps, and turns of mutual neighbours and Procrustes in all dimensions
    end it.

    Scores of all restarts are J at one bandwidth, .2. Known pairs are optional: they enter the objective with the
    paper's weight, m n each, and start a restart by Procrustes; the unsupervised starts stay beside it, so that wrong
    pairs cannot spoil what the shapes alone give.
    """

    name = "hga"
    title = "Hyperspherical Gaussian alignment"
    summary = "Turn A onto B so that the two clouds coincide, without any known pair."
    source = PAPER
    needs = Needs()
    spreads = True

    mode: str = param(
        "informed",
        "informed: cheap restarts from starts that use distances within each side. paper: random starts and gradient "
        "ascent, as published",
        choices=("informed", "paper"),
        source=MEASURED,
    )
    restarts: int = param(
        256, "Random restarts, beside the informed ones", low=0, high=100_000, source=MEASURED, only_if=INFORMED_MODE
    )
    dims: int = param(
        16,
        "Leading principal axes of each side that are searched in. 0: all, the smaller side filled up with zeros. The "
        "last turns are in all dimensions",
        low=0,
        high=512,
        source=MEASURED,
        only_if=INFORMED_MODE,
    )
    agree: int = param(
        5,
        "Restarts that must end in the best solution to end the search early. 0 never ends it early",
        low=0,
        high=1000,
        source=MEASURED,
        only_if=INFORMED_MODE,
    )
    random_starts: int = param(
        10, "Random orthogonal starts", low=1, high=10_000, source=f"{PAPER}, figure 2", only_if=PAPER_MODE
    )
    ascent_steps: int = param(
        60, "Steps of the ascent at each bandwidth", low=1, high=10_000, source=OPEN, only_if=PAPER_MODE
    )
    sample: int = param(
        1024, "Rows a side, drawn at random, that the search looks at", low=3, high=50_000, source=PAPER
    )
    sigma_last: float = param(
        0.2, "Last bandwidth of the kernel, in radians", low=0.01, high=WIDEST, source=PAPER, log=True, unit="rad"
    )
    sigma_first: float = param(
        0.35,
        "First bandwidth on points",
        low=0.01,
        high=WIDEST,
        source=MEASURED,
        log=True,
        unit="rad",
        advanced=True,
        only_if=INFORMED_MODE,
    )
    sigma_start: float = param(
        1.0,
        "First bandwidth; the next are smaller by about the root of 2",
        low=0.01,
        high=WIDEST,
        source=OPEN,
        log=True,
        unit="rad",
        advanced=True,
        only_if=PAPER_MODE,
    )
    step_first: float = param(
        0.5,
        "Length of the first step at each bandwidth; a cosine leads to the last",
        low=1e-4,
        high=3.0,
        source=OPEN,
        log=True,
        unit="rad",
        advanced=True,
        only_if=PAPER_MODE,
    )
    step_last: float = param(
        0.02,
        "Length of the last step at each bandwidth",
        low=1e-5,
        high=3.0,
        source=OPEN,
        log=True,
        unit="rad",
        advanced=True,
        only_if=PAPER_MODE,
    )
    give_up: float = param(
        0.8,
        "Before the last bandwidth, restarts that score below this share of the best are given up",
        low=0.0,
        high=1.0,
        source="the paper has a threshold of each experiment; ours",
        advanced=True,
        only_if=PAPER_MODE,
    )
    landmarks: int = param(
        48,
        "Centroids a side that the random restarts climb on",
        low=4,
        high=1000,
        source=MEASURED,
        advanced=True,
        only_if=INFORMED_MODE,
    )
    stirs: int = param(
        6,
        "Where no solution stands out, so many of the best go through turns of mutual neighbours on halves of the "
        "rows. 0 leaves it out",
        low=0,
        high=100,
        source=MEASURED,
        advanced=True,
        only_if=INFORMED_MODE,
    )
    polish: int = param(
        10,
        "Last turns of mutual neighbours and Procrustes, in all dimensions",
        low=0,
        high=1000,
        source=MEASURED,
        advanced=True,
        only_if=INFORMED_MODE,
    )
    polish_rows: int = param(
        5000,
        "Rows of A, drawn at random, that the last turns match, and four times as many of B",
        low=3,
        high=100_000,
        source=MEASURED,
        advanced=True,
        only_if=INFORMED_MODE,
    )
    seed_weight: float = param(
        1.0,
        "Weight of a seed in the objective, in units of all pairs together (m n)",
        low=0.0,
        high=1000.0,
        source=PAPER,
        advanced=True,
    )
    reflections: bool = param(
        True,
        "Let the map be a reflection. Where it may not, and dimensions are equal, all axes are searched in",
        source=PAPER,
        advanced=True,
    )
    center: bool = param(
        True,
        "Subtract each side's mean from the rows that the search looks at",
        source="the paper does not mention it; ours",
        advanced=True,
    )

    def steps(self, x, y, seeds, *, generator, device="cpu", workers=None):
        """``workers`` (:class:`relcore.parallel.Workers`) climb chunks of restarts on the CPU; on a GPU this process
        does."""
        search = _paper if self.mode == "paper" else _informed
        workers = workers if workers is not None and device == "cpu" else Workers()
        return (yield from search(self, x, y, seeds, generator, device, workers))

    def check_steps(self, x, y, seeds, *, generator, device="cpu", workers=None):
        """From the seeds alone: what the shapes give without them says nothing about them."""
        if self.mode == "paper":
            led = dataclasses.replace(self, random_starts=1)  # the one that starts at the seeds' map
            return (yield from led.steps(x, y, seeds, generator=generator, device=device, workers=workers))
        return (yield from _informed(self, x, y, seeds, generator, device, Workers(), seeds_only=True))

    def estimate(self, n, m, dx, dy, seeds):
        return _estimate(self, n, m, dx, dy, seeds)


# ---------------------------------------------------------------- what both modes look at


class _View(NamedTuple):
    """Both sides as the search sees them.

    x, y : all rows, of norm 1, as the caller gave them otherwise. axes_x (d_x, d), axes_y (d_y, d): the axes searched
    in. near_x (n, d), near_y (m, d): all rows in those axes, centred or not, of norm 1. problem, judge: a sample of
    them. pairs : int64 (p, 2), rows of the seeds. floor : the smallest bandwidth at which rows are within reach.
    """

    x: Tensor
    y: Tensor
    axes_x: Tensor
    axes_y: Tensor
    near_x: Tensor
    near_y: Tensor
    problem: Problem
    judge: Problem
    pairs: Tensor
    floor: float
    notes: list[str]

    def lifted(self, found: Tensor) -> Tensor:
        """A map of the axes (d, d) as one of the spaces (d_x, d_y), on the CPU."""
        return (self.axes_x @ found @ self.axes_y.T).cpu()

    def coordinates(self, found: Tensor) -> tuple[Tensor, Tensor]:
        """Maps (d_x, r), (d_y, r) of both sides into the common space, which is that of y if it has all dimensions."""
        import torch

        if self.padded:
            return (self.axes_x @ found).cpu(), self.axes_y.cpu()
        return self.lifted(found), torch.eye(len(self.axes_y))

    @property
    def padded(self) -> bool:
        return self.axes_y.shape[1] > len(self.axes_y)

    def subset(self, rows: int) -> Problem:
        """The problem on the first rows of the sample, which is in random order, without seeds."""
        p = self.problem
        return p._replace(x=p.x[:rows], y=p.y[:rows], known=None)


def _view(method: HGA, x: Tensor, y: Tensor, seeds: Pairs, generator: TorchGenerator, device: str) -> _View:
    """Raise :class:`InputError` where a side is a single point; otherwise the two sides, ready to be searched."""
    import torch

    from relcore.ops.climb import Problem
    from relcore.ops.neighbors import unit_rows

    notes: list[str] = []
    sides = [unit_rows(v.to(device)) for v in (x, y)]
    seen = [unit_rows(v - v.mean(0)) if method.center else v for v in sides]
    for name, v, given in (("A", seen[0], sides[0]), ("B", seen[1], sides[1])):
        if float((given - given[0]).abs().max()) < 1e-5 or float(v.abs().max()) < 1e-5:
            raise InputError(
                f"all {len(v)} rows of {name} are one point on the sphere: there is no shape to align; "
                "check the file, or the preprocessing."
            )
    axes_x, axes_y = _axes(method, *seen, notes)
    near = [unit_rows(v @ a) for v, a in zip(seen, (axes_x, axes_y), strict=True)]
    rows = [torch.randperm(len(v), generator=generator)[: method.sample].to(device) for v in sides]
    for name, v in (("A", x), ("B", y)):
        if len(v) > method.sample:
            notes.append(f"searched on {method.sample} of {len(v)} rows of {name}; the map is applied to all")
    pairs = torch.from_numpy(seeds.array.copy()).to(device)
    known = (near[0][pairs[:, 0]], near[1][pairs[:, 1]]) if len(pairs) else None
    proper = None
    if not method.reflections:
        if axes_x.shape[0] == axes_x.shape[1] == axes_y.shape[0]:
            proper = torch.linalg.det(axes_x).sign() * torch.linalg.det(axes_y).sign()
        else:
            notes.append("reflections: a turn and a reflection differ only where both sides fill all dimensions")
    problem = Problem(near[0][rows[0]], near[1][rows[1]], None, known, method.seed_weight, proper)
    judge = problem._replace(x=problem.x[:JUDGES], y=problem.y[:JUDGES], known=None)
    floor = _floor(method.sigma_last, problem)
    if floor > method.sigma_last:
        notes.append(
            f"bandwidth raised from {method.sigma_last:g} to {floor:g}: below it no row is within reach of another and "
            "the gradient vanishes"
        )
    return _View(*sides, axes_x, axes_y, *near, problem, judge, pairs, floor, notes)


def _axes(method: HGA, x: Tensor, y: Tensor, notes: list[str]) -> tuple[Tensor, Tensor]:
    """Orthonormal columns (d_x, d), (d_y, d) to search in; beyond a side's own dimensions they are zero."""
    import torch

    from relcore.ops.linalg import principal_axes

    dx, dy = x.shape[1], y.shape[1]
    whole = method.mode == "paper" or method.dims == 0 or not method.reflections and dx == dy
    if method.mode == "paper":
        axes = [torch.eye(d, device=x.device) for d in (dx, dy)]
    else:
        # directions without extent stay out, unless all are wanted
        tolerance = -1.0 if whole else 1e-3
        axes = [principal_axes(v.T @ v / len(v), v.shape[1] if whole else method.dims, tolerance)[0] for v in (x, y)]
    widths = [a.shape[1] for a in axes]
    if whole:
        d = max(widths)
        if dx != dy:
            notes.append(f"dimensions differ ({dx} and {dy}): the smaller side is filled up with zeros")
    else:
        d = min(widths)
        if dx != dy:
            notes.append(f"dimensions differ ({dx} and {dy}): searched in {d} leading axes of each side")
        if d < min(2, dx, dy):
            notes.append("a side lies on a line: no more than a direction can be aligned")
    return tuple(torch.nn.functional.pad(a[:, :d], (0, d - min(d, a.shape[1]))) for a in axes)


def _floor(sigma: float, problem: Problem) -> float:
    """The bandwidth, or the first above it on the ladder, at which rows have others of their own side within reach."""
    from relcore.ops.kernel import kernel_sums

    for wider in (sigma, *sorted(s for s in (*LADDER, WIDEST) if s > sigma)):
        if all(float(kernel_sums(v, v, wider).mean()) - 1 >= WITHIN_REACH for v in (problem.x, problem.y)):
            return wider
    return wider


def _ladder(first: float, last: float, floor: float) -> tuple[float, ...]:
    """Bandwidths from the first to the last, none below the floor."""
    steps = (first, *(s for s in LADDER if last < s < first), last) if first > last else (last,)
    return tuple(dict.fromkeys(max(s, floor) for s in steps))


# ---------------------------------------------------------------- the pool of restarts


@dataclass(eq=False)
class _Pool:
    """Restarts that climbed to the end: number, where from, map, score at the judging bandwidth, and what the seeds
    say of it (a log likelihood, 0 without seeds)."""

    rows: Tensor  # unit rows of x that maps are compared on
    ids: list[int] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    maps: list[Tensor] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    evidence: list[float] = field(default_factory=list)
    preferred: int | None = None  # the one that a tie was decided for

    def add(self, ids: list[int], source: str, maps: Tensor, scores: Tensor, evidence: list[float]) -> None:
        self.ids += ids
        self.sources += [source] * len(ids)
        self.maps += list(maps)
        self.scores += scores.tolist()
        self.evidence += evidence

    def replace(self, i: int, found: Tensor, score: float) -> None:
        """A restart moved on; it stays what was chosen."""
        self.maps[i], self.scores[i], self.preferred = found, score, i

    def values(self) -> np.ndarray:
        """What decides between restarts: the log score, and the seeds' word."""
        return np.log(np.maximum(self.scores, 1e-30)) + np.array(self.evidence) / LOG_SCORE

    @property
    def best(self) -> int:
        return int(np.argmax(self.values())) if self.preferred is None else self.preferred

    def alike(self) -> np.ndarray:
        """Which restarts ended in the best solution."""
        import torch

        from relcore.ops.climb import SAME, agreement

        return (agreement(torch.stack(self.maps), self.maps[self.best], self.rows) > SAME).cpu().numpy()

    def margin(self) -> float | None:
        """How far the best is above the best different solution, in log score; None where all are alike."""
        values, other = self.values(), ~self.alike()
        return float(values[self.best] - values[other].max()) if other.any() else None

    def settled(self, agree: int) -> bool:
        """Enough restarts agree, and nothing else comes near."""
        if not agree or int(self.alike().sum()) < agree:
            return False
        margin = self.margin()
        return margin is None or margin >= MARGIN

    def leaders(self, count: int) -> list[int]:
        """Positions of the best different solutions, best first."""
        import torch

        from relcore.ops.climb import distinct

        return distinct(torch.stack(self.maps), torch.from_numpy(self.values()), self.rows, count).tolist()


class _Watch:
    """Counts steps, and keeps the best score and map so far for those who look on."""

    def __init__(self, view: _View, total: int):
        self.view, self.total, self.done = view, total, 0
        self.score, self.found, self.best = 0.0, None, None

    def steps(
        self,
        phase: str,
        sigmas: tuple[float, ...],
        ids: list[int],
        scores: Tensor,
        maps: Tensor | None,
        kept: list[int] | None = None,
        gone: tuple[int, ...] = (),
    ) -> Iterator[Step]:
        """A step for each stage of a chunk: scores (stages, b), and the maps its last stage left, if they go on.

        Given up after the last stage are those of the chunk that are not ``kept``, if it is given, and ``gone``.
        """
        if kept is not None:
            gone = tuple(sorted(set(ids) - set(kept)))
        table = scores.cpu().double().numpy()
        for i, (sigma, row) in enumerate(zip(sigmas, table, strict=True)):
            last, snapshot = i == len(table) - 1, None
            if last and maps is not None:
                top = int(np.argmax(row))
                if self.found is None or row[top] > self.score:
                    self.score, self.best, self.found = float(row[top]), ids[top], maps[top]
                snapshot = Snapshot(*self.view.coordinates(self.found), moving="x")
            self.done += 1
            metrics = {"sigma": float(sigma), "score": self.score}
            restarts = Restarts(np.array(ids), row, gone if last else (), self.best)
            yield Step(self.done, max(self.total, self.done), phase, metrics, snapshot, restarts)


# ---------------------------------------------------------------- informed


def _informed(
    method: HGA,
    x: Tensor,
    y: Tensor,
    seeds: Pairs,
    generator: TorchGenerator,
    device: str,
    workers: Workers,
    seeds_only: bool = False,
) -> Generator[Step, None, Alignment]:
    view = _view(method, x, y, seeds, generator, device)
    search = _Informed(method, view, generator, seeds_only)
    yield from search.from_seeds()
    if not seeds_only:
        yield from search.from_shapes()
        yield from search.at_random(workers)
    yield from search.on_sample()
    if not seeds_only:
        yield from search.exchange()
    yield from search.stir()
    return (yield from search.finish(x, y))


def _random_chunk(task: tuple) -> Chunk:
    """In whatever process: a task of :meth:`_Informed.at_random`."""
    from relcore.ops import climb

    return climb.random_chunk(*task)


class _Informed:
    """One search; each phase is a generator of steps that adds to the pool."""

    def __init__(self, method: HGA, view: _View, generator: TorchGenerator, seeds_only: bool):
        import torch

        from relcore.ops import climb, starts

        self.method, self.view, self.generator = method, view, generator
        p, floor = view.problem, view.floor
        self.free = p._replace(known=None)
        self.seeds_only, self.begun = seeds_only, None
        self.ladder = _ladder(method.sigma_first, method.sigma_last, floor)
        self.pool = _Pool(p.x)
        self.chunks = math.ceil(method.restarts / climb.CHUNK)
        landmarks = None
        if not seeds_only and self.chunks:
            sides = []
            for v in (p.x, p.y):
                centroids, share = starts.kmeans(v, min(method.landmarks, max(2, len(v) // 4), len(v)), generator)
                sides.append((climb.neighbors.unit_rows(centroids), share))
            (cx, a), (cy, b) = sides
            landmarks = self.free._replace(x=cx, y=cy, weights=(a, b))
        sizes = [POINTS[min(i, len(POINTS) - 1)] for i in range(len(self.ladder))]
        self.plan = climb.Plan(
            landmarks=landmarks,
            landmark_stages=tuple((max(s, floor), n) for s, n in LANDMARK_STAGES),
            points=tuple(view.subset(size) for size in sizes),
            point_stages=tuple((sigma, ITERATIONS) for sigma in self.ladder),
            judge=view.judge,
            finalists=FINALISTS,
            seed=int(torch.randint(SEARCH_SEED, (), generator=generator)),
        )
        total = (len(ANCHOR_STAGES) + 2 * len(self.ladder)) * bool(len(view.pairs)) + 2
        if not seeds_only:
            total += len(self.ladder) + SWAP_ROUNDS + method.stirs
            total += self.chunks * (len(LANDMARK_STAGES) + len(self.ladder)) + self.chunks // 4
        self.watch = _Watch(view, total)

    def evidence(self, maps: Tensor) -> list[float]:
        known = self.view.problem.known
        return [0.0] * len(maps) if known is None else [_likelihood(_ratios(m, known, self.view.judge.y)) for m in maps]

    def from_seeds(self) -> Iterator[Step]:
        """Procrustes on the seeds, then the ascent with them in the objective: wrong ones drop out of its reach."""
        import torch

        from relcore.ops import climb

        if self.view.problem.known is None:
            return
        p, q = self.view.problem.known
        maps, scores = self._climb_with((p, q))
        half = len(p) // 2
        evidence = [0.0]
        if half >= 2:  # a map may not speak for the seeds it was fitted to: each half is judged by the other's
            order = np.arange(len(p))
            parts = [(p[order % 2 == i], q[order % 2 == i]) for i in (0, 1)]
            fits = [self._climb_with(part)[0][0] for part in parts]
            evidence = [
                _likelihood(torch.cat([_ratios(m, parts[1 - i], self.view.judge.y) for i, m in enumerate(fits)]))
            ]
        number = self.method.restarts
        self.pool.add([number], "seeds", maps, scores[-1], evidence)
        sigmas = (*(max(s, self.view.floor) for s, _ in ANCHOR_STAGES), *self.ladder)
        yield from self.watch.steps("from the seeds", sigmas, [number], scores, maps)
        # let go of the seeds: a summit of the shapes alone, which cannot bend to wrong seeds, though led by them
        free = climb.on_points(self.plan, maps)
        led = [e - LED for e in self.evidence(free.maps)]
        self.pool.add([number + 1], "led by seeds", free.maps, free.scores[-1], led)
        yield from self.watch.steps("the seeds let go", self.ladder, [number + 1], free.scores, free.maps)

    def _climb_with(self, known: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        from relcore.ops import climb, linalg

        p = self.view.subset(POINTS[-1])._replace(known=known)
        start = linalg.polar((known[0].T @ known[1])[None], p.proper)
        stages = tuple((max(s, self.view.floor), n) for s, n in ANCHOR_STAGES)
        return climb.climb(p, start, (*stages, *self.plan.point_stages), self.view.judge)

    def from_shapes(self) -> Iterator[Step]:
        """Starts from distances within each side, and from the skewness along its axes."""
        import torch

        from relcore.ops import climb, linalg, starts

        p = self.free
        begin = [starts.profile_match(p.x, p.y, p.proper), linalg.polar(starts.skewed_signs(p.x, p.y), p.proper)]
        k = min(CENTROIDS, max(2, len(p.x) // 4), max(2, len(p.y) // 4), len(p.x), len(p.y))
        for _ in range(CENTROID_DRAWS):
            begin.append(starts.matched_centroids(p.x, p.y, CENTROID_STARTS, k, self.generator, proper=p.proper))
        begin = torch.cat(begin)
        ids = [self.method.restarts + 2 + i for i in range(len(begin))]
        found = climb.on_points(self.plan, begin)
        self.pool.add(ids, "shapes", found.maps, found.scores[-1], self.evidence(found.maps))
        yield from self.watch.steps("from the shapes", self.ladder, ids, found.scores, found.maps, ids)

    def at_random(self, workers: Workers) -> Iterator[Step]:
        """Chunks of random restarts, looked at in their order until enough agree."""
        from relcore.ops import climb

        tasks = []
        for number in range(self.chunks):
            ids = list(range(number * climb.CHUNK, min((number + 1) * climb.CHUNK, self.method.restarts)))
            tasks.append((self.plan, ids, number % 4 == 3))
        if not tasks or self.pool.settled(self.method.agree):
            return
        with contextlib.closing(workers.in_order(_random_chunk, tasks)) as chunks:
            for (_, ids, anywhere), chunk in zip(tasks, chunks, strict=True):
                kept = [ids[i] for i in chunk.finalists.tolist()]
                self.pool.add(kept, "random", chunk.maps, chunk.scores[-1], self.evidence(chunk.maps))
                sigmas = (*((1.0,) if anywhere else ()), *(s for s, _ in self.plan.landmark_stages))
                scores = chunk.landmark_scores
                yield from self.watch.steps("random starts on centroids", sigmas, ids, scores, None, kept)
                yield from self.watch.steps("their best on points", self.ladder, kept, chunk.scores, chunk.maps)
                if self.pool.settled(self.method.agree):
                    return

    def on_sample(self) -> Iterator[Step]:
        """The best different solutions climb once more, on all rows of the sample, and are compared there."""
        import torch

        from relcore.ops import climb

        leaders = self.pool.leaders(FINALISTS)
        stage = ((self.ladder[-1], ITERATIONS),)
        for i in leaders:
            problem = self.view.problem if self.pool.sources[i] == "seeds" else self.free
            found = climb.climb(problem, self.pool.maps[i][None], stage, self.view.judge)
            self.pool.maps[i], self.pool.scores[i] = found.maps[0], float(found.scores[0, 0])
        maps = torch.stack([self.pool.maps[i] for i in leaders])
        scores = torch.tensor([[self.pool.scores[i] for i in leaders]])
        ids = [self.pool.ids[i] for i in leaders]
        yield from self.watch.steps("the best on all rows of the sample", (self.ladder[-1],), ids, scores, maps)

    def exchange(self) -> Iterator[Step]:
        """Exchange the images of two clusters where that scores higher: the nearest wrong solutions are such swaps."""
        from relcore.ops import climb

        some, more = self.view.subset(POINTS[0] // 2), self.view.subset(POINTS[0])
        sigmas = self.ladder[: max(1, len(self.ladder) - 1)]
        for number in range(SWAP_ROUNDS):
            best = self.pool.best
            start = climb.swapped(more, self.pool.maps[best], SWAP_CLUSTERS, self.generator)
            if not len(start):
                return
            tried = [
                climb.climb(some, part, ((self.ladder[0], 3),), self.view.judge) for part in start.split(climb.CHUNK)
            ]
            scores = climb.torch.cat([t.scores[-1] for t in tried])
            maps = climb.torch.cat([t.maps for t in tried])
            top = climb.distinct(maps, scores, self.pool.rows, SWAP_KEPT)
            found = climb.climb(more, maps[top], tuple((s, 4) for s in sigmas), self.view.judge)
            top = climb.distinct(found.maps, found.scores[-1], self.pool.rows, 3)
            found = climb.climb(self.free, found.maps[top], ((self.ladder[-1], ITERATIONS),), self.view.judge)
            first = self.method.restarts + 1000 * (number + 1)
            ids = [first + i for i in range(len(top))]
            before = self.pool.values()[best]
            self.pool.add(ids, "exchange", found.maps, found.scores[-1], self.evidence(found.maps))
            yield from self.watch.steps("clusters exchanged", (self.ladder[-1],), ids, found.scores, found.maps)
            if self.pool.values().max() <= before + GAIN:
                return

    def stir(self) -> Iterator[Step]:
        """Where no summit stands out: from several of them, turns of matching and Procrustes on halves of the rows.

        Which of them got anywhere is told by the coordinates that the search left out, and by them alone.
        """
        import torch

        from relcore.ops import climb, linalg

        view, pool = self.view, self.pool
        self._decide()
        best = pool.maps[pool.best]
        rows, known = self._last_rows(_trusted(view, best))
        sides = [v[r[:LEFT_OUT_ROWS]] for v, r in zip((view.x, view.y), rows, strict=True)]
        before = self._left_out(sides, best)
        if not self.method.stirs or before is None or before.z >= CLEAR or self._stands_out():
            return
        if known is not None and len(known) > min(map(len, sides)):
            return
        led = [i for i, source in enumerate(pool.sources) if source == "seeds"]
        chosen = led if self.seeds_only else list(dict.fromkeys(pool.leaders(self.method.stirs) + led))
        top = None
        for i in chosen:
            turned = climb.stir(*sides, view.lifted(pool.maps[i]).to(view.x.device), STIRS, self.generator, known=known)
            turned, _ = climb.polish(*sides, turned, 3, known=known)
            within = linalg.polar((view.axes_x.T @ turned @ view.axes_y)[None], view.problem.proper)
            evidence = self._left_out(sides, within[0])
            if evidence is not None and evidence.z > (ELSEWHERE if top is None else top[0]):
                top = (evidence.z, within, turned)
            self.watch.done += 1
            metrics = {"sigma": self.ladder[-1], "score": self.watch.score}
            snapshot = Snapshot(turned.cpu(), torch.eye(len(view.axes_y)), moving="x")
            total = max(self.watch.total, self.watch.done)
            yield Step(self.watch.done, total, "turns on halves of the rows", metrics, snapshot)
            if top is not None and top[0] >= CLEAR:
                break
        if top is not None and top[0] > before.z:
            _, within, self.begun = top
            summit = climb.climb(self.free, within, ((self.ladder[-1], ITERATIONS),), view.judge)
            pool.add(
                [self.method.restarts + STIRRED_ID], "turns", summit.maps, summit.scores[-1], self.evidence(summit.maps)
            )
            pool.preferred = len(pool.ids) - 1

    def _stands_out(self) -> bool:
        """Is the best summit, in the eyes of the verdict, good enough to leave it at that?"""
        figures = _confidence(self.view, self.pool, self.pool.maps[self.pool.best])
        clear = figures["votes"] >= 3 and figures.get("margin", 0.0) >= MARGIN
        return not self.seeds_only and clear and figures["fit"] >= FILLED

    def finish(self, x: Tensor, y: Tensor) -> Generator[Step, None, Alignment]:
        """Turns of mutual neighbours in all dimensions, on the map that the pool agrees on."""
        import torch

        from relcore.ops import climb, linalg

        method, view, pool = self.method, self.view, self.pool
        if self.begun is None:
            self._decide()
        best = pool.maps[pool.best]
        right = _trusted(view, best)
        rows, known = self._last_rows(right)
        sides = [v[r] for v, r in zip((view.x, view.y), rows, strict=True)]
        found = view.lifted(best).to(view.x.device) if self.begun is None else self.begun
        evidence = self._left_out(sides, best)  # before the last turns, which match by all coordinates
        proper = None
        if not method.reflections and found.shape[0] == found.shape[1]:
            proper = torch.ones((), device=found.device)
        turned, _ = climb.polish(*sides, found, method.polish, known=known, proper=proper)
        notes = list(view.notes)
        within = linalg.polar((view.axes_x.T @ turned @ view.axes_y)[None], view.problem.proper)[0]
        if float(climb.agreement(within[None], best, view.problem.x)) <= climb.SAME:
            # the turns went elsewhere: good only if what they found explains what the search left out
            elsewhere = self._left_out(sides, within)
            if elsewhere is not None and elsewhere.z > max(ELSEWHERE, evidence.z if evidence is not None else 0.0):
                evidence = elsewhere
                notes.append("the last turns left the solution found for a better one")
                stage = ((self.ladder[-1], ITERATIONS),)
                summit = climb.climb(self.free, within[None], stage, view.judge)
                pool.replace(pool.best, summit.maps[0], float(summit.scores[0, 0]))
            else:
                turned, within = found, best
                notes.append("the last turns left the solution found, for no better one, and were undone")
        turned = turned.cpu()
        confidence = _confidence(view, pool, within)
        if evidence is not None:
            confidence |= {
                "left_out": evidence.excess,
                "left_out_z": evidence.z,
                "left_out_pairs": float(evidence.pairs),
            }
        notes += _about_seeds(view, _trusted(view, within)) + _about(confidence)
        self.watch.done += 1
        stay = torch.eye(y.shape[1])
        yield Step(
            self.watch.done,
            self.watch.done,
            "last turns in all dimensions",
            {"sigma": self.ladder[-1], "score": self.watch.score},
            Snapshot(turned, stay, moving="x"),
        )
        return Alignment(
            x=x @ turned,
            y=y.clone(),
            encode_x=Linear(turned),
            encode_y=Linear(stay),
            map=turned,
            confidence=confidence,
            notes=notes,
        )

    def _last_rows(self, right: Tensor) -> tuple[list[Tensor], Tensor | None]:
        """Rows for the last turns, in random order, with the seeds that are trusted among them; and where those are."""
        import torch

        view, most = self.view, self.method.polish_rows
        pairs = view.pairs[right.to(view.pairs.device)]
        rows = []
        for i, (v, some) in enumerate(((view.x, most), (view.y, WIDER * most))):
            drawn = torch.randperm(len(v), generator=self.generator)[:some].to(v.device)
            rows.append(torch.cat([pairs[:, i], drawn[~torch.isin(drawn, pairs[:, i])]]))
        first = torch.arange(len(pairs), device=view.pairs.device)
        return rows, torch.stack([first, first], 1) if len(pairs) else None

    def _left_out(self, sides: list[Tensor], found: Tensor) -> LeftOut | None:
        from relcore.ops import climb

        view = self.view
        some = [v[:rows] for v, rows in zip(sides, (LEFT_OUT_ROWS, WIDER * LEFT_OUT_ROWS), strict=True)]
        return climb.left_out(*some, view.axes_x, view.axes_y, found)

    def _decide(self) -> None:
        """Choose between the best different solutions by their scores on all rows of the sample.

        Where two score alike, a wider bandwidth decides: it tells classes apart that look alike.
        """
        import torch

        from relcore.ops import kernel

        pool, p = self.pool, self.view.problem
        leaders = pool.leaders(RIVALS)
        maps = torch.stack([pool.maps[i] for i in leaders])
        for i, score in zip(leaders, kernel.objective(maps, p.x, p.y).tolist(), strict=True):
            pool.scores[i] = score
        values = pool.values()[leaders]
        near = np.flatnonzero(values > values.max() - TIE)
        wide = kernel.objective(maps[torch.from_numpy(near)], p.x, p.y, TIE_SIGMA).cpu().numpy()
        pool.preferred = leaders[near[int(np.argmax(wide))]]


# ---------------------------------------------------------------- the paper's search


def _paper(
    method: HGA, x: Tensor, y: Tensor, seeds: Pairs, generator: TorchGenerator, device: str, workers: Workers
) -> Generator[Step, None, Alignment]:
    import torch

    from relcore.ops import climb, linalg, starts

    view = _view(method, x, y, seeds, generator, device)
    p = view.problem
    base = int(torch.randint(SEARCH_SEED, (), generator=generator))
    ids = list(range(method.random_starts))
    begin = starts.random_orthogonal(p.x.shape[1], ids, base, method.reflections).to(p.x.device)
    if p.known is not None:
        begin[0] = linalg.polar((p.known[0].T @ p.known[1])[None], p.proper)[0]
    chunks = [(ids[i : i + climb.CHUNK], begin[i : i + climb.CHUNK]) for i in range(0, len(ids), climb.CHUNK)]
    sigmas = _ladder(method.sigma_start, method.sigma_last, view.floor)
    angles = _cosine(method.step_first, method.step_last, method.ascent_steps)
    parts = [angles[i : i + CHUNK_STEPS] for i in range(0, len(angles), CHUNK_STEPS)]
    watch = _Watch(view, len(sigmas) * len(parts) * len(chunks))
    given_up = 0
    scores = torch.zeros(len(ids))
    for stage, sigma in enumerate(sigmas):
        left = len(chunks) * len(parts)
        tasks = [(p, maps, sigma, parts, view.judge) for _, maps in chunks]
        with contextlib.closing(_ascended(workers, tasks)) as ascended:
            for number, maps, score in ascended:
                some = chunks[number][0]
                scores[some] = score[-1].cpu()
                chunks[number] = (some, maps)
                left -= 1
                gone: tuple[int, ...] = ()
                if not left and stage == len(sigmas) - 2:
                    chunks, gone = _without_hopeless(chunks, scores, method.give_up)
                    given_up = len(gone)
                yield from watch.steps(f"ascent at {sigma:g}", (sigma,), some, score, maps, gone=gone)
    pool = _Pool(p.x)
    for some, maps in chunks:
        pool.add(some, "random", maps, scores[some], [0.0] * len(some))
    best = pool.maps[pool.best]
    notes = list(view.notes)
    if given_up:
        notes.append(f"{given_up} of {len(ids)} restarts were given up before the last bandwidth")
    confidence = _confidence(view, pool, best)
    turn, stay = view.coordinates(best)
    return Alignment(
        x=x @ turn,
        y=y @ stay,
        encode_x=Linear(turn),
        encode_y=Linear(stay),
        map=view.lifted(best),
        confidence=confidence,
        notes=notes + _about_seeds(view, _trusted(view, best)) + _about(confidence),
    )


def _ascended(workers: Workers, tasks: list[tuple]) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Number, maps and scores of each chunk after each part of its steps, in the same order whatever runs where."""
    if workers != Workers():
        for number, found in enumerate(workers.in_order(_ascend, tasks)):
            yield from ((number, maps, score) for maps, score in found)
        return
    for number, (p, maps, sigma, parts, judge) in enumerate(tasks):  # part by part, to be watched
        for part in parts:
            ((maps, score),) = next(workers.in_order(_ascend, [(p, maps, sigma, [part], judge)]))
            yield number, maps, score


def _ascend(task: tuple) -> list[tuple[Tensor, Tensor]]:
    """In whatever process: maps and scores of a chunk after each part of its steps at one bandwidth."""
    from relcore.ops import climb

    p, maps, sigma, parts, judge = task
    found = []
    for part in parts:
        maps, score = climb.ascend(p, maps, sigma, part, judge)
        found.append((maps, score))
    return found


def _cosine(first: float, last: float, steps: int) -> tuple[float, ...]:
    return tuple(last + (first - last) * (1 + math.cos(math.pi * t / steps)) / 2 for t in range(steps))


def _without_hopeless(chunks: list, scores: Tensor, share: float) -> tuple[list, tuple[int, ...]]:
    """Chunks less the restarts that score below a share of the best, and those."""
    bar = share * float(scores.max())
    out, gone = [], ()
    for some, maps in chunks:
        stay = [i for i, restart in enumerate(some) if float(scores[restart]) >= bar]
        gone += tuple(restart for restart in some if float(scores[restart]) < bar)
        if stay:
            out.append(([some[i] for i in stay], maps[stay]))
    return out, gone


# ---------------------------------------------------------------- what is said of the result


def _ratios(found: Tensor, known: tuple[Tensor, Tensor], others: Tensor) -> Tensor:
    """How much nearer each known partner is under a map (d, d) than a row drawn at random: kernel over mean kernel."""
    from relcore.ops import kernel

    image, partner = known[0] @ found, known[1]
    near = kernel.geodesic((image * partner).sum(1), LIKELY_SIGMA)[0]
    usual = kernel.kernel_sums(image, others, LIKELY_SIGMA) / len(others)
    return near / usual.clamp_min(1e-12)


def _likelihood(ratios: Tensor) -> float:
    """Log likelihood ratio of known pairs against partners drawn at random, at the likeliest share of wrong ones.

    Never below 0: if all are wrong, they say nothing for or against a map. A wrong pair costs little among many, a
    right one weighs much among few.
    """
    import torch

    wrong = torch.linspace(0.02, 1, 50, device=ratios.device)[:, None]
    return float(torch.log(wrong + (1 - wrong) * ratios).sum(1).max())


def _trusted(view: _View, found: Tensor) -> Tensor:
    """bool (p,): seeds whose partner is nearer under the map than a row drawn at random would be."""
    import torch

    if view.problem.known is None:
        return torch.zeros(0, dtype=torch.bool)
    return (_ratios(found, view.problem.known, view.judge.y) >= 1).cpu()


def _about_seeds(view: _View, right: Tensor) -> list[str]:
    wrong = view.pairs[~right].cpu().tolist()
    if not wrong:
        return []
    named = ", ".join(f"{i}-{j}" for i, j in wrong[:NAMED])
    more = f" and {len(wrong) - NAMED} more" if len(wrong) > NAMED else ""
    return [
        f"{len(wrong)} of {len(view.pairs)} seeds look wrong: under the map their partners are farther than a row "
        f"drawn at random (positions, A-B: {named}{more})"
    ]


def _confidence(view: _View, pool: _Pool, final: Tensor) -> dict[str, float]:
    """Label-free figures, by name.

    - ``score`` : J of the best summit of the search, at the judging bandwidth, on all rows of the sample.
    - ``margin`` : its log above that of the best different summit (with what the seeds say); absent if there is none,
      below 0 where other evidence was stronger.
    - ``votes`` of ``restarts`` that climbed to the end are at this summit.
    - ``fit`` : J of the map in the end over the geometric mean of J within each side, at most 1.
    """
    import torch

    from relcore.ops import kernel

    p, eye = view.problem, torch.eye(view.problem.x.shape[1], device=view.problem.x.device)[None]
    best, leaders = pool.best, pool.leaders(RIVALS)
    alike = pool.alike()
    score, reached = kernel.objective(torch.stack([pool.maps[best], final]), p.x, p.y).tolist()
    within = 1.0
    for v in (p.x, p.y):
        # a row beside itself says nothing of the other side's rows, and weighs much where rows are few
        whole = float(kernel.objective(eye, v, v))
        within *= max((len(v) * whole - 1) / max(len(v) - 1, 1), whole / 10, 1e-30)
    out = {
        "score": score,
        "fit": min(reached / math.sqrt(within), 1.0),
        "votes": float(alike.sum()),
        "restarts": float(len(pool.maps)),
    }
    rivals = [i for i in leaders if not alike[i]]
    if rivals:  # on all rows of the sample: closer than the scores of the search
        scores = [float(kernel.objective(pool.maps[i][None], p.x, p.y)) for i in rivals]
        gaps = [
            math.log(max(score, 1e-30) / max(s, 1e-30)) + (pool.evidence[best] - pool.evidence[i]) / LOG_SCORE
            for i, s in zip(rivals, scores, strict=True)
        ]
        out["margin"] = min(gaps)
    return out


def _about(confidence: dict[str, float]) -> list[str]:
    margin = confidence.get("margin")
    if margin is not None and margin < MARGIN:
        return [
            f"ambiguous: a different alignment scores {math.exp(-margin):.1%} of this one; "
            "a few known pairs would tell them apart"
        ]
    return []


def _estimate(method: HGA, n: int, m: int, dx: int, dy: int, seeds: int) -> Cost:
    p, q = min(n, method.sample), min(m, method.sample)
    judge = (min(p, JUDGES), min(q, JUDGES))
    rows = 4.0 * (4 * n * dx + 4 * m * dy)
    prepared = 1e-10 * (n * dx * dx + m * dy * dy) + 2e-9 * (n * dx + m * dy)
    if method.mode == "paper":
        d, stages = max(dx, dy), len(_ladder(method.sigma_start, method.sigma_last, 0.0))
        one = stages * method.ascent_steps * costs.angle_step(p, q, d)
        one += stages * math.ceil(method.ascent_steps / CHUNK_STEPS) * costs.angle_score(*judge, d)
        memory = rows + 4.0 * (8 * 32 * d * d + 4e6)
        return Cost(memory, prepared + method.random_starts * one, prepared + one)
    whole = method.dims == 0 or not method.reflections and dx == dy
    d = max(dx, dy) if whole else min(method.dims, dx, dy)
    ladder = _ladder(method.sigma_first, method.sigma_last, 0.0)
    score = costs.angle_score(*judge, d)
    sizes = [POINTS[min(i, len(POINTS) - 1)] for i in range(len(ladder))]
    on_points = sum(ITERATIONS * costs.chord_step(min(p, s), min(q, s), d) + score for s in sizes)
    on_landmarks = sum(i * costs.chord_step(method.landmarks, method.landmarks, d) + score for _, i in LANDMARK_STAGES)
    on_sample = ITERATIONS * costs.chord_step(p, q, d) + score
    swaps = SWAP_CLUSTERS * (SWAP_CLUSTERS - 1) / 2 * (3 * costs.chord_step(128, 128, d) + score) + 2 * on_points
    shapes = (2 + CENTROID_DRAWS * CENTROID_STARTS) * on_points + 6e-8 * (p * p + q * q)
    chunks = method.restarts / 32 * (32 * on_landmarks + FINALISTS * on_points)
    if method.agree:
        chunks /= 2  # some searches end early
    wide = (min(n, method.polish_rows), min(m, WIDER * method.polish_rows))
    half = (min(n, LEFT_OUT_ROWS), min(m, LEFT_OUT_ROWS))
    stir = STIRS * costs.both_ways(half[0] / 2, half[1] / 2, min(dx, dy)) + 3 * costs.both_ways(*half, min(dx, dy))
    stir *= method.stirs / 3  # most searches need none
    turns = min(method.polish, 8) * (costs.both_ways(*wide, min(dx, dy)) + costs.decomposition(dx, dy))
    left = 2 * costs.both_ways(min(n, LEFT_OUT_ROWS), min(m, WIDER * LEFT_OUT_ROWS), d)
    led = 4 * (on_points + sum(i * costs.chord_step(384, 384, d) + score for _, i in ANCHOR_STAGES)) if seeds else 0.0
    last = FINALISTS * on_sample + turns + left
    return Cost(
        memory=rows + 16.0 * (p * p + q * q) + 1.5e8,
        seconds=prepared + shapes + chunks + 1.5 * swaps + led + stir + last,
        check=prepared + led + last,
    )
