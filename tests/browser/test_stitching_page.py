"""The Stitching page in Chromium: a stitching on its way, a cell of the confusions clicked, a bar, both themes."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.test_spine import READY, open_page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def made(relcore_home):
    """Three spaces in the store, and what the address bar says of them."""
    from tests.pages import test_stitching_page as pages

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RELCORE_HOME", str(relcore_home))
        return "&".join(f"{k}={v}" for k, v in pages.link(pages.planted(dims=(8, 7, 9))).items())


def results(page: Page, app_url: str, made: str) -> None:
    """The page with results: stitched by the first test that comes here."""
    open_page(page, f"{app_url}/stitching?{made}")
    if page.get_by_text("Nothing is stitched yet").count():
        page.get_by_role("button", name="Stitch", exact=True).click()
        expect(page.get_by_text(re.compile(r"running · (starting|\d+ of)"))).to_be_visible()
    expect(page.get_by_role("heading", name="Confusions")).to_be_visible(timeout=90_000)
    page.wait_for_selector(READY)
    page.wait_for_function("window.__relcoreMap && window.__relcoreMap.frames > 0")


def click(page: Page, point) -> None:
    point.scroll_into_view_if_needed()
    page.wait_for_timeout(500)
    box = point.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
def test_a_cell_of_the_confusions_selects_its_rows_on_every_page(page, app_url, made, color_scheme):
    results(page, app_url, made)
    matrix = page.locator(".js-plotly-plot").nth(1)
    expect(matrix.get_by_text("a<b>").first).to_be_visible()  # a class from a file is text
    click(page, matrix.locator(".scatterlayer .point").nth(1))
    chip = page.get_by_text(re.compile(r"^\D*(\d+) \+ \1 selected"))
    expect(chip).to_be_visible()
    said = chip.inner_text()
    page.get_by_test_id("stTopNavLink").filter(has_text="Data").click()
    expect(page.get_by_role("heading", name="Data", level=1)).to_be_visible()
    expect(page.get_by_text(said)).to_be_visible()


def test_the_first_click_on_a_bar_looks_at_its_confusions(page, app_url, made):
    results(page, app_url, made)
    click(page, page.locator(".js-plotly-plot").first.locator(".bars .point").nth(2))
    expect(page.get_by_text(re.compile("^seeds only, 1 → 2: "))).to_be_visible()


def test_another_encoder_is_looked_at_and_made_b(page, app_url, made):
    results(page, app_url, made)
    page.get_by_label("Encoder side: read").click()
    page.get_by_role("option", name=re.compile("3 · space 2")).click()
    page.get_by_role("button", name="Make 1 and 3 A and B").click()
    expect(page.get_by_text(re.compile("what became of the rows of 3 tested"))).to_be_visible()
    expect(page.get_by_text("Traceback")).to_have_count(0)
