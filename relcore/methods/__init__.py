"""The registry of methods. Adding a method is one file and one line here."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from importlib import import_module

from relcore.errors import InputError
from relcore.methods.base import Method, field_type, parse_value

REGISTRY = {  # in the order of the form: the four papers' methods, then what they are measured against
    "ao": "anchor_optimization:AnchorOptimization",
    "anchordot": "anchordot:AnchorDOT",
    "hga": "hga:HGA",
    "param": "param:Param",
    "kmeans": "param:KMeans",
    "cca": "cca:GeneralisedCCA",
    "contrastive": "contrastive:Contrastive",
    "procrustes": "procrustes:Procrustes",
    "relative": "relative:Relative",
}


@cache
def method_class(name: str) -> type[Method]:
    """The dataclass of a method.

    Raises
    ------
    InputError
        If there is no such method.
    """
    if name not in REGISTRY:
        raise InputError(f"there is no method {name!r}; choose one of {', '.join(REGISTRY)}.")
    module, cls = REGISTRY[name].split(":")
    return getattr(import_module(f"relcore.methods.{module}"), cls)


def method(name: str, **params) -> Method:
    """A method with the given hyper-parameters; text values are read as the field's type.

    Raises
    ------
    InputError
        Unknown method or parameter, wrong type, or a value out of range.
    """
    cls = method_class(name)
    known = {f.name: f for f in fields(cls)}
    for key, value in params.items():
        if key not in known:
            raise InputError(f"{name} has no parameter {key!r}; it has {', '.join(known)}.")
        if isinstance(value, str):
            params[key] = parse_value(name, known[key], field_type(cls, key), value)
    return cls(**params)
