"""A run on disk: complete, partial, broken, and read again."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from relcore import runs, store
from relcore.errors import InputError
from relcore.methods import method
from relcore.methods.base import Restarts
from relcore.runs import Run
from relcore.space import Pair, make_space
from tests import restarting
from tests.test_pipeline import PAIR, SEEDS, planted


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("RELCORE_HOME", str(tmp_path / "home"))


def reports(pair: Pair):
    return tuple(make_space(s.vectors)[1] for s in (pair.x, pair.y))


def made(**kw) -> Run:
    options = dict(method=method("ao", anchors=60), seeds=SEEDS, reports=reports(PAIR)) | kw
    return runs.create(PAIR, **options)


def test_a_run_is_executed_from_its_folder_alone():
    run = made()
    assert Run.load(run.folder).status == "queued"
    progress = list(runs.execute(Run.load(run.folder)))
    done = Run.load(run.folder)
    assert done.status == "done" and done.usable and done.record["verdict"]["level"] == "aligned"
    assert progress[-1].phase == "done"
    history = done.history()
    assert history["iteration"].tolist() == list(range(1, done.record["steps"] + 1))
    assert done.frame(0).shape == (450, 2) and done.frame(None).shape == (400, 2)
    assert done.analysis["x_to_y/nearest/indices"].shape == (400, 50)
    arrays = done.alignment_arrays()
    # coordinates can be rebuilt from the stored preprocessing and encoder
    v = PAIR.x.vectors - arrays["preprocess_x_0"]
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    np.testing.assert_allclose(v @ arrays["encode_x"], arrays["x"], atol=1e-4)


def test_cancelled_it_is_readable_with_what_it_had():
    run = made(method=method("ao", mode="paper", anchors=60, adam_steps=200))
    steps = runs.execute(run)
    for _ in range(4):
        next(steps)
    steps.close()
    kept = Run.load(run.folder)
    assert kept.status == "cancelled" and kept.usable
    assert len(kept.history()) == 4 and kept.record["converged"] is False
    assert any("stopped at step 4" in n for n in kept.record["notes"])


def test_cancelled_before_the_first_step_it_kept_nothing_and_says_so():
    run = made()
    steps = runs.execute(run)
    try:
        next(steps)
    finally:
        steps.close()
    empty = made()
    empty.mark("cancelled", "cancelled while it waited")
    assert not Run.load(empty.folder).usable
    with pytest.raises(InputError, match="kept no result"):
        _ = Run.load(empty.folder).analysis


def test_a_failed_run_keeps_its_reason(monkeypatch):
    run = made()
    (store.folder_of(PAIR.y.fingerprint) / "rows.json").unlink()
    with pytest.raises(InputError, match="load it again"):
        list(runs.execute(run))
    failed = Run.load(run.folder)
    assert failed.status == "failed" and PAIR.y.fingerprint[:8] in failed.record["message"]


def test_a_run_whose_process_is_gone_is_read_as_failed():
    run = made()
    code = (
        "import sys; from relcore import runs; r = runs.Run.load(sys.argv[1]);"
        "r.update(status='running', process=runs.this_process())"
    )
    subprocess.run([sys.executable, "-c", code, str(run.folder)], check=True)
    read = Run.load(run.folder)
    assert read.status == "failed" and "gone" in read.record["message"]


def test_spaces_come_back_as_they_were_stored():
    space, report = make_space(
        np.random.default_rng(1).normal(size=(5, 3)),
        names=["a", "<b>", "ü", "a", ""],
        labels=[1, None, 2.0, "x", "01"],
        media=list("abcde"),
        title="T",
    )
    store.put_space(space, report)
    again, report_again = store.get_space(space.fingerprint)
    np.testing.assert_array_equal(again.vectors, space.vectors)
    for name in ("ids", "names", "labels", "media"):
        assert getattr(again, name).tolist() == getattr(space, name).tolist()
    assert again.title == "T" and report_again == report
    fresh, _ = make_space(np.array(again.vectors), names=again.names, labels=again.labels, media=again.media)
    assert fresh.fingerprint == space.fingerprint


def test_other_bytes_have_another_fingerprint():
    v = np.random.default_rng(1).normal(size=(600, 1000)).astype(np.float32)
    a, _ = make_space(v)
    v[321, 777] += 1  # one number of 600,000 (case B26)
    b, _ = make_space(v)
    assert a.fingerprint != b.fingerprint
    c, _ = make_space(v, names=["x"] * 600)
    assert c.fingerprint != b.fingerprint


def test_data_that_are_not_kept_are_named():
    run = made(keep_spaces=False)
    with pytest.raises(InputError, match="which is not kept here"):
        run.pair()


def test_a_folder_with_other_things_is_not_overwritten(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="not empty"):
        made(folder=tmp_path)
    assert (tmp_path / "thesis.tex").exists()


def test_made_again_in_its_folder_old_results_are_gone(tmp_path):
    first = made(folder=tmp_path / "r", method=method("relative"))
    list(runs.execute(first))
    second = made(folder=tmp_path / "r", method=method("relative"))
    assert not second.usable and second.history() is None


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"status": "done"}'])
def test_a_broken_record_is_refused_in_a_sentence(tmp_path, content):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(InputError, match="run"):
        Run.load(tmp_path)


@pytest.mark.parametrize("run_id", ["../../etc", "", "zzzzzzzz", "0" * 9])
def test_a_run_id_from_a_link_cannot_leave_the_folder(run_id):
    with pytest.raises(InputError, match="no run id"):
        runs.find(run_id)


def test_records_are_plain_json_without_nan():
    run = made(method=method("relative"))
    list(runs.execute(run))
    json.loads((run.folder / "run.json").read_text(), parse_constant=lambda c: pytest.fail(f"{c} in run.json"))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 12])
def test_tiny_spaces_run_to_the_end(n):
    pair = planted(n=n, dx=4, dy=5, extra=0)
    run = runs.create(
        pair,
        method=method("relative"),
        seeds=pair.truth.take(np.arange(min(n, 2))),
        reports=reports(pair),
        preprocess=("unit",),
    )
    list(runs.execute(run))
    assert Run.load(run.folder).analysis["x_to_y/nearest/indices"].shape == (n, n)


def test_the_random_state_of_the_process_is_left_alone():
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy()
    list(runs.execute(made(method=method("relative"))))
    assert torch.equal(before[0], torch.random.get_rng_state()) and (before[1] == np.random.get_state()[1]).all()


def test_every_restart_is_kept_at_every_step(monkeypatch):
    run = made(method=restarting.register(monkeypatch)(count=8, length=20))
    told = [p for p in runs.execute(run) if p.restarts is not None]
    assert len(told) == 20
    table = Run.load(run.folder).restarts()
    assert len(table) == 8 * 10 + 4 * 10
    wanted = [restarting.planted_score(r, i) for r, i in zip(table["restart"], table["iteration"], strict=True)]
    np.testing.assert_allclose(table["score"], wanted, rtol=1e-6)
    curves = run.restart_curves()
    assert (curves.best, curves.seen, len(curves.curves)) == (7, 8, 8)
    assert curves.pruned == {0: 10, 1: 10, 2: 10, 3: 10, 4: 20, 5: 20}
    assert curves.curves[0][0] == list(range(1, 11)) and curves.curves[7][0] == list(range(1, 21))
    assert run.record["health"]["confidence"]["votes"] == 3


def test_a_run_without_restarts_has_no_table_of_them():
    run = made(method=method("relative"), folds=0)
    list(runs.execute(run))
    assert run.restarts() is None and run.restart_curves() is None


def test_of_very_many_restarts_the_best_have_curves_and_all_are_counted(tmp_path):
    rng = np.random.default_rng(0)
    scores = rng.permutation(3000) / 3000.0
    steps = [(i, Restarts(np.arange(3000), scores - 1 / i)) for i in (1, 2)]
    lost = Restarts(np.array([5]), np.array([np.nan]), pruned=(5, 6), best=int(scores.argmax()))
    runs._write_table(tmp_path / "restarts.parquet", runs.restart_table([*steps, (3, lost)]))
    curves = Run(tmp_path, {}).restart_curves()
    assert curves.seen == 3000 and set(curves.curves) == set(np.argsort(scores)[-runs.MOST_RESTARTS :].tolist())
    assert curves.pruned == {5: 3, 6: 3}  # 6 was given up in a step that did not score it


def finished(title: str = "mine") -> Run:
    run = made(method=method("procrustes"), folds=0, title=title)
    for _ in runs.execute(run):
        pass
    return Run.load(run.folder)


@pytest.mark.parametrize(
    ("name", "said"), [("analysis", "cut"), ("alignment", "cut"), ("alignment", "missing"), ("pairs", "missing")]
)
def test_a_missing_or_cut_file_is_named_and_the_rest_works(name, said):
    sound, hurt = finished("sound"), finished("hurt")
    path = hurt.folder / f"{name}.safetensors"
    path.unlink() if said == "missing" else path.write_bytes(path.read_bytes()[:-5])
    hurt = Run.load(hurt.folder)
    assert not hurt.usable and hurt.damage.startswith(f"{name}.safetensors is {said}")
    found, unreadable = runs.survey()
    assert {r.title: r.usable for r in found} == {"sound": True, "hurt": False} and unreadable == {}
    assert sound.usable and sound.damage == ""
    with pytest.raises(InputError, match="damaged|missing"):
        _ = hurt.pairs if name == "pairs" else hurt.analysis if name == "analysis" else hurt.alignment_arrays()


def test_folders_that_hold_no_run_are_listed_with_the_reason():
    finished()
    for name, text in (("cut", '{"status": "do'), ("other", "[]"), ("newer", None)):
        folder = store.home() / "runs" / name
        folder.mkdir()
        record = {"version": 2, "status": "done", "method": "ao", "versions": {"relcore": "9.9"}}
        (folder / "run.json").write_text(json.dumps(record) if text is None else text)
    found, unreadable = runs.survey()
    assert len(found) == 1 and set(unreadable) == {"cut", "other", "newer"}
    assert "Relcore 9.9" in unreadable["newer"] and "update Relcore" in unreadable["newer"]
    runs.delete("cut")  # what cannot be read can be taken away
    assert "cut" not in runs.survey()[1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"created": None}, "created is 'None'"),
        ({"process": {"pid": "x"}, "status": "running"}, None),
        ({"seeds": "many"}, "seeds is 'many'"),
        ({"x": {}}, "x.fingerprint is missing"),
        ({"params": {"a=1); print(1) #": 1}}, "the parameter 'a=1); print(1) #' is none"),
        ({"x.kept": "0" * 64 + ".aa"}, "x is kept as '0000"),
        ({"x.kept": "/etc"}, "x is kept as '/etc'"),
    ],
)
def test_one_odd_record_does_not_stop_the_list(change, said):
    finished("sound")
    odd = finished("odd")
    for name, value in change.items():
        of, _, inner = name.rpartition(".")
        (odd.record[of] if of else odd.record)[inner] = value
    odd.update()
    found, unreadable = runs.survey()
    if said is None:
        assert runs.find(odd.id).status == "failed" and len(found) == 2
    else:
        assert [r.title for r in found] == ["sound"] and said in unreadable[odd.id]


def test_the_list_is_read_on_a_full_disk(monkeypatch):
    run = finished()
    run.update(status="running", process={"pid": 2**22 - 3, "started": "1"})

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "write_atomic", full)
    assert [r.status for r in runs.list_runs()] == ["failed"]


@pytest.mark.parametrize("reference", ["/etc", "../x", "", "a.b/../c", "a."])
def test_a_reference_cannot_leave_the_store(reference):
    for ask in (store.get_space, store.view_folder):
        with pytest.raises(InputError, match="is no reference of kept data"):
            ask(reference)


def test_renamed_annotated_and_deleted():
    run = finished()
    runs.rename(run, "  better\nname ", "why: seeds by hand")
    again = runs.find(run.id)
    assert again.title == "better name" and again.record["annotation"] == "why: seeds by hand" and again.usable
    with pytest.raises(InputError, match="needs a title"):
        runs.rename(run, " ")
    runs.delete(run.id)
    assert not run.folder.exists() and not list((store.home() / "runs").iterdir())
    with pytest.raises(InputError, match="deleted before"):
        runs.delete(run.id)
    with pytest.raises(InputError, match="is no run"):
        runs.delete("../spaces")


def test_a_run_that_goes_on_is_not_deleted():
    run = made()
    steps = runs.execute(run)
    next(steps)
    with pytest.raises(InputError, match="stop it first"):
        runs.delete(run.id)
    with pytest.raises(InputError, match="rename it when it has ended"):
        runs.rename(run, "other")
    with pytest.raises(InputError, match="a run is going on here"):
        made(folder=run.folder)
    steps.close()
    left = run.folder.with_name(".deleted-0000-00")  # of a deletion that was killed
    left.mkdir()
    runs.delete(run.id)
    assert not left.exists()


def test_a_full_disk_leaves_the_record_as_it_was(monkeypatch):
    run = finished()
    before = (run.folder / "run.json").read_bytes()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        runs.rename(run, "lost")
    assert (run.folder / "run.json").read_bytes() == before
    assert not [p for p in run.folder.iterdir() if p.name.startswith(".")]
