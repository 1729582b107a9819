"""Feather and Arrow files: a column of vectors (lists of numbers), or numeric columns, read through pyarrow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from relcore.errors import InputError
from relcore.formats import arrow
from relcore.formats.base import need

if TYPE_CHECKING:
    import pandas as pd

NAME = "feather"
ENDINGS = (".feather", ".arrow", ".ipc")


def frame(path: Path) -> pd.DataFrame:
    """All columns but the vectors, as text, None where a cell is missing."""
    need("pyarrow", path.name)
    import pyarrow as pa

    try:
        with pa.memory_map(str(path)) as f:
            magic = f.read(6)
            f.seek(0)
            reader = pa.ipc.open_file(f) if magic == b"ARROW1" else pa.ipc.open_stream(f)
            table = reader.read_all()
            table.validate(full=True)
            return arrow.to_frame(table)
    except (pa.ArrowException, OSError, ValueError) as e:
        raise InputError(f"{path.name} is damaged ({str(e)[:120]}); write or download it again.") from None
