"""Limits and p-values from draws: t without noise, Fieller's with noise alone."""

import numpy as np
import pytest
from scipy import integrate, stats

from dpstats.error_rates import LEAST_COMPUTED
from dpstats.inference.confidence_law import DRAWS, ConfidenceLaw, student_cdf
from dpstats.inference.intervals import FEWEST
from dpstats.inference.mixture_tails import MixtureTails
from dpstats.inference.simulation import draw_evenly
from dpstats.privacy.gaussian import DiscreteGaussian
from dpstats.privacy.laws import DiscreteLaplace


def law_of(centre, error, df=None):
    full = np.full(DRAWS, 1.0)
    return ConfidenceLaw(centre * full, error * full, None if df is None else df * full)


def test_without_noise_it_is_the_t_test():
    law = law_of(0.3, 0.05, 11.0)
    np.testing.assert_allclose(
        law.limits(0.05, -1, 1), stats.t.interval(0.95, 11, 0.3, 0.05), rtol=1e-10
    )
    above, below = stats.t.sf(2, 11), stats.t.cdf(2, 11)
    for alternative, exact in (("two-sided", 2 * above), ("larger", above), ("smaller", below)):
        assert law.pvalue(0.2, alternative) == pytest.approx(exact, rel=1e-10)
    assert law.pvalue(-1, "larger") == FEWEST / DRAWS
    assert law_of(0.3, 0.0).limits(0.05, -1, 1) == pytest.approx((0.3, 0.3))


def test_a_ratio_has_the_limits_of_fieller():
    """Normal noise on both: roots of (T - m N)^2 = z^2 (s^2 + m^2 s^2)."""
    total, size, noise, z = 300.0, 1_000.0, DiscreteGaussian(120.0), stats.norm.ppf(0.975)
    rng = np.random.default_rng(0)
    above, below = (draw_evenly(noise, DRAWS, rng) for _ in range(2))
    law = ConfidenceLaw((total - above) / (size - below), np.full(DRAWS, 1e-6))
    square = (z * 120.0) ** 2
    roots = np.sort(np.roots([size**2 - square, -2 * total * size, total**2 - square]))
    # a Latin hypercube of 5,000: the level of a limit is off by about .001
    np.testing.assert_allclose(law.limits(0.05, -10, 10), roots, atol=0.01)


def test_draws_that_say_nothing_count_against_both_sides():
    error = np.where(np.arange(DRAWS) < 0.04 * DRAWS, np.inf, 0.1)
    law = ConfidenceLaw(np.zeros(DRAWS), error)
    low, high = law.limits(0.05, -1, 1)
    assert 0.96 * stats.norm.cdf(high / 0.1) + 0.02 == pytest.approx(0.975)
    assert -1 < low == pytest.approx(-high)
    assert law.limits(0.03, -1, 1) == (-1, 1)
    assert law.pvalue(5.0, "two-sided") == pytest.approx(0.04)


@pytest.mark.parametrize("noise", [DiscreteLaplace(3.0, 3), DiscreteGaussian(40.0)])
def test_even_draws_are_the_quantiles_of_the_law(noise):
    drawn = np.sort(draw_evenly(noise, 4_001, np.random.default_rng(2)))
    np.testing.assert_array_equal(drawn, -drawn[::-1])
    # each is the smallest point with that much below it, but for gaps between far points
    lower, shares = drawn[:2_000], (np.arange(2_000) + 0.5) / 4_001
    assert np.all(noise.cdf(lower) >= shares)
    assert np.all(noise.cdf(lower * (1 + 2e-3) - 1) < shares)
    assert drawn.var() == pytest.approx(noise.variance, rel=0.02)


def with_noise(noise, error, gaussian=False):
    """A mean with one noise of this variance, as where the number of rows is public."""
    shares = (np.arange(DRAWS) + 0.5) / DRAWS
    unit = stats.norm.ppf(shares) if gaussian else stats.laplace.ppf(shares) / np.sqrt(2)
    return ConfidenceLaw(
        np.sqrt(noise) * unit, np.full(DRAWS, error), noise_variance=noise, gaussian=gaussian
    )


@pytest.mark.parametrize("gaussian", [False, True])
@pytest.mark.parametrize("share", [0.1, 0.9])
def test_beyond_the_draws_the_tail_is_that_of_sampling_and_noise(gaussian, share):
    """By numerical integration; at most three times as large, by draws that are counted too."""
    error, noise = np.sqrt(1 - share), np.sqrt(share)
    law = with_noise(share, error, gaussian)
    grid = np.linspace(-12, 12, 20_001) * error
    weights = stats.norm.pdf(grid, scale=error) * (grid[1] - grid[0])
    tails = stats.norm(scale=noise) if gaussian else stats.laplace(scale=noise / np.sqrt(2))
    for value in (4.5, 6, 7):
        exact = 2 * float(weights @ tails.sf(value - grid))
        if LEAST_COMPUTED <= exact <= 5e-4:
            assert 0.95 * exact <= law.pvalue(value, "two-sided") <= 3 * exact, value
    pvalues = [law.pvalue(value, "two-sided") for value in np.linspace(0.1, 9, 30)]
    assert np.all(np.diff(pvalues) <= 1e-15)


def test_limits_beyond_the_draws_are_where_the_pvalue_is_alpha():
    law, widths = with_noise(0.005, 0.05), []
    for alpha in (0.01, 1e-3, 1e-8):
        low, high = law.limits(alpha, -1.0, 1.0)
        widths.append(high - low)
        for end in (low, high):
            if alpha < 0.002 and abs(end) < 1:
                assert law.pvalue(end * 1.0001, "two-sided") <= alpha * 1.01
                assert law.pvalue(end * 0.999, "two-sided") >= alpha * 0.99
    assert np.all(np.diff(widths) > 0)


def test_students_t_at_many_points_is_that_of_scipy():
    """Of one df, and of each point its own: by the series of normal scores, and without it."""
    t = np.concatenate([-np.geomspace(1e-4, 1e9, 300), np.linspace(-9, 9, 301)])
    for df in (3.5, 49.9, 50.0, 100.0, 1e6, 1e12):
        found, exact = student_cdf(df, t), stats.t.cdf(t, df)
        np.testing.assert_allclose(found, exact, rtol=0, atol=1e-13)
        seen = exact > 1e-18
        np.testing.assert_allclose(found[seen], exact[seen], rtol=1e-6)
    t = np.array([-2.0, 1.0, 3.0])
    for df in (np.array([60.0, 300.0, 1e5]), np.array([5.0, 300.0, 1e5])):
        np.testing.assert_allclose(student_cdf(df, t), stats.t.cdf(t, df), rtol=1e-9)


def exact_tail(x, normal, laplace, terms):
    """P(|error| >= x) of normal errors with Laplace noise, from the characteristic function."""

    def integrand(t):
        log = -normal * t * t / 2 - np.sum(terms * np.log1p(laplace * t * t / (2 * terms)))
        return np.sin(t * x) / t * np.exp(log)

    end = 60 / np.sqrt(normal + laplace.sum())
    return 1 - 2 / np.pi * integrate.quad(integrand, 0, end, limit=2_000, epsabs=1e-13)[0]


@pytest.mark.parametrize(("k", "share"), [(1, 0.5), (20, 0.9), (65, 0.99)])
def test_tails_of_mixtures_are_within_four_per_cent(k, share):
    rng = np.random.default_rng(k)
    laplace = rng.exponential(size=(1, k)) ** 2
    laplace *= share / laplace.sum()
    terms = rng.integers(1, 3, k).astype(float)
    law = MixtureTails(np.array([1 - share]), laplace, terms)
    for x in (0.5, 2.0, 3.0, 5.0, 8.0):
        exact = exact_tail(x, 1 - share, laplace[0], terms)
        assert law.tail(np.array([x]))[0] == pytest.approx(exact, rel=0.04)


def test_mixtures_of_normal_laws_are_exact_and_quantiles_invert_tails():
    law = MixtureTails(np.array([4.0, 1.0]), np.zeros((2, 0)), np.zeros(0))
    tails = law.tail(np.array([4.0, -3.0]))
    np.testing.assert_allclose(tails, 2 * stats.norm.sf([2, 3]), rtol=1e-9)
    np.testing.assert_allclose(law.quantile(0.05), stats.norm.isf(0.025) * np.array([2, 1]))
    rng = np.random.default_rng(0)
    law = MixtureTails(rng.random(6), rng.exponential(size=(6, 30)), np.ones(30))
    for alpha in (0.5, 0.05, 1e-4, 1e-8):
        np.testing.assert_allclose(law.tail(law.quantile(alpha)), alpha, rtol=1e-5)
