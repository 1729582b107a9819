"""Dictionaries by CSLS and by profiles, beside the formulas written out in NumPy, float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from relcore.ops import dictionary
from relcore.ops.neighbors import unit_rows


def rows(n: int, d: int, seed: int = 0) -> torch.Tensor:
    return unit_rows(torch.randn(n, d, generator=torch.Generator().manual_seed(seed)))


def csls(a, b, k):
    s = a.double().numpy() @ b.double().numpy().T
    if not k:
        return s
    ra, rb = np.sort(s, 1)[:, -k:].mean(1), np.sort(s, 0)[-k:].mean(0)
    return 2 * s - ra[:, None] - rb


@pytest.mark.parametrize("k", [0, 1, 7])
def test_matches_are_the_formula(k, monkeypatch):
    a, b = rows(60, 5, 1), rows(45, 5, 2)
    want = csls(a, b, k)
    got = dictionary.matches(a, b, k)
    assert (got.to_b.numpy() == want.argmax(1)).all() and (got.to_a.numpy() == want.argmax(0)).all()
    s = csls(a, b, 0)
    assert got.best == pytest.approx((s.max(1).mean() + s.max(0).mean()) / 2, abs=1e-6)
    mutual = {(i, j) for i, j in enumerate(want.argmax(1)) if want.argmax(0)[j] == i}
    assert set(map(tuple, got.mutual.tolist())) == mutual and len(got.mutual) == len(mutual)
    union = sorted([(i, j) for i, j in enumerate(want.argmax(1))] + [(i, j) for j, i in enumerate(want.argmax(0))])
    assert sorted(map(tuple, got.union.tolist())) == union
    monkeypatch.setattr(dictionary.tiles, "__defaults__", (100,))
    assert torch.equal(dictionary.matches(a, b, k).to_b, got.to_b), "tiles change nothing"


def test_chance_keeps_the_best_match_as_often_as_it_says_and_can_leave_none():
    a, b = rows(4000, 6, 1), rows(3, 6, 2)
    best = dictionary.matches(a, b, 0)
    got = dictionary.matches(a, b, 0, 0.3, torch.Generator().manual_seed(0))
    assert float((got.to_b == best.to_b).float().mean()) == pytest.approx(0.3, abs=0.03)
    assert float((got.to_b < 0).float().mean()) == pytest.approx(0.7**3, abs=0.03)
    assert got.best == pytest.approx(best.best, abs=1e-6), "what is judged is not left to chance"
    assert (got.union >= 0).all() and (got.mutual >= 0).all()
    again = dictionary.matches(a, b, 0, 0.3, torch.Generator().manual_seed(0))
    assert torch.equal(got.to_b, again.to_b)


def test_profiles_are_the_sorted_root_of_the_gram_matrix_and_know_no_turn():
    v = rows(30, 6)
    values, vectors = np.linalg.eigh((v.double() @ v.double().T).numpy())
    root = np.sort((vectors * np.sqrt(values.clip(0))) @ vectors.T, 1)
    root /= np.linalg.norm(root, axis=1, keepdims=True)
    root -= root.mean(0)
    root /= np.linalg.norm(root, axis=1, keepdims=True)
    np.testing.assert_allclose(dictionary.profiles(v).numpy(), root, atol=1e-4)
    turn = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(1)))[0]
    torch.testing.assert_close(dictionary.profiles(v @ turn), dictionary.profiles(v), rtol=0, atol=1e-4)
