"""The relative representation as a method: the Seed baseline and, with true pairs, the ground-truth reference."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics.pairwise import cosine_similarity

from relcore.errors import InputError
from relcore.methods import method
from relcore.methods.anchored import KERNEL_SEEDS, SIMILARITIES
from relcore.methods.kept import Kernelled, encoder_arrays, encoder_of
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
    words = "Relative representation needs at least 1 seed pairs, got 0.* take a method that does with less: ao.* hga"
    with pytest.raises(InputError, match=words):
        fit(rows(5, 3, 0), rows(5, 3, 1), Pairs.empty())


# ---------------------------------------------------------------- other similarities and anchors


def with_params(x, y, seeds, **params):
    return method("relative", **params).fit(x, y, seeds, generator=torch.Generator().manual_seed(0))


def test_every_similarity_is_the_one_of_the_operations_fitted_on_the_seeds():
    from relcore.ops.similarity import fit as fitted
    from relcore.ops.similarity import ridge_of

    x, y = rows(60, 6, 0) + 1, rows(70, 9, 1)
    seeds = Pairs(np.stack([np.arange(30), np.arange(30)[::-1] + 5], 1))
    for kind in ("centred", "wip", "whitened", "mahalanobis", "euclidean", "gamma"):
        run = with_params(x, y, seeds, similarity=kind, shrinkage="fixed", shrinkage_amount=0.2, gamma=1.3)
        for v, at, out in ((x, seeds.x, run.x), (y, seeds.y, run.y)):
            support = v[at.tolist()]
            want = fitted(kind, support, ridge=ridge_of(0.2), gamma=1.3)(v, support)
            if kind in ("centred", "whitened"):
                white = fitted(kind, support, ridge=ridge_of(0.2)).white(v)
                out = (out / white.norm(dim=1, keepdim=True)).float()
            torch.testing.assert_close(out, want, rtol=1e-3, atol=1e-3)


def test_standardised_features_have_no_mean_and_variance_1_over_the_seeds():
    x, y = rows(60, 6, 0) + 1, rows(70, 9, 1)
    for kind in SIMILARITIES:
        run = with_params(x, y, Pairs.by_row(30), similarity=kind, standardise=True)
        for out in (run.x, run.y):
            torch.testing.assert_close(out[:30].mean(0), torch.zeros(30), rtol=0, atol=1e-4)
            torch.testing.assert_close(out[:30].std(0, correction=0), torch.ones(30), rtol=0, atol=1e-3)


@pytest.mark.parametrize("choose", ["random", "farthest", "medoids", "first"])
def test_anchors_may_be_some_of_the_seeds(choose):
    x, y = rows(60, 6, 0), rows(70, 9, 1)
    seeds = Pairs(np.stack([np.arange(40)[::-1], np.arange(40) + 5], 1))
    run, again = (with_params(x, y, seeds, choose=choose, count=7) for _ in range(2))
    np.testing.assert_array_equal(run.anchors.array, again.anchors.array)
    assert run.x.shape == (60, 7) and len(set(run.anchors.x)) == 7
    np.testing.assert_array_equal(run.anchors.y, 44 - run.anchors.x)
    want = cosine_similarity(x.numpy(), x[run.anchors.x.tolist()].numpy())
    np.testing.assert_allclose(run.x / x.norm(dim=1, keepdim=True), want, atol=1e-5)
    if choose == "first":
        assert sorted(run.anchors.x) == list(range(7))
    with pytest.raises(InputError, match="41 anchors are to be chosen of 40 seeds; ask for at most 40, or add seeds"):
        with_params(x, y, seeds, choose=choose, count=41)


def test_averages_of_clusters_are_the_same_averages_on_both_sides():
    x = rows(60, 6, 0)
    y = x @ torch.linalg.qr(rows(6, 6, 1))[0]
    run = with_params(x, y, Pairs.by_row(60), choose="kmeans", count=5)
    assert run.anchors is None and run.anchors_x.shape == (5, 6)
    torch.testing.assert_close(run.x, run.y, rtol=0, atol=1e-5)


def test_whitening_needs_seeds_and_tells_the_shrinkage_it_found():
    x, y = rows(60, 6, 0), rows(60, 6, 0) @ rows(6, 6, 1)
    run = with_params(x, y, Pairs.by_row(30), similarity="wip")
    assert set(run.chosen) == {"shrinkage_amount"}
    with pytest.raises(InputError, match="covariance of the seeds and needs at least 4 of them, got 3"):
        with_params(x, y, Pairs.by_row(3), similarity="wip")
    with pytest.raises(InputError, match="shrinkage_amount is 0, but 6 seeds"):
        with_params(x, y, Pairs.by_row(6), similarity="gamma", shrinkage="fixed", shrinkage_amount=0.0)


def test_every_similarity_encodes_rows_one_by_one_and_is_kept_as_arrays():
    x, y = rows(60, 6, 0) + 1, rows(70, 9, 1)
    for kind in SIMILARITIES:
        for standardise in (False, True):
            run = with_params(x, y, Pairs.by_row(30), similarity=kind, standardise=standardise)
            for v, out, encode in ((x, run.x, run.encode_x), (y, run.y, run.encode_y)):
                torch.testing.assert_close(encode(v[5:6])[0], out[5], rtol=1e-4, atol=1e-4)
                arrays = encoder_arrays("encode_x", encode)
                assert arrays and all(t.dtype == torch.float32 for t in arrays.values())
                torch.testing.assert_close(encoder_of("encode_x", arrays)(v), out, rtol=0, atol=0)


@pytest.mark.parametrize("choose", ["all", "random", "kmeans"])
def test_the_kernel_is_that_of_the_operations_with_the_ridges_told(choose):
    from relcore.ops.similarity import KernelLeftOut, ridge_of

    x, y = rows(80, 6, 0), rows(80, 6, 0) @ rows(6, 8, 1) + 2
    run = with_params(x, y, Pairs.by_row(40), similarity="kernel", choose=choose, count=9)
    assert set(run.chosen) == {"shrinkage_amount", "kernel_ridge"} and run.chosen["kernel_ridge"] > 0
    assert run.x.shape == (80, 40 if choose == "all" else 9)
    mixture = torch.eye(40, dtype=torch.float64) if choose == "all" else run.mixture.double()
    for v, out, encode in ((x, run.x, run.encode_x), (y, run.y, run.encode_y)):
        assert isinstance(encode, Kernelled) and encode.points.shape[0] == 40
        known = KernelLeftOut(v[:40], ridge_of(run.chosen["shrinkage_amount"]))
        want = known.similarity(mixture, run.chosen["kernel_ridge"])(v)
        # the shrinkage told is rounded, and arrays are float32
        torch.testing.assert_close(out, want, rtol=1e-2, atol=1e-2 * float(want.abs().max()))
    given = with_params(x, y, Pairs.by_row(40), similarity="kernel", choose=choose, count=9, kernel_ridge=0.7)
    assert set(given.chosen) == {"shrinkage_amount"}


def test_the_kernel_takes_so_many_seeds_and_no_more():
    message = f"takes at most {KERNEL_SEEDS:,} of them, got {KERNEL_SEEDS + 1:,}; take fewer, or the similarity wip"
    with pytest.raises(InputError, match=message):
        method("relative", similarity="kernel").check(10_000, 10_000, 5, 5, KERNEL_SEEDS + 1)
    method("relative", similarity="kernel").check(10_000, 10_000, 5, 5, KERNEL_SEEDS)
