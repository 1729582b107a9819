"""Where a search for an orthogonal map may begin, without known pairs.

Rows are unit vectors x (n, d), y (m, d), float32, in the principal axes of their sides; maps (b, d, d) take x to
``x M``. Random restarts find the right map in 2 to 9 of 100 tries, whatever climbs; what the two sides tell of
themselves does better: distances within a side are the same on both.

Sources: profiles of sorted similarities, Artetxe et al. 2018 (A robust self-learning method), section 3.2, from the
formulas; matching of centroids by swaps, quadratic assignment as in mini-vec2vec (arXiv 2510.02348); signs of
principal axes and landmarks are ours, measured.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from relcore.ops.linalg import polar
from relcore.ops.neighbors import unit_rows

PROFILE = 128  # quantiles a profile is read at, so that sides of different size compare
PROFILE_NEIGHBORS = 10
LLOYD = 15  # iterations of k-means
SWEEPS = 60  # at most so many swaps in a matching of centroids
TINY = 1e-12


def own_generators(first: int, ids: list[int]) -> list[Generator]:
    """A generator for each restart by its own number: what a restart draws depends on nothing else."""
    return [torch.Generator().manual_seed((first + 1_000_003 * i) % 2**63) for i in ids]


def random_orthogonal(d: int, ids: list[int], seed: int, reflections: bool = True) -> Tensor:
    """Uniform orthogonal maps (b, d, d), restart i from ``seed`` and i; det is -1 for odd i, if reflections may be.

    A path of small steps never changes the determinant, so the starts must have both.
    """
    draws = torch.stack([torch.randn(d, d, generator=g) for g in own_generators(seed, ids)])
    q, r = torch.linalg.qr(draws)
    q = q * torch.sign(torch.diagonal(r, dim1=1, dim2=2))[:, None, :]
    wanted = torch.tensor([-1.0 if reflections and i % 2 else 1.0 for i in ids])
    q[:, :, 0] *= (wanted * torch.linalg.det(q).sign())[:, None]
    return q


def random_signs(d: int, ids: list[int], seed: int) -> Tensor:
    """Each principal axis on its like with a random sign, (b, d, d), restart i from ``seed`` and i."""
    draws = torch.stack([torch.randint(0, 2, (d,), generator=g) for g in own_generators(seed, ids)])
    return torch.diag_embed(draws * 2.0 - 1)


def skewed_signs(x: Tensor, y: Tensor) -> Tensor:
    """Each principal axis on its like, turned so that the third moments agree: (1, d, d)."""
    skewness = [(v**3).mean(0) for v in (x, y)]
    return torch.diag_embed(torch.where(skewness[0] * skewness[1] < 0, -1.0, 1.0)[None])


def profile_match(x: Tensor, y: Tensor, proper: Tensor | None = None) -> Tensor:
    """Rows matched both ways by CSLS of their sorted similarities within their side, and Procrustes: (1, d, d)."""
    a, b = _profiles(x), _profiles(y)
    score = a @ b.T
    k = min(PROFILE_NEIGHBORS, len(x), len(y))
    score = score - score.topk(k, 1).values.mean(1, keepdim=True) / 2 - score.topk(k, 0).values.mean(0) / 2
    cross = x.T @ y[score.argmax(1)] / len(x) + x[score.argmax(0)].T @ y / len(y)
    return polar(cross[None], proper)


def _profiles(v: Tensor) -> Tensor:
    """Unit profiles (n, q), less their mean: quantiles of each row's similarities, by the root of their size."""
    similar = v @ v.T
    similar = unit_rows(similar.sign() * similar.abs().sqrt()).sort(dim=1).values
    place = torch.linspace(0, len(v) - 1, min(PROFILE, len(v)) if len(v) > 1 else 1, device=v.device)
    if len(v) < PROFILE:  # read between the values
        place = torch.linspace(0, len(v) - 1, PROFILE, device=v.device)
    low = place.floor().long()
    part = place - low
    profile = similar[:, low] * (1 - part) + similar[:, (low + 1).clamp_max(len(v) - 1)] * part
    return unit_rows(profile - profile.mean(0))


def kmeans(v: Tensor, k: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """Centroids (k, d) of rows (n, d) and their shares (k,), k at most n: k-means++ and Lloyd. None is empty at first;
    one that becomes so keeps its place and the share 0."""
    centroids = v[torch.randint(len(v), (1,), generator=generator)]
    nearest = torch.cdist(v, centroids)[:, 0] ** 2
    for _ in range(k - 1):
        pick = torch.multinomial(nearest.cpu().double() + TINY, 1, generator=generator).to(v.device)
        centroids = torch.cat([centroids, v[pick]])
        nearest = torch.minimum(nearest, torch.cdist(v, v[pick])[:, 0] ** 2)
    for _ in range(LLOYD):
        member = torch.cdist(v, centroids).argmin(1)
        count = torch.bincount(member, minlength=k)
        sums = torch.zeros_like(centroids).index_add_(0, member, v)
        centroids = torch.where(count[:, None] > 0, sums / count.clamp_min(1)[:, None], centroids)
    return centroids, torch.bincount(torch.cdist(v, centroids).argmin(1), minlength=k).to(v) / len(v)


def matched_centroids(
    x: Tensor, y: Tensor, count: int, k: int, generator: Generator, tries: int = 128, proper: Tensor | None = None
) -> Tensor:
    """Maps by matching k centroids a side so that their inner products agree: at most (count, d, d), best first."""
    (cx, share), (cy, _) = kmeans(x, k, generator), kmeans(y, k, generator)
    gx, gy = cx @ cx.T, cy @ cy.T
    gx, gy = gx / gx.norm().clamp_min(TINY), gy / gy.norm().clamp_min(TINY)
    order, value = match_by_swaps(gx, gy, tries, generator)
    best = value.argsort(descending=True, stable=True)
    order, value = order[best], value[best]
    fresh = torch.ones(len(value), dtype=torch.bool, device=value.device)
    fresh[1:] = value[:-1] - value[1:] > 1e-6  # the same matching reached twice
    order = order[fresh][:count]
    return polar((cx * share[:, None]).T @ cy[order], proper)


def match_by_swaps(a: Tensor, b: Tensor, tries: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """Permutations p (tries, k) that no swap of two improves in ``sum_ij a_ij b_p(i)p(j)``, and their values.

    Steepest ascent from random permutations, all swaps of all tries scored at once; a, b symmetric (k, k).
    """
    k = len(a)
    order = torch.stack([torch.randperm(k, generator=generator) for _ in range(tries)]).to(a.device)
    i, j = torch.triu_indices(k, k, 1, device=a.device)
    da = torch.diagonal(a)
    for _ in range(SWEEPS):
        if not len(i):
            break
        p = b[order[:, :, None], order[:, None, :]]
        dp = torch.diagonal(p, dim1=1, dim2=2)
        m = a @ p  # m_ij = sum_l a_il p_lj; symmetric in what follows
        dm = torch.diagonal(m, dim1=1, dim2=2)
        # sum over all l of (a_il - a_jl)(p_jl - p_il), less its terms l = i and l = j, twice; then the diagonal
        everything = m + m.transpose(1, 2) - dm[:, :, None] - dm[:, None, :]
        at_i = (da[:, None] - a) * (p - dp[:, :, None])
        at_j = (a - da[None, :]) * (dp[:, None, :] - p)
        gain = 2 * (everything - at_i - at_j) + (da[:, None] - da[None, :]) * (dp[:, None, :] - dp[:, :, None])
        best, swap = gain[:, i, j].max(1)
        moving = torch.nonzero(best > 1e-7)[:, 0]
        if not len(moving):
            break
        first, second = i[swap[moving]], j[swap[moving]]
        order[moving, first], order[moving, second] = order[moving, second], order[moving, first]
    p = b[order[:, :, None], order[:, None, :]]
    return order, (a * p).sum((1, 2))
