"""Own files, as a newcomer opens them: upload, look, change a role, open, read the pairs; and a file that is broken.
And a list of three spaces, of which two others are picked."""

import re
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import Locator, Page, TimeoutError, expect

from tests.browser.test_spine import READY, open_page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Two tables that share ids (one of them twice), a folder with pictures, and a page that is no array."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    latent = rng.normal(size=(40, 6))
    for name, d in (("left", 5), ("right", 7)):
        table = pd.DataFrame(latent @ rng.normal(size=(6, d)), columns=[f"d{i}" for i in range(d)])
        table["year"] = rng.integers(1990, 2020, 40)
        table["key"] = [f"k{i}" for i in range(40)]
        table["name"] = [f"<img src=x onerror=alert(1)> *{i}*" for i in range(40)]
        table.to_csv(folder / f"{name}.csv", index=False)
    table.loc[39, "key"] = "k38"
    table.to_csv(folder / "right.csv", index=False)
    (folder / "page.npy").write_bytes(b"<!DOCTYPE html><html>404</html>")
    np.save(folder / "vectors.npy", latent.astype(np.float32))
    (folder / "pictures").mkdir()
    for i in range(40):
        Image.new("RGB", (48, 48), (6 * i, 60, 120)).save(folder / "pictures" / f"{i}.png")
    return folder


@pytest.fixture(scope="module")
def url(start_app, files) -> str:
    from tests.browser.conftest import ROOT

    return start_app(ROOT / "app.py", env={"RELCORE_DATA": str(files)}).url


def settled(page: Page) -> None:
    page.wait_for_timeout(300)
    page.wait_for_selector(READY)


def open_panel(page: Page, url: str) -> None:
    open_page(page, f"{url}/data")
    page.get_by_text("Open your own two spaces", exact=True).click()
    expect(page.get_by_role("button", name="Open both")).to_be_visible()
    settled(page)


def pick(page: Page, open_list: Callable[[], None], option: Locator) -> None:
    """An option of a list, opened again if it closed by itself, as it does where the page still moves."""
    for attempt in range(4):
        open_list()
        try:
            expect(option).to_be_visible(timeout=10_000)
            option.dispatch_event("click", timeout=2_000)
            break
        except (AssertionError, TimeoutError):
            if attempt == 3:
                raise
            page.keyboard.press("Escape")
            settled(page)


def choose(page: Page, label: re.Pattern | str, value: str, which: int = 0) -> None:
    field = page.get_by_role("combobox", name=label).nth(which)
    field.scroll_into_view_if_needed()
    settled(page)

    def open_list() -> None:
        field.click()
        page.keyboard.press("Control+a")  # while the list is open the field has no role to be found by
        page.keyboard.type(value)

    for _ in range(3):
        pick(page, open_list, page.get_by_role("option", name=value, exact=True).first)
        field.blur()  # what was only typed, since the list moved away under the click, is gone then
        settled(page)
        if field.input_value() == value:
            break
    expect(field).to_have_value(value)


def server_file(page: Page, side: str, name: str) -> None:
    choose(page, re.compile("or a file on the server, below"), name, "AB".index(side))


def give_role(page: Page, side: str, row: int, role: str) -> None:
    """With a double click, as the table of roles is a drawing; ``row`` counts the header as 0."""
    grid = page.get_by_role("region", name=f"Columns of the file for space {side}")
    grid.scroll_into_view_if_needed()
    settled(page)
    page.wait_for_timeout(700)

    def open_list() -> None:
        box = grid.bounding_box()
        page.mouse.dblclick(box["x"] + box["width"] * 0.48, box["y"] + 35 * row + 18)

    pick(page, open_list, page.locator("#portal").get_by_text(role, exact=True))
    settled(page)


def test_upload_look_change_a_role_open_both_and_read_the_pairs(page, url, files):
    open_panel(page, url)
    for side, name in (("A", "left.csv"), ("B", "right.csv")):
        field = page.get_by_test_id("stFileUploader").filter(has_text=f"Upload {side}")
        field.locator("input").set_input_files(str(files / name))
        expect(page.get_by_text(re.compile(f"^{name}"))).to_be_visible()
        settled(page)
    expect(page.get_by_text(re.compile("6 dimensions"))).to_be_visible()
    expect(page.get_by_text(re.compile("8 dimensions"))).to_be_visible()
    give_role(page, "A", 2, "meta")  # the year is no part of the vector
    expect(page.get_by_text(re.compile("5 dimensions"))).to_be_visible()
    page.get_by_text(re.compile("^id: the same value")).first.click()
    settled(page)
    for side in "AB":
        choose(page, f"Column of {side}", "key")
    page.get_by_role("button", name="Open both").click()
    expect(page.get_by_text(re.compile(r"38 pairs, by id \(key = key\).*1 ambiguous"))).to_be_visible(timeout=60_000)
    settled(page)
    page.get_by_text("1 ambiguous entry").click()
    expect(page.get_by_text("5 dimensions, stored as text")).to_be_visible()
    expect(page.get_by_text(re.compile("left 40 × 5"))).to_be_visible()  # the header
    page.reload()
    page.wait_for_selector(READY)
    expect(page.get_by_text(re.compile(r"38 pairs, by id \(key = key\)"))).to_be_visible()


def test_a_broken_file_is_one_sentence_and_the_view_before_stays(page, url):
    open_panel(page, url)
    server_file(page, "A", "page.npy")
    expect(page.get_by_text(re.compile("Space A: page.npy looks like a web page"))).to_be_visible()
    expect(page.get_by_role("button", name="Open both")).to_be_disabled()
    expect(page.get_by_text("Traceback")).to_have_count(0)
    expect(page.get_by_text("seeds: 15")).to_be_visible()
    server_file(page, "A", "vectors.npy")  # and what is right afterwards is read
    expect(page.get_by_text("40 rows × 6 dimensions")).to_be_visible()
    expect(page.get_by_text(re.compile("looks like a web page"))).to_have_count(0)


def test_the_hover_label_shows_the_picture(page, url):
    open_panel(page, url)
    for side in "AB":
        server_file(page, side, "vectors.npy")
    page.get_by_text("Files beside, thumbnails").first.click()
    choose(page, "Thumbnails from a folder", "pictures")
    page.get_by_role("button", name="Open both").click()
    expect(page.get_by_text("40 pairs, by row")).to_be_visible(timeout=60_000)
    settled(page)
    ink = page.locator("canvas.ink").first
    ink.scroll_into_view_if_needed()
    box = ink.bounding_box()
    picture = page.locator(".tip img.picture").first
    for i in range(2000):
        x, y = box["width"] * (0.02 + 0.46 * (i % 50) / 50), box["height"] * (0.05 + 0.9 * (i // 50) / 40)
        page.mouse.move(box["x"] + x, box["y"] + y)
        if picture.is_visible():
            break
    assert picture.get_attribute("src").startswith("data:image/")
    assert picture.evaluate("e => e.decode().then(() => e.naturalWidth)") == 48


def pick_as(page: Page, letter: str, title: str) -> None:
    field = page.get_by_role("combobox", name=f"Space that is {letter}")
    pick(page, field.click, page.get_by_role("option", name=re.compile(title)))
    settled(page)
    expect(page.get_by_text(re.compile(f"^{letter} · {title}.*principal components"))).to_be_visible()


def test_two_others_of_three_are_picked_and_drawn_and_stay_after_a_reload(page, url):
    open_page(page, f"{url}/data?sample=emoji")
    ink = page.locator("canvas.ink").first
    expect(ink).to_be_visible()
    expect(page.get_by_text("3 spaces, 1,911 items in each")).to_be_visible()
    before = ink.screenshot()
    pick_as(page, "B", "French names")
    pick_as(page, "A", "English names")
    page.wait_for_url(re.compile(r"sample=emoji.*pick=1(,|%2C)2"))
    expect(page.get_by_text("1,911 pairs, by name and row, through Pictures")).to_be_visible()
    page.wait_for_timeout(500)
    assert ink.screenshot() != before
    page.reload()
    page.wait_for_selector(READY)
    expect(page.get_by_text(re.compile("^A · English names.*principal components"))).to_be_visible()
    expect(page.get_by_text(re.compile("^B · French names.*principal components"))).to_be_visible()
