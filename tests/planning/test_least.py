"""The search: its promise for any curve, and few evaluations for the usual ones."""

import itertools
import math

import pytest

from dpstats.planning.measures import Measure
from dpstats.planning.solve import find_least


def digits(value):
    return float(f"{value:.3g}")


def search(curve, start=1.0, power=0.0, low=1e-4, high=1e4, grid=digits):
    tried = []

    def shortfall(value):
        tried.append(value)
        return curve(value)

    return *find_least(shortfall, (low, high), grid, start, power=power), tried


def test_few_evaluations_find_the_root_of_a_width():
    """w^2 = sampling + noise / v^2, at one where v is the root."""
    for root, sampling, start in itertools.product(
        (0.007, 2_000.0), (0.0, 0.5, 0.99999), (1e-4, 1.0, 500.0)
    ):

        def curve(value, root=root, sampling=sampling):
            return 0.5 * math.log(sampling + (1 - sampling) * (root / value) ** 2)

        hit, miss, tried = search(curve, start, power=2.0)
        assert miss < root <= hit * (1 + 1e-12) <= miss * Measure.close * (1 + 1e-12)
        assert len(tried) <= 12


@pytest.mark.parametrize(
    "curve",
    [
        lambda ratio: math.log(ratio),
        lambda ratio: math.copysign(1.0, ratio - 1 + 1e-12),  # a step
        lambda ratio: math.log(ratio) if ratio < 3 else math.inf,
        lambda ratio: -700.0 if ratio < 1 else 1e-6,  # a width of zero
        lambda ratio: math.log(ratio) ** 3,
    ],
)
def test_other_curves_only_take_longer(curve):
    for root in (0.5, 1.004, 77.0):
        hit, miss, tried = search(lambda value, root=root: curve(root / value))
        assert curve(root / hit) <= 0 < curve(root / miss)
        assert hit <= miss * Measure.close * (1 + 1e-12)
        assert len(tried) <= 40


def test_whole_numbers_end_at_neighbours_and_none_is_tried_twice():
    hit, miss, tried = search(
        lambda value: 0.02 * math.log(14.5 / value), 10, low=10, high=1e9,
        grid=lambda value: float(int(digits(value))),
    )  # fmt: skip
    assert (hit, miss) == (15, 14)
    assert len(tried) == len(set(tried))
