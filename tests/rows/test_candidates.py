"""Candidate points: uniform ones, merged, in order, with the reference's weight."""

import numpy as np
import pytest
from scipy import stats

import dpstats as dps
from dpstats.families.moments import Moments
from dpstats.families.tables.cells import Cells
from dpstats.measured.measurements import NoisyBlock
from dpstats.rows.candidates import _distinct, seen_by
from dpstats.rows.histogram import PerturbedHistogram
from dpstats.rows.uniform import Uniform

SCHEMA = dps.Schema([
    dps.Category("colour", ["red", "green", "blue"]),
    dps.Boolean("smoker"),
    dps.Number("age", 0, 100, points=21, edges=[20, 65], missing=50),
])  # fmt: skip
CELLS = 3 * 2 * 3
UNEVEN = dps.Schema([
    dps.Category("colour", ["red", "green", "blue"]),
    dps.Number("age", 0, 100, points=21, edges=[5, 65]),
    dps.Number("score", values=[1, 4, 5, 17]),
])  # fmt: skip


def test_uniform_points_are_flat_over_cells_and_inside_bins_or_over_the_grid():
    """Of 20,000 draws; a right sampler fails a test at 1e-6 once in a million runs."""

    def assert_flat(values, size):
        _, frequency = np.unique(values, return_counts=True)
        assert len(frequency) == size
        assert size == 1 or stats.chisquare(frequency).pvalue > 1e-6

    cells, grid = (
        Uniform(over).draw(20_000, UNEVEN, None, np.random.default_rng(1))
        for over in ("cells", "grid")
    )
    bins = [UNEVEN[name].bins_of(cells[name]) for name in UNEVEN.names]
    assert_flat(np.ravel_multi_index(bins, (3, 3, 4)), 36)
    for index, size in enumerate((1, 12, 8)):  # grid points in [0, 5), [5, 65) and [65, 100]
        assert_flat(cells["age"][bins[1] == index], size)
    for name, size in (("colour", 3), ("age", 21), ("score", 4)):
        assert_flat(grid[name], size)


@pytest.mark.parametrize("widths", [[1], [5, 2, 1, 5], [2**21, 2, 2**40, 2**40]])
def test_distinct_rows_are_those_of_unique(widths):
    """Wide columns do not fit one mixed-radix integer together and take the other path."""
    rng = np.random.default_rng(0)
    columns = [rng.choice(rng.integers(-width, width, size=3), size=40) for width in widths]
    rows, *expected = np.unique(
        np.stack(columns, axis=1), axis=0, return_index=True, return_inverse=True
    )
    first, which = _distinct(columns)
    np.testing.assert_array_equal(first, expected[0])
    np.testing.assert_array_equal(which, expected[1].ravel())
    np.testing.assert_array_equal(np.stack(columns, axis=1)[first], rows)


def test_stratified_puts_the_exact_reference_weight_in_every_cell():
    rng, histogram = np.random.default_rng(5), PerturbedHistogram()
    counts = np.arange(-3, CELLS - 3)
    measured = NoisyBlock(histogram.block(SCHEMA), 4, counts, np.zeros(CELLS))
    for reference, own, shares in (
        (Uniform(), None, np.ones(CELLS)), (histogram, measured, np.clip(counts, 0, None)),
    ):  # fmt: skip
        found = reference.draw_candidates(500, SCHEMA, own, rng, stratified=True)
        bins = [SCHEMA[name].bins_of(found.codes[name]) for name in SCHEMA.names]
        cell = np.ravel_multi_index(bins, (3, 2, 3))
        weights = np.bincount(cell, weights=found.weights, minlength=CELLS)
        np.testing.assert_allclose(weights, shares / shares.sum(), rtol=1e-12)


def test_spread_keeps_every_mean_and_the_reference_inside_a_class():
    rng = np.random.default_rng(3)
    family = dps.Family((Cells.table(SCHEMA, ["colour"]), Moments.of(SCHEMA, ["age"])))
    candidates = Uniform().draw_candidates(400, SCHEMA, None, rng, stratified=True)
    seen = seen_by(family, candidates)
    assert len(seen.reference) <= 3 * 21  # not by smoker
    np.testing.assert_allclose(seen.spread(seen.reference), candidates.weights, rtol=1e-12)
    density = rng.dirichlet(np.ones(len(seen.reference)))
    weights = seen.spread(density)
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    means = family.evaluate(candidates.codes).average(weights)
    np.testing.assert_allclose(means, seen.values.average(density), atol=1e-12)
