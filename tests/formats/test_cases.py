"""Bug reports from the field (B03 to B16, B25 of the house's list) through the command line, as a person meets them."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import zipfile

import numpy as np
import pandas as pd
import pytest

from relcore.cli import main

ROWS = np.random.default_rng(0).standard_normal((50, 8)).astype(np.float32)


@pytest.fixture
def seen(tmp_path, capsys):
    """Write a file and inspect it; gives the JSON, or (exit code, the one line) where it is refused."""

    def run(name: str, content: bytes | str | None = None, *options: str, encoding: str = "utf-8"):
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
        code = main(["inspect", str(path), "--json", *options])
        out, err = capsys.readouterr()
        if code == 0:
            return json.loads(out)
        assert not out and "Traceback" not in err
        (line,) = [line for line in err.splitlines() if line.startswith("relcore: ")]
        return code, line

    return run


def refused(result) -> str:
    assert isinstance(result, tuple) and result[0] == 2, result
    return result[1]


def aside(seen: dict) -> dict[int, str]:
    return {row["row"]: row["reason"] for row in seen["set_aside"]}


# ------------------------------------------------------------------------------------------------ B03 null vectors


@pytest.mark.parametrize("suffix", ["parquet", "feather"])
def test_b03_a_null_vector_is_missing_and_not_zero(seen, tmp_path, suffix):
    vectors = [list(map(float, row)) for row in ROWS[:20]]
    for i in (2, 5, 19):
        vectors[i] = None
    frame = pd.DataFrame({"name": [f"n{i}" for i in range(20)], "embedding": vectors})
    getattr(frame, f"to_{suffix}")(tmp_path / f"t.{suffix}")
    told = seen(f"t.{suffix}")
    assert (told["rows_read"], told["rows_used"], told["dim"]) == (20, 17, 8)
    assert set(aside(told)) == {2, 5, 19} and all("missing" in reason for reason in aside(told).values())
    frame["embedding"] = pd.Series([None] * 20, dtype=object)
    getattr(frame, f"to_{suffix}")(tmp_path / f"t.{suffix}")
    assert "embedding" in refused(seen(f"t.{suffix}"))


# ------------------------------------------------------------------------------------------------ B04 to B07 text


def test_b04_a_header_is_one_only_where_the_second_line_agrees(seen):
    rows = "a 1 2\nb 3 4\nc 5 6\n"
    for text in ("3 2\n" + rows, rows):
        told = seen("w.vec", text)
        assert (told["rows_used"], told["dim"], told["warnings"]) == (3, 2, [])
    assert any("says 5" in w and "3" in w for w in seen("w.vec", "5 2\n" + rows)["warnings"])
    line = refused(seen("w.vec", "3 300\n" + rows))
    assert "300" in line and "have 2" in line
    told = seen("w.vec", "400000 300\nfoo 5\nbar 7\n")
    assert (told["rows_used"], told["dim"]) == (3, 1)


def test_b05_words_with_spaces_survive(seen, tmp_path, capsys):
    words = [". . .", "to name@domain.com", "New York", "plain"]
    text = "".join(f"{w} {i}.5 -1 2e-3\n" for i, w in enumerate(words))
    for name, content in (("w.txt", text), ("w.vec", "4 3\n" + text)):
        told = seen(name, content)
        assert (told["rows_used"], told["dim"], aside(told)) == (4, 3, {})
        assert main(["convert", str(tmp_path / name), str(tmp_path / "out.npz")]) == 0
        with np.load(tmp_path / "out.npz") as out:
            assert sorted(map(str, out["names"])) == sorted(words)
        capsys.readouterr()


def test_b06_duplicates_are_told_and_nothing_is_lowered(seen):
    text = "the 1 2\nthe 3 4\nThe 5 6\n"
    told = seen("w.vec", text)
    assert told["rows_used"] == 2 and list(aside(told)) == [1] and "duplicate" in aside(told)[1]
    assert any("1 exact duplicate" in w for w in told["warnings"])
    assert any("case only, kept: 1" in a for a in told["assumed"])
    assert seen("w.vec", text, "--fold-case")["rows_used"] == 1
    assert seen("w.vec", text, "--duplicates", "all")["rows_used"] == 3


def test_b07_one_bad_word_does_not_end_the_load(seen):
    told = seen("w.vec", b"ok 1 2\ncaf\xe9 3 4\n")
    assert told["rows_used"] == 2 and any("1" in w and "UTF-8" in w for w in told["warnings"])
    told = seen("w.vec", "3 2\na 1 2\nb 3 4\nc 5 6\n", encoding="utf-8-sig")
    assert (told["rows_used"], told["warnings"]) == (3, [])
    told = seen("t.tsv", "name\tx\ty\nä\t1\t2\nß\t3\t4\n", encoding="utf-16")
    assert (told["rows_used"], told["dim"]) == (2, 2)
    cut = "é".encode()[:1]
    vectors = [np.float32([1, 2]).tobytes(), np.float32([3, 4]).tobytes()]
    told = seen("w.bin", b"2 2\n" + b"ab " + vectors[0] + b"\n" + cut + b" " + vectors[1] + b"\n")
    assert told["rows_used"] == 2 and told["warnings"]


# ------------------------------------------------------------------------------------------------ B08, B09 containers


class Harmful:
    def __reduce__(self):
        return print, ("executed",)


def archive(**members: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name, data in members.items():
            z.writestr(name, data)
    return out.getvalue()


@pytest.mark.parametrize("name", ["a.bin", "a.npy", "a.npz", "a.vec", "a.csv", "a.pt", "a.parquet", "a.h5", "a.json"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (archive(a=b"x"), "zip"),
        (pickle.dumps(Harmful()), "Python objects"),
        (struct.pack("<ii", 793712314, 12) + bytes(200), "fastText"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "web page"),
        (b"%PDF-1.7 ...", "PDF"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "git lfs pull"),
        (b"", "empty"),
    ],
    ids=["zip", "pickle", "fasttext", "html", "pdf", "lfs", "empty"],
)
def test_b08_the_bytes_decide_and_not_the_ending(seen, capsys, name, content, words):
    line = refused(seen(name, content))
    assert words in line and "executed" not in line


def test_b09_python_objects_are_refused_with_a_recipe(seen, tmp_path):
    torch = pytest.importorskip("torch")
    ragged = np.empty(2, dtype=object)
    ragged[:] = [[1.0, 2.0], [3.0]]
    np.save(tmp_path / "ragged.npy", ragged)
    np.save(tmp_path / "dict.npy", {"a": ROWS})
    torch.save({"emb": ROWS}, tmp_path / "ndarray.pt")
    for name in ("ragged.npy", "dict.npy", "ndarray.pt"):
        line = refused(seen(name))
        assert "Python objects, which can run code" in line and "import" in line
    torch.save({"emb": torch.from_numpy(ROWS)}, tmp_path / "one.pt")
    assert seen("one.pt")["rows_used"] == 50
    torch.save({"a": torch.from_numpy(ROWS), "b": torch.zeros(3, 2)}, tmp_path / "two.pt")
    told = seen("two.pt")
    assert [a["shape"] for a in told["arrays"]] == [[50, 8], [3, 2]] and "choose one" in told["warnings"][0]
    assert seen("two.pt", None, "--key", "a")["rows_used"] == 50


# ------------------------------------------------------------------------------------------------ B10 to B12 arrays


def test_b10_layout_and_byte_order_do_not_matter(tmp_path, capsys):
    wide = np.ascontiguousarray(np.hstack([ROWS, ROWS]))
    forms = {
        "native": ROWS,
        "big": ROWS.astype(">f4"),
        "big8": ROWS.astype(">f8"),
        "fortran": np.asfortranarray(ROWS),
        "reversed": ROWS[::-1][::-1],
        "strided": wide[:, :8],
    }
    for name, array in forms.items():
        np.save(tmp_path / f"{name}.npy", array)
        assert main(["convert", str(tmp_path / f"{name}.npy"), str(tmp_path / f"{name}.out.npy")]) == 0
        np.testing.assert_array_equal(np.load(tmp_path / f"{name}.out.npy"), ROWS)


@pytest.mark.parametrize("known_to_numpy", [False, True])
def test_b11_half_precision_becomes_float32_and_its_type_is_shown(seen, tmp_path, known_to_numpy):
    torch = pytest.importorskip("torch")
    if known_to_numpy:
        import ml_dtypes  # noqa: F401  as jax loads it; the order of the tests decides what the other case sees
    from safetensors.torch import save_file

    np.save(tmp_path / "half.npy", np.full((4, 4), 300, dtype=np.float16))
    told = seen("half.npy")
    assert (told["dtype"], told["rows_used"]) == ("float16", 4)
    save_file({"v": torch.from_numpy(ROWS).bfloat16()}, tmp_path / "b.safetensors")
    told = seen("b.safetensors")
    assert (told["dtype"], told["rows_used"]) == ("bfloat16", 50)
    torch.save(torch.nn.Parameter(torch.from_numpy(ROWS)), tmp_path / "p.pt")
    assert seen("p.pt")["rows_used"] == 50


def test_b12_a_sparse_matrix_is_seen_as_one(seen, tmp_path):
    sparse = pytest.importorskip("scipy.sparse")
    matrix = sparse.csr_matrix(np.where(ROWS > 0.5, ROWS, 0) + np.eye(50, 8, dtype=np.float32))
    matrix[:, 0] = 1
    sparse.save_npz(tmp_path / "s.npz", matrix)
    told = seen("s.npz")
    assert (told["rows_used"], told["dim"]) == (50, 8)
    huge = sparse.csr_matrix(([1.0], ([0], [0])), shape=(3_000_000, 900_000))
    sparse.save_npz(tmp_path / "huge.npz", huge)
    assert "TB" in refused(seen("huge.npz"))
    np.save(tmp_path / "s.npy", np.array(matrix, dtype=object))
    assert "Python objects" in refused(seen("s.npy"))


# ------------------------------------------------------------------------------------------------ B13 to B16 tables


def test_b13_vectors_written_as_text_are_read_without_running_them(seen):
    cells = ["[0.1, 0.2, 0.3]", "[0.1 0.2 0.3]", "tensor([0.1, 0.2, 0.3])", "[0.1, ..., 0.3]", "[0.1, 0.2]"]
    text = "name,embedding\n" + "".join(f'n{i},"{c}"\n' for i, c in enumerate(cells))
    told = seen("t.csv", text)
    assert (told["rows_read"], told["rows_used"], told["dim"]) == (5, 3, 3)
    assert "the data is gone" in aside(told)[3] and "2 numbers" in aside(told)[4]
    line = refused(seen("t.csv", 'name,embedding\na,"__import__(\'os\').getcwd()"\nb,"[1, 2]"\n'))
    assert "__import__" in line or "number" in line


@pytest.mark.parametrize("count", [0, 8, 11])
def test_b14_vectors_load_when_the_labels_do_not_fit(seen, tmp_path, count):
    (tmp_path / "l.txt").write_text("\n".join(f"c{i}" for i in range(count)) or "\n\n")
    np.save(tmp_path / "v.npy", ROWS[:10])
    told = seen("v.npy", None, "--labels", str(tmp_path / "l.txt"))
    assert told["rows_used"] == 10
    assert told["refused"][0]["wanted"] == 10 and told["refused"][0]["found"] != 10
    assert main(["inspect", str(tmp_path / "v.npy"), "--labels", str(tmp_path / "l.txt")]) == 0


def test_b15_a_class_name_in_the_last_column_is_no_number_of_a_vector(seen):
    rows = [f"{i}.5\t{i}\t-{i}\t1\t{('fwd', 'left', 'back')[i % 3]}\n" for i in range(10)]
    told = seen("t.tsv", "".join(rows))
    assert (told["rows_used"], told["dim"]) == (10, 4)
    assert [c["role"] for c in told["columns"]] == ["vector"] * 4 + ["label"]


def test_b16_labels_keep_their_spelling(tmp_path, capsys):
    frame = pd.DataFrame(ROWS[:4], columns=list("abcdefgh"))
    frame["label"] = pd.Series([1.0, np.nan, 2.0, 10.0])
    frame.to_parquet(tmp_path / "f.parquet")
    assert main(["convert", str(tmp_path / "f.parquet"), str(tmp_path / "f.npz")]) == 0
    with np.load(tmp_path / "f.npz") as out:
        assert out["labels"].tolist() == ["1", "", "2", "10"]
    (tmp_path / "s.csv").write_text('label,a,b\n1,1,2\n01,3,4\n"",5,6\n')
    assert main(["convert", str(tmp_path / "s.csv"), str(tmp_path / "s.npz")]) == 0
    with np.load(tmp_path / "s.npz") as out:
        assert out["labels"].tolist() == ["1", "01", ""]


# ------------------------------------------------------------------------------------------------ compressed


def test_what_unpacks_without_end_is_stopped(seen):
    bomb = gzip.compress(b"a 0 0\n" * 30_000_000, 9)
    assert "bomb" in refused(seen("w.vec.gz", bomb))
