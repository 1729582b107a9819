"""Session zips: what goes in comes out on another machine, and nothing else gets in."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import zipfile
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from relcore import methods, runs, sessions, stitchings, store
from relcore.errors import InputError
from relcore.space import LoadReport, Pair, Pairs, Spaces, make_space
from relcore.stitching import Settings

N = 60


def pair_and_report():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((N, 5))
    labels = [f"k{i % 3}" for i in range(N)]
    x, report = make_space(x, names=[f"r\u00e9s {i}" for i in range(N)], labels=labels, title="left")
    y, _ = make_space(x.vectors[:, ::-1].copy(), labels=labels, title="right")
    return Pair(x, y, Pairs.by_row(N)), LoadReport(**report.__dict__)


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    """A home with a run and a stitching of it, and a session of both."""
    patch = pytest.MonkeyPatch()
    home = tmp_path_factory.mktemp("first")
    patch.setenv("RELCORE_HOME", str(home))
    pair, report = pair_and_report()
    run = runs.create(
        pair, method=methods.method("procrustes"), seeds=Pairs.by_row(12), reports=(report, report), title="mine"
    )
    for _ in runs.execute(run):
        pass
    kept = stitchings.create(
        Spaces.join((pair.x, pair.y), [pair.truth]), Settings(references=("full",)), reports=(report, report), run=run
    )
    for _ in stitchings.execute(kept):
        pass
    path = tmp_path_factory.mktemp("zip") / "session.zip"
    shares: list[float] = []
    assert sessions.save(path, [run], [kept], shares.append) == []
    assert shares[-1] == 1 and shares == sorted(shares)
    patch.undo()
    return home, run, kept, path


@pytest.fixture
def elsewhere(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("RELCORE_HOME", str(tmp_path / "second"))
    return tmp_path / "second"


def tree(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


def test_what_goes_in_comes_out(origin, elsewhere):
    home, run, kept, path = origin
    manifest = sessions.look(path)
    assert [r["title"] for r in manifest.runs] == ["mine"] and manifest.stitchings == (kept.id,)
    opened = sessions.open_session(path)
    assert opened.runs == (run.id,) and opened.stitchings == (kept.id,) and opened.notes == ()
    again = runs.find(run.id)
    assert again.record == run.record
    for name, array in run.alignment_arrays().items():
        np.testing.assert_array_equal(again.alignment_arrays()[name], array)
    pair = again.pair()
    assert pair.x.names[3] == "r\u00e9s 3" and list(pair.x.labels[:3]) == ["k0", "k1", "k2"] and pair.x.title == "left"
    assert not [p for p in elsewhere.iterdir() if p.name.startswith(".")]
    here = stitchings.Stitching.load(stitchings.home() / kept.id)
    assert here.results()["accuracy"].tolist() == kept.results()["accuracy"].tolist()
    shutil.move(home, home.with_name("moved"))  # the first machine is far away
    try:
        assert stitchings.question(here).aligned.title == "mine"
    finally:
        shutil.move(home.with_name("moved"), home)


def test_nothing_in_it_can_be_run(origin):
    with zipfile.ZipFile(origin[3]) as z:
        names = z.namelist()
    assert {Path(n).suffix for n in names} <= {".json", ".jsonl", ".npy", ".safetensors", ".parquet", ""}
    assert not [n for n in names if "." not in Path(n).name and Path(n).name != "latest"]


def test_what_is_here_stays_and_another_run_of_the_same_id_gets_a_new_one(origin, elsewhere):
    _, run, kept, path = origin
    sessions.open_session(path)
    runs.find(run.id).update(title="renamed here")
    opened = sessions.open_session(path)
    assert opened.runs == (run.id,) and runs.find(run.id).title == "renamed here"
    assert opened.notes == ("run mine is here already", f"stitching {kept.id} is here already")
    (runs.find(run.id).folder / "alignment.safetensors").write_bytes(b"other results")
    (fresh,) = sessions.open_session(path).runs
    assert fresh != run.id and runs.find(fresh).id == fresh and runs.find(fresh).usable


def rewritten(path: Path, target: Path, change) -> Path:
    """The session with its members and its manifest changed by ``change(members, manifest)``."""
    with zipfile.ZipFile(path) as z:
        members = {n: z.read(n) for n in z.namelist()}
    manifest = json.loads(members.pop("manifest.json"))
    change(members, manifest)
    with zipfile.ZipFile(target, "w") as z:
        for name, data in members.items():
            z.writestr(name, data)
        z.writestr("manifest.json", json.dumps(manifest))
    return target


def listed(manifest: dict, name: str, data: bytes) -> None:
    import hashlib

    manifest["files"][name] = [len(data), hashlib.sha256(data).hexdigest()]


def damage(members, manifest):
    name = next(n for n in members if n.endswith("alignment.safetensors"))
    members[name] = members[name][:-1] + bytes([members[name][-1] ^ 1])


def escape(members, manifest):
    members["runs/../../evil.json"] = b"{}"
    listed(manifest, "runs/../../evil.json", b"{}")


def script(members, manifest):
    members["runs/aaaa/evil.pkl"] = b"x"
    listed(manifest, "runs/aaaa/evil.pkl", b"x")


def unlisted(members, manifest):
    members["runs/aaaa/more.json"] = b"{}"


def later(members, manifest):
    manifest["format"] = 99


def poison(members, manifest):
    """Other vectors under a fingerprint that somebody else's data have."""
    name = next(n for n in members if n.endswith("vectors.npy"))
    data = bytearray(members[name])
    data[-2] ^= 1
    members[name] = bytes(data)
    listed(manifest, name, members[name])


def cut(members, manifest):
    name = next(n for n in members if n.endswith("run.json"))
    members[name] = members[name][:40]
    listed(manifest, name, members[name])


def changed(members, manifest, ending: str, make) -> None:
    """Every file of that ending is made anew, and listed so."""
    for name in [n for n in members if n.endswith(ending)]:
        members[name] = make(members[name])
        listed(manifest, name, members[name])


def of_text(ending: str, make):
    return lambda members, manifest: changed(
        members, manifest, ending, lambda data: json.dumps(make(json.loads(data))).encode()
    )


def of_record(**fields):
    return of_text("run.json", lambda record: record | fields)


def of_side(**fields):
    return of_text("run.json", lambda record: record | {"x": record["x"] | fields})


def of_array(ending: str, make):
    def bytes_of(data: bytes) -> bytes:
        found, out = make(np.load(io.BytesIO(data))), io.BytesIO()
        np.savez(out, **found) if isinstance(found, dict) else np.save(out, found)
        return out.getvalue()

    return lambda members, manifest: changed(members, manifest, ending, bytes_of)


def archive(vectors: np.ndarray) -> dict:
    return {"a": vectors}


def pairs_beyond(members, manifest):
    data = save({"seeds": np.array([[0, 0]]), "truth": np.array([[-1, 0], [99, 1]])})
    changed(members, manifest, "pairs.safetensors", lambda _: data)


def without_pairs(members, manifest):
    name = next(n for n in members if n.endswith("pairs.safetensors"))
    del members[name], manifest["files"][name]


def odd_arrays(members, manifest):
    head = json.dumps({"a": {"dtype": "NO", "shape": [1], "data_offsets": [0, 4]}}).encode()
    changed(members, manifest, "analysis.safetensors", lambda _: len(head).to_bytes(8, "little") + head + b"1234")


def without_views(members, manifest):
    for name in [n for n in members if n.startswith("spaces/") and n.count("/") == 3]:
        del members[name], manifest["files"][name]


def folder_and_file(members, manifest):
    for name in ("runs/abcd1234/a.json", "runs/abcd1234/a.json/b.json"):
        members[name] = b"{}"
        listed(manifest, name, b"{}")


def by_case(members, manifest):
    """Where capitals are not told apart, one would be written over the other after both were checked."""
    for name in ("runs/abcd1234/more.json", "runs/abcd1234/More.json"):
        members[name] = b"{}"
        listed(manifest, name, b"{}")


def no_number(_, manifest):
    manifest["files"]["runs/abcd1234/a.json"] = [float("inf"), ""]


def deep(members, manifest):
    changed(members, manifest, "run.json", lambda _: b"[" * 100_000)


def long_text(members, manifest):
    changed(members, manifest, "run.json", lambda data: data + b" " * (64 << 20))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (damage, "is damaged; nothing was opened"),
        (escape, "is no file of a session"),
        (script, "is no file of a session"),
        (unlisted, "is not as the manifest has it"),
        (later, "update Relcore"),
        (poison, "is not what its name says"),
        (cut, "has no sound record .run.json cannot be read"),
        (of_record(created=None), "created is 'None'"),
        (of_record(status="running", process={"pid": 1, "started": ""}), "it has not ended"),
        (of_record(id="deadbeef"), "its id is 'deadbeef'"),
        (of_record(version=2), "of version 2"),
        (of_side(kept="/etc"), "x is kept as '/etc'"),
        (of_record(params={"a=1); print(1) #": 1}), "is none"),
        (of_side(rows=61), "x is said to be 61 x 5 and is 60 x 5"),
        (pairs_beyond, "a pair has a row of x that there is not"),
        (without_pairs, "pairs.safetensors is missing"),
        (of_array("vectors.npy", lambda v: v.view(">f4")), "vectors of >f4"),
        (of_array("vectors.npy", np.asfortranarray), "cannot be read"),
        (of_array("ids.npy", lambda v: v.view("<f8")), "row numbers of float64"),
        (of_array("vectors.npy", archive), "cannot be read"),
        (of_text("rows.json", lambda r: r | {"names": ["\x1f".join(r["names"])]}), "has other than 60 texts"),
        (of_text("view.json", lambda v: v | {"title": "not mine"}), "view [0-9a-f]+ is not what its name says"),
        (of_text("stitching.json", lambda r: r | {"spaces": [{}]}), "a field is missing or odd"),
        (odd_arrays, "analysis.safetensors is damaged"),
        (without_views, "it has no view"),
        (folder_and_file, "is no file of a session"),
        (by_case, "is no file of a session"),
        (no_number, "manifest.json is damaged"),
        (deep, "run.json cannot be read"),
        (long_text, "of text can be read here"),
    ],
)
def test_what_is_wrong_changes_nothing(origin, elsewhere, tmp_path, change, said):
    bad = rewritten(origin[3], tmp_path / "bad.zip", change)
    with pytest.raises(InputError, match=said):
        sessions.open_session(bad)
    assert tree(elsewhere) == set() and not list(tmp_path.glob("**/evil*"))


def test_damaged_bytes_are_told(origin, elsewhere, tmp_path):
    with zipfile.ZipFile(origin[3]) as z:
        info = next(i for i in z.infolist() if i.filename.endswith("run.json"))
    data = bytearray(origin[3].read_bytes())
    for i in range(100):
        data[info.header_offset + 100 + i] ^= 0xFF  # in what is compressed
    (tmp_path / "flipped.zip").write_bytes(data)
    with pytest.raises(InputError, match="flipped.zip is no session or a damaged one"):
        sessions.open_session(tmp_path / "flipped.zip")
    assert tree(elsewhere) == set()


def test_what_a_killed_opening_left_is_taken_away(origin, elsewhere):
    left = elsewhere / f".opening-{2**22 - 3}-x"
    going = elsewhere / f".opening-{os.getpid()}-x"
    for folder in (left, going):
        folder.mkdir(parents=True)
    sessions.open_session(origin[3])
    assert not left.exists() and going.exists()


def test_the_newest_view_is_one_that_is_there(origin, elsewhere):
    """On the first machine it may be another one, which does not travel."""
    sessions.open_session(origin[3])
    for folder in (elsewhere / "spaces").iterdir():
        assert store.get_space(folder.name)[0].title in ("left", "right")


def test_two_runs_of_one_id_and_a_damaged_one_are_no_session(origin, tmp_path, monkeypatch):
    home, run, _, _ = origin
    monkeypatch.setenv("RELCORE_HOME", str(home))
    shutil.copytree(run.folder, tmp_path / "copy")
    copy = runs.Run.load(tmp_path / "copy")
    with pytest.raises(InputError, match="the same id"):
        sessions.save(tmp_path / "s.zip", [run, copy])
    (copy.folder / "analysis.safetensors").unlink()
    with pytest.raises(InputError, match="is damaged: analysis.safetensors is missing"):
        sessions.save(tmp_path / "s.zip", [runs.Run.load(copy.folder)])
    assert not (tmp_path / "s.zip").exists()


def test_what_is_no_session_is_told(elsewhere, tmp_path):
    with zipfile.ZipFile(tmp_path / "plain.zip", "w") as z:
        z.writestr("a.txt", "a")
    (tmp_path / "text.zip").write_text("no zip")
    for name, said in (("plain", "without manifest"), ("text", "no session or a damaged one"), ("gone", "no file")):
        with pytest.raises(InputError, match=said):
            sessions.look(tmp_path / f"{name}.zip")


def test_a_small_disk_and_a_full_one(origin, elsewhere, tmp_path, monkeypatch):
    _, run, _, path = origin
    usage = namedtuple("usage", "total used free")
    with monkeypatch.context() as m:
        m.setattr(shutil, "disk_usage", lambda _: usage(10, 0, 10))
        with pytest.raises(InputError, match="make room"):
            sessions.open_session(path)
    target = tmp_path / "out" / "kept.zip"
    target.parent.mkdir()
    target.write_bytes(b"before")

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as m:
        m.setattr(zipfile.ZipFile, "writestr", full)
        with pytest.raises(OSError, match="No space left"):
            sessions.save(target, [run])
    assert target.read_bytes() == b"before" and [p.name for p in target.parent.iterdir()] == ["kept.zip"]


def test_a_run_going_on_and_data_that_are_not_kept(origin, elsewhere, tmp_path):
    pair, report = pair_and_report()
    made = dict(method=methods.method("procrustes"), seeds=Pairs.by_row(12), reports=(report, report))
    run = runs.create(pair, **made, keep_spaces=False)
    with pytest.raises(InputError, match="is still going on"):
        sessions.save(tmp_path / "s.zip", [run])
    with pytest.raises(InputError, match="nothing to save"):
        sessions.save(tmp_path / "s.zip", [])
    for _ in runs.execute(run, pair):
        pass
    missing = sessions.save(tmp_path / "s.zip", [run])
    assert len(missing) == 2 and "its results are" in missing[0]
    assert store.home() == elsewhere and sessions.look(tmp_path / "s.zip").spaces == ()
