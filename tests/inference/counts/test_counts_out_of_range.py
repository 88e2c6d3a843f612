"""A noisy count that no rows can have still has an interval with a width."""

import numpy as np
import pytest

from dpstats.analyses.counts.binomial import (
    noisy_binomial_cdf,
    proportion_interval,
    proportion_pvalue,
)
from dpstats.inference.noisy_ratio import NoisyRatio
from dpstats.privacy.gaussian import DiscreteGaussian
from dpstats.privacy.laws import DiscreteLaplace
from dpstats.privacy.weighted_noise import JointNoise

LAWS = [DiscreteLaplace(20.0), DiscreteGaussian(400.0), DiscreteLaplace(0.3)]
ALPHAS = (1e-4, 0.01, 0.05, 0.2, 0.5)
N = 1_000


def counts(law):
    """From far below 0 to far above n."""
    sd = np.sqrt(law.variance)
    below = np.array([-1e6, *(-sd * np.arange(9, 0, -0.5)), -0.4, 0.0, 0.2])
    return np.sort(np.concatenate([below, [1.0, sd, N / 2], N - below]))


@pytest.mark.parametrize("law", LAWS)
def test_intervals_have_a_width_are_monotone_and_nested(law):
    t = counts(law)
    found = np.array([proportion_interval(t, N, law, alpha) for alpha in ALPHAS])
    widths = N * (found[:, 1] - found[:, 0])
    assert widths.min() > 0.3 * np.sqrt(law.variance + 1 / 12)
    assert np.all(np.diff(found, axis=2) >= -1e-9)  # in T
    assert np.all(np.diff(found[:, 0], axis=0) >= -1e-9)  # in alpha
    assert np.all(np.diff(found[:, 1], axis=0) <= 1e-9)


@pytest.mark.parametrize("law", LAWS)
def test_they_contain_what_the_tails_of_the_counts_as_they_are_keep(law):
    t, p = counts(law), np.linspace(0, 1, 301) ** 2
    below = noisy_binomial_cdf(t[:, np.newaxis], N, p, law)
    kept = (below >= 0.025) & (below <= 0.975)
    low, high = (ends[:, np.newaxis] for ends in proportion_interval(t, N, law, 0.05))
    inside = (p >= low - 1e-9) & (p <= high + 1e-9)
    assert np.all(inside[kept])
    in_range = (t >= 0) & (t <= N)
    np.testing.assert_array_equal(inside[in_range].any(axis=1), kept[in_range].any(axis=1))
    assert not kept[~in_range].all(axis=1).any()


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("p", [0.0, 0.0004, 0.03, 0.9999])
def test_pvalues_are_dual_to_them(law, p):
    t = counts(law)
    low, high = proportion_interval(t, N, law, 0.05)
    rejected = proportion_pvalue(t, N, p, law) < 0.05
    outside = (p < low - 1e-9) | (p > high + 1e-9)
    np.testing.assert_array_equal(rejected, outside)
    # One-sided tests reject at the same levels wherever they reject at a count of 0 or n.
    exact = noisy_binomial_cdf(t, N, p, law)
    read = proportion_pvalue(t, N, p, law, "smaller")
    assert np.all(read >= exact - 1e-12)
    if noisy_binomial_cdf(0.0, N, p, law) <= 0.05:
        np.testing.assert_array_equal(read <= 0.05, exact <= 0.05)


@pytest.mark.parametrize("sampled", [True, False])
def test_where_the_number_of_rows_is_measured(sampled):
    law = LAWS[0]
    joint = JointNoise(((1.0, 0.0, law), (0.0, 1.0, law)))
    t = np.array([-1e4, -200.0, -100.0, -50.0, 0.0, N + 50.0, N + 100.0, 1e4])
    ratio = NoisyRatio(joint, float(N), t, np.resize([0.3, -0.45], t.size), sampled)
    for alpha in (0.01, 0.05, 0.5):
        low, high = ratio.interval(alpha)
        assert np.min(high - low) > 0.005
        for p, inside in ((0.0, low == 0), (1.0, high == 1)):
            tails = ratio.tails(p, read=True).min(axis=0)
            np.testing.assert_array_equal(tails >= alpha / 2, inside)
