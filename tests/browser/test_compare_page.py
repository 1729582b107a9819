"""The Compare page in Chromium: a sweep is started, left, stopped, gone on with, and read; and HGA is watched."""

from __future__ import annotations

import re

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.browser.test_spine import READY, open_page, record, run_id

pytestmark = pytest.mark.browser
CONFIG = """
name = "tiny"
title = "A tiny sweep"
description = "For tests."
seeds = [10, 20]
corruption = [0, 0.5]
random_seeds = [0, 1, 2, 3, 4, 5]
[data]
x = "x.npy"
y = "y.npy"
x_labels = "labels.txt"
y_labels = "labels.txt"
[[methods]]
name = "procrustes"
[[methods]]
name = "hga"
label = "HGA"
params = { restarts = 32 }
"""


@pytest.fixture(scope="module")
def tiny(relcore_home) -> None:
    """A sweep put beside the shipped ones: a rotation of five classes, with noise."""
    folder = relcore_home / "sweeps"
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    label = np.arange(150) % 5
    x = 2 * rng.standard_normal((5, 8))[label] + rng.standard_normal((150, 8))
    turn = np.linalg.qr(rng.standard_normal((8, 8)))[0]
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", x @ turn + 0.4 * rng.standard_normal((150, 8)))
    (folder / "labels.txt").write_text("".join(f"c{k}\n" for k in label))
    (folder / "tiny.toml").write_text(CONFIG)


@pytest.mark.parametrize("color_scheme", ["dark"])
def test_a_sweep_goes_on_while_one_looks_elsewhere_and_after_a_stop(page, app_url, tiny, color_scheme):
    open_page(page, f"{app_url}/compare?sweep=tiny")
    expect(page.get_by_text("48 of 48 cells are to be done")).to_be_visible()
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_text(re.compile(r"running.* [1-9]\d* of 48 cells"))).to_be_visible(timeout=180_000)
    page.get_by_test_id("stTopNavLink").filter(has_text="Seeds").click()
    expect(page.get_by_role("heading", name="Seeds")).to_be_visible()
    page.get_by_test_id("stTopNavLink").filter(has_text="Compare").click()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text(re.compile(r"cancelled.*stopped with \d+ of 48 cells done"))).to_be_visible(timeout=180_000)
    page.get_by_role("button", name="Run the rest").click()
    expect(page.get_by_text(re.compile(r"done.* 48 of 48 cells"))).to_be_visible(timeout=240_000)
    expect(page.get_by_text("0 of 48 cells are to be done")).to_be_visible()
    page.wait_for_selector(READY)
    expect(page.locator(".js-plotly-plot")).to_have_count(2)
    expect(page.get_by_text("over 6 random seeds")).to_be_visible()
    expect(page.get_by_text(re.compile("over n = 24 cells"))).to_be_visible()
    expect(page.locator(".js-plotly-plot").first.get_by_text("20 seeds")).to_be_visible()


def test_restarts_are_drawn_while_hga_runs_and_after(page, app_url, relcore_home):
    open_page(page, f"{app_url}/align?sample=emoji&method=hga")
    page.get_by_role("button", name="Run", exact=True).click()
    run = run_id(page)
    expect(page.get_by_text(re.compile(r"\d+ restarts?, \d+ given up"))).to_be_visible(timeout=240_000)
    expect(page.get_by_text("Not given up")).to_be_visible(timeout=240_000)
    expect(page.get_by_text("thinned to 100 points")).to_have_count(0)
    expect(page.get_by_text("Restarts as a table")).to_be_visible()
    done = record(relcore_home, run)
    assert done["status"] == "done" and done["health"]["confidence"]["votes"] >= 1
    assert (relcore_home / "runs" / run / "restarts.parquet").exists()
