"""Limits of correlations that noise puts beyond 1, and the spread of sampling errors."""

from types import SimpleNamespace

import numpy as np
import pytest

from dpstats.inference.moments.correlation_intervals import CorrelationIntervals, NoisyPair
from dpstats.inference.moments.correlation_spread import _of_kurtosis
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
    for alpha in (0.5, 0.05, 0.01, 0.002):
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


@pytest.mark.parametrize("r", [0.0, 0.5, -0.9])
def test_a_spread_by_kurtosis_bounds_that_of_its_law(r):
    """Var(uv - r (u^2 + v^2) / 2) from E u_i u_j u_k u_l = A_ij A_kl + A_ik A_jl + A_il A_jk."""
    for kurtosis in ([3.0, 3.0], [6.0, 6.0], [3.0, 9.0]):
        h = np.sqrt(np.array(kurtosis) / 3)
        a = np.array([[1, r], [r, 1]]) * np.add.outer(h, h) / 2
        m = np.array([[-r, 1], [1, -r]]) / 2
        true = (2 * np.trace(m @ a @ m @ a) + np.trace(m @ a) ** 2) / (1 - r**2) ** 2
        held = np.array(kurtosis)
        columns = SimpleNamespace(kurtosis=held, noisy_kurtosis=held, kurtosis_sd=np.zeros(2))
        found = _of_kurtosis(columns, np.zeros((2, 2)))[0, 1]
        assert found >= true - 1e-12
        if kurtosis[0] == kurtosis[1]:
            assert found == pytest.approx(true)
        columns.kurtosis_sd = np.ones(2)
        assert _of_kurtosis(columns, np.zeros((2, 2)))[0, 1] > found
