"""Hyper-parameters: validation, reading from text, the registry, and what every registered method must offer."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from dataclasses import dataclass

import pytest
import torch

from relcore.errors import InputError
from relcore.methods import REGISTRY, method, method_class
from relcore.methods.base import (
    Alignment,
    Cost,
    Linear,
    Method,
    Needs,
    Step,
    conditions,
    field_type,
    param,
    parse_value,
)
from relcore.space import Pairs


@dataclass(frozen=True)
class Toy(Method):
    name = "toy"
    title = "Toy"
    summary = "Counts."
    source = "nowhere"
    needs = Needs(min_seeds=2, equal_dims=True, paired_rows=True)

    count: int = param(3, "Steps", low=1, high=10)
    rate: float = param(0.5, "Rate", low=0.0)
    limit: float = param(0.5, "Limit", high=2.0)
    kind: str = param("a", "Kind", choices=("a", "b"))
    flag: bool = param(True, "Flag")

    def steps(self, x, y, seeds, *, generator, device="cpu"):
        for i in range(self.count):
            yield Step(i + 1, self.count, "count", {"square": float(i * i)})
        return Alignment(x=x, y=y)

    def estimate(self, n, m, dx, dy, seeds):
        return Cost(memory=4.0 * n * dx)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"count": 0}, "toy: count is 0, wanted 1 to 10."),
        ({"count": 11}, "toy: count is 11, wanted 1 to 10."),
        ({"count": 2.0}, "toy: count is 2.0, wanted int."),
        ({"count": True}, "toy: count is True, wanted int."),
        ({"count": "2"}, "toy: count is '2', wanted int."),
        ({"rate": -0.1}, "toy: rate is -0.1, wanted at least 0.0."),
        ({"rate": float("nan")}, "toy: rate is nan, wanted at least 0.0."),
        ({"rate": None}, "toy: rate is None, wanted float."),
        ({"limit": 3}, "toy: limit is 3, wanted at most 2.0."),
        ({"kind": "c"}, "toy: kind is 'c', wanted one of a, b."),
        ({"kind": 1}, "toy: kind is 1, wanted str."),
        ({"flag": 1}, "toy: flag is 1, wanted bool."),
    ],
)
def test_wrong_values_are_refused_in_words(params, message):
    with pytest.raises(InputError) as caught:
        Toy(**params)
    assert str(caught.value) == message


def test_values_in_range_are_taken():
    toy = Toy(count=10, rate=1, limit=-5.0, kind="b", flag=False)
    assert toy.params() == {"count": 10, "rate": 1, "limit": -5.0, "kind": "b", "flag": False}
    with pytest.raises(dataclasses.FrozenInstanceError):
        toy.count = 5


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [("count", "7", 7), ("rate", "1e-3", 1e-3), ("rate", "2", 2.0), ("kind", "b", "b")]
    + [("flag", t, True) for t in ("true", "True", "1", "yes")]
    + [("flag", t, False) for t in ("false", "FALSE", "0", "no")],
)
def test_text_is_read_as_the_type_of_the_field(name, text, value):
    field = {f.name: f for f in dataclasses.fields(Toy)}[name]
    got = parse_value("toy", field, field_type(Toy, name), text)
    assert got == value and type(got) is type(value)


@pytest.mark.parametrize(
    ("name", "text"), [("count", "7.5"), ("count", "many"), ("rate", "fast"), ("flag", "maybe"), ("count", "")]
)
def test_text_of_the_wrong_kind_is_refused(name, text):
    field = {f.name: f for f in dataclasses.fields(Toy)}[name]
    kind = field_type(Toy, name)
    with pytest.raises(InputError, match=rf"^toy: {name} is '{text}', wanted {kind.__name__}\.$"):
        parse_value("toy", field, kind, text)


def test_method_reads_text_and_values_alike():
    assert method("ao", anchors="50", mode="paper", fix_seeds="no") == method(
        "ao", anchors=50, mode="paper", fix_seeds=False
    )


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("ao2", {}, r"there is no method 'ao2'; choose one of ao,"),
        ("ao", {"anchor": "5"}, r"ao has no parameter 'anchor'; it has mode, anchors"),
        ("ao", {"anchors": "0"}, r"ao: anchors is 0, wanted 1 to 100000\."),
        ("ao", {"anchors": "many"}, r"ao: anchors is 'many', wanted int\."),
        ("ao", {"mode": "fast"}, r"ao: mode is 'fast', wanted one of alternating, paper\."),
        ("procrustes", {"anchors": "5"}, r"procrustes has no parameter 'anchors'"),
        ("ao", {"learning_rate": "nan"}, r"ao: learning_rate is nan, wanted"),
    ],
)
def test_the_registry_refuses_in_words(name, params, message):
    with pytest.raises(InputError, match=message):
        method(name, **params)


@pytest.mark.parametrize("name", REGISTRY)
def test_every_registered_method_describes_itself(name):
    cls = method_class(name)
    assert cls.name == name and cls.title and cls.source and cls.summary.endswith(".")
    fields = {f.name: f for f in dataclasses.fields(cls)}
    made = method(name)
    for f in fields.values():
        meta = f.metadata
        assert meta["help"] and meta["source"], f"{name}.{f.name} says not what it is or where its default is from"
        assert field_type(cls, f.name) in (int, float, bool, str)
        if field_type(cls, f.name) is str:
            assert f.default in meta["choices"]
        if field_type(cls, f.name) in (int, float):
            assert meta["low"] <= f.default <= meta["high"]
        for other, values in conditions(f):
            assert set(values) <= set(fields[other].metadata["choices"])
    cost = made.estimate(2000, 3000, 50, 100, 15)
    assert cost.memory > 0 and cost.seconds > 0


def test_importing_the_methods_leaves_torch_out():
    """The app server draws forms from these classes."""
    code = (
        "import sys, relcore.methods as m; [m.method(n).estimate(9, 9, 2, 2, 1) for n in m.REGISTRY];"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((5, 5, 3, 3, 1), "Toy needs at least 2 seed pairs, got 1"),
        ((5, 5, 3, 4, 2), "Toy needs equal dimensions, got 3 and 4"),
        ((5, 6, 3, 3, 2), "Toy needs row i of x to be row i of y, got 5 and 6 rows"),
    ],
)
def test_what_a_method_needs_is_checked(sizes, message):
    with pytest.raises(InputError, match=message):
        Toy().check(*sizes)
    Toy().check(5, 5, 3, 3, 2)


def test_fit_drains_the_steps_and_keeps_their_history():
    v = torch.eye(5)
    run = Toy(count=4).fit(v, v, Pairs.by_row(2), generator=torch.Generator())
    assert list(run.history["iteration"]) == [1, 2, 3, 4]
    assert list(run.history["square"]) == [0.0, 1.0, 4.0, 9.0]
    with pytest.raises(InputError, match="needs at least 2"):
        Toy().fit(v, v, Pairs.by_row(1), generator=torch.Generator())


def test_linear_multiplies_from_the_right():
    m = torch.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 3.0]])
    assert Linear(m)(torch.tensor([[1.0, 10.0, 100.0]])).tolist() == [[210.0, 301.0]]
