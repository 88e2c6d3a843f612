"""The set of possible minimisers holds the minimum whenever the bounds at the grid points hold."""

import itertools

import numpy as np
import pytest
from scipy import optimize

from dpstats.analyses.regression.loss_grid import NearMinimisers, quadratic_minimiser


def convex_function(rng, p):
    """A mean of absolute and logistic losses of random rows; its minimum over [-1, 1]^p."""
    rows, kind = rng.normal(0, 1.5, (30, p)), rng.random(30) < 0.5
    shift = rng.normal(0, 1, 30)

    def value(point):
        t = rows @ np.asarray(point) - shift
        return float(np.mean(np.where(kind, np.abs(t), np.logaddexp(0, t) + 0.3 * t**2)))

    start = min(itertools.product(np.linspace(-1, 1, 9), repeat=p), key=value)
    best = optimize.minimize(value, start, method="Nelder-Mead", bounds=[(-1, 1)] * p,
                             options={"xatol": 1e-7, "fatol": 1e-12}).x  # fmt: skip
    reach = np.mean(np.abs(rows) * np.where(kind, 1, 1 + 0.6 * 8)[:, None], axis=0)
    return value, best, reach


def test_the_minimum_is_in_the_set_whatever_the_errors_within_the_bounds():
    """9 functions, with errors at the ends of the bounds, also without convexity or constants."""
    rng, missed = np.random.default_rng(0), 0
    for trial in range(9):
        p = 1 + trial % 3
        value, best, reach = convex_function(rng, p)
        axes = [np.linspace(-1, 1, k) for k in rng.integers(3, 7, p)]
        exact = np.array([value(point) for point in itertools.product(*axes)])
        q = rng.choice([1e-9, 0.1, 1.0]) * rng.random(len(exact))
        noisy = exact + q * rng.choice([-1, 1], len(exact))
        for convex, known in [(True, reach), (True, np.full(p, np.inf)), (False, reach)]:
            near = NearMinimisers(axes, noisy - q, noisy + q, known, convex)
            assert near.possible(best[None])[0], (trial, convex)
            low, high = near.hull.T
            assert np.all((low <= best + 1e-6) & (best - 1e-6 <= high))
            points = rng.uniform(-1, 1, (10, p))
            assert np.all(near.lower(points, points) <= [value(b) + 1e-9 for b in points])
        # Without the errors in the bounds the minimum would be missed.
        missed += not NearMinimisers(axes, noisy, noisy, reach).possible(best[None])[0]
    assert missed > 1


def test_without_convexity_or_constants_only_grid_points_are_excluded():
    axes = [np.array([0.0, 1.0, 2.0])]
    near = NearMinimisers(axes, np.array([1.0, 0.0, 1.0]), np.array([1.0, 0.5, 1.0]),
                          np.array([np.inf]), convex=False)  # fmt: skip
    possible = near.possible(np.array([[0.0], [0.3], [1.0], [2.0]]))
    assert possible.tolist() == [False, False, True, False]
    assert near.hull.tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("p", [1, 3])
def test_the_quadratic_fit_finds_the_minimum_of_a_quadratic(p):
    rng = np.random.default_rng(p)
    axes = [np.linspace(-1, 2, 7)] * p
    root, least = 0.2 * rng.normal(size=(p, p)) + np.eye(p), rng.uniform(0, 1, p)
    points = np.array(list(itertools.product(*axes)))
    values = np.sum(((points - least) @ root.T) ** 2, axis=1)
    for used in (np.zeros(len(values), bool), np.ones(len(values), bool)):
        np.testing.assert_allclose(quadratic_minimiser(axes, values, used), least, atol=1e-9)
    axes = [np.linspace(0, 1, 5)]  # without a minimum inside, the best grid point
    for values, best in [(axes[0], 0.0), (-(axes[0] ** 2), 1.0), ((axes[0] - 3) ** 2, 1.0)]:
        assert quadratic_minimiser(axes, values, np.zeros(5, bool)).tolist() == [best]
