"""Choosing, reading, checking and corrupting seed pairs. numpy only; every random choice takes a seed."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from relcore.errors import InputError
from relcore.formats.base import ID_WORDS, NAME_WORDS, shown
from relcore.formats.sniff import is_text, read_head
from relcore.formats.text import open_text
from relcore.space import NO_LABEL, LoadReport, Pairs, Space

Seed = int | np.random.Generator
_NUMBER_HEADS = {*ID_WORDS, "rows", "x_id", "y_id", "id_x", "id_y", "x_row", "y_row", "row_x", "row_y"}
_NAME_HEADS = {*NAME_WORDS, "x_name", "y_name", "name_x", "name_y"}
_OTHER_HEADS = {"x", "y", "a", "b", "source", "target", "src", "tgt", "trg", "left", "right"}
_INTEGER = re.compile(r"\s*\d+\s*")


def draw(pairs: Pairs, count: int, *, seed: Seed) -> Pairs:
    """``count`` of the pairs at random. With one seed, a smaller draw is the beginning of a larger one.

    Raises
    ------
    InputError
        Fewer pairs than asked for.
    """
    _enough(pairs, count)
    return pairs.take(np.random.default_rng(seed).permutation(len(pairs))[:count])


def farthest_point(vectors_x: np.ndarray, pairs: Pairs, count: int, seed: Seed) -> Pairs:
    """``count`` of the pairs, spread out: from a random first one, always the pair farthest from those chosen.

    The greedy 2-approximation of the k-centre problem (Gonzalez 1985) by the angle between rows of x.

    Parameters
    ----------
    vectors_x : float array (n, d), rows of norm 1 (centred first, if the alignment centres).

    Raises
    ------
    InputError
        Fewer pairs than asked for.
    """
    _enough(pairs, count)
    if count == 0:
        return pairs.take(np.empty(0, dtype=np.int64))
    v = np.asarray(vectors_x[pairs.x], dtype=np.float32)
    chosen = [int(np.random.default_rng(seed).integers(len(pairs)))]
    nearest = v @ v[chosen[0]]
    while len(chosen) < count:
        nearest[chosen[-1]] = np.inf  # never again
        chosen.append(int(nearest.argmin()))
        np.maximum(nearest, v @ v[chosen[-1]], out=nearest)
    return pairs.take(np.array(chosen))


def _enough(pairs: Pairs, count: int) -> None:
    if not 0 <= count <= len(pairs):
        raise InputError(f"{count} seeds asked for, but only {len(pairs)} pairs are known; ask for at most that many.")


# --------------------------------------------------------------------------------------------- pairing up two spaces


def pair_by(x: Space, y: Space, how: str) -> tuple[Pairs | None, list[str]]:
    """Which rows of two spaces correspond, and what stood in the way.

    Parameters
    ----------
    how : ``"row"``: same row number of the source file (a row set aside on one side drops out); ``"name"``: same name,
        exactly, held by one row on each side; ``"id"``: the same for the metadata column ``id``; ``"none"``.

    Returns
    -------
    The pairs in the order of x, or None if there are none, and a list of sentences.

    Raises
    ------
    InputError
        ``how`` is none of the four.
    """
    if how == "none":
        return None, []
    if how == "row":
        keys = [x.ids.tolist(), y.ids.tolist()]
    elif how == "name":
        keys = [list(x.names), list(y.names)]
    elif how == "id":
        keys = [_id_column(x), _id_column(y)]
        lacking = [f"{side} ({s.title})" for side, s, k in zip("xy", (x, y), keys, strict=True) if k is None]
        if lacking:
            return None, [f"no column of ids in {' and '.join(lacking)}; pair by row or by name instead"]
    else:
        raise InputError(f"pairs cannot be made by {how!r}; choose one of row, name, id, none.")
    where = [_positions(k) for k in keys]
    what = {"row": "row numbers", "name": "names", "id": "ids"}[how]
    problems = []
    for side, at in zip("xy", where, strict=True):
        twice = [k for k, p in at.items() if len(p) > 1]
        if twice:
            rows = sum(len(at[k]) for k in twice)
            problems.append(
                f"{len(twice):,} {what} are shared by several rows of {side} ({rows:,} rows), left unpaired: "
                f"{shown([repr(k) for k in twice], 5)}"
            )
    for side, mine, other in (("x", *where), ("y", *where[::-1])):
        alone = sum(len(p) for k, p in mine.items() if k not in other)
        if alone:
            problems.append(f"{alone:,} rows of {side} have no partner")
    found = [(p[0], where[1][k][0]) for k, p in where[0].items() if len(p) == 1 and len(where[1].get(k, ())) == 1]
    if not found:
        return None, [*problems, f"the two spaces have no {what} in common"]
    return Pairs(np.array(found, dtype=np.int64)), problems


def _positions(keys: list) -> dict:
    out: dict = {}
    for p, k in enumerate(keys):
        out.setdefault(k, []).append(p)
    return out


def _id_column(s: Space) -> list[str] | None:
    if s.meta is None:
        return None
    column = next((c for c in s.meta.columns if str(c).lower() in ID_WORDS), None)
    return None if column is None else [str(v).strip() for v in s.meta[column]]


# -------------------------------------------------------------------------------------------------- pairs from a file


@dataclass(frozen=True)
class _Side:
    """How the cells of one column are looked up in one space."""

    letter: str
    space: Space
    aside: dict[int, str]  # row number -> reason
    aside_names: dict[str, int]  # name -> row number
    by_number: bool

    def find(self, cell: str) -> int | str:
        """The row position, or what is wrong with the cell."""
        if self.by_number:
            row = int(cell) if _INTEGER.fullmatch(cell) else None
            if row is None:
                return f"{cell!r} is no row number of {self.letter}"
            if row in self.space.position_of_id:
                return self.space.position_of_id[row]
            if row in self.aside:
                return f"row {row} of {self.letter} was set aside at load ({self.aside[row]})"
            last = max(int(self.space.ids[-1]), *self.aside, 0)
            return f"there is no row {row} in {self.letter}, whose rows are 0 to {last}"
        at = self.space.positions_of_name
        name = cell if cell in at or cell in self.aside_names else cell.strip()
        rows = at.get(name, ())
        if len(rows) == 1:
            return rows[0]
        if len(rows) > 1:
            ids = shown([int(self.space.ids[r]) for r in rows], 5)
            return f"{name!r} is the name of {len(rows)} rows of {self.letter} (rows {ids}); give the row number"
        if name in self.aside_names:
            row = self.aside_names[name]
            return f"{name!r} of {self.letter}, row {row}, was set aside at load ({self.aside[row]})"
        return f"{name!r} is no name in {self.letter}"


def read_pairs(
    source: Path | str, x: Space, y: Space, report_x: LoadReport, report_y: LoadReport
) -> tuple[Pairs, list[str]]:
    """Pairs from a file (a ``Path``) or a text (a ``str``, never taken for a path: it may come from anyone).

    Two columns by tab, comma, semicolon or whitespace, x then y, each row numbers or names.

    A column of whole numbers is read as row numbers of the source file, any other as names. A header line is
    tolerated, and decides between the two (``row`` or ``name``) where both would do.

    Returns
    -------
    The pairs that could be read, unique on both sides, and a sentence with its line number for every other line.

    Raises
    ------
    InputError
        No such file; or a column whose numbers are row numbers and names at once, of different rows.
    """
    what, lines = _two_columns(source)
    problems = [f"line {i}: {len(f)} columns, wanted 2" for i, f in lines if len(f) != 2]
    rows = [(i, f) for i, f in lines if len(f) == 2]
    if not rows:
        return Pairs.empty(), problems or [f"{what} holds no pairs"]
    sides, header = _sides(what, rows, (x, y), (report_x, report_y))
    pairs: list[tuple[int, int]] = []
    taken: tuple[dict[int, int], dict[int, int]] = ({}, {})  # row position -> line, for each side
    for i, cells in rows[header:]:
        found = [side.find(cell) for side, cell in zip(sides, cells, strict=True)]
        wrong = [f for f in found if isinstance(f, str)]
        if wrong:
            problems.append(f"line {i}: {'; '.join(wrong)}")
            continue
        before = [(side, line[p]) for side, line, p in zip(sides, taken, found, strict=True) if p in line]
        if len(before) == 2 and before[0][1] == before[1][1]:
            problems.append(f"line {i}: the same pair as line {before[0][1]}, kept once")
        elif before:
            said = ", ".join(f"{cells['xy'.index(s.letter)]!r} of {s.letter} (line {line})" for s, line in before)
            problems.append(f"line {i}: already paired: {said}; the first is kept")
        else:
            pairs.append((found[0], found[1]))
            taken[0][found[0]] = taken[1][found[1]] = i
    problems.sort(key=lambda p: int(p.split(":")[0].removeprefix("line ")))
    return Pairs(np.array(pairs, dtype=np.int64).reshape(-1, 2)), problems


def _two_columns(source: Path | str) -> tuple[str, list[tuple[int, list[str]]]]:
    """What the source is called, and (line number from 1, fields) of every line that is not blank."""
    what, text = "the text", source
    if isinstance(source, Path):
        if not is_text(read_head(source)):
            raise InputError(f"{source.name} is no text; give pairs as a .csv or .tsv file of two columns.")
        with open_text(source) as f:
            what, text = source.name, f.read()
    lines = [(i, line) for i, line in enumerate(text.splitlines(), 1) if line.strip()]

    def fields(delimiter: str | None) -> list[tuple[int, list[str]]]:
        split: Callable[[str], list[str]]
        if delimiter is None:
            split = str.split
        elif delimiter == "\t":
            split = lambda line: line.split("\t")  # noqa: E731
        else:
            split = lambda line: next(csv.reader([line], delimiter=delimiter))  # noqa: E731
        return [(i, split(line)) for i, line in lines]

    tried = [fields(d) for d in ("\t", ",", ";", None)]
    return what, max(tried, key=lambda rows: sum(len(f) == 2 for _, f in rows))


def _sides(
    source: str, rows: list[tuple[int, list[str]]], spaces: tuple[Space, Space], reports: tuple[LoadReport, LoadReport]
) -> tuple[list[_Side], bool]:
    """How each column is read, and whether the first line is a header."""
    first = [c.strip().lower() for c in rows[0][1]]
    words = _NUMBER_HEADS | _NAME_HEADS | _OTHER_HEADS
    is_name = [cell.strip() in s.positions_of_name for cell, s in zip(rows[0][1], spaces, strict=True)]
    body = rows[1:]
    numeric = [bool(body) and all(_INTEGER.fullmatch(f[c]) for _, f in body) for c in (0, 1)]
    first_numeric = [bool(_INTEGER.fullmatch(c)) for c in first]
    # a word above a column of numbers is a header; elsewhere only a usual heading that is no name itself
    header = any(n and not f for n, f in zip(numeric, first_numeric, strict=True))
    header |= all(f in words for f in first) and not all(is_name)
    sides = []
    for c, (letter, space, report) in enumerate(zip("xy", spaces, reports, strict=True)):
        cells = [f[c].strip() for _, f in (body if header else rows)]
        by_number = bool(cells) and all(_INTEGER.fullmatch(cell) for cell in cells)
        if by_number and header and first[c] in _NAME_HEADS:
            by_number = False
        elif by_number and not (header and first[c] in _NUMBER_HEADS):
            at, position = space.positions_of_name, space.position_of_id
            clash = [k for k in cells if k in at and at[k] != [position.get(int(k))]]
            if clash and all(k in at for k in cells):
                raise InputError(
                    f"{source}: column {c + 1} holds numbers that are row numbers and names of {letter} at once, such "
                    f"as {clash[0]}, row {clash[0]} or the row named so; say which with a first line, row or name."
                )
        aside = {s.row: s.reason for s in report.set_aside}
        names = dict(zip(report.aside_names, aside, strict=True)) if report.aside_names else {}
        sides.append(_Side(letter, space, aside, names, by_number))
    return sides, header


# ------------------------------------------------------------------------------------------------- stress and quality


def corrupt(pairs: Pairs, share: float, labels_y: np.ndarray | None, m: int, seed: Seed) -> tuple[Pairs, np.ndarray]:
    """Give a share of the pairs a wrong partner, of another class where labels exist; still unique on both sides.

    Parameters
    ----------
    share : 0 to 1; the nearest whole number of pairs is corrupted.
    labels_y : object array (m,) of the y side's labels, or None.
    m : rows of y.

    Returns
    -------
    The pairs, in their order, and a bool array (k,) that is True where the partner is wrong.

    Raises
    ------
    InputError
        The share is not within 0 and 1, or there are not enough wrong partners.
    """
    if not 0 <= share <= 1:
        raise InputError(f"the share to corrupt is {share}, wanted 0 to 1.")
    rng = np.random.default_rng(seed)
    which = rng.permutation(len(pairs))[: round(share * len(pairs))]
    mask = np.zeros(len(pairs), dtype=bool)
    mask[which] = True
    true = pairs.y
    pool = rng.permutation(np.setdiff1d(np.arange(m), true[~mask]))

    def wrong(i: int) -> np.ndarray:
        """Which rows of the pool are a wrong partner for pair i."""
        ok = pool != true[i]
        if labels_y is not None and labels_y[true[i]] != NO_LABEL:
            ok &= (labels_y[pool] != labels_y[true[i]]) & (labels_y[pool] != NO_LABEL)
        return ok

    partner = _match(which, wrong, len(pool))
    if partner is None:
        kind = "rows" if labels_y is None else "rows of other classes"
        raise InputError(
            f"{len(which)} of {len(pairs)} pairs cannot all get a wrong partner: too few {kind} are free among the {m} "
            "of y; corrupt fewer."
        )
    array = pairs.array.copy()
    array[which, 1] = pool[partner]
    return Pairs(array, unique=pairs.unique), mask


def _match(left: np.ndarray, allowed: Callable[[int], np.ndarray], size: int) -> np.ndarray | None:
    """A right side for each of ``left``, all different (augmenting paths, Kuhn 1955), or None if there is none."""
    owner = np.full(size, -1)
    for start in range(len(left)):
        seen = np.zeros(size, dtype=bool)
        came: dict[int, tuple[int, int]] = {}  # right -> (left that reached it, the right it leaves)
        queue, end = [(start, -1)], -1
        while queue and end < 0:
            i, leaves = queue.pop(0)
            reach = np.flatnonzero(allowed(left[i]) & ~seen)
            seen[reach] = True
            free = reach[owner[reach] < 0]
            if len(free):
                end = int(free[0])
                came[end] = (i, leaves)
            else:
                came |= {int(r): (i, leaves) for r in reach}
                queue += [(int(owner[r]), int(r)) for r in reach]
        if end < 0:
            return None
        while end >= 0:
            i, leaves = came[end]
            owner[end], end = i, leaves
    out = np.empty(len(left), dtype=np.int64)
    out[owner[owner >= 0]] = np.flatnonzero(owner >= 0)
    return out


def quality(pairs: Pairs, x: Space, y: Space) -> dict:
    """What seeds are worth before any run.

    Returns
    -------
    ``count``; ``x`` and ``y``, each with ``dim``, ``rank`` (of the seed vectors), ``duplicates`` (seeds whose vector
    another seed has too), ``covered``, ``classes`` and ``uncovered`` (labels; None without labels); and ``notes``, what
    a person should know in words.
    """
    out: dict = {"count": len(pairs), "notes": []}
    say = out["notes"].append
    for side, s, rows in (("x", x, pairs.x), ("y", y, pairs.y)):
        v = np.asarray(s.vectors[rows], dtype=np.float64)
        v /= np.linalg.norm(v, axis=1, keepdims=True)
        rank = int(np.linalg.matrix_rank(v, tol=1e-5)) if len(v) else 0  # float32 leaves about 1e-6
        _, counts = np.unique(np.asarray(s.vectors[rows]), axis=0, return_counts=True)
        repeated = int(counts[counts > 1].sum()) if len(v) else 0
        found = {"dim": s.dim, "rank": rank, "duplicates": repeated}
        found |= {"covered": None, "classes": None, "uncovered": None}
        if repeated:
            say(f"{repeated} seeds of {side} share their vector with another seed; they add nothing")
        if rank < len(pairs) - max(repeated - 1, 0) and rank < s.dim:
            say(f"the {len(pairs)} seed vectors of {side} span {rank} dimensions only")
        if s.labels is not None:
            classes = set(s.labels) - {NO_LABEL}
            covered = set(s.labels[rows]) - {NO_LABEL}
            found |= {"covered": len(covered), "classes": len(classes), "uncovered": sorted(classes - covered)}
            say(f"{len(pairs)} seeds cover {len(covered)} of {len(classes)} classes of {side}")
        out[side] = found
    least = min(out["x"]["rank"], out["y"]["rank"])
    if len(pairs) < max(x.dim, y.dim):
        say(
            f"{len(pairs)} seeds for {x.dim} and {y.dim} dimensions: a rotation is determined only on a "
            f"{least}-dimensional subspace"
        )
    return out
