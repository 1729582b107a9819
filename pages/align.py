"""Align: choose a method, run it, watch it."""

from __future__ import annotations

import streamlit as st

from pages._ui import forms, live, opened, router, runner, state
from pages._ui.header import plain
from relcore import methods, preprocess, runs
from relcore.errors import InputError
from relcore.methods.base import Method

router.ensure()


def main() -> None:
    s = state.page_state()
    st.title("Align", anchor=False)
    left, right = st.columns([1, 2.4], gap="large")
    with left:
        form(s)
    with right:
        choose_run(s)
        live.view(s)


def form(s: state.State) -> None:
    names = list(methods.REGISTRY)
    asked = st.query_params.get("method")
    if s.asked_method:  # a widget's value may be set only before it is drawn
        st.session_state["method"], asked, s.asked_method = s.asked_method, None, ""
    name = st.radio(
        "Method",
        names,
        format_func=lambda n: methods.method_class(n).title,
        key="method",
        persist_state="session",
        index=names.index(asked) if asked in names else 0,
    )
    if st.query_params.get("method") != name:
        st.query_params["method"] = name
    st.caption(methods.method_class(name).summary)
    method = forms.method_form(name)
    with st.expander("Run settings"):
        text = st.text_input(
            "Preprocessing",
            ",".join(preprocess.DEFAULT),
            key="preprocess",
            persist_state="session",
            help="Steps in order: "
            + "; ".join(f"**{k}**: {v}" for k, v in preprocess.STEPS.items())
            + ". Real encoders need centring.",
        )
        seed = st.number_input("Random seed", 0, 2**31 - 1, 0, key="random_seed", persist_state="session")
        folds = st.select_slider(
            "Held-out seed check",
            [0, 2, 3, 5],
            3,
            key="folds",
            persist_state="session",
            format_func=lambda n: f"{n} parts" if n else "off",
            help="After the run, each part of the seeds is held out once and the rest must recover it. "
            "It costs as many further fits, and without it no run is called aligned.",
        )
        jobs = forms.processes("restarts", "run_jobs") if methods.method_class(name).spreads else 1
    steps, reason = (), ""
    try:
        steps = preprocess.parse_steps(text)
    except InputError as e:
        reason = str(e)
    if method is None:
        return
    data, pairs = s.data, s.seeds.pairs
    sizes = (len(data.x), len(data.y), data.x.dim, data.y.dim, len(pairs))
    try:
        method.check(*sizes)
    except InputError as e:
        reason = reason or f"{e} {without_seeds() if not len(pairs) else ''}"
    st.caption(f"{len(pairs)} seeds: {plain(s.seeds.origin)}")
    if s.seeds.corrupted.any():
        st.caption(f":material/warning: {int(s.seeds.corrupted.sum())} of them corrupted on purpose")
    st.caption(cost_line(method, sizes, folds))
    busy = runner.my_active_job(s)
    if reason:
        st.error(reason)
    with st.container(horizontal=True):
        st.button(
            "Run",
            type="primary",
            icon=":material/play_arrow:",
            disabled=bool(reason) or busy is not None,
            key="run",
            on_click=press,
            args=(s, method, steps, int(seed), folds, jobs, False),
            help="A run of yours is going on: stop it, or queue this one." if busy else "Start in the background",
        )
        if busy is not None:
            st.button(
                "Queue",
                icon=":material/playlist_add:",
                disabled=bool(reason),
                key="queue",
                on_click=press,
                args=(s, method, steps, int(seed), folds, jobs, True),
                help="Starts when the runs before it are done",
            )


def press(s: state.State, method: Method, steps, seed: int, folds: int, jobs: int, queue: bool) -> None:
    """A second click may arrive before the button is drawn disabled: then a run is already going, and one is enough."""
    if runner.my_active_job(s) is not None and not queue:
        return
    try:
        runner.start(s, method, preprocess=steps, seed=seed, folds=folds, jobs=jobs)
    except InputError as e:
        s.notice = str(e)


def without_seeds() -> str:
    free = [methods.method_class(n).title for n in methods.REGISTRY if methods.method_class(n).needs.min_seeds == 0]
    return f"Without seeds you can run {', '.join(free)}; or add pairs on the Seeds page."


def cost_line(method: Method, sizes: tuple[int, ...], folds: int) -> str:
    cost = method.estimate(*sizes)
    memory = f"about {cost.memory / 1e6:,.0f} MB"
    if cost.seconds is None:
        return f"Cost: {memory}"
    check = (cost.seconds if cost.check is None else cost.check) * folds if sizes[-1] >= 6 else 0
    return f"Cost: {memory}, about {forms.seconds(cost.seconds)}" + (
        f", and {forms.seconds(check)} for the held-out seed check" if check else ""
    )


def choose_run(s: state.State) -> None:
    """The runs made from the data at hand."""
    here = [r for r in runs.list_runs() if state.is_of_data(r, s.data)]
    if not here:
        return
    ids = [r.id for r in here]
    titles = opened.titles_of(here)
    if s.run_id in ids:
        st.session_state["run_choice"] = s.run_id
    st.selectbox(
        "Run",
        ids,
        index=None,
        format_func=titles.get,
        key="run_choice",
        placeholder="open an earlier run",
        label_visibility="collapsed",
        on_change=lambda: open_chosen(s),
    )


def open_chosen(s: state.State) -> None:
    if st.session_state["run_choice"]:
        state.open_run(s, st.session_state["run_choice"])


main()
