"""Kernel sums against the definition, row by row in float64."""

import math

import pytest
import torch

from relcore.ops.kernel_sums import kernel_sums, neighbour_angle
from relcore.ops.neighbors import unit_rows


def rows(n, d, seed):
    return unit_rows(torch.randn(n, d, generator=torch.Generator().manual_seed(seed)))


def dense(x, y, sigma):
    angle = torch.acos((x.double() @ y.double().T).clamp(-1, 1))
    return torch.exp(-(angle**2) / (2 * sigma**2))


SIGMAS = torch.tensor([0.5 * 2 ** (k / 8) for k in (3, -16, 0, -4, 8, -8)] + [0.2], dtype=torch.float64)


@pytest.mark.parametrize("block", [None, 1, 7])
def test_sums_of_rows_and_columns_at_every_bandwidth(block):
    x, y = rows(40, 6, 0), rows(23, 6, 1)
    across, back = kernel_sums(x, y, SIGMAS, block=block)
    assert across.shape == (40, 7, 1) and back.shape == (23, 7)
    for i, sigma in enumerate(SIGMAS.tolist()):
        want = dense(x, y, sigma)
        torch.testing.assert_close(across[:, i, 0].double(), want.sum(1), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(back[:, i].double(), want.sum(0), rtol=1e-4, atol=1e-6)


def test_parts_add_up_and_a_row_takes_no_part_in_its_own_sum():
    x = rows(30, 5, 2)
    parts = torch.nn.functional.one_hot(torch.arange(30) % 2, 2)
    own = torch.arange(30)
    own[3] = -1
    sums, _ = kernel_sums(x, x, SIGMAS[:1], parts=parts, own=own)
    want = dense(x, x, float(SIGMAS[0]))
    want[own >= 0, own[own >= 0]] = 0
    torch.testing.assert_close(sums[:, 0].double(), want @ parts.double(), rtol=1e-4, atol=1e-6)


def test_twins_and_antipodes_are_exact():
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.6, 0.8]])
    across, _ = kernel_sums(x, x, torch.tensor([0.01, math.pi]))
    angle = math.acos(0.6)
    want = sum(math.exp(-(t**2) / (2 * math.pi**2)) for t in (0.0, math.pi, angle))
    assert float(across[0, 0, 0]) == pytest.approx(1.0, abs=1e-3)
    assert float(across[0, 1, 0]) == pytest.approx(want, rel=1e-5)


def test_angle_to_a_neighbour():
    angles = torch.tensor([0.0, 0.1, 0.3, 0.6])
    v = torch.stack([angles.cos(), angles.sin()], 1)
    assert neighbour_angle(v, 1) == pytest.approx(0.1, abs=1e-3)  # 0.1, 0.1, 0.2, 0.3: the lower middle one
    assert neighbour_angle(v, 10) == pytest.approx(0.5, abs=1e-3)  # fewer than ten others: the last, .6 .5 .3 .6
    assert neighbour_angle(v[:1], 10) == 0.0
