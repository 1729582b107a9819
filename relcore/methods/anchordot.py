"""AnchorDOT: one transport plan between two unpaired pools, by way of a few pairs, distilled into two encoders."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from relcore.errors import InputError
from relcore.methods import anchored
from relcore.methods.base import Alignment, Cost, Linear, Method, Needs, Snapshot, mapped, param
from relcore.methods.student import WATCHED_ROWS, YIELDS, Count, Watch, encoder, to_cpu, trained
from relcore.space import Pairs

if TYPE_CHECKING:
    from torch import Tensor

    from relcore.methods.described import Described, Describer
    from relcore.ops.relative import Moments, Profile
    from relcore.ops.sinkhorn import Coupling

PAPER = "AnchorDOT, as reconstructed in methods/anchordot.md"
MEASURED = "measured on synthetic pairs (methods/anchordot.md, section 6.3b) and by benchmarks/anchordot.py"
SIMILAR = (
    "the paper's is gamma. Measured beside it, MRR of the plan on real pairs: MNIST, 100 anchors, gamma .98, wip 1.00, "
    "kernel 1.00, cosine .91; Banking77 (MiniLM-L6 / WordLlama), 300: .95, .95, .95, .84; emoji, picture and text, "
    "300: .10, .12, .13, .08"
)
OPEN = "not stated in the paper; chosen by experiment"

RIDGES = ((0.75, 0.0), (1.0, 0.3), (1.0, 1.0), (1.5, 1.0), (1.5, 3.0), (2.0, 3.0))  # gamma, ridge
ETAS = (0.1, 0.05, 0.02)
PAPER_GAMMAS = ((0.0, 0.0), (0.25, 0.0), (0.5, 0.0), (0.75, 0.0), (1.0, 0.0))
PAPER_ETAS = (0.2, 0.1, 0.05, 0.02, 0.01)
ENOUGH = 50  # anchors, with fewer of which ten per cent held out choose nothing
TRANSPORT_STEPS = 30  # iterations a transport is taken to need, for the bar
DENSE_ENTRIES = 25_000_000  # of a cost that has to be held in full
FUSED_ROWS = 3000  # a side, of which fused Gromov-Wasserstein keeps several full matrices
FUSED_TURNS = 10
FEW_ROWS = 20
UNLIKE = 5  # times as many rows on one side
ODD = 1e-4  # probability of a pool as far from the anchors as it is
FAR = 0.25  # share of pool rows whose best score is below that of 19 of 20 held-out anchors

STUDENT = ("student", ("mlp", "linear"))
GIVEN = ("select", ("no",))
GAMMA = ("similarity", ("gamma",))
OTHERS = ("similarity", tuple(s for s in anchored.SIMILARITIES if s != "gamma"))
WHITENED = ("similarity", tuple(s for s in anchored.SHRUNK if s != "gamma"))
RIDGE = ("mode", ("ridge",))


SELECTED = ("gamma", "ridge", "eta")


class Cell(NamedTuple):
    """A choice of the three numbers that are selected, and how the held-out partners fare under it, less being better.

    ``rank`` is their mean rank both ways; ``surprise``, which decides between equal ranks, their mean -log probability.
    """

    gamma: float
    ridge: float
    eta: float
    rank: float = math.nan
    surprise: float = math.nan


@dataclass(frozen=True)
class AnchorDOT(Method):
    r"""A few anchors give a score, a transport plan between all rows corrects it, encoders learn the plan.

    1. **Select.** Rows are described by their gamma profile, their similarities to the N anchors weighted by the
       anchors' own spectrum (:mod:`relcore.ops.relative`). The cost is one minus the cosine of two profiles, epsilon is
       eta times its median. (gamma, ridge, eta) are those that rank the partners of ten per cent of the anchors, held
       out and added to both pools, best by the coupling: the mean rank both ways among all rows.
    2. **Transport.** Entropic optimal transport with uniform marginals between the pools, :mod:`relcore.ops.sinkhorn`.
       The coupling is transductive: it scores the rows that took part in it. A row that comes later joins by one half
       step of its own (``coupling.with_left``), which needs no training.
    3. **Distil.** One encoder a side is trained to reproduce the plan's rows and columns, chunk by chunk, beside the
       anchors themselves. At inference they need neither anchors nor pools.

    Source: AnchorDOT; neither its text nor its code was to be had. What is known of it, what was inferred, and what was
    measured is in methods/anchordot.md, whose section 6.6 gives the defaults.

    ``mode="paper"`` is the published method as far as it is known: eigenvalues clipped at 1e-6 of their mean, no
    ridge, gamma from 0 to 1 in quarters, eta from .01 to .2, encoders from random weights, the plan distilled as it is,
    anchors a chunk like any other (their weight is one chunk's in a pass over the pool).

    Departures from the paper, each with its switch: a ridge on the second moment in place of the clip, and gamma up to
    2 with it (``mode``); encoders that start from the profile (``start``); anchors of less weight in the distillation
    (``pair_weight``); a plan sharpened for the student (``sharpen``); relaxed marginals (``rho_x``, ``rho_y``) and
    centring at the anchors (``centre``) for pools that hold what the other side lacks; other costs in the place of the
    profile's (``cost``), the paper's own ablations; another ``similarity`` to the anchors than the gamma profile,
    fitted on them as its support: whitening then finds by itself how far it goes, and eta alone is selected. Selection
    uses at most ``select_rows`` rows of each pool.
    """

    name = "anchordot"
    title = "AnchorDOT"
    summary = "A few hundred pairs, one global transport over unpaired pools, distilled into two encoders."
    source = "AnchorDOT (optimal transport between anchor profiles)"
    needs = Needs(min_seeds=2)

    mode: str = param(
        "ridge",
        "ridge: a ridge on the anchors' second moment, which bears few anchors. paper: eigenvalues clipped, gamma to 1",
        choices=("ridge", "paper"),
        source=MEASURED,
    )
    select: str = param(
        "held-out",
        "held-out: gamma, ridge and eta by the ranks of held-out anchors, given 50 or more. no: as given below",
        choices=("held-out", "no"),
        source=PAPER,
    )
    similarity: str = anchored.similarity_param("gamma", SIMILAR, "anchors")
    shrinkage: str = anchored.shrinkage_param(WHITENED)
    shrinkage_amount: float = anchored.amount_param()
    kernel_ridge: float = anchored.kernel_ridge_param()
    standardise: bool = anchored.standardise_param(OTHERS)
    gamma: float = param(
        1.5,
        "How evenly the anchors' directions count: 0 as they come, 1 keeps the geometry, 2 all alike",
        low=0.0,
        high=4.0,
        source=MEASURED,
        only_if=(GAMMA, GIVEN),
    )
    ridge: float = param(
        1.5,
        "Added to the eigenvalues of the anchors' second moment, in means of them",
        low=0.0,
        high=1000.0,
        source=MEASURED,
        only_if=(GAMMA, GIVEN),
    )
    eta: float = param(
        0.05,
        "Regularisation of the transport, in medians of the cost",
        low=1e-6,
        high=100.0,
        source=MEASURED,
        log=True,
        only_if=GIVEN,
    )
    student: str = param(
        "mlp",
        "Encoders trained on the plan: a residual network, a matrix, or none; then coordinates are the profiles",
        choices=("mlp", "linear", "none"),
        source=PAPER,
    )
    cost: str = param(
        "profile",
        "profile: cosine of gamma profiles. bridge: through the best single anchor. keypoint: divergence of relations "
        "to the anchors (KPG-RL). fused: profile and Gromov-Wasserstein",
        choices=("profile", "bridge", "keypoint", "fused"),
        source=f"{PAPER}; the others are its ablations",
        advanced=True,
    )
    keypoint_temperature: float = param(
        0.1,
        "Temperature of the relation to the anchors",
        low=1e-3,
        high=100.0,
        source="Gu et al., arXiv 2303.13102",
        log=True,
        advanced=True,
        only_if=("cost", ("keypoint",)),
    )
    structure: float = param(
        0.1,
        "Share of Gromov-Wasserstein in the cost; 0 is the profile alone",
        low=0.0,
        high=1.0,
        source=PAPER,
        advanced=True,
        only_if=("cost", ("fused",)),
    )
    rho_x: float = param(
        0.0,
        "Strength of x's marginal in medians of the cost, for rows without a partner: .1 to .3. 0 holds it exactly",
        low=0.0,
        high=1000.0,
        source="methods/anchordot.md, section 6.1",
        advanced=True,
    )
    rho_y: float = param(
        0.0,
        "Strength of y's marginal, as that of x",
        low=0.0,
        high=1000.0,
        source="methods/anchordot.md, section 6.1",
        advanced=True,
    )
    centre: str = param(
        "as given",
        "anchors: subtract the anchors' mean and scale to norm 1, after the preprocessing, where a pool holds rows "
        "that the other lacks",
        choices=("as given", "anchors"),
        source="methods/anchordot.md, section 6.1",
        advanced=True,
    )
    anchors_in_plan: bool = param(
        False,
        "Let the anchors take part in the transport; else they join it afterwards",
        source=OPEN,
        advanced=True,
    )
    select_rows: int = param(
        1000, "Rows of each pool that the selection uses", low=20, high=1_000_000, source=MEASURED, advanced=True
    )
    tolerance: float = param(
        1e-3, "Marginal error at which the transport ends", low=1e-8, high=1.0, source=OPEN, log=True, advanced=True
    )
    iterations: int = param(
        500, "Iterations of the transport, at most", low=1, high=100_000, source=OPEN, advanced=True
    )
    memory: int = param(
        1024,
        "What the transport's kernel may take; a larger one is rebuilt in every iteration",
        low=1,
        high=1_000_000,
        unit="MiB",
        source="relcore/ops/sinkhorn.py",
        advanced=True,
    )
    steps_student: int = param(
        500, "Steps of the distillation", low=1, high=1_000_000, source=MEASURED, advanced=True, only_if=STUDENT
    )
    start: str = param(
        "profile",
        "Encoders start from the profile's factors, or at random in a space of the given width",
        choices=("profile", "random"),
        source=MEASURED,
        advanced=True,
        only_if=STUDENT,
    )
    width: int = param(
        96,
        "Dimensions of the common space",
        low=1,
        high=10_000,
        source=OPEN,
        advanced=True,
        only_if=("start", ("random",)),
    )
    hidden: int = param(
        256,
        "Hidden units of the network",
        low=1,
        high=100_000,
        source=OPEN,
        advanced=True,
        only_if=("student", ("mlp",)),
    )
    chunk: int = param(
        250, "Rows of each side in a step", low=2, high=100_000, source=MEASURED, advanced=True, only_if=STUDENT
    )
    temperature: float = param(
        0.1,
        "Temperature of the encoders' similarities",
        low=1e-3,
        high=10.0,
        source=MEASURED,
        log=True,
        advanced=True,
        only_if=STUDENT,
    )
    learning_rate: float = param(
        1e-3,
        "Rate of AdamW, falling as a cosine",
        low=1e-8,
        high=1.0,
        source=OPEN,
        log=True,
        advanced=True,
        only_if=STUDENT,
    )
    pair_weight: float = param(
        0.3,
        "Weight of the anchors beside a chunk of the plan",
        low=0.0,
        high=100.0,
        source="methods/anchordot.md, section 6.6",
        advanced=True,
        only_if=STUDENT,
    )
    sharpen: float = param(
        1.0,
        "Power of the plan that the student learns",
        low=0.01,
        high=100.0,
        source="methods/anchordot.md, section 5.4",
        advanced=True,
        only_if=STUDENT,
    )

    # ---------------------------------------------------------------- the three phases

    def steps(self, x, y, seeds, *, generator, device="cpu"):
        from relcore.ops.neighbors import unit_rows

        data = _Data(x.to(device), y.to(device), seeds, self.centre == "anchors")
        count = Count()
        left = TRANSPORT_STEPS + (0 if self.student == "none" else YIELDS)
        moments, cell, notes = yield from self._select(data, generator, count, left)
        profile = moments.profile(cell.gamma, cell.ridge)
        notes = data.notes(moments) + notes + self._without_say()
        chosen = {name: getattr(cell, name) for name in SELECTED}
        if self.similarity != "gamma":
            notes += moments.notes
            chosen = {"eta": cell.eta} | moments.chosen
        coupling, converged, said = yield from self._transport(data, profile, cell, generator, count)
        notes += said
        encoders = [m if callable(m) else Linear(m) for m in (profile.map_x, profile.map_y)]
        if self.student != "none":
            if self.mode == "paper":
                notes.append(
                    f"as in the paper: start random in {self.width} dimensions, pair_weight "
                    f"{self._paper_weight(data):.2g}, sharpen 1, whatever is set"
                )
            encoders = yield from self._distil(data, profile, coupling, generator, count)
        factors = _factors(profile) if self.cost == "profile" else [None, None]
        coordinates = [unit_rows(e(v)).cpu() for e, v in zip(encoders, data.sides, strict=True)]
        encoders, factors = (
            [_shifted(to_cpu(e), s if s is None else s.cpu()) for e, s in zip(es, data.shifts, strict=True)]
            for es in (encoders, factors)
        )
        return Alignment(
            x=coordinates[0],
            y=coordinates[1],
            encode_x=encoders[0],
            encode_y=encoders[1],
            factor_x=factors[0],
            factor_y=factors[1],
            coupling=to_cpu(coupling),
            converged=converged,
            chosen=chosen,
            notes=notes,
        )

    def check_steps(self, x, y, seeds, *, generator, device="cpu"):
        """Held-out seeds are ranked by their profiles, before any transport: what the anchors alone can carry.

        Neither the plan nor the student is made anew. Both do better than the profile, so this errs on the side of
        doubt.
        """
        from relcore.ops.neighbors import unit_rows

        data = _Data(x.to(device), y.to(device), seeds, self.centre == "anchors")
        moments, cell, _ = yield from self._select(data, generator, Count(), 0, self._short_grid())
        profile = moments.profile(cell.gamma, cell.ridge)
        maps = (profile.map_x, profile.map_y)
        return Alignment(*(unit_rows(mapped(v, m)).cpu() for v, m in zip(data.sides, maps, strict=True)))

    def _grid(self) -> list[tuple[float, float, tuple[float, ...]]]:
        """(gamma, ridge, etas from large to small)."""
        pairs, etas = (PAPER_GAMMAS, PAPER_ETAS) if self.mode == "paper" else (RIDGES, ETAS)
        if self.similarity != "gamma":
            pairs = ((0.0, 0.0),)  # which have no say
        return [(gamma, ridge, etas) for gamma, ridge in pairs]

    def _short_grid(self) -> list[tuple[float, float, tuple[float, ...]]]:
        """The same at one eta: the check uses gamma and ridge alone."""
        return [(gamma, ridge, etas[len(etas) // 2 :][:1]) for gamma, ridge, etas in self._grid()]

    def _select(self, data: _Data, generator, count: Count, left: int, grid=None):
        """The moments of all anchors, the cell to use, and notes."""
        import torch

        from relcore.ops import sinkhorn

        moments = self._described(data, data.anchors)
        ridge = 0.0 if self.mode == "paper" else self.ridge
        given = Cell(self.gamma, ridge, self.eta)
        if self.select == "no" or len(data.seeds) < ENOUGH or self.cost in ("bridge", "keypoint"):
            notes = []
            if self.select != "no":
                why = f"{len(data.seeds)} anchors are too few to choose by held-out ones ({ENOUGH} needed)"
                if self.cost in ("bridge", "keypoint"):
                    why = f"nothing is chosen by held-out anchors for the {self.cost} cost"
                notes.append(f"{why}: {self._said(given)} as given")
            if self.mode == "paper" and given.gamma > 1 and self.similarity == "gamma":
                notes.append(
                    f"gamma {given.gamma:g} is beyond the paper's 0 to 1, where without a ridge the weakest directions "
                    "count most: give gamma, for example 0.75"
                )
            profile = moments.profile(given.gamma, given.ridge)
            yield count.step("select", {}, left, _shown(profile))
            return moments, given, notes
        held, kept, pools = data.split(generator, self.select_rows)
        part = self._described(data, tuple(a[kept] for a in data.anchors))
        sides = [torch.cat([a[held], v[rows]]) for a, v, rows in zip(data.anchors, data.sides, pools, strict=True)]
        best, odd = None, ""
        grid = grid or self._grid()
        cells = sum(len(etas) for *_, etas in grid)
        loose = []
        for gamma, ridge, etas in grid:
            whole = moments.profile(gamma, ridge)
            snapshot = _shown(whole)
            profile = part.profile(gamma, ridge)
            cost = sinkhorn.dot(profile.factors_x(sides[0]), profile.factors_y(sides[1]))
            start = None
            for eta in etas:
                problem = self._problem(cost, eta)
                out = sinkhorn.solve(problem, tolerance=5 * self.tolerance, cap=self.iterations, start=start)
                start = out.g
                if not out.converged:
                    loose.append(max(out.error_x, out.error_y))
                cell = Cell(gamma, ridge, eta, *_fared(out.coupling, len(held)))
                if best is None or cell[3:] < best[3:]:
                    best, odd = cell, _far(cost, len(held))
                metrics = {"held-out rank": cell.rank, "eta": eta}
                if self.similarity == "gamma":
                    metrics |= {"gamma": gamma, "ridge": ridge}
                yield count.step("select", metrics, cells - count.done - 1 + left, snapshot)
                snapshot = None
        notes = [
            f"{self._said(best)}: mean rank {best.rank:.3g} of {len(held)} "
            f"held-out anchors among {len(sides[0]):,} and {len(sides[1]):,} rows"
        ]
        if self.cost == "fused":
            notes[0] += ", by the profile's cost alone"
        selected = SELECTED if self.similarity == "gamma" else ("eta",)
        if set_aside := [f"{n} {getattr(self, n):g}" for n in selected if getattr(self, n) != _default(n)]:
            notes.append(f"{', '.join(set_aside)} as set had no say: with select=no they are used as given")
        if loose:
            notes.append(
                f"{len(loose)} of {cells} transports of the selection did not converge in {self.iterations} iterations "
                f"(marginal error up to {max(loose):.1g}): their ranks are less sure"
            )
        return moments, best, notes + ([odd] if odd else [])

    def _described(self, data: _Data, anchors: tuple[Tensor, Tensor]) -> Moments | Describer:
        """What makes profiles of the rows by these anchors."""
        from relcore.methods.described import Describer
        from relcore.ops.relative import Moments

        return Moments(*anchors) if self.similarity == "gamma" else Describer(self, anchors, data.sides)

    def _said(self, cell: Cell) -> str:
        names = SELECTED if self.similarity == "gamma" else ("eta",)
        return ", ".join(f"{name} {getattr(cell, name):g}" for name in names)

    def _without_say(self) -> list[str]:
        """What was set although it belongs to the gamma profile."""
        if self.similarity == "gamma":
            return []
        told = [f"{n} {getattr(self, n):g}" for n in ("gamma", "ridge") if getattr(self, n) != _default(n)]
        out = [
            f"anchors are compared by {self.similarity}: no gamma and no ridge is chosen by held-out ones, eta alone"
        ]
        return out + ([f"{', '.join(told)} as set had no say: of the gamma profile"] if told else [])

    def _problem(self, cost, eta: float, **masses):
        """The transport problem of a cost; strengths of the marginals count in medians of it."""
        from relcore.ops.sinkhorn import Problem

        unit = cost.epsilon(1.0)  # of a cost whose median is 0, the range
        rho_x, rho_y = (rho * unit if rho else None for rho in (self.rho_x, self.rho_y))
        return Problem(cost, eta * unit, rho_x=rho_x, rho_y=rho_y, **masses)

    def _transport(self, data: _Data, profile: Profile, cell: Cell, generator, count: Count):
        """The coupling of all rows, whether it converged, and notes."""
        import torch

        from relcore.ops import sinkhorn

        after = 0 if self.student == "none" else YIELDS
        snapshot = _shown(profile)
        cost = yield from self._cost(data, profile, count, after + TRANSPORT_STEPS)
        masses = {} if self.anchors_in_plan else data.masses()
        problem = self._problem(cost, cell.eta, **masses)
        notes = []
        if not math.isclose(problem.epsilon, cell.eta * cost.spread()[0], rel_tol=1e-6):
            notes.append(
                f"the median cost is 0: epsilon is {problem.epsilon:.3g}, eta times the range of the cost (1 where all "
                "are equal)"
            )
        seed = int(generator.initial_seed() % 2**31)
        turns = FUSED_TURNS if self.cost == "fused" and self.structure else 0
        base, start = cost, None
        for turn in range(turns + 1):
            options = dict(tolerance=self.tolerance, cap=self.iterations, memory=self.memory << 20, seed=seed)
            solver = sinkhorn.Solver(problem, start=start, **options)
            for state in solver:
                metrics = {"marginal error": state.error, "epsilon": problem.epsilon}
                yield count.step("transport", metrics, after + max(1, TRANSPORT_STEPS - state.iteration), snapshot)
                snapshot = None
            out = solver.output
            if turn < turns:
                start, problem = out.g, self._fused(data, base, out.coupling, problem)
        coupling = out.coupling
        if masses:  # anchors took no part: they join with a mass like any other, by the potentials they were given
            uniform = sinkhorn.Problem(
                coupling.problem.cost, coupling.problem.epsilon, rho_x=problem.rho_x, rho_y=problem.rho_y
            )
            coupling = sinkhorn.Coupling(uniform, coupling.f, coupling.g)
        rows = torch.linspace(0, coupling.shape[0] - 1, min(WATCHED_ROWS, coupling.shape[0])).round().long()
        matches = float(coupling.effective_matches(rows.to(coupling.f.device)).mean())
        metrics = {"marginal error": max(out.error_x, out.error_y), "effective matches": matches}
        kept = replace(_shown(profile), coupling=to_cpu(coupling))
        yield count.step("transport", metrics, after, kept)
        notes += [f"transport: {n}" for n in out.notes]
        if not problem.balanced:
            notes.append(f"marginals are relaxed: {100 * out.mass:.3g} % of the mass is transported")
        return coupling, out.converged, notes

    def _cost(self, data: _Data, profile: Profile, count: Count, left: int):
        """The cost between all rows. One that is held in full is made in parts."""
        import torch

        from relcore.ops import anchor_costs, sinkhorn

        if self.cost in ("profile", "fused"):
            return sinkhorn.dot(profile.factors_x(data.x), profile.factors_y(data.y))
        if self.cost == "bridge":
            parts = anchor_costs.bridge(data.x, data.y, *data.anchors)
        else:
            parts = anchor_costs.keypoint(data.x, data.y, *data.anchors, self.keypoint_temperature)
        rows, done = [], 0
        for part in parts:
            rows.append(part)
            done += len(part)
            yield count.step("transport", {"share of the cost": done / len(data.x)}, left)
        return anchor_costs.from_matrix(torch.cat(rows))

    def _fused(self, data: _Data, base, coupling, problem):
        """The next problem of fused Gromov-Wasserstein: its cost made linear at the present plan."""
        from relcore.ops import anchor_costs

        inner = [(1 - v.double() @ v.double().T).clamp_min(0) for v in data.sides]
        gradient = anchor_costs.gromov_gradient(*inner, coupling.dense().double())
        cost = (1 - self.structure) * base.dense() + self.structure * gradient
        return replace(problem, cost=anchor_costs.from_matrix(cost))

    def _distil(self, data: _Data, profile: Profile, coupling: Coupling, generator, count: Count):
        """The two encoders."""
        from relcore.ops.distill import Training

        weight, sharpen, start = self.pair_weight, self.sharpen, None
        if self.start == "profile" and self.mode != "paper":
            start = profile.left, profile.right
        if self.mode == "paper":
            weight, sharpen = self._paper_weight(data), 1.0
        training = Training(
            *data.sides,
            (data.rows_x, data.rows_y),
            coupling,
            steps=self.steps_student,
            generator=generator,
            start=start,
            width=self.width,
            hidden=self.hidden if self.student == "mlp" else 0,
            chunk=self.chunk,
            temperature=self.temperature,
            learning_rate=self.learning_rate,
            pair_weight=weight,
            sharpen=sharpen,
        )
        watch = Watch(data.sides, profile, coupling)
        yield from trained(training, watch, count.step, "distil")
        return [encoder(w) for w in training.weights]

    def _paper_weight(self, data: _Data) -> float:
        """The anchors are one chunk of a pass over the pool."""
        return 1 / max(1, min(len(data.x), len(data.y)) // self.chunk)

    # ---------------------------------------------------------------- limits and cost

    def check(self, n, m, dx, dy, seeds):
        super().check(n, m, dx, dy, seeds)
        if self.similarity in WHITENED[1]:
            how = self.shrinkage, self.shrinkage_amount, self.similarity
            anchored.check_whitening(self.title, seeds, dx, dy, *how, what="anchors")
        if self.cost in ("bridge", "keypoint") and n * m > DENSE_ENTRIES:
            side = math.isqrt(DENSE_ENTRIES)
            raise InputError(
                f"{self.title}: the {self.cost} cost is held in full and bears {side:,} x {side:,} rows, got "
                f"{n:,} x {m:,}; take fewer rows, or the profile cost."
            )
        if self.cost == "fused" and max(n, m) > FUSED_ROWS:
            raise InputError(
                f"{self.title}: fused Gromov-Wasserstein bears {FUSED_ROWS:,} rows a side, got {n:,} and {m:,}; take "
                "fewer rows, or the profile cost."
            )

    def estimate(self, n, m, dx, dy, seeds):
        from relcore.methods import costs

        width = max(1, seeds) if self.similarity != "gamma" else min(dx, dy, max(1, seeds))
        dense = self.cost != "profile"
        held = n * m * 4 <= self.memory << 20
        memory = 4.0 * (3 * n * dx + 3 * m * dy + (n + m) * width) + costs.TILE_BYTES
        memory += 4.0 * n * m if held else 0.0
        memory += {"profile": 0.0, "fused": 104.0}.get(self.cost, 36.0) * n * m
        seconds = costs.transport(n, m, min(n, m) if dense else width, TRANSPORT_STEPS, held)
        check = costs.product(n, 1, dx * width) + costs.product(m, 1, dy * width)
        if self.select != "no" and seeds >= ENOUGH and not (dense and self.cost != "fused"):
            k, j = (min(rows, self.select_rows) + seeds // 10 for rows in (n, m))
            cells = [len(etas) for *_, etas in self._grid()]
            each = costs.transport(k, j, width, TRANSPORT_STEPS, True)
            decompositions = 3 * len(cells) * costs.decomposition(dx, dy)
            seconds += sum(cells) * each + decompositions
            check += len(cells) * each + decompositions
        if self.similarity != "gamma":  # fitted on all anchors, and on those that are not held out
            told = anchored.cost(self, n, m, dx, dy, seeds, seeds)
            memory, seconds, check = memory + told.memory, seconds + 2 * told.seconds, check + 2 * told.seconds
            width = min(dx, dy, width)
        if self.student != "none":
            hidden = self.hidden if self.student == "mlp" else 0
            width = self.width if self.start == "random" or self.mode == "paper" else width
            seconds += self.steps_student * costs.distil_step(min(self.chunk, n, m), dx + dy, width, hidden)
        if dense:  # a marginal or a median is a product with an identity, in float64
            seconds += 6 * costs.product(n, m, min(n, m))
        if self.cost == "keypoint":
            seconds += 6e-9 * n * m * seeds
        if self.cost == "bridge":
            seconds += 0.5e-9 * n * m * seeds
        if self.cost == "fused":
            seconds += FUSED_TURNS * (2e-10 * n * m * (n + m) + costs.transport(n, m, min(n, m), TRANSPORT_STEPS, held))
        return Cost(memory=memory, seconds=seconds, check=check)


# ---------------------------------------------------------------------------------------------------------- the pieces


class _Data:
    """Both sides, the anchors among them, and what has to be said of them."""

    def __init__(self, x: Tensor, y: Tensor, seeds: Pairs, centred: bool) -> None:
        import torch

        from relcore.ops.neighbors import unit_rows

        self.seeds = seeds
        self.rows_x, self.rows_y = (torch.from_numpy(r.copy()).to(x.device) for r in (seeds.x, seeds.y))
        self.shifts: list[Tensor | None] = [None, None]
        if centred:
            means = [v[r].double().mean(0).float() for v, r in ((x, self.rows_x), (y, self.rows_y))]
            spread = [(v[r] != v[r[0]]).any() for v, r in ((x, self.rows_x), (y, self.rows_y))]
            self.shifts = [mean if wide else None for mean, wide in zip(means, spread, strict=True)]
            x, y = (v if s is None else unit_rows(v - s) for v, s in zip((x, y), self.shifts, strict=True))
        self.uncentred = [side for side, s in zip("xy", self.shifts, strict=True) if centred and s is None]
        self.x, self.y = x, y
        self.pools = [self._others(len(v), r) for v, r in ((x, self.rows_x), (y, self.rows_y))]

    @property
    def sides(self) -> tuple[Tensor, Tensor]:
        return self.x, self.y

    @property
    def anchors(self) -> tuple[Tensor, Tensor]:
        return self.x[self.rows_x], self.y[self.rows_y]

    @staticmethod
    def _others(rows: int, taken: Tensor) -> Tensor:
        """Rows that are no anchors; all rows where there are no others."""
        import torch

        free = torch.ones(rows, dtype=torch.bool, device=taken.device)
        free[taken] = False
        others = free.nonzero()[:, 0]
        return others if len(others) else torch.arange(rows, device=taken.device)

    def masses(self) -> dict[str, Tensor]:
        """Uniform masses of the pools, none on the anchors."""
        import torch

        out = {}
        for name, v, rows in (("a", self.x, self.pools[0]), ("b", self.y, self.pools[1])):
            out[name] = torch.zeros(len(v), dtype=torch.float64, device=v.device)
            out[name][rows] = 1 / len(rows)
        return out

    def split(self, generator, most: int) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Positions of a tenth of the anchors and of the others, and rows of each pool, at most so many."""
        import torch

        order = torch.randperm(len(self.seeds), generator=generator).to(self.x.device)
        held = max(1, len(self.seeds) // 10)
        drawn = []
        for pool, rows in zip(self.pools, (self.rows_x, self.rows_y), strict=True):
            pool = pool[~torch.isin(pool, rows[order[:held]])]  # where no others are, pools are the anchors themselves
            drawn.append(pool[torch.randperm(len(pool), generator=generator)[:most].to(pool.device)])
        return order[:held], order[held:], drawn

    def notes(self, moments: Moments) -> list[str]:
        out = []
        n, m, count = len(self.x), len(self.y), len(self.seeds)
        free = [rows - count for rows in (n, m)]
        for side, rows, others in zip("xy", (n, m), free, strict=True):
            if not others:
                out.append(f"all {rows} rows of {side} are anchors: the plan is between those themselves")
            elif others < FEW_ROWS:
                out.append(
                    f"{side} has {others} row{'s' * (others > 1)} beside its anchors: a plan between so few says little"
                )
        for side in self.uncentred:
            out.append(f"all anchors of {side} are the same vector, which centring would leave nothing of: not centred")
        if max(n, m) > UNLIKE * min(n, m):
            more, less = ("x", "y") if n > m else ("y", "x")
            out.append(
                f"{more} has {max(n, m) / min(n, m):.0f} times the rows of {less}: each row of {less} is given the "
                f"mass of so many; rho_{more} of 0.1 to 0.3 lets rows of {more} stay unmatched"
            )
        for side, a, dim in zip("xy", self.anchors, (self.x.shape[1], self.y.shape[1]), strict=True):
            distinct = len(a.unique(dim=0))
            if distinct < count:
                out.append(f"{count - distinct} of {count} anchors of {side} repeat the vector of another")
            rank = moments.rank_x if side == "x" else moments.rank_y
            if rank == 1:
                out.append(f"all anchors of {side} lie on one line: rows are told apart along it alone")
            elif rank < min(dim, count):
                out.append(f"the anchors of {side} span {rank} of {dim} dimensions")
        if count < max(self.x.shape[1], self.y.shape[1]):
            out.append(
                f"{count} anchors for {self.x.shape[1]} and {self.y.shape[1]} dimensions: what lies outside the "
                "anchors' span has no say"
            )
        if moments.trivial:
            out.append(
                f"{moments.trivial} canonical correlation{'s are' if moments.trivial > 1 else ' is'} 1 whatever the "
                f"data, because {count} anchors cannot "
                "separate so many dimensions: a ridge, or gamma below 1, keeps that from counting"
            )
        for side, v, rows, a in zip("xy", self.sides, self.pools, self.anchors, strict=True):
            if (p := _unlike(v[rows], a)) < ODD:
                out.append(
                    f"the rows of {side} are not spread like its anchors (p {p:.1g}). If {side} holds rows that the "
                    f"other side lacks, exact marginals force their mass on wrong partners: set rho_{side} to 0.1 to "
                    "0.3 and centre to anchors"
                )
        return out


def _default(name: str) -> float:
    return next(f.default for f in fields(AnchorDOT) if f.name == name)


def _unlike(pool: Tensor, anchors: Tensor) -> float:
    """Probability of means this far apart if anchors were drawn from the pool: Hotelling's test, leading directions."""
    from scipy.special import gammaincc

    from relcore.ops.linalg import principal_axes

    if len(pool) < FEW_ROWS or len(anchors) < FEW_ROWS:
        return 1.0
    mean = pool.double().mean(0)
    centred = pool.double() - mean
    axes, scale = principal_axes(centred.T @ centred / len(pool), max(1, min(30, len(anchors) // 4)))
    spread = (centred @ axes.double()).square().mean(0)
    gap = (anchors.double().mean(0) - mean) @ axes.double()
    statistic = (gap.square() / spread).sum() / (1 / len(anchors) + 1 / len(pool))
    return float(gammaincc(len(spread) / 2, float(statistic) / 2))


def _far(cost, held: int) -> str:
    """Said where many rows of a pool score lower at best than nearly all held-out anchors do."""
    scores = 1 - cost.dense()
    scores[range(held), range(held)] = -math.inf  # an anchor's own partner is no fair comparison
    out = []
    for side, best in (("x", scores.amax(1)), ("y", scores.amax(0))):
        low = best[:held].quantile(0.05)
        share = float((best[held:] < low).double().mean())
        if held >= 10 and share > FAR:
            out.append(
                f"{100 * share:.0f} % of the rows of {side} match nothing as well as 19 of 20 held-out anchors do: "
                f"they may have no partner; rho_{side} of 0.1 to 0.3 lets them stay unmatched"
            )
    return "; ".join(out)


def _fared(coupling: Coupling, held: int) -> tuple[float, float]:
    """Rank and surprise of the partners of the first rows among all; equal scores count against them."""
    import torch

    first = torch.arange(held, device=coupling.f.device)
    ranks, surprises = [], []
    for side in (coupling, coupling.swapped):
        log = side.row_normalised(first, slice(None), log=True)
        own = log[first, first]
        ranks.append((log >= own[:, None]).sum(1).double().mean().item())
        surprises.append(-own.mean().item())
    return sum(ranks) / 2, sum(surprises) / 2


def _shown(profile: Profile | Described) -> Snapshot:
    return Snapshot(*(to_cpu(m) for m in (profile.map_x, profile.map_y)))


def _factors(profile: Profile | Described) -> list[Any]:
    import torch

    from relcore.methods.described import Described
    from relcore.methods.kept import Factor, Scaled

    if isinstance(profile, Described):
        return [
            Scaled(torch.ones((), device=v.device), m)
            for v, m in zip(profile.sides, (profile.map_x, profile.map_y), strict=True)
        ]
    return [Factor(profile.left, profile.map_x), Factor(profile.right, profile.map_y)]


def _shifted(encode: Any, shift: Tensor | None) -> Any:
    from relcore.methods.kept import Shifted

    return encode if encode is None or shift is None else Shifted(shift, encode)
