"""One proportion from a noisy count, against brute-force sums that share no code with it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.proportion import proportion_confint as clopper_pearson

from dpstats.analyses.counts.binomial import (
    noisy_binomial_cdf,
    proportion_interval,
    proportion_pvalue,
)
from dpstats.privacy.gaussian import DiscreteGaussian
from dpstats.privacy.laws import DiscreteLaplace
from dpstats.privacy.weighted_noise import Combination


def laplace(scale, terms=1, reach=45):
    """Lattice and probabilities of a sum of discrete Laplace, written down from the formula."""
    a, half = np.exp(-1 / scale), int(reach * scale) + 5
    one = (1 - a) / (1 + a) * a ** np.abs(np.arange(-half, half + 1))
    mass = one
    for _ in range(terms - 1):
        mass = np.convolve(mass, one)
    half = mass.size // 2
    return np.arange(-half, half + 1), mass


def total_law(n, p, scale, terms=1):
    """Lattice and probabilities of T = X + Z."""
    z, mass = laplace(scale, terms)
    return np.arange(z[0], n + z[-1] + 1), np.convolve(
        stats.binom.pmf(np.arange(n + 1), n, p), mass
    )


def brute_cdf(t, n, p, scale, terms=1):
    """P(T + U <= t)."""
    lattice, mass = total_law(n, p, scale, terms)
    return float(mass @ np.clip(t - lattice + 0.5, 0, 1))


@pytest.mark.parametrize("n", [1, 7, 60])
@pytest.mark.parametrize(("scale", "terms"), [(0.3, 1), (1.0, 1), (9.0, 1), (2.0, 3)])
def test_cdf_is_the_sum_over_counts_and_noise(n, scale, terms):
    law = DiscreteLaplace(scale, terms)
    t = np.linspace(-3 * scale - 1, n + 3 * scale + 1, 13)[:, None]
    p = np.array([0.0, 1e-6, 0.2, 0.77, 1.0])
    expected = [[brute_cdf(a, n, b, scale, terms) for b in p] for a in t[:, 0]]
    np.testing.assert_allclose(noisy_binomial_cdf(t, n, p, law), expected, atol=1e-10)


@pytest.mark.parametrize(
    ("n", "scale", "p"),
    [
        (100_000, 300.0, 0.4),  # both wide: strides
        (2_000_000, 150.0, 0.4),
        (100_000, 1e4, 0.02),
        (300_000, 0.7, 0.5),  # narrow noise: the sum runs over Z
        (4_000_000, 12.0, 0.9),
    ],
)
def test_large_n_agrees_with_the_full_sum(n, scale, p):
    law = DiscreteLaplace(scale)
    sd = np.sqrt(n * p * (1 - p))
    x = np.arange(max(0, int(n * p - 9 * sd)), min(n, int(n * p + 9 * sd)) + 1)
    mass = stats.binom.pmf(x, n, p)
    t = n * p + np.hypot(sd, scale) * np.array([-3.3, -2.0, -0.4, 0.1, 1.7, 4.0]) + 0.21
    full = [mass @ law.smoothed_cdf(v - x) for v in t]
    np.testing.assert_allclose(noisy_binomial_cdf(t, n, p, law), full, atol=2e-7)


@settings(max_examples=40)
@given(
    n=st.integers(1, 300),
    scale=st.floats(0.05, 100),
    where=st.floats(-0.3, 1.3),
    alpha=st.floats(1e-4, 0.5),
)
def test_interval_and_test_are_dual(n, scale, where, alpha):
    law, t = DiscreteLaplace(scale), where * n
    low, high = proportion_interval(t, n, law, alpha)
    assert 0 <= low <= high <= 1
    for end, closed in ((low, 0.0), (high, 1.0)):
        pvalue = proportion_pvalue(t, n, float(end), law)
        if 0 < end < 1:
            assert pvalue == pytest.approx(alpha, abs=1e-6)
        elif low < high:
            assert end == closed
            assert pvalue >= alpha - 1e-9
        else:  # nothing is accepted
            assert pvalue <= alpha + 1e-9
    wider = proportion_interval(t, n, law, alpha / 2)
    assert wider[0] <= low
    assert wider[1] >= high


def test_without_noise_it_is_the_randomised_binomial_interval():
    law_of_zero = DiscreteLaplace(1e-3)
    n, x = 25, np.arange(26)
    cp_low, cp_high = clopper_pearson(x, n, method="beta")
    low, high = proportion_interval(x - 0.5 + 1e-12, n, law_of_zero)
    np.testing.assert_allclose(low, cp_low, atol=1e-8)
    assert np.all(high <= cp_high)
    low, high = proportion_interval(x + 0.5 - 1e-12, n, law_of_zero)
    np.testing.assert_allclose(high, cp_high, atol=1e-8)
    assert np.all(low >= cp_low)
    low, high = proportion_interval(x[:, None] + np.linspace(-0.49, 0.49, 9), n, law_of_zero)
    assert np.all((low >= cp_low[:, None] - 1e-9) & (high <= cp_high[:, None] + 1e-9))


def test_extremes():
    law = DiscreteLaplace(1.0)
    at_ends = proportion_interval([0.0, 50.0], 50, law)
    np.testing.assert_array_equal(proportion_interval([-1e12, 1e12], 50, law), at_ends)
    assert at_ends[0][0] == 0 < at_ends[1][0] < at_ends[0][1] < at_ends[1][1] == 1
    np.testing.assert_array_equal(proportion_interval(40.0, 50, DiscreteLaplace(1e7)), [0, 1])
    np.testing.assert_array_equal(proportion_interval(0.5, 1, law), [0, 1])
    np.testing.assert_array_equal(proportion_interval([-9.0, 9.0], 1, law), [[0, 0], [1, 1]])
    # relative accuracy near 0: both are nearly Poisson
    large, small = (np.array(proportion_interval(9.0, n, law)) * n for n in (10**9, 10**7))
    np.testing.assert_allclose(large, small, rtol=1e-5)
    assert large[0] > 0
    assert proportion_interval(np.zeros((2, 0, 3)), 5, law)[0].shape == (2, 0, 3)


def test_pvalues_at_the_ends_of_the_parameter():
    law = DiscreteLaplace(2.0)
    for p0, x in ((0.0, 0), (1.0, 30)):
        t = x + np.array([-4.2, 0.0, 6.1])
        expected = law.smoothed_cdf(t - x)
        np.testing.assert_allclose(proportion_pvalue(t, 30, p0, law, "smaller"), expected)
        np.testing.assert_allclose(proportion_pvalue(t, 30, p0, law, "larger"), 1 - expected)


@given(
    n=st.integers(1, 60),
    p=st.sampled_from([0.0, 1.0]) | st.floats(1e-9, 1 - 1e-9),
    scale=st.sampled_from([0.3, 1.7, 12.0]),
    terms=st.integers(1, 3),
    t=st.floats(-30, 90),
)
@settings(max_examples=40)
def test_noisy_binomial_cdf_with_gaussian_noise(n, p, scale, terms, t):
    z = np.arange(-int(12 * scale) - 5, int(12 * scale) + 6)
    one = np.exp(-0.5 * (z / scale) ** 2)
    one /= one.sum()
    mass = one
    for _ in range(terms - 1):
        mass = np.convolve(mass, one)
    half = len(mass) // 2
    x = np.arange(n + 1)
    share = np.clip(t + 0.5 - (x[:, None] + np.arange(-half, half + 1)), 0, 1)
    expected = stats.binom.pmf(x, n, p) @ share @ mass
    found = noisy_binomial_cdf(t, n, p, DiscreteGaussian(scale, terms))
    assert float(found) == pytest.approx(expected, abs=1e-10)


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


@pytest.mark.parametrize("alpha", [0.05, 1e-5])
@pytest.mark.parametrize("n", [600, 40_000])
@pytest.mark.parametrize("name", LAWS)
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

    inside = np.flatnonzero((high > 0) & (high < 1))
    assert inside.size >= 4
    rounding = 1e-12 / alpha + 2e-6 * (name == "combination")  # at an atom, where T is read as 0
    read = np.maximum(t, 0)
    for i in inside.tolist():
        step = part * (high[i] - low[i])
        assert share_of_tail(high[i], read[i]) <= 1 + rounding
        assert share_of_tail(high[i] - step, read[i]) >= 1 - rounding
    mirrored = proportion_interval(n - t, n, law, alpha)
    np.testing.assert_allclose(low, 1 - mirrored[1], rtol=0, atol=1e-12)
