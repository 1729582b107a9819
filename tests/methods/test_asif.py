"""ASIF against a re-implementation in numpy, on rows of every kind."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics.pairwise import cosine_similarity

from relcore import methods, runs
from relcore.errors import InputError
from relcore.methods.asif import ASIF
from relcore.methods.kept import Sparse, encoder_arrays, encoder_of
from relcore.ops.asif import EXPONENTS, NON_ZEROS, agreed, sparse_relative
from relcore.pipeline import align
from relcore.runs import Run
from relcore.space import Pairs, make_space
from tests.methods.test_translation import pair, rows

SEEDS = Pairs(np.stack([np.arange(40), np.arange(40)[::-1] + 5], 1))


def fit(x, y, seeds=SEEDS, **params):
    return ASIF(**params).fit(x, y, seeds, generator=torch.Generator().manual_seed(0))


def by_hand(v, anchors, non_zeros, exponent):
    """Row by row: cosines, all but the largest few put to 0, negative ones too, a power, norm 1."""
    out = np.maximum(cosine_similarity(v.double().numpy(), anchors.double().numpy()), 0)
    for row in out:
        row[np.argsort(-row, kind="stable")[non_zeros:]] = 0
    out = out**exponent
    norm = np.linalg.norm(out, axis=1, keepdims=True)
    return out / np.where(norm > 0, norm, 1)


@pytest.mark.parametrize(("non_zeros", "exponent"), [(800, 8.0), (5, 8.0), (1, 1.0), (12, 2.5), (40, 1.0)])
def test_it_is_numpys_on_both_sides(non_zeros, exponent):
    x, y = rows(80, 7, 1), rows(90, 9, 2)
    run = fit(x, y, non_zeros=non_zeros, exponent=exponent)
    for v, at, out in ((x, SEEDS.x, run.x), (y, SEEDS.y, run.y)):
        np.testing.assert_allclose(out.numpy(), by_hand(v, v[at.tolist()], non_zeros, exponent), atol=2e-6)
        assert int((out != 0).sum(1).max()) <= min(non_zeros, 40)
    np.testing.assert_array_equal(run.anchors.array, SEEDS.array)


def test_more_numbers_than_seeds_are_capped_and_told():
    x, y = rows(80, 7, 1), rows(90, 9, 2)
    assert fit(x, y).notes == ["800 numbers of a row asked for, 40 kept: there are no more seeds"]
    assert fit(x, y, non_zeros=40).notes == []
    assert torch.equal(fit(x, y).x, fit(x, y, non_zeros=40).x)


def test_tiny_cosines_keep_their_order_at_a_high_power():
    v = torch.tensor([[1e-6, 2e-6, 1.0, 0.0]])
    anchors = torch.eye(4)[:2]
    got = sparse_relative(v, anchors, 2, 8.0)  # 1e-48 is no float32
    np.testing.assert_allclose(got.numpy(), [[1 / 256 / np.hypot(1, 1 / 256), 1 / np.hypot(1, 1 / 256)]], rtol=1e-5)


def test_of_equal_cosines_the_first_anchors_are_in():
    got = sparse_relative(torch.ones(1, 3), torch.eye(3), 2, 1.0)
    np.testing.assert_allclose(got.numpy(), [[0.5**0.5, 0.5**0.5, 0.0]], rtol=1e-6)


def test_what_no_seed_is_like_matches_nothing_and_is_told():
    x, y = rows(60, 6, 1).abs(), rows(60, 6, 2).abs()
    x[50:53] *= -1
    run = fit(x, y, Pairs.by_row(40), non_zeros=40)
    assert (run.x[50:53] == 0).all() and (run.x[:50] != 0).any(1).all()
    assert run.notes == ["3 rows of x have no positive cosine with any seed and match nothing"]


def test_a_rotation_is_invisible():
    x = rows(60, 10, 2)
    y = x @ torch.linalg.qr(rows(10, 10, 3))[0]
    run = fit(x, y, Pairs.by_row(15), non_zeros=4)
    torch.testing.assert_close(run.x, run.y, rtol=0, atol=1e-4)


def test_sparsity_left_out_is_the_best_of_trying_all_without_each_seed():
    x = rows(60, 10, 1)
    y = x @ torch.linalg.qr(rows(10, 10, 3))[0] + 0.7 * rows(60, 10, 4)
    count, tried = 30, {}
    a, b = x[:count], y[:count]
    numbers = [k for k in NON_ZEROS if k < count - 1] + [count - 1]
    for k in numbers:
        for p in EXPONENTS:
            seen = []
            for v in (a, b):
                made = np.zeros((count, count))
                for i in range(count):
                    rest = np.arange(count) != i
                    made[i, rest] = by_hand(v[i : i + 1], v[torch.from_numpy(rest)], k, p)[0]
                seen.append(made)
            scores = seen[0] @ seen[1].T
            mrr = [(1 / (1 + (s > s.diagonal()[:, None]).sum(1))).mean() for s in (scores, scores.T)]
            tried[k, p] = np.mean(mrr)
    found = agreed(a, b)
    assert found.judged == 30
    assert found.mrr == pytest.approx(max(tried.values()), abs=1e-6)
    assert tried[found.non_zeros, found.exponent] == pytest.approx(max(tried.values()), abs=1e-6)
    assert len({round(v, 3) for v in tried.values()}) > 10
    run = fit(x, y, Pairs.by_row(count), sparsity="left_out")
    assert run.chosen == {"non_zeros": found.non_zeros, "exponent": found.exponent}
    again = fit(x, y, Pairs.by_row(count), **run.chosen)
    assert torch.equal(run.x, again.x)


def test_encoders_are_kept_and_take_rows_one_by_one():
    x, y = rows(80, 7, 1), rows(90, 9, 2)
    run = fit(x, y, non_zeros=6)
    for v, out, encode in ((x, run.x, run.encode_x), (y, run.y, run.encode_y)):
        assert isinstance(encode, Sparse)
        arrays = encoder_arrays("encode_x", encode)
        assert all(t.dtype == torch.float32 for t in arrays.values())
        torch.testing.assert_close(encoder_of("encode_x", arrays)(v), out, rtol=0, atol=0)
        torch.testing.assert_close(encode(v[5:6])[0], out[5], rtol=1e-5, atol=1e-6)


def test_too_few_seeds_and_values_out_of_range_are_refused():
    x = rows(30, 5)
    with pytest.raises(
        InputError, match="ASIF needs at least 1 seed pairs, got 0.* take a method that does with less: ao"
    ):
        fit(x, x, Pairs.empty())
    with pytest.raises(InputError, match="ASIF needs at least 3 seed pairs, got 2"):
        fit(x, x, Pairs.by_row(2), sparsity="left_out")
    assert fit(x, x, Pairs.by_row(3), sparsity="left_out").x.shape == (30, 3)
    with pytest.raises(InputError, match="asif: non_zeros is 0, wanted 1 to 100000"):
        ASIF(non_zeros=0)
    with pytest.raises(InputError, match="asif: exponent is 0.5, wanted 1.0 to 64.0"):
        ASIF(exponent=0.5)


def test_seeds_of_low_rank_work():
    x = rows(60, 8, 1)
    x[1:20] = x[0]
    run = fit(x, x.clone(), Pairs.by_row(20))
    assert torch.isfinite(run.x).all() and torch.equal(run.x, run.y)


@pytest.mark.parametrize("sparsity", ["fixed", "left_out"])
def test_a_planted_pair_is_aligned_through_the_pipeline(sparsity):
    outcome = align(pair(), ASIF(sparsity=sparsity), Pairs.by_row(80), device="cpu", folds=3)
    assert min(outcome.metrics[way]["r@1"] for way in ("x_to_y", "y_to_x")) > 0.4
    assert outcome.verdict.level == "aligned"


def test_a_run_keeps_the_encoders(tmp_path, monkeypatch):
    monkeypatch.setenv("RELCORE_HOME", str(tmp_path))
    monkeypatch.setitem(methods.REGISTRY, "asif", "asif:ASIF")
    p = pair()
    reports = tuple(make_space(s.vectors)[1] for s in (p.x, p.y))
    run = runs.create(p, method=ASIF(non_zeros=20), seeds=Pairs.by_row(80), reports=reports, device="cpu")
    for _ in runs.execute(run):
        pass
    done = Run.load(run.folder)
    for side, space in (("x", p.x), ("y", p.y)):
        np.testing.assert_allclose(done.encoder(side)(space.vectors), done.alignment_arrays()[side], atol=1e-6)


def test_it_tells_its_cost():
    for sparsity in ("fixed", "left_out"):
        cost = ASIF(sparsity=sparsity).estimate(2000, 3000, 50, 100, 15)
        assert cost.memory > 0 and cost.seconds > 0
