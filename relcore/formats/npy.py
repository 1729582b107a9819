"""``.npy``: one array, header checked before any number is read (numpy.lib.format, versions 1 and 2)."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import BinaryIO

import numpy as np

from relcore.errors import InputError
from relcore.formats.base import ArrayInfo, Peek, Raw, Request, check_two_dimensional, pickle_refusal

NAME = "npy"
ENDINGS = (".npy",)
MAP_ABOVE = 64 * 2**20  # bytes; larger files are memory-mapped, so that only one pass over them is held
_MAX_HEADER = 10_000  # numpy's own limit: longer headers can crash Python's parser


def recognises(path: Path, head: bytes) -> bool:
    return head.startswith(b"\x93NUMPY")


def header(f: BinaryIO, what: str, size: int) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype of the array that starts at f; afterwards f stands at its numbers.

    Parameters
    ----------
    size : bytes from the start of the header to the end of the array's file.

    Raises
    ------
    InputError
        Not a header, Python objects, or more numbers claimed than there are bytes.
    """
    start = f.tell()
    try:
        version = np.lib.format.read_magic(f)
        reader = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, _, dtype = reader(f, max_header_size=_MAX_HEADER)
    except zipfile.BadZipFile:
        raise  # a checksum of the archive around it
    except Exception as e:  # numpy parses the header as Python text and lets the tokenizer's errors through
        why = (str(e).splitlines() or [type(e).__name__])[0][:120]
        raise InputError(f"{what}: the .npy header is damaged ({why}); write or download the file again.") from None
    if dtype.hasobject:
        raise pickle_refusal(what)
    claimed, held = math.prod(shape) * dtype.itemsize, size - (f.tell() - start)
    if any(s < 0 for s in shape) or claimed > held:
        raise InputError(
            f"{what}: the header says shape {shape} of {dtype}, {claimed:,} bytes, but the file holds {held:,}; "
            "it is cut off or damaged, so write or download it again."
        )
    return shape, dtype


def arrays(path: Path) -> list[ArrayInfo]:
    with path.open("rb") as f:
        shape, dtype = header(f, path.name, path.stat().st_size)
    return [ArrayInfo("", shape, dtype.str)]


def canonical_bytes(shape: tuple[int, ...], dtype: np.dtype) -> int:
    """Bytes of a float32 copy in C order; 0 where the array is such already."""
    return 0 if dtype == np.dtype("<f4") else 4 * math.prod(shape)


def peek(request: Request) -> Peek:
    path = request.path
    _no_key(path, request.key)
    with path.open("rb") as f:
        shape, dtype = header(f, path.name, path.stat().st_size)
    check_two_dimensional(path.name, shape)
    size = math.prod(shape) * dtype.itemsize
    memory = canonical_bytes(shape, dtype) + (size if path.stat().st_size <= MAP_ABOVE else 0)
    head = np.load(path, mmap_mode="r", allow_pickle=False, max_header_size=_MAX_HEADER)[:5]
    return Peek(shape[0], shape[1], str(dtype), memory, head=np.array(head))


def _array(path: Path) -> np.ndarray:
    size = path.stat().st_size
    with path.open("rb") as f:
        header(f, path.name, size)
        f.seek(0)
        if size <= MAP_ABOVE:
            return np.lib.format.read_array(f, allow_pickle=False, max_header_size=_MAX_HEADER)
    return np.load(path, mmap_mode="r", allow_pickle=False, max_header_size=_MAX_HEADER)


def _no_key(path: Path, key: str | None) -> None:
    if key is not None:
        raise InputError(f"{path.name} is a .npy file with one array without a name; leave out {':' + key!r}.")


def read(request: Request) -> Raw:
    path, key, roles = request.path, request.key, request.roles
    for role, wanted in roles.items():
        if wanted is not None:
            raise InputError(f"{path.name} holds one array and no {role} called {wanted!r}; give {role} in a file.")
    _no_key(path, key)
    check_two_dimensional(path.name, arrays(path)[0].shape)
    vectors = _array(path)
    extra = path.stat().st_size - vectors.nbytes - _data_offset(path)
    return Raw(vectors, warned=[f"{extra:,} bytes after the array are not used"] if extra else [])


def _data_offset(path: Path) -> int:
    with path.open("rb") as f:
        header(f, path.name, path.stat().st_size)
        return f.tell()


def column(path: Path, key: str | None, role: str) -> np.ndarray:
    """One value a row, from a one-dimensional array (also n x 1)."""
    _no_key(path, key)
    return as_column(path.name, _array(path))


def as_column(what: str, values: np.ndarray) -> np.ndarray:
    values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if values.ndim != 1:
        raise InputError(f"{what}: the array has shape {values.shape}, wanted one value a row; choose another array.")
    return np.char.decode(values, "utf-8", "replace") if values.dtype.kind == "S" else values
