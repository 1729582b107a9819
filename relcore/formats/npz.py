"""``.npz``: several named arrays in a zip file. The directory and headers are checked before anything is unpacked."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from relcore.errors import InputError
from relcore.formats import npy
from relcore.formats.base import (
    MAX_DECODED,
    ROLES,
    VECTOR_WORDS,
    AmbiguousError,
    ArrayInfo,
    Peek,
    PickledError,
    Raw,
    Request,
    by_role_word,
    check_two_dimensional,
    display,
    shown,
)
from relcore.formats.sniff import ZIP_ERRORS, zip_members

NAME = "npz"
ENDINGS = (".npz",)
MAX_MEMBERS = 4096
SMALL = 64 * 2**20  # bytes; up to here any compression ratio is harmless
MAX_RATIO = 200


def recognises(path: Path, head: bytes) -> bool:
    return head.startswith(b"PK\x03\x04") and any(m.endswith(".npy") for m in zip_members(path))


class _Archive:
    """An open .npz whose directory has been checked; ``infos`` describes its arrays by name."""

    def __init__(self, path: Path, z: zipfile.ZipFile):
        self.path, self.zip = path, z
        members = z.infolist()
        if len(members) > MAX_MEMBERS:
            raise InputError(f"{path.name} holds {len(members):,} members, at most {MAX_MEMBERS:,} are read; split it.")
        self.members = {m.filename[:-4]: m for m in members if m.filename.endswith(".npy")}
        self.ignored = [m.filename for m in members if not m.filename.endswith(".npy")]
        self.infos: dict[str, ArrayInfo] = {}
        self.objects: set[str] = set()
        for name, m in self.members.items():
            if m.flag_bits & 1:
                raise InputError(f"{path.name} is encrypted; write it again without a password.")
            try:
                with z.open(m) as f:
                    shape, dtype = npy.header(f, display(path, name), m.file_size)
            except PickledError:
                self.objects.add(name)  # refused only if it is asked for
                continue
            self.infos[name] = ArrayInfo(name, shape, dtype.str)

    def read(self, name: str) -> np.ndarray:
        what, m = display(self.path, name), self.members[name]
        info = self.infos[name]
        size = math.prod(info.shape) * np.dtype(info.dtype).itemsize
        if size > MAX_DECODED:
            raise InputError(
                f"{what} takes {size / 2**30:.1f} GiB unpacked, at most {MAX_DECODED / 2**30:.0f} GiB are read from a "
                "compressed file; save this array alone as .npy, which is read in place."
            )
        if m.file_size > SMALL and m.file_size > MAX_RATIO * max(m.compress_size, 1):
            raise InputError(
                f"{what} unpacks to {m.file_size / max(m.compress_size, 1):.0f} times its size, which looks like a zip "
                "bomb; if it is yours, save it uncompressed with np.savez."
            )
        with self.zip.open(m) as f:
            return np.lib.format.read_array(f, allow_pickle=False, max_header_size=npy._MAX_HEADER)

    def check(self, name: str) -> None:
        """Raise :class:`InputError` unless there is a plain array of this name."""
        if name in self.objects:
            raise npy.pickle_refusal(display(self.path, name))
        if name not in self.infos:
            raise InputError(
                f"{self.path.name} has no array {name!r}; it has {shown(list(self.infos.values()))}. "
                f"Choose one as {self.path.name}:NAME."
            )


@contextmanager
def _open(path: Path) -> Iterator[_Archive]:
    try:
        with zipfile.ZipFile(path) as z:
            yield _Archive(path, z)
    except InputError:
        raise
    except ZIP_ERRORS as e:
        raise InputError(f"{path.name} is damaged ({e}); write or download it again.") from None


def arrays(path: Path) -> list[ArrayInfo]:
    """All plain arrays of the file, in its order."""
    with _open(path) as a:
        return list(a.infos.values())


def read_array(path: Path, name: str) -> np.ndarray:
    """One array of the file, whatever its shape.

    Raises
    ------
    InputError
        No such array, or it is damaged, too large, or holds Python objects.
    """
    with _open(path) as a:
        a.check(name)
        return a.read(name)


def _choose(a: _Archive) -> tuple[str, list[str]]:
    """The one array that can only be the vectors, with what was assumed."""
    candidates = [i for i in a.infos.values() if i.is_vectors]
    if len(candidates) == 1:
        return candidates[0].name, [f"array {candidates[0].name!r} read as the vectors, the only one of two dimensions"]
    named = [i for i in candidates if i.name.lower() in VECTOR_WORDS]
    if len(named) == 1:
        return named[0].name, [f"array {named[0].name!r} read as the vectors, by its name"]
    if candidates:
        text = f"{a.path.name} holds {len(candidates)} arrays that can be the vectors: {shown(candidates)}"
        raise AmbiguousError(f"{text}; choose one as {a.path.name}:{candidates[0].name}.", list(a.infos.values()))
    if a.objects:
        raise npy.pickle_refusal(display(a.path, min(a.objects)))
    if len(a.infos) == 1:
        info = next(iter(a.infos.values()))
        check_two_dimensional(display(a.path, info.name), info.shape)
    raise InputError(
        f"{a.path.name} holds no array of rows and numbers, only {shown(list(a.infos.values()))}; "
        "save the vectors as one two-dimensional array."
    )


def peek(request: Request) -> Peek:
    path, key = request.path, request.key
    with _open(path) as a:
        key, assumed = (key, []) if key is not None else _choose(a)
        a.check(key)
        info = a.infos[key]
        check_two_dimensional(display(path, key), info.shape)
        dtype = np.dtype(info.dtype)
        memory = math.prod(info.shape) * dtype.itemsize + npy.canonical_bytes(info.shape, dtype)
        return Peek(*info.shape, str(dtype), memory, assumed=tuple(assumed))


def read(request: Request) -> Raw:
    path, key, roles = request.path, request.key, request.roles
    rest = {}
    with _open(path) as a:
        if key is None:
            key, assumed = _choose(a)
        else:
            a.check(key)
            assumed = []
        check_two_dimensional(display(path, key), a.infos[key].shape)
        raw = Raw(a.read(key), assumed=assumed)
        n = len(raw.vectors)
        if a.ignored:
            raw.warned.append(f"{len(a.ignored)} members that are no arrays are not read: {shown(a.ignored)}")
        beside = [i.name for i in a.infos.values() if len(i.shape) == 1 and i.name != key]
        taken = set(roles.values()) - {None}
        for role in ROLES:
            name = roles.get(role)
            if name is not None:
                a.check(name)
            elif role in roles:
                continue
            else:
                name = by_role_word(role, [b for b in beside if b not in taken])
                if name is None:
                    continue
                if a.infos[name].shape != (n,):
                    raw.warned.append(
                        f"array {name!r} has {a.infos[name].shape[0]:,} values for {n:,} vectors: not used as {role}"
                    )
                    continue
                raw.assumed.append(f"array {name!r} read as {role}")
            taken.add(name)
            setattr(raw, role, npy.as_column(display(path, name), a.read(name)))
        for name in beside:
            if name not in taken and a.infos[name].shape == (n,) and np.dtype(a.infos[name].dtype).names is None:
                rest[name] = npy.as_column(display(path, name), a.read(name))
    if rest:
        import pandas as pd

        raw.meta = pd.DataFrame(rest)
        raw.assumed.append(f"arrays read as metadata: {shown(list(rest))}")
    return raw


def column(path: Path, key: str | None, role: str) -> np.ndarray:
    """One value a row: the named array, or the only one that can be meant."""
    with _open(path) as a:
        if key is None:
            flat = [i.name for i in a.infos.values() if len(i.shape) == 1]
            key = by_role_word(role, flat) or (flat[0] if len(flat) == 1 else None)
            if key is None:
                raise InputError(
                    f"{path.name} holds no single array that can be the {role}, but "
                    f"{shown(list(a.infos.values()))}; choose one as {path.name}:NAME."
                )
        a.check(key)
        return npy.as_column(display(path, key), a.read(key))
