"""PyTorch files by ``torch.save``, of today and of before 1.6: what is read, what is refused, and files that lie."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from relcore import formats
from relcore.errors import InputError
from relcore.formats import AmbiguousError, load
from relcore.formats import torch as reader
from relcore.formats.base import Request
from relcore.space import make_space
from tests.formats.test_npz import full_space, same

RECIPE = "np.save('vectors.npy'"


@pytest.fixture
def rows():
    return torch.from_numpy(np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32))


@pytest.fixture(params=["zip", "legacy"])
def save(request, tmp_path):
    """Save what is given and return the path, in both formats of torch."""

    def to_file(value, name="a.pt"):
        torch.save(value, tmp_path / name, _use_new_zipfile_serialization=request.param == "zip")
        return tmp_path / name

    to_file.kind = request.param
    return to_file


def refused(spec, *words, **kw):
    with pytest.raises(InputError) as e:
        load(spec, **kw)
    for word in words:
        assert word in str(e.value), str(e.value)
    return str(e.value)


# ---------------------------------------------------------------------------------------------------- what is read


@pytest.mark.parametrize("ending", ["pt", "pth", "bin", "ckpt"])
def test_a_tensor_alone(save, rows, ending):
    space, report = load(save(rows, f"a.{ending}"))
    assert space.vectors.tobytes() == rows.numpy().tobytes()
    assert (report.format, report.dtype) == ("torch", "float32")


@pytest.mark.parametrize(
    "make, name",
    [
        (lambda t: t.half(), "float16"),
        (lambda t: t.bfloat16(), "bfloat16"),
        (lambda t: t.double(), "float64"),
        (lambda t: (t * 10).to(torch.int8), "int8"),
        (lambda t: (t * 10).long(), "int64"),
        (lambda t: t > 0, "bool"),
        (lambda t: torch.nn.Parameter(t), "float32"),
        (lambda t: t.clone().requires_grad_(), "float32"),
        (lambda t: t.t().contiguous().t(), "float32"),
        (lambda t: t[:, ::2], "float32"),
        (lambda t: t[10:20], "float32"),
        (lambda t: t[:1].expand(50, 8), "float32"),
        (lambda t: torch.view_as_complex(t.reshape(50, 4, 2)).conj().imag, "float32"),
        (lambda t: (t * (t > 0.5)).to_sparse(), "float32"),
        (lambda t: (t * (t > 0.5)).to_sparse_csr(), "float32"),
        (lambda t: (t * (t > 0.5)).to_sparse_csc(), "float32"),
        (lambda t: (t * (t > 0.5)).to_sparse_bsr((5, 2)), "float32"),
        (lambda t: (t * (t > 0.5)).half().to_sparse(), "float16"),
    ],
)
@pytest.mark.filterwarnings("ignore:Sparse")
def test_b11_every_dtype_and_layout_is_what_torch_reads(save, rows, make, name):
    path = save({"v": make(rows)})
    wanted = torch.load(path, weights_only=True)["v"].detach().to_dense().float().contiguous().resolve_neg().numpy()
    raw = reader.read(Request(path))
    np.testing.assert_array_equal(raw.vectors, wanted)
    assert raw.vectors.dtype == np.float32 and raw.dtype == name
    peek = formats.peek(path)
    assert (peek.rows, peek.dim, peek.dtype) == (*wanted.shape, name)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "uint16"])
def test_b11_dtypes_that_only_todays_files_have(tmp_path, rows, name):
    torch.save((rows.abs() * 10).to(getattr(torch, name)), tmp_path / "a.pt")
    space, report = load(tmp_path / "a.pt")
    wanted = torch.load(tmp_path / "a.pt", weights_only=True).float().numpy()
    assert report.dtype == name and space.vectors.tobytes() == wanted.tobytes()


@pytest.mark.filterwarnings("ignore")
def test_quantised_tensors(tmp_path, rows):
    scales = torch.full((50,), 0.1)
    for q in (
        torch.quantize_per_tensor(rows, 0.1, 0, torch.qint8),
        torch.quantize_per_channel(rows, scales, torch.zeros(50), 0, torch.quint8),
    ):
        torch.save(q, tmp_path / "a.pt")
        space, report = load(tmp_path / "a.pt")
        assert (space.vectors == q.dequantize().numpy()[space.ids]).all() and report.dtype.endswith("int8")


def test_a_float32_tensor_is_mapped_and_not_copied(tmp_path, rows):
    torch.save({"v": rows, "w": [1, 2]}, tmp_path / "a.pt")
    assert formats.peek(tmp_path / "a.pt").memory == 0
    space, _ = load(tmp_path / "a.pt")
    assert not space.vectors.flags.owndata and space.tensor().equal(rows)


def test_nested_entries_are_named_with_dots(save, rows):
    model = torch.nn.Sequential(torch.nn.Embedding.from_pretrained(rows), torch.nn.Linear(8, 3))
    path = save({"model": model.state_dict(), "epoch": 3, "all": [{"opt": None}]})
    message = refused(path, "model.0.weight (50, 8)", "model.1.weight (3, 8)", "a.pt:model.0.weight")
    assert "bias" not in message
    space, report = load(f"{path}:model.0.weight")
    assert space.vectors.tobytes() == rows.numpy().tobytes()
    assert "2 entries that are no tensors are not read: epoch, all.0.opt" in report.warnings
    with pytest.raises(AmbiguousError) as e:
        load(path)
    assert [(a.name, a.shape) for a in e.value.arrays] == [
        ("model.0.weight", (50, 8)),
        ("model.1.weight", (3, 8)),
        ("model.1.bias", (3,)),
    ]


def test_lists_tuples_and_odd_keys(save, rows):
    assert load(save([rows, torch.ones(3)]))[0].vectors.tobytes() == rows.numpy().tobytes()
    refused(save((rows, rows)), "0 (50, 8)", "1 (50, 8)")
    assert load(f"{save((rows, rows * 2))}:1")[0].vectors.tobytes() == (rows * 2).numpy().tobytes()
    assert load(save({5: rows}))[1].assumed[0].startswith("array '5' read as the vectors")
    refused(save({1: rows, "1": rows}), "two entries have the same name")


def test_the_vectors_by_their_name(save, rows):
    space, report = load(save({"embeddings": rows, "map": rows[:, :2]}))
    assert space.dim == 8 and any("by its name" in a for a in report.assumed)


def test_names_labels_and_metadata_beside(save, rows):
    words = [f"wörd {i}\0" for i in range(50)]
    path = save({"v": rows, "words": words, "label": torch.arange(50) % 3, "year": torch.arange(50), "tag": ["a"] * 50})
    space, report = load(path)
    assert list(space.names) == words and list(space.labels[:4]) == ["0", "1", "2", "0"]
    assert list(space.meta["year"]) == list(range(50)) and set(space.meta["tag"]) == {"a"}
    assert {"array 'words' read as names", "array 'label' read as labels"} <= set(report.assumed)
    assert load(path, labels="tag")[0].labels[9] == "a"
    assert load(save({"v": rows, "labels": list(range(50))}, "b.pt"))[0].labels[7] == "7"
    space, report = load(save({"v": rows, "labels": ["a", "b"]}, "c.pt"))
    assert space.labels is None and "2 values for 50 vectors" in report.warnings[0]
    assert load(save(rows, "d.pt"), names=f"{path}:words")[0].names[3] == words[3]


# ------------------------------------------------------------------------------------------------- what is refused


def test_b09_arrays_and_models_inside_are_refused_with_a_recipe(save, rows):
    for value in ({"emb": rows.numpy()}, torch.nn.Linear(2, 3), {"v": rows, "when": pd.Timestamp("2020")}):
        assert refused(save(value), "a.pt", "Python objects", RECIPE).count("\n") == 2


def test_b09_nothing_is_run(save, tmp_path, rows):
    class Bomb:
        def __reduce__(self):
            return open, (str(tmp_path / "ran"), "w")

    path = save({"v": rows, "x": Bomb()})
    for name in ("a.pt", "a.npy", "a.bin"):
        refused(path.rename(tmp_path / name), name, "Python objects", RECIPE)
        path = tmp_path / name
        with pytest.raises(InputError, match="Python objects"):
            formats.peek(path)
    assert not (tmp_path / "ran").exists()


def test_what_is_no_matrix_of_numbers(save, rows):
    for value, words in [
        (rows.to(torch.complex64), ["complex64", "wanted numbers"]),
        (torch.ones(7), ["(7,)", "two dimensions"]),
        (torch.ones(2, 3, 4), ["(2, 3, 4)", "two dimensions"]),
        (torch.tensor(3.0), ["()", "two dimensions"]),
        (torch.ones(0, 4), ["(0, 4)", "nothing to align"]),
        ([1, 2, 3], ["no tensor"]),
        ({"a": {"b": "c"}}, ["no tensor"]),
        ({}, ["no tensor"]),
        (3, ["no tensor"]),
    ]:
        refused(save(value), "a.pt", *words)
    refused(f"{save({'v': rows})}:w", "no array 'w'", "v (50, 8)")
    refused(f"{save(rows)}:w", "no array 'w'")


def test_a_tensor_without_numbers(tmp_path):
    torch.save({"v": torch.empty(5, 3, device="meta")}, tmp_path / "a.pt")
    refused(tmp_path / "a.pt", "a.pt:v", "meta device")


@pytest.mark.filterwarnings("ignore:Sparse")
def test_an_expanded_tensor_of_terabytes_is_refused_before_it_is_made(save, monkeypatch):
    path = save({"v": torch.ones(1).expand(10**6, 10**6)})
    refused(path, "4.0 TB")
    monkeypatch.setattr("relcore.memory.available", lambda: 10**14)
    refused(path, "a.pt:v", "4.0 TB", "repeated")
    path = save({"v": torch.eye(3), "names": torch.ones(1).expand(3), "labels": torch.ones(1).expand(10**12)})
    assert load(path)[0].labels is None  # not of the right length, so not looked at
    huge = torch.sparse_coo_tensor([[0], [0]], [1.0], (10**7, 10**6))
    refused(save({"v": huge}), "a.pt:v", "once dense")


@pytest.mark.filterwarnings("ignore")
def test_torchscript_is_code(tmp_path):
    torch.jit.script(torch.nn.Linear(2, 3)).save(tmp_path / "a.pt")
    refused(tmp_path / "a.pt", "TorchScript", "torch.save")


# ----------------------------------------------------------------------------------------------------- files that lie


def rezipped(path, method=zipfile.ZIP_STORED, **changed):
    """The file zipped again, with some members changed."""
    out = io.BytesIO()
    with zipfile.ZipFile(path) as z, zipfile.ZipFile(out, "w", method) as new:
        for m in z.infolist():
            key = m.filename.split("/", 1)[1].replace(".", "_").replace("/", "_")
            new.writestr(m.filename, changed.get(key, lambda b: b)(z.read(m)))
    path.write_bytes(out.getvalue())
    return path


def test_a_deflated_bomb_is_refused(tmp_path):
    torch.save(torch.zeros(5000, 5000), tmp_path / "a.pt")
    assert rezipped(tmp_path / "a.pt", zipfile.ZIP_DEFLATED).stat().st_size < 200_000
    refused(tmp_path / "a.pt", "a.pt", "compressed")


def test_zip_files_that_no_torch_wrote(tmp_path, rows):
    torch.save(rows, tmp_path / "a.pt")
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(tmp_path / "a.pt", "a") as z:
        z.writestr("a/data.pkl", b"\x80\x02N.")
    refused(tmp_path / "a.pt", "2 members called")
    torch.save(rows, tmp_path / "b.pt")
    rezipped(tmp_path / "b.pt", data_pkl=lambda b: b[:-20])
    refused(tmp_path / "b.pt", "b.pt")


def test_a_tensor_larger_than_its_numbers(save, rows):
    """The sizes in the pickle are changed to claim more than there is; torch grows an old file's storage in silence."""
    path = save(torch.ones(50, 8))
    small, large = b"K2K\x08\x86", b"M\x00\x20K\x08\x86"  # (50, 8) and (8192, 8)
    if save.kind == "zip":
        rezipped(path, data_pkl=lambda b: b.replace(small, large, 1))
    else:
        data = path.read_bytes()
        assert small in data
        path.write_bytes(data.replace(small, large, 1))
    refused(path, "a.pt")


def test_sparse_tensors_with_indices_outside(save):
    """torch does not look at them when it loads, and would write outside the matrix."""
    for index in (9, -1, 2**40):
        coo = torch.sparse_coo_tensor([[0, 1], [0, 1]], [1.0, 2.0], (3, 4))
        coo._indices()[1, 1] = index
        refused(save({"v": coo}), "a.pt:v", "damaged")
    for wrong in ("crow", "col"):
        csr = torch.eye(4).to_sparse_csr()
        (csr.crow_indices() if wrong == "crow" else csr.col_indices())[-1] = 10**6 if wrong == "col" else -1
        refused(save({"v": csr}), "a.pt:v", "damaged")


def test_damaged_numbers_are_seen_by_their_checksum(tmp_path, rows):
    torch.save(rows, tmp_path / "a.pt")
    data = bytearray((tmp_path / "a.pt").read_bytes())
    data[data.index(rows.numpy().tobytes()[:16]) + 4] ^= 1
    (tmp_path / "a.pt").write_bytes(data)
    refused(tmp_path / "a.pt", "a.pt", "damaged", "CRC")
    torch.serialization.set_crc32_options(False)  # files without checksums are read
    try:
        torch.save(rows, tmp_path / "b.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    assert load(tmp_path / "b.pt")[0].vectors.tobytes() == rows.numpy().tobytes()


def test_lists_that_hold_each_other_do_not_grow_without_end(save, monkeypatch):
    wide = [torch.ones(2, 2)]
    for _ in range(60):
        wide = [wide, wide]
    assert load(save(wide))[1].rows_used == 2  # 2**60 ways lead to it
    circle = [torch.ones(2, 2)]
    circle.append(circle)
    assert load(save(circle))[1].rows_used == 2
    monkeypatch.setattr(reader, "MAX_TEXT", 1000)
    refused(save({"v": torch.ones(99, 2), "names": ["x" * 100] * 99}), "'names'", "1,000 characters")
    monkeypatch.setattr(reader, "MAX_CONTAINERS", 50)
    refused(save([torch.ones(2, 2)] * 60), "over 50 entries")


def test_an_old_file_beyond_what_is_read_at_once(tmp_path, rows, monkeypatch):
    torch.save(rows, tmp_path / "a.pt", _use_new_zipfile_serialization=False)
    monkeypatch.setattr(reader, "MAX_DECODED", 1000)
    refused(tmp_path / "a.pt", "old format", "1 kB")


def test_a_pickle_is_no_torch_file(tmp_path):
    (tmp_path / "a.pt").write_bytes(pickle.dumps({"v": [1.0, 2.0]}, protocol=2))
    refused(tmp_path / "a.pt", "a.pt", "Python objects", RECIPE)


# --------------------------------------------------------------------------------------------------------- the way back


def test_everything_is_kept(tmp_path, rows):
    space = full_space(rows.numpy())
    assert formats.write(space, tmp_path / "a.pt") == []
    same(space, load(tmp_path / "a.pt")[0])
    held = torch.load(tmp_path / "a.pt", weights_only=True)
    assert held["vectors"].equal(rows) and held["names"] == list(space.names)
    space = make_space(rows.numpy())[0]
    formats.write(space, tmp_path / "b.pth")
    assert list(torch.load(tmp_path / "b.pth", weights_only=True)) == ["vectors"]
    same(space, load(tmp_path / "b.pth")[0])


@settings(max_examples=25, deadline=None)
@given(
    data=st.data(),
    dtype=st.sampled_from(["f2", "f4", "f8", "i1", "i4", "i8", "u1", "?"]),
    shape=hnp.array_shapes(min_dims=2, max_dims=2, max_side=7),
    zipped=st.booleans(),
)
def test_what_torch_wrote_reads_back_bit_equal(tmp_path_factory, data, dtype, shape, zipped):
    path = tmp_path_factory.mktemp("torch") / "a.pt"
    tensor = torch.from_numpy(data.draw(hnp.arrays(dtype, shape)))
    torch.save(tensor, path, _use_new_zipfile_serialization=zipped)
    wanted = torch.load(path, weights_only=True).float().numpy()
    np.testing.assert_array_equal(reader.read(Request(path)).vectors, wanted)


@settings(max_examples=100, deadline=None)
@given(data=st.data(), zipped=st.booleans())
def test_a_mutated_file_is_refused_or_read(tmp_path_factory, data, zipped):
    path = tmp_path_factory.mktemp("torch") / "a.pt"
    value = {"v": torch.eye(4), "names": ["a", "b", "c", "d"]}
    torch.save(value, path, _use_new_zipfile_serialization=zipped)
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(whole[: data.draw(st.integers(1, len(whole)))] if data.draw(st.booleans()) else whole)
    try:
        space, _ = load(path)
        if zipped:  # the old format has no checksums
            np.testing.assert_array_equal(space.vectors, np.eye(4))
    except InputError as e:
        assert str(e)


def test_the_library_is_imported_when_it_is_needed():
    import subprocess
    import sys

    code = "import sys, relcore.formats as f; f.endings(); print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_pickle_protocols_that_torch_does_not_use_are_read_or_refused_in_words(tmp_path, rows, protocol):
    torch.save({"v": rows}, tmp_path / "a.pt", pickle_protocol=protocol)
    try:
        assert load(tmp_path / "a.pt")[0].vectors.tobytes() == rows.numpy().tobytes()
    except InputError as e:
        assert RECIPE in str(e)


def test_byte_order_of_another_machine(tmp_path, rows):
    torch.save(rows, tmp_path / "a.pt")
    big = rows.numpy().astype(">f4").tobytes()
    rezipped(tmp_path / "a.pt", byteorder=lambda b: b"big", data_0=lambda b: big)
    assert struct.pack(">f", rows[0, 0]) == big[:4]
    assert load(tmp_path / "a.pt")[0].vectors.tobytes() == rows.numpy().tobytes()
