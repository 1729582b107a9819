"""Results of stitchings as tables and figures, and the section on all ordered pairs that two pages share."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from pages._ui import state
from pages._ui.figures import GREY, finish
from pages._ui.header import plain
from relcore import stitching, stitchings
from relcore.colours import NONE_COLOUR, CategoryColours, plotly_colorscale
from relcore.jobs import Job
from relcore.stitching import NO_CLASSIFIER, REFERENCES, RUN
from relcore.stitchings import Stitching

LETTERS = ("A", "B")
LONGEST = 34  # characters of a title on an axis
BLUE, ORANGE, DARK_BLUE = "#0072B2", "#E69F00", "#56B4E9"
RIGHT, WRONG, TRAINING, NOT_TESTED = "right", "wrong", "training rows", "not tested"
TEXT_CLASSES = 20  # beyond, cells have no text
MOST_NAMED = 40  # classes beyond which only the rows of a matrix have names: columns are too narrow
CLASS_PIXELS = ((12, 40), (24, 24), (10**9, 11))  # up to so many classes, so many pixels each


class Figure(NamedTuple):
    """A column of results: its title, what it says, whether less is better, and whether it lies in 0 to 1."""

    title: str
    help: str
    lower: bool = False
    unit: bool = True


CLASSIFIED = {
    "weighted_f1": Figure("Weighted F1", "Mean over true classes of F1, weighed by their rows"),
    "accuracy": Figure("Accuracy", "Share of tested rows whose class is found"),
    "mae": Figure("MAE", "Mean absolute difference of true and found label, as numbers", lower=True, unit=False),
}
ALIKE = {
    "r@1": Figure("R@1", "Share of test items whose partner in the decoder's space is the nearest, by cosine"),
    "r@5": Figure("R@5", "... among the 5 nearest"),
    "mrr": Figure("MRR", "Mean of 1/rank of the partner among the test items"),
    "nmse": Figure(
        "nMSE",
        "Mean squared difference of partners over the variance of the features; 0 alike, 2 unrelated",
        lower=True,
        unit=False,
    ),
    "nmse_scaled": Figure(
        "nMSE, scaled", "nMSE after each feature of each space has mean 0 and variance 1", lower=True, unit=False
    ),
    "rr_std": Figure(
        "RR_std",
        "Mean standard deviation of the features of the decoder's side; compares within one similarity only",
        unit=False,
    ),
    "effective_rank": Figure(
        "Effective rank", "Entropy of the singular values of the decoder's side, as a number of directions", unit=False
    ),
    "cka": Figure("CKA", "Linear centred kernel alignment of the two descriptions of the test items"),
}
FIGURES = CLASSIFIED | ALIKE
BESIDE = ("own_weighted_f1", "own_accuracy", "majority", "tested", "judged", "trained", "seconds")


# ------------------------------------------------------------------------------------------------------------- tables


def summary(results: pd.DataFrame) -> pd.DataFrame:
    """Means over draws: a row a representation and ordered pair, in the order they came.

    Columns are ``representation, decoder, encoder, draws`` (those that have figures), and of every figure there is its
    mean and, as ``FIGURE sd``, its standard deviation, NaN for one draw.
    """
    known = [f for f in (*FIGURES, *BESIDE) if f in results]
    keys = ["representation", "decoder", "encoder"]
    numbers = results[keys].assign(**{f: pd.to_numeric(results[f]) for f in known})
    groups = numbers[results["error"] == ""].groupby(keys, sort=False)
    out = groups[known].mean()
    out.insert(0, "draws", groups.size())
    spread = groups[[f for f in known if f in FIGURES]].std().add_suffix(" sd")
    return out.join(spread).reset_index()


def figures_of(table: pd.DataFrame, among: dict[str, Figure] = FIGURES) -> dict[str, Figure]:
    """The figures that some result has."""
    return {name: f for name, f in among.items() if name in table and table[name].notna().any()}


def title_of(kept: Stitching, representation: str) -> str:
    if representation == RUN:
        return (kept.record["run"] or {}).get("title", "the run")
    return stitching.title(representation)


def kind_of(representation: str) -> str:
    return "reference" if representation in REFERENCES else "run" if representation == RUN else "relative"


def mark(data: state.Data, i: int) -> str:
    """What a space of the list is called for short: its letter where there are two, else its number."""
    return LETTERS[data.picked.index(i)] if len(data.listed) == 2 else data.marks[i]


def name(data: state.Data, i: int) -> str:
    letter = f" ({LETTERS[data.picked.index(i)]})" if len(data.listed) > 2 and i in data.picked else ""
    return f"{mark(data, i)} · {data.listed[i].title}{letter}"


class Row(NamedTuple):
    """A line of the results of one ordered pair: which result it is, what it is called, and what it is."""

    representation: str
    decoder: int
    encoder: int
    title: str
    kind: str


def rows_of_pair(kept: Stitching, data: state.Data, table: pd.DataFrame, d: int, e: int) -> pd.DataFrame:
    """The results to be looked at for a decoder and an encoder: absolute ones of either side by itself, then the pair.

    The columns of ``table``, and ``title`` and ``kind`` (reference, run, relative).
    """
    own = [
        Row("absolute", d, d, f"absolute, own encoder ({mark(data, d)}→{mark(data, d)})", "reference"),
        Row("absolute", e, e, f"absolute, trained there too ({mark(data, e)}→{mark(data, e)})", "reference"),
    ]
    own = own[:1] if kept.record["head"] else own  # a head is not trained here
    names = dict.fromkeys(table["representation"])
    pair = [
        Row(r, d, e, "absolute, other encoder" if r == "absolute" else title_of(kept, r), kind_of(r)) for r in names
    ]
    lines = pd.DataFrame([*own, *pair])
    return lines.merge(table, on=["representation", "decoder", "encoder"], how="inner")


def unlike(names: Sequence[str]) -> list[str]:
    """Names of columns: no two alike."""
    seen: dict[str, int] = {}
    out = []
    for each in names:
        seen[each] = seen.get(each, 0) + 1
        out.append(each if seen[each] == 1 else f"{each} ({seen[each]})")
    return out


def confusion(truth: np.ndarray, found: np.ndarray, count: int) -> np.ndarray:
    """How many rows of each true class (row) were taken for each (column): int64 (count, count) of class positions.

    By counting, since scikit-learn's function would load scikit-learn into the server.
    """
    return np.bincount(truth * count + found, minlength=count * count).reshape(count, count)


# ------------------------------------------------------------------------------------------------------------ figures


def shortened(text: str, longest: int = LONGEST) -> str:
    return html.escape(text if len(text) <= longest else text[: longest - 1] + "…")


def by_itself(rows: pd.DataFrame, decoder: int) -> np.ndarray:
    """bool (n,): the results of a decoder on its own encoder."""
    return ((rows["decoder"] == decoder) & (rows["encoder"] == decoder)).to_numpy()


def bars(rows: pd.DataFrame, figure: str, *, decoder: int, chosen: int | None, dark: bool) -> go.Figure:
    """A bar a representation, the first on top; references muted, the decoder's own encoder a dashed line.

    ``rows`` of :func:`rows_of_pair`, in any order; bar number i is row number i. ``chosen`` is outlined.
    """
    about = FIGURES[figure]
    values, sd = rows[figure].to_numpy(float), rows[f"{figure} sd"].to_numpy(float)
    shades = {"reference": GREY, "run": ORANGE, "relative": DARK_BLUE if dark else BLUE}
    inks = {
        "reference": "#FFFFFF" if dark else "#1B1F27",
        "run": "#1B1F27",
        "relative": "#1B1F27" if dark else "#FFFFFF",
    }
    outline = "#FFFFFF" if dark else "#000000"
    hover = [
        f"{html.escape(title)}<br>{about.title} {value:.3f}"
        + (f" ± {s:.3f} over {n:.0f} draws" if np.isfinite(s) else "")
        + (f"<br>majority {majority:.3f}" if np.isfinite(majority) else "")
        for title, value, s, n, majority in zip(
            rows["title"], values, sd, rows["draws"], _column(rows, "majority"), strict=True
        )
    ]
    plot = go.Figure()
    plot.add_bar(
        orientation="h",
        x=values,
        y=list(range(len(rows))),
        error_x=dict(array=np.nan_to_num(sd), thickness=1.2, width=3) if np.isfinite(sd).any() else None,
        marker=dict(
            color=[shades[k] for k in rows["kind"]],
            opacity=[0.55 if k == "reference" else 1.0 for k in rows["kind"]],
            line=dict(color=outline, width=[2 if i == chosen else 0 for i in range(len(rows))]),
        ),
        text=[f"{v:.3f}" if np.isfinite(v) else "" for v in values],
        textposition="auto",
        insidetextanchor="start",
        insidetextfont=dict(color=[inks[k] for k in rows["kind"]], size=11),
        hovertext=hover,
        hoverinfo="text",
        showlegend=False,
        selected=dict(marker_opacity=1.0),
        unselected=dict(marker_opacity=0.55),
    )
    drawn = values[np.isfinite(values)]
    high = 1.0 if about.unit else float(drawn.max() * 1.05) if len(drawn) else 1.0
    own = values[by_itself(rows, decoder)]
    if len(own) and np.isfinite(own[0]):
        plot.add_vline(own[0], line=dict(dash="dash", width=1.5, color=GREY))
    plot.update_xaxes(title=about.title + (" (less is better)" if about.lower else ""), range=[0, high])
    plot.update_yaxes(
        tickvals=list(range(len(rows))),
        ticktext=[shortened(t, 54) for t in rows["title"]],
        tickfont_size=11,
        range=[len(rows) - 0.5, -0.5],
        showgrid=False,
        zeroline=False,
    )
    plot.update_layout(clickmode="event+select", dragmode=False, bargap=0.25)
    return finish(plot, height=70 + 27 * len(rows))


def _column(rows: pd.DataFrame, name: str) -> np.ndarray:
    return rows[name].to_numpy(float) if name in rows else np.full(len(rows), np.nan)


def confusion_map(counts: np.ndarray, classes: Sequence[str], dark: bool) -> tuple[go.Figure, np.ndarray]:
    """Shares of each true class (row) taken for each class (column), and the cells that can be clicked, (n, 2).

    A cell's colour is its share of the row. Plotly lets points be picked, not cells of a heat map, so that every cell
    with rows in it has a point of its size over it, not seen until picked; point number i is cell number i.
    """
    c = len(classes)
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    pixels = next(px for most, px in CLASS_PIXELS if c <= most)
    low = "#1B1F27" if dark else "#FFFFFF"
    scale = [[0, low], [0.02, "#23405C" if dark else "#DCE9F5"], [1, DARK_BLUE if dark else BLUE]]
    cells = np.argwhere(counts > 0)
    names = [html.escape(n) for n in classes]
    figure = go.Figure()
    figure.add_heatmap(
        z=share,
        zmin=0,
        zmax=1,
        colorscale=scale,
        hoverinfo="skip",
        colorbar=dict(thickness=10, tickformat=".0%", len=min(1.0, 260 / (pixels * c))),
        xgap=1 if c <= TEXT_CLASSES else 0,
        ygap=1 if c <= TEXT_CLASSES else 0,
        **(
            dict(text=np.where(counts > 0, counts.astype(str), ""), texttemplate="%{text}", textfont_size=11)
            if c <= TEXT_CLASSES
            else {}
        ),
    )
    figure.add_scatter(
        x=cells[:, 1],
        y=cells[:, 0],
        mode="markers",
        marker=dict(symbol="square", size=pixels - 3, color=ORANGE, opacity=0.0),
        selected=dict(marker=dict(opacity=0.75)),
        unselected=dict(marker=dict(opacity=0.0)),
        hovertext=[
            f"{names[i]} → {names[j]}<br>{counts[i, j]:,} of {counts[i].sum():,} rows, {share[i, j]:.0%}"
            for i, j in cells
        ],
        hoverinfo="text",
        showlegend=False,
    )
    step = max(1, -(-c // 80))  # beyond 80 classes every second or third has its name on the axis
    ticks = dict(tickvals=list(range(0, c, step)), ticktext=[shortened(n, 22) for n in classes[::step]], zeroline=False)
    ticks |= dict(showgrid=False, tickfont_size=11 if c <= 24 else 8, ticks="")
    across = dict(title="predicted", tickangle=-90 if c > 5 else 0) | ticks
    if c > MOST_NAMED:
        across |= dict(title="predicted, in the same order", showticklabels=False)
    figure.update_xaxes(range=[-0.5, c - 0.5], **across)
    figure.update_yaxes(title="true", range=[c - 0.5, -0.5], **ticks)
    figure.update_layout(clickmode="event+select", dragmode=False, hovermode="closest")
    return finish(figure, height=pixels * c + (150 if 5 < c <= MOST_NAMED else 80)), cells


def pair_matrix(table: pd.DataFrame, data: state.Data, representation: str, figure: str, dark: bool) -> go.Figure:
    """A figure of every ordered pair: the encoder that is read down, the decoder that learned across.

    The diagonal is the same description tested where it was learned, where the figure has one.
    """
    n = len(data.listed)
    values = pair_values(table, n, representation, figure)
    about = FIGURES[figure]
    drawn = values[np.isfinite(values)]
    low, high = (0.0, 1.0) if about.unit else (float(drawn.min()), float(drawn.max())) if len(drawn) else (0.0, 1.0)
    labels = [shortened(name(data, i), 26) for i in range(n)]
    form = "%.3f" if np.abs(drawn).max(initial=0.0) < 100 else "%.0f"
    text = np.where(np.isfinite(values), np.char.mod(form, values), "")
    kind = "viridis_dark" if dark else "viridis_light"
    scale = kind + ("_r" if about.lower else "")
    plot = go.Figure(
        go.Heatmap(
            z=values,
            zmin=low,
            zmax=high if high > low else low + 1,
            text=text,
            texttemplate="%{text}",
            textfont_size=13,
            customdata=[[f"{labels[d]} → {labels[e]}" for d in range(n)] for e in range(n)],
            hovertemplate="%{customdata}: %{text}<extra></extra>",
            hoverongaps=False,
            colorscale=plotly_colorscale(scale),
            colorbar=dict(thickness=10),
            xgap=2,
            ygap=2,
        )
    )
    marks = [mark(data, i) for i in range(n)]
    across, down = "looked for in (decoder)", "looking (encoder)"
    if figure in CLASSIFIED:
        across, down = "trained on (decoder)", "read (encoder)"
    plot.update_xaxes(title=across, tickvals=list(range(n)), ticktext=marks, showgrid=False, zeroline=False)
    plot.update_yaxes(
        title=down,
        tickvals=list(range(n)),
        ticktext=labels,
        range=[n - 0.5, -0.5],
        showgrid=False,
        zeroline=False,
    )
    return finish(plot, height=130 + 62 * n)


def pair_values(table: pd.DataFrame, n: int, representation: str, figure: str) -> np.ndarray:
    """(n, n) of a figure, encoder by decoder; NaN where there is none."""
    values = np.full((n, n), np.nan)
    part = table[table["representation"] == representation]
    if figure in part:
        values[part["encoder"], part["decoder"]] = part[figure]
    own = f"own_{figure}"
    if own in part:
        for d, mean in part[part["decoder"] != part["encoder"]].groupby("decoder")[own].mean().items():
            values[d, d] = mean
    return values


def outcome_colours(
    sides: dict[str, int],
    encoder: str,
    tested: np.ndarray,
    right: np.ndarray,
    training: dict[str, np.ndarray],
    dark: bool,
) -> dict[str, CategoryColours]:
    """Rows of each side by what became of them: the encoder's right or wrong, the decoder's learned from or not.

    Parameters
    ----------
    sides : how many rows each side has.
    encoder : the side that was read.
    tested, right : positions of its rows tested, and whether their class was found.
    training : positions of the rows that may be learned from, of sides that are learned from.
    """
    names = (RIGHT, WRONG, TRAINING, NOT_TESTED)
    shades = (DARK_BLUE if dark else BLUE, "#D55E00", "#009E73", NONE_COLOUR)
    out = {}
    for side, n in sides.items():
        codes = np.full(n, 3, dtype=np.int16)
        codes[training.get(side, [])] = 2
        if side == encoder:
            codes[tested] = np.where(right, 0, 1)
        out[side] = CategoryColours(codes, names, shades, None, "outcome")
    return out


# ----------------------------------------------------------------------------------------------- kept, and on their way


def of_data(data: state.Data) -> list[Stitching]:
    """The stitchings of the spaces at hand, paired as they are now, newest first."""
    prints, items = [one.space.fingerprint for one in data.listed], data.spaces.items_digest
    return [
        k
        for k in stitchings.list_stitchings()
        if [space["fingerprint"] for space in k.record["spaces"]] == prints
        and k.record.get("items_digest", items) == items  # those of before have none
    ]


def with_partners(data: state.Data) -> Stitching | None:
    """The newest that tells, or will tell, how alike partners are described by more than the references."""
    return next((k for k in of_data(data) if k.settings.ways and (k.active or len(k.results()))), None)


def usual_anchors(items: int) -> int:
    """How many anchors a relative representation has unless told otherwise: 128, or half of the training items."""
    return min(128, max(1, int(0.75 * items) // 2))


def describe(kept: Stitching) -> str:
    r, settings = kept.record, kept.settings
    of = f"head: {r['head']['source']}" if r["head"] else stitching.CLASSIFIERS[settings.classifier]
    of = "no classifier" if settings.classifier == NO_CLASSIFIER else of
    parts = [of, f"{settings.test:.0%} tested", f"{settings.draws} draw{'s' * (settings.draws != 1)}"]
    parts += [f"labels: {r['labels']}"] if r.get("labels", "").startswith(("those", "column")) else []
    parts += [f"with {r['run']['title']}"] if r["run"] else []
    parts += [f"{len(settings.ways)} relative representations, {settings.anchors} anchors"] if settings.ways else []
    parts += ["" if kept.active else kept.status, r["created"][11:16] + " UTC"]
    return " · ".join(filter(None, parts))


@st.cache_resource(show_spinner=False, max_entries=8)
def _label_codes(folder: str) -> list[np.ndarray]:
    kept = Stitching.load(folder)
    place = {c: i for i, c in enumerate(kept.classes)}
    return [np.array([place.get(v, -1) for v in column], dtype=np.int64) for column in kept.labels()]


def label_codes(kept: Stitching) -> list[np.ndarray]:
    """For each space the class of each row, int64 positions in ``kept.classes``; -1 for a row without a label."""
    return _label_codes(str(kept.folder))


def going(kept: Stitching, job: Job | None) -> bool:
    return kept.active or (job is not None and job.active)


def progress(kept: Stitching, job: Job | None, done: int, key: str) -> None:
    """How far it is, and a button that stops it."""
    shot, total = job.snapshot() if job is not None else None, kept.record["total"]
    word = shot.status if shot is not None else kept.status
    if shot is not None and shot.cancelling:
        text = "stopping, keeping what there is"
    elif shot is not None and shot.status == "queued":
        text = "waiting for what was started before it"
    elif not done:
        text = "starting"
    else:
        text = f"{done:,} of {total:,} results" + (f" · {shot.elapsed:.0f} s" if shot is not None else "")
    st.progress(min(1.0, done / total) if total else 0.0, text=f"**{word}** · {text}")
    if shot is None:
        st.caption("Another process is working on it; its results appear here.")
        return
    st.button(
        "Stop",
        icon=":material/stop:",
        key=f"{key}_stop",
        on_click=job.cancel,
        disabled=shot.cancelling,
        help="Results so far are kept",
    )


def failures(kept: Stitching, results: pd.DataFrame) -> None:
    """Results that are none, each reason once."""
    for error, part in results[results["error"] != ""].groupby("error", sort=False):
        titles = dict.fromkeys(title_of(kept, r) for r in part["representation"])
        st.warning(f"No result for {plain(', '.join(titles))}: {plain(error)}")


def ended_early(kept: Stitching) -> None:
    """Says why a stitching has not all of its results."""
    if kept.status == "failed":
        st.error(f"This stitching failed: {plain(kept.record['message'])}")
    elif kept.status == "cancelled":
        st.warning(f"This stitching was stopped: {plain(kept.record['message'])}")


# --------------------------------------------------------------------------------------------------- all ordered pairs


def all_pairs(kept: Stitching, data: state.Data, table: pd.DataFrame, among: dict[str, Figure], key: str) -> None:
    """A figure of one representation for every ordered pair as a matrix, and all of them as a table to download."""
    known = figures_of(table, among)
    if not known:
        st.caption("No result has these figures yet.")
        return
    names = list(dict.fromkeys(table["representation"]))
    last = next((r for r in reversed(names) if r not in REFERENCES), names[-1])
    with st.container(horizontal=True, vertical_alignment="bottom"):
        representation = st.selectbox(
            "Representation",
            names,
            index=names.index(last),
            format_func=lambda r: title_of(kept, r),
            key=f"{key}_representation_{kept.id}_{len(names)}",
            width=380,
        )
        figure = st.selectbox(
            "Figure",
            list(known),
            format_func=lambda f: known[f].title,
            key=f"{key}_figure_{'_'.join(known)}",
            persist_state="session",
            width=220,
        )
    about = known[figure]
    left, right = st.columns([1, 1], gap="medium")
    part = table[table["representation"] == representation]
    with left:
        st.plotly_chart(
            pair_matrix(table, data, representation, figure, st.context.theme.type == "dark"),
            key=f"{key}_matrix",
            config={"displayModeBar": False},
            alt=f"{about.title} of {title_of(kept, representation)} for every ordered pair; the table has the numbers",
        )
        n = part["tested" if figure in CLASSIFIED else "judged"].dropna().astype(int)
        over = f"{n.min():,}" if len(n) and n.min() == n.max() else f"{n.min():,} to {n.max():,}" if len(n) else "no"
        st.caption(
            f"{about.title}: {about.help[0].lower() + about.help[1:]}. n = {over} "
            + ("rows tested" if figure in CLASSIFIED else "test items")
            + ("; the diagonal is tested where it was learned." if f"own_{figure}" in part else ".")
            + (" Less is better." if about.lower else "")
        )
    with right:
        st.dataframe(
            pairs_frame(kept, data, part[part["decoder"] != part["encoder"]], known, titles=False),
            hide_index=True,
            key=f"{key}_table",
            placeholder="–",
            column_config=columns(known),
            alt=f"Every ordered pair, {title_of(kept, representation)}",
        )
    everything = pairs_frame(kept, data, table, known, titles=True)
    with st.expander(f"Every representation and ordered pair: a table of {len(everything)} rows"):
        st.dataframe(
            everything,
            hide_index=True,
            key=f"{key}_everything",
            placeholder="–",
            column_config=columns(known),
            alt="Every representation and ordered pair with its figures",
        )
        st.download_button(
            "Download as CSV",
            everything.to_csv(index=False),
            file_name=f"{kept.id}-pairs.csv",
            mime="text/csv",
            icon=":material/download:",
            key=f"{key}_csv",
        )


def pairs_frame(
    kept: Stitching, data: state.Data, table: pd.DataFrame, known: dict[str, Figure], *, titles: bool
) -> pd.DataFrame:
    """Results for people: titles instead of positions."""
    out = {"representation": [title_of(kept, r) for r in table["representation"]]} if titles else {}
    if titles:
        out |= {side: [name(data, i) for i in table[side]] for side in ("decoder", "encoder")}
    else:
        pairs = zip(table["decoder"], table["encoder"], strict=True)
        out["decoder → encoder"] = [f"{mark(data, d)} → {mark(data, e)}" for d, e in pairs]
    for f, about in known.items():
        out[about.title] = table[f].to_numpy()
        if table[f"{f} sd"].notna().any():
            out[f"{about.title} ± sd"] = table[f"{f} sd"].to_numpy()
    return pd.DataFrame(out)


def columns(known: dict[str, Figure]) -> dict:
    form = {f.title: st.column_config.NumberColumn(format="%.3f", help=f.help, width=84) for f in known.values()}
    return form | {f"{t} ± sd": st.column_config.NumberColumn("± sd", format="%.3f", width=60) for t in form}
