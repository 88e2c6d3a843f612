"""Bounds on the distance of one number's laws, against scipy and against every law between."""

import numpy as np
from scipy import stats

from dpstats.corrected.means import wasserstein_bound


def test_between_equal_bounds_it_is_the_distance_itself():
    rng = np.random.default_rng(0)
    cuts = np.sort(rng.uniform(0, 10, 6))
    masses = rng.dirichlet(np.ones(5))  # at the first five cuts
    exact = np.cumsum(masses)
    values = rng.uniform(cuts[0], cuts[-1], 40)
    expected = stats.wasserstein_distance(values, cuts[:5], None, masses)
    np.testing.assert_allclose(wasserstein_bound(values, cuts, exact, exact), expected)


def test_it_bounds_every_law_whose_distribution_function_is_known_at_the_cuts():
    """And some law attains it within the bins: all mass of each at one of its ends."""
    rng = np.random.default_rng(1)
    cuts, attained = np.array([0.0, 1.0, 4.0, 5.0]), 0.0
    for _ in range(50):
        masses = rng.dirichlet(np.ones(3))
        f = np.concatenate([[0.0], np.cumsum(masses)])
        values = rng.uniform(0, 5, 30)
        bound = wasserstein_bound(values, cuts, f[:-1], f[1:])
        for _ in range(20):
            place = cuts[:-1] + np.diff(cuts) * rng.choice([0, 0.3, 1], 3)
            distance = stats.wasserstein_distance(values, place, None, masses)
            assert distance <= bound + 1e-12
            attained = max(attained, distance / bound)
    assert attained > 0.7
