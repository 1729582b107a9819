"""The frame: what is set aside, what is refused and in which words. Case ids are those of the field reports."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile

import numpy as np
import pytest

from relcore import formats
from relcore.errors import InputError
from relcore.formats import inside, inspect, load, load_bytes, split_spec
from relcore.space import SetAside


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)


def save(path, array, **kw):
    np.save(path, array, **kw)
    return path


def refused(spec, *words, **kw):
    """The error of a load, which must be for the user and hold the words."""
    with pytest.raises(InputError) as e:
        load(spec, **kw)
    for word in words:
        assert word in str(e.value), str(e.value)
    return str(e.value)


# ------------------------------------------------------------------------------------------------ B01, B02: values


def test_b01_nan_and_infinite_rows_are_set_aside_with_everything_that_is_theirs(tmp_path, rows):
    rows[3, 2], rows[7, 0] = np.nan, np.inf
    names = np.array([f"n{i}" for i in range(50)])
    np.savez(tmp_path / "a.npz", vectors=rows, names=names, labels=np.arange(50) % 3, extra=np.arange(50) * 10)
    space, report = load(tmp_path / "a.npz")
    kept = np.setdiff1d(np.arange(50), [3, 7])
    assert report.set_aside == (SetAside(3, "NaN or infinite"), SetAside(7, "NaN or infinite"))
    assert (report.rows_read, report.rows_used) == (50, 48)
    np.testing.assert_array_equal(space.vectors, rows[kept])
    np.testing.assert_array_equal(space.ids, kept)
    assert list(space.names) == list(names[kept])
    assert list(space.labels) == [str(i % 3) for i in kept]
    assert list(space.meta["extra"]) == list(kept * 10)
    assert report.aside_names == ("n3", "n7")
    assert "2 NaN or infinite" in report.summary()


def test_b01_column_mean_on_request_says_which_rows(tmp_path, rows):
    rows[3, 2] = np.nan
    rows[5] = np.nan
    space, report = load(save(tmp_path / "a.npy", rows), missing="column mean")
    assert report.set_aside == (SetAside(5, "NaN or infinite"),)
    assert space.vectors[3, 2] == pytest.approx(np.nanmean(rows[:, 2].astype(float)), rel=1e-6)
    assert space.vectors[3, 1] == rows[3, 1]
    assert "1 numbers in 1 rows" in report.warnings[0] and report.warnings[0].endswith("rows 3")
    assert report.dtype == "float32"


def test_b01_stop_on_request(tmp_path, rows):
    rows[3, 2] = np.nan
    refused(save(tmp_path / "a.npy", rows), "a.npy", "row 3", missing="stop")
    refused(tmp_path / "a.npy", "'drop'", "set aside", missing="drop")


def test_b02_zero_rows_are_set_aside(tmp_path, rows):
    rows[:5] = 0
    space, report = load(save(tmp_path / "a.npy", rows))
    assert report.set_aside == tuple(SetAside(i, "zero norm") for i in range(5))
    assert space.ids[0] == 5


def test_b02_all_rows_zero(tmp_path):
    message = refused(save(tmp_path / "a.npy", np.zeros((6, 3))))
    assert message == "Every vector in a.npy has norm 0. Check the file or the chosen array."


# -------------------------------------------------------------------------------------------------- B09: no pickles

RECIPE = "np.save('vectors.npy'"


@pytest.mark.parametrize("value", [np.array([[1.0], [1.0, 2.0]], dtype=object), {"emb": [1, 2]}])
def test_b09_object_arrays_are_refused_with_a_recipe(tmp_path, value):
    np.save(tmp_path / "o.npy", value)
    message = refused(tmp_path / "o.npy", "o.npy", "Python objects", "np.stack", RECIPE)
    assert message.count("\n") == 2  # a sentence and the two-line recipe


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("name", ["p.npy", "p.bin", "p.csv", "p.pkl"])
def test_b09_no_pickle_is_ever_opened(tmp_path, protocol, name):
    class Bomb:
        def __reduce__(self):
            return open, (str(tmp_path / "ran"), "w")

    (tmp_path / name).write_bytes(pickle.dumps({"v": Bomb()}, protocol=protocol))
    refused(tmp_path / name, name, "Python objects", RECIPE)
    assert not (tmp_path / "ran").exists()


def test_b09_only_the_object_array_of_an_npz_is_refused(tmp_path, rows):
    np.savez(tmp_path / "a.npz", v=rows, o=np.array([{}, []], dtype=object))
    assert load(tmp_path / "a.npz")[1].rows_used == 50
    refused(f"{tmp_path}/a.npz:o", "a.npz:o", "Python objects")
    np.savez(tmp_path / "b.npz", o=np.array([{}, []], dtype=object))
    refused(tmp_path / "b.npz", "b.npz:o", "Python objects")


# ------------------------------------------------------------------------------------------- what it looks like (B08)


@pytest.mark.parametrize(
    "head, words",
    [
        (b"PAR1" + b"\0" * 60, ["damaged", "Parquet", "again"]),
        (b"\x89HDF\r\n\x1a\n" + b"\0" * 60, ["damaged", "np.save"]),
        (b"PK\5\6" + b"\0" * 18, ["zip file with nothing in it"]),
        (b"<!DOCTYPE html><title>404</title>", ["web page", "again"]),
        (b"\n  <html><body>Not found", ["web page"]),
        (struct.pack("<ii", 793712314, 12) + b"\0" * 60, ["fastText"]),
        (b"\x1f\x8b\x08" + b"\0" * 60, ["compressed and damaged"]),
        (b"1.0 2.0\n3.0 4.0\n", ["holds text", ".csv"]),
        (b"\x01\x02\x03\x04" * 20, ["no known format", ".npy"]),
    ],
)
@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_b08_says_what_a_renamed_file_looks_like(tmp_path, name, head, words):
    (tmp_path / name).write_bytes(head)
    refused(tmp_path / name, name, *words)


def test_b08_a_web_page_is_no_table(tmp_path):
    (tmp_path / "a.csv").write_text("<html>\n<p>1,2</p>\n")
    refused(tmp_path / "a.csv", "web page")


def test_b08_zip_files_that_are_no_npz(tmp_path):
    for members, words in [
        ({"archive/data.pkl": b"\x80\x02."}, ["PyTorch"]),
        ({"xl/workbook.xml": b"<x/>"}, ["Excel"]),
        ({"a.txt": b"hi"}, ["zip archive", "unpack"]),
    ]:
        with zipfile.ZipFile(tmp_path / "z.npy", "w") as z:
            for member, data in members.items():
                z.writestr(member, data)
        refused(tmp_path / "z.npy", "z.npy", *words)


def test_the_bytes_win_over_the_ending_and_it_is_said(tmp_path, rows):
    np.savez(tmp_path / "a.npz", v=rows)
    (tmp_path / "a.npz").rename(tmp_path / "a.npy")
    space, report = load(tmp_path / "a.npy")
    np.testing.assert_array_equal(space.vectors, rows)
    assert report.format == "npz" and "ends in .npy" in report.warnings[0]


# ------------------------------------------------------------------------------------------------- shapes and layouts


@pytest.mark.parametrize("shape", [(), (5,), (4, 3, 2)])
def test_other_than_two_dimensions(tmp_path, shape):
    refused(save(tmp_path / "a.npy", np.ones(shape)), "a.npy", str(shape), "two dimensions", "reshape")
    np.savez(tmp_path / "b.npz", only=np.ones(shape))
    refused(tmp_path / "b.npz", "b.npz:only", str(shape), "two dimensions")


@pytest.mark.parametrize("shape", [(0, 4), (4, 0)])
def test_no_rows_or_no_numbers(tmp_path, shape):
    refused(save(tmp_path / "a.npy", np.ones(shape)), "a.npy", str(shape))


def test_text_and_complex_arrays_are_no_vectors(tmp_path):
    refused(save(tmp_path / "a.npy", np.array([["a", "b"]])), "a.npy", "wanted numbers")
    refused(save(tmp_path / "b.npy", np.ones((2, 2), complex)), "b.npy", "complex", "wanted numbers")


def test_empty_missing_directory_unreadable(tmp_path):
    (tmp_path / "e.npy").touch()
    refused(tmp_path / "e.npy", "e.npy is empty")
    refused(tmp_path / "nowhere.npy", "no file", "nowhere.npy")
    refused(tmp_path, "is a directory")
    refused("/dev/null", "not a regular file")


def test_big_endian_fortran_reversed_and_mapped_are_the_same_numbers(tmp_path, rows, monkeypatch):
    variants = {
        "f4": rows,
        "big4": rows.astype(">f4"),
        "big8": rows.astype(">f8"),
        "fortran": np.asfortranarray(rows),
        "reversed": rows[::-1].copy()[::-1],
    }
    monkeypatch.setattr("relcore.formats.npy.MAP_ABOVE", 0)
    for name, array in variants.items():
        mapped, _ = load(save(tmp_path / f"{name}.npy", array))
        np.savez(tmp_path / f"{name}.npz", v=array)
        read, _ = load(tmp_path / f"{name}.npz")
        for space in (mapped, read):
            assert space.vectors.dtype == np.dtype("float32") and space.vectors.flags.c_contiguous
            assert space.vectors.tobytes() == rows.tobytes()
    mapped, _ = load(tmp_path / "f4.npy")
    base = mapped.vectors
    while base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert base is not None, "a float32 file is used in place"


def test_float16_norms_that_overflow_in_half_precision(tmp_path):
    rows = np.full((4, 4), 300, np.float16)
    rows[2] = 6e-8  # squares underflow in half precision
    with np.errstate(over="ignore"):
        assert np.isinf(np.sqrt((rows[0] * rows[0]).sum()))
    space, report = load(save(tmp_path / "a.npy", rows))
    assert report.dtype == "float16" and not report.set_aside and len(space) == 4


def test_integers_and_booleans(tmp_path):
    for dtype in (np.int8, np.uint8, np.int64, bool):
        space, report = load(save(tmp_path / "a.npy", np.eye(3, dtype=dtype)))
        np.testing.assert_array_equal(space.vectors, np.eye(3, dtype=np.float32))
        assert report.dtype == np.dtype(dtype).name


# ------------------------------------------------------------------------------------------------------- lying headers


def header(shape, descr="<f8", version=b"\x01\x00"):
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text


@pytest.mark.parametrize("shape", ["(1000000, 1000000)", "(-1, 8)", "(3, 4)"])
def test_a_header_that_claims_more_than_the_file_holds(tmp_path, shape):
    (tmp_path / "a.npy").write_bytes(header(shape) + b"\0" * 64)
    refused(tmp_path / "a.npy", "a.npy", "64")
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("v.npy", header(shape) + b"\0" * 64)
    refused(tmp_path / "a.npz", "a.npz:v", "64")


def test_a_damaged_header(tmp_path):
    for data in (b"\x93NUMPY", b"\x93NUMPY\x09\x00" + b"x" * 40, header("(2, 2)").replace(b"descr", b"dsecr")):
        (tmp_path / "a.npy").write_bytes(data)
        refused(tmp_path / "a.npy", "a.npy", "damaged")


def test_trailing_bytes_are_said(tmp_path, rows):
    path = save(tmp_path / "a.npy", rows)
    path.write_bytes(path.read_bytes() + b"\0" * 7)
    assert load(path)[1].warnings == ("7 bytes after the array are not used",)


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path):
    n = 100 * 2**20
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as z, z.open("v.npy", "w") as f:
        f.write(header(f"({n // 80}, 10)"))
        for _ in range(n // 2**20):
            f.write(bytes(2**20))
    assert (tmp_path / "a.npz").stat().st_size < 200_000
    refused(tmp_path / "a.npz", "zip bomb", "np.savez")


def test_an_array_beyond_the_memory_cap(tmp_path, rows, monkeypatch):
    np.savez_compressed(tmp_path / "a.npz", v=rows)
    monkeypatch.setattr("relcore.formats.npz.MAX_DECODED", rows.nbytes - 1)
    refused(tmp_path / "a.npz", "GiB", ".npy")


@pytest.mark.parametrize("save_as", [np.save, np.savez, np.savez_compressed])
def test_damaged_files_are_refused_in_words_wherever_the_damage_is(save_as, rows):
    buffer, rng = io.BytesIO(), np.random.default_rng(0)
    save_as(buffer, rows[:5])
    whole = buffer.getvalue()
    damaged = [whole[:cut] for cut in range(1, len(whole), 3)]
    for _ in range(200):
        data = bytearray(whole)
        for at in rng.integers(0, len(data), 4):
            data[at] = rng.integers(256)
        damaged.append(bytes(data))
    refusals = 0
    for data in damaged:
        try:  # damage within the numbers of a .npy cannot be seen; anything else must be an InputError
            load_bytes(data, "a.npy" if save_as is np.save else "a.npz")
        except InputError as e:
            refusals += bool(str(e))
    assert refusals > len(whole) / 6


def test_a_small_constant_array_is_no_bomb(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", v=np.ones((5000, 20)))
    assert load(tmp_path / "a.npz")[1].rows_used == 5000


def test_a_member_with_a_broken_checksum(tmp_path, rows):
    np.savez(tmp_path / "a.npz", v=rows)
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[400] ^= 255
    (tmp_path / "a.npz").write_bytes(data)
    refused(tmp_path / "a.npz", "a.npz is damaged")
    (tmp_path / "a.npz").write_bytes(data[:500])
    refused(tmp_path / "a.npz", "a.npz", "damaged")


# ------------------------------------------------------------------------------------------------- FILE:KEY and roles


def test_several_arrays_and_no_key(tmp_path, rows):
    np.savez(tmp_path / "a.npz", x=rows, y=rows[:, :4], words=np.arange(50))
    message = refused(tmp_path / "a.npz", "x (50, 8)", "y (50, 4)", "a.npz:x")
    assert "words" not in message
    assert load(f"{tmp_path}/a.npz:y")[0].dim == 4
    assert load(tmp_path / "a.npz", key="y")[0].dim == 4
    refused(f"{tmp_path}/a.npz:z", "no array 'z'", "x (50, 8)")
    refused(f"{tmp_path}/a.npz:y", "'y'", "'x'", key="x")


def test_one_candidate_needs_no_key_and_is_said(tmp_path, rows):
    np.savez(tmp_path / "a.npz", only=rows, scalar=np.float32(3), text=np.array([["a"]]))
    _, report = load(tmp_path / "a.npz")
    assert any("'only'" in a for a in report.assumed)
    np.savez(tmp_path / "b.npz", vectors=rows, map=rows[:, :2])
    space, report = load(tmp_path / "b.npz")
    assert space.dim == 8 and any("by its name" in a for a in report.assumed)


def test_a_file_whose_name_holds_the_colon_wins(tmp_path, rows):
    save(tmp_path / "a.npy", rows)
    np.save(open(tmp_path / "a.npy:b", "wb"), rows[:4])  # noqa: SIM115
    assert load(f"{tmp_path}/a.npy:b")[1].rows_used == 4
    np.savez(tmp_path / "c:d.npz", k=rows, l=rows[:3])
    assert load(f"{tmp_path}/c:d.npz:l")[1].rows_used == 3
    assert split_spec(f"{tmp_path}/c:d.npz:a:b") == (tmp_path / "c:d.npz", "a:b")
    refused(f"{tmp_path}/a.npy:k", "one array without a name", ":k")


def test_names_and_labels_by_key_file_or_sequence(tmp_path, rows):
    np.savez(tmp_path / "a.npz", v=rows, kind=np.arange(50) % 2, words=np.array([f"w{i}" for i in range(50)]))
    (tmp_path / "n.txt").write_text("".join(f" line, {i}\n" for i in range(50)))
    space, report = load(tmp_path / "a.npz", labels="kind", names=tmp_path / "n.txt")
    assert space.labels[1] == "1" and space.names[7] == " line, 7"
    assert "names read from n.txt" in report.assumed
    space, _ = load(tmp_path / "a.npz", labels=f"{tmp_path}/a.npz:kind", media=[f"m{i}" for i in range(50)])
    assert space.labels[3] == "1" and space.names[7] == "w7" and space.media[2] == "m2" and space.meta is None
    space, _ = load(save(tmp_path / "b.npy", rows), labels=f"{tmp_path}/a.npz:kind")
    assert space.labels[5] == "1"
    refused(tmp_path / "b.npy", "no labels called 'kind'", labels="kind")
    refused(tmp_path / "b.npy", "there is no file", "nowhere.txt", labels="nowhere.txt")


def test_an_array_of_the_file_wins_over_a_file_of_that_name(tmp_path, rows):
    """An upload names its own arrays: a name that is a path must not open that path."""
    secret = tmp_path / "secret.txt"
    secret.write_text("\n".join(f"secret {i}" for i in range(50)))
    np.savez(tmp_path / "a.npz", **{"v": rows, str(secret): np.array([f"own {i}" for i in range(50)])})
    space, _ = load(tmp_path / "a.npz", names=str(secret))
    assert space.names[0] == "own 0"


@pytest.mark.parametrize("count", [8, 11])
def test_labels_that_do_not_fit_name_both_counts(tmp_path, count):
    path = save(tmp_path / "v.npy", np.eye(10))
    (tmp_path / "l.txt").write_text("\n".join(f"c{i}" for i in range(count)))
    space, report = load(path, labels=tmp_path / "l.txt")
    assert len(space) == 10 and space.labels is None
    said = str(report.refused[0])
    for offer in ("l.txt", f"{count} for 10 vectors", "by an id column", "to the first", "without them"):
        assert offer in said
    space, report = load(path, labels=tmp_path / "l.txt", match="first")
    assert list(space.labels) == [f"c{i}" if i < count else "" for i in range(10)]
    assert f"first {min(10, count)} of 10" in report.warnings[0]
    np.savez(tmp_path / "a.npz", v=np.eye(10), labels=np.arange(count))
    space, report = load(tmp_path / "a.npz")
    assert space.labels is None and f"{count} values for 10 vectors" in report.warnings[0]


@pytest.mark.parametrize("ending", ["", "\n"])
@pytest.mark.parametrize("heading", ["", "label\n"])
def test_a_label_file_with_or_without_last_newline_and_heading(tmp_path, heading, ending):
    path = save(tmp_path / "v.npy", np.eye(10))
    (tmp_path / "l.txt").write_text(heading + "\n".join(f"c{i}" for i in range(10)) + ending)
    space, report = load(path, labels=tmp_path / "l.txt")
    assert list(space.labels) == [f"c{i}" for i in range(10)]
    assert any("heading" in a for a in report.assumed) == bool(heading)


# ---------------------------------------------------------------------------------------- inspect, uploads, the picker


def test_inspect_gives_the_documented_keys(tmp_path, rows):
    rows[4] = 0
    seen = inspect(save(tmp_path / "a.npy", rows))
    assert set(seen) == {
        *("format", "rows_read", "rows_used", "set_aside", "dim", "dtype", "assumed", "warnings", "refused"),
    }
    assert seen["set_aside"] == [{"row": 4, "reason": "zero norm"}]
    assert (seen["format"], seen["rows_read"], seen["rows_used"], seen["dim"], seen["dtype"]) == (
        *("npy", 50, 49, 8, "float32"),
    )


def test_inspect_of_an_ambiguous_file_lists_what_to_choose_from(tmp_path, rows):
    np.savez(tmp_path / "a.npz", x=rows, y=rows[:, :4])
    seen = inspect(tmp_path / "a.npz")
    assert seen["rows_read"] is None and "choose one" in seen["warnings"][0]
    assert [(a["name"], a["shape"], a["dtype"]) for a in seen["arrays"]] == [
        ("x", [50, 8], "<f4"),
        ("y", [50, 4], "<f4"),
    ]
    assert inspect(tmp_path / "a.npz", key="y")["dim"] == 4
    assert [a.name for a in formats.arrays(tmp_path / "a.npz")] == ["x", "y"]


def test_uploads_take_the_same_way(tmp_path, rows, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    buffer = io.BytesIO()
    np.savez(buffer, x=rows, y=rows[:, :4])
    space, report = load_bytes(buffer.getvalue(), "../../etc/pair.npz", key="y")
    assert (report.source, space.title, space.dim) == ("pair.npz:y", "pair.npz:y", 4)
    buffer = io.BytesIO()
    np.save(buffer, rows)
    monkeypatch.setattr("relcore.formats.npy.MAP_ABOVE", 0)  # the mapping outlives the temporary file
    space, report = load_bytes(buffer.getvalue(), "v.npy")
    assert report.source == "v.npy" and not list(tmp_path.iterdir())
    np.testing.assert_array_equal(space.vectors, rows)
    with pytest.raises(InputError, match="page.npy looks like a web page"):
        load_bytes(b"<html>", "page.npy")


def test_the_picker_stays_inside_its_folder(tmp_path):
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "a.npy").touch()
    (tmp_path / "secret.npy").touch()
    (root / "link.npy").symlink_to(tmp_path / "secret.npy")
    (root / "inner.npy").symlink_to(root / "sub" / "a.npy")
    (root / "up").symlink_to(tmp_path)
    (tmp_path / "root2").mkdir()
    (tmp_path / "root2" / "b.npy").touch()
    assert inside(root, "sub/a.npy") == root / "sub" / "a.npy"
    assert inside(root, root / "sub" / "a.npy") == root / "sub" / "a.npy"
    outside = ["../secret.npy", "sub/../sub/a.npy", "link.npy", "inner.npy", "up/secret.npy", "../root2/b.npy"]
    outside += [str(tmp_path / "secret.npy"), "sub", "", "none.npy", "a\0b", "/etc/passwd"]
    for path in outside:
        with pytest.raises(InputError, match="not a file inside"):
            inside(root, path)


def test_loading_is_light():
    import subprocess
    import sys

    code = "import sys, relcore.formats; print([m for m in ('torch', 'pandas', 'scipy') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_rows_without_a_name_are_no_duplicates(tmp_path, rows):
    names = ["", None, float("nan"), "", *map(str, range(46))]
    space, report = load(save(tmp_path / "a.npy", rows), names=names, duplicates="first")
    assert len(space) == 50 and not report.set_aside and not any("earlier" in a for a in report.assumed)


def test_text_with_a_nul_is_named_as_such(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"name,a\nx\0,1\ny,2\n")
    with pytest.raises(InputError, match="byte 8 is NUL"):
        load(tmp_path / "a.csv")


def test_a_place_that_cannot_be_written_is_bad_input(tmp_path, rows):
    np.save(tmp_path / "a.npy", rows)
    space, _ = load(tmp_path / "a.npy")
    with pytest.raises(InputError, match="cannot be written"):
        formats.write(space, tmp_path / ("x" * 300 + ".npy"))
    with pytest.raises(InputError, match="cannot be written"):
        formats.write(space, "/proc/a.npy")
    assert [p.name for p in tmp_path.iterdir()] == ["a.npy"]


@pytest.mark.parametrize("name", ["x" * 5000 + ".npy", "~nobody-is-called-so/a.npy", "a\0b.npy", "x" * 300 + ":key"])
def test_names_that_no_file_can_have_are_bad_input(tmp_path, rows, name):
    np.save(tmp_path / "a.npy", rows)
    with pytest.raises(InputError, match="there is no file"):
        load(name)
    for role in ("labels", "metadata", "media"):
        with pytest.raises(InputError):
            load(tmp_path / "a.npy", **{role: name})
