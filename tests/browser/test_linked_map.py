"""The twin map in Chromium: what the browser selects is what Python selects, and the picture behaves."""

from __future__ import annotations

import math
import re

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser

APP = """
import numpy as np
import streamlit as st

from relcore.colours import shared_category_colours
from pages._ui.linked_map import Panel, linked_map

st.set_page_config(layout="wide")
query, state = st.query_params, st.session_state
n, mode = int(query.get("n", 3000)), query.get("mode", "twin")


@st.cache_resource
def data(n):
    rng = np.random.default_rng(0)
    label = np.arange(n) % 3
    x = (rng.normal(size=(n, 2)) + 9 * label[:, None]).astype(np.float32)
    order = rng.permutation(n)[: n - n // 10]
    y = (x[order] @ np.array([[0.0, 1.0], [-1.0, 0.0]])).astype(np.float32)
    partner_x = np.full(n, -1, dtype=np.int32)
    partner_x[order] = np.arange(len(order))
    names = np.array([f"<img src=x onerror=alert({i})>" for i in range(n)], dtype=object)
    labels = np.array([f"class {i + 1}" for i in label], dtype=object)
    return x, y, names, order, partner_x, labels, shared_category_colours(labels, labels[order])


x, y, names, order, partner_x, labels, (colour_x, colour_y) = data(n)
ids_x, ids_y = 1000 + 2 * np.arange(n), 5 * np.arange(len(order))
state.setdefault("selected", (np.arange(0), np.arange(0)))
state.setdefault("events", 0)
state.setdefault("last", "nothing yet")


def take(event):
    state.events += 1
    state.last = f"{event.kind} on {event.panel}: {len(event.ids)}, first {event.ids[:1]}"
    if event.kind != "click":
        state.selected = event.selected


st.button("Rerun")
step = st.number_input("Step", 0, 100, 0)
if st.checkbox("Show the map", value=True):
    if mode == "joint":
        angle = 0.1 * step
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        moved = (y @ turn).astype(np.float32)
        panels = [Panel("left", x, ids_x, colour_x, names), Panel("right", moved, ids_y, colour_y, names[order])]
        linked_map(panels, key="map", joint=True, selection=state.selected, on_change=take)
    else:
        panels = [Panel("left", x, ids_x, colour_x, names), Panel("right", y, ids_y, colour_y, names[order])]
        partner = (partner_x, order.astype(np.int32))
        linked_map(panels, key="map", partner=partner, selection=state.selected, on_change=take,
                   links=np.stack([order[:3], np.arange(3)], axis=1), link_lines=True)
chosen_labels = sorted(set(labels[np.isin(ids_x, state.selected[0])]))
st.text(f"events {state.events}")
st.text(f"python {len(state.selected[0])} {len(state.selected[1])}")
st.text(f"last {state.last}")
st.text(f"step {step} drawn")
st.text(f"labels {' and '.join(chosen_labels)}")
"""


@pytest.fixture(scope="module")
def map_url(start_app, tmp_path_factory) -> str:
    script = tmp_path_factory.mktemp("map_app") / "map_app.py"
    script.write_text(APP, encoding="utf-8")
    return start_app(script).url


def open_map(page: Page, url: str, query: str = "") -> None:
    page.goto(f"{url}/?{query}")
    page.wait_for_function("window.__relcoreMap && window.__relcoreMap.frames > 0")
    expect(page.get_by_text("events 0", exact=True)).to_be_visible()


def counters(page: Page) -> dict:
    return page.evaluate("JSON.parse(JSON.stringify(window.__relcoreMap))")


def map_state(page: Page) -> dict:
    return page.evaluate("window.__relcoreMap.state()")


def pixels_of(page: Page, panel: int, i: int) -> tuple[float, float]:
    return tuple(page.evaluate("([p, i]) => window.__relcoreMap.pixelsOf(p, i)", [panel, i]))


def drag_round(page: Page, x: float, y: float, rx: float, ry: float, modifier: str | None = None) -> None:
    """A lasso of forty corners round (x, y)."""
    if modifier:
        page.keyboard.down(modifier)
    page.mouse.move(x - rx, y)
    page.mouse.down()
    for k in range(1, 40):
        angle = math.pi + 2 * math.pi * k / 40
        page.mouse.move(x + rx * math.cos(angle), y + ry * math.sin(angle))
    page.mouse.up()
    if modifier:
        page.keyboard.up(modifier)


def settled(page: Page) -> list[int]:
    """The selected counts of the browser once Python has answered, checked against Python's."""
    page.wait_for_function("window.__relcoreMap.state().pending === 0")
    selected = counters(page)["selected"]
    expect(page.get_by_text(f"python {selected[0]} {selected[1]}", exact=True)).to_be_visible()
    return selected


def test_a_lasso_selects_the_same_rows_in_the_browser_and_in_python(page, map_url):
    open_map(page, map_url)
    drag_round(page, *pixels_of(page, 0, 0), 70, 45)
    at_once = counters(page)["selected"]  # before Python has answered
    assert at_once[0] > 100 and 0.7 * at_once[0] < at_once[1] < at_once[0]  # a tenth has no partner
    assert settled(page) == at_once
    expect(page.get_by_text("events 1", exact=True)).to_be_visible()
    page.get_by_role("button", name="Rerun").click()
    page.wait_for_timeout(300)
    expect(page.get_by_text("events 1", exact=True)).to_be_visible()  # an old lasso is not applied again


def test_and_from_the_right_to_the_left_adding_and_taking_away(page, map_url):
    open_map(page, map_url)
    drag_round(page, *pixels_of(page, 1, 0), 60, 60)
    first = settled(page)
    assert first[0] == first[1] > 50  # every row of the right has a partner on the left
    drag_round(page, *pixels_of(page, 1, 1), 50, 50, "Control")
    added = settled(page)
    assert added[1] >= first[1]
    drag_round(page, *pixels_of(page, 1, 0), 60, 60, "Alt")
    taken = settled(page)
    assert taken[1] < added[1]
    page.keyboard.press("Escape")
    assert settled(page) == [0, 0]


def test_a_box_round_one_class_is_that_class(page, map_url):
    # Case B22: 30 rows, 3 classes, all of the third.
    open_map(page, map_url, "n=30")
    third = [pixels_of(page, 0, i) for i in range(2, 30, 3)]
    left, right = min(x for x, _ in third), max(x for x, _ in third)
    top, bottom = min(y for _, y in third), max(y for _, y in third)
    page.get_by_role("button", name="Box").click()
    page.mouse.move(left - 8, top - 8)
    page.mouse.down()
    page.mouse.move(right + 8, bottom + 8, steps=4)
    page.mouse.up()
    assert settled(page)[0] == 10
    expect(page.get_by_text("labels class 3", exact=True)).to_be_visible()


def test_an_isolated_class_is_lassoed_alone(page, map_url):
    open_map(page, map_url)
    page.get_by_role("button", name=re.compile("^class 2")).click()
    frame = map_state(page)["frames"][0]
    page.get_by_role("button", name="Box").click()
    x0, y0 = pixels_of(page, 0, 0)
    canvas = page.locator("canvas.ink").bounding_box()
    page.mouse.move(canvas["x"] + 2, canvas["y"] + 2)
    page.mouse.down()
    page.mouse.move(canvas["x"] + frame["width"] - 2, canvas["y"] + frame["height"] - 2, steps=3)
    page.mouse.up()
    assert settled(page)[0] == 1000
    expect(page.get_by_text("labels class 2", exact=True)).to_be_visible()
    page.get_by_role("button", name=re.compile("^class 2")).click()
    assert map_state(page)["only"] == []


def test_hovering_shows_the_name_as_text_and_a_click_names_the_row(page, map_url):
    open_map(page, map_url, "n=30")
    page.mouse.move(*pixels_of(page, 0, 7))
    tip = page.locator(".tip")
    expect(tip).to_contain_text("<img src=x onerror=alert(7)>")
    expect(tip).to_contain_text("label: class 2 · row 1014")
    assert tip.locator("img").count() == 0
    page.mouse.down()
    page.mouse.up()
    expect(page.get_by_text("last click on 0: 1, first [1014]", exact=True)).to_be_visible()
    assert settled(page) == [0, 0]


def test_double_click_clears(page, map_url):
    open_map(page, map_url)
    drag_round(page, *pixels_of(page, 0, 0), 70, 45)
    assert settled(page)[0] > 0
    page.mouse.dblclick(*pixels_of(page, 0, 0))
    assert settled(page) == [0, 0]


def test_the_wheel_zooms_about_the_cursor_and_new_data_keep_the_view(page, map_url):
    # Case B24: the picture changes under a zoom and a selection; both stay.
    open_map(page, map_url, "mode=joint")
    before = pixels_of(page, 0, 4)
    page.mouse.move(*before)
    page.mouse.wheel(0, -400)
    page.wait_for_function("window.__relcoreMap.state().frames[0].view.scale > 0")
    after = pixels_of(page, 0, 4)
    assert math.dist(before, after) < 1.5
    drag_round(page, *pixels_of(page, 0, 4), 60, 60)
    selected = settled(page)
    view, right = map_state(page)["frames"][0]["view"], pixels_of(page, 1, 0)
    page.get_by_label("Step").fill("5")
    page.get_by_label("Step").press("Enter")
    expect(page.get_by_text("step 5 drawn", exact=True)).to_be_visible()
    page.wait_for_function("([x, y]) => Math.hypot(window.__relcoreMap.pixelsOf(1, 0)[0] - x, "
                           "window.__relcoreMap.pixelsOf(1, 0)[1] - y) > 5", arg=list(right))  # fmt: skip
    assert map_state(page)["frames"][0]["view"] == view
    assert settled(page) == selected
    page.get_by_role("button", name="Fit all").click()
    assert map_state(page)["frames"][0]["view"]["scale"] < view["scale"]


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_points_glide_to_their_new_places_unless_motion_is_not_wanted(page, map_url, motion):
    page.emulate_media(reduced_motion=motion)
    open_map(page, map_url, "mode=joint&n=300")
    page.evaluate(
        "window.seen = []; const watch = () => { window.seen.push(window.__relcoreMap.state().mix); "
        "requestAnimationFrame(watch) }; watch()"
    )
    page.get_by_label("Step").fill("9")
    page.get_by_label("Step").press("Enter")
    expect(page.get_by_text("step 9 drawn", exact=True)).to_be_visible()
    page.wait_for_timeout(1000)
    seen = page.evaluate("window.seen")
    assert seen[-1] == 1
    assert any(mix < 1 for mix in seen) is (motion == "no-preference")


def test_a_lost_graphics_context_is_said_and_comes_back(page, map_url):
    open_map(page, map_url)
    page.evaluate("window.kept = window.__relcoreMap.loseContext(); window.kept.loseContext()")
    expect(page.get_by_text("has taken the graphics memory")).to_be_visible()
    frames = counters(page)["frames"]
    page.evaluate("window.kept.restoreContext()")
    expect(page.get_by_text("has taken the graphics memory")).not_to_be_visible()
    page.wait_for_function("frames => window.__relcoreMap.frames > frames", arg=frames)
    drag_round(page, *pixels_of(page, 0, 0), 70, 45)
    assert settled(page)[0] > 0


def test_a_browser_without_webgl_gets_a_sentence(page, map_url):
    page.add_init_script(
        "const get = HTMLCanvasElement.prototype.getContext; HTMLCanvasElement.prototype.getContext = "
        "function (kind, ...rest) { return kind.startsWith('webgl') ? null : get.call(this, kind, ...rest) }"
    )
    open_map(page, map_url)
    expect(page.get_by_text("This browser draws no WebGL")).to_be_visible()


def test_maps_that_are_left_give_their_graphics_context_back(page, map_url):
    # Case B21: browsers keep 8 to 16 contexts and blank the oldest.
    page.add_init_script(
        "window.contexts = []; const get = HTMLCanvasElement.prototype.getContext; "
        "HTMLCanvasElement.prototype.getContext = function (kind, ...rest) { const c = get.call(this, kind, ...rest); "
        "if (kind.startsWith('webgl') && !window.contexts.includes(c)) window.contexts.push(c); return c }"
    )
    open_map(page, map_url)
    box = page.get_by_text("Show the map")
    for _ in range(4):
        box.click()
        expect(page.locator("canvas.gl")).to_have_count(0)
        box.click()
        expect(page.locator("canvas.gl")).to_have_count(1)
    page.wait_for_function("window.contexts.filter((c) => c.isContextLost()).length === 4")
    assert page.evaluate("window.contexts.length") == 5
    page.wait_for_function("window.__relcoreMap.frames > 0")


def test_a_selection_does_not_send_the_points_again(page, map_url):
    received: list[int] = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda data: received.append(len(data))))
    open_map(page, map_url, "n=20000")
    assert sum(received) > 1_000_000  # the points and names, once
    page.wait_for_timeout(500)
    received.clear()
    drag_round(page, *pixels_of(page, 0, 0), 70, 45)
    assert settled(page)[0] > 500
    assert sum(received) < 200_000


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
def test_the_map_follows_the_theme(page, map_url, color_scheme):
    open_map(page, map_url)
    colour = page.locator(".map").first.evaluate("node => getComputedStyle(node).color")
    assert colour == {"light": "rgb(27, 36, 48)", "dark": "rgb(230, 234, 240)"}[color_scheme]
    expect(page.locator("canvas.gl")).to_have_attribute("aria-label", re.compile(r"left \(3,000 points\) and right"))
