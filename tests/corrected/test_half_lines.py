"""One-sided bounds on coefficients where a box of moments holds singular matrices."""

import numpy as np
import pytest

from dpstats.corrected.least_squares import (
    MOST_SLOPES,
    _half_line_extremes,
    combination_bounds,
    half_line_bounds,
)


def table(p, seed, n=300, noise=0.3):
    """Regressors with a constant, the first slope steep and its column narrow, and a response."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 1, (n, p)) * np.r_[0.1, np.full(p - 1, 0.5)] + 0.1
    y = 0.2 + x @ np.r_[3.0, np.full(p - 1, 0.3)] + rng.normal(0, noise, n)
    return np.column_stack([np.ones(n), x, y])


def off(rows, size, rng, of_count=0.0):
    """Noisy second moments, with radii that hold."""
    moments = rows.T @ rows / len(rows)
    radii = np.full(moments.shape, size)
    radii[0, 0] = of_count
    noise = np.triu(rng.uniform(-1, 1, moments.shape) * radii)
    return moments + noise + np.triu(noise, 1).T, radii


@pytest.mark.parametrize("constant", [0, None])
@pytest.mark.parametrize("p", [1, 2])
def test_bounds_hold_the_tables_coefficients_and_have_one_end(p, constant):
    rng, ends, sides = np.random.default_rng(p), [], []
    for seed in range(5):
        rows = table(p, seed) if constant == 0 else table(p, seed)[:, 1:]
        size = 0.01 if p == 1 else 0.006
        moments, radii = off(rows, size, rng, 0.01 if constant == 0 else size)
        truth = np.linalg.lstsq(rows[:, :-1], rows[:, -1], rcond=None)[0]
        directions = np.vstack([np.eye(len(truth)), rng.normal(size=(1, len(truth)))])
        low, high = half_line_bounds(moments, radii, directions, constant=constant)
        value = directions @ truth
        assert np.all((low <= value) & (value <= high))
        slope = 1 if constant == 0 else 0
        ends.append(np.isfinite(low[slope]))
        sides.append(low[slope] > 0)
        usual = combination_bounds(moments, radii, directions[[slope]])
        if constant is None and np.isfinite(usual[0]):  # no wider than without the matrix's sign
            assert low[slope] >= usual[0] * (1 - 1e-5) - 1e-5
            assert high[slope] <= usual[1] * (1 + 1e-5) + 1e-5
        if constant == 0:
            assert np.isinf([low[0], high[0], low[-1], high[-1]]).all()
    assert np.mean(ends) > 0.5
    assert np.mean(sides) > 0.5


@pytest.mark.parametrize("square", [-0.01, 0.05])
def test_one_slope_is_the_smallest_and_largest_quotient(square):
    moments, radii = np.array([[square, 0.06], [0.06, 1]]), np.full((2, 2), 0.02)
    (low,), (high,) = half_line_bounds(moments, radii, np.eye(1))
    assert low == pytest.approx(0.04 / (square + 0.02), rel=1e-5)
    assert high == (pytest.approx(0.08 / 0.03, rel=1e-5) if square == 0.05 else np.inf)
    (low,), (high,) = half_line_bounds(-moments, radii, np.eye(1)) if square < 0 else (
        half_line_bounds(moments * [[1, -1], [-1, 1]], radii, np.eye(1)))  # fmt: skip
    assert high == pytest.approx(-0.04 / (abs(square) + 0.02), rel=1e-5)
    centred = np.array([[1, 0.1, 0.3], [0.1, 0.01 + square, 0.09], [0.3, 0.09, 1.09]])
    radii = np.pad(radii, (1, 0))
    (_, low), (_, high) = half_line_bounds(centred, radii, np.eye(2), constant=0)
    assert low == pytest.approx(0.04 / (square + 0.02), rel=1e-5)


def test_population_bounds_hold_the_populations_coefficients():
    rng, held, known, runs = np.random.default_rng(0), 0, 0, 15
    for seed in range(runs):
        rows = table(1, seed, n=60, noise=1.0)
        moments, radii = off(rows, 0.003, rng, 0.01)
        options = {"constant": 0, "rows": (60, 59), "error": 0.2}
        low, high = half_line_bounds(moments, radii, np.eye(2), **options)
        held += low[1] <= 3.0 <= high[1]
        known += np.isfinite(low[1])
    assert held >= 0.8 * runs
    assert known > 0.5 * runs


def test_nothing_is_known_of_too_many_slopes_too_few_rows_or_hidden_columns():
    for p, rows, change in ((MOST_SLOPES + 1, None, 0), (2, (3, 3), 0), (2, None, 5.0)):
        moments, radii = off(table(p, 1), 0.001, np.random.default_rng(0))
        found = half_line_bounds(
            moments, radii + change, np.eye(p + 1), constant=0, rows=rows, error=0.05
        )
        assert np.isinf(found).all()
    moments, radii = off(table(1, 1), 0.001, np.random.default_rng(0))
    moments[1, 1] = -0.5  # the radii cannot hold
    assert np.isinf(half_line_bounds(moments, radii, np.eye(2), constant=0)).all()


def test_a_row_of_zeros_bounds_nothing():
    """Products that no slope can have, however large they are."""
    zero = np.zeros((1, 1))
    (low,), (high,) = _half_line_extremes(zero, np.array([1e12]), zero, np.zeros(1), np.eye(1))
    assert (low, high) == (-np.inf, np.inf)
