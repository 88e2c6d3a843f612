"""One proportion from a noisy count, against brute-force sums that share no code with it."""

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.proportion import proportion_confint as clopper_pearson

from dpstats.analyses.counts.binomial import noisy_binomial_cdf as noisy_cdf
from dpstats.analyses.counts.binomial import proportion_interval, proportion_pvalue
from dpstats.privacy.gaussian import DiscreteGaussian
from dpstats.privacy.laws import DiscreteLaplace
from dpstats.privacy.weighted_noise import Combination


@pytest.mark.parametrize(("law", "n", "p"), [
    (DiscreteLaplace(9.0), 1, 0.2), (DiscreteGaussian(0.3), 60, 1e-6),
    (DiscreteLaplace(2.0, 3), 60, 0.77), (DiscreteGaussian(2.0), 60, 1.0),
    (DiscreteLaplace(150.0), 2_000_000, 0.4), (DiscreteLaplace(1e4), 100_000, 0.02),  # strides
    (DiscreteLaplace(12.0), 4_000_000, 0.9),  # narrow noise: the sum runs over Z
])  # fmt: skip
def test_cdf_is_the_sum_over_counts(law, n, p):
    sd = np.sqrt(n * p * (1 - p))
    x = np.arange(max(0, int(n * p - 9 * sd - 9)), min(n, int(n * p + 9 * sd + 9)) + 1)
    t = n * p + np.hypot(sd, law.variance**0.5) * np.array([-3.3, -2.0, -0.4, 0.1, 1.7, 4.0]) + 0.21
    exact = [stats.binom.pmf(x, n, p) @ law.smoothed_cdf(v - x) for v in t]
    found = noisy_cdf(t, n, p, law)
    np.testing.assert_allclose(found, exact, atol=1e-10 if n < 100 else 2e-7)


def test_without_noise_it_is_the_randomised_binomial_interval():
    n, x = 25, np.arange(26)[:, None]
    exact_low, exact_high = clopper_pearson(x, n, method="beta")
    shifts = np.append(np.linspace(-0.49, 0.49, 9), [-0.5 + 1e-12, 0.5 - 1e-12])
    low, high = proportion_interval(x + shifts, n, DiscreteLaplace(1e-3))
    assert np.all((low >= exact_low - 1e-8) & (high <= exact_high + 1e-8))
    np.testing.assert_allclose(low[:, [-2]], exact_low, atol=1e-8)
    np.testing.assert_allclose(high[:, [-1]], exact_high, atol=1e-8)


def test_extremes():
    law = DiscreteLaplace(1.0)
    low, high = at_ends = proportion_interval([0.0, 50.0], 50, law)
    np.testing.assert_array_equal(proportion_interval([-1e12, 1e12], 50, law), at_ends)
    assert low[0] == 0 < high[0] < low[1] < high[1] == 1
    np.testing.assert_array_equal(proportion_interval(40.0, 50, DiscreteLaplace(1e7)), [0, 1])
    np.testing.assert_array_equal(proportion_interval(0.5, 1, law), [0, 1])
    np.testing.assert_array_equal(proportion_interval([-9.0, 9.0], 1, law), [[0, 0], [1, 1]])
    # relative accuracy near 0: both are nearly Poisson
    large, small = (np.array(proportion_interval(9.0, n, law)) * n for n in (10**9, 10**7))
    np.testing.assert_allclose(large, small, rtol=1e-5)
    assert proportion_interval(np.zeros((2, 0, 3)), 5, law)[0].shape == (2, 0, 3)


def halves(scale):
    """The law of Z / 2 on the multiples of 1/2, Z discrete Laplace."""
    z = np.arange(-int(34 * scale), int(34 * scale) + 1)
    decay = np.exp(-1 / scale)
    return z / 2, (1 - decay) / (1 + decay) * decay ** np.abs(z)


LAWS = {
    "Laplace": DiscreteLaplace(20.0),
    "narrow": DiscreteLaplace(0.8, 3),
    "Gaussian": DiscreteGaussian(25.0),
    "combination": Combination(((1.0, DiscreteLaplace(20.0)), (0.5, DiscreteLaplace(12.0)))),
}


@pytest.mark.parametrize(("name", "n", "alpha"), [
    ("Laplace", 40_000, 1e-5), ("narrow", 600, 0.05), ("Gaussian", 600, 1e-5),
    ("combination", 600, 0.05),
])  # fmt: skip
def test_ends_are_exact_to_a_millionth_of_the_width_and_outwards(name, n, alpha):
    """Against sums over all counts and all noises; the other end by the mirrored problem.

    This combination has atoms, so that its own table serves, to three millionths.
    """
    part = 3e-6 if name == "combination" else 1e-6
    law = LAWS[name]
    sd = np.sqrt(law.variance)
    t = np.concatenate([[-2 * sd, 0.3, 7.2], n * np.array([0.01, 0.2, 0.5, 0.93])]) + 0.21
    low, high = proportion_interval(t, n, law, alpha)
    noise = halves(12.0) if name == "combination" else (np.zeros(1), np.ones(1))
    smooth = LAWS["Laplace"] if name == "combination" else law

    def share_of_tail(end, value):
        spread = np.sqrt(n * end * (1 - end))
        x = np.arange(max(0, int(n * end - 9 * spread - 30)), min(n, n * end + 9 * spread + 30) + 1)
        below = smooth.smoothed_cdf(value - x[:, None] - noise[0]) @ noise[1]
        return stats.binom.pmf(x, n, end) @ below / (alpha / 2)

    inside = np.flatnonzero((high > 0) & (high < 1)).tolist()
    assert len(inside) >= 4
    rounding = 1e-12 / alpha + 2e-6 * (name == "combination")  # at an atom, where T is read as 0
    read = np.maximum(t, 0)
    for i in inside:
        step = part * (high[i] - low[i])
        assert share_of_tail(high[i], read[i]) <= 1 + rounding
        assert share_of_tail(high[i] - step, read[i]) >= 1 - rounding
        assert proportion_pvalue(t[i], n, high[i], law) == pytest.approx(alpha, rel=1e-2)
    mirrored = proportion_interval(n - t, n, law, alpha)
    np.testing.assert_allclose(low, 1 - mirrored[1], rtol=0, atol=1e-12)


# Counts that no rows can have still have intervals with a width.

N = 1_000


@pytest.mark.parametrize("law", [DiscreteGaussian(400.0), DiscreteLaplace(0.3)])
def test_intervals_of_impossible_counts_have_a_width_are_nested_and_dual_to_pvalues(law):
    sd = np.sqrt(law.variance)
    below = np.array([-1e6, *(-sd * np.arange(9, 0, -0.5)), -0.4, 0.0, 0.2])
    t = np.sort(np.concatenate([below, [1.0, sd, N / 2], N - below]))
    low, high = np.moveaxis([proportion_interval(t, N, law, a) for a in (1e-4, 0.05, 0.5)], 1, 0)
    assert N * np.min(high - low) > 0.3 * np.sqrt(law.variance + 1 / 12)
    assert np.all(np.diff([low, high], axis=2) >= -1e-9)  # in T
    assert np.all(np.diff([low, -high], axis=1) >= -1e-9)  # in alpha
    for p in (0.0, 0.0004, 0.9999):
        rejected = proportion_pvalue(t, N, p, law) < 0.05
        np.testing.assert_array_equal(rejected, (p < low[1] - 1e-9) | (p > high[1] + 1e-9))
