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
from relcore.loading import Loading
from relcore.runs import Run
from relcore.seeds import Ambiguous, Pairing
from relcore.space import LoadReport, Pair, Pairs, Space

SEED_COUNT = 15
LINKED_PAIRINGS = ("row", "name", "none")  # pairings that the address bar can name; others are kept and named by digest


@dataclass(frozen=True)
class Request:
    """A file to be loaded, as :func:`relcore.loading.start` takes it. ``stamps`` tell a file that has changed."""

    path: str
    stamps: tuple[int, ...]
    options: str  # JSON, so that equal requests are equal

    @property
    def key(self) -> tuple:
        return (self.path, self.stamps, self.options)


@dataclass(frozen=True)
class PairingChoice:
    """How two spaces are to be paired: by ``row``, ``name``, ``id`` (a column on each side), ``file``, or ``none``."""

    how: str
    id_x: str | None = None
    id_y: str | None = None
    file: str | None = None


@dataclass(eq=False)
class Data:
    """Two loaded spaces, how their rows pair up (for scoring only) and what the loader said.

    ``requests`` and ``choice`` say how own files were loaded, so that one thing can be asked differently.
    """

    x: Space
    y: Space
    report_x: LoadReport
    report_y: LoadReport
    truth: Pairs | None
    pairing: str = "none"
    problems: list[str] = field(default_factory=list)
    sample: str = ""
    ambiguous: tuple[Ambiguous, ...] = ()
    alone: tuple[int, int] = (0, 0)
    folded_pairs: int = 0
    requests: dict[str, Request] = field(default_factory=dict)
    choice: PairingChoice | None = None
    folded: dict[str, int] = field(default_factory=dict)  # rows that folding the case would merge, for each side
    _link: str = ""

    @property
    def pair(self) -> Pair:
        return Pair(self.x, self.y, self.truth)

    @property
    def key(self) -> str:
        return self.x.fingerprint[:12] + self.y.fingerprint[:12]

    @property
    def link(self) -> str:
        """How the address bar names the pairing."""
        if self.truth is None or self.pairing in LINKED_PAIRINGS:
            return self.pairing if self.pairing in LINKED_PAIRINGS else "none"
        self._link = self._link or store.put_pairs(self.truth, self.pairing, self.problems)
        return self._link


def paired(x: Space, y: Space, reports: tuple[LoadReport, LoadReport], how: str, found: Pairing, **rest) -> Data:
    """Two spaces and what pairing them found."""
    return Data(
        x,
        y,
        *reports,
        found.pairs,
        how,
        list(found.problems),
        ambiguous=found.ambiguous,
        alone=(found.alone_x, found.alone_y),
        folded_pairs=found.folded,
        **rest,
    )


@dataclass(eq=False)
class Opening:
    """Two files on their way in, and how they are to be paired once they are there."""

    requests: dict[str, Request]
    choice: PairingChoice
    loadings: dict[str, Loading]  # without the sides that were loaded before
    outcomes: dict[str, dict]

    @property
    def done(self) -> bool:
        return all(loading.done for loading in self.loadings.values())

    def cancel(self) -> None:
        for loading in self.loadings.values():
            loading.cancel()


@dataclass(eq=False)
class Files:
    """What a visitor is about to load: a source for each side, files beside them, and what was loaded already."""

    chosen: dict[str, tuple[str, str, bool]] = field(default_factory=dict)  # side -> path, name, uploaded
    beside: dict[str, list[str]] = field(default_factory=lambda: {"x": [], "y": [], "pairs": []})
    roles: dict[tuple, dict[str, str]] = field(default_factory=dict)  # (path, array) -> roles of columns
    turns: dict[str, int] = field(default_factory=dict)  # how often a field was emptied: part of its key
    opening: Opening | None = None
    loaded: dict[tuple, dict] = field(default_factory=dict)  # request -> outcome
    errors: list[str] = field(default_factory=list)


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
    files: Files = field(default_factory=Files)
    owner: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    notice: str = ""  # said once, on the next page drawn
    asked_method: str = ""  # the form shows this one next: a run of it was started by one click


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


def kept_space(reference: str) -> tuple[Space, LoadReport]:
    """A space in the store; a fingerprint alone means the view kept last, which may be another one tomorrow."""
    return _kept_view(reference) if "." in reference else store.get_space(reference)


@st.cache_resource(show_spinner=False, max_entries=16)
def _kept_view(reference: str) -> tuple[Space, LoadReport]:
    return store.get_space(reference)


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
        wanted["x"], wanted["y"] = (store.reference_of(space) for space in (state.data.x, state.data.y))
        wanted["pair"] = state.data.link
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
            x, report_x = kept_space(asked["x"])
            y, report_y = kept_space(asked["y"])
            how = asked["pair"] or "none"
            if how in LINKED_PAIRINGS:
                found = seeds.pairing(x, y, how, report_x=report_x, report_y=report_y)
            else:
                pairs, how, problems = store.get_pairs(how, len(x), len(y))
                found = Pairing(pairs, problems=tuple(problems))
            set_data(state, paired(x, y, (report_x, report_y), how, found))
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
        x, report_x = kept_space(r["x"].get("kept") or r["x"]["fingerprint"])
        y, report_y = kept_space(r["y"].get("kept") or r["y"]["fingerprint"])
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
