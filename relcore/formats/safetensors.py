"""``.safetensors``: named tensors behind a header in JSON. The library checks the file, numpy maps its numbers.

The format holds numbers only. Names, labels and media are written as JSON lists under ``names``, ``labels`` and
``media`` of ``__metadata__``, texts of other columns under ``meta/COLUMN``; a file of another writer that has such
lists is read the same way. Anything else in ``__metadata__`` is left alone.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from relcore.errors import InputError
from relcore.formats import named, npy
from relcore.formats.base import ROLES, ArrayInfo, Peek, Raw, Request, display, need, shown
from relcore.formats.named import META, Named
from relcore.space import Space

NAME = "safetensors"
ENDINGS = (".safetensors",)
BLOCK = 2**22  # numbers converted at a time
MAX_HEADER = 100_000_000  # bytes; the library's own limit
MAX_TENSORS = 100_000
# what the header calls them: how we do, and how the bytes are seen
_DTYPES = {
    "F64": ("<f8", "<f8"),
    "F32": ("<f4", "<f4"),
    "F16": ("<f2", "<f2"),
    "BF16": ("bfloat16", "<u2"),
    "F8_E4M3": ("float8_e4m3fn", "u1"),
    "F8_E5M2": ("float8_e5m2", "u1"),
    "I64": ("<i8", "<i8"),
    "I32": ("<i4", "<i4"),
    "I16": ("<i2", "<i2"),
    "I8": ("|i1", "i1"),
    "U64": ("<u8", "<u8"),
    "U32": ("<u4", "<u4"),
    "U16": ("<u2", "<u2"),
    "U8": ("|u1", "u1"),
    "BOOL": ("|b1", "u1"),
}


def recognises(path: Path, head: bytes) -> bool:
    """A length that fits the file, then JSON."""
    if len(head) < 10 or head[8:9] != b"{":
        return False
    (length,) = struct.unpack("<Q", head[:8])
    return length <= MAX_HEADER and (b'"dtype"' in head or b'"__metadata__"' in head or head[8:10] == b"{}")


def _e4m3fn() -> np.ndarray:
    """The 256 numbers of float8_e4m3fn: 1 sign, 4 exponent and 3 mantissa bits; no infinity, one NaN of each sign."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    size = np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7))
    size[code & 127 == 127] = np.nan
    return np.where(code < 128, size, -size).astype(np.float32)


def _decoded(block: np.ndarray, dtype: str) -> np.ndarray:
    """The numbers of a block as it stands in the file; float32 where numpy has no such numbers."""
    if dtype == "bfloat16":
        return (block.astype(np.uint32) << 16).view(np.float32)
    if dtype == "float8_e5m2":
        return (block.astype(np.uint16) << 8).view(np.float16).astype(np.float32)
    if dtype == "float8_e4m3fn":
        return _e4m3fn()[block]
    return block != 0 if dtype == "|b1" else block


class _File(Named):
    """An open .safetensors; ``tensors`` says where in the file each begins."""

    def __init__(self, path: Path):
        super().__init__(path)
        header = _checked_header(path)
        length = 8 + header.pop("")
        self.tensors: dict[str, tuple[int, np.dtype]] = {}
        self.texts: dict[str, list] = {}
        metadata = header.pop("__metadata__", {})
        # in the order of the file, as they were written
        for name, t in sorted(header.items(), key=lambda item: item[1]["data_offsets"][0]):
            dtype, stored = _DTYPES.get(t["dtype"], (t["dtype"], ""))
            self.infos[name] = ArrayInfo(name, tuple(t["shape"]), dtype)
            if stored:
                self.tensors[name] = length + t["data_offsets"][0], np.dtype(stored)
        for name, text in metadata.items():
            values = _list(text) if name in ROLES or name.startswith(META) else None
            if values is not None and name in self.infos:
                self.warned.append(
                    f"there are both a tensor {name!r} and such a list in __metadata__: the tensor is read"
                )
            elif values is not None:
                self.infos[name], self.texts[name] = ArrayInfo(name, (len(values),), "str"), values

    def _mapped(self, name: str) -> np.ndarray:
        info = self.infos[name]
        if name not in self.tensors:
            raise InputError(
                f"{display(self.path, name)} holds {info.dtype} numbers, wanted one of {shown(list(_DTYPES), 20)}; "
                "save it as float32."
            )
        start, stored = self.tensors[name]
        if not math.prod(info.shape):
            return np.empty(info.shape, stored)
        return np.memmap(self.path, stored, "r", offset=start, shape=info.shape)

    def _in_place(self, name: str) -> bool:
        return self.infos[name].dtype == "<f4" and self.tensors[name][0] % 4 == 0

    def cost(self, name: str) -> int:
        if name in self.tensors and self._in_place(name):
            return 0
        count = math.prod(self.infos[name].shape)
        return 4 * count + 12 * min(BLOCK, count)

    def vectors(self, name: str, progress: Callable[[float], None]) -> np.ndarray:
        source, info = self._mapped(name), self.infos[name]
        if self._in_place(name):
            return source
        n, d = info.shape
        out = np.empty((n, d), np.float32)
        step = max(1, BLOCK // max(1, d))
        for i in range(0, n, step):
            with np.errstate(over="ignore", invalid="ignore"):  # beyond float32 is infinite, and then set aside
                out[i : i + step] = _decoded(source[i : i + step], info.dtype)
            progress(min(1.0, (i + step) / n))
        return out

    def values(self, name: str) -> Sequence:
        if name in self.texts:
            return self.texts[name]
        return npy.as_column(display(self.path, name), np.array(_decoded(self._mapped(name), self.infos[name].dtype)))


def _list(text: str) -> list | None:
    """The JSON list of texts, or None if it is none."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, list) and all(isinstance(v, str) for v in values) else None


def _checked_header(path: Path) -> dict:
    """The header, found consistent with the file by the library and here; its length in bytes stands under ``""``.

    Raises
    ------
    InputError
        The file is damaged.
    """
    library = need("safetensors", path.name)
    try:
        with library.safe_open(path, framework="numpy"):  # reads and checks the header only
            pass
        with path.open("rb") as f:
            (length,) = struct.unpack("<Q", f.read(8))
            header = json.loads(f.read(length))
    except MemoryError:
        raise
    except Exception as e:  # the library has an error of its own, json and struct have others
        raise InputError(f"{path.name} is damaged ({e}); write or download it again.") from None
    tensors = {name: t for name, t in header.items() if name != "__metadata__"}
    if len(tensors) > MAX_TENSORS:
        raise InputError(f"{path.name} holds {len(tensors):,} tensors, at most {MAX_TENSORS:,} are read; split it.")
    size = path.stat().st_size - 8 - length
    for name, t in tensors.items():
        begin, end = t["data_offsets"]
        _, stored = _DTYPES.get(t["dtype"], ("", ""))
        if not 0 <= begin <= end <= size or stored and math.prod(t["shape"]) * np.dtype(stored).itemsize != end - begin:
            raise InputError(
                f"{path.name}: tensor {name!r} of shape {tuple(t['shape'])} does not fit its {end - begin:,} bytes; "
                "the file is damaged, so write or download it again."
            )
    header[""] = length
    return header


def arrays(path: Path) -> list[ArrayInfo]:
    return list(_File(path).infos.values())


def peek(request: Request) -> Peek:
    return named.peek(_File(request.path), request)


def read(request: Request) -> Raw:
    return named.read(_File(request.path), request)


def column(path: Path, key: str | None, role: str) -> Sequence:
    return _File(path).column(key, role)


def write(path: Path, space: Space) -> list[str]:
    library = need("safetensors.numpy", path.name, "safetensors")
    beside, notes = named.columns_to_write(space, kinds="fiub")
    tensors, texts = {"vectors": space.vectors}, {}
    for name, values in beside.items():
        if isinstance(values, list):
            texts[name if name in ROLES else META + name.removeprefix(META)] = json.dumps(values)
        else:
            tensors[name] = np.ascontiguousarray(values)
    size = sum(len(json.dumps(t)) for t in texts.values())
    if size > MAX_HEADER - 2**20:
        raise InputError(
            f"{path.name}: names, labels and texts take {size:,} bytes, but the header of .safetensors holds "
            f"{MAX_HEADER:,}; write .npz."
        )
    library.save_file(tensors, str(path), metadata=texts or None)
    return notes
