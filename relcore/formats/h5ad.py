"""``.h5ad``: annotated matrices (anndata). ``X``, ``layers`` and ``obsm`` are vectors, ``obs`` names and metadata."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

from relcore.errors import InputError
from relcore.formats import hdf5
from relcore.formats.base import (
    LABEL_WORDS,
    ROLES,
    AmbiguousError,
    ArrayInfo,
    Peek,
    Raw,
    Request,
    by_role_word,
    display,
    need,
    shown,
)
from relcore.formats.h5 import check_text, meta_columns, vectors_of
from relcore.formats.hdf5 import Item, Listing
from relcore.space import Space

NAME = "h5ad"
ENDINGS = (".h5ad",)
# what obs columns that tell classes of cells are called, after the words that tables use
CELL_WORDS = (*LABEL_WORDS, "cell_type", "celltype", "annotation", "cluster", "clusters", "leiden", "louvain")


def recognises(path: Path, head: bytes) -> bool:
    if not hdf5.is_hdf5(head):
        return False
    try:
        return hdf5.listing(path).is_anndata
    except InputError:
        return path.suffix.lower() in ENDINGS  # the reader says what is wrong


def _listed(found: Listing) -> list[Item]:
    """The arrays with a row a cell: matrices, and columns of obs."""
    groups = ("obsm/", "layers/", "obs/", "raw/X")
    return [
        i
        for i in found.items.values()
        if i.name == "X" or (i.name.startswith(groups) and i.name.count("/") == 1 and len(i.shape) in (1, 2))
    ]


def arrays(path: Path) -> list[ArrayInfo]:
    found = hdf5.listing(path)
    index = _index(found)
    return [i.info for i in _listed(found) if i.name != index]


def _index(found: Listing) -> str | None:
    """The array that names the cells."""
    name = f"obs/{found.attrs.get('obs', {}).get('_index', '_index')}"
    return name if name in found.items else None


def _choose(path: Path, found: Listing) -> tuple[Item, list[str]]:
    candidates = [i for i in _listed(found) if i.is_vectors and (i.name == "X" or i.name.startswith("obsm/"))]
    candidates.sort(key=lambda i: i.name != "X")
    layers = [i for i in _listed(found) if i.is_vectors and i.name.startswith("layers/")]
    usable = candidates or layers
    if len(usable) == 1:
        return usable[0], [f"array {usable[0].name!r} read as the vectors, the only one of X and obsm"]
    if usable:
        text = f"{path.name} holds {len(usable)} arrays that can be the vectors: {shown([i.info for i in usable])}"
        wanted = next((i for i in usable if i.name.startswith("obsm/")), usable[0])
        raise AmbiguousError(f"{text}; choose one as {path.name}:{wanted.name}.", [i.info for i in _listed(found)])
    if "X" in found.left:
        raise InputError(f"{display(path, 'X')} {found.left['X']}.")
    raise InputError(f"{path.name} holds neither X nor obsm, so no vectors; check how it was written.")


def _chosen(request: Request) -> tuple[Listing, Item, list[str]]:
    found = hdf5.listing(request.path)
    if request.key is None:
        return found, *_choose(request.path, found)
    return found, vectors_of(request.path, found, request.key), []


def peek(request: Request) -> Peek:
    _, item, assumed = _chosen(request)
    item.check_size(request.path)
    return Peek(*item.shape, str(np.dtype(item.dtype)), item.memory, assumed=tuple(assumed))


def _need_anndata(path: Path, items: list[Item]) -> None:
    if any(i.kind == "column" for i in items):
        need("anndata", f"{path.name}, an .h5ad file with categories,")


def _obs(path: Path, found: Listing, name: str) -> Item:
    """A column of obs, by ``obs/NAME`` or NAME alone."""
    name = name.strip("/")
    return found.check(path, name if name in found.items or name.startswith("obs/") else f"obs/{name}")


def read(request: Request) -> Raw:
    path, roles = request.path, request.roles
    found, item, assumed = _chosen(request)
    n, warned = item.shape[0], []
    index = _index(found)
    columns = {i.name[4:]: i for i in _listed(found) if i.name.startswith("obs/") and i.name != index}
    short = [name for name, i in columns.items() if i.shape != (n,)]
    if short:
        columns = {name: i for name, i in columns.items() if i.shape == (n,)}
        warned.append(f"columns of obs without one value for each of the {n:,} vectors are not read: {shown(short)}")
    chosen: dict[str, Item] = {}
    for role in ROLES:
        wanted = roles.get(role)
        if wanted is not None:
            chosen[role] = _obs(path, found, wanted)
        elif role not in roles:
            name = _by_word(
                role, [c for c in columns if columns[c].name not in {*roles.values()} and c not in {*roles.values()}]
            )
            if role == "names" and index is not None and found.items[index].shape == (n,):
                chosen[role] = found.items[index]
                assumed.append(f"{index!r} read as names")
            elif name is not None:
                chosen[role] = columns[name]
                assumed.append(f"{columns[name].name!r} read as {role}")
    taken = {i.name for i in chosen.values()}
    meta = {name: i for name, i in columns.items() if i.name not in taken}
    wanted = {i.name: i for i in (*chosen.values(), *meta.values())}
    _need_anndata(path, list(wanted.values()))
    vectors, values = hdf5.read(path, item, list(wanted), request.progress)
    raw = Raw(vectors, assumed=assumed, warned=warned, dtype=str(np.dtype(item.dtype)))
    for role, i in chosen.items():
        setattr(raw, role, values[i.name])
    if meta:
        import pandas as pd

        raw.meta = pd.DataFrame({name: values[i.name] for name, i in meta.items()})
        raw.assumed.append(f"columns of obs read as metadata: {shown(list(meta))}")
    if item.kind != "dense":
        raw.assumed.append(f"{item.name} is sparse ({item.kind}), read as a full matrix")
    lost = [name for name in found.left if name == "obs" or name.startswith("obs/")]
    if lost:
        raw.warned.append(f"{len(lost):,} parts of obs are not read: {shown(lost)}; {found.left[lost[0]]}")
    hdf5.replaced(values, raw)
    return raw


def _by_word(role: str, names: list[str]) -> str | None:
    if role != "labels":
        return by_role_word(role, names)
    hits = [c for c in names if c.strip().lower() in CELL_WORDS]
    return min(hits, key=lambda c: CELL_WORDS.index(c.strip().lower()), default=None)


def column(path: Path, key: str | None, role: str) -> np.ndarray | list:
    """One value a cell: a column of obs, or the one that can be meant; for names, the cells' names."""
    found = hdf5.listing(path)
    if key is None:
        obs = [i.name[4:] for i in _listed(found) if i.name.startswith("obs/")]
        name = _index(found) if role == "names" else None
        word = _by_word(role, obs)
        key = name or (f"obs/{word}" if word else None)
        if key is None:
            raise InputError(
                f"{path.name} has no column of obs that can be the {role}, but {shown(obs)}; "
                f"choose one as {path.name}:obs/NAME."
            )
    item = _obs(path, found, key)
    if len(item.shape) != 1:
        raise InputError(
            f"{display(path, key)} has shape {item.shape}, wanted one value a row; choose a column of obs."
        )
    _need_anndata(path, [item])
    return hdf5.read(path, None, [item.name])[1][item.name]


def write(path: Path, space: Space) -> list[str]:
    """X are the vectors, obs_names the names; labels, media and metadata are columns of obs."""
    anndata = need("anndata", f"{path.name}, an .h5ad file,")
    import pandas as pd

    meta, notes = meta_columns(space, ("_index", "label", "media"))
    columns = {"label": space.labels, "media": space.media, **meta}
    columns = {name: values for name, values in columns.items() if values is not None}
    for name, values in {"names": space.names, **columns}.items():
        if values.dtype == object:
            check_text(path, name, values)
    obs = pd.DataFrame(columns, index=pd.Index(list(space.names), dtype=str))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names need not be unique here
        data = anndata.AnnData(X=np.array(space.vectors), obs=obs)
        data.write_h5ad(path, convert_strings_to_categoricals=False)
    return notes
