"""A run, or several side by side, as one HTML page that needs nothing else: no network, no script, no other file.

    Path("report.html").write_text(report.of_run(run))

Everything is read from the run's folder. Text from files is escaped: a report may be opened by somebody who never saw
the data.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from relcore import __version__, comparison, export, pictures
from relcore.analysis import MRR_K, RULES, WAYS, ranks_of, rules_of
from relcore.colours import OKABE_ITO, plain_colours, shared_category_colours, value_colours
from relcore.errors import InputError
from relcore.metrics import mismatch

if TYPE_CHECKING:
    import pandas as pd

    from relcore.runs import Run

MOST_POINTS = 20_000  # drawn of a side; more are drawn from at random, and that is told
SHOWN = 10  # rows of a list of examples
ASIDE = 20  # rows set aside that are listed
CURVES = 400  # points of a curve
LETTERS = {"x": "A", "y": "B"}
WAY_WORDS = {"x_to_y": "A → B", "y_to_x": "B → A"}

STYLE = """
:root{color-scheme:light dark;--line:#d0d4da;--soft:#f4f6f8;--ok:#0a7d4f;--unsure:#9a6b00;--bad:#b3261e}
@media(prefers-color-scheme:dark){:root{--line:#3a4048;--soft:#1d2127;--ok:#4cc38a;--unsure:#e0b252;--bad:#ff8a80}}
body{font:15px/1.5 system-ui,sans-serif;max-width:1080px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem;margin:0}
h2{font-size:1.15rem;margin:2.2rem 0 .6rem;border-bottom:1px solid var(--line)}
h3{font-size:1rem;margin:1rem 0 .3rem}
table{border-collapse:collapse;margin:.4rem 0}
td,th{padding:.18rem .7rem .18rem 0;text-align:left;vertical-align:top}
th{font-weight:600;border-bottom:1px solid var(--line)}
td.n{text-align:right;font-variant-numeric:tabular-nums}
.row{display:flex;flex-wrap:wrap;gap:1.2rem}
.row>*{flex:1 1 420px;min-width:0;overflow-x:auto}
figure{margin:.4rem 0}
svg{width:100%;max-width:620px}
.small{font-size:11px;opacity:.85}
.legend span{margin-right:1rem}
.legend i{display:inline-block;width:.7em;height:.7em;margin-right:.35em;border-radius:2px}
.box{background:var(--soft);border-left:4px solid var(--line);padding:.5rem .9rem;margin:.7rem 0}
.aligned,.green{border-color:var(--ok)}
.unclear,.amber{border-color:var(--unsure)}
.chance,.collapsed,.red{border-color:var(--bad)}
img{max-width:100%;height:auto}
pre{background:var(--soft);padding:.7rem;overflow:auto;white-space:pre-wrap}
.dim{opacity:.75}
"""


def of_run(run: Run) -> str:
    """The page of one run.

    Raises
    ------
    InputError
        The run has no alignment.
    """
    if not run.usable:
        raise InputError(
            f"run {run.title} is {run.status} and has no alignment to report; wait for it, or run another."
        )
    arrays = run.analysis
    sections = [
        verdict(run),
        data(run),
        settings(run),
        curves(run),
        maps(run, arrays),
        retrieval(run, arrays),
        hubs(run, arrays),
        missing(run, arrays),
        again(run),
    ]
    return page(run.title, subtitle(run), "".join(sections))


def of_runs(runs: Sequence[Run]) -> str:
    """The page of several runs of the same data, side by side.

    Raises
    ------
    InputError
        Fewer than two runs, or runs of different data.
    """
    if len(runs) < 2:
        raise InputError("a comparison is of two runs or more; give another, or ask for the report of one.")
    analyses = [run.analysis if run.usable else None for run in runs]
    table = comparison.table(runs, analyses)
    known = [(run, a) for run, a in zip(runs, analyses, strict=True) if a is not None]
    pairs = comparison.scored([run for run, _ in known] or list(runs))
    words = [comparison.difference(run, runs[0]) for run in runs]
    names = [name for name in table.columns if name.rsplit(" ", 1)[-1] in WAYS]
    heads = ["run", "method", "settings", "status", "verdict", "seconds", *(heading(name) for name in names)]
    rows = [
        [r["title"], r["method"], w, r["status"], r["verdict"], r["seconds"], *(r[name] for name in names)]
        for w, (_, r) in zip(words, table.iterrows(), strict=True)
    ]
    out = [
        "<h2>Figures</h2>",
        f"<p>{scored_words(pairs)}, by {RULES['nearest']}.</p>",
        html_table(heads, rows),
    ]
    if len({comparison.seeds_digest(run) for run in runs}) > 1:
        out.append('<p class="box unclear">These runs were not all given the same seeds.</p>')
    if len(known) > 1:
        out.append("<h2>Agreement</h2><p>Share of all rows whose nearest row of the other side is the same.</p>")
        for way in WAYS:
            matrix = comparison.agreement([a for _, a in known], way)
            out.append(f"<h3>{WAY_WORDS[way]}</h3>")
            titles = [run.title for run, _ in known]
            out.append(html_table(["", *titles], [[t, *line] for t, line in zip(titles, matrix.tolist(), strict=True)]))
    out.append("<h2>Maps</h2>" + "".join(f"<h3>{escape(run.title)}</h3>{joint(run, a)}" for run, a in known))
    return page(f"{len(runs)} runs", subtitle(runs[0], of_run=False), "".join(out))


def page(title: str, below: str, body: str) -> str:
    """A whole page around sections."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)} · Relcore</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>'
        f'<h1>{escape(title)}</h1><p class="dim">{below}</p>{body}'
        f'<p class="dim">Made by Relcore {escape(__version__)}.</p></body></html>'
    )


def subtitle(run: Run, of_run: bool = True) -> str:
    sides = ", ".join(f"{LETTERS[s]}: {r['title']}, {r['rows']:,} × {r['dim']}" for s, r in _sides(run))
    return escape(sides + (f" · {run.record['method']} · {run.status} · {run.record['created']}" if of_run else ""))


def _sides(run: Run) -> list[tuple[str, dict[str, Any]]]:
    return [(side, run.record[side]) for side in "xy"]


# ---------------------------------------------------------------- sections


def verdict(run: Run) -> str:
    record = run.record
    found = record.get("verdict") or {"level": "unclear", "text": "this run was not judged."}
    out = [f'<p class="box {escape(found["level"])}"><b>{escape(found["text"])}</b></p>']
    told = [record["message"]] if record.get("message") else []
    out += [f'<p class="box unclear">{escape(note)}</p>' for note in [*told, *record.get("notes", ())]]
    if not record.get("converged", True):
        out.append('<p class="box unclear">The method stopped before its own criterion was met.</p>')
    return "".join(out)


def data(run: Run) -> str:
    out = ["<h2>Data</h2>", '<div class="row">']
    for side, record in _sides(run):
        report = record["report"]
        aside = [f"row {s['row']}: {s['reason']}" for s in report["set_aside"]]
        lines = aside[:ASIDE] + ([f"and {len(aside) - ASIDE:,} more"] if len(aside) > ASIDE else [])
        out.append(
            f"<div><h3>{LETTERS[side]} · {escape(record['title'])}</h3><p>{escape(str(report['source']))}<br>"
            f"{report['rows_read']:,} rows read, {report['rows_used']:,} used, {len(aside):,} set aside; "
            f"{report['dim']:,} numbers a row, stored as {escape(str(report['dtype']))}</p>"
            + html_list([*lines, *report["assumed"], *report["warnings"]])
            + f'<p class="dim">fingerprint {escape(record["fingerprint"][:16])}</p></div>'
        )
    seeds, truth = run.pairs
    known = "which rows correspond is not known" if truth is None else f"{len(truth):,} true pairs, for scoring only"
    origin = run.record.get("seeds_origin") or ""
    out.append(f"</div><p>{len(seeds):,} seeds{escape(f' ({origin})' if origin else '')}; {known}.</p>")
    return "".join(out)


def settings(run: Run) -> str:
    r = run.record
    changed, chosen = comparison.changed(run), r.get("chosen") or {}
    rows = [
        [name, str(value), "set" if name in changed else "default", str(chosen.get(name, ""))]
        for name, value in r["params"].items()
    ]
    rest = [
        ["preprocessing", ", ".join(r["preprocess"]) or "none"],
        ["random seed", str(r["seed"])],
        ["held-out folds", str(r["folds"])],
        ["device", str(r["device"])],
        ["seconds", f"{r.get('seconds', float('nan')):.1f}"],
        ["memory at its height", f"{r.get('peak_memory_mb', float('nan')):,.0f} MB"],
        *[[name, str(version)] for name, version in (r.get("versions") or {}).items()],
    ]
    return (
        f"<h2>Method: {escape(r['method'])}</h2><div class='row'><div>"
        + html_table(["parameter", "value", "", "found by the method"], rows)
        + "</div><div>"
        + html_table(["", ""], rest)
        + "</div></div>"
    )


def curves(run: Run) -> str:
    """What the steps told of: what is to rise (MRR, shares) apart from losses, each with its own scale."""
    history = run.history()
    if history is None or len(history) < 2:
        return ""
    told = [c for c in history.columns if c not in ("iteration", "phase") and history[c].notna().sum() > 1]
    groups = {"retrieval while it ran": [c for c in told if c.startswith("mrr")]}
    groups |= {c: [c] for c in told if not c.startswith("mrr")}
    references = run.record.get("references") or {}
    out = []
    for title, columns in groups.items():
        if not columns:
            continue
        series = {name: _thinned(history, name) for name in columns}
        levels = {f"{kind} {c}": of[c] for kind, of in references.items() for c in columns if of and c in of}
        out.append(pictures.lines(series, title=title, x="step", y="", references=levels))
    return f"<h2>Course of the run</h2><div class='row'>{''.join(out)}</div>" if out else ""


def _thinned(history: pd.DataFrame, name: str) -> pictures.Points:
    known = history[history[name].notna()]
    some = np.unique(np.linspace(0, len(known) - 1, min(CURVES, len(known))).round().astype(int))
    return known["iteration"].to_numpy()[some].tolist(), known[name].to_numpy(dtype=float)[some].tolist()


def maps(run: Run, arrays: comparison.Arrays) -> str:
    return f"<h2>Map</h2>{joint(run, arrays)}"


def joint(run: Run, arrays: comparison.Arrays) -> str:
    """Both sides in the common frame of the run, by label."""
    png, names, more, told = _joint(run, arrays)
    legend = "".join(f'<span><i style="background:{c}"></i>{escape(n)}</span>' for n, c in names)
    legend += f"<span>and {more:,} more</span>" if more > 0 else ""
    return (
        f"<figure>{pictures.inline(png, f'Both sides as {run.title} aligned them', 520)}<figcaption>A as dots, B as "
        f'crosses, two principal components of the common space{told}.<div class="legend small">{legend}</div>'
        "</figcaption></figure>"
    )


def map_png(run: Run, arrays: comparison.Arrays) -> bytes:
    """The picture of :func:`joint`."""
    return _joint(run, arrays)[0]


def _joint(run: Run, arrays: comparison.Arrays) -> tuple[bytes, list[tuple[str, str]], int, str]:
    """The picture, names and colours of its classes, how many more there are, and what was left out of it."""
    xy = {side: arrays[f"map_{side}"] for side in "xy"}
    some, told = _drawn(xy)
    labels = [run.labels[side] for side in "xy"]
    if any(v is not None for v in labels):
        columns = [v if v is not None else [""] * len(xy[side]) for side, v in zip("xy", labels, strict=True)]
        colours = shared_category_colours(*columns)
        names = list(zip(colours[0].names, colours[0].colours, strict=True))[:20]
    else:
        colours = tuple(plain_colours(len(xy[side]), c) for side, c in zip("xy", OKABE_ITO, strict=False))
        names = list(zip("AB", OKABE_ITO, strict=False))
    more = max(0, len(colours[0].names) - len(names)) if len(names) > 2 else 0
    first, second = ((xy[side][some[side]], _part(c, some[side])) for side, c in zip("xy", colours, strict=True))
    return pictures.joint_png(first, second, side=520), names, more, told


def charts(run: Run) -> dict[str, str]:
    """Every chart of the report as an SVG file of its own, by a name for it."""
    found = {}
    text = curves(run) + retrieval(run, run.analysis) + hubs(run, run.analysis)
    for number, svg in enumerate(re.findall(r"<svg.*?</svg>", text, re.S), 1):
        title = re.search(r'aria-label="([^"]*)"', svg).group(1)
        name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:50]
        found[f"{number:02d}-{name}"] = svg.replace("<svg ", '<svg color="#444" ', 1)
    return found


def _drawn(xy: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], str]:
    rng = np.random.default_rng(0)
    some = {side: np.sort(rng.permutation(len(v))[:MOST_POINTS]) for side, v in xy.items()}
    left = [f"{len(some[s]):,} of {len(v):,} rows of {LETTERS[s]}" for s, v in xy.items() if len(some[s]) < len(v)]
    return some, f"; drawn are {' and '.join(left)}, at random" if left else ""


def _part(colouring, rows: np.ndarray):
    from dataclasses import replace

    field = "codes" if hasattr(colouring, "codes") else "values"
    return replace(colouring, **{field: getattr(colouring, field)[rows]})


def retrieval(run: Run, arrays: comparison.Arrays) -> str:
    figures = run.record.get("metrics") or {}
    pairs = comparison.scored([run])
    if pairs is None or not len(pairs) or "x_to_y" not in figures:
        return "<h2>Retrieval</h2><p>No true pairs are known besides the seeds, so nothing is scored.</p>"
    out = [f"<h2>Retrieval</h2><p>{scored_words(pairs)}.</p>"]
    names = ("r@1", "r@5", "r@10", "mrr", "jaccard", "cosine")
    rows = []
    references = figures.get("references") or {}
    shown = [("this run", figures), *((_reference(name), of) for name, of in references.items())]
    for way in WAYS:
        for title, of in shown:
            rows.append([WAY_WORDS[way], title, *(of[way].get(name) for name in names)])
    out.append(html_table(["", "", *(n.upper() if n.startswith("r@") else n for n in names)], rows))
    rules = rules_of(arrays)
    rows = [
        [WAY_WORDS[way], RULES[rule], *(of.get(f"{n} {way}") for n in ("r@1", "r@10", "mrr"))]
        for way in WAYS
        for rule in rules
        for of in [comparison.figures(arrays, pairs, rule)]
    ]
    out.append("<h3>By rule</h3>" + html_table(["", "rule", "R@1", "R@10", "mrr"], rows))
    out.append('<div class="row">')
    for way in WAYS:
        ranks = ranks_of(arrays, way)[pairs.x if way == WAYS[0] else pairs.y]
        edges = [1, 2, 3, 4, 6, 11, 21, 51, 101, 1001, math.inf]
        counts = [int(((ranks >= a) & (ranks < b)).sum()) for a, b in zip(edges, edges[1:], strict=False)]
        labels = ["1", "2", "3", "4–5", "6–10", "11–20", "21–50", "51–100", "–1,000", "more"]
        out.append(pictures.bars(labels, counts, title=f"{WAY_WORDS[way]}, n = {len(ranks):,}", x="rank", y="rows"))
    out.append("</div>")
    return "".join(out)


def _reference(name: str) -> str:
    return {"seed": "seeds alone", "gt": "true anchors"}.get(name, name)


def scored_words(pairs: Any) -> str:
    if pairs is None:
        return "No true pairs are known, so retrieval is not scored"
    among = f"{len(pairs):,} true pairs that are no seeds, among all rows of the target"
    return f"Scored on {among}; MRR is cut at rank {MRR_K}"


def hubs(run: Run, arrays: comparison.Arrays) -> str:
    rows = []
    of = (run.record.get("metrics") or {}).get("rules") or {}
    for way in WAYS:
        for rule in rules_of(arrays):
            h = (of.get(rule, {}).get(way) or {}).get("hubness")
            if h:
                rows.append(
                    [
                        WAY_WORDS[way],
                        RULES[rule],
                        *(h[k] for k in ("skewness", "robin_hood", "anti_hubs", "hub_share")),
                        h["largest"],
                    ]
                )
    heads = ["", "rule", "skewness", "Robin Hood", "never listed", "slots of hubs", "largest N₁₀"]
    out = ["<h2>Hubness</h2>", html_table(heads, rows), '<div class="row">']
    for way in WAYS:
        n_k = arrays[f"{way}/nearest/n_k"]
        edges = [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, math.inf]
        counts = [int(((n_k >= a) & (n_k < b)).sum()) for a, b in zip(edges, edges[1:], strict=False)]
        labels = [
            f"{a}" if b == a + 1 else f"{a}+" if b == math.inf else f"{a}–{b - 1}"
            for a, b in zip(edges, edges[1:], strict=False)
        ]
        out.append(
            pictures.bars(
                labels,
                counts,
                title=f"{WAY_WORDS[way]}: lists a row is in, n = {len(n_k):,}",
                x="N₁₀",
                y="rows",
                log=True,
            )
        )
    return "".join(out) + "</div>"


def missing(run: Run, arrays: comparison.Arrays) -> str:
    if not mismatch.present(arrays):
        return ""
    at = mismatch.default_position(arrays)
    told = mismatch.summary(run.record, arrays, run.labels, at)
    out = [
        f"<h2>Mismatch</h2><p>Kernel sums at σ = {float(arrays['mismatch/sigma'][at]):.3g} rad.</p><div class='row'>"
    ]
    for side in "xy":
        gate, figures = told["gate"][side], told["sides"][side]
        out.append(
            f"<div><h3>Rows of {LETTERS[side]} without a counterpart</h3>"
            f'<p class="box {gate["level"]}">{escape(gate["text"])}</p>'
            f"<p>Median coverage {_number(figures['median'])}, {figures['flagged']:.1%} of rows flagged.</p>"
        )
        values = mismatch.coverage(arrays, side, at)
        xy = arrays[f"map_{side}"]
        some, drawn = _drawn({side: xy})
        rows = some[side]
        colours = value_colours(values[rows], title="coverage", colormap="viridis", low=0.0, high=1.0)
        if gate["level"] != "red":
            picture = pictures.inline(
                pictures.scatter_png(xy[rows], colours, side=360), f"Coverage of {LETTERS[side]}", 360
            )
            out.append(
                f"<figure>{picture}<figcaption>Dark: no counterpart; bright: covered{drawn}.</figcaption></figure>"
            )
        classes = [c for c in told["classes"] if c["side"] == side][:SHOWN]
        if classes:
            lines = [[c["label"], c["rows"], c["median"], f"{c['flagged']:.0%}"] for c in classes]
            out.append(html_table(["lowest classes", "rows", "median coverage", "flagged"], lines))
        out.append("</div>")
    return "".join(out) + "</div>"


def again(run: Run) -> str:
    sources = [run.record[side]["report"]["source"] for side in "xy"]
    seeds, truth = run.pairs
    line = export.command(run, *sources, None if truth is None else "pairs.csv", "seeds.csv" if len(seeds) else None)
    return (
        "<h2>Made again</h2><p>With the files as they were loaded; seeds and true pairs as exported with the run. The "
        f"export's <code>make_again</code> holds all of it.</p><pre>{escape(line)}</pre><h3>Rows never seen</h3>"
        f"<pre>{escape(export.usage(run))}</pre>"
    )


# ---------------------------------------------------------------- pieces


def heading(name: str) -> str:
    figure, way = name.rsplit(" ", 1)
    return f"{figure.upper() if figure.startswith('r@') else figure} {WAY_WORDS[way]}"


def _number(value: Any) -> str:
    if value is None or isinstance(value, float) and not math.isfinite(value):
        return ""
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:.3f}" if isinstance(value, float | np.floating) else str(value)


def html_table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table; numbers to the right, three digits behind the point, nothing where there is none."""

    def cell(value: Any) -> str:
        right = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        return f"<td{' class=n' if right else ''}>{escape(_number(value))}</td>"

    head = "".join(f"<th>{escape(h)}</th>" for h in heads)
    lines = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{lines}</table>"


def html_list(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(str(line))}</li>' for line in lines)}</ul>" if lines else ""
