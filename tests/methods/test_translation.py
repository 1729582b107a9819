"""Translation against numpy and scikit-learn, a planted affine map, and refitting without each seed."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import torch
from sklearn.linear_model import LinearRegression, RidgeCV
from sklearn.preprocessing import StandardScaler

from relcore import methods, runs
from relcore.errors import InputError
from relcore.methods.base import Linear
from relcore.methods.kept import Affine, encoder_arrays, encoder_of
from relcore.methods.translation import KINDS, Translation
from relcore.ops.translation import GRID, Regression, condition, inverse_projection, longest_prefix, pivoted
from relcore.pipeline import align
from relcore.runs import Run
from relcore.space import Pair, Pairs, make_space

SEEDS = Pairs(np.stack([np.arange(40), np.arange(40)[::-1] + 5], 1))
SCALINGS = ("standard", "centre", "none")


def rows(n: int, d: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def fit(x, y, seeds=SEEDS, **params):
    return Translation(**params).fit(x, y, seeds, generator=torch.Generator().manual_seed(0))


def sides(dx=9, dy=6):
    """Spaces with a mean and columns of unlike spread, and the seeds' rows of both in float64."""
    x = rows(80, dx, 1) * torch.linspace(0.5, 3, dx) + 1
    y = rows(90, dy, 2) * torch.linspace(2, 0.3, dy) - 2
    y[SEEDS.y.tolist()] += 0.7 * x[SEEDS.x.tolist()] @ rows(dx, dy, 3)
    return x, y, x[SEEDS.x.tolist()].double().numpy(), y[SEEDS.y.tolist()].double().numpy()


def scaled(a, b, scaling):
    made = [StandardScaler(with_mean=scaling != "none", with_std=scaling == "standard").fit(v) for v in (a, b)]
    return made, [s.transform(v) for s, v in zip(made, (a, b), strict=True)]


def numpy_map(how, a, b):
    if how == "ortho":
        u, _, vt = scipy.linalg.svd(a.T @ b, full_matrices=False)
        return u @ vt
    found = np.linalg.lstsq(a, b, rcond=None)[0]
    if how == "l_ortho":
        u, _, vt = np.linalg.svd(found, full_matrices=False)
        return u @ vt
    return found


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("how", ["linear", "l_ortho", "ortho"])
def test_it_is_numpys_map_of_columns_that_scikit_learn_scales(how, scaling):
    x, y, a, b = sides()
    run = fit(x, y, how=how, scaling=scaling)
    (scale_a, scale_b), (za, zb) = scaled(a, b, scaling)
    want = scale_b.inverse_transform(scale_a.transform(x.double().numpy()) @ numpy_map(how, za, zb))
    np.testing.assert_allclose(run.x.numpy(), want, atol=2e-5)
    assert torch.equal(run.y, y) and run.notes == []


@pytest.mark.parametrize("scaling", SCALINGS)
def test_affine_is_scikit_learns_regression_whatever_the_scaling(scaling):
    x, y, a, b = sides()
    run = fit(x, y, how="affine", scaling=scaling)
    np.testing.assert_allclose(run.x.numpy(), LinearRegression().fit(a, b).predict(x.double().numpy()), atol=2e-5)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_ridge_and_its_strength_are_scikit_learns(scaling):
    x, y, a, b = sides()
    run = fit(x, y, how="ridge", scaling=scaling)
    (scale_a, scale_b), (za, zb) = scaled(a, b, scaling)
    centred = za - za.mean(0) if scaling != "none" else za
    unit = (centred**2).sum() / za.shape[1]  # mean eigenvalue
    want = RidgeCV(alphas=[g * unit for g in GRID], fit_intercept=scaling != "none").fit(za, zb)
    assert run.chosen["ridge"] * unit == pytest.approx(want.alpha_, rel=1e-6)
    assert min(GRID) < run.chosen["ridge"] < max(GRID)
    moved = scale_b.inverse_transform(want.predict(scale_a.transform(x.double().numpy())))
    np.testing.assert_allclose(run.x.numpy(), moved, atol=2e-5)
    by_hand = fit(x, y, how="ridge", scaling=scaling, strength="fixed", ridge=run.chosen["ridge"])
    assert torch.equal(by_hand.x, run.x) and by_hand.chosen == {}


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("count", "p"), [(12, 5), (8, 20)])
def test_errors_left_out_are_those_of_fitting_without_the_row(intercept, count, p):
    a, b = rows(count, p, 4).double() + 0.5, rows(count, 3, 5).double() - 1
    known = Regression(a, b, intercept)
    for ridge in (1e-3, 0.3, 10.0):
        want = []
        for i in range(count):
            rest = torch.arange(count) != i
            ma, mb = (v[rest].mean(0) * intercept for v in (a, b))
            za, zb = a[rest] - ma, b[rest] - mb
            gram = za.T @ za + ridge * known.scale * torch.eye(p, dtype=torch.float64)
            guess = (a[i] - ma) @ torch.linalg.solve(gram, za.T @ zb) + mb
            want.append(((b[i] - guess) ** 2).sum())
        torch.testing.assert_close(known.left_out(ridge), torch.stack(want), rtol=1e-8, atol=0)


def test_without_a_ridge_a_row_that_alone_has_a_direction_is_not_predicted():
    known = Regression(torch.eye(4), torch.eye(4), intercept=False)
    assert torch.isinf(known.left_out(0.0)).all()


@pytest.mark.parametrize(("dx", "dy"), [(9, 6), (6, 9)])
def test_padding_with_zeros_gives_the_same_orthogonal_map(dx, dy):
    x, y, a, b = sides(dx, dy)
    _, (za, zb) = scaled(a, b, "standard")
    wide = max(dx, dy)
    u, _, vt = np.linalg.svd(
        np.pad(za, ((0, 0), (0, wide - dx))).T @ np.pad(zb, ((0, 0), (0, wide - dy))), full_matrices=True
    )
    padded = (u @ vt)[:dx, :dy]
    encode = fit(x, y, how="ortho").encode_x
    got = encode.matrix.double().numpy() * a.std(0)[:, None] / b.std(0)
    np.testing.assert_allclose(got, padded, atol=1e-5)


@pytest.mark.parametrize("how", KINDS)
def test_a_planted_affine_map_is_found_and_serves_rows_never_seen(how):
    x = rows(120, 7, 1) + 1
    turn = torch.linalg.qr(rows(7, 7, 9))[0]
    y = 2 * x @ turn + 3
    scaling = "centre" if how.endswith("ortho") else "standard"
    run = fit(x, y, Pairs.by_row(60), how=how, scaling=scaling)
    new = rows(5, 7, 8) + 1
    got, want = run.encode_x(new), 2 * new @ turn + 3
    if how.endswith("ortho"):  # it keeps lengths
        got, want = got - y[:60].mean(0), (want - y[:60].mean(0)) / 2
    torch.testing.assert_close(got, want, rtol=0, atol=5e-3 if how == "ridge" else 1e-4)
    assert torch.equal(run.encode_y(new), new)


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("how", KINDS)
def test_a_map_is_told_where_there_is_one_and_encoders_are_kept(how, scaling):
    x, y, _, _ = sides()
    run = fit(x, y, how=how, scaling=scaling)
    plain = scaling == "none" and how != "affine"
    assert isinstance(run.encode_x, Linear if plain else Affine) and (run.map is not None) == plain
    if plain:
        torch.testing.assert_close(x @ run.map, run.x)
    for v, out, encode in ((x, run.x, run.encode_x), (y, run.y, run.encode_y)):
        torch.testing.assert_close(encode_back(encode)(v), out, rtol=0, atol=0)
        torch.testing.assert_close(encode(v[5:6])[0], out[5], rtol=1e-5, atol=1e-5)


def encode_back(encode):
    return encoder_of("encode_x", encoder_arrays("encode_x", encode))


@pytest.mark.parametrize("how", KINDS)
def test_fewer_seeds_than_dimensions_work_and_what_is_open_is_said(how):
    x = rows(60, 50, 1)
    y = x @ torch.linalg.qr(rows(50, 50, 2))[0]
    run = fit(x, y, Pairs.by_row(15), how=how)
    assert torch.isfinite(run.x).all()
    said = "the map is determined only on a 14-dimensional subspace (15 seeds)"
    assert run.notes == ([] if how == "ridge" else [said])
    if how in ("affine", "linear"):
        torch.testing.assert_close(run.x[:15], y[:15], rtol=0, atol=1e-4)


def test_of_many_solutions_it_is_the_shortest():
    x, y = rows(60, 50, 1), rows(60, 4, 2)
    run = fit(x, y, Pairs.by_row(15), how="linear", scaling="none")
    want = np.linalg.pinv(x[:15].double().numpy()) @ y[:15].double().numpy()
    np.testing.assert_allclose(run.map.numpy(), want, atol=1e-5)


@pytest.mark.parametrize("how", KINDS)
def test_constant_columns_have_no_part_and_are_told(how):
    x, y, _, _ = sides()
    plain = fit(x, y, how=how)
    flat_x = torch.cat([x, torch.full((80, 2), 0.25)], 1)
    flat_x[70:, -1] = 9.0  # constant over the seeds alone
    flat_y = torch.cat([y, torch.full((90, 1), 0.5)], 1)
    run = fit(flat_x, flat_y, how=how)
    assert run.notes == [
        f"{n} columns of {s} are constant over the seeds and have no part" for n, s in ((2, "x"), (1, "y"))
    ] + (run.notes[2:] if how != "ridge" else [])
    torch.testing.assert_close(run.x[:, -1], torch.full((80,), 0.5))
    if how in ("linear", "affine"):
        torch.testing.assert_close(run.x[:, :-1], plain.x, rtol=0, atol=1e-4)


def test_seeds_that_are_all_alike_are_refused():
    x = rows(30, 5)
    x[:10] = x[0]
    for how in KINDS:
        with pytest.raises(InputError, match="the 10 seeds' rows of x are all alike: there is no map to fit"):
            fit(x, rows(30, 5, 1), Pairs.by_row(10), how=how)
        with pytest.raises(InputError, match="the 10 seeds' rows of y are all alike"):
            fit(rows(30, 5, 1), x, Pairs.by_row(10), how=how)


def test_too_few_seeds_are_refused_and_other_methods_named():
    words = "Translation needs at least 2 seed pairs, got 1.* take a method that does with less: ao.* hga"
    with pytest.raises(InputError, match=words):
        fit(rows(5, 3), rows(5, 3), Pairs.by_row(1))


def test_values_out_of_range_are_refused():
    with pytest.raises(InputError, match=r"translate: ridge is 0, wanted 1e-06 to 1000000\.0"):
        Translation(ridge=0)
    with pytest.raises(InputError, match="translate: how is 'svd', wanted one of ridge, affine, linear"):
        Translation(how="svd")


def test_pairs_that_are_none_are_told():
    x, y = rows(300, 8, 1), rows(300, 8, 2)
    said = " ".join(fit(x, y, Pairs.by_row(200)).notes)
    assert "hardly predicted by the others" in said and "take a method that does with less: ao" in said
    assert fit(x, x @ rows(8, 8, 3), Pairs.by_row(200)).notes == []


# ---------------------------------------------------------------- through the pipeline, and the folder of a run


def pair(n=240, dims=(8, 10), seed=0) -> Pair:
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(6, 6))[rng.integers(6, size=n)] + rng.normal(size=(n, 6))
    v = [
        np.pad(z, ((0, 0), (0, d - 6))) @ np.linalg.qr(rng.normal(size=(d, d)))[0] + 0.1 * rng.normal(size=(n, d)) + 1
        for d in dims
    ]
    return Pair(*(make_space(w.astype(np.float32))[0] for w in v), truth=Pairs.by_row(n))


@pytest.mark.parametrize("how", KINDS)
def test_a_planted_pair_is_aligned_through_the_pipeline(how):
    outcome = align(pair(), Translation(how=how), Pairs.by_row(80), device="cpu", folds=3)
    assert min(outcome.metrics[way]["r@1"] for way in ("x_to_y", "y_to_x")) > 0.6
    assert outcome.verdict.level == "aligned"


def test_a_run_keeps_the_encoders(tmp_path, monkeypatch):
    monkeypatch.setenv("RELCORE_HOME", str(tmp_path))
    monkeypatch.setitem(methods.REGISTRY, "translate", "translation:Translation")
    p = pair()
    run = runs.create(
        p,
        method=Translation(),
        seeds=Pairs.by_row(80),
        reports=tuple(make_space(s.vectors)[1] for s in (p.x, p.y)),
        device="cpu",
    )
    for _ in runs.execute(run):
        pass
    done = Run.load(run.folder)
    assert done.status == "done" and done.record["method"]
    for side, space in (("x", p.x), ("y", p.y)):
        np.testing.assert_allclose(done.encoder(side)(space.vectors), done.alignment_arrays()[side], atol=1e-6)


def test_it_tells_its_cost_and_moves_x_in_one_step():
    x, y, _, _ = sides()
    for how in KINDS:
        cost = Translation(how=how).estimate(2000, 3000, 50, 100, 15)
        assert cost.memory > 0 and cost.seconds > 0
        (step,) = list(Translation(how=how).steps(x, y, SEEDS, generator=torch.Generator()))
        assert (step.iteration, step.total, step.snapshot.moving) == (1, 1, "x")


# ---------------------------------------------------------------- rows that make a basis


def test_pivots_are_scipys():
    v = rows(30, 8, 1)
    _, _, want = scipy.linalg.qr(v.double().numpy().T, pivoting=True)
    assert pivoted(v).tolist() == want[:8].tolist()
    low = torch.cat([v[:5], v[:5] * 2, v[:3] + v[1:4]])
    assert len(pivoted(low)) == 5


def test_the_longest_prefix_is_that_of_trying_all():
    v = rows(12, 12, 3)
    found = [condition(v[:k]) for k in range(1, 13)]
    np.testing.assert_allclose(found, [np.linalg.cond(v[:k].double().numpy()) for k in range(1, 13)], rtol=1e-6)
    for limit in (1.0, 2.0, 3.0, 5.0, 1e9):
        assert longest_prefix(v, limit) == max(k for k, c in enumerate(found, 1) if c <= limit or k == 1)


def test_the_inverse_projection_is_numpys():
    a, b = rows(20, 6, 1), rows(20, 9, 2)
    want = a.double().numpy().T @ np.linalg.pinv(b.double().numpy().T)
    np.testing.assert_allclose(inverse_projection(a, b).numpy(), want, atol=1e-10)
