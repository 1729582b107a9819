"""What a method is: hyper-parameters with their help, a generator of steps, and an alignment at the end.

A method is a frozen dataclass. Its fields are made with :func:`param` and carry help, range, unit and source; the
form on the screen, ``--set`` on the command line, the documentation and the validation all follow from them.

Nothing here imports torch at module level, and neither may a method's file: the app server reads the dataclasses to
draw a form, and must stay light. Numerical code lives in :mod:`relcore.ops` and is imported inside ``steps``.
"""

from __future__ import annotations

import dataclasses
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from relcore.errors import InputError
from relcore.space import Pairs

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from torch import Generator as TorchGenerator
    from torch import Tensor


def param(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] | None = None,
    unit: str = "",
    source: str = "",
    advanced: bool = False,
    log: bool = False,
    only_if: tuple | None = None,
) -> Any:
    """A dataclass field with what a form needs to draw it and a border needs to check it.

    Parameters
    ----------
    low, high : inclusive range of a number.
    choices : the admitted values of a text field.
    source : where the default comes from (paper, section; or measured, with the note).
    advanced : shown in the "advanced" expander.
    log : the range is best walked in factors, not in steps.
    only_if : ``(field, values)``: the field matters only while the named field has one of the values; or several such
        pairs, all of which are to hold (:func:`conditions`).
    """
    meta = dict(
        help=help,
        low=low,
        high=high,
        choices=choices,
        unit=unit,
        source=source,
        advanced=advanced,
        log=log,
        only_if=only_if,
    )
    return field(default=default, metadata=meta)


def conditions(f: dataclasses.Field) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The ``(field, values)`` that are to hold for a field to matter; none for most."""
    found = f.metadata.get("only_if") or ()
    return (found,) if found and isinstance(found[0], str) else found


@dataclass(frozen=True)
class Needs:
    """What a method asks of its input."""

    min_seeds: int = 0
    equal_dims: bool = False
    paired_rows: bool = False  # row i of x must be row i of y
    labels: bool = False


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The alignment as it stands: linear maps, or encoders, of (preprocessed) rows into the common space.

    ``map_x`` is (d_x, r), ``map_y`` is (d_y, r), float32, or each a callable (p, d) -> (p, r); ``moving`` is the side
    whose map changes over the run, so that a picture fixed on the other side shows true motion. ``anchors``,
    ``coupling`` and ``mixture``, on the CPU, are those found so far, if any, as in :class:`Alignment`.
    """

    map_x: Tensor | Callable[[Tensor], Tensor]
    map_y: Tensor | Callable[[Tensor], Tensor]
    moving: str = "y"
    anchors: Pairs | None = None
    coupling: Any = None
    mixture: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Restarts:
    """Where the restarts of a search stand after a step.

    Attributes
    ----------
    ids : int array (b,), which restarts moved or were scored; a restart keeps its number for the whole fit.
    scores : float array (b,), each at the judging bandwidth, so that scores of any step compare.
    pruned : ids given up after this step.
    best : id of the best so far.
    """

    ids: np.ndarray
    scores: np.ndarray
    pruned: tuple[int, ...] = ()
    best: int | None = None


@dataclass(frozen=True, eq=False)
class Step:
    """One step worth watching. ``iteration`` counts from 1 to ``total`` within the whole fit."""

    iteration: int
    total: int
    phase: str
    metrics: dict[str, float] = field(default_factory=dict)
    snapshot: Snapshot | None = None
    restarts: Restarts | None = None


@dataclass(eq=False)
class Alignment:
    """Two spaces in common coordinates, and how to bring vectors never seen there. All pages need only this.

    Attributes
    ----------
    x, y : float32 tensors (n, r), (m, r), the common space; rows are compared by cosine.
    encode_x, encode_y : callables (p, d) -> (p, r), for preprocessed vectors; None when the method is transductive.
    coupling : soft correspondence with rows, columns and top-k on demand (:class:`relcore.ops.sinkhorn.Coupling`), or
        None.
    factor_x, factor_y : callables from preprocessed vectors to factors of the coupling's cost, so that rows never seen
        can join it (``coupling.with_left``), or None.
    anchors : discovered :class:`Pairs` (row positions), not necessarily unique on the y side, or None.
    anchors_x, anchors_y : float32 (k, d_x), (k, d_y), the continuous anchors on the unit sphere, or None. Of mixtures
        the directions of ``mixture @ x[seeds.x]`` and ``mixture @ y[seeds.y]``, whose lengths count with wip.
    mixture : float32 (k, K), anchors as mixtures of the K seeds, one for both sides: the weight of each seed, in the
        seeds' order, in each anchor; of row sums 1. None where there are none, or the seeds themselves are the anchors.
    map : float32 (d_x, d_y), the linear map from x to y, if there is one.
    history : DataFrame, one row a step: iteration, phase and the steps' metrics.
    converged : False when the method stopped before its own criterion was met.
    confidence : label-free figures the method itself has of how sure it is (agreement between restarts, margin to the
        best different solution), by name; None where it has none. :mod:`relcore.metrics.health` reads them.
    chosen : values the method itself found for parameters of its own, by their names; empty where it chose none.
    notes : what the person must know, in words.
    """

    x: Tensor
    y: Tensor
    encode_x: Callable[[Tensor], Tensor] | None = None
    encode_y: Callable[[Tensor], Tensor] | None = None
    coupling: Any = None
    factor_x: Callable[[Tensor], Tensor] | None = None
    factor_y: Callable[[Tensor], Tensor] | None = None
    anchors: Pairs | None = None
    anchors_x: Tensor | None = None
    anchors_y: Tensor | None = None
    mixture: Tensor | None = None
    map: Tensor | None = None
    history: pd.DataFrame | None = None
    converged: bool = True
    confidence: dict[str, float] | None = None
    chosen: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Linear:
    """``v -> v @ matrix``, the encoder of every method whose map is linear."""

    matrix: Tensor

    def __call__(self, v: Tensor) -> Tensor:
        return v @ self.matrix


def mapped(v: Tensor, how: Tensor | Callable[[Tensor], Tensor]) -> Tensor:
    """Rows under a linear map or an encoder."""
    return how(v) if callable(how) else v @ how


@dataclass(frozen=True)
class Cost:
    """What a run is expected to take: bytes at the peak and seconds on this machine (None: not known).

    ``check`` is what one fit of the held-out check takes (``check_steps``); None: as long as the fit itself.
    """

    memory: float
    seconds: float | None = None
    check: float | None = None


@dataclass(frozen=True)
class Method(ABC):
    """Base of all methods. Subclasses are frozen dataclasses whose fields are made with :func:`param`."""

    name: ClassVar[str]  # on the command line
    title: ClassVar[str]  # on the screen
    summary: ClassVar[str]  # one sentence
    source: ClassVar[str]  # paper and section
    spreads: ClassVar[bool] = False  # steps takes ``workers`` (relcore.parallel.Workers), to use several processes
    needs: ClassVar[Needs] = Needs()

    def __post_init__(self):
        for f in dataclasses.fields(self):
            check_value(self.name, f, field_type(type(self), f.name), getattr(self, f.name))

    @abstractmethod
    def steps(
        self, x: Tensor, y: Tensor, seeds: Pairs, *, generator: TorchGenerator, device: str = "cpu"
    ) -> Generator[Step, None, Alignment]:
        """Fit, yielding as often as a watcher would like; the generator's return value is the alignment.

        Parameters
        ----------
        x, y : float32 tensors (n, d_x), (m, d_y), preprocessed, without zero rows.
        seeds : known pairs of row positions, possibly empty.
        generator : CPU generator, the only source of randomness.
        device : where to compute. Results are returned on the CPU.
        """

    def check_steps(
        self, x: Tensor, y: Tensor, seeds: Pairs, *, generator: TorchGenerator, device: str = "cpu"
    ) -> Generator[Step, None, Alignment]:
        """:meth:`steps` for the held-out check, which reads only ``x`` and ``y`` of the alignment.

        A method may leave out what would only make the check slower and the ranks better.
        """
        return (yield from self.steps(x, y, seeds, generator=generator, device=device))

    def fit(self, x: Tensor, y: Tensor, seeds: Pairs, *, generator: TorchGenerator, device: str = "cpu") -> Alignment:
        """Drain :meth:`steps` and return the alignment, with its history."""
        import pandas as pd

        self.check(len(x), len(y), x.shape[1], y.shape[1], len(seeds))
        rows, steps = [], self.steps(x, y, seeds, generator=generator, device=device)
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                alignment = end.value
                break
            rows.append({"iteration": step.iteration, "phase": step.phase, **step.metrics})
        alignment.history = pd.DataFrame(rows)
        return alignment

    def check(self, n: int, m: int, dx: int, dy: int, seeds: int) -> None:
        """Raise :class:`InputError` if the method cannot work on data of these sizes."""
        if seeds < self.needs.min_seeds:
            raise InputError(
                f"{self.title} needs at least {self.needs.min_seeds} seed pairs, got {seeds}; "
                "add seeds, or choose a method that works without."
            )
        if self.needs.equal_dims and dx != dy:
            raise InputError(f"{self.title} needs equal dimensions, got {dx} and {dy}; choose another method.")
        if self.needs.paired_rows and n != m:
            raise InputError(f"{self.title} needs row i of x to be row i of y, got {n} and {m} rows.")

    @abstractmethod
    def estimate(self, n: int, m: int, dx: int, dy: int, seeds: int) -> Cost:
        """Memory and time of a run on data of these sizes, for the line beside the Run button."""

    def params(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def field_type(cls: type, name: str) -> type:
    return _field_types(cls)[name]


@cache
def _field_types(cls: type) -> dict[str, type]:
    return typing.get_type_hints(cls)  # a millisecond or more, and a sweep asks thousands of times


def check_value(owner: str, f: dataclasses.Field, kind: type, value: Any) -> None:
    """Raise :class:`InputError` unless the value has the field's type and lies in its range or choices."""
    meta = f.metadata
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is float and not numeric or kind in (int, bool, str) and type(value) is not kind:
        raise InputError(f"{owner}: {f.name} is {value!r}, wanted {kind.__name__}.")
    if meta.get("choices") and value not in meta["choices"]:
        raise InputError(f"{owner}: {f.name} is {value!r}, wanted one of {', '.join(meta['choices'])}.")
    low, high = meta.get("low"), meta.get("high")
    if numeric and not ((low is None or value >= low) and (high is None or value <= high)):
        bounds = f"at least {low}" if high is None else f"at most {high}" if low is None else f"{low} to {high}"
        raise InputError(f"{owner}: {f.name} is {value}, wanted {bounds}.")


def parse_value(owner: str, f: dataclasses.Field, kind: type, text: str) -> Any:
    """The value a ``--set name=text`` stands for.

    Raises
    ------
    InputError
        If the text is no value of the field's type.
    """
    try:
        if kind is bool:
            return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[text.lower()]
        return kind(text)
    except (KeyError, ValueError):
        raise InputError(f"{owner}: {f.name} is {text!r}, wanted {kind.__name__}.") from None
