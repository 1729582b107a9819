"""Entropic optimal transport between two sets of factors: a cost, a problem, a solver, and the coupling it finds.

    cost = cosine(x, y)
    solver = Solver(Problem(cost, cost.epsilon(0.05)))
    for state in solver:                       # iteration, error, phase, seconds
        ...
    solver.output.coupling.top_k(10)           # or solve(problem) for all of it at once

The plan minimises ``<C, pi> + epsilon KL(pi | a b')`` with both marginals given, or, where a strength rho is given,
with ``rho KL`` of that marginal to the given one in its place. It is ``a_i b_j exp((f_i + g_j - C_ij) / epsilon)`` and
is never held: what is kept is f, g and the factors of the cost.

How it is solved: Sinkhorn's iteration on ``x = g / epsilon``, accelerated by Anderson's method. The kernel is held in
absorbed form, ``exp((f + g - C) / epsilon)`` at earlier potentials, so that an iteration is two matrix-vector products
and nothing underflows; where it would not fit in the memory allowed, it is rebuilt from the factors in tiles. A large
problem starts from the solution of a sample. Float32 where its rounding stays below the tolerance, float64 otherwise.

Sources: Cuturi, "Sinkhorn Distances", NeurIPS 2013; Schmitzer, "Stabilized Sparse Scaling Algorithms for Entropy
Regularized Transport Problems", 2019 (absorption); Walker and Ni, "Anderson Acceleration for Fixed-Point Iterations",
2011; Sejourne, Vialard and Peyre, "Faster Unbalanced Optimal Transport: Translation invariant Sinkhorn", 2022.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from relcore.ops.neighbors import topk_product

TILE_ROWS = 256  # of a tile: fewer, and the product no longer runs at its speed
TILE_ELEMENTS = 1 << 21  # of a tile, where that gives more rows
MEMORY = 1 << 30  # bytes the kernel may take, unless said otherwise
SMALL = 1 << 22  # entries of a problem solved in float64 from the start
SAMPLE = 2048  # rows of either side in the coarse problem
COARSE_ABOVE = 1 << 24  # entries of a problem from which the coarse one pays
CHECK_ALL = 1 << 24  # entries of a plan whose marginals are measured on all rows at the end
CHECK_ROWS = 128  # rows and columns they are measured on in a larger one
SHARP = 0.019  # epsilon over the median cost, below which the potentials of float32 are made exact in float64
DESCENT_BELOW = 0.005  # epsilon over the median cost, below which larger ones are solved first
DESCENT_FROM = 0.05  # the largest of these
DESCENT = 4.0  # ratio between them
DESCENT_TOLERANCE = 1e-3  # of the marginals, at each
DESCENT_CAP = 300  # iterations, at each
HISTORY = 10  # steps Anderson's method combines
RESTART = 3.0  # times the best error so far at which it starts anew from there
SMALLEST = 1e-10  # of the cost's size: below it, epsilon is lost in float64's rounding of the cost
NOISE = 2e-7  # of an exponent: error of a float32 product
SHOWS = 1e-4  # relative error of the entries of a plan
NOTHING = 1e30  # minus this stands for the log of no mass, where -inf would not be ordered
WORST_NOISE = 1e-3  # in the kernel, beyond which float32 is of no use


# ------------------------------------------------------------------------------------------------------------ the cost


@dataclass(frozen=True)
class Cost:
    """``C_ij = offset_left_i + offset_right_j - scale left_i . right_j``; made by the functions below.

    ``kind`` and ``centre`` say how a row that comes later is made into a factor.
    """

    kind: str
    left: Tensor  # (n, r)
    right: Tensor  # (m, r)
    offset_left: Tensor  # float64 (n,)
    offset_right: Tensor  # float64 (m,)
    scale: float
    centre: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.left), len(self.right)

    @property
    def swapped(self) -> Cost:
        """The two sides exchanged."""
        return replace(
            self, left=self.right, right=self.left, offset_left=self.offset_right, offset_right=self.offset_left
        )

    def with_left(self, rows: Tensor) -> Cost:
        """The same cost from other rows."""
        left, offset = _factors(rows, self.kind, self.centre)
        return replace(self, left=left.to(self.left.dtype), offset_left=offset)

    def part(self, rows: Tensor | slice, columns: Tensor | slice) -> Cost:
        """The cost between some rows and some columns."""
        return replace(
            self,
            left=self.left[rows],
            right=self.right[columns],
            offset_left=self.offset_left[rows],
            offset_right=self.offset_right[columns],
        )

    def dense(self) -> Tensor:
        """The whole matrix, float64."""
        product = self.left.double() @ self.right.double().T
        return product.mul_(-self.scale).add_(self.offset_right).add_(self.offset_left[:, None])

    @cached_property
    def size(self) -> float:
        """Magnitude of the terms that a cost is the sum of: its rounding is relative to this."""
        norms = [torch.linalg.vector_norm(t, dim=1).max().item() for t in (self.left, self.right)]
        offsets = (self.offset_left.abs().max() + self.offset_right.abs().max()).item()
        return max(offsets, self.scale * norms[0] * norms[1])

    def spread(self, seed: int = 0, pairs: int = 1_000_000) -> tuple[float, float]:
        """Median and range of the cost over about ``pairs`` pairs: all of some rows with all of some columns."""
        n, m = self.shape
        rows = min(n, max(math.isqrt(pairs), pairs // m))
        columns = min(m, max(1, pairs // rows))
        values = self.part(
            _draw(n, rows, seed, self.left.device), _draw(m, columns, seed + 1, self.left.device)
        ).dense()
        return values.median().item(), (values.max() - values.min()).item()

    def epsilon(self, eta: float, seed: int = 0) -> float:
        """``eta`` times the median cost. Where that is 0, times the range; where all costs are equal, ``eta``."""
        median, width = self.spread(seed)
        least = 1e-6 * self.size  # what float32 factors leave of a zero
        return eta * next((value for value in (median, width) if value > least), 1.0)


def cosine(x: Tensor, y: Tensor) -> Cost:
    """``1 - cos(x_i, y_j)``. A zero row costs 1 to everything."""
    return _cost(x, y, "cosine", 1.0, None)


def dot(x: Tensor, y: Tensor) -> Cost:
    """``1 - x_i . y_j``: for factors whose product is a cosine already."""
    return _cost(x, y, "dot", 1.0, None)


def squared_euclidean(x: Tensor, y: Tensor) -> Cost:
    """``|x_i - y_j|^2``. Both sides are moved to their common mean, which leaves less to cancel."""
    centre = (x.double().mean(0) + y.double().mean(0)) / 2
    return _cost(x, y, "sqeuclidean", 2.0, centre)


def _cost(x: Tensor, y: Tensor, kind: str, scale: float, centre: Tensor | None) -> Cost:
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1]:
        raise ValueError(f"a cost needs two tables of equal width, got {tuple(x.shape)} and {tuple(y.shape)}.")
    if not len(x) or not len(y):
        raise ValueError(f"a cost needs at least one row on each side, got {len(x)} and {len(y)}.")
    (left, offset_left), (right, offset_right) = (_factors(t, kind, centre) for t in (x, y))
    dtype = torch.promote_types(left.dtype, right.dtype)
    return Cost(kind, left.to(dtype), right.to(dtype), offset_left, offset_right, scale, centre)


def _factors(rows: Tensor, kind: str, centre: Tensor | None) -> tuple[Tensor, Tensor]:
    if not torch.isfinite(rows).all():
        raise ValueError("a cost needs finite numbers, got NaN or infinite ones.")
    rows = rows if rows.dtype == torch.float64 else rows.float()
    if kind == "cosine":
        rows = rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)
    if kind == "sqeuclidean":
        rows = (rows.double() - centre).to(rows.dtype)
        return rows, rows.double().square().sum(1)
    return rows, rows.new_full((len(rows),), 0.5, dtype=torch.float64)


def _draw(n: int, k: int, seed: int, device: torch.device) -> Tensor:
    """k different of n rows, in order."""
    if k >= n:
        return torch.arange(n, device=device)
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:k].sort().values.to(device)


def _tiles(n: int, m: int) -> Iterator[slice]:
    height = max(TILE_ROWS, TILE_ELEMENTS // m)
    for start in range(0, n, height):
        yield slice(start, min(start + height, n))


def _log_sums(cost: Cost, weights: Tensor, epsilon: float, dtype: torch.dtype = torch.float64) -> Tensor:
    """``log sum_j exp(weights_j - C_ij / epsilon)`` for every row, exact at any epsilon: float64 (n,)."""
    n, m = cost.shape
    right = (cost.right.double() * (cost.scale / epsilon)).to(dtype).T.contiguous()
    weights = (weights - cost.offset_right / epsilon).to(dtype)
    out = torch.empty(n, dtype=torch.float64, device=cost.left.device)
    for rows in _tiles(n, m):
        exponent = torch.addmm(weights, cost.left[rows].to(dtype), right)
        peak = exponent.amax(1)
        total = exponent.sub_(peak[:, None]).exp_().sum(1)
        out[rows] = peak.double() + total.double().log()
    return out - cost.offset_left / epsilon


# --------------------------------------------------------------------------------------------------------- the problem


@dataclass(frozen=True)
class Problem:
    """What is to be solved.

    Parameters
    ----------
    cost : between n rows and m columns.
    epsilon : regularisation, in units of the cost; :meth:`Cost.epsilon` gives one relative to the median cost.
    a, b : masses (n,), (m,), not negative; by default uniform, of sum 1. Sums must agree where both sides are exact.
    rho_x, rho_y : strength of each marginal, in units of the cost; infinite (or None) where it must hold exactly.
    """

    cost: Cost
    epsilon: float
    a: Tensor | None = None
    b: Tensor | None = None
    rho_x: float | None = None
    rho_y: float | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise ValueError(f"epsilon is {self.epsilon}, wanted a positive number.")
        for name, mass, size in (("a", self.a, self.cost.shape[0]), ("b", self.b, self.cost.shape[1])):
            object.__setattr__(self, name, _masses(name, mass, size, self.cost.left.device))
        for name in ("rho_x", "rho_y"):
            rho = getattr(self, name)
            rho = math.inf if rho is None else float(rho)
            if not rho > 0:
                raise ValueError(f"{name} is {rho}, wanted a positive number.")
            object.__setattr__(self, name, rho)
        totals = self.a.sum().item(), self.b.sum().item()
        if self.balanced:
            if not math.isclose(*totals, rel_tol=1e-5):
                raise ValueError(
                    f"the masses sum to {totals[0]:.6g} and {totals[1]:.6g}; balanced transport needs equal sums."
                )
            object.__setattr__(self, "b", self.b * (totals[0] / totals[1]))

    @property
    def balanced(self) -> bool:
        """Whether both marginals are to hold exactly."""
        return math.isinf(self.rho_x) and math.isinf(self.rho_y)

    @property
    def swapped(self) -> Problem:
        """The two sides exchanged."""
        return Problem(self.cost.swapped, self.epsilon, self.b, self.a, self.rho_y, self.rho_x)


def _masses(name: str, mass: Tensor | None, size: int, device: torch.device) -> Tensor:
    if mass is None:
        return torch.full((size,), 1 / size, dtype=torch.float64, device=device)
    mass = torch.as_tensor(mass, dtype=torch.float64, device=device)
    if mass.shape != (size,):
        raise ValueError(f"{name} holds {tuple(mass.shape)} masses, wanted {size}.")
    if not torch.isfinite(mass).all() or (mass < 0).any() or mass.sum() <= 0:
        raise ValueError(f"{name} must be finite masses, none negative and not all 0.")
    return mass


# -------------------------------------------------------------------------------------------------------- the coupling


class Marginals(NamedTuple):
    """Row sums (k,) and column sums (l,) of the plan, float64, at the given rows and columns."""

    rows: Tensor
    columns: Tensor


@dataclass(frozen=True)
class Coupling:
    """The plan ``a_i b_j exp((f_i + g_j - C_ij) / epsilon)`` by its parts; any piece of it is made when asked for."""

    problem: Problem
    f: Tensor  # float64 (n,), in units of the cost
    g: Tensor  # float64 (m,)

    @property
    def shape(self) -> tuple[int, int]:
        return self.problem.cost.shape

    @property
    def swapped(self) -> Coupling:
        """The transposed plan."""
        return Coupling(self.problem.swapped, self.g, self.f)

    @property
    def _dtype(self) -> torch.dtype:
        """Float32 where the plan is large, and the rounding of its exponents does not show."""
        small = self.shape[0] * self.shape[1] <= SMALL
        return torch.float64 if small or _noise(self.problem) > SHOWS else torch.float32

    @cached_property
    def _row_terms(self) -> Tensor:
        return self.problem.a.log() + (self.f - self.problem.cost.offset_left) / self.problem.epsilon

    @cached_property
    def _column_terms(self) -> Tensor:
        return self.problem.b.log() + (self.g - self.problem.cost.offset_right) / self.problem.epsilon

    def log_block(self, rows: Tensor | slice, columns: Tensor | slice) -> Tensor:
        """``log pi`` between some rows and some columns. -inf where a mass is 0."""
        cost, dtype = self.problem.cost, self._dtype
        left = cost.left[rows].to(dtype) * (cost.scale / self.problem.epsilon)
        block = torch.addmm(self._column_terms[columns].to(dtype), left, cost.right[columns].to(dtype).T)
        return block.add_(self._row_terms[rows].to(dtype)[:, None])

    def rows(self, index: Tensor | slice) -> Tensor:
        """Rows of the plan (k, m)."""
        return self.log_block(index, slice(None)).exp_()

    def columns(self, index: Tensor | slice) -> Tensor:
        """Columns of the plan (n, k)."""
        return self.log_block(slice(None), index).exp_()

    def dense(self) -> Tensor:
        """The whole plan (n, m). For small problems."""
        return self.rows(slice(None))

    def row_normalised(self, rows: Tensor | slice, columns: Tensor | slice, log: bool = False) -> Tensor:
        """The block scaled so that each of its rows sums to 1."""
        block = self.log_block(rows, columns)
        return block.log_softmax(1) if log else block.softmax(1)

    def column_normalised(self, rows: Tensor | slice, columns: Tensor | slice, log: bool = False) -> Tensor:
        """The block scaled so that each of its columns sums to 1."""
        block = self.log_block(rows, columns)
        return block.log_softmax(0) if log else block.softmax(0)

    def top_k(self, k: int) -> tuple[Tensor, Tensor]:
        """The k columns of largest ``pi`` in each row; for columns, ``coupling.swapped.top_k(k)``.

        Returns
        -------
        scores : float64 (n, k), ``log pi``, descending. indices : int64 (n, k), equal scores by lowest index.
        """
        cost, dtype = self.problem.cost, self._dtype
        left = cost.left.to(dtype) * (cost.scale / self.problem.epsilon)
        terms = self._column_terms.clamp_min(-NOTHING).to(dtype)
        scores, indices = topk_product(left, cost.right.to(dtype), k, terms)
        scores = scores.double()
        scores[scores < -NOTHING / 2] = -math.inf
        return scores + self._row_terms[:, None], indices

    def effective_matches(self, rows: Tensor | None = None) -> Tensor:
        """Exponential of the entropy of rows of the plan, by default all, float64: 1 where one column has it all, m
        where all are alike."""
        rows = torch.arange(self.shape[0], device=self.f.device) if rows is None else rows
        out = torch.empty(len(rows), dtype=torch.float64, device=self.f.device)
        for part in _tiles(len(rows), self.shape[1]):
            share = self.row_normalised(rows[part], slice(None))
            out[part] = -torch.xlogy(share, share).sum(1, dtype=torch.float64)
        return out.exp()

    def marginals(self, rows: Tensor | None = None, columns: Tensor | None = None) -> Marginals:
        """Sums of the given rows and columns, by default all, from the factors, in float64."""
        problem, cost = self.problem, self.problem.cost
        every = slice(None)
        some = cost.part(every if rows is None else rows, every)
        sums = _log_sums(some, problem.b.log() + self.g / problem.epsilon, problem.epsilon)
        own = (problem.a.log() + self.f / problem.epsilon)[every if rows is None else rows]
        other = cost.part(every, every if columns is None else columns).swapped
        others = _log_sums(other, problem.a.log() + self.f / problem.epsilon, problem.epsilon)
        theirs = (problem.b.log() + self.g / problem.epsilon)[every if columns is None else columns]
        return Marginals((sums + own).exp(), (others + theirs).exp())

    def targets(self) -> Marginals:
        """What the row and column sums ought to be: a and b, each lowered by its potential where it is relaxed."""
        problem = self.problem
        return Marginals(problem.a * torch.exp(-self.f / problem.rho_x), problem.b * torch.exp(-self.g / problem.rho_y))

    def extend(self, rows: Tensor) -> Tensor:
        """Potentials f of rows that were not in the problem: the half step from g, exact. Float64 (k,)."""
        return _half_step(self.problem, self.problem.cost.with_left(rows), self.g)

    def with_left(self, rows: Tensor) -> Coupling:
        """The plan from other rows, of uniform mass, to the same columns.

        The columns' potentials stay, so their sums need not be b. For new columns:
        ``coupling.swapped.with_left(new).swapped``.
        """
        problem = self.problem
        cost = problem.cost.with_left(rows)
        other = replace(problem, cost=cost, a=torch.full_like(cost.offset_left, problem.a.sum().item() / len(rows)))
        return Coupling(other, _half_step(problem, cost, self.g), self.g)


def _half_step(problem: Problem, cost: Cost, g: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """f of the rows of ``cost`` from g of the problem's columns."""
    sums = _log_sums(cost, problem.b.log() + g / problem.epsilon, problem.epsilon, dtype)
    return -problem.epsilon / (1 + problem.epsilon / problem.rho_x) * sums


# ---------------------------------------------------------------------------------------------------------- the solver


class State(NamedTuple):
    """Where the solver stands.

    Attributes
    ----------
    iteration : from 1, through all phases.
    error : relative L1 distance of the column sums from what they ought to be; row sums are exact at each iteration.
    phase : "sample" (a coarse problem), "descent" (a larger epsilon), "main" (float32) or "exact" (float64).
    seconds : since the start.
    """

    iteration: int
    error: float
    phase: str
    seconds: float


@dataclass(frozen=True)
class Output:
    """What the solver found.

    Attributes
    ----------
    coupling : with the potentials f and g.
    converged : whether both errors are within the tolerance.
    error_x, error_y : relative L1 distance of row and column sums from what they ought to be, measured at the end. In
        a large problem the sum of the error by the kernel and of the kernel's own, which is measured in float64 on
        ``checked`` rows and columns.
    mass : transported.
    iterations : on the whole problem.
    checked : rows and columns whose sums were measured from the factors in float64.
    notes : sentences on what the solver had to decide, and on what is missing.
    """

    coupling: Coupling
    converged: bool
    error_x: float
    error_y: float
    mass: float
    iterations: int
    checked: tuple[int, int]
    notes: tuple[str, ...]

    @property
    def f(self) -> Tensor:
        return self.coupling.f

    @property
    def g(self) -> Tensor:
        return self.coupling.g


class _Point(NamedTuple):
    """Potentials in units of epsilon, with the row update done, and what the kernel says of them."""

    f: Tensor
    x: Tensor
    following: Tensor  # x after the column update
    columns: Tensor  # sums of the plan's columns
    error: float  # relative L1 distance of these from what they ought to be


class Solver:
    """Iterate over it to solve the problem; ``output`` is there at the end.

    Parameters
    ----------
    tolerance : largest relative L1 error of the marginals.
    cap : largest number of iterations on the whole problem.
    memory : bytes the kernel may take; a larger one is rebuilt from the factors in every iteration.
    start : potentials g (m,) to start from, in units of the cost, as of a solution at a larger epsilon.
    seed : of the sample that a large problem starts from, and of the rows that are checked.
    """

    def __init__(
        self,
        problem: Problem,
        tolerance: float = 1e-4,
        cap: int = 1000,
        memory: int = MEMORY,
        start: Tensor | None = None,
        seed: int = 0,
    ) -> None:
        if start is not None and start.shape != problem.b.shape:
            raise ValueError(f"start holds {tuple(start.shape)} potentials, wanted {len(problem.b)}.")
        if cap < 1:
            raise ValueError(f"cap is {cap}, wanted at least 1 iteration.")
        self.problem = problem
        self.tolerance, self.cap, self.memory, self.start, self.seed = tolerance, cap, memory, start, seed
        self.output: Output | None = None

    def __iter__(self) -> Iterator[State]:
        self._begun, self._steps, self._notes = time.perf_counter(), 0, []
        whole = self._safe()
        rows, columns = whole.a > 0, whole.b > 0
        problem = whole
        if not (rows.all() and columns.all()):  # what has no mass takes no part
            problem = replace(whole, cost=whole.cost.part(rows, columns), a=whole.a[rows], b=whole.b[columns])
        ladder = self._ladder(problem) if self.start is None else []
        first = replace(problem, epsilon=ladder[0]) if ladder else problem
        if self.start is not None:
            g = self.start.to(problem.b)[columns]
        elif problem.cost.shape[0] * problem.cost.shape[1] > COARSE_ABOVE:
            g = yield from self._sample(first)
        else:
            g = torch.zeros_like(problem.b)
        for epsilon in ladder:
            easier = replace(problem, epsilon=epsilon)
            point = yield from self._run(
                easier, g, _dtype(easier), "descent", max(self.tolerance, DESCENT_TOLERANCE), DESCENT_CAP
            )
            g = point.x * epsilon

        before, checked = self._steps, None
        if _dtype(problem) == torch.float32:
            loose = max(self.tolerance, 2e-6, _noise(problem))
            cap = self.cap if loose == self.tolerance else (self.cap + 1) // 2
            point = yield from self._run(problem, g, torch.float32, "main", loose, cap)
            checked, g = self._check(problem, point), point.x * problem.epsilon
        left = self.cap - (self._steps - before)
        sharp = problem.epsilon < SHARP * self._median
        if checked is None or (left > 0 and (sharp or max(checked.errors) > self.tolerance)):
            point = yield from self._run(problem, g, torch.float64, "exact", self.tolerance, left)
            checked = self._check(problem, point)
        self._finish(whole, problem, point, checked, self._steps - before)

    def _safe(self) -> Problem:
        """The problem with an epsilon that float64 can resolve."""
        problem, cost = self.problem, self.problem.cost
        least = SMALLEST * cost.size
        if problem.epsilon < least:
            self._notes.append(f"epsilon {problem.epsilon:.3g} is lost in the cost's rounding: raised to {least:.3g}.")
            problem = replace(problem, epsilon=least)
        self._median, width = cost.spread(self.seed, 250_000)
        if width <= 1e-6 * cost.size:
            self._notes.append("all costs are equal: the plan is the product of the marginals and matches nothing.")
        return problem

    def _ladder(self, problem: Problem) -> list[float]:
        """The larger epsilons to solve first, largest first; none where epsilon is large enough by itself."""
        ratio = DESCENT_FROM * self._median / problem.epsilon
        if ratio <= DESCENT_FROM / DESCENT_BELOW:
            return []
        return [problem.epsilon * DESCENT**k for k in range(math.ceil(math.log(ratio, DESCENT)), 0, -1)]

    def _sample(self, problem: Problem) -> Iterator[State]:
        """g of all columns from the solution of a coarse problem, by one exact half step."""
        n, m = problem.cost.shape
        i, j = (_draw(size, SAMPLE, self.seed + k, problem.a.device) for k, size in enumerate((n, m)))
        a, b = (mass[at] * (mass.sum() / mass[at].sum()) for mass, at in ((problem.a, i), (problem.b, j)))
        coarse = replace(problem, cost=problem.cost.part(i, j), a=a, b=b)
        dtype = _dtype(problem)
        g = torch.zeros_like(b)
        point = yield from self._run(coarse, g, dtype, "sample", max(self.tolerance, 1e-3), self.cap)
        columns = problem.cost.part(i, slice(None)).swapped
        return _half_step(coarse.swapped, columns, point.f * problem.epsilon, dtype)

    def _run(
        self, problem: Problem, g: Tensor, dtype: torch.dtype, phase: str, tolerance: float, cap: int
    ) -> Iterator[State]:
        """Sinkhorn's iteration from g by Anderson's method. Returns the best point met."""
        n, m = problem.cost.shape
        kernel = _Kernel(problem, dtype, stored=n * m * dtype.itemsize <= self.memory)
        weights = (problem.b / problem.b.mean()).sqrt()  # a column counts by its mass
        residuals: list[Tensor] = []
        images: list[Tensor] = []
        x, best, least = g / problem.epsilon, None, math.inf
        for _ in range(cap):
            point = _step(problem, kernel, x)
            self._steps += 1
            if best is None or not point.error >= best.error:
                best = point
            yield State(self._steps, point.error, phase, time.perf_counter() - self._begun)
            if point.error <= tolerance:
                break
            if residuals and not point.error <= RESTART * least:
                residuals, images, x, least = [], [], best.following, math.inf
                continue
            least = min(least, point.error)
            residuals.append((point.following - point.x) * weights)
            images.append(point.following)
            del residuals[: -HISTORY - 1], images[: -HISTORY - 1]
            x = _combined(residuals, images)
        return best

    def _check(self, problem: Problem, point: _Point) -> _Checked:
        """The marginals of a point, by the factors and in float64."""
        n, m = problem.cost.shape
        coupling = _coupling(problem, point)
        wanted = coupling.targets()
        if n * m <= CHECK_ALL:
            sums = coupling.marginals()
            errors = [(sum_ - want).abs().sum() / want.sum() for sum_, want in zip(sums, wanted, strict=True)]
            return _Checked((errors[0].item(), errors[1].item()), sums.rows.sum().item(), (n, m))
        rows, columns = _draw(n, CHECK_ROWS, self.seed, point.x.device), _draw(m, CHECK_ROWS, self.seed, point.x.device)
        sums = coupling.marginals(rows, columns)
        off_x = (sums.rows - wanted.rows[rows]).abs().mean() * n / wanted.rows.sum()
        off_y = (sums.columns - point.columns[columns]).abs().mean() * m / wanted.columns.sum()
        return _Checked(
            (off_x.item(), point.error + off_y.item()), point.columns.sum().item(), (len(rows), len(columns))
        )

    def _finish(self, whole: Problem, problem: Problem, point: _Point, checked: _Checked, iterations: int) -> None:
        coupling = _coupling(problem, point)
        if problem is not whole:
            f = _half_step(problem, whole.cost.part(slice(None), whole.b > 0), coupling.g)
            g = _half_step(problem.swapped, whole.cost.part(whole.a > 0, slice(None)).swapped, coupling.f)
            f[whole.a > 0], g[whole.b > 0] = coupling.f, coupling.g
            coupling = Coupling(whole, f, g)
        # the plan's own sums, not the iteration's word; a comparison with NaN is false
        converged = max(checked.errors) <= self.tolerance and checked.mass > 0
        if not converged:
            self._notes.append(
                f"not converged: marginal errors {checked.errors[0]:.2g} and {checked.errors[1]:.2g} after "
                f"{iterations} iterations, wanted {self.tolerance:.2g}."
            )
        self.output = Output(
            coupling, converged, *checked.errors, checked.mass, iterations, checked.size, tuple(self._notes)
        )


def solve(problem: Problem, **options) -> Output:
    """:class:`Solver` run to its end."""
    solver = Solver(problem, **options)
    for _ in solver:
        pass
    return solver.output


class _Checked(NamedTuple):
    errors: tuple[float, float]
    mass: float
    size: tuple[int, int]


def _coupling(problem: Problem, point: _Point) -> Coupling:
    return Coupling(problem, point.f * problem.epsilon, point.x * problem.epsilon)


def _noise(problem: Problem) -> float:
    """Relative error that float32 leaves in the kernel, and so in the marginals."""
    return NOISE * problem.cost.size / problem.epsilon


def _dtype(problem: Problem) -> torch.dtype:
    """Float32 where the problem is large enough to gain by it, and epsilon to bear it."""
    n, m = problem.cost.shape
    return torch.float32 if n * m > SMALL and _noise(problem) < WORST_NOISE else torch.float64


def _combined(residuals: list[Tensor], images: list[Tensor]) -> Tensor:
    """Anderson's next point: the images combined as makes the same combination of the residuals least."""
    if len(residuals) < 3:
        return images[-1]
    steps = torch.stack(residuals).diff(dim=0)
    norms = torch.linalg.vector_norm(steps, dim=1).clamp_min(torch.finfo(steps.dtype).tiny)
    steps /= norms[:, None]
    gram = steps @ steps.T
    gram.diagonal().add_(1e-8)
    # solve, not lstsq, whose result differs from call to call
    weights = torch.linalg.solve_ex(gram, steps @ residuals[-1]).result / norms
    return images[-1] - weights @ torch.stack(images).diff(dim=0)


def _step(problem: Problem, kernel: _Kernel, x: Tensor) -> _Point:
    """Row update, column sums, column update.

    Where a marginal is relaxed, each update is taken together with the best shift between f and g (f + t, g - t, which
    leaves the plan alone): without it the mass moves to its value by a factor rho / (rho + epsilon) an iteration.
    """
    f, psi = kernel.sweep(x)
    px, py = problem.epsilon / problem.rho_x, problem.epsilon / problem.rho_y
    kx, ky = 1 / (1 + px), 1 / (1 + py)
    following = -ky * psi
    if not problem.balanced:
        log_a, log_b = problem.a.log(), problem.b.log()
        shift = ((log_a - px * f).logsumexp(0) - (log_b - py * x).logsumexp(0)) / (px * kx + py)
        f, x, psi = f + kx * shift, x - shift, psi + kx * shift
        following = -ky * psi
        shift = ((log_a - px * f).logsumexp(0) - (log_b - py * following).logsumexp(0)) / (px + py * ky)
        following = following - ky * shift
    columns = problem.b * (x + psi).exp()
    wanted = problem.b * (-py * x).exp()
    error = ((columns - wanted).abs().sum() / wanted.sum()).item()
    return _Point(f, x, following, columns, error)


class _Sums(NamedTuple):
    """Column sums of the kernel's rows times u, and the sum of u, both in units of ``exp(unit)``."""

    sums: Tensor
    total: float
    unit: float


class _Kernel:
    """The two log-sums of an iteration, from ``exp(-C / epsilon)`` with the potentials absorbed.

    A row of the kernel is ``exp(terms_j + base_j + scale l_i . r_j / epsilon - peak_i)``, at most 1, where ``terms``
    are the columns' own, ``base`` is the x it was made at and ``peak`` the largest exponent. Stored, it is made anew
    when x has moved from the base by more than ``reach`` each way; otherwise in every sweep, tile by tile.
    """

    def __init__(self, problem: Problem, dtype: torch.dtype, stored: bool) -> None:
        cost, epsilon = problem.cost, problem.epsilon
        self.problem, self.dtype, self.stored = problem, dtype, stored
        self.left = cost.left.to(dtype) * (cost.scale / epsilon)
        self.right = cost.right.to(dtype).T.contiguous()
        self.row_offset = cost.offset_left / epsilon
        self.log_a, self.log_b = problem.a.log(), problem.b.log()
        self.terms = self.log_b - cost.offset_right / epsilon
        self.kappa = 1 / (1 + epsilon / problem.rho_x)
        # exponents stop at the floor, above what is subnormal and slow; with both reaches it stays below what counts
        self.floor, self.reach = (-65.0, 20.0) if dtype == torch.float32 else (-600.0, 250.0)
        self.base: Tensor | None = None
        self.peak = torch.empty_like(self.row_offset)
        n, m = cost.shape
        height = n if stored else max(rows.stop - rows.start for rows in _tiles(n, m))
        self.kernel = torch.empty((height, m), dtype=dtype, device=cost.left.device)

    def sweep(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """f after the row update at x, in units of epsilon, and ``log sum_i a_i exp(f_i - C_ij / epsilon)``."""
        v, shift = self._absorb(x)
        f = torch.empty_like(self.row_offset)
        tiles = list(_tiles(*self.problem.cost.shape))
        workers = torch.get_num_threads() if self.stored else 1
        if workers > 1 and len(tiles) > 1:  # a matrix-vector product runs on one core by itself; making a tile does not
            with ThreadPoolExecutor(workers) as pool:
                parts = list(pool.map(lambda k: self._pass(tiles[k::workers], v, shift, f), range(workers)))
        else:
            parts = [self._pass(tiles, v, shift, f)]
        unit = max(part.unit for part in parts)
        sums = sum(part.sums * math.exp(part.unit - unit) for part in parts)
        total = sum(part.total * math.exp(part.unit - unit) for part in parts)
        psi = sums.log() + unit - self.base - self.log_b
        faint = sums <= 1e4 * math.exp(self.floor) * total  # what stopped at the floor may be most of it
        if faint.any():
            cost = self.problem.cost.part(slice(None), faint).swapped
            psi[faint] = _log_sums(cost, self.log_a + f, self.problem.epsilon)
        return f, psi

    def _pass(self, tiles: list[slice], v: Tensor | None, shift: float, f: Tensor) -> _Sums:
        """Row updates of some tiles, put into f, and their part of the column sums."""
        sums, unit, total = torch.zeros_like(self.terms), -math.inf, 0.0
        for rows in tiles:
            tile = self.kernel[rows] if self.stored else self._fill(rows, self.kernel)
            row_sums = tile.sum(1) if v is None else torch.mv(tile, v)
            lift = self.peak[rows] - self.row_offset[rows]
            f[rows] = -self.kappa * (row_sums.double().log() + lift + shift)
            log_u = self.log_a[rows] + f[rows] + lift
            peak = log_u.max().item()
            if peak > unit:
                sums, total, unit = sums * math.exp(unit - peak), total * math.exp(unit - peak), peak
            u = (log_u - unit).exp()
            total += u.sum().item()
            sums += torch.mv(tile.T, u.to(self.dtype))
        return _Sums(sums, total, unit)

    def _absorb(self, x: Tensor) -> tuple[Tensor | None, float]:
        """``exp(x - base - shift)`` and the shift, after making the kernel anew where that is due; None for ones."""
        if self.stored and self.base is not None:
            moved = x - self.base
            low, high = moved.min().item(), moved.max().item()
            if high - low <= 2 * self.reach:
                shift = (low + high) / 2
                return (moved - shift).exp().to(self.dtype), shift
        self.base = x
        if self.stored:
            for rows in _tiles(*self.problem.cost.shape):
                self._fill(rows, self.kernel[rows])
        return None, 0.0

    def _fill(self, rows: slice, out: Tensor) -> Tensor:
        tile = out[: rows.stop - rows.start]
        torch.addmm((self.terms + self.base).to(self.dtype), self.left[rows], self.right, out=tile)
        peak = tile.amax(1)
        self.peak[rows] = peak.double()
        return tile.sub_(peak[:, None]).clamp_min_(self.floor).exp_()
