"""Runs side by side on the Compare page: what they are, how they score, where one finds what the other misses."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from pages._ui import downloads, figures, opened, router, state, tables
from pages._ui.header import plain
from pages._ui.selection import select
from relcore import comparison, report, runs, sessions
from relcore.analysis import RULES, WAYS
from relcore.comparison import Group
from relcore.errors import InputError
from relcore.runs import Run

WAY_WORDS = {"x_to_y": "A → B", "y_to_x": "B → A"}
RANKS = ((1, 1), (2, 2), (3, 5), (6, 10), (11, 50), (51, None))  # classes of ranks, from and to
MOST_MAPS = 6
SCORES = ("r@1", "r@10", "mrr")


def section(s: state.State) -> None:
    found, unreadable = runs.survey()
    damaged = {run.id: f"{run.title}: {run.damage}" for run in found if run.damage} | unreadable
    if damaged:
        faults(damaged)
    done = [run for run in found if not run.active and "pairs" not in run.damage]  # without pairs it has no group
    if not done:
        st.info("No finished run is here yet. Each run of the Align page is kept, and appears here.")
        return
    group = choose_group(s, comparison.groups(done))
    if group is None:
        return
    chosen = table(s, group)
    if not chosen:
        st.caption("Pick rows to rename, annotate, delete, export or look at runs; two or more to compare them.")
        return
    actions(s, chosen)
    usable = [run for run in chosen if run.usable]
    if len(usable) > 1:
        maps(usable)
        agreement(usable)
        duel(s, usable)


def faults(damaged: dict[str, str]) -> None:
    with st.expander(f"{len(damaged)} damaged or unreadable", icon=":material/warning:"):
        for name, why in damaged.items():
            words, button = st.columns([6, 1], vertical_alignment="center")
            words.markdown(plain(f"{name}: {why}"))
            button.button("Delete", key=f"gallery_fault_{name}", on_click=remove, args=(name,))


def remove(run_id: str) -> None:
    try:
        runs.delete(run_id)
    except (InputError, OSError) as e:
        state.current().notice = str(e)


def choose_group(s: state.State, groups: list[Group]) -> Group | None:
    """Runs of the data at hand first; runs of other data are another list and never in the same one."""
    groups.sort(key=lambda g: not state.is_of_data(g.runs[0], s.data))
    titles = opened.distinct({g.key: f"{g.title} · {len(g.runs)} run{'s' * (len(g.runs) != 1)}" for g in groups})
    if len(groups) == 1:
        st.caption(plain(titles[groups[0].key]))
        return groups[0]
    key = st.selectbox("Runs of", list(titles), format_func=titles.get, key="gallery_group", persist_state="session")
    return next((g for g in groups if g.key == key), groups[0])


# ---------------------------------------------------------------- the table


def table(s: state.State, group: Group) -> list[Run]:
    """The runs of a group with their figures; returns those picked."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        rule = st.selectbox(
            "Neighbours by", list(RULES), format_func=RULES.get, key="gallery_rule", bind="query-params", width=240
        )
        together = st.toggle(
            "Mean over seeds",
            key="gallery_together",
            persist_state="session",
            help="Runs that differ by random seed, or by which seeds were drawn, are one line: mean ± deviation.",
        )
    stamps = tuple((run.id, run.record.get("title"), run.status, stamp(run)) for run in group.runs)
    frame = _figures(stamps, rule, group.runs)
    names = [c for c in frame.columns if c.rsplit(" ", 1)[0] in SCORES]
    pairs = comparison.scored([r for r in group.runs if r.usable] or group.runs)
    if together:
        lines = comparison.over_seeds(frame)
        shown = pd.DataFrame(
            {
                "run": lines["title"],
                "method": lines["method"],
                "status": lines["status"],
                "seeds": lines["seeds"],
                "runs": lines["n"],
            }
        )
        for name in names:
            shown[heading(name)] = [mean_words(m, d) for m, d in zip(lines[name], lines[f"{name} sd"], strict=True)]
        st.dataframe(shown, hide_index=True, key="gallery_means", alt="Runs of one setup together, mean and spread")
        told(pairs, group)
        return []
    base = group.runs[-1]
    shown = pd.DataFrame(
        {
            "run": frame["title"],
            "method": frame["method"],
            "settings": [comparison.difference(run, base) for run in group.runs],
            "status": frame["status"],
            "verdict": frame["verdict"],
            "seeds": frame["seeds"],
            **{heading(name): frame[name] for name in names},
            "seconds": frame["seconds"],
            "note": [run.record.get("annotation", "") for run in group.runs],
        }
    )
    event = st.dataframe(
        shown,
        hide_index=True,
        key=f"gallery_{shown_key(group)}",
        on_select="rerun",
        selection_mode="multi-row",
        alt="Runs of these data with their figures",
        column_config={
            "run": st.column_config.TextColumn(width=150, pinned=True),
            "settings": st.column_config.TextColumn(width=220, help=f"What differs from {base.title}, the oldest."),
            "seconds": st.column_config.NumberColumn(format="%.1f"),
            **{heading(n): st.column_config.NumberColumn(format="%.3f", width=80) for n in names},
        },
    )
    told(pairs, group)
    return [group.runs[i] for i in event.selection.rows if i < len(group.runs)]


def shown_key(group: Group) -> str:
    """Rows are picked by number, so that another list of runs must begin with none picked."""
    return hashlib.sha256(" ".join(run.id for run in group.runs).encode()).hexdigest()[:16]


def told(pairs, group: Group) -> None:
    words = (
        "No true pairs are known, so nothing is scored."
        if pairs is None
        else f"Scored on n = {len(pairs):,} true pairs that are a seed of none of these runs; MRR is cut at rank 10."
    )
    st.caption(words + (" The runs were not all given the same seeds." if group.seeds_differ else ""))


def stamp(run: Run) -> float:
    path = run.folder / "analysis.safetensors"
    return path.stat().st_mtime if path.exists() else 0.0


@st.cache_data(show_spinner="reading the runs", max_entries=8)
def _figures(stamps: tuple, rule: str, _runs: Sequence[Run]) -> pd.DataFrame:
    return comparison.table(_runs, [run.analysis if run.usable else None for run in _runs], rule)


def heading(name: str) -> str:
    figure, way = name.rsplit(" ", 1)
    return f"{figure.upper()} {WAY_WORDS[way]}"


def mean_words(mean: float, deviation: float) -> str:
    if np.isnan(mean):
        return ""
    return f"{mean:.3f}" + ("" if np.isnan(deviation) else f" ± {deviation:.3f}")


# ---------------------------------------------------------------- what can be done with them


def actions(s: state.State, chosen: list[Run]) -> None:
    one = chosen[0] if len(chosen) == 1 else None
    usable = [run for run in chosen if run.usable]
    with st.container(horizontal=True):
        if one is not None and one.usable and st.button("Open", icon=":material/open_in_new:", key="gallery_open"):
            try:
                state.open_run(s, one.id)
                st.switch_page(router.RETRIEVAL)
            except InputError as e:
                st.error(plain(str(e)))
        if one is not None:
            with st.popover("Rename, annotate", icon=":material/edit:"):
                st.text_input("Title", one.title, key=f"gallery_title_{one.id}")
                st.text_area("Note", one.record.get("annotation", ""), key=f"gallery_note_{one.id}")
                st.button("Keep", key="gallery_keep", on_click=keep, args=(one.id,))
        with st.popover(f"Delete {len(chosen)}", icon=":material/delete:"):
            st.markdown("For good: " + ", ".join(plain(run.title) for run in chosen))
            st.button(
                "Delete", key="gallery_delete", type="primary", on_click=remove_all, args=([r.id for r in chosen],)
            )
        if usable:
            st.download_button(
                "Report" if len(usable) == 1 else "Comparison report",
                partial(reported, usable),
                "report.html",
                "text/html",
                key="gallery_report",
                icon=":material/description:",
                on_click="ignore",
            )
        st.download_button(
            "Session",
            partial(session, chosen),
            "session.zip",
            "application/zip",
            key="gallery_session",
            icon=":material/inventory_2:",
            on_click="ignore",
            help="These runs with their data in one file; the Export page opens it, here or elsewhere.",
        )


def keep(run_id: str) -> None:
    """What stands in the fields now: what was typed just before the click is not yet in the page that was drawn."""
    title, note = (st.session_state[f"gallery_{field}_{run_id}"] for field in ("title", "note"))
    try:
        runs.rename(runs.find(run_id), title, note)
    except (InputError, OSError) as e:
        state.current().notice = str(e)


def remove_all(ids: list[str]) -> None:
    for run_id in ids:
        remove(run_id)


def reported(chosen: list[Run]) -> bytes:
    text = report.of_run(chosen[0]) if len(chosen) == 1 else report.of_runs(chosen)
    return text.encode("utf-8", "replace")


def session(chosen: list[Run]) -> bytes:
    return downloads.temporary(lambda path: sessions.save(path, chosen))


# ---------------------------------------------------------------- side by side


def maps(chosen: list[Run]) -> None:
    """Small maps as pictures."""
    st.markdown("**Maps** in the common frame of each run, A as dots, B as crosses")
    for column, run in zip(st.columns(3), chosen[:3], strict=False):
        column.image(picture(run.id, stamp(run), run), caption=plain(run.title))
    if len(chosen) > 3:
        for column, run in zip(st.columns(3), chosen[3:MOST_MAPS], strict=False):
            column.image(picture(run.id, stamp(run), run), caption=plain(run.title))
    if len(chosen) > MOST_MAPS:
        st.caption(f"The first {MOST_MAPS} of {len(chosen)} are shown.")


@st.cache_data(show_spinner=False, max_entries=64)
def picture(run_id: str, stamp: float, _run: Run) -> bytes:
    return report.map_png(_run, _run.analysis)


def agreement(chosen: list[Run]) -> None:
    st.markdown("**Agreement**: share of all rows whose nearest row of the other side is the same")
    titles = list(opened.distinct({run.id: run.title for run in chosen}).values())
    for column, way in zip(st.columns(2), WAYS, strict=True):
        matrix = comparison.agreement([state.analysis(run) for run in chosen], way)
        column.dataframe(
            pd.DataFrame(matrix, columns=titles, index=titles),
            key=f"gallery_agreement_{way}",
            alt=f"Agreement of the runs, {WAY_WORDS[way]}",
            column_config={t: st.column_config.NumberColumn(format="%.2f") for t in titles},
        )
        column.caption(WAY_WORDS[way])


def duel(s: state.State, chosen: list[Run]) -> None:
    """Item by item: ranks under two runs, and the rows that one finds and the other misses."""
    pairs = comparison.scored(chosen)
    if pairs is None or not len(pairs):
        return
    titles = opened.distinct({run.id: run.title for run in chosen})
    with st.container(horizontal=True, vertical_alignment="bottom"):
        first = st.selectbox("One", list(titles), format_func=titles.get, key="duel_first")
        rest = [i for i in titles if i != first]
        second = st.selectbox("Other", rest, format_func=titles.get, key="duel_second")
        way = st.segmented_control(
            "Way", WAYS, default=WAYS[0], format_func=WAY_WORDS.get, required=True, key="duel_way"
        )
    one, other = (next(run for run in chosen if run.id == i) for i in (first, second))
    counts, at = met(state.analysis(one), state.analysis(other), pairs, way)
    dark = st.context.theme.type == "dark"
    figure, cells = duel_map(counts, titles[first], titles[second], dark)
    left, right = st.columns([5, 4], gap="large")
    with left:
        event = st.plotly_chart(
            figure,
            key=f"duel_{first}_{second}_{way}",
            on_select="rerun",
            selection_mode="points",
            config={"displayModeBar": False},
            alt=f"Ranks of the true partner under {one.title} and {other.title}, {WAY_WORDS[way]}",
        )
    side = "x" if way == WAYS[0] else "y"
    rows = pairs.x if side == "x" else pairs.y
    better = int(np.tril(counts, -1).sum()), int(np.triu(counts, 1).sum())
    with right:
        st.markdown(
            f"Of n = {len(pairs):,} rows, {WAY_WORDS[way]}: **{plain(titles[first])}** ranks the partner in a better "
            f"class for {better[1]:,}, **{plain(titles[second])}** for {better[0]:,}."
        )
        mine = np.flatnonzero((at[0] == 0) & (at[1] > 0))
        theirs = np.flatnonzero((at[1] == 0) & (at[0] > 0))
        here = state.is_of_data(one, s.data)
        for label, of, key in (
            (f"Found first by {titles[first]} alone ({len(mine):,})", mine, "duel_mine"),
            (f"Found first by {titles[second]} alone ({len(theirs):,})", theirs, "duel_theirs"),
        ):
            if st.button(plain(label), key=key, disabled=not here or not len(of), icon=":material/select_all:"):
                choose(s, side, rows[of], label)
                st.rerun()
        if not here:
            st.caption("Open one of these runs to select rows: they are of other data than those at hand.")
        if s.selection.current and st.button("Look at them", icon=":material/manage_search:", key="duel_look"):
            st.switch_page(router.RETRIEVAL)
    picked = event.selection.points
    cell = tuple(map(int, cells[picked[0]["point_index"]])) if picked else None
    seen = (first, second, way, cell)
    if tables.once("duel_seen", seen) and cell is not None and state.is_of_data(one, s.data):
        of = np.flatnonzero((at[0] == cell[0]) & (at[1] == cell[1]))
        said = f"rank {rank_words(cell[0])} by {titles[first]}, {rank_words(cell[1])} by {titles[second]}"
        choose(s, side, rows[of], said)
        st.rerun()


def met(first, second, pairs, way: str) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """How many rows have which classes of ranks under two runs, int64 (R, R), and the classes of each row."""
    from relcore.analysis import ranks_of

    rows = pairs.x if way == WAYS[0] else pairs.y
    starts = np.array([low for low, _ in RANKS])
    at = tuple(np.searchsorted(starts, ranks_of(a, way)[rows], side="right") - 1 for a in (first, second))
    count = len(RANKS)
    return np.bincount(at[0] * count + at[1], minlength=count * count).reshape(count, count), at


def rank_words(i: int) -> str:
    low, high = RANKS[i]
    return f"{low}+" if high is None else f"{low}" if low == high else f"{low}–{high}"


def duel_map(counts: np.ndarray, first: str, second: str, dark: bool) -> tuple[go.Figure, np.ndarray]:
    """Counts as a heat map, coloured by their logarithm; each cell with rows has a point over it that can be picked."""
    cells = np.argwhere(counts > 0)
    low, high = ("#1B1F27", "#4BA3E3") if dark else ("#FFFFFF", "#0072B2")
    figure = go.Figure()
    figure.add_heatmap(
        z=np.log10(np.maximum(counts, 0.8)),
        colorscale=[[0, low], [1, high]],
        showscale=False,
        hoverinfo="skip",
        text=np.where(counts > 0, [[f"{n:,}" for n in line] for line in counts], ""),
        texttemplate="%{text}",
        xgap=1,
        ygap=1,
    )
    figure.add_scatter(
        x=cells[:, 1],
        y=cells[:, 0],
        mode="markers",
        marker=dict(symbol="square", size=34, color="#E69F00", opacity=0.0),
        selected=dict(marker=dict(opacity=0.6)),
        unselected=dict(marker=dict(opacity=0.0)),
        hovertext=[
            f"{counts[i, j]:,} rows: rank {rank_words(i)} by the one, {rank_words(j)} by the other" for i, j in cells
        ],
        hoverinfo="text",
        showlegend=False,
    )
    ticks = dict(tickvals=list(range(len(RANKS))), ticktext=[rank_words(i) for i in range(len(RANKS))], zeroline=False)
    reach = [-0.5, len(RANKS) - 0.5]
    figure.update_xaxes(title=f"rank by {second[:40]}", range=reach, showgrid=False, **ticks)
    figure.update_yaxes(title=f"rank by {first[:40]}", range=reach[::-1], showgrid=False, **ticks)
    figure.update_layout(
        title="Rank of the true partner under two runs", clickmode="event+select", dragmode=False, hovermode="closest"
    )
    return figures.finish(figure, height=380), cells


def choose(s: state.State, side: str, rows: np.ndarray, origin: str) -> None:
    ids = np.sort(getattr(s.data, side).ids[rows])
    s.selection.set(select(side, ids, s.data.x, s.data.y, state.link(s), origin))
