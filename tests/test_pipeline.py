"""The pipeline on a planted rotation: what it finds, what it reports, what it keeps when stopped."""

import numpy as np
import pytest
import torch

from relcore import pipeline
from relcore.errors import InputError, RunFailed
from relcore.methods import method
from relcore.methods.base import Alignment, Cost, Method, Snapshot, Step
from relcore.pipeline import Fit, Task, align, drain
from relcore.space import Pair, Pairs, make_space
from tests.restarting import Restarting


def planted(n=400, dx=20, dy=28, noise=0.05, extra=50, seed=0) -> Pair:
    """Y is X turned by a rotation into dy dimensions, in another order, with rows of its own."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(12, dx))
    x = centres[rng.integers(12, size=n)] + 0.7 * rng.normal(size=(n, dx))
    q, _ = np.linalg.qr(rng.normal(size=(dy, dx)))
    more = centres[rng.integers(12, size=extra)] + 0.7 * rng.normal(size=(extra, dx))
    y = np.concatenate([x, more]) @ q.T
    y += noise * rng.normal(size=y.shape)
    order = rng.permutation(n + extra)
    where = np.argsort(order)[:n]
    sx, _ = make_space(x, labels=rng.integers(3, size=n))
    sy, _ = make_space(y[order])
    return Pair(sx, sy, Pairs(np.stack([np.arange(n), where], 1)))


PAIR = planted()
SEEDS = PAIR.truth.take(np.arange(0, 400, 27)[:15])


@pytest.fixture(scope="module")
def outcome():
    return align(PAIR, method("ao", anchors=100), SEEDS)


def test_a_planted_rotation_is_found_and_called_aligned(outcome):
    assert outcome.metrics["x_to_y"]["r@1"] > 0.95
    assert outcome.metrics["anchors"]["found"] > 0.95
    assert outcome.verdict.level == "aligned"


def test_scores_leave_the_seeds_out(outcome):
    assert outcome.metrics["x_to_y"]["n"] == 400 - 15


def test_references_are_the_relative_representations_by_seeds_and_by_true_anchors(outcome):
    x, y = (
        v.numpy() for v in (Fit(PAIR, Task(method("relative"), SEEDS)).x, Fit(PAIR, Task(method("relative"), SEEDS)).y)
    )

    def mrr(pairs):
        a, b = x @ x[pairs.x].T, y @ y[pairs.y].T
        a /= np.linalg.norm(a, axis=1, keepdims=True)
        b /= np.linalg.norm(b, axis=1, keepdims=True)
        score = a @ b.T
        scored = PAIR.truth.without(SEEDS)
        own = score[scored.x, scored.y]
        rank = 1 + (score[scored.x] > own[:, None]).sum(1)
        return np.where(rank <= 10, 1 / rank, 0).mean()

    assert outcome.metrics["references"]["seed"]["x_to_y"]["mrr"] == pytest.approx(mrr(SEEDS), abs=2e-3)
    anchors = outcome.alignment.anchors
    gt = Pairs(np.stack([anchors.x, PAIR.truth.partner(400)[anchors.x]], 1))
    assert outcome.metrics["references"]["gt"]["x_to_y"]["mrr"] == pytest.approx(mrr(gt), abs=2e-3)


def test_the_same_seed_gives_the_same_result(outcome):
    again = align(PAIR, method("ao", anchors=100), SEEDS)
    for name, array in outcome.arrays.items():
        np.testing.assert_array_equal(array, again.arrays[name], err_msg=name)
    assert again.metrics == outcome.metrics


def test_encoders_bring_vectors_never_seen_where_their_twins_are(outcome):
    fresh = torch.from_numpy(PAIR.x.vectors[:7].copy())
    torch.testing.assert_close(
        outcome.alignment.encode_x(outcome.preprocess_x(fresh)), outcome.alignment.x[:7], atol=1e-5, rtol=1e-4
    )


def test_truth_does_not_reach_the_method(outcome):
    """With the truth withheld the alignment is the same to the last bit; only the scores are gone."""
    blind = align(Pair(PAIR.x, PAIR.y, None), method("ao", anchors=100), SEEDS)
    torch.testing.assert_close(blind.alignment.y, outcome.alignment.y, rtol=0, atol=0)
    assert set(blind.metrics) == {"hubness", "rules"}


def test_stopped_half_way_it_keeps_the_last_snapshot_and_says_so():
    fit = Fit(PAIR, Task(method("ao", mode="paper", anchors=60, adam_steps=50), SEEDS))
    steps = fit.steps()
    for _ in range(5):
        next(steps)
    steps.close()
    assert fit.stop_early()
    kept = drain(fit.finish())
    assert len(kept.alignment.x) == 400 and not kept.alignment.converged
    assert any("stopped at step 5" in note for note in kept.alignment.notes)


def test_nothing_to_keep_before_the_first_step():
    assert not Fit(PAIR, Task(method("relative"), SEEDS)).stop_early()


def test_the_moving_side_is_drawn_in_the_frame_of_the_other():
    fit = Fit(PAIR, Task(method("ao", mode="paper", anchors=60, adam_steps=20), SEEDS, folds=0))
    frames = [p.frame for p in fit.steps() if p.frame is not None]
    assert len(frames) >= 2 and all(f.shape == (450, 2) for f in frames)
    assert fit.fixed_map.shape == (400, 2)
    assert not np.allclose(frames[0], frames[-1])


class Broken(Method):
    name, title, summary, source = "broken", "Broken", "", ""

    def steps(self, x, y, seeds, *, generator, device="cpu"):
        eye = Snapshot(torch.eye(x.shape[1], 4), torch.eye(y.shape[1], 4))
        yield Step(1, 3, "fit", {"loss": 1.0}, eye)
        yield Step(2, 3, "fit", {"loss": float("nan")}, eye)
        return Alignment(x, y)

    def estimate(self, *sizes):
        return Cost(0)


def test_a_quantity_that_becomes_nan_stops_the_run_at_the_last_good_step():
    fit = Fit(PAIR, Task(Broken(), SEEDS))
    with pytest.raises(RunFailed, match="loss became nan at step 2") as e:
        for _ in fit.steps():
            pass
    assert e.value.step == 1 and fit.stop_early()


@pytest.mark.parametrize("count, folds", [(5, 3), (15, 0)])
def test_without_held_out_seeds_nothing_is_called_aligned(count, folds):
    result = align(PAIR, method("ao", anchors=100), SEEDS.take(np.arange(count)), folds=folds)
    assert result.verdict.level != "aligned"


def test_a_device_that_is_not_there_is_refused():
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    with pytest.raises(InputError, match="no CUDA device"):
        pipeline.pick_device("cuda")


def test_restarts_of_a_step_reach_whoever_watches():
    fit = Fit(PAIR, Task(method=Restarting(count=4, length=10), seeds=SEEDS, folds=0))
    told = [p.restarts for p in fit.steps()]
    assert [r.ids.tolist() for r in told] == [[0, 1, 2, 3]] * 10 and told[-1].pruned == (0, 1)
    assert [(i, r) for i, r in enumerate(told, 1)] == fit.restarts
