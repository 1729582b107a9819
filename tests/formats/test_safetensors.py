"""``.safetensors`` by the library's own writers, of numpy and of torch; headers that lie; the way back."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import numpy as st_numpy
from safetensors import torch as st_torch

from relcore import formats
from relcore.errors import InputError
from relcore.formats import load
from relcore.formats import safetensors as reader
from relcore.formats.base import Request
from relcore.space import make_space
from tests.formats.test_npz import full_space, same


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)


def refused(spec, *words, **kw):
    with pytest.raises(InputError) as e:
        load(spec, **kw)
    for word in words:
        assert word in str(e.value), str(e.value)


def by_hand(path, header: dict, data: bytes):
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


# ----------------------------------------------------------------------------------------------------- what is read


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"])
def test_every_dtype_of_numpy(tmp_path, rows, dtype):
    array = (rows * 100).astype(dtype)
    st_numpy.save_file({"v": array}, tmp_path / "a.safetensors")
    raw = reader.read(Request(tmp_path / "a.safetensors"))
    np.testing.assert_array_equal(raw.vectors, array.astype(np.float32))
    assert raw.vectors.dtype == np.float32 and raw.dtype == str(array.dtype)
    peek = formats.peek(tmp_path / "a.safetensors")
    assert (peek.rows, peek.dim, peek.dtype) == (50, 8, raw.dtype)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_b11_dtypes_that_numpy_does_not_know_are_decoded_exactly(tmp_path, name, monkeypatch):
    dtype = getattr(torch, name)
    whole = torch.int16 if name == "bfloat16" else torch.int8
    codes = torch.arange(torch.iinfo(whole).min, torch.iinfo(whole).max + 1).to(whole)  # every number there is
    tensor = codes.view(dtype).reshape(-1, 8)
    st_torch.save_file({"v": tensor}, tmp_path / "a.safetensors")
    monkeypatch.setattr(reader, "BLOCK", 800)
    raw = reader.read(Request(tmp_path / "a.safetensors"))
    np.testing.assert_array_equal(raw.vectors, tensor.float().numpy())
    assert raw.dtype == name
    _, report = load(tmp_path / "a.safetensors")
    assert report.dtype == name


def test_b11_torch_is_not_needed(tmp_path, rows):
    st_torch.save_file({"v": torch.from_numpy(rows).bfloat16()}, tmp_path / "a.safetensors")
    code = (
        f"import sys; from relcore.formats import load; load({str(tmp_path / 'a.safetensors')!r}); "
        "print('torch' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


def test_float32_is_mapped_and_others_take_what_is_announced(tmp_path, rows):
    load(_saved(tmp_path / "w.safetensors", rows))  # what is imported is not counted
    big = np.ones((40_000, 100), np.float32)
    for array, mapped in ((big, True), (big.astype(np.float64), False), (big.astype(np.float16), False)):
        request = Request(_saved(tmp_path / "a.safetensors", array))
        announced = reader.peek(request).memory
        assert (announced == 0) == mapped
        tracemalloc.start()
        vectors = reader.read(request).vectors
        _, height = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert height <= announced + 2**18 and isinstance(vectors, np.memmap) == mapped


def _saved(path, array, **more):
    st_numpy.save_file({"v": array, **more}, path)
    return path


def test_several_tensors(tmp_path, rows):
    path = _saved(tmp_path / "a.safetensors", rows, w=rows[:, :3].copy(), bias=np.ones(3, np.float32))
    refused(path, "v (50, 8)", "w (50, 3)", "a.safetensors:")
    assert load(f"{path}:w")[0].dim == 3
    refused(f"{path}:x", "no array 'x'", "v (50, 8)")
    path = _saved(tmp_path / "b.safetensors", rows, embeddings=rows[:, :3].copy(), label=np.arange(50))
    space, report = load(path)
    assert space.dim == 3 and space.labels[7] == "7" and any("by its name" in a for a in report.assumed)


def test_names_in_the_metadata_only_where_they_are_simple(tmp_path, rows):
    names = [f"ñ{i}\0" for i in range(50)]
    metadata = {"names": json.dumps(names), "format": "pt", "labels": "not json", "media": "[1, 2]", "class": '["a"]'}
    st_numpy.save_file({"v": rows}, tmp_path / "a.safetensors", metadata)
    space, report = load(tmp_path / "a.safetensors")
    assert list(space.names) == names and space.labels is None and space.media is None and space.meta is None
    assert "array 'names' read as names" in report.assumed
    st_numpy.save_file({"v": rows}, tmp_path / "b.safetensors", {"names": json.dumps(names[:3])})
    space, report = load(tmp_path / "b.safetensors")
    assert space.names[0] == "0" and "3 values for 50 vectors" in report.warnings[0]
    st_numpy.save_file({"v": rows, "names": np.arange(50)}, tmp_path / "c.safetensors", {"names": json.dumps(names)})
    space, report = load(tmp_path / "c.safetensors")
    assert space.names[9] == "9" and "the tensor is read" in report.warnings[0]
    st_numpy.save_file({"v": rows}, tmp_path / "d.safetensors", {"names": "[" * 100_000})
    assert load(tmp_path / "d.safetensors")[0].names[3] == "3"


def test_labels_for_another_file(tmp_path, rows):
    np.save(tmp_path / "v.npy", rows)
    path = _saved(tmp_path / "a.safetensors", rows, kind=(np.arange(50) % 3)[:, None])
    assert load(tmp_path / "v.npy", labels=f"{path}:kind")[0].labels[4] == "1"
    refused(tmp_path / "v.npy", "a.safetensors:v", "one value a row", labels=f"{path}:v")


# -------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("shape, words", [((7,), "(7,)"), ((2, 3, 4), "(2, 3, 4)"), ((), "()"), ((0, 4), "nothing to")])
def test_what_is_no_matrix(tmp_path, shape, words):
    refused(_saved(tmp_path / "a.safetensors", np.ones(shape, np.float32)), "a.safetensors", words)


def test_numbers_that_are_not_read(tmp_path, rows):
    st_torch.save_file({"v": torch.from_numpy(rows).to(torch.complex64)}, tmp_path / "a.safetensors")
    for spec in (tmp_path / "a.safetensors", f"{tmp_path}/a.safetensors:v"):
        refused(spec, "a.safetensors:v", "C64", "wanted numbers")
    st_torch.save_file({"v": torch.ones(4, 4).to(torch.float8_e8m0fnu)}, tmp_path / "b.safetensors")
    refused(f"{tmp_path}/b.safetensors:v", "F8_E8M0", "wanted numbers")
    st_numpy.save_file({}, tmp_path / "c.safetensors")
    refused(tmp_path / "c.safetensors", "no array of rows and numbers")


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [10**9, 10**9]},
        {"shape": [2, -2]},
        {"shape": [2**63, 2]},
        {"shape": "many"},
        {"data_offsets": [0, 10**12]},
        {"data_offsets": [8, 0]},
        {"data_offsets": [-16, 0]},
        {"data_offsets": [0]},
        {"dtype": "F64"},
        {"dtype": "F128"},
        {"dtype": 3},
    ],
)
def test_headers_that_lie(tmp_path, change):
    tensor = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}
    data = np.ones((2, 2), np.float32).tobytes()
    assert load(by_hand(tmp_path / "a.safetensors", {"v": tensor}, data))[1].rows_used == 2
    refused(by_hand(tmp_path / "a.safetensors", {"v": tensor | change}, data), "a.safetensors", "damaged")


def test_truncated_trailing_and_hollow_files(tmp_path, rows):
    whole = _saved(tmp_path / "a.safetensors", rows).read_bytes()
    for data in (whole[:-1], whole + b"\0", whole[:40], struct.pack("<Q", 10**8) + whole[8:]):
        (tmp_path / "b.safetensors").write_bytes(data)
        refused(tmp_path / "b.safetensors", "b.safetensors")
    (tmp_path / "c.npy").write_bytes(whole)
    assert "ends in .npy, but the file holds safetensors" in load(tmp_path / "c.npy")[1].warnings[0]


# --------------------------------------------------------------------------------------------------------- the way back


def test_everything_is_kept(tmp_path, rows):
    space = full_space(rows)
    assert formats.write(space, tmp_path / "a.safetensors") == []
    same(space, load(tmp_path / "a.safetensors")[0])
    assert st_numpy.load_file(tmp_path / "a.safetensors")["vectors"].tobytes() == rows.tobytes()
    space = make_space(rows)[0]
    formats.write(space, tmp_path / "b.safetensors")
    same(space, load(tmp_path / "b.safetensors")[0])


def test_more_text_than_a_header_holds_is_refused(tmp_path, rows, monkeypatch):
    monkeypatch.setattr(reader, "MAX_HEADER", 2**20 + 100)
    with pytest.raises(InputError, match="names, labels and texts take .* write .npz"):
        formats.write(make_space(rows, names=["x" * 10] * 50)[0], tmp_path / "a.safetensors")
    assert not list(tmp_path.iterdir())


@settings(max_examples=50, deadline=None)
@given(
    data=st.data(),
    dtype=st.sampled_from(["f2", "f4", "f8", "i1", "i4", "i8", "u1", "u4", "?"]),
    shape=hnp.array_shapes(min_dims=2, max_dims=2, max_side=7),
    name=st.text(st.characters(codec="utf-8"), min_size=1, max_size=6).filter(lambda n: n != "__metadata__"),
)
def test_what_the_library_wrote_reads_back_bit_equal(tmp_path_factory, data, dtype, shape, name):
    path = tmp_path_factory.mktemp("st") / "a.safetensors"
    st_numpy.save_file({name: data.draw(hnp.arrays(dtype, shape)), "other": np.arange(3)}, path)
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = st_numpy.load_file(path)[name].astype(np.float32)
    if name != "other":
        np.testing.assert_array_equal(reader.read(Request(path, name)).vectors, wanted)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_mutated_file_is_refused_or_read(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("st") / "a.safetensors"
    st_numpy.save_file({"v": np.eye(4, dtype=np.float32)}, path, {"names": '["a","b","c","d"]'})
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(whole[: data.draw(st.integers(1, len(whole)))] if data.draw(st.booleans()) else whole)
    try:
        space, _ = load(path)
        assert space.vectors.size <= 64  # the 64 bytes of numbers there are
    except InputError as e:
        assert str(e)
