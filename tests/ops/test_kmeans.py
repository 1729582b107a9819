"""k-means against scikit-learn's, and its edges."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans

from relcore.ops.kmeans import kmeans


def blobs(n: int, k: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    label = np.arange(n) % k
    return 8 * rng.normal(size=(k, 5))[label] + rng.normal(size=(n, 5)) + 100, label


def test_planted_clusters_are_found():
    v, label = blobs(300, 6, 0)
    centroids, found = kmeans(v, 6, np.random.default_rng(0), starts=5)
    assert len({*zip(label, found, strict=True)}) == 6  # one to one
    for k in range(6):
        np.testing.assert_allclose(centroids[k], v[found == k].mean(0), atol=1e-9)


def test_the_inertia_is_that_of_scikit_learn():
    v = np.random.default_rng(1).normal(size=(400, 8))
    centroids, label = kmeans(v, 20, np.random.default_rng(0), starts=4)
    ours = ((v - centroids[label]) ** 2).sum()
    assert ours < 1.03 * KMeans(20, n_init=4, random_state=0).fit(v).inertia_
    # it has come to rest: every row is with its nearest centroid
    np.testing.assert_array_equal(label, ((v[:, None] - centroids[None]) ** 2).sum(2).argmin(1))


@pytest.mark.parametrize("count", [1, 3, 7, 10])
def test_no_cluster_is_empty_even_among_equal_rows(count):
    v = np.repeat(np.eye(3), [8, 1, 1], axis=0)
    centroids, label = kmeans(v, count, np.random.default_rng(0))
    assert centroids.shape == (count, 3) and np.bincount(label, minlength=count).min() >= 1


def test_one_seed_gives_one_result_and_counts_are_checked():
    v, _ = blobs(100, 4, 2)
    first, second = (kmeans(v, 5, np.random.default_rng(3)) for _ in range(2))
    np.testing.assert_array_equal(first[0], second[0])
    for count in (0, 101):
        with pytest.raises(ValueError, match="wanted 1 to 100"):
            kmeans(v, count, np.random.default_rng(0))
