"""Names, labels, media and metadata that come from another file than the vectors."""

from __future__ import annotations

import csv
import os
import unicodedata
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from relcore.errors import InputError
from relcore.formats import table
from relcore.formats.base import ID_WORDS, NAME_WORDS, ROLES, Raw, by_role_word, display, shown
from relcore.formats.columns import whole
from relcore.formats.registry import reader, split_spec
from relcore.formats.sniff import HEAD, is_pickle, is_text, read_head, suffix, unpacked
from relcore.formats.text import open_text
from relcore.space import Refused, as_text

if TYPE_CHECKING:
    import pandas as pd

REPLACED = "\ufffd"  # stands where bytes were no text
TABLES = (".csv", ".tsv", ".tab")  # text with any other ending may be a list of lines


def nfc(text: str) -> str:
    """Unicode's composed form, in which an é is one character however it was typed."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def join(
    raw: Raw,
    apart: Mapping[str, str | Path | Sequence],
    metadata: str | Path | None,
    match: str = "position",
    id_column: str | None = None,
    given: Set[str] = frozenset(),
) -> Path | None:
    """Attach to the vectors what other files hold for their rows.

    Parameters
    ----------
    apart : for names, labels and media, a file or a sequence.
    metadata : a table of which every column is attached.
    match, id_column : as for :func:`relcore.formats.load`.
    given : the roles that the caller has a source for; ``metadata`` does not give them.

    Returns
    -------
    The folder of the file that names the media, None if that is the file of the vectors.
    """
    own = _own_ids(raw, id_column) if match == "id" else []  # before names come from elsewhere
    folder = None
    for role, value in apart.items():
        attach(raw, role, value, match, id_column, own)
        if role == "media" and isinstance(value, str | Path):
            folder = split_spec(value)[0].parent
    if metadata is not None:
        had_media = raw.media is not None
        _attach_table(raw, metadata, match, id_column, own, {*given, *apart})
        if raw.media is not None and not had_media:
            folder = split_spec(metadata)[0].parent
    return folder


# ------------------------------------------------------------------------------------------------------- one column


def attach(
    raw: Raw,
    role: str,
    value: str | Path | Sequence,
    match: str = "position",
    id_column: str | None = None,
    own: Sequence[_Ids] = (),
) -> None:
    """Give the rows their names, labels or media from a sequence or a file, or refuse them with both counts.

    Parameters
    ----------
    match : ``"position"``: the counts must be equal; ``"first"``: as many as there are, from the first row on;
        ``"id"``: by a column of ids in the file (a sequence has none, and is taken by position).
    own : with ``"id"``, what the vectors may be called by.
    """
    n = len(raw.vectors)
    if not isinstance(value, str | Path):
        values = list(value)
        if match == "first" and len(values) != n:
            _say_first(raw, role, len(values))
            values = _first(values, n)
        setattr(raw, role, values)
        return
    if match == "id":
        _attach_by_id(raw, role, value, id_column, own)
        return
    source = display(*split_spec(value))
    values, said = read_column(value, role, n)
    if len(values) != n and match != "first":
        raw.refused.append(Refused(role, source, len(values), n))
        return
    raw.assumed.append(said or f"{role} read from {Path(value).name}")
    if said is None and values and split_spec(value)[1] is None and by_role_word(role, [str(values[0])]):
        raw.warned.append(
            f"the first line of {source} is {values[0]!r}, which looks like a heading, but the counts are equal; "
            "taken as that of row 0"
        )
    if len(values) != n:
        _say_first(raw, role, len(values))
    _say_replaced(raw, role, source, values)
    setattr(raw, role, _first(values, n))


def read_column(spec: str | Path, role: str, n: int) -> tuple[list, str | None]:
    """The names or labels of n vectors in a file: an array, a one-column text file, or ``FILE:COLUMN`` of a table.

    Returns the values, which may be more or fewer than n, and, when a first line was taken as the column's heading, a
    sentence saying so.

    Raises
    ------
    InputError
        No such file or column.
    """
    path, key = split_spec(spec)
    if _is_blank(path):
        return [], None
    module = _module(path)
    fitted = None
    if key is None and module is table and suffix(path) not in TABLES:
        values = _one_column(path)
    else:
        values = _plain(module.column(path, key, role))
        if key is None and module is table:
            lines = _one_column(path)  # a table has no blank rows, a list of labels may have
            if lines is not None and sum(bool(v.strip()) for v in lines) == len(values):
                fitted = _fit(lines, role, n)
    fitted = fitted or _fit(values, role, n)
    if fitted is None:
        return values, None
    values, headed = fitted
    return values, f"first line of {path.name} ({headed!r}) read as a heading" if headed else None


def _fit(values: list, role: str, n: int) -> tuple[list, str | None] | None:
    """The n values and their heading, if without a known heading and blank lines at the end there are n; else None."""
    if len(values) == n:
        return values, None
    headed = str(values[0]) if values and by_role_word(role, [str(values[0])]) else None
    for start in (1, 0) if headed else (0,):
        end = len(values)
        while end - start > n and values[end - 1] in ("", None):
            end -= 1
        if end - start == n:
            return values[start:end], headed if start else None
    return None


def _one_column(path: Path) -> list[str] | None:
    """The lines of a text file of one column, blank ones included; None if it has several columns."""
    tab = suffix(path) in (".tsv", ".tab")
    try:
        with open_text(path) as f:
            if suffix(path) not in TABLES:
                return [line.rstrip("\r\n") for line in f]
            quoting = csv.QUOTE_NONE if tab else csv.QUOTE_MINIMAL
            rows = list(csv.reader(f, delimiter="\t" if tab else ",", quoting=quoting))
    except csv.Error as e:
        raise InputError(f"{path.name} is no readable table ({e}); check its quotes.") from None
    return [r[0] if r else "" for r in rows] if all(len(r) < 2 for r in rows) else None


def _module(path: Path) -> ModuleType:
    """The format of a file beside the vectors: text is a table or a list, even if it could be vectors."""
    inside = unpacked(path, read_head(path))
    if table.recognises(path, inside):
        return table
    try:
        module = reader(path)
    except InputError:
        if not is_text(inside) or is_pickle(path, inside) or inside.lstrip()[:1] == b"<":
            raise
        return table  # lines, whatever the file's name ends in
    return module if hasattr(module, "frame") or not is_text(inside) else table


def _is_blank(path: Path) -> bool:
    """Whether a file holds nothing, or nothing but blank lines."""
    if not os.path.isfile(path):
        return False  # the reader says so
    if path.stat().st_size == 0:
        return True
    head = unpacked(path, read_head(path))
    return len(head) < HEAD and not head.strip(b"\xef\xbb\xbf\xff\xfe\0 \t\r\n")


def _plain(values: Iterable) -> list:
    """Python values, None where missing."""
    return [None if v is None or v != v else v.item() if isinstance(v, np.generic) else v for v in values]


def _first(values: Sequence, n: int) -> list:
    return [*values[:n], *[None] * (n - len(values))]


def _say_first(raw: Raw, what: str, count: int) -> None:
    n = len(raw.vectors)
    raw.warned.append(f"{what} attached to the first {min(n, count):,} of {n:,} vectors, as asked")


def _say_replaced(raw: Raw, role: str, source: str, values: Sequence) -> None:
    rows = [i for i, v in enumerate(values) if isinstance(v, str) and REPLACED in v]
    if rows:
        raw.warned.append(
            f"{role} of {source} with bytes that are no UTF-8, shown as {REPLACED}: {len(rows):,} (rows "
            f"{shown(rows, 5)}); save the file as UTF-8"
        )
    if any(isinstance(v, str) and "\0" in v for v in values):
        raw.warned.append(f"{role} of {source} hold NUL characters, as if in another encoding; save the file as UTF-8")


# ------------------------------------------------------------------------------------------------------- by their ids


@dataclass(frozen=True)
class _Ids:
    """What rows may be called by, ready to compare; ``""`` where there is nothing."""

    what: str
    keys: list[str]
    title: str | None = None  # of the column


@dataclass(frozen=True)
class _Match:
    """Which row of a file belongs to each vector, -1 where none does, and what stood in the way."""

    own: _Ids
    column: _Ids
    rows: list[int]
    alone: list[int]  # vectors that no row has the id of
    unused: list[int]  # rows of the file whose id no vector has
    repeated: dict[str, list[int]]  # ids of several rows of the file
    shared: dict[str, list[int]]  # ids of several vectors


def _ids(what: str, values: Sequence) -> _Ids:
    keys = whole(list(as_text(_plain(values), len(values), what)))  # 1.0 in one file is 1 in another
    return _Ids(what, [nfc(k.strip()) for k in keys])


def _column_ids(frame: pd.DataFrame, title: str) -> _Ids:
    at = [str(c) for c in frame.columns].index(title)
    return replace(_ids(f"its column {title!r}", frame.iloc[:, at].tolist()), title=title)


def _own_ids(raw: Raw, id_column: str | None) -> list[_Ids]:
    """The vectors' own ids: a metadata column so called, their names, else their row numbers."""
    out = []
    if raw.meta is not None:
        titles = [str(c) for c in raw.meta.columns]
        wanted = [t for t in titles if t == id_column] + [t for t in titles if t.lower() in ID_WORDS]
        out += [_ids(f"column {t!r}", raw.meta.iloc[:, titles.index(t)].tolist()) for t in dict.fromkeys(wanted)]
    if raw.names is not None and len(raw.names) == len(raw.vectors):
        out.append(_ids("names", list(raw.names)))
    return out or [_ids("row numbers", range(len(raw.vectors)))]


def _rows_of(keys: Sequence[str], leave_out: Set[int] | Mapping[int, str] = frozenset()) -> dict[str, list[int]]:
    out: dict[str, list[int]] = {}
    for i, k in enumerate(keys):
        if k and i not in leave_out:
            out.setdefault(k, []).append(i)
    return out


def _match(raw: Raw, own: Sequence[_Ids], columns: Sequence[_Ids]) -> _Match | None:
    """The best of the ways to match, by the number of vectors that find a row; None if no vector does."""
    tried = []
    for mine in own:
        at = _rows_of(mine.keys, raw.aside)
        for column in columns:
            rows = _rows_of(column.keys)
            tried.append((sum(k in rows for k in at), mine, at, column, rows))
    hits, mine, at, column, rows = max(tried, key=lambda t: t[0])  # the first of the best
    if not hits:
        return None
    out = [-1] * len(mine.keys)
    for k, vectors in at.items():
        if len(vectors) == 1 and len(rows.get(k, ())) == 1:
            out[vectors[0]] = rows[k][0]
    return _Match(
        mine,
        column,
        out,
        [i for i, k in enumerate(mine.keys) if i not in raw.aside and k not in rows],
        [i for i, k in enumerate(column.keys) if k not in at],
        {k: r for k, r in rows.items() if len(r) > 1},
        {k: v for k, v in at.items() if len(v) > 1 and k in rows},
    )


def _say_match(raw: Raw, what: str, file: str, m: _Match) -> None:
    n, count = len(m.rows), sum(r >= 0 for r in m.rows)
    raw.assumed.append(f"{what} of {file} matched by {m.column.what} to the {m.own.what}: {count:,} of {n:,} vectors")
    if m.alone:
        named = [f"{i} {m.own.keys[i]!r}" for i in m.alone[:5]]
        more = f" and {len(m.alone) - 5:,} more" if len(m.alone) > 5 else ""
        raw.warned.append(f"vectors without a row in {file}: {len(m.alone):,} (rows {', '.join(named)}{more})")
    if m.unused:
        listed = shown([f"{i} {m.column.keys[i]!r}" for i in m.unused], 5)
        raw.warned.append(f"rows of {file} that belong to no vector: {len(m.unused):,} (rows {listed})")
    for ids, where in ((m.repeated, f"rows of {file}"), (m.shared, "vectors")):
        if ids:
            listed = shown([f"{k!r} in rows {shown(r, 5)}" for k, r in ids.items()], 5)
            raw.warned.append(f"ids of several {where}, by which nothing is attached: {len(ids):,} ({listed})")


def _say_no_match(raw: Raw, what: str, file: str, own: Sequence[_Ids], columns: Sequence[_Ids]) -> None:
    theirs = next((k for k in columns[0].keys if k), "")
    mine = next((k for k in own[0].keys if k), "")
    raw.warned.append(
        f"{what} not attached: no id of {file} ({columns[0].what}, such as {theirs!r}) is among the {own[0].what} of "
        f"the vectors (such as {mine!r}); choose another column of ids, or match by position"
    )


def _id_columns(path: Path, frame: pd.DataFrame, id_column: str | None) -> list[_Ids]:
    """The columns of a table that may hold ids, the likeliest first."""
    titles = [str(c) for c in frame.columns]
    if id_column is not None:
        if id_column not in titles:
            raise InputError(f"{path.name} has no column {id_column!r} of ids; it has {shown(titles)}.")
        wanted = [id_column]
    else:
        words = (*ID_WORDS, *NAME_WORDS)
        wanted = sorted((t for t in titles if t.strip().lower() in words), key=lambda t: words.index(t.strip().lower()))
    return [_column_ids(frame, t) for t in wanted]


def _attach_by_id(raw: Raw, role: str, value: str | Path, id_column: str | None, own: Sequence[_Ids]) -> None:
    path, key = split_spec(value)
    if _is_blank(path):
        raw.refused.append(Refused(role, path.name, 0, len(raw.vectors)))
        return
    module = _module(path)
    frame = module.frame(path) if hasattr(module, "frame") else None
    if frame is None or len(frame.columns) < 2:
        what = "one column" if frame is not None else "no columns"
        raise InputError(
            f"{path.name} has {what}, so its {role} cannot be matched by id; give a file with a column of ids beside "
            "them, or match by position."
        )
    frame = _heading_is_data(path, frame, own)
    titles = [str(c) for c in frame.columns]
    columns = _id_columns(path, frame, id_column)
    if key is None:
        key = by_role_word(role, [t for t in titles if t != id_column])
        if [c.title for c in columns] == [key]:
            key = None  # the only column of ids cannot be what is looked for as well
    if key is None and len(titles) == 2:
        key = titles[1 - (titles.index(columns[0].title) if columns else 0)]
    if key is None or key not in titles:
        found = f"no column {key!r}" if key is not None else f"{len(titles)} columns and none is called so"
        raise InputError(
            f"{path.name}: {found} for the {role}; it has {shown(titles)}; choose one as {path.name}:COLUMN."
        )
    columns = [c for c in columns if c.title != key] or columns
    if not columns and len(titles) == 2:
        columns = [_column_ids(frame, titles[1 - titles.index(key)])]
    if not columns:
        raise InputError(f"{path.name} has no column of ids; choose one of {shown(titles)} as the column of ids.")
    match = _match(raw, own, columns)
    if match is None:
        _say_no_match(raw, role, path.name, own, columns)
        return
    _say_match(raw, role, path.name, match)
    cells = _plain(frame.iloc[:, titles.index(key)].tolist())
    _say_replaced(raw, role, path.name, cells)
    setattr(raw, role, [cells[r] if r >= 0 else None for r in match.rows])


def _heading_is_data(path: Path, frame: pd.DataFrame, own: Sequence[_Ids]) -> pd.DataFrame:
    """The table with its first line as a row, if that was taken for a heading but holds the id of a vector."""
    if not frame.attrs.get("header"):
        return frame
    known = (*ID_WORDS, *NAME_WORDS)
    heads = {nfc(str(c).strip()) for c in frame.columns if str(c).strip().lower() not in known}
    words = any(str(c).strip().lower() in known for c in frame.columns)
    if not words and any(heads.intersection(ids.keys) for ids in own):
        return table.frame(path, header=False)
    return frame


# ------------------------------------------------------------------------------------------------------- a whole table


def _attach_table(
    raw: Raw, spec: str | Path, match: str, id_column: str | None, own: Sequence[_Ids], given: Set[str]
) -> None:
    """Names, labels and media that the vectors lack, by their headings; everything else is metadata."""
    path, key = split_spec(spec)
    if key is not None:
        raise InputError(f"metadata is a whole file, all its columns; leave out {':' + key!r}.")
    n = len(raw.vectors)
    if _is_blank(path):
        raw.refused.append(Refused("metadata", path.name, 0, n))
        return
    frame, single = _frame(raw, path, n, own if match == "id" else ())
    if match == "id":
        columns = _id_columns(path, frame, id_column)
        if not columns:
            raise InputError(
                f"{path.name} has no column of ids, called {shown(ID_WORDS)}, or by a word for names; choose one of "
                f"{shown([str(c) for c in frame.columns])} as the column of ids, or match by position."
            )
        found = _match(raw, own, columns)
        if found is None:
            _say_no_match(raw, "metadata", path.name, own, columns)
            return
        _say_match(raw, "metadata", path.name, found)
        rows = found.rows
    elif len(frame) != n and match != "first":
        raw.refused.append(Refused("metadata", path.name, len(frame), n))
        return
    else:
        raw.assumed.append(f"metadata read from {path.name}, row by row")
        if len(frame) != n:
            _say_first(raw, "metadata", len(frame))
        rows = _first(range(min(n, len(frame))), n)
        rows = [-1 if r is None else r for r in rows]
    cells = {}
    for c, title in enumerate(map(str, frame.columns)):
        values = _plain(frame.iloc[:, c].tolist())
        _say_replaced(raw, f"cells of column {title!r}", path.name, values)
        cells[title] = [values[r] if r >= 0 else None for r in rows]
    _give_roles(raw, path, cells, given, single)
    _add_meta(raw, path, cells)


def _frame(raw: Raw, path: Path, n: int, own: Sequence[_Ids]) -> tuple[pd.DataFrame, bool]:
    """The table, and whether it is a single column without a heading."""
    import pandas as pd

    module = _module(path)
    if not hasattr(module, "frame"):
        raise InputError(
            f"{path.name} is {module.NAME}, which holds no table; give metadata as CSV, TSV, JSON lines, Parquet or "
            "Feather."
        )
    try:
        frame = module.frame(path)
    except InputError:
        if module is not table or suffix(path) in TABLES:
            raise
        frame = None  # sentences with commas: one column
    if module is not table:
        return frame, False
    if suffix(path) not in TABLES and frame is not None and not frame.attrs["header"]:
        with open_text(path) as f:
            if "\t" not in f.readline():
                frame = None  # the same, each with as many
    if frame is None or len(frame.columns) == 1:
        headed = frame is not None and frame.attrs["header"]
        lines = _one_column(path)
        if lines is None:
            return frame, False
        title, body = (str(frame.columns[0]), lines[1:]) if headed else (path.stem, lines)
        while len(body) > n and not body[-1].strip():
            body.pop()
        return pd.DataFrame({title: body}, dtype=object), not headed
    if own:
        frame = _heading_is_data(path, frame, own)
    elif not frame.attrs["header"] and len(frame) == n + 1 and _looks_headed(frame):
        frame = table.frame(path, header=True)
        raw.assumed.append(f"first line of {path.name} ({shown(list(frame.columns), 4)}) read as the header")
    return frame, False


def _looks_headed(frame: pd.DataFrame) -> bool:
    """Whether no cell of the first row comes again in its column, though a column's cells do come again."""
    columns = [frame.iloc[:, c].tolist() for c in range(len(frame.columns))]
    repeats = any(len(set(c[1:])) <= len(c[1:]) / 2 for c in columns)
    return repeats and all(c[0].strip() and c[0] not in c[1:] for c in columns)


def _give_roles(raw: Raw, path: Path, cells: dict[str, list], given: Set[str], single: bool) -> None:
    """Take from the columns what the vectors lack."""
    lacking = [role for role in ROLES if getattr(raw, role) is None and role not in given]
    for role in lacking:
        title = by_role_word(role, list(cells))
        if role == "media" and title is None:
            title = next((t for t, values in cells.items() if any(isinstance(v, bytes) for v in values)), None)
        if single and role != "media":
            (title, values), *_ = cells.items() or [(None, [])]
            if title is not None:
                filled = [v for v in values if v]
                distinct = len(set(filled)) / max(len(filled), 1)
                title = title if (distinct >= 0.9 if role == "names" else distinct <= 0.5) else None
        if title is not None:
            setattr(raw, role, cells.pop(title))
            column = path.name if single else f"{title!r} of {path.name}"
            raw.assumed.append(f"{column} read as {role}")


def _add_meta(raw: Raw, path: Path, cells: dict[str, list]) -> None:
    """Add columns to the metadata; one whose name is taken gets the file's name beside its own."""
    import pandas as pd

    if not cells:
        return
    taken = set() if raw.meta is None else {str(c) for c in raw.meta.columns}
    added = {}
    for title, values in cells.items():
        name = title
        while name in taken or name in added:
            name = f"{name} ({path.name})"
        if name != title:
            raw.assumed.append(
                f"column {title!r} of {path.name} is called {name!r}, since there is a {title!r} already"
            )
        pictures = sum(isinstance(v, bytes) for v in values)
        if pictures:
            raw.assumed.append(
                f"column {title!r} of {path.name} holds files, of which the size is kept only: {pictures:,}"
            )
            values = [f"{len(v):,} bytes" if isinstance(v, bytes) else v for v in values]
        added[name] = values
    new = pd.DataFrame(added, dtype=object)
    raw.meta = new if raw.meta is None else pd.concat([raw.meta.reset_index(drop=True), new], axis=1)
