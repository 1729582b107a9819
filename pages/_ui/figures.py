"""Figures from arrays: ECharts options for live curves, Plotly figures for the rest. No state, no widgets."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from relcore.colours import colour_table, hex_to_rgb, plotly_colorscale
from relcore.experiments import in_order
from relcore.runs import RestartCurves

if TYPE_CHECKING:
    import pandas as pd

WAY_NAMES = {"x_to_y": "A → B", "y_to_x": "B → A"}
WAY_COLOURS = {"x_to_y": "#0072B2", "y_to_x": "#E69F00"}
DARK_WAY_COLOURS = {"x_to_y": "#56B4E9", "y_to_x": "#E69F00"}
GREY = "#888888"
LEGEND_LINE = 18  # pixels
LABEL_ROOM = 0.18  # of a plot's height, that a label of two lines takes
LEFT_OUT = "mrr of seeds left out"
SCORES = ("mrr x to y", "mrr y to x", "mutual neighbours", LEFT_OUT)
LOSS_TERMS = ("coverage", "orthogonality", "length", "infonce")  # of one loss, in units of their own
DRAWN_RESTARTS = 60  # lines that can still be told apart, and cost little to draw twice a second
DRAWN_BEST = 40  # of them; the others are spread over the rest, so that those given up are seen too
CROSS = "path://M0,2 L2,0 L5,3 L8,0 L10,2 L7,5 L10,8 L8,10 L5,7 L2,10 L0,8 L3,5 Z"


def way_colours(dark: bool) -> dict[str, str]:
    return DARK_WAY_COLOURS if dark else WAY_COLOURS


def live_scores(
    curves: dict[str, tuple], references: dict[str, dict[str, float]], total: int, dark: bool
) -> dict | None:
    """ECharts option: MRR both ways over the steps, with the seed baseline and the ground-truth anchors as lines.

    ``curves`` maps a metric's name to (steps, values). Without truth the curve is the share of mutual neighbours.
    """
    colours = way_colours(dark)
    top = _top(curves, references)
    nudges = _apart({name: values["mrr x to y"] / top for name, values in references.items()})
    series = []
    for way, key in (("x_to_y", "mrr x to y"), ("y_to_x", "mrr y to x")):
        if key not in curves:
            continue
        lines = [
            {
                "yAxis": round(values[key], 4),
                "lineStyle": {"type": "dashed" if name == "seed" else "dotted", "color": colours[way], "width": 1.5},
                "label": {"show": False} if way == "y_to_x" else _reference_label(name, values, nudges[name], dark),
            }
            for name, values in references.items()
        ]
        series.append(
            _line(f"MRR {WAY_NAMES[way]}", curves[key], colours[way])
            | {"markLine": {"symbol": "none", "silent": True, "animation": False, "data": lines}}
        )
    if "mutual neighbours" in curves:
        series.append(_line("mutual neighbours", curves["mutual neighbours"], colours["x_to_y"]))
    if LEFT_OUT in curves:
        series.append(_line("MRR of seeds left out", curves[LEFT_OUT], "#2FBF8F" if dark else "#009E73"))
    if not series:
        return None
    option = _curves(series, total, dark, low=0, high=top)
    option["grid"]["right"] = 76 if references else 18  # room for the names of the lines
    return option


def _top(curves: dict[str, tuple], references: dict[str, dict[str, float]]) -> float:
    """Upper end of the axis of scores: 1, or less where all of them are small."""
    shown = [v for name in SCORES if name in curves for v in curves[name][1] if v is not None]
    largest = max([v for values in references.values() for v in values.values()] + shown, default=1.0)
    return next(end for end in (0.1, 0.2, 0.4, 1.0) if largest < 0.9 * end or end == 1.0)


def _apart(heights: dict[str, float]) -> dict[str, int]:
    """Pixels to move each label by, so that two lines at nearly the same height (0 to 1) can both be read."""
    near = len(heights) == 2 and abs(np.diff(list(heights.values()))[0]) < LABEL_ROOM
    order = sorted(heights, key=heights.get)
    return {name: (14 - 28 * order.index(name)) if near else 0 for name in heights}


def _reference_label(name: str, values: dict[str, float], nudge: int, dark: bool) -> dict:
    """One label for the lines of both directions, which often lie close together."""
    both = " / ".join(f"{values[key]:.2f}" for key in ("mrr x to y", "mrr y to x"))
    title = "Seed" if name == "seed" else "GT anchors"
    return {
        "formatter": f"{title}\n{both}",
        "position": "end",
        "offset": [0, nudge],
        "color": "#C9D1DC" if dark else "#3A4450",
        "fontSize": 10,
        "lineHeight": 13,
    }


def loss_terms(curves: dict[str, tuple]) -> dict[str, tuple]:
    """The loss and the terms it is made of, where a method tells several; else nothing."""
    known = {name for name, (_, values) in curves.items() if any(v is not None for v in values)}
    terms = {name: curves[name] for name in ("loss", *LOSS_TERMS) if name in known}
    return terms if len(terms) > 2 else {}


def live_losses(curves: dict[str, tuple], total: int, dark: bool) -> dict | None:
    """ECharts option: the loss and each of its terms as a line of its own, as they are, on a logarithmic axis.

    The axis is linear where a value is not above 0.
    """
    terms = loss_terms(curves)
    if not terms:
        return None
    ink = "#E6EBF0" if dark else "#1B2430"
    colours = (ink, *((DARK_SWEEP_COLOURS if dark else SWEEP_COLOURS)[:4]))
    series = []
    for (name, curve), colour in zip(terms.items(), colours, strict=False):
        line = _line(f"{name} (now {last_known(list(curve[1])):.3g})", curve, colour)
        line["showSymbol"] = len(line["data"]) == 1
        if name == "loss":
            line["lineStyle"] |= {"type": "dashed"}
        series.append(line)
    values = [v for _, told in terms.values() for v in told if v is not None]
    option = _curves(series, total, dark)
    if min(values) > 0:
        option["yAxis"] |= {"type": "log", "min": _round_down(min(values)), "max": 1 / _round_down(1 / max(values))}
    option["grid"]["top"] = 16 + LEGEND_LINE * 3  # the legend wraps
    return option


def _round_down(value: float) -> float:
    """To 1, 2 or 5 times a power of ten."""
    power = 10.0 ** np.floor(np.log10(value))
    return float(power * max(step for step in (1, 2, 5) if step * power <= value * 1.0001))


def live_quantities(curves: dict[str, tuple], total: int, dark: bool) -> dict | None:
    """ECharts option: what the method itself reports (loss and the like), each scaled to its own largest value.

    Of a method with phases, the quantities of the latest one. What :func:`live_losses` draws is left to it.
    """
    terms = loss_terms(curves)
    curves = {name: curve for name, curve in curves.items() if name not in terms}
    known = {}  # name: its points
    for name, (steps, values) in curves.items():
        points = [(step, value) for step, value in zip(steps, values, strict=False) if value is not None]
        if points and not name.startswith("mrr") and name != "mutual neighbours":
            known[name] = points
    latest = max((points[-1][0] for points in known.values()), default=0)
    recent = latest - max(10, total // 20)  # some are not told at every step
    shown = {name: points for name, points in known.items() if points[-1][0] >= recent}
    palette = ["#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#E69F00", "#0072B2", "#999999", "#F0E442"]
    series = []
    for (name, points), colour in zip(shown.items(), itertools.cycle(palette)):  # noqa: B905  the colours go on
        peak = max(abs(value) for _, value in points) or 1.0
        label = f"{name} (now {points[-1][1]:.3g}, largest {peak:.3g})"
        series.append(_line(label, ([s for s, _ in points], [v / peak for _, v in points]), colour))
    if not series:
        return None
    option = _curves(series, total, dark)
    option["legend"]["orient"] = "vertical"  # a line each, above the plot
    option["grid"]["top"] = 20 + LEGEND_LINE * len(series)
    return option


def selection_grid(curves: dict[str, tuple], dark: bool) -> dict | None:
    """ECharts option: mean rank of held-out anchors for each (gamma, ridge) and eta tried, the lower the better."""
    needed = [curves.get(name) for name in ("gamma", "ridge", "eta", "held-out rank")]
    if None in needed:
        return None
    columns = [[v for v in values if v is not None] for _, values in needed]
    tried = list(zip(*columns, strict=False))
    profiles = list(dict.fromkeys(f"γ {g:g}, ridge {r:g}" for g, r, *_ in tried))
    etas = sorted({e for _, _, e, _ in tried}, reverse=True)
    cells = [[etas.index(e), profiles.index(f"γ {g:g}, ridge {r:g}"), round(rank, 1)] for g, r, e, rank in tried]
    ranks = [rank for *_, rank in cells]
    ink = "#C9D1DC" if dark else "#3A4450"
    axis = {"type": "category", "axisLabel": {"color": ink}, "nameTextStyle": {"color": ink}}
    return {
        "grid": {"left": 110, "right": 12, "top": 8, "bottom": 42},
        "tooltip": {"confine": True},
        "xAxis": {**axis, "data": [f"{e:g}" for e in etas], "name": "eta", "nameLocation": "middle", "nameGap": 24},
        "yAxis": {**axis, "data": profiles, "inverse": True},
        "visualMap": {
            "show": False,
            "min": min(ranks),
            "max": max(max(ranks), min(ranks) + 1),
            "inRange": {"color": ["#0072B2", "#D6E4EE"] if not dark else ["#56B4E9", "#1F2C3A"]},
        },
        "series": [
            {
                "type": "heatmap",
                "name": "mean rank of held-out anchors",
                "data": cells,
                "label": {"show": True, "color": "#FFFFFF" if dark else "#1B2430"},
                "animation": False,
            }
        ],
    }


def drawn_restarts(restarts: RestartCurves) -> list[int]:
    """The restarts a chart shows, lowest final score first, the best last: at most :data:`DRAWN_RESTARTS`.

    Of more, the :data:`DRAWN_BEST` that ended highest, and evenly over the ranking of the others.
    """
    last = {restart: last_known(values) for restart, (_, values) in restarts.curves.items()}
    known = [restart for restart in last if last[restart] is not None]
    order = sorted(known, key=lambda restart: (restart == restarts.best, last[restart]))
    if len(order) <= DRAWN_RESTARTS:
        return order
    rest, best = order[:-DRAWN_BEST], order[-DRAWN_BEST:]
    some = np.linspace(0, len(rest) - 1, DRAWN_RESTARTS - DRAWN_BEST).round().astype(int)
    return [rest[i] for i in some] + best


def last_known(values: list[float | None]) -> float | None:
    return next((v for v in reversed(values) if v is not None), None)


def restart_scores(restarts: RestartCurves, sigma: tuple | None, total: int, dark: bool) -> dict | None:
    """ECharts option: the score of each restart, coloured by its last one, over the bandwidth as a stair.

    The end of a restart is a dot, or a cross where it was given up; the best is bold. ``sigma`` is (steps, values).
    """
    drawn = drawn_restarts(restarts)
    if not drawn:
        return None
    last = {r: last_known(restarts.curves[r][1]) for r in drawn}
    low, high = min(last.values()), max(last.values())
    shades = ["#{:02X}{:02X}{:02X}".format(*c) for c in _shades(dark)]
    series = []
    for restart in drawn:
        best = restart == restarts.best
        place = (last[restart] - low) / (high - low) if high > low else 1.0
        colour = shades[round(place * (len(shades) - 1))]
        series.append(
            _line(f"restart {restart}", restarts.curves[restart], colour)
            | {
                "showSymbol": False,
                "silent": True,
                "lineStyle": {"width": 4 if best else 1, "color": colour, "opacity": 1 if best else 0.75},
                "z": 5 if best else 2,
            }
        )
    ends = [_restart_end(restarts, r, last[r], dark) for r in drawn]
    series.append({"type": "scatter", "name": "ends", "data": ends, "z": 6, "animation": False})
    option = _curves(series, total, dark)
    ink = option["xAxis"]["axisLabel"]["color"]
    below = {"gridIndex": 1, "name": "σ", "nameLocation": "middle", "nameGap": 34, "splitNumber": 2}
    scores = {"scale": True, "name": "score J at σ = 0.2", "nameLocation": "middle", "nameGap": 52}
    option |= {
        "grid": [
            {"left": 66, "right": 82, "top": 16, "height": 210},
            {"left": 66, "right": 82, "top": 242, "height": 56},
        ],
        "xAxis": [
            option["xAxis"] | {"name": "", "axisLabel": {"show": False}},
            option["xAxis"] | {"gridIndex": 1},
        ],
        "yAxis": [option["yAxis"] | scores, option["yAxis"] | below | {"min": 0}],
        "tooltip": {"trigger": "item", "confine": True},
        "visualMap": {
            "type": "continuous",
            "min": low,
            "max": high if high > low else low + 1e-6,
            "precision": 3,
            "calculable": False,
            "hoverLink": False,
            "seriesIndex": len(series) - 1,
            "dimension": 1,
            "right": 2,
            "top": 16,
            "itemHeight": 150,
            "itemWidth": 10,
            "text": [f"{high:.3g}", f"{low:.3g}"],
            "textStyle": {"color": ink},
            "inRange": {"color": shades[:: len(shades) // 16]},
        },
    }
    del option["legend"]
    if sigma is not None:
        steps, values = sigma
        # the bandwidth told at a step is that of the way to it
        stair = _line("σ", ([steps[0] - 1, *steps], [values[0], *values]), ink)
        stair |= {"step": "start", "xAxisIndex": 1, "yAxisIndex": 1, "showSymbol": False, "silent": True}
        stair["lineStyle"]["width"] = 1.5
        series.append(stair)
    return option


def _restart_end(restarts: RestartCurves, restart: int, score: float, dark: bool) -> dict:
    steps, values = restarts.curves[restart]
    step = next(s for s, v in zip(reversed(steps), reversed(values), strict=True) if v is not None)
    gone, best = restart in restarts.pruned, restart == restarts.best
    name = f"restart {restart}" + (f", given up after step {restarts.pruned[restart]}" if gone else "")
    end = {
        "name": name + (", the best so far" if best else ""),
        "value": [step, round(float(score), 5)],
        "symbol": CROSS if gone else "circle",
        "symbolSize": 11 if best else 8 if gone else 5,
    }
    if best:
        label = {"show": True, "formatter": "best", "position": "top", "color": "#C9D1DC" if dark else "#3A4450"}
        end |= {"label": label, "itemStyle": {"borderColor": "#FFFFFF" if dark else "#1B2430", "borderWidth": 1.5}}
    return end


def _shades(dark: bool) -> np.ndarray:
    """From the faintest to the strongest that shows on the page, so that high scores stand out."""
    return colour_table("viridis_dark") if dark else colour_table("viridis_r")[40:]


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


RULE_SHORT = {"nearest": "nearest", "csls": "CSLS", "isf": "inv. softmax", "coupling": "coupling"}
RULE_COLOURS = {"nearest": GREY, "csls": "#E69F00", "isf": "#009E73", "coupling": "#0072B2"}
DARK_RULE_COLOURS = RULE_COLOURS | {"coupling": "#56B4E9"}
HUB_FIGURES = {
    "skewness": "skewness",
    "robin_hood": "Robin Hood index",
    "anti_hubs": "anti-hubs",
    "hub_share": "places held by hubs",
    "top_1_percent": "places held by the top 1 %",
}
MOST_BINS = 40
DRAWN_POINTS = 2000  # beyond, a scatter is drawn as counts in cells


def occurrences(n_k: dict[str, np.ndarray], k: int, dark: bool) -> go.Figure:
    """How many targets (log) are in how many lists, a line a rule."""
    colours = DARK_RULE_COLOURS if dark else RULE_COLOURS
    width = max(1, int(np.ceil((1 + max(int(v.max()) for v in n_k.values())) / MOST_BINS)))
    figure = go.Figure()
    for rule, values in n_k.items():
        counts = np.bincount(values // width).astype(float)
        low = np.arange(len(counts)) * width
        shown = counts > 0
        span = [f"{a:,}" if width == 1 else f"{a:,}–{a + width - 1:,}" for a in low[shown]]
        figure.add_scatter(
            name=RULE_SHORT[rule],
            x=low[shown] + (width - 1) / 2,
            y=counts[shown],
            mode="lines+markers",
            marker=dict(size=5, color=colours[rule]),
            line=dict(width=1.5, color=colours[rule]),
            customdata=span,
            hovertemplate="%{y:,} rows in %{customdata} lists<extra>" + RULE_SHORT[rule] + "</extra>",
        )
    figure.update_layout(dragmode="select", xaxis_title=f"N<sub>{k}</sub>: lists a row is in", yaxis_title="rows")
    figure.update_yaxes(type="log", dtick=1)
    finish(figure, height=280)
    return figure.update_layout(margin_t=44, legend_y=1.25)  # clear of the area where boxes are drawn


def hubness_bars(figures: dict[str, dict[str, dict]], dark: bool) -> go.Figure:
    """Each figure of N_k by rule, a bar a direction: before (nearest) and after correction."""
    colours = way_colours(dark)
    figure = make_subplots(1, len(HUB_FIGURES), subplot_titles=list(HUB_FIGURES.values()), horizontal_spacing=0.04)
    for column, key in enumerate(HUB_FIGURES, 1):
        for way, arrow in WAY_NAMES.items():
            figure.add_bar(
                row=1,
                col=column,
                name=arrow,
                legendgroup=way,
                showlegend=column == 1,
                x=[RULE_SHORT[rule] for rule in figures],
                y=[ways[way][key] for ways in figures.values()],
                marker_color=colours[way],
                hovertemplate="%{x}: %{y:.3f}<extra>" + arrow + "</extra>",
            )
        if key != "skewness":
            figure.update_yaxes(row=1, col=column, tickformat=".0%", rangemode="tozero")
    figure.update_annotations(font_size=13)
    figure.update_xaxes(tickangle=-35)
    finish(figure, height=290)
    figure.update_layout(barmode="group", margin_t=80, legend_y=1.5)
    return figure


def causes(n_k: np.ndarray, by: dict[str, np.ndarray], k: int, names: np.ndarray, dark: bool) -> go.Figure:
    """N_k over each of the given numbers: all rows as points, or above :data:`DRAWN_POINTS` counted in cells."""
    figure = make_subplots(1, len(by), shared_yaxes=True, horizontal_spacing=0.05)
    for column, (title, values) in enumerate(by.items(), 1):
        if len(n_k) <= DRAWN_POINTS:
            figure.add_scatter(
                row=1,
                col=column,
                x=values,
                y=n_k,
                mode="markers",
                showlegend=False,
                marker=dict(size=5, opacity=0.5, color=way_colours(dark)["x_to_y"]),
                text=names,
                hovertemplate="%{text}: %{y:,}<extra></extra>",
            )
        else:
            figure.add_trace(_cells(values, n_k, dark), row=1, col=column)
        figure.update_xaxes(row=1, col=column, title=title)
    figure.update_yaxes(row=1, col=1, title=f"N<sub>{k}</sub>")
    return finish(figure, height=280)


def _cells(x: np.ndarray, y: np.ndarray, dark: bool) -> go.Heatmap:
    """Rows counted in 50 by 30 cells, darker (on dark pages lighter) for more; empty ones stay empty."""
    counts, x_edges, y_edges = np.histogram2d(x, y, bins=(50, min(30, int(y.max()) + 1)))
    with np.errstate(divide="ignore"):
        level = np.where(counts > 0, np.log10(counts), np.nan)
    return go.Heatmap(
        x=(x_edges[1:] + x_edges[:-1]) / 2,
        y=(y_edges[1:] + y_edges[:-1]) / 2,
        z=level.T,
        customdata=counts.T,
        colorscale=plotly_colorscale("viridis_dark" if dark else "viridis_r"),
        showscale=False,
        hoverongaps=False,
        hovertemplate="%{customdata:,} rows<extra></extra>",
    )


def spectrum_curves(
    arrays: dict[str, np.ndarray], titles: dict[str, str], dark: bool, chosen: float | None = None
) -> go.Figure:
    """Participation ratio of the profiles against gamma for each side: measured, and as predicted from the spectrum.

    ``chosen`` is the gamma the run used, to be marked.
    """
    gamma, ridges = arrays["spectrum/gamma"], arrays["spectrum/ridge"]
    figure = make_subplots(1, 2, subplot_titles=list(titles.values()), horizontal_spacing=0.08)
    shades = ["#56B4E9" if dark else "#0072B2", "#E69F00"]
    for column, side in enumerate(titles, 1):
        for i, ridge in enumerate(ridges):
            for name, dash in (("participation", "solid"), ("predicted", "dash")):
                word = "measured" if name == "participation" else "predicted"
                figure.add_scatter(
                    row=1,
                    col=column,
                    x=gamma,
                    y=arrays[f"spectrum/{side}/{name}"][i],
                    name=f"{word}, ridge {ridge:g}" if ridge else word,
                    legendgroup=f"{name} {i}",
                    showlegend=column == 1,
                    mode="lines+markers" if dash == "solid" else "lines",
                    line=dict(dash=dash, width=2, color=shades[i % 2]),
                    hovertemplate="gamma %{x}: %{y:.1f}<extra>" + word + "</extra>",
                )
        if chosen is not None:
            figure.add_vline(
                chosen, row=1, col=column, line=dict(dash="dot", width=1.5, color="#888"), annotation_text="this run"
            )
        figure.update_xaxes(row=1, col=column, title="gamma")
        figure.update_yaxes(row=1, col=column, rangemode="tozero")
    figure.update_yaxes(row=1, col=1, title="participation ratio")
    figure.update_annotations(font_size=13)
    finish(figure, height=310)
    figure.update_layout(margin_t=80, legend_y=1.5)
    return figure


SWEEP_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#8C6BB1", "#999999")
DARK_SWEEP_COLOURS = ("#56B4E9", "#E69F00", "#2FBF8F", "#CC79A7", "#F0763A", "#A98BD0", "#AAAAAA")
SWEEP_MARKERS = ("circle", "square", "diamond", "triangle-up", "x", "star", "cross")


def _looks(labels: list[str], dark: bool) -> dict[str, tuple[str, str]]:
    """Colour and marker of each method of a sweep."""
    looks = zip(DARK_SWEEP_COLOURS if dark else SWEEP_COLOURS, SWEEP_MARKERS, strict=True)
    return dict(zip(labels, itertools.cycle(looks)))  # noqa: B905  the looks go on


AXIS_WORDS = {
    "seeds": "{:,} seeds",
    "corruption": "{:.0%} wrong",
    "pool": "pools of {:,}",
    "overlap": "{:.0%} of the pool shared",
    "varied": "{}",
}
SPREAD_OUT = 12.0  # a wider range than this many times its least value has a logarithmic axis


def sweep_curves(
    bands: pd.DataFrame, labels: list[str], along: str, value: str, dark: bool, *, beside: str = "", axis: str = ""
) -> go.Figure:
    """Mean of a figure along an axis of a sweep, a line a method, with a band from the least to the greatest.

    ``bands`` as of :func:`relcore.experiments.bands`; a plot for each value of ``beside``, another of its axes. A
    method that has no value along the axis is a dashed level. ``axis`` is what the axis is called.
    """
    panels = in_order(bands[beside]) if beside else [None]
    titles = [AXIS_WORDS[beside].format(p) for p in panels] if beside else None
    figure = make_subplots(1, len(panels), subplot_titles=titles, shared_yaxes=True, horizontal_spacing=0.03)
    looks = _looks(labels, dark)
    points = in_order(bands[along])
    shown = set()
    for column, panel in enumerate(panels, 1):
        for label in labels:
            of = bands[bands["label"] == label]  # one that has no value beside is the same in every panel
            part = of[(of[beside] == panel) | of[beside].isna()] if beside else of
            if not len(part):
                continue
            colour, marker = looks[label]
            level = part[along].isna().all()
            if level:  # the same wherever one looks along the axis
                part = part.iloc[[0, 0]].assign(**{along: [points[0], points[-1]]})
            edge = dict(mode="lines", line=dict(width=0), hoverinfo="skip", legendgroup=label, showlegend=False)
            figure.add_scatter(row=1, col=column, x=part[along], y=part["high"], **edge)
            tint = "rgba({},{},{},0.2)".format(*hex_to_rgb(colour))
            figure.add_scatter(row=1, col=column, x=part[along], y=part["low"], fill="tonexty", fillcolor=tint, **edge)
            figure.add_scatter(
                row=1,
                col=column,
                x=part[along],
                y=part["mean"],
                name=label,
                legendgroup=label,
                showlegend=label not in shown,
                mode="lines" if level else "lines+markers",
                line=dict(color=colour, width=2, dash="dash" if level else "solid"),
                marker=dict(symbol=marker, size=7),
                customdata=part[["low", "high", "n"]],
                hovertemplate="%{y:.3g} (%{customdata[0]:.3g} to %{customdata[1]:.3g}, n = %{customdata[2]})<extra>"
                + label
                + "</extra>",
            )
            shown.add(label)
        look: dict = dict(title=axis or along)
        numeric = all(isinstance(v, int | float | np.number) and not isinstance(v, bool) for v in points)
        if along in ("corruption", "overlap"):
            look |= dict(tickformat=".0%", range=[-0.03, 1.03])
        elif numeric and points:
            wide = min(points) > 0 and max(points) > SPREAD_OUT * min(points)
            look |= dict(tickvals=points, type="log" if wide else "linear")
        figure.update_xaxes(row=1, col=column, **look)
    figure.update_yaxes(row=1, col=1, title=value)
    figure.update_annotations(font_size=13)
    finish(figure, height=340)
    return figure.update_layout(margin_t=70, legend_y=1.28)


def score_scatter(
    table: pd.DataFrame, labels: list[str], score: str, value: str, titles: tuple[str, str], dark: bool
) -> go.Figure:
    """A point a cell: what the method says of itself against how good its alignment is."""
    figure = go.Figure()
    looks = _looks(labels, dark)
    for label in labels:
        part = table[table["label"] == label]
        if not len(part):
            continue
        colour, marker = looks[label]
        figure.add_scatter(
            x=part[score],
            y=part[value],
            name=label,
            mode="markers",
            marker=dict(color=colour, symbol=marker, size=8, opacity=0.8),
            customdata=part[["seeds", "corruption", "seed"]],
            hovertemplate="%{x:.4g}, %{y:.3f}<br>%{customdata[0]:,} seeds, %{customdata[1]:.0%} wrong, random seed "
            "%{customdata[2]}<extra>" + label + "</extra>",
        )
    figure.update_layout(xaxis_title=titles[0], yaxis_title=titles[1])
    return finish(figure, height=340)


WEIGHT_STOPS = ("#F3F6F9", "#C3DAEA", "#6FAED3", "#1F6FA8", "#08306B")  # the least is nearly the page
DARK_WEIGHT_STOPS = ("#151C25", "#17405F", "#1F78B4", "#7CC3EE", "#F2FAFF")
SPANS_NAMED = 24  # labels that find room below a heat map
SPANS_PARTED = 40  # between which lines are drawn
ROWS_NAMED = 16


def weight_colours(dark: bool) -> list[list]:
    """Plotly's colour scale of weights from 0 up, by their root: small ones are not lost beside a large one."""
    stops = np.array([hex_to_rgb(c) for c in (DARK_WEIGHT_STOPS if dark else WEIGHT_STOPS)], dtype=float)
    at = np.linspace(0, 1, 17)
    table = [[np.interp(a, np.linspace(0, 1, len(stops)), stops[:, c]) for c in range(3)] for a in at]
    return [[float(a**2), "rgb({:.0f},{:.0f},{:.0f})".format(*colour)] for a, colour in zip(at, table, strict=True)]


def mixture(
    cells: np.ndarray,
    rows: list[str],
    columns: list[str],
    spans: list[tuple[int, int, str]],
    *,
    even: float | None,
    row: int | None,
    marked: np.ndarray,
    dark: bool,
    whole: bool = True,
) -> go.Figure:
    """Weights of seeds (columns) in anchors (rows) as a heat map; against ``even`` where it is given.

    ``spans`` are runs of columns that have something in common: first, last, name. ``row`` is framed, ``marked``
    columns have a triangle below. Cells that are not ``whole`` are means of blocks.
    """
    mean = "" if whole else "mean "
    if even is None:
        shown, unit = cells, mean + "weight %{z:.4f}"
        looks = dict(zmin=0.0, zmax=float(cells.max()), colorscale=weight_colours(dark))
    else:
        shown, unit = cells / np.float32(even), mean + "%{z:.3f} × 1/K"
        reach = float(np.quantile(np.abs(shown - 1), 0.99)) or 1e-6
        looks = dict(zmin=1 - reach, zmax=1 + reach, colorscale=plotly_colorscale("diverging"))
    figure = go.Figure(
        go.Heatmap(
            z=shown,
            x=columns,
            y=rows,
            hovertemplate=f"anchor %{{y}}<br>seed %{{x}}<br>{unit}<extra></extra>",
            colorbar=dict(title=mean + ("weight" if even is None else "× 1/K"), thickness=12, len=1.0),
            **looks,
        )
    )
    if len(marked):
        figure.add_scatter(
            x=[columns[i] for i in marked],
            y=[0.5] * len(marked),
            yaxis="y2",
            mode="markers",
            marker=dict(symbol="triangle-up", size=8, color="#E69F00"),
            hovertemplate="selected: seed %{x}<extra></extra>",
            showlegend=False,
        )
    if row is not None:
        edge = dict(color="#FFFFFF" if dark else "#000000", width=1.5)
        figure.add_shape(type="rect", x0=-0.5, x1=len(columns) - 0.5, y0=row - 0.5, y1=row + 0.5, line=edge)
    if len(spans) <= SPANS_PARTED:
        for first, _, _ in spans[1:]:
            line = dict(color="#4A5664" if dark else "#AEB7C0", width=0.75)
            figure.add_shape(type="line", x0=first - 0.5, x1=first - 0.5, y0=-0.5, y1=len(rows) - 0.5, line=line)
    named = spans if len(spans) <= SPANS_NAMED else []
    figure.update_xaxes(
        type="category",
        tickmode="array",
        tickvals=[columns[(first + last) // 2] for first, last, _ in named],
        ticktext=[name for *_, name in named],
        tickangle=-40,
        title=None if named else "seeds",
        range=[-0.5, len(columns) - 0.5],
        showgrid=False,
        zeroline=False,
    )
    every = -(-len(rows) // ROWS_NAMED)
    figure.update_yaxes(
        type="category",
        range=[len(rows) - 0.5, -0.5],  # the first on top
        tickmode="array",
        tickvals=rows[::every],
        ticktext=rows[::every],
        title="anchor",
        showgrid=False,
        zeroline=False,
    )
    finish(figure, height=int(np.clip(14 * len(rows), 160, 420)) + (130 if named else 60))
    if len(marked):
        below = dict(domain=[0, 0.03], range=[0, 1], visible=False, fixedrange=True, anchor="x")
        figure.update_layout(yaxis2=below, yaxis_domain=[0.04, 1], xaxis_anchor="y2")
    return figure.update_layout(dragmode="zoom")
