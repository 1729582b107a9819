"""The Hubness page and the rules on Retrieval without a browser: figures by an independent count, links, odd sizes."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from streamlit.proto.WidgetStates_pb2 import WidgetState

from relcore import runs
from relcore.methods import method
from relcore.methods.relative import Relative
from relcore.ops import sinkhorn
from relcore.runs import Run
from relcore.space import Pair, Pairs, make_space
from tests.pages.conftest import inject, texts
from tests.pages.test_pages import finished_run, open_files, state_of

ARROWS = {"x_to_y": "A → B", "y_to_x": "B → A"}


class Coupled(Relative):
    """The seed baseline with the transport plan between its coordinates: a teacher to look at."""

    def steps(self, x, y, seeds, *, generator, device="cpu"):
        alignment = yield from super().steps(x, y, seeds, generator=generator, device=device)
        cost = sinkhorn.cosine(alignment.x, alignment.y)
        alignment.coupling = sinkhorn.solve(sinkhorn.Problem(cost, cost.epsilon(0.1)), tolerance=1e-3).coupling
        return alignment


N, M = 240, 180


def made_run(monkeypatch, *, coupling: bool = True, truth: bool = True, params: dict | None = None) -> Run:
    """A run between a falling spectrum in a cone and its noisy copy: hubs, and rows of x without a partner."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 40)) * np.arange(1, 41) ** -0.4 + 0.15
    y = x[:M] + 0.6 * rng.normal(size=(M, 40))
    sides = [
        make_space(v, names=[f"{side} {i}" for i in range(len(v))], title=side) for side, v in (("X", x), ("Y", y))
    ]
    (x, report_x), (y, report_y) = sides
    pairs = Pairs.by_row(M)
    run = runs.create(
        Pair(x, y, pairs if truth else None), method=method("relative"), seeds=pairs.take(np.arange(0, M, 9)), folds=0,
        reports=(report_x, report_y),
    )  # fmt: skip
    with monkeypatch.context() as patch:
        if coupling:
            task = Run.task
            patch.setattr(Run, "task", lambda r: replace(task(r), method=Coupled()))
        list(runs.execute(run))
    if params:
        run.update(params=params)
    return run


def go(at, page="hubness"):
    at.switch_page(f"pages/{page}.py").run()
    assert not at.exception, at.exception
    return at


def skew(lists: np.ndarray, m: int, k: int) -> float:
    return float(stats.skew(np.bincount(lists[:, :k].ravel(), minlength=m)))


@pytest.fixture
def coupled(app, monkeypatch):
    run = made_run(monkeypatch)
    return app("pages/hubness.py", run=run.id), run


def test_without_a_run_the_page_offers_one(app):
    at = app("pages/hubness.py")
    assert "No run is open yet" in texts(at) and at.button(key="run_from_here")


def test_every_rule_and_both_directions_have_their_skewness_at_any_k(coupled):
    at, run = coupled
    for k in (10, 3, 50):
        at.slider(key="hub_k").set_value(k).run()
        assert not at.exception
        tiles = {m.label: m.value for m in at.metric}
        assert len(tiles) == 8
        for way, arrow in ARROWS.items():
            for rule, short in (
                ("nearest", "nearest"),
                ("csls", "CSLS"),
                ("isf", "inv. softmax"),
                ("coupling", "coupling"),
            ):
                lists = run.analysis[f"{way}/{rule}/indices"]
                assert tiles[f"Skewness {arrow} · {short}"] == f"{skew(lists, M if way == 'x_to_y' else N, k):.2f}"


def test_the_table_of_figures_says_how_many_and_which_way(coupled):
    at, run = coupled
    table = next(d.value for d in at.dataframe if "Robin Hood index" in d.value)
    assert len(table) == 8 and set(table["direction"]) == set(ARROWS.values())
    assert table["queries"].tolist() == [N, M] * 4 and table["targets"].tolist() == [M, N] * 4
    n_k = run.analysis["x_to_y/coupling/n_k"]
    row = table[(table["rule"].str.startswith("coupling")) & (table["direction"] == "A → B")].iloc[0]
    assert row["anti-hubs"] == pytest.approx((n_k == 0).mean()) and row["largest hub"] == n_k.max()


def test_the_hub_table_is_ordered_and_counts_whom_it_steals_from(coupled):
    at, run = coupled
    s = state_of(at)
    table = next(d.value for d in at.dataframe if "ahead of partner" in d.value)
    lists, ranks = run.analysis["x_to_y/nearest/indices"][:, :10], run.analysis["x_to_y/nearest/rank"]
    n_k = np.bincount(lists.ravel(), minlength=M)
    assert table.iloc[0, 0] == n_k.max() and table["name"][0] == s.data.y.names[n_k.argmax()]
    hub = n_k.argmax()
    queries, places = np.nonzero(lists == hub)
    assert table["ahead of partner"][0] == (places + 1 < ranks[queries]).sum()
    anti = next(d.value for d in at.dataframe if "rank for its partner" in d.value)
    assert len(anti) == (n_k == 0).sum() > 3 and (np.diff(anti["rank for its partner"]) <= 0).all()
    assert f"Anti-hubs ({(n_k == 0).sum():,} of {M})" in [tab.label for tab in at.tabs]


def map_of(at):
    return next(e for e in at.get("bidi_component") if e.key == "hub_map")


def scene_of(at) -> str:
    return at.session_state["hub_map-memory"].current


def test_a_click_on_a_row_of_the_map_selects_its_groupies(coupled):
    """By row id, on the other side, in the direction in which that row is a target."""
    at, run = coupled
    s = state_of(at)
    lists = run.analysis["y_to_x/nearest/indices"][:, :10]
    hub = int(np.bincount(lists.ravel()).argmax())
    click = {"kind": "click", "panel": 0, "id": int(s.data.x.ids[hub]), "rev": 1, "scene": scene_of(at)}
    at = inject(at, map_of(at), {"events": [click]})
    assert not at.exception
    groupies = np.flatnonzero((lists == hub).any(1))
    chosen = state_of(at).selection.current
    np.testing.assert_array_equal(chosen.x, s.data.x.ids[[hub]])
    np.testing.assert_array_equal(chosen.y, s.data.y.ids[groupies])
    assert at.segmented_control(key="hub_way").value == "y_to_x"
    said = texts(at)
    assert f"10 best of {len(groupies):,} of {M} rows" in said
    table = next(d.value for d in at.dataframe if "displaced" in d.value)
    assert len(table) == min(100, len(groupies))
    ranks = run.analysis["y_to_x/nearest/rank"][groupies]
    places = (lists[groupies] == hub).argmax(1) + 1
    assert f"before the partner of {(places < ranks).sum():,}" in said


def brush(at, way: str, low: float, high: float):
    chart = next(e for e in at.get("plotly_chart") if f"occurrences_{way}" in e.proto.id)
    states = at._tree.get_widget_states()
    box = [{"xref": "x", "yref": "y", "x": [low, high], "y": [0.1, 9999]}]
    state = WidgetState(id=chart.proto.id)
    state.string_value = json.dumps({"selection": {"points": [], "point_indices": [], "box": box, "lasso": []}})
    states.widgets.append(state)
    return at._run(states)


def test_a_box_in_the_distribution_selects_the_rows_in_so_many_lists(coupled):
    at, run = coupled
    s = state_of(at)
    at = brush(at, "x_to_y", -3.0, 0.4)
    assert not at.exception
    n_k = run.analysis["x_to_y/nearest/n_k"]
    np.testing.assert_array_equal(s.selection.current.y, s.data.y.ids[n_k == 0])
    assert not len(s.selection.current.x) and "0 to 0 lists" in s.selection.current.origin


def test_a_run_without_a_coupling_falls_back_from_that_rule(coupled, monkeypatch):
    at, _ = coupled
    at.segmented_control(key="hub_rule").set_value("coupling").run()
    state_of(at).run_id = made_run(monkeypatch, coupling=False).id
    go(at)
    assert at.segmented_control(key="hub_rule").value == "nearest" and len(at.metric) == 6


@pytest.mark.parametrize("n, m", [(1, 1), (2, 3), (4, 4), (12, 12), (15, 40), (40, 15)])
def test_few_rows_are_drawn_and_said_to_be_too_few(app, home, n, m):
    """Case B17: k limited in words, a constant N_k is even, skewness of a handful is no news."""
    rng = np.random.default_rng(0)
    at = open_files(app("pages/data.py"), home, rng.normal(size=(n, 3)) + 2, rng.normal(size=(m, 4)) + 2)
    s = state_of(at)
    run = runs.create(
        s.data.pair, method=method("relative"), seeds=s.data.truth.take(np.arange(min(n, 2))), folds=0,
        preprocess=("unit",), reports=(s.data.report_x, s.data.report_y),
    )  # fmt: skip
    list(runs.execute(run))
    s.run_id = run.id
    go(at)
    said = texts(at)
    assert ("k limited to" in said) == (min(n, m) < 10)
    assert "not informative" in said
    at.slider(key="hub_k").set_value(50).run()
    assert not at.exception and f"each list holds all {m} targets" in texts(at)
    tiles = {t.label: t.value for t in at.metric}
    assert tiles["Skewness A → B · nearest"] == "0.00"


def test_rows_that_repeat_are_told(app, home):
    x = np.repeat(np.random.default_rng(0).normal(size=(20, 5)), 2, axis=0).astype(np.float32)
    at = open_files(app("pages/data.py"), home, x, x)
    state_of(at).run_id = finished_run(at).id
    go(at)
    assert "20 of 40 rows of A repeat another row exactly" in texts(at)


def test_without_truth_hubs_are_shown_and_nobody_is_said_to_be_robbed(app, monkeypatch):
    at = app("pages/hubness.py", run=made_run(monkeypatch, truth=False).id)
    assert any("nearest of" in d.value for d in at.dataframe)
    assert not any("ahead of partner" in d.value or "rank for its partner" in d.value for d in at.dataframe)


def test_k_and_rule_are_kept_from_page_to_page(coupled):
    """Case B27."""
    at, _ = coupled
    at.slider(key="hub_k").set_value(25).run()
    at.segmented_control(key="hub_rule").set_value("coupling").run()
    for page in ("data", "retrieval", "hubness"):
        go(at, page)
    assert at.slider(key="hub_k").value == 25 and at.segmented_control(key="hub_rule").value == "coupling"


def test_no_figure_of_the_page_is_webgl_beside_the_map(coupled):
    """Case B21."""
    at, _ = coupled
    charts = [json.loads(e.proto.spec) for e in at.get("plotly_chart")]
    assert len(charts) >= 4
    assert not [t["type"] for c in charts for t in c["data"] if t["type"].endswith("gl")]
    assert [e.key for e in at.get("bidi_component")] == ["hub_map", "hub_map-arrays"]


def test_the_spectrum_is_in_an_expander_with_what_was_predicted(coupled):
    at, run = coupled
    table = next(d.value for d in at.dataframe if "A predicted" in d.value)
    np.testing.assert_allclose(table["A participation"], run.analysis["spectrum/x/participation"].ravel())
    assert table["gamma"].max() == 2.0


# ------------------------------------------------------------------------------------------ the rules on Retrieval


def test_teacher_and_student_stand_side_by_side_on_retrieval(app, monkeypatch):
    run = made_run(monkeypatch, params={"student": "mlp"})
    at = app("pages/retrieval.py", run=run.id)
    table = next(d.value for d in at.dataframe if "rule" in d.value)
    assert table["rule"][0] == "teacher: coupling (transductive)" and table["rule"][1].startswith("student: nearest")
    seeds, truth = run.pairs
    scored = truth.without(seeds)
    for row, rule in ((0, "coupling"), (1, "nearest")):
        for way, arrow in ARROWS.items():
            queries, partners = (scored.x, scored.y) if way == "x_to_y" else (scored.y, scored.x)
            lists = run.analysis[f"{way}/{rule}/indices"][queries]
            for k in (1, 5, 10):
                recall = (lists[:, :k] == partners[:, None]).any(1).mean()
                assert table[f"R@{k} {arrow}"][row] == pytest.approx(recall)
    assert "transductive" in texts(at)


def test_neighbours_and_ranks_on_retrieval_follow_the_rule(app, monkeypatch):
    run = made_run(monkeypatch)
    at = app("pages/retrieval.py", run=run.id)
    s = state_of(at)
    s.query = ("x", int(s.data.x.ids[123]))
    for rule in ("isf", "coupling"):
        at.segmented_control(key="rule").set_value(rule).run()
        assert not at.exception
        there = next(d.value for d in at.dataframe if "by seeds" in d.value)
        best = run.analysis[f"x_to_y/{rule}/indices"][123, :10]
        assert there["name"].tolist() == s.data.y.names[best].tolist()
        rank = run.analysis[f"x_to_y/{rule}/rank"][123]
        assert f"True partner at rank {rank:,} of {M}" in texts(at)


def test_another_run_of_the_same_data_is_chosen_on_the_page(app, monkeypatch):
    first, second = made_run(monkeypatch), made_run(monkeypatch, coupling=False)
    at = app("pages/hubness.py", run=second.id)
    at.selectbox(key="finished_run").set_value(first.id).run()
    assert not at.exception
    assert state_of(at).run_id == first.id and len(at.metric) == 8
