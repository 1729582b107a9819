"""Rough costs of the numerical building blocks, for the line beside the Run button. No torch: the app reads it.

Nanoseconds an element on one core of the machine the tests run on (2 GHz, AVX-512, torch 2.13), measured by
``python benchmarks/ao.py costs``; another machine differs by a factor, which is what "about" on the screen means.
"""

from __future__ import annotations

TILE_BYTES = 64e6  # a tile of scores and its temporaries
HELD_ELEMENTS = 1 << 26  # score matrices up to this size are kept


def product(n: int, m: int, width: int) -> float:
    """Seconds of one pass over the scores of n x m rows of a width: the product and a largest value."""
    return 1e-9 * n * m * (0.5 + 0.033 * width)


def topk(n: int, m: int) -> float:
    """Seconds of the 10 largest scores of each row, both ways."""
    return 1e-9 * n * m * 8.0


def sweep(n: int, m: int, width: int, dim: int) -> float:
    """Seconds of one Sinkhorn iteration with barycentres of a dimension, in float64."""
    return 1e-9 * n * m * (40.0 + 0.07 * (width + dim))
