"""A session: runs, stitchings and the spaces they were made from in one zip file, which opens on another machine.

``manifest.json`` says what is in it and names every file with its size and SHA-256. Everything else lies as under
:func:`relcore.store.home`: ``runs/ID``, ``stitchings/ID``, ``spaces/FINGERPRINT``. Arrays are .npy and .safetensors,
tables .parquet, the rest JSON: nothing in it can be run. A session is data from elsewhere: nothing is put in its place
before all of it was checked.
"""

from __future__ import annotations

import datetime as dt
import filecmp
import hashlib
import json
import lzma
import os
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from relcore import __version__, memory, runs, stitchings, store
from relcore.errors import InputError
from relcore.space import LoadReport, Space

FORMAT = 1
ROOMS = ("runs", "stitchings", "spaces")
ENDINGS = (".json", ".jsonl", ".npy", ".safetensors", ".parquet")
PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,150}")
MOST_FILES = 100_000
MOST_MANIFEST = 64 << 20  # bytes
MOST_TEXT = 0.1  # of the memory that is free, for one text file: it is read whole
MOST_RECORD = 64 << 20  # bytes of run.json and the like
SPARE = 0.05  # of the disk that is free stays so
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
    hurt = [f"{r.title} is damaged: {r.damage}" for r in of if r.damage]
    if hurt:
        raise InputError(f"{hurt[0]}; leave it out, or run it again.")
    twice = [r.title for i, r in enumerate(of) if r.id in {other.id for other in of[:i]}]
    if twice:
        raise InputError(f"{twice[0]}: another run given has the same id; save them in two sessions.")
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
            if inside != "latest" and ("/" not in inside or inside.startswith(f"{view}/")):  # the views used alone
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
    if isinstance(reference, str) and reference and store.view_folder(reference).exists():
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


def _clash(names: Iterable[str]) -> str | None:
    """A name that some file system takes for another one, or for a folder that another lies in."""
    seen = set()
    folders = {str(parent).lower() for name in names for parent in PurePosixPath(name).parents}
    for name in names:
        if name.lower() in seen or name.lower() in folders:
            return name
        seen.add(name.lower())
    return None


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


BROKEN = (  # what Python's zip, JSON and decompressors raise on damaged bytes
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError),
    *(ValueError, KeyError, OverflowError),
)


@contextmanager
def _zip(path: str | Path) -> Iterator[zipfile.ZipFile]:
    path = Path(path).expanduser()
    try:
        with zipfile.ZipFile(path) as z:
            yield z
    except FileNotFoundError:
        raise InputError(f"there is no file {path}; check the path.") from None
    except InputError:  # it says what is wrong itself
        raise
    except BROKEN as e:
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
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as e:
        raise InputError(f"{path.name}: manifest.json is damaged ({type(e).__name__}: {e}).") from None
    held = {m.filename: m for m in z.infolist() if m.filename != "manifest.json"}
    if len(held) != len(z.infolist()) - 1 or len(held) > MOST_FILES:
        raise InputError(f"{path.name}: {len(z.infolist()):,} members, some of one name or too many; save it again.")
    odd = next((name for name in files if not _fits(name)), None) or _clash(files)
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
        if manifest.size > free * (1 - SPARE):
            raise InputError(
                f"{path.name} takes {memory.as_text(manifest.size)} unpacked, and {home} has "
                f"{memory.as_text(free)} free; make room, or set RELCORE_HOME to another disk."
            )
        _tidy(home)
        with tempfile.TemporaryDirectory(dir=home, prefix=f".opening-{os.getpid()}-") as folder:
            here = Path(folder)
            _unpack(path, z, manifest, here, progress)
            for space in sorted((here / "spaces").glob("*")):
                _check_space(path, space)
            _check_records(path, here)
            return _put_in_place(here, home)


def _tidy(home: Path) -> None:
    """Take away what an opening left that was killed."""
    for left in home.glob(".opening-*-*"):
        owner = left.name.split("-")[1]
        if owner.isdecimal() and not Path(f"/proc/{owner}").exists() and Path("/proc/self").exists():
            shutil.rmtree(left, ignore_errors=True)


def _unpack(path: Path, z: zipfile.ZipFile, manifest: Manifest, here: Path, progress: Callable[[float], None]) -> None:
    done, total = 0, manifest.size or 1
    most = int(MOST_TEXT * memory.available())
    for name, (size, _) in manifest.files.items():
        allowed = most if name.endswith(("/rows.json", "/view.json", "/labels.json")) else MOST_RECORD
        if name.endswith((".json", "/latest")) and size > allowed:
            raise InputError(
                f"{path.name}: {name!r} takes {memory.as_text(size)}, and at most {memory.as_text(allowed)} of text "
                "can be read here; open it where more memory is free."
            )
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
    """A space is found by its fingerprint, so it must have it, and be read as it was hashed. So must its views."""
    try:
        rows = json.loads((folder / "rows.json").read_text())
        vectors = np.load(folder / "vectors.npy", mmap_mode="r", allow_pickle=False)
        ids = np.load(folder / "ids.npy", allow_pickle=False)
        columns = [_column(rows[name], len(vectors)) for name in ("names", "labels")]
        if columns[0] is None:
            raise ValueError("it has no names")
        if vectors.dtype != np.dtype("<f4") or vectors.ndim != 2 or not vectors.flags.c_contiguous:
            raise ValueError(f"vectors of {vectors.dtype}, {vectors.shape}")
        if ids.dtype != np.dtype("<i8") or ids.shape != vectors.shape[:1] or len(np.unique(ids)) < len(ids):
            raise ValueError(f"row numbers of {ids.dtype}, {ids.shape}")
        if not all(np.isfinite(part).all() and part.any(1).all() for part in _blocks(vectors)):
            raise ValueError("a row is zero or not finite")
        found = Space(vectors, ids, columns[0], columns[1]).fingerprint
        views = [view for view in folder.iterdir() if view.is_dir()]
        if not views:
            raise ValueError("it has no view")
        for view in views:
            _check_view(view, len(vectors))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, InputError) as e:
        raise InputError(
            f"{path.name}: the space {folder.name[:8]} cannot be read ({e}); nothing was opened."
        ) from None
    if found != folder.name:
        raise InputError(f"{path.name}: the space {folder.name[:8]} is not what its name says; nothing was opened.")


def _blocks(vectors: np.ndarray) -> Iterator[np.ndarray]:
    step = max(1, (16 << 20) // vectors.shape[1] if vectors.shape[1] else 1)
    return (vectors[i : i + step] for i in range(0, len(vectors), step))


def _column(values: Any, n: int) -> np.ndarray | None:
    """Names, labels or media of n rows."""
    if values is None:
        return None
    if not isinstance(values, list) or len(values) != n or not all(isinstance(v, str) for v in values):
        raise ValueError(f"it has other than {n:,} texts")
    out = np.empty(n, dtype=object)
    out[:] = values
    return out


def _check_view(folder: Path, n: int) -> None:
    """A view is found by the digest of its files (:func:`relcore.store.put_space`)."""
    names = [name for name in ("view.json", "report.json", "meta.parquet") if (folder / name).exists()]
    if names[:2] != ["view.json", "report.json"] or store.view_of((folder / v).read_bytes() for v in names) != (
        folder.name
    ):
        raise ValueError(f"the view {folder.name[:12]} is not what its name says")
    view, report = (json.loads((folder / name).read_text()) for name in names[:2])
    _column(view["media"], n)
    if not isinstance(view["title"], str):
        raise ValueError("its title is no text")
    report.pop("aside_names")
    LoadReport.from_dict(report)
    if "meta.parquet" in names:
        import pyarrow.parquet

        meta = folder / "meta.parquet"
        if pyarrow.parquet.read_metadata(meta).num_rows != n or not _readable(meta):
            raise ValueError("its metadata are of other rows")


def _check_records(path: Path, here: Path) -> None:
    def refuse(folder: Path, why: str) -> InputError:
        return InputError(
            f"{path.name}: {folder.parent.name}/{folder.name} has no sound record ({why}); nothing was opened."
        )

    for folder in sorted((here / "runs").glob("*")):
        record = _record(folder / "run.json", refuse)
        version = record.get("version", runs.VERSION)
        if version != runs.VERSION:
            raise refuse(folder, f"it is of version {version}, which this Relcore does not know")
        why = runs.fault(record)
        if not why and (not runs.ID.fullmatch(folder.name) or record["id"] != folder.name):
            why = f"its id is {record['id'][:40]!r}"
        run = runs.Run(folder, record)
        why = why or ("it has not ended" if run.active else "") or run.damage
        why = why or next((f"{p.name} is damaged" for p in folder.glob("*.safetensors") if not _sound(p)), "")
        why = why or _fault_of_pairs(run) or _fault_of_sides(run, here)
        why = why or next((f"{p.name} is too large" for p in folder.glob("*.parquet") if not _readable(p)), "")
        if why:
            raise refuse(folder, why)
    for folder in sorted((here / "stitchings").glob("*")):
        record = _record(folder / "stitching.json", refuse)
        try:
            texts = [record["created"], record["status"], *(s["fingerprint"] for s in record["spaces"])]
            kept = [s.get("kept") for s in record["spaces"]]
            sound = all(isinstance(v, str) for v in texts) and isinstance(record.get("run"), dict | None)
            sound &= all(k is None or isinstance(k, str) and store.REFERENCE.fullmatch(k) for k in kept)
        except (KeyError, TypeError, AttributeError):
            sound = False
        if not sound or record["status"] in runs.ACTIVE:
            raise refuse(folder, "a field is missing or odd")


def _fault_of_sides(run: runs.Run, here: Path) -> str:
    """A side must have the rows and numbers that its space has, in the session or kept here."""
    for side in "xy":
        record = run.record[side]
        for spaces in (here / "spaces", store.home() / "spaces"):
            vectors = spaces / record["fingerprint"] / "vectors.npy"
            if store.REFERENCE.fullmatch(record["fingerprint"]) and vectors.exists():
                shape = np.load(vectors, mmap_mode="r", allow_pickle=False).shape
                if shape != (record["rows"], record["dim"]):
                    told = f"{record['rows']:,} x {record['dim']:,}"
                    return f"{side} is said to be {told} and is {' x '.join(map('{:,}'.format, shape))}"
    return ""


def _sound(arrays: Path) -> bool:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(arrays, framework="numpy") as file:
            return file.keys() is not None
    except (SafetensorError, OSError):
        return False


def _readable(table: Path) -> bool:
    """Whether a table fits into memory: a short file may tell of any number of equal rows."""
    import pyarrow.parquet

    told = pyarrow.parquet.read_metadata(table)
    return told.num_rows * told.num_columns * 16 < memory.available() / 2


def _record(file: Path, refuse: Callable[[Path, str], InputError]) -> dict[str, Any]:
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise refuse(file.parent, f"{file.name} cannot be read")
    return record


def _fault_of_pairs(run: runs.Run) -> str:
    """Seeds and true pairs must be rows that there are."""
    for pairs in run.pairs:
        for side, rows in zip("xy", () if pairs is None else pairs.array.T, strict=False):
            if len(rows) and not (0 <= rows.min() and rows.max() < run.record[side]["rows"]):
                return f"a pair has a row of {side} that there is not"
    return ""


def _put_in_place(here: Path, home: Path) -> Opened:
    notes: list[str] = []
    for space in (here / "spaces").glob("*"):
        target = home / "spaces" / space.name
        if not target.exists():
            target.parent.mkdir(exist_ok=True)
            latest = min(view.name for view in space.iterdir() if view.is_dir())
            (space / "latest").write_text(latest)  # which one this was elsewhere means nothing here
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
            told = "is here already" if _same(folder, target) else "was left out: another one of that name is here"
            notes.append(f"stitching {folder.name} {told}")
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
    records = ("run.json", "stitching.json")
    first, second = ({inside for inside, _ in _files(of) if inside not in records} for of in (folder, other))
    return first == second and all(filecmp.cmp(folder / n, other / n, shallow=False) for n in first)
