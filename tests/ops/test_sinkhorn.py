"""Entropic transport against POT, a plain loop in the log domain, and its own conditions of optimality."""

from __future__ import annotations

import math
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import ot
import pytest
import torch

from relcore.ops import sinkhorn
from relcore.ops.sinkhorn import Problem, Solver, cosine, dot, solve, squared_euclidean

COSTS = {"cosine": cosine, "sqeuclidean": squared_euclidean}
INF = math.inf


def clouds(n: int, m: int, d: int = 8, seed: int = 0, dtype=torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=g, dtype=dtype), torch.randn(m, d, generator=g, dtype=dtype)


def masses(n: int, m: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(100 + seed)
    a, b = (torch.rand(size, generator=g, dtype=torch.float64) + 0.05 for size in (n, m))
    return a / a.sum(), b / b.sum()


def true_cost(x: torch.Tensor, y: torch.Tensor, kind: str) -> np.ndarray:
    x, y = x.double().numpy(), y.double().numpy()
    if kind == "sqeuclidean":
        return ((x[:, None] - y[None]) ** 2).sum(2)
    return 1 - (x / np.linalg.norm(x, axis=1)[:, None]) @ (y / np.linalg.norm(y, axis=1)[:, None]).T


def apart(u, v) -> float:
    """Largest difference of two potentials up to a constant."""
    return float(np.ptp(np.asarray(u) - np.asarray(v)))


def plain(cost: np.ndarray, epsilon: float, a, b, rho_x=INF, rho_y=INF) -> tuple[torch.Tensor, torch.Tensor]:
    """The textbook iteration in the log domain, until nothing moves."""
    cost = torch.from_numpy(cost)
    f, g = torch.zeros_like(a), torch.zeros_like(b)
    for _ in range(200_000):
        old = f
        f = -epsilon / (1 + epsilon / rho_x) * torch.logsumexp((g - cost) / epsilon + b.log(), 1)
        g = -epsilon / (1 + epsilon / rho_y) * torch.logsumexp((f[:, None] - cost) / epsilon + a.log()[:, None], 0)
        if (f - old).abs().max() < 1e-14:
            break
    return f, g


@pytest.fixture
def large(monkeypatch):
    """Small problems go the way of large ones: float32, a sample first, marginals checked on some rows."""
    monkeypatch.setattr(sinkhorn, "SMALL", 0)
    monkeypatch.setattr(sinkhorn, "COARSE_ABOVE", 1000)
    monkeypatch.setattr(sinkhorn, "SAMPLE", 100)
    monkeypatch.setattr(sinkhorn, "CHECK_ALL", 0)
    monkeypatch.setattr(sinkhorn, "TILE_ELEMENTS", 1)
    monkeypatch.setattr(sinkhorn, "TILE_ROWS", 64)


# ------------------------------------------------------------------------------------------------------- against others


@pytest.mark.parametrize("kind", COSTS)
@pytest.mark.parametrize(
    ("n", "m", "eta", "weighted"),
    [
        (40, 40, 0.5, False),
        (60, 35, 0.05, True),
        (35, 60, 0.01, True),
        (30, 25, 0.01, False),
        (1, 7, 0.05, True),
        (20, 1, 0.05, False),
    ],
)
def test_potentials_are_those_of_pot(kind, n, m, eta, weighted):
    x, y = clouds(n, m)
    a, b = masses(n, m) if weighted else (torch.full((k,), 1 / k, dtype=torch.float64) for k in (n, m))
    truth = true_cost(x, y, kind)
    cost = COSTS[kind](x, y)
    epsilon = cost.epsilon(eta)
    out = solve(Problem(cost, epsilon, a, b), tolerance=1e-10, cap=5000)
    assert out.converged and out.error_x < 1e-10 and out.error_y < 1e-10 and out.mass == pytest.approx(1, abs=1e-10)
    plan, log = ot.sinkhorn(
        a.numpy(), b.numpy(), truth, epsilon, method="sinkhorn_log", numItermax=100_000, stopThr=1e-11, log=True
    )
    # POT's potentials hold the log masses, ours stand beside them
    assert apart(out.f + epsilon * a.log(), epsilon * log["log_u"]) < 1e-5
    assert apart(out.g + epsilon * b.log(), epsilon * log["log_v"]) < 1e-5
    np.testing.assert_allclose(out.coupling.dense(), plan, atol=1e-8)


@pytest.mark.parametrize("memory", [1 << 30, 0], ids=["stored", "rebuilt"])
@pytest.mark.parametrize("eta", [0.1, 0.05])
def test_float32_from_a_sample_agrees_too(large, memory, eta):
    x, y = clouds(300, 260, dtype=torch.float32)
    a, b = masses(300, 260)
    cost = cosine(x, y)
    epsilon = cost.epsilon(eta)
    solver = Solver(Problem(cost, epsilon, a, b), tolerance=8e-6, memory=memory)
    phases = [state.phase for state in solver]
    assert phases[0] == "sample" and phases[-1] == "main"
    out = solver.output
    assert out.converged and out.checked == (128, 128)
    f, g = plain(true_cost(x, y, "cosine"), epsilon, a, b)
    assert apart(out.f, f) < 1e-5 and apart(out.g, g) < 1e-5
    rows, columns = out.coupling.marginals()
    assert (rows - a).abs().sum() < 8e-6 and (columns - b).abs().sum() < 8e-6


@pytest.mark.parametrize(
    ("eta", "rho_x", "rho_y"),
    [
        (0.05, 1, 1),
        (0.05, 0.1, 1),
        (0.02, 0.3, INF),
        (0.05, INF, 0.3),
        (0.05, 100, 100),
        (0.01, 0.01, 0.01),
        (0.05, 1e-4, 1e-4),
        (0.005, 1e-3, INF),
    ],
)
def test_relaxed_marginals(eta, rho_x, rho_y):
    x, y = clouds(40, 55, 6)
    a, b = masses(40, 55)
    truth = true_cost(x, y, "cosine")
    cost = cosine(x, y)
    epsilon = cost.epsilon(eta)
    out = solve(Problem(cost, epsilon, a, b, rho_x, rho_y), tolerance=1e-10)
    assert out.converged
    # the conditions of optimality, from the plan itself
    plan = a[:, None] * b * ((out.f[:, None] + out.g - torch.from_numpy(truth)) / epsilon).exp()
    for sums, mass, potential, rho in ((plan.sum(1), a, out.f, rho_x), (plan.sum(0), b, out.g, rho_y)):
        torch.testing.assert_close(sums, mass * torch.exp(-potential / rho), rtol=1e-6, atol=1e-12)
    assert out.mass == pytest.approx(plan.sum().item(), rel=1e-9)
    if math.isfinite(rho_x) and math.isfinite(rho_y):
        peer = ot.unbalanced.sinkhorn_unbalanced(
            a.numpy(), b.numpy(), truth, epsilon, (rho_x, rho_y), reg_type="kl", numItermax=100_000, stopThr=1e-13
        )
        np.testing.assert_allclose(plan, peer, atol=1e-9)
    if max(rho_x, rho_y) < 100:  # the plain loop takes for ever at 100
        f, g = plain(truth, epsilon, a, b, rho_x, rho_y)
        assert (out.f - f).abs().max() < 1e-8 and (out.g - g).abs().max() < 1e-8


def test_relaxed_marginals_take_no_more_iterations_than_exact_ones():
    cost = cosine(*clouds(60, 50))
    epsilon = cost.epsilon(0.05)
    exact = solve(Problem(cost, epsilon), tolerance=1e-8).iterations
    for rho in (0.3, 5.0, 1000.0):
        assert solve(Problem(cost, epsilon, rho_x=rho, rho_y=rho), tolerance=1e-8).iterations <= exact + 10


def test_relaxed_in_float32(large):
    x, y = clouds(300, 260, dtype=torch.float32)
    cost = cosine(x, y)
    epsilon = cost.epsilon(0.05)
    out = solve(Problem(cost, epsilon, rho_x=0.2, rho_y=0.2), tolerance=1e-5)
    assert out.converged
    f, g = plain(true_cost(x, y, "cosine"), epsilon, out.coupling.problem.a, out.coupling.problem.b, 0.2, 0.2)
    assert (out.f - f).abs().max() < 1e-5 and (out.g - g).abs().max() < 1e-5


# ------------------------------------------------------------------------------------------------- epsilon and the end


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_tiny_epsilon_is_never_an_empty_plan(seed):
    """B18: POT's kernel-domain solver returns a plan of zeros here, without an error."""
    x, y = clouds(120, 100, 32, seed, torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        empty = ot.sinkhorn(np.full(120, 1 / 120), np.full(100, 0.01), true_cost(x, y, "cosine"), 1e-4)
    assert empty.sum() == 0
    problem = Problem(cosine(x, y), 1e-4)
    out = solve(problem, tolerance=1e-4)
    assert out.converged and out.mass == pytest.approx(1, abs=1e-6)
    assert out.coupling.dense().sum() == pytest.approx(1, abs=1e-6)

    short = solve(problem, tolerance=1e-4, cap=3)
    assert not short.converged and short.iterations == 3 and short.error_y > 1e-4
    assert short.mass == pytest.approx(1, abs=1e-6)
    assert any(note.startswith("not converged") for note in short.notes)


def test_errors_are_those_of_the_plan():
    """What is reported of an unfinished solution is what its plan shows."""
    out = solve(Problem(cosine(*clouds(50, 40)), 0.005), cap=2)
    plan = out.coupling.dense()
    assert not out.converged
    assert out.error_x == pytest.approx((plan.sum(1) - 1 / 50).abs().sum().item(), abs=1e-12)
    assert out.error_y == pytest.approx((plan.sum(0) - 1 / 40).abs().sum().item(), rel=1e-6)


def test_errors_of_a_large_problem_hold_those_of_the_plan(large):
    out = solve(Problem(cosine(*clouds(400, 300, dtype=torch.float32)), 0.05), cap=3)
    _, columns = out.coupling.marginals()
    assert not out.converged and out.checked == (128, 128)
    assert out.error_y == pytest.approx((columns - 1 / 300).abs().sum().item(), rel=1e-2)


@pytest.mark.parametrize("eta", [0.01, 1e-3, 1e-5])
def test_small_epsilons_end_in_float64(large, eta):
    cost = cosine(*clouds(300, 260, dtype=torch.float32))
    solver = Solver(Problem(cost, cost.epsilon(eta)), cap=3000)
    phases = [state.phase for state in solver]
    assert phases[-1] == "exact" and solver.output.converged
    rows, columns = solver.output.coupling.marginals()
    assert (rows - 1 / 300).abs().sum() < 1e-4 and (columns - 1 / 260).abs().sum() < 1.01e-4


def test_epsilon_below_rounding_is_raised_and_said():
    out = solve(Problem(cosine(*clouds(12, 9)), 1e-30), cap=50)
    assert out.coupling.problem.epsilon > 1e-30 and "raised to" in out.notes[0]
    assert out.mass == pytest.approx(1, abs=1e-3)


def test_epsilon_is_relative_to_the_median_cost():
    x, y = clouds(300, 200)
    for kind, make in COSTS.items():
        truth = np.median(true_cost(x, y, kind))
        assert make(x, y).epsilon(0.05) == pytest.approx(0.05 * truth, rel=1e-3)
    x, y = clouds(3000, 2000)
    cost = cosine(x, y)
    assert cost.epsilon(1.0, seed=1) == pytest.approx(np.median(true_cost(x, y, "cosine")), rel=0.01)
    assert cost.epsilon(1.0, seed=1) == cost.epsilon(1.0, seed=1) != cost.epsilon(1.0, seed=2)


def test_epsilon_where_the_median_is_zero():
    x = torch.ones(30, 4)
    x[0] = torch.tensor([1.0, -1, 1, -1])
    assert cosine(x, x).epsilon(0.1) == pytest.approx(0.1)  # most costs are 0, the largest is 1
    assert squared_euclidean(x[1:], x[1:]).epsilon(0.1) == pytest.approx(0.1)  # all costs are 0


# ------------------------------------------------------------------------------------------------ odd and bad problems


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 20), (2, 3), (19, 2), (5, 400)])
@pytest.mark.parametrize("make", [cosine, squared_euclidean])
def test_few_rows(n, m, make):
    cost = make(*clouds(n, m, dtype=torch.float32))
    out = solve(Problem(cost, cost.epsilon(0.05)))
    plan = out.coupling.dense()
    assert out.converged and plan.shape == (n, m)
    assert (plan.sum(1) - 1 / n).abs().sum() < 1e-4 and (plan.sum(0) - 1 / m).abs().sum() < 1e-4


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_constant_cost_gives_the_product_and_says_so(value):
    x = torch.full((25, 4), value)
    cost = cosine(x, x[:10])
    a, b = masses(25, 10)
    out = solve(Problem(cost, cost.epsilon(0.05), a, b))
    torch.testing.assert_close(out.coupling.dense(), a[:, None] * b)
    assert out.converged and "all costs are equal" in out.notes[0]


def test_duplicates_share_alike():
    x, y = clouds(20, 15)
    cost = cosine(torch.cat([x, x[:5]]), y)
    plan = solve(Problem(cost, cost.epsilon(0.02)), tolerance=1e-9).coupling.dense()
    torch.testing.assert_close(plan[:5], plan[20:], rtol=1e-6, atol=0)


def test_rows_without_mass_take_no_part_and_have_potentials():
    x, y = clouds(30, 20)
    a, b = masses(30, 20)
    a[[3, 7]] = 0
    b[0] = 0
    a, b = a / a.sum(), b / b.sum()
    cost = cosine(x, y)
    out = solve(Problem(cost, 0.05, a, b), tolerance=1e-10)
    plan = out.coupling.dense()
    assert out.converged and (plan[[3, 7]] == 0).all() and (plan[:, 0] == 0).all()
    kept = solve(Problem(cost.part(a > 0, b > 0), 0.05, a[a > 0], b[b > 0]), tolerance=1e-10)
    torch.testing.assert_close(plan[a > 0][:, b > 0], kept.coupling.dense(), rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(out.f[[3, 7]], kept.coupling.extend(x[[3, 7]]))
    scores, columns = out.coupling.top_k(20)
    assert (columns[:, -1] == 0).all() and (scores[:, -1] == -INF).all()


def test_what_cannot_be_solved_is_refused():
    x, y = clouds(6, 5)
    cost = cosine(x, y)
    with pytest.raises(ValueError, match="equal width"):
        cosine(x, y[:, :3])
    with pytest.raises(ValueError, match="at least one row"):
        cosine(x, y[:0])
    with pytest.raises(ValueError, match="finite"):
        squared_euclidean(x, y.fill_(math.nan))
    for options, words in (
        ({"epsilon": 0.0}, "positive"),
        ({"epsilon": math.nan}, "positive"),
        ({"epsilon": 0.1, "a": torch.ones(5)}, "wanted 6"),
        ({"epsilon": 0.1, "a": torch.tensor([-1.0, 1, 1, 1, 1, 1])}, "negative"),
        ({"epsilon": 0.1, "a": torch.ones(6)}, "sum to 6 and 1"),
        ({"epsilon": 0.1, "rho_x": 0.0}, "rho_x"),
    ):
        with pytest.raises(ValueError, match=words):
            Problem(cost, **options)
    with pytest.raises(ValueError, match="wanted 5"):
        Solver(Problem(cost, 0.1), start=torch.zeros(6))


def test_unequal_totals_where_a_side_is_relaxed():
    cost = cosine(*clouds(30, 20))
    a, b = masses(30, 20)
    out = solve(Problem(cost, 0.05, 2 * a, b, rho_x=0.5), tolerance=1e-9)
    assert out.converged and out.mass == pytest.approx(1, abs=1e-8)


# -------------------------------------------------------------------------------------------------------------- the way


def test_the_same_twice(large):
    cost = cosine(*clouds(300, 260, dtype=torch.float32))
    first, second = (solve(Problem(cost, 0.05)) for _ in range(2))
    assert torch.equal(first.f, second.f) and torch.equal(first.g, second.g)


def test_stored_and_rebuilt_agree(large):
    cost = squared_euclidean(*clouds(300, 260, dtype=torch.float32))
    stored, rebuilt = (
        solve(Problem(cost, cost.epsilon(0.03)), tolerance=3e-6, memory=memory) for memory in (1 << 30, 0)
    )
    assert abs(stored.iterations - rebuilt.iterations) <= 3
    assert apart(stored.f, rebuilt.f) < 1e-4 and apart(stored.g, rebuilt.g) < 1e-4  # of costs of about 16


def test_a_kernel_out_of_reach_is_made_anew(monkeypatch):
    """Potentials that start far away, at an epsilon the kernel cannot span."""
    x, y = clouds(40, 30)
    cost = squared_euclidean(x, y)
    wild = 400 * torch.randn(30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    made = []
    fill = sinkhorn._Kernel._fill
    monkeypatch.setattr(sinkhorn._Kernel, "_fill", lambda *a: made.append(1) or fill(*a))
    out = solve(Problem(cost, 0.5), tolerance=1e-10, start=wild)
    f, g = plain(true_cost(x, y, "sqeuclidean"), 0.5, out.coupling.problem.a, out.coupling.problem.b)
    assert out.converged and apart(out.f, f) < 1e-6 and apart(out.g, g) < 1e-6
    assert len(made) > 1


def test_a_good_start_saves_iterations():
    cost = cosine(*clouds(200, 150))
    cold = solve(Problem(cost, 0.02))
    larger = solve(Problem(cost, 0.022))
    warm = solve(Problem(cost, 0.02), start=larger.g)
    again = solve(Problem(cost, 0.02), start=cold.g)
    assert again.iterations == 1 and warm.iterations < cold.iterations
    assert warm.converged and again.converged


def test_a_sample_saves_iterations(large, monkeypatch):
    x, y = clouds(2000, 1800, 4, dtype=torch.float32)
    cost = squared_euclidean(x, y)
    problem = Problem(cost, cost.epsilon(0.05))
    monkeypatch.setattr(sinkhorn, "SAMPLE", 600)
    sampled = solve(problem)
    monkeypatch.setattr(sinkhorn, "COARSE_ABOVE", 1 << 40)
    direct = solve(problem)
    assert sampled.converged and direct.converged and sampled.iterations < direct.iterations


def test_acceleration_saves_iterations(monkeypatch):
    cost = cosine(*clouds(200, 150))
    problem = Problem(cost, cost.epsilon(0.02))
    fast = solve(problem).iterations
    monkeypatch.setattr(sinkhorn, "_combined", lambda residuals, images: images[-1])
    assert 3 * fast < solve(problem).iterations


def test_states_can_be_watched_and_left():
    solver = Solver(Problem(cosine(*clouds(60, 50)), 0.01))
    states = list(solver)
    assert [s.iteration for s in states] == list(range(1, len(states) + 1))
    assert states[-1].error <= 1e-4 < states[0].error and states[-1].seconds >= states[0].seconds
    assert solver.output.iterations == len(states)

    left = Solver(Problem(cosine(*clouds(60, 50)), 0.01))
    steps = iter(left)
    next(steps)
    steps.close()
    assert left.output is None


def test_memory_stays_small_when_the_kernel_is_rebuilt():
    """B19: a dense float32 matrix of this size would take 576 MB."""
    script = """
import torch, resource
from relcore.ops.sinkhorn import Problem, cosine, solve
g = torch.Generator().manual_seed(0)
x, y = torch.randn(12000, 16, generator=g), torch.randn(12000, 16, generator=g)
solve(Problem(cosine(x[:50], y[:50]), 0.1))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
out = solve(Problem(cosine(x, y), 0.1), memory=0, cap=2)
out.coupling.swapped.top_k(5)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, out.mass)
"""
    root = Path(sinkhorn.__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=root, check=True)
    kib, mass = map(float, done.stdout.split())
    assert kib < 200 * 1024 and mass == pytest.approx(1, abs=1e-4)


# --------------------------------------------------------------------------------------------------------- the coupling


@pytest.fixture(scope="module")
def solved():
    x, y = clouds(50, 35)
    a, b = masses(50, 35)
    out = solve(Problem(cosine(x, y), 0.05, a, b), tolerance=1e-11)
    plan = a[:, None] * b * ((out.f[:, None] + out.g - torch.from_numpy(true_cost(x, y, "cosine"))) / 0.05).exp()
    return x, y, out.coupling, plan


def test_pieces_are_those_of_the_plan(solved):
    _, _, coupling, plan = solved
    i, j = torch.tensor([4, 0, 17]), torch.tensor([9, 3])
    torch.testing.assert_close(coupling.dense(), plan)
    torch.testing.assert_close(coupling.rows(i), plan[i])
    torch.testing.assert_close(coupling.columns(j), plan[:, j])
    torch.testing.assert_close(coupling.log_block(i, j), plan[i][:, j].log())
    block = plan[i][:, j]
    torch.testing.assert_close(coupling.row_normalised(i, j), block / block.sum(1, keepdim=True))
    torch.testing.assert_close(coupling.column_normalised(i, j), block / block.sum(0))
    torch.testing.assert_close(coupling.row_normalised(i, j, log=True).exp(), block / block.sum(1, keepdim=True))
    torch.testing.assert_close(coupling.column_normalised(i, j, log=True).exp(), block / block.sum(0))
    torch.testing.assert_close(coupling.swapped.dense(), plan.T)
    rows, columns = coupling.marginals()
    torch.testing.assert_close(rows, plan.sum(1))
    torch.testing.assert_close(columns, plan.sum(0))
    rows, columns = coupling.marginals(i, j)
    torch.testing.assert_close(rows, plan.sum(1)[i])
    torch.testing.assert_close(columns, plan.sum(0)[j])


def test_best_partners_both_ways(solved):
    _, _, coupling, plan = solved
    for side, matrix in ((coupling, plan), (coupling.swapped, plan.T)):
        scores, index = side.top_k(4)
        top = matrix.topk(4, 1)
        assert torch.equal(index, top.indices)
        torch.testing.assert_close(scores.exp(), top.values)


def test_effective_matches_are_the_exponential_of_the_entropy(solved):
    _, _, coupling, plan = solved
    for side, matrix in ((coupling, plan), (coupling.swapped, plan.T)):
        p = matrix / matrix.sum(1, keepdim=True)
        torch.testing.assert_close(side.effective_matches(), torch.exp(-(p * p.log()).sum(1)))


def test_pieces_in_float32(large, solved):
    x, y, coupling, plan = solved
    other = sinkhorn.Coupling(
        Problem(cosine(x, y), 0.05, coupling.problem.a, coupling.problem.b), coupling.f, coupling.g
    )
    assert other.rows(slice(None)).dtype == torch.float32
    torch.testing.assert_close(other.dense(), plan.float(), rtol=1e-4, atol=1e-9)
    torch.testing.assert_close(other.effective_matches(), coupling.effective_matches(), rtol=1e-4, atol=0)
    assert torch.equal(other.top_k(3)[1], coupling.top_k(3)[1])


@pytest.mark.parametrize("make", [cosine, squared_euclidean])
@pytest.mark.parametrize("rho", [None, 0.3])
def test_rows_that_come_later(make, rho):
    x, y = clouds(50, 35)
    cost = make(x, y)
    out = solve(Problem(cost, cost.epsilon(0.05), rho_x=rho, rho_y=rho), tolerance=1e-11)
    coupling = out.coupling
    # to what was in the problem the half step gives back what the problem gave
    torch.testing.assert_close(coupling.extend(x[:7]), out.f[:7], rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(coupling.swapped.extend(y[:7]), out.g[:7], rtol=1e-6, atol=1e-6)
    new = clouds(9, 1, seed=5)[0]
    later = coupling.with_left(new)
    assert later.shape == (9, 35)
    if rho is None:
        torch.testing.assert_close(later.marginals().rows, torch.full((9,), 1 / 9, dtype=torch.float64))
    expected = (out.g - torch.from_numpy(true_cost(new, y, cost.kind))) / coupling.problem.epsilon
    torch.testing.assert_close(later.row_normalised(slice(None), slice(None)), expected.softmax(1))
    assert torch.equal(later.top_k(1)[1][:, 0], expected.argmax(1))
    columns = coupling.swapped.with_left(clouds(4, 1, seed=6)[0]).swapped
    assert columns.shape == (50, 4)


@pytest.mark.parametrize("eta", [0.01, 1e-4])
def test_a_planted_permutation_is_found(eta):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(150, 10, generator=g)
    order = torch.randperm(150, generator=g)
    y = x[order] + 0.05 * torch.randn(150, 10, generator=g)
    cost = cosine(x, y)
    out = solve(Problem(cost, cost.epsilon(eta)))
    assert out.converged
    assert torch.equal(out.coupling.swapped.top_k(1)[1][:, 0], order)
    assert torch.equal(order[out.coupling.top_k(1)[1][:, 0]], torch.arange(150))
    assert out.coupling.effective_matches().max() < 10


def test_dot_takes_factors_as_they_are():
    x, y = clouds(5, 4)
    torch.testing.assert_close(dot(x, y).dense(), 1 - x @ y.T)
