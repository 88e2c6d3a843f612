"""The inverse of noisy moments: without noise, its bias, and its certified bounds."""

from dataclasses import replace

import numpy as np
import pytest

import dpstats as dps
from dpstats.analyses.graphs.noisy_precision import NoisyPrecision

LARGE = dps.PureDP(10_000)


def test_without_noise_it_is_the_inverse(graph_tools):
    """And its bounds for the table are of numpy's divisor."""
    rows = graph_tools.chain_rows(50)
    covariance, _, _ = graph_tools.covariance_of(rows, budget=dps.PureDP(10**7))
    precision = NoisyPrecision(covariance)
    exact = np.linalg.inv(np.cov((rows / graph_tools.half).T))
    np.testing.assert_allclose(precision.matrix, exact * 50 / 49, rtol=1e-3)
    assert not precision.singular
    low, high = precision.bounds(0.05, "table")
    assert np.all((low <= exact + 1e-9) & (exact <= high + 1e-9))
    assert (high - low).max() < 0.01 * np.abs(exact).max()


def test_the_bias_of_the_noise_is_taken_off(graph_tools):
    """The mean over noise of the plain inverse is far off, that of the corrected one is not."""
    covariance, _, _ = graph_tools.covariance_of(budget=dps.PureDP(2))
    exact, sd = covariance.plain, np.sqrt(NoisyPrecision(covariance).noise_variances)
    rng, inverses = np.random.default_rng(1), {"plain": [], "corrected": []}
    for _ in range(600):
        noise = np.triu(rng.standard_normal((4, 4)))
        noisy = replace(covariance)
        noisy.__dict__["plain"] = exact + (np.triu(noise) + np.triu(noise, 1).T) * sd
        precision = NoisyPrecision(noisy)
        precision.__dict__["singular"] = False
        inverses["plain"].append(np.linalg.inv(noisy.plain))
        inverses["corrected"].append(precision.matrix)
    off = {
        name: (np.mean(found, axis=0) - np.linalg.inv(exact)) / np.std(found, axis=0) * 600**0.5
        for name, found in inverses.items()
    }
    assert np.abs(off["plain"]).max() > 4.5
    assert np.abs(off["corrected"]).max() < 4


@pytest.mark.parametrize("clip_norm", [None, 1.0])
def test_variances_of_the_noise_are_those_of_draws(graph_tools, clip_norm):
    covariance, _, _ = graph_tools.covariance_of(budget=dps.PureDP(5), clip_norm=clip_norm)
    drawn = np.concatenate(list(covariance.deviations("privacy"))) / covariance.correction
    expected = NoisyPrecision(covariance).noise_variances
    np.testing.assert_allclose(drawn.var(axis=0), expected, rtol=0.2)


@pytest.mark.parametrize("radius", [0.001, 0.01, 0.05])
def test_bounds_hold_for_every_error_within_the_radius(graph_tools, monkeypatch, radius):
    covariance, _, _ = graph_tools.covariance_of(budget=LARGE)
    precision = NoisyPrecision(covariance)
    monkeypatch.setattr(
        type(precision.radii), "radii", lambda self, alpha, target: (radius, radius)
    )
    low, high = precision.bounds(0.05, "population")
    if radius >= precision.least_eigenvalue:
        assert np.isinf(high).all()
        return
    rng, reached = np.random.default_rng(0), 0.0
    _, vectors = np.linalg.eigh(covariance.plain)
    for trial in range(100):
        error = rng.standard_normal((4, 4))
        error += error.T
        if trial % 2:  # the worst direction shrinks the least eigenvalue
            error = np.outer(vectors[:, 0], vectors[:, 0]) + 0.1 * error
        error *= radius / np.abs(np.linalg.eigvalsh(error)).max()
        found = np.linalg.inv(covariance.plain - error)
        assert np.all(low <= found + 1e-9)
        assert np.all(found <= high + 1e-9)
        reach = (high - low)[0, 0] / 2
        reached = max(reached, np.abs(found - np.linalg.inv(covariance.plain))[0, 0] / reach)
    assert reached > 0.3  # the bound is not idle


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
def test_much_noise_is_nearly_singular(graph_tools, unit):
    covariance, _, _ = graph_tools.covariance_of(budget=dps.PureDP(0.05), unit=unit)
    precision = NoisyPrecision(covariance)
    assert precision.singular
    assert np.isnan(precision.matrix).all()
    assert np.isinf(precision.bounds(0.05, "table")[1]).all()
