"""A strategy: its order, its exact cost, and its noise."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import dpstats as dps
from dpstats.families.tables.cells import ROWS
from dpstats.families.tables.residuals import residuals_of
from dpstats.measured.strategy import PlannedBlock, Strategy

SCHEMA = dps.Schema([
    dps.Category("region", ["north", "south", "east"]), dps.Boolean("smoker"),
    dps.Number("age", 0, 100, points=101, edges=[18, 65], missing=40),
])  # fmt: skip
TABLE = PlannedBlock(dps.Cells.table(SCHEMA, ["region", "smoker"]), Fraction(4))
MOMENTS = PlannedBlock(dps.Moments.of(SCHEMA, ["age"]), Fraction(9, 2))
REFERENCE = PlannedBlock(dps.Cells.table(SCHEMA, ["smoker"]), Fraction(8), "reference")
COUNT = PlannedBlock(ROWS, Fraction(4), "count")


def strategy(*blocks, budget=None, **options):
    return Strategy(SCHEMA, blocks, budget or dps.PureDP(1), **options)


def test_blocks_come_in_one_order_with_the_count_of_their_neighbour_relation():
    for blocks in [
        (COUNT, TABLE), (REFERENCE, TABLE), (TABLE, COUNT, REFERENCE), (TABLE, COUNT, COUNT),
        (TABLE, REFERENCE, REFERENCE, COUNT), (TABLE, replace(COUNT, role="other")),
    ]:  # fmt: skip
        with pytest.raises(dps.RequestError, match="in the order family, score, persons, contrast"):
            strategy(*blocks, unit="add_remove")
    for blocks, unit in (((TABLE, COUNT), "replace"), ((TABLE,), "add_remove")):
        with pytest.raises(dps.RequestError, match="measures the number of rows under unit="):
            strategy(*blocks, unit=unit)
    with pytest.raises(dps.RequestError, match="empty"):
        strategy(REFERENCE)
    for n in (0, -1, 2.0, "3", True):
        with pytest.raises(dps.RequestError, match="n must be a whole number"):
            strategy(TABLE, n=n)


def test_a_table_needs_all_of_its_residuals_and_no_others():
    table = TABLE.block
    parts = [PlannedBlock(block, Fraction(2)) for block in residuals_of([table])]
    assert strategy(*parts, tables=(table,)).published.blocks == (table,)
    for blocks, tables in [(parts[:-1], (table,)), (parts[1:], (table,)), (parts, ())]:
        with pytest.raises(dps.RequestError, match="does not measure the residuals of its tables"):
            strategy(*blocks, tables=tables)


def test_the_cost_is_the_exact_sum_over_all_blocks():
    """By hand: D1 / scale for Laplace noise, D2^2 / (2 scale^2) for Gaussian."""
    for budget in [dps.PureDP(1), dps.ZCDP(Fraction(1, 3))]:
        held = strategy(TABLE, REFERENCE, budget=budget)
        power = 1 if budget.noise == "laplace" else 2
        assert held.cost() == (Fraction(2, 4) + Fraction(2, 8)) / power
        with pytest.raises(dps.BudgetError, match="edited by hand"):
            held.check()
        exact = held.cost() / budget.total
        paid = [replace(planned, multiplier=planned.multiplier * exact) for planned in held.blocks]
        replace(held, blocks=tuple(paid)).check()
        little = 1 + Fraction(1, 10**40)  # as rationals: no float sees the difference
        paid[0] = replace(paid[0], multiplier=paid[0].multiplier * little)
        with pytest.raises(dps.BudgetError, match="edited by hand"):
            replace(held, blocks=tuple(paid)).check()


def test_noise_of_every_function_of_the_family():
    held = strategy(TABLE, MOMENTS, REFERENCE, COUNT, unit="add_remove")
    bounds = np.concatenate([np.ones(6), [50, 2500]])
    expected = np.concatenate([np.full(6, 4.0), [4.5, 4.5]]) * bounds
    np.testing.assert_array_equal(held.scales, expected)
    laws, which = held.laws
    assert [laws[i].scale for i in which] == expected.tolist()
    np.testing.assert_array_equal(held.variances, [laws[i].variance for i in which])
    np.testing.assert_array_equal(held.scales_of(REFERENCE), [8.0, 8.0])


def test_sums_that_may_not_be_exact_are_refused_where_the_number_of_rows_is_private():
    fine = dps.Schema([dps.Number("x", 0, 1, points=2**17 + 1, missing=0)])
    block = dps.Moments.of(fine, ["x"])
    scale = dps.PureDP(1).multiplier(block.sensitivity("add_remove"), Fraction(1, 2))
    blocks = (PlannedBlock(block, scale), PlannedBlock(ROWS, Fraction(2), "count"))
    with pytest.raises(dps.RequestError, match="sums must be exact whatever the number of rows"):
        Strategy(fine, blocks, dps.PureDP(1), "add_remove").check()
