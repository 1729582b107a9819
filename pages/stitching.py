"""Stitching: a classifier trained on one space is read on another, beside references; and what it takes for what."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import streamlit as st

from pages._ui import maps, router, state, stitch_form, stitched
from pages._ui.header import plain
from pages._ui.opened import distinct
from pages._ui.selection import select
from pages._ui.stitched import mark, name
from pages._ui.tables import once
from relcore import stitching
from relcore.errors import InputError
from relcore.metrics.stitching import TRAINED_ROWS
from relcore.runs import Run
from relcore.stitching import NO_CLASSIFIER
from relcore.stitchings import Stitching

router.ensure()

LISTED = 200  # confusions in the table
BESIDE = 24  # classes; the matrix of more is tall
SIDES = maps.SIDES


def main() -> None:
    s = state.page_state()
    st.title("Stitching", anchor=False)
    st.caption(
        "A classifier is trained on the rows of one space and read on those of another, both described in common "
        "terms. What it still gets right is what the description carries over."
    )
    stitch_form.form(s)
    kept = choose(s)
    if kept is None:
        st.info(
            "Nothing is stitched yet of these spaces. **Stitch** trains and reads every ordered pair in the background "
            "and shows results as they come."
        )
    else:
        watch(s, kept)
    explain()


# -------------------------------------------------------------------------------------------------------------- results


def choose(s: state.State) -> Stitching | None:
    """The stitching looked at: the newest of these spaces, or an earlier one."""
    here = stitched.of_data(s.data)
    if not here:
        return None
    by_id = {k.id: k for k in here}
    if st.session_state.get("stitching_choice") not in by_id:
        st.session_state["stitching_choice"] = here[0].id
    st.subheader("Results", anchor=False)
    if len(here) == 1:
        st.caption(plain(stitched.describe(here[0])))
        return here[0]
    titles = distinct({k.id: stitched.describe(k) for k in here})
    picked = st.selectbox(
        "Results", list(by_id), format_func=titles.get, key="stitching_choice", label_visibility="collapsed"
    )
    return by_id[picked]


def watch(s: state.State, kept: Stitching) -> None:
    """Progress and first figures while it goes on; afterwards everything."""
    job = state.job_of(kept.folder.name)
    if stitched.going(kept, job):

        @st.fragment(run_every=1.0, key="stitching_live")
        def body() -> None:
            fresh = Stitching.load(kept.folder)
            if not stitched.going(fresh, job):
                st.rerun()
            results = fresh.results()
            stitched.progress(fresh, job, len(results), "stitching")
            overview(s, fresh, results, stitched.summary(results), live=True)

        body()
        return
    stitched.ended_early(kept)
    results = kept.results()
    table = stitched.summary(results)
    overview(s, kept, results, table, live=False)
    if not len(table):
        return
    if kept.settings.classifier != NO_CLASSIFIER:
        confusions(s, kept, results, table)
    st.subheader("All ordered pairs", anchor=False)
    stitched.all_pairs(kept, s.data, table, stitched.FIGURES, "stitching_pairs")


def overview(s: state.State, kept: Stitching, results: pd.DataFrame, table: pd.DataFrame, *, live: bool) -> None:
    """Every representation for the decoder and encoder looked at: bars, and the same as a table."""
    data = s.data
    d, e = stitch_form.looked_at(data)
    rows = stitched.rows_of_pair(kept, data, table, d, e)
    what = "trained on the first, read on the second"
    if kept.settings.classifier == NO_CLASSIFIER:
        what = "rows of the second look for their partners in the first"
    st.markdown(f"**{plain(name(data, d))} → {plain(name(data, e))}**: {what}")
    stitched.failures(kept, of_pair(results, d, e))
    known = stitched.figures_of(rows)
    if not known:
        st.caption("No result of this pair yet.")
        return
    keys, key = row_keys(rows), row_key(kept, d, e)
    if not live and st.session_state.get(key) not in keys:
        st.session_state[key] = next((k for k in reversed(keys) if k[0] not in stitching.REFERENCES), keys[-1])
    with st.container(horizontal=True, vertical_alignment="bottom"):
        figure = st.segmented_control(
            "Figure",
            list(known),
            default=next(iter(known)),
            required=True,
            format_func=lambda f: known[f].title,
            key=f"stitching_figure_{'_'.join(known)}",
            persist_state="session",
            label_visibility="collapsed",
        )
        best_first = st.toggle("Best first", key="stitching_sorted", persist_state="session")
    rows = rows[rows[figure].notna()]
    if best_first:
        rows = rows.sort_values(figure, ascending=known[figure].lower, kind="stable")
    rows = rows.reset_index(drop=True)
    left, right = st.columns([11, 10], gap="medium")
    with left:
        draw_bars(kept, data, rows, figure, (d, e), live)
    with right:
        st.dataframe(
            overview_frame(rows, figure, known),
            hide_index=True,
            height=38 + 35 * min(len(rows), 14),
            key="stitching_table",
            placeholder="–",
            column_config=stitched.columns(known)
            | {
                "": st.column_config.TextColumn(width=290, pinned=True),
                "majority": st.column_config.NumberColumn(
                    format="%.3f", width=80, help="Accuracy of always saying the commonest class learned"
                ),
                "tested": st.column_config.NumberColumn(format="%.0f", width=70, help="Rows tested"),
            },
            alt=f"Figures of every representation, {mark(data, d)} to {mark(data, e)}",
        )
        first, second = (data.listed[i].space.dim for i in (d, e))
        if first != second:
            st.caption(
                f"No line for absolute coordinates of the other encoder: {first} and {second} dimensions are not "
                "comparable."
            )
    notes(kept, results, d, e)


def draw_bars(
    kept: Stitching, data: state.Data, rows: pd.DataFrame, figure: str, pair: tuple[int, int], live: bool
) -> None:
    """The bars; a click on one looks at its confusions."""
    about = stitched.FIGURES[figure]
    has_predictions = not live and kept.settings.classifier != NO_CLASSIFIER
    key = row_key(kept, *pair)
    keys = row_keys(rows)
    chosen = st.session_state.get(key) if has_predictions else None
    event = st.plotly_chart(
        stitched.bars(
            rows,
            figure,
            decoder=pair[0],
            chosen=keys.index(chosen) if chosen in keys else None,
            dark=st.context.theme.type == "dark",
        ),
        key=f"stitching_bars_{kept.id}",
        on_select="rerun" if has_predictions else "ignore",
        selection_mode="points",
        config={"displayModeBar": False},
        alt=f"{about.title} of every representation, {mark(data, pair[0])} to {mark(data, pair[1])}; the table has "
        "the numbers",
    )
    counted = rows["tested" if figure in stitched.CLASSIFIED else "judged"].dropna().astype(int).unique()
    st.caption(
        f"{about.title}: {about.help}{', less is better' if about.lower else ''}. "
        f"n = {' or '.join(f'{n:,}' for n in counted)}"
        + (f", {kept.settings.draws} draws" if kept.settings.draws > 1 else "")
        + ". Grey: references"
        + ("; dashed: the decoder on its own encoder." if stitched.by_itself(rows, pair[0]).any() else ".")
        + (" Click a bar to look at its confusions." if has_predictions else "")
    )
    if has_predictions:
        picked = event.selection.points
        number = picked[0]["point_index"] if picked else None
        if once(f"stitching_bar_{kept.id}", (pair, figure, number)) and number is not None:
            st.session_state[key] = keys[number]
            st.rerun()


def row_keys(rows: pd.DataFrame) -> list[tuple[str, int, int]]:
    return list(zip(rows["representation"], rows["decoder"], rows["encoder"], strict=True))


def row_key(kept: Stitching, d: int, e: int) -> str:
    """Where it is kept which result of a pair is looked at."""
    return f"stitching_row_{kept.id}_{d}_{e}"


def overview_frame(rows: pd.DataFrame, figure: str, known: dict[str, stitched.Figure]) -> pd.DataFrame:
    """The figure looked at comes first."""
    out = {"": rows["title"]}
    for f in dict.fromkeys([figure, *known]):
        out[known[f].title] = rows[f]
        if rows[f"{f} sd"].notna().any():
            out[f"{known[f].title} ± sd"] = rows[f"{f} sd"]
    out |= {c: rows[c] for c in ("majority", "tested") if c in rows and rows[c].notna().any()}
    return pd.DataFrame(out)


def of_pair(results: pd.DataFrame, d: int, e: int) -> pd.DataFrame:
    """The results that the overview of a pair shows."""
    here, there = results["decoder"], results["encoder"]
    own = (here == there) & here.isin([d, e])
    return results[own | ((here == d) & (there == e))]


def notes(kept: Stitching, results: pd.DataFrame, d: int, e: int) -> None:
    """What must be known of the results, each once, with those that it is said of."""
    said: dict[str, list[str]] = {}
    part = of_pair(results, d, e)
    if "notes" in part:
        for representation, own, told in zip(
            part["representation"], part["decoder"] == part["encoder"], part["notes"], strict=True
        ):
            title = stitched.title_of(kept, representation) + (", own encoder" if own else "")
            for note in told if isinstance(told, list) else []:
                if title not in said.setdefault(note, []):
                    said[note].append(title)
    lines = [*map(plain, kept.record["notes"])]
    every = part[part["error"] == ""]["representation"].nunique()
    lines += [
        plain(note) + ("" if len(titles) >= every > 1 else f" ({plain(', '.join(titles))})")
        for note, titles in said.items()
    ]
    if not lines:
        return
    with st.expander(f"{len(lines)} note{'s' * (len(lines) != 1)}", icon=":material/info:"):
        st.markdown("\n".join(f"- {line}" for line in lines))


# ----------------------------------------------------------------------------------------------------------- confusions


def confusions(s: state.State, kept: Stitching, results: pd.DataFrame, table: pd.DataFrame) -> None:
    """What was taken for what in one result, linked to the maps."""
    data = s.data
    pair = stitch_form.looked_at(data)
    rows = stitched.rows_of_pair(kept, data, table, *pair)
    if not len(rows):
        return
    st.subheader("Confusions", anchor=False)
    keys, key = row_keys(rows), row_key(kept, *pair)
    titles = dict(zip(keys, rows["title"], strict=True))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        box = f"{key}_box"
        st.session_state[box] = st.session_state[key]  # a bar may have been clicked
        chosen = st.selectbox(
            "Representation",
            keys,
            format_func=titles.get,
            key=box,
            width=420,
            on_change=lambda: st.session_state.update({key: st.session_state[box]}),
        )
        representation, d, e = chosen
        same = results[["representation", "decoder", "encoder"]].eq(list(chosen)).all(axis=1) & (results["error"] == "")
        by_draw = dict(zip(results["draw"][same], results.index[same], strict=True))
        draw = next(iter(by_draw))
        if len(by_draw) > 1:
            draw = st.selectbox(
                "Draw", list(by_draw), format_func=lambda i: f"draw {i + 1}", key=f"{key}_draw", width=140
            )
    tested, found = kept.tested(draw, e), kept.predicted(by_draw[draw])
    codes = stitched.label_codes(kept)[e]
    truth = codes[tested]
    here = np.unique(np.concatenate([truth, found]))
    classes = [kept.classes[i] for i in here]
    counts = stitched.confusion(np.searchsorted(here, truth), np.searchsorted(here, found), len(here))
    what = f"{titles[chosen]}, {mark(data, d)} → {mark(data, e)}" + (f", draw {draw + 1}" if len(by_draw) > 1 else "")

    def pick(i: int, j: int | None) -> None:
        """Select the tested rows of a true class, that were taken for another, or all of them."""
        mine = tested[(truth == here[i]) & ((found == here[j]) if j is not None else True)]
        choose_rows(s, e, mine, classes[i], None if j is None else classes[j])

    picture, lists = st.columns([13, 9], gap="medium")
    with picture:
        matrix(kept, counts, classes, what, by_draw[draw], pick)
    with lists:
        confusion_lists(counts, classes, what, f"{kept.id}_{by_draw[draw]}", pick)
    with lists if len(classes) > BESIDE else st.container():  # beside a tall matrix, so that both can be seen
        outcome_map(s, kept, representation, (d, e), draw, tested, truth == found)


def matrix(
    kept: Stitching,
    counts: np.ndarray,
    classes: list[str],
    what: str,
    number: int,
    pick: Callable[[int, int | None], None],
) -> None:
    figure, cells = stitched.confusion_map(counts, classes, st.context.theme.type == "dark")
    event = st.plotly_chart(
        figure,
        key=f"stitching_confusion_{kept.id}_{number}",
        on_select="rerun",
        selection_mode="points",
        config={"displayModeBar": False},
        alt=f"Share of each true class taken for each class, {what}; the lists beside have the numbers",
    )
    right = int(np.trace(counts))
    st.caption(
        f"{what}: {right:,} of {counts.sum():,} rows tested are on the diagonal. Colour: share of the true class. "
        "Click a cell to select its rows on the maps."
    )
    picked = event.selection.points
    cell = tuple(map(int, cells[picked[0]["point_index"]])) if picked else None
    if once("stitching_cell", (kept.id, number, cell)) and cell is not None:
        pick(*cell)


def confusion_lists(
    counts: np.ndarray, classes: list[str], what: str, key: str, pick: Callable[[int, int | None], None]
) -> None:
    """The most frequent confusions, figures of every class, and the matrix as a table."""
    names = np.array([c or "(none)" for c in classes], dtype=object)
    often, each, whole = st.tabs(["Most frequent confusions", "By class", "Matrix as a table"])
    rows = counts.sum(1)
    with often:
        wrong = counts.copy()
        np.fill_diagonal(wrong, 0)
        pairs = np.argwhere(wrong)
        pairs = pairs[np.argsort(-wrong[pairs[:, 0], pairs[:, 1]], kind="stable")]
        shown = pairs[:LISTED]
        taken = wrong[shown[:, 0], shown[:, 1]]
        picked = selectable(
            pd.DataFrame(
                {
                    "true": names[shown[:, 0]],
                    "taken for": names[shown[:, 1]],
                    "rows": taken,
                    "of its class": taken / np.maximum(rows[shown[:, 0]], 1),
                }
            ),
            f"stitching_often_{key}",
            f"Most frequent confusions, {what}",
            {
                "true": st.column_config.TextColumn(width=160),
                "taken for": st.column_config.TextColumn(width=160),
                "rows": st.column_config.NumberColumn(width=50),
                "of its class": st.column_config.NumberColumn(format="percent", width=85),
            },
        )
        more = "" if len(shown) == len(pairs) else f"The {len(shown)} most frequent of {len(pairs):,} kinds. "
        st.caption(
            f"{more}{int(wrong.sum()):,} of {int(counts.sum()):,} rows are taken for another class. Click a line to "
            "select its rows."
        )
        if picked is not None:
            pick(*map(int, shown[picked]))
    with each:
        right, said = np.diag(counts), counts.sum(0)
        frame = pd.DataFrame(
            {
                "class": names,
                "tested": rows,
                "found": right / np.where(rows, rows, np.nan),
                "precision": right / np.where(said, said, np.nan),
                "F1": 2 * right / np.where(rows + said, rows + said, np.nan),
            }
        )
        picked = selectable(
            frame,
            f"stitching_each_{key}",
            f"Figures of every class, {what}",
            {c: st.column_config.NumberColumn(format="%.3f", width=85) for c in ("found", "precision", "F1")}
            | {"found": st.column_config.NumberColumn(format="%.3f", width=85, help="Share of its rows that is found")},
        )
        st.caption("Click a class to select its tested rows.")
        if picked is not None:
            pick(picked, None)
    with whole:
        st.dataframe(
            pd.DataFrame(counts, index=pd.Index(names, name="true \\ predicted"), columns=stitched.unlike(names)),
            key="stitching_whole",
            alt=f"Rows of each true class taken for each class, {what}",
        )


def selectable(frame: pd.DataFrame, key: str, alt: str, config: dict) -> int | None:
    """A table of which a line can be picked; the line's number when it is picked anew."""
    event = st.dataframe(
        frame,
        hide_index=True,
        height=38 + 35 * min(max(len(frame), 1), 10),
        key=key,
        on_select="rerun",
        selection_mode="single-row",
        column_config=config,
        alt=alt,
    )
    number = event.selection.rows[0] if event.selection.rows else None
    return number if once(f"{key}_seen", (number,)) else None


def choose_rows(s: state.State, space: int, rows: np.ndarray, true: str, taken: str | None) -> None:
    """Select rows of a space, and by the link rule their partners; on the maps where the space is A or B."""
    data = s.data
    if space not in data.picked:
        s.notice = f"{name(data, space)} is neither A nor B, so that its rows are on no map; pick it below."
    else:
        side = SIDES[data.picked.index(space)]
        ids = data.listed[space].space.ids[rows]
        said = true if taken is None else f"{true} told right" if taken == true else f"{true} taken for {taken}"
        s.selection.set(select(side, ids, data.x, data.y, state.link(s), f"{said}, on the Stitching page"))
    st.rerun()


def outcome_map(
    s: state.State,
    kept: Stitching,
    representation: str,
    pair: tuple[int, int],
    draw: int,
    tested: np.ndarray,
    right: np.ndarray,
) -> None:
    """Both maps, the rows tested as right or wrong; where the run is what was read, as it aligned them."""
    data = s.data
    d, e = pair
    wanted = stitch_form.looked_at(data)
    if set(wanted) != set(data.picked):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.caption(
                f":material/info: The maps show A and B, which are {plain(name(data, data.picked[0]))} and "
                f"{plain(name(data, data.picked[1]))}, not these two."
            )
            st.button(
                f"Make {mark(data, wanted[0])} and {mark(data, wanted[1])} A and B",
                key="stitching_pick",
                on_click=state.pick,
                args=(s, *wanted),
                help="On all pages. Seeds are drawn anew; the run and the selection belong to the spaces before and "
                "are put away.",
            )
        return
    sides = {side: i for side, i in zip(SIDES, data.picked, strict=True)}
    encoder = next(side for side, i in sides.items() if i == e)
    codes = stitched.label_codes(kept)
    training = {}
    for side, i in sides.items():
        if i == d and kept.record["head"] is None:
            aside = kept.tested(draw, i)
            training[side] = np.setdiff1d(np.flatnonzero(codes[i] >= 0), aside)
    colourings = stitched.outcome_colours(
        {side: len(data.listed[i].space) for side, i in sides.items()},
        encoder,
        tested,
        right,
        training,
        st.context.theme.type == "dark",
    )
    run = of_run(s, kept) if representation == stitching.RUN else None
    if run is not None:
        arrays = state.analysis(run)
        coordinates, what = (arrays["map_x"], arrays["map_y"]), f"aligned by {run.title}"
    else:
        coordinates, what = state.maps(data), "principal components"
    maps.twin(s, coordinates, what, key="stitching_map", view=f"{what} {data.key}", height=420, colourings=colourings)
    st.caption(
        f"Colour: what became of the rows of {mark(data, e)} tested"
        + (f", and the rows of {mark(data, d)} to learn from" if training else "")
        + f". {int((~right).sum()):,} of {len(right):,} are wrong. Drag to lasso, click a row to select it and its "
        "partner, Esc to clear."
    )


def of_run(s: state.State, kept: Stitching) -> Run | None:
    """The run that was read, if it is still there and of A and B in this order."""
    try:
        run = Run.load(kept.record["run"]["folder"])
    except InputError:
        return None
    return run if run.usable and state.is_of_data(run, s.data) else None


def explain() -> None:
    with st.popover("How is this computed?", type="tertiary"):
        st.markdown(
            "Items are split once, the same share of each class: no item is learned from in one space and tested in "
            "another, and no mean, covariance or anchor is taken of a test row. A run is the exception: it was fitted "
            "before, on all rows, without labels, and its seeds are the anchors of *seeds only*; how many of the rows "
            "tested are seeds is told.\n"
            "- **Relative representations** describe a row by its similarities to anchors. All spaces share the "
            "anchors: the same training items, or the same mixtures of them (k-means averages, PARAM, generalised "
            "CCA).\n"
            "- **The classifier** is scikit-learn's with its defaults, on features moved to the training mean and "
            f"divided by one number; of more than {TRAINED_ROWS:,} rows some are drawn at random. A **linear head** "
            "reads the decoder's own coordinates, which are told from the common ones by a ridge regression.\n"
            "- **References**: *absolute, own encoder* is the classifier where it was trained, what stitching can "
            "hope for; *absolute, other encoder* reads the other space's coordinates as they are; *seeds only* are "
            "cosines to as many pairs as there are seeds; *all pairs as anchors* are cosines to up to "
            f"{stitching.FULL_ANCHORS:,} pairs; *all pairs, least squares* translates the encoder's rows by all "
            "training pairs.\n"
            "- **Weighted F1** is the mean over true classes of F1, weighed by their rows. Majority is the accuracy of "
            "always saying the commonest class learned.\n"
            f"- **R@1, R@5, MRR, nMSE, CKA** compare the two descriptions of the same test items (at most "
            f"{stitching.JUDGED:,}, none of them a seed of the run that is read); a row of the encoder's side looks "
            "for its partner on the decoder's.\n\n"
            "Sources: arXiv 2605.30596 (Algorithm 1, section 7), 2209.15430, 2311.00664."
        )


main()
