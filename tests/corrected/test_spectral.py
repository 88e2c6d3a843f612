"""Bounds for eigenvalues, angles and loadings of a matrix within a radius."""

import numpy as np
import pytest

import dpstats as dps
from dpstats.corrected.eigenvalues import (
    descending,
    loading_bounds,
    sampling_radii,
    sine_bounds,
    subspace_sines,
)


def symmetric(rng, p):
    square = rng.standard_normal((p, p))
    return (square + square.T) / 2


@pytest.mark.parametrize("size", [0.02, 0.3])
def test_no_error_of_that_norm_turns_vectors_farther(size):
    """Errors of the largest norm, random ones and those that mix two neighbours."""
    rng = np.random.default_rng(1)
    closest = np.inf
    for trial in range(150):
        truth = np.diag([3.0, 2.0, 1.5, 0.1])
        error = symmetric(rng, 4)
        if trial % 2:
            i = trial % 3
            error = np.zeros((4, 4))
            error[i, i + 1] = error[i + 1, i] = 1
            error[i, i], error[i + 1, i + 1] = -1, 1
        error *= size / np.linalg.norm(error, 2)
        values, vectors = descending(truth + error)
        assert np.all(np.abs(values - np.diag(truth)) <= size + 1e-12)
        own = np.sqrt(np.clip(1 - np.diag(vectors) ** 2, 0, 1))
        bounds = sine_bounds(values, size)
        assert np.all(own <= bounds + 1e-7)
        closest = min(closest, np.min(bounds / np.maximum(own, 1e-9)))
        for k in range(1, 5):
            least = np.linalg.svd(vectors[:k, :k], compute_uv=False)[-1]
            angle = np.sqrt(max(0, 1 - least**2))
            assert angle <= subspace_sines(values, size)[k - 1] + 1e-7
        low, high = loading_bounds(vectors, bounds)
        signed = np.eye(4) * np.sign(np.diag(vectors))
        assert np.all((low <= signed + 1e-9) & (signed <= high + 1e-9))
    assert closest < 4  # the bound is not idle


def test_bounds_say_nothing_without_a_gap():
    np.testing.assert_array_equal(sine_bounds(np.array([1.0, 0.9, 0.1]), 0.06)[:2], 1)
    assert sine_bounds(np.array([1.0, 0.9, 0.1]), 0.06)[2] == pytest.approx(0.06 / 0.74)
    assert subspace_sines(np.array([1.0, 0.9, 0.1]), 0.06)[2] == 0
    np.testing.assert_array_equal(subspace_sines(np.array([1.0, 0.9, 0.1]), np.inf), [1, 1, 0])
    low, high = loading_bounds(np.array([[0.6, 0.8]]), np.array([1.0]))
    np.testing.assert_array_equal(low, -1)
    np.testing.assert_array_equal(high, 1)


def test_loading_bounds_are_reached_by_turned_vectors():
    rng = np.random.default_rng(2)
    vector = np.array([0.1, -0.3, 0.9])
    vector /= np.linalg.norm(vector)
    low, high = loading_bounds(vector[np.newaxis], np.array([0.4]))
    turned = rng.standard_normal((5_000, 3))
    turned -= np.outer(turned @ vector, vector)
    turned /= np.linalg.norm(turned, axis=1, keepdims=True)
    angle = np.arcsin(0.4)
    reached = np.cos(angle) * vector + np.sin(angle) * turned
    assert np.all((low[0] - 1e-9 <= reached) & (reached <= high[0] + 1e-9))
    np.testing.assert_allclose(reached.min(axis=0), low[0], atol=3e-3)
    np.testing.assert_allclose(reached.max(axis=0)[:2], high[0][:2], atol=3e-3)
    assert high[0][2] == 1 or high[0][2] == pytest.approx(reached.max(axis=0)[2], abs=3e-3)


def test_sampling_radii_hold_for_skewed_rows():
    """At gamma = 1/2, so that a radius that is too short by a half is seen."""
    rng = np.random.default_rng(3)
    n, p, runs = 50, 3, 100
    rows = np.where(rng.random((20_000, p)) < 0.05, 1.0, -0.9) * [1, 0.8, 0.3]
    truth, inside = np.cov(rows.T, ddof=0), np.zeros(2)
    shortest = np.inf
    for _ in range(runs):
        drawn = rows[rng.integers(0, len(rows), n)]
        own = np.cov(drawn.T, ddof=0)
        radii = sampling_radii(np.linalg.eigvalsh(own)[-1], np.trace(own), n, p, p, 4 * p, 0.5)
        apart = np.linalg.norm(own - truth, 2), abs(np.trace(own - truth))
        inside += np.array(apart) <= radii
        shortest = min(shortest, radii[0] / apart[0])
    assert np.all(inside >= 0.5 * runs)
    assert shortest < 20


@pytest.mark.parametrize("centered", [True, False])
def test_corrected_eigenvalues_cover_at_the_worst_centre(centered):
    """A centre that is off by the whole radius, rows in a ball of squared length 2."""
    rng, n, radius = np.random.default_rng(4), 500, 0.05
    rows = rng.uniform(-1, 1, (20_000, 2)) @ np.array([[1, 0.6], [0, 0.5]])
    options = {"spectral_radius": radius, "ball": (rows**2).sum(axis=1).max(), "centered": centered}
    second = lambda x: np.cov(x.T, ddof=0) if centered else x.T @ x / len(x)  # noqa: E731
    values = np.linalg.eigvalsh(second(rows))[::-1]
    for sign in (-1, 1):
        own = second(rows[rng.integers(0, len(rows), n)]) + sign * radius * np.eye(2)
        low, high = dps.corrected.eigenvalues(own, n=n, **options)
        assert np.all((low <= values) & (values <= high))


def test_corrected_eigenvalues_of_many_rows_are_weyls():
    matrix = np.array([[0.5, 0.2], [0.2, 0.3]])
    own = np.linalg.eigvalsh(matrix)[::-1]
    low, high = dps.corrected.eigenvalues(matrix, n=10**12, spectral_radius=0.03)
    np.testing.assert_allclose(low, own - 0.03, atol=1e-4)
    np.testing.assert_allclose(high, own + 0.03, atol=1e-4)
    entries = np.array([[0.01, 0.02], [0.02, 0.04]])
    low, _ = dps.corrected.eigenvalues(matrix, entries, 10**12)
    np.testing.assert_allclose(low, own - np.linalg.norm(entries, 2), atol=1e-4)
    low, high = dps.corrected.eigenvalues(matrix, np.inf, 100)
    assert np.all((low == 0) & np.isinf(high))


def test_one_radius_bounds_every_entry():
    """Errors of the same size in all of p^2 entries move an eigenvalue by p times that size."""
    p, radius = 10, 0.02
    truth = 0.3 * np.eye(p) + 0.05
    own = np.linalg.eigvalsh(truth)[::-1]
    matrix = truth + radius * np.ones((p, p))
    low, high = dps.corrected.eigenvalues(matrix, radius, 10**12)
    assert np.all((low <= own + 1e-9) & (own - 1e-9 <= high))
    given = dps.corrected.eigenvalues(matrix, np.full((p, p), radius), 10**12)
    np.testing.assert_allclose(given, [low, high])
    spectral = dps.corrected.eigenvalues(matrix, n=10**12, spectral_radius=p * radius)
    np.testing.assert_allclose(spectral, [low, high])
