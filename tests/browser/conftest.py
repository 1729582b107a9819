"""Servers and browsers for the tests that drive the app in headless Chromium.

A missing browser skips these tests with the reason; under ``CI=true`` it fails them.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCREENSHOTS = ROOT / "test-results"
BROWSER_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# SwiftShader draws WebGL without a graphics card.
FLAGS = (
    *("--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
    *("--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist"),
)
START_SECONDS = 120
DEFAULT_TIMEOUT_MS = 60_000


def find_chromium() -> str | None:
    named = os.environ.get("CHROME")
    return named or next((path for name in BROWSER_NAMES if (path := shutil.which(name))), None)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A Streamlit server of one script, with its log."""

    def __init__(self, script: Path, env: dict[str, str], log: Path) -> None:
        self.script = script
        self.env = env
        self.log = log
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "streamlit", "run", str(script)]
        command += ["--server.port", str(port), "--server.address", "127.0.0.1", "--server.headless", "true"]
        command += ["--server.fileWatcherType", "none", "--browser.gatherUsageStats", "false"]
        with open(log, "wb") as out:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env={**os.environ, **env}, stdout=out, stderr=subprocess.STDOUT
            )

    def wait_until_healthy(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=1) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server of {self.script.name} did not start:\n{self.log_text()[-3000:]}")
            time.sleep(0.1)

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)

    def stop_and_check(self) -> None:
        """Stop; fail if the log holds a traceback that no test saw."""
        self.stop()
        text = self.log_text()
        assert "Traceback" not in text, f"the server log of {self.script.name} holds a traceback:\n{text[-4000:]}"


@pytest.fixture(scope="session")
def relcore_home(tmp_path_factory) -> Path:
    """Where the servers of this test session keep their runs: never the developer's own folder."""
    return tmp_path_factory.mktemp("relcore_home")


@pytest.fixture(scope="module")
def start_app(tmp_path_factory, relcore_home, chromium) -> Iterator[Callable[..., Server]]:
    """``start_app(path, env={...}) -> Server``: a server of any script; stopped and its log checked at module end."""
    servers: list[Server] = []

    def start(script: str | Path, env: dict[str, str] | None = None) -> Server:
        log = tmp_path_factory.mktemp("server") / "server.log"
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        settings = {"RELCORE_HOME": str(relcore_home), "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **(env or {})}
        server = Server(Path(script), settings, log)
        servers.append(server)
        server.wait_until_healthy()
        return server

    yield start
    for server in servers:
        server.stop()
    for server in servers:
        server.stop_and_check()


@pytest.fixture(scope="module")
def app_server(start_app) -> Server:
    return start_app(ROOT / "app.py")


@pytest.fixture(scope="module")
def app_url(app_server) -> str:
    """The address of a fresh server of the app itself."""
    return app_server.url


@pytest.fixture(scope="session")
def chromium() -> str:
    path = find_chromium()
    if path is None:
        why = f"no Chromium found (looked for $CHROME, {', '.join(BROWSER_NAMES)}); try: apt install chromium"
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail(why)
        pytest.skip(why)
    return path


@pytest.fixture(scope="session")
def browser(chromium):
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=30_000)  # separate from the page's own default, and only 5 s otherwise
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def color_scheme() -> str:
    """ "light" or "dark"; a test overrides it with ``@pytest.mark.parametrize("color_scheme", [...])``."""
    return "light"


@pytest.fixture
def page(browser, request, color_scheme):
    """A page in a context of its own; a script error in it fails the test, a failed test leaves a screenshot."""
    context = browser.new_context(
        viewport={"width": 1400, "height": 900}, reduced_motion="reduce", color_scheme=color_scheme
    )
    page = context.new_page()
    page.set_default_timeout(DEFAULT_TIMEOUT_MS)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    report = getattr(request.node, "report_of_call", None)
    if report is not None and report.failed:
        SCREENSHOTS.mkdir(exist_ok=True)
        page.screenshot(path=SCREENSHOTS / (re.sub(r"[^\w.-]+", "_", request.node.name) + ".png"))
    context.close()
    assert not errors, f"errors in the page: {errors}"


@pytest.hookimpl(tryfirst=True, hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.when == "call":
        item.report_of_call = report
