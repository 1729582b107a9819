"""The Stitching page without a browser: form, a stitching on its way, its results, and what they are linked to."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import confusion_matrix

from pages._ui import stitched
from relcore import runs, stitchings, store
from relcore.methods import method
from relcore.space import Pair, Pairs, make_space
from relcore.stitchings import Stitching
from tests.pages.conftest import errors, texts
from tests.pages.test_mismatch_page import pick
from tests.pages.test_pages import state_of

CLASSES, N = ("a<b>", "b", "c"), 120
WAYS = ["random+cosine", "kmeans+wip"]


def planted(dims=(8, 8), *, labelled=(True, True, True), labels=None, seed=0, meta=None):
    """Spaces of the same clusters, each turned another way, with noise: some rows are told wrong."""
    rng = np.random.default_rng(seed)
    code = np.arange(N) % len(CLASSES)
    names = np.array(CLASSES, dtype=object)[code] if labels is None else labels
    z = rng.normal(size=(len(CLASSES), 6))[code] + rng.normal(size=(N, 6))
    made = []
    for i, dim in enumerate(dims):
        v = z @ rng.normal(size=(6, dim)) + 0.2 * rng.normal(size=(N, dim))
        made.append(
            make_space(
                np.vstack([np.zeros(dim), v]).astype(np.float32),  # the zero row is set aside: ids are no positions
                labels=["", *names] if labelled[i] else None,
                title=f"space {i}",
                meta=meta if i == 0 else None,
            )
        )
    return made


def link(made) -> dict[str, str]:
    """What the address bar says of the spaces."""
    kept = [store.put_space(space, report) for space, report in made]
    more = {"more": ",".join(f"{k}~row" for k in kept[2:])} if kept[2:] else {}
    return {"x": kept[0], "y": kept[1], "pair": "row"} | more


@pytest.fixture
def page(app):
    def open_page(made, **query):
        at = app("pages/stitching.py", **link(made), **query)
        if at.multiselect:
            at.multiselect(key="stitching_ways").set_value(WAYS).run()
        assert not at.exception, at.exception
        return at

    return open_page


def stitch(at, steps: int | None = None) -> Stitching:
    """Press the button, do the worker's work, and show the page."""
    at.button(key="stitch").click().run()
    assert not at.exception, at.exception
    job = at.registry.submitted[-1]
    kept = Stitching.load(job.folder)
    work = stitchings.execute(kept)
    if steps is None:
        list(work)
        job.status = "done"
    else:
        for _ in range(steps + 1):
            next(work)
        at.run()
        work.close()
        return kept
    at.run()
    assert not at.exception, at.exception
    return Stitching.load(job.folder)


def results_of(kept: Stitching, representation: str, d: int, e: int) -> pd.Series:
    table = kept.results()
    (row,) = [r for _, r in table.iterrows() if (r.representation, r.decoder, r.encoder) == (representation, d, e)]
    return row


def frame_with(at, column: str) -> pd.DataFrame:
    return next(d.value for d in at.dataframe if column in d.value)


def overview(at) -> pd.DataFrame:
    return next(d.value for d in at.dataframe if "" in d.value).set_index("")


# ------------------------------------------------------------------------------------------------------------ the form


def test_a_first_visit_explains_itself_and_one_button_starts(page):
    at = page(planted())
    said = texts(at)
    assert "Nothing is stitched yet" in said and "Cost: 14 results" in said
    assert not at.button(key="stitch").disabled
    at.number_input(key="stitching_test").set_value(30).run()
    at.selectbox(key="stitching_classifier_").set_value("svm").run()
    at.button(key="stitch").click().run()
    (job,) = at.registry.submitted
    kept = Stitching.load(job.folder)
    settings = kept.settings
    assert (settings.classifier, settings.test, settings.ways) == ("svm", 0.3, tuple(WAYS))
    assert settings.anchors == 45 and settings.seeds == len(state_of(at).seeds.pairs)
    assert at.button(key="stitching_stop") and "starting" in at.get("progress")[0].proto.text


def test_what_the_engine_refuses_is_said_beside_the_button(page):
    at = page(planted())
    anchors = next(n for n in at.number_input if n.key.startswith("stitching_anchors"))
    anchors.set_value(500).run()
    assert "500 anchors are asked of a support of" in errors(at)
    assert at.button(key="stitch").disabled and not at.exception


def test_results_appear_as_they_come_and_stop_keeps_them(page):
    at = page(planted())
    kept = stitch(at, steps=3)
    assert not at.exception
    assert "3 of 14 results" in at.get("progress")[0].proto.text
    assert len(overview(at)) == 3 and not [d for d in at.dataframe if "taken for" in d.value]
    at.registry.submitted[-1].status = "cancelled"
    at.run()
    assert "stopped with 3 of 14 results" in texts(at) and kept.status == "cancelled"


def test_what_is_looked_at_first_does_not_hang_on_when_one_came(page):
    at = page(planted())
    at.button(key="stitch").click().run()
    job = at.registry.submitted[-1]
    work = stitchings.execute(Stitching.load(job.folder))
    for _ in range(5):
        next(work)
    at.run()
    list(work)
    job.status = "done"
    at.run()
    assert next(b for b in at.selectbox if b.key.startswith("stitching_row_")).value == ("kmeans+wip", 0, 1)


def test_without_labels_only_partners_are_compared(page):
    at = page(planted(labelled=(False, False, False)))
    assert "nothing can be classified" in texts(at)
    kept = stitch(at)
    assert kept.settings.classifier == "none"
    table = overview(at)
    assert "Weighted F1" not in table and table.columns[0] == "R@1" and "Confusions" not in texts(at)
    assert table["R@1"]["k-means averages + whitened inner product"] == results_of(kept, "kmeans+wip", 0, 1)["r@1"]


def test_rows_not_known_to_correspond_leave_absolute_coordinates_alone(app):
    query = link(planted()) | {"pair": "none"}
    at = app("pages/stitching.py", **query)
    assert "It is not known which rows" in texts(at) and not at.multiselect
    kept = stitch(at)
    assert set(kept.results()["representation"]) == {"absolute"} and len(kept.results()) == 4


def test_labels_may_be_a_column_or_those_of_one_space(page):
    column = np.array(["first", "second"])[np.arange(N) // 60]
    made = planted(meta=pd.DataFrame({"half": ["", *column], "unlike": np.arange(N + 1)}))
    other = dataclasses.replace(made[1][0], labels=np.roll(made[1][0].labels, 1), title="other labels")
    at = page([made[0], (other, made[1][1])])
    box = next(b for b in at.selectbox if b.key.startswith("stitching_labels"))
    assert box.options == ["each space's own", "those of A · space 0", "those of B · other labels", "column half"]
    for choice, wanted in (("of 1", other.labels), ("column half", column)):
        next(b for b in at.selectbox if b.key.startswith("stitching_labels")).set_value(choice).run()
        at.button(key="stitch").click().run()
        kept = Stitching.load(at.registry.submitted[-1].folder)
        assert kept.labels() == [list(wanted)] * 2
    assert kept.record["labels"] == "column half"


def test_ordered_numbers_have_a_mean_absolute_error(page):
    at = page(planted(labels=np.array([str(i % 3) for i in range(N)])))
    at.toggle(key="stitching_ordered").set_value(True).run()
    kept = stitch(at)
    shown = overview(at)["MAE"]["k-means averages + whitened inner product"]
    row = results_of(kept, "kmeans+wip", 0, 1)
    codes = stitched.label_codes(kept)[1]
    tested, found = kept.tested(0, 1), kept.predicted(row.name)
    classes = np.array([float(c) for c in kept.classes])
    assert shown == pytest.approx(np.abs(classes[codes[tested]] - classes[found]).mean())


# ---------------------------------------------------------------------------------------------------------- the results


def test_figures_are_those_of_the_results_with_references_marked(page):
    at = page(planted())
    kept = stitch(at)
    table = overview(at)
    assert list(table.index[:3]) == [
        "absolute, own encoder (A→A)",
        "absolute, trained there too (B→B)",
        "absolute, other encoder",
    ]
    for title, key in (
        ("absolute, own encoder (A→A)", ("absolute", 0, 0)),
        ("absolute, other encoder", ("absolute", 0, 1)),
        ("seeds only", ("seeds", 0, 1)),
        ("all pairs, least squares", ("translated", 0, 1)),
        ("k-means averages + whitened inner product", ("kmeans+wip", 0, 1)),
    ):
        row = results_of(kept, *key)
        assert table["Weighted F1"][title] == row["weighted_f1"] and table["tested"][title] == row["tested"]
    bars = json.loads(at.get("plotly_chart")[0].proto.spec)
    assert bars["data"][0]["marker"]["opacity"][:6] == [0.55] * 6 and bars["layout"]["shapes"]
    at.toggle(key="stitching_sorted").set_value(True).run()
    assert overview(at)["Weighted F1"].is_monotonic_decreasing


def test_dimensions_that_differ_are_said(page):
    at = page(planted(dims=(8, 7)))
    stitch(at)
    assert "8 and 7 dimensions are not comparable" in texts(at)
    assert "absolute, other encoder" not in overview(at).index


def test_several_draws_have_a_spread_and_each_its_confusions(page):
    at = page(planted())
    at.number_input(key="stitching_draws").set_value(3).run()
    kept = stitch(at)
    results = kept.results()
    mine = results[(results["representation"] == "kmeans+wip") & (results["decoder"] == 0)]["weighted_f1"]
    table = overview(at)
    title = "k-means averages + whitened inner product"
    assert table["Weighted F1"][title] == pytest.approx(mine.mean())
    assert table["Weighted F1 ± sd"][title] == pytest.approx(mine.std())
    draw = next(b for b in at.selectbox if b.label == "Draw")
    draw.set_value(2).run()
    assert not at.exception and "draw 3" in texts(at)


def test_a_cell_of_the_confusions_selects_its_rows_and_their_partners(page):
    at = page(planted())
    kept = stitch(at)
    row = results_of(kept, "kmeans+wip", 0, 1)
    data = state_of(at).data
    tested = kept.tested(0, 1)
    truth = data.y.labels[tested].astype(str)
    found = np.array(kept.classes)[kept.predicted(row.name)]
    counts = confusion_matrix(truth, found, labels=list(CLASSES))
    whole = next(d.value for d in at.dataframe if d.value.index.name)
    np.testing.assert_array_equal(whole.to_numpy(), counts)
    assert row["accuracy"] == pytest.approx(np.trace(counts) / counts.sum())
    i, j = next(map(tuple, np.argwhere(counts - np.diag(np.diag(counts)))))
    cells = np.argwhere(counts > 0).tolist()
    chart = f"stitching_confusion_{kept.id}"
    spec = json.loads(next(e for e in at.get("plotly_chart") if chart in e.proto.id).proto.spec)
    assert "a&lt;b&gt;" in spec["layout"]["xaxis"]["ticktext"]  # a class from a file is no markup
    at = pick(at, "plotly_chart", chart, {"points": [{"point_index": cells.index([i, j])}]})
    assert not at.exception
    rows = np.sort(tested[(truth == CLASSES[i]) & (found == CLASSES[j])])
    chosen = state_of(at).selection.current
    np.testing.assert_array_equal(chosen.y, 1 + rows)
    np.testing.assert_array_equal(chosen.x, 1 + rows)
    assert f"{CLASSES[i]} taken for {CLASSES[j]}" in chosen.origin


def test_lists_of_confusions_and_classes_select_too(page):
    at = page(planted())
    kept = stitch(at)
    often = frame_with(at, "taken for")
    assert (often["rows"].diff().dropna() <= 0).all()
    at = pick(at, "dataframe", "stitching_often", {"rows": [0], "columns": []})
    chosen = state_of(at).selection.current
    assert len(chosen.y) == often["rows"][0] and often["taken for"][0] in chosen.origin
    each = frame_with(at, "precision")
    at = pick(at, "dataframe", "stitching_each", {"rows": [2], "columns": []})
    data, chosen = state_of(at).data, state_of(at).selection.current
    assert len(chosen.y) == each["tested"][2]
    assert set(data.y.labels[data.y.positions(chosen.y)]) == {each["class"][2]}
    row = results_of(kept, "kmeans+wip", 0, 1)
    assert (each["F1"] * each["tested"]).sum() / each["tested"].sum() == pytest.approx(row["weighted_f1"])


def test_a_bar_picked_is_looked_at(page):
    at = page(planted())
    kept = stitch(at)
    at = pick(at, "plotly_chart", f"stitching_bars_{kept.id}", {"points": [{"point_index": 3}]})
    assert not at.exception
    chosen = next(b for b in at.selectbox if b.key.startswith("stitching_row_"))
    assert chosen.value == ("seeds", 0, 1)


def test_the_map_tells_right_from_wrong(page):
    at = page(planted())
    kept = stitch(at)
    row = results_of(kept, "kmeans+wip", 0, 1)
    tested, found = kept.tested(0, 1), kept.predicted(row.name)
    right = found == stitched.label_codes(kept)[1][tested]
    sides = stitched.outcome_colours({"x": N, "y": N}, "y", tested, right, {"x": np.arange(5)}, dark=False)
    codes = sides["y"].codes
    assert (codes == 0).sum() == right.sum() and (codes == 1).sum() == (~right).sum()
    np.testing.assert_array_equal(np.flatnonzero(codes < 2), tested)
    assert (sides["x"].codes == 2).sum() == 5 and (sides["x"].codes == 3).sum() == N - 5
    assert f"{(~right).sum()} of {len(right)} are wrong" in texts(at)


# -------------------------------------------------------------------------------------------------- three spaces, a run


def test_of_three_spaces_all_ordered_pairs_are_there_and_any_two_are_looked_at(page):
    at = page(planted(dims=(8, 7, 9), labelled=(True, True, False)))
    kept = stitch(at)
    table = stitched.summary(kept.results())
    values = stitched.pair_values(table, 3, "kmeans+wip", "weighted_f1")
    for d in range(3):
        for e in range(3):
            if d != e:
                assert values[e, d] == results_of(kept, "kmeans+wip", d, e)["weighted_f1"]
        assert values[d, d] == results_of(kept, "kmeans+wip", d, (d + 1) % 3)["own_weighted_f1"]
    assert np.isnan(np.diag(stitched.pair_values(table, 3, "kmeans+wip", "mrr"))).all()
    assert "labels are those of the same items in space 0" in texts(at)
    everything = frame_with(at, "representation")
    assert len(everything) == len(kept.results()) and set(everything["encoder"]) == {
        "1 · space 0 (A)",
        "2 · space 1 (B)",
        "3 · space 2",
    }
    next(b for b in at.selectbox if b.key.startswith("stitching_encoder")).set_value(2).run()
    assert "The maps show A and B, which are 1 · space 0" in texts(at) and "space 2" in texts(at)
    at = pick(at, "dataframe", "stitching_each", {"rows": [0], "columns": []})
    assert not len(state_of(at).selection.current) and "neither A nor B" in texts(at)
    at.button(key="stitching_pick").click().run()
    assert not at.exception and state_of(at).data.picked == (0, 2)
    assert [e for e in at.get("bidi_component") if e.key == "stitching_map"]


def test_a_run_is_read_beside_and_on_its_own_map(page):
    made = planted()
    (x, rx), (y, ry) = made
    truth = Pairs.by_row(N)
    run = runs.create(Pair(x, y, truth), method=method("procrustes"), seeds=truth.take(np.arange(20)), reports=(rx, ry))
    list(runs.execute(run))
    at = page(made, run=run.id)
    assert next(b for b in at.selectbox if b.key.startswith("stitching_run")).value == run.id
    kept = stitch(at)
    assert kept.record["run"]["id"] == run.id
    title = run.record["title"]
    assert overview(at)["Weighted F1"][title] == results_of(kept, "run", 0, 1)["weighted_f1"]
    next(b for b in at.selectbox if b.key.startswith("stitching_row_")).set_value(("run", 0, 1)).run()
    assert not at.exception
    assert "fitted on all rows" in texts(at)


# -------------------------------------------------------------------------------------------------------------- a head


@pytest.mark.parametrize("form", ["npz", "pt"])
def test_a_head_is_uploaded_and_stitched(page, tmp_path, form):
    rng = np.random.default_rng(1)
    w, b = rng.normal(size=(3, 8)).astype(np.float32), rng.normal(size=3).astype(np.float32)
    path = tmp_path / f"head.{form}"
    if form == "npz":
        np.savez(path, W=w, b=b)
    else:
        torch.save({"weight": torch.from_numpy(w), "bias": torch.from_numpy(b)}, path)
    at = page(planted())
    at.selectbox(key="stitching_classifier_").set_value("head").run()
    assert "A head is wanted" in texts(at) and not [x for x in at.button if x.key == "stitch"]
    at.file_uploader(key="stitching_head").upload(path.name, path.read_bytes(), "application/octet-stream").run()
    assert not at.exception, at.exception
    assert "3 classes (without names), reads rows of 8 numbers" in texts(at)
    kept = stitch(at)
    row = results_of(kept, "absolute", 0, 0)
    data = state_of(at).data
    wanted = (data.x.vectors[kept.tested(0, 0)] @ w.T + b).argmax(1)
    np.testing.assert_array_equal(kept.predicted(row.name), wanted)
    assert "head: head." in texts(at) and not any("trained there" in title for title in overview(at).index)


def test_a_head_that_is_none_is_refused(page, tmp_path):
    path = tmp_path / "head.npz"
    np.savez(path, W=np.full((3, 8), np.nan), b=np.zeros(3))
    at = page(planted())
    at.selectbox(key="stitching_classifier_").set_value("head").run()
    at.file_uploader(key="stitching_head").upload("head.npz", path.read_bytes(), "application/octet-stream").run()
    assert "NaN or infinite" in errors(at) and not at.exception


# -------------------------------------------------------------------------------------------------------------- figures


def test_a_matrix_of_many_classes_has_no_text_but_every_cell_can_be_picked():
    rng = np.random.default_rng(0)
    counts = np.diag(rng.integers(1, 9, 60)) + (rng.random((60, 60)) < 0.02)
    figure, cells = stitched.confusion_map(counts, [f"c{i}" for i in range(60)], dark=False)
    heat, points = figure.data
    assert heat.text is None and len(points.x) == np.count_nonzero(counts) == len(cells)
    np.testing.assert_allclose(np.asarray(heat.z), counts / counts.sum(1, keepdims=True))
    small, _ = stitched.confusion_map(np.eye(3, dtype=int), ["a", "b", "c"], dark=True)
    assert small.data[0].text[0][0] == "1" and small.data[0].text[0][1] == ""


def test_confusion_counts_as_scikit_learn_does():
    rng = np.random.default_rng(0)
    truth, found = rng.integers(0, 5, (2, 300))
    np.testing.assert_array_equal(
        stitched.confusion(truth, found, 6), confusion_matrix(truth, found, labels=np.arange(6))
    )


def test_names_of_columns_are_made_unlike():
    assert stitched.unlike(["a", "b", "a", "a"]) == ["a", "b", "a (2)", "a (3)"]


def test_what_was_found_with_other_pairs_is_not_shown_as_of_these(page, app):
    made = planted()
    at = page(made)
    kept = stitch(at)
    assert any("25% tested" in c.value for c in at.caption)
    paired_otherwise = app("pages/stitching.py", **link(made) | {"pair": "none"})
    assert any("Nothing is stitched yet" in i.value for i in paired_otherwise.info)
    again = page(made)
    assert not again.info and kept.record["items_digest"]


def test_the_dashed_line_is_the_decoders_wherever_its_bar_is():
    rows = pd.DataFrame(
        {
            "representation": ["absolute", "absolute", "full"],
            "decoder": [1, 0, 0],
            "encoder": [1, 0, 1],  # sorted: the other space by itself is best
            "title": ["other", "own", "full"],
            "kind": ["reference"] * 3,
            "draws": 1,
            "accuracy": [0.9, 0.7, 0.5],
            "accuracy sd": np.nan,
        }
    )
    figure = stitched.bars(rows, "accuracy", decoder=0, chosen=None, dark=False)
    assert [shape.x0 for shape in figure.layout.shapes] == [0.7]
    assert not stitched.bars(rows[:1], "accuracy", decoder=0, chosen=None, dark=False).layout.shapes
