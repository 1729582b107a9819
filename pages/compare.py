"""Compare: methods by sweeps over seed budgets and wrong seeds; and spaces, every ordered pair of those at hand."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import streamlit as st

from pages._ui import figures, forms, gallery, router, runner, state, stitched
from pages._ui.header import plain
from relcore import experiments, stitching, store
from relcore.errors import InputError
from relcore.experiments import Data, Kept, Sweep
from relcore.stitching import NO_CLASSIFIER, Settings
from relcore.stitchings import Stitching

router.ensure()

WHERE = {"own": "its own", "here": "the data at hand"}
LOOKED_ALONG = ("varied", "overlap", "pool", "corruption", "seeds")
JUDGES = {"score": "score J at σ = 0.2", "fit": "fit: score over each side's own"}
WHAT = {"runs": "Runs", "methods": "Methods, by sweeps", "spaces": "Spaces, all ordered pairs"}
TOP = 0.3  # of the cells by score: where the paper finds the score to rank


def main() -> None:
    s = state.page_state()
    st.title("Compare", anchor=False)
    what = st.segmented_control(
        "Compare",
        list(WHAT),
        default="methods" if "sweep" in st.query_params else "runs",
        required=True,
        format_func=WHAT.get,
        key="compare_what",
        bind="query-params",
        persist_state="session",
        label_visibility="collapsed",
    )
    if what != "methods":
        st.query_params.pop("sweep", None)
    if what == "runs":
        gallery.section(s)
    elif what == "spaces":
        ordered_pairs(s)
    else:
        sweeps(s)


def sweeps(s: state.State) -> None:
    left, right = st.columns([1, 2.4], gap="large")
    with left:
        sweep = choose(s)
        if sweep is not None:
            control(s, sweep)
    if sweep is not None:
        with right:
            watch(sweep)


def choose(s: state.State) -> Sweep | None:
    """The sweep and its data; None when it cannot be done, after saying why."""
    known = experiments.shipped()
    asked = st.query_params.get("sweep", "")
    names = list(known)
    name = st.selectbox(
        "Sweep",
        names,
        index=names.index(asked) if asked in names else names.index("corruption"),
        format_func=lambda n: title_of(str(known[n])),
        key="sweep_choice",
        persist_state="session",
    )
    if st.query_params.get("sweep") != name:
        st.query_params["sweep"] = name
    try:
        sweep = experiments.read(known[name])
        st.caption(plain(" ".join(sweep.description.split())))
        where = st.radio(
            "Data",
            list(WHERE),
            format_func=lambda w: WHERE[w] + (f": {of_sweep(sweep)}" if w == "own" else f": {of_state(s)}"),
            key="sweep_data",
            persist_state="session",
        )
        if where == "here":
            sweep, notes = sweep.on(at_hand(s.data))
            for note in notes:
                st.caption(f":material/info: {note}")
        sweep.check()
    except InputError as e:
        st.error(plain(str(e)))
        return None
    return sweep


def title_of(path: str) -> str:
    try:
        return experiments.read(path).title
    except InputError:
        return path.rpartition("/")[2]  # choosing it says what is wrong with it


def of_sweep(sweep: Sweep) -> str:
    d = sweep.data
    return f"sample {d.sample}" if d.sample else plain(f"{Path(d.x).name} and {Path(d.y).name}")


def of_state(s: state.State) -> str:
    return f"{plain(s.data.x.title)} and {plain(s.data.y.title)}"


def at_hand(data: state.Data) -> Data:
    """The data at hand as a worker finds them."""
    if data.sample:
        return Data(sample=data.sample)
    x, y = store.put_space(data.x, data.report_x), store.put_space(data.y, data.report_y)
    pairs = "" if data.truth is None else store.put_pairs(data.truth, data.pairing, data.problems)
    return Data(x=x, y=y, pairs=pairs, pair_by="none", kept=True)


def control(s: state.State, sweep: Sweep) -> None:
    """What it asks for, what that costs, and the buttons."""
    budgets, shares = (", ".join(f) for f in (map("{:,}".format, sweep.seeds), map("{:.0%}".format, sweep.corruption)))
    more = ""
    if sweep.pool != (0,):
        pools, shared = map("{:,}".format, sweep.pool), map("{:.0%}".format, sweep.overlap)
        more = f"pools {', '.join(pools)} · {', '.join(shared)} shared · {sweep.test:,} pairs scored · "
    for name, values in dict.fromkeys(e.grid for e in sweep.entrants if e.grid is not None):
        more += f"{name} {', '.join(map(str, values))} · "
    st.caption(
        f"{'; '.join(plain(e.label) for e in sweep.entrants)} · seeds {budgets} · wrong {shares} · {plain(more)}"
        f"{len(sweep.random_seeds)} random seeds"
    )
    jobs = forms.processes("cells", "sweep_jobs")
    kept = experiments.find(sweep)
    rows = {} if kept is None else kept.rows()
    job = None if kept is None else state.job_of(kept.folder.name)
    cells = sweep.cells()
    left = sum(key not in rows or bool(rows[key].get("error")) for key in cells)
    expected = sweep.seconds(rows)
    st.caption(
        f"Cost: {left:,} of {len(cells):,} cells are to be done"
        + (f", about {forms.seconds(expected / jobs)}" if expected and left else "")
        + ". Finished cells are kept and not done again."
    )
    if job is not None and job.active:
        with st.container(horizontal=True):
            paused = job.status == "paused"
            st.button(
                "Resume" if paused else "Pause",
                icon=":material/play_arrow:" if paused else ":material/pause:",
                on_click=job.resume if paused else job.pause,
                key="sweep_pause",
                help="Runs of the Align page wait for a sweep; a paused one lets them go first.",
            )
            st.button("Stop", icon=":material/stop:", on_click=job.cancel, key="sweep_stop", help="Finished cells stay")
        return
    elsewhere = kept is not None and kept.active
    if elsewhere:
        st.info("Another process is working on this sweep; its cells appear here.")
    st.button(
        "Run" if left == len(cells) else "Run the rest",
        type="primary",
        icon=":material/play_arrow:",
        key="sweep_run",
        disabled=elsewhere or not left,
        on_click=press,
        args=(s, sweep, jobs),
        help="In the background: it goes on when you leave this page." if left else "All cells are done.",
    )


def press(s: state.State, sweep: Sweep, jobs: int) -> None:
    try:
        runner.start_sweep(s, sweep, jobs)
    except InputError as e:
        s.notice = str(e)


def watch(sweep: Sweep) -> None:
    kept = experiments.find(sweep)
    if kept is None:
        st.info("Nothing of this sweep is done yet. **Run** draws its curves here, cell by cell.")
        return
    job = state.job_of(kept.folder.name)
    going = kept.active or (job is not None and job.active)

    @st.fragment(run_every=1.0 if going else None, key="sweep_live")
    def body() -> None:
        fresh = experiments.find(sweep)
        if fresh is None:
            st.rerun()
        if going and not (fresh.active or (job is not None and job.active)):
            st.rerun()
        status(fresh, sweep, job)
        results(sweep, fresh.table(sweep))

    body()


def status(kept: Kept, sweep: Sweep, job) -> None:
    rows, cells = kept.rows(), sweep.cells()
    done = sum(key in rows and not rows[key].get("error") for key in cells)
    shot = job.snapshot() if job is not None else None
    word = shot.status if shot is not None and shot.active else kept.status
    message = kept.record["message"] or (shot.message if shot is not None else "")
    st.progress(
        done / len(cells),
        text=f"**{word}** · {done:,} of {len(cells):,} cells" + (f" · {plain(message)}" if message else ""),
    )


def results(sweep: Sweep, table: pd.DataFrame) -> None:
    """Curves, score against accuracy, and the table, of the cells there are."""
    failures(table)
    values = experiments.columns(table)
    if not values:
        st.caption("The first cell is on its way.")
        return
    dark = st.context.theme.type == "dark"
    labels = [e.label for e in sweep.entrants]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        value = st.selectbox("Figure", values, format_func=words, key="sweep_value", persist_state="session")
        axes = sweep.axes()
        along = next((a for a in LOOKED_ALONG if a in axes), None)
        if len(axes) > 1:
            along = st.segmented_control(
                "Along", list(axes), default=along, format_func=axes.get, required=True, key=f"sweep_along_{sweep.name}"
            )
        beside, *rest = [a for a in axes if a != along] or [""]
        for axis in rest:
            at = st.selectbox(axes[axis].capitalize(), experiments.in_order(table[axis]), key=f"sweep_at_{axis}")
            table = table[(table[axis] == at) | table[axis].isna()]
    if along is not None:
        bands = experiments.bands(table, value, along)
        st.plotly_chart(
            figures.sweep_curves(bands, labels, along, words(value), dark, beside=beside, axis=axes[along]),
            key="sweep_curves",
            alt=f"{words(value)} of each method along the {axes[along]}",
        )
        least, most = bands["n"].min(), bands["n"].max()
        over = f"{most}" if least == most else f"{least} to {most}"
        st.caption(f"Lines are means, bands go from the least to the greatest, over {over} random seeds.")
    scores(table, labels, value, dark)
    with st.expander(f"Table of {len(table)} cells", expanded=along is None):
        st.dataframe(table, hide_index=True, key="sweep_table", alt="Every cell of the sweep with its figures")


def failures(table: pd.DataFrame) -> None:
    failed = table[table["error"] != ""]
    if not len(failed):
        return
    with st.expander(f"{len(failed)} cells failed; Run tries them again", icon=":material/warning:"):
        names = [c for c in ("label", *experiments.AXES, "seed", "error") if c in failed]
        st.dataframe(failed[names], hide_index=True, key="sweep_failed", alt="Cells that failed, with the reason")


def scores(table: pd.DataFrame, labels: list[str], value: str, dark: bool) -> None:
    """Does the score predict good alignments?"""
    if not set(JUDGES) <= set(table.columns) or value in experiments.CONFIDENCE:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(
            "**Score against accuracy**",
            help="A point a cell of the methods that score themselves, without truth and without labels. Where the "
            "score ranks cells as the figure does, the restart that scores best can be trusted. Scores compare between "
            "cells that search the same number of axes; each random seed draws its own rows, which shifts the score of "
            "all its cells, but hardly their fit.",
        )
        judge = st.segmented_control(
            "Score", list(JUDGES), default="score", required=True, key="sweep_judge", label_visibility="collapsed"
        )
    known = table[table[judge].notna() & table[value].notna()]
    if len(known) < 3:
        st.caption(f"{len(known)} cells have a {judge}; at least 3 are drawn.")
        return
    st.plotly_chart(
        figures.score_scatter(known, labels, judge, value, (JUDGES[judge], words(value)), dark),
        key="sweep_scores",
        alt=f"Score of each cell against {words(value)}",
    )
    top = known.nlargest(round(TOP * len(known)), judge)
    rho, best = (experiments.spearman(some[judge], some[value]) for some in (known, top))
    told = "No rank correlation: one of the two does not vary" if rho is None else f"Spearman's ρ = {rho:.2f}"
    st.caption(
        f"{told} over n = {len(known)} cells"
        + (f"; {best:.2f} over the {len(top)} with the highest {judge}" if best is not None else "")
        + f". The cell with the highest {judge} has {known.loc[known[judge].idxmax(), value]:.3f}; the best of all has "
        f"{known[value].max():.3f}."
    )


def words(value: str) -> str:
    """A column of the table, as a person says it."""
    name, _, way = value.partition(" ")
    titles = {"stitching": "stitching accuracy", "mrr": "MRR", "mutual_rate": "mutual neighbours", "score": "score J"}
    name = titles.get(name, name.upper() if name.startswith("r@") else name)
    return f"{name} {figures.WAY_NAMES[way]}" if way else name


# --------------------------------------------------------------------------------------------------- all ordered pairs


def ordered_pairs(s: state.State) -> None:
    """How alike the same items are described in every two of the spaces at hand, by every representation."""
    data = s.data
    st.caption(
        "The same items in every ordered pair of the spaces at hand, described in common terms: is a row's partner "
        "found, and how alike are the two descriptions? Labels have no part."
    )
    st.markdown("\n".join(f"- {plain(stitched.name(data, i))}" for i in range(len(data.listed))))
    kept = stitched.with_partners(data)
    if kept is None:
        begin(s)
        return
    job = state.job_of(kept.folder.name)
    if stitched.going(kept, job):

        @st.fragment(run_every=1.0, key="pairs_live")
        def body() -> None:
            fresh = Stitching.load(kept.folder)
            if not stitched.going(fresh, job):
                st.rerun()
            results = fresh.results()
            stitched.progress(fresh, job, len(results), "pairs")
            stitched.all_pairs(fresh, data, stitched.summary(results), stitched.ALIKE, "pairs")

        body()
        return
    stitched.ended_early(kept)
    st.caption(f"{plain(stitched.describe(kept))}. Other representations, splits and labels: on the Stitching page.")
    results = kept.results()
    stitched.failures(kept, results)
    stitched.all_pairs(kept, data, stitched.summary(results), stitched.ALIKE, "pairs")
    with st.container(horizontal=True, vertical_alignment="center"):
        st.page_link(router.STITCHING, label="Stitching", icon=":material/join:")
        explain_pairs()


def begin(s: state.State) -> None:
    """Nothing is computed yet: the button that mends it, or why it cannot be."""
    rows = s.data.spaces.rows
    if rows is None or len(rows) < 8:
        known = "It is not known which rows are" if rows is None else f"Only {len(rows)} items are known to be"
        st.info(f"{known} the same items in all spaces, so that there are no partners to look for.")
        st.page_link(router.DATA, label="Say how rows pair up", icon=":material/scatter_plot:")
        return
    settings = Settings(
        classifier=NO_CLASSIFIER,
        ways=stitching.USUAL,
        anchors=stitched.usual_anchors(len(rows)),
        seeds=max(1, len(s.seeds.pairs)),
    )
    st.info("Nothing is computed yet for these spaces.")
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            "Compare all ordered pairs",
            type="primary",
            icon=":material/play_arrow:",
            key="pairs_run",
            on_click=press_pairs,
            args=(s, settings),
            help="In the background: it goes on when you leave this page.",
        )
        seconds = forms.seconds(stitching.estimate(s.data.spaces, settings))
        st.caption(f"About {seconds}: {len(settings.ways)} relative representations and the references.")


def press_pairs(s: state.State, settings: Settings) -> None:
    try:
        runner.start_stitching(s, settings)
    except InputError as e:
        s.notice = str(e)


def explain_pairs() -> None:
    with st.popover("How is this computed?", type="tertiary"):
        st.markdown(
            "A quarter of the items is set aside; anchors, means and covariances are taken of the others. Of those set "
            f"aside (at most {stitching.JUDGED:,}), each row of the encoder's space looks for its partner among "
            "those of the decoder's, by cosine.\n"
            + "\n".join(f"- **{f.title}**: {f.help}." for f in stitched.ALIKE.values())
            + "\n\n"
            "Definitions as in arXiv 2605.30596. RR_std and nMSE compare within one similarity only."
        )


main()
