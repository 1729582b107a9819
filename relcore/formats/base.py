"""What a reader hands to the frame, and the words by which columns are recognised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from relcore.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

MAX_DECODED = 4 * 2**30  # bytes one array may take once decompressed
ROLES = ("names", "labels", "media")

# in order of preference, when several are present
NAME_WORDS = (
    *("name", "names", "word", "words", "token", "tokens", "text", "texts"),
    *("title", "titles", "sentence", "sentences", "item", "items"),
)
LABEL_WORDS = ("label", "labels", "class", "classes", "category", "categories", "intent", "target")
MEDIA_WORDS = ("media",)
ID_WORDS = ("id", "ids", "index", "row", "key")  # numbers that count rows; never part of a vector
ROLE_WORDS = {"names": NAME_WORDS, "labels": LABEL_WORDS, "media": MEDIA_WORDS}
VECTOR_WORDS = ("vectors", "embeddings", "vector", "embedding", "features", "latents")


@dataclass
class Raw:
    """Rows as a file holds them, before validation.

    ``vectors`` is any numeric array; the per-row columns have one value a row or are None. ``assumed`` says what the
    reader had to decide, ``warned`` what may be wrong. ``dtype`` names how numbers are stored, if not as an array.
    """

    vectors: np.ndarray
    names: Sequence | None = None
    labels: Sequence | None = None
    media: Sequence | None = None
    meta: pd.DataFrame | None = None
    assumed: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)
    dtype: str | None = None


class ArrayInfo(NamedTuple):
    """An array inside a file, seen without reading it."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def is_vectors(self) -> bool:
        """Two dimensions of numbers."""
        return len(self.shape) == 2 and np.dtype(self.dtype).kind in "fiub"

    def __str__(self) -> str:
        return f"{self.name} {self.shape}"


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
    """A list for a message: the first few, and how many more."""
    more = len(names) - most
    return ", ".join(map(str, names[:most])) + (f" and {more:,} more" if more > 0 else "")


def display(path: Path, key: str | None = None) -> str:
    return f"{path.name}:{key}" if key else path.name
