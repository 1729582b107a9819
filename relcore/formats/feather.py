"""Feather and Arrow files: a column of vectors (lists of numbers), or numeric columns, read through pyarrow.

Both forms of Arrow are read: the file (Feather version 2), and the stream, as Hugging Face datasets keep it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from relcore.errors import InputError
from relcore.formats import arrow
from relcore.formats.base import ArrayInfo, Peek, Raw, Request, need
from relcore.formats.text import MAX_RATIO, SMALL
from relcore.space import Space

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

NAME = "feather"
ENDINGS = (".feather", ".arrow", ".ipc")
_FILE, _STREAM, _OLD = b"ARROW1", b"\xff\xff\xff\xff", b"FEA1"
_RECORD_BATCH = 3  # the kind of a message, in its header


def recognises(path: Path, head: bytes) -> bool:
    stream = head.startswith(_STREAM) and len(head) > 12 and head[4:8] != b"\0\0\0\0"
    return head.startswith((_FILE, _OLD)) or (stream and path.suffix.lower() in ENDINGS)


def _lengths(message: bytes) -> tuple[list[int], bool] | None:
    """Of a batch's header: its rows, then the length of each field and of what is nested in it; and whether it is
    compressed. None for other messages.

    The header is a flatbuffer; pyarrow tells none of this without unpacking the batch.
    """

    def field(table: int, i: int) -> int | None:
        """Where field i of a table stands."""
        vtable = table - struct.unpack_from("<i", message, table)[0]
        if 4 + 2 * i >= struct.unpack_from("<H", message, vtable)[0]:
            return None
        offset = struct.unpack_from("<H", message, vtable + 4 + 2 * i)[0]
        return table + offset if offset else None

    def follow(at: int) -> int:
        return at + struct.unpack_from("<I", message, at)[0]

    root = follow(0)
    kind, header = field(root, 1), field(root, 2)
    if kind is None or header is None or message[kind] != _RECORD_BATCH:
        return None
    batch = follow(header)
    rows, nodes = field(batch, 0), field(batch, 1)
    out = [struct.unpack_from("<q", message, rows)[0] if rows is not None else 0]
    if nodes is not None:
        start = follow(nodes)
        count = min(struct.unpack_from("<I", message, start)[0], len(message) // 16)
        out += [struct.unpack_from("<q", message, start + 4 + 16 * i)[0] for i in range(count)]
    return out, field(batch, 3) is not None


def _nodes(type: pa.DataType) -> int:
    """How many fields a column counts for in a batch's header, with what is nested in it."""
    import pyarrow.types as t

    if hasattr(type, "storage_type"):
        type = type.storage_type
    if t.is_dictionary(type) or not t.is_nested(type):
        return 1
    return 1 + sum(_nodes(type.field(i).type) for i in range(type.num_fields))


class _Source:
    """An open Arrow file or stream, as :class:`relcore.formats.arrow.Source` wants it."""

    def __init__(self, path: Path, file: pa.MemoryMappedFile):
        import pyarrow as pa

        self.path, self.file = path, file
        magic = file.read(6)
        if magic.startswith(_OLD):
            raise InputError(f"{path.name} is Feather version 1; write it again with DataFrame.to_feather.")
        self.is_file = magic == _FILE
        self.start = 8 if self.is_file else 0
        self.schema = self._reader().schema
        ends, at = [], 0
        for field in self.schema:
            at += _nodes(field.type)
            ends.append(at)
        self.rows, self.held, self.packed, leaves = 0, 0, False, [0] * len(self.schema)
        file.seek(self.start)
        for message in pa.ipc.MessageReader.open_stream(file):
            try:
                found = _lengths(message.metadata.to_pybytes())
            except struct.error as e:
                raise InputError(f"{path.name} is damaged ({e}); write or download it again.") from None
            if found is not None:
                lengths, packed = found
                if min(lengths) < 0 or len(lengths) <= at:
                    raise InputError(f"{path.name}: a batch claims a length that cannot be; it is damaged.")
                self.rows += lengths[0]
                if packed:  # else it is read in place
                    self.packed = True
                    self.held = max(self.held, message.body.size + 8 * sum(lengths))
                for c, end in enumerate(ends):
                    leaves[c] += lengths[end]  # of a list, the last one nested in it
        most = max(leaves, default=0)
        if most * 4 > max(MAX_RATIO * path.stat().st_size, SMALL):
            raise InputError(
                f"{path.name} claims {most:,} numbers in {path.stat().st_size:,} bytes, which looks like a "
                "decompression bomb; if it is yours, write it uncompressed."
            )

    def _reader(self):
        import pyarrow as pa

        self.file.seek(0)
        return pa.ipc.open_file(self.file) if self.is_file else pa.ipc.open_stream(self.file)

    def batches(self, names: list[str], size: int) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        # spares unpacking the other columns; without anything to unpack it would copy those that are asked for
        wanted = [self.schema.get_field_index(n) for n in names] if self.packed else None
        options = pa.ipc.IpcReadOptions(included_fields=wanted)
        self.file.seek(0)
        if self.is_file:
            reader = pa.ipc.open_file(self.file, options=options)
            found = (reader.get_batch(i) for i in range(reader.num_record_batches))
        else:
            found = pa.ipc.open_stream(self.file, options=options)
        for batch in found:
            batch = batch.select(names)
            batch.validate(full=True)  # a damaged offset would be followed anywhere
            for start in range(0, batch.num_rows, size):
                yield batch.slice(start, size)
            del batch  # before the next one is unpacked


@contextmanager
def _open(path: Path) -> Iterator[_Source]:
    need("pyarrow", path.name)
    import pyarrow as pa

    with arrow.damage(path), pa.memory_map(str(path)) as file:
        yield _Source(path, file)


def arrays(path: Path) -> list[ArrayInfo]:
    with _open(path) as source:
        return arrow.arrays(source)


def peek(request: Request) -> Peek:
    with _open(request.path) as source:
        return arrow.peek(request, source)


def read(request: Request) -> Raw:
    with _open(request.path) as source:
        return arrow.read(request, source)


def column(path: Path, key: str | None, role: str) -> list:
    with _open(path) as source:
        return arrow.column(source, key, role)


def frame(path: Path) -> pd.DataFrame:
    """All columns but the vectors, as text (pictures as bytes), None where a cell is missing."""
    with _open(path) as source:
        return arrow.frame(source)


def write(path: Path, space: Space) -> list[str]:
    """A column of vectors (a list of fixed length), and one each for names, labels, media and metadata."""
    import pyarrow as pa

    table, notes = arrow.table_of(space)
    with pa.OSFile(str(path), "wb") as f, pa.ipc.new_file(f, table.schema) as out:
        out.write_table(table, max_chunksize=max(1024, arrow.BATCH // space.dim))
    return notes
