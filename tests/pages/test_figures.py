"""Live curves: what is drawn of what a method reports."""

from dataclasses import replace

import numpy as np

from pages._ui import figures, live
from relcore.runs import RestartCurves
from tests.pages.conftest import Job


def named(option: dict) -> list[str]:
    return [s["name"].split(" (")[0] for s in option["series"]]


def test_no_quantity_is_left_out_and_each_has_its_line_above_the_plot():
    curves = {f"q{i}": ([1, 2], [1.0, 2.0 * i]) for i in range(10)} | {"mrr x to y": ([1], [0.5])}
    option = figures.live_quantities(curves, 2, dark=False)
    assert named(option) == [f"q{i}" for i in range(10)]
    assert option["grid"]["top"] >= 10 * figures.LEGEND_LINE


def test_of_a_method_with_phases_the_quantities_of_the_latest_are_drawn():
    steps = list(range(1, 201))
    curves = {
        "held-out rank": (steps, [1.0] * 20 + [None] * 180),
        "loss": (steps, [None] * 20 + [3.0] * 180),
        "recall": (steps, [None] * 20 + [0.5 if s % 5 == 0 else None for s in range(180)]),
    }
    option = figures.live_quantities(curves, 200, dark=True)
    assert named(option) == ["loss", "recall"]
    assert option["series"][1]["data"][0] == [21, 1.0] and len(option["series"][1]["data"]) == 36
    assert figures.live_quantities({}, 1, dark=True) is None


def test_the_grid_of_the_selection_has_a_cell_for_each_setting_tried():
    steps = list(range(1, 10))
    curves = {
        "gamma": (steps, [0.75, 0.75, 1.0, 1.0] + [None] * 5),
        "ridge": (steps, [0.0, 0.0, 0.3, 0.3] + [None] * 5),
        "eta": (steps, [0.1, 0.05, 0.1, 0.05] + [None] * 5),
        "held-out rank": (steps, [9.0, 8.0, 4.04, 2.0] + [None] * 5),
        "loss": (steps, [None] * 5 + [1.0] * 4),
    }
    option = figures.selection_grid(curves, dark=False)
    assert option["yAxis"]["data"] == ["γ 0.75, ridge 0", "γ 1, ridge 0.3"] and option["xAxis"]["data"] == [
        "0.1",
        "0.05",
    ]
    assert option["series"][0]["data"] == [[0, 0, 9.0], [1, 0, 8.0], [0, 1, 4.0], [1, 1, 2.0]]
    assert figures.selection_grid({"loss": curves["loss"]}, dark=True) is None


def test_small_scores_fill_the_plot_and_labels_of_near_lines_stand_apart():
    references = {name: {"mrr x to y": v, "mrr y to x": v} for name, v in (("seed", 0.06), ("gt", 0.08))}
    option = figures.live_scores({"mrr x to y": ([1, 2], [0.1, 0.15])}, references, 2, dark=False)
    assert option["yAxis"]["max"] == 0.2
    seed, gt = (line["label"]["offset"][1] for line in option["series"][0]["markLine"]["data"])
    assert seed - gt >= 2 * 10 * 1.2  # two lines of 10 pixels
    references["gt"] = {"mrr x to y": 0.95, "mrr y to x": 0.95}
    option = figures.live_scores({"mrr x to y": ([1, 2], [0.1, 0.15])}, references, 2, dark=False)
    assert option["yAxis"]["max"] == 1 and option["series"][0]["markLine"]["data"][0]["label"]["offset"] == [0, 0]


def many(count: int) -> RestartCurves:
    """Restart r ends at r; every third was given up."""
    curves = {r: ([1, 2, 3], [0.0, None, float(r)]) for r in range(count)}
    return RestartCurves(curves, {r: 3 for r in range(0, count, 3)}, best=0, seen=count)


def test_restarts_are_coloured_by_their_last_score_and_the_best_is_bold():
    option = figures.restart_scores(many(10), ([1, 3], [0.5, 0.2]), 3, dark=False)
    *lines, ends, stair = option["series"]
    assert [line["name"] for line in lines] == [f"restart {r}" for r in (*range(1, 10), 0)]
    assert [line["lineStyle"]["width"] for line in lines] == [1] * 9 + [4]
    by_score = sorted(lines, key=lambda line: line["data"][-1][1])
    luminance = [int(line["lineStyle"]["color"][3:5], 16) for line in by_score]  # green: most of what the eye sees
    assert luminance == sorted(luminance, reverse=True) and len(set(luminance)) == 10  # darker for higher, on white
    crossed = {e["name"].split(",")[0] for e in ends["data"] if e["symbol"] == figures.CROSS}
    assert crossed == {f"restart {r}" for r in (0, 3, 6, 9)}
    assert stair["step"] == "start" and stair["yAxisIndex"] == 1 and stair["data"] == [[0, 0.5], [1, 0.5], [3, 0.2]]


def test_of_many_restarts_the_best_are_drawn_and_the_rest_counted():
    curves = many(256)
    option = figures.restart_scores(curves, None, 3, dark=True)
    assert len(option["series"]) == figures.DRAWN_RESTARTS + 1
    drawn = set(figures.drawn_restarts(curves))
    assert {0, *range(256 - figures.DRAWN_BEST + 1, 256)} < drawn  # the best is never left out
    others = sorted(drawn - {0, *range(256 - figures.DRAWN_BEST + 1, 256)})
    assert (others[0], others[-1], len(others)) == (1, 256 - figures.DRAWN_BEST, 20) and max(np.diff(others)) <= 12
    words = " ".join(live.restart_words(curves, live=False))
    assert "256 restarts, 86 given up" in words and "196 are not drawn" in words


def test_restarts_without_a_finite_score_are_no_line():
    nothing = RestartCurves({0: ([1], [None])}, {}, best=None, seen=1)
    assert figures.restart_scores(nothing, None, 1, dark=False) is None
    same = RestartCurves({0: ([1], [0.5]), 1: ([1], [0.5])}, {}, best=None, seen=2)
    assert len(figures.restart_scores(same, None, 1, dark=False)["series"]) == 3


def test_phases_after_the_fit_do_not_cut_the_axis_of_its_steps():
    job = Job("nowhere", "ada")
    curves = {"score": ([1, 40], [0.1, 0.2])}
    phases = {("search", 60): 60, ("check: seeds held out, part 1 of 3", 5): 40, ("map", 4): 40}
    for (phase, total), wanted in phases.items():
        shot = replace(job.snapshot(), phase=phase, total=total, curves=curves)
        assert live.last_step(shot) == wanted
