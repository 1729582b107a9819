"""Text files as the readers see them: unpacked where compressed, decoded by their mark, never more than they may be."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO

from relcore.errors import InputError
from relcore.formats.sniff import COMPRESSION_ERRORS, COMPRESSIONS

SMALL = 64 * 2**20  # bytes; up to here any compression ratio is harmless
MAX_RATIO = 200  # real vectors pack to a third; a file that unpacks to more than this is no table


class _Source(io.RawIOBase):
    """Bytes of a file, unpacked where it is compressed; tells how far it is and stops what unpacks without end."""

    def __init__(self, path: Path, progress: Callable[[float], None] | None):
        self.path, self.size = path, path.stat().st_size
        self.file = path.open("rb", buffering=0)
        magic = self.file.read(8)
        self.file.seek(0)
        opener = next((o for m, _, o in COMPRESSIONS if magic.startswith(m)), None)
        self.stream = opener(self.file, "rb") if opener else self.file
        self.packed, self.count, self.progress, self.told = opener is not None, 0, progress, 0.0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        try:
            got = self.stream.readinto(buffer)
        except COMPRESSION_ERRORS as e:
            raise InputError(f"{self.path.name} is damaged ({e}); write or download it again.") from None
        self.count += got
        if not got and not self.packed and self.count < self.size:
            raise InputError(f"{self.path.name} became shorter while it was read; load it again once it is written.")
        if self.packed and self.count > SMALL and self.count > MAX_RATIO * self.size:
            raise InputError(
                f"{self.path.name} unpacks to over {MAX_RATIO} times its size, which looks like a decompression bomb; "
                "if it is yours, unpack it first."
            )
        share = self.file.tell() / max(self.size, 1)
        if self.progress is not None and share >= self.told + 0.01:
            self.told = share
            self.progress(min(share, 1.0))
        return got

    def close(self) -> None:
        if not self.closed:
            self.stream.close()
            self.file.close()
        super().close()


@contextmanager
def open_bytes(path: Path, progress: Callable[[float], None] | None = None) -> Iterator[BinaryIO]:
    """The bytes of a file, unpacked if it is gzip, bzip2 or xz (told by its first bytes), in one pass.

    Raises
    ------
    InputError
        While reading: damaged, or it unpacks to more than :data:`MAX_RATIO` times its size.
    """
    with _Source(path, progress) as source, io.BufferedReader(source, 2**20) as f:
        yield f


@contextmanager
def open_text(path: Path, progress: Callable[[float], None] | None = None) -> Iterator[TextIO]:
    """The file as text: UTF-16 by its mark, else UTF-8, with or without one. Bytes that are no text become U+FFFD."""
    with open_bytes(path, progress) as f:
        encoding = "utf-16" if f.peek(2)[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
        with io.TextIOWrapper(f, encoding=encoding, errors="replace", newline="") as text:
            yield text
