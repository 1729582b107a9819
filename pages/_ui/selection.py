"""The selection every view shares: row ids of both spaces, where it came from, and a way back. Plain Python."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from relcore.space import Pairs, Space

NOTHING = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Selection:
    """Row ids (int64, sorted, unique) of the selected rows of x and y."""

    x: np.ndarray = field(default_factory=NOTHING.copy)
    y: np.ndarray = field(default_factory=NOTHING.copy)
    origin: str = ""

    def __len__(self) -> int:
        return len(self.x) + len(self.y)

    def same_rows(self, other: Selection) -> bool:
        return np.array_equal(self.x, other.x) and np.array_equal(self.y, other.y)


@dataclass
class SelectionStore:
    """The current selection and those before it. ``revision`` counts the changes; ``link`` is what the address bar says
    of one of them, with its revision."""

    current: Selection = field(default_factory=Selection)
    past: list[Selection] = field(default_factory=list)
    revision: int = 0
    link: tuple[int, str] = (-1, "")

    def set(self, selection: Selection) -> None:
        if selection.same_rows(self.current):
            return
        self.past = [*self.past[-49:], self.current]
        self.current = selection
        self.revision += 1

    def clear(self) -> None:
        self.set(Selection())

    def undo(self) -> None:
        if self.past:
            self.current = self.past.pop()
            self.revision += 1

    def forget(self) -> None:
        """Start anew, as when other data are loaded."""
        self.current, self.past = Selection(), []
        self.revision += 1


IN_A_LINK = 40  # rows that an address can name by itself
SPELLED = re.compile(r"x((?:\d{1,12}(?:\.\d{1,12})*)?)_y((?:\d{1,12}(?:\.\d{1,12})*)?)")


def spelled(selection: Selection) -> str:
    """Few rows as a word of an address, ``x3.17_y5``; "" for more than :data:`IN_A_LINK`."""
    if len(selection) > IN_A_LINK:
        return ""
    return "_".join(side + ".".join(map(str, ids)) for side, ids in (("x", selection.x), ("y", selection.y)))


def read(text: str) -> Selection | None:
    """What :func:`spelled` wrote; None for anything else."""
    found = SPELLED.fullmatch(text)
    if found is None:
        return None
    x, y = (np.unique(np.array([i for i in part.split(".") if i], dtype=np.int64)) for part in found.groups())
    return Selection(x, y, "a link")


@dataclass(frozen=True, eq=False)
class Link:
    """How rows of one side point at rows of the other: int64 positions, -1 for none."""

    rule: str
    x_to_y: np.ndarray
    y_to_x: np.ndarray

    def positions(self, side: str) -> np.ndarray:
        return self.x_to_y if side == "x" else self.y_to_x


def link_by_pairs(rule: str, pairs: Pairs, n: int, m: int) -> Link:
    return Link(rule, pairs.partner(n), pairs.flip().partner(m))


def no_link(n: int, m: int) -> Link:
    return Link("off", np.full(n, -1, dtype=np.int64), np.full(m, -1, dtype=np.int64))


def select(side: str, ids: np.ndarray, x: Space, y: Space, link: Link, origin: str) -> Selection:
    """The selection of these rows of one side and of what they are linked to on the other.

    Ids that are not in the space (of data loaded before, say) are left out; doubles count once.
    """
    here, there = (x, y) if side == "x" else (y, x)
    positions = np.unique(here.positions(np.asarray(ids, dtype=np.int64)))
    partners = link.positions(side)[positions]
    mine, linked = np.sort(here.ids[positions]), np.unique(there.ids[partners[partners >= 0]])
    return Selection(mine, linked, origin) if side == "x" else Selection(linked, mine, origin)
