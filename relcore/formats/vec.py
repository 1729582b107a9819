"""Word vectors as text, as word2vec, GloVe and fastText write them: a word and its numbers on each line.

The file is read in blocks of whole lines. pyarrow's CSV parser takes a block whose lines all have the same number of
fields; a block in which one does not (words with spaces, missing numbers) is split line by line, and its numbers go
through the same parser again. So every number is the float32 nearest to its text, whichever way it came.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from relcore.errors import InputError
from relcore.formats.base import ArrayInfo, Peek, Raw, Request, need, shown
from relcore.formats.sniff import COMPRESSIONS, HEAD, is_pickle, is_text, suffix
from relcore.formats.text import open_bytes
from relcore.space import Space

NAME = "vec"
COMPRESSED = True  # also gzip, bzip2 and xz
DUPLICATES = "first"  # a word is a key
ENDINGS = (".vec", ".txt")
BLOCK = 16 * 2**20  # bytes read at a time
BATCH = 2 * 2**20  # bytes parsed by one thread at a time
MAX_LINE = 128 * 2**20  # bytes; a longer line is no row of a vector
WIDE = 20_000  # numbers a row, above which a column each costs more than it saves
SAMPLE, SAMPLE_BYTES = 200, 2**18  # lines from which the length of a row is told, and the most bytes of them
LISTED = 50  # rows named in a warning

_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_HEADER = re.compile(rb"(\d{1,18})[ \t]+(\d{1,18})")
_NUMBER = re.compile(rb"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|nan|inf(?:inity)?)", re.IGNORECASE)
_GAP = re.compile(rb"[ \t]+")
_TABS_TO_SPACES = bytes.maketrans(b"\t", b" ")


# --------------------------------------------------------------------------------------------- what the lines hold


def _fields(line: bytes) -> list[bytes]:
    return _GAP.split(line.rstrip(b" \t\r"))


def _numbers_at_end(fields: Sequence[bytes]) -> int:
    """How many of the last fields are numbers; the first is a word even if it spells one."""
    count = 0
    while count < len(fields) - 1 and _NUMBER.fullmatch(fields[-1 - count]):
        count += 1
    return count


def _header(line: bytes) -> tuple[int, int] | None:
    """The two whole numbers of a line that may be a header."""
    match = _HEADER.fullmatch(line.rstrip(b" \t\r"))
    return (int(match[1]), int(match[2])) if match else None


class _Votes(NamedTuple):
    """What the first rows say about the length of a row: how many end in so many numbers."""

    counts: Counter
    dim: int  # the most common one; of several the largest, so that a row that is cut off is seen as such

    @classmethod
    def of(cls, rows: Sequence[Sequence[bytes]]) -> _Votes:
        counts = Counter(_numbers_at_end(fields) for fields in rows)
        return cls(counts, max(counts, key=lambda c: (counts[c], c), default=0))


def recognises(path: Path, head: bytes) -> bool:
    """``.vec`` where it is text; any other text, but for CSV and TSV, where its lines are a word and numbers."""
    ending = suffix(path)
    if ending in (".csv", ".tsv", ".tab") or (b"\0" in head and not head.startswith(_UTF16_MARKS)):
        return False
    lines, cut = _lines_of_head(head)
    if looks_like_vectors(lines, cut):
        return True
    markup = lines and lines[0].lstrip()[:1] == b"<"
    # words may hold rare control characters; only a line feed ends a line
    text = is_text(head.translate(None, b"\x0b\x1c\x1d\x1e\x1f"))
    return ending == ".vec" and text and not markup and not is_pickle(path, head)


def _lines_of_head(head: bytes) -> tuple[list[bytes], bool]:
    """The lines in a file's first bytes, and whether the last is cut off; a cut one is kept only beside at most one."""
    whole = head.endswith(b"\n") or len(head) < HEAD
    if head.startswith(_UTF16_MARKS):
        head = head[: len(head) // 2 * 2].decode("utf-16", "replace").encode()
    head = head.removeprefix(_UTF8_MARK)
    if b"\n" not in head:
        head = head.replace(b"\r", b"\n")
    lines = [line for line in head.split(b"\n") if line.strip()]
    if whole:
        return lines, False
    if len(lines) > 2:
        return lines[:-1], False
    return [*lines[:-1], *(line.rpartition(b" ")[0] for line in lines[-1:])], True


def looks_like_vectors(lines: Sequence[bytes], cut: bool = False) -> bool:
    """Whether the first line is a header that fits, or most lines are a word that is no number and two or more numbers.

    A list of names may end in a number each, and a table of numbers has no words.
    """
    header = _header(lines[0]) if lines else None
    rows = [_fields(line) for line in lines[header is not None :]]
    if not rows or (header and not header[1]):
        return False
    dim, first = _Votes.of(rows).dim, _numbers_at_end(rows[0])
    worded = sum(not _NUMBER.fullmatch(fields[0]) for fields in rows) > len(rows) / 2
    if header and header[1] == 1:
        return dim == 1 and worded
    if header:
        begins = cut and len(rows) == 1 and first == len(rows[0]) - 1 < header[1]
        return (len(rows[0]) == header[1] + 1 and first > 0) or dim == header[1] or begins
    by_space = sum(line.count(b" ") - line.count(b"\t") for line in lines) > 0
    return dim > 1 and first >= dim and worded and by_space


@dataclass
class _Layout:
    """What the first lines tell.

    Attributes
    ----------
    dim : numbers of a row.
    count : rows, as the header says; None without a header.
    start : bytes before the first row.
    unsure : whether the first row may be a header all the same: only the number of rows can tell.
    """

    dim: int
    count: int | None
    start: int
    unsure: bool
    assumed: list[str]


def _sample(block: bytes) -> list[bytes]:
    """The first lines that are not blank: so many, or of so many bytes."""
    lines, at = [], 0
    while at < len(block) and len(lines) < SAMPLE and (at < SAMPLE_BYTES or len(lines) < 3):
        end = block.find(b"\n", at) % (len(block) + 1)
        if line := block[at:end].rstrip(b" \t\r"):
            lines.append(line)
        at = end + 1
    return lines


def _after(block: bytes, line: bytes) -> int:
    """Where the line after this one, the first that is not blank, begins."""
    return (block.find(b"\n", block.find(line)) + 1) or len(block)


def _layout(name: str, block: bytes) -> _Layout:
    """Header or not, and how long a row is, from a file's first block.

    Raises
    ------
    InputError
        No rows, no numbers, or a header that contradicts the rows.
    """
    lines = _sample(block)
    if not lines:
        raise InputError(f"{name} holds no rows; check how it was written.")
    header = _header(lines[0])
    rows = [_fields(line) for line in lines[header is not None :]]
    if header and not rows:
        raise InputError(f"{name} holds a header ({lines[0].decode().strip()}) and no rows; check how it was written.")
    votes = _Votes.of(rows)
    end = _after(block, lines[0])
    if header and (header[1] != 1 or votes.dim > 1):
        count, dim = header
        fits = sum(len(fields) == dim + 1 or _numbers_at_end(fields) == dim for fields in rows)
        if dim > 0 and 2 * fits >= votes.counts[votes.dim]:
            return _Layout(dim, count, end, False, [f"first line read as the header: {count:,} rows of {dim} numbers"])
        if votes.dim > 1:
            raise InputError(
                f"{name}: the header says {dim} numbers a row, but the rows have {votes.dim}; correct the first line, "
                "or leave it out."
            )
    dim = votes.dim
    if dim < 1:
        comma = any(_NUMBER.fullmatch(f.replace(b",", b".")) for fields in rows for f in fields[1:])
        hint = "write decimals with a point, not a comma" if comma else "give a file of vectors"
        raise InputError(f"{name}: no line is a word and numbers (row 0 is {_shown(lines[0])}); {hint}.")
    if not header:
        return _Layout(dim, None, 0, False, [f"no header line; {dim} numbers a row, as in most of the first rows"])
    said = f"first line ({lines[0].decode().strip()}) read as a row, not as a header, because the rows have one number"
    return _Layout(dim, None, 0, header[1] == 1, [said])


def _shown(text: bytes, most: int = 40) -> str:
    """The beginning of a line, for a message."""
    return repr(text[:most].decode("utf-8", "replace").strip()) + (" ..." if len(text) > most else "")


# ------------------------------------------------------------------------------------------------ bytes, in blocks


@contextmanager
def _open(path: Path, progress: Callable[[float], None] | None = None) -> Iterator[Callable[[int], bytes]]:
    """A function that gives the next bytes, unpacked, in UTF-8 without a mark."""
    with open_bytes(path, progress) as f:
        mark = f.peek(3)[:3]
        if mark[:2] in _UTF16_MARKS:
            with io.TextIOWrapper(f, "utf-16", errors="replace", newline="") as text:
                yield lambda size: text.read(size).encode()
        else:
            if mark == _UTF8_MARK:
                f.read(3)
            yield f.read


def _blocks(name: str, get: Callable[[int], bytes], size: int) -> Iterator[bytes]:
    """The file in blocks of whole lines. A carriage return alone ends a line in a file that has no line feed."""
    rest, first, old_mac = b"", True, False
    while data := get(size):
        if first:
            first, old_mac = False, b"\r" in data and b"\n" not in data
        if old_mac:
            data = data.replace(b"\r", b"\n")
        cut = data.rfind(b"\n") + 1
        if not cut:
            rest += data
            if len(rest) > MAX_LINE:
                raise InputError(
                    f"{name}: a line has more than {MAX_LINE:,} bytes, so it is no row of vectors; give another file."
                )
            continue
        yield b"".join((rest, memoryview(data)[:cut]))
        rest = data[cut:]
    if rest:
        yield rest


# ------------------------------------------------------------------------------------------------------- the rows


class Rows:
    """Rows as they come: names (decoded, the bad ones noted) and one matrix that grows in place."""

    def __init__(self, dim: int):
        self.dim, self.names = dim, []
        self.undecodable: list[int] = []
        self._matrix = np.empty((0, dim), dtype=np.float32)

    def __len__(self) -> int:
        return len(self.names)

    def room(self, count: int) -> np.ndarray:
        """Where the numbers of the next rows go; to be filled, and let go, before more room is asked for."""
        wanted = len(self.names) + count
        if wanted > len(self._matrix):  # large memory is not copied, but mapped anew
            self._matrix.resize((wanted + wanted // 8, self.dim), refcheck=False)
        return self._matrix[len(self.names) : wanted]

    def name(self, words: Iterable[bytes]) -> None:
        """The names of the rows that were filled."""
        for word in words:
            try:
                self.names.append(word.decode())
            except UnicodeDecodeError:
                self.undecodable.append(len(self.names))
                self.names.append(word.decode("utf-8", "replace"))

    def matrix(self) -> np.ndarray:
        """All rows; afterwards none can be added."""
        self._matrix.resize((len(self.names), self.dim), refcheck=False)
        return self._matrix

    def warnings(self) -> list[str]:
        if not self.undecodable:
            return []
        return [
            f"{len(self.undecodable):,} words hold bytes that are no UTF-8, shown as \ufffd: rows "
            f"{shown(self.undecodable, LISTED)}"
        ]


class _Parser:
    """Blocks of lines to rows of ``dim`` numbers."""

    def __init__(self, dim: int):
        need("pyarrow", "text of word vectors")
        import pyarrow as pa
        from pyarrow import csv

        self.pa, self.csv, self.dim = pa, csv, dim
        self.rows, self.aside, self.blank = Rows(dim), {}, 0
        self.spaced: list[int] = []  # rows whose word has a space
        self.numbered: list[int] = []  # those of them in which a number stands before the numbers of the vector
        self.empty: list[int] = []  # rows with an empty word
        self.ended = True  # whether the last line ends in a line break
        if dim <= WIDE:
            names = [str(i) for i in range(dim + 1)]
            types = {name: pa.float32() for name in names[1:]} | {names[0]: pa.binary()}
            self._options = {
                "read_options": csv.ReadOptions(column_names=names, block_size=BATCH),
                "parse_options": csv.ParseOptions(delimiter=" ", quote_char=False, escape_char=False),
                "convert_options": csv.ConvertOptions(column_types=types, null_values=[]),
            }

    def add(self, block: bytes) -> None:
        self.ended = block.endswith(b"\n")
        flat = block.translate(_TABS_TO_SPACES) if b"\t" in block else block
        if b"\r" in flat:
            flat = flat.replace(b"\r\n", b"\n")
        if flat.endswith(b" \n"):  # as fastText ends every line
            flat = flat.replace(b" \n", b"\n")
        batches = self._parse(flat)
        if batches is None:
            self._add_by_line(block)
            return
        first, count = len(self.rows), sum(batch.num_rows for batch in batches)
        _copy(batches, self.rows.room(count))
        words = self.pa.chunked_array([b.column(0) for b in batches])
        try:
            self.rows.names += words.cast(self.pa.string()).to_numpy().tolist()
        except self.pa.ArrowInvalid:
            self.rows.name(words.to_pylist())
        self.blank += flat.count(b"\n") + (not self.ended) - count
        if "" in self.rows.names[first:]:
            self.empty += [row for row in range(first, len(self.rows)) if not self.rows.names[row]]

    def _parse(self, block: bytes) -> list | None:
        """Record batches of a word and numbers; None unless every line is that."""
        if self.dim > WIDE or b"\r" in block:
            return None
        if block.startswith(_UTF8_MARK):  # here it is part of a word, and the parser drops one
            block = _UTF8_MARK + block
        try:
            return self.csv.read_csv(self.pa.BufferReader(block), **self._options).to_batches()
        except self.pa.ArrowInvalid:
            return None

    def _add_by_line(self, block: bytes) -> None:
        lines = [line.rstrip(b" \t\r") for line in block.removesuffix(b"\n").split(b"\n")]
        first, words, tails, at = len(self.rows), [], [], []
        for line in lines:
            if not line:
                self.blank += 1
                continue
            row = first + len(words)
            word, tail, reason = self._split(line, row)
            words.append(word)
            if reason:
                self.aside[row] = reason
            else:
                tails.append(tail)
                at.append(len(words) - 1)
        matrix = self.rows.room(len(words))
        matrix[:] = 0
        if tails:
            batches = self._parse(b"".join([b"w " + tail + b"\n" for tail in tails]))
            if batches is not None:
                numbers = np.empty((len(tails), self.dim), dtype=np.float32)
                _copy(batches, numbers)
                matrix[at] = numbers
            else:
                for i, tail in zip(at, tails, strict=True):
                    try:
                        strings = self.pa.array(tail.decode("latin-1").split(" "), self.pa.string())
                        matrix[i] = strings.cast(self.pa.float32()).to_numpy()
                    except self.pa.ArrowInvalid:
                        bad = next((f for f in tail.split(b" ") if not _NUMBER.fullmatch(f)), tail)
                        self.aside[first + i] = f"not a number ({_shown(bad)})"
        self.rows.name(words)

    def _split(self, line: bytes, row: int) -> tuple[bytes, bytes, str | None]:
        """The word and the text of its numbers, one space between; and why the row cannot be used, if so."""
        parts = line.translate(_TABS_TO_SPACES).rsplit(b" ", self.dim)
        if b"" in parts[1:]:  # several spaces between fields
            gaps = [m.start() for m in _GAP.finditer(line)]
            start = gaps[-self.dim] if len(gaps) >= self.dim else 0
            parts = [line[:start], *_GAP.split(line[start:].lstrip(b" \t"))]
            if len(gaps) < self.dim:
                parts = parts[1:]
        if len(parts) <= self.dim:
            numbers = _numbers_at_end(parts)
            return parts[0], b"", f"too few numbers ({numbers} numbers, wanted {self.dim})"
        word = line[: len(parts[0])].strip(b" \t")
        if not word:
            self.empty.append(row)
        elif len(fields := _GAP.split(word)) > 1:
            if b"\r" in word:
                return word, b"", "a line break inside the row (a carriage return alone)"
            self.spaced.append(row)
            if _NUMBER.fullmatch(fields[-1]):
                self.numbered.append(row)
        return word, b" ".join(parts[1:]), None


def _copy(batches: list, out: np.ndarray) -> None:
    """The numbers of record batches of a word and numbers, row by row."""
    at = 0
    for batch in batches:
        out[at : at + batch.num_rows] = np.array([column.to_numpy() for column in batch.columns[1:]]).T
        at += batch.num_rows


def _no_key(path: Path, key: str | None) -> None:
    if key is not None:
        raise InputError(f"{path.name} holds a word and its vector on each line; leave out {':' + key!r}.")


def arrays(path: Path) -> list[ArrayInfo]:
    return []


def peek(request: Request) -> Peek:
    path = request.path
    _no_key(path, request.key)
    with _open(path) as get:
        blocks = _blocks(path.name, get, 2**18)
        block = next(blocks, b"")
        if block.count(b"\n") < 3:  # long rows
            block += next(blocks, b"")
    layout = _layout(path.name, block)
    parser = _Parser(layout.dim)
    lines = block[layout.start :].split(b"\n", 5)[:5]
    parser.add(b"\n".join(lines))
    size, packed = path.stat().st_size, is_packed(path)
    if packed:
        size *= 3  # as numbers pack
    rows = size / max(len(block) / max(block.count(b"\n"), 1), 1)
    if layout.count is not None:
        rows = layout.count if packed else min(layout.count, 1.5 * rows)  # a header can lie
    memory = int(rows * (4 * layout.dim + 120)) + 6 * min(BLOCK, int(size))
    good = [i for i in range(len(parser.rows)) if i not in parser.aside]
    return Peek(
        layout.count, layout.dim, "text", memory, head=parser.rows.matrix()[good], assumed=tuple(layout.assumed)
    )


def is_packed(path: Path) -> bool:
    with path.open("rb") as f:
        magic = f.read(8)
    return any(magic.startswith(m) for m, _, _ in COMPRESSIONS)


def read(request: Request) -> Raw:
    path = request.path
    _no_key(path, request.key)
    for role, wanted in request.roles.items():
        if wanted is not None:
            raise InputError(f"{path.name} holds words and vectors and no {role} {wanted!r}; give {role} in a file.")
    if request.columns:
        raise InputError(f"{path.name} holds words and vectors and no columns; leave out {shown([*request.columns])}.")
    layout, parser = _parse(path, request.progress)
    rows = parser.rows
    if len(parser.aside) > len(rows) / 2:
        row, reason = min(parser.aside.items())
        hint = "write decimals with a point, not a comma" if "," in reason else "check how the file was written"
        raise InputError(
            f"{path.name}: {len(parser.aside):,} of {len(rows):,} rows are not a word and {layout.dim} numbers; "
            f"row {row}: {reason}; {hint}."
        )
    names, vectors, warned = rows.names, rows.matrix(), rows.warnings()
    if layout.count is not None and layout.count != len(rows):
        warned.append(f"header says {layout.count:,}, found {len(rows):,}")
    for which, what in (
        (parser.numbered, "words end in a number after a space, perhaps a row with too many numbers"),
        (parser.empty, "words are empty"),
    ):
        if which:
            warned.append(f"{len(which):,} {what}: rows {shown(which, LISTED)}")
    if parser.spaced:
        layout.assumed.append(f"{len(parser.spaced):,} words with spaces: rows {shown(parser.spaced, LISTED)}")
    if parser.blank:
        layout.assumed.append(f"{parser.blank:,} blank lines are no rows")
    if not parser.ended:
        layout.assumed.append("the last line has no line break at its end; if the file was cut off, so is that row")
    return Raw(vectors, names=names, aside=parser.aside, assumed=layout.assumed, warned=warned, dtype="text")


def _parse(path: Path, progress: Callable[[float], None] | None = None) -> tuple[_Layout, _Parser]:
    with _open(path, progress) as get:
        blocks = _blocks(path.name, get, BLOCK)
        first = next(blocks, b"")
        layout = _layout(path.name, first)
        parser = _add_all(layout, first, blocks)
    if layout.unsure and parser.rows.names[0] == str(len(parser.rows) - 1):
        # "3 1" before just three rows of one number; a word that counts the rest by chance is not to be expected
        said = f"first line read as the header, because as many rows follow: {len(parser.rows) - 1:,} rows of 1 number"
        with _open(path) as get:
            blocks = _blocks(path.name, get, BLOCK)
            first = next(blocks)
            layout = _Layout(1, len(parser.rows) - 1, _after(first, _sample(first)[0]), False, [said])
            parser = _add_all(layout, first, blocks)
    return layout, parser


def _add_all(layout: _Layout, first: bytes, blocks: Iterable[bytes]) -> _Parser:
    parser = _Parser(layout.dim)
    for block in chain([first[layout.start :]], blocks):
        if block:
            parser.add(block)
    return parser


def column(path: Path, key: str | None, role: str) -> list[str]:
    """The words, in the order of the lines."""
    _no_key(path, key)
    return _parse(path)[1].rows.names


# ------------------------------------------------------------------------------------------------------- writing


def encoded_names(path: Path, space: Space, forbidden: str, instead: str) -> list[bytes]:
    """The names as bytes.

    Raises
    ------
    InputError
        One that the format cannot hold: empty, with a character of ``forbidden``, or no text.
    """
    out = []
    for row, name in enumerate(space.names):
        bad = next((c for c in forbidden if c in name), None)
        if not name or bad:
            what = f"the name {name[:40]!r} with {bad!r} in it" if bad else "an empty name"
            raise InputError(f"{path.name}: row {row} has {what}, which this format cannot hold; write {instead}.")
        try:
            out.append(name.encode())
        except UnicodeEncodeError:
            raise InputError(
                f"{path.name}: the name of row {row}, {name[:40]!r}, is no valid Unicode; correct it."
            ) from None
    return out


def not_kept(space: Space, format: str) -> list[str]:
    """What a file of words and vectors leaves out."""
    columns = {"labels": space.labels, "thumbnails": space.media, "metadata": space.meta}
    return [f"{what} are not kept by {format}" for what, values in columns.items() if values is not None]


def write(path: Path, space: Space) -> list[str]:
    """``.vec`` with the header line of word2vec and fastText, ``.txt`` without, as GloVe.

    A ``.txt`` whose words are numbers, or whose vectors are one number, has the header too: it would be taken for a
    table without.
    """
    names = encoded_names(path, space, "\n\0", "Parquet or CSV")
    for row, name in enumerate(space.names):
        if name.strip(" \t") != name or ("\r" in name and " " in name) or (row == 0 and name[0] == "\ufeff"):
            raise InputError(
                f"{path.name}: row {row} has the name {name[:40]!r}, which does not survive as a word before numbers; "
                "write Parquet or CSV."
            )
    step = max(1, 2**20 // space.dim)
    lines = _lines(space.vectors[: min(step, 20)], names)
    headed = f"{len(space)} {space.dim}".encode()
    header = suffix(path) != ".txt" or not looks_like_vectors(lines)
    if suffix(path) == ".txt" and header and not looks_like_vectors([headed, *lines]):
        raise InputError(
            f"{path.name}: words that are numbers (row 0 is {_shown(lines[0])}) and one number each would read as "
            "a table; write .vec."
        )
    opener = next((o for _, ending, o in COMPRESSIONS if path.suffix.lower() == ending), open)
    with opener(path, "wb") as f:
        if header:
            f.write(headed + b"\n")
        for i in range(0, len(space), step):
            f.write(b"".join([line + b"\n" for line in _lines(space.vectors[i : i + step], names[i : i + step])]))
    return not_kept(space, NAME)


def _lines(vectors: np.ndarray, names: Sequence[bytes]) -> list[bytes]:
    """A name and the shortest text of each number that reads back as it was."""
    pa, csv = need("pyarrow", "text of word vectors"), need("pyarrow.csv", "text of word vectors", "pyarrow")
    columns = [pa.array(column) for column in np.ascontiguousarray(vectors.T)]
    table = pa.Table.from_arrays(columns, names=[str(i) for i in range(len(columns))])
    sink = pa.BufferOutputStream()
    csv.write_csv(table, sink, csv.WriteOptions(include_header=False, delimiter=" "))
    numbers = sink.getvalue().to_pybytes().split(b"\n")[:-1]
    return [name + b" " + line for name, line in zip(names, numbers, strict=False)]
