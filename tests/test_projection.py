"""Maps by principal components, against scikit-learn."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from relcore.projection import centred_unit, fit_pca

RNG = np.random.default_rng(0)


def test_coordinates_are_those_of_scikit_learn_up_to_sign():
    v = (RNG.normal(size=(500, 20)) * np.linspace(3, 0.2, 20)).astype(np.float32)
    fitted = fit_pca(v, block=128)
    peer = PCA(2).fit(v)
    theirs = peer.transform(v)
    ours = fitted(v)
    for j in range(2):
        sign = np.sign(ours[0, j] * theirs[0, j])
        np.testing.assert_allclose(ours[:, j], sign * theirs[:, j], atol=2e-4)
    np.testing.assert_allclose(fitted.share, peer.explained_variance_ratio_, rtol=1e-4)


def test_the_sign_is_fixed_by_the_largest_loading():
    v = RNG.normal(size=(100, 6)).astype(np.float32)
    axes = fit_pca(v).axes
    assert all(axes[np.abs(axes[:, j]).argmax(), j] > 0 for j in range(2))


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_few_rows_or_one_dimension_still_have_a_map(n, d):
    v = RNG.normal(size=(n, d)).astype(np.float32)
    xy = fit_pca(v)(v)
    assert xy.shape == (n, 2) and np.isfinite(xy).all()


def test_centred_unit_rows():
    v = RNG.normal(size=(50, 4)).astype(np.float32) + 7
    out = centred_unit(v)
    np.testing.assert_allclose(np.linalg.norm(out, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(out * np.linalg.norm(v - v.mean(0), axis=1)[:, None], v - v.mean(0), atol=1e-4)
