"""Hubness: which rows are in everybody's list and which in nobody's, by each rule, both ways; and what makes a hub."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from pages._ui import figures, maps, opened, pictures, router, state
from pages._ui.figures import HUB_FIGURES, RULE_SHORT, WAY_NAMES
from pages._ui.header import plain
from pages._ui.selection import Selection
from relcore.analysis import NEIGHBORS, RULES, WAYS, ranks_of, rules_of
from relcore.metrics import hubness, spectrum
from relcore.runs import Run
from relcore.space import Space

router.ensure()
SIDES = {"x_to_y": ("x", "y"), "y_to_x": ("y", "x")}  # who asks, who is listed
WAY_TO = {"y": "x_to_y", "x": "y_to_x"}  # the direction in which a side is listed
SHOWN = 100  # rows of a table
SAME_NORM = 1e-3  # of the mean norm: rounding

Counts = dict[str, dict[str, np.ndarray]]  # way -> rule -> N_k


def main() -> None:
    s = state.page_state()
    st.title("Hubness", anchor=False)
    run = opened.finished_run(
        s, "Hubness shows which rows are in everybody's list of neighbours, and which in nobody's."
    )
    if run is None:
        return
    arrays = state.analysis(run)
    k, kept = choose_k(s)
    stamp = (run.folder / "analysis.safetensors").stat().st_mtime
    counts = count(str(run.folder), stamp, k, arrays)
    tiles(s, counts, kept)
    measures(counts, kept)
    way, rule = controls(counts)
    distributions(s, run, counts, kept)
    hub = chosen_hub(s, run, way)
    picture, lists = st.columns([5, 6], gap="medium")
    with lists:
        hub_tables(s, run, arrays, counts[way][rule], way, rule, kept[way])
    with picture:
        shown = {side: counts[WAY_TO[side]][rule] for side in "xy"}
        maps.hub_map(
            s,
            run,
            arrays,
            shown,
            f"{n_k_name(k)} by {RULE_SHORT[rule]}",
            on_hub=lambda side, row_id: click(s, run, arrays, rule, k, side, row_id),
        )
    if hub is not None:
        groupie_table(s, arrays, way, rule, kept[way], hub)
    what_makes_a_hub(s, arrays, counts[way][rule], way, rule, kept[way])
    spectra(s, run, arrays)


def n_k_name(k: int) -> str:
    return "N" + str(k).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))


def choose_k(s: state.State) -> tuple[int, dict[str, int]]:
    """k as asked for, and as it is in each direction: at most the rows of the target."""
    k = int(
        st.slider(
            "k",
            1,
            NEIGHBORS,
            10,
            key="hub_k",
            bind="query-params",
            persist_state="session",
            width=420,
            help="A row's list are its k nearest in the other space; Nₖ is how many lists a row is in.",
        )
    )
    kept = {way: min(k, len(getattr(s.data, SIDES[way][1]))) for way in WAYS}
    for way, limit in kept.items():
        if limit < k:
            st.caption(f"{WAY_NAMES[way]}: k limited to {limit}: the target space has only so many rows.")
    return k, kept


@st.cache_resource(show_spinner=False, max_entries=8)
def count(folder: str, stamp: float, k: int, _arrays: dict) -> Counts:
    """N_k of every rule and direction, from the stored lists."""
    return {
        way: {
            rule: hubness.n_k(_arrays[f"{way}/{rule}/indices"], len(_arrays[f"{way}/{rule}/n_k"]), k)
            for rule in rules_of(_arrays)
        }
        for way in WAYS
    }


def tiles(s: state.State, counts: Counts, kept: dict[str, int]) -> None:
    """Skewness by rule and direction, against the nearest rule; whatever speaks against reading it is said."""
    for way, by_rule in counts.items():
        queries, target = (getattr(s.data, side) for side in SIDES[way])
        n, m = len(queries), len(target)
        before = hubness.skewness(by_rule["nearest"])
        for column, (rule, n_k) in zip(st.columns(len(RULES)), by_rule.items(), strict=False):
            value = hubness.skewness(n_k)
            column.metric(
                f"Skewness {WAY_NAMES[way]} · {RULE_SHORT[rule]}",
                f"{value:.2f}",
                None if rule == "nearest" else f"{value - before:+.2f}",
                delta_color="inverse",
                help=f"{RULES[rule]}: how unevenly {m:,} rows of {plain(target.title)} are listed by {n:,} rows of "
                f"{plain(queries.title)}, k = {kept[way]}. 0 is even; over 1 a few hubs take many places. "
                f"{hubness.anti_hubs(n_k):.0%} are in no list; the largest hub is in {int(n_k.max()):,}.",
            )
        for remark in hubness.remarks(n, m, kept[way]):
            st.caption(f":material/warning: {WAY_NAMES[way]}: {plain(remark)}.")
    for side, space in (("A", s.data.x), ("B", s.data.y)):
        repeated = int((copies(space.fingerprint, space) != np.arange(len(space))).sum())
        if repeated:
            st.caption(
                f":material/content_copy: {repeated:,} of {len(space):,} rows of {side} "
                f"{'repeats' if repeated == 1 else 'repeat'} another row exactly. Copies tie in every list and stand "
                "there in their order, so the first of them is listed most."
            )


def measures(counts: Counts, kept: dict[str, int]) -> None:
    """All figures as bars before and after correction, and as a table."""
    summaries = {
        rule: {way: hubness.summary(counts[way][rule], kept[way]) for way in WAYS} for rule in counts["x_to_y"]
    }
    st.subheader("Before and after correction", anchor=False)
    bars, table = st.tabs(["Bars", "Table"])
    with bars:
        st.plotly_chart(
            figures.hubness_bars(summaries, dark()),
            key="hub_bars",
            config={"displayModeBar": False},
            alt="Figures of hubness by rule, both directions; the table tab has the numbers",
        )
    with table:
        rows = [
            {"rule": RULES[rule], "direction": WAY_NAMES[way]}
            | {title: ways[way][key] for key, title in HUB_FIGURES.items()}
            | {"largest hub": ways[way]["largest"], "queries": int(counts[way][rule].sum() // kept[way])}
            | {"targets": len(counts[way][rule]), "k": ways[way]["k"]}
            for rule, ways in summaries.items()
            for way in WAYS
        ]
        shares = [t for key, t in HUB_FIGURES.items() if key != "skewness"]
        st.dataframe(
            pd.DataFrame(rows),
            hide_index=True,
            key="hub_measures",
            alt="Figures of hubness by rule and direction",
            column_config={t: st.column_config.NumberColumn(format="percent") for t in shares}
            | {"skewness": st.column_config.NumberColumn(format="%.3f")},
        )
    with st.popover("How is this computed?", type="tertiary"):
        st.markdown(
            "Every row of one side lists its k best rows of the other by a rule; **Nₖ** of a row is the number of "
            "lists it is in, on average k · queries / targets.\n"
            "- **skewness**: third standardised moment of Nₖ over the targets.\n"
            "- **Robin Hood index**: share of all places that would have to change hands for all to have the same.\n"
            "- **anti-hubs**: share of targets in no list at all.\n"
            "- **places held by hubs**: share of the places held by targets with 2 k places or more (twice the mean, "
            "where there are more queries than targets).\n"
            "- **places held by the top 1 %**: by the 1 % of the targets with the most (at least one).\n\n"
            "Rules: **nearest** by cosine in the common space; **CSLS** takes off each row's mean cosine to its 10 "
            "nearest; the **inverted softmax** normalises over the queries, at temperature 1/30; the **coupling** is "
            "the transport plan, which gives each row the same mass. A correction may lower hubness one way and raise "
            "it the other, so both are shown."
        )


def controls(counts: Counts) -> tuple[str, str]:
    rules = list(counts["x_to_y"])
    if st.session_state.get("hub_rule", "nearest") not in rules:
        st.session_state["hub_rule"] = "nearest"
    with st.container(horizontal=True, vertical_alignment="bottom"):
        way = st.segmented_control(
            "Hubs among the targets of",
            list(WAY_NAMES),
            format_func=WAY_NAMES.get,
            default="x_to_y",
            required=True,
            key="hub_way",
            bind="query-params",
            persist_state="session",
        )
        rule = st.segmented_control(
            "Rule",
            rules,
            format_func=RULES.get,
            default="nearest",
            required=True,
            key="hub_rule",
            bind="query-params",
            persist_state="session",
        )
    return way, rule


def distributions(s: state.State, run: Run, counts: Counts, kept: dict[str, int]) -> None:
    """N_k of both directions; a box drawn round a stretch selects the rows it stands for, by the rule chosen."""
    rule = st.session_state["hub_rule"]
    for column, way in zip(st.columns(2, gap="medium"), WAYS, strict=True):
        target = getattr(s.data, SIDES[way][1])
        with column:
            st.markdown(f"**Distribution, {WAY_NAMES[way]}** · {len(target):,} targets · {plain(run.title)}")
            event = st.plotly_chart(
                figures.occurrences(counts[way], kept[way], dark()),
                key=f"occurrences_{way}",
                on_select="rerun",
                selection_mode="box",
                config={"displayModeBar": False},
                alt=f"How many of {len(target):,} rows are in how many lists, {WAY_NAMES[way]}, a line a rule",
            )
            brush(s, run, counts[way][rule], way, rule, kept[way], event)
    st.caption(
        f"Drag across a stretch to select its rows, by the rule chosen above ({RULES[rule]}). "
        "Rows in no list stand at 0."
    )


def brush(s: state.State, run: Run, n_k: np.ndarray, way: str, rule: str, k: int, event) -> None:
    """Act once on a box drawn in a distribution: its range of N_k, never the points drawn."""
    boxes = event.selection.get("box") or []
    drawn = tuple(sorted(boxes[0]["x"])) if boxes else None
    seen = (run.id, rule, k, drawn)
    if st.session_state.get(f"brush_{way}") == seen:
        return
    st.session_state[f"brush_{way}"] = seen
    if drawn is None:
        return
    side = SIDES[way][1]
    rows = np.flatnonzero((n_k >= drawn[0]) & (n_k <= drawn[1]))
    ids = np.sort(getattr(s.data, side).ids[rows])
    low, high = int(np.ceil(max(drawn[0], 0))), int(np.floor(drawn[1]))
    s.selection.set(one_sided(side, ids, f"rows in {low:,} to {high:,} lists, {WAY_NAMES[way]}"))
    st.rerun()


def one_sided(side: str, ids: np.ndarray, origin: str, others: np.ndarray | None = None) -> Selection:
    others = np.empty(0, dtype=np.int64) if others is None else np.sort(others)
    return Selection(ids, others, origin) if side == "x" else Selection(others, ids, origin)


# ------------------------------------------------------------------------------------------------------- hubs by name


def chosen_hub(s: state.State, run: Run, way: str) -> int | None:
    """Row position of the hub looked at, when it is one of this run and of the side listed in this direction."""
    hub = st.session_state.get("hub")
    if hub is None or hub[:2] != (run.id, SIDES[way][1]):
        return None
    found = getattr(s.data, hub[1]).positions([hub[2]])
    return int(found[0]) if len(found) else None


def choose(s: state.State, run: Run, arrays: dict, rule: str, k: int, side: str, row_id: int) -> None:
    """Look at a row: it and its groupies, the rows of the other side that list it, become the selection."""
    way = WAY_TO[side]
    space, askers = getattr(s.data, side), getattr(s.data, SIDES[way][0])
    row = int(space.positions([row_id])[0])
    rows, _ = hubness.groupies(arrays[f"{way}/{rule}/indices"], row, k)
    ids = np.array([row_id], dtype=np.int64)
    s.selection.set(one_sided(side, ids, f"the groupies of {space.names[row]}", askers.ids[rows]))
    st.session_state["hub"] = (run.id, side, row_id)


def click(s: state.State, run: Run, arrays: dict, rule: str, k: int, side: str, row_id: int) -> None:
    """A row clicked on the map; the tables turn to its side."""
    choose(s, run, arrays, rule, k, side, row_id)
    st.session_state["hub_way"] = WAY_TO[side]


def hub_tables(s: state.State, run: Run, arrays: dict, n_k: np.ndarray, way: str, rule: str, k: int) -> None:
    """The rows in most lists and those in none; a row picked is looked at."""
    side = SIDES[way][1]
    space = getattr(s.data, side)
    ranks = ranks_of(arrays, way, rule)
    hubs = np.argsort(-n_k, kind="stable")[:SHOWN]
    hubs = hubs[n_k[hubs] > 0]
    none = np.flatnonzero(n_k == 0)
    by_partner = None
    if ranks is not None and s.data.truth is not None:  # the rank each target has for its own partner, 0 for none
        partner = state.link(s).positions(side)
        by_partner = np.where(partner >= 0, ranks[partner], 0)
        none = none[np.argsort(-by_partner[none], kind="stable")]
    first, second = st.tabs([f"Hubs of {plain(space.title)}", f"Anti-hubs ({len(none):,} of {len(space):,})"])
    name = n_k_name(k)
    with first:
        table = {
            name: n_k[hubs],
            "nearest of": hubness.n_k(arrays[f"{way}/{rule}/indices"], len(space), 1)[hubs],
        }
        if ranks is not None:
            table["ahead of partner"] = hubness.stolen(arrays[f"{way}/{rule}/indices"], ranks, len(space), k)[hubs]
        pick(s, run, arrays, table, hubs, way, rule, k, "hubs")
        st.caption(
            f"n = {len(getattr(s.data, SIDES[way][0])):,} queries, {len(space):,} targets, {WAY_NAMES[way]}, "
            f"{RULES[rule]}. Pick a row to select its groupies."
        )
    with second:
        if not len(none):
            st.caption("Every row is in some list.")
        else:
            shown = none[:SHOWN]
            table = {} if by_partner is None else {"rank for its partner": by_partner[shown]}
            pick(s, run, arrays, table, shown, way, rule, k, "anti_hubs")
            st.caption(
                "Rows that are in no list"
                + (f", the first {SHOWN} of {len(none):,}" if len(none) > SHOWN else "")
                + (", those farthest from being found first." if by_partner is not None else ".")
            )


def pick(s, run: Run, arrays: dict, table: dict, rows: np.ndarray, way: str, rule: str, k: int, key: str) -> None:
    """A table of rows of the target side, with what may make them hubs; the row picked is looked at, once."""
    side = SIDES[way][1]
    space = getattr(s.data, side)
    drawn, config = pictures.columns(space.media[rows]) if space.media is not None else ({}, {})
    table = table | drawn | {"name": space.names[rows]}
    if space.labels is not None:
        table["label"] = [label or "(none)" for label in space.labels[rows]]
    table["norm"] = norms(space.fingerprint, space)[rows]
    if f"mean_distance_{side}" in arrays:
        table["to the mean"] = arrays[f"mean_distance_{side}"][rows]
    event = st.dataframe(
        pd.DataFrame(table),
        hide_index=True,
        height=400,
        row_height=52 if "picture" in drawn else 36,
        key=f"{key}_{run.id}_{way}_{rule}_{k}",  # a table keeps its selection by position, so other rows need another
        on_select="rerun",
        selection_mode="single-row",
        alt=f"{key.replace('_', '-')}, {WAY_NAMES[way]}",
        column_config={
            "nearest of": st.column_config.NumberColumn(width=75, help="Queries whose very nearest it is"),
            "ahead of partner": st.column_config.NumberColumn(
                width=110, help="Queries that list it before their true partner: these it steals from"
            ),
            "rank for its partner": st.column_config.NumberColumn(
                width=110, help="Its rank in the list of its own true partner; 0 where none is known"
            ),
            "name": st.column_config.TextColumn(width=220),
            "label": st.column_config.TextColumn(width=110),
            "norm": st.column_config.NumberColumn(format="%.2f", width=60, help="Norm of the vector as loaded"),
            "to the mean": st.column_config.NumberColumn(
                format="%.2f", width=80, help="Distance to the mean of the queries in the common space, norm 1"
            ),
        }
        | config,
    )
    picked = event.selection.rows
    seen = (run.id, way, rule, k, key, int(space.ids[rows[picked[0]]]) if picked else None)
    if st.session_state.get(f"picked_{key}") == seen:
        return
    st.session_state[f"picked_{key}"] = seen
    if picked:
        choose(s, run, arrays, rule, k, side, seen[-1])
        st.rerun()


def groupie_table(s: state.State, arrays: dict, way: str, rule: str, k: int, hub: int) -> None:
    """Who lists the row looked at, and whose place it takes."""
    asker, side = (getattr(s.data, which) for which in SIDES[way])
    rows, places = hubness.groupies(arrays[f"{way}/{rule}/indices"], hub, k)
    ranks = ranks_of(arrays, way, rule)
    st.subheader(f"Groupies of {plain(side.names[hub])}", anchor=False)
    pictures.show(side, hub, width=72)
    said = (
        f"{pictures.title(side, hub)} is among the {k} best of {len(rows):,} of {len(asker):,} rows of "
        f"{plain(asker.title)}"
    )
    if ranks is None:
        st.markdown(said + ".")
        partner = None
    else:
        partner = state.link(s).positions(SIDES[way][0])[rows] if s.data.truth is not None else None
        known = ranks[rows] > 0
        ahead = known & (places < ranks[rows])
        out = known & (ranks[rows] > k)
        st.markdown(
            f"{said}; it is the true partner of {int((ranks[rows] == places).sum())}. It stands before the partner "
            f"of {int(ahead.sum()):,}, which for {int((ahead & out).sum()):,} of them is not even listed."
        )
    if not len(rows):
        return
    order = np.argsort(places, kind="stable")[:SHOWN]
    rows, places = rows[order], places[order]
    table = {"place": places, "query": asker.names[rows]}
    if asker.labels is not None:
        table["label"] = [label or "(none)" for label in asker.labels[rows]]
    if partner is not None:
        table["true partner"] = [side.names[p] if p >= 0 else "" for p in partner[order]]
    if ranks is not None:
        table["its rank"] = ranks[rows]
        table["displaced"] = ["✓" if 0 < p < r else "" for p, r in zip(places, ranks[rows], strict=True)]
    st.dataframe(
        pd.DataFrame(table),
        hide_index=True,
        height=min(36 * len(rows) + 40, 320),
        key="groupies",
        alt="Rows that list the hub, with their true partners",
        column_config={
            "place": st.column_config.NumberColumn(width=60, help="Of the hub in this query's list"),
            "query": st.column_config.TextColumn(width=320),
            "true partner": st.column_config.TextColumn(width=320),
            "its rank": st.column_config.NumberColumn(width=80, help="Rank of the true partner for this query"),
            "displaced": st.column_config.TextColumn(width=80, help="The hub stands before the true partner"),
        },
    )


# -------------------------------------------------------------------------------------------------- what makes a hub


def what_makes_a_hub(s: state.State, arrays: dict, n_k: np.ndarray, way: str, rule: str, k: int) -> None:
    side = SIDES[way][1]
    space = getattr(s.data, side)
    norm = norms(space.fingerprint, space)
    by = {"norm as loaded": norm} if np.ptp(norm) > SAME_NORM * norm.mean() else {}
    if f"mean_distance_{side}" in arrays:
        by["distance to the mean of the queries"] = arrays[f"mean_distance_{side}"]
    st.subheader("What makes a hub", anchor=False)
    said = [f"{title}: rank correlation {spearman(n_k, values)}" for title, values in by.items()]
    said += [] if "norm as loaded" in by else ["all norms as loaded are the same"]
    st.caption(f"{WAY_NAMES[way]}, {RULES[rule]}, n = {len(n_k):,} rows of {plain(space.title)}. {' · '.join(said)}.")
    if not by:
        return
    st.plotly_chart(
        figures.causes(n_k, by, k, space.names, dark()),
        key="causes",
        config={"displayModeBar": False},
        alt="How many lists a row is in against its norm and against its distance to the mean",
    )


def spearman(a: np.ndarray, b: np.ndarray) -> str:
    ranks = [pd.Series(v).rank().to_numpy() for v in (a, b)]
    if len(a) < 3 or any(np.ptp(r) == 0 for r in ranks):
        return "none, all alike"
    return f"{np.corrcoef(*ranks)[0, 1]:+.2f}"


@st.cache_resource(show_spinner=False, max_entries=16)
def norms(fingerprint: str, _space: Space) -> np.ndarray:
    return np.linalg.norm(_space.vectors, axis=1)


@st.cache_resource(show_spinner=False, max_entries=16)
def copies(fingerprint: str, _space: Space) -> np.ndarray:
    return hubness.copies(_space.vectors)


def spectra(s: state.State, run: Run, arrays: dict) -> None:
    """How many directions each side has, and how the anchors' profiles spread them with gamma."""
    figures_of = spectrum.summary(arrays)
    if not figures_of:
        return
    titles = {"x": f"A · {s.data.x.title}", "y": f"B · {s.data.y.title}"}
    with st.expander("Spectrum: how many directions count"):
        rows = [
            {"side": titles[side], "rows": words}
            | {k.replace("_", " "): figures_of[side][name][k] for k in ("participation_ratio", "effective_rank")}
            | {"of": figures_of[side][name]["dimensions"]}
            for side in "xy"
            for name, words in (("data", "preprocessed"), ("aligned", "in the common space"))
        ]
        numbers = {k: st.column_config.NumberColumn(format="%.1f") for k in ("participation ratio", "effective rank")}
        st.dataframe(
            pd.DataFrame(rows), hide_index=True, key="spectra", column_config=numbers, alt="Dimensions of each side"
        )
        if "gamma" not in figures_of:
            st.caption("Without seeds there are no profiles to weigh.")
            return
        st.plotly_chart(
            figures.spectrum_curves(arrays, titles, dark(), run.record.get("chosen", {}).get("gamma")),
            key="spectrum_curves",
            config={"displayModeBar": False},
            alt="Participation ratio of the profiles against gamma, measured and predicted; the table has the numbers",
        )
        table = [
            {"ridge": ridge, "gamma": gamma}
            | {
                f"{letter} {words}": figures_of[side]["profiles"][name][i][j]
                for side, letter in (("x", "A"), ("y", "B"))
                for name, words in (
                    ("participation", "participation"),
                    ("predicted", "predicted"),
                    ("rank", "effective rank"),
                    ("slope", "log-slope"),
                )
            }
            for i, ridge in enumerate(figures_of["ridge"])
            for j, gamma in enumerate(figures_of["gamma"])
        ]
        st.dataframe(
            pd.DataFrame(table),
            hide_index=True,
            height=240,
            key="spectrum_table",
            alt="Profiles against gamma, numbers",
            column_config={c: st.column_config.NumberColumn(format="%.2f") for c in table[0]},
        )
        with st.popover("How is this computed?", type="tertiary"):
            st.markdown(
                "The profile of a row is its similarities to the N seeds, weighted by the seeds' own second moment to "
                "the power −γ/2 (eigenvalues at least 1e-6 of their mean, plus the ridge in units of it). If the "
                "seeds had the spectrum s of all rows, that of the profiles would be N s^(2−γ): the dashed line, and a "
                "log-slope of 2−γ (without ridge). Few seeds bend the measured curve back at large γ.\n\n"
                "Participation ratio: (Σe)²/Σe² of the covariance's eigenvalues e; effective rank: exponential of the "
                "entropy of e/Σe. The log-slope is fitted to the eigenvalues that hold nine tenths of the variance."
            )


def dark() -> bool:
    return st.context.theme.type == "dark"


main()
