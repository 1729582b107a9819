"""Two-dimensional pictures of a space by principal components. numpy alone: the app server draws them itself."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Projection(NamedTuple):
    """A fitted linear projection: ``(v - mean) @ axes``. ``share`` is the variance each axis carries."""

    mean: np.ndarray
    axes: np.ndarray
    share: np.ndarray

    def __call__(self, v: np.ndarray) -> np.ndarray:
        """float32 (n, 2) coordinates of rows (n, d)."""
        return ((v - self.mean) @ self.axes).astype(np.float32)


def fit_pca(v: np.ndarray, block: int = 16384) -> Projection:
    """The two leading principal components of rows (n, d), each axis signed so that its largest loading is positive.

    One axis (d = 1) or one row leaves the second, or both, axes zero: the points then lie on a line or on one spot.
    """
    n, d = v.shape
    mean = v.mean(0, dtype=np.float64)
    covariance = np.zeros((d, d))
    for i in range(0, n, block):
        part = v[i : i + block].astype(np.float64) - mean
        covariance += part.T @ part
    values, vectors = np.linalg.eigh(covariance)
    axes = np.zeros((d, 2))
    kept = min(2, d)
    axes[:, :kept] = vectors[:, ::-1][:, :kept]
    for j in range(kept):
        axes[:, j] *= np.sign(axes[np.abs(axes[:, j]).argmax(), j]) or 1.0
    share = np.zeros(2)
    share[:kept] = np.clip(values[::-1][:kept], 0, None) / max(values.sum(), 1e-300)
    return Projection(mean.astype(np.float32), axes.astype(np.float32), share)


def unit(v: np.ndarray) -> np.ndarray:
    """Rows scaled to norm 1."""
    return v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-30)


def centred_unit(v: np.ndarray) -> np.ndarray:
    """Rows less their mean, scaled to norm 1: what the default preprocessing makes of a space."""
    return unit(v - v.mean(0, dtype=np.float64).astype(np.float32))
