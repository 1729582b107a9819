"""How alike relative representations of the same rows are in different spaces.

Parallel rows (row i everywhere the same item), any number of spaces, every ordered pair of them. Definitions as in
arXiv 2605.30596, sections on alignment, where they are given; the rest in the functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations

import torch
from torch import Tensor

from relcore.ops.neighbors import partner_rank


def between(spaces: Mapping[str, Tensor], at: tuple[int, ...] = (1, 5)) -> list[dict[str, float | str]]:
    """Figures of every ordered pair of spaces.

    Parameters
    ----------
    spaces : representations (n, m) of the same n rows, by the name of their space; one width, at least two rows.
    at : ranks of recall.

    Returns
    -------
    A dict for each ordered pair, with ``source`` and ``target`` and:

    - ``mrr`` : mean of 1 / rank of the row's own partner among all target rows, by cosine; by chance H(n) / n.
    - ``r@K`` : share of rows whose partner is among the K nearest.
    - ``nmse`` : :func:`nmse`; ``nmse_scaled`` : the same after each feature of each space is given mean 0, variance 1.
    - ``rr_std`` : mean standard deviation of the target's features. Compares within one similarity only.
    - ``effective_rank`` : of the target, :func:`effective_rank`.
    - ``cka`` : :func:`linear_cka`.

    Raises
    ------
    ValueError
        Spaces that are not parallel, of different widths, or of fewer than two rows; NaN or infinite numbers.
    """
    shapes = {name: tuple(v.shape) for name, v in spaces.items()}
    if len(set(shapes.values())) > 1 or any(len(s) != 2 or s[0] < 2 for s in shapes.values()):
        told = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"alignment compares tables of one shape, row by row, of at least two rows; got {told}.")
    own = {name: {"rr_std": rr_std(v), "effective_rank": effective_rank(v)} for name, v in spaces.items()}
    both = {}  # what does not depend on the direction, once
    out = []
    for source, target in permutations(spaces, 2):
        a, b = spaces[source], spaces[target]
        rows = torch.arange(len(a), device=a.device)
        rank = partner_rank(a, b, rows, rows)
        key = frozenset((source, target))
        if key not in both:
            both[key] = {
                "nmse": nmse(a, b),
                "nmse_scaled": nmse(scaled(a), scaled(b)),
                "cka": linear_cka(a, b),
            }
        found: dict[str, float | str] = {"source": source, "target": target, "mrr": float((1 / rank.double()).mean())}
        found |= {f"r@{k}": float((rank <= k).double().mean()) for k in at}
        out.append(found | both[key] | own[target])
    return out


def nmse(a: Tensor, b: Tensor) -> float:
    """Mean squared difference over the variance of a feature, the mean of both spaces (n, m): 0 equal, 2 unrelated."""
    a, b = a.double(), b.double()
    variance = (a.var(0, correction=0).mean() + b.var(0, correction=0).mean()) / 2
    return float(((a - b) ** 2).mean() / variance.clamp_min(1e-300))


def scaled(v: Tensor) -> Tensor:
    """Features of mean 0 and variance 1, float64; a constant one is 0."""
    v = v.double() - v.double().mean(0)
    return v / v.std(0, correction=0).clamp_min(1e-300)


def rr_std(v: Tensor) -> float:
    """Mean over features of their standard deviation."""
    return float(v.double().std(0, correction=0).mean())


def effective_rank(v: Tensor) -> float:
    """Exponential of the entropy of singular values over their sum, of rows less their mean. 0 of constant rows.

    Source: Roy and Vetterli, "The effective rank", EUSIPCO 2007.
    """
    v = v.double() - v.double().mean(0)
    gram = v.T @ v if v.shape[1] <= len(v) else v @ v.T
    values = torch.linalg.eigvalsh(gram)
    values = values[values > 1e-14 * values[-1]].sqrt()  # smaller ones are rounding
    if not len(values) or values[-1] == 0:
        return 0.0
    p = values / values.sum()
    return float(torch.exp(-(p * p.log()).sum()))


def linear_cka(a: Tensor, b: Tensor) -> float:
    """Linear centred kernel alignment of parallel rows (n, d_a), (n, d_b), 0 to 1; 0 where a side is constant.

    Source: Kornblith et al., "Similarity of neural network representations revisited", ICML 2019. Biased upwards while
    n is not well above d.
    """
    a, b = (v.double() - v.double().mean(0) for v in (a, b))
    norms = [float(torch.linalg.matrix_norm(v.T @ v if v.shape[1] <= len(v) else v @ v.T)) for v in (a, b)]
    if min(norms) == 0:
        return 0.0
    return float(torch.linalg.matrix_norm(a.T @ b) ** 2) / (norms[0] * norms[1])
