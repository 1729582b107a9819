"""Costs by way of anchors against their definitions written out, and against POT."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist, jensenshannon
from scipy.special import softmax

from relcore.ops import anchor_costs, sinkhorn


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def data():
    return drawn(23, 6), drawn(17, 9, seed=1), drawn(11, 6, seed=2), drawn(11, 9, seed=3)


def test_bridge_goes_through_the_best_anchor(data):
    x, y, ax, ay = (t.double().numpy() for t in data)
    there, back = cdist(x, ax, "cosine"), cdist(y, ay, "cosine")
    there, back = there / np.median(there), back / np.median(back)
    wanted = (there[:, None] + back[None]).min(2)
    np.testing.assert_allclose(torch.cat(list(anchor_costs.bridge(*data))), wanted, atol=2e-5)


def test_keypoint_is_the_divergence_of_the_relations(data):
    """SciPy gives the root of the divergence."""
    x, y, ax, ay = (t.double().numpy() for t in data)
    relations = []
    for v, a in ((x, ax), (y, ay)):
        d = 2 * cdist(v, a, "cosine")
        relations.append(softmax(-2 * d / d.max() / 0.1, axis=1))
    wanted = [[jensenshannon(p, q) ** 2 for q in relations[1]] for p in relations[0]]
    np.testing.assert_allclose(torch.cat(list(anchor_costs.keypoint(*data, 0.1))), wanted, atol=2e-5)


@pytest.mark.parametrize("make", [anchor_costs.bridge, anchor_costs.keypoint])
def test_parts_join_to_the_same_matrix(data, make, monkeypatch):
    whole = torch.cat(list(make(*data)))
    monkeypatch.setattr(anchor_costs, "TILE", 100)
    parts = list(make(*data))
    assert len(parts) > 1
    torch.testing.assert_close(torch.cat(parts), whole)


@pytest.mark.parametrize("shape", [(5, 8), (8, 5), (1, 3)])
def test_any_matrix_is_a_cost(shape):
    matrix = drawn(*shape).abs()
    torch.testing.assert_close(anchor_costs.from_matrix(matrix).dense().float(), matrix)


def test_gromov_gradient_is_that_of_pot():
    ot = pytest.importorskip("ot")
    inner = [torch.cdist(v, v).double() for v in (drawn(9, 3), drawn(7, 4, seed=1))]
    plan = sinkhorn.solve(sinkhorn.Problem(sinkhorn.dot(drawn(9, 2), drawn(7, 2)), 1.0)).coupling.dense().double()
    parts = ot.gromov.init_matrix(*inner, plan.sum(1), plan.sum(0), "square_loss")
    wanted = ot.gromov.gwggrad(*parts, plan)
    torch.testing.assert_close(anchor_costs.gromov_gradient(*inner, plan), wanted)
