"""What a finished run gives away: aligned vectors, pairs, matches, figures, and the lines that make it again.

Every function takes a run and its two spaces and returns tables or text; :func:`write_all` puts them in a folder.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from relcore import formats, methods
from relcore.analysis import RULES, WAYS, rules_of
from relcore.errors import InputError
from relcore.space import Pair, Pairs, Space

if TYPE_CHECKING:
    import pandas as pd

    from relcore.runs import Run

SIDES = ("x", "y")
THREADS = "OMP_NUM_THREADS"
OTHER = {"x": "y", "y": "x"}


def aligned(run: Run, pair: Pair, side: str) -> Space:
    """A side in the common space, with the ids, names, labels and metadata of its rows.

    Raises
    ------
    InputError
        Rows that came out as zeros or NaN, which no space holds.
    """
    v = run.alignment_arrays()[side]
    bad = np.flatnonzero(~np.isfinite(v).all(1) | ~v.any(1))
    if len(bad):
        raise InputError(f"row {bad[0]} of {side} has no direction in the common space; {len(bad)} such rows.")
    of = getattr(pair, side)
    return Space(
        np.ascontiguousarray(v, np.float32), of.ids, of.names, of.labels, of.meta, of.media, f"{of.title}, aligned"
    )


def pairs_table(pairs: Pairs, pair: Pair) -> pd.DataFrame:
    """``x_row, y_row`` (row numbers of the source files), ``x_name, y_name``."""
    import pandas as pd

    return pd.DataFrame(
        {
            "x_row": pair.x.ids[pairs.x],
            "y_row": pair.y.ids[pairs.y],
            "x_name": pair.x.names[pairs.x],
            "y_name": pair.y.names[pairs.y],
        }
    )


def anchors(run: Run) -> Pairs | None:
    """The anchors a run found, which need not be unique on y; None where the method finds none."""
    found = run.alignment_arrays().get("anchors")
    return None if found is None else Pairs(found, unique=False)


def matches(run: Run, pair: Pair, way: str = "x_to_y", rule: str = "nearest", k: int = 10) -> pd.DataFrame:
    """The k best targets of every query by a rule: ``row, name, rank, match_row, match_name, score``.

    Raises
    ------
    InputError
        The run was not analysed by that rule, or keeps fewer neighbours.
    """
    import pandas as pd

    arrays = run.analysis
    if rule not in rules_of(arrays):
        raise InputError(f"run {run.title} has no matches by {rule!r}; choose one of {', '.join(rules_of(arrays))}.")
    found, scores = arrays[f"{way}/{rule}/indices"], arrays[f"{way}/{rule}/scores"]
    if k > found.shape[1]:
        raise InputError(f"{k} matches a row are asked for and {found.shape[1]} are kept; ask for at most as many.")
    source, target = (pair.x, pair.y) if way == WAYS[0] else (pair.y, pair.x)
    at = found[:, :k].astype(np.int64).ravel()
    rows = np.repeat(np.arange(len(source)), k)
    return pd.DataFrame(
        {
            "row": source.ids[rows],
            "name": source.names[rows],
            "rank": np.tile(np.arange(1, k + 1), len(source)),
            "match_row": target.ids[at],
            "match_name": target.names[at],
            "score": scores[:, :k].ravel(),
        }
    )


def metrics(run: Run) -> pd.DataFrame:
    """Every figure of a run as a row: ``what`` (the path of its name), ``value``."""
    import pandas as pd

    rows: list[tuple[str, Any]] = []

    def walk(name: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(f"{name}.{key}" if name else str(key), inner)
        elif isinstance(value, int | float | str | bool):
            rows.append((name, value))

    record = run.record
    walk("metrics", record.get("metrics") or {})
    walk("health", record.get("health") or {})
    walk("verdict", record.get("verdict") or {})
    walk("", {k: record.get(k) for k in ("status", "converged", "steps", "seconds", "peak_memory_mb")})
    return pd.DataFrame(rows, columns=["what", "value"])


def csv_bytes(table: pd.DataFrame) -> tuple[bytes, bool]:
    """A table as CSV, and whether it holds every name as it is: half of a surrogate pair is no text in UTF-8."""
    text = table.to_csv(index=False)
    try:
        return text.encode("utf-8", "surrogateescape"), True  # bytes that were no UTF-8 in a file are so again
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace"), False


# ---------------------------------------------------------------- how to go on with it


def usage(run: Run, folder: str = "") -> str:
    """How to bring vectors never seen into the common space, in a few lines, with Relcore and without.

    ``folder`` is what the folder with ``run.json`` and ``alignment.safetensors`` is called; by default the run's own.
    """
    arrays = run.alignment_arrays()
    lines = ["import relcore", f"run = relcore.Run.load({folder or run.folder.name!r})   # the folder of the run"]
    for side in SIDES:
        if any(name == f"encode_{side}" or name.startswith(f"encode_{side}.") for name in arrays):
            lines.append(
                f'z_{side} = run.encoder("{side}")(vectors_{side})   # rows as they were loaded, float32 (n, d)'
            )
        else:
            lines.append(f"# side {side}: this method places the rows it was given and no others")
    if "map" in arrays:
        d, r = arrays["map"].shape
        lines.append(
            f"# without Relcore: preprocessed rows of x ({d} numbers) @ map ({d}, {r}), in alignment.safetensors"
        )
    lines.append("# rows are compared by cosine")
    return "\n".join(lines) + "\n"


def command(run: Run, x: str, y: str, pairs: str | None, seeds: str | None, out: str = "again") -> str:
    """The shell line that makes the run again from these files."""
    r = run.record
    words = ["python", "-m", "relcore", "align", "--x", x, "--y", y]
    words += ["--pairs", pairs] if pairs else []
    words += ["--seeds", seeds] if seeds else []
    words += ["--method", r["method"]]
    for name, value in r["params"].items():
        words += ["--set", f"{name}={str(value).lower() if isinstance(value, bool) else value}"]
    words += ["--preprocess", ",".join(r["preprocess"]) or "none", "--seed", str(r["seed"])]
    words += ["--device", r["device"], "--folds", str(r["folds"]), "--out", out]
    threads = _threads(run)
    return (f"{THREADS}={threads} " if threads else "") + shlex.join(words) + "\n"


def _threads(run: Run) -> int:
    """How many threads the run computed with; 0 where an older run does not tell. With another number sums are of
    another order, and the last digits are others."""
    return int(run.record.get("threads") or 0)


def script(run: Run, x: str, y: str, pairs: str | None, seeds: str | None) -> str:
    """The same in Python."""
    r = run.record
    given = ", ".join(f"{name}={value!r}" for name, value in r["params"].items())
    threads = _threads(run)
    lines = [
        *(("import os",) if threads else ()),
        "from pathlib import Path",
        "",
        *(
            (f'os.environ["{THREADS}"] = "{threads}"  # as in the run: other threads, other last digits', "")
            if threads
            else ()
        ),
        "import relcore",
        "from relcore import seeds",
        "",
        f"x, read_x = relcore.load({x!r})",
        f"y, read_y = relcore.load({y!r})",
        f"truth = seeds.read_pairing(Path({pairs!r}), x, y, read_x, read_y).pairs" if pairs else "truth = None",
        f"known = seeds.read_pairing(Path({seeds!r}), x, y, read_x, read_y).pairs"
        if seeds
        else "known = relcore.Pairs.empty()",
        f"method = relcore.method({r['method']!r}, {given})" if given else f"method = relcore.method({r['method']!r})",
        "outcome = relcore.align(",
        f"    relcore.Pair(x, y, truth), method, known, preprocess={tuple(r['preprocess'])!r}, seed={r['seed']!r},",
        f"    device={r['device']!r}, folds={r['folds']!r},",
        ")",
        "print(outcome.verdict.text)",
        "print(outcome.metrics)",
    ]
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------- into a folder


def write_recipe(run: Run, pair: Pair, folder: Path) -> list[str]:
    """All that makes the run again: both spaces, true pairs, seeds, ``make_again.sh`` and ``make_again.py``.

    Rows are numbered anew from 0, as they lie in the files. Returns what the files do not hold, in words.
    """
    folder.mkdir(parents=True, exist_ok=True)
    notes = []
    for side in SIDES:
        notes += [f"{side}.npz: {note}" for note in formats.write(getattr(pair, side), folder / f"{side}.npz")]
    seeds, truth = run.pairs
    names = {}
    for name, of in (("seeds", seeds), ("pairs", truth)):
        if of is not None and len(of):
            names[name] = f"{name}.csv"
            lines = ["x_row,y_row", *(f"{a},{b}" for a, b in of.array.tolist())]
            (folder / names[name]).write_text("\n".join(lines) + "\n")
    files = ("x.npz:vectors", "y.npz:vectors", names.get("pairs"), names.get("seeds"))
    (folder / "make_again.sh").write_text(command(run, *files))
    (folder / "make_again.py").write_text(script(run, *files))
    return notes


def write_all(run: Run, pair: Pair, folder: str | Path, ending: str = "npz", k: int = 10) -> list[str]:
    """Everything a run gives away, into a folder that is new or empty; return notes on what could not be kept.

    It is written beside and put there when it is whole.

    Files: ``aligned_x``, ``aligned_y`` with the ending asked for; ``seeds.csv``, ``anchors.csv``; ``matches_WAY.csv``,
    by the coupling where there is one, else by cosine; ``metrics.csv``; ``run/``, the record and the map or
    encoders; ``usage.txt``, how to use these; ``make_again/``.

    Raises
    ------
    InputError
        The run has no alignment, the folder holds something, or nothing is written with that ending.
    """
    if not run.usable:
        raise InputError(
            f"run {run.title} is {run.status} and has no alignment to export; wait for it, or run another."
        )
    folder = Path(folder).expanduser()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is not an empty folder; give a new one.")
    formats.writer(Path(f"a.{ending}"))
    there = folder.exists()
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(dir=folder if there else folder.parent, prefix=".relcore-"))
    try:
        notes = _write_parts(run, pair, beside, ending, k)
        if there:  # it may be where a shell stands, or a disk of its own
            for part in beside.iterdir():
                os.replace(part, folder / part.name)
            beside.rmdir()
        else:
            beside.chmod(0o755)  # of a temporary folder it is 700
            os.replace(beside, folder)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    return notes


def _write_parts(run: Run, pair: Pair, folder: Path, ending: str, k: int) -> list[str]:
    notes = []
    tables: dict[str, pd.DataFrame] = {}
    for side in SIDES:
        name = f"aligned_{side}.{ending}"
        notes += [f"{name}: {note}" for note in formats.write(aligned(run, pair, side), folder / name)]
    if len(run.pairs[0]):
        tables["seeds"] = pairs_table(run.pairs[0], pair)
    found = anchors(run)
    if found is not None:
        tables["anchors"] = pairs_table(found, pair)
    rule = "coupling" if "coupling" in rules_of(run.analysis) else "nearest"
    kept = min(k, *(run.analysis[f"{way}/{rule}/indices"].shape[1] for way in WAYS))
    if kept < k:
        notes.append(f"{kept} matches a row are kept, fewer than {k}")
    for way in WAYS:
        tables[f"matches_{way}"] = matches(run, pair, way, rule, kept)
    notes.append(f"matches are by {RULES[rule]}")
    tables["metrics"] = metrics(run)
    for name, table in tables.items():
        data, exact = csv_bytes(table)
        (folder / f"{name}.csv").write_bytes(data)
        notes += [] if exact else [f"{name}.csv: names that are no Unicode have a ? in their place"]
    (folder / "run").mkdir()
    (folder / "run" / "run.json").write_text(json.dumps(run.record, indent=1))
    shutil.copyfile(run.folder / "alignment.safetensors", folder / "run" / "alignment.safetensors")
    (folder / "usage.txt").write_text(usage(run, "run"), encoding="utf-8", errors="replace")
    notes += write_recipe(run, pair, folder / "make_again")
    title = methods.method_class(run.record["method"]).title if run.record["method"] in methods.REGISTRY else ""
    text = f"{run.title}: {title}, made by Relcore.\n" + "\n".join(notes) + "\n"
    (folder / "README.txt").write_text(text, encoding="utf-8", errors="replace")
    return notes
