"""Tables, monomials and sets of cells: what they count, and how far one row moves them."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstats.errors import RequestError
from dpstats.families import block_from_dict
from dpstats.families.block import Family
from dpstats.families.tables.cells import Cells, Partition, tables_of_degree
from dpstats.privacy.neighbours import Sensitivity
from dpstats.schema import Boolean, Category, Number, Schema

SCHEMA = Schema([
    Category("region", ["north", "south", "east"]), Boolean("smoker"),
    Boolean("tall", allow_missing=True), Number("age", 0, 6, points=7, edges=[2, 5]),
    Number("score", values=[17.5, 22, 27]),
    Number("bmi", 0, 4, points=5, edges=[2], closed="right"),
])  # fmt: skip


def test_m_monomials_have_sensitivity_m(rows_of, change_of):
    for p, degree in [(1, 1), (3, 2), (5, 5)]:
        schema = Schema([Boolean(f"b{i}") for i in range(p)])
        family = Family(tuple(Cells.monomials(schema, schema.names, degree)))
        rows, m = rows_of(schema), sum(math.comb(p, k) for k in range(1, degree + 1))
        assert len(family.blocks) == m
        assert change_of(family, rows, rows) == Sensitivity(m, m)  # the bounds are all one
        assert family.sensitivity("replace") == Sensitivity(m, m)
        assert family.sensitivity("add_remove") == Sensitivity(m, m)


@given(
    names=st.lists(st.sampled_from(SCHEMA.names), min_size=1, max_size=3, unique=True),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=20)
def test_a_table_counts_every_cell(names, seed):
    rng, table = np.random.default_rng(seed), Cells.table(SCHEMA, names)
    codes = {c.name: c.draw_inside(rng.integers(c.bins, size=30), rng) for c in SCHEMA}
    bins = [c.bins_of(codes[c.name]) for c in table.columns]
    cells = list(itertools.product(*(range(c.bins) for c in table.columns)))
    counts = Counter(zip(*(b.tolist() for b in bins), strict=True))
    assert table.sums(codes).tolist() == [counts[cell] for cell in cells]  # C order
    assert table.sums(codes).dtype == np.int64
    assert table.names == [
        ", ".join(f"{c.name}={c.bin_labels[b]}" for c, b in zip(table.columns, cell, strict=True))
        for cell in cells
    ]


def test_what_cannot_be_counted_is_refused():
    wide = Schema([Category(f"c{i}", list(range(200))) for i in range(4)])  # 1.6e9 cells
    for make in [
        lambda: Cells.table(SCHEMA, []), lambda: Cells.table(SCHEMA, "age"),
        lambda: Cells.table(SCHEMA, ["age", "age"]), lambda: Cells.table(SCHEMA, ["agee"]),
        lambda: Cells.table(Schema([Number("x", 0, 1)]), ["x"]),
        lambda: Cells.table(wide, wide.names),
        lambda: tables_of_degree(SCHEMA, ["age", "smoker"], 3),
        lambda: tables_of_degree(SCHEMA, ["age", "smoker"], True),
        lambda: Cells.monomials(SCHEMA, ["smoker", "tall"], 1),
        lambda: Cells.monomials(SCHEMA, ["smoker", "age"], 1),
        lambda: Cells.monomials(SCHEMA, ["smoker"], 2),
    ]:  # fmt: skip
        with pytest.raises(RequestError):
            make()


SETS = Schema([Boolean("b"), Category("c", ["x", "y", "z"])])
CODES = {"b": np.array([0, 1, 1, 1, 0]), "c": np.array([0, 1, 2, 2, 2])}


def partition(*conditions):
    sets = {text: Cells.condition(SETS, text).cells for text in conditions}
    return Partition.of(sets[conditions[0]].columns, {t: c.array for t, c in sets.items()})


def test_sets_have_no_cell_in_common():
    for conditions in (("b or c == 'x'", "not b or c == 'y'"), ("c == 'x'", "c in ['x', 'y']")):
        with pytest.raises(RequestError, match="have cells in common"):
            partition(*conditions)
    plain = partition("c == 'x'", "c == 'y'").to_dict()
    plain["sets"][0]["cells"].append(1)
    with pytest.raises(RequestError, match="have cells in common"):
        block_from_dict(plain, SETS)


def test_union_and_difference_are_of_two_sets():
    with pytest.raises(RequestError, match="those of two sets"):
        partition("c == 'x'", "c == 'y'", "c == 'z'").rotate()
    sets = "c == 'x'", "c in ['y', 'z']"
    two, swapped = partition(*sets), partition(*sets[::-1])
    assert two.sums(CODES).tolist() == [1, 4]
    assert two.rotate().sums(CODES).tolist() == [5, -3]
    assert two.rotate().settles(two)
    assert two.rotate().settles(swapped)
    assert not two.rotate().settles(partition("c == 'x'", "c == 'y'"))
    assert not two.settles(two.rotate())


def numbered(names, number):
    """Sets of the cells with each number; -1 is in none."""
    columns = tuple(SETS[name] for name in names)
    number = np.asarray(number).reshape([column.bins for column in columns])
    return Partition.of(columns, {f"set {i}": number == i for i in range(number.max() + 1)})


def test_sets_follow_from_finer_ones_in_any_order_of_columns():
    fine = numbered("bc", np.arange(6) % 5)
    coarse = numbered("cb", np.transpose((np.arange(6) % 5 // 2).reshape(2, 3)))
    found = fine.derive(coarse, complements=False)
    assert found.terms.tolist() == [2, 2, 1]
    np.testing.assert_array_equal(found.apply(fine.sums(CODES), 5), coarse.sums(CODES))
    # Sets that are no unions do not follow.
    fine = numbered("cb", [0, 0, 1, 1, 2, 2])
    assert fine.derive(numbered("cb", [0, 1, 0, 1, 0, 1])) is None
    assert fine.derive(numbered("cb", [0, 0, 1, 2, 1, 1])).terms.tolist() == [1, 0, 0]
    half = numbered("cb", [0, 0, 0, -1, 1, 1])  # a set as large as one that it is no part of
    assert half.derive(numbered("cb", [0, 0, 1, 0, -1, -1])) is None
    outside = numbered("cb", [-1, 0, 1, 1, 2, 2]).derive(fine)
    assert outside.terms.tolist() == [0, 1, 1]  # a cell of the first is in no set
