"""Pictures made small: from folders, paths, bytes and data texts. Pictures are written and read back by Pillow."""

from __future__ import annotations

import base64
import io
import os
import re
import struct
import time
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relcore.errors import InputError
from relcore.formats import load, thumbnails
from relcore.formats.base import Raw

PIL = pytest.importorskip("PIL")
from PIL import Image  # noqa: E402

URI = re.compile(r"data:image/(png|jpeg|webp);base64,([A-Za-z0-9+/=]+)")  # what the page draws
COLOURS = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0), (0, 255, 255), (255, 0, 255)]


def picture(colour=(200, 30, 30), size=(100, 50), format="PNG", mode="RGB", **kw) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, colour).convert(mode).save(out, format, **kw)
    return out.getvalue()


def opened(uri: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(URI.fullmatch(uri)[2])))


def colour_of(uri: str) -> tuple[int, int, int]:
    image = opened(uri).convert("RGB")
    return image.getpixel((image.width // 2, image.height // 2))


def is_colour(uri: str, colour) -> bool:
    return max(abs(a - b) for a, b in zip(colour_of(uri), colour, strict=True)) < 12


def resolved(media, folder=".", **kw) -> Raw:
    raw = Raw(np.eye(len(media)) + 1, media=media, **kw)
    from pathlib import Path

    thumbnails.resolve(raw, Path(folder).resolve())
    return raw


@pytest.fixture
def six(tmp_path):
    """Six named vectors and a folder with a picture of its own colour for each, in another order."""
    np.savez(tmp_path / "v.npz", vectors=np.eye(6) + 1, names=np.array(list("fedcba")))
    folder = tmp_path / "pictures"
    folder.mkdir()
    for name, colour in zip("fedcba", COLOURS, strict=True):
        (folder / f"{name}.png").write_bytes(picture(colour))
    return tmp_path / "v.npz", folder


# ------------------------------------------------------------------ one picture


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
@pytest.mark.parametrize("size", [(300, 200), (20, 30), (1, 1), (2000, 3), (64, 64)])
def test_a_picture_is_small_keeps_its_shape_and_its_colour(format, size):
    uri = thumbnails.thumbnail(picture((200, 30, 30), size, format))
    image = opened(uri)
    if max(size) <= 64:
        assert image.size == size
    else:
        assert max(image.size) == 64 and min(image.size) == max(1, round(64 * min(size) / max(size)))
    assert is_colour(uri, (200, 30, 30))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "I;16", "I", "F", "CMYK"])
def test_every_mode_of_a_picture_can_be_shown(mode):
    format = "TIFF" if mode in ("I", "F", "CMYK") else "PNG"
    a = np.zeros((100, 100), np.uint8)
    a[:, 50:] = 255
    image = Image.fromarray(a)
    if mode in ("I;16", "I", "F"):
        image = Image.fromarray(a.astype({"I;16": np.uint16, "I": np.int32, "F": np.float32}[mode]) * 100)
    else:
        image = image.convert("RGB").convert(mode)
    out = io.BytesIO()
    image.save(out, format)
    small = np.asarray(opened(thumbnails.thumbnail(out.getvalue())).convert("L"))
    assert small.shape == (64, 64) and small[:, :24].max() < 20 and small[:, 40:].min() > 235


def test_transparency_stays_and_what_the_camera_wrote_goes():
    image = Image.new("RGBA", (80, 80), (255, 0, 0, 0))
    image.paste((0, 0, 255, 255), (0, 0, 40, 80))
    out = io.BytesIO()
    image.save(out, "PNG")
    small = opened(thumbnails.thumbnail(out.getvalue()))
    assert small.format == "PNG" and small.getpixel((10, 10)) == (0, 0, 255, 255) and small.getpixel((60, 10))[3] == 0
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "a secret place"  # turned by a quarter
    data = picture(size=(200, 100), format="JPEG", exif=exif, comment=b"secret", icc_profile=b"p" * 5000)
    uri = thumbnails.thumbnail(data)
    assert opened(uri).size == (32, 64) and len(uri) < 2000
    assert b"secret" not in base64.b64decode(uri.split(",")[1])


def png_of(width, height):
    """A header that claims a size, and next to no data."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 9)) + chunk(b"IEND", b"")
    )


SVG = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
BAD = [
    (picture(format="JPEG")[:300], "damaged"),
    (picture()[:60], "damaged"),
    (png_of(10_000, 10_000), "too large"),
    (png_of(60_000, 60_000), "too large"),
    (png_of(100, 100), "damaged"),
    (SVG, "of no known picture type"),
    (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "of no known picture type"),
    (b"", "of no known picture type"),
    (b"no picture at all", "of no known picture type"),
]


@pytest.mark.parametrize("data, reason", BAD)
def test_what_cannot_be_shown_leaves_its_row_without_and_is_counted(data, reason):
    raw = resolved([picture(), data, None, data, picture()])
    assert [bool(m) for m in raw.media] == [True, False, False, False, True]
    assert raw.warned == [f"pictures not shown: 2 {reason} (rows 1, 3)"]
    assert raw.assumed == ["pictures shown as thumbnails of at most 64 pixels: 2"]


@given(st.sampled_from(["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"]), st.integers(0, 10**6), st.data())
@settings(max_examples=150, deadline=None)
def test_a_damaged_picture_is_a_picture_or_none(format, seed, draw):
    rng = np.random.default_rng(seed)
    out = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (30, 40, 3), dtype=np.uint8)).save(out, format)
    data = bytearray(out.getvalue())
    for _ in range(draw.draw(st.integers(0, 4))):
        data[draw.draw(st.integers(0, min(len(data), 400) - 1))] = draw.draw(st.integers(0, 255))
    data = bytes(data[: draw.draw(st.integers(0, len(data)))])
    raw = resolved([data, picture()])
    assert raw.media[0] == "" or max(opened(raw.media[0]).size) <= 64
    assert URI.fullmatch(raw.media[1])


# ------------------------------------------------------------------ texts and data texts


def test_texts_stay_as_they_are():
    texts = ["\u732b", "a sentence.", "", "data: none", "http://x.org/a.png", "file:///etc/a.png", "1", "<b>x</b>"]
    raw = resolved(list(texts))
    assert raw.media == texts and not raw.warned and not raw.assumed
    assert resolved([None, float("nan"), ""]).media is None
    assert resolved(np.array([b"a", b"b"])).media == ["a", "b"]


def test_thumbnails_as_text_stay_bit_for_bit_and_other_data_texts_are_made_small():
    small = thumbnails.thumbnail(picture())
    clear = thumbnails.thumbnail(picture(mode="RGBA"))
    large = "data:image/png;base64," + base64.b64encode(picture((9, 200, 9), (500, 400))).decode()
    wrong = "data:image/gif;base64," + small.split(",")[1]
    raw = resolved([small, clear, large, wrong])
    assert raw.media[:2] == [small, clear]
    assert opened(raw.media[2]).size == (64, 51) and is_colour(raw.media[2], (9, 200, 9))
    assert URI.fullmatch(raw.media[3])


@pytest.mark.parametrize(
    "text",
    [
        "data:image/svg+xml;base64," + base64.b64encode(SVG).decode(),
        "data:image/svg+xml,<svg/>",
        "data:image/png;base64," + base64.b64encode(SVG).decode(),
        "data:image/png;base64,no base64!",
        "data:image/png;base64,",
        "data:image/png;base64," + base64.b64encode(png_of(60_000, 60_000)).decode(),
    ],
)
def test_data_texts_that_are_no_sound_picture_are_not_shown(text):
    raw = resolved([text, "text"])
    assert raw.media == ["", "text"] and raw.warned[0].startswith("pictures not shown: 1 ")


# ------------------------------------------------------------------ paths inside a file


def write_list(path, lines):
    path.write_text("\n".join(lines) + "\n")
    return path


def test_paths_are_opened_below_the_folder_of_the_file_that_names_them(six, tmp_path):
    vectors, folder = six
    sub = tmp_path / "lists"
    sub.mkdir()
    (sub / "own.PNG").write_bytes(picture(COLOURS[0]))
    (sub / "deep").mkdir()
    (sub / "deep" / "er.jpg").write_bytes(picture(COLOURS[1], format="JPEG"))
    lines = ["own.PNG", "deep/er.jpg", str(sub / "own.PNG"), "gone.png", "text", "./own.PNG"]
    space, report = load(vectors, media=write_list(sub / "media.txt", lines))
    assert is_colour(space.media[0], COLOURS[0]) and is_colour(space.media[1], COLOURS[1])
    assert space.media[2] == space.media[0]
    assert list(space.media[3:5]) == ["", "text"]
    assert any(w.startswith("pictures not shown: 1 not found") and "rows 3" in w for w in report.warnings)


@pytest.mark.parametrize("kind", ["absolute", "dots", "link", "folder link", "inside dots"])
def test_a_file_cannot_show_pictures_from_elsewhere(six, tmp_path, kind):
    vectors, folder = six
    secret = folder / "a.png"  # a picture that is there, above the folder of the list
    sub = tmp_path / "uploads"
    sub.mkdir()
    (sub / "own.png").write_bytes(picture())
    os.symlink(secret, sub / "link.png")
    os.symlink(folder, sub / "linked")
    text = {
        "absolute": str(secret),
        "dots": "../pictures/a.png",
        "link": "link.png",
        "folder link": "linked/a.png",
        "inside dots": "../uploads/own.png",
    }[kind]
    space, report = load(
        vectors, media=write_list(sub / "m.txt", ["own.png", text, text.replace("a.png", "b0.png")] * 2)
    )
    assert [bool(m) for m in space.media] == [True, False, False] * 2
    said = next(w for w in report.warnings if "not shown" in w)
    assert "4 not found below the folder" in said  # the same words whether or not there is such a file


def test_paths_of_which_none_is_there_stay_texts_and_it_is_said(six, tmp_path):
    lines = [f"{i}.png" for i in range(6)]
    space, report = load(six[0], media=write_list(tmp_path / "m.txt", lines))
    assert list(space.media) == lines
    assert any("media that look like paths of pictures" in w and "as text: 6 (rows 0, 1" in w for w in report.warnings)


def test_a_column_of_paths_in_the_table_and_in_its_metadata(six, tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "image_path": [f"pictures/{n}.png" for n in "abcdef"],
            **{f"d{i}": np.eye(6)[i] for i in range(6)},
        }
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    space, _ = load(tmp_path / "t.csv")
    assert all(is_colour(m, c) for m, c in zip(space.media, COLOURS[::-1], strict=True))
    frame[["image_path"]].assign(id=range(6)).to_csv(tmp_path / "m.csv", index=False)
    space, _ = load(six[0], metadata=tmp_path / "m.csv")
    assert all(is_colour(m, c) for m, c in zip(space.media, COLOURS[::-1], strict=True))
    (tmp_path / "away").mkdir()
    os.rename(tmp_path / "m.csv", tmp_path / "away" / "m.csv")  # not below the folder of this file any more
    space, report = load(six[0], metadata=tmp_path / "away" / "m.csv")
    assert space.media[0] == "pictures/a.png"


def test_a_picture_that_many_rows_name_is_made_once(six, tmp_path, monkeypatch):
    calls = []
    real = thumbnails.thumbnail
    monkeypatch.setattr(thumbnails, "thumbnail", lambda source: calls.append(source) or real(source))
    space, _ = load(six[0], media=write_list(tmp_path / "m.txt", ["pictures/a.png"] * 6))
    assert len(calls) == 1 and len(set(space.media)) == 1


# ------------------------------------------------------------------ image columns


def test_the_image_column_of_a_hugging_face_table(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    cells = [{"bytes": picture(c), "path": None} for c in COLOURS[:4]] + [None, {"bytes": b"bad", "path": "x.png"}]
    table = pa.table({"image": pa.array(cells, image), "vector": pa.array((np.eye(6) + 1).tolist())})
    pq.write_table(table, tmp_path / "t.parquet")
    space, report = load(tmp_path / "t.parquet")
    assert all(is_colour(m, c) for m, c in zip(space.media[:4], COLOURS, strict=False))
    assert list(space.media[4:]) == ["", ""]
    assert any("pictures not shown: 1 of no known picture type (rows 5)" in w for w in report.warnings)
    np.save(tmp_path / "v.npy", np.eye(6) + 1)
    pq.write_table(table.drop_columns("vector"), tmp_path / "m.parquet")
    assert list(load(tmp_path / "v.npy", metadata=tmp_path / "m.parquet")[0].media) == list(space.media)


# ------------------------------------------------------------------ folders


def test_a_folder_is_matched_by_file_name_to_the_names(six):
    vectors, folder = six
    space, report = load(vectors, media=folder)
    assert all(is_colour(m, c) for m, c in zip(space.media, COLOURS, strict=True))
    assert any("matched by file name to the names: 6 of 6 rows" in a for a in report.assumed)
    assert not report.warnings
    (folder / "b.png").unlink()
    (folder / "new.png").write_bytes(picture())
    (folder / "notes.txt").write_text("no picture")
    (folder / ".hidden.png").write_bytes(picture())
    space, report = load(vectors, media=str(folder))
    assert space.media[4] == "" and sum(map(bool, space.media)) == 5
    assert any("rows without a picture of their own in the folder pictures: 1 (rows 4)" in w for w in report.warnings)
    assert any("pictures of the folder pictures that belong to no row: 1" in w for w in report.warnings)


def test_names_with_endings_folders_and_other_spellings(tmp_path):
    folder = tmp_path / "p"
    for sub in ("x", "y"):
        (folder / sub).mkdir(parents=True)
        (folder / sub / "1.png").write_bytes(picture(COLOURS["xy".index(sub)]))
    (folder / "cafe\u0301.jpg").write_bytes(picture(COLOURS[2], format="JPEG"))
    (folder / "plain.png.jpg").write_bytes(picture(COLOURS[3], format="JPEG"))
    (folder / "plain.png").write_bytes(picture(COLOURS[4]))
    names = np.array(["x/1.png", "y/1", "caf\u00e9", "plain.png", "1", "same", "same"])
    np.savez(tmp_path / "v.npz", vectors=np.eye(7) + 1, names=names)
    space, report = load(tmp_path / "v.npz", media=folder)
    for row, colour in ((0, 0), (1, 1), (2, 2), (3, 4)):
        assert is_colour(space.media[row], COLOURS[colour]), row
    assert list(space.media[4:]) == ["", "", ""]
    assert any(
        "rows that fit several pictures and go without: 1" in w and "x/1.png, y/1.png" in w for w in report.warnings
    )


def test_a_folder_by_a_column_of_ids(six, tmp_path):
    pd = pytest.importorskip("pandas")
    np.save(tmp_path / "v.npy", np.eye(6) + 1)
    for column in ("id", "file_name", "handle"):
        pd.DataFrame({column: list("abcdef"), "year": range(6)}).to_csv(tmp_path / "m.csv", index=False)
        options = {"id_column": "handle"} if column == "handle" else {}
        space, report = load(tmp_path / "v.npy", media=six[1], metadata=tmp_path / "m.csv", **options)
        assert all(is_colour(m, c) for m, c in zip(space.media, COLOURS[::-1], strict=True))
        assert any("matched by file name to the" in a for a in report.assumed)


def test_a_folder_in_natural_order_where_nothing_matches_and_the_counts_are_equal(tmp_path):
    np.savez(tmp_path / "v.npz", vectors=np.eye(12) + 1, names=np.array(["7", "1"] * 6))  # repeated: they name no row
    folder = tmp_path / "p"
    folder.mkdir()
    for i in range(12):
        (folder / f"img{i}.png").write_bytes(picture((20 * i, 0, 255 - 20 * i)))
    space, report = load(tmp_path / "v.npz", media=folder)
    assert all(is_colour(m, (20 * i, 0, 255 - 20 * i)) for i, m in enumerate(space.media))
    assert any(
        "in the order of their names, from img0.png for row 0 to img11.png for row 11" in a for a in report.assumed
    )
    (folder / "img5.png").unlink()
    space, report = load(tmp_path / "v.npz", media=folder)
    assert len(space) == 12 and space.media is None
    assert [tuple(r) for r in report.refused] == [("media", "the folder p", 11, 12)]


def test_a_folder_by_row_numbers_where_the_rows_have_no_names(tmp_path):
    np.save(tmp_path / "v.npy", np.eye(6) + 1)
    folder = tmp_path / "p"
    folder.mkdir()
    for i in (0, 2, 5):
        (folder / f"{i:04d}.png").write_bytes(picture(COLOURS[i]))
    space, report = load(tmp_path / "v.npy", media=folder)
    assert [bool(m) for m in space.media] == [True, False, True, False, False, True]
    assert is_colour(space.media[5], COLOURS[5]) and any("to the row numbers: 3 of 6" in a for a in report.assumed)
    (folder / "0006.png").write_bytes(picture())  # counted from 1, it seems: no guess
    assert load(tmp_path / "v.npy", media=folder)[1].refused[0].found == 4


def test_links_in_a_folder_are_not_followed_and_an_empty_one_is_refused(six, tmp_path):
    vectors, folder = six
    other = tmp_path / "other"
    other.mkdir()
    for name in "abc":
        os.symlink(folder / f"{name}.png", other / f"{name}.png")
    os.symlink(folder, other / "sub")
    space, report = load(vectors, media=other)
    assert space.media is None and [tuple(r) for r in report.refused] == [("media", "the folder other", 0, 6)]
    with pytest.raises(InputError, match="no file"):
        load(vectors, media=tmp_path / "nowhere" / "x.png")


def test_a_damaged_picture_in_a_folder_and_rows_set_aside(tmp_path):
    v = np.eye(4) + 1
    v[1] = 0
    np.savez(tmp_path / "v.npz", vectors=v, names=np.array(list("abcd")))
    folder = tmp_path / "p"
    folder.mkdir()
    for name, colour in zip("abcd", COLOURS, strict=False):
        (folder / f"{name}.png").write_bytes(picture(colour))
    (folder / "c.png").write_bytes(picture()[:50])
    space, report = load(tmp_path / "v.npz", media=folder)
    assert list(space.ids) == [0, 2, 3] and space.media[1] == ""
    assert is_colour(space.media[0], COLOURS[0]) and is_colour(space.media[2], COLOURS[3])
    assert any("1 damaged (rows 2)" in w for w in report.warnings)


# ------------------------------------------------------------------ time and memory


def test_progress_is_told_and_photos_take_seconds(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (480, 640, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(noise).resize((640, 480)).save(out, "JPEG", quality=70)
    for i in range(300):
        (tmp_path / f"{i}.jpg").write_bytes(out.getvalue())
    raw, shares = Raw(np.ones((300, 2))), []
    thumbnails.from_folder(raw, tmp_path)
    start = time.process_time()
    thumbnails.resolve(raw, tmp_path, shares.append)
    assert time.process_time() - start < 20  # about 1 s on cores of its own
    assert all(raw.media) and shares == sorted(shares) and shares[-1] == 1 and len(shares) > 1


def test_thumbnails_together_are_bounded(monkeypatch):
    monkeypatch.setattr(thumbnails, "MAX_TOTAL", 5000)
    monkeypatch.setattr(thumbnails, "_BLOCK", 4)
    rng = np.random.default_rng(0)
    raw = resolved([picture(tuple(rng.integers(0, 256, 3).tolist()), (64, 64)) for _ in range(40)])
    kept = sum(map(bool, raw.media))
    assert 0 < kept < 40 and f"{40 - kept} more than thumbnails may take" in raw.warned[0]
