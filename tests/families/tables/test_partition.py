"""Sets of cells that are measured together: what they may be, and what follows from them."""

import numpy as np
import pytest

import dpstats as dps
from dpstats.errors import RequestError
from dpstats.families import block_from_dict
from dpstats.families.tables.cells import Cells, Partition

SCHEMA = dps.Schema([dps.Boolean("b"), dps.Category("c", ["x", "y", "z"])])
CODES = {"b": np.array([0, 1, 1, 1, 0]), "c": np.array([0, 1, 2, 2, 2])}


def partition(*conditions):
    sets = {text: Cells.condition(SCHEMA, text).cells for text in conditions}
    columns = next(iter(sets.values())).columns
    return Partition.of(columns, {text: cells.array for text, cells in sets.items()})


def test_sets_have_no_cell_in_common():
    for conditions in (("b or c == 'x'", "not b or c == 'y'"), ("c == 'x'", "c in ['x', 'y']")):
        with pytest.raises(RequestError, match="have cells in common"):
            partition(*conditions)
    plain = partition("c == 'x'", "c == 'y'").to_dict()
    plain["sets"][0]["cells"].append(1)
    with pytest.raises(RequestError, match="have cells in common"):
        block_from_dict(plain, SCHEMA)


def test_union_and_difference_are_of_two_sets():
    with pytest.raises(RequestError, match="those of two sets"):
        partition("c == 'x'", "c == 'y'", "c == 'z'").rotate()
    two, swapped = (
        partition("c == 'x'", "c in ['y', 'z']"),
        partition("c in ['y', 'z']", "c == 'x'"),
    )
    assert two.sums(CODES).tolist() == [1, 4]
    assert two.rotate().sums(CODES).tolist() == [5, -3]
    assert two.rotate().settles(two)
    assert two.rotate().settles(swapped)
    assert not two.rotate().settles(partition("c == 'x'", "c == 'y'"))
    assert not two.settles(two.rotate())


def numbered(names, number):
    """Sets of the cells with each number; -1 is in none."""
    columns = tuple(SCHEMA[name] for name in names)
    number = np.asarray(number).reshape([column.bins for column in columns])
    return Partition.of(columns, {f"set {i}": number == i for i in range(number.max() + 1)})


def test_sets_follow_from_finer_ones_in_any_order_of_columns():
    fine = numbered("bc", np.arange(6) % 5)
    coarse = numbered("cb", np.transpose((np.arange(6) % 5 // 2).reshape(2, 3)))
    found = fine.derive(coarse, complements=False)
    assert found.terms.tolist() == [2, 2, 1]
    np.testing.assert_array_equal(found.apply(fine.sums(CODES), 5), coarse.sums(CODES))


def test_sets_that_are_no_unions_do_not_follow():
    fine = numbered("cb", [0, 0, 1, 1, 2, 2])
    assert fine.derive(numbered("cb", [0, 1, 0, 1, 0, 1])) is None
    assert fine.derive(numbered("cb", [0, 0, 1, 2, 1, 1])).terms.tolist() == [1, 0, 0]
    half = numbered("cb", [0, 0, 0, -1, 1, 1])  # a set as large as one that it is no part of
    assert half.derive(numbered("cb", [0, 0, 1, 0, -1, -1])) is None
    outside = numbered("cb", [-1, 0, 1, 1, 2, 2]).derive(fine)
    assert outside.terms.tolist() == [0, 1, 1]  # a cell of the first is in no set
