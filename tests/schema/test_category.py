"""Categories: coded in the declared order, matched exactly, and refused with a reason."""

import math
import re
from datetime import date, datetime

import numpy as np
import pyarrow as pa
import pytest

from dpstats.errors import ConditionError, SchemaError
from dpstats.schema import MISSING_LABEL, Boolean, Category


def codes(column, cells, kind=None):
    return column.encode(pa.array(cells, kind, from_pandas=True)).tolist()


def test_levels_are_coded_in_the_order_of_declaration():
    column = Category("smoker", ["never", "now", "ex"])
    assert codes(column, ["ex", "never", "now"]) == [2, 0, 1]
    assert column.decode(np.array([2, 0, 1])).tolist() == ["ex", "never", "now"]
    assert (column.bins, column.code_range, column.bin_labels) == (
        3,
        (0, 2),
        ("never", "now", "ex"),
    )


def test_text_matches_exactly():
    column = Category("x", ["yes", "é", "no"], other="no")
    cells = ["yes", "Yes", "yes ", " yes", "YES", "é", "e\u0301", "nan"]
    assert codes(column, cells) == [0, 2, 2, 2, 2, 1, 2, 2]
    assert codes(Category("x", ["a", "b", "c"], missing="b", other="c"), ["", None, " "]) == [
        1,
        1,
        2,
    ]


def test_numbers_match_by_value():
    column = Category("x", [0, 1, 2.5], missing=2.5)
    assert codes(column, [1, 0, 7]) == [1, 0, 2]
    assert codes(column, [1.0, -0.0, 2.5, math.nan, None, math.inf]) == [1, 0, 2, 2, 2, 2]
    assert codes(column, [True, False, None]) == [1, 0, 2]
    texts = ["1", "1.0", "true", " 0", "2.50", "nan", "", "one"]
    assert codes(Category("x", [0, 1, 2.5], missing=2.5, other=0), texts) == [
        1,
        1,
        1,
        0,
        2,
        2,
        2,
        0,
    ]


def test_text_levels_match_the_numbers_bools_and_dates_that_they_spell():
    column = Category("x", ["1", "02", "2.5", "True", "2024-05-01", "-0"], allow_missing=True)
    for kind in (pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.decimal128(9, 2)):
        assert codes(column, [1, 2, 0, 3, None], kind) == [0, 1, 5, 6, 6]
    assert codes(column, [2.5, 1.0, math.nan]) == [2, 0, 6]
    assert codes(column, [True, False]) == [3, 6]
    for kind, time in ((date, ()), (datetime, (23, 59))):
        cells = [kind(2024, 5, 1, *time), kind(2024, 5, 2, *time), None]
        assert codes(column, cells) == [4, 6, 6]
    assert codes(Category("x", [19844, 1]), [date(2024, 5, 1)]) == [0]  # undeclared: the first
    assert codes(Category("x", [1, 19844]), [date(2024, 5, 1)]) == [0]


def test_text_that_is_no_level_matches_the_level_of_the_same_meaning():
    column = Category("x", ["1", "02", "2.5", "True", "2024-05-01", "-0"], allow_missing=True)
    cells = ["1.0", " 1", "2", "2.50", "TRUE", "true", "2024-05-01 00:00:00", "2024-05-01T23:59Z"]
    assert codes(column, cells) == [0, 0, 1, 2, 3, 3, 4, 4]
    cells = ["0", "+0.0", "3", "false", "2024-05-02 00:00:00", "2024-05-01 or so", "nan", "2,5"]
    assert codes(column, cells) == [5, 5, 6, 6, 6, 6, 6, 6]


def test_a_number_and_a_truth_value_are_never_one_level_of_text():
    assert codes(Category("x", ["0", "1"], allow_missing=True), ["True", "FALSE"]) == [2, 2]
    assert codes(Category("x", ["0", "1"], allow_missing=True), [True, False]) == [2, 2]
    assert codes(Category("x", ["false", "true"], allow_missing=True), ["1", "0.0"]) == [2, 2]
    assert codes(Category("x", ["false", "true"], allow_missing=True), [1, 0]) == [2, 2]


def test_of_levels_with_one_meaning_the_shortest_form_or_none_is_meant():
    column = Category("x", ["01", "1", "1.0", "05", "005", "True", "TRUE"], allow_missing=True)
    cells = ["01", "1", "1.0", "1.00", "05", "5", "true", "TRUE"]
    assert codes(column, cells) == [0, 1, 2, 1, 3, 7, 7, 6]
    assert codes(column, [1.0, 5.0]) == [1, 7]
    assert codes(column, [True]) == [7]
    for cell in cells:  # whatever the other cells are
        assert codes(column, [cell])[0] == codes(column, [*cells, cell])[-1]


def test_long_codes_of_text_are_not_mixed_up_with_their_neighbours():
    column = Category("x", ["9007199254740992", "9007199254740993"], allow_missing=True)
    cells = ["9007199254740993", "9007199254740994", "9007199254740992.0"]
    assert codes(column, cells) == [1, 2, 2]


def test_whole_numbers_beyond_a_float_are_undeclared():
    column = Category("x", [2, 2**53 - 1], other=2)
    assert codes(column, [2**53 - 1, 2**53, 2**63 - 1, -(2**63)], pa.int64()) == [1, 0, 0, 0]
    assert codes(column, [2**53 - 1, 2**64 - 1], pa.uint64()) == [1, 0]
    assert codes(column, [2.0**53 - 1, 2.0**53, 1e300]) == [1, 0, 0]
    assert codes(column, [2, None, 127], pa.int8()) == [0, 0, 0]


def test_a_mapping_decodes_to_its_labels():
    column = Category("happy", {"not": 1, "mildly": 2, "very": 3})
    assert codes(column, [3, 1, 2.0]) == [2, 0, 1]
    assert column.decode(np.array([2, 0])).tolist() == ["very", "not"]
    assert column.bins_where("==", "mildly") == {1}
    with pytest.raises(ConditionError, match="2 is not a level of 'happy'; levels: \\['not'"):
        column.bins_where("==", 2)


def test_levels_decode_to_the_declared_type():
    for levels, dtype in [
        (["a", "b"], object),
        ([1, 2], np.int64),
        ([1, 2.5], np.float64),
        ([False, True], np.bool_),
    ]:
        decoded = Category("x", levels).decode(np.array([1, 0, 1]))
        assert decoded.dtype == dtype
        assert decoded.tolist() == [levels[1], levels[0], levels[1]]


def test_missing_and_undeclared_cells():
    for options, missing, undeclared, rule in [
        ({}, 0, 0, "missing or undeclared: counted as 'a'"),
        ({"missing": "b"}, 1, 1, "missing or undeclared: counted as 'b'"),
        ({"other": "c"}, 0, 2, "missing: counted as 'a'; undeclared: counted as 'c'"),
        ({"missing": "b", "other": "c"}, 1, 2, "missing: counted as 'b'; undeclared: .* as 'c'"),
        ({"allow_missing": True}, 3, 3, "missing or undeclared: counted as '\\(missing\\)'"),
        ({"allow_missing": True, "other": "c"}, 3, 2, "missing: .*'\\(missing\\)'; undeclared"),
    ]:
        column = Category("x", ["a", "b", "c"], **options)
        assert codes(column, [None, "zebra", "b"]) == [missing, undeclared, 1]
        assert codes(column, [None, None], pa.null()) == [missing, missing]
        assert (column.missing_code, column.other_code) == (missing, undeclared)
        assert re.search(rule, column.missing_rule())
        assert column.bins == (4 if options.get("allow_missing") else 3)


def test_a_level_that_reads_like_a_missing_one_counts_as_declared():
    assert Category("x", ["a", MISSING_LABEL]).bins == 2
    with pytest.raises(SchemaError, match=r"'x': the level '\(missing\)' is reserved"):
        Category("x", ["a", MISSING_LABEL], allow_missing=True)


def test_booleans_are_stored_as_bool_or_as_numbers():
    column = Boolean("x", missing=True)
    assert codes(column, [True, False, None]) == [1, 0, 1]
    assert codes(column, [1, 0, 7]) == [1, 0, 1]
    assert codes(column, [1.0, -0.0, math.nan]) == [1, 0, 1]
    assert column.decode(np.array([0, 1])).dtype == np.bool_
    assert Boolean("x", allow_missing=True).bin_labels == ("False", "True", MISSING_LABEL)
    assert Boolean("x", missing=True).missing_rule() == "missing or undeclared: counted as True"


def test_impossible_categories_are_refused_with_a_reason():
    for levels, says in [
        ([], "'x' needs at least two levels, got 0"),
        (["a", "b", "a"], "levels of 'x' must be distinct"),
        ([1, 2, 1.0], r"must be distinct \(1 and 1.0 are the same level\)"),
        ({"a": 1, "b": 1}, "levels of 'x' must be distinct"),
        (["1", 2], r"all text, all numbers or all bool; got \['number', 'str"),
        ([True, 2], r"all bool; got \['bool', 'number'\]"),
        ([None, "a"], r"all bool; got \['NoneType', 'str'\]"),
        ([["a"], ["b"]], r"all bool; got \['list'\]"),
        ({1: "a", 2: "b"}, "from labels, which are text, to stored values"),
        ([1.0, math.nan], "levels of 'x' must be finite.*missing="),
        ([1, math.inf], "levels of 'x' must be finite"),
        ([1, 10**400], "levels of 'x' must be finite"),
        ([1, 2**53], "must be below 2.*53.*store longer codes as text"),
        (["", "a"], "'x': an empty text .* cannot be a level; use missing="),
        ({"a": 1, "": 2}, "an empty text .* cannot be a level"),
        ("ab", "levels of 'x' must be a list or a mapping"),
        ({"a", "b"}, "levels of 'x' must be a list or a mapping"),
        (3, "levels of 'x' must be a list or a mapping"),
    ]:
        with pytest.raises(SchemaError, match=says):
            Category("x", levels)
    for options, says in [
        (
            {"missing": "c"},
            r"missing= of column 'x': 'c' is not a level of 'x'; levels: \['a', 'b'",
        ),
        ({"other": "c"}, "other= of column 'x': 'c' is not a level"),
        ({"missing": "a", "allow_missing": True}, "'x': give missing= .* or allow_missing=True"),
        ({"allow_missing": "false"}, "'x': allow_missing must be true or false, got 'false'"),
        ({"name": ""}, "a column name must be non-empty text"),
        ({"name": "a`b"}, "without backticks, got 'a`b'"),
        ({"name": 3}, "column name must be non-empty text .*, got 3"),
    ]:
        with pytest.raises(SchemaError, match=says):
            Category(**{"name": "x", "levels": ["a", "b"]} | options)
    with pytest.raises(SchemaError, match="'1' is not a level of 'x'"):
        Category("x", [1, 2], missing="1")
    with pytest.raises(SchemaError, match="missing= of column 'x': 'no' is not a level"):
        Boolean("x", missing="no")


def test_comparisons_of_levels():
    column = Category("x", ["a", "b", "c"])
    assert column.bins_where("==", "b") == {1}
    assert column.bins_where("!=", "b") == {0, 2}
    with pytest.raises(ConditionError, match=r"'x' has levels without an order: '<' is not"):
        column.bins_where("<", "b")
