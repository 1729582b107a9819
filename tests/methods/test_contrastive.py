"""The contrastive baseline: it learns from pairs, stops by held-out ones, and sees nothing else."""

from __future__ import annotations

import numpy as np
import torch

from relcore.methods import method
from relcore.ops.neighbors import unit_rows
from relcore.space import Pairs
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
    assert f"after {run.history['iteration'][losses.idxmin()]} of {len(run.history)} reports" in run.notes[0]
    late = fitted(x, y, seeds, steps_student=200, learning_rate=0.01, early_stop=False)
    assert late.notes == [] and not torch.allclose(late.x, run.x)


def test_few_pairs_and_a_linear_encoder():
    x, y, *_ = planted()
    run = fitted(x, y, Pairs(np.stack([np.arange(5)] * 2, 1)), steps_student=10, student="linear")
    assert "5 pairs are too few to hold some out" in run.notes[0] and run.encode_x.matrix.shape == (16, 96)
