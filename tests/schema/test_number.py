"""Numbers: coded by a public rule with exact edges, and refused with a reason."""

import json
import math
from dataclasses import replace
from datetime import date, datetime
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dpstats.errors import ConditionError, SchemaError
from dpstats.schema import MAX_POINTS, Category, Number, Schema, arrow
from dpstats.schema.dates import day_of, day_text

AWKWARD = [
    0.1 + 0.2, 0.3, 0.1, 0.7, 1 / 3, 2 / 3, 1e-9, 1.1 * 3, 3.3, 0.57, 1 - 2**-53, 29.99, 4.35
]  # fmt: skip


def codes(column, cells, kind=None):
    return column.encode(pa.array(cells, kind, from_pandas=True)).tolist()


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
        points = draw(st.sampled_from([2, 3, 4, 5, 11, 12, 100, 101, 1025]))
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
    own = exact_bin(clamped, column.edges, column.closed)
    if column.edges:
        assert column.bins_of(np.array([code]))[0] == own
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


def test_labels_distinguish_close_edges():
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
    for edges in ([], [5]):
        narrow = Number("x", 0, 1e-3, points=11, edges=[edge * 1e-4 for edge in edges])
        assert codes(narrow, [1e308, -1e308]) == [5, -5]
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


def test_comparisons_only_at_declared_edges_on_their_side():
    for closed in ["left", "right"]:
        column = Number("x", 0, 9, points=19, edges=[2.5, 5], closed=closed)
        below, above = ("<", ">=") if closed == "left" else ("<=", ">")
        assert column.bins_where(below, 5.0) == {0, 1}
        assert column.bins_where(above, 2.5) == {1, 2}
        for comparison in {"<", "<=", ">", ">=", "==", "!="} - {below, above}:
            with pytest.raises(ConditionError, match=f"allowed: {below} or {above} with .*2.5, 5"):
                column.bins_where(comparison, 5)


UNIT = {"low": 0, "high": 1}


def test_impossible_numbers_are_refused_with_a_reason():
    for options, says in [
        ({"low": 5, "high": 5}, "column 'x': low must be below high, got 5 and 5"),
        ({"low": 0, "high": 1e-310}, "too close or too large"),
        ({"low": -1.7e308, "high": 1.7e308}, "too close or too large"),
        ({"low": 0, "high": 1e-198}, r"up to 1e\+50 in absolute value, and 1e-50 apart"),
        ({"low": -1e302, "high": 1}, r"up to 1e\+50 in absolute value, and 1e-50 apart"),
        ({"values": [0, 1e-310]}, "too close or too large"),
        ({"low": 0}, "column 'x': declare low and high, or values; they are never learned"),
        ({"low": "auto", "high": 1}, "column 'x': low must be a finite number, got 'auto'"),
        ({"low": 0, "high": 10**400}, "high must be a finite number"),
        ({"low": math.nan, "high": 1}, "low must be a finite number, got nan"),
        ({"low": True, "high": 9}, "low must be a finite number, got True"),
        (UNIT | {"points": 1}, "points must be a whole number from 2 to"),
        (UNIT | {"points": 11.0}, "points must be a whole number.*got 11.0"),
        (UNIT | {"points": True}, "points must be a whole number"),
        (UNIT | {"points": MAX_POINTS + 2}, f"from 2 to {MAX_POINTS} .*, got"),
        (UNIT | {"points": MAX_POINTS - 1}, f"an even one to {MAX_POINTS // 2}.*got"),
        ({"low": 1, "high": 1 + 2**-50, "points": 99}, "99 points from .* are not distinct"),
        (UNIT | {"edges": [0.5, 0.2]}, "strictly increasing, and number 2 of them is not"),
        (UNIT | {"edges": [0.5, 0.5]}, "edges must be strictly increasing"),
        (UNIT | {"edges": [0]}, r"edges must lie strictly inside .* \[0, 1\]"),
        (UNIT | {"edges": [1.5]}, "edges must lie strictly inside the bounds"),
        (UNIT | {"edges": [1], "closed": "right"}, "must lie strictly inside"),
        (UNIT | {"edges": [math.nan]}, "each of edges must be a finite number"),
        (UNIT | {"edges": ["0.5"]}, "each of edges must be a finite number"),
        (UNIT | {"edges": "quantiles"}, "edges must be a list of numbers"),
        (UNIT | {"points": 11, "edges": [0.31, 0.39]}, "no grid point; use wider bins or more po"),
        ({"values": [1, 5, 9], "edges": [2, 3]}, "holds no declared value; use wider bins"),
        (UNIT | {"closed": "both"}, "closed must be one of .*got 'both'"),
        (UNIT | {"missing": 2}, "missing=2 lies outside the bounds"),
        (UNIT | {"missing": "mean"}, "missing must be a finite number, got 'mean'"),
        (UNIT | {"values": [0, 1]}, "give either low and high, or values"),
        ({"values": [1]}, "values must list at least two numbers"),
        ({"values": [1, 1.0]}, "values must be strictly increasing"),
        ({"values": [0, 1e-7, 1]}, "the values have no common step coarser than"),
    ]:
        with pytest.raises(SchemaError, match=says) as refused:
            Number("x", **options)
        assert "'x'" in str(refused.value)


def test_columns_are_values():
    assert Number("x", 0, 1, edges=[0.5]) == Number("x", 0, 1, edges=(0.5,))
    assert hash(Category("x", {"a": 1, "b": 2})) == hash(Category("x", {"a": 1, "b": 2}))
    assert Category("x", {"a": 1, "b": 2}) != Category("x", {"b": 2, "a": 1})
    assert Category("x", ["a", "b"], note="one") == Category("x", ["a", "b"], note="two")
    assert Number("x", 0, 1) != Number("x", 0, 1, closed="right")


def test_middle_and_half_range_are_those_of_the_bounds():
    number = Number("x", 1, 4)
    assert (number.middle, number.half_range) == (2.5, 1.5)
    scores = Number("x", values=[17.5, 22, 27])
    assert (scores.middle, scores.half_range) == (22.25, 4.75)
    assert scores.grid[scores.half_points] == scores.middle


def test_whole_numbers_in_a_range_of_any_length_have_one_point_each():
    for low, high in [(0, 11), (0, 12), (-3, 4), (1, 2), (0, 1000)]:
        column = Number("children", low, high, points=high - low + 1, missing=low)
        cells = np.arange(low, high + 1)
        coded = column.encode(pa.array(cells))
        np.testing.assert_array_equal(coded, column.codes_in_use)
        np.testing.assert_array_equal(column.decode(coded), cells)
        assert column.decode(coded).dtype == np.int64
        assert column.code_range == (-column.half_points, column.half_points)
        assert column.middle + column.half_range * coded[1] / column.half_points == low + 1
        assert Number("children", low, high, points=high - low + 1).bins == 1
        between = column.decode(
            np.array(codes(column, [low + 0.49, low + 0.51, low - 9, high + 9]))
        )
        assert between.tolist() == [low, low + 1, low, high]


ADMITTED = Number("admitted", date(2020, 1, 1), date(2024, 12, 30), edges=[date(2023, 1, 1)],
                  missing=date(2022, 6, 1))  # fmt: skip


def test_a_number_of_dates_codes_days():
    column = ADMITTED
    assert column == Number("admitted", "2020-01-01", "2024-12-30", edges=["2023-01-01"],
                            missing="2022-06-01")  # fmt: skip
    assert column.points == len(column.codes_in_use) == 1826
    assert column.bin_labels == ("[2020-01-01, 2023-01-01)", "[2023-01-01, 2024-12-30]")
    assert (
        column.missing_rule()
        == "missing or not a date: counted as 2022-06-01; outside: clamped to the bounds"
    )
    texts = ["2020-01-01", "2022-12-31", " 2023-01-01 ", "2024-02-29T23:59:59+02:00", "1999-01-01",
             "2099-01-01 00:00", "", "2023-02-29", "2023-13-01", "2023-1-1", "19844",
             "x"]  # fmt: skip
    days = ["2020-01-01", "2022-12-31", "2023-01-01", "2024-02-29", "2020-01-01", "2024-12-30",
            *["2022-06-01"] * 6]  # fmt: skip
    for kind in (pa.string(), pa.large_binary()):
        coded = column.encode(pa.array(texts, pa.string()).cast(kind))
        assert column.decode(coded).astype(str).tolist() == days
    assert column.bins_of(coded).tolist() == [0, 0, 1, 1, 0, 1, *[0] * 6]


def test_dates_of_every_arrow_type_have_one_code():
    moments = [datetime(2023, 1, 1), datetime(2022, 12, 31, 23, 59), datetime(1960, 1, 1, 5), None]
    expected = ["2023-01-01", "2022-12-31", "2020-01-01", "2022-06-01"]
    kinds = [pa.date32(), pa.date64(), *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns"))]
    for kind in kinds:
        cells = pa.array(moments, pa.timestamp("us")).cast(kind, safe=False)
        assert ADMITTED.decode(ADMITTED.encode(cells)).astype(str).tolist() == expected
    zoned = pa.array([datetime(2022, 12, 31, 23, 30)], pa.timestamp("s", "Europe/Berlin"))
    assert ADMITTED.decode(ADMITTED.encode(zoned)).astype(str).tolist() == ["2023-01-01"]
    for numbers in ([19844], [19844.0], [True]):  # no number is a date
        assert ADMITTED.encode(pa.array(numbers)).tolist() == [ADMITTED.missing_code]


@given(st.dates())
def test_days_are_those_of_the_calendar(day):
    expected = (day - date(1970, 1, 1)).days
    text = pa.array([day.isoformat()])
    assert arrow.days(text).tolist() == arrow.days(pa.array([day])).tolist() == [expected]
    assert (day_of(day), day_of(day.isoformat()), day_text(expected)) == (
        expected, expected, day.isoformat())  # fmt: skip


def test_dates_are_declared_in_one_form():
    assert not [
        t for t in ["2024-W18-3", "20240501", "2024-5-1", "", "2024-05-01T00:00"] if day_of(t)
    ]


def test_conditions_on_dates():
    assert ADMITTED.bins_where(">=", "2023-01-01") == {1}
    with pytest.raises(ConditionError, match=r"'2022-01-01' cannot .* edges \['2023-01-01'\]"):
        ADMITTED.bins_where("<", "2022-01-01")
    with pytest.raises(ConditionError, match="is of dates such as '2024-05-01' and cannot be comp"):
        ADMITTED.bins_where("<", "May")


def test_dates_survive_files_and_replacement():
    schema = Schema([ADMITTED])
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema
    assert "counted as 2024-01-01" in replace(ADMITTED, missing=date(2024, 1, 1)).missing_rule()
    assert "dates, 2020-01-01 to 2024-12-30, bins [2020-01-01, 2023-01-01)" in str(schema)
    frame = schema.to_frame({"admitted": ADMITTED.codes_in_use[:2]})
    assert frame["admitted"].dt.day.tolist() == [1, 2]


def test_impossible_dates_are_refused_with_a_reason():
    year = {"low": "2020-01-01", "high": "2020-12-31"}
    for options, says in [
        ({"low": "2020-01-01", "high": 5}, "high must be a date such as 2024-05-01, as low is"),
        ({"low": "2020-01-01"}, "high must be a date"),
        ({"low": "2020-01-01", "high": "2020-02-30"}, "high must be a date"),
        ({"low": 0, "high": "2020-02-20"}, "low must be a date .*, as high is; got 0$"),
        ({"low": 0, "high": 1, "edges": ["2020-02-20"]}, "low must be a date .*, as edges are"),
        ({"low": "2020-01-02", "high": "2020-01-01"}, "low must be below high"),
        (year | {"points": 12}, "one grid point for every day"),
        (year | {"edges": "auto"}, "edges must be a list"),
        (year | {"edges": [18400]}, "each of edges must be a"),
        (year | {"edges": ["2021-05-01"]}, r"strictly inside the bounds \[2020-01-01, 2020-12-31"),
        (year | {"missing": 3}, "missing must be a date"),
        ({"low": "2020-01-01", "values": [1, 2]}, "declared by low and high, not by values"),
        ({"low": datetime(2020, 1, 1, 12), "high": 5}, "low must be a finite number"),
        ({"low": "0001-01-01", "high": "9999-12-31"}, "points must be a whole number from 2 to"),
    ]:
        with pytest.raises(SchemaError, match=says):
            Number("x", **options)


def test_a_value_is_in_the_same_bin_however_many_edges_there_are():
    for closed in ["left", "right"]:
        for count in [1, 32, 33]:
            edges = np.linspace(0, 10, count + 2)[1:-1].tolist()
            number = Number("x", 0, 10, points=2**12 + 1, edges=edges, closed=closed, missing=5)
            cells = np.r_[edges, np.nextafter(edges, 0), np.nextafter(edges, 10), -1, 0, 10, 11]
            inside = np.clip(cells, 0, 10)
            below = (
                np.array(edges) <= c if closed == "left" else np.array(edges) < c for c in inside
            )
            found = number.bins_of(number.encode(pa.array(cells)))
            assert found.tolist() == [int(passed.sum()) for passed in below]


def log_number(points=57, **options):
    return Number("pay", 2, 5000, points=points, scale="log", **options)


def test_a_logarithmic_grid_has_equal_steps_and_codes_the_nearest_logarithm():
    for points in [57, 56]:
        column = log_number(points, edges=[30, 400], missing=100)
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


def test_cells_outside_a_logarithmic_grid_count_as_its_ends_and_missing_ones_as_declared():
    column = log_number(missing=100)
    cells = pa.array([0.0, -1.0, -np.inf, 1.9, 5001.0, np.inf, 1e308, None, np.nan])
    k = column.half_points
    expected = [-k, -k, -k, -k, k, k, k, column.missing_code, column.missing_code]
    np.testing.assert_array_equal(column.encode(cells), expected)
    assert column.decode(np.array([column.missing_code]))[0] == pytest.approx(100, rel=0.1)
    assert column.missing_rule().endswith("outside: clamped to the bounds, 0 and below to 2")
    assert "equal steps of the logarithm" in str(Schema([column]))


def test_the_scale_is_written_where_it_is_not_linear_only():
    column = log_number(edges=[30], allow_missing=True)
    schema = Schema([column, Number("x", 0, 1)])
    assert [plain.get("scale") for plain in schema.to_dict()] == ["log", None]
    assert Schema.from_dict(schema.to_dict()) == schema
    assert Number("x", 1, 2) != Number("x", 1, 2, scale="log")


def test_impossible_logarithmic_grids_are_refused():
    for options, words in [
        ({"low": 0, "high": 5}, "needs low above 0, got 0"),
        ({"low": 1, "high": 2, "scale": "ln"}, r"one of \['linear', 'log'\]"),
        ({"values": [1, 2, 3]}, "declared by low and high"),
        ({"low": "2020-01-01", "high": "2020-02-01"}, "declared by low and high"),
        ({"low": 1, "high": 1 + 1e-13}, "not distinct"),
        ({"low": 1, "high": 9, "edges": [0.5]}, "inside"),
    ]:
        with pytest.raises(SchemaError, match=words):
            Number("pay", **{"scale": "log", **options})


def test_numbers_of_numpy_are_those_of_python():
    """Labels and files show them as they are."""
    column = Number("x", np.float64(-1), np.int64(1), edges=np.linspace(-1, 1, 5)[1:-1])
    assert column == Number("x", -1.0, 1, edges=[-0.5, 0.0, 0.5])
    assert column.bin_labels[0] == "[-1, -0.5)"
