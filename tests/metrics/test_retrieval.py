"""Retrieval against a reference written straight from the definition, one query at a time, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from relcore.metrics.retrieval import retrieval
from relcore.space import Pairs


def nearest(query: np.ndarray, targets: np.ndarray, k: int) -> list[int]:
    unit = targets / np.linalg.norm(targets, axis=1)[:, None]
    return list(np.argsort(-(unit @ (query / np.linalg.norm(query))), kind="stable")[:k])


def reference(source: np.ndarray, target: np.ndarray, pairs: list[tuple[int, int]], k: int, at) -> dict[str, float]:
    scores: dict[str, list[float]] = {name: [] for name in ("mrr", "jaccard", "cosine", *(f"r@{d}" for d in at))}
    for i, j in pairs:
        b = nearest(source[i], target, k)
        a = nearest(target[j], target, k)
        scores["mrr"].append(1 / (b.index(j) + 1) if j in b else 0.0)
        scores["jaccard"].append(len(set(a) & set(b)) / len(set(a) | set(b)))
        scores["cosine"].append(source[i] @ target[j] / np.linalg.norm(source[i]) / np.linalg.norm(target[j]))
        for depth in at:
            scores[f"r@{depth}"].append(j in nearest(source[i], target, depth))
    return {name: float(np.mean(values)) for name, values in scores.items()}


def noisy_pair(n: int, m: int, known: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, Pairs]:
    """Two sides that share ``known`` items under noise, each in its own order, with different norms."""
    rng = np.random.default_rng(seed)
    rows_x, rows_y = rng.permutation(n)[:known], rng.permutation(m)[:known]
    x, y = rng.standard_normal((n, 6)), rng.standard_normal((m, 6))
    y[rows_y] = x[rows_x] + 0.6 * rng.standard_normal((known, 6))
    scaled = (v * rng.uniform(0.1, 9, (len(v), 1)) for v in (x, y))
    return *(torch.from_numpy(v.astype(np.float32)) for v in scaled), Pairs(np.stack([rows_x, rows_y], 1))


@pytest.mark.parametrize(
    ("n", "m", "known"),
    [(60, 60, 60), (60, 35, 20), (35, 60, 35), (1, 1, 1), (2, 2, 2), (3, 2, 2), (4, 4, 3), (1, 9, 1)],
)
@pytest.mark.parametrize(("k", "at"), [(10, (1, 5, 10)), (3, (1, 2, 20)), (100, (1,))])
def test_scores_are_the_definition(n, m, known, k, at):
    x, y, pairs = noisy_pair(n, m, known)
    got = retrieval(x, y, pairs, k, at, block=7)
    a, b = x.double().numpy(), y.double().numpy()
    for way, source, target, listed in (("x_to_y", a, b, pairs.array), ("y_to_x", b, a, pairs.array[:, ::-1])):
        want = reference(source, target, [(int(i), int(j)) for i, j in listed], k, at)
        scores = dict(got[way])
        assert scores.pop("n") == known and scores.pop("k") == min(k, len(target))
        assert ("note" in scores) == (k > len(target))
        scores.pop("note", None)
        assert scores.keys() == want.keys()
        assert scores == pytest.approx(want, abs=1e-6)


def test_the_limited_k_is_said():
    x, y, pairs = noisy_pair(3, 12, 2)
    got = retrieval(x, y, pairs)
    assert got["y_to_x"]["note"] == "k limited to 3, the number of rows of x"
    assert got["x_to_y"]["k"] == 10 and "note" not in got["x_to_y"]


def test_a_rank_beyond_k_counts_nothing():
    """The partner is second of three: half a point at K = 2, none at K = 1."""
    x = torch.tensor([[1.0, 0.0]])
    y = torch.tensor([[1.0, 0.1], [1.0, 0.2], [-1.0, 0.0]])
    pairs = Pairs(np.array([[0, 1]]))
    assert retrieval(x, y, pairs, 2)["x_to_y"]["mrr"] == 0.5
    assert retrieval(x, y, pairs, 1)["x_to_y"]["mrr"] == 0.0


def test_equal_sides_score_one_and_their_shuffle_does_not():
    x, _, _ = noisy_pair(50, 50, 0)
    perfect = retrieval(x, x, Pairs.by_row(50))["x_to_y"]
    assert (perfect["mrr"], perfect["jaccard"], perfect["r@1"]) == (1, 1, 1)
    rolled = Pairs(np.stack([np.arange(50), np.roll(np.arange(50), 1)], 1))
    assert retrieval(x, x, rolled)["x_to_y"]["r@1"] == 0


def test_nothing_to_score_is_an_error():
    x, y, pairs = noisy_pair(5, 5, 2)
    with pytest.raises(ValueError, match="at least one true pair"):
        retrieval(x, y, Pairs.empty())
    with pytest.raises(ValueError, match="from 1"):
        retrieval(x, y, pairs, 0)
    with pytest.raises(ValueError, match="NaN"):
        retrieval(x * float("nan"), y, pairs)
