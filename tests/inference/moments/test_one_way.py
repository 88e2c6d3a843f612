"""Welch's test of noisy groups: its level, and what noise does to the effect size."""

import numpy as np
import pytest

from dpstats.analyses.moments.noisy_mean import NoisyMean
from dpstats.analyses.moments.one_way import OneWay
from dpstats.families.group_moments import TO_MOMENTS
from dpstats.privacy.laws import DiscreteLaplace

UNIT = 4.0
SIZES, SDS = np.array([400.0, 60.0, 200.0]), np.array([0.1, 0.5, 0.3])


def groups(means, law=None, rng=None, sizes=SIZES, sds=SDS):
    """Groups with these moments, and noise from a law if there is a generator."""
    found = []
    for i, (n, mean, sd) in enumerate(zip(sizes, means, sds, strict=True)):
        exact = n * np.array([1, mean, mean**2 + sd**2])
        if rng is not None:
            q = (np.arange(20_001) - 10_000.0, law.cdf(np.arange(20_001) - 10_000.0))
            exact = exact + TO_MOMENTS @ q[0][np.searchsorted(q[1], rng.random(3))] / UNIT
        found.append(NoisyMean(exact, TO_MOMENTS, (law,) * 3, np.full(3, UNIT), 660.0, i))
    return OneWay(tuple(found))


def test_the_noise_of_the_means_is_no_effect():
    law = DiscreteLaplace(60.0)
    means = np.array([0.0, 0.1, -0.05])
    assert groups(means).eta_squared > 0.01
    assert groups(means, law).eta_squared == groups(means, law).omega_squared == 0
    # on average over the noise the sum between is that of the rows
    rng, quiet = np.random.default_rng(0), DiscreteLaplace(10.0)
    true = groups(means)._sums_of_squares[0]
    drawn = [groups(means, quiet, rng)._sums_of_squares[0] for _ in range(100)]
    assert np.mean(drawn) == pytest.approx(true, abs=4 * np.std(drawn) / 100**0.5)


def test_constant_groups_have_a_statistic():
    zero = np.zeros(3)
    statistic, pvalue, *_ = groups(zero, sds=zero).welch()
    assert (statistic, pvalue) == (0, 1)
    assert np.isnan(groups(zero, sds=zero).eta_squared)
    assert groups(np.array([0.0, 0.1, 0.1]), sds=zero).welch()[1] < 1e-6
