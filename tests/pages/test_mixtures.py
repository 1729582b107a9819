"""Anchors as mixtures of the seeds on the Align page: order, blocks, figure, tables, and the anchor picked."""

from __future__ import annotations

import numpy as np
import pytest

from pages._ui import figures, mixtures
from pages._ui.mixtures import arrange
from pages._ui.selection import Selection
from relcore import runs
from relcore.methods import method
from relcore.runs import Run
from tests.pages.conftest import texts
from tests.pages.test_mismatch_figures import frame, pick_row
from tests.pages.test_pages import state_of


def softmax(m: int, k: int, gain: float, seed: int = 0) -> np.ndarray:
    logits = gain * np.random.default_rng(seed).normal(size=(m, k))
    p = np.exp(logits - logits.max(1, keepdims=True))
    return (p / p.sum(1, keepdims=True)).astype(np.float32)


def labels_of(k: int, names: str, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).choice(list(names), k).astype(object)


# ------------------------------------------------------------------------------------------------------ what is drawn


@pytest.mark.parametrize("labelled", [True, False])
def test_every_weight_has_its_cell_where_there_is_room(labelled):
    p, labels = softmax(20, 50, 2.0), labels_of(50, "aabc")
    labels[:3] = ""
    found = arrange(p, labels if labelled else None)
    assert found.whole and sorted(found.rows) == list(range(20)) and sorted(found.columns) == list(range(50))
    np.testing.assert_array_equal(found.cells, p[found.rows][:, found.columns])
    if labelled:  # the most frequent first, none last, and each in one run
        seen = list(dict.fromkeys(labels[found.columns]))
        counts = [int((labels == name).sum()) for name in seen[:-1]]
        assert seen[-1] == "" and counts == sorted(counts, reverse=True) and len(seen) == len(set(labels))
        heaviest = [seen.index(labels[p[anchor].argmax()]) for anchor in found.rows]
        assert heaviest == sorted(heaviest)
    else:  # the anchor that a seed is heaviest in never goes back
        place = [int(np.flatnonzero(found.rows == p[:, seed].argmax())[0]) for seed in found.columns]
        assert place == sorted(place)


@pytest.mark.parametrize(
    ("m", "k", "names", "most"), [(7, 100, "aaaabc", (300, 40)), (50, 33, "ab", (9, 10)), (5, 90, "ab", (300, 3))]
)
def test_more_than_can_be_drawn_is_put_in_blocks_that_leave_nothing_out(m, k, names, most):
    p, labels = softmax(m, k, 2.0), labels_of(k, names)
    found = arrange(p, labels, most)
    assert not found.whole and found.cells.shape[0] <= most[0] and found.cells.shape[1] <= most[1]
    rows, columns = (
        np.split(order, starts[1:])
        for order, starts in ((found.rows, found.row_starts), (found.columns, found.column_starts))
    )
    assert sorted(np.concatenate(rows)) == list(range(m)) and sorted(np.concatenate(columns)) == list(range(k))
    assert all(len(block) for block in (*rows, *columns))
    wanted = [[p[np.ix_(r, c)].mean() for c in columns] for r in rows]
    np.testing.assert_allclose(found.cells, wanted, rtol=1e-5)
    if len(names) < most[1] // 2:
        assert all(len(set(labels[block])) == 1 for block in columns)
    for anchor in (0, m // 2, m - 1):
        assert anchor in rows[found.row_of(anchor)]
    some = np.array([0, 3, k - 1])
    assert set(found.columns_of(some)) == {i for i, block in enumerate(columns) if set(block) & set(some.tolist())}


def test_many_labels_do_not_make_more_blocks_than_there_is_room():
    p = softmax(4, 600, 1.0)
    labels = np.array([f"label {i // 2}" for i in range(600)], dtype=object)
    found = arrange(p, labels, (300, 400))
    assert found.cells.shape == (4, 400)


def test_effective_seeds_are_those_of_an_even_average():
    p = np.zeros((3, 10))
    p[0, 2], p[1, :5], p[2] = 1, 0.2, 0.1
    found = arrange(p, None)
    np.testing.assert_allclose(found.effective, [1, 5, 10])
    assert found.even  # of 10 seeds 5.3 on average
    assert found.top(0).tolist() == [2] and found.top(1).tolist() == [0, 1, 2, 3, 4] and len(found.top(2)) == 10
    assert not arrange(softmax(9, 60, 3.0), None).even and arrange(softmax(9, 60, 0.1), None).even


def test_names_that_are_alike_or_hold_markup_stay_columns_of_their_own():
    cells = softmax(3, 4, 2.0)
    columns = ["1: a", "2: a", "3: &lt;b&gt;", "4: a"]
    figure = figures.mixture(
        cells, ["1", "2", "3"], columns, [(0, 1, "p"), (2, 3, "q")], even=None, row=1, marked=np.array([2]), dark=True
    )
    heat, marks = figure.data
    np.testing.assert_array_equal(heat.z, cells)
    assert list(heat.x) == columns and list(marks.x) == ["3: &lt;b&gt;"]
    assert figure.layout.xaxis.ticktext == ("p", "q") and figure.layout.xaxis.tickvals == ("1: a", "3: &lt;b&gt;")
    framed = [shape for shape in figure.layout.shapes if shape.type == "rect"]
    assert [(shape.y0, shape.y1) for shape in framed] == [(0.5, 1.5)]
    assert heat.zmin == 0 and heat.zmax == cells.max()


def test_nearly_even_weights_are_drawn_as_multiples_of_one_over_k():
    cells = np.full((5, 200), 1 / 200, dtype=np.float32)
    cells[2, 7], cells[2, 8] = 1.5 / 200, 0.5 / 200
    figure = figures.mixture(
        cells, list("12345"), [str(i) for i in range(200)], [], even=1 / 200, row=None, marked=np.empty(0), dark=False
    )
    (heat,) = figure.data
    assert heat.z[2, 7] == pytest.approx(1.5) and heat.z[2, 8] == pytest.approx(0.5)
    assert heat.zmin + heat.zmax == pytest.approx(2) and heat.zmin < 1 < heat.zmax


def test_the_shades_of_weights_go_by_their_root_and_only_up():
    for dark in (False, True):
        scale = figures.weight_colours(dark)
        at = [a for a, _ in scale]
        assert at[0] == 0 and at[-1] == 1 and at[8] == pytest.approx(0.25)
        light = [sum(map(int, colour[4:-1].split(","))) for _, colour in scale]
        assert light == sorted(light, reverse=not dark) and len(set(light)) == len(light)


# --------------------------------------------------------------------------------------------------------- on the page


def opened(app, name: str, sample: str = "molecules", **params):
    at = app("pages/align.py", sample=sample)
    s = state_of(at)
    run = runs.create(
        s.data.pair,
        method=method(name, **params),
        seeds=s.data.truth.take(np.arange(0, 300, 5)),
        reports=(s.data.report_x, s.data.report_y),
        folds=0,
    )
    list(runs.execute(run))
    s.run_id = run.id
    at.run()
    assert not at.exception, at.exception
    return at, Run.load(run.folder)


RUNS = {
    "param": dict(descent_steps=4, anchors=12),
    "kmeans": dict(anchors=12),
    "cca": dict(anchors=12),
    "relative": dict(choose="kmeans", count=12),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_finished_run_shows_its_mixtures_and_an_anchor_picked_selects_its_seeds(app, name):
    at, run = opened(app, name, "emoji" if name == "param" else "molecules", **RUNS[name])
    p, seeds, s = run.mixture(), run.pairs[0], state_of(at)
    said = texts(at)
    assert f"{len(p)} anchors × 60 seeds" in said and ("multiples of 1/60" in said) == (name == "cca")
    assert len(at.get("plotly_chart")) == 1
    table = frame(at, "n eff")
    shown = table.value
    numbers = shown["anchor"].to_numpy() - 1
    assert sorted(numbers) == list(range(len(p)))
    np.testing.assert_allclose(shown["n eff"], 1 / (p[numbers].astype(float) ** 2).sum(1), rtol=1e-5)
    assert shown["heaviest seed (A)"].tolist() == s.data.x.names[seeds.x[p[numbers].argmax(1)]].tolist()

    pick_row(at, table, 1)
    anchor = numbers[1]
    top = [i for i in np.argsort(-p[anchor], kind="stable")[:10] if p[anchor, i] > 0]
    chosen = state_of(at).selection.current
    np.testing.assert_array_equal(chosen.x, np.sort(s.data.x.ids[seeds.x[top]]))
    np.testing.assert_array_equal(chosen.y, np.sort(s.data.y.ids[seeds.y[top]]))
    assert chosen.origin == f"the {len(top)} heaviest seeds of anchor {anchor + 1}"
    listed = [d.value for d in at.dataframe if "weight" in d.value][0]
    np.testing.assert_allclose(listed["weight"], p[anchor][top], rtol=1e-6)
    a, b = s.data.x.names[seeds.x[top]].tolist(), s.data.y.names[seeds.y[top]].tolist()
    if name == "param":  # emoji have one name on both sides, molecules two
        assert listed["name (A and B)"].tolist() == a == b
    else:
        assert listed["A"].tolist() == a and listed["B"].tolist() == b != a
    assert ("thumbnail" in listed) == (name == "param") and (listed["label"] == s.data.x.labels[seeds.x[top]]).all()

    s.selection.set(Selection(s.data.x.ids[:2], s.data.y.ids[:1], "test"))  # a later choice is not taken back
    at.run()
    assert state_of(at).selection.current.origin == "test" and not at.exception


def test_the_views_beside_the_heat_map_have_its_numbers(app):
    at, run = opened(app, "param", **RUNS["param"])
    p = run.mixture()
    at.segmented_control(key="mixture_view").set_value(mixtures.VIEWS[1]).run()
    assert not at.get("plotly_chart")
    tops = frame(at, "seed").value
    assert len(tops) == 12 * 10
    np.testing.assert_allclose(tops["weight"], p[tops["anchor"] - 1, tops["seed"] - 1], rtol=1e-6)
    at.segmented_control(key="mixture_view").set_value(mixtures.VIEWS[2]).run()
    cells = next(d.value for d in at.dataframe if d.value.shape == (12, 60))
    np.testing.assert_allclose(np.sort(cells.to_numpy().ravel()), np.sort(p.ravel()), rtol=1e-6)


def test_without_mixtures_there_is_no_heat_map_and_all_seeds_are_none(app):
    at, run = opened(app, "relative")
    assert run.mixture() is None and "mixtures of the seeds" not in texts(at) and not at.exception


def test_a_run_stopped_on_the_way_shows_its_mixtures(app):
    at, run = opened(app, "kmeans", **RUNS["kmeans"])
    s = state_of(at)
    half = runs.create(
        s.data.pair, method=method("param", descent_steps=20, anchors=9), seeds=run.pairs[0], folds=0,
        reports=(s.data.report_x, s.data.report_y),
    )  # fmt: skip
    steps = runs.execute(half)
    for _ in range(2):
        next(steps)
    steps.close()
    s.run_id = half.id
    at.run()
    assert not at.exception and "was stopped" in texts(at) and "9 anchors × 60 seeds" in texts(at)


# ------------------------------------------------------------------------------------------------- losses on the way


def curves_of_param(steps: int = 6, **change):
    at = list(range(1, steps + 1))
    curves = {
        **{"loss": (at, [2.0] * steps), "coverage": (at, [0.3] * steps), "orthogonality": (at, [0.9] * steps)},
        **{"length": (at, [0.8] * steps), "infonce": (at, [0.06] * steps)},
        **{"effective rank": (at, [110.0] * steps), "seeds in an anchor": (at, [67.0] * steps)},
        **{"mrr of seeds left out": (at, [0.5] * steps), "mrr x to y": (at, [0.4] * steps)},
    }
    return curves | change


def test_each_term_of_a_loss_is_a_line_as_it_is_and_the_rest_is_apart():
    curves = curves_of_param()
    losses = figures.live_losses(curves, 6, dark=False)
    assert [line["name"].split(" (")[0] for line in losses["series"]] == [
        *("loss", "coverage", "orthogonality", "length", "infonce"),
    ]
    assert (
        losses["series"][4]["data"][-1] == [6, 0.06]
        and len({line["lineStyle"]["color"] for line in losses["series"]}) == 5
    )
    assert losses["yAxis"]["type"] == "log" and losses["yAxis"]["min"] <= 0.06 and losses["yAxis"]["max"] >= 2.0
    rest = figures.live_quantities(curves, 6, dark=False)
    assert [line["name"].split(" (")[0] for line in rest["series"]] == ["effective rank", "seeds in an anchor"]
    scores = figures.live_scores(curves, {}, 6, dark=True)
    assert [line["name"] for line in scores["series"]] == ["MRR A → B", "MRR of seeds left out"]


def test_a_term_of_zero_makes_the_axis_linear_and_a_loss_alone_is_no_chart_of_terms():
    zero = ([1, 2], [0.0, 0.0])
    assert figures.live_losses(curves_of_param(2, orthogonality=zero), 2, dark=True)["yAxis"]["type"] == "value"
    assert figures.live_losses({"loss": ([1], [1.0]), "recall": ([1], [0.5])}, 1, dark=False) is None
    rest = figures.live_quantities({"loss": ([1], [1.0])}, 1, dark=False)
    assert len(rest["series"]) == 1
