"""Data: spaces from a sample, uploads or files on the server, and the twin map of the two that are picked."""

from __future__ import annotations

import streamlit as st

from pages._ui import load_report, loader, maps, router, runner, session_files, state
from pages._ui.header import plain
from relcore import samples
from relcore.errors import InputError

router.ensure()


def main() -> None:
    s = state.page_state()
    loader.settle(s)
    st.title("Data", anchor=False)
    invitation(s)
    if s.data.more:
        picks(s)
    maps.data_map(s)
    load_report.selected_rows(s)
    reports(s)
    if s.data.more:
        listing(s)
    gallery(s)
    own_files(s)
    with st.expander("Open a session", icon=":material/inventory_2:"):
        session_files.panel(s)
    one_more(s)


def gallery(s: state.State) -> None:
    """One card a sample; the one at hand is marked."""
    st.subheader("Samples", anchor=False)
    found = samples.list_samples()
    for column, sample in zip(st.columns(len(found)), found, strict=True):
        with column, st.container(border=True, height="stretch"):
            here = s.data.gallery == sample.name
            st.markdown(f"**{plain(sample.title)}**" + ("  :green-badge[open]" if here else ""))
            st.caption(plain(sample.description))
            if st.button("Open", key=f"sample_{sample.name}", disabled=here, width="stretch"):
                state.open_sample(s, sample.name)
                st.rerun()


def invitation(s: state.State) -> None:
    """The one click that shows what this is about."""
    data, pairs = s.data, s.seeds.pairs
    action, words = st.columns([1, 4], vertical_alignment="center")
    if len(pairs):
        busy = runner.my_active_job(s) is not None
        if action.button(
            f"Run {runner.suggested(s.data).title.lower()}",
            type="primary",
            icon=":material/play_arrow:",
            key="run_first",
            disabled=busy,
            help="A run of yours is going on; see the Align page." if busy else None,
            width="stretch",
        ):
            try:
                runner.start_default(s)
                st.switch_page(router.ALIGN)
            except InputError as e:
                st.error(str(e))
        words.markdown(
            f"Two encoders, no shared coordinates: only **{len(pairs)} pairs** of rows are given away. "
            "Watch the two spaces find each other, then read whose neighbours are whose."
        )
        return
    known = "No pairs are known between these two spaces" if data.truth is None else "No seeds are chosen"
    words.markdown(
        f":material/info: {known}. Every method so far needs seed pairs: pair the rows by name or number when "
        "loading, or give seeds by file or by hand on the **Seeds** page."
    )
    if action.button("Choose seeds", icon=":material/link:", width="stretch"):
        st.switch_page(router.SEEDS)


def own_files(s: state.State) -> None:
    files = s.files
    busy = _goes_on(s, adding=False) or bool({"x", "y"} & set(files.chosen))
    with st.expander("Open your own two spaces", icon=":material/upload_file:", expanded=busy or not s.data.gallery):
        loader.panel(s)


def _goes_on(s: state.State, *, adding: bool) -> bool:
    """Whether files are on their way into the list, or as a new one, or something went wrong there."""
    opening, files = s.files.opening, s.files
    return (opening is not None and opening.adding == adding) or (bool(files.errors) and files.adding == adding)


# ---------------------------------------------------------------- the list


def picks(s: state.State) -> None:
    """Which two of the list are A and B; picking for one what is the other changes them about."""
    data = s.data
    places = st.columns([2, 2, 1], vertical_alignment="center")
    for k, letter in enumerate("AB"):
        key = f"pick_{letter}"
        st.session_state[key] = data.picked[k]
        places[k].selectbox(
            f"Space that is {letter}",
            range(len(data.listed)),
            format_func=lambda i, letter=letter: f"{letter}: {data.marks[i]} · {data.listed[i].title}",
            key=key,
            label_visibility="collapsed",
            on_change=_pick,
            args=(s, k, key),
        )
    places[2].caption(f"{len(data.listed)} spaces, {_common(data)}")


def _pick(s: state.State, k: int, key: str) -> None:
    picked, wanted = list(s.data.picked), st.session_state[key]
    if picked[1 - k] == wanted:
        picked.reverse()
    picked[k] = wanted
    state.pick(s, *picked)


def _common(data: state.Data) -> str:
    rows = data.spaces.rows
    return "common items not known" if rows is None else f"{load_report.counted(len(rows), 'item')} in each"


def listing(s: state.State) -> None:
    """Every space of the list, how its rows pair up with those of the first, and the way to take it off."""
    data = s.data
    st.subheader("Spaces", anchor=False)
    for i, one in enumerate(data.listed):
        words, action = st.columns([6, 1], vertical_alignment="center")
        picked = "AB"[data.picked.index(i)] if i in data.picked else ""
        words.markdown(
            f"**{data.marks[i]}** · {plain(one.title)} · {len(one.space):,} × {one.space.dim}"
            + (f" · {_pairs_with_first(data, one)}" if i else "")
            + (f"  :blue-badge[{picked}]" if picked else "")
        )
        action.button(
            "Remove",
            key=f"remove_listed_{i}",
            type="tertiary",
            disabled=s.files.opening is not None,
            on_click=state.remove,
            args=(s, i),
        )
        if i:
            _remarks(data, i)
    rows = data.spaces.rows
    if rows is not None and not len(rows):
        fewest = min(data.listed[1:], key=lambda one: len(one.truth))
        st.warning(
            f"No item is in all {len(data.listed)} spaces, so nothing can be compared across all of them. Remove the "
            f"one that shares the fewest, {plain(fewest.title)}, or pair it in another way."
        )
    elif rows is not None:
        st.caption(f":material/join_inner: {load_report.counted(len(rows), 'item')} in all {len(data.listed)} spaces")


def _pairs_with_first(data: state.Data, one: state.Listed) -> str:
    first = f"with {data.marks[0]}"
    if one.truth is None:
        return f"no pairs known {first}"
    return f"{load_report.counted(len(one.truth), 'pair')} {first}, by {plain(one.how)}"


def _remarks(data: state.Data, i: int) -> None:
    """What stood in the way of pairing a space with the first; without a pair, what to do about it."""
    one, names = data.listed[i], {"x": f"space {data.marks[0]}", "y": f"space {data.marks[i]}"}
    said = [plain(load_report.lettered(p, names)) for p in one.problems]
    if one.truth is None:
        why = f" ({'; '.join(said[-1:])})" if said else ""
        tell = st.warning if one.how != "none" else st.caption  # as it was asked for
        tell(
            f"{data.marks[i]} · {plain(one.title)} has no row that is known to be one of {plain(data.listed[0].title)}"
            f"{why}. Remove it and add it again, paired in another way or with names from a file beside it."
        )
    elif said:
        more = f" · {len(said) - 3} more" if len(said) > 3 else ""
        st.caption(":material/info: " + " · ".join(said[:3]) + more)


def one_more(s: state.State) -> None:
    files = s.files
    busy = _goes_on(s, adding=True) or "z" in files.chosen
    label = "Add a space to the list" if s.data.more else "Add a third space to these two"
    with st.expander(label, icon=":material/add:", expanded=busy):
        loader.panel_to_add(s)


# ---------------------------------------------------------------- what was read


def reports(s: state.State) -> None:
    for column, side in zip(st.columns(2, gap="large"), "xy", strict=True):
        with column:
            load_report.one_side(s, side)
    load_report.pairs(s.data)
    label_overlap(s.data)


def label_overlap(data: state.Data) -> None:
    """Classes on one side only: the first hint of a missing region."""
    if data.x.labels is None or data.y.labels is None:
        return
    a, b = set(data.x.labels) - {""}, set(data.y.labels) - {""}
    for side, other, only in (("A", "B", a - b), ("B", "A", b - a)):
        if only:
            shown = ", ".join(plain(c) for c in sorted(only)[:12])
            more = f" and {len(only) - 12} more" if len(only) > 12 else ""
            st.caption(f":material/warning: Only in {side}, not in {other}: {shown}{more}.")


main()
