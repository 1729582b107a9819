"""Rough costs of the numerical building blocks, for the line beside the Run button. No torch: the app reads it.

Nanoseconds an element on one core of the machine the tests run on (2 GHz, AVX-512, torch 2.13), measured by
``python benchmarks/ao.py costs`` and ``benchmarks/param.py costs``; another machine differs by a factor, which is what
"about" on the screen means.
"""

from __future__ import annotations

TILE_BYTES = 64e6  # a tile of scores and its temporaries


def product(n: int, m: int, width: int) -> float:
    """Seconds of the scores of n x m rows of a width, in tiles, and nothing else."""
    return 1e-9 * n * m * (0.2 + 0.014 * width)


def vote(n: int, m: int, width: int) -> float:
    """Seconds of one round of votes: a product, its largest value in each row, and a part of it again."""
    return 1.5 * product(n, m, width) + 1e-9 * n * m * 1.0


def both_ways(n: int, m: int, width: int) -> float:
    """Seconds of the best matches both ways by CSLS: three products and their largest values."""
    return 3.0 * product(n, m, width) + 1e-9 * n * m * 4.3


def decomposition(dx: int, dy: int) -> float:
    """Seconds of the singular value decomposition of a (d_x, d_y) matrix in float64."""
    return (0.5e-9 * dx * dy + 5e-6) * min(dx, dy)


def sweep(n: int, m: int, width: int, dim: int) -> float:
    """Seconds of one Sinkhorn iteration with barycentres of a dimension, in float64."""
    return 1e-9 * n * m * (20.0 + 0.036 * (width + dim))


def transport(n: int, m: int, width: int, iterations: int, held: bool) -> float:
    """Seconds of entropic transport: an iteration over a kernel that is held, or made anew from factors each time."""
    made = product(n, m, width) + 3e-9 * n * m
    return (2 * made + 1.2e-9 * n * m * iterations) if held else made * iterations


def distil_step(rows: int, dims: int, width: int, hidden: int) -> float:
    """Seconds of a training step of two encoders of inputs of ``dims`` dimensions together on chunks of rows."""
    products = rows * (dims * (width + hidden) + 2 * hidden * width + rows * width)
    return 2e-3 + 1.2e-10 * products + 6e-8 * rows * rows


def polar(d: int) -> float:
    """Seconds of the polar factor of a (d, d) matrix in a batch."""
    return 3 * decomposition(d, d)


def chord_step(n: int, m: int, d: int) -> float:
    """Seconds of a step-free step: the chordal kernel of n x m rows, its gradient, the polar factor."""
    return 1e-9 * n * m * (1.0 + 0.04 * d) + polar(d)


def angle_step(n: int, m: int, d: int) -> float:
    """Seconds of a step of gradient ascent: the kernel of the angle, its gradient, the polar factor."""
    return 1e-9 * n * m * (3.7 + 0.045 * d) + polar(d)


def angle_score(n: int, m: int, d: int) -> float:
    """Seconds of the mean kernel of the angle over n x m rows."""
    return 1e-9 * n * m * (2.2 + 0.03 * d)


def symmetric(d: int) -> float:
    """Seconds of the eigendecomposition of a symmetric (d, d) matrix in float64."""
    return (0.5e-9 * d * d + 5e-6) * d


def eigen(d: int) -> float:
    """The same of one whose vectors are all that is wanted of it, by itself: of a covariance, or of a kernel."""
    return (0.25e-9 * d * d + 3e-6) * d


def whitening(seeds: int, dx: int, dy: int) -> float:
    """Seconds of the spectra of both sides' seeds."""
    return 1e-3 + sum(1e-10 * seeds * d * min(seeds, d) + eigen(min(seeds, d)) for d in (dx, dy))


def agreement(seeds: int, dx: int, dy: int, anchors: int, ridges: int = 9) -> float:
    """Seconds of choosing a ridge by seeds left out, on 500 of them at most; fewer anchors than seeds are mixtures.

    ``dx``, ``dy`` at least ``seeds``: of a kernel.
    """
    judged = min(seeds, 500)
    rows, each = (judged + seeds, 1.2e-10) if anchors < seeds else (judged, 1e-10)
    sides = sum(4e-4 + each * anchors * min(seeds, d) * rows + 4e-9 * judged * anchors for d in (dx, dy))
    return ridges * (sides + 1e-8 * judged * judged)


def kernel(seeds: int, dx: int, dy: int, anchors: int) -> float:
    """Seconds of the kernels of both sides' seeds, of agreeing on their ridge, and of what belongs to the anchors."""
    made = sum(eigen(seeds) + seeds * seeds * (5e-11 * d + 1e-8) for d in (dx, dy))
    dual = 2 * seeds * seeds * anchors * (1.4e-10 if anchors < seeds else 0.6e-10)
    return made + dual + agreement(seeds, seeds, seeds, anchors, 10)


def kernel_rows(n: int, seeds: int, d: int, anchors: int) -> float:
    """Seconds of kernel similarities of n rows to anchors."""
    return n * seeds * (5e-11 * (min(seeds, d) + anchors) + 8e-9)


def clusters(seeds: int, count: int, d: int) -> float:
    """Seconds of k-means of the seeds, two starts."""
    return 3e-3 + 2 * 20 * (4e-11 * seeds * count * min(d, seeds) + 2e-9 * seeds * count)


def mixture_step(seeds: int, anchors: int, dims: int, batch: int) -> float:
    """Seconds of a step of learned mixtures, of all sides' dimensions together."""
    products = anchors * dims * (seeds + batch)
    return 1.5e-3 + 0.6e-10 * products + 1.5e-8 * anchors * seeds + batch * batch * (3e-10 * anchors + 2e-8)


def mixture_view(seeds: int, anchors: int, dx: int, dy: int) -> float:
    """Seconds of the figures and maps that are shown of learned mixtures."""
    return 1e-3 + 1e-10 * anchors * seeds * (dx + dy + anchors) + product(500, 500, anchors) * 2
