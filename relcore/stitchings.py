"""Stitchings on disk: a question, its results as they come, and what was predicted of each row.

A folder holds ``stitching.json`` (what was asked, of which data, and what became of it), ``results.jsonl`` (a line a
result of :meth:`relcore.stitching.Stitcher.steps`), ``items.npy`` (the rows of common items, where known),
``some_items.npy`` (of items that not all spaces have), ``labels.json``, ``test/DRAW_SPACE.npy`` (the rows tested) and
``predictions/N.npy`` (of result N, positions in ``classes``). Importing this module loads no torch.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import time
import uuid
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from relcore import __version__, runs, store
from relcore.errors import InputError
from relcore.runs import ACTIVE, StoredProgress, alive, this_process
from relcore.space import Spaces

if TYPE_CHECKING:
    import pandas as pd

    from relcore.formats.linear_head import LinearHead
    from relcore.stitching import Aligned, Settings, Stitcher


@dataclass(eq=False)
class Stitching:
    """The folder of a stitching."""

    folder: Path
    record: dict[str, Any] = field(repr=False)

    @classmethod
    def load(cls, folder: str | Path) -> Stitching:
        """
        Raises
        ------
        InputError
            The folder holds none, or an unreadable one.
        """
        path = Path(folder) / "stitching.json"
        try:
            kept = cls(Path(folder), json.loads(path.read_text(encoding="utf-8")))
            if kept.active and not alive(kept.record["process"]):
                kept.mark("failed", "the process that ran it is gone; the results it had are kept")
        except FileNotFoundError:
            raise InputError(f"{folder}: no stitching here (stitching.json is missing).") from None
        except (OSError, ValueError, KeyError, TypeError) as e:
            raise InputError(f"{path}: cannot be read as the record of a stitching ({e}).") from None
        return kept

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def status(self) -> str:
        return self.record["status"]

    @property
    def active(self) -> bool:
        return self.status in ACTIVE

    @property
    def settings(self) -> Settings:
        from relcore.stitching import Settings

        return Settings.from_dict(self.record["settings"])

    @property
    def classes(self) -> list[str]:
        return self.record["classes"]

    def update(self, **fields: Any) -> None:
        self.record |= fields
        store.write_json(self.folder / "stitching.json", self.record)

    def mark(self, status: str, message: str = "") -> None:
        self.update(status=status, message=message)

    def results(self) -> pd.DataFrame:
        """A row a result so far, numbered as they came. The line being written when the machine stopped is none."""
        import pandas as pd

        rows = []
        with contextlib.suppress(FileNotFoundError), open(self.folder / "results.jsonl", encoding="utf-8") as f:
            for line in f:
                with contextlib.suppress(ValueError):
                    rows.append(json.loads(line))
        first = ["representation", "decoder", "encoder", "draw", "error"]
        return pd.DataFrame(rows, columns=None if rows else first)

    def tested(self, draw: int, space: int) -> np.ndarray:
        """int64 row positions of a space that were tested."""
        return np.load(self.folder / "test" / f"{draw}_{space}.npy", allow_pickle=False)

    def predicted(self, number: int) -> np.ndarray:
        """int32 positions in :attr:`classes`, for the rows tested of the result's encoder."""
        return np.load(self.folder / "predictions" / f"{number}.npy", allow_pickle=False)

    def labels(self) -> list[list[str]]:
        """Of every space a label a row, as they were used."""
        return json.loads((self.folder / "labels.json").read_text(encoding="utf-8"))


def is_stitching(folder: str | Path) -> bool:
    return (Path(folder) / "stitching.json").exists()


def home() -> Path:
    return store.home() / "stitchings"


def list_stitchings() -> list[Stitching]:
    """Newest first; folders that cannot be read are left out."""
    found = []
    for path in home().glob("*/stitching.json"):
        with contextlib.suppress(InputError):
            found.append(Stitching.load(path.parent))
    return sorted(found, key=lambda k: k.record["created"], reverse=True)


def find(fingerprints: Sequence[str], run_id: str | None = None) -> Stitching | None:
    """The newest of these spaces in this order, with this run where one is given."""
    for kept in list_stitchings():
        run = (kept.record["run"] or {}).get("id")
        if [s["fingerprint"] for s in kept.record["spaces"]] == list(fingerprints) and run_id in (None, run):
            return kept
    return None


def aligned(run: runs.Run, spaces: Spaces, *, coordinates: bool = True) -> Aligned:
    """What a finished run made of two of the spaces; without ``coordinates`` they have no rows, but their width.

    Raises
    ------
    InputError
        The run has no alignment, or is of other data.
    """
    if not run.usable:
        raise InputError(f"run {run.title} is {run.status} and has no alignment to read; wait for it, or run another.")
    prints = [s.fingerprint for s in spaces.spaces]
    try:
        first = prints.index(run.record["x"]["fingerprint"])
        own = [None if i == first else p for i, p in enumerate(prints)]  # a space may be there twice
        second = own.index(run.record["y"]["fingerprint"])
    except ValueError:
        raise InputError(f"run {run.title} was made from other data; open those, or choose another run.") from None
    return alignment_of(run, first, second) if coordinates else _outline(run, first, second)


def alignment_of(run: runs.Run, first: int, second: int) -> Aligned:
    """A finished run's coordinates, of the spaces numbered so."""
    from relcore.stitching import Aligned

    arrays = run.alignment_arrays()
    return Aligned(first, second, arrays["x"], arrays["y"], run.pairs[0], run.title)


def _outline(run: runs.Run, first: int, second: int) -> Aligned:
    from safetensors import safe_open

    from relcore.stitching import Aligned

    with safe_open(run.folder / "alignment.safetensors", framework="numpy") as file:
        none = np.empty((0, file.get_slice("x").get_shape()[1]), dtype=np.float32)
    return Aligned(first, second, none, none, run.pairs[0], run.title)


def create(
    spaces: Spaces,
    settings: Settings,
    *,
    reports: Sequence[Any],
    run: runs.Run | None = None,
    head: LinearHead | None = None,
    labels: list[np.ndarray | None] | None = None,
    labels_title: str = "",
) -> Stitching:
    """Write the folder of a stitching that waits to be executed. The spaces are kept beside.

    ``labels`` as :class:`relcore.stitching.Stitcher` takes them, ``labels_title`` whose they are, in words.

    Raises
    ------
    InputError
        What is asked cannot be had of these data.
    """
    from relcore.stitching import Stitcher

    # the run's coordinates are read by the worker; what can be refused without them is refused here
    run_of = None if run is None else aligned(run, spaces, coordinates=False)
    question = Stitcher(spaces, settings, labels=labels, aligned=run_of, head=head)
    question.draw(0)
    folder = home() / f"{dt.datetime.now():%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:6]}"
    (folder / "test").mkdir(parents=True)
    (folder / "predictions").mkdir()
    if spaces.rows is not None:
        store.write_npy(folder / "items.npy", spaces.rows)
    if spaces.some is not None and len(spaces.some):
        store.write_npy(folder / "some_items.npy", spaces.some)
    if head is not None:
        named = question.head
        store.write_npy(folder / "head_weights.npy", named.weights)
        store.write_npy(folder / "head_offsets.npy", named.offsets)
    store.write_json(folder / "labels.json", [v.tolist() for v in question.labels])
    kept = Stitching(folder, {})
    kept.update(
        version=1,
        relcore=__version__,
        created=dt.datetime.now(dt.UTC).isoformat(timespec="microseconds"),
        settings=settings.to_dict(),
        spaces=[
            {
                "title": s.title,
                "fingerprint": s.fingerprint,
                "kept": store.put_space(s, report),
                "rows": len(s),
                "dim": s.dim,
            }
            for s, report in zip(spaces.spaces, reports, strict=True)
        ],
        items=None if spaces.rows is None else len(spaces.rows),
        items_digest=spaces.items_digest,
        run=None if run is None else {"id": run.id, "folder": str(run.folder), "title": run.title},
        head=None if head is None else {"source": head.source, "classes": list(question.head.classes)},
        classes=question.classes,
        labels=labels_title,
        notes=question.notes,
        total=len(question.units()),
        status="queued",
        message="",
        process=this_process(),
    )
    return kept


def question(kept: Stitching) -> Stitcher:
    """What was asked, with the data from where they are kept."""
    from relcore.formats.linear_head import LinearHead
    from relcore.stitching import Stitcher

    r = kept.record
    items = [kept.folder / name for name in ("items.npy", "some_items.npy")]
    rows, some = (np.load(path, allow_pickle=False) if path.exists() else None for path in items)
    spaces = Spaces(tuple(store.get_space(s["kept"])[0] for s in r["spaces"]), rows, some)
    head = None
    if r["head"] is not None:
        w, b = (np.load(kept.folder / f"head_{name}.npy", allow_pickle=False) for name in ("weights", "offsets"))
        head = LinearHead(w, b, tuple(r["head"]["classes"]), r["head"]["source"])
    run = None if r["run"] is None else runs.Run.load(r["run"]["folder"])
    labels = [np.array(v, dtype=object) for v in kept.labels()]
    return Stitcher(
        spaces, kept.settings, labels=labels, aligned=None if run is None else aligned(run, spaces), head=head
    )


def execute(kept: Stitching) -> Generator[StoredProgress, None, None]:
    """Work through it, keeping each result as it is there. Closing the generator cancels.

    Raises
    ------
    InputError
        After the folder is marked ``failed`` with the reason; results are kept.
    """
    began, done, written = time.monotonic(), 0, set()
    total = kept.record["total"]
    try:
        kept.update(status="running", message="", process=this_process())
        asked = question(kept)
        yield StoredProgress(0, total, "results", {}, None, 0.0)
        with open(kept.folder / "results.jsonl", "w", encoding="utf-8") as f:  # numbered as the predictions are
            for unit, result in zip(asked.units(), asked.steps(), strict=True):
                if unit in asked.predictions:
                    store.write_npy(kept.folder / "predictions" / f"{done}.npy", asked.predictions[unit])
                    if unit.draw not in written:  # of all spaces: where the decoder learned is shown too
                        for i, rows in enumerate(asked.draw(unit.draw).test):
                            store.write_npy(kept.folder / "test" / f"{unit.draw}_{i}.npy", rows)
                        written.add(unit.draw)
                f.write(json.dumps(_finite(result), allow_nan=False) + "\n")
                f.flush()
                done += 1
                yield StoredProgress(done, total, "results", {}, None, time.monotonic() - began)
        kept.mark("done")
    except GeneratorExit:
        kept.mark("cancelled", f"stopped with {done} of {total} results")
        raise
    except Exception as e:
        kept.mark("failed", str(e) if isinstance(e, InputError) else f"{type(e).__name__}: {e}")
        raise


def _finite(result: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN: a figure that is none is null."""
    return {k: None if isinstance(v, float) and not np.isfinite(v) else v for k, v in result.items()}
