"""What Parquet and Feather share: Arrow columns to vectors, names, labels, media and metadata; and back."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from relcore.errors import InputError
from relcore.formats import columns
from relcore.formats.base import COLUMN_ROLES, ArrayInfo, Peek, Raw, Request, shown
from relcore.formats.columns import MISSING_VECTOR, Column, number
from relcore.space import Space

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

SAMPLE = 200  # rows from which the roles of columns are told
BATCH = 2**20  # numbers decoded at once
ROLES_KEY = b"relcore.roles"
PICTURES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"BM", b"II*\0", b"MM\0*")  # how pictures begin


# ---------------------------------------------------------------- cells


def plain(value) -> str:
    """How a cell that is not null is spelled as text: a number as short as it goes, nested values as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return f"{len(value):,} bytes"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=plain)
    return str(value)


def plain_type(type: pa.DataType) -> pa.DataType:
    """The type that an extension is stored as, and that a dictionary stands for."""
    import pyarrow.types as t

    while True:
        if hasattr(type, "storage_type"):
            type = type.storage_type
        elif t.is_dictionary(type):
            type = type.value_type
        else:
            return type


def _storage(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The column as its plain type."""
    import pyarrow as pa
    import pyarrow.types as t

    if hasattr(column.type, "storage_type"):
        chunks = [column.storage] if isinstance(column, pa.Array) else [c.storage for c in column.chunks]
        storage = column.type.storage_type
        column = chunks[0] if isinstance(column, pa.Array) else pa.chunked_array(chunks, storage)
    if t.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column


def _one(column: pa.ChunkedArray) -> pa.Array:
    import pyarrow as pa

    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def text_cells(column: pa.ChunkedArray | pa.Array) -> list[str | None]:
    """The cells as text, None where they are null or NaN. Decimals are those of the stored precision."""
    import pyarrow as pa

    column = _storage(column)
    if pa.types.is_float16(column.type) or pa.types.is_float32(column.type):
        values = column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy()
        # str of the numpy scalar, not of Python's float: 0.1 and not 0.10000000149011612
        return [None if v != v else str(int(v)) if float(v).is_integer() else str(v) for v in values]
    try:
        values = column.to_pylist()
    except (ValueError, OverflowError):  # a date beyond Python's calendar
        values = column.cast(pa.string()).to_pylist()
    return [None if v is None or (isinstance(v, float) and math.isnan(v)) else plain(v) for v in values]


def native_cells(column: pa.ChunkedArray) -> np.ndarray | list[str | None]:
    """Numbers and truth values as they are, where none is missing or missing ones are NaN; all others as text."""
    import pyarrow.types as t

    whole = t.is_integer(column.type) or t.is_boolean(column.type)
    if (whole and not column.null_count) or t.is_floating(column.type):
        return column.to_numpy()
    return text_cells(column)  # whole numbers beside a missing one would become 1.0


def numbers(column: pa.Array) -> np.ndarray:
    """The numbers of a column, NaN where null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64(), safe=False)
    if not column.null_count:
        return column.to_numpy(zero_copy_only=False)
    given = np.asarray(column.is_valid())
    filled = pc.fill_null(column.cast(pa.float32()) if pa.types.is_float16(column.type) else column, 0)
    with np.errstate(over="ignore"):
        values = filled.to_numpy(zero_copy_only=False).astype(np.float32)
    values[~given] = np.nan
    return values


def is_numeric(type: pa.DataType) -> bool:
    import pyarrow.types as t

    return t.is_integer(type) or t.is_floating(type) or t.is_decimal(type)


def is_string(type: pa.DataType) -> bool:
    import pyarrow.types as t

    return t.is_string(type) or t.is_large_string(type) or t.is_string_view(type)


def is_bytes(type: pa.DataType) -> bool:
    import pyarrow.types as t

    return t.is_binary(type) or t.is_large_binary(type) or t.is_fixed_size_binary(type) or t.is_binary_view(type)


def is_vector(type: pa.DataType) -> bool:
    """A list of numbers, or a list of such lists, which may be matrices of one row."""
    if is_list(type) and is_list(type.value_type):
        type = type.value_type
    return is_list(type) and is_numeric(type.value_type)


def is_list(type: pa.DataType) -> bool:
    import pyarrow.types as t

    return t.is_list(type) or t.is_large_list(type) or t.is_fixed_size_list(type)


def is_picture(type: pa.DataType) -> bool:
    """The struct of bytes and path that Hugging Face datasets keep a picture in."""
    import pyarrow.types as t

    return t.is_struct(type) and {type.field(i).name for i in range(type.num_fields)} == {"bytes", "path"}


def picture_cells(column: pa.ChunkedArray | pa.Array) -> list[bytes | str | None]:
    """The bytes of each picture, its path where it has none."""
    return [None if v is None else v["bytes"] if v["bytes"] is not None else v["path"] for v in column.to_pylist()]


def byte_cells(column: pa.ChunkedArray | pa.Array) -> list[bytes | None]:
    return column.to_pylist()


def to_frame(table: pa.Table, rows: int) -> pd.DataFrame:
    """Columns as text (pictures as bytes), None where a cell is null or NaN."""
    import pandas as pd

    cells = {}
    for i, field in enumerate(table.schema):
        picture = is_picture(plain_type(field.type))
        cells[field.name] = (picture_cells if picture else text_cells)(_storage(table.column(i)))
    return pd.DataFrame(cells, dtype=object, index=range(table.num_rows if cells else rows))


# ---------------------------------------------------------------- reading


class Source(Protocol):
    """An open file of Arrow columns.

    Attributes
    ----------
    rows : as the file's metadata says.
    held : bytes that the largest batch takes while it is unpacked.
    """

    path: Path
    schema: pa.Schema
    rows: int
    held: int

    def batches(self, names: list[str], size: int) -> Iterator[pa.RecordBatch]:
        """The rows of some columns, in that order, at most ``size`` at a time."""


@contextmanager
def damage(path: Path) -> Iterator[None]:
    """Turn whatever pyarrow makes of broken bytes into one sentence."""
    import pyarrow as pa

    try:
        yield
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError, OverflowError, MemoryError) as e:
        why = (str(e).splitlines() or [type(e).__name__])[0][:120]
        raise InputError(f"{path.name} is damaged ({why}); write or download it again.") from None


def _first(source: Source, names: list[str], rows: int = SAMPLE) -> pa.Table:
    """The first rows of some columns."""
    import pyarrow as pa

    found, left = [], rows
    for batch in source.batches(names, rows):
        found.append(batch.slice(0, left))
        left -= min(left, batch.num_rows)
        if not left:
            break
    schema = pa.schema([source.schema.field(n) for n in names])
    return pa.Table.from_batches(found, schema) if found else schema.empty_table()


def _columns(source: Source) -> list[Column]:
    """The columns as their types and first rows show them."""
    names = source.schema.names
    if len(set(names)) < len(names):
        twice = sorted({n for n in names if names.count(n) > 1})
        raise InputError(f"{source.path.name} has several columns called {shown(twice)}; rename them.")
    columns.check_count(source.path.name, len(names))
    called = columns.unique(names)
    sample = _first(source, names)
    index = _index_columns(source.schema)
    out = []
    for c, field in enumerate(source.schema):
        column = Column(called[c], "text", (), field.name.strip(), index=field.name in index)
        _describe(column, plain_type(field.type), sample.column(c))
        out.append(column)
    return out


def _describe(column: Column, type: pa.DataType, cells: pa.ChunkedArray) -> None:
    """Fill in a column's kind and first cells."""
    import pyarrow.types as t

    if is_vector(type):
        column.kind = "vector"
        column.width = type.list_size if t.is_fixed_size_list(type) else _usual_length(cells)
        if is_list(type.value_type):
            column.width = _usual_length(_storage(cells).combine_chunks().flatten())
        column.cells = [None if v is None else _beginning(v) for v in cells.slice(0, columns.EXAMPLES).to_pylist()]
    elif is_picture(type) or is_bytes(type):
        values = (picture_cells if is_picture(type) else byte_cells)(cells)
        found = [v for v in values if isinstance(v, bytes)]
        if is_picture(type) or (found and all(v.startswith(PICTURES) for v in found)):
            column.kind = "image"
        column.plain = False
        column.cells = [v if isinstance(v, str | None) else f"{len(v):,} bytes" for v in values]
    elif t.is_nested(type):
        column.plain = False
        column.cells = text_cells(cells.slice(0, columns.EXAMPLES))
    else:
        column.cells = text_cells(cells)
        if is_numeric(type):
            column.kind = "number"
        elif is_string(type):
            column.describe_text()
        else:
            column.plain = t.is_boolean(type)  # a date is no name


def _usual_length(cells: pa.ChunkedArray | pa.Array) -> int | None:
    import pyarrow.compute as pc

    lengths = [n for n in pc.list_value_length(_storage(cells)).to_pylist() if n]
    return Counter(lengths).most_common(1)[0][0] if lengths else None


def _beginning(values: list) -> str:
    values = values[0] if len(values) == 1 and isinstance(values[0], list) else values
    if any(isinstance(v, list) for v in values):
        return f"[{len(values):,} lists]"
    text = ", ".join("null" if v is None else f"{float(v):.4g}" for v in values[:6])
    return f"[{text}{', …' if len(values) > 6 else ''}]"


def _index_columns(schema: pa.Schema) -> set[str]:
    """The columns that pandas wrote for the index of a DataFrame."""
    try:
        listed = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
        return {name for name in listed if isinstance(name, str)}
    except (ValueError, AttributeError, TypeError):
        return set()


def _known_roles(schema: pa.Schema) -> dict[str, str] | None:
    """The roles of columns as Relcore wrote them."""
    try:
        found = json.loads((schema.metadata or {}).get(ROLES_KEY, b"null"))
    except ValueError:
        return None
    usable = isinstance(found, dict) and all(role in COLUMN_ROLES for role in found.values())
    return found if usable and set(found) <= set(schema.names) else None


def plan(request: Request, source: Source) -> columns.Plan:
    found = columns.plan(request, _columns(source), known=_known_roles(source.schema))
    for c in found.vector if found.packed else ():
        shape = getattr(source.schema.field(c).type, "shape", ())  # of Arrow's tensors
        if len(shape) > 1:
            found.assumed.append(
                f"each row of {found.name(c)!r} is an array of shape {tuple(shape)}, read number by number"
            )
    return found


def arrays(source: Source) -> list[ArrayInfo]:
    """The columns of vectors, where there are several to choose from; -1 stands for a length not told."""
    found = [c for c in _columns(source) if c.kind == "vector"]
    return [ArrayInfo(c.name, (source.rows, c.width or -1), "<f4") for c in found] if len(found) > 1 else []


def _dtype(source: Source, plan: columns.Plan) -> str:
    """How the numbers of the vector are stored."""
    types = [plain_type(source.schema.field(c).type) for c in plan.vector]
    while any(map(is_list, types)):
        types = [t.value_type if is_list(t) else t for t in types]
    stored = set(map(str, types))
    names = {"float": "float32", "double": "float64", "halffloat": "float16", "string": "text", "large_string": "text"}
    return ", ".join(sorted({names.get(t, t) for t in stored})) or "none"


def _batch_size(plan: columns.Plan) -> int:
    """Rows that hold about a million numbers."""
    return int(min(max(BATCH // (plan.dim or 1), 64), 2**16))


def peek(request: Request, source: Source) -> Peek:
    found = plan(request, source)
    count = source.rows * (found.dim or 0)
    seen = [found.columns[c].cells for c in found.kept]
    cells = sum(sum(len(x or "") + 60 for x in some) / max(1, len(some)) for some in seen) + 130  # by name and row
    memory = int(count * 4.5 + source.rows * cells * 1.2) + 64 * BATCH + source.held
    head = None
    if found.vector and found.problem is None and source.rows:
        reader = _Reader(source, found)
        reader.add(_first(source, reader.names, 5))
        with suppress(InputError):
            head = reader.finish().vectors
    return columns.peek_of(found, source.rows, _dtype(source, found), memory, head)


def read(request: Request, source: Source) -> Raw:
    found = plan(request, source)
    if found.problem is not None:
        raise found.problem
    if not source.rows:
        raise InputError(f"{source.path.name} holds no rows; check how it was written.")
    reader = _Reader(source, found)
    told = 0.0
    for batch in source.batches(reader.names, _batch_size(found)):
        reader.add(batch)
        del batch  # it holds the memory of the largest part of the file that is unpacked at once
        if (share := reader.n / source.rows) >= told + 0.01:
            told = share
            request.progress(min(share, 1.0))
    return reader.finish()


class _Reader:
    """Batches as they come: their vectors packed, the columns beside them kept as Arrow arrays until the end."""

    def __init__(self, source: Source, plan: columns.Plan):
        self.source, self.plan, self.n = source, plan, 0
        self.types = {c: plain_type(source.schema.field(c).type) for c in {*plan.vector, *plan.kept}}
        self.names = [source.schema.field(c).name for c in sorted(self.types)]
        self.at = {c: i for i, c in enumerate(sorted(self.types))}
        self.kept: dict[int, list[pa.Array]] = {c: [] for c in plan.kept}
        self.aside: dict[int, str] = {}
        self.vectors = columns.Vectors() if plan.packed else None
        self.matrix = None if plan.packed else columns.Matrix(len(plan.vector))

    def add(self, batch: pa.RecordBatch | pa.Table) -> None:
        def cells(c: int) -> pa.Array:
            column = batch.column(self.at[c])
            return _storage(column if not hasattr(column, "combine_chunks") else _one(column))

        for c, chunks in self.kept.items():
            chunks.append(cells(c))
        if self.plan.packed:
            c = self.plan.vector[0]
            if is_vector(self.types[c]):
                self._add_lists(cells(c), np.arange(self.n, self.n + batch.num_rows))
            else:
                self._add_texts(c, cells(c))
        elif batch.num_rows:
            block = np.empty((batch.num_rows, len(self.plan.vector)), dtype=np.float32)
            given = np.zeros(batch.num_rows, dtype=bool)
            for i, c in enumerate(self.plan.vector):
                column = cells(c)
                if not is_numeric(column.type):
                    column = self._as_numbers(c, column)
                with np.errstate(over="ignore", invalid="ignore"):
                    block[:, i] = numbers(column)
                given |= np.asarray(column.is_valid())
            self.matrix.append(block)
            self.aside |= dict.fromkeys((np.flatnonzero(~given) + self.n).tolist(), MISSING_VECTOR)
        self.n += batch.num_rows

    def _add_lists(self, column: pa.Array, rows: np.ndarray) -> None:
        """Lists of numbers: those of one length are packed at once."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if column.null_count:
            given = np.asarray(column.is_valid())
            for row in rows[~given].tolist():
                self.vectors.lose(row, MISSING_VECTOR)
            column, rows = column.drop_null(), rows[given]
        if is_list(column.type.value_type) and len(column):  # a matrix of one row is a vector
            lengths = np.asarray(pc.list_value_length(column))
            for row, length in zip(rows[lengths != 1].tolist(), lengths[lengths != 1].tolist(), strict=True):
                self.vectors.lose(row, f"a matrix, not a vector ({length:,} rows)" if length else MISSING_VECTOR)
            column, rows = column.filter(pa.array(lengths == 1)).flatten(), rows[lengths == 1]
            self._add_lists(column, rows)
            return
        if not len(column):
            return
        lengths = np.asarray(pc.list_value_length(column))
        flat = numbers(column.flatten())
        ends = np.cumsum(lengths)
        for length in np.unique(lengths).tolist():
            which = lengths == length
            if which.all():
                block = flat.reshape(len(column), length)
            else:
                block = flat[(ends[which] - length)[:, None] + np.arange(length)]
            self.vectors.add(rows[which].tolist(), block)

    def _as_numbers(self, c: int, column: pa.Array) -> pa.Array:
        """A column of another type that was chosen as part of the vector, where its cells spell numbers."""
        import pyarrow as pa

        cells = text_cells(column)
        values = [number(x or "") for x in cells]
        if None in values:
            row = values.index(None)
            raise self._refuse(c, self.n + row, cells[row], "a number")
        return pa.array(values, pa.float64(), from_pandas=True)

    def _add_texts(self, c: int, column: pa.Array) -> None:
        if not is_string(column.type):
            first = next((x for x in column.to_pylist() if x is not None), None)
            raise self._refuse(c, self.n, first, "a vector, which is a list of numbers")
        for row, cell in enumerate(text_cells(column), self.n):
            found = columns.vector(cell or "")
            if found is None:
                raise self._refuse(c, row, cell, "a vector such as [0.1, 0.2]")
            if isinstance(found, str):
                self.vectors.lose(row, found)
            else:
                self.vectors.add((row,), np.frombuffer(found, dtype=np.float64)[None] if found else np.empty((1, 0)))

    def _refuse(self, c: int, row: int, cell, wanted: str) -> InputError:
        text = str(cell)
        text = text if len(text) <= 60 else text[:60] + "\u2026"
        return InputError(
            f"{self.source.path.name}: row {row}, {self.plan.name(c)!r} holds {text!r}, wanted {wanted}; correct "
            "it, or choose another column."
        )

    def finish(self) -> Raw:
        import pyarrow as pa

        if self.plan.packed:
            what = f"{self.source.path.name}: column {self.plan.name(self.plan.vector[0])!r}"
            matrix, lost = self.vectors.finish(self.n, what)
            self.aside |= lost
        else:
            matrix = self.matrix.finish()
        raw = Raw(matrix, aside=self.aside, assumed=list(self.plan.assumed), dtype=_dtype(self.source, self.plan))
        media, meta = self.plan.chosen.get("media"), set(self.plan.meta)
        kept = {}
        for c in list(self.kept):
            column = pa.chunked_array(self.kept.pop(c), type=self.types[c])
            if is_picture(self.types[c]):
                kept[c] = picture_cells(column)
            elif c == media and is_bytes(self.types[c]):
                kept[c] = byte_cells(column)
            elif self.plan.roles[c] == "meta":
                kept[c] = native_cells(column)
            else:
                kept[c] = text_cells(column)
            if c in meta and is_picture(self.types[c]):
                kept[c] = [v if isinstance(v, str | None) else f"{len(v):,} bytes" for v in kept[c]]
        columns.attach(raw, self.plan, kept)
        return raw


def column(source: Source, key: str | None, role: str) -> list:
    """One value a row: the named column, or the only one that can be meant."""
    names = [field.name for field in source.schema if not is_vector(plain_type(field.type))]
    if key is None:
        key = columns.by_role_word(role, names) or (names[0] if len(names) == 1 else None)
        if key is None:
            raise InputError(
                f"{source.path.name} has {len(names)} columns that can be the {role}: {shown(names)}; choose one as "
                f"{source.path.name}:COLUMN."
            )
    if key not in source.schema.names:
        raise InputError(f"{source.path.name} has no column {key!r} for the {role}; it has {shown(names)}.")
    out = []
    type = plain_type(source.schema.field(key).type)
    cells = picture_cells if is_picture(type) else byte_cells if is_bytes(type) and role == "media" else text_cells
    for batch in source.batches([key], 2**16):
        out.extend(cells(_storage(batch.column(0))))
    return out


def frame(source: Source) -> pd.DataFrame:
    import pyarrow as pa

    wanted = [field.name for field in source.schema if not is_vector(plain_type(field.type))]
    schema = pa.schema([source.schema.field(n) for n in wanted])
    return to_frame(pa.Table.from_batches(source.batches(wanted, 2**16), schema), source.rows)


# ---------------------------------------------------------------- writing


def table_of(space: Space) -> tuple[pa.Table, list[str]]:
    """A space as an Arrow table, with the roles of its columns in its metadata; and what it cannot keep."""
    import pyarrow as pa

    notes, roles = [], {"vectors": "vector"}
    flat = pa.array(np.ascontiguousarray(space.vectors).reshape(-1))
    out = {"vectors": pa.FixedSizeListArray.from_arrays(flat, space.dim)}

    def put(name: str, role: str, values: pa.Array) -> None:
        out[name], roles[name] = values, role

    try:
        if any(name != str(i) for i, name in enumerate(space.names)):
            put("name", "name", pa.array(space.names, pa.string()))
        if space.labels is not None:
            put("label", "label", pa.array(space.labels, pa.string()))
        if space.media is not None:
            pictures = any(isinstance(v, bytes) for v in space.media)
            kept = [v.encode() if pictures and isinstance(v, str) else v for v in space.media]
            put("media", "media", pa.array(kept, pa.binary() if pictures else pa.string()))
        if space.meta is not None:
            for heading, new in columns.renamed(list(space.meta.columns), set(out), free=True).items():
                if new != heading:
                    notes.append(f"metadata {heading!r} written as {new!r}")
                values = space.meta[heading]
                try:
                    put(new, "meta", pa.array(values, from_pandas=True))
                except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):  # values of several types
                    put(new, "meta", pa.array([None if columns.missing(v) else str(v) for v in values], pa.string()))
                    notes.append(f"metadata {heading!r} written as text")
    except UnicodeEncodeError as e:
        raise InputError(f"{e.object[:40]!r} cannot be written as UTF-8 ({e.reason}); rename it.") from None
    table = pa.table(out).replace_schema_metadata({ROLES_KEY: json.dumps(roles)})
    return table, notes
