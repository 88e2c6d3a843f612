import math

import numpy as np
import pytest

from dpstats.privacy.gaussian import DiscreteGaussian
from dpstats.privacy.laws import DiscreteLaplace
from dpstats.privacy.weighted_noise import Combination

PARTS = [
    ((0.95, 56.0, 1), (-0.05, 56.0, 19)),
    ((0.7, 3.0, 1), (-0.2, 10.0, 5), (0.1, 1.0, 40)),
    ((1 / 7, 56.0, 70),),
    ((0.3, 0.4, 3), (0.01, 900.0, 2)),
]


def combination(parts, kind=DiscreteLaplace):
    return Combination(tuple((weight, kind(scale, count)) for weight, scale, count in parts))


def draws(parts, size, rng):
    """Sums of single Laplace noises."""
    total = np.zeros(size)
    for weight, scale, count in parts:
        p = -np.expm1(-1 / scale)
        drawn = rng.negative_binomial(count, p, size) - rng.negative_binomial(count, p, size)
        total += weight * drawn
    return total


def test_distribution_function_against_simulation():
    size = 50_000
    for parts in PARTS[:2]:
        drawn = np.sort(draws(parts, size, np.random.default_rng(0)))
        law = combination(parts)
        for share in (0.001, 0.3, 0.9):
            point = drawn[int(share * size)] + 1e-3 * math.sqrt(law.variance)
            error = 4 * math.sqrt(share * (1 - share) / size) + 2e-3
            assert law.cdf(point) == pytest.approx(np.mean(drawn <= point), abs=error)
        assert drawn.var() == pytest.approx(law.variance, rel=0.03)


def exact_tail(parts, reach=400):
    """Atoms and probabilities of |W| for weights that are multiples of 1/4, by convolution."""
    mass = np.array([1.0])
    for weight, law in parts:
        step, z = round(4 * weight), np.arange(-reach, reach + 1)
        spread = np.zeros(2 * step * reach + 1)
        spread[:: step or 1] = law.pmf(z)
        mass = np.convolve(mass, spread)
    values = np.abs(np.arange(len(mass)) - len(mass) // 2) / 4
    return values, mass


def test_quantiles_never_fall_inside_an_atom():
    """At every beta no more than beta lies strictly beyond the quantile."""
    for kind in [DiscreteLaplace, DiscreteGaussian]:
        for scale in [0.5, 3.0]:
            parts = ((0.5, kind(scale, 2)), (0.25, kind(scale, 1)))
            law = Combination(parts)
            values, mass = exact_tail(parts)
            for beta in np.geomspace(1e-3, 0.9, 60):
                assert mass[values > law.quantile(beta)].sum() <= beta * (1 + 1e-9), beta


def test_invertible_sees_the_returns_of_a_characteristic_function():
    """Of Laplace noise, whose characteristic function falls slowest."""
    for parts, invertible in [
        (((0.9, 20.0, 1), (0.1, 20.0, 7), (0.03, 20.0, 40)), True),
        (((0.6, 20.0, 1),), False),  # returns to 1 at 10.5
        (((0.6, 3000.0, 1), (0.3, 3000.0, 1)), False),  # a peak of width 5e-4 there
        (((1.0, 20.0, 1), (0.5, 12.0, 1)), False),
        (((0.3, 20.0, 1), (0.7, 20.0, 1)), False),  # both do at 62.8
    ]:
        law = combination(parts)
        s = np.linspace(np.pi, 70, 170_001)  # steps of 4e-4
        assert law.invertible == (law.log_characteristic(s).max() < -20) == invertible
