"""AnchorDOT measured on real pairs whose pools share no item: recall and hubness of every rule on one score.

    python benchmarks/anchordot.py real [--data ../shared/data] [--seeds 5] [--only NAME] [--mode paper] [--costs]
    python benchmarks/anchordot.py pools [--sizes 100 200 400 800] [--seeds 3]
    python benchmarks/anchordot.py overlap [--shares 0 0.25 0.5 0.75 1] [--seeds 3]

Each seed draws anchors, 400 test pairs, and two pools with no item in common. Recall is in per cent, mean of both
directions and of the seeds, among the 400 test items; skewness is of N_10 among them, x to y / y to x. NN, CSLS,
inverted softmax and the coupling are **transductive**: the test items are in the point clouds, though nothing says who
belongs to whom. CSLS and inverted softmax use pool and test items as their bank. The students, and the plan that test
items join later, never see one, nor does the preprocessing. That plan is what the sweeps are read by: in a cloud of 400
test pairs and a small pool, the pairs alone make the plan. gamma, ridge and eta are chosen by held-out anchors. Where
the encoders start and at what scale was chosen on test pairs of these data, in other draws.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from relcore import preprocess  # noqa: E402
from relcore.methods import method  # noqa: E402
from relcore.metrics.hubness import skewness  # noqa: E402
from relcore.ops.neighbors import k_occurrence, unit_rows  # noqa: E402
from relcore.space import Pairs  # noqa: E402

PAIRS = (  # title, folder, anchors
    ("molecules / text, WordLlama", "mol_text_morgan256_wordllama256", 500),
    ("molecules / text, MiniLM", "mol_text_morgan256_minilm384", 200),
    ("emoji pictures / names", "emoji_image_text", 500),
    ("emoji pictures / names", "emoji_image_text", 200),
)
TEST = 400
DEPTHS = (1, 5, 10)
K = 10


class Draw(NamedTuple):
    """Preprocessed rows, anchors first, then test pairs, then pools; ``known`` and ``test`` count them."""

    x: torch.Tensor
    y: torch.Tensor
    known: int
    test: int

    @property
    def seeds(self) -> Pairs:
        return Pairs(np.stack([np.arange(self.known)] * 2, 1))

    @property
    def tested(self) -> slice:
        return slice(self.known, self.known + self.test)


def drawn(folder: Path, known: int, seed: int, pool: int | None = None, overlap: float = 0.0) -> Draw:
    """Anchors, test pairs and pools of one seed. ``overlap`` is the share of pool items that both sides have."""
    with np.load(folder / "pair.npz", allow_pickle=False) as arrays:
        x, y = (torch.from_numpy(arrays[side].astype(np.float32)) for side in "xy")
    order = np.random.default_rng(1000 + seed).permutation(len(x))
    anchors, test, rest = order[:known], order[known : known + TEST], order[known + TEST :]
    size = min(len(rest) // 2, pool or len(rest))
    both = round(overlap * size)
    pool_x = rest[:size]
    pool_y = np.concatenate([rest[:both], rest[size : 2 * size - both]])
    rows = [np.concatenate([anchors, test, p]) for p in (pool_x, pool_y)]
    sides = []
    for v, r in zip((x, y), rows, strict=True):
        fitted, _ = preprocess.fit(preprocess.DEFAULT, v[np.concatenate([r[:known], r[known + TEST :]])])
        sides.append(fitted(v[r]))
    return Draw(*sides, known, TEST)


def without_test(draw: Draw) -> Draw:
    """The same draw without its test pairs: what the student learns from."""
    sides = [torch.cat([v[: draw.known], v[draw.tested.stop :]]) for v in (draw.x, draw.y)]
    return Draw(*sides, draw.known, 0)


def figures(there: torch.Tensor, back: torch.Tensor) -> list[float]:
    """R@1, 5, 10 in per cent and N_10 skewness both ways, of scores (x, y) and (y, x) whose diagonal is the truth."""
    ranks = [(s >= s.diagonal()[:, None]).sum(1) for s in (there, back)]
    out = [50 * sum(float((r <= depth).double().mean()) for r in ranks) for depth in DEPTHS]
    for s in (there, back):
        out.append(skewness(k_occurrence(s.topk(K, 1).indices, s.shape[1]).numpy()))
    return out


def rules(draw: Draw, params: dict, seed: int, students: bool = True) -> Iterator[tuple[str, list[float], str]]:
    """Every rule's figures on one draw, and what was chosen."""
    generator = torch.Generator().manual_seed(seed)
    run = method("anchordot", student="none", **params).fit(draw.x, draw.y, draw.seeds, generator=generator)
    chosen = run.notes[-1].split(":")[0] if "gamma" in run.notes[-1] else ""
    test, free = draw.tested, slice(draw.known, None)
    whole = 1 - run.coupling.problem.cost.part(free, free).dense()
    part = slice(0, draw.test)
    score = whole[part, part]
    yield "NN in profile", figures(score, score.T), chosen
    means = [s.topk(K, 1).values.mean(1) for s in (whole[part], whole[:, part].T)]
    corrected = 2 * score - means[0][:, None] - means[1]
    yield "CSLS", figures(corrected, corrected.T), ""
    sharp = 1 / run.coupling.problem.epsilon
    to_y = sharp * score - (sharp * whole[:, part]).logsumexp(0)
    to_x = sharp * score - (sharp * whole[part]).logsumexp(1)[:, None]
    yield "inverted softmax", figures(to_y, to_x.T), ""
    log = run.coupling.log_block(test, test)
    yield "coupling", figures(log, log.T), ""
    rest = without_test(draw)
    kind = {"student": "mlp" if students else "none"} | params
    run = method("anchordot", **kind).fit(rest.x, rest.y, rest.seeds, generator=torch.Generator().manual_seed(seed))
    if run.factor_x is not None:
        yield "coupling, joined later", joined(run, draw), ""
    if not students:
        return
    yield "student, network", encoded(run, draw), ""
    for name, learner in (
        ("contrastive, network", method("contrastive")),
        ("contrastive, matrix", method("contrastive", student="linear")),
    ):
        fitted = learner.fit(rest.x, rest.y, rest.seeds, generator=torch.Generator().manual_seed(seed))
        yield name, encoded(fitted, draw), ""


def encoded(run, draw: Draw) -> list[float]:
    """Figures of the test items under the encoders."""
    a, b = (unit_rows(e(v[draw.tested])) for e, v in ((run.encode_x, draw.x), (run.encode_y, draw.y)))
    return figures(a @ b.T, b @ a.T)


def joined(run, draw: Draw) -> list[float]:
    """Figures of the test items under a plan they took no part in: each joins by one half step of its own."""
    x, y = run.factor_x(draw.x[draw.tested]), run.factor_y(draw.y[draw.tested])
    f, g = run.coupling.extend(x), run.coupling.swapped.extend(y)
    log = f[:, None] + g - run.coupling.problem.cost.with_left(x).swapped.with_left(y).swapped.dense()
    return figures(log, log.T)


def row(cells) -> None:
    print("| " + " | ".join(str(c) for c in cells) + " |", flush=True)


def table(head: list[str]) -> None:
    row(head)
    row(["---"] * len(head))


def line(values: list[list[float]]) -> list[str]:
    mean, spread = np.mean(values, 0), np.std(values, 0)
    recall = [f"{m:.1f} ± {s:.1f}" for m, s in zip(mean[:3], spread[:3], strict=True)]
    return [*recall, f"{mean[3]:.2f} / {mean[4]:.2f}"]


HEAD = ["R@1", "R@5", "R@10", "N10 skewness"]


def real(args: argparse.Namespace) -> None:
    for title, folder, known in chosen_pairs(args):
        begun = time.process_time()
        found: dict[str, list[list[float]]] = {}
        said = []
        for seed in range(args.seeds):
            draw = drawn(args.data / folder, known, seed)
            for name, values, chosen in rules(draw, {"mode": args.mode}, seed):
                found.setdefault(name, []).append(values)
                said += [chosen] if chosen else []
            if args.costs:
                for cost in ("bridge", "keypoint", "fused"):
                    for name, values, _ in rules(draw, {"cost": cost}, seed, students=False):
                        if name in ("NN in profile", "coupling"):
                            label = f"{cost} cost, {'NN' if name != 'coupling' else name}"
                            found.setdefault(label, []).append(values)
        print(
            f"\n{title}: {known} anchors, pools of {len(draw.x) - known - TEST} and {len(draw.y) - known - TEST} "
            f"disjoint items, {TEST} test pairs, {args.seeds} seeds, mode {args.mode}; "
            f"{time.process_time() - begun:.0f} CPU s.\n"
            f"Chosen: {'; '.join(said)}.\n"
        )
        table(["rule", *HEAD])
        for name, values in found.items():
            row([name, *line(values)])
        judge(found)


def judge(found: dict[str, list[list[float]]]) -> None:
    """Says whether the order is the paper's."""
    mean = {name: np.mean(values, 0) for name, values in found.items()}
    for name in ("coupling", "student, network"):
        for other in ("NN in profile", "contrastive, network", "contrastive, matrix"):
            ahead = sum(a > b for a, b in zip(mean[name][:3], mean[other][:3], strict=True))
            print(f"{name} ahead of {other} in {ahead} of 3 recalls; R@1 ratio {mean[name][0] / mean[other][0]:.2f}")
    transductive = ("NN in profile", "CSLS", "inverted softmax", "coupling")
    for way, at in (("x to y", 3), ("y to x", 4)):
        print(f"least skewed {way} of the four rules: {min(transductive, key=lambda n: abs(mean[n][at]))}")


def sweep(args: argparse.Namespace, name: str, values: list, draws) -> None:
    for title, folder, known in chosen_pairs(args):
        print(f"\n{title}: {known} anchors, {args.seeds} seeds.\n")
        table([name, "NN R@10", "coupling R@10", "joined later R@1", "joined later R@10", "its N10 skewness"])
        for value in values:
            found: dict[str, list] = {}
            for seed in range(args.seeds):
                draw = draws(args.data / folder, known, seed, value)
                for rule, got, _ in rules(draw, {"mode": args.mode}, seed, students=False):
                    found.setdefault(rule, []).append(got)
            near, coupled, later = (line(found[r]) for r in ("NN in profile", "coupling", "coupling, joined later"))
            shown = value if name != "pool" else len(draw.x) - known - TEST
            row([shown, near[2], coupled[2], later[0], later[2], later[3]])


def chosen_pairs(args: argparse.Namespace):
    for title, folder, known in PAIRS:
        wanted = args.only is None or any(o in folder for o in args.only)
        if wanted and (args.anchors is None or known in args.anchors):
            yield title, folder, known


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for command, text in (
        ("real", "every rule on every pair"),
        ("pools", "recall of the coupling against the size of the pools"),
        ("overlap", "recall of the coupling against the share of pool items that both sides have"),
    ):
        p = commands.add_parser(command, help=text)
        p.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="folder of the pairs")
        p.add_argument("--only", nargs="*", metavar="NAME", help="folders whose name contains one of these")
        p.add_argument("--anchors", nargs="*", type=int, help="pairs with so many anchors")
        p.add_argument("--seeds", type=int, default=5)
        p.add_argument("--mode", default="ridge", choices=("ridge", "paper"))
        p.add_argument("--threads", type=int, default=1)
        if command == "real":
            p.add_argument("--costs", action="store_true", help="also the bridge, keypoint and fused costs (slow)")
        if command == "pools":
            p.add_argument("--sizes", nargs="*", type=int, default=[50, 100, 200, 400, 800, 1050])
        if command == "overlap":
            p.add_argument("--shares", nargs="*", type=float, default=[0.0, 0.25, 0.5, 0.75, 1.0])
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.command == "real":
        real(args)
    elif args.command == "pools":
        sweep(args, "pool", args.sizes, lambda f, known, seed, size: drawn(f, known, seed, pool=size))
    else:
        sweep(args, "overlap", args.shares, lambda f, known, seed, share: drawn(f, known, seed, overlap=share))


if __name__ == "__main__":
    main()
