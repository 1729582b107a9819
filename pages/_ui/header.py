"""The line above every page: which data, seeds, run and selection are at hand. Each item leads to its page."""

from __future__ import annotations

import gc

import streamlit as st

from pages._ui import router, state

# Streamlit leaves six rem above the first element and writes titles for reports; a tool wants its map above the fold.
STYLE = """<style>
.stMainBlockContainer { padding-top: 4.4rem; padding-bottom: 2rem; }
.stMainBlockContainer h1 { font-size: 1.6rem; padding: 0.2rem 0; }
.stMainBlockContainer h3 { font-size: 1.15rem; padding: 0.3rem 0; }
</style>"""


def show() -> None:
    s = state.current()
    state.jobs()  # made with the first page, so that its spare worker is warm by the first Run
    data = s.data
    more = f"  ·  +{len(data.more)}" if data.more else ""
    with st.container(horizontal=True, vertical_alignment="center", gap="medium", key="header"):
        st.page_link(
            router.DATA,
            label=f"**{plain(data.x.title)}** {len(data.x):,} × {data.x.dim}  ·  "
            f"**{plain(data.y.title)}** {len(data.y):,} × {data.y.dim}{more}",
            icon=":material/scatter_plot:",
        )
        st.page_link(router.SEEDS, label=f"seeds: {len(s.seeds.pairs)}", icon=":material/link:")
        _run_badge(s)
        chosen = s.selection.current
        if len(chosen):
            st.markdown(
                f":material/select_all: {len(chosen.x):,} + {len(chosen.y):,} selected",
                help=f"From {chosen.origin}. Rows are selected by id and stay selected on every page.",
            )
            st.button("Clear", key="clear_selection", shortcut="Esc", on_click=s.selection.clear, type="tertiary")
        if s.selection.past:
            st.button("Undo", key="undo_selection", on_click=s.selection.undo, type="tertiary")
    if s.notice:
        st.warning(s.notice)
        s.notice = ""


def _run_badge(s: state.State) -> None:
    """Name and status of the run; ticks while it goes on."""
    job = state.job_of(s.run_id) if s.run_id else None
    busy = job is not None and job.active

    @st.fragment(run_every=1.0 if busy else None, key="run_badge")
    def badge() -> None:
        run = state.active_run(s)
        if run is None:
            st.page_link(router.ALIGN, label="no run yet", icon=":material/play_circle:")
            return
        live = state.job_of(run.id)
        if live is not None and (shot := live.snapshot()).active:
            step = f" {shot.step} of {shot.total}" if shot.total else ""
            st.page_link(
                router.ALIGN,
                label=f"run: {plain(run.title)} · {shot.status}{step}",
                icon=":material/progress_activity:",
            )
        else:
            older = "" if state.is_of_data(run, s.data) else " · older data"
            st.page_link(
                router.ALIGN, label=f"run: {plain(run.title)} · {run.status}{older}", icon=":material/play_circle:"
            )

    badge()


def plain(text: str) -> str:
    """Text from a file, safe inside Streamlit's markdown."""
    for sign in "\\`*_{}[]()#+-.!|~:$<>":
        text = text.replace(sign, "\\" + sign)
    return text


@st.cache_resource(show_spinner=False)
def settle() -> None:
    """Once a server: what is loaded by now stays, so later garbage collections need not walk it."""
    gc.freeze()
