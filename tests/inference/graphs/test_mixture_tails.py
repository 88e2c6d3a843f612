"""Tails of normal errors with Laplace noise, against numerical inversion."""

import numpy as np
import pytest
from scipy import integrate, stats

from dpstats.inference.mixture_tails import MixtureTails


def exact_tail(x, normal, laplace, terms):
    """P(|error| >= x) from the characteristic function."""

    def integrand(t):
        log = -normal * t * t / 2 - np.sum(terms * np.log1p(laplace * t * t / (2 * terms)))
        return np.sin(t * x) / t * np.exp(log)

    end = 60 / np.sqrt(normal + laplace.sum())
    return 1 - 2 / np.pi * integrate.quad(integrand, 0, end, limit=2_000, epsabs=1e-13)[0]


@pytest.mark.parametrize(("k", "share"), [(1, 0.5), (20, 0.9), (65, 0.99)])
def test_tails_are_within_four_per_cent(k, share):
    rng = np.random.default_rng(k)
    laplace = rng.exponential(size=(1, k)) ** 2
    laplace *= share / laplace.sum()
    terms = rng.integers(1, 3, k).astype(float)
    law = MixtureTails(np.array([1 - share]), laplace, terms)
    for x in (0.5, 2.0, 3.0, 5.0):
        exact = exact_tail(x, 1 - share, laplace[0], terms)
        assert law.tail(np.array([x]))[0] == pytest.approx(exact, rel=0.04)


def test_normal_laws_are_exact_and_quantiles_invert_tails():
    law = MixtureTails(np.array([4.0, 1.0]), np.zeros((2, 0)), np.zeros(0))
    tails = law.tail(np.array([4.0, -3.0]))
    np.testing.assert_allclose(tails, 2 * stats.norm.sf([2, 3]), rtol=1e-9)
    np.testing.assert_allclose(law.quantile(0.05), stats.norm.isf(0.025) * np.array([2, 1]))
    rng = np.random.default_rng(0)
    law = MixtureTails(rng.random(6), rng.exponential(size=(6, 30)), np.ones(30))
    for alpha in (0.5, 0.05, 1e-4, 1e-8):
        np.testing.assert_allclose(law.tail(law.quantile(alpha)), alpha, rtol=1e-5)
