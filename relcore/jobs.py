"""Runs in worker processes: start, watch, pause, cancel. One :class:`JobManager` serves all sessions of a server.

Pure Python: no torch, nothing of the user interface. Threads of the manager only ever write into jobs; whoever
watches reads :meth:`Job.snapshot`, a copy. What a run found is in its folder (:mod:`relcore.runs`); a job holds what
is worth watching while it goes on.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relcore import experiments, runs, stitchings
from relcore.errors import InputError

ACTIVE = runs.ACTIVE
CURVE_POINTS = 2000  # kept points of a curve
RESTART_POINTS = 100  # of the curve of a restart: there may be hundreds of them
RATE_WINDOW = 5.0  # seconds over which iterations a second are measured
CANCEL_GRACE = 5.0  # seconds from SIGTERM until the worker must have reached its next step
KEEP_GRACE = 60.0  # seconds it then has to analyse and write what it keeps
CLOSE_GRACE = 2.0  # seconds all workers have when the server ends
STDERR_TAIL = 8192  # bytes kept of what a worker wrote to stderr
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RELCORE_THREADS")


@dataclass(frozen=True)
class JobSnapshot:
    """A job as it was when asked.

    Attributes
    ----------
    status : queued, running, paused, done, cancelled or failed.
    step, total : position within the phase.
    rate : iterations a second over the last few seconds, None while unknown.
    eta : seconds the phase will still take at that rate, None while unknown.
    elapsed : seconds of running, pauses left out.
    metrics : the latest value of each metric; None where it was not finite.
    curves : for each metric (iterations, values), at most 2000 points, evenly thinned, the latest always there.
    restarts : the same for each restart of a search, at most 100 points, of the best 256; None for a method without.
    frame : number of the newest map in the run folder, None before the first.
    cancelling : the worker was told to stop and is keeping what it has.
    message : why it failed or stopped; the last lines of the worker's stderr are in ``stderr``.
    version : grows with every change of the job.
    """

    id: str
    folder: Path
    owner: str
    status: str
    step: int
    total: int
    phase: str
    rate: float | None
    eta: float | None
    elapsed: float
    metrics: dict[str, float | None]
    curves: dict[str, tuple[list[int], list[float | None]]]
    frame: int | None
    cancelling: bool
    message: str
    stderr: str
    version: int
    restarts: runs.RestartCurves | None = None

    @property
    def active(self) -> bool:
        return self.status in ACTIVE


def kept(folder: Path) -> runs.Run | experiments.Kept | stitchings.Stitching:
    """What a folder holds.

    Raises
    ------
    InputError
        Neither a run nor a sweep nor a stitching.
    """
    if stitchings.is_stitching(folder):
        return stitchings.Stitching.load(folder)
    return experiments.Kept.load(folder) if experiments.is_sweep(folder) else runs.Run.load(folder)


class Curve:
    """Points of one curve, thinned evenly to at most ``most`` however many come."""

    def __init__(self, most: int = CURVE_POINTS) -> None:
        self.most = most
        self.steps: list[int] = []
        self.values: list[float | None] = []
        self.last: tuple[int, float | None] | None = None
        self.stride, self.seen = 1, 0

    def add(self, step: int, value: float | None) -> None:
        if self.seen % self.stride == 0:
            if len(self.steps) == self.most - 1:  # one place is the latest point's
                del self.steps[1::2], self.values[1::2]
                self.stride *= 2
            if self.seen % self.stride == 0:
                self.steps.append(step)
                self.values.append(value)
        self.seen += 1
        self.last = (step, value)

    def points(self) -> tuple[list[int], list[float | None]]:
        steps, values = self.steps.copy(), self.values.copy()
        if (self.seen - 1) % self.stride:
            steps.append(self.last[0])
            values.append(self.last[1])
        return steps, values


class Worker:
    """A worker process. It runs one job and ends; a warm one has loaded torch and waits for its job."""

    def __init__(self) -> None:
        root = str(Path(__file__).resolve().parent.parent)
        path = os.pathsep.join(p for p in (root, os.environ.get("PYTHONPATH", "")) if p)
        threads = {name: os.environ.get("RELCORE_THREADS", "1") for name in THREAD_VARIABLES}
        self.tail = b""
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "relcore.worker"],  # -P: a torch.py in the current folder is not torch
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | threads | {"PYTHONPATH": path},
            process_group=0,  # a Ctrl-C at the server's terminal is for the server, which then ends us in good order
        )
        self._stderr = threading.Thread(target=self._read_stderr, daemon=True)
        self._stderr.start()

    def _read_stderr(self) -> None:
        while part := self.process.stderr.read1(4096):
            self.tail = (self.tail + part)[-STDERR_TAIL:]

    def stderr(self) -> str:
        return self.tail.decode(errors="replace").strip()

    def begin(self, folder: Path) -> bool:
        """Hand it its run. stdin stays open: its end tells the worker that the server is gone. False if it is dead."""
        try:
            self.process.stdin.write(json.dumps({"folder": str(folder)}).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            return False
        return True

    def signal(self, number: int) -> None:
        self.process.send_signal(number)  # does nothing once it is dead

    def end(self, grace: float) -> None:
        """SIGTERM, then SIGKILL for one that is not gone within the grace (seconds)."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(grace)
        self.process.kill()
        self.close()

    def close(self) -> None:
        """Reap the process and close its pipes."""
        self.process.wait()
        self._stderr.join(1.0)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(OSError):
                pipe.close()

    def reason_of_death(self) -> str:
        """Why a worker that did not say goodbye is gone, in a sentence."""
        code = self.process.returncode
        if code >= 0:
            last = self.stderr().rpartition("\n")[2]
            return f"the worker process ended with exit code {code}" + (f": {last}" if last else "")
        name = signal.Signals(-code).name
        more = ": the machine may have run out of memory" if name == "SIGKILL" else ""
        return f"the worker process was killed by {name}{more}"


@dataclass(eq=False)
class Job:
    """A run handed to the manager. Watch it with :meth:`snapshot`; all methods may be called from any thread."""

    folder: Path
    owner: str
    manager: JobManager = field(repr=False)
    id: str = field(default_factory=lambda: secrets.token_hex(4))

    def __post_init__(self) -> None:
        self._status = "queued"
        self._step, self._total, self._phase = 0, 0, ""
        self._metrics: dict[str, float | None] = {}
        self._curves: dict[str, Curve] = {}
        self._restarts: dict[int, Curve] = {}
        self._seen: set[int] = set()
        self._pruned: dict[int, int] = {}
        self._best: int | None = None
        self._frame: int | None = None
        self._message = self._stderr = ""
        self._version = 0
        self._worker: Worker | None = None
        self._ran = 0.0  # seconds up to the last pause
        self._since: float | None = None  # running since
        self._pace: deque[tuple[float, int]] = deque()  # (elapsed, step) of the phase, within the rate window
        self._kill_at: float | None = None
        self._cancelling = False
        self._looked = time.monotonic()

    def snapshot(self) -> JobSnapshot:
        """A copy of the job's state. Looking keeps the job from being paused as abandoned."""
        with self.manager._changed:
            self._looked = time.monotonic()
            rate = self._rate()
            return JobSnapshot(
                id=self.id,
                folder=self.folder,
                owner=self.owner,
                status=self._status,
                step=self._step,
                total=self._total,
                phase=self._phase,
                rate=rate,
                eta=(self._total - self._step) / rate if rate else None,
                elapsed=self._elapsed(),
                metrics=self._metrics.copy(),
                curves={name: curve.points() for name, curve in self._curves.items()},
                frame=self._frame,
                cancelling=self._cancelling,
                message=self._message,
                stderr=self._stderr,
                version=self._version,
                restarts=self._restart_curves(),
            )

    def _restart_curves(self) -> runs.RestartCurves | None:
        if not self._restarts:
            return None
        curves = {restart: curve.points() for restart, curve in sorted(self._restarts.items())}
        return runs.RestartCurves(curves, self._pruned.copy(), self._best, len(self._seen))

    @property
    def status(self) -> str:
        return self._status

    @property
    def active(self) -> bool:
        return self._status in ACTIVE

    def pause(self) -> None:
        """Stop a running job where it is; the next in the queue may start."""
        self.manager._pause(self)

    def resume(self) -> None:
        """Let a paused job go on, as the first of the queue."""
        self.manager._resume(self)

    def cancel(self) -> None:
        """End the job at its next step and keep what it has; a second call does not wait for the step."""
        self.manager._cancel(self)

    # ------------------------------------------------- below: the manager's, under its lock

    def _set(self, status: str, message: str = "") -> None:
        if status == "running" and self._since is None:
            self._since = time.monotonic()
        elif status != "running" and self._since is not None:
            self._ran, self._since = self._elapsed(), None
        self._status, self._message = status, message
        self._version += 1

    def _elapsed(self) -> float:
        return self._ran + (0.0 if self._since is None else time.monotonic() - self._since)

    def _rate(self) -> float | None:
        if self._since is None or len(self._pace) < 2:
            return None
        (t0, s0), (t1, s1) = self._pace[0], self._pace[-1]
        return (s1 - s0) / (t1 - t0) if t1 > t0 and s1 > s0 else None

    def _progress(self, message: dict[str, Any]) -> None:
        step, phase, now = message["iteration"], message["phase"], self._elapsed()
        if phase != self._phase or step < self._step:
            self._pace.clear()
        self._step, self._total, self._phase, self._frame = step, message["total"], phase, message["frame"]
        self._pace.append((now, step))
        while now - self._pace[0][0] > RATE_WINDOW and len(self._pace) > 2:
            self._pace.popleft()
        for name, points in message["points"].items():
            curve = self._curves.setdefault(name, Curve())
            for iteration, value in points:
                curve.add(iteration, value)
            self._metrics[name] = curve.last[1]
        if told := message.get("restarts"):
            for restart, iteration, score in told["points"]:
                self._restarts.setdefault(restart, Curve(RESTART_POINTS)).add(iteration, score)
            self._pruned |= dict(told["pruned"])
            self._seen |= {restart for restart, *_ in told["points"]} | self._pruned.keys()
            self._best = told["best"]
            self._drop_restarts()
        self._version += 1

    def _drop_restarts(self) -> None:
        """Keep the curves of those that scored highest at their last step."""
        if len(self._restarts) <= runs.MOST_RESTARTS:
            return
        last = {restart: curve.last[1] for restart, curve in self._restarts.items()}
        order = sorted(last, key=lambda r: (r != self._best, math.inf if last[r] is None else -last[r]))
        for restart in order[runs.MOST_RESTARTS :]:
            del self._restarts[restart]


class JobManager:
    """Runs jobs first come, first served, ``max_running`` at a time, each in its own process.

    Parameters
    ----------
    max_running : how many jobs may run at once; a paused one holds no place.
    spare : keep one warm worker waiting, so that the next job need not wait for torch to load.
    keep : how many finished jobs are remembered.
    idle_after : seconds after which a running job that nobody looked at is paused.
    """

    def __init__(self, max_running: int = 1, spare: bool = True, keep: int = 20, idle_after: float = 1800.0):
        self.max_running, self.keep, self.idle_after = max_running, keep, idle_after
        self._want_spare = spare
        self._spare: Worker | None = None
        self._jobs: dict[str, Job] = {}
        self._queue: deque[Job] = deque()
        self._changed = threading.Condition(threading.RLock())
        self._closed = False
        # All workers are started by this one thread, which lives as long as they do: on Linux a worker's "my parent
        # died" signal comes when the thread that started it ends, not when the process does.
        self._thread = threading.Thread(target=self._dispatch, name="relcore-jobs", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    # ---------------------------------------------------------------- for the pages

    def submit(self, folder: str | Path, owner: str = "") -> Job:
        """Queue the run in a folder written by :func:`relcore.runs.create`, the sweep of
        :func:`relcore.experiments.create`, or the stitching of :func:`relcore.stitchings.create`.

        Raises
        ------
        InputError
            The folder holds no run that waits, it is already under way, or the manager is closed.
        """
        folder = Path(folder).resolve()
        run = kept(folder)
        with self._changed:
            if self._closed:
                raise InputError("the job manager is closed; start the app again.")
            if any(j.folder == folder and j.active for j in self._jobs.values()):
                raise InputError(f"{folder}: this run is already under way; watch it, or cancel it first.")
            if run.status != "queued":
                raise InputError(f"{folder}: this run is {run.status}, wanted one that waits; create a new run.")
            job = Job(folder, owner, self)
            self._jobs[job.id] = job
            self._queue.append(job)
            self._forget()
            self._changed.notify_all()
        return job

    def get(self, job_id: str) -> Job | None:
        return self._jobs.get(job_id)

    def jobs(self, owner: str | None = None) -> list[Job]:
        """All remembered jobs, or those of one owner, oldest first."""
        with self._changed:
            return [j for j in self._jobs.values() if owner is None or j.owner == owner]

    def close(self) -> None:
        """End every job and process; what runs keeps what it has if it can within two seconds. For good."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            for job in self._queue:
                if job._worker is None:
                    self._settle(job, "cancelled", "the server was closed before the run began")
            self._queue.clear()
            jobs = [j for j in self._jobs.values() if j.active and j._worker is not None]
            for job in jobs:
                job._cancelling = True
                job._worker.signal(signal.SIGCONT)
                job._worker.signal(signal.SIGTERM)
            self._changed.notify_all()
            self._changed.wait_for(lambda: not any(j.active for j in jobs), CLOSE_GRACE)
            for job in jobs:
                job._worker.process.kill()
            self._changed.wait_for(lambda: not any(j.active for j in jobs), CLOSE_GRACE)
        self._thread.join(CLOSE_GRACE)
        if self._spare is not None:
            self._spare.process.kill()  # it holds nothing
            self._spare.close()
        atexit.unregister(self.close)

    # ---------------------------------------------------------------- what a job may ask for

    def _pause(self, job: Job) -> None:
        with self._changed:
            if job._status == "running" and not job._cancelling:
                job._worker.signal(signal.SIGSTOP)
                job._set("paused")
            elif job._status == "queued" and job._worker is not None:  # was resumed, waits for its turn
                self._queue.remove(job)
                job._set("paused")
            self._changed.notify_all()

    def _resume(self, job: Job) -> None:
        with self._changed:
            if job._status == "paused":
                job._set("queued")
                self._queue.appendleft(job)
                self._changed.notify_all()

    def _cancel(self, job: Job) -> None:
        with self._changed:
            if not job.active:
                return
            if job in self._queue:
                self._queue.remove(job)
            if job._worker is None:
                self._settle(job, "cancelled", "cancelled before it began")
            elif job._cancelling:
                job._kill_at = time.monotonic()
            else:
                job._cancelling = True
                job._kill_at = time.monotonic() + CANCEL_GRACE
                job._set("running")  # it needs the processor to stop in good order, paused or not
                job._worker.signal(signal.SIGCONT)
                job._worker.signal(signal.SIGTERM)
            self._changed.notify_all()

    # ---------------------------------------------------------------- the dispatching thread

    def _dispatch(self) -> None:
        with self._changed:
            while not self._closed:
                if self._startable():
                    self._start(self._queue.popleft())
                elif self._spare_due():
                    self._spare = self._new_worker()
                else:
                    self._enforce()
                    self._changed.wait(self._until_deadline())
            # stay until the workers are gone: they are this thread's children
            self._changed.wait_for(lambda: not any(j.active for j in self._jobs.values()))

    def _start(self, job: Job) -> None:
        """Let a paused job go on, or give a new one to the warm worker, or to a fresh one if that is not there."""
        job._looked = time.monotonic()
        job._set("running")
        if job._worker is not None:
            job._worker.signal(signal.SIGCONT)
            return
        worker, self._spare = self._spare, None
        if worker is not None and not worker.begin(job.folder):
            worker.end(0)  # it died while it waited
            worker = None
        if worker is None:
            worker = self._new_worker()
            if worker is None or not worker.begin(job.folder):
                self._settle(job, "failed", "no worker process could be started; the machine may be out of memory")
                return
        job._worker = worker
        threading.Thread(target=self._listen, args=(job, worker), name=f"relcore-job-{job.id}", daemon=True).start()

    def _new_worker(self) -> Worker | None:
        try:
            return Worker()
        except OSError:
            self._want_spare = False  # no process to be had; the next job tries again
            return None

    def _startable(self) -> bool:
        running = sum(j._status == "running" for j in self._jobs.values())
        return bool(self._queue) and running < self.max_running

    def _spare_due(self) -> bool:
        """A new spare loads torch, so it waits until the job that took the last one is past its first step."""
        starting = any(j._status == "running" and j._step == 0 for j in self._jobs.values())
        return self._want_spare and self._spare is None and not starting

    def _enforce(self) -> None:
        now = time.monotonic()
        for job in self._jobs.values():
            if job._status != "running":
                continue
            if job._cancelling:
                if now >= job._kill_at:
                    job._worker.process.kill()
            elif now - job._looked >= self.idle_after:
                self._pause(job)
                job._message = (
                    f"paused: nobody looked at it for {self.idle_after / 60:g} minutes; resume it when you like"
                )

    def _until_deadline(self) -> float | None:
        """Seconds until :meth:`_enforce` has something to do, None if nothing will without a change."""
        due = [
            job._kill_at if job._cancelling else job._looked + self.idle_after
            for job in self._jobs.values()
            if job._status == "running"
        ]
        return max(0.05, min(due) - time.monotonic()) if due else None

    # ---------------------------------------------------------------- a thread for each running job

    def _listen(self, job: Job, worker: Worker) -> None:
        """Take the worker's messages until it is gone, then settle the job."""
        done = None
        for line in worker.process.stdout:
            try:
                message = json.loads(line)
            except ValueError:  # killed in the middle of a line
                break
            with self._changed:
                if message["event"] == "progress":
                    first = job._step == 0
                    job._progress(message)
                    if first:
                        self._changed.notify_all()
                elif message["event"] == "cancelling":
                    job._phase = "keeping the last step"
                    job._kill_at = time.monotonic() + KEEP_GRACE
                    self._changed.notify_all()
                elif message["event"] == "done":
                    done = message
        worker.close()
        with self._changed:
            if job._status == "paused":  # killed from outside while it was paused
                job._set("running")
            job._stderr = worker.stderr()
            if done is not None:
                job._set(done["status"], done["message"])
            elif job._cancelling:
                killed = worker.process.returncode == -signal.SIGKILL
                why = "it did not stop in time, so the last step is not kept" if killed else "before the first step"
                self._settle(job, "cancelled", f"cancelled: {why}")
            else:
                self._settle(job, "failed", worker.reason_of_death())
            if job in self._queue:
                self._queue.remove(job)
            self._forget()
            self._changed.notify_all()

    def _settle(self, job: Job, status: str, message: str) -> None:
        """Give a job without a living worker its last status, in its folder too."""
        with contextlib.suppress(InputError, OSError):  # the folder may be gone; the job must end all the same
            run = kept(job.folder)
            if run.status == "done" or (run.status == "cancelled" and status != "cancelled"):
                status, message = run.status, run.record.get("message", "")  # it had finished before it died
            else:
                run.mark(status, message)
        job._set(status, message)

    def _forget(self) -> None:
        over = [j for j in self._jobs.values() if not j.active]
        for job in over[: max(0, len(over) - self.keep)]:
            del self._jobs[job.id]
