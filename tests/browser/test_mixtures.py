"""Anchors as mixtures of the seeds in Chromium: the heat map is drawn, and an anchor picked lights up its seeds."""

from __future__ import annotations

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.browser.test_spine import READY, open_page

pytestmark = pytest.mark.browser
HEADER, ROW = 35, 35  # pixels of a table


@pytest.fixture(scope="module")
def mixture_run(relcore_home):
    """k-means anchors of a sample, made here: averages of 1 to some seeds each."""
    from relcore import runs, samples
    from relcore.methods import method

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RELCORE_HOME", str(relcore_home))
        opened = samples.open_sample("molecules")
        run = runs.create(
            opened.pair,
            method=method("kmeans", anchors=12),
            seeds=opened.pair.truth.take(np.arange(0, 300, 5)),
            reports=(opened.report_x, opened.report_y),
            folds=0,
        )
        list(runs.execute(run))
        return run


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
def test_an_anchor_picked_in_the_table_selects_its_seeds(page, app_url, mixture_run):
    open_page(page, f"{app_url}/align?run={mixture_run.id}")
    page.wait_for_selector(READY)
    plot = page.locator(".js-plotly-plot")
    expect(plot).to_have_count(1)
    plot.scroll_into_view_if_needed()
    expect(plot.locator(".heatmaplayer image")).to_have_count(1)
    table = page.get_by_test_id("stDataFrame").nth(1)  # below the metrics
    table.scroll_into_view_if_needed()
    box = table.bounding_box()
    page.mouse.click(box["x"] + 15, box["y"] + HEADER + 2 * ROW + ROW / 2)  # the third anchor listed
    heading = page.get_by_text("heaviest seeds:")
    expect(heading).to_be_visible()
    anchor = int(heading.inner_text().split("·")[0].split()[1]) - 1
    weights = mixture_run.mixture()[anchor]
    seeds = min(10, int((weights > 0).sum()))
    expect(page.get_by_text(f"{seeds} + {seeds} selected")).to_be_visible()
    expect(plot.locator(".scatterlayer .point")).to_have_count(seeds)  # a mark below the column of each
    expect(page.get_by_text("Traceback")).to_have_count(0)
