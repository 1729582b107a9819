"""Tasks in other processes: the same results wherever they run, a death is a retry, a closed iterator an end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from relcore import parallel
from relcore.errors import InputError

ROOT = Path(__file__).resolve().parent.parent
SLOW = 120.0  # seconds: how long a busy machine may take


def draw(seed: int) -> np.ndarray:
    """Numbers that depend on the order of summation, hence on threads, if anything does."""
    import torch

    a = torch.randn(300, 300, generator=torch.Generator().manual_seed(seed))
    return (a @ a.T @ a).numpy()


def threads(_: int) -> tuple[int, int]:
    import torch

    return os.getpid(), torch.get_num_threads()


def die_once(task: tuple[str, int]) -> int:
    """Killed while it runs, the first time."""
    folder, number = task
    if number == 2 and not Path(folder, "died").exists():
        Path(folder, "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    Path(folder, f"{number}-{os.getpid()}").touch()
    return number * number


def die_always(number: int) -> int:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def fail(number: int) -> int:
    if number == 1:
        raise RuntimeError("a fault of the task")
    return number


def sleep(task: tuple[str, int]) -> int:
    folder, seconds = task
    Path(folder, str(os.getpid())).touch()
    time.sleep(seconds)
    return seconds


def gone(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def until(true) -> None:
    deadline = time.monotonic() + SLOW
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


@pytest.fixture(scope="module", autouse=True)
def nothing_left():
    yield
    parallel.close()


@pytest.fixture(scope="module")
def scheduler():
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, memory_limit=0, dashboard_address=None, processes=True
    )
    yield cluster.scheduler_address
    cluster.close()


def where(how: str, request) -> dict:
    if how == "dask":
        return {"scheduler": request.getfixturevalue("scheduler")}
    return {"jobs": int(how)}


@pytest.mark.parametrize("how", ["2", "dask"])
def test_results_are_bit_for_bit_those_of_this_process(how, request):
    here = dict(parallel.run(draw, range(5)))
    there = dict(parallel.run(draw, range(5), **where(how, request)))
    assert list(here) == list(range(5)) and here.keys() == there.keys()
    assert all(np.array_equal(here[i], there[i]) for i in here)


@pytest.mark.parametrize("how", ["1", "2", "dask"])
def test_each_task_has_one_thread_and_this_process_keeps_its_own(how, request):
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        found = dict(parallel.run(threads, range(4), **where(how, request)))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert {n for _, n in found.values()} == {1}
    assert (os.getpid() in {pid for pid, _ in found.values()}) == (how == "1")


def test_a_cluster_of_one_worker_does_the_work(scheduler, monkeypatch):
    from joblib._dask import DaskDistributedBackend

    monkeypatch.setattr(DaskDistributedBackend, "effective_n_jobs", lambda self, n_jobs: 1)
    assert os.getpid() not in {pid for _, (pid, _) in parallel.run(threads, range(2), scheduler=scheduler)}


@pytest.mark.parametrize("how", ["2", "dask"])
def test_a_killed_worker_costs_a_retry(how, request, tmp_path):
    tasks = [(str(tmp_path), number) for number in range(6)]
    assert dict(parallel.run(die_once, tasks, **where(how, request))) == {n: n * n for n in range(6)}
    assert (tmp_path / "died").exists()
    ran = [p.name.partition("-")[0] for p in tmp_path.glob("*-*")]
    assert set(ran) == {str(n) for n in range(6)}
    assert len(ran) <= 6 + 1  # the other one that was under way, at most


@pytest.mark.parametrize("how", ["2", "dask"])
def test_a_task_that_kills_its_worker_every_time_is_lost_and_the_rest_is_not(how, request):
    found = dict(parallel.run(die_always, range(4), **where(how, request)))
    lost = found.pop(1)
    assert isinstance(lost, parallel.Lost) and "died" in lost.reason
    assert found == {0: 0, 2: 2, 3: 3}


@pytest.mark.parametrize("how", ["1", "2", "dask"])
def test_what_a_task_raises_is_raised_here(how, request):
    with pytest.raises(RuntimeError, match="a fault of the task"):
        list(parallel.run(fail, range(3), **where(how, request)))
    assert dict(parallel.run(die_always, [7], **where(how, request))) == {0: 7}  # and the workers are fit for more


def test_closing_the_iterator_ends_the_processes(tmp_path):
    results = parallel.run(sleep, [(str(tmp_path), 0), *[(str(tmp_path), 600)] * 3], jobs=2)
    assert next(results) == (0, 0)
    until(lambda: len(list(tmp_path.iterdir())) == 2)
    results.close()
    until(lambda: all(gone(int(p.name)) for p in tmp_path.iterdir()))


def test_processes_end_with_the_one_that_started_them(tmp_path):
    code = (
        "from tests.test_parallel import sleep; from relcore import parallel\n"
        f"list(parallel.run(sleep, [({str(tmp_path)!r}, 600)] * 2, jobs=2))"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        until(lambda: len(list(tmp_path.iterdir())) == 2)
        process.kill()
    until(lambda: all(gone(int(p.name)) for p in tmp_path.iterdir()))


def test_where_tasks_cannot_run_is_told_in_a_sentence(monkeypatch):
    with pytest.raises(InputError, match="jobs is 0"):
        list(parallel.run(draw, [0], jobs=0))
    monkeypatch.setattr(parallel, "CONNECT_SECONDS", 1)
    pytest.importorskip("distributed")
    with pytest.raises(InputError, match="no Dask scheduler answers at tcp://127.0.0.1:9"):
        list(parallel.run(draw, [0], scheduler="tcp://127.0.0.1:9"))
    with pytest.raises(InputError, match="no Dask scheduler answers at nonsense"):
        list(parallel.run(draw, [0], scheduler="nonsense://x"))
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match="pip install -r requirements-extra.txt"):
        list(parallel.run(draw, [0], scheduler="tcp://127.0.0.1:9"))
