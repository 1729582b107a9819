"""What a file is by its first bytes. The ending is only a hint: renamed files and saved error pages are common."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import struct
import zipfile
import zlib
from pathlib import Path

from relcore.errors import InputError
from relcore.formats.base import pickle_refusal

HEAD = 4096
_AS_NPY = "save the vectors with np.save and load that .npy file"

# what zipfile lets through on damaged bytes, beside its own error
ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, RuntimeError, LookupError, struct.error)

# two lines of words could be a list of labels, so what follows them in a pickle is looked at too
_PICKLE = re.compile(rb"\x80[\2-\5]|\([dli]p?\d*\n|c[a-z_.]+\n\w+\n(p\d+\n|q[\0-\x1f]|[(\]})])|[]}(]q[\0-\x1f]")

# files that Relcore does not read: first bytes, what they are, what to do
_FOREIGN = (
    (b"MATLAB", "a MATLAB file", "save it with -v7.3, which makes it HDF5, or " + _AS_NPY),
    (b"\x1f\x8b", "something gzip-compressed", "unpack it first (gunzip)"),
    (b"BZh", "something bzip2-compressed", "unpack it first (bunzip2)"),
    (b"\xfd7zXZ\x00", "something xz-compressed", "unpack it first (unxz)"),
    (b"\x28\xb5\x2f\xfd", "something zstd-compressed", "unpack it first (unzstd)"),
    (struct.pack("<i", 793712314), "a fastText model", "load the .vec file that comes with it, as an array"),
    (b"\x89PNG", "a PNG picture", "give the file that holds the vectors"),
    (b"\xff\xd8\xff", "a JPEG picture", "give the file that holds the vectors"),
)
# the same for files that look like text
_FOREIGN_TEXT = (
    (b"version https://git-lfs", "a Git LFS pointer", "fetch the file it stands for with git lfs pull"),
    (b"%PDF-", "a PDF document", "give the file that holds the vectors"),
    (b"%!PS", "a PostScript document", "give the file that holds the vectors"),
    (b"{\\rtf", "a rich text document", "save the text as CSV"),
)
_UTF32 = (b"\xff\xfe\0\0", b"\0\0\xfe\xff")


def read_head(path: Path) -> bytes:
    """The first bytes of a file.

    Raises
    ------
    InputError
        The file is missing, a directory, empty or not readable.
    """
    if os.path.isdir(path):
        raise InputError(f"{path} is a directory, wanted a file; give the file that holds the vectors.")
    if not os.path.exists(path):  # unlike Path.exists, no error for a name that cannot be
        raise InputError(f"there is no file {path}; check the path.")
    if not path.is_file():
        raise InputError(f"{path} is not a regular file; give the file that holds the vectors.")
    try:
        with path.open("rb") as f:
            head = f.read(HEAD)
    except OSError as e:
        raise InputError(f"{path} cannot be read ({os.strerror(e.errno)}); check its permissions.") from None
    if not head:
        raise InputError(f"{path.name} is empty (0 bytes); check how it was written or downloaded.")
    return head


# text is read through these: first bytes, endings, how the file is opened
COMPRESSIONS = (
    (b"\x1f\x8b", ".gz", gzip.open),
    (b"BZh", ".bz2", bz2.open),
    (b"\xfd7zXZ\x00", ".xz", lzma.open),
)
# what they raise on damaged bytes
COMPRESSION_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError, ValueError)


def suffix(path: Path) -> str:
    """The ending that tells the format, in lower case: of ``en.vec.gz`` it is ``.vec``."""
    last = path.suffix.lower()
    return Path(path.stem).suffix.lower() if last in {ending for _, ending, _ in COMPRESSIONS} else last


def unpacked(path: Path, head: bytes) -> bytes:
    """The first bytes of what is inside a compressed file; those of the file itself if it is none, or damaged."""
    for magic, _, opener in COMPRESSIONS:
        if head.startswith(magic):
            try:
                with opener(path, "rb") as f:
                    return f.read(HEAD)
            except COMPRESSION_ERRORS:
                return head
    return head


def is_text(head: bytes) -> bool:
    """Whether the bytes can be plain text: UTF-16 with its mark, or no NUL and hardly a control character."""
    if head.startswith(_UTF32):
        return False
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return True
    if head.startswith(tuple(magic for magic, _, _ in _FOREIGN_TEXT)):
        return False
    control = sum(b < 32 and b not in (9, 10, 12, 13) for b in head)
    return b"\0" not in head and control <= len(head) // 100


def is_pickle(path: Path, head: bytes) -> bool:
    """Protocols 2 to 5 have a mark; 0 and 1 are known by their ending or their usual beginnings."""
    return bool(_PICKLE.match(head)) or path.suffix.lower() in (".pkl", ".pickle")


def zip_members(path: Path) -> list[str]:
    """Member names of a zip file, without reading any of them; empty if its directory is broken."""
    try:
        with zipfile.ZipFile(path) as z:
            return z.namelist()
    except ZIP_ERRORS:
        return []


def refuse(path: Path, head: bytes) -> InputError:
    """The error for a file no reader takes: what it looks like and what to do."""
    name = path.name
    if is_pickle(path, head):
        return pickle_refusal(name)
    if head.startswith(b"PK\x05\x06"):
        return InputError(f"{name} is a zip file with nothing in it, such as an .npz of no arrays; write it again.")
    if head.startswith(b"PK\x03\x04"):
        members = zip_members(path)
        if any(m.startswith("xl/") for m in members):
            return InputError(f"{name} looks like an Excel workbook; save the sheet as CSV and load that.")
        if not members:
            return InputError(
                f"{name} looks like a zip file, but its directory is damaged; download or write it again."
            )
        return InputError(f"{name} looks like a zip archive without a .npy array inside; unpack it and give one file.")
    if head[:9].lower().startswith((b"<html", b"<!doctype", b"<?xml")) or head.lstrip()[:1] == b"<":
        return InputError(f"{name} looks like a web page (HTML or XML), not vectors; download the file itself again.")
    if head.startswith(tuple(magic for magic, _, _ in COMPRESSIONS)) and unpacked(path, head) is head:
        return InputError(f"{name} is compressed and damaged; write or download it again.")
    for magic, what, todo in (*_FOREIGN, *_FOREIGN_TEXT):
        if head.startswith(magic):
            return InputError(f"{name} looks like {what}, which is not read here; {todo}.")
    if head.startswith(_UTF32) or len(head) > 3 and (not any(head[1::2]) or not any(head[::2])):
        return InputError(f"{name} looks like text in UTF-16 or UTF-32 without its mark; save it as UTF-8.")
    if (at := head.find(b"\0")) > 0 and is_text(head.replace(b"\0", b"")):
        return InputError(f"{name} looks like text, but byte {at:,} is NUL, which no text holds; write it again.")
    if len(head) > 9 and head[8:9] == b"{" and b'"dtype"' in head:
        return InputError(f"{name} looks like a safetensors file with a damaged header; write or download it again.")
    if is_text(head):
        return InputError(
            f"{name} ends in {path.suffix or 'nothing'} but holds text, not an array; "
            "if it is a table, rename it to .csv or .tsv."
        )
    return InputError(f"{name} is of no known format (first bytes {head[:8]!r}); give .npy, .npz, .csv or .tsv.")
