import itertools

import numpy as np
import pytest
from scipy.signal import fftconvolve

from dpstats.privacy.gaussian import DiscreteGaussian
from dpstats.privacy.laws import DiscreteLaplace
from dpstats.privacy.weighted_noise import Combination


def combination(parts):
    return Combination(tuple((w, DiscreteLaplace(scale, count)) for w, scale, count in parts))


def convolved(law, step):
    """Values and their probabilities, of weights that are multiples of the step."""
    mass = np.ones(1)
    for weight, part in law.parts:
        reach, times = part.support(1e-15), round(abs(weight) / step)
        spread = np.zeros(2 * reach * times + 1)
        spread[::times] = np.diff(part.cdf(np.arange(-reach - 1, reach + 1)))
        mass = fftconvolve(mass, spread)
    return step * (np.arange(len(mass)) - len(mass) // 2), mass


def test_the_distribution_function_is_that_of_the_convolution():
    for parts, step in [
        (((0.95, 56.0, 1), (-0.05, 56.0, 19)), 0.05),
        (((0.7, 3.0, 1), (-0.2, 10.0, 5), (0.1, 1.0, 40)), 0.1),
    ]:
        law = combination(parts)
        values, mass = convolved(law, step)
        for at in np.searchsorted(mass.cumsum(), (1e-6, 0.001, 0.3, 0.9)):
            found = law.cdf(values[at] + step / 2)
            assert found == pytest.approx(mass[: at + 1].sum(), rel=2e-6, abs=0), parts
        assert law.variance == pytest.approx(mass @ values**2, rel=1e-9), parts


def test_quantiles_never_fall_inside_an_atom():
    """Of weights 1/2 and 1/4: at every beta no more than it lies strictly beyond the quantile."""
    for kind, scale in itertools.product([DiscreteLaplace, DiscreteGaussian], [0.5, 3.0]):
        law = Combination(((0.5, kind(scale, 2)), (0.25, kind(scale, 1))))
        values, mass = convolved(law, 0.25)
        for beta in np.geomspace(1e-3, 0.9, 60):
            assert mass[np.abs(values) > law.quantile(beta)].sum() <= beta * (1 + 1e-9), beta


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
