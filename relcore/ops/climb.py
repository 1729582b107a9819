"""Searching for an orthogonal map that lays one sphere on another: climbing, agreement, swaps, a last polish.

:func:`climb` and :func:`ascend` are pure functions of a :class:`Problem` and a chunk of starts, arrays in and arrays
out: where a chunk runs changes no bit of it, as long as chunks keep their size (:data:`CHUNK`).

Sources: HGA, arXiv 2608.28840 (:func:`ascend`); the step-free ascent is the generalised power method (Journee et al.
2010) on the chordal kernel, whose J is convex in the map; swaps and the polish are ours, measured.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Generator, Tensor

from relcore.ops import kernel, neighbors
from relcore.ops.linalg import polar
from relcore.ops.starts import kmeans, random_orthogonal, random_signs

CHUNK = 32  # restarts climbed at once
SAME = 0.85  # mean cosine of two images of the data above which two maps are one solution
TINY = 1e-30
TABLE_ELEMENTS = 1 << 25  # 134 MB of cosines held at once
SETTLED = 1e-6  # of the images' mean cosine; turns that move the map less end the polish
FEWEST_PAIRS, FEWEST_DIMENSIONS = 40, 4  # matched rows and coordinates left out, to read evidence from


class Problem(NamedTuple):
    """Two sides on the unit sphere in the same number of dimensions.

    Tensors: x (n, d), y (m, d) unit rows; weights a (n,), b (m,) of sum 1 or None; known rows (p, d), (p, d) or None,
    each of which counts ``known_weight`` times all other pairs; proper (), +1 or -1, the only determinant allowed, or
    None.
    """

    x: Tensor
    y: Tensor
    weights: tuple[Tensor, Tensor] | None = None
    known: tuple[Tensor, Tensor] | None = None
    known_weight: float = 0.0
    proper: Tensor | None = None


class Climbed(NamedTuple):
    """maps (b, d, d), and J at the judging bandwidth after each stage (stages, b)."""

    maps: Tensor
    scores: Tensor


def climb(problem: Problem, starts: Tensor, stages: tuple[tuple[float, int], ...], judge: Problem) -> Climbed:
    """Climb starts (b, d, d) through stages (sigma, iterations): each map to the polar factor of its gradient.

    The chordal J is convex in the map, so each step raises it and none needs a size: a soft-assignment Procrustes.
    """
    maps, scores = starts, []
    for sigma, iterations in stages:
        for _ in range(iterations):
            _, slope = kernel.gradient(
                maps,
                problem.x,
                problem.y,
                sigma,
                weights=problem.weights,
                known=problem.known,
                known_weight=problem.known_weight,
                kernel=kernel.chordal,
            )
            size = slope.abs().amax((1, 2), keepdim=True)
            moved = polar(slope / size.clamp_min(TINY), problem.proper)
            maps = torch.where(size > TINY, moved, maps)  # out of reach of everything: stay
        scores.append(judged(maps, judge))
    return Climbed(maps, torch.stack(scores))


def ascend(problem: Problem, starts: Tensor, sigma: float, angles: tuple[float, ...], judge: Problem) -> Climbed:
    """Steps of the paper: the geodesic kernel's gradient on the tangent space, a step, and back by the SVD.

    Parameters
    ----------
    angles : length of each step in radians, of the whole tangent vector: its own length changes by orders of
        magnitude with sigma.
    """
    maps = starts
    for angle in angles:
        _, slope = kernel.gradient(
            maps, problem.x, problem.y, sigma, known=problem.known, known_weight=problem.known_weight
        )
        slope = slope / slope.abs().amax((1, 2), keepdim=True).clamp_min(TINY)
        inner = maps.transpose(1, 2) @ slope
        tangent = maps @ (inner - inner.transpose(1, 2)) / 2
        length = torch.linalg.matrix_norm(tangent, keepdim=True)
        maps = polar(maps + angle * tangent / length.clamp_min(1e-12))
    return Climbed(maps, judged(maps, judge)[None])


def judged(maps: Tensor, judge: Problem) -> Tensor:
    """J at the one bandwidth scores are compared at, of the angle and without known pairs: (b,)."""
    return kernel.objective(maps, judge.x, judge.y, kernel.JUDGE, weights=judge.weights)


def reach(maps: Tensor, problem: Problem, sigma: float) -> float:
    """Largest gradient of any map: 0, or close to it, where no row is within reach of another."""
    slope = kernel.gradient(maps, problem.x, problem.y, sigma, kernel=kernel.chordal)[1]
    return float(slope.abs().max())


def agreement(maps: Tensor, other: Tensor, x: Tensor) -> Tensor:
    """Mean cosine (b,) between the images of unit rows x under maps (b, d, d) and under another (d, d).

    Unlike the distance of the maps it leaves out directions in which the data have no extent.
    """
    moment = x.T @ x / (x * x).sum().clamp_min(TINY)
    return (maps * (moment @ other)).sum((1, 2))


def distinct(maps: Tensor, scores: Tensor, x: Tensor, count: int) -> Tensor:
    """Positions of at most ``count`` maps that are solutions of their own, by falling score."""
    kept: list[int] = []
    for i in scores.argsort(descending=True, stable=True).tolist():
        if not kept or float(agreement(maps[kept], maps[i], x).max()) < SAME:
            kept.append(i)
        if len(kept) == count:
            break
    return torch.tensor(kept)


def swapped(problem: Problem, found: Tensor, clusters: int, generator: Generator) -> Tensor:
    """Maps (k (k - 1) / 2, d, d) that exchange the images of two clusters of x, refitted by Procrustes.

    The wrong optima are permutations of classes; most are one exchange away.
    """
    centroids, share = kmeans(problem.x, min(clusters, len(problem.x)), generator)
    k = len(centroids)
    i, j = torch.triu_indices(k, k, 1)
    image = (centroids @ found).expand(len(i), k, -1).clone()
    each = torch.arange(len(i))
    image[each, i], image[each, j] = image[each, j], image[each, i]
    return polar((centroids * share[:, None]).T @ image, problem.proper)


def polish(
    x: Tensor, y: Tensor, found: Tensor, rounds: int, *, known: Tensor | None = None, proper: Tensor | None = None
) -> tuple[Tensor, int]:
    """Turns of mutual CSLS neighbours and Procrustes from a map (d_x, d_y): the map, and the pairs it rests on.

    Parameters
    ----------
    x, y : unit rows (n, d_x), (m, d_y).
    known : int64 (p, 2), pairs of rows that join the matched ones in every turn.

    The map it came from stays in the sum with a small weight and settles directions the pairs leave open.
    """
    pairs = 0
    for _ in range(rounds):
        there, back = csls_both(x @ found, y)
        own = torch.nonzero(back[there] == torch.arange(len(x), device=x.device))[:, 0]
        matched = torch.stack([own, there[own]], 1)
        if known is not None:
            matched = torch.cat([matched, known])
        pairs = len(matched)
        if not pairs:
            break
        cross = x[matched[:, 0]].T @ y[matched[:, 1]] / pairs
        turned = polar((cross + 1e-3 * cross.norm() / found.norm() * found)[None], proper)[0]
        still = float(agreement(turned[None], found, x)) / float(agreement(found[None], found, x))
        found = turned
        if still > 1 - SETTLED:
            break
    return found, pairs


def stir(
    x: Tensor, y: Tensor, found: Tensor, turns: int, generator: Generator, *, known: Tensor | None = None
) -> Tensor:
    """Turns of :func:`polish`, each on a half of the rows of either side drawn anew: wrong matches do not last.

    Parameters
    ----------
    known : int64 (p, 2), pairs of rows that join the matched ones in every turn.
    """
    for _ in range(turns):
        a, b = (torch.randperm(len(v), generator=generator)[: (len(v) + 1) // 2].to(v.device) for v in (x, y))
        there, back = csls_both(x[a] @ found, y[b])
        own = torch.nonzero(back[there] == torch.arange(len(a), device=x.device))[:, 0]
        matched = torch.stack([a[own], b[there[own]]], 1)
        if known is not None:
            matched = torch.cat([matched, known])
        if len(matched):
            cross = x[matched[:, 0]].T @ y[matched[:, 1]] / len(matched)
            found = polar((cross + 1e-3 * cross.norm() / found.norm() * found)[None])[0]
    return found


def csls_both(x: Tensor, y: Tensor, k: int = 10) -> tuple[Tensor, Tensor]:
    """Best row of the other side by CSLS, both ways: int64 (n,), (m,).

    From one table of cosines where it fits in :data:`TABLE_ELEMENTS`, else in blocks.
    """
    if len(x) * len(y) > TABLE_ELEMENTS:
        means = neighbors.csls_means(x, y, k)
        _, there = neighbors.topk_csls(x, y, 1, means=means)
        _, back = neighbors.topk_csls(y, x, 1, means=means[::-1])
        return there[:, 0], back[:, 0]
    cosine = neighbors.unit_rows(x) @ neighbors.unit_rows(y).T
    over_y = cosine.topk(min(k, len(y)), dim=1).values.mean(1)
    over_x = cosine.T.contiguous().topk(min(k, len(x)), dim=1).values.mean(1)
    cosine.mul_(2).sub_(over_x)
    there = cosine.argmax(1)
    back = cosine.add_(over_x).sub_(over_y[:, None]).argmax(0)
    return there, back


# ---------------------------------------------------------------- chunks of a search


class Plan(NamedTuple):
    """All that a chunk of random restarts needs to know, whichever process it runs in.

    landmarks : the centroids of both sides; points : the rows of each later stage; stages are (sigma, iterations).
    ``finalists`` of a chunk climb on points. ``seed`` and a restart's number make its start.
    """

    landmarks: Problem
    landmark_stages: tuple[tuple[float, int], ...]
    points: tuple[Problem, ...]
    point_stages: tuple[tuple[float, int], ...]
    judge: Problem
    finalists: int
    seed: int


class Chunk(NamedTuple):
    """What became of a chunk: scores on landmarks (stages, b), positions (f,) of its finalists among its restarts, and
    their maps (f, d, d) and scores (stages, f) on points."""

    landmark_scores: Tensor
    finalists: Tensor
    maps: Tensor
    scores: Tensor


def random_chunk(plan: Plan, ids: list[int], anywhere: bool) -> Chunk:
    """Random restarts of these numbers, at most :data:`CHUNK`: on landmarks, and the best different ones on points.

    Parameters
    ----------
    anywhere : start at uniform orthogonal maps, from a bandwidth of 1, rather than at random signs of the axes.
    """
    d, device = plan.landmarks.x.shape[1], plan.landmarks.x.device
    proper = plan.landmarks.proper
    if anywhere:
        begin = random_orthogonal(d, ids, plan.seed).to(device)
        stages = ((1.0, plan.landmark_stages[0][1]), *plan.landmark_stages)
    else:
        begin, stages = random_signs(d, ids, plan.seed).to(device), plan.landmark_stages
    begin = begin if proper is None else polar(begin, proper)
    found = climb(plan.landmarks, begin, stages, plan.judge)
    best = distinct(found.maps, found.scores[-1], plan.judge.x, plan.finalists).to(device)
    final = on_points(plan, found.maps[best])
    return Chunk(found.scores, best, final.maps, final.scores)


def on_points(plan: Plan, starts: Tensor) -> Climbed:
    """Climb starts through the stages on points, each on its own rows."""
    maps, scores = starts, []
    for problem, stage in zip(plan.points, plan.point_stages, strict=True):
        maps, score = climb(problem, maps, (stage,), plan.judge)
        scores.append(score)
    return Climbed(maps, torch.cat(scores))


# ---------------------------------------------------------------- evidence without labels


class LeftOut(NamedTuple):
    """``excess``: mean cosine of matched rows in coordinates that no match was made by, above that of rows matched at
    random; ``z``: in standard errors; ``pairs``: matched rows it rests on."""

    excess: float
    z: float
    pairs: int


def left_out(
    x: Tensor, y: Tensor, axes_x: Tensor, axes_y: Tensor, found: Tensor, neighborhood: int = 10
) -> LeftOut | None:
    """Do rows matched in the axes searched also match in the coordinates left out? None where too little is left out.

    Rows are matched both ways in the axes alone. What lies outside them, less its mean over a row's neighbours in the
    axes (a cluster has its own mean there, whatever it is laid on), is turned by Procrustes on one half of the matches
    and compared on the other half. Only where items truly correspond do both sides know the same of them; sides without
    a common item say nothing here, even when they are well aligned.

    Parameters
    ----------
    x, y : unit rows (n, d_x), (m, d_y). axes_x (d_x, d), axes_y (d_y, d): orthonormal columns; found (d, d).
    """
    there, back = csls_both(neighbors.unit_rows(x @ axes_x @ found), neighbors.unit_rows(y @ axes_y))
    own = torch.nonzero(back[there] == torch.arange(len(x), device=x.device))[:, 0]
    sides, rest = [], []
    for v, axes, rows in ((x, axes_x, own), (y, axes_y, there[own])):
        seen = v @ axes
        outside = v - seen @ axes.T
        k = min(neighborhood + 1, len(v))
        _, near = neighbors.topk_cosine(neighbors.unit_rows(seen), neighbors.unit_rows(seen), k)
        local = outside[near[:, 1:]].mean(1) if k > 1 else 0.0
        sides.append((outside - local)[rows])
        rest.append(min(v.shape) - axes.shape[1])
    if len(own) < FEWEST_PAIRS or min(rest) < FEWEST_DIMENSIONS or any(float(v.norm()) < 1e-3 for v in sides):
        return None
    half = torch.arange(len(own), device=x.device) % 2
    excess = []
    for part in (0, 1):
        fit, judge = half != part, half == part
        turn = polar((sides[0][fit].T @ sides[1][fit])[None])[0]
        cosine = neighbors.unit_rows(sides[0][judge] @ turn) @ neighbors.unit_rows(sides[1][judge]).T
        partner = cosine.diagonal()
        excess.append(partner - (cosine.sum(1) - partner) / (len(cosine) - 1))
    excess = torch.cat(excess)
    mean = float(excess.mean())
    return LeftOut(mean, mean / max(float(excess.std()), 1e-12) * len(excess) ** 0.5, len(excess))
