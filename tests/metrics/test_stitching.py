"""Stitching against scikit-learn by hand, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from relcore.metrics.stitching import stitch


def blobs(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, n)
    return 3 * np.eye(5)[labels] + rng.normal(size=(n, 5)), labels


def test_it_is_the_accuracy_of_a_classifier_fitted_on_the_other_side():
    (x, a), (y, b) = blobs(300, 0), blobs(200, 1)
    got = stitch(x, a, y, b)
    x, y = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (x, y))
    want = LogisticRegression(C=100.0, max_iter=1000).fit(x, a)
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
