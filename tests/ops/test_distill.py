"""Training of encoders: the loss against its definition, and that what can be learned is learned."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from relcore.ops import sinkhorn
from relcore.ops.distill import Training, pair_loss
from relcore.ops.neighbors import unit_rows


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def turned(n=120, dx=10, dy=14):
    """Rows, and the same rows in another frame."""
    x = unit_rows(torch.randn(n, dx, generator=generator()))
    q = torch.linalg.qr(torch.randn(dy, dx, generator=generator(1)))[0]
    return x, x @ q.T


def coupled(x, y, sharp=0.02):
    own = torch.linalg.lstsq(x, y).solution
    return sinkhorn.solve(sinkhorn.Problem(sinkhorn.cosine(x @ own, y), sharp)).coupling


NOBODY = (torch.zeros(0, dtype=torch.int64),) * 2


def found(training, x, y):
    fx, fy = training.weights
    return float(((fx(x) @ fy(y).T).argmax(1) == torch.arange(len(x))).double().mean())


def test_pair_loss_is_cross_entropy_both_ways():
    a, b = unit_rows(torch.randn(9, 5, generator=generator())), unit_rows(torch.randn(9, 5, generator=generator(1)))
    scores, own = a @ b.T / 0.2, torch.arange(9)
    wanted = (cross_entropy(scores, own) + cross_entropy(scores.T, own)) / 2
    torch.testing.assert_close(pair_loss(a, b, 0.2), wanted)


def test_plan_loss_is_cross_entropy_with_normalised_blocks():
    x, y = turned(30)
    coupling = coupled(x, y, sharp=0.5)
    training = Training(x, y, NOBODY, coupling, steps=1, generator=generator(), chunk=12, temperature=0.3)
    rows, columns = torch.arange(3, 15), torch.arange(10, 22)
    fx, fy = training.weights
    scores, block = fx(x[rows]) @ fy(y[columns]).T / 0.3, coupling.dense()[rows][:, columns].float()
    wanted = cross_entropy(scores, block / block.sum(1, keepdim=True))
    wanted = (wanted + cross_entropy(scores.T, (block / block.sum(0)).T)) / 2
    torch.testing.assert_close(training._plan_loss(rows, columns).detach(), wanted, rtol=1e-4, atol=1e-5)


def test_a_plan_of_one_hot_rows_gives_infonce():
    x, y = turned(20)
    coupling = coupled(x, y, sharp=1e-3)
    training = Training(x, y, (torch.arange(20),) * 2, coupling, steps=1, generator=generator())
    every = torch.arange(20)
    torch.testing.assert_close(training._plan_loss(every, every), training._pair_loss(every), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("hidden", [0, 32])
def test_the_plan_alone_teaches_both_encoders(hidden):
    x, y = turned()
    training = Training(x, y, NOBODY, coupled(x, y), steps=150, generator=generator(), hidden=hidden, chunk=60)
    losses = [s.loss for s in training]
    assert found(training, x, y) > 0.9 and np.mean(losses[-10:]) < np.mean(losses[:10])
    assert (training.weights[0].hidden is None) == (hidden == 0)


def test_pairs_alone_teach_too_and_the_rate_falls_as_a_cosine():
    x, y = turned()
    training = Training(x, y, (torch.arange(120),) * 2, steps=100, generator=generator(), learning_rate=0.01)
    states = list(training)
    assert [s.step for s in states] == list(range(1, 101)) and found(training, x, y) > 0.9
    wanted = [0.005 * (1 + np.cos(np.pi * t / 100)) for t in range(100)]
    np.testing.assert_allclose([s.learning_rate for s in states], wanted, atol=1e-9)


def test_encoders_begin_at_the_maps_they_are_given():
    x, y = turned()
    start = torch.randn(10, 6, generator=generator(2)), torch.randn(14, 6, generator=generator(3))
    training = Training(x, y, NOBODY, coupled(x, y), steps=1, generator=generator(), start=start)
    for w, v, s in zip(training.weights, (x, y), start, strict=True):
        torch.testing.assert_close(w(v), unit_rows(v @ s), rtol=0, atol=1e-5)


def test_the_same_generator_gives_the_same_encoders():
    x, y = turned(40)
    coupling = coupled(x, y)
    runs = [Training(x, y, NOBODY, coupling, steps=5, generator=generator(7)) for _ in range(2)]
    for r in runs:
        list(r)
    for a, b in zip(runs[0].weights[0], runs[1].weights[0], strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-4)  # but for the order of sums


def test_sides_of_different_size_are_both_seen_whole():
    x, y = turned(40)
    y = torch.cat([y, y, y])
    training = Training(x, y, (torch.arange(40),) * 2, steps=1, generator=generator(), chunk=30)
    seen = [next(c) for c in (training._chunks(120),) for _ in range(4)]
    assert sorted(torch.cat(seen).tolist()) == list(range(120))
    chunks = training._chunks(7)
    assert sorted(next(chunks).tolist()) == list(range(7))


def test_rows_of_any_norm_are_learned_alike():
    x, y = turned()
    plan = coupled(x, y)
    rows = torch.arange(20)
    codes = []
    for scale in (1.0, 1e6, 1e-6):
        training = Training(x * scale, y * scale, (rows, rows), plan, steps=20, generator=generator(), hidden=16)
        list(training)
        codes.append(training.weights[0](x * scale))
    torch.testing.assert_close(codes[1], codes[0], rtol=0, atol=1e-3)
    torch.testing.assert_close(codes[2], codes[0], rtol=0, atol=1e-3)


def test_nothing_to_learn_from_is_refused():
    x, y = turned(10)
    with pytest.raises(ValueError, match="coupling or at least one pair"):
        Training(x, y, NOBODY, steps=1, generator=generator())
