"""JSON lines: one object a row, with a list of numbers as its vector; also a .json file that holds a list of them."""

from __future__ import annotations

import json
import math
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from relcore.errors import InputError
from relcore.formats import columns
from relcore.formats.base import ArrayInfo, Peek, Raw, Request, by_role_word, shown
from relcore.formats.columns import Column, number
from relcore.formats.sniff import is_text, suffix
from relcore.formats.table import PACKING, SAMPLE, create, is_packed
from relcore.formats.text import open_text
from relcore.space import Space

if TYPE_CHECKING:
    import pandas as pd

NAME = "jsonl"
COMPRESSED = True
ENDINGS = (".jsonl", ".ndjson", ".json")
MAX_COLUMNS = 10_000  # keys of all objects together


def parse(text: str):
    """A JSON value. NaN and Infinity, which Python's writer puts into files though JSON has none, are NaN.

    Raises
    ------
    ValueError
        It is none, or nested too deeply.
    """
    import orjson

    try:
        return orjson.loads(text)
    except ValueError:
        pass
    try:
        value = json.loads(text, parse_constant=lambda word: math.nan, parse_int=_whole_number)
        # half of a two-part character, which orjson refuses and no file can hold
        return _whole_characters(value) if "\\ud" in text.lower() else value
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _whole_number(digits: str) -> int | float:
    return int(digits) if len(digits) < 1000 else float(digits)  # Python reads no more than 4,300 digits


def _whole_characters(value):
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole_characters(v) for v in value]
    if isinstance(value, dict):
        return {_whole_characters(k): _whole_characters(v) for k, v in value.items()}
    return value


def records(path: Path, progress: Callable[[float], None] | None = None) -> Iterator[tuple[int, dict]]:
    """(line number from 1, object) of each row; of a ``.json`` file, (place in its list from 1, object).

    A list in place of an object is a vector without anything beside it.

    Raises
    ------
    InputError
        A line that is no JSON object, or none that Relcore can use.
    """
    with open_text(path, progress) as f:
        if suffix(path) == ".json":
            text = f.read()
            try:
                value = parse(text)
            except ValueError as e:
                if "\n" not in text.strip():
                    raise InputError(f"{path.name} is no JSON ({e}); check how it was written.") from None
            else:
                yield from _listed(path, value)
                return
            lines = iter(text.split("\n"))  # JSON lines by another name
        else:
            lines = f
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    value = parse(line)
                except ValueError as e:
                    raise InputError(
                        f"{path.name}: line {number} is no JSON object ({e}); write one object a line."
                    ) from None
                yield number, _record(path, f"line {number}", value)


def _listed(path: Path, value) -> Iterator[tuple[int, dict]]:
    """The rows of a whole JSON document: a list, an object that holds one, columns, or vectors by name."""
    if isinstance(value, dict):
        lists = [v for v in value.values() if isinstance(v, list) and v and isinstance(v[0], dict)]
        if len(lists) == 1:
            value = lists[0]  # {"object": "list", "data": [...]}
        elif value and all(isinstance(v, dict) for v in value.values()):  # columns of a DataFrame, by its index
            index = dict.fromkeys(key for column in value.values() for key in column)
            value = [{k: column.get(key) for k, column in value.items()} for key in index]
        elif value and all(isinstance(v, list) for v in value.values()):
            if len({len(v) for v in value.values()}) == 1 and not all(map(is_numbers, value.values())):
                value = [dict(zip(value, row, strict=True)) for row in zip(*value.values(), strict=True)]
            else:
                value = [{"name": k, "vector": v} for k, v in value.items()]
    if not isinstance(value, list):
        raise InputError(f"{path.name} holds no list of objects; write one object a row, each with its vector.")
    for place, item in enumerate(value, 1):
        yield place, _record(path, f"object {place}", item)


def _record(path: Path, where: str, value) -> dict:
    if isinstance(value, list):
        return {"vector": value}
    if not isinstance(value, dict):
        raise InputError(f"{path.name}: {where} holds {str(value)[:40]!r}, wanted an object; write one object a row.")
    return value


# ---------------------------------------------------------------- values


def cell(value) -> str | None:
    """A value as text: strings verbatim, numbers as short as they go, what is nested as JSON, None where missing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else str(value)


def is_number(value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_numbers(value) -> bool:
    """A list of numbers, which may lack some."""
    value = _one_row(value)
    return isinstance(value, list) and bool(value) and all(v is None or isinstance(v, int | float) for v in value)


def _one_row(value):
    """The vector in a matrix of one row."""
    return value[0] if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list) else value


def as_vector(value) -> array | str | None:
    """The numbers of a value, or why they are lost, or None where it is no vector."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return columns.MISSING_VECTOR
    if isinstance(value, str):
        return columns.vector(value)
    value = _one_row(value)
    if not isinstance(value, list):
        return None
    try:
        return array("d", value)
    except (TypeError, OverflowError):
        found = [as_number(v) if not isinstance(v, str) else None for v in value]
        return None if None in found else array("d", found)


def as_number(value) -> float | None:
    """The number, NaN where it is missing, None where it is something else."""
    if value is None:
        return math.nan
    if isinstance(value, str):
        return number(value)
    if not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:  # a whole number of over 300 digits
        return math.inf


def native(values: list) -> list | np.ndarray:
    """Numbers and truth values as they are, where none is missing or missing ones are NaN; all others as text."""
    kinds = {type(v) for v in values}
    if kinds == {bool} or (kinds == {int} and all(-(2**63) <= v < 2**63 for v in values)):
        return np.array(values)
    if float in kinds and kinds <= {float, type(None)}:
        return np.array([math.nan if v is None else v for v in values])
    return [cell(v) for v in values]


# ---------------------------------------------------------------- reading


def recognises(path: Path, head: bytes) -> bool:
    start = head[3:] if head.startswith(b"\xef\xbb\xbf") else head
    wide = head.startswith((b"\xff\xfe", b"\xfe\xff"))
    inside = start.lstrip()[:1] in (b"{", b"[") or wide
    return is_text(head) and (bool(re.match(rb'\s*\{\s*"', start)) or (suffix(path) in ENDINGS and inside))


def _columns(rows: list[dict]) -> list[Column]:
    """The columns as the first rows show them."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    out = []
    for key, name in zip(keys, columns.unique(keys), strict=True):
        values = [row.get(key) for row in rows]
        given = [v for v in values if v is not None]
        half = max(1, len(given) / 2)
        column = Column(name, "text", [], key.strip())
        lists = [v for v in given if is_numbers(v)]
        if len(lists) >= half:
            column.kind, column.width = "vector", Counter(len(_one_row(v)) for v in lists).most_common(1)[0][0]
            column.cells = [None if v is None else _beginning(v) for v in values[: columns.EXAMPLES]]
        else:
            column.cells = [cell(v) for v in values]
            column.plain = not any(isinstance(v, list | dict) for v in given)
            if sum(map(is_number, given)) >= half:
                column.kind = "number"
            elif sum(isinstance(v, str) for v in given) >= half:
                column.describe_text()
        out.append(column)
    return out


def _beginning(value) -> str:
    text = cell(value[:6] if isinstance(value, list) else value) or ""
    return text[:-1] + ", \u2026]" if isinstance(value, list) and len(value) > 6 else text


def arrays(path: Path) -> list[ArrayInfo]:
    """The columns of vectors, where there are several to choose from; -1 stands for what only reading tells."""
    found = [c for c in _columns(_sample(path)) if c.kind == "vector"]
    return [ArrayInfo(c.name, (-1, c.width or -1), "<f4") for c in found] if len(found) > 1 else []


def _sample(path: Path) -> list[dict]:
    rows = [row for _, row in islice(records(path), SAMPLE)]
    if not rows:
        raise InputError(f"{path.name} holds no rows; check how it was written.")
    return rows


def peek(request: Request) -> Peek:
    path = request.path
    rows = _sample(path)
    plan = columns.plan(request, _columns(rows))
    reader = _Reader(path, plan)
    head = None
    if plan.vector and plan.problem is None:
        with suppress(InputError):  # what is wrong with a row is said when it is read
            for row in rows[:5]:
                reader.add(0, row)
            head = reader.finish().vectors
    size = path.stat().st_size * (PACKING if is_packed(path) else 1)
    length = sum(len(json.dumps(row, separators=(",", ":"))) for row in rows) / len(rows)
    cells = sum(len(x or "") + 60 for c in plan.kept for x in plan.columns[c].cells) / len(rows)
    memory = int(size / max(length, 1) * (4.5 * (plan.dim or 0) + cells) * 1.2) + 2**24
    if suffix(path) == ".json":
        memory += 5 * size  # the whole file as text, and its numbers as Python's
    return columns.peek_of(plan, None, "text", memory, head)


def read(request: Request) -> Raw:
    path = request.path
    rows = records(path, request.progress)
    sample = list(islice(rows, SAMPLE))
    if not sample:
        raise InputError(f"{path.name} holds no rows; check how it was written.")
    plan = columns.plan(request, _columns([row for _, row in sample]))
    if plan.problem is not None:
        raise plan.problem
    reader = _Reader(path, plan)
    for line, row in chain(sample, rows):
        reader.add(line, row)
    return reader.finish()


class _Reader:
    """The rows as they come. Keys that turn up after the first rows are metadata."""

    def __init__(self, path: Path, plan: columns.Plan):
        self.path, self.plan, self.n = path, plan, 0
        self.kept: dict[int, list] = {c: [] for c in plan.kept}
        self.late: dict[str, list] = {}
        self.seen = {c.heading for c in plan.columns}
        self.unused: set[str] = set()
        self.aside: dict[int, str] = {}
        self.replaced: list[int] = []
        self.vectors = columns.Vectors()

    def add(self, line: int, row: dict) -> None:
        values = {key.strip(): value for key, value in row.items()}
        if self.plan.packed:
            value = values.get(self.plan.columns[self.plan.vector[0]].heading)
            found = as_vector(value)
            if found is None:
                raise self._refuse(line, self.plan.vector[0], value, "a list of numbers")
        else:
            found = array("d")
            for c in self.plan.vector:
                value = as_number(values.get(self.plan.columns[c].heading))
                if value is None:
                    raise self._refuse(line, c, values.get(self.plan.columns[c].heading), "a number")
                found.append(value)
            if all(map(math.isnan, found)):
                found = columns.MISSING_VECTOR
        if isinstance(found, str):
            self.vectors.lose(self.n, found)
        else:
            self.vectors.add((self.n,), np.frombuffer(found, dtype=np.float64)[None] if found else np.empty((1, 0)))
        bad = False
        for c, column in self.kept.items():
            value = values.get(self.plan.columns[c].heading)
            column.append(cell(value) if isinstance(value, list | dict) else value)
            bad |= isinstance(value, str) and "\ufffd" in value
        if bad:
            self.replaced.append(self.n)
        for key in values.keys() - self.seen:
            self._late(key, values[key])
        self.n += 1

    def _late(self, key: str, value) -> None:
        if is_numbers(value):
            self.unused.add(key)
            return
        column = self.late.setdefault(key, [])
        column.extend([None] * (self.n - len(column)))
        column.append(cell(value) if isinstance(value, list | dict) else value)
        if len(self.late) > MAX_COLUMNS:
            raise InputError(
                f"{self.path.name}: the objects have over {MAX_COLUMNS:,} different keys; give them the same ones."
            )

    def _refuse(self, line: int, c: int, value, wanted: str) -> InputError:
        text = str(value)
        text = text if len(text) <= 60 else text[:60] + "\u2026"
        return InputError(
            f"{self.path.name}: row {self.n} (line {line}), {self.plan.name(c)!r} holds {text!r}, wanted {wanted}; "
            "correct it, or write null to set the row aside."
        )

    def finish(self) -> Raw:
        what = f"{self.path.name}: column {self.plan.name(self.plan.vector[0])!r}"
        matrix, aside = self.vectors.finish(self.n, what)
        raw = Raw(matrix, aside=aside, assumed=list(self.plan.assumed), dtype="text")
        roles = self.plan.roles
        kept = {c: native(v) if roles[c] == "meta" else [cell(x) for x in v] for c, v in self.kept.items()}
        columns.attach(raw, self.plan, kept)
        if self.late:
            import pandas as pd

            for column in self.late.values():
                column.extend([None] * (self.n - len(column)))
            later = pd.DataFrame({key: native(column) for key, column in self.late.items()})
            raw.meta = later if raw.meta is None else pd.concat([raw.meta, later], axis=1)
            raw.assumed.append(f"keys that not all objects have read as metadata: {shown(list(self.late))}")
        if self.unused:
            raw.assumed.append(f"columns not used: {shown(sorted(self.unused))}")
        if self.replaced:
            raw.warned.append(
                f"{len(self.replaced):,} rows hold bytes that are no UTF-8, shown as \ufffd (rows "
                f"{shown(self.replaced)}); save the file as UTF-8"
            )
        return raw


# ---------------------------------------------------------------- single columns and frames


def column(path: Path, key: str | None, role: str) -> list[str | None]:
    """One value a row: the named key, or the only one that can be meant."""
    table = frame(path)
    if key is None:
        names = list(table.columns)
        key = by_role_word(role, names) or (names[0] if len(names) == 1 else None)
        if key is None:
            raise InputError(
                f"{path.name} has {len(names)} keys that can be the {role}: {shown(names)}; choose one as "
                f"{path.name}:KEY."
            )
    if key not in table.columns:
        raise InputError(f"{path.name} has no key {key!r} for the {role}; it has {shown(list(table.columns))}.")
    return table[key].tolist()


def frame(path: Path) -> pd.DataFrame:
    """All keys but those of lists of numbers, as text, None where a key is missing or null."""
    import pandas as pd

    found: dict[str, list[str | None]] = {}
    vectors: set[str] = set()
    n = 0
    for n, (_, record) in enumerate(records(path), 1):
        for key, value in record.items():
            if is_numbers(value):
                vectors.add(key)
            else:
                column = found.setdefault(key, [])
                column.extend([None] * (n - 1 - len(column)))
                column.append(cell(value))
        if len(found) > MAX_COLUMNS:
            raise InputError(f"{path.name}: the objects have over {MAX_COLUMNS:,} different keys; give them the same.")
    for column in found.values():
        column.extend([None] * (n - len(column)))
    kept = {key: column for key, column in found.items() if key not in vectors or any(column)}
    return pd.DataFrame(kept, dtype=object, index=range(n))


# ---------------------------------------------------------------- writing


def write(path: Path, space: Space) -> list[str]:
    """One object a row, its vector last; in a .json file, in one list.

    With metadata there are always a name, a label and media, null if none.
    """
    side, notes = columns.beside(space, ["vector"])
    listed = suffix(path) == ".json"
    try:
        with create(path) as f:
            meta = {} if space.meta is None else dict(zip(list(side)[3:], space.meta.columns, strict=True))
            values = {h: [x or None for x in cells] for h, cells in side.items() if h not in meta}
            values |= {new: [_plain(v) for v in space.meta[old]] for new, old in meta.items()}
            step = max(1, 2**20 // space.dim)
            for start in range(0, len(space), step):
                # numpy spells a float32 in the fewest digits that read back the same
                numbers = space.vectors[start : start + step].astype(str).tolist()
                for i, row in enumerate(numbers, start):
                    record = json.dumps({h: cells[i] for h, cells in values.items()}, ensure_ascii=False)
                    before = (",\n" if i else "[\n") if listed else ""
                    record = record[:-1] + (", " if values else "") + '"vector": [' + ", ".join(row) + "]}"
                    f.write(before + record + ("" if listed else "\n"))
            f.write("\n]\n" if listed else "")
    except UnicodeEncodeError as e:
        raise InputError(f"{e.object[:40]!r} cannot be written as UTF-8 ({e.reason}); rename it.") from None
    return notes


def _plain(value):
    """A cell of metadata as JSON has it."""
    if columns.missing(value):
        return None
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    return value if isinstance(value, str | bool | int | float) else str(value)
