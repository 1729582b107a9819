"""Names, labels, media and metadata that come from another file than the vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from relcore.formats.base import Raw, by_role_word, display
from relcore.formats.registry import reader, split_spec
from relcore.space import Refused


def read_column(spec: str | Path, role: str, n: int) -> tuple[list[str], str | None]:
    """The names or labels of n vectors in a file: an array, a one-column text file, or ``FILE:COLUMN`` of a table.

    Returns the values, which may be more or fewer than n, and, when a first line was taken as the column's heading, a
    sentence saying so.

    Raises
    ------
    InputError
        No such file or column.
    """
    path, key = split_spec(spec)
    values = [v.item() if isinstance(v, np.generic) else v for v in reader(path).column(path, key, role)]
    if len(values) == n + 1 and by_role_word(role, [str(values[0])]):
        return values[1:], f"first line of {path.name} ({values[0]!r}) read as a heading"
    return values, None


def attach(raw: Raw, role: str, value: str | Path | Sequence, match: str = "position") -> None:
    """Give the rows their names, labels or media from a sequence or a file, or refuse them with both counts.

    Parameters
    ----------
    match : ``"position"``: the counts must be equal; ``"first"``: as many as there are, from the first row on.
    """
    if not isinstance(value, str | Path):
        setattr(raw, role, value)
        return
    n = len(raw.vectors)
    values, said = read_column(value, role, n)
    if len(values) != n and match != "first":
        raw.refused.append(Refused(role, display(*split_spec(value)), len(values), n))
        return
    raw.assumed.append(said or f"{role} read from {Path(value).name}")
    if len(values) != n:
        raw.warned.append(f"{role} attached to the first {min(n, len(values)):,} of {n:,} vectors, as asked")
    setattr(raw, role, [*values[:n], *[None] * (n - len(values))])
