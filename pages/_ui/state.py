"""What one visitor works on: the two spaces, the seeds, the run looked at, the selection. One typed object a session.

Heavy things live outside the session: spaces in the cache (by fingerprint), runs on disk, jobs in one registry.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

import numpy as np
import streamlit as st

from pages._ui.selection import Link, SelectionStore, link_by_pairs, no_link
from relcore import projection, runs, samples, seeds, store
from relcore.errors import InputError
from relcore.jobs import Job, JobManager
from relcore.runs import Run
from relcore.space import LoadReport, Pair, Pairs, Space

SEED_COUNT = 15


@dataclass(eq=False)
class Data:
    """Two loaded spaces, how their rows pair up (for scoring only) and what the loader said."""

    x: Space
    y: Space
    report_x: LoadReport
    report_y: LoadReport
    truth: Pairs | None
    pairing: str = "none"
    problems: list[str] = field(default_factory=list)
    sample: str = ""

    @property
    def pair(self) -> Pair:
        return Pair(self.x, self.y, self.truth)

    @property
    def key(self) -> str:
        return self.x.fingerprint[:12] + self.y.fingerprint[:12]


@dataclass(eq=False)
class SeedSet:
    """Seed pairs and where they came from. ``corrupted`` marks pairs that were made wrong on purpose."""

    pairs: Pairs
    origin: str
    corrupted: np.ndarray
    problems: list[str] = field(default_factory=list)

    @classmethod
    def clean(cls, pairs: Pairs, origin: str, problems: list[str] | None = None) -> SeedSet:
        return cls(pairs, origin, np.zeros(len(pairs), dtype=bool), problems or [])


@dataclass(eq=False)
class State:
    data: Data | None = None
    seeds: SeedSet | None = None
    run_id: str = ""
    query: tuple[str, int] | None = None  # side and row id of the row whose neighbours are shown
    selection: SelectionStore = field(default_factory=SelectionStore)
    owner: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    notice: str = ""  # said once, on the next page drawn


@st.cache_resource(show_spinner=False)
def jobs() -> JobManager:
    """One registry for the server: it outlives reruns, pages, reloads and visitors."""
    return JobManager(max_running=1)


def job_of(run_id: str) -> Job | None:
    """The job of a run of this server's life, newest first; None for a run of before."""
    return next((j for j in reversed(jobs().jobs()) if j.folder.name == run_id), None)


@st.cache_resource(show_spinner=False, max_entries=16)
def _sample(name: str):
    return samples.open_sample(name)


@st.cache_resource(show_spinner=False, max_entries=32)
def _kept_space(fingerprint: str) -> tuple[Space, LoadReport]:
    return store.get_space(fingerprint)


@st.cache_resource(show_spinner=False, max_entries=64)
def _pca_map(fingerprint: str, _space: Space) -> np.ndarray:
    v = projection.centred_unit(_space.vectors)
    return projection.fit_pca(v)(v)


@st.cache_resource(show_spinner=False, max_entries=8)
def _analysis(folder: str, stamp: float) -> dict[str, np.ndarray]:
    return Run.load(folder).analysis


def current() -> State:
    """The visitor's state; on the first call of a session it is restored from the address bar, or the default."""
    if "relcore" not in st.session_state:
        st.session_state.relcore = State()
        _restore(st.session_state.relcore)
    return st.session_state.relcore


def page_state() -> State:
    """The state, for the top of a page: writes what identifies it back to the address bar."""
    state = current()
    wanted = {}
    if state.data is not None and state.data.sample:
        wanted["sample"] = state.data.sample
    elif state.data is not None:
        wanted["x"], wanted["y"] = state.data.x.fingerprint, state.data.y.fingerprint
        wanted["pair"] = state.data.pairing
    if state.run_id:
        wanted["run"] = state.run_id
    for key in ("sample", "x", "y", "pair", "run"):
        if st.query_params.get(key) != wanted.get(key):
            if key in wanted:
                st.query_params[key] = wanted[key]
            else:
                st.query_params.pop(key, None)
    return state


def _restore(state: State) -> None:
    """Bring back what a link or a reload names; whatever is gone is said, and the default sample shown instead."""
    asked = {k: st.query_params.get(k, "") for k in ("sample", "x", "y", "pair", "run")}
    try:
        if asked["sample"]:
            open_sample(state, asked["sample"])
        elif asked["x"] and asked["y"]:
            x, report_x = _kept_space(asked["x"])
            y, report_y = _kept_space(asked["y"])
            truth, problems = seeds.pair_by(x, y, asked["pair"] or "none")
            set_data(state, Data(x, y, report_x, report_y, truth, asked["pair"] or "none", problems))
        if asked["run"]:
            open_run(state, asked["run"])
    except InputError as e:
        state.notice = f"This link cannot be followed wholly: {e}"
    if state.data is None:
        open_sample(state, samples.list_samples()[0].name)


def open_sample(state: State, name: str) -> None:
    opened = _sample(name)
    sample = next(s for s in samples.list_samples() if s.name == name)
    pair, report_x, report_y, _ = opened
    set_data(state, Data(pair.x, pair.y, report_x, report_y, pair.truth, sample.pairing, sample=name))


def set_data(state: State, data: Data) -> None:
    """Work on other spaces: the seeds are drawn anew, selection and run belong to the old ones and go."""
    state.data = data
    state.seeds = default_seeds(data)
    state.run_id, state.query = "", None
    state.selection.forget()


def default_seeds(data: Data) -> SeedSet:
    if data.truth is None or not len(data.truth):
        return SeedSet.clean(Pairs.empty(), "none")
    wanted = next((s.seeds for s in samples.list_samples() if s.name == data.sample), SEED_COUNT)
    count = min(wanted, len(data.truth))
    return SeedSet.clean(seeds.draw(data.truth, count, seed=0), f"{count} drawn at random (seed 0)")


def open_run(state: State, run_id: str) -> None:
    """Look at a run; its data are loaded if they are not the ones at hand."""
    run = runs.find(run_id)
    r = run.record
    here = state.data
    if here is None or (here.x.fingerprint, here.y.fingerprint) != (r["x"]["fingerprint"], r["y"]["fingerprint"]):
        x, report_x = _kept_space(r["x"]["fingerprint"])
        y, report_y = _kept_space(r["y"]["fingerprint"])
        set_data(state, Data(x, y, report_x, report_y, run.pairs[1], "as in the run"))
    if len(run.pairs[0]):
        state.seeds = SeedSet.clean(run.pairs[0], f"as in run {run.title}")
    state.run_id = run_id


def maps(data: Data) -> tuple[np.ndarray, np.ndarray]:
    """PCA maps of both spaces; a sample brings its own."""
    if data.sample:
        return _sample(data.sample).maps
    return _pca_map(data.x.fingerprint, data.x), _pca_map(data.y.fingerprint, data.y)


def active_run(state: State) -> Run | None:
    """The run looked at, freshly read from disk."""
    if not state.run_id:
        return None
    try:
        return runs.find(state.run_id)
    except InputError as e:
        state.run_id, state.notice = "", str(e)
        return None


def analysis(run: Run) -> dict[str, np.ndarray]:
    path = run.folder / "analysis.safetensors"
    return _analysis(str(run.folder), path.stat().st_mtime)


def is_of_data(run: Run, data: Data) -> bool:
    r = run.record
    return (r["x"]["fingerprint"], r["y"]["fingerprint"]) == (data.x.fingerprint, data.y.fingerprint)


def link(state: State) -> Link:
    """How the maps are linked: same item where the pairing is known, else the matches of the run looked at."""
    data = state.data
    n, m = len(data.x), len(data.y)
    if data.truth is not None:
        return link_by_pairs("same item", data.truth, n, m)
    run = active_run(state)
    if run is not None and run.usable and is_of_data(run, data):
        arrays = analysis(run)
        nearest = (arrays[f"{way}/nearest/indices"][:, 0].astype(np.int64) for way in ("x_to_y", "y_to_x"))
        return Link(f"matched by {run.title}", *nearest)
    return no_link(n, m)
