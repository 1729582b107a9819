"""JSON lines: one object a row, with a list of numbers as its vector; also a .json file that holds a list of them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from relcore.errors import InputError
from relcore.formats.sniff import suffix
from relcore.formats.text import open_text

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
        value = json.loads(text, parse_constant=lambda word: math.nan)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    # half of a two-part character, which orjson refuses and no file can hold
    return _whole_characters(value) if "\\ud" in text.lower() else value


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
                yield from _listed(path, parse(text))
                return
            except ValueError as e:
                if "\n" not in text.strip():
                    raise InputError(f"{path.name} is no JSON ({e}); check how it was written.") from None
            lines = iter(text.splitlines())  # JSON lines by another name
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
    """The rows of a whole JSON document: a list, an object that holds one, or an object of vectors by name."""
    if isinstance(value, dict):
        lists = [v for v in value.values() if isinstance(v, list) and v and isinstance(v[0], dict)]
        if len(lists) == 1:
            value = lists[0]  # {"object": "list", "data": [...]}
        elif value and all(isinstance(v, list) for v in value.values()):
            value = [{"name": k, "vector": v} for k, v in value.items()]
    if not isinstance(value, list):
        raise InputError(f"{path.name} holds no list of objects; write one object a row, each with its vector.")
    for number, item in enumerate(value, 1):
        yield number, _record(path, f"object {number}", item)


def _record(path: Path, where: str, value) -> dict:
    if isinstance(value, list):
        return {"vector": value}
    if not isinstance(value, dict):
        raise InputError(f"{path.name}: {where} holds {str(value)[:40]!r}, wanted an object; write one object a row.")
    return value


def cell(value) -> str | None:
    """A value as text: strings verbatim, numbers as short as they go, what is nested as JSON, None where missing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else str(value)


def frame(path: Path) -> pd.DataFrame:
    """All keys but lists of numbers, as text, None where a key is missing or null."""
    import pandas as pd

    columns: dict[str, list[str | None]] = {}
    n = 0
    for n, (_, record) in enumerate(records(path), 1):
        for key, value in record.items():
            if not is_numbers(value):
                column = columns.setdefault(key, [])
                column.extend([None] * (n - 1 - len(column)))
                column.append(cell(value))
        if len(columns) > MAX_COLUMNS:
            raise InputError(f"{path.name}: the objects have over {MAX_COLUMNS:,} different keys; give them the same.")
    for column in columns.values():
        column.extend([None] * (n - len(column)))
    return pd.DataFrame(columns, dtype=object, index=range(n))


def is_numbers(value) -> bool:
    """A list of numbers, which may lack some."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(v is None or (isinstance(v, int | float) and not isinstance(v, bool)) for v in value)
    )
