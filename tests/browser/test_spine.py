"""The spine, as a newcomer walks it: open, run, watch, read the neighbours; and what must not go wrong on the way."""

import json
import os
import re
import signal
import time
import urllib.request

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser
READY = '[data-testid="stApp"][data-test-script-state="notRunning"]'
SLOW_RUN = "&method=ao"


def open_page(page: Page, url: str) -> None:
    page.goto(url)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.wait_for_selector(READY)
    expect(page.get_by_text("Traceback")).to_have_count(0)


def run_id(page: Page) -> str:
    page.wait_for_url(re.compile(r"[?&]run=[0-9a-f]{8}"))
    return re.search(r"[?&]run=([0-9a-f]{8})", page.url)[1]


def record(relcore_home, run: str) -> dict:
    return json.loads((relcore_home / "runs" / run / "run.json").read_text())


def set_number(page: Page, label: str, value: int) -> None:
    field = page.get_by_label(label, exact=True)
    field.fill(str(value))
    field.press("Enter")
    page.wait_for_selector(READY)


def start_long_run(page: Page, url: str) -> str:
    """A faithful run long enough to be paused, left, reloaded and stopped."""
    open_page(page, f"{url}/align")
    page.get_by_label("Mode", exact=True).click()
    page.get_by_role("option", name="paper").click()
    page.wait_for_selector(READY)
    set_number(page, "Adam steps", 5000)
    expect(page.get_by_text(re.compile(r"^Cost: .* min"))).to_be_visible()  # else the click may be of the page before
    page.get_by_role("button", name="Run", exact=True).click()
    run = run_id(page)
    expect(page.get_by_text(re.compile(r"running.*step \d+ of 5000"))).to_be_visible(timeout=60_000)
    return run


def stop(page: Page) -> None:
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("was stopped")).to_be_visible(timeout=60_000)


def test_the_first_request_may_be_a_deep_link(page, app_url):
    """Must stay the first test of this module: the server has answered nobody yet."""
    open_page(page, f"{app_url}/retrieval?sample=glove")
    expect(page.get_by_role("heading", name="Retrieval")).to_be_visible()
    expect(page.get_by_test_id("stTopNavLink").filter(has_text="Align")).to_be_visible()
    expect(page.get_by_text("seeds: 15")).to_be_visible()
    assert "sample=glove" in page.url
    expect(page.get_by_text("Page not found")).to_have_count(0)


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
def test_from_the_first_open_to_the_neighbours(page, app_url, relcore_home, color_scheme):
    open_page(page, app_url)
    expect(page.locator("canvas.ink").first).to_be_visible()
    page.get_by_role("button", name="Run anchor optimisation").click()
    run = run_id(page)
    expect(page.get_by_text("Retrieval on the way")).to_be_visible(timeout=60_000)
    expect(page.get_by_text(re.compile("looks aligned"))).to_be_visible(timeout=180_000)
    done = record(relcore_home, run)
    assert done["status"] == "done"
    assert done["metrics"]["x_to_y"]["mrr"] > done["metrics"]["references"]["seed"]["x_to_y"]["mrr"]
    page.get_by_role("button", name="Read the neighbours").click()
    expect(page.get_by_role("heading", name="Retrieval")).to_be_visible()
    page.wait_for_selector(READY)
    expect(page.get_by_text(re.compile("^Query in"))).to_be_visible()
    expect(page.get_by_test_id("stDataFrame")).to_have_count(5)  # metrics, by rule, there, back, worst queries
    assert run in page.url


def test_a_reload_in_the_middle_keeps_the_run_and_stop_frees_the_worker(page, app_url, relcore_home):
    run = start_long_run(page, app_url)
    page.reload()
    page.wait_for_selector(READY)
    assert run in page.url
    expect(page.get_by_text(re.compile(r"running.*step \d+ of 5000"))).to_be_visible(timeout=60_000)
    pid = record(relcore_home, run)["process"]["pid"]
    stop(page)
    kept = record(relcore_home, run)
    assert kept["status"] == "cancelled" and kept["steps"] > 0
    deadline = time.monotonic() + 10
    while process_is_there(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not process_is_there(pid)


def process_is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_pause_stops_the_steps_and_resume_goes_on(page, app_url):
    start_long_run(page, app_url)
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.get_by_test_id("stProgress").get_by_text("paused")).to_be_visible()

    def step() -> int:
        return int(
            re.search(r"step (\d+) of 5000", page.get_by_text(re.compile(r"step \d+ of 5000")).first.inner_text())[1]
        )

    page.wait_for_timeout(1000)
    before = step()
    page.wait_for_timeout(1500)
    assert step() == before
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_text(re.compile(r"running.*step"))).to_be_visible()
    page.wait_for_timeout(2500)
    assert step() > before
    stop(page)


def test_a_run_goes_on_while_other_pages_are_used_and_a_second_press_starts_no_second_run(page, app_url, relcore_home):
    before = len(list((relcore_home / "runs").iterdir()))
    run = start_long_run(page, app_url)
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_disabled()
    page.get_by_test_id("stTopNavLink").filter(has_text="Seeds").click()
    expect(page.get_by_role("heading", name="Seeds")).to_be_visible()
    page.get_by_role("button", name="Draw seeds").click()
    page.wait_for_selector(READY)
    assert run in page.url
    page.get_by_test_id("stTopNavLink").filter(has_text="Align").click()
    expect(page.get_by_text(re.compile(r"running.*step \d+ of 5000"))).to_be_visible()
    assert len(list((relcore_home / "runs").iterdir())) == before + 1
    stop(page)


def test_an_answer_comes_quickly_while_a_run_goes_on(page, app_url):
    """Whatever the machine, the click must be answered while the run goes on (benchmarks/app.py has the time)."""
    start_long_run(page, app_url)
    page.get_by_test_id("stTopNavLink").filter(has_text="Seeds").click()
    expect(page.get_by_role("heading", name="Seeds")).to_be_visible()
    set_number(page, "Count", 20)
    page.get_by_role("button", name="Draw seeds").click()
    expect(page.get_by_text("seeds: 20")).to_be_visible()
    page.get_by_test_id("stTopNavLink").filter(has_text="Align").click()
    expect(page.get_by_text(re.compile(r"running.*step \d+ of 5000"))).to_be_visible()
    stop(page)


def test_controls_keep_their_value_from_page_to_page(page, app_url):
    """Case B27."""
    open_page(page, f"{app_url}/seeds")
    set_number(page, "Count", 25)
    page.get_by_test_id("stTopNavLink").filter(has_text="Align").click()
    expect(page.get_by_role("heading", name="Align")).to_be_visible()
    page.get_by_test_id("stTopNavLink").filter(has_text="Seeds").click()
    expect(page.get_by_label("Count", exact=True)).to_have_value("25")


def test_the_server_dies_and_leaves_no_worker(page, start_app, relcore_home):
    server = start_app(__file__.rsplit("/tests/", 1)[0] + "/app.py")
    run = start_long_run(page, server.url)
    pid = record(relcore_home, run)["process"]["pid"]
    server.process.send_signal(signal.SIGKILL)
    server.process.wait(10)
    deadline = time.monotonic() + 10
    while process_is_there(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not process_is_there(pid)
    with pytest.raises(OSError):
        urllib.request.urlopen(server.url, timeout=1)
