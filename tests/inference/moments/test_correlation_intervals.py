"""Limits of correlations that noise puts beyond 1."""

import numpy as np
import pytest

from dpstats.inference.moments.correlation_intervals import CorrelationIntervals, NoisyPair
from dpstats.privacy.laws import DiscreteLaplace

UNITS = np.array([1.0, 1e3, 1e3, 1e6, 1e6, 1e6])


def pair(r, n=200, variance=0.2, scale=1.0):
    """Centred columns of one variance with a noisy correlation of r, whose noise has sd 0.05."""
    laws = (None, *(DiscreteLaplace(scale * unit) for unit in UNITS[1:]))
    return NoisyPair(n * np.array([1, 0, 0, variance, variance, r * variance]), laws, UNITS, seed=1)


@pytest.mark.parametrize("sign", [1, -1])
def test_noise_beyond_one_leaves_an_interval(sign):
    """As if the noisy correlation were 1; without that the interval is [1, 1]."""
    far, at_one = (CorrelationIntervals((pair(sign * r),)) for r in (1.5, 1.0))
    for alpha in (0.5, 0.05, 0.01, 0.001):
        ends, others = (np.ravel(of.conf_int(alpha, "noise_aware", "population"))
                        for of in (far, at_one))  # fmt: skip
        np.testing.assert_allclose(ends, others, atol=0.05)
        assert ends[(1 + sign) // 2] == sign
        assert 0.01 < np.diff(ends)[0] < 0.5


def test_limits_beyond_one_are_nested_and_others_are_not_moved():
    alphas = (0.5, 0.2, 0.05, 0.01, 0.002)
    for r in (0.9, 0.99, 1.02, 1.1, 1.5):
        some = CorrelationIntervals((pair(r),))
        low, high = np.array([some.conf_int(a, "noise_aware", "population") for a in alphas]).T[0]
        assert np.all(np.diff(low) < 0)
        assert np.all(np.diff(high) >= 0)
        if r < 1:
            median = np.tanh(np.median(pair(r).law.centre))
            assert median == pytest.approx(r, abs=0.01)
