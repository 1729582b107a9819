"""How fast the app answers: cold start, page switch, and a click on an unrelated button with and without a run.

    python benchmarks/app.py [--clicks 20]

Starts a server of its own in a temporary folder and drives it in headless Chromium on this machine; what it prints is
the time from the click to the end of the script run it caused, as the browser sees it.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.browser.conftest import FLAGS, Server, find_chromium  # noqa: E402

READY = '[data-testid="stApp"][data-test-script-state="notRunning"]'
# Resolves with the milliseconds from the click until the script ran and ended.
CLICK = """(button) => new Promise((resolve) => {
  const app = document.querySelector('[data-testid="stApp"]');
  let ran = false;
  const begun = performance.now();
  const watch = new MutationObserver(() => {
    const state = app.getAttribute('data-test-script-state');
    if (state !== 'notRunning') ran = true;
    else if (ran) { watch.disconnect(); resolve(performance.now() - begun); }
  });
  watch.observe(app, { attributes: true });
  button.click();
})"""


def clicks(page: Page, count: int) -> list[float]:
    """Milliseconds of clicks on "Draw seeds", a button that has nothing to do with the run."""
    page.get_by_test_id("stTopNavLink").filter(has_text="Seeds").click()
    expect(page.get_by_role("heading", name="Seeds")).to_be_visible()
    page.wait_for_selector(READY)
    times = []
    for _ in range(count):
        times.append(page.get_by_role("button", name="Draw seeds").evaluate(CLICK))
        page.wait_for_timeout(300)
    return times


def say(what: str, times: list[float]) -> None:
    ordered = sorted(times)
    print(f"{what:42s} p50 {statistics.median(ordered):6.0f} ms   p90 {ordered[int(0.9 * len(ordered))]:6.0f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clicks", type=int, default=20)
    count = parser.parse_args().clicks
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        begun = time.monotonic()
        server = Server(ROOT / "app.py", {"RELCORE_HOME": home}, Path(home) / "server.log")
        try:
            server.wait_until_healthy()
            print(f"{'server answers':42s} {time.monotonic() - begun:10.1f} s")
            browser = playwright.chromium.launch(executable_path=find_chromium(), args=list(FLAGS))
            page = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
            page.set_default_timeout(60_000)
            expect.set_options(timeout=60_000)
            for what in ("first page, cold", "first page, warm"):
                begun = time.monotonic()
                page.goto(server.url)
                expect(page.locator("canvas.ink").first).to_be_visible()
                page.wait_for_selector(READY)
                print(f"{what:42s} {time.monotonic() - begun:10.1f} s")
            clicks(page, 3)
            say("click, no run", clicks(page, count))
            page.get_by_test_id("stTopNavLink").filter(has_text="Align").click()
            page.get_by_label("Mode", exact=True).click()
            page.get_by_role("option", name="paper").click()
            page.wait_for_selector(READY)
            steps = page.get_by_label("Adam steps", exact=True)
            steps.fill("5000")
            steps.press("Enter")
            page.wait_for_selector(READY)
            begun = time.monotonic()
            page.get_by_role("button", name="Run", exact=True).click()
            expect(page.get_by_text(re.compile(r"running.*step \d+ of"))).to_be_visible()
            print(f"{'from Run to the first step on the screen':42s} {time.monotonic() - begun:10.2f} s")
            say("click while a run goes on", clicks(page, count))
            switches = []
            for name in ("Data", "Seeds", "Data", "Seeds"):
                begun = time.monotonic()
                page.get_by_test_id("stTopNavLink").filter(has_text=name).click()
                expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
                page.wait_for_selector(READY)
                switches.append(1000 * (time.monotonic() - begun))
            say("page switch while a run goes on", switches)
            browser.close()
        finally:
            server.stop()
            if os.environ.get("SHOW_LOG"):
                print(server.log_text())


if __name__ == "__main__":
    main()
