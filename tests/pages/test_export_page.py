"""The Export page: every button's file is what it says, and sessions come back in."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import zipfile

import numpy as np
import pandas as pd
import pytest

from pages._ui import downloads
from relcore import formats, runs, sessions, store
from relcore.runs import Run
from tests.pages.conftest import errors, texts
from tests.pages.test_mismatch_page import made_run, planted
from tests.pages.test_pages import state_of


@pytest.fixture
def opened(app):
    run = made_run(*planted())
    return app("pages/export.py", run=run.id), run


def buttons(at) -> dict[str, object]:
    return {b.proto.label: b.proto for b in at.get("download_button")}


def test_it_offers_what_there_is(opened):
    at, run = opened
    offered = buttons(at)
    assert {"Report", "Everything", "Session", "Seeds", "Metrics", "Matches", "Map (png)", "Charts (svg)"} <= set(
        offered
    )
    assert offered["Anchors"].disabled and not offered["Seeds"].disabled  # Procrustes finds none
    assert offered["Selected rows (0)"].disabled
    assert "python -m relcore align" in at.code[0].value and "relcore.align(" in at.code[1].value
    assert "240 + 200 rows of 12 numbers" in texts(at)


def test_without_a_run_a_session_can_be_opened(app):
    at = app("pages/export.py")
    assert "No run is open yet" in texts(at) and "Open a session" in texts(at)


@pytest.mark.parametrize("ending", ["npz", "npy", "csv", "parquet", "safetensors", "pt", "jsonl", "vec"])
def test_aligned_vectors_in_every_format_read_back(opened, tmp_path, ending):
    at, run = opened
    assert ending in downloads.endings()
    data = state_of(at).data
    path = tmp_path / f"a.{ending}"
    path.write_bytes(downloads.aligned(run, data.pair, "y", ending))
    spec = f"{path}:vectors" if ending in ("npz", "safetensors", "pt") else path
    again, _ = formats.load(spec)
    np.testing.assert_array_equal(again.vectors, run.alignment_arrays()["y"])
    if ending != "npy":
        assert list(again.names) == list(data.y.names)


def test_the_server_loads_no_torch_for_any_of_it(opened, tmp_path):
    _, run = opened
    program = f"""
import sys
sys.path.insert(0, ".")
from pages._ui import downloads
from relcore.runs import Run
run = Run.load({str(run.folder)!r})
pair = run.pair()
for ending in ("npz", "pt"):
    assert downloads.aligned(run, pair, "x", ending)
assert downloads.report_bytes(run) and downloads.everything(run, pair) and downloads.session(run)
assert downloads.svgs(run) and downloads.recipe_zip(run, pair)
assert "torch" not in sys.modules, "torch was loaded"
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_everything_is_one_zip_of_it_all(opened):
    at, run = opened
    with zipfile.ZipFile(io.BytesIO(downloads.everything(run, state_of(at).data.pair))) as z:
        names = set(z.namelist())
        assert json.loads(z.read("run/run.json"))["id"] == run.id
    wanted = {
        "aligned_x.npz",
        "seeds.csv",
        "matches_x_to_y.csv",
        "metrics.csv",
        "usage.txt",
        "make_again/make_again.sh",
    }
    assert wanted <= names


def test_tables_and_the_selection(opened):
    at, run = opened
    data = state_of(at).data
    frame = pd.read_csv(io.BytesIO(downloads.table(lambda: pd.DataFrame({"a": ["x,y", "z"]}), "csv")))
    assert frame["a"].tolist() == ["x,y", "z"]
    assert pd.read_parquet(io.BytesIO(downloads.table(run.history, "parquet"))).equals(run.history())
    state_of(at).selection.set(downloads_selection(data))
    at.run()
    assert not buttons(at)["Selected rows (3)"].disabled
    rows = downloads.selected(data, state_of(at).selection.current)
    assert rows["side"].tolist() == ["A", "A", "B"] and rows["row"].tolist() == [3, 5, 7]
    assert rows["name"].tolist() == ["X3", "X5", "Y7"]


def downloads_selection(data):
    from pages._ui.selection import Selection

    return Selection(np.array([3, 5]), np.array([7]), "a test")


def test_charts_are_svg_files_of_their_own(opened):
    _, run = opened
    with zipfile.ZipFile(io.BytesIO(downloads.svgs(run))) as z:
        assert len(z.namelist()) >= 4
        for name in z.namelist():
            text = z.read(name).decode()
            assert name.endswith(".svg") and text.startswith("<svg ") and text.endswith("</svg>")


def test_a_session_comes_back_in_after_its_run_is_gone(opened):
    at, run = opened
    data = downloads.session(run)
    runs.delete(run.id)
    at.run()
    at.file_uploader(key="session_upload").upload("mine.zip", data, "application/zip").run()
    assert "Saved 20" in texts(at) and "Procrustes" in texts(at)
    at.button(key="session_open").click().run()
    assert not at.exception and state_of(at).run_id == run.id and Run.load(run.folder).usable
    assert "Here now: 1 run." in texts(at)


def test_a_file_that_is_no_session_is_refused_by_its_own_name(opened):
    at, _ = opened
    at.file_uploader(key="session_upload").upload("holiday.zip", b"no zip at all", "application/zip").run()
    assert "holiday.zip is no session" in errors(at) and not at.exception
    assert sessions.FORMAT == 1


def test_a_session_opens_on_the_data_page_too(opened):
    at, run = opened
    data = downloads.session(run)
    runs.delete(run.id)
    at.switch_page("pages/data.py").run()
    at.file_uploader(key="session_upload").upload("mine.zip", data, "application/zip").run()
    at.button(key="session_open").click().run()
    assert not at.exception and state_of(at).run_id == run.id


def test_a_session_without_its_data_and_a_full_disk_are_told(app, monkeypatch):
    run = made_run(*planted(), folds=0)
    bare = run.record | {side: run.record[side] | {"kept": None} for side in "xy"}
    data = downloads.session(Run(run.folder, bare))
    runs.delete(run.id)
    shutil.rmtree(store.home() / "spaces")
    at = app("pages/export.py")
    at.file_uploader(key="session_upload").upload("bare.zip", data, "application/zip").run()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as m:
        m.setattr(sessions, "_put_in_place", full)
        at.button(key="session_open").click().run()
        assert not at.exception and "No space left on device" in errors(at)
    at.button(key="session_open").click().run()
    assert not at.exception and "not kept in" in texts(at) + errors(at) and runs.find(run.id).usable


def test_a_full_disk_is_told_where_a_run_is_started(app, monkeypatch):
    at = app("pages/data.py")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(runs, "create", full)
    at.button(key="run_first").click().run()
    assert (
        not at.exception
        and "No space left on device" in errors(at)
        and "What was kept before is as it was" in errors(at)
    )
