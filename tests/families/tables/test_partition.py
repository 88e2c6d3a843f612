"""Sets of cells that are measured together: what they may be, and what follows from them."""

import numpy as np
import pytest

import dpstats as dps
from dpstats.errors import RequestError
from dpstats.families import block_from_dict
from dpstats.families.tables.cells import ROWS, Cells, Partition

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
    two = partition("c == 'x'", "c in ['y', 'z']")
    assert two.sums(CODES).tolist() == [1, 4]
    assert two.rotate().sums(CODES).tolist() == [5, -3]
    assert two.rotate().settles(two)
    assert not two.settles(two.rotate())


def test_the_number_of_rows_follows_from_sets_of_all_cells():
    whole = partition("c == 'x'", "c == 'y'", "c == 'z'")
    for block in (whole, partition("c == 'x'", "c != 'x'").rotate()):
        assert block.derive(ROWS).apply(block.sums(CODES), 0).tolist() == [5]
    assert partition("c == 'x'", "c == 'y'").derive(ROWS) is None


def test_sets_follow_from_a_table_that_holds_them():
    table = Cells.table(SCHEMA, ["c", "b"])
    sets = partition("b and c == 'x'", "b and c != 'x'")
    found = table.derive(sets, complements=False).apply(table.sums(CODES), 0)
    assert found.tolist() == sets.sums(CODES).tolist() == [0, 3]
    assert table.derive(partition("c == 'x'", "c != 'x'").rotate()) is None
