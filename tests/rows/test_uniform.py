"""The uniform reference: its two distributions, and that it costs nothing."""

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


def test_over_cells_bins_are_equally_likely_and_flat_inside():
    points = Uniform("cells").draw(DRAWS, SCHEMA, None, np.random.default_rng(1))
    bins = [SCHEMA[name].bins_of(points[name]) for name in SCHEMA.names]
    cell = np.ravel_multi_index(bins, (3, 3, 4))
    assert stats.chisquare(np.bincount(cell, minlength=36)).pvalue > 1e-6
    for index, size in enumerate((1, 12, 8)):  # grid points in [0, 5), [5, 65) and [65, 100]
        _, frequency = np.unique(points["age"][bins[1] == index], return_counts=True)
        assert len(frequency) == size
        assert size == 1 or stats.chisquare(frequency).pvalue > 1e-6


def test_over_grid_points_are_equally_likely():
    points = Uniform("grid").draw(DRAWS, SCHEMA, None, np.random.default_rng(1))
    for name, size in (("colour", 3), ("age", 21), ("score", 4)):
        _, frequency = np.unique(points[name], return_counts=True)
        assert len(frequency) == size
        assert stats.chisquare(frequency).pvalue > 1e-6
