"""Stitching against scikit-learn by hand, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, mean_absolute_error

from relcore.metrics.stitching import CLASSIFIERS, confusion, in_order, learn, numbers, scores, split, stitch


def blobs(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, n)
    return 3 * np.eye(5)[labels] + rng.normal(size=(n, 5)), labels


def test_it_is_the_accuracy_of_a_classifier_fitted_on_the_other_side():
    (x, a), (y, b) = blobs(300, 0), blobs(200, 1)
    got = stitch(x, a, y, b)
    x, y = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (x, y))
    mean, deviation = x.mean(0), np.sqrt(x.var(0).mean())
    x, y = (x - mean) / deviation, (y - mean) / deviation
    want = LogisticRegression(max_iter=1000).fit(x, a)
    assert got["accuracy"] == pytest.approx(want.score(y, b)) and got["own"] == pytest.approx(want.score(x, a))
    assert got["majority"] == pytest.approx((b == np.bincount(a).argmax()).mean())
    assert got["rows"] == 300


def test_swapped_classes_cost_what_they_hold():
    (x, a), (y, b) = blobs(400, 0), blobs(400, 1)
    swapped = np.array([1, 0, 2, 3])[b]
    right, wrong = stitch(x, a, y, b), stitch(x, a, y, swapped)
    assert right["accuracy"] - wrong["accuracy"] > 0.35
    assert right["own"] == wrong["own"]


def test_text_labels_and_classes_never_learned():
    (x, a), (y, b) = blobs(300, 0), blobs(200, 1)
    names = np.array(["cat", "dog", "eel", "fly"])
    kept = a != 3
    got = stitch(x[kept], names[a[kept]], y, names[b])
    assert got["accuracy"] <= (b != 3).mean()


def test_what_cannot_be_learned_is_refused():
    x, a = blobs(30, 0)
    with pytest.raises(ValueError, match="two classes, got 1 in 30 training rows"):
        stitch(x, np.zeros(30), x, a)
    with pytest.raises(ValueError, match="29 test labels for 30 rows"):
        stitch(x, a, x, a[:-1])


def test_a_split_keeps_the_shares_of_classes_and_leaves_a_class_of_one_to_learning():
    labels = np.array(["a"] * 40 + ["b"] * 8 + ["c"] * 2 + ["d"])
    got = split(labels, 0.25, seed=3)
    assert sorted([*got.train, *got.test]) == list(range(51)) and got.alone == ("d",)
    tested = {k: int((labels[got.test] == k).sum()) for k in "abcd"}
    assert tested == {"a": 10, "b": 2, "c": 1, "d": 0}
    again, other = split(labels, 0.25, seed=3), split(labels, 0.25, seed=4)
    assert (again.test == got.test).all() and not np.array_equal(other.test, got.test)
    assert (labels[split(labels, 0.99, seed=0).train] == "c").sum() == 1  # no class is only tested


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_every_classifier_learns_whatever_the_unit_and_the_offset(kind):
    (x, a), (y, b) = blobs(300, 0), blobs(200, 1)
    plain, moved = learn(kind, x, a), learn(kind, 1e-4 * x + 7, a)
    accuracy = (plain.predict(y) == b).mean()
    assert accuracy > 0.85
    assert (moved.predict(1e-4 * y + 7) == b).mean() == pytest.approx(accuracy, abs=0.011)
    assert plain.predict(y[:1])[0] == plain.predict(y)[0]  # a row by itself is what it is among others


def test_figures_against_scikit_learn():
    rng = np.random.default_rng(0)
    truth, said = rng.integers(0, 4, 50).astype(str), rng.integers(0, 5, 50).astype(str)
    got = scores(truth, said, ordered=True)
    assert got["accuracy"] == pytest.approx((truth == said).mean())
    assert got["weighted_f1"] == pytest.approx(f1_score(truth, said, average="weighted", labels=list("0123")))
    assert got["mae"] == pytest.approx(mean_absolute_error(truth.astype(int), said.astype(int)))
    assert "mae" not in scores(truth, said)
    table = confusion(truth, said, list("01234"))
    assert table.sum() == 50 and table[1, 2] == ((truth == "1") & (said == "2")).sum()


def test_labels_that_are_numbers_are_ordered_as_such():
    assert in_order(["10", "9", "2.5"]) == ["2.5", "9", "10"] and numbers(np.array(["1", "-2e3"]))
    assert in_order(["10", "9", "x"]) == ["10", "9", "x"] and not numbers(np.array(["1", "nan"]))
