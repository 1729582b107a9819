"""CSV, TSV and whitespace tables: numeric columns are the vector, the others names, labels and metadata.

One pass over the file, one strict number parser (Python's ``float``), nothing guessed behind the user's back: what is
decided from the first rows is said, and a cell that does not fit is an error that names its row and column.
"""

from __future__ import annotations

import csv
import math
import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np

from relcore.errors import InputError
from relcore.formats.base import (
    ID_WORDS,
    LABEL_WORDS,
    MEDIA_WORDS,
    NAME_WORDS,
    ROLES,
    ArrayInfo,
    Peek,
    Raw,
    Request,
    by_role_word,
    shown,
)
from relcore.formats.sniff import is_pickle, is_text, suffix
from relcore.formats.text import open_text

if TYPE_CHECKING:
    import pandas as pd

NAME = "table"
COMPRESSED = True  # also gzip, bzip2 and xz
ENDINGS = (".csv", ".tsv", ".tab", ".txt")
SAMPLE = 200  # rows from which delimiter, header and roles are told
CHUNK = 4096  # rows parsed before they are packed as float32
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
_DECIMAL_COMMAS = re.compile(r"([^;]*;)?-?\d+,\d+(;-?\d+,\d+)+")
_DELIMITERS = {",": "comma", "\t": "tab", ";": "semicolon", " ": "whitespace"}


def recognises(path: Path, head: bytes) -> bool:
    markup = head.lstrip()[:1] in (b"<", b"{")
    return suffix(path) in ENDINGS and is_text(head) and not markup and not is_pickle(path, head)


def number(cell: str) -> float | None:
    """The number a cell spells, NaN where it is missing, None where it spells something else."""
    text = cell.strip()
    if text.lower() in MISSING:
        return math.nan
    try:
        return None if "_" in text else float(text)  # float() would read 1_000
    except ValueError:
        return None


def _rows(f: TextIO, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(line number from 1, fields) of each line that is not blank."""
    if delimiter == " ":
        for i, line in enumerate(f, 1):
            if fields := line.split():
                yield i, fields
        return
    # quotes have a meaning in comma-separated files only: in word lists by tab, a lone quote is a word
    quoting = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
    reader = csv.reader(f, delimiter=delimiter, quoting=quoting)
    for fields in reader:
        if fields:
            yield reader.line_num, fields


def _delimiter(path: Path) -> tuple[str, bool]:
    """The delimiter, and whether the ending alone told it."""
    expected = {".csv": ",", ".tsv": "\t", ".tab": "\t"}.get(suffix(path))
    with open_text(path) as f:
        lines = [line for line in islice(f, SAMPLE) if line.strip()]
    order = [expected] if expected else []
    order += [d for d in (",", "\t", ";") if d != expected]
    if sum(bool(_DECIMAL_COMMAS.fullmatch(line.strip())) for line in lines) > len(lines) / 2:
        order = [";"]  # 1,5;2,5 is two numbers; by commas it would be three columns of nonsense
    for d in order:
        widths = [len(fields) for _, fields in _rows(iter(lines), d)]
        if widths and widths[0] > 1 and widths.count(widths[0]) > len(widths) / 2:
            return d, d == expected
    if lines and len(lines[-1].split()) > 1 and all(number(c) is not None for c in lines[-1].split()[1:]):
        return " ", False
    return expected or ",", True  # one column


@dataclass
class _Layout:
    """What the first rows tell: the columns' names and which of them make up the vector."""

    delimiter: str
    header: list[str] | None
    numeric: list[int]
    roles: dict[str, int]
    meta: list[int]
    assumed: list[str]

    def name(self, c: int) -> str:
        """What column c is called: its heading if it has one of its own, else its number."""
        names = [h.strip() for h in self.header or ()]
        return names[c] if names and names[c] and names.count(names[c]) == 1 else f"column {c}"


def _is_header(first: list[str], numeric: list[int], rows: list[list[str]]) -> bool:
    """Whether the first line names columns: no number above the numeric ones, or 0, 1, 2, ... as DataFrames write."""
    if not numeric:
        return bool(rows) and by_role_word("names", first) is not None
    cells = [first[c].strip() for c in numeric]
    if not any(cells) or all(number(c) is None for c in cells):
        return any(cells)
    if cells[0] == "":  # an index column without a name
        cells = cells[1:]
    others = [first[c].strip() for c in range(len(first)) if c not in numeric]
    named = [c for c in cells if number(c) is None]
    counted = [c for c in cells if number(c) is not None]
    words = all(c.lower() in (*NAME_WORDS, *LABEL_WORDS, *ID_WORDS) for c in named)
    return len(counted) > 1 and counted == [str(i) for i in range(len(counted))] and words and "" not in others


def _layout(
    path: Path, delimiter: str, told: bool, sample: list[list[str]], wanted: Mapping[str, str | None]
) -> _Layout:
    """Tell header, vector and roles from the first rows; ``wanted`` are the roles that were chosen by name."""
    width = len(sample[0])
    body = [r for r in sample[1:] if len(r) == width] or sample[:1]
    columns = list(zip(*body, strict=True))

    def mostly_numbers(cells: tuple[str, ...]) -> bool:
        filled = [c for c in cells if c.strip().lower() not in MISSING]
        return bool(filled) and sum(number(c) is not None for c in filled) >= len(filled) / 2

    numeric = [c for c in range(width) if mostly_numbers(columns[c])]
    has_header = len(sample) > 1 and _is_header(sample[0], numeric, body)
    if not has_header and len(sample) > 1:
        columns = [(top, *rest) for top, rest in zip(sample[0], columns, strict=True)]
    header = sample[0] if has_header else None
    layout = _Layout(delimiter, header, numeric, {}, [], [])
    say = layout.assumed.append
    if not told:
        say(f"fields separated by {_DELIMITERS[delimiter]}")
    say("first line read as the header" if has_header else "no header line")
    _assign_roles(path, layout, columns, wanted)
    for role, c in layout.roles.items():
        if role not in wanted:
            say(f"{layout.name(c)!r} read as {role}")
    if layout.meta:
        say(f"columns read as metadata: {shown([layout.name(c) for c in layout.meta])}")
    if not layout.numeric:
        comma = any("," in cell and number(cell.replace(",", ".")) is not None for r in body for cell in r)
        hint = "write decimals with a point, not a comma" if comma else "wanted one column for each number of a vector"
        raise InputError(f"{path.name}: none of the {width} columns holds numbers; {hint}.")
    say(f"{len(layout.numeric)} numeric columns read as the vector")
    return layout


def _assign_roles(
    path: Path, layout: _Layout, columns: list[tuple[str, ...]], wanted: Mapping[str, str | None]
) -> None:
    """Give each column its place: as chosen, by its heading, by what it holds, or as metadata."""
    header, width = layout.header, len(columns)
    names = [h.strip() for h in header] if header else []
    for role, name in wanted.items():
        if name is None:
            continue
        if name not in names:
            what = f"it has {shown(names)}" if header else "it has no header line"
            raise InputError(f"{path.name} has no column {name!r} for the {role}; {what}.")
        layout.roles[role] = names.index(name)
    for role in ROLES:
        if role not in layout.roles and role not in wanted:
            word = by_role_word(role, [n for c, n in enumerate(names) if c not in layout.roles.values()])
            if word is not None:
                layout.roles[role] = names.index(word)
    id_columns = [c for c, n in enumerate(names) if n.lower() in ID_WORDS]
    if header and not names[0] and 0 in layout.numeric and _counts_rows(columns[0]):
        id_columns.append(0)
    layout.numeric = [c for c in layout.numeric if c not in layout.roles.values() and c not in id_columns]
    text = [c for c in range(width) if c not in layout.numeric and c not in layout.roles.values()]
    for c in [c for c in text if c not in id_columns and any(x.strip() for x in columns[c])]:
        distinct = len(set(columns[c])) / len(columns[c])
        role = "names" if distinct >= 0.9 else "labels" if distinct <= 0.5 else None
        if role and role not in layout.roles and role not in wanted:
            layout.roles[role] = c
    if "names" not in {*layout.roles, *wanted} and id_columns and names[id_columns[0]]:
        layout.roles["names"] = id_columns[0]
    spent = [c for c in layout.roles.values() if c not in id_columns]  # ids stay metadata too, to pair rows by
    layout.meta = [c for c in range(width) if c not in layout.numeric and c not in spent]


def _counts_rows(cells: tuple[str, ...]) -> bool:
    values = [number(c) for c in cells]
    return values in ([*range(len(values))], [*range(1, len(values) + 1)])


def _float_row(path: Path, layout: _Layout, row: int, line: int, cells: list[str]) -> list[float]:
    """The slow way round: missing cells become NaN, anything else that is no number is named."""
    out = []
    for c in layout.numeric:
        value = number(cells[c])
        if value is None:
            raise InputError(
                f"{path.name}: row {row} (line {line}), {layout.name(c)!r} holds {cells[c]!r}, wanted a number; "
                "correct it, or leave it empty to set the row aside."
            )
        out.append(value)
    return out


def _pack(numbers: array, width: int) -> np.ndarray:
    with np.errstate(over="ignore"):  # beyond float32 is infinite, and then set aside
        return np.array(numbers, dtype=np.float64).reshape(-1, width).astype(np.float32)


def arrays(path: Path) -> list[ArrayInfo]:
    return []


def peek(request: Request) -> Peek:
    return Peek(None, None, "text")


def read(request: Request) -> Raw:
    path, key, roles = request.path, request.key, request.roles
    if key is not None:
        raise InputError(f"{path.name} is a table, its numeric columns are the vectors; leave out {':' + key!r}.")
    delimiter, told = _delimiter(path)
    try:
        with open_text(path) as f:
            return _parse(path, _rows(f, delimiter), delimiter, told, roles)
    except csv.Error as e:
        raise InputError(f"{path.name} is no readable table ({e}); check its quotes.") from None


def _parse(
    path: Path, rows: Iterator[tuple[int, list[str]]], delimiter: str, told: bool, wanted: Mapping[str, str | None]
) -> Raw:
    start = list(islice(rows, SAMPLE))
    if not start:
        raise InputError(f"{path.name} holds no rows; check how it was written.")
    layout = _layout(path, delimiter, told, [fields for _, fields in start], wanted)
    width, first_line = len(start[0][1]), start[0][0]
    if layout.header is not None:
        start = start[1:]
    vector, chunks, replaced, row = array("d"), [], 0, -1
    kept: dict[int, list[str]] = {c: [] for c in (*layout.roles.values(), *layout.meta)}
    for row, (line, cells) in enumerate(chain(start, rows)):
        if len(cells) != width:
            raise InputError(
                f"{path.name}: row {row} (line {line}) has {len(cells)} fields, wanted {width} as in line "
                f"{first_line}; correct the row."
            )
        numbers = [cells[c] for c in layout.numeric]
        try:
            values = list(map(float, numbers))
            strict = "_" not in "".join(numbers)  # float() would read 1_000
        except ValueError:
            strict = False
        vector.extend(values if strict else _float_row(path, layout, row, line, cells))
        for c, column in kept.items():
            column.append(cells[c])
            replaced += "\ufffd" in cells[c]
        if row % CHUNK == CHUNK - 1:
            chunks.append(_pack(vector, len(layout.numeric)))
            del vector[:]
    if row < 0:
        raise InputError(f"{path.name} holds a header and no rows; check how it was written.")
    chunks.append(_pack(vector, len(layout.numeric)))
    raw = Raw(np.concatenate(chunks), assumed=layout.assumed, dtype="text")
    for role, c in layout.roles.items():
        setattr(raw, role, kept[c])
    if layout.meta:
        import pandas as pd

        raw.meta = pd.DataFrame({layout.name(c): kept[c] for c in layout.meta})
    if replaced:
        raw.warned.append(f"{replaced:,} cells hold bytes that are no UTF-8, shown as \ufffd; save the file as UTF-8")
    return raw


def column(path: Path, key: str | None, role: str) -> list[str]:
    """One value a row: the lines of a one-column file, verbatim, or a named column of a table.

    A first line that says what the column is (``label``, ``name``, ...) is kept: the caller, who knows how many values
    there must be, drops it.
    """
    delimiter, _ = _delimiter(path)
    try:
        with open_text(path) as f:
            if key is None and suffix(path) == ".txt":
                return [line.rstrip("\r\n") for line in f]
            rows = [fields for _, fields in _rows(f, delimiter)]
    except csv.Error as e:
        raise InputError(f"{path.name} is no readable table ({e}); check its quotes.") from None
    header = [h.strip() for h in rows[0]] if rows else []
    if key is None and len(header) > 1:
        key = by_role_word(role, header)
        if key is None:
            raise InputError(
                f"{path.name} has {len(header)} columns, wanted one for the {role}; choose one as {path.name}:COLUMN."
            )
    if key is not None and key not in header:
        raise InputError(f"{path.name} has no column {key!r} for the {role}; its first line has {shown(header)}.")
    c, body = (header.index(key), rows[1:]) if key is not None else (0, rows)
    short = next((i for i, r in enumerate(body) if len(r) != len(header)), None)
    if short is not None:
        raise InputError(
            f"{path.name}: row {short} has {len(body[short])} fields, wanted {len(header)}; correct the row."
        )
    return [r[c] for r in body]


def frame(path: Path, header: bool | None = None) -> pd.DataFrame:
    """All columns as text, verbatim; a blank cell is ``""``.

    Parameters
    ----------
    header : whether the first line names the columns; None finds out, and ``frame.attrs["header"]`` says what was
        found. Columns without a heading of their own are called ``column 0``, ...
    """
    import pandas as pd

    delimiter, _ = _delimiter(path)
    try:
        with open_text(path) as f:
            rows = list(_rows(f, delimiter))
    except csv.Error as e:
        raise InputError(f"{path.name} is no readable table ({e}); check its quotes.") from None
    if not rows:
        raise InputError(f"{path.name} holds no rows; check how it was written.")
    width = len(rows[0][1])
    short = next(((i, line, r) for i, (line, r) in enumerate(rows) if len(r) != width), None)
    if short is not None:
        i, line, r = short
        raise InputError(f"{path.name}: row {i} (line {line}) has {len(r)} fields, wanted {width}; correct the row.")
    cells = [r for _, r in rows]
    if header is None:
        columns = list(zip(*cells[1:SAMPLE], strict=True))
        numeric = [c for c, column in enumerate(columns) if all(number(x) is not None for x in column)]
        known = [h.strip().lower() in (*NAME_WORDS, *LABEL_WORDS, *MEDIA_WORDS, *ID_WORDS) for h in cells[0]]
        header = len(cells) > 1 and (_is_header(cells[0], numeric, cells[1:]) or any(known))
    layout = _Layout(delimiter, cells[0] if header else None, [], {}, [], [])
    body = cells[1:] if header else cells
    out = pd.DataFrame(body, columns=[layout.name(c) for c in range(width)], dtype=object)
    out.attrs["header"] = header
    return out
