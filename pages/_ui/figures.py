"""Figures from arrays: ECharts options for live curves, Plotly figures for the rest. No state, no widgets."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

WAY_NAMES = {"x_to_y": "A → B", "y_to_x": "B → A"}
WAY_COLOURS = {"x_to_y": "#0072B2", "y_to_x": "#E69F00"}
DARK_WAY_COLOURS = {"x_to_y": "#56B4E9", "y_to_x": "#E69F00"}
GREY = "#888888"


def way_colours(dark: bool) -> dict[str, str]:
    return DARK_WAY_COLOURS if dark else WAY_COLOURS


def live_scores(
    curves: dict[str, tuple], references: dict[str, dict[str, float]], total: int, dark: bool
) -> dict | None:
    """ECharts option: MRR both ways over the steps, with the seed baseline and the ground-truth anchors as lines.

    ``curves`` maps a metric's name to (steps, values). Without truth the curve is the share of mutual neighbours.
    """
    colours = way_colours(dark)
    series = []
    for way, key in (("x_to_y", "mrr x to y"), ("y_to_x", "mrr y to x")):
        if key not in curves:
            continue
        lines = [
            {
                "yAxis": round(values[key], 4),
                "lineStyle": {"type": "dashed" if name == "seed" else "dotted", "color": colours[way], "width": 1.5},
                "label": {"show": False} if way == "y_to_x" else _reference_label(name, values, dark),
            }
            for name, values in references.items()
        ]
        series.append(
            _line(f"MRR {WAY_NAMES[way]}", curves[key], colours[way])
            | {"markLine": {"symbol": "none", "silent": True, "animation": False, "data": lines}}
        )
    if "mutual neighbours" in curves:
        series.append(_line("mutual neighbours", curves["mutual neighbours"], colours["x_to_y"]))
    if not series:
        return None
    option = _curves(series, total, dark, low=0, high=1)
    option["grid"]["right"] = 76 if references else 18  # room for the names of the lines
    return option


def _reference_label(name: str, values: dict[str, float], dark: bool) -> dict:
    """One label for the lines of both directions, which often lie close together."""
    both = " / ".join(f"{values[key]:.2f}" for key in ("mrr x to y", "mrr y to x"))
    title = "Seed" if name == "seed" else "GT anchors"
    return {
        "formatter": f"{title}\n{both}",
        "position": "end",
        "color": "#C9D1DC" if dark else "#3A4450",
        "fontSize": 10,
    }


def live_quantities(curves: dict[str, tuple], total: int, dark: bool) -> dict | None:
    """ECharts option: what the method itself reports (loss and the like), each scaled to its own largest value."""
    shown = [k for k in curves if not k.startswith("mrr") and k != "mutual neighbours"]
    palette = ["#009E73", "#CC79A7", "#D55E00", "#56B4E9"]
    series = []
    for name, colour in zip(shown, palette, strict=False):
        steps, values = curves[name]
        values = [v for v in values if v is not None]
        peak = max(map(abs, values), default=0.0) or 1.0
        label = f"{name} (now {values[-1] if values else 0:.3g}, largest {peak:.3g})"
        series.append(_line(label, (steps, [v / peak for v in values]), colour))
    return _curves(series, total, dark) if series else None


def _line(name: str, curve: tuple, colour: str) -> dict:
    points = [[s, round(float(v), 5)] for s, v in zip(*curve, strict=False) if v is not None]
    return {
        "name": name,
        "type": "line",
        "data": points,
        "showSymbol": len(points) < 60,
        "symbolSize": 4,
        "lineStyle": {"width": 2.5, "color": colour},
        "itemStyle": {"color": colour},
        "animation": False,
    }


def _curves(series: list[dict], total: int, dark: bool, low: float | None = None, high: float | None = None) -> dict:
    ink, faint = ("#C9D1DC", "#333C48") if dark else ("#3A4450", "#E4E8EC")
    axis = {"axisLabel": {"color": ink}, "splitLine": {"lineStyle": {"color": faint}}, "nameTextStyle": {"color": ink}}
    return {
        "grid": {"left": 44, "right": 18, "top": 44, "bottom": 40},
        "legend": {"top": 4, "textStyle": {"color": ink}, "itemHeight": 8},
        "tooltip": {"trigger": "axis", "confine": True},
        "xAxis": {
            "type": "value",
            "min": 0,
            "max": max(1, total),
            "name": "step",
            "nameLocation": "middle",
            "nameGap": 24,
            **axis,
        },
        "yAxis": {"type": "value", **({} if low is None else {"min": low, "max": high}), **axis},
        "series": series,
    }


def rank_histogram(ranks: dict[str, np.ndarray], m: int) -> go.Figure:
    """Bars: how many queries have their true partner at rank 1, 2-5, ... for each of the named runs."""
    edges = [1, 2, 6, 11, 51, 101, 501, 1001]
    edges = [e for e in edges if e <= m] + [m + 1]
    names = [str(a) if b - a == 1 else f"{a:,}–{b - 1:,}" for a, b in zip(edges, edges[1:], strict=False)]
    figure = go.Figure()
    for (title, values), colour in zip(ranks.items(), (GREY, "#0072B2"), strict=False):
        counts, _ = np.histogram(values[values > 0], bins=edges)
        share = counts / max(1, counts.sum())
        figure.add_bar(
            name=title,
            x=names,
            y=share,
            marker_color=colour,
            customdata=counts,
            hovertemplate="rank %{x}: %{customdata:,} rows (%{y:.1%})<extra>" + title + "</extra>",
        )
    figure.update_layout(barmode="group", yaxis_tickformat=".0%", xaxis_title="rank of the true partner")
    return finish(figure, height=260)


def finish(figure: go.Figure, height: int) -> go.Figure:
    """The looks all Plotly figures share: transparent, tight, legend on top. Text colour comes from the theme."""
    figure.update_layout(
        height=height,
        margin=dict(l=8, r=8, t=28, b=8),
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend=dict(orientation="h", y=1.12, x=0),
    )
    return figure
