"""Where Relcore keeps what it loaded: spaces by fingerprint, so that a worker or a later session finds them again."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np

from relcore.errors import InputError
from relcore.space import LoadReport, Space


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


def write_json(path: Path, record: dict) -> None:
    write_atomic(path, json.dumps(record, indent=1, allow_nan=False).encode())


def folder_of(fingerprint: str) -> Path:
    return home() / "spaces" / fingerprint


def put_space(space: Space, report: LoadReport) -> Path:
    """Keep a space under its fingerprint and return its folder; a space already there is left alone."""
    folder = folder_of(space.fingerprint)
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".new-"))
    try:
        np.save(temporary / "vectors.npy", space.vectors, allow_pickle=False)
        np.save(temporary / "ids.npy", space.ids, allow_pickle=False)
        rows = {
            "title": space.title,
            "names": space.names.tolist(),
            "labels": None if space.labels is None else space.labels.tolist(),
            "media": None if space.media is None else space.media.tolist(),
        }
        (temporary / "rows.json").write_text(json.dumps(rows))
        (temporary / "report.json").write_text(json.dumps(report.to_dict()))
        if space.meta is not None:
            space.meta.to_parquet(temporary / "meta.parquet")
        os.replace(temporary, folder)
    except OSError:
        if not folder.exists():  # else another session kept the same space first
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def get_space(fingerprint: str) -> tuple[Space, LoadReport]:
    """A kept space, its vectors memory-mapped, and its load report.

    Raises
    ------
    InputError
        If no space with that fingerprint is kept here.
    """
    folder = folder_of(fingerprint)
    if not (folder / "rows.json").exists():
        raise InputError(
            f"the data with fingerprint {fingerprint[:8]} are not kept in {folder.parent}; load the same file again."
        )
    rows = json.loads((folder / "rows.json").read_text())
    n = len(rows["names"])

    def column(values: list | None) -> np.ndarray | None:
        if values is None:
            return None
        out = np.empty(n, dtype=object)
        out[:] = values
        return out

    meta = None
    if (folder / "meta.parquet").exists():
        import pandas as pd

        meta = pd.read_parquet(folder / "meta.parquet")
    space = Space(
        vectors=np.load(folder / "vectors.npy", mmap_mode="r", allow_pickle=False),
        ids=np.load(folder / "ids.npy", allow_pickle=False),
        names=column(rows["names"]),
        labels=column(rows["labels"]),
        media=column(rows["media"]),
        meta=meta,
        title=rows["title"],
    )
    space.__dict__["fingerprint"] = fingerprint  # it names the folder, so it need not be hashed again
    return space, LoadReport.from_dict(json.loads((folder / "report.json").read_text()))
