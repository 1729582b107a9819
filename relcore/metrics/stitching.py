"""Stitching: a classifier trained on one space's coordinates is read on another's.

The parts: how rows are split, the classifiers, the figures. Labels are used here alone; no method sees them.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

CLASSIFIERS = {"logistic": "logistic regression", "svm": "linear SVM", "mlp": "network with one hidden layer of 128"}
TRAINED_ROWS = 5000  # the classifier learns from at most so many rows, drawn at random


class Split(NamedTuple):
    """Which of n things are learned from and which are tested; positions, sorted int64.

    ``alone`` are classes of a single thing: it is learned from, so that the class is not tested.
    """

    train: np.ndarray
    test: np.ndarray
    alone: tuple[str, ...] = ()


def split(labels: np.ndarray, share: float, seed: int) -> Split:
    """Set a share of things aside for testing, of each class as nearly the same share as whole things allow.

    Parameters
    ----------
    labels : (n,), a label a thing; ``""`` (no label) is a class like any other here.
    share : 0 to 1, of each class: at least one of a class of two or more is tested, and at least one is not.
    """
    rng = np.random.default_rng(seed)
    labels = np.asarray(labels)
    tested, alone = [], []
    for value in np.unique(labels):
        of = rng.permutation(np.flatnonzero(labels == value))
        if len(of) == 1:
            alone.append(str(value))
            continue
        tested.append(of[: min(max(1, round(share * len(of))), len(of) - 1)])
    test = np.sort(np.concatenate(tested)) if tested else np.empty(0, dtype=np.int64)
    return Split(np.setdiff1d(np.arange(len(labels)), test), test, tuple(alone))


@dataclass(frozen=True, eq=False)
class Learned:
    """A classifier and the shift and scale that its rows are given: one of each, the same for every space.

    ``rows`` is how many rows it learned from, ``converged`` whether its solver came to an end.
    """

    model: Any
    shift: np.ndarray
    scale: float
    rows: int
    converged: bool

    def predict(self, rows: np.ndarray) -> np.ndarray:
        return self.model.predict((rows - self.shift) / self.scale)


def learn(kind: str, rows: np.ndarray, labels: np.ndarray, seed: int = 0) -> Learned:
    """Train a classifier of scikit-learn.

    Rows are moved to the mean of the training rows and divided by one number, so that a feature has variance 1 on
    average: how strongly the classifier is held back does not depend on the unit of a similarity.

    Parameters
    ----------
    kind : one of :data:`CLASSIFIERS`.
    rows, labels : (n, r) and (n,); of more than :data:`TRAINED_ROWS` some are drawn at random.

    Raises
    ------
    ValueError
        Labels that do not belong to the rows, or fewer than two classes.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.svm import LinearSVC

    rows, labels = np.asarray(rows, dtype=np.float64), np.asarray(labels)
    if len(rows) != len(labels):
        raise ValueError(f"{len(labels)} training labels for {len(rows)} rows; wanted one a row.")
    some = np.sort(np.random.default_rng(seed).permutation(len(rows))[:TRAINED_ROWS])
    rows, labels = rows[some], labels[some]
    if len(np.unique(labels)) < 2:
        raise ValueError(f"a classifier needs two classes, got {len(np.unique(labels))} in {len(rows)} training rows.")
    shift = rows.mean(0)
    scale = float(np.sqrt(((rows - shift) ** 2).mean())) or 1.0
    model = {
        "logistic": lambda: LogisticRegression(max_iter=300),
        "svm": lambda: LinearSVC(dual="auto", max_iter=3000, random_state=seed),
        "mlp": lambda: MLPClassifier(hidden_layer_sizes=(128,), max_iter=200, random_state=seed),
    }[kind]()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit((rows - shift) / scale, labels)
    unfinished = any(issubclass(w.category, ConvergenceWarning) for w in said)
    return Learned(model, shift, scale, len(rows), not unfinished)


def scores(truth: np.ndarray, predicted: np.ndarray, ordered: bool = False) -> dict[str, float]:
    """Figures of predictions (n,) against labels (n,), n at least 1.

    Returns
    -------
    ``accuracy``; ``weighted_f1``, the mean over true classes of F1, weighed by their rows; with ``ordered`` labels,
    which are numbers, ``mae``, their mean absolute difference.
    """
    from sklearn.metrics import f1_score

    truth, predicted = np.asarray(truth).astype(str), np.asarray(predicted).astype(str)
    out = {
        "accuracy": float((truth == predicted).mean()),
        "weighted_f1": float(f1_score(truth, predicted, average="weighted", zero_division=0.0)),
    }
    if ordered:
        out["mae"] = float(np.abs(truth.astype(float) - predicted.astype(float)).mean())
    return out


def numbers(labels: np.ndarray) -> bool:
    """Whether every label is a finite number, so that classes have an order and distances."""
    try:
        return bool(np.isfinite(np.asarray(labels).astype(str).astype(float)).all())
    except ValueError:
        return False


def in_order(values: np.ndarray | list[str]) -> list[str]:
    """Distinct labels, as numbers where all are numbers, else by alphabet."""
    distinct = np.unique(np.asarray(values).astype(str))
    return sorted(distinct.tolist(), key=float) if numbers(distinct) else distinct.tolist()


def confusion(truth: np.ndarray, predicted: np.ndarray, classes: list[str]) -> np.ndarray:
    """How many rows of each true class (row) were taken for each (column), int64 (C, C), in the order of classes."""
    from sklearn.metrics import confusion_matrix

    return confusion_matrix(np.asarray(truth).astype(str), np.asarray(predicted).astype(str), labels=classes)


def stitch(
    train: np.ndarray, train_labels: np.ndarray, test: np.ndarray, test_labels: np.ndarray, seed: int = 0
) -> dict[str, Any]:
    """Accuracy of a logistic regression fitted on one side and applied to all of the other, for rows seen by both.

    Parameters
    ----------
    train, test : common coordinates (n, r), (m, r); rows are scaled to norm 1, as they are compared.
    train_labels, test_labels : a label a row, of one kind.

    Returns
    -------
    - ``accuracy`` : share of test rows whose label is found; labels the classifier never saw count as missed.
    - ``own`` : the same on the rows of the training side, a ceiling.
    - ``majority`` : share of the test rows that the commonest label of the training side would get.
    - ``rows`` : rows learned from.

    Raises
    ------
    ValueError
        Labels that do not belong to the rows, or fewer than two classes to learn.
    """
    train_labels, test_labels = np.asarray(train_labels), np.asarray(test_labels)
    if len(test) != len(test_labels):
        raise ValueError(f"{len(test_labels)} test labels for {len(test)} rows; wanted one a row.")
    learned = learn("logistic", unit(train), train_labels, seed)
    values, counts = np.unique(train_labels, return_counts=True)
    return {
        "accuracy": float((learned.predict(unit(test)) == test_labels).mean()),
        "own": float((learned.predict(unit(train)) == train_labels).mean()),
        "majority": float((test_labels == values[counts.argmax()]).mean()),
        "rows": learned.rows,
    }


def unit(v: np.ndarray) -> np.ndarray:
    """Rows scaled to norm 1; a row of zeros stays."""
    return v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-30)
