"""Section B: cells. Whatever a cell holds, it has a code, the same one on every route, silently."""

import datetime
import logging
import math
import unicodedata
from decimal import Decimal
from fractions import Fraction
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpstats as dps
from dpstats.private import delimited
from dpstats.private.tables import open_source

NAN = math.nan


def number(**options):
    return dps.Number("v", **{"low": -2, "high": 2, "points": 5, "missing": 1, **options})


def coded(**options):
    return dps.Category("v", [1, 2.5, -3], **options)


def text(**options):
    return dps.Category("v", ["a", "b", "c"], **options)


def objects_of(cells):
    """A pandas table of Python objects, each as it is."""
    series = pd.Series([None] * len(cells), dtype=object)
    for i, cell in enumerate(cells):
        series.iat[i] = cell
    return pd.DataFrame({"v": series})


def codes_of(column, data):
    """Codes of the column, by the way that `measure` takes."""
    schema = dps.Schema([column])
    batches = open_source(data() if callable(data) else data, schema).batches(["v"])
    return [code for batch in batches for code in schema.encode(batch)["v"].tolist()]


@pytest.fixture
def sources(on_route, routes):
    """Tables with a column ``v`` of given cells, of every kind but those without an order."""
    ways = [way for way in routes.ways if not way.startswith("ibis")]

    def every(cells, kind):
        """Every route, made when its turn comes: files have the same names."""
        table = pa.table({"v": pa.array(cells, kind)})
        return {way: partial(on_route, way, table) for way in ways}

    return SimpleNamespace(
        csv=lambda cells: on_route("csv", {"v": cells, "row": [1] * len(cells)}),
        texts=lambda cells: every(cells, pa.string()),
        numbers=lambda cells: every([c and float(c) for c in cells], pa.float64()),
    )


@pytest.fixture
def check(caplog):
    """The same codes on every route, and not a word about any cell (warnings are errors)."""

    def checked(column, routes, expected):
        with caplog.at_level(logging.DEBUG):
            for route, data in (routes if isinstance(routes, dict) else {"": routes}).items():
                assert codes_of(column, data) == expected, route
        assert caplog.records == []
        low, high = column.code_range
        assert all(low <= code <= high for code in expected)

    return checked


def test_p13_nan_in_numeric(sources, check):
    routes = sources.numbers([0.0, NAN, None, -2.0])
    check(number(), routes, [0, 1, 1, -2])
    check(number(missing=None, edges=[-1]), routes, [0, 0, 0, -2])  # the middle
    column = number(missing=None, allow_missing=True, edges=[-1])
    check(column, routes, [0, 3, 3, -2])  # a code of its own, that adds nothing to sums
    moments = dps.Moments.of(dps.Schema([column]), ["v"])
    sums = moments.sums({"v": np.array([2, 3, 3, -2])}).tolist()
    assert dict(zip(moments.names, sums, strict=True)) == {
        "v, v answered": 0, "v^2, v answered": 8, "rows, v answered": 2,
    }  # fmt: skip
    routes = sources.numbers([1, NAN, 0, None, 2.5])
    check(coded(missing=-3, other=2.5), routes, [0, 2, 1, 2, 1])
    check(dps.Boolean("v", missing=True), routes, [1, 1, 0, 1, 1])


def test_p14_infinities(sources, check):
    routes = sources.numbers([math.inf, -math.inf, 1.0])
    check(number(edges=[1]), routes, [2, -2, 1])
    check(coded(allow_missing=True), routes, [3, 3, 0])


def test_p15_huge_and_subnormal_numbers_and_those_beyond_all_floats(sources, check):
    routes = sources.numbers([1e308, -1e308, 5e-324, -5e-324, 2.2e-308])
    check(number(edges=[0]), routes, [2, -2, 0, -1, 0])
    check(coded(missing=1), routes, [0] * 5)
    cells = ["1e400", "-1e400", "1e-400", "9" * 400, "1e999999999999999999999"]
    objects = [10**400, -(10**400), Decimal("1e-400"), Fraction(10**400), Decimal("1e400")]
    for data in (sources.csv(cells), objects_of(objects)):
        check(number(), data, [2, -2, 0, 2, 2])
        check(coded(allow_missing=True), data, [3] * 5)


def test_p16_minus_zero(sources, check):
    routes = sources.numbers([-0.0, 0.0, 1.0])
    for closed in ("left", "right"):  # the one of [0, 2] and of [-2, 0] that holds both
        check(number(edges=[0], closed=closed), routes, [0, 0, 1])
    check(dps.Category("v", [1, 0]), routes, [1, 1, 0])
    check(dps.Boolean("v", missing=True), routes, [0, 0, 1])


def test_p17_on_a_bin_edge(sources, check):
    for closed, at_edge in [("left", 1), ("right", 0)]:
        for edge in (0.1 + 0.2, -0.7):
            column = number(edges=[edge], closed=closed, points=1025)
            routes = sources.numbers([math.nextafter(edge, -9), edge, math.nextafter(edge, 9)])
            codes = codes_of(column, routes["arrow chunks"])
            assert column.bins_of(np.array(codes)).tolist() == [0, at_edge, 1]  # as documented
            check(column, routes, codes)
    edges = [i / 1000 for i in range(-1900, 1900, 7)]
    column, cells = number(edges=edges, points=2**16 + 1), [Decimal(str(edge)) for edge in edges]
    expected = codes_of(column, pa.table({"v": edges}))
    for kind in (pa.decimal128(38, 20), pa.decimal256(60, 30), pa.decimal128(10, 3)):
        check(column, pa.table({"v": pa.array(cells, kind)}), expected)
    check(column, objects_of(cells), expected)
    check(column, pl.DataFrame({"v": pl.Series(cells, dtype=pl.Decimal(38, 10))}), expected)


def test_p18_outside_the_bounds(sources, check, no_noise):
    routes = sources.numbers([-2.0001, -7.0, 2.0001, 1e9, 2.0, -2.0])
    check(number(), routes, [-2, -2, 2, 2, 2, -2])
    scores = dps.Number("v", values=[17.5, 22, 27], missing=22)
    check(scores, sources.numbers([16, 40, 21]), codes_of(scores, pa.table({"v": [17.5, 27, 22]})))
    schema, asked = dps.Schema([number(edges=[-1, 1])]), {"m": dps.Marginals(["v"], 1)}
    plan = dps.plan(schema, asked, budget=dps.PureDP(1))
    one, other = (  # clamped, and counted nowhere
        dps.measure(plan, pa.table({"v": v})) for v in ([-2.0, 0.0, 2.0], [-99.0, 0.0, math.inf])
    )
    assert one.noisy_sums.tolist() == [1, 1, 1]
    assert one.to_members() == other.to_members()


def test_p19_missing_cells(sources, check):
    for cell in (None, pd.NA, pd.NaT, NAN, np.datetime64("NaT"), Decimal("NaN"), Decimal("sNaN"),
                 np.float32("nan")):  # fmt: skip
        check(number(), objects_of([0.0, cell]), [0, 1])
        check(text(missing="b", other="c"), objects_of(["a", "z", cell]), [0, 2, 1])
        check(coded(missing=2.5, other=-3), objects_of([1, 9, cell]), [0, 2, 1])
        check(dps.Boolean("v", allow_missing=True), objects_of([True, cell]), [1, 2])
    for data in (objects_of([None, NAN]), pa.table({"v": pa.nulls(2)}), sources.csv([None, None])):
        check(text(missing="b"), data, [1, 1])


def test_p20_undeclared_category(sources, check, tmp_path):
    routes = sources.texts(["a", "zz", None, "c"])
    check(text(missing="b", other="c"), routes, [0, 2, 1, 2])
    check(text(allow_missing=True), routes, [0, 3, 3, 2])
    check(text(), objects_of(["zz", "b"]), [0, 1])  # neither declared: the first level
    numbers = coded(missing=2.5, other=-3)
    check(numbers, sources.numbers([1, 7, None, 2.5]), [0, 2, 1, 1])
    cells = [1, "many", None, 2.5, NAN]
    for data in (sources.csv(cells), objects_of(cells)):
        check(numbers, data, [0, 2, 1, 1, 1])
    (tmp_path / "nan.csv").write_text("v,row\nnan,1\n NaN ,2\nnana,3\n")
    check(numbers, tmp_path / "nan.csv", [1, 1, 2])


def test_p21_levels_match_exactly(sources, check):
    level = "Zo\u00eb"
    assert unicodedata.normalize("NFD", level) != level
    column = dps.Category("v", [level, "b"], allow_missing=True)
    cells = [level, "zo\u00eb", "ZO\u00cb", f" {level}", f"{level} ", f"{level}\u00a0", "Zoe",
             unicodedata.normalize("NFD", level), level + "\u200b", "b\n", "b"]  # fmt: skip
    check(column, sources.texts(cells), [0, *[2] * 9, 1])
    # A text and the number that it spells are one value.
    digits = dps.Category("v", ["1", "2"], allow_missing=True)
    check(digits, objects_of([1, 2.0, "1", True, "1.0"]), [0, 1, 0, 2, 0])
    check(digits, pd.DataFrame({"v": np.array([1, 2, 3], np.float32)}), [0, 1, 2])
    check(coded(allow_missing=True), objects_of(["1", 1, True, " 1.0 ", "one"]), [0, 0, 0, 0, 3])
    zeros = dps.Category("v", ["01", "1"], other="01")
    check(zeros, pd.DataFrame({"v": [1, 1, 2]}), [1, 1, 0])


def test_p22_one_text_making_a_column_object(sources, check):
    for column, codes in ((number(missing=0), [-1, 0, 2, 1]),
                          (coded(missing=-3, other=2.5), [1, 1, 1, 0])):  # fmt: skip
        check(column, sources.texts(["-1", "n/a", "2", "1.0"]), codes)
        check(column, pd.DataFrame({"v": [-1, "n/a", 2, 1.0]}), codes)
        check(column, objects_of([np.int8(-1), "2 or 3", Decimal(2), Fraction(1)]), codes)
    objects = objects_of([True, "n/a", False, 1])
    check(dps.Boolean("v", allow_missing=True), objects, [1, 2, 0, 1])
    check(text(allow_missing=True), objects_of(["a", 1, "b"]), [0, 3, 1])


def test_p23_one_nan_turning_integers_to_floats(sources, check):
    cells = [-3, 1, 1, None]
    holed = pd.DataFrame({"v": cells})
    routes = sources.numbers(cells) | {"Int64": holed.astype("Int64"), "float64": holed}
    spelled = dps.Category("v", ["-3", "1"], allow_missing=True)
    for column in (coded(allow_missing=True), number(), spelled):
        first = codes_of(column, pd.DataFrame({"v": [-3, 1, 1]}))
        missing = 1 if isinstance(column, dps.Number) else column.missing_code
        check(column, routes | {"objects": objects_of(cells)}, [*first, missing])


def test_p24_integers_above_2_to_the_53(sources, check):
    cells = [2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 5]
    routes = {
        "int64": pd.DataFrame({"v": cells}),
        "objects": objects_of(cells),
        "floats": pd.DataFrame({"v": [float(cell) for cell in cells]}),
        "csv": sources.csv(cells),
        "arrow": pa.table({"v": cells}),
        "decimal": pa.table({"v": pa.array(cells, pa.decimal128(38, 0))}),
        "polars": pl.DataFrame({"v": cells}),
    }
    check(number(), routes, [2, 2, 2, 2, -2, 2])
    column = dps.Category("v", [2**53 - 1, 5], allow_missing=True)
    check(column, routes, [0, 2, 2, 2, 2, 1])
    wide = number(low=-(2.0**60), high=2.0**60, edges=[2.0**53], points=2**10 + 1, missing=0)
    assert len({tuple(codes_of(wide, data)) for data in routes.values()}) == 1
    check(number(), pd.DataFrame({"v": np.array([2**64 - 1, 5], np.uint64)}), [2, 2])
    check(number(), objects_of([2**64 - 1, 5]), [2, 2])


def test_p25_decimal_fraction_bool_and_zoned_datetime(check):
    cells = [Decimal("1"), Fraction(-1), True, np.True_, np.int8(-2), np.float32(1), 1 + 2j,
             np.complex128(1 + 2j), np.timedelta64(1), datetime.timedelta(1),
             datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), pd.Timestamp("2020", tz="UTC"),
             datetime.date(2020, 1, 1), pd.Interval(0, 1), b"1", "1"]  # fmt: skip
    frame = objects_of(cells)
    check(number(missing=0), frame, [1, -1, 1, 1, -2, 1, *[0] * 8, 1, 1])
    check(coded(missing=-3), frame, [0, 2, 0, 0, 2, 0, *[2] * 8, 0, 0])
    check(dps.Boolean("v"), frame, [1, 0, 1, 1, 0, 1, *[0] * 8, 1, 1])
    check(text(other="b"), frame, [1] * 16)
    days = [np.datetime64("2024-05-01T08"), datetime.date(2024, 5, 1), "2024-05-01", 20240501]
    column = dps.Category("v", ["2024-05-01", "x"], allow_missing=True)
    check(column, objects_of(days), [0, 0, 0, 2])
    months = pd.Series([pd.Period("2024-05", "M"), pd.NaT, pd.Period("2024-06", "M")])
    for kind in (months.dtype, object, "category"):  # the first day of each
        check(column, pd.DataFrame({"v": months.astype(kind)}), [0, 2, 2])
    column = dps.Category("v", [0.1, 0.25], allow_missing=True)  # matched by value
    check(column, objects_of([Decimal("0.1"), Fraction(1, 4), 0.3]), [0, 1, 2])
    check(column, pa.table({"v": list(map(Decimal, ("0.10", "0.25", "0.30")))}), [0, 1, 2])


def fail(*args):
    raise RuntimeError


METHODS = ("eq", "ne", "float", "int", "hash", "bool", "repr", "str", "len", "iter", "array")
Hostile = type("Hostile", (), {f"__{name}__": fail for name in METHODS})
HostileText = type("HostileText", (str,), {"encode": fail})
HostileDate = type("HostileDate", (datetime.date,), {"isoformat": fail})
HostileNumber = type("HostileNumber", (Fraction,), {"__float__": fail})


def test_p26_nested_cells_and_cells_that_fail_when_touched(check):
    cells = [["a"], [], [NAN], ["a", ["b"]], {"a": 1}, {"a"}, ("a",), np.array([]),
             np.array(["a"]), np.array([NAN]), np.zeros((2, 2)), pd.Series(["a"]),
             pd.DataFrame({"a": [1]})]  # fmt: skip
    frame = objects_of([*cells, "a"])
    check(number(missing=0), frame, [0] * 14)
    check(text(missing="b", other="b"), frame, [*[1] * 13, 0])
    check(coded(missing=-3, other=-3), frame, [2] * 14)
    check(text(missing="b", other="c"), objects_of(cells[:11]), [2] * 11)  # values, all the same
    failing = Hostile(), 1, Hostile(), HostileText("a"), HostileDate(2020, 1, 1), HostileNumber(1)
    check(number(missing=0), objects_of(failing), [0, 1, 0, 0, 0, 0])
    check(text(missing="b", other="b"), objects_of(failing), [1] * 6)


def test_p27_ten_megabytes_of_text(sources, check, tmp_path, monkeypatch):
    marker = "sentinel-quux"
    cells = ["a", marker * (10 * 2**20 // len(marker)), "b"]
    pq.write_table(pa.table({"v": cells}), tmp_path / "cells.parquet")
    csv, objects = sources.csv(cells), objects_of(cells)
    for data in (csv, objects, tmp_path / "cells.parquet"):
        check(text(allow_missing=True), data, [0, 3, 1])
    check(dps.Category("v", [1, 2], missing=2), csv, [1] * 3)
    check(number(missing=0), objects, [0] * 3)
    monkeypatch.setattr(delimited, "CSV_BLOCK", 64)  # several are shorter than a cell
    cells = ["a", "b", None, *["c"] * 40, "x" * 5_000, "b", "y\n" * 900, *["c"] * 9_000]
    check(text(allow_missing=True), sources.csv(cells), [0, 1, 3, *[2] * 40, 3, 1, 3, *[2] * 9_000])
