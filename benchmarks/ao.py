"""Anchor optimisation measured: on real pairs, on a planted rotation, and what its parts cost.

    python benchmarks/ao.py real [--data ../shared/data] [--draws 5] [--faithful] [--soft] [--verdict]
                                 [--similarity wip kernel]
    python benchmarks/ao.py planted [--rows 20000] [--threads 2]
    python benchmarks/ao.py costs

Times are CPU seconds of this process unless said otherwise: on a machine shared with others, wall time says little.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from relcore import pipeline, preprocess, seeds  # noqa: E402
from relcore.methods import costs, method  # noqa: E402
from relcore.metrics import retrieval  # noqa: E402
from relcore.ops import matching  # noqa: E402
from relcore.ops.neighbors import unit_rows  # noqa: E402
from relcore.ops.relative import relative  # noqa: E402
from relcore.space import Pair, Pairs, make_space  # noqa: E402

PAIRS = (  # title, folder, seed pairs
    ("GloVe 50 / 100", "word_en_glove50_glove100", 15),
    ("MNIST, two networks", "mnist_two_nets", 15),
    ("Banking77, MiniLM-L6 / WordLlama", "sent_banking77_l6_wl", 15),
    ("CIFAR-10, two EfficientNets", "img_cifar10_lite0_lite2", 15),
    ("word2vec / fastText", "word_en_word2vec_fasttext_selftrained", 15),
    ("GloVe / MiniLM tokens", "word_en_glove100_minilm384", 50),
    ("GloVe / MiniLM tokens", "word_en_glove100_minilm384", 15),
)
FAILED = 0.5  # a run below this part of the ground-truth anchors' MRR, in either direction, has failed
EPSILON = 1e-4  # the paper's


# ------------------------------------------------------------------------------------------------- measuring


class Peak:
    """Peak resident memory above the value at entry, sampled every 5 ms. ``mib`` after the block."""

    @staticmethod
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    def __enter__(self) -> Peak:
        gc.collect()
        self.base = self.peak = self.resident()
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()
        return self

    def _watch(self) -> None:
        while not self.done.wait(0.005):
            self.peak = max(self.peak, self.resident())

    def __exit__(self, *_) -> None:
        self.done.set()
        self.thread.join()
        self.mib = (max(self.peak, self.resident()) - self.base) / 2**20


def cpu_seconds(action: Callable[[], object], repeats: int = 3) -> float:
    """The middle of a few CPU times."""
    times = []
    for _ in range(repeats):
        begun = time.process_time()
        action()
        times.append(time.process_time() - begun)
    return statistics.median(times)


def table(head: Iterable[str]) -> None:
    head = list(head)
    row(head)
    row(["---"] * len(head))


def row(cells: Iterable[object]) -> None:
    print("| " + " | ".join(str(c) for c in cells) + " |", flush=True)


# ------------------------------------------------------------------------------------------------- real pairs


@dataclass(frozen=True)
class Result:
    """One run: MRR@10 from x to y and back, share of anchors found, CPU seconds, and what the health check said."""

    mrr: tuple[float, float]
    found: float = float("nan")
    seconds: float = float("nan")
    verdict: str = ""


def mrr(x: torch.Tensor, y: torch.Tensor, scored: Pairs) -> tuple[float, float]:
    scores = retrieval.retrieval(x, y, scored, k=10)
    return scores["x_to_y"]["mrr"], scores["y_to_x"]["mrr"]


def spread(values: list[float]) -> str:
    return f"{np.mean(values):.3f} ± {np.std(values):.3f}"


def both(results: list[Result]) -> str:
    return " / ".join(spread([r.mrr[way] for r in results]) for way in (0, 1))


def real(args: argparse.Namespace) -> None:
    torch.set_num_threads(args.threads)
    modes = {"default": {}}
    if args.faithful:
        modes["paper"] = {"mode": "paper", "start": "random"}
        if args.soft:
            modes["paper, soft plan"] = {"mode": "paper", "start": "random", "correspondence": "soft"}
    modes |= {f"default, {s} in the end": {"similarity": s} for s in args.similarity}
    rows = None if args.all_rows else args.rows
    print(
        f"MRR@10 x to y / y to x, mean ± sd over {args.draws} draws of the seeds; {'all' if rows is None else rows} "
        f"rows, {', '.join(preprocess.DEFAULT)}; {args.anchors} anchors. GT: the true partners of the same anchors.\n"
    )
    columns = ["pair", "seeds", "mode", "Seed", "GT", "MRR", "anchors found", "runs ≥ GT both ways", "CPU s"]
    table(columns + ["verdicts of runs that worked", "of runs that failed"] * args.verdict)
    called_aligned = 0
    for title, folder, count in PAIRS:
        if args.only and not any(o in folder for o in args.only):
            continue
        pair = load(args.data / folder / "pair.npz", rows)
        x, y = (preprocess.fit(preprocess.DEFAULT, s.tensor())[1] for s in (pair.x, pair.y))
        seed_runs: list[Result] = []
        gt_runs: list[Result] = []
        runs: dict[str, list[Result]] = {name: [] for name in modes}
        for draw in range(args.draws):
            known = seeds.draw(pair.truth, count, seed=draw)
            scored = pair.truth.without(known)
            seed_runs.append(Result(mrr(relative(x, x[known.x.tolist()]), relative(y, y[known.y.tolist()]), scored)))
            for name, params in modes.items():
                ao = method("ao", anchors=args.anchors, **params)
                begun = time.process_time()
                run = ao.fit(x, y, known, generator=torch.Generator().manual_seed(draw))
                spent = time.process_time() - begun
                partner = pair.truth.partner(len(x))[run.anchors.x]
                fresh = ~np.isin(run.anchors.x, known.x)
                found = float((run.anchors.y == partner)[fresh].mean())
                verdict = pipeline.align(pair, ao, known, seed=draw, device="cpu").verdict.level if args.verdict else ""
                runs[name].append(Result(mrr(run.x, run.y, scored), found, spent, verdict))
                if name == "default":
                    true = relative(x, x[run.anchors.x.tolist()]), relative(y, y[partner.tolist()])
                    gt_runs.append(Result(mrr(*true, scored)))
        for name, results in runs.items():
            reached = [
                all(a >= b for a, b in zip(r.mrr, g.mrr, strict=True)) for r, g in zip(results, gt_runs, strict=True)
            ]
            cells = [title, count, name, both(seed_runs), both(gt_runs), both(results)]
            cells.append(spread([r.found for r in results]))
            cells += [f"{sum(reached)} of {len(reached)}", f"{np.mean([r.seconds for r in results]):.1f}"]
            if args.verdict:
                failed = [
                    any(a < FAILED * b for a, b in zip(r.mrr, g.mrr, strict=True))
                    for r, g in zip(results, gt_runs, strict=True)
                ]
                for wanted in (False, True):
                    levels = Counter(r.verdict for r, f in zip(results, failed, strict=True) if f == wanted)
                    cells.append(", ".join(f"{n} {level}" for level, n in levels.most_common()) or "-")
                called_aligned += levels["aligned"]
            row(cells)
    if args.verdict:
        print(f"\nFailed: MRR below {FAILED} of GT in a direction. Failed runs called aligned: {called_aligned}.")
        if called_aligned:
            sys.exit(1)


def load(path: Path, rows: int | None) -> Pair:
    with np.load(path, allow_pickle=False) as arrays:
        sides = [make_space(arrays[side][:rows], title=side, source=path.parent.name)[0] for side in "xy"]
    if len(sides[0]) != len(sides[1]):
        sys.exit(f"{path}: rows were set aside on one side, so row i of x is no longer row i of y.")
    return Pair(*sides, Pairs.by_row(len(sides[0])))


# ------------------------------------------------------------------------------------------------- planted rotation


def planted(n: int, dx: int, dy: int, noise: float, seed: int) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """Clustered unit rows x, their rotation into dy dimensions with noise, in another order, and where each went."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(40, dx)) / dx**0.5
    x = centres[rng.integers(40, size=n)] + 0.6 * rng.normal(size=(n, dx)) / dx**0.5
    q, _ = np.linalg.qr(rng.normal(size=(dy, dx)))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = x @ q.T + noise * rng.normal(size=(n, dy)) / dy**0.5
    order = rng.permutation(n)
    ready = [preprocess.fit(preprocess.DEFAULT, torch.from_numpy(v).float())[1] for v in (x, y[order])]
    return *ready, np.argsort(order)


def naive_step(x, y, anchors_x, raw, epsilon=EPSILON) -> torch.Tensor:
    """The loss and its gradient in ``raw`` as one would first write them: autograd through a dense Sinkhorn plan."""
    raw = raw.clone().requires_grad_(True)
    relative_x, relative_y = x @ anchors_x.T, y @ torch.nn.functional.normalize(raw, dim=1).T
    distance = torch.cdist(relative_x, relative_y)
    u = -epsilon * torch.logsumexp(-distance / epsilon, 1)
    v = -epsilon * torch.logsumexp((u[:, None] - distance) / epsilon, 0)
    plan = torch.exp((u[:, None] + v - distance) / epsilon)  # columns sum to 1
    ((plan.T @ relative_x - relative_y) ** 2).mean().backward()
    return raw.grad


def vote_steps(x, y, known: Pairs, anchors: int, steps: int) -> float:
    """Middle CPU seconds of a step of the paper mode, after the first."""
    ao = method("ao", mode="paper", start="procrustes", anchors=anchors, adam_steps=steps + 1)
    times, begun = [], time.process_time()
    for _ in ao.steps(x, y, known, generator=torch.Generator().manual_seed(0)):
        times.append(time.process_time() - begun)
        begun = time.process_time()
    return statistics.median(times[1:])


def product_floor(x, y, width: int) -> None:
    left, right = x[:, :width], y[:, :width].contiguous()
    buffer = torch.empty(max(1, matching.TILE_ELEMENTS // len(y)), len(y))
    for rows in matching.tiles(len(x), len(y)):
        torch.mm(left[rows], right.T, out=buffer[: rows.stop - rows.start])


def run_planted(args: argparse.Namespace) -> None:
    width = min(args.dx, args.dy)
    print(
        f"Y = X Q + noise {args.noise}, {args.anchors} anchors, {args.seeds} seeds, dimensions {args.dx}, {args.dy}.\n"
    )
    torch.set_num_threads(1)
    table(["step, one thread", "rows", "CPU s", "ns an element", "of the product", "peak MiB"])
    figures: dict[tuple[str, int], float] = {}
    for n in (args.naive_rows, args.rows):
        x, y, where = planted(n, args.dx, args.dy, args.noise, 0)
        known = Pairs(np.stack([np.arange(args.seeds), where[: args.seeds]], 1))
        anchors_x, start = x[: args.anchors], unit_rows(torch.randn(args.anchors, args.dy))
        todo = {
            f"product of width {width}": lambda x=x, y=y: cpu_seconds(lambda: product_floor(x, y, width)),
            "vote step": lambda x=x, y=y, known=known: vote_steps(x, y, known, args.anchors, 3),
        }
        if n == args.naive_rows:
            todo["naive: autograd through a dense plan"] = lambda x=x, y=y, a=anchors_x, s=start: cpu_seconds(
                lambda: naive_step(x, y, a, s), 1
            )
        for name, action in todo.items():
            with Peak() as peak:
                figures[name, n] = seconds = action()
            share = seconds / figures[f"product of width {width}", n]
            row([name, n, f"{seconds:.2f}", f"{1e9 * seconds / n**2:.1f}", f"{share:.1f}", f"{peak.mib:.0f}"])
    ratio = figures["naive: autograd through a dense plan", args.naive_rows] / figures["vote step", args.naive_rows]
    per_element = {key: seconds / key[1] ** 2 for key, seconds in figures.items()}
    large = per_element["naive: autograd through a dense plan", args.naive_rows] / per_element["vote step", args.rows]
    print(
        f"\nnaive / vote step: {ratio:.1f} at {args.naive_rows} rows; by the element {large:.1f} against the vote step "
        f"of {args.rows} rows. Naive keeps several n x n matrices, there of {4 * args.rows**2 / 2**30:.1f} GiB "
        f"each; it is run at {args.naive_rows} rows only."
    )
    torch.set_num_threads(args.threads)
    ao = method("ao", anchors=args.anchors)
    with Peak() as peak:
        wall, cpu = time.monotonic(), time.process_time()
        run = ao.fit(x, y, known, generator=torch.Generator().manual_seed(0))
        wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    found = int((run.anchors.y == where[run.anchors.x]).sum())
    print(
        f"\nalternation, whole, {args.rows} rows, {args.threads} threads: {found} of {len(run.anchors)} anchors found, "
        f"{len(run.history)} rounds, {wall:.0f} s wall, {cpu:.0f} CPU s, peak {peak.mib:.0f} MiB; "
        f"estimate for one thread {ao.estimate(args.rows, args.rows, args.dx, args.dy, args.seeds).seconds:.0f} s."
    )


# ------------------------------------------------------------------------------------------------- costs


def run_costs(args: argparse.Namespace) -> None:
    """What :mod:`relcore.methods.costs` is made of, beside what it says now."""
    torch.set_num_threads(1)
    n = args.rows
    g = torch.Generator().manual_seed(0)
    table(["part, one thread", "width", "ns an element", "relcore/methods/costs.py"])
    for width in (50, 100, 300):
        x, y = (unit_rows(torch.randn(n, width, generator=g)) for _ in "xy")
        f = matching.Factors(x, y, torch.ones(n), torch.ones(n))
        for name, action, said in (
            ("product", lambda x=x, y=y, w=width: product_floor(x, y, w), costs.product(n, n, width)),
            ("vote", lambda f=f, x=x: matching.vote(f, x), costs.vote(n, n, width)),
            ("best both ways", lambda x=x, y=y: matching.best_both_ways(x, y), costs.both_ways(n, n, width)),
            ("Sinkhorn sweep", lambda f=f, x=x: matching.sinkhorn_match(f, x, 0.01), costs.sweep(n, n, width, width)),
        ):
            seconds = cpu_seconds(action, 1 if name == "Sinkhorn sweep" else 3)
            row([name, width, f"{1e9 * seconds / n**2:.1f}", f"{1e9 * said / n**2:.1f}"])
    print()
    table(["decomposition, one thread", "ms", "relcore/methods/costs.py"])
    for width in (50, 100, 300, 500):
        square = torch.randn((width, width), generator=g, dtype=torch.float64)
        seconds = cpu_seconds(lambda square=square: torch.linalg.svd(square))
        row([f"{width} x {width}", f"{1e3 * seconds:.1f}", f"{1e3 * costs.decomposition(width, width):.1f}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    p = commands.add_parser("real", help="MRR on real pairs against seed and ground-truth anchors")
    p.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="folder of the pairs")
    p.add_argument("--only", nargs="*", metavar="NAME", help="folders whose name contains one of these")
    p.add_argument("--draws", type=int, default=5, help="random draws of the seeds")
    p.add_argument("--rows", type=int, default=2000, help="first rows of each pair")
    p.add_argument("--similarity", nargs="*", default=[], help="also the anchors found compared by these, such as wip")
    p.add_argument("--all-rows", action="store_true", help="every row")
    p.add_argument("--anchors", type=int, default=300)
    p.add_argument("--faithful", action="store_true", help="also the published method, random start, by votes")
    p.add_argument("--soft", action="store_true", help="with --faithful, also by the Sinkhorn plan itself (slow)")
    p.add_argument(
        "--verdict", action="store_true", help="also the health verdict; exit 1 if a failure is called aligned"
    )
    p.add_argument("--threads", type=int, default=1)
    p.set_defaults(run=real)
    p = commands.add_parser("planted", help="a planted rotation: anchors found, time and memory of a step and a run")
    p.add_argument("--rows", type=int, default=20_000)
    p.add_argument("--naive-rows", type=int, default=4000, help="rows of the naive form, which keeps n x n matrices")
    p.add_argument("--dx", type=int, default=100)
    p.add_argument("--dy", type=int, default=150)
    p.add_argument("--noise", type=float, default=0.1, help="norm of the noise on unit rows")
    p.add_argument("--anchors", type=int, default=300)
    p.add_argument("--seeds", type=int, default=15)
    p.add_argument("--threads", type=int, default=2, help="for the whole alternation; steps are timed on one")
    p.set_defaults(run=run_planted)
    p = commands.add_parser("costs", help="nanoseconds an element of the parts")
    p.add_argument("--rows", type=int, default=10_000)
    p.set_defaults(run=run_costs)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
