"""The fit of a schema: counts that agree with the codes, likely meanings, and no leak."""

from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.private import fit_of_schema
from dpstats.private.fit_of_schema import MOST_VALUES, SHOWN

SCHEMA = dps.Schema([
    dps.Category("sex", ["female", "male"]),
    dps.Category("married", ["no", "yes"], allow_missing=True),
    dps.Category("code", [1, 2.5]),
    dps.Boolean("smoker"),
    dps.Number("income", 0, 100, edges=[50]),
    dps.Number("score", values=[17.5, 22, 27]),
    dps.Number("admitted", "2020-01-01", "2024-12-31", edges=["2023-01-01"]),
])  # fmt: skip
CELLS = {
    "sex": ["female", "Male", "Male", "male ", None, "m"],
    "married": ["0", "1", "1", "no", "maybe", ""],
    "code": ["1", "2,5", "01.0", "nan", "2.50", "9"],
    "smoker": ["yes", "true", "0", "", "FALSE", "no"],
    "income": ["1,5", "1.234,5", "12", "-3", "1e9", None],
    "score": ["17.5", "18", "22.0", "", "27", "x"],
    "admitted": ["2020-05-01", "2.5.2024", "2025-01-01", "19000", "", "2024-12-31"],
}
# Missing, undeclared and clamped cells, the commonest of those outside, and what is said of them.
OUTSIDE = {
    "sex": (1, 4, 0, {"Male": 2, "m": 1, "male ": 1},
            ["'Male': did you mean 'male'?", "'male ': did you mean 'male'?"]),
    "married": (1, 4, 0, {"1": 2, "0": 1, "maybe": 1},
                ["'1': did you mean 'yes'?", "'0': did you mean 'no'?"]),
    "code": (1, 2, 0, {"2,5": 1, "9": 1}, ["'2,5': did you mean 2.5?"]),
    "smoker": (1, 2, 0, {"no": 1, "yes": 1},
               ["'no': did you mean False?", "a Boolean reads true, false, 1 and 0"]),
    "income": (1, 2, 2, {"-3": 1, "1,5": 1, "1.234,5": 1, "1e9": 1},
               ["a decimal comma, as in '1,5'", "thousands separators, as in '1.234,5'"]),
    "score": (1, 1, 1, {"18": 1, "x": 1}, []),
    "admitted": (1, 2, 1, {"19000": 1, "2.5.2024": 1, "2025-01-01": 1},
                 ["numbers such as '19000', where dates", "dates such as '2.5.2024'"]),
}  # fmt: skip


@pytest.fixture(scope="module")
def plan():
    asked = {"m": dps.Marginals(list(SCHEMA.names), 1)}
    return dps.plan(SCHEMA, asked, budget=dps.PureDP(1))


def test_counts_and_likely_meanings_on_every_route(plan, tmp_path, monkeypatch):
    monkeypatch.setattr("dpstats.private.sources.BATCH_ROWS", 2)
    frame = pd.DataFrame(CELLS)
    frame.to_csv(tmp_path / "rows.csv", index=False, sep=";")
    for data in (frame.astype(object), pl.from_pandas(frame), pa.table(frame).to_reader(),
                 frame.astype("category"), tmp_path / "rows.csv"):  # fmt: skip
        fit = dps.check(plan, data)
        assert fit.rows == 6
        for column, (*counts, commonest, said) in zip(fit.columns, OUTSIDE.values(), strict=True):
            assert [column.missing, column.undeclared, column.clamped] == counts
            assert column.commonest == tuple(commonest.items())
            assert bool(column.advice) == bool(said)
            assert all(part in " ".join(column.advice) for part in said), column.name
    fit = dps.check(plan, pd.DataFrame(CELLS | {"sex": ["\x1b[2J\r"] * 6}))
    assert "\x1b" not in str(fit) + repr(fit) + fit._repr_html_()


def test_a_stream_that_was_checked_is_not_measured_without_its_rows(tmp_path):
    asked = {"m": dps.Marginals(list(SCHEMA.names), 1)}
    plan = dps.plan(SCHEMA, asked, budget=dps.PureDP(1), unit="add_remove")
    ledger = dps.Ledger.create(tmp_path / "ledger", dps.PureDP(1), unit="add_remove")
    stream = pa.table(pd.DataFrame(CELLS)).to_reader()
    assert dps.check(plan, stream).rows == 6
    with pytest.raises(dps.DataError, match=r"has been read, .* make it anew"):
        dps.measure(plan, stream, ledger=ledger)
    assert ledger.spent == 0


def test_it_says_what_a_release_would_say_of_the_number_of_rows():
    for options, rows, says in [
        ({"n": 4}, 3, "the plan was made for n = 4 rows and the table has 3; make the plan"),
        ({"n": 4}, 4, ""),
        ({"n": 4, "unit": "add_remove"}, 3, ""),  # the number is private there
        ({}, 0, "the table has no rows"),
        ({"n": 4, "person": "key"}, 5, ""),
        ({"n": 5, "person": "key"}, 5, "those that are used, the first row of each person, are 4"),
    ]:
        schema = dps.Schema([dps.Boolean("b")])
        plan = dps.plan(schema, {"p": dps.Proportion("b")}, budget=dps.PureDP(9), **options)
        table = pd.DataFrame({"b": [True] * rows, "key": [1, 1, 2, 3, 4][:rows]})
        fit = dps.check(plan, table)
        assert says in fit.refused
        assert bool(says) == ("a release would be refused: " in str(fit)) == bool(fit.refused)
        if fit.refused:
            with pytest.raises(dps.DataError) as refused:
                dps.measure(plan, table)
            assert str(refused.value).startswith(f"{fit.refused}; nothing was")


def test_common_values_are_found_in_bounded_memory():
    rng = np.random.default_rng(0)
    rare = [f"rare {i}" for i in range(9_000)]
    cells = rng.permutation(np.array([*rare, *["common"] * 1_000, "x" * 10**6], dtype=object))
    tally = fit_of_schema.ColumnFit(dps.Category("word", ["no", "yes"]))
    for start in range(0, len(cells), 500):
        tally.add(pa.record_batch({"word": pa.array(cells[start : start + 500])}))
        assert len(tally.values) <= MOST_VALUES
        assert max(map(len, tally.values)) <= fit_of_schema.LONGEST
    assert tally.undeclared == len(cells)
    assert tally.commonest[0] == ("common", 1_000)
    assert len(tally.commonest) == SHOWN
    assert "common" not in repr(tally)


def test_a_table_that_cannot_be_read_is_refused_without_a_cell(plan, tmp_path, frames_of):
    path = tmp_path / "rows.csv"
    pd.DataFrame(CELLS).to_csv(path, index=False)
    path.write_text(path.read_text() + "secret,2\n")
    with pytest.raises(dps.DataError, match=r"line 8 has more or fewer fields than") as refused:
        dps.check(plan, path)
    assert "secret" not in str(refused.value)
    assert refused.value.__context__ is None
    assert "Male" not in str(frames_of(refused))
    with pytest.raises(dps.RequestError, match=r"check needs a plan, made by dps\.plan; got Sch"):
        dps.check(SCHEMA, path)
    for first in ("Ann;44;sure\n", "Ann;female;sure\n", "Ann;2.5;44", ""):  # no header line
        path.write_text(first)
        says = f"lacks its header line: .*{'looks like a row' if first else 'has 0 fields'}"
        with pytest.raises(dps.DataError, match=says) as refused:
            dps.check(plan, path)
        assert not any(cell in str(refused.value) for cell in ("Ann", "female", "44", "sure"))


SURVEY = dps.Schema([dps.Boolean("smoker")], design=dps.Design(
    "weight", mean=2, low=0.5, high=9, cap=8, strata="area", unit="school",
    units={"north": [1, 2, 3], "south": [4, 5]},
))  # fmt: skip
DRAWN = {
    "smoker": [True, False, True, True, False, False, True, True],
    "weight": ["1", "0.25", "8.5", "12", "", "0", "-1", "many"],
    "area": ["north", "north", "south", "south", "east", "", "north", "North"],
    "school": ["1", "2", "4", "99", "4", "1", "4", "1"],
}


def test_weights_and_units_are_counted_on_every_route_and_printed(tmp_path, monkeypatch):
    monkeypatch.setattr("dpstats.private.sources.BATCH_ROWS", 2)
    asked, budget = {"p": dps.Proportion("smoker")}, dps.PureDP(1)
    plan = dps.plan(SURVEY, asked, budget=budget)
    frame = pd.DataFrame(DRAWN)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    for data in (frame, pl.from_pandas(frame), tmp_path / "rows.csv"):
        whole = dps.check(plan, data)
        fit = whole.design
        assert (fit.unusable, fit.clamped, fit.capped, fit.undeclared) == (4, 2, 2, 5)
        assert dict(fit.units) == {"99": 1, "4": 2, "1": 2}
        assert dict(fit.strata) == {"east": 1, "": 1, "North": 1}
        assert fit.empty == ("north 3", "south 5")
    assert whole.unread == dps.check(plan, frame.iloc[:0]).unread == ()
    assert "design: 4 rows of a weight that is missing or not positive: not used" in str(whole)
    assert "design: 2 declared units have no row: ['north 3', 'south 5']" in str(whole)
    hashed = replace(SURVEY, design=replace(SURVEY.design, units=None, total=10.0))
    huge = frame.assign(weight=[1e308, 1e308, *[np.nan] * 6])
    printed = str(dps.check(dps.plan(hashed, asked, budget=budget), huge))
    assert "mean of the weights 9 (declared 2), sum 18 (declared 10)" in printed
    lacking = dps.check(plan, frame.drop(columns=["school", "weight"]))
    assert (lacking.absent, lacking.design) == (("weight", "school"), None)
    wrong = dps.check(plan, frame.assign(weight="2,5", school="x"))
    assert wrong.unread == ("weight", "school")
    assert "no cell can be read of: 'weight', 'school'" in str(wrong)
