"""Seed pairs: drawn, spread, read from files, paired up, corrupted and judged."""

from __future__ import annotations

import csv
import gzip
import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relcore import seeds
from relcore.errors import InputError
from relcore.space import NO_LABEL, Pairs, make_space

WORDS = ["the", "of", "to", "New York", "the", "left", "right", "a,b"]


@pytest.fixture
def two():
    """x and y of 8 rows; row 2 of x is zero, row 5 of y has a NaN."""
    rng = np.random.default_rng(0)
    vx, vy = rng.normal(size=(8, 4)), rng.normal(size=(8, 3))
    vx[2], vy[5, 0] = 0, np.nan
    x, report_x = make_space(vx, names=WORDS, title="X")
    y, report_y = make_space(vy, names=[w.upper() for w in WORDS], title="Y")
    return x, y, report_x, report_y


def ids(pairs, x, y):
    return [(int(x.ids[i]), int(y.ids[j])) for i, j in pairs.array]


# ------------------------------------------------------------------------------------------------------------ choosing


def test_draws_are_seeded_nested_and_without_repeats():
    pairs = Pairs.by_row(100)
    small, large = seeds.draw(pairs, 15, seed=3), seeds.draw(pairs, 40, seed=3)
    np.testing.assert_array_equal(small.array, large.array[:15])
    assert len(set(large.x.tolist())) == 40
    assert not np.array_equal(small.array, seeds.draw(pairs, 15, seed=4).array)
    np.testing.assert_array_equal(small.array, seeds.draw(pairs, 15, seed=np.random.default_rng(3)).array)
    assert len(seeds.draw(pairs, 0, seed=0)) == 0
    with pytest.raises(InputError, match="101 seeds asked for, but only 100"):
        seeds.draw(pairs, 101, seed=0)


def test_every_pair_is_drawn_equally_often():
    hits = np.zeros(10)
    for s in range(2000):
        hits[seeds.draw(Pairs.by_row(10), 3, seed=s).x] += 1
    assert np.abs(hits / 2000 - 0.3).max() < 0.04  # four standard errors


def test_farthest_point_is_the_greedy_cover():
    rng = np.random.default_rng(0)
    v = rng.normal(size=(60, 5)).astype(np.float32)
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    pairs = Pairs(np.stack([rng.permutation(60)[:40], np.arange(40)], 1))
    found = seeds.farthest_point(v, pairs, 12, seed=1)
    chosen = found.x.tolist()
    assert len(set(chosen)) == 12
    for k in range(1, 12):  # each is the candidate whose nearest chosen one is farthest
        rest = [r for r in pairs.x.tolist() if r not in chosen[:k]]
        nearest = {r: max(float(v[r] @ v[c]) for c in chosen[:k]) for r in rest}
        assert nearest[chosen[k]] == pytest.approx(min(nearest.values()), abs=1e-6)
    partner = dict(pairs.array.tolist())
    assert [partner[i] for i in chosen] == found.y.tolist()
    np.testing.assert_array_equal(found.array, seeds.farthest_point(v, pairs, 12, seed=1).array)
    assert len(seeds.farthest_point(v, pairs, 40, seed=1)) == 40
    assert len(seeds.farthest_point(v, pairs, 0, seed=1)) == 0


def test_farthest_point_finds_one_of_each_far_cluster():
    centres = np.eye(6)[np.arange(60) % 6]
    v = centres + 0.05 * np.random.default_rng(0).normal(size=(60, 6))
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    for seed in range(5):
        assert set(seeds.farthest_point(v, Pairs.by_row(60), 6, seed=seed).x % 6) == set(range(6))


# ------------------------------------------------------------------------------------------------------------- pair_by


def test_pair_by_row_drops_rows_set_aside_on_either_side(two):
    x, y, *_ = two
    pairs, problems = seeds.pair_by(x, y, "row")
    assert ids(pairs, x, y) == [(i, i) for i in (0, 1, 3, 4, 6, 7)]
    assert problems == ["1 rows of x have no partner", "1 rows of y have no partner"]


def test_pair_by_name_is_exact_and_leaves_out_what_is_ambiguous():
    x, _ = make_space(np.eye(5) + 1, names=["a", "b", "b", "c", "D"])
    y, _ = make_space(np.eye(4) + 1, names=["d", "c", "b", "a"])
    pairs, problems = seeds.pair_by(x, y, "name")
    assert pairs.array.tolist() == [[0, 3], [3, 1]]
    assert problems[0].startswith("1 names are shared by several rows of x (2 rows)") and "'b'" in problems[0]
    assert problems[1:] == ["1 rows of x have no partner", "1 rows of y have no partner"]


def test_pair_by_id_uses_the_metadata():
    pd = pytest.importorskip("pandas")
    x, _ = make_space(np.eye(3) + 1, meta=pd.DataFrame({"id": [30, 10, 20]}))
    y, _ = make_space(np.eye(2) + 1, meta=pd.DataFrame({"ID": ["10", "30"]}))
    assert seeds.pair_by(x, y, "id")[0].array.tolist() == [[0, 1], [1, 0]]
    z, _ = make_space(np.eye(2) + 1, title="Z")
    assert seeds.pair_by(x, z, "id") == (None, ["no column of ids in y (Z); pair by row or by name instead"])


def test_spaces_with_no_way_to_pair(two):
    x, y, *_ = two
    assert seeds.pair_by(x, y, "none") == (None, [])
    pairs, problems = seeds.pair_by(x, y, "name")
    assert pairs is None and problems[-1] == "the two spaces have no names in common"
    with pytest.raises(InputError, match="choose one of row, name, id, none"):
        seeds.pair_by(x, y, "guess")


COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"


def test_names_match_however_their_accents_are_composed_and_are_shown_as_spelled():
    x, _ = make_space(np.eye(3) + 1, names=[COMPOSED, "a", "b"])
    y, _ = make_space(np.eye(3) + 1, names=["b", DECOMPOSED, "c"])
    pairs, _ = seeds.pair_by(x, y, "name")
    assert pairs.array.tolist() == [[0, 1], [2, 0]]
    assert (x.names[0], y.names[1]) == (COMPOSED, DECOMPOSED)


def test_names_that_become_equal_on_one_side_are_ambiguous_and_listed():
    x, _ = make_space(np.eye(4) + 1, names=["a", COMPOSED, "b", DECOMPOSED])
    y, _ = make_space(np.eye(4) + 1, names=[COMPOSED, "b", "q", "A"])
    found = seeds.pairing(x, y, "name")
    assert found.pairs.array.tolist() == [[2, 1]]
    assert found.ambiguous == (seeds.Ambiguous("x", COMPOSED, (1, 3)),)
    assert (found.alone_x, found.alone_y, found.folded) == (1, 2, 1)
    assert found.summary() == (
        "1 pair, 1 ambiguous entry, 1 row of x and 2 of y without partner; 1 more would match if case were folded"
    )


def test_ambiguous_rows_are_those_of_the_source_file_on_either_side():
    v = np.eye(5) + 1
    v[0] = 0  # set aside: positions and row numbers differ
    x, _ = make_space(v, names=list("zabbc"))
    y, _ = make_space(v, names=list("zccab"))
    found = seeds.pairing(x, y, "name")
    assert found.ambiguous == (seeds.Ambiguous("x", "b", (2, 3)), seeds.Ambiguous("y", "c", (1, 2)))
    assert ids(found.pairs, x, y) == [(1, 3)]
    assert (found.alone_x, found.alone_y) == (0, 0)


def test_a_partner_set_aside_at_load_is_said(two):
    x, y, report_x, report_y = two
    found = seeds.pairing(x, y, "row", report_x=report_x, report_y=report_y)
    assert found.problems[2:] == (
        "1 rows of x lose their partner, set aside at load of y: row 5 (NaN or infinite)",
        "1 rows of y lose their partner, set aside at load of x: row 2 (zero norm)",
    )
    v = np.eye(3) + 1
    v[1] = 0
    a, report_a = make_space(v, names=["k", COMPOSED, "m"])
    b, report_b = make_space(np.eye(3) + 1, names=[DECOMPOSED, "m", "k"])
    found = seeds.pairing(a, b, "name", report_x=report_a, report_y=report_b)
    assert found.pairs.array.tolist() == [[0, 2], [1, 1]]
    assert found.problems[-1] == "1 rows of y lose their partner, set aside at load of x: row 1 (zero norm)"


def test_pair_by_columns_chosen_by_name_and_blank_ids_have_no_partner():
    pd = pytest.importorskip("pandas")
    x, _ = make_space(np.eye(5) + 1, meta=pd.DataFrame({"id": list("qrstu"), "key2": [1.0, None, 3.0, 2.0, 7.0]}))
    y, _ = make_space(np.eye(4) + 1, meta=pd.DataFrame({"their key": ["3", None, " 1 ", ""]}), title="Y")
    found = seeds.pairing(x, y, "id", id_x="key2", id_y="their key")
    assert found.pairs.array.tolist() == [[0, 2], [2, 0]] and found.ambiguous == ()
    assert (found.alone_x, found.alone_y) == (3, 2)
    assert seeds.pair_by(x, y, "id", "key2", "their key")[0].array.tolist() == [[0, 2], [2, 0]]
    with pytest.raises(InputError, match=r"y \(Y\) has no column 'nope' to pair by; it has their key"):
        seeds.pairing(x, y, "id", id_x="key2", id_y="nope")
    z, _ = make_space(np.eye(2) + 1, title="Z")
    with pytest.raises(InputError, match="it has no metadata"):
        seeds.pairing(x, z, "id", id_y="id")


def test_rows_without_a_name_have_no_partner():
    x, _ = make_space(np.eye(3) + 1, names=["", "a", "b"])
    y, _ = make_space(np.eye(3) + 1, names=["a", "", ""])
    found = seeds.pairing(x, y, "name")
    assert found.pairs.array.tolist() == [[1, 0]] and found.ambiguous == ()
    assert (found.alone_x, found.alone_y) == (2, 2)


# ---------------------------------------------------------------------------------------------------------- read_pairs


@pytest.mark.parametrize("delimiter", ["\t", ",", ";", "  "])
@pytest.mark.parametrize("header", ["", "x{}y\n", "row{}row\n"])
def test_row_numbers_are_those_of_the_source_file(two, tmp_path, delimiter, header):
    text = header.format(delimiter) + f"0{delimiter}1\n\n3{delimiter}7\n"
    pairs, problems = seeds.read_pairs(text, *two)
    assert ids(pairs, *two[:2]) == [(0, 1), (3, 7)] and problems == []
    assert pairs.array.tolist() == [[0, 1], [2, 6]]  # positions, after the rows set aside
    (tmp_path / "p.csv").write_text(text)
    np.testing.assert_array_equal(seeds.read_pairs(tmp_path / "p.csv", *two)[0].array, pairs.array)


def test_names_verbatim_and_mixed_with_row_numbers(two):
    pairs, problems = seeds.read_pairs("of\tOF\nNew York\tTO\n", *two)
    assert ids(pairs, *two[:2]) == [(1, 1), (3, 2)] and problems == []
    pairs, _ = seeds.read_pairs('"a,b",NEW YORK\nof,"A,B"\n', *two)
    assert ids(pairs, *two[:2]) == [(7, 3), (1, 7)]
    pairs, _ = seeds.read_pairs("of\t4\nNew York\t7\n", *two)
    assert ids(pairs, *two[:2]) == [(1, 4), (3, 7)]


def test_words_that_are_not_there_are_listed_by_line_and_the_rest_accepted(two):
    pairs, problems = seeds.read_pairs("of,OF\nnowhere,TO\nOf,TO\nright,NOPE\nNew York,TO\n", *two)
    assert ids(pairs, *two[:2]) == [(1, 1), (3, 2)]
    assert problems == [
        "line 2: 'nowhere' is no name in x",
        "line 3: 'Of' is no name in x",
        "line 4: 'NOPE' is no name in y",
    ]


def test_pairs_that_name_a_row_set_aside_say_why(two):
    pairs, problems = seeds.read_pairs("2,0\n0,5\n1,1\n", *two)
    assert ids(pairs, *two[:2]) == [(1, 1)]
    assert problems == [
        "line 1: row 2 of x was set aside at load (zero norm)",
        "line 2: row 5 of y was set aside at load (NaN or infinite)",
    ]
    pairs, problems = seeds.read_pairs("to,OF\nof,LEFT\nleft,TO\n", *two)
    assert ids(pairs, *two[:2]) == [(5, 2)]
    assert problems == [
        "line 1: 'to' of x, row 2, was set aside at load (zero norm)",
        "line 2: 'LEFT' of y, row 5, was set aside at load (NaN or infinite)",
    ]


def test_row_numbers_out_of_range(two):
    _, problems = seeds.read_pairs("0,0\n8,1\n", *two)
    assert problems == ["line 2: there is no row 8 in x, whose rows are 0 to 7"]


def test_names_of_several_rows_are_refused_with_the_rows(two):
    pairs, problems = seeds.read_pairs("the,OF\nof,THE\n", *two)
    assert len(pairs) == 0
    assert problems == [
        "line 1: 'the' is the name of 2 rows of x (rows 0, 4); give the row number",
        "line 2: 'THE' is the name of 2 rows of y (rows 0, 4); give the row number",
    ]


def test_a_row_in_two_pairs_keeps_the_first(two):
    pairs, problems = seeds.read_pairs("0,1\n0,2\n3,1\n0,1\n6,6\n", *two)
    assert ids(pairs, *two[:2]) == [(0, 1), (6, 6)]
    assert problems == [
        "line 2: already paired: '0' of x (line 1); the first is kept",
        "line 3: already paired: '1' of y (line 1); the first is kept",
        "line 4: the same pair as line 1, kept once",
    ]


def test_lines_of_another_width_and_empty_texts(two):
    pairs, problems = seeds.read_pairs("0,1\n2\n3,4,5\n6,6\n", *two)
    assert len(pairs) == 2 and problems == ["line 2: 1 columns, wanted 2", "line 3: 3 columns, wanted 2"]
    assert seeds.read_pairs("\n", *two)[1] == ["the text holds no pairs"]


def test_a_heading_that_is_a_pair_of_names_is_a_pair(two):
    x, _, report_x, _ = two
    pairs, problems = seeds.read_pairs("left right\nof of\n", x, x, report_x, report_x)
    assert ids(pairs, x, x) == [(5, 6), (1, 1)] and problems == []


def test_numbers_that_are_rows_and_names_at_once_are_refused_or_settled_by_a_header():
    x, report_x = make_space(np.eye(4) + 1, names=["3", "2", "1", "0"], title="X")
    y, report_y = make_space(np.eye(4) + 1, title="Y")  # names are the row numbers: no clash
    with pytest.raises(InputError, match="row numbers and names of x at once"):
        seeds.read_pairs("0,1\n3,2\n", x, y, report_x, report_y)
    assert seeds.read_pairs("row,row\n0,1\n", x, y, report_x, report_y)[0].array.tolist() == [[0, 1]]
    assert seeds.read_pairs("name,row\n0,1\n", x, y, report_x, report_y)[0].array.tolist() == [[3, 1]]


def test_a_text_is_never_taken_for_a_path(two, tmp_path):
    (tmp_path / "p.csv").write_text("0,1\n")
    pairs, problems = seeds.read_pairs(str(tmp_path / "p.csv"), *two)
    assert len(pairs) == 0 and problems
    with pytest.raises(InputError, match="there is no file"):
        seeds.read_pairs(tmp_path / "q.csv", *two)
    np.save(tmp_path / "p.npy", np.eye(2))
    with pytest.raises(InputError, match="p.npy is no text"):
        seeds.read_pairs(tmp_path / "p.npy", *two)


@pytest.fixture
def tongues():
    """English and German; the English side has a word twice."""
    x, report_x = make_space(np.eye(6) + 1, names=["the", "bank", "New York", COMPOSED, "twice", "twice"])
    y, report_y = make_space(np.eye(6) + 1, names=["der", "die", "Bank", "Ufer", "New York", DECOMPOSED])
    return x, y, report_x, report_y


@pytest.mark.parametrize("delimiter", ["\t", " "])
def test_a_bilingual_dictionary_keeps_the_first_translation_and_lists_the_others(tongues, delimiter):
    lines = ["the der", "the die", "bank Bank", "bank Ufer", "one der", "twice Ufer", f"{COMPOSED} {COMPOSED}"]
    found = seeds.read_pairing("\n".join(lines).replace(" ", delimiter), *tongues)
    assert found.pairs.array.tolist() == [[0, 0], [1, 2], [3, 5]]
    assert found.ambiguous == (
        seeds.Ambiguous("x", "the", (0,), (1, 2)),
        seeds.Ambiguous("x", "bank", (1,), (3, 4)),
        seeds.Ambiguous("x", "twice", (4, 5), (6,)),
    )
    assert found.problems == (
        "line 2: already paired: 'the' of x (line 1); the first is kept",
        "line 4: already paired: 'bank' of x (line 3); the first is kept",
        "line 5: 'one' is no name in x",
        "line 6: 'twice' is the name of 2 rows of x (rows 4, 5); give the row number",
    )
    assert (found.alone_x, found.alone_y) == (1, 1)  # New York


def test_a_dictionary_the_other_way_round_is_ambiguous_on_the_right(tongues):
    x, y, report_x, report_y = tongues
    found = seeds.read_pairing("der the\ndie the\nder the\n", y, x, report_y, report_x)
    assert found.pairs.array.tolist() == [[0, 0]]
    assert found.ambiguous == (seeds.Ambiguous("y", "the", (0,), (1, 2)),)
    assert found.problems[1] == "line 3: the same pair as line 1, kept once"


def test_entries_of_several_words_by_tab_and_case_that_would_match(tongues):
    found = seeds.read_pairing("New York\tNew York\nThe\tder\nBANK\tbank\nno\tUfer\n", *tongues)
    assert found.pairs.array.tolist() == [[2, 4]]
    assert found.folded == 2 and "2 more would match if case were folded" in found.summary()


def test_tabs_and_blanks_mixed_and_words_with_unusual_separators_inside(two):
    """MUSE's own files mix the two; a word may hold a no-break space, or a line separator that is none."""
    x, report_x = make_space(np.eye(4) + 1, names=["a", "b", "New\xa0York", "odd\x85\u2028"])
    text = "a\tb\nb a\nNew\xa0York odd\x85\u2028\r\n"
    found = seeds.read_pairing(text, x, x, report_x, report_x)
    assert found.pairs.array.tolist() == [[0, 1], [1, 0], [2, 3]] and found.problems == ()


def test_a_packed_file_of_pairs_and_other_encodings(two, tmp_path):
    (tmp_path / "p.tsv.gz").write_bytes(gzip.compress(b"0\t1\n3\t7\n"))
    assert ids(seeds.read_pairs(tmp_path / "p.tsv.gz", *two)[0], *two[:2]) == [(0, 1), (3, 7)]
    (tmp_path / "p.txt").write_text("of\tOF\n", encoding="utf-16")
    assert ids(seeds.read_pairs(tmp_path / "p.txt", *two)[0], *two[:2]) == [(1, 1)]
    assert ids(seeds.read_pairs("\ufeffof\tOF\n", *two)[0], *two[:2]) == [(1, 1)]


def test_numbers_too_long_for_a_row_are_no_traceback(two):
    for cell in ("9" * 30, "9" * 5000, "\u00b2"):
        pairs, problems = seeds.read_pairs(f"1,1\n{cell},2\n", *two)
        assert len(pairs) <= 1 and any("line 2" in p for p in problems)
    limit = csv.field_size_limit(1000)
    try:
        with pytest.raises(InputError, match="no readable list of pairs"):
            seeds.read_pairs('a,"' + "b" * 2000 + '"\n0,1\n', *two)
    finally:
        csv.field_size_limit(limit)


@given(st.lists(st.tuples(st.sampled_from("abcdeF"), st.sampled_from("ABCdef")), max_size=12))
@settings(max_examples=100, deadline=None)
def test_pairs_of_a_file_are_the_greedy_ones(lines):
    x, report_x = make_space(np.eye(6) + 1, names=list("abcdef"))
    y, report_y = make_space(np.eye(6) + 1, names=list("ABCDEF"))
    lines = [("left", "right"), *lines]
    left, right = {}, {}
    for a, b in lines[1:]:
        if a in "abcdef" and b in "ABCDEF" and a not in left and b not in right:
            left[a], right[b] = b, a
    found = seeds.read_pairing("\n".join("\t".join(line) for line in lines), x, y, report_x, report_y)
    got = [] if found.pairs is None else found.pairs.array.tolist()
    assert got == [["abcdef".index(a), "ABCDEF".index(b)] for a, b in left.items()]
    assert len(found.problems) == len(lines) - 1 - len(got) or not lines[1:]
    for entry in found.ambiguous:  # what is listed is what more than one kind of line names
        partners = {b if entry.side == "x" else a for a, b in lines[1:] if entry.key in (a, b)}
        assert len(partners) > 1 and len(entry.lines) > 1


def test_a_dictionary_of_200_000_lines_takes_seconds_at_most():
    n = 200_000
    v = np.ones((n, 1), dtype=np.float32)
    x, report_x = make_space(v, names=[f"w\u00f6rd{i}" for i in range(n)])
    y, report_y = make_space(v, names=[f"wort{i}" for i in range(n)])
    text = "\n".join(f"w\u00f6rd{i // 2 * 3} wort{i}" for i in range(n))
    start = time.process_time()
    found = seeds.read_pairing(text, x, y, report_x, report_y)
    assert time.process_time() - start < 15  # about 2 s on a core of its own
    assert len(found.pairs) == len(found.ambiguous) == len({i // 2 for i in range(n) if i // 2 * 3 < n})


# ------------------------------------------------------------------------------------------------------------- corrupt


@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_corruption_gives_wrong_partners_of_another_class_and_stays_unique(share):
    pairs = seeds.draw(Pairs.by_row(50), 20, seed=0)
    labels = np.array([str(i % 5) for i in range(50)], dtype=object)
    bad, mask = seeds.corrupt(pairs, share, labels, 50, seed=1)
    assert mask.sum() == share * 20
    np.testing.assert_array_equal(bad.x, pairs.x)
    np.testing.assert_array_equal(bad.y[~mask], pairs.y[~mask])
    assert (labels[bad.y[mask]] != labels[pairs.y[mask]]).all()
    assert len(set(bad.y.tolist())) == 20
    again, _ = seeds.corrupt(pairs, share, labels, 50, seed=1)
    np.testing.assert_array_equal(again.array, bad.array)


def test_corruption_among_the_pairs_alone_moves_every_one():
    for seed in range(20):  # no free row: a derangement
        bad, mask = seeds.corrupt(Pairs.by_row(6), 1.0, None, 6, seed=seed)
        assert mask.all() and (bad.y != bad.x).all() and sorted(bad.y) == list(range(6))


def test_corruption_finds_the_only_way_out():
    """Whenever a wrong partner for all exists, it is found: compared with trying every permutation."""
    rng = np.random.default_rng(0)
    both = 0
    for trial in range(60):
        labels = rng.integers(0, 3, 5).astype(str).astype(object)
        orders = itertools.permutations(range(5))
        possible = any(all(labels[j] != labels[i] for i, j in enumerate(order)) for order in orders)
        if possible:
            bad, _ = seeds.corrupt(Pairs.by_row(5), 1.0, labels, 5, seed=trial)
            assert (labels[bad.y] != labels[bad.x]).all()
        else:
            with pytest.raises(InputError, match="too few rows of other classes"):
                seeds.corrupt(Pairs.by_row(5), 1.0, labels, 5, seed=trial)
        both += possible
    assert 5 < both < 55


def test_corruption_of_a_row_without_label_and_bad_shares():
    labels = np.array(["", "", "a", "b"], dtype=object)
    for seed in range(10):  # a row without label may be of any class: it is never a wrong partner of a labelled row
        bad, _ = seeds.corrupt(Pairs(np.array([[0, 2]])), 1.0, labels, 4, seed=seed)
        assert bad.y[0] == 3
    for share in (-0.1, 1.5, float("nan")):
        with pytest.raises(InputError, match="wanted 0 to 1"):
            seeds.corrupt(Pairs.by_row(4), share, None, 4, seed=0)
    with pytest.raises(InputError, match="too few rows are free"):
        seeds.corrupt(Pairs.by_row(1), 1.0, None, 1, seed=0)


# ------------------------------------------------------------------------------------------------------------- quality


def test_quality_counts_ranks_classes_and_duplicates():
    rng = np.random.default_rng(0)
    vx = rng.normal(size=(30, 8))
    vx[1] = vx[0]
    vx[3] = vx[2] + vx[4]
    labels = [f"c{i % 10}" for i in range(29)] + [""]
    x, _ = make_space(vx, labels=labels)
    y, _ = make_space(rng.normal(size=(30, 40)))
    q = seeds.quality(Pairs.by_row(6), x, y)
    assert q["count"] == 6
    assert q["x"] == {
        **{"dim": 8, "rank": 4, "duplicates": 2, "covered": 6, "classes": 10},
        "uncovered": ["c6", "c7", "c8", "c9"],
    }
    assert q["y"] == {"dim": 40, "rank": 6, "duplicates": 0, "covered": None, "classes": None, "uncovered": None}
    assert "6 seeds cover 6 of 10 classes of x" in q["notes"]
    assert any("share their vector" in n for n in q["notes"])
    assert any("span 4 dimensions" in n for n in q["notes"])


def test_b20_fewer_seeds_than_dimensions_is_said():
    rng = np.random.default_rng(0)
    x, _ = make_space(rng.normal(size=(20, 64)))
    y, _ = make_space(rng.normal(size=(20, 48)))
    assert seeds.quality(Pairs.by_row(15), x, y)["notes"] == [
        "15 seeds for 64 and 48 dimensions: a rotation is determined only on a 15-dimensional subspace"
    ]
    z, _ = make_space(rng.normal(size=(20, 4)))
    assert seeds.quality(Pairs.by_row(15), z, z)["notes"] == []
    assert seeds.quality(Pairs.empty(), x, y)["x"]["rank"] == 0


# ------------------------------------------------------------------------------------------------- anchors of a kind


def clustered(n: int = 90, k: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    label = rng.permutation(np.arange(n) % k)
    return 9 * rng.normal(size=(k, 4))[label] + rng.normal(size=(n, 4)), label


def test_medoids_are_the_pairs_nearest_to_the_centroids():
    v, label = clustered()
    known = Pairs(np.stack([np.arange(10, 90), np.arange(80)[::-1]], 1))
    chosen = seeds.medoids(v, known, 6, 0)
    assert sorted(label[chosen.x]) == [0, 1, 2, 3, 4, 5]
    np.testing.assert_array_equal(chosen.y, 89 - chosen.x)  # with their partners
    for i in chosen.x:
        own = v[10:][label[10:] == label[i]]
        assert np.linalg.norm(v[i] - own.mean(0)) == pytest.approx(np.linalg.norm(own - own.mean(0), axis=1).min())
    assert len(seeds.medoids(v, known, 0, 0)) == 0 and len(set(seeds.medoids(v, known, 80, 0).x)) == 80


def test_centroids_are_weights_that_any_space_of_the_rows_can_use():
    v, label = clustered()
    known = Pairs.by_row(90)
    weights = seeds.centroids(v, known, 6, 0)
    np.testing.assert_allclose(weights.sum(1), 1)
    other = v @ np.random.default_rng(1).normal(size=(4, 7)) + 3
    means = {tuple(np.round(other[label == k].mean(0), 8)) for k in range(6)}
    assert {tuple(np.round(row, 8)) for row in weights @ other} == means
    assert seeds.centroids(v, known, 0, 0).shape == (0, 90)


def test_the_most_frequent_are_the_first_rows_of_x():
    known = Pairs(np.array([[7, 0], [2, 5], [9, 1], [4, 4]]))
    np.testing.assert_array_equal(seeds.most_frequent(known, 3).array, [[2, 5], [4, 4], [7, 0]])


def test_stratified_goes_round_the_labels_and_takes_those_without_last():
    labels = np.array(["a"] * 20 + ["b"] * 4 + ["c"] * 6 + [NO_LABEL] * 10, dtype=object)
    known = Pairs.by_row(40)
    chosen = seeds.stratified(labels, known, 12, 3)
    assert sorted(labels[chosen.x]) == ["a"] * 4 + ["b"] * 4 + ["c"] * 4
    assert sorted(labels[seeds.stratified(labels, known, 16, 3).x]) == ["a"] * 6 + ["b"] * 4 + ["c"] * 6
    most = seeds.stratified(labels, known, 33, 3)
    assert sum(labels[most.x] == NO_LABEL) == 3
    np.testing.assert_array_equal(most.array[:12], chosen.array)  # a smaller draw is the beginning
    assert set(seeds.stratified(labels, known, 12, 4).x) != set(chosen.x)


@pytest.mark.parametrize(
    "choose",
    [
        lambda known, count: seeds.medoids(np.eye(5), known, count, 0),
        lambda known, count: seeds.centroids(np.eye(5), known, count, 0),
        lambda known, count: seeds.most_frequent(known, count),
        lambda known, count: seeds.stratified(np.array(["a"] * 5, dtype=object), known, count, 0),
    ],
)
def test_more_anchors_than_pairs_are_refused_by_every_choice(choose):
    for count in (6, -1):
        with pytest.raises(InputError, match=f"{count} seeds asked for, but only 5 pairs are known"):
            choose(Pairs.by_row(5), count)


def test_a_choice_among_rows_is_that_among_pairs_and_of_different_rows():
    """Against the functions themselves; the rows of pairs that are not the identity are positions of x."""
    v, labels = clustered(60)
    v, labels = v + 3, labels.astype(str).astype(object)  # off centre and not of norm 1: farthest goes by the angle
    known = Pairs(np.stack([np.random.default_rng(0).permutation(60)[:40], np.arange(40)], 1))
    unit = v / np.linalg.norm(v, axis=1, keepdims=True)
    wanted = {
        "random": seeds.draw(known, 9, seed=2),
        "farthest": seeds.farthest_point(unit, known, 9, 2),
        "medoids": seeds.medoids(v, known, 9, 2),
        "first": seeds.most_frequent(known, 9),
        "stratified": seeds.stratified(labels, known, 9, 2),
    }
    assert wanted.keys() == seeds.WAYS.keys()
    for how, pairs in wanted.items():
        chosen = seeds.choose_pairs(how, known, 9, vectors_x=v, labels_x=labels, seed=2)
        np.testing.assert_array_equal(chosen.array, pairs.array)
        rows = seeds.choose(how, v[known.x], 9, labels=labels[known.x], seed=2)
        assert rows.dtype == np.int64 and len(set(rows.tolist())) == 9 and rows.flags.writeable
        if how != "first":  # among rows, the first are 0, 1, ...; among pairs, those first in x
            np.testing.assert_array_equal(known.x[rows], pairs.x)
        assert seeds.choose(how, v, 0, labels=labels).shape == (0,)
        with pytest.raises(InputError, match="61 seeds asked for, but only 60"):
            seeds.choose(how, v, 61, labels=labels)
    np.testing.assert_array_equal(seeds.choose("first", v, 4), [0, 1, 2, 3])


def test_a_choice_that_cannot_be_made_says_why():
    v = np.eye(4)
    for labels in (None, np.array([NO_LABEL] * 4, dtype=object)):
        with pytest.raises(InputError, match="stratified goes by the labels of x, and there are none"):
            seeds.choose("stratified", v, 2, labels=labels)
    with pytest.raises(InputError, match="chosen by 'kmeans'; choose one of random, farthest, medoids, first, strat"):
        seeds.choose("kmeans", v, 2)


def test_the_ways_to_choose_have_the_words_of_the_method_that_chooses():
    from relcore.methods.relative import CHOICES

    assert set(seeds.WAYS) - {"stratified"} == set(CHOICES) - {"all", "kmeans"}
