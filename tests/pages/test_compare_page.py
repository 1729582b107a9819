"""The Compare page: a sweep is chosen, costed, started, watched and read."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from pages._ui import figures
from relcore import experiments, stitching, stitchings
from relcore.space import Spaces
from relcore.stitching import Settings
from relcore.stitchings import Stitching
from tests.pages.conftest import texts
from tests.pages.test_stitching_page import link, planted

CONFIG = """
name = "tiny"
title = "A tiny sweep"
description = "For tests."
seeds = [10, 20]
corruption = [0, 0.5, 0.9]
random_seeds = [0, 1]
[data]
x = "x.npy"
y = "y.npy"
x_labels = "labels.txt"
y_labels = "labels.txt"
[[methods]]
name = "procrustes"
[[methods]]
name = "hga"
params = { restarts = 0 }
"""


@pytest.fixture
def tiny(home):
    """A sweep a person put beside the shipped ones: a planted rotation of five classes."""
    folder = home / "sweeps"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    label = np.arange(100) % 5
    x = 3 * rng.standard_normal((5, 6))[label] + rng.standard_normal((100, 6))
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", x @ np.linalg.qr(rng.standard_normal((6, 6)))[0])
    (folder / "labels.txt").write_text("".join(f"c{k}\n" for k in label))
    (folder / "tiny.toml").write_text(CONFIG)
    return experiments.read(folder / "tiny.toml")


def test_the_page_says_what_a_sweep_costs_and_starts_it(app, tiny):
    at = app("pages/compare.py", sweep="tiny")
    said = texts(at)
    assert "For tests." in said and "24 of 24 cells are to be done" in said and "Nothing of this sweep" in said
    at.button(key="sweep_run").click().run()
    assert not at.exception
    (job,) = at.registry.submitted
    assert job.folder == experiments.find(tiny).folder
    assert at.button(key="sweep_stop") and at.button(key="sweep_pause")
    assert not [b for b in at.button if b.key == "sweep_run"]  # one is enough


def test_partial_results_are_drawn_and_the_rest_is_offered(app, tiny):
    kept = experiments.create(tiny)
    steps = experiments.execute(kept)
    for _ in range(9):
        next(steps)
    steps.close()
    at = app("pages/compare.py", sweep="tiny")
    said = texts(at)
    assert "16 of 24 cells are to be done" in said
    assert at.button(key="sweep_run").label == "Run the rest" and not at.button(key="sweep_run").disabled
    assert len(at.get("plotly_chart")) == 2  # curves, and score against accuracy
    assert "over n = 4 cells" in said
    assert len(at.dataframe[0].value) == 8
    at.segmented_control(key="sweep_judge").set_value("fit").run()
    assert not at.exception and "with the highest fit" in texts(at)


def test_a_finished_sweep_has_nothing_left_to_run(app, tiny):
    list(experiments.execute(experiments.create(tiny)))
    at = app("pages/compare.py", sweep="tiny")
    assert at.button(key="sweep_run").disabled and "0 of 24 cells are to be done" in texts(at)
    at.segmented_control(key="sweep_along_tiny").set_value("seeds").run()
    at.selectbox(key="sweep_value").set_value("mrr y_to_x").run()
    assert not at.exception


def test_on_the_data_at_hand_budgets_that_cannot_be_had_are_said(app, tiny):
    at = app("pages/compare.py", sample="emoji", sweep="corruption")
    at.radio(key="sweep_data").set_value("here").run()
    assert not at.exception
    known = len(at.session_state["relcore"].data.truth)
    assert known >= 1000 or "seeds are left out" in texts(at)
    at.button(key="sweep_run").click().run()
    kept = experiments.Kept.load(at.registry.submitted[0].folder)
    assert kept.record["x"] == at.session_state["relcore"].data.x.fingerprint


def test_a_sweep_that_cannot_be_read_says_so_and_the_others_stay(app, tiny, home):
    (home / "sweeps" / "broken.toml").write_text("name = ")
    at = app("pages/compare.py", sweep="broken")
    assert "cannot be read as TOML" in "\n".join(e.value for e in at.error)
    assert "A tiny sweep" in at.selectbox(key="sweep_choice").options


def test_from_the_stress_tool_to_the_sweep_on_the_data_at_hand(app):
    at = app("pages/seeds.py", sample="banking77")
    at.button(key="sweep_share").click().run()
    assert not at.exception
    assert at.title[0].value == "Compare"
    assert at.selectbox(key="sweep_choice").value == "corruption" and at.radio(key="sweep_data").value == "here"


def test_curves_have_a_band_from_the_least_to_the_greatest():
    rows = [("A", 10, c, s, 1 - c + 0.1 * s, "") for c in (0.0, 0.5) for s in (0, 1, 2)]
    rows.append(("A", 10, 0.9, 0, np.nan, "out of memory"))
    table = pd.DataFrame(rows, columns=["label", "seeds", "corruption", "seed", "mrr x_to_y", "error"])
    bands = experiments.bands(table, "mrr x_to_y", "corruption")
    high, low, mean = figures.sweep_curves(bands, ["A"], "corruption", "MRR", dark=False).data
    np.testing.assert_allclose(high.y, [1.2, 0.7])
    np.testing.assert_allclose(low.y, [1.0, 0.5])
    np.testing.assert_allclose(mean.y, [1.1, 0.6])
    assert list(mean.x) == [0, 0.5] and low.fill == "tonexty" and mean.customdata[0][2] == 3


def test_a_method_without_the_parameter_is_a_level_and_other_axes_are_beside():
    rows = [("grid", 10, p, v, s, 0.1 * v + 0.01 * s, "") for p in (5, 9) for v in (1, 2, 8) for s in (0, 1)]
    rows += [("flat", 10, p, None, s, 0.5 + 0.1 * s, "") for p in (5, 9) for s in (0, 1)]
    table = pd.DataFrame(rows, columns=["label", "seeds", "pool", "varied", "seed", "mrr x_to_y", "error"])
    bands = experiments.bands(table, "mrr x_to_y", "varied")
    figure = figures.sweep_curves(bands, ["grid", "flat"], "varied", "MRR", False, beside="pool", axis="anchors")
    assert [a.text for a in figure.layout.annotations] == ["pools of 5", "pools of 9"]
    means = [t for t in figure.data if t.name]
    assert [t.line.dash for t in means] == ["solid", "dash"] * 2
    np.testing.assert_allclose(means[1].y, [0.55, 0.55])
    assert list(means[1].x) == [1, 8] and figure.layout.xaxis.title.text == "anchors"


# --------------------------------------------------------------------------------------------------- all ordered pairs


def spaces_side(app, made, **query):
    at = app("pages/compare.py", **(link(made) | query))
    at.segmented_control(key="compare_what").set_value("spaces").run()
    assert not at.exception, at.exception
    return at


def test_all_ordered_pairs_are_computed_without_labels_and_told(app):
    at = spaces_side(app, planted(dims=(8, 7, 9), labelled=(False, False, False)))
    said = texts(at)
    assert "Nothing is computed yet" in said and "3 · space 2" in said
    at.button(key="pairs_run").click().run()
    (job,) = at.registry.submitted
    kept = Stitching.load(job.folder)
    assert kept.settings.classifier == "none" and kept.settings.ways == stitching.USUAL
    work = stitchings.execute(kept)
    for _ in range(15):
        next(work)
    at.run()
    assert not at.exception and "14 of 60 results" in at.get("progress")[0].proto.text
    assert len(next(d.value for d in at.dataframe if "representation" in d.value)) == 14
    list(work)
    job.status = "done"
    at.run()
    assert not at.exception
    results = kept.results()
    everything = next(d.value for d in at.dataframe if "representation" in d.value)
    assert len(everything) == len(results) and "Weighted F1" not in everything
    for shown, f in (("R@1", "r@1"), ("R@5", "r@5"), ("MRR", "mrr"), ("nMSE", "nmse"), ("RR_std", "rr_std")):
        np.testing.assert_array_equal(everything[shown], results[f])
    for shown, f in (("Effective rank", "effective_rank"), ("CKA", "cka")):
        np.testing.assert_array_equal(everything[shown], results[f])
    pairs = next(d.value for d in at.dataframe if "decoder → encoder" in d.value)
    assert list(pairs["decoder → encoder"]) == ["1 → 2", "1 → 3", "2 → 1", "2 → 3", "3 → 1", "3 → 2"]
    mine = results[results["representation"] == "multi+wip"]
    np.testing.assert_array_equal(pairs["R@1"], mine["r@1"])


def test_pairs_of_a_stitching_with_a_classifier_are_read_too(app):
    made = planted()
    spaces = Spaces(tuple(space for space, _ in made), np.tile(np.arange(len(made[0][0]))[:, None], 2))
    settings = Settings(ways=("random+cosine",), anchors=20)
    kept = stitchings.create(spaces, settings, reports=[report for _, report in made])
    list(stitchings.execute(kept))
    at = spaces_side(app, made)
    assert "logistic regression" in texts(at) and not [b for b in at.button if b.key == "pairs_run"]
    everything = next(d.value for d in at.dataframe if "representation" in d.value)
    assert "Weighted F1" not in everything and everything["R@1"].notna().any()


def test_rows_that_are_not_known_to_correspond_have_no_pairs(app):
    at = spaces_side(app, planted(), pair="none")
    assert "It is not known which rows" in texts(at) and not [b for b in at.button if b.key == "pairs_run"]
