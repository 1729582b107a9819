"""Sparse matrices of ``scipy.sparse.save_npz``, made dense where that fits in memory.

The arrays are read as those of any ``.npz``, every index is found inside the matrix, and scipy puts them together.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from relcore import memory
from relcore.errors import InputError
from relcore.formats import npz
from relcore.formats.base import MAX_DECODED, ArrayInfo, Peek, Raw, Request, check_two_dimensional, need
from relcore.formats.named import check_numbers, dtype_name
from relcore.formats.sniff import ZIP_ERRORS

if TYPE_CHECKING:
    import scipy.sparse

NAME = "sparse"
ENDINGS = (".npz",)
BLOCK = 2**22  # numbers made dense at a time
_COMPRESSED = ("data", "indices", "indptr")
_PARTS = {
    **dict.fromkeys(("csr", "csc", "bsr"), _COMPRESSED),
    "coo": ("data", "row", "col"),
    "dia": ("data", "offsets"),
}


def recognises(path: Path, head: bytes) -> bool:
    """By the members: ``format``, ``shape`` and the parts of one of the layouts."""
    if not head.startswith(b"PK\x03\x04"):
        return False
    try:
        with zipfile.ZipFile(path) as z:
            names = {m.removesuffix(".npy") for m in z.namelist()}
    except ZIP_ERRORS:
        return False
    return {"format", "shape"} <= names and any(names >= set(parts) for parts in _PARTS.values())


def _layout(a: npz._Archive) -> tuple[str, tuple[int, int]]:
    """The name of the layout and the shape of the matrix, from the two small arrays that hold them."""
    what = a.path.name
    for name in ("format", "shape"):
        a.check(name)
        if a.headers[name].nbytes > 64:
            raise InputError(f"{what}: {name!r} is too long for that of a sparse matrix; write the file again.")
    form = a.array("format").ravel()[:1].tolist()
    form = form[0] if form else ""
    form = form.decode("ascii", "replace") if isinstance(form, bytes) else str(form)
    if form not in _PARTS:
        raise InputError(f"{what}: a sparse matrix of the unknown layout {form!r}, wanted one of {', '.join(_PARTS)}.")
    shape = a.array("shape")
    if shape.dtype.kind not in "iu" or shape.ndim != 1 or (shape < 0).any():
        raise InputError(f"{what}: the shape of the sparse matrix is damaged; write the file again.")
    check_two_dimensional(what, tuple(shape.tolist()))
    for part in _PARTS[form]:
        a.check(part)
    check_numbers(f"{what}:data", a.infos["data"].dtype)
    return form, tuple(shape.tolist())


def check_budget(what: str, shape: tuple[int, int]) -> None:
    """Raise :class:`InputError` when the dense matrix would be too large."""
    size, free = 4 * math.prod(shape), memory.available()
    if size > min(MAX_DECODED, free):
        raise InputError(
            f"{what} is a sparse matrix of {shape[0]:,} x {shape[1]:,}, {memory.as_text(size)} once dense, but at most "
            f"{memory.as_text(min(MAX_DECODED, free))} can be used; reduce its columns first, for example with "
            "sklearn.decomposition.TruncatedSVD, and save the result with np.save."
        )


def arrays(path: Path) -> list[ArrayInfo]:
    with npz.opened(path) as a:
        _, shape = _layout(a)
        return [ArrayInfo("", shape, a.infos["data"].dtype)]


def _no_key(path: Path, key: str | None) -> None:
    if key is not None:
        raise InputError(f"{path.name} holds one sparse matrix; leave out {':' + key!r}.")


def peek(request: Request) -> Peek:
    path = request.path
    _no_key(path, request.key)
    with npz.opened(path) as a:
        form, shape = _layout(a)
        check_budget(path.name, shape)
        held = sum(a.headers[part].nbytes for part in _PARTS[form])
        dtype = dtype_name(a.infos["data"].dtype)
    # other layouts than csr are turned into it, which holds their numbers twice
    count = math.prod(shape)
    return Peek(*shape, dtype, 4 * count + (held if form == "csr" else 3 * held) + 12 * min(BLOCK, count))


def read(request: Request) -> Raw:
    path = request.path
    _no_key(path, request.key)
    for role, wanted in request.roles.items():
        if wanted is not None:
            raise InputError(f"{path.name} holds one matrix and no {role} called {wanted!r}; give {role} in a file.")
    with npz.opened(path) as a:
        form, shape = _layout(a)
        check_budget(path.name, shape)
        parts = [a.array(part) for part in _PARTS[form]]
    matrix = build(path.name, form, parts, shape)
    dtype, density = str(parts[0].dtype), matrix.nnz / max(1, math.prod(shape))
    dense = to_dense(matrix, path.name, request.progress)
    return Raw(dense, dtype=dtype, assumed=[f"sparse matrix ({form}, {density:.1%} stored) made dense"])


def build(what: str, form: str, parts: list[np.ndarray], shape: tuple[int, int]) -> scipy.sparse.sparray:
    """A scipy matrix of the parts (numbers, then indices, then the ends of rows), every index checked.

    Raises
    ------
    InputError
        The parts do not make up a matrix of this shape.
    """
    sparse = need("scipy.sparse", what, "scipy")
    data, indices = parts[0], parts[1:]
    if any(i.dtype.kind not in "iu" for i in indices):
        raise InputError(f"{what}: the indices of the sparse matrix are {indices[0].dtype}, wanted whole numbers.")
    if data.dtype.itemsize < 4 and data.dtype.kind == "f":
        data = data.astype(np.float32)  # scipy has no half precision
    data = data.astype(data.dtype.newbyteorder("="), copy=False)
    damaged = InputError(f"{what}: the sparse matrix ({form}) is damaged; write or download it again.")
    if any(len(i) and not -(2**62) < int(i.min()) <= int(i.max()) < 2**62 for i in indices):
        raise damaged
    indices = [i.astype(np.int64, copy=False) for i in indices]
    if not _fits(form, data, indices, shape):
        raise damaged
    try:
        if form == "coo":
            return sparse.coo_array((data, tuple(indices)), shape=shape)
        if form == "dia":
            inside = (indices[0] > -shape[0]) & (indices[0] < shape[1])
            return sparse.dia_array((data[inside], indices[0][inside]), shape=shape)
        return getattr(sparse, f"{form}_array")((data, *indices), shape=shape)
    except (ValueError, TypeError, IndexError, OverflowError) as e:
        raise InputError(f"{what}: the sparse matrix is damaged ({e}); write or download it again.") from None


def _fits(form: str, data: np.ndarray, indices: list[np.ndarray], shape: tuple[int, int]) -> bool:
    """Whether every index points into the matrix and its arrays: scipy's own check lets a negative end pass."""
    if any(i.ndim != 1 for i in indices):
        return False
    if form == "dia":
        return data.ndim == 2 and len(data) == len(indices[0])
    if data.ndim != (3 if form == "bsr" else 1) or len(data) != len(indices[0]):
        return False
    if form == "coo":
        return all(len(i) == len(data) and _within(i, size) for i, size in zip(indices, shape, strict=True))
    across, ends = indices
    major, minor = shape[::-1] if form == "csc" else shape
    if form == "bsr":
        height, width = data.shape[1:]
        if min(height, width) < 1 or major % height or minor % width:
            return False
        major, minor = major // height, minor // width
    return (
        len(ends) == major + 1
        and ends[0] == 0
        and bool((np.diff(ends) >= 0).all())
        and ends[-1] <= len(across)
        and _within(across, minor)
    )


def _within(index: np.ndarray, size: int) -> bool:
    return not len(index) or (index.min() >= 0 and index.max() < size)


def to_dense(matrix: scipy.sparse.sparray, what: str, progress: Callable[[float], None]) -> np.ndarray:
    """float32 (n, d) in C order, some rows at a time: entries that occur twice are summed as scipy does."""
    n, d = matrix.shape
    check_budget(what, matrix.shape)
    rows = matrix.tocsr()
    out = np.empty((n, d), np.float32)
    step = max(1, BLOCK // max(1, d))
    for i in range(0, n, step):
        with np.errstate(over="ignore", invalid="ignore"):
            out[i : i + step] = rows[i : i + step].toarray()
        progress(min(1.0, (i + step) / n))
    return out


def column(path: Path, key: str | None, role: str):
    raise InputError(f"{path.name} holds a sparse matrix, no {role}; give them in another file.")
