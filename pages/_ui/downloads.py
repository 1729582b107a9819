"""The bytes behind the Export page's buttons: each makes one file of a run."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from pages._ui.maps import LETTERS
from relcore import export, formats, report, sessions, stitchings
from relcore.errors import InputError
from relcore.formats.registry import modules
from relcore.runs import Run
from relcore.space import Pair

if TYPE_CHECKING:
    from pages._ui import state
    from pages._ui.selection import Selection

ROOT = Path(__file__).resolve().parents[2]
TORCH = ("pt", "pth")  # made in a process of their own: the server loads no torch


def report_bytes(run: Run) -> bytes:
    return report.of_run(run).encode("utf-8", "replace")


def everything(run: Run, pair: Pair) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        export.write_all(run, pair, Path(folder) / "run")
        return zipped(Path(folder) / "run")


def zipped(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as z:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                z.write(path, path.relative_to(folder))
    return buffer.getvalue()


def session(run: Run) -> bytes:
    of_it = [k for k in stitchings.list_stitchings() if not k.active and (k.record["run"] or {}).get("id") == run.id]
    return temporary(lambda path: sessions.save(path, [run], of_it))


def temporary(write: Callable[[Path], object]) -> bytes:
    """What a function writes to the path it is given."""
    with tempfile.TemporaryDirectory() as folder:
        write(path := Path(folder) / "file.zip")
        return path.read_bytes()


def endings() -> dict[str, str]:
    """Every ending that something is written with, the first of each format."""
    return {m.ENDINGS[0][1:]: m.__name__.rpartition(".")[2] for m in modules() if hasattr(m, "write")}


def aligned(run: Run, pair: Pair, side: str, ending: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"aligned.{ending}"
        if ending not in TORCH:
            formats.write(export.aligned(run, pair, side), path)
            return path.read_bytes()
        between = Path(folder) / "between.npz"
        formats.write(export.aligned(run, pair, side), between)
        line = [sys.executable, "-P", "-m", "relcore", "convert", f"{between}:vectors", str(path)]
        done = subprocess.run(line, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
        if done.returncode:
            raise InputError(done.stderr.strip())
        return path.read_bytes()


def table(make: Callable, kind: str) -> bytes:
    frame = make()
    if kind == "csv":
        return export.csv_bytes(frame)[0]
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    return buffer.getvalue()


def record(run: Run) -> bytes:
    return (run.folder / "run.json").read_bytes()


def coordinates(run: Run) -> bytes:
    """Coordinates, map or encoders and the preprocessing's means, as the run keeps them."""
    return (run.folder / "alignment.safetensors").read_bytes()


def as_page(run: Run, what: str, make: Callable[[], str]) -> bytes:
    return report.page(f"{run.title}: {what}", report.subtitle(run), make()).encode("utf-8", "replace")


def svgs(run: Run) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as z:
        for name, text in report.charts(run).items():
            z.writestr(f"{name}.svg", text)
    return buffer.getvalue()


def selected(data: state.Data, chosen: Selection) -> pd.DataFrame:
    rows = [
        {"side": LETTERS[side], "row": int(i), "name": getattr(data, side).names[p]}
        for side, ids in (("x", chosen.x), ("y", chosen.y))
        for i, p in zip(ids, getattr(data, side).positions(ids), strict=True)
    ]
    return pd.DataFrame(rows, columns=["side", "row", "name"])


def recipe_zip(run: Run, pair: Pair) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        export.write_recipe(run, pair, Path(folder))
        return zipped(Path(folder))
