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
    method = methods.method("ao", mode="faithful", steps=100_000, anchors=60) if long else methods.method("relative")
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


def test_a_snapshot_shows_the_run_moving(manager):
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


def test_pause_stands_still_and_resume_goes_on(manager):
    job = manager.submit(new_run(long=True).folder)
    until(lambda: job.snapshot().step > 0)
    job.pause()
    time.sleep(0.3)  # messages under way
    still = job.snapshot()
    assert still.status == "paused" and still.active
    time.sleep(0.5)
    assert (job.snapshot().step, job.snapshot().elapsed) == (still.step, still.elapsed)
    job.resume()
    until(lambda: job.snapshot().step > still.step)
    assert job.snapshot().status == "running"


def test_cancel_frees_the_worker_and_leaves_a_readable_folder(manager):
    job = manager.submit(new_run(long=True).folder)
    until(lambda: job.snapshot().step > 5)
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


def test_first_come_first_served_and_one_at_a_time(manager):
    first = manager.submit(new_run(long=True).folder)
    second, third = manager.submit(new_run(long=True).folder), manager.submit(new_run().folder)
    until(lambda: first.snapshot().step > 0)
    assert (second.status, third.status) == ("queued", "queued")
    first.cancel()
    until(lambda: second.snapshot().step > 0)
    assert first.status == "cancelled" and third.status == "queued"
    second.cancel()
    until(lambda: third.status == "done")


def test_a_waiting_job_can_be_cancelled(manager):
    first, second = manager.submit(new_run(long=True).folder), manager.submit(new_run().folder)
    second.cancel()
    assert second.snapshot().status == runs.Run.load(second.folder).status == "cancelled"
    assert first.active


def test_a_paused_job_lets_the_next_run_and_then_goes_on(manager):
    first = manager.submit(new_run(long=True).folder)
    until(lambda: first.snapshot().step > 0)
    second = manager.submit(new_run(long=True).folder)
    first.pause()
    until(lambda: second.snapshot().step > 0)
    first.resume()
    time.sleep(0.2)
    assert first.snapshot().status == "queued"
    step = first.snapshot().step
    second.cancel()
    until(lambda: first.snapshot().step > step)


def test_what_cannot_be_submitted(manager, tmp_path):
    with pytest.raises(InputError, match="no run here"):
        manager.submit(tmp_path)
    job = manager.submit(new_run(long=True).folder)
    with pytest.raises(InputError, match="already under way"):
        manager.submit(job.folder)
    job.cancel()
    until(lambda: not job.active)
    with pytest.raises(InputError, match="is cancelled"):
        manager.submit(job.folder)


def test_only_so_many_finished_jobs_are_remembered(home):
    m = jobs.JobManager(spare=False, keep=2)
    try:
        blocker = m.submit(new_run(long=True).folder)
        waiting = [m.submit(new_run().folder) for _ in range(4)]
        for job in waiting:
            job.cancel()
        last = m.submit(new_run().folder)
        assert m.jobs() == [blocker, *waiting[2:], last]
    finally:
        m.close()


# ---------------------------------------------------------------------- when things die


def test_a_killed_worker_is_a_failed_run_and_the_next_job_runs(manager):
    job, after = manager.submit(new_run(long=True).folder), manager.submit(new_run().folder)
    until(lambda: job.snapshot().step > 0)
    os.kill(pid(job), signal.SIGKILL)
    until(lambda: not job.active)
    shot = job.snapshot()
    assert shot.status == "failed" and "SIGKILL" in shot.message and "memory" in shot.message
    run = runs.Run.load(job.folder)
    assert run.status == "failed" and run.record["message"] == shot.message
    until(lambda: after.status == "done")


def test_a_worker_killed_while_paused_is_a_failed_run(manager):
    job = manager.submit(new_run(long=True).folder)
    until(lambda: job.snapshot().step > 0)
    job.pause()
    os.kill(pid(job), signal.SIGKILL)
    until(lambda: not job.active)
    assert job.status == "failed"


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


def test_a_run_that_fails_tells_its_reason(manager):
    run = new_run()
    run.update(x=run.record["x"] | {"fingerprint": "0" * 64})
    job = manager.submit(run.folder)
    until(lambda: not job.active)
    assert job.status == "failed" and "not kept here" in job.snapshot().message


def test_a_dead_spare_is_replaced_when_it_is_needed(manager):
    until(lambda: manager._spare is not None)
    os.kill(manager._spare.process.pid, signal.SIGKILL)
    manager._spare.process.wait()
    job = manager.submit(new_run().folder)
    until(lambda: job.status == "done")


def test_a_job_nobody_looks_at_is_paused(home):
    m = jobs.JobManager(spare=False, idle_after=0.5)
    try:
        job = m.submit(new_run(long=True).folder)
        until(lambda: job.status == "paused")  # .status is no look
        assert "nobody looked" in job.snapshot().message
        job.resume()
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:
            assert job.snapshot().status == "running"
            time.sleep(0.05)
        until(lambda: job.status == "paused")
    finally:
        m.close()


SERVER = """
import sys, time
from relcore import jobs
m = jobs.JobManager()
job = m.submit(sys.argv[1])
while job.snapshot().step < 5 or m._spare is None:
    time.sleep(0.01)
if sys.argv[2] == "pause":
    job.pause()
print(job._worker.process.pid, m._spare.process.pid, flush=True)
if sys.argv[2] != "leave":
    time.sleep(600)
"""


@pytest.mark.parametrize("state", ["run", "pause"])
def test_no_orphan_when_the_server_is_killed(state):
    run = new_run(long=True)
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    server = subprocess.Popen([sys.executable, "-c", SERVER, str(run.folder), state], stdout=subprocess.PIPE, env=env)
    worker, spare = map(int, server.stdout.readline().split())
    assert not gone(worker) and not gone(spare)
    server.kill()
    server.wait()
    until(lambda: gone(worker) and gone(spare), 2.0)
    assert runs.Run.load(run.folder).status in ("cancelled", "failed")


def test_a_server_that_ends_in_good_order_ends_its_workers():
    run = new_run(long=True)
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", SERVER, str(run.folder), "leave"]
    out = subprocess.run(command, capture_output=True, text=True, env=env, timeout=SLOW)
    assert out.returncode == 0 and not out.stderr
    assert all(gone(int(p)) for p in out.stdout.split())
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


def test_reports_are_held_back_but_no_point_is_lost(monkeypatch):
    class Out(list):
        write = list.append

        def flush(self):
            pass

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
    """A library that prints to file descriptor 1, past Python, lands on stderr."""
    code = (
        "import os, sys; from relcore import worker\n"
        "def warm(): print('python noise'); os.write(1, b'C noise\\n')\n"
        "worker.warm_up = warm; worker.main()"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    out = subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env
    )
    assert (out.returncode, out.stdout) == (0, '{"event": "ready"}\n')
    assert "python noise" in out.stderr and "C noise" in out.stderr


@pytest.mark.parametrize("warm", [True, False])
def test_time_to_the_first_step(warm, capsys):
    """A figure to read, not to hold: it depends on what else the machine does."""
    m = jobs.JobManager(spare=warm)
    try:
        if warm:
            until(lambda: m._spare is not None)
            assert select.select([m._spare.process.stdout], [], [], SLOW)[0]
        start = time.monotonic()
        job = m.submit(new_run(long=True).folder)
        until(lambda: job.snapshot().step > 0)
        took = time.monotonic() - start
    finally:
        m.close()
    with capsys.disabled():
        print(f"\n  first step after {took:.2f} s with {'a warm' if warm else 'no'} worker")
