"""The law of the noise against brute force: convolution, summation, integration, scanning."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy.integrate import quad

from dpstats.errors import RequestError
from dpstats.privacy.gaussian import DiscreteGaussian
from dpstats.privacy.laws import DiscreteLaplace, joint_quantiles

LAWS = pytest.mark.parametrize("kind", [DiscreteLaplace, DiscreteGaussian])


def relative_error(law):
    """What the docstring promises, times ten; 1 - a has lost the digits of a tiny a."""
    return 1e-12 if law.gaussian else 1e-11 + 1e-15 / math.exp(-1 / law.scale)


def seen(law):
    """Probabilities that the convolution has to its last digits."""
    return 1e-18 if law.gaussian else 1e-300


def test_pmf_is_the_convolution_and_sums_to_one(cases):
    for law, z, mass in cases:
        assert np.abs(law.pmf(z) - mass).max() < 1e-13
        assert law.pmf(z).sum() == pytest.approx(1, abs=1e-12)
        # relative accuracy, far below the absolute one
        centre = (np.abs(z) <= 40 * law.scale) & (mass > seen(law))
        np.testing.assert_allclose(law.pmf(z)[centre], mass[centre], rtol=relative_error(law))
        assert law.pmf([0.5, -1.25]).tolist() == [0, 0]


def test_cdf_and_tail_are_sums(cases):
    for law, z, mass in cases:
        assert np.abs(law.cdf(z) - np.cumsum(mass)).max() < 1e-13
        assert np.abs(law.cdf(z + 0.99) - np.cumsum(mass)).max() < 1e-13
        sd, centre = math.sqrt(law.variance), len(mass) // 2
        upper = np.append(np.cumsum(mass[::-1], dtype=np.longdouble)[::-1], 0)
        for t in (-2, 0, 0.5, 1, 1.5, 2, 7, 40, sd, 4 * sd, 8 * sd):
            beyond = min(centre + math.ceil(t), len(mass))
            expected = 1.0 if t <= 0 else float(2 * upper[beyond])
            if expected > seen(law):
                assert float(law.tail(t)) == pytest.approx(expected, rel=relative_error(law))


def test_variance(cases):
    for law, z, mass in cases:
        assert law.variance == pytest.approx((mass * z.astype(float) ** 2).sum(), rel=1e-9)


def test_quantile_is_the_smallest_valid_integer(cases):
    for law, z, mass in cases:
        error = max(relative_error(law), 1e-10)
        for beta in (0.9, 0.5, 0.05, 1e-3, 1e-9):
            q = law.quantile(beta)
            assert mass[np.abs(z) > q].sum() <= beta * (1 + error)
            assert q == 0 or mass[np.abs(z) > q - 1].sum() > beta * (1 - error)
            assert law.support(beta) == q


@pytest.mark.parametrize("terms", [1, 4])
@LAWS
def test_smoothed_cdf_is_the_integral_over_the_uniform(kind, terms):
    law = kind(1.7, terms)
    for t in (-6.5, -2.2, -0.5, 0.0, 0.3, 0.5, 1.0, 4.75):
        jump = t - math.floor(t + 0.5)  # where cdf(t - u) jumps
        points = [jump] if abs(jump) < 0.5 else None
        expected, _ = quad(lambda u, t=t: float(law.cdf(t - u)), -0.5, 0.5, points=points)
        assert float(law.smoothed_cdf(t)) == pytest.approx(expected, abs=1e-12)


def test_smoothed_cdf_is_symmetric_and_increasing():
    t = np.linspace(-30, 30, 4001)
    for law in (DiscreteLaplace(2.0), DiscreteLaplace(2.0, 3)):
        values = law.smoothed_cdf(t)
        assert np.all(np.diff(values) > 0)
        np.testing.assert_allclose(values + values[::-1], 1, atol=1e-14)


def test_far_tails_keep_their_relative_accuracy():
    law = DiscreteLaplace(2.0)
    for t in (100, 500, 1400):
        log_tail = math.log(2) - t / 2 - math.log1p(math.exp(-0.5))
        assert math.log(float(law.tail(t))) == pytest.approx(log_tail, rel=1e-14)
        assert float(law.cdf(-t)) == pytest.approx(float(law.tail(t)) / 2, rel=1e-14)


def test_far_tails_of_sums_keep_their_relative_accuracy():
    for terms in [2, 3, 7]:
        law = DiscreteLaplace(2.0, terms)
        a = Fraction(math.exp(-0.5))  # the law at this very float
        shares = [math.comb(terms - 1 + k, k) * a**k / (1 + a) ** (terms + k) for k in range(terms)]
        for t in (1, 40, 400, 1300):
            x = t + terms - 1
            exact = sum(
                share * math.comb(x, j) * (1 - a) ** j * a ** (x - j)
                for k, share in enumerate(shares)
                for j in range(terms - k)
            )
            # 1e-16 relative in a is 1e-16 t in its power
            assert float(law.tail(t)) == pytest.approx(float(2 * exact), rel=1e-13 + 1e-15 * t)
            at = float(law.smoothed_cdf(-t - 0.5))
            assert at == pytest.approx(float(law.tail(t + 1)) / 2, rel=1e-11)


def test_smoothed_cdf_follows_from_cdf_and_pmf_near_and_far():
    for terms in [1, 3, 60]:
        for scale in [0.4, 6.0, 3e3, 1e7]:
            law = DiscreteLaplace(scale, terms)
            sd = math.sqrt(law.variance)
            t = (
                np.concatenate([np.linspace(-60, 60, 401), [-1000.3, -0.5, 0, 0.2, 0.5, 1000.3]])
                * sd
            )
            for part in (
                t,
                t[np.abs(t) < 5 * sd],
            ):  # far points together with near ones, and near alone
                nearest = np.floor(part + 0.5)
                expected = law.cdf(nearest - 1) + law.pmf(nearest) * (part - nearest + 0.5)
                values = law.smoothed_cdf(part)
                np.testing.assert_allclose(values, expected, rtol=0, atol=1e-13)
                near = (part < 0) & (expected > 1e-250)
                rounding = 1e-11 + 1e-15 / math.exp(-1 / scale)
                np.testing.assert_allclose(values[near], expected[near], rtol=rounding)


def test_large_scales_approach_the_continuous_law():
    s = 1e9
    x = np.array([1e-3, 0.5, 3.0, 20.0, 300.0])
    one, two = DiscreteLaplace(s), DiscreteLaplace(s, 2)
    np.testing.assert_allclose(one.tail(x * s), np.exp(-x), rtol=1e-8)
    np.testing.assert_allclose(two.tail(x * s), np.exp(-x) * (2 + x) / 2, rtol=1e-8)
    np.testing.assert_allclose(one.pmf(np.round(x * s)), np.exp(-x) / (2 * s), rtol=1e-8)
    assert one.variance == pytest.approx(2 * s**2, rel=1e-12)
    assert one.quantile(0.05) == pytest.approx(s * math.log(20), rel=1e-8)


@LAWS
def test_extreme_arguments_give_numbers_without_warnings(kind):
    z = np.array([-math.inf, -1e300, -1, 0, 1, 1e300, math.inf])
    for scale, terms in product([2.0**-20, 0.05, 1.0, 1e9, 2.0**52], [1, 50, 400]):
        law = kind(scale, terms)
        for values in (law.pmf(z), law.cdf(z), law.tail(z), law.smoothed_cdf(z)):
            assert np.all((values >= 0) & (values <= 1 + 1e-12))
        np.testing.assert_allclose(law.cdf(z)[[0, 1, -2, -1]], [0, 0, 1, 1], atol=1e-100)


def test_many_terms_approach_the_normal_law():
    law = DiscreteLaplace(2.0, 200)
    z = 1.5 * math.sqrt(law.variance)
    # Kurtosis of the sum is 3/200, an Edgeworth shift of about 1e-4.
    assert float(law.smoothed_cdf(z)) == pytest.approx(0.9331928, abs=3e-4)


def test_joint_quantile_of_equal_laws_is_the_smallest_valid():
    for functions in [1, 2, 7, 1000, 150_000]:
        grid = np.arange(2000)
        laws = [DiscreteLaplace(0.4), DiscreteLaplace(9.0), DiscreteLaplace(9, 3)]
        for law, beta in product(laws, (0.3, 0.05, 1e-4)):
            q = joint_quantiles([law] * functions, beta)
            assert q.dtype == np.int64
            assert q.shape == (functions,)
            assert np.all(q == q[0])
            joint = np.exp(functions * np.log1p(-np.minimum(law.tail(grid + 1), 1 - 1e-16)))
            assert q[0] == np.flatnonzero(joint >= 1 - beta)[0]


@LAWS
def test_joint_quantiles_of_different_laws_are_valid_and_cannot_be_lowered(kind):
    groups = {kind(0.6): 5, kind(4.0): 40, kind(300.0, 2): 3}
    laws = [law for law, n in groups.items() for _ in range(n)]
    for beta in (0.5, 0.1, 0.05, 0.01, 1e-6):
        by_law = dict(zip(laws, joint_quantiles(laws, beta).tolist(), strict=True))

        def joint(bounds):
            # Exact product of the probabilities as rationals.
            inside = (1 - Fraction(float(law.tail(q + 1))) for law, q in bounds.items())
            return math.prod(p**n for p, n in zip(inside, groups.values(), strict=True))

        assert joint(by_law) >= 1 - Fraction(beta)
        for law, q in by_law.items():
            assert q == 0 or joint(by_law | {law: q - 1}) < 1 - Fraction(beta)


@LAWS
def test_bad_scales_are_refused(kind):
    for scale in (0, -1.0, math.nan, math.inf, 2.0**53, True, None, "1"):
        with pytest.raises(RequestError, match="scale must be"):
            kind(scale)


@LAWS
def test_bad_terms_are_refused(kind):
    for terms in [0, -1, 1.0, True, None]:
        with pytest.raises(RequestError, match="terms must be"):
            kind(1.0, terms)


def test_bad_probabilities_are_refused():
    for beta in [0, 1, -0.1, 95, math.nan, None]:
        with pytest.raises(RequestError, match=r"beta must be in \(0, 1\)"):
            DiscreteLaplace(1.0).quantile(beta)
        with pytest.raises(RequestError, match=r"beta must be in \(0, 1\)"):
            joint_quantiles([DiscreteLaplace(1.0)], beta)
