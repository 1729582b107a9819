"""What the Mismatch page draws: coverage on both maps, and classes sorted by it."""

from __future__ import annotations

import html
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from pages._ui import state
from pages._ui.figures import GREY, finish
from pages._ui.maps import value_map
from relcore.colours import NONE_COLOUR, plain_colours, value_colours
from relcore.metrics.mismatch import ClassRow
from relcore.runs import Run

MISSING, PRESENT, DARK_PRESENT = "#D55E00", "#0072B2", "#56B4E9"
MOST_BARS = 30  # beyond, dots
ROW_HEIGHT, DOT_HEIGHT = 24, 17  # pixels a class
LONGEST = 28  # characters of a class on the axis


def coverage_map(
    s: state.State, run: Run, arrays: dict, values: dict[str, np.ndarray], what: str, *, inverted: bool, grey: bool
) -> str:
    """Both sides where the run put them, each row by its value; ``grey`` draws them all alike.

    Low values stand out from the page, unless ``inverted``: dark on a light page, light on a dark one. Returns which
    of the two they are.
    """
    known = [v[np.isfinite(v)] for v in values.values()]
    high = max([1e-12, *(float(np.quantile(v, 0.95)) for v in known if len(v))])
    on_dark = st.context.theme.type == "dark"
    light = on_dark != inverted
    colormap = ("viridis_dark" if on_dark else "viridis_light") + ("_r" if light else "")
    colourings = {
        side: plain_colours(len(v), NONE_COLOUR)
        if grey
        else value_colours(v, title=what, low=0.0, high=high, colormap=colormap)
        for side, v in values.items()
    }
    value_map(s, run, arrays, colourings, key="mismatch_map")
    return "light" if light else "dark"


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
        figure.add_bar(orientation="h", marker_color=colours, textposition="outside", cliponaxis=False, **common)
    drawn = [v for v in medians if np.isfinite(v)]
    if null is not None and null > 0:
        drawn.append(null)
        figure.add_vline(
            null,
            line=dict(dash="dot", width=1.5, color="#888"),
            annotation_text="1 % of the null",
            annotation_position="top left",
            annotation_yshift=18,  # above the first class
        )
    figure.update_layout(xaxis_title=f"median {what}", clickmode="event+select", dragmode=False)
    low, high = (min(drawn), max(drawn)) if drawn else (0.0, 1.0)
    low = low if dots else 0.0  # a bar's length tells, a dot's place does
    room = (high - low or abs(high) or 1.0) * 0.12  # for the text beside the last
    figure.update_xaxes(range=[low - room if dots else 0.0, high + room])
    figure.update_yaxes(
        tickvals=list(range(len(rows))), ticktext=names, range=[len(rows) - 0.5, -0.5], showgrid=False, zeroline=False
    )
    return finish(figure, height=90 + (DOT_HEIGHT if dots else ROW_HEIGHT) * len(rows))
