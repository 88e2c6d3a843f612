"""Section B: cells. Whatever a cell holds, it has a code, the same one on every route, silently."""

import csv
import datetime
import logging
import math
import unicodedata
from decimal import Decimal
from fractions import Fraction

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpstats as dps
from dpstats.engines.local import open_source

NAN = math.nan
ZONE = datetime.timezone(datetime.timedelta(hours=2))


def object_series(cells):
    series = pd.Series([None] * len(cells), dtype=object)
    for i, cell in enumerate(cells):
        series.iat[i] = cell
    return series


def write_csv(path, cells):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["v", "row"])  # two columns: readers skip lines that are empty
        for i, cell in enumerate(cells):
            absent = cell is None or cell != cell
            writer.writerow(["" if absent else cell, i])
    return path


def common_routes(tmp_path, array, cells):
    """Tables that hold the same column, from one Arrow array."""
    table = pa.table({"v": array})
    pieces = pa.chunked_array([array.slice(i, 1) for i in range(len(array))], array.type)
    path = tmp_path / "plain.parquet"
    pq.write_table(table, path, use_dictionary=False)
    coded = tmp_path / "dictionary.parquet"
    pq.write_table(pa.table({"v": array.dictionary_encode()}), coded, row_group_size=1)
    return {
        "arrow": table,
        "chunks": pa.table({"v": pieces}),
        "reader": table.to_reader(),
        "dictionary": pa.table({"v": array.dictionary_encode()}),
        "polars": pl.from_arrow(table),
        "duckdb": duckdb.arrow(table).project("v"),
        "parquet": path,
        "parquet dictionary": coded,
        "csv": write_csv(tmp_path / "cells.csv", cells),
        "pandas objects": pd.DataFrame({"v": object_series(cells)}),
        "pandas arrow": table.to_pandas(types_mapper=pd.ArrowDtype),
    }


def text_routes(tmp_path, cells):
    array = pa.array([None if cell is None else cell for cell in cells], pa.string())
    routes = common_routes(tmp_path, array, cells)
    routes["large"] = pa.table({"v": array.cast(pa.large_string())})
    routes["view"] = pa.table({"v": array.cast(pa.string_view())})
    routes["bytes"] = pa.table({"v": array.cast(pa.binary())})
    encoded = [None if cell is None else cell.encode() for cell in cells]
    routes["pandas bytes"] = pd.DataFrame({"v": object_series(encoded)})
    routes["pandas"] = pd.DataFrame({"v": pd.Series(cells, dtype="str")})
    routes["pandas category"] = routes["pandas"].astype("category")
    return routes


def number_routes(tmp_path, cells):
    array = pa.array([None if c is None else float(c) for c in cells], pa.float64())
    routes = common_routes(tmp_path, array, cells)
    routes["pandas"] = pd.DataFrame({"v": array.to_numpy(zero_copy_only=False)})
    routes["pandas category"] = routes["pandas"].astype("category")
    routes["big-endian"] = routes["pandas"].astype(">f8")
    return routes


def codes_of(column, data):
    schema = dps.Schema([column])
    source = open_source(data, schema)
    return np.concatenate([schema.encode(b)["v"] for b in source.batches(["v"])]).tolist()


def check(column, routes, expected, caplog):
    """The same codes on every route, and not a word about any cell (warnings are errors)."""
    with caplog.at_level(logging.DEBUG):
        for route, data in routes.items():
            assert codes_of(column, data) == expected, route
    assert caplog.records == []
    low, high = column.code_range
    assert all(low <= code <= high for code in expected)


def number(**options):
    return dps.Number("v", **{"low": -2, "high": 2, "points": 5, "missing": 1, **options})


def text(**options):
    return dps.Category("v", ["a", "b", "c"], **options)


def coded(**options):
    return dps.Category("v", [1, 2.5, -3], **options)


def test_p13_nan_in_numeric(tmp_path, caplog):
    routes = number_routes(tmp_path, [0.0, NAN, None, -2.0])
    check(number(), routes, [0, 1, 1, -2], caplog)
    routes = number_routes(tmp_path, [0.0, NAN, -2.0])
    check(number(missing=None, edges=[-1]), routes, [0, 0, -2], caplog)  # the middle
    routes = number_routes(tmp_path, [1, NAN, 2.5])
    check(coded(missing=-3), routes, [0, 2, 1], caplog)
    routes = number_routes(tmp_path, [1, NAN, 0, None])
    check(dps.Boolean("v", missing=True), routes, [1, 1, 0, 1], caplog)


def test_p13_nan_is_never_the_first_bin_by_accident(caplog):
    column = number(edges=[-1, 1], missing=1.5)
    assert column.bins_of(np.array(codes_of(column, pa.table({"v": [NAN]})))).tolist() == [2]


def test_p14_infinities(tmp_path, caplog):
    routes = number_routes(tmp_path, [math.inf, -math.inf, 0.0])
    check(number(), routes, [2, -2, 0], caplog)
    check(number(edges=[1]), number_routes(tmp_path, [math.inf]), [2], caplog)
    check(coded(allow_missing=True), number_routes(tmp_path, [math.inf, 1]), [3, 0], caplog)


def test_p15_huge_and_subnormal_numbers(tmp_path, caplog):
    cells = [1e308, -1e308, 5e-324, -5e-324, 2.2e-308]
    check(number(), number_routes(tmp_path, cells), [2, -2, 0, 0, 0], caplog)
    bins = number(edges=[0])
    check(bins, number_routes(tmp_path, cells), [2, -2, 0, -1, 0], caplog)
    check(coded(missing=1), number_routes(tmp_path, cells), [0] * 5, caplog)


def test_p15_numbers_beyond_all_floats(tmp_path, caplog):
    cells = ["1e400", "-1e400", "1e-400", "9" * 400, "1e999999999999999999999"]
    routes = {
        "csv": write_csv(tmp_path / "cells.csv", cells),
        "objects": pd.DataFrame({"v": object_series([10**400, -(10**400), Decimal("1e-400"),
                                                     Fraction(10**400), Decimal("1e400")])}),
    }  # fmt: skip
    check(number(), routes, [2, -2, 0, 2, 2], caplog)
    check(coded(allow_missing=True), routes, [3] * 5, caplog)


def test_p16_minus_zero(tmp_path, caplog):
    routes = number_routes(tmp_path, [-0.0, 0.0])
    check(number(edges=[0]), routes, [0, 0], caplog)  # [0, 2] holds both
    routes = number_routes(tmp_path, [-0.0, 0.0])
    check(number(edges=[0], closed="right"), routes, [0, 0], caplog)
    routes = number_routes(tmp_path, [-0.0, 0.0, 1.0])
    check(dps.Category("v", [1, 0]), routes, [1, 1, 0], caplog)
    routes = number_routes(tmp_path, [-0.0, 0.0])
    check(dps.Boolean("v", missing=True), routes, [0, 0], caplog)


@pytest.mark.parametrize(("closed", "at_edge"), [("left", 1), ("right", 0)])
@pytest.mark.parametrize("edge", [0.3, 1 / 3, 0.1 + 0.2, -0.7, 1e-9])
def test_p17_on_a_bin_edge(closed, at_edge, edge, tmp_path, caplog):
    column = number(edges=[edge], closed=closed, points=1025)
    cells = [math.nextafter(edge, -9), edge, math.nextafter(edge, 9)]
    routes = number_routes(tmp_path, cells)
    codes = codes_of(column, routes["arrow"])
    assert column.bins_of(np.array(codes)).tolist() == [0, at_edge, 1]  # the documented side
    check(column, routes, codes, caplog)


def test_p17_decimals_on_a_bin_edge(caplog):
    edges = [i / 1000 for i in range(-1900, 1900, 7)]
    column = number(edges=edges, points=2**16 + 1)
    cells = [Decimal(str(edge)) for edge in edges]
    expected = codes_of(column, pa.table({"v": edges}))
    routes = {
        "decimal128": pa.table({"v": pa.array(cells, pa.decimal128(38, 20))}),
        "decimal256": pa.table({"v": pa.array(cells, pa.decimal256(60, 30))}),
        "short": pa.table({"v": pa.array(cells, pa.decimal128(10, 3))}),
        "objects": pd.DataFrame({"v": object_series(cells)}),
        "polars": pl.DataFrame({"v": pl.Series(cells, dtype=pl.Decimal(38, 10))}),
    }
    check(column, routes, expected, caplog)


def test_p18_outside_the_bounds(tmp_path, caplog):
    routes = number_routes(tmp_path, [-2.0001, -7.0, 2.0001, 1e9, 2.0, -2.0])
    check(number(), routes, [-2, -2, 2, 2, 2, -2], caplog)
    routes = number_routes(tmp_path, [16, 40, 21])
    scores = dps.Number("v", values=[17.5, 22, 27], missing=22)
    low, high = scores.code_range
    check(scores, routes, [low, high, codes_of(scores, pa.table({"v": [22]}))[0]], caplog)


def test_p18_clamped_cells_are_not_counted_anywhere(exact, tmp_path):
    column = number(edges=[-1, 1])
    plan = dps.plan(dps.Schema([column]), {"m": dps.Marginals(["v"], 1)}, budget=dps.PureDP(1))
    inside = pa.table({"v": [-2.0, 0.0, 2.0]})
    outside = pa.table({"v": [-99.0, 0.0, math.inf]})
    assert exact(plan, inside) == exact(plan, outside) == [[1, 1, 1]]
    measured = dps.measure(plan, outside)
    assert (
        measured.to_members()["measurements.json"]
        == (dps.measure(plan, inside).to_members()["measurements.json"])
    )


@pytest.mark.parametrize("cell", [None, pd.NA, pd.NaT, NAN, np.datetime64("NaT"), Decimal("NaN"),
                                  Decimal("sNaN"), np.float32("nan")], ids=repr)  # fmt: skip
def test_p19_missing_cells(cell, tmp_path, caplog):
    def objects(*others):
        return {"objects": pd.DataFrame({"v": object_series([*others, cell])})}

    check(number(), objects(0.0), [0, 1], caplog)
    check(text(missing="b", other="c"), objects("a", "z"), [0, 2, 1], caplog)
    check(coded(missing=2.5, other=-3), objects(1, 9), [0, 2, 1], caplog)
    check(dps.Boolean("v", allow_missing=True), objects(True), [1, 2], caplog)


def test_p19_missing_text_on_every_route(tmp_path, caplog):
    check(text(missing="b", other="c"), text_routes(tmp_path, ["a", None]), [0, 1], caplog)
    check(text(allow_missing=True), text_routes(tmp_path, [None, "b"]), [3, 1], caplog)
    everything = {
        "objects": pd.DataFrame({"v": object_series([None, NAN])}),
        "null": pa.table({"v": pa.nulls(2)}),
        "csv": write_csv(tmp_path / "cells.csv", [None, None]),
    }
    check(text(missing="b"), everything, [1, 1], caplog)


def test_p20_undeclared_category(tmp_path, caplog):
    routes = text_routes(tmp_path, ["a", "zz", None, "c"])
    check(text(missing="b", other="c"), routes, [0, 2, 1, 2], caplog)
    routes = text_routes(tmp_path, ["a", "zz", None])
    check(text(allow_missing=True), routes, [0, 3, 3], caplog)
    routes = text_routes(tmp_path, ["zz", "b"])
    check(text(), routes, [0, 1], caplog)  # neither declared: the first level
    routes = number_routes(tmp_path, [1, 7, None, 2.5])
    check(coded(missing=2.5, other=-3), routes, [0, 2, 1, 1], caplog)


def test_p20_text_in_a_category_of_numbers_is_undeclared(tmp_path, caplog):
    cells = [1, "many", None, 2.5, NAN]
    routes = {
        "csv": write_csv(tmp_path / "cells.csv", cells),
        "objects": pd.DataFrame({"v": object_series(cells)}),
    }
    check(coded(missing=2.5, other=-3), routes, [0, 2, 1, 1, 1], caplog)
    (tmp_path / "nan.csv").write_text("v,row\nnan,1\n NaN ,2\nnana,3\n")
    check(coded(missing=2.5, other=-3), {"": tmp_path / "nan.csv"}, [1, 1, 2], caplog)


def test_p21_levels_match_exactly(tmp_path, caplog):
    level = "Zo\u00eb"
    assert unicodedata.normalize("NFD", level) != level
    column = dps.Category("v", [level, "b"], allow_missing=True)
    cells = [level, "zo\u00eb", "ZO\u00cb", f" {level}", f"{level} ", f"{level}\u00a0", "Zoe",
             unicodedata.normalize("NFD", level), level + "\u200b", "b\n", "b"]  # fmt: skip
    check(column, text_routes(tmp_path, cells), [0, *[2] * 9, 1], caplog)


def test_p21_text_and_numbers_never_match(tmp_path, caplog):
    digits = dps.Category("v", ["1", "2"], allow_missing=True)
    check(digits, {"": pd.DataFrame({"v": object_series([1, 2.0, "1", True])})},
          [2, 2, 0, 2], caplog)  # fmt: skip
    check(coded(allow_missing=True), {"": pd.DataFrame({"v": object_series(["1", 1, True])})},
          [3, 0, 0], caplog)  # fmt: skip


def test_p22_one_text_making_a_column_object(tmp_path, caplog):
    routes = {
        "objects": pd.DataFrame({"v": [-1, "n/a", 2, 1.0]}),
        "csv": write_csv(tmp_path / "cells.csv", [-1, "n/a", 2, 1.0]),
    }
    assert routes["objects"]["v"].dtype == object
    check(number(missing=0), routes, [-1, 0, 2, 1], caplog)
    objects = {"objects": pd.DataFrame({"v": object_series([True, "n/a", False, 1])})}
    check(dps.Boolean("v", allow_missing=True), objects, [1, 2, 0, 1], caplog)
    objects = {"objects": pd.DataFrame({"v": object_series(["a", 1, "b"])})}
    check(text(allow_missing=True), objects, [0, 3, 1], caplog)


def test_p23_one_nan_turning_integers_to_floats(caplog):
    whole = pd.Series([-3, 1, 1, -3])
    holed = pd.Series([-3, 1, 1, None])
    assert whole.dtype == np.int64
    assert holed.dtype == np.float64
    for column in (coded(allow_missing=True), number()):
        first = codes_of(column, pd.DataFrame({"v": whole}))[:3]
        assert codes_of(column, pd.DataFrame({"v": holed}))[:3] == first
        assert codes_of(column, pd.DataFrame({"v": holed.astype("Int64")}))[:3] == first
        assert codes_of(column, pd.DataFrame({"v": object_series([-3, 1, 1, None])}))[:3] == first
        assert codes_of(column, pl.DataFrame({"v": [-3, 1, 1, None]}))[:3] == first


def test_p24_integers_above_2_to_the_53(tmp_path, caplog):
    cells = [2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 5]
    routes = {
        "int64": pd.DataFrame({"v": cells}),
        "objects": pd.DataFrame({"v": object_series(cells)}),
        "floats": pd.DataFrame({"v": [float(cell) for cell in cells]}),
        "csv": write_csv(tmp_path / "cells.csv", cells),
        "arrow": pa.table({"v": cells}),
        "decimal": pa.table({"v": pa.array(cells, pa.decimal128(38, 0))}),
        "polars": pl.DataFrame({"v": cells}),
    }
    check(number(), routes, [2, 2, 2, 2, -2, 2], caplog)
    column = dps.Category("v", [2**53 - 1, 5], allow_missing=True)
    check(column, routes, [0, 2, 2, 2, 2, 1], caplog)
    wide = number(low=-(2.0**60), high=2.0**60, edges=[2.0**53], points=2**10 + 1, missing=0)
    assert len({tuple(codes_of(wide, data)) for data in routes.values()}) == 1
    huge = {
        "uint64": pd.DataFrame({"v": np.array([2**64 - 1, 5], np.uint64)}),
        "objects": pd.DataFrame({"v": object_series([2**64 - 1, 5])}),
    }
    check(number(), huge, [2, 2], caplog)


def test_p25_decimal_fraction_bool_and_zoned_datetime(caplog):
    cells = [Decimal("1"), Fraction(-1), True, np.True_, np.int8(-2), np.float32(1), 1 + 2j,
             np.complex128(1 + 2j), np.timedelta64(1), datetime.timedelta(1),
             datetime.datetime(2020, 1, 1, tzinfo=ZONE), pd.Timestamp("2020", tz="UTC"),
             datetime.date(2020, 1, 1), pd.Interval(0, 1), b"1", "1"]  # fmt: skip
    frame = {"objects": pd.DataFrame({"v": object_series(cells)})}
    check(number(missing=0), frame, [1, -1, 1, 1, -2, 1, *[0] * 10], caplog)
    check(coded(missing=-3), frame, [0, 2, 0, 0, 2, 0, *[2] * 10], caplog)
    check(dps.Boolean("v"), frame, [1, 0, 1, 1, 0, 1, *[0] * 10], caplog)
    check(text(other="b"), frame, [1] * 16, caplog)


def test_p25_decimals_and_fractions_match_levels_by_value(caplog):
    column = dps.Category("v", [0.1, 0.25], allow_missing=True)
    routes = {
        "objects": pd.DataFrame({"v": object_series([Decimal("0.1"), Fraction(1, 4), 0.3])}),
        "arrow": pa.table({"v": [Decimal("0.10"), Decimal("0.25"), Decimal("0.30")]}),
        "floats": pa.table({"v": [0.1, 0.25, 0.3]}),
    }
    check(column, routes, [0, 1, 2], caplog)


def test_p26_nested_cells(caplog):
    cells = [["a"], [], [NAN], ["a", ["b"]], {"a": 1}, {"a"}, ("a",), np.array([]),
             np.array(["a"]), np.array([NAN]), np.zeros((2, 2)), pd.Series(["a"]),
             pd.DataFrame({"a": [1]})]  # fmt: skip
    frame = {"objects": pd.DataFrame({"v": object_series([*cells, "a"])})}
    arrays = frame["objects"]["v"].iloc[:11]
    check(number(missing=0), frame, [0] * 14, caplog)
    check(text(missing="b", other="b"), frame, [*[1] * 13, 0], caplog)
    check(coded(missing=-3, other=-3), frame, [2] * 14, caplog)
    plain = {"objects": pd.DataFrame({"v": arrays})}
    check(text(missing="b", other="c"), plain, [2] * 11, caplog)  # values, though undeclared


class Hostile:
    """A cell whose every method fails."""

    def _fail(self, *args):
        raise RuntimeError

    __eq__ = __ne__ = __float__ = __int__ = __hash__ = __bool__ = __repr__ = __str__ = _fail
    __len__ = __iter__ = __array__ = _fail


def test_p26_cells_that_fail_when_touched(caplog):
    frame = {"objects": pd.DataFrame({"v": object_series([Hostile(), 1, Hostile()])})}
    check(number(missing=0), frame, [0, 1, 0], caplog)
    check(text(missing="b", other="b"), frame, [1, 1, 1], caplog)


@pytest.mark.parametrize("offset", [0, 2**22])
def test_p27_ten_megabytes_of_text(offset, tmp_path, caplog, reachable):
    marker = "sentinel-quux"
    huge = marker * (10 * 2**20 // len(marker))
    cells = ["a" * (offset % 2 + 1), "x" * offset, huge, "b"]
    routes = {
        "csv": write_csv(tmp_path / "cells.csv", cells),
        "objects": pd.DataFrame({"v": object_series(cells)}),
        "arrow": pa.table({"v": cells}),
        "polars": pl.DataFrame({"v": cells}),
    }
    pq.write_table(routes["arrow"], tmp_path / "cells.parquet")
    routes["parquet"] = tmp_path / "cells.parquet"
    check(text(allow_missing=True), routes, [0, 3, 3, 1], caplog)
    plan = dps.plan(
        dps.Schema([text(allow_missing=True)]), {"m": dps.Marginals(["v"], 1)}, budget=dps.PureDP(1)
    )
    measured = dps.measure(plan, tmp_path / "cells.csv")
    assert measured.n == 4
    assert not any(marker in part for part in measured.to_members().values())
    numeric = dps.Category("v", [1, 2], missing=2)
    check(numeric, {"csv": tmp_path / "cells.csv"}, [1, 1, 1, 1], caplog)
    check(number(missing=0), {"objects": routes["objects"]}, [0] * 4, caplog)


def test_p27_a_cell_longer_than_several_blocks_of_the_reader(tmp_path, caplog, monkeypatch):
    from dpstats.engines import local

    monkeypatch.setattr(local, "CSV_BLOCK", 64)
    cells = ["a", "b", None, *["c"] * 40, "x" * 5_000, "b", "y\n" * 900, "c"]
    path = {"csv": write_csv(tmp_path / "cells.csv", cells)}
    check(text(allow_missing=True), path, [0, 1, 3, *[2] * 40, 3, 1, 3, 2], caplog)


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (pa.table({"v": ["4711"]}), "declared as numbers but stored as string"),
        (pd.DataFrame({"v": ["4711"]}), "declared as numbers but stored as large_string"),
        (pd.DataFrame({"v": pd.to_datetime(["2020-01-01"], utc=True)}), "stored as timestamp"),
        (pa.table({"v": [[4711]]}), "stored as list"),
    ],
)
def test_a_column_of_a_wrong_type_is_structure_and_refused(data, match):
    with pytest.raises(dps.DataError, match=match) as caught:
        codes_of(number(), data)
    assert "4711" not in str(caught.value)
