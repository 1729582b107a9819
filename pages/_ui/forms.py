"""A form from a method's dataclass: one widget a field, with its help, range and choices."""

from __future__ import annotations

import dataclasses
import os

import streamlit as st

from relcore import methods
from relcore.errors import InputError
from relcore.methods.base import Method, conditions, field_type


def method_form(name: str) -> Method | None:
    """Draw the form of a method and return it as filled in; None while a value is refused (the reason is shown)."""
    cls = methods.method_class(name)
    values: dict = {}
    basic = [f for f in dataclasses.fields(cls) if not f.metadata.get("advanced")]
    advanced = [f for f in dataclasses.fields(cls) if f.metadata.get("advanced")]
    for f in basic:
        if _matters(f, values):
            values[f.name] = _widget(cls, f)
    shown = [f for f in advanced if _matters(f, values)]
    if shown:
        with st.expander("Advanced"):
            for f in shown:
                if _matters(f, values):
                    values[f.name] = _widget(cls, f)
    try:
        return methods.method(name, **values)
    except InputError as e:
        st.error(str(e))
        return None


def processes(what: str, key: str) -> int:
    """How many processes of this machine to use."""
    most = os.cpu_count() or 1
    return int(
        st.number_input(
            "Processes",
            1,
            most,
            1,
            key=key,
            persist_state="session",
            help=f"Of this machine, for the {what}. The result does not depend on it; each takes some 300 MB.",
        )
    )


def seconds(value: float) -> str:
    """A time to be expected, in words."""
    if value < 90:
        return f"{max(1, round(value))} s"
    return f"{value / 60:.0f} min" if value < 5400 else f"{value / 3600:.1f} h"


def _matters(f: dataclasses.Field, values: dict) -> bool:
    # a condition that is hidden itself is not met
    return all(values.get(other) in wanted for other, wanted in conditions(f))


def _widget(cls: type[Method], f: dataclasses.Field):
    meta, kind = f.metadata, field_type(cls, f.name)
    label = f.name.replace("_", " ").capitalize() + (f" ({meta['unit']})" if meta.get("unit") else "")
    help = meta["help"] + (f"\n\nDefault {f.default}: {meta['source']}" if meta.get("source") else "")
    common = dict(help=help, key=f"param:{cls.name}:{f.name}", persist_state="session")
    if meta.get("choices"):
        choices = list(meta["choices"])
        return st.selectbox(label, choices, index=choices.index(f.default), **common)
    if kind is bool:
        return st.toggle(label, value=f.default, **common)
    if kind is int:
        return int(st.number_input(label, meta.get("low"), meta.get("high"), f.default, step=1, **common))
    low, high = (None if b is None else float(b) for b in (meta.get("low"), meta.get("high")))
    step = f.default / 2 if meta.get("log") and f.default else None
    return float(st.number_input(label, low, high, float(f.default), step=step, format="%g", **common))
