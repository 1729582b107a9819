"""Compare and Export in Chromium: two runs picked and compared item by item; files come down whole; a link holds the
view."""

from __future__ import annotations

import re
import zipfile

import pytest
from playwright.sync_api import expect

from tests.browser.test_spine import READY, open_page

pytestmark = pytest.mark.browser
HEADER, ROW = 35, 35  # pixels of a table


@pytest.fixture(scope="module")
def two(relcore_home):
    from relcore import runs
    from tests.pages import test_mismatch_page as pages

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RELCORE_HOME", str(relcore_home))
        sides, truth = pages.planted(seed=4)
        made = [
            pages.made_run(sides, truth, seeds=20, folds=0),
            pages.made_run(sides, truth, seeds=6, folds=0, name="relative"),
        ]
        for run, title in zip(made, ("first", "second"), strict=True):
            runs.rename(run, title)
        return made


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
def test_two_runs_are_picked_and_a_cell_of_ranks_selects_its_rows(page, app_url, two, color_scheme):
    open_page(page, f"{app_url}/compare?run={two[0].id}")
    page.wait_for_selector(READY)
    table = page.get_by_test_id("stDataFrame").first
    box = table.bounding_box()
    for row in range(2):
        page.mouse.click(box["x"] + 15, box["y"] + HEADER + row * ROW + ROW / 2)
        page.wait_for_timeout(600)
        page.wait_for_selector(READY)
    expect(page.get_by_text(re.compile("ranks the partner in a better class"))).to_be_visible()
    expect(page.locator("img[src*='/media/']")).to_have_count(2)  # the small maps
    plot = page.locator(".js-plotly-plot")
    plot.scroll_into_view_if_needed()
    expect(plot.locator(".heatmaplayer image")).to_have_count(1)
    plot.locator(".scatterlayer .point").first.click(force=True)
    expect(page.get_by_text(re.compile(r"\d+ \+ \d+ selected"))).to_be_visible()
    assert "sel=" in page.url
    expect(page.get_by_text("Traceback")).to_have_count(0)


def test_files_come_down_whole(page, app_url, two, tmp_path):
    open_page(page, f"{app_url}/export?run={two[0].id}")
    page.wait_for_selector(READY)
    for name, ending in (("Report", "html"), ("Everything", "zip"), ("Session", "zip")):
        with page.expect_download() as coming:
            page.get_by_role("button", name=name, exact=True).click()
        path = tmp_path / coming.value.suggested_filename
        coming.value.save_as(path)
        assert path.suffix == f".{ending}" and two[0].id in path.name and path.stat().st_size > 10_000
        if ending == "zip":
            with zipfile.ZipFile(path) as z:
                assert z.testzip() is None
        else:
            assert path.read_text().rstrip().endswith("</html>")
    expect(page.get_by_text("Traceback")).to_have_count(0)


def test_a_link_holds_k_rule_and_direction(page, app_url, two):
    open_page(page, f"{app_url}/retrieval?run={two[0].id}&k=7&rule=CSLS+(hub-corrected)&sel=x3_y")
    page.wait_for_selector(READY)
    expect(page.get_by_label("k", exact=True)).to_have_value("7")
    expect(page.get_by_text("1 + 0 selected")).to_be_visible()
    page.get_by_test_id("stTopNavLink").filter(has_text="Hubness").click()
    expect(page.get_by_role("heading", name="Hubness", exact=True)).to_be_visible()
    page.get_by_test_id("stTopNavLink").filter(has_text="Retrieval").click()
    expect(page.get_by_label("k", exact=True)).to_have_value("7")
    expect(page).to_have_url(re.compile(r"[?&]k=7(&|$)"))
