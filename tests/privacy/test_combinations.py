import math

import numpy as np
import pytest

from dpstats.errors import RequestError
from dpstats.privacy.combinations import Combination
from dpstats.privacy.laws import DiscreteLaplace

PARTS = [
    ((0.95, 56.0, 1), (-0.05, 56.0, 19)),
    ((0.7, 3.0, 1), (-0.2, 10.0, 5), (0.1, 1.0, 40)),
    ((1 / 7, 56.0, 70),),
    ((0.3, 0.4, 3), (0.01, 900.0, 2)),
]


def draws(parts, size, rng):
    total = np.zeros(size)
    for weight, scale, count in parts:
        p = -np.expm1(-1 / scale)
        total += weight * (
            rng.negative_binomial(count, p, size) - rng.negative_binomial(count, p, size)
        )
    return total


def test_one_laplace_variable_is_the_closed_form():
    exact, inverted = DiscreteLaplace(8.0), Combination(((1.0, DiscreteLaplace(8.0)),))
    between = np.arange(-200, 200, 3) + 0.5  # smoothing keeps away from the atoms
    np.testing.assert_allclose(inverted.cdf(between), exact.cdf(between), atol=1e-9)
    assert inverted.variance == pytest.approx(exact.variance)


def test_integer_sums_agree_with_the_mixture_formula():
    exact, inverted = DiscreteLaplace(5.0, 12), Combination(((1.0, DiscreteLaplace(5.0, 12)),))
    between = np.arange(-150, 150, 7) + 0.5
    np.testing.assert_allclose(inverted.cdf(between), exact.cdf(between), atol=1e-7)


@pytest.mark.parametrize("parts", PARTS)
def test_distribution_function_against_simulation(parts):
    size = 200_000
    drawn = np.sort(draws(parts, size, np.random.default_rng(0)))
    law = Combination(parts)
    for share in (0.001, 0.02, 0.3, 0.5, 0.9, 0.999):
        point = drawn[int(share * size)] + 1e-3 * math.sqrt(law.variance)
        error = 4 * math.sqrt(share * (1 - share) / size) + 2e-3
        assert law.cdf(point) == pytest.approx(np.mean(drawn <= point), abs=error)
    assert drawn.var() == pytest.approx(law.variance, rel=0.03)


@pytest.mark.parametrize("parts", PARTS)
def test_quantile_and_tail_belong_together(parts):
    law = Combination(parts)
    for beta in (0.5, 0.05, 1e-4):
        q = law.quantile(beta)
        assert law.tail(q) <= beta * (1 + 1e-6)
        assert law.tail(q * 0.999) > beta * 0.98
    assert law.tail(0) == pytest.approx(1)
    assert law.tail(law.support()) < 1e-9


def test_any_scale_and_no_weight():
    for scale in (1e-6, 1e-3, 1.0, 1e9):
        law = Combination(((0.5, scale, 4),))
        assert np.isfinite(law.quantile(0.05))
        assert law.cdf(0) == pytest.approx(0.5, abs=0.51)
    with pytest.raises(RequestError, match="non-zero weight"):
        Combination(((0.0, 1.0, 1),))
