"""CSV, TSV and whitespace tables: numeric columns or one column of vectors written as text, and what belongs to them.

One pass over the file, one strict number parser (Python's ``float``), nothing guessed behind the user's back: what is
decided from the first rows is said, and a cell that does not fit is an error that names its row and column. Blocks of
plain numbers go through pyarrow, which is faster and gives the same floats; whatever it balks at goes the slow way.
"""

from __future__ import annotations

import csv
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np

from relcore.errors import InputError
from relcore.formats import columns
from relcore.formats.base import (
    ID_WORDS,
    LABEL_WORDS,
    MEDIA_WORDS,
    NAME_WORDS,
    VECTOR_WORDS,
    ArrayInfo,
    Peek,
    Raw,
    Request,
    by_role_word,
    shown,
)
from relcore.formats.columns import MISSING_VECTOR, Column, is_missing, number
from relcore.formats.sniff import COMPRESSIONS, is_pickle, is_text, read_head, suffix, unpacked
from relcore.formats.text import open_text
from relcore.space import Space

if TYPE_CHECKING:
    import pandas as pd

NAME = "table"
COMPRESSED = True  # also gzip, bzip2 and xz
ENDINGS = (".csv", ".tsv", ".tab", ".txt")
SAMPLE = 200  # rows from which delimiter, header and roles are told
CHUNK = 4096  # rows parsed before they are packed as float32
BLOCK = 2**22  # characters given to pyarrow at once
MAX_FIELD = 2**24  # characters of one field; a vector of 4,096 numbers takes 90,000
PACKING = 3  # times that text of numbers shrinks when compressed
_DECIMAL_COMMA = re.compile(r"(?:^|;)\s*[-+]?\d+,\d+(?:[eE][-+]?\d+)?\s*(?=;|$)")
_CUT_VECTOR = re.compile(r"\s*[\[({]\s*-?[\d.]")
_DELIMITERS = {",": "comma", "\t": "tab", ";": "semicolon", "|": "vertical bar", " ": "whitespace"}
_HEADINGS = frozenset((*NAME_WORDS, *LABEL_WORDS, *MEDIA_WORDS, *ID_WORDS, *VECTOR_WORDS))


def recognises(path: Path, head: bytes) -> bool:
    markup = head.lstrip()[:1] in (b"<", b"{") and not re.match(rb"\s*\{\s*-?[\d.]", head)
    return suffix(path) in ENDINGS and is_text(head) and not markup and not is_pickle(path, head)


# ---------------------------------------------------------------- lines to fields


@dataclass(frozen=True)
class _Form:
    """How fields are told apart. ``told``: the file's ending says so; ``quoting``: quotes enclose fields."""

    delimiter: str
    told: bool
    quoting: bool


def _rows(lines: Iterable[str], form: _Form, line: int = 0, *, strict: bool = True) -> Iterator[tuple[int, list[str]]]:
    """(line number, fields) of each line that is not blank; ``line`` are those before."""
    if form.delimiter == " ":
        for i, text in enumerate(lines, line + 1):
            if fields := text.split():
                yield i, fields
        return
    csv.field_size_limit(MAX_FIELD)
    quoting = csv.QUOTE_MINIMAL if form.quoting else csv.QUOTE_NONE
    reader = csv.reader(lines, delimiter=form.delimiter, quoting=quoting, strict=strict)
    while True:
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as e:
            raise csv.Error(f"line {line + reader.line_num}: {e}") from None
        if fields:
            yield line + reader.line_num, fields


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except csv.Error as e:
        raise InputError(f"{path.name} is no readable table ({e}); check its quotes.") from None


def _tab_quoting(lines: list[str]) -> bool:
    """Whether quotes enclose fields of a file separated by tabs; in word lists, a lone quote is a word."""
    if not any('"' in line for line in lines):
        return False
    try:
        enclosed = [f for _, f in _rows(lines, _Form("\t", True, True))]
    except csv.Error:  # the last record may be cut off by the sample's end
        try:
            enclosed = [f for _, f in _rows(lines, _Form("\t", True, True), strict=False)][:-1]
        except csv.Error:
            return False
    verbatim = [f for _, f in _rows(lines, _Form("\t", True, False))]
    widths = [{len(r) for r in rows} for rows in (enclosed, verbatim)]
    if len(widths[0]) == 1 and len(widths[1]) > 1 and len(enclosed) > 1:
        return True
    cells = [c for r in verbatim for c in r if c.startswith('"')]
    whole = all(len(c) > 1 and c.endswith('"') and '"' not in c[1:-1].replace('""', "") for c in cells)
    return whole and any('""' in c[1:-1] for c in cells)


def _is_cut(cell: str) -> bool:
    """Whether a field is a part of a vector in brackets."""
    return cell.count("[") != cell.count("]") or bool(_CUT_VECTOR.match(cell) and columns.vector(cell) is None)


def _form(path: Path) -> _Form:
    """Tell the delimiter from the first lines, and from the ending."""
    with _readable(path):
        return _told_form(path)


def _told_form(path: Path) -> _Form:
    expected = {".csv": ",", ".tsv": "\t", ".tab": "\t"}.get(suffix(path))
    with open_text(path) as f:
        lines = [line for line in islice(f, SAMPLE) if line.strip()]
    if sum(line.lstrip()[:1] in "[({" and columns.vector(line) is not None for line in lines) > len(lines) / 2:
        return _Form("\t", True, False)  # each line is one vector, whose commas are its own
    quoting = {"\t": _tab_quoting(lines)}
    order = [expected] if expected else []
    order += [d for d in (",", "\t", ";", "|") if d != expected]
    if sum(len(_DECIMAL_COMMA.findall(line.strip())) > 1 for line in lines) > len(lines) / 2:
        order = [";"]  # 1,5;2,5 is two numbers; by commas it would be three columns of nonsense
    usual = None
    for d in order:
        form = _Form(d, d == expected, quoting.get(d, True))
        fields = [fields for _, fields in _rows(lines, form, strict=False)]
        widths = Counter(map(len, fields))
        width, count = max(widths.items(), key=lambda i: i[1], default=(0, 0))
        if width > 1 and count > len(fields) / 2:
            usual = usual or form
            if not any(_is_cut(c) for r in fields[:20] for c in r):
                return form  # else the commas of [0.1, 0.2] were taken for the table's
    if usual is not None:
        return usual
    first, last = (lines[0].split(), lines[-1].split()) if lines else ([], [])
    if len(last) > 1 and len(first) > 1 and all(number(c) is not None for c in last[1:]):
        return _Form(" ", False, False)
    return _Form(expected or ",", True, quoting.get(expected or ",", True))  # one column


# ---------------------------------------------------------------- what the first rows tell


@dataclass
class _Layout:
    """The heading, if there is one, how many fields a row has, and the columns as the first rows show them."""

    form: _Form
    header: list[str] | None
    width: int
    columns: list[Column]
    first_line: int
    assumed: list[str]


def _is_header(first: list[str], kinds: list[str], rows: list[list[str]]) -> bool:
    """Whether the first line names columns: no number above the numeric ones, or 0, 1, 2, ... as DataFrames write."""
    if not rows or not any(c.strip() for c in first):
        return False
    packed = [first[c] for c, kind in enumerate(kinds) if kind == "vector"]
    if packed:
        return all(columns.vector(c) is None or is_missing(c) for c in packed)
    numeric = [c for c, kind in enumerate(kinds) if kind == "number"]
    known = sum(c.strip().lower() in _HEADINGS for c in first)
    if not numeric:
        return known > 0
    cells = [first[c].strip() for c in numeric]
    if cells[0] == "":  # an index column without a name
        cells = cells[1:]
    if all(number(c) is None for c in cells if c):  # a column without a name among others is no reason against it
        return 2 * sum(map(bool, cells)) > len(cells)
    others = [first[c].strip() for c, kind in enumerate(kinds) if kind != "number"]
    counted = [c for c in cells if number(c) is not None]
    more = len(counted) + (len(cells) - len(counted)) + known
    return more > 1 and bool(counted) and counted == [str(i) for i in range(len(counted))] and "" not in others


def _start(rows: Iterator[tuple[int, list[str]]]) -> tuple[list[tuple[int, list[str]]], int]:
    """The first rows, and how many lines of comment stand above them: they begin with # and have another width.

    The last of them is the header where it has a word for each column, as ``numpy.savetxt`` writes it.
    """
    sample = list(islice(rows, SAMPLE))
    width = Counter(len(fields) for _, fields in sample).most_common(1)[0][0] if sample else 0
    comments = 0
    while len(sample) > 1 and sample[0][1][0].startswith("#") and len(sample[0][1]) != width:
        line, fields = sample.pop(0)
        if fields[0] == "#" and len(fields) == width + 1 and not sample[0][1][0].startswith("#"):
            sample.insert(0, (line, fields[1:]))
            break
        comments += 1
    return sample, comments


def _layout(path: Path, form: _Form, sample: list[tuple[int, list[str]]], comments: int) -> _Layout:
    """Tell header and columns from the first rows."""
    if not sample:
        raise InputError(f"{path.name} holds no rows; check how it was written.")
    rows = [fields for _, fields in sample]
    first = rows[0]
    width = Counter(map(len, rows)).most_common(1)[0][0]  # of equals the first
    columns.check_count(path.name, width)
    body = [r for r in rows[1:] if len(r) == width] or rows[:1]
    short = len(first) == width - 1 and len(rows) > 1
    if short:
        blank = all(not r[-1].strip() for r in body)
        first = [*first, ""] if blank else ["", *first]  # a separator at each line's end, or R's row names
    by_column = list(zip(*body, strict=True))
    kinds = [columns.kind_of(cells) for cells in by_column]
    has_header = len(rows) > 1 and len(first) == width and _is_header(first, kinds, body)
    if not has_header and len(rows) > 1 and len(rows[0]) == width:
        by_column = [(top, *rest) for top, rest in zip(rows[0], by_column, strict=True)]
    assumed = [] if form.told else [f"fields separated by {_DELIMITERS[form.delimiter]}"]
    if comments:
        assumed.append(f"lines of comment at the top, not read: {comments:,}")
    assumed.append("first line read as the header" if has_header else "no header line")
    if short and has_header:
        assumed.append(
            f"the header has a field less than the rows: the {'last' if blank else 'first'} column has no name"
        )
    headings = first if has_header else [""] * width
    found = []
    for name, heading, kind, cells in zip(columns.unique(headings), headings, kinds, by_column, strict=True):
        column = Column(name, kind, cells, heading.strip())
        if kind == "vector":
            column.describe_vectors()
        elif sum(bool(_CUT_VECTOR.match(c)) for c in cells) > len(cells) / 2 and width > 1:
            raise InputError(
                f"{path.name}: {name!r} holds {cells[-1]!r}, a vector in brackets that is cut at its commas; write "
                "each vector in quotes, or separate the fields by tabs."
            )
        found.append(column)
    return _Layout(form, first if has_header else None, width, found, sample[0][0], assumed)


# ---------------------------------------------------------------- reading


class _Reader:
    """The rows as they come: numbers or vectors, the cells kept beside them, and rows that cannot be used."""

    def __init__(self, path: Path, layout: _Layout, plan: columns.Plan):
        self.path, self.layout, self.plan = path, layout, plan
        self.n = 0
        self.kept: dict[int, list[str | None]] = {c: [] for c in plan.kept}
        self.aside: dict[int, str] = {}
        self.replaced: dict[int, int] = {}  # cells with bytes that are no text, by row
        self.misfit: tuple[int, int, int] | None = None  # the first row of another width: row, line, fields
        self.misfits = 0
        self.matrix = None if plan.packed else columns.Matrix(len(plan.vector))
        self.vectors = columns.Vectors() if plan.packed else None

    def slow(self, records: Iterable[tuple[int, list[str]]]) -> None:
        """Rows one by one."""
        vector, width, numeric = array("d"), self.layout.width, self.plan.vector
        for line, cells in records:
            row = self.n
            if len(cells) != width:
                self._misfit(row, line, len(cells))
                vector.extend([0.0] * (0 if self.plan.packed else len(numeric)))
                for column in self.kept.values():
                    column.append(None)
            else:
                if self.plan.packed:
                    self._add_vector(row, line, cells[numeric[0]])
                else:
                    numbers = [cells[c] for c in numeric]
                    try:
                        values = list(map(float, numbers))
                        strict = "_" not in "".join(numbers)  # float() would read 1_000
                    except ValueError:
                        strict = False
                    vector.extend(values if strict else self._careful(row, line, cells))
                for c, column in self.kept.items():
                    column.append(cells[c])
                    if "\ufffd" in cells[c]:
                        self.replaced[row] = self.replaced.get(row, 0) + 1
            self.n += 1
            if self.n % CHUNK == 0:
                self._flush(vector)
        self._flush(vector)

    def fast(self, lines: list[str]) -> bool:
        """A block of lines through pyarrow; False, and nothing done, where it holds anything out of the ordinary."""
        text = "".join(lines)
        # what pyarrow reads and float() does not, or reads otherwise
        if self.plan.packed or any(c in text for c in ("(", "\ufeff", "\ufffd", "\0")):
            return False
        import pyarrow as pa
        import pyarrow.csv as pc

        names = [str(c) for c in range(self.layout.width)]
        types = {str(c): pa.string() for c in self.kept} | {str(c): pa.float64() for c in self.plan.vector}
        data = text.encode()
        try:
            table = pc.read_csv(
                pa.BufferReader(data),
                pc.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1),
                pc.ParseOptions(delimiter=self.layout.form.delimiter, quote_char=False),
                pc.ConvertOptions(column_types=types, include_columns=list(types), null_values=[]),
            )
        except pa.ArrowInvalid:
            return False
        block = np.empty((table.num_rows, len(self.plan.vector)))
        for i, c in enumerate(self.plan.vector):
            block[:, i] = table.column(str(c)).to_numpy()
        self.matrix.append(block)
        for c, column in self.kept.items():
            column.extend(table.column(str(c)).to_pylist())
        self.n += table.num_rows
        return True

    def _flush(self, vector: array) -> None:
        if vector:
            self.matrix.append(np.frombuffer(vector, dtype=np.float64).reshape(-1, len(self.plan.vector)))
            del vector[:]

    def _misfit(self, row: int, line: int, fields: int) -> None:
        self.misfits += 1
        self.misfit = self.misfit or (row, line, fields)
        self.aside[row] = f"wrong number of fields ({fields}, wanted {self.layout.width}, line {line})"

    def _refuse(self, row: int, line: int, c: int, cell: str, wanted: str) -> InputError:
        text = cell if len(cell) <= 60 else cell[:60] + "\u2026"
        return InputError(
            f"{self.path.name}: row {row} (line {line}), {self.plan.name(c)!r} holds {text!r}, wanted {wanted}; "
            "correct it, or leave it empty to set the row aside."
        )

    def _add_vector(self, row: int, line: int, cell: str) -> None:
        found = columns.vector(cell)
        if found is None:
            raise self._refuse(row, line, self.plan.vector[0], cell, "a vector such as [0.1, 0.2]")
        if isinstance(found, str):
            self.vectors.lose(row, found)
        else:
            self.vectors.add((row,), np.frombuffer(found, dtype=np.float64)[None] if found else np.empty((1, 0)))

    def _careful(self, row: int, line: int, cells: list[str]) -> list[float]:
        """Missing cells become NaN, anything else that is no number is named."""
        values = [number(cells[c]) for c in self.plan.vector]
        for c, value in zip(self.plan.vector, values, strict=True):
            if value is None:
                raise self._refuse(row, line, c, cells[c], "a number")
        if all(is_missing(cells[c]) for c in self.plan.vector):
            self.aside[row] = MISSING_VECTOR
        return values

    def finish(self) -> Raw:
        if not self.n:
            raise InputError(f"{self.path.name} holds a header and no rows; check how it was written.")
        if self.misfit is not None and self.misfits * 10 > self.n:
            row, line, fields = self.misfit
            raise InputError(
                f"{self.path.name}: row {row} (line {line}) has {fields} fields, wanted {self.layout.width} as most "
                f"rows have, and so it is in {self.misfits:,} of {self.n:,} rows; correct them."
            )
        if self.plan.packed:
            what = f"{self.path.name}: column {self.plan.name(self.plan.vector[0])!r}"
            matrix, lost = self.vectors.finish(self.n, what)
            self.aside = lost | self.aside
        else:
            matrix = self.matrix.finish()
        raw = Raw(matrix, aside=self.aside, assumed=[*self.layout.assumed, *self.plan.assumed], dtype="text")
        columns.attach(raw, self.plan, self.kept)
        if self.replaced:
            count = sum(self.replaced.values())
            raw.warned.append(
                f"{count:,} cells hold bytes that are no UTF-8, shown as \ufffd (rows {shown(list(self.replaced))}); "
                "save the file as UTF-8"
            )
        return raw


def arrays(path: Path) -> list[ArrayInfo]:
    """The columns of vectors, where there are several to choose from; -1 stands for what only reading tells."""
    form = _form(path)
    with _readable(path), open_text(path) as f:
        layout = _layout(path, form, *_start(_rows(f, form)))
    found = [c for c in layout.columns if c.kind == "vector"]
    return [ArrayInfo(c.name, (-1, c.width or -1), "<f4") for c in found] if len(found) > 1 else []


def peek(request: Request) -> Peek:
    path = request.path
    form = _form(path)
    with _readable(path), open_text(path) as f:
        sample, comments = _start(_rows(f, form))
    layout = _layout(path, form, sample, comments)
    plan = columns.plan(request, layout.columns, header=layout.header is not None)
    head = None
    if plan.vector and not plan.packed:
        cells = [[layout.columns[c].cells[r] for c in plan.vector] for r in range(min(5, len(layout.columns[0].cells)))]
        values = [[number(x) for x in row] for row in cells]
        head = np.array([[np.nan if v is None else v for v in row] for row in values], dtype=np.float32)
    elif plan.vector:
        found = [columns.vector(x) for x in layout.columns[plan.vector[0]].cells[:5]]
        found = [v for v in found if not isinstance(v, str | None) and len(v) == plan.dim]
        head = np.array(found, dtype=np.float32) if found else None
    return columns.peek_of(plan, None, "text", _memory(path, sample, plan), head, assumed=layout.assumed)


def is_packed(path: Path) -> bool:
    with path.open("rb") as f:
        start = f.read(8)
    return any(start.startswith(magic) for magic, _, _ in COMPRESSIONS)


def _memory(path: Path, sample: list[tuple[int, list[str]]], plan: columns.Plan) -> int:
    """Bytes that reading takes, from the size of the file and that of its first rows."""
    size = path.stat().st_size * (PACKING if is_packed(path) else 1)
    row = sum(len(c) + 1 for _, fields in sample for c in fields) / len(sample)
    kept = sum(len(c or "") + 60 for i in plan.kept for c in plan.columns[i].cells[:SAMPLE])
    per_row = 4.5 * (plan.dim or 0) + kept / max(1, len(plan.columns[0].cells))
    return int(size / max(row, 1) * per_row * 1.2) + 8 * min(BLOCK, size)


def read(request: Request) -> Raw:
    path = request.path
    form = _form(path)
    with _readable(path), open_text(path, request.progress) as f:
        sample, comments = _start(_rows(f, form))
        layout = _layout(path, form, sample, comments)
        plan = columns.plan(request, layout.columns, header=layout.header is not None)
        if plan.problem is not None:
            only = len(sample) == 1 and not any(number(c) is not None for c in sample[0][1])
            raise (
                InputError(f"{path.name} holds one line of words and no rows; check how it was written.")
                if only
                else plan.problem
            )
        reader = _Reader(path, layout, plan)
        reader.slow(sample[1:] if layout.header is not None else sample)
        _read_on(reader, f, form, sample[-1][0])
    return reader.finish()


def _read_on(reader: _Reader, f: TextIO, form: _Form, line: int) -> None:
    """The rows after the sample, in blocks; ``line`` is the last one read."""
    if form.delimiter == " " or reader.plan.packed:
        reader.slow(_rows(f, form, line))
        return
    while lines := f.readlines(BLOCK):
        if form.quoting and any('"' in text for text in lines):
            reader.slow(_rows(chain(lines, f), form, line))  # a record may end in a later block
            return
        if not reader.fast(lines):
            reader.slow(_rows(lines, form, line))
        line += len(lines)


# ---------------------------------------------------------------- single columns and frames


def _all_rows(path: Path, form: _Form) -> tuple[list[tuple[int, list[str]]], int]:
    with _readable(path), open_text(path) as f:
        rows = _rows(f, form)
        sample, comments = _start(rows)
        return [*sample, *rows], comments


def column(path: Path, key: str | None, role: str) -> list[str]:
    """One value a row: the lines of a one-column file, verbatim, or a named column of a table.

    A first line that says what the column is (``label``, ``name``, ...) is kept: the caller, who knows how many values
    there must be, drops it.
    """
    if key is None and suffix(path) == ".txt":
        with open_text(path) as f:
            lines = [line.rstrip("\r\n") for line in f]
        if _form(path).delimiter in (" ", ",") or by_role_word(role, lines[:1]):
            return lines
    rows = [fields for _, fields in _all_rows(path, _form(path))[0]]
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

    form = _form(path)
    rows, comments = _all_rows(path, form)
    layout = _layout(path, form, rows[:SAMPLE], comments)
    headings = layout.header
    if header is not None:
        headings = rows[0][1] if header else None
    body = rows[1:] if headings is not None else rows
    for i, (line, fields) in enumerate(body):
        if len(fields) != layout.width:
            raise InputError(
                f"{path.name}: row {i} (line {line}) has {len(fields)} fields, wanted {layout.width}; correct the row."
            )
    names = columns.unique(headings if headings is not None else [""] * layout.width)
    out = pd.DataFrame([fields for _, fields in body], columns=names, dtype=object)
    out.attrs["header"] = headings is not None
    return out


# ---------------------------------------------------------------- writing


def create(path: Path) -> TextIO:
    """A text file to write, compressed as its ending says."""
    opener = next((o for _, ending, o in COMPRESSIONS if path.suffix.lower() == ending), open)
    return opener(path, "wt", encoding="utf-8", newline="")


def write(path: Path, space: Space) -> list[str]:
    """One column a number, headed 0, 1, 2, ...; names, labels, media and metadata in columns of their own."""
    side, notes = columns.beside(space, [str(i) for i in range(space.dim)])
    tab = suffix(path) != ".csv"
    texts = [[*side], *zip(*side.values(), strict=True)] if side else []
    for row, cells in enumerate(texts):
        for heading, cell in zip(side, cells, strict=True):
            where = f"row {row - 1}, {heading!r}" if row else f"the heading {heading!r}"
            if "\0" in cell or (tab and any(c in cell for c in "\t\r\n")):
                what = "a tab or a line break, which .tsv cannot hold" if tab else "a NUL byte, which no table can hold"
                raise InputError(f"{where}: {cell[:40]!r} has {what}; write .csv or .parquet.")
    if tab and _tab_quoting(["\t".join(cells) for cells in texts[: SAMPLE - 1]]):
        raise InputError("cells of this space stand in quotes, which .tsv does not keep apart; write .csv or .parquet.")
    try:
        with create(path) as f:
            out = csv.writer(f)  # lines end in CR LF, so that either in a cell is put in quotes
            put = (lambda cells: f.write("\t".join(cells) + "\n")) if tab else out.writerow
            put([*side, *map(str, range(space.dim))])
            step = max(1, 2**20 // space.dim)
            for start in range(0, len(space), step):
                # numpy spells a float32 in the fewest digits that read back the same
                numbers = space.vectors[start : start + step].astype(str).tolist()
                for i, row in enumerate(numbers, start):
                    put([*texts[i + 1], *row] if side else row)
    except UnicodeEncodeError as e:
        raise InputError(f"{e.object[:40]!r} cannot be written as UTF-8 ({e.reason}); rename it.") from None
    if not recognises(path, unpacked(path, read_head(path))):
        raise InputError("cells of this space hold control characters, which no table can keep; write .parquet.")
    return notes
