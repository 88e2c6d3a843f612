"""Limits of correlations that noise puts beyond 1, and the laws of sampling errors."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from dpstats.analyses.moments.correlation import NoisyPair, _of_kurtosis, _Standardised
from dpstats.analyses.moments.row_sampling import RowSampling, allowing_for_noise
from dpstats.privacy.gaussian import DiscreteGaussian
from dpstats.privacy.laws import DiscreteLaplace

UNITS = np.array([1.0, 1e3, 1e3, 1e6, 1e6, 1e6])


def test_limits_beyond_one_are_nested_and_others_are_not_moved():
    """Of columns of one variance with a noisy correlation of r, whose noise has sd 0.05."""
    laws = (None, *(DiscreteLaplace(unit) for unit in UNITS[1:]))
    for r in (0.9, 0.99, 1.02, 1.1, 1.5):
        some = NoisyPair(200 * np.array([1, 0, 0, 0.2, 0.2, 0.2 * r]), laws, UNITS, seed=1)
        ends = [some.conf_int(a, "noise_aware", "population") for a in (0.5, 0.2, 0.05, 0.002)]
        low, high = np.array(ends).T[0]
        assert np.all(np.diff(low) < 0)
        assert np.all(np.diff(high) >= 0)
        if r < 1:
            assert np.tanh(np.median(some.law.centre)) == pytest.approx(r, abs=0.01)


def test_far_pvalues_of_a_correlation_have_the_noise_of_the_value_tested():
    """Which is on r: towards 1 the scale of atanh has no end, but r - v has."""
    law, n = DiscreteGaussian(900.0), 1e5
    sums = n * np.array([1, 0, 0, 0.3, 0.3, 0.3 * 0.8])
    some = NoisyPair(sums, (None, *[law] * 5), np.ones(6), seed=1)
    for value in (0.95, 0.99, 0.99999):
        score = 0.3 * n * (value - 0.8) / np.sqrt(law.variance * (1 + value**2 / 2))
        found = some.pvalues(value, "two-sided")[0]
        assert found == pytest.approx(2 * stats.norm.sf(abs(score)), rel=0.1), value
    for alpha in (1e-3, 1e-6):
        for end in np.ravel(some.noise_aware(alpha, "population")):
            assert some.pvalues(end, "two-sided")[0] == pytest.approx(alpha, rel=1e-3)


def test_a_box_holds_the_means_at_the_ends_of_every_noise():
    """Of the number of rows too, where that is measured."""
    observed = np.array([200, 20.0, -30, 40, 50, 10])
    for law in (None, DiscreteLaplace(5.0)):
        laws = (law, *(DiscreteLaplace(unit) for unit in UNITS[1:]))
        q = np.array([0 if one is None else one.quantile(0.06 / (5 + bool(law))) for one in laws])
        q = q / UNITS
        box, least = NoisyPair(observed, laws, UNITS).box(0.06)
        ends = [observed[1:] + side * q[1:] for side in (-1, 1)]
        means = np.array([sums / (200 + side * q[0]) for sums in ends for side in (-1, 1)])
        np.testing.assert_allclose(box, np.transpose([means.min(axis=0), means.max(axis=0)]))
        assert least == 200 - q[0]


@pytest.mark.parametrize("r", [0.0, 0.5, -0.9])
def test_a_spread_by_kurtosis_bounds_that_of_its_law(r):
    """Var(uv - r (u^2 + v^2) / 2) from E u_i u_j u_k u_l = A_ij A_kl + A_ik A_jl + A_il A_jk."""
    for kurtosis in ([3.0, 3.0], [6.0, 6.0], [3.0, 9.0]):
        held = np.array(kurtosis)
        h = np.sqrt(held / 3)
        a = np.array([[1, r], [r, 1]]) * np.add.outer(h, h) / 2
        m = np.array([[-r, 1], [1, -r]]) / 2
        true = (2 * np.trace(m @ a @ m @ a) + np.trace(m @ a) ** 2) / (1 - r**2) ** 2
        columns = SimpleNamespace(kurtosis=held, noisy_kurtosis=held, kurtosis_sd=np.zeros(2))
        found = _of_kurtosis(columns, np.zeros((2, 2)))[0, 1]
        assert found >= true - 1e-12
        assert held[0] != held[1] or found == pytest.approx(true)
        columns.kurtosis_sd = np.ones(2)
        assert _of_kurtosis(columns, np.zeros((2, 2)))[0, 1] > found


def spread_and_bound(x, y, weights):
    """n Var(r) over (1 - r^2)^2 of a distribution on points, and the bound from its moments."""
    rows = np.stack([x, y])
    mean, covariance = rows @ weights, np.cov(rows, aweights=weights, ddof=0)
    sampling = SimpleNamespace(mean=mean, covariance=covariance, n=10**9)
    u, v = (rows - mean[:, None]) / np.sqrt(np.diag(covariance))[:, None]
    r = weights @ (u * v)
    found = weights @ (u * v - r * (u**2 + v**2) / 2) ** 2 / (1 - r**2) ** 2
    return found, _Standardised.of(sampling).largest()[0, 1]


def test_no_distribution_exceeds_the_largest_spread():
    rng, ratios = np.random.default_rng(2), []
    for _ in range(100):
        x, y = rng.choice([-1.0, -0.5, 0.0, 0.2, 1.0], (2, 8))
        found, bound = spread_and_bound(x, y, rng.dirichlet(np.full(8, 0.3)) + 1e-3)
        ratios.append(found / bound)
    assert max(ratios) <= 1 + 1e-6
    signs = np.array([-1.0, -1, 1, 1]), np.array([-1.0, 1, -1, 1])  # balanced: the bound itself
    for r in (0.0, 0.4, -0.8):
        found, bound = spread_and_bound(*signs, (1 + r * signs[0] * signs[1]) / 4)
        assert found == pytest.approx(bound)


def law_of(rows):
    y = rows - rows.mean(axis=0)
    covariance = y.T @ y / len(y)
    kurtosis = (y**4).mean(axis=0) / np.diag(covariance) ** 2
    weights = np.full(min(len(rows), 2_000), 1 / min(len(rows), 2_000))
    return RowSampling(1_000, rows.mean(axis=0), covariance, kurtosis, rows[:2_000], weights)


def test_kurtosis_of_scale_mixtures():
    """Rows z times one scale each are elliptical, where the law is right in every direction."""
    rng = np.random.default_rng(2)
    z = rng.normal(size=(50_000, 3)) @ [[1, 0.6, 0], [0, 1, 0.3], [0, 0, 0.5]]
    rows = z * np.sqrt(rng.choice([0.4, 2.0], len(z)))[:, None]
    law = law_of(rows)
    drawn = law.draw("kurtosis", 20_000, np.random.default_rng(3))
    # to first order, errors of covariances from errors of moment matrices
    product = drawn[:, 0, 1:, None] * law.mean
    drawn = drawn[:, 1:, 1:] - product - product.swapaxes(1, 2)
    _, vectors = np.linalg.eigh(law.covariance)
    true = (((rows - rows.mean(axis=0)) @ vectors) ** 2).var(axis=0) / law.n
    ours = np.einsum("ki,skl,li->si", vectors, drawn, vectors).var(axis=0)
    np.testing.assert_allclose(ours / true, 1, atol=0.08)


def test_fitted_is_that_of_its_points():
    rng = np.random.default_rng(4)
    rows = rng.exponential(size=(2_000, 2))
    law = law_of(rows)
    drawn = law.draw("fitted", 20_000, rng)
    products = np.column_stack([rows, rows[:, 0] ** 2, rows[:, 0] * rows[:, 1], rows[:, 1] ** 2])
    seen = drawn[:, [0, 0, 1, 1, 2], [1, 2, 1, 2, 2]]
    wanted = np.cov(products.T, ddof=0) / law.n
    np.testing.assert_allclose(np.cov(seen.T), wanted, rtol=0.1, atol=0.02 * wanted.max())


@pytest.mark.parametrize(
    ("noise", "rest"), [(stats.norm, 0.0), (stats.laplace(scale=np.sqrt(0.5)), 2.0)]
)
def test_noise_in_a_spread_leaves_the_coverage(noise, rest):
    """On average over the noise, for spreads of 1 to 5; estimates alone fall short of it."""
    z = noise.ppf((np.arange(1_000) + 0.5) / 1_000)
    for x in (0.05, 0.2, 0.5, 1.0, 1.5, 2.5):
        sd = x * (1 + rest)
        true = 1 + sd * np.linspace(0, 8, 41)[:, np.newaxis]
        true = true[true[:, 0] <= 5]
        seen = true + sd * z

        def coverage(used, true=true):
            return (2 * stats.norm.cdf(1.96 * np.sqrt((used + rest) / (true + rest))) - 1).mean(1)

        covered = coverage(allowing_for_noise(seen, np.float64(sd), np.float64(rest)))
        assert covered.min() >= 0.948
        assert covered.max() < 0.99
        assert x < 0.5 or coverage(np.maximum(seen, 1)).min() < 0.945
