"""The search of HGA over several processes: the same steps and the same alignment, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from relcore import parallel
from relcore.methods import method
from relcore.parallel import Workers
from relcore.pipeline import Fit, Task
from relcore.space import Pair, Pairs, make_space
from tests.methods.test_hga import clusters, turn

KINDS = {
    "informed": dict(restarts=96, agree=0),
    "early end": dict(restarts=128, agree=3),
    "paper": dict(mode="paper", random_starts=40, ascent_steps=11),
}


@pytest.fixture(scope="module", autouse=True)
def nothing_left():
    yield
    parallel.close()


@pytest.fixture(scope="module")
def scheduler():
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(n_workers=1, threads_per_worker=1, memory_limit=0, dashboard_address=None)
    yield cluster.scheduler_address
    cluster.close()


def searched(workers: Workers, **params) -> Fit:
    x = clusters(160, 6, k=5)[0]
    pair = Pair(make_space(x.numpy())[0], make_space((x @ turn(6)).numpy())[0])
    fit = Fit(pair, Task(method("hga", **params), Pairs.empty(), seed=3, device="cpu", workers=workers), watched=False)
    for _ in fit.steps():
        pass
    return fit


@pytest.mark.parametrize(
    ("where", "kind"), [*(("processes", kind) for kind in KINDS), ("dask", "informed"), ("dask", "paper")]
)
def test_the_search_is_the_same_wherever_it_runs(where, kind, request):
    workers = Workers(scheduler=request.getfixturevalue("scheduler")) if where == "dask" else Workers(2)
    here, there = searched(Workers(), **KINDS[kind]), searched(workers, **KINDS[kind])
    assert here.history == there.history and len(here.history) > 5
    for (i, a), (j, b) in zip(here.restarts, there.restarts, strict=True):
        assert (i, a.pruned, a.best) == (j, b.pruned, b.best)
        np.testing.assert_array_equal(a.ids, b.ids)
        np.testing.assert_array_equal(a.scores, b.scores)
    assert torch.equal(here.alignment.map, there.alignment.map)
    assert here.alignment.confidence == there.alignment.confidence
