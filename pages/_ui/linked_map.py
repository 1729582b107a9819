"""The twin map: two spaces side by side (or in one frame), brushed in the browser, linked by row.

The browser draws the points and answers a lasso at once; only its outline (at most 200 corners) comes to Python, which
finds the same rows again with the same arithmetic. Selections are sets of row ids, never positions in a drawing.

A page stores what it is told and gives it back::

    event = linked_map(
        [Panel(x.title, xy_x, x.ids, colour_x, x.names), Panel(y.title, xy_y, y.ids, colour_y, y.names)],
        key="map", selection=store.ids, partner=(partner_x, partner_y), on_change=store.take,
    )

``on_change`` is called with the :class:`MapEvent` before the script runs, so that one run shows its effect everywhere.
Without it, the event is returned (once) and the page that stores it calls ``st.rerun()``.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from pages._ui.pictures import is_picture
from pages._ui.selection import Selection
from relcore.colours import (
    NONE_COLOUR,
    NONE_NAME,
    OTHER_COLOUR,
    CategoryColours,
    Colouring,
    ValueColours,
    colour_table,
    hex_to_rgb,
    plain_colours,
)
from relcore.errors import InputError

MAX_CORNERS = 200
MAX_NAME = 160  # characters of a name sent for the hover label; a longer one ends in "…"
MAX_PICTURES = 4 * 2**20  # bytes of pictures a map sends to the browser for its hover labels; with more it sends none
MAX_PENDING = 50  # events the browser may hand over in one go
SCENES_KEPT = 4  # a lasso may be drawn on a picture that has just been replaced
NAMES_KEPT = 12  # columns of texts kept encoded
NONE_MARKER = 7  # a ring: rows without a label

_HERE = Path(__file__).parent
_component = st.components.v2.component(
    "relcore_linked_map",
    html='<div class="map"></div>',
    css=(_HERE / "linked_map.css").read_text(encoding="utf-8"),
    js=(_HERE / "linked_map.js").read_text(encoding="utf-8"),
)


@dataclass(frozen=True, eq=False)
class Panel:
    """One space as points.

    Attributes
    ----------
    title : what is shown ("GloVe 50: PCA, coloured by label").
    xy : float32 (n, 2), finite.
    ids : int64 (n,), the rows' ids, unique.
    colour : see ``relcore.colours``; None draws all points alike.
    names : text of the hover label, one a point, or a function of the id. An array that is the same object on every
        run is encoded once.
    media : one character (or emoji) a point, drawn in its place where there is room, or None. A ``data:image/`` picture
        is shown in the hover label, unless the pictures of all panels are over :data:`MAX_PICTURES`. Longer texts and
        paths are not drawn.

    Raises
    ------
    InputError
        If the columns do not fit together or a coordinate is not finite.
    """

    title: str
    xy: np.ndarray
    ids: np.ndarray
    colour: Colouring | None = None
    names: Sequence[str] | Callable[[int], str] | None = None
    media: Sequence[str] | None = None

    def __post_init__(self) -> None:
        xy = np.ascontiguousarray(self.xy, dtype=np.float32)
        ids = np.ascontiguousarray(self.ids, dtype=np.int64)
        if xy.ndim != 2 or xy.shape[1] != 2:
            raise InputError(f"{self.title}: the map needs coordinates of shape (n, 2), not {xy.shape}.")
        finite = np.isfinite(xy).all(axis=1)
        if not finite.all():
            raise InputError(f"{self.title}: row {ids[np.argmin(finite)]} has no finite map coordinates.")
        columns = {"ids": ids, "colours": _colour_column(self.colour), "media": self.media}
        if not callable(self.names):
            columns["names"] = self.names
        for what, column in columns.items():
            if column is not None and len(column) != len(xy):
                raise InputError(f"{self.title}: {len(column)} {what} for {len(xy)} points; give one a point.")
        object.__setattr__(self, "xy", xy)
        object.__setattr__(self, "ids", ids)


Selected = Selection | Sequence[Iterable[int] | None] | None


@dataclass(frozen=True, eq=False)
class MapEvent:
    """What the person did on the map.

    Attributes
    ----------
    kind : "lasso" (also a box), "click" or "clear".
    panel : the panel it was done on (0 for a joint frame).
    ids : int64, rows of that panel selected from now on; for a click the one row clicked.
    rev : growing number of the event.
    mode : "replace", "add" or "subtract".
    selected : ids selected from now on in every panel, linked rows included; store this. A click changes nothing.
    """

    kind: str
    panel: int
    ids: np.ndarray
    rev: int
    mode: str
    selected: tuple[np.ndarray, ...]


def linked_map(
    panels: Sequence[Panel],
    *,
    key: str,
    selection: Selected = None,
    partner: Sequence[np.ndarray | None] | None = None,
    links: np.ndarray | None = None,
    link_lines: bool = False,
    joint: bool = False,
    view: str = "",
    height: int = 460,
    point_size: float | None = None,
    show_legend: bool = True,
    alt: str | None = None,
    on_change: Callable[[MapEvent], Any] | None = None,
) -> MapEvent | None:
    """Draw one or two spaces and return what the person did since the last run, exactly once, or None.

    Parameters
    ----------
    selection : ids to highlight: one collection a panel, or a ``Selection`` (``x`` for the first panel, ``y`` for the
        second).
    partner : int32 (n_i,) for each of two panels: position of the linked point in the other panel, -1 for none.
    links : int (k, 2) positions of pairs (seeds), drawn as numbers 1..k on both panels; -1 leaves a side out.
    link_lines : join the two ends of each of ``links`` by a line.
    joint : draw both panels in one common frame, the first as circles, the second as crosses. New coordinates of the
        same rows glide to their place.
    view : name of the projection; zoom and position are kept while it stays the same.
    alt : text for screen readers; made from titles and counts when not given.
    on_change : called with each event before the script runs.

    Raises
    ------
    InputError
        If ``partner`` or ``links`` do not fit the panels.
    """
    panels = tuple(panels)
    partner = _checked_partner(panels, partner)
    memory = _memory(key)
    scene = _Scene.of(panels, partner, joint)
    memory.remember(scene, _masks(panels, selection))

    picture, arrays = _pack(
        scene,
        panels,
        memory,
        store=key,
        links=_checked_links(panels, links),
        link_lines=link_lines,
        view=view,
        height=int(height),
        point_size=point_size,
        show_legend=show_legend,
        alt=alt or _alt_text(panels, joint),
    )
    callback = partial(_before_script, key, on_change) if on_change else _nothing
    with st.container(gap=None):
        result = _component(data=picture, key=key, on_events_change=callback)
        # Mounted a second time without a look of its own: what stays the same from run to run travels apart from what
        # changes, and Streamlit sends a message the browser already has only once.
        _component(data=arrays, key=f"{key}-arrays")
    if on_change is None:
        memory.read(result.get("events"))
    return memory.take_answer()


# --- what happened: from the browser's outlines to row ids ---------------------------------------------------------


def in_polygon(xy: np.ndarray, polygon: np.ndarray) -> np.ndarray:
    """Positions (int64, ascending) of the points inside a polygon by the even-odd rule.

    The same comparisons in float64 on float32 inputs as in the browser, so that both find the same points. Points are
    sorted by height once; each edge then looks only at those level with it.
    """
    corners = np.asarray(polygon, dtype=np.float64)
    low, high = corners.min(axis=0), corners.max(axis=0)
    candidates = np.flatnonzero(((xy >= low) & (xy <= high)).all(axis=1))
    candidates = candidates[np.argsort(xy[candidates, 1], kind="stable")]
    x, y = xy[candidates].astype(np.float64).T
    inside = np.zeros(len(candidates), dtype=bool)
    # Each corner with the one before it, in the browser's order: rounding depends on which end is which.
    for (ax, ay), (bx, by) in zip(corners, np.roll(corners, 1, axis=0), strict=True):
        level = slice(*np.searchsorted(y, [min(ay, by), max(ay, by)]))
        if level.start < level.stop:
            inside[level] ^= x[level] < (bx - ax) * (y[level] - ay) / (by - ay) + ax
    return np.sort(candidates[inside])


@dataclass(eq=False)
class _Scene:
    """A picture as it was sent: what an outline drawn on it refers to."""

    id: str
    xy: tuple[np.ndarray, ...]
    ids: tuple[np.ndarray, ...]
    partner: tuple[np.ndarray | None, ...]
    codes: tuple[np.ndarray, ...]
    legend: _Legend
    joint: bool

    @classmethod
    def of(cls, panels: tuple[Panel, ...], partner: tuple[np.ndarray | None, ...], joint: bool) -> _Scene:
        legend = _Legend.of(panels)
        digest = hashlib.blake2b(repr((joint, legend.names)).encode(), digest_size=8)
        for panel, other, codes in zip(panels, partner, legend.codes, strict=True):
            for array in (panel.xy, panel.ids, codes, other):
                digest.update(b"" if array is None else array.data)
                digest.update(b"|")
        xy, ids = tuple(p.xy for p in panels), tuple(p.ids for p in panels)
        return cls(digest.hexdigest(), xy, ids, partner, legend.codes, legend, joint)

    def inside(self, panel: int, polygon: np.ndarray, only: Sequence[int]) -> list[np.ndarray]:
        """Masks a panel: the points inside the outline (of the isolated classes), and their partners beside it."""
        hit = [np.zeros(len(xy), dtype=bool) for xy in self.xy]
        drawn_on = range(len(self.xy)) if self.joint else (panel,)
        for i in drawn_on:
            positions = in_polygon(self.xy[i], polygon)
            if only:
                positions = positions[np.isin(self.codes[i][positions], only)]
            hit[i][positions] = True
        partner = self.partner[panel]
        if not self.joint and partner is not None:
            linked = partner[hit[panel]]
            hit[1 - panel][linked[linked >= 0]] = True
        return hit


@dataclass
class _Memory:
    """What a session remembers of one map between runs."""

    seen: int = 0  # the last event acted upon; older ones are never applied again
    scenes: OrderedDict[str, _Scene] = field(default_factory=OrderedDict)
    current: str = ""
    masks: list[np.ndarray] = field(default_factory=list)
    answer: MapEvent | None = None

    def remember(self, scene: _Scene, masks: list[np.ndarray]) -> None:
        self.scenes[scene.id] = scene
        self.scenes.move_to_end(scene.id)
        while len(self.scenes) > SCENES_KEPT:
            self.scenes.popitem(last=False)
        self.current, self.masks = scene.id, masks

    def read(self, raw: Any) -> list[MapEvent]:
        """The events not yet seen, oldest first; the last is kept as the run's answer."""
        events = []
        for item in raw[-MAX_PENDING:] if isinstance(raw, list) else ():
            rev = item.get("rev") if isinstance(item, dict) else None
            if isinstance(rev, int) and rev > self.seen:
                self.seen = rev
                event = self._understand(item)
                if event is not None:
                    events.append(event)
        if events:
            self.answer = events[-1]
        return events

    def take_answer(self) -> MapEvent | None:
        answer, self.answer = self.answer, None
        return answer

    def _understand(self, item: dict) -> MapEvent | None:
        """The event in ids, or None when it speaks of a picture that is gone or is not well formed."""
        scene, panel, kind = self.scenes.get(item.get("scene", "")), item.get("panel"), item.get("kind")
        if scene is None or not isinstance(panel, int) or not 0 <= panel < len(scene.xy):
            return None
        if [len(m) for m in self.masks] != [len(xy) for xy in scene.xy]:
            return None
        if kind == "click":
            clicked = np.array([item.get("id")], dtype=np.int64) if isinstance(item.get("id"), int) else None
            if clicked is None or not np.isin(clicked, scene.ids[panel])[0]:
                return None
            return MapEvent("click", panel, clicked, item["rev"], "replace", self._selected(scene))
        mode = item.get("mode") if item.get("mode") in ("replace", "add", "subtract") else "replace"
        if kind == "clear":
            self.masks = [np.zeros_like(m) for m in self.masks]
        elif kind == "lasso":
            polygon = _checked_polygon(item.get("polygon"))
            if polygon is None:
                return None
            only = [c for c in item.get("only") or () if isinstance(c, int)]
            hit = scene.inside(panel, polygon, only)
            self.masks = [_combined(old, new, mode) for old, new in zip(self.masks, hit, strict=True)]
        else:
            return None
        selected = self._selected(scene)
        return MapEvent(kind, panel, selected[panel], item["rev"], mode, selected)

    def _selected(self, scene: _Scene) -> tuple[np.ndarray, ...]:
        return tuple(ids[mask] for ids, mask in zip(scene.ids, self.masks, strict=True))


def _combined(old: np.ndarray, new: np.ndarray, mode: str) -> np.ndarray:
    return {"replace": new, "add": old | new, "subtract": old & ~new}[mode]


def _checked_polygon(raw: Any) -> np.ndarray | None:
    """float32 (k, 2), 3 <= k <= 200, finite, or None: the browser's word is checked like any other input."""
    try:
        polygon = np.asarray(raw, dtype=np.float32)
    except (TypeError, ValueError):
        return None
    fits = polygon.ndim == 2 and polygon.shape[1] == 2 and 3 <= len(polygon) <= MAX_CORNERS
    return polygon if fits and np.isfinite(polygon).all() else None


def _memory(key: str) -> _Memory:
    return st.session_state.setdefault(f"{key}-memory", _Memory())


def _before_script(key: str, on_change: Callable[[MapEvent], Any]) -> None:
    state = st.session_state.get(key) or {}
    for event in _memory(key).read(state.get("events")):
        on_change(event)


def _nothing() -> None:
    """Streamlit hands over state only under a name that has a callback."""


# --- what is shown: from arrays to one block of bytes --------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Legend:
    """The colours of all panels as one table, so that a code means the same on both.

    ``codes`` uint16 (n_i,) index ``names`` and ``colours``; the last entry is "(none)". Numbers have 256 colours and no
    class names.
    """

    codes: tuple[np.ndarray, ...]
    names: tuple[str, ...]
    colours: np.ndarray
    markers: tuple[int, ...]
    header: dict

    @classmethod
    def of(cls, panels: tuple[Panel, ...]) -> _Legend:
        given = [p.colour for p in panels if p.colour is not None]
        if not given:
            return cls._of_categories([plain_colours(len(p.xy)) for p in panels])
        if all(isinstance(c, ValueColours) for c in given):
            return cls._of_values([_values_or_none(p, given[0]) for p in panels])
        if all(isinstance(c, CategoryColours) for c in given):
            return cls._of_categories([p.colour or CategoryColours(_no_codes(p), (), ()) for p in panels])
        raise InputError("One panel is coloured by class and the other by number; colour both by the same thing.")

    @classmethod
    def _of_values(cls, colourings: list[ValueColours]) -> _Legend:
        first = colourings[0]
        for c in colourings:
            if (c.low, c.high, c.colormap) != (first.low, first.high, first.colormap):
                raise InputError(
                    f"The panels' numbers run from {first.low:g} to {first.high:g} and from {c.low:g} to {c.high:g}; "
                    "the same colour must mean the same number: give both the same low, high and colour map."
                )
        codes = []
        for c in colourings:
            missing = np.isnan(c.values)
            level = np.rint(np.where(missing, 0, c.values) * 255)
            codes.append(np.where(missing, 256, level).astype(np.uint16))
        colours = np.vstack([colour_table(first.colormap), [hex_to_rgb(NONE_COLOUR)]]).astype(np.uint8)
        header = {"kind": "value", "title": first.title, "low": first.low, "high": first.high}
        header["missing"] = any(bool((c == 256).any()) for c in codes)
        return cls(tuple(codes), (), colours, (0,) * 256 + (NONE_MARKER,), header)

    @classmethod
    def _of_categories(cls, colourings: list[CategoryColours]) -> _Legend:
        entries: dict[tuple[str, str, int], int] = {}
        tables = []
        for c in colourings:
            markers = c.markers or (0,) * len(c.names)
            rows = zip(c.names, c.colours, markers, strict=True)
            tables.append([entries.setdefault(row, len(entries)) for row in rows])
        none = len(entries)
        # Code -1 wraps round to the last entry, which is "(none)".
        codes = [np.array([*t, none], dtype=np.uint16)[c.codes] for t, c in zip(tables, colourings, strict=True)]
        names = tuple(name for name, _, _ in entries) + (NONE_NAME,)
        hexes = [colour for _, colour, _ in entries] + [NONE_COLOUR]
        colours = np.array([hex_to_rgb(h) for h in hexes], dtype=np.uint8)
        markers = tuple(marker for _, _, marker in entries) + (NONE_MARKER,)
        header = {
            "kind": "category",
            "title": next((c.title for c in colourings if c.title), ""),
            "names": names,
            "other": [i for i, h in enumerate(hexes) if h == OTHER_COLOUR],
            "counts": [np.bincount(c, minlength=len(names)).tolist() for c in codes],
        }
        return cls(tuple(codes), names, colours, markers, header)


class _Block:
    """Arrays end to end, each on a multiple of 8 bytes, behind a JSON header that says where they are."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.parts: list[bytes] = []
        self.length = 0
        self.digest = hashlib.blake2b(digest_size=8)

    def add(self, array: np.ndarray) -> dict:
        data = np.ascontiguousarray(array).tobytes()
        content = hashlib.blake2b(data, digest_size=8)
        self.digest.update(content.digest())
        entry = {"in": self.name, "type": array.dtype.str[1:], "at": self.length, "bytes": len(data)}
        self.parts += [data, b"\0" * (-len(data) % 8)]
        self.length += len(data) + -len(data) % 8
        return {**entry, "id": content.hexdigest()}

    def to_bytes(self, header: dict) -> bytes:
        """Header length (uint32), header (JSON), then the arrays."""
        text = json.dumps(header).encode()
        text += b" " * (-(4 + len(text)) % 8)
        return b"".join([struct.pack("<I", len(text)), text, *self.parts])


def _pack(
    scene: _Scene, panels: tuple[Panel, ...], memory: _Memory, *, store: str, links: np.ndarray | None, **settings
) -> tuple[bytes, bytes]:
    """The picture (header, selection, and what else changes) and the arrays it refers to by their digest."""
    picture, arrays = _Block("picture"), _Block("arrays")
    header = {
        "scene": scene.id,
        "ack": memory.seen,
        "joint": scene.joint,
        "palette": picture.add(scene.legend.colours),
        "markers": picture.add(np.array(scene.legend.markers, dtype=np.uint8)),
        "legend": scene.legend.header,
        "panels": [_pack_panel(picture, arrays, scene, i, panel, memory.masks[i]) for i, panel in enumerate(panels)],
        "links": None if links is None else picture.add(links),
        **settings,
    }
    for entry, panel in zip(header["panels"], panels, strict=True):
        if panel.media is not None and pictures_travel(panels):
            entry["pictures"] = _pack_texts(arrays, panel.media, panel.ids, "pictures")
    digest = arrays.digest.hexdigest()
    header["arrays"] = {"store": store, "id": digest}
    return picture.to_bytes(header), arrays.to_bytes({"store": store, "id": digest, "publish": True})


def _pack_panel(picture: _Block, arrays: _Block, scene: _Scene, i: int, panel: Panel, mask: np.ndarray) -> dict:
    moving = picture if scene.joint else arrays  # in a joint frame the points move while a run goes on
    entry = {"title": panel.title, "n": len(panel.xy), "xy": moving.add(panel.xy), "codes": arrays.add(scene.codes[i])}
    entry["ids"] = arrays.add(panel.ids.astype(np.float64))  # exact up to 2^53; a browser has no other whole numbers
    entry["selected"] = picture.add(np.packbits(mask, bitorder="little"))
    if scene.partner[i] is not None:
        entry["partner"] = arrays.add(scene.partner[i])
    if isinstance(panel.colour, ValueColours):
        entry["values"] = arrays.add(panel.colour.values)
    for what, texts in (("names", panel.names), ("media", panel.media)):
        if texts is not None:
            entry[what] = _pack_texts(arrays, texts, panel.ids, what)
    return entry


def _pack_texts(arrays: _Block, texts: Sequence[str] | Callable[[int], str], ids: np.ndarray, what: str) -> dict:
    text, ends = _encoded(texts, ids, what)
    return {"text": arrays.add(text), "ends": arrays.add(ends)}


_encoded_before: OrderedDict[tuple[int, str], tuple[Any, np.ndarray, np.ndarray]] = OrderedDict()


def _encoded(texts: Sequence[str] | Callable[[int], str], ids: np.ndarray, what: str) -> tuple[np.ndarray, np.ndarray]:
    """All texts as one UTF-8 block and where each ends; kept for the very object given.

    ``what`` is "names", "media" (a picture is left out) or "pictures" (all else is).
    """
    key = (id(texts), what)
    known = _encoded_before.get(key)
    if known is not None and known[0] is texts and len(known[2]) == len(ids) and not callable(texts):
        return known[1], known[2]
    strings = [texts(int(i)) for i in ids] if callable(texts) else texts
    if what == "pictures":
        blocks = [s.encode() if is_picture(s) else b"" for s in strings]
    elif what == "media":
        blocks = [b"" if s.startswith("data:image/") else _shortened(s).encode("utf-8", "replace") for s in strings]
    else:
        blocks = [_shortened(s).encode("utf-8", "replace") for s in strings]
    text = np.frombuffer(b"".join(blocks), dtype=np.uint8)
    ends = np.cumsum([len(b) for b in blocks], dtype=np.uint32)
    if not callable(texts):
        _encoded_before[key] = (texts, text, ends)
        while len(_encoded_before) > NAMES_KEPT:
            _encoded_before.popitem(last=False)
    return text, ends


def pictures_travel(panels: Sequence[Panel]) -> bool:
    """Whether the panels have pictures, and few enough to send them all."""
    return 0 < sum(_picture_bytes(panel) for panel in panels) <= MAX_PICTURES


def pictures_stay(panels: Sequence[Panel]) -> bool:
    """Whether the panels have pictures, and too many to send them."""
    return sum(_picture_bytes(panel) for panel in panels) > MAX_PICTURES


def _picture_bytes(panel: Panel) -> int:
    return 0 if panel.media is None else sum(len(m) for m in panel.media if m.startswith("data:image/"))


def _values_or_none(panel: Panel, like: ValueColours) -> ValueColours:
    """The panel's numbers, or all of them missing on the other panel's scale."""
    return panel.colour or replace(like, values=np.full(len(panel.xy), np.nan, dtype=np.float32))


def _no_codes(panel: Panel) -> np.ndarray:
    return np.full(len(panel.xy), -1, dtype=np.int16)


def _shortened(text: str) -> str:
    text = str(text)
    return text if len(text) <= MAX_NAME else text[: MAX_NAME - 1] + "…"


def _colour_column(colour: Colouring | None) -> np.ndarray | None:
    if colour is None:
        return None
    return colour.values if isinstance(colour, ValueColours) else colour.codes


def _masks(panels: tuple[Panel, ...], selection: Selected) -> list[np.ndarray]:
    """Selected points a panel; ids that a panel does not have are left out (they belong to other data)."""
    if isinstance(selection, Selection):
        selection = (selection.x, selection.y)[: len(panels)]
    chosen = [None] * len(panels) if selection is None else list(selection)
    if len(chosen) != len(panels):
        raise InputError(f"The map has {len(panels)} panels and was given selections for {len(chosen)}.")
    masks = []
    for panel, ids in zip(panels, chosen, strict=True):
        wanted = np.asarray(ids if isinstance(ids, np.ndarray) else list(ids or ()), dtype=np.int64)
        masks.append(np.isin(panel.ids, wanted) if len(wanted) else np.zeros(len(panel.ids), dtype=bool))
    return masks


def _checked_partner(panels: tuple[Panel, ...], partner: Sequence[np.ndarray | None] | None) -> tuple:
    if partner is None:
        return (None,) * len(panels)
    if len(panels) != 2 or len(partner) != 2:
        raise InputError(f"Linked points need two panels and two partner arrays, not {len(panels)} and {len(partner)}.")
    out = []
    for i, (panel, other) in enumerate(zip(panels, partner, strict=True)):
        if other is not None:
            other = np.ascontiguousarray(other, dtype=np.int32)
            n_other = len(panels[1 - i].xy)
            if len(other) != len(panel.xy) or (len(other) and not -1 <= other.min() <= other.max() < n_other):
                raise InputError(
                    f"{panel.title}: the partner array has {len(other)} positions for {len(panel.xy)} points, and they "
                    f"must lie between -1 and {n_other - 1}."
                )
        out.append(other)
    return tuple(out)


def _checked_links(panels: tuple[Panel, ...], links: np.ndarray | None) -> np.ndarray | None:
    if links is None or len(links) == 0:
        return None
    pairs = np.ascontiguousarray(links, dtype=np.int32)
    if len(panels) != 2 or pairs.ndim != 2 or pairs.shape[1] != 2:
        raise InputError(f"Numbered pairs need two panels and shape (k, 2), not {len(panels)} and {pairs.shape}.")
    for side, panel in enumerate(panels):
        column = pairs[:, side]
        if column.min() < -1 or column.max() >= len(panel.xy):
            raise InputError(f"{panel.title}: pair positions must lie between -1 and {len(panel.xy) - 1}.")
    return pairs


def _alt_text(panels: tuple[Panel, ...], joint: bool) -> str:
    parts = [f"{p.title} ({len(p.xy):,} points)" for p in panels]
    return ("One map with " if joint else "Map of ") + " and ".join(parts) + "."
