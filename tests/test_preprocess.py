"""Preprocessing: fitted once, applied to vectors never seen."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from relcore import preprocess
from relcore.errors import InputError

V = torch.from_numpy((np.random.default_rng(0).normal(size=(300, 8)) * np.arange(1, 9) + 5).astype(np.float32))


def test_centre_then_unit():
    _, out = preprocess.fit(("center", "unit"), V)
    expected = V - V.mean(0)
    torch.testing.assert_close(out, expected / expected.norm(dim=1, keepdim=True))


def test_whitened_rows_have_the_identity_as_covariance():
    _, out = preprocess.fit(("center", "whiten"), V)
    torch.testing.assert_close(out.T @ out / len(V), torch.eye(8), atol=1e-3, rtol=0)


def test_topk_removes_the_leading_principal_directions():
    _, out = preprocess.fit(("center", "top2"), V)
    leading = torch.from_numpy(PCA(2).fit(V.numpy()).components_)
    assert (out @ leading.T).abs().max() < 1e-3
    assert torch.linalg.matrix_rank(out, atol=1e-2) == 6


def test_vectors_never_seen_go_through_the_fitted_numbers():
    fitted, out = preprocess.fit(("center", "whiten", "unit"), V)
    torch.testing.assert_close(fitted(V[:10]), out[:10])
    torch.testing.assert_close(fitted(V[:1]), out[:1])


def test_none_leaves_everything_as_it_is():
    fitted, out = preprocess.fit(preprocess.parse_steps("none"), V)
    assert out is V and fitted(V) is V


def test_a_row_that_becomes_zero_is_named():
    v = torch.tensor([[1.0, 0], [3, 0], [2, 0]])
    with pytest.raises(InputError, match="position 2"):
        preprocess.fit(("center", "unit"), v)


@pytest.mark.parametrize("text", ["centre", "top", "topx", "unit,foo"])
def test_an_unknown_step_is_refused_with_the_choices(text):
    with pytest.raises(InputError, match="choose from"):
        preprocess.parse_steps(text)
