"""Similarities against their definitions, and what each of them does not see."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.metrics.pairwise import cosine_similarity, euclidean_distances
from sklearn.preprocessing import KernelCenterer

from relcore.ops.relative import Moments
from relcore.ops.similarity import (
    KERNEL_GRID,
    KINDS,
    KernelLeftOut,
    LeftOut,
    agreed_ridge,
    fit,
    gaussian,
    leave_one_out,
    ridge_of,
    spectrum,
)


def rows(n: int, d: int, seed: int, dtype=torch.float64) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    return (torch.randn(n, d, generator=g, dtype=torch.float64) @ torch.randn(d, d, generator=g).double() + 2).to(dtype)


def mix(m: int, count: int) -> torch.Tensor:
    """Weights of m anchors, far from even."""
    w = torch.rand(m, count, generator=torch.Generator().manual_seed(1), dtype=torch.float64) ** 4
    return w / w.sum(1, keepdim=True)


def affine(d: int, condition: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """An invertible map of a condition number, singular values spread evenly on a log scale, and a shift."""
    g = torch.Generator().manual_seed(seed)
    q1, q2 = (torch.linalg.qr(torch.randn(d, d, generator=g, dtype=torch.float64))[0] for _ in range(2))
    values = torch.logspace(0, float(np.log10(condition)), d, dtype=torch.float64)
    return q1 * values @ q2, 5 * torch.randn(d, generator=g, dtype=torch.float64)


def test_each_kind_is_what_it_says():
    support, v, a = rows(60, 6, 0), rows(40, 6, 1), rows(9, 6, 2)
    mean, cov = support.mean(0).numpy(), np.cov(support.numpy().T)
    x, y = v.numpy(), a.numpy()
    moment = support.numpy().T @ support.numpy() / 60
    values, vectors = np.linalg.eigh(moment)
    half = (vectors * (values + 0.3 * values.mean()) ** -0.75) @ vectors.T
    inverse = np.linalg.inv(cov + 0.3 * np.trace(cov) / 6 * np.eye(6))
    root = np.linalg.cholesky(inverse)
    wanted = {
        "cosine": cosine_similarity(x, y),
        "centred": cosine_similarity(x - mean, y - mean),
        "euclidean": -euclidean_distances(x, y),
        "wip": (x - mean) @ inverse @ (y - mean).T,
        "whitened": cosine_similarity((x - mean) @ root, (y - mean) @ root),
        "mahalanobis": -cdist(x, y, "mahalanobis", VI=inverse),
        "gamma": x @ half @ y.T,
    }
    assert set(wanted) == set(KINDS)
    for kind, want in wanted.items():
        found = fit(kind, support, ridge=0.3, gamma=1.5)
        out = found(v, a)
        assert out.dtype == torch.float32 and out.shape == (40, 9)
        np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())
        np.testing.assert_array_equal(out, found(v, a, block=7))  # chunks change nothing
        np.testing.assert_allclose(found(v[3:4], a)[0], out[3], rtol=1e-5, atol=1e-6)  # one row as among others


def test_affine_maps_are_the_similarities_or_the_cosines_times_the_norm():
    support, v, a = rows(60, 6, 0), rows(40, 6, 1), rows(9, 6, 2)
    for kind in ("cosine", "centred", "wip", "whitened", "gamma"):
        s = fit(kind, support, ridge=0.1)
        shift, matrix = s.affine(a)
        out = (v - shift) @ matrix
        if s.is_cosine:
            out = out / s.white(v).norm(dim=1, keepdim=True)
        np.testing.assert_allclose(out, s(v, a), rtol=1e-5, atol=1e-5)
    for kind in ("euclidean", "mahalanobis"):
        with pytest.raises(ValueError, match="no linear function"):
            fit(kind, support).affine(a)


def test_gamma_has_the_cosines_of_the_profile_of_both_sides():
    support, v = rows(50, 6, 0, torch.float32), rows(30, 6, 1, torch.float32)
    profile = Moments(support, support).profile(1.5, 0.7)
    one = fit("gamma", support, gamma=1.5, ridge=0.7)(v, support)
    np.testing.assert_allclose(cosine_similarity(one), cosine_similarity(v @ profile.map_x), atol=1e-4)


@pytest.mark.parametrize("condition", [1.0, 10.0, 100.0, 1e4])
def test_without_a_ridge_wip_sees_no_affine_map(condition):
    """The paper's invariance, exact: nothing of an invertible map of rows, support and anchors is left."""
    support, v, mixture = rows(80, 12, 0), rows(30, 12, 1), mix(7, 80)
    linear, shift = affine(12, condition, 3)
    sides = [(support, v), (support @ linear + shift, v @ linear + shift)]
    # not in float32, the type of what is returned: in the coordinates themselves
    one, other = (fit("wip", s) for s, _ in sides)
    a, b = (f.white(r) @ f.white(mixture @ s).T for f, (s, r) in zip((one, other), sides, strict=True))
    assert float((a - b).norm() / a.norm()) < 1e-14 * condition**2 + 1e-10
    for kind in ("wip", "whitened", "mahalanobis"):
        torch.testing.assert_close(*(fit(kind, s)(r, mixture @ s) for s, r in sides), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(
        *(KernelLeftOut(s, 0.0).similarity(mixture, 0.1)(r) for s, r in sides), rtol=1e-4, atol=1e-5
    )


def drift(condition: float, shrinkage: float) -> float:
    """Squared difference between a space and its affine copy over the variance of the similarities."""
    support, v, mixture = rows(80, 12, 0), rows(200, 12, 1), mix(7, 80)
    linear, shift = affine(12, condition, 3)
    a, b = (
        fit("wip", s, ridge=ridge_of(shrinkage))(r, mixture @ s).double()
        for s, r in ((support, v), (support @ linear + shift, v @ linear + shift))
    )
    return float(((a - b) ** 2).mean() / a.var(0).mean())


def test_a_ridge_breaks_the_invariance_the_more_the_less_even_the_map():
    assert drift(1, 0.1) < 1e-10  # rotation and shift
    assert 1e-10 < drift(3, 0.01) < drift(10, 0.01) < drift(100, 0.01)
    assert drift(10, 1e-6) < drift(10, 1e-4) < drift(10, 1e-2)
    assert drift(100, 0.01) > 0.05  # "slightly", as the paper has it, this is not


@pytest.mark.parametrize("kind", KINDS)
def test_rotation_shift_and_scale_as_far_as_each_kind_ignores_them(kind):
    support, v, mixture = rows(80, 8, 0), rows(30, 8, 1), mix(5, 80)
    turn = torch.linalg.qr(rows(8, 8, 9))[0]
    scale = 1.0 if kind == "euclidean" else 3.7
    shift = 0.0 if kind in ("cosine", "gamma") else 4.0
    out = [
        fit(kind, s, ridge=0.2)(r, mixture @ s)
        for s, r in ((support, v), (scale * support @ turn + shift, scale * v @ turn + shift))
    ]
    factor = scale if kind == "gamma" else 1.0  # gamma 1: |v| |a| / |v|
    torch.testing.assert_close(factor * out[0], out[1], rtol=1e-4, atol=1e-4)


def test_wip_is_a_regression_of_the_weights_of_the_anchors():
    """WIP = (K - 1) times what least squares, or a ridge, predicts of the centred weights (param.md, 1.7)."""
    support, v = rows(70, 9, 0), rows(30, 9, 1)
    mixture = mix(6, 70)
    target = (mixture.T - 1 / 70).numpy()
    plain = LinearRegression().fit(support, target).predict(v)
    np.testing.assert_allclose(fit("wip", support)(v, mixture @ support), 69 * plain, rtol=1e-4, atol=1e-5)
    s = spectrum(support)
    with_ridge = Ridge(alpha=0.2 * s.scale * 69).fit(support, target).predict(v)
    np.testing.assert_allclose(
        fit("wip", support, ridge=0.2)(v, mixture @ support), 69 * with_ridge, rtol=1e-4, atol=1e-5
    )


def test_directions_the_support_has_no_part_in_change_nothing():
    """Fewer rows than dimensions: what is left out of the metric has no product with a mixture of the rows."""
    support, v = rows(10, 25, 0), rows(30, 25, 1)
    mixture = mix(4, 10)
    cov = np.cov(support.numpy().T)
    full = np.linalg.inv(cov + 0.05 * np.trace(cov) / 25 * np.eye(25))
    centred = (v - support.mean(0)).numpy()
    want = centred @ full @ (mixture @ support - support.mean(0)).numpy().T
    s = fit("wip", support, ridge=0.05)
    assert s.rank == 9 and s.root.shape == (25, 9)
    np.testing.assert_allclose(s(v, mixture @ support), want, rtol=1e-4, atol=1e-4)


def test_the_spectrum_is_that_of_numpy_either_way():
    for count in (8, 50):
        v = rows(count, 20, 4)
        s = spectrum(v)
        want = np.linalg.eigvalsh(np.cov(v.numpy().T))[::-1][: s.rank]
        assert s.rank == min(count - 1, 20)
        np.testing.assert_allclose(s.values, want, rtol=1e-8, atol=1e-8 * want[0])
        np.testing.assert_allclose(s.axes.T @ s.axes, np.eye(s.rank), atol=1e-8)
        assert s.scale == pytest.approx(np.trace(np.cov(v.numpy().T)) / 20)


def test_leave_one_out_is_that_of_refitting_without_each_row():
    v = rows(30, 6, 5)
    mixture = mix(3, 30)
    ridge, found = leave_one_out(v, mixture, [0.05])
    target = mixture.T.numpy()
    alpha = 0.05 * spectrum(v).scale * 29
    errors = [
        Ridge(alpha=alpha).fit(np.delete(v.numpy(), i, 0), np.delete(target, i, 0)).predict(v[i : i + 1].numpy())[0]
        - target[i]
        for i in range(30)
    ]
    want = 1 - (np.array(errors) ** 2).sum(0) / ((target - target.mean(0)) ** 2).sum(0)
    assert ridge == 0.05
    # the mean is the hat matrix' own: leaving a row out moves it, which the leverage 1/K accounts for
    np.testing.assert_allclose(found, want, atol=1e-6)


def test_leave_one_out_tells_what_can_be_predicted():
    v = rows(300, 6, 6)
    sides = torch.stack([(v[:, 0] > v[:, 0].median()).double(), (v[:, 0] <= v[:, 0].median()).double()])
    shared = sides / sides.sum(1, keepdim=True)
    single = torch.zeros(2, 300, dtype=torch.float64)
    single[[0, 1], [10, 20]] = 1
    assert float(leave_one_out(v, shared)[1].mean()) > 0.4
    assert float(leave_one_out(v, single)[1].mean()) < 0.1
    uniform = torch.full((1, 300), 1 / 300, dtype=torch.float64)
    assert leave_one_out(v, uniform)[1].tolist() == [0.0]


def refitted(v: torch.Tensor, mixture: torch.Tensor, ridge: float) -> np.ndarray:
    """Weights of the anchors less their mean, as a ridge predicts them at each row when fitted without it."""
    x, target, alpha = v.numpy(), mixture.T.numpy(), ridge * spectrum(v).scale * (len(v) - 1)
    rest = [np.delete(np.arange(len(v)), i) for i in range(len(v))]
    out = [
        Ridge(alpha=alpha).fit(x[r], target[r]).predict(x[i : i + 1])[0] - target[r].mean(0) for i, r in enumerate(rest)
    ]
    return np.array(out)


def test_rows_left_out_are_predicted_as_by_refitting():
    v, mixture = rows(25, 6, 7), mix(4, 25)
    left_out = LeftOut(v)
    np.testing.assert_allclose(left_out.predict(mixture, 0.1), refitted(v, mixture, 0.1), atol=1e-8)
    every = torch.eye(25, dtype=torch.float64)
    np.testing.assert_allclose(left_out.predict(None, 0.1), refitted(v, every, 0.1), atol=1e-8)
    some = torch.tensor([3, 20])
    np.testing.assert_allclose(left_out.predict(None, 0.1, some), left_out.predict(every, 0.1)[some], atol=1e-12)
    np.testing.assert_allclose(left_out.white(0.1), fit("wip", v, ridge=0.1).white(v), atol=1e-8)


def noisy_pair(n: int, seed: int) -> list[torch.Tensor]:
    """Six shared directions, and twenty of a hundredth of their variance that each side has for itself."""
    g = torch.Generator().manual_seed(seed)
    shared = torch.randn(n, 6, generator=g)
    out = []
    for _ in range(2):
        turn = torch.linalg.qr(torch.randn(26, 26, generator=g))[0]
        out.append(torch.cat([shared, 0.1 * torch.randn(n, 20, generator=g)], 1) @ turn)
    return out


def test_the_agreed_ridge_is_large_where_small_directions_are_noise():
    x, y = noisy_pair(120, 0)
    agreement = agreed_ridge([x[:60], y[:60]])
    assert agreement.judged == 60 and agreement.mrr == max(agreement.found.values())
    assert agreement.ridge >= 0.1 and agreement.found[0.001] < agreement.mrr
    assert agreement.above_chance > 10

    def found(ridge):  # of rows that had no part
        a, b = (fit("wip", v[:60], ridge=ridge)(v[60:], v[:60]) for v in (x, y))
        return float((cosine_similarity(a, b).argmax(1) == np.arange(60)).mean())

    assert found(agreement.ridge) > found(0.001) + 0.1


def test_where_all_ridges_do_the_middle_one_is_taken_and_shuffled_rows_are_at_chance():
    x = rows(200, 30, 0)
    turned = x @ torch.linalg.qr(rows(30, 30, 1))[0]
    agreement = agreed_ridge([x, turned], grid=(0.1, 0.01, 0.001))
    assert agreement.ridge == 0.01 and agreement.mrr == 1.0
    shuffled = turned[torch.randperm(200, generator=torch.Generator().manual_seed(0))]
    for judged in (50, 200):
        agreement = agreed_ridge([x, shuffled], judged=judged)
        assert agreement.above_chance < 3.5 and max(agreement.found.values()) < 0.2  # at no ridge, however large


def test_three_spaces_agree_and_a_mixture_is_what_they_agree_by():
    x, y = noisy_pair(80, 1)
    z = noisy_pair(80, 1)[0].flip(1)
    assert agreed_ridge([x, y, z], mix(10, 80)).judged == 80


@pytest.mark.parametrize(
    ("change", "ridge", "message"),
    [
        (lambda v: v[:1], 0.1, "at least two rows"),
        (lambda v: torch.cat([v, torch.full((1, 6), torch.nan)]), 0.1, "row 30 holds NaN"),
        (lambda v: torch.ones(5, 6) * 0.1, 0.1, "all 5 rows are alike"),
        (lambda v: v[:6], 0.0, "6 rows span 5 of 6 dimensions"),
        (lambda v: torch.cat([v[:, :5], torch.full((30, 1), 0.1)], 1), 0.0, "column 5 is constant"),
        (lambda v: torch.cat([v[:, :5], v[:, :1]], 1), 0.0, "30 rows span 5 of 6 dimensions"),
    ],
)
def test_rows_without_a_covariance_to_invert_are_refused_in_words(change, ridge, message):
    with pytest.raises(ValueError, match=message):
        fit("wip", change(rows(30, 6, 0, torch.float32)), ridge=ridge)


def test_a_constant_column_needs_a_ridge_and_then_has_no_part():
    v = torch.cat([rows(30, 5, 0), torch.full((30, 1), 0.1, dtype=torch.float64)], 1)
    mixture = mix(3, 30)
    s = fit("wip", v, ridge=0.01)
    assert s.rank == 5
    moved = v.clone()
    moved[:, 5] += 1
    torch.testing.assert_close(s(v, mixture @ v), s(moved, mixture @ v))


def test_a_row_of_norm_0_has_cosine_0():
    v = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    assert fit("cosine", v)(v, v).tolist()[0] == [0.0, 0.0]
    assert fit("centred", torch.tensor([[1.0, 1.0], [3.0, 3.0]]))(torch.tensor([[2.0, 2.0]]), v).tolist() == [[0, 0]]


# ---------------------------------------------------------------- kernel WIP


def by_sklearn(support, v, mixture, white: float, ridge: float) -> np.ndarray:
    """Kernel WIP by numpy, scikit-learn's centring of a kernel, and its kernel ridge on the precomputed matrix."""
    k, d = support.shape
    mean, cov = support.mean(0).numpy(), np.cov(support.numpy().T)
    root = np.linalg.cholesky(np.linalg.inv(cov + white * np.trace(cov) / d * np.eye(d)))
    z, w = ((t.numpy() - mean) @ root for t in (support, v))
    gamma = 1 / (2 * (z**2).sum(1).mean())
    centre = KernelCenterer()
    inner = centre.fit_transform(np.exp(-gamma * cdist(z, z, "sqeuclidean")))
    cross = centre.transform(np.exp(-gamma * cdist(w, z, "sqeuclidean")))
    model = KernelRidge(alpha=ridge * np.trace(inner) / k, kernel="precomputed").fit(inner, mixture.T.numpy() - 1 / k)
    return (k - 1) * model.predict(cross)


@pytest.mark.parametrize("white", [0.0, 0.3])
@pytest.mark.parametrize("ridge", [0.01, 1.0])
def test_kernel_wip_is_scikit_learns_kernel_ridge_of_the_weights(white, ridge):
    support, v, mixture = rows(70, 9, 0), rows(30, 9, 1), mix(6, 70)
    known = KernelLeftOut(support, white)
    found = known.similarity(mixture, ridge)
    out = found(v)
    want = by_sklearn(support, v, mixture, white, ridge)
    assert out.dtype == torch.float32 and out.shape == (30, 6)
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-6 * np.abs(want).max())
    np.testing.assert_array_equal(out, found(v, block=7))  # chunks change nothing
    np.testing.assert_allclose(found(v[3:4])[0], out[3], rtol=1e-6)  # one row as among others
    every = torch.eye(70, dtype=torch.float64)
    np.testing.assert_allclose(known.similarity(None, ridge)(v), known.similarity(every, ridge)(v), atol=1e-6)


def test_a_kernel_so_wide_that_it_is_linear_makes_it_wip():
    """The kernel's first term beside a constant is 2 z z'; with small rows nothing else is left."""
    support, v, mixture = rows(70, 9, 0), rows(30, 9, 1), mix(6, 70)
    known = KernelLeftOut(support, 0.2)
    known.points, known.root = known.points * 1e-3, known.root * 1e-3
    kernel = gaussian(known.points, known.points)
    known.mean = kernel.mean(0)
    centred = kernel - known.mean[:, None] - known.mean + known.mean.mean()
    values, vectors = torch.linalg.eigh(centred)
    known.values, known.scores = values[-9:], vectors[:, -9:]
    want = fit("wip", support)(v, mixture @ support)
    np.testing.assert_allclose(known.similarity(mixture, 0.0)(v), want, rtol=1e-3, atol=5e-3)


def test_kernel_rows_left_out_are_predicted_as_by_refitting():
    """By brute force: the kernel centred anew on the others, its ridge as large as before."""
    v, mixture, ridge = rows(25, 6, 7), mix(4, 25), 0.1
    known = KernelLeftOut(v, 0.2)
    kernel, target = gaussian(known.points, known.points).numpy(), mixture.T.numpy()
    want = []
    for i in range(25):
        rest = np.delete(np.arange(25), i)
        centre = KernelCenterer()
        inner = centre.fit_transform(kernel[np.ix_(rest, rest)])
        weights = target[rest] - target[rest].mean(0)
        model = KernelRidge(alpha=ridge * known.scale, kernel="precomputed").fit(inner, weights)
        want.append(model.predict(centre.transform(kernel[i : i + 1, rest]))[0])
    np.testing.assert_allclose(known.predict(mixture, ridge), np.array(want), atol=1e-9)
    every = torch.eye(25, dtype=torch.float64)
    some = torch.tensor([3, 20])
    np.testing.assert_allclose(known.predict(None, ridge, some), known.predict(every, ridge)[some], atol=1e-12)
    chosen, fitted = leave_one_out(known, mixture, [ridge])
    errors = known.predict(mixture, ridge).numpy() - (target - target.mean(0)) * 25 / 24
    np.testing.assert_allclose(fitted, 1 - (errors**2).sum(0) / ((target - target.mean(0)) ** 2).sum(0), atol=1e-9)


def test_the_kernel_sees_what_no_linear_map_does():
    """Partners through a fold: y holds squares of what x holds, and only a kernel predicts them."""
    g = torch.Generator().manual_seed(0)
    z = torch.randn(500, 3, generator=g)
    x = z + 0.02 * torch.randn(500, 3, generator=g)
    y = torch.cat([z.abs() * 2, z[:, :1] * z[:, 1:], z.sin()], 1) + 0.02 * torch.randn(500, 8, generator=g)

    def found(a, b):
        return float((cosine_similarity(a, b).argmax(1) == np.arange(200)).mean())

    known = [LeftOut(v[:300]) for v in (x, y)]
    ridge = agreed_ridge(known).ridge
    linear = found(*(fit("wip", v[:300], ridge=ridge)(v[300:], v[:300]) for v in (x, y)))
    kernels = [KernelLeftOut(k, 0.01) for k in known]
    eta = agreed_ridge(kernels, grid=KERNEL_GRID).ridge
    assert found(*(k.similarity(None, eta)(v[300:]) for k, v in zip(kernels, (x, y), strict=True))) > linear + 0.1


def test_fewer_rows_than_dimensions_and_constant_columns_have_a_kernel_too():
    v, mixture = rows(10, 25, 0), mix(4, 10)
    out = KernelLeftOut(v, 0.1).similarity(mixture, 0.1)(v)
    assert torch.isfinite(out).all()
    flat = torch.cat([v, torch.full((10, 1), 0.1, dtype=torch.float64)], 1)
    turned = KernelLeftOut(flat @ torch.linalg.qr(rows(26, 26, 9))[0] + 3, 0.1 * 26 / 25)  # a ridge counts in tr / d
    again = turned.similarity(mixture, 0.1)(flat @ torch.linalg.qr(rows(26, 26, 9))[0] + 3)
    torch.testing.assert_close(out, again, rtol=1e-4, atol=1e-4)


def test_unknown_kinds_and_shrinkages_are_refused():
    with pytest.raises(ValueError, match="no similarity 'dot'; choose one of cosine"):
        fit("dot", rows(5, 3, 0))
    with pytest.raises(ValueError, match="shrinkage is 1"):
        ridge_of(1)
