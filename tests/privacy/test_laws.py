"""The law of the noise against brute force: convolution, summation, integration, scanning."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from dpstats.errors import RequestError
from dpstats.privacy.gaussian import DiscreteGaussian
from dpstats.privacy.laws import DiscreteLaplace, joint_quantiles

LAWS = pytest.mark.parametrize("kind", [DiscreteLaplace, DiscreteGaussian])


@LAWS
def test_arguments_without_a_law_are_refused(kind):
    for scale in (0, -1.0, math.nan, 2.0**53, True, None):
        with pytest.raises(RequestError, match="scale must be"):
            kind(scale)
    for terms in (0, 1.0, True, None):
        with pytest.raises(RequestError, match="terms must be"):
            kind(1.0, terms)
    for beta in (0, 1, 95, math.nan, None):
        for call in (kind(1.0).quantile, lambda beta: joint_quantiles([kind(1.0)], beta)):
            with pytest.raises(RequestError, match=r"beta must be in \(0, 1\)"):
                call(beta)


def convolved(law):
    """A law, points and their probabilities: the defining formula, summed and convolved."""
    scale = law.scale
    length = min(math.ceil(38 * scale) + 2, 3600) if law.gaussian else 700
    z = np.arange(-length, length + 1) / scale
    single = np.exp(-0.5 * z**2 if law.gaussian else -np.abs(z))
    single /= math.fsum(single)
    mass = single
    for _ in range(law.terms - 1):
        mass = np.convolve(mass, single)
    return law, np.arange(-law.terms * length, law.terms * length + 1), mass


@pytest.fixture(scope="module")
def gaussian_cases():
    scales = (0.05, 1.0, 1.99, 2.0, 255.0, 257.0)
    return [convolved(DiscreteGaussian(s, t)) for s in scales for t in (1, 3)]


@pytest.fixture(scope="module")
def cases(gaussian_cases):
    laplace = [convolved(DiscreteLaplace(s, t)) for s in (0.05, 0.7, 12.5) for t in (1, 2, 6)]
    return laplace + gaussian_cases


def test_probabilities_and_quantiles_are_those_of_the_convolution(cases):
    """In relative terms too, far below the absolute ones; a quantile is the smallest integer."""
    for law, z, mass in cases:
        # ten times what the docstring promises; 1 - a has lost the digits of a tiny a
        rtol = 1e-12 if law.gaussian else 1e-11 + 1e-15 / math.exp(-1 / law.scale)
        seen = 1e-18 if law.gaussian else 1e-300  # what the convolution has to its last digits
        for within in (0, 0.99):
            assert np.abs(law.cdf(z + within) - np.cumsum(mass)).max() < 1e-13
        sd, middle = math.sqrt(law.variance), len(mass) // 2
        upper = np.append(np.cumsum(mass[::-1], dtype=np.longdouble)[::-1], 0)
        for t in (-2, 0, 0.5, 1, 1.5, 2, 7, 40, 150, sd, 4 * sd, 8 * sd):
            beyond = min(middle + math.ceil(t), len(mass))
            expected = 1.0 if t <= 0 else float(2 * upper[beyond])
            if expected > seen:
                assert float(law.tail(t)) == pytest.approx(expected, rel=rtol, abs=0), (law, t)
                # a uniform from -0.5 to 0.5 moves no sum across the middle of two integers
                below = float(law.smoothed_cdf(0.5 - math.ceil(t)))
                assert t <= 0 or below == pytest.approx(expected / 2, rel=rtol, abs=0)
        error = max(rtol, 1e-10)
        for beta in (0.9, 0.5, 0.05, 1e-3, 1e-9):
            q = law.quantile(beta)
            assert mass[np.abs(z) > q].sum() <= beta * (1 + error)
            assert q == 0 or mass[np.abs(z) > q - 1].sum() > beta * (1 - error)
            assert law.support(beta) == q


@LAWS
def test_smoothed_cdf_is_the_integral_over_the_uniform(kind):
    law = kind(1.7, 4)
    for t in (-6.5, -0.5, 0.0, 0.3, 4.75):
        jump = t - math.floor(t + 0.5)  # where cdf(t - u) jumps
        points = [jump] if abs(jump) < 0.5 else None
        expected, _ = quad(lambda u, t=t: float(law.cdf(t - u)), -0.5, 0.5, points=points)
        assert float(law.smoothed_cdf(t)) == pytest.approx(expected, abs=1e-12)


def test_large_scales_approach_the_continuous_law():
    s, x = 1e9, np.array([1e-3, 0.5, 3.0, 20.0, 300.0])
    np.testing.assert_allclose(DiscreteLaplace(s).tail(x * s), np.exp(-x), rtol=1e-8)
    two = np.exp(-x) * (2 + x) / 2
    np.testing.assert_allclose(DiscreteLaplace(s, 2).tail(x * s), two, rtol=1e-8)
    for scale in (1e5, 2.0**52):  # 1e5: its square is 1e10
        law, x = DiscreteGaussian(scale), np.array([0.01, 0.5, 3.0, 7.0, 20.0])
        t = np.ceil(x * scale)
        # the normal tail at t - 1/2 is off by a relative (x^2 + 1) / (24 scale^2) or so
        np.testing.assert_allclose(law.tail(t), 2 * norm.sf((t - 0.5) / scale), rtol=4e-9)


@LAWS
def test_extreme_arguments_give_numbers_without_warnings(kind):
    z = np.array([-math.inf, -1e300, -1, 0, 1, 1e300, math.inf])
    for scale, terms in product([2.0**-20, 1.0, 2.0**52], [1, 50]):
        law = kind(scale, terms)
        for values in (law.cdf(z), law.tail(z), law.smoothed_cdf(z)):
            assert np.all((values >= 0) & (values <= 1 + 1e-12))
        np.testing.assert_allclose(law.cdf(z)[[0, 1, -2, -1]], [0, 0, 1, 1], atol=1e-100)


@LAWS
def test_joint_quantiles_of_different_laws_are_valid_and_cannot_be_lowered(kind):
    groups = {kind(0.6): 5, kind(4.0): 40, kind(300.0, 2): 3}
    laws = [law for law, n in groups.items() for _ in range(n)]
    for beta in (0.5, 0.05, 1e-6):
        by_law = dict(zip(laws, joint_quantiles(laws, beta).tolist(), strict=True))

        def joint(bounds):
            # Exact product of the probabilities as rationals.
            inside = (1 - Fraction(float(law.tail(q + 1))) for law, q in bounds.items())
            return math.prod(p**n for p, n in zip(inside, groups.values(), strict=True))

        assert joint(by_law) >= 1 - Fraction(beta)
        for law, q in by_law.items():
            assert q == 0 or joint(by_law | {law: q - 1}) < 1 - Fraction(beta)


def test_moments_and_transforms(gaussian_cases):
    for law, z, mass in gaussian_cases:
        assert law.variance == pytest.approx((mass * z.astype(float) ** 2).sum(), rel=1e-12)
        assert law.variance <= law.terms * law.scale**2 * (1 + 1e-15)
        expected = (mass * z)[z > 0].sum()
        assert law.positive_part() == pytest.approx(expected, rel=1e-5, abs=1e-12)
        t = np.concatenate([np.linspace(-9, 9, 13), [math.pi, 2 * math.pi, 1e4]])
        expected, found = np.cos(np.outer(t, z)) @ mass, law.log_characteristic(t)
        np.testing.assert_allclose(np.exp(found), expected, rtol=0, atol=1e-12)
        small = expected > 1e-6
        np.testing.assert_allclose(found[small], np.log(expected[small]), atol=1e-7)
        for share in (0.1, 1.0, 3.0):
            u = share / (law.scale * math.sqrt(law.terms))
            moment = math.log(math.fsum(mass * np.exp(np.clip(u * z, -700, 700))))
            assert moment <= float(law.log_mgf(np.array(u))) + 1e-12
