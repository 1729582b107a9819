"""Encoders that are no single matrix, and how they and a coupling become arrays of a file and are read from it again.

An encoder is a dataclass of tensors with a call, nothing else. A run keeps it in ``alignment.safetensors`` under the
names of its fields, and it needs no code of ours. Of the default preprocessing (center, unit) and a :class:`Residual`::

    from safetensors.torch import load_file
    from torch.nn.functional import gelu, normalize
    w = load_file("run/alignment.safetensors")
    v = normalize(v - w["preprocess_x_0"], dim=1)
    z = v @ w["encode_x.skip"] + w["encode_x.bias"]
    z = normalize(z + gelu(v @ w["encode_x.hidden"] + w["encode_x.hidden_bias"]) @ w["encode_x.out"], dim=1)

With Relcore, whatever the encoder: ``Run.load("run").encoder("x")(vectors)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from relcore.methods.base import Linear

if TYPE_CHECKING:
    from torch import Tensor

    from relcore.ops.sinkhorn import Coupling


@dataclass(frozen=True, eq=False)
class Residual:
    """``v -> v skip + bias + gelu(v hidden + hidden_bias) out``, scaled to norm 1."""

    skip: Tensor  # (d, r)
    bias: Tensor  # (r,)
    hidden: Tensor  # (d, h)
    hidden_bias: Tensor  # (h,)
    out: Tensor  # (h, r)

    def __call__(self, v: Tensor) -> Tensor:
        from torch.nn.functional import gelu

        from relcore.ops.neighbors import unit_rows

        return unit_rows(v @ self.skip + self.bias + gelu(v @ self.hidden + self.hidden_bias) @ self.out)


@dataclass(frozen=True, eq=False)
class Factor:
    """``v -> v split / |v profile|``: the factor of a row in the cost of a coupling between profiles."""

    split: Tensor  # (d, r)
    profile: Tensor  # (d, w)

    def __call__(self, v: Tensor) -> Tensor:
        from relcore.ops.relative import factors

        return factors(v, self.split, self.profile)


@dataclass(frozen=True, eq=False)
class Shifted:
    """``v -> encode((v - shift) / |v - shift|)``: an encoder of rows that are centred elsewhere."""

    shift: Tensor  # (d,)
    encode: Callable[[Tensor], Tensor]

    def __call__(self, v: Tensor) -> Tensor:
        from relcore.ops.neighbors import unit_rows

        return self.encode(unit_rows(v - self.shift))


@dataclass(frozen=True, eq=False)
class Scaled:
    """``v -> norm encode(v) / |encode(v)|``."""

    norm: Tensor  # ()
    encode: Callable[[Tensor], Tensor]

    def __call__(self, v: Tensor) -> Tensor:
        from relcore.ops.neighbors import unit_rows

        return self.norm * unit_rows(self.encode(v))


@dataclass(frozen=True, eq=False)
class Affine:
    """``v -> (v - origin) matrix + offset``: similarities that are inner products in coordinates of their own."""

    origin: Tensor  # (d,)
    matrix: Tensor  # (d, m)
    offset: Tensor  # (m,)

    def __call__(self, v: Tensor) -> Tensor:
        return (v - self.origin) @ self.matrix + self.offset


@dataclass(frozen=True, eq=False)
class Cosines:
    """``v -> (v - centre) / |v - centre| directions + offset``: cosines, each feature scaled and shifted."""

    centre: Tensor  # (d,)
    directions: Tensor  # (d, m)
    offset: Tensor  # (m,)

    def __call__(self, v: Tensor) -> Tensor:
        from relcore.ops.neighbors import unit_rows

        return unit_rows(v - self.centre) @ self.directions + self.offset


@dataclass(frozen=True, eq=False)
class Distances:
    """``v -> offset - |v - point| gain`` for each of m points."""

    points: Tensor  # (m, d)
    gain: Tensor  # (m,)
    offset: Tensor  # (m,)

    def __call__(self, v: Tensor) -> Tensor:
        import torch

        exact = torch.cdist(v, self.points, compute_mode="donot_use_mm_for_euclid_dist")
        return self.offset - exact * self.gain


@dataclass(frozen=True, eq=False)
class WhiteCosines:
    """``v -> z / |z| directions + offset``, ``z = (v - centre) root``: whitened cosines, each scaled and shifted."""

    centre: Tensor  # (d,)
    root: Tensor  # (d, r)
    directions: Tensor  # (r, m)
    offset: Tensor  # (m,)

    def __call__(self, v: Tensor) -> Tensor:
        from relcore.ops.neighbors import unit_rows

        return unit_rows((v - self.centre) @ self.root) @ self.directions + self.offset


@dataclass(frozen=True, eq=False)
class WhiteDistances:
    """``v -> offset - |z - point| gain``, ``z = (v - centre) root``, for each of m points."""

    centre: Tensor  # (d,)
    root: Tensor  # (d, r)
    points: Tensor  # (m, r)
    gain: Tensor  # (m,)
    offset: Tensor  # (m,)

    def __call__(self, v: Tensor) -> Tensor:
        return Distances(self.points, self.gain, self.offset)((v - self.centre) @ self.root)


@dataclass(frozen=True, eq=False)
class Kernelled:
    """``v -> exp(-|z - point|^2) dual + offset``, ``z = (v - origin) root``, over K points; worked out in float64."""

    origin: Tensor  # (d,)
    root: Tensor  # (d, r)
    points: Tensor  # (K, r)
    dual: Tensor  # (K, m)
    offset: Tensor  # (m,)

    def __call__(self, v: Tensor) -> Tensor:
        from relcore.ops.similarity import Kernel

        return Kernel(*(getattr(self, f.name).double() for f in fields(self)))(v)


@dataclass(frozen=True, eq=False)
class Sparse:
    """``v -> c / |c|``, c the ``non_zeros`` largest cosines to K anchors, to the power ``exponent``; others are 0."""

    anchors: Tensor  # (K, d)
    non_zeros: Tensor  # ()
    exponent: Tensor  # ()

    def __call__(self, v: Tensor) -> Tensor:
        from relcore.ops.asif import sparse_relative

        return sparse_relative(v, self.anchors, int(self.non_zeros), float(self.exponent))


KINDS = {
    kind: tuple(f.name for f in fields(kind))
    for kind in (Residual, Factor, Affine, Cosines, Distances, WhiteCosines, WhiteDistances, Kernelled, Sparse)
}


def encoder_arrays(name: str, encode: Callable | None) -> dict[str, Tensor]:
    """The tensors of an encoder: ``name`` for a matrix, else ``name.FIELD``; none where it cannot be kept."""
    if isinstance(encode, Shifted):
        return {f"{name}.shift": encode.shift} | encoder_arrays(name, encode.encode)
    if isinstance(encode, Scaled):
        inner = encoder_arrays(name, encode.encode)
        return {f"{name}.norm": encode.norm} | inner if inner else {}
    if isinstance(encode, Linear):
        return {name: encode.matrix}
    return {f"{name}.{field}": getattr(encode, field) for field in KINDS.get(type(encode), ())}


def encoder_of(name: str, arrays: Mapping[str, Tensor]) -> Callable[[Tensor], Tensor] | None:
    """The encoder kept under a name; None where there is none."""
    found = {key.removeprefix(f"{name}."): value for key, value in arrays.items() if key.startswith(f"{name}.")}
    shift, norm = found.pop("shift", None), found.pop("norm", None)
    encode = Linear(arrays[name]) if name in arrays else None
    for kind, names in KINDS.items():
        if found.keys() == set(names):
            encode = kind(**found)
    if norm is not None and encode is not None:
        encode = Scaled(norm, encode)
    return encode if shift is None or encode is None else Shifted(shift, encode)


def coupling_arrays(coupling: Coupling) -> dict[str, Tensor]:
    """A coupling as arrays: potentials, masses, the factors of its cost, and four numbers."""
    import torch

    problem, cost = coupling.problem, coupling.problem.cost
    numbers = [problem.epsilon, problem.rho_x, problem.rho_y, cost.scale]
    out = {
        "coupling.f": coupling.f,
        "coupling.g": coupling.g,
        "coupling.a": problem.a,
        "coupling.b": problem.b,
        "coupling.left": cost.left,
        "coupling.right": cost.right,
        "coupling.offset_left": cost.offset_left,
        "coupling.offset_right": cost.offset_right,
        "coupling.numbers": torch.tensor(numbers, dtype=torch.float64),
        "coupling.kind": torch.tensor(list(cost.kind.encode()), dtype=torch.uint8),
    }
    return out if cost.centre is None else out | {"coupling.centre": cost.centre}


def coupling_of(arrays: Mapping[str, Tensor]) -> Coupling | None:
    """The coupling kept among the arrays; None where there is none."""
    from relcore.ops.sinkhorn import Cost, Coupling, Problem

    kept = {key.removeprefix("coupling."): value for key, value in arrays.items() if key.startswith("coupling.")}
    if not kept:
        return None
    epsilon, rho_x, rho_y, scale = kept["numbers"].tolist()
    cost = Cost(
        bytes(kept["kind"].tolist()).decode(),
        kept["left"],
        kept["right"],
        kept["offset_left"],
        kept["offset_right"],
        scale,
        kept.get("centre"),
    )
    return Coupling(Problem(cost, epsilon, kept["a"], kept["b"], rho_x, rho_y), kept["f"], kept["g"])
