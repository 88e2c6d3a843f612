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
    for ends in (low, high):
        inside = (ends > 0) & (ends < 1)
        kl = stats.entropy([mean, 1 - mean], [ends, 1 - ends])[inside]
        np.testing.assert_allclose(kl, rate, rtol=1e-4)
    assert (low[0], high[-1]) == (0, 1)
    assert high[0] == pytest.approx(1 - np.exp(-rate))  # (1 - p)^n = alpha / 2
    assert np.all(np.maximum(high - mean, mean - low) <= np.sqrt(rate / 2) + 1e-8)


@pytest.mark.parametrize("n", [5, 40, 500])
def test_coverage_of_coin_flips_by_enumeration(n):
    """Every limit, at every count, weighed by its probability; a bound has more than it claims."""
    alpha, counts = 0.1, np.arange(n + 1)
    share = counts / n
    unit = 2 * share - 1
    low, high = chernoff_confint(share, share, n, alpha)
    mean_low, mean_high = mean_confint(unit, unit, 1 - unit**2, n, alpha)
    radius = empirical_bernstein_radius(share * (1 - share), n, alpha)
    for p in (0.003, 0.05, 0.2, 0.5, 0.8, 0.99):
        known = bernstein_radius(np.array(4 * p * (1 - p)), n, alpha)
        held = [
            (low <= p) & (p <= high),
            (mean_low <= 2 * p - 1) & (2 * p - 1 <= mean_high),
            np.abs(share - p) <= radius,
            np.abs(2 * share - 2 * p) <= known,
        ]
        assert np.all(held @ stats.binom.pmf(counts, n, p) >= 1 - alpha)


def test_without_rows_nothing_is_known():
    one = np.ones(1)
    assert mean_confint(one, one, one, 0.0, 0.05) == (-1, 1)
    low, high = mean_confint(np.array([2.0]), np.array([3.0]), one, 100, 0.05)  # a box beyond
    assert -1 < low < high == 1


def test_it_bounds_every_law_whose_distribution_function_is_known_at_the_cuts():
    """And some law attains it within the bins: all mass of each at one of its ends."""
    rng = np.random.default_rng(1)
    cuts, attained = np.array([0.0, 1.0, 4.0, 5.0]), 0.0
    for _ in range(20):
        masses, values = rng.dirichlet(np.ones(3)), rng.uniform(0, 5, 30)
        f = np.concatenate([[0.0], np.cumsum(masses)])
        bound = wasserstein_bound(values, cuts, f[:-1], f[1:])
        for _ in range(10):
            place = cuts[:-1] + np.diff(cuts) * rng.choice([0, 0.3, 1], 3)
            distance = stats.wasserstein_distance(values, place, None, masses)
            assert distance <= bound + 1e-12
            attained = max(attained, distance / bound)
        known = wasserstein_bound(values, cuts, f[1:], f[1:])  # all at the first three cuts
        exact = stats.wasserstein_distance(values, cuts[:3], None, masses)
        assert known == pytest.approx(exact)
    assert attained > 0.7
