"""Numbers that are the difference of two columns of the table, such as days between two dates."""

import itertools
from dataclasses import replace
from datetime import date

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.schema import arrow

DAYS = dps.Number("days", 0, 2000, points=2001, edges=[100, 400], missing=0,
                  source="`last seen` - diagnosed")  # fmt: skip
SEX = dps.Category("sex", ["f", "m"])
LOG = dps.Number("log_days", 1, 2000, scale="log", points=41, edges=[200], source="days")
SCHEMA = dps.Schema([DAYS, SEX, LOG])
READ = {"days": dps.Mean("days"), "t": dps.Marginals(["days", "sex"])}


def random_rows(n, seed=0):
    """Rows of a table with two dates, of which some are missing or in the wrong order."""
    rng = np.random.default_rng(seed)
    first = np.datetime64("2015-01-01") + rng.integers(0, 2000, n)
    last = first + rng.integers(-100, 2500, n)
    last[rng.random(n) < 0.1] = np.datetime64("NaT")
    return pd.DataFrame({"sex": rng.choice(["f", "m"], n), "last seen": last, "diagnosed": first})


CELLS = [None, "", "x", "nan", "-Infinity", "true", " 2.5 ", "-3e0", "1e308", "-1e308",
         "2024-03-01 23:59", "2024-02-30", "1969-12-31T00", "20240301"]  # fmt: skip


def read_by_hand(cell):
    """The kind of a cell, and the number or the day that it spells."""
    text = (cell or "").strip()
    if text == "true":
        return "number", 1.0
    try:
        return "date", date.fromisoformat(text[:10]).toordinal() if text[4:5] == "-" else 1 / 0
    except (ValueError, ZeroDivisionError):
        pass
    try:
        number = float(text)
    except ValueError:
        return "none", 0.0
    return ("number" if np.isfinite(number) else "none"), number


def test_cells_are_two_dates_or_two_finite_numbers_or_missing():
    pairs = list(itertools.product(CELLS, CELLS))
    first, second = (pa.array([pair[i] for pair in pairs], pa.string()) for i in range(2))
    found = arrow.floats(arrow.differences(first, second))
    for pair, difference in zip(pairs, found, strict=True):
        (kind, a), (other, b) = map(read_by_hand, pair)
        if kind == other != "none":
            assert difference == a - b, pair
        else:
            assert np.isnan(difference), pair
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


def test_a_release_has_the_number_of_days_and_no_dates():
    rows = random_rows(1_000)
    asked = READ | {"logs": dps.Mean("log(log_days)")}
    plan = dps.plan(SCHEMA, asked, budget=dps.PureDP(1_000), n=1_000)
    assert plan.read_columns.raw.names == ("last seen", "diagnosed", "sex")
    release = dps.release(plan, rows, rng=0)
    days = (rows["last seen"] - rows["diagnosed"]).dt.days.fillna(0).clip(0, 2000)
    assert release.infer("days").params[0] == pytest.approx(days.mean(), abs=1)
    drawn = release.to_frame()
    assert set(drawn) == {"days", "sex", "log_days"}
    assert drawn.days.dtype == np.int64
    with pytest.raises(dps.DataError, match="no column 'diagnosed'"):
        dps.measure(plan, rows.drop(columns="diagnosed").assign(days=1))


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
    dps.plan(SCHEMA, READ, budget=dps.PureDP(1), person="id", **persons)
    with pytest.raises(dps.RequestError, match="'diagnosed' tells persons apart"):
        dps.plan(SCHEMA, READ, budget=dps.PureDP(1), person="diagnosed", **persons)


def test_invented_rows_have_the_ends(fast):
    fixed = dps.Number("diagnosed", "2020-01-01", "2020-12-31", missing="2020-01-01")
    guesses = dps.Guesses(typical={"days": {"mean": 300, "sd": 100}})
    both = dps.Schema([*SCHEMA, fixed, replace(fixed, name="last seen")])
    rows = dps.pretend(both, 1_000, guesses, rng=0)
    assert rows["last seen"].between("2020-01-01", "2020-12-31").all()
    assert rows["diagnosed"].between("2020-01-01", "2020-12-31").all()
    for schema in (SCHEMA, dps.Schema([*SCHEMA, fixed])):
        rows = dps.pretend(schema, 1_000, guesses, rng=0)
        assert list(rows)[:3] == ["last seen", "diagnosed", "sex"]
        days = schema["days"].decode(schema.encode(pa.RecordBatch.from_pandas(rows))["days"])
        assert abs(days.mean() - 300) < 15
        plan = dps.plan(schema, READ, budget=dps.PureDP(1), n=1_000)
        assert np.isfinite(plan.preview(like=rows).to_frame().width).all()
