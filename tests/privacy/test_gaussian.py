"""The discrete Gaussian law against brute force: summation, convolution, the normal limit."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from dpstats.errors import RequestError
from dpstats.privacy.gaussian import DiscreteGaussian
from dpstats.privacy.laws import joint_quantiles

SCALES = [0.05, 0.3, 1.0, 1.3, 1.99, 2.0, 12.5, 255.0, 257.0]
TERMS = [1, 2, 3, 7]


def brute_pmf(scale, terms):
    """Points and the repeated convolution of the normalised exp(-z^2 / (2 scale^2))."""
    length = min(math.ceil(38 * scale) + 2, 3600)
    single = np.exp(-0.5 * (np.arange(-length, length + 1) / scale) ** 2)
    single /= math.fsum(single)
    mass = single
    for _ in range(terms - 1):
        mass = np.convolve(mass, single)
    return np.arange(-terms * length, terms * length + 1), mass


@pytest.fixture(scope="module", params=[(s, t) for s in SCALES for t in TERMS], ids=str)
def case(request):
    scale, terms = request.param
    z, mass = brute_pmf(scale, terms)
    return DiscreteGaussian(scale, terms), z, mass


def test_pmf_is_the_convolution_and_sums_to_one(case):
    law, z, mass = case
    assert np.abs(law.pmf(z) - mass).max() < 1e-14
    assert law.pmf(z).sum() == pytest.approx(1, abs=1e-13)
    seen = mass > 1e-18  # relative accuracy, far below the absolute one
    np.testing.assert_allclose(law.pmf(z)[seen], mass[seen], rtol=1e-12)
    assert law.pmf([0.5, -1.25]).tolist() == [0, 0]


def test_cdf_and_tail_are_sums(case):
    law, z, mass = case
    assert np.abs(law.cdf(z) - np.cumsum(mass)).max() < 1e-13
    assert np.abs(law.cdf(z + 0.99) - np.cumsum(mass)).max() < 1e-13
    sd = math.sqrt(law.variance)
    for t in (-2, 0, 0.5, 1, 1.5, 2, 7, sd, 4 * sd, 8 * sd):
        expected = math.fsum(mass[np.abs(z) >= t])
        if expected > 1e-18:  # the convolution itself is cut
            assert float(law.tail(t)) == pytest.approx(expected, rel=1e-12)


def test_variance_and_positive_part(case):
    law, z, mass = case
    assert law.variance == pytest.approx((mass * z.astype(float) ** 2).sum(), rel=1e-12)
    assert law.variance <= law.terms * law.scale**2 * (1 + 1e-15)
    expected = (mass * z)[z > 0].sum()
    assert law.positive_part() == pytest.approx(expected, rel=1e-5, abs=1e-12)


def test_characteristic_function(case):
    law, z, mass = case
    t = np.concatenate([np.linspace(-9, 9, 41), [math.pi, 2 * math.pi, 1e4]])
    expected = np.cos(np.outer(t, z)) @ mass
    found = law.log_characteristic(t)
    np.testing.assert_allclose(np.exp(found), expected, rtol=0, atol=1e-12)
    small = expected > 1e-6
    np.testing.assert_allclose(found[small], np.log(expected[small]), atol=1e-7)


def test_moment_generating_function_is_bounded(case):
    law, z, mass = case
    for share in (0.1, 1.0, 3.0):
        u = share / (law.scale * math.sqrt(law.terms))
        moment = math.log(math.fsum(mass * np.exp(np.clip(u * z, -700, 700))))
        assert moment <= float(law.log_mgf(np.array(u))) + 1e-12


@pytest.mark.parametrize("beta", [0.9, 0.5, 0.05, 1e-3, 1e-9])
def test_quantile_is_the_smallest_valid_integer(case, beta):
    law, z, mass = case
    q = law.quantile(beta)
    assert mass[np.abs(z) > q].sum() <= beta * (1 + 1e-10)
    assert q == 0 or mass[np.abs(z) > q - 1].sum() > beta * (1 - 1e-10)
    assert law.support(beta) == q


@pytest.mark.parametrize("terms", [1, 4])
@pytest.mark.parametrize("t", [-6.5, -2.2, -0.5, 0.0, 0.3, 0.5, 1.0, 4.75])
def test_smoothed_cdf_is_the_integral_over_the_uniform(t, terms):
    law = DiscreteGaussian(1.7, terms)
    jump = t - math.floor(t + 0.5)  # where cdf(t - u) jumps
    points = [jump] if abs(jump) < 0.5 else None
    expected, _ = quad(lambda u: float(law.cdf(t - u)), -0.5, 0.5, points=points)
    assert float(law.smoothed_cdf(t)) == pytest.approx(expected, abs=1e-12)


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


@pytest.mark.parametrize("scale", [2.0**-20, 0.05, 1.0, 1e9, 2.0**52])
@pytest.mark.parametrize("terms", [1, 50, 400])
def test_extreme_arguments_give_numbers_without_warnings(scale, terms):
    law = DiscreteGaussian(scale, terms)
    z = np.array([-math.inf, -1e300, -1, 0, 1, 1e300, math.inf])
    for values in (law.pmf(z), law.cdf(z), law.tail(z), law.smoothed_cdf(z)):
        assert np.all((values >= 0) & (values <= 1 + 1e-12))
    np.testing.assert_allclose(law.cdf(z)[[0, 1, -2, -1]], [0, 0, 1, 1], atol=1e-100)
    assert np.isfinite(law.log_characteristic(np.array([0.0, 1e-9, 0.1]))).all()


def test_shapes_are_kept():
    law = DiscreteGaussian(1.5, 2)
    z = np.arange(6).reshape(2, 3)
    for method in (law.pmf, law.cdf, law.tail, law.smoothed_cdf):
        assert method(z).shape == (2, 3)
        assert method(1).shape == ()


def test_joint_quantiles_are_valid_and_cannot_be_lowered():
    groups = {DiscreteGaussian(0.6): 5, DiscreteGaussian(4.0): 40, DiscreteGaussian(300.0, 2): 3}
    laws = [law for law, n in groups.items() for _ in range(n)]
    for beta in (0.5, 0.05, 1e-6):
        by_law = dict(zip(laws, joint_quantiles(laws, beta).tolist(), strict=True))

        def joint(bounds):
            inside = (1 - Fraction(float(law.tail(q + 1))) for law, q in bounds.items())
            return math.prod(p**n for p, n in zip(inside, groups.values(), strict=True))

        assert joint(by_law) >= 1 - Fraction(beta)
        for law, q in by_law.items():
            assert q == 0 or joint(by_law | {law: q - 1}) < 1 - Fraction(beta)


@pytest.mark.parametrize("scale", [0, -1.0, math.nan, math.inf, 2.0**53, True, None, "1"])
def test_bad_scales_are_refused(scale):
    with pytest.raises(RequestError, match="scale must be"):
        DiscreteGaussian(scale)


@pytest.mark.parametrize("terms", [0, -1, 1.0, True, None])
def test_bad_terms_are_refused(terms):
    with pytest.raises(RequestError, match="terms must be"):
        DiscreteGaussian(1.0, terms)
