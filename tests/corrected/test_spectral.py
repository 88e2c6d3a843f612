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


def test_no_error_of_that_norm_turns_vectors_farther():
    """Errors of the largest norm, random ones and those that mix two neighbours."""
    rng, closest = np.random.default_rng(1), np.inf
    truth = np.diag([3.0, 2.0, 1.5, 0.1])
    for trial in range(160):
        size, error = (0.02, 0.3)[trial // 80], symmetric(rng, 4)
        if trial % 2:
            i, error = trial % 3, np.zeros((4, 4))
            error[i : i + 2, i : i + 2] = [[-1, 1], [1, 1]]
        error *= size / np.linalg.norm(error, 2)
        values, vectors = descending(truth + error)
        assert np.all(np.abs(values - np.diag(truth)) <= size + 1e-12)
        own = np.sqrt(np.clip(1 - np.diag(vectors) ** 2, 0, 1))
        bounds = sine_bounds(values, size)
        assert np.all(own <= bounds + 1e-7)
        closest = min(closest, np.min(bounds / np.maximum(own, 1e-9)))
        leasts = [np.linalg.svd(vectors[:k, :k], compute_uv=False)[-1] for k in range(1, 5)]
        angles = np.sqrt(np.clip(1 - np.square(leasts), 0, 1))
        assert np.all(angles <= subspace_sines(values, size) + 1e-7)
        low, high = loading_bounds(vectors, bounds)
        signed = np.eye(4) * np.sign(np.diag(vectors))
        assert np.all((low <= signed + 1e-9) & (signed <= high + 1e-9))
    assert closest < 4  # the bound is not idle


def test_bounds_say_nothing_without_a_gap():
    values = np.array([1.0, 0.9, 0.1])
    assert sine_bounds(values, 0.06) == pytest.approx([1, 1, 0.06 / 0.74])
    assert subspace_sines(values, 0.06)[2] == 0
    np.testing.assert_array_equal(subspace_sines(values, np.inf), [1, 1, 0])
    found = loading_bounds(np.array([[0.6, 0.8]]), np.array([1.0]))
    np.testing.assert_array_equal(found, [[[-1, -1]], [[1, 1]]])


def test_loading_bounds_are_reached_by_turned_vectors():
    rng = np.random.default_rng(2)
    vector = np.array([0.1, -0.3, 0.9])
    vector /= np.linalg.norm(vector)
    low, high = np.ravel(loading_bounds(vector[np.newaxis], np.array([0.4]))).reshape(2, 3)
    turned = rng.standard_normal((5_000, 3))
    turned -= np.outer(turned @ vector, vector)
    turned /= np.linalg.norm(turned, axis=1, keepdims=True)
    reached = np.sqrt(1 - 0.4**2) * vector + 0.4 * turned
    assert np.all((low - 1e-9 <= reached) & (reached <= high + 1e-9))
    np.testing.assert_allclose(reached.min(axis=0), low, atol=3e-3)
    np.testing.assert_allclose(reached.max(axis=0), high, atol=3e-3)


def test_sampling_radii_hold_for_skewed_rows():
    """At gamma = 1/2, so that a radius that is too short by a half is seen."""
    rng = np.random.default_rng(3)
    n, p, runs = 50, 3, 100
    rows = np.where(rng.random((20_000, p)) < 0.05, 1.0, -0.9) * [1, 0.8, 0.3]
    truth, ratios = np.cov(rows.T, ddof=0), []
    for _ in range(runs):
        own = np.cov(rows[rng.integers(0, len(rows), n)].T, ddof=0)
        radii = sampling_radii(np.linalg.eigvalsh(own)[-1], np.trace(own), n, p, p, 4 * p, 0.5)
        apart = np.linalg.norm(own - truth, 2), abs(np.trace(own - truth))
        ratios.append(np.divide(radii, apart))
    assert np.all(np.mean(np.array(ratios) >= 1, axis=0) >= 0.5)
    assert np.min(ratios, axis=0)[0] < 20


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
    """One radius bounds every entry: of p^2 errors of that size the norm is p times as large."""
    matrix, many = np.array([[0.5, 0.2], [0.2, 0.3]]), 10**12
    own = np.linalg.eigvalsh(matrix)[::-1]
    entries = np.array([[0.01, 0.02], [0.02, 0.04]])
    for norm, options in (
        (0.03, {"spectral_radius": 0.03}),
        (0.06, {"radius": 0.03}),
        (np.linalg.norm(entries, 2), {"radius": entries}),
    ):
        found = dps.corrected.eigenvalues(matrix, n=many, **options)
        np.testing.assert_allclose(found, [own - norm, own + norm], atol=1e-4)
    low, high = dps.corrected.eigenvalues(matrix, np.inf, 100)
    assert np.all((low == 0) & np.isinf(high))
