"""Stitchings on disk: what is kept is what was found, as it comes, whatever ends it."""

from __future__ import annotations

import contextlib
import json
import shutil
import time

import numpy as np
import pytest

from relcore import methods, runs, stitchings, store
from relcore.errors import InputError
from relcore.formats.linear_head import LinearHead
from relcore.jobs import JobManager
from relcore.space import LoadReport, Pair, Pairs, Spaces
from relcore.stitching import Settings, Stitcher, Unit
from relcore.stitchings import Stitching
from tests.test_stitching import planted

REPORT = LoadReport("made", "npy", 240, 240, 8, "float32")
SOME = Settings(ways=("kmeans+wip",), references=("absolute", "full"), anchors=6)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("RELCORE_HOME", str(tmp_path))
    return tmp_path


def made(spaces: Spaces, settings: Settings = SOME, **more) -> Stitching:
    return stitchings.create(spaces, settings, reports=[REPORT] * len(spaces), **more)


def timeless(result: dict) -> dict:
    return {k: v for k, v in result.items() if "seconds" not in k}


def test_what_is_kept_is_what_was_found():
    spaces = planted(8, 9)
    kept = made(spaces)
    assert kept.status == "queued"
    seen = [p.iteration for p in stitchings.execute(kept)]
    kept = Stitching.load(kept.folder)
    assert kept.status == "done" and seen == list(range(kept.record["total"] + 1))
    question = Stitcher(spaces, SOME)
    wanted = list(question.steps())
    got = [json.loads(line) for line in (kept.folder / "results.jsonl").read_text().splitlines()]
    assert [timeless(r) for r in got] == [timeless(r) for r in wanted]
    table = kept.results()
    for number, unit in enumerate(question.units()):
        assert tuple(table.loc[number, list(Unit._fields)]) == unit
        np.testing.assert_array_equal(kept.predicted(number), question.predictions[unit])
        rows = kept.tested(unit.draw, unit.encoder)
        np.testing.assert_array_equal(rows, question.draw(0).test[unit.encoder])
        truth = np.array(kept.labels()[unit.encoder])[rows]
        assert (np.array(kept.classes)[kept.predicted(number)] == truth).mean() == table.loc[number, "accuracy"]
    assert stitchings.find([s.fingerprint for s in spaces.spaces]).id == kept.id
    assert stitchings.find([s.fingerprint for s in reversed(spaces.spaces)]) is None


def test_stopped_half_way_it_keeps_what_it_has():
    kept = made(planted(8, 9))
    with contextlib.closing(stitchings.execute(kept)) as steps:
        for p in steps:
            if p.iteration == 2:
                break
    kept = Stitching.load(kept.folder)
    assert kept.status == "cancelled" and kept.record["message"] == f"stopped with 2 of {kept.record['total']} results"
    assert len(kept.results()) == 2 and len(kept.predicted(1))
    with open(kept.folder / "results.jsonl", "a") as f:
        f.write('{"representation": "fu')  # the machine went down in the middle of a line
    assert len(Stitching.load(kept.folder).results()) == 2


def test_a_head_and_a_run_are_there_for_the_worker():
    spaces = planted(8, 8)
    run = runs.create(
        Pair(*spaces.spaces, Pairs.by_row(240)),
        method=methods.method("procrustes"),
        seeds=Pairs.by_row(20),
        reports=(REPORT, REPORT),
    )
    with pytest.raises(InputError, match="is queued and has no alignment"):
        made(spaces, run=run)
    for _ in runs.execute(run):
        pass
    head = LinearHead(np.eye(4, 8), np.zeros(4), None, "eye.npz")
    kept = made(spaces, Settings(classifier="head", references=("absolute",)), run=run, head=head)
    for _ in stitchings.execute(kept):
        pass
    table = kept.results()
    assert set(table["representation"]) == {"absolute", "run"} and not table["error"].any()
    truth = spaces.spaces[0].vectors[kept.tested(0, 0)][:, :4].argmax(1)
    assert (kept.predicted(0) == truth).all()  # the head's own rule, class i where number i is greatest
    assert stitchings.find([s.fingerprint for s in spaces.spaces], run.id).id == kept.id
    assert stitchings.find([s.fingerprint for s in spaces.spaces], "another") is None


def test_the_job_manager_runs_it_in_a_process_of_its_own():
    kept = made(planted(8, 9))
    manager = JobManager(spare=False)
    try:
        job = manager.submit(kept.folder)
        until = time.monotonic() + 120
        while job.active and time.monotonic() < until:
            time.sleep(0.1)
        shot = job.snapshot()
        assert shot.status == "done", shot.stderr
        assert shot.step == shot.total == kept.record["total"] == len(kept.results())
    finally:
        manager.close()


def test_what_cannot_be_done_is_refused_before_it_waits():
    with pytest.raises(InputError, match="300 anchors are asked of a support of 180"):
        made(planted(8, 9), Settings(ways=("random+wip",), anchors=300))
    assert not stitchings.list_stitchings()
    with pytest.raises(InputError, match="no stitching here"):
        Stitching.load(stitchings.home() / "none")


def test_data_that_are_gone_fail_it_with_the_reason():
    kept = made(planted(8, 9))
    shutil.rmtree(store.folder_of(kept.record["spaces"][1]["fingerprint"]))
    with pytest.raises(InputError, match="are not kept"):
        list(stitchings.execute(kept))
    assert Stitching.load(kept.folder).status == "failed"


def test_what_the_worker_opens_is_split_as_what_was_asked():
    a, b, c = planted(8, 8, 10).spaces
    few = np.arange(60)
    spaces = Spaces.join((a, b, c.take(few)), [Pairs.by_row(240), Pairs(np.stack([few, few], 1))])
    kept = made(spaces)
    draw, again = Stitcher(spaces, SOME).draw(0), stitchings.question(kept).draw(0)
    for i in range(3):
        np.testing.assert_array_equal(draw.test[i], again.test[i])
        np.testing.assert_array_equal(draw.train[i], again.train[i])


def test_results_of_a_second_attempt_take_the_place_of_the_first():
    kept = made(planted(8, 9))
    with contextlib.closing(stitchings.execute(kept)) as steps:
        for p in steps:
            if p.iteration == 2:
                break
    for space in range(2):
        assert len(kept.tested(0, space))  # the rows to learn from are those beside, so every space's are there
    list(stitchings.execute(Stitching.load(kept.folder)))
    kept = Stitching.load(kept.folder)
    assert kept.status == "done" and len(kept.results()) == kept.record["total"]


def test_a_run_of_a_space_with_itself_has_two_sides():
    space = planted(8, 8).spaces[0]
    run = runs.create(
        Pair(space, space, Pairs.by_row(240)),
        method=methods.method("procrustes"),
        seeds=Pairs.by_row(20),
        reports=(REPORT, REPORT),
    )
    list(runs.execute(run))
    found = stitchings.aligned(runs.Run.load(run.folder), Spaces((space, space), planted(8, 8).rows))
    assert (found.first, found.second) == (0, 1)
