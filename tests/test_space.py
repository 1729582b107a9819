"""Spaces and pairs: validated once, never changed, everything of a row moves together."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from relcore.errors import InputError
from relcore.space import LoadReport, Pairs, Spaces, make_space


def test_a_space_does_not_change_when_its_source_does():
    v = np.ones((3, 2), np.float32)
    space, _ = make_space(v)
    v[0, 0] = 9
    assert space.vectors[0, 0] == 1
    for column in (space.vectors, space.ids, space.names):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = column[1]


@pytest.mark.parametrize("scale", [1e-30, 1e-22, 1e19, 1e37])
def test_norms_do_not_under_or_overflow(scale):
    _, report = make_space(np.full((3, 4), scale))
    assert report.rows_used == 3


def test_numbers_beyond_float32_are_set_aside():
    _, report = make_space(np.array([[1e300, 1], [1, 1], [1e-300, 0]]))
    assert [(s.row, s.reason) for s in report.set_aside] == [(0, "too large for float32"), (2, "too small for float32")]


def test_per_row_columns_need_one_value_a_row():
    for column in ("names", "labels", "media"):
        with pytest.raises(InputError, match="2 values for 3 vectors"):
            make_space(np.eye(3), **{column: ["a", "b"]})
    pd = pytest.importorskip("pandas")
    with pytest.raises(InputError, match="2 rows for 3 vectors"):
        make_space(np.eye(3), meta=pd.DataFrame({"a": [1, 2]}))


def test_labels_as_text():
    space, _ = make_space(np.eye(5), labels=[1.0, None, float("nan"), 2.5, "01"])
    assert list(space.labels) == ["1", "", "", "2.5", "01"]


def test_taking_rows_takes_all_that_is_theirs():
    pd = pytest.importorskip("pandas")
    space, _ = make_space(
        np.diag([1.0, 2, 3, 4]), names="abcd", labels="wxyz", media="1234", meta=pd.DataFrame({"m": [5, 6, 7, 8]})
    )
    part = space.take([2, 0])
    assert part.vectors.sum(1).tolist() == [3, 1] and part.ids.tolist() == [2, 0]
    assert list(part.names) == ["c", "a"] and list(part.labels) == ["y", "w"] and list(part.media) == ["3", "1"]
    assert part.meta["m"].tolist() == [7, 5]
    assert part.positions([0, 1, 2]).tolist() == [1, 0]


def test_the_fingerprint_sees_every_number_and_word():
    """B26: one changed number anywhere must not be taken for the same data."""
    v = np.random.default_rng(0).normal(size=(6000, 100)).astype(np.float32)
    prints = {make_space(v)[0].fingerprint, make_space(v, names=["n"] * 6000)[0].fingerprint}
    w = v.copy()
    w[3333, 77] = np.nextafter(w[3333, 77], np.float32(9))
    prints |= {make_space(w)[0].fingerprint, make_space(v.reshape(3000, 200))[0].fingerprint}
    prints |= {make_space(v, labels=["a"] * 6000)[0].fingerprint}
    assert len(prints) == 5
    assert make_space(v.copy())[0].fingerprint == make_space(v)[0].fingerprint


def test_a_report_survives_json():
    rows = np.eye(4)
    rows[1], rows[2, 0] = 0, np.nan
    _, report = make_space(rows, source="s", assumed=["a"], warned=["w"])
    data = json.loads(json.dumps(report.to_dict()))
    assert LoadReport.from_dict(data).to_dict() == report.to_dict()
    assert report.summary() == "4 rows read, 2 used, 2 set aside (1 zero norm, 1 NaN or infinite)"


def test_pairs_are_unique_on_each_side_unless_said_otherwise():
    with pytest.raises(InputError, match="Row 3 of x is in more than one pair"):
        Pairs(np.array([[3, 0], [3, 1]]))
    with pytest.raises(InputError, match="Row 1 of y"):
        Pairs(np.array([[0, 1], [2, 1]]))
    many = Pairs(np.array([[0, 1], [2, 1]]), unique=False)
    assert len(many.take([1])) == 1 and many.flip().array.tolist() == [[1, 0], [1, 2]]


def test_pairs_arithmetic():
    pairs = Pairs(np.array([[0, 5], [2, 3], [4, 1]]))
    assert pairs.partner(5).tolist() == [5, -1, 3, -1, 1]
    assert pairs.without(Pairs(np.array([[9, 3]]))).array.tolist() == [[0, 5], [4, 1]]
    assert pairs.without(Pairs(np.array([[4, 9]]))).array.tolist() == [[0, 5], [2, 3]]
    assert pairs.flip().partner(6).tolist() == [-1, 4, -1, 2, -1, 0]
    assert len(Pairs.empty()) == 0 and Pairs.by_row(2).array.tolist() == [[0, 0], [1, 1]]
    with pytest.raises(ValueError, match="read-only"):
        pairs.array[0, 0] = 1


def test_space_is_light():
    code = "import sys, relcore.space; print([m for m in ('torch', 'pandas', 'scipy') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_rows_that_float32_cannot_hold_are_told_apart_from_rows_without_numbers():
    rows = np.full((4, 2), 1.0)
    rows[0], rows[1], rows[2] = 1e300, 1e-300, np.nan
    _, report = make_space(rows)
    reasons = {s.row: s.reason for s in report.set_aside}
    assert reasons == {0: "too large for float32", 1: "too small for float32", 2: "NaN or infinite"}


def _some(*sizes):
    return tuple(make_space(np.random.default_rng(n).standard_normal((n, 3)), title=str(n))[0] for n in sizes)


def test_spaces_joined_keep_the_items_that_all_have():
    a, b, c = _some(4, 5, 6)
    spaces = Spaces.join((a, b, c), [Pairs([[0, 4], [1, 3], [3, 0]]), Pairs([[1, 5], [2, 2], [3, 1]])])
    assert spaces.rows.tolist() == [[1, 3, 5], [3, 0, 1]]
    assert spaces.pairs(1, 2).array.tolist() == [[3, 5], [0, 1]]
    assert Spaces.join((a, b, c), [Pairs.by_row(4), None]).rows is None


@pytest.mark.parametrize(("rows", "said"), [([[0, 0], [0, 1]], "more than one"), ([[0, 5]], "5: row 5 is asked")])
def test_spaces_refuse_rows_that_are_not_there_or_stand_for_two_items(rows, said):
    with pytest.raises(InputError, match=said):
        Spaces(_some(4, 5), np.array(rows))
    with pytest.raises(InputError, match="two or more"):
        Spaces(_some(4))


def test_items_that_some_spaces_have_are_known_too():
    a, b, c = _some(4, 5, 6)
    first, second = Pairs([[0, 4], [1, 3], [3, 0]]), Pairs([[1, 5], [2, 2], [3, 1]])
    assert Spaces.join((a, b, c), [first, second]).some.tolist() == [[0, 4, -1], [2, -1, 2]]
    unknown = Spaces.join((a, b, c), [None, second])
    assert unknown.rows is None and unknown.some.tolist() == [[1, -1, 5], [2, -1, 2], [3, -1, 1]]
    with pytest.raises(InputError, match="more than one"):
        Spaces((a, b, c), np.array([[0, 0, 0]]), np.array([[1, 0, -1]]))
    with pytest.raises(InputError, match="6: row 6 is asked"):
        Spaces((a, b, c), None, np.array([[1, -1, 6]]))


def test_the_digest_of_items_tells_pairs_apart():
    a, b, c = _some(4, 5, 6)
    joined = [Spaces.join((a, b, c), [first, Pairs.by_row(4)]) for first in (Pairs.by_row(4), Pairs([[0, 1]]), None)]
    assert len({s.items_digest for s in (*joined, Spaces((a, b, c)))}) == 4
    assert Spaces((a, b, c), joined[0].rows).items_digest == joined[0].items_digest  # none that only some have
