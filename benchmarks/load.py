"""How fast files are read, and how much memory that takes, beside the readers people use.

    python benchmarks/load.py [--rows 100000] [--dim 300] [--repeats 3] [--folder DIR] [--without-gensim]

Writes its files (random numbers of four decimals, as fastText rounds them) in a temporary folder, reads each with every
reader in turn, and prints the shortest time of each, as a ratio to ours: all on the same file in the same run. Ours is
that of ``relcore.formats.load``, which also checks every row and compares every name. Peak memory is that of a
process of its own, above what it held after its imports, as a multiple of the float32 numbers.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import multiprocessing
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from relcore.formats import load  # noqa: E402


def make_files(folder: Path, rows: int, dim: int) -> None:
    """One matrix as ``.npy``, ``.vec``, ``.vec.gz`` and word2vec's ``.bin``."""
    rng = np.random.default_rng(0)
    matrix = np.lib.format.open_memmap(folder / "a.npy", "w+", np.float32, (rows, dim))
    with (folder / "a.vec").open("wb") as text, (folder / "a.bin").open("wb") as binary:
        for f in (text, binary):
            f.write(f"{rows} {dim}\n".encode())
        for at in range(0, rows, 5000):
            block = np.round(rng.normal(scale=0.3, size=(min(5000, rows - at), dim)), 4)
            matrix[at : at + len(block)] = block
            for i, cells in enumerate(np.char.mod("%.4f", block).tolist(), at):
                text.write(f"word{i} {' '.join(cells)}\n".encode())
                binary.write(f"word{i} ".encode() + matrix[i].tobytes())
    del matrix
    with (folder / "a.vec").open("rb") as plain, gzip.open(folder / "a.vec.gz", "wb", 1) as packed:
        shutil.copyfileobj(plain, packed, 2**20)


def with_gensim(path: Path) -> None:
    from gensim.models import KeyedVectors

    KeyedVectors.load_word2vec_format(str(path), binary=path.suffix == ".bin")


def with_pandas(path: Path) -> None:
    import pandas as pd

    pd.read_csv(path, sep=" ", header=None, skiprows=1, quoting=csv.QUOTE_NONE, engine="c", na_filter=False)


def imports() -> None:
    """What is imported at the first read is no part of it."""
    import pandas  # noqa: F401
    import pyarrow.csv  # noqa: F401


def _resident(which: str) -> int:
    """Bytes held now (VmRSS) or at the most so far (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(which))


def _peak(path: Path, queue: multiprocessing.Queue) -> None:
    imports()
    before = _resident("VmRSS")
    load(path)
    queue.put(_resident("VmHWM") - before)


def peak(path: Path) -> int:
    """Bytes that a process of its own takes to load a file."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_peak, args=(path, queue))
    process.start()
    held = queue.get()
    process.join()
    return held


def shortest(readers: dict[str, Callable[[Path], object]], path: Path, repeats: int) -> dict[str, float]:
    """Seconds of each reader, the shortest of several turns; what takes a minute is read once."""
    times = dict.fromkeys(readers, np.inf)
    for turn in range(repeats):
        for name, reader in readers.items():
            if turn and times[name] > 60:
                continue
            begun = time.perf_counter()
            reader(path)
            times[name] = min(times[name], time.perf_counter() - begun)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", help="where the files are written for the time being")
    parser.add_argument("--without-gensim", action="store_true", help="it takes minutes for a million rows")
    options = parser.parse_args()
    imports()
    gensim = {} if options.without_gensim else {"gensim": with_gensim}
    readers = {
        "a.vec": {"pandas": with_pandas, **gensim},
        "a.vec.gz": {"pandas": with_pandas},
        "a.bin": gensim,
        "a.npy": {"np.load": np.load},
    }
    with tempfile.TemporaryDirectory(prefix="relcore-load-", dir=options.folder) as folder:
        make_files(Path(folder), options.rows, options.dim)
        size = 4 * options.rows * options.dim
        print(f"{options.rows:,} x {options.dim}, {size / 1e6:,.0f} MB as float32")
        for name, others in readers.items():
            path = Path(folder) / name
            times = shortest({"relcore": load, **others}, path, options.repeats)
            ours = times["relcore"]
            beside = "".join(f"   {who} {t:7.2f} s = {t / ours:5.2f} x" for who, t in times.items() if who != "relcore")
            print(f"{name:9s} {path.stat().st_size / 1e6:6,.0f} MB   relcore {ours:7.2f} s", end="")
            print(f"   peak {peak(path) / size:4.2f} x float32{beside}", flush=True)


if __name__ == "__main__":
    main()
