"""Stitching: a classifier trained on one space is read on another, beside references; and what it takes for what."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import pandas as pd
import streamlit as st

from pages._ui import forms, loader, maps, router, runner, state, stitched
from pages._ui.header import plain
from pages._ui.opened import distinct
from pages._ui.selection import select
from pages._ui.stitched import mark, name
from relcore import loading, runs, stitching, stitchings
from relcore.errors import InputError
from relcore.formats.linear_head import LinearHead, get_head
from relcore.metrics.stitching import TRAINED_ROWS, numbers
from relcore.runs import Run
from relcore.space import NO_LABEL, as_text
from relcore.stitching import HEAD, NO_CLASSIFIER, Settings, Stitcher, Way
from relcore.stitchings import Stitching

router.ensure()

OWN = "own"  # choice of labels: each space's
MOST_CLASSES = 1000  # of a column that is offered as labels
NO_RUN = ""
LISTED = 200  # confusions in the table
SIDES = maps.SIDES
HEAD_ENDINGS = ["npz", "pt", "pth", "safetensors"]


def main() -> None:
    s = state.page_state()
    st.title("Stitching", anchor=False)
    st.caption(
        "A classifier is trained on the rows of one space and read on those of another, both described in common "
        "terms. What it still gets right is what the description carries over."
    )
    form(s)
    kept = choose(s)
    if kept is None:
        st.info(
            "Nothing is stitched yet of these spaces. **Stitch** trains and reads every ordered pair in the background "
            "and shows results as they come."
        )
    else:
        watch(s, kept)
    explain()


# ---------------------------------------------------------------------------------------------------------------- form


def form(s: state.State) -> None:
    """What is asked, what that costs, and the button."""
    data = s.data
    with st.container(border=True):
        settings, labels, run, head = asked(s)
        if settings is None:
            return
        count, reason, seconds = told(data, settings, labels, run, head)
        active = runner.my_active_job(s)
        with st.container(horizontal=True, vertical_alignment="center"):
            st.button(
                "Stitch",
                type="primary",
                icon=":material/play_arrow:",
                key="stitch",
                disabled=bool(reason),
                on_click=press,
                args=(s, settings, labels, run, head),
                help="In the background: it goes on when you leave this page."
                + (" It starts when what is going on is done." if active is not None else ""),
            )
            if not reason:
                st.caption(f"Cost: {count} results, about {forms.seconds(seconds)}. Every ordered pair is computed.")
        if reason:
            st.error(plain(reason))


def asked(s: state.State) -> tuple[Settings | None, str, Run | None, LinearHead | None]:
    """The form, filled in. None instead of settings while something is missing, which is said."""
    data = s.data
    spaces = data.spaces
    choices = label_choices(data)
    first = st.columns([3, 3, 2.4, 2.4], gap="small")
    pick_pair(data, first[0], first[1])
    with first[2]:
        labels = st.selectbox(
            "Labels",
            list(choices),
            format_func=choices.get,
            key=f"stitching_labels_{data.key}",
            disabled=len(choices) < 2,
            help="What is to be found. A space without labels takes those of its items in the first that has some.",
        )
    with first[3]:
        kinds = list(stitching.CLASSIFIERS)
        none = all(space.labels is None for space in spaces.spaces) and len(choices) < 2
        classifier = st.selectbox(
            "Classifier",
            kinds,
            index=kinds.index(NO_CLASSIFIER) if none else 0,
            format_func=lambda k: stitching.CLASSIFIERS[k][0].upper() + stitching.CLASSIFIERS[k][1:],
            key=f"stitching_classifier_{'none' if none else ''}",
            persist_state="session",
            help="Of scikit-learn, with its defaults; or a linear head that was trained elsewhere; or none: only how "
            "alike the same items are described in two spaces.",
        )
    if none:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.caption(
                ":material/info: No space has labels, so that nothing can be classified. Load labels with a file:"
            )
            st.page_link(router.DATA, label="Data", icon=":material/scatter_plot:")
    head = upload_head() if classifier == HEAD else None
    second = st.columns([1.3, 1, 1, 3, 2.2], gap="small", vertical_alignment="bottom")
    test = second[0].number_input(
        "Share tested (%)",
        1,
        99,
        25,
        key="stitching_test",
        persist_state="session",
        help="Of each class; never learned from",
    )
    draws = second[1].number_input(
        "Draws",
        1,
        100,
        1,
        key="stitching_draws",
        persist_state="session",
        help="Means and deviations over so many splits",
    )
    seed = second[2].number_input("Random seed", 0, 2**31 - 1, 0, key="stitching_seed", persist_state="session")
    with second[3]:
        run = pick_run(s)
    ordered = False
    if classifier not in (NO_CLASSIFIER, HEAD) and labels_are_numbers(data, labels):
        ordered = second[4].toggle(
            "Labels are ordered numbers",
            key="stitching_ordered",
            persist_state="session",
            help="Their distance counts: the mean absolute error is told too",
        )
    ways, more = pick_ways(s, test / 100)
    if classifier == HEAD and head is None:
        st.caption(":material/info: A head is wanted: upload a file that holds W and b.")
        return None, labels, run, None
    try:
        settings = Settings(
            classifier=classifier, test=test / 100, draws=int(draws), seed=int(seed), ordered=ordered, ways=ways, **more
        )
    except InputError as e:
        st.error(plain(str(e)))
        return None, labels, run, head
    return settings, labels, run, head


def pick_pair(data: state.Data, left, right) -> None:
    """Which decoder and encoder are looked at; all pairs are computed."""
    n = len(data.listed)
    d = left.selectbox(
        "Decoder side: trained on",
        range(n),
        index=data.picked[0],
        format_func=lambda i: name(data, i),
        key=decoder_key(data),
        help="What is looked at below; every ordered pair is computed anyway",
    )
    others = [i for i in range(n) if i != d]
    usual = data.picked[1] if data.picked[1] != d else data.picked[0]
    right.selectbox(
        "Encoder side: read",
        others,
        index=others.index(usual),
        format_func=lambda i: name(data, i),
        key=encoder_key(data, d),
        disabled=n == 2,
    )


def decoder_key(data: state.Data) -> str:
    return f"stitching_decoder_{data.key}_{len(data.listed)}"


def encoder_key(data: state.Data, d: int) -> str:
    return f"stitching_encoder_{data.key}_{len(data.listed)}_{d}"


def looked_at(data: state.Data) -> tuple[int, int]:
    d = st.session_state[decoder_key(data)]
    return d, st.session_state[encoder_key(data, d)]


def label_choices(data: state.Data) -> dict[str, str]:
    """Whose labels there are to choose from, by key: those of the spaces, of one of them, or a column beside."""
    spaces = data.spaces.spaces
    labelled = [i for i, space in enumerate(spaces) if space.labels is not None]
    out = {OWN: "each space's own" if labelled else "none"}
    if data.spaces.rows is not None and len(labelled) > 1:
        rows = data.spaces.rows
        columns = [spaces[i].labels[rows[:, i]] for i in labelled]
        if any((column != columns[0]).any() for column in columns[1:]):
            out |= {f"of {i}": f"those of {name(data, i)}" for i in labelled}
    for space in spaces:
        if space.meta is not None:
            most = min(MOST_CLASSES, len(space) // 2)
            out |= {f"column {c}": f"column {c}" for c in space.meta.columns if 2 <= space.meta[c].nunique() <= most}
    return out


def labels_of(data: state.Data, choice: str) -> list[np.ndarray | None]:
    """For each space a label a row, or None, as :class:`Stitcher` takes them."""
    spaces = data.spaces.spaces
    if choice.startswith("of "):
        source = int(choice.removeprefix("of "))
        return [space.labels if i == source else None for i, space in enumerate(spaces)]
    if choice.startswith("column "):
        column = choice.removeprefix("column ")
        return [
            as_text(space.meta[column].to_numpy(), len(space), column)
            if space.meta is not None and column in space.meta
            else None
            for space in spaces
        ]
    return [space.labels for space in spaces]


def labels_are_numbers(data: state.Data, choice: str) -> bool:
    found = [v[v != NO_LABEL] for v in labels_of(data, choice) if v is not None]
    return bool(found) and all(len(v) and numbers(v[:1]) and numbers(v) for v in found)


def pick_run(s: state.State) -> Run | None:
    """A finished run over two of the spaces, to be read beside the others."""
    prints = {one.space.fingerprint for one in s.data.listed}
    here = [r for r in runs.list_runs() if r.usable and {r.record[side]["fingerprint"] for side in "xy"} <= prints]
    titles = {NO_RUN: "no run"} | {r.id: f"{r.title} · {r.record['seeds']} seeds · {r.id[4:15]}" for r in here}
    usual = s.run_id if s.run_id in titles else NO_RUN
    chosen = st.selectbox(
        "Run to include",
        list(titles),
        index=list(titles).index(usual),
        format_func=titles.get,
        key=f"stitching_run_{s.data.key}_{s.run_id}_{len(here)}",
        disabled=not here,
        help="A finished alignment of two of these spaces, read in both directions" if here else "No finished run yet",
    )
    return next((r for r in here if r.id == chosen), None)


def pick_ways(s: state.State, test: float) -> tuple[tuple[str, ...], dict]:
    """Relative representations, and what is asked of them."""
    rows = s.data.spaces.rows
    if rows is None:
        st.caption(
            ":material/info: It is not known which rows are the same items in all spaces, so that there are no shared "
            "anchors: only a run, and absolute coordinates of one dimension, can be read. Say on the Data page how "
            "rows pair up."
        )
        return (), {}
    every = [f"{a}+{b}" for a in stitching.ANCHORS for b in stitching.SIMILARITIES]
    ways = st.multiselect(
        "Relative representations: anchors + similarity",
        every,
        default=list(stitching.USUAL),
        format_func=lambda w: Way.parse(w).title,
        key="stitching_ways",
        persist_state="session",
        help="All spaces share the anchors, found in training items alone. References are always computed.",
    )
    known = max(1, int((1 - test) * len(rows)) - 1)
    with st.expander("Anchors, support, shrinkage"):
        first = st.columns(3)
        anchors = first[0].number_input(
            "Anchors",
            1,
            10_000,
            min(128, max(1, known // 2)),
            key=f"stitching_anchors_{s.data.key}_{len(rows)}",
            help="Of each relative representation",
        )
        support = first[1].number_input(
            "Support items", 4, 100_000, 2000, key="stitching_support", persist_state="session",
            help=f"Training items that means, covariances and anchors are taken of, at most; there are {known:,}",
        )  # fmt: skip
        seeds = first[2].number_input(
            "Seeds of the reference",
            1,
            100_000,
            max(1, len(s.seeds.pairs)) if len(s.seeds.pairs) else 15,
            key=f"stitching_seeds_{s.data.key}_{len(s.seeds.pairs)}",
            help="Pairs of the reference by seeds only, drawn at random; a run brings its own",
        )
        second = st.columns(3, vertical_alignment="bottom")
        shrinkage = second[0].selectbox(
            "Shrinkage of whitened products",
            stitching.SHRINKAGES,
            format_func={
                "agreed": "agreed between the spaces",
                "ledoit_wolf": "each space's own (Ledoit-Wolf)",
                "fixed": "fixed",
            }.get,
            key="stitching_shrinkage",
            persist_state="session",
        )
        amount = 0.01
        if shrinkage == "fixed":
            amount = second[1].number_input(
                "Amount", 0.0, 0.99, 0.01, step=0.01, key="stitching_amount", persist_state="session"
            )
        with second[2]:
            standardise = st.toggle(
                "Standardise features",
                key="stitching_standardise",
                persist_state="session",
                help="Each feature of each space gets mean 0 and variance 1 over the support",
            )
            hold_out = len(s.data.listed) > 2 and st.toggle(
                "Hold the encoder's space out",
                key="stitching_hold_out",
                persist_state="session",
                help="It has no part in finding anchors and shrinkage: zero-shot stitching",
            )
    return tuple(ways), dict(
        anchors=int(anchors),
        support=int(support),
        seeds=int(seeds),
        shrinkage=shrinkage,
        shrinkage_amount=float(amount),
        standardise=standardise,
        hold_out=hold_out,
    )


def upload_head() -> LinearHead | None:
    """A head from a file, read in a process of its own; what it is, or why it is none."""
    with st.container(border=True):
        given = st.file_uploader(
            "Linear head: W (classes, dimensions), b, and perhaps classes",
            type=HEAD_ENDINGS,
            key="stitching_head",
            help="Arrays of .npz, .pt or .safetensors; names as torch (weight, bias) and scikit-learn (coef_, "
            "intercept_) give them are known too. Without classes they are the labels in their order.",
        )
        if given is None:
            return None
        outcome = read_head(str(loader.keep_upload(given)))
        if "error" in outcome:
            st.error(plain(outcome["error"]))
            return None
        head = get_head(outcome["reference"])
        named = (
            "without names" if head.classes is None else ", ".join(head.classes[:5]) + " …" * (len(head.classes) > 5)
        )
        st.caption(
            f"{plain(head.source)}: {len(head.weights)} classes ({plain(named)}), reads rows of {head.dim} numbers"
        )
        return head


@st.cache_data(show_spinner="Reading the head", max_entries=16)
def read_head(path: str) -> dict:
    return loading.head(path)


def told(
    data: state.Data, settings: Settings, labels: str, run: Run | None, head: LinearHead | None
) -> tuple[int, str, float]:
    """How many results there will be, why there will be none, and how many seconds they take."""
    rows = data.spaces.rows
    asked = (
        *(one.space.fingerprint for one in data.listed),
        "" if rows is None else hashlib.sha256(rows.tobytes()).hexdigest(),
        repr(settings),
        labels,
        "" if run is None else run.id,
        "" if head is None else f"{head.source} {head.weights.shape} {head.classes}",
    )
    return _told(asked, lambda: questioned(data, settings, labels, run, head))


@st.cache_resource(show_spinner=False, max_entries=64)
def _told(asked: tuple, _question: Callable[[], Stitcher]) -> tuple[int, str, float]:
    try:
        question = _question()
        count = len(question.units())
    except InputError as e:
        return 0, str(e), 0.0
    if not count:
        return 0, "nothing can be read of these spaces so: say how rows pair up, or include a run.", 0.0
    return count, "", stitching.estimate(question.spaces, question.settings, question.aligned)


def questioned(data: state.Data, settings: Settings, labels: str, run: Run | None, head: LinearHead | None) -> Stitcher:
    aligned = None if run is None else stitchings.aligned(run, data.spaces, coordinates=False)
    question = Stitcher(data.spaces, settings, labels=labels_of(data, labels), aligned=aligned, head=head)
    question.draw(0)
    return question


def press(s: state.State, settings: Settings, labels: str, run: Run | None, head: LinearHead | None) -> None:
    try:
        kept = runner.start_stitching(
            s, settings, run=run, head=head, labels=labels_of(s.data, labels), title=label_choices(s.data)[labels]
        )
    except InputError as e:
        s.notice = str(e)
    else:
        st.session_state["stitching_choice"] = kept.id


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
    d, e = looked_at(data)
    rows = stitched.rows_of_pair(kept, data, table, d, e)
    st.markdown(f"**{plain(name(data, d))} → {plain(name(data, e))}**: trained on the first, read on the second")
    failures(kept, results, d, e)
    known = stitched.figures_of(rows)
    if not known:
        st.caption("No result of this pair yet.")
        return
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
    left, right = st.columns([6, 5], gap="medium")
    with left:
        draw_bars(kept, data, rows, figure, (d, e), live)
    with right:
        st.dataframe(
            overview_frame(rows, figure, known),
            hide_index=True,
            height=38 + 35 * min(len(rows), 14),
            key="stitching_table",
            column_config=stitched.columns(known)
            | {
                "": st.column_config.TextColumn(width=210, pinned=True),
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
            rows, figure, chosen=keys.index(chosen) if chosen in keys else None, dark=st.context.theme.type == "dark"
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
        + ("; dashed: the decoder on its own encoder." if (rows["decoder"] == rows["encoder"]).any() else ".")
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


def failures(kept: Stitching, results: pd.DataFrame, d: int, e: int) -> None:
    """Results that are none, each with its reason."""
    failed = of_pair(results, d, e)
    failed = failed[failed["error"] != ""]
    for error, part in failed.groupby("error", sort=False):
        titles = dict.fromkeys(stitched.title_of(kept, r) for r in part["representation"])
        st.warning(f"No result for {plain(', '.join(titles))}: {plain(error)}")


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
    pair = looked_at(data)
    rows = stitched.rows_of_pair(kept, data, table, *pair)
    if not len(rows):
        return
    st.subheader("Confusions", anchor=False)
    keys, key = row_keys(rows), row_key(kept, *pair)
    titles = dict(zip(keys, rows["title"], strict=True))
    if st.session_state.get(key) not in titles:
        st.session_state[key] = next((k for k in reversed(keys) if k[0] not in stitching.REFERENCES), keys[-1])
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = st.selectbox("Representation", keys, format_func=titles.get, key=key, width=420)
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

    picture, lists = st.columns([6, 5], gap="medium")
    with picture:
        matrix(kept, counts, classes, what, by_draw[draw], pick)
    with lists:
        confusion_lists(counts, classes, what, f"{kept.id}_{by_draw[draw]}", pick)
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
            {"of its class": st.column_config.NumberColumn(format="percent", width=95)},
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


def once(key: str, seen: tuple) -> bool:
    """True the first time that something is picked: a chart or table reports its pick at every run of the page."""
    if st.session_state.get(key) == seen:
        return False
    st.session_state[key] = seen
    return True


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
    wanted = looked_at(data)
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
            "before, on all rows, without labels.\n"
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
            f"{stitching.JUDGED:,}); a row of the encoder's side looks for its partner on the decoder's.\n\n"
            "Sources: arXiv 2605.30596 (Algorithm 1, section 7), 2209.15430, 2311.00664."
        )


main()
