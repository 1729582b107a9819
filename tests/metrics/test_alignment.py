"""Figures of parallel representations against their definitions and at their ends."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics.pairwise import cosine_similarity

from relcore.metrics import alignment


def randn(n: int, m: int, seed: int) -> torch.Tensor:
    return torch.randn(n, m, generator=torch.Generator().manual_seed(seed))


def test_every_ordered_pair_is_scored_by_its_definition():
    spaces = {name: randn(40, 6, 0) + 0.8 * randn(40, 6, 1 + i) for i, name in enumerate("abc")}
    out = alignment.between(spaces)
    assert [(r["source"], r["target"]) for r in out] == [*zip("aabbcc", "bcacab", strict=True)]
    for r in out:
        a, b = (spaces[r[k]].double().numpy() for k in ("source", "target"))
        scores = cosine_similarity(a, b)
        rank = 1 + (scores > scores.diagonal()[:, None]).sum(1)
        assert r["mrr"] == pytest.approx((1 / rank).mean())
        assert r["r@1"] == (rank <= 1).mean() and r["r@5"] == (rank <= 5).mean()
        assert r["nmse"] == pytest.approx(((a - b) ** 2).mean() / ((a.var(0).mean() + b.var(0).mean()) / 2))
        assert r["rr_std"] == pytest.approx(b.std(0).mean())
        s = np.linalg.svd(b - b.mean(0), compute_uv=False)
        assert r["effective_rank"] == pytest.approx(np.exp(-(s / s.sum() * np.log(s / s.sum())).sum()))
        a, b = a - a.mean(0), b - b.mean(0)
        gram_a, gram_b = a @ a.T, b @ b.T
        assert r["cka"] == pytest.approx((gram_a * gram_b).sum() / np.linalg.norm(gram_a) / np.linalg.norm(gram_b))


def test_equal_spaces_are_at_the_top_and_shuffled_ones_at_chance():
    v = randn(300, 8, 0)
    same = alignment.between({"a": v, "b": v.clone()})[0]
    assert (same["mrr"], same["r@1"], same["nmse"], same["nmse_scaled"]) == (1, 1, 0, 0)
    assert same["cka"] == pytest.approx(1)
    shuffled = v[torch.randperm(300, generator=torch.Generator().manual_seed(0))]
    other = alignment.between({"a": v, "b": shuffled})[0]
    chance = sum(1 / i for i in range(1, 301)) / 300
    assert other["mrr"] == pytest.approx(chance, abs=0.02)
    assert other["nmse"] == pytest.approx(2, abs=0.15) and other["cka"] < 0.1


def test_what_changes_a_figure_and_what_does_not():
    a, b = randn(60, 6, 0), randn(60, 6, 0) + randn(60, 6, 1)
    turn = torch.linalg.qr(randn(6, 6, 2))[0]
    assert alignment.linear_cka(a, 3 * b @ turn + 1) == pytest.approx(alignment.linear_cka(a, b))
    assert alignment.effective_rank(5 * a @ turn + 2) == pytest.approx(alignment.effective_rank(a), rel=1e-5)
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    assert alignment.nmse(a[:, order], b[:, order]) == pytest.approx(alignment.nmse(a, b))
    gain, shift = torch.rand(6) + 0.5, torch.arange(6.0)
    assert alignment.nmse(alignment.scaled(a), alignment.scaled(a * gain + shift)) == pytest.approx(0, abs=1e-9)


def test_a_constant_side_and_a_low_rank_are_no_accident():
    flat, v = torch.ones(20, 3), randn(20, 3, 0)
    assert alignment.linear_cka(flat, v) == 0 and alignment.effective_rank(flat) == 0
    assert alignment.rr_std(flat) == 0
    line = randn(20, 1, 1) @ randn(1, 5, 2)
    assert alignment.effective_rank(line) == pytest.approx(1, abs=1e-5)
    equal = torch.linalg.qr(randn(40, 5, 3) - randn(40, 5, 3).mean(0))[0]
    assert alignment.effective_rank(equal) == pytest.approx(5, abs=1e-3)


@pytest.mark.parametrize(
    "spaces",
    [{"a": randn(5, 3, 0), "b": randn(6, 3, 0)}, {"a": randn(5, 3, 0), "b": randn(5, 4, 0)}, {"a": randn(1, 3, 0)}],
)
def test_tables_that_are_not_parallel_are_refused(spaces):
    with pytest.raises(ValueError, match="row by row, of at least two rows; got a"):
        alignment.between(spaces)
