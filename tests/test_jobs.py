"""Jobs with real workers on a real run: queue, pause, cancel, death, orphans, a warm start."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from relcore import jobs, methods, runs
from relcore.errors import InputError
from relcore.methods.base import Restarts
from relcore.space import Pair, Pairs, make_space
from relcore.worker import Reporter, jsonable

ROOT = Path(__file__).resolve().parent.parent
SLOW = 60.0  # seconds: how long a busy machine may take for what takes less than one


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("home")
        patch.setenv("RELCORE_HOME", str(folder))
        yield folder


def new_run(long: bool = False) -> runs.Run:
    """A run that waits: a planted rotation; the long one takes minutes, in steps of milliseconds."""
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((400, 8))
    x, report_x = make_space(vectors)
    y, report_y = make_space(vectors[:, ::-1])
    method = methods.method("ao", mode="paper", adam_steps=100_000, anchors=60) if long else methods.method("relative")
    return runs.create(
        Pair(x, y, Pairs.by_row(400)),
        method=method,
        seeds=Pairs.by_row(400).take(np.arange(20)),
        folds=0,
        reports=(report_x, report_y),
    )


@pytest.fixture(scope="module")
def manager():
    m = jobs.JobManager()
    yield m
    m.close()


@pytest.fixture(autouse=True)
def nothing_left(manager):
    yield
    for job in manager.jobs():
        if job.active:
            job.cancel()
            job.cancel()
    until(lambda: not any(j.active for j in manager.jobs()))


def until(true, seconds: float = SLOW) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def pid(job: jobs.Job) -> int:
    return job._worker.process.pid


def gone(process: int) -> bool:
    """No such process, or only its entry in the table."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


# ---------------------------------------------------------------------- the ordinary life of a job


def test_a_run_to_its_end(manager):
    run = new_run()
    job = manager.submit(run.folder, "ada")
    until(lambda: not job.active)
    shot = job.snapshot()
    assert (shot.status, shot.folder, shot.owner, shot.message) == ("done", run.folder, "ada", "")
    assert shot.elapsed > 0 and shot.step == shot.total > 0
    stored = runs.Run.load(run.folder)
    assert stored.usable and stored.record["metrics"]["x_to_y"]["r@1"] == 1
    assert manager.get(job.id) is job
    assert job in manager.jobs("ada") and job not in manager.jobs("bob") and job in manager.jobs()


def test_watch_pause_resume_cancel(manager):
    job = manager.submit(new_run(long=True).folder)
    until(lambda: job.snapshot().step > 50)
    until(lambda: job.snapshot().rate is not None)
    a = job.snapshot()
    until(lambda: job.snapshot().step > a.step)
    b = job.snapshot()
    assert b.version > a.version and b.elapsed > a.elapsed
    assert b.rate > 0 and b.eta == pytest.approx((b.total - b.step) / b.rate)
    assert b.metrics.keys() == b.curves.keys() != set()
    for name, (steps, values) in b.curves.items():
        assert len(steps) == len(values) and steps == sorted(set(steps)) and steps[0] == 1
        assert values[-1] == b.metrics[name]
    assert b.frame is not None and runs.Run.load(job.folder).frame(b.frame).shape == (400, 2)

    job.pause()
    time.sleep(0.3)  # messages under way
    still = job.snapshot()
    assert still.status == "paused" and still.active
    time.sleep(0.5)
    assert (job.snapshot().step, job.snapshot().elapsed) == (still.step, still.elapsed)
    job.resume()
    until(lambda: job.snapshot().step > still.step)
    assert job.snapshot().status == "running"

    process = pid(job)
    job.cancel()
    assert job.snapshot().cancelling
    until(lambda: not job.active)
    assert job.snapshot().status == "cancelled" and gone(process)
    run = runs.Run.load(job.folder)
    assert run.status == "cancelled" and run.usable and run.record["converged"] is False
    assert len(run.history()) > 0 and run.alignment_arrays()["x"].shape[0] == 400


def test_a_paused_job_can_be_cancelled(manager):
    job = manager.submit(new_run(long=True).folder)
    until(lambda: job.snapshot().step > 0)
    job.pause()
    job.cancel()
    until(lambda: not job.active)
    assert runs.Run.load(job.folder).status == job.status == "cancelled"


# ---------------------------------------------------------------------- the queue


def test_first_come_first_served_whatever_becomes_of_a_job(manager):
    first, second = (manager.submit(new_run(long=True).folder) for _ in range(2))
    third = manager.submit(new_run().folder)
    until(lambda: first.snapshot().step > 0)
    assert (second.status, third.status) == ("queued", "queued")
    first.pause()  # a paused job lets the next one run
    until(lambda: second.snapshot().step > 0)
    assert third.status == "queued"
    first.resume()  # and goes on before those that never ran
    time.sleep(0.2)
    step = first.snapshot().step
    assert (first.status, second.status) == ("queued", "running")
    second.cancel()
    until(lambda: first.snapshot().step > step)
    assert third.status == "queued"
    os.kill(pid(first), signal.SIGKILL)
    until(lambda: not first.active)
    shot = first.snapshot()
    assert shot.status == "failed" and "SIGKILL" in shot.message and "memory" in shot.message
    run = runs.Run.load(first.folder)
    assert run.status == "failed" and run.record["message"] == shot.message
    until(lambda: third.status == "done")


@pytest.fixture
def closed_shop():
    """A manager that starts nothing."""
    m = jobs.JobManager(max_running=0, spare=False, keep=2)
    yield m
    m.close()


def test_a_waiting_job_can_be_cancelled(closed_shop):
    first, second = (closed_shop.submit(new_run().folder) for _ in range(2))
    second.cancel()
    assert second.snapshot().status == runs.Run.load(second.folder).status == "cancelled"
    assert first.status == "queued"
    closed_shop.close()
    assert first.status == runs.Run.load(first.folder).status == "cancelled"


def test_what_cannot_be_submitted(closed_shop, tmp_path):
    with pytest.raises(InputError, match="no run here"):
        closed_shop.submit(tmp_path)
    job = closed_shop.submit(new_run().folder)
    with pytest.raises(InputError, match="already under way"):
        closed_shop.submit(job.folder)
    job.cancel()
    with pytest.raises(InputError, match="is cancelled"):
        closed_shop.submit(job.folder)
    closed_shop.close()
    with pytest.raises(InputError, match="closed"):
        closed_shop.submit(new_run().folder)


def test_only_so_many_finished_jobs_are_remembered(closed_shop):
    waiting = closed_shop.submit(new_run().folder)
    over = [closed_shop.submit(new_run().folder) for _ in range(4)]
    for job in over:
        job.cancel()
    last = closed_shop.submit(new_run().folder)
    assert closed_shop.jobs() == [waiting, *over[2:], last]
    assert closed_shop.get(over[0].id) is None


# ---------------------------------------------------------------------- when things die


def test_a_worker_that_cannot_start_says_why(home, monkeypatch):
    monkeypatch.setenv("RELCORE_THREADS", "several")
    m = jobs.JobManager(spare=False)
    try:
        job = m.submit(new_run().folder)
        until(lambda: not job.active)
        shot = job.snapshot()
        assert shot.status == "failed" and "exit code 1" in shot.message and "several" in shot.message
        assert "Traceback" in shot.stderr
        assert runs.Run.load(job.folder).record["message"] == shot.message
    finally:
        m.close()


def test_a_run_that_fails_tells_its_reason_and_a_dead_spare_is_replaced(manager):
    until(lambda: manager._spare is not None)
    os.kill(manager._spare.process.pid, signal.SIGKILL)
    manager._spare.process.wait()
    run = new_run()
    run.update(x=run.record["x"] | {"fingerprint": "0" * 64, "kept": None})
    job = manager.submit(run.folder)
    until(lambda: not job.active)
    assert job.status == "failed" and "not kept here" in job.snapshot().message


def test_a_job_nobody_looks_at_is_paused(home):
    m = jobs.JobManager(spare=False, idle_after=0.5)

    def hour_passes(look: bool) -> None:
        with m._changed:
            job._looked -= 3600
            if look:
                job.snapshot()
            m._changed.notify_all()

    try:
        job = m.submit(new_run(long=True).folder)
        until(lambda: job.status == "paused")  # .status is no look
        assert "nobody looked" in job.snapshot().message
        m.idle_after = 3600
        job.resume()
        until(lambda: job.status == "running")
        hour_passes(look=True)
        step = job._step
        until(lambda: job._step > step + 5)
        assert job.status == "running"
        hour_passes(look=False)
        until(lambda: job.status == "paused")
        os.kill(pid(job), signal.SIGKILL)  # death of a paused worker is noticed too
        until(lambda: job.status == "failed")
    finally:
        m.close()


SERVER = """
import sys, time
from relcore import jobs
m = jobs.JobManager(max_running=2)
started = [m.submit(folder) for folder in sys.argv[2:]]
while any(j.snapshot().step < 1 for j in started) or m._spare is None:
    time.sleep(0.01)
started[-1].pause()
print(m._spare.process.pid, *(j._worker.process.pid for j in started), flush=True)
if sys.argv[1] == "stay":
    time.sleep(600)
"""


def server(how: str, folders: list[Path]) -> subprocess.Popen:
    """Another process with a manager, jobs in these folders, the last one paused, and a spare; prints their pids."""
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", SERVER, how, *map(str, folders)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
    )


def test_no_orphan_when_the_server_is_killed():
    """Neither the running worker, nor the paused one, nor the spare that is still loading torch."""
    started = [new_run(long=True) for _ in range(2)]
    with server("stay", [r.folder for r in started]) as process:
        pids = [int(p) for p in process.stdout.readline().split()]
        assert len(pids) == 3 and not any(map(gone, pids))
        process.kill()
        process.wait()
        until(lambda: all(map(gone, pids)), 2.0)
    assert {runs.Run.load(r.folder).status for r in started} <= {"cancelled", "failed"}


def test_a_server_that_ends_in_good_order_ends_its_workers():
    run = new_run(long=True)
    with server("leave", [run.folder]) as process:
        out, err = process.communicate(timeout=SLOW)
    assert process.returncode == 0 and not err
    assert all(gone(int(p)) for p in out.split())
    assert runs.Run.load(run.folder).status == "cancelled"


# ---------------------------------------------------------------------- parts


def test_a_curve_is_thinned_evenly_and_keeps_its_ends():
    curve = jobs.Curve()
    for i in range(1, 50_001):
        curve.add(i, float(i))
        if i in (1, 1999, 2000, 2001, 4000, 50_000):
            steps, values = curve.points()
            assert len(steps) <= jobs.CURVE_POINTS and steps[0] == 1 and steps[-1] == i
            assert values == [float(s) for s in steps]
            assert i < 2000 or len(steps) >= jobs.CURVE_POINTS // 2
            assert len(set(np.diff(steps[:-1]))) <= 1


class Out(list):
    """Stands for the pipe to the server."""

    write = list.append

    def flush(self):
        pass


def test_reports_are_held_back_but_no_point_is_lost(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("relcore.worker.time.monotonic", lambda: now[0])
    out = Out()
    reporter = Reporter(out)
    for i in range(1, 1001):
        now[0] += 0.001
        frame = i // 100 if i % 100 == 50 else None
        value = float("nan") if i == 500 else float(i)
        reporter.progress(runs.StoredProgress(i, 1000, "fit", {"loss": value}, frame, i / 1000))
    reporter.send("done", status="done", message="")
    messages = [json.loads(line) for line in out]
    progress = [m for m in messages if m["event"] == "progress"]
    assert 10 <= len(progress) <= 12
    points = [point for m in progress for point in m["points"]["loss"]]
    assert points == [[i, None if i == 500 else float(i)] for i in range(1, 1001)]
    assert (progress[-1]["iteration"], progress[-1]["frame"]) == (1000, 9)
    assert messages[-1] == {"event": "done", "status": "done", "message": ""}


def test_json_has_no_nan():
    value = {"a": [float("nan"), (1.0, float("-inf"))], "b": "NaN"}
    assert jsonable(value) == {"a": [None, [1.0, None]], "b": "NaN"}


def test_what_a_worker_prints_cannot_break_the_protocol():
    """A library that prints to file descriptor 1, past Python, lands on stderr; a closed stdin ends the worker."""
    code = (
        "import os; from relcore import worker\n"
        "def warm(): print('python noise', flush=True); os.write(1, b'C noise\\n')\n"
        "worker.warm_up = warm; worker.main()"
    )
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", code], env=env, **pipes) as process:
        assert process.stdout.readline() == b'{"event": "ready"}\n'
        process.stdin.close()
        assert process.stdout.read() == b"" and process.wait() == 0
        assert process.stderr.read() == b"python noise\nC noise\n"


def test_time_to_the_first_step(capsys):
    """A figure to read, not to hold: it depends on what else the machine does."""
    m = jobs.JobManager()
    try:
        until(lambda: m._spare is not None)
        assert select.select([m._spare.process.stdout], [], [], SLOW)[0]
        run = new_run(long=True)
        start = time.monotonic()
        job = m.submit(run.folder)
        until(lambda: job.snapshot().step > 0)
        took = time.monotonic() - start
    finally:
        m.close()
    with capsys.disabled():
        print(f"\n  first step {took:.2f} s after Run, with a warm worker")


def test_a_report_on_restarts_stays_small_and_loses_none(monkeypatch, manager):
    now, out = [100.0], Out()
    monkeypatch.setattr("relcore.worker.time.monotonic", lambda: now[0])
    reporter = Reporter(out)
    job = jobs.Job(Path("nowhere"), "", manager)
    for i in range(1, 401):
        now[0] += 0.001
        gone = (i - 1,) if i <= 300 else ()
        ids = np.arange(min(i - 1, 300), 1000)
        r = Restarts(ids, ids / 1000 + i, gone, best=999)
        reporter.progress(runs.StoredProgress(i, 400, "search", {}, None, 0.0, r))
    reporter.flush()
    assert max(map(len, out)) < 40_000
    for line in out:
        job._progress(json.loads(line))
    curves = job._restart_curves()
    assert curves.seen == 1000 and curves.best == 999 and curves.pruned == {i: i + 1 for i in range(300)}
    assert set(curves.curves) == set(range(1000 - runs.MOST_RESTARTS, 1000))
    steps, values = curves.curves[900]
    assert steps[-1] == 400 and values == [pytest.approx(0.9 + s) for s in steps]
