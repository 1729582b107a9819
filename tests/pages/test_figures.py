"""Live curves: what is drawn of what a method reports."""

from pages._ui import figures


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
