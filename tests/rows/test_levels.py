"""All levels of a schema in one list: tables of two columns as one matrix product."""

import itertools

import numpy as np

import dpstats as dps
from dpstats.families.tables.cells import Cells
from dpstats.rows.levels import Levels, is_small

SCHEMA = dps.Schema([
    dps.Category("a", ["x", "y", "z"]), dps.Number("u", 0, 9, points=10, missing=0),
    dps.Boolean("b"), dps.Number("w", 0, 9, points=10, edges=[2, 5, 7], missing=0),
])  # fmt: skip
FAMILY = dps.Family((
    Cells.table(SCHEMA, ["a", "w"]), Cells.table(SCHEMA, ["w", "b"]), Cells.table(SCHEMA, ["a"]),
))  # fmt: skip


def rows(n=50):
    rng = np.random.default_rng(0)
    codes = {c.name: c.draw_inside(rng.integers(c.bins, size=n), rng) for c in SCHEMA}
    return codes, {c.name: c.bins_of(codes[c.name]) for c in SCHEMA}


def test_levels_follow_each_other_column_by_column():
    levels = Levels(SCHEMA)
    assert levels.size == 3 + 1 + 2 + 4
    assert levels.slices == {
        "a": slice(0, 3),
        "u": slice(3, 4),
        "b": slice(4, 6),
        "w": slice(6, 10),
    }
    assert levels.column.tolist() == [0, 0, 0, 1, 2, 2, 3, 3, 3, 3]


def test_a_product_of_levels_holds_all_tables():
    _, bins = rows()
    levels = Levels(SCHEMA)
    one_hot = levels.one_hot(bins)
    assert np.all(one_hot.sum(axis=0) == len(SCHEMA.names))
    counts = one_hot @ one_hot.T
    for (a, first), (b, second) in itertools.product(levels.slices.items(), repeat=2):
        table = np.zeros((SCHEMA[a].bins, SCHEMA[b].bins))
        np.add.at(table, (bins[a], bins[b]), 1)
        np.testing.assert_array_equal(counts[first, second], table)


def test_a_matrix_has_the_values_of_a_family_at_its_cells_and_nothing_else():
    codes, bins = rows()
    levels = Levels(SCHEMA)
    one_hot = levels.one_hot(bins)
    counts = one_hot @ one_hot.T
    sums = np.concatenate(FAMILY.sums(codes))
    measured = levels.matrix(FAMILY, np.ones(FAMILY.size)) > 0
    np.testing.assert_array_equal(levels.matrix(FAMILY, sums), np.where(measured, counts, 0))
    first, second = levels.places(FAMILY)
    np.testing.assert_array_equal(counts[first, second], sums)
    assert measured.sum() == 2 * (3 * 4 + 4 * 2) + 3
    np.testing.assert_array_equal(measured, measured.T)


def test_small_blocks_are_tables_of_one_or_two_columns():
    assert all(is_small(block) for block in FAMILY.blocks)
    assert not is_small(Cells.table(SCHEMA, ["a", "b", "w"]))
    assert not is_small(Cells.condition(SCHEMA, "b"))
