"""Pages run in Streamlit's own test harness: no browser, no worker process, a home of their own."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
import streamlit as st
from streamlit.proto.WidgetStates_pb2 import WidgetState
from streamlit.runtime.pages_manager import PagesManager
from streamlit.testing.v1 import AppTest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("RELCORE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RELCORE_DATA", str(tmp_path / "files"))
    (tmp_path / "files").mkdir()
    return tmp_path / "home"


@pytest.fixture
def app(home, monkeypatch):
    """``app(page="pages/seeds.py", **query) -> AppTest`` after its first run. Jobs are recorded, not started."""
    monkeypatch.chdir(ROOT)
    st.cache_resource.clear()
    st.cache_data.clear()
    from pages._ui import state

    # A real server leaves the legacy mode of a pages/ folder with its first session; AppTest starts in it every run.
    begin = PagesManager.__init__

    def begin_as_a_server_that_has_served(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        PagesManager.uses_pages_directory = False

    monkeypatch.setattr(PagesManager, "__init__", begin_as_a_server_that_has_served)
    registry = Registry()
    monkeypatch.setattr(state, "jobs", lambda: registry)

    def start(page: str | None = None, **query: str) -> AppTest:
        at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
        for key, value in query.items():
            at.query_params[key] = value
        at.run()
        if page:
            at.switch_page(page).run()
        assert not at.exception, at.exception
        at.registry = registry
        return at

    return start


class Registry:
    """Stands for the job registry: keeps what was submitted and lets a test say how it goes."""

    def __init__(self):
        self.submitted = []

    def submit(self, folder, owner):
        self.submitted.append(Job(folder, owner))
        return self.submitted[-1]

    def jobs(self, owner=None):
        return [j for j in self.submitted if owner is None or j.owner == owner]


class Job:
    def __init__(self, folder, owner):
        self.folder, self.owner, self.status = folder, owner, "running"

    @property
    def active(self):
        return self.status in ("queued", "running", "paused")

    def snapshot(self):
        from relcore.jobs import JobSnapshot

        return JobSnapshot(
            id="0", folder=self.folder, owner=self.owner, status=self.status, step=3, total=10, phase="match",
            rate=2.0, eta=3.5, elapsed=1.5, metrics={}, curves={}, frame=None, cancelling=False, message="",
            stderr="", version=1,
        )  # fmt: skip

    def pause(self):
        self.status = "paused"

    def resume(self):
        self.status = "running"

    def cancel(self):
        self.status = "cancelled"


def inject(at: AppTest, element, value: dict) -> AppTest:
    """Run with what a component would send: AppTest has no browser to do it."""
    states = at._tree.get_widget_states()
    state = WidgetState(id=element.proto.id)
    state.json_value = json.dumps(value)
    states.widgets.append(state)
    return at._run(states)


def texts(at: AppTest) -> str:
    """All that a page says, for a search in it, without the backslashes that keep text from being markdown."""
    kinds = ("markdown", "caption", "info", "warning", "error", "success", "title", "subheader")
    return "\n".join(unescaped(str(e.value)) for kind in kinds for e in getattr(at, kind))


def unescaped(text: str) -> str:
    return re.sub(r"\\([^\w\s])", r"\1", text)


def errors(at: AppTest) -> str:
    return "\n".join(unescaped(e.value) for e in at.error)


def loaded(at: AppTest) -> AppTest:
    """Run until the files on their way in are there: a browser would tick by itself."""
    deadline = time.monotonic() + 60
    while at.session_state["relcore"].files.opening is not None:
        assert time.monotonic() < deadline, "the files are still being loaded"
        time.sleep(0.05)
        at.run()
    assert not at.exception, at.exception
    return at
