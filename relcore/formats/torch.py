"""``.pt``, ``.pth`` and other files of ``torch.save``: tensors, alone or in (nested) dicts and lists.

Opened by ``torch.load`` with ``weights_only``, which builds tensors and plain values and calls nothing else; a file
that holds other objects is refused. The zip directory is checked before, and the numbers are memory-mapped. Files from
before torch 1.6 cannot be mapped: their sizes are looked at on the meta device first, where tensors take no memory.

Nested entries are named by their keys with dots between them: ``model.emb.weight``. A list of texts or numbers counts
as an array too, so names and labels can stand beside the vectors; that is also how they are written.
"""

from __future__ import annotations

import math
import pickle
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from relcore import memory
from relcore.errors import InputError
from relcore.formats import named, npy
from relcore.formats.base import (
    MAX_DECODED,
    ArrayInfo,
    Peek,
    Raw,
    Request,
    display,
    need,
    pickle_refusal,
    shown,
)
from relcore.formats.named import Named
from relcore.formats.npz import check_members
from relcore.formats.sniff import ZIP_ERRORS, zip_members
from relcore.space import Space

if TYPE_CHECKING:
    from torch import Tensor

NAME = "torch"
ENDINGS = (".pt", ".pth")
BLOCK = 2**22  # numbers converted at a time
LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # the magic number, pickled, of files before torch 1.6
MAX_PICKLE = 2**30  # bytes of the part that says what the tensors are, and holds all texts
MAX_CONTAINERS = 100_000
MAX_TEXT = 2**30  # characters of one list: a text can stand in it many times and in the file once
_SCALARS = (str, int, float, bool, type(None))


def recognises(path: Path, head: bytes) -> bool:
    if head.startswith(LEGACY):
        return True
    return head.startswith(b"PK\x03\x04") and any(m.split("/")[-1] == "data.pkl" for m in zip_members(path))


class _File(Named):
    """An open file; ``entries`` are its tensors and lists by name.

    Parameters
    ----------
    sizes_only : do not read the numbers of a file that cannot be mapped.
    """

    def __init__(self, path: Path, sizes_only: bool = False):
        super().__init__(path)
        need("torch", path.name)
        with path.open("rb") as f:
            self.legacy = f.read(len(LEGACY)) == LEGACY
        if self.legacy:
            self._use(_load_legacy(path, meta=True))
            if not sizes_only:
                self.entries = dict(_entries(path, _load_legacy(path, meta=False))[0])
        else:
            _check_zip(path)
            self._use(_load(path, mmap=True, map_location="cpu"))

    def _use(self, loaded: Any) -> None:
        entries, ignored = _entries(self.path, loaded)
        self.entries: dict[str, Any] = dict(entries)
        if len(self.entries) < len(entries):
            raise InputError(f"{self.path.name}: two entries have the same name; rename one of their keys.")
        for name, value in self.entries.items():
            if isinstance(value, list):
                self.infos[name] = ArrayInfo(name, (len(value),), "str" if _is_text(value) else "<f8")
            else:
                self._check_extent(name, value)
                self.infos[name] = ArrayInfo(name, tuple(value.shape), _dtype(value))
        if not any(isinstance(v, list) is False for v in self.entries.values()):
            raise InputError(f"{self.path.name} holds no tensor; save the vectors as one tensor, two-dimensional.")
        if ignored:
            self.warned.append(f"{len(ignored):,} entries that are no tensors are not read: {shown(ignored)}")

    def _check_extent(self, name: str, t: Tensor) -> None:
        """A tensor must lie inside its storage, and that inside the file."""
        if t.is_meta and not self.legacy:
            return
        size = self.path.stat().st_size
        for part in _parts(t)[1]:
            held, extent = part.untyped_storage().nbytes(), 0
            if part.numel():
                last = sum((s - 1) * k for s, k in zip(part.shape, part.stride(), strict=True))
                extent = (part.storage_offset() + last + 1) * part.element_size()
            if extent > held or held > size:
                raise InputError(
                    f"{display(self.path, name)}: a tensor of shape {tuple(part.shape)} claims {max(extent, held):,} "
                    f"bytes, but {min(held, size):,} are there; the file is damaged, write or download it again."
                )

    def _tensor(self, name: str) -> Tensor:
        """The tensor, its numbers checked against the checksum in the file."""
        import torch

        t, what = self.entries[name].detach(), display(self.path, name)
        if t.is_meta:
            raise InputError(
                f"{what} is a tensor on the meta device, which has a shape but no numbers; save real ones."
            )
        if t.layout is torch.strided and not self.legacy:
            _verify_storage(self.path, what, t.untyped_storage().nbytes())
        return t.resolve_neg() if t.layout is torch.strided and not t.is_quantized else t

    def _in_place(self, t: Tensor) -> bool:
        import torch

        return t.dtype is torch.float32 and t.layout is torch.strided and t.is_contiguous() and not t.is_neg()

    def cost(self, name: str) -> int:
        t = self.entries[name]
        if not isinstance(t, list) and self._in_place(t):
            return self.path.stat().st_size if self.legacy else 0
        return (
            4 * math.prod(t.shape)
            + 12 * min(BLOCK, math.prod(t.shape))
            + (self.path.stat().st_size if self.legacy else 0)
        )

    def vectors(self, name: str, progress: Callable[[float], None]) -> np.ndarray:
        import torch

        t, what = self._tensor(name), display(self.path, name)
        if t.layout is not torch.strided:
            return _densified(t, what, progress)
        size = 4 * t.numel()
        if t.numel() * t.element_size() > t.untyped_storage().nbytes() and size > min(MAX_DECODED, memory.available()):
            raise InputError(
                f"{what} has shape {tuple(t.shape)}, {memory.as_text(size)} as numbers, but the file holds "
                f"{memory.as_text(t.untyped_storage().nbytes())} that are repeated; save the rows that are meant."
            )
        if self._in_place(t):
            return t.numpy()
        try:
            if t.is_quantized:
                return t.dequantize().contiguous().numpy()
            n, d = t.shape
            out = np.empty((n, d), np.float32)
            target, step = torch.from_numpy(out), max(1, BLOCK // max(1, d))
            for i in range(0, n, step):
                target[i : i + step] = t[i : i + step]
                progress(min(1.0, (i + step) / n))
        except RuntimeError as e:
            raise InputError(f"{what}: {_dtype(t)} numbers cannot be read ({e}); save them as float32.") from None
        return out

    def values(self, name: str) -> Sequence:
        import torch

        value, what = self.entries[name], display(self.path, name)
        if isinstance(value, list):
            return value
        t = self._tensor(name)
        if t.numel() * t.element_size() > 4 * max(t.untyped_storage().nbytes(), 2**20) or t.layout is not torch.strided:
            raise InputError(f"{what} is no plain tensor, wanted one value a row; save it as one.")
        known = named.dtype_name(_dtype(t)) != _dtype(t)
        return npy.as_column(what, (t.clone() if known else t.float()).numpy())


def _is_text(values: list) -> bool:
    return any(isinstance(v, str) for v in values)


def _dtype(t: Tensor) -> str:
    """As numpy spells it where it can (``<f4``), else as torch does (``bfloat16``)."""
    name = str(t.dtype).removeprefix("torch.")
    try:
        return name if name.startswith(("bfloat", "float8")) else np.dtype(name).str
    except TypeError:
        return name


def _check_zip(path: Path) -> None:
    """Raise :class:`InputError` unless torch writes such a directory and the small parts match their checksums."""
    try:
        with zipfile.ZipFile(path) as z:
            members = z.infolist()
            check_members(path, members, most=MAX_CONTAINERS)
            names = {m.filename.split("/", 1)[-1] for m in members}
            if "constants.pkl" in names:
                raise InputError(
                    f"{path.name} is a TorchScript program, which is code; save its vectors with "
                    "torch.save(tensor, 'vectors.pt')."
                )
            packed = next((m for m in members if m.compress_type != zipfile.ZIP_STORED), None)
            if packed is not None:
                raise InputError(
                    f"{path.name}: {packed.filename!r} is compressed, but torch.save writes plain members; "
                    "unpack it and save the tensors again."
                )
            for m in members:
                if m.filename.endswith("data.pkl") and m.file_size > MAX_PICKLE:
                    raise InputError(
                        f"{path.name}: the description of the tensors takes {memory.as_text(m.file_size)}, at most "
                        f"{memory.as_text(MAX_PICKLE)} are read; save the vectors alone."
                    )
                if "/data/" not in m.filename:
                    _verify(z, m)
    except InputError:
        raise
    except ZIP_ERRORS as e:
        raise InputError(f"{path.name} is a damaged PyTorch file ({e}); write or download it again.") from None


def _verify(z: zipfile.ZipFile, m: zipfile.ZipInfo) -> None:
    """Read a member to its end, where zipfile compares the checksum; 0 is written where there is none."""
    if m.CRC:
        with z.open(m) as f:
            while f.read(2**20):
                pass


def _verify_storage(path: Path, what: str, size: int) -> None:
    """Verify the part that holds a storage of this size; if several have it, all of them."""
    try:
        with zipfile.ZipFile(path) as z:
            parts = [m for m in z.infolist() if "/data/" in m.filename and m.file_size == size]
            if not parts and size:
                raise InputError(f"{what}: no part of the file has its {size:,} bytes; it is damaged, write it again.")
            for m in parts:
                _verify(z, m)
    except ZIP_ERRORS as e:
        if isinstance(e, InputError):
            raise
        raise InputError(f"{path.name} is a damaged PyTorch file ({e}); write or download it again.") from None


def _load(path: Path, **options) -> Any:
    import torch

    if path.suffix == ".safetensors":
        raise InputError(f"{path.name} is a PyTorch file with the ending of another format; rename it to .pt.")
    try:
        with warnings.catch_warnings():  # on sparse and quantised tensors, and on unusual pickle protocols
            warnings.simplefilter("ignore")
            return torch.load(str(path), weights_only=True, **options)
    except pickle.UnpicklingError:
        raise pickle_refusal(path.name) from None
    except Exception as e:  # damaged bytes raise nearly anything
        why = (str(e).splitlines() or [""])[0][:120] or type(e).__name__
        raise InputError(
            f"{path.name} cannot be opened as a PyTorch file ({why}); it is damaged or of a kind that is not read, so "
            "write or download it again, or save the vectors with np.save."
        ) from None


def _load_legacy(path: Path, meta: bool) -> Any:
    size = path.stat().st_size
    if size > MAX_DECODED:
        raise InputError(
            f"{path.name} has {memory.as_text(size)} in torch's old format, which cannot be mapped; at most "
            f"{memory.as_text(MAX_DECODED)} are read, so save it again with a torch of this decade."
        )
    return _load(path, map_location="meta" if meta else "cpu")


def _entries(path: Path, loaded: Any) -> tuple[list[tuple[str, Any]], list[str]]:
    """All tensors and flat lists with their dotted names, and the names of what is neither.

    A container that stands in several places is shown once, so that a file cannot make it grow without end.
    """
    import torch

    out: list[tuple[str, Any]] = []
    ignored: list[str] = []
    seen: set[int] = set()
    todo: list[tuple[str, Any]] = [("", loaded)]
    while todo:
        name, value = todo.pop()
        if isinstance(value, torch.Tensor):
            out.append((name, value))
        elif not isinstance(value, Mapping | list | tuple) or id(value) in seen:
            ignored.append(name or type(value).__name__)
        elif isinstance(value, list | tuple) and value and all(isinstance(v, _SCALARS) for v in value):
            if sum(len(v) for v in value if isinstance(v, str)) > MAX_TEXT:
                raise InputError(f"{path.name}: the texts of {name!r} take over {MAX_TEXT:,} characters; shorten them.")
            out.append((name, list(value)))
        else:
            seen.add(id(value))
            items = list(value.items() if isinstance(value, Mapping) else enumerate(value))
            if len(seen) + len(todo) + len(items) > MAX_CONTAINERS:
                raise InputError(f"{path.name} holds over {MAX_CONTAINERS:,} entries; save the vectors alone.")
            todo += [(f"{name}.{k}" if name else str(k), v) for k, v in reversed(items)]
    return out, ignored


def _parts(t: Tensor) -> tuple[str, list[Tensor]]:
    """The layout and the tensors of numbers and indices, in scipy's order; a dense tensor is its own only one."""
    import torch

    if t.layout is torch.strided:
        return "", [t]
    if t.layout is torch.sparse_coo:
        return "coo", [t._values(), *t._indices()]
    if t.layout in (torch.sparse_csr, torch.sparse_bsr):
        return "csr" if t.layout is torch.sparse_csr else "bsr", [t.values(), t.col_indices(), t.crow_indices()]
    if t.layout is torch.sparse_csc:
        return "csc", [t.values(), t.row_indices(), t.ccol_indices()]
    return str(t.layout), []


def _densified(t: Tensor, what: str, progress: Callable[[float], None]) -> np.ndarray:
    """A sparse tensor as a dense array. Its indices are checked by scipy, for torch does not unless it is told to."""
    import torch

    from relcore.formats import sparse

    form, parts = _parts(t)
    if not parts:
        raise InputError(f"{what} is a tensor of the layout {form}, which is not read; save tensor.to_dense().")
    sparse.check_budget(what, tuple(t.shape))
    if any(p.numel() * p.element_size() > p.untyped_storage().nbytes() for p in parts):
        raise InputError(f"{what}: the parts of the sparse tensor are damaged; write the file again.")
    if parts[0].dtype not in (torch.float32, torch.float64):
        parts[0] = parts[0].float()
    return sparse.to_dense(sparse.build(what, form, [p.numpy() for p in parts], tuple(t.shape)), what, progress)


def arrays(path: Path) -> list[ArrayInfo]:
    return list(_File(path, sizes_only=True).infos.values())


def peek(request: Request) -> Peek:
    return named.peek(_File(request.path, sizes_only=True), request)


def read(request: Request) -> Raw:
    return named.read(_File(request.path), request)


def column(path: Path, key: str | None, role: str) -> Sequence:
    return _File(path).column(key, role)


def write(path: Path, space: Space) -> list[str]:
    torch = need("torch", path.name)
    beside, notes = named.columns_to_write(space, kinds="fiub")
    tensors = {k: v if isinstance(v, list) else torch.from_numpy(np.array(v)) for k, v in beside.items()}
    torch.save({"vectors": space.tensor(), **tensors}, path)
    return notes
