"""The Mismatch page without a browser: what it says of a planted missing class, links between views, odd inputs."""

from __future__ import annotations

import json

import numpy as np
import pytest
from streamlit.proto.WidgetStates_pb2 import WidgetState

from relcore import runs
from relcore.methods import method
from relcore.metrics import mismatch
from relcore.runs import Run
from relcore.space import Pair, Pairs, make_space
from tests.pages.conftest import inject, texts
from tests.pages.test_pages import state_of

CLASSES, EACH, DIM, GONE = 6, 40, 12, "c<b>2</b>"


def planted(*, classes: int = CLASSES, each: int = EACH, swap: bool = False, seed: int = 0):
    """Vectors and labels of clusters, and of their rotated copy without class 2; ``swap`` changes the sides."""
    rng = np.random.default_rng(seed)
    labels = np.repeat([f"c<b>{i}</b>" for i in range(classes)], each)
    x = (rng.normal(size=(classes, DIM)) * 2).repeat(each, 0) + rng.normal(size=(classes * each, DIM)) * 0.7
    q, _ = np.linalg.qr(rng.normal(size=(DIM, DIM)))
    kept = np.flatnonzero(labels != GONE)
    pairs = np.stack([kept, np.arange(len(kept))], 1)
    y = (x @ q + 0.05 * rng.normal(size=x.shape))[kept]
    sides = ((x, labels), (y, labels[kept]))
    return (sides[::-1], Pairs(pairs[:, ::-1])) if swap else (sides, Pairs(pairs))


def made_run(sides, truth: Pairs | None, *, labelled=(True, True), seeds: int = 30, name="procrustes", folds=3) -> Run:
    made = [
        make_space(
            v.astype(np.float32), labels=labels if has else None, names=[f"{t}{i}" for i in range(len(v))], title=t
        )
        for (v, labels), has, t in zip(sides, labelled, "XY", strict=True)
    ]
    (x, report_x), (y, report_y) = made
    chosen = truth.take(np.linspace(0, len(truth) - 1, min(seeds, len(truth))).astype(int)) if seeds else Pairs.empty()
    run = runs.create(
        Pair(x, y, truth), method=method(name), seeds=chosen, folds=folds, reports=(report_x, report_y)
    )  # fmt: skip
    list(runs.execute(run))
    return run


@pytest.fixture
def opened(app):
    run = made_run(*planted())
    return app("pages/mismatch.py", run=run.id), run


def alerts(at, kind: str) -> str:
    return "\n".join(str(e.value).replace("\\", "") for e in getattr(at, kind))


def table_of(at, column: str, which: int = 0):
    return [d.value for d in at.dataframe if column in d.value][which]


def test_without_a_run_the_page_offers_one(app):
    at = app("pages/mismatch.py")
    assert "No run is open yet" in texts(at) and at.button(key="run_from_here")


def test_a_run_from_before_says_to_run_again(app, monkeypatch):
    run = made_run(*planted())
    kept = {k: v for k, v in run.analysis.items() if not k.startswith("mismatch/")}
    runs._write_arrays(run.folder / "analysis.safetensors", kept)
    at = app("pages/mismatch.py", run=run.id)
    assert "run it again" in texts(at) and at.button(key="run_from_here")


@pytest.mark.parametrize("swap", [False, True])
def test_the_missing_class_is_said_of_the_side_that_has_it(app, swap):
    at = app("pages/mismatch.py", run=made_run(*planted(swap=swap)).id)
    here, there = ("B", "A") if swap else ("A", "B")
    assert f"{here} has rows with no counterpart in {there}: {GONE}" in alerts(at, "success")
    assert f"{there} has rows with no counterpart" not in texts(at)
    classes = table_of(at, "class", 1 if swap else 0)
    assert classes["class"][0] == GONE and classes["flagged"][0] > 0.8 and len(classes) == CLASSES
    lowest = table_of(at, "below null", 1 if swap else 0)
    assert (lowest["label"][:30] == GONE).mean() > 0.9 and (np.diff(lowest["coverage"]) >= 0).all()


def test_a_turn_by_chance_is_red_and_the_map_grey(app):
    """Wrong seeds: whatever class is lowest, no class is called missing."""
    sides, truth = planted()
    wrong = Pairs(np.stack([truth.x, np.roll(truth.y, 77)], 1))
    at = app("pages/mismatch.py", run=made_run(sides, wrong).id)
    said = alerts(at, "error")
    assert said.count("too weak to say") == 2 and "no counterpart" not in said
    assert "Grey: the alignment is too weak" in texts(at)
    chart = json.loads(at.get("plotly_chart")[0].proto.spec)
    assert len(set(chart["data"][0]["marker"]["color"])) == 1


def test_without_held_out_seeds_nothing_is_called_missing(app):
    at = app("pages/mismatch.py", run=made_run(*planted(), folds=0).id)
    assert not alerts(at, "success")


def test_sigma_and_measure_read_the_kept_sums(opened):
    at, run = opened
    arrays = run.analysis
    paper = int(arrays["mismatch/paper"][0])
    at.button(key="mismatch_paper").click().run()
    assert not at.exception
    lowest = table_of(at, "below null")
    np.testing.assert_allclose(lowest["coverage"], np.sort(mismatch.coverage(arrays, "x", paper))[:100])
    at.segmented_control(key="mismatch_measure").set_value("raw").run()
    assert not at.exception
    raw = table_of(at, "mean kernel")["mean kernel"]
    np.testing.assert_allclose(raw, np.sort(mismatch.raw(arrays, "x", paper))[:100])
    assert "read at the default" in texts(at)
    at.button(key="mismatch_default").click().run()
    np.testing.assert_allclose(
        table_of(at, "mean kernel")["mean kernel"],
        np.sort(mismatch.raw(arrays, "x", mismatch.default_position(arrays)))[:100],
    )


def test_a_declared_class_has_its_auroc(opened):
    at, run = opened
    at.selectbox(key="mismatch_declared").set_value(GONE).run()
    assert not at.exception
    tiles = {m.label: m.value for m in at.metric}
    arrays, i = run.analysis, mismatch.default_position(run.analysis)
    mine = state_of(at).data.x.labels == GONE
    for measure, values in (
        ("coverage (ratio)", mismatch.coverage(arrays, "x", i)),
        ("raw kernel sum (paper)", mismatch.raw(arrays, "x", i)),
    ):
        less = (values[mine][:, None] < values[~mine][None]).mean()
        assert tiles[f"AUROC A → B · {measure}"] == f"{less:.3f}"
    assert len(tiles) == 2 and f"B has no rows of {GONE}" in texts(at)


def pick(at, kind: str, key: str, value: dict):
    element = next(e for e in at.get(kind) if key in e.proto.id)
    states = at._tree.get_widget_states()
    state = WidgetState(id=element.proto.id)
    state.string_value = json.dumps({"selection": value})
    states.widgets.append(state)
    return at._run(states)


def test_a_class_picked_selects_its_rows_by_id(opened):
    at, run = opened
    point = {"point_index": 0, "curve_number": 0, "x": 0.1, "y": 0}
    at = pick(at, "plotly_chart", "mismatch_classes_x", {"points": [point], "point_indices": [0]})
    assert not at.exception
    s = state_of(at)
    np.testing.assert_array_equal(s.selection.current.x, s.data.x.ids[s.data.x.labels == GONE])
    assert not len(s.selection.current.y) and GONE in s.selection.current.origin


def test_a_row_picked_is_selected(opened):
    at, run = opened
    arrays = run.analysis
    values = mismatch.coverage(arrays, "x", mismatch.default_position(arrays))
    first = int(np.argsort(values, kind="stable")[0])
    at = pick(at, "dataframe", f"lowest_{run.id}_x", {"rows": [0], "columns": []})
    assert not at.exception
    s = state_of(at)
    np.testing.assert_array_equal(s.selection.current.x, s.data.x.ids[[first]])
    assert "in the list of lowest" in s.selection.current.origin


def test_a_lasso_on_the_map_selects_and_the_list_can_be_narrowed(opened):
    at, _ = opened
    s = state_of(at)
    element = next(e for e in at.get("bidi_component") if e.key == "mismatch_map")
    scene = at.session_state["mismatch_map-memory"].current
    click = {"kind": "click", "panel": 0, "id": int(s.data.x.ids[7]), "rev": 1, "scene": scene}
    at = inject(at, element, {"events": [click]})
    assert not at.exception
    np.testing.assert_array_equal(state_of(at).selection.current.x, s.data.x.ids[[7]])
    at.toggle(key="mismatch_only_x").set_value(True).run()
    assert not at.exception and table_of(at, "below null")["name"].tolist() == ["X7"]


def test_a_side_without_labels_has_regions(app):
    at = app("pages/mismatch.py", run=made_run(*planted(), labelled=(False, True)).id)
    found = table_of(at, "typical")
    assert EACH * 0.8 < found["rows"][0] <= EACH * 1.1
    assert all(2 * EACH <= int(name[1:]) < 3 * EACH for name in found["typical"][0].split(", "))
    at = pick(at, "dataframe", "mismatch_regions_x", {"rows": [0], "columns": []})
    assert len(state_of(at).selection.current.x) == found["rows"][0]


def test_many_classes_are_dots(app):
    at = app("pages/mismatch.py", run=made_run(*planted(classes=200, each=6), seeds=200).id)
    chart = json.loads(at.get("plotly_chart")[0].proto.spec)
    assert chart["data"][0]["type"] == "scatter" and len(chart["data"][0]["x"]) == 200
    assert "<b>" not in json.dumps(chart["layout"]["yaxis"]["ticktext"])


rng = np.random.default_rng(3)
SAME = rng.normal(size=(60, 5))
ODD = {
    "identical": (SAME, SAME),
    "three rows": (SAME[:3], SAME[:3]),
    "all on a point": (np.ones((30, 4)), np.ones((30, 4))),
    "n >> m": (rng.normal(size=(1000, 5)), SAME[:10]),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("labels", ["one", "some", "none"])
def test_odd_inputs_are_shown_and_nothing_is_called_missing(app, name, labels):
    sides = []
    for v in ODD[name]:
        column = np.array(["a"] * len(v), dtype=object)
        column[::2] = "a" if labels == "one" else ""
        sides.append((v, column))
    count = min(len(v) for v, _ in sides)
    has = labels != "none"
    run = runs.create(
        *_pair(sides, has, count), method=method("relative"), seeds=Pairs.by_row(min(3, count)), preprocess=("unit",),
        reports=_reports(sides, has),
    )  # fmt: skip
    list(runs.execute(run))
    at = app("pages/mismatch.py", run=run.id)
    assert not at.exception and not mismatch.gate(run.record, run.analysis, "x", None).missing
    if labels == "some":
        table = table_of(at, "class")
        assert set(table["class"]) <= {"a", "(none)"} and "not judged" in set(table[""])


def _made(sides, has):
    return [
        make_space(np.asarray(v, dtype=np.float32), labels=c if has else None, title=t)
        for (v, c), t in zip(sides, "XY", strict=True)
    ]


def _pair(sides, has, count):
    (x, _), (y, _) = _made(sides, has)
    return (Pair(x, y, Pairs.by_row(count)),)


def _reports(sides, has):
    return tuple(report for _, report in _made(sides, has))
