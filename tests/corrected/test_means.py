"""Finite-sample bounds for means: exact for coin flips, simulated for others."""

import numpy as np
import pytest
from scipy import stats

from dpstats.corrected.means import (
    bernstein_radius,
    chernoff_confint,
    empirical_bernstein_radius,
    mean_confint,
    wasserstein_bound,
)


def test_chernoff_limits_solve_their_equation():
    mean, n, alpha = np.array([0.0, 0.01, 0.3, 0.9, 1.0]), 400, 0.05
    low, high = chernoff_confint(mean, mean, n, alpha)
    rate = np.log(2 / alpha) / n
    for x, a, b in zip(mean, low, high, strict=True):
        for end in (a, b):
            if 0 < end < 1:
                kl = stats.entropy([x, 1 - x], [end, 1 - end])
                assert kl == pytest.approx(rate, rel=1e-4)
    assert low[0] == 0
    assert high[-1] == 1
    assert high[0] == pytest.approx(1 - np.exp(-rate))  # (1 - p)^n = alpha / 2
    assert np.all(np.maximum(high - mean, mean - low) <= np.sqrt(rate / 2) + 1e-8)


@pytest.mark.parametrize("n", [5, 40, 500])
def test_coverage_of_coin_flips_by_enumeration(n):
    """Every limit, at every count, weighed by its probability; a bound has more than it claims."""
    alpha, counts = 0.1, np.arange(n + 1)
    share = counts / n
    for p in (0.003, 0.05, 0.2, 0.5, 0.8, 0.99):
        mass = stats.binom.pmf(counts, n, p)
        low, high = chernoff_confint(share, share, n, alpha)
        assert mass[(low <= p) & (p <= high)].sum() >= 1 - alpha
        radius = empirical_bernstein_radius(share * (1 - share), n, alpha)
        assert mass[np.abs(share - p) <= radius].sum() >= 1 - alpha
        known = bernstein_radius(np.array(4 * p * (1 - p)), n, alpha)
        assert mass[np.abs(2 * share - 2 * p) <= known].sum() >= 1 - alpha
        unit = 2 * share - 1
        low, high = mean_confint(unit, unit, 1 - unit**2, n, alpha)
        assert mass[(low <= 2 * p - 1) & (2 * p - 1 <= high)].sum() >= 1 - alpha


def test_without_rows_nothing_is_known():
    one = np.ones(1)
    assert mean_confint(one, one, one, 0.0, 0.05) == (-1, 1)
    low, high = mean_confint(np.array([2.0]), np.array([3.0]), one, 100, 0.05)  # a box beyond
    assert high == 1
    assert -1 < low < 1


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
    for _ in range(20):
        masses, values = rng.dirichlet(np.ones(3)), rng.uniform(0, 5, 30)
        f = np.concatenate([[0.0], np.cumsum(masses)])
        bound = wasserstein_bound(values, cuts, f[:-1], f[1:])
        for _ in range(20):
            place = cuts[:-1] + np.diff(cuts) * rng.choice([0, 0.3, 1], 3)
            distance = stats.wasserstein_distance(values, place, None, masses)
            assert distance <= bound + 1e-12
            attained = max(attained, distance / bound)
    assert attained > 0.7
