"""Relative representations against the definition: cosine to each anchor."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.metrics.pairwise import cosine_similarity

from relcore.ops.relative import relative


def test_relative_is_the_cosine_to_each_anchor():
    g = torch.Generator().manual_seed(0)
    v, anchors = 5 * torch.randn(40, 7, generator=g), 0.1 * torch.randn(11, 7, generator=g)
    out = relative(v, anchors)
    assert out.shape == (40, 11) and out.dtype == torch.float32
    np.testing.assert_allclose(out.numpy(), cosine_similarity(v.numpy(), anchors.numpy()), atol=1e-6)


def test_relative_does_not_change_under_rotation_and_scale():
    """The invariance that makes two encoders comparable (Moschella et al. 2023, section 3)."""
    g = torch.Generator().manual_seed(1)
    v = torch.randn(50, 12, generator=g)
    q = torch.linalg.qr(torch.randn(12, 12, generator=g))[0]
    turned = 3.7 * v @ q
    torch.testing.assert_close(relative(v, v[:9]), relative(turned, turned[:9]), rtol=0, atol=1e-5)


def test_a_zero_row_has_no_similarity_to_anything():
    v = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    assert relative(v, v[1:])[0].tolist() == [0.0]
