"""A run on disk: a folder with parameters, history, alignment and analysis, readable whatever became of the run.

::

    run.json               what was asked, on which data (fingerprints), and what came of it
    pairs.safetensors      seeds and, where known, the truth: int64 (k, 2) row positions
    labels.json            labels of both sides, or null
    history.parquet        one row a step
    restarts.parquet       one row a restart and step, of a method that searches from many starts
    frames/NNN.npy         map of the moving side at step NNN, float32 (rows, 2); frames/fixed.npy the other side
    alignment.safetensors  coordinates, anchors, mixtures of seeds, map, encoders, coupling, preprocessing
    analysis.safetensors   what the pages read (see relcore.analysis)

Every file is written whole or not at all. Importing this module loads no torch.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import json
import os
import platform
import re
import secrets
import shutil
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from relcore import __version__, methods, store
from relcore.errors import InputError, RunFailed
from relcore.space import LoadReport, Pair, Pairs

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from relcore.methods.base import Restarts
    from relcore.ops.sinkhorn import Coupling
    from relcore.pipeline import Fit, Outcome, Task

VERSION = 1  # of the record; a later one may mean something else by the same names
ACTIVE = ("queued", "running", "paused")
MOST_RESTARTS = 256  # whose curves are read or kept in memory; a search may have a hundred thousand
USABLE = ("done", "cancelled")  # a cancelled run is usable when it kept an alignment
ID = re.compile(r"[0-9a-f]{8}")
FIELDS = {  # what every record has: one field of another kind would stop whatever lists the runs
    **dict.fromkeys(("id", "title", "created", "status", "method", "device"), str),
    **dict.fromkeys(("seed", "folds", "seeds"), int),
    **{"params": dict, "preprocess": list, "x": dict, "y": dict},
}
SIDE = {"fingerprint": str, "title": str, "rows": int, "dim": int, "report": dict}


@dataclass(frozen=True, eq=False)
class StoredProgress:
    """A :class:`relcore.pipeline.Progress` whose map went to disk: ``frame`` is the number of the newest one."""

    iteration: int
    total: int
    phase: str
    metrics: dict[str, float]
    frame: int | None
    seconds: float
    restarts: Restarts | None = None


@dataclass(frozen=True, eq=False)
class RestartCurves:
    """The restarts of a search over its steps, for a chart.

    Attributes
    ----------
    curves : for each restart (iterations, scores at the judging bandwidth); None where a score was not finite. Of
        more than :data:`MOST_RESTARTS` restarts those that scored highest at their last step.
    pruned : restart -> the step after which it was given up; of all restarts.
    best : the best so far, None while unknown.
    seen : how many restarts there are, with a curve here or not.
    """

    curves: dict[int, tuple[list[int], list[float | None]]]
    pruned: dict[int, int]
    best: int | None
    seen: int


class Run:
    """A run folder. ``record`` is the content of run.json."""

    def __init__(self, folder: Path, record: dict):
        self.folder, self.record = Path(folder), record

    @classmethod
    def load(cls, folder: str | Path) -> Run:
        """Open a run folder.

        Raises
        ------
        InputError
            If the folder holds no run, or an unreadable one.
        """
        path = Path(folder) / "run.json"
        try:
            record = json.loads(path.read_text())
        except FileNotFoundError:
            raise InputError(f"{folder}: no run here (run.json is missing); give the folder of a run.") from None
        except (OSError, ValueError) as e:
            raise InputError(f"{path}: cannot be read as the record of a run ({e}).") from None
        if not isinstance(record, dict) or "status" not in record or "method" not in record:
            raise InputError(f"{path}: is not the record of a run; give the folder of a run.")
        if record.get("version", VERSION) != VERSION:
            made = (record.get("versions") or {}).get("relcore", "another version")
            raise InputError(
                f"{folder}: this run was kept by Relcore {made} in a form (version {record['version']}) that "
                f"{__version__} does not know; update Relcore."
            )
        odd = fault(record)
        if odd:
            raise InputError(f"{path}: is not the record of a run ({odd}); take the folder away, or run again.")
        run = cls(Path(folder), record)
        if run.active and not alive(record.get("process")):
            before = "that had queued it" if run.status == "queued" else "that ran it"
            message = f"the process {before} is gone; kept is what was written before"
            run.record |= {"status": "failed", "message": message}
            with contextlib.suppress(OSError):  # on a full disk it is told again the next time
                run.mark("failed", message)
        return run

    @property
    def id(self) -> str:
        return self.record["id"]

    @property
    def title(self) -> str:
        return self.record["title"]

    @property
    def status(self) -> str:
        return self.record["status"]

    @property
    def active(self) -> bool:
        return self.status in ACTIVE

    @property
    def usable(self) -> bool:
        """Whether there is an alignment to look at."""
        return self.status in USABLE and (self.folder / "analysis.safetensors").exists() and not self.damage

    @cached_property
    def damage(self) -> str:
        """Which file of the run is missing or cut, in words; empty for a sound one."""
        kept = self.status == "done" or (self.folder / "analysis.safetensors").exists()
        for name in ("pairs", *(("alignment", "analysis") if kept else ())):
            path = self.folder / f"{name}.safetensors"
            if not path.exists():
                return f"{path.name} is missing"
            if not _whole(path):
                return f"{path.name} is cut or damaged"
        return ""

    def update(self, **fields: Any) -> None:
        self.record |= fields
        store.write_json(self.folder / "run.json", self.record)

    def mark(self, status: str, message: str = "") -> None:
        self.update(status=status, message=message)

    @cached_property
    def pairs(self) -> tuple[Pairs, Pairs | None]:
        """Seeds, and the truth where it is known."""
        arrays = _read_arrays(self.folder / "pairs.safetensors")
        truth = arrays.get("truth")
        return Pairs(arrays["seeds"]), None if truth is None else Pairs(truth)

    @cached_property
    def labels(self) -> dict[str, list[str] | None]:
        """Label of each row of x and y, ``""`` for none; None for a side without labels, and in older runs."""
        path = self.folder / "labels.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"x": None, "y": None}

    @cached_property
    def analysis(self) -> dict[str, np.ndarray]:
        return _read_arrays(self.folder / "analysis.safetensors")

    def alignment_arrays(self) -> dict[str, np.ndarray]:
        """``x``, ``y`` and, where they exist, ``anchors``, ``anchors_x``, ``anchors_y``, ``mixture``, ``map``,
        encoders, means."""
        return _read_arrays(self.folder / "alignment.safetensors")

    def mixture(self) -> np.ndarray | None:
        """Anchors as mixtures of the seeds, float32 (anchors, seeds); None where there are none, and in older runs."""
        from safetensors import safe_open

        path = self.folder / "alignment.safetensors"
        if not path.exists():
            return None
        with safe_open(path, framework="numpy") as file:  # the coordinates beside it may be large
            return file.get_tensor("mixture") if "mixture" in file.keys() else None  # noqa: SIM118  it is no dict

    def coupling(self) -> Coupling | None:
        """The plan between the rows of the two spaces; None where the method makes none."""
        from relcore.methods import kept

        return kept.coupling_of(_tensors(self.alignment_arrays()))

    def encoder(self, side: str, name: str = "encode") -> Callable[[np.ndarray], np.ndarray] | None:
        """What brings vectors never seen, as they are loaded, into the common space; None where there is nothing.

        Parameters
        ----------
        side : ``"x"`` or ``"y"``.
        name : ``"factor"`` gives factors of the coupling's cost instead of coordinates.
        """
        import torch

        from relcore.methods import kept
        from relcore.preprocess import Fitted

        arrays = _tensors(self.alignment_arrays())
        steps = tuple(self.record["preprocess"])
        before = Fitted(steps, tuple(arrays.get(f"preprocess_{side}_{i}") for i in range(len(steps))))
        encode = kept.encoder_of(f"{name}_{side}", arrays)
        if encode is None:
            return None
        return lambda v: encode(before(torch.from_numpy(np.array(v, dtype=np.float32)))).numpy()

    def history(self) -> pd.DataFrame | None:
        import pandas as pd

        path = self.folder / "history.parquet"
        return pd.read_parquet(path) if path.exists() else None

    def restarts(self) -> pd.DataFrame | None:
        """``iteration, restart, score, event, best``: a row for each restart a step told of.

        ``event`` is ``pruned`` where the restart was given up after the step, else empty; its ``score`` is NaN where
        the step did not score it. ``best`` is the best restart after the step, -1 while unknown.
        """
        import pandas as pd

        path = self.folder / "restarts.parquet"
        return pd.read_parquet(path) if path.exists() else None

    def restart_curves(self) -> RestartCurves | None:
        """Every point of the best :data:`MOST_RESTARTS` of :meth:`restarts`."""
        table = self.restarts()
        if table is None:
            return None
        scored = table[table["score"].notna() | (table["event"] == "")]
        last = scored.drop_duplicates("restart", keep="last").sort_values("score", ascending=False, kind="stable")
        best = int(table["best"].iloc[-1])
        kept = {best, *last["restart"].head(MOST_RESTARTS).tolist()}
        curves = {}
        for number, rows in scored[scored["restart"].isin(kept)].groupby("restart", sort=True):
            values = [v if np.isfinite(v) else None for v in rows["score"].tolist()]
            curves[int(number)] = (rows["iteration"].tolist(), values)
        gone = table[table["event"] == "pruned"]
        pruned = dict(zip(gone["restart"].tolist(), gone["iteration"].tolist(), strict=True))
        return RestartCurves(curves, pruned, best if best >= 0 else None, seen=table["restart"].nunique())

    def frame(self, number: int | None) -> np.ndarray | None:
        """Map of the moving side at a frame; None is the side that stands still."""
        path = self.folder / "frames" / ("fixed.npy" if number is None else f"{number:03d}.npy")
        return np.load(path, allow_pickle=False) if path.exists() else None

    def pair(self) -> Pair:
        """The two spaces, from where loaded data are kept.

        Raises
        ------
        InputError
            If they are not kept on this machine; says which to load.
        """
        spaces = []
        for side in "xy":
            try:
                spaces.append(store.get_space(self.record[side].get("kept") or self.record[side]["fingerprint"])[0])
            except InputError:
                source = self.record[side]["report"]["source"]
                raise InputError(
                    f"run {self.id}: side {side} was made from {source} (fingerprint "
                    f"{self.record[side]['fingerprint'][:8]}), which is not kept here; load it again."
                ) from None
        return Pair(*spaces, truth=self.pairs[1])

    def task(self) -> Task:
        from relcore.parallel import Workers
        from relcore.pipeline import Task

        r = self.record
        return Task(
            method=methods.method(r["method"], **r["params"]),
            seeds=self.pairs[0],
            preprocess=tuple(r["preprocess"]),
            seed=r["seed"],
            device=r["device"],
            folds=r["folds"],
            workers=Workers(r.get("jobs", 1), r.get("scheduler", "")),
        )


def fault(record: dict[str, Any]) -> str:
    """What of a record is missing or of the wrong kind, in words; empty for a sound one."""
    wanted = [(record, name, kind, name) for name, kind in FIELDS.items()]
    for side in "xy":
        if isinstance(record.get(side), dict):
            wanted += [(record[side], name, kind, f"{side}.{name}") for name, kind in SIDE.items()]
    for of, name, kind, words in wanted:
        if name not in of:
            return f"{words} is missing"
        if not isinstance(of[name], kind) or isinstance(of[name], bool):
            return f"{words} is {str(of[name])[:40]!r}"
    for side in "xy":
        kept = record[side].get("kept")
        if kept is not None and str(kept).partition(".")[0] != record[side]["fingerprint"]:
            return f"{side} is kept as {str(kept)[:40]!r}, which is other data"
    for name, value in record["params"].items():
        if not name.isidentifier() or not isinstance(value, str | int | float | None):
            return f"the parameter {name[:40]!r} is none"
    odd = next((step for step in record["preprocess"] if not isinstance(step, str)), None)
    return "" if odd is None else f"preprocess has {str(odd)[:40]!r}"


def new_id() -> str:
    return secrets.token_hex(4)


def create(
    pair: Pair,
    *,
    method: methods.Method,
    seeds: Pairs,
    preprocess: tuple[str, ...] = ("center", "unit"),
    seed: int = 0,
    device: str = "auto",
    folds: int = 3,
    reports: tuple[LoadReport, LoadReport],
    folder: Path | None = None,
    title: str = "",
    notes: tuple[str, ...] = (),
    seeds_origin: str = "",
    keep_spaces: bool = True,
    jobs: int = 1,
    scheduler: str = "",
) -> Run:
    """Write the folder of a run that waits to be executed.

    Parameters
    ----------
    folder : where; by default ``runs/ID`` under :func:`relcore.store.home`.
    notes : what the person must know about the input, such as a corrupted share of the seeds.
    seeds_origin : how the seeds came about, in words (:func:`relcore.seeds.origin`).
    keep_spaces : keep the spaces on disk, for a worker and later sessions; a command that runs on its own files
        need not.
    jobs, scheduler : where the run spreads its work (:class:`relcore.parallel.Workers`); no part of its result.

    Raises
    ------
    InputError
        If the method cannot work on these sizes, or the folder holds something that is not a run.
    """
    method.check(len(pair.x), len(pair.y), pair.x.dim, pair.y.dim, len(seeds))
    if (jobs > 1 or scheduler) and not method.spreads:
        able = [name for name in methods.REGISTRY if methods.method_class(name).spreads]
        raise InputError(f"{method.title} works in one process; several are for {', '.join(able) or 'no method yet'}.")
    run_id = new_id()
    folder = store.home() / "runs" / run_id if folder is None else Path(folder)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file; give a new folder for the run.")
    if folder.exists() and any(folder.iterdir()) and not (folder / "run.json").exists():
        raise InputError(f"{folder}: is not empty and holds no run; give a new folder.")
    if _going(folder):
        raise InputError(f"{folder}: a run is going on here; wait for it or stop it, or give another folder.")
    (folder / "frames").mkdir(parents=True, exist_ok=True)
    for old in [*folder.glob("frames/*.npy"), *folder.glob("*.safetensors"), *folder.glob("*.parquet")]:
        old.unlink()  # results of a run made here before
    sides = {}
    for side, space, report in zip("xy", (pair.x, pair.y), reports, strict=True):
        sides[side] = {
            "fingerprint": space.fingerprint,
            "kept": store.put_space(space, report) if keep_spaces else None,
            "title": space.title,
            "rows": len(space),
            "dim": space.dim,
            "report": report.to_dict(),
        }
    arrays = {"seeds": seeds.array}
    if pair.truth is not None:
        arrays["truth"] = pair.truth.array
    _write_arrays(folder / "pairs.safetensors", arrays)
    labels = {side: None if v.labels is None else list(v.labels) for side, v in (("x", pair.x), ("y", pair.y))}
    store.write_atomic(folder / "labels.json", json.dumps(labels).encode())
    run = Run(
        folder,
        {
            "version": VERSION,
            "id": run_id,
            "title": title or method.title,
            "created": dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"),
            "method": method.name,
            "params": method.params(),
            "preprocess": list(preprocess),
            "seed": seed,
            "device": device,
            "folds": folds,
            "jobs": jobs,
            "scheduler": scheduler,
            "seeds": len(seeds),
            "seeds_origin": seeds_origin,
            **sides,
            "status": "queued",
            "process": this_process(),
            "message": "",
            "notes": list(notes),
            "versions": versions(),
        },
    )
    run.update()
    return run


def execute(run: Run, pair: Pair | None = None) -> Generator[StoredProgress, None, None]:
    """Run it, writing as it goes. Closing the generator cancels: the last good snapshot is analysed and kept.

    Parameters
    ----------
    pair : the spaces, when they are at hand; else they are opened by fingerprint.

    Raises
    ------
    InputError, RunFailed
        After the folder is marked ``failed`` with the reason.
    """
    from relcore.pipeline import Fit

    run.update(status="running", message="", process=this_process())
    fit = None
    try:
        fit = Fit(run.pair() if pair is None else pair, run.task())
        run.update(references=fit.references)
        for p in fit.steps():
            number = None
            if p.frame is not None:
                if fit.frames == 1:
                    run.update(moving=fit.snapshot.moving)
                    store.write_npy(run.folder / "frames" / "fixed.npy", fit.fixed_map)
                number = fit.frames - 1
                store.write_npy(run.folder / "frames" / f"{number:03d}.npy", p.frame)
            yield StoredProgress(p.iteration, p.total, p.phase, p.metrics, number, p.seconds, p.restarts)
        for p in _finish(run, fit, "done"):
            yield StoredProgress(p.iteration, p.total, p.phase, p.metrics, None, p.seconds)
    except GeneratorExit:
        _keep_partial(run, fit, "cancelled", "cancelled")
        raise
    except RunFailed as e:
        _keep_partial(run, fit, "failed", str(e))
        raise
    except Exception as e:
        run.mark("failed", str(e) if isinstance(e, InputError) else f"{type(e).__name__}: {e}")
        raise


def _keep_partial(run: Run, fit: Fit | None, status: str, message: str) -> None:
    """Write what the last good snapshot gives, then the status."""
    if fit is not None and fit.stop_early():
        try:
            for _ in _finish(run, fit, status, message):
                pass
            return
        except RunFailed as e:
            message = f"{message}; the last step could not be kept: {e}"
    run.mark(status, message)


def _finish(run: Run, fit: Fit, status: str, message: str = ""):
    outcome = yield from fit.finish()
    save_outcome(run, fit, outcome)
    import resource

    import torch

    run.update(
        threads=torch.get_num_threads(),
        status=status,
        message=message,
        converged=outcome.alignment.converged,
        chosen=outcome.alignment.chosen,
        health=outcome.health,
        verdict={"level": outcome.verdict.level, "text": outcome.verdict.text},
        metrics=outcome.metrics,
        notes=[*run.record["notes"], *outcome.alignment.notes],
        steps=outcome.steps,
        seconds=round(outcome.seconds, 3),
        peak_memory_mb=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    )


def save_outcome(run: Run, fit: Fit, outcome: Outcome) -> None:
    """Write history, restarts, alignment and analysis of a run."""
    import pandas as pd

    from relcore.methods import kept

    _write_table(run.folder / "history.parquet", pd.DataFrame(fit.history))
    if any(len(r.ids) or len(r.pruned) for _, r in fit.restarts):
        _write_table(run.folder / "restarts.parquet", restart_table(fit.restarts))
    a = outcome.alignment
    arrays = {"x": a.x, "y": a.y, "anchors_x": a.anchors_x, "anchors_y": a.anchors_y, "mixture": a.mixture}
    arrays["map"] = a.map
    for name in ("encode_x", "encode_y", "factor_x", "factor_y"):
        arrays |= kept.encoder_arrays(name, getattr(a, name))
    if a.coupling is not None:
        arrays |= kept.coupling_arrays(a.coupling)
    for side, fitted in (("x", outcome.preprocess_x), ("y", outcome.preprocess_y)):
        for i, parameter in enumerate(fitted.parameters):
            arrays[f"preprocess_{side}_{i}"] = parameter  # None for a step that has none
    arrays = {k: v.numpy() for k, v in arrays.items() if v is not None}
    if a.anchors is not None:
        arrays["anchors"] = a.anchors.array
    _write_arrays(run.folder / "alignment.safetensors", arrays)
    _write_arrays(run.folder / "analysis.safetensors", outcome.arrays)


def restart_table(steps: list[tuple[int, Restarts]]) -> pd.DataFrame:
    """The table of :meth:`Run.restarts` from (iteration, restarts) of the steps that told of them."""
    import pandas as pd

    parts = []
    for iteration, r in steps:
        pruned = np.asarray(r.pruned, dtype=np.int32)
        silent = np.setdiff1d(pruned, r.ids).astype(np.int32)  # given up by what an earlier step said of them
        ids = np.concatenate([np.asarray(r.ids, dtype=np.int32), silent])
        scores = np.concatenate([np.asarray(r.scores, dtype=np.float32), np.full(len(silent), np.nan, np.float32)])
        gone = np.isin(ids, pruned)
        best = -1 if r.best is None else r.best
        parts.append((np.full(len(ids), iteration), ids, scores, gone, np.full(len(ids), best)))
    iteration, restart, score, gone, best = (np.concatenate(column) for column in zip(*parts, strict=True))
    return pd.DataFrame(
        {
            "iteration": iteration.astype(np.int32),
            "restart": restart,
            "score": score,
            "event": np.where(gone, "pruned", ""),
            "best": best.astype(np.int32),
        }
    )


def list_runs() -> list[Run]:
    """All readable runs under :func:`relcore.store.home`, newest first."""
    return survey()[0]


def survey() -> tuple[list[Run], dict[str, str]]:
    """All readable runs, newest first, and why each other folder is none, by its name."""
    found, unreadable = [], {}
    for folder in (store.home() / "runs").glob("*"):
        if folder.name.startswith("."):
            continue  # being written, or being taken away
        try:
            found.append(Run.load(folder))
        except InputError as e:
            unreadable[folder.name] = str(e)
    return sorted(found, key=lambda r: r.record["created"], reverse=True), unreadable


def rename(run: Run, title: str, annotation: str | None = None) -> None:
    """Give a run another title, and a note of its owner's.

    Raises
    ------
    InputError
        An empty title; or the run is going on, whose process would write its own record over this one.
    """
    if run.active:
        raise InputError(f"run {run.title} is going on; rename it when it has ended.")
    title = " ".join(title.split())
    if not title:
        raise InputError("a run needs a title; type one.")
    run.update(title=title[:200], **({} if annotation is None else {"annotation": annotation[:10_000]}))


def delete(run_id: str) -> None:
    """Take a run away, or what is left of one, for good.

    Raises
    ------
    InputError
        It is going on, or there is no such folder.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,80}", run_id):
        raise InputError(f"{run_id!r} is no run.")
    folder = store.home() / "runs" / run_id
    if not folder.is_dir():
        raise InputError(f"there is no run {run_id} in {folder.parent}; it may have been deleted before.")
    if _going(folder):
        raise InputError(f"run {run_id} is going on; stop it first.")
    gone = folder.with_name(f".deleted-{run_id}-{secrets.token_hex(4)}")
    os.replace(folder, gone)  # at once, whatever becomes of its files
    for left in folder.parent.glob(".deleted-*"):  # and of those whose deletion was killed
        shutil.rmtree(left, ignore_errors=True)


def _going(folder: Path) -> bool:
    try:
        return Run.load(folder).active
    except InputError:
        return False


def find(run_id: str) -> Run:
    """The run of that id under :func:`relcore.store.home`.

    Raises
    ------
    InputError
        If there is none.
    """
    if not ID.fullmatch(run_id):
        raise InputError(f"{run_id!r} is no run id (eight digits 0-9, a-f).")
    return Run.load(store.home() / "runs" / run_id)


def versions() -> dict[str, str]:
    names = ("torch", "numpy", "scikit-learn", "POT")
    return {"relcore": __version__, "python": platform.python_version()} | {n: metadata.version(n) for n in names}


def this_process() -> dict[str, int | str]:
    return {"pid": os.getpid(), "started": _start_time(os.getpid())}


def _start_time(pid: int) -> str:
    """When the process began, in the kernel's clock ticks: a reused pid has another. Empty where there is no /proc."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return "" if state == "Z" else fields[18]  # a zombie is dead, only not yet reaped
    except (OSError, IndexError):
        return ""


def alive(process: dict | None) -> bool:
    if not isinstance(process, dict) or not isinstance(process.get("pid"), int) or process["pid"] < 1:
        return False
    try:
        os.kill(process["pid"], 0)
    except ProcessLookupError:
        return False
    except OverflowError:
        return False
    except PermissionError:
        pass
    return _start_time(process["pid"]) == process.get("started")


def _write_table(path: Path, table: pd.DataFrame) -> None:
    buffer = io.BytesIO()
    table.to_parquet(buffer)
    store.write_atomic(path, buffer.getvalue())


def _write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    from safetensors.numpy import save

    store.write_atomic(path, save({k: np.ascontiguousarray(v) for k, v in arrays.items()}))


def _tensors(arrays: dict[str, np.ndarray]) -> dict[str, Tensor]:
    import torch

    return {name: torch.from_numpy(a) for name, a in arrays.items()}


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    if not path.exists():
        raise InputError(f"{path.parent}: {path.name} is missing; the run kept no result. Run it again.")
    if not _whole(path):
        raise InputError(f"{path}: is cut or damaged; run it again.")
    try:
        return load_file(path)
    except SafetensorError as e:
        raise InputError(f"{path}: is damaged ({e}); run it again.") from None


def _whole(path: Path) -> bool:
    """Whether a safetensors file has all the bytes that its header tells of."""
    try:
        with open(path, "rb") as f:
            length = int.from_bytes(f.read(8), "little")
            size = os.fstat(f.fileno()).st_size
            if length > size:
                return False
            header = json.loads(f.read(length))
        ends = [v["data_offsets"][1] for k, v in header.items() if k != "__metadata__"]
        return size == 8 + length + max(ends, default=0)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
