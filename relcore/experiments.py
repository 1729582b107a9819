"""Sweeps: methods by seed budgets, pool sizes, overlaps, corrupted shares and random seeds, a run each, in one table.

A sweep is a TOML file::

    name = "corruption"                       # also of its folder
    title = "Robust to wrong seeds"
    description = "..."
    preprocess = "center,unit"                # default
    folds = 0                                 # default: no held-out check
    seeds = [100, 1000]                       # budgets, drawn from the true pairs
    corruption = [0, 0.5, 0.95]               # shares of the seeds given a partner of another class; default [0]
    random_seeds = [0, 1, 2]                  # of every random choice; default [0]
    pool = [200, 800]                         # rows a side beside seeds and test pairs; default: all rows as they are.
                                              # Partners are then looked for among the test rows alone
    overlap = [0, 0.5, 1]                     # share of a pool that both sides have, unknown to the method; default [1]
    test = 200                                # pairs that are scored, where there is a pool; default 200

    [data]                                    # sample, or x and y with pair_by or pairs as of the align command
    sample = "fashion"

    [[methods]]
    name = "hga"
    label = "HGA"                             # default: the method's title
    params = { mode = "paper" }               # default: none
    grid = { restarts = [8, 32] }             # one parameter of it that takes several values; default: none
    by = "coupling"                           # neighbours by its plan; default: "nearest", by cosine

Each :class:`Cell` of it is one alignment, made by :func:`run_cell` in whatever process; its row of figures is appended
to ``rows.jsonl`` in the sweep's folder as soon as it is there. A sweep that is started again makes the cells that are
missing or failed. Importing this module loads no torch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import difflib
import fcntl
import hashlib
import itertools
import json
import os
import re
import time
import tomllib
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from relcore import __version__, formats, methods, parallel, samples, seeds, store
from relcore.errors import InputError, RelcoreError
from relcore.preprocess import DEFAULT, parse_steps
from relcore.runs import ACTIVE, StoredProgress, alive, this_process
from relcore.space import NO_LABEL, Pair, Pairs

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from relcore.ops.sinkhorn import Coupling

SHIPPED = Path(__file__).resolve().parent / "sweeps"
MOST_CELLS = 10_000
WAYS = ("x_to_y", "y_to_x")
SCORES = ("r@1", "r@10", "mrr")
CONFIDENCE = ("score", "fit", "margin", "votes", "restarts")
TEST = 200  # pairs that are scored beside a pool
KEYS = {
    *("name", "title", "description", "data", "methods", "seeds", "corruption", "random_seeds", "preprocess", "folds"),
    *("device", "pool", "overlap", "test"),
}
AXES = {
    "seeds": "seed budget",
    "corruption": "share of wrong seeds",
    "pool": "pool size",
    "overlap": "share of the pool that both sides have",
    "varied": "parameter",
}
ENTRANT = ("name", "label", "params", "grid", "by")
BY = ("nearest", "coupling")  # how a method's neighbours are read
LABELS = "stitching"  # figures that need labels begin so


@dataclass(frozen=True)
class Data:
    """Which two spaces, in words that a worker on another machine can follow.

    Either ``sample``; or ``x`` and ``y``, files with ``pair_by`` (row, name or none) or a file of ``pairs``; or, with
    ``kept``, references of the store (:mod:`relcore.store`) with the digest of kept ``pairs``.
    """

    sample: str = ""
    x: str = ""
    y: str = ""
    x_labels: str = ""
    y_labels: str = ""
    pair_by: str = "row"
    pairs: str = ""
    kept: bool = False

    def open(self) -> Pair:
        """The pair; it stays in memory for the next cell.

        Raises
        ------
        InputError
            A file cannot be read, or nothing pairs the rows.
        """
        return _open(self, self._stamps())

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        """When the files were written and how long they are, so that other content is read anew."""
        if self.sample or self.kept:
            return ()
        files = [v for v in (self.x, self.y, self.x_labels, self.y_labels, self.pairs) if v]
        found = [p.stat() for p in (formats.split_spec(v)[0] for v in files) if p.exists()]
        return tuple((s.st_mtime_ns, s.st_size) for s in found)


@lru_cache(maxsize=1)
def _open(data: Data, stamps: tuple[tuple[int, int], ...]) -> Pair:
    if data.sample:
        return samples.open_sample(data.sample).pair
    if data.kept:
        (x, _), (y, _) = (store.get_space(reference) for reference in (data.x, data.y))
        return Pair(x, y, store.get_pairs(data.pairs, len(x), len(y))[0] if data.pairs else None)
    loaded = [formats.load(getattr(data, s), labels=getattr(data, f"{s}_labels") or None) for s in "xy"]
    (x, report_x), (y, report_y) = loaded
    if data.pairs:
        found = seeds.read_pairing(Path(data.pairs), x, y, report_x, report_y)
    else:
        found = seeds.pairing(x, y, data.pair_by, report_x=report_x, report_y=report_y)
    if not found.pairs and (data.pairs or data.pair_by != "none"):
        why = found.problems[0] if found.problems else "no row has a partner"
        raise InputError(f"the rows of {data.x} and {data.y} could not be paired ({why}); give pair_by or pairs.")
    return Pair(x, y, found.pairs)


Param = tuple[str, str | int | float | bool]


@dataclass(frozen=True)
class Entrant:
    """A method with its parameters, as a sweep names it."""

    method: str
    label: str
    params: tuple[Param, ...] = ()
    grid: tuple[str, tuple[str | int | float | bool, ...]] | None = None
    by: str = BY[0]

    def settings(self) -> list[tuple[Param, ...]]:
        """Parameters of each value of the grid; one set without a grid."""
        if self.grid is None:
            return [self.params]
        name, values = self.grid
        return [tuple(sorted((dict(self.params) | {name: value}).items())) for value in values]

    def build(self) -> list[methods.Method]:
        """The method of each of its settings."""
        return [methods.method(self.method, **dict(params)) for params in self.settings()]

    def varied(self, cell: Cell) -> str | int | float | bool | None:
        """The value of the grid that a cell has."""
        return None if self.grid is None else dict(cell.params)[self.grid[0]]


@dataclass(frozen=True)
class Cell:
    """One alignment of a sweep. A field added later must have a default, and changes no key where it keeps it."""

    method: str
    params: tuple[Param, ...] = ()
    seeds: int = 0
    corruption: float = 0.0
    seed: int = 0
    pool: int = 0
    overlap: float = 1.0
    test: int = 0
    by: str = "nearest"

    @property
    def key(self) -> str:
        """Stable name: of what determines the result, with the parameters that were left to their defaults."""
        told = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if getattr(self, f.name) != f.default}
        told["params"] = _resolved(self.method, self.params)
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Sweep:
    """What to run. Cells go through the random seeds outermost, so that whole curves are there early."""

    name: str
    data: Data
    entrants: tuple[Entrant, ...]
    seeds: tuple[int, ...]
    corruption: tuple[float, ...] = (0.0,)
    random_seeds: tuple[int, ...] = (0,)
    pool: tuple[int, ...] = (0,)
    overlap: tuple[float, ...] = (1.0,)
    test: int = TEST
    preprocess: tuple[str, ...] = DEFAULT
    folds: int = 0
    device: str = "cpu"
    title: str = ""
    description: str = ""

    def cells(self) -> dict[str, tuple[Entrant, Cell]]:
        """By key. Without seeds there is nothing to corrupt, so a budget of 0 has one cell for all shares."""
        return dict(_cells(self))

    def to_dict(self) -> dict[str, Any]:
        record = dataclasses.asdict(self)
        record["methods"] = [
            {"name": e.method, "label": e.label, "params": dict(e.params)}
            | ({} if e.grid is None else {"grid": {e.grid[0]: list(e.grid[1])}})
            | ({} if e.by == BY[0] else {"by": e.by})
            for e in self.entrants
        ]
        del record["entrants"]
        if self.pool == (0,):
            del record["pool"], record["overlap"], record["test"]
        return json.loads(json.dumps(record | {"preprocess": ",".join(self.preprocess) or "none"}))

    def on(self, data: Data) -> tuple[Sweep, list[str]]:
        """The same on other data, without the budgets those cannot give; and a sentence on each thing left out."""
        pair = data.open()
        known = 0 if pair.truth is None else len(pair.truth)
        least = self.wanted(0, min(self.pool))
        fits = tuple(budget for budget in self.seeds if budget + least <= known)
        if not fits:
            raise InputError(
                f"the sweep {self.name} wants {self.wanted(min(self.seeds), min(self.pool)):,} true pairs or more, and "
                f"{known:,} are known here; pair more rows on the Data page, or sweep smaller budgets."
            )
        pools = tuple(pool for pool in self.pool if self.wanted(max(fits), pool) <= known)
        if not pools:  # fewer seeds leave room for a pool
            pools = (min(self.pool),)
            fits = tuple(budget for budget in fits if self.wanted(budget, pools[0]) <= known)
        told = f": {known:,} true pairs are known here"
        notes = [f"{budget:,} seeds are left out{told}" for budget in self.seeds if budget not in fits]
        notes += [f"a pool of {pool:,} is left out{told}" for pool in self.pool if pool not in pools]
        return dataclasses.replace(self, data=data, seeds=fits, pool=pools), notes

    def axes(self) -> dict[str, str]:
        """What takes several values, with the words for it; a curve can be drawn along each."""
        several = {a for a in ("seeds", "corruption", "pool", "overlap") if len(getattr(self, a)) > 1}
        grids = list(dict.fromkeys(e.grid[0] for e in self.entrants if e.grid is not None))
        words = {a: text for a, text in AXES.items() if a in several}
        return words | ({"varied": " / ".join(grids)} if grids else {})

    def wanted(self, seeds: int, pool: int) -> int:
        """How many true pairs a cell is made of: its seeds, and where it has a pool, test pairs and both pools."""
        return seeds + (0 if not pool else self.test + pool + (pool - round(min(self.overlap) * pool)))

    def check(self) -> Pair:
        """Open the data and refuse what no cell could do.

        Raises
        ------
        InputError
        """
        pair = self.data.open()
        known = 0 if pair.truth is None else len(pair.truth)
        if max(self.seeds) > known:
            raise InputError(
                f"{self.name}: seeds holds {max(self.seeds):,}, and {known:,} true pairs are known; ask for fewer, or "
                "say how rows pair up."
            )
        most = self.wanted(max(self.seeds), max(self.pool))
        if most > known:
            raise InputError(
                f"{self.name}: {max(self.seeds):,} seeds, {self.test:,} test pairs and two pools of "
                f"{max(self.pool):,} take {most:,} true pairs, and {known:,} are known; ask for smaller pools."
            )
        faults: list[InputError] = []
        places = list(itertools.product(self.seeds, self.pool))
        built = [method for entrant in self.entrants for method in entrant.build()]
        for method, (budget, pool) in itertools.product(built, places):
            try:
                method.check(*self.rows(pair, budget, pool), pair.x.dim, pair.y.dim, budget)
            except InputError as e:  # such a cell keeps its reason, and the others are done
                faults.append(e)
        if len(faults) == len(built) * len(places):
            raise faults[0]
        return pair

    def rows(self, pair: Pair, budget: int, pool: int) -> tuple[int, int]:
        """How many rows a cell has on each side."""
        return (budget + self.test + pool,) * 2 if pool else (len(pair.x), len(pair.y))

    def seconds(self, rows: dict[str, dict[str, Any]]) -> float | None:
        """What the cells that are missing or failed in ``rows`` are expected to take, one after the other.

        By what cells of the same method and budget took, else by the method's own estimate; None where it has none.
        """
        pair = self.data.open()
        taken: dict[tuple, list[float]] = {}
        missing: list[tuple] = []
        for key, (_, cell) in self.cells().items():
            row, like = rows.get(key), (cell.method, cell.params, cell.seeds, cell.pool)
            if row is None or row.get("error"):
                missing.append(like)
            else:
                taken.setdefault(like, []).append(row["seconds"])
        expected = {like: sum(seen) / len(seen) for like, seen in taken.items()}
        for name, params, budget, pool in {like for like in missing if like not in expected}:
            n, m = self.rows(pair, budget, pool)
            cost = methods.method(name, **dict(params)).estimate(n, m, pair.x.dim, pair.y.dim, budget).seconds
            if cost is None:
                return None
            expected[name, params, budget, pool] = cost * (1 + self.folds)
        return sum(expected[like] for like in missing)


@lru_cache(maxsize=1000)
def _resolved(method: str, params: tuple[Param, ...]) -> dict[str, Any]:
    """All parameters of a method; 1 and 1.0 are the same number where one is wanted."""
    built = methods.method(method, **dict(params))
    return {k: float(v) if methods.base.field_type(type(built), k) is float else v for k, v in built.params().items()}


@lru_cache(maxsize=8)
def _cells(sweep: Sweep) -> dict[str, tuple[Entrant, Cell]]:
    out = {}
    parts = itertools.product(sweep.random_seeds, sweep.seeds, sweep.pool, sweep.overlap, sweep.corruption)
    for seed, budget, pool, overlap, share in parts:
        for entrant in sweep.entrants:
            for params in entrant.settings():
                cell = Cell(
                    entrant.method,
                    params,
                    budget,
                    share if budget else 0.0,
                    seed,
                    pool,
                    overlap if pool else 1.0,
                    sweep.test if pool else 0,
                    entrant.by,
                )
                out.setdefault(cell.key, (entrant, cell))
    return out


# ---------------------------------------------------------------- reading a sweep


def read(config: str | Path) -> Sweep:
    """A sweep from its TOML file, or a shipped one by its name.

    Raises
    ------
    InputError
        There is no such file, it is no TOML, or it asks for something unknown; says which key.
    """
    path = Path(config).expanduser()
    if not path.exists() and path.name == str(config) and not path.suffix:
        path = SHIPPED / f"{config}.toml"
    try:
        record = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{config}: there is no such file; give a TOML file, or one of {', '.join(sorted(shipped()))}."
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        raise InputError(f"{path}: cannot be read as TOML ({e}).") from None
    return from_dict(record, str(path), path.parent)


def shipped() -> dict[str, Path]:
    """The sweeps that come with Relcore, and those a person put into ``sweeps`` under :func:`relcore.store.home`."""
    own = (store.home() / "sweeps").glob("*.toml")
    return {p.stem: p for p in (*sorted(own), *sorted(SHIPPED.glob("*.toml")))}


def from_dict(record: dict[str, Any], source: str, folder: Path | None = None) -> Sweep:
    """A sweep from what TOML gives; files of the data are looked for in ``folder``, then in the current one."""

    def refuse(what: str, found: Any, wanted: str) -> InputError:
        return InputError(f"{source}: {what} is {found!r}, wanted {wanted}.")

    for key in sorted(record.keys() - KEYS):
        raise InputError(
            f"{source}: there is no key {key!r}; a sweep has {', '.join(sorted(KEYS))}.{_nearest(key, KEYS)}"
        )
    name = record.get("name", "")
    if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,40}", name):
        raise refuse("name", name, "small letters, digits, - and _")

    def numbers(key: str, kind: type, low: float, high: float, default: tuple) -> tuple:
        values = record.get(key, list(default))
        allowed = (int, float) if kind is float else (int,)
        good = (
            isinstance(values, list)
            and values
            and all(isinstance(v, allowed) and not isinstance(v, bool) and low <= v <= high for v in values)
        )
        if not good:
            raise refuse(key, values, f"a list of numbers from {low:g} to {high:g}")
        return tuple(dict.fromkeys(kind(v) for v in values))

    budgets = numbers("seeds", int, 0, 10**8, ())
    shares = numbers("corruption", float, 0, 1, (0.0,))
    random_seeds = numbers("random_seeds", int, 0, 2**31 - 1, (0,))
    pools = numbers("pool", int, 2, 10**8, ()) if "pool" in record else (0,)
    overlaps = numbers("overlap", float, 0, 1, (1.0,))
    test = record.get("test", TEST)
    if not isinstance(test, int) or isinstance(test, bool) or not 2 <= test <= 10**7:
        raise refuse("test", test, "a whole number from 2")
    if pools == (0,) and {"overlap", "test"} & record.keys():
        raise InputError(f"{source}: overlap and test say how a pool is made; give pool too, a list of sizes.")
    data = _data_from(record.get("data"), source, folder)
    entrants = _entrants_from(record.get("methods"), source)
    folds = record.get("folds", 0)
    if not isinstance(folds, int) or isinstance(folds, bool) or not (folds == 0 or 2 <= folds <= 20):
        raise refuse("folds", folds, "0 or a whole number from 2 to 20")
    for key in ("title", "description", "preprocess", "device"):
        if not isinstance(record.get(key, ""), str):
            raise refuse(key, record[key], "text")
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", record.get("device", "cpu")):
        raise refuse("device", record["device"], "auto, cpu, cuda or cuda:N")
    sweep = Sweep(
        name=name,
        data=data,
        entrants=entrants,
        seeds=budgets,
        corruption=shares,
        random_seeds=random_seeds,
        pool=pools,
        overlap=overlaps,
        test=test,
        preprocess=parse_steps(record.get("preprocess", ",".join(DEFAULT))),
        folds=folds,
        device=record.get("device", "cpu"),
        title=record.get("title", "") or name,
        description=record.get("description", ""),
    )
    settings = sum(len(entrant.settings()) for entrant in entrants)
    count = len(budgets) * len(shares) * len(random_seeds) * len(pools) * len(overlaps) * settings
    if count > MOST_CELLS:
        raise InputError(f"{source}: asks for {count:,} cells, wanted at most {MOST_CELLS:,}.")
    return sweep


def _nearest(key: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(key, list(known), 1)
    return f" Did you mean {near[0]}?" if near else ""


def _grid(given: Any) -> bool:
    """Whether it is one parameter, or none, with a list of its values."""
    return (
        isinstance(given, dict)
        and len(given) < 2
        and all(
            isinstance(values, list) and values and all(isinstance(v, str | int | float) for v in values)
            for values in given.values()
        )
    )


def _data_from(record: Any, source: str, folder: Path | None) -> Data:
    known = {f.name: f for f in dataclasses.fields(Data)}
    if not isinstance(record, dict) or not record:
        raise InputError(f'{source}: data is missing; wanted [data] with sample = "fashion", or with x and y.')
    for key, value in record.items():
        if key not in known:
            raise InputError(f"{source}: data has no key {key!r}; it has {', '.join(known)}.{_nearest(key, known)}")
        if type(value) is not type(known[key].default):
            raise InputError(f"{source}: data.{key} is {value!r}, wanted {type(known[key].default).__name__}.")
    data = Data(**record)
    if bool(data.sample) == bool(data.x or data.y) or bool(data.x) != bool(data.y):
        raise InputError(f"{source}: data wants either sample, or x and y.")
    if data.pair_by not in ("row", "name", "none"):
        raise InputError(f"{source}: data.pair_by is {data.pair_by!r}, wanted row, name or none.")
    if data.kept or data.sample:
        return data
    files = {p: v for p in ("x", "y", "x_labels", "y_labels", "pairs") if (v := getattr(data, p))}
    where = [f.resolve() for f in (folder, Path.cwd()) if f is not None]
    for place, spec in files.items():  # written out whole: cells may run elsewhere
        found = next((f for f in where if formats.split_spec(str(f / spec))[0].exists()), None)
        files[place] = spec if found is None else str(found / spec)
    return dataclasses.replace(data, **files)


def _entrants_from(record: Any, source: str) -> tuple[Entrant, ...]:
    if not isinstance(record, list) or not record or not all(isinstance(r, dict) for r in record):
        raise InputError(f'{source}: methods is missing; wanted [[methods]] with name = "procrustes".')
    out = []
    for r in record:
        for key in sorted(r.keys() - set(ENTRANT)):
            near = _nearest(key, ENTRANT)
            raise InputError(f"{source}: a method has no key {key!r}; it has {', '.join(ENTRANT)}.{near}")
        name, params, grid = r.get("name", ""), r.get("params", {}), r.get("grid", {})
        if not isinstance(name, str) or not isinstance(params, dict) or not isinstance(r.get("label", ""), str):
            raise InputError(f"{source}: wanted a method's name and label as text and its params as a table.")
        if not _grid(grid):
            raise InputError(f"{source}: grid is {grid!r}, wanted one parameter and a list of its values.")
        if r.get("by", BY[0]) not in BY:
            raise InputError(f"{source}: by is {r['by']!r}, wanted one of {', '.join(BY)}.")
        varied = next(((k, tuple(dict.fromkeys(v))) for k, v in grid.items()), None)
        try:
            title = methods.method(name, **params).title
            entrant = Entrant(
                name, str(r.get("label", "")) or title, tuple(sorted(params.items())), varied, r.get("by", BY[0])
            )
            entrant.build()
        except InputError as e:
            raise InputError(f"{source}: {e}") from None
        out.append(entrant)
    labels = [e.label for e in out]
    if len(set(labels)) < len(labels):
        raise InputError(f"{source}: two methods have the same label; give each its own.")
    return tuple(out)


# ---------------------------------------------------------------- a cell


def run_cell(task: tuple[dict[str, Any], dict[str, Any], tuple[str, str]]) -> dict[str, Any]:
    """Make one alignment and return its figures; a fault is a figure too (``error``).

    ``task`` is what determines it: the sweep as a dict, the fields of the :class:`Cell`, and the fingerprints that the
    two sides must have here.
    """
    record, fields, fingerprints = task
    started = time.monotonic()
    try:
        sweep = from_dict(record, "sweep")
        params = tuple(tuple(p) for p in fields["params"])
        figures = _figures(sweep, Cell(**fields | {"params": params}), fingerprints)
    except RelcoreError as e:
        figures = {"error": str(e)}
    except Exception as e:  # a fault of one cell must not end the others
        figures = {"error": f"{type(e).__name__}: {e}"}
    return figures | {"seconds": round(time.monotonic() - started, 3)}


def _figures(sweep: Sweep, cell: Cell, fingerprints: tuple[str, str]) -> dict[str, Any]:
    import torch

    from relcore.metrics import health, retrieval
    from relcore.pipeline import Fit, Task

    pair = sweep.data.open()
    if (pair.x.fingerprint, pair.y.fingerprint) != tuple(fingerprints):
        raise InputError("the data found where the cell ran are not those the sweep was started with; sweep anew.")
    if cell.pool:
        pair, known = pooled(pair, cell)
    else:
        known = seeds.draw(pair.truth, cell.seeds, seed=cell.seed) if cell.seeds else Pairs.empty()
    wrong = 0
    if cell.corruption:
        known, mask = seeds.corrupt(known, cell.corruption, pair.y.labels, len(pair.y), seed=cell.seed)
        wrong = int(mask.sum())
    method = methods.method(cell.method, **dict(cell.params))
    task = Task(method, known, sweep.preprocess, seed=cell.seed, device=sweep.device, folds=sweep.folds)
    fit = Fit(pair, task, watched=False)
    for _ in fit.steps():
        pass
    a = fit.alignment
    measured = health.measure(a.x, a.y, fit.folds, seeds=known, skipped=fit.held_out_skipped, confidence=a.confidence)
    out: dict[str, Any] = {
        "wrong_seeds": wrong,
        "verdict": health.verdict(measured).level,
        "mutual_rate": measured["mutual_rate"],
        "converged": a.converged,
        "steps": len(fit.history),
    }
    out |= {name: float(value) for name, value in (a.confidence or {}).items() if value is not None}
    if fit.scored is not None and len(fit.scored):
        among = torch.arange(cell.seeds, cell.seeds + cell.test) if cell.pool else None
        pairs = fit.scored if among is None else Pairs.by_row(cell.test)
        if cell.by == "coupling":
            if a.coupling is None:
                raise InputError(f'{method.title} makes no coupling with these parameters; leave by = "coupling" out.')
            found = _by_coupling(a.coupling, pairs, among)
        else:
            x, y = (a.x, a.y) if among is None else (a.x[among], a.y[among])
            found = retrieval.retrieval(x, y, pairs)
        out |= {f"{score} {way}": found[way][score] for way in WAYS for score in SCORES} | {"scored": len(pairs)}
    return out | _stitching(pair, a.x.numpy(), a.y.numpy())


def _by_coupling(plan: Coupling, pairs: Pairs, among: Tensor | None) -> dict[str, dict[str, float]]:
    """:data:`SCORES` both ways by the weight that a plan gives; ``among`` are the rows of both sides that may be found,
    None for all."""
    import torch

    from relcore.analysis import MRR_K

    every = [torch.arange(n) for n in plan.shape] if among is None else [among, among]
    log = plan.log_block(every[0], every[1]).cpu()
    rows, partners = (torch.from_numpy(v.copy()) for v in (pairs.x, pairs.y))
    out = {}
    for way, scores, a, b in ((WAYS[0], log, rows, partners), (WAYS[1], log.T, partners, rows)):
        mine = scores[a]
        rank = 1 + (mine > mine.gather(1, b[:, None])).sum(1)
        out[way] = {"mrr": float(torch.where(rank <= MRR_K, 1 / rank.double(), 0.0).mean())}
        out[way] |= {name: float((rank <= int(name[2:])).double().mean()) for name in SCORES if name.startswith("r@")}
    return out


def pooled(pair: Pair, cell: Cell) -> tuple[Pair, Pairs]:
    """Seeds, test pairs and two pools of a cell, drawn from the true pairs; the truth told of is seeds and test pairs.

    Rows lie in this order, so that the first are the seeds. Rows of a pool that both sides have are not told of: they
    are there to be found, and not scored.
    """
    order = np.random.default_rng(cell.seed).permutation(len(pair.truth))
    both = round(cell.overlap * cell.pool)
    known, rest = order[: cell.seeds + cell.test], order[cell.seeds + cell.test :]
    pools = (rest[: cell.pool], np.concatenate([rest[:both], rest[cell.pool : 2 * cell.pool - both]]))
    sides = []
    for space, column, pool in zip((pair.x, pair.y), pair.truth.array.T, pools, strict=True):
        rows = column[np.concatenate([known, pool])]
        labels = None if space.labels is None else space.labels[rows]
        parts = {"vectors": np.ascontiguousarray(space.vectors[rows]), "ids": space.ids[rows]}
        sides.append(dataclasses.replace(space, **parts, names=space.names[rows], labels=labels, meta=None, media=None))
    truth = Pairs.by_row(len(known))
    return Pair(*sides, truth), truth.take(np.arange(cell.seeds))


def _stitching(pair: Pair, x: Any, y: Any) -> dict[str, float]:
    """Accuracy of a classifier trained on one side and read on the other; nothing where a side has no labels."""
    from relcore.metrics import stitching

    if pair.x.labels is None or pair.y.labels is None:
        return {}
    (x, label_x), (y, label_y) = (
        (v[space.labels != NO_LABEL], space.labels[space.labels != NO_LABEL].astype(str))
        for v, space in ((x, pair.x), (y, pair.y))
    )
    if min(len(set(label_x)), len(set(label_y))) < 2:
        return {}
    return {
        f"{LABELS} x_to_y": stitching.stitch(x, label_x, y, label_y)["accuracy"],
        f"{LABELS} y_to_x": stitching.stitch(y, label_y, x, label_x)["accuracy"],
    }


# ---------------------------------------------------------------- a sweep on disk


@dataclass(eq=False)
class Kept:
    """The folder of a sweep: ``sweep.json`` (what, and what became of it) and ``rows.jsonl`` (a line a cell)."""

    folder: Path
    record: dict[str, Any] = field(repr=False)

    @classmethod
    def load(cls, folder: str | Path) -> Kept:
        """
        Raises
        ------
        InputError
            If the folder holds no sweep, or an unreadable one.
        """
        path = Path(folder) / "sweep.json"
        try:
            record = json.loads(path.read_text())
            kept = cls(Path(folder), record)
            if kept.active and not alive(record["process"]):
                message = "the process that ran it is gone; the cells done before are kept"
                record |= {"status": "failed", "message": message}
                with contextlib.suppress(OSError):  # on a full disk it is told again the next time
                    kept.mark("failed", message)
        except FileNotFoundError:
            raise InputError(f"{folder}: no sweep here (sweep.json is missing); give the folder of a sweep.") from None
        except (OSError, ValueError, KeyError, TypeError) as e:
            raise InputError(f"{path}: cannot be read as the record of a sweep ({e}).") from None
        return kept

    @property
    def status(self) -> str:
        return self.record["status"]

    @property
    def active(self) -> bool:
        return self.status in ACTIVE

    @property
    def sweep(self) -> Sweep:
        return from_dict(self.record["sweep"], str(self.folder))

    def update(self, **fields: Any) -> None:
        self.record |= fields
        store.write_json(self.folder / "sweep.json", self.record)

    def mark(self, status: str, message: str = "") -> None:
        self.update(status=status, message=message)

    def rows(self) -> dict[str, dict[str, Any]]:
        """The last row of each cell, by key. A line that was being written when the machine stopped is no row."""
        out = {}
        with contextlib.suppress(FileNotFoundError), open(self.folder / "rows.jsonl", encoding="utf-8") as f:
            for line in f:
                with contextlib.suppress(ValueError):
                    row = json.loads(line)
                    out[row["key"]] = row
        return out

    def wanted(self) -> dict[str, dict[str, Any]]:
        """:meth:`rows` of the cells that the sweep asks for now, in its order."""
        rows = self.rows()
        return {key: rows[key] for key in self.sweep.cells() if key in rows}

    def table(self, sweep: Sweep | None = None) -> pd.DataFrame:
        """A row a finished or failed cell: label, seeds, corruption, seed, figures, ``error`` (empty if none).

        Of a ``sweep`` kept in this folder, by default the one started last.
        """
        import pandas as pd

        done = self.rows()
        cells = (sweep or self.sweep).cells()
        rows = [
            done[key] | {"label": entrant.label, "varied": entrant.varied(cell)}
            for key, (entrant, cell) in cells.items()
            if key in done
        ]
        wanted = sweep or self.sweep
        more = [a for a in ("pool", "overlap", "varied") if a in wanted.axes()]
        first = ["label", "seeds", "corruption", *more, "seed", "error"]
        table = pd.DataFrame(rows, columns=None if rows else first)
        if "error" not in table:
            table["error"] = ""
        table["error"] = table["error"].fillna("")
        rest = [c for c in table.columns if c not in (*first, *AXES, "test", "key", "method", "params")]
        return table[first + rest]


def is_sweep(folder: str | Path) -> bool:
    return (Path(folder) / "sweep.json").exists()


def folder_of(sweep: Sweep, pair: Pair) -> Path:
    """Where it is kept: by its name and what all its cells share, so that longer lists go on where shorter ended."""
    shared = {
        "x": pair.x.fingerprint,
        "y": pair.y.fingerprint,
        "labels": [_labels_digest(s.labels) for s in (pair.x, pair.y)],
        "truth": "" if pair.truth is None else hashlib.sha256(pair.truth.array.tobytes()).hexdigest(),
        "preprocess": sweep.preprocess,
        "folds": sweep.folds,
        "device": sweep.device,
        "relcore": __version__,
    }
    digest = hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest()[:8]
    return store.home() / "sweeps" / f"{sweep.name}-{digest}"


def _labels_digest(labels: Any) -> str:
    return "" if labels is None else hashlib.sha256("\0".join(map(str, labels)).encode()).hexdigest()


def find(sweep: Sweep) -> Kept | None:
    """The sweep as it was kept; None when it was never begun on these data."""
    folder = folder_of(sweep, sweep.data.open())
    return Kept.load(folder) if is_sweep(folder) else None


def create(sweep: Sweep, *, jobs: int = 1, scheduler: str = "") -> Kept:
    """Write the folder of a sweep that waits to be executed; rows that are there already stay.

    Raises
    ------
    InputError
        No cell could be done so, or the sweep is under way.
    """
    pair = sweep.check()
    folder = folder_of(sweep, pair)
    folder.mkdir(parents=True, exist_ok=True)
    if is_sweep(folder) and Kept.load(folder).active:
        raise InputError(f"{folder}: this sweep is under way; watch it, or stop it first.")
    kept = Kept(folder, {})
    kept.update(
        version=1,
        name=sweep.name,
        created=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        sweep=sweep.to_dict(),
        x=pair.x.fingerprint,
        y=pair.y.fingerprint,
        jobs=jobs,
        scheduler=scheduler,
        status="queued",
        message="",
        process=this_process(),
    )
    return kept


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time writes rows; the kernel forgets the lock of one that dies."""
    with open(folder / "lock", "w") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"{folder}: another process is working on this sweep; wait for it, or stop it.") from None
        yield


def _append(path: Path, row: dict[str, Any]) -> None:
    """A line, whole on disk before the next cell; after a broken line it begins a new one."""
    with open(path, "ab+") as f:
        if f.tell():
            f.seek(-1, os.SEEK_END)
            broken = f.read(1) != b"\n"
        else:
            broken = False
        f.write(b"\n" * broken + json.dumps(row, allow_nan=False).encode() + b"\n")
        f.flush()
        os.fsync(f.fileno())


def execute(kept: Kept, stopper: parallel.Stopper | None = None) -> Generator[StoredProgress, None, None]:
    """Make the cells that are missing or failed, a progress for each. Closing it, or the stopper, ends it at once.

    Raises
    ------
    InputError
        After the folder is marked ``failed`` with the reason; the rows are kept.
    """
    with _locked(kept.folder):  # who is refused here leaves the record to who works on it
        yield from _execute(kept, stopper or parallel.Stopper())


def _execute(kept: Kept, stopper: parallel.Stopper) -> Generator[StoredProgress, None, None]:
    started = time.monotonic()
    try:
        kept.update(status="running", message="", process=this_process())
        cells = kept.sweep.cells()
        done = {key for key, row in kept.wanted().items() if not row.get("error")}
        missing = [key for key in cells if key not in done]
        finished = len(done)
        phase = "cells"
        yield StoredProgress(finished, len(cells), phase, {}, None, 0.0)
        fingerprints = (kept.record["x"], kept.record["y"])
        tasks = [(kept.record["sweep"], dataclasses.asdict(cells[key][1]), fingerprints) for key in missing]
        spread = {"jobs": kept.record["jobs"], "scheduler": kept.record["scheduler"]}
        with contextlib.closing(parallel.run(run_cell, tasks, **spread)) as results:
            while True:
                with stopper.waiting():
                    found = next(results, None)
                if found is None:
                    break
                index, figures = found
                _append(kept.folder / "rows.jsonl", _row(missing[index], cells[missing[index]][1], figures))
                finished += 1
                yield StoredProgress(finished, len(cells), phase, {}, None, time.monotonic() - started)
        failed = sum(bool(row.get("error")) for row in kept.wanted().values())
        kept.mark("done", f"{failed} of {len(cells)} cells failed" if failed else "")
    except (GeneratorExit, parallel.Stopped, KeyboardInterrupt) as e:
        kept.mark("cancelled", f"stopped with {len(kept.wanted())} of {len(kept.sweep.cells())} cells done")
        if not isinstance(e, parallel.Stopped):
            raise
    except Exception as e:
        with contextlib.suppress(OSError):  # a full disk: what is raised says so, and the next reader marks it
            kept.mark("failed", str(e) if isinstance(e, InputError) else f"{type(e).__name__}: {e}")
        raise


def _row(key: str, cell: Cell, figures: dict[str, Any] | parallel.Lost) -> dict[str, Any]:
    if isinstance(figures, parallel.Lost):
        figures = {"error": figures.reason}
    figures = {
        k: v if not isinstance(v, float) or v == v and abs(v) != float("inf") else None for k, v in figures.items()
    }
    return {"key": key, **dataclasses.asdict(cell), "params": dict(cell.params), **figures}


# ---------------------------------------------------------------- reading the table


def columns(table: pd.DataFrame) -> list[str]:
    """The figures of a table that a curve can be drawn of: accuracies first, then retrieval, then the confidence."""
    wanted = [f"{LABELS} {way}" for way in WAYS] + [f"{score} {way}" for score in SCORES for way in WAYS]
    return [c for c in (*wanted, "mutual_rate", *CONFIDENCE, "seconds") if c in table and table[c].notna().any()]


def bands(table: pd.DataFrame, value: str, along: str) -> pd.DataFrame:
    """Mean, least and greatest of a figure over the random seeds, and their number ``n``.

    Returns
    -------
    ``label``, the axes there are in the table, ``n, mean, low, high``, sorted along; failed cells are left out.
    """
    known = table[table[value].notna() & (table["error"] == "")]
    axes = [a for a in AXES if a in table.columns]
    groups = known.groupby(["label", *axes], sort=False, dropna=False)[value]
    out = groups.agg(n="count", mean="mean", low="min", high="max").reset_index()
    order = {value: i for i, value in enumerate(in_order(out[along]))}
    return out.sort_values(along, kind="stable", key=lambda column: column.map(order))


def in_order(values: Any) -> list:
    """The different values of an axis: numbers rising, then the words of another method's parameter as they come."""
    known = list(dict.fromkeys(v for v in values if v is not None and v == v))
    words = [v for v in known if isinstance(v, str)]
    return sorted(v for v in known if not isinstance(v, str)) + words


def spearman(a: Any, b: Any) -> float | None:
    """Rank correlation of two columns, ties at their mean rank; None with fewer than three points or no variation."""
    import pandas as pd

    ranks = pd.DataFrame({"a": a, "b": b}).dropna().rank()
    if len(ranks) < 3 or (ranks.nunique() < 2).any():
        return None
    return float(ranks["a"].corr(ranks["b"]))
