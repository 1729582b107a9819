"""Pictures: points lie where the numbers say, in the colours of their classes."""

from __future__ import annotations

import io
import math
import re

import numpy as np
import pytest
from PIL import Image

from relcore import pictures
from relcore.colours import OKABE_ITO, category_colours, hex_to_rgb, value_colours


def test_a_line_goes_through_its_points_and_breaks_where_there_is_none():
    svg = pictures.lines({"a": ([0, 1, 2, 3], [0.0, 1.0, math.nan, 0.5])}, title="t", x="step", y="loss")
    (line,) = re.findall(r'<polyline points="([^"]+)"', svg)
    (x0, y0), (x1, y1) = [tuple(map(float, p.split(","))) for p in line.split()]
    assert x0 < x1 and y0 > y1  # up is a smaller number
    (dot,) = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', svg)
    assert float(dot[1]) == pytest.approx((y0 + y1) / 2, abs=0.2)
    assert float(dot[0]) - x0 == pytest.approx(3 * (x1 - x0), abs=0.3)


def test_bars_are_as_high_as_their_numbers():
    svg = pictures.bars(["a", "b<"], [1.0, 4.0], title="t", x="", y="")
    heights = [float(h) for h in re.findall(r'height="([\d.]+)" fill', svg)]
    assert heights[1] == pytest.approx(4 * heights[0], rel=0.02) and "b&lt;" in svg
    assert len(re.findall("<rect", pictures.bars(["a", "b"], [0, 100], title="t", x="", y="", log=True))) == 1


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3, 17), (0.00012, 0.00013), (5, 5), (1e6, 9e7)])
def test_ticks_are_round_and_inside(low, high):
    found = pictures.ticks(low, high)
    assert 1 <= len(found) <= 8 and all(low - 1e-9 <= t <= high + 1e-9 for t in found)
    if len(found) > 2:
        np.testing.assert_allclose(np.diff(found), found[1] - found[0], rtol=1e-6)


def pixels(png: bytes) -> np.ndarray:
    return np.array(Image.open(io.BytesIO(png)).convert("RGBA"))


def test_points_lie_where_they_are_in_the_colour_of_their_class():
    xy = np.array([[-1, -1], [1, 1], [-1, 1], [1, -1]] * 50, dtype=np.float32)
    image = pixels(pictures.scatter_png(xy, category_colours(["a", "b", "a", "b"] * 50), side=200))
    assert image.shape == (200, 200, 4) and image[100, 100, 3] == 0  # nothing in the middle
    corner = image[:100, 100:]  # above, right: b
    strong = corner[corner[..., 3] > 150][:, :3].astype(int)
    assert len(strong) and np.abs(strong - hex_to_rgb(OKABE_ITO[1])).max() < 40


def test_values_have_the_colours_of_their_map_and_none_is_grey():
    rgb = pictures.point_colours(value_colours([0.0, 1.0, np.nan], low=0.0, high=1.0))
    assert rgb[0].tolist() == list(hex_to_rgb("#440154")) and rgb[1].tolist() == list(hex_to_rgb("#FDE725"))
    assert rgb[2].tolist() == list(hex_to_rgb("#9AA0A6"))
