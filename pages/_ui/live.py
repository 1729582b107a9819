"""A run, watched: progress, curves with their reference lines, the moving map; afterwards what came of it.

One fragment ticks while the run goes on. It only reads: the worker writes, the registry keeps.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from pages._ui import figures, maps, mixtures, router, runner, state
from pages._ui.header import plain
from pages._ui.tables import metrics_table
from relcore.jobs import JobSnapshot
from relcore.runs import RestartCurves, Run

LEVELS = {"aligned": st.success, "unclear": st.info, "chance": st.error, "collapsed": st.error}


def view(s: state.State) -> None:
    run = state.active_run(s)
    if run is None:
        _nothing_yet(s)
        return
    job = state.job_of(run.id)
    active = job is not None and job.active
    frozen = active and st.toggle(
        "Pause view", key="pause_view", help="The run goes on; curves and map stand still, to be looked at."
    )

    @st.fragment(run_every=0.5 if active and not frozen else None, key="live")
    def body() -> None:
        fresh = state.active_run(s)
        if fresh is None:
            st.rerun()
        shot = job.snapshot() if active else None
        if active and not shot.active:
            st.rerun()  # once more as a whole, without the timer
        if shot is not None:
            _controls(job, shot)
            total = last_step(shot)
            _restarts(shot.restarts, shot.curves, total, live=True)
            _curves(fresh, shot.curves, total, phase=shot.phase, searched=shot.restarts is not None)
            _moving_map(s, fresh, shot.frame)
        else:
            _result(s, fresh)

    body()


def _nothing_yet(s: state.State) -> None:
    st.info("No run is open. Press **Run** to watch the alignment happen, or run the defaults:")
    if runner.default_button(s, "run_default"):
        st.rerun()


def last_step(shot: JobSnapshot) -> int:
    """Where the axis of steps ends: phases after the fit count their own steps, and report nothing to draw."""
    told = max((steps[-1] for steps, _ in shot.curves.values() if steps), default=0)
    return told if told and shot.phase.startswith("check") else max(shot.total, told)


def _controls(job, shot: JobSnapshot) -> None:
    step = f"step {shot.step} of {shot.total}" if shot.total else "starting"
    rate = f" · {shot.rate:.1f} steps/s" if shot.rate else ""
    eta = f" · about {shot.eta:.0f} s left in this phase" if shot.eta and shot.eta >= 1 else ""
    if shot.status == "queued":
        text = "waiting for the run before it"
    elif shot.cancelling:
        text = f"stopping, keeping what there is ({step})"
    else:
        text = f"{shot.phase} · {step}{rate}{eta}" if shot.phase else "starting the worker"
    st.progress(shot.step / shot.total if shot.total else 0.0, text=f"**{shot.status}** · {text}")
    with st.container(horizontal=True, vertical_alignment="center"):
        if shot.status == "paused":
            st.button("Resume", icon=":material/play_arrow:", on_click=job.resume, key="resume")
        else:
            st.button(
                "Pause",
                icon=":material/pause:",
                on_click=job.pause,
                key="pause",
                disabled=shot.status != "running" or shot.cancelling,
            )
        st.button(
            "Stop",
            icon=":material/stop:",
            on_click=job.cancel,
            key="stop",
            disabled=shot.cancelling,
            help="Ends the run at its next step and keeps the partial result",
        )
        st.caption(f"{shot.elapsed:.0f} s")


def _restarts(restarts: RestartCurves | None, curves: dict, total: int, live: bool) -> None:
    """Every restart as a thin line over the stair of bandwidths."""
    if restarts is None:
        return
    option = figures.restart_scores(restarts, curves.get("sigma"), total, st.context.theme.type == "dark")
    if option is None:
        return
    st.markdown("**Restarts**", help="Each line is one start of the search, coloured by the last score it reached.")
    st.echarts_chart(option, key="live_restarts", height=345, alt="Score of every restart over the steps; below, sigma")
    st.caption(" ".join(restart_words(restarts, live)))
    if not live:
        _restart_table(restarts)


def restart_words(restarts: RestartCurves, live: bool) -> list[str]:
    """What the chart of restarts shows, and what it leaves out."""
    drawn = len(figures.drawn_restarts(restarts))
    out = [
        "Scores of all steps are J at the judging σ = 0.2, whatever σ the climb is at, so that they compare; expect "
        "jumps where σ drops.",
        f"{restarts.seen:,} restart{'s' * (restarts.seen != 1)}, {len(restarts.pruned):,} given up (crosses).",
    ]
    if drawn < restarts.seen:
        best = min(drawn, figures.DRAWN_BEST)
        out.append(
            f"Drawn are the {best} that ended highest and {drawn - best} spread evenly over the ranking of the others; "
            f"{restarts.seen - drawn:,} are not drawn."
        )
    if live:
        out.append("While the run goes on, lines are thinned to 100 points; the finished chart has all of them.")
    return out


def _restart_table(restarts: RestartCurves) -> None:
    rows = [
        {
            "restart": restart,
            "last score": figures.last_known(values),
            "last step": steps[-1],
            "given up after step": restarts.pruned.get(restart),
            "best": "★" if restart == restarts.best else "",
        }
        for restart, (steps, values) in restarts.curves.items()
    ]
    table = pd.DataFrame(rows).sort_values("last score", ascending=False)
    table["given up after step"] = table["given up after step"].astype("Int64")
    some = "" if len(table) == restarts.seen else f", the best {len(table)} of {restarts.seen:,}"
    with st.expander(f"Restarts as a table{some}"):
        st.dataframe(table, hide_index=True, key="restart_table", alt="Restarts with their last score")


def _curves(
    run: Run, curves: dict, total: int, phases: dict[str, dict] | None = None, phase: str = "", searched: bool = False
) -> None:
    """Scores and what the method reports: of a run that goes on its ``phase``, of one that is done those asked for."""
    dark = st.context.theme.type == "dark"
    if searched:  # drawn as the stair below the restarts
        curves = {name: curve for name, curve in curves.items() if name != "sigma"}
    references = run.record.get("references", {})
    left, right = st.columns(2)
    scores = figures.live_scores(curves, references, total, dark)
    with left:
        if scores is None:
            st.caption("The first figures appear with the first step.")
        else:
            left_out = (
                " MRR of seeds left out: each seed, as if it had no part in the anchors, among the seeds (500 at "
                "most), both ways together."
                if figures.LEFT_OUT in curves
                else ""
            )
            st.markdown(
                "**Retrieval on the way**",
                help="On at most 1,000 pairs that are no seeds. Dashed: what the "
                f"seeds alone give. Dotted: what as many true pairs give.{left_out}",
            )
            st.echarts_chart(
                scores,
                key="live_scores",
                height=250,
                alt="Mean reciprocal rank both ways over the steps, with the seed baseline",
            )
    with right:
        if phases and len(phases) > 1:
            phase = st.segmented_control("Phase", list(phases), default=list(phases)[-1], required=True, key="phase")
            curves = phases[phase]
        losses = figures.live_losses(curves, total, dark)
        if losses is None:
            _quantities(curves, total, phase, dark)
        else:
            _losses(losses)
    if losses is not None:
        with left:
            _quantities(curves, total, phase, dark)


def _losses(losses: dict) -> None:
    st.markdown(
        "**Loss and its terms**",
        help="Each term as it is, before its weight; the dashed line is their weighted sum, which is what falls. Terms "
        "may rise when others gain more. A low loss is no sign of success: watch the seeds left out.",
    )
    terms = ", ".join(line["name"] for line in losses["series"])
    st.echarts_chart(losses, key="live_losses", height=430, alt=f"Over the steps: {terms}")


def _quantities(curves: dict, total: int, phase: str, dark: bool) -> None:
    """What the method itself reports: lines, or the grid of settings it chooses from."""
    grid = figures.selection_grid(curves, dark) if phase == "select" else None
    if grid is not None:
        st.markdown(
            "**Which setting finds the held-out anchors**",
            help="Mean rank of the partners of the anchors held out, both ways, by the coupling: the smallest is used.",
        )
        height = 60 + 26 * len(grid["yAxis"]["data"])
        st.echarts_chart(grid, key="selection_grid", height=height, alt="Mean rank of held-out anchors by setting")
        return
    quantities = figures.live_quantities(curves, total, dark)
    if quantities is None:
        return
    st.markdown(
        "**What the method reports**",
        help="Each line is scaled by its own largest value. A low loss is no sign of success: it is lowest when "
        "anchors have collapsed.",
    )
    height = 200 + figures.LEGEND_LINE * len(quantities["series"])
    st.echarts_chart(quantities, key="live_quantities", height=height, alt="Loss and other quantities")


def _moving_map(s: state.State, run: Run, frame: int | None) -> None:
    if frame is None:
        return
    fixed, moving = run.frame(None), run.frame(frame)
    if fixed is None or moving is None or not state.is_of_data(run, s.data):
        return
    x, y = (fixed, moving) if run.record["moving"] == "y" else (moving, fixed)
    maps.joint_map(s, run, x, y, f"step map {frame + 1}", key="live_map")


def _result(s: state.State, run: Run) -> None:
    r = run.record
    if run.status == "failed":
        st.error(f"Run {plain(run.title)} failed: {plain(r['message'])}")
    elif run.status == "cancelled":
        st.warning(f"Run {plain(run.title)} was stopped." + ("" if run.usable else " It kept no result."))
    if not state.is_of_data(run, s.data):
        st.warning("This run was made from other data than those at hand (older data).")
    if "verdict" in r:
        LEVELS.get(r["verdict"]["level"], st.info)(f"**{plain(run.title)}** {r['verdict']['text']}")
    for note in r["notes"]:
        st.caption(f":material/info: {plain(note)}")
    if "converged" in r and not r["converged"] and run.status == "done":
        st.caption(":material/warning: Not converged: the method stopped before its own criterion was met.")
    history = run.history()
    if history is not None and len(history):
        curves, total, restarts = curves_of(history), int(history["iteration"].max()), _stored_restarts(run)
        _restarts(restarts, curves, total, live=False)
        _curves(run, curves, total, phases_of(history), searched=restarts is not None)
    if not run.usable:
        return
    if r["metrics"] and "x_to_y" in r["metrics"]:
        metrics_table(run.title, r["metrics"], ("r@1", "r@10", "mrr"))
    _health(r)
    _confidence(r)
    arrays = state.analysis(run)
    if state.is_of_data(run, s.data):
        maps.joint_map(s, run, arrays["map_x"], arrays["map_y"], "result", key="result_map")
        _anchors(s, run)
        mixtures.section(s, run)
    st.caption(
        f"{r['steps']} steps in {r['seconds']:.1f} s · at most {r['peak_memory_mb']:,.0f} MB · seed {r['seed']} · "
        f"seeds: {plain(r.get('seeds_origin') or str(r['seeds']))} · "
        f"preprocessing {', '.join(r['preprocess']) or 'none'} · folder {run.folder}"
    )
    if st.button("Read the neighbours", type="primary", icon=":material/manage_search:"):
        st.switch_page(router.RETRIEVAL)


def _stored_restarts(run: Run) -> RestartCurves | None:
    path = run.folder / "restarts.parquet"
    return _read_restarts(str(run.folder), path.stat().st_mtime) if path.exists() else None


@st.cache_resource(show_spinner=False, max_entries=8)
def _read_restarts(folder: str, stamp: float) -> RestartCurves | None:
    return Run.load(folder).restart_curves()


def phases_of(history: pd.DataFrame) -> dict[str, dict[str, tuple[list, list]]]:
    """Curves by phase, of those phases that report something; those that report the same go under the first of them."""
    first: dict[frozenset, str] = {}
    under = {}
    for phase, part in history.groupby("phase", sort=False):
        reported = frozenset(curves_of(part)) - frozenset(figures.SCORES)
        if reported:
            under[phase] = first.setdefault(reported, phase)
    groups = history["phase"].map(under)
    return {phase: curves_of(history[groups == phase]) for phase in first.values()}


def curves_of(history: pd.DataFrame) -> dict[str, tuple[list, list]]:
    """Curves by metric name from a stored history; rows without a value are left out."""
    out = {}
    for name in history.columns.drop(["iteration", "phase"], errors="ignore"):
        known = history[["iteration", name]].dropna()
        if len(known):
            out[name] = (known["iteration"].tolist(), known[name].tolist())
    return out


def _health(r: dict) -> None:
    """The label-free checks, each with what it means."""
    h = r["health"]
    held = h["held_out"]
    tiles = [
        (
            "Mutual neighbours",
            f"{h['mutual_rate']:.0%}",
            f"Rows that are each other's nearest across the spaces; by chance {h['mutual_chance']:.1%}. "
            "High for a run that is consistently wrong, too.",
        ),
        (
            "Held-out seeds, MRR",
            f"{held['mrr']:.2f}" if held else "–",
            f"Of {held['count']} seeds left out in turn, {held['hits']} found their partner among the {held['near']} "
            f"nearest; by luck {held['expected']:.2g}."
            if held
            else f"Not measured: {h['held_out_skipped']}.",
        ),
        *(
            (
                f"N₁₀ skewness {arrow}",
                f"{h['n10_skewness'][way]:.1f}",
                "How unequally rows are drawn as one of the 10 nearest: high where a few hubs are near to everything.",
            )
            for way, arrow in figures.WAY_NAMES.items()
        ),
    ]
    anchors = (r["metrics"] or {}).get("anchors")
    if anchors:
        tiles.append(
            (
                "Anchors found",
                f"{anchors['found']:.0%}",
                f"Anchors, seeds left out, that lie on their true partner; {anchors['count']} anchors on "
                f"{anchors['distinct']} distinct rows.",
            )
        )
    for column, (label, value, help) in zip(st.columns(len(tiles)), tiles, strict=True):
        column.metric(label, value, help=help)


CONFIDENCE = {
    "score": (
        "Score J at σ = 0.2",
        "{:.3g}",
        "Mean kernel between the rows of the two sides, of the best restart. Compare it between runs on the same data "
        "only.",
    ),
    "fit": (
        "Fit",
        "{:.2f}",
        "The score of the map in the end over the geometric mean of each side's score with itself: near 1 when one "
        "side lies on the other as it lies on itself. High does not prove the map right.",
    ),
    "margin": (
        "Margin",
        "{:.2f}",
        "Log score of the best map above the best different one. Below 0.1 the two are not told apart: ambiguous, "
        "seeds are needed.",
    ),
    "votes": ("Votes", "{:.0f}", "Restarts, of those that climbed to the end, that ended in the best map."),
    "restarts": ("Not given up", "{:.0f}", "Restarts that climbed to the end; votes are counted among them."),
    "left_out": (
        "Left out, cosine",
        "{:.2f}",
        "How well coordinates that the search did not look at agree between matched rows, above chance: mean cosine.",
    ),
    "left_out_z": ("Left out, z", "{:.0f}", "The same in standard errors over matches drawn at random."),
    "left_out_pairs": ("Left out, pairs", "{:.0f}", "Matched rows that this was read on."),
}
CONFIDENCE_COLUMNS = 4


def _confidence(r: dict) -> None:
    """What the method itself has of how sure it is; figures it did not find are left out."""
    told = r["health"].get("confidence") or {}
    known = {name: value for name, value in told.items() if value is not None}
    if not known:
        return
    tiles = list(known.items())
    for start in range(0, len(tiles), CONFIDENCE_COLUMNS):
        columns = st.columns(CONFIDENCE_COLUMNS)
        for column, (name, value) in zip(columns, tiles[start : start + CONFIDENCE_COLUMNS], strict=False):
            label, form, help = CONFIDENCE.get(name, (name.replace("_", " ").capitalize(), "{:.3g}", None))
            column.metric(label, form.format(value), help=help)


def _anchors(s: state.State, run: Run) -> None:
    """Which row each x anchor was matched to, and how many distinct rows that are (collapse shows as few)."""
    arrays = run.alignment_arrays()
    if "anchors" not in arrays:
        return
    x, y = s.data.x, s.data.y
    pairs = arrays["anchors"]
    seeds = {tuple(p) for p in run.pairs[0].array.tolist()}
    table = {
        "A": x.names[pairs[:, 0]],
        "B": y.names[pairs[:, 1]],
        "origin": ["seed" if tuple(p) in seeds else "found" for p in pairs.tolist()],
    }
    if s.data.truth is not None:
        partner = s.data.truth.partner(len(x))[pairs[:, 0]]
        table["right"] = ["✓" if a == b else "" if b < 0 else "✗" for a, b in zip(pairs[:, 1], partner, strict=True)]
    distinct = len(np.unique(pairs[:, 1]))
    with st.expander(f"Anchors: {len(pairs)} on {distinct} distinct rows of {y.title}"):
        st.dataframe(pd.DataFrame(table), hide_index=True, key=f"anchors_{run.id}", alt="Anchors and their matches")
