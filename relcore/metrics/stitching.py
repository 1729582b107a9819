"""Stitching: a classifier trained on one side's common coordinates is read on the other side's.

Labels are used here alone; no method sees them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

TRAINED_ROWS = 5000  # the classifier learns from at most so many rows, drawn at random


def stitch(
    train: np.ndarray, train_labels: np.ndarray, test: np.ndarray, test_labels: np.ndarray, seed: int = 0
) -> dict[str, Any]:
    """Accuracy of a logistic regression fitted on one side and applied to the other.

    Parameters
    ----------
    train, test : common coordinates (n, r), (m, r); rows are scaled to norm 1, as they are compared.
    train_labels, test_labels : a label a row, of one kind.

    Returns
    -------
    - ``accuracy`` : share of test rows whose label is found; labels the classifier never saw count as missed.
    - ``own`` : the same on the rows it learned from, a ceiling.
    - ``majority`` : share of the test rows that the commonest label of the training side would get.
    - ``rows`` : rows learned from.

    Raises
    ------
    ValueError
        Labels that do not belong to the rows, or fewer than two classes to learn.
    """
    from sklearn.linear_model import LogisticRegression

    train_labels, test_labels = np.asarray(train_labels), np.asarray(test_labels)
    for name, rows, labels in (("training", train, train_labels), ("test", test, test_labels)):
        if len(rows) != len(labels):
            raise ValueError(f"{len(labels)} {name} labels for {len(rows)} rows; wanted one a row.")
    some = np.sort(np.random.default_rng(seed).permutation(len(train))[:TRAINED_ROWS])
    values, counts = np.unique(train_labels[some], return_counts=True)
    if len(values) < 2:
        raise ValueError(f"a classifier needs two classes, got {len(values)} in {len(some)} training rows.")
    learned = LogisticRegression(C=100.0, max_iter=1000).fit(_unit(train[some]), train_labels[some])
    return {
        "accuracy": float((learned.predict(_unit(test)) == test_labels).mean()),
        "own": float((learned.predict(_unit(train[some])) == train_labels[some]).mean()),
        "majority": float((test_labels == values[counts.argmax()]).mean()),
        "rows": len(some),
    }


def _unit(v: np.ndarray) -> np.ndarray:
    return v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-30)
