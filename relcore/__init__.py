"""Relcore: align two embedding spaces from few pairs or none, and inspect how well it went.

Importing this package is light: torch and the methods load when first asked for.
"""

from __future__ import annotations

from importlib import import_module

__version__ = "0.1.0"

_HOMES = {
    "Space": "space",
    "Pair": "space",
    "Pairs": "space",
    "Spaces": "space",
    "LoadReport": "space",
    "make_space": "space",
    "load": "formats",
    "align": "pipeline",
    "method": "methods",
    "Run": "runs",
    "InputError": "errors",
    "RunFailed": "errors",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str):
    if name in _HOMES:
        return getattr(import_module(f"relcore.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'relcore' has no attribute {name!r}")
