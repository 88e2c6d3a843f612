"""Numbers that are the difference of two columns of the table, such as days between two dates."""

import itertools
import json
from dataclasses import replace
from datetime import date

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.private.kernel import Kernel
from dpstats.private.partial_sums import PartialSums
from dpstats.private.tables import exact_sums, open_source
from dpstats.schema import arrow
from dpstats.verifying.arguing import verify

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


def days_by_hand(rows):
    days = (rows["last seen"] - rows["diagnosed"]).dt.days
    return days.fillna(0).clip(0, 2000).astype(int)


CELLS = [None, "", "x", "nan", "inf", "-Infinity", "true", "1", " 2.5 ", "-3e0", "1e308", "-1e308",
         "2024-02-28", "2024-03-01 23:59", "2024-02-30", "1969-12-31T00", "20240301"]  # fmt: skip


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
    alone = [arrow.differences(first[i : i + 1], second[i : i + 1])[0] for i in range(len(pairs))]
    np.testing.assert_array_equal([one.as_py() for one in alone], found)
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


def test_a_release_has_the_number_of_days_and_no_dates(tmp_path):
    rows = random_rows(3_000)
    asked = READ | {"logs": dps.Mean("log(log_days)")}
    plan = dps.plan(SCHEMA, asked, budget=dps.PureDP(1_000), n=3_000)
    assert plan.read_columns.raw.names == ("last seen", "diagnosed", "sex")
    assert "the difference `last seen` - diagnosed" in str(plan.schema)
    assert "days: without two dates or two numbers: counted as 0" in str(plan)
    release = dps.release(plan, rows, rng=0)
    assert release.infer("days").params[0] == pytest.approx(days_by_hand(rows).mean(), abs=1)
    drawn = release.to_frame()
    assert set(drawn) == {"days", "sex", "log_days"}
    assert drawn.days.dtype == np.int64
    release.save(tmp_path / "r.zip")
    assert verify(tmp_path / "r.zip").agrees
    assert dps.load(tmp_path / "r.zip").schema == SCHEMA
    plan.save(tmp_path / "plan.json")
    assert dps.Plan.load(tmp_path / "plan.json").digest == plan.digest
    with pytest.raises(dps.DataError, match="no column 'diagnosed'"):
        dps.measure(plan, rows.drop(columns="diagnosed").assign(days=1))


def test_the_verifier_reads_sources_by_itself(tmp_path):
    """Two differences from one column are no views of it; a name in backticks is that of one."""
    columns = [
        dps.Number("age", 0, 40_000, edges=[20_000], missing=0, source="`last seen` - born"),
        dps.Number("net - gross", 0, 9, points=10, missing=0),
        dps.Number("view", 1, 9, scale="log", edges=[5], source="`net - gross`"),
    ]
    schema = dps.Schema([DAYS, *columns])
    rows = random_rows(500).assign(born="1960-01-01", **{"net - gross": 3})
    asked = {"m": dps.Marginals(["days", "age", "view"]), "n": dps.Mean("net - gross")}
    plan = dps.plan(schema, asked, budget=dps.PureDP(1), n=500)
    dps.release(plan, rows, rng=0).save(tmp_path / "r.zip")
    verdict = verify(tmp_path / "r.zip")
    assert verdict.agrees
    assert "any of 1 between published columns" in verdict.text


def test_one_row_changes_the_sums_by_no_more_than_its_own_functions():
    block = dps.Cells.table(SCHEMA, ["days", "log_days"])
    kernel, batch = Kernel(SCHEMA, [block]), pa.RecordBatch.from_pandas(random_rows(60, 1))
    assert kernel.raw.names == ("last seen", "diagnosed")
    alone = [PartialSums.of(kernel, [batch.slice(i, 1)]).sums for i in range(60)]
    assert all(one.sum() == 1 and one.min() == 0 for one in alone)
    np.testing.assert_array_equal(PartialSums.of(kernel, [batch]).sums, np.sum(alone, axis=0))


def test_declared_ends_are_read_on_their_own():
    ends = [dps.Number(name, "2016-01-01", "2017-01-01", edges=["2016-06-01"], missing="2016-02-01")
            for name in ("last seen", "diagnosed")]  # fmt: skip
    schema = dps.Schema([*SCHEMA, *ends])
    rows = pa.RecordBatch.from_pandas(random_rows(500))
    codes = schema.encode(rows)
    np.testing.assert_array_equal(codes["days"], SCHEMA.encode(rows)["days"])
    np.testing.assert_array_equal(codes["diagnosed"], ends[1].encode(rows.column("diagnosed")))
    ordered = dps.Order("`last seen` >= diagnosed")
    again = dps.Schema(schema.columns, rules=[ordered])
    repaired = again.repairs(["days"]).encode(rows)
    np.testing.assert_array_equal(repaired["days"], codes["days"])


def test_a_decimal_comma_is_that_of_the_file(tmp_path):
    (tmp_path / "t.csv").write_text("out;in\n3,5;1\n1,25;0,5\n2024-05-03;2024-05-01\n3.5;1\n")
    column = dps.Number("stay", 0, 4, points=17, edges=[1, 2.5], allow_missing=True,
                        source="out - `in`")  # fmt: skip
    for declared in ([], [dps.Number("out", 0, 9, missing=0)]):
        schema = dps.Schema([column, *declared], file={"decimal": ","})
        blocks = [dps.Cells.table(schema, ["stay"])]
        (sums,), _ = exact_sums(open_source(tmp_path / "t.csv", schema), schema, blocks)
        assert sums.tolist() == [1, 1, 1, 1]


def test_a_check_counts_missing_and_clamped_differences():
    rows = pd.DataFrame({
        "last seen": ["2020-05-01", "2020-05-01", None, "1.5.2020", "2031-01-01", "7"],
        "diagnosed": ["2020-04-01", "2020-06-01", "2020-06-01", "2020-04-01", "2020-01-01", "2020"],
        "sex": "f",
    })  # fmt: skip
    plan = dps.plan(SCHEMA, READ, budget=dps.PureDP(1), n=6)
    fit = dps.check(plan, rows)
    days = fit.columns[0]
    assert (days.name, days.missing, days.undeclared, days.clamped) == ("days", 1, 1, 3)
    assert {*days.commonest} == {("-31", 1), ("-2013", 1), ("4018", 1), ("1.5.2020", 1)}
    assert days.advice == ("dates such as '1.5.2020': write them as 2024-05-01",)
    assert dps.check(plan, rows.drop(columns="diagnosed")).absent == ("diagnosed",)


def test_files_hold_differences(tmp_path):
    text = """
        [[column]]
        name = "days"
        low = 0
        high = 2000
        missing = 0
        source = "  `last seen`-`diagnosed` "
        [[column]]
        name = "net - gross"
        low = 0
        high = 9
        [[column]]
        name = "view"
        low = 0
        high = 9
        source = "`net - gross`"
    """
    (tmp_path / "s.toml").write_text(text)
    schema = dps.Schema.load(tmp_path / "s.toml")
    assert schema["days"].source == "`last seen` - diagnosed"
    assert schema["view"].view_of == "net - gross"
    assert schema.stored.names == ("days", "net - gross")
    plain = json.loads(json.dumps(schema.to_dict()))
    assert dps.Schema.from_dict(plain) == schema
    assert dps.Schema.from_frictionless(schema.to_frictionless()) == schema
    assert list(schema.to_smartnoise("t")[""][""]["t"]) == ["row_privacy", "net - gross"]


def test_the_digest_is_of_the_two_columns():
    def digest(source):
        column = dps.Number("days", 0, 99, missing=0, source=source)
        return dps.plan(dps.Schema([column]), {"m": dps.Mean("days")}, budget=dps.PureDP(1)).digest

    assert digest("a - b") == digest("`a`  -  `b`")
    assert len({digest(text) for text in ("a - b", "b - a", "a - c", None)}) == 4


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ([{"source": "day of death - b"}], "neither the name of a number nor a difference"),
        ([{"source": "a - b - c"}], "neither the name of a number nor a difference"),
        ([{"source": "`a - b"}], "neither the name of a number nor a difference"),
        ([{"source": "a - a"}], "subtracts a column from itself"),
        ([{"source": "d - a"}], "one of them has the same name"),
        ([{"source": "a - b", "missing_values": [3], "missing": 0}], "no missing_values"),
        ([{"low": "2020-01-01", "high": "2021-01-01", "source": "a - b"}], "a number, of days"),
        ([{"source": "a - b"}, {"name": "a - b"}], "put it in backticks: source='`a - b`'"),
        ([{"source": "a - b"}, {"name": "b", "source": "c - e"}], "'b' has a source itself"),
        ([{"source": "a - b"}, {"name": "b", "source": "d"}], "'b' has a source itself"),
    ],
)
def test_differences_that_cannot_be_read_are_refused(columns, words):
    with pytest.raises(dps.SchemaError, match=words):
        dps.Schema([dps.Number(**{"name": "d", "low": 0, "high": 9} | plain) for plain in columns])


def test_the_key_of_persons_is_no_end():
    persons = {"rows_per_person": 2, "unit": "add_remove"}
    dps.plan(SCHEMA, READ, budget=dps.PureDP(1), person="id", **persons)
    with pytest.raises(dps.RequestError, match="'diagnosed' tells persons apart"):
        dps.plan(SCHEMA, READ, budget=dps.PureDP(1), person="diagnosed", **persons)


def test_invented_rows_have_the_ends():
    fixed = dps.Number("diagnosed", "2020-01-01", "2020-12-31", missing="2020-01-01")
    guesses = dps.Guesses(typical={"days": {"mean": 300, "sd": 100}})
    both = dps.Schema([*SCHEMA, fixed, replace(fixed, name="last seen")])
    rows = dps.pretend(both, 3_000, guesses, rng=0)
    assert rows["last seen"].between("2020-01-01", "2020-12-31").all()
    assert rows["diagnosed"].between("2020-01-01", "2020-12-31").all()
    for schema in (SCHEMA, dps.Schema([*SCHEMA, fixed])):
        rows = dps.pretend(schema, 3_000, guesses, rng=0)
        assert list(rows)[:3] == ["last seen", "diagnosed", "sex"]
        days = schema["days"].decode(schema.encode(pa.RecordBatch.from_pandas(rows))["days"])
        assert abs(days.mean() - 300) < 10
        plan = dps.plan(schema, READ, budget=dps.PureDP(1), n=3_000)
        synthetic = dps.release(plan, rows, rng=0).to_frame()
        for like in (rows, synthetic):
            assert np.isfinite(plan.preview(like=like).to_frame().width).all()
