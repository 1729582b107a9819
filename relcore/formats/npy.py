"""``.npy``: one array, header checked before any number is read (numpy.lib.format, versions 1 to 3)."""

from __future__ import annotations

import io
import math
import struct
import warnings
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from relcore.errors import InputError
from relcore.formats.base import ArrayInfo, Peek, Raw, Request, check_two_dimensional, pickle_refusal
from relcore.formats.named import check_numbers
from relcore.space import Space

NAME = "npy"
ENDINGS = (".npy",)
MAP_ABOVE = 64 * 2**20  # bytes; larger float32 arrays in C order are memory-mapped and so never held twice
BLOCK = 32 * 2**20  # bytes read at a time where numbers are converted
_MAX_HEADER = 10_000  # numpy's own limit: longer headers can crash Python's parser


class Header(NamedTuple):
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def is_canonical(self) -> bool:
        """Whether the numbers stand in the file as a space holds them: float32, in C order."""
        return self.dtype == np.dtype("<f4") and not self.fortran


def recognises(path: Path, head: bytes) -> bool:
    return head.startswith(b"\x93NUMPY")


def header(f: BinaryIO, what: str, size: int) -> Header:
    """Shape, order and dtype of the array that starts at f; afterwards f stands at its numbers.

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
        with warnings.catch_warnings():  # of Python's parser, on damaged text
            warnings.simplefilter("ignore")
            if version == (1, 0):
                shape, fortran, dtype = np.lib.format.read_array_header_1_0(f, max_header_size=_MAX_HEADER)
            elif version in ((2, 0), (3, 0)):
                source = _as_version_2(f) if version == (3, 0) else f
                shape, fortran, dtype = np.lib.format.read_array_header_2_0(source, max_header_size=_MAX_HEADER)
            else:
                raise ValueError(f"version {version[0]}.{version[1]} is not known")
        if any(type(s) is not int for s in shape):  # True passes for a number there
            raise ValueError(f"shape {shape}")
    except zipfile.BadZipFile:
        raise  # a checksum of the archive around it
    except Exception as e:  # numpy parses the header as Python text and lets the tokenizer's errors through
        why = (str(e).splitlines() or [type(e).__name__])[0][:120]
        raise InputError(f"{what}: the .npy header is damaged ({why}); write or download the file again.") from None
    if dtype.hasobject:
        raise pickle_refusal(what)
    out = Header(shape, bool(fortran), dtype)
    held = size - (f.tell() - start)
    if any(s < 0 for s in shape) or out.nbytes > held:
        raise InputError(
            f"{what}: the header says shape {shape} of {dtype}, {out.nbytes:,} bytes, but the file holds {held:,}; "
            "it is cut off or damaged, so write or download it again."
        )
    return out


def _as_version_2(f: BinaryIO) -> BinaryIO:
    """A header of version 3.0, which differs in being UTF-8, as one of version 2.0: what is not Latin-1 is escaped."""
    (length,) = struct.unpack("<I", f.read(4))
    if length > 4 * _MAX_HEADER:
        raise ValueError(f"header of {length:,} bytes")
    text = f.read(length).decode("utf-8").encode("latin-1", "backslashreplace")
    return io.BytesIO(struct.pack("<I", len(text)) + text)


def _header_of(path: Path) -> tuple[Header, int]:
    """The header and where the numbers begin."""
    with path.open("rb") as f:
        return header(f, path.name, path.stat().st_size), f.tell()


def arrays(path: Path) -> list[ArrayInfo]:
    h, _ = _header_of(path)
    return [ArrayInfo("", h.shape, h.dtype.str)]


def cost(h: Header) -> int:
    """Bytes that :func:`read_numbers` takes at its height."""
    return 4 * math.prod(h.shape) + (0 if h.is_canonical else min(h.nbytes, BLOCK))


def read_numbers(f: BinaryIO, h: Header, what: str, progress: Callable[[float], None]) -> np.ndarray:
    """The numbers at f, of an array (n, d), as float32 in C order: a block at a time, so that nothing is held twice."""
    out = np.empty(h.shape, np.float32)
    target = out.T if h.fortran else out  # as the numbers follow each other in the file
    lines, length = target.shape
    step = max(1, BLOCK // max(1, length * h.dtype.itemsize))
    stored = np.dtype(np.uint8) if h.dtype == bool else h.dtype  # a damaged bool can be any byte
    buffer = None if h.is_canonical else np.empty((min(step, lines), length), stored)
    for i in range(0, lines, step):
        block = target[i : i + step] if buffer is None else buffer[: lines - i]
        _fill(f, memoryview(block.view(np.uint8)).cast("B") if block.size else memoryview(b""), what)
        if buffer is not None:
            with np.errstate(over="ignore", invalid="ignore"):  # beyond float32 is infinite, and then set aside
                target[i : i + step] = block != 0 if h.dtype == bool else block
        progress(min(1.0, (i + step) / lines))
    return out


def _fill(f: BinaryIO, buffer: memoryview, what: str) -> None:
    at = 0
    while at < len(buffer):
        count = f.readinto(buffer[at:])
        if not count:
            raise InputError(f"{what} is cut off: {len(buffer) - at:,} bytes are missing; write or download it again.")
        at += count


def peek(request: Request) -> Peek:
    path = request.path
    _no_key(path, request.key)
    h, start = _header_of(path)
    _check(path, h)
    head = np.load(path, mmap_mode="r", allow_pickle=False, max_header_size=_MAX_HEADER)[:5]
    return Peek(*h.shape, str(h.dtype), 0 if _mapped(h, start) else cost(h), head=np.array(head))


def _check(path: Path, h: Header) -> None:
    check_numbers(path.name, h.dtype.str)
    check_two_dimensional(path.name, h.shape)


def _mapped(h: Header, start: int) -> bool:
    return h.is_canonical and h.nbytes > MAP_ABOVE and start % 4 == 0


def _no_key(path: Path, key: str | None) -> None:
    if key is not None:
        raise InputError(f"{path.name} is a .npy file with one array without a name; leave out {':' + key!r}.")


def read(request: Request) -> Raw:
    path, key, roles = request.path, request.key, request.roles
    for role, wanted in roles.items():
        if wanted is not None:
            raise InputError(f"{path.name} holds one array and no {role} called {wanted!r}; give {role} in a file.")
    _no_key(path, key)
    h, start = _header_of(path)
    _check(path, h)
    if _mapped(h, start):
        vectors = np.memmap(path, h.dtype, "r", offset=start, shape=h.shape)
    else:
        with path.open("rb") as f:
            f.seek(start)
            vectors = read_numbers(f, h, path.name, request.progress)
    extra = path.stat().st_size - start - h.nbytes
    warned = [f"{extra:,} bytes after the array are not used"] if extra else []
    return Raw(vectors, warned=warned, dtype=str(h.dtype))


def column(path: Path, key: str | None, role: str) -> Sequence:
    """One value a row, from a one-dimensional array (also n x 1)."""
    _no_key(path, key)
    _header_of(path)
    with path.open("rb") as f:
        values = np.lib.format.read_array(f, allow_pickle=False, max_header_size=_MAX_HEADER)
    return as_column(path.name, values)


def as_column(what: str, values: np.ndarray) -> Sequence:
    """The values of an array (n,) or (n, 1); texts as a list.

    Raises
    ------
    InputError
        Another shape, or records.
    """
    values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if values.ndim != 1 or values.dtype.names:
        found = f"shape {values.shape}" if values.ndim != 1 else f"records of {', '.join(values.dtype.names)}"
        raise InputError(f"{what}: the array has {found}, wanted one value a row; choose another array.")
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    if values.dtype.kind != "U":
        return values
    try:
        return values.tolist()
    except (SystemError, ValueError):  # numbers that stand for no character
        raise InputError(f"{what}: the texts are damaged; write or download the file again.") from None


def write(path: Path, space: Space) -> list[str]:
    with path.open("wb") as f:  # given a path, numpy appends .npy to .NPY
        np.save(f, space.vectors, allow_pickle=False)
    named = any(name != str(i) for i, name in enumerate(space.names))
    held = {"names": named, "labels": space.labels is not None, "media": space.media is not None}
    held["metadata"] = space.meta is not None
    return [f"{what} not kept: .npy holds one array of numbers" for what, there in held.items() if there]
