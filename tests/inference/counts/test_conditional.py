"""Prevalence within a group of unknown size, against brute force and by its coverage."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dpstats.errors import RequestError
from dpstats.inference.counts.conditional import (
    conditional_certified,
    conditional_interval,
    conditional_pvalue,
)
from dpstats.inference.counts.group_counts import GroupCounts
from dpstats.privacy.laws import DiscreteLaplace


def laplace(scale, reach):
    a, z = np.exp(-1 / scale), np.arange(-reach, reach + 1)
    return z, (1 - a) / (1 + a) * a ** np.abs(z)


def brute_cdf(d, size, p, scale_a, scale_c):
    """P(X_A - pN + (1-p) (Z_A + U) - p Z_C <= d) by the full sum, p below 1."""
    (za, wa), (zc, wc) = (laplace(s, int(14 * s) + 5) for s in (scale_a, scale_c))
    noise = ((1 - p) * za[:, None] - p * zc).ravel()
    weight = (wa[:, None] * wc).ravel()
    x = np.arange(size + 1)
    total = [weight @ np.clip((d + p * size - v - noise) / (1 - p) + 0.5, 0, 1) for v in x]
    return stats.binom.pmf(x, size, p) @ total


def sizes_kept(t, scale_a, scale_c, beta, n):
    """The confidence set for N by brute force: |t - N| within the quantile of the noise."""
    (za, wa), (zc, wc) = (laplace(s, int(14 * s) + 5) for s in (scale_a, scale_c))
    z, w = np.arange(za[0] + zc[0], za[-1] + zc[-1] + 1), np.convolve(wa, wc)
    # P(|Z + U| > q) below beta, U uniform
    return [m for m in range(n + 1) if 2 * (w @ np.clip(-abs(t - m) - z + 0.5, 0, 1)) > beta]


@pytest.mark.parametrize(
    ("scale_a", "scale_c"), [(0.3, 0.3), (1.0, 1.0), (4.0, 4.0), (1.0, 5.0), (5.0, 0.5)]
)
@pytest.mark.parametrize("p", [0.0, 0.03, 0.4, 0.5, 0.8])
def test_pvalue_is_the_supremum_over_sizes(scale_a, scale_c, p):
    """Sets of up to 17 sizes are searched in full; larger ones (scale 4) on 17 of them."""
    t_a, t_c, u_a, u_c, n, beta = 7, 12, 0.21, -0.37, 24, 0.001
    laws = DiscreteLaplace(scale_a), DiscreteLaplace(scale_c)
    sizes = sizes_kept(t_a + u_a + t_c, scale_a, scale_c, beta, n)
    if p <= 0.5:
        d = (1 - p) * (t_a + u_a) - p * t_c
        cdf = np.array([brute_cdf(d, m, p, scale_a, scale_c) for m in sizes])
    else:
        d = p * (t_c + u_c) - (1 - p) * t_a
        cdf = 1 - np.array([brute_cdf(d, m, 1 - p, scale_c, scale_a) for m in sizes])
    group = GroupCounts(t_a, t_c, u_a, u_c, *laws)
    lower, upper = cdf.max(), 1 - cdf.min()
    expected = {"smaller": lower, "larger": upper, "two-sided": 2 * min(lower, upper)}
    for name, value in expected.items():
        result = conditional_pvalue(group, p, name, n=n, beta=beta)
        assert result == pytest.approx(min(1, value + beta), abs=2e-4)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.7])
def test_without_noise_it_is_the_randomised_binomial_test(p, law_of_zero):
    x, size, u = 6, 20, 0.17
    law = law_of_zero
    group = GroupCounts(x, size - x, u, u, law, law)
    result = conditional_pvalue(group, p, "smaller", beta=1e-9)
    k, q, v = (x, p, u) if p <= 0.5 else (size - x, 1 - p, u)
    cdf = stats.binom.cdf(k - 1, size, q) + (v + 0.5) * stats.binom.pmf(k, size, q)
    assert result == pytest.approx(cdf if p <= 0.5 else 1 - cdf, abs=1e-8)


def test_interval_and_test_are_dual():
    law = DiscreteLaplace(4.0)
    group = GroupCounts(41, 103, 0.3, -0.1, law, DiscreteLaplace(2.0))
    low, high = conditional_interval(group, 0.1)
    assert 0 < low < 41 / 144 < high < 1
    for end, step in ((low, 1e-4), (high, -1e-4)):
        assert conditional_pvalue(group, end, beta=0.002) == pytest.approx(0.1, abs=1e-4)
        assert conditional_pvalue(group, end + step, beta=0.002) > 0.1
        assert conditional_pvalue(group, end - step, beta=0.002) < 0.1
    assert conditional_pvalue(group, low, "larger", beta=0.002) == pytest.approx(0.051, abs=1e-4)


def test_exchanging_the_counts_reflects_the_interval():
    laws = DiscreteLaplace(5.0), DiscreteLaplace(1.0)
    low, high = conditional_interval(GroupCounts(70, 44, 0.2, -0.3, *laws))
    other = conditional_interval(GroupCounts(44, 70, -0.3, 0.2, *laws[::-1]))
    np.testing.assert_allclose((low, high), (1 - other[1], 1 - other[0]), atol=1e-6)


def test_large_groups_are_nearly_normal():
    """Width 2 * 1.96 sd of D/N, 1% more for beta and for the unknown size."""
    size, p, scale = 10**6, 0.2, 100.0
    law = DiscreteLaplace(scale)
    low, high = conditional_interval(GroupCounts(p * size, (1 - p) * size, 0.0, 0.0, law, law))
    sd = np.sqrt(p * (1 - p) / size + ((1 - p) ** 2 + p**2) * law.variance / size**2)
    assert 1.0 < (high - low) / (2 * 1.96 * sd) < 1.02


def test_extremes():
    wide, narrow = DiscreteLaplace(1e5), DiscreteLaplace(1.0)

    def interval(yes, no, law, n=None):
        return conditional_interval(GroupCounts(yes, no, 0.0, 0.0, law, law), n=n)

    assert interval(30, 50, wide) == (0.0, 1.0)
    assert interval(-2, 1, narrow, n=1) == (0.0, 1.0)
    low, high = interval(-200, 500, narrow)
    assert low == 0 < high < 0.02  # as with no row of the trait seen
    assert interval(-500, 500, narrow) == (0.0, 1.0)
    low, high = interval(0, 500, narrow)
    assert low == 0
    assert high < 0.02
    low, high = interval(0.3e9, 0.7e9, narrow, n=10**9)
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(0.21 / 1e9), rel=0.02)


@pytest.mark.parametrize("step", [100, pytest.param(40, marks=pytest.mark.slow)])
def test_intervals_of_an_empty_noisy_group_are_nested(step):
    law, levels = DiscreteLaplace(50.0), (0.01, 0.05, 0.2, 0.4)
    for yes, no in itertools.product(np.arange(-400, 401, step), repeat=2):
        if yes + no > 0:
            continue
        group = GroupCounts(float(yes), float(no), 0.1, -0.2, law, law)
        ends = np.array([conditional_interval(group, alpha, n=60) for alpha in levels])
        assert np.all(np.diff(ends[:, 0]) > -1e-6), (yes, no)
        assert np.all(np.diff(ends[:, 1]) < 1e-6), (yes, no)


@pytest.mark.parametrize(("size", "scale", "p"), [(4, 0.5, 0.3), (1, 0.6, 0.8)])
def test_level_by_enumeration(size, scale, p):
    """All counts and noises up to 4, two values of the uniform; the rest counts as rejected."""
    law = DiscreteLaplace(scale)
    z, w = laplace(scale, 4)
    accepted = 0.0
    for x, (za, wa), (zc, wc) in itertools.product(
        range(size + 1), zip(z, w, strict=True), zip(z, w, strict=True)
    ):
        mass = stats.binom.pmf(x, size, p) * wa * wc / 2
        for u in (-0.25, 0.25):
            if mass > 1e-5:
                group = GroupCounts(float(x + za), float(size - x + zc), u, u, law, law)
                pvalue = conditional_pvalue(group, p, beta=0.002)
                accepted += mass * (pvalue > 0.1)
    assert accepted >= 0.9


def simulate(size, p, scale, runs, seed):
    """Share of samples in which the 95% interval covers p, through its test."""
    rng, law = np.random.default_rng(seed), DiscreteLaplace(scale)
    stop = -np.expm1(-1 / scale)
    noise = rng.geometric(stop, (2, runs)) - rng.geometric(stop, (2, runs))
    x, u = rng.binomial(size, p, runs), rng.uniform(-0.5, 0.5, (2, runs))
    rows = zip((x + noise[0]).tolist(), (size - x + noise[1]).tolist(), *u.tolist(), strict=True)
    groups = [GroupCounts(*row, law, law) for row in rows]
    return np.mean([conditional_pvalue(group, p) > 0.05 for group in groups])


@pytest.mark.parametrize(("size", "p", "scale"), [(200, 0.3, 4.0), (200, 0.5, 80.0)])
def test_coverage(size, p, scale):
    """250 runs, standard error .0138: fails below .909, which is 3 of them."""
    assert simulate(size, p, scale, 250, 1) >= 0.95 - 3 * 0.0138


@pytest.mark.slow
@pytest.mark.parametrize("size", [5, 50, 1000, 20_000])
@pytest.mark.parametrize(("p", "scale"), [(0.02, 1.0), (0.3, 20.0), (0.9, 300.0)])
def test_coverage_everywhere(size, p, scale):
    """2000 runs, standard error .005: fails below .935, which is 3 of them."""
    assert simulate(size, p, scale, 2000, 2) >= 0.95 - 3 * 0.005


@pytest.mark.parametrize("p", [0.01, 0.3, 0.95])
@pytest.mark.parametrize(("size", "n"), [(0, 30), (30, 30), (30, 500), (30, None)])
def test_certified_coverage_by_enumeration(p, size, n):
    scale_a, scale_c = 2.0, 1.0
    law_a, law_c = DiscreteLaplace(scale_a), DiscreteLaplace(scale_c)
    (za, wa), (zc, wc) = laplace(scale_a, 40), laplace(scale_c, 20)
    x = np.arange(size + 1)[:, None, None]
    mass = stats.binom.pmf(x, size, p) * wa[:, None] * wc
    counts = x + za[:, None], size - x + zc
    low, high = conditional_certified(*counts, law_a, law_c, n=n)
    assert np.sum(mass * ((low <= p) & (p <= high))) >= 0.95
    assert np.all(low <= high)
    if size:
        low, high = conditional_certified(*counts, law_a, law_c, n=n, target="table")
        assert np.sum(mass * ((low <= x / size) & (x / size <= high))) >= 0.95
        assert np.all(low <= high)


def test_certified_without_noise(law_of_zero):
    law = law_of_zero
    share = conditional_certified([0, 3, 8], [8, 5, 0], law, law, target="table")
    np.testing.assert_allclose(share, [[0, 0.375, 1], [0, 0.375, 1]])
    np.testing.assert_array_equal(conditional_certified(0, 0, law, law, target="table"), [0, 1])
    low, high = conditional_certified(3, 5, law, law, 0.1, n=10**6)
    assert low == pytest.approx(stats.beta.ppf(0.05, 3, 6), rel=1e-5)
    assert high == pytest.approx(stats.beta.ppf(0.95, 4, 5), rel=1e-5)


def test_certified_extremes():
    law = DiscreteLaplace(3.0)
    for target in ("population", "table"):
        low, high = conditional_certified(-1e6, -1e6, law, law, n=100, target=target)
        np.testing.assert_array_equal((low, high), (0, 1))
        low, high = conditional_certified(1e6, -1e6, law, law, n=100, target=target)
        assert low > 0.9
        assert high == 1


def test_certified_uses_the_public_number_of_rows():
    """If at least 60 - q rows are outside of A, at most 100 - (60 - q) are in it."""
    law = DiscreteLaplace(3.0)
    q = law.quantile(1 - np.sqrt(0.95))
    low, high = conditional_certified(60, 60, law, law, n=100, target="table")
    np.testing.assert_allclose((low, high), ((60 - q) / 100, (100 - 60 + q) / 100))


def test_refusals():
    law = DiscreteLaplace(1.0)
    group = GroupCounts(1, 2, 0, 0, law, law)
    with pytest.raises(RequestError, match=r"did you mean alpha=0\.1"):
        conditional_interval(group, 0.9)
    with pytest.raises(RequestError, match="finite"):
        conditional_interval(replace(group, yes=np.nan))
    with pytest.raises(RequestError, match="between 0 and 1"):
        conditional_pvalue(group, -0.1)
    with pytest.raises(RequestError, match="at least 1"):
        conditional_pvalue(group, 0.1, n=0)
    with pytest.raises(RequestError, match="target must be one of"):
        conditional_certified(1, 2, law, law, target="rows")
