"""Average likelihood ratios against dense normal densities."""

import numpy as np
from scipy import stats

from dpstats.analyses.tables.likelihood_ratio import (
    average_likelihood_ratio,
    laplace_mixture,
    log_average_likelihood,
    normal_likelihood_ratio,
)


def dense(r, diagonal, rank_one, tau):
    """Log average likelihood of each residual vector, one density at a time."""
    covariances = [np.diag(t + diagonal) - np.outer(rank_one, rank_one) for t in tau]
    logs = [stats.multivariate_normal(None, v).logpdf(r) for v in covariances]
    return np.logaddexp.reduce(logs) - np.log(len(tau)) + r.shape[1] / 2 * np.log(2 * np.pi)


def test_equals_dense_densities_in_any_chunks(monkeypatch):
    rng = np.random.default_rng(1)
    d, n, R = 5, 40, 7
    p, r = rng.dirichlet(np.full(d, 3.0)), rng.normal(0, 9, (R, d))
    tau = laplace_mixture(np.full(d, 30.0), 11, 0)
    null = dense(r, n * p, np.sqrt(n) * p, tau)
    wide = dense(r, 2.5 * n * p, np.sqrt(2.5 * n) * p, tau)
    for cells in (1 << 16, 20):
        monkeypatch.setattr("dpstats.analyses.tables.likelihood_ratio._CELLS", cells)
        found = log_average_likelihood(r, n * p, np.sqrt(n) * p, tau)
        np.testing.assert_allclose(found, null, rtol=1e-10)
        ratio = average_likelihood_ratio(r, n * p, np.sqrt(n) * p, tau, 1.5)
        np.testing.assert_allclose(ratio, wide - null, rtol=1e-9)


def test_tiny_noise_keeps_all_digits():
    """With little noise 1 - a' A a is tiny; it must not be lost in rounding."""
    n, t, r = 50_000, 1e-12, np.array([[3.0, -3.0, 5.0, -5.0]])
    p = np.full(4, 0.25)
    found = log_average_likelihood(r, n * p, np.sqrt(n) * p, np.full((1, 4), t))
    expected = -0.5 * ((r**2).sum() / (n / 4) + 4 * np.log(n / 4) + np.log(t / (n / 4)))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_mixture_is_laplace():
    """Kolmogorov's statistic of 20,000 draws is below .016 with probability 1 - 1e-4."""
    tau = laplace_mixture(np.array([2.0, 8.0]), 20_000, 3)
    x = np.random.default_rng(4).normal(size=tau.shape) * np.sqrt(tau)
    for j, scale in enumerate((1.0, 2.0)):
        assert stats.kstest(x[:, j], stats.laplace(scale=scale).cdf).statistic < 0.016


def test_normal_ratio_equals_scipy():
    rng = np.random.default_rng(5)
    roots = rng.normal(size=(2, 4, 4)) + 3 * np.eye(4)
    null, other = roots @ roots.transpose(0, 2, 1)
    r = rng.normal(0, 3, (6, 4))
    of_other, of_null = (stats.multivariate_normal(None, v).logpdf(r) for v in (other, null))
    np.testing.assert_allclose(normal_likelihood_ratio(r, null, other), of_other - of_null, 1e-9)
