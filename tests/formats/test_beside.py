"""Names, labels and metadata from files of their own: counts, ids, roles. Files are written by pandas and Python."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relcore.errors import InputError
from relcore.formats import load

pd = pytest.importorskip("pandas")

COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"


@pytest.fixture
def ten(tmp_path):
    """Ten vectors without names."""
    np.save(tmp_path / "v.npy", np.eye(10) + 1)
    return tmp_path / "v.npy"


@pytest.fixture
def named(tmp_path):
    """Five vectors with names, of which one comes twice."""
    np.savez(tmp_path / "n.npz", vectors=np.eye(5) + 1, names=np.array(["a", COMPOSED, "twice", "twice", " e "]))
    return tmp_path / "n.npz"


def write(path, text, **kw):
    path.write_text(text, **{"encoding": "utf-8", "newline": "", **kw})
    return path


FRAME = pd.DataFrame(
    {
        "id": range(10),
        "word": [f"w{i}" for i in range(10)],
        "label": ["x", "y"] * 5,
        "year": [1990 + i for i in range(10)],
        "note": [None if i == 3 else f"n, {i}" for i in range(10)],
    }
)


def save_frame(frame, path):
    """A table by the ecosystem's writer of the ending."""
    kind = path.suffixes[0]
    if kind == ".csv":
        frame.to_csv(path, index=False)
    elif kind == ".tsv":
        frame.to_csv(path, sep="\t", index=False)
    elif kind == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    elif kind == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_feather(path)
    return path


KINDS = ["m.csv", "m.tsv", "m.jsonl", "m.parquet", "m.feather", "m.csv.gz"]


# ------------------------------------------------------------------ B14: labels and counts


@pytest.mark.parametrize("count", [0, 1, 8, 9, 11, 12, 100])
@pytest.mark.parametrize("name", ["l.txt", "l.csv", "l.tsv"])
@pytest.mark.parametrize("ending", ["", "\n"])
def test_b14_labels_of_another_count_are_refused_and_the_vectors_load(ten, tmp_path, count, name, ending):
    path = write(tmp_path / name, "\n".join(f"c{i}" for i in range(count)) + (ending if count else ""))
    space, report = load(ten, labels=path)
    assert len(space) == 10 and space.labels is None
    assert [tuple(r) for r in report.refused] == [("labels", name, count, 10)]
    for offer in (f"{count} for 10 vectors", "by an id column", f"first {min(count, 10)}", "without them"):
        assert offer in str(report.refused[0])


@pytest.mark.parametrize("text", ["", "\n", "\n\n\n", " \r\n", "\ufeff"])
@pytest.mark.parametrize("what", ["labels", "names", "media", "metadata"])
def test_b14_an_empty_file_has_nothing_for_ten_vectors(ten, tmp_path, text, what):
    space, report = load(ten, **{what: write(tmp_path / "l.txt", text)})
    assert len(space) == 10 and space.labels is None and space.media is None and space.meta is None
    assert [tuple(r) for r in report.refused] == [(what, "l.txt", 0, 10)]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("name", ["l.txt", "l.csv", "l.tsv", "l.txt.gz"])
@pytest.mark.parametrize("heading", ["", "label"])
@pytest.mark.parametrize("end", [0, 1, 2, 3])
def test_b14_headings_and_blank_lines_at_the_end_do_not_count(ten, tmp_path, newline, name, heading, end):
    lines = [heading] * bool(heading) + [f"c{i}" for i in range(10)]
    data = (newline.join(lines) + newline * end).encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    space, report = load(ten, labels=tmp_path / name)
    assert list(space.labels) == [f"c{i}" for i in range(10)]
    assert any("heading" in a for a in report.assumed) == bool(heading)
    assert not report.refused and not report.warnings


@pytest.mark.parametrize("blank", [0, 4, 9])
@pytest.mark.parametrize("name", ["l.txt", "l.csv", "l.tsv"])
@pytest.mark.parametrize("heading", ["", "label\n"])
def test_b16_integer_labels_with_a_blank_stay_as_they_are(ten, tmp_path, blank, name, heading):
    cells = ["" if i == blank else str(i % 3) for i in range(10)]
    space, report = load(ten, labels=write(tmp_path / name, heading + "\n".join(cells) + "\n"))
    assert list(space.labels) == cells and not report.refused


def test_b16_labels_with_a_blank_in_arrays_and_frames_are_1_and_not_1_0(ten, tmp_path):
    want = ["1", "", *map(str, range(2, 10))]
    np.savez(tmp_path / "l.npz", labels=np.array([1, np.nan, *range(2, 10)]))
    assert list(load(ten, labels=f"{tmp_path}/l.npz:labels")[0].labels) == want
    frame = pd.DataFrame({"id": range(10), "label": [1, None, *range(2, 10)]})
    for kind in KINDS:
        space, _ = load(ten, metadata=save_frame(frame, tmp_path / kind))
        assert [v.removesuffix(".0") for v in space.labels] == want
        if kind not in ("m.csv", "m.tsv", "m.csv.gz"):  # pandas itself writes 1.0 there
            assert list(space.labels) == want
    codes = ["1", "01", "001", "1e3", "0x1", "1.0", "", "NA", "nan", " 1"]
    space, _ = load(ten, labels=write(tmp_path / "codes.txt", "\n".join(codes)))
    assert list(space.labels) == codes


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "latin-1"])
@pytest.mark.parametrize("name", ["l.txt", "l.csv"])
def test_b14_labels_of_another_encoding(ten, tmp_path, encoding, name):
    words = [f"caf\u00e9{i}" for i in range(10)]
    path = write(tmp_path / name, ("\ufeff" if encoding == "utf-16-le" else "") + "\n".join(words), encoding=encoding)
    space, report = load(ten, labels=path)
    if encoding == "latin-1":
        assert list(space.labels) == [f"caf\ufffd{i}" for i in range(10)]
        assert any("labels of" in w and "UTF-8, shown as \ufffd: 10 (rows" in w for w in report.warnings)
    else:
        assert list(space.labels) == words and not report.warnings


@pytest.mark.parametrize("name", ["classes", "labels.lst", "l.names", "l.vec", "l.md"])
def test_lines_are_labels_whatever_the_name_ends_in(ten, tmp_path, name):
    lines = ["cat\tx", "dog, brown", "c 3", "word 0.5", "", "3", "'q", '"', "a", "b"]
    space, report = load(ten, labels=write(tmp_path / name, "\n".join(lines) + "\n"))
    assert list(space.labels) == lines
    with pytest.raises(InputError, match="web page"):
        load(ten, labels=write(tmp_path / name, "<!DOCTYPE html>\n" * 10))


def test_a_first_line_that_looks_like_a_heading_but_counts_is_said(ten, tmp_path):
    space, report = load(ten, labels=write(tmp_path / "l.txt", "label\n" + "x\n" * 9))
    assert space.labels[0] == "label" and "looks like a heading" in report.warnings[0]


def test_a_sequence_of_another_length(ten):
    with pytest.raises(InputError, match="8 values for 10 vectors"):
        load(ten, labels=["a"] * 8)
    space, report = load(ten, labels=["a"] * 8, match="first")
    assert list(space.labels) == ["a"] * 8 + [""] * 2 and "first 8 of 10" in report.warnings[0]


# ------------------------------------------------------------------ a table of metadata


@pytest.mark.parametrize("name", KINDS)
def test_metadata_gives_roles_by_heading_and_the_rest_as_columns(ten, tmp_path, name):
    space, report = load(ten, metadata=save_frame(FRAME, tmp_path / name))
    assert list(space.names) == list(FRAME["word"]) and list(space.labels) == list(FRAME["label"])
    assert list(space.meta.columns) == ["id", "year", "note"]
    assert list(space.meta["year"]) == [str(y) for y in FRAME["year"]]
    assert list(space.meta["id"]) == [str(i) for i in range(10)]
    assert [v or None for v in space.meta["note"]] == [None if v != v else v for v in FRAME["note"].fillna(np.nan)]
    assert f"'word' of {name} read as names" in report.assumed
    assert not report.refused and not report.warnings


def test_rows_set_aside_take_their_metadata_with_them(tmp_path):
    v = np.eye(10) + 1
    v[4] = 0
    np.save(tmp_path / "v.npy", v)
    space, _ = load(tmp_path / "v.npy", metadata=save_frame(FRAME, tmp_path / "m.csv"))
    assert list(space.meta["id"]) == [str(i) for i in range(10) if i != 4]
    assert list(space.names) == [f"w{i}" for i in range(10) if i != 4]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("count", [8, 9])
def test_b14_metadata_of_another_count_is_refused_as_a_whole(tmp_path, name, count):
    for n in (count, count + 3):
        np.save(tmp_path / "v.npy", np.eye(n) + 1)
        rows = 10 if n > 10 else n - 2
        space, report = load(tmp_path / "v.npy", metadata=save_frame(FRAME[:rows], tmp_path / name))
        assert len(space) == n and space.labels is None and space.meta is None and list(space.names)[0] == "0"
        assert [tuple(r) for r in report.refused] == [("metadata", name, rows, n)]


def test_metadata_of_the_first_rows_on_request(ten, tmp_path):
    for count in (7, 10):
        space, report = load(ten, metadata=save_frame(FRAME[:count], tmp_path / "m.csv"), match="first")
        assert list(space.labels) == [*FRAME["label"][:count], *[""] * (10 - count)]
        assert list(space.meta["year"])[:count] == [str(y) for y in FRAME["year"][:count]]
        assert space.meta["year"].isna().sum() == 10 - count
        assert any("first 7 of 10" in w for w in report.warnings) == (count == 7)


def test_what_the_vectors_or_arguments_give_is_not_replaced(tmp_path):
    own = [f"own{i}" for i in range(10)]
    np.savez(tmp_path / "v.npz", vectors=np.eye(10) + 1, names=np.array(own), year=np.arange(10))
    path = save_frame(FRAME, tmp_path / "m.csv")
    space, report = load(tmp_path / "v.npz", metadata=path, labels=["L"] * 10)
    assert list(space.names) == own and set(space.labels) == {"L"}
    assert list(space.meta["word"]) == list(FRAME["word"]) and list(space.meta["label"]) == list(FRAME["label"])
    assert [int(v) for v in space.meta["year"]] == list(range(10))
    assert list(space.meta["year (m.csv)"]) == [str(y) for y in FRAME["year"]]
    assert any("'year (m.csv)'" in a for a in report.assumed)
    short = write(tmp_path / "l.txt", "a\nb\n")  # refused labels are not replaced by others behind one's back
    space, report = load(tmp_path / "v.npz", metadata=path, labels=short)
    assert space.labels is None and report.refused[0].what == "labels"


@pytest.mark.parametrize(
    "text, names, labels, column",
    [
        ("\n".join(f"w{i}" for i in range(10)), [f"w{i}" for i in range(10)], None, None),
        ("\n".join(f"a sentence, {i}" for i in range(10)), [f"a sentence, {i}" for i in range(10)], None, None),
        ("\n".join("ab" * 5), None, list("ab" * 5), None),
        ("\n".join("aabbccddef"), None, None, "m"),
        ("category\n" + "\n".join("ab" * 5), None, list("ab" * 5), None),
        ("word\n" + "\n".join("abcdefghij") + "\n\n", list("abcdefghij"), None, None),
    ],
)
def test_metadata_of_one_column(ten, tmp_path, text, names, labels, column):
    space, report = load(ten, metadata=write(tmp_path / "m.txt", text))
    assert not report.refused
    assert list(space.names) == (names or [str(i) for i in range(10)])
    assert (None if space.labels is None else list(space.labels)) == labels
    assert (None if space.meta is None else list(space.meta.columns)) == ([column] if column else None)


def test_a_header_of_words_alone_is_found_by_the_counts(ten, tmp_path):
    frame = pd.DataFrame({"species": ["cat", "dog"] * 5, "place": [f"p{i}" for i in range(10)]})
    space, report = load(ten, metadata=save_frame(frame, tmp_path / "m.csv"))
    assert list(space.meta["species"]) == ["cat", "dog"] * 5
    assert any("read as the header" in a for a in report.assumed)
    (tmp_path / "m.csv").write_text("\n".join(f"k{i % 2},p{i}" for i in range(11)))  # eleven rows, no header
    assert load(ten, metadata=tmp_path / "m.csv")[1].refused[0].found == 11


def test_metadata_that_is_no_table(ten, tmp_path):
    np.save(tmp_path / "m.npy", np.eye(10))
    for path, words in ((tmp_path / "m.npy", "holds no table"), (tmp_path / "nowhere.csv", "no file")):
        with pytest.raises(InputError, match=words):
            load(ten, metadata=path)
    with pytest.raises(InputError, match="row 1"):
        load(ten, metadata=write(tmp_path / "m.csv", "id,word\n1,2\n1,2,3\n"))


# ------------------------------------------------------------------ by id


@pytest.mark.parametrize("name", KINDS)
def test_metadata_by_the_names_of_the_vectors(named, tmp_path, name):
    frame = pd.DataFrame({"word": ["e", DECOMPOSED, "zz", "a", "twice"], "label": list("ABCDE"), "id": [7, 8, 9, 5, 6]})
    space, report = load(named, metadata=save_frame(frame, tmp_path / name), match="id")
    assert list(space.names) == ["a", COMPOSED, "twice", "twice", " e "]
    assert list(space.labels) == ["D", "B", "", "", "A"]
    assert [v or None for v in space.meta["id"]] == ["5", "8", None, None, "7"]
    assert any("matched by its column 'word' to the names: 3 of 5 vectors" in a for a in report.assumed)
    said = "\n".join(report.warnings)
    assert f"rows of {name} that belong to no vector: 1 (rows 2 'zz')" in said
    assert "ids of several vectors, by which nothing is attached: 1 ('twice' in rows 2, 3)" in said


def test_metadata_by_an_id_column_of_both(tmp_path):
    np.savez(tmp_path / "v.npz", vectors=np.eye(4) + 1, id=np.array([40, 10, 30, 20]), names=np.array(list("abcd")))
    frame = pd.DataFrame({"id": ["10", " 20 ", "30", "30", "50", None], "label": list("ABCDEF")})
    space, report = load(tmp_path / "v.npz", metadata=save_frame(frame, tmp_path / "m.csv"), match="id")
    assert list(space.labels) == ["", "A", "", "B"]
    said = "\n".join(report.warnings)
    assert "vectors without a row in m.csv: 1 (rows 0 '40')" in said
    assert "rows of m.csv that belong to no vector: 2 (rows 4 '50', 5 '')" in said
    assert "ids of several rows of m.csv, by which nothing is attached: 1 ('30' in rows 2, 3)" in said


def test_metadata_by_row_numbers_where_there_is_nothing_else(ten, tmp_path):
    shuffled = FRAME.sample(frac=1, random_state=0)
    space, report = load(ten, metadata=save_frame(shuffled, tmp_path / "m.csv"), match="id")
    assert list(space.names) == [f"w{i}" for i in range(10)] and list(space.labels) == ["x", "y"] * 5
    assert any("to the row numbers: 10 of 10" in a for a in report.assumed) and not report.warnings


def test_the_column_of_ids_is_chosen_by_name(named, tmp_path):
    frame = pd.DataFrame({"id": range(5), "handle": ["a", "x", "y", "e", "z"], "label": list("ABCDE")})
    path = save_frame(frame, tmp_path / "m.csv")
    space, _ = load(named, metadata=path, match="id", id_column="handle")
    assert list(space.labels) == ["A", "", "", "", "D"]
    with pytest.raises(InputError, match="no column 'nope' of ids; it has id, handle, label"):
        load(named, metadata=path, match="id", id_column="nope")
    with pytest.raises(InputError, match="has no column of ids"):
        load(named, metadata=save_frame(frame[["handle", "label"]], path), match="id")


def test_ids_of_which_none_fits_attach_nothing_and_say_so(named, tmp_path):
    frame = pd.DataFrame({"word": list("vwxyz"), "label": list("ABCDE")})
    space, report = load(named, metadata=save_frame(frame, tmp_path / "m.csv"), match="id")
    assert space.labels is None and space.meta is None
    assert "metadata not attached" in report.warnings[0] and "'v'" in report.warnings[0]


@pytest.mark.parametrize("header", ["id,label\n", ""])
def test_labels_by_id_from_two_columns(named, tmp_path, header):
    path = write(tmp_path / "l.csv", header + f" e,E\n{DECOMPOSED},C\na,A\n")
    space, report = load(named, labels=path, match="id")
    assert list(space.labels) == ["A", "C", "", "", "E"]
    assert any("labels of l.csv matched by" in a and "3 of 5" in a for a in report.assumed)


def test_names_by_id_are_matched_to_the_old_names(named, tmp_path):
    path = write(tmp_path / "n.tsv", f"id\tname\na\tAlpha\n{COMPOSED}\tCoffee\n")
    space, report = load(named, names=path, match="id")
    assert list(space.names) == ["Alpha", "Coffee", "", "", ""]


def test_labels_by_id_from_more_columns(named, tmp_path):
    frame = pd.DataFrame({"word": ["a", "zz"], "year": [1, 2], "label": ["L", "M"], "sort": ["S", "T"]})
    path = save_frame(frame, tmp_path / "l.csv")
    assert load(named, labels=path, match="id")[0].labels[0] == "L"
    assert load(named, labels=f"{path}:sort", match="id")[0].labels[0] == "S"
    with pytest.raises(InputError, match="no column 'nope' for the labels"):
        load(named, labels=f"{path}:nope", match="id")
    with pytest.raises(InputError, match="choose one as l.csv:COLUMN"):
        load(named, labels=save_frame(frame.drop(columns="label"), path), match="id")


def test_one_column_cannot_be_matched_by_id(named, tmp_path):
    with pytest.raises(InputError, match="l.txt has one column, so its labels cannot be matched by id"):
        load(named, labels=write(tmp_path / "l.txt", "a\nb\n"), match="id")
    np.save(tmp_path / "l.npy", np.arange(5))
    with pytest.raises(InputError, match="l.npy has no columns"):
        load(named, labels=tmp_path / "l.npy", match="id")


def test_a_repeated_name_that_is_set_aside_makes_nothing_ambiguous(named, tmp_path):
    frame = pd.DataFrame({"word": ["twice"], "label": ["T"]})
    space, report = load(named, metadata=save_frame(frame, tmp_path / "m.csv"), match="id", duplicates="first")
    assert list(space.names) == ["a", COMPOSED, "twice", " e "] and list(space.labels) == ["", "", "T", ""]
    assert [s.row for s in report.set_aside] == [3]


texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=6)


@given(st.lists(st.sampled_from("abcdef"), max_size=9), st.permutations("abcdefgh"))
@settings(max_examples=60, deadline=None)
def test_matching_is_that_of_a_join_on_unique_keys(tmp_path_factory, file_ids, own):
    """Truth: pandas' merge of what is unique on both sides."""
    folder = tmp_path_factory.mktemp("m")
    own = [*own, own[0]]  # one vector's id comes twice
    np.savez(folder / "v.npz", vectors=np.ones((9, 2)), names=np.array(own))
    rows = [{"word": k, "value": f"{k}{i}"} for i, k in enumerate(file_ids)] + [{"word": "other", "value": "o"}]
    with open(folder / "m.jsonl", "w") as f:
        f.writelines(json.dumps(r) + "\n" for r in rows)
    try:
        space, report = load(folder / "v.npz", metadata=folder / "m.jsonl", match="id")
    except InputError as e:
        assert "jsonl" in str(e)
        raise
    left = pd.DataFrame({"word": own}).drop_duplicates("word", keep=False)
    right = pd.DataFrame(rows).drop_duplicates("word", keep=False)
    want = left.reset_index().merge(right, on="word").set_index("index")["value"].reindex(range(9))
    got = [None] * 9 if space.meta is None else list(space.meta["value"])
    assert got == [None if v != v else v for v in want]


@given(st.lists(texts.filter(lambda t: "\n" not in t and "\r" not in t), min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_lines_are_labels_verbatim(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("l")
    np.save(folder / "v.npy", np.ones((len(lines), 2)))
    (folder / "l.txt").write_bytes("".join(line + "\n" for line in lines).encode())
    space, report = load(folder / "v.npy", labels=folder / "l.txt")
    if report.refused:
        assert not "".join(lines).strip(" \t\ufeff")
    else:
        assert list(space.labels) == [lines[0].removeprefix("\ufeff"), *lines[1:]]


@given(st.binary(max_size=60), st.sampled_from(["m.csv", "m.tsv", "m.txt", "m.jsonl", "m.parquet", "m.feather"]))
@settings(max_examples=120, deadline=None)
def test_any_bytes_beside_the_vectors_are_an_error_in_words_or_a_space(tmp_path_factory, data, name):
    folder = tmp_path_factory.mktemp("b")
    np.save(folder / "v.npy", np.ones((3, 2)))
    (folder / name).write_bytes(data)
    for options in ({"metadata": folder / name}, {"labels": folder / name}):
        for match in ("position", "first", "id"):
            try:
                assert len(load(folder / "v.npy", match=match, **options)[0]) == 3
            except InputError as e:
                assert str(e)


def test_ids_that_pandas_wrote_with_a_decimal_point_match(tmp_path):
    np.save(tmp_path / "v.npy", np.eye(3, dtype=np.float32))
    frame = pd.DataFrame({"id": [2.0, 0.0, np.nan], "label": ["c", "a", "x"]})
    frame.to_csv(tmp_path / "m.csv", index=False)
    space, report = load(tmp_path / "v.npy", metadata=tmp_path / "m.csv", match="id")
    assert space.labels.tolist() == ["a", "", "c"] and "2 of 3 vectors" in " ".join(report.assumed)
