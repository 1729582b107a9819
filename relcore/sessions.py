"""A session: runs, stitchings and the spaces they were made from in one zip file, which opens on another machine.

``manifest.json`` says what is in it and names every file with its size and SHA-256. Everything else lies as under
:func:`relcore.store.home`: ``runs/ID``, ``stitchings/ID``, ``spaces/FINGERPRINT``. Arrays are .npy and .safetensors,
tables .parquet, the rest JSON: nothing in it can be run. A session is data from elsewhere: nothing is put in its place
before all of it was checked.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from relcore import __version__, memory, runs, stitchings, store
from relcore.errors import InputError
from relcore.space import Space

FORMAT = 1
ROOMS = ("runs", "stitchings", "spaces")
ENDINGS = (".json", ".jsonl", ".npy", ".safetensors", ".parquet")
PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,150}")
MOST_FILES = 100_000
MOST_MANIFEST = 64 << 20  # bytes
CHUNK = 1 << 20
STORED = (".npy", ".safetensors", ".parquet")  # numbers hardly shrink


@dataclass(frozen=True)
class Manifest:
    """What a session holds: ``runs`` and ``stitchings`` with id and title, and its size unpacked."""

    created: str
    relcore: str
    runs: tuple[dict[str, str], ...]
    stitchings: tuple[str, ...]
    spaces: tuple[dict[str, Any], ...]
    files: dict[str, tuple[int, str]] = field(repr=False)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for size, _ in self.files.values())


@dataclass(frozen=True)
class Opened:
    """What opening a session brought: ids of runs and stitchings as they are here, and what must be known."""

    runs: tuple[str, ...]
    stitchings: tuple[str, ...]
    notes: tuple[str, ...]


# ---------------------------------------------------------------- packing


def save(
    path: str | Path,
    of: Sequence[runs.Run],
    also: Sequence[stitchings.Stitching] = (),
    progress: Callable[[float], None] = lambda share: None,
) -> list[str]:
    """Write runs, stitchings and their spaces; return what is not in it, in words.

    The file is written beside ``path`` and takes its name when it is whole.

    Raises
    ------
    InputError
        A run is still going on, or there is nothing to save.
    OSError
        The disk is full; nothing is left behind, and an older file of that name stays.
    """
    if not of and not also:
        raise InputError("there is nothing to save: choose a run.")
    going = [r.title for r in of if r.active] + [k.id for k in also if k.active]
    if going:
        raise InputError(f"{going[0]} is still going on; stop it or wait for it, then save.")
    missing: list[str] = []
    references: dict[str, dict[str, Any]] = {}
    for run in of:
        for side in "xy":
            record = run.record[side]
            _want(references, record.get("kept"), record, f"run {run.title}, side {side}", missing)
    for kept in also:
        for record in kept.record["spaces"]:
            _want(references, record["kept"], record, f"stitching {kept.id}", missing)
    files = [(f"runs/{r.id}", p) for r in of for p in _files(r.folder)]
    files += [(f"stitchings/{k.id}", p) for k in also for p in _files(k.folder)]
    members = {f"{room}/{inside}": path for room, (inside, path) in files}
    for reference in references:
        folder, view = store.folder_of(reference), reference.partition(".")[2]
        for inside, source in _files(folder):
            if "/" not in inside or inside.startswith(f"{view}/"):  # of the views only the one that was used
                members[f"spaces/{folder.name}/{inside}"] = source
    path = Path(path).expanduser()
    total, done = sum(p.stat().st_size for p in members.values()) or 1, 0
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        listed = {}
        with os.fdopen(handle, "wb") as out, zipfile.ZipFile(out, "w") as z:
            for name, source in members.items():
                digest, size = hashlib.sha256(), 0
                info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
                info.compress_type = zipfile.ZIP_STORED if source.suffix in STORED else zipfile.ZIP_DEFLATED
                with open(source, "rb") as f, z.open(info, "w", force_zip64=True) as member:
                    while block := f.read(CHUNK):
                        member.write(block)
                        digest.update(block)
                        size += len(block)
                        done += len(block)
                        progress(min(1.0, done / total))
                listed[name] = [size, digest.hexdigest()]
            manifest = {
                "format": FORMAT,
                "relcore": __version__,
                "created": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
                "runs": [{"id": r.id, "title": r.title, "method": r.record["method"]} for r in of],
                "stitchings": [k.id for k in also],
                "spaces": [{"reference": r, "title": s["title"]} for r, s in references.items()],
                "files": listed,
            }
            z.writestr("manifest.json", json.dumps(manifest, indent=1), zipfile.ZIP_DEFLATED)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return missing


def _want(wanted: dict, reference: str | None, record: dict, whose: str, missing: list[str]) -> None:
    if reference and store.view_folder(reference).exists():
        wanted[reference] = record
    else:
        missing.append(f"{whose}: its vectors are not kept here, so they are not in the session; its results are")


def _files(folder: Path) -> list[tuple[str, Path]]:
    """What of a folder a session may hold, by the path inside it; temporary files are no part of it."""
    found = [(p.relative_to(folder).as_posix(), p) for p in sorted(folder.rglob("*")) if p.is_file()]
    return [(inside, p) for inside, p in found if _fits(f"runs/x/{inside}")]


def _fits(name: str) -> bool:
    """Whether a member may be called so."""
    parts = PurePosixPath(name).parts
    plain = name == "/".join(parts) and 3 <= len(parts) <= 5 and parts[0] in ROOMS
    return plain and all(map(PART.fullmatch, parts[1:])) and (parts[-1].endswith(ENDINGS) or parts[-1] == "latest")


# ---------------------------------------------------------------- opening


def look(path: str | Path) -> Manifest:
    """What is in a session, without unpacking it.

    Raises
    ------
    InputError
        No such file, no session, a damaged one, or one of a later format.
    """
    with _zip(path) as z:
        return _manifest(Path(path), z)


@contextmanager
def _zip(path: str | Path) -> Iterator[zipfile.ZipFile]:
    path = Path(path).expanduser()
    try:
        with zipfile.ZipFile(path) as z:
            yield z
    except FileNotFoundError:
        raise InputError(f"there is no file {path}; check the path.") from None
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, KeyError) as e:
        raise InputError(f"{path.name} is no session or a damaged one ({e}); save it again.") from None


def _manifest(path: Path, z: zipfile.ZipFile) -> Manifest:
    try:
        info = z.getinfo("manifest.json")
    except KeyError:
        raise InputError(f"{path.name} is a zip file without manifest.json, so no session of Relcore.") from None
    if info.file_size > MOST_MANIFEST:
        raise InputError(f"{path.name}: its manifest takes {memory.as_text(info.file_size)}, which no session has.")
    record = json.loads(z.read(info))
    if not isinstance(record, dict) or not isinstance(record.get("format"), int):
        raise InputError(f"{path.name}: manifest.json is not that of a session.")
    if record["format"] > FORMAT:
        raise InputError(
            f"{path.name} was saved by Relcore {record.get('relcore', '?')}, whose sessions this version "
            f"({__version__}) cannot read; update Relcore."
        )
    try:
        files = {str(name): (int(size), str(digest)) for name, (size, digest) in record["files"].items()}
        found = Manifest(
            str(record["created"]),
            str(record["relcore"]),
            tuple({k: str(v) for k, v in run.items()} for run in record["runs"]),
            tuple(map(str, record["stitchings"])),
            tuple(dict(s) for s in record["spaces"]),
            files,
        )
    except (KeyError, TypeError, AttributeError, ValueError) as e:
        raise InputError(f"{path.name}: manifest.json is damaged ({type(e).__name__}: {e}).") from None
    held = {m.filename: m for m in z.infolist() if m.filename != "manifest.json"}
    if len(held) != len(z.infolist()) - 1 or len(held) > MOST_FILES:
        raise InputError(f"{path.name}: {len(z.infolist()):,} members, some of one name or too many; save it again.")
    odd = next((name for name in files if not _fits(name)), None)
    if odd is not None:
        raise InputError(f"{path.name}: {odd!r} is no file of a session; nothing was opened.")
    differs = next((n for n in held.keys() ^ files.keys()), None) or next(
        (n for n, (size, _) in files.items() if held[n].file_size != size), None
    )
    if differs is not None:
        raise InputError(f"{path.name}: {differs!r} is not as the manifest has it; save the session again.")
    return found


def open_session(path: str | Path, progress: Callable[[float], None] = lambda share: None) -> Opened:
    """Bring what a session holds under :func:`relcore.store.home`. What is here already stays as it is; a run of the
    same id with other content gets a new id, and that is told.

    Raises
    ------
    InputError
        As :func:`look`; the disk is too small; a file is not what the manifest or the fingerprint says. Nothing is
        changed then.
    """
    path, home = Path(path).expanduser(), store.home()
    with _zip(path) as z:
        manifest = _manifest(path, z)
        free = shutil.disk_usage(home).free
        if manifest.size > free:
            raise InputError(
                f"{path.name} takes {memory.as_text(manifest.size)} unpacked, and {home} has "
                f"{memory.as_text(free)} free; make room, or set RELCORE_HOME to another disk."
            )
        with tempfile.TemporaryDirectory(dir=home, prefix=".opening-") as folder:
            here = Path(folder)
            _unpack(path, z, manifest, here, progress)
            for space in sorted((here / "spaces").glob("*")):
                _check_space(path, space)
            _check_records(path, here)
            return _put_in_place(here, home)


def _unpack(path: Path, z: zipfile.ZipFile, manifest: Manifest, here: Path, progress: Callable[[float], None]) -> None:
    done, total = 0, manifest.size or 1
    for name, (size, wanted) in manifest.files.items():
        target = here / name
        target.parent.mkdir(parents=True, exist_ok=True)
        digest, left = hashlib.sha256(), size
        with z.open(name) as member, open(target, "wb") as f:
            while block := member.read(min(CHUNK, left + 1)):
                left -= len(block)
                if left < 0:
                    break
                digest.update(block)
                f.write(block)
                done += len(block)
                progress(done / total)
        if left or digest.hexdigest() != wanted:
            raise InputError(f"{path.name}: {name!r} is damaged; nothing was opened. Copy or save the session again.")


def _check_space(path: Path, folder: Path) -> None:
    """A space is found by its fingerprint, so it must have it."""
    try:
        rows = json.loads((folder / "rows.json").read_text())
        columns = [
            None if rows[name] is None else np.array([*map(str, rows[name]), None], dtype=object)[:-1]
            for name in ("names", "labels")
        ]
        vectors = np.load(folder / "vectors.npy", mmap_mode="r", allow_pickle=False)
        ids = np.load(folder / "ids.npy", allow_pickle=False)
        found = Space(vectors, ids, columns[0], columns[1]).fingerprint
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise InputError(
            f"{path.name}: the space {folder.name[:8]} cannot be read ({e}); nothing was opened."
        ) from None
    if found != folder.name:
        raise InputError(f"{path.name}: the space {folder.name[:8]} is not what its name says; nothing was opened.")


def _check_records(path: Path, here: Path) -> None:
    for room, name, wanted in (("runs", "run.json", "status"), ("stitchings", "stitching.json", "status")):
        for folder in (here / room).glob("*"):
            try:
                record = json.loads((folder / name).read_text(encoding="utf-8"))
                sound = isinstance(record, dict) and wanted in record
            except (OSError, ValueError):
                sound = False
            if not sound:
                raise InputError(f"{path.name}: {room}/{folder.name} has no sound {name}; nothing was opened.")


def _put_in_place(here: Path, home: Path) -> Opened:
    notes: list[str] = []
    for space in (here / "spaces").glob("*"):
        target = home / "spaces" / space.name
        if not target.exists():
            target.parent.mkdir(exist_ok=True)
            os.replace(space, target)
            continue
        for view in (v for v in space.iterdir() if v.is_dir() and not (target / v.name).exists()):
            os.replace(view, target / view.name)
    named: dict[str, str] = {}
    for folder in sorted((here / "runs").glob("*")):
        named[folder.name] = _place_run(folder, home / "runs", notes)
    placed = []
    for folder in sorted((here / "stitchings").glob("*")):
        target = home / "stitchings" / folder.name
        if target.exists():
            notes.append(f"stitching {folder.name} is here already")
        else:
            record = json.loads((folder / "stitching.json").read_text(encoding="utf-8"))
            if isinstance(record.get("run"), dict):
                run = named.get(str(record["run"].get("id")), str(record["run"].get("id")))
                record["run"] |= {"id": run, "folder": str(home / "runs" / run)}
                store.write_json(folder / "stitching.json", record)
            target.parent.mkdir(exist_ok=True)
            os.replace(folder, target)
        placed.append(folder.name)
    return Opened(tuple(named.values()), tuple(placed), tuple(notes))


def _place_run(folder: Path, root: Path, notes: list[str]) -> str:
    """Move a run's folder to its place and return its id there."""
    root.mkdir(exist_ok=True)
    target = root / folder.name
    if not target.exists():
        os.replace(folder, target)
        return target.name
    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    title = record.get("title", folder.name)
    if _same(folder, target):
        notes.append(f"run {title} is here already")
        return target.name
    record["id"] = runs.new_id()
    store.write_json(folder / "run.json", record)
    os.replace(folder, root / record["id"])
    notes.append(f"run {title} has the id {record['id']} here: another run has its old one, {folder.name}")
    return record["id"]


def _same(folder: Path, other: Path) -> bool:
    """Whether two folders hold the same results; title and notes of a run may have been changed since."""
    names: Iterable[str] = [inside for inside, _ in _files(folder) if inside != "run.json"]
    return all((other / n).exists() and (folder / n).read_bytes() == (other / n).read_bytes() for n in names) and len(
        list(names)
    ) == len([1 for inside, _ in _files(other) if inside != "run.json"])
