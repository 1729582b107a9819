"""Linear heads as torch and scikit-learn save them, and what does not make one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from sklearn.linear_model import LogisticRegression

from relcore.errors import InputError
from relcore.formats.linear_head import LinearHead, read_linear_head

RNG = np.random.default_rng(0)
W, B = RNG.standard_normal((3, 5)), RNG.standard_normal(3)
ROWS = RNG.standard_normal((40, 5))
WANTED = (ROWS @ W.T + B).argmax(1)


@pytest.mark.parametrize("weights", [W, W.T], ids=["classes first", "dimensions first"])
@pytest.mark.parametrize("names", [("W", "b"), ("coef_", "intercept_")])
def test_npz_of_either_orientation(tmp_path, weights, names):
    np.savez(tmp_path / "h.npz", **dict(zip(names, (weights, B), strict=True)), classes=np.array(["a", "b", "c"]))
    head = read_linear_head(tmp_path / "h.npz")
    assert head.dim == 5 and head.predict(ROWS).tolist() == [("a", "b", "c")[i] for i in WANTED]


def test_a_layer_of_torch_and_a_safetensors_file(tmp_path):
    layer = torch.nn.Linear(5, 3)
    torch.save({"fc.weight": layer.weight.detach(), "fc.bias": layer.bias.detach()}, tmp_path / "h.pt")
    head = read_linear_head(tmp_path / "h.pt").named(["0", "1", "2"])
    with torch.no_grad():
        said = layer(torch.from_numpy(ROWS).float()).argmax(1)
    assert head.predict(ROWS).tolist() == [str(int(i)) for i in said]
    save_file({"weight": W.astype(np.float32), "bias": B.astype(np.float32)}, tmp_path / "h.safetensors")
    assert (read_linear_head(tmp_path / "h.safetensors").weights == W.astype(np.float32)).all()


def test_two_classes_as_scikit_learn_keeps_them(tmp_path):
    model = LogisticRegression().fit(ROWS, ROWS[:, 0] > 0)
    np.savez(tmp_path / "h.npz", W=model.coef_, b=model.intercept_)
    head = read_linear_head(tmp_path / "h.npz").named(["False", "True"])
    assert head.predict(ROWS).tolist() == [str(v) for v in model.predict(ROWS)]


def test_zero_rows_and_no_offsets_stay(tmp_path):
    w = W.copy()
    w[1] = 0
    np.savez(tmp_path / "h.npz", W=w)
    head = read_linear_head(tmp_path / "h.npz")
    assert head.weights.shape == (3, 5) and (head.weights[1] == 0).all() and (head.offsets == 0).all()


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"b": B}, "wanted one table of weights"),
        ({"left": W, "right": W}, "wanted one table of weights"),
        ({"W": W, "b": np.zeros(4)}, "4 offsets for weights of shape"),
        ({"W": W, "classes": np.array(["a", "b"])}, "2 classes for weights"),
        ({"W": W, "classes": np.array(["a", "b", "a"])}, "two classes have one name"),
        ({"W": np.where(W > 1, np.nan, W)}, "NaN or infinite"),
        ({"W": np.array([[object()]])}, "holds no arrays"),  # pickled ones are not looked at
    ],
)
def test_what_makes_no_head_is_refused(tmp_path, arrays, said):
    np.savez(tmp_path / "h.npz", **arrays)
    with pytest.raises(InputError, match=said):
        read_linear_head(tmp_path / "h.npz")


def test_classes_without_names_must_be_as_many_as_labels():
    head = LinearHead(W, B, None, "h.npz")
    assert head.named(["x", "y", "z"]).classes == ("x", "y", "z")
    with pytest.raises(InputError, match="3 classes without names and the data have 2 labels"):
        head.named(["x", "y"])
    with pytest.raises(InputError, match="there is no file"):
        read_linear_head("/nowhere/h.npz")


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"W": W[:1], "b": np.float64(0.5)}, r"b \(\) is no list of offsets"),
        ({"W": W, "b": B[None]}, r"b \(1, 3\) is no list of offsets"),
        ({"W": W, "b": np.array(["x", "y", "z"])}, "is no list of offsets"),
        ({"W": W, "b": B, "bias": B}, "a linear head has one of these"),
        ({"fc1.weight": W.T, "fc2.weight": W, "fc2.bias": B}, "Save the last layer alone"),
        ({"W": W[:1], "b": np.zeros(2)}, r"2 offsets for weights of shape \(1, 5\)"),
    ],
)
def test_what_is_there_is_not_left_out_in_silence(tmp_path, arrays, said):
    np.savez(tmp_path / "h.npz", **arrays)
    with pytest.raises(InputError, match=said):
        read_linear_head(tmp_path / "h.npz")


@pytest.mark.parametrize("dim", [2, 5])
@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("more", [{}, {"b": B[:1]}, {"classes": np.array([0.0, 1.0])}])
def test_one_line_of_weights_in_any_form(tmp_path, dim, across, more):
    w = W[:1, :dim]
    np.savez(tmp_path / "h.npz", W=w.T if across else w, **more)
    head = read_linear_head(tmp_path / "h.npz").named(["0", "1"])
    assert head.classes == ("0", "1")  # numbers read as labels are, 1.0 as 1
    wanted = (ROWS[:, :dim] @ w[0] + (B[0] if "b" in more else 0) > 0).astype(int)
    assert head.predict(ROWS[:, :dim]).tolist() == wanted.astype(str).tolist()
