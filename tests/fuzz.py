"""A fuzzer for the readers: ``python -m tests.fuzz FORMAT... [--minutes 10] [--seed 0] [--jobs 1] [--out FOLDER]``.

Small files by the ecosystem's writers are damaged in many ways; each goes through ``formats.arrays``, ``peek``,
``inspect`` and ``load`` in a worker process. What is not a valid space or an ``InputError`` is a finding: another
exception, a crash, a hang, or too much memory. The file and what happened are kept in a folder, and the exit code is 1.
The same seed makes the same files.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import io
import itertools
import multiprocessing as mp
import random
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path

import numpy as np

TIMEOUT = 10.0  # seconds a file
TIMEOUTS = {"h5": 90.0, "h5ad": 90.0}  # their reader gives up by itself, after seconds of computing
FREE = 2 * 2**30  # memory that the readers are told is free
ADDRESS_SPACE = 4 * 2**30  # what a worker may take beyond what it has at the start
KEPT = 5  # findings of one kind that are kept
TEXT = ("vec", "table", "jsonl")

# --------------------------------------------------------------------------------------------------------- the seeds


def _rows() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(12, 5)).astype(np.float32)


NAMES = [f"n{i}" for i in range(11)] + ["café"]


def _npy(d: Path) -> None:
    for dtype in ("<f4", "<f8", ">f4", "<f2", "<i8", "?"):
        np.save(d / f"{dtype.strip('<>?')}{ord(dtype[0])}.npy", _rows().astype(dtype))
    np.save(d / "fortran.npy", np.asfortranarray(_rows()))
    with (d / "v2.npy").open("wb") as f:
        np.lib.format.write_array(f, _rows(), version=(2, 0))


def _npz(d: Path) -> None:
    arrays = {"vectors": _rows(), "names": np.array(NAMES), "labels": np.arange(12) % 3, "age": np.arange(12.0)}
    np.savez(d / "a.npz", **arrays)
    np.savez_compressed(d / "b.npz", **arrays)
    np.savez(d / "c.npz", _rows().astype(">f8"))


def _sparse(d: Path) -> None:
    import scipy.sparse as sp

    m = _rows() * (_rows() > 0)
    for kind in ("csr", "csc", "coo", "bsr", "dia"):
        for compressed in (True, False):
            sp.save_npz(d / f"{kind}{compressed:d}.npz", sp.csr_matrix(m).asformat(kind), compressed=compressed)


def _torch(d: Path) -> None:
    import torch

    t = torch.from_numpy(_rows())
    torch.save(t, d / "a.pt")
    torch.save({"vectors": t.bfloat16(), "labels": torch.arange(12) % 3, "names": NAMES}, d / "b.pt")
    torch.save(torch.nn.Embedding.from_pretrained(t).state_dict(), d / "c.pth")
    torch.save({"a": t.double().T.contiguous().T, "b": t[2:]}, d / "d.pt")
    torch.save(t, d / "old.pt", _use_new_zipfile_serialization=False)


def _safetensors(d: Path) -> None:
    import torch
    from safetensors.torch import save_file

    t = torch.from_numpy(_rows())
    save_file({"vectors": t}, d / "a.safetensors")
    save_file({"embeddings": t.bfloat16(), "labels": torch.arange(12) % 3}, d / "b.safetensors", metadata={"a": "b"})
    save_file({"x": t.half(), "y": t.double()}, d / "c.safetensors")


def _frames() -> dict:
    import pandas as pd

    lists = pd.DataFrame({"name": NAMES, "embedding": list(_rows()), "label": ["a", "b", None] * 4})
    wide = pd.DataFrame(_rows(), columns=[f"d{i}" for i in range(5)])
    wide.insert(0, "word", NAMES)
    wide["kind"] = pd.Categorical(["x", "y"] * 6)
    return {"lists": lists, "wide": wide}


def _fixed():
    import pyarrow as pa

    values = pa.array(_rows().ravel())
    return pa.table({"vector": pa.FixedSizeListArray.from_arrays(values, 5), "id": pa.array(range(12))})


def _parquet(d: Path) -> None:
    import pyarrow.parquet as pq

    for name, frame in _frames().items():
        for compression in ("snappy", "zstd", None):
            frame.to_parquet(d / f"{name}{compression}.parquet", compression=compression)
    pq.write_table(_fixed(), d / "fixed.parquet", use_dictionary=False, compression="none")


def _feather(d: Path) -> None:
    from pyarrow import feather

    for name, frame in _frames().items():
        for compression in ("lz4", "uncompressed"):
            feather.write_feather(frame, d / f"{name}{compression}.feather", compression=compression)
    feather.write_feather(_fixed(), d / "fixed.feather", compression="uncompressed")


def _keyed():
    from gensim.models import KeyedVectors

    kv = KeyedVectors(5)
    kv.add_vectors(NAMES, _rows())
    return kv


def _word2vec(d: Path) -> None:
    _keyed().save_word2vec_format(str(d / "a.bin"), binary=True)
    (d / "lines.bin").write_bytes(  # as the C tool writes it, with a line end after each vector
        b"12 5\n" + b"".join(n.encode() + b" " + v.tobytes() + b"\n" for n, v in zip(NAMES, _rows(), strict=True))
    )


def _vec(d: Path) -> None:
    _keyed().save_word2vec_format(str(d / "a.vec"))
    _keyed().save_word2vec_format(str(d / "glove.txt"), write_header=False)
    (d / "a.vec.gz").write_bytes(gzip.compress((d / "a.vec").read_bytes(), mtime=0))
    (d / "a.vec.bz2").write_bytes(bz2.compress((d / "a.vec").read_bytes()))


def _table(d: Path) -> None:
    for name, frame in _frames().items():
        frame.to_csv(d / f"{name}.csv", index=name == "wide")
        frame.to_csv(d / f"{name}.tsv", sep="\t", index=False)
    np.savetxt(d / "plain.txt", _rows())
    (d / "wide.csv.gz").write_bytes(gzip.compress((d / "wide.csv").read_bytes(), mtime=0))


def _jsonl(d: Path) -> None:
    for name, frame in _frames().items():
        frame.to_json(d / f"{name}.jsonl", orient="records", lines=True)
    (d / "lists.jsonl.gz").write_bytes(gzip.compress((d / "lists.jsonl").read_bytes(), mtime=0))


def _h5(d: Path) -> None:
    import h5py

    for libver in ("earliest", "latest"):
        with h5py.File(d / f"plain-{libver}.h5", "w", libver=libver) as f:
            f["vectors"], f["labels"] = _rows(), np.arange(12) % 3
            f.create_dataset("names", data=NAMES, dtype=h5py.string_dtype())
        with h5py.File(d / f"packed-{libver}.hdf5", "w", libver=libver) as f:
            packed = {"chunks": (5, 4), "compression": "gzip", "shuffle": True, "fletcher32": True}
            f.create_dataset("group/embeddings", data=_rows().astype(">f8"), **packed)
            f.create_dataset("group/meta/age", data=np.arange(12.0), compression="lzf", chunks=True)
            f["group/kind"] = np.array([b"ab"] * 12)


def _h5ad(d: Path) -> None:
    import anndata
    import pandas as pd
    import scipy.sparse as sp

    for kind in ("dense", "csr", "csc"):
        x = _rows() if kind == "dense" else sp.csr_matrix(_rows() * (_rows() > 0)).asformat(kind)
        types = pd.Categorical(["a", "b", None] * 4)
        obs = pd.DataFrame({"cell_type": types, "n": pd.array([1, None] * 6, dtype="Int64")}, index=NAMES)
        data = anndata.AnnData(X=x, obs=obs)
        if kind == "csr":
            data.obsm["X_pca"] = _rows()[:, :3]
        data.write_h5ad(d / f"{kind}.h5ad", compression="gzip" if kind != "csc" else None)


WRITERS: dict[str, Callable[[Path], None]] = {
    "npy": _npy,
    "npz": _npz,
    "sparse": _sparse,
    "torch": _torch,
    "safetensors": _safetensors,
    "parquet": _parquet,
    "feather": _feather,
    "word2vec": _word2vec,
    "h5": _h5,
    "h5ad": _h5ad,
    "vec": _vec,
    "table": _table,
    "jsonl": _jsonl,
}


@dataclass(frozen=True)
class Seed:
    ending: str  # with the part before a .gz
    data: bytes


def seeds(format: str) -> list[Seed]:
    """The undamaged files of a format."""
    with tempfile.TemporaryDirectory() as folder:
        WRITERS[format](Path(folder))
        return [Seed("".join(p.suffixes), p.read_bytes()) for p in sorted(Path(folder).iterdir())]


# ----------------------------------------------------------------------------------------------------- the mutations

_INTEGERS = (0, 1, -1, 2, 127, 128, 255, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63)
_BYTES = (0, 1, 9, 10, 13, 32, 34, 39, 44, 0x7F, 0x80, 0xC3, 0xFE, 0xFF)
_TOKENS = (
    *(
        "nan",
        "inf",
        "-inf",
        "1e999",
        "1e-999",
        "-0",
        "",
        "1_000",
        "0x1p3",
        "١٢",
        "9" * 400,
        "null",
        "None",
        "...",
        "[]",
    ),
    *(",", "\t", " ", "\n", "\r\n", '"', "'", "{", "}", "[", "]", ":", ";", "\0", "\ufeff", "\u2028", "tensor(", "#"),
)


def _place(r: random.Random, s: bytearray) -> int:
    """Somewhere, rather near the start or the end, where headers and footers are, and rather not in padding."""
    n = len(s)
    near = min(n, 256)
    for _ in range(4):
        i = r.choice((r.randrange(n), r.randrange(n), r.randrange(near), n - 1 - r.randrange(near)))
        if s[i]:
            break
    return i


def _flip(r, s, other):
    s[_place(r, s)] ^= 1 << r.randrange(8)


def _set_byte(r, s, other):
    s[_place(r, s)] = r.choice(_BYTES) if r.random() < 0.7 else r.randrange(256)


def _integer(r, s, other):
    """An integer field: a value at the edge of its range, or near what was there."""
    width, order = r.choice((2, 4, 8)), r.choice(("little", "little", "big"))
    i = _place(r, s) // width * width if r.random() < 0.5 else _place(r, s)
    near = int.from_bytes(s[i : i + width], order) + r.choice((-1, 1, -8, 8))
    value = r.choice((r.choice(_INTEGERS), r.choice(_INTEGERS), near, r.randrange(len(s) * 2)))
    s[i : i + width] = (value % 2 ** (8 * width)).to_bytes(width, order)


def _digits(r, s, other):
    """A number written in digits, as in the headers of npy, safetensors and text."""
    places = [i for i in range(min(len(s), 4096)) if 48 <= s[i] <= 57]
    if places:
        i = r.choice(places)
        value = str(r.choice(_INTEGERS)) if r.random() < 0.5 else str(r.randrange(100))
        s[i : i + (len(value) if r.random() < 0.5 else 1)] = value.encode()


def _truncate(r, s, other):
    del s[r.choice((r.randrange(len(s)), len(s) - 1 - r.randrange(min(len(s), 16)))) :]


def _remove(r, s, other):
    i = _place(r, s)
    del s[i : i + r.randrange(1, 65)]


def _repeat(r, s, other):
    i, j = r.randrange(len(s)), r.randrange(len(s))
    block = s[i : i + r.choice((1, 4, 8, 64, 512))]
    if r.random() < 0.5:
        s[j:j] = block
    else:
        s[j : j + len(block)] = block


def _insert(r, s, other):
    i = _place(r, s)
    s[i:i] = r.randbytes(r.choice((1, 2, 4, 8, 64)))


def _splice(r, s, other):
    if other:
        i = r.randrange(len(s))
        j = r.choice((i, r.randrange(len(other))))
        s[i:] = other[j:]


def _token(r, s, other):
    i = r.randrange(len(s))
    s[i : i + r.choice((0, 0, 1, 3))] = r.choice(_TOKENS).encode()


def _line(r, s, other):
    lines = bytes(s).split(b"\n")
    i, j = r.randrange(len(lines)), r.randrange(len(lines))
    what = r.randrange(4)
    if what == 0:
        del lines[i]
    elif what == 1:
        lines.insert(i, lines[j])
    elif what == 2:
        lines[i] = lines[i][: r.randrange(len(lines[i]) + 1)]
    else:
        fields = lines[i].split(r.choice((b" ", b",", b"\t")))
        fields[r.randrange(len(fields))] = r.choice(_TOKENS).encode()
        lines[i] = b" ".join(fields) if r.random() < 0.3 else b",".join(fields)
    s[:] = b"\n".join(lines)


_BINARY = (_flip, _flip, _set_byte, _set_byte, _integer, _integer, _integer, _digits, _truncate, _remove, _repeat)
_BINARY += (_insert, _splice)
_TEXT = (_set_byte, _digits, _truncate, _remove, _repeat, _insert, _splice, _token, _token, _token, _line, _line, _line)


def _damage(r: random.Random, data: bytes, other: bytes, text: bool) -> bytes:
    s = bytearray(data)
    for _ in range(r.choice((1, 1, 1, 2, 3, 6))):
        if s:
            r.choice(_TEXT if text else _BINARY)(r, s, other)
    return bytes(s)


def _damage_member(r: random.Random, data: bytes, text: bool) -> bytes:
    """A zip file with damage inside one member, and right checksums; sometimes a member is gone, twice or renamed."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        members = [(m.filename, old.read(m), m.compress_type) for m in old.infolist()]
        i = r.randrange(len(members))
        name, inner, packed = members[i]
        what = r.random()
        if what < 0.8:
            members[i] = (name, _damage(r, inner, members[i - 1][1], text), packed)
        elif what < 0.87:
            del members[i]
        elif what < 0.93:
            members[i] = (name, members[r.randrange(len(members))][1], packed)
        else:
            members[i] = (name + r.choice(("", "x", "/../y", "/")), inner, zipfile.ZIP_DEFLATED)
        for n, content, kind in members:
            new.writestr(zipfile.ZipInfo(n), content, kind)
    return out.getvalue()


def mutant(format: str, given: list[Seed], seed: int, index: int) -> Seed:
    """The damaged file of this number."""
    r = random.Random(f"{seed} {format} {index}")
    first, second = r.choice(given), r.choice(given)
    data, text = first.data, format in TEXT
    if data.startswith(b"PK") and r.random() < 0.7:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of names that are there twice
            return Seed(first.ending, _damage_member(r, data, text))
    for magic, unpack, pack in ((b"\x1f\x8b", gzip.decompress, _gzip), (b"BZh", bz2.decompress, bz2.compress)):
        if data.startswith(magic) and r.random() < 0.7:
            return Seed(first.ending, pack(_damage(r, unpack(data), b"", text)))
    return Seed(first.ending, _damage(r, data, second.data, text))


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


# ------------------------------------------------------------------------------------------------- what must be right


def check(path: Path) -> None:
    """Raise anything unless every function gives a valid answer or an InputError."""
    from relcore import formats
    from relcore.errors import InputError

    for look in (formats.arrays, formats.peek):
        try:
            look(path)
        except InputError:
            pass
    keys = [None]
    try:
        seen = formats.inspect(path)
    except InputError as e:
        assert str(e).strip(), "an error without words"
        return
    if seen["rows_read"] is None:  # it is to be chosen
        keys = [a["name"] for a in seen["arrays"] if len(a["shape"]) == 2][:2]
    for key in keys:
        try:
            space, report = formats.load(path, key=key)
        except InputError as e:
            assert key is not None, f"inspect gives {seen}, load refuses it: {e}"
            continue
        valid(space, report)
        assert key is not None or (report.rows_read, report.dim) == (seen["rows_read"], seen["dim"]), seen


def valid(space, report) -> None:
    n, d = space.vectors.shape
    assert space.vectors.dtype == np.float32 and space.vectors.flags.c_contiguous, space.vectors.dtype
    assert n > 0 and d == report.dim and n == report.rows_used, (n, d, report)
    assert np.isfinite(space.vectors).all(), "numbers that are not finite"
    assert space.vectors.any(1).all(), "a zero row"
    assert report.rows_read == n + len(report.set_aside), report.summary()
    assert len(space.ids) == n and (np.diff(space.ids) > 0).all() and space.ids[-1] < report.rows_read, "ids"
    for column in (space.names, space.labels, space.media):
        assert column is None or (len(column) == n and all(type(v) is str for v in column)), column
    assert space.meta is None or len(space.meta) == n, "metadata of another length"


class Forked:
    """The child that reads HDF5, forked from the worker instead of started: the same, but fifty times as fast."""

    def __init__(self, request: bytes):
        import os

        from relcore.formats import hdf5

        read, write = os.pipe()
        self.pid, self.code = os.fork(), None
        if self.pid == 0:
            try:
                with os.fdopen(write, "wb") as out:
                    hdf5.serve(request, out)
            finally:
                os._exit(0)
        os.close(write)
        self.stdout = os.fdopen(read, "rb")

    def kill(self) -> None:
        import os
        import signal

        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        import os

        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code


def _work(connection, check: Callable[[Path], None]) -> None:
    """A worker: paths in, None or a traceback out."""
    import contextlib
    import os
    import warnings

    from relcore import memory
    from relcore.formats import hdf5

    warnings.simplefilter("ignore")
    memory.available = lambda: FREE
    hdf5._start, hdf5.SECONDS = Forked, 2
    with contextlib.suppress(ImportError):
        import resource

        now = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        # torch and its like take much when they are imported, which is no reader's fault
        most = now + ADDRESS_SPACE + 4 * 2**30
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    while (path := connection.recv()) is not None:
        try:
            check(Path(path))
        except BaseException:
            connection.send(traceback.format_exc())
        else:
            connection.send(None)


class Worker:
    """A process that checks one file after the other, started anew when it dies or has to be stopped."""

    START = 60.0  # seconds that its imports may take

    def __init__(self, check: Callable[[Path], None] = check):
        self.check, self.process, self.path = check, None, None

    def start(self, path: Path, timeout: float) -> None:
        if self.process is None:
            context = mp.get_context("spawn")  # a fork of a process with threads may hang
            self.connection, other = context.Pipe()
            self.process = context.Process(target=_work, args=(other, self.check), daemon=False)
            self.process.start()
            other.close()
            timeout += self.START
        self.path, self.due = path, time.monotonic() + timeout
        self.connection.send(str(path))

    def result(self) -> tuple[str, str] | None:
        """What was found, if anything; only when the connection is ready or the time is up."""
        self.path = None
        if not self.connection.poll():
            self.close()
            return "hang", "no answer in time"
        try:
            answer = self.connection.recv()
        except EOFError:
            self.process.join()
            code = self.process.exitcode
            self.close()
            return "crash", f"the process ended with {code}"
        if answer is None:
            return None
        return answer.strip().splitlines()[-1].split(":")[0], answer

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.connection.close()
            self.process = None


@dataclass(frozen=True)
class Finding:
    format: str
    index: int
    kind: str  # hang, crash, or the exception's name
    detail: str
    path: Path

    def __str__(self) -> str:
        last = [line.strip() for line in self.detail.strip().splitlines() if "relcore" in line and "File" in line]
        return f"{self.format} {self.index}: {self.kind} ({self.path})\n    " + "\n    ".join(
            [*last[-1:], self.detail.strip().splitlines()[-1][:300]]
        )


def fuzz(
    format: str,
    *,
    count: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    out: Path,
    workers: list[Worker],
    timeout: float | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> tuple[int, list[Finding]]:
    """Check ``count`` damaged files, or as many as ``seconds`` allow. How many were checked, and the findings."""
    given = seeds(format)
    timeout = timeout or TIMEOUTS.get(format, TIMEOUT)
    started = told = time.monotonic()
    findings: list[Finding] = []
    kinds: dict[str, int] = {}
    done = 0
    with tempfile.TemporaryDirectory(prefix="relcore-fuzz-") as folder:

        def numbers() -> Iterator[int]:
            for i in itertools.count():
                if (count is not None and i >= count) or (seconds is not None and time.monotonic() > started + seconds):
                    return
                yield i

        todo = numbers()
        running: dict[Worker, int] = {}

        def feed(worker: Worker) -> None:
            index = next(todo, None)
            if index is not None:
                made = mutant(format, given, seed, index)
                path = Path(folder) / f"{index}{made.ending}"
                path.write_bytes(made.data)
                running[worker] = index
                worker.start(path, timeout)

        for worker in workers:
            feed(worker)
        while running:
            due = min(worker.due for worker in running)
            ready = wait([worker.connection for worker in running], max(min(due - time.monotonic(), 1), 0))
            for worker in list(running):
                if worker.connection not in ready and time.monotonic() < worker.due:
                    continue
                index, path = running.pop(worker), worker.path
                found = worker.result()
                done += 1
                if found is not None:
                    where = [line for line in found[1].splitlines() if line.strip().startswith("File")]
                    kind = f"{found[0]} {where[-1] if where else ''}"
                    kinds[kind] = kinds.get(kind, 0) + 1
                    if kinds[kind] <= KEPT:
                        out.mkdir(parents=True, exist_ok=True)
                        kept = out / f"{format}-{seed}-{path.name}"
                        kept.write_bytes(path.read_bytes())
                        kept.with_name(kept.name + ".log").write_text(found[1] + "\n")
                        findings.append(Finding(format, index, found[0], found[1], kept))
                        say(str(findings[-1]))
                path.unlink()
                feed(worker)
            if time.monotonic() > told + 10:
                told = time.monotonic()
                say(f"{format}: {done:,} files, {done / (told - started):.1f} a second, {sum(kinds.values())} findings")
    return done, findings


def main(argv: list[str] | None = None) -> int:
    from relcore.formats.registry import REGISTRY

    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Damaged files for the readers.")
    parser.add_argument("formats", nargs="+", choices=[*WRITERS, "all"], metavar="FORMAT", help=", ".join(WRITERS))
    parser.add_argument("--minutes", type=float, default=10, help="for each format (default 10)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "relcore-fuzz", help="for findings")
    args = parser.parse_args(argv)
    findings: list[Finding] = []
    workers = [Worker() for _ in range(args.jobs)]
    try:
        for format in WRITERS if "all" in args.formats else args.formats:
            if format not in REGISTRY:
                print(f"{format}: skipped, no reader of this name is registered", flush=True)
                continue
            done, found = fuzz(
                format,
                seconds=60 * args.minutes,
                seed=args.seed,
                out=args.out,
                workers=workers,
                say=lambda text: print(text, flush=True),
            )
            print(f"{format}: {done:,} files, {len(found)} findings", flush=True)
            findings += found
    finally:
        for worker in workers:
            worker.close()
    if findings:
        print(f"\n{len(findings)} findings, kept in {args.out}:")
        print("\n".join(map(str, findings)))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
