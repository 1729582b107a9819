"""Thumbnails: what stands for a row on the screen. Pictures become ``data:`` texts of a few kB, texts stay texts.

A picture comes as bytes in a column, as a path in a column, or from a folder. Paths in a file are words of whoever
wrote the file: they are opened only below the folder of that file, never through links or ``..``.
"""

from __future__ import annotations

import base64
import binascii
import io
import os
import re
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from relcore.errors import InputError
from relcore.formats.base import ID_WORDS, Raw, need, shown
from relcore.formats.beside import nfc
from relcore.space import Refused, as_text

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 64  # pixels of a thumbnail's longer side
MAX_PIXELS = 89_478_485  # Pillow's own limit: a larger picture may be a decompression bomb
BIG = 16_000_000  # pixels from which pictures are unpacked one at a time; a JPEG is unpacked at an eighth of its size
MAX_BYTES = 256 * 2**20  # of a picture's file
MAX_TOTAL = 512 * 2**20  # characters of all thumbnails of a space
MAX_FILES = 2_000_000  # in a folder of pictures
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")  # what Pillow may open: no format that holds a program
ENDINGS = (".jpg", ".jpeg", ".jpe", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")
FOREIGN = (".svg", ".heic", ".heif", ".avif", ".ico", ".jp2", ".psd", ".eps", ".ppm", ".pgm")  # pictures not read
PATH_WORDS = ("file_name", "filename", "file", "path", "filepath", "file_path", "image_path", "image")

_BLOCK = 256  # pictures at work at one time
_URI = re.compile(r"data:image/([\w.+-]+);base64,", re.ASCII)
_ONE_BIG = threading.Lock()


class _Bad(Exception):
    """Why a picture is not shown."""


# ---------------------------------------------------------------------------------------------------- one picture


def thumbnail(source: bytes | Path) -> str:
    """A picture as a ``data:`` text, JPEG, or PNG where it is transparent; at most :data:`SIDE` pixels wide and high.

    Raises
    ------
    _Bad
        Not found, damaged, too large or of a foreign type.
    """
    from PIL import Image, ImageOps

    data = source if isinstance(source, bytes) else _bytes_of(source)
    if len(data) > MAX_BYTES:
        raise _Bad("too large")
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise _Bad("too large")
            big = image.width * image.height > BIG and image.format != "JPEG"
            with _ONE_BIG if big else nullcontext():
                # a JPEG is made small while it is unpacked, so nothing may touch its pixels before
                small = image if image.format == "JPEG" else _usual_mode(image)
                small.thumbnail((SIDE, SIDE), Image.Resampling.BICUBIC, reducing_gap=2.0)
            try:
                small = ImageOps.exif_transpose(small)
            except Exception:  # a damaged note on how the camera was held is no reason to lose the picture
                pass
            return _uri(_usual_mode(small))
    except _Bad:
        raise
    except Image.UnidentifiedImageError:
        raise _Bad("of no known picture type") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning, MemoryError):
        raise _Bad("too large") from None
    except Exception:  # Pillow's readers raise anything on damaged bytes; the row goes without, and is counted
        raise _Bad("damaged") from None


def _bytes_of(path: Path) -> bytes:
    try:
        with path.open("rb") as f:
            return f.read(MAX_BYTES + 1)
    except OSError:
        raise _Bad("not readable") from None


def _usual_mode(image: Image) -> Image:
    """The picture in grey, colour, or colour with transparency."""
    from PIL import Image

    if image.mode in ("L", "RGB", "RGBA"):
        return image
    if image.mode == "1":
        return image.convert("L")
    if image.mode.startswith(("I", "F")):  # more than 8 bits: from its darkest to its brightest
        step = max(1, max(image.size) // (4 * SIDE))
        a = np.nan_to_num(np.asarray(image)[::step, ::step].astype(np.float64))
        low, high = a.min(), a.max()
        return Image.fromarray(((a - low) / max(high - low, 1e-300) * 255).astype(np.uint8))
    transparent = image.mode in ("LA", "La", "PA", "RGBa") or "transparency" in image.info
    return image.convert("RGBA" if transparent else "RGB")


def _uri(image: Image) -> str:
    if image.mode == "RGBA" and image.getextrema()[3] == (255, 255):
        image = image.convert("RGB")
    image.info = {}  # no colour profile, comment or place of the camera
    kind = "PNG" if image.mode == "RGBA" else "JPEG"
    out = io.BytesIO()
    image.save(out, kind, **({"quality": 85} if kind == "JPEG" else {}))
    return f"data:image/{kind.lower()};base64,{base64.b64encode(out.getvalue()).decode()}"


def from_uri(text: str) -> str:
    """A picture given as a ``data:`` text: as it is, if it is a sound thumbnail already, else made one.

    Raises
    ------
    _Bad
        As :func:`thumbnail`.
    """
    from PIL import Image

    head = _URI.match(text)
    if head is None or head[1] in ("svg+xml", "svg"):
        raise _Bad("of no known picture type")
    try:
        data = base64.b64decode(text[head.end() :], validate=True)
    except (binascii.Error, ValueError):
        raise _Bad("damaged") from None
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG", "WEBP")) as image:
            if max(image.size) <= SIDE and head[1] == image.format.lower() and len(data) <= 4 * SIDE * SIDE + 2048:
                image.load()
                return text
    except Exception:  # thumbnail finds the words for it
        pass
    return thumbnail(data)


# ------------------------------------------------------------------------------------------------- a column of them


def resolve(raw: Raw, folder: Path, progress: Callable[[float], None] = lambda share: None) -> None:
    """Make the pictures among a space's media thumbnails, in place; texts stay as they are.

    A row whose picture is not found, damaged, too large or of a foreign type goes without and is counted in ``warned``.

    Parameters
    ----------
    folder : that of the file which names the media; their paths are opened only below it.
    """
    if raw.media is None or len(raw.media) != len(raw.vectors):
        return  # a count that is wrong is told where the columns are checked
    media, raw.media = [_value(v) for v in raw.media], None  # bytes are let go one by one
    bad: dict[str, list[int]] = {}  # reason -> rows
    named = [i for i, v in enumerate(media) if isinstance(v, str) and i not in raw.aside and _looks_like_path(v)]
    found = dict(_files(media, named, folder)) if named else {}
    for i in named if found else ():
        if i in found:
            media[i] = found[i]
        else:
            media[i] = ""
            bad.setdefault("not found below the folder of the file that names them", []).append(i)
    if named and not found:
        raw.warned.append(
            "media that look like paths of pictures, but are no files below the folder of the file that names them, "
            f"shown as text: {len(named):,} (rows {shown(named, 5)})"
        )
    jobs: dict[Path | str | int, list[int]] = {}  # a picture that several rows share is made small once
    for i, v in enumerate(media):
        if i in raw.aside:
            media[i] = v if isinstance(v, str) and not v.startswith("data:image/") else ""
        elif isinstance(v, bytes):
            jobs[i] = [i]
        elif isinstance(v, Path) or v.startswith("data:image/"):
            jobs.setdefault(v, []).append(i)
    if jobs:
        need("PIL", "a picture", "pillow")
        count = _make(jobs, media, bad, progress)
        raw.assumed.append(f"pictures shown as thumbnails of at most {SIDE} pixels: {count:,}")
    if bad:
        why = "; ".join(f"{len(rows):,} {reason} (rows {shown(sorted(rows), 5)})" for reason, rows in bad.items())
        raw.warned.append(f"pictures not shown: {why}")
    raw.media = media if any(media) else None


def _value(v) -> str | bytes | Path:
    """A medium as a text, the bytes of a picture or its path; ``""`` where there is none."""
    if isinstance(v, dict):  # as Hugging Face datasets keep pictures
        v = v.get("bytes") if v.get("bytes") is not None else v.get("path")
    if isinstance(v, np.bytes_):
        return v.decode("utf-8", "replace")  # a text in a numpy array
    if isinstance(v, bytes | bytearray | memoryview):
        return bytes(v)
    return v if isinstance(v, str | Path) else str(as_text([v], 1, "media")[0])


def _looks_like_path(text: str) -> bool:
    return text[-5:].lower().endswith((*ENDINGS, *FOREIGN)) and len(text) < 4096 and "://" not in text


def _files(media: Sequence, rows: Sequence[int], folder: Path) -> Iterator[tuple[int, Path]]:
    """The rows whose text names a file below the folder, with that file."""
    from relcore.formats import inside

    known: dict[str, Path | None] = {}
    for i in rows:
        text = media[i]
        if text not in known:
            try:
                known[text] = inside(folder, text)
            except InputError:
                known[text] = None
        if known[text] is not None:
            yield i, known[text]


def _make(
    jobs: dict[Path | str | int, list[int]],
    media: list,
    bad: dict[str, list[int]],
    progress: Callable[[float], None],
) -> int:
    """Put the thumbnail of each job into its rows, on several threads: Pillow works outside Python's lock.

    Returns how many rows have one.
    """
    from PIL import Image

    Image.init()  # not thread-safe, so once before

    def one(rows: list[int]) -> tuple[str | None, str]:
        value = media[rows[0]]
        try:
            return (from_uri(value) if isinstance(value, str) else thumbnail(value)), ""
        except _Bad as e:
            return None, str(e)

    todo, total, count = list(jobs.values()), 0, 0
    with warnings.catch_warnings(), ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        warnings.simplefilter("ignore")  # what Pillow remarks on odd files
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        for start in range(0, len(todo), _BLOCK):
            block = todo[start : start + _BLOCK]
            made = pool.map(one, block) if total < MAX_TOTAL else [(None, "more than thumbnails may take")] * len(block)
            for rows, (uri, reason) in zip(block, made, strict=True):
                if uri is None:
                    bad.setdefault(reason, []).extend(rows)
                else:
                    total, count = total + len(uri), count + len(rows)
                for i in rows:
                    media[i] = uri or ""
            progress((start + len(block)) / len(todo))
    return count


# ---------------------------------------------------------------------------------------------- a folder of pictures


def from_folder(raw: Raw, folder: Path, id_column: str | None = None) -> None:
    """Give each row the picture of a folder that is called as the row is; :func:`resolve` then makes it small.

    A picture's path below the folder, its file name or its stem are compared with the names, then with columns of ids
    and file names; where none fits, the pictures in natural order are those of the rows, if there are as many.
    """
    pictures = sorted(_pictures(folder), key=lambda p: _natural(p.relative_to(folder).as_posix()))
    n, source = len(raw.vectors), f"the folder {folder.name}"
    forms = _forms(folder, pictures)
    best: tuple[int, str, dict[int, list[Path]]] = (0, "", {})
    for what, keys in _keys(raw, id_column):
        often = Counter(k for i, k in enumerate(keys) if i not in raw.aside)
        hits = {i: forms[k] for i, k in enumerate(keys) if k in forms and often[k] == 1 and i not in raw.aside}
        if len(hits) > best[0]:
            best = (len(hits), what, hits)
    _, what, hits = best
    if hits:
        unclear = sorted(i for i, files in hits.items() if len(files) > 1)
        media = [hits[i][0] if i in hits and len(hits[i]) == 1 else None for i in range(n)]
        raw.assumed.append(
            f"pictures of {source} matched by file name to the {what}: {len(hits) - len(unclear):,} of {n:,} rows"
        )
        if unclear:
            example = shown([p.relative_to(folder).as_posix() for p in hits[unclear[0]]], 3)
            raw.warned.append(
                f"rows that fit several pictures and go without: {len(unclear):,} (rows {shown(unclear, 5)}, for "
                f"example {example})"
            )
        without = [i for i in range(n) if i not in hits and i not in raw.aside]
        if without:
            raw.warned.append(
                f"rows without a picture of their own in {source}: {len(without):,} (rows {shown(without, 5)})"
            )
        unused = len(pictures) - len({p for files in hits.values() for p in files})
        if unused:
            raw.warned.append(f"pictures of {source} that belong to no row: {unused:,}")
    elif len(pictures) == n:
        media = list(pictures)
        raw.assumed.append(
            f"no picture of {source} is called as a row, so they are taken in the order of their names, from "
            f"{pictures[0].name} for row 0 to {pictures[-1].name} for row {n - 1}"
        )
    elif (by_row := _by_row_number(pictures, n)) and raw.names is None:
        media = [by_row.get(i) for i in range(n)]
        raw.assumed.append(
            f"pictures of {source} matched by file name to the row numbers: {len(by_row):,} of {n:,} rows"
        )
    else:
        raw.refused.append(Refused("media", source, len(pictures), n))
        return
    raw.media = media


def _pictures(folder: Path) -> Iterator[Path]:
    """All pictures below a folder; links and hidden files are left out.

    Raises
    ------
    InputError
        The folder cannot be read, or holds too many files.
    """
    folders, count = [folder], 0
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    count += 1
                    if count > MAX_FILES:
                        raise InputError(f"{folder} holds over {MAX_FILES:,} files; give the folder of the pictures.")
                    if entry.name.startswith(".") or entry.is_symlink():
                        continue
                    if entry.is_dir():
                        folders.append(Path(entry.path))
                    elif entry.is_file() and entry.name.lower().endswith((*ENDINGS, *FOREIGN)):
                        yield Path(entry.path)
        except OSError as e:
            raise InputError(f"{folder} cannot be read ({e.strerror}); check its permissions.") from None


def _natural(text: str) -> list[tuple[int, int, str]]:
    """A key by which img2 comes before img10."""
    return [
        (0, int(part), part) if part.isdecimal() and len(part) < 19 else (1, 0, part)
        for part in re.split(r"(\d+)", text)
    ]


def _forms(folder: Path, pictures: Sequence[Path]) -> dict[str, list[Path]]:
    """What each picture may be called by: its path below the folder and its file name, with and without the ending.

    The longer form wins: ``a.png`` is the file so called, not the one called ``a.png.jpg``.
    """
    out: dict[str, list[Path]] = {}
    below = [PurePosixPath(p.relative_to(folder).as_posix()) for p in pictures]
    for form in (str, lambda p: p.name, lambda p: str(p.with_suffix("")), lambda p: p.stem):
        added: dict[str, list[Path]] = {}
        for path, p in zip(pictures, below, strict=True):
            added.setdefault(nfc(form(p)), []).append(path)
        out = added | out
    return out


def _keys(raw: Raw, id_column: str | None) -> Iterator[tuple[str, list[str]]]:
    """What the rows may be called by: (what it is, a text a row)."""
    n = len(raw.vectors)
    columns: list[tuple[str, Sequence]] = []
    if raw.names is not None and len(raw.names) == n:
        columns.append(("names", raw.names))
    if raw.meta is not None:
        titles = [str(c) for c in raw.meta.columns]
        wanted = [t for t in titles if t == id_column] + [t for t in titles if t.lower() in (*ID_WORDS, *PATH_WORDS)]
        columns += [(f"column {t!r}", raw.meta.iloc[:, titles.index(t)]) for t in dict.fromkeys(wanted)]
    for what, values in columns:
        keys = [nfc(k.strip()) for k in as_text(list(values), n, what)]
        yield what, keys
        if any("/" in k for k in keys):
            yield what, [PurePosixPath(k).name for k in keys]


def _by_row_number(pictures: Sequence[Path], n: int) -> dict[int, Path]:
    """The pictures by the row number they are called by; empty unless each is called by one of its own."""
    stems = [p.stem for p in pictures]
    if not all(s.isdecimal() and len(s) < 19 and int(s) < n for s in stems):
        return {}
    out = {int(s): p for s, p in zip(stems, pictures, strict=True)}
    return out if len(out) == len(pictures) else {}
