"""The binary file of the word2vec tool and of gensim: a header line, then each word, a space and its float32 numbers.

Read in blocks, so a packed file (``.bin.gz``, as the well-known ones are) needs no more memory than a plain one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from relcore.errors import InputError
from relcore.formats.base import ArrayInfo, Peek, Raw, Request, shown
from relcore.formats.sniff import COMPRESSIONS, is_text, suffix
from relcore.formats.text import open_bytes
from relcore.formats.vec import Rows, encoded_names, is_packed, looks_like_vectors, not_kept
from relcore.space import Space

NAME = "word2vec"
COMPRESSED = True  # also gzip, bzip2 and xz
DUPLICATES = "first"  # a word is a key
ENDINGS = (".bin",)
BLOCK = 16 * 2**20  # bytes read at a time
MAX_WORD = 2**16  # bytes
_HEADER = re.compile(rb"(\d{1,18})[ \t]+(\d{1,18})[ \t]*\r?\n")


def recognises(path: Path, head: bytes) -> bool:
    """Two whole numbers on a line, and then no text. Short vectors can look like text: there the ending decides."""
    match = _HEADER.match(head)
    if not match or (b"\0" not in head and looks_like_vectors(head.split(b"\n")[:2])):
        return False
    return suffix(path) in ENDINGS or not is_text(head[match.end() :])


def _header(f: BinaryIO, name: str) -> tuple[int, int]:
    """Rows and numbers of a row, as the first line says."""
    match = _HEADER.fullmatch(f.readline(64))
    if not match:
        raise InputError(f"{name}: the first line is damaged, wanted two whole numbers; write or download it again.")
    count, dim = int(match[1]), int(match[2])
    if not count or not dim:
        raise InputError(f"{name}: the header says {count:,} rows of {dim:,} numbers; there is nothing to align.")
    return count, dim


def _parts(f: BinaryIO, name: str, dim: int, block: int) -> Iterator[tuple[list[bytes], np.ndarray | bytes]]:
    """Words and their vectors, a block at a time; at the end, no words and the bytes that are left."""
    rest, row, data = b"", 0, b" "
    while data:
        data = f.read(block)
        buffer = rest + data
        words, starts, at = [], [], 0
        while True:
            while buffer[at : at + 1] == b"\n":  # the C tool ends rows so, gensim does not
                at += 1
            gap = buffer.find(b" ", at, at + MAX_WORD)
            if gap < 0 or gap + 1 + 4 * dim > len(buffer):
                break
            words.append(buffer[at:gap])
            starts.append(gap + 1)
            at = gap + 1 + 4 * dim
        matrix = np.empty((len(words), dim), dtype=np.float32)
        for i, start in enumerate(starts):
            matrix[i] = np.frombuffer(buffer, "<f4", dim, start)
        nul = next((i for i, word in enumerate(words) if b"\0" in word), None)
        if nul is not None or (gap < 0 and len(buffer) - at >= MAX_WORD):
            where = row + (len(words) if nul is None else nul)
            raise InputError(
                f"{name}: row {where} does not begin with a word, so the rows are not of {dim:,} numbers as the header "
                "says, or the file is damaged; write or download it again."
            )
        row += len(words)
        rest = buffer[at:]
        del buffer
        if words:
            yield words, matrix
    yield [], rest


def _no_key(path: Path, key: str | None) -> None:
    if key is not None:
        raise InputError(f"{path.name} holds words and their vectors; leave out {':' + key!r}.")


def arrays(path: Path) -> list[ArrayInfo]:
    return []


def peek(request: Request) -> Peek:
    path = request.path
    _no_key(path, request.key)
    with open_bytes(path) as f:
        count, dim = _header(f, path.name)
        words, head = next(_parts(f, path.name, dim, 2**18))
    size = path.stat().st_size * (2 if is_packed(path) else 1)  # float32 hardly packs
    memory = int(min(count, size // (4 * dim + 1)) * (4 * dim + 120)) + 6 * min(BLOCK, size)
    return Peek(count, dim, "float32", memory, head=head[:5] if words else None)


def _parse(path: Path, progress: Callable[[float], None] | None = None) -> tuple[int, Rows]:
    """The row count of the header, and all rows.

    Raises
    ------
    InputError
        Fewer rows than the header says, or a last one that is not whole.
    """
    with open_bytes(path, progress) as f:
        count, dim = _header(f, path.name)
        rows, rest = Rows(dim), b""
        for words, part in _parts(f, path.name, dim, BLOCK):
            if words:
                rows.room(len(words))[:] = part
                rows.name(words)
            else:
                rest = part
    if rest or len(rows) < count:
        raise InputError(
            f"{path.name}: the header says {count:,} rows of {dim:,} numbers, but the file holds {len(rows):,} whole "
            f"rows and then {len(rest):,} bytes, wanted a word and {4 * dim:,} bytes; it is cut off or damaged; write "
            "or download it again."
        )
    return count, rows


def read(request: Request) -> Raw:
    path = request.path
    _no_key(path, request.key)
    for role, wanted in request.roles.items():
        if wanted is not None:
            raise InputError(f"{path.name} holds words and vectors and no {role} {wanted!r}; give {role} in a file.")
    if request.columns:
        raise InputError(f"{path.name} holds words and vectors and no columns; leave out {shown([*request.columns])}.")
    count, rows = _parse(path, request.progress)
    names, vectors, warned = rows.names, rows.matrix(), rows.warnings()
    if rows.undecodable:
        warned.append(
            "a word with a space in it would look the same, and spoil the row before; write such words as .vec"
        )
    if count != len(rows):
        warned.append(f"header says {count:,}, found {len(rows):,}")
    if "" in names:
        empty = [row for row, name in enumerate(names) if not name]
        warned.append(f"{len(empty):,} words are empty: rows {shown(empty, 50)}")
    return Raw(vectors, names=names, warned=warned, dtype="float32")


def column(path: Path, key: str | None, role: str) -> list[str]:
    """The words, in the order of the rows."""
    _no_key(path, key)
    return _parse(path)[1].names


def write(path: Path, space: Space) -> list[str]:
    """As the word2vec tool writes it, with a line break after each row."""
    names = encoded_names(path, space, " \n\0", ".vec or Parquet")
    opener = next((o for _, ending, o in COMPRESSIONS if path.suffix.lower() == ending), open)
    with opener(path, "wb") as f:
        f.write(f"{len(space)} {space.dim}\n".encode())
        for name, vector in zip(names, space.vectors, strict=True):
            f.write(name + b" " + vector.astype("<f4").tobytes() + b"\n")
    return not_kept(space, NAME)
