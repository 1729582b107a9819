"""Figures of the Mismatch page by an independent count, picks that stay what they are, and where they lead on."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from streamlit.proto.WidgetStates_pb2 import WidgetState

from relcore import runs
from relcore.methods import method
from relcore.runs import Run
from relcore.space import Pair, Pairs, make_space
from tests.pages.conftest import inject, texts
from tests.pages.test_pages import state_of

ROWS, MISSING = 40, 2  # rows a class; the class that y lacks
NAMES = np.array(["coat", "dress", "<b>boot</b>", "bag", "shirt", "1*sandal*"])


def clusters() -> tuple[np.ndarray, np.ndarray]:
    """Clusters on the sphere and the class of each row."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(6, 8))
    code = np.repeat(np.arange(6), ROWS)
    points = centres[code] / np.linalg.norm(centres, axis=1)[code][:, None]
    return points + 0.35 / np.sqrt(8) * rng.normal(size=points.shape), code


def made_run(names: np.ndarray = NAMES, code: np.ndarray | None = None) -> Run:
    """A run of Procrustes between clusters and a turned copy that lacks one."""
    x, classes = clusters()
    kept = np.flatnonzero(classes != MISSING)
    code = classes if code is None else code
    turn = np.linalg.qr(np.random.default_rng(5).normal(size=(8, 8)))[0]
    (a, report_x), (b, report_y) = (
        make_space(v, names=[f"{side} {i}" for i in range(len(v))], labels=names[c], title=side)
        for side, v, c in (("X", x, code), ("Y", x[kept] @ turn, code[kept]))
    )
    pairs = Pairs(np.stack([kept, np.arange(len(kept))], 1))
    run = runs.create(
        Pair(a, b, pairs), method=method("procrustes"), reports=(report_x, report_y), preprocess=("unit",),
        seeds=pairs.take(np.random.default_rng(0).permutation(len(pairs))[:30]),
    )  # fmt: skip
    list(runs.execute(run))
    return run


def read(run: Run, side: str = "x", at: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Coverage and flags from the stored sums, by hand; a flag within rounding of the null is none."""
    arrays = run.analysis
    at = int(arrays["mismatch/default"][0]) if at is None else at
    ratio = arrays[f"mismatch/{side}/cross"][:, at].astype(float) / arrays[f"mismatch/{side}/own"][:, at]
    return ratio, ratio < arrays[f"mismatch/{side}/null"][at] - 2e-3


def change(run: Run, **arrays: np.ndarray) -> None:
    path = run.folder / "analysis.safetensors"
    save_file(load_file(path) | arrays, path)


def frame(at, column: str, number: int = 0):
    return [d for d in at.dataframe if column in d.value][number]


def classes(at, number: int = 0):
    return frame(at, "class", number).value


def pick_row(at, table, row: int):
    states = at._tree.get_widget_states()
    state = WidgetState(id=table.proto.id)
    state.string_value = json.dumps({"selection": {"rows": [row], "columns": [], "cells": []}})
    states.widgets.append(state)
    at = at._run(states)
    assert not at.exception, at.exception
    return at


@pytest.fixture
def opened(app):
    run = made_run()
    return app("pages/mismatch.py", run=run.id), run


def test_the_table_of_classes_is_what_the_stored_sums_give(opened):
    at, run = opened
    for number, side in enumerate("xy"):
        ratio, flags = read(run, side)
        labels = getattr(state_of(at).data, side).labels
        table = classes(at, number)
        assert set(table["class"]) == set(labels) and (np.diff(table["median coverage"]) >= 0).all()
        for _, row in table.iterrows():
            here = labels == row["class"]
            assert row["rows"] == here.sum() and row["flagged"] == pytest.approx(flags[here].mean())
            assert row["median coverage"] == pytest.approx(np.median(ratio[here]))
    assert classes(at)["class"][0] == NAMES[MISSING] and NAMES[MISSING] not in set(classes(at, 1)["class"])
    said = texts(at)
    assert "A → B, n = 240" in said and "B → A, n = 200" in said


def test_the_figures_follow_the_bandwidth_and_the_presets_set_it(opened):
    at, run = opened
    default, paper = (int(run.analysis[f"mismatch/{k}"][0]) for k in ("default", "paper"))
    key = f"mismatch_sigma_{run.id}"
    labels = state_of(at).data.x.labels
    assert at.select_slider(key=key).value == default
    at.select_slider(key=key).set_value(3).run()
    for expected, button in ((3, None), (paper, "mismatch_paper"), (default, "mismatch_default")):
        if button:
            at.button(key=button).click().run()
        assert not at.exception and not at.warning and at.select_slider(key=key).value == expected
        said = texts(at)
        assert f"σ = {run.analysis['mismatch/sigma'][expected]:.3g} rad" in said
        assert ("default σ, the only one" in said) == (expected != default)
        ratio, _ = read(run, at=expected)
        table = classes(at).set_index("class")["median coverage"]
        for label in table.index:
            assert table[label] == pytest.approx(np.nanmedian(ratio[labels == label]), nan_ok=True)


def test_flags_are_by_coverage_whatever_is_measured(opened):
    at, run = opened
    shares = classes(at).set_index("class")["flagged"]
    at.segmented_control(key="mismatch_measure").set_value("raw").run()
    cross = run.analysis["mismatch/x/cross"][:, int(run.analysis["mismatch/default"][0])]
    table = classes(at).set_index("class")
    labels = state_of(at).data.x.labels
    for label in shares.index:
        assert table["median mean kernel"][label] == pytest.approx(np.median(cross[labels == label]), rel=1e-5)
        assert table["flagged"][label] == pytest.approx(shares[label])


def test_the_lowest_rows_say_how_far_below_the_null_they_are(opened):
    at, run = opened
    ratio, flags = read(run)
    table = frame(at, "below null").value
    order = np.argsort(ratio, kind="stable")[:100]
    assert table["name"].tolist() == state_of(at).data.x.names[order].tolist()
    null = float(run.analysis["mismatch/x/null"][int(run.analysis["mismatch/default"][0])])
    np.testing.assert_allclose(table["below null"], null - ratio[order], atol=1e-6)
    assert f"{flags.sum():,} of {len(ratio):,} rows are flagged" in texts(at)


def test_the_seeds_alone_are_told_and_drawn(opened):
    at, run = opened
    labels = state_of(at).data.x.labels
    change(run, **{"mismatch/seed/x": np.where(labels == "bag", 0.1, 1.0).astype(np.float32)})
    at.run()
    assert "by them bag is lowest in A, by this run <b>boot</b>" in texts(at)
    at.segmented_control(key="mismatch_by").set_value("the seeds alone").run()
    assert not at.exception and "by the seeds alone, its own default σ" in texts(at)
    assert classes(at)["class"][0] == NAMES[MISSING]  # the lists stay those of the run


def test_a_class_picked_stays_what_it_was_when_the_order_changes(opened):
    """A browser keeps a pick by position while the table is the same one."""
    at, run = opened
    label = classes(at, 1)["class"][1]
    before, element = classes(at, 1)["class"].tolist(), frame(at, "class", 1).proto.id
    at = pick_row(at, frame(at, "class", 1), 1)
    s = state_of(at)
    chosen = s.data.y.ids[s.data.y.labels == label]
    np.testing.assert_array_equal(s.selection.current.y, chosen)
    orders = []
    for position in (0, 25, 12):
        at.select_slider(key=f"mismatch_sigma_{run.id}").set_value(position).run()
        assert not at.exception
        orders.append(classes(at, 1)["class"].tolist())
        assert (frame(at, "class", 1).proto.id == element) == (orders[-1] == before)
    assert any(order != before for order in orders)
    np.testing.assert_array_equal(state_of(at).selection.current.y, chosen)


def test_a_row_of_the_lowest_is_selected_with_its_partner(opened):
    at, run = opened
    row = int(np.argmin(read(run, "y")[0]))
    at = pick_row(at, frame(at, "below null", 1), 0)
    s = state_of(at)
    partner = s.data.truth.flip().partner(len(s.data.y))[row]
    assert s.selection.current.y.tolist() == [s.data.y.ids[row]]
    assert s.selection.current.x.tolist() == [s.data.x.ids[partner]]


def test_a_lasso_selects_on_both_sides_and_leads_on(opened):
    """From the selection to its lowest row on Retrieval, and to Seeds."""
    at, run = opened
    s = state_of(at)
    xy = run.analysis["map_x"].astype(float)
    low, high = xy.min(0) - 1, xy.max(0) + 1
    corners = [[low[0], low[1]], [high[0], low[1]], [high[0], high[1]], [low[0], high[1]]]
    lasso = {"kind": "lasso", "panel": 0, "polygon": corners, "mode": "replace", "only": [], "rev": 1}
    lasso["scene"] = at.session_state["mismatch_map-memory"].current
    at = inject(at, next(e for e in at.get("bidi_component") if e.key == "mismatch_map"), {"events": [lasso]})
    assert not at.exception
    assert len(s.selection.current.x) == 240 and len(s.selection.current.y) == 200
    at.button(key="mismatch_to_retrieval").click().run()
    assert not at.exception and at.title[0].value == "Retrieval"
    assert s.query == ("x", int(s.data.x.ids[np.argmin(read(run)[0])]))
    at.switch_page("pages/mismatch.py").run()
    at.button(key="mismatch_to_seeds").click().run()
    assert not at.exception and at.title[0].value == "Seeds"


def test_labels_that_cannot_be_judged_leave_room_for_regions(app):
    """All rows of one class: the gate goes by regions, so the page shows them beside the class."""
    at = app("pages/mismatch.py", run=made_run(np.array(["one"] * 6)).id)
    assert "no counterpart in B: region 1" in texts(at)
    table = frame(at, "region")
    assert len([d for d in at.dataframe if "class" in d.value]) == 2
    at = pick_row(at, table, 0)
    s = state_of(at)
    chosen = s.data.x.positions(s.selection.current.x)
    assert len(chosen) == table.value["rows"][0] > 30 and (clusters()[1][chosen] == MISSING).mean() > 0.9
    assert "A → B, n = 240" in texts(at) and "lie together (n = 200" in texts(at)


def test_rows_without_a_label_and_small_classes_are_listed_not_judged(app):
    code = clusters()[1]
    code[:3] = 6
    at = app("pages/mismatch.py", run=made_run(np.array([*NAMES[:5], "", "rare"]), code).id)
    table = classes(at).set_index("class")
    assert table.loc["(none)", "rows"] == ROWS and table.loc["rare", "rows"] == 3
    said = texts(at)
    assert "listed, not judged" in said and "(none) (" not in said and "rare (" not in said
    at = pick_row(at, frame(at, "class"), table.index.get_loc("(none)"))
    s = state_of(at)
    np.testing.assert_array_equal(s.selection.current.x, s.data.x.ids[s.data.x.labels == ""])


def test_a_sample_of_reference_rows_is_told(opened):
    at, run = opened
    assert "drawn at random with" not in texts(at)
    change(run, **{"mismatch/y/reference": np.array([150])})
    at.run()
    assert "Of the 200 rows of B the means run over 150" in texts(at) and "rows of A the means" not in texts(at)


def test_a_bandwidth_too_wide_to_tell_is_told(opened):
    at, run = opened
    assert "hardly varies" not in texts(at)
    null = run.analysis["mismatch/x/null"].copy()
    null[int(run.analysis["mismatch/default"][0])] = 0.97
    change(run, **{"mismatch/x/null": null})
    at.run()
    assert texts(at).count("at 0.97 (1 % of the null) coverage hardly varies") == 1


def test_controls_are_kept_from_page_to_page(opened):
    """Case B27."""
    at, run = opened
    at.select_slider(key=f"mismatch_sigma_{run.id}").set_value(4).run()
    at.segmented_control(key="mismatch_measure").set_value("raw").run()
    for page in ("data", "mismatch"):
        at.switch_page(f"pages/{page}.py").run()
        assert not at.exception
    assert at.select_slider(key=f"mismatch_sigma_{run.id}").value == 4
    assert at.segmented_control(key="mismatch_measure").value == "raw"


def test_no_figure_of_the_page_is_webgl_beside_the_map(opened):
    """Case B21."""
    at, _ = opened
    charts = [json.loads(e.proto.spec) for e in at.get("plotly_chart")]
    assert len(charts) == 2 and not [t["type"] for c in charts for t in c["data"] if t["type"].endswith("gl")]
    assert [e.key for e in at.get("bidi_component")] == ["mismatch_map", "mismatch_map-arrays"]
