"""Runs on the Compare page: listed by data, renamed, deleted, compared item by item."""

from __future__ import annotations

import json

import numpy as np
import pytest
from streamlit.proto.WidgetStates_pb2 import WidgetState

from pages._ui import gallery
from relcore import comparison, runs
from relcore.runs import Run
from tests.pages.conftest import texts
from tests.pages.test_mismatch_page import made_run, planted
from tests.pages.test_pages import state_of


@pytest.fixture
def three(app):
    """Two runs on the same data, one of other data; the page with the first of them open."""
    sides, truth = planted()
    first = made_run(sides, truth, seeds=30, folds=0)
    second = made_run(sides, truth, seeds=8, name="relative", folds=0)
    made_run(*planted(seed=1), seeds=30, folds=0)
    runs.rename(first, "first")
    runs.rename(second, "second")
    return app("pages/compare.py", run=first.id), first, second


def rows(at, *numbers: int):
    """Pick rows of the table of runs, as a browser would."""
    frame = next(d for d in at.dataframe if "settings" in d.value)
    states = at._tree.get_widget_states()
    state = WidgetState(id=frame.proto.id)
    state.string_value = json.dumps({"selection": {"rows": list(numbers), "columns": [], "cells": []}})
    states.widgets.append(state)
    return at._run(states)


def shown(at):
    return next(d.value for d in at.dataframe if "settings" in d.value)


def test_runs_of_other_data_are_another_list(three):
    at, first, second = three
    assert shown(at)["run"].tolist() == ["second", "first"]
    options = at.selectbox(key="gallery_group").options
    assert len(options) == 2 and options[0].endswith("2 runs") and options[1].endswith("1 run")
    assert "seed of none of these runs" in texts(at) and "not all given the same seeds" in texts(at)
    pairs = comparison.scored([first, second])
    wanted = comparison.figures(second.analysis, pairs)["mrr x_to_y"]
    assert shown(at)["MRR A → B"].tolist()[0] == pytest.approx(wanted)


def test_one_run_is_renamed_and_annotated(three):
    at, first, second = three
    rows(at, 0)
    at.text_input(key=f"gallery_title_{second.id}").set_value("better")
    at.text_area(key=f"gallery_note_{second.id}").set_value("by hand")
    at.button(key="gallery_keep").click()
    rows(at, 0)
    assert not at.exception and runs.find(second.id).title == "better"
    assert shown(at)["note"].tolist() == ["by hand", ""] and shown(at)["run"].tolist() == ["better", "first"]


def test_runs_are_deleted_for_good(three):
    at, first, second = three
    rows(at, 0, 1)
    at.button(key="gallery_delete").click()
    rows(at, 0, 1)
    assert not at.exception and not first.folder.exists() and not second.folder.exists()
    assert len(shown(at)) == 1


def test_after_one_is_deleted_none_is_picked(three):
    """Else a second click would take the run that moved up into its place."""
    at, first, second = three
    rows(at, 0)
    before = next(d for d in at.dataframe if "settings" in d.value).proto.id
    at.button(key="gallery_delete").click()
    rows(at, 0)
    assert not second.folder.exists() and first.folder.exists()
    assert next(d for d in at.dataframe if "settings" in d.value).proto.id != before
    assert not [b for b in at.button if b.key == "gallery_delete"]


def test_two_runs_item_by_item(three):
    at, first, second = three
    rows(at, 0, 1)
    assert not at.exception
    pairs = comparison.scored([first, second])
    ranks = [r.analysis["x_to_y/nearest/rank"][pairs.x] for r in (second, first)]
    alone = pairs.x[(ranks[0] > 1) & (ranks[1] == 1)]
    counts, _ = gallery.met(second.analysis, first.analysis, pairs, "x_to_y")
    assert counts.sum() == len(pairs) and counts[0].sum() == (ranks[0] == 1).sum()
    assert counts[1:, 0].sum() == len(alone) > 0
    at.button(key="duel_theirs").click()
    rows(at, 0, 1)
    assert not at.exception
    data, chosen = state_of(at).data, state_of(at).selection.current
    np.testing.assert_array_equal(np.sort(data.x.positions(chosen.x)), np.sort(alone))
    assert "Found first by first alone" in chosen.origin


def test_rank_classes_hold_every_rank():
    of = {"x_to_y/nearest/rank": np.array([1, 2, 3, 5, 6, 10, 11, 50, 51, 4000], np.int32)}
    pairs = type("P", (), {"x": np.arange(10), "y": np.arange(10)})
    counts, (at, _) = gallery.met(of, of, pairs, "x_to_y")
    assert at.tolist() == [0, 1, 2, 2, 3, 3, 4, 4, 5, 5] and np.trace(counts) == 10
    assert [gallery.rank_words(i) for i in range(6)] == ["1", "2", "3–5", "6–10", "11–50", "51+"]


def test_means_over_seeds(app):
    sides, truth = planted()
    of = [made_run(sides, truth, seeds=n, folds=0) for n in (20, 20, 12)]
    of[0].update(seed=5)
    at = app("pages/compare.py", run=of[0].id)
    at.toggle(key="gallery_together").set_value(True).run()
    frame = next(d.value for d in at.dataframe if "runs" in d.value)
    assert sorted(frame["runs"]) == [1, 2] and "±" in frame[frame["runs"] == 2]["MRR A → B"].iloc[0]


def test_damaged_folders_are_listed_and_the_rest_works(three, home):
    at, first, _ = three
    path = Run.load(first.folder).folder / "analysis.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    (home / "runs" / "odd").mkdir()
    at.run()
    assert not at.exception
    assert "analysis.safetensors is cut or damaged" in texts(at) and "no run here" in texts(at)
    (first.folder / "pairs.safetensors").unlink()
    at.run()
    assert not at.exception and "pairs.safetensors is missing" in texts(at) and shown(at)["run"].tolist() == ["second"]
    at.button(key="gallery_fault_odd").click().run()
    assert not (home / "runs" / "odd").exists() and not at.exception


def test_without_runs_it_says_what_to_do(app):
    assert "No finished run is here yet" in texts(app("pages/compare.py"))
