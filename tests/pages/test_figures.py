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
