"""Rough costs of the numerical building blocks, for the line beside the Run button. No torch: the app reads it.

Nanoseconds an element on one core of the machine the tests run on (2 GHz, AVX-512, torch 2.13), measured by
``python benchmarks/ao.py costs``; another machine differs by a factor, which is what "about" on the screen means.
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
