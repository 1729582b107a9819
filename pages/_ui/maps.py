"""The maps of the pages: which rows, which coordinates, which colours, and what a lasso or a click means there."""

from __future__ import annotations

from functools import partial

import numpy as np
import streamlit as st

from pages._ui import state
from pages._ui.linked_map import MAX_PICTURES, MapEvent, Panel, linked_map, pictures_stay
from pages._ui.pictures import is_picture
from pages._ui.selection import Selection, select
from relcore.colours import OKABE_ITO, CategoryColours, Colouring, shared_category_colours, value_colours
from relcore.runs import Run
from relcore.space import Space

SIDES = ("x", "y")
LETTERS = {"x": "A", "y": "B"}


def colours(data: state.Data) -> tuple[CategoryColours, CategoryColours]:
    """By label, the same class the same colour on both sides; one colour a side without labels."""
    return _colours(data.key, data.x.labels, data.y.labels, len(data.x), len(data.y))


@st.cache_resource(show_spinner=False, max_entries=8)
def _colours(key: str, _labels_x, _labels_y, _n: int, _m: int):
    if _labels_x is None and _labels_y is None:
        return _plain_sides(_n, _m)
    sides = (_labels_x, _labels_y)
    sizes = (_n, _m)
    columns = [[""] * size if side is None else side for side, size in zip(sides, sizes, strict=True)]
    return shared_category_colours(*columns)


def _plain_sides(n: int, m: int) -> tuple[CategoryColours, CategoryColours]:
    names, shades = ("A", "B"), OKABE_ITO[:2]
    return tuple(
        CategoryColours(np.full(size, i, dtype=np.int16), names, shades, None, "space") for i, size in ((0, n), (1, m))
    )


def data_map(s: state.State) -> None:
    """Each space in its own principal plane."""
    twin(s, state.maps(s.data), "principal components", key="data_map", view=f"pca {s.data.key}")
    hints(s)


def hints(s: state.State) -> None:
    rule = state.link(s).rule
    linked = f"linked by {rule}" if rule != "off" else "not linked: no pairing is known and no run is open"
    st.caption(
        f"Drag to lasso, Shift-drag to pan, wheel to zoom, click a point for its row, Esc to clear. Sides are {linked}."
    )


def twin(
    s: state.State,
    coordinates,
    what: str,
    *,
    key: str,
    view: str,
    links=None,
    height: int = 460,
    on_click=None,
    colourings: dict[str, Colouring] | None = None,
) -> None:
    """Both spaces side by side, linked by row; in the colours of their labels, or in those given for each side."""
    data, link, chosen = s.data, state.link(s), s.selection.current
    by_side = dict(zip(SIDES, colours(data), strict=True)) if colourings is None else colourings
    panels = [
        Panel(
            f"{LETTERS[side]} · {space.title} · {what}",
            xy,
            space.ids,
            by_side[side],
            space.names,
            space.media if colourings is None else pictures_of(space),
        )
        for side, space, xy in zip(SIDES, (data.x, data.y), coordinates, strict=True)
    ]
    linked_map(
        panels,
        key=key,
        selection=(chosen.x, chosen.y),
        partner=(link.x_to_y, link.y_to_x),
        links=links,
        view=view,
        height=height,
        on_change=partial(_take, s, LETTERS, on_click),
    )
    if pictures_stay(panels):
        st.caption(
            f":material/image: The pictures take over {MAX_PICTURES // 2**20} MB, so they are not in the hover labels. "
            "Select rows to see theirs below the map of the Data page, or look at Retrieval."
        )


def pictures_of(space: Space) -> np.ndarray | None:
    """Its thumbnails where they are pictures: a character drawn in the place of a point would hide its colour."""
    return space.media if space.media is not None and any(map(is_picture, space.media)) else None


def _take(s: state.State, names: dict, on_click, event: MapEvent) -> None:
    """Put what was done on a map into the one selection all pages share."""
    side = SIDES[event.panel]
    if event.kind == "clear":
        s.selection.clear()
    elif event.kind == "click":
        chosen = select(side, event.ids, s.data.x, s.data.y, state.link(s), f"a click on map {names[side]}")
        s.selection.set(chosen)
        if on_click is not None:
            on_click(side, int(event.ids[0]))
    else:
        x, y = event.selected
        s.selection.set(Selection(np.sort(x), np.sort(y), f"a lasso on map {names[side]}"))


def seed_map(s: state.State) -> None:
    """The twin map with the seed pairs numbered."""
    twin(
        s,
        state.maps(s.data),
        "seeds numbered",
        key="seed_map",
        view=f"pca {s.data.key}",
        height=420,
        links=s.seeds.pairs.array,
    )
    hints(s)


def joint_map(s: state.State, run: Run, map_x: np.ndarray, map_y: np.ndarray, what: str, key: str) -> None:
    """Both spaces in the common frame of a run, the moving one gliding to its new place."""
    data, chosen = s.data, s.selection.current
    panels = [
        Panel(f"{LETTERS[side]} · {space.title}", xy, space.ids, colour, space.names, space.media)
        for side, space, xy, colour in zip(SIDES, (data.x, data.y), (map_x, map_y), colours(data), strict=True)
    ]
    linked_map(
        panels,
        key=key,
        joint=True,
        selection=(chosen.x, chosen.y),
        view=f"run {run.id}",
        height=440,
        on_change=partial(_take_joint, s),
    )
    st.caption(
        f"Common frame of run {run.title}, {what}: A as circles, B as crosses, fixed by the side that does not move."
    )


def _take_joint(s: state.State, event: MapEvent) -> None:
    if event.kind == "clear":
        s.selection.clear()
    elif event.kind == "click":
        side = SIDES[event.panel]
        s.selection.set(
            select(side, event.ids, s.data.x, s.data.y, state.link(s), f"a click on {LETTERS[side]} in the joint map")
        )
    else:
        x, y = event.selected
        s.selection.set(Selection(np.sort(x), np.sort(y), "a lasso on the joint map"))


def retrieval_map(s: state.State, run: Run, arrays: dict, way: str, rule: str, k: int) -> None:
    """Query and neighbours on the aligned maps; a click makes the row the query."""
    frame = st.segmented_control(
        "Map",
        ["aligned", "each by itself"],
        default="aligned",
        required=True,
        key="retrieval_frame",
        bind="query-params",
        persist_state="session",
        label_visibility="collapsed",
    )
    aligned = frame == "aligned"
    coordinates = (arrays["map_x"], arrays["map_y"]) if aligned else state.maps(s.data)
    side = "x" if way == "x_to_y" else "y"
    space, target = (s.data.x, s.data.y) if side == "x" else (s.data.y, s.data.x)
    row = int(space.positions([s.query[1]])[0])
    found = arrays[f"{way}/{rule}/indices"][row, :k].astype(np.int64)
    pairs = np.full((1 + len(found), 2), -1, dtype=np.int64)
    query_column = 0 if side == "x" else 1
    pairs[0, query_column] = row
    pairs[1:, 1 - query_column] = found
    twin(
        s,
        coordinates,
        f"aligned by {run.title}" if aligned else "principal components",
        key="retrieval_map",
        view=f"{frame} {run.id}",
        links=pairs,
        height=420,
        on_click=partial(_make_query, s),
    )
    st.caption(
        f"1 is the query in {space.title}, 2 to {1 + len(found)} its {len(found)} nearest in {target.title}, best "
        "first. Click a point to make it the query."
    )


def _make_query(s: state.State, side: str, row_id: int) -> None:
    s.query = (side, row_id)
    st.session_state["way"] = "x_to_y" if side == "x" else "y_to_x"


def value_map(
    s: state.State, run: Run, arrays: dict, colourings: dict[str, Colouring], *, key: str, on_change=None
) -> None:
    """Both sides where the run put them, linked by row, in the colours given for each side.

    ``on_change`` takes a :class:`MapEvent`; without it what is done on the map becomes the selection.
    """
    data, link, chosen = s.data, state.link(s), s.selection.current
    panels = [
        Panel(
            f"{LETTERS[side]} · {space.title} · aligned by {run.title}",
            arrays[f"map_{side}"],
            space.ids,
            colourings[side],
            space.names,
            pictures_of(space),
        )
        for side, space in zip(SIDES, (data.x, data.y), strict=True)
    ]
    linked_map(
        panels,
        key=key,
        selection=(chosen.x, chosen.y),
        partner=(link.x_to_y, link.y_to_x),
        view=f"run {run.id}",
        height=440,
        on_change=on_change or partial(_take, s, LETTERS, None),
    )


def hub_map(s: state.State, run: Run, arrays: dict, counts: dict[str, np.ndarray], what: str, on_hub) -> None:
    """Both sides where the run put them, each row by how often the other side lists it (``counts`` by side).

    ``on_hub(side, row id)`` is called for a row that is clicked.
    """
    high = float(np.ceil(max(1.0, *(np.quantile(n, 0.99) for n in counts.values()))))
    colormap = "viridis_dark" if st.context.theme.type == "dark" else "viridis_r"
    colourings = {
        side: value_colours(counts[side], title=what, low=0.0, high=high, colormap=colormap) for side in SIDES
    }
    value_map(s, run, arrays, colourings, key="hub_map", on_change=partial(_take_hub, s, on_hub))
    st.caption(
        f"Colour: {what}, how many rows of the other side list the row; {high:g} and more are one colour. "
        "Click a row to select its groupies, the rows that list it; drag to lasso; Esc to clear."
    )


def _take_hub(s: state.State, on_hub, event: MapEvent) -> None:
    if event.kind == "click":
        on_hub(SIDES[event.panel], int(event.ids[0]))
    else:
        _take(s, LETTERS, None, event)
