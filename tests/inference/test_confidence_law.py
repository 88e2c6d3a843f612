"""Limits and p-values from draws: t without noise, Fieller's with noise alone."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dps
from dpstats.error_rates import LEAST_COMPUTED
from dpstats.inference.confidence_law import DRAWS, ConfidenceLaw
from dpstats.inference.intervals import FEWEST
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
    assert law.pvalue(0.2, "two-sided") == pytest.approx(2 * stats.t.sf(2, 11), rel=1e-10)
    assert law.pvalue(0.2, "larger") == pytest.approx(stats.t.sf(2, 11), rel=1e-10)
    assert law.pvalue(0.2, "smaller") == pytest.approx(stats.t.cdf(2, 11), rel=1e-10)
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
    assert -1 < low < high < 1
    assert 0.96 * stats.norm.cdf(high / 0.1) + 0.02 == pytest.approx(0.975)
    assert low == pytest.approx(-high)
    assert law.limits(0.03, -1, 1) == (-1, 1)
    assert law.pvalue(5.0, "two-sided") == pytest.approx(0.04)


@pytest.mark.parametrize("noise", [DiscreteLaplace(3.0, 3), DiscreteGaussian(40.0)])
def test_even_draws_are_the_quantiles_of_the_law(noise):
    drawn = np.sort(draw_evenly(noise, 4_001, np.random.default_rng(2)))
    np.testing.assert_array_equal(drawn, -drawn[::-1])
    shares = (np.arange(4_001) + 0.5) / 4_001
    # each is the smallest point with that much below it, but for gaps between far points
    lower, shares = drawn[:2_000], shares[:2_000]
    assert np.all(noise.cdf(lower) >= shares)
    assert np.all(noise.cdf(lower * (1 + 2e-3) - 1) < shares)
    assert drawn.var() == pytest.approx(noise.variance, rel=0.02)


@pytest.mark.parametrize("name", ["correlation", "components"])
def test_limits_do_not_end_where_the_draws_end(name):
    """At 1e-6 a quantile of 5,000 draws is the extreme one; tails or certified limits go on."""
    schema = dps.Schema([dps.Number(column, 0, 1, missing=0) for column in ("a", "b")])
    asked = {"correlation": dps.Correlation(["a", "b"]), "components": dps.PCA(["a", "b"])}
    rows = pd.DataFrame(np.random.default_rng(0).random((4_000, 2)), columns=["a", "b"])
    plan = dps.plan(schema, {name: asked[name]}, budget=dps.PureDP(0.5), reference=dps.Uniform())
    result = dps.release(plan, rows, rng=0, m=50).infer(name)
    usual, far, certified = (
        np.atleast_2d(result.conf_int(alpha=alpha, method=method))
        for alpha, method in ((1e-3, "noise_aware"), (1e-6, "noise_aware"), (1e-6, "certified"))
    )
    assert np.all(np.diff(usual) <= np.diff(far))
    if name == "components":  # the correlation has tails of its own
        assert np.all(far[:, 0] <= certified[:, 0] + 1e-12)
        assert np.all(far[:, 1] >= certified[:, 1] - 1e-12)


def with_noise(variance, gaussian, error=0.05, size=DRAWS):
    """A mean with one noise, as in a table whose number of rows is public."""
    shares = (np.arange(size) + 0.5) / size
    unit = stats.norm.ppf(shares) if gaussian else stats.laplace.ppf(shares) / np.sqrt(2)
    return ConfidenceLaw(
        np.sqrt(variance) * unit, np.full(size, error), noise_variance=variance, gaussian=gaussian
    )


@pytest.mark.parametrize("gaussian", [False, True])
@pytest.mark.parametrize("share", [0.1, 0.9])
def test_beyond_the_draws_the_tail_is_that_of_sampling_and_noise(gaussian, share):
    """By numerical integration; at most three times as large, by draws that are counted too."""
    total = 0.01
    law = with_noise(share * total, gaussian, np.sqrt((1 - share) * total))
    grid = np.linspace(-12, 12, 20_001) * np.sqrt((1 - share) * total)
    weights = stats.norm.pdf(grid, scale=np.sqrt((1 - share) * total)) * (grid[1] - grid[0])
    noise = stats.norm if gaussian else stats.laplace
    scale = np.sqrt(share * total) / (1 if gaussian else np.sqrt(2))
    for value in np.array([4.5, 6, 7]) * np.sqrt(total):
        exact = 2 * float(weights @ noise.sf(value - grid, scale=scale))
        if exact > 5e-4 or exact < LEAST_COMPUTED:
            continue
        found = law.pvalue(value, "two-sided")
        assert 0.95 * exact <= found <= 3 * exact, (value, exact, found)
    values = np.sqrt(total) * np.linspace(0.1, 9, 30)
    pvalues = [law.pvalue(value, "two-sided") for value in values]
    assert np.all(np.diff(pvalues) <= 1e-15)


def test_limits_beyond_the_draws_are_where_the_pvalue_is_alpha():
    law, widths = with_noise(0.005, False), []
    for alpha in (0.01, 1e-3, 1e-8):
        low, high = law.limits(alpha, -1.0, 1.0)
        widths.append(high - low)
        for end in (low, high):
            if alpha < 0.002 and abs(end) < 1:
                assert law.pvalue(end * 1.0001, "two-sided") <= alpha * 1.01
                assert law.pvalue(end * 0.999, "two-sided") >= alpha * 0.99
    assert np.all(np.diff(widths) > 0)
