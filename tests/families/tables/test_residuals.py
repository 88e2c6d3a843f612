"""Residuals of tables: what they sum, how far one row moves them, alone and together."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstats.families.tables.cells import Cells
from dpstats.families.tables.residuals import Residual, joint_l2_squared, residuals_of
from dpstats.schema import Boolean, Category, Number, Schema

SCHEMA = Schema([
    Category("region", ["north", "south", "east"]), Boolean("smoker"),
    Boolean("tall", allow_missing=True), Number("age", 0, 6, points=7, edges=[2, 5]),
])  # fmt: skip
subsets = st.lists(st.sampled_from(SCHEMA.names), min_size=1, max_size=3, unique=True)


@given(names=subsets, seed=st.integers(0, 2**32))
@settings(max_examples=15)
def test_sums_are_those_of_the_functions_and_vanish_along_every_column(names, seed):
    block, rng = Residual(Cells.table(SCHEMA, names).columns), np.random.default_rng(seed)
    codes = {c.name: c.draw_inside(rng.integers(c.bins, size=30), rng) for c in SCHEMA}
    sums = block.sums(codes)
    assert np.array_equal(sums, block.functions(codes).sum(axis=1))
    for axis in range(len(block.shape)):
        assert not sums.reshape(block.shape).sum(axis=axis).any()
    assert np.array_equal(sums, block.potential(block.table.sums(codes)))


@given(
    unit=st.sampled_from(["replace", "add_remove"]),
    tables=st.lists(subsets, min_size=1, max_size=4),
    precisions=st.lists(st.fractions(Fraction(1, 50), 20), min_size=14, max_size=14),
)
@settings(max_examples=20)
def test_the_joint_change_is_the_largest_over_all_pairs_of_rows(unit, tables, precisions, rows_of):
    blocks = residuals_of(Cells.table(SCHEMA, names) for names in tables)
    precisions = precisions[: len(blocks)]
    rows = rows_of(SCHEMA.select({c.name for block in blocks for c in block.columns}))
    squares = []  # of every change, by residual
    for block in blocks:
        v = block.functions(rows)
        added = (v**2).sum(axis=0)
        both = added[:, np.newaxis] + added - 2 * v.T @ v
        squares.append(added if unit == "add_remove" else both.ravel())
    changes = {tuple(change) for change in np.stack(squares, axis=1).tolist()}
    found = max(sum(p * s for p, s in zip(precisions, change, strict=True)) for change in changes)
    assert joint_l2_squared(blocks, precisions, unit) == found


def test_many_columns_are_bounded_by_the_sum_of_the_maxima():
    schema = Schema([Category(f"c{i}", list("abc")) for i in range(17)])
    pairs = itertools.pairwise(schema.names)
    blocks = residuals_of([Cells.table(schema, pair) for pair in pairs])
    precisions = [Fraction(1, 1 + i) for i in range(len(blocks))]
    fewer = [b for b in blocks if schema["c16"] not in b.columns]
    exact = joint_l2_squared(fewer, precisions[: len(fewer)], "replace")
    bound = joint_l2_squared(blocks, precisions, "replace")
    own = [p * b.sensitivity("replace").l2_squared * int(b.bounds[0]) ** 2
           for p, b in zip(precisions, blocks, strict=True)]  # fmt: skip
    assert bound == sum(own) >= exact


def test_precisions_beyond_64_bits_stay_exact():
    blocks = residuals_of([Cells.table(SCHEMA, ["region", "age"])])
    small = [Fraction(1, 3), Fraction(2, 7), Fraction(5, 11)]
    large = [p * Fraction(2**70 + 1, 2**69 + 7) + Fraction(1, 10**30) for p in small]
    exact = joint_l2_squared(blocks, large, "replace")
    assert exact > joint_l2_squared(blocks, small, "replace")
    assert float(exact) == pytest.approx(2 * float(joint_l2_squared(blocks, small, "replace")))
