"""Export: everything a run gives away, each file made when it is asked for; and sessions that others have saved."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import streamlit as st

from pages._ui import downloads, opened, router, session_files, state
from pages._ui.header import plain
from pages._ui.maps import LETTERS
from relcore import export, report
from relcore.analysis import RULES, WAYS, rules_of
from relcore.runs import Run

router.ensure()
WAY_WORDS = {"x_to_y": "A → B", "y_to_x": "B → A"}
TABLES = {"csv": "text/csv", "parquet": "application/octet-stream"}


def main() -> None:
    s = state.page_state()
    st.title("Export", anchor=False)
    run = opened.finished_run(s, "Export gives away what a run found: vectors, pairs, matches, figures, a report.")
    if run is not None:
        whole(s, run)
        left, right = st.columns(2, gap="large")
        with left:
            vectors(s, run)
            tables(s, run)
        with right:
            pictures_of(run)
            selection(s)
        recipe(s, run)
    st.subheader("Open a session", anchor=False)
    session_files.panel(s)


def name_of(run: Run, what: str, ending: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", run.title.lower()).strip("-")[:40] or "run"
    return f"{slug}-{run.id}-{what}.{ending}"


def button(label: str, make: Callable[[], bytes], name: str, key: str, mime: str | None = None, **more) -> None:
    """A file that is made when it is asked for, which leaves the page as it is."""
    st.download_button(label, make, name, mime, key=key, on_click="ignore", **more)


# ---------------------------------------------------------------- all of it


def whole(s: state.State, run: Run) -> None:
    with st.container(horizontal=True):
        button(
            "Report",
            partial(downloads.report_bytes, run),
            name_of(run, "report", "html"),
            "report",
            "text/html",
            icon=":material/description:",
            type="primary",
            help="One page that opens offline: data, parameters, verdict, curves, maps, retrieval, hubness, mismatch.",
        )
        button(
            "Everything",
            partial(downloads.everything, run, s.data.pair),
            name_of(run, "all", "zip"),
            "everything",
            "application/zip",
            icon=":material/folder_zip:",
            help="Aligned vectors, seeds, anchors, matches, figures and what makes the run again, in one zip file.",
        )
        button(
            "Session",
            partial(downloads.session, run),
            name_of(run, "session", "zip"),
            "session",
            "application/zip",
            icon=":material/inventory_2:",
            help="The run, its stitchings and its data. It opens in Relcore on another machine, below or on its Export "
            "page. Nothing in it can be run.",
        )


# ---------------------------------------------------------------- parts


def vectors(s: state.State, run: Run) -> None:
    st.subheader("Aligned vectors", anchor=False)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        ending = st.selectbox(
            "Format", list(downloads.endings()), index=1, key="export_format", persist_state="session", width=160
        )
        for side in "xy":
            space = getattr(s.data, side)
            button(
                f"{LETTERS[side]} · {plain(space.title)}",
                partial(downloads.aligned, run, s.data.pair, side, ending),
                name_of(run, f"aligned-{LETTERS[side].lower()}", ending),
                f"aligned_{side}",
            )
    arrays = run.alignment_arrays()
    st.caption(
        f"{len(arrays['x']):,} + {len(arrays['y']):,} rows of {arrays['x'].shape[1]:,} numbers, with ids, names and "
        "labels where the format holds them; compare rows by cosine."
    )


def tables(s: state.State, run: Run) -> None:
    st.subheader("Pairs, matches, figures", anchor=False)
    pair = s.data.pair
    with st.container(horizontal=True, vertical_alignment="bottom"):
        kind = st.segmented_control(
            "As", list(TABLES), default="csv", required=True, key="export_table", persist_state="session"
        )
        found = export.anchors(run)
        offers = {
            "seeds": (len(run.pairs[0]) > 0, lambda: export.pairs_table(run.pairs[0], pair)),
            "anchors": (found is not None, lambda: export.pairs_table(found, pair)),
            "metrics": (True, lambda: export.metrics(run).astype({"value": str})),
            "history": (run.history() is not None, run.history),
        }
        for what, (there, make) in offers.items():
            button(
                what.capitalize(),
                partial(downloads.table, make, kind),
                name_of(run, what, kind),
                f"export_{what}",
                TABLES[kind],
                disabled=not there,
                help=None if there else "This run has none.",
            )
        button(
            "Record (JSON)",
            partial(downloads.record, run),
            name_of(run, "run", "json"),
            "export_record",
            "application/json",
        )
    with st.container(horizontal=True, vertical_alignment="bottom"):
        rules = rules_of(run.analysis)
        best = "coupling" if "coupling" in rules else rules[0]
        rule = st.selectbox("Matches by", rules, index=rules.index(best), format_func=RULES.get, key="export_rule")
        way = st.segmented_control(
            "Way", WAYS, default=WAYS[0], format_func=WAY_WORDS.get, required=True, key="export_way"
        )
        most = run.analysis[f"{way}/{rule}/indices"].shape[1]
        k = st.number_input("k", 1, most, min(10, most), key="export_k", width=110)
        button(
            "Matches",
            partial(downloads.table, lambda: export.matches(run, pair, way, rule, int(k)), kind),
            name_of(run, f"matches-{way.replace('_', '-')}", kind),
            "export_matches",
            TABLES[kind],
        )


def pictures_of(run: Run) -> None:
    st.subheader("Figures", anchor=False)
    arrays = run.analysis
    offers = {
        "map": ("png", partial(report.map_png, run, arrays)),
        "course": ("html", partial(report.curves, run)),
        "retrieval": ("html", partial(report.retrieval, run, arrays)),
        "hubness": ("html", partial(report.hubs, run, arrays)),
        "mismatch": ("html", partial(report.missing, run, arrays)),
    }
    with st.container(horizontal=True):
        for what, (ending, make) in offers.items():
            there = what != "course" or len(run.history() if run.history() is not None else ()) > 1
            button(
                f"{what.capitalize()} ({ending})",
                make if ending == "png" else partial(downloads.as_page, run, what, make),
                name_of(run, what, ending),
                f"figure_{what}",
                "image/png" if ending == "png" else "text/html",
                disabled=not there,
                help=None if there else "A run of one step has no course.",
            )
        button(
            "Charts (svg)", partial(downloads.svgs, run), name_of(run, "charts", "zip"), "figure_svg", "application/zip"
        )
    st.caption("HTML pages open offline, and their charts are SVG; the map is drawn on a transparent ground.")


def selection(s: state.State) -> None:
    st.subheader("Selection", anchor=False)
    chosen = s.selection.current
    count = len(chosen.x) + len(chosen.y)
    button(
        f"Selected rows ({count:,})",
        partial(downloads.table, partial(downloads.selected, s.data, chosen), "csv"),
        "selection.csv",
        "export_selection",
        "text/csv",
        disabled=not count,
        help=None if count else "Nothing is selected: drag on a map, or pick rows in a list.",
    )
    if count:
        st.caption(f"From {plain(chosen.origin)}.")


def recipe(s: state.State, run: Run) -> None:
    st.subheader("Make it again, use it", anchor=False)
    files = ("x.npz:vectors", "y.npz:vectors")
    seeds, truth = run.pairs
    pairs = (None if truth is None or not len(truth) else "pairs.csv", "seeds.csv" if len(seeds) else None)
    shell, python, use = st.tabs(["Shell", "Python", "Rows never seen"])
    shell.code(export.command(run, *files, *pairs), language="bash", wrap_lines=True)
    python.code(export.script(run, *files, *pairs), language="python")
    with use:
        st.code(export.usage(run), language="python")
        button(
            "Map, encoders, means (safetensors)",
            partial(downloads.coordinates, run),
            name_of(run, "alignment", "safetensors"),
            "export_encoders",
        )
    button(
        "The files these lines read, and the lines",
        partial(downloads.recipe_zip, run, s.data.pair),
        name_of(run, "make-again", "zip"),
        "recipe",
        "application/zip",
        icon=":material/replay:",
    )


main()
