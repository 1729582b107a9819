"""Links: what the address bar says brings the same view back, and a link that cannot be followed says what to load."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import streamlit as st

from pages._ui.selection import IN_A_LINK, Selection, read, spelled
from relcore import store
from relcore.errors import InputError
from tests.pages.conftest import texts
from tests.pages.test_mismatch_page import made_run, planted
from tests.pages.test_pages import state_of


def query(at) -> dict[str, str]:
    return {k: v[0] if isinstance(v, list) else v for k, v in dict(at.query_params).items()}


@pytest.mark.parametrize("count", [3, IN_A_LINK + 5])
def test_a_selection_comes_back_by_its_link(app, count):
    run = made_run(*planted(), folds=0)
    at = app("pages/retrieval.py", run=run.id)
    data = state_of(at).data
    chosen = Selection(np.sort(data.x.ids[:count]), data.y.ids[4:5], "a test")
    state_of(at).selection.set(chosen)
    at.run()
    asked = query(at)
    again = app("pages/retrieval.py", **{k: asked[k] for k in ("x", "y", "pair", "run", "sel")})
    assert state_of(again).selection.current.same_rows(chosen)
    state_of(at).selection.clear()
    at.run()
    assert "sel" not in query(at)


def test_views_are_in_the_link(app):
    run = made_run(*planted(), folds=0)
    at = app("pages/retrieval.py", run=run.id, k="7", rule="CSLS (hub-corrected)", way="B → A")
    assert at.number_input(key="k").value == 7 and at.session_state["rule"] == "csls"
    assert at.session_state["way"] == "y_to_x"


def test_a_link_whose_data_are_absent_says_which_file_to_load(app, home):
    run = made_run(*planted(), folds=0)
    at = app("pages/data.py", run=run.id)
    asked = query(at)
    assert asked["of"] == "X|Y"
    shutil.rmtree(home / "spaces")
    st.cache_resource.clear()  # another server
    gone = app(**{k: asked[k] for k in ("x", "y", "pair", "of")})
    said = texts(gone)
    assert "made with X and Y" in said and "open the session" in said
    assert asked["x"][:8] in said  # the fingerprint


def test_rows_of_a_link_that_are_not_there_are_told(app):
    run = made_run(*planted(), folds=0)
    at = app(run=run.id, sel="x1.2.99999_y3")
    assert "1 of 4 selected rows are not in these data" in texts(at)
    assert state_of(at).selection.current.x.tolist() == [1, 2]


@pytest.mark.parametrize("text", ["x1_2", "x1,2_y3", "../../etc/passwd", "x_y" + "1" * 40, "no.such"])
def test_a_word_that_is_no_selection_is_refused(home, text):
    assert read(text) is None
    with pytest.raises(InputError, match="is not kept"):
        store.get_selection(text)


def test_few_rows_are_spelled_out_and_read_back():
    chosen = Selection(np.array([3, 17]), np.array([5]), "x")
    assert spelled(chosen) == "x3.17_y5" and read("x3.17_y5").same_rows(chosen)
    assert read(spelled(Selection(np.array([3]), np.array([], dtype=np.int64)))).x.tolist() == [3]
    assert spelled(Selection(np.arange(99), np.arange(2))) == ""
