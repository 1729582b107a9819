"""Runs side by side: what they were, how they score on one truth, where one finds what the other misses.

Runs compare where they are of the same two spaces; :func:`groups` sorts them so. Every figure here is read from
``analysis.safetensors`` of the runs (:mod:`relcore.analysis`), on the true pairs that are a seed of none of them, so
that no run is asked what another was told. numpy alone: the app server draws them itself.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from relcore import methods
from relcore.analysis import HUB_K, MRR_K, WAYS, ranks_of, rules_of
from relcore.errors import InputError
from relcore.metrics import hubness
from relcore.space import Pairs

if TYPE_CHECKING:
    import pandas as pd

    from relcore.runs import Run

Arrays = Mapping[str, np.ndarray]
AT = (1, 5, 10)


@dataclass(frozen=True, eq=False)
class Group:
    """Runs of the same two spaces with the same true pairs, newest first."""

    key: str
    title: str
    runs: tuple[Run, ...]

    @property
    def seeds_differ(self) -> bool:
        return len({seeds_digest(run) for run in self.runs}) > 1


def groups(runs: Sequence[Run]) -> list[Group]:
    """Runs sorted by their data; the group with the newest run first."""
    found: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda r: r.record["created"], reverse=True):
        found.setdefault(data_key(run), []).append(run)
    out = []
    for key, of in found.items():
        x, y = (of[0].record[side] for side in "xy")
        out.append(
            Group(
                key, f"{x['title']} ({x['rows']:,} x {x['dim']}), {y['title']} ({y['rows']:,} x {y['dim']})", tuple(of)
            )
        )
    return out


def data_key(run: Run) -> str:
    """Of both spaces and the true pairs between them."""
    truth = run.pairs[1]
    told = "" if truth is None else _digest(truth)
    return "-".join(run.record[side]["fingerprint"][:16] for side in "xy") + "-" + told


def seeds_digest(run: Run) -> str:
    """The same for the same seed pairs in any order."""
    return _digest(run.pairs[0])


def _digest(pairs: Pairs) -> str:
    """The same for the same pairs in any order."""
    array = pairs.array
    return hashlib.sha256(array[np.lexsort(array.T)].tobytes()).hexdigest()[:16]


def scored(runs: Sequence[Run]) -> Pairs | None:
    """The true pairs that are a seed of none of the runs; None where no truth is known.

    Raises
    ------
    InputError
        Runs of different data.
    """
    if len({data_key(run) for run in runs}) > 1:
        raise InputError("runs of different data share no truth; compare them group by group.")
    truth = runs[0].pairs[1]
    return None if truth is None else reduce(lambda pairs, run: pairs.without(run.pairs[0]), runs, truth)


def figures(arrays: Arrays, pairs: Pairs | None, rule: str = "nearest") -> dict[str, float]:
    """``mrr WAY`` (cut at rank 10), ``r@K WAY`` of the pairs, and ``skewness WAY`` of N_10, by a rule."""
    if rule not in rules_of(arrays):
        return {}
    out = {}
    for way in WAYS:
        ranks = ranks_of(arrays, way, rule)
        if pairs is not None and len(pairs) and ranks is not None:
            of = ranks[pairs.x if way == WAYS[0] else pairs.y]
            out |= {f"r@{depth} {way}": float((of <= depth).mean()) for depth in AT}
            out[f"mrr {way}"] = float(reciprocal(of).mean())
        n_k = arrays[f"{way}/{rule}/n_k"]
        out[f"skewness {way}"] = float(hubness.summary(n_k, min(HUB_K, len(n_k)))["skewness"])
    return out


def reciprocal(ranks: np.ndarray) -> np.ndarray:
    """1 / rank, float64; 0 beyond rank 10, as MRR counts it, and where no partner is known."""
    known = (ranks > 0) & (ranks <= MRR_K)
    return np.where(known, 1 / np.maximum(ranks, 1), 0.0)


def wins(first: Arrays, second: Arrays, pairs: Pairs, way: str, rule: str = "nearest") -> tuple[np.ndarray, np.ndarray]:
    """Reciprocal ranks (k,) of the partners of the pairs' queries under two runs, in the order of the pairs."""
    rows = pairs.x if way == WAYS[0] else pairs.y
    return tuple(reciprocal(ranks_of(arrays, way, rule)[rows]) for arrays in (first, second))


def agreement(analyses: Sequence[Arrays], way: str, rule: str = "nearest") -> np.ndarray:
    """Share (R, R) of all queries whose nearest target is the same under two runs; NaN where a run lacks the rule."""
    key = f"{way}/{rule}/indices"
    out = np.full((len(analyses), len(analyses)), np.nan)
    for i, a in enumerate(analyses):
        for j, b in enumerate(analyses):
            if key in a and key in b:
                out[i, j] = float((a[key][:, 0] == b[key][:, 0]).mean())
    return out


# ---------------------------------------------------------------- what was done


def settings(run: Run) -> dict[str, Any]:
    """Everything of a run but its data, seeds and random seed: method, its parameters, preprocessing, seeds' number."""
    r = run.record
    return {
        "method": r["method"],
        **{f"{name}": value for name, value in r["params"].items()},
        "preprocess": ",".join(r["preprocess"]) or "none",
        "seeds": r["seeds"],
    }


def setup(run: Run) -> str:
    """The same for runs that differ by random seed or by which seeds were drawn, and in nothing else. How they were
    drawn (at random, spread out) is no chance."""
    how = re.sub(r" \(seed \d+\)", "", run.record.get("seeds_origin") or "")
    kept = settings(run) | {"notes": [n for n in run.record.get("notes", ()) if "corrupted" in n], "drawn": how}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


def changed(run: Run) -> dict[str, Any]:
    """The parameters that are not the method's defaults, as far as this version knows them."""
    try:
        cls = methods.method_class(run.record["method"])
    except InputError:  # a method of a later version
        return dict(run.record["params"])
    usual = {f.name: f.default for f in dataclasses.fields(cls)}
    return {k: v for k, v in run.record["params"].items() if k not in usual or usual[k] != v}


def difference(run: Run, base: Run) -> str:
    """In one line what was set otherwise than in another run; of another method, what is not its default."""
    if run is base or run.id == base.id:
        return "baseline"
    mine, theirs = settings(run), settings(base)
    words = []
    if mine["method"] != theirs["method"]:
        words = [f"{k}={v}" for k, v in changed(run).items()]
    else:
        words = [
            f"{k}={v}" for k, v in mine.items() if theirs.get(k) != v and k not in ("method", "preprocess", "seeds")
        ]
    if mine["preprocess"] != theirs["preprocess"]:
        words.append(f"preprocess {mine['preprocess']}")
    if mine["seeds"] != theirs["seeds"]:
        words.append(f"{mine['seeds']} seeds")
    elif seeds_digest(run) != seeds_digest(base):
        words.append("other seeds")
    if run.record["seed"] != base.record["seed"]:
        words.append(f"random seed {run.record['seed']}")
    return ", ".join(words) or "the same settings"


def table(runs: Sequence[Run], analyses: Sequence[Arrays | None], rule: str = "nearest") -> pd.DataFrame:
    """A row a run of one group, in the order given: ``id, title, method, status, seeds, seconds, verdict, setup`` and
    :func:`figures` on :func:`scored`; figures are missing for a run without an alignment.

    Raises
    ------
    InputError
        Runs of different data.
    """
    import pandas as pd

    pairs = scored([run for run, arrays in zip(runs, analyses, strict=True) if arrays is not None] or list(runs))
    rows = []
    for run, arrays in zip(runs, analyses, strict=True):
        r = run.record
        rows.append(
            {
                "id": run.id,
                "title": run.title,
                "method": r["method"],
                "status": run.status,
                "seeds": r["seeds"],
                "seconds": r.get("seconds"),
                "verdict": (r.get("verdict") or {}).get("level", ""),
                "setup": setup(run),
                **({} if arrays is None else figures(arrays, pairs, rule)),
            }
        )
    return pd.DataFrame(rows)


def over_seeds(rows: pd.DataFrame) -> pd.DataFrame:
    """Runs of one setup that ended alike together: mean and standard deviation (``... sd``; NaN of one) of each figure,
    and their number ``n``. ``title`` and ``id`` are those of the first. What was cancelled on its way is no repetition
    of what came to its end, and what failed has no figures."""
    import pandas as pd

    values = [c for c in rows.columns if c.rsplit(" ", 1)[-1] in WAYS] + ["seconds"]
    out = []
    for _, of in rows.groupby(["setup", "status"], sort=False):
        line = {k: of[k].iloc[0] for k in ("id", "title", "method", "status", "seeds", "setup")} | {"n": len(of)}
        for name in values:
            line[name], line[f"{name} sd"] = of[name].mean(), of[name].std()
        out.append(line)
    return pd.DataFrame(out)
