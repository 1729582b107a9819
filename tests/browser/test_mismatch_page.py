"""The Mismatch page in Chromium: the gate, a class clicked, the slider, both themes."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.test_linked_map import pixels_of
from tests.browser.test_spine import READY, open_page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def made(relcore_home):
    """A run between clusters and their turned copy that lacks one, and the same with wrong seeds."""
    import numpy as np

    from relcore.space import Pairs
    from tests.pages import test_mismatch_page as pages

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RELCORE_HOME", str(relcore_home))
        sides, truth = pages.planted()
        wrong = Pairs(np.stack([truth.x, np.roll(truth.y, 77)], 1))
        return pages.made_run(sides, truth), pages.made_run(sides, wrong)


def settle(page: Page, app_url: str, run) -> None:
    open_page(page, f"{app_url}/mismatch?run={run.id}")
    page.wait_for_selector(READY)
    page.wait_for_function("window.__relcoreMap && window.__relcoreMap.frames > 0")
    expect(page.locator(".js-plotly-plot")).to_have_count(2)


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
def test_the_missing_class_is_named_with_its_tags_as_text(page, app_url, made, color_scheme):
    settle(page, app_url, made[0])
    expect(page.get_by_text(re.compile(r"A has rows with no counterpart in B: c<b>2</b>"))).to_be_visible()
    expect(page.locator(".js-plotly-plot").first.get_by_text("c<b>2</b>")).to_be_visible()
    expect(page.get_by_test_id("stTopNavLink").filter(has_text="Mismatch")).to_be_visible()


def test_a_weak_alignment_names_nothing_and_leads_to_align(page, app_url, made):
    settle(page, app_url, made[1])
    expect(page.get_by_text(re.compile("too weak to say"))).to_have_count(2)
    expect(page.get_by_text(re.compile("has rows with no counterpart"))).to_have_count(0)
    page.get_by_role("link", name=re.compile("Align better first")).click()
    expect(page.get_by_role("heading", name="Align")).to_be_visible()


def test_a_click_on_a_class_selects_its_rows(page, app_url, made):
    settle(page, app_url, made[0])
    bar = page.locator(".js-plotly-plot").first.locator(".bars .point").first
    bar.scroll_into_view_if_needed()
    page.wait_for_timeout(500)
    box = bar.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.get_by_text("40 + 0 selected")).to_be_visible()


def test_a_click_on_the_map_selects_the_row_and_its_partner(page, app_url, made):
    settle(page, app_url, made[0])
    page.locator("canvas.ink").scroll_into_view_if_needed()
    page.mouse.click(*pixels_of(page, 1, 3))
    expect(page.get_by_text("1 + 1 selected")).to_be_visible()


def test_sigma_moves_and_the_list_follows(page, app_url, made):
    settle(page, app_url, made[0])
    slider = page.get_by_test_id("stSlider").get_by_role("slider")
    slider.focus()
    for _ in range(4):
        page.keyboard.press("ArrowLeft")
    expect(page.get_by_text("What is said above is read at the default")).to_be_visible()
    page.get_by_role("button", name="Default").click()
    expect(page.get_by_text("What is said above is read at the default")).to_have_count(0)
    expect(page.get_by_text("Traceback")).to_have_count(0)
