"""Embedding spaces and the pairs between them: the data everything else works on.

A :class:`Space` is validated once, at :func:`make_space`, and never changes afterwards.
"""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from relcore.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

NO_LABEL = ""  # a row without a label; shown as "(none)"


class SetAside(NamedTuple):
    """A row of the source that is not used. ``row`` counts from 0 in the source file."""

    row: int
    reason: str


class Refused(NamedTuple):
    """Names, labels, media or metadata that were not attached, because their count is not that of the vectors."""

    what: str
    source: str
    found: int
    wanted: int

    def __str__(self) -> str:
        return (
            f"{self.what} not attached: {self.source} has {self.found:,} for {self.wanted:,} vectors; match them by an "
            f"id column, attach them to the first {min(self.found, self.wanted):,} on request, or load without them"
        )


@dataclass(frozen=True)
class LoadReport:
    """What a loader read, what it used, what it set aside, what it had to assume and what it refused to attach."""

    source: str
    format: str
    rows_read: int
    rows_used: int
    dim: int
    dtype: str
    set_aside: tuple[SetAside, ...] = ()
    assumed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    refused: tuple[Refused, ...] = ()
    aside_names: tuple[str, ...] = ()  # of the rows set aside, in their order; kept in memory only

    def summary(self) -> str:
        """For example ``412 rows read, 409 used, 3 set aside (2 NaN or infinite, 1 zero norm)``."""
        text = f"{self.rows_read:,} rows read, {self.rows_used:,} used"
        if self.set_aside:
            text += f", {len(self.set_aside):,} set aside ({_counted(self.set_aside)})"
        return text

    def to_dict(self) -> dict:
        return {
            "source": self.source,
            "format": self.format,
            "rows_read": self.rows_read,
            "rows_used": self.rows_used,
            "set_aside": [{"row": s.row, "reason": s.reason} for s in self.set_aside],
            "dim": self.dim,
            "dtype": self.dtype,
            "assumed": list(self.assumed),
            "warnings": list(self.warnings),
            "refused": [r._asdict() for r in self.refused],
        }

    @classmethod
    def from_dict(cls, d: dict) -> LoadReport:
        rows = tuple(SetAside(s["row"], s["reason"]) for s in d["set_aside"])
        words = {"assumed": tuple(d["assumed"]), "warnings": tuple(d["warnings"])}
        refused = tuple(Refused(**r) for r in d.get("refused", ()))
        return cls(**{**d, **words, "set_aside": rows, "refused": refused})


@dataclass(frozen=True, eq=False)
class Space:
    """n embedding vectors of one encoder, with everything that belongs to their rows.

    Build one with :func:`make_space`, which validates and reports; the constructor trusts its arguments.

    Attributes
    ----------
    vectors : float32 array (n, d), C-contiguous, finite, no zero rows. May be memory-mapped.
    ids : int64 array (n,), the row numbers of the source file, unique. Selections and files speak in ids.
    names : object array (n,) of str, verbatim, not necessarily unique.
    labels : object array (n,) of str or None; ``""`` marks a row without a label.
    meta : DataFrame of n rows or None.
    media : object array (n,) of str or None: what stands for the row as a thumbnail (a character, a text, a path).
    title : what the screen calls this space.
    """

    vectors: np.ndarray
    ids: np.ndarray
    names: np.ndarray
    labels: np.ndarray | None = None
    meta: pd.DataFrame | None = None
    media: np.ndarray | None = None
    title: str = ""

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def dim(self) -> int:
        return self.vectors.shape[1]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of shape, vector bytes, ids, names and labels."""
        h = hashlib.sha256(repr(self.vectors.shape).encode())
        h.update(np.ascontiguousarray(self.vectors).data)
        h.update(np.ascontiguousarray(self.ids).data)
        for column in (self.names, self.labels):
            if column is not None:
                h.update("\x1f".join(column).encode("utf-8", "surrogatepass"))
            h.update(b"\x1e")
        return h.hexdigest()

    def tensor(self) -> Tensor:
        """The vectors as a torch tensor that shares their memory; never write to it."""
        import torch

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            return torch.from_numpy(self.vectors)

    @cached_property
    def position_of_id(self) -> dict[int, int]:
        return {int(i): p for p, i in enumerate(self.ids)}

    @cached_property
    def positions_of_name(self) -> dict[str, list[int]]:
        """Every row position of each name, in row order."""
        out: dict[str, list[int]] = {}
        for p, name in enumerate(self.names):
            out.setdefault(name, []).append(p)
        return out

    def positions(self, ids: Iterable[int]) -> np.ndarray:
        """Row positions (int64) of the ids that are in this space; unknown ids are left out."""
        return np.array([p for i in ids if (p := self.position_of_id.get(int(i))) is not None], dtype=np.int64)

    def take(self, rows: np.ndarray) -> Space:
        """The space of the given row positions, in that order; every per-row column follows."""
        rows = np.asarray(rows, dtype=np.int64)
        return replace(
            self,
            vectors=np.ascontiguousarray(self.vectors[rows]),
            ids=self.ids[rows],
            names=self.names[rows],
            labels=None if self.labels is None else self.labels[rows],
            meta=None if self.meta is None else self.meta.iloc[rows].reset_index(drop=True),
            media=None if self.media is None else self.media[rows],
        )


def as_text(values: Sequence, n: int, what: str) -> np.ndarray:
    """An object array (n,) of str. Integers and integral floats become ``1``, missing values ``""``.

    Raises
    ------
    InputError
        If there are not exactly n values.
    """
    if not isinstance(values, np.ndarray | range):
        values = list(values)
    if len(values) != n:
        raise InputError(f"{what}: {len(values)} values for {n} vectors; give exactly one a vector, or none at all.")
    out = np.empty(n, dtype=object)
    if isinstance(values, range):
        values = list(map(str, values))
    if n and all(type(v) is str for v in values):
        out[:] = values
        return out
    for i, v in enumerate(values):
        if v is None or (isinstance(v, float | np.floating) and np.isnan(v)):
            out[i] = ""
        elif isinstance(v, float | np.floating) and float(v).is_integer():
            out[i] = str(int(v))
        else:
            out[i] = str(v)
    return out


def _counted(set_aside: Sequence[SetAside]) -> str:
    """``2 NaN or infinite, 1 zero norm``; what differs from row to row (in brackets) is left out."""
    reasons = Counter(s.reason.split(" (")[0] for s in set_aside)
    return ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())


def _unusable(row: np.ndarray, zero: bool) -> str:
    """Why a row that is not finite, or zero, as float32 cannot be used."""
    if zero:
        return "too small for float32" if row.any() else "zero norm"
    return "too large for float32" if np.isfinite(row).all() else "NaN or infinite"


def _finite_and_zero(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two bool arrays (n,): rows without NaN and infinity, and rows of norm 0. One pass at the speed of memory."""
    n = len(vectors)
    finite, zero = np.empty(n, dtype=bool), np.zeros(n, dtype=bool)
    step = max(1, 2**18 // vectors.shape[1])
    for i in range(0, n, step):
        block = vectors[i : i + step]
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            squares = np.einsum("ij,ij->i", block, block)
        finite[i : i + step] = np.isfinite(squares)
        # a float32 square overflows for rows beyond 1e19 and underflows below 1e-23: those are looked at exactly
        for r in np.flatnonzero(~np.isfinite(squares) | (squares < 1e-30)):
            finite[i + r] = np.isfinite(block[r]).all()
            zero[i + r] = not np.count_nonzero(block[r])
    return finite, zero


def make_space(
    vectors: np.ndarray,
    *,
    names: Sequence | None = None,
    labels: Sequence | None = None,
    meta: pd.DataFrame | None = None,
    media: Sequence | None = None,
    title: str = "",
    source: str = "array",
    format: str = "array",
    assumed: Sequence[str] = (),
    warned: Sequence[str] = (),
    refused: Sequence[Refused] = (),
    aside: Mapping[int, str] | None = None,
    copy: bool = True,
) -> tuple[Space, LoadReport]:
    """Validate raw rows and build a space: the one border where numbers enter Relcore.

    Rows with NaN or infinite numbers and rows of norm zero are set aside, with their names, labels, metadata and
    media, and listed in the report. Everything else is kept as it is; numbers are cast to float32.

    Parameters
    ----------
    vectors : numeric array (n, d), any dtype, byte order and layout.
    names, labels, media : n values each, or None. Missing names become the row number.
    meta : DataFrame of n rows, or None.
    aside : rows that are not to be used whatever their numbers, with the reason.
    copy : False lets the space keep the caller's memory; only for arrays nobody else holds.

    Raises
    ------
    InputError
        Not a two-dimensional numeric array, counts that differ, or no usable row.
    """
    raw = np.asarray(vectors)
    where = f"{title or source}"
    if raw.dtype.hasobject or raw.dtype.kind not in "fiub":
        raise InputError(f"{where}: holds {raw.dtype} values, wanted numbers; choose a numeric array.")
    if raw.ndim != 2:
        raise InputError(
            f"{where}: the array has shape {raw.shape}, wanted two dimensions (rows, numbers of a vector)."
        )
    n, d = raw.shape
    if n == 0 or d == 0:
        raise InputError(f"{where}: the array has shape {raw.shape}; there is nothing to align.")
    with np.errstate(over="ignore", invalid="ignore"):
        canonical = np.ascontiguousarray(raw, dtype=np.float32)
    if copy and np.may_share_memory(canonical, raw):
        canonical = canonical.copy()  # a later write to the caller's array must not reach a frozen space
    columns = {
        "names": as_text(names, n, f"{where}, names") if names is not None else as_text(range(n), n, "names"),
        "labels": None if labels is None else as_text(labels, n, f"{where}, labels"),
        "media": None if media is None else as_text(media, n, f"{where}, thumbnails"),
    }
    if meta is not None and len(meta) != n:
        raise InputError(f"{where}, metadata: {len(meta)} rows for {n} vectors; give exactly one a vector.")

    finite, zero = _finite_and_zero(canonical)
    given = np.zeros(n, dtype=bool)
    given[list(aside or ())] = True
    reasons = dict(aside or {})
    reasons |= {int(r): _unusable(raw[r], bool(zero[r])) for r in np.flatnonzero((~finite | zero) & ~given)}
    set_aside = [SetAside(r, reasons[r]) for r in sorted(reasons)]
    finite, zero = finite & ~given, zero & ~given
    keep = np.flatnonzero(finite & ~zero)
    if not len(keep):
        if zero.all() and not raw.any():
            raise InputError(f"Every vector in {where} has norm 0. Check the file or the chosen array.")
        raise InputError(
            f"{where}: none of the {n:,} rows is usable ({_counted(set_aside)}). Check the file or the chosen array."
        )
    space = Space(vectors=canonical, ids=np.arange(n, dtype=np.int64), meta=meta, title=title or source, **columns)
    if set_aside:
        space = space.take(keep)
    for column in (space.vectors, space.ids, space.names):
        if column.flags.writeable and column.flags.owndata:
            column.flags.writeable = False
    report = LoadReport(
        source=source,
        format=format,
        rows_read=n,
        rows_used=len(space),
        dim=d,
        dtype=str(raw.dtype),
        set_aside=tuple(set_aside),
        assumed=tuple(assumed),
        warnings=tuple(warned),
        refused=tuple(refused),
        aside_names=tuple(columns["names"][s.row] for s in set_aside),
    )
    return space, report


@dataclass(frozen=True, eq=False)
class Pairs:
    """k pairs of row positions (not ids): seeds, ground truth and discovered anchors alike.

    Attributes
    ----------
    array : int64 (k, 2); column 0 counts rows of x, column 1 rows of y. Unique on each side.
    """

    array: np.ndarray
    unique: bool = field(default=True, kw_only=True)

    def __post_init__(self):
        a = np.asarray(self.array, dtype=np.int64).reshape(-1, 2)
        if self.unique:
            for side, column in zip("xy", a.T, strict=True):
                values, counts = np.unique(column, return_counts=True)
                if (counts > 1).any():
                    raise InputError(
                        f"Row {values[counts > 1][0]} of {side} is in more than one pair; keep one of them."
                    )
        a = a.copy()
        a.flags.writeable = False
        object.__setattr__(self, "array", a)

    def __len__(self) -> int:
        return len(self.array)

    @property
    def x(self) -> np.ndarray:
        return self.array[:, 0]

    @property
    def y(self) -> np.ndarray:
        return self.array[:, 1]

    @classmethod
    def empty(cls) -> Pairs:
        return cls(np.empty((0, 2), dtype=np.int64))

    @classmethod
    def by_row(cls, n: int) -> Pairs:
        """Row i of x is row i of y."""
        return cls(np.repeat(np.arange(n, dtype=np.int64)[:, None], 2, 1))

    def take(self, rows: np.ndarray) -> Pairs:
        return Pairs(self.array[rows], unique=self.unique)

    def without(self, other: Pairs) -> Pairs:
        """The pairs that share neither row with ``other``."""
        keep = ~(np.isin(self.x, other.x) | np.isin(self.y, other.y))
        return self.take(keep)

    def partner(self, n: int) -> np.ndarray:
        """int64 (n,): the y row of each x row, -1 where there is none."""
        out = np.full(n, -1, dtype=np.int64)
        out[self.x] = self.y
        return out

    def flip(self) -> Pairs:
        return Pairs(self.array[:, ::-1], unique=self.unique)


@dataclass(frozen=True, eq=False)
class Pair:
    """Two spaces and, if known, which rows correspond. ``truth`` is for evaluation; no method ever sees it."""

    x: Space
    y: Space
    truth: Pairs | None = None


@dataclass(frozen=True, eq=False)
class Spaces:
    """Any number of spaces, and the items that all of them have.

    Attributes
    ----------
    spaces : two or more.
    rows : int64 (k, E): the row that holds item i in each space; unique in each column. None where it is not known.
    some : int64 (l, E): as ``rows``, of items that two or more spaces are known to have, but not all: -1 in the others.
    """

    spaces: tuple[Space, ...]
    rows: np.ndarray | None = None
    some: np.ndarray | None = None

    def __post_init__(self):
        count = len(self.spaces)
        if count < 2:
            raise InputError(f"{count} space is given; give two or more.")
        tables = {"rows": self.rows, "some": self.some}
        tables = {k: np.array(v, dtype=np.int64).reshape(-1, count) for k, v in tables.items() if v is not None}
        for i, space in enumerate(self.spaces):
            held = [v[:, i] if name == "rows" else v[v[:, i] != -1, i] for name, v in tables.items()]
            column = np.concatenate([np.empty(0, dtype=np.int64), *held])
            Pairs(np.stack([column, column], 1))  # refuses a row that stands for two items
            if len(column) and not 0 <= column.min() <= column.max() < len(space):
                raise InputError(
                    f"{space.title}: row {column.max()} is asked for, and there are {len(space)}; check the pairs."
                )
        for name, table in tables.items():
            table.flags.writeable = False
            object.__setattr__(self, name, table)

    def __len__(self) -> int:
        return len(self.spaces)

    @cached_property
    def items_digest(self) -> str:
        """SHA-256 (hex) of which rows are known to be the same items."""
        h = hashlib.sha256(b"unknown" if self.rows is None else repr(self.rows.shape).encode() + self.rows.tobytes())
        if self.some is not None and len(self.some):
            h.update(b"\x1e" + repr(self.some.shape).encode() + self.some.tobytes())
        return h.hexdigest()

    @classmethod
    def join(cls, spaces: Sequence[Space], pairs: Sequence[Pairs | None]) -> Spaces:
        """Spaces whose first is paired with each of the others; the items kept are those that all have.

        Parameters
        ----------
        pairs : for each space but the first, rows of the first with its own; one None and no item of all is known.
        """
        n = len(spaces[0])
        partners = [np.full(n, -1, dtype=np.int64) if p is None else p.partner(n) for p in pairs]
        rows = np.stack([np.arange(n), *partners], 1)
        held = (rows >= 0).sum(1)
        some = rows[(held >= 2) & (held < len(spaces))]
        return cls(tuple(spaces), None if any(p is None for p in pairs) else rows[held == len(spaces)], some)

    def pairs(self, first: int, second: int) -> Pairs | None:
        """The common items as pairs of two of the spaces."""
        return None if self.rows is None else Pairs(self.rows[:, [first, second]])
