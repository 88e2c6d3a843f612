"""Bounds on least-squares coefficients, against the corners of the box and simulated moments."""

import itertools

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats

import dpstats as dps
from dpstats.corrected import least_squares
from dpstats.corrected.least_squares import (
    MOST_SLOPES,
    _half_line_extremes,
    combination_bounds,
    half_line_bounds,
    solution_bounds,
)


def system(p, size, seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (200, p))
    matrix, right = x.T @ x / 200, rng.uniform(-0.3, 0.3, p)
    return matrix, right, size * rng.random((p, p)), size * rng.random(p)


def corners(matrix, right, radius, right_radius):
    """Solutions (m, p) at the corners of the box, which hold the extremes."""
    p = len(right)
    signs = np.array(list(itertools.product((-1, 1), repeat=p * p + p)))
    matrices = matrix + radius * signs[:, : p * p].reshape(-1, p, p)
    return np.linalg.solve(matrices, (right + right_radius * signs[:, p * p :])[..., None])[..., 0]


@pytest.mark.parametrize(("p", "size"), [(1, 0.08), (2, 0.0), (2, 0.08), (3, 0.02)])
def test_bounds_hold_every_corner_and_are_sharp(p, size):
    for seed in range(1 if p == 3 else 3):
        box = system(p, size, seed)
        directions = np.vstack([np.eye(p), np.random.default_rng(seed).normal(size=(2, p))])
        low, high = solution_bounds(*box, directions)
        found = corners(*box) @ directions.T
        np.testing.assert_array_less(low - 1e-9, found.min(axis=0))
        np.testing.assert_array_less(found.max(axis=0), high + 1e-9)
        np.testing.assert_allclose([low, high], [found.min(axis=0), found.max(axis=0)], atol=1e-5)


def test_singular_matrices_in_the_box_give_no_bound():
    matrix, right, radius, right_radius = system(2, 1.0, 0)
    for centre, wider in ((matrix, 0.4), (np.zeros((2, 2)), 0.0)):
        found = solution_bounds(centre, right, radius + wider, right_radius, np.eye(2))
        np.testing.assert_array_equal(found, [[-np.inf] * 2, [np.inf] * 2])
    # b_2 = 1 / a for a in [-0.05, 0.15]: no bound along b_1 either
    matrix, radius = np.diag([1, 0.05]), np.diag([0, 0.1])
    found = solution_bounds(matrix, np.ones(2), radius, np.zeros(2), np.eye(2)[:1])
    np.testing.assert_array_equal(found, [[-np.inf], [np.inf]])


def test_an_orthant_that_the_solver_is_not_sure_of_leaves_the_closed_bound(monkeypatch):
    box = system(3, 0.05, 1)
    monkeypatch.setattr(least_squares, "MOST_UNKNOWNS", 0)
    closed = solution_bounds(*box, np.eye(3))
    monkeypatch.undo()
    monkeypatch.setattr(least_squares, "_extremes", lambda *a: None)
    np.testing.assert_array_equal(solution_bounds(*box, np.eye(3)), closed)


@pytest.mark.parametrize("seed", [220, 727])
def test_radii_within_the_solvers_tolerances_leave_the_closed_bound(seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (200, 2))
    matrix, b = x.T @ x / 200, rng.normal(size=2) * 10 ** rng.uniform(3, 6)
    radius = 10 ** rng.uniform(-12, -7)
    box = matrix, matrix @ b, np.full((2, 2), radius), np.full(2, radius)
    low, high = solution_bounds(*box, np.eye(2))
    found, rounding = corners(*box), 1e-9 * np.abs(b).max()
    assert np.all(low <= found.min(axis=0) + rounding)
    assert np.all(found.max(axis=0) <= high + rounding)
    assert np.all(high - low <= 1.5 * np.ptp(found, axis=0) + 1e-5 * np.abs(b))


def moments(n=400, seed=0):
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, 2))])
    y = x @ [0.1, 0.4, -0.2] + rng.normal(0, 0.2, n)
    rows = np.column_stack([x, y])
    return rows.T @ rows / n, x, y


def test_without_radius_ols_is_the_classical_interval():
    second, x, y = moments()
    fit = sm.OLS(y, x).fit()
    np.testing.assert_allclose(dps.corrected.ols(second, 0.0), [fit.params] * 2)
    ends = dps.corrected.ols(second, 0.0, n=len(y), alpha=0.1, beta=0.04)
    np.testing.assert_allclose(np.transpose(ends), fit.conf_int(alpha=0.06))
    # no more rows than coefficients, or a wide radius, say nothing
    assert np.all(np.isinf(dps.corrected.ols(second, 0.001, n=3)))
    assert np.all(np.isinf(dps.corrected.ols(second, 0.4, n=100)))


def test_the_sampling_part_is_that_of_the_least_regular_matrix():
    # One regressor whose mean square is known to lie in [0.3, 0.7]: errors are largest at 0.3.
    second, n = np.array([[0.5, 0.0], [0.0, 0.3]]), 100
    ends = dps.corrected.ols(second, [[0.2, 0], [0, 0]], n=n, intercept=False)
    reach = stats.t.isf(0.0125, n - 1) * np.sqrt(0.3 / (n - 1) / 0.3)
    np.testing.assert_allclose(np.ravel(ends), [-reach, reach], atol=1e-6)
    second[1, 1] = 0.1  # and where the response's own mean square is between 0.1 and 0.2
    _, high = dps.corrected.ols(second, [[0, 0], [0, 0.1]], n=n, intercept=False)
    assert high[0] == pytest.approx(stats.t.isf(0.0125, n - 1) * np.sqrt(0.2 / (n - 1) / 0.5))


def test_an_uncertain_number_of_rows_takes_the_degrees_of_freedom_it_may_not_have():
    # Sums are known; there may be 6 to 14 rows where 10 were counted.
    second, _, _ = moments(10)
    radius = np.zeros((4, 4))
    radius[0, 0] = 0.4
    exact = dps.corrected.ols(second, 0.0)[0]
    system = dps.corrected.ols(second, radius)
    low, high = dps.corrected.ols(second, radius, n=10)
    leverage = np.diag(np.linalg.inv(second[:3, :3] - np.diag([0.4, 0, 0])))
    v = np.append(-exact, 1)
    squares = 10 * (v @ second @ v + 0.4 * exact[0] ** 2)
    reach = stats.t.isf(0.0125, 6 - 3) * np.sqrt(squares / (6 - 3) * leverage / 10)
    np.testing.assert_allclose([system[0] - low, high - system[1]], [reach, reach])
    none = combination_bounds(second, radius, np.eye(3), rows=(10, 3), error=0.025)
    assert np.all(np.isinf(none))


def test_under_a_penalty_the_sampling_part_holds_that_of_any_equal_errors():
    # Rows of an exact linear model: every x with errors +-e, whose squared score is averaged.
    rng = np.random.default_rng(0)
    points, weights = rng.uniform(-1, 1, (6, 3)), rng.dirichlet(np.ones(6))
    points[:, 0] = 1
    slopes, e, penalty = rng.normal(0, 1, 3), 0.05, np.array([0, 0.3, 0.05])
    x, share = np.repeat(points, 2, axis=0), np.repeat(weights, 2) / 2
    y = x @ slopes + np.tile([e, -e], 6)
    rows = np.column_stack([x, y])
    second = (rows.T * share) @ rows
    gram = second[:3, :3] + np.diag(penalty)
    b = np.linalg.solve(gram, second[:3, 3])
    scores = x @ np.linalg.inv(gram) * (y - x @ b)[:, None]
    exact = np.sqrt((share @ scores**2) / 1_000)
    limits = np.abs(rows).max(axis=0)
    for size in (0.0, 0.01):
        radius = np.full((4, 4), size)
        radius[0, 0] = 0
        options = {"directions": np.eye(3), "ridge": penalty}
        low, high = combination_bounds(
            second, radius, rows=(1_000, 1_000), error=0.025, bounds=limits, **options
        )
        inner = combination_bounds(second, radius, **options)
        assert np.all([inner[0] - low, high - inner[1]] >= stats.t.isf(0.0125, 997) * exact)


# One-sided bounds where a box of moments holds singular matrices.


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
def test_half_lines_hold_the_tables_coefficients_and_have_one_end(p, constant):
    rng, ends = np.random.default_rng(p), []
    size, slope = 0.01 if p == 1 else 0.006, 1 if constant == 0 else 0
    for seed in range(3):
        rows = table(p, seed)[:, 1 - slope :]
        moments, radii = off(rows, size, rng, 0.01 if constant == 0 else size)
        truth = np.linalg.lstsq(rows[:, :-1], rows[:, -1], rcond=None)[0]
        directions = np.vstack([np.eye(len(truth)), rng.normal(size=(1, len(truth)))])
        low, high = half_line_bounds(moments, radii, directions, constant=constant)
        assert np.all((low <= directions @ truth) & (directions @ truth <= high))
        ends.append((np.isfinite(low[slope]), low[slope] > 0))
        usual = combination_bounds(moments, radii, directions[[slope]])
        if constant is None and np.isfinite(usual[0]):  # no wider than without the matrix's sign
            assert low[slope] >= usual[0] * (1 - 1e-5) - 1e-5
            assert high[slope] <= usual[1] * (1 + 1e-5) + 1e-5
        if constant == 0:
            assert np.isinf([low[0], high[0], low[-1], high[-1]]).all()
    assert np.all(np.mean(ends, axis=0) > 0.5)


@pytest.mark.parametrize("square", [-0.01, 0.05])
def test_one_slope_is_the_smallest_and_largest_quotient(square):
    moments, radii = np.array([[square, 0.06], [0.06, 1]]), np.full((2, 2), 0.02)
    (low,), (high,) = half_line_bounds(moments, radii, np.eye(1))
    assert low == pytest.approx(0.04 / (square + 0.02), rel=1e-5)
    assert high == (pytest.approx(0.08 / 0.03, rel=1e-5) if square == 0.05 else np.inf)
    mirrored = -moments if square < 0 else moments * [[1, -1], [-1, 1]]
    _, (high,) = half_line_bounds(mirrored, radii, np.eye(1))
    assert high == pytest.approx(-0.04 / (abs(square) + 0.02), rel=1e-5)
    centred = np.array([[1, 0.1, 0.3], [0.1, 0.01 + square, 0.09], [0.3, 0.09, 1.09]])
    (_, low), _ = half_line_bounds(centred, np.pad(radii, (1, 0)), np.eye(2), constant=0)
    assert low == pytest.approx(0.04 / (square + 0.02), rel=1e-5)


def test_population_half_lines_hold_the_populations_coefficients():
    rng, held, known, runs = np.random.default_rng(0), 0, 0, 15
    for seed in range(runs):
        moments, radii = off(table(1, seed, n=60, noise=1.0), 0.003, rng, 0.01)
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
    zero = np.zeros((1, 1))  # products that no slope can have, however large they are
    found = _half_line_extremes(zero, np.array([1e12]), zero, np.zeros(1), np.eye(1))
    np.testing.assert_array_equal(np.ravel(found), [-np.inf, np.inf])


def test_a_constant_of_unknown_mean_square_is_taken_out_at_its_least():
    # Mean products of one slope are known, and there are 8 to 12 rows where 10 were counted.
    moments, radii = np.array([[1, 0.5, 0.1], [0.5, 0.6, 0.5], [0.1, 0.5, 1]]), np.zeros((3, 3))
    radii[0, 0] = 0.2
    slopes = [(0.5 - 0.05 / count) / (0.6 - 0.25 / count) for count in np.linspace(0.8, 1.2, 9)]
    (_, low), (_, high) = half_line_bounds(moments, radii, np.eye(2), constant=0)
    assert low <= min(slopes) <= max(slopes) <= high


def test_under_a_penalty_the_errors_are_those_of_the_largest_coefficient():
    # One regressor of a known mean square, of which the product with the response is not known.
    second, radius = np.array([[0.5, 0.2], [0.2, 0.4]]), np.array([[0, 0.05], [0.05, 0]])
    n, penalty, bounds = 400, 0.5, np.ones(2)
    options = {"rows": (n, n), "error": 0.05, "ridge": np.full(1, penalty), "bounds": bounds}
    ends = combination_bounds(second, radius, np.eye(1), **options)
    square = 0.4 - 2 * 0.2 * 0.2 + 0.2**2 * (0.5 + penalty) + 2 * 0.2 * 0.05
    square *= n / (n - 1)
    square += (penalty * 0.25) ** 2 / 0.5  # by a coefficient of 0.25, for a leverage of one
    reach = 0.05 + stats.t.isf(0.025, n - 1) * np.sqrt(square / n)
    np.testing.assert_allclose(np.ravel(ends), [0.2 - reach, 0.2 + reach], atol=1e-6)
