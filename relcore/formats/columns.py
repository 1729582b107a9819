"""What each column of a table is for, told from its heading, its kind and its first cells; and cells as numbers.

CSV, Parquet, Feather and JSON lines all ask here, so that the same table means the same in each of them.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from relcore.errors import InputError
from relcore.formats.base import (
    ID_WORDS,
    ROLE_OF_COLUMN,
    ROLES,
    VECTOR_WORDS,
    AmbiguousError,
    ArrayInfo,
    ColumnInfo,
    Peek,
    Raw,
    Request,
    by_role_word,
    shown,
)
from relcore.space import Space

# ---------------------------------------------------------------- one cell

MISSING = frozenset(
    ("", "na", "n/a", "nan", "-nan", "null", "none", "nat", "missing", "?", "<na>", "#n/a", "#na", "#n/a n/a")
    + ("1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan")
)
MISSING_VECTOR = "missing vector"
TRUNCATED = "printed and truncated, the data is gone"
EXAMPLES = 5  # cells shown of a column
MAX_COLUMNS = 100_000
CUT_OFF = "cut off before its end, the data is gone"

_CODE = re.compile(r"[-+]?0\d+")  # 01 is no number but a code, and differs from 1
_PICTURE = re.compile(r"data:image/.*|[^\n]*\.(png|jpe?g|gif|webp|bmp|tiff?)", re.I | re.S)
# numbers as people write them: 1,5  1.234,5  1,234.5  $5  12 %
_SPELLED = re.compile(
    r"[-+]?[$€£¥]?\s?(\d+,\d+|\d{1,3}([,.'\u00a0\u202f]\d{3})+([.,]\d+)?|\d+(\.\d+)?(?=\s?[%$€£¥])|(?<=[$€£¥])\d+(\.\d+)?)"
    r"\s?[%$€£¥]?"
)
_WRAPPER = re.compile(
    r"(?:(?:np|numpy|torch|jnp|tf)\.)?(?:tensor|array|ndarray|Tensor|Array|FloatTensor|list|tuple|vector)\s*(?=\()"
)
_KEYWORDS = re.compile(r"(\s*,\s*\w+\s*=\s*(<[^<>]*>|'[^']*'|\"[^\"]*\"|\([^()]*\)|\[[^\[\]]*\]|[\w.:]+))*\s*,?\s*")
_ITEM = re.compile(
    r"(?:(?:np|numpy|torch)\.)?(?:float\d*|u?int\d*|double|tensor|Decimal)\(\s*['\"]?([^()'\"]*)['\"]?\)"
)
_BRACKETS = {"[": "]", "(": ")", "{": "}"}
_BETWEEN = re.compile(r"[\s,;|\[\](){}]+")


def number(cell: str) -> float | None:
    """The number a cell spells, NaN where it is missing, None where it spells something else."""
    text = cell.strip()
    if text.lower() in MISSING:
        return math.nan
    try:
        return None if "_" in text else float(text)  # float() would read 1_000
    except ValueError:
        return None


def is_missing(cell: str | None) -> bool:
    return cell is None or cell.strip().lower() in MISSING


def vector(cell: str) -> array | str | None:
    """The numbers of a vector written as text, or why they are lost, or None where the cell is no vector.

    Read are the spellings of Python, numpy, PyTorch and Postgres: ``[0.1, 0.2]``, ``[0.1 0.2]``, ``(0.1, 0.2)``,
    ``{0.1,0.2}``, ``array([0.1, 0.2], dtype=float32)``, ``tensor([0.1, 0.2], device='cuda:0')``,
    ``[np.float32(0.1), null]``; and without brackets ``0.1;0.2``. Numbers that are missing are NaN.
    """
    text = cell.strip()
    if text.lower() in MISSING:
        return MISSING_VECTOR
    if "..." in text or "\u2026" in text:
        return TRUNCATED if _all_numbers(text.replace("...", " ").replace("\u2026", " ")) else None
    if text.startswith("Parameter containing:"):
        text = text[len("Parameter containing:") :].lstrip()
    if (wrapper := _WRAPPER.match(text)) is not None:
        inner = text[wrapper.end() + 1 :].lstrip()
        end = _close(inner)
        if end is None:
            return CUT_OFF if _all_numbers(inner.rpartition(",")[0]) else None
        tail = inner[end + 1 :].rstrip()
        if len(tail) > 500 or not tail.endswith(")") or not _KEYWORDS.fullmatch(tail[:-1]):
            return None
        text = inner[: end + 1]
    bare = text[:1] not in _BRACKETS
    for _ in range(0 if bare else 2):  # a matrix of one row is a vector too
        if text[:1] not in _BRACKETS:
            break
        end = _close(text)
        if end is None:
            return CUT_OFF if _all_numbers(text.rpartition("," if "," in text else " ")[0]) else None
        if end != len(text) - 1:
            return None
        text = text[1:-1].strip()
    if not text:
        return array("d")
    if bare and _SPELLED.fullmatch(text):
        return None
    separator = next((s for s in (";|," if bare else ",;|") if s in text), None)
    items = text.split(separator)
    if separator and len(items) > 1 and not items[-1].strip():
        del items[-1]  # (0.1, 0.2,)
    if "_" in text or (bare and len(items) < 2):
        return None
    try:
        return array("d", map(float, items))
    except ValueError:
        pass
    if "(" in text:
        text = _ITEM.sub(r"\1", text)
        items = [i for i in text.split(separator) if i.strip()]
    if any(not i.strip() for i in items):
        return None
    values = [number(i.strip().strip("'\"")) for i in items]
    return None if None in values else array("d", values)


def _close(text: str) -> int | None:
    """Where the bracket that text starts with is closed."""
    opening, depth = text[:1], 0
    closing = _BRACKETS.get(opening)
    if closing is None:
        return None
    for match in re.finditer(f"[{re.escape(opening + closing)}]", text):
        depth += 1 if match.group() == opening else -1
        if depth == 0:
            return match.start()
    return None


def _all_numbers(text: str) -> bool:
    """Whether nothing but numbers stands between the brackets of a text that may be cut off."""
    body = text.strip()
    if body.startswith("Parameter containing:"):
        body = body[len("Parameter containing:") :].lstrip()
    wrapper = _WRAPPER.match(body)
    body = body[wrapper.end() :] if wrapper else body
    items = [i for i in _BETWEEN.split(re.sub(r"[\])]\s*,\s*\w+\s*=.*", "", body, flags=re.S)) if i]
    return bool(items) and all(number(i) is not None for i in items)


def kind_of(cells: Sequence[str | None], *, numbers: bool = True) -> str:
    """``number, vector, image`` or ``text``: what at least half of the cells that are not missing hold.

    ``numbers=False`` is for text that a typed format keeps as text: it holds no numbers.
    """
    filled = [c for c in cells if not is_missing(c)]
    half = max(1, len(filled) / 2)
    if not any(_CODE.fullmatch(c.strip()) for c in filled):
        if sum(number(c) is not None for c in filled) >= half:
            return "number" if numbers else "text"
    if sum(vector(c) is not None for c in filled) >= half:
        return "vector"
    return "image" if sum(bool(_PICTURE.fullmatch(c.strip())) for c in filled) >= half else "text"


def whole(cells: Sequence[str | None]) -> list[str | None]:
    """Cells that are all whole numbers written as 1.0 become 1: so pandas writes class numbers where one is missing."""
    spelled = re.compile(r"(-?\d+)\.0+")
    out = []
    for cell in cells:
        match = None if cell is None else spelled.fullmatch(cell.strip())
        if match is None and not is_missing(cell):
            return list(cells)
        out.append(match.group(1) if match else cell)
    return out


# ---------------------------------------------------------------- a column of vectors


class Matrix:
    """Rows of float32 that grow in place, so that never much more than the matrix itself is held."""

    def __init__(self, width: int):
        self.n, self.data = 0, np.empty((0, width), dtype=np.float32)

    def append(self, block: np.ndarray) -> None:
        end = self.n + len(block)
        if end > len(self.data):
            self.data.resize((end + end // 8, self.data.shape[1]), refcheck=False)
        with np.errstate(over="ignore", invalid="ignore"):  # beyond float32 is infinite, and then set aside
            self.data[self.n : end] = block
        self.n = end

    def finish(self) -> np.ndarray:
        self.data.resize((self.n, self.data.shape[1]), refcheck=False)
        return self.data


class Vectors:
    """Vectors as the rows of a table come, kept by their length until the usual one is known."""

    def __init__(self):
        self.kept: dict[int, tuple[Matrix, array]] = {}
        self.aside: dict[int, str] = {}

    def add(self, rows: Sequence[int], block: np.ndarray) -> None:
        """Several vectors of the same length, (k, d), and the rows they belong to."""
        if block.shape[1] == 0:
            self.aside |= dict.fromkeys(map(int, rows), MISSING_VECTOR)
            return
        matrix, at = self.kept.setdefault(block.shape[1], (Matrix(block.shape[1]), array("q")))
        matrix.append(block)
        at.extend(rows)

    def lose(self, row: int, reason: str) -> None:
        self.aside[row] = reason

    def finish(self, n: int, what: str) -> tuple[np.ndarray, dict[int, str]]:
        """The matrix of all n rows, and why some of them are not to be used.

        Raises
        ------
        InputError
            No vector at all, or no length that most of them have.
        """
        counts = {length: matrix.n for length, (matrix, _) in self.kept.items()}
        if not counts:
            why = shown(sorted(set(self.aside.values())))
            raise InputError(
                f"{what} holds no vector in any of its {n:,} rows ({why}); check how it was written, or choose another "
                "column."
            )
        length = max(counts, key=counts.__getitem__)
        if counts[length] * 2 <= sum(counts.values()):
            found = shown([f"{counts[k]:,} of {k:,} numbers" for k in sorted(counts)])
            raise InputError(
                f"{what} holds vectors of different lengths, none of which most rows have ({found}); "
                "write vectors of one length."
            )
        matrix, at = self.kept.pop(length)
        aside = dict(self.aside)
        for other, (_, rows) in self.kept.items():
            aside |= dict.fromkeys(rows, f"wrong length ({other:,} numbers, wanted {length:,})")
        if matrix.n == n:
            return matrix.finish(), aside
        data, places = matrix.data, np.frombuffer(at, dtype=np.int64)
        data.resize((n, length), refcheck=False)
        step = max(1, 2**20 // length)
        for start in range((len(places) - 1) // step * step, -1, -step):  # from the end, where there is room
            data[places[start : start + step]] = data[start : min(start + step, len(places))].copy()
        lost = np.ones(n, dtype=bool)
        lost[places] = False
        data[lost] = 0
        return data, aside


# ---------------------------------------------------------------- roles


@dataclass
class Column:
    """What is known of a column before the table is read.

    Attributes
    ----------
    name : unique in the table.
    kind : ``number, text, vector`` or ``image``.
    cells : the first ones, as text; None where missing.
    heading : the file's own, ``""`` where it has none.
    plain : whether a text column may be taken for names or labels by what it holds; not so dates or nested values.
    bare : a vector written without brackets, which may be something else.
    width : of vectors, if known.
    index : the row index of a DataFrame.
    """

    name: str
    kind: str
    cells: Sequence[str | None] = ()
    heading: str = ""
    plain: bool = True
    bare: bool = False
    width: int | None = None
    index: bool = False

    @property
    def blank(self) -> bool:
        return all(c is None or not c.strip() for c in self.cells)

    def describe_text(self) -> None:
        """Tell the kind of a column of text, where numbers would be numbers."""
        self.kind = kind_of(self.cells, numbers=False)
        if self.kind == "vector":
            self.describe_vectors()

    def describe_vectors(self) -> None:
        """Tell the width of vectors written as text, and whether they have brackets."""
        found = [v for x in self.cells if not isinstance(v := vector(x or ""), str | None)]
        self.width = Counter(map(len, found)).most_common(1)[0][0] if found else None
        self.bare = not any(b in next(x for x in self.cells if not is_missing(x)) for b in "[({")


@dataclass
class Plan:
    """Which column is what. ``problem`` is why the table cannot be read so; changed roles may mend it."""

    columns: list[Column]
    roles: list[str]
    vector: list[int] = field(default_factory=list)  # one column of vectors, or those of numbers
    packed: bool = False  # whether it is one column of vectors
    chosen: dict[str, int] = field(default_factory=dict)  # names, labels, media
    assumed: list[str] = field(default_factory=list)
    problem: InputError | None = None

    @property
    def meta(self) -> list[int]:
        """Metadata and ids, which stay metadata too, to pair rows by."""
        return [c for c, role in enumerate(self.roles) if role in ("meta", "id")]

    @property
    def kept(self) -> list[int]:
        """The columns to read beside the vector."""
        return sorted({*self.chosen.values(), *self.meta})

    @property
    def dim(self) -> int | None:
        return len(self.vector) or None if not self.packed else self.columns[self.vector[0]].width

    def name(self, c: int) -> str:
        return self.columns[c].name

    def infos(self) -> tuple[ColumnInfo, ...]:
        return tuple(
            ColumnInfo(c.name, c.kind, role, tuple(_short(x) for x in c.cells[:EXAMPLES]))
            for c, role in zip(self.columns, self.roles, strict=True)
        )


def _short(cell: str | None, most: int = 80) -> str:
    text = cell or ""
    return text if len(text) <= most else text[: most - 1] + "\u2026"


def check_count(what: str, count: int) -> None:
    """Raise :class:`InputError` for a table that can only lie on its side."""
    if count > MAX_COLUMNS:
        raise InputError(
            f"{what} has {count:,} columns, at most {MAX_COLUMNS:,} are read; turn the table over, so that a row is a "
            "vector, or save the numbers as .npy."
        )


def unique(headings: Sequence[str]) -> list[str]:
    """What columns are called: their heading if they have one of their own, else their number."""
    stripped = [h.strip() for h in headings]
    own = {h for h, count in Counter(stripped).items() if h and count == 1}
    out = []
    for c, heading in enumerate(stripped):
        name = heading if heading in own else f"column {c}"
        while heading not in own and name in own:
            name += "'"
        out.append(name)
    return out


def plan(
    request: Request, columns: list[Column], *, header: bool = True, known: Mapping[str, str] | None = None
) -> Plan:
    """Give each column its role: as chosen, as the file itself says, by its heading, or by what it holds.

    Parameters
    ----------
    header : whether the file names its columns.
    known : roles that the file itself tells; then nothing is guessed.

    Raises
    ------
    InputError
        A column was chosen that is not there, or for two ends at once.
    """
    path, wanted = request.path, request.roles
    names = [c.name for c in columns]
    at = {name: c for c, name in enumerate(names)}
    roles: list[str | None] = [None] * len(columns)
    out = Plan(columns, [], assumed=[])

    def find(name: str, what: str) -> int:
        if name not in at:
            has = f"it has {shown(names)}" if header else f"it has no header line, but {shown(names)}"
            raise InputError(f"{path.name} has no column {name!r}{what}; {has}.")
        return at[name]

    def assign(c: int, role: str) -> None:
        if roles[c] not in (None, role):
            raise InputError(f"{path.name}: column {names[c]!r} is to be {roles[c]} and {role}; choose one of them.")
        roles[c] = role

    word_of = {plural: single for single, plural in ROLE_OF_COLUMN.items()}
    for role, name in wanted.items():
        if name is not None:
            c = find(name, f" for the {role}")
            assign(c, word_of[role])
            out.chosen[role] = c
    for name, role in request.columns.items():
        assign(find(name, ""), role)
    if request.key is not None:
        if (
            columns
            and not any(c.kind == "vector" for c in columns)
            and columns[at.get(request.key, 0)].kind == "number"
        ):
            raise InputError(
                f"{path.name} is a table, its numeric columns are the vectors; leave out {':' + request.key!r}."
            )
        assign(find(request.key, " of vectors"), "vector")
    by_hand = [c for c, role in enumerate(roles) if role == "vector"]

    for name, role in (known or {}).items():
        if name in at and roles[at[name]] is None:
            if role == "vector" and by_hand:
                roles[at[name]] = "meta" if columns[at[name]].kind == "number" else "ignore"
            elif role not in ROLE_OF_COLUMN:
                roles[at[name]] = role
            elif ROLE_OF_COLUMN[role] not in wanted:
                roles[at[name]] = role
                out.chosen[ROLE_OF_COLUMN[role]] = at[name]
    by_hand = by_hand or [c for c, role in enumerate(roles) if role == "vector"]
    free = lambda: [c for c, role in enumerate(roles) if role is None]  # noqa: E731
    guess = known is None

    for role in ROLES if guess else ():
        if role not in wanted:
            headings = {columns[c].heading.strip(): c for c in reversed(free()) if columns[c].kind != "vector"}
            if role != "media":
                headings = {h: c for h, c in headings.items() if columns[c].kind != "image" or columns[c].plain}
            word = by_role_word(role, list(headings))
            if word is not None:
                roles[headings[word]], out.chosen[role] = word_of[role], headings[word]
    for c in free() if guess else ():
        if _is_id(columns[c], c, header):
            roles[c] = "id"

    _choose_vector(request, out, roles, by_hand)

    for c in free() if guess else ():
        column = columns[c]
        if column.kind == "image" and "media" not in {*out.chosen, *wanted}:
            roles[c], out.chosen["media"] = "media", c
        elif column.kind == "text" and column.plain and not column.blank:
            distinct = len(set(column.cells)) / len(column.cells)
            several = len(set(column.cells)) > 1 or len(column.cells) == 1
            role = "names" if distinct >= 0.9 else "labels" if distinct <= 0.5 and several else None
            if role and role not in {*out.chosen, *wanted}:
                roles[c], out.chosen[role] = word_of[role], c
    if guess and "names" not in {*out.chosen, *wanted}:
        ids = [c for c, role in enumerate(roles) if role == "id" and columns[c].heading.strip()]
        media = out.chosen.get("media")
        if ids:
            out.chosen["names"] = ids[0]
        elif media is not None and columns[media].plain and len(set(columns[media].cells)) == len(columns[media].cells):
            out.chosen["names"] = media  # the path of a picture names it too
    for c in free():
        roles[c] = "ignore" if columns[c].blank and not columns[c].heading.strip() else "meta"
    out.roles = roles

    for role, c in out.chosen.items():
        if role not in wanted:
            out.assumed.append(f"{names[c]!r} read as {role}")
    meta = [names[c] for c in out.meta if c not in out.chosen.values() or roles[c] == "id"]
    if meta:
        out.assumed.append(f"columns read as metadata: {shown(meta)}")
    ignored = [names[c] for c, role in enumerate(roles) if role == "ignore" and names[c] not in request.columns]
    if ignored:
        out.assumed.append(f"columns not used: {shown(ignored)}")
    if out.vector and out.packed:
        out.assumed.append(f"column {names[out.vector[0]]!r} read as the vectors")
    elif out.vector:
        out.assumed.append(f"{len(out.vector)} numeric columns read as the vector")
    return out


def _is_id(column: Column, c: int, header: bool) -> bool:
    """Numbers or words that count rows, which must never enter a vector."""
    heading = column.heading.strip().lower()
    if column.index or heading in ID_WORDS:
        return True
    if column.kind != "number" or not header:
        return False
    values = [number(x or "") for x in column.cells]
    if heading.endswith(("_id", " id", "-id")):
        return all(v != v or float(v).is_integer() for v in values if v is not None)
    counts = values in ([*range(len(values))], [*range(1, len(values) + 1)])
    return c == 0 and (not heading or heading == "unnamed: 0") and counts


def _choose_vector(request: Request, out: Plan, roles: list[str | None], by_hand: list[int]) -> None:
    """Find the column of vectors, or the columns of numbers that make one up, and mark them in ``roles``."""
    columns, path = out.columns, request.path
    numbers = [c for c, role in enumerate(roles) if role is None and columns[c].kind == "number"]
    packed = [c for c, role in enumerate(roles) if role is None and columns[c].kind == "vector"]

    def holds_vectors(c: int) -> bool:
        if columns[c].kind != "text":
            return columns[c].kind != "number"
        first = next((x for x in columns[c].cells if not is_missing(x)), "")
        return vector(first) is not None  # else it is to be single numbers, and reading names the cell that is none

    if whole_ones := [c for c in by_hand if holds_vectors(c)]:
        if len(by_hand) > 1:
            raise InputError(
                f"{path.name}: {shown([columns[c].name for c in by_hand])} are all to be the vector; choose one column "
                "of vectors, or columns of single numbers."
            )
        out.vector, out.packed = whole_ones, True
    elif by_hand:
        out.vector = sorted({*by_hand, *numbers})
    else:
        counted = [c for c in numbers if columns[c].heading.strip().isdecimal()]
        if [columns[c].heading.strip() for c in counted] != [str(i) for i in range(len(counted))]:
            counted = []
        # a short list beside many numbers, or two numbers in one field, is something else
        real = [c for c in packed if not columns[c].bare or (columns[c].width or 0) > len(numbers)]
        real = [] if counted else real  # headings 0, 1, 2, ... are a vector written out
        named = [c for c in real if columns[c].heading.strip().lower() in VECTOR_WORDS]
        if len(real) == 1 or len(named) == 1:
            out.vector, out.packed = (real if len(real) == 1 else named), True
        elif real:
            infos = [ArrayInfo(columns[c].name, (-1, columns[c].width or -1), "<f4") for c in real]
            out.problem = AmbiguousError(
                f"{path.name} has {len(real)} columns of vectors: {shown([i.name for i in infos])}; choose one as "
                f"{path.name}:{infos[0].name}.",
                infos,
            )
        else:
            out.vector = counted or numbers
            spelled = [c for c, role in enumerate(roles) if role is None and _is_spelled(columns[c])]
            if spelled and len(out.vector) and not counted:
                c = spelled[0]
                cell = next(x for x in columns[c].cells if not is_missing(x))
                out.problem = InputError(
                    f"{path.name}: column {columns[c].name!r} holds numbers such as {_short(cell, 20)!r}; write "
                    "them as 1234.5, without other marks, or choose 'meta' for it to leave it out of the vector."
                )
    for c in out.vector:
        roles[c] = "vector"
    if not out.vector and out.problem is None:
        out.problem = InputError(f"{path.name}: {_why_no_vector(columns, roles)}.")
    for c in packed:
        if roles[c] is None:
            roles[c] = "meta" if columns[c].bare or out.problem is None and not out.packed else "ignore"


def _is_spelled(column: Column) -> bool:
    filled = [x.strip() for x in column.cells if not is_missing(x)]
    return (
        column.kind in ("text", "vector")
        and bool(filled)
        and (sum(bool(_SPELLED.fullmatch(x)) for x in filled) >= max(1, len(filled) / 2))
    )


def _why_no_vector(columns: list[Column], roles: list[str | None]) -> str:
    blank = [c.name for c in columns if c.blank and c.heading.strip()]
    spelled = next(
        (x for c in columns for x in c.cells if _is_spelled(c) and _SPELLED.fullmatch((x or "").strip())), None
    )
    cells = [x for c in columns for x in c.cells if x]
    comma = any("," in x and number(x.replace(",", ".")) is not None for x in cells)
    if spelled is not None or comma:
        such = f"{_short(spelled, 20)!r} is not read as one, " if spelled else ""
        hint = f"{such}write decimals with a point, not a comma, and no other marks (1234.5)"
    elif any(role not in (None, "ignore") for role in roles) and any(c.kind in ("number", "vector") for c in columns):
        hint = "those that do have another role; choose 'vector' for them"
        return f"none of the {len(columns)} columns is left to be the vector; {hint}"
    else:
        hint = "wanted a column of vectors, or one column for each number of a vector"
    empty = f" ({shown(blank)} {'is' if len(blank) == 1 else 'are'} empty throughout)" if blank else ""
    return f"none of the {len(columns)} columns holds numbers{empty}; {hint}"


# ---------------------------------------------------------------- what was read


def attach(raw: Raw, plan: Plan, kept: Mapping[int, Sequence]) -> None:
    """Give the rows their names, labels, media and metadata from the columns that were read beside the vector."""
    for role, c in plan.chosen.items():
        cells = kept[c]
        if all(x is None or (isinstance(x, str) and not x.strip()) for x in cells):
            raw.assumed.append(f"{plan.name(c)!r} is blank: no {role}")
            continue
        if role != "media" and all(x is None or isinstance(x, str) for x in cells):
            cells, before = whole(cells), cells
            if cells != list(before):
                raw.assumed.append(f"whole numbers of {plan.name(c)!r} read as 1, not 1.0")
        setattr(raw, role, cells)
    if plan.meta:
        import pandas as pd

        # an id that is 1 in one file and 1.0 in another is the same
        cells = {c: whole(kept[c]) if plan.roles[c] == "id" else kept[c] for c in plan.meta}
        raw.meta = pd.DataFrame({plan.name(c): cells[c] for c in plan.meta})


def peek_of(plan: Plan, rows: int | None, dtype: str, memory: int, head: np.ndarray | None, **words) -> Peek:
    """The look at a table; what stops it from being read so is a warning there, for changed roles may mend it."""
    warned = [*words.pop("warned", ()), *([str(plan.problem)] if plan.problem else [])]
    assumed = (*words.pop("assumed", ()), *plan.assumed)
    return Peek(rows, plan.dim, dtype, memory, plan.infos(), head, assumed, tuple(warned))


# ---------------------------------------------------------------- writing


def beside(space: Space, taken: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """The text columns a table keeps beside the vectors, by heading, and what cannot be kept.

    Names that only count the rows are left out where nothing else could be read as names. With metadata, names, labels
    and media always have their column, blank if there are none, so that no column of metadata is read as such.
    """
    n, notes = len(space), []
    default = all(name == str(i) for i, name in enumerate(space.names))
    out: dict[str, list[str]] = {}
    for heading, values in (("name", space.names), ("label", space.labels), ("media", space.media)):
        if values is not None and heading == "media" and any(isinstance(v, bytes) for v in values):
            notes.append("pictures held as bytes are not written")
            values = None
        if values is None and space.meta is not None:
            values = [""] * n
        # a single column of numbers under a 0 would pass for two rows
        alone = space.meta is None and space.labels is None and space.media is None and space.dim > 1
        plain = heading == "name" and default and alone
        if values is not None and not plain:
            out[heading] = [str(v) for v in values]
    if space.meta is not None:
        for heading, new in renamed(list(space.meta.columns), {*out, *taken}).items():
            if new != str(heading):
                notes.append(f"metadata {heading!r} written as {new!r}")
            out[new] = ["" if missing(v) else str(v) for v in space.meta[heading]]
    for heading in ("label", "name"):
        if heading in out and any(out[heading]) and whole(out[heading]) != out[heading]:
            notes.append(f"{heading}s such as {out[heading][0]!r} are read back as whole numbers")
    for heading, values in (("label", space.labels), ("media", space.media), ("name", space.names)):
        if values is not None and heading in out and not any(x.strip() for x in out[heading]):
            notes.append(f"{heading}s that are all blank are read back as none")
    return out, notes


def renamed(headings: Sequence, taken: set[str], *, free: bool = False) -> dict:
    """Headings of metadata as they are written: unique, none that is taken and, unless ``free``, none of a vector."""
    out, used = {}, {*taken, *(() if free else VECTOR_WORDS)}
    for heading in headings:
        text = str(heading).strip() or "column"
        text = f"column {text}" if text.isdecimal() and not free else text
        new, i = text, 2
        while new in used:
            new, i = f"{text} {i}", i + 1
        used.add(new)
        out[heading] = new
    return out


def missing(value) -> bool:
    """None, NaN, NaT and pandas' NA."""
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas' NA has no truth value
        return True
    except ValueError:  # an array
        return False
