"""Extremes of a correlation over a box of moments, against a dense search."""

import itertools

import numpy as np
import pytest

from dpstats.corrected.covariance import correlation_range


def searched(x, y, xx, yy, xy, steps=41):
    """Extremes over a grid of the box, points without variance left out."""
    a, b = np.meshgrid(np.linspace(*x, steps), np.linspace(*y, steps))
    p, q, r = np.array([*itertools.product(xx, yy, xy)]).T[..., None, None]
    variances = p - a**2, q - b**2
    fits = (variances[0] > 0) & (variances[1] > 0)
    values = (r - a * b)[fits] / np.sqrt((variances[0] * variances[1])[fits])
    return np.clip([values.min(), values.max()], -1, 1)


@pytest.mark.parametrize("width", [0.003, 0.08])
def test_no_point_of_the_box_is_outside_and_some_reach_the_ends(width):
    rng, exact = np.random.default_rng(1), 0
    for _ in range(60):
        mean, sd, r = rng.uniform(-0.7, 0.7, 2), rng.uniform(0.2, 0.6, 2), rng.uniform(-0.99, 0.99)
        centre = np.array([*mean, *(mean**2 + sd**2), r * sd.prod() + mean.prod()])
        half = width * rng.uniform(0.1, 1, 5)
        box = np.column_stack([centre - half, centre + half])
        low, high = correlation_range(*map(tuple, box))
        least, most = searched(*box)
        assert low <= least + 1e-9
        assert most <= high + 1e-9
        if np.all(box[2:4, 0] - np.square(box[:2]).max(axis=1) > 0.01):
            exact += 1  # a grid of 41 steps misses an inner extreme by little
            np.testing.assert_allclose([least, most], [low, high], atol=2e-3)
    assert exact > 15


def test_a_variance_that_may_vanish_bounds_nothing():
    assert correlation_range((-0.5, 0.5), (0, 0), (0.2, 0.6), (0.2, 0.3), (-0.1, 0.1)) == (-1, 1)
    low, high = correlation_range((0.4, 0.6), (0.1, 0.2), (0.3, 0.5), (0.2, 0.3), (0.3, 0.35))
    assert 0 < low < high == 1
