"""Bytes on disk to a :class:`~relcore.space.Space` and a report of what was read; and back.

One file a format. A format is a module with ``NAME``, ``ENDINGS`` and the functions below; ``COMPRESSED = True`` says
that it also reads gzip, bzip2 and xz; ``DUPLICATES = "first"`` that a name is a key: a repeated one is set aside.

- ``recognises(path, head) -> bool``, by the first bytes (those inside, where the module reads compressed files);
- ``arrays(path) -> list[ArrayInfo]``, for a picker; empty for a table;
- ``peek(request) -> Peek``, what is there, told without reading it;
- ``read(request) -> Raw``, the rows;
- ``column(path, key, role)``, the names or labels that a file of their own holds;
- ``write(path, space) -> list[str]``, and what the format could not keep.

Adding one is one file and one line in :data:`~relcore.formats.registry.REGISTRY`.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np

from relcore import memory
from relcore.errors import InputError
from relcore.formats import beside, thumbnails
from relcore.formats.base import (
    COLUMN_ROLES,
    ROLE_OF_COLUMN,
    AmbiguousError,
    ArrayInfo,
    ColumnInfo,
    Peek,
    Raw,
    Request,
    display,
    shown,
)
from relcore.formats.registry import endings, reader, split_spec, writer
from relcore.formats.sniff import suffix
from relcore.space import LoadReport, Space, make_space

MISSING = ("set aside", "column mean", "stop")
MATCH = ("position", "first", "id")
DUPLICATES = ("first", "all")

__all__ = [
    "AmbiguousError",
    "ArrayInfo",
    "ColumnInfo",
    "Peek",
    "arrays",
    "endings",
    "inside",
    "inspect",
    "load",
    "load_bytes",
    "memory_note",
    "peek",
    "split_spec",
    "write",
    "writer",
]

Column = str | Path | Sequence


def _resolve(spec: str | Path, key: str | None) -> tuple[Path, str | None]:
    path, in_spec = split_spec(spec)
    if key is not None and in_spec is not None and key != in_spec:
        raise InputError(f"{spec} names the array {in_spec!r}, but {key!r} was asked for; give one of them.")
    return path, key if key is not None else in_spec


def arrays(spec: str | Path) -> list[ArrayInfo]:
    """Name, shape and dtype of every array in a file, read from headers alone; empty for a table."""
    path, _ = split_spec(spec)
    return reader(path).arrays(path)


def _request(
    path: Path, key: str | None, columns: Mapping[str, str] | None, roles: dict[str, str | None] | None = None, **rest
) -> Request:
    """The request for a reader: names, labels and media among the columns are moved to the roles."""
    roles, others = dict(roles or {}), {}
    for column, role in (columns or {}).items():
        if role not in COLUMN_ROLES:
            raise InputError(f"{role!r} is no role of column {column!r}; choose one of {', '.join(COLUMN_ROLES)}.")
        if role not in ROLE_OF_COLUMN:
            others[column] = role
        elif roles.setdefault(ROLE_OF_COLUMN[role], column) != column:
            raise InputError(f"{path.name}: two sources are given for the {ROLE_OF_COLUMN[role]}; give one of them.")
    return Request(path, key, roles, others, **rest)


def peek(spec: str | Path, *, key: str | None = None, columns: Mapping[str, str] | None = None) -> Peek:
    """What a file holds and what reading it costs, told from its headers and first rows.

    Parameters
    ----------
    key, columns : as for :func:`load`.

    Raises
    ------
    InputError
        As :func:`load`, for what can be told without reading.
    """
    path, key = _resolve(spec, key)
    return reader(path).peek(_request(path, key, columns))


def memory_note(spec: str | Path, *, key: str | None = None, columns: Mapping[str, str] | None = None) -> str | None:
    """A sentence for whoever is about to read a file that takes more than a quarter of the free memory, or None."""
    needed, free = peek(spec, key=key, columns=columns).memory, memory.available()
    if needed is None or needed < free / 4:
        return None
    name = display(*split_spec(spec))
    return f"reading {name} takes about {memory.as_text(needed)} of {memory.as_text(free)} free memory"


def load(
    spec: str | Path,
    *,
    key: str | None = None,
    columns: Mapping[str, str] | None = None,
    labels: Column | None = None,
    names: Column | None = None,
    media: Column | None = None,
    metadata: str | Path | None = None,
    match: str = "position",
    id_column: str | None = None,
    title: str = "",
    missing: str = "set aside",
    duplicates: str | None = None,
    fold_case: bool = False,
    progress: Callable[[float], None] = lambda share: None,
) -> tuple[Space, LoadReport]:
    """Read a file of embedding vectors.

    Parameters
    ----------
    spec : ``FILE`` or ``FILE:KEY``, where KEY names an array inside the file.
    key : the same KEY, given apart.
    columns : for a table, roles of single columns that override what is assumed: ``{"year": "meta"}``; a role is one of
        ``vector, name, label, media, id, meta, ignore``.
    labels, names, media : one value a row: a sequence, a one-column file, ``FILE:KEY`` (an array, or a column of a
        table), or just KEY for an array or column of the same file. None: what the file itself calls so, if anything.
        ``media`` may also be a folder of pictures.
    metadata : a table (CSV, TSV, JSON lines, Parquet) of one row a vector: its names, labels and media are taken where
        they are not given, its other columns become metadata.
    match : how rows of ``labels``, ``names``, ``media`` and ``metadata`` files belong to vectors: ``"position"``, with
        equal counts (others are refused, and the report says so); ``"first"``, in order, as far as they go; ``"id"``,
        by ``id_column`` of the metadata, or the column that is called so.
    title : what the screen calls the space; the file's name if empty.
    missing : rows with NaN or infinite numbers: ``"set aside"``; ``"column mean"`` fills in the mean of the column's
        finite numbers (rows without any are set aside); ``"stop"`` refuses the file. Zero rows are always set aside.
    duplicates : rows whose name an earlier row has: ``"first"`` sets them aside, ``"all"`` keeps them; None leaves it
        to the format (``"first"`` for word vectors, where a name is a key).
    fold_case : treat names that differ in case only as the same, under ``duplicates="first"``.
    progress : called with the share (0 to 1) of the file read.

    Raises
    ------
    InputError
        One sentence: file, row, number found, number wanted, what to do next.
    """
    for what, value, known in (("missing", missing, MISSING), ("match", match, MATCH)):
        if value not in known:
            raise InputError(f"{what} is {value!r}, wanted one of {', '.join(known)}.")
    if duplicates not in (None, *DUPLICATES):
        raise InputError(f"duplicates is {duplicates!r}, wanted one of {', '.join(DUPLICATES)}.")
    path, key = _resolve(spec, key)
    module = reader(path)
    given = {"names": names, "labels": labels, "media": media}
    apart, roles = {}, {}
    for role, value in given.items():
        kind, inner = _locate(value, path, module, role)
        if kind == "same":
            roles[role] = inner
        elif kind == "apart":
            apart[role] = value
            if not (role == "names" and match == "id"):  # the file's own names are the ids to match by
                roles[role] = None
    pictures = _pop_folder(apart)
    half = progress if pictures is None else lambda share: progress(share / 2)
    request = _request(path, key, columns, roles, progress=half)
    _check_memory(module, request)
    raw: Raw = module.read(request)
    duplicates = duplicates or getattr(module, "DUPLICATES", "all")
    own_names = raw.names
    _set_duplicates_aside(raw, duplicates, fold_case)  # first, as a row set aside makes no id ambiguous
    given_roles = {role for role, value in given.items() if value is not None}
    folder = beside.join(raw, apart, metadata, match, id_column, given_roles)
    if raw.names is not own_names:
        _set_duplicates_aside(raw, duplicates, fold_case)
    if pictures is not None:
        thumbnails.from_folder(raw, pictures, id_column)
    half = progress if pictures is None else lambda share: progress((1 + share) / 2)
    thumbnails.resolve(raw, folder or path.parent, half)
    if suffix(path) not in module.ENDINGS:
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
        refused=raw.refused,
        aside=raw.aside,
        copy=False,
    )
    if missing == "stop" and report.set_aside:
        first = report.set_aside[0]
        raise InputError(
            f"{path.name}: row {first.row} is not usable ({first.reason}), {len(report.set_aside)} such rows in all; "
            "correct the file, or have the rows set aside."
        )
    return space, dataclasses.replace(report, dtype=raw.dtype or report.dtype)


def _pop_folder(apart: dict[str, Column]) -> Path | None:
    """Take the folder of pictures, if the media are one, from the columns that come from elsewhere."""
    value = apart.get("media")
    if not isinstance(value, str | Path) or not os.path.isdir(folder := split_spec(value)[0]):
        return None
    del apart["media"]
    return folder.resolve()


def _check_memory(module: ModuleType, request: Request) -> None:
    """Raise :class:`InputError` when reading would take more memory than there is."""
    needed, free = module.peek(request).memory, memory.available()
    if needed is not None and needed > free:
        raise InputError(
            f"{display(request.path, request.key)}: reading it takes about {memory.as_text(needed)}, but "
            f"{memory.as_text(free)} of memory are free; use a part of the rows, or save float32 numbers "
            "as .npy, which is read in place."
        )


def _blank(name: object) -> bool:
    return name is None or name == "" or name != name  # NaN is not itself


def _set_duplicates_aside(raw: Raw, duplicates: str, fold_case: bool) -> None:
    """Keep the first row of each name; say how many rows repeat a name, and how many would if case were folded."""
    if raw.names is None or len(raw.names) != len(raw.vectors):
        return
    first: dict[str, int] = {}
    repeated: dict[int, int] = {}
    for row, name in enumerate(raw.names):
        if row not in raw.aside and not _blank(name):
            name = str(name)
            at = first.setdefault(name.casefold() if fold_case else name, row)
            if at != row:
                repeated[row] = at
    kind = "duplicate name" if fold_case else "exact duplicate"
    if repeated and (duplicates == "first" or fold_case):
        raw.aside |= {row: f"{kind} (of row {at}, {str(raw.names[row])!r})" for row, at in repeated.items()}
        raw.warned.append(f"{len(repeated):,} {kind}{'s' if len(repeated) > 1 else ''} set aside, the first is kept")
    elif repeated:
        raw.assumed.append(f"rows with the name of an earlier row, kept: {len(repeated):,}")
    if not fold_case and duplicates == "first":
        folded = len(first) - len({name.casefold() for name in first})
        if folded:
            raw.assumed.append(f"rows whose name differs from an earlier one in case only, kept: {folded:,}")


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
    if not os.path.exists(other):
        if "/" in str(value) or other.suffix.lower() in endings():
            raise InputError(f"there is no file {other} for the {role}; check the path.")
        return "same", str(value)
    if other.samefile(path) and inner is not None:
        return "same", inner
    return "apart", None


def _fill(raw: Raw) -> None:
    """Replace NaN and infinite numbers by the mean of their column's finite ones, and say in which rows."""
    if raw.vectors.ndim != 2 or raw.vectors.dtype.kind != "f":
        return
    finite = np.isfinite(raw.vectors)
    usable = finite.any(1)
    usable[list(raw.aside)] = False
    rows = np.flatnonzero(~finite.all(1) & usable)
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


def inspect(spec: str | Path, **options) -> dict:
    """What the loader sees, as plain data. ``options`` are those of :func:`load`.

    Keys: ``format, rows_read, rows_used, set_aside [{row, reason}], dim, dtype, assumed, warnings, refused [{what,
    source, found, wanted}]``; ``arrays`` ``[{name, shape, dtype}]`` for a file that can hold several; ``columns``
    ``[{name, kind, role, examples}]`` for a table. When no array is chosen and several could be, the numbers are None
    and a warning says what to choose from.

    Raises
    ------
    InputError
        As :func:`load`.
    """
    path, key = _resolve(spec, options.pop("key", None))
    module = reader(path)
    listed = [{"name": a.name, "shape": list(a.shape), "dtype": a.dtype} for a in module.arrays(path) if a.name]
    try:
        _, report = load(path, key=key, **options)
    except AmbiguousError as e:
        out = {"format": module.NAME, "rows_read": None, "rows_used": None, "set_aside": [], "dim": None}
        out |= {"dtype": None, "assumed": [], "warnings": [str(e)], "refused": []}
        columns = ()
    else:
        out = report.to_dict()
        del out["source"]
        columns = module.peek(_request(path, key, options.get("columns"))).columns
    if listed:
        out["arrays"] = listed
    if columns:
        out["columns"] = [c._asdict() for c in columns]
    return out


def write(space: Space, path: str | Path) -> list[str]:
    """Write a space in the format of the file's ending, so that :func:`load` reads it back bit for bit.

    Returns
    -------
    Sentences on what the format cannot keep, such as names in an ``.npy``.

    Raises
    ------
    InputError
        An ending that no format is written as, a folder that is not there, or a name that the format cannot hold.
    """
    path = Path(os.path.expanduser(path))
    module = writer(path)
    if os.path.isdir(path) or not os.path.isdir(path.parent):
        raise InputError(
            f"{path} cannot be written: its folder is not there, or it is a folder itself; check the path."
        )
    folder = None
    try:
        folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=".relcore-"))
        notes = module.write(folder / path.name, space)
        os.replace(folder / path.name, path)
    except OSError as e:
        raise InputError(f"{path} cannot be written ({e.strerror or e}); check the path and the room there.") from None
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
    return notes


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
