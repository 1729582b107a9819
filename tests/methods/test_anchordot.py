"""AnchorDOT: what it finds on planted pairs, its three phases, its options, and what it says of bad input."""

from __future__ import annotations

import itertools
from dataclasses import fields

import numpy as np
import pytest
import torch

from relcore import pipeline, runs
from relcore.errors import InputError
from relcore.methods import method
from relcore.methods.anchordot import ETAS, RIDGES, AnchorDOT
from relcore.methods.anchored import SIMILARITIES
from relcore.methods.base import conditions
from relcore.ops.neighbors import unit_rows
from relcore.space import Pair, Pairs, make_space

COSTS = ("profile", "bridge", "fused")
QUICK = dict(steps_student=100, hidden=32, chunk=120, select_rows=150)


def planted(n=260, dx=16, dy=24, anchors=60, noise=0.1, seed=0, lacks=False, **more):
    """Two noisy linear views of clustered points; anchors are the first rows, the others of y in another order.

    ``lacks``: the rows of y after the anchors come from half of the clusters only.
    """
    rng = np.random.default_rng(seed)
    centres, labels = 2.0 * rng.normal(size=(8, 10)), rng.integers(8, size=n)
    if lacks:
        labels[:anchors] = rng.integers(4, size=anchors)
    z = centres[labels] + rng.normal(size=(n, 10))
    x, y = (z @ rng.normal(size=(10, d)) + noise * rng.normal(size=(n, d)) for d in (dx, dy))
    order = np.arange(n)
    order[anchors:] = anchors + rng.permutation(n - anchors)
    if lacks:
        order = order[(order < anchors) | (labels[order] < 4)]
    sides = [torch.from_numpy(v).float() for v in (x, y[order])]
    sides = [unit_rows(v - v.mean(0)) for v in sides]
    where = np.full(n, -1)
    where[order] = np.arange(len(order))
    return *sides, Pairs(np.stack([np.arange(anchors)] * 2, 1)), where


def fitted(x, y, seeds, **params):
    return method("anchordot", **(QUICK | params)).fit(x, y, seeds, generator=torch.Generator().manual_seed(0))


def recall(scores, where, seeds) -> float:
    """Share of rows that are no seeds whose best-scored row is their partner."""
    rows = np.setdiff1d(np.arange(len(where)), seeds.x)
    return float((scores.argmax(1).numpy()[rows] == where[rows]).mean())


@pytest.fixture(scope="module")
def data():
    return planted()


@pytest.fixture(scope="module")
def run(data):
    return fitted(*data[:3])


def test_coupling_and_student_find_the_partners(data, run):
    x, y, seeds, where = data
    assert recall(run.coupling.log_block(slice(None), slice(None)), where, seeds) > 0.9
    assert recall(run.x @ run.y.T, where, seeds) > 0.8
    assert run.converged and run.coupling.shape == (260, 260)
    sums = run.coupling.marginals()
    pool = slice(60, None)  # anchors joined afterwards; the pool's own rows keep theirs
    np.testing.assert_allclose(sums.rows[pool] * 260, 1.0, atol=0.5)


def test_the_three_phases_are_seen_in_order(run):
    phases = [p for p, _ in itertools.groupby(run.history["phase"])]
    assert phases == ["select", "transport", "distil"]
    assert run.history["iteration"].tolist() == list(range(1, len(run.history) + 1))
    by = dict(list(run.history.groupby("phase")))
    assert len(by["select"]) == 18 and by["select"]["held-out rank"].notna().all()
    ranks = by["select"]["held-out rank"]
    chosen = by["select"][ranks == ranks.min()]
    said = [f"gamma {g:g}, ridge {r:g}, eta {e:g}" for g, r, e in chosen[["gamma", "ridge", "eta"]].to_numpy()]
    assert any(s in " ".join(run.notes) for s in said)
    assert by["transport"]["marginal error"].iloc[-1] <= 1e-3
    assert 1 <= by["transport"]["effective matches"].iloc[-1] <= 260
    assert by["distil"]["loss"].iloc[-1] < by["distil"]["loss"].iloc[0]
    assert by["distil"]["agrees with the plan"].dropna().iloc[-1] > 0.7


def test_encoders_need_neither_anchors_nor_pools(data, run):
    x, y, *_ = data
    torch.testing.assert_close(run.encode_x(x[:7]), run.x[:7], rtol=0, atol=1e-5)
    torch.testing.assert_close(run.encode_y(y[:7]), run.y[:7], rtol=0, atol=1e-5)


def test_a_row_that_comes_later_joins_the_plan_as_if_it_had_been_there(data, run):
    x, *_ = data
    joined = run.coupling.with_left(run.factor_x(x[100:103]))
    there = run.coupling.row_normalised(torch.arange(100, 103), slice(None))
    torch.testing.assert_close(joined.row_normalised(slice(None), slice(None)), there, rtol=1e-3, atol=1e-6)


def test_without_a_student_coordinates_are_profiles(data):
    x, y, seeds, where = data
    run = fitted(x, y, seeds, student="none", select="no", gamma=1.0, ridge=0.5)
    a = x[:60].double()
    values, axes = torch.linalg.eigh(a.T @ a / 60)
    r = x.double() @ (axes * (values + 0.5 * values.mean()) ** -0.5) @ axes.T @ a.T
    torch.testing.assert_close(
        (run.x @ run.x.T).double(), unit_rows(r).double() @ unit_rows(r).double().T, atol=1e-4, rtol=0
    )
    torch.testing.assert_close(run.encode_x(x), x @ run.encode_x.matrix)


@pytest.mark.parametrize(
    "params",
    [
        dict(student="linear"),
        dict(mode="paper", steps_student=300, least=0.4),
        dict(start="random", steps_student=300, least=0.4),
        dict(anchors_in_plan=True, student="none"),
        dict(centre="anchors"),
        dict(rho_x=1.0, rho_y=1.0, student="none"),
    ],
    ids=str,
)
def test_options_find_the_partners_too(data, params):
    params = dict(params)
    least = params.pop("least", 0.5)
    x, y, seeds, where = data
    run = fitted(x, y, seeds, **params)
    assert recall(run.coupling.log_block(slice(None), slice(None)), where, seeds) > 0.85
    assert recall(run.x @ run.y.T, where, seeds) > least
    torch.testing.assert_close(unit_rows(run.encode_y(y)), run.y, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("cost", "least"), [("bridge", 0.01), ("keypoint", 0.3), ("fused", 0.8)])
def test_other_costs_give_couplings_too(data, cost, least):
    x, y, seeds, where = data
    run = fitted(x, y, seeds, cost=cost, student="none")
    assert run.coupling.shape == (260, 260) and run.factor_x is None
    assert recall(run.coupling.log_block(slice(None), slice(None)), where, seeds) > least


def test_paper_mode_uses_no_ridge_and_gamma_to_1(data):
    run = fitted(*data[:3], mode="paper", student="none")
    select = run.history[run.history["phase"] == "select"]
    assert set(select["gamma"]) == {0, 0.25, 0.5, 0.75, 1} and set(select["ridge"]) == {0}
    assert len(select) == 25


# ---------------------------------------------------------------- in a run


def as_run(tmp_path, x, y, seeds, truth=None, **params):
    spaces, reports = zip(*(make_space(v.numpy()) for v in (x, y)), strict=True)
    run = runs.create(
        Pair(*spaces, truth=truth),
        method=method("anchordot", **(QUICK | params)),
        seeds=seeds,
        reports=reports,
        device="cpu",
        folder=tmp_path / "run",
        keep_spaces=False,
    )
    return run, Pair(*spaces, truth=truth)


@pytest.mark.parametrize("student", ["mlp", "linear", "none"])
def test_a_run_keeps_coupling_and_encoders(tmp_path, data, student):
    x, y, seeds, where = data
    run, pair = as_run(tmp_path, x, y, seeds, student=student, centre="anchors" if student == "mlp" else "as given")
    for _ in runs.execute(run, pair):
        pass
    kept = runs.Run.load(run.folder)
    arrays = kept.alignment_arrays()
    coupling = kept.coupling()
    assert recall(coupling.log_block(slice(None), slice(None)), where, seeds) > 0.85
    for side, space in (("x", pair.x), ("y", pair.y)):
        coordinates = unit_rows(torch.from_numpy(kept.encoder(side)(space.vectors)))
        np.testing.assert_allclose(coordinates, arrays[side], atol=1e-4)
    factor = kept.encoder("x", "factor")(pair.x.vectors)
    np.testing.assert_allclose(factor, coupling.problem.cost.left, atol=1e-5)
    assert kept.record["health"]["held_out"]["count"] == 60


def test_five_lines_load_the_encoder_without_relcore(tmp_path, data):
    x, y, seeds, _ = data
    run, pair = as_run(tmp_path, x, y, seeds)
    for _ in runs.execute(run, pair):
        pass
    vectors = torch.from_numpy(pair.x.vectors.copy())
    from relcore.methods import kept

    code = kept.__doc__.split("::\n\n")[1].split("\n\nWith Relcore")[0]
    names = {"v": vectors}
    exec("\n".join(line.strip() for line in code.splitlines()).replace("run/", f"{run.folder}/"), names)
    np.testing.assert_allclose(names["z"], run.alignment_arrays()["x"], atol=1e-5)


@pytest.mark.parametrize("after", [3, 20, 75])
def test_stopped_anywhere_it_keeps_what_it_had(data, after):
    x, y, seeds, _ = data
    spaces = [make_space(v.numpy())[0] for v in (x, y)]
    task = pipeline.Task(method=method("anchordot", **QUICK), seeds=seeds, device="cpu")
    fit = pipeline.Fit(Pair(*spaces), task)
    for _ in itertools.islice(fit.steps(), after):
        pass
    assert fit.stop_early() and not fit.alignment.converged
    outcome = pipeline.drain(fit.finish())
    assert "stopped before the check was done" in outcome.verdict.text
    transported = any(s["phase"] == "distil" for s in fit.history)
    assert transported == (after == 75) == ("x_to_y/coupling/indices" in outcome.arrays)  # the plan is not lost again
    assert outcome.alignment.x.shape[0] == 260 and outcome.arrays["map_x"].shape == (260, 2)


# ---------------------------------------------------------------- bad input


def said(run) -> str:
    return "\n".join(run.notes)


def test_fewer_anchors_than_dimensions():
    run = fitted(*planted(anchors=12)[:3])
    assert "12 anchors for 16 and 24 dimensions" in said(run) and "too few to choose" in said(run)
    assert "canonical correlations are 1 whatever" in said(run)


def test_anchors_that_repeat(data):
    x, y, seeds, _ = data
    x = x.clone()
    x[:20] = x[0]
    run = fitted(x, y, seeds)
    assert "19 of 60 anchors of x repeat the vector of another" in said(run)


def test_anchors_of_rank_1(data):
    x, y, seeds, _ = data
    x = x.clone()
    x[:60] = x[0] * torch.tensor([1.0, -1.0]).repeat(30)[:, None]
    run = fitted(x, y, seeds)
    assert "all anchors of x lie on one line" in said(run)
    assert torch.isfinite(run.x).all() and torch.isfinite(run.coupling.f).all()


def test_all_rows_alike_cost_the_same():
    x, y, seeds, _ = planted()
    same = torch.ones(260, 16) / 4
    run = fitted(same, y, seeds, student="none", select="no")
    assert "matches nothing" in said(run) or run.coupling.effective_matches().mean() > 100
    median_0 = fitted(same, torch.ones(260, 24) / 24**0.5, seeds, student="none")
    assert "all costs are equal" in said(median_0) and torch.isfinite(median_0.coupling.f).all()


def test_pools_of_very_different_size():
    x, y, seeds, where = planted(anchors=20)
    run = fitted(x, y[:40], seeds)
    assert "x has 6 times the rows of y" in said(run) and "rho_x" in said(run)
    run = fitted(y[:40], x, seeds, student="none")
    assert "y has 6 times the rows of x" in said(run)


def test_an_epsilon_too_small_for_float32_is_solved_in_float64_or_said(data):
    run = fitted(*data[:3], select="no", eta=1e-6, student="none", anchors_in_plan=True)
    sums = run.coupling.marginals()
    np.testing.assert_allclose(sums.rows * 260, 1.0, atol=1e-6)
    off = float((sums.columns - 1 / 260).abs().sum())
    assert run.converged == (off <= 1e-3) == ("not converged" not in said(run))
    once = fitted(*data[:3], select="no", eta=0.02, student="none", iterations=1)
    assert not once.converged and "not converged: marginal errors" in said(once)


@pytest.mark.parametrize("rows", [2, 5, 19])
def test_very_few_rows(rows):
    x, y, *_ = planted()
    run = fitted(x[:rows], y[:rows], Pairs(np.stack([np.arange(min(rows, 4))] * 2, 1)))
    left = (
        f"x has {rows - 4} row{'s' * (rows > 5)} beside its anchors"
        if rows > 4
        else f"all {rows} rows of x are anchors"
    )
    assert left in said(run) and run.coupling.shape == (rows, rows)
    assert torch.isfinite(run.x).all()


def test_few_rows_beside_many_anchors_are_told_too(data):
    x, y, seeds, _ = data
    run = fitted(x[:65], y, seeds, student="none")
    assert "x has 5 rows beside its anchors" in said(run) and "y has" not in said(run)


def test_where_all_rows_are_anchors_no_held_out_one_competes_with_its_own_copy():
    x, y, seeds, _ = planted(n=60, noise=0.0)
    run = fitted(x, y, seeds, student="none")
    assert "all 60 rows of y are anchors" in said(run)
    assert "mean rank 1 of 6 held-out anchors among 60 and 60 rows" in said(run)


def test_anchors_that_are_one_vector_cannot_be_centred(data):
    x, y, seeds, _ = data
    x = x.clone()
    x[:60] = x[0]
    run = fitted(x, y, seeds, centre="anchors")
    assert "all anchors of x are the same vector" in said(run) and torch.isfinite(run.x).all()
    torch.testing.assert_close(unit_rows(run.encode_x(x)), run.x, rtol=0, atol=1e-5)


def test_a_median_cost_of_0_is_told():
    x, y, seeds, _ = planted()
    x[40:], y[40:] = x[40], y[40]
    signs = torch.tensor([1.0, -1.0]).repeat(20)[:, None]
    x[:40], y[:40] = x[40] * signs, y[40] * signs
    run = fitted(x, y, seeds, student="none")
    assert "the median cost is 0" in said(run) and torch.isfinite(run.coupling.f).all()
    assert "median cost" not in said(fitted(*planted()[:3], student="none"))


def test_where_nothing_is_selected_it_is_told(data):
    for cost in ("bridge", "keypoint"):
        run = fitted(*data[:3], cost=cost, student="none")
        assert f"nothing is chosen by held-out anchors for the {cost} cost: gamma 1.5" in said(run)
        assert "nothing is chosen" not in said(fitted(*data[:3], cost=cost, student="none", select="no"))
    assert "by the profile's cost alone" in said(fitted(*data[:3], cost="fused", student="none"))


def test_what_paper_mode_sets_is_told(data):
    x, y, seeds, _ = data
    run = fitted(x, y, seeds, mode="paper", sharpen=3.0, chunk=20)
    assert "start random in 96 dimensions, pair_weight 0.077, sharpen 1" in said(run)
    same = fitted(x, y, seeds, mode="paper", pair_weight=5.0, chunk=20)
    torch.testing.assert_close(run.x, same.x)
    few = fitted(x, y, Pairs(seeds.array[:20]), mode="paper", student="none")
    assert "gamma 1.5 is beyond the paper's 0 to 1" in said(few)


def test_a_class_missing_on_one_side_is_warned_of():
    run = fitted(*planted(n=400, lacks=True)[:3])
    assert "the rows of x are not spread like its anchors" in said(run) and "rho_x" in said(run)
    assert "the rows of y are not spread" not in said(run)


def test_pools_like_their_anchors_are_not_warned_of():
    for seed in range(3):
        run = fitted(*planted(n=400, seed=seed)[:3], student="none")
        assert "rho" not in said(run)


def test_costs_held_in_full_are_refused_for_large_pools():
    for cost in ("bridge", "keypoint"):
        with pytest.raises(InputError, match="held in full and bears 5,000 x 5,000 rows, got 6,000 x 6,000"):
            method("anchordot", cost=cost).check(6000, 6000, 10, 10, 50)
    with pytest.raises(InputError, match="fused Gromov-Wasserstein bears 3,000 rows a side"):
        method("anchordot", cost="fused").check(100, 3001, 10, 10, 50)
    method("anchordot").check(100_000, 100_000, 10, 10, 50)


def test_costs_held_in_full_are_estimated_so():
    profile, bridge, fused = (method("anchordot", cost=c).estimate(3000, 3000, 64, 96, 60) for c in COSTS)
    assert bridge.memory - profile.memory > 8 * 4 * 3000**2  # measured: 34 bytes an entry, 103 for fused
    assert fused.memory - profile.memory > 24 * 4 * 3000**2 and bridge.seconds > profile.seconds


def test_one_seed_is_not_enough():
    with pytest.raises(InputError, match="AnchorDOT needs at least 2 seed pairs"):
        method("anchordot").check(100, 100, 10, 10, 1)


def test_what_was_chosen_is_kept_and_what_was_set_in_vain_is_told(data):
    x, y, seeds, _ = data
    run = fitted(x, y, seeds, student="none", eta=0.3)
    assert set(run.chosen) == {"gamma", "ridge", "eta"} and run.chosen["eta"] in ETAS
    assert (run.chosen["gamma"], run.chosen["ridge"]) in RIDGES
    assert "eta 0.3 as set had no say" in said(run)
    given = fitted(x, y, seeds, student="none", eta=0.3, select="no")
    assert given.chosen["eta"] == 0.3 and "had no say" not in said(given)


def test_a_selection_that_does_not_converge_is_told(data):
    x, y, seeds, _ = data
    run = fitted(x, y, seeds, student="none", iterations=1, tolerance=1e-8)
    assert "18 of 18 transports of the selection did not converge in 1 iterations" in said(run)


def test_the_check_is_told_as_what_it_takes_not_as_whole_fits():
    """It leaves out transport and student, which are most of a fit."""
    cost = method("anchordot").estimate(1050, 1050, 256, 384, 200)
    assert 0 < cost.check < cost.seconds / 5


# ---------------------------------------------------------------- other similarities than the gamma profile

OTHERS = [s for s in SIMILARITIES if s != "gamma"]


@pytest.mark.parametrize("similarity", OTHERS)
def test_the_profile_may_be_made_by_any_similarity(data, similarity):
    x, y, seeds, where = data
    from relcore.methods.anchored import encoder, whitening
    from relcore.ops.similarity import fit as fitted_on

    params = dict(shrinkage="fixed", shrinkage_amount=0.3, kernel_ridge=0.5, select="no", eta=0.1)
    run = fitted(x, y, seeds, similarity=similarity, student="none", **params)
    rows = x[:60], y[:60]
    white = whitening(rows, "fixed", 0.3)
    if similarity in ("cosine", "centred", "euclidean"):
        fits = [fitted_on(similarity, v) for v in rows]
    else:
        fits = white.similarities(similarity, rows, 1.0, None, 0.5)
    for f, v, support, out in zip(fits, (x, y), rows, (run.x, run.y), strict=True):
        torch.testing.assert_close(out, unit_rows(encoder(f, support, support)(v)), rtol=0, atol=1e-5)
    cost = run.coupling.problem.cost
    torch.testing.assert_close(cost.dense(), (1 - run.x @ run.y.T).to(cost.dense()), rtol=0, atol=1e-5)
    torch.testing.assert_close(run.factor_x(x[3:5]), run.x[3:5], rtol=0, atol=1e-5)
    assert run.chosen == {"eta": 0.1}


@pytest.mark.parametrize("similarity", ["wip", "kernel", "centred"])
def test_another_similarity_finds_the_partners_and_selects_eta_alone(data, similarity):
    x, y, seeds, where = data
    run = fitted(x, y, seeds, similarity=similarity, gamma=1.0, eta=0.3)
    least = 0.3 if similarity == "centred" else 0.85  # y is no rotation of x
    assert recall(run.coupling.log_block(slice(None), slice(None)), where, seeds) > least
    assert recall(run.x @ run.y.T, where, seeds) > least - 0.2  # the encoders begin at the profile's linear part
    select = run.history[run.history["phase"] == "select"]
    assert sorted(select["eta"]) == sorted(ETAS) and "gamma" not in select
    own = {"wip": {"shrinkage_amount"}, "kernel": {"shrinkage_amount", "kernel_ridge"}, "centred": set()}[similarity]
    assert set(run.chosen) == {"eta"} | own
    words = said(run)
    assert f"anchors are compared by {similarity}: no gamma and no ridge is chosen by held-out ones, eta alone" in words
    assert "gamma 1 as set had no say: of the gamma profile" in words
    assert "eta 0.3 as set had no say" in words and "canonical correlation" not in words


def test_parameters_of_another_similarity_are_hidden():
    by = {f.name: conditions(f) for f in fields(AnchorDOT)}

    def matters(name, **values):
        return all(values.get(other) in wanted for other, wanted in by[name])

    for name in ("gamma", "ridge"):
        assert matters(name, similarity="gamma", select="no")
        assert not matters(name, similarity="wip", select="no") and not matters(name, similarity="gamma")
    assert matters("shrinkage", similarity="wip") and not matters("shrinkage", similarity="gamma")
    assert matters("standardise", similarity="euclidean") and not matters("standardise", similarity="gamma")


def test_an_encoder_begins_at_what_is_linear_in_a_similarity():
    from relcore.methods.described import Describer

    x, y, seeds, _ = planted()
    rows = x[:60], y[:60]
    wip = Describer(method("anchordot", similarity="wip"), rows, (x, y)).profile()
    torch.testing.assert_close(
        (x @ wip.left) @ (y @ wip.right).T,
        (wip.map_x(x) - wip.map_x(0 * x[:1])) @ (wip.map_y(y) - wip.map_y(0 * y[:1])).T,
        rtol=1e-3,
        atol=1e-3 * float((x @ wip.left @ (y @ wip.right).T).abs().max()),
    )
    bent = Describer(method("anchordot", similarity="euclidean"), rows, (x, y)).profile()
    seen, linear = bent.map_x(x), x @ torch.linalg.lstsq(x - x.mean(0), bent.map_x(x) - bent.map_x(x).mean(0)).solution
    assert np.corrcoef(seen.flatten(), (linear + seen.mean(0) - linear.mean(0)).flatten())[0, 1] > 0.8  # near linear
    other = x - x.mean(0)
    got, want = (
        other @ bent.left @ (y @ bent.right).T,
        (linear - linear.mean(0)) @ (bent.map_y(y) - bent.map_y(y).mean(0)).T,
    )
    assert np.corrcoef((got - got.mean(1, keepdim=True)).flatten(), want.flatten())[0, 1] > 0.9


@pytest.mark.parametrize("similarity", ["wip", "kernel", "mahalanobis"])
@pytest.mark.parametrize("centre", ["as given", "anchors"])
def test_a_run_keeps_the_encoders_and_factors_of_another_similarity(tmp_path, data, similarity, centre):
    x, y, seeds, _ = data
    run, pair = as_run(tmp_path, x, y, seeds, similarity=similarity, student="none", centre=centre, standardise=True)
    for _ in runs.execute(run, pair):
        pass
    kept = runs.Run.load(run.folder)
    for side, space in (("x", pair.x), ("y", pair.y)):
        coordinates = unit_rows(torch.from_numpy(kept.encoder(side)(space.vectors)))
        np.testing.assert_allclose(coordinates, kept.alignment_arrays()[side], atol=1e-4)
    factor = kept.encoder("x", "factor")(pair.x.vectors)
    np.testing.assert_allclose(factor, kept.coupling().problem.cost.left, atol=1e-5)


def test_a_whitened_profile_needs_anchors_enough_for_a_covariance(data):
    x, y, *_ = data
    with pytest.raises(
        InputError, match="AnchorDOT takes a covariance of the anchors and needs at least 4 of them, got 3"
    ):
        fitted(x, y, Pairs.by_row(3), similarity="wip")
    with pytest.raises(InputError, match="20 anchors have no covariance of full rank in 24 dimensions"):
        fitted(x, y, Pairs.by_row(20), similarity="mahalanobis", shrinkage="fixed", shrinkage_amount=0.0)
    few = fitted(x, y, Pairs.by_row(3), similarity="euclidean", student="none")
    assert "3 anchors are too few to choose by held-out ones (50 needed): eta 0.05 as given" in said(few)
