"""Section B: cells. Whatever a cell holds, it has a code, the same one on every route, silently."""

import datetime
import math
import unicodedata
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import dpstats as dps
from dpstats.private import delimited

NAN = math.nan
ZONE = datetime.timezone(datetime.timedelta(hours=2))


def number(**options):
    return dps.Number("v", **{"low": -2, "high": 2, "points": 5, "missing": 1, **options})


def text(**options):
    return dps.Category("v", ["a", "b", "c"], **options)


def coded(**options):
    return dps.Category("v", [1, 2.5, -3], **options)


def test_p19_missing_cells(sources):
    for cell in (None, pd.NA, pd.NaT, NAN, np.datetime64("NaT"), Decimal("NaN"), Decimal("sNaN"),
                 np.float32("nan")):  # fmt: skip
        sources.check(number(), sources.objects([0.0, cell]), [0, 1])
        sources.check(text(missing="b", other="c"), sources.objects(["a", "z", cell]), [0, 2, 1])
        sources.check(coded(missing=2.5, other=-3), sources.objects([1, 9, cell]), [0, 2, 1])
        sources.check(dps.Boolean("v", allow_missing=True), sources.objects([True, cell]), [1, 2])


def test_p19_missing_text_on_every_route(sources):
    sources.check(text(missing="b", other="c"), sources.texts(["a", None]), [0, 1])
    sources.check(text(allow_missing=True), sources.texts([None, "b"]), [3, 1])
    for data in (sources.objects([None, NAN]), pa.table({"v": pa.nulls(2)}),
                 sources.csv([None, None])):  # fmt: skip
        sources.check(text(missing="b"), data, [1, 1])


def test_p20_undeclared_category(sources):
    routes = sources.texts(["a", "zz", None, "c"])
    sources.check(text(missing="b", other="c"), routes, [0, 2, 1, 2])
    sources.check(text(allow_missing=True), routes, [0, 3, 3, 2])
    sources.check(text(), sources.texts(["zz", "b"]), [0, 1])  # neither declared: the first level
    routes = sources.numbers([1, 7, None, 2.5])
    sources.check(coded(missing=2.5, other=-3), routes, [0, 2, 1, 1])


def test_p20_text_in_a_category_of_numbers_is_undeclared(sources, tmp_path):
    cells = [1, "many", None, 2.5, NAN]
    for data in (sources.csv(cells), sources.objects(cells)):
        sources.check(coded(missing=2.5, other=-3), data, [0, 2, 1, 1, 1])
    (tmp_path / "nan.csv").write_text("v,row\nnan,1\n NaN ,2\nnana,3\n")
    sources.check(coded(missing=2.5, other=-3), tmp_path / "nan.csv", [1, 1, 2])


def test_p21_levels_match_exactly(sources):
    level = "Zo\u00eb"
    assert unicodedata.normalize("NFD", level) != level
    column = dps.Category("v", [level, "b"], allow_missing=True)
    cells = [level, "zo\u00eb", "ZO\u00cb", f" {level}", f"{level} ", f"{level}\u00a0", "Zoe",
             unicodedata.normalize("NFD", level), level + "\u200b", "b\n", "b"]  # fmt: skip
    sources.check(column, sources.texts(cells), [0, *[2] * 9, 1])


def test_p21_text_and_the_number_that_it_spells_are_one_value(sources):
    digits = dps.Category("v", ["1", "2"], allow_missing=True)
    sources.check(digits, sources.objects([1, 2.0, "1", True, "1.0"]), [0, 1, 0, 2, 0])
    sources.check(digits, pd.DataFrame({"v": np.array([1, 2, 3], np.float32)}), [0, 1, 2])
    cells = ["1", 1, True, " 1.0 ", "one"]
    sources.check(coded(allow_missing=True), sources.objects(cells), [0, 0, 0, 0, 3])
    zeros = dps.Category("v", ["01", "1"], other="01")
    sources.check(zeros, pd.DataFrame({"v": [1, 1, 2]}), [1, 1, 0])


def test_p22_one_text_making_a_column_object(sources):
    for column, codes in ((number(missing=0), [-1, 0, 2, 1]),
                          (coded(missing=-3, other=2.5), [1, 1, 1, 0])):  # fmt: skip
        routes = sources.texts(["-1", "n/a", "2", "1.0"]) | {
            "objects": pd.DataFrame({"v": [-1, "n/a", 2, 1.0]}),
            "other numbers": sources.objects([np.int8(-1), "2 or 3", Decimal(2), Fraction(1)]),
        }
        assert routes["objects"]["v"].dtype == object
        sources.check(column, routes, codes)
    objects = sources.objects([True, "n/a", False, 1])
    sources.check(dps.Boolean("v", allow_missing=True), objects, [1, 2, 0, 1])
    sources.check(text(allow_missing=True), sources.objects(["a", 1, "b"]), [0, 3, 1])


def test_p25_decimal_fraction_bool_and_zoned_datetime(sources):
    cells = [Decimal("1"), Fraction(-1), True, np.True_, np.int8(-2), np.float32(1), 1 + 2j,
             np.complex128(1 + 2j), np.timedelta64(1), datetime.timedelta(1),
             datetime.datetime(2020, 1, 1, tzinfo=ZONE), pd.Timestamp("2020", tz="UTC"),
             datetime.date(2020, 1, 1), pd.Interval(0, 1), b"1", "1"]  # fmt: skip
    frame = sources.objects(cells)
    sources.check(number(missing=0), frame, [1, -1, 1, 1, -2, 1, *[0] * 8, 1, 1])
    sources.check(coded(missing=-3), frame, [0, 2, 0, 0, 2, 0, *[2] * 8, 0, 0])
    sources.check(dps.Boolean("v"), frame, [1, 0, 1, 1, 0, 1, *[0] * 8, 1, 1])
    sources.check(text(other="b"), frame, [1] * 16)


def test_p25_decimals_and_fractions_match_levels_by_value(sources):
    column = dps.Category("v", [0.1, 0.25], allow_missing=True)
    for data in (sources.objects([Decimal("0.1"), Fraction(1, 4), 0.3]),
                 pa.table({"v": [Decimal("0.10"), Decimal("0.25"), Decimal("0.30")]})):  # fmt: skip
        sources.check(column, data, [0, 1, 2])


def test_p26_nested_cells(sources):
    cells = [["a"], [], [NAN], ["a", ["b"]], {"a": 1}, {"a"}, ("a",), np.array([]),
             np.array(["a"]), np.array([NAN]), np.zeros((2, 2)), pd.Series(["a"]),
             pd.DataFrame({"a": [1]})]  # fmt: skip
    frame = sources.objects([*cells, "a"])
    sources.check(number(missing=0), frame, [0] * 14)
    sources.check(text(missing="b", other="b"), frame, [*[1] * 13, 0])
    sources.check(coded(missing=-3, other=-3), frame, [2] * 14)
    arrays = pd.DataFrame({"v": frame["v"].iloc[:11]})
    sources.check(text(missing="b", other="c"), arrays, [2] * 11)  # values, though undeclared


class Hostile:
    """A cell whose every method fails."""

    def _fail(self, *args):
        raise RuntimeError

    __eq__ = __ne__ = __float__ = __int__ = __hash__ = __bool__ = __repr__ = __str__ = _fail
    __len__ = __iter__ = __array__ = _fail


class HostileText(str):
    encode = Hostile._fail


class HostileDate(datetime.date):
    isoformat = Hostile._fail


class HostileNumber(Fraction):
    __float__ = Hostile._fail


def test_p26_cells_that_fail_when_touched(sources):
    known = HostileText("a"), HostileDate(2020, 1, 1), HostileNumber(1)
    frame = sources.objects([Hostile(), 1, Hostile(), *known])
    sources.check(number(missing=0), frame, [0, 1, 0, 0, 0, 0])
    sources.check(text(missing="b", other="b"), frame, [1] * 6)


def test_p27_ten_megabytes_of_text(sources, tmp_path):
    marker = "sentinel-quux"
    cells = ["a", marker * (10 * 2**20 // len(marker)), "b"]
    table = pa.table({"v": cells})
    pq.write_table(table, tmp_path / "cells.parquet")
    csv, objects = sources.csv(cells), sources.objects(cells)
    for data in (csv, objects, table, pl.from_arrow(table), tmp_path / "cells.parquet"):
        sources.check(text(allow_missing=True), data, [0, 3, 1])
    schema = dps.Schema([text(allow_missing=True)])
    plan = dps.plan(schema, {"m": dps.Marginals(["v"], 1)}, budget=dps.PureDP(1))
    measured = dps.measure(plan, csv)
    assert measured.n == 3
    assert not any(marker in part for part in measured.to_members().values())
    sources.check(dps.Category("v", [1, 2], missing=2), csv, [1] * 3)
    sources.check(number(missing=0), objects, [0] * 3)


def test_p27_a_cell_longer_than_several_blocks_of_the_reader(sources, monkeypatch):
    monkeypatch.setattr(delimited, "CSV_BLOCK", 64)
    cells = ["a", "b", None, *["c"] * 40, "x" * 5_000, "b", "y\n" * 900, "c"]
    sources.check(text(allow_missing=True), sources.csv(cells), [0, 1, 3, *[2] * 40, 3, 1, 3, 2])
