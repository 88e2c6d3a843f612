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


def test_kurtosis_of_scale_mixtures():
    """Rows z times one scale each are elliptical, where the law is right in every direction."""
    rng = np.random.default_rng(2)
    z = rng.normal(size=(100_000, 3)) @ [[1, 0.6, 0], [0, 1, 0.3], [0, 0, 0.5]]
    rows = z * np.sqrt(rng.choice([0.4, 2.0], 100_000))[:, None]
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


@pytest.mark.parametrize(("noise", "rest"), [("normal", 0.0), ("laplace", 2.0)])
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
