"""The uniform reference: its two distributions, and that it costs nothing."""

import math

import numpy as np
from scipy import stats

import dpstats as dps
from dpstats.rows.uniform import Uniform

SCHEMA = dps.Schema([
    dps.Category("colour", ["red", "green", "blue"]),
    dps.Number("age", 0, 100, points=21, edges=[5, 65]),
    dps.Number("score", values=[1, 4, 5, 17]),
])  # fmt: skip
DRAWS = 20_000  # a right sampler fails a test at 1e-6 once in a million runs


def draw(over):
    return Uniform(over).draw(DRAWS, SCHEMA, None, np.random.default_rng(1))


def counts(codes):
    return np.unique(codes, return_counts=True)


def test_over_cells_bins_are_equally_likely_and_flat_inside():
    points = draw("cells")
    bins = [SCHEMA[name].bins_of(points[name]) for name in SCHEMA.names]
    cell = np.ravel_multi_index(bins, (3, 3, 4))
    assert stats.chisquare(np.bincount(cell, minlength=36)).pvalue > 1e-6
    for index in range(3):  # [0, 5), [5, 65), [65, 100] hold 1, 12 and 8 grid points
        inside = points["age"][bins[1] == index]
        values, frequency = counts(inside)
        assert len(values) == (1, 12, 8)[index]
        assert len(values) == 1 or stats.chisquare(frequency).pvalue > 1e-6


def test_over_grid_points_are_equally_likely():
    points = draw("grid")
    for codes in points.values():
        assert stats.chisquare(counts(codes)[1]).pvalue > 1e-6
    # and bins are not: one grid point of 21 is below 5
    share = np.mean(SCHEMA["age"].bins_of(points["age"]) == 0)
    assert abs(share - 1 / 21) < 5 * math.sqrt(1 / 21 / DRAWS)
