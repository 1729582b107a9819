"""Learned mixtures: each loss against its definition, gradients against float64, and what training must reach."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.cross_decomposition import CCA
from sklearn.linear_model import Ridge

from relcore.ops import param
from relcore.ops.param import Support, Training, Weights, correlation, generalised_cca, one_row_each
from relcore.ops.similarity import LeftOut, fit, spectrum


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def start(m: int, count: int) -> torch.Tensor:
    """Anchors that are averages of consecutive rows."""
    mixture = torch.zeros(m, count, dtype=torch.float64)
    mixture[torch.arange(count) * m // count, torch.arange(count)] = 1
    return mixture / mixture.sum(1, keepdim=True)


def spaces(count: int = 120, seed: int = 0, noise: float = 0.5) -> list[torch.Tensor]:
    """Three spaces of 8, 10, 12 dimensions that share four directions, each under an affine map of its own."""
    g = torch.Generator().manual_seed(seed)
    shared = torch.randn(count, 4, generator=g, dtype=torch.float64)
    out = []
    for d in (8, 10, 12):
        own = noise * torch.randn(count, d - 4, generator=g, dtype=torch.float64)
        linear = torch.randn(d, d, generator=torch.Generator().manual_seed(d), dtype=torch.float64)
        out.append(torch.cat([shared, own], 1) @ linear + 3)
    return out


def white(v: torch.Tensor, ridge: float = 0.01) -> torch.Tensor:
    return fit("wip", v, ridge=ridge).white(v)


def test_coverage_is_soft_k_means():
    rows, anchors = randn(20, 5), randn(4, 5, seed=1)
    distance = ((rows[:, None] - anchors[None]) ** 2).sum(2) / 5
    share = (-distance / 0.3).softmax(1)
    torch.testing.assert_close(param.coverage(rows, anchors, 0.3), (share * distance).sum(1).mean())
    hard = param.coverage(rows, anchors, 1e-6)
    torch.testing.assert_close(hard, distance.min(1).values.mean())


@pytest.mark.parametrize(("m", "d"), [(4, 9), (9, 4), (5, 5)])
def test_orthogonality_is_the_mean_squared_cosine_of_two_anchors(m, d):
    anchors = randn(m, d)
    unit = anchors / anchors.norm(dim=1, keepdim=True)
    cosines = (unit @ unit.T)[~torch.eye(m, dtype=torch.bool)]
    torch.testing.assert_close(param.orthogonality(anchors), (cosines**2).mean() * min(m, d))
    assert param.orthogonality(torch.eye(max(m, d))[:m, :d].double() + 1e-9).item() == pytest.approx(
        0 if m <= d else param.orthogonality(torch.eye(max(m, d))[:m, :d].double() + 1e-9).item(), abs=1e-6
    )


def test_more_anchors_than_dimensions_cannot_be_orthogonal_but_reach_welchs_bound():
    m, d = 3, 2
    angles = torch.arange(m) * math.pi / m  # equiangular lines
    frame = torch.stack([angles.cos(), angles.sin()], 1).double()
    assert param.orthogonality(frame).item() == pytest.approx((m - d) / (m - 1), abs=1e-6)
    assert param.orthogonality(randn(m, d)).item() > (m - d) / (m - 1)


def test_length_is_nothing_at_the_length_aimed_at():
    anchors = randn(6, 9)
    anchors = anchors / anchors.norm(dim=1, keepdim=True) * 0.5 * 3
    assert param.length(anchors, 0.5).item() == pytest.approx(0, abs=1e-12)
    assert param.length(2 * anchors, 0.5).item() == pytest.approx(1)
    assert param.length(0 * anchors, 0.5).item() == pytest.approx(1)


def test_infonce_is_cross_entropy_both_ways():
    a, b = randn(7, 5), randn(7, 5, seed=1)
    a1, b1 = (v / v.norm(dim=1, keepdim=True) for v in (a, b))
    p = a1 @ b1.T / 0.2
    want = -(p.log_softmax(1).diagonal().mean() + p.log_softmax(0).diagonal().mean()) / 2
    torch.testing.assert_close(param.infonce(a, b, 0.2), want)
    torch.testing.assert_close(param.infonce(3 * a, b, 0.2), want)


def test_a_row_left_out_is_seen_as_by_a_fit_without_it():
    v = spaces(40)[0]
    mixture = torch.rand(5, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64).softmax(1)
    ridge = 0.05
    rows = torch.tensor([0, 7, 39])
    support = Support.of(white(v, ridge))
    seen = support.relative(mixture.float(), mixture.float() @ support.rows, rows) / 39
    alpha = ridge * spectrum(v).scale * 39
    for i, row in enumerate(rows.tolist()):
        rest = np.delete(np.arange(40), row)
        model = Ridge(alpha=alpha).fit(v[rest].numpy(), mixture.T[rest].numpy())
        want = model.predict(v[row : row + 1].numpy())[0] - mixture.T[rest].numpy().mean(0)
        np.testing.assert_allclose(seen[i], want, atol=1e-6)


@pytest.mark.parametrize("left_out", [True, False])
def test_the_losses_of_a_step_are_those_of_their_definitions(left_out):
    supports = [white(v) for v in spaces(30)[:3]]
    training = Training(
        supports,
        start(5, 30),
        steps=1,
        generator=torch.Generator().manual_seed(0),
        weights=Weights(1.5, 0.2, 0.3, 0.7),
        batch=99,
        left_out=left_out,
    )
    mixture = training.mixture
    (found,) = training
    anchors = [mixture @ s for s in supports]
    seen = []
    for s, a in zip(supports, anchors, strict=True):
        h = (s**2).sum(1, keepdim=True) / 29 + 1 / 30
        own = mixture.T - 1 / 30
        seen.append((s @ a.T - 29 * h * own) / (1 - h) + own if left_out else s @ a.T)
    coverage = sum(param.coverage(s, a, 0.1) for s, a in zip(supports, anchors, strict=True)) / 3
    orthogonality = sum(map(param.orthogonality, anchors)) / 3
    length = sum(param.length(a, 0.5) for a in anchors) / 3
    nce = sum(param.infonce(seen[i], seen[j], 0.1) for i, j in ((0, 1), (0, 2), (1, 2))) / 3
    assert found.step == 1
    for name, want in (("coverage", coverage), ("orthogonality", orthogonality), ("length", length), ("infonce", nce)):
        assert getattr(found, name) == pytest.approx(float(want), rel=1e-4), name
    total = 1.5 * coverage + 0.2 * orthogonality + 0.3 * length + 0.7 * nce
    assert found.total == pytest.approx(float(total), rel=1e-4)


def test_the_mixture_is_one_of_weights_and_descends():
    supports = [white(v) for v in spaces(120)[:2]]
    training = Training(supports, start(6, 120), steps=60, generator=torch.Generator().manual_seed(0), batch=120)
    losses = []
    for losses_now in training:
        losses.append(losses_now.total)
        assert training.done == losses_now.step
    mixture = training.mixture
    assert mixture.shape == (6, 120) and mixture.dtype == torch.float64
    assert float(mixture.min()) >= 0
    torch.testing.assert_close(mixture.sum(1), torch.ones(6, dtype=torch.float64))
    assert losses[-1] < 0.8 * losses[0]


def test_the_start_is_the_start_and_one_seed_gives_one_result():
    supports = [white(v) for v in spaces(60)[:2]]
    runs = []
    for _ in range(2):
        training = Training(supports, start(4, 60), steps=10, generator=torch.Generator().manual_seed(5), gain=9.0)
        inside = (training.mixture * (start(4, 60) > 0)).sum(1)
        assert float(inside.min()) > 0.99
        assert [s.step for s in training] == list(range(1, 11))
        runs.append(training.mixture)
    torch.testing.assert_close(*runs, rtol=0, atol=0)


def test_one_space_has_no_infonce():
    training = Training([white(spaces(60)[0])], start(4, 60), steps=3, generator=torch.Generator().manual_seed(0))
    assert [s.infonce for s in training] == [0.0] * 3


def found_by(mixture: torch.Tensor, support: list[torch.Tensor], rows: list[torch.Tensor]) -> float:
    """Share of rows whose partner in the second space is nearest, by WIP."""
    a, b = (
        torch.nn.functional.normalize(fit("wip", s, ridge=1e-4)(r, mixture @ s), dim=1)
        for s, r in zip(support, rows, strict=True)
    )
    return float(((a @ b.T).argmax(1) == torch.arange(len(a))).double().mean())


def test_learning_on_two_spaces_helps_a_third_that_had_no_part():
    """Algorithm 1: the held-out space has only its own rows of the support. Planted affine maps, noise of its own."""
    every = spaces(400)
    support, rest = [v[:200] for v in every], [v[200:] for v in every]
    before = start(8, 200)
    supports = [white(s, 1e-4) for s in support[:2]]
    training = Training(supports, before, steps=150, generator=torch.Generator().manual_seed(0))
    for _ in training:
        pass
    closed, _ = generalised_cca(supports, 8)
    figures = [found_by(m, support[1:], rest[1:]) for m in (before, training.mixture, closed)]
    assert figures[1] > 3 * figures[0]
    assert figures[2] > 0.9


def test_nan_stops_the_training_at_the_last_good_step():
    supports = [white(v) for v in spaces(60)[:2]]
    training = Training(supports, start(4, 60), steps=10, generator=torch.Generator().manual_seed(0), batch=10)
    steps = iter(training)
    next(steps)
    good = training.mixture
    training.supports[1].rows[:] = math.nan
    with pytest.raises(FloatingPointError, match="loss became nan at step 2"):
        next(steps)
    assert training.done == 1
    torch.testing.assert_close(training.mixture, good, rtol=0, atol=0)


def test_supports_that_are_not_parallel_are_refused():
    v = spaces(60)
    for supports, mixture in (
        ([white(v[0]), white(v[1][:50])], start(4, 60)),
        ([white(v[0])], start(4, 50)),
        ([], None),
    ):
        with pytest.raises(ValueError, match="one support set in every space"):
            Training(supports, torch.zeros(1, 1) if mixture is None else mixture, steps=1, generator=torch.Generator())
    with pytest.raises(ValueError, match="one support set in every space"):
        generalised_cca([white(v[0]), white(v[1][:50])], 4)


def test_canonical_scores_of_two_spaces_are_those_of_scikit_learn():
    x, y = spaces(300, noise=1.0)[:2]
    mixture, shared = generalised_cca([white(x, 0), white(y, 0)], 4)
    assert float(mixture.min()) >= 0
    torch.testing.assert_close(mixture.sum(1), torch.ones(4, dtype=torch.float64))
    # the mean of both sides' scores, and mixtures less 1 / K, span one space
    model = CCA(4, scale=False, max_iter=5000, tol=1e-12).fit(x.numpy(), y.numpy())
    a, b = model.transform(x.numpy(), y.numpy())
    a, b = (v / v.std(0) for v in (a, b))
    theirs, ours = (np.linalg.qr(v)[0] for v in (a + b, (mixture - 1 / 300).T.numpy()))
    assert np.linalg.svd(theirs.T @ ours, compute_uv=False).min() > 1 - 1e-4
    assert float(shared.min()) > 0.95  # shared directions, without noise of their own, and 17 others
    rest = generalised_cca([white(x, 0), white(y, 0)], 12)[1][4:]
    assert float(rest.max()) < 0.35


def test_canonical_anchors_have_the_directions_of_the_scores():
    supports = [white(v) for v in spaces(80)]
    mixture, _ = generalised_cca(supports, 5)
    weights = mixture - 1 / 80
    for s in supports:
        anchors, signed = mixture @ s, weights @ s
        torch.testing.assert_close(anchors, signed, rtol=1e-8, atol=1e-10)


def test_few_rows_allow_few_directions():
    supports = [white(v[:6]) for v in spaces(80)]
    mixture, shared = generalised_cca(supports, 50)
    assert len(mixture) == len(shared) <= 5 and torch.isfinite(mixture).all()


def test_anchors_that_are_rows():
    assert one_row_each([2, 0], 3).tolist() == [[0, 0, 1], [1, 0, 0]]
    mixture = torch.tensor([[0.25, 0.25, 0.25, 0.25], [1.0, 0, 0, 0]])
    assert param.effective_rows(mixture) == pytest.approx(2.5)


# ---------------------------------------------------------------- many spaces


@pytest.mark.parametrize("how", param.WAYS)
def test_spaces_share_anchors_and_one_that_did_not_train_attaches(how):
    every = spaces(400)
    support, rest = [v[:200] for v in every], [v[200:] for v in every]
    g = torch.Generator().manual_seed(0)
    more = {"steps": 100} if how == "param" else {}
    shared = param.share(support[:2], how, anchors=12, generator=g, **more)
    assert shared.agreement.above_chance > 10 and float(shared.mixture.min()) >= 0
    torch.testing.assert_close(shared.mixture.sum(1), torch.ones(len(shared.mixture), dtype=torch.float64))
    seen = []
    for s, r in zip(support, rest, strict=True):
        similarity, anchors = param.attach(s, shared)
        torch.testing.assert_close(anchors, shared.mixture @ s)
        seen.append(torch.nn.functional.normalize(similarity(r, anchors), dim=1))
    hits = [float(((seen[i] @ seen[2].T).argmax(1) == torch.arange(200)).double().mean()) for i in (0, 1)]
    assert min(hits) > 0.1  # 0.005 by chance
    with pytest.raises(ValueError, match="199 support rows, wanted 200"):
        param.attach(support[2][:199], shared)


def test_one_space_alone_shares_too_and_the_held_out_space_changes_nothing():
    v = spaces(120)
    out = [
        param.share([v[0]], how, anchors=6, ridge=0.01, generator=torch.Generator().manual_seed(0), **more).mixture
        for how, more in (("param", {"steps": 5}), ("cca", {}), ("kmeans", {}))
    ]
    assert [len(m) for m in out] == [6, 6, 6]
    # principal directions: the scores of the widest ones, by the whitened support
    u = torch.linalg.svd(white(v[0], 0.01), full_matrices=False)[0][:, :6]
    overlap = torch.linalg.svdvals(u.T @ torch.linalg.qr((out[1] - 1 / 120).T)[0])
    assert float(overlap.min()) > 0.999


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"how": "best"}, "no way 'best'"),
        ({"anchors": 0}, "1 to K anchors; got .60, 60. rows and 0 anchors"),
        ({"anchors": 61}, "1 to K anchors; got .60, 60. rows and 61 anchors"),
        ({"supports": [spaces(60)[0], spaces(60)[1][:50]]}, "one support set in every space"),
        ({"supports": []}, "one support set in every space"),
        ({"supports": [spaces(60)[0]]}, "nobody to agree on a ridge with"),
    ],
)
def test_what_cannot_be_shared_is_refused(params, message):
    given = {"supports": spaces(60)[:2], "how": "kmeans", "anchors": 5} | params
    with pytest.raises(ValueError, match=message):
        param.share(given.pop("supports"), given.pop("how"), generator=torch.Generator(), **given)


def test_averages_of_clusters_are_of_planted_ones():
    g = torch.Generator().manual_seed(0)
    label = torch.arange(60) % 4
    rows = 20 * torch.randn(4, 5, generator=g)[label] + torch.randn(60, 5, generator=g)
    mixture = param.cluster_averages(rows, 4, g)
    means = torch.stack([rows[label == k].mean(0) for k in range(4)])
    assert float(torch.cdist(mixture.float() @ rows, means).min(1).values.max()) < 1e-4


@pytest.mark.parametrize("ridge", [1e-3, 0.3])
def test_directions_that_two_spaces_see_with_opposite_signs_are_not_shared(ridge):
    """More anchors than directions: MAXVAR's last scores are differences of what the two hold, of correlation -1.

    Left out, both sides predict such a score as the opposite of what it is, and agree in that.
    """
    g = torch.Generator().manual_seed(0)
    z = torch.randn(300, 8, generator=g, dtype=torch.float64) * torch.logspace(0, -1.5, 8)
    sides = []
    for d in (8, 10):
        noise = 0.02 * torch.randn(300, d, generator=g, dtype=torch.float64)
        sides.append(LeftOut(z @ torch.randn(8, d, generator=g, dtype=torch.float64) + noise).white(ridge))
    mixture, found = generalised_cca(sides, 18)
    used = mixture[found > 0] - mixture[found > 0].mean(1, keepdim=True)
    assert 5 <= len(used) <= 8
    assert (correlation(*(v @ (v.T @ used.T) for v in sides)) > 0).all()
