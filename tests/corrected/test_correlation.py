"""Extremes of a correlation over a box of moments, against a dense search."""

import itertools

import numpy as np
import pytest

from dpstats.corrected.covariance import correlation_range


def searched(x, y, xx, yy, xy, steps=41):
    """Extremes over a grid of the box, points without variance left out."""
    a, b = np.meshgrid(np.linspace(*x, steps), np.linspace(*y, steps))
    found = []
    for p, q, r in itertools.product(xx, yy, xy):
        variances = p - a**2, q - b**2
        fits = (variances[0] > 0) & (variances[1] > 0)
        if fits.any():
            found += [((r - a * b)[fits] / np.sqrt((variances[0] * variances[1])[fits]))]
    values = np.concatenate(found)
    return values.min(), values.max()


def boxes(count, width, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        mean, sd, r = rng.uniform(-0.7, 0.7, 2), rng.uniform(0.2, 0.6, 2), rng.uniform(-0.99, 0.99)
        centre = [*mean, *(mean**2 + sd**2), r * sd[0] * sd[1] + mean[0] * mean[1]]
        half = width * rng.uniform(0.1, 1, 5)
        yield [(c - h, c + h) for c, h in zip(centre, half, strict=True)]


@pytest.mark.parametrize("width", [0.003, 0.08])
def test_no_point_of_the_box_is_outside_and_some_reach_the_ends(width):
    exact = 0
    for box in boxes(100, width, 1):
        low, high = correlation_range(*box)
        least, most = np.clip(searched(*box), -1, 1)
        assert low <= least + 1e-9
        assert most <= high + 1e-9
        pairs = zip(box[:2], box[2:4], strict=True)
        if all(
            sums[0] - max(np.square(ends)) > 0.01 for ends, sums in pairs
        ):  # a grid of 41 steps misses an inner extreme by little
            exact += 1
            np.testing.assert_allclose([least, most], [low, high], atol=2e-3)
    assert exact > 25


def test_a_variance_that_may_vanish_bounds_nothing():
    assert correlation_range((-0.5, 0.5), (0, 0), (0.2, 0.6), (0.2, 0.3), (-0.1, 0.1)) == (-1, 1)
    low, high = correlation_range((0.4, 0.6), (0.1, 0.2), (0.3, 0.5), (0.2, 0.3), (0.3, 0.35))
    assert low > 0
    assert high == 1
