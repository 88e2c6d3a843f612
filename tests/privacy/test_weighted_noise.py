import itertools
import math

import numpy as np
import pytest

from dpstats.privacy.gaussian import DiscreteGaussian
from dpstats.privacy.laws import DiscreteLaplace
from dpstats.privacy.weighted_noise import Combination


def combination(parts):
    return Combination(tuple((w, DiscreteLaplace(scale, count)) for w, scale, count in parts))


def test_distribution_function_against_simulation():
    size, rng = 50_000, np.random.default_rng(0)
    for parts in [
        ((0.95, 56.0, 1), (-0.05, 56.0, 19)),
        ((0.7, 3.0, 1), (-0.2, 10.0, 5), (0.1, 1.0, 40)),
    ]:
        drawn, law = np.zeros(size), combination(parts)
        for weight, scale, count in parts:  # sums of differences of geometric numbers
            up, down = rng.negative_binomial(count, -np.expm1(-1 / scale), (2, size))
            drawn += weight * (up - down)
        for share in (0.001, 0.3, 0.9):
            point = np.quantile(drawn, share) + 1e-3 * math.sqrt(law.variance)
            error = 4 * math.sqrt(share * (1 - share) / size) + 2e-3
            assert law.cdf(point) == pytest.approx(np.mean(drawn <= point), abs=error)
        assert drawn.var() == pytest.approx(law.variance, rel=0.03)


def test_quantiles_never_fall_inside_an_atom():
    """Of weights 1/2 and 1/4: at every beta no more than it lies strictly beyond the quantile."""
    z = np.arange(-400, 401)
    for kind, scale in itertools.product([DiscreteLaplace, DiscreteGaussian], [0.5, 3.0]):
        two, one = kind(scale, 2), kind(scale, 1)
        spread = np.zeros(2 * len(z) - 1)
        spread[::2] = two.pmf(z)
        mass = np.convolve(spread, one.pmf(z))
        values = np.abs(np.arange(len(mass)) - len(mass) // 2) / 4
        law = Combination(((0.5, two), (0.25, one)))
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
