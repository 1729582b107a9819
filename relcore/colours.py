"""Colours that mean the same on every page: one class one colour, missing values grey, maps safe for colour blindness.

Light (numpy only) and without Streamlit, so that figures, maps and tests can share it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

# Okabe and Ito, "Color Universal Design" (2008). Their eighth colour is black, which a dark page swallows; a violet of
# middle lightness stands in for it.
OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#8C6BB1")
# The first eight stay, so that a ninth class does not recolour the others; each of the rest was taken as far as can be
# (CIELAB) from those before it and from the greys, among colours that show on white and on near-black.
TWENTY = OKABE_ITO + (
    *("#E00050", "#686010", "#50A000", "#B00898", "#F8A888", "#C0D088"),
    *("#0058D8", "#00E888", "#984840", "#00E0E8", "#F088F8", "#D0C0F8"),
)
NONE_COLOUR = "#9AA0A6"  # rows without a label
OTHER_COLOUR = "#7F858C"  # classes beyond the 19 largest
PLAIN_COLOUR = OKABE_ITO[0]
NONE_NAME = "(none)"
MAX_MARKED = 8  # up to here every class has its own marker symbol too
MAX_COLOURED = 20

# Few stops, interpolated in sRGB: close enough for points, and no matplotlib on the server.
_STOPS = {
    "viridis": "#440154 #472D7B #3B528B #2C728E #21918C #28AE80 #5EC962 #ADDC30 #FDE725",
    # viridis for a dark page: its low end is light enough to be seen there
    "viridis_dark": "#5C66B0 #4C7BAF #3A90A8 #2FA594 #5EC962 #ADDC30 #FDE725",
    # and one for a white page, where its high end would be lost
    "viridis_light": "#440154 #472D7B #3B528B #2C728E #21918C #28AE80 #54B960 #8CC63F",
    "cividis": "#00224E #213B6E #4C556C #6C6E72 #8B8779 #AFA376 #D4C064 #FEE838",
    # Signed values: blue below, orange above; the middle is grey, not white, so that it shows on both themes.
    "diverging": "#2166AC #5E9BC9 #A3B9C8 #B4B4B4 #D6B08F #E08A3C #B35806",
}


@dataclass(frozen=True, eq=False)
class CategoryColours:
    """One class a row.

    Attributes
    ----------
    codes : int16 (n,), position of the row's class in ``names``; -1 for a row without a label.
    names : class names, most frequent first (ties by name).
    colours : hex colour of each class; classes that share ``OTHER_COLOUR`` are "other".
    markers : marker number (0-7) of each class, or None: all circles.
    title : what the classes are ("label").
    """

    codes: np.ndarray
    names: tuple[str, ...]
    colours: tuple[str, ...]
    markers: tuple[int, ...] | None = None
    title: str = ""


@dataclass(frozen=True, eq=False)
class ValueColours:
    """One number a row.

    Attributes
    ----------
    values : float32 (n,) in [0, 1]; NaN for a row without a value.
    colormap : "viridis", "viridis_dark", "viridis_light", "cividis" or "diverging", with "_r" for the reverse.
    low, high : the numbers that 0 and 1 stand for.
    title : what the numbers are ("N_10").
    """

    values: np.ndarray
    colormap: str
    low: float
    high: float
    title: str = ""


Colouring = CategoryColours | ValueColours


@dataclass(frozen=True)
class CategoryScheme:
    """Which class gets which colour; made once from every space on the screen, so that they agree."""

    names: tuple[str, ...]
    colours: tuple[str, ...]
    markers: tuple[int, ...] | None


def category_scheme(*labels: Iterable[str | None]) -> CategoryScheme:
    """The scheme of all label columns taken together: most frequent class first, then by name (case B16)."""
    counts: Counter[str] = Counter()
    for column in labels:
        counts.update(str(v) for v in column if v is not None and v != "")
    names = tuple(sorted(counts, key=lambda name: (-counts[name], name)))
    if len(names) <= MAX_COLOURED:
        colours = TWENTY[: len(names)]
    else:
        colours = TWENTY[: MAX_COLOURED - 1] + (OTHER_COLOUR,) * (len(names) - MAX_COLOURED + 1)
    markers = tuple(range(len(names))) if 1 < len(names) <= MAX_MARKED else None
    return CategoryScheme(names, colours, markers)


def category_colours(
    labels: Sequence[str | None], scheme: CategoryScheme | None = None, title: str = "label"
) -> CategoryColours:
    """Colours of one label column; ``""`` and None are rows without a label.

    Give the ``scheme`` of all columns on the screen when there are several: the same class then has the same colour.
    """
    scheme = scheme or category_scheme(labels)
    position = {name: i for i, name in enumerate(scheme.names)}
    codes = np.array([-1 if v is None or v == "" else position[str(v)] for v in labels], dtype=np.int16)
    return CategoryColours(codes, scheme.names, scheme.colours, scheme.markers, title)


def shared_category_colours(*labels: Sequence[str | None], title: str = "label") -> tuple[CategoryColours, ...]:
    """One colouring a label column, all by the scheme of the columns together."""
    scheme = category_scheme(*labels)
    return tuple(category_colours(column, scheme, title) for column in labels)


def plain_colours(n: int, colour: str = PLAIN_COLOUR) -> CategoryColours:
    """All rows alike: one class, hence no legend."""
    return CategoryColours(np.zeros(n, dtype=np.int16), ("all",), (colour,))


def value_colours(
    values: Sequence[float],
    *,
    title: str = "",
    colormap: str = "viridis",
    low: float | None = None,
    high: float | None = None,
    centre: float | None = None,
) -> ValueColours:
    """Colours of numbers between ``low`` and ``high`` (default: their own range); outside is clipped to the ends.

    With ``centre`` (0 for signed changes) the range is made symmetric about it and the default map is diverging.
    """
    v = np.asarray(values, dtype=np.float64)
    finite = v[np.isfinite(v)]
    low = float(finite.min()) if low is None and len(finite) else (low or 0.0)
    high = float(finite.max()) if high is None and len(finite) else (high if high is not None else 1.0)
    if centre is not None:
        reach = max(abs(high - centre), abs(low - centre)) or 1.0
        low, high = centre - reach, centre + reach
        colormap = "diverging" if colormap == "viridis" else colormap
    span = (high - low) or 1.0
    unit = np.where(np.isfinite(v), np.clip((v - low) / span, 0.0, 1.0), np.nan).astype(np.float32)
    colour_table(colormap)  # an unknown name fails here, not in the browser
    return ValueColours(unit, colormap, low, high, title)


def looks_categorical(values: Sequence) -> bool:
    """True for text, and for at most 30 distinct whole numbers (case B16): ids of classes, not amounts."""
    seen = set()
    for v in values:
        if v is None or v == "" or v != v:
            continue
        if isinstance(v, str):
            return True
        seen.add(float(v))
        if not float(v).is_integer() or len(seen) > 30:
            return False
    return True


def hex_to_rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def colour_table(colormap: str) -> np.ndarray:
    """The colour map as uint8 (256, 3).

    Raises
    ------
    KeyError
        If there is no such map.
    """
    stops = np.array([hex_to_rgb(c) for c in _STOPS[colormap.removesuffix("_r")].split()], dtype=np.float64)
    if colormap.endswith("_r"):
        stops = stops[::-1]
    at = np.linspace(0, len(stops) - 1, 256)
    table = np.stack([np.interp(at, np.arange(len(stops)), stops[:, channel]) for channel in range(3)], axis=1)
    return np.rint(table).astype(np.uint8)


def plotly_colorscale(colormap: str) -> list[list]:
    """The same map for Plotly figures."""
    table = colour_table(colormap)
    return [[i / 16, "rgb({},{},{})".format(*table[min(255, i * 16)])] for i in range(17)]
