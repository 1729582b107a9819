"""Parquet: a column of vectors (lists of numbers), or numeric columns, read through pyarrow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from relcore.errors import InputError
from relcore.formats import arrow
from relcore.formats.base import need

if TYPE_CHECKING:
    import pandas as pd

NAME = "parquet"
ENDINGS = (".parquet", ".pq")


def frame(path: Path) -> pd.DataFrame:
    """All columns but the vectors, as text, None where a cell is missing."""
    need("pyarrow", path.name)
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as f:
            wanted = [field.name for field in f.schema_arrow if not arrow.is_vector(field.type)]
            return arrow.to_frame(f.read(columns=wanted, use_pandas_metadata=False))
    except (pa.ArrowException, OSError, ValueError) as e:
        raise InputError(f"{path.name} is damaged ({str(e)[:120]}); write or download it again.") from None
