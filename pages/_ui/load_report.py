"""What was read: rows used and set aside, what was assumed, what was refused and how it can still be had; the pairs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import streamlit as st

from pages._ui import loader, pictures, state
from pages._ui.header import plain
from relcore.errors import InputError
from relcore.formats.registry import split_spec
from relcore.space import Refused

LETTERS = loader.LETTERS
MOST_SHOWN = 1000  # rows of a table of pairs or of rows set aside
MOST_SELECTED = 200


def one_side(s: state.State, side: str) -> None:
    one = s.data.side(side)
    space, report = one.space, one.report
    st.markdown(
        f"**{LETTERS[side]} · {plain(space.title)}** · {report.summary()} · {report.dim:,} dimensions, "
        f"stored as {plain(report.dtype)}"
    )
    if report.assumed:
        st.caption(":material/info: " + " · ".join(plain(text) for text in report.assumed))
    for text in report.warnings:
        st.caption(f":material/warning: {plain(text)}")
    for refused in report.refused:
        _refused(s, side, refused)
    if report.set_aside:
        with st.expander(f"{counted(len(report.set_aside), 'row')} set aside"):
            rows = report.set_aside[:MOST_SHOWN]
            table = {"row in the file": [r.row for r in rows]}
            if len(report.aside_names) == len(report.set_aside):
                table["name"] = list(report.aside_names[:MOST_SHOWN])
            table["reason"] = [r.reason for r in rows]
            st.dataframe(pd.DataFrame(table), hide_index=True, key=f"aside_{side}_{space.fingerprint}")
            _first_only(len(rows), len(report.set_aside), "rows")
    if one.folded and one.request and not json.loads(one.request.options).get("fold_case"):
        st.button(
            f"Fold case (would merge {counted(one.folded, 'row')})",
            key=f"fold_now_{side}",
            type="tertiary",
            disabled=s.files.opening is not None,
            on_click=loader.again,
            args=(s, side),
            kwargs={"fold_case": True},
            help="Names that differ in upper and lower case only count as the same; the first row of each is kept.",
        )


def counted(n: int, what: str) -> str:
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def lettered(remark: str, names: Mapping[str, str] = LETTERS) -> str:
    """The sides called as on the page; what is quoted from a file stays as it is."""
    words, quote, quoted = remark.partition("'")
    return re.sub(r"\b(of|in) ([xy])\b", lambda m: f"{m[1]} {names[m[2]]}", words) + quote + quoted


def _first_only(shown: int, n: int, what: str) -> None:
    if shown < n:
        st.caption(f"The first {shown:,} of {n:,} {what}.")


def _refused(s: state.State, side: str, refused: Refused) -> None:
    """What does not fit by count, and the three ways to go on."""
    st.warning(
        f"{plain(refused.what.capitalize())} not attached: {plain(refused.source)} has {refused.found:,} for "
        f"{refused.wanted:,} vectors.",
        icon=":material/link_off:",
    )
    request = s.data.side(side).request
    if request is None:
        return
    options = json.loads(request.options)
    going = s.files.opening is not None
    key = f"{side}_{refused.what}"
    columns = _columns_of(options, refused.what)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        id_column = None
        if len(columns) > 1:
            id_column = st.selectbox("Id column", columns, key=f"refused_id_{key}", width=180)
        st.button(
            "Match by id column",
            key=f"by_id_{key}",
            disabled=going or id_column is None,
            help=None if id_column else "The file has one column only, so nothing says which row is meant",
            on_click=loader.again,
            args=(s, side),
            kwargs={"match": "id", "id_column": id_column},
        )
        st.button(
            f"Attach to the first {min(refused.found, refused.wanted):,}",
            key=f"first_{key}",
            disabled=going,
            on_click=loader.again,
            args=(s, side),
            kwargs={"match": "first"},
        )
        st.button(
            f"Load without {plain(refused.what)}",
            key=f"without_{key}",
            disabled=going,
            on_click=loader.again,
            args=(s, side),
            kwargs={refused.what: None},
        )


def _file_of(options: dict, what: str) -> Path | None:
    file = split_spec(options[what])[0] if options.get(what) else None
    return file if file is not None and file.is_absolute() else None  # else it is an array of the file itself


def _columns_of(options: dict, what: str) -> list[str]:
    file = _file_of(options, what)
    if file is None:
        return []
    try:
        return loader.columns_of(file).get("columns", [])
    except InputError:
        return []


# ---------------------------------------------------------------- pairs


def pairs(data: state.Data) -> None:
    """How many rows correspond, how many could not be told apart, and which."""
    found, alone = data.found, (data.found.alone_x, data.found.alone_y)
    if data.truth is None:
        st.caption(":material/link_off: no pairing known.")
    else:
        words = [f"{counted(len(data.truth), 'pair')}, by {plain(data.pairing)}"]
        if found.ambiguous:
            words.append(f"{len(found.ambiguous):,} ambiguous")
        if any(alone):
            words.append(f"{counted(alone[0], 'row')} of A and {alone[1]:,} of B without a partner")
        if found.folded:
            words.append(f"{found.folded:,} more would match if upper and lower case were the same")
        st.caption(":material/link: " + " · ".join(words))
    remarks = [lettered(p) for p in found.problems if not (any(alone) and p.endswith("have no partner"))]
    shown, rest = remarks[:5], remarks[5:]
    for remark in shown:
        st.caption(f":material/info: {plain(remark)}")
    if rest:
        with st.expander(f"{counted(len(rest), 'more remark')} on the pairing"):
            st.dataframe(pd.DataFrame({"remark": rest[:MOST_SHOWN]}), hide_index=True, key="pair_remarks")
            _first_only(min(len(rest), MOST_SHOWN), len(rest), "remarks")
    if found.ambiguous:
        with st.expander(
            f"{len(found.ambiguous):,} ambiguous " + ("entry" if len(found.ambiguous) == 1 else "entries")
        ):
            some = found.ambiguous[:MOST_SHOWN]
            table = {
                "side": [LETTERS[a.side] for a in some],
                "value": [a.key for a in some],
                "rows in the file": [
                    ", ".join(map(str, a.rows[:20])) + (" …" if len(a.rows) > 20 else "") for a in some
                ],
            }
            if any(a.lines for a in some):
                table["lines of the pairs"] = [", ".join(map(str, a.lines[:20])) for a in some]
            st.dataframe(pd.DataFrame(table), hide_index=True, key="ambiguous")
            _first_only(len(some), len(found.ambiguous), "entries")
    if data.truth is not None:
        with st.expander(counted(len(data.truth), "pair")):
            some = data.truth.array[:MOST_SHOWN]
            table = {
                "row of A": data.x.ids[some[:, 0]],
                "A": data.x.names[some[:, 0]],
                "B": data.y.names[some[:, 1]],
                "row of B": data.y.ids[some[:, 1]],
            }
            st.dataframe(pd.DataFrame(table), hide_index=True, key="pairs", height=300)
            _first_only(len(some), len(data.truth), "pairs")


# ---------------------------------------------------------------- selected rows


def selected_rows(s: state.State) -> None:
    """The rows selected on the map, with their pictures: what no hover label can show of many rows at once."""
    chosen = s.selection.current
    if not len(chosen):
        return
    for column, side in zip(st.columns(2, gap="large"), "xy", strict=True):
        space, ids = (s.data.x, chosen.x) if side == "x" else (s.data.y, chosen.y)
        rows = space.positions(ids[:MOST_SELECTED])
        if not len(rows):
            continue
        with column:
            table, config = {"row": space.ids[rows]}, {"row": st.column_config.NumberColumn(width=60)}
            if space.media is not None:
                columns, more = pictures.columns(space.media[rows])
                table, config = table | columns, config | more
            table["name"] = space.names[rows]
            if space.labels is not None:
                table["label"] = [label or "(none)" for label in space.labels[rows]]
            if space.meta is not None:
                table |= {str(c): space.meta[c].iloc[rows].astype(str).to_numpy() for c in space.meta.columns[:6]}
            st.caption(f"Selected in {LETTERS[side]}: {counted(len(ids), 'row')}" + _of_first(len(rows), len(ids)))
            st.dataframe(
                pd.DataFrame(table),
                hide_index=True,
                height=min(36 * len(rows) + 40, 220),
                row_height=56 if "picture" in table else None,
                column_config=config,
                key=f"selected_{side}_{s.selection.revision}",
                alt=f"Rows selected in {LETTERS[side]}",
            )


def _of_first(shown: int, n: int) -> str:
    return f", the first {shown:,} shown" if shown < n else ""
