"""What one visitor works on: the spaces, the seeds, the run looked at, the selection. One typed object a session.

The spaces are a list, of which two are picked: A and B of every page but those that show all pairs. Heavy things live
outside the session: spaces in the cache (by fingerprint), runs on disk, jobs in one registry.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import streamlit as st

from pages._ui.selection import Link, Selection, SelectionStore, link_by_pairs, no_link, read, spelled
from relcore import projection, runs, samples, seeds, store
from relcore.errors import InputError
from relcore.jobs import Job, JobManager
from relcore.loading import Loading
from relcore.runs import Run
from relcore.seeds import Pairing
from relcore.space import LoadReport, Pair, Pairs, Space, Spaces

SEED_COUNT = 15
MAX_SPACES = 8  # each pair of a list is drawn somewhere, both ways: 56 of them
SIDES = ("x", "y")
LINK_KEYS = ("sample", "x", "y", "pair", "more", "pick", "run", "of", "sel")
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


@dataclass(frozen=True, eq=False)
class Listed:
    """A space of the list: what the loader said of it, and how its rows pair up with those of the list's first space.

    ``found`` has the first space as x and this one as y; for the first itself it is empty. A space of a sample has its
    name, its place in it and coordinates, float32 (n, 2). ``request`` and ``choice`` say how an own file was loaded and
    paired, so that one thing can be asked differently; ``folded`` how many rows folding the case would merge.
    """

    space: Space
    report: LoadReport
    how: str = "none"
    found: Pairing = Pairing(None)
    sample: str = ""
    part: int = 0
    map: np.ndarray | None = None
    request: Request | None = None
    choice: PairingChoice | None = None
    folded: int = 0

    @property
    def title(self) -> str:
        return self.space.title

    @property
    def truth(self) -> Pairs | None:
        return self.found.pairs

    @property
    def problems(self) -> tuple[str, ...]:
        return self.found.problems

    @property
    def reference(self) -> str:
        """How the address bar names the space."""
        return f"{self.sample}:{self.part}" if self.sample else store.reference_of(self.space)

    @cached_property
    def link(self) -> str:
        """How the address bar names the pairing."""
        if self.truth is None or self.how in LINKED_PAIRINGS:
            return self.how if self.how in LINKED_PAIRINGS else "none"
        return store.put_pairs(self.truth, self.how, list(self.problems))


@dataclass(frozen=True, eq=False)
class Data:
    """The spaces of a visitor, and which two of them the pages work on: A, called ``x``, and B, called ``y``.

    Attributes
    ----------
    listed : two to :data:`MAX_SPACES`, in an order that stays. On the screen they are numbered from 1 (:attr:`marks`),
        since A and B are what two of them are picked as.
    picked : positions in the list of A and B.
    gallery : the sample whose spaces the list begins with, all of them and in its order; "" if it begins with others.
    """

    listed: tuple[Listed, ...]
    picked: tuple[int, int] = (0, 1)
    gallery: str = ""

    @property
    def more(self) -> tuple[Listed, ...]:
        """What is in the list beyond the first two."""
        return self.listed[2:]

    @property
    def marks(self) -> tuple[str, ...]:
        """What the spaces are called for short, in the order of the list."""
        return tuple(str(i + 1) for i in range(len(self.listed)))

    @cached_property
    def spaces(self) -> Spaces:
        """All of the list, with the items that all have; ``rows`` is None where a pairing is not known."""
        return Spaces.join([one.space for one in self.listed], [one.truth for one in self.listed[1:]])

    def side(self, side: str) -> Listed:
        return self.listed[self.picked[SIDES.index(side)]]

    @property
    def x(self) -> Space:
        return self.side("x").space

    @property
    def y(self) -> Space:
        return self.side("y").space

    @property
    def report_x(self) -> LoadReport:
        return self.side("x").report

    @property
    def report_y(self) -> LoadReport:
        return self.side("y").report

    @cached_property
    def _between(self) -> tuple[str, Pairing]:
        return between(self.listed, *self.picked)

    @property
    def pairing(self) -> str:
        """How A and B are paired, in words."""
        return self._between[0]

    @property
    def found(self) -> Pairing:
        """The pairs of A and B and what stood in their way."""
        return self._between[1]

    @property
    def truth(self) -> Pairs | None:
        """Which rows of A and B correspond, for scoring only."""
        return self.found.pairs

    @property
    def problems(self) -> list[str]:
        return list(self.found.problems)

    @property
    def sample(self) -> str:
        """The sample that :func:`relcore.samples.open_sample` opens as these two spaces; "" if there is none."""
        return self.gallery if self.picked == (0, 1) else ""

    @property
    def suggests(self) -> samples.Sample | None:
        """The sample that both come from, for its first method and number of seeds."""
        names = {self.side(side).sample for side in SIDES}
        return next((s for s in samples.list_samples() if names == {s.name}), None)

    @property
    def pair(self) -> Pair:
        return Pair(self.x, self.y, self.truth)

    @property
    def key(self) -> str:
        return self.x.fingerprint[:12] + self.y.fingerprint[:12]


def turned(found: Pairing) -> Pairing:
    """The same with x and y changed about, in its sentences too."""

    def other(text: str) -> str:
        words, quote, quoted = text.partition("'")  # what is quoted comes from a file
        return re.sub(r"\b(of|in) ([xy])\b", lambda m: f"{m[1]} {'yx'['xy'.index(m[2])]}", words) + quote + quoted

    return Pairing(
        None if found.pairs is None else found.pairs.flip(),
        tuple(a._replace(side="yx"["xy".index(a.side)]) for a in found.ambiguous),
        found.alone_y,
        found.alone_x,
        found.folded,
        tuple(map(other, found.problems)),
    )


def between(listed: Sequence[Listed], i: int, j: int) -> tuple[str, Pairing]:
    """How spaces i and j of a list are paired, in words, and what was found: by way of the first, if neither is it."""
    if i == 0:
        return listed[j].how, listed[j].found
    if j == 0:
        return listed[i].how, turned(listed[i].found)
    first, x, y = listed[0], listed[i], listed[j]
    unknown = [one.title for one in (x, y) if one.truth is None]
    if unknown:
        said = f"{' and '.join(unknown)}: no rows are known to correspond to those of {first.title}, so none here"
        return "none", Pairing(None, problems=(said,))
    pairs = Spaces.join((first.space, x.space, y.space), (x.truth, y.truth)).pairs(1, 2)
    problems = () if len(pairs) else (f"no row of {first.title} has a partner on both sides",)
    how = f"{' and '.join(dict.fromkeys((x.how, y.how)))}, through {first.title}"
    alone = (len(x.space) - len(pairs), len(y.space) - len(pairs))
    return how, Pairing(pairs if len(pairs) else None, (), *alone, problems=problems)


@dataclass(eq=False)
class Opening:
    """Files on their way in, by their place in the list, and how they are to be paired with its first space."""

    requests: dict[int, Request]
    choices: dict[int, PairingChoice]
    loadings: dict[int, Loading]  # without those that were loaded before
    outcomes: dict[int, dict]
    onto: tuple[Listed, ...] = ()  # the list they become part of; without it they are a new one

    @property
    def adding(self) -> bool:
        """Whether the list grows."""
        return len(self.onto) > 0 and max(self.requests) >= len(self.onto)

    @property
    def done(self) -> bool:
        return all(loading.done for loading in self.loadings.values())

    def cancel(self) -> None:
        for loading in self.loadings.values():
            loading.cancel()


@dataclass(eq=False)
class Files:
    """What a visitor is about to load: a source for each side, files beside them, and what was loaded already.

    The sides are x and y for two spaces of one's own, and z for one that is added to the list.
    """

    chosen: dict[str, tuple[str, str, bool]] = field(default_factory=dict)  # side -> path, name, uploaded
    beside: dict[str, list[str]] = field(default_factory=lambda: {k: [] for k in ("x", "y", "z", "pairs", "pairs_z")})
    roles: dict[tuple, dict[str, str]] = field(default_factory=dict)  # (path, array) -> roles of columns
    turns: dict[str, int] = field(default_factory=dict)  # how often a field was emptied: part of its key
    opening: Opening | None = None
    loaded: dict[tuple, dict] = field(default_factory=dict)  # request -> outcome
    errors: list[str] = field(default_factory=list)
    adding: bool = False  # whether the errors are of a space that was to be added


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
    if state.data is not None:
        wanted |= _linked(state.data)
    if state.run_id:
        wanted["run"] = state.run_id
    if len(state.selection.current):
        wanted["sel"] = _selected(state.selection)
    for key in LINK_KEYS:
        if st.query_params.get(key) != wanted.get(key):
            if key in wanted:
                st.query_params[key] = wanted[key]
            else:
                st.query_params.pop(key, None)
    return state


def _selected(chosen: SelectionStore) -> str:
    """What the address bar says of the selection: its rows where they are few, else the digest they are kept under."""
    if chosen.link[0] != chosen.revision:
        now = chosen.current
        chosen.link = (chosen.revision, spelled(now) or store.put_selection(now.x, now.y, now.origin))
    return chosen.link[1]


def _linked(data: Data) -> dict[str, str]:
    """What the address bar says of the list and of what is picked."""
    own = data.more
    if data.gallery:
        out = {"sample": data.gallery}
        own = [one for one in data.listed if one.sample != data.gallery]
    else:
        first, second = data.listed[:2]
        out = {"x": first.reference, "y": second.reference, "pair": second.link}
        out["of"] = "|".join(one.title[:60] for one in (first, second))  # for who does not have the data
    if own:
        out["more"] = ",".join(f"{one.reference}~{one.link}" for one in own)
    if data.picked != (0, 1):
        out["pick"] = ",".join(map(str, data.picked))
    return out


def _restore(state: State) -> None:
    """Bring back what a link or a reload names; whatever is gone is said, and the default sample shown instead."""
    asked = {k: st.query_params.get(k, "") for k in LINK_KEYS}
    refused: list[str] = []

    def attempt(step: Callable[..., None], *given: str) -> None:
        try:
            step(state, *given)
        except InputError as e:
            refused.append(str(e))

    if asked["sample"]:
        attempt(open_sample, asked["sample"])
    elif asked["x"] and asked["y"]:
        attempt(_open_kept, asked["x"], asked["y"], asked["pair"] or "none")
    if state.data is not None:
        for entry in filter(None, asked["more"].split(",")):
            attempt(_add_kept, entry)
        if asked["pick"]:
            attempt(_pick_as_linked, asked["pick"])
    if asked["run"]:
        attempt(open_run, asked["run"])
    if asked["sel"] and state.data is not None:
        attempt(_select_as_linked, asked["sel"])
    if refused:
        made = f" It was made with {' and '.join(asked['of'].split('|'))}." if asked["of"] and not state.data else ""
        more = " Load that, or open the session they were saved in on the Export page." if made else ""
        state.notice = f"This link cannot be followed wholly: {' '.join(refused)}{made}{more}"
    if state.data is None:
        open_sample(state, samples.list_samples()[0].name)


def _listed(reference: str) -> Listed:
    """A space that a link names, not yet paired."""
    name, colon, part = reference.partition(":")
    if not colon:
        return Listed(*kept_space(reference))
    of_sample = sample_spaces(name)
    if part not in map(str, range(len(of_sample))):
        raise InputError(f"there is no space {part[:20]!r} in the sample {name}, which has {len(of_sample)}.")
    return replace(of_sample[int(part)], how="none", found=Pairing(None))


def _paired(first: Listed, one: Listed, how: str) -> Listed:
    """A space with the pairing that a link names, with the list's first."""
    if how in LINKED_PAIRINGS:
        found = seeds.pairing(first.space, one.space, how, report_x=first.report, report_y=one.report)
    else:
        pairs, how, problems = store.get_pairs(how, len(first.space), len(one.space))
        found = Pairing(pairs, problems=tuple(problems))
    return replace(one, how=how, found=found)


def _open_kept(state: State, x: str, y: str, how: str) -> None:
    first = _listed(x)
    set_data(state, Data((first, _paired(first, _listed(y), how))))


def _add_kept(state: State, entry: str) -> None:
    reference, _, how = entry.partition("~")
    add(state, _paired(state.data.listed[0], _listed(reference), how or "none"))


def _pick_as_linked(state: State, text: str) -> None:
    numbers = text.split(",")
    if len(numbers) != 2 or not all(n.isascii() and n.isdigit() for n in numbers):
        raise InputError(f"pick={text[:20]!r} names no two spaces; pick them on the Data page.")
    pick(state, *map(int, numbers))


def _select_as_linked(state: State, text: str) -> None:
    chosen = read(text) or Selection(*store.get_selection(text))
    spaces = state.data.x, state.data.y
    known = [np.intersect1d(ids, space.ids) for ids, space in zip((chosen.x, chosen.y), spaces, strict=True)]
    state.selection.set(Selection(*known, chosen.origin))
    gone = len(chosen) - sum(map(len, known))
    if gone:
        raise InputError(f"{gone:,} of {len(chosen):,} selected rows are not in these data.")


def sample_spaces(name: str) -> tuple[Listed, ...]:
    """The spaces of a sample, paired with its first.

    Raises
    ------
    InputError
        There is no such sample.
    """
    opened = _sample(name)
    sample = next(s for s in samples.list_samples() if s.name == name)
    pair = opened.pair
    return (
        Listed(pair.x, opened.report_x, sample=name, map=opened.maps[0]),
        Listed(pair.y, opened.report_y, sample.pairing, Pairing(pair.truth), sample=name, part=1, map=opened.maps[1]),
        *(
            Listed(one.space, one.report, card.pairing, Pairing(one.truth), sample=name, part=part, map=one.map)
            for part, (card, one) in enumerate(zip(sample.further, opened.further, strict=True), 2)
        ),
    )


def open_sample(state: State, name: str) -> None:
    set_data(state, Data(sample_spaces(name), gallery=name))


def set_data(state: State, data: Data) -> None:
    """Work on other spaces: the seeds are drawn anew, selection and run belong to the old ones and go."""
    state.data = data
    state.seeds = default_seeds(data)
    state.run_id, state.query = "", None
    state.selection.forget()


def pick(state: State, i: int, j: int) -> None:
    """Make spaces i and j of the list A and B of all pages; as other data, but the list stays.

    Raises
    ------
    InputError
        They are not two of the list.
    """
    n = len(state.data.listed)
    if i == j or not (0 <= i < n and 0 <= j < n):
        raise InputError(f"positions {i} and {j} are not two of the {n} spaces of the list, counted from 0; pick two.")
    if (i, j) != state.data.picked:
        set_data(state, replace(state.data, picked=(i, j)))


def add(state: State, one: Listed) -> None:
    """Put a further space at the end of the list. A and B, and what belongs to them, stay.

    Raises
    ------
    InputError
        The list is full.
    """
    data = state.data
    if len(data.listed) >= MAX_SPACES:
        raise InputError(f"the list holds {MAX_SPACES} spaces, and more are not shown together; remove one first.")
    state.data = replace(data, listed=(*data.listed, one))


def remove(state: State, i: int) -> None:
    """Take a space off the list. Where it was A or B, another takes its place, as with :func:`pick`.

    The others keep their pairs: where the first goes, they are paired through it with the next.

    Raises
    ------
    InputError
        Fewer than two would be left.
    """
    data = state.data
    if len(data.listed) <= 2:
        raise InputError("A list has at least two spaces; add another one before you remove this one.")
    listed = list(data.listed)
    if i == 0:
        second = replace(listed[1], how="none", found=Pairing(None), choice=None)
        rest = [replace(listed[j], **_through_first(listed, j), choice=None) for j in range(2, len(listed))]
        listed = [second, *rest]
    else:
        del listed[i]
    gallery = "" if data.listed[i].sample == data.gallery else data.gallery
    free = [k for k in range(len(data.listed)) if k != i and k not in data.picked]
    picked = [free[0] if k == i else k for k in data.picked]
    after = Data(tuple(listed), tuple(k - (k > i) for k in picked), gallery)
    if i in data.picked:
        set_data(state, after)
    else:
        state.data = after


def _through_first(listed: Sequence[Listed], j: int) -> dict:
    how, found = between(listed, 1, j)
    return {"how": how, "found": found}


def default_seeds(data: Data) -> SeedSet:
    if data.truth is None or not len(data.truth):
        return SeedSet.clean(Pairs.empty(), "none")
    count = min(data.suggests.seeds if data.suggests else SEED_COUNT, len(data.truth))
    return SeedSet.clean(seeds.draw(data.truth, count, seed=0), f"{count} drawn at random (seed 0)")


def open_run(state: State, run_id: str) -> None:
    """Look at a run; its two spaces are picked where they are in the list, else they are loaded."""
    run = runs.find(run_id)
    r = run.record
    wanted = (r["x"]["fingerprint"], r["y"]["fingerprint"])
    where = _places(state.data, wanted) if state.data is not None else None
    if where is not None:
        pick(state, *where)
    else:
        x, y = (kept_space(r[side].get("kept") or r[side]["fingerprint"]) for side in SIDES)
        set_data(state, Data((Listed(*x), Listed(*y, "as in the run", Pairing(run.pairs[1])))))
    if len(run.pairs[0]):
        state.seeds = SeedSet.clean(run.pairs[0], f"as in run {run.title}")
    state.run_id = run_id


def _places(data: Data, wanted: tuple[str, str]) -> tuple[int, int] | None:
    """Where two fingerprints are in the list: what is picked if that is them, else the first that are."""
    prints = [one.space.fingerprint for one in data.listed]
    all_pairs = [(i, j) for i in range(len(prints)) for j in range(len(prints)) if i != j]
    return next((p for p in (data.picked, *all_pairs) if (prints[p[0]], prints[p[1]]) == wanted), None)


def maps(data: Data) -> tuple[np.ndarray, np.ndarray]:
    """PCA maps of both spaces; those of a sample bring their own."""
    return tuple(
        one.map if one.map is not None else _pca_map(one.space.fingerprint, one.space) for one in map(data.side, SIDES)
    )


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
