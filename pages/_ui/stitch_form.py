"""The form of the Stitching page: whose labels, which classifier, what is compared, and what it will take."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import streamlit as st

from pages._ui import forms, loader, router, runner, state
from pages._ui.header import plain
from pages._ui.opened import titles_of
from pages._ui.stitched import name, usual_anchors
from relcore import loading, runs, stitching, stitchings
from relcore.errors import InputError
from relcore.formats.linear_head import LinearHead, get_head
from relcore.metrics.stitching import numbers
from relcore.runs import Run
from relcore.space import NO_LABEL, as_text
from relcore.stitching import HEAD, NO_CLASSIFIER, Settings, Stitcher, Way

OWN = "own"  # choice of labels: each space's
MOST_CLASSES = 1000  # of a column that is offered as labels
NO_RUN = ""
HEAD_ENDINGS = ["npz", "pt", "pth", "safetensors"]


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
                ":material/info: No space has labels, so that nothing can be classified. Load them with a file:",
                width="content",
            )
            st.page_link(router.DATA, label="Data", icon=":material/scatter_plot:")
    head = upload_head() if classifier == HEAD else None
    second = st.columns([1.3, 1, 1, 3, 2.4], gap="small", vertical_alignment="bottom")
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
    titles = {NO_RUN: "no run"} | titles_of(here)
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
    if not len(rows):
        st.caption(
            ":material/info: No item is in all of these spaces, so that there are no shared anchors: only a run, and "
            "absolute coordinates of one dimension, can be read. Take a space off the list on the Data page."
        )
        return (), {}
    known = max(1, int((1 - test) * len(rows)) - 1)
    with st.expander("Relative representations, anchors, support, shrinkage"):
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
        first = st.columns(3)
        anchors = first[0].number_input(
            "Anchors",
            1,
            10_000,
            usual_anchors(len(rows)),
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
            + ("" if head.offsets.any() else "; no offsets, or all 0")
        )
        return head


@st.cache_data(show_spinner="Reading the head", max_entries=16)
def read_head(path: str) -> dict:
    return loading.head(path)


def told(
    data: state.Data, settings: Settings, labels: str, run: Run | None, head: LinearHead | None
) -> tuple[int, str, float]:
    """How many results there will be, why there will be none, and how many seconds they take."""
    asked = (
        *(one.space.fingerprint for one in data.listed),
        data.spaces.items_digest,
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
