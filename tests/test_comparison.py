"""Runs side by side, against ranks counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from relcore import comparison, methods, runs
from relcore.errors import InputError
from relcore.space import LoadReport, Pair, Pairs, make_space

N, DIM = 80, 6


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Runs on one noisy rotation: Procrustes twice with other seeds, relative, one that failed, one of other data."""
    home = tmp_path_factory.mktemp("home")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((N, DIM))
    y = x @ np.linalg.qr(rng.standard_normal((DIM, DIM)))[0] + 0.3 * rng.standard_normal((N, DIM))
    report = LoadReport("made", "npy", N, N, DIM, "float32")
    pair = Pair(make_space(x, title="left")[0], make_space(y, title="right")[0], Pairs.by_row(N))
    other = Pair(pair.y, pair.x, Pairs.by_row(N))
    order = rng.permutation(N)

    def run(pair: Pair, name: str, seeds: np.ndarray, title: str, seed: int = 0, done: bool = True, **params):
        made = runs.create(
            pair,
            method=methods.method(name, **params),
            seeds=Pairs.by_row(N).take(np.sort(seeds)),
            reports=(report, report),
            folder=home / title,
            title=title,
            seed=seed,
            folds=0,
            keep_spaces=False,
        )
        if not done:
            made.mark("failed", "on purpose")
            return made
        for _ in runs.execute(made, pair):
            pass
        return made

    return {
        "a": run(pair, "procrustes", order[:8], "a"),
        "b": run(pair, "procrustes", order[8:16], "b", seed=1),
        "rr": run(pair, "relative", order[:8], "rr", similarity="centred"),
        "broken": run(pair, "procrustes", order[:8], "broken", done=False),
        "other": run(other, "procrustes", order[:8], "other"),
    }


def ranks(run, way: str) -> np.ndarray:
    arrays = run.alignment_arrays()
    a, b = (arrays[s].astype(np.float64) for s in ("xy" if way == "x_to_y" else "yx"))
    a, b = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (a, b))
    scores = a @ b.T
    return (scores > scores.diagonal()[:, None] + 1e-9).sum(1) + 1


def test_runs_of_other_data_stand_apart(made):
    found = comparison.groups(list(made.values()))
    assert sorted(len(g.runs) for g in found) == [1, 4]
    (big,) = [g for g in found if len(g.runs) == 4]
    assert big.seeds_differ and big.title == "left (80 x 6), right (80 x 6)"
    with pytest.raises(InputError, match="share no truth"):
        comparison.scored([made["a"], made["other"]])


def test_every_run_is_scored_on_pairs_that_none_was_told(made):
    of = [made[k] for k in ("a", "b", "rr")]
    told = np.unique(np.concatenate([r.pairs[0].x for r in of]))
    assert len(told) == 16
    pairs = comparison.scored(of)
    np.testing.assert_array_equal(pairs.x, np.setdiff1d(np.arange(N), told))
    table = comparison.table(of, [r.analysis for r in of])
    for i, run in enumerate(of):
        for way in ("x_to_y", "y_to_x"):
            rank = ranks(run, way)[pairs.x]
            assert table.loc[i, f"r@1 {way}"] == pytest.approx((rank == 1).mean())
            assert table.loc[i, f"mrr {way}"] == pytest.approx(np.where(rank <= 10, 1 / rank, 0).mean())


def test_runs_that_differ_by_chance_alone_are_a_mean_and_a_spread(made):
    of = [made[k] for k in ("a", "b", "rr")]
    table = comparison.table(of, [r.analysis for r in of])
    lines = comparison.over_seeds(table)
    assert lines["n"].tolist() == [2, 1] and lines["title"].tolist() == ["a", "rr"]
    both = table["mrr x_to_y"][:2]
    assert lines["mrr x_to_y"][0] == pytest.approx(both.mean())
    assert lines["mrr x_to_y sd"][0] == pytest.approx(both.std(ddof=1)) and np.isnan(lines["mrr x_to_y sd"][1])


def test_the_same_rows_paired_otherwise_are_other_data(made):
    a = made["a"]
    other = runs.Run(a.folder, a.record)
    turned = np.arange(N)
    turned[20:] = np.roll(turned[20:], 1)
    other.__dict__["pairs"] = (a.pairs[0], Pairs(np.stack([np.arange(N), turned], 1)))
    assert comparison.data_key(other) != comparison.data_key(a)
    other.__dict__["pairs"] = (a.pairs[0], a.pairs[1].take(np.arange(N)[::-1]))
    assert comparison.data_key(other) == comparison.data_key(a)


def test_what_did_not_end_alike_is_not_averaged(made):
    a, b, broken = (made[k] for k in ("a", "b", "broken"))
    stopped = runs.Run(b.folder, b.record | {"status": "cancelled"})
    of = [a, b, stopped, broken]
    lines = comparison.over_seeds(comparison.table(of, [a.analysis, b.analysis, b.analysis, None]))
    assert list(zip(lines["status"], lines["n"], strict=True)) == [("done", 2), ("cancelled", 1), ("failed", 1)]


def test_how_seeds_were_drawn_is_a_setting_and_with_which_number_is_none(made):
    a = made["a"]
    one, two, spread = (
        comparison.setup(runs.Run(a.folder, a.record | {"seeds_origin": text}))
        for text in ("8 drawn at random (seed 0)", "8 drawn at random (seed 1)", "8 by farthest point (seed 0)")
    )
    assert one == two != spread


def test_a_failed_run_has_a_row_and_no_figures(made):
    of = [made["a"], made["broken"]]
    table = comparison.table(of, [made["a"].analysis, None])
    assert table["status"].tolist() == ["done", "failed"] and np.isnan(table["mrr x_to_y"][1])


def test_differences_are_told_in_a_line(made):
    assert comparison.difference(made["a"], made["a"]) == "baseline"
    assert comparison.difference(made["b"], made["a"]) == "other seeds, random seed 1"
    assert comparison.difference(made["rr"], made["a"]) == "similarity=centred"
    assert comparison.changed(made["rr"]) == {"similarity": "centred"} and comparison.changed(made["a"]) == {}


def test_wins_and_agreement_by_hand(made):
    a, rr = made["a"], made["rr"]
    pairs = comparison.scored([a, rr])
    mine, theirs = comparison.wins(a.analysis, rr.analysis, pairs, "y_to_x")
    rank = ranks(a, "y_to_x")[pairs.y]
    np.testing.assert_allclose(mine, np.where(rank <= 10, 1 / rank, 0))
    assert mine.mean() != theirs.mean()
    matrix = comparison.agreement([a.analysis, rr.analysis], "x_to_y")
    nearest = [r.analysis["x_to_y/nearest/indices"][:, 0] for r in (a, rr)]
    assert matrix[0, 0] == 1 and matrix[0, 1] == matrix[1, 0] == (nearest[0] == nearest[1]).mean() < 1
    assert np.isnan(comparison.agreement([a.analysis], "x_to_y", "coupling")).all()
