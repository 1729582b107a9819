"""Tables more than one page shows."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from pages._ui.figures import WAY_NAMES
from relcore.analysis import RULES
from relcore.runs import Run

COLUMNS = {"r@1": "R@1", "r@5": "R@5", "r@10": "R@10", "mrr": "MRR", "jaccard": "Jaccard", "cosine": "cosine"}
HELP = {
    "R@1": "Share of rows whose true partner is the nearest row of the other space",
    "R@5": "... among the 5 nearest",
    "R@10": "... among the 10 nearest",
    "MRR": "Mean of 1/rank of the true partner; 0 when it is not among the 10 nearest",
    "Jaccard": "Overlap of the 10 nearest found from this side with the 10 nearest of the true partner itself",
    "cosine": "Mean cosine of true partners in the common space. High for any anchors when the space has a cone: "
    "never rank by it",
}


def metrics_table(title: str, metrics: dict, shown: tuple[str, ...] = tuple(COLUMNS)) -> None:
    """Seed baseline, run and ground-truth anchors, both directions, with n and a word on how it is computed."""
    references = metrics.get("references", {})
    rows = [
        {"anchors": name}
        | {
            f"{COLUMNS[c]} {arrow}": values[way][c]
            for c in shown
            for way, arrow in WAY_NAMES.items()
            if c in values[way]
        }
        for name, values in _named(title, metrics, references)
    ]
    n = metrics["x_to_y"]["n"]
    columns = {
        f"{c} {arrow}": st.column_config.NumberColumn(format="%.3f", help=f"{HELP[c]}. {arrow}, n = {n:,}", width=84)
        for c in HELP
        for arrow in WAY_NAMES.values()
    }
    st.dataframe(
        pd.DataFrame(rows),
        hide_index=True,
        column_config=columns | {"anchors": st.column_config.TextColumn(pinned=True, width=130)},
        key="metrics_table",
        alt="Retrieval metrics of the run and its references, both directions",
    )
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(f"n = {n:,} true pairs that are no seeds, ranked among all rows of the target space.")
        with st.popover("How is this computed?", type="tertiary"):
            st.markdown(
                "Rows are compared by cosine in the common space. R@k, MRR (cut at rank 10), Jaccard and cosine as "
                "in the anchor-optimisation paper (arXiv 2303.00721), K = 10. **Seed** is the relative representation "
                "by the seed pairs alone; **GT anchors** by the run's own anchors, each with its true partner; "
                "**discretised** replaces each optimised anchor by the row it was matched to."
            )


def rules_table(run: Run, rules: dict) -> None:
    """Recall by each rule, both ways; where the run has a coupling, as teacher and what the encoders keep of it."""
    shown = {k: COLUMNS[k] for k in ("r@1", "r@5", "r@10", "mrr")}
    titles = {rule: RULES[rule] for rule in rules}
    if "coupling" in rules:
        titles["coupling"] = "teacher: coupling (transductive)"
        if run.record["params"].get("student", "none") != "none":
            titles |= {rule: f"student: {title}" for rule, title in titles.items() if rule != "coupling"}
    order = [r for r in ("coupling", *RULES) if r in rules]
    rows = [
        {"rule": titles[rule]}
        | {f"{c} {arrow}": rules[rule][way][k] for k, c in shown.items() for way, arrow in WAY_NAMES.items()}
        for rule in dict.fromkeys(order)
    ]
    n = rules["nearest"]["x_to_y"]["n"]
    st.markdown("**Teacher and student**" if "coupling" in rules else "**By rule**")
    st.dataframe(
        pd.DataFrame(rows),
        hide_index=True,
        column_config={
            f"{c} {arrow}": st.column_config.NumberColumn(
                format="%.3f", help=f"{HELP[c]}. {arrow}, n = {n:,}", width=84
            )
            for c in shown.values()
            for arrow in WAY_NAMES.values()
        }
        | {"rule": st.column_config.TextColumn(pinned=True, width=250)},
        key="rules_table",
        alt="Recall by each rule, both directions",
    )
    if "coupling" in rules and titles["nearest"].startswith("student"):
        kept = [
            f"{rules['nearest'][way]['r@10'] / rules['coupling'][way]['r@10']:.0%} {arrow}"
            for way, arrow in WAY_NAMES.items()
            if rules["coupling"][way]["r@10"]
        ]
        st.caption(
            f"Of the coupling's R@10 the encoders keep {' and '.join(kept) or 'nothing, it has none'}, by cosine. The "
            "coupling is transductive: the rows scored took part in the transport. The encoders are applied to each "
            "row by itself; CSLS and the inverted softmax look at the other queries too."
        )


def _named(title: str, metrics: dict, references: dict) -> list[tuple[str, dict]]:
    out = []
    if "seed" in references:
        out.append(("Seed", references["seed"]))
    out.append((title, metrics))
    if "discretised" in metrics:
        out.append((f"{title}, discretised", metrics["discretised"]))
    if "gt" in references:
        out.append((f"GT anchors ({references['gt']['anchors']})", references["gt"]))
    return out


def once(key: str, seen: tuple) -> bool:
    """True the first time that something is picked: a chart or table reports its pick at every run of the page."""
    if st.session_state.get(key) == seen:
        return False
    st.session_state[key] = seen
    return True
