"""Reading in a process of its own: what comes back, what a dying reader is called, and that nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest

from relcore import formats, loading, store
from relcore.errors import InputError
from relcore.space import Pairs, make_space

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("RELCORE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def saved(path: Path, n: int = 40, d: int = 5, seed: int = 0) -> Path:
    np.save(path, np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32))
    return path


def wait_for_process(begun: loading.Loading) -> psutil.Process:
    deadline = time.monotonic() + 20
    while begun._process is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return psutil.Process(begun._process.pid)


@pytest.fixture
def slow_file(tmp_path) -> Path:
    """A pipe nobody writes to would be refused; a large text takes long enough to be caught reading."""
    path = tmp_path / "slow.csv"
    row = ",".join(f"{v:.6f}" for v in np.random.default_rng(0).normal(size=200))
    path.write_text("\n".join([row] * 40_000))
    return path


def test_what_was_loaded_is_what_load_gives(tmp_path):
    path = saved(tmp_path / "a.npy")
    (tmp_path / "labels.txt").write_text("x\n" * 40)
    begun = loading.start(path, labels=str(tmp_path / "labels.txt"), title="T")
    outcome = begun.wait(60)
    assert begun.done and "error" not in outcome
    space, report = store.get_space(outcome["reference"])
    wanted, wanted_report = formats.load(path, labels=tmp_path / "labels.txt", title="T")
    np.testing.assert_array_equal(space.vectors, wanted.vectors)
    assert space.labels.tolist() == ["x"] * 40 and space.title == "T"
    assert report == wanted_report


def test_how_many_rows_folding_the_case_would_merge_is_counted(tmp_path):
    path = tmp_path / "w.csv"
    path.write_text("word,a,b\nThe,1,2\nthe,3,4\nTHE,5,6\nother,7,8\n")
    assert loading.start(path).wait(60)["folded"] == 2


def test_an_error_comes_back_as_its_sentence(tmp_path):
    np.save(tmp_path / "zeros.npy", np.zeros((9, 4)))
    outcome = loading.start(tmp_path / "zeros.npy").wait(60)
    assert "has norm 0" in outcome["error"] and set(outcome) == {"error"}


def test_a_look_tells_arrays_shape_and_memory(tmp_path):
    np.savez(tmp_path / "z.npz", vectors=np.ones((30, 4), np.float16), label=np.arange(30))
    seen = loading.look(tmp_path / "z.npz")
    assert (seen["format"], seen["rows"], seen["dim"], seen["dtype"]) == ("npz", 30, 4, "float16")
    assert [(a["name"], a["shape"], a["vectors"]) for a in seen["arrays"]] == [
        ("vectors", [30, 4], True),
        ("label", [30], False),
    ]
    assert seen["memory"] > 0 and seen["note"] is None


def test_a_look_at_several_arrays_asks_for_one(tmp_path):
    np.savez(tmp_path / "z.npz", a=np.ones((30, 4)), b=np.ones((20, 3)))
    seen = loading.look(tmp_path / "z.npz")
    assert seen["choose"] and "choose one" in seen["error"] and len(seen["arrays"]) == 2
    assert loading.look(tmp_path / "z.npz", key="b")["rows"] == 20


def test_a_look_that_takes_too_long_is_ended(tmp_path):
    seen = loading.look(saved(tmp_path / "a.npy"), timeout=0.0)
    assert "over 0 seconds" in seen["error"]


@pytest.mark.parametrize(
    "number, words",
    [(signal.SIGSEGV, "ended with signal 11; the file is probably damaged"), (signal.SIGKILL, "run out of memory")],
)
def test_a_reader_that_dies_is_a_sentence_and_leaves_nothing(slow_file, home, number, words):
    begun = loading.start(slow_file)
    wait_for_process(begun).send_signal(number)
    outcome = begun.wait(60)
    assert words in outcome["error"] and "slow.csv" in outcome["error"]
    assert not list(home.glob("**/.new-*"))


def test_cancelling_ends_the_process_and_keeps_nothing(slow_file, home):
    begun = loading.start(slow_file)
    process = wait_for_process(begun)
    begun.cancel()
    assert begun.wait(10) == {"error": "cancelled", "cancelled": True}
    assert not process.is_running()
    assert not list(home.glob("spaces/*"))
    begun.cancel()  # a second time changes nothing
    assert begun.done


def test_cancelling_before_the_process_is_there(tmp_path):
    begun = loading.start(saved(tmp_path / "a.npy"))
    begun.cancel()
    assert begun.wait(10)["cancelled"]


def test_progress_goes_up_to_the_end(slow_file):
    begun = loading.start(slow_file)
    seen = [begun.progress]
    while not begun.done:
        seen.append(begun.progress)
        time.sleep(0.02)
    assert "error" not in begun.outcome
    assert seen == sorted(seen) and seen[-1] <= 1 and begun.seconds > 0


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG")
def test_a_killed_server_takes_its_readers_along(slow_file):
    code = (
        "import sys, time; from relcore import loading; b = loading.start(sys.argv[1])\n"
        "while b._process is None: time.sleep(.01)\n"
        "time.sleep(.5); print(b._process.pid, flush=True); time.sleep(60)"
    )
    server = subprocess.Popen(
        [sys.executable, "-c", code, str(slow_file)],
        stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    reader = psutil.Process(int(server.stdout.readline()))
    server.kill()
    server.wait()
    server.stdout.close()
    reader.wait(5)
    assert not reader.is_running()


def test_the_reader_goes_first_when_memory_is_short(slow_file):
    begun = loading.start(slow_file)
    pid = wait_for_process(begun).pid
    deadline = time.monotonic() + 10
    while (score := Path(f"/proc/{pid}/oom_score_adj").read_text().strip()) != loading.OOM_SCORE:
        assert time.monotonic() < deadline, score
        time.sleep(0.02)
    begun.cancel()


# ---------------------------------------------------------------- the store keeps what a space has


def test_the_same_vectors_with_other_thumbnails_and_reports_are_two_views():
    v = np.random.default_rng(0).normal(size=(3, 2))
    one, report_one = make_space(v, title="one", media=["a", "b", "c"])
    two, report_two = make_space(v, title="two", source="elsewhere")
    first, second = store.put_space(one, report_one), store.put_space(two, report_two)
    assert one.fingerprint == two.fingerprint and first != second
    again, report = store.get_space(first)
    assert (again.title, again.media.tolist(), report) == ("one", ["a", "b", "c"], report_one)
    again, report = store.get_space(second)
    assert (again.title, again.media, report) == ("two", None, report_two)
    assert store.get_space(one.fingerprint)[0].title == "two"  # the last one kept
    assert store.put_space(store.get_space(first)[0], report_one) == first


def test_names_of_rows_set_aside_are_kept():
    v = np.ones((3, 2))
    v[1] = np.nan
    space, report = make_space(v, names=["a", "<b>", "c"])
    assert store.get_space(store.put_space(space, report))[1].aside_names == ("<b>",)


def test_metadata_of_every_kind_come_back():
    meta = pd.DataFrame(
        {
            "text": ["a", None, "c"],
            "number": [1, 2, 3],
            "mixed": ["a", 1, 2.5],
            "class": pd.Categorical(["u", "v", "u"]),
            "when": pd.to_datetime(["2020-01-01", None, "2021-01-01"]),
            "lists": [[1, 2], [3], []],
        }
    )
    meta[3] = [0.5, 1.5, 2.5]
    twice = pd.concat([meta, meta[["number"]]], axis=1)
    for wanted in (meta, twice):
        space, report = make_space(np.ones((3, 2)), meta=wanted)
        again = store.get_space(store.put_space(space, report))[0].meta
        assert len(again) == 3 and len(again.columns) == len(wanted.columns)
        assert again["mixed"].tolist() == ["a", "1", "2.5"]
        assert again["number"].tolist() == [1, 2, 3] and again["3"].tolist() == [0.5, 1.5, 2.5]
        assert again["class"].tolist() == ["u", "v", "u"] and list(again["lists"][0]) == [1, 2]


def test_pairs_are_kept_for_a_link():
    digest = store.put_pairs(Pairs(np.array([[0, 1], [2, 0]])), "column id", ["one is ambiguous"])
    pairs, how, problems = store.get_pairs(digest, 3, 2)
    assert pairs.array.tolist() == [[0, 1], [2, 0]] and how == "column id" and problems == ["one is ambiguous"]
    with pytest.raises(ValueError, match="other data"):
        store.get_pairs(digest, 2, 2)
    with pytest.raises(ValueError, match="not kept"):
        store.get_pairs("../../etc/passwd", 2, 2)


def test_a_linear_head_comes_back_by_its_digest_and_a_bad_one_as_a_sentence(tmp_path):
    import torch

    from relcore.formats.linear_head import get_head

    w, b = torch.arange(12.0).reshape(3, 4), torch.tensor([1.0, 0.0, -1.0])
    torch.save({"weight": w, "bias": b}, tmp_path / "head.pt")
    outcome = loading.head(tmp_path / "head.pt")
    head = get_head(outcome["reference"])
    np.testing.assert_array_equal(head.weights, w.numpy())
    np.testing.assert_array_equal(head.offsets, b.numpy())
    assert head.classes is None and head.source == "head.pt"
    np.savez(tmp_path / "named.npz", W=w.numpy(), b=b.numpy(), classes=np.array(["x", "y", "z"]))
    named = loading.head(tmp_path / "named.npz")["reference"]
    assert named != outcome["reference"] and get_head(named).classes == ("x", "y", "z")
    np.savez(tmp_path / "bad.npz", W=w.numpy(), b=b.numpy()[:2])
    assert "2 offsets" in loading.head(tmp_path / "bad.npz")["error"]
    with pytest.raises(InputError, match="not kept here"):
        get_head("0" * 32)
