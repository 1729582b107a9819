"""The Hubness page in Chromium: a click on a hub, a box in the distribution, both themes."""

from __future__ import annotations

import re

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from tests.browser.test_linked_map import pixels_of
from tests.browser.test_spine import READY, open_page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def hub_run(relcore_home):
    """A run of the seed baseline with a transport plan, between rows in a cone and their noisy copy."""
    from tests.pages import test_hubness_page as pages

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RELCORE_HOME", str(relcore_home))
        return pages.made_run(patch)


def url(app_url: str, run) -> str:
    return f"{app_url}/hubness?run={run.id}"


def largest_hub(run, way: str) -> tuple[int, int]:
    n_k = run.analysis[f"{way}/nearest/n_k"]
    return int(n_k.argmax()), int(n_k.max())


def settle(page: Page) -> None:
    page.wait_for_selector(READY)
    page.wait_for_function("window.__relcoreMap && window.__relcoreMap.frames > 0")
    expect(page.locator(".js-plotly-plot")).to_have_count(5)  # bars, two distributions, causes, spectrum


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
def test_every_rule_and_direction_is_on_the_page(page, app_url, hub_run, color_scheme):
    open_page(page, url(app_url, hub_run))
    settle(page)
    expect(page.get_by_test_id("stMetric")).to_have_count(8)
    expect(page.get_by_test_id("stTopNavLink").filter(has_text="Hubness")).to_be_visible()
    assert page.evaluate("document.querySelectorAll('.gl-container canvas').length") == 0


def test_a_click_on_a_hub_selects_its_groupies_on_the_other_side(page, app_url, hub_run):
    open_page(page, url(app_url, hub_run))
    settle(page)
    hub, count = largest_hub(hub_run, "x_to_y")
    page.locator("canvas.ink").scroll_into_view_if_needed()
    page.mouse.click(*pixels_of(page, 1, hub))
    expect(page.get_by_text(f"{count} + 1 selected")).to_be_visible()
    expect(page.get_by_role("heading", name=f"Groupies of Y {hub}")).to_be_visible()
    expect(page.get_by_text(re.compile(f"among the 10 best of {count} of"))).to_be_visible()


def test_a_box_in_the_distribution_selects_rows_by_how_often_they_are_listed(page, app_url, hub_run):
    open_page(page, url(app_url, hub_run))
    settle(page)
    plot = page.locator(".js-plotly-plot").nth(1)
    plot.scroll_into_view_if_needed()
    page.wait_for_timeout(500)
    area = plot.locator(".nsewdrag").bounding_box()
    page.mouse.move(area["x"] + area["width"] / 2, area["y"] + area["height"] / 4)
    page.mouse.down()
    page.mouse.move(area["x"] + area["width"] - 2, area["y"] + area["height"] - 5, steps=6)
    page.mouse.up()
    chosen = page.get_by_text(re.compile(r"\b0 \+ \d+ selected"))
    expect(chosen).to_be_visible()
    picked = int(re.search(r"0 \+ (\d+) selected", chosen.inner_text())[1])
    n_k = np.sort(hub_run.analysis["x_to_y/nearest/n_k"])[::-1]
    assert 0 < picked < len(n_k) / 2
    assert n_k[picked - 1] > n_k[picked]  # the rows in most lists, and no tie is torn


def test_k_moves_and_the_figures_follow(page, app_url, hub_run):
    open_page(page, url(app_url, hub_run))
    settle(page)
    first = page.get_by_test_id("stMetric").first.inner_text()
    slider = page.get_by_test_id("stSlider").get_by_role("slider")
    slider.focus()
    for _ in range(5):
        page.keyboard.press("ArrowLeft")
    expect(page.get_by_test_id("stMetric").first).not_to_have_text(first)
    page.wait_for_selector(READY)
    expect(page.get_by_text("N₅ by nearest").first).to_be_visible()
    expect(page.get_by_text("Traceback")).to_have_count(0)
