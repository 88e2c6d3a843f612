"""Section B: cells that are numbers, however odd, have one code on every route, silently."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

import dpstats as dps

NAN = math.nan


def number(**options):
    return dps.Number("v", **{"low": -2, "high": 2, "points": 5, "missing": 1, **options})


def coded(**options):
    return dps.Category("v", [1, 2.5, -3], **options)


def test_p13_nan_in_numeric(sources):
    routes = sources.numbers([0.0, NAN, None, -2.0])
    sources.check(number(), routes, [0, 1, 1, -2])
    sources.check(number(missing=None, edges=[-1]), routes, [0, 0, 0, -2])  # the middle
    routes = sources.numbers([1, NAN, 0, None, 2.5])
    sources.check(coded(missing=-3, other=2.5), routes, [0, 2, 1, 2, 1])
    sources.check(dps.Boolean("v", missing=True), routes, [1, 1, 0, 1, 1])


def test_p13_nan_has_a_code_of_its_own_that_adds_nothing_to_sums(sources):
    column = number(missing=None, allow_missing=True, edges=[-1])
    sources.check(column, sources.numbers([0.0, NAN, None, -2.0]), [0, 3, 3, -2])
    schema = dps.Schema([column])
    codes = {"v": np.array([2, 3, 3, -2])}
    moments = dps.Moments.of(schema, ["v"])
    assert dict(zip(moments.names, moments.sums(codes).tolist(), strict=True)) == {
        "v, v answered": 0, "v^2, v answered": 8, "rows, v answered": 2,
    }  # fmt: skip
    assert dps.Cells.table(schema, ["v"]).sums(codes).tolist() == [1, 1, 2]


def test_p14_infinities(sources):
    routes = sources.numbers([math.inf, -math.inf, 1.0])
    sources.check(number(edges=[1]), routes, [2, -2, 1])
    sources.check(coded(allow_missing=True), routes, [3, 3, 0])


def test_p15_huge_and_subnormal_numbers(sources):
    routes = sources.numbers([1e308, -1e308, 5e-324, -5e-324, 2.2e-308])
    sources.check(number(), routes, [2, -2, 0, 0, 0])
    sources.check(number(edges=[0]), routes, [2, -2, 0, -1, 0])
    sources.check(coded(missing=1), routes, [0] * 5)


def test_p15_numbers_beyond_all_floats(sources):
    cells = ["1e400", "-1e400", "1e-400", "9" * 400, "1e999999999999999999999"]
    objects = [10**400, -(10**400), Decimal("1e-400"), Fraction(10**400), Decimal("1e400")]
    for data in (sources.csv(cells), sources.objects(objects)):
        sources.check(number(), data, [2, -2, 0, 2, 2])
        sources.check(coded(allow_missing=True), data, [3] * 5)


def test_p16_minus_zero(sources):
    routes = sources.numbers([-0.0, 0.0, 1.0])
    for closed in ("left", "right"):  # the one of [0, 2] and of [-2, 0] that holds both
        sources.check(number(edges=[0], closed=closed), routes, [0, 0, 1])
    sources.check(dps.Category("v", [1, 0]), routes, [1, 1, 0])
    sources.check(dps.Boolean("v", missing=True), routes, [0, 0, 1])


def test_p17_on_a_bin_edge(sources):
    for closed, at_edge in [("left", 1), ("right", 0)]:
        for edge in (0.1 + 0.2, -0.7):
            column = number(edges=[edge], closed=closed, points=1025)
            routes = sources.numbers([math.nextafter(edge, -9), edge, math.nextafter(edge, 9)])
            codes = sources.codes(column, routes["arrow chunks"])
            assert column.bins_of(np.array(codes)).tolist() == [0, at_edge, 1]  # as documented
            sources.check(column, routes, codes)


def test_p17_decimals_on_a_bin_edge(sources):
    edges = [i / 1000 for i in range(-1900, 1900, 7)]
    column = number(edges=edges, points=2**16 + 1)
    cells = [Decimal(str(edge)) for edge in edges]
    expected = sources.codes(column, pa.table({"v": edges}))
    for data in (
        pa.table({"v": pa.array(cells, pa.decimal128(38, 20))}),
        pa.table({"v": pa.array(cells, pa.decimal256(60, 30))}),
        pa.table({"v": pa.array(cells, pa.decimal128(10, 3))}),
        sources.objects(cells),
        pl.DataFrame({"v": pl.Series(cells, dtype=pl.Decimal(38, 10))}),
    ):
        sources.check(column, data, expected)


def test_p18_outside_the_bounds(sources):
    routes = sources.numbers([-2.0001, -7.0, 2.0001, 1e9, 2.0, -2.0])
    sources.check(number(), routes, [-2, -2, 2, 2, 2, -2])
    routes = sources.numbers([16, 40, 21])
    scores = dps.Number("v", values=[17.5, 22, 27], missing=22)
    low, high = scores.code_range
    sources.check(scores, routes, [low, high, sources.codes(scores, pa.table({"v": [22]}))[0]])


def test_p18_clamped_cells_are_not_counted_anywhere(no_noise):
    column = number(edges=[-1, 1])
    plan = dps.plan(dps.Schema([column]), {"m": dps.Marginals(["v"], 1)}, budget=dps.PureDP(1))
    inside, outside = ([-2.0, 0.0, 2.0], [-99.0, 0.0, math.inf])
    one, other = (dps.measure(plan, pa.table({"v": cells})) for cells in (inside, outside))
    assert one.noisy_sums.tolist() == [1, 1, 1]
    assert one.to_members() == other.to_members()


def test_p23_one_nan_turning_integers_to_floats(sources):
    whole = pd.DataFrame({"v": [-3, 1, 1, -3]})
    holed = pd.DataFrame({"v": [-3, 1, 1, None]})
    assert (whole["v"].dtype, holed["v"].dtype) == (np.int64, np.float64)
    spelled = dps.Category("v", ["-3", "1"], allow_missing=True)
    for column in (coded(allow_missing=True), number(), spelled):
        first = sources.codes(column, whole)[:3]
        for data in (holed, holed.astype("Int64"), sources.objects([-3, 1, 1, None]),
                     *sources.numbers([-3, 1, 1, None]).values()):  # fmt: skip
            assert sources.codes(column, data)[:3] == first


def test_p24_integers_above_2_to_the_53(sources):
    cells = [2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 5]
    routes = {
        "int64": pd.DataFrame({"v": cells}),
        "objects": sources.objects(cells),
        "floats": pd.DataFrame({"v": [float(cell) for cell in cells]}),
        "csv": sources.csv(cells),
        "arrow": pa.table({"v": cells}),
        "decimal": pa.table({"v": pa.array(cells, pa.decimal128(38, 0))}),
        "polars": pl.DataFrame({"v": cells}),
    }
    sources.check(number(), routes, [2, 2, 2, 2, -2, 2])
    column = dps.Category("v", [2**53 - 1, 5], allow_missing=True)
    sources.check(column, routes, [0, 2, 2, 2, 2, 1])
    wide = number(low=-(2.0**60), high=2.0**60, edges=[2.0**53], points=2**10 + 1, missing=0)
    assert len({tuple(sources.codes(wide, data)) for data in routes.values()}) == 1
    huge = {
        "uint64": pd.DataFrame({"v": np.array([2**64 - 1, 5], np.uint64)}),
        "objects": sources.objects([2**64 - 1, 5]),
    }
    sources.check(number(), huge, [2, 2])
