"""How many directions count: the spectrum of each side, and of its anchor profiles against gamma.

A profile is ``r(x) = A M^(-gamma / 2) x``, with A the N anchors and M their second moment (see
:mod:`relcore.ops.relative`). Where M is the covariance of the rows, of eigenvalues s, that of the profiles has the
eigenvalues ``N s^(2 - gamma)``: gamma 0 squares the spectrum, gamma 1 keeps it, gamma 2 flattens it. With few anchors
M is not that covariance, and the measured curve bends away from the predicted one.

Participation ratio: ``(sum e)^2 / sum e^2``. Effective rank: the exponential of the entropy of ``e / sum e`` (Roy and
Vetterli, "The effective rank", EUSIPCO 2007). Numpy alone.
"""

from __future__ import annotations

import numpy as np

GAMMAS = np.arange(0, 2.01, 0.25)
CLIP = 1e-6  # of the mean eigenvalue of M, as in the paper
RANK = 1e-6  # of the largest singular value of the anchors: below it a direction is rounding
SLOPE_SHARE = 0.9  # of the variance is in the eigenvalues the slope is fitted to


def participation_ratio(values: np.ndarray) -> float:
    """``(sum e)^2 / sum e^2`` of eigenvalues, not negative. 0 where all are 0."""
    values = np.asarray(values, dtype=np.float64)
    squares = (values**2).sum()
    return float(values.sum() ** 2 / squares) if squares > 0 else 0.0


def effective_rank(values: np.ndarray) -> float:
    """Exponential of the entropy of the eigenvalues over their sum. 0 where all are 0."""
    values = np.asarray(values, dtype=np.float64)
    values = values[values > 0]
    if not len(values):
        return 0.0
    p = values / values.sum()
    return float(np.exp(-(p * np.log(p)).sum()))


def eigenvalues(v: np.ndarray) -> np.ndarray:
    """Eigenvalues of the covariance of rows (n, d), float64, descending, of min(n, d) directions."""
    v, scale = _centred(np.asarray(v, dtype=np.float32))
    gram = (v.T @ v if v.shape[1] <= len(v) else v @ v.T).astype(np.float64) / len(v)
    return np.linalg.eigvalsh(gram)[::-1].clip(0) * scale**2


def _centred(v: np.ndarray) -> tuple[np.ndarray, float]:
    """Rows less their mean, float32, over the largest of their entries, so that no square overflows; and that entry."""
    v = v - v.mean(0, dtype=np.float64).astype(np.float32)
    scale = float(np.abs(v).max(initial=0)) or 1.0
    return v / np.float32(scale), scale


def predicted(s: np.ndarray, gamma: float, anchors: int, ridge: float = 0.0) -> np.ndarray:
    """Spectrum of the profiles' covariance where the anchors' second moment is the rows' covariance.

    ``N s^(2 - gamma)``; with a ridge, in units of the mean eigenvalue, ``N s^2 (s + ridge mean(s))^(-gamma)``.
    """
    s = np.asarray(s, dtype=np.float64)
    s = s[s > RANK**2 * s.max(initial=0)]
    return anchors * s**2 * (s + ridge * s.mean()) ** -gamma if len(s) else s


class Profiles:
    """Spectra of the profiles of some rows (n, d) by anchors (N, d): decomposed once, for any gamma and ridge."""

    def __init__(self, rows: np.ndarray, anchors: np.ndarray) -> None:
        a = np.asarray(anchors, dtype=np.float64)
        _, singular, axes = np.linalg.svd(a, full_matrices=False)
        kept = singular > RANK * singular.max(initial=0)
        self.count, self.width = a.shape
        self.values = singular[kept] ** 2 / len(a)  # of M; the others are 0 and no profile has a part there
        v, scale = _centred(np.asarray(rows, dtype=np.float32) @ axes[kept].T.astype(np.float32))
        self.covariance = (v.T @ v).astype(np.float64) / len(v) * scale**2

    def spectrum(self, gamma: float, ridge: float = 0.0) -> np.ndarray:
        """Eigenvalues of the profiles' covariance that are not 0 by construction, descending."""
        mean = self.values.sum() / self.width
        scale = np.sqrt(self.count * self.values) * np.maximum(self.values + ridge * mean, CLIP * mean) ** (-gamma / 2)
        return np.linalg.eigvalsh(self.covariance * scale * scale[:, None])[::-1].clip(0)


def slope(profile: np.ndarray, data: np.ndarray) -> float:
    """Slope of the log spectrum of the profiles over that of the data, on the leading eigenvalues: 2 - gamma in theory.

    NaN where fewer than two eigenvalues, or equal ones, hold nine tenths of the variance.
    """
    total = data.sum()
    if total <= 0:
        return float("nan")
    leading = int(np.searchsorted(np.cumsum(data) / total, SLOPE_SHARE)) + 1
    leading = min(leading, int((profile > 0).sum()), int((data > 0).sum()))
    s, e = np.log(data[:leading]), np.log(profile[:leading])
    s = s - s.mean() if leading else s
    return float((s * e).sum() / (s**2).sum()) if leading > 1 and (s**2).sum() > 1e-12 else float("nan")


def analyse(
    rows: dict[str, np.ndarray],
    aligned: dict[str, np.ndarray],
    anchors: dict[str, np.ndarray],
    ridges: tuple[float, ...] = (0.0,),
) -> dict[str, np.ndarray]:
    """Arrays that are stored with a run, float64.

    Parameters
    ----------
    rows, aligned : for each side, preprocessed rows and those in the common space.
    anchors : for each side, the rows of the seeds; may be empty.
    ridges : in units of the mean eigenvalue of the anchors' second moment; 0 is the clip of the paper.

    Returns
    -------
    ``spectrum/SIDE/data`` and ``spectrum/SIDE/aligned``, eigenvalues of the covariance, descending; and with anchors
    ``spectrum/gamma`` (G,), ``spectrum/ridge`` (R,), and (R, G) ``spectrum/SIDE/participation`` of the profiles,
    ``.../predicted``, ``.../rank`` (effective rank) and ``.../slope``.
    """
    out: dict[str, np.ndarray] = {}
    for side in rows:
        data = eigenvalues(rows[side])
        out[f"spectrum/{side}/data"], out[f"spectrum/{side}/aligned"] = data, eigenvalues(aligned[side])
        count = len(anchors[side])
        if not count:
            continue
        out["spectrum/gamma"], out["spectrum/ridge"] = GAMMAS.copy(), np.array(ridges, dtype=np.float64)
        profiles = Profiles(rows[side], anchors[side])
        cells = [[(profiles.spectrum(g, r), predicted(data, g, count, r)) for g in GAMMAS] for r in ridges]
        figures = {
            "participation": lambda e, theory, data: participation_ratio(e),
            "predicted": lambda e, theory, data: participation_ratio(theory),
            "rank": lambda e, theory, data: effective_rank(e),
            "slope": lambda e, theory, data: slope(e, data),
        }
        for name, of in figures.items():
            out[f"spectrum/{side}/{name}"] = np.array([[of(e, t, data) for e, t in row] for row in cells])
    return out


def summary(arrays: dict[str, np.ndarray]) -> dict[str, dict]:
    """The arrays of :func:`analyse` for JSON: ``{side: figures}``, with anchors also ``gamma`` and ``ridge``."""
    out: dict = {}
    for side in "xy":
        if f"spectrum/{side}/data" not in arrays:
            return {}
        out[side] = {}
        for name in ("data", "aligned"):
            values = arrays[f"spectrum/{side}/{name}"]
            out[side][name] = {
                "participation_ratio": participation_ratio(values),
                "effective_rank": effective_rank(values),
                "dimensions": len(values),
            }
        if "spectrum/gamma" in arrays:
            names = ("participation", "predicted", "rank", "slope")
            tables = {n: arrays[f"spectrum/{side}/{n}"] for n in names}
            out[side]["profiles"] = {
                n: [[None if v != v else v for v in row] for row in t.tolist()] for n, t in tables.items()
            }
    if "spectrum/gamma" in arrays:
        out |= {name: arrays[f"spectrum/{name}"].tolist() for name in ("gamma", "ridge")}
    return out
