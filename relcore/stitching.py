"""Stitching a classifier from one space to another: every ordered pair, by several descriptions of rows, beside
references.

    question = Stitcher(spaces, Settings(ways=("random+cosine", "multi+wip")))
    for result in question.steps():
        ...                             # a dict of figures: who learned, who was read, how rows were described

A classifier is trained on rows of one space (the decoder's side) and read on rows of another (the encoder's), both
described in common terms: by a run's alignment, or by relative representations whose anchors all spaces share. Items
are split once: no item is learned from in one space and tested in another, and no mean, covariance or anchor is taken
of a test row. A run is the exception: it was fitted before, on all rows, without labels, and its seeds are the anchors
of the reference by seeds only. How many of the rows tested are seeds is told; partners are not looked for of them.

Source: Svendsen et al., arXiv 2605.30596, Algorithm 1 and section 7; Moschella et al., ICLR 2023; translation by all
pairs: Maiorca et al., arXiv 2311.00664.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from itertools import permutations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from relcore import seeds as choosing
from relcore.errors import InputError
from relcore.formats.base import shown
from relcore.methods import costs
from relcore.methods.anchored import KERNEL_SEEDS
from relcore.metrics import stitching as parts
from relcore.projection import centred_unit
from relcore.space import NO_LABEL, Pairs, Spaces

if TYPE_CHECKING:
    from torch import Tensor

    from relcore.formats.linear_head import LinearHead
    from relcore.ops.similarity import KernelLeftOut, LeftOut

HEAD, NO_CLASSIFIER = "head", "none"
CLASSIFIERS = parts.CLASSIFIERS | {
    HEAD: "a linear head of yours",
    NO_CLASSIFIER: "none: how alike partners are described",
}
REFERENCES = {
    "absolute": "absolute coordinates",
    "seeds": "seeds only",
    "full": "all pairs as anchors",
    "translated": "all pairs, least squares",
}
RUN = "run"
ANCHORS = {
    "random": "random rows",
    "medoids": "k-means medoids",
    "farthest": "farthest points",
    "first": "first rows",
    "stratified": "rows of every class",
    "kmeans": "k-means averages",
    "single": "PARAM, learned on one space",
    "multi": "PARAM, learned on several",
    "cca": "generalised CCA",
}
ROWS = ("random", "medoids", "farthest", "first", "stratified")  # anchors that are rows themselves
ON_DECODER = (*ROWS, "kmeans", "single")  # anchors found on the decoder's side alone
SIMILARITIES = {
    "cosine": "cosine",
    "centred": "centred cosine",
    "wip": "whitened inner product",
    "whitened": "whitened cosine",
    "mahalanobis": "whitened distance",
    "euclidean": "distance",
    "gamma": "γ-orthonormalised product",
    "kernel": "kernel whitened product",
}
SHRUNK = ("wip", "whitened", "mahalanobis", "gamma", "kernel")
GAMMA = 1.5  # how far the spectrum is evened out by gamma: AnchorDOT's profile
USUAL = ("random+cosine", "random+wip", "kmeans+wip", "cca+wip", "cca+kernel", "single+wip", "multi+wip")
SHRINKAGES = ("agreed", "ledoit_wolf", "fixed")
FULL_ANCHORS = 1000  # of the reference by all pairs
JUDGED = 2000  # test items that retrieval is measured on, at most
STEPS = 150  # of learned anchors
FIGURES = ("accuracy", "weighted_f1", "mae", "own_accuracy", "own_weighted_f1", "majority")
ALIGNED = ("mrr", "r@1", "r@5", "nmse", "nmse_scaled", "rr_std", "effective_rank", "cka")


class Way(NamedTuple):
    """A relative representation: how anchors are found, and how rows are compared to them. ``random+cosine``."""

    anchors: str
    similarity: str

    @classmethod
    def parse(cls, text: str) -> Way:
        """
        Raises
        ------
        InputError
            It is no such name.
        """
        anchors, _, similarity = text.partition("+")
        if anchors not in ANCHORS or similarity not in SIMILARITIES:
            raise InputError(
                f"{text!r} is no description of rows; join one of {', '.join(ANCHORS)} and one of "
                f"{', '.join(SIMILARITIES)} with a +, as in random+cosine."
            )
        return cls(anchors, similarity)

    @property
    def title(self) -> str:
        return f"{ANCHORS[self.anchors]} + {SIMILARITIES[self.similarity]}"


def title(representation: str, aligned: Aligned | None = None) -> str:
    """What a :class:`Unit` calls its description of rows, for people."""
    if representation == RUN:
        return "the run" if aligned is None else aligned.title
    return REFERENCES.get(representation) or Way.parse(representation).title


@dataclass(frozen=True)
class Settings:
    """What is asked. Lists are tuples of names.

    Attributes
    ----------
    classifier : one of :data:`CLASSIFIERS`. With ``none`` labels have no part, and what is read is how alike the same
        items are described in two spaces.
    test : share of each class that is tested and never learned from.
    seed, draws : random seed of the first draw (split, support, anchors, classifier), and how many draws.
    ordered : labels are numbers and their distance counts (mean absolute error).
    ways : relative representations, as :class:`Way` names them.
    references : of :data:`REFERENCES`.
    anchors, support : anchors of a way; parallel training items that means, covariances and mixtures are taken of, at
        most.
    seeds : pairs of the reference by seeds only, where no run brings its own.
    shrinkage, shrinkage_amount : of whitened products: agreed between the spaces that train, each space's own by
        Ledoit and Wolf, or fixed.
    hold_out : the encoder's space has no part in finding anchors and shrinkage (three spaces or more).
    standardise : every feature of each space gets mean 0 and variance 1 over the support.
    """

    classifier: str = "logistic"
    test: float = 0.25
    seed: int = 0
    draws: int = 1
    ordered: bool = False
    ways: tuple[str, ...] = ()
    references: tuple[str, ...] = tuple(REFERENCES)
    anchors: int = 128
    support: int = 2000
    seeds: int = 15
    shrinkage: str = "agreed"
    shrinkage_amount: float = 0.01
    hold_out: bool = False
    standardise: bool = False

    def __post_init__(self):
        object.__setattr__(self, "ways", tuple(self.ways))
        object.__setattr__(self, "references", tuple(self.references))
        for name, known in (("classifier", CLASSIFIERS), ("shrinkage", SHRINKAGES)):
            if getattr(self, name) not in known:
                raise InputError(f"{name} is {getattr(self, name)!r}, wanted one of {', '.join(known)}.")
        for name, low, high in (
            ("test", 0.01, 0.99),
            ("draws", 1, 100),
            ("anchors", 1, 10_000),
            ("support", 4, 100_000),
            ("seeds", 1, 100_000),
            ("shrinkage_amount", 0.0, 0.99),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
                raise InputError(f"{name} is {value!r}, wanted {low} to {high}.")
        for text in self.ways:
            Way.parse(text)
        for text in self.references:
            if text not in REFERENCES:
                raise InputError(f"{text!r} is no reference; choose of {', '.join(REFERENCES)}.")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> Settings:
        """Of a newer version's record what is known here."""
        known = {f.name for f in fields(cls)}
        return cls(**{k: v for k, v in record.items() if k in known})


@dataclass(frozen=True, eq=False)
class Aligned:
    """What a run made of two of the spaces.

    Attributes
    ----------
    first, second : which of the spaces are its x and y.
    x, y : float32 (n, r), (m, r), their rows in common coordinates, compared by cosine.
    seeds : the pairs it was given.
    """

    first: int
    second: int
    x: np.ndarray
    y: np.ndarray
    seeds: Pairs
    title: str = "the run"


class Unit(NamedTuple):
    """One classifier read on one space: ``representation`` of the rows, decoder's and encoder's space, draw."""

    representation: str
    decoder: int
    encoder: int
    draw: int


@dataclass(eq=False)
class Described:
    """Rows of the decoder's and the encoder's space in common terms: ``of(space, row positions) -> (n, r)``.

    ``native``: the terms are the decoder's own coordinates. ``judged``: it makes sense to look for partners in them.
    ``found`` : seconds that finding them took, of what no other description had found. ``notes`` in words.
    """

    key: tuple
    of: Callable[[int, np.ndarray], np.ndarray]
    native: bool = False
    judged: bool = True
    found: float = 0.0
    notes: tuple[str, ...] = ()


class Stitcher:
    """All results of a question, one by one.

    Parameters
    ----------
    spaces : two or more. Where their common items are not known, only a run and absolute coordinates can be read.
    labels : for each space a label a row (``""``: none), or None; by default those of the spaces. A space without
        labels takes those of its items from the first space that has them.
    aligned : a run over two of the spaces.
    head : for ``classifier="head"``.

    Attributes
    ----------
    classes : every label and class there is, in order: predictions are positions in it.
    notes : what must be known of it all.
    predictions : for each :class:`Unit` done, int32 positions of classes for its encoder's test rows.

    Raises
    ------
    InputError
        What is asked cannot be had of these data; says why and what to do.
    """

    def __init__(
        self,
        spaces: Spaces,
        settings: Settings,
        *,
        labels: list[np.ndarray | None] | None = None,
        aligned: Aligned | None = None,
        head: LinearHead | None = None,
    ) -> None:
        self.spaces, self.settings, self.aligned = spaces, settings, aligned
        self.notes: list[str] = []
        given = [s.labels for s in spaces.spaces] if labels is None else labels
        if settings.classifier == NO_CLASSIFIER:
            self.labels = [np.full(len(s), NO_LABEL).astype(str) for s in spaces.spaces]
        else:
            self.labels = [_carried(i, spaces, given, self.notes) for i in range(len(spaces))]
        if spaces.rows is None and settings.classifier not in (HEAD, NO_CLASSIFIER):
            self.notes.append(
                "it is not known which rows are the same items in all spaces: one may be learned from in one space and "
                "tested in another"
            )
        known = np.concatenate([v[v != NO_LABEL] for v in self.labels])
        self.classes = parts.in_order(known)
        self.head = None if head is None else head.named(self.classes)
        if self.head is not None:
            self.classes = [*self.classes, *(c for c in self.head.classes if c not in set(self.classes))]
        self._check(known)
        self.predictions: dict[Unit, np.ndarray] = {}
        self._draws: dict[int, _Draw] = {}

    def _check(self, known: np.ndarray) -> None:
        s, spaces = self.settings, self.spaces
        if (s.classifier == HEAD) != (self.head is not None):
            raise InputError("a head is stitched with classifier=head, and that needs one: give a file of W and b.")
        if s.classifier == NO_CLASSIFIER and spaces.rows is None:
            raise InputError(
                "how alike items are described needs items that are known in every space; say how rows pair up."
            )
        if s.classifier != NO_CLASSIFIER and len(np.unique(known)) < 2:
            raise InputError(f"a classifier needs two classes, and the labels hold {len(np.unique(known))}.")
        if s.ordered and not parts.numbers(known):
            odd = next(v for v in np.unique(known) if not parts.numbers([v]))
            raise InputError(f"ordered labels are numbers, and one of them is {str(odd)!r}; leave the order out.")
        if s.ways and spaces.rows is None:
            raise InputError(
                "shared anchors need rows that are the same items in every space, and it is not known which are: say "
                "how rows pair up. Without pairs HGA aligns; AO needs a few."
            )
        if s.ways and not len(spaces.rows):
            raise InputError(
                f"shared anchors need items that all {len(spaces)} spaces have, and there are none; stitch those that "
                "have some, or leave the relative representations out."
            )
        if s.hold_out and len(spaces) < 3:
            raise InputError("holding a space out needs three: two that find the anchors and one that had no part.")
        if self.head is not None:
            dims = sorted({space.dim for space in spaces.spaces})
            wide = set(dims) | ({self.aligned.x.shape[1]} if self.aligned is not None else set())
            if self.head.dim not in wide:
                raise InputError(
                    f"{self.head.source} reads rows of {self.head.dim} numbers; the spaces have "
                    f"{', '.join(map(str, dims))}"
                    + (f", the run's common space {self.aligned.x.shape[1]}" if self.aligned is not None else "")
                    + ". Give a head of one of these."
                )

    # ------------------------------------------------------------------------------------------------- what there is

    def units(self) -> list[Unit]:
        """All that will be read, in order: references first, then the run, then relative representations."""
        s, spaces = self.settings, self.spaces
        pairs = list(permutations(range(len(spaces)), 2))
        own = [(i, i) for i in range(len(spaces))]
        known = spaces.rows is not None and len(spaces.rows) > 0
        out = []
        for draw in range(s.draws):
            for name in s.references:
                if name == "absolute":
                    equal = [(d, e) for d, e in pairs if spaces.spaces[d].dim == spaces.spaces[e].dim]
                    where = equal if s.classifier == NO_CLASSIFIER else own + equal
                elif name == "seeds" and not known:
                    where = self._run_pairs()
                else:
                    where = pairs if known else []
                out += [Unit(name, d, e, draw) for d, e in where]
            out += [Unit(RUN, d, e, draw) for d, e in self._run_pairs()]
            out += [Unit(way, d, e, draw) for way in s.ways for d, e in pairs]
        if self.head is not None:
            out = [u for u in out if self._reads(u)]
        return out

    def _run_pairs(self) -> list[tuple[int, int]]:
        if self.aligned is None:
            return []
        first, second = self.aligned.first, self.aligned.second
        return [(first, second), (second, first)]

    def _reads(self, unit: Unit) -> bool:
        """Whether the head reads the decoder's coordinates, or the run's."""
        if self.spaces.spaces[unit.decoder].dim == self.head.dim:
            return True
        return unit.representation == RUN and self.aligned.x.shape[1] == self.head.dim

    def draw(self, number: int) -> _Draw:
        if number not in self._draws:  # one at a time: each keeps all that it found
            self._draws = {number: _Draw(self, self.settings.seed + number)}
        return self._draws[number]

    @cached_property
    def tensors(self) -> list[Tensor]:
        import torch

        return [torch.from_numpy(np.array(v.vectors, dtype=np.float32)) for v in self.spaces.spaces]

    # ------------------------------------------------------------------------------------------------------- the work

    def steps(self) -> Iterator[dict[str, Any]]:
        """A result for each unit: its names and figures, or ``error`` with the reason it has none."""
        for unit in self.units():
            began = time.perf_counter()
            draw = self.draw(unit.draw)  # a fault of the split is one of all
            try:
                result = draw.read(unit)
            except (InputError, ValueError, FloatingPointError) as e:
                result = {"error": str(e)}
            result["seconds"] = round(time.perf_counter() - began, 3)
            yield {**unit._asdict(), "error": "", **result}


def _carried(i: int, spaces: Spaces, given: list[np.ndarray | None], notes: list[str]) -> np.ndarray:
    """Labels of a space as text; without its own, those of its items in the first space that has some."""
    space, own = spaces.spaces[i], given[i]
    if own is None:
        source = next((j for j, v in enumerate(given) if v is not None), None)
        known = [v[:, [i, source]] for v in (spaces.rows, spaces.some) if v is not None and source is not None]
        same = np.concatenate([np.empty((0, 2), dtype=np.int64), *(v[(v >= 0).all(1)] for v in known)])
        if not len(same):
            raise InputError(
                f"{space.title or 'a space'} has no labels; a classifier needs them on both sides. Give a file of one "
                "label a row."
            )
        own = np.full(len(space), NO_LABEL, dtype=object)
        own[same[:, 0]] = np.asarray(given[source], dtype=object)[same[:, 1]]
        notes.append(f"{space.title}: labels are those of the same items in {spaces.spaces[source].title}")
    if len(own) != len(space):
        raise InputError(f"{space.title}: {len(own)} labels for {len(space)} rows; wanted one a row.")
    labels = np.asarray(own).astype(str)
    missing = int((labels == NO_LABEL).sum())
    if missing == len(labels):
        raise InputError(f"{space.title}: no row has a label; give a file of one label a row.")
    if missing:
        notes.append(f"{space.title}: {missing:,} of {len(labels):,} rows have no label; neither learned nor tested")
    return labels


@dataclass(eq=False)
class _Draw:
    """Split, support and all that one draw finds on the way; each thing is found once."""

    stitcher: Stitcher
    seed: int
    kept: dict[tuple, Any] = field(default_factory=dict)

    def __post_init__(self):
        st, s = self.stitcher, self.stitcher.settings
        spaces = st.spaces
        self.train: list[np.ndarray] = []
        self.test: list[np.ndarray] = []
        none = np.empty((0, len(spaces)), dtype=np.int64)
        items, some = (none if v is None else v for v in (spaces.rows, spaces.some))
        self.items, self.test_items = self._parted(items)
        parted = self._parted(some)  # of items that not all spaces have no space may learn what another is tested on
        for i in range(len(spaces)):
            held = np.concatenate([items[:, i], some[:, i]])
            rest = np.setdiff1d(np.arange(len(spaces.spaces[i])), held)
            more = parts.split(st.labels[i][rest], s.test, self.seed)
            labelled = (st.labels[i] != NO_LABEL) | (s.classifier == NO_CLASSIFIER)
            for out, of in (
                (self.train, (self.items, parted[0], more.train)),
                (self.test, (self.test_items, parted[1], more.test)),
            ):
                rows = np.sort(np.concatenate([of[0][:, i], of[1][of[1][:, i] >= 0, i], rest[of[2]]]))
                out.append(rows[labelled[rows]])
        rng = np.random.default_rng(self.seed)
        self.support = self.items[np.sort(rng.permutation(len(self.items))[: s.support])]
        if s.classifier == NO_CLASSIFIER and (len(self.items) < 2 or len(self.test_items) < 2):
            raise InputError(
                f"{len(items)} items are known in every space; wanted two to learn from and two to test at least."
            )
        for i, space in enumerate(spaces.spaces):
            if s.classifier == NO_CLASSIFIER:
                break
            if not len(self.test[i]) or len(np.unique(st.labels[i][self.train[i]])) < 2:
                raise InputError(
                    f"{space.title}: {len(self.train[i])} labelled rows to learn from and {len(self.test[i])} to test; "
                    "wanted two classes and a row of each. Give more labels, or another share to test."
                )
        if s.ways:
            self._check_support()

    def _parted(self, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Items (k, E) to learn from and to test, the same share of each label in the first space that holds them."""
        first = (items >= 0).argmax(1)
        labels = np.full(len(items), NO_LABEL, dtype=object)
        for i, own in enumerate(self.stitcher.labels):
            labels[first == i] = own[items[first == i, i]]
        split = parts.split(labels.astype(str), self.stitcher.settings.test, self.seed)
        return items[split.train], items[split.test]

    def _check_support(self) -> None:
        s, k = self.stitcher.settings, len(self.support)
        if s.anchors > k:
            raise InputError(
                f"{s.anchors} anchors are asked of a support of {k} items; ask for at most {k}, or take more items."
            )
        whitened = any(Way.parse(w).similarity in SHRUNK for w in s.ways)
        if k > KERNEL_SEEDS and any(Way.parse(w).similarity == "kernel" for w in s.ways):
            raise InputError(
                f"the kernel keeps a number for every pair of items and takes at most {KERNEL_SEEDS:,} of them, not "
                f"{k:,}; take a smaller support."
            )
        if whitened and s.shrinkage == "fixed" and s.shrinkage_amount == 0:
            for space in self.stitcher.spaces.spaces:
                if k <= space.dim:
                    raise InputError(
                        f"shrinkage_amount is 0, but {k} items have no covariance of full rank in the {space.dim} "
                        f"dimensions of {space.title}; take a shrinkage above 0, or more items."
                    )

    @property
    def tensors(self) -> list[Tensor]:
        return self.stitcher.tensors

    def _once(self, key: tuple, make: Callable[[], Any]) -> Any:
        if key not in self.kept:
            self.kept[key] = make()
        return self.kept[key]

    # --------------------------------------------------------------------------------------------------- one result

    def read(self, unit: Unit) -> dict[str, Any]:
        st, s = self.stitcher, self.stitcher.settings
        d, e = unit.decoder, unit.encoder
        described = self.describe(unit)
        notes = [*described.notes, *self._told_seeds(unit)]
        found = {"found_seconds": round(described.found, 3)}
        if s.classifier == NO_CLASSIFIER:
            return found | self.partners(described, d, e, notes) | {"notes": notes}
        decode = None
        if s.classifier == HEAD:
            learned, trained = st.head, 0
            if not described.native and not self._common(unit):
                decode = self._once(("decode", *described.key), lambda: Decoder.fit(self, described, d))
                notes.append(f"the decoder's coordinates are told from these at R² {decode.explained:.2f}")
        else:
            rows = self.train[d]
            learned = self._once(
                ("classifier", *described.key),
                lambda: parts.learn(s.classifier, described.of(d, rows), st.labels[d][rows], self.seed),
            )
            trained = learned.rows
            if trained < len(rows):
                notes.append(f"learned from {trained:,} of {len(rows):,} rows, drawn at random")
            if not learned.converged:
                notes.append("the classifier's solver stopped before it converged")

        def predict(i: int, rows: np.ndarray) -> np.ndarray:
            v = described.of(i, rows)
            return learned.predict(v if decode is None else decode(v)).astype(str)

        truth = st.labels[e][self.test[e]]
        said = predict(e, self.test[e])
        place = {c: i for i, c in enumerate(st.classes)}
        st.predictions[unit] = np.array([place[c] for c in said], dtype=np.int32)
        figures: dict[str, Any] = parts.scores(truth, said, s.ordered)
        own_truth = st.labels[d][self.test[d]]
        own = parts.scores(own_truth, predict(d, self.test[d]))
        values, counts = np.unique(st.labels[d][self.train[d]], return_counts=True)
        unseen = sorted(set(truth) - set(st.head.classes if s.classifier == HEAD else values))
        if unseen:
            notes.append(f"never learned, so always missed: {shown(unseen)}")
        alone = sorted(set(st.labels[e][self.train[e]]) - set(truth))
        if alone:
            notes.append(f"classes of one item, which is learned from and not tested: {shown(alone)}")
        figures |= {f"own_{name}": value for name, value in own.items()}
        figures |= {
            "majority": float((truth == values[counts.argmax()]).mean()),
            "trained": trained,
            "tested": len(truth),
        }
        if described.judged and d != e and len(self.test_items) > 1:
            figures |= self.partners(described, d, e, notes)
        return figures | found | {"notes": notes}

    def _common(self, unit: Unit) -> bool:
        """Whether a head reads the run's common coordinates, being of their dimension and not the decoder's."""
        st = self.stitcher
        return unit.representation == RUN and st.spaces.spaces[unit.decoder].dim != st.head.dim

    def partners(self, described: Described, d: int, e: int, notes: list[str]) -> dict[str, float]:
        """How alike test items are described in both spaces (:func:`relcore.metrics.alignment.between`)."""
        import torch

        from relcore.metrics import alignment

        held_back = self.test_items[~self._seeded(self.test_items, d, e)]
        given = len(self.test_items) - len(held_back)
        if len(held_back) < 2:
            why = f"no partners are looked for: {given:,} of {len(self.test_items):,} test items are seeds of the run"
            if self.stitcher.settings.classifier == NO_CLASSIFIER:
                raise InputError(why)
            notes.append(why)
            return {}
        if given:
            notes.append(f"partners are not looked for of the {given:,} test items that are seeds of the run")
        some = np.sort(np.random.default_rng(self.seed).permutation(len(held_back))[:JUDGED])
        if len(some) < len(held_back):
            notes.append(f"partners looked for among {len(some):,} of {len(held_back):,} test items")
        items = held_back[some]
        sides = {name: torch.from_numpy(described.of(i, items[:, i])) for name, i in (("d", d), ("e", e))}
        found = next(f for f in alignment.between(sides) if f["source"] == "e")
        return {name: found[name] for name in ALIGNED} | {"judged": len(items)}

    def _seeded(self, items: np.ndarray, d: int, e: int) -> np.ndarray:
        """Which items hold a row that the run was given as a seed, where the run is of these two spaces; bool (k,)."""
        a = self.stitcher.aligned
        if a is None or {d, e} != {a.first, a.second}:
            return np.zeros(len(items), dtype=bool)
        return np.isin(items[:, a.first], a.seeds.x) | np.isin(items[:, a.second], a.seeds.y)

    def _told_seeds(self, unit: Unit) -> list[str]:
        """How many rows tested are seeds that the description was made of."""
        a, e = self.stitcher.aligned, unit.encoder
        if unit.representation not in (RUN, "seeds") or a is None or {unit.decoder, e} != {a.first, a.second}:
            return []
        given = int(np.isin(self.test[e], a.seeds.x if e == a.first else a.seeds.y).sum())
        if not given or self.stitcher.settings.classifier == NO_CLASSIFIER:
            return []
        return [f"{given:,} of the {len(self.test[e]):,} rows tested are seeds of the run"]

    # ------------------------------------------------------------------------------------------------- descriptions

    def describe(self, unit: Unit) -> Described:
        name, d, e = unit.representation, unit.decoder, unit.encoder
        if name == "absolute":
            return Described((name, d), lambda i, rows: self.tensors[i][rows].numpy(), native=True, judged=d != e)
        if name == RUN:
            a = self.stitcher.aligned
            side = {a.first: parts.unit(a.x), a.second: parts.unit(a.y)}
            note = ("the run was fitted on all rows, those tested here among them, without their labels",)
            return Described((name, d), lambda i, rows: side[i][rows], notes=note)
        if name == "translated":
            return self._translated(d, e)
        if name == "seeds":
            return self._cosines(name, d, e, *self._seeds(d, e))
        if name == "full":
            some = np.sort(np.random.default_rng(self.seed).permutation(len(self.items))[:FULL_ANCHORS])
            note = f"{len(some):,} of {len(self.items):,} pairs as anchors" if len(some) < len(self.items) else ""
            return self._cosines(name, d, e, self.items[some][:, d], self.items[some][:, e], note)
        return self._relative(Way.parse(name), d, e)

    def _seeds(self, d: int, e: int) -> tuple[np.ndarray, np.ndarray, str]:
        """The run's seeds where the run is of these two spaces, else as many training items drawn at random."""
        a = self.stitcher.aligned
        if a is not None and {d, e} == {a.first, a.second} and len(a.seeds):
            rows = {a.first: a.seeds.x.copy(), a.second: a.seeds.y.copy()}
            return rows[d], rows[e], f"the {len(a.seeds)} seeds of {a.title}"
        if a is not None and len(a.seeds):
            count = len(a.seeds)
        else:
            count = self.stitcher.settings.seeds
        if not len(self.items):
            raise InputError("there are no seeds: the run was given none, and it is not known which rows correspond.")
        some = np.sort(np.random.default_rng(self.seed).permutation(len(self.items))[:count])
        return self.items[some][:, d], self.items[some][:, e], f"{len(some)} pairs drawn at random"

    def _cosines(self, name: str, d: int, e: int, rows_d: np.ndarray, rows_e: np.ndarray, note: str) -> Described:
        """Cosines to rows as anchors, all less the mean of the space's training rows."""
        from relcore.ops.similarity import Similarity

        fits = {}
        for i, rows in ((d, rows_d), (e, rows_e)):
            mean = self.tensors[i][self.train[i]].double().mean(0)
            fits[i] = (Similarity("centred", mean), self.tensors[i][rows])

        def of(i: int, rows: np.ndarray) -> np.ndarray:
            similarity, anchors = fits[i]
            return similarity(self.tensors[i][rows], anchors).numpy()

        return Described((name, d, e), of, notes=(note,) if note else ())

    def _translated(self, d: int, e: int) -> Described:
        """The encoder's rows in the decoder's coordinates, by least squares on all training pairs."""
        if len(self.items) < 2:
            raise InputError(f"a translation is learned from two pairs or more, and there is {len(self.items)}.")
        line = self._once(
            ("translation", d, e),
            lambda: _ridge(self.tensors[e][self.items[:, e]].numpy(), self.tensors[d][self.items[:, d]].numpy()),
        )

        def of(i: int, rows: np.ndarray) -> np.ndarray:
            v = self.tensors[i][rows].numpy()
            return v if i == d else line.predict(v).astype(np.float32)

        # the classifier is the one on absolute coordinates
        return Described(("absolute", d), of, native=True)

    def _relative(self, way: Way, d: int, e: int) -> Described:
        """By similarities to anchors that both spaces share (Algorithm 1)."""
        trainers = [i for i in range(len(self.stitcher.spaces)) if i != e or not self.stitcher.settings.hold_out]
        began = time.perf_counter()
        mixture, ridges, notes, key = self.anchors(way, d, trainers)
        rank = min(len(self.support) - 1, *(self.tensors[i].shape[1] for i in (d, e)))
        if len(mixture) > rank and way.similarity in ("wip", "whitened", "gamma"):
            notes = [*notes, f"{len(mixture)} anchors, but of rank at most {rank}"]
        if way.similarity == "kernel":  # its ridge is another where others train: so are the rows and the classifier
            key = (*key, self._kernel_ridge(key, mixture, ridges, trainers))
        compare = self._compared(way, key, mixture, ridges, {d, e})
        seconds = time.perf_counter() - began
        fits = {}
        for i in (d, e):
            mean, deviation = 0.0, 1.0
            if self.stitcher.settings.standardise:
                own = compare[i](self.tensors[i][self.support[:, i]]).double()
                mean, deviation = own.mean(0), own.std(0).clamp_min(1e-12)
            fits[i] = (compare[i], mean, deviation)

        def of(i: int, rows: np.ndarray) -> np.ndarray:
            similarity, mean, deviation = fits[i]
            return ((similarity(self.tensors[i][rows]).double() - mean) / deviation).float().numpy()

        return Described(key, of, found=seconds, notes=tuple(notes))

    def _compared(
        self, way: Way, key: tuple, mixture: Tensor, ridges: dict[int, float], spaces: set[int]
    ) -> dict[int, Callable[[Tensor], Tensor]]:
        """From rows of each of the spaces to their similarities to its anchors, fitted on its support."""
        from relcore.ops.similarity import fit

        def plain(i: int) -> Callable[[Tensor], Tensor]:
            support = self.tensors[i][self.support[:, i]]
            similarity, anchors = fit(way.similarity, support, ridge=ridges[i], gamma=GAMMA), mixture @ support.double()
            return lambda rows: similarity(rows, anchors)

        if way.similarity != "kernel":
            return {i: plain(i) for i in spaces}

        return {i: self._kernel(i, ridges[i]).similarity(mixture, key[-1]) for i in spaces}

    def _kernel(self, i: int, ridge: float) -> KernelLeftOut:
        from relcore.ops.similarity import KernelLeftOut

        return self._once(("kernel", i, ridge), lambda: KernelLeftOut(self.known(i), ridge))

    def _kernel_ridge(self, key: tuple, mixture: Tensor, ridges: dict[int, float], trainers: list[int]) -> float:
        """The kernel's own ridge, as the spaces that train agree on it."""
        from relcore.ops.similarity import KERNEL_GRID, agreed_ridge

        return self._once(
            ("kernel ridge", *key, tuple(trainers)),
            lambda: agreed_ridge([self._kernel(i, ridges[i]) for i in trainers], mixture, KERNEL_GRID).ridge,
        )

    def known(self, i: int) -> LeftOut:
        """The spectrum of a space's support."""
        from relcore.ops.similarity import LeftOut

        def make() -> LeftOut:
            try:
                return LeftOut(self.tensors[i][self.support[:, i]])
            except ValueError as e:
                raise InputError(f"{self.stitcher.spaces.spaces[i].title}, support: {e}") from None

        return self._once(("spectrum", i), make)

    def anchors(self, way: Way, d: int, trainers: list[int]) -> tuple[Tensor, dict[int, float], list[str], tuple]:
        """Mixture (m, K) and the ridge of every space, notes, and what they depend on."""
        base = self._base_ridge(tuple(trainers))
        of = (d,) if way.anchors in ROWS else (d, base) if way.anchors in ON_DECODER else tuple(trainers)
        mixture, notes = self._once(("mixture", way.anchors, of), lambda: self._mixture(way.anchors, d, trainers, base))
        s = self.stitcher.settings
        ridges = dict.fromkeys(range(len(self.tensors)), base)
        if way.similarity not in SHRUNK:
            ridges = dict.fromkeys(ridges, 0.0)
        elif s.shrinkage == "agreed" and way.anchors != "multi":  # few anchors not made of pairs want less whitening
            ridge = self._once(("ridge", way.anchors, of, tuple(trainers)), lambda: self._agreed(trainers, mixture))
            if way.similarity == "kernel" and way.anchors not in ROWS:
                ridge = max(ridge, base)  # a kernel has a ridge of its own; more whitening was worse (methods/param.py)
            ridges = dict.fromkeys(ridges, ridge)
        elif s.shrinkage == "ledoit_wolf":
            ridges = {i: self._ledoit_wolf(i) for i in ridges}
        return mixture, ridges, notes, (f"{way.anchors}+{way.similarity}", d, of, ridges[d])

    def _base_ridge(self, trainers: tuple[int, ...]) -> float:
        from relcore.ops.similarity import ridge_of

        s = self.stitcher.settings
        if s.shrinkage == "fixed":
            return ridge_of(s.shrinkage_amount)
        if s.shrinkage == "ledoit_wolf":  # there each space has its own
            return 0.0
        return self._once(("base", trainers), lambda: self._agreed(list(trainers), None))

    def _agreed(self, trainers: list[int], mixture: Tensor | None) -> float:
        from relcore.ops.similarity import agreed_ridge

        return agreed_ridge([self.known(i) for i in trainers], mixture).ridge

    def _ledoit_wolf(self, i: int) -> float:
        from relcore.methods.anchored import ledoit_wolf
        from relcore.ops.similarity import ridge_of

        return self._once(
            ("ledoit_wolf", i), lambda: ridge_of(min(ledoit_wolf(self.tensors[i][self.support[:, i]]), 0.99))
        )

    def _mixture(self, how: str, d: int, trainers: list[int], ridge: float) -> tuple[Tensor, list[str]]:
        import torch

        from relcore.ops.param import Training, cluster_averages, generalised_cca, one_row_each

        st, s = self.stitcher, self.stitcher.settings
        if how in ROWS:
            rows = self.support[:, d]
            chosen = choosing.choose(
                how,
                centred_unit(self.tensors[d][rows].numpy()),
                s.anchors,
                labels=st.labels[d][rows] if how == "stratified" else None,
                seed=self.seed,
            )
            return one_row_each(torch.from_numpy(chosen), len(rows)), []
        generator = torch.Generator().manual_seed(self.seed)
        own = s.shrinkage == "ledoit_wolf"
        white = {i: self.known(i).white(self._ledoit_wolf(i) if own else ridge) for i in {d, *trainers}}
        if how == "cca":
            mixture, shared = generalised_cca([white[i] for i in trainers], s.anchors)
            kept = mixture[shared > 0] if bool((shared > 0).any()) else mixture[:1]
            note = [f"{len(kept)} directions are shared, fewer than {s.anchors}"] if len(kept) < s.anchors else []
            return kept, note
        first = trainers[0] if how == "multi" else d
        start = cluster_averages(white[first], s.anchors, generator)
        if how == "kmeans":
            return start, []
        learning = Training(
            [white[i] for i in (trainers if how == "multi" else [d])], start, steps=STEPS, generator=generator
        )
        try:
            for _ in learning:
                pass
        except FloatingPointError as e:
            return learning.mixture, [f"learning stopped: {e}; the anchors are those of step {learning.done}"]
        return learning.mixture, []


@dataclass(frozen=True, eq=False)
class Decoder:
    """From common terms back to the decoder's own coordinates: a ridge regression on its own training rows.

    No pair and no label has a part. ``explained`` is R² on the decoder's test rows.
    """

    line: Any
    explained: float

    @classmethod
    def fit(cls, draw: _Draw, described: Described, d: int) -> Decoder:
        from sklearn.metrics import r2_score

        rows, test = draw.train[d], draw.test[d]
        line = _ridge(described.of(d, rows), draw.tensors[d][rows].numpy())
        told = line.predict(described.of(d, test).astype(np.float64))
        return cls(line, float(r2_score(draw.tensors[d][test].numpy(), told, multioutput="variance_weighted")))

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        return self.line.predict(rows.astype(np.float64))


def _ridge(source: np.ndarray, target: np.ndarray) -> Any:
    """Ridge regression (n, r) to (n, d), its strength by leave-one-out, in units of the source's variance."""
    from sklearn.linear_model import RidgeCV

    source = source.astype(np.float64)
    unit = max(float(source.var(0).mean()) * len(source), 1e-30)
    return RidgeCV(alphas=unit * np.logspace(-6, 0, 7)).fit(source, target.astype(np.float64))


PACE = {  # seconds a row learned from, and a number of it
    "logistic": (0.0, 8e-7),
    "svm": (0.0, 1e-6),
    "mlp": (6e-4, 3e-6),
    HEAD: (0.0, 0.0),
    NO_CLASSIFIER: (0.0, 0.0),
}
STARTING = 2.0  # seconds until scikit-learn is there


def estimate(spaces: Spaces, settings: Settings, aligned: Aligned | None = None) -> float:
    """About how many seconds a question takes, by its sizes: on one core of the machine it was measured on (2 GHz).

    The solvers decide how long they take, so that half of it or twice as much is no surprise.
    """
    s, count = settings, len(spaces)
    items = 0 if spaces.rows is None else len(spaces.rows)
    known, pairs = round((1 - s.test) * items), count * (count - 1)
    support, judged = min(s.support, known), min(JUDGED, items - known)
    dims = [space.dim for space in spaces.spaces]
    rows = [round((1 - s.test) * len(space)) for space in spaces.spaces]
    a_row, a_number = PACE[s.classifier]

    def learn(width: int, which: Iterable[int] = range(count)) -> float:
        return sum((a_row + a_number * width) * min(rows[i], parts.TRAINED_ROWS) for i in which)

    def partners(width: int, of: int = pairs) -> float:
        return of * (3e-10 * judged * judged * width + 4e-10 * judged * width * min(judged, width))

    def whiten(which: Iterable[int]) -> float:
        return sum(3e-9 * support * dims[i] ** 2 for i in which)

    def agree(m: int) -> float:
        """A ridge for all spaces: every one of the grid is tried on all of them."""
        judged_support = min(500, support)
        return count * 1e-9 * m * support * judged_support + pairs * 1e-9 * judged_support**2 * m

    seconds = 0.0
    if "absolute" in s.references:
        equal = sum(dims[d] == dims[e] for d, e in permutations(range(count), 2))
        seconds += sum(learn(dims[i], [i]) for i in range(count)) + partners(max(dims), equal)
    if items:
        anchors = {"seeds": min(s.seeds, known), "full": min(FULL_ANCHORS, known)}
        for name in set(anchors) & set(s.references):  # a classifier for every pair: the anchors depend on both
            seconds += (count - 1) * learn(anchors[name]) + partners(anchors[name])
        if "translated" in s.references:
            seconds += (count - 1) * sum(1.2e-9 * known * d * d for d in dims) + partners(max(dims))
    if aligned is not None:
        width = aligned.x.shape[1]
        seconds += learn(width, (aligned.first, aligned.second)) + partners(width, 2)
    if s.ways:
        seconds += whiten(range(count)) + agree(support)
    for way in map(Way.parse, s.ways):
        m = min(s.anchors, support)
        seconds += learn(m) + partners(m)
        found = count if way.anchors in ON_DECODER or s.hold_out else 1
        width = sum(dims) / (count if way.anchors in ON_DECODER else 1)
        if way.anchors in ("single", "multi"):
            seconds += found * 1.6e-10 * STEPS * m * support * width
        if way.anchors == "cca":
            seconds += 1e-10 * support * width**2 + 1e-9 * min(width, support) ** 3
        if way.similarity in SHRUNK and s.shrinkage == "agreed":
            seconds += found * agree(m)
        if way.similarity == "kernel":
            made = costs.kernel(support, dims[0], dims[0], m) / 2 * count
            seconds += made + sum(costs.kernel_rows(len(space), support, space.dim, m) for space in spaces.spaces)
    return STARTING + s.draws * seconds
