"""The contrastive baseline: it learns from pairs, stops by held-out ones, and sees nothing else."""

from __future__ import annotations

import itertools

import numpy as np
import torch

from relcore import pipeline
from relcore.methods import method
from relcore.methods.student import Watch
from relcore.ops.distill import Training
from relcore.ops.neighbors import unit_rows
from relcore.ops.relative import Moments
from relcore.space import Pair, Pairs, make_space
from tests.methods.test_anchordot import planted, recall


def fitted(x, y, seeds, **params):
    generator = torch.Generator().manual_seed(0)
    return method("contrastive", **(dict(hidden=32) | params)).fit(x, y, seeds, generator=generator)


def test_it_finds_more_than_chance_from_pairs_alone():
    x, y, seeds, where = planted(anchors=120)
    run = fitted(x, y, seeds, steps_student=150)
    assert recall(run.x @ run.y.T, where, seeds) > 0.3
    torch.testing.assert_close(unit_rows(run.encode_x(x)), run.x, rtol=0, atol=1e-5)
    assert "held-out pairs" in run.notes[0] and run.coupling is None


def test_rows_without_a_partner_change_nothing():
    x, y, seeds, _ = planted()
    whole, part = fitted(x, y, seeds, steps_student=20), fitted(x[:100], y[:100], seeds, steps_student=20)
    torch.testing.assert_close(whole.x[:100], part.x, rtol=0, atol=1e-3)


def test_kept_is_the_step_at_which_held_out_pairs_do_best():
    x, y, seeds, _ = planted(noise=3.0)
    run = fitted(x, y, seeds, steps_student=200, learning_rate=0.01)
    losses = run.history["held-out loss"].dropna()
    assert losses.idxmin() < losses.index[-1]
    step = 2 * run.history["iteration"][losses.idxmin()]  # every second one is shown
    assert len(run.history) == 100 and f"after step {step} of 200" in run.notes[0]
    late = fitted(x, y, seeds, steps_student=200, learning_rate=0.01, early_stop=False)
    assert late.notes == [] and not torch.allclose(late.x, run.x)


def test_a_space_wider_than_its_pairs_can_span_is_seen_and_kept_when_stopped():
    x, y, seeds, _ = planted(anchors=30)
    spaces = [make_space(v.numpy())[0] for v in (x, y)]
    task = pipeline.Task(method=method("contrastive", hidden=32), seeds=seeds, device="cpu")
    fit = pipeline.Fit(Pair(*spaces), task)
    for _ in itertools.islice(fit.steps(), 12):
        pass
    assert fit.frames > 1 and fit.stop_early() and fit.alignment.x.shape == (260, 96)


def test_turning_a_wide_space_changes_no_cosine():
    x, y, seeds, _ = planted(anchors=30)
    pairs = [torch.from_numpy(r.copy()) for r in (seeds.x, seeds.y)]
    generator = torch.Generator().manual_seed(0)
    training = Training(x, y, pairs, steps=5, generator=generator, hidden=32)
    list(training)
    profile = Moments(x[:30], y[:30]).profile(1.0, 1.0)
    seen = Watch((x, y), profile).snapshot(training.weights)
    a, b = (unit_rows(w(v)) for w, v in zip(training.weights, (x, y), strict=True))
    turned = [unit_rows(m(v)) for m, v in ((seen.map_x, x), (seen.map_y, y))]
    torch.testing.assert_close(turned[0] @ turned[1].T, a @ b.T, rtol=0, atol=1e-5)
    frame = unit_rows(torch.cat([x @ profile.map_x, y @ profile.map_y]))
    overlap = [(torch.cat(v)[:, : frame.shape[1]] * frame).sum() for v in (turned, (a, b))]
    assert overlap[0] > overlap[1].abs()  # it was turned towards the frame


def test_few_pairs_and_a_linear_encoder():
    x, y, *_ = planted()
    run = fitted(x, y, Pairs(np.stack([np.arange(5)] * 2, 1)), steps_student=10, student="linear")
    assert "5 pairs are too few to hold some out" in run.notes[0] and run.encode_x.matrix.shape == (16, 96)
