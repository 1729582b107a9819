"""The command line: the same core without a browser.

Progress goes to stderr and results to stdout; ``--json`` prints one JSON object and nothing else on stdout. Exit code
0: done; 1: the run failed or was cancelled; 2: bad input or usage, one line on stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
import math
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from relcore import __version__
from relcore.errors import InputError, RunFailed
from relcore.formats.base import brief
from relcore.parallel import Stopper
from relcore.space import Refused
from relcore.worker import jsonable

if TYPE_CHECKING:
    from relcore.experiments import Kept
    from relcore.runs import Run
    from relcore.seeds import Pairing
    from relcore.space import LoadReport, Pair, Pairs, Space

DONE, FAILED, BAD_INPUT = 0, 1, 2
HEARTBEAT = 2.0  # seconds of silence on stderr at most, while something goes on
PAIR_BY = ("row", "name", "id", "none")
CHOOSE = ("random", "farthest", "medoids", "first", "stratified")  # the keys of relcore.seeds.WAYS
WAYS = {"x_to_y": "x to y", "y_to_x": "y to x"}
PROBLEMS_SHOWN = 10
LONGEST = 2000  # characters of a line: a name from a file can be a megabyte


# ---------------------------------------------------------------------- talking


def tell(text: str) -> None:
    """A line on stderr."""
    print(brief(text, LONGEST), file=sys.stderr, flush=True)


def say(text: str) -> None:
    """A line on stdout. Names from files come as they are: what would move the cursor is written out."""
    print(brief(text, LONGEST))


def one_line(error: BaseException) -> str:
    """The text of an error in one line; the lines of a recipe are joined as Python statements."""
    text = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    first, *rest = [line.strip() for line in text.splitlines() if line.strip()]
    return f"{first} {'; '.join(rest)}".strip()


class Heartbeat:
    """A line on stderr every two seconds saying what goes on; nothing for what is faster."""

    def __init__(self) -> None:
        self._text, self._since = "", time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def says(self, text: str) -> None:
        self._text = text

    def _beat(self) -> None:
        while not self._over.wait(HEARTBEAT):
            with contextlib.suppress(BrokenPipeError):
                tell(f"{self._text} ({time.monotonic() - self._since:.0f} s)")


class Interrupt(Stopper):
    """While active, Ctrl-C and SIGTERM ask for an end at the next step; a second one does not wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupt:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        tell("stopping" if self.waits else "stopping at the next step; once more to stop at once")
        self.ask()


class Parser(argparse.ArgumentParser):
    """Usage errors are bad input like any other: one line."""

    def error(self, message: str) -> None:
        raise InputError(f"{message}; see {self.prog} --help.")


def print_json(record: dict) -> None:
    print(json.dumps(jsonable(record), indent=1, allow_nan=False))


def print_table(rows: list[tuple[str, ...]]) -> None:
    """Columns padded to their widest cell, the last one free."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())


def first_few(what: str, problems: Sequence[str]) -> list[str]:
    """A line for each of the first problems, and one for how many more there are."""
    more = len(problems) - PROBLEMS_SHOWN
    return [f"{what}: {p}" for p in problems[:PROBLEMS_SHOWN]] + ([f"{what}: and {more:,} more"] if more > 0 else [])


# ---------------------------------------------------------------------- methods


def run_methods(args: argparse.Namespace) -> int:
    """``methods [NAME]``. JSON: ``{methods: [{name, title, summary, source, needs}]}``, or one of them with
    ``params: [{name, type, default, low, high, choices, unit, help, source, only_if}]``."""
    from relcore import methods

    if args.name is None:
        listed = [methods.method_class(name) for name in methods.REGISTRY]
        if args.json:
            print_json({"methods": [describe(cls) for cls in listed]})
        else:
            print_table([(cls.name, cls.summary) for cls in listed])
        return DONE
    cls = methods.method_class(args.name)
    params = [describe_field(cls, f) for f in fields(cls)]
    if args.json:
        print_json(describe(cls) | {"params": params})
        return DONE
    print(f"{cls.name}: {cls.title}. {cls.summary}")
    print(f"Source: {cls.source}")
    if cls.needs.min_seeds:
        print(f"Needs at least {cls.needs.min_seeds} seed pairs.")
    if params:
        print()
        print_table([(p["name"], str(p["default"]), value_range(p), p["help"]) for p in params])
    return DONE


def describe(cls: type) -> dict[str, Any]:
    needs = {f.name: getattr(cls.needs, f.name) for f in fields(cls.needs)}
    return {"name": cls.name, "title": cls.title, "summary": cls.summary, "source": cls.source, "needs": needs}


def describe_field(cls: type, f: Any) -> dict[str, Any]:
    from relcore.methods.base import field_type

    keys = ("low", "high", "choices", "unit", "help", "source", "only_if")
    kind = field_type(cls, f.name)
    return {"name": f.name, "type": getattr(kind, "__name__", str(kind)), "default": f.default} | {
        k: f.metadata.get(k) for k in keys
    }


def value_range(p: dict[str, Any]) -> str:
    if p["choices"]:
        return " | ".join(map(str, p["choices"]))
    if p["type"] == "bool":
        return "true | false"
    low, high = p["low"], p["high"]
    bounds = f"{low:g} to {high:g}" if None not in (low, high) else f"from {low:g}" if low is not None else ""
    return f"{p['type']} {bounds} {p['unit'] or ''}".strip()


# ---------------------------------------------------------------------- inspect


def run_inspect(args: argparse.Namespace) -> int:
    """``inspect FILE``. JSON: ``format, rows_read, rows_used, set_aside[{row, reason}], dim, dtype, assumed,
    warnings[...], refused[{what, source, found, wanted}]``; ``arrays[{name, shape, dtype}]`` for a file that can hold
    several, ``columns[{name, kind, role, examples}]`` for a table."""
    from relcore import formats

    options = load_options(args)
    with Heartbeat() as beat:
        beat.says(f"reading {args.file}")
        warn_of_memory(args.file, options)
        seen = formats.inspect(args.file, **options)
    if args.json:
        print_json(seen)
        return DONE
    say(f"format     {seen['format']}")
    if seen["rows_read"] is not None:
        say(f"rows       {seen['rows_read']:,} read, {seen['rows_used']:,} used, {len(seen['set_aside']):,} set aside")
        say(f"dimension  {seen['dim']:,}")
        say(f"stored as  {seen['dtype']}")
    for array in seen.get("arrays", []):
        say(f"array      {array['name']} {tuple(array['shape'])} {array['dtype']}")
    for row in seen["set_aside"][:PROBLEMS_SHOWN]:
        say(f"set aside  row {row['row']}: {row['reason']}")
    if len(seen["set_aside"]) > PROBLEMS_SHOWN:
        say(f"set aside  and {len(seen['set_aside']) - PROBLEMS_SHOWN:,} more rows; --json lists them all")
    for line in column_lines(seen.get("columns", [])):
        say(f"column     {line}")
    for refused in seen["refused"]:
        say(f"refused    {Refused(**refused)}")
    for key, word in (("assumed", "assumed"), ("warnings", "warning")):
        for text in seen[key]:
            say(f"{word:10} {text}")
    return DONE


def column_lines(columns: list[dict[str, Any]]) -> list[str]:
    """A line a column of a table; a run of columns with the same role and kind is one line."""
    lines = []
    for (role, kind), group in itertools.groupby(columns, key=lambda c: (c["role"], c["kind"])):
        run = list(group)
        names = run[0]["name"] if len(run) == 1 else f"{run[0]['name']} ... {run[-1]['name']} ({len(run):,} columns)"
        lines.append(f"{names}: {kind}, read as {role}")
    return lines


def load_options(args: argparse.Namespace, side: str = "") -> dict[str, Any]:
    """The options of :func:`relcore.formats.load` that the command line gives for one file."""
    one = {name: getattr(args, f"{side}{name}") for name in ("names", "labels", "media", "metadata", "id_column")}
    both = {name: getattr(args, name) for name in ("match", "missing", "duplicates", "fold_case")}
    columns = {}
    for setting in getattr(args, f"{side}column"):
        name, equals, role = setting.rpartition("=")
        if not equals or not name:
            raise InputError(f"{setting!r}: wanted COLUMN=ROLE, for example year=meta.")
        columns[name] = role
    return one | both | {"columns": columns, "key": getattr(args, "key", None)}


def warn_of_memory(spec: str, options: dict[str, Any]) -> None:
    """Say before a load that it takes more than a quarter of the free memory."""
    from relcore import formats

    with contextlib.suppress(formats.AmbiguousError):  # told by the load itself
        if note := formats.memory_note(spec, key=options["key"], columns=options["columns"]):
            tell(note)


# ---------------------------------------------------------------------- convert


def run_convert(args: argparse.Namespace) -> int:
    """``convert IN OUT``. JSON: the keys of ``inspect`` for IN without ``arrays`` and ``columns``, and ``out``,
    ``not_kept[...]``: what the format of OUT cannot hold."""
    from relcore import formats

    options = load_options(args)
    out = Path(args.out).expanduser()
    formats.writer(out)  # an ending that nothing is written as is told before the file is read
    path, _ = formats.split_spec(args.file)
    if out.exists() and path.exists() and out.samefile(path):
        raise InputError(f"{args.out} is the file to be read; give another name to write to.")
    with Heartbeat() as beat:
        beat.says(f"reading {args.file}")
        warn_of_memory(args.file, options)
        space, report = formats.load(args.file, **options)
        beat.says(f"writing {args.out}")
        not_kept = formats.write(space, out)
    if report.dtype not in ("float32", "text"):
        not_kept = [f"numbers stored as {report.dtype} are written as float32", *not_kept]
    if args.json:
        print_json(report.to_dict() | {"out": str(out), "not_kept": not_kept})
        return DONE
    say(f"{out}: {report.summary()}; {report.dim:,} numbers a row")
    for row in first_few("set aside", [f"row {s.row}: {s.reason}" for s in report.set_aside]):
        tell(row)
    for line in [*map(str, report.refused), *report.assumed, *report.warnings]:
        tell(line)
    for line in not_kept:
        tell(f"not kept: {line}")
    return DONE


# ---------------------------------------------------------------------- align


def run_align(args: argparse.Namespace) -> int:
    """``align``. JSON: the keys of :func:`run_record`."""
    from relcore import methods, preprocess

    method = methods.method(args.method, **parse_settings(args.set))
    steps = preprocess.parse_steps(args.preprocess)
    count = int(args.seeds) if args.seeds.isdecimal() else None
    if count and not args.pairs and args.pair_by == "none":
        raise InputError(
            f"--seeds {count} draws from the true pairs, and none are known; say how rows pair up with --pair-by row, "
            "name or id, or with --pairs FILE, or give the seeds as a file."
        )
    if not count and args.choose != "random":
        raise InputError(f"--choose {args.choose} draws seeds from the true pairs; say how many with --seeds N.")
    with contextlib.ExitStack() as stack:
        beat = stack.enter_context(Heartbeat())
        pair, reports, said = load_pair(args, beat)
        seeds, useless = choose_seeds(args, count, pair, reports)
        notes = (f"{len(useless):,} lines of {args.seeds} gave no seed ({useless[0]})",) if useless else ()
        from relcore import runs

        folder = args.out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relcore-"))) / "run"
        run = runs.create(
            pair,
            method=method,
            seeds=seeds,
            preprocess=steps,
            seed=args.seed,
            device=args.device,
            folds=args.folds,
            reports=reports,
            folder=folder,
            notes=notes,
            seeds_origin=origin_of_seeds(args, count, seeds),
            keep_spaces=False,
            jobs=args.jobs,
            scheduler=args.scheduler,
        )
        for line in [*said, *first_few("seeds", useless)]:  # bad input is told in one line, so these wait till here
            tell(line)
        beat.says("loading torch")
        execute(run, pair, beat)
        record = run_record(run)
    if args.json:
        print_json(record | {"run": str(args.out) if args.out else None})
    else:
        print_run(record)
        if args.out:
            print(f"run        {args.out}")
    if run.status == "failed":
        tell(f"relcore: the run failed: {run.record['message']}")
    return DONE if run.status == "done" else FAILED


def parse_settings(settings: list[str]) -> dict[str, str]:
    out = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise InputError(f"--set {setting}: wanted key=value, for example --set anchors=300.")
        out[key.strip().replace("-", "_")] = value.strip()
    return out


def load_pair(args: argparse.Namespace, beat: Heartbeat) -> tuple[Pair, tuple[LoadReport, LoadReport], list[str]]:
    """Both spaces with, where it is said how rows pair up, the truth; their load reports; and what to say of it all."""
    from relcore import formats, seeds
    from relcore.space import Pair

    loaded: list[tuple[Space, LoadReport]] = []
    said: list[str] = []
    for side in "xy":
        spec = getattr(args, side)
        beat.says(f"reading {spec}")
        options = load_options(args, f"{side}_")
        warn_of_memory(spec, options)
        space, report = formats.load(spec, **options)
        said.append(f"{side}: {spec}: {report.summary()}; {report.dim:,} numbers a row, stored as {report.dtype}")
        said += first_few(side, [*map(str, report.refused), *report.assumed, *report.warnings])
        loaded.append((space, report))
    (x, report_x), (y, report_y) = loaded
    beat.says("pairing the rows")
    if args.pairs:
        found = read_pairing(args.pairs, x, y, report_x, report_y)
    else:
        ids = {"id_x": args.x_id_column, "id_y": args.y_id_column} if args.pair_by == "id" else {}
        found = seeds.pairing(x, y, args.pair_by, **ids, report_x=report_x, report_y=report_y)
        if found.pairs is None and args.pair_by != "none":
            raise InputError(f"--pair-by {args.pair_by}: {found.problems[-1]}; try another, or give --pairs FILE.")
    said += first_few("pairs", found.problems)
    if found.pairs is not None:
        said.append(f"pairs: {found.summary()}; for drawing seeds and for scoring")
    return Pair(x, y, found.pairs), (report_x, report_y), said


def read_pairing(file: str, *spaces_and_reports: Any) -> Pairing:
    """:func:`relcore.seeds.read_pairing`, for a file that must hold at least one usable pair."""
    from relcore import seeds

    found = seeds.read_pairing(Path(file).expanduser(), *spaces_and_reports)
    if not found.pairs:
        why = found.problems[0]
        raise InputError(f"{file}: no line gives a usable pair ({why}); give row numbers or names, two a line.")
    return found


def choose_seeds(
    args: argparse.Namespace, count: int | None, pair: Pair, reports: tuple[LoadReport, LoadReport]
) -> tuple[Pairs, list[str]]:
    """The seeds, and the lines of their file that gave none."""
    from relcore import projection, seeds
    from relcore.space import Pairs

    if count is None:
        found = read_pairing(args.seeds, pair.x, pair.y, *reports)
        return found.pairs, list(found.problems)
    if not count:
        return Pairs.empty(), []
    rows = pair.x.vectors if args.choose in seeds.BY_VECTORS else None
    unit = None if rows is None else projection.centred_unit(rows)
    return seeds.choose_pairs(
        args.choose, pair.truth, count, vectors_x=unit, labels_x=pair.x.labels, seed=args.seed
    ), []


def origin_of_seeds(args: argparse.Namespace, count: int | None, chosen: Pairs) -> str:
    """How the seeds of a run came about; nothing where there are none."""
    from relcore import seeds

    if count is None:
        return f"{len(chosen):,} from {args.seeds}"
    return seeds.origin(args.choose, count, args.seed) if count else ""


def execute(run: Run, pair: Pair, beat: Heartbeat) -> None:
    """Drain the run. What became of it is in its record; Ctrl-C keeps the last step."""
    from relcore import runs

    with Interrupt() as interrupt, contextlib.closing(runs.execute(run, pair)) as steps:
        try:
            for p in steps:
                figures = "  ".join(f"{name} {value:.4g}" for name, value in p.metrics.items())
                beat.says(f"{p.phase} {p.iteration}/{p.total}  {figures}".rstrip())
                if interrupt.asked:
                    beat.says("keeping the last step")
                    break
        except RunFailed:
            pass  # the record says so
        except InputError:
            raise
        except KeyboardInterrupt:
            run.mark("cancelled", "stopped at once; the last step is not kept")
            raise
        except Exception as e:  # out of memory, a full disk, a fault of ours: the folder is marked, the reason is told
            run.mark("failed", one_line(e) if isinstance(e, OSError) else f"{type(e).__name__}: {one_line(e)}")


def run_record(run: Run) -> dict[str, Any]:
    """``method, params, preprocess, seed, seeds, seeds_origin, status, message, x, y, notes`` (the two sides as
    ``{rows, dim, report{...}}``) and, where there is an alignment, ``converged, chosen, seconds, peak_memory_mb, steps,
    health, verdict{level, text}``, with ``metrics`` where truth is known."""
    r = run.record
    keys = ("method", "params", "preprocess", "seed", "seeds", "status", "message", "notes")
    record = {k: r[k] for k in keys} | {"seeds_origin": r.get("seeds_origin", "")}
    record |= {side: {k: r[side][k] for k in ("rows", "dim", "report")} for side in "xy"}
    found = ("converged", "chosen", "seconds", "peak_memory_mb", "steps", "health", "verdict")
    record |= {k: r[k] for k in found if k in r}
    if r.get("metrics") and "x_to_y" in r["metrics"]:
        record["metrics"] = r["metrics"]
    return record


def print_run(record: dict[str, Any]) -> None:
    status = record["status"] + (f": {record['message']}" if record["message"] else "")
    print(f"{record['method']:10} {status}")
    if "verdict" in record:
        print(f"verdict    {record['verdict']['text']}")
        print(
            f"run time   {record['seconds']:.1f} s, {record['steps']:,} steps, "
            f"peak memory {record['peak_memory_mb']:,.0f} MB"
        )
    if record["seeds_origin"]:
        say(f"seeds      {record['seeds_origin']}")
    for note in record["notes"]:
        say(f"note       {note}")
    if "metrics" in record:
        print()
        print_metrics(record["metrics"])
        print_remarks(record["metrics"], *(record[side]["rows"] for side in "xy"))


def print_metrics(metrics: dict[str, Any]) -> None:
    """A row for the run and each reference, both ways; then hubness."""
    rows = {"this run": metrics} | metrics.get("references", {})
    names = [k for k in metrics["x_to_y"] if k.startswith("r@") or k in ("mrr", "jaccard", "cosine")]
    table = [("", "", *names)]
    for title, values in rows.items():
        for way, words in WAYS.items():
            table.append((title, words, *(f"{values[way][k]:.3f}" for k in names)))
    print_table(table)
    for way, value in metrics.get("hubness", {}).items():
        print(f"hubness {WAYS[way]} (skewness of N_{hub_k(metrics, way)}): {value:.2f}")


def hub_k(metrics: dict[str, Any], way: str) -> int:
    """The k that hubness was read at: 10, or all targets where there are fewer."""
    return metrics["rules"]["nearest"][way]["hubness"]["k"] if "rules" in metrics else 10


def print_remarks(metrics: dict[str, Any], n: int, m: int) -> None:
    """What speaks against reading figures of hubness."""
    from relcore.metrics.hubness import remarks

    for way, queries, targets in (("x_to_y", n, m), ("y_to_x", m, n)):
        for line in remarks(queries, targets, hub_k(metrics, way)):
            print(f"note       {WAYS[way]}: {line}")


# ---------------------------------------------------------------------- evaluate


def run_evaluate(args: argparse.Namespace) -> int:
    """``evaluate RUN``. JSON: ``run, method, status, k, pairs, health, verdict, spectrum, metrics{x_to_y, y_to_x,
    hubness, rules{RULE{WAY{r@k, mrr, n, hubness}}}}``."""
    from relcore import runs
    from relcore.metrics import spectrum

    run = runs.Run.load(args.run)
    if not run.usable:
        raise InputError(f"{args.run}: the run is {run.status} and kept no alignment; run it again.")
    with Heartbeat() as beat:
        beat.says("scoring")
        scored, metrics = evaluate(run, tuple(args.k))
    record = {
        "run": str(args.run),
        "method": run.record["method"],
        "status": run.status,
        "k": args.k,
        "pairs": scored,
        "health": run.record["health"],
        "verdict": run.record["verdict"],
        "spectrum": spectrum.summary(run.analysis),
        "metrics": metrics,
    }
    if args.json:
        print_json(record)
        return DONE
    print(f"{record['method']:10} {record['status']}")
    print(f"verdict    {record['verdict']['text']}")
    print()
    if scored:
        print(f"{scored:,} true pairs that are no seeds, among all rows of the target")
        print_metrics(metrics)
    else:
        print("no truth is known, so there is nothing to score against")
    print()
    print_rules(metrics["rules"], run)
    return DONE


def print_rules(rules: dict[str, Any], run: Run) -> None:
    """A row for each rule and direction: recall where truth is known, and the figures of N_10."""
    from relcore.analysis import RULES

    scores = [k for k in rules["nearest"]["x_to_y"] if k.startswith("r@") or k == "mrr"]
    figures = ("skewness", "robin_hood", "anti_hubs", "hub_share", "top_1_percent")
    table = [("", "", *scores, *(f.replace("_", " ") for f in figures))]
    for rule, ways in rules.items():
        for way, values in ways.items():
            numbers = [*(values[s] for s in scores), *(values["hubness"][f] for f in figures)]
            table.append((RULES[rule], WAYS[way], *(f"{v:.3f}" for v in numbers)))
    print_table(table)
    n, m = (run.record[side]["rows"] for side in "xy")
    for way, queries, targets in (("x_to_y", n, m), ("y_to_x", m, n)):
        k = rules["nearest"][way]["hubness"]["k"]
        print(f"{WAYS[way]}: {queries:,} queries, {targets:,} targets, k = {k}")
    print_remarks({"rules": rules}, n, m)


def evaluate(run: Run, k: tuple[int, ...]) -> tuple[int, dict[str, Any]]:
    """The number of scored pairs, and the metrics at the given k; without truth hubness alone."""
    import torch

    from relcore.analysis import by_rule
    from relcore.metrics import retrieval

    seeds, truth = run.pairs
    scored = None if truth is None else truth.without(seeds)
    rules = by_rule(run.analysis, scored, k)
    metrics = {"hubness": {way: rules["nearest"][way]["hubness"]["skewness"] for way in WAYS}, "rules": rules}
    if scored is None or not len(scored):
        return 0, metrics
    arrays = run.alignment_arrays()
    x, y = (torch.from_numpy(arrays[side]) for side in "xy")
    return len(scored), retrieval.retrieval(x, y, scored, at=k) | metrics


# ---------------------------------------------------------------------- mismatch


def run_mismatch(args: argparse.Namespace) -> int:
    """``mismatch RUN``. JSON: ``run, method, status, sigma, sigma_default, gate{SIDE{level, text, missing[...], lowest,
    seeds_alone}}, sides{SIDE{rows, median, flagged, null, reference}}, classes[{side, label, rows, median, median_raw,
    flagged, judged}], regions[{side, number, rows, median}], lowest[{side, row, coverage, raw}], missing,
    auroc{SIDE{coverage, raw, rows}}``; ``auroc`` is null unless ``--missing`` declares a class."""
    from relcore import runs
    from relcore.metrics import mismatch

    run = runs.Run.load(args.run)
    if not run.usable:
        raise InputError(f"{args.run}: the run is {run.status} and kept no alignment; run it again.")
    arrays = run.analysis
    if not mismatch.present(arrays):
        raise InputError(f"{args.run}: the run is older than the kernel sums kept with a run; run it again.")
    at = mismatch.position_of(arrays, args.sigma)
    labels = run.labels
    if args.missing is not None and not any(args.missing in column for column in labels.values() if column):
        known = sorted({label for column in labels.values() for label in column or () if label})
        raise InputError(
            f"--missing {args.missing}: no row has this label; "
            + (f"known are {', '.join(known[:PROBLEMS_SHOWN])}." if known else "the run has no labels.")
        )
    record = {
        "run": str(args.run),
        "method": run.record["method"],
        "status": run.status,
        "sigma": float(arrays["mismatch/sigma"][at]),
        "sigma_default": float(arrays["mismatch/sigma"][mismatch.default_position(arrays)]),
    } | mismatch.summary(run.record, arrays, labels, at, missing=args.missing)
    if args.rows:
        write_rows(args.rows, arrays, labels, at)
    if args.json:
        print_json(record)
    else:
        print_mismatch(record, args.sigma)
    return DONE


def write_rows(path: Path, arrays: dict[str, Any], labels: dict[str, list[str] | None], at: int) -> None:
    """Every row's kernel sums as CSV: ``side, row, label, raw, coverage, flagged``."""
    import csv

    from relcore.metrics import mismatch

    with open(path, "w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        out = csv.writer(file)
        out.writerow(("side", "row", "label", "raw", "coverage", "flagged"))
        for side in "xy":
            raw, ratio = mismatch.raw(arrays, side, at), mismatch.coverage(arrays, side, at)
            flags = mismatch.flagged(arrays, side, at)
            for i in range(len(raw)):
                label = labels[side][i] if labels[side] else ""
                out.writerow((side, i, label, f"{raw[i]:.7g}", f"{ratio[i]:.7g}", int(flags[i])))


def print_mismatch(record: dict[str, Any], asked: float | None) -> None:
    print(f"{record['method']:10} {record['status']}")
    near = "" if asked is None or abs(asked - record["sigma"]) < 1e-9 else f", the kept step nearest to {asked:g}"
    print(f"sigma      {record['sigma']:.3g} rad (default {record['sigma_default']:.3g}){near}")
    for side, gate in record["gate"].items():
        say(f"{side} {gate['level']:8} {gate['text']}")
        if gate["seeds_alone"]:
            say(f"           by the seeds alone {gate['seeds_alone']} is lowest")
    for side, figures in record["sides"].items():
        print(
            f"{side}          {figures['rows']:,} rows, median coverage {figures['median']:.3f}, "
            f"{figures['flagged']:.1%} flagged (below {figures['null']:.3f})"
        )
    rows = [
        (c["side"], brief(c["label"], 60), f"{c['rows']:,}", f"{c['median']:.3f}", f"{c['median_raw']:.3g}")
        + (f"{c['flagged']:.0%}" + ("" if c["judged"] else ", not judged"),)
        for c in record["classes"]
    ]
    if rows:
        print()
        print_table([("", "class", "rows", "coverage", "raw", "flagged"), *rows])
    regions = [(r["side"], f"region {r['number']}", f"{r['rows']:,}", f"{r['median']:.3f}") for r in record["regions"]]
    if regions:
        print()
        print_table([("", "flagged rows that lie together", "rows", "coverage"), *regions])
    for side, value in (record["auroc"] or {}).items():
        figures = "  ".join(f"{k} " + ("none" if value[k] is None else f"{value[k]:.3f}") for k in ("coverage", "raw"))
        say(f"AUROC      {record['missing']} in {side} ({value['rows']:,} rows): {figures}")


# ---------------------------------------------------------------------- stitch


def run_stitch(args: argparse.Namespace) -> int:
    """``stitch RUN`` or ``stitch --space FILE --space FILE ...``. JSON: ``run, spaces[{title, rows, dim}], items,
    classes[...], settings{...}, notes[...], results[{representation, title, decoder, encoder, draw, error, accuracy,
    weighted_f1, mae, own_accuracy, own_weighted_f1, majority, trained, tested, mrr, r@1, r@5, nmse, nmse_scaled,
    rr_std, effective_rank, cka, judged, found_seconds, seconds, notes[...]}]``; ``decoder`` and ``encoder`` are
    positions in ``spaces``, ``mae`` is there with ``--ordered``, partners' figures where items are known."""
    from relcore import stitching
    from relcore.formats.linear_head import read_linear_head

    if (args.run is None) == (args.space is None):
        raise InputError("give the folder of a run, or two or more files with --space; not both.")
    head = None if args.head is None else read_linear_head(args.head)
    settings = stitching.Settings(
        classifier=stitching.HEAD if head is not None else args.classifier,
        test=args.test,
        seed=args.seed,
        draws=args.draws,
        ordered=args.ordered,
        ways=tuple(args.way or (() if args.run is not None else stitching.USUAL)),
        anchors=args.anchors,
        support=args.support,
        seeds=args.seeds,
        shrinkage=args.shrinkage,
        shrinkage_amount=args.shrinkage_amount,
        hold_out=args.hold_out,
        standardise=args.standardise,
    )
    with Heartbeat() as beat:
        made = of_run if args.run is not None else of_files
        spaces, reports, labels, aligned, said = made(args, settings, beat)
        if args.labels or args.x_labels or args.y_labels:
            labels = given_labels(args, spaces, reports, labels)
        if aligned is not None and said.pop("without vectors", None):
            settings = dataclasses.replace(settings, references=(), ways=())
        asked = stitching.Stitcher(spaces, settings, labels=labels, aligned=aligned, head=head)
        for line in [*said, *asked.notes]:
            tell(line)
        units, results = asked.units(), []
        if not units:
            raise InputError("nothing can be read of these data so; say how rows pair up, or give a run.")
        with Interrupt() as interrupt:
            for unit, result in zip(units, asked.steps(), strict=True):
                beat.says(f"{len(results) + 1} of {len(units)}: {unit.representation}")
                results.append(result | {"title": stitching.title(unit.representation, aligned)})
                if interrupt.asked:
                    break
    record = {
        "run": None if args.run is None else str(args.run),
        "spaces": [{"title": s.title, "rows": len(s), "dim": s.dim} for s in spaces.spaces],
        "items": None if spaces.rows is None else len(spaces.rows),
        "classes": asked.classes,
        "settings": settings.to_dict(),
        "notes": asked.notes,
        "results": results,
    }
    if args.json:
        print_json(record)
    else:
        print_stitch(record)
    return DONE if len(results) == len(units) and not all(r["error"] for r in results) else FAILED


def of_files(args: argparse.Namespace, settings: Any, beat: Heartbeat) -> tuple:
    """Spaces from files of their own, the first paired with each of the others."""
    from relcore import formats, seeds
    from relcore.space import Spaces

    loaded, said = [], {}
    for spec in args.space:
        beat.says(f"reading {spec}")
        space, report = formats.load(spec)
        said[f"{spec}: {report.summary()}; {report.dim:,} numbers a row"] = True
        loaded.append((space, report))
    (first, report), pairs = loaded[0], []
    for other, other_report in loaded[1:]:
        found = seeds.pairing(first, other, args.pair_by, report_x=report, report_y=other_report)
        if found.pairs is None and args.pair_by != "none":
            raise InputError(f"--pair-by {args.pair_by}: {found.problems[-1]}; try another.")
        said |= dict.fromkeys(first_few("pairs", found.problems), True)
        pairs.append(found.pairs)
    spaces = Spaces.join([space for space, _ in loaded], pairs)
    if spaces.rows is not None:
        said[f"{len(spaces.rows):,} items are in all {len(spaces)} spaces"] = True
    return spaces, [report for _, report in loaded], [s.labels for s in spaces.spaces], None, said


def of_run(args: argparse.Namespace, settings: Any, beat: Heartbeat) -> tuple:
    """A run's two spaces, from where they are kept or where it read them, and its alignment."""
    from relcore import runs, stitchings
    from relcore.space import LoadReport, Spaces

    run = runs.Run.load(args.run)
    if not run.usable:
        raise InputError(f"{args.run}: the run is {run.status} and kept no alignment; run it again.")
    beat.says("opening what the run was made from")
    arrays, said, found = run.alignment_arrays(), {}, []
    for side in "xy":
        space = space_of_run(run, side, getattr(args, side), said)
        if space is None:
            said[
                f"{side}: the vectors the run was made from are not at hand, so that there are no references and no "
                f"other descriptions of rows; give --{side} FILE"
            ] = True
            said["without vectors"] = True
        found.append(space)
    if said.get("without vectors"):
        found = [outline(arrays[side], run.record[side]) for side in "xy"]
    spaces = Spaces.join(found, [run.pairs[1]])
    labels = [None if run.labels[side] is None else np_texts(run.labels[side]) for side in "xy"]
    reports = [LoadReport.from_dict(run.record[side]["report"]) for side in "xy"]
    return spaces, reports, labels, stitchings.alignment_of(run, 0, 1), said


def outline(coordinates: Any, record: dict[str, Any]) -> Space:
    """A side of a run whose vectors are gone: its common coordinates, under the row numbers of the file it was."""
    import numpy as np

    from relcore.space import LoadReport, Space, as_text

    report = LoadReport.from_dict(record["report"])
    ids = np.setdiff1d(np.arange(report.rows_read), [aside.row for aside in report.set_aside])
    if len(ids) != len(coordinates):
        raise InputError(
            f"{record['title']}: the run has {len(coordinates):,} of {report.rows_read:,} rows, and it is not kept "
            "which; give the file it was made from with --x or --y."
        )
    return Space(coordinates, ids, as_text(range(len(ids)), len(ids), "names"), title=record["title"])


def np_texts(values: list[str]) -> Any:
    import numpy as np

    return np.array(values, dtype=object)


def space_of_run(run: Run, side: str, given: str | None, said: dict[str, bool]) -> Space | None:
    """A side of a run as it was loaded: kept, or read again from a file, whose fingerprint then tells."""
    from relcore import formats, store

    record = run.record[side]
    if given is None:
        with contextlib.suppress(InputError):
            return store.get_space(record["kept"] or record["fingerprint"])[0]
    try:
        space, _ = formats.load(given or record["report"]["source"], title=record["title"])
    except InputError:
        if given is not None:
            raise
        return None
    if run.labels[side] is not None and len(run.labels[side]) == len(space):
        space = dataclasses.replace(space, labels=np_texts(run.labels[side]))
    if space.fingerprint == record["fingerprint"]:
        return space
    if given is None:
        return None
    if (len(space), space.dim) != (record["rows"], record["dim"]):
        raise InputError(
            f"{given}: {len(space):,} rows of {space.dim} numbers, and the run was made from {record['rows']:,} of "
            f"{record['dim']}; give the file that was aligned."
        )
    said[f"{side}: {given} is not byte for byte what the run was made from (numbers or names differ)"] = True
    return space


def given_labels(args: argparse.Namespace, spaces: Any, reports: list[LoadReport], labels: list) -> list:
    """Labels from files, a line a row of the source files, in place of those the data bring."""
    from relcore.formats.beside import read_column

    out = list(labels)
    for i, (space, report) in enumerate(zip(spaces.spaces, reports, strict=True)):
        spec = (getattr(args, f"{'xy'[i]}_labels") if i < 2 else None) or args.labels
        if spec is None:
            continue
        values, _ = read_column(spec, "labels", report.rows_read)
        if len(values) != report.rows_read:
            raise InputError(
                f"{spec}: {len(values):,} labels, and {report.source} has {report.rows_read:,} rows; give one a row "
                "(--x-labels and --y-labels where the sides differ)."
            )
        out[i] = np_texts(["" if v is None else str(v) for v in values])[space.ids]
    return out


def print_stitch(record: dict[str, Any]) -> None:
    """A table of each ordered pair: what was learned on one space and read on another."""
    titles = [brief(s["title"], 40) for s in record["spaces"]]
    figures = ("weighted_f1", "accuracy", "mae", "own_weighted_f1", "r@1", "r@5", "mrr", "nmse")
    heads = ("F1", "accuracy", "MAE", "own F1", "R@1", "R@5", "MRR", "nMSE")
    shown = [i for i, name in enumerate(figures) if any(r.get(name) is not None for r in record["results"])]
    by_pair: dict[tuple[int, int], list] = {}
    for r in record["results"]:
        by_pair.setdefault((r["decoder"], r["encoder"]), []).append(r)
    for (d, e), results in by_pair.items():
        print()
        say(f"learned on {titles[d]}, read on {titles[e]}" if d != e else f"{titles[d]} by itself")
        rows: dict[str, list] = {}
        for r in results:
            rows.setdefault(r["title"], []).append(r)
        lines = []
        for name, of in rows.items():
            failed = next((r["error"] for r in of if r["error"]), "")
            known = [r for r in of if not r["error"]]
            cells = [mean_of(known, figures[i]) for i in shown]
            lines.append((brief(name, 60), *cells, brief(failed, 80)))
        print_table([("", *(heads[i] for i in shown), ""), *lines])
    for note in dict.fromkeys(n for r in record["results"] for n in r.get("notes", ())):
        say(f"note: {note}")


def mean_of(results: list[dict[str, Any]], figure: str) -> str:
    """Mean of a figure over draws, with the spread where there are several."""
    import statistics

    values = [r[figure] for r in results if r.get(figure) is not None]
    if not values:
        return ""
    spread = f" ±{statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.3f}{spread}"


# ---------------------------------------------------------------------- report, export, session


def run_report(args: argparse.Namespace) -> int:
    """``report RUN [RUN ...]``. JSON: ``out, bytes, runs[...]``."""
    from relcore import report, runs, store

    found = [runs.Run.load(folder) for folder in args.run]
    with Heartbeat() as beat:
        beat.says("writing the report")
        text = report.of_run(found[0]) if len(found) == 1 else report.of_runs(found)
        data = text.encode("utf-8", "replace")  # a name that is no Unicode is shown, not kept
        store.write_atomic(args.out.expanduser(), data)
    record = {"out": str(args.out), "bytes": len(data), "runs": [run.id for run in found]}
    if args.json:
        print_json(record)
    else:
        say(f"{args.out}: {len(data) / 1e6:.1f} MB")
    return DONE


def run_export(args: argparse.Namespace) -> int:
    """``export RUN DIR``. JSON: ``out, files[...], notes[...]``."""
    from relcore import export, runs
    from relcore.space import Pair

    run = runs.Run.load(args.run)
    said: dict[str, bool] = {}
    with Heartbeat() as beat:
        beat.says("exporting")
        sides = [space_of_run(run, side, getattr(args, side), said) for side in "xy"]
        for side, space in zip("xy", sides, strict=True):
            if space is None:
                raise InputError(f"side {side}: the vectors the run was made from are not at hand; give --{side} FILE.")
        notes = [*said, *export.write_all(run, Pair(*sides, run.pairs[1]), args.out, args.format, args.k)]
    files = sorted(p.relative_to(args.out).as_posix() for p in args.out.rglob("*") if p.is_file())
    if args.json:
        print_json({"out": str(args.out), "files": files, "notes": notes})
        return DONE
    for name in files:
        say(f"{args.out / name}")
    for note in notes:
        tell(note)
    return DONE


def run_session(args: argparse.Namespace) -> int:
    """``session save FILE RUN ...``, ``session open FILE``. JSON: ``file, runs[...], stitchings[...], notes[...]``."""
    from relcore import runs, sessions

    with Heartbeat() as beat:

        def progress(share: float) -> None:
            beat.says(f"{args.what} {share:.0%}")

        if args.what == "save":
            if not args.run:
                raise InputError("give the folders or ids of the runs to save.")
            found = [runs.Run.load(r) if Path(r).exists() else runs.find(r) for r in args.run]
            notes = sessions.save(args.file, found, progress=progress)
            record = {"runs": [run.id for run in found], "stitchings": []}
        else:
            if args.run:
                raise InputError("session open takes the file alone; all that is in it is opened.")
            opened = sessions.open_session(args.file, progress)
            notes, record = list(opened.notes), {"runs": list(opened.runs), "stitchings": list(opened.stitchings)}
    if args.json:
        print_json({"file": str(args.file)} | record | {"notes": notes})
        return DONE
    for run_id in record["runs"]:
        run = runs.Run.load(store_folder(run_id)) if args.what == "open" else None
        say(f"run {run_id}" + (f"  {run.title}, {run.status}" if run is not None else ""))
    for note in notes:
        tell(note)
    return DONE


def store_folder(run_id: str) -> Path:
    from relcore import store

    return store.home() / "runs" / run_id


# ---------------------------------------------------------------------- sweep


def run_sweep(args: argparse.Namespace) -> int:
    """``sweep CONFIG``. JSON: ``name, folder, status, message, cells, done, failed, kept_before, seconds, rows[{key,
    label, method, params, seeds, corruption, seed, seconds, error | verdict, wrong_seeds, mrr x_to_y, stitching x_to_y,
    score, ...}]``."""
    from relcore import experiments

    started = time.monotonic()
    with Heartbeat() as beat, Interrupt() as interrupt:
        beat.says("reading the data")
        kept = experiments.create(experiments.read(args.config), jobs=args.jobs, scheduler=args.scheduler)
        before = None
        for p in experiments.execute(kept, interrupt):
            if before is None:
                before = p.iteration
                tell(f"{kept.folder}: {p.total:,} cells" + (f", {before:,} done before" if before else ""))
            beat.says(f"{p.iteration:,} of {p.total:,} cells done")
    rows, cells = list(kept.wanted().values()), kept.sweep.cells()
    failed = [row for row in rows if row.get("error")]
    record = {
        "name": kept.record["name"],
        "folder": str(kept.folder),
        "status": kept.status,
        "message": kept.record["message"],
        "cells": len(cells),
        "done": len(rows) - len(failed),
        "failed": len(failed),
        "kept_before": before or 0,
        "seconds": round(time.monotonic() - started, 3),
        "rows": [row | {"label": cells[row["key"]][0].label} for row in rows],
    }
    if args.json:
        print_json(record)
    else:
        print_sweep(record, kept)
    return DONE if kept.status == "done" and record["done"] else FAILED


def print_sweep(record: dict[str, Any], kept: Kept) -> None:
    """The mean of each figure over the random seeds, a line a method and place on the axes; then what failed."""
    from relcore import experiments

    table = kept.table()
    figures = [c for c in experiments.columns(table) if "r@" not in c and c != "restarts"] if record["done"] else []
    if figures:
        axes = [a for a in experiments.AXES if a in table]
        heads = {"corruption": "wrong", "varied": kept.sweep.axes().get("varied", "")}
        words = {"seeds": "{:,}", "corruption": "{:.0%}", "pool": "{:,}", "overlap": "{:.0%}"}
        places = experiments.bands(table, figures[0], "seeds")
        keys = ["label", *axes]
        for c in figures:
            means = experiments.bands(table, c, "seeds")[[*keys, "mean"]].rename(columns={"mean": c})
            places = places.merge(means, "left", keys)
        lines = [("", *(heads.get(a, a) for a in axes), "n", *figures)]
        for _, row in places.sort_values(keys, kind="stable").iterrows():
            at = [
                "" if row[a] != row[a] else words.get(a, "{:g}" if is_number(row[a]) else "{}").format(row[a])
                for a in axes
            ]
            numbers = ["" if row[c] != row[c] else f"{row[c]:.4g}" for c in figures]
            lines.append((row["label"], *at, str(int(row["n"])), *numbers))
        print_table(lines)
    for row in [r for r in record["rows"] if r.get("error")][:PROBLEMS_SHOWN]:
        cell = f"{row['label']}, {row['seeds']:,} seeds, {row['corruption']:.0%}, seed {row['seed']}"
        say(f"failed     {cell}: {row['error']}")
    if record["failed"] > PROBLEMS_SHOWN:
        say(f"failed     and {record['failed'] - PROBLEMS_SHOWN:,} more; --json lists them all")
    done = f"{record['done']:,} of {record['cells']:,} cells done, {record['failed']:,} failed"
    say(f"{record['status']:10} {done}; {kept.folder}" + (f": {record['message']}" if record["message"] else ""))


# ---------------------------------------------------------------------- front


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def whole_number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 up")
    return int(text)


def count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 up")
    return int(text)


def angle(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no angle above 0")
    return value


def device(text: str) -> str:
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is none of auto, cpu, cuda, cuda:N")
    return text


def add_load_options(p: argparse.ArgumentParser, sides: dict[str, str]) -> None:
    """Options of :func:`relcore.formats.load`; ``sides`` gives a prefix and its words for each file to be read."""
    for prefix, of in sides.items():
        for column in ("names", "labels"):
            p.add_argument(f"--{prefix}{column}", metavar="FILE[:KEY]", help=f"{column}{of}, one a row")
        p.add_argument(f"--{prefix}media", metavar="FOLDER|FILE[:KEY]", help=f"pictures or texts{of}, one a row")
        p.add_argument(f"--{prefix}metadata", metavar="FILE", help=f"a table of names, labels and more{of}")
        help = f"the column of ids{of}, for --match id" + (" and --pair-by id" if prefix else "")
        p.add_argument(f"--{prefix}id-column", metavar="COLUMN", help=help)
        help = f"the role of a column{of}: vector, name, label, media, id, meta or ignore"
        p.add_argument(f"--{prefix}column", action="append", default=[], metavar="COLUMN=ROLE", help=help)
    help = "how rows of names, labels and metadata files belong to vectors (default position, with equal counts)"
    p.add_argument("--match", default="position", choices=("position", "first", "id"), help=help)
    help = "rows with missing numbers (default set aside)"
    p.add_argument("--missing", default="set aside", choices=("set aside", "column mean", "stop"), help=help)
    help = "rows that repeat a name (default: first for word vectors, else all)"
    p.add_argument("--duplicates", choices=("first", "all"), help=help)
    p.add_argument("--fold-case", action="store_true", help="keep the first of names that differ in case only")


def add_spread_options(p: argparse.ArgumentParser, what: str) -> None:
    help = f"processes on this machine for the {what}; the results do not depend on it (default 1)"
    p.add_argument("--jobs", type=whole_number, default=1, metavar="N", help=help)
    help = f"a Dask scheduler (tcp://host:port), whose workers do the {what} instead"
    p.add_argument("--scheduler", default="", metavar="ADDRESS", help=help)


def parser() -> Parser:
    top = Parser(prog="python -m relcore", description="Align two embedding spaces, and see how well it went.")
    top.add_argument("--version", action="version", version=f"relcore {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(name: str, run: Any, help: str) -> Parser:
        p = commands.add_parser(name, help=help, description=help, allow_abbrev=False)
        p.set_defaults(run_command=run)
        p.add_argument("--json", action="store_true", help="print one JSON object and nothing else on stdout")
        return p

    p = command("methods", run_methods, "list the methods, or the parameters of one")
    p.add_argument("name", nargs="?", metavar="NAME")

    p = command("inspect", run_inspect, "what the loader sees in a file: shape, type, rows set aside")
    p.add_argument("file", metavar="FILE")
    p.add_argument("--key", help="the array inside the file, as in FILE:KEY")
    add_load_options(p, {"": ""})

    p = command("convert", run_convert, "read one format, write another")
    p.add_argument("file", metavar="IN")
    p.add_argument("out", metavar="OUT", help="the ending says the format")
    p.add_argument("--key", help="the array inside IN, as in IN:KEY")
    add_load_options(p, {"": ""})

    p = command("align", run_align, "align two spaces")
    for side in "xy":
        p.add_argument(f"--{side}", required=True, metavar="FILE[:KEY]", help=f"vectors of space {side}")
    add_load_options(p, {"x-": " of space x", "y-": " of space y"})
    truth = p.add_mutually_exclusive_group()
    truth.add_argument("--pair-by", choices=PAIR_BY, default="none", help="how rows truly correspond (default none)")
    truth.add_argument("--pairs", metavar="FILE", help="true pairs: two columns, row numbers or names")
    p.add_argument(
        "--seeds", default="0", metavar="N|FILE", help="draw N of the true pairs with --seed, or read pairs from a file"
    )
    p.add_argument(
        "--choose",
        choices=CHOOSE,
        default="random",
        help="how --seeds N draws, on space x, centred and scaled to norm 1: random (default); farthest: spread out, "
        "each farthest from those before it; medoids: nearest to the centroids of N k-means clusters; first: the first "
        "rows, the most frequent words of a file in that order; stratified: evenly over the labels of x, random within "
        "them. Averages of clusters are no rows, hence no seeds: they are in --method kmeans, and in relative with "
        "--set choose=kmeans",
    )
    p.add_argument("--method", required=True, metavar="NAME", help="see the methods command")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a parameter of the method")
    p.add_argument("--preprocess", default="center,unit", metavar="STEPS", help="default center,unit; none for none")
    p.add_argument("--seed", type=count, default=0, help="of every random choice (default 0)")
    p.add_argument("--device", type=device, default="auto", help="auto, cpu, cuda or cuda:N (default auto)")
    p.add_argument(
        "--folds", type=count, default=3, help="parts of the seeds held out in turn as a check; 0 for none (default 3)"
    )
    add_spread_options(p, "restarts")
    p.add_argument("--out", type=Path, metavar="DIR", help="keep the run in this folder")

    p = command("sweep", run_sweep, "run a table of alignments; started again, it goes on where it was")
    p.add_argument("config", metavar="CONFIG", help="a TOML file, or the name of a sweep that comes with Relcore")
    add_spread_options(p, "cells")

    p = command("evaluate", run_evaluate, "score a kept run: retrieval, hubness, health")
    p.add_argument("run", type=Path, metavar="RUN", help="folder of the run")
    p.add_argument("--k", type=whole_number, nargs="+", default=[1, 5, 10], help="ranks for R@k (default 1 5 10)")

    p = command("mismatch", run_mismatch, "what one side of a kept run has and the other lacks")
    p.add_argument("run", type=Path, metavar="RUN", help="folder of the run")
    p.add_argument("--sigma", type=angle, metavar="S", help="reach of the kernel, radians (default: the run's own)")
    p.add_argument("--missing", metavar="LABEL", help="a class known to be missing, for its AUROC")
    p.add_argument("--rows", type=Path, metavar="FILE", help="write the sums of every row to this CSV file")

    p = command("report", run_report, "a kept run, or several side by side, as one HTML page that opens offline")
    p.add_argument("run", type=Path, nargs="+", metavar="RUN", help="folder of a run")
    p.add_argument("-o", "--out", type=Path, required=True, metavar="FILE", help="the page to write")

    p = command("export", run_export, "aligned vectors, pairs, matches, figures and recipes of a kept run")
    p.add_argument("run", type=Path, metavar="RUN", help="folder of the run")
    p.add_argument("out", type=Path, metavar="DIR", help="a new folder")
    p.add_argument("--format", default="npz", metavar="ENDING", help="of the aligned vectors, as convert has it (npz)")
    p.add_argument("--k", type=whole_number, default=10, help="matches a row (default 10)")
    for side in "xy":
        p.add_argument(f"--{side}", metavar="FILE[:KEY]", help=f"vectors of the run's {side}, if they have moved")

    p = command("session", run_session, "save runs with their data as one zip file, or open one")
    p.add_argument("what", choices=("save", "open"))
    p.add_argument("file", type=Path, metavar="FILE")
    p.add_argument("run", nargs="*", metavar="RUN", help="to save: folders or ids of runs")

    add_stitch_options(command("stitch", run_stitch, "read a classifier of one space on another, every ordered pair"))
    return top


def add_stitch_options(p: Parser) -> None:
    from relcore import stitching

    p.add_argument("run", type=Path, nargs="?", metavar="RUN", help="folder of a run over two spaces; or --space")
    p.add_argument("--space", action="append", metavar="FILE[:KEY]", help="vectors of a space; two or more times")
    p.add_argument("--pair-by", choices=("row", "name", "none"), default="none", help="how rows of --space correspond")
    p.add_argument("--labels", metavar="FILE", help="a label a row, for every space (default: those of the data)")
    for side in "xy":
        p.add_argument(f"--{side}-labels", metavar="FILE", help=f"labels of space {side}, the first or second")
        p.add_argument(f"--{side}", metavar="FILE[:KEY]", help=f"vectors of the run's {side}, if they have moved")
    named = "; ".join(f"{name}: {text}" for name, text in stitching.CLASSIFIERS.items() if name != stitching.HEAD)
    kinds = [name for name in stitching.CLASSIFIERS if name != stitching.HEAD]
    p.add_argument("--classifier", choices=kinds, default="logistic", help=named)
    p.add_argument("--head", metavar="FILE", help="a linear head W (classes, dimensions), b, perhaps classes, instead")
    p.add_argument("--ordered", action="store_true", help="labels are numbers: mean absolute error too")
    p.add_argument("--test", type=float, default=0.25, metavar="SHARE", help="of each class, tested (default 0.25)")
    p.add_argument("--seed", type=count, default=0, help="of split, support, anchors and classifier (default 0)")
    p.add_argument("--draws", type=whole_number, default=1, help="so many seeds from --seed on (default 1)")
    p.add_argument(
        "--way",
        action="append",
        metavar="ANCHORS+SIMILARITY",
        help=f"describe rows by shared anchors: {', '.join(stitching.ANCHORS)} + {', '.join(stitching.SIMILARITIES)}; "
        f"several times (with --space by default {', '.join(stitching.USUAL)})",
    )
    p.add_argument("--anchors", type=whole_number, default=128, help="of each way (default 128)")
    p.add_argument("--support", type=whole_number, default=2000, help="items anchors are made of, at most (2000)")
    p.add_argument("--seeds", type=whole_number, default=15, help="of the reference by seeds only (default 15)")
    p.add_argument("--shrinkage", choices=stitching.SHRINKAGES, default="agreed", help="of whitened products")
    p.add_argument("--shrinkage-amount", type=float, default=0.01, help="with --shrinkage fixed (default 0.01)")
    p.add_argument("--hold-out", action="store_true", help="the space that is read had no part in finding anchors")
    p.add_argument("--standardise", action="store_true", help="features of mean 0 and variance 1 over the support")


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit code."""
    try:
        args = parser().parse_args(argv)
        code = args.run_command(args)
        sys.stdout.flush()  # a reader who left is noticed here, not at interpreter exit
        return code
    except RunFailed as e:
        tell(f"relcore: the run failed: {one_line(e)}")
        return FAILED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads; let Python's own flush succeed
        return FAILED
    except (InputError, OSError) as e:
        tell(f"relcore: {one_line(e)}")
        return BAD_INPUT
    except MemoryError:
        tell("relcore: the memory is not enough for this; use fewer rows")
        return FAILED
    except KeyboardInterrupt:
        tell("relcore: stopped")
        return FAILED
