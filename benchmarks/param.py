"""PARAM measured: its order among anchors and similarities, against its closed-form rivals, and what it costs.

    python benchmarks/param.py order [--data ../shared/data] [--draws 5] [--support 2000] [--anchors 128] [--only NAME]
                                     [--agreed]
    python benchmarks/param.py retrieval [--draws 5] [--anchors 128] [--only banking emoji]
    python benchmarks/param.py affine
    python benchmarks/param.py costs

``order`` prints, for image pairs of two networks, for three encoders of the same sentences, and for the digits of two
networks under planted affine maps, a table each: weighted F1 of a classifier trained on one space's relative
representation and tested on another's (zero-shot; plain, and with every feature of each space standardised by its own
support: z), alignment, and CPU seconds of finding the anchors. Of two spaces both train; of three, each is held
out in turn and has only its support rows (Algorithm 1 of arXiv 2605.30596). ``--only`` takes some of
mnist, fashion, cifar, sentences, planted, copy: each by itself takes minutes.

``retrieval`` prints R@1 and R@5 for every ordered pair of three spaces, the target having had no part in the training:
Banking77 by three encoders; emoji as pictures, in English and in French.
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
from typing import Any, NamedTuple

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from relcore import seeds as choosing  # noqa: E402
from relcore.metrics import alignment  # noqa: E402
from relcore.ops.param import (  # noqa: E402
    Shared,
    Training,
    attach,
    cluster_averages,
    generalised_cca,
    one_row_each,
    share,
)
from relcore.ops.similarity import (  # noqa: E402
    KERNEL_GRID,
    KernelLeftOut,
    LeftOut,
    agreed_ridge,
    fit,
    ridge_of,
)
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

    return {
        "mnist": lambda: pair("MNIST, two networks", "mnist_two_nets"),
        "fashion": lambda: pair("Fashion-MNIST, two networks", "fashion_two_nets"),
        "cifar": lambda: pair("CIFAR-10, two EfficientNets", "img_cifar10_lite0_lite2"),
        "sentences": lambda: sentences(data),
        "planted": planted,
        "copy": copy,
    }


def sentences(data: Path) -> Case:
    first, second = (read(data, f"sent_banking77_l6_{n}") for n in ("L3", "wl"))
    same(first["texts"], second["texts"], "sentences")
    spaces = {"MiniLM-L6": first["x"], "MiniLM-L3": first["y"], "WordLlama": second["y"]}
    return Case("Banking77, three encoders", {n: floats(v) for n, v in spaces.items()}, first["labels"], True)


def emoji(data: Path) -> Case:
    first, second = (read(data, name) for name in ("emoji_image_text", "text_emoji_en_minilm_fr_e5"))
    same(first["unified"], second["unified"], "emoji")
    spaces = {"picture": first["x"], "English": second["x"], "French": second["y"]}
    return Case("Emoji, picture, English, French", {n: floats(v) for n, v in spaces.items()}, first["labels"], True)


def same(a: np.ndarray, b: np.ndarray, what: str) -> None:
    if not np.array_equal(a, b):
        raise SystemExit(f"row for row the two files do not hold the same {what}.")


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
            ("CCA + WIP", "cca"),
        )
    ),
    Way("CCA + kernel, agreed shrinkage", "cca", "kernel"),
    Way("PARAM Multi + centred cosine", "multi", "centred"),
)


class Found(NamedTuple):
    """Mixture (m, K), ridge of the whitening, CPU seconds, and the kernel's own ridge."""

    mixture: torch.Tensor
    ridge: float
    seconds: float
    kernel: float = 0.0


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

    def find(self, way: Way) -> Found:
        if way.anchors == "random":
            order = torch.randperm(self.count, generator=self._generator())[: self.anchors]
            mixture, ridge, seconds = one_row_each(order, self.count), ridge_of(FIXED), 0.0
        else:
            mixture, ridge, seconds = self._made(way.anchors, way.shrinkage)
        if way.similarity == "kernel":
            return self._kernel(way, mixture, ridge, seconds)
        if way.similarity != "wip" or way.shrinkage != "agreed" or way.anchors == "multi":
            return Found(mixture, ridge, seconds)
        known, more = self._once(("known",), lambda: [LeftOut(s) for s in self.supports])
        seconds += more if way.anchors == "random" else 0.0
        agreed, more = self._once(("agreed", way.anchors), lambda: agreed_ridge(known, mixture).ridge)
        return Found(mixture, agreed, seconds + more)  # as the methods do

    def _kernel(self, way: Way, mixture: torch.Tensor, ridge: float, seconds: float) -> Found:
        """Whitened by the ridge of all seeds, or the anchors' where it is larger; and a ridge of the kernel's own."""
        known, _ = self._once(("known",), lambda: [LeftOut(s) for s in self.supports])

        def agree() -> tuple[float, float]:
            white = max(ridge, agreed_ridge(known, mixture).ridge)
            return white, agreed_ridge([KernelLeftOut(k, white) for k in known], mixture, KERNEL_GRID).ridge

        (white, own), more = self._once(("kernel", way.anchors), agree)
        return Found(mixture, white, seconds + more, own)

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


def relative(way: Way, found: Found, support: torch.Tensor, *rows: torch.Tensor) -> list[torch.Tensor]:
    """Relative representations of a space's support and of other rows of it; it need not have trained."""
    if way.similarity == "kernel":
        kernel = KernelLeftOut(support, found.ridge).similarity(found.mixture, found.kernel)
        return [kernel(v).double() for v in (support, *rows)]
    similarity, anchors = fit(way.similarity, support, ridge=found.ridge), found.mixture @ support.double()
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


def one_draw(
    case: Case, draw: int, size: int, anchors: int, ways: list[Way], results: dict[str, list[dict[str, float]]]
) -> None:
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
    for way in ways:
        found = []
        for finder, pairs in finders:
            how = finder.find(way)
            used = sorted({n for pair in pairs for n in pair})
            seen = {n: relative(way, how, case.spaces[n][support], case.spaces[n][test]) for n in used}
            shrunk = how.ridge / (1 + how.ridge) if way.similarity in ("wip", "kernel") else float("nan")
            for s, t in pairs:
                extra = {"shrinkage": shrunk, "CPU s": how.seconds}
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
        if f"PARAM Multi, {said}" not in results:
            continue
        steps = ["Random + Cosine", f"Random + WIP, {said}", f"PARAM Single, {said}", f"PARAM Multi, {said}"]
        told = []
        for a, b in zip(steps, steps[1:], strict=False):
            told.append(f"{b.split(',')[0]} less {a.split(',')[0]}: " + _both(results, b, a))
        top = "Absolute, each space its own classifier"
        told.append(f"absolute less PARAM Multi: F1 {difference(results, top, steps[-1], 'F1')}")
        for rival in ("k-means + WIP", "CCA + WIP", "CCA + kernel"):
            name = f"{rival}, {said}"
            if name not in results:
                continue
            cost = np.mean([d["CPU s"] for d in results[steps[-1]]]) / np.mean([d["CPU s"] for d in results[name]])
            told.append(f"PARAM Multi less {rival}: {_both(results, steps[-1], name)}, {cost:.1f} times its CPU time")
        print(f"\nWith {said} (mean, standard error over draws): " + "; ".join(told) + ".", flush=True)


def _both(results, a: str, b: str) -> str:
    return f"F1 {difference(results, a, b, 'F1')}, MRR {difference(results, a, b, 'MRR')}"


def order(args) -> None:
    ways = [w for w in WAYS if not args.agreed or w.similarity != "wip" or w.shrinkage == "agreed"]
    for name, make in cases(args.data).items():
        if args.only and name not in args.only:
            continue
        case, results = make(), {}
        size = min(args.support or 2000, len(case.labels) * 2 // 3)
        for draw in range(args.draws):
            one_draw(case, draw, size, args.anchors, ways, results)
        dims = ", ".join(f"{n} {v.shape[1]}" for n, v in case.spaces.items())
        held = "each space held out in turn" if case.held_out else "both spaces train"
        note = f"{size} support rows, {args.anchors} anchors, {args.draws} draws, dimensions {dims}; {held}."
        print_table(case, results, note)


# ------------------------------------------------------------------------------------------------- retrieval

Encoded = Callable[[str, torch.Tensor], torch.Tensor]  # rows of a space, by its name, to a common space


def trained(case: Case, support: np.ndarray, sources: list[str], anchors: int, draw: int):
    """(title, encoder, CPU seconds) of every way, of anchors found in the sources alone; any space may attach."""

    def rows(name: str) -> torch.Tensor:
        return case.spaces[name][support]

    def generator() -> torch.Generator:
        return torch.Generator().manual_seed(draw)

    def attached(shared: Shared) -> Encoded:
        made: dict[str, tuple] = {}

        def encode(name: str, v: torch.Tensor) -> torch.Tensor:
            if name not in made:
                made[name] = attach(rows(name), shared)
            return made[name][0](v, made[name][1])

        return encode

    size = len(support)
    random = one_row_each(torch.randperm(size, generator=generator())[:anchors], size)
    yield "Random + Cosine", lambda name, v: fit("cosine", rows(name))(v, random @ rows(name).double()), 0.0
    begun = time.process_time()
    known = [LeftOut(rows(s)) for s in sources]
    every = agreed_ridge(known).ridge
    spent = time.process_time() - begun
    ridge = agreed_ridge(known, random).ridge
    yield "Random + WIP", attached(Shared(random, ridge, None)), time.process_time() - begun
    begun = time.process_time()
    single = share([rows(sources[0])], "param", anchors=anchors, generator=generator(), ridge=every, steps=STEPS)
    single = Shared(single.mixture, agreed_ridge(known, single.mixture).ridge, None)
    yield "PARAM Single", attached(single), spent + time.process_time() - begun
    for title, how in (("PARAM Multi", "param"), ("k-means + WIP", "kmeans"), ("CCA + WIP", "cca")):
        begun = time.process_time()
        more = {"steps": STEPS} if how == "param" else {}
        shared = share([rows(s) for s in sources], how, anchors=anchors, generator=generator(), **more)
        spent = time.process_time() - begun
        yield title, attached(shared), spent
    begun = time.process_time()
    white = max(every, shared.ridge)
    own = agreed_ridge([KernelLeftOut(k, white) for k in known], shared.mixture, KERNEL_GRID).ridge
    spent += time.process_time() - begun
    kernels: dict[str, Any] = {}

    def kernel(name: str, v: torch.Tensor) -> torch.Tensor:
        if name not in kernels:
            kernels[name] = KernelLeftOut(rows(name), white).similarity(shared.mixture, own)
        return kernels[name](v)

    yield "CCA + kernel", kernel, spent


def retrieval(args) -> None:
    """R@1 and R@5 of every ordered pair, by cosine among all test rows; the target is held out of the training."""
    for key, make in (("banking", sentences), ("emoji", emoji)):
        if args.only and key not in args.only:
            continue
        case = make(args.data)
        names = list(case.spaces)
        pairs = [(s, t) for s in names for t in names if s != t]
        size = min(args.support or 1500, len(case.labels) // 2)
        results: dict[str, dict[tuple[str, str], list[tuple[float, ...]]]] = {}
        seconds: dict[str, list[float]] = {}

        def note(title: str, s: str, t: str, a: torch.Tensor, b: torch.Tensor, results=results) -> None:
            both = alignment.between({"s": a, "t": b})[0]
            results.setdefault(title, {}).setdefault((s, t), []).append((both["r@1"], both["r@5"], both["mrr"]))

        for draw in range(args.draws):
            order = np.random.default_rng(draw).permutation(len(case.labels))
            support, test = order[:size], order[size : size + 2000]
            for t in names:
                sources = [n for n in names if n != t]
                for s in sources:
                    a, b = (case.spaces[n] for n in (s, t))
                    if a.shape[1] == b.shape[1]:
                        sides = [(v[test] - v[support].mean(0)).double() for v in (a, b)]
                        note("Absolute, where dimensions agree", s, t, *sides)
                for title, encode, spent in trained(case, support, sources, args.anchors, draw):
                    seconds.setdefault(title, []).append(spent)
                    seen = {n: encode(n, case.spaces[n][test]).double() for n in names}
                    for s in sources:
                        note(title, s, t, seen[s], seen[t])
        dims = ", ".join(f"{n} {v.shape[1]}" for n, v in case.spaces.items())
        print(
            f"\n### {case.title}\n\nR@1 / R@5 in %, of {len(test)} rows, {args.draws} draws (sd of R@1); {size} "
            f"support rows, {args.anchors} anchors, dimensions {dims}; the target is held out of the training.\n"
        )
        print("| | " + " | ".join(f"{s} to {t}" for s, t in pairs) + " | mean MRR | CPU s |")
        print("|" + "---|" * (len(pairs) + 3))
        for title, by in results.items():
            cells = []
            for pair in pairs:
                got = np.array(by.get(pair, []))
                sd = got[:, 0].std(ddof=1) if len(got) > 1 else 0.0
                cells.append(
                    f"{100 * got[:, 0].mean():.1f} ± {100 * sd:.1f} / {100 * got[:, 1].mean():.1f}" if len(got) else "-"
                )
            mrr = f"{np.mean([[g[2] for g in got] for got in by.values()]):.3f}" if len(by) == len(pairs) else "-"
            spent = f"{np.mean(seconds[title]):.2f}" if title in seconds else "-"
            print(f"| {title} | " + " | ".join(cells) + f" | {mrr} | {spent} |", flush=True)


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
        for part in shares:
            sides = []
            for v in (x, other):
                s = fit("wip", v[:1000], ridge=ridge_of(part))
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
            ("relative", {"similarity": "kernel"}),
            ("kmeans", {}),
            ("cca", {}),
            ("cca", {"similarity": "kernel"}),
            ("param", {}),
            ("param", {"mode": "single"}),
        ):
            m = method(name, **params)
            if seeds == 100:  # the first call of a kind loads what it needs
                m.fit(x, y, Pairs.by_row(seeds), generator=torch.Generator().manual_seed(0))
            begun = time.process_time()
            m.fit(x, y, Pairs.by_row(seeds), generator=torch.Generator().manual_seed(0))
            took, told = time.process_time() - begun, m.estimate(n, n, d, d, seeds).seconds
            title = " ".join([name, *params.values()])
            print(f"| {title} | {seeds} | {d} | {n} | {told:.2f} | {took:.2f} | {told / took:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("order", "retrieval", "affine", "costs"))
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--support", type=int, help="rows: 2000, of retrieval 1500, where there are so many")
    parser.add_argument("--anchors", type=int, default=128)
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--agreed", action="store_true", help=f"of order: leave out shrinkage {FIXED}; half the time")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    {"order": order, "retrieval": retrieval, "affine": affine, "costs": costs}[args.what](args)


if __name__ == "__main__":
    main()
