"""The Seeds page: ways to draw, what each does, and what stands in their way."""

from __future__ import annotations

import numpy as np
import pytest

from relcore import projection, seeds
from relcore.runs import Run
from tests.pages.conftest import errors, texts
from tests.pages.test_pages import open_files, state_of


def drawn(at, how: str, count: int, seed: int = 0):
    at.radio(key="seed_strategy").set_value(how).run()
    at.number_input(key="seed_count").set_value(count).run()
    at.number_input(key="seed_seed").set_value(seed).run()
    at.button(key="draw_seeds").click().run()
    assert not at.exception
    return state_of(at).seeds


def test_every_way_of_choosing_is_offered_with_what_it_does(app):
    at = app("pages/seeds.py")
    radio = at.radio(key="seed_strategy")
    assert len(radio.options) == len(seeds.WAYS) + 1 and "k-means medoids" in radio.options
    told = set()
    for how in seeds.WAYS:
        at.radio(key="seed_strategy").set_value(how).run()
        told.add(at.main.caption[0].value)
    assert len(told) == len(seeds.WAYS) and any("nearest to its centroid" in t for t in told)


@pytest.mark.parametrize("how", seeds.WAYS)
def test_a_draw_is_the_choice_on_a_and_a_run_tells_it(app, how):
    at = app("pages/seeds.py", sample="emoji")
    found, data = drawn(at, how, 20, 4), state_of(at).data
    rows = projection.centred_unit(data.x.vectors)
    wanted = seeds.choose_pairs(how, data.truth, 20, vectors_x=rows, labels_x=data.x.labels, seed=4)
    np.testing.assert_array_equal(found.pairs.array, wanted.array)
    assert found.origin == seeds.origin(how, 20, 4) and found.origin in texts(at)
    at.switch_page("pages/align.py").run()
    at.radio(key="method").set_value("procrustes").run()
    at.button(key="run").click().run()
    assert Run.load(at.registry.submitted[0].folder).record["seeds_origin"] == found.origin


def test_the_default_is_as_it_was(app):
    at = app("pages/seeds.py")
    before = state_of(at).seeds.pairs.array.copy()
    again = drawn(at, "random", 15, 0)
    np.testing.assert_array_equal(before, again.pairs.array)
    assert at.radio(key="seed_strategy").value == "random"


def test_without_labels_the_stratified_draw_says_so(app):
    at = app("pages/seeds.py", sample="glove")
    at.radio(key="seed_strategy").set_value("stratified").run()
    assert "have no labels to go by" in errors(at) and at.button(key="draw_seeds").disabled
    at.radio(key="seed_strategy").set_value("first").run()
    assert not at.error and not at.button(key="draw_seeds").disabled


def test_more_than_there_are_pairs_is_refused_in_words_and_data_may_shrink(app, home):
    at = app("pages/seeds.py")
    drawn(at, "random", 900)
    rng = np.random.default_rng(0)
    open_files(at.switch_page("pages/data.py").run(), home, rng.normal(size=(40, 6)), rng.normal(size=(40, 5)))
    at.switch_page("pages/seeds.py").run()
    assert not at.exception
    assert "900 seeds asked for, but only 40 pairs are known" in errors(at)
    assert at.button(key="draw_seeds").disabled
    assert len(drawn(at, "medoids", 40).pairs) == 40


def test_a_choice_that_would_keep_the_page_waiting_is_not_begun(app, monkeypatch):
    at = app("pages/seeds.py")
    monkeypatch.setattr("relcore.methods.costs.clusters", lambda *_: 3600.0)
    at.radio(key="seed_strategy").set_value("medoids").run()
    assert "takes about 60 min, too long for a page" in errors(at) and "align --choose medoids" in errors(at)
    assert at.button(key="draw_seeds").disabled
    at.radio(key="seed_strategy").set_value("farthest").run()
    assert not at.error
