"""Opening own files: look before loading, roles, files beside, what was refused, pairs, cancelling, errors."""

from __future__ import annotations

import base64
import io
import json

import numpy as np
import pandas as pd
import pytest
import streamlit as st
from PIL import Image
from streamlit.proto.WidgetStates_pb2 import WidgetState

from pages._ui import linked_map, loader, pictures
from pages._ui.linked_map import Panel
from relcore import loading, store
from relcore.space import make_space
from tests.pages.conftest import errors, inject, loaded, texts


def state_of(at):
    return at.session_state["relcore"]


@pytest.fixture
def files(home):
    return home.parent / "files"


def vectors(n: int = 30, d: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def choose(at, x: str | None = None, y: str | None = None):
    st.cache_data.clear()  # the list of files is kept for some seconds
    at.run()
    for side, name in (("x", x), ("y", y)):
        if name:
            at.selectbox(key=f"path_{side}").select(name).run()
    return at


def opened(at, x: str, y: str, pairing: str = "row"):
    choose(at, x, y)
    at.radio(key="pairing").set_value(pairing).run()
    at.button(key="open_both").click().run()
    return loaded(at)


def roles_of(at, side: str) -> pd.DataFrame:
    return next(
        e.value for e in at.dataframe if "role" in e.value.columns and _editor_key(e).startswith(f"roles_{side}")
    )


def _editor_key(element) -> str:
    return element.proto.id.split("-")[-1]


def set_role(at, side: str, line: str, role: str):
    """What the browser sends when a role is picked in the table."""
    editor = next(e for e in at.dataframe if "role" in e.value.columns and _editor_key(e).startswith(f"roles_{side}"))
    row = editor.value["column"].tolist().index(line)
    states = at._tree.get_widget_states()
    change = WidgetState(id=editor.proto.id)
    change.string_value = json.dumps({"edited_rows": {str(row): {"role": role}}, "added_rows": [], "deleted_rows": []})
    states.widgets.append(change)
    return at._run(states)


# ---------------------------------------------------------------- a look before loading


def test_one_side_alone_is_shown_and_nothing_is_loaded(app, files):
    np.save(files / "x.npy", vectors(412, 8).astype(np.float16))
    at = choose(app("pages/data.py"), "x.npy")
    said = texts(at)
    assert "412 rows × 8 dimensions, stored as float16" in said and "of memory" in said
    assert at.button(key="open_both").disabled and "Choose a file for B" in at.button(key="open_both").help
    assert state_of(at).data.sample == "banking77"


def test_the_limit_of_an_upload_is_printed(app):
    labels = [e.proto.label for e in app("pages/data.py").get("file_uploader")]
    limit = st.get_option("server.maxUploadSize")
    assert sum(f"at most {limit:,} MB" in label for label in labels) >= 2


def test_a_file_of_several_arrays_asks_for_one_with_shapes(app, files):
    np.savez(files / "z.npz", a=vectors(), b=vectors(20, 3), label=np.arange(20))
    np.save(files / "y.npy", vectors(20))
    at = choose(app("pages/data.py"), "z.npz", "y.npy")
    picker = next(w for w in at.selectbox if w.label == "Array of vectors")
    assert picker.value is None and [o.split() for o in picker.options] == [
        ["a", "30", "×", "4", "<f4"],
        ["b", "20", "×", "3", "<f4"],
    ]
    assert at.button(key="open_both").disabled
    picker.select("b").run()
    assert "20 rows × 3 dimensions" in texts(at)
    at.radio(key="pairing").set_value("row").run()
    at.button(key="open_both").click().run()
    loaded(at)
    assert (len(state_of(at).data.x), state_of(at).data.x.dim) == (20, 3)


def test_a_large_file_is_announced_before_it_is_read(app, files, monkeypatch):
    np.save(files / "x.npy", vectors(1000, 50))
    seen = loading.look(files / "x.npy") | {"note": "Reading x.npy takes about 9.0 GB of 20 GB free memory"}
    monkeypatch.setattr(loading, "look", lambda path, **options: seen)
    assert "takes about 9.0 GB of 20 GB free memory" in texts(choose(app("pages/data.py"), "x.npy"))


def column(name: str, kind: str = "number", role: str = "vector", examples=("1", "2")) -> dict:
    return {"name": name, "kind": kind, "role": role, "examples": list(examples)}


def test_hundreds_of_columns_of_numbers_are_one_line():
    columns = [column("id", "number", "id"), *[column(str(i)) for i in range(300)], column("class", "text", "label")]
    lines = loader.lines_of(columns)
    assert [line.label for line in lines] == ["id", "0 … 299 (300 columns)", "class"]
    assert lines[1].members == tuple(map(str, range(300))) and lines[1].role == "vector"
    assert [line.cells for line in lines] == ["1 · 2", "", "1 · 2"]
    assert [line.label for line in loader.lines_of([column("a"), column("b")])] == ["a", "b"]
    assert loader.lines_of([]) == []


def test_a_role_is_changed_before_loading_and_the_preview_follows(app, files):
    """Case B15."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(12, 6)), columns=[f"d{i}" for i in range(6)])
    table["year"] = rng.integers(1990, 2000, 12)
    table["kind"] = ["fwd", "left", "back"] * 4
    table.to_csv(files / "x.csv", index=False)
    np.save(files / "y.npy", vectors(12))
    at = choose(app("pages/data.py"), "x.csv", "y.npy")
    roles = roles_of(at, "x")
    wanted = {"d0 … d5 (6 columns)": "vector", "year": "vector", "kind": "label"}
    assert roles.set_index("column")["role"].to_dict() == wanted
    at.toggle(key="each_x").set_value(True).run()
    assert len(roles_of(at, "x")) == 8
    set_role(at, "x", "year", "meta")
    assert "6 dimensions" in texts(at) and "7 dimensions" not in texts(at)
    set_role(at, "x", "kind", "name")
    at.radio(key="pairing").set_value("row").run()
    at.button(key="open_both").click().run()
    x = state_of(loaded(at)).data.x
    assert x.dim == 6 and x.names[0] == "fwd" and x.labels is None
    assert "year" in x.meta.columns


# ---------------------------------------------------------------- uploads


def test_an_upload_is_looked_at_kept_and_its_field_emptied(app, home):
    at = app("pages/data.py")
    for side, d in (("x", 4), ("y", 3)):
        buffer = io.BytesIO()
        np.save(buffer, vectors(20, d))
        at.file_uploader(key=f"upload_{side}_0").upload(
            f"{side} <b>.npy", buffer.getvalue(), "application/octet-stream"
        )
        at.run()
    said = texts(at)
    assert "20 rows × 4 dimensions" in said and "x <b>.npy" in said
    at.radio(key="pairing").set_value("row").run()
    at.button(key="open_both").click().run()
    data = state_of(loaded(at)).data
    assert (data.x.dim, data.y.dim, len(data.truth)) == (4, 3, 20)
    at.button(key="remove_x").click().run()
    assert at.button(key="open_both").disabled and len(state_of(at).data.truth) == 20


def test_the_name_of_an_upload_leads_nowhere_else(app, home):
    at = app("pages/data.py")
    at.file_uploader(key="upload_x_0").upload("../../evil\x00.npy", b"not an array", "application/octet-stream").run()
    kept = [p for p in (home / "uploads").rglob("*") if p.is_file()]
    assert [p.name for p in kept] == ["evil_.npy"]
    assert "Space A" in errors(at) and not at.exception


# ---------------------------------------------------------------- what was read


def test_the_report_lists_the_rows_set_aside_with_their_names(app, files):
    v = vectors(12)
    v[3, 1], v[5] = np.nan, 0
    table = pd.DataFrame(v, columns=[f"d{i}" for i in range(4)])
    table.insert(0, "name", [f"<b>{i}</b>" for i in range(12)])
    table.to_csv(files / "x.csv", index=False)
    np.save(files / "y.npy", vectors(12))
    at = opened(app("pages/data.py"), "x.csv", "y.npy")
    assert "12 rows read, 10 used, 2 set aside (1 NaN or infinite, 1 zero norm)" in texts(at)
    aside = next(e.value for e in at.dataframe if "reason" in e.value.columns)
    assert aside["row in the file"].tolist() == [3, 5]
    assert aside["name"].tolist() == ["<b>3</b>", "<b>5</b>"]
    assert len(state_of(at).data.truth) == 10


def with_labels(at, files, count: int, content: str = "L{i}\n", match: str | None = None):
    """10 vectors on either side and a label file for A."""
    np.save(files / "x.npy", vectors(10))
    np.save(files / "y.npy", vectors(10, 3))
    (files / "labels.txt").write_text("".join(content.format(i=i) for i in range(count)))
    choose(at, "x.npy", "y.npy")
    next(w for w in at.selectbox if w.label == "Labels from a file").select("labels.txt").run()
    at.radio(key="pairing").set_value("row").run()
    at.button(key="open_both").click().run()
    return loaded(at)


@pytest.mark.parametrize("count, first", [(8, 8), (11, 10)])
def test_labels_that_do_not_fit_are_refused_with_both_counts_and_three_ways_on(app, files, count, first):
    """Case B14."""
    at = with_labels(app("pages/data.py"), files, count)
    data = state_of(at).data
    assert len(data.x) == 10 and data.x.labels is None
    assert f"labels.txt has {count} for 10 vectors" in texts(at)
    assert at.button(key="by_id_x_labels").disabled  # one column has no ids
    at.button(key="first_x_labels").click().run()
    data = state_of(loaded(at)).data
    assert data.x.labels.tolist() == [f"L{i}" for i in range(first)] + [""] * (10 - first)
    assert "has 8 for 10" not in texts(at)


def test_and_by_an_id_column(app, files):
    table = pd.DataFrame(vectors(10), columns=list("abcd"))
    table.insert(0, "id", range(100, 110))
    table.to_csv(files / "x.csv", index=False)
    np.save(files / "y.npy", vectors(10))
    pd.DataFrame({"id": range(107, 99, -1), "label": list("hgfedcba")}).to_csv(files / "labels.csv", index=False)
    at = choose(app("pages/data.py"), "x.csv", "y.npy")
    next(w for w in at.selectbox if w.label == "Labels from a file").select("labels.csv").run()
    at.radio(key="pairing").set_value("row").run()
    at.button(key="open_both").click().run()
    assert "labels.csv has 8 for 10 vectors" in texts(loaded(at))
    at.selectbox(key="refused_id_x_labels").select("id").run()
    at.button(key="by_id_x_labels").click().run()
    assert state_of(loaded(at)).data.x.labels.tolist() == [*"abcdefgh", "", ""]


def test_and_without_them(app, files):
    at = with_labels(app("pages/data.py"), files, 8)
    at.button(key="without_x_labels").click().run()
    assert state_of(loaded(at)).data.x.labels is None and "not attached" not in texts(at)


def test_labels_without_a_newline_at_the_end_fit(app, files):
    at = with_labels(app("pages/data.py"), files, 10)
    assert state_of(at).data.x.labels.tolist() == [f"L{i}" for i in range(10)]
    (files / "labels.txt").write_text("\n".join(f"M{i}" for i in range(10)))
    at.run()
    at.button(key="open_both").click().run()
    assert state_of(loaded(at)).data.x.labels[9] == "M9"


def test_folding_the_case_is_offered_with_its_count(app, files):
    """Case B06."""
    (files / "x.csv").write_text("word,a,b\nThe,1,2\nthe,3,4\nother,7,8\n")
    np.save(files / "y.npy", vectors(3))
    at = opened(app("pages/data.py"), "x.csv", "y.npy")
    assert len(state_of(at).data.x) == 3
    assert at.button(key="fold_now_x").label == "Fold case (would merge 1 row)"
    at.button(key="fold_now_x").click().run()
    data = state_of(loaded(at)).data
    assert data.x.names.tolist() == ["The", "other"] and data.x.ids.tolist() == [0, 2]


# ---------------------------------------------------------------- pairs


def test_pairs_and_what_is_ambiguous_are_listed(app, files):
    def write(name, ids):
        pd.DataFrame(vectors(len(ids)), columns=list("abcd")).assign(key=ids).to_csv(files / name, index=False)

    write("x.csv", ["u", "v", "v", "w", "z"])
    write("y.csv", ["w", "u", "v", "q"])
    at = choose(app("pages/data.py"), "x.csv", "y.csv")
    for side in "xy":
        set_role(at, side, "key", "id")
    at.radio(key="pairing").set_value("id").run()
    for side in "xy":
        at.selectbox(key=f"pair_id_{side}").select("key").run()
    at.button(key="open_both").click().run()
    data = state_of(loaded(at)).data
    assert data.truth.array.tolist() == [[0, 1], [3, 0]]
    said = texts(at)
    assert "2 pairs, by id (key = key)" in said and "1 ambiguous" in said
    ambiguous = next(e.value for e in at.dataframe if "side" in e.value.columns)
    assert ambiguous.iloc[0].tolist() == ["A", "v", "1, 2"]
    # a link finds the same pairs again
    query = {k: at.query_params[k][0] if isinstance(at.query_params[k], list) else at.query_params[k] for k in "xy"}
    pair = at.query_params["pair"]
    again = app("pages/data.py", **query, pair=pair[0] if isinstance(pair, list) else pair)
    assert state_of(again).data.truth.array.tolist() == [[0, 1], [3, 0]]


def test_pairs_from_a_file(app, files):
    np.save(files / "x.npy", vectors(6))
    np.save(files / "y.npy", vectors(6, 3))
    (files / "pairs.tsv").write_text("0\t5\n1\t4\n2\t4\n77\t0\n")
    at = choose(app("pages/data.py"), "x.npy", "y.npy")
    at.radio(key="pairing").set_value("file").run()
    assert at.button(key="open_both").disabled
    at.selectbox(key="pair_file").select("pairs.tsv").run()
    at.button(key="open_both").click().run()
    assert state_of(loaded(at)).data.truth.array.tolist() == [[0, 5], [1, 4]]
    assert "2 pairs, by file pairs.tsv" in texts(at) and "77" in texts(at)


def test_a_column_that_is_not_there_is_said_and_the_view_before_stays(app, files):
    np.save(files / "x.npy", vectors(6))
    np.save(files / "y.npy", vectors(6, 3))
    at = opened(app("pages/data.py"), "x.npy", "y.npy", "id")
    data = state_of(at).data
    assert data.sample == "" and data.truth is None  # both are open, without pairs
    assert "no column of ids" in texts(at)


# ---------------------------------------------------------------- more than two spaces


def named(files, file: str, names: list[str], d: int = 4, seed: int = 0) -> list[str]:
    table = pd.DataFrame(vectors(len(names), d, seed), columns=[f"d{i}" for i in range(d)])
    table.insert(0, "name", names)
    table.to_csv(files / file, index=False)
    return names


def added(at, file: str, pairing: str = "name"):
    st.cache_data.clear()
    at.run()
    at.selectbox(key="path_z").select(file).run()
    at.radio(key="pairing_z").set_value(pairing).run()
    at.button(key="add_space").click().run()
    return loaded(at)


def query(at) -> dict[str, str]:
    return {k: v[0] if isinstance(v, list) else v for k, v in at.query_params.items() if k != "method"}


def shared_names(data) -> list[tuple[str, str]]:
    """The names on either side of the truth."""
    return [(data.x.names[i], data.y.names[j]) for i, j in data.truth.array]


def names_of_three() -> dict[str, list[str]]:
    """30 names, 40 in another order, and 25 of which 20 are in the first and 15 in both."""
    rng = np.random.default_rng(1)
    names = [f"n{i}" for i in range(60)]
    orders = {"one": range(30), "two": rng.permutation(np.arange(5, 45)), "three": rng.permutation(np.r_[:20, 50:55])}
    return {title: [names[i] for i in order] for title, order in orders.items()}


@pytest.fixture
def three(app):
    """The page with the three, as a link brings them."""
    kept = [
        store.put_space(*make_space(vectors(len(names), 4 + i, i), names=names, title=title))
        for i, (title, names) in enumerate(names_of_three().items())
    ]
    return app("pages/data.py", x=kept[0], y=kept[1], pair="name", more=f"{kept[2]}~name")


def test_a_third_space_joins_the_list_and_leaves_the_two_as_they_are(app, files):
    for i, (title, names) in enumerate(names_of_three().items()):
        named(files, f"{title}.csv", names, 4 + i, i)
    at = opened(app("pages/data.py"), "one.csv", "two.csv", "name")
    drawn = state_of(at).seeds
    at = added(at, "three.csv")
    data = state_of(at).data
    assert [one.title for one in data.listed] == ["one", "two", "three"] and data.picked == (0, 1)
    assert [one.title for one in data.more] == ["three"] and data.marks == ("1", "2", "3")
    assert len(data.truth) == 25 and len(data.listed[2].truth) == 20 and state_of(at).seeds is drawn
    of_all = [[s.names[r] for s, r in zip(data.spaces.spaces, rows, strict=True)] for rows in data.spaces.rows]
    assert sorted(names[0] for names in of_all) == sorted(f"n{i}" for i in range(5, 20))
    assert all(len(set(names)) == 1 for names in of_all)
    said = texts(at)
    assert "15 items in all 3 spaces" in said and "20 pairs with 1, by name" in said
    assert "10 rows of space 1 have no partner" in said and "5 rows of space 3 have no partner" in said
    assert any("+1" in link.label for link in links(at))
    assert not at.selectbox(key="path_z").value and at.button(key="add_space").disabled  # ready for another


def links(at):
    return [e.proto for e in at.get("page_link")]


def test_nothing_of_a_list_is_shown_for_two_spaces(app):
    at = app("pages/data.py")
    assert "Spaces" not in [e.value for e in at.subheader] and not [w for w in at.selectbox if w.key == "pick_A"]
    assert [e.label for e in at.expander if "third space" in e.label]


def test_picking_two_others_makes_them_a_and_b_and_the_list_stays(three):
    s = state_of(three)
    s.run_id, listed = "00000000", s.data.listed
    three.selectbox(key="pick_A").set_value(1).run()  # what is B is picked for A: they change places
    assert s.data.picked == (1, 0) and s.run_id == ""
    names = shared_names(s.data)
    assert len(names) == 25 and all(a == b for a, b in names)
    assert "15 rows of A and 5 of B without a partner" in texts(three)  # 40 and 30 rows
    three.selectbox(key="pick_B").set_value(2).run()
    data = s.data
    assert (data.x.title, data.y.title, data.listed) == ("two", "three", listed)
    names = shared_names(data)
    assert sorted(a for a, _ in names) == sorted(f"n{i}" for i in range(5, 20)) and all(a == b for a, b in names)
    assert all(tuple(pair) in set(map(tuple, data.truth.array)) for pair in s.seeds.pairs.array)
    assert "15 pairs, by name, through one · 25 rows of A and 10 of B without a partner" in texts(three)


def test_a_link_brings_back_the_list_and_what_is_picked(app, three):
    three.selectbox(key="pick_A").set_value(2).run()
    asked, before = query(three), state_of(three).data
    assert asked["pick"] == "2,1" and asked["more"].endswith("~name")
    again = app("pages/data.py", **asked)
    data = state_of(again).data
    assert not again.warning and query(again) == asked
    assert [one.space.fingerprint for one in data.listed] == [one.space.fingerprint for one in before.listed]
    np.testing.assert_array_equal(data.spaces.rows, before.spaces.rows)
    np.testing.assert_array_equal(data.truth.array, before.truth.array)


@pytest.mark.parametrize(
    "pick, said", [("0,9", "are not two of the 3"), ("1,1", "are not two"), ("a,b", "names no two")]
)
def test_a_link_that_picks_what_is_not_there_opens_the_rest(app, pick, said):
    at = app(sample="emoji", pick=pick)
    assert state_of(at).data.sample == "emoji" and said in " ".join(w.value for w in at.warning)


def test_a_link_with_a_space_that_is_gone_opens_the_rest(app):
    at = app(sample="banking77", more="0123abcd.ef~row")
    assert state_of(at).data.sample == "banking77" and len(state_of(at).data.listed) == 2
    assert "not kept" in " ".join(w.value for w in at.warning)


def test_a_sample_of_three_by_link(app):
    at = app("pages/data.py", sample="emoji", pick="1,2")
    s = state_of(at)
    assert (s.data.gallery, s.data.sample) == ("emoji", "") and len(s.seeds.pairs) == 300
    assert (s.data.x.dim, s.data.y.dim, len(s.data.truth)) == (384, 384, 1911)
    assert (s.data.x.media[s.data.truth.x] == s.data.y.media[s.data.truth.y]).all()  # the same character
    assert query(at) == {"sample": "emoji", "pick": "1,2"}
    from pages._ui import state

    for one, at_map in zip((s.data.side("x"), s.data.side("y")), state.maps(s.data), strict=True):
        assert at_map is one.map and at_map.shape == (1911, 2)


def test_an_own_file_beside_a_sample(app, files):
    named(files, "mine.csv", ["n"] * 10, 5)
    at = added(app("pages/data.py", sample="banking77"), "mine.csv", "row")
    data = state_of(at).data
    assert data.sample == "banking77" and len(data.spaces.rows) == 10
    again = state_of(app("pages/data.py", **query(at))).data
    assert again.sample == "banking77" and np.array_equal(again.spaces.rows, data.spaces.rows)


def test_a_space_off_the_list(three):
    s = state_of(three)
    seeds = s.seeds
    three.button(key="remove_listed_2").click().run()
    assert [one.title for one in s.data.listed] == ["one", "two"] and s.seeds is seeds
    assert "Spaces" not in [e.value for e in three.subheader] and "more" not in query(three)


def test_the_first_off_the_list_leaves_the_others_paired_by_way_of_it(app, three):
    three.button(key="remove_listed_0").click().run()
    data = state_of(three).data
    assert [one.title for one in data.listed] == ["two", "three"] and data.picked == (1, 0)
    names = shared_names(data)
    assert sorted(a for a, _ in names) == sorted(f"n{i}" for i in range(5, 20)) and all(a == b for a, b in names)
    again = state_of(app("pages/data.py", **query(three))).data
    np.testing.assert_array_equal(again.truth.array, data.truth.array)


def test_a_space_off_a_sample_is_named_by_the_link(app):
    at = app("pages/data.py", sample="emoji")
    at.button(key="remove_listed_0").click().run()
    data, asked = state_of(at).data, query(at)
    assert asked["x"] == "emoji:1" and asked["y"] == "emoji:2" and data.gallery == ""
    again = state_of(app("pages/data.py", **asked)).data
    assert [one.title for one in again.listed] == [one.title for one in data.listed]
    np.testing.assert_array_equal(again.truth.array, data.truth.array)
    bad = app(x="emoji:7", y="emoji:1", pair="row")
    assert "no space '7' in the sample emoji" in " ".join(w.value for w in bad.warning)


def test_a_run_of_two_of_the_list_picks_them(three):
    from pages._ui import state
    from tests.pages.test_pages import finished_run

    s = state_of(three)
    listed = s.data.listed
    three.selectbox(key="pick_B").set_value(2).run()
    run = finished_run(three)
    three.selectbox(key="pick_B").set_value(1).run()
    state.open_run(s, run.id)
    assert s.data.picked == (0, 2) and s.data.listed == listed and s.run_id == run.id
    np.testing.assert_array_equal(s.seeds.pairs.array, run.pairs[0].array)
    three.run()
    assert query(three)["run"] == run.id and not three.exception
    state.open_sample(s, "banking77")
    state.open_run(s, run.id)  # of no space at hand: its own two
    assert [one.title for one in s.data.listed] == ["one", "three"]


@pytest.mark.parametrize("pairing, said", [("name", "no names in common"), ("none", "")])
def test_no_common_item_is_told_with_what_to_do(app, files, pairing, said):
    named(files, "other.csv", ["u", "v", "w"])
    at = added(app("pages/data.py", sample="fashion"), "other.csv", pairing)
    warned = texts(at)
    assert len(at.warning) == (pairing == "name")
    assert "other has no row that is known to be one of All ten classes" in warned and said in warned
    assert "Remove it and add it again" in warned
    assert state_of(at).data.spaces.rows is None and "common items not known" in texts(at)
    at.selectbox(key="pick_B").set_value(2).run()
    assert not at.exception and "No pairs are known between these two spaces" in texts(at)
    at.selectbox(key="pick_A").set_value(1).run()
    assert "other: no rows are known to correspond to those of All ten classes" in texts(at)


def test_items_in_no_space_but_pairs_in_each_is_told(three, files):
    named(files, "four.csv", [f"n{i}" for i in range(20, 30)], 5)
    at = added(three, "four.csv")
    assert len(state_of(at).data.spaces.rows) == 0
    assert "No item is in all 4 spaces" in texts(at) and "the fewest, four" in texts(at)
    at.selectbox(key="pick_A").set_value(2).run()
    at.selectbox(key="pick_B").set_value(3).run()
    assert not at.exception and "no row of one has a partner on both sides" in texts(at)


def test_the_list_has_an_end(three):
    from pages._ui import state
    from relcore.errors import InputError

    s = state_of(three)
    while len(s.data.listed) < state.MAX_SPACES:
        state.add(s, s.data.listed[2])
    three.run()
    assert any("holds 8 spaces" in i.value for i in three.info)
    assert not [w for w in three.selectbox if w.key == "path_z"]
    with pytest.raises(InputError, match="holds 8 spaces"):
        state.add(s, s.data.listed[2])
    while len(s.data.listed) > 2:
        state.remove(s, 2)
    with pytest.raises(InputError, match="at least two"):
        state.remove(s, 0)


def test_a_list_changed_while_a_file_is_read_is_not_added_to(app, files, slow):
    from pages._ui import state

    np.save(files / "x.npy", vectors())
    at = app("pages/data.py")
    st.cache_data.clear()
    at.run()
    at.selectbox(key="path_z").select("x.npy").run()
    at.button(key="add_space").click().run()
    assert "Space 3: reading slow.npy" in "".join(p.proto.text for p in at.get("progress")).replace("\\", "")
    state.open_sample(state_of(at), "emoji")
    x, report = make_space(vectors())
    slow[0].done, slow[0].outcome = True, {"reference": store.put_space(x, report), "folded": 0}
    at.run()
    assert "The list of spaces was changed" in errors(at) and len(state_of(at).data.listed) == 3
    assert len(at.error) == 1 and at.selectbox(key="path_z").value == "x.npy"


def test_a_third_that_cannot_be_read_is_one_sentence_in_its_place(app, files):
    (files / "page.npy").write_bytes(b"<!DOCTYPE html><html>404</html>")
    st.cache_data.clear()
    at = app("pages/data.py")
    at.selectbox(key="path_z").select("page.npy").run()
    assert "Space 3: page.npy looks like a web page" in errors(at) and len(at.error) == 1
    assert at.button(key="add_space").disabled and state_of(at).data.sample == "banking77"


def test_folding_the_case_of_the_third_loads_it_again_in_its_place(three, files):
    named(files, "four.csv", ["n1", "N1", "n2"])
    at = added(three, "four.csv")
    at.selectbox(key="pick_B").set_value(3).run()
    at.button(key="fold_now_y").click().run()
    data = state_of(loaded(at)).data
    assert [one.title for one in data.listed] == ["one", "two", "three", "four"] and data.picked == (0, 3)
    assert data.y.names.tolist() == ["n1", "n2"] and data.truth.array.tolist() == [[1, 0], [2, 1]]


# ---------------------------------------------------------------- while it goes on


class SlowLoading:
    """Stands for a load that goes on until it is told to end."""

    made: list = []

    def __init__(self, path, **options):
        self.request, self.file, self.progress = {"path": path}, "slow.npy", 0.4
        self.done, self.outcome, self.seconds = False, None, 3.0
        self.made.append(self)

    def cancel(self):
        self.done, self.outcome = True, {"error": "cancelled", "cancelled": True}


@pytest.fixture
def slow(monkeypatch):
    monkeypatch.setattr(SlowLoading, "made", [])
    monkeypatch.setattr(loading, "start", SlowLoading)
    return SlowLoading.made


def begun(at, files):
    np.save(files / "x.npy", vectors())
    np.save(files / "y.npy", vectors())
    choose(at, "x.npy", "y.npy")
    at.button(key="open_both").click().run()
    return at


def test_two_quick_clicks_load_once_and_leaving_the_page_loses_nothing(app, files, slow):
    """Case B23."""
    at = begun(app("pages/data.py"), files)
    assert len(slow) == 2
    assert at.button(key="open_both").disabled
    s = state_of(at)
    loader.begin(s, s.files.opening.requests, s.files.opening.choices)
    assert len(slow) == 2
    at.switch_page("pages/seeds.py").run()
    at.switch_page("pages/data.py").run()
    assert "reading slow.npy" in "".join(p.proto.text for p in at.get("progress")).replace("\\", "")
    assert at.button(key="cancel_opening").label == "Cancel"


def test_cancelling_keeps_the_view_before(app, files, slow):
    at = begun(app("pages/data.py"), files)
    at.button(key="cancel_opening").click().run()
    at.run()
    assert state_of(at).files.opening is None and state_of(at).data.sample == "banking77"
    assert not at.error and not at.button(key="open_both").disabled


def test_a_reader_that_died_is_a_sentence(app, files, slow):
    at = begun(app("pages/data.py"), files)
    for side in slow:
        side.done, side.outcome = True, {"error": "reading slow.npy ended with signal 11; the file is damaged."}
    at.run()
    assert "Space A: reading slow.npy ended with signal 11" in errors(at)
    assert state_of(at).data.sample == "banking77"


def test_pairing_again_does_not_read_again(app, files, monkeypatch):
    np.save(files / "x.npy", vectors())
    np.save(files / "y.npy", vectors(30, 3))
    at = opened(app("pages/data.py"), "x.npy", "y.npy", "row")
    monkeypatch.setattr(loading, "start", None)
    at.radio(key="pairing").set_value("none").run()
    at.button(key="open_both").click().run()
    assert state_of(loaded(at)).data.truth is None


@pytest.mark.parametrize(
    "name, content",
    [
        ("empty.npy", b""),
        ("page.npy", b"<!DOCTYPE html><html>404</html>"),
        ("cut.npy", b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (9, 4), }".ljust(128)),
        ("bad.npz", b"PK\x03\x04 no zip"),
        ("p.npy", b"\x80\x04\x95\x00"),
    ],
)  # fmt: skip
def test_a_broken_file_is_one_sentence_and_the_view_before_stays(app, files, name, content):
    (files / name).write_bytes(content)
    np.save(files / "y.npy", vectors())
    at = choose(app("pages/data.py"), name, "y.npy")
    if not at.error:
        at.button(key="open_both").click().run()
        loaded(at)
    assert "Space A" in errors(at) and "Traceback" not in errors(at) and len(at.error) == 1
    assert state_of(at).data.sample == "banking77"


def test_a_table_without_numbers_asks_for_a_column_and_cannot_be_opened(app, files):
    (files / "words.csv").write_bytes(b"a,b\n")
    np.save(files / "y.npy", vectors())
    at = choose(app("pages/data.py"), "words.csv", "y.npy")
    assert any("No column is a vector" in i.value for i in at.info)
    assert any("none of the 2 columns holds numbers" in c.value for c in at.caption)
    assert at.button(key="open_both").disabled and not at.error


# ---------------------------------------------------------------- pictures


def picture(shade: int, size: int = 8) -> str:
    buffer = io.BytesIO()
    Image.new("RGB", (size, size), (shade % 256, 0, 0)).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


@pytest.mark.parametrize(
    "media, is_one",
    [
        (picture(3), True),
        ("data:image/svg+xml;base64,PHN2Zz4=", False),
        ("data:text/html;base64,PGI+", False),
        ('data:image/png;base64,AA" onerror="x', False),
        ("https://example.org/a.png", False),
        ("/etc/passwd", False),
        ("🦊", False),
    ],
)
def test_only_pictures_that_came_with_the_data_are_drawn(media, is_one):
    assert pictures.is_picture(media) is is_one
    table, _ = pictures.columns([media])
    assert table == ({"picture": [media]} if is_one else {"thumbnail": [media]})


def panel(media: list[str]) -> Panel:
    n = len(media)
    return Panel("P", np.zeros((n, 2), np.float32), np.arange(n), None, ["a"] * n, media)


def arrays_of(panels) -> tuple[dict, bytes]:
    memory = linked_map._Memory()
    scene = linked_map._Scene.of(panels, (None,), False)
    memory.remember(scene, [np.zeros(len(p.xy), bool) for p in panels])
    picture_block, arrays = linked_map._pack(scene, panels, memory, store="k", links=None, view="", height=1,
        point_size=None, show_legend=True, alt="", link_lines=False)  # fmt: skip
    length = int.from_bytes(picture_block[:4], "little")
    return json.loads(picture_block[4 : 4 + length]), arrays


def test_pictures_go_to_the_hover_label_whole_and_characters_stay_points():
    header, arrays = arrays_of((panel([picture(1), "🦊", ""]),))
    entry = header["panels"][0]
    start = 4 + int.from_bytes(arrays[:4], "little")

    def read(what):
        text, ends = entry[what]["text"], entry[what]["ends"]
        block = arrays[start + text["at"] :][: text["bytes"]]
        stops = np.frombuffer(arrays[start + ends["at"] :][: ends["bytes"]], np.uint32)
        return [block[a:b].decode() for a, b in zip([0, *stops[:-1]], stops, strict=True)]

    assert read("pictures") == [picture(1), "", ""]
    assert read("media") == ["", "🦊", ""]


def test_too_many_pictures_stay_on_the_server(monkeypatch):
    panels = (panel([picture(i) for i in range(50)]),)
    assert linked_map.pictures_travel(panels) and not linked_map.pictures_stay(panels)
    monkeypatch.setattr(linked_map, "MAX_PICTURES", 1000)
    assert linked_map.pictures_stay(panels) and not linked_map.pictures_travel(panels)
    header, arrays = arrays_of(panels)
    assert "pictures" not in header["panels"][0] and b"data:image" not in arrays


def test_selected_rows_are_listed_with_their_pictures(app):
    media = [picture(i) for i in range(6)]
    x, report = make_space(np.eye(6) + 1, names=list("abcdef"), media=media)
    at = app("pages/data.py", x=store.put_space(x, report), y=store.put_space(x, report), pair="row")
    from pages._ui.selection import Selection

    state_of(at).selection.set(Selection(np.array([2, 4]), np.array([1]), "test"))
    at.run()
    tables = [e.value for e in at.dataframe if "picture" in e.value.columns]
    assert [t["picture"].tolist() for t in tables] == [[media[2], media[4]], [media[1]]]


def test_a_click_on_the_map_still_works_with_pictures(app):
    x, report = make_space(np.eye(6) + 1, media=[picture(i) for i in range(6)])
    at = app("pages/data.py", x=store.put_space(x, report), y=store.put_space(x, report), pair="row")
    scene = state_of(at) and at.session_state["data_map-memory"].current
    event = {"kind": "click", "panel": 0, "id": 3, "rev": 1, "scene": scene}
    inject(at, at.get("bidi_component")[0], {"events": [event]})
    assert state_of(at).selection.current.x.tolist() == [3]
