"""HDF5 files, read in a process of their own.

A damaged HDF5 file can crash the HDF5 library, or keep it busy for ever (one in fifty mutated files did), which no
``except`` stops. So the reading is done by a child process (``python -m relcore.formats.hdf5``) with a limit on memory
and on computing time without progress; it sends what it reads through a pipe, block by block, and when it dies the
file is said to be damaged. Only what lies in the file itself is read: links, external storage and virtual datasets,
which can lead to other files of the machine, are never followed.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from relcore import memory
from relcore.errors import InputError
from relcore.formats.base import ArrayInfo, Raw, display, need

MAGIC = b"\x89HDF\r\n\x1a\n"
SMALL = 64 * 2**20  # bytes; up to here any compression ratio is harmless
MAX_RATIO = 200  # real vectors pack to a third; mostly zeros, to a hundredth
MAX_OBJECTS = 10_000  # datasets and groups listed
BLOCK = 16 * 2**20  # bytes decoded at a time
LISTING_MEMORY = 3 * 2**30  # address space while only headers are read
SECONDS = 8  # of computing without progress, and one more for so many bytes to be decoded at once:
DECODED_A_SECOND = 10**7
_SPARSE = ("csr", "csc")


def is_hdf5(head: bytes) -> bool:
    """The mark stands at the start, or after a block for the user's own use (MATLAB 7.3 has one)."""
    return any(head[at : at + 8] == MAGIC for at in (0, 512, 1024, 2048))


@dataclass(frozen=True)
class Item:
    """An array of the file.

    Attributes
    ----------
    kind : ``dense``, ``text``, ``csr``, ``csc`` (a group of three arrays), or ``column`` (a group that anndata decodes:
        categories and numbers with missing ones).
    step : rows decoded at a time (columns where ``turned``).
    stored : bytes it takes in the file.
    turned : stored as columns of the matrix: MATLAB's order, or csc.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: str = "dense"
    step: int = 1
    stored: int = 0
    turned: bool = False

    @property
    def info(self) -> ArrayInfo:
        return ArrayInfo(self.name, self.shape, self.dtype)

    @property
    def is_vectors(self) -> bool:
        return self.kind in ("dense", *_SPARSE) and self.info.is_vectors

    @property
    def memory(self) -> int:
        """Bytes that reading it takes: the float32 matrix here, and one block here and in the child."""
        across = self.shape[0] if self.turned else math.prod(self.shape[1:])
        block = self.step * across * (2 * np.dtype(self.dtype).itemsize + 8)
        index = 8 * (self.shape[1 if self.turned else 0] + 1) if self.kind in _SPARSE else 0
        return 4 * math.prod(self.shape) + block + index

    def check_size(self, path: Path) -> None:
        """Raise :class:`InputError` for a small file that claims very many numbers."""
        size = math.prod(self.shape) * np.dtype(self.dtype).itemsize
        if self.kind == "dense" and size > SMALL and size > MAX_RATIO * self.stored:
            raise InputError(
                f"{display(path, self.name)} claims {memory.as_text(size)}, over {MAX_RATIO} times the "
                f"{memory.as_text(self.stored)} that the file holds for it, which looks like a decompression bomb; "
                "if it is yours, save it uncompressed."
            )


@dataclass
class Listing:
    """What a file holds. ``left`` are objects that are not read, with the reason; ``attrs`` what marks groups carry."""

    items: dict[str, Item] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    attrs: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def is_anndata(self) -> bool:
        root = self.attrs.get("", {})
        return root.get("encoding-type") == "anndata" or ("X" in self.attrs and {"obs", "var"} <= set(self.attrs))

    def check(self, path: Path, name: str) -> Item:
        """The array of this name, which need not be of vectors.

        Raises
        ------
        InputError
            There is none, or it is not read: the reason.
        """
        if name in self.items:
            return self.items[name]
        if name in self.left:
            raise InputError(f"{display(path, name)} {self.left[name]}.")
        raise InputError(
            f"{path.name} has no array {name!r}; it has {_few(self.items.values())}. Choose one as {path.name}:NAME."
        )


def _few(items: Sequence[Item]) -> str:
    items = [str(i.info) for i in items]
    return ", ".join(items[:8]) + (f" and {len(items) - 8:,} more" if len(items) > 8 else "") if items else "no arrays"


# ------------------------------------------------------------------------------------------------------ the parent


def _start(request: bytes) -> subprocess.Popen:
    """A child that answers the request on its ``stdout``."""
    root = str(Path(__file__).resolve().parents[2])
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])]),
        "OPENBLAS_NUM_THREADS": "1",  # every thread takes address space
        "OMP_NUM_THREADS": "1",
    }
    child = subprocess.Popen(
        [sys.executable, "-m", "relcore.formats.hdf5"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=env,
    )
    try:
        with child.stdin:
            child.stdin.write(request)
    except OSError:
        pass  # it died at once, as its exit code tells
    return child


@contextmanager
def _child(path: Path, request: dict) -> Iterator[BinaryIO]:
    """What a child process answers to a request; its death is an :class:`InputError`."""
    need("h5py", f"{path.name}, an HDF5 file,")
    child = _start(json.dumps({"path": str(path.absolute()), "name": path.name} | request).encode())
    try:
        yield child.stdout
    except _CutOff:
        code = child.wait()
        why = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        if -code == getattr(signal, "SIGXCPU", None):
            why = "it would not come to an end"
        raise InputError(
            f"{path.name} is damaged (the HDF5 library failed on it: {why}); write or download it again, or save "
            "the vectors with np.save."
        ) from None
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


class _CutOff(Exception):
    """The child's answer ended too early."""


def _line(stream: BinaryIO) -> dict:
    line = stream.readline()
    try:
        answer = json.loads(line)
    except ValueError:  # nothing, or half a line
        raise _CutOff from None
    if "error" in answer:
        raise InputError(answer["error"])
    return answer


def _fill(stream: BinaryIO, buffer: np.ndarray) -> None:
    view = memoryview(buffer).cast("B")
    done = 0
    while done < len(view):
        got = stream.readinto(view[done:])
        if not got:
            raise _CutOff
        done += got


_listings: OrderedDict[tuple, Listing | InputError] = OrderedDict()  # of the last few files


def listing(path: Path) -> Listing:
    """What the file holds, from its headers alone.

    Raises
    ------
    InputError
        Damaged, or h5py is not installed.
    """
    need("h5py", f"{path.name}, an HDF5 file,")
    s = path.stat()
    state = (str(path.absolute()), s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns)
    found = _listings.get(state)
    if found is None:
        try:
            with _child(path, {"do": "list"}) as stream:
                answer = _line(stream)
            items = {d["name"]: Item(**d | {"shape": tuple(d["shape"])}) for d in answer["items"]}
            found = Listing(items, answer["left"], answer["attrs"])
        except InputError as e:
            found = e
        _listings[state] = found
        while len(_listings) > 16:
            _listings.popitem(last=False)
    if isinstance(found, InputError):
        raise InputError(str(found))
    return found


def read(
    path: Path, item: Item | None, columns: Sequence[str], progress: Callable[[float], None] = lambda share: None
) -> tuple[np.ndarray | None, dict[str, np.ndarray | list]]:
    """The vectors as a float32 matrix, and columns by name: an array of numbers, or a list of texts (None: missing).

    Raises
    ------
    InputError
        Damaged, or too large.
    """
    vectors, out = None, {}
    if item is not None:
        item.check_size(path)
    with _child(path, {"do": "read", "key": item and item.name, "columns": list(columns)}) as stream:
        if item is not None:
            shape = tuple(_line(stream)["shape"])
            if shape != item.shape:
                raise InputError(f"{path.name} was changed while it was read; load it again.")
            try:
                vectors = np.empty(shape, dtype=np.float32)
            except MemoryError:
                raise InputError(
                    f"{display(path, item.name)} takes {memory.as_text(4 * math.prod(shape))} as a matrix, more than "
                    "there is memory; use a part of the rows."
                ) from None
            _receive(stream, vectors.T if item.turned else vectors, item.step, progress)
        for name in columns:
            head = _line(stream)
            if "values" in head:
                out[name] = head["values"]
            else:
                out[name] = np.empty(head["rows"], dtype=head["dtype"])
                _fill(stream, out[name].view(np.uint8))
        _line(stream)
    return vectors, out


def _receive(stream: BinaryIO, rows: np.ndarray, step: int, progress: Callable[[float], None]) -> None:
    """Fill a matrix, or the transpose of one, with the blocks of rows that the child sends."""
    told = 0.0
    for i in range(0, len(rows), step):
        block = rows[i : i + step]
        _line(stream)  # that the block follows, or why it does not
        if block.flags.c_contiguous:
            _fill(stream, block)
        else:
            buffer = np.empty(block.shape, dtype=np.float32)
            _fill(stream, buffer)
            block[:] = buffer
        share = min(i + step, len(rows)) / len(rows)
        if share >= told + 0.01:
            told = share
            progress(share)


def replaced(columns: dict[str, np.ndarray | list], raw: Raw) -> None:
    """Warn of texts with bytes that are no UTF-8, which have become U+FFFD."""
    cells = sum(type(v) is str and "\ufffd" in v for column in columns.values() if type(column) is list for v in column)
    if cells:
        raw.warned.append(f"{cells:,} texts hold bytes that are no UTF-8, shown as \ufffd; save them as UTF-8")


# ------------------------------------------------------------------------------------------------------- the child


def _allow(seconds: int, address_space: int | None = None) -> None:
    """Let this process compute for so long from now on, then die. Windows has no such limits."""
    try:
        import resource
    except ImportError:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    limits = {resource.RLIMIT_CPU: math.ceil(used.ru_utime + used.ru_stime) + seconds}
    if address_space is not None:
        limits |= {resource.RLIMIT_AS: address_space, resource.RLIMIT_CORE: 0}
    for which, value in limits.items():
        _, most = resource.getrlimit(which)
        resource.setrlimit(which, (value if most == resource.RLIM_INFINITY else min(value, most), most))


def _attributes(obj) -> dict[str, Any]:
    """The few marks by which anndata and MATLAB tell what an object is."""
    out = {}
    for name in ("encoding-type", "_index", "shape", "h5sparse_format", "h5sparse_shape", "MATLAB_class"):
        if name in obj.attrs:
            value = obj.attrs[name]
            value = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
            if isinstance(value, str):
                out[name] = value
            elif isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.shape == (2,):
                out[name] = value.tolist()
    return out


def _list(path: str) -> Listing:
    import h5py

    found, count = Listing(), 0
    seen = set()

    def visit(group: h5py.Group, prefix: str) -> None:
        nonlocal count
        found.attrs[prefix.rstrip("/")] = marks = _attributes(group)
        sparse = marks.get("encoding-type", marks.get("h5sparse_format", ""))[:3]
        column = marks.get("encoding-type", "").startswith(("categorical", "nullable"))
        inside = Listing()
        for key in group:
            count += 1
            if count > MAX_OBJECTS:
                raise InputError(f"holds more than {MAX_OBJECTS:,} objects, which are not read; write fewer to a file")
            name = prefix + key
            link = group.get(key, getlink=True)
            if not isinstance(link, h5py.HardLink):
                where = "another file" if isinstance(link, h5py.ExternalLink) else "another place"
                inside.left[name] = f"is a link to {where}, which is not followed; copy the data into this file"
                continue
            obj = group[key]
            if isinstance(obj, h5py.Group):
                address = h5py.h5o.get_info(obj.id).addr
                if address in seen:
                    inside.left[name] = "is the same group once more, which is not read again"
                    continue
                seen.add(address)
                visit(obj, name + "/")
            elif isinstance(obj, h5py.Dataset):
                found.attrs[name] = marks_of = _attributes(obj)
                item = _item(obj, name, marks_of)
                if isinstance(item, Item):
                    inside.items[name] = item
                else:
                    inside.left[name] = item
        whole = prefix.rstrip("/")
        if sparse in _SPARSE or column:  # one array, told from those inside
            found.attrs = {k: v for k, v in found.attrs.items() if not k.startswith(prefix)}
            item = _group_item(inside, whole, sparse, column, marks)
            found.items, found.left = (
                {k: v for k, v in d.items() if not k.startswith(prefix)} for d in (found.items, found.left)
            )
            if isinstance(item, Item):
                inside = Listing({whole: item})
            else:
                inside = Listing(left={whole: item})
        found.items |= inside.items
        found.left |= inside.left

    with h5py.File(path, "r", locking=False) as f:
        seen.add(h5py.h5o.get_info(f["/"].id).addr)
        visit(f["/"], "")
    return found


def _item(d, name: str, marks: dict) -> Item | str:
    """A dataset, or why it is not read."""
    import h5py

    plist = d.id.get_create_plist()
    if d.is_virtual or d.external:
        return "keeps its numbers in another file, which is not opened; copy the data into this file"
    for i in range(plist.get_nfilters()):
        code, _, _, title = plist.get_filter(i)
        if not h5py.h5z.filter_avail(code):
            title = title.decode("utf-8", "replace") or f"filter {code}"
            return f"is compressed with {title}, which h5py alone does not read; save it again with compression='gzip'"
    try:
        dtype = d.dtype
    except (TypeError, ValueError) as e:
        return f"holds numbers of a kind that h5py does not read ({e}); save it as float32"
    if d.shape is None:
        return "is empty; check how it was written"
    stored, rows = d.id.get_storage_size(), d.chunks[0] if d.chunks else 1
    if h5py.check_string_dtype(dtype) is not None:
        return Item(name, d.shape, "str", "text", stored=stored)
    if dtype.hasobject or dtype.kind == "V":
        kind = "records of several fields" if dtype.names else "lists or references"
        return f"holds {kind}, wanted plain numbers; save the vectors as a two-dimensional array of their own"
    shape, turned = d.shape, False
    if "MATLAB_class" in marks and len(shape) == 2:
        shape, turned = shape[::-1], True
    row = max(math.prod(d.shape[1:]) * dtype.itemsize, 1)
    step = max(BLOCK // row // rows, 1) * rows  # whole chunks, which are decoded as a whole
    step = max(min(step, d.shape[0] if d.shape else 1), 1)
    return Item(name, shape, dtype.str, "dense", step, stored, turned)


def _group_item(inside: Listing, name: str, sparse: str, column: bool, marks: dict) -> Item | str:
    """A sparse matrix or a column that is stored as a group of arrays, or why it is not read."""
    if inside.left:
        first, why = next(iter(inside.left.items()))
        return f"cannot be read, its part {first.rsplit('/', 1)[1]!r} {why}"
    parts = {k.rsplit("/", 1)[1]: v for k, v in inside.items.items()}
    if column:
        if marks["encoding-type"] == "categorical":
            count, dtype = parts.get("codes"), "str"
        else:
            count = parts.get("values")
            dtype = count.dtype if count else ""
        if count is None or len(count.shape) != 1:
            return "is damaged, its codes or values are not there; write it again"
        return Item(name, count.shape, dtype, "column")
    shape = marks.get("shape", marks.get("h5sparse_shape"))
    if not {"data", "indices", "indptr"} <= set(parts) or shape is None or min(shape) < 0:
        return "is damaged, a part of the sparse matrix is not there; write it again"
    data = parts["data"]
    if np.dtype(data.dtype).kind not in "fiub" or any(len(parts[p].shape) != 1 for p in ("data", "indices", "indptr")):
        return "is damaged, the parts of the sparse matrix are no rows of numbers; write it again"
    turned = sparse == "csc"
    across, along = shape if turned else shape[::-1]
    step = max(min(BLOCK // max(8 * across, 1), along), 1)
    return Item(name, tuple(shape), data.dtype, sparse, step, data.stored, turned)


def _blocks(f, item: Item) -> Iterator[np.ndarray]:
    """The matrix (its transpose where turned) in blocks of rows, as float32."""
    obj = f[item.name]
    if item.kind not in _SPARSE:
        for i in range(0, obj.shape[0], item.step):
            yield obj[i : i + item.step]
        return
    from scipy.sparse import csr_matrix

    along, across = item.shape[::-1] if item.turned else item.shape
    indptr = obj["indptr"][:].astype(np.int64)
    data, indices = obj["data"], obj["indices"]
    if len(indptr) != along + 1 or indptr[0] != 0 or (np.diff(indptr) < 0).any():
        raise InputError("is damaged, the row pointers of its sparse matrix make no sense; write it again")
    if indptr[-1] > min(len(data), len(indices)):
        raise InputError("is damaged, its sparse matrix is cut off; write it again")
    for i in range(0, along, item.step):
        pointers = indptr[i : i + item.step + 1]
        part = slice(int(pointers[0]), int(pointers[-1]))
        places = indices[part].astype(np.int64)
        if len(places) and (places.min() < 0 or places.max() >= across):
            raise InputError(
                f"is damaged, its sparse matrix has an entry in place {int(places.max())}, wanted below {across}; "
                "write it again"
            )
        values = data[part]
        if values.dtype == np.float16 or not values.dtype.isnative:  # scipy computes with neither
            values = values.astype(np.result_type(values.dtype.newbyteorder("="), np.float32))
        yield csr_matrix((values, places, pointers - pointers[0]), shape=(len(pointers) - 1, across)).toarray()


def _column(f, item: Item) -> np.ndarray | list:
    """One value a row: numbers as they are, anything else as texts, with None where it is missing."""
    obj = f[item.name]
    if item.kind == "text":
        values = obj[...].ravel()
        return [v.decode("utf-8", "replace") if isinstance(v, bytes) else str(v) for v in values]
    if item.kind == "dense":
        values = obj[...]
        return values.ravel().astype(values.dtype.newbyteorder("="))
    import pandas as pd
    from anndata.io import read_elem

    values = pd.Series(read_elem(obj)).astype(object)
    plain = [None if missing else v for v, missing in zip(values, values.isna(), strict=True)]
    plain = [v.item() if isinstance(v, np.generic) else v for v in plain]
    return [v if v is None or isinstance(v, str | int | float) else str(v) for v in plain]


def _answer(request: dict, out: BinaryIO) -> None:
    def say(**answer) -> None:
        out.write(json.dumps(answer).encode() + b"\n")

    import h5py

    if request["do"] == "list":
        _allow(SECONDS, LISTING_MEMORY)
        found = _list(request["path"])
        say(items=[asdict(i) for i in found.items.values()], left=found.left, attrs=found.attrs)
        return
    _allow(SECONDS, memory.available() + 2**30)
    found = _list(request["path"])
    with h5py.File(request["path"], "r", locking=False) as f:
        if request["key"] is not None:
            item = found.items[request["key"]]
            say(shape=item.shape)
            across = item.shape[0] if item.turned else item.shape[1]
            seconds = SECONDS + item.step * across * np.dtype(item.dtype).itemsize // DECODED_A_SECOND
            _allow(seconds)
            for block in _blocks(f, item):
                with np.errstate(over="ignore", invalid="ignore"):
                    block = np.ascontiguousarray(block, dtype=np.float32)
                say(rows=len(block))
                out.write(block.data)
                _allow(seconds)
        for name in request["columns"]:
            item = found.items[name]
            _allow(SECONDS + max(item.stored, 32 * math.prod(item.shape)) // DECODED_A_SECOND)
            values = _column(f, item)
            if isinstance(values, list):
                say(values=values)
            else:
                say(rows=len(values), dtype=values.dtype.str)
                out.write(np.ascontiguousarray(values).data.cast("B"))
    say(end=True)


def serve(request: bytes, out: BinaryIO) -> None:
    """The child's whole life: answer one request, whatever happens."""
    asked = json.loads(request)
    name, error = asked["name"], None
    try:
        _answer(asked, out)
    except InputError as e:
        error = f"{name} {e}."
    except MemoryError:
        error = f"{name}, an HDF5 file, is damaged, or takes more memory than there is; write or download it again."
    except Exception as e:  # the libraries raise nearly anything on damaged bytes
        why = (str(e).splitlines() or [""])[0][:120] or type(e).__name__
        error = (
            f"{name}, an HDF5 file, is damaged ({why}); write or download it again, or save the vectors with np.save."
        )
    if error is not None:
        out.write(json.dumps({"error": error}).encode() + b"\n")
    out.flush()


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the answers
    serve(sys.stdin.buffer.read(), answers)
