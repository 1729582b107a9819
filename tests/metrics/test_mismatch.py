"""Coverage, null, regions and gate on planted spaces: clusters on the sphere, one of which one side lacks."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from relcore import pipeline
from relcore.methods import method
from relcore.metrics import mismatch
from relcore.ops.neighbors import unit_rows
from relcore.space import Pair, Pairs, make_space


def clusters(rows=60, classes=6, dim=8, seed=0, spread=0.35):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(classes, dim))
    labels = np.repeat(np.arange(classes), rows)
    points = centres[labels] / np.linalg.norm(centres, axis=1)[labels][:, None]
    return points + spread * rng.normal(size=points.shape) / np.sqrt(dim), labels


@pytest.fixture(scope="module")
def lacking():
    """The same things on both sides, y without class 2: (arrays, labels of x, labels of y)."""
    x, labels = clusters()
    kept = labels != 2
    noisy = x + 0.02 * np.random.default_rng(1).normal(size=x.shape)
    sides = [torch.from_numpy(v).float() for v in (x, noisy[kept])]
    return mismatch.analyse(*sides), labels.astype(str), labels[kept].astype(str)


def default(arrays):
    return mismatch.default_position(arrays)


def record(mrr=0.9, level="aligned", held=True):
    held_out = {"count": 12, "mrr": mrr} if held else None
    health = {"held_out": held_out, "held_out_skipped": "" if held else "0 seeds, 6 needed"}
    return {"health": health, "verdict": {"level": level, "text": f"looks {level}: figures."}}


def test_means_are_those_of_the_definition(lacking):
    arrays, labels, _ = lacking
    x, _ = clusters()
    x = unit_rows(torch.from_numpy(x).float()).double()
    angle = torch.acos((x @ x.T).clamp(-1, 1))
    for i in (0, default(arrays), len(arrays["mismatch/sigma"]) - 1):
        kernel = torch.exp(-(angle**2) / (2 * arrays["mismatch/sigma"][i] ** 2)).fill_diagonal_(0)
        want = kernel.sum(1) / (len(x) - 1)
        np.testing.assert_allclose(arrays["mismatch/x/own"][:, i], want, rtol=2e-4, atol=1e-7)
    assert len(arrays["mismatch/sigma"]) == 26 and (np.diff(arrays["mismatch/sigma"]) >= 0).all()
    assert arrays["mismatch/sigma"][arrays["mismatch/paper"][0]] == 0.2
    ninth = np.sort(angle.numpy() + np.eye(len(x)) * 9, axis=1)[:, 9]
    scale = arrays["mismatch/sigma"][-1] / 2  # the grid ends at twice the scale
    assert 0.8 < scale / np.median(ninth) < 1.25  # the other side is about as dense
    lower = np.minimum(arrays["mismatch/x/null"], arrays["mismatch/y/null"])
    assert lower[default(arrays)] <= mismatch.EVEN and arrays["mismatch/sigma"][default(arrays)] <= scale * 1.0001


def test_the_missing_class_is_lowest_and_found_by_its_rows(lacking):
    arrays, labels_x, labels_y = lacking
    i = default(arrays)
    values, flags = mismatch.coverage(arrays, "x", i), mismatch.flagged(arrays, "x", i)
    first, second, *_ = mismatch.by_class(values, flags, labels_x)
    assert first.label == "2" and first.flagged > 0.9 and first.rows == 60 and second.flagged < 0.1
    assert mismatch.auroc(values, labels_x == "2") == pytest.approx(roc_auc_score(labels_x == "2", -values))
    assert mismatch.auroc(values, labels_x == "2") > 0.98
    gate = mismatch.gate(record(), arrays, "x", labels_x, labels_y)
    assert gate.level == "green" and gate.missing == ("2",) and "no counterpart in B: 2 (60 rows" in gate.text
    other = mismatch.gate(record(), arrays, "y", labels_y, labels_x)
    assert other.level == "green" and not other.missing and "Nothing in B" in other.text


def test_without_labels_the_missing_class_is_a_region(lacking):
    arrays, labels_x, _ = lacking
    found = mismatch.regions(arrays, "x")
    assert (labels_x[found[0].rows] == "2").mean() > 0.95 and len(found[0].rows) > 50
    gate = mismatch.gate(record(), arrays, "x")
    assert gate.level == "green" and gate.missing == ("region 1",)
    assert mismatch.gate(record(), arrays, "y").missing == ()


@pytest.mark.parametrize(
    ("given", "level", "says"),
    [
        (record(mrr=0.2), "red", "mean reciprocal rank of 0.20, 0.4 is needed"),
        (record(level="chance"), "red", "looks chance"),
        (record(level="collapsed"), "red", "looks collapsed"),
        (record(level="unclear", held=False), "red", "no seeds were held out"),
        (record(level="aligned", held=False), "amber", "not conclusive"),
    ],
)
def test_a_weak_alignment_never_names_a_missing_class(lacking, given, level, says):
    arrays, labels_x, _ = lacking
    gate = mismatch.gate(given, arrays, "x", labels_x)
    assert gate.level == level and says in gate.text and gate.missing == ()


def test_a_class_that_is_covered_in_one_of_the_held_out_fits_is_not_called_missing(lacking):
    arrays, labels_x, _ = lacking
    values = mismatch.coverage(arrays, "x", default(arrays))
    steady = arrays | {"mismatch/x/folds": np.stack([values, values]).astype(np.float32)}
    assert mismatch.gate(record(), steady, "x", labels_x).missing == ("2",)
    wavering = np.stack([values, np.where(labels_x == "2", 2.0, values)]).astype(np.float32)
    gate = mismatch.gate(record(), arrays | {"mismatch/x/folds": wavering}, "x", labels_x)
    assert gate.level == "amber" and not gate.missing and "not conclusive: 2 of A" in gate.text


def test_a_class_of_both_sides_that_does_not_meet_itself_is_called_misaligned():
    """What a fit does with classes that no seed is of: they lie beside each other, low on both sides."""
    x, labels = clusters()
    y = x.copy()
    y[labels == 2] = x[labels == 2] @ np.linalg.qr(np.random.default_rng(9).normal(size=(8, 8)))[0]
    arrays = mismatch.analyse(*(torch.from_numpy(v).float() for v in (x, y)))
    names = labels.astype(str)
    for side in "xy":
        gate = mismatch.gate(record(), arrays, side, names, names)
        assert gate.level == "amber" and not gate.missing and "misaligned rather than missing" in gate.text
        blind = mismatch.gate(record(), arrays, side)
        assert blind.level == "amber" and not blind.missing and "misaligned rather than missing" in blind.text


def test_where_much_is_missing_no_list_of_classes_is_given():
    x, labels = clusters()
    kept = labels < 3
    arrays = mismatch.analyse(*(torch.from_numpy(v).float() for v in (x, x[kept])))
    gate = mismatch.gate(record(), arrays, "x", labels.astype(str))
    assert gate.level == "amber" and "overlap little" in gate.text and not gate.missing


def test_identical_spaces_lack_nothing():
    x, labels = clusters()
    v = torch.from_numpy(x).float()
    arrays = mismatch.analyse(v, v)
    for side in "xy":
        assert mismatch.flagged(arrays, side, default(arrays)).mean() < 0.02
        assert mismatch.gate(record(), arrays, side, labels.astype(str)).missing == ()


@pytest.mark.parametrize("n", [1, 2, 3, 12])
def test_few_rows_flag_nothing_and_say_so(n):
    v = torch.randn(n, 4, generator=torch.Generator().manual_seed(n))
    arrays = mismatch.analyse(v, v.flip(0))
    assert not mismatch.flagged(arrays, "x", default(arrays)).any()
    assert f"A has {n} rows, too few" in mismatch.gate(record(), arrays, "x").text


def test_rows_on_one_point_are_covered():
    v = torch.ones(40, 3)
    arrays = mismatch.analyse(v, v[:30])
    np.testing.assert_allclose(mismatch.coverage(arrays, "x", default(arrays)), 1.0, rtol=1e-3)
    assert not mismatch.flagged(arrays, "x", default(arrays)).any()


def test_sides_of_very_different_size_are_compared_by_means():
    x, labels = clusters(rows=200)
    few = np.random.default_rng(3).permutation(len(x))[:60]
    arrays = mismatch.analyse(torch.from_numpy(x).float(), torch.from_numpy(x[few]).float())
    assert 0.7 < np.median(mismatch.coverage(arrays, "x", len(arrays["mismatch/sigma"]) - 1)) < 1.3


def test_a_large_side_is_measured_against_a_sample_that_is_counted(monkeypatch):
    x, labels = clusters(rows=100)
    kept = labels != 2
    sides = [torch.from_numpy(v).float() for v in (x, x[kept])]
    monkeypatch.setattr(mismatch, "REFERENCE", 200)
    arrays = mismatch.analyse(*sides, seed=1)
    assert arrays["mismatch/x/reference"][0] == 200 and len(arrays["mismatch/x/own"]) == 600
    first, *_ = mismatch.by_class(
        mismatch.coverage(arrays, "x", default(arrays)), mismatch.flagged(arrays, "x", default(arrays)), labels
    )
    assert first.label == "2" and first.flagged > 0.9
    again = mismatch.analyse(*sides, seed=1)
    np.testing.assert_array_equal(arrays["mismatch/x/cross"], again["mismatch/x/cross"])


def test_classes_of_few_rows_and_rows_without_a_label_are_listed_not_judged():
    values = np.array([0.1] * 4 + [0.2] * 6 + [0.9] * 10)
    labels = ["rare"] * 4 + [""] * 6 + ["<b>big</b>"] * 10
    rows = mismatch.by_class(values, values < 0.5, labels)
    assert [(r.label, r.rows, r.flagged, r.judged) for r in rows] == [
        ("rare", 4, 1.0, False), ("(none)", 6, 1.0, False), ("<b>big</b>", 10, 0.0, True)
    ]  # fmt: skip


def test_auroc_counts_ties_half_and_needs_both_groups():
    assert mismatch.auroc(np.array([1.0, 1.0, 1.0, 1.0]), np.array([True, False, True, False])) == 0.5
    assert mismatch.auroc(np.array([0.0, np.nan, 2.0]), np.array([True, True, False])) == 1.0
    assert np.isnan(mismatch.auroc(np.array([0.0, 1.0]), np.array([False, False])))


def test_the_seeds_alone_may_name_another_class(lacking):
    arrays, labels_x, _ = lacking
    assert mismatch.seed_disagrees(arrays, "x", labels_x) is None  # no seeds
    other = np.where(labels_x == "4", 0.1, 1.0).astype(np.float32)
    assert mismatch.seed_disagrees(arrays | {"mismatch/seed/x": other}, "x", labels_x) == ("2", "4")
    same = np.where(labels_x == "2", 0.1, 1.0).astype(np.float32)
    assert mismatch.seed_disagrees(arrays | {"mismatch/seed/x": same}, "x", labels_x) is None


def test_a_whole_run_names_the_missing_class_and_a_failed_one_does_not():
    x, labels = clusters()
    turn = np.linalg.qr(np.random.default_rng(5).normal(size=(8, 8)))[0]
    kept = np.flatnonzero(labels != 2)
    pairs = Pairs(np.stack([kept, np.arange(len(kept))], 1))
    pair = Pair(make_space(x)[0], make_space(x[kept] @ turn)[0], pairs)
    seeds = pairs.take(np.random.default_rng(0).permutation(len(pairs))[:30])
    for wrong, level, missing in ((False, "green", ("2",)), (True, "red", ())):
        used = Pairs(np.stack([seeds.x, np.roll(seeds.y, 7)], 1)) if wrong else seeds
        out = pipeline.align(pair, method("procrustes"), used)
        said = {"health": out.health, "verdict": {"level": out.verdict.level, "text": out.verdict.text}}
        assert out.arrays["mismatch/x/folds"].shape == (3, len(x)) and "mismatch/seed/y" in out.arrays
        gate = mismatch.gate(said, out.arrays, "x", labels.astype(str), labels[kept].astype(str))
        assert (gate.level, gate.missing) == (level, missing), gate.text
