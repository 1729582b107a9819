"""Does the mismatch map find a class that one side lacks, and keep quiet where nothing is missing?

    python benchmarks/mismatch.py digits [--trials 10]
    python benchmarks/mismatch.py networks [--data ../shared/data] [--trials 10] [--rows 2000]

``digits`` trains a network on all digits (A) and another without the zeros, shown none (B), and one pair of networks on
all of them. ``networks`` leaves one class at a time out of B of two networks on MNIST and Fashion-MNIST. A trial is a
whole run (:func:`relcore.pipeline.align`, held-out check in 3 parts) by Procrustes on so many seeds, HGA without any,
or a turn drawn at random. AUROC is of the missing class's rows in A by low kernel sum (raw) or coverage (ratio), at the
default sigma. "Named" counts the gate's word *missing*: the right class on A, or any on a side that lacks nothing.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.digits_networks import Digits, digits, latents  # noqa: E402
from relcore import pipeline  # noqa: E402
from relcore.methods import method  # noqa: E402
from relcore.methods.base import Alignment, Cost, Method, Step  # noqa: E402
from relcore.metrics import mismatch  # noqa: E402
from relcore.space import Pair, Pairs, make_space  # noqa: E402

NETWORKS = ("mnist_two_nets", "fashion_two_nets")
RUNS = (("procrustes", 15), ("procrustes", 60), ("procrustes", 200), ("hga", 0), ("random turn", 60))


@dataclass(frozen=True)
class RandomTurn(Method):
    """What a failed alignment looks like."""

    name = "random turn"
    title = "Random turn"
    summary = "Turn A at random."
    source = "this benchmark"

    def steps(self, x, y, seeds, *, generator, device="cpu"):
        wide = max(x.shape[1], y.shape[1])
        turn = torch.linalg.qr(torch.randn(wide, wide, generator=generator))[0][: x.shape[1], : y.shape[1]]
        yield Step(1, 1, "turn")
        return Alignment(x=x @ turn, y=y.clone())

    def estimate(self, n, m, dx, dy, seeds):
        return Cost(0.0, 0.0)


class Trial(NamedTuple):
    """Two sides with their classes, row positions that correspond, and the class that y lacks (None: none)."""

    x: np.ndarray
    y: np.ndarray
    labels_x: np.ndarray
    labels_y: np.ndarray
    pairs: np.ndarray
    missing: int | None


def without(x: np.ndarray, y: np.ndarray, labels: np.ndarray, missing: int | None) -> Trial:
    kept = np.flatnonzero(labels != missing) if missing is not None else np.arange(len(labels))
    return Trial(x, y[kept], labels, labels[kept], np.stack([kept, np.arange(len(kept))], 1), missing)


def digit_trials(count: int) -> Iterator[tuple[str, Trial]]:
    for seed in range(count):
        data = digits(seed)
        zero = data.labels == 0
        rest = Digits(data.pictures[torch.from_numpy(~zero)], data.labels[~zero])
        x = latents(data, data.pictures, 100 + seed).numpy()
        y = latents(rest, rest.pictures, 200 + seed).numpy()
        kept = np.flatnonzero(~zero)
        pairs = np.stack([kept, np.arange(len(kept))], 1)
        yield "digits, B without 0", Trial(x, y, data.labels, rest.labels, pairs, 0)
        full = latents(data, data.pictures, 200 + seed).numpy()
        yield "digits, nothing missing", without(x, full, data.labels, None)


def network_trials(folder: Path, count: int, rows: int) -> Iterator[tuple[str, Trial]]:
    for name in NETWORKS:
        arrays = np.load(folder / name / "pair.npz", allow_pickle=False)
        for seed in range(count):
            some = np.random.default_rng(seed).permutation(len(arrays["x"]))[:rows]
            sides = [arrays[key][some] for key in ("x", "y", "labels")]
            yield f"{name}, B without a class", without(*sides, seed % 10)
            yield f"{name}, nothing missing", without(*sides, None)


class Reading(NamedTuple):
    """One run: gates of both sides, whether the missing class is A's lowest, AUROC by raw sum and by ratio; without
    labels, whether a region of the missing class is named, and whether another one is."""

    level: str
    other_level: str
    named: tuple[str, ...]
    other_named: tuple[str, ...]
    lowest: bool
    raw: float
    ratio: float
    region: bool
    wrong_region: bool
    seconds: float


def read(trial: Trial, name: str, seeds: int, seed: int) -> Reading:
    pair = Pair(make_space(trial.x)[0], make_space(trial.y)[0], Pairs(trial.pairs))
    chosen = np.random.default_rng(seed).permutation(len(trial.pairs))[:seeds]
    made = RandomTurn() if name == "random turn" else method(name)
    begun = time.process_time()
    out = pipeline.align(pair, made, Pairs(trial.pairs[chosen]), seed=seed)
    seconds = time.process_time() - begun
    record = {"health": out.health, "verdict": {"level": out.verdict.level, "text": out.verdict.text}}
    labels = [v.astype(str) for v in (trial.labels_x, trial.labels_y)]
    gates = [mismatch.gate(record, out.arrays, "x", *labels), mismatch.gate(record, out.arrays, "y", *reversed(labels))]
    blind = [mismatch.gate(record, out.arrays, side).missing for side in "xy"]  # by regions, without labels
    of_missing = [name for name in blind[0] if _mostly(out.arrays, name, trial)]
    i = mismatch.default_position(out.arrays)
    values = mismatch.coverage(out.arrays, "x", i)
    classes = mismatch.by_class(values, mismatch.flagged(out.arrays, "x", i), labels[0])
    gone = trial.labels_x == trial.missing
    return Reading(
        gates[0].level,
        gates[1].level,
        gates[0].missing,
        gates[1].missing,
        classes[0].label == str(trial.missing),
        mismatch.auroc(mismatch.raw(out.arrays, "x", i), gone),
        mismatch.auroc(values, gone),
        bool(of_missing),
        len(blind[0]) > len(of_missing) or bool(blind[1]),
        seconds,
    )


def _mostly(arrays: dict, name: str, trial: Trial) -> bool:
    """Whether most rows of a region of A are of the missing class."""
    region = mismatch.regions(arrays, "x")[int(name.split()[1]) - 1]
    return bool((trial.labels_x[region.rows] == trial.missing).mean() > 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("digits", "networks"))
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--rows", type=int, default=2000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.what == "digits":
        trials = list(digit_trials(arguments.trials))
    else:
        trials = list(network_trials(arguments.data, arguments.trials, arguments.rows))
    heads = "data, method, seeds, gate A (g/a/r), gate B, named right, wrong, lowest, AUROC raw, ratio, region, wrong"
    print("| " + " | ".join([*heads.split(", "), "CPU s"]) + " |")
    print("|" + "---|" * 13)
    for title in dict.fromkeys(t for t, _ in trials):
        for name, seeds in RUNS:
            some = [(i, trial) for i, (t, trial) in enumerate(trials) if t == title]
            found = [(trial, read(trial, name, seeds, i)) for i, trial in some]
            print(row(title, name, seeds, found), flush=True)


def row(title: str, name: str, seeds: int, found: list[tuple[Trial, Reading]]) -> str:
    def levels(of: list[str]) -> str:
        count = Counter(of)
        return "/".join(str(count[level]) for level in ("green", "amber", "red"))

    gone = [(trial, r) for trial, r in found if trial.missing is not None]
    right = sum(str(trial.missing) in r.named for trial, r in gone)
    wrong = sum(bool(set(r.named) - {str(trial.missing)}) + bool(r.other_named) for trial, r in found)  # sides
    cells = [title, name, str(seeds), levels([r.level for _, r in found]), levels([r.other_level for _, r in found])]
    cells += [f"{right} of {len(gone)}", f"{wrong} of {2 * len(found)}"]
    if gone:
        cells += [f"{sum(r.lowest for _, r in gone)} of {len(gone)}"]
        cells += [
            f"{np.mean(v):.3f} (min {min(v):.3f})" for v in zip(*[(r.raw, r.ratio) for _, r in gone], strict=True)
        ]
    else:
        cells += ["", "", ""]
    cells += [
        f"{sum(r.region for _, r in gone)} of {len(gone)}",
        f"{sum(r.wrong_region for _, r in found)} of {len(found)}",
    ]
    return "| " + " | ".join([*cells, f"{np.mean([r.seconds for _, r in found]):.1f}"]) + " |"


if __name__ == "__main__":
    main()
