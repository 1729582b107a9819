"""The selection: by row id, linked, undoable."""

import numpy as np

from pages._ui.selection import Selection, SelectionStore, link_by_pairs, no_link, select
from relcore.space import Pairs, make_space

# row 1 of x is set aside at load, so ids and positions differ: 0, 2, 3 at positions 0, 1, 2
X, _ = make_space(np.array([[1.0, 0], [np.nan, 0], [0, 1], [1, 1]]))
Y, _ = make_space(np.array([[0.0, 1], [1, 0], [1, 2]]))
LINK = link_by_pairs("same item", Pairs(np.array([[0, 2], [1, 0]])), len(X), len(Y))


def test_a_selection_speaks_in_row_ids_of_the_file_not_in_positions():
    chosen = select("x", np.array([2]), X, Y, LINK, "test")
    assert chosen.x.tolist() == [2] and chosen.y.tolist() == [0]


def test_doubles_count_once_and_ids_of_other_data_are_left_out():
    chosen = select("x", np.array([0, 0, 1, 99]), X, Y, LINK, "test")
    assert chosen.x.tolist() == [0] and chosen.y.tolist() == [2]


def test_from_y_to_x_and_rows_without_partner():
    chosen = select("y", np.array([0, 1]), X, Y, LINK, "test")
    assert chosen.y.tolist() == [0, 1] and chosen.x.tolist() == [2]


def test_without_a_link_only_the_own_side_is_selected():
    chosen = select("x", X.ids, X, Y, no_link(len(X), len(Y)), "test")
    assert chosen.x.tolist() == [0, 2, 3] and chosen.y.tolist() == []


def test_undo_goes_back_and_equal_selections_are_not_two_entries():
    store = SelectionStore()
    first = Selection(np.array([1]), np.array([2]), "a")
    store.set(first)
    store.set(Selection(np.array([1]), np.array([2]), "b"))
    assert store.current is first and len(store.past) == 1
    store.clear()
    assert len(store.current) == 0
    store.undo()
    assert store.current is first
    store.undo()
    store.undo()
    assert len(store.current) == 0 and not store.past


def test_every_change_has_its_own_revision():
    store = SelectionStore()
    seen = {store.revision}
    for change in (lambda: store.set(Selection(np.array([1]), origin="a")), store.clear, store.undo, store.forget):
        change()
        assert store.revision not in seen
        seen.add(store.revision)
