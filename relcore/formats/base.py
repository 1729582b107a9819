"""What a reader hands to the frame, and the words by which columns are recognised."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from relcore.errors import InputError
from relcore.space import Refused

if TYPE_CHECKING:
    import pandas as pd

MAX_DECODED = 4 * 2**30  # bytes one array may take once decompressed
ROLES = ("names", "labels", "media")
# what a column of a table can be; the first three of the second line are what a space calls names, labels and media
COLUMN_ROLES = ("vector", "name", "label", "media", "id", "meta", "ignore")
ROLE_OF_COLUMN = {"name": "names", "label": "labels", "media": "media"}

# in order of preference, when several are present
NAME_WORDS = (
    *("name", "names", "word", "words", "token", "tokens", "text", "texts"),
    *("title", "titles", "sentence", "sentences", "item", "items"),
)
LABEL_WORDS = ("label", "labels", "class", "classes", "category", "categories", "intent", "target")
MEDIA_WORDS = ("media", "thumbnail", "thumbnails", "image", "images", "img", "picture", "image_path")
ID_WORDS = ("id", "ids", "index", "row", "key")  # numbers that count rows; never part of a vector
ROLE_WORDS = {"names": NAME_WORDS, "labels": LABEL_WORDS, "media": MEDIA_WORDS}
VECTOR_WORDS = ("vectors", "embeddings", "vector", "embedding", "features", "latents")


def _silent(share: float) -> None:
    pass


@dataclass(frozen=True)
class Request:
    """What is asked of a reader.

    Attributes
    ----------
    key : the array inside the file that holds the vectors, or None where the reader is to find it.
    roles : for names, labels and media, the array or column chosen, or None where they come from elsewhere; a role
        that is not in it the reader may find itself.
    columns : for single columns of a table, the role (of :data:`COLUMN_ROLES`, without name, label and media, which
        are in ``roles``) that overrides what the reader would assume; columns not in it keep what is assumed.
    progress : called with the share (0 to 1) of the file that is read, at least every second or so.
    """

    path: Path
    key: str | None = None
    roles: Mapping[str, str | None] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    progress: Callable[[float], None] = _silent


@dataclass
class Raw:
    """Rows as a file holds them, before validation.

    ``vectors`` is any numeric array; the per-row columns have one value a row or are None. ``aside`` gives rows that
    the reader itself cannot use, with the reason; their numbers do not matter. ``assumed`` says what the reader had to
    decide, ``warned`` what may be wrong. ``dtype`` names how numbers are stored, if not as an array.
    """

    vectors: np.ndarray
    names: Sequence | None = None
    labels: Sequence | None = None
    media: Sequence | None = None
    meta: pd.DataFrame | None = None
    aside: dict[int, str] = field(default_factory=dict)
    assumed: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    dtype: str | None = None


def is_number(dtype: str) -> bool:
    """Whether a dtype is of real numbers; torch and safetensors have some that numpy does not know."""
    if dtype.startswith(("bfloat16", "float8_", "qint", "quint")):
        return True
    try:
        return np.dtype(dtype).kind in "fiub"
    except TypeError:
        return False


class ArrayInfo(NamedTuple):
    """An array inside a file, seen without reading it."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def is_vectors(self) -> bool:
        """Two dimensions of numbers."""
        return len(self.shape) == 2 and is_number(self.dtype)

    def __str__(self) -> str:
        return f"{self.name} {self.shape}"


class ColumnInfo(NamedTuple):
    """A column of a table: what it is called, what it holds, what it is taken for, and its first few cells.

    ``kind`` is one of ``number, text, vector, image``; ``role`` one of :data:`COLUMN_ROLES`.
    """

    name: str
    kind: str
    role: str
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Peek:
    """What a file holds, told from its headers and first rows, before it is read.

    Attributes
    ----------
    rows, dim : None where only reading can tell.
    dtype : how numbers are stored, as in the load report.
    memory : bytes that reading takes at its height beside the file itself, estimated from above; None if not known.
    columns : of a table; empty for arrays.
    head : (k, dim) numbers of the first few rows, or None.
    """

    rows: int | None
    dim: int | None
    dtype: str
    memory: int | None = None
    columns: tuple[ColumnInfo, ...] = ()
    head: np.ndarray | None = None
    assumed: tuple[str, ...] = ()
    warned: tuple[str, ...] = ()


class AmbiguousError(InputError):
    """A file holds several arrays of vectors and none was chosen. ``arrays`` are all its arrays."""

    def __init__(self, message: str, arrays: list[ArrayInfo]):
        super().__init__(message)
        self.arrays = arrays


class PickledError(InputError):
    """A file holds Python objects."""


def pickle_refusal(what: str) -> PickledError:
    """The refusal of a file that holds Python objects, with the recipe that makes a plain one of it."""
    return PickledError(
        f"{what} stores Python objects, which can run code when opened, so it is not read. "
        "Re-save it as a plain array, with every row of the same length:\n"
        "    import numpy as np\n"
        "    np.save('vectors.npy', np.stack([np.asarray(row, dtype=np.float32) for row in rows]))"
    )


def need(module: str, what: str, pip: str | None = None) -> ModuleType:
    """Import the library that reads a format.

    Raises
    ------
    InputError
        It is not installed: which ``pip install`` brings it.
    """
    try:
        return import_module(module)
    except ImportError as e:
        raise InputError(
            f"{what} is read with {module.split('.')[0]}, which is not installed ({e}); "
            f"run pip install {pip or module}."
        ) from None


def check_two_dimensional(what: str, shape: tuple[int, ...]) -> None:
    """Raise :class:`InputError` unless the shape is that of rows of vectors."""
    if len(shape) != 2:
        raise InputError(
            f"{what}: the array has shape {shape}, wanted two dimensions (rows, numbers of a vector); "
            "reshape it, for example with a.reshape(len(a), -1), and save it again."
        )


def by_role_word(role: str, candidates: Sequence[str]) -> str | None:
    """The candidate whose (case-folded) name is the best-liked word of a role, or None."""
    words = ROLE_WORDS[role]
    hits = [c for c in candidates if c.strip().lower() in words]
    return min(hits, key=lambda c: words.index(c.strip().lower()), default=None)


def shown(names: Sequence[str], most: int = 8) -> str:
    """A list for a message: the first few, the long ones cut, and how many more."""
    more = len(names) - most
    return ", ".join(brief(str(n)) for n in names[:most]) + (f" and {more:,} more" if more > 0 else "")


def brief(text: str, most: int = 100) -> str:
    """A name from a file as a message shows it: in one line, without control characters, cut where it is long."""
    text = text if len(text) <= most else text[: most - 1] + "\u2026"
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def display(path: Path, key: str | None = None) -> str:
    return f"{path.name}:{key}" if key else path.name
