"""A linear classifier from a file: its weights, its offsets and, where the file has them, the names of its classes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from relcore import store
from relcore.errors import InputError
from relcore.formats.base import ArrayInfo, Request, is_number
from relcore.formats.registry import reader, split_spec
from relcore.space import as_text

WEIGHTS = ("w", "weight", "weights", "coef_", "coef")
OFFSETS = ("b", "bias", "intercept_", "intercept")
CLASSES = ("classes", "classes_", "labels")


@dataclass(frozen=True, eq=False)
class LinearHead:
    """``rows @ weights.T + offsets``, the greatest of which is the class.

    Attributes
    ----------
    weights : float64 (C, d), C at least 2. offsets : float64 (C,).
    classes : names of the classes, or None where the file has none.
    source : the file, for messages.
    """

    weights: np.ndarray
    offsets: np.ndarray
    classes: tuple[str, ...] | None
    source: str

    @property
    def dim(self) -> int:
        return self.weights.shape[1]

    def named(self, labels: list[str]) -> LinearHead:
        """With classes: its own, or where it has none the labels of the data, in their order.

        Raises
        ------
        InputError
            It has no names and another number of classes than there are labels.
        """
        if self.classes is not None:
            return self
        if len(labels) != len(self.weights):
            raise InputError(
                f"{self.source} has {len(self.weights)} classes without names and the data have {len(labels)} labels; "
                "add an array 'classes' with the names, in the order of the weights."
            )
        return LinearHead(self.weights, self.offsets, tuple(labels), self.source)

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """Names of classes (n,) of rows (n, d)."""
        found = (np.asarray(rows, dtype=np.float64) @ self.weights.T + self.offsets).argmax(1)
        return np.array(self.classes, dtype=object)[found].astype(str)


def read_linear_head(path: str | Path) -> LinearHead:
    """Read a head from .npz, .pt or .safetensors: ``W`` (C, d) or (d, C), ``b`` (C,), perhaps ``classes``; from .npy W.

    Names as torch and scikit-learn give them are known too. One row of weights tells two classes apart by its sign.

    Raises
    ------
    InputError
        No weights, weights and offsets that do not belong together, several that could be either, numbers that are
        NaN or infinite.
    """
    path, _ = split_spec(path)
    form = reader(path)
    infos = form.arrays(path)
    tables = [i for i in infos if len(i.shape) == 2 and is_number(i.dtype)]
    weights = _named(tables, WEIGHTS, path) or (tables[0] if len(tables) == 1 else None)
    if weights is None:
        held = ", ".join(map(str, infos)) or "no arrays"
        raise InputError(
            f"{path.name} holds {held}; wanted one table of weights W (classes, dimensions), its offsets b, and "
            "perhaps classes."
        )
    w = np.asarray(form.read(Request(path, weights.name or None)).vectors, dtype=np.float64)
    offsets, names = (_named([i for i in infos if i is not weights], words, path) for words in (OFFSETS, CLASSES))
    for what, info in (("offsets", offsets), ("classes", names)):
        if info is not None and (len(info.shape) != 1 or what == "offsets" and not is_number(info.dtype)):
            raise InputError(
                f"{path.name}: {info} is no list of {what}; wanted one dimension, a number or name a class."
            )
    b = None if offsets is None else np.array(form.column(path, offsets.name, "labels"), dtype=np.float64).reshape(-1)
    given = None if names is None else form.column(path, names.name, "labels")
    classes = None if given is None else tuple(as_text(given, len(given), "classes"))  # 1.0 is 1, as in labels
    known = len(b) if b is not None else len(classes) if classes is not None else None
    two = 1 in w.shape and (len(b) == 1 if b is not None else classes is None or len(classes) == 2)
    if two:  # scikit-learn's form for two classes
        w = w.reshape(1, -1)
        w, b = np.concatenate([-w, w]), None if b is None else np.concatenate([-b, b])
    elif known not in (None, len(w)) and known == w.shape[1]:
        w = w.T
    b = np.zeros(len(w)) if b is None else b
    for what, got in (("offsets", len(b)), ("classes", len(w) if classes is None else len(classes))):
        if got != len(w):
            raise InputError(f"{path.name}: {got} {what} for weights of shape {w.shape}; wanted {len(w)}.")
    if not (np.isfinite(w).all() and np.isfinite(b).all()):
        raise InputError(f"{path.name}: the head holds NaN or infinite numbers; save it again from a sound model.")
    if classes is not None and len(set(classes)) < len(classes):
        raise InputError(f"{path.name}: two classes have one name; give each its own.")
    return LinearHead(w, b, classes, path.name)


def put_head(head: LinearHead) -> str:
    """Keep a head in the store, under the digest that is returned."""
    record = {"source": head.source, "classes": None if head.classes is None else list(head.classes)}
    h = hashlib.sha256(json.dumps(record).encode())
    for array in (head.weights, head.offsets):
        h.update(repr(array.shape).encode() + np.ascontiguousarray(array).tobytes())
    folder = _kept(h.hexdigest()[:32])
    folder.mkdir(parents=True, exist_ok=True)
    store.write_npy(folder / "weights.npy", head.weights)
    store.write_npy(folder / "offsets.npy", head.offsets)
    store.write_json(folder / "head.json", record)
    return folder.name


def get_head(digest: str) -> LinearHead:
    """
    Raises
    ------
    InputError
        It is not in the store.
    """
    folder = _kept(digest)
    try:
        record = json.loads((folder / "head.json").read_text(encoding="utf-8"))
        w, b = (np.load(folder / f"{name}.npy", allow_pickle=False) for name in ("weights", "offsets"))
        classes = None if record["classes"] is None else tuple(record["classes"])
        return LinearHead(w, b, classes, record["source"])
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise InputError(f"the head {digest[:12]} is not kept here ({e}); give its file again.") from None


def _kept(digest: str) -> Path:
    return store.home() / "heads" / digest


def _named(infos: list[ArrayInfo], words: tuple[str, ...], path: Path) -> ArrayInfo | None:
    """The array whose name, or the end of it after a dot, is one of the words.

    Raises
    ------
    InputError
        Several are: which belongs to which cannot be told.
    """
    found = [i for i in infos if i.name.rsplit(".", 1)[-1].lower() in words]
    if len(found) > 1:
        raise InputError(
            f"{path.name} holds {', '.join(map(str, found))}; a linear head has one of these. Save the last layer "
            "alone."
        )
    return found[0] if found else None
