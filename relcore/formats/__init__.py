"""From bytes on disk to a :class:`~relcore.space.Space` and a report of what was read, set aside and assumed.

One file a format. A format is a module with ``NAME``, ``ENDINGS`` and four functions:

- ``recognises(path, head) -> bool``, by the first bytes;
- ``read(path, key, roles) -> Raw``, where ``roles`` maps names, labels and media to the array or column chosen for
  them, or to None where they come from elsewhere; a role that is not in it may be found by the reader;
- ``column(path, key, role)``, the names or labels that a file of their own holds;
- ``arrays(path) -> list[ArrayInfo]``, for a picker.

Adding one is one file and one line in :data:`REGISTRY`.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np

from relcore.errors import InputError
from relcore.formats.base import AmbiguousError, ArrayInfo, Raw, by_role_word, display, shown
from relcore.formats.sniff import read_head, refuse
from relcore.space import LoadReport, Space, make_space

# the first that recognises a file reads it
REGISTRY = ("npy", "npz", "table")
MISSING = ("set aside", "column mean", "stop")

__all__ = ["REGISTRY", "ArrayInfo", "arrays", "endings", "inside", "inspect", "load", "load_bytes", "read_column"]

Column = str | Path | Sequence


def endings() -> tuple[str, ...]:
    """The file endings of all formats, for an upload field."""
    return tuple(e for name in REGISTRY for e in _module(name).ENDINGS)


def _module(name: str) -> ModuleType:
    return import_module(f"relcore.formats.{name}")


def split_spec(spec: str | Path) -> tuple[Path, str | None]:
    """``FILE`` or ``FILE:KEY``. A file whose own name holds the colon wins, then the longest file name that exists."""
    text = str(spec)
    path = Path(text).expanduser()
    if path.exists():
        return path, None
    cut = len(text)
    while (cut := text.rfind(":", 0, cut)) > 0:
        if (left := Path(text[:cut]).expanduser()).exists():
            return left, text[cut + 1 :] or None
    return path, None


def _reader(path: Path) -> ModuleType:
    """The format of a file, by its first bytes.

    Raises
    ------
    InputError
        No such file, empty, or of a format that is not read: what it looks like and what to do.
    """
    head = read_head(path)
    for name in REGISTRY:
        module = _module(name)
        if module.recognises(path, head):
            return module
    raise refuse(path, head)


def _resolve(spec: str | Path, key: str | None) -> tuple[Path, str | None]:
    path, in_spec = split_spec(spec)
    if key is not None and in_spec is not None and key != in_spec:
        raise InputError(f"{spec} names the array {in_spec!r}, but {key!r} was asked for; give one of them.")
    return path, key if key is not None else in_spec


def arrays(spec: str | Path) -> list[ArrayInfo]:
    """Name, shape and dtype of every array in a file, read from headers alone; empty for a table."""
    path, _ = split_spec(spec)
    return _reader(path).arrays(path)


def load(
    spec: str | Path,
    *,
    key: str | None = None,
    labels: Column | None = None,
    names: Column | None = None,
    media: Column | None = None,
    title: str = "",
    missing: str = "set aside",
) -> tuple[Space, LoadReport]:
    """Read a file of embedding vectors.

    Parameters
    ----------
    spec : ``FILE`` or ``FILE:KEY``, where KEY names an array inside an ``.npz``.
    key : the same KEY, given apart.
    labels, names, media : one value a row: a sequence, a one-column file, ``FILE:KEY`` (an array, or a column of a
        table), or just KEY for an array or column of the same file. None: what the file itself calls so, if anything.
    title : what the screen calls the space; the file's name if empty.
    missing : rows with NaN or infinite numbers: ``"set aside"``; ``"column mean"`` fills in the mean of the column's
        finite numbers (rows without any are set aside); ``"stop"`` refuses the file. Zero rows are always set aside.

    Raises
    ------
    InputError
        One sentence: file, row, number found, number wanted, what to do next.
    """
    if missing not in MISSING:
        raise InputError(f"missing is {missing!r}, wanted one of {', '.join(MISSING)}.")
    path, key = _resolve(spec, key)
    module = _reader(path)
    given = {"names": names, "labels": labels, "media": media}
    apart, roles = {}, {}
    for role, value in given.items():
        kind, inner = _locate(value, path, module, role)
        if kind == "same":
            roles[role] = inner
        elif kind == "apart":
            apart[role], roles[role] = value, None
    raw: Raw = module.read(path, key, roles)
    n = len(raw.vectors)
    for role, value in apart.items():
        setattr(raw, role, _values(value, role, n, raw))
    if path.suffix.lower() not in module.ENDINGS:
        raw.warned.append(
            f"the name ends in {path.suffix or 'nothing'}, but the file holds {module.NAME}; read as such"
        )
    if missing == "column mean":
        _fill(raw)
    space, report = make_space(
        raw.vectors,
        names=raw.names,
        labels=raw.labels,
        media=raw.media,
        meta=raw.meta,
        title=title or display(path, key),
        source=f"{path}:{key}" if key else str(path),
        format=module.NAME,
        assumed=raw.assumed,
        warned=raw.warned,
        copy=False,
    )
    if missing == "stop" and report.set_aside:
        first = report.set_aside[0]
        raise InputError(
            f"{path.name}: row {first.row} is not usable ({first.reason}), {len(report.set_aside)} such rows in all; "
            "correct the file, or have the rows set aside."
        )
    return space, dataclasses.replace(report, dtype=raw.dtype or report.dtype)


def _locate(value: Column | None, path: Path, module: ModuleType, role: str) -> tuple[str, str | None]:
    """Where a column comes from: "none", the "same" file (with its key there) or "apart"."""
    if value is None:
        return "none", None
    if not isinstance(value, str | Path):
        return "apart", None
    # an array of the file itself wins over a file so called: its author must not be able to name a file of this machine
    if isinstance(value, str) and value in {a.name for a in module.arrays(path)}:
        return "same", value
    other, inner = split_spec(value)
    if not other.exists():
        if "/" in str(value) or other.suffix.lower() in endings():
            raise InputError(f"there is no file {other} for the {role}; check the path.")
        return "same", str(value)
    if other.samefile(path) and inner is not None:
        return "same", inner
    return "apart", None


def read_column(spec: str | Path, role: str, n: int) -> tuple[list[str], str | None]:
    """n names or labels from a file: an array, a one-column text file, or ``FILE:COLUMN`` of a table.

    Returns the values and, when a first line was taken as the column's heading, a sentence saying so.

    Raises
    ------
    InputError
        No such file or column, or not n values.
    """
    path, key = split_spec(spec)
    module = _reader(path)
    values = [v.item() if isinstance(v, np.generic) else v for v in module.column(path, key, role)]
    if len(values) == n + 1 and by_role_word(role, [str(values[0])]):
        return values[1:], f"first line of {path.name} ({values[0]!r}) read as a heading"
    if len(values) != n:
        raise InputError(
            f"{display(path, key)} has {len(values):,} {role} for {n:,} vectors; give exactly one a vector, "
            f"or load without {role}."
        )
    return values, None


def _values(value: Column, role: str, n: int, raw: Raw) -> Sequence:
    if not isinstance(value, str | Path):
        return value
    values, said = read_column(value, role, n)
    raw.assumed.append(said or f"{role} read from {Path(value).name}")
    return values


def _fill(raw: Raw) -> None:
    """Replace NaN and infinite numbers by the mean of their column's finite ones, and say in which rows."""
    if raw.vectors.ndim != 2 or raw.vectors.dtype.kind != "f":
        return
    finite = np.isfinite(raw.vectors)
    rows = np.flatnonzero(~finite.all(1) & finite.any(1))
    if not len(rows):
        return
    v = np.array(raw.vectors, dtype=np.float64)
    count = finite.sum(0)
    mean = np.where(finite, v, 0).sum(0) / np.maximum(count, 1)
    mean[count == 0] = np.nan  # nothing to take a mean of: the rows are set aside
    v[rows] = np.where(finite[rows], v[rows], mean)
    raw.vectors, raw.dtype = v, raw.dtype or str(raw.vectors.dtype)
    raw.warned.append(
        f"{int((~finite[rows]).sum()):,} numbers in {len(rows):,} rows replaced by the column mean: rows "
        f"{shown(rows.tolist(), 50)}"
    )


def inspect(spec: str | Path, *, key: str | None = None) -> dict:
    """What the loader sees, as plain data.

    Keys: ``format, rows_read, rows_used, set_aside [{row, reason}], dim, dtype, assumed, warnings``, and ``arrays``
    ``[{name, shape, dtype}]`` for a file of several. When no array is chosen and several could be, the numbers are
    None and a warning says what to choose from.

    Raises
    ------
    InputError
        As :func:`load`.
    """
    path, key = _resolve(spec, key)
    module = _reader(path)
    listed = [{"name": a.name, "shape": list(a.shape), "dtype": a.dtype} for a in module.arrays(path)]
    try:
        _, report = load(path, key=key)
    except AmbiguousError as e:
        out = {"format": module.NAME, "rows_read": None, "rows_used": None, "set_aside": [], "dim": None}
        out |= {"dtype": None, "assumed": [], "warnings": [str(e)]}
    else:
        out = report.to_dict()
        del out["source"]
    return out | ({"arrays": listed} if module.NAME == "npz" else {})


def load_bytes(data: bytes, filename: str, **options) -> tuple[Space, LoadReport]:
    """:func:`load` for an upload: the bytes go to a temporary file and through the same checks.

    ``options`` are those of :func:`load`; names and labels from another upload are given as sequences.
    """
    name = Path(filename.replace("\\", "/")).name or "upload"
    with tempfile.TemporaryDirectory(prefix="relcore-") as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        space, report = load(path, **options)  # a mapped file outlives its name
    key = report.source[len(str(path)) :]
    return space, dataclasses.replace(report, source=name + key)


def inside(root: str | Path, path: str | Path) -> Path:
    """A file the person may read on the server: a regular file below ``root``, reached without ``..`` or links.

    Parameters
    ----------
    path : relative to root, or absolute.

    Raises
    ------
    InputError
        Anything else, with the same words whether or not a file is there.
    """
    refusal = InputError(f"{path} is not a file inside the data folder {root}; choose one of the files there.")
    try:
        base = Path(root).resolve(strict=True)
        wanted = base / path
        found = wanted.resolve(strict=True)
    except (OSError, ValueError, RuntimeError):
        raise refusal from None
    if ".." in Path(path).parts or found != wanted or not found.is_relative_to(base) or not found.is_file():
        raise refusal
    return found
