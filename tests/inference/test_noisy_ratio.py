"""Ratios of noisy sums over the private rows: tails by brute force, and limits."""

import numpy as np
import pytest
from scipy import stats

from dpstats.inference.noisy_ratio import NoisyRatio, joint_noise
from dpstats.inference.simulation import draw_from
from dpstats.measured.bounded import Bounded
from dpstats.privacy.gaussian import DiscreteGaussian
from dpstats.privacy.laws import DiscreteLaplace


def ratio(law, of_count, count, t, u):
    """A count and the number of rows, with independent noises."""
    weighted = (1.0, 0.0, law), (0.0, 1.0, of_count)
    return NoisyRatio.of(weighted, count, np.atleast_1d(float(t)), np.atleast_1d(float(u)))


@pytest.mark.parametrize("r", [0.0, 0.5])
@pytest.mark.parametrize(
    ("law", "of_count"),
    [(DiscreteLaplace(5.0), DiscreteLaplace(9.0)), (DiscreteGaussian(3.0), DiscreteGaussian(1.0))],
    ids=str,
)
def test_tails_are_those_of_the_sums(law, of_count, r):
    z, z_0 = (np.arange(-x.support(), x.support() + 1) for x in (law, of_count))
    mass, of_counts = (x.cdf(y) - x.cdf(y - 1) for x, y in ((law, z), (of_count, z_0)))
    unit = np.sqrt(law.variance + r**2 * of_count.variance) / 8
    values = z[:, None] - r * z_0
    for t, u in ((20, 0.3), (26, -0.4), (14, 0.0)):
        found = ratio(law, of_count, 41.0, t, u)
        d = t - r * 41 + unit * stats.norm.ppf(u + 0.5)
        exact = mass @ stats.norm.cdf((d - values) / unit) @ of_counts
        tails = np.ravel(found.tails(r, read=True))
        np.testing.assert_allclose(tails, [exact, 1 - exact], rtol=0, atol=1e-9)


@pytest.mark.parametrize("p", [0.004, 0.3])
@pytest.mark.parametrize(
    ("law", "size"), [(DiscreteLaplace(5.0), 400), (DiscreteLaplace(0.4), 60)], ids=str
)
def test_tails_of_sampled_rows_are_those_of_a_binomial_count_and_the_noise(law, size, p):
    z = np.arange(-law.support(1e-13), law.support(1e-13) + 1)
    unit = min(np.sqrt((1 + p**2) * law.variance + size * p * (1 - p)) / 8, 1.0)
    noise = law.cdf(z) - law.cdf(z - 1)
    counts = np.convolve(stats.binom.pmf(np.arange(size + 1), size, p), noise)
    values = np.arange(z[0], size + z[-1] + 1)[:, None] - size * p - p * z
    mass = counts[:, None] * noise
    weighted = (1.0, 0.0, law), (0.0, 1.0, law)
    for shift, u in ((0, 0.3), (2, -0.4), (-1, 0.0)):
        t = np.array([float(np.clip(round(size * p) + shift, 0, size))])
        ratio = NoisyRatio(joint_noise(weighted), float(size), t, np.array([u]), sampled=True)
        d = t - p * size + unit * stats.norm.ppf(u + 0.5)
        exact = np.sum(mass * stats.norm.cdf((d - values) / unit))
        assert ratio.tails(p, read=True)[0, 0] == pytest.approx(exact, abs=1e-9)


def test_an_interval_holds_what_is_kept_and_no_more():
    """Of five tables, on a grid of ratios; the tails themselves are exact."""
    law, rng = DiscreteLaplace(20.0), np.random.default_rng(1)
    counts, sums = 2_000 + draw_from(law, 5, rng), 1_800 + draw_from(law, 5, rng)
    for count, t, u in zip(counts.tolist(), sums.tolist(), rng.uniform(-0.5, 0.5, 5), strict=True):
        found = ratio(law, law, float(count), t, u)
        low, high = found.interval(0.1)
        r = np.linspace(0.8, 1, 401)
        cdf = found.cdf(r, np.zeros(r.size, int))
        kept = r[np.minimum(cdf, 1 - cdf) >= 0.05]
        assert low[0] - 1e-9 <= kept.min()
        assert kept.max() <= high[0] + 1e-9
        assert high[0] - low[0] <= np.ptp(kept) + 2 * (r[1] - r[0])


@pytest.mark.parametrize("sampled", [True, False])
def test_impossible_counts_have_intervals_with_a_width(sampled):
    n, law = 1_000.0, DiscreteLaplace(20.0)
    t = np.array([-1e4, -200.0, -100.0, -50.0, 0.0, n + 50.0, n + 100.0, 1e4])
    joint = joint_noise([(1.0, 0.0, law), (0.0, 1.0, law)])
    found = NoisyRatio(joint, n, t, np.resize([0.3, -0.45], t.size), sampled)
    for alpha in (0.01, 0.05, 0.5):
        low, high = found.interval(alpha)
        assert np.min(high - low) > 0.005
        for p, inside in ((0.0, low == 0), (1.0, high == 1)):
            tails = found.tails(p, read=True).min(axis=0)
            np.testing.assert_array_equal(tails >= alpha / 2, inside)


def test_limits():
    law, narrow = DiscreteLaplace(5.0), DiscreteLaplace(0.02)
    assert ratio(law, law, -3.0, 4, 0.1).interval(0.05) == (0, 1)  # no rows are seen
    assert ratio(narrow, narrow, 90.0, 4, 0.1) is None  # exact counts: a box has no width
    assert NoisyRatio.of([(1.0, 0.0, Bounded(3.0))], 9.0, np.ones(1), np.ones(1)) is None
