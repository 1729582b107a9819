"""Did it work? Checks that need no truth, and a verdict in words.

No single figure tells. A loss does not: that of anchor optimisation is lowest when it has collapsed. Nor do mutual
nearest neighbours: a self-taught alignment can agree with itself and be wrong. So ``aligned`` rests on seeds that a
fit did not see, and only on those fits that end where the full one does, because a lucky fit with fewer seeds says
nothing about a full run that is stuck.

How the thresholds were found: 208 runs on 13 pairs of real embeddings (words, sentences, pictures, molecules, emoji;
first 700 rows, centred, unit norm, 300 anchors, seeds held out in 3 folds). 156 are alternations from the seeds' map
or from a random start with 6, 10 and 15 seeds, 2 draws; 52 are the seed baseline, Procrustes and the descent (40
steps; and its form without hub correction, which collapses) with 15 seeds. Runs by their true MRR at 10, mean of both
directions; columns are 5 %, 50 % and 95 % quantiles:

==================  ====  ==============  ==============  ==============  ==============  ==============
true MRR            runs  held-out MRR    best agreement  mutual rate     seeds' MRR      distinct
==================  ====  ==============  ==============  ==============  ==============  ==============
found, .5 or more     51  .08 .53 1.0     .09 .90 1.0     .48 .81 .99     .52 .93 1.0     .59 .85 .99
in part, .1 to .5     27  .04 .14 .38     .03 .09 .39     .20 .38 .56     .26 .78 .99     .36 .52 .64
failed, under .1     117  .00 .01 .10     .01 .03 .40     .06 .32 .56     .03 .55 1.0     .22 .44 .65
collapsed             13  .00 .00 .01     .00 .01 .24     .01 .02 .05     .00 .05 .45     .01 .03 .09
==================  ====  ==============  ==============  ==============  ==============  ==============

Verdicts: of the found, 34 aligned and 17 unclear; in part, 1 aligned (true MRR .47), 24 unclear, 2 chance; failed, 0
aligned, 60 unclear, 56 chance, 1 collapsed; collapsed, 13 collapsed. Failed runs did reach a held-out MRR of .49 by
lucky folds (MNIST, random start, true MRR .03), and 56 % mutual neighbours. The thresholds were set on these very runs,
so the counts flatter them; for 156 of the runs chance was the mean of two random turns, not the middle of three.

Without held-out seeds a search over many restarts can still speak for itself (``Alignment.confidence``), by two kinds
of evidence that no label enters:

- *coordinates left out*: rows matched by the leading axes alone also agree in all other coordinates, above what their
  neighbourhoods have in common. Only sides with common items can show that.
- *a summit of its own*: the two clouds fill each other (``fit``), no different map comes near (``margin``), several
  restarts ended there (``votes``), and mutual neighbours are more than a turn by chance makes.

How those thresholds were found: 142 runs of HGA without seeds on 2,000 rows or fewer. Right: networks trained on MNIST,
Fashion-MNIST and digits (shallow, deep, collapsed; one side without a class; the same inputs, or none in common),
planted clusters. Hard: three classes missing on one side, sentences, words of two languages, molecules, pictures of
objects, emoji, right where precision@1 passed .35 or the classes present were found. Unrelated: networks for different
data, one side with shuffled columns or a Gaussian of its covariance, sentences beside words; and ten random clusters
beside ten others, whose shapes truly are nearly the same. Smallest, middle and largest value:

====================  ====  =============  ==============  =========  =============  ============  ===================
spaces                runs  fit            margin          votes      mutual/chance  left out, z   verdict
====================  ====  =============  ==============  =========  =============  ============  ===================
right, same inputs      21  .77 .87 1.0    .05 .14 .27     6  7  9    4.3 5.8 7.8    22  46  133   21 aligned
right, none in common   57  .62 .83 .99    .04 .13 1.3     2  7  15   1.6 2.4 14     -1  5  8      51 aligned, 6 unclear
hard, right             12  .32 .68 1.0    -.1 .09 2.2     1  4  11   3.3 5.1 7.1    16  48  274   12 aligned
hard, wrong             15  .27 .41 .55    -.2 .00 .08     1  1  3    2.1 2.5 2.9    -2  0  5      13 unclear, 2 chance
unrelated               34  .08 .44 .64    -.4 -.01 .10    1  2  15   .6 1.1 2.0     -3  0  2      32 chance, 2 unclear
unrelated clusters       3  .64 .66 .67    -.02 .02 .05    3  4  4    7.4 7.8 8.5    0  2  3       3 unclear
====================  ====  =============  ==============  =========  =============  ============  ===================

Four more runs of unrelated clusters had a fit of .62 to .73 and a margin of .03 at most. The thresholds were set on
these very runs, after several others had been tried on them, so the counts flatter them. Verdicts in the table were
worked out from recorded figures, most of them of runs before ``stirs`` was added to HGA. A lower margin is no proof of
a mistake: the rival may be right as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import gammaincc
from torch import Tensor

from relcore.metrics import hubness
from relcore.ops import neighbors
from relcore.space import Pairs

MIN_SEEDS = 6  # with fewer, two seeds a fold decide nothing
K = 10
AGREEMENT_ROWS = 2000  # agreement between two fits is read on at most so many x rows
CHANCE_DRAWS = 3  # the middle one counts: a draw can hit the right signs of the leading axes

# thresholds of the verdict; the table above says where they come from
ALIGNED_MRR = 0.4  # of held-out seeds, and of the seeds themselves
ALIGNED_COUNT = 4  # held-out seeds that must speak for the full fit
LUCK = 1e-3  # ranks this good come by luck once in a thousand
AGREES = 0.3  # a fit without some seeds speaks for the full one when so many nearest neighbours are the same
CONSISTENT = 0.4  # mutual neighbours: nearly all good runs have more, most wrong ones less
FEW = 0.5  # of the mutual neighbours expected by chance
LEFT_OUT, LEFT_OUT_Z = 0.05, 10.0  # agreement in coordinates left out: cosine above chance, and its standard errors
FILLED, HALF_FILLED = 0.76, 0.6  # fit: unrelated spaces reach .64, clusters laid on other clusters .73
SEPARATE, FAR = 0.04, 0.1  # margin, in log score, wanted with a good fit and with half a one
VOTES = 3  # restarts that must have ended in the same place
MORE, LITTLE = 1.4, 2.2  # mutual neighbours, in those of chance: wanted with a fit; no sign without it
COLLAPSED, POINT = 0.12, 0.03  # share of rows that are anybody's nearest; below the second whatever chance is


@dataclass(frozen=True, eq=False)
class Fold:
    """What one fit without a part of the seeds says.

    Attributes
    ----------
    ranks : int64 (k, 2), rank of each held-out partner from x to y and from y to x, from 1.
    agreement : share of x rows whose nearest y row is the one of the full fit.
    """

    ranks: np.ndarray
    agreement: float


@dataclass(frozen=True)
class Verdict:
    """``level`` is ``aligned``, ``unclear``, ``chance`` or ``collapsed``; ``text`` says why, with figures."""

    level: str
    text: str


def fold_rows(n_seeds: int, folds: int, seed: int) -> list[np.ndarray]:
    """Positions 0 to n_seeds - 1 in ``folds`` random parts of nearly equal size, none empty, each sorted.

    Raises
    ------
    ValueError
        Fewer than two folds or more folds than seeds.
    """
    if not 2 <= folds <= n_seeds:
        raise ValueError(f"{n_seeds} seeds cannot be split in {folds} folds; wanted 2 to {n_seeds}.")
    order = np.random.default_rng(seed).permutation(n_seeds)
    return [np.sort(part) for part in np.array_split(order, folds)]


def check_fold(fold_x: Tensor, fold_y: Tensor, held: Pairs, x: Tensor, y: Tensor, *, block: int | None = None) -> Fold:
    """Rank the held-out partners in a fit without them, and compare that fit with the full one.

    Parameters
    ----------
    fold_x, fold_y : (n, r), (m, r), the common space of the fit without ``held``.
    x, y : (n, s), (m, s), the common space of the full fit.
    """
    some = torch.linspace(0, len(x) - 1, min(AGREEMENT_ROWS, len(x))).round().long()
    _, there = neighbors.topk_cosine(fold_x[some], fold_y, 1, block=block)
    _, here = neighbors.topk_cosine(x[some], y, 1, block=block)
    return Fold(_ranks(fold_x, fold_y, held, block), float((there == here).double().mean()))


def held_out_summary(ranks: np.ndarray, n: int, m: int) -> dict[str, Any]:
    """Figures of partner ranks, int (k, 2), x to y among m rows and y to x among n rows.

    Returns
    -------
    - ``count`` : k.
    - ``mrr``, ``recall@1``, ``recall@10`` : means of both directions; MRR counts a rank beyond 10 as 0.
    - ``median_rank`` : the larger of the two directions.
    - ``near`` : 10, less where 10 rows are more than a twentieth of a side; ``hits`` of the k partners are within it,
      in the direction with fewer; ``expected`` by luck.
    - ``p_luck`` : probability of ranks this good when every rank is equally likely: Fisher's combined test,
      ``-2 sum log(rank / m)`` against chi-squared with 2 k degrees of freedom (conservative for whole ranks); the
      larger of the two directions.
    """
    ranks = np.asarray(ranks, dtype=np.int64).reshape(-1, 2)
    count, sides = len(ranks), np.array([m, n])
    near = min(K, max(1, min(n, m) // 20))
    hits = (ranks <= near).sum(0)
    fewer = int(np.argmin(hits))
    return {
        "count": count,
        "mrr": float(np.where(ranks <= K, 1 / ranks, 0.0).mean()),
        "recall@1": float((ranks <= 1).mean()),
        "recall@10": float((ranks <= K).mean()),
        "median_rank": float(np.median(ranks, axis=0).max()),
        "near": near,
        "hits": int(hits[fewer]),
        "expected": float(count * near / sides[fewer]),
        "p_luck": float(gammaincc(count, -np.log(ranks / sides).sum(0)).max()),
    }


def measure(
    x: Tensor,
    y: Tensor,
    folds: Sequence[Fold] = (),
    *,
    seeds: Pairs | None = None,
    skipped: str = "",
    confidence: dict[str, float] | None = None,
    block: int | None = None,
) -> dict[str, Any]:
    """Label-free checks of an alignment; plain numbers, ready for JSON.

    Parameters
    ----------
    x, y : (n, r), (m, r), the common space.
    folds : what :func:`check_fold` said of each fit with seeds held out; empty when there was none.
    seeds : the seeds of the full fit.
    skipped : why no seeds were held out.
    confidence : what the method says of itself (``Alignment.confidence``), or None.

    Returns
    -------
    - ``n``, ``m`` : rows of the two sides; shares are of the smaller one.
    - ``mutual``, ``mutual_rate`` : rows that are each other's nearest. ``mutual_chance`` : their share when each side
      lies on its principal axes with signs drawn at random, the middle of three draws.
    - ``distinct`` : share of targets that are anybody's nearest, both ways.
    - ``n10_skewness`` : of N_10, both ways.
    - ``dimension`` : effective dimension of each side.
    - ``seeds``, ``held_out`` : :func:`held_out_summary` of the seeds in this fit, and of all held-out ones, with the
      ``agreement`` of each fold; ``confirmed`` : of the folds that agree with this fit. None where there are none.
    - ``held_out_skipped`` : why not.
    - ``confidence`` : as given.

    Raises
    ------
    ValueError
        NaN or infinite coordinates, or a side without rows.
    """
    n, m = len(x), len(y)
    smaller = min(n, m)
    x, y = neighbors.unit_rows(x), neighbors.unit_rows(y)
    mutual, distinct_y, distinct_x = _nearest_figures(x, y, block)
    chance = [_nearest_figures(*_turned(x, y, draw), block)[0] for draw in range(CHANCE_DRAWS)]
    out: dict[str, Any] = {
        "n": n,
        "m": m,
        "mutual": mutual,
        "mutual_rate": mutual / smaller,
        "mutual_chance": float(np.median(chance)) / smaller,
        "distinct": {"x_to_y": distinct_y / smaller, "y_to_x": distinct_x / smaller},
        "n10_skewness": {way: f["skewness"] for way, f in hubness.hubness(x, y, K, block=block).items()},
        "dimension": {"x": effective_dimension(x), "y": effective_dimension(y)},
        "seeds": None,
        "held_out": None,
        "confirmed": None,
        "held_out_skipped": skipped,
        "confidence": confidence,
    }
    if seeds is not None and len(seeds):
        out["seeds"] = held_out_summary(_ranks(x, y, seeds, block), n, m)
    if folds:
        out["held_out"] = held_out_summary(np.concatenate([f.ranks for f in folds]), n, m)
        out["held_out"]["agreement"] = [f.agreement for f in folds]
        alike = [f.ranks for f in folds if f.agreement >= AGREES]
        if alike:
            out["confirmed"] = held_out_summary(np.concatenate(alike), n, m)
    return out


def verdict(health: dict[str, Any]) -> Verdict:
    """What :func:`measure` found, in words.

    ``aligned`` is said only when held-out seeds confirm it: losses and mutual neighbours can look fine on a wrong
    alignment. ``chance`` is said only when held-out seeds, or far too few mutual neighbours, speak for it.
    """
    held, confirmed, seeds = health["held_out"], health["confirmed"], health["seeds"]
    mutual = f"mutual neighbours {_percent(health['mutual_rate'])}, chance {_percent(health['mutual_chance'])}"
    few = health["mutual_rate"] < FEW * health["mutual_chance"]
    if _good(confirmed):
        if seeds is not None and seeds["mrr"] < ALIGNED_MRR:
            return Verdict(
                "unclear",
                f"unclear: {_found(confirmed)}, but the run does not find its own seeds (MRR {seeds['mrr']:.2f}); "
                f"{mutual}.",
            )
        return Verdict("aligned", f"looks aligned: {_found(confirmed)}; {mutual}.")
    way, distinct = min(health["distinct"].items(), key=lambda item: item[1])
    if distinct < POINT or few and distinct < COLLAPSED:
        return Verdict(
            "collapsed",
            f"looks collapsed: {_percent(distinct)} of the rows of {way[-1]} are the nearest of all others; {mutual}.",
        )
    if held is None and health.get("confidence") is not None:
        return _by_itself(health, mutual, few)
    if held is None:
        why = health["held_out_skipped"] or f"{MIN_SEEDS} seeds are needed"
        if few:
            return Verdict("chance", f"looks like chance: {mutual}; no seeds were held out ({why}).")
        return Verdict("unclear", f"unclear: {mutual}; no seeds were held out to check the run ({why}).")
    consistent = health["mutual_rate"] >= CONSISTENT
    if held["p_luck"] > LUCK and not (consistent and seeds is not None and seeds["p_luck"] <= LUCK):
        return Verdict("chance", f"looks like chance: {_found(held)}; {mutual}.")
    if _good(held):
        return Verdict(
            "unclear",
            f"unclear: without some of the seeds the others lead to them ({_found(held)}), but the full run ended "
            f"elsewhere, at most {_percent(max(held['agreement']))} of the neighbours alike; try another start.",
        )
    if consistent:
        return Verdict("unclear", f"unclear: {mutual}, but {_found(held)}; more seeds would tell.")
    return Verdict("unclear", f"unclear: better than luck, not good: {_found(held)}; {mutual}; try more seeds.")


def _by_itself(health: dict[str, Any], mutual: str, few: bool) -> Verdict:
    """A run without held-out seeds, by what its own restarts say: no proof, and said so."""
    c = health["confidence"]
    fit, margin, votes = c.get("fit", 0.0), c.get("margin"), c.get("votes", 0.0)
    restarts = f"{votes:.0f} of {c.get('restarts', 0):.0f} restarts agree"
    rival = "no different map was found" if margin is None else f"the next different map scores {np.exp(-margin):.0%}"
    more = health["mutual_rate"] >= MORE * health["mutual_chance"]
    if c.get("left_out", 0.0) >= LEFT_OUT and c.get("left_out_z", 0.0) >= LEFT_OUT_Z and more:
        return Verdict(
            "aligned",
            f"looks aligned, without seeds: coordinates left out of the search agree (cosine {c['left_out']:.2f} above "
            f"chance, {c['left_out_z']:.0f} standard errors); {restarts}; {mutual}.",
        )
    if more and margin is not None and votes >= VOTES:
        if fit >= FILLED and margin >= SEPARATE or fit >= HALF_FILLED and margin >= FAR:
            return Verdict("aligned", f"looks aligned, without seeds: fit {fit:.2f}, {rival}; {restarts}; {mutual}.")
    if more and fit >= FILLED and margin is not None and margin < SEPARATE:
        return Verdict(
            "unclear",
            f"ambiguous: {rival} of this one; {restarts}; {mutual}; a few known pairs would tell them apart.",
        )
    weak = f"fit {fit:.2f}, {FILLED} wanted; {rival}; {restarts}; {mutual}"
    little = health["mutual_rate"] < LITTLE * health["mutual_chance"]
    if few or fit < HALF_FILLED and c.get("left_out_z", 0.0) < LEFT_OUT_Z and little:
        return Verdict("chance", f"looks like chance: {weak}; some known pairs may help.")
    return Verdict("unclear", f"unclear, not to be relied on without known pairs to check it: {weak}.")


def _good(held: dict[str, Any] | None) -> bool:
    return held is not None and held["count"] >= ALIGNED_COUNT and held["mrr"] >= ALIGNED_MRR and held["p_luck"] < LUCK


def _found(held: dict[str, Any]) -> str:
    return (
        f"{held['hits']} of {held['count']} held-out partners among the {held['near']} nearest "
        f"({held['expected']:.2g} by luck), MRR {held['mrr']:.2f}"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else "100 %"


def effective_dimension(v: Tensor) -> float:
    """Participation ratio of the covariance spectrum of the rows (n, r): (sum l)^2 / sum l^2; 0 if all are equal."""
    v = v.double() - v.double().mean(0)
    covariance = v.T @ v
    squares = (covariance**2).sum()
    return float(covariance.trace() ** 2 / squares) if squares > 0 else 0.0


def _ranks(x: Tensor, y: Tensor, pairs: Pairs, block: int | None) -> np.ndarray:
    """int64 (k, 2): rank of each partner from x to y and from y to x."""
    rows_x, rows_y = torch.from_numpy(pairs.x.copy()), torch.from_numpy(pairs.y.copy())
    there = neighbors.partner_rank(x, y, rows_x, rows_y, block=block)
    back = neighbors.partner_rank(y, x, rows_y, rows_x, block=block)
    return torch.stack([there, back], 1).cpu().numpy()


def _nearest_figures(x: Tensor, y: Tensor, block: int | None) -> tuple[int, int, int]:
    """Mutual nearest neighbours, and how many different rows of y and of x are anybody's nearest."""
    to_y, to_x = neighbors.nearest_both(x, y, block=block)
    mutual = int((to_x[to_y] == torch.arange(len(x), device=x.device)).sum())
    return mutual, len(to_y.unique()), len(to_x.unique())


def _turned(x: Tensor, y: Tensor, draw: int) -> tuple[Tensor, Tensor]:
    """Both sides about their means on their own principal axes, by variance, each axis of y with a random sign.

    A wrong alignment that lays one shape on the other as well as any. The means, the part of a common cone, stay on
    each other as one more axis; axes on which a side has nothing are left out, they change no product.
    """
    sides, keep = [], None
    for v in (x, y):
        mean = v.double().mean(0)
        centred = v - mean.float()
        values, axes = torch.linalg.eigh((centred.T @ centred).double())
        filled = values.flip(0) > 1e-10 * values.max()
        keep = filled if keep is None else keep & filled
        sides.append((centred, axes.flip(1).float(), mean.norm().float().expand(len(v), 1)))
    signs = torch.randint(0, 2, (int(keep.sum()),), generator=torch.Generator().manual_seed(draw)) * 2.0 - 1
    (x, axes_x, mean_x), (y, axes_y, mean_y) = sides
    return torch.cat([x @ axes_x[:, keep], mean_x], 1), torch.cat([y @ (axes_y[:, keep] * signs.to(y)), mean_y], 1)
