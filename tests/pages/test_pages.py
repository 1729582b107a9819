"""The pages without a browser: what they say, what they keep, what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
import streamlit as st

from pages._ui.selection import Selection
from relcore import runs, store
from relcore.methods import method
from relcore.runs import Run
from relcore.space import Pair, Pairs, make_space
from tests import restarting
from tests.pages.conftest import errors, loaded, texts


def state_of(at):
    return at.session_state["relcore"]


def write(home, name: str, array: np.ndarray) -> str:
    np.save(home.parent / "files" / name, array)
    return name


def open_files(at, home, x: np.ndarray, y: np.ndarray, pairing: str = "row"):
    for side, array in (("x", x), ("y", y)):
        write(home, f"{side}.npy", array)
    st.cache_data.clear()  # the list of files is kept for some seconds
    at.run()
    for side in "xy":
        at.selectbox(key=f"path_{side}").select(f"{side}.npy")
    at.radio(key="pairing").set_value(pairing)
    at.run()
    at.button(key="open_both").click().run()
    return loaded(at)


def finished_run(at) -> Run:
    """A real run on the data at hand, executed here instead of in a worker."""
    s = state_of(at)
    run = runs.create(
        s.data.pair, method=method("relative"), seeds=s.seeds.pairs, reports=(s.data.report_x, s.data.report_y), folds=0
    )
    list(runs.execute(run))
    return run


def test_the_first_page_shows_a_sample_its_map_and_one_button(app):
    at = app()
    assert at.button(key="run_first").label == "Run anchor optimisation"
    assert [e.key for e in at.get("bidi_component")] == ["data_map", "data_map-arrays"]
    assert state_of(at).data.sample == "banking77" and len(state_of(at).seeds.pairs) == 15


def test_one_click_submits_a_run_of_anchor_optimisation_and_shows_it(app):
    at = app()
    at.button(key="run_first").click().run()
    (job,) = at.registry.submitted
    assert Run.load(job.folder).record["method"] == "ao"
    assert at.query_params["run"] == job.folder.name


def test_the_form_follows_a_run_started_by_one_click(app):
    at = app("pages/align.py", sample="banking77")
    assert at.radio(key="method").value == "ao"
    at = app("pages/align.py", sample="molecules")
    at.button(key="run_default").click().run()
    assert not at.exception and not at.warning
    assert at.radio(key="method").value == "anchordot"
    assert at.query_params["method"] == "anchordot"
    at.radio(key="method").set_value("procrustes").run()  # and is free again
    assert at.radio(key="method").value == "procrustes"


def test_a_finished_search_shows_its_restarts_and_how_sure_it_is(app, monkeypatch):
    at = app("pages/align.py")
    s = state_of(at)
    run = runs.create(
        s.data.pair,
        method=restarting.register(monkeypatch)(count=80),
        seeds=s.seeds.pairs,
        reports=(s.data.report_x, s.data.report_y),
        folds=0,
    )
    list(runs.execute(run))
    s.run_id = run.id
    at.run()
    assert not at.exception
    said = texts(at)
    assert "80 restarts, 60 given up" in said and "20 are not drawn" in said and "judging σ = 0.2" in said
    tiles = {m.label: m.value for m in at.metric}
    assert (
        tiles["Votes"] == "3" and tiles["Margin"] == "0.40" and tiles["Fit"] == "0.90" and tiles["Not given up"] == "80"
    )


def test_processes_are_offered_where_a_method_uses_them(app, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    at = app("pages/align.py", method="hga")
    at.number_input(key="run_jobs").set_value(3).run()
    at.button(key="run").click().run()
    assert Run.load(at.registry.submitted[0].folder).record["jobs"] == 3
    at = app("pages/align.py", method="procrustes")
    assert not [n for n in at.number_input if n.key == "run_jobs"]


def test_a_second_press_starts_no_second_run(app):
    """Case B23: two clicks may arrive before the button is drawn disabled."""
    at = app("pages/align.py")
    run = at.button(key="run")
    run.click().run()
    assert at.button(key="run").disabled
    from pages._ui import runner

    runner.start_default(state_of(at))
    assert len(at.registry.submitted) == 1
    at.button(key="queue").click().run()
    assert len(at.registry.submitted) == 2


@pytest.mark.parametrize(
    "page",
    [
        "pages/data.py",
        "pages/seeds.py",
        "pages/align.py",
        "pages/retrieval.py",
        "pages/hubness.py",
        "pages/mismatch.py",
        "pages/compare.py",
    ],
)
@pytest.mark.parametrize("sample", ["banking77", "emoji", "fashion", "molecules", "glove"])
def test_every_page_draws_every_sample(app, page, sample):
    at = app(page, sample=sample)
    assert at.title[0].value
    assert state_of(at).data.sample == sample


def test_a_link_to_what_is_gone_says_so_and_shows_the_default(app):
    at = app(sample="nonsense")
    assert "there is no sample 'nonsense'" in texts(at)
    assert state_of(at).data.sample == "banking77"


def test_a_run_id_in_a_link_is_data(app):
    at = app(run="../../../etc/passwd")
    assert "no run id" in texts(at)


def test_own_files_are_read_paired_and_reported(app, home):
    """Cases B01 and B02 on the page: rows set aside are named, pairs follow the rows of the file."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(50, 8)).astype(np.float32), rng.normal(size=(60, 5)).astype(np.float32)
    x[3, 2], x[7, 0], y[:5] = np.nan, np.inf, 0
    at = open_files(app("pages/data.py"), home, x, y)
    data = state_of(at).data
    assert (len(data.x), len(data.y)) == (48, 55)
    # rows 3, 7 are gone on one side and 0-4 on the other: 43 of 50 common row numbers are left
    assert len(data.truth) == 50 - len({3, 7, 0, 1, 2, 4})
    assert (data.x.ids[data.truth.x] == data.y.ids[data.truth.y]).all()
    said = texts(at)
    assert "50 rows read, 48 used, 2 set aside (2 NaN or infinite)" in said
    assert "60 rows read, 55 used, 5 set aside (5 zero norm)" in said


def test_a_space_of_zero_rows_is_refused_and_the_view_before_stays(app, home):
    at = open_files(app("pages/data.py"), home, np.zeros((9, 4), np.float32), np.ones((9, 4), np.float32))
    assert "Space A" in errors(at) and "has norm 0" in errors(at)
    assert state_of(at).data.sample == "banking77"


def test_pickled_objects_are_refused_on_the_page(app, home):
    """Case B09."""
    np.save(home.parent / "files" / "bad.npy", np.array([[1, 2], [3]], dtype=object))
    st.cache_data.clear()
    at = app("pages/data.py")
    at.selectbox(key="path_x").select("bad.npy")
    at.selectbox(key="path_y").select("bad.npy")
    at.run()
    assert "Python objects" in errors(at)
    assert at.button(key="open_both").disabled


def test_spaces_that_cannot_be_paired_say_which_methods_still_work(app, home):
    rng = np.random.default_rng(0)
    at = open_files(app("pages/data.py"), home, rng.normal(size=(30, 4)), rng.normal(size=(40, 6)), pairing="none")
    assert state_of(at).data.truth is None
    assert "No pairs are known" in texts(at)
    at.switch_page("pages/align.py").run()
    assert at.button(key="run").disabled
    assert any("needs at least" in e.value and "Without seeds you can run Hyperspherical" in e.value for e in at.error)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 12])
def test_tiny_spaces_have_maps_and_k_is_limited_in_words(app, home, n):
    """Case B17."""
    rng = np.random.default_rng(0)
    at = open_files(app("pages/data.py"), home, rng.normal(size=(n, 3)) + 2, rng.normal(size=(n, 4)) + 2)
    assert not at.exception
    s = state_of(at)
    run = runs.create(
        s.data.pair, method=method("relative"), seeds=s.data.truth.take(np.arange(min(n, 2))), folds=0,
        preprocess=("unit",), reports=(s.data.report_x, s.data.report_y),
    )  # fmt: skip
    list(runs.execute(run))
    s.run_id = run.id
    at.switch_page("pages/retrieval.py").run()
    assert not at.exception
    assert ("k limited to" in texts(at)) == (n < 10)


def test_controls_keep_their_value_from_page_to_page(app):
    """Case B27: every control that matters, all pages walked."""
    at = app("pages/seeds.py")
    at.number_input(key="seed_count").set_value(25).run()
    at.switch_page("pages/align.py").run()
    at.number_input(key="random_seed").set_value(7).run()
    at.radio(key="method").set_value("procrustes").run()
    s = state_of(at)
    s.run_id = finished_run(at).id
    at.switch_page("pages/retrieval.py").run()
    at.number_input(key="k").set_value(25).run()
    at.segmented_control(key="rule").set_value("csls").run()
    for page in ("data", "seeds", "align", "retrieval"):
        at.switch_page(f"pages/{page}.py").run()
        assert not at.exception
    assert at.number_input(key="k").value == 25
    assert at.segmented_control(key="rule").value == "csls"
    at.switch_page("pages/align.py").run()
    assert at.number_input(key="random_seed").value == 7
    assert at.radio(key="method").value == "procrustes"
    at.switch_page("pages/seeds.py").run()
    assert at.number_input(key="seed_count").value == 25


def test_the_selection_lives_across_pages_and_goes_with_its_data(app):
    """Case B22: by row id, never by position in a trace."""
    at = app()
    s = state_of(at)
    s.selection.set(Selection(s.data.x.ids[:3], s.data.y.ids[:3], "test"))
    for page in ("seeds", "align", "retrieval", "hubness", "data"):
        at.switch_page(f"pages/{page}.py").run()
        assert "3 + 3 selected" in texts(at)
    at.button(key="sample_glove").click().run()
    assert len(state_of(at).selection.current) == 0


def test_a_run_of_other_data_is_not_mixed_with_those_at_hand(app):
    at = app()
    run = finished_run(at)
    at.button(key="sample_molecules").click().run()
    state_of(at).run_id = run.id
    at.switch_page("pages/retrieval.py").run()
    assert "other data" in texts(at)
    assert not at.get("bidi_component")
    at.switch_page("pages/align.py").run()
    assert "older data" in texts(at)


def test_neighbours_on_the_page_are_those_of_brute_force(app):
    at = app()
    run = finished_run(at)
    s = state_of(at)
    s.run_id = run.id
    s.query = ("x", int(s.data.x.ids[123]))
    at.switch_page("pages/retrieval.py").run()
    arrays = run.alignment_arrays()
    x, y = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (arrays["x"], arrays["y"]))
    expected = np.argsort(-(y @ x[123]), kind="stable")[:10]
    tables = [d.value for d in at.dataframe]
    there = next(t for t in tables if "by seeds" in t.columns)
    assert there["name"].tolist() == s.data.y.names[expected].tolist()
    # the run is the seed baseline itself, so no rank may differ from the baseline's
    assert (there["rank"] == there["by seeds"]).all()


def test_seeds_by_text_list_the_lines_that_cannot_be_used(app):
    at = app("pages/seeds.py", sample="glove")
    at.radio(key="seed_strategy").set_value("file").run()
    at.text_area(key="seed_text").set_value("the\tthe\nof\tof\nxyzzy\tof\nking\tplugh").run()
    at.button(key="use_seeds").click().run()
    s = state_of(at)
    assert len(s.seeds.pairs) == 2
    said = texts(at)
    assert "line 3" in said and "xyzzy" in said and "line 4" in said and "plugh" in said


def test_a_path_in_the_text_field_is_text(app, home):
    secret = home.parent / "secret.csv"
    secret.write_text("the,the\n")
    at = app("pages/seeds.py", sample="glove")
    at.radio(key="seed_strategy").set_value("file").run()
    at.text_area(key="seed_text").set_value(str(secret)).run()
    at.button(key="use_seeds").click().run()
    assert len(state_of(at).seeds.pairs) == 0


def test_corrupted_seeds_are_marked_everywhere(app):
    at = app("pages/seeds.py")
    at.slider(key="corrupt_share").set_value(40).run()
    at.button(key="corrupt").click().run()
    s = state_of(at)
    assert s.seeds.corrupted.sum() == 6
    wrong = s.seeds.pairs.array[s.seeds.corrupted]
    assert (s.data.truth.partner(len(s.data.x))[wrong[:, 0]] != wrong[:, 1]).all()
    assert "6 of 15 pairs are wrong on purpose" in texts(at)
    at.switch_page("pages/align.py").run()
    at.button(key="run").click().run()
    assert "corrupted on purpose" in Run.load(at.registry.submitted[0].folder).record["notes"][0]


def test_names_with_markup_are_shown_as_text(app, home):
    x, report = make_space(np.eye(6) + 1, names=["<b>bold</b>", "*star*", "$x$", "`code`", "[a](b)", "plain"])
    pair = Pair(x, x, Pairs.by_row(6))
    for _ in range(2):
        store.put_space(x, report)
    run = runs.create(
        pair, method=method("relative"), seeds=Pairs.by_row(6).take(np.arange(3)), reports=(report, report), folds=0
    )
    list(runs.execute(run))
    at = app("pages/retrieval.py", run=run.id)
    shown = [m.value for m in at.markdown if "Query in" in m.value]
    assert shown and "<b>" not in shown[0].replace("\\<b\\>", "")


def test_a_deep_link_brings_run_and_data_back(app):
    at = app()
    run = finished_run(at)
    again = app("pages/retrieval.py", run=run.id)
    assert state_of(again).run_id == run.id
    assert state_of(again).data.x.fingerprint == run.record["x"]["fingerprint"]


def test_the_server_does_not_import_torch():
    import subprocess
    import sys

    code = (
        "import sys; from streamlit.testing.v1 import AppTest\n"
        "at = AppTest.from_file('app.py', default_timeout=60).run()\n"
        "assert not at.exception, at.exception\n"
        "for p in ('seeds', 'align', 'retrieval', 'hubness'):\n"
        "    at.switch_page(f'pages/{p}.py').run()\n"
        "    assert not at.exception, at.exception\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip().endswith("False")


def test_a_form_shows_only_what_matters_in_the_mode_chosen(app):
    """A field whose condition is itself hidden is hidden too: no Sinkhorn settings beside the alternation."""

    def shown(at) -> set[str]:
        widgets = [*at.number_input, *at.selectbox, *at.toggle]
        return {w.key.removeprefix("param:ao:") for w in widgets if w.key and w.key.startswith("param:ao:")}

    at = app("pages/align.py")
    assert {"rounds", "subset"} <= shown(at)
    assert not {"adam_steps", "correspondence", "epsilon", "sinkhorn_iterations", "stop_error"} & shown(at)
    at.selectbox(key="param:ao:mode").set_value("paper").run()
    assert {"adam_steps", "correspondence"} <= shown(at) and not {"rounds", "epsilon"} & shown(at)
    at.selectbox(key="param:ao:correspondence").set_value("soft").run()
    assert {"epsilon", "sinkhorn_iterations"} <= shown(at)
