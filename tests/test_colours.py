"""Colours: one class one colour, readable on both themes, missing values apart (case B16)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from relcore import colours
from relcore.colours import (
    NONE_COLOUR,
    OTHER_COLOUR,
    TWENTY,
    category_colours,
    category_scheme,
    colour_table,
    hex_to_rgb,
    looks_categorical,
    shared_category_colours,
    value_colours,
)


def test_classes_are_ordered_by_frequency_then_name_over_all_columns():
    scheme = category_scheme(["b", "a", "c"], ["c", "", None])
    assert scheme.names == ("c", "a", "b")


def test_a_class_keeps_its_colour_and_marker_on_the_other_side():
    left, right = shared_category_colours(["cat", "dog", "dog"], ["eel", "cat", ""])
    assert left.names == right.names and left.colours == right.colours and left.markers == right.markers
    assert [left.names[c] for c in left.codes] == ["cat", "dog", "dog"]
    assert right.codes[2] == -1


def test_text_labels_that_look_alike_stay_apart():
    assert category_colours(["1", "01"]).names == ("01", "1")


@pytest.mark.parametrize(
    ("classes", "coloured", "marked"), [(1, 1, False), (8, 8, True), (9, 9, False), (20, 20, False)]
)
def test_few_classes_have_a_colour_each_and_up_to_eight_a_marker(classes, coloured, marked):
    scheme = category_scheme([f"class {i}" for i in range(classes)])
    assert len(set(scheme.colours)) == classes
    assert (scheme.markers is not None) is marked
    if marked:
        assert len(set(scheme.markers)) == classes


def test_of_many_classes_the_nineteen_largest_keep_a_colour():
    labels = [f"class {i:03d}" for i in range(200) for _ in range(200 - i)]
    scheme = category_scheme(labels)
    assert scheme.colours[:19] == TWENTY[:19]
    assert set(scheme.colours[19:]) == {OTHER_COLOUR}
    assert scheme.names[18] == "class 018"
    assert int(category_colours(labels).codes.max()) == 199  # the true class is still known


def luminance(colour: str) -> float:
    """Relative luminance, WCAG 2.2."""
    channel = np.array(hex_to_rgb(colour)) / 255
    linear = np.where(channel <= 0.04045, channel / 12.92, ((channel + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_no_colour_disappears_on_the_dark_page_nor_on_the_light_one():
    dark = luminance("#11161D")
    for colour in (*TWENTY, NONE_COLOUR, OTHER_COLOUR):
        assert (luminance(colour) + 0.05) / (dark + 0.05) > 2.5, colour
        # Yellow is pale on white by nature; the map draws every point with a darker rim.
        rim = luminance("#" + "".join(f"{int(c * 0.55):02x}" for c in hex_to_rgb(colour)))
        assert 1.05 / (rim + 0.05) > 2.5, colour


def lab(colour: str) -> np.ndarray:
    """CIE 1976 L*a*b* under D65."""
    channel = np.array(hex_to_rgb(colour)) / 255
    linear = np.where(channel <= 0.04045, channel / 12.92, ((channel + 0.055) / 1.055) ** 2.4)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear
    x, y, z = np.cbrt(xyz / [0.9505, 1, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_no_two_colours_are_near_one_another():
    pairs = itertools.combinations((*TWENTY, OTHER_COLOUR), 2)
    nearest = min((np.linalg.norm(lab(a) - lab(b)), a, b) for a, b in pairs)
    assert nearest[0] > 20, nearest  # 2.3 is just noticeable


def test_values_run_from_zero_to_one_and_missing_ones_stay_missing():
    c = value_colours([2.0, 4.0, 3.0, np.nan, np.inf])
    np.testing.assert_allclose(c.values[:3], [0, 1, 0.5])
    assert np.isnan(c.values[3:]).all() and (c.low, c.high) == (2.0, 4.0)


def test_a_signed_change_is_centred():
    c = value_colours([-1.0, 3.0, 0.0], centre=0)
    assert (c.low, c.high, c.colormap) == (-3.0, 3.0, "diverging")
    assert c.values[2] == 0.5


def test_constant_and_empty_values_do_not_divide_by_zero():
    np.testing.assert_array_equal(value_colours([7.0, 7.0]).values, [0, 0])
    assert len(value_colours([]).values) == 0


def test_a_colour_map_has_256_colours_and_a_reverse():
    table = colour_table("viridis")
    assert table.shape == (256, 3) and tuple(table[0]) == hex_to_rgb("#440154") and tuple(table[-1]) == (253, 231, 37)
    np.testing.assert_array_equal(colour_table("viridis_r"), table[::-1])
    with pytest.raises(KeyError):
        colour_table("jet")
    for name in ("viridis", "viridis_dark", "viridis_light", "cividis"):
        lightness = colour_table(name).astype(float) @ [0.2126, 0.7152, 0.0722]
        assert (np.diff(lightness[::17]) > 1).all()  # a sequential map grows lighter all the way


def test_the_low_end_of_the_dark_map_is_seen_on_a_dark_page():
    def luminance(colour):
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in np.array(colour) / 255]
        return np.dot(linear, [0.2126, 0.7152, 0.0722])

    page, low = luminance(hex_to_rgb("#0E1117")), luminance(colour_table("viridis_dark")[0])
    assert (low + 0.05) / (page + 0.05) > 3  # WCAG 2.1, 1.4.11: what a graphic needs


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (list(range(10)), True),
        ([1.0, float("nan"), 2.0], True),
        (["a", "b"], True),
        (list(range(200)), False),
        ([0.5, 1.0], False),
        ([None, "", 3], True),
    ],
)
def test_few_whole_numbers_are_classes(values, expected):
    assert looks_categorical(values) is expected


def test_rows_all_alike_have_one_class():
    assert colours.plain_colours(3).names == ("all",)
