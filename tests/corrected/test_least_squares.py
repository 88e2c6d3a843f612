import itertools

import numpy as np
import pytest
from scipy import stats

import dpstats as dps
from dpstats.corrected import least_squares as interval_systems
from dpstats.corrected.least_squares import combination_bounds, solution_bounds


def system(p, size, seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (200, p))
    matrix, right = x.T @ x / 200, rng.uniform(-0.3, 0.3, p)
    return matrix, right, size * rng.random((p, p)), size * rng.random(p)


@pytest.mark.parametrize(("p", "size"), [(1, 0.08), (2, 0.0), (2, 0.08), (3, 0.02)])
def test_bounds_hold_every_corner_and_are_sharp(p, size):
    for seed in range(1 if p == 3 else 4):
        matrix, right, radius, right_radius = system(p, size, seed)
        directions = np.vstack([np.eye(p), np.random.default_rng(seed).normal(size=(2, p))])
        low, high = solution_bounds(matrix, right, radius, right_radius, directions)
        found = []
        # The extremes of an interval system are at corners of the box.
        for signs in itertools.product((-1, 1), repeat=p * p + p):
            corner = np.array(signs)
            a = matrix + radius * corner[: p * p].reshape(p, p)
            found.append(directions @ np.linalg.solve(a, right + right_radius * corner[p * p :]))
        np.testing.assert_array_less(low - 1e-9, np.min(found, axis=0))
        np.testing.assert_array_less(np.max(found, axis=0), high + 1e-9)
        np.testing.assert_allclose(low, np.min(found, axis=0), atol=1e-5)
        np.testing.assert_allclose(high, np.max(found, axis=0), atol=1e-5)


def test_singular_matrices_in_the_box_give_no_bound():
    matrix, right, radius, right_radius = system(2, 1.0, 0)
    low, high = solution_bounds(matrix, right, radius + 0.4, right_radius, np.eye(2))
    assert np.all(np.isneginf(low))
    assert np.all(np.isposinf(high))
    low, high = solution_bounds(np.zeros((2, 2)), right, radius, right_radius, np.eye(2))
    assert np.all(np.isinf([low, high]))


def moments(n=400, seed=0):
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, 2))])
    y = x @ [0.1, 0.4, -0.2] + rng.normal(0, 0.2, n)
    rows = np.column_stack([x, y])
    return rows.T @ rows / n, x, y


def test_without_radius_ols_is_the_classical_interval():
    import statsmodels.api as sm

    second, x, y = moments()
    fit = sm.OLS(y, x).fit()
    low, high = dps.corrected.ols(second, 0.0)
    np.testing.assert_allclose(low, fit.params)
    np.testing.assert_allclose(high, fit.params)
    low, high = dps.corrected.ols(second, 0.0, n=len(y), alpha=0.1, beta=0.04)
    np.testing.assert_allclose(np.stack([low, high], axis=1), fit.conf_int(alpha=0.06))


def test_no_more_rows_than_coefficients_or_a_wide_radius_say_nothing():
    assert np.all(np.isinf(dps.corrected.ols(moments()[0], 0.001, n=3)))
    assert np.all(np.isinf(dps.corrected.ols(moments()[0], 0.4, n=100)))


def test_the_sampling_part_is_that_of_the_least_regular_matrix():
    # One regressor whose mean square is known to lie in [0.3, 0.7]: errors are largest at 0.3.
    second, n = np.array([[0.5, 0.0], [0.0, 0.3]]), 100
    low, high = dps.corrected.ols(second, [[0.2, 0], [0, 0]], n=n, intercept=False)
    reach = stats.t.isf(0.0125, n - 1) * np.sqrt(0.3 / (n - 1) / 0.3)
    np.testing.assert_allclose([low[0], high[0]], [-reach, reach], atol=1e-6)
    second[1, 1] = 0.1  # and where the response's own mean square is between 0.1 and 0.2
    low, high = dps.corrected.ols(second, [[0, 0], [0, 0.1]], n=n, intercept=False)
    assert high[0] == pytest.approx(stats.t.isf(0.0125, n - 1) * np.sqrt(0.2 / (n - 1) / 0.5))


def test_an_orthant_that_the_solver_is_not_sure_of_leaves_the_closed_bound(monkeypatch):
    matrix, right, radius, right_radius = system(3, 0.05, 1)
    monkeypatch.setattr(interval_systems, "MOST_UNKNOWNS", 0)
    closed = solution_bounds(matrix, right, radius, right_radius, np.eye(3))
    monkeypatch.undo()
    monkeypatch.setattr(interval_systems, "_extremes", lambda *a: None)
    np.testing.assert_array_equal(
        solution_bounds(matrix, right, radius, right_radius, np.eye(3)), closed
    )


@pytest.mark.parametrize("seed", [220, 727])
def test_radii_within_the_solvers_tolerances_leave_the_closed_bound(seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (200, 2))
    matrix, b = x.T @ x / 200, rng.normal(size=2) * 10 ** rng.uniform(3, 6)
    radius = 10 ** rng.uniform(-12, -7)
    low, high = solution_bounds(
        matrix, matrix @ b, np.full((2, 2), radius), np.full(2, radius), np.eye(2)
    )
    corners = [
        np.linalg.solve(matrix + radius * np.reshape(s[:4], (2, 2)), matrix @ b + radius * s[4:])
        for s in np.array([*itertools.product((-1, 1), repeat=6)])
    ]
    rounding = 1e-9 * np.abs(b).max()
    assert np.all(low <= np.min(corners, axis=0) + rounding)
    assert np.all(np.max(corners, axis=0) <= high + rounding)
    assert np.all(high - low <= 1.5 * np.ptp(corners, axis=0) + 1e-5 * np.abs(b))


def test_no_bound_along_one_direction_if_another_has_no_end():
    # b_2 = 1 / a for a in [-0.05, 0.15]: the part that has a > 0 does not hold every solution.
    matrix, radius = np.diag([1, 0.05]), np.diag([0, 0.1])
    found = solution_bounds(matrix, np.ones(2), radius, np.zeros(2), np.eye(2)[:1])
    np.testing.assert_array_equal(found, [[-np.inf], [np.inf]])


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
    again = combination_bounds(second, radius, np.eye(3), rows=(10, 6), error=0.025)
    np.testing.assert_allclose(again, [low, high])
    none = combination_bounds(second, radius, np.eye(3), rows=(10, 3), error=0.025)
    assert np.all(np.isinf(none))


@pytest.mark.parametrize("seed", range(2))
def test_under_a_penalty_the_sampling_part_holds_that_of_any_equal_errors(seed):
    # Rows of an exact linear model: every x with errors +-e, whose squared score is averaged.
    rng = np.random.default_rng(seed)
    points, weights = rng.uniform(-1, 1, (6, 3)), rng.dirichlet(np.ones(6))
    points[:, 0] = 1
    slopes, e, penalty = rng.normal(0, 1, 3), 0.05, np.array([0, 0.3, 0.05])
    x = np.repeat(points, 2, axis=0)
    y = x @ slopes + np.tile([e, -e], 6)
    share = np.repeat(weights, 2) / 2
    second = np.column_stack([x, y])
    second = (second.T * share) @ second
    gram = second[:3, :3] + np.diag(penalty)
    b = np.linalg.solve(gram, second[:3, 3])
    scores = x @ np.linalg.inv(gram) * (y - x @ b)[:, None]
    exact = np.sqrt((share @ scores**2) / 1_000)
    limits = np.abs(np.column_stack([x, y])).max(axis=0)
    for size in (0.0, 0.01):
        radius = np.full((4, 4), size)
        radius[0, 0] = 0
        options = {"directions": np.eye(3), "ridge": penalty}
        low, high = combination_bounds(
            second, radius, rows=(1_000, 1_000), error=0.025, bounds=limits, **options
        )
        inner = combination_bounds(second, radius, **options)
        for apart in (inner[0] - low, high - inner[1]):
            assert np.all(apart >= stats.t.isf(0.0125, 997) * exact)
