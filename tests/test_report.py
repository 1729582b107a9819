"""Reports: whole, without network or script, small, and safe whatever the data are called."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from relcore import methods, report, runs
from relcore.cli import main
from relcore.errors import InputError
from relcore.space import LoadReport, Pair, Pairs, SetAside, make_space

N = 120
EVIL = "<script>alert(1)</script>"


def a_run(folder, n: int = N, title: str = "mine", seed: int = 0, done: bool = True, labels: bool = True):
    rng = np.random.default_rng(0)
    x = 2 * rng.standard_normal((5, 6))[np.arange(n) % 5] + rng.standard_normal((n, 6))
    y = x @ np.linalg.qr(rng.standard_normal((6, 6)))[0] + 0.2 * rng.standard_normal((n, 6))
    label = [f"k{i % 5}{EVIL if i % 5 == 2 else ''}" for i in range(n)] if labels else None
    names = [f"{EVIL}{i}" for i in range(n)]
    x, y = (make_space(v, names=names, labels=label, title=f"t{EVIL}")[0] for v in (x, y))
    aside = (SetAside(7, "not a number"),)
    read = LoadReport(f"file{EVIL}.npy", "npy", n + 1, n, 6, "float16", set_aside=aside, assumed=("column 3 is names",))
    run = runs.create(
        Pair(x, y, Pairs.by_row(n)),
        method=methods.method("ao", anchors=20, rounds=6),
        seeds=Pairs.by_row(n).take(np.arange(0, 60, 4)),
        reports=(read, read),
        folder=folder,
        title=title,
        seed=seed,
        keep_spaces=False,
    )
    if done:
        for _ in runs.execute(run, Pair(x, y, Pairs.by_row(n))):
            pass
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return a_run(tmp_path_factory.mktemp("report") / "run", title=f"mine {EVIL}")


class Tags(HTMLParser):
    """Every tag must be closed in order; what a page would load is collected."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_it_is_whole_and_loads_nothing(run):
    text = report.of_run(run)
    page = Tags(text)
    assert page.open == []
    assert "script" not in {tag for tag, _ in page.seen} and EVIL not in text and "&lt;script&gt;" in text
    for _, attrs in page.seen:
        for name in ("src", "href", "xlink:href"):
            assert attrs.get(name, "data:").startswith("data:")
        assert not [a for a in attrs if a.startswith("on")]
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org)", text)


def test_it_says_what_the_run_says(run):
    text = report.of_run(run)
    r = run.record
    for wanted in (
        r["verdict"]["text"].split(":")[0],
        "row 7: not a number",
        "column 3 is names",
        "stored as float16",
        f"{r['metrics']['x_to_y']['mrr']:.3f}",
        f"{r['metrics']['references']['seed']['y_to_x']['r@1']:.3f}",
        f"{r['metrics']['rules']['csls']['x_to_y']['hubness']['skewness']:.3f}",
        "Course of the run",
        "without a counterpart",
        "--set anchors=20",
    ):
        assert wanted in text, wanted
    parameters = dict(re.findall(r"<tr><td>(\w+)</td><td>([^<]*)</td><td>(?:set|default)</td>", text))
    assert parameters == {k: str(v) for k, v in r["params"].items()}


def test_twenty_thousand_points_stay_below_five_megabytes():
    rng = np.random.default_rng(0)

    class Big:
        title, labels = "big", {"x": [f"k{i % 12}" for i in range(20_000)], "y": None}

    arrays = {f"map_{side}": rng.standard_normal((20_000, 2)).astype(np.float32) for side in "xy"}
    assert len(report.joint(Big, arrays)) < 1.5e6  # of three such pictures and little else


def test_without_labels_and_truth_it_is_a_page_too(tmp_path):
    plain = a_run(tmp_path / "run", labels=False)
    plain.record["metrics"] = None
    plain.__dict__["pairs"] = (plain.pairs[0], None)
    text = report.of_run(plain)
    assert "nothing is scored" in text and Tags(text).open == []


def test_a_comparison(run, tmp_path):
    other, waiting = a_run(tmp_path / "b", title="other", seed=1), a_run(tmp_path / "c", title="waits", done=False)
    text = report.of_runs([run, other, waiting])
    assert Tags(text).open == [] and "random seed 1" in text and "baseline" in text and "queued" in text
    assert text.count("<img") == 2
    smaller = a_run(tmp_path / "d", n=60, title="of other data")
    with pytest.raises(InputError, match="share no truth"):
        report.of_runs([run, smaller])
    with pytest.raises(InputError, match="two runs or more"):
        report.of_runs([run])
    with pytest.raises(InputError, match="is queued and has no alignment"):
        report.of_run(waiting)


def test_the_commands(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("RELCORE_HOME", str(tmp_path / "home"))
    assert main(["report", str(run.folder), "-o", str(tmp_path / "r.html"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (tmp_path / "r.html").stat().st_size == told["bytes"] and told["runs"] == [run.id]
    assert main(["session", "save", str(tmp_path / "s.zip"), str(run.folder), "--json"]) == 0
    assert "not kept here" in json.loads(capsys.readouterr().out)["notes"][0]
    assert main(["session", "open", str(tmp_path / "s.zip")]) == 0
    assert f"run {run.id}" in capsys.readouterr().out
    assert main(["session", "open", str(tmp_path / "r.html")]) == 2
    assert "no session or a damaged one" in capsys.readouterr().err
    assert main(["export", str(run.folder), str(tmp_path / "out")]) == 2
    assert "give --x FILE" in capsys.readouterr().err
