"""The relative representation as a method: the Seed baseline and, with true pairs, the ground-truth reference."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics.pairwise import cosine_similarity

from relcore.errors import InputError
from relcore.methods import method
from relcore.space import Pairs


def fit(x, y, seeds):
    return method("relative").fit(x, y, seeds, generator=torch.Generator().manual_seed(0))


def rows(n: int, d: int, seed: int) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def test_rows_are_described_by_their_cosine_to_the_seeds_of_their_side():
    x, y = rows(40, 6, 0), rows(50, 9, 1)
    seeds = Pairs(np.array([[3, 7], [1, 2], [30, 45]]))
    run = fit(x, y, seeds)
    for v, anchors, out in ((x, seeds.x, run.x), (y, seeds.y, run.y)):
        want = cosine_similarity(v.numpy(), v[anchors.tolist()].numpy())
        # rows keep their length: a common space is compared by cosine
        np.testing.assert_allclose((out / v.norm(dim=1, keepdim=True)).numpy(), want, atol=1e-6)
    np.testing.assert_array_equal(run.anchors.array, seeds.array)
    assert run.anchors_x.shape == (3, 6) and run.anchors_y.shape == (3, 9)


def test_a_rotation_is_invisible():
    x = rows(60, 10, 2)
    y = x @ torch.linalg.qr(rows(10, 10, 3))[0]
    run = fit(x, y, Pairs.by_row(15))
    torch.testing.assert_close(run.x, run.y, rtol=0, atol=1e-5)


def test_new_vectors_are_encoded_like_the_rows():
    x, y = rows(40, 6, 0), rows(50, 9, 1)
    run = fit(x, y, Pairs.by_row(5))
    torch.testing.assert_close(run.encode_x(x[7:9]), run.x[7:9], rtol=0, atol=1e-6)
    torch.testing.assert_close(run.encode_y(y[7:9]), run.y[7:9], rtol=0, atol=1e-6)


def test_no_seeds_is_refused():
    with pytest.raises(InputError, match="Relative representation needs at least 1 seed pairs, got 0"):
        fit(rows(5, 3, 0), rows(5, 3, 1), Pairs.empty())
