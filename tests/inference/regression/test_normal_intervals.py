"""Intervals of numbers whose errors are normal around a mean that is known to be between bounds."""

import numpy as np
import pytest
from scipy import stats

from dpstats.analyses.regression.glm import NormalIntervals


@pytest.mark.parametrize("alpha", [0.3, 1e-6])
def test_the_largest_error_over_all_means_is_alpha(alpha):
    low, high = np.array([0, 0, -1, -0.2, -40.0]), np.array([0, 0.5, 1, 3, 10.0])
    sampling, noise = np.full(5, 1.5), np.array([0.5, 0.5, 2, 0.1, 1])
    intervals = NormalIntervals(np.zeros(5), sampling, noise, low, high)
    for target, sd in (("population", np.sqrt(sampling + noise)), ("table", np.sqrt(noise))):
        ends = intervals.noise_aware(alpha, target)
        means = np.linspace(low, high, 201)
        missed = stats.norm.cdf((means + ends[0]) / sd) + stats.norm.sf((means + ends[1]) / sd)
        np.testing.assert_allclose(missed.max(axis=0), alpha, rtol=1e-6)
        np.testing.assert_allclose(missed[[0, -1]], alpha, rtol=1e-6)
        if target == "population":
            for end in ends:
                pvalues = np.diag([intervals.pvalues(value, "two-sided") for value in end])
                np.testing.assert_allclose(pvalues, alpha, rtol=1e-6)
    classical = stats.norm.isf(alpha / 2) * np.sqrt(2)
    np.testing.assert_allclose([end[0] for end in intervals.noise_aware(alpha, "population")],
                               [-classical, classical])  # fmt: skip


def test_values_between_the_bounds_are_not_rejected_and_nothing_is_known_without_an_estimate():
    one = NormalIntervals(*(np.array([value]) for value in (0.0, 1.0, 1.0, -1.0, 2.0)))
    assert one.pvalues(0.5, "two-sided") == 1
    np.testing.assert_array_equal(np.ravel(one.noise_aware(0.99, "population")), [-2, 1])
    none = NormalIntervals(*(np.array([value]) for value in (np.nan, np.inf, np.inf, 0, 0)))
    np.testing.assert_array_equal(np.ravel(none.noise_aware(0.05, "population")), [-np.inf, np.inf])
    assert none.pvalues(0.0, "two-sided") == 1
