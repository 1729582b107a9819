"""From a button to a job: what the pages share to start a run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from pages._ui import state
from relcore import experiments, methods, runs, stitchings, store
from relcore.errors import InputError
from relcore.methods.base import Method
from relcore.preprocess import DEFAULT
from relcore.stitching import Settings

if TYPE_CHECKING:
    from relcore.formats.linear_head import LinearHead


def my_active_job(s: state.State):
    """The visitor's job that is queued, running or paused, or None."""
    for job in state.jobs().jobs(owner=s.owner):
        if job.active:
            return job
    return None


@contextlib.contextmanager
def on_disk() -> Iterator[None]:
    """A full or read-only disk is told as any other reason why something cannot be started."""
    try:
        yield
    except OSError as e:
        raise InputError(
            f"nothing can be kept in {store.home()} ({e.strerror or e}); make room there, or set RELCORE_HOME to "
            "another disk. What was kept before is as it was."
        ) from None


@on_disk()
def start(
    s: state.State,
    method: Method,
    *,
    preprocess: tuple[str, ...] = DEFAULT,
    seed: int = 0,
    folds: int = 3,
    jobs: int = 1,
) -> None:
    """Create the run, hand it to the registry and look at it.

    Raises
    ------
    InputError
        The method cannot work on the data and seeds at hand.
    """
    data, seed_set = s.data, s.seeds
    notes = ()
    if seed_set.corrupted.any():
        notes = (f"{int(seed_set.corrupted.sum())} of {len(seed_set.pairs)} seeds were corrupted on purpose",)
    run = runs.create(
        data.pair,
        method=method,
        seeds=seed_set.pairs,
        preprocess=preprocess,
        seed=seed,
        folds=folds,
        reports=(data.report_x, data.report_y),
        title=next_title(method),
        notes=notes,
        seeds_origin=seed_set.origin,
        jobs=jobs,
    )
    state.jobs().submit(run.folder, s.owner)
    s.run_id = run.id
    s.selection.past.clear()


@on_disk()
def start_sweep(s: state.State, sweep: experiments.Sweep, jobs: int) -> None:
    """Hand the cells that are missing to the registry.

    Raises
    ------
    InputError
        The sweep asks for what the data cannot give, or is under way.
    """
    state.jobs().submit(experiments.create(sweep, jobs=jobs).folder, s.owner)


@on_disk()
def start_stitching(
    s: state.State,
    settings: Settings,
    *,
    run: runs.Run | None = None,
    head: LinearHead | None = None,
    labels: list[np.ndarray | None] | None = None,
    title: str = "",
) -> stitchings.Stitching:
    """Hand a stitching of all spaces of the list to the registry; ``title`` says whose the labels are.

    Raises
    ------
    InputError
        What is asked cannot be had of these data.
    """
    reports = [one.report for one in s.data.listed]
    kept = stitchings.create(
        s.data.spaces, settings, reports=reports, run=run, head=head, labels=labels, labels_title=title
    )
    state.jobs().submit(kept.folder, s.owner)
    return kept


def suggested(data: state.Data) -> type[Method]:
    """The method to try first: the one a sample names, else anchor optimisation."""
    return methods.method_class(data.suggests.method if data.suggests else "ao")


def start_default(s: state.State) -> None:
    """The suggested method with its defaults; nothing when a run of this visitor is going on already."""
    if my_active_job(s) is None:
        method = suggested(s.data)()
        start(s, method)
        s.asked_method = method.name


def default_button(s: state.State, key: str) -> bool:
    """The button that runs the suggested method; True once the run is submitted. A refusal is shown beside it."""
    label = f"Run {suggested(s.data).title.lower()}"
    if not st.button(label, type="primary", icon=":material/play_arrow:", key=key):
        return False
    try:
        start_default(s)
    except InputError as e:
        st.error(str(e))
        return False
    return True


def next_title(method: Method) -> str:
    """``AO 3``: the short name of the method and how many runs there are of it."""
    one_word = method.title if " " not in method.title else method.name.capitalize()
    short = method.name.upper() if len(method.name) <= 4 else one_word
    return f"{short} {1 + sum(r.record['method'] == method.name for r in runs.list_runs())}"
