"""Opening own files: choose them, see what is in them, decide, load, pair. Nothing is loaded before it was looked at.

Files are read in a process of their own (:mod:`relcore.loading`); what is here draws fields and keeps what was chosen
in the visitor's state, so that leaving the page or pressing twice loses and doubles nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import streamlit as st

from pages._ui import state
from pages._ui.header import plain
from relcore import formats, loading, memory, seeds, store
from relcore.errors import InputError
from relcore.formats.base import COLUMN_ROLES
from relcore.formats.registry import split_spec
from relcore.seeds import Pairing

LETTERS = {"x": "A", "y": "B"}
PAIRINGS = {  # of the one and the other
    "row": "row number: row 5 of {} is row 5 of {}",
    "name": "name: the same name on both sides",
    "id": "id: the same value in a column of each side",
    "file": "a file of two columns: a row of {}, a row of {}",
    "none": "not known: nothing can be scored",
}
MATCH = {
    "position": "by position, equal counts",
    "id": "by an id column",
    "first": "to the first rows, as far as they go",
}
MISSING = {
    "set aside": "set the row aside",
    "column mean": "fill in the column's mean",
    "stop": "stop, and name the first",
}
DUPLICATES = {
    "": "as the format has it (word vectors: the first is kept)",
    "first": "keep the first of each",
    "all": "keep all",
}
PICTURE_ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp")
BESIDE = ("names", "labels", "metadata", "media")  # options that may name another file
SHORT_RUN = 4  # columns in a row of one kind and role that are shown in one line
HEAD_ROWS = 5
MAX_FILES = 2000  # listed of the server's
SAID_AT_ONCE = 2.0  # seconds until a load has a progress bar


# ---------------------------------------------------------------- files of this server, and uploads


def data_root() -> Path:
    """Files below it may be opened by path; ``$RELCORE_DATA``, else the samples."""
    return Path(os.environ.get("RELCORE_DATA") or Path(__file__).parents[2] / "sample_data").resolve()


@st.cache_data(ttl=10, show_spinner=False)
def server_files(root: str) -> tuple[list[str], list[str]]:
    """Loadable files, and folders that hold pictures, below the root; without links, sorted, at most 2,000 each."""
    files, folders = [], []
    for folder, inner, names in os.walk(root, followlinks=False):
        inner[:] = sorted(f for f in inner if not f.startswith("."))
        here = Path(folder).relative_to(root)
        plain_names = sorted(n for n in names if not Path(folder, n).is_symlink())
        files += [str(here / n) for n in plain_names if n.lower().endswith(formats.endings())]
        if any(n.lower().endswith(PICTURE_ENDINGS) for n in plain_names):
            folders.append(str(here))
        if len(files) >= MAX_FILES:
            break
    return files[:MAX_FILES], folders[:MAX_FILES]


def keep_upload(upload) -> Path:
    """Write an upload under its digest, so that a rerun or another page finds it without the browser."""
    data = upload.getbuffer()
    folder = store.home().resolve() / "uploads" / hashlib.sha256(data).hexdigest()[:16]
    name = Path(upload.name.replace("\\", "/")).name
    name = "".join(c if c.isprintable() else "_" for c in name)[-100:] or "upload"
    path = folder / name
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        store.write_atomic(path, data)
    return path


def _take_upload(s: state.State, key: str, where: str, use: Callable[[str, str], None]) -> None:
    """Keep what a field was given and empty the field, so that the server does not hold the bytes a second time."""
    given = st.session_state.get(key)
    for upload in given if isinstance(given, list) else [given]:
        if upload is not None:
            try:
                use(str(keep_upload(upload)), upload.name)
            except OSError as e:
                s.files.adding = where.endswith("z")
                s.files.errors.append(f"{upload.name} could not be kept ({e.strerror}); free some disk space.")
    s.files.turns[where] = s.files.turns.get(where, 0) + 1


def upload_limit() -> int:
    return int(st.get_option("server.maxUploadSize"))


def show_error(text: str) -> None:
    """One sentence, as text; what follows it (a recipe) as code."""
    sentence, _, recipe = text.partition("\n")
    st.error(plain(sentence))
    if recipe.strip():
        st.code(textwrap.dedent(recipe), language="python")


# ---------------------------------------------------------------- the panel


def panel(s: state.State) -> None:
    """Two sources, how they pair up, and the button that opens them."""
    sides = {}
    for column, side in zip(st.columns(2, gap="small"), "xy", strict=True):
        with column, st.container(border=True, height="stretch"):
            sides[side] = source(s, side)
    choice, refusal = pairing_choice(s, *(sides[side].columns if sides[side] else () for side in "xy"))
    requests = {place: sides[side].request for place, side in enumerate("xy") if sides[side]}
    going = s.files.opening is not None
    missing = [LETTERS[side] for side in "xy" if not sides[side]]
    why = f"Choose a file for {' and '.join(missing)} first" if missing else refusal
    st.button(
        "Open both",
        type="primary",
        disabled=bool(why) or going,
        key="open_both",
        help=why or ("Being loaded" if going else None),
        on_click=begin,
        args=(s, requests, {1: choice}),
    )
    _how_it_goes(s, adding=False)


def panel_to_add(s: state.State) -> None:
    """One more space for the list: its source, how it pairs up with the first, and the button that adds it."""
    data = s.data
    if len(data.listed) >= state.MAX_SPACES:
        st.info(f"The list holds {state.MAX_SPACES} spaces, which is the most; remove one to add another.")
        return
    with st.container(border=True):
        chosen = source(s, "z")
    first = data.listed[0]
    known = () if first.space.meta is None else tuple(map(str, first.space.meta.columns))
    choice, refusal = pairing_choice(s, known, chosen.columns if chosen else (), tag="_z")
    going = s.files.opening is not None
    why = refusal if chosen else "Choose a file first"
    st.button(
        "Add to the list",
        type="primary",
        disabled=bool(why) or going,
        key="add_space",
        help=why or ("Being loaded" if going else None),
        on_click=begin,
        args=(s, {len(data.listed): chosen.request} if chosen else {}, {len(data.listed): choice}, data.listed),
    )
    _how_it_goes(s, adding=True)


def _how_it_goes(s: state.State, *, adding: bool) -> None:
    """Progress and errors, below the button they belong to."""
    if s.files.opening is not None and s.files.opening.adding == adding:
        progress(s)
    if s.files.adding == adding:
        for text in s.files.errors:
            show_error(text)


def short(s: state.State, side: str) -> str:
    """``A``, ``B``, or for a space to be added its number in the list: ``space 3``."""
    return LETTERS.get(side) or f"space {len(s.data.listed) + 1}"


def heading(s: state.State, side: str) -> str:
    return f"Space {short(s, side).removeprefix('space ')}"


@dataclass(frozen=True)
class Chosen:
    """A side that can be loaded, and the names of what its rows could be paired by."""

    request: state.Request
    columns: tuple[str, ...]


def source(s: state.State, side: str) -> Chosen | None:
    """File, preview and options of one side; None until there is something to load."""
    files = s.files
    st.markdown(f"**{heading(s, side)}**")
    root = data_root()
    path, name, uploaded = files.chosen.get(side, ("", "", False))
    if uploaded:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f":material/upload_file: **{plain(name)}** · {_size(path)}, uploaded")
            st.button("Remove", key=f"remove_{side}", type="tertiary", on_click=files.chosen.pop, args=(side, None))
    else:
        key = f"upload_{side}_{files.turns.get(side, 0)}"

        def use(path: str, name: str) -> None:
            files.chosen[side] = (path, name, True)
            files.errors.clear()
            st.session_state[f"path_{side}"] = None

        st.file_uploader(
            f"Upload {short(s, side)}, at most {upload_limit():,} MB",
            key=key,
            on_change=_take_upload,
            args=(s, key, side, use),
            help=f"While it is received an upload takes up to three times its size in memory. Put larger files below "
            f"{root} on the server and choose them here: they are read in place. Formats: "
            f"{', '.join(dict.fromkeys(formats.endings()))}.",
        )
    st.selectbox(
        f"or a file on the server, below {root}",
        server_files(str(root))[0],
        index=None,
        key=f"path_{side}",
        placeholder="choose a file",
        accept_new_options=True,
        persist_state="session",
        on_change=_take_path,
        args=(s, side),
    )
    if not path:
        return None
    try:
        file = Path(path) if uploaded else formats.inside(root, path)
        stamp = _stamp(file)
    except InputError as e:
        show_error(f"{heading(s, side)}: {e}")
        return None
    return preview(s, side, file, name, stamp)


def _take_path(s: state.State, side: str) -> None:
    picked = st.session_state[f"path_{side}"]
    s.files.errors.clear()
    if picked:
        s.files.chosen[side] = (picked, Path(picked).name, False)
    elif not s.files.chosen.get(side, ("", "", False))[2]:
        s.files.chosen.pop(side, None)


def _stamp(file: Path) -> tuple[int, int]:
    try:
        found = file.stat()
    except OSError:
        raise InputError(f"{file.name} is gone; upload it again or choose another file.") from None
    return found.st_mtime_ns, found.st_size


def _size(path: str) -> str:
    try:
        return memory.as_text(os.path.getsize(path))
    except OSError:
        return "gone"


@st.cache_data(show_spinner=False, max_entries=256, ttl=3600)
def _look(path: str, stamp: tuple[int, int], options: str) -> dict:
    return loading.look(path, **json.loads(options))


@st.cache_data(show_spinner=False, max_entries=256, ttl=3600)
def _columns(path: str, stamp: tuple[int, int]) -> dict:
    return loading.columns(path)


def columns_of(file: Path) -> dict:
    """The columns of a file beside the vectors; ``{"error": ...}`` if they cannot be told."""
    return _columns(str(file), _stamp(file))


def look(file: Path, stamp: tuple[int, int], **options) -> dict:
    with st.spinner(f"Looking at {plain(file.name)}"):
        return _look(str(file), stamp, json.dumps(options, sort_keys=True))


# ---------------------------------------------------------------- preview


def preview(s: state.State, side: str, file: Path, name: str, stamp: tuple[int, int]) -> Chosen | None:
    """What the file holds, told before it is loaded; what was changed here is what will be loaded."""
    seen = look(file, stamp)
    arrays = seen.get("arrays", [])
    options: dict = {"title": Path(name).stem}
    beside: dict = {}
    if len(arrays) > 1:
        beside = pick_arrays(side, file, arrays, must=bool(seen.get("choose")))
        if beside.get("key"):
            seen = look(file, stamp, key=beside["key"])
    key = beside.get("key")
    roles = s.files.roles.get((str(file), key), {})
    base = seen
    if roles:
        seen = look(file, stamp, key=key, columns=roles)
    if "error" not in seen:
        facts(seen)
    elif seen.get("choose"):
        st.info("This file holds several arrays that can be the vectors: choose one.", icon=":material/data_array:")
    else:
        show_error(f"{heading(s, side)}: {seen['error']}")
    listed = seen.get("columns") or _with_roles(base.get("columns", []), roles)
    if listed:
        edit_roles(s, side, (str(file), key), listed)
    if "error" in seen:
        return None
    first_rows(seen)
    if listed and not any(c["role"] == "vector" for c in listed):
        st.info("No column is a vector: give one that role, or choose another file.", icon=":material/table:")
        return None
    options |= {k: v for k, v in beside.items() if v is not None}
    if roles:
        options["columns"] = roles
    try:
        more, others = other_options(s, side, file, seen)
    except InputError as e:
        show_error(f"{heading(s, side)}: {e}")
        return None
    if more:
        told = [
            f"{k.replace('_', ' ')} {Path(v).name if k in BESIDE else v}"
            for k, v in sorted(more.items())
            if v is not True
        ]
        told += ["case folded"] if more.get("fold_case") else []
        st.caption(":material/tune: " + " · ".join(plain(t) for t in told))
    options |= more
    columns = [c["name"] for c in listed if c["role"] in ("id", "meta", "name", "label")]
    columns += [a["name"] for a in arrays if len(a["shape"]) == 1]
    return Chosen(request_of(file, options), tuple(dict.fromkeys([*columns, *others])))


def facts(seen: dict) -> None:
    rows = "" if seen["rows"] is None else f"{seen['rows']:,} rows"
    dim = "" if seen["dim"] is None else f"{seen['dim']:,} dimensions"
    shape = " × ".join(filter(None, (rows, dim))) or "vectors"
    if not rows:
        shape += " (rows are counted when loading)"
    cost = ""
    if seen["memory"] is not None:
        cost = (
            f" · reading takes about {memory.as_text(seen['memory'])} of memory"
            if seen["memory"]
            else " · read in place"
        )
    st.markdown(f":green-badge[{plain(seen['format'])}] {shape}, stored as {plain(seen['dtype'])}{cost}")
    if seen["note"]:
        st.warning(plain(seen["note"]) + ".", icon=":material/memory:")
    for text in seen["warned"]:
        st.caption(f":material/warning: {plain(text)}")
    if seen["assumed"]:
        st.caption(":material/info: " + " · ".join(plain(text) for text in seen["assumed"]))


def pick_arrays(side: str, file: Path, arrays: list[dict], *, must: bool) -> dict:
    """Which array holds the vectors, which the names and labels, with their shapes."""
    shapes = {a["name"]: f"{a['name']}   {' × '.join(map(str, a['shape']))}   {a['dtype']}" for a in arrays}
    vectors = [a["name"] for a in arrays if a["vectors"]]
    columns = [a["name"] for a in arrays if len(a["shape"]) == 1]
    key = st.selectbox(
        "Array of vectors",
        vectors if must else ["", *vectors],
        index=None if must else 0,
        format_func=lambda n: shapes.get(n, "the one told below"),
        key=f"key_{side}_{file}",
        placeholder="choose the array of vectors",
    )
    out = {"key": key or None}
    if columns:
        for column, role in zip(st.columns(2), ("names", "labels"), strict=True):
            out[role] = column.selectbox(
                f"{role.capitalize()} from",
                [None, *columns],
                format_func=lambda n: shapes.get(n, "as the file says"),
                key=f"{role}_{side}_{file}",
            )
    return out


@dataclass(frozen=True)
class Line:
    """A line of the table of roles: one column, or a run of alike ones."""

    label: str
    kind: str
    role: str
    cells: str
    members: tuple[str, ...]


def lines_of(columns: Sequence[dict]) -> list[Line]:
    """Columns as lines; :data:`SHORT_RUN` or more neighbours that differ by a number only share one."""

    def family(c: dict) -> tuple:
        return c["kind"], c["role"], re.sub(r"\d+", "#", c["name"])

    out: list[Line] = []
    start = 0
    for end in range(1, len(columns) + 1):
        if end < len(columns) and family(columns[end]) == family(columns[start]):
            continue
        run, first = columns[start:end], columns[start]
        if len(run) >= SHORT_RUN:
            label = f"{first['name']} … {run[-1]['name']} ({len(run):,} columns)"
            out.append(Line(label, first["kind"], first["role"], "", tuple(c["name"] for c in run)))
        else:
            out += [
                Line(c["name"], c["kind"], c["role"], " · ".join(_short(e) for e in c["examples"][:3]), (c["name"],))
                for c in run
            ]
        start = end
    return out


def _short(text: str, most: int = 40) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _with_roles(columns: list[dict], roles: dict[str, str]) -> list[dict]:
    return [c | {"role": roles.get(c["name"], c["role"])} for c in columns]


def edit_roles(s: state.State, side: str, where: tuple, columns: list[dict]) -> None:
    """The table of roles. Every change is a new table, drawn from what the reader makes of it."""
    roles = s.files.roles.get(where, {})
    grouped = lines_of(columns)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown("**What each column is**", help="Change a role by double-clicking it; nothing is loaded before.")
        each = False
        if len(grouped) < len(columns):
            each = st.toggle("every column by itself", key=f"each_{side}")
        if roles:
            st.button(
                "As found", key=f"as_found_{side}", type="tertiary", on_click=s.files.roles.pop, args=(where, None)
            )
    if each:
        grouped = [line for c in columns for line in lines_of([c])]
    digest = hashlib.blake2b(repr((where, each, sorted(roles.items()))).encode(), digest_size=6).hexdigest()
    key = f"roles_{side}_{digest}"
    table = pd.DataFrame(
        {
            "column": [line.label for line in grouped],
            "role": [line.role for line in grouped],
            "holds": [line.kind for line in grouped],
            "first cells": [line.cells for line in grouped],
        }
    )
    st.data_editor(
        table,
        key=key,
        hide_index=True,
        width="stretch",
        height=min(36 * len(table) + 40, 260),
        disabled=["column", "holds", "first cells"],
        column_config={
            "column": st.column_config.TextColumn(width="medium"),
            "role": st.column_config.SelectboxColumn(options=list(COLUMN_ROLES), required=True, width="small"),
            "holds": st.column_config.TextColumn(width="small"),
        },
        on_change=_take_roles,
        args=(s, where, key, grouped),
        alt=f"Columns of the file for space {heading(s, side).removeprefix('Space ')} and their roles",
    )


def _take_roles(s: state.State, where: tuple, key: str, lines: list[Line]) -> None:
    roles = dict(s.files.roles.get(where, {}))
    for row, change in st.session_state[key]["edited_rows"].items():
        if "role" in change:
            role = change["role"]
            if role in ("name", "label", "media"):  # one column only can be that
                roles = {c: ("meta" if r == role else r) for c, r in roles.items()}
            roles |= dict.fromkeys(lines[int(row)].members, role)
    s.files.roles[where] = roles
    s.files.errors.clear()


def first_rows(seen: dict) -> None:
    head, columns = seen["head"], seen["columns"]
    shown: dict[str, list[str]] = {}
    for c in columns:
        if c["role"] not in ("vector", "ignore") and len(shown) < 8:
            shown[f"{c['name']} ({c['role']})"] = [_short(e, 60) for e in c["examples"][:HEAD_ROWS]]
    if head:
        for i in range(len(head[0])):
            shown[f"[{i}]"] = [row[i] for row in head[:HEAD_ROWS]]
        if seen["dim"] and seen["dim"] > len(head[0]):
            shown["…"] = ["…"] * len(head[:HEAD_ROWS])
    n = max(map(len, shown.values()), default=0)
    if n:
        table = pd.DataFrame({name: cells + [""] * (n - len(cells)) for name, cells in shown.items()})
        st.caption(f"First {n} rows" if n > 1 else "First row")
        st.dataframe(table, hide_index=True, width="stretch", alt="The first rows of the file")


# ---------------------------------------------------------------- files beside, rows that lack something


def other_options(s: state.State, side: str, file: Path, seen: dict) -> tuple[dict, list[str]]:
    """What is asked of :func:`relcore.formats.load` beyond the file itself, and the metadata columns it brings.

    Raises
    ------
    InputError
        A file beside is not inside the data folder, or gone.
    """
    out: dict = {}
    columns: list[str] = []
    with st.expander("Files beside, thumbnails, missing numbers, duplicates"):
        key = f"beside_{side}_{s.files.turns.get('beside' + side, 0)}"
        st.file_uploader(
            f"Upload files beside {short(s, side)}, at most {upload_limit():,} MB each",
            accept_multiple_files=True,
            key=key,
            on_change=_take_upload,
            args=(s, key, "beside" + side, lambda path, name: s.files.beside[side].append(path)),
            help="They are then offered below, with the files of the server.",
        )
        places = [st.columns(2) for _ in range(2)]
        for place, role in zip(
            (places[0][0], places[0][1], places[1][0]), ("names", "labels", "metadata"), strict=True
        ):
            with place:
                other = pick_file(s, side, f"{role.capitalize()} from a file", f"{role}_file_{side}_{file}")
                if other is None:
                    continue
                out[role] = str(other)
                found = columns_of(other).get("columns", [])
                if role == "metadata":
                    columns = found
                elif len(found) > 1:
                    column = st.selectbox(
                        "Column", ["", *found], key=f"{role}_column_{side}_{other}",
                        format_func=lambda c: c or "the one whose heading says so",
                    )  # fmt: skip
                    out[role] = f"{other}:{column}" if column else str(other)
        with places[1][1]:
            folder = st.selectbox(
                "Thumbnails from a folder",
                server_files(str(data_root()))[1],
                index=None,
                placeholder="none",
                key=f"folder_{side}_{file}",
                help="A folder of pictures on the server, one a row, found by name or in order. A column of pictures "
                "or paths is chosen by its role, media.",
            )
            if folder:
                out["media"] = str(_folder_inside(data_root(), folder))
        if {"names", "labels", "metadata"} & set(out):
            match = st.radio(
                "Their rows belong to the vectors",
                list(MATCH),
                format_func=MATCH.get,
                key=f"match_{side}",
                horizontal=True,
            )
            out["match"] = match
            if match == "id" and columns:
                id_column = st.selectbox(
                    "Id column of the metadata", ["", *columns], format_func=lambda c: c or "the one called so",
                    key=f"id_column_{side}_{file}",
                )  # fmt: skip
                if id_column:
                    out["id_column"] = id_column
        left, right = st.columns(2)
        missing = left.radio(
            "Rows with NaN or infinite numbers", list(MISSING), format_func=MISSING.get, key=f"missing_{side}",
            persist_state="session",
        )  # fmt: skip
        duplicates = right.radio(
            "Rows with the name of an earlier row", list(DUPLICATES), format_func=DUPLICATES.get,
            key=f"duplicates_{side}", persist_state="session",
        )  # fmt: skip
        folded = next((v["folded"] for k, v in s.files.loaded.items() if k[0] == str(file) and v["folded"]), None)
        fold = right.checkbox(
            "Fold case" + (f" (would merge {folded:,} rows)" if folded else ""),
            key=f"fold_{side}",
            persist_state="session",
            help="Names that differ in upper and lower case only count as the same; the first row of each is kept. How "
            "many rows that merges is told once the file was loaded.",
        )
    if missing != "set aside":
        out["missing"] = missing
    if duplicates:
        out["duplicates"] = duplicates
    if fold:
        out["fold_case"] = True
    return out, columns


def pick_file(s: state.State, where: str, label: str, key: str) -> Path | None:
    """One of the files uploaded beside, or of the server."""
    uploaded = s.files.beside[where]
    root = data_root()
    picked = st.selectbox(
        label,
        [*uploaded, *server_files(str(root))[0]],
        index=None,
        placeholder="none",
        format_func=lambda p: f"{Path(p).name} (uploaded)" if p in uploaded else p,
        key=key,
    )
    if picked is None:
        return None
    return Path(picked) if picked in uploaded else formats.inside(root, picked)


def _folder_inside(root: Path, folder: str) -> Path:
    found = (root / folder).resolve()
    if not found.is_relative_to(root) or not found.is_dir():
        raise InputError(f"{folder} is not a folder inside the data folder {root}; choose one of the folders there.")
    return found


# ---------------------------------------------------------------- pairing


def pairing_choice(
    s: state.State, known_x: Sequence[str], known_y: Sequence[str], tag: str = ""
) -> tuple[state.PairingChoice, str | None]:
    """How the rows correspond, and what still lacks for it.

    Parameters
    ----------
    known_x, known_y : columns that may hold ids.
    tag : ends the keys of the fields; ``""`` for A and B, ``"_z"`` for the list's first space and one to be added.
    """
    names = (f"space {s.data.marks[0]}", short(s, "z")) if tag else tuple(LETTERS.values())
    whose = (
        f"How its rows correspond to those of {s.data.marks[0]} · {s.data.listed[0].title}"
        if tag
        else "How rows correspond"
    )
    how = st.radio(
        plain(whose) + " (used for seeds and scoring, never shown to a method)",
        list(PAIRINGS),
        format_func=lambda way: PAIRINGS[way].format(*names),
        key=f"pairing{tag}",
        persist_state="session",
    )
    if how == "id":
        ids = []
        for place, side, name, known in zip(st.columns(2, gap="large"), "xy", names, (known_x, known_y), strict=True):
            ids.append(
                place.selectbox(
                    f"Column of {name}",
                    ["", *known],
                    format_func=lambda c: c or "the one called id, key, index, …",
                    key=f"pair_id_{side}{tag}",
                    help="Columns of the file and of its metadata",
                )
                or None
            )
        return state.PairingChoice("id", *ids), None
    if how == "file":
        left, right = st.columns(2, gap="large")
        where = f"pairs{tag}"
        key = f"beside_{where}_{s.files.turns.get(where, 0)}"

        def use(path: str, name: str) -> None:
            s.files.beside[where].insert(0, path)
            st.session_state[f"pair_file{tag}"] = path

        left.file_uploader(
            f"Upload the pairs, at most {upload_limit():,} MB",
            key=key,
            on_change=_take_upload,
            args=(s, key, where, use),
            help="Two columns by tab, comma, semicolon or blank: names, or row numbers from 0. A bilingual dictionary "
            "will do.",
        )
        with right:
            try:
                file = pick_file(s, where, "or a file on the server", f"pair_file{tag}")
            except InputError as e:
                show_error(str(e))
                file = None
        return state.PairingChoice("file", file=str(file) if file else None), None if file else "Choose the pairs first"
    return state.PairingChoice(how), None


def pair_up(choice: state.PairingChoice, x, y, report_x, report_y) -> tuple[str, Pairing]:
    """How it was paired, in words, and what was found.

    Raises
    ------
    InputError
        No such column, or a file that holds no pairs of rows.
    """
    if choice.how == "file":
        file = Path(choice.file)
        return f"file {file.name}", seeds.read_pairing(file, x, y, report_x, report_y)
    found = seeds.pairing(
        x, y, choice.how, id_x=choice.id_x, id_y=choice.id_y, report_x=report_x, report_y=report_y
    )  # fmt: skip
    if choice.how == "id":
        return f"id ({choice.id_x or 'id'} = {choice.id_y or 'id'})", found
    return choice.how, found


# ---------------------------------------------------------------- loading


def begin(
    s: state.State,
    requests: dict[int, state.Request],
    choices: dict[int, state.PairingChoice],
    onto: tuple[state.Listed, ...] = (),
) -> None:
    """Start to load what was not loaded before; a second press while that goes on does nothing.

    Requests and choices are by place in the list; ``onto`` is the list they go into, () a new one.
    """
    if s.files.opening is not None:
        return
    s.files.errors.clear()
    loadings, outcomes = {}, {}
    for place, request in requests.items():
        before = s.files.loaded.get(request.key)
        if before is not None and store.view_folder(before["reference"]).exists():
            outcomes[place] = before
        else:
            loadings[place] = loading.start(request.path, **json.loads(request.options))
    s.files.opening = state.Opening(requests, choices, loadings, outcomes, onto)
    s.files.adding = s.files.opening.adding


def request_of(file: Path, options: dict) -> state.Request:
    """The request, with the times and sizes of all its files: one that changed is another request.

    Raises
    ------
    InputError
        One of them is gone.
    """
    given = [split_spec(options[what])[0] for what in BESIDE if what in options]
    beside = [f for f in given if f.is_absolute()]  # others are arrays of the file itself
    stamps = tuple(number for f in (file, *beside) for number in _stamp(f))
    return state.Request(str(file), stamps, json.dumps(options, sort_keys=True))


def again(s: state.State, side: str, **changes) -> None:
    """Load one side of the open data otherwise; None takes an option away."""
    place, one = s.data.picked[state.SIDES.index(side)], s.data.side(side)
    options = {k: v for k, v in (json.loads(one.request.options) | changes).items() if v is not None}
    try:
        other = request_of(Path(one.request.path), options)
    except InputError as e:
        s.files.errors, s.files.adding = [str(e)], False
        return
    begin(s, {place: other}, {place: one.choice}, s.data.listed)


def _called(opening: state.Opening, place: int) -> str:
    """What the screen calls a space on its way in."""
    return f"Space {'AB'[place] if max(place, len(opening.onto) - 1) < 2 else place + 1}"


def progress(s: state.State) -> None:
    """How far the files are, and the way out. Ticks by itself until they are there."""
    opening = s.files.opening
    if opening is None:
        return

    @st.fragment(run_every=0.4, key="opening")
    def body() -> None:
        if s.files.opening is not opening or opening.done:
            st.rerun()
        with st.container(border=True):
            for place, going in opening.loadings.items():
                if going.done:
                    continue
                text = f"{_called(opening, place)}: reading {plain(going.file)}, {going.seconds:.0f} s"
                if going.seconds > SAID_AT_ONCE:
                    st.progress(going.progress, text=f"{text}, {going.progress:.0%}" if going.progress else text)
                else:
                    st.markdown(f":material/progress_activity: {text}")
            st.button("Cancel", key="cancel_opening", on_click=opening.cancel)

    body()


def settle(s: state.State) -> None:
    """Once all files are there: pair them up and work on them. What went wrong is said, and the view before stays."""
    opening = s.files.opening
    if opening is None or not opening.done:
        return
    s.files.opening, s.files.adding = None, opening.adding
    outcomes = opening.outcomes | {place: going.outcome for place, going in opening.loadings.items()}
    for place, outcome in outcomes.items():
        if "reference" in outcome:
            s.files.loaded[opening.requests[place].key] = outcome
    if any(outcome.get("cancelled") for outcome in outcomes.values()):
        st.toast(f"Cancelled; nothing was {'added' if s.files.adding else 'opened'}.")
        return
    s.files.errors = [
        f"{_called(opening, place)}: {outcome['error']}"
        for place, outcome in sorted(outcomes.items())
        if "error" in outcome
    ]
    if opening.onto and opening.onto is not s.data.listed:
        s.files.errors.append("The list of spaces was changed while this file was read; add it again.")
    if s.files.errors:
        return
    try:
        listed = _joined(opening, outcomes)
        if s.files.adding:
            state.add(s, listed[-1])
    except InputError as e:
        s.files.errors = [str(e)]
        return
    if s.files.adding:
        _say_added(s)
    else:
        state.set_data(s, replace(s.data, listed=listed) if opening.onto else state.Data(listed))
        pairs = f"{len(s.data.truth):,} pairs" if s.data.truth is not None else "no pairing known"
        titles = f"{plain(s.data.x.title)} and {plain(s.data.y.title)}"
        st.toast(f"Opened {titles}: {pairs}. The map is at the top of this page.")
    st.rerun()


def _joined(opening: state.Opening, outcomes: dict[int, dict]) -> tuple[state.Listed, ...]:
    """The list with what was loaded in its place, paired with the first.

    Raises
    ------
    InputError
        A space is gone from the store, or its pairs cannot be made as chosen.
    """
    listed = dict(enumerate(opening.onto))
    for place, request in opening.requests.items():
        space, report = state.kept_space(outcomes[place]["reference"])
        choice = opening.choices.get(place)
        listed[place] = state.Listed(space, report, request=request, choice=choice, folded=outcomes[place]["folded"])
    first = listed[0]
    for place, one in listed.items():
        if one.choice is not None and (place in opening.requests or 0 in opening.requests):
            how, found = pair_up(one.choice, first.space, one.space, first.report, one.report)
            listed[place] = replace(one, how=how, found=found)
    return tuple(listed[place] for place in sorted(listed))


def _say_added(s: state.State) -> None:
    one, rows = s.data.listed[-1], s.data.spaces.rows
    common = "no pairing known" if rows is None else f"{len(rows):,} items are in all {len(s.data.listed)}"
    st.toast(f"Added {s.data.marks[-1]} · {plain(one.title)}: {common}. Pick it as A or B above the map.")
    s.files.chosen.pop("z", None)
    st.session_state["path_z"] = None
