"""Categories: coded in the declared order, matched exactly, and refused with a reason."""

import math
import re

import numpy as np
import pyarrow as pa
import pytest

from dpstats.errors import ConditionError, SchemaError
from dpstats.schema import Boolean, Category


def codes(column, cells, kind=None):
    return column.encode(pa.array(cells, kind, from_pandas=True)).tolist()


def test_of_levels_with_one_meaning_the_shortest_form_or_none_is_meant():
    column = Category("x", ["01", "1", "1.0", "05", "005", "True", "TRUE"], allow_missing=True)
    cells = ["01", "1", "1.0", "1.00", "05", "5", "true", "TRUE"]
    assert codes(column, cells) == [0, 1, 2, 1, 3, 7, 7, 6]
    assert codes(column, [1.0, 5.0]) == [1, 7]
    assert codes(column, [True]) == [7]
    for cell in cells:  # whatever the other cells are
        assert codes(column, [cell])[0] == codes(column, [*cells, cell])[-1]


def test_a_mapping_decodes_to_its_labels():
    column = Category("happy", {"not": 1, "mildly": 2, "very": 3})
    assert codes(column, [3, 1, 2.0]) == [2, 0, 1]
    assert column.decode(np.array([2, 0])).tolist() == ["very", "not"]
    assert column.bins_where("==", "mildly") == {1}
    with pytest.raises(ConditionError, match="2 is not a level of 'happy'; levels: \\['not'"):
        column.bins_where("==", 2)


def test_missing_and_undeclared_cells():
    for options, missing, undeclared, rule in [
        ({}, 0, 0, "missing or undeclared: counted as 'a'"),
        ({"missing": "b"}, 1, 1, "missing or undeclared: counted as 'b'"),
        ({"missing": "b", "other": "c"}, 1, 2, "missing: counted as 'b'; undeclared: .* as 'c'"),
        ({"allow_missing": True, "other": "c"}, 3, 2, "missing: .*'\\(missing\\)'; undeclared"),
    ]:
        column = Category("x", ["a", "b", "c"], **options)
        assert codes(column, [None, "zebra", "b"]) == [missing, undeclared, 1]
        assert codes(column, [None, None], pa.null()) == [missing, missing]
        assert (column.missing_code, column.other_code) == (missing, undeclared)
        assert re.search(rule, column.missing_rule())
        assert column.bins == (4 if options.get("allow_missing") else 3)


def test_impossible_categories_are_refused_with_a_reason():
    for levels in [
        [], [1, 2, 1.0], {"a": 1, "b": 1}, ["1", 2], [True, 2], [None, "a"], [["a"], ["b"]],
        {1: "a", 2: "b"}, [1, math.inf], [1, 10**400], [1, 2**53], ["", "a"], {"a": 1, "": 2}, "ab",
        {"a", "b"},
    ]:  # fmt: skip
        with pytest.raises(SchemaError, match="'x'"):
            Category("x", levels)
    for options in [
        {"missing": "c"}, {"other": "c"}, {"missing": "a", "allow_missing": True},
        {"allow_missing": "false"}, {"name": "a`b"}, {"name": 3},
    ]:  # fmt: skip
        with pytest.raises(SchemaError):
            Category(**{"name": "x", "levels": ["a", "b"]} | options)
    for levels, missing, code in [
        (["a", "b"], "a", "b"), ({"a": 1, "b": 2}, "a", 2.0), (["1", "2"], "1", 9),
        ([1, 2], 1, "9"), (["a", "b"], "a", ""), ([1, 2], 1, 2**53), ([1, 2], None, 9),
    ]:  # fmt: skip
        with pytest.raises(SchemaError, match="'x'"):
            Category("x", levels, missing=missing, missing_values=[code])
    with pytest.raises(SchemaError, match="1 is a level"):
        Boolean("x", allow_missing=True, missing_values=[1])
    with pytest.raises(SchemaError, match="'1' is not a level of 'x'"):
        Category("x", [1, 2], missing="1")
    with pytest.raises(SchemaError, match="missing= of column 'x': 'no' is not a level"):
        Boolean("x", missing="no")
