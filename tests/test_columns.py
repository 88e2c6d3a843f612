"""Columns: coding by a public rule, exact edges, and the refusals of what cannot be declared."""

import math
import re
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dpstats.columns import MAX_POINTS, MISSING_LABEL, Boolean, Category, Number
from dpstats.errors import ConditionError, SchemaError

AWKWARD = [
    0.1 + 0.2,
    0.3,
    0.1,
    0.7,
    1 / 3,
    2 / 3,
    1e-9,
    1.1 * 3,
    3.3,
    0.57,
    1 - 2**-53,
    29.99,
    4.35,
]


def codes(column, cells, kind=None):
    return column.encode(pa.array(cells, kind, from_pandas=True)).tolist()


# Categories


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
    cells = ["yes", "Yes", "yes ", " yes", "YES", "é", "e\u0301", ""]
    assert codes(column, cells) == [0, 2, 2, 2, 2, 1, 2, 2]


def test_numbers_match_by_value_and_never_text():
    column = Category("x", [0, 1, 2.5], missing=2.5)
    assert codes(column, [1, 0, 7]) == [1, 0, 2]
    assert codes(column, [1.0, -0.0, 2.5, math.nan, None, math.inf]) == [1, 0, 2, 2, 2, 2]
    assert codes(column, [True, False, None]) == [1, 0, 2]
    assert not column.accepts(pa.string())
    assert not Category("x", ["1", "2"]).accepts(pa.int64())


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


@pytest.mark.parametrize(
    ("levels", "dtype"),
    [(["a", "b"], object), ([1, 2], np.int64), ([1, 2.5], np.float64), ([False, True], np.bool_)],
)
def test_levels_decode_to_the_declared_type(levels, dtype):
    decoded = Category("x", levels).decode(np.array([1, 0, 1]))
    assert decoded.dtype == dtype
    assert decoded.tolist() == [levels[1], levels[0], levels[1]]


@pytest.mark.parametrize(
    ("options", "missing", "undeclared", "rule"),
    [
        ({}, 0, 0, "missing or undeclared: counted as 'a'"),
        ({"missing": "b"}, 1, 1, "missing or undeclared: counted as 'b'"),
        ({"other": "c"}, 0, 2, "missing: counted as 'a'; undeclared: counted as 'c'"),
        ({"missing": "b", "other": "c"}, 1, 2, "missing: counted as 'b'; undeclared: .* as 'c'"),
        ({"allow_missing": True}, 3, 3, "missing or undeclared: counted as '\\(missing\\)'"),
        ({"allow_missing": True, "other": "c"}, 3, 2, "missing: .*'\\(missing\\)'; undeclared"),
    ],
)
def test_missing_and_undeclared_cells(options, missing, undeclared, rule):
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


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Category("x", ["a"]), "'x' needs at least two levels, got 1"),
        (lambda: Category("x", []), "'x' needs at least two levels, got 0"),
        (lambda: Category("x", ["a", "b", "a"]), "levels of 'x' must be distinct"),
        (lambda: Category("x", [1, 2, 1.0]), r"must be distinct \(1 and 1.0 are the same level\)"),
        (lambda: Category("x", {"a": 1, "b": 1}), "levels of 'x' must be distinct"),
        (
            lambda: Category("x", ["1", 2]),
            r"all text, all numbers or all bool; got \['number', 'str",
        ),
        (lambda: Category("x", [True, 2]), r"all bool; got \['bool', 'number'\]"),
        (lambda: Category("x", [None, "a"]), r"all bool; got \['NoneType', 'str'\]"),
        (lambda: Category("x", [["a"], ["b"]]), r"all bool; got \['list'\]"),
        (lambda: Category("x", {1: "a", 2: "b"}), "from labels, which are text, to stored values"),
        (lambda: Category("x", [1.0, math.nan]), "levels of 'x' must be finite.*missing="),
        (lambda: Category("x", [1, math.inf]), "levels of 'x' must be finite"),
        (lambda: Category("x", [1, 10**400]), "levels of 'x' must be finite"),
        (lambda: Category("x", [1, 2**53]), "must be below 2.*53.*store longer codes as text"),
        (lambda: Category("x", ["", "a"]), "'x': an empty text .* cannot be a level; use missing="),
        (lambda: Category("x", {"a": 1, "": 2}), "an empty text .* cannot be a level"),
        (lambda: Category("x", "ab"), "levels of 'x' must be a list or a mapping"),
        (lambda: Category("x", {"a", "b"}), "levels of 'x' must be a list or a mapping"),
        (lambda: Category("x", 3), "levels of 'x' must be a list or a mapping"),
        (
            lambda: Category("x", ["a", "b"], missing="c"),
            r"missing= of column 'x': 'c' is not a level of 'x'; levels: \['a', 'b'\]",
        ),
        (lambda: Category("x", ["a", "b"], other="c"), "other= of column 'x': 'c' is not a level"),
        (lambda: Category("x", [1, 2], missing="1"), "'1' is not a level of 'x'"),
        (
            lambda: Category("x", ["a", "b"], missing="a", allow_missing=True),
            "'x': give either missing= .* or allow_missing=True",
        ),
        (
            lambda: Category("x", ["a", "b"], allow_missing="false"),
            "'x': allow_missing must be true or false, got 'false'",
        ),
        (lambda: Category("", ["a", "b"]), "a column name must be non-empty text"),
        (lambda: Category("a`b", ["a", "b"]), "without backticks, got 'a`b'"),
        (lambda: Category(3, ["a", "b"]), "column name must be non-empty text .*, got 3"),
        (lambda: Boolean("x", missing="no"), "missing= of column 'x': 'no' is not a level"),
    ],
)
def test_impossible_categories_are_refused_with_a_reason(make, says):
    with pytest.raises(SchemaError, match=says):
        make()


def test_comparisons_of_levels():
    column = Category("x", ["a", "b", "c"])
    assert column.bins_where("==", "b") == {1}
    assert column.bins_where("!=", "b") == {0, 2}
    with pytest.raises(ConditionError, match=r"'x' has levels without an order: '<' is not"):
        column.bins_where("<", "b")


# Numbers


def exact_bin(value, edges, closed):
    """The bin of a raw value, in exact arithmetic."""
    if closed == "left":
        return sum(Fraction(edge) <= Fraction(value) for edge in edges)
    return sum(Fraction(edge) < Fraction(value) for edge in edges)


finite = st.floats(-1e6, 1e6) | st.sampled_from(AWKWARD) | st.sampled_from([-0.0, 0.0, 1.0, -1.0])


@st.composite
def numbers(draw):
    """Numbers with awkward bounds and edges, or with declared values and perhaps edges."""
    closed = draw(st.sampled_from(["left", "right"]))
    if draw(st.booleans()):
        low, high = sorted(draw(st.lists(finite, min_size=2, max_size=2, unique=True)))
        points = 2 * draw(st.sampled_from([1, 2, 5, 50, 512])) + 1
        inside = st.floats(low, high) | st.sampled_from([low, high, (low + high) / 2])
        options = {"low": low, "high": high, "points": points}
    else:
        tenths = draw(st.lists(st.integers(-300, 300), min_size=2, max_size=8, unique=True))
        values = sorted(tenth / 10 for tenth in tenths)
        inside = st.floats(values[0], values[-1]) | st.sampled_from(values)
        options = {"values": values}
    edges = sorted(draw(st.lists(inside, max_size=4, unique=True)))
    try:
        return Number("x", edges=edges, closed=closed, **options)
    except SchemaError:
        return Number("x", closed=closed, **options) if "values" in options else assume(False)


@given(column=numbers(), data=st.data())
@settings(max_examples=200)
def test_a_code_is_the_nearest_grid_point_inside_the_bin_of_the_value(column, data):
    near_edge = [f(edge) for edge in column.edges for f in (
        float, lambda e: math.nextafter(e, math.inf), lambda e: math.nextafter(e, -math.inf)
    )]  # fmt: skip
    special = [float(column.low), float(column.high), *near_edge, *AWKWARD, 1e308, -1e308]
    raw = data.draw(st.floats(allow_nan=False) | st.sampled_from(special))
    code = codes(column, [raw])[0]
    clamped = min(max(raw, float(column.low)), float(column.high))
    grid = column.grid
    in_use = column.codes_in_use

    assert code in set(in_use.tolist())
    if column.edges:
        own = exact_bin(clamped, column.edges, column.closed)
        assert column.bins_of(np.array([code]))[0] == own
    else:
        own = 0
    reachable = [
        point
        for point in grid[in_use + column.half_points]
        if exact_bin(point, column.edges, column.closed) == own
    ]
    distance = abs(grid[code + column.half_points] - clamped)
    nearest = min(abs(point - clamped) for point in reachable)
    step = (float(column.high) - float(column.low)) / (column.points - 1)
    scale = max(abs(float(column.low)), abs(float(column.high)))
    assert distance <= nearest + 1e-9 * step + 8 * np.spacing(scale)  # rounding of the grid itself


@given(column=numbers())
def test_grid_points_come_back_as_they_went_in(column):
    in_use = column.codes_in_use
    again = column.encode(pa.array(column.grid[in_use + column.half_points]))
    np.testing.assert_array_equal(again, in_use)
    np.testing.assert_array_equal(column.decode(again), column.grid[in_use + column.half_points])


@given(column=numbers())
def test_every_bin_holds_a_code_and_bins_are_runs_of_codes(column):
    low, high = column.code_range
    bins = column.bins_of(np.arange(low, high + 1))
    assert bins[0] == 0
    assert bins[-1] == column.bins - 1
    assert set(np.diff(bins).tolist()) <= {0, 1}
    assert len(column.bin_labels) == len(set(column.bin_labels)) == column.bins


@given(column=numbers(), seed=st.integers(0, 2**32))
def test_codes_drawn_inside_a_bin_are_in_it_and_reach_all_of_it(column, seed):
    rng = np.random.default_rng(seed)
    bins = rng.integers(column.bins, size=200)
    drawn = column.draw_inside(bins, rng)
    np.testing.assert_array_equal(column.bins_of(drawn), bins)
    assert set(drawn.tolist()) <= set(column.codes_in_use.tolist())


def test_edges_belong_to_the_declared_side():
    left = Number("x", 0, 1, points=11, edges=[0.1, 0.3])
    right = Number("x", 0, 1, points=11, edges=[0.1, 0.3], closed="right")
    # 0.1 + 0.2 is above 0.3 in floats.
    cells = [0.1, math.nextafter(0.1, 0), 0.3, 0.1 + 0.2, math.nextafter(0.1, 1), 0, 1, -5, 5]
    assert left.bins_of(np.array(codes(left, cells))).tolist() == [1, 0, 2, 2, 1, 0, 2, 0, 2]
    assert right.bins_of(np.array(codes(right, cells))).tolist() == [0, 0, 1, 2, 1, 0, 2, 0, 2]
    assert left.bin_labels == ("[0, 0.1)", "[0.1, 0.3)", "[0.3, 1]")
    assert right.bin_labels == ("[0, 0.1]", "(0.1, 0.3]", "(0.3, 1]")
    assert Number("x", 0, 1).bin_labels == ("[0, 1]",)


def test_labels_tell_close_edges_apart():
    column = Number("x", 0, 2e6, points=2**20 + 1, edges=[1234561, 1234567.5])
    assert column.bin_labels == ("[0, 1234561)", "[1234561, 1234567.5)", "[1234567.5, 2e+06]")
    assert Number("x", values=[1234567, 1234568]).bin_labels == ("1234567", "1234568")


def test_edges_at_the_bounds_make_a_bin_of_the_bound_alone():
    top = Number("x", 0, 10, points=11, edges=[10])
    assert codes(top, [9.999, 10, 11]) == [4, 5, 5]
    bottom = Number("x", 0, 10, points=11, edges=[0], closed="right")
    assert codes(bottom, [0, 1e-9, -1]) == [-5, -4, -5]


def test_what_is_no_finite_number_still_has_a_code():
    column = Number("x", 0, 10, points=11, missing=7)
    cells = [None, math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, -0.0, 7]
    assert codes(column, cells) == [2, 2, 5, -5, 5, -5, -5, -5, 2]
    assert codes(Number("x", 0, 10, points=11), [None]) == [0]
    assert codes(column, [2**63 - 1, -(2**63), 3], pa.int64()) == [5, -5, -2]
    assert codes(column, [True, False, None]) == [-4, -5, 2]


@given(st.lists(st.integers(-10_000, 10_000), min_size=2, max_size=12, unique=True),
       st.sampled_from([1, 2, 10, 100, 1000, 3]))  # fmt: skip
def test_uneven_values_decode_to_the_last_bit(whole, unit):
    values = sorted(value / unit for value in whole)
    try:
        column = Number("x", values=values)
    except SchemaError as error:
        assert "no common step coarser" in str(error)  # noqa: PT017
        return
    coded = column.encode(pa.array(values))
    assert column.decode(coded).tolist() == values
    assert column.bins_of(coded).tolist() == list(range(len(values)))
    assert column.bins == len(values)
    if unit == 1:
        assert column.decode(coded).dtype == np.int64


def test_values_lie_on_one_even_grid_and_take_their_neighbours():
    column = Number("score", values=[17.5, 22, 27], missing=22)
    assert column.encode(pa.array([17.5, 22, 27.0])).tolist() == [-19, -1, 19]  # steps of 1/4
    cells = [17.5, 19.74, 19.75, 19.76, 24.5, 24.51, 99, -99, None]
    decoded = column.decode(np.array(codes(column, cells)))
    assert decoded.tolist() == [17.5, 17.5, 17.5, 22, 22, 27, 27, 17.5, 22]
    assert column.bin_labels == ("17.5", "22", "27")


def test_whole_grids_decode_to_whole_numbers():
    assert Number("x", 0, 10, points=11).decode(np.array([-5, 5])).dtype == np.int64
    assert Number("x", 0, 10, points=21).decode(np.array([-10, 10])).dtype == np.float64


@pytest.mark.parametrize("closed", ["left", "right"])
def test_comparisons_only_at_declared_edges_on_their_side(closed):
    column = Number("x", 0, 9, points=19, edges=[2.5, 5], closed=closed)
    below, above = ("<", ">=") if closed == "left" else ("<=", ">")
    assert column.bins_where(below, 5.0) == {0, 1}
    assert column.bins_where(above, 2.5) == {1, 2}
    for comparison in {"<", "<=", ">", ">=", "==", "!="} - {below, above}:
        with pytest.raises(ConditionError, match=f"allowed: {below} or {above} with .*2.5, 5"):
            column.bins_where(comparison, 5)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"low": 5, "high": 5}, "column 'x': low must be below high, got 5 and 5"),
        ({"low": 5, "high": 4}, "low must be below high"),
        ({"low": 0, "high": 1e-310}, "too close or too large"),
        ({"low": -1.7e308, "high": 1.7e308}, "too close or too large"),
        ({"low": 1.6e308, "high": 1.7e308}, "too close or too large"),
        ({"values": [0, 1e-310]}, "too close or too large"),
        ({"low": 0}, "column 'x': declare low and high, or values; they are never learned"),
        ({"low": "auto", "high": 1}, "column 'x': low must be a finite number, got 'auto'"),
        ({"low": 0, "high": math.inf}, "high must be a finite number, got inf"),
        ({"low": 0, "high": 10**400}, "high must be a finite number"),
        ({"low": math.nan, "high": 1}, "low must be a finite number, got nan"),
        ({"low": True, "high": 9}, "low must be a finite number, got True"),
        ({"low": 0, "high": 1, "points": 10}, "points must be an odd whole number from 3 to"),
        ({"low": 0, "high": 1, "points": 1}, "points must be an odd whole number from 3"),
        ({"low": 0, "high": 1, "points": 11.0}, "points must be an odd whole number.*got 11.0"),
        ({"low": 0, "high": 1, "points": True}, "points must be an odd whole number"),
        ({"low": 0, "high": 1, "points": MAX_POINTS + 2}, f"from 3 to {MAX_POINTS}, got"),
        ({"low": 1, "high": 1 + 2**-50, "points": 99}, "99 points from .* are not distinct"),
        ({"low": 0, "high": 1, "edges": [0.5, 0.2]}, "edges must be strictly increasing"),
        ({"low": 0, "high": 1, "edges": [0.5, 0.5]}, "edges must be strictly increasing"),
        ({"low": 0, "high": 1, "edges": [0]}, r"edges must lie inside the bounds \[0, 1\]"),
        ({"low": 0, "high": 1, "edges": [1.5]}, "edges must lie inside the bounds"),
        ({"low": 0, "high": 1, "edges": [1], "closed": "right"}, "must lie inside the bounds"),
        ({"low": 0, "high": 1, "edges": [math.nan]}, "each of edges must be a finite number"),
        ({"low": 0, "high": 1, "edges": ["0.5"]}, "each of edges must be a finite number"),
        ({"low": 0, "high": 1, "edges": 0.5}, "edges must be a list of numbers"),
        ({"low": 0, "high": 1, "edges": "quantiles"}, "edges must be a list of numbers"),
        (
            {"low": 0, "high": 1, "points": 11, "edges": [0.31, 0.39]},
            "some bin between the edges holds no grid point; move the edges apart or raise points",
        ),
        ({"values": [1, 5, 9], "edges": [2, 3]}, "holds no declared value; move the edges apart"),
        ({"low": 0, "high": 1, "closed": "both"}, "closed must be 'left' or 'right', got 'both'"),
        ({"low": 0, "high": 1, "missing": 2}, "missing=2 lies outside the bounds"),
        ({"low": 0, "high": 1, "missing": "mean"}, "missing must be a finite number, got 'mean'"),
        ({"low": 0, "high": 1, "values": [0, 1]}, "give either low and high, or values"),
        ({"values": [1]}, "values must list at least two numbers"),
        ({"values": [2, 1]}, "values must be strictly increasing"),
        ({"values": [1, 1.0]}, "values must be strictly increasing"),
        ({"values": [0, 1e-7, 1]}, "the values have no common step coarser than"),
        ({"values": [0, math.pi, 7]}, "round them to fewer decimals, or declare low, high"),
    ],
)
def test_impossible_numbers_are_refused_with_a_reason(options, says):
    with pytest.raises(SchemaError, match=says) as refused:
        Number("x", **options)
    assert "'x'" in str(refused.value)


def test_columns_are_values():
    assert Number("x", 0, 1, edges=[0.5]) == Number("x", 0, 1, edges=(0.5,))
    assert hash(Category("x", {"a": 1, "b": 2})) == hash(Category("x", {"a": 1, "b": 2}))
    assert Category("x", {"a": 1, "b": 2}) != Category("x", {"b": 2, "a": 1})
    assert Category("x", ["a", "b"], note="one") == Category("x", ["a", "b"], note="two")
    assert Number("x", 0, 1) != Number("x", 0, 1, closed="right")
