"""Spectra against numpy by the definition, the exact case (anchors are the rows), and degenerate input."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from relcore.metrics import health, spectrum


def rows(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Gaussian rows of spectrum k^-0.8, on the same random axes for every seed, about mean 0."""
    rng = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(np.random.default_rng(99).normal(size=(d, d)))
    v = rng.normal(size=(n, d)) * np.arange(1, d + 1) ** -0.4 @ turn
    return (v - v.mean(0)).astype(np.float32)


def test_equal_directions_count_fully_and_one_counts_once():
    assert spectrum.participation_ratio(np.ones(7)) == pytest.approx(7)
    assert spectrum.effective_rank(np.ones(7)) == pytest.approx(7)
    assert spectrum.participation_ratio(np.array([4.0, 0, 0])) == spectrum.effective_rank(np.array([4.0, 0, 0])) == 1.0
    assert spectrum.participation_ratio(np.zeros(3)) == spectrum.effective_rank(np.zeros(3)) == 0.0


def test_participation_is_the_dimension_that_health_reports():
    v = rows(200, 12)
    want = health.effective_dimension(torch.from_numpy(v))
    assert spectrum.participation_ratio(spectrum.eigenvalues(v)) == pytest.approx(want, rel=1e-5)


@pytest.mark.parametrize("n, d", [(200, 12), (12, 40), (1, 5)])
def test_eigenvalues_are_those_of_the_covariance(n, d):
    v = rows(n, d) + 3
    want = np.sort(np.linalg.eigvalsh(np.cov(v.astype(np.float64).T, bias=True)))[::-1][: min(n, d)]
    np.testing.assert_allclose(spectrum.eigenvalues(v), want, atol=2e-5 * max(want.max(), 1e-9))


@pytest.mark.parametrize("count", [6, 30, 200])
@pytest.mark.parametrize("gamma, ridge", [(0.0, 0.0), (1.0, 0.0), (1.5, 1.5), (2.0, 0.3)])
def test_the_spectrum_is_that_of_the_profiles_themselves(count, gamma, ridge):
    """Against the definition: the N-wide profiles and the eigenvalues of their covariance."""
    v = rows(150, 12)
    a = rows(count, 12, seed=1).astype(np.float64)
    values, axes = np.linalg.eigh(a.T @ a / count)
    mean = values.mean()
    power = axes @ np.diag(np.maximum(values + ridge * mean, 1e-6 * mean) ** (-gamma / 2)) @ axes.T
    profiles = v.astype(np.float64) @ power @ a.T
    want = np.linalg.eigvalsh(np.cov(profiles.T, bias=True))[::-1]
    got = spectrum.Profiles(v, a).spectrum(gamma, ridge)
    np.testing.assert_allclose(got, want[: len(got)], rtol=1e-3, atol=1e-6 * want[0])
    assert want[len(got) :].max(initial=0) < 1e-8 * want[0]


@pytest.mark.parametrize("gamma", spectrum.GAMMAS)
def test_anchors_that_are_the_rows_follow_the_law(gamma):
    """N s^(2 - gamma), and the log-slope 2 - gamma with it."""
    v = rows(400, 10)
    data = spectrum.eigenvalues(v)
    got = spectrum.Profiles(v, v).spectrum(gamma)
    np.testing.assert_allclose(np.sort(got), np.sort(spectrum.predicted(data, gamma, 400)), rtol=1e-3)
    assert spectrum.slope(got, data) == pytest.approx(2 - gamma, abs=0.01)


def test_gamma_spreads_the_spectrum_and_few_anchors_bend_it_back():
    """The shape of the paper's figure: rising to gamma 2 with many anchors, a peak before it with few."""
    v = rows(4000, 60)
    many = [spectrum.participation_ratio(spectrum.Profiles(v, rows(4000, 60, 2)).spectrum(g)) for g in (0, 1, 2)]
    assert many[0] < many[1] < many[2]
    few = [spectrum.participation_ratio(spectrum.Profiles(v, rows(70, 60, 2)).spectrum(g)) for g in (0, 1, 1.5, 2)]
    assert few[0] < few[1] < few[2] and few[3] < few[2]


def analysed(x, y, anchors):
    sides, aligned = {"x": x, "y": y}, {"x": x[:, :3], "y": y[:, :3]}
    return spectrum.analyse(sides, aligned, {s: v[:anchors] for s, v in sides.items()}, (0.0, 1.5))


@pytest.mark.parametrize("anchors", [1, 2, 9, 50])
def test_any_number_of_anchors_gives_finite_figures(anchors):
    arrays = analysed(rows(50, 20), rows(60, 8, 1), anchors)
    for side in "xy":
        assert arrays[f"spectrum/{side}/participation"].shape == (2, len(spectrum.GAMMAS))
        assert np.isfinite(arrays[f"spectrum/{side}/participation"]).all()
        assert (arrays[f"spectrum/{side}/rank"] <= min(anchors, 20) + 1e-6).all()
    summary = spectrum.summary(arrays)
    assert summary["x"]["data"]["dimensions"] == 20 and summary["gamma"][-1] == 2.0


def test_anchors_that_repeat_or_are_zero_break_nothing():
    x = rows(50, 20)
    for anchors in (np.repeat(x[:1], 6, 0), np.zeros((4, 20), np.float32)):
        arrays = spectrum.analyse({"x": x, "y": x}, {"x": x, "y": x}, {"x": anchors, "y": anchors})
        assert np.isfinite(arrays["spectrum/x/participation"]).all()


def test_large_and_small_numbers_have_the_spectrum_of_their_multiple():
    v, anchors = rows(60, 5), rows(20, 5, seed=1)
    for scale in (1e18, 1e-18):
        np.testing.assert_allclose(spectrum.eigenvalues(v * scale), spectrum.eigenvalues(v) * scale**2, rtol=1e-4)
        for gamma in (0.0, 1.5):
            before, after = (spectrum.Profiles(v * s, anchors * s).spectrum(gamma, 1.0) for s in (1.0, scale))
            np.testing.assert_allclose(after, before * scale ** (4 - 2 * gamma), rtol=1e-4)


def test_without_anchors_there_is_no_curve():
    arrays = analysed(rows(50, 20), rows(60, 8, 1), 0)
    assert "spectrum/gamma" not in arrays and arrays["spectrum/x/data"].shape == (20,)
    assert "gamma" not in spectrum.summary(arrays) and spectrum.summary({}) == {}
