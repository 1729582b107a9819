"""Files of several named arrays (.npz, .pt, .safetensors): which is the vectors, which are names, labels, metadata.

A reader opens its file as a :class:`Named`; what is chosen from it, and in which words, is the same for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from relcore.errors import InputError
from relcore.formats.base import (
    ROLE_WORDS,
    ROLES,
    VECTOR_WORDS,
    AmbiguousError,
    ArrayInfo,
    Peek,
    Raw,
    Request,
    by_role_word,
    check_two_dimensional,
    display,
    is_number,
    pickle_refusal,
    shown,
)
from relcore.space import Refused, Space

META = "meta/"  # stands before a metadata column whose own name would be taken for something else
_RESERVED = {w for words in ROLE_WORDS.values() for w in words} | {*ROLES, *VECTOR_WORDS}


class Named:
    """An open file of named arrays.

    Attributes
    ----------
    infos : its arrays by name, told from headers. A list of texts is an array of dtype ``str``.
    objects : names of what holds Python objects: refused, but only if it is asked for.
    """

    def __init__(self, path: Path):
        self.path = path
        self.infos: dict[str, ArrayInfo] = {}
        self.objects: Set[str] = set()
        self.warned: list[str] = []

    def vectors(self, name: str, progress: Callable[[float], None]) -> np.ndarray:
        """An array (n, d) of numbers, as float32 in C order."""
        raise NotImplementedError

    def values(self, name: str) -> Sequence:
        """One value a row, of an array (n,) or (n, 1)."""
        raise NotImplementedError

    def cost(self, name: str) -> int:
        """Bytes that :meth:`vectors` takes at its height beside the file."""
        raise NotImplementedError

    def check(self, name: str) -> None:
        """Raise :class:`InputError` unless there is a plain array of this name."""
        if name in self.objects:
            raise pickle_refusal(display(self.path, name))
        if name not in self.infos:
            raise InputError(
                f"{self.path.name} has no array {name!r}; it has {shown(list(self.infos.values()))}. "
                f"Choose one as {self.path.name}:NAME."
            )

    def column(self, key: str | None, role: str) -> Sequence:
        """One value a row: the named array, or the only one that can be meant."""
        if key is None:
            flat = [i.name for i in self.infos.values() if len(i.shape) == 1]
            key = _role(role, flat) or (flat[0] if len(flat) == 1 else None)
            if key is None:
                raise InputError(
                    f"{self.path.name} holds no single array that can be the {role}, but "
                    f"{shown(list(self.infos.values())) or 'no array at all'}; choose one as {self.path.name}:NAME."
                )
        self.check(key)
        return self.values(key)


def _role(role: str, candidates: Sequence[str]) -> str | None:
    """The candidate that is called like the role itself, or else by its best-liked word."""
    return role if role in candidates else by_role_word(role, candidates)


def check_numbers(what: str, dtype: str) -> None:
    """Raise :class:`InputError` unless the dtype is of real numbers."""
    known = _numpy(dtype)
    if known is not None and known.kind == "V":
        raise InputError(
            f"{what}: holds records or numbers of a kind that .npy cannot name, such as bfloat16 ({known.itemsize} "
            "bytes each), wanted plain numbers; save array.astype(numpy.float32), or records with "
            "numpy.lib.recfunctions.structured_to_unstructured."
        )
    if not is_number(dtype):
        raise InputError(f"{what}: holds {dtype_name(dtype)} values, wanted numbers; choose a numeric array.")


def _numpy(dtype: str) -> np.dtype | None:
    """The dtype, or None where numpy does not know it by itself, such as bfloat16."""
    try:
        known = np.dtype(dtype)
    except TypeError:
        return None
    return None if known.isbuiltin == 2 else known  # 2: registered by ml_dtypes, which jax loads


def dtype_name(dtype: str) -> str:
    """``float32`` for ``<f4``; what numpy does not know stays as it is."""
    known = _numpy(dtype)
    return dtype if known is None else str(known)


def choose(a: Named) -> tuple[str, list[str]]:
    """The one array that can only be the vectors, with what was assumed.

    Raises
    ------
    AmbiguousError
        Several can be.
    InputError
        None can be.
    """
    candidates = [i for i in a.infos.values() if i.is_vectors]
    if len(candidates) == 1:
        name = candidates[0].name
        return name, [f"array {name!r} read as the vectors, the only one of two dimensions"] if name else []
    named = [i for i in candidates if i.name.lower() in VECTOR_WORDS]
    if len(named) == 1:
        return named[0].name, [f"array {named[0].name!r} read as the vectors, by its name"]
    if candidates:
        text = f"{a.path.name} holds {len(candidates)} arrays that can be the vectors: {shown(candidates)}"
        raise AmbiguousError(f"{text}; choose one as {a.path.name}:{candidates[0].name}.", list(a.infos.values()))
    if a.objects:
        raise pickle_refusal(display(a.path, min(a.objects)))
    if len(a.infos) == 1:
        info = next(iter(a.infos.values()))
        check_numbers(display(a.path, info.name), info.dtype)
        check_two_dimensional(display(a.path, info.name), info.shape)
    raise InputError(
        f"{a.path.name} holds no array of rows and numbers, only {shown(list(a.infos.values())) or 'none at all'}; "
        "save the vectors as one two-dimensional array."
    )


@dataclass
class _Plan:
    """Which array is what: the vectors, the roles, and the metadata by the name of its column."""

    key: str
    roles: dict[str, str] = field(default_factory=dict)
    meta: dict[str, str] = field(default_factory=dict)
    assumed: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)


def _plan(a: Named, request: Request) -> _Plan:
    key, assumed = (request.key, []) if request.key is not None else choose(a)
    a.check(key)
    info, what = a.infos[key], display(a.path, key)
    check_numbers(what, info.dtype)
    check_two_dimensional(what, info.shape)
    plan = _Plan(key, assumed=assumed, warned=list(a.warned))
    n = info.shape[0]
    beside = [i.name for i in a.infos.values() if len(i.shape) == 1 and i.name != key]
    taken = set(request.roles.values()) - {None}
    for role in ROLES:
        if role in request.roles:
            name = request.roles[role]
            if name is None:
                continue
            a.check(name)
            found = a.infos[name].shape
            if found and found[0] != n:
                plan.refused.append(Refused(role, display(a.path, name), found[0], n))
                continue
        else:
            name = _role(role, [b for b in beside if b not in taken])
            if name is None:
                continue
            if a.infos[name].shape != (n,):
                plan.warned.append(
                    f"array {name!r} has {a.infos[name].shape[0]:,} values for {n:,} vectors: not used as {role}"
                )
                continue
            plan.assumed.append(f"array {name!r} read as {role}")
        taken.add(name)
        plan.roles[role] = name
    for name in beside:
        title = name.removeprefix(META)
        if name not in taken and a.infos[name].shape == (n,) and _is_plain(a.infos[name].dtype):
            plan.meta[title if title not in plan.meta else name] = name
    if plan.meta:
        plan.assumed.append(f"arrays read as metadata: {shown(list(plan.meta))}")
    if a.objects:
        plan.warned.append(
            f"arrays of Python objects, not read: {shown(sorted(a.objects))}; save texts with numpy.array(texts, str)"
        )
    return plan


def _is_plain(dtype: str) -> bool:
    """Whether the values can stand in a column of metadata."""
    known = _numpy(dtype)
    return is_number(dtype) or known is not None and known.kind in "cUSmM"


def _beside(a: Named, plan: _Plan) -> int:
    """Bytes of the names, labels and metadata that are read with the vectors."""
    infos = [a.infos[name] for name in {*plan.roles.values(), *plan.meta.values()}]
    return sum(math.prod(i.shape) * getattr(_numpy(i.dtype), "itemsize", 4) for i in infos)


def peek(a: Named, request: Request) -> Peek:
    plan = _plan(a, request)
    info = a.infos[plan.key]
    memory = a.cost(plan.key) + _beside(a, plan)
    said = {"assumed": tuple(plan.assumed), "warned": tuple(plan.warned)}
    return Peek(*info.shape, dtype_name(info.dtype), memory, **said)


def read(a: Named, request: Request) -> Raw:
    plan = _plan(a, request)
    vectors = a.vectors(plan.key, request.progress)
    raw = Raw(vectors, assumed=plan.assumed, warned=plan.warned, refused=plan.refused)
    raw.dtype = dtype_name(a.infos[plan.key].dtype)
    for role, name in plan.roles.items():
        setattr(raw, role, a.values(name))
    if plan.meta:
        import pandas as pd

        raw.meta = pd.DataFrame({title: a.values(name) for title, name in plan.meta.items()})
    return raw


def columns_to_write(space: Space, kinds: str) -> tuple[dict[str, np.ndarray | list[str]], list[str]]:
    """What stands beside the vectors, by the names under which :func:`read` finds it again; and what changes.

    Parameters
    ----------
    kinds : the numpy dtype kinds that the format holds; other columns of the metadata are written as texts.
    """
    out: dict[str, np.ndarray | list[str]] = {}
    notes: list[str] = []
    if any(name != str(i) for i, name in enumerate(space.names)):  # row numbers come back by themselves
        out["names"] = list(space.names)
    for role in ("labels", "media"):
        if getattr(space, role) is not None:
            out[role] = list(getattr(space, role))
    for title, column in space.meta.items() if space.meta is not None else ():
        name = str(title)
        plain = name.strip().lower() not in _RESERVED and name and not name.startswith(META)
        key = name if plain else META + name
        if key in out:
            raise InputError(f"the metadata has two columns called {name!r}; rename one of them.")
        values = column.to_numpy()
        if values.dtype.kind in kinds and values.dtype.itemsize <= 8:
            out[key] = values
            continue
        missing = column.isna().to_numpy()
        out[key] = ["" if m else str(v) for v, m in zip(values, missing, strict=True)]
        if missing.any():
            notes.append(f"{int(missing.sum()):,} missing values of column {name!r} are written as empty texts")
        if not all(isinstance(v, str) for v in values[~missing]):
            notes.append(f"column {name!r} ({column.dtype}) is written as texts")
    return out, notes
