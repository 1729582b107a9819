"""Where Relcore keeps what it loaded: spaces by fingerprint, so that a worker or a later session finds them again."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from relcore.errors import InputError
from relcore.space import LoadReport, Pairs, Space

if TYPE_CHECKING:
    import pandas as pd

REFERENCE = re.compile(r"[A-Za-z0-9]+(\.[A-Za-z0-9]+)?")  # FINGERPRINT or FINGERPRINT.VIEW


def home() -> Path:
    """``$RELCORE_HOME``, or ``~/.relcore``. Made if it is not there."""
    path = Path(os.environ.get("RELCORE_HOME") or Path.home() / ".relcore")
    path.mkdir(parents=True, exist_ok=True)
    return path


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(data)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_npy(path: Path, array: np.ndarray) -> None:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    write_atomic(path, buffer.getvalue())


def write_json(path: Path, record: dict) -> None:
    write_atomic(path, json.dumps(record, indent=1, allow_nan=False).encode())


def folder_of(reference: str) -> Path:
    """Where a space is kept, by its fingerprint or by the reference of a view of it.

    Raises
    ------
    InputError
        It is no reference; one of a record from elsewhere may name any folder.
    """
    if not REFERENCE.fullmatch(reference):
        raise InputError(f"{reference[:80]!r} is no reference of kept data; load the data again.")
    return home() / "spaces" / reference.partition(".")[0]


def view_folder(reference: str) -> Path:
    return folder_of(reference) / reference.partition(".")[2]


def put_space(space: Space, report: LoadReport) -> str:
    """Keep a space and return the reference by which :func:`get_space` finds it: ``FINGERPRINT.VIEW``.

    ``spaces/FINGERPRINT`` holds the vectors, ids, names and labels once. What the fingerprint does not cover (title,
    thumbnails, metadata, load report) is a view of them in a folder of its own: the same vectors loaded with other
    thumbnails, or from another file, are another view.
    """
    kept = space.__dict__.get("kept_as")
    if kept is not None and view_folder(kept).exists():
        return kept
    folder = folder_of(space.fingerprint)
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _new_folder(folder) as temporary:
            np.save(temporary / "vectors.npy", space.vectors, allow_pickle=False)
            np.save(temporary / "ids.npy", space.ids, allow_pickle=False)
            _write(temporary / "rows.json", names=_as_list(space.names), labels=_as_list(space.labels))
    parts = {
        "view.json": json.dumps({"title": space.title, "media": _as_list(space.media)}).encode(),
        "report.json": json.dumps(report.to_dict() | {"aside_names": list(report.aside_names)}).encode(),
    }
    if space.meta is not None:
        parts["meta.parquet"] = _meta_bytes(space.meta)
    view = view_of(parts.values())
    if not (folder / view).exists():
        with _new_folder(folder / view) as temporary:
            for name, data in parts.items():
                (temporary / name).write_bytes(data)
    write_atomic(folder / "latest", view.encode())
    space.__dict__["kept_as"] = f"{space.fingerprint}.{view}"
    return space.__dict__["kept_as"]


def view_of(parts: Iterable[bytes]) -> str:
    """The name of a view, by the bytes of its files."""
    return hashlib.blake2b(b"\0".join(parts), digest_size=6).hexdigest()


def reference_of(space: Space) -> str:
    """The reference under which a space is kept; its fingerprint if it is not, or not from here."""
    return space.__dict__.get("kept_as") or space.fingerprint


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """A folder to fill, which takes its name when it is complete."""
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".new-{os.getpid()}-"))
    try:
        yield temporary
        os.replace(temporary, folder)
    except OSError:
        if not folder.exists():  # else another process kept the same first
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def sweep(pid: int) -> None:
    """Take away the unfinished folders of a process that is dead."""
    for folder in (home() / "spaces").glob(f"**/.new-{pid}-*"):
        shutil.rmtree(folder, ignore_errors=True)


def _write(path: Path, **fields: list | None) -> None:
    path.write_text(json.dumps(fields))


def _as_list(column: np.ndarray | None) -> list | None:
    return None if column is None else column.tolist()


def _meta_bytes(meta: pd.DataFrame) -> bytes:
    """Metadata as Parquet; a column that Parquet has no type for is kept as text."""

    def parquet(frame: pd.DataFrame) -> bytes:
        buffer = io.BytesIO()
        frame.to_parquet(buffer)
        return buffer.getvalue()

    frame = meta.copy(deep=False)
    frame.columns = _distinct([str(c) for c in meta.columns])
    for name in frame.columns:
        if frame[name].dtype == object:
            try:
                parquet(frame[[name]])
            except (TypeError, ValueError, OverflowError):  # pyarrow's errors are kinds of these
                frame[name] = [None if v is None else str(v) for v in frame[name]]
    return parquet(frame)


def _distinct(names: list[str]) -> list[str]:
    """The names, a repeated one with its number behind it."""
    out: list[str] = []
    for name in names:
        count, wanted = 1, name
        while wanted in out:
            count += 1
            wanted = f"{name} ({count})"
        out.append(wanted)
    return out


def get_space(reference: str) -> tuple[Space, LoadReport]:
    """A kept space, its vectors memory-mapped, and its load report.

    Parameters
    ----------
    reference : as :func:`put_space` returned it, or the fingerprint alone for the view kept last.

    Raises
    ------
    InputError
        No such space is kept here.
    """
    folder = folder_of(reference)
    fingerprint, _, view = reference.partition(".")
    gone = InputError(
        f"the data with fingerprint {fingerprint[:8]} are not kept in {folder.parent}; load the same file again."
    )
    try:
        view = view or (folder / "latest").read_text()
        if not view.isalnum():
            raise gone
        rows = json.loads((folder / "rows.json").read_text())
        look = json.loads((folder / view / "view.json").read_text())
        report = json.loads((folder / view / "report.json").read_text())
    except FileNotFoundError:
        raise gone from None
    n = len(rows["names"])

    def column(values: list | None) -> np.ndarray | None:
        if values is None:
            return None
        out = np.empty(n, dtype=object)
        out[:] = values
        return out

    meta = None
    if (folder / view / "meta.parquet").exists():
        import pandas as pd

        meta = pd.read_parquet(folder / view / "meta.parquet")
    space = Space(
        vectors=np.load(folder / "vectors.npy", mmap_mode="r", allow_pickle=False),
        ids=np.load(folder / "ids.npy", allow_pickle=False),
        names=column(rows["names"]),
        labels=column(rows["labels"]),
        media=column(look["media"]),
        meta=meta,
        title=look["title"],
    )
    space.__dict__["fingerprint"] = fingerprint  # it names the folder, so it need not be hashed again
    space.__dict__["kept_as"] = f"{fingerprint}.{view}"
    aside_names = tuple(report.pop("aside_names"))
    return space, replace(LoadReport.from_dict(report), aside_names=aside_names)


def put_pairs(pairs: Pairs, how: str, problems: list[str]) -> str:
    """Keep how the rows of two spaces correspond and return the digest by which :func:`get_pairs` finds it."""
    record = {"how": how, "problems": problems, "unique": pairs.unique, "pairs": pairs.array.tolist()}
    data = json.dumps(record).encode()
    digest = hashlib.blake2b(data, digest_size=8).hexdigest()
    folder = home() / "pairs"
    folder.mkdir(exist_ok=True)
    write_atomic(folder / f"{digest}.json", data)
    return digest


def get_pairs(digest: str, n: int, m: int) -> tuple[Pairs, str, list[str]]:
    """Kept pairs between n and m rows, how they were found, and what stood in the way.

    Raises
    ------
    InputError
        None are kept under that digest, or they are of other data.
    """
    path = home() / "pairs" / f"{digest}.json"
    if not digest.isalnum() or not path.exists():
        raise InputError(f"the pairs {digest[:16]!r} are not kept in {path.parent}; pair the rows again.")
    record = json.loads(path.read_text())
    pairs = Pairs(np.array(record["pairs"], dtype=np.int64).reshape(-1, 2), unique=record["unique"])
    if len(pairs) and (pairs.x.max() >= n or pairs.y.max() >= m):
        raise InputError(f"the pairs {digest} belong to other data; pair the rows again.")
    return pairs, record["how"], record["problems"]


def put_selection(x: np.ndarray, y: np.ndarray, origin: str) -> str:
    """Keep the row ids of a selection and return the digest by which :func:`get_selection` finds it."""
    data = json.dumps({"x": x.tolist(), "y": y.tolist(), "origin": origin}).encode()
    digest = hashlib.blake2b(data, digest_size=8).hexdigest()
    folder = home() / "selections"
    folder.mkdir(exist_ok=True)
    if not (folder / f"{digest}.json").exists():
        write_atomic(folder / f"{digest}.json", data)
    return digest


def get_selection(digest: str) -> tuple[np.ndarray, np.ndarray, str]:
    """Row ids of x and y of a kept selection, int64, and where it came from.

    Raises
    ------
    InputError
        None is kept under that digest.
    """
    path = home() / "selections" / f"{digest}.json"
    if not digest.isalnum() or not path.exists():
        raise InputError(f"the selection {digest[:16]!r} is not kept in {path.parent}; select the rows again.")
    record = json.loads(path.read_text())
    return *(np.array(record[side], dtype=np.int64) for side in "xy"), record["origin"]
