"""The samples that ship with Relcore: pairs, and a triple (``sample_data/``; its README says where each is from)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from relcore.errors import InputError
from relcore.formats import load
from relcore.seeds import pair_by
from relcore.space import LoadReport, Pair, Pairs, Space

ROOT = Path(__file__).resolve().parent.parent / "sample_data"


@dataclass(frozen=True)
class Further:
    """What ``sample.json`` says of a space beyond x and y: its file, and how its rows correspond to those of x."""

    file: str
    title: str
    shape: tuple[int, int]
    pairing: str


@dataclass(frozen=True)
class Sample:
    """What the gallery shows of a sample, without opening it.

    ``pairing`` is how its rows correspond (``"row"`` or ``"name"``), ``paired`` how many of the first do where the
    others have no partner (0: all), ``seeds`` and ``method`` a good first try, ``missing`` the label that one side
    lacks (``""`` if none), ``licence`` where the data come from and may go, ``further`` the spaces beyond the two.
    """

    name: str
    title: str
    description: str
    x_title: str
    y_title: str
    x_shape: tuple[int, int]
    y_shape: tuple[int, int]
    pairing: str
    seeds: int
    method: str
    licence: str
    missing: str = ""
    paired: int = 0
    order: int = 0
    further: tuple[Further, ...] = ()

    @property
    def folder(self) -> Path:
        return ROOT / self.name


class OpenFurther(NamedTuple):
    """A space of a sample beyond x and y, and the pairs of x with it."""

    space: Space
    report: LoadReport
    truth: Pairs
    map: np.ndarray


class OpenSample(NamedTuple):
    """A sample in memory. ``maps`` are float32 (n, 2) and (m, 2): the leading principal
    components of the centred rows of norm 1, made with :mod:`relcore.projection` when the sample was built."""

    pair: Pair
    report_x: LoadReport
    report_y: LoadReport
    maps: tuple[np.ndarray, np.ndarray]
    further: tuple[OpenFurther, ...] = ()


def list_samples() -> list[Sample]:
    """All samples, the one that loads by default first."""
    out = []
    for path in ROOT.glob("*/sample.json"):
        fields = json.loads(path.read_text(encoding="utf-8"))
        fields |= {"x_shape": tuple(fields["x_shape"]), "y_shape": tuple(fields["y_shape"])}
        fields["further"] = tuple(Further(**f | {"shape": tuple(f["shape"])}) for f in fields.get("further", ()))
        out.append(Sample(name=path.parent.name, **fields))
    return sorted(out, key=lambda s: s.order)


def open_sample(name: str) -> OpenSample:
    """Load a sample: its spaces, the pairs that are known, the load reports, and coordinates to draw at once.

    Raises
    ------
    InputError
        If there is no such sample.
    """
    samples = {s.name: s for s in list_samples()}
    if name not in samples:
        raise InputError(f"there is no sample {name!r} in {ROOT}; choose one of {', '.join(samples) or 'none'}.")
    sample = samples[name]
    x, report_x, map_x = _read(sample, "x.npz", sample.x_title)
    y, report_y, map_y = _read(sample, "y.npz", sample.y_title)
    truth = Pairs.by_row(sample.paired) if sample.paired else pair_by(x, y, sample.pairing)[0]
    further = []
    for f in sample.further:
        space, report, at = _read(sample, f.file, f.title)
        further.append(OpenFurther(space, report, pair_by(x, space, f.pairing)[0], at))
    return OpenSample(Pair(x, y, truth), report_x, report_y, (map_x, map_y), tuple(further))


def _read(sample: Sample, file: str, title: str) -> tuple[Space, LoadReport, np.ndarray]:
    path = sample.folder / file
    space, report = load(path, key="vectors", title=title)
    return space, report, np.load(path, allow_pickle=False)["map"][space.ids]
