"""PARAM measured: its order among anchors and similarities, against its closed-form rivals, and what it costs.

    python benchmarks/param.py order [--data ../shared/data] [--draws 5] [--support 2000] [--anchors 128] [--only NAME]
    python benchmarks/param.py affine
    python benchmarks/param.py costs

``order`` prints, for image pairs of two networks, for three encoders of the same sentences, and for the digits of two
networks under planted affine maps, a table each: weighted F1 of a classifier trained on one space's relative
representation and tested on another's (zero-shot; plain, and with every feature of each space standardised by its own
support: z), alignment, and CPU seconds of finding the anchors. Of two spaces both train; of three, each is held
out in turn and has only its support rows (Algorithm 1 of arXiv 2605.30596).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from relcore import seeds as choosing  # noqa: E402
from relcore.metrics import alignment  # noqa: E402
from relcore.ops.param import Training, cluster_averages, generalised_cca, one_row_each  # noqa: E402
from relcore.ops.similarity import LeftOut, agreed_ridge, fit, ridge_of  # noqa: E402
from relcore.space import Pairs  # noqa: E402

FIXED = 0.01  # the shrinkage that was best on digits
STEPS = 150


# ------------------------------------------------------------------------------------------------- data


@dataclass(frozen=True)
class Case:
    """Spaces of the same rows, their labels, and who trains with whom."""

    title: str
    spaces: dict[str, torch.Tensor]
    labels: np.ndarray
    held_out: bool  # each space in turn; else all train

    def turns(self) -> list[tuple[list[str], list[tuple[str, str]]]]:
        """(the spaces that train, the (source, target) pairs that are scored)."""
        names = list(self.spaces)
        if self.held_out:
            return [([n for n in names if n != t], [(n, t) for n in names if n != t]) for t in names]
        a, b = names
        return [(names, [(a, b), (b, a)])]


def read(data: Path, folder: str) -> dict[str, np.ndarray]:
    with np.load(data / folder / "pair.npz", allow_pickle=False) as z:
        return {name: z[name] for name in z.files}


def floats(v: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(v.astype(np.float32))


def distorted(v: torch.Tensor, seed: int, condition: float = 100.0, shift: float = 3.0) -> torch.Tensor:
    """Rows under an affine map of about a condition number, with a shift of so many total standard deviations."""
    rng = np.random.default_rng(seed)
    d = v.shape[1]
    q1, q2 = (np.linalg.qr(rng.normal(size=(d, d)))[0] for _ in range(2))
    out = v.double().numpy() @ (q1 * np.exp(rng.uniform(-0.5, 0.5, d) * np.log(condition)) @ q2)
    move = rng.normal(size=d)
    move *= shift * np.sqrt(out.var(0).sum()) / np.linalg.norm(move)
    return torch.from_numpy((out + move).astype(np.float32))


def cases(data: Path) -> dict[str, Callable[[], Case]]:
    def pair(title: str, folder: str) -> Case:
        z = read(data, folder)
        return Case(title, {"x": floats(z["x"]), "y": floats(z["y"])}, z["labels"], False)

    def planted() -> Case:
        z = pair("MNIST, two networks, each under an affine map of condition 100", "mnist_two_nets")
        return Case(z.title, {n: distorted(v, i) for i, (n, v) in enumerate(z.spaces.items())}, z.labels, False)

    def copy() -> Case:
        z = pair("MNIST, one network and its own affine copy, condition 100", "mnist_two_nets")
        x = z.spaces["x"]
        return Case(z.title, {"x": x, "copy": distorted(x, 5)}, z.labels, False)

    def sentences() -> Case:
        first, second = (read(data, f"sent_banking77_l6_{n}") for n in ("L3", "wl"))
        spaces = {"MiniLM-L6": first["x"], "MiniLM-L3": first["y"], "WordLlama": second["y"]}
        return Case("Banking77, three encoders", {n: floats(v) for n, v in spaces.items()}, first["labels"], True)

    return {
        "mnist": lambda: pair("MNIST, two networks", "mnist_two_nets"),
        "fashion": lambda: pair("Fashion-MNIST, two networks", "fashion_two_nets"),
        "cifar": lambda: pair("CIFAR-10, two EfficientNets", "img_cifar10_lite0_lite2"),
        "sentences": sentences,
        "planted": planted,
        "copy": copy,
    }


# ------------------------------------------------------------------------------------------------- anchors


@dataclass(frozen=True)
class Way:
    """A row of the table: how anchors are found, and how rows are compared to them."""

    title: str
    anchors: str  # random, kmeans, single, multi, cca
    similarity: str = "wip"
    shrinkage: str = "agreed"  # or fixed


WAYS = (
    Way("Random + Cosine", "random", "cosine"),
    Way("Random + centred cosine", "random", "centred"),
    *(
        Way(f"{title}, {said}", anchors, "wip", shrinkage)
        for shrinkage, said in (("fixed", f"shrinkage {FIXED}"), ("agreed", "agreed shrinkage"))
        for title, anchors in (
            ("Random + WIP", "random"),
            ("PARAM Single", "single"),
            ("PARAM Multi", "multi"),
            ("k-means + WIP", "kmeans"),
            ("CCA", "cca"),
        )
    ),
    Way("PARAM Multi + centred cosine", "multi", "centred"),
)


class Finder:
    """Anchors and ridge of every way, for the supports of the spaces that train.

    What ways have in common is computed once; each is charged the CPU seconds of all that it needs.
    """

    def __init__(self, supports: list[torch.Tensor], anchors: int, draw: int) -> None:
        self.supports, self.anchors, self.draw, self.count = supports, anchors, draw, len(supports[0])
        self.kept: dict[tuple, tuple[Any, float]] = {}

    def _once(self, key: tuple, make: Callable[[], Any]) -> tuple[Any, float]:
        if key not in self.kept:
            begun = time.process_time()
            value = make()
            self.kept[key] = value, time.process_time() - begun
        return self.kept[key]

    def _generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.draw)

    def find(self, way: Way) -> tuple[torch.Tensor, float, float]:
        """Mixture (m, K), ridge, CPU seconds."""
        if way.anchors == "random":
            order = torch.randperm(self.count, generator=self._generator())[: self.anchors]
            mixture, ridge, seconds = one_row_each(order, self.count), ridge_of(FIXED), 0.0
        else:
            mixture, ridge, seconds = self._made(way.anchors, way.shrinkage)
        if way.similarity != "wip" or way.shrinkage != "agreed" or way.anchors == "multi":
            return mixture, ridge, seconds
        known, more = self._once(("known",), lambda: [LeftOut(s) for s in self.supports])
        seconds += more if way.anchors == "random" else 0.0
        agreed, more = self._once(("agreed", way.anchors), lambda: agreed_ridge(known, mixture).ridge)
        return mixture, agreed, seconds + more  # as the methods do where mixtures are not made of pairs; CCA too

    def _made(self, how: str, shrinkage: str) -> tuple[torch.Tensor, float, float]:
        known, seconds = self._once(("known",), lambda: [LeftOut(s) for s in self.supports])
        ridge = ridge_of(FIXED)
        if shrinkage == "agreed":
            ridge, more = self._once(("ridge",), lambda: agreed_ridge(known).ridge)
            seconds += more
        white = [v.white(ridge) for v in known]
        if how == "cca":
            (mixture, shared), more = self._once((how, shrinkage), lambda: generalised_cca(white, self.anchors))
            return mixture[shared > 0], ridge, seconds + more
        start, more = self._once(
            ("start", shrinkage), lambda: cluster_averages(white[0], self.anchors, self._generator())
        )
        seconds += more
        if how == "kmeans":
            return start, ridge, seconds

        def learn() -> torch.Tensor:
            used = white[:1] if how == "single" else white
            training = Training(used, start, steps=STEPS, generator=self._generator())
            for _ in training:
                pass
            return training.mixture

        mixture, more = self._once((how, shrinkage), learn)
        return mixture, ridge, seconds + more


def relative(
    way: Way, mixture: torch.Tensor, ridge: float, support: torch.Tensor, *rows: torch.Tensor
) -> list[torch.Tensor]:
    """Relative representations of a space's support and of other rows of it; it need not have trained."""
    similarity, anchors = fit(way.similarity, support, ridge=ridge), mixture @ support.double()
    return [similarity(v, anchors).double() for v in (support, *rows)]


# ------------------------------------------------------------------------------------------------- scores


def classifier(rows: torch.Tensor, labels: np.ndarray):
    """Logistic regression, at most a hundred iterations. Least squares is no stand-in: fitted on features as collinear
    as cosines are, it falls apart in the other space (MNIST, Random + Cosine: F1 35 against 86)."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return LogisticRegression(max_iter=100, tol=1e-3).fit(rows.numpy(), labels)


def f1(model, rows: torch.Tensor, labels: np.ndarray) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(labels, model.predict(rows.numpy()), average="weighted"))


def scale(rows: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    return (rows - by.mean(0)) / by.std(0).clamp_min(1e-12)


def even(rows: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    """One scale for all features, so that those a method makes small stay so."""
    return (rows - by.mean(0)) / by.var(0).mean().sqrt().clamp_min(1e-12)


def scores(
    source: list[torch.Tensor], target: list[torch.Tensor], labels: tuple[np.ndarray, np.ndarray]
) -> dict[str, float]:
    """Of (support, test rows) of both, in relative coordinates; labels of support and of test rows."""
    plain = classifier(even(source[0], source[0]), labels[0])
    model = classifier(scale(source[0], source[0]), labels[0])
    out = {
        "F1": f1(plain, even(target[1], source[0]), labels[1]),
        "F1 z": f1(model, scale(target[1], target[0]), labels[1]),
    }
    both = alignment.between({"s": source[1], "t": target[1]})[0]
    return out | {
        title: both[name]
        for title, name in (
            ("MRR", "mrr"),
            ("R@1", "r@1"),
            ("R@5", "r@5"),
            ("nMSE", "nmse"),
            ("nMSE z", "nmse_scaled"),
            ("CKA", "cka"),
            ("RR_std", "rr_std"),
            ("eff. rank", "effective_rank"),
        )
    }


def absolute(case: Case, support: np.ndarray, test: np.ndarray) -> tuple[dict[str, float], dict[str, float] | None]:
    """Classifiers on the spaces as they are: each on its own, and from one to another where dimensions allow."""
    own, across = [], []
    models = {n: classifier(scale(v[support], v[support]), case.labels[support]) for n, v in case.spaces.items()}
    for _, pairs in case.turns():
        for s, t in pairs:
            a, b = case.spaces[s], case.spaces[t]
            own.append(f1(models[t], scale(b[test], b[support]), case.labels[test]))
            if a.shape[1] == b.shape[1]:
                across.append(f1(models[s], scale(b[test], a[support]), case.labels[test]))
    return {"F1": np.mean(own)}, {"F1": np.mean(across)} if across else None


def one_draw(case: Case, draw: int, size: int, anchors: int, results: dict[str, list[dict[str, float]]]) -> None:
    order = np.random.default_rng(draw).permutation(len(case.labels))
    support, test = order[:size], order[size : size + 2000]
    labels = case.labels[support], case.labels[test]
    own, across = absolute(case, support, test)
    results.setdefault("Absolute, each space its own classifier", []).append(own)
    if across:
        results.setdefault("Absolute, across", []).append(across)
    finders = [
        (Finder([case.spaces[s][support] for s in sources], anchors, draw), pairs) for sources, pairs in case.turns()
    ]
    for way in WAYS:
        found = []
        for finder, pairs in finders:
            mixture, ridge, seconds = finder.find(way)
            used = sorted({n for pair in pairs for n in pair})
            seen = {n: relative(way, mixture, ridge, case.spaces[n][support], case.spaces[n][test]) for n in used}
            shrunk = ridge / (1 + ridge) if way.similarity == "wip" else float("nan")
            for s, t in pairs:
                extra = {"shrinkage": shrunk, "CPU s": seconds}
                found.append(scores(seen[s], seen[t], labels) | extra)
        results.setdefault(way.title, []).append({k: float(np.mean([f[k] for f in found])) for k in found[0]})


COLUMNS = ("F1", "F1 z", "MRR", "R@1", "R@5", "nMSE", "nMSE z", "CKA", "RR_std", "eff. rank", "shrinkage", "CPU s")


def cell(values: list[float], column: str) -> str:
    mean, sd = np.mean(values), np.std(values, ddof=1) if len(values) > 1 else 0.0
    if np.isnan(mean):
        return "-"
    if column in ("F1", "F1 z"):
        return f"{100 * mean:.1f} ± {100 * sd:.1f}"
    if column == "MRR":
        return f"{mean:.3f} ± {sd:.3f}"
    return f"{mean:.3g}" if column in ("RR_std", "eff. rank", "CPU s") else f"{mean:.3f}"


def print_table(case: Case, results: dict[str, list[dict[str, float]]], note: str) -> None:
    print(f"\n### {case.title}\n\n{note}\n")
    print("| anchors, similarity | " + " | ".join(COLUMNS) + " |")
    print("|" + "---|" * (len(COLUMNS) + 1))
    for title, draws in results.items():
        cells = [cell([d[c] for d in draws], c) if c in draws[0] else "" for c in COLUMNS]
        print(f"| {title} | " + " | ".join(cells) + " |", flush=True)
    print_order(results)


def difference(results, better: str, worse: str, column: str) -> str:
    """Paired over draws: mean and standard error."""
    d = [a[column] - b[column] for a, b in zip(results[better], results[worse], strict=True)]
    error = statistics.stdev(d) / len(d) ** 0.5 if len(d) > 1 else float("nan")
    return f"{np.mean(d):+.3f} ({error:.3f})"


def print_order(results) -> None:
    """The paper's order, step by step, and PARAM Multi against its rivals: paired differences over draws."""
    for said in (f"shrinkage {FIXED}", "agreed shrinkage"):
        steps = ["Random + Cosine", f"Random + WIP, {said}", f"PARAM Single, {said}", f"PARAM Multi, {said}"]
        told = []
        for a, b in zip(steps, steps[1:], strict=False):
            told.append(f"{b.split(',')[0]} less {a.split(',')[0]}: " + _both(results, b, a))
        top = "Absolute, each space its own classifier"
        told.append(f"absolute less PARAM Multi: F1 {difference(results, top, steps[-1], 'F1')}")
        for rival in ("k-means + WIP", "CCA"):
            name = f"{rival}, {said}"
            cost = np.mean([d["CPU s"] for d in results[steps[-1]]]) / np.mean([d["CPU s"] for d in results[name]])
            told.append(f"PARAM Multi less {rival}: {_both(results, steps[-1], name)}, {cost:.1f} times its CPU time")
        print(f"\nWith {said} (mean, standard error over draws): " + "; ".join(told) + ".", flush=True)


def _both(results, a: str, b: str) -> str:
    return f"F1 {difference(results, a, b, 'F1')}, MRR {difference(results, a, b, 'MRR')}"


def order(args) -> None:
    for name, make in cases(args.data).items():
        if args.only and name not in args.only:
            continue
        case, results = make(), {}
        size = min(args.support, len(case.labels) * 2 // 3)
        for draw in range(args.draws):
            one_draw(case, draw, size, args.anchors, results)
        dims = ", ".join(f"{n} {v.shape[1]}" for n, v in case.spaces.items())
        held = "each space held out in turn" if case.held_out else "both spaces train"
        note = f"{size} support rows, {args.anchors} anchors, {args.draws} draws, dimensions {dims}; {held}."
        print_table(case, results, note)


# ------------------------------------------------------------------------------------------------- affine


def affine(args) -> None:
    """How far a space and its affine copy drift apart in WIP, by condition number and shrinkage."""
    x = next(iter(cases(args.data)["mnist"]().spaces.values()))
    mixture = torch.from_numpy(choosing.centroids(x[:1000].numpy(), Pairs.by_row(1000), 64, 0))
    shares = (0.0, 0.001, 0.01, 0.1, 0.5)
    print("\nnMSE / MRR between a space and its own affine copy, by condition number (rows) and shrinkage\n")
    print("| condition | " + " | ".join(str(s) for s in shares) + " |\n|" + "---|" * (len(shares) + 1))
    for condition in (1.0, 3.0, 10.0, 100.0, 1000.0):
        other = distorted(x, 3, condition)
        cells = []
        for share in shares:
            sides = []
            for v in (x, other):
                s = fit("wip", v[:1000], ridge=ridge_of(share))
                sides.append(s(v[1000:2000], mixture @ v[:1000].double()))
            got = alignment.between({"a": sides[0], "b": sides[1]})[0]
            cells.append(f"{got['nmse']:.1e} / {got['mrr']:.3f}")
        print(f"| {condition:g} | " + " | ".join(cells) + " |", flush=True)


# ------------------------------------------------------------------------------------------------- costs


def costs(args) -> None:
    """The estimate beside the Run button against CPU seconds."""
    from relcore.methods import method

    print("\n| method | seeds | dimensions | rows | estimate, s | CPU s | ratio |\n|---|---|---|---|---|---|---|")
    for seeds, d, n in ((100, 64, 3000), (300, 384, 4000), (2000, 384, 2000), (2000, 768, 5000)):
        g = torch.Generator().manual_seed(0)
        shared = torch.randn(n, d, generator=g)
        x, y = (shared + 0.5 * torch.randn(n, d, generator=g) for _ in range(2))
        for name, params in (
            ("relative", {"similarity": "wip"}),
            ("kmeans", {}),
            ("cca", {}),
            ("param", {}),
            ("param", {"mode": "single"}),
        ):
            m = method(name, **params)
            begun = time.process_time()
            m.fit(x, y, Pairs.by_row(seeds), generator=torch.Generator().manual_seed(0))
            took, told = time.process_time() - begun, m.estimate(n, n, d, d, seeds).seconds
            title = " ".join([name, *params.values()])
            print(f"| {title} | {seeds} | {d} | {n} | {told:.2f} | {took:.2f} | {told / took:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("order", "affine", "costs"))
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--support", type=int, default=2000)
    parser.add_argument("--anchors", type=int, default=128)
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    {"order": order, "affine": affine, "costs": costs}[args.what](args)


if __name__ == "__main__":
    main()
