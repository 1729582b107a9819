"""Which rows of one space have no counterpart in the other, and whether the alignment is good enough to say so.

With the geodesic Gaussian kernel K_sigma of :mod:`relcore.ops.kernel_sums`, in the common space,

    raw(x) = mean_j K(x, y_j),      coverage(x) = mean_j K(x, y_j) / mean_{i != x} K(x, x_i).

The raw sum is the HGA paper's (arXiv 2608.28840, section F). It is low where the other space has nothing, and also
where the own space is thin; the ratio leaves density out. A row is **flagged** when its coverage is below the 1 %
quantile of a self-split null: the own side cut in two halves at random, each covered by the other.

Any alignment makes *some* class the lowest, so a gate decides what may be said (:func:`gate`): seeds that a fit did
not see must be found (mean reciprocal rank :data:`QUALITY`), half of a class must be flagged, and the *highest* median
coverage of the class over the fit and those with seeds held out must lie :data:`GAP` under the lowest of the classes
that are not flagged. QUALITY and GAP are those of the screen's notes, found on planted data. They are not enough:
Procrustes on 15 seeds passes them with classes beside their own partners, flagged on both sides, where no seed is of
them. So a class that the other side has too must not be flagged there (:data:`MET`); and where the other side has it,
or its labels are not known, only less than half of what the rest has will do. Without labels no more than
:data:`ASTRAY` of the other side may be as low.

SHARE, MET and ASTRAY were set looking at the first trials of ``benchmarks/mismatch.py``: digits networks, one of which
never saw a 0, and two networks on MNIST and Fashion-MNIST with a class left out of one side, so its counts on these
flatter them.

:func:`analyse` computes arrays (torch, in the worker); all else reads them, and importing this module loads no torch.
Arrays, S bandwidths, n rows of a SIDE (``x`` or ``y``):

- ``mismatch/sigma`` float64 (S,), radians, ascending: 25 steps of ``2^(1/8)`` from a quarter of a scale to twice it,
  and :data:`PAPER`. The scale is the median angle of a row to its 10th neighbour on its own side, the geometric mean
  of both sides. ``mismatch/default`` and ``mismatch/paper`` int64 (1,): positions of the default and of PAPER. The
  default is the scale, or less where the null is above :data:`EVEN` there: in many dimensions, where it would miss a
  class (banking77 without one of 77 intents: null .97 at the scale, nothing flagged; the class at .27 to .46 of it).
- ``mismatch/SIDE/cross``, ``mismatch/SIDE/own`` float32 (n, S): mean kernel to the other side, to the other rows of
  its own side.
- ``mismatch/SIDE/null`` float32 (S,): the 1 % quantile of the self-split null; 0 where a side is too small to split.
- ``mismatch/SIDE/folds`` float32 (F, n): coverage in each fit with seeds held out, at that fit's default sigma.
- ``mismatch/SIDE/region`` int32 (n,): region of a row flagged at the default sigma, 0 the largest; -1 none.
- ``mismatch/SIDE/reference`` int64 (1,): rows of the side that means run over: all, or a random :data:`REFERENCE`.
- ``mismatch/seed/SIDE`` float32 (n,): coverage under the seeds alone (relative representation), at its own default
  sigma; only where there are seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from relcore.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

SIDES = ("x", "y")
PAPER = 0.2  # radians, the bandwidth the HGA paper prints
STEPS = range(-16, 9)  # of the eighth part of a factor of 2
SMALLEST = 0.01  # radians: float32 angles below a tenth of it are rounding
NEIGHBOUR = 10
REFERENCE = 5_000  # rows that means run over, at most
ROUNDING = 2e-3  # of a coverage, where all angles are rounding
NULL = 0.01  # quantile of the null below which a row is flagged
EVEN = 0.6  # of the null: where it is higher, coverage varies little whatever is missing
NULL_ROWS = 1_000  # on which the default bandwidth is chosen
HALF = 10  # rows that each half of the null needs
JUDGED = 5  # rows of a class or region below which nothing is said of it
REACH = 1.5  # default sigmas within which two flagged rows are of one region
QUALITY = 0.4  # mean reciprocal rank of held-out seeds from which an alignment says what is missing
GAP = 0.09  # of median coverage, under the lowest class that is not flagged
SHARE = 0.5  # of a class or region flagged
MET = 0.25  # share of a class's rows on the other side flagged, from which both sides are out of place
# share of the other side below half its null, from which without its labels nothing is called missing: both are astray
ASTRAY = 0.015
LITTLE = 0.4  # share of a side flagged from which there is no list of classes: the spaces overlap little
LEAST = 0.01  # share of a side that a region needs
LISTED = 20  # lowest rows of a side in a summary
NONE = "(none)"
LETTERS = {"x": "A", "y": "B"}


class ClassRow(NamedTuple):
    """A class on one side: its rows, their median value, and the share of them flagged."""

    label: str
    rows: int
    median: float
    flagged: float
    judged: bool


class Region(NamedTuple):
    """Flagged rows that lie together: positions, and their median coverage."""

    number: int
    rows: np.ndarray
    median: float


class Gate(NamedTuple):
    """What may be said of a side.

    ``level`` is ``green`` (the alignment is good enough to say what is missing, and whether anything is), ``amber``
    (lowest coverage, not conclusive) or ``red`` (too weak to say anything); ``missing`` names classes or regions
    without a counterpart and is empty unless green; ``lowest`` is the class or region of lowest coverage.
    """

    level: str
    text: str
    missing: tuple[str, ...] = ()
    lowest: str | None = None


# ------------------------------------------------------------------------------------------------------- computing


def analyse(
    x: Tensor,
    y: Tensor,
    *,
    folds: Sequence[tuple[np.ndarray, np.ndarray]] = (),
    seed_x: Tensor | None = None,
    seed_y: Tensor | None = None,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """The arrays named above.

    Parameters
    ----------
    x, y : (n, r), (m, r), the common space.
    folds : :func:`default_coverage` of each fit with seeds held out.
    seed_x, seed_y : coordinates under the seeds alone, or None.
    seed : of the halves of the null, and of reference rows where there are too many.
    """
    import torch

    from relcore.ops import neighbors
    from relcore.ops.kernel_sums import kernel_sums

    x, y = neighbors.unit_rows(x), neighbors.unit_rows(y)
    views = [_Reference(v, seed + i) for i, v in enumerate((x, y))]
    scale = neighbour_scale(views)
    sigmas = np.append(_grid(scale), PAPER)
    order = np.argsort(sigmas, kind="stable")
    grid = torch.from_numpy(sigmas[order])
    out: dict[str, np.ndarray] = {
        "mismatch/sigma": sigmas[order],
        "mismatch/default": np.flatnonzero(order == _default_step(views, scale)),
        "mismatch/paper": np.flatnonzero(order == len(STEPS)),
    }
    at = int(out["mismatch/default"][0])
    whole = all(view.all for view in views)
    across = kernel_sums(x, y, grid) if whole else None
    for i, (side, v) in enumerate(zip(SIDES, (x, y), strict=True)):
        here, there = views[i], views[1 - i]
        if across is not None:
            cross = across[i] if i else across[0][:, :, 0]
        else:
            cross = kernel_sums(v, there.rows, grid)[0][:, :, 0]
        halves, _ = kernel_sums(v, here.rows, grid, parts=here.halves, own=here.own)
        cross = (cross / len(there.rows)).cpu().numpy()
        own = (halves.sum(2) / here.others[:, None]).cpu().numpy()
        out[f"mismatch/{side}/cross"], out[f"mismatch/{side}/own"] = cross, own
        mine = here.own >= 0
        out[f"mismatch/{side}/null"] = here.null(halves[mine], here.halves[here.own[mine]])
        out[f"mismatch/{side}/reference"] = np.array([len(here.rows)])
        out[f"mismatch/{side}/folds"] = np.array([f[i] for f in folds], dtype=np.float32).reshape(len(folds), len(v))
        flags = _ratio(cross[:, at], own[:, at]) < out[f"mismatch/{side}/null"][at] - ROUNDING
        out[f"mismatch/{side}/region"] = _components(v, flags, REACH * scale)
    if seed_x is not None:
        out["mismatch/seed/x"], out["mismatch/seed/y"] = default_coverage(seed_x, seed_y, seed=seed)
    return out


def default_coverage(x: Tensor, y: Tensor, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Coverage of both sides at the default sigma of this common space: float32 (n,), (m,)."""
    import torch

    from relcore.ops import neighbors
    from relcore.ops.kernel_sums import kernel_sums

    x, y = neighbors.unit_rows(x), neighbors.unit_rows(y)
    views = [_Reference(v, seed + i) for i, v in enumerate((x, y))]
    scale = neighbour_scale(views)
    grid = torch.tensor([_grid(scale)[_default_step(views, scale)]], dtype=torch.float64)
    out = []
    for v, here, there in ((x, *views), (y, *reversed(views))):
        cross = kernel_sums(v, there.rows, grid)[0][:, 0, 0] / len(there.rows)
        own = kernel_sums(v, here.rows, grid, own=here.own)[0][:, 0, 0] / here.others
        out.append(_ratio(cross.cpu().numpy(), own.cpu().numpy()).astype(np.float32))
    return out[0], out[1]


def neighbour_scale(views: Sequence[_Reference]) -> float:
    """Median angle to the 10th neighbour of the own side, geometric mean of both sides, radians."""
    from relcore.ops.kernel_sums import neighbour_angle

    angles = [max(SMALLEST, neighbour_angle(view.rows, NEIGHBOUR)) for view in views]
    return math.sqrt(angles[0] * angles[1])


def _grid(scale: float) -> np.ndarray:
    return scale * 2.0 ** (np.array(STEPS) / 8)


def _default_step(views: Sequence[_Reference], scale: float) -> int:
    """Position in the grid of the widest bandwidth, the scale at most, at which one half of a side does not cover the
    other so evenly that nothing stands out: the null is at most :data:`EVEN`. In many dimensions that is well below.

    Read on at most :data:`NULL_ROWS` rows a side.
    """
    import torch

    from relcore.ops.kernel_sums import kernel_sums

    steps = range(STEPS.index(0) + 1)
    grid = torch.from_numpy(_grid(scale)[steps.start : steps.stop])
    nulls = []
    for view in views:
        some = torch.linspace(0, len(view.rows) - 1, min(NULL_ROWS, len(view.rows)), device=view.rows.device)
        some = some.round().long()
        halves, _ = kernel_sums(view.rows[some], view.rows, grid, parts=view.halves, own=some)
        nulls.append(view.null(halves, view.halves[some]))
    lower = np.minimum(*nulls)
    return max((k for k in steps if lower[k] <= EVEN), default=0)


class _Reference:
    """The rows of a side that means run over, cut in two halves.

    ``rows`` (R, r); ``own`` int64 (n,): the place of each row of the side among them, -1 for none; ``others`` (n,):
    how many of them are not the row itself; ``halves`` (R, 2): which half.
    """

    def __init__(self, v: Tensor, seed: int) -> None:
        import torch

        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(v), generator=generator).to(v.device)
        self.all = len(v) <= REFERENCE
        kept = torch.arange(len(v), device=v.device) if self.all else order[:REFERENCE].sort().values
        self.rows = v[kept]
        self.own = torch.full((len(v),), -1, dtype=torch.int64, device=v.device)
        self.own[kept] = torch.arange(len(kept), device=v.device)
        self.others = (len(kept) - (self.own >= 0).long()).clamp_min(1).float()
        half = torch.rand(len(kept), generator=generator).argsort().argsort().to(v.device) % 2
        self.halves = torch.nn.functional.one_hot(half, 2).to(v)

    def null(self, sums: Tensor, which: Tensor) -> np.ndarray:
        """float32 (S,): the quantile of coverage of rows by the half that they are not in.

        ``sums`` (k, S, 2) over each half, of rows of the reference; ``which`` (k, 2): the half each is in.
        """
        sizes = self.halves.sum(0)
        if float(sizes.min()) < HALF:
            return np.zeros(sums.shape[1], dtype=np.float32)
        near = (sums * which[:, None]).sum(2) / ((sizes - 1) * which).sum(1)[:, None]
        far = (sums * (1 - which)[:, None]).sum(2) / (sizes * (1 - which)).sum(1)[:, None]
        ratio = _ratio(far.cpu().numpy(), near.cpu().numpy())
        with np.errstate(invalid="ignore"):
            return np.nan_to_num(np.nanquantile(ratio, NULL, axis=0)).astype(np.float32)


def _components(v: Tensor, flags: np.ndarray, reach: float) -> np.ndarray:
    """int32 (n,): the region of each flagged row, by size from 0; -1 for the others and for regions too small."""
    import torch
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    from relcore.ops import neighbors

    out = np.full(len(v), -1, dtype=np.int32)
    rows = np.flatnonzero(flags)
    if len(rows) < JUDGED:
        return out
    some = v[torch.from_numpy(rows).to(v.device)]
    scores, near = neighbors.topk_cosine(some, some, min(NEIGHBOUR + 1, len(rows)))
    close = torch.acos(scores.clamp(-1.0, 1.0)) <= reach
    heads = torch.arange(len(rows), device=v.device)[:, None].expand_as(near)[close]
    ends = heads.cpu().numpy(), near[close].cpu().numpy()
    links = coo_matrix((np.ones(len(ends[0]), dtype=bool), ends), shape=(len(rows), len(rows)))
    _, component = connected_components(links, directed=False)
    sizes = np.bincount(component)
    for number, c in enumerate(np.argsort(-sizes, kind="stable")):
        if sizes[c] < JUDGED:
            break
        out[rows[component == c]] = number
    return out


# --------------------------------------------------------------------------------------------------------- reading


def present(arrays: dict[str, np.ndarray]) -> bool:
    """Whether the run was analysed for mismatch."""
    return "mismatch/sigma" in arrays


def default_position(arrays: dict[str, np.ndarray]) -> int:
    return int(arrays["mismatch/default"][0])


def position_of(arrays: dict[str, np.ndarray], sigma: float | None = None) -> int:
    """The kept bandwidth nearest to this one, by ratio; None is the default.

    Raises
    ------
    InputError
        It is more than half a step beyond what is kept.
    """
    if sigma is None:
        return default_position(arrays)
    kept = arrays["mismatch/sigma"]
    if not kept[0] / 2 ** (1 / 16) <= sigma <= kept[-1] * 2 ** (1 / 16):
        raise InputError(f"sigma {sigma:g}: kept are {kept[0]:.3g} to {kept[-1]:.3g} radians; choose one of these.")
    return int(np.abs(np.log(kept / sigma)).argmin())


def coverage(arrays: dict[str, np.ndarray], side: str, i: int) -> np.ndarray:
    """Coverage of each row at bandwidth number i: float64 (n,); nan where neither side has anything in reach."""
    return _ratio(arrays[f"mismatch/{side}/cross"][:, i], arrays[f"mismatch/{side}/own"][:, i])


def raw(arrays: dict[str, np.ndarray], side: str, i: int) -> np.ndarray:
    """The paper's kernel sum of each row, as a mean: float64 (n,)."""
    return arrays[f"mismatch/{side}/cross"][:, i].astype(np.float64)


def flagged(arrays: dict[str, np.ndarray], side: str, i: int) -> np.ndarray:
    """Rows whose coverage is below the null's 1 % quantile: bool (n,)."""
    return coverage(arrays, side, i) < arrays[f"mismatch/{side}/null"][i] - ROUNDING


def _ratio(cross: np.ndarray, own: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(cross, dtype=np.float64) / np.asarray(own, dtype=np.float64)


def by_class(values: np.ndarray, flags: np.ndarray, labels: Sequence[str]) -> list[ClassRow]:
    """Each class with its median value (nan values left out) and share flagged, lowest median first."""
    names, codes = np.unique([str(label) or NONE for label in labels], return_inverse=True)
    out = []
    for code, name in enumerate(names):
        here = codes == code
        known = values[here][~np.isnan(values[here])]
        median = float(np.median(known)) if len(known) else math.nan
        judged = len(known) >= JUDGED and name != NONE
        out.append(ClassRow(str(name), int(here.sum()), median, float(flags[here].mean()), judged))
    return sorted(out, key=lambda row: (math.isnan(row.median), row.median))


def regions(arrays: dict[str, np.ndarray], side: str) -> list[Region]:
    """Regions of rows flagged at the default bandwidth, the largest first."""
    region = arrays[f"mismatch/{side}/region"]
    values = coverage(arrays, side, default_position(arrays))
    found = range(int(region.max(initial=-1)) + 1)
    return [Region(k, rows := np.flatnonzero(region == k), float(np.nanmedian(values[rows]))) for k in found]


def auroc(values: np.ndarray, is_missing: np.ndarray) -> float:
    """Probability that a row of the missing class is lower than another, ties counting half; nan values are left out.

    nan where one of the two groups is empty.
    """
    known = ~np.isnan(values)
    values, is_missing = np.asarray(values)[known], np.asarray(is_missing, dtype=bool)[known]
    positive, negative = int(is_missing.sum()), int((~is_missing).sum())
    if not positive or not negative:
        return math.nan
    _, place = np.unique(values, return_inverse=True)  # scipy.stats would take the server seconds to load
    theirs, mine = (np.bincount(place[group], minlength=place.max() + 1) for group in (~is_missing, is_missing))
    higher = negative - np.cumsum(theirs)
    return float((mine * (higher + theirs / 2)).sum() / (positive * negative))


# ------------------------------------------------------------------------------------------------------------ gate


def gate(
    record: dict,
    arrays: dict[str, np.ndarray],
    side: str,
    labels: Sequence[str] | None = None,
    other_labels: Sequence[str] | None = None,
) -> Gate:
    """What may be said of the rows of a side, at the default bandwidth.

    Parameters
    ----------
    record : of the run: ``health`` and ``verdict`` of :mod:`relcore.metrics.health`.
    labels : of the rows of the side; without two classes of :data:`JUDGED` rows, regions take their place.
    other_labels : of the rows of the other side: a class that is there too may be misaligned and not missing.
    """
    other = "y" if side == "x" else "x"
    here, there = LETTERS[side], LETTERS[other]
    trust, why = _trust(record)
    if trust == "red":
        return Gate("red", f"The alignment is too weak to say what {here} has that {there} lacks: {why}.")
    if not float(arrays[f"mismatch/{side}/null"][default_position(arrays)]) > 0:
        rows = len(arrays[f"mismatch/{side}/own"])
        return Gate("amber", f"{here} has {rows} rows, too few for a null: nothing is flagged.")
    found = _Found.of(arrays, side, labels, other_labels)
    share, lowest = found.share, found.lowest
    if share >= LITTLE:
        return Gate(
            "amber",
            f"The spaces overlap little, or are loosely aligned: {share:.0%} of the {found.rows:,} rows of {here} are "
            f"flagged, too many to say what {there} lacks; {why}.",
            lowest=lowest,
        )
    if trust == "green" and found.clear:
        listed = ", ".join(f"{p.name} ({p.rows:,} rows, coverage {p.median:.2f})" for p in found.clear)
        return Gate(
            "green",
            f"{here} has rows with no counterpart in {there}: {listed}. The lowest of the rest has {found.bound:.2f}; "
            f"{why}.",
            tuple(p.name for p in found.clear),
            lowest,
        )
    if suspects := [*found.suspects, *((p, "") for p in found.clear)]:
        p, reason = min(suspects, key=lambda s: s[0].high)
        return Gate(
            "amber",
            f"Lowest coverage, not conclusive: {p.name} of {here} ({p.rows:,} rows, coverage {p.median:.2f}{reason}); "
            f"{why}.",
            lowest=lowest,
        )
    what = "no class has half of its rows flagged" if _labelled(labels) else "no region of flagged rows is large enough"
    return Gate(
        trust,
        f"Nothing in {here} is seen to lack a counterpart in {there}: {what}, "
        f"{share:.1%} of {found.rows:,} rows are; {why}.",
        lowest=lowest,
    )


class _Found(NamedTuple):
    """Classes or regions of a side that are flagged: those clearly without a counterpart, and others with a reason.

    ``bound`` is the lowest coverage of the rest, or the null where there is no rest.
    """

    rows: int
    share: float
    lowest: str | None
    bound: float
    clear: list[_Part]
    suspects: list[tuple[_Part, str]]

    @classmethod
    def of(cls, arrays: dict, side: str, labels, other_labels) -> _Found:
        other, i = "y" if side == "x" else "x", default_position(arrays)
        values, flags = coverage(arrays, side, i), flagged(arrays, side, i)
        parts = _parts(arrays, side, values, labels)
        bound = min([p.high for p in parts if p.flagged < SHARE], default=float(arrays[f"mismatch/{side}/null"][i]))
        opposite, null = coverage(arrays, other, i), float(arrays[f"mismatch/{other}/null"][i])
        astray = float((opposite < null / 2).mean())
        both = _labelled(labels) and other_labels is not None
        there = {r.label: r for r in by_class(opposite, flagged(arrays, other, i), other_labels)} if both else {}
        clear, suspects = [], []
        for p in parts:
            if p.flagged < SHARE:
                continue
            twin = there.get(p.name)
            known = both and (twin is None or not twin.judged)  # the other side is known not to have it
            if p.high > bound - GAP:
                suspects.append((p, f", {bound - p.high:.2f} under the rest where {GAP} is needed"))
            elif twin is not None and twin.judged and twin.flagged >= MET:
                suspects.append((p, "; it is on both sides and flagged on both: misaligned rather than missing"))
            elif not known and p.high > bound / 2:
                why = "it is on both sides" if both else f"what {LETTERS[other]} holds is not known"
                suspects.append((p, f"; {why}, and {bound / 2:.2f} would be needed to call it unmet"))
            elif not both and astray >= ASTRAY:
                text = f"{astray:.1%} of {LETTERS[other]} meet nothing either: misaligned rather than missing"
                suspects.append((p, f"; {text}"))
            else:
                clear.append(p)
        lowest = min(parts, key=lambda p: p.high).name if parts else None
        return cls(len(values), float(flags.mean()), lowest, bound, clear, suspects)


class _Part(NamedTuple):
    """A class or region: ``high`` is its highest median coverage over the fit and the fits with seeds held out."""

    name: str
    rows: int
    median: float
    high: float
    flagged: float


def _trust(record: dict) -> tuple[str, str]:
    """The best level that the run's own health allows, and a clause that says why."""
    health, verdict = record["health"], record["verdict"]
    held = health["held_out"]
    if verdict["level"] in ("chance", "collapsed"):
        return "red", verdict["text"].rstrip(".")
    if held is None:
        if verdict["level"] == "aligned":
            return "amber", "no seeds were held out, and agreement of restarts alone decides nothing"
        return "red", f"no seeds were held out to check it ({health['held_out_skipped'] or 'no seeds'})"
    found = f"{held['count']} held-out seeds are found at a mean reciprocal rank of {held['mrr']:.2f}"
    if held["mrr"] < QUALITY:
        return "red", f"{found}, {QUALITY} is needed"
    return "green", found


def _labelled(labels: Sequence[str] | None) -> bool:
    if labels is None:
        return False
    names, counts = np.unique([str(label) for label in labels], return_counts=True)
    return int(((counts >= JUDGED) & (names != "")).sum()) > 1


def _parts(arrays: dict, side: str, values: np.ndarray, labels: Sequence[str] | None) -> list[_Part]:
    """The judged classes; without labels the regions that are large enough."""
    folds = arrays[f"mismatch/{side}/folds"]
    flags = flagged(arrays, side, default_position(arrays))

    def high(rows: np.ndarray, median: float) -> float:
        return max([median, *(float(np.nanmedian(fold[rows])) for fold in folds)])

    if _labelled(labels):
        names = np.array([str(label) or NONE for label in labels])
        return [
            _Part(row.label, row.rows, row.median, high(names == row.label, row.median), row.flagged)
            for row in by_class(values, flags, labels)
            if row.judged
        ]
    least = max(JUDGED, LEAST * len(values))
    return [
        _Part(f"region {r.number + 1}", len(r.rows), r.median, high(r.rows, r.median), 1.0)
        for r in regions(arrays, side)
        if len(r.rows) >= least
    ]


def seed_disagrees(arrays: dict[str, np.ndarray], side: str, labels: Sequence[str] | None) -> tuple[str, str] | None:
    """The lowest judged class by the run and by the seeds alone, where they differ; None where they do not."""
    key = f"mismatch/seed/{side}"
    if key not in arrays or not _labelled(labels):
        return None
    lowest = []
    for values in (coverage(arrays, side, default_position(arrays)), arrays[key].astype(np.float64)):
        judged = [row.label for row in by_class(values, np.zeros(len(values), dtype=bool), labels) if row.judged]
        lowest.append(judged[0])
    return None if lowest[0] == lowest[1] else (lowest[0], lowest[1])


def summary(
    record: dict,
    arrays: dict[str, np.ndarray],
    labels: dict[str, Sequence[str] | None],
    i: int,
    missing: str | None = None,
) -> dict:
    """Everything in plain numbers, at bandwidth number i, for JSON: see ``relcore mismatch``. nan becomes None."""
    out: dict = {"gate": {}, "sides": {}, "classes": [], "regions": [], "lowest": [], "missing": missing, "auroc": None}
    for side in SIDES:
        values, plain, flags = coverage(arrays, side, i), raw(arrays, side, i), flagged(arrays, side, i)
        column = labels[side]
        differ = seed_disagrees(arrays, side, column)
        other = labels["y" if side == "x" else "x"]
        out["gate"][side] = gate(record, arrays, side, column, other)._asdict() | {"seeds_alone": differ and differ[1]}
        known = values[~np.isnan(values)]
        out["sides"][side] = {
            "rows": len(values),
            "median": float(np.median(known)) if len(known) else None,
            "flagged": float(flags.mean()),
            "null": float(arrays[f"mismatch/{side}/null"][i]),
            "reference": int(arrays[f"mismatch/{side}/reference"][0]),
        }
        if column is not None:
            sums = {row.label: row.median for row in by_class(plain, flags, column)}
            for row in by_class(values, flags, column):
                out["classes"].append({"side": side} | row._asdict() | {"median_raw": sums[row.label]})
        for region in regions(arrays, side):
            number, count = region.number + 1, len(region.rows)
            out["regions"].append({"side": side, "number": number, "rows": count, "median": region.median})
        for row in np.argsort(values, kind="stable")[:LISTED]:
            figures = {"coverage": float(values[row]), "raw": float(plain[row])}
            out["lowest"].append({"side": side, "row": int(row)} | figures)
        if missing is not None and column is not None and missing in column:
            mine = np.array([label == missing for label in column])
            found = {name: auroc(v, mine) for name, v in (("coverage", values), ("raw", plain))}
            out["auroc"] = (out["auroc"] or {}) | {side: found | {"rows": int(mine.sum())}}
    return _without_nan(out)


def _without_nan(value):
    if isinstance(value, dict):
        return {k: _without_nan(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(v) for v in value]
    return None if isinstance(value, float) and math.isnan(value) else value
