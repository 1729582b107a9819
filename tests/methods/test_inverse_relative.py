"""Inverse relative projection: numpy's formula, a planted rotation with shift, and which anchors stay."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import torch
from sklearn.metrics.pairwise import cosine_similarity

from relcore import methods, runs
from relcore.errors import InputError
from relcore.methods.base import Linear
from relcore.methods.inverse_relative import PRUNING, InverseRelative
from relcore.methods.kept import Cosines, encoder_arrays, encoder_of
from relcore.pipeline import align
from relcore.runs import Run
from relcore.space import Pairs, make_space
from tests.methods.test_translation import pair, rows

SEEDS = Pairs(np.stack([np.arange(40), np.arange(40)[::-1] + 5], 1))


def fit(x, y, seeds=SEEDS, **params):
    return InverseRelative(**params).fit(x, y, seeds, generator=torch.Generator().manual_seed(0))


def unit(v):
    return v / np.linalg.norm(v, axis=1, keepdims=True)


@pytest.mark.parametrize("centre", ["seeds", "none"])
def test_it_is_the_papers_formula(centre):
    x, y = rows(80, 7, 1) + 1, rows(90, 9, 2) - 1
    run = fit(x, y, pruning="none", centre=centre)
    u, v = x.double().numpy(), y.double().numpy()
    if centre == "seeds":
        u, v = u - u[SEEDS.x].mean(0), v - v[SEEDS.y].mean(0)
    described = cosine_similarity(u, u[SEEDS.x])
    want = described @ np.linalg.pinv(unit(v[SEEDS.y]).T)
    # rows keep their length where nothing is centred: a common space is compared by cosine
    np.testing.assert_allclose(unit(run.x.double().numpy()), unit(want), atol=1e-5)
    np.testing.assert_allclose(unit(run.y.double().numpy()), unit(v), atol=1e-5)
    np.testing.assert_array_equal(run.anchors.array, SEEDS.array)
    np.testing.assert_allclose(run.anchors_y.numpy(), unit(v)[SEEDS.y], atol=1e-6)


@pytest.mark.parametrize("pruning", PRUNING)
def test_a_planted_rotation_with_a_shift_and_a_scale_is_undone(pruning):
    x = rows(120, 8, 1) + 2
    turn = torch.linalg.qr(rows(8, 8, 9))[0]
    y = 3 * x @ turn - 5
    run = fit(x, y, Pairs.by_row(40), pruning=pruning)
    torch.testing.assert_close(run.x, run.y, rtol=0, atol=1e-4)
    new = rows(6, 8, 5) + 2
    torch.testing.assert_close(run.encode_x(new), run.encode_y(3 * new @ turn - 5), rtol=0, atol=1e-4)


@pytest.mark.parametrize(("dx", "dy"), [(6, 9), (9, 6)])
def test_different_dimensions_keep_what_both_have(dx, dy):
    z = rows(100, 6, 1)
    x, y = z @ torch.linalg.qr(rows(dx, 6, 2))[0].T, z @ torch.linalg.qr(rows(dy, 6, 3))[0].T
    run = fit(x, y, Pairs.by_row(30), centre="none", pruning="none")
    assert run.x.shape == (100, dy) and run.map.shape == (dx, dy)
    torch.testing.assert_close(run.x, y, rtol=0, atol=1e-4)


def flat(n=60, d=10):
    """Rows of which some columns hardly vary: anchors of them are ill-conditioned."""
    return rows(n, d, 1) * torch.logspace(0, -3, d)


def test_pivoted_anchors_are_the_most_that_the_condition_allows_each_farthest_from_the_span_of_the_others():
    x, y = rows(60, 10, 2), flat()
    run = fit(x, y, Pairs.by_row(40), centre="none", condition=30.0)
    v = unit(y[:40].double().numpy())
    assert np.linalg.cond(v) > 30
    order = [0]  # all have norm 1: the first
    while len(order) < 10:
        basis = scipy.linalg.orth(v[order].T)
        order.append(int(np.linalg.norm(v - v @ basis @ basis.T, axis=1).argmax()))
    most = max(k for k in range(1, 11) if np.linalg.cond(v[order[:k]]) <= 30)
    assert 1 < most < 10
    assert run.anchors.y.tolist() == order[:most] and run.anchors.x.tolist() == order[:most]
    assert run.notes == [
        f"{most} of 40 seeds are anchors: more would have a condition number above 30",
        f"the map is determined only on a {most}-dimensional subspace (40 seeds)",
    ]
    assert run.history["condition"][0] == pytest.approx(np.linalg.cond(v[order[:most]]), rel=1e-6)


def test_farthest_anchors_are_spread_out_and_repeatable():
    x, y = rows(60, 10, 2), flat()
    one, two = (fit(x, y, Pairs.by_row(40), pruning="farthest") for _ in range(2))
    np.testing.assert_array_equal(one.anchors.array, two.anchors.array)
    v = unit((y[:40] - y[:40].mean(0)).double().numpy())
    at = one.anchors.y.tolist()
    assert 1 < len(at) < 10 and np.linalg.cond(v[at]) <= 30
    for i in range(1, len(at)):  # each is the one whose nearest among those before is farthest
        nearest = (v @ v[at[:i]].T).max(1)
        nearest[at[:i]] = np.inf
        assert nearest[at[i]] == pytest.approx(nearest.min(), abs=1e-6)


def test_well_conditioned_anchors_all_stay():
    x, y = rows(60, 4, 1), rows(60, 4, 2)
    for pruning in PRUNING:
        run = fit(x, y, Pairs.by_row(40), pruning=pruning)
        assert len(run.anchors) == 40 and run.notes == []


@pytest.mark.parametrize("centre", ["seeds", "none"])
def test_encoders_are_kept(centre):
    x, y = rows(80, 7, 1) + 1, rows(90, 9, 2) - 1
    run = fit(x, y, centre=centre)
    assert isinstance(run.encode_x, Linear if centre == "none" else Cosines)
    assert (run.map is None) == (centre == "seeds")
    for v, out, encode in ((x, run.x, run.encode_x), (y, run.y, run.encode_y)):
        torch.testing.assert_close(encoder_of("e", encoder_arrays("e", encode))(v), out, rtol=0, atol=0)


@pytest.mark.parametrize("pruning", PRUNING)
def test_fewer_seeds_than_dimensions_work_and_what_is_open_is_said(pruning):
    x = rows(60, 50, 1)
    y = x @ torch.linalg.qr(rows(50, 50, 2))[0]
    run = fit(x, y, Pairs.by_row(15), pruning=pruning)
    assert torch.isfinite(run.x).all()
    assert run.notes[-1] == "the map is determined only on a 14-dimensional subspace (15 seeds)"
    # an anchor lies in what is determined: it comes back to itself
    torch.testing.assert_close(run.x[:15], run.y[:15], rtol=0, atol=1e-3)


def test_repeated_seeds_are_pruned():
    x = rows(60, 8, 1)
    x[10:20] = x[:10]
    run = fit(x, x.clone(), Pairs.by_row(20), centre="none", condition=1e6)
    assert torch.isfinite(run.x).all()
    torch.testing.assert_close(run.x, x, rtol=0, atol=1e-4)


def test_seeds_that_are_all_alike_and_too_few_are_refused():
    x = rows(30, 5)
    x[:10] = x[0]
    with pytest.raises(InputError, match="the 10 seeds' rows of x are all alike and span nothing"):
        fit(x, rows(30, 5, 1), Pairs.by_row(10))
    with pytest.raises(InputError, match="the 10 seeds' rows of y are all alike"):
        fit(rows(30, 5, 1), x, Pairs.by_row(10))
    with pytest.raises(InputError, match="needs at least 2 seed pairs, got 1.* take a method that does with less: ao"):
        fit(x, x, Pairs.by_row(1))
    with pytest.raises(InputError, match=r"irp: condition is 0.5, wanted 1.0 to 10000000.0"):
        InverseRelative(condition=0.5)


def test_a_planted_pair_is_aligned_through_the_pipeline():
    outcome = align(pair(), InverseRelative(), Pairs.by_row(80), device="cpu", folds=3)
    assert min(outcome.metrics[way]["r@1"] for way in ("x_to_y", "y_to_x")) > 0.6
    assert outcome.verdict.level == "aligned"


def test_a_run_keeps_the_encoders(tmp_path, monkeypatch):
    monkeypatch.setenv("RELCORE_HOME", str(tmp_path))
    monkeypatch.setitem(methods.REGISTRY, "irp", "inverse_relative:InverseRelative")
    p = pair()
    reports = tuple(make_space(s.vectors)[1] for s in (p.x, p.y))
    run = runs.create(p, method=InverseRelative(), seeds=Pairs.by_row(80), reports=reports, device="cpu")
    for _ in runs.execute(run):
        pass
    done = Run.load(run.folder)
    for side, space in (("x", p.x), ("y", p.y)):
        np.testing.assert_allclose(done.encoder(side)(space.vectors), done.alignment_arrays()[side], atol=1e-6)


def test_it_tells_its_cost():
    cost = InverseRelative().estimate(2000, 3000, 50, 100, 15)
    assert cost.memory > 0 and cost.seconds > 0
