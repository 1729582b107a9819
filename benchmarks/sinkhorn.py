"""Our entropic transport beside POT, geomloss and ott-jax: same problem, same true marginal error, one run.

    python benchmarks/sinkhorn.py [--rows 2000 5000] [--eta 0.05] [--width 300] [--solvers ours rebuilt pot ...]
    python benchmarks/sinkhorn.py --rows 30000 --width 500 --solvers ours rebuilt

Every solver runs in a process of its own. POT's iterate Sinkhorn's plain map, so the number of iterations they need
for a given L1 error of the marginals is found once, by our kernel without acceleration, and given to each, its own
stopping off. ott-jax stops by its own L1 error; geomloss has no such stop, and is run with two of its scalings. The
error printed is measured afterwards from each solver's potentials, in float64, on both sides (the larger one).

A solver that would take longer than ``--limit`` seconds is timed for a few iterations and its time extrapolated,
marked ~. Times are wall and CPU seconds, the making of the cost included; memory is the peak above what the data take.
geomloss and ott-jax are used where they are installed (pip install geomloss ott-jax).
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from relcore.ops import sinkhorn  # noqa: E402

SOLVERS = (
    "ours",  # kernel stored
    "rebuilt",  # kernel rebuilt from the factors
    "pot",  # float64, kernel domain: underflows where epsilon is small
    "pot_log",  # float64, numpy
    "pot_log_torch",  # float32
    "pot_lazy_torch",  # float32, in batches
    "geomloss_0.5",
    "geomloss_0.9",
    "ott",  # all at once
    "ott_batched",
)
TOLERANCE = 1e-4


def clouds(n: int, width: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Two views of n things: 200 clusters in 48 directions of falling weight, seen through two noisy networks."""
    g = torch.Generator().manual_seed(seed)
    weight = torch.arange(1, 49).float().rsqrt()
    centres = torch.randn(200, 48, generator=g)
    things = (centres[torch.randint(0, 200, (n,), generator=g)] + 0.7 * torch.randn(n, 48, generator=g)) * weight
    views = []
    for _ in range(2):
        network = torch.randn(48, width, generator=g) / 48**0.5
        view = torch.tanh(things @ network) + 0.1 * torch.randn(n, width, generator=g)
        views.append(sinkhorn.cosine(view - view.mean(0), view).left.contiguous())
    # the second view comes closer to the first, as two encoders of one thing are after alignment
    views[1] = sinkhorn.cosine(0.6 * views[0] + 0.6 * views[1], views[1]).left.contiguous()
    return views[0], views[1]


class Peak:
    """Peak resident memory above the value at entry, sampled every 5 ms. ``mib`` after the block."""

    @staticmethod
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    def __enter__(self) -> Peak:
        gc.collect()
        self.base = self.top = self.resident()
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()
        return self

    def _watch(self) -> None:
        while not self.done.wait(0.005):
            self.top = max(self.top, self.resident())

    def __exit__(self, *_) -> None:
        self.done.set()
        self.thread.join()
        self.mib = (self.top - self.base) / 2**20


def true_error(x: torch.Tensor, y: torch.Tensor, f, g, epsilon: float) -> float:
    """The larger L1 error of the two marginals of ``exp((f + g - C) / epsilon) / (n m)``, float64."""
    x, y = x.double(), y.double()
    f, g = (torch.as_tensor(np.array(t), dtype=torch.float64).flatten() for t in (f, g))
    rows, columns = torch.empty(len(x), dtype=torch.float64), torch.zeros(len(y), dtype=torch.float64)
    for i in range(0, len(x), 500):
        cost = (x[i : i + 500] ** 2).sum(1)[:, None] + (y**2).sum(1) - 2 * x[i : i + 500] @ y.T
        plan = ((f[i : i + 500, None] + g - cost) / epsilon).exp_().div_(len(x) * len(y))
        rows[i : i + 500] = plan.sum(1)
        columns += plan.sum(0)
    return max((rows - 1 / len(x)).abs().sum().item(), (columns - 1 / len(y)).abs().sum().item())


def plain_iterations(x: torch.Tensor, y: torch.Tensor, epsilon: float, tolerance: float) -> int:
    """Plain iterations from g = 0 until the L1 error is reached, by our kernel."""
    problem = sinkhorn.Problem(sinkhorn.squared_euclidean(x, y), epsilon)
    kernel = sinkhorn._Kernel(problem, torch.float32, stored=True)
    point = None
    for done in range(1, 20_000):
        point = sinkhorn._step(problem, kernel, torch.zeros_like(problem.b) if point is None else point.following)
        if point.error <= tolerance:
            return done
    return 20_000


def peer(name: str, x: torch.Tensor, y: torch.Tensor, epsilon: float) -> Callable[[int], tuple]:
    """A function of the number of iterations that gives potentials with the masses outside."""
    n, m = len(x), len(y)
    with_masses = epsilon * math.log(n), epsilon * math.log(m)
    if name.startswith("pot"):
        import ot

        if name == "pot_lazy_torch":

            def run(iterations):
                u, v, _ = ot.bregman.empirical_sinkhorn(
                    x, y, epsilon, numIterMax=iterations, stopThr=0, isLazy=True, batchSize=500, warn=False, log=True
                )
                return u * epsilon + with_masses[0], v * epsilon + with_masses[1]

            return run
        method = "sinkhorn" if name == "pot" else "sinkhorn_log"
        points = (x, y) if name.endswith("torch") else (x.double().numpy(), y.double().numpy())
        if name.endswith("torch"):
            a, b = torch.full((n,), 1 / n), torch.full((m,), 1 / m)
        else:
            a, b = np.full(n, 1 / n), np.full(m, 1 / m)

        def run(iterations):
            options = {"numItermax": iterations, "stopThr": 0, "warn": False, "log": True}
            _, log = ot.sinkhorn(a, b, ot.dist(*points), epsilon, method=method, **options)
            u, v = (log["log_u"], log["log_v"]) if method == "sinkhorn_log" else (np.log(log["u"]), np.log(log["v"]))
            return epsilon * u + with_masses[0], epsilon * v + with_masses[1]

        return run
    if name.startswith("geomloss"):
        from geomloss import SamplesLoss

        # its cost is |x - y|^2 / 2 and its epsilon blur^2
        loss = SamplesLoss(
            "sinkhorn",
            p=2,
            blur=math.sqrt(epsilon / 2),
            scaling=float(name.split("_")[1]),
            potentials=True,
            debias=False,
            backend="tensorized",
        )
        return lambda _: tuple(2 * t for t in loss(x, y))
    import jax
    import jax._src.interpreters.batching as inner
    import jax.interpreters.batching as outer
    import jax.numpy as jnp

    if "is_vmappable" not in vars(outer):  # ott-jax 0.6 wants what jax 0.10 no longer shows
        outer.__dict__["is_vmappable"] = getattr(inner, "is_vmappable", None)
    from ott.geometry import pointcloud
    from ott.problems.linear import linear_problem
    from ott.solvers.linear import sinkhorn as theirs

    def solve(x, y):
        geometry = pointcloud.PointCloud(x, y, epsilon=epsilon, batch_size=1024 if name == "ott_batched" else None)
        solver = theirs.Sinkhorn(threshold=TOLERANCE, max_iterations=5000)
        return solver(linear_problem.LinearProblem(geometry))

    compiled = jax.jit(solve)
    xs, ys = jnp.array(x.numpy()), jnp.array(y.numpy())
    compiled.lower(xs, ys).compile()  # not timed

    def run(_):
        out = jax.block_until_ready(compiled(xs, ys))
        return np.asarray(out.f) + with_masses[0], np.asarray(out.g) + with_masses[1]

    return run


def measure(arguments: argparse.Namespace) -> dict:
    """One solver in this process."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(arguments.threads)
    x, y = clouds(arguments.rows[0], arguments.width)
    epsilon, iterations, name = arguments.epsilon, arguments.iterations, arguments.one
    out = {"extrapolated": False}
    if name in ("ours", "rebuilt"):
        memory = 1 << 40 if name == "ours" else 0

        def run(_):
            cost = sinkhorn.squared_euclidean(x, y)
            solution = sinkhorn.solve(sinkhorn.Problem(cost, epsilon), tolerance=TOLERANCE, memory=memory)
            out["iterations"] = solution.iterations
            return solution.f, solution.g

        sinkhorn.solve(sinkhorn.Problem(sinkhorn.squared_euclidean(x[:300], y[:300]), epsilon))
    else:
        run = peer(name, x, y, epsilon)
        out["iterations"] = iterations if name.startswith("pot") else None

    def timed(count):
        wall, cpu = time.perf_counter(), time.process_time()
        potentials = run(count)
        return time.perf_counter() - wall, time.process_time() - cpu, potentials

    with Peak() as peak:
        if name.startswith("pot"):
            run(1)  # its imports and first allocations
            first, second = timed(2), timed(6)
            steps = [max(b - a, 0) / 4 for a, b in zip(first[:2], second[:2], strict=True)]
            whole = [b + step * (iterations - 6) for b, step in zip(second[:2], steps, strict=True)]
            if whole[0] > arguments.limit:
                out.update(wall=whole[0], cpu=whole[1], extrapolated=True, error=None)
        if not out["extrapolated"]:
            out["wall"], out["cpu"], (f, g) = timed(iterations)
    out["mib"] = peak.mib
    if not out["extrapolated"]:
        out["error"] = true_error(x, y, f, g, epsilon)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[2000, 5000])
    parser.add_argument("--eta", type=float, nargs="+", default=[0.05])
    parser.add_argument("--width", type=int, default=300)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--limit", type=float, default=120, help="seconds above which a peer's time is extrapolated")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds after which a solver is given up")
    parser.add_argument("--solvers", nargs="+", default=SOLVERS, choices=SOLVERS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--epsilon", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--iterations", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments)))
        return

    torch.set_num_threads(arguments.threads)
    environment = dict(os.environ, OMP_NUM_THREADS=str(arguments.threads), OPENBLAS_NUM_THREADS=str(arguments.threads))
    for rows in arguments.rows:
        x, y = clouds(rows, arguments.width)
        cost = sinkhorn.squared_euclidean(x, y)
        for eta in arguments.eta:
            epsilon = cost.epsilon(eta)
            plain = any(name.startswith("pot") for name in arguments.solvers)
            iterations = plain_iterations(x, y, epsilon, TOLERANCE) if plain else 0
            print(f"\n{rows} x {rows} x {arguments.width}, eta {eta}, error {TOLERANCE}", end="")
            print(f", {iterations} plain iterations" if plain else "")
            print(f"{'solver':16}{'wall s':>10}{'CPU s':>10}{'x ours':>9}{'MiB':>8}{'error':>10}{'iterations':>12}")
            ours = None
            for name in arguments.solvers:
                options = ["--one", name, "--rows", rows, "--width", arguments.width, "--epsilon", epsilon]
                options += ["--iterations", iterations, "--limit", arguments.limit, "--threads", arguments.threads]
                try:
                    done = subprocess.run(
                        [sys.executable, __file__, *map(str, options)],
                        capture_output=True,
                        text=True,
                        env=environment,
                        timeout=arguments.timeout,
                    )
                except subprocess.TimeoutExpired:
                    print(f"{name:16} more than {arguments.timeout:.0f} s")
                    continue
                if done.returncode:
                    lines = done.stderr.strip().splitlines()
                    print(f"{name:16} {lines[-1][:90] if lines else f'ended with {done.returncode}'}")
                    continue
                r = json.loads(done.stdout.splitlines()[-1])
                ours = ours or (r["wall"] if name == "ours" else None)
                mark = "~" if r["extrapolated"] else ""
                ratio = f"{r['wall'] / ours:.1f}" if ours else ""
                error = "" if r["error"] is None else f"{r['error']:.1e}"
                wall, cpu, done_iterations = f"{mark}{r['wall']:.2f}", f"{mark}{r['cpu']:.2f}", r["iterations"] or ""
                print(
                    f"{name:16}{wall:>10}{cpu:>10}{ratio:>9}{r['mib']:>8.0f}{error:>10}{done_iterations:>12}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
