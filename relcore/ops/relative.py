"""Relative representations: rows described by their similarities to anchors."""

from __future__ import annotations

from torch import Tensor

from relcore.ops.neighbors import unit_rows


def relative(v: Tensor, anchors: Tensor) -> Tensor:
    """Cosine relative representation (n, k) of rows (n, d) by anchors (k, d), float32.

    Source: Moschella et al., "Relative representations enable zero-shot latent space communication", ICLR 2023, §3.
    """
    return unit_rows(v) @ unit_rows(anchors).T
