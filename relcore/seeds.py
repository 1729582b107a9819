"""Choosing, reading, checking and corrupting seed pairs. numpy only; every random choice takes a seed.

What is chosen is chosen on x, and holds by index in every other space of the same rows: :func:`choose` gives positions
among the rows of one space, for any number of spaces; :func:`choose_pairs` some of the pairs of two. Anchors that are
learned are :mod:`relcore.ops.param`'s.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from relcore.errors import InputError
from relcore.formats.base import ID_WORDS, NAME_WORDS, shown
from relcore.formats.beside import nfc
from relcore.formats.sniff import is_text, read_head, unpacked
from relcore.formats.text import open_text
from relcore.ops.kmeans import kmeans
from relcore.projection import unit
from relcore.space import NO_LABEL, LoadReport, Pairs, SetAside, Space, as_text

Seed = int | np.random.Generator
_NUMBER_HEADS = {*ID_WORDS, "rows", "x_id", "y_id", "id_x", "id_y", "x_row", "y_row", "row_x", "row_y"}
_NAME_HEADS = {*NAME_WORDS, "x_name", "y_name", "name_x", "name_y"}
_OTHER_HEADS = {"x", "y", "a", "b", "source", "target", "src", "tgt", "trg", "left", "right"}
_INTEGER = re.compile(r"\s*\d{1,18}\s*")
WAYS = {  # the words of ``choose`` in relcore.methods.relative, too, whose rows have no labels there
    "random": "all pairs alike",
    "farthest": "from a random first pair, always the one farthest on x from those chosen",
    "medoids": "nearest on x to the centroids of as many k-means clusters",
    "first": "the first rows of x, the most frequent words where a file is in that order",
    "stratified": "at random, as evenly over the labels of x as there are pairs",
}
BY_VECTORS = ("farthest", "medoids")  # the ways that look at the rows themselves


def origin(how: str, count: int, seed: int) -> str:
    """How seeds came about, for people: ``15 by farthest point (seed 0)``."""
    words = {
        "random": f"{count:,} drawn at random",
        "farthest": f"{count:,} by farthest point",
        "medoids": f"{count:,} k-means medoids",
        "first": f"the first {count:,} paired rows",
        "stratified": f"{count:,} stratified by label",
    }
    return words[how] + ("" if how == "first" else f" (seed {seed})")


def choose(
    how: str, vectors: np.ndarray, count: int, *, labels: np.ndarray | None = None, seed: Seed = 0
) -> np.ndarray:
    """Which rows of a space are to be seeds or anchors, by one of :data:`WAYS`: for every space that has these rows.

    Parameters
    ----------
    vectors : float array (n, d), in the coordinates that are to be covered: medoids go by distance, so centre and
        scale to norm 1 (:func:`relcore.projection.centred_unit`), or whiten; farthest goes by the angle, so centre.
    labels : object array (n,), :data:`relcore.space.NO_LABEL` for a row without; stratified needs them.

    Returns
    -------
    int64 (count,) positions, all different, in the order of the choice. With one seed, a smaller choice of all but
    medoids is the beginning of a larger one.

    Raises
    ------
    InputError
        Another way, fewer rows than asked for, or no labels to stratify by.
    """
    return choose_pairs(how, Pairs.by_row(len(vectors)), count, vectors_x=vectors, labels_x=labels, seed=seed).x.copy()


def choose_pairs(
    how: str,
    pairs: Pairs,
    count: int,
    *,
    vectors_x: np.ndarray | None = None,
    labels_x: np.ndarray | None = None,
    seed: Seed = 0,
) -> Pairs:
    """``count`` of the pairs by one of :data:`WAYS`, chosen on x.

    Parameters
    ----------
    vectors_x : as of :func:`choose`, of all rows of x; needed by :data:`BY_VECTORS` alone.
    labels_x : labels of all rows of x.

    Raises
    ------
    InputError
        Another way, fewer pairs than asked for, or no labels to stratify by.
    """
    if how == "random":
        return draw(pairs, count, seed=seed)
    if how == "farthest":
        return farthest_point(unit(vectors_x), pairs, count, seed)
    if how == "medoids":
        return medoids(vectors_x, pairs, count, seed)
    if how == "first":
        return most_frequent(pairs, count)
    if how == "stratified":
        if labels_x is None or not (labels_x[pairs.x] != NO_LABEL).any():
            raise InputError("stratified goes by the labels of x, and there are none; load labels, or choose random.")
        return stratified(labels_x, pairs, count, seed)
    raise InputError(f"pairs cannot be chosen by {how!r}; choose one of {', '.join(WAYS)}.")


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


def medoids(vectors_x: np.ndarray, pairs: Pairs, count: int, seed: Seed) -> Pairs:
    """``count`` of the pairs, the nearest on x to the centroids of k-means clusters, each pair at most once.

    Parameters
    ----------
    vectors_x : float array (n, d), in the coordinates that are to be covered: of norm 1, or whitened.

    Raises
    ------
    InputError
        Fewer pairs than asked for.
    """
    _enough(pairs, count)
    if count == 0:
        return pairs.take(np.empty(0, dtype=np.int64))
    v = np.asarray(vectors_x[pairs.x], dtype=np.float64)
    centroids, label = kmeans(v, count, np.random.default_rng(seed))
    distance = ((v - centroids[label]) ** 2).sum(1)
    order = np.lexsort((distance, label))  # by cluster, none of which is empty, the nearest first
    return pairs.take(order[np.searchsorted(label[order], np.arange(count))])


def centroids(vectors_x: np.ndarray, pairs: Pairs, count: int, seed: Seed) -> np.ndarray:
    """Averages of k-means clusters of the pairs' x rows, as weights of the pairs: float64 (count, k), of row sums 1.

    So they are shared: ``weights @ vectors[pairs.y]`` are the same averages on the other side, and likewise in any
    space that has these rows.

    Parameters
    ----------
    vectors_x : as of :func:`medoids`.

    Raises
    ------
    InputError
        Fewer pairs than asked for.
    """
    _enough(pairs, count)
    weights = np.zeros((count, len(pairs)))
    if count:
        _, label = kmeans(vectors_x[pairs.x], count, np.random.default_rng(seed))
        weights[label, np.arange(len(pairs))] = 1 / np.bincount(label)[label]
    return weights


def most_frequent(pairs: Pairs, count: int) -> Pairs:
    """``count`` of the pairs, the first rows of x: the most frequent words, where a file is in that order, as most are.

    Raises
    ------
    InputError
        Fewer pairs than asked for.
    """
    _enough(pairs, count)
    return pairs.take(np.argsort(pairs.x, kind="stable")[:count])


def stratified(labels_x: np.ndarray, pairs: Pairs, count: int, seed: Seed) -> Pairs:
    """``count`` of the pairs at random, as evenly over the labels of x as there are pairs; those without come last.

    The order goes round the labels, so that a smaller draw with the same seed is the beginning of a larger one.

    Parameters
    ----------
    labels_x : object array (n,) of the x side's labels.

    Raises
    ------
    InputError
        Fewer pairs than asked for.
    """
    _enough(pairs, count)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(pairs))
    label = labels_x[pairs.x[order]]
    names = [name for name in dict.fromkeys(label) if name != NO_LABEL]
    rank = np.full(len(pairs), len(pairs))  # how many pairs of the same label come before
    turn = np.zeros(len(pairs), dtype=np.int64)
    for i, name in enumerate(names):
        own = np.flatnonzero(label == name)
        rank[own], turn[own] = np.arange(len(own)), i
    return pairs.take(order[np.lexsort((turn, rank))[:count]])


def _enough(pairs: Pairs, count: int) -> None:
    if not 0 <= count <= len(pairs):
        raise InputError(f"{count} seeds asked for, but only {len(pairs)} pairs are known; ask for at most that many.")


# --------------------------------------------------------------------------------------------- pairing up two spaces


class Ambiguous(NamedTuple):
    """A key that does not say which row is meant, or a row that a file of pairs names again.

    ``rows`` are row numbers of the source file of that side; ``lines`` those of the file of pairs, if it is one.
    """

    side: str
    key: str
    rows: tuple[int, ...]
    lines: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Pairing:
    """Which rows of two spaces correspond, and what stood in the way.

    Attributes
    ----------
    pairs : in the order of x, or of the file; None if there are none.
    ambiguous : the keys shared by several rows of one side (all left unpaired), and the rows that a file of pairs names
        more than once (the first pair is kept).
    alone_x, alone_y : rows whose key is not found on the other side, or that no line of the file names.
    folded : how many pairs more there would be if upper and lower case were the same (not done: they may be two words).
    problems : a sentence each; of a file, one for every line that gave no pair.
    """

    pairs: Pairs | None
    ambiguous: tuple[Ambiguous, ...] = ()
    alone_x: int = 0
    alone_y: int = 0
    folded: int = 0
    problems: tuple[str, ...] = ()

    def summary(self) -> str:
        """For example ``95 pairs, 3 ambiguous entries, 2 rows of x and 5 of y without partner``."""
        text = (
            f"{_count(len(self.pairs or ()), 'pair')}, {_count(len(self.ambiguous), 'ambiguous entry')}, "
            f"{_count(self.alone_x, 'row')} of x and {self.alone_y:,} of y without partner"
        )
        return text + (f"; {self.folded:,} more would match if case were folded" if self.folded else "")


def _count(n: int, what: str) -> str:
    if n != 1:
        what = what.removesuffix("y") + "ies" if what.endswith("y") else what + "s"
    return f"{n:,} {what}"


def pair_by(
    x: Space, y: Space, how: str, id_x: str | None = None, id_y: str | None = None
) -> tuple[Pairs | None, list[str]]:
    """The pairs of :func:`pairing`, None if there are none, and its sentences."""
    found = pairing(x, y, how, id_x=id_x, id_y=id_y)
    return found.pairs, list(found.problems)


def pairing(
    x: Space,
    y: Space,
    how: str,
    *,
    id_x: str | None = None,
    id_y: str | None = None,
    report_x: LoadReport | None = None,
    report_y: LoadReport | None = None,
) -> Pairing:
    """Which rows of two spaces correspond, by a key that both have.

    Parameters
    ----------
    how : ``"row"``: same row number of the source file (a row set aside on one side drops out); ``"name"``: same name,
        held by one row on each side; ``"id"``: the same for a metadata column; ``"none"``. Names and ids are compared
        in Unicode's composed form (NFC), else exactly; blank ones have no partner.
    id_x, id_y : the metadata columns that hold the ids; None: the first that is called so (``id``, ``key``, ...).
    report_x, report_y : with them it is said which partners were set aside at load.

    Raises
    ------
    InputError
        ``how`` is none of the four, or no column has the name asked for.
    """
    if how not in ("row", "name", "id", "none"):
        raise InputError(f"pairs cannot be made by {how!r}; choose one of row, name, id, none.")
    if how == "none":
        return Pairing(None)
    spaces = (x, y)
    if how == "id":
        keys = [_id_column(s, side, wanted) for s, side, wanted in zip(spaces, "xy", (id_x, id_y), strict=True)]
        lacking = [f"{side} ({s.title})" for side, s, k in zip("xy", spaces, keys, strict=True) if k is None]
        if lacking:
            said = f"no column of ids in {' and '.join(lacking)}; pair by row or by name instead"
            return Pairing(None, alone_x=len(x), alone_y=len(y), problems=(said,))
    else:
        keys = [s.ids.tolist() if how == "row" else [nfc(n) for n in s.names] for s in spaces]
    where = [_positions(k) for k in keys]
    what = {"row": "row numbers", "name": "names", "id": "ids"}[how]
    problems, ambiguous = [], []
    for side, s, at in zip("xy", spaces, where, strict=True):
        twice = {k: p for k, p in at.items() if len(p) > 1 and k != ""}
        ambiguous += [
            Ambiguous(side, str(s.names[p[0]] if how == "name" else k), tuple(s.ids[p].tolist()))
            for k, p in twice.items()
        ]
        if twice:
            rows = sum(map(len, twice.values()))
            problems.append(
                f"{len(twice):,} {what} are shared by several rows of {side} ({rows:,} rows), left unpaired: "
                f"{shown([repr(k) for k in twice], 5)}"
            )
    alone = []
    for side, mine, other in (("x", *where), ("y", *where[::-1])):
        alone.append(sum(len(p) for k, p in mine.items() if k not in other or k == ""))
        if alone[-1]:
            problems.append(f"{alone[-1]:,} rows of {side} have no partner")
    for side, other, mine, theirs, report in (
        ("x", "y", *where, report_y),
        ("y", "x", *where[::-1], report_x),
    ):
        lost = [s for k, s in _aside_keys(how, report) if k in mine and k not in theirs]
        if lost:
            why = shown([f"row {s.row} ({s.reason})" for s in lost], 5)
            problems.append(f"{len(lost):,} rows of {side} lose their partner, set aside at load of {other}: {why}")
    found = [
        (p[0], where[1][k][0]) for k, p in where[0].items() if len(p) == 1 and k != "" and len(where[1].get(k, ())) == 1
    ]
    folded = _folded(*where) if how != "row" else 0
    if not found:
        problems.append(f"the two spaces have no {what} in common")
    pairs = Pairs(np.array(found, dtype=np.int64)) if found else None
    return Pairing(pairs, tuple(ambiguous), *alone, folded, tuple(problems))


def _positions(keys: Iterable) -> dict:
    out: dict = {}
    for p, k in enumerate(keys):
        out.setdefault(k, []).append(p)
    return out


def _folded(at_x: dict, at_y: dict) -> int:
    """How many keys that only one side has would find exactly one partner if case were folded."""
    counts = []
    for mine, other in ((at_x, at_y), (at_y, at_x)):
        counts.append(Counter(k.casefold() for k, p in mine.items() if k not in other and k and len(p) == 1))
    return sum(n == 1 and counts[1].get(k) == 1 for k, n in counts[0].items())


def _aside_keys(how: str, report: LoadReport | None) -> list[tuple[int | str, SetAside]]:
    """The keys of the rows set aside, as far as they are known: of their metadata nothing is kept."""
    if report is None or how == "id":
        return []
    if how == "row":
        return [(s.row, s) for s in report.set_aside]
    return [(nfc(name), s) for name, s in zip(report.aside_names, report.set_aside, strict=False) if name]


def _id_column(s: Space, side: str, wanted: str | None) -> list[str] | None:
    """The ids of a space's rows, ready to compare: ``""`` where there is none; None without such a column."""
    columns = [] if s.meta is None else [str(c) for c in s.meta.columns]
    if wanted is None:
        wanted = next((c for c in columns if c.lower() in ID_WORDS), None)
        if wanted is None:
            return None
    elif wanted not in columns:
        have = f"it has {shown(columns)}" if columns else "it has no metadata"
        raise InputError(f"{side} ({s.title}) has no column {wanted!r} to pair by; {have}.")
    cells = s.meta.iloc[:, columns.index(wanted)]
    values = [None if missing else v for v, missing in zip(cells, cells.isna(), strict=True)]
    return [nfc(v.strip()) for v in as_text(values, len(s), wanted)]


# -------------------------------------------------------------------------------------------------- pairs from a file


@dataclass(frozen=True)
class _Side:
    """How the cells of one column are looked up in one space."""

    letter: str
    space: Space
    at: dict[str, list[int]]  # name (NFC) -> row positions
    aside: dict[int, str]  # row number -> reason
    aside_names: dict[str, int]  # name (NFC) -> row number
    last: int  # the highest row number there was
    by_number: bool = False

    @classmethod
    def of(cls, letter: str, space: Space, report: LoadReport) -> _Side:
        aside = {s.row: s.reason for s in report.set_aside}
        names = zip(map(nfc, report.aside_names), aside, strict=False)  # a report read back has no names
        last = max(int(space.ids[-1]), *aside, 0)
        return cls(letter, space, _positions(map(nfc, space.names)), aside, dict(names), last)

    def find(self, cell: str) -> list[int] | str:
        """The row positions, or what is wrong with the cell."""
        if self.by_number:
            row = int(cell) if _INTEGER.fullmatch(cell) else None
            if row is None:
                return f"{cell!r} is no row number of {self.letter}"
            if row in self.space.position_of_id:
                return [self.space.position_of_id[row]]
            if row in self.aside:
                return f"row {row} of {self.letter} was set aside at load ({self.aside[row]})"
            return f"there is no row {row} in {self.letter}, whose rows are 0 to {self.last}"
        if (rows := self.at.get(cell)) is not None:
            return rows
        name = nfc(cell)
        if name not in self.at and name not in self.aside_names:
            name = name.strip()
        if name in self.at:
            return self.at[name]
        if name in self.aside_names:
            row = self.aside_names[name]
            return f"{name!r} of {self.letter}, row {row}, was set aside at load ({self.aside[row]})"
        return f"{name!r} is no name in {self.letter}"

    def rows(self, positions: list[int]) -> tuple[int, ...]:
        """Row numbers of the source file."""
        return tuple(self.space.ids[positions].tolist())


def read_pairs(
    source: Path | str, x: Space, y: Space, report_x: LoadReport, report_y: LoadReport
) -> tuple[Pairs, list[str]]:
    """The pairs of :func:`read_pairing`, and its sentences."""
    found = read_pairing(source, x, y, report_x, report_y)
    return found.pairs or Pairs.empty(), list(found.problems)


def read_pairing(source: Path | str, x: Space, y: Space, report_x: LoadReport, report_y: LoadReport) -> Pairing:
    """Pairs from a file (a ``Path``) or a text (a ``str``, never taken for a path: it may come from anyone).

    Two columns by tab, comma, semicolon or blanks, x then y, each row numbers or names: a list of seeds, or a bilingual
    dictionary as MUSE has them, where a word may come back with another translation: of the pairs that name a row, the
    first is kept. Names are compared in Unicode's composed form (NFC), else exactly.

    A column of whole numbers is read as row numbers of the source file, any other as names. A header line is
    tolerated, and decides between the two (``row`` or ``name``) where both would do.

    Returns
    -------
    The pairs that could be read, unique on both sides; ``problems`` has a sentence with its line number for every other
    line.

    Raises
    ------
    InputError
        No such file; or a column whose numbers are row numbers and names at once, of different rows.
    """
    what, lines = _two_columns(source)
    wrong = [(i, f"{len(f)} columns, wanted 2") for i, f in lines if len(f) != 2]
    lines = [(i, f) for i, f in lines if len(f) == 2]
    if not lines:
        problems = [f"line {i}: {text}" for i, text in wrong] or [f"{what} holds no pairs"]
        return Pairing(None, alone_x=len(x), alone_y=len(y), problems=tuple(problems))
    sides, header = _sides(what, lines, (x, y), (report_x, report_y))
    pairs: list[tuple[int, int]] = []
    taken: tuple[dict[int, int], dict[int, int]] = ({}, {})  # row position -> line of its pair, for each side
    named: tuple[set[int], set[int]] = (set(), set())  # row positions that some line names
    again: dict[tuple[int, int], list[int]] = {}  # (side, row position) -> lines that name a paired row again
    shared: dict[tuple[int, str], list[int]] = {}  # (side, name of several rows) -> lines
    lost = []  # lines of which a name was not found
    for i, cells in lines[header:]:
        found = (sides[0].find(cells[0]), sides[1].find(cells[1]))
        bad = []
        for c, f in enumerate(found):
            side = sides[c]
            if isinstance(f, str):
                bad.append(f)
                continue
            named[c].update(f)
            if len(f) > 1:
                name = str(side.space.names[f[0]])
                shared.setdefault((c, name), []).append(i)
                bad.append(
                    f"{name!r} is the name of {len(f)} rows of {side.letter} (rows {shown(side.rows(f), 5)}); give the "
                    "row number"
                )
        if bad:
            wrong.append((i, "; ".join(bad)))
            lost.append(cells)
            continue
        (p,), (q,) = found
        first = (taken[0].get(p), taken[1].get(q))
        if first == (None, None):
            pairs.append((p, q))
            taken[0][p] = taken[1][q] = i
        elif first[0] == first[1]:
            wrong.append((i, f"the same pair as line {first[0]}, kept once"))
        else:
            for c, (r, line) in enumerate(zip((p, q), first, strict=True)):
                if line is not None:
                    again.setdefault((c, r), [line]).append(i)
            said = ", ".join(
                f"{cells[c]!r} of {sides[c].letter} (line {line})" for c, line in enumerate(first) if line is not None
            )
            wrong.append((i, f"already paired: {said}; the first is kept"))
    ambiguous = [
        Ambiguous("xy"[c], name, sides[c].rows(sides[c].at[nfc(name)]), tuple(at)) for (c, name), at in shared.items()
    ]
    ambiguous += [
        Ambiguous("xy"[c], str(sides[c].space.names[r]), sides[c].rows([r]), tuple(at)) for (c, r), at in again.items()
    ]
    return Pairing(
        Pairs(np.array(pairs, dtype=np.int64)) if pairs else None,
        tuple(sorted(ambiguous, key=lambda a: a.lines)),
        *(len(side.space) - len(rows) for side, rows in zip(sides, named, strict=True)),
        _folded_lines(lost, sides, taken),
        tuple(f"line {i}: {text}" for i, text in sorted(wrong)),
    )


def _folded_lines(lost: list[list[str]], sides: list[_Side], taken: tuple[dict[int, int], dict[int, int]]) -> int:
    """How many pairs more the lines that gave none would give if case were folded: rows not yet paired, each once."""
    if not lost or any(side.by_number for side in sides):
        return 0
    wanted = [[nfc(cells[c]).strip().casefold() for cells in lost] for c in (0, 1)]
    rows_of: list[dict[str, int]] = []  # of each name that one free row has, -1 where several have it
    for cells, side, used in zip(wanted, sides, taken, strict=True):
        looked_for, found = set(cells), {}
        for name, rows in side.at.items():
            if (folded := name.casefold()) in looked_for:
                found[folded] = rows[0] if folded not in found and len(rows) == 1 else -1
        rows_of.append({k: r for k, r in found.items() if r >= 0 and r not in used})
    left, right = set(), set()
    for a, b in zip(*wanted, strict=True):
        if a in rows_of[0] and b in rows_of[1] and a not in left and b not in right:
            left.add(a)
            right.add(b)
    return len(left)


_BLANKS = re.compile(r"[ \t]+")  # str.split would also split at a no-break space, which can be part of a word


def _two_columns(source: Path | str) -> tuple[str, list[tuple[int, list[str]]]]:
    """What the source is called, and (line number from 1, fields) of every line that is not blank."""
    what, text = "the text", source
    if isinstance(source, Path):
        if not is_text(unpacked(source, read_head(source))):
            raise InputError(f"{source.name} is no text; give pairs as a .csv or .tsv file of two columns.")
        with open_text(source) as f:
            what, text = source.name, f.read()
    # not splitlines: it would also split at characters that words can hold
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    lines = [(i, line) for i, line in enumerate(text.split("\n"), 1) if line.strip()]

    def fields(delimiter: str | None) -> list[tuple[int, list[str]]]:
        if delimiter is None:
            return [(i, _BLANKS.split(line.strip(" \t"))) for i, line in lines]
        quoted = delimiter != "\t"  # between tabs a quote is a quote
        return [
            (i, next(csv.reader([line], delimiter=delimiter)) if quoted and '"' in line else line.split(delimiter))
            for i, line in lines
        ]

    try:
        tried = [fields(d) for d in ("\t", ",", ";", None) if d is None or d in text]
    except csv.Error as e:
        raise InputError(f"{what} is no readable list of pairs ({e}); check its quotes.") from None
    return what, max(tried, key=lambda rows: sum(len(f) == 2 for _, f in rows))


def _sides(
    source: str, rows: list[tuple[int, list[str]]], spaces: tuple[Space, Space], reports: tuple[LoadReport, LoadReport]
) -> tuple[list[_Side], bool]:
    """How each column is read, and whether the first line is a header."""
    sides = [_Side.of(letter, s, r) for letter, s, r in zip("xy", spaces, reports, strict=True)]
    first = [c.strip().lower() for c in rows[0][1]]
    words = _NUMBER_HEADS | _NAME_HEADS | _OTHER_HEADS
    is_name = [nfc(cell.strip()) in side.at for cell, side in zip(rows[0][1], sides, strict=True)]
    body = rows[1:]
    numeric = [bool(body) and all(_INTEGER.fullmatch(f[c]) for _, f in body) for c in (0, 1)]
    first_numeric = [bool(_INTEGER.fullmatch(c)) for c in first]
    # a word above a column of numbers is a header; elsewhere only a usual heading that is no name itself
    header = any(n and not f for n, f in zip(numeric, first_numeric, strict=True))
    header |= all(f in words for f in first) and not all(is_name)
    for c, side in enumerate(sides):
        cells = [f[c].strip() for _, f in (body if header else rows)]
        by_number = bool(cells) and all(_INTEGER.fullmatch(cell) for cell in cells)
        if by_number and header and first[c] in _NAME_HEADS:
            by_number = False
        elif by_number and not (header and first[c] in _NUMBER_HEADS):
            at, position = side.at, side.space.position_of_id
            clash = [k for k in cells if k in at and at[k] != [position.get(int(k))]]
            if clash and all(k in at for k in cells):
                raise InputError(
                    f"{source}: column {c + 1} holds numbers that are row numbers and names of {side.letter} at once, "
                    f"such as {clash[0]}, row {clash[0]} or the row named so; say which with a first line, row or name."
                )
        sides[c] = replace(side, by_number=by_number)
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
