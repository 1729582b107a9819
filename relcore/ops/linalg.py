"""Whitening, projections and orthogonal maps. Decompositions run in float64, results are float32."""

from __future__ import annotations

import torch
from torch import Tensor


def whitening(v: Tensor, clip: float = 1e-6) -> Tensor:
    """Symmetric whitening matrix (d, d): rows ``v @ W`` have the identity as second moment.

    Parameters
    ----------
    v : float32 (n, d), centred when the covariance is to become the identity.
    clip : eigenvalues below ``clip`` times their mean are raised to it.
    """
    moment = v.double().T @ v.double() / len(v)
    values, vectors = torch.linalg.eigh(moment)
    values = values.clamp_min(clip * values.mean())
    return ((vectors * values.rsqrt()) @ vectors.T).float()


def remove_top(v: Tensor, k: int) -> Tensor:
    """Projection (d, d) that removes the k leading right singular directions of rows (n, d), 0 <= k < d."""
    _, vectors = torch.linalg.eigh(v.double().T @ v.double())
    top = vectors[:, v.shape[1] - k :]
    return (torch.eye(v.shape[1], dtype=torch.float64) - top @ top.T).float()


def procrustes(a: Tensor, b: Tensor) -> tuple[Tensor, int]:
    """Orthogonal Procrustes: the semi-orthogonal W (d_a, d_b) that maximises ``tr(W' a' b)``, from the thin SVD.

    With equal dimensions it minimises ``|a W - b|``. With fewer pairs than dimensions W is determined on a subspace
    only; the rest is completed by the SVD's own basis.

    Returns
    -------
    W float32 and the rank of ``a' b`` (the dimension W is determined on).

    Source: Schoenemann, "A generalized solution of the orthogonal Procrustes problem", Psychometrika 1966.
    """
    cross = a.double().T @ b.double()
    u, s, vt = torch.linalg.svd(cross, full_matrices=False)
    rank = int((s > s[0] * 1e-7).sum()) if len(s) and s[0] > 0 else 0
    return (u @ vt).float(), rank
