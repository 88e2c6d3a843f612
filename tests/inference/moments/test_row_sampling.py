"""The two laws of how moments of rows vary, against resampled rows and normal theory."""

import numpy as np
import pytest
from scipy import stats

from dpstats.analyses.moments.row_sampling import RowSampling, allowing_for_noise


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
