"""HGA measured: wholly unsupervised trials, time against the published search, kernel against autograd, words by seeds.

    python benchmarks/hga.py trials [--data ../shared/data] [--count 10] [--only NAME]
    python benchmarks/hga.py time [--restarts 40] [--sample 1024]
    python benchmarks/hga.py kernel
    python benchmarks/hga.py words [--data ../shared/data] [--seeds 0 20 100 500]
    python benchmarks/hga.py wrong [--shares 0 0.5 0.85 0.95] [--count 2]

Stitching: a logistic regression learns the classes of B on the common coordinates and is read on A's; "supervised" is
Procrustes on all true pairs. Where the two sides share no input it is fitted on latents of the same pictures in both
networks, which no unsupervised method has. CPU seconds of one thread.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.digits_networks import digits, latents  # noqa: E402
from relcore import preprocess  # noqa: E402
from relcore.methods import method  # noqa: E402
from relcore.methods.base import Alignment  # noqa: E402
from relcore.metrics import health  # noqa: E402
from relcore.metrics.retrieval import retrieval  # noqa: E402
from relcore.metrics.stitching import stitch  # noqa: E402
from relcore.ops import kernel  # noqa: E402
from relcore.ops.linalg import procrustes  # noqa: E402
from relcore.ops.neighbors import topk_cosine, unit_rows  # noqa: E402
from relcore.space import Pairs  # noqa: E402

FOLDERS = ("mnist_two_nets", "fashion_two_nets", "fashion_missing_class0")
NETWORKS = (  # architectures of A and B, width of B's latents
    ("shallow", "shallow", 64),
    ("deep", "deep", 64),
    ("shallow", "deep", 48),
    ("collapse", "collapse", 64),
)
ROWS = 2000
WITHIN = 0.02  # of the supervised stitching


class Trial(NamedTuple):
    """Preprocessed rows of both sides, their classes and items, and the supervised map."""

    x: torch.Tensor
    y: torch.Tensor
    classes_x: np.ndarray
    classes_y: np.ndarray
    items_x: np.ndarray
    items_y: np.ndarray
    supervised: torch.Tensor


def trial(x: np.ndarray, y: np.ndarray, classes: np.ndarray, rows_x: np.ndarray, rows_y: np.ndarray) -> Trial:
    """Rows of two encoders of the same items, of which each side shows some."""
    sides, fitted = [], []
    for v, rows in ((x, rows_x), (y, rows_y)):
        chain, ready = preprocess.fit(preprocess.DEFAULT, v[rows])
        sides.append(ready)
        fitted.append(chain)
    both = np.union1d(rows_x, rows_y)
    turn, _ = procrustes(*(chain(v[both]) for chain, v in zip(fitted, (x, y), strict=True)))
    return Trial(*sides, classes[rows_x], classes[rows_y], rows_x, rows_y, turn)


def real(folder: Path, seed: int, apart: bool) -> Trial:
    with np.load(folder / "pair.npz", allow_pickle=False) as a:
        x, y = (torch.from_numpy(a[s].astype(np.float32)) for s in "xy")
        classes = a["labels"]
    g = np.random.default_rng(seed)
    order = g.permutation(len(x))
    half = len(order) // 2
    rows_x = order[:half][:ROWS] if apart else order[:ROWS]
    rows_y = order[half:][:ROWS] if apart else g.permutation(rows_x)
    return trial(x, y, classes, rows_x, rows_y)


def trained(seed: int, apart: bool, a: str, b: str, width: int) -> Trial:
    """Networks trained here on 1,024 digits; the same digits, or the halves of them, are shown to each."""
    d = digits(seed)
    learn = type(d)(d.pictures[:1024], d.labels[:1024])
    shown = d.pictures[:1024]
    x, y = latents(learn, shown, 2 * seed, a), latents(learn, shown, 2 * seed + 1, b, width)
    rows = np.arange(1024)
    rows_y = rows[512:] if apart else np.random.default_rng(seed).permutation(rows)
    return trial(x, y, d.labels[:1024], rows[:512] if apart else rows, rows_y)


def settings(data: Path) -> dict[str, Callable[[int], Trial]]:
    out: dict[str, Callable[[int], Trial]] = {}
    for apart in (False, True):
        inputs = "disjoint inputs" if apart else "same inputs"
        for name in FOLDERS:
            out[f"{name}, {inputs}"] = lambda s, n=name, p=apart: real(data / n, s, p)
        for a, b, width in NETWORKS:
            title = f"digits {a}" if a == b else f"digits {a}/{b}"
            out[f"{title}, {inputs}"] = lambda s, a=a, b=b, w=width, p=apart: trained(s, p, a, b, w)
    return out


def stitched(t: Trial, x: torch.Tensor, y: torch.Tensor) -> float:
    x, y = unit_rows(x).numpy(), unit_rows(y).numpy()
    return stitch(y, t.classes_y, x, t.classes_x)["accuracy"]


def precision(t: Trial, x: torch.Tensor, y: torch.Tensor) -> float:
    _, there = topk_cosine(x, y, 1)
    return float((t.items_y[there[:, 0].numpy()] == t.items_x).mean())


def fitted(t: Trial, seed: int, seeds: Pairs | None = None, **params) -> tuple[Alignment, float]:
    begin = time.process_time()
    seeds = Pairs.empty() if seeds is None else seeds
    run = method("hga", **params).fit(t.x, t.y, seeds, generator=torch.Generator().manual_seed(seed))
    return run, time.process_time() - begin


def level(run: Alignment) -> str:
    return health.verdict(health.measure(run.x, run.y, confidence=run.confidence)).level


# ---------------------------------------------------------------- commands


def trials(data: Path, count: int, only: str) -> None:
    heads = f"{'setting':44s} {'within 2':>8s} {'stitching':>9s} {'superv.':>8s} {'P@1':>6s} {'superv.':>8s}"
    print(f"{heads}  CPU s, verdicts")
    for title, make in settings(data).items():
        if only not in title:
            continue
        rows, seconds, levels = [], [], []
        for seed in range(count):
            t = make(seed)
            run, taken = fitted(t, seed)
            seconds.append(taken)
            levels.append(level(run))
            turned = t.x @ t.supervised
            rows.append([f(t, *v) for f in (stitched, precision) for v in ((run.x, run.y), (turned, t.y))])
        table = np.array(rows)
        ok = int((table[:, 0] >= table[:, 1] - WITHIN).sum())
        mean = table.mean(0)
        p1 = f"{mean[2]:6.3f} {mean[3]:8.3f}" if mean[3] > 0 else f"{'':6s} {'':8s}"
        said = ", ".join(f"{levels.count(v)} {v}" for v in dict.fromkeys(levels))
        each = " ".join(f"{s:.1f}" for s in seconds)
        print(f"{title:44s} {ok:5d}/{count:<2d} {mean[0]:9.3f} {mean[1]:8.3f} {p1}  {each}; {said}", flush=True)


def against_paper(restarts: int, sample: int) -> None:
    """CPU seconds to the same score: ours once; the published search one random start after another."""
    t = trained(0, False, "shallow", "shallow", 64)
    ours, seconds = fitted(t, 0, sample=sample)
    goal = ours.confidence["score"]
    print(f"shallow digits, {len(t.x)} rows, {t.x.shape[1]} dimensions, score at sigma .2 on {sample} rows")
    print(f"informed: score {goal:.5f}, stitching {stitched(t, ours.x, ours.y):.3f}, {seconds:.2f} CPU s")
    spent, best = 0.0, 0.0
    for number in range(restarts):
        run, taken = fitted(t, number, mode="paper", random_starts=1, sample=sample)
        spent += taken
        best = max(best, run.confidence["score"])
        accuracy = stitched(t, run.x, run.y)
        print(
            f"paper, start {number}: score {run.confidence['score']:.5f}, stitching {accuracy:.3f}, {spent:.0f} CPU s",
            flush=True,
        )
        if best >= 0.98 * goal:
            print(f"the published search reaches 98 % of it after {spent:.0f} CPU s: {spent / seconds:.0f} times ours")
            return
    print(
        f"the published search has not reached 98 % of the score ({best / goal:.0%}) after {restarts} starts and "
        f"{spent:.0f} CPU s: more than {spent / seconds:.0f} times ours"
    )


def floor(maps: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The matrix products of a gradient, and nothing else."""
    return x.T @ (((x @ maps) @ y.T) @ y)


def by_autograd(maps: torch.Tensor, x: torch.Tensor, y: torch.Tensor, sigma: float) -> torch.Tensor:
    maps = maps.clone().requires_grad_()
    cosine = ((x @ maps) @ y.T).clamp(-1, 1)
    torch.exp(-(torch.acos(cosine) ** 2) / (2 * sigma**2)).mean((1, 2)).sum().backward()
    return maps.grad


def kernels(n: int = 1024, b: int = 8, sigma: float = 0.2) -> None:
    """Milliseconds a restart of the kernel with its gradient, against its products alone and autograd."""
    print(f"{n} x {n} rows, {b} restarts, CPU ms a restart; error of the float32 gradient of a map onto itself")
    for d in (16, 64):
        g = torch.Generator().manual_seed(0)
        x, y = (unit_rows(torch.randn(n, d, generator=g)) for _ in range(2))
        maps = torch.linalg.qr(torch.randn(b, d, d, generator=g))[0]
        ways: dict[str, Callable] = {
            "products alone": lambda m, x=x, y=y: floor(m, x, y),
            "autograd through arccos": lambda m, x=x, y=y: by_autograd(m, x, y, sigma),
            "closed form, angle": lambda m, x=x, y=y: kernel.gradient(m, x, y, sigma),
            "closed form, chord": lambda m, x=x, y=y: kernel.gradient(m, x, y, sigma, kernel=kernel.chordal),
        }
        spent = {name: _best_of(way, maps) / b for name, way in ways.items()}
        eye, same = torch.eye(d)[None], x.double()
        exact = kernel.gradient(eye.double(), same, same, 0.1)[1]
        wrong = {
            "autograd through arccos": by_autograd(eye, x, x, 0.1),
            "closed form, angle": kernel.gradient(eye, x, x, 0.1)[1],
        }
        for name, taken in spent.items():
            faster = spent["autograd through arccos"] / taken
            ratio = f"{taken / spent['products alone']:5.2f} x products, {faster:5.1f} x faster than autograd"
            off = ""
            if name in wrong:
                off = f", error {float((wrong[name].double() - exact).norm() / exact.norm()):.1e}"
            print(f"d = {d:3d} {name:26s} {1e3 * taken:7.2f}  {ratio}{off}", flush=True)


def _best_of(run: Callable, maps: torch.Tensor, times: int = 5) -> float:
    run(maps)
    taken = []
    for _ in range(times):
        begin = time.process_time()
        run(maps)
        taken.append(time.process_time() - begin)
    return min(taken)


def words(data: Path, counts: list[int]) -> None:
    """Precision@1 of English-French words, both ways, on the pairs that were no seeds."""
    with np.load(data / "word_en_fr_glove100_fasttext300" / "pair.npz", allow_pickle=False) as a:
        x, y = (preprocess.fit(preprocess.DEFAULT, torch.from_numpy(a[s].astype(np.float32)))[1] for s in "xy")
    g = np.random.default_rng(0)
    order = g.permutation(len(y))
    y, truth = y[order], Pairs(np.stack([np.arange(len(x)), np.argsort(order)], 1))
    print(f"{len(x)} pairs; precision@1 in per cent, en-fr / fr-en")
    print(f"{'seeds':>6s} {'Procrustes':>14s} {'HGA':>14s}  CPU s, verdict")
    for count in counts:
        seeds = truth.take(g.permutation(len(truth))[:count])
        rest = truth.without(seeds)
        t = Trial(x, y, *[np.zeros(0)] * 4, torch.zeros(0))
        run, taken = fitted(t, 0, seeds)
        folds = []
        if count >= health.MIN_SEEDS:
            for i, part in enumerate(health.fold_rows(count, 3, 0)):
                kept = seeds.take(np.setdiff1d(np.arange(count), part))
                fold = checked(t, kept, i + 1)
                folds.append(health.check_fold(fold.x, fold.y, seeds.take(part), run.x, run.y))
        said = health.verdict(health.measure(run.x, run.y, folds, seeds=seeds, confidence=run.confidence))
        led = [""] if not count else [p_at_1(x @ procrustes(x[seeds.x.copy()], y[seeds.y.copy()])[0], y, rest)]
        print(f"{count:6d} {led[0]:>14s} {p_at_1(run.x, run.y, rest):>14s}  {taken:.1f}, {said.text}", flush=True)


def checked(t: Trial, seeds: Pairs, seed: int) -> Alignment:
    steps = method("hga").check_steps(t.x, t.y, seeds, generator=torch.Generator().manual_seed(seed))
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def p_at_1(x: torch.Tensor, y: torch.Tensor, pairs: Pairs) -> str:
    found = retrieval(x, y, pairs)
    return " / ".join(f"{100 * found[way]['r@1']:.1f}" for way in ("x_to_y", "y_to_x"))


def wrong_seeds(shares: list[float], count: int) -> None:
    """Stitching with seeds of which a share is wrong."""
    heads = f"{'seeds':>6s} {'wrong':>6s} {'Procrustes':>11s} {'HGA':>7s} {'clean':>7s}"
    print(f"{heads}  stitching; seeds named wrong / wrong")
    for total in (1000, 100):
        for share in shares:
            rows, named = [], []
            for seed in range(count):
                t = trained(seed, False, "shallow", "shallow", 64)
                clean, seeds, bad = corrupted(t, total, share, seed)
                run, _ = fitted(t, seed, seeds)
                best, _ = fitted(t, seed, clean)
                turn, _ = procrustes(t.x[seeds.x.copy()], t.y[seeds.y.copy()])
                rows.append([stitched(t, *v) for v in ((t.x @ turn, t.y), (run.x, run.y), (best.x, best.y))])
                said = [n for n in run.notes if "look wrong" in n]
                named.append(f"{said[0].split(' of ')[0] if said else 0}/{bad}")
            mean = np.mean(rows, 0)
            print(
                f"{total:6d} {share:6.0%} {mean[0]:11.3f} {mean[1]:7.3f} {mean[2]:7.3f}  {' '.join(named)}", flush=True
            )


def corrupted(t: Trial, total: int, share: float, seed: int) -> tuple[Pairs, Pairs, int]:
    """True pairs, and the same with the partners of a share of them exchanged among themselves."""
    g = np.random.default_rng(seed)
    place = np.empty(t.items_y.max() + 1, dtype=np.int64)
    place[t.items_y] = np.arange(len(t.items_y))
    rows = g.permutation(len(t.items_x))[:total]
    partner = place[t.items_x[rows]]
    bad = round(share * total)
    mixed = partner.copy()
    mixed[:bad] = np.roll(partner[:bad], 1)
    return Pairs(np.stack([rows, partner], 1)), Pairs(np.stack([rows, mixed], 1)), bad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    data = dict(type=Path, default=ROOT.parent / "shared" / "data")
    one = commands.add_parser("trials")
    one.add_argument("--data", **data)
    one.add_argument("--count", type=int, default=10)
    one.add_argument("--only", default="")
    one = commands.add_parser("time")
    one.add_argument("--restarts", type=int, default=40)
    one.add_argument("--sample", type=int, default=1024)
    commands.add_parser("kernel")
    one = commands.add_parser("words")
    one.add_argument("--data", **data)
    one.add_argument("--seeds", type=int, nargs="+", default=[0, 20, 100, 500])
    one = commands.add_parser("wrong")
    one.add_argument("--shares", type=float, nargs="+", default=[0.0, 0.5, 0.85, 0.95])
    one.add_argument("--count", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.command == "trials":
        trials(args.data, args.count, args.only)
    elif args.command == "time":
        against_paper(args.restarts, args.sample)
    elif args.command == "kernel":
        kernels()
    elif args.command == "words":
        words(args.data, args.seeds)
    else:
        wrong_seeds(args.shares, args.count)


if __name__ == "__main__":
    main()
