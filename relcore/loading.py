"""Files are looked at and read in a process of their own: ``python -m relcore.loading``.

A reader works on bytes a stranger wrote. In its own process it can neither take the server down (a crash in a library,
the machine out of memory) nor leave memory or a heavy import behind, and it can be stopped at any time. What it read
comes back through :mod:`relcore.store`; the messages between the two are JSON lines.

The request is one line on stdin: ``{"do": "look" | "columns" | "head" | "load", "path": FILE, "options": {...}}``, the
options are those of :func:`relcore.formats.peek` and :func:`relcore.formats.load`. The answer is any number of
``{"share": 0..1}`` and one outcome, see :func:`look_at`, :func:`columns_of` and :func:`load_into_store`, or ``{"error":
SENTENCE}``.

Python and the command line that want to read here and now call :func:`relcore.formats.load`.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from relcore import formats, memory, store
from relcore.errors import InputError

OOM_SCORE = "900"  # when memory runs out, the kernel should take this process first
EVERY = 0.1  # seconds between two reports of progress
LOOK_SECONDS = 30.0  # a look reads headers and first rows; what takes longer is not worth waiting for
HEAD_COLUMNS = 8  # numbers of a row shown before loading
STDERR_TAIL = 8192
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

_log = logging.getLogger(__name__)


class Loading:
    """A request in its own process, from the moment it is made. All methods may be called from any thread."""

    def __init__(self, request: dict[str, Any]):
        self.request = request
        self.progress = 0.0
        self.outcome: dict[str, Any] | None = None  # None as long as it goes on
        self._began = time.monotonic()
        self._took = 0.0
        self._process: subprocess.Popen | None = None
        self._lock = threading.Lock()
        self._cancelled = ""
        self._done = threading.Event()
        # the thread that starts the process outlives it: the kernel ends the process when that thread ends
        threading.Thread(target=self._supervise, daemon=True).start()

    @property
    def done(self) -> bool:
        return self._done.is_set()

    @property
    def seconds(self) -> float:
        """How long it has gone on, or took."""
        return self._took if self.done else time.monotonic() - self._began

    @property
    def file(self) -> str:
        return Path(self.request["path"]).name

    def wait(self, timeout: float | None = None) -> dict[str, Any] | None:
        """The outcome, or None if it is not there within the timeout (seconds)."""
        self._done.wait(timeout)
        return self.outcome

    def cancel(self, why: str = "cancelled") -> None:
        """End the process now. The outcome is ``{"error": why, "cancelled": True}``; nothing is kept."""
        with self._lock:
            if not self.done:
                self._cancelled = why
                if self._process is not None:
                    self._process.kill()

    def _supervise(self) -> None:
        outcome = None
        try:
            outcome = self._talk()
        except Exception as e:  # the page must not wait for ever
            _log.exception("reading %s", self.file)
            outcome = {"error": f"{self.file} could not be read ({type(e).__name__}: {e}); try again."}
        finally:
            with self._lock:
                if self._cancelled:
                    outcome = {"error": self._cancelled, "cancelled": True}
                self._took = time.monotonic() - self._began
                self.outcome = outcome
                self._done.set()

    def _talk(self) -> dict[str, Any]:
        with self._lock:
            if self._cancelled:
                return {}
            self._process = process = _popen()
        tail = _Tail(process.stderr)
        outcome = None
        with contextlib.suppress(OSError):  # it died at once; its exit code says more
            process.stdin.write(json.dumps(self.request).encode() + b"\n")
            process.stdin.flush()
        for line in process.stdout:
            try:
                message = json.loads(line)
            except ValueError:  # killed in the middle of a line
                break
            if "share" in message:
                self.progress = max(self.progress, min(1.0, message["share"]))
            else:
                outcome = message
        code = process.wait()
        said = tail.text()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        if outcome is None or "cause" in outcome:
            _log.error("reading %s: exit code %s\n%s", self.file, code, said.replace("Traceback", "traceback"))
        if outcome is None:
            store.sweep(process.pid)
            outcome = {"error": _cause_of_death(self.file, code)}
        return outcome


class _Tail:
    """The last bytes a process writes to a pipe, read so that the pipe never fills."""

    def __init__(self, pipe):
        self.bytes, self.pipe = b"", pipe
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        while part := self.pipe.read1(4096):
            self.bytes = (self.bytes + part)[-STDERR_TAIL:]
        self.pipe.close()

    def text(self) -> str:
        self.thread.join(1.0)
        return self.bytes.decode(errors="replace").strip()


def _popen() -> subprocess.Popen:
    root = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(p for p in (root, os.environ.get("PYTHONPATH", "")) if p)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "relcore.loading"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | dict.fromkeys(THREADS, "1") | {"PYTHONPATH": path},
        process_group=0,  # a Ctrl-C at the server's terminal is for the server
    )


def _cause_of_death(file: str, code: int) -> str:
    if code == -signal.SIGKILL:
        return f"reading {file} was ended by the system; the machine may have run out of memory, so read fewer rows."
    if code < 0:
        return f"reading {file} ended with signal {-code}; the file is probably damaged, write or download it again."
    return f"reading {file} ended with exit code {code}; the file is probably damaged, write or download it again."


def start(path: str | Path, **options: Any) -> Loading:
    """Begin to load a file; the options are those of :func:`relcore.formats.load`."""
    return Loading({"do": "load", "path": str(path), "options": options})


def look(path: str | Path, *, timeout: float = LOOK_SECONDS, **options: Any) -> dict[str, Any]:
    """What a file holds, see :func:`look_at`; ``{"error": SENTENCE}`` if it cannot be told."""
    return _soon({"do": "look", "path": str(path), "options": options}, timeout)


def columns(path: str | Path, *, timeout: float = LOOK_SECONDS) -> dict[str, Any]:
    """The columns or arrays that a file of names, labels or metadata holds, see :func:`columns_of`."""
    return _soon({"do": "columns", "path": str(path), "options": {}}, timeout)


def head(path: str | Path, *, timeout: float = LOOK_SECONDS) -> dict[str, Any]:
    """Read a linear classifier into the store, see :func:`head_into_store`."""
    return _soon({"do": "head", "path": str(path), "options": {}}, timeout)


def _soon(request: dict[str, Any], timeout: float) -> dict[str, Any]:
    looking = Loading(request)
    if looking.wait(timeout) is None:
        looking.cancel(
            f"looking at {looking.file} takes over {timeout:.0f} seconds; the file may be damaged. "
            "Write it again, or in another format."
        )
    return looking.wait()


# ---------------------------------------------------------------- in the process


def look_at(path: str, options: dict[str, Any]) -> dict[str, Any]:
    """What is shown of a file before it is loaded.

    Returns
    -------
    ``format``; ``arrays`` ``[{name, shape, dtype, vectors}]``; and, unless there is an ``error``, ``rows``, ``dim``,
    ``dtype``, ``memory`` (bytes), ``note`` (a sentence when it is over a quarter of what is free), ``columns``
    ``[{name, kind, role, examples}]``, ``head`` (texts of the first numbers of the first rows), ``assumed``,
    ``warned``. ``choose`` is True when the only thing missing is the choice of an array.
    """
    from relcore.formats.registry import reader

    file = Path(path)
    module = reader(file)
    out: dict[str, Any] = {"format": module.NAME}
    out["arrays"] = [
        {"name": a.name, "shape": list(a.shape), "dtype": str(a.dtype), "vectors": a.is_vectors}
        for a in module.arrays(file)
    ]
    try:
        seen = formats.peek(path, **options)
    except InputError as e:
        return out | {"error": str(e), "choose": isinstance(e, formats.AmbiguousError)}
    out |= {"rows": seen.rows, "dim": seen.dim, "dtype": seen.dtype, "memory": seen.memory}
    out |= {"assumed": list(seen.assumed), "warned": list(seen.warned), "note": None}
    free = memory.available()
    if seen.memory is not None and seen.memory >= free / 4:
        out["note"] = (
            f"Reading {file.name} takes about {memory.as_text(seen.memory)} of {memory.as_text(free)} free memory"
        )
    out["columns"] = [c._asdict() | {"examples": list(c.examples)} for c in seen.columns]
    head = seen.head if seen.head is not None else np.empty((0, 0))
    out["head"] = [[f"{v:.5g}" for v in row[:HEAD_COLUMNS]] for row in np.asarray(head).tolist()]
    return out


def columns_of(path: str) -> dict[str, Any]:
    """``columns``: names of the arrays of one dimension, or of a table's columns; and how many ``rows`` it has."""
    from relcore.formats.registry import reader

    file = Path(path)
    module = reader(file)
    arrays = [a for a in module.arrays(file) if a.name and len(a.shape) == 1]
    if arrays or not hasattr(module, "frame"):
        return {"columns": [a.name for a in arrays], "rows": arrays[0].shape[0] if arrays else None}
    frame = module.frame(file)
    return {"columns": [str(c) for c in frame.columns], "rows": len(frame)}


def load_into_store(path: str, options: dict[str, Any], progress: Callable[[float], None]) -> dict[str, Any]:
    """Load a file and keep it.

    Returns
    -------
    ``reference`` for :func:`relcore.store.get_space`, and ``folded``: how many rows ``fold_case`` would merge.
    """
    space, report = formats.load(path, progress=progress, **options)
    names = set(space.names.tolist())
    folded = len(names) - len({name.casefold() for name in names})
    return {"reference": store.put_space(space, report), "folded": folded}


def head_into_store(path: str) -> dict[str, Any]:
    """``reference`` for :func:`relcore.formats.linear_head.get_head`."""
    from relcore.formats.linear_head import put_head, read_linear_head

    return {"reference": put_head(read_linear_head(path))}


def _answer(request: dict[str, Any], send: Callable[[dict], None]) -> dict[str, Any]:
    path, options = request["path"], request["options"]
    sent = time.monotonic()

    def progress(share: float) -> None:
        nonlocal sent
        if time.monotonic() - sent >= EVERY:
            sent = time.monotonic()
            send({"share": float(share)})

    file = Path(path).name
    try:
        if request["do"] == "load":
            return load_into_store(path, options, progress)
        if request["do"] == "head":
            return head_into_store(path)
        return columns_of(path) if request["do"] == "columns" else look_at(path, options)
    except InputError as e:
        return {"error": str(e)}
    except MemoryError:
        return {"error": f"reading {file} takes more memory than there is; read fewer rows, or close other programs."}
    except OSError as e:
        return {"error": f"reading {file} failed ({e.strerror or e}); check the disk and try again."}
    except Exception as e:
        traceback.print_exc()
        return {"error": f"{file} cannot be read ({type(e).__name__}); it is probably damaged.", "cause": repr(e)}


def _settle() -> None:
    """Make the process a good child: the first to go when memory is short, and gone when the server is."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as f:
        f.write(OOM_SCORE)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    with contextlib.suppress(ImportError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core dump of a stranger's file helps nobody


def main() -> None:
    _settle()
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints goes to stderr and cannot break a message
    sys.stdout = sys.stderr

    def send(message: dict) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    line = sys.stdin.buffer.readline()
    if line.endswith(b"\n"):  # else the server is gone
        with contextlib.suppress(BrokenPipeError):
            send(_answer(json.loads(line), send))
    sys.stderr.flush()
    os._exit(0)  # all is written; taking libraries down in good order takes time, and can crash


if __name__ == "__main__":
    main()
