"""Views and differences: numbers that are read from other columns; see test_rules too."""

import itertools
from dataclasses import replace
from datetime import date

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.planning.previews.likeness import likeness
from dpstats.schema import arrow
from dpstats.schema.possible import impossible_pairs
from dpstats.verifying.arguing import verify

AGE = dps.Number("age", 0, 99, points=100, edges=[15, 65], missing=40)
COST = dps.Number("cost", 0, 1000, points=1001, edges=[100, 400], allow_missing=True)
LOG = dps.Number("log_cost", 1, 1000, scale="log", points=61, edges=[10, 200], source="cost")
SEX = dps.Category("sex", ["f", "m"])
COLUMNS = [AGE, LOG, COST, SEX]
SCHEMA = dps.Schema(COLUMNS)


def random_rows(n, seed=0):
    """Rows of a table with amounts that rise with age, some missing or out of bounds."""
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 100, n)
    cost = np.round(np.exp(2 + 0.04 * age + rng.normal(0, 0.8, n)))
    cost[rng.random(n) < 0.05] = np.nan
    first = np.datetime64("2015-01-01") + rng.integers(0, 2000, n)
    last = first + rng.integers(-100, 2500, n)
    return pd.DataFrame({"age": age, "cost": cost, "sex": rng.choice(["f", "m"], n),
                         "diagnosed": first, "last seen": last})  # fmt: skip


def test_a_plan_on_a_view_or_difference_reads_its_source_and_costs_the_same():
    asked = {"ols": dps.OLS("log(log_cost) ~ age"), "m": dps.Marginals(["log_cost", "sex"])}
    plan = dps.plan(SCHEMA, asked, budget=dps.PureDP(1), n=400)
    assert plan.columns.names == ("age", "log_cost", "sex")
    assert plan.read_columns.names == ("age", "log_cost", "cost", "sex")
    stored = dps.Schema([AGE, replace(LOG, source=None, allow_missing=True), COST, SEX])
    other = dps.plan(stored, asked, budget=dps.PureDP(1), n=400)
    np.testing.assert_array_equal(plan.strategy.scales, other.strategy.scales)
    assert plan.digest != other.digest
    of_days = dps.plan(DATED, READ, budget=dps.PureDP(1), n=400)
    assert of_days.read_columns.raw.names == ("last seen", "diagnosed", "sex")
    assert of_days.columns.names == ("days", "sex")  # a release has no dates
    for one, lacking in ((plan, "cost"), (of_days, "diagnosed")):
        rows = random_rows(400).drop(columns=lacking).assign(log_cost=1, days=1)
        with pytest.raises(dps.DataError, match=f"no column '{lacking}'"):
            dps.measure(one, rows)


COARSE = dps.Number("coarse", 0, 500, points=6, edges=[150], source="cost")
TWO = dps.Schema([LOG, COARSE, COST, AGE])  # two views whose source need not be asked for


@pytest.mark.parametrize("asked", [
    {"t": dps.Marginals(["log_cost", "coarse"])},
    {"l": dps.Mean("log(log_cost)"), "m": dps.Mean("coarse")},
])  # fmt: skip
def test_two_views_agree_where_their_source_is_not_published(asked, tmp_path):
    plan = dps.plan(TWO, asked, budget=dps.PureDP(1), n=300, reference=dps.LogLinear())
    assert "cost" not in plan.columns.names
    release = dps.release(plan, random_rows(300, 5), rng=0)
    log, coarse = TWO["log_cost"], TWO["coarse"]
    views = [column.codes_by_source(TWO["cost"]) for column in (log, coarse)]
    possible, found = set(zip(*views, strict=True)), release.candidates
    assert possible.issuperset(zip(found["log_cost"], found["coarse"], strict=True))
    release.save(tmp_path / "r.zip")
    verdict = verify(tmp_path / "r.zip")
    assert verdict.agrees
    assert "any of 1 between published columns" in verdict.text
    [(first, second, cells)] = impossible_pairs(plan.columns)
    assert (first, second) == ("log_cost", "coarse")
    bins = {(log.bins_of(a), coarse.bins_of(b)) for a, b in possible}
    assert {*zip(*np.nonzero(~cells), strict=True)} == bins
    points, _ = likeness(None, plan.strategy).points(plan.columns, np.random.default_rng(0))
    assert possible.issuperset(zip(points["log_cost"], points["coarse"], strict=True))


@pytest.mark.parametrize("tables", [True, False])
def test_rows_follow_the_answers_on_both_columns(tables):
    """Where each column alone would; edges of the two do not refine each other."""
    moments = {"mean": dps.Mean("cost"), "ols": dps.OLS("log(log_cost) ~ age")}
    asked = {"t": dps.Marginals(["cost", "log_cost"])} if tables else moments
    n, reference = 1_000, dps.LogLinear()
    rows = random_rows(n, 3)
    plan = dps.plan(SCHEMA, asked, budget=dps.PureDP(10_000), n=n, reference=reference)
    drawn = dps.release(plan, rows, rng=0).to_frame()
    truth = rows.assign(cost=rows.cost.clip(0, 1000), log_cost=rows.cost.clip(1, 1000))
    logs = np.log(truth.log_cost)
    if tables:
        for name, cuts in (("cost", [0, 100, 400, 1001]), ("log_cost", [0, 10, 200, 1001])):
            shares = [np.histogram(frame[name].dropna(), cuts)[0] / n for frame in (truth, drawn)]
            np.testing.assert_allclose(*shares, atol=3e-3)
        return
    assert abs(drawn.cost.mean() / truth.cost.mean() - 1) < 0.02
    assert abs(np.log(drawn.log_cost).mean() - logs.mean()) < 0.02
    assert abs(np.log(drawn.log_cost).corr(drawn.age) - logs.corr(truth.age)) < 0.02
    assert abs(drawn.cost.corr(np.log(drawn.log_cost)) - truth.cost.corr(logs)) < 0.05


def test_views_that_cannot_be_used_are_refused():
    for columns, words in [
        ([dps.Number("v", 0, 9, source="coast"), COST], "source: .*'coast' .did you mean 'cost'"),
        ([dps.Number("v", 0, 9, source="sex"), SEX], "its source 'sex' is no number"),
        ([dps.Number("w", 0, 9, source="log_cost"), *COLUMNS], "is a view itself; name 'cost'"),
        ([dps.Number("v", 0, 9, source="age", allow_missing=True), AGE], "missing where those"),
        ([dps.Number("v", "2024-01-01", "2024-02-01", source="age"), AGE], "both dates"),
        ([dps.Number("v", 0, 999, edges=[500, 501], points=2000, source="age"), AGE],
         r"no row with v \[500, 501\) is allowed by the rules \['v is a view of age'\]"),
    ]:  # fmt: skip
        with pytest.raises(dps.SchemaError, match=words):
            dps.Schema(columns)


def test_a_view_has_the_missing_cells_of_its_source_and_orders_with_others():
    assert SCHEMA["log_cost"].allow_missing
    with pytest.raises(dps.SchemaError, match="no column 'cost'"):
        dps.Schema.from_frictionless(SCHEMA.to_frictionless(), columns=["log_cost"])
    columns = [AGE, dps.Number("young", 0, 30, source="age"), dps.Number("y", 0, 40, points=41)]
    age = dps.Schema(columns, rules=[dps.Order("y >= young")])
    assert age["young"].missing == 30
    bare = dps.Schema([dps.Number("x", 0, 9), dps.Number("v", 1, 9, scale="log", source="x")])
    with pytest.raises(dps.RequestError, match="of 'v' need missing= of 'x' in the schema"):
        dps.plan(bare, {"m": dps.Mean("log(v)")}, budget=dps.PureDP(1))


# Differences, such as days between two dates

DAYS = dps.Number("days", 0, 2000, points=2001, edges=[100, 400], missing=0,
                  source="`last seen` - diagnosed")  # fmt: skip
LOG_DAYS = dps.Number("log_days", 1, 2000, scale="log", points=41, edges=[200], source="days")
DATED = dps.Schema([DAYS, SEX, LOG_DAYS])
READ = {"days": dps.Mean("days"), "t": dps.Marginals(["days", "sex"])}


# What cells are read as: a date, a finite number, or neither
READ_AS = {
    None: None, "": None, "x": None, "nan": None, "-Infinity": None, "2024-02-30": None,
    "true": 1.0, " 2.5 ": 2.5, "-3e0": -3.0, "1e308": 1e308, "-1e308": -1e308,
    "20240301": 20240301.0, "2024-03-01 23:59": date(2024, 3, 1),
    "1969-12-31T00": date(1969, 12, 31),
}  # fmt: skip


def test_cells_are_two_dates_or_two_finite_numbers_or_missing():
    pairs = list(itertools.product(READ_AS, READ_AS))
    first, second = (pa.array([pair[i] for pair in pairs], pa.string()) for i in range(2))
    found = arrow.floats(arrow.differences(first, second))
    for pair, difference in zip(pairs, found, strict=True):
        a, b = (READ_AS[cell] for cell in pair)
        if a is None or type(a) is not type(b):
            assert np.isnan(difference), pair
        else:
            assert difference == ((a - b).days if isinstance(a, date) else a - b), pair
    for i in range(0, len(pairs), 7):  # whatever the other cells are
        alone = arrow.floats(arrow.differences(first[i : i + 1], second[i : i + 1]))
        np.testing.assert_array_equal(alone, found[i : i + 1])
    coded = DAYS.encode(arrow.differences(first, second))
    assert set(coded[np.isnan(found)]) == {DAYS.missing_code}
    assert DAYS.decode(coded)[pairs.index(("-1e308", "1e308"))] == 0
    assert DAYS.decode(coded)[pairs.index(("1e308", "-1e308"))] == 2000


def test_a_column_of_any_type_is_an_end():
    stamps = pa.array([0, 86_400 * 3], pa.timestamp("s"))
    lists = pa.array([[1], None], pa.list_(pa.int8()))
    runs = pa.RunEndEncodedArray.from_arrays([1, 2], [3, 4])  # Arrow cannot choose lists of these
    ends = [stamps, stamps.cast(pa.date32()), stamps.cast(pa.date64()), stamps.cast(pa.string()),
            pa.array([5, 8], pa.int64()), pa.array([5.0, 8.0], pa.float32()), lists,
            pa.ListArray.from_arrays([0, 1, 2], runs), pa.array([3, 4], pa.duration("s")),
            pa.nulls(2), pa.array(["5", "8"]).dictionary_encode()]  # fmt: skip
    kind = [1, 1, 1, 1, 2, 2, 0, 0, 0, 0, 2]
    for (i, first), (j, second) in itertools.product(enumerate(ends), enumerate(ends)):
        found = arrow.differences(first, second)
        known = kind[i] == kind[j] != 0
        np.testing.assert_array_equal(arrow.floats(found), [0 if known else np.nan] * 2)


def test_differences_that_cannot_be_read_are_refused():
    dates = {"low": "2020-01-01", "high": "2021-01-01"}
    for columns, words in [
        ([{"source": "a - b - c"}], "neither the name of a number nor a difference"),
        ([{"source": "`a - b"}], "neither the name of a number nor a difference"),
        ([{"source": "a - a"}], "subtracts a column from itself"),
        ([{"source": "d - a"}], "one of them has the same name"),
        ([{"source": "a - b", "missing_values": [3], "missing": 0}], "no missing_values"),
        ([dates | {"source": "a - b"}], "a number, of days"),
        ([{"source": "a - b"}, {"name": "a - b"}], "put it in backticks: source='`a - b`'"),
        ([{"source": "a - b"}, {"name": "b", "source": "c - e"}], "'b' has a source itself"),
    ]:
        with pytest.raises(dps.SchemaError, match=words):
            dps.Schema([dps.Number(**{"name": "d", "low": 0, "high": 9} | c) for c in columns])
    persons = {"rows_per_person": 2, "unit": "add_remove"}
    dps.plan(DATED, READ, budget=dps.PureDP(1), person="id", **persons)
    with pytest.raises(dps.RequestError, match="'diagnosed' tells persons apart"):
        dps.plan(DATED, READ, budget=dps.PureDP(1), person="diagnosed", **persons)


def test_invented_rows_have_the_ends(fast):
    fixed = dps.Number("diagnosed", "2020-01-01", "2020-12-31", missing="2020-01-01")
    guesses = dps.Guesses(typical={"days": {"mean": 300, "sd": 100}})
    both = dps.Schema([*DATED, fixed, replace(fixed, name="last seen")])
    rows = dps.pretend(both, 1_000, guesses, rng=0)
    for name in ("last seen", "diagnosed"):
        assert rows[name].between("2020-01-01", "2020-12-31").all()
    for schema in (DATED, dps.Schema([*DATED, fixed])):
        rows = dps.pretend(schema, 1_000, guesses, rng=0)
        assert list(rows)[:3] == ["last seen", "diagnosed", "sex"]
        days = schema["days"].decode(schema.encode(pa.RecordBatch.from_pandas(rows))["days"])
        assert abs(days.mean() - 300) < 15
        plan = dps.plan(schema, READ, budget=dps.PureDP(1), n=1_000)
        assert np.isfinite(plan.preview(like=rows).to_frame().width).all()
