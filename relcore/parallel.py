"""Tasks in other processes or on other machines, through joblib: local processes, or the workers of a Dask cluster.

A task's result never depends on where it ran: each runs with one thread, and takes its random choices from seeds
that it is given. Light: joblib, dask and torch load when tasks run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from relcore.errors import InputError, RunFailed

TRIES = 3  # a task in whose company workers die so often is given up
ALONE = 2  # after so many deaths it runs by itself, to see whether it is to blame
WATCH = "relcore-parent"
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
CONNECT_SECONDS = 10  # to reach a scheduler, and to wait for its first worker


class Stopped(BaseException):
    """Raised in who waits when a :class:`Stopper` is asked to stop. No Exception: no task may take it for its own."""


class Stopper:
    """Lets a signal end a wait at once, and otherwise waits itself until what is under way is done.

    A signal handler calls :meth:`ask`; the main thread does what may be broken off inside :meth:`waiting`.
    """

    def __init__(self) -> None:
        self.asked = self.waits = False

    def ask(self) -> None:
        self.asked = True
        if self.waits:
            self.waits = False
            raise Stopped

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        self.waits = True
        try:
            if self.asked:
                raise Stopped
            yield
        finally:
            self.waits = False


@dataclass(frozen=True)
class Lost:
    """In the place of a result: the workers that ran the task died, each time it was tried."""

    reason: str


def run(
    function: Callable[[Any], Any], tasks: Sequence[Any], *, jobs: int = 1, scheduler: str = ""
) -> Iterator[tuple[int, Any]]:
    """``(index, function(tasks[index]))`` as they are done, in any order; closing the iterator ends what still runs.

    A worker that dies costs its task a retry (and, on this machine, the tasks that ran beside it); a task whose workers
    die :data:`TRIES` times is :class:`Lost`. What a function raises is raised here and ends the rest.

    Parameters
    ----------
    function, tasks : what can be pickled; the function has to be importable where it runs.
    jobs : processes on this machine; with 1 the tasks run in this one. Not read when there is a scheduler.
    scheduler : address of a Dask scheduler (``tcp://host:8786``), whose workers have the same Relcore installed.

    Raises
    ------
    InputError
        ``jobs`` is not positive, Dask is not installed, or no scheduler or worker answers.
    """
    if jobs < 1:
        raise InputError(f"jobs is {jobs}, wanted a number of processes from 1 up.")
    if scheduler:
        yield from _on_cluster(function, tasks, scheduler)
    elif jobs == 1:
        for index, task in enumerate(tasks):
            yield index, _here(function, task)
    else:
        yield from _in_processes(function, tasks, jobs)


@dataclass(frozen=True)
class Workers:
    """Where a method's tasks run: ``jobs`` and ``scheduler`` of :func:`run`. Results do not depend on it."""

    jobs: int = 1
    scheduler: str = ""

    def in_order(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        """Results in the order of the tasks, each as soon as those before it are there; closing ends the rest.

        Raises
        ------
        RunFailed
            The workers of a task died whenever it was tried.
        """
        early: dict[int, Any] = {}
        following = 0
        with contextlib.closing(run(function, tasks, jobs=self.jobs, scheduler=self.scheduler)) as results:
            for index, result in results:
                if isinstance(result, Lost):
                    raise RunFailed(f"a part of the search could not be done: {result.reason}.")
                early[index] = result
                while following in early:
                    yield early.pop(following)
                    following += 1


def close() -> None:
    """End the idle processes of earlier runs, for who is about to leave without Python's own good order."""
    if "joblib.externals.loky" in sys.modules and _in_processes.used:
        from joblib.externals.loky import get_reusable_executor

        get_reusable_executor(reuse=True).shutdown(wait=True, kill_workers=True)


def _here(function: Callable, task: Any) -> Any:
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        with threadpool_limits(1):
            return function(task)
    finally:
        torch.set_num_threads(before)


def _there(index: int, function: Callable, wrapped: tuple[Any]) -> tuple[int, Any]:
    """In a worker. The task comes in a tuple, which Dask sends along: what it scatters dies with a worker."""
    from threadpoolctl import threadpool_limits

    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    else:
        os.environ |= dict.fromkeys(THREAD_VARIABLES, "1")  # read when it loads
    with threadpool_limits(1):
        return index, function(wrapped[0])


def _in_child(parent: int, index: int, function: Callable, wrapped: tuple[Any]) -> tuple[int, Any]:
    """In a process of this machine."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that sent us the task
    if not any(t.name == WATCH for t in threading.enumerate()):
        threading.Thread(target=_end_with, args=(parent,), name=WATCH, daemon=True).start()
    return _there(index, function, wrapped)


def _end_with(parent: int) -> None:
    """loky's processes would outlive a parent that was killed, and go on."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _results(parallel: Any, calls: Iterator) -> Iterator[tuple[int, Any]]:
    """The outputs of a joblib call; closing it aborts, without joblib's warning that some were not used."""
    outputs = parallel(calls)
    try:
        for output in outputs:  # noqa: UP028  "yield from" would close it before the warning is silenced
            yield output
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outputs.close()


# ---------------------------------------------------------------- processes on this machine


def _in_processes(function: Callable, tasks: Sequence[Any], jobs: int) -> Iterator[tuple[int, Any]]:
    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky.process_executor import BrokenProcessPool

    _in_processes.used = True
    waiting = dict.fromkeys(range(len(tasks)))
    deaths: Counter[int] = Counter()
    while waiting:
        together = [i for i in waiting if deaths[i] < ALONE] or list(waiting)[:1]
        begun: list[int] = []

        def calls(chosen: list[int] = together, begun: list[int] = begun) -> Iterator:
            for i in chosen:
                begun.append(i)
                yield delayed(_in_child)(os.getpid(), i, function, (tasks[i],))

        with parallel_config(backend="loky", inner_max_num_threads=1):
            # no memory mapping: its arrays are read-only, which torch does not like
            parallel = Parallel(
                n_jobs=jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs", max_nbytes=None
            )
        try:
            with contextlib.closing(_results(parallel, calls())) as results:
                for index, result in results:
                    del waiting[index]
                    yield index, result
        except BrokenProcessPool as e:  # one died, and loky ends them all: whose fault it was is not known
            for index in begun:
                if index not in waiting:
                    continue
                deaths[index] += 1
                if deaths[index] >= TRIES:
                    del waiting[index]
                    yield index, Lost(f"the process that ran it died {TRIES} times; {_first_sentence(e)}")


_in_processes.used = False


def _first_sentence(error: BaseException) -> str:
    return str(error).partition(".")[0].strip().replace("\n", " ")


# ---------------------------------------------------------------- a Dask cluster


def _on_cluster(function: Callable, tasks: Sequence[Any], scheduler: str) -> Iterator[tuple[int, Any]]:
    from joblib import Parallel, delayed

    with _client(scheduler) as client:
        if not client.ncores():
            with contextlib.suppress(TimeoutError):
                client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        if not client.ncores():
            raise InputError(
                f"the Dask scheduler at {scheduler} has no worker; start one with: dask worker {scheduler}"
            )

        def found(chosen: Sequence[int]) -> Iterator[tuple[int, Any]]:
            backend = _dask_backend(client, scheduler)
            parallel = Parallel(n_jobs=-1, backend=backend, return_as="generator_unordered", batch_size=1)
            calls = (delayed(_there)(i, function, (tasks[i],)) for i in chosen)
            with contextlib.closing(_results(parallel, calls)) as results:
                yield from results

        lost = []
        for index, result in found(range(len(tasks))):
            if isinstance(result, Lost):  # Dask blames all that waited at the worker that died
                lost.append(index)
            else:
                yield index, result
        for index in lost:  # by itself, to see whether it is to blame
            yield from found([index])


def _client(scheduler: str) -> Any:
    try:
        from distributed import Client
    except ImportError:
        raise InputError(
            "a scheduler needs Dask, which is not installed; pip install -r requirements-extra.txt brings it."
        ) from None
    try:
        return Client(scheduler, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, ImportError) as e:
        raise InputError(
            f"no Dask scheduler answers at {scheduler} ({_first_sentence(e) or type(e).__name__}); start one with "
            "dask scheduler, and give the address it prints, such as tcp://127.0.0.1:8786."
        ) from None


def _dask_backend(client: Any, scheduler: str) -> Any:
    from joblib._dask import DaskDistributedBackend

    class Backend(DaskDistributedBackend):
        """joblib's, which waits for ever for a task that the scheduler gave up (its workers died): told as Lost."""

        def effective_n_jobs(self, n_jobs):
            return max(2, super().effective_n_jobs(n_jobs))  # with one, joblib would do all of it in this process

        def submit(self, func, callback=None):
            ((_, args, _),) = func.items
            return super().submit(func, partial(_called_back, callback, args[0]))

        async def _collect(self):
            import asyncio

            while self._continue:
                async for future, result in self.waiting_futures:
                    done, callback = self._results.pop(future), self._callbacks.pop(future)
                    if future.status == "error":
                        result = [(callback.args[1], Lost(f"its workers died: {result[1]}"))]
                    elif future.status != "finished":
                        result = [(callback.args[1], Lost(f"the scheduler at {scheduler} dropped it"))]
                    done.set_result(result)
                    callback(result)
                await asyncio.sleep(0.01)

    return Backend(client=client)


def _called_back(callback: Callable, index: int, result: Any) -> None:
    callback(result)
