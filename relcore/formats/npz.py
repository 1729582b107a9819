"""``.npz``: several named arrays in a zip file. The directory and headers are checked before anything is unpacked.

Texts are written as numpy's unicode arrays, which any script reads. Where these would lose something (they drop NULs at
the end) or grow large (every text takes the room of the longest), the texts of NAME are two arrays: ``NAME:utf8``, all
bytes in a row, and ``NAME:ends``, where each text ends.
"""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from relcore.errors import InputError
from relcore.formats import named, npy
from relcore.formats.base import MAX_DECODED, ArrayInfo, Peek, PickledError, Raw, Request, display, shown
from relcore.formats.sniff import ZIP_ERRORS, zip_members
from relcore.space import Space

NAME = "npz"
ENDINGS = (".npz",)
MAX_MEMBERS = 4096
SMALL = 64 * 2**20  # bytes; up to here any compression ratio is harmless
MAX_RATIO = 200
UTF8, ENDS = ":utf8", ":ends"


def recognises(path: Path, head: bytes) -> bool:
    return head.startswith(b"PK\x03\x04") and any(m.endswith(".npy") for m in zip_members(path))


class _Archive(named.Named):
    """An open .npz whose directory has been checked."""

    def __init__(self, path: Path, z: zipfile.ZipFile):
        super().__init__(path)
        self.zip = z
        members = z.infolist()
        check_members(path, members)
        self.members = {m.filename[:-4]: m for m in members if m.filename.endswith(".npy")}
        self.headers: dict[str, npy.Header] = {}
        self.objects = set()
        for name, m in self.members.items():
            try:
                with z.open(m) as f:
                    h = npy.header(f, display(path, name), m.file_size)
            except PickledError:
                self.objects.add(name)  # refused only if it is asked for
                continue
            self.headers[name] = h
            self.infos[name] = ArrayInfo(name, h.shape, h.dtype.str)
        for name in [n.removesuffix(UTF8) for n in self.infos if n.endswith(UTF8)]:
            if name + ENDS in self.infos and name not in self.infos:
                self._join(name)
        ignored = [m.filename for m in members if not m.filename.endswith(".npy")]
        if ignored:
            self.warned.append(f"{len(ignored)} members that are no arrays are not read: {shown(ignored)}")

    def _join(self, name: str) -> None:
        """Show the two arrays of a list of texts as one."""
        data, ends = self.headers[name + UTF8], self.headers[name + ENDS]
        if data.dtype == np.uint8 and ends.dtype == np.int64 and len(data.shape) == len(ends.shape) == 1:
            order = list(self.infos)
            self.infos[name] = ArrayInfo(name, ends.shape, "str")
            order[order.index(name + UTF8)] = name
            order.remove(name + ENDS)
            self.infos = {n: self.infos[n] for n in order}

    def _check_size(self, name: str) -> None:
        what, m, size = display(self.path, name), self.members[name], self.headers[name].nbytes
        if m.compress_type != zipfile.ZIP_STORED and size > MAX_DECODED:
            raise InputError(
                f"{what} takes {size / 2**30:.1f} GiB unpacked, at most {MAX_DECODED / 2**30:.0f} GiB are read from a "
                "compressed file; save it uncompressed with np.savez, or alone as .npy, which is read in place."
            )
        if m.file_size > SMALL and m.file_size > MAX_RATIO * max(m.compress_size, 1):
            raise InputError(
                f"{what} unpacks to {m.file_size / max(m.compress_size, 1):.0f} times its size, which looks like a zip "
                "bomb; if it is yours, save it uncompressed with np.savez."
            )

    def cost(self, name: str) -> int:
        return npy.cost(self.headers[name])

    def vectors(self, name: str, progress: Callable[[float], None]) -> np.ndarray:
        self._check_size(name)
        what = display(self.path, name)
        with self.zip.open(self.members[name]) as f:
            out = npy.read_numbers(f, npy.header(f, what, self.members[name].file_size), what, progress)
            _to_the_end(f)
        return out

    def values(self, name: str) -> Sequence:
        if name + UTF8 in self.members and self.infos[name].dtype == "str":
            return self._texts(name)
        return npy.as_column(display(self.path, name), self.array(name))

    def array(self, name: str) -> np.ndarray:
        self._check_size(name)
        with self.zip.open(self.members[name]) as f:
            out = np.lib.format.read_array(f, allow_pickle=False, max_header_size=npy._MAX_HEADER)
            _to_the_end(f)
        return out

    def _texts(self, name: str) -> list[str]:
        data, ends = self.array(name + UTF8).tobytes(), self.array(name + ENDS)
        steps = np.diff(ends, prepend=0)
        if (steps < 0).any() or (len(ends) and ends[-1] != len(data)):
            raise InputError(f"{display(self.path, name)}: the ends of the texts are damaged; write the file again.")
        starts = [0, *ends.tolist()]
        return [data[a:b].decode("utf-8", "surrogatepass") for a, b in zip(starts, ends.tolist(), strict=False)]


def check_members(path: Path, members: list[zipfile.ZipInfo], most: int = MAX_MEMBERS) -> None:
    """Raise :class:`InputError` for a zip directory that no array library writes."""
    if len(members) > most:
        raise InputError(f"{path.name} holds {len(members):,} members, at most {most:,} are read; split it.")
    if any(m.flag_bits & 1 for m in members):
        raise InputError(f"{path.name} is encrypted; write it again without a password.")
    name, count = Counter(m.filename for m in members).most_common(1)[0]
    if count > 1:
        raise InputError(f"{path.name} holds {count} members called {name!r}, wanted one; write it again.")
    odd = next((m for m in members if m.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)), None)
    if odd is not None:
        raise InputError(
            f"{path.name}: {odd.filename!r} is compressed by method {odd.compress_type}, wanted stored (0) or "
            "deflated (8); write it with np.savez or np.savez_compressed."
        )


def _to_the_end(f) -> None:
    """Read what follows the array, for the checksum of a member is looked at there."""
    while f.read(2**20):
        pass


@contextmanager
def opened(path: Path) -> Iterator[_Archive]:
    try:
        with zipfile.ZipFile(path) as z:
            yield _Archive(path, z)
    except InputError:
        raise
    except ZIP_ERRORS as e:
        raise InputError(f"{path.name} is damaged ({e}); write or download it again.") from None


def arrays(path: Path) -> list[ArrayInfo]:
    """All plain arrays of the file, in its order."""
    with opened(path) as a:
        return list(a.infos.values())


def peek(request: Request) -> Peek:
    with opened(request.path) as a:
        return named.peek(a, request)


def read(request: Request) -> Raw:
    with opened(request.path) as a:
        return named.read(a, request)


def column(path: Path, key: str | None, role: str) -> Sequence:
    """One value a row: the named array, or the only one that can be meant."""
    with opened(path) as a:
        return a.column(key, role)


def write(path: Path, space: Space) -> list[str]:
    beside, notes = named.columns_to_write(space, kinds="fiubmM")
    out = {"vectors": space.vectors}
    for name, values in beside.items():
        if "\0" in name:
            raise InputError(f"{path.name} cannot hold a column called {name!r}; rename it.")
        out |= _text_arrays(name, values) if isinstance(values, list) else {name: values}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        for name, array in out.items():
            with z.open(name + ".npy", "w", force_zip64=True) as f:
                np.lib.format.write_array(f, array, allow_pickle=False)
    return notes


def _text_arrays(name: str, texts: list[str]) -> dict[str, np.ndarray]:
    """Texts as one unicode array, or as two where that would lose something or grow large."""
    longest, total = max(map(len, texts)), sum(map(len, texts))
    if longest * len(texts) <= 16 * total + 2**18 and not any(t.endswith("\0") for t in texts):
        return {name: np.array(texts, dtype=f"<U{max(longest, 1)}")}
    packed = [t.encode("utf-8", "surrogatepass") for t in texts]
    ends = np.cumsum([len(p) for p in packed], dtype=np.int64)
    return {name + UTF8: np.frombuffer(b"".join(packed), np.uint8), name + ENDS: ends}
