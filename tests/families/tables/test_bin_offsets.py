"""Offsets inside bins: exact sums, and a sensitivity that is the maximum over pairs of rows."""

import numpy as np

import dpstats as dps
from dpstats.families.tables.inside_bins import BinOffsets

SCHEMA = dps.Schema([
    dps.Number("x", 0, 10, points=11, edges=[2, 5], missing=0), dps.Category("g", ["n", "s"]),
    dps.Number("z", 0, 3, points=4, edges=[2], allow_missing=True),
])  # fmt: skip


def test_offsets_are_distances_from_the_middle_of_the_bin():
    """Bins [0, 2), [2, 5), [5, 10] hold the grid points 0-1, 2-4 and 5-10."""
    block = BinOffsets.of(SCHEMA, ["x"], "x")
    values = np.arange(11)
    found = block.evaluate({"x": values - 5}).matrix().toarray()
    middles = np.array([0.5, 3, 7.5])
    bins = np.digitize(values, [2, 5])
    wanted = np.zeros((3, 11))
    wanted[bins, values] = 2 * (values - middles[bins])
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(block.bounds, [1, 2, 5])
    weights = np.arange(11.0)
    np.testing.assert_allclose(block.evaluate({"x": values - 5}).average(weights), wanted @ weights)
    by = block.evaluate({"x": values - 5}).combine(np.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(by, wanted.T @ [1, 2, 3])
