"""``.h5``: HDF5 files of named arrays, in groups or not."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from relcore.errors import InputError
from relcore.formats import hdf5
from relcore.formats.base import (
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
    need,
    shown,
)
from relcore.formats.hdf5 import Item, Listing
from relcore.space import Space

NAME = "h5"
ENDINGS = (".h5", ".hdf5")


def recognises(path: Path, head: bytes) -> bool:
    return hdf5.is_hdf5(head)


def arrays(path: Path) -> list[ArrayInfo]:
    """Every array, by its path in the file."""
    return [i.info for i in hdf5.listing(path).items.values()]


def _last(name: str) -> str:
    return name.rsplit("/", 1)[-1]


def _group(name: str) -> str:
    return name.rsplit("/", 1)[0] if "/" in name else ""


def _choose(path: Path, found: Listing) -> tuple[Item, list[str]]:
    """The one array that can only be the vectors, with what was assumed."""
    candidates = [i for i in found.items.values() if i.is_vectors]
    if len(candidates) == 1:
        name = candidates[0].name
        return candidates[0], [f"array {name!r} read as the vectors, the only one of two dimensions"]
    named = [i for i in candidates if _last(i.name).lower() in VECTOR_WORDS]
    if len(named) == 1:
        return named[0], [f"array {named[0].name!r} read as the vectors, by its name"]
    infos = [i.info for i in found.items.values()]
    if candidates:
        text = (
            f"{path.name} holds {len(candidates)} arrays that can be the vectors: {shown([i.info for i in candidates])}"
        )
        raise AmbiguousError(f"{text}; choose one as {path.name}:{candidates[0].name}.", infos)
    if found.left and not infos:
        name, why = next(iter(found.left.items()))
        raise InputError(f"{display(path, name)} {why}.")
    if len(infos) == 1:
        check_two_dimensional(display(path, infos[0].name), infos[0].shape)
    raise InputError(
        f"{path.name} holds no array of rows and numbers, {'only ' + shown(infos) if infos else 'no array at all'}; "
        "save the vectors as one two-dimensional array."
    )


def vectors_of(path: Path, found: Listing, key: str) -> Item:
    """The array chosen by name, which must be of rows and numbers."""
    item = found.check(path, key.strip("/"))
    check_two_dimensional(display(path, key), item.shape)
    if not item.is_vectors:
        raise InputError(f"{display(path, key)} holds {item.dtype} values, wanted numbers; choose another array.")
    return item


def _chosen(request: Request) -> tuple[Listing, Item, list[str]]:
    found = hdf5.listing(request.path)
    if request.key is None:
        return found, *_choose(request.path, found)
    return found, vectors_of(request.path, found, request.key), []


def peek(request: Request) -> Peek:
    _, item, assumed = _chosen(request)
    item.check_size(request.path)
    return Peek(*item.shape, str(np.dtype(item.dtype)), item.memory, assumed=tuple(assumed))


def _as_column(item: Item, what: str) -> None:
    if not (len(item.shape) == 1 or (len(item.shape) == 2 and item.shape[1] == 1)):
        raise InputError(f"{what}: the array has shape {item.shape}, wanted one value a row; choose another array.")


def read(request: Request) -> Raw:
    path, roles = request.path, request.roles
    found, item, assumed = _chosen(request)
    n = item.shape[0]
    warned = []
    # what belongs to the rows stands in the same group, in one above, or in its group "meta"
    home = _group(item.name)
    near = sorted(
        (i for i in found.items.values() if len(i.shape) == 1 and home.startswith(_group(i.name)) and i is not item),
        key=lambda i: -len(_group(i.name)),
    )
    near = [i for i in near if home == _group(i.name) or not _group(i.name) or home.startswith(_group(i.name) + "/")]
    by_word: dict[str, str] = {}
    for i in near:
        by_word.setdefault(_last(i.name), i.name)
    chosen: dict[str, str] = {}
    for role in ROLES:
        wanted = roles.get(role)
        if wanted is not None:
            _as_column(found.check(path, wanted.strip("/")), display(path, wanted))
            chosen[role] = wanted.strip("/")
        elif role not in roles:
            word = by_role_word(role, [w for w, name in by_word.items() if name not in {*roles.values()}])
            if word is None:
                continue
            other = found.items[by_word[word]]
            if other.shape != (n,):
                warned.append(
                    f"array {other.name!r} has {other.shape[0]:,} values for {n:,} vectors: not used as {role}"
                )
            else:
                chosen[role] = other.name
                assumed.append(f"array {other.name!r} read as {role}")
    folder = f"{home}/meta/" if home else "meta/"
    beside = [
        *near,
        *(i for i in found.items.values() if i.name.startswith(folder) and "/" not in i.name[len(folder) :]),
    ]
    meta = {i.name: _last(i.name) for i in beside if i.shape == (n,) and i.name not in chosen.values()}
    vectors, columns = hdf5.read(path, item, list(dict.fromkeys([*chosen.values(), *meta])), request.progress)
    raw = Raw(vectors, assumed=assumed, warned=warned, dtype=str(np.dtype(item.dtype)))
    for role, name in chosen.items():
        setattr(raw, role, columns[name])
    if meta:
        import pandas as pd

        short = list(meta.values())
        raw.meta = pd.DataFrame({last if short.count(last) == 1 else k: columns[k] for k, last in meta.items()})
        raw.assumed.append(f"arrays read as metadata: {shown(list(meta))}")
    if item.turned and item.kind == "dense":
        raw.assumed.append("written by MATLAB: rows and columns read as MATLAB shows them")
    if found.left:
        raw.warned.append(f"{len(found.left):,} objects of the file are not read: {shown(list(found.left))}")
    hdf5.replaced(columns, raw)
    return raw


def column(path: Path, key: str | None, role: str) -> np.ndarray | list:
    """One value a row: the named array, or the only one that can be meant."""
    found = hdf5.listing(path)
    if key is None:
        flat = [i.name for i in found.items.values() if len(i.shape) == 1]
        word = by_role_word(role, [_last(name) for name in flat])
        hits = [name for name in flat if _last(name) == word] or flat
        if len(hits) != 1:
            raise InputError(
                f"{path.name} holds no single array that can be the {role}, but "
                f"{shown([i.info for i in found.items.values()])}; choose one as {path.name}:NAME."
            )
        key = hits[0]
    item = found.check(path, key.strip("/"))
    _as_column(item, display(path, key))
    return hdf5.read(path, None, [item.name])[1][item.name]


def meta_columns(space: Space, reserved: tuple[str, ...] = ()) -> tuple[dict[str, np.ndarray], list[str]]:
    """The metadata as arrays of numbers or of str, under names that a path can have, and what could not be kept."""
    out: dict[str, np.ndarray] = {}
    notes = []
    for title, values in space.meta.items() if space.meta is not None else ():
        name = str(title).replace("/", "_").replace("\0", "_").strip(".") or "column"
        while name in out or name in reserved:
            name += "_"
        if name != title:
            notes.append(f"metadata column {title!r} is written as {name!r}")
        array = values.to_numpy()
        if array.dtype.kind not in "fiub" or array.dtype == np.longdouble:
            missing = values.isna().to_numpy()
            given = [v for v, gap in zip(values, missing, strict=True) if not gap]
            if missing.any():
                notes.append(f"{int(missing.sum()):,} missing cells of metadata column {title!r} are written as empty")
            if any(not isinstance(v, str) for v in given):
                notes.append(f"metadata column {title!r} is written as text")
            array = np.array(["" if gap else str(v) for v, gap in zip(values, missing, strict=True)], dtype=object)
        out[name] = array
    return out, notes


def check_text(path: Path, what: str, values) -> None:
    """Raise :class:`InputError` for texts that HDF5 cannot hold."""
    for row, v in enumerate(values):
        if isinstance(v, str) and ("\0" in v or not _encodes(v)):
            raise InputError(
                f"{path.name}: {what} of row {row} ({v!r}) holds a NUL or half a character, which HDF5 cannot keep; "
                "write another format, such as .npz."
            )


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def write(path: Path, space: Space) -> list[str]:
    """Datasets ``vectors``, ``names``, ``labels``, ``media`` and ``meta/COLUMN``."""
    h5py = need("h5py", f"{path.name}, an HDF5 file,")
    meta, notes = meta_columns(space)
    columns = {"labels": space.labels, "media": space.media, **{f"meta/{name}": v for name, v in meta.items()}}
    if list(space.names) != [str(i) for i in range(len(space))]:
        columns = {"names": space.names, **columns}
    for name, values in columns.items():
        if values is not None and values.dtype == object:
            check_text(path, name, values)
    with h5py.File(path, "w") as f:
        f["vectors"] = space.vectors
        for name, values in columns.items():
            if values is not None:
                dtype = h5py.string_dtype() if values.dtype == object else None
                f.create_dataset(name, data=values, dtype=dtype)
    return notes
