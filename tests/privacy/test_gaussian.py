"""The discrete Gaussian law alone: transforms, switches of formula, the normal limit."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from dpstats.privacy.gaussian import DiscreteGaussian


def test_variance_and_positive_part(gaussian_cases):
    for law, z, mass in gaussian_cases:
        assert law.variance == pytest.approx((mass * z.astype(float) ** 2).sum(), rel=1e-12)
        assert law.variance <= law.terms * law.scale**2 * (1 + 1e-15)
        expected = (mass * z)[z > 0].sum()
        assert law.positive_part() == pytest.approx(expected, rel=1e-5, abs=1e-12)


def test_characteristic_function(gaussian_cases):
    for law, z, mass in gaussian_cases:
        t = np.concatenate([np.linspace(-9, 9, 41), [math.pi, 2 * math.pi, 1e4]])
        expected = np.cos(np.outer(t, z)) @ mass
        found = law.log_characteristic(t)
        np.testing.assert_allclose(np.exp(found), expected, rtol=0, atol=1e-12)
        small = expected > 1e-6
        np.testing.assert_allclose(found[small], np.log(expected[small]), atol=1e-7)


def test_moment_generating_function_is_bounded(gaussian_cases):
    for law, z, mass in gaussian_cases:
        for share in (0.1, 1.0, 3.0):
            u = share / (law.scale * math.sqrt(law.terms))
            moment = math.log(math.fsum(mass * np.exp(np.clip(u * z, -700, 700))))
            assert moment <= float(law.log_mgf(np.array(u))) + 1e-12


def test_formulas_agree_on_both_sides_of_every_switch():
    for scale in (2.0, 256.0):
        below = DiscreteGaussian(math.nextafter(scale, 0))
        above = DiscreteGaussian(scale * (1 + 1e-15))
        for t in (1, 2, round(scale), round(5 * scale), round(20 * scale)):
            assert float(above.tail(t)) == pytest.approx(float(below.tail(t)), rel=1e-11)
            assert float(above.pmf(t)) == pytest.approx(float(below.pmf(t)), rel=1e-11)


def test_large_scales_approach_the_normal_law():
    for scale in (1e5, 1e9, 2.0**52):  # 1e5: its square is 1e10
        law, x = DiscreteGaussian(scale), np.array([0.01, 0.5, 3.0, 7.0, 20.0])
        t = np.ceil(x * scale)
        # the normal tail at t - 1/2 is off by a relative (x^2 + 1) / (24 scale^2) or so
        np.testing.assert_allclose(law.tail(t), 2 * norm.sf((t - 0.5) / scale), rtol=4e-9)
        np.testing.assert_allclose(law.pmf(t), norm.pdf(t / scale) / scale, rtol=1e-12)
        assert law.variance == scale**2
        assert law.quantile(0.05) == pytest.approx(scale * norm.isf(0.025), abs=2, rel=1e-14)


def test_arguments_of_all_sizes_have_a_finite_transform():
    for scale in (2.0**-20, 0.05, 1.0, 1e9, 2.0**52):
        for terms in (1, 50, 400):
            transform = DiscreteGaussian(scale, terms).log_characteristic(np.array([0, 1e-9, 0.1]))
            assert np.isfinite(transform).all()
