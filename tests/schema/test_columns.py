"""Columns: coded by a public rule, numbers with exact edges, and refused with a reason."""

import math
import re
from datetime import date, datetime
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dpstats.errors import ConditionError, SchemaError
from dpstats.schema import MAX_POINTS, Boolean, Category, Number

AWKWARD = [
    0.1 + 0.2, 0.3, 0.1, 0.7, 1 / 3, 2 / 3, 1e-9, 1.1 * 3, 3.3, 0.57, 1 - 2**-53, 29.99, 4.35
]  # fmt: skip


def codes(column, cells, kind=None):
    return column.encode(pa.array(cells, kind, from_pandas=True)).tolist()


def exact_bin(value, edges, closed):
    """The bin of a raw value, in exact arithmetic."""
    exact = Fraction(value)
    return sum(
        edge < exact or (edge == exact and closed == "left") for edge in map(Fraction, edges)
    )


finite = st.floats(-1e6, 1e6) | st.sampled_from(AWKWARD) | st.sampled_from([-0.0, 0.0, 1.0, -1.0])


@st.composite
def numbers(draw):
    """Numbers with awkward bounds and edges, or with declared values and perhaps edges."""
    closed = draw(st.sampled_from(["left", "right"]))
    if draw(st.booleans()):
        values = sorted(draw(st.lists(finite, min_size=2, max_size=2, unique=True)))
        points = draw(st.sampled_from([2, 3, 4, 5, 11, 12, 100, 101, 1025]))
        options = {"low": values[0], "high": values[1], "points": points}
    else:
        tenths = draw(st.lists(st.integers(-300, 300), min_size=2, max_size=8, unique=True))
        values = sorted(tenth / 10 for tenth in tenths)
        options = {"values": values}
    inside = st.floats(values[0], values[-1]) | st.sampled_from([*values, sum(values[:2]) / 2])
    edges = sorted(draw(st.lists(inside, max_size=4, unique=True)))
    try:
        return Number("x", edges=edges, closed=closed, **options)
    except SchemaError:
        return Number("x", closed=closed, **options) if "values" in options else assume(False)


@given(column=numbers(), data=st.data())
@settings(max_examples=30)
def test_a_code_is_the_nearest_grid_point_inside_the_bin_of_the_value(column, data):
    edges = [float(edge) for edge in column.edges]
    edges += [math.nextafter(edge, end) for edge in edges for end in (math.inf, -math.inf)]
    special = [float(column.low), float(column.high), *edges, *AWKWARD, 1e308, -1e308]
    raw = data.draw(st.floats(allow_nan=False) | st.sampled_from(special))
    code, in_use = codes(column, [raw])[0], column.codes_in_use
    assert code in in_use
    width = float(column.high) - float(column.low)
    outside = [float(column.low) - width / 4, float(column.high) + width / 4]
    assert codes(column, outside) == [in_use[0], in_use[-1]]
    clamped = min(max(raw, float(column.low)), float(column.high))
    own = exact_bin(clamped, column.edges, column.closed)
    assert not column.edges or column.bins_of(np.array([code]))[0] == own
    points = column.grid[in_use + column.half_points]
    reachable = [p for p in points if exact_bin(p, column.edges, column.closed) == own]
    nearest = min(abs(point - clamped) for point in reachable)
    step = (float(column.high) - float(column.low)) / (column.points - 1)
    scale = max(abs(float(column.low)), abs(float(column.high)))
    rounding = 1e-9 * step + 8 * np.spacing(scale)  # of the grid itself
    assert abs(column.grid[code + column.half_points] - clamped) <= nearest + rounding


@given(column=numbers(), seed=st.integers(0, 2**32))
@settings(max_examples=15)
def test_every_bin_is_a_run_of_codes_and_codes_drawn_inside_are_in_it(column, seed):
    bins = column.bins_of(np.arange(column.code_range[0], column.code_range[1] + 1))
    assert (bins[0], bins[-1]) == (0, column.bins - 1)
    assert set(np.diff(bins).tolist()) <= {0, 1}
    assert len(column.bin_labels) == len(set(column.bin_labels)) == column.bins
    rng = np.random.default_rng(seed)
    bins = rng.integers(column.bins, size=200)
    drawn = column.draw_inside(bins, rng)
    np.testing.assert_array_equal(column.bins_of(drawn), bins)
    assert set(drawn.tolist()) <= set(column.codes_in_use.tolist())


@given(st.lists(st.integers(-10_000, 10_000), min_size=2, max_size=12, unique=True),
       st.sampled_from([1, 2, 10, 100, 1000, 3]))  # fmt: skip
@settings(max_examples=20)
def test_uneven_values_decode_to_the_last_bit(whole, unit):
    values = sorted(value / unit for value in whole)
    try:
        column = Number("x", values=values)
    except SchemaError as error:
        assert "no common step coarser" in str(error)  # noqa: PT017
        return
    coded = column.encode(pa.array(values))
    assert column.decode(coded).tolist() == values
    assert column.bins_of(coded).tolist() == list(range(column.bins))
    assert unit != 1 or column.decode(coded).dtype == np.int64


def test_declared_numbers_are_shown_as_declared():
    column = Number("x", 0.125, 1234567, edges=[500000.25], missing=1234567)
    assert column.described.startswith("number, 0.125 to 1234567, 1025 points, bins [0.125, 500000")
    assert "counted as 1234567; outside" in column.missing_rule()
    assert Number("x", values=[2000001, 2000002.5]).described == "number, values 2000001, 2000002.5"
    column = Number("x", 1000001, 5000003, points=3, scale="log", missing=1000002)
    assert column.described.startswith("number, 1000001 to 5000003, 3 points")
    assert "counted as 1000001 (the grid point nearest 1000002);" in column.missing_rule()
    assert column.missing_rule().endswith("0 and below to 1000001")
    assert "counted as 0.3; outside" in Number("x", 0, 1, points=11, missing=0.3).missing_rule()


def test_a_number_of_dates_codes_days():
    column = Number("x", "2020-01-01", "2024-12-30", edges=["2023-01-01"], missing="2022-06-01")
    assert column == Number("x", date(2020, 1, 1), date(2024, 12, 30), edges=[date(2023, 1, 1)],
                            missing=date(2022, 6, 1))  # fmt: skip
    assert column.points == len(column.codes_in_use) == 1826
    assert column.bin_labels == ("[2020-01-01, 2023-01-01)", "[2023-01-01, 2024-12-30]")
    assert "not a date: counted as 2022-06-01; outside: clamped" in column.missing_rule()
    days = {
        "2020-01-01": "2020-01-01", "2022-12-31": "2022-12-31", " 2023-01-01 ": "2023-01-01",
        "2024-02-29T23:59:59+02:00": "2024-02-29", "1999-01-01": "2020-01-01",
        "2099-01-01 00:00": "2024-12-30",
        **dict.fromkeys(["", "2023-02-29", "2023-13-01", "2023-1-1", "19844", "x"], "2022-06-01"),
    }  # fmt: skip
    for kind in (pa.string(), pa.large_binary()):
        coded = column.encode(pa.array(days, pa.string()).cast(kind))
        assert column.decode(coded).astype(str).tolist() == list(days.values())
    assert column.bins_of(coded).tolist() == [0, 0, 1, 1, 0, 1, *[0] * 6]


UNIT, YEAR = {"low": 0, "high": 1}, {"low": "2020-01-01", "high": "2020-12-31"}
ONE, LOG = {"low": 0, "high": 9, "missing": 3}, {"scale": "log", "low": 1, "high": 9}


def test_impossible_numbers_and_dates_are_refused_with_a_reason():
    for options in [
        {"low": 5, "high": 5}, {"low": 0, "high": 1e-310}, {"low": -1.7e308, "high": 1.7e308},
        {"low": -1e302, "high": 1}, {"values": [0, 1e-310]}, {"low": 0}, {"low": "auto", "high": 1},
        {"low": 0, "high": 10**400}, {"low": math.nan, "high": 1}, {"low": True, "high": 9},
        UNIT | {"points": 1}, UNIT | {"points": True}, UNIT | {"points": MAX_POINTS + 2},
        UNIT | {"points": MAX_POINTS - 1}, {"low": 1, "high": 1 + 2**-50, "points": 99},
        UNIT | {"edges": [0.5, 0.5]}, UNIT | {"edges": [0]}, UNIT | {"edges": [1.5]},
        UNIT | {"edges": [1], "closed": "right"}, UNIT | {"edges": ["0.5"]},
        UNIT | {"edges": "quantiles"}, UNIT | {"points": 11, "edges": [0.31, 0.39]},
        UNIT | {"closed": "both"}, UNIT | {"missing": 2}, UNIT | {"missing": "mean"},
        UNIT | {"values": [0, 1]}, {"values": [1]}, {"values": [1, 1.0]}, {"values": [0, 1e-7, 1]},
        # Dates
        YEAR | {"high": 5}, YEAR | {"high": "2020-02-30"}, UNIT | {"edges": ["2020-02-20"]},
        YEAR | {"points": 12}, YEAR | {"edges": [18400]}, YEAR | {"missing": 3},
        {"low": "2020-01-01", "values": [1, 2]}, {"low": datetime(2020, 1, 1, 12), "high": 5},
        {"low": "0001-01-01", "high": "9999-12-31"},
        # Logarithmic grids
        LOG | {"low": 0}, LOG | {"scale": "ln"}, {"values": [1, 2, 3], "scale": "log"},
        YEAR | {"scale": "log"}, LOG | {"edges": [0.5]},
        # Codes for missing cells
        UNIT | {"missing_values": [9]}, ONE | {"missing_values": 9}, ONE | {"missing_values": "89"},
        ONE | {"missing_values": ["NA"]}, ONE | {"missing_values": [math.nan]},
        ONE | {"missing_values": [True]}, {"values": [1, 2], "missing": 1, "missing_values": [2.0]},
        YEAR | {"missing": "2020-01-01", "missing_values": [1]},
    ]:  # fmt: skip
        with pytest.raises(SchemaError, match="'x'"):
            Number("x", **options)


def test_a_logarithmic_grid_has_equal_steps_and_codes_the_nearest_logarithm():
    for points in [57, 56]:
        column = Number("pay", 2, 5000, points, [30, 400], scale="log", missing=100)
        grid = column.grid[column.codes_in_use + column.half_points]
        np.testing.assert_allclose(np.diff(np.log(grid)), np.log(2500) / (points - 1), rtol=1e-9)
        np.testing.assert_array_equal(column.encode(pa.array(grid)), column.codes_in_use)
        assert (grid[0], grid[-1], len(grid)) == (2, 5000, points)
        values = np.exp(np.random.default_rng(0).uniform(0, 9, 2_000))
        codes = column.encode(pa.array(values))
        np.testing.assert_array_equal(
            column.bins_of(codes), np.searchsorted([30, 400], values, side="right")
        )
        distance = np.abs(np.log(np.clip(values, 2, 5000))[:, None] - np.log(grid))
        nearest = column.codes_in_use[np.argmin(distance, axis=1)]
        other = codes != nearest  # the nearest point may be in another bin
        assert np.all(column.bins_of(nearest[other]) != column.bins_of(codes[other]))
        assert np.mean(other) < 0.05
        middle, half = np.log(100), np.log(50)
        np.testing.assert_allclose([column.middle, column.half_range], [middle, half])
        np.testing.assert_allclose(middle + half * column.units_of(codes),
                                   np.log(column.decode(codes)), atol=1e-9)  # fmt: skip


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
