"""Data: two spaces side by side, from a sample, an upload or a file on the server, and their twin map."""

from __future__ import annotations

import streamlit as st

from pages._ui import load_report, loader, maps, router, runner, state
from pages._ui.header import plain
from relcore import samples
from relcore.errors import InputError

router.ensure()


def main() -> None:
    s = state.page_state()
    loader.settle(s)
    st.title("Data", anchor=False)
    invitation(s)
    maps.data_map(s)
    load_report.selected_rows(s)
    reports(s)
    gallery(s)
    own_files(s)


def gallery(s: state.State) -> None:
    """One card a sample; the one at hand is marked."""
    st.subheader("Sample pairs", anchor=False)
    found = samples.list_samples()
    for column, sample in zip(st.columns(len(found)), found, strict=True):
        with column, st.container(border=True, height="stretch"):
            here = s.data.sample == sample.name
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
    busy = bool(files.opening or files.errors or files.chosen)
    with st.expander("Open your own two spaces", icon=":material/upload_file:", expanded=busy or not s.data.sample):
        loader.panel(s)


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
