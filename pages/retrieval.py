"""Retrieval: whose neighbours are whose, both ways, before and after; the worst queries; the figures."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from pages._ui import maps, opened, pictures, router, state
from pages._ui.figures import WAY_NAMES, rank_histogram
from pages._ui.header import plain
from pages._ui.tables import metrics_table, rules_table
from relcore.analysis import RULES, ranks_of, rules_of
from relcore.runs import Run

router.ensure()
SIDES = {"x_to_y": ("x", "y"), "y_to_x": ("y", "x")}
RULE_HELP = (
    "CSLS lowers the score of rows that are near to everything (hubs). The inverted softmax asks how likely a row is "
    "to have this query among all. The coupling is the transport plan of the run, which shares out every row alike."
)
SCORES = {
    "nearest": "cosine in the common space",
    "csls": "twice the cosine, less the mean cosine of either row to its 10 nearest",
    "isf": "log of the query's share of this row, by cosine at temperature 1/30",
    "coupling": "log of the mass that the plan moves between the two",
}


def main() -> None:
    s = state.page_state()
    st.title("Retrieval", anchor=False)
    run = opened.finished_run(s, "Retrieval shows the neighbours each row finds in the other space.")
    if run is None:
        return
    arrays = state.analysis(run)
    figures(run)
    way, rule, k = controls(s, rules_of(arrays))
    side, other = SIDES[way]
    pick_query(s, arrays, way)
    picture, lists = st.columns([5, 6], gap="medium")
    with lists:
        query_tables(s, arrays, way, rule, k)
    with picture:
        maps.retrieval_map(s, run, arrays, way, rule, k)
    worst_and_ranks(s, run, arrays, way, rule)


def figures(run: Run) -> None:
    """R@k, MRR, Jaccard and cosine of the run beside its references; and by each rule, teacher and student with it."""
    metrics = run.record.get("metrics")
    if not metrics or "x_to_y" not in metrics:
        health = run.record["health"]
        st.info(
            "No ground truth is known for this pair, so there is no recall to show. Label-free: "
            f"{health['mutual_rate']:.1%} of the rows are mutual nearest neighbours "
            f"(chance {health['mutual_chance']:.2%})."
        )
        return
    metrics_table(run.title, metrics)
    if "rules" in metrics:
        rules_table(run, metrics["rules"])


def controls(s: state.State, rules: list[str]) -> tuple[str, str, int]:
    if st.session_state.get("rule", "nearest") not in rules:  # as with a run that found no coupling
        st.session_state["rule"] = "nearest"
    with st.container(horizontal=True, vertical_alignment="bottom"):
        way = st.segmented_control(
            "Direction",
            list(WAY_NAMES),
            format_func=WAY_NAMES.get,
            default="x_to_y",
            required=True,
            key="way",
            bind="query-params",
            persist_state="session",
        )
        rule = st.segmented_control(
            "Rule",
            rules,
            format_func=RULES.get,
            default="nearest",
            required=True,
            key="rule",
            bind="query-params",
            persist_state="session",
            help=RULE_HELP,
        )
        target = s.data.y if way == "x_to_y" else s.data.x
        most = min(50, len(target))
        k = st.number_input("k", 1, 50, 10, key="k", bind="query-params", persist_state="session", width=130)
    if k > most:
        st.caption(f"k limited to {most}: the target space has only so many rows.")
    return way, rule, min(int(k), most)


def pick_query(s: state.State, arrays: dict, way: str) -> None:
    """Search by name, draw at random; a click on the map or on a row of a list does the same."""
    side = SIDES[way][0]
    space = getattr(s.data, side)
    if s.query is None or s.query[0] != side or not len(space.positions([s.query[1]])):
        s.query = (side, int(space.ids[default_query(arrays, way)]))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        text = st.text_input(
            f"Search in {space.title}", key=f"search_{side}", placeholder="a part of a name", width=320
        ).strip()
        if text:
            folded = text.casefold()
            found = [p for p, name in enumerate(space.names) if folded in name.casefold()]
            if not found:
                st.caption(f"no name in {plain(space.title)} contains “{plain(text)}”")
            else:
                st.selectbox(
                    f"{len(found):,} found",
                    found[:500],
                    format_func=lambda p: space.names[p],
                    key=f"found_{side}",
                    on_change=lambda: set_query(s, side, int(space.ids[st.session_state[f"found_{side}"]])),
                    index=None,
                    placeholder="choose one" + (" (first 500 shown)" if len(found) > 500 else ""),
                )
        st.button("Random", icon=":material/casino:", on_click=random_query, args=(s, side))
        if ranks_of(arrays, way) is not None:
            st.button(
                "Most improved",
                on_click=improved_query,
                args=(s, arrays, way),
                help="The next row whose true partner rose most over the seed baseline.",
                disabled=f"{way}/rank_seed" not in arrays,
            )


def set_query(s: state.State, side: str, row_id: int) -> None:
    s.query = (side, row_id)


def random_query(s: state.State, side: str) -> None:
    space = getattr(s.data, side)
    set_query(s, side, int(np.random.default_rng().choice(space.ids)))


def default_query(arrays: dict, way: str) -> int:
    """The row that gained most over the seed baseline, which shows at once what the run did; else the first."""
    gains = gain(arrays, way)
    return 0 if gains is None else int(gains.argmax())


def improved_query(s: state.State, arrays: dict, way: str) -> None:
    side = SIDES[way][0]
    space = getattr(s.data, side)
    order = np.argsort(-gain(arrays, way), kind="stable")
    ids = space.ids[order].tolist()
    here = ids.index(s.query[1]) if s.query and s.query[1] in ids else -1
    set_query(s, side, ids[(here + 1) % len(ids)])


def gain(arrays: dict, way: str) -> np.ndarray | None:
    """Gain in reciprocal rank over the seed baseline; rows without a known partner gain nothing."""
    if f"{way}/rank_seed" not in arrays:
        return None
    now, before = ranks_of(arrays, way).astype(float), arrays[f"{way}/rank_seed"].astype(float)
    known = now > 0
    return np.where(known, 1 / np.maximum(now, 1) - 1 / np.maximum(before, 1), -1.0)


def query_tables(s: state.State, arrays: dict, way: str, rule: str, k: int) -> None:
    """The query's neighbours on the other side, and what its best match finds on the way back."""
    side, other = SIDES[way]
    space, target = getattr(s.data, side), getattr(s.data, other)
    row = int(space.positions([s.query[1]])[0])
    with st.container(horizontal=True, vertical_alignment="center"):
        pictures.show(space, row, width=72)
        st.markdown(f"**Query in {plain(space.title)}:** {pictures.title(space, row)}")
    partner = partner_of(s, side, row)
    if partner >= 0:
        ranks = ranks_of(arrays, way, rule)
        by_seeds = arrays.get(f"{way}/rank_seed")
        now = "" if ranks is None else f"True partner at rank {int(ranks[row]):,} of {len(target):,}"
        before = "" if by_seeds is None else f", {int(by_seeds[row]):,} under the seed baseline"
        st.caption(f"{now}{before}." if now else "Older run: ranks are known for the nearest rule alone.")
    event = neighbour_table(s, arrays, way, rule, k, row, partner, key="there")
    if event is not None:
        set_query(s, other, event)
    back = "y_to_x" if way == "x_to_y" else "x_to_y"
    best = int(arrays[f"{way}/{rule}/indices"][row, 0])
    with st.container(horizontal=True, vertical_alignment="center"):
        pictures.show(target, best, width=48)
        st.markdown(f"**And back**, from its best match {pictures.title(target, best)}:")
    neighbour_table(s, arrays, back, rule, min(k, len(space)), best, partner_of(s, other, best), key="back")


def neighbour_table(
    s: state.State, arrays: dict, way: str, rule: str, k: int, row: int, partner: int, key: str
) -> int | None:
    target = getattr(s.data, SIDES[way][1])
    found = arrays[f"{way}/{rule}/indices"][row, :k].astype(int)
    table = {"rank": np.arange(1, len(found) + 1)}
    if "seed_x" in arrays:
        before = seed_ranks(arrays, way, row, found)
        table["by seeds"] = before
        table["change"] = [
            f"▲ {b - r:,}" if b > r else f"▼ {r - b:,}" if b < r else "–"
            for r, b in zip(table["rank"], before, strict=True)
        ]
    table["score"] = arrays[f"{way}/{rule}/scores"][row, :k]
    if partner >= 0:
        table["✓"] = ["✓" if f == partner else "" for f in found]
    drawn, config = pictures.columns(target.media[found]) if target.media is not None else ({}, {})
    table |= drawn
    table["name"] = target.names[found]
    if target.labels is not None:
        table["label"] = [label or "(none)" for label in target.labels[found]]
    row_height = 52 if "picture" in drawn else 36
    st.dataframe(
        pd.DataFrame(table),
        hide_index=True,
        height=min(row_height * len(found) + 40, 470),
        row_height=row_height,
        key=f"neighbours_{key}",
        column_config={
            "rank": st.column_config.NumberColumn(width=45),
            "by seeds": st.column_config.NumberColumn(
                width=65, help="Rank of this row for the same query under the relative representation of the seeds"
            ),
            "change": st.column_config.TextColumn(width=65),
            "score": st.column_config.NumberColumn(format="%.3f", width=60, help=SCORES[rule]),
            "✓": st.column_config.TextColumn(width=30, help="The true partner of the query"),
            "name": st.column_config.TextColumn(width=230),
            "label": st.column_config.TextColumn(width=120),
        }
        | config,
        alt=f"Neighbours of the query, {WAY_NAMES[way]}",
    )
    return None


def seed_ranks(arrays: dict, way: str, row: int, found: np.ndarray) -> np.ndarray:
    """Rank, from 1, that each found row has for this query under the seed baseline."""
    a, b = ("seed_x", "seed_y") if way == "x_to_y" else ("seed_y", "seed_x")
    scores = arrays[b] @ arrays[a][row]
    return 1 + (scores[None, :] > scores[found][:, None]).sum(1)


def partner_of(s: state.State, side: str, row: int) -> int:
    if s.data.truth is None:
        return -1
    return int(state.link(s).positions(side)[row])


def worst_and_ranks(s: state.State, run: Run, arrays: dict, way: str, rule: str) -> None:
    ranks = ranks_of(arrays, way, rule)
    if ranks is None:
        return
    side = SIDES[way][0]
    space, target = getattr(s.data, side), getattr(s.data, SIDES[way][1])
    left, right = st.columns([5, 6], gap="medium")
    with left:
        st.subheader(f"Rank of the true partner, {WAY_NAMES[way]}, {RULES[rule]}", anchor=False)
        shown = {run.title: ranks}
        if f"{way}/rank_seed" in arrays:
            shown = {"Seed": arrays[f"{way}/rank_seed"]} | shown
        st.plotly_chart(
            rank_histogram(shown, len(target)),
            key="rank_histogram",
            config={"displayModeBar": False},
            alt=f"Share of the {int((ranks > 0).sum()):,} queries by rank of the true partner",
        )
        st.caption(f"n = {int((ranks > 0).sum()):,} rows with a known partner, among {len(target):,} targets.")
    with right:
        st.subheader("Worst queries", anchor=False)
        known = np.flatnonzero(ranks > 0)
        worst = known[np.argsort(-ranks[known], kind="stable")][:100]
        table = {"rank": ranks[worst], "name": space.names[worst]}
        if space.labels is not None:
            table["label"] = space.labels[worst]
        found = arrays[f"{way}/{rule}/indices"][worst, 0]
        table["finds instead"] = target.names[found]
        event = st.dataframe(
            pd.DataFrame(table),
            hide_index=True,
            height=300,
            key=f"worst_{way}_{rule}_{run.id}",
            on_select="rerun",
            selection_mode="single-row",
            alt="The queries whose true partner ranks lowest",
            column_config={
                "rank": st.column_config.NumberColumn(width=55),
                "name": st.column_config.TextColumn(width=210),
                "label": st.column_config.TextColumn(width=110),
                "finds instead": st.column_config.TextColumn(width=210),
            },
        )
        picked = event.selection.rows
        st.caption("The 100 whose partner ranks lowest. Pick a row to make it the query.")
        if picked:
            row_id = int(space.ids[worst[picked[0]]])
            if st.session_state.get("worst_seen") != (way, rule, row_id):
                st.session_state["worst_seen"] = (way, rule, row_id)
                set_query(s, side, row_id)
                st.rerun()


main()
