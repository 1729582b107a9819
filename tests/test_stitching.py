"""Stitching: planted spaces whose maps are known, scikit-learn by hand, and what is refused or told."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from relcore import stitching
from relcore.errors import InputError
from relcore.formats.linear_head import LinearHead
from relcore.metrics import stitching as parts
from relcore.ops.param import Training
from relcore.space import Pairs, Spaces, make_space
from relcore.stitching import Aligned, Settings, Stitcher, Unit

N, CLASSES, DIM = 240, 4, 8
RNG = np.random.default_rng(5)
LABELS = np.arange(N) % CLASSES
LATENT = 2.2 * RNG.standard_normal((CLASSES, DIM))[LABELS] + RNG.standard_normal((N, DIM))


def turned(dim: int, seed: int, condition: float = 1.0) -> np.ndarray:
    """The latent rows under a map of a condition number, and a shift, in dim >= DIM dimensions."""
    rng = np.random.default_rng(seed)
    q = np.linalg.qr(rng.standard_normal((dim, dim)))[0][:DIM]
    scale = condition ** rng.permutation(np.linspace(-0.5, 0.5, DIM))
    first = np.linalg.qr(rng.standard_normal((DIM, DIM)))[0]
    return LATENT @ first @ (scale[:, None] * q) + (rng.standard_normal(dim) if condition > 1 else 0)


def a_space(vectors: np.ndarray, title: str, labels=LABELS):
    return make_space(vectors, labels=None if labels is None else [str(k) for k in labels], title=title)[0]


def planted(*dims: int, condition: float = 1.0, labels=LABELS) -> Spaces:
    spaces = [a_space(turned(d, i, condition), f"s{i}", labels) for i, d in enumerate(dims)]
    return Spaces(tuple(spaces), np.repeat(np.arange(N)[:, None], len(dims), 1))


def ask(spaces: Spaces, **settings) -> dict[Unit, dict]:
    more = {k: settings.pop(k) for k in ("labels", "aligned", "head") if k in settings}
    question = Stitcher(spaces, Settings(**settings), **more)
    out = {Unit(*(r[name] for name in Unit._fields)): r for r in question.steps()}
    assert list(out) == question.units()
    return out


def test_absolute_coordinates_are_those_of_a_classifier_made_by_hand():
    spaces = planted(8, 8)
    found = ask(spaces, references=("absolute",))
    split = parts.split(LABELS.astype(str), 0.25, 0)
    v = spaces.spaces[0].vectors.astype(np.float64)
    shift = v[split.train].mean(0)
    v = (v - shift) / np.sqrt(((v[split.train] - shift) ** 2).mean())
    by_hand = LogisticRegression(max_iter=300).fit(v[split.train], LABELS[split.train])
    own = found[Unit("absolute", 0, 0, 0)]
    assert own["accuracy"] == own["own_accuracy"] == by_hand.score(v[split.test], LABELS[split.test]) > 0.9
    assert (own["trained"], own["tested"]) == (180, 60)
    assert own["majority"] == pytest.approx(0.25)
    # another orthonormal frame is no help to the classifier of the first
    assert found[Unit("absolute", 0, 1, 0)]["accuracy"] < 0.6
    assert {u for u in ask(planted(8, 9), references=("absolute",)) if u.decoder != u.encoder} == set()


def test_whitened_products_without_shrinkage_read_an_affine_copy_as_its_original():
    spaces = planted(8, 8, condition=30.0)
    found = ask(
        spaces,
        references=(),
        ways=("random+wip", "kmeans+wip", "single+wip", "random+cosine"),
        anchors=12,
        shrinkage="fixed",
        shrinkage_amount=0.0,
    )
    for way in ("random+wip", "kmeans+wip", "single+wip"):
        r = found[Unit(way, 0, 1, 0)]
        assert r["accuracy"] == r["own_accuracy"] and r["nmse"] < 1e-6 and r["r@1"] == 1
    blind = found[Unit("random+cosine", 0, 1, 0)]
    assert blind["nmse"] > 0.05 and blind["r@1"] < 0.5


def test_a_run_that_is_right_reads_the_other_side_as_well_as_its_own():
    spaces = planted(8, 8)
    x, y = (s.vectors for s in spaces.spaces)
    u, _, vt = np.linalg.svd(x.T @ y)
    aligned = Aligned(0, 1, x @ (u @ vt), y, Pairs.by_row(5), "right")
    wrong = dataclasses.replace(aligned, x=x)
    found = ask(spaces, references=("seeds",), aligned=aligned)
    right = found[Unit("run", 0, 1, 0)]
    assert right["accuracy"] == right["own_accuracy"] > 0.9 and right["mrr"] == 1
    assert ask(spaces, references=(), aligned=wrong)[Unit("run", 0, 1, 0)]["accuracy"] < 0.6
    assert any("5 seeds of right" in n for n in found[Unit("seeds", 1, 0, 0)]["notes"])
    assert any("fitted on all rows" in n for n in right["notes"])


def test_all_pairs_by_least_squares_undo_an_affine_map():
    found = ask(planted(8, 10, condition=30.0), references=("translated",))
    for unit, r in found.items():
        assert r["accuracy"] == pytest.approx(r["own_accuracy"], abs=0.02) and r["r@1"] > 0.99, unit


def test_nothing_is_taken_of_a_test_row():
    spaces = planted(8, 9, 10)
    question = Stitcher(spaces, Settings(ways=stitching.USUAL, anchors=12))
    draw = question.draw(0)
    other = []
    for i, s in enumerate(spaces.spaces):
        vectors = s.vectors.copy()
        vectors[draw.test[i]] = 1e3 * np.random.default_rng(i).standard_normal((len(draw.test[i]), s.dim))
        other.append(dataclasses.replace(s, vectors=vectors))
    spoilt = Stitcher(Spaces(tuple(other), spaces.rows), question.settings)
    for unit in question.units():
        before, after = (q.draw(0).describe(unit) for q in (question, spoilt))
        for i in {unit.decoder, unit.encoder}:
            rows = draw.train[i]
            np.testing.assert_array_equal(before.of(i, rows), after.of(i, rows), err_msg=str(unit))
    assert not set(draw.items[:, 0]) & set(draw.test_items[:, 0])


def test_a_space_held_out_has_no_part_in_anchors_and_shrinkage():
    spaces = planted(8, 9, 10)
    noise = a_space(np.random.default_rng(1).standard_normal((N, 10)), "noise")
    spoilt = Spaces((*spaces.spaces[:2], noise), spaces.rows)
    settings = Settings(ways=("multi+wip", "cca+wip"), anchors=12, hold_out=True)
    for way in settings.ways:
        told = [Stitcher(s, settings).draw(0).anchors(stitching.Way.parse(way), 0, [0, 1]) for s in (spaces, spoilt)]
        assert (told[0][0] == told[1][0]).all() and told[0][1] == told[1][1]
    with pytest.raises(InputError, match="needs three"):
        Stitcher(planted(8, 9), settings)
    found = ask(spaces, references=(), **{k: getattr(settings, k) for k in ("ways", "anchors", "hold_out")})
    assert len(found) == 12 and all(r["accuracy"] > 0.85 for r in found.values())  # Algorithm 1 on a space never seen


def test_draws_differ_and_a_seed_gives_the_same_again():
    settings = dict(references=(), ways=("multi+wip",), anchors=6, draws=2, seed=3)
    first, again = ask(planted(8, 9), **settings), ask(planted(8, 9), **settings)
    timeless = [{k: v for k, v in r.items() if "seconds" not in k} for r in (*first.values(), *again.values())]
    assert timeless[: len(first)] == timeless[len(first) :]
    a, b = first[Unit("multi+wip", 0, 1, 0)], first[Unit("multi+wip", 0, 1, 1)]
    assert a["mrr"] != b["mrr"] or a["nmse"] != b["nmse"]


@pytest.mark.parametrize("way", [f"{a}+cosine" for a in stitching.ANCHORS])
def test_every_kind_of_anchor_is_shared_by_index(way):
    """Rows that are one thing in both spaces: under a rotation, cosines to them do not change."""
    found = ask(planted(8, 8), references=(), ways=(way,), anchors=7)
    assert found[Unit(way, 0, 1, 0)]["nmse"] < 1e-9


@pytest.mark.parametrize("similarity", stitching.SIMILARITIES)
def test_every_similarity_sees_no_rotation(similarity):
    """Of support and rows alike, so that nothing but the rotation tells the two spaces apart."""
    way = f"kmeans+{similarity}"
    r = ask(planted(8, 8), references=(), ways=(way,), anchors=6)[Unit(way, 0, 1, 0)]
    assert r["nmse"] < 1e-6 and r["accuracy"] == r["own_accuracy"] > 0.8


def test_labels_that_are_missing_alone_or_never_learned_are_told():
    labels = LABELS.astype(str).astype(object)
    labels[:10] = ""
    labels[11] = "alone"
    x = a_space(turned(8, 0), "x")
    rest = np.flatnonzero(labels != "2")
    y = a_space(turned(8, 1)[rest], "y", labels[rest])
    spaces = Spaces((dataclasses.replace(x, labels=labels), y), np.stack([rest, np.arange(len(rest))], 1))
    question = Stitcher(spaces, Settings(references=("full",)))
    results = {(r["decoder"], r["encoder"]): r for r in question.steps()}
    assert "x: 10 of 240 rows have no label; neither learned nor tested" in question.notes
    assert any("classes of one item" in n and "alone" in n for n in results[0, 1]["notes"])
    assert any("never learned, so always missed: 2" in n for n in results[1, 0]["notes"])
    draw = question.draw(0)
    assert not (question.labels[0][np.concatenate([draw.train[0], draw.test[0]])] == "").any()
    assert 11 in draw.train[0]  # the class of one item is learned from
    said = question.predictions[Unit("full", 1, 0, 0)]
    assert "2" not in {question.classes[i] for i in said}


def test_a_space_without_labels_takes_those_of_its_items():
    spaces = planted(8, 8)
    bare = dataclasses.replace(spaces.spaces[1], labels=None)
    question = Stitcher(Spaces((spaces.spaces[0], bare), spaces.rows), Settings(references=("translated",)))
    assert question.notes == ["s1: labels are those of the same items in s0"]
    results = [{k: v for k, v in r.items() if "seconds" not in k} for r in question.steps()]
    labelled = ask(spaces, references=("translated",)).values()
    assert results == [{k: v for k, v in r.items() if "seconds" not in k} for r in labelled]
    with pytest.raises(InputError, match="s1 has no labels"):
        Stitcher(Spaces((spaces.spaces[0], bare)), Settings())


def test_ordered_labels_have_an_error_in_their_own_unit():
    spaces = planted(8, 8)
    r = ask(spaces, references=("translated",), ordered=True)[Unit("translated", 0, 1, 0)]
    question = Stitcher(spaces, Settings(references=("translated",), ordered=True))
    list(question.steps())
    said = np.array(question.classes)[question.predictions[Unit("translated", 0, 1, 0)]].astype(float)
    truth = LABELS[question.draw(0).test[1]]
    assert r["mae"] == pytest.approx(np.abs(said - truth).mean())
    with pytest.raises(InputError, match="ordered labels are numbers, and one of them is 'cat'"):
        Stitcher(planted(8, 8, labels=["cat"] * 9 + list(LABELS[9:])), Settings(ordered=True))


def test_a_linear_head_is_read_by_its_own_coordinates_the_runs_or_a_translation():
    spaces = planted(8, 9)
    x, y = (s.vectors.astype(np.float64) for s in spaces.spaces)
    model = LogisticRegression(max_iter=500).fit(x, LABELS)
    head = LinearHead(model.coef_, model.intercept_, None, "head.npz")
    line = np.linalg.lstsq(x, y, rcond=None)[0]
    aligned = Aligned(0, 1, (x @ line).astype(np.float32), y.astype(np.float32), Pairs.by_row(5))
    found = ask(spaces, classifier="head", head=head, aligned=aligned, ways=("multi+wip",), anchors=12)
    own = found[Unit("absolute", 0, 0, 0)]
    split = parts.split(LABELS.astype(str), 0.25, 0)
    assert own["accuracy"] == pytest.approx((model.predict(x[split.test]) == LABELS[split.test]).mean())
    assert {u.decoder for u in found} == {0}  # it reads 8 numbers, and the other space has 9
    for name in ("translated", "multi+wip", "run"):
        r = found[Unit(name, 0, 1, 0)]
        assert r["accuracy"] == pytest.approx(own["accuracy"], abs=0.07), name
    assert any("R² 1.00" in n for n in found[Unit("multi+wip", 0, 1, 0)]["notes"])
    common = LogisticRegression(max_iter=500).fit(parts.unit(aligned.x[:, :9]), LABELS)
    wide = LinearHead(common.coef_, common.intercept_, None, "wide.npz")
    read = ask(spaces, classifier="head", head=wide, aligned=aligned, references=())
    assert read[Unit("run", 0, 1, 0)]["accuracy"] > 0.9
    for bad, said in (
        (LinearHead(np.ones((4, 7)), np.zeros(4), None, "h"), "reads rows of 7 numbers"),
        (LinearHead(np.ones((3, 8)), np.zeros(3), None, "h"), "3 classes without names and the data have 4"),
    ):
        with pytest.raises(InputError, match=said):
            Stitcher(spaces, Settings(classifier="head"), head=bad)
    with pytest.raises(InputError, match="give a file of W and b"):
        Stitcher(spaces, Settings(classifier="head"))


def test_without_a_classifier_partners_are_looked_for_and_no_labels_needed():
    spaces = planted(8, 9, labels=None)
    found = ask(spaces, classifier="none", references=("seeds", "absolute"), ways=("cca+wip",))
    assert found[Unit("cca+wip", 0, 1, 0)]["r@1"] > 0.9 and "accuracy" not in found[Unit("cca+wip", 0, 1, 0)]
    assert not [u for u in found if u.representation == "absolute"]  # of other dimensions
    with pytest.raises(InputError, match="say how rows pair up"):
        Stitcher(Spaces(spaces.spaces), Settings(classifier="none"))


def test_a_loss_that_breaks_keeps_the_last_good_anchors_and_says_so(monkeypatch):
    honest = Training._terms

    def broken(self, rows):
        return tuple(t * float("nan") if self.done == 3 else t for t in honest(self, rows))

    monkeypatch.setattr(Training, "_terms", broken)
    r = ask(planted(8, 9), references=(), ways=("multi+wip",), anchors=6)[Unit("multi+wip", 0, 1, 0)]
    assert not r["error"] and r["accuracy"] > 0.5
    assert any("became nan at step 4; the anchors are those of step 3" in n for n in r["notes"])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ways": ("random+wip",), "anchors": 200}, "200 anchors are asked of a support of 180"),
        (
            {"ways": ("random+wip",), "anchors": 5, "support": 8, "shrinkage": "fixed", "shrinkage_amount": 0.0},
            "no covariance of full rank in the 8 dimensions of s0",
        ),
        ({"ways": ("best+wip",)}, "'best\\+wip' is no description of rows"),
        ({"classifier": "forest"}, "classifier is 'forest'"),
        ({"test": 1.5}, "test is 1.5, wanted 0.01 to 0.99"),
        ({"references": ("gold",)}, "'gold' is no reference"),
    ],
)
def test_what_cannot_be_had_is_refused(settings, said):
    with pytest.raises(InputError, match=said):
        list(Stitcher(planted(8, 8), Settings(**settings)).steps())


def test_spaces_that_are_not_parallel_are_told_which_methods_work_without():
    with pytest.raises(InputError, match="HGA aligns; AO needs a few"):
        Stitcher(Spaces(planted(8, 8).spaces), Settings(ways=("multi+wip",)))


def test_hardly_any_items_in_common():
    a, b = planted(8, 8).spaces
    none, one = Spaces((a, b), np.empty((0, 2), dtype=int)), Spaces((a, b), np.array([[0, 0]]))
    assert {u.representation for u in ask(none)} == {"absolute"}
    with pytest.raises(InputError, match="items that all 2 spaces have, and there are none"):
        Stitcher(none, Settings(ways=("random+wip",), anchors=1))
    errors = {u.representation: r["error"] for u, r in ask(one).items()}
    assert [name for name, error in errors.items() if error] == ["translated"]
    assert errors["translated"] == "a translation is learned from two pairs or more, and there is 1."


def test_a_constant_column_and_one_class_a_space():
    spaces = planted(8, 8)
    still = dataclasses.replace(
        spaces.spaces[1], vectors=np.hstack([spaces.spaces[1].vectors, np.full((N, 1), 3, np.float32)])
    )
    found = ask(Spaces((spaces.spaces[0], still), spaces.rows), ways=stitching.USUAL, anchors=7)
    assert not [r for r in found.values() if r["error"]]
    one = dataclasses.replace(spaces.spaces[1], labels=np.array(["a"] * N, dtype=object))
    with pytest.raises(InputError, match="s1: 180 labelled rows to learn from .* wanted two classes"):
        list(Stitcher(Spaces((spaces.spaces[0], one), spaces.rows), Settings()).steps())


def test_the_estimate_grows_with_what_is_asked():
    """How near it comes was measured: between half and three times (the report of the page's making)."""
    spaces, ways = planted(8, 8), ("random+cosine", "multi+wip")

    def seconds(spaces: Spaces = spaces, aligned: Aligned | None = None, **more) -> float:
        return stitching.estimate(spaces, Settings(**({"ways": ways, "anchors": 20} | more)), aligned)

    base = seconds()
    assert 0 < seconds(classifier="none") < base < seconds(classifier="mlp")
    assert base < seconds(planted(8, 8, 8)) and base < seconds(ways=(*ways, "single+wip"))
    assert base < seconds(aligned=Aligned(0, 1, *np.zeros((2, N, 8), dtype=np.float32), Pairs.empty()))
    assert seconds(draws=3) - stitching.STARTING == pytest.approx(3 * (base - stitching.STARTING))
    unknown = Spaces(spaces.spaces, None)
    assert 0 < seconds(unknown, ways=()) < base


def test_an_item_that_two_of_three_spaces_have_is_not_learned_in_one_and_tested_in_the_other():
    a, b, c = planted(8, 8, 10).spaces
    turn = np.random.default_rng(2).permutation(N)  # rows of b stand in another order: only pairs tell which is which
    few = np.arange(60)
    back = Pairs(np.stack([np.arange(N), np.argsort(turn)], 1))
    for third in (Pairs(np.stack([few, few], 1)), None):
        spaces = Spaces.join((a, b.take(turn), c.take(few)), [back, third])
        draw = Stitcher(spaces, Settings(references=("absolute",))).draw(0)
        in_a = {0: draw.train[0], 1: draw.test[0]}
        in_b = {0: turn[draw.train[1]], 1: turn[draw.test[1]]}
        for learned, tested in ((in_a[0], in_b[1]), (in_b[0], in_a[1])):
            assert len(tested) == 60 and not set(learned) & set(tested)
        assert sorted(np.concatenate([*in_a.values()])) == list(range(N))
    assert len(Stitcher(spaces, Settings()).notes) == 1  # no item is known of all three
    bare = Spaces.join((a, dataclasses.replace(b.take(turn), labels=None), c.take(few)), [back, None])
    assert (Stitcher(bare, Settings()).labels[1] == LABELS[turn].astype(str)).all()  # labels go by any pairs


def test_what_others_train_on_tells_classifiers_apart(monkeypatch):
    """A kernel's ridge depends on the spaces that train: with one held out, so does what the classifier learns from."""
    from relcore.ops import similarity

    agreed, ridges = similarity.agreed_ridge, iter(np.logspace(-2, 1, 6))

    def other_each_time(supports, mixture=None, grid=similarity.GRID):
        found = agreed(supports, mixture, grid)
        return found._replace(ridge=float(next(ridges))) if grid is similarity.KERNEL_GRID else found

    monkeypatch.setattr(similarity, "agreed_ridge", other_each_time)
    question = Stitcher(
        planted(8, 9, 10), Settings(references=(), ways=("random+kernel",), anchors=6, support=60, hold_out=True)
    )
    assert not [r for r in question.steps() if r["error"]]
    assert sum(key[0] == "classifier" for key in question.draw(0).kept) == 6
    for unit in question.units():  # what is read is what was learned from
        described, other = (question.draw(0).describe(unit) for _ in range(2))
        assert described.key == other.key and ("classifier", *described.key) in question.draw(0).kept


def test_partners_are_not_looked_for_of_seeds_that_a_run_was_given():
    rng = np.random.default_rng(0)
    noise = [rng.standard_normal((N, 60)) for _ in range(2)]  # nothing in common: what is found is learned by heart
    spaces = Spaces(tuple(a_space(v, f"s{i}") for i, v in enumerate(noise)), planted(8, 8).rows)
    seeds = Pairs.by_row(N).take(np.sort(rng.permutation(N)[:120]))
    by_heart = noise[1].copy()
    by_heart[seeds.x] = noise[0][seeds.x]
    aligned = Aligned(0, 1, noise[0], by_heart, seeds, "by heart")
    found = ask(spaces, references=("seeds",), aligned=aligned)
    chance = (1 / np.arange(1, 31)).mean()
    for unit, r in found.items():
        assert r["judged"] + int(np.isin(Stitcher(spaces, Settings()).draw(0).test_items[:, 0], seeds.x).sum()) == 60
        assert r["mrr"] < 2 * chance, unit
        assert any("of the 60 rows tested are seeds of the run" in n for n in r["notes"]), r["notes"]
    whole = dataclasses.replace(aligned, seeds=Pairs.by_row(N))
    for r in ask(spaces, references=(), aligned=whole).values():
        assert "mrr" not in r and any("60 of 60 test items are seeds" in n for n in r["notes"])
    for r in ask(spaces, references=(), aligned=whole, classifier="none").values():
        assert "no partners are looked for: 60 of 60" in r["error"]


def test_draws_that_are_done_are_not_kept():
    question = Stitcher(planted(8, 8), Settings(references=("full",), draws=3))
    assert len(list(question.steps())) == 6 and list(question._draws) == [2]
    assert question.draw(2).tensors is question.draw(1).tensors


def test_notes_are_of_the_two_spaces_and_of_the_space_read():
    found = ask(planted(20, 20, 8), references=(), ways=("random+wip",), anchors=12)
    told = {(u.decoder, u.encoder): [n for n in r["notes"] if "rank" in n] for u, r in found.items()}
    assert told[0, 1] == told[1, 0] == [] and told[0, 2] == ["12 anchors, but of rank at most 8"]
    # a class of one common item, and of more that are no common items: it is tested
    labels = np.array([str(k) for k in LABELS], dtype=object)
    labels[[0, *range(200, 230)]] = "odd"
    spaces = Spaces(tuple(a_space(turned(8, i), f"s{i}", labels) for i in range(2)), np.stack([np.arange(200)] * 2, 1))
    assert ask(spaces, references=("absolute",))[Unit("absolute", 0, 1, 0)]["notes"] == []
