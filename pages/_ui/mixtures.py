"""Anchors that are mixtures of the seeds: the weights as a heat map, and the seeds that count in an anchor."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import numpy as np
import pandas as pd
import streamlit as st

from pages._ui import figures, pictures, state
from pages._ui.header import plain
from pages._ui.selection import Selection
from relcore.colours import NONE_NAME
from relcore.runs import Run

MOST_ANCHORS, MOST_SEEDS = 300, 400  # rows and columns of cells that can still be told apart, and cost little to send
TOP = 10  # seeds listed of an anchor
LIGHTEST = 3  # seeds told of the other end of an anchor whose weights are nearly even
EVEN = 0.5  # share of the seeds that an anchor is the average of, in effect, from which weights are shown against 1/K
LONGEST_NAME = 60
VIEWS = ("Heat map", f"Top {TOP} seeds of every anchor", "Weights drawn")


@dataclass(frozen=True, eq=False)
class Mixture:
    """Weights (m, K) of K seeds in m anchors, and what is read of them.

    Attributes
    ----------
    effective : float64 (m,), 1 / sum of squared weights: of how many seeds an anchor is the average, in effect.
    even : whether the weights are nearly alike, so that only their deviation from 1/K tells anything.
    rows, columns : order of the anchors and of the seeds in which they are drawn.
    row_starts, column_starts : where in that order each row and column of cells begins.
    cells : float32, mean weight in each cell.
    """

    weights: np.ndarray
    effective: np.ndarray
    even: bool
    rows: np.ndarray
    columns: np.ndarray
    row_starts: np.ndarray
    column_starts: np.ndarray
    cells: np.ndarray

    @property
    def whole(self) -> bool:
        """Whether each weight has a cell of its own."""
        return self.cells.shape == self.weights.shape

    def top(self, anchor: int, count: int = TOP) -> np.ndarray:
        """Positions of the seeds that count most in an anchor, the heaviest first; those of no weight are left out."""
        order = np.argsort(-self.weights[anchor], kind="stable")[:count]
        return order[self.weights[anchor][order] > 0]

    def row_of(self, anchor: int) -> int:
        """The row of cells that an anchor is drawn in."""
        place = int(np.flatnonzero(self.rows == anchor)[0])
        return int(np.searchsorted(self.row_starts, place, side="right")) - 1

    def columns_of(self, seeds: np.ndarray) -> np.ndarray:
        """The columns of cells that some seeds are drawn in, each once."""
        places = np.flatnonzero(np.isin(self.columns, seeds))
        return np.unique(np.searchsorted(self.column_starts, places, side="right") - 1)


def arrange(
    weights: np.ndarray, labels: np.ndarray | None, most: tuple[int, int] = (MOST_ANCHORS, MOST_SEEDS)
) -> Mixture:
    """Put anchors and seeds in an order that shows structure, and what is more than can be drawn into blocks.

    Seeds go by label, the most frequent first, then by the anchor they are heaviest in; anchors by the label of their
    heaviest seed, then by number. Where weights are nearly even, anchors keep their order, which is then a
    ranking. A block holds neighbours in this order, of one label where the labels leave room for it.

    Parameters
    ----------
    labels : object array (K,), "" for none; or None.
    most : rows and columns of cells, at most.
    """
    weights = np.asarray(weights)
    m, k = weights.shape
    effective = 1 / (weights.astype(np.float64) ** 2).sum(1)
    even = float(effective.mean()) >= EVEN * k
    code = _codes(labels, k)
    rows = np.arange(m) if even else np.argsort(code[weights.argmax(1)], kind="stable")
    place = np.empty(m, dtype=np.int64)
    place[rows] = np.arange(m)
    columns = np.lexsort((-weights.max(0), place[weights.argmax(0)], code))
    row_starts = _blocks(np.array([m]), most[0])
    column_starts = _blocks(np.bincount(code), most[1])
    cells = np.add.reduceat(weights[rows].astype(np.float64), row_starts, axis=0)
    cells = np.add.reduceat(cells[:, columns], column_starts, axis=1)
    cells /= np.diff(row_starts, append=m)[:, None] * np.diff(column_starts, append=k)
    return Mixture(weights, effective, even, rows, columns, row_starts, column_starts, cells.astype(np.float32))


def _codes(labels: np.ndarray | None, k: int) -> np.ndarray:
    """Number of each label, the most frequent first (ties by name), those without one last; all 0 without labels."""
    if labels is None:
        return np.zeros(k, dtype=np.int64)
    names, code, counts = np.unique(labels.astype(str), return_inverse=True, return_counts=True)
    rank = np.empty(len(names), dtype=np.int64)
    rank[np.lexsort((names, -counts, names == ""))] = np.arange(len(names))
    return rank[code]


def _sums(weights: np.ndarray, code: np.ndarray) -> np.ndarray:
    """Weight of each label in each anchor."""
    order = np.argsort(code, kind="stable")
    starts = np.searchsorted(code[order], np.arange(code.max() + 1))
    return np.add.reduceat(weights[:, order], starts, axis=1)


def _blocks(sizes: np.ndarray, most: int) -> np.ndarray:
    """Where blocks begin in runs of the given sizes: at most so many, each within a run if there are few runs."""
    total = int(sizes.sum())
    if total <= most:
        return np.arange(total)
    if len(sizes) > most // 2:
        sizes = np.array([total])
    counts = np.maximum(1, sizes * (most - len(sizes)) // total) if len(sizes) > 1 else np.array([most])
    ends = np.cumsum(sizes)
    parts = [
        end - size + (np.arange(count) * size) // count for end, size, count in zip(ends, sizes, counts, strict=True)
    ]
    return np.concatenate(parts)


# --------------------------------------------------------------------------------------------------------- on the page


@st.cache_resource(show_spinner=False, max_entries=8)
def _read(folder: str, stamp: float, data_key: str, _labels: np.ndarray | None) -> Mixture | None:
    weights = Run.load(folder).mixture()
    return None if weights is None else arrange(weights, _labels)


def seed_labels(s: state.State, run: Run) -> np.ndarray | None:
    """The label of each seed: A's, or B's where A has none."""
    pairs = run.pairs[0]
    for space, rows in ((s.data.x, pairs.x), (s.data.y, pairs.y)):
        if space.labels is not None and any(space.labels[rows]):
            return space.labels[rows]
    return None


def section(s: state.State, run: Run) -> None:
    """Heat map, tables and the anchor picked; nothing for a run without mixtures."""
    labels = seed_labels(s, run)
    stamp = (run.folder / "alignment.safetensors").stat().st_mtime
    found = _read(str(run.folder), stamp, s.data.key, labels)
    if found is None:
        return
    m, k = found.weights.shape
    st.subheader("Anchors as mixtures of the seeds", anchor=False)
    picked = st.session_state.get("mixture_anchor")
    anchor = picked[1] if picked and picked[0] == run.id else None
    seeds = Seeds(s, run, labels)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**Weight of each seed in each anchor** · {m:,} anchors × {k:,} seeds · {plain(run.title)}")
        view = st.segmented_control(
            "Shown as", VIEWS, default=VIEWS[0], required=True, key="mixture_view", label_visibility="collapsed"
        )
    if view == VIEWS[0]:
        heat_map(s, found, seeds, anchor)
    elif view == VIEWS[1]:
        every_top(found, seeds, run)
    else:
        drawn_weights(found, seeds)
    st.caption(" ".join(words(found, labels is not None)))
    left, right = st.columns([6, 5], gap="small")
    with left:
        anchor_table(s, run, found, seeds)
    with right:
        top_seeds(found, seeds, anchor)
    how_computed(found)


class Seeds:
    """What the seeds of a run are called."""

    def __init__(self, s: state.State, run: Run, labels: np.ndarray | None):
        self.x, self.y, self.pairs, self.labels = s.data.x, s.data.y, run.pairs[0], labels
        self.alike = np.array_equal(self.x.names[self.pairs.x], self.y.names[self.pairs.y])

    def names(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Columns of a table: the names on both sides, once where they are the same throughout."""
        a, b = self.x.names[self.pairs.x[rows]], self.y.names[self.pairs.y[rows]]
        return {"name (A and B)": a} if self.alike else {"A": a, "B": b}

    def label(self, row: int) -> str:
        return "" if self.labels is None else self.labels[row] or NONE_NAME

    def media(self, rows: np.ndarray) -> list[str] | None:
        for space, own in ((self.x, self.pairs.x), (self.y, self.pairs.y)):
            if space.media is not None:
                return space.media[own[rows]].tolist()
        return None

    def select(self, rows: np.ndarray, origin: str) -> Selection:
        """By row ids of both sides."""
        ids = (np.sort(space.ids[own[rows]]) for space, own in ((self.x, self.pairs.x), (self.y, self.pairs.y)))
        return Selection(*ids, origin)

    def selected(self, chosen: Selection) -> np.ndarray:
        """Positions of the seeds of which a row is selected on either side."""
        here = np.isin(self.x.ids[self.pairs.x], chosen.x) | np.isin(self.y.ids[self.pairs.y], chosen.y)
        return np.flatnonzero(here)

    def block(self, rows: np.ndarray) -> str:
        """A column of cells in words, unlike every other one."""
        first = f"{rows[0] + 1:,}: {_short(self.x.names[self.pairs.x[rows[0]]])}"
        own = {self.label(row) for row in rows} - {""}
        what = f" ({', '.join(sorted(own))})" if len(own) == 1 else f" ({len(own)} labels)" if own else ""
        return first + (f" and {len(rows) - 1:,} more" if len(rows) > 1 else "") + what


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def heat_map(s: state.State, found: Mixture, seeds: Seeds, anchor: int | None) -> None:
    selected = found.columns_of(seeds.selected(s.selection.current))
    blocks = np.split(found.columns, found.column_starts[1:])
    names = [escape(seeds.block(block), quote=False) for block in blocks]
    st.plotly_chart(
        figures.mixture(
            found.cells,
            [anchor_name(block) for block in np.split(found.rows, found.row_starts[1:])],
            names,
            spans(blocks, seeds),
            even=1 / found.weights.shape[1] if found.even else None,
            row=None if anchor is None else found.row_of(anchor),
            marked=selected,
            dark=st.context.theme.type == "dark",
            whole=found.whole,
        ),
        key="mixture_map",
        config={"displayModeBar": False},
        alt=f"Weights of {found.weights.shape[1]} seeds in {len(found.weights)} anchors; the other views have the "
        "numbers",
    )


def anchor_name(block: np.ndarray) -> str:
    """Anchors are numbered from 1, as the method has them."""
    return f"{block[0] + 1:,}" + (f" and {len(block) - 1:,} more" if len(block) > 1 else "")


def spans(blocks: list[np.ndarray], seeds: Seeds) -> list[tuple[int, int, str]]:
    """Runs of columns of one label: first and last column, and the label. Nothing where blocks hold several."""
    if seeds.labels is None:
        return []
    own = [{seeds.label(row) for row in block} for block in blocks]
    if any(len(labels) > 1 for labels in own):
        return []
    out: list[tuple[int, int, str]] = []
    for i, (label,) in enumerate(map(tuple, own)):
        if out and out[-1][2] == label:
            out[-1] = (out[-1][0], i, label)
        else:
            out.append((i, i, label))
    return out


def words(found: Mixture, labelled: bool) -> list[str]:
    """What is drawn, and how: nothing is left out, but more than the cells that can be told apart are put in blocks."""
    m, k = found.weights.shape
    rows, columns = found.cells.shape
    by = "by label, then by the anchor they are heaviest in" if labelled else "by the anchor they are heaviest in"
    out = [
        f"Seeds stand {by}"
        + (
            "; anchors in their own order."
            if found.even or not labelled
            else "; anchors by the label of their heaviest seed."
        )
    ]
    if found.even:
        out.append(f"The weights are nearly even, so they are drawn as multiples of 1/{k:,}: orange above, blue below.")
    if not found.whole:
        what = [
            f"{n:,} {name} in {cells:,} blocks of neighbours"
            for n, cells, name in ((m, rows, "anchors"), (k, columns, "seeds"))
            if n > cells
        ]
        out.append(
            f"More than can be told apart: {' and '.join(what)}, each cell the mean of its block; none is left out."
        )
    return out


def every_top(found: Mixture, seeds: Seeds, run: Run) -> None:
    """The seeds that count in each anchor, one after the other, of as many anchors as are drawn."""
    shown = found.rows[:MOST_ANCHORS]
    top = [found.top(anchor) for anchor in shown]
    rows = np.concatenate(top)
    anchors = np.repeat(shown, [len(t) for t in top])
    table = {
        "anchor": anchors + 1,
        "seed": rows + 1,
        "weight": found.weights[anchors, rows],
    } | seeds.names(rows)
    if seeds.labels is not None:
        table["label"] = [seeds.label(row) for row in rows]
    if len(found.rows) > len(shown):
        st.caption(f"The first {len(shown):,} of {len(found.rows):,} anchors; the table below has all, pick one there.")
    st.dataframe(
        pd.DataFrame(table),
        hide_index=True,
        height=460,
        key=f"mixture_tops_{run.id}",
        alt="The heaviest seeds of every anchor, with their weights",
        column_config={"weight": st.column_config.NumberColumn(format="%.4f", width=80)},
    )


def drawn_weights(found: Mixture, seeds: Seeds) -> None:
    """The cells of the heat map as numbers."""
    blocks = np.split(found.columns, found.column_starts[1:])
    table = pd.DataFrame(
        found.cells,
        index=[f"anchor {anchor_name(b)}" for b in np.split(found.rows, found.row_starts[1:])],
        columns=[seeds.block(b) for b in blocks],
    )
    st.dataframe(table, height=460, key="mixture_cells", alt="Weights of the seeds in the anchors, as drawn")


def anchor_table(s: state.State, run: Run, found: Mixture, seeds: Seeds) -> None:
    """All anchors in the order of the heat map; one picked has its heaviest seeds selected, once."""
    m, k = found.weights.shape
    order = found.rows
    heaviest = found.weights.argmax(1)[order]
    table = {
        "anchor": order + 1,
        "n eff": found.effective[order],
        "top": found.weights.max(1)[order],
        "heaviest seed (A)": seeds.x.names[seeds.pairs.x[heaviest]],
    }
    if seeds.labels is not None:
        names, code = np.unique([seeds.label(row) for row in range(k)], return_inverse=True)
        share = _sums(found.weights, code)[order]
        even = np.bincount(code) / k
        most = (share / even if found.even else share).argmax(1)
        table |= {"label": names[most], "its share": np.take_along_axis(share, most[:, None], 1)[:, 0]}
    st.markdown(f"**Anchors** · {plain(run.title)} · pick one to see its seeds")
    event = st.dataframe(
        pd.DataFrame(table),
        hide_index=True,
        height=420,
        key=f"mixture_anchors_{run.id}",
        on_select="rerun",
        selection_mode="single-row",
        alt="Anchors with how many seeds they are the average of, and which weighs most",
        column_config={
            "anchor": st.column_config.NumberColumn(width=50, help="As the method numbers them"),
            "n eff": st.column_config.NumberColumn(
                format="%.1f",
                width=50,
                help="Effective seeds, 1 / Σ weight²: of how many the anchor is the average, in effect",
            ),
            "top": st.column_config.NumberColumn(format="%.4f", width=58, help="Largest weight of a seed"),
            "heaviest seed (A)": st.column_config.TextColumn(width=105),
            "label": st.column_config.TextColumn(
                width=95,
                help="The label whose seeds have most of the weight"
                + (", for their number: all weights are nearly even" if found.even else ""),
            ),
            "its share": st.column_config.NumberColumn(format="percent", width=54, help="Weight of that label's seeds"),
        },
    )
    rows = event.selection.rows
    picked = (run.id, int(order[rows[0]]) if rows else None)
    before = st.session_state.get("mixture_anchor", (run.id, None))
    st.session_state["mixture_anchor"] = picked
    if before == picked or before[0] != run.id and not rows:
        return
    if rows:
        anchor = picked[1]
        top = found.top(anchor)
        s.selection.set(seeds.select(top, f"the {len(top)} heaviest seeds of anchor {anchor + 1}"))
    st.rerun()


def top_seeds(found: Mixture, seeds: Seeds, anchor: int | None) -> None:
    """The seeds that count most in the anchor picked."""
    if anchor is None or anchor >= len(found.weights):
        st.caption(f"Pick an anchor in the table: here are then the {TOP} seeds that count most in it.")
        return
    rows = found.top(anchor)
    k = found.weights.shape[1]
    weights = found.weights[anchor][rows]
    st.markdown(f"**Anchor {anchor + 1}** · its {len(rows)} heaviest seeds: {weights.sum():.0%} of the weight")
    media = seeds.media(rows)
    drawn, config = ({}, {}) if media is None else pictures.columns(media)
    table = {"weight": weights}
    if found.even:
        table["× 1/K"] = weights * k
    table |= drawn | seeds.names(rows)
    if seeds.labels is not None:
        table["label"] = [seeds.label(row) for row in rows]
    if found.even:
        low = np.argsort(found.weights[anchor], kind="stable")[:LIGHTEST]
        said = [f"{plain(seeds.x.names[seeds.pairs.x[i]])} ({found.weights[anchor, i] * k:.2f})" for i in low]
        st.caption(f"At its other end, with the least weight, × 1/K: {'; '.join(said)}.")
    st.dataframe(
        pd.DataFrame(table),
        hide_index=True,
        row_height=52 if "picture" in drawn else 36,
        key=f"mixture_top_{anchor}",
        alt=f"The heaviest seeds of anchor {anchor + 1}",
        column_config={
            "weight": st.column_config.NumberColumn(format="%.4f", width=58),
            "× 1/K": st.column_config.NumberColumn(format="%.2f", width=60, help=f"Against the even weight 1/{k:,}"),
            "name (A and B)": st.column_config.TextColumn(width=160 if drawn or found.even else 220),
            "A": st.column_config.TextColumn(width=120),
            "B": st.column_config.TextColumn(width=120),
            "label": st.column_config.TextColumn(width=90),
        }
        | config,
    )


def how_computed(found: Mixture) -> None:
    m, k = found.weights.shape
    with st.popover("How is this computed?", type="tertiary"):
        st.markdown(
            f"An anchor is a mixture of the {k:,} seeds, with the same weights on both sides: **a = Σ P x**, the x "
            "being the seeds' rows after preprocessing. A row of P has sum 1 and no negative weight. Methods differ in "
            "where P comes from: PARAM learns it, k-means anchors are averages of clusters of A's seeds, canonical "
            "correlations are (1 + c g)/K with the canonical scores g, and with a c so small that no weight is "
            "negative: nearly even for that reason, and what counts is the deviation.\n\n"
            "**Effective seeds** of an anchor: 1 / Σ P². An anchor that is the even average of n seeds has n. The "
            "noise of single rows is smaller by its root.\n\n"
            "Colours: weights are drawn from 0 to the largest, with shades that go by the root of the weight, so that "
            "small ones show; nearly even weights as multiples of 1/K, equally far above and below, the outermost "
            "hundredth of the cells in one colour. Triangles mark seeds that are selected."
        )
