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


def principal_axes(moment: Tensor, limit: int, tolerance: float = 1e-3) -> tuple[Tensor, Tensor]:
    """Principal axes of rows v by their second moment ``v' v`` (d, d), widest first.

    Returns
    -------
    axes (d, q), orthonormal columns, and scale (q,), the root of their moments with the largest 1, float32; at most
    ``limit`` axes, and none of a scale below ``tolerance``, where rounding is all there is.
    """
    values, vectors = torch.linalg.eigh(moment.double())
    scale = values.flip(0).clamp_min(0).sqrt()
    kept = min(limit, int((scale > tolerance * scale[0]).sum()))
    return vectors.flip(1)[:, :kept].float(), (scale[:kept] / scale[0]).float()


def leading_directions(cross: Tensor, tolerance: float = 1e-3) -> tuple[Tensor, Tensor, Tensor]:
    """The directions a cross-covariance (d_x, d_y) determines: its singular vectors and values, less the null ones.

    Returns
    -------
    left (d_x, r), values (r,) with the largest 1, right (d_y, r), float32; values of at least ``tolerance``. From s
    pairs r is at most s: the other directions of a full decomposition would pair the two sides at random.
    """
    u, s, vt = torch.linalg.svd(cross.double(), full_matrices=False)
    kept = s > tolerance * s[0]
    return u[:, kept].float(), (s[kept] / s[0]).float(), vt[kept].T.float()


def procrustes(a: Tensor, b: Tensor) -> tuple[Tensor, int]:
    """Orthogonal Procrustes: the semi-orthogonal W (d_a, d_b) that maximises ``tr(W' a' b)``.

    With equal dimensions it minimises ``|a W - b|``; see :func:`procrustes_of`.

    Parameters
    ----------
    a, b : paired rows (s, d_a), (s, d_b).

    Source: Schoenemann, "A generalized solution of the orthogonal Procrustes problem", Psychometrika 1966.
    """
    return procrustes_of(a.double().T @ b.double())


def procrustes_of(cross: Tensor) -> tuple[Tensor, int]:
    """The semi-orthogonal W (d_a, d_b), float32, that maximises ``tr(W' cross)``, and the rank of ``cross``.

    From the thin SVD. With fewer pairs than dimensions W is determined on a subspace of that rank only; beyond it the
    SVD's own basis completes it.
    """
    u, s, vt = torch.linalg.svd(cross.double(), full_matrices=False)
    return (u @ vt).float(), int((s > 1e-7 * s[0]).sum())


def polar(m: Tensor, proper: Tensor | None = None) -> Tensor:
    """Orthogonal, or semi-orthogonal, factors of a batch of matrices (b, p, q), float32: the maps nearest to them.

    Parameters
    ----------
    proper : () +1 or -1, the determinant square factors must have: the direction of the smallest singular value is
        turned where it is the other (Umeyama 1991). None leaves it open.
    """
    u, _, vt = torch.linalg.svd(m, full_matrices=False)
    if proper is not None:
        sign = torch.linalg.det(u) * torch.linalg.det(vt) * proper
        u = torch.cat([u[:, :, :-1], u[:, :, -1:] * sign.sign()[:, None, None]], 2)
    return u @ vt
