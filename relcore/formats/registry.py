"""Which formats there are, and which of them a file is."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from types import ModuleType

from relcore.errors import InputError
from relcore.formats.base import shown
from relcore.formats.sniff import COMPRESSIONS, read_head, refuse, suffix, unpacked

# the first that recognises a file reads it
REGISTRY = (
    "npy",
    "sparse",
    "npz",
    "torch",
    "safetensors",
    "parquet",
    "feather",
    "h5ad",
    "h5",
    "word2vec",
    "jsonl",
    "vec",
    "table",
)


def modules() -> list[ModuleType]:
    return [import_module(f"relcore.formats.{name}") for name in REGISTRY]


def endings() -> tuple[str, ...]:
    """The file endings of all formats, for an upload field: compressed ones by their last part."""
    return tuple(dict.fromkeys([e for m in modules() for e in m.ENDINGS] + [e for _, e, _ in COMPRESSIONS]))


def split_spec(spec: str | Path) -> tuple[Path, str | None]:
    """``FILE`` or ``FILE:KEY``. A file whose own name holds the colon wins, then the longest file name that exists."""
    text = str(spec)
    path = Path(os.path.expanduser(text))
    if os.path.exists(path):  # unlike Path.exists, no error for a name that cannot be
        return path, None
    cut = len(text)
    while (cut := text.rfind(":", 0, cut)) > 0:
        if os.path.exists(left := os.path.expanduser(text[:cut])):
            return Path(left), text[cut + 1 :] or None
    return path, None


def reader(path: Path) -> ModuleType:
    """The format of a file, by its first bytes.

    Raises
    ------
    InputError
        No such file, empty, or of a format that is not read: what it looks like and what to do.
    """
    head = read_head(path)
    inside = unpacked(path, head)
    for module in modules():
        if module.recognises(path, inside if getattr(module, "COMPRESSED", False) else head):
            return module
    raise refuse(path, head)


def writer(path: Path) -> ModuleType:
    """The format that a file to be written has, by its ending.

    Raises
    ------
    InputError
        No format has that ending.
    """
    ending = suffix(path)
    packed = ending != path.suffix.lower()
    for module in modules():
        if (
            ending in module.ENDINGS
            and hasattr(module, "write")
            and (not packed or getattr(module, "COMPRESSED", False))
        ):
            return module
    known = [e for module in modules() if hasattr(module, "write") for e in module.ENDINGS]
    raise InputError(
        f"{path.name} ends in {path.suffix or 'nothing'}, which no format is written as; use {shown(known, 40)}."
    )
