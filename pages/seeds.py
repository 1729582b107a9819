"""Seeds: which pairs are given away, how good they are, and what happens when some are wrong."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from pages._ui import forms, maps, router, state
from pages._ui.header import plain
from relcore import projection, seeds
from relcore.errors import InputError
from relcore.methods import costs
from relcore.space import NO_LABEL, Pairs

router.ensure()
STRATEGIES = {  # seeds.WAYS, in the order of the list, and what each does
    "random": ("random", "All known pairs alike; a smaller draw is the beginning of a larger one."),
    "farthest": (
        "farthest point",
        "Spread out: from a random first pair, always the one farthest on A, by angle, from those chosen. Outliers "
        "come early.",
    ),
    "medoids": (
        "k-means medoids",
        "Typical ones: as many clusters of A as seeds are wanted, and of each the pair nearest to its centroid. (The "
        "averages themselves are no rows, hence no seeds: they are the anchors of k-means anchors on the Align page.)",
    ),
    "first": (
        "most frequent (by row order)",
        "The first paired rows of A: the most frequent words, where a file is in that order, as most word vectors are. "
        "The random seed has no part.",
    ),
    "stratified": (
        "stratified by label",
        "At random, as evenly over the labels of A as there are pairs; rows without a label come last.",
    ),
    "file": ("from a file or pasted", "Two columns, A then B."),
}
LONGEST = 120  # seconds a choice may take here: it keeps the page waiting


def main() -> None:
    s = state.page_state()
    st.title("Seeds", anchor=False)
    left, right = st.columns([1, 2.2], gap="large")
    with left:
        choose(s)
        stress(s)
    with right:
        strip(s)
        maps.seed_map(s)
        table(s)


def choose(s: state.State) -> None:
    truth = s.data.truth
    options = list(STRATEGIES) if truth is not None else ["file"]
    how = st.radio(
        "How", options, format_func=lambda way: STRATEGIES[way][0], key="seed_strategy", persist_state="session"
    )
    if truth is None:
        st.caption("No pairing is known for these spaces, so seeds cannot be drawn: give them below, or by hand.")
    if how == "file":
        from_file(s)
        return
    st.caption(STRATEGIES[how][1])
    count = int(
        st.number_input(
            "Count",
            1,
            None,
            min(state.SEED_COUNT, len(truth)),
            key="seed_count",
            persist_state="session",
            help=f"Of {len(truth):,} known pairs",
        )
    )
    seed = int(st.number_input("Random seed", 0, 2**31 - 1, 0, key="seed_seed", persist_state="session"))
    reason, expected = refusal(s, how, count)
    if reason:
        st.error(reason)
    elif expected > 2:
        st.caption(f"Takes about {forms.seconds(expected)}.")
    if st.button("Draw seeds", type="primary", key="draw_seeds", width="stretch", disabled=bool(reason)):
        with st.spinner("Choosing ..."):
            draw(s, how, count, seed)
        st.rerun()


def refusal(s: state.State, how: str, count: int) -> tuple[str, float]:
    """Why seeds cannot be drawn so, else nothing; and the seconds it is expected to take."""
    truth, labels = s.data.truth, s.data.x.labels
    if count > len(truth):
        return f"{count:,} seeds asked for, but only {len(truth):,} pairs are known: ask for at most that many.", 0
    if how == "stratified" and (labels is None or not (labels[truth.x] != NO_LABEL).any()):
        return "The paired rows of A have no labels to go by: load labels on the Data page, or choose another way.", 0
    expected = costs.clusters(len(truth), count, s.data.x.dim) if how == "medoids" else 0
    if expected > LONGEST:
        return (
            f"k-means of {len(truth):,} rows in {count:,} clusters takes about {forms.seconds(expected)}, too long for "
            "a page: ask for fewer, take farthest point, or let the command line do it (align --choose medoids)."
        ), expected
    return "", expected


def draw(s: state.State, how: str, count: int, seed: int) -> None:
    unit = projection.centred_unit(s.data.x.vectors) if how in seeds.BY_VECTORS else None
    pairs = seeds.choose_pairs(how, s.data.truth, count, vectors_x=unit, labels_x=s.data.x.labels, seed=seed)
    s.seeds = state.SeedSet.clean(pairs, seeds.origin(how, count, seed))


def from_file(s: state.State) -> None:
    st.caption("Two columns, A then B: names, or row numbers of the files. Comma, tab or blank between them.")
    upload = st.file_uploader("File", key="seed_file")
    text = st.text_area("or paste", key="seed_text", height=120, placeholder="card_arrival_1\tcard_arrival_1")
    given = upload.getvalue().decode("utf-8", "replace") if upload is not None else text
    if st.button("Use these", type="primary", key="use_seeds", disabled=not given.strip(), width="stretch"):
        d = s.data
        try:
            pairs, problems = seeds.read_pairs(given + "\n", d.x, d.y, d.report_x, d.report_y)
        except InputError as e:
            st.error(str(e))
            return
        origin = f"{len(pairs)} from {upload.name if upload is not None else 'pasted text'}"
        s.seeds = state.SeedSet.clean(pairs, origin, problems)
        st.rerun()


def stress(s: state.State) -> None:
    """Wrong pairs on purpose: how much does a method bear?"""
    with st.expander("Stress: corrupt a share"):
        share = st.slider("Share of the pairs given a wrong partner", 0, 95, 0, 5, format="%d %%", key="corrupt_share")
        if st.button("Corrupt", disabled=share == 0 or not len(s.seeds.pairs), key="corrupt"):
            clean = s.seeds
            pairs, wrong = seeds.corrupt(clean.pairs, share / 100, labels_y=s.data.y.labels, m=len(s.data.y), seed=0)
            s.seeds = state.SeedSet(pairs, f"{clean.origin}, {int(wrong.sum())} corrupted", clean.corrupted | wrong)
            st.rerun()
        st.caption("Partners of another class, where there are labels. Runs made with them say so.")
        if st.button(
            "Sweep the share",
            icon=":material/ssid_chart:",
            key="sweep_share",
            disabled=s.data.truth is None,
            help="Opens the sweep of methods over shares from 0 to 95 %, on the data at hand.",
        ):
            asked = {"compare_what": "methods", "sweep_choice": "corruption", "sweep_data": "here"}
            st.session_state.update(asked)
            st.switch_page(router.COMPARE)


def strip(s: state.State) -> None:
    """Count, coverage, rank, and what is wrong with the seeds, in a line each."""
    if not len(s.seeds.pairs):
        st.info("No seeds. Draw some, paste pairs, or select a row on each map and add it.")
    else:
        quality = seeds.quality(s.seeds.pairs, s.data.x, s.data.y)
        st.markdown(f"**{len(s.seeds.pairs)} seeds** · {plain(s.seeds.origin)}")
        st.caption(" · ".join(worth(quality)))
    if s.seeds.corrupted.any():
        st.warning(f"{int(s.seeds.corrupted.sum())} of {len(s.seeds.pairs)} pairs are wrong on purpose.")
    if s.seeds.problems:
        with st.expander(f"{len(s.seeds.problems)} lines not used", expanded=True):
            for problem in s.seeds.problems[:100]:
                st.caption(plain(problem))
            if len(s.seeds.problems) > 100:
                st.caption(f"and {len(s.seeds.problems) - 100} more")


def worth(quality: dict) -> list[str]:
    """What the seeds are worth: coverage of the classes, repeats, and how far they determine a rotation."""
    out = []
    for letter, side in (("A", quality["x"]), ("B", quality["y"])):
        if side["classes"]:
            out.append(f"cover {side['covered']} of {side['classes']} classes of {letter}")
        if side["duplicates"]:
            out.append(f"{side['duplicates']} share their vector with another seed of {letter}: they add nothing")
    rank, dims = min(quality["x"]["rank"], quality["y"]["rank"]), (quality["x"]["dim"], quality["y"]["dim"])
    if rank < max(dims):
        out.append(f"span {rank} of {dims[0]} and {dims[1]} dimensions: by themselves they fix a rotation only there")
    return out


def table(s: state.State) -> None:
    x, y, pairs = s.data.x, s.data.y, s.seeds.pairs
    chosen = s.selection.current
    with st.container(horizontal=True, vertical_alignment="center"):
        one_each = len(chosen.x) == 1 and len(chosen.y) == 1
        st.button(
            "Add the selected pair",
            icon=":material/add_link:",
            disabled=not one_each,
            key="add_pair",
            on_click=add_selected,
            args=(s,),
            help="Select one row on either map (click; hold Shift to add to the selection).",
        )
        st.button(
            "Remove ticked",
            icon=":material/delete:",
            key="remove_seeds",
            on_click=remove_ticked,
            args=(s,),
            disabled=not len(pairs),
        )
    if not len(pairs):
        return
    rows = {"#": np.arange(1, len(pairs) + 1), "A": x.names[pairs.x], "B": y.names[pairs.y]}
    if x.labels is not None:
        rows["label A"] = x.labels[pairs.x]
    if y.labels is not None:
        rows["label B"] = y.labels[pairs.y]
    if s.seeds.corrupted.any():
        rows["wrong on purpose"] = ["✗" if c else "" for c in s.seeds.corrupted]
    event = st.dataframe(
        pd.DataFrame(rows),
        hide_index=True,
        key=table_key(s),
        on_select="rerun",
        selection_mode="multi-row",
        alt="The seed pairs",
        column_config={"#": st.column_config.NumberColumn(width=40)},
    )
    st.session_state["ticked_seeds"] = event.selection.rows


def table_key(s: state.State) -> str:
    """A new key for new content: a kept one would keep the ticks by position."""
    return f"seed_table_{hash(s.seeds.pairs.array.tobytes())}"


def remove_ticked(s: state.State) -> None:
    ticked = st.session_state.get("ticked_seeds", [])
    keep = np.setdiff1d(np.arange(len(s.seeds.pairs)), ticked)
    if len(keep) < len(s.seeds.pairs):
        s.seeds = state.SeedSet(s.seeds.pairs.take(keep), f"{len(keep)} edited by hand", s.seeds.corrupted[keep])


def add_selected(s: state.State) -> None:
    chosen, pairs = s.selection.current, s.seeds.pairs
    px, py = s.data.x.positions(chosen.x)[0], s.data.y.positions(chosen.y)[0]
    try:
        grown = Pairs(np.concatenate([pairs.array, [[px, py]]]))
    except InputError:
        s.notice = "One of the two rows is in a seed pair already; remove that pair first."
        return
    s.seeds = state.SeedSet(grown, f"{len(grown)} edited by hand", np.append(s.seeds.corrupted, False))


main()
