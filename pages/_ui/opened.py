"""The head of a page that reads a finished run: which run, or what is missing."""

from __future__ import annotations

from collections import Counter

import streamlit as st

from pages._ui import empty, state
from pages._ui.header import plain
from relcore import runs
from relcore.runs import Run


def finished_run(s: state.State, what: str) -> Run | None:
    """The run looked at, when there is something to read of it; else None, after saying what is missing.

    Parameters
    ----------
    what : a sentence on what the page shows.
    """
    run = state.active_run(s)
    if run is None or not run.usable:
        empty.no_run(s, run, what)
        return None
    if not state.is_of_data(run, s.data):
        st.warning(f"Run {run.title} was made from other data. Open its data, or run on the data at hand.")
        if st.button("Open the data of this run"):
            state.open_run(s, run.id)
            st.rerun()
        return None
    choose_run(s, run)
    st.caption(f"Run **{plain(run.title)}** · seed {run.record['seed']} · {run.record['seeds']} seeds · {run.status}")
    return run


def choose_run(s: state.State, run: Run) -> None:
    """Other runs of the data at hand, where there are some."""
    here = [r for r in runs.list_runs() if r.usable and state.is_of_data(r, s.data)]
    if len(here) < 2:
        return
    titles = titles_of(here)
    st.session_state["finished_run"] = run.id
    st.selectbox(
        "Run",
        list(titles),
        format_func=titles.get,
        key="finished_run",
        label_visibility="collapsed",
        on_change=lambda: state.open_run(s, st.session_state["finished_run"]),
    )


def titles_of(listed: list[Run]) -> dict[str, str]:
    """What a list shows of each run, by its id; no two alike, since Streamlit tells options apart by what they show."""
    return distinct({r.id: describe(r) for r in listed})


def distinct(titles: dict[str, str]) -> dict[str, str]:
    """Titles by id, with the id after those that another one has too."""
    often = Counter(titles.values())
    return {i: title if often[title] == 1 else f"{title} · {i}" for i, title in titles.items()}


def describe(run: Run) -> str:
    status = "" if run.active else f"{run.status} · "  # an active run's status would be out of date at once
    return f"{run.title} · {status}{run.record['seeds']} seeds · {run.record['created'][11:16]} UTC"
