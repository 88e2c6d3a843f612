"""Average likelihood ratios against dense normal densities."""

import numpy as np
import pytest
from scipy import stats

from dpstats.analyses.tables.likelihood_ratio import (
    average_likelihood_ratio,
    laplace_mixture,
    log_average_likelihood,
    normal_likelihood_ratio,
)


def dense(r, diagonal, rank_one, tau, extra):
    """Log average likelihood of each residual vector, one density at a time."""
    result = []
    for i in range(len(r)):
        D, a, c = (np.broadcast_to(x, r.shape)[i] for x in (diagonal, rank_one, extra))
        covariances = [np.diag(t + D) - np.outer(a, a) + np.outer(c, c) for t in tau]
        logs = [stats.multivariate_normal(None, v).logpdf(r[i]) for v in covariances]
        result.append(np.logaddexp.reduce(logs) - np.log(len(tau)))
    return np.array(result) + r.shape[1] / 2 * np.log(2 * np.pi)


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("with_extra", [False, True])
def test_equals_dense_densities(rows, with_extra):
    rng = np.random.default_rng(1)
    d, n, R = 5, 40, 7
    p = rng.dirichlet(np.full(d, 3.0), R if rows else None)
    r, tau = rng.normal(0, 9, (R, d)), laplace_mixture(np.full(d, 30.0), 11, 0)
    extra = rng.normal(0, 4, (R, d)) if with_extra else np.zeros(d)
    found = log_average_likelihood(r, n * p, np.sqrt(n) * p, tau, extra)
    np.testing.assert_allclose(found, dense(r, n * p, np.sqrt(n) * p, tau, extra), rtol=1e-10)
    ratio = average_likelihood_ratio(r, n * p, np.sqrt(n) * p, tau, extra, inflation=1.5)
    wide = dense(r, 2.5 * n * p, np.sqrt(2.5 * n) * p, tau, extra)
    null = dense(r, n * p, np.sqrt(n) * p, tau, np.zeros(d))
    np.testing.assert_allclose(ratio, wide - null, rtol=1e-9)


def test_chunks_change_nothing(monkeypatch):
    rng = np.random.default_rng(2)
    p, tau = rng.dirichlet(np.ones(3), 50), laplace_mixture(np.full(3, 5.0), 20, 0)
    r = rng.normal(0, 5, (50, 3))
    whole = log_average_likelihood(r, 30 * p, np.sqrt(30) * p, tau)
    monkeypatch.setattr("dpstats.analyses.tables.likelihood_ratio._CELLS", 200)
    pieces = log_average_likelihood(r, 30 * p, np.sqrt(30) * p, tau)
    np.testing.assert_allclose(pieces, whole, rtol=1e-12)


def test_tiny_noise_keeps_all_digits():
    """With little noise 1 - a' A a is tiny; it must not be lost in rounding."""
    from fractions import Fraction

    n, t = 50_000, 1e-12
    p = np.full(4, 0.25)
    r = np.array([[3.0, -3.0, 5.0, -5.0]])
    found = log_average_likelihood(r, n * p, np.sqrt(n) * p, np.full((1, 4), t))
    g = float(Fraction(t) / (Fraction(t) + n // 4))
    expected = -0.5 * ((r**2).sum() / (n / 4) + 4 * np.log(n / 4) + np.log(g))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_mixture_is_laplace():
    tau = laplace_mixture(np.array([2.0, 8.0]), 200_000, 3)
    x = np.random.default_rng(4).normal(size=tau.shape) * np.sqrt(tau)
    for j, scale in enumerate((1.0, 2.0)):
        # Kolmogorov's statistic is below 0.005 for 200,000 draws with probability 1 - 1e-4
        assert stats.kstest(x[:, j], stats.laplace(scale=scale).cdf).statistic < 0.005


@pytest.mark.parametrize("rows", [False, True])
def test_normal_ratio_equals_scipy(rows):
    rng = np.random.default_rng(5)
    roots = rng.normal(size=(2, 6, 4, 4)) + 3 * np.eye(4)
    null, other = roots @ roots.transpose(0, 1, 3, 2)
    r = rng.normal(0, 3, (6, 4))
    expected = [
        stats.multivariate_normal(None, other[i if rows else 0]).logpdf(r[i])
        - stats.multivariate_normal(None, null[i if rows else 0]).logpdf(r[i])
        for i in range(6)
    ]
    found = normal_likelihood_ratio(r, null if rows else null[0], other if rows else other[0])
    np.testing.assert_allclose(found, expected, rtol=1e-9)
