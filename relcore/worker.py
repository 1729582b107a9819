"""``python -m relcore.worker``: one run or sweep in its own process, told on stdin, reporting in JSON lines on stdout.

The worker loads torch, says ``{"event": "ready"}`` and waits for one line ``{"folder": ...}``. Then it executes what
is there (:func:`relcore.runs.execute`, :func:`relcore.experiments.execute`, :func:`relcore.stitchings.execute`),
reports at most ten times a second, and ends with ``{"event": "done", "status": ..., "message": ...}``. What the run
found is in its folder, never in the messages.

SIGTERM cancels: the run stops at its next step and keeps what it has. A closed stdin says that the server is gone; it
cancels as well, but the process is out within :data:`ORPHAN_GRACE` seconds whatever the step at hand takes.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import queue
import signal
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import IO, Any

from relcore import parallel

EVERY = 0.1  # seconds between two reports
ORPHAN_GRACE = 1.0  # seconds a run without a server has to keep what it has
NICENESS = 10  # the server and the browser come first
OOM_SCORE = "500"  # when memory runs out, the kernel should take the worker and not the server


def jsonable(value: Any) -> Any:
    """The value with NaN and infinite numbers as None: JSON has no word for them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(v) for v in value]
    return value


class Reporter:
    """Writes JSON lines; holds progress back to ten reports a second without losing a point of a curve.

    A report carries the newest position and, for every metric, the points since the report before:
    ``{"event": "progress", iteration, total, phase, seconds, frame, points: {name: [[iteration, value], ...]}}``, and
    where restarts were told of ``restarts: {points: [[restart, iteration, score], ...], pruned: [[restart,
    iteration], ...], best}``. Of each restart only the last point since the report before, so that a message stays
    small however many steps they take; the run folder has all of them.
    """

    def __init__(self, out: IO[str]):
        self.out = out
        self.sent = -math.inf
        self.held: dict[str, Any] | None = None
        self.points: dict[str, list] = {}
        self.frame: int | None = None
        self.scores: dict[int, tuple[int, float]] = {}  # restart -> its last (iteration, score)
        self.pruned: list[tuple[int, int]] = []
        self.best: int | None = None

    def send(self, event: str, **fields: Any) -> None:
        self.flush()
        self._write({"event": event, **fields})

    def progress(self, p: Any) -> None:
        """Report a :class:`relcore.runs.StoredProgress`, now or with a later one."""
        for name, value in p.metrics.items():
            self.points.setdefault(name, []).append([p.iteration, value])
        if p.frame is not None:
            self.frame = p.frame
        if p.restarts is not None:
            self._restarts(p.iteration, p.restarts)
        self.held = {"iteration": p.iteration, "total": p.total, "phase": p.phase, "seconds": p.seconds}
        if time.monotonic() - self.sent >= EVERY:
            self.flush()

    def _restarts(self, iteration: int, r: Any) -> None:
        for restart, score in zip(r.ids, r.scores, strict=True):
            self.scores[int(restart)] = (iteration, float(score))
        self.pruned += [(int(restart), iteration) for restart in r.pruned]
        self.best = None if r.best is None else int(r.best)

    def flush(self) -> None:
        if self.held is None:
            return
        message = {"event": "progress", **self.held, "frame": self.frame, "points": self.points}
        if self.scores or self.pruned:
            points = [[restart, *point] for restart, point in self.scores.items()]
            message["restarts"] = {"points": points, "pruned": self.pruned, "best": self.best}
        self.held, self.points, self.sent = None, {}, time.monotonic()
        self.scores, self.pruned = {}, []
        self._write(message)

    def _write(self, message: dict) -> None:
        self.out.write(json.dumps(jsonable(message), allow_nan=False) + "\n")
        self.out.flush()


class Worker:
    """The state the signal handler and the watcher of stdin share with the run."""

    def __init__(self, out: IO[str]):
        self.report = Reporter(out)
        self.orders: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.busy = False
        self.stopper = parallel.Stopper()

    def on_signal(self, *_: Any) -> None:
        if not self.busy:
            sys.exit(0)
        self.stopper.ask()

    def watch_stdin(self) -> None:
        """Pass on the one line, then wait for the end: the server keeps its side open as long as it lives.

        A thread, because neither loading torch nor a long step may keep a worker whose server is gone.
        """
        stdin = sys.stdin.buffer.raw
        line = stdin.readline()
        if line.endswith(b"\n"):
            self.orders.put(line)
        while stdin.read(1024):
            pass
        if not self.busy:
            os._exit(0)
        signal.setitimer(signal.ITIMER_REAL, ORPHAN_GRACE)  # the kernel ends us then, however little we get to run
        self.stopper.asked = True  # not ask(), which would raise here and not where the run waits

    def execute(self, folder: str) -> None:
        from relcore import experiments, runs, stitchings
        from relcore.errors import RelcoreError

        self.busy = True
        try:
            if experiments.is_sweep(folder):
                run = experiments.Kept.load(folder)
                steps = experiments.execute(run, self.stopper)
            elif stitchings.is_stitching(folder):
                run = stitchings.Stitching.load(folder)
                steps = stitchings.execute(run)
            else:
                run = runs.Run.load(folder)
                steps = runs.execute(run)
            with contextlib.closing(steps):
                for p in steps:
                    self.report.progress(p)
                    if self.stopper.asked:
                        self.report.send("cancelling")
                        break
        except BrokenPipeError:  # the server is gone; leaving the loop has closed the run
            return
        except RelcoreError as e:
            self._done("failed", str(e))
        except Exception as e:
            traceback.print_exc()
            self._done("failed", f"{type(e).__name__}: {e}")
        else:
            self._done(run.status, run.record.get("message", ""))

    def _done(self, status: str, message: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.report.send("done", status=status, message=message)


def settle() -> None:
    """Make the process a good child: behind the server in every queue, and awake when the server dies."""
    os.nice(NICENESS)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as f:
        f.write(OOM_SCORE)
    if sys.platform == "linux":
        # PR_SET_PDEATHSIG: a paused worker cannot see its stdin close, so the kernel wakes it
        ctypes.CDLL(None).prctl(1, signal.SIGCONT)


def warm_up() -> None:
    """Load what a run needs by beginning, ending and writing a small one of each method.

    Importing is not enough: torch and pandas load half of themselves on first use.
    """
    import numpy as np
    import torch

    from relcore import methods, runs, space

    torch.set_num_threads(int(os.environ.get("RELCORE_THREADS", "1")))
    vectors = np.random.default_rng(0).standard_normal((48, 6))
    x, report_x = space.make_space(vectors)
    y, report_y = space.make_space(vectors[:, ::-1])
    truth = space.Pairs.by_row(48)
    pair = space.Pair(x, y, truth)
    small = dict(seeds=truth.take(np.arange(12)), device="cpu", reports=(report_x, report_y), keep_spaces=False)
    with tempfile.TemporaryDirectory(prefix="relcore-") as folder:
        for name in methods.REGISTRY:
            # a method that fails here must not take the jobs of the others down; its own run will say why
            try:
                run = runs.create(pair, method=methods.method(name), folder=Path(folder) / name, **small)
                with contextlib.closing(runs.execute(run, pair)) as steps:
                    next(steps)
            except Exception:
                traceback.print_exc()


def main() -> None:
    worker = Worker(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)  # what anything prints goes to stderr and cannot break a message
    sys.stdout = sys.stderr
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, worker.on_signal)
    settle()
    threading.Thread(target=worker.watch_stdin, daemon=True).start()
    warm_up()
    worker.report.send("ready")
    worker.execute(json.loads(worker.orders.get())["folder"])
    parallel.close()
    sys.stderr.flush()
    os._exit(0)  # all is written; taking torch down in good order would hold the place of the next job for seconds


if __name__ == "__main__":
    main()
