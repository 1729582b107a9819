"""k-means by Lloyd's turns from k-means++ starts. numpy alone: choosing seeds must not load more."""

from __future__ import annotations

import numpy as np


def kmeans(
    v: np.ndarray, count: int, rng: np.random.Generator, *, starts: int = 2, turns: int = 100
) -> tuple[np.ndarray, np.ndarray]:
    """Clusters of rows (n, d), none of them empty; the best of a few starts.

    A cluster that loses all its rows takes the row farthest from its centroid. ``count`` is 1 to n.

    Returns
    -------
    centroids float64 (count, d), and label int64 (n,) of the centroid nearest to each row.

    Raises
    ------
    ValueError
        ``count`` out of range.

    Sources: Lloyd 1982; Arthur and Vassilvitskii, "k-means++", SODA 2007.
    """
    if not 1 <= count <= len(v):
        raise ValueError(f"{count} clusters of {len(v)} rows, wanted 1 to {len(v)}.")
    v = np.asarray(v, dtype=np.float64)
    v = v - (shift := v.mean(0))
    squares = (v**2).sum(1)
    best = None
    for _ in range(starts):
        centroids = v[_spread_out(v, squares, count, rng)]
        label = np.full(len(v), -1)
        for _ in range(turns):
            distance = squares[:, None] - 2 * (v @ centroids.T) + (centroids**2).sum(1)
            new = distance.argmin(1)
            nearest = np.maximum(distance[np.arange(len(v)), new], 0)
            _fill(new, nearest, count)
            if (new == label).all():
                break
            label = new
            centroids = _means(v, label, count)
        inertia = float(((v - centroids[label]) ** 2).sum())
        if best is None or inertia < best[0]:
            best = (inertia, centroids, label)
    return best[1] + shift, best[2]


def _means(v: np.ndarray, label: np.ndarray, count: int) -> np.ndarray:
    order = np.argsort(label, kind="stable")
    first = np.searchsorted(label[order], np.arange(count))
    return np.add.reduceat(v[order], first, axis=0) / np.bincount(label, minlength=count)[:, None]


def _fill(label: np.ndarray, nearest: np.ndarray, count: int) -> None:
    """Give each empty cluster the row farthest from its centroid among clusters of more than one row."""
    sizes = np.bincount(label, minlength=count)
    for empty in np.flatnonzero(sizes == 0):
        row = int(np.where(sizes[label] > 1, nearest, -1.0).argmax())
        sizes[label[row]] -= 1
        sizes[empty] += 1
        label[row], nearest[row] = empty, 0.0


def _spread_out(v: np.ndarray, squares: np.ndarray, count: int, rng: np.random.Generator) -> list[int]:
    """Rows to start from, each drawn by its squared distance to those before it; distinct."""
    chosen = [int(rng.integers(len(v)))]
    nearest = np.full(len(v), np.inf)
    free = np.ones(len(v), dtype=bool)
    while True:
        last = chosen[-1]
        free[last] = False
        if len(chosen) == count:
            return chosen
        nearest = np.minimum(nearest, np.maximum(squares - 2 * (v @ v[last]) + squares[last], 0))
        weight = np.where(free, nearest, 0.0)
        total = weight.sum()
        chosen.append(int(rng.choice(len(v), p=weight / total) if total > 0 else rng.choice(np.flatnonzero(free))))
