"""Mismatch: which rows of one space have no counterpart in the other, and whether the alignment can tell."""

from __future__ import annotations

import zlib

import numpy as np
import pandas as pd
import streamlit as st

from pages._ui import coverage, opened, pictures, router, runner, state
from pages._ui.header import plain
from pages._ui.maps import LETTERS, SIDES
from pages._ui.selection import NOTHING, Selection, select
from pages._ui.tables import once
from relcore.metrics import mismatch
from relcore.runs import Run
from relcore.space import Space

router.ensure()
OTHER = {"x": "y", "y": "x"}
SHOWN = 100  # rows of the list of lowest
TYPICAL = 3  # rows that stand for a region
MEASURES = {"coverage": "coverage (ratio)", "raw": "raw kernel sum (paper)"}
SAID = {"green": st.success, "amber": st.warning, "red": st.error}
UNDECLARED = ""
TALLEST = 480  # pixels of a chart of classes before it scrolls

Values = dict[str, np.ndarray]


def main() -> None:
    s = state.page_state()
    st.title("Mismatch", anchor=False)
    run = opened.finished_run(s, "Mismatch shows which rows of one space have no counterpart in the other.")
    if run is None:
        return
    arrays = state.analysis(run)
    if not mismatch.present(arrays):
        st.info(f"Run {plain(run.title)} was made before kernel sums were kept with a run; run it again to see them.")
        if runner.default_button(s, "run_from_here"):
            st.switch_page(router.ALIGN)
        return
    gates = verdicts(s, run, arrays)
    position, measure, inverted = controls(run, arrays)
    values = {side: READ[measure](arrays, side, position) for side in SIDES}
    flags = {side: mismatch.flagged(arrays, side, position) for side in SIDES}
    picture, lists = st.columns([6, 5], gap="medium")
    with picture:
        the_map(s, run, arrays, values, gates, position, measure, inverted)
    with lists:
        lowest(s, run, arrays, values, flags, position, measure)
    parts(s, run, arrays, values, flags, gates, position, measure)
    declared(s, run, arrays, position)
    explain(run, arrays)


READ = {"coverage": mismatch.coverage, "raw": mismatch.raw}


def words(measure: str) -> str:
    return "coverage" if measure == "coverage" else "mean kernel"


def stamp(run: Run) -> float:
    return (run.folder / "analysis.safetensors").stat().st_mtime


# ---------------------------------------------------------------------------------------------------- what may be said


def verdicts(s: state.State, run: Run, arrays: dict) -> dict[str, mismatch.Gate]:
    """The gate of each side, and what else speaks for care."""
    gates = {}
    for column, side in zip(st.columns(2, gap="medium"), SIDES, strict=True):
        space = getattr(s.data, side)
        other = getattr(s.data, OTHER[side])
        fingerprints = (space.fingerprint, other.fingerprint)
        gate = gates[side] = judged(str(run.folder), stamp(run), side, fingerprints, run, arrays, space, other)
        with column:
            st.markdown(
                f"**{LETTERS[side]} · {plain(space.title)}: rows with no counterpart in {LETTERS[OTHER[side]]}**"
            )
            SAID[gate.level](plain(gate.text), icon={"green": ":material/check_circle:"}.get(gate.level))
            null = float(arrays[f"mismatch/{side}/null"][mismatch.default_position(arrays)])
            if gate.level != "red" and null > 1 - mismatch.GAP:  # even half of a side covers the other that well
                st.caption(
                    f":material/blur_on: The default σ is wide here: at {null:.2f} (1 % of the null) coverage hardly "
                    "varies, so that what is missing may pass for covered. Look at smaller σ too."
                )
            differ = mismatch.seed_disagrees(arrays, side, space.labels)
            if differ is not None:
                st.caption(
                    f":material/compare_arrows: The seeds alone disagree: by them {plain(differ[1])} is lowest in "
                    f"{LETTERS[side]}, by this run {plain(differ[0])}."
                )
    if any(gate.level == "red" for gate in gates.values()):
        st.page_link(
            router.ALIGN, label="Align better first: more seeds, or another method", icon=":material/play_circle:"
        )
    if run.record["method"] == "anchordot" and any(gate.missing for gate in gates.values()):
        st.caption(
            ":material/info: AnchorDOT takes both pools to come from one distribution; with a class missing on one "
            "side its transport must put that class somewhere."
        )
    return gates


@st.cache_resource(show_spinner=False, max_entries=16)
def judged(folder: str, stamp: float, side: str, fingerprints: tuple, _run: Run, _arrays: dict, _space, _other: Space):
    return mismatch.gate(_run.record, _arrays, side, _space.labels, _other.labels)


# ------------------------------------------------------------------------------------------------------------ controls


def controls(run: Run, arrays: dict) -> tuple[int, str, bool]:
    """Number of the bandwidth, the measure, and whether the colours run the other way."""
    sigma, default = arrays["mismatch/sigma"], mismatch.default_position(arrays)
    paper = int(arrays["mismatch/paper"][0])
    key = f"mismatch_sigma_{run.id}"

    def preset(position: int) -> None:
        st.session_state[key] = position

    def named(i: int) -> str:
        return f"{sigma[i]:.3g} rad ({sigma[i] / sigma[default]:.2f}×)"

    with st.container(horizontal=True, vertical_alignment="bottom"):
        position = st.select_slider(
            "σ, reach of the kernel",
            list(range(len(sigma))),
            value=default,
            format_func=named,
            key=key,
            persist_state="session",
            width=420,
            help="Angle at which another row counts 61 %. The default is the median angle to the 10th neighbour on "
            "the own side. Values at different σ do not compare.",
        )
        st.button("Default", key="mismatch_default", on_click=preset, args=(default,), disabled=position == default)
        st.button(
            f"{mismatch.PAPER} rad (paper)",
            key="mismatch_paper",
            on_click=preset,
            args=(paper,),
            disabled=position == paper,
        )
        measure = st.segmented_control(
            "Measure",
            list(MEASURES),
            format_func=MEASURES.get,
            default="coverage",
            required=True,
            key="mismatch_measure",
            bind="query-params",
            persist_state="session",
            help="Coverage is the kernel sum to the other side over that to the own side. The raw sum is low also "
            "where the own side is thin.",
        )
        inverted = st.toggle("Invert colours", key="mismatch_inverted", bind="query-params", persist_state="session")
    if position != default:
        st.caption(
            "What is said above is read at the default σ, the only one the fits without some seeds were read at."
        )
    return position, measure, inverted


# ------------------------------------------------------------------------------------------------------------- the map


def the_map(s, run: Run, arrays, values: Values, gates, position: int, measure: str, inverted: bool) -> None:
    what, at = MEASURES[measure], f"σ = {arrays['mismatch/sigma'][position]:.3g} rad"
    grey = any(gate.level == "red" for gate in gates.values())
    if not grey and measure == "coverage" and all(f"mismatch/seed/{side}" in arrays for side in SIDES):
        by = st.segmented_control(
            "Map",
            ["this run", "the seeds alone"],
            default="this run",
            required=True,
            key="mismatch_by",
            persist_state="session",
            label_visibility="collapsed",
        )
        if by != "this run":
            values = {side: arrays[f"mismatch/seed/{side}"].astype(np.float64) for side in SIDES}
            what, at = "coverage in the relative representation by the seeds alone", "its own default σ"
    stands = coverage.coverage_map(s, run, arrays, values, words(measure), inverted=inverted, grey=grey)
    st.caption(
        "Grey: the alignment is too weak for a map of what is missing. The lists are of this alignment, not the data."
        if grey
        else f"Colour: {what}, {at}; {stands} = no counterpart on the other side. "
        "Drag to lasso, click a row to select it and its partner, Esc to clear."
    )
    follow_up(s, values)


def follow_up(s: state.State, values: Values) -> None:
    """Where to go on with rows selected here."""
    chosen = s.selection.current
    side = "x" if len(chosen.x) else "y"
    ids = getattr(chosen, side)
    if not len(ids):
        return
    with st.container(horizontal=True):
        if st.button("What do they map to?", icon=":material/manage_search:", key="mismatch_to_retrieval"):
            v = values[side][getattr(s.data, side).positions(ids)]
            s.query = (side, int(ids[np.argmin(np.where(np.isnan(v), np.inf, v))]))
            st.session_state["way"] = "x_to_y" if side == "x" else "y_to_x"
            st.switch_page(router.RETRIEVAL)
        if st.button("Add a seed there", icon=":material/link:", key="mismatch_to_seeds"):
            st.switch_page(router.SEEDS)


def choose(s: state.State, side: str, rows: np.ndarray, origin: str) -> None:
    """Select rows of one side alone: what has no counterpart selects none."""
    ids = np.sort(getattr(s.data, side).ids[rows])
    s.selection.set(Selection(ids, NOTHING.copy(), origin) if side == "x" else Selection(NOTHING.copy(), ids, origin))


# ---------------------------------------------------------------------------------------------------------- the lowest


def lowest(s, run: Run, arrays, values: Values, flags: Values, position: int, measure: str) -> None:
    """The rows least covered, of each side, with how far they lie under the null."""
    tabs = st.tabs([f"Lowest of {LETTERS[side]} · {plain(getattr(s.data, side).title)}" for side in SIDES])
    chosen = s.selection.current
    for tab, side in zip(tabs, SIDES, strict=True):
        space, v = getattr(s.data, side), values[side]
        with tab:
            ids = getattr(chosen, side)
            only = len(ids) > 0 and st.toggle(
                f"Only the {len(ids):,} selected", key=f"mismatch_only_{side}", persist_state="session"
            )
            rows = space.positions(ids) if only else np.arange(len(space))
            known = rows[~np.isnan(v[rows])]
            order = known[np.argsort(v[known], kind="stable")][:SHOWN]
            null = float(arrays[f"mismatch/{side}/null"][position])
            ratio = mismatch.coverage(arrays, side, position)[order]
            drawn, config = pictures.columns(space.media[order]) if space.media is not None else ({}, {})
            table = {"coverage": ratio, "below null": null - ratio} if null > 0 else {"coverage": ratio}
            if measure == "raw":
                table = {"mean kernel": v[order]} | table
            table |= drawn | {"name": space.names[order]}
            if space.labels is not None:
                table["label"] = [label or mismatch.NONE for label in space.labels[order]]
            event = st.dataframe(
                pd.DataFrame(table),
                hide_index=True,
                height=400,
                row_height=52 if "picture" in drawn else 36,
                key=f"lowest_{run.id}_{side}_{position}_{measure}_{s.selection.revision if only else ''}",
                on_select="ignore" if only else "rerun",  # picking one would leave it alone in the list
                selection_mode="single-row",
                alt=f"Rows of {LETTERS[side]} least covered by {LETTERS[OTHER[side]]}",
                column_config={
                    "coverage": st.column_config.NumberColumn(format="%.3f", width=75),
                    "below null": st.column_config.NumberColumn(
                        format="%.3f", width=85, help="How far under the 1 % quantile of the null; above 0 is flagged"
                    ),
                    "mean kernel": st.column_config.NumberColumn(format="%.2e", width=90),
                    "name": st.column_config.TextColumn(width=200),
                    "label": st.column_config.TextColumn(width=120),
                }
                | config,
            )
            unknown = int(np.isnan(v).sum())
            st.caption(
                f"The {len(order):,} lowest of {len(known):,} rows of {LETTERS[side]} by {words(measure)}, "
                f"{LETTERS[side]} → {LETTERS[OTHER[side]]}; {int(flags[side].sum()):,} of {len(v):,} rows are flagged."
                + (f" {unknown:,} rows have nothing in reach on either side." if unknown else "")
                + ("" if null > 0 else " No null: too few rows to cut in two halves.")
                + ("" if only else " Pick a row to select it and its partner.")
            )
            if only:
                continue
            picked = event.selection.rows
            seen = (run.id, side, position, measure, int(space.ids[order[picked[0]]]) if picked else None)
            if once(f"mismatch_picked_{side}", seen) and picked:
                name = space.names[order[picked[0]]]
                ids = space.ids[order[picked[:1]]]
                s.selection.set(select(side, ids, s.data.x, s.data.y, state.link(s), f"{name} in the list of lowest"))
                st.rerun()


# --------------------------------------------------------------------------------------------------- classes, regions


def parts(s, run: Run, arrays, values: Values, flags: Values, gates, position: int, measure: str) -> None:
    for column, side in zip(st.columns(2, gap="medium"), SIDES, strict=True):
        space = getattr(s.data, side)
        with column:
            judged = 0
            if space.labels is not None:
                judged = classes(s, run, arrays, values[side], flags[side], gates[side], side, position, measure)
            if judged < 2:  # as the gate does
                regions(s, run, arrays, side)


def classes(s, run: Run, arrays, v: np.ndarray, flags: np.ndarray, gate, side: str, position: int, measure: str) -> int:
    """The classes of a side by their median; how many of them can be judged."""
    space = getattr(s.data, side)
    rows = by_class(str(run.folder), stamp(run), side, position, measure, space.fingerprint, v, flags, space)
    letter, other = LETTERS[side], LETTERS[OTHER[side]]
    # A chart and a table keep what is picked by position, so another order of classes needs another of them.
    order = f"{zlib.crc32(chr(0).join(row.label for row in rows).encode('utf-8', 'surrogatepass')):08x}"
    st.subheader(f"Classes of {letter}, as {other} covers them", anchor=False)
    st.caption(f"Median {words(measure)}, {letter} → {other}, n = {len(v):,} · {plain(run.title)}")
    bars, table = st.tabs(["Chart", "Table"])
    with bars:
        null = float(arrays[f"mismatch/{side}/null"][position]) if measure == "coverage" else None
        figure = coverage.class_bars(
            rows, gate.missing, null, words(measure), grey=gate.level == "red", dark=st.context.theme.type == "dark"
        )
        with st.container(height=TALLEST if figure.layout.height > TALLEST else "content", border=False):
            event = st.plotly_chart(
                figure,
                key=f"mismatch_classes_{side}_{run.id}_{order}",
                on_select="rerun",
                selection_mode="points",
                config={"displayModeBar": False},
                alt=f"Median {words(measure)} of each class of {letter}, lowest first; the table tab has the numbers",
            )
        picked = event.selection.points
        pick_class(s, run, rows, side, "chart", picked[0]["point_index"] if picked else None)
    with table:
        frame = pd.DataFrame(
            {
                "class": [row.label for row in rows],
                "rows": [row.rows for row in rows],
                f"median {words(measure)}": [row.median for row in rows],
                "flagged": [row.flagged for row in rows],
                "": ["" if row.judged else "not judged" for row in rows],
            }
        )
        event = st.dataframe(
            frame,
            hide_index=True,
            key=f"mismatch_class_table_{side}_{run.id}_{order}",
            on_select="rerun",
            selection_mode="single-row",
            alt=f"Classes of {letter} by {words(measure)}",
            column_config={
                "flagged": st.column_config.NumberColumn(format="percent", help="Share of rows below the null"),
                f"median {words(measure)}": st.column_config.NumberColumn(format="%.4g"),
            },
        )
        picked = event.selection.rows
        pick_class(s, run, rows, side, "table", picked[0] if picked else None)
    few = [row for row in rows if not row.judged]
    st.caption(
        "Beside each: share of rows flagged. Click a class to select its rows."
        + (" Orange: no counterpart." if gate.missing else "")
        + (f" {len(few)} without a label or with under {mismatch.JUDGED} rows: listed, not judged." if few else "")
    )
    return len(rows) - len(few)


def pick_class(s, run: Run, rows: list[mismatch.ClassRow], side: str, where: str, number: int | None) -> None:
    label = None if number is None else rows[number].label
    if not once(f"mismatch_class_{where}_{side}", (run.id, label)) or label is None:
        return
    labels = getattr(s.data, side).labels
    here = np.flatnonzero([(each or mismatch.NONE) == label for each in labels])
    choose(s, side, here, f"class {label} of {LETTERS[side]}")
    st.rerun()


@st.cache_resource(show_spinner=False, max_entries=64)
def by_class(folder, stamp, side, position, measure, fingerprint, _values, _flags, _space: Space):
    return mismatch.by_class(_values, _flags, _space.labels)


def regions(s, run: Run, arrays, side: str) -> None:
    """Without classes to judge: rows flagged at the default bandwidth that lie together."""
    space, letter = getattr(s.data, side), LETTERS[side]
    found = mismatch.regions(arrays, side)
    st.subheader(f"Regions of {letter} not covered by {LETTERS[OTHER[side]]}", anchor=False)
    if not found:
        st.caption(f"No {mismatch.JUDGED} flagged rows of {letter} lie together (n = {len(space):,}, default σ).")
        return
    event = st.dataframe(
        pd.DataFrame(
            {
                "region": [r.number + 1 for r in found],
                "rows": [len(r.rows) for r in found],
                "share": [len(r.rows) / len(space) for r in found],
                "median coverage": [r.median for r in found],
                "typical": [", ".join(space.names[typical(arrays[f"map_{side}"], r.rows)]) for r in found],
            }
        ),
        hide_index=True,
        height=min(36 * len(found) + 40, 320),
        key=f"mismatch_regions_{side}_{run.id}",
        on_select="rerun",
        selection_mode="single-row",
        alt=f"Regions of flagged rows of {letter}, the largest first",
        column_config={
            "share": st.column_config.NumberColumn(format="percent"),
            "median coverage": st.column_config.NumberColumn(format="%.3f"),
            "typical": st.column_config.TextColumn(width=300, help="Rows in the middle of the region on the map"),
        },
    )
    st.caption(
        f"Rows flagged at the default σ that lie together, {letter} → {LETTERS[OTHER[side]]}, n = {len(space):,} · "
        f"{plain(run.title)}. They take the place of classes. Click a region to select its rows."
    )
    picked = event.selection.rows
    number = picked[0] if picked else None
    if once(f"mismatch_region_{side}", (run.id, number)) and number is not None:
        choose(s, side, found[number].rows, f"region {number + 1} of {letter}")
        st.rerun()


def typical(xy: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The rows in the middle: nearest to the region's median on the map."""
    middle = np.median(xy[rows], axis=0)
    return rows[np.argsort(((xy[rows] - middle) ** 2).sum(1), kind="stable")[:TYPICAL]]


# ------------------------------------------------------------------------------------------------------------ declared


def declared(s: state.State, run: Run, arrays: dict, position: int) -> None:
    """AUROC of a class that is known to be missing."""
    labels = {side: getattr(s.data, side).labels for side in SIDES}
    names = sorted({label for column in labels.values() if column is not None for label in column if label})
    if not names:
        return
    st.subheader("A class known to be missing", anchor=False)
    label = st.selectbox(
        "Class",
        [UNDECLARED, *names],
        format_func=lambda name: name or "none declared",
        key="mismatch_declared",
        bind="query-params",
        width=420,
        help="If you know which class one side lacks: how well low values tell its rows from all others.",
    )
    if not label:
        return
    sigma = arrays["mismatch/sigma"][position]
    for side in SIDES:
        is_missing = np.zeros(len(getattr(s.data, side)), dtype=bool) if labels[side] is None else labels[side] == label
        letter, other = LETTERS[side], LETTERS[OTHER[side]]
        if not is_missing.any():
            st.caption(f"{letter} has no rows of {plain(label)}: nothing to tell apart there.")
            continue
        columns = st.columns(4)
        for column, (measure, read) in zip(columns, READ.items(), strict=False):
            value = mismatch.auroc(read(arrays, side, position), is_missing)
            column.metric(
                f"AUROC {letter} → {other} · {MEASURES[measure]}",
                "–" if np.isnan(value) else f"{value:.3f}",
                help="Chance that a row of the class is lower than a row of another; 0.5 is a coin.",
            )
        st.caption(
            f"{int(is_missing.sum()):,} rows of {plain(label)} in {letter} against "
            f"{int((~is_missing).sum()):,} others, σ = {sigma:.3g} rad; read it where {other} lacks the class."
        )


def explain(run: Run, arrays: dict) -> None:
    sampled = [
        f" Of the {len(arrays[f'mismatch/{side}/own']):,} rows of {letter} the means run over {kept:,}, drawn at "
        "random with the run's seed; every row is judged by them."
        for side, letter in LETTERS.items()
        if (kept := int(arrays[f"mismatch/{side}/reference"][0])) < len(arrays[f"mismatch/{side}/own"])
    ]
    folds = len(arrays["mismatch/x/folds"])
    with st.popover("How is this computed?", type="tertiary"):
        st.markdown(
            "Rows are compared in the common space by K = exp(−θ²/2σ²), θ the angle between them.\n"
            "- **raw kernel sum** (the HGA paper's): mean of K over all rows of the other side.\n"
            "- **coverage**: that mean over the mean of K over the other rows of the own side; about 1 where both "
            "sides are alike, near 0 where the other side has nothing.\n"
            "- **flagged**: coverage below the 1 % quantile of a null in which the own side is cut in two halves at "
            "random and one covers the other. Of the raw sum's list too, flags are by coverage.\n"
            "- **the gate**: green needs held-out seeds found at a mean reciprocal rank of "
            f"{mismatch.QUALITY} or more. A class is called missing when at least {mismatch.SHARE:.0%} of it is "
            "flagged and its highest median over the fit and the fits without part of the seeds "
            f"({folds} here) is {mismatch.GAP} below every class that is not flagged. "
            f"A class that is on both sides needs more: half that coverage, and under {mismatch.MET:.0%} of its rows "
            f"on the other side flagged; else it may be misaligned. Without labels, a region needs half of the null. "
            f"From {mismatch.LITTLE:.0%} of a "
            "side flagged on, the spaces overlap little and no class is listed.\n\n"
            "Any alignment makes some class the lowest. Where both sides hold the same items, an exact twin dominates "
            f"the sum at small σ.{''.join(sampled)}"
        )


main()
