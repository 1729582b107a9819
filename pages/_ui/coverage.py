"""What the Mismatch page draws: coverage on both maps, and classes sorted by it."""

from __future__ import annotations

import html
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from pages._ui import state
from pages._ui.colours import NONE_COLOUR, plain_colours, value_colours
from pages._ui.figures import GREY, finish
from pages._ui.linked_map import MapEvent, Panel, linked_map
from pages._ui.maps import LETTERS, SIDES
from pages._ui.pictures import is_picture
from relcore.metrics.mismatch import ClassRow
from relcore.runs import Run

MISSING, PRESENT, DARK_PRESENT = "#D55E00", "#0072B2", "#56B4E9"
MOST_BARS = 30  # beyond, dots
ROW_HEIGHT, DOT_HEIGHT = 24, 17  # pixels a class
LONGEST = 28  # characters of a class on the axis


def coverage_map(
    s: state.State,
    run: Run,
    arrays: dict,
    values: dict[str, np.ndarray],
    what: str,
    *,
    inverted: bool,
    grey: bool,
    on_change,
) -> None:
    """Both sides where the run put them, each row by its value; ``grey`` draws them all alike.

    ``on_change`` takes a :class:`MapEvent`.
    """
    data, link, chosen = s.data, state.link(s), s.selection.current
    known = [v[np.isfinite(v)] for v in values.values()]
    high = max([1e-12, *(float(np.quantile(v, 0.95)) for v in known if len(v))])
    colormap = ("viridis_dark" if st.context.theme.type == "dark" else "viridis") + ("_r" if inverted else "")
    panels = [
        Panel(
            f"{LETTERS[side]} · {space.title} · aligned by {run.title}",
            arrays[f"map_{side}"],
            space.ids,
            plain_colours(len(space), NONE_COLOUR)
            if grey
            else value_colours(values[side], title=what, low=0.0, high=high, colormap=colormap),
            space.names,
            space.media if space.media is not None and any(map(is_picture, space.media)) else None,
        )
        for side, space in zip(SIDES, (data.x, data.y), strict=True)
    ]
    linked_map(
        panels,
        key="mismatch_map",
        selection=(chosen.x, chosen.y),
        partner=(link.x_to_y, link.y_to_x),
        view=f"run {run.id}",
        height=440,
        on_change=on_change,
    )


def class_bars(
    rows: Sequence[ClassRow], missing: Sequence[str], null: float | None, what: str, *, grey: bool, dark: bool
) -> go.Figure:
    """Median of each class, lowest on top; bars, or dots where they are many. Point number i is class number i."""
    dots = len(rows) > MOST_BARS
    plain = DARK_PRESENT if dark else PRESENT
    colours = [GREY if grey or not row.judged else MISSING if row.label in missing else plain for row in rows]
    names = [html.escape(row.label if len(row.label) <= LONGEST else row.label[: LONGEST - 1] + "…") for row in rows]
    medians = [row.median for row in rows]
    hover = [
        f"{html.escape(row.label[:200])}: {row.median:.3g}<br>{row.rows:,} rows, {row.flagged:.0%} flagged"
        + ("" if row.judged else "<br>not judged")
        for row in rows
    ]
    common = dict(
        x=medians,
        y=list(range(len(rows))),
        text=[f"{row.flagged:.0%}" for row in rows],
        hovertext=hover,
        hoverinfo="text",
        showlegend=False,
    )
    figure = go.Figure()
    if dots:
        marker = dict(size=9, color=colours)
        figure.add_scatter(mode="markers+text", marker=marker, textposition="middle right", **common)
    else:
        figure.add_bar(orientation="h", marker_color=colours, textposition="auto", textangle=0, **common)
    if null is not None and null > 0:
        figure.add_vline(null, line=dict(dash="dot", width=1.5, color="#888"), annotation_text="1 % of the null")
    figure.update_layout(xaxis_title=f"median {what}", clickmode="event+select", dragmode=False)
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(
        tickvals=list(range(len(rows))), ticktext=names, range=[len(rows) - 0.5, -0.5], showgrid=False, zeroline=False
    )
    return finish(figure, height=90 + (DOT_HEIGHT if dots else ROW_HEIGHT) * len(rows))


__all__ = ["MapEvent", "class_bars", "coverage_map"]
