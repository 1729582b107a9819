"""Parquet: a column of vectors (lists of numbers), or numeric columns, read through pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from relcore.errors import InputError
from relcore.formats import arrow
from relcore.formats.base import ArrayInfo, Peek, Raw, Request, need
from relcore.space import Space

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

NAME = "parquet"
ENDINGS = (".parquet", ".pq")


def recognises(path: Path, head: bytes) -> bool:
    return head.startswith((b"PAR1", b"PARE"))


class _Source:
    """An open Parquet file, as :class:`relcore.formats.arrow.Source` wants it."""

    def __init__(self, path: Path, file):
        self.path, self.file, self.schema = path, file, file.schema_arrow
        self.rows, self.held = file.metadata.num_rows, 0  # pages are unpacked one by one
        if self.rows < 0:
            raise InputError(f"{path.name} claims {self.rows:,} rows; it is damaged, so write or download it again.")

    def batches(self, names: list[str], size: int) -> Iterator[pa.RecordBatch]:
        for batch in self.file.iter_batches(batch_size=size, columns=names, use_threads=False):
            batch.validate(full=True)  # bytes that are no text, offsets out of bounds
            yield batch.select(names)


@contextmanager
def _open(path: Path) -> Iterator[_Source]:
    need("pyarrow", path.name)
    import pyarrow.parquet as pq

    with arrow.damage(path):
        # without a buffer, whole column chunks would be held
        with pq.ParquetFile(path, buffer_size=2**20, pre_buffer=False) as file:
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
    import pyarrow.parquet as pq

    table, notes = arrow.table_of(space)
    others = [name for name in table.column_names if name != "vectors"]
    pq.write_table(table, path, row_group_size=max(1024, 4 * arrow.BATCH // space.dim), use_dictionary=others or False)
    return notes
