"""The two laws of how moments of rows vary, against resampled rows and normal theory."""

import numpy as np
import pytest
from scipy import stats

from dpstats.analyses.moments.row_sampling import RowSampling, allowing_for_noise


def law_of(rows, kurtosis=None, n=1_000, **options):
    p = rows.shape[1]
    y = rows - rows.mean(axis=0)
    covariance = y.T @ y / len(y)
    own = (y**4).mean(axis=0) / np.diag(covariance) ** 2
    points = rows[:2_000]
    return RowSampling(
        n, rows.mean(axis=0), covariance, own if kurtosis is None else np.full(p, kurtosis),
        points, np.full(len(points), 1 / len(points)), **options,
    )  # fmt: skip


def covariances(drawn, mean):
    """To first order, errors (size, p, p) of covariances from errors of moment matrices."""
    shift = drawn[:, 0, 1:]
    product = shift[:, :, None] * mean
    return drawn[:, 1:, 1:] - product - product.swapaxes(1, 2)


def test_three_is_normal_theory():
    """Var(S_ij) = (S_ii S_jj + S_ij^2) / n, and Var of the mean is S / n."""
    rows = np.random.default_rng(0).normal(size=(5_000, 3)) @ [[1, 0.5, 0], [0, 1, -0.4], [0, 0, 1]]
    law = law_of(rows + 2, kurtosis=3.0)
    drawn = law.draw("kurtosis", 20_000, np.random.default_rng(1))
    s = law.covariance
    wanted = (np.outer(np.diag(s), np.diag(s)) + s**2) / law.n
    np.testing.assert_allclose(covariances(drawn, law.mean).var(axis=0), wanted, rtol=0.06)
    np.testing.assert_allclose(np.cov(drawn[:, 0, 1:].T), s / law.n, rtol=0.06, atol=2e-5)


@pytest.mark.parametrize("heavy", [False, True])
def test_kurtosis_of_scale_mixtures(heavy):
    """Rows z times one scale each are elliptical, where the law is right in every direction."""
    rng = np.random.default_rng(2)
    z = rng.normal(size=(200_000, 3)) @ [[1, 0.6, 0], [0, 1, 0.3], [0, 0, 0.5]]
    rows = z * np.sqrt(rng.choice([0.4, 2.0], 200_000) if heavy else np.ones(200_000))[:, None]
    law = law_of(rows)
    drawn = covariances(law.draw("kurtosis", 20_000, np.random.default_rng(3)), law.mean)
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


NOISES = {"normal": stats.norm, "laplace": stats.laplace(scale=np.sqrt(0.5))}


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("rest", [0.0, 2.0])
def test_noise_in_a_spread_leaves_the_coverage(noise, rest):
    """On average over the noise, for spreads of 1 to 5; estimates alone fall short of it."""
    z = NOISES[noise].ppf((np.arange(2_000) + 0.5) / 2_000)
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
        if x >= 0.5:
            assert coverage(np.maximum(seen, 1)).min() < 0.945


def test_spreads_that_noise_hides_are_not_used():
    spread = np.array([1.0, 4.0, 6.0, 7.0, 60.0, 4.0])
    sd = np.array([3.0, 3.0, 3.0, 3.0, 20.0, 20.0])
    rest = np.array([0.0, 0.0, 0.0, 0.0, 20.0, 20.0])
    used = allowing_for_noise(spread, sd, rest)
    np.testing.assert_array_equal(used[:3], 1.0)  # within two sds of zero, beyond 2.5
    assert used[3] > 7.0
    assert used[4] > 60.0  # clear of zero
    assert used[5] == 10.0  # not clear: no more than rows may well have
