"""What Parquet and Feather share: columns of Arrow arrays as text."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


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


def text_cells(column: pa.ChunkedArray | pa.Array) -> list[str | None]:
    """The cells as text, None where they are null or NaN. Decimals are those of the stored precision."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_float16(column.type) or pa.types.is_float32(column.type):
        values = column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy()
        valid = column.is_valid().to_pylist()
        # str of the numpy scalar, not of Python's float: 0.1 and not 0.10000000149011612
        return [
            None if not ok or v != v else str(int(v)) if float(v).is_integer() else str(v)
            for v, ok in zip(values, valid, strict=True)
        ]
    try:
        values = column.to_pylist()
    except (ValueError, OverflowError):  # a date beyond Python's calendar
        values = column.cast(pa.string()).to_pylist()
    return [None if v is None or (isinstance(v, float) and math.isnan(v)) else plain(v) for v in values]


def is_numeric(type) -> bool:
    import pyarrow.types as t

    return t.is_integer(type) or t.is_floating(type) or t.is_decimal(type)


def is_vector(type) -> bool:
    """A list of numbers."""
    import pyarrow.types as t

    if hasattr(type, "storage_type"):
        type = type.storage_type
    lists = t.is_list(type) or t.is_large_list(type) or t.is_fixed_size_list(type)
    return lists and is_numeric(type.value_type)


def is_picture(type) -> bool:
    """The struct of bytes and path that Hugging Face datasets keep a picture in."""
    import pyarrow.types as t

    return t.is_struct(type) and {type.field(i).name for i in range(type.num_fields)} == {"bytes", "path"}


def picture_cells(column: pa.ChunkedArray | pa.Array) -> list[bytes | str | None]:
    """The bytes of each picture, its path where it has none."""
    return [None if v is None else v["bytes"] if v["bytes"] is not None else v["path"] for v in column.to_pylist()]


def to_frame(table: pa.Table) -> pd.DataFrame:
    """Every column that is no vector, as text (pictures as bytes), None where a cell is null or NaN."""
    import pandas as pd

    columns = {}
    for i, field in enumerate(table.schema):
        if not is_vector(field.type):
            cells = picture_cells if is_picture(field.type) else text_cells
            columns[field.name] = cells(table.column(i))
    return pd.DataFrame(columns, dtype=object, index=range(table.num_rows))
