"""The Python side of the twin map: outlines become row ids, each once; arrays become bytes."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from streamlit.proto.WidgetStates_pb2 import WidgetState
from streamlit.testing.v1 import AppTest

from pages._ui import linked_map
from pages._ui.linked_map import MAX_NAME, Panel, in_polygon
from pages._ui.selection import Selection
from relcore.colours import CategoryColours, category_colours, value_colours
from relcore.errors import InputError

SQUARE = [[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]]


def points(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 2)).astype(np.float32)


# --- the even-odd test


def test_a_convex_outline_holds_the_points_on_the_inner_side_of_every_edge():
    xy = points(5000)
    angles = np.sort(np.random.default_rng(1).uniform(0, 2 * np.pi, 60))
    polygon = np.stack([1.3 * np.cos(angles), 0.8 * np.sin(angles)], axis=1).astype(np.float32)
    edges = np.roll(polygon, -1, axis=0).astype(np.float64) - polygon
    to_point = xy[:, None, :].astype(np.float64) - polygon[None]
    left = edges[None, :, 0] * to_point[:, :, 1] - edges[None, :, 1] * to_point[:, :, 0]
    expected = np.flatnonzero((left > 0).all(axis=1))
    assert len(expected) > 1000
    np.testing.assert_array_equal(in_polygon(xy, polygon), expected)
    np.testing.assert_array_equal(in_polygon(xy, polygon[::-1]), expected)


def test_a_star_drawn_in_one_stroke_leaves_its_centre_out():
    corner = np.arange(5) * 2 * (2 * np.pi / 5) + np.pi / 2
    star = np.stack([np.cos(corner), np.sin(corner)], axis=1).astype(np.float32)
    tip = 0.8 * star
    np.testing.assert_array_equal(in_polygon(np.vstack([[[0, 0]], tip]).astype(np.float32), star), [1, 2, 3, 4, 5])


def test_the_outline_test_agrees_with_a_plain_loop_over_edges():
    xy, rng = points(800, 2), np.random.default_rng(3)
    polygon = rng.normal(size=(200, 2)).astype(np.float32)  # a wild scribble
    xy[:50] = polygon[:50]  # points on corners, where only the same arithmetic gives the same answer

    def inside(x: float, y: float) -> bool:
        odd = False
        for i in range(len(polygon)):
            (ax, ay), (bx, by) = polygon[i].tolist(), polygon[i - 1].tolist()
            if (ay > y) != (by > y) and x < (bx - ax) * (y - ay) / (by - ay) + ax:
                odd = not odd
        return odd

    expected = [i for i, (x, y) in enumerate(xy.tolist()) if inside(x, y)]
    np.testing.assert_array_equal(in_polygon(xy, polygon), expected)


# --- events, driven as the browser drives them


def map_script(use_callback: bool, n: int = 40):
    import numpy as np
    import streamlit as st

    from pages._ui.linked_map import Panel, linked_map
    from relcore.colours import shared_category_colours

    rng = np.random.default_rng(0)
    xy_x = rng.normal(size=(n, 2)).astype(np.float32)
    order = rng.permutation(n)[: n - 10]
    partner_y = order.astype(np.int32)
    partner_x = np.full(n, -1, dtype=np.int32)
    partner_x[order] = np.arange(n - 10)
    labels = np.array([f"class {i % 3}" for i in range(n)], dtype=object)
    colour_x, colour_y = shared_category_colours(labels, labels[order])
    memory = st.session_state
    memory.setdefault("selected", (np.arange(0), np.arange(0)))
    memory.setdefault("before_script", [])

    def take(event):
        memory.before_script.append(event)
        memory.selected = event.selected

    event = linked_map(
        [
            Panel("left", xy_x, 100 + 2 * np.arange(n), colour_x),
            Panel("right", xy_x[order], 7 * np.arange(n - 10), colour_y),
        ],
        key="map",
        selection=memory.selected,
        partner=(partner_x, partner_y),
        on_change=take if use_callback else None,
    )
    memory.returned = event
    if not use_callback and event is not None:
        memory.selected = event.selected
    memory.xy_x, memory.order, memory.labels = xy_x, order, labels


def start(use_callback: bool) -> AppTest:
    at = AppTest.from_function(map_script, kwargs={"use_callback": use_callback}, default_timeout=30).run()
    assert not at.exception
    return at


def read_block(block: bytes) -> tuple[dict, bytes]:
    (length,) = struct.unpack_from("<I", block)
    return json.loads(block[4 : 4 + length]), block[4 + length :]


def read_array(entry: dict, body: bytes) -> np.ndarray:
    return np.frombuffer(body[entry["at"] : entry["at"] + entry["bytes"]], dtype="<" + entry["type"])


def picture(at: AppTest) -> tuple[dict, bytes]:
    return read_block(at.get("bidi_component")[0].proto.bytes)


def shown(at: AppTest) -> list[np.ndarray]:
    """Positions highlighted in each panel, as the browser reads them."""
    header, body = picture(at)
    return [
        np.flatnonzero(np.unpackbits(read_array(p["selected"], body), bitorder="little")[: p["n"]])
        for p in header["panels"]
    ]


def do(at: AppTest, *events: dict) -> AppTest:
    """Hand events over as the browser would: as the component's state, with the scene they were made on."""
    header, _ = picture(at)
    element = at.get("bidi_component")[0]
    states = at._tree.get_widget_states()
    value = [{"scene": header["scene"], "panel": 0, **event} for event in events]
    states.widgets.append(WidgetState(id=element.proto.id, json_value=json.dumps({"events": value})))
    at._run(states)
    assert not at.exception
    return at


def expected_left(at: AppTest, polygon) -> np.ndarray:
    return in_polygon(at.session_state["xy_x"], np.array(polygon, dtype=np.float32))


@pytest.mark.parametrize("use_callback", [True, False])
def test_a_lasso_comes_back_once_as_ids_with_the_linked_rows(use_callback):
    at = do(start(use_callback), {"kind": "lasso", "polygon": SQUARE, "mode": "replace", "rev": 5})
    left = expected_left(at, SQUARE)
    event = at.session_state["returned"]
    assert event.kind == "lasso" and event.panel == 0 and event.rev == 5
    np.testing.assert_array_equal(event.ids, 100 + 2 * left)
    in_order = at.session_state["order"]
    right = [k for k in range(30) if in_order[k] in set(left.tolist())]
    np.testing.assert_array_equal(event.selected[1], 7 * np.array(right))
    at.run()  # the state is still there: it must not act again
    assert at.session_state["returned"] is None
    np.testing.assert_array_equal(shown(at)[0], left)
    np.testing.assert_array_equal(shown(at)[1], right)
    if use_callback:
        assert len(at.session_state["before_script"]) == 1


def test_the_callback_runs_before_the_script_so_one_run_shows_the_selection():
    at = do(start(True), {"kind": "lasso", "polygon": SQUARE, "mode": "replace", "rev": 5})
    np.testing.assert_array_equal(shown(at)[0], expected_left(at, SQUARE))
    assert picture(at)[0]["ack"] == 5


def test_without_a_callback_the_run_of_the_event_does_not_claim_to_have_settled_it():
    at = do(start(False), {"kind": "lasso", "polygon": SQUARE, "mode": "replace", "rev": 5})
    assert picture(at)[0]["ack"] == 0  # else the browser would take the old selection for Python's answer
    assert picture(at.run())[0]["ack"] == 5


def test_events_handed_over_together_act_in_order():
    box = [[0, -9], [9, -9], [9, 9], [0, 9]]
    at = do(
        start(True),
        {"kind": "lasso", "polygon": SQUARE, "mode": "replace", "rev": 1},
        {"kind": "lasso", "polygon": box, "mode": "subtract", "rev": 2},
    )
    expected = np.setdiff1d(expected_left(at, SQUARE), expected_left(at, box))
    assert 0 < len(expected) < len(expected_left(at, SQUARE))
    np.testing.assert_array_equal(shown(at)[0], expected)
    do(at, {"kind": "lasso", "polygon": box, "mode": "add", "rev": 3})
    np.testing.assert_array_equal(shown(at)[0], np.union1d(expected, expected_left(at, box)))
    do(at, {"kind": "clear", "rev": 4})
    assert [len(s) for s in shown(at)] == [0, 0]


def test_a_click_names_the_row_and_selects_nothing():
    at = do(start(True), {"kind": "click", "panel": 1, "id": 21, "rev": 9})
    event = at.session_state["returned"]
    assert (event.kind, event.panel, event.ids.tolist()) == ("click", 1, [21])
    assert [len(s) for s in shown(at)] == [0, 0]


def test_a_lasso_of_an_isolated_class_takes_that_class_alone():
    # Case B22: an index that counts within a class is no row.
    at = start(True)
    names = picture(at)[0]["legend"]["names"]
    everything = [[-9, -9], [9, -9], [9, 9], [-9, 9]]
    do(at, {"kind": "lasso", "polygon": everything, "only": [names.index("class 2")], "rev": 1})
    class_2 = np.flatnonzero(at.session_state["labels"] == "class 2")
    np.testing.assert_array_equal(at.session_state["returned"].ids, 100 + 2 * class_2)


@pytest.mark.parametrize(
    "event",
    [
        {"kind": "lasso", "polygon": SQUARE, "scene": "gone"},
        {"kind": "lasso", "polygon": SQUARE, "panel": 7},
        {"kind": "lasso", "polygon": [[0, 0], [1, 1]]},
        {"kind": "lasso", "polygon": [[0, 0], [1, float("inf")], [2, 2]]},
        {"kind": "lasso", "polygon": [[0, 0]] * 201},
        {"kind": "lasso", "polygon": "abc"},
        {"kind": "click", "id": 101},
        {"kind": "unheard of"},
    ],
)
def test_what_does_not_fit_the_picture_is_dropped(event):
    at = do(start(True), {"rev": 3, **event})
    assert at.session_state["returned"] is None and at.session_state["before_script"] == []


# --- bytes


def packed(
    panels, selection=None, joint=False, links=None, partner=None
) -> tuple[tuple[dict, bytes], tuple[dict, bytes]]:
    panels = tuple(panels)
    partner = linked_map._checked_partner(panels, partner)
    memory = linked_map._Memory()
    scene = linked_map._Scene.of(panels, partner, joint)
    memory.remember(scene, linked_map._masks(panels, selection))
    links = linked_map._checked_links(panels, links)
    return tuple(read_block(b) for b in linked_map._pack(scene, panels, memory, store="k", links=links))


def test_names_arrive_verbatim_and_long_ones_end_visibly():
    names = ["<b>x</b>", "naïve 🦊", "", "z" * 500]
    (header, _), (_, body) = packed([Panel("a", points(4), np.arange(4), None, names)])
    entry = header["panels"][0]["names"]
    text, ends = read_array(entry["text"], body).tobytes(), read_array(entry["ends"], body)
    starts = np.concatenate([[0], ends[:-1]])
    got = [text[a:b].decode() for a, b in zip(starts, ends, strict=True)]
    assert got[:3] == names[:3] and got[3] == "z" * (MAX_NAME - 1) + "…"


def test_hover_text_may_be_a_function_of_the_id():
    (header, _), (_, body) = packed([Panel("a", points(3), np.array([4, 5, 6]), None, lambda i: f"row {i}")])
    assert read_array(header["panels"][0]["names"]["text"], body).tobytes() == b"row 4row 5row 6"


def test_a_new_selection_does_not_change_the_arrays_that_travel_once():
    panels = [
        Panel("a", points(50), np.arange(50), category_colours(["u", "v"] * 25)),
        Panel("b", points(9), np.arange(9)),
    ]
    one, two = packed(panels), packed(panels, ([1, 2], None))
    assert one[1] == two[1] and one[0] != two[0]
    assert one[0][0]["arrays"]["id"] == one[1][0]["id"]


def test_a_class_has_one_code_on_both_panels_and_rows_without_label_are_none():
    left = CategoryColours(np.array([0, 1, -1], np.int16), ("cat", "dog"), ("#111111", "#222222"))
    right = CategoryColours(np.array([0, 1], np.int16), ("dog", "eel"), ("#222222", "#333333"))
    (header, picture_body), (_, body) = packed(
        [Panel("a", points(3), np.arange(3), left), Panel("b", points(2), np.arange(2), right)]
    )
    names = header["legend"]["names"]
    codes = [read_array(p["codes"], body) for p in header["panels"]]
    assert [names[c] for c in codes[0]] == ["cat", "dog", "(none)"]
    assert [names[c] for c in codes[1]] == ["dog", "eel"]
    palette = read_array(header["palette"], picture_body).reshape(-1, 3)
    assert palette[codes[0][1]].tolist() == [0x22] * 3
    assert header["legend"]["counts"] == [[1, 1, 0, 1], [0, 1, 1, 0]]


def test_numbers_become_256_colours_and_a_missing_number_is_none():
    colour = value_colours([0.0, 10.0, np.nan], title="N_10")
    (header, _), (_, body) = packed([Panel("a", points(3), np.arange(3), colour)])
    assert read_array(header["panels"][0]["codes"], body).tolist() == [0, 255, 256]
    assert header["legend"] == {"kind": "value", "title": "N_10", "low": 0.0, "high": 10.0, "missing": True}


def test_a_selection_object_and_plain_collections_are_the_same():
    panels = (Panel("a", points(5), np.arange(10, 15)), Panel("b", points(4), np.arange(4)))
    by_object = linked_map._masks(panels, Selection(np.array([11, 14]), np.array([0])))
    by_lists = linked_map._masks(panels, ({11, 14, 999}, [0]))
    for a, b in zip(by_object, by_lists, strict=True):
        np.testing.assert_array_equal(a, b)
    assert by_lists[0].tolist() == [False, True, False, False, True]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Panel("A", points(3), np.arange(4)), "4 ids for 3 points"),
        (lambda: Panel("A", points(3), np.arange(3), None, ["x"]), "1 names for 3 points"),
        (lambda: Panel("A", np.zeros((3, 3)), np.arange(3)), "shape"),
        (lambda: Panel("A", np.array([[0, 0], [np.nan, 0]]), np.array([8, 9])), "row 9"),
        (lambda: packed([Panel("A", points(3), np.arange(3))], partner=(None, None)), "two panels"),
        (
            lambda: packed(
                [Panel("A", points(3), np.arange(3)), Panel("B", points(2), np.arange(2))],
                partner=(np.array([0, 1, 2]), None),
            ),
            "between -1 and 1",
        ),
        (
            lambda: packed(
                [Panel("A", points(3), np.arange(3)), Panel("B", points(2), np.arange(2))], links=np.array([[0, 2]])
            ),
            "between -1 and 1",
        ),
        (
            lambda: packed(
                [
                    Panel("A", points(2), np.arange(2), value_colours([0, 1])),
                    Panel("B", points(2), np.arange(2), value_colours([0, 5])),
                ]
            ),
            "the same number",
        ),
        (
            lambda: packed(
                [
                    Panel("A", points(2), np.arange(2), value_colours([0, 1])),
                    Panel("B", points(2), np.arange(2), category_colours(["a", "b"])),
                ]
            ),
            "colour both by the same thing",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_words(make, words):
    with pytest.raises(InputError, match=words):
        make()
