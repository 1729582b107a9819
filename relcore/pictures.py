"""Pictures without a browser or a plotting library: charts as SVG text, maps as PNG bytes. For reports and export.

Text and axes take the colour of the page around them (``currentColor``), so that a picture fits a light page and a dark
one alike.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from relcore.colours import OKABE_ITO, CategoryColours, Colouring, ValueColours, colour_table, hex_to_rgb

WIDTH, HEIGHT = 560, 240
LEFT, RIGHT, TOP, BOTTOM = 62, 12, 26, 40
GREY = "#8a8a8a"
SMOOTH = 2  # a map is drawn so many times larger and scaled down

Points = tuple[Sequence[float], Sequence[float]]


# ---------------------------------------------------------------- charts


def lines(
    series: Mapping[str, Points],
    *,
    title: str,
    x: str,
    y: str,
    references: Mapping[str, float] | None = None,
    log: bool = False,
) -> str:
    """Lines of points (x, y) by name, with dashed levels by name. Points that are NaN or infinite break a line."""
    references = references or {}
    xs = [v for p in series.values() for v in p[0]]
    ys = [v for p in series.values() for v in p[1] if math.isfinite(v) and (not log or v > 0)]
    frame = Frame(_span(xs), _span([*ys, *references.values()]), log)
    body = [frame.axes(x, y)]
    for i, (px, py) in enumerate(series.values()):
        colour = OKABE_ITO[i % len(OKABE_ITO)]
        for part in _runs(px, py, log):
            at = " ".join(f"{frame.x(a):.1f},{frame.y(b):.1f}" for a, b in part)
            if len(part) == 1:
                a, b = part[0]
                body.append(f'<circle cx="{frame.x(a):.1f}" cy="{frame.y(b):.1f}" r="2.5" fill="{colour}"/>')
            else:
                body.append(f'<polyline points="{at}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
    for name, level in references.items():
        at = frame.y(level)
        body.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke="{GREY}" stroke-dasharray="5 4"/>')
        body.append(_text(name, WIDTH - RIGHT, at - 3, "end"))
    return _svg(title, body, list(series))


def bars(labels: Sequence[str], values: Sequence[float], *, title: str, x: str, y: str, log: bool = False) -> str:
    """A bar each label; ``log`` for a logarithmic height, where a bar of 0 is left out."""
    known = [v for v in values if math.isfinite(v) and (not log or v > 0)]
    low = min([1.0, *known]) / 1.5 if log else min([0.0, *known])
    frame = Frame((0.0, float(len(labels))), (low, max([*known, low + 1e-12])), log)
    body = [frame.axes(x, y, ticks_x=False)]
    every = max(1, math.ceil(len(labels) / 12))
    for i, (label, value) in enumerate(zip(labels, values, strict=True)):
        left, right = frame.x(i + 0.1), frame.x(i + 0.9)
        if math.isfinite(value) and (not log or value > 0):
            top, foot = sorted((frame.y(value), frame.y(low if log else 0.0)))
            body.append(
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{max(right - left, 0.5):.1f}" height="{foot - top:.1f}" '
                f'fill="{OKABE_ITO[0]}"><title>{escape(label)}: {value:g}</title></rect>'
            )
        if i % every == 0:
            body.append(_text(label[:12], (left + right) / 2, HEIGHT - BOTTOM + 13))
    return _svg(title, body, [])


class Frame:
    """Where numbers lie in the picture."""

    def __init__(self, across: tuple[float, float], up: tuple[float, float], log: bool) -> None:
        self.across, self.log = across, log
        self.up = (math.log10(max(up[0], 1e-12)), math.log10(max(up[1], 1e-12))) if log else up

    def x(self, v: float) -> float:
        low, high = self.across
        return LEFT + (v - low) / ((high - low) or 1.0) * (WIDTH - LEFT - RIGHT)

    def y(self, v: float) -> float:
        v = math.log10(max(v, 1e-12)) if self.log else v
        low, high = self.up
        return HEIGHT - BOTTOM - (v - low) / ((high - low) or 1.0) * (HEIGHT - TOP - BOTTOM)

    def axes(self, x: str, y: str, ticks_x: bool = True) -> str:
        foot, right = HEIGHT - BOTTOM, WIDTH - RIGHT
        out = [
            f'<path d="M{LEFT} {TOP}V{foot}H{right}" fill="none" stroke="currentColor" stroke-opacity=".5"/>',
            _text(x, (LEFT + right) / 2, HEIGHT - 6),
            f'<g transform="translate(12 {(TOP + foot) / 2}) rotate(-90)">{_text(y, 0, 0)}</g>',
        ]
        for tick in ticks(*self.up):
            value = 10**tick if self.log else tick
            at = self.y(value)
            out.append(f'<path d="M{LEFT} {at:.1f}H{right}" stroke="currentColor" stroke-opacity=".12"/>')
            out.append(_text(f"{value:g}", LEFT - 5, at + 4, "end"))
        for tick in ticks(*self.across) if ticks_x else ():
            out.append(_text(f"{tick:g}", self.x(tick), foot + 14))
        return "".join(out)


def ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers between two, about as many as wanted."""
    if not high > low:
        return [low]
    step = 10 ** math.floor(math.log10((high - low) / wanted))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / (step * m) <= wanted + 0.5)
    first = math.ceil(low / step - 1e-9)
    return [round(step * i, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _text(words: str, x: float, y: float, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="small">{escape(words)}</text>'


def _span(values: Sequence[float]) -> tuple[float, float]:
    known = [v for v in values if math.isfinite(v)]
    if not known:
        return 0.0, 1.0
    low, high = min(known), max(known)
    room = 0.04 * (high - low) or abs(high) * 0.1 or 1.0
    return low - (room if low != 0 else 0.0), high + room


def _runs(x: Sequence[float], y: Sequence[float], log: bool) -> list[list[tuple[float, float]]]:
    out: list[list[tuple[float, float]]] = [[]]
    for a, b in zip(x, y, strict=True):
        if math.isfinite(b) and (not log or b > 0):
            out[-1].append((a, b))
        elif out[-1]:
            out.append([])
    return [part for part in out if part]


def _svg(title: str, body: Sequence[str], names: Sequence[str]) -> str:
    legend = "".join(
        f'<span><i style="background:{OKABE_ITO[i % len(OKABE_ITO)]}"></i>{escape(name)}</span>'
        for i, name in enumerate(names)
    )
    return (
        f'<figure><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title, quote=True)}" '
        f'xmlns="http://www.w3.org/2000/svg" style="font:12px sans-serif" fill="currentColor">'
        f'<text x="{LEFT}" y="15" style="font-weight:600">{escape(title)}</text>{"".join(body)}</svg>'
        + (f'<figcaption class="legend">{legend}</figcaption>' if legend else "")
        + "</figure>"
    )


# ---------------------------------------------------------------- maps


def point_colours(colouring: Colouring) -> np.ndarray:
    """uint8 (n, 3) of every row."""
    if isinstance(colouring, ValueColours):
        table = colour_table(colouring.colormap)
        values = np.nan_to_num(colouring.values, nan=0.0)
        out = table[np.clip((values * 255).astype(int), 0, 255)]
        out[np.isnan(colouring.values)] = hex_to_rgb("#9AA0A6")
        return out
    palette = np.array([hex_to_rgb(c) for c in (*colouring.colours, "#9AA0A6")], dtype=np.uint8)
    return palette[colouring.codes]


def scatter_png(xy: np.ndarray, colouring: Colouring, *, side: int = 420, cross: bool = False) -> bytes:
    """A map of points (n, 2) on a transparent ground; ``cross`` draws crosses in the place of dots.

    The rows of the commonest colours lie below, so that a small class is seen.
    """
    from PIL import Image, ImageDraw

    return _png(_drawn(Image, ImageDraw, [(xy, colouring, cross)], side), side)


def joint_png(first: tuple[np.ndarray, Colouring], second: tuple[np.ndarray, Colouring], *, side: int = 420) -> bytes:
    """Two sides in one frame: the first as dots, the second as crosses."""
    from PIL import Image, ImageDraw

    return _png(_drawn(Image, ImageDraw, [(*first, False), (*second, True)], side), side)


def _drawn(image, draw, layers: list[tuple[np.ndarray, Colouring, bool]], side: int):
    every = np.concatenate([xy for xy, *_ in layers]).astype(np.float64)
    low, high = np.quantile(every, [0.002, 0.998], axis=0)
    span = max(float((high - low).max()), 1e-9) * 1.1
    corner = (low + high) / 2 - span / 2
    size = side * SMOOTH
    canvas = image.new("RGBA", (size, size), (0, 0, 0, 0))
    pen = draw.Draw(canvas)
    radius = SMOOTH * (2.6 if len(every) < 3000 else 1.8 if len(every) < 12000 else 1.2)
    for xy, colouring, cross in layers:
        at = np.clip((xy - corner) / span, 0.0, 1.0) * (size - 1)
        rgb = point_colours(colouring)
        order = np.arange(len(xy))
        if isinstance(colouring, CategoryColours):
            counts = np.bincount(colouring.codes + 1, minlength=len(colouring.names) + 1)
            order = np.argsort(-counts[colouring.codes + 1], kind="stable")
        for i in order:
            u, v = at[i, 0], size - 1 - at[i, 1]
            colour = (*map(int, rgb[i]), 215)
            if cross:
                pen.line([u - radius, v - radius, u + radius, v + radius], fill=colour, width=SMOOTH)
                pen.line([u - radius, v + radius, u + radius, v - radius], fill=colour, width=SMOOTH)
            else:
                pen.ellipse([u - radius, v - radius, u + radius, v + radius], fill=colour)
    return canvas.resize((side, side), image.LANCZOS)


def _png(canvas, side: int) -> bytes:
    buffer = io.BytesIO()
    canvas.quantize(256, method=2).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def inline(png: bytes, alt: str, side: int = 420) -> str:
    """The picture as an HTML tag that needs no file."""
    data = base64.b64encode(png).decode("ascii")
    return f'<img width="{side}" height="{side}" alt="{escape(alt, quote=True)}" src="data:image/png;base64,{data}">'
