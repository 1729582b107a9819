"""Data: two spaces side by side, from a sample, an upload or a file on the server, and their twin map."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pandas as pd
import streamlit as st

from pages._ui import maps, router, runner, state
from pages._ui.header import plain
from relcore import formats, samples, seeds, store
from relcore.errors import InputError
from relcore.space import LoadReport, Space

router.ensure()
LETTERS = {"x": "A", "y": "B"}
PAIRINGS = {
    "row": "row number: row 5 of A is row 5 of B",
    "name": "name: the same name on both sides",
    "none": "not known: nothing can be scored",
}


def main() -> None:
    s = state.page_state()
    st.title("Data", anchor=False)
    invitation(s)
    maps.data_map(s)
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


# ---------------------------------------------------------------- own files


def data_root() -> Path:
    """Files below it may be opened by path; ``$RELCORE_DATA``, else the samples."""
    return Path(os.environ.get("RELCORE_DATA") or Path(__file__).parent.parent / "sample_data").resolve()


@st.cache_data(ttl=10, show_spinner=False)
def server_files(root: str) -> list[str]:
    """Loadable files below the root, without links, sorted; at most 2,000."""
    wanted = formats.endings()
    out = []
    for folder, folders, files in os.walk(root, followlinks=False):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        out += [
            str(Path(folder, f).relative_to(root))
            for f in sorted(files)
            if f.lower().endswith(wanted) and not Path(folder, f).is_symlink()
        ]
        if len(out) >= 2000:
            break
    return out[:2000]


def own_files(s: state.State) -> None:
    with st.expander("Open your own two spaces", icon=":material/upload_file:", expanded=not s.data.sample):
        sources = {}
        for column, side in zip(st.columns(2, gap="large"), "xy", strict=True):
            with column:
                sources[side] = source(side)
        how = st.radio(
            "How rows correspond (used for seeds and scoring, never shown to a method)",
            list(PAIRINGS),
            format_func=PAIRINGS.get,
            key="pairing",
            persist_state="session",
        )
        ready = all(sources.values())
        if st.button(
            "Open both",
            type="primary",
            disabled=not ready,
            key="open_both",
            help=None if ready else "Choose a file on either side first",
        ):
            open_both(s, sources, how)


def source(side: str) -> dict | None:
    """File, array, names and labels of one side; None until a file is chosen."""
    letter = LETTERS[side]
    st.markdown(f"**Space {letter}**")
    limit = st.get_option("server.maxUploadSize")
    upload = st.file_uploader(
        f"Upload {letter} ({', '.join(formats.endings())}; at most {limit} MB)",
        key=f"upload_{side}",
        help=f"An upload costs up to three times its size in memory. Larger files: put them below {data_root()} on "
        "the server and choose them here.",
    )
    root = data_root()
    picked = st.selectbox(
        f"or a file on the server, below {root}",
        server_files(str(root)),
        index=None,
        key=f"path_{side}",
        placeholder="choose a file",
        disabled=upload is not None,
    )
    try:
        if upload is not None:
            path = keep_upload(upload)
        elif picked:
            path = formats.inside(root, picked)
        else:
            return None
        return {"path": path, "title": Path(upload.name if upload else picked).stem, **array_picker(side, path)}
    except InputError as e:
        st.error(f"Space {letter}: {e}")
        return None


def keep_upload(upload) -> Path:
    """Write an upload under its digest, so that a rerun or another page finds it without the browser."""
    data = upload.getbuffer()
    folder = store.home() / "uploads" / hashlib.sha256(data).hexdigest()[:16]
    path = folder / Path(upload.name.replace("\\", "/")).name
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        store.write_atomic(path, data)
    return path


def array_picker(side: str, path: Path) -> dict:
    """Which array holds the vectors, the names, the labels, when the file holds several."""
    listed = formats.arrays(path)
    vectors = [a.name for a in listed if a.is_vectors]
    others = [a.name for a in listed if not a.is_vectors]
    if len(listed) < 2:
        return {"key": None, "names": None, "labels": None}
    shapes = {a.name: f"{a.name}  {a.shape} {a.dtype}" for a in listed}
    key = st.selectbox("Vectors", vectors, format_func=shapes.get, key=f"key_{side}_{path}")
    names = st.selectbox(
        "Names", [None, *others], format_func=lambda n: shapes.get(n, "as the file says"), key=f"names_{side}_{path}"
    )
    labels = st.selectbox(
        "Labels", [None, *others], format_func=lambda n: shapes.get(n, "as the file says"), key=f"labels_{side}_{path}"
    )
    return {"key": key, "names": names, "labels": labels}


def open_both(s: state.State, sources: dict, how: str) -> None:
    loaded = {}
    for side, chosen in sources.items():
        try:
            loaded[side] = formats.load(
                chosen["path"],
                key=chosen["key"],
                names=chosen["names"],
                labels=chosen["labels"],
                title=chosen["title"],
            )
        except InputError as e:
            st.error(f"Space {LETTERS[side]}: {e}")
    if len(loaded) < 2:
        return
    (x, report_x), (y, report_y) = loaded["x"], loaded["y"]
    try:
        truth, problems = seeds.pair_by(x, y, how)
    except InputError as e:
        st.error(str(e))
        return
    store.put_space(x, report_x)  # a link or a reload finds them again
    store.put_space(y, report_y)
    state.set_data(s, state.Data(x, y, report_x, report_y, truth, how, problems))
    st.rerun()


# ---------------------------------------------------------------- what was read


def reports(s: state.State) -> None:
    data = s.data
    for column, space, report in zip(
        st.columns(2, gap="large"), (data.x, data.y), (data.report_x, data.report_y), strict=True
    ):
        with column:
            one_report(space, report)
    paired = "no pairing known" if data.truth is None else f"{len(data.truth):,} rows correspond, by {data.pairing}"
    st.caption(f":material/link: {paired}.")
    for problem in data.problems:
        st.caption(f":material/info: {plain(problem)}")
    label_overlap(data)


def one_report(space: Space, report: LoadReport) -> None:
    st.markdown(f"**{plain(space.title)}** · {report.summary()} · {report.dim} dimensions, stored as {report.dtype}")
    said = [*report.assumed, *report.warnings]
    if said:
        st.caption(":material/info: " + " · ".join(plain(text) for text in said))
    if report.set_aside:
        with st.expander(f"{len(report.set_aside):,} rows set aside"):
            st.dataframe(
                pd.DataFrame(report.set_aside, columns=["row in the file", "reason"]),
                hide_index=True,
                key=f"aside_{space.fingerprint}",
            )


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
