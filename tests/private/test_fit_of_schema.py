"""The fit of a schema: counts that agree with the codes, likely meanings, and no leak."""

import datetime
import logging
import math
import pickle
import re
import warnings
from contextlib import nullcontext

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.private import fit_of_schema
from dpstats.private.fit_of_schema import MOST_VALUES, SHOWN, TITLE

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
COUNTED = {  # missing, undeclared, clamped
    "sex": (1, 4, 0), "married": (1, 4, 0), "code": (1, 2, 0), "smoker": (1, 2, 0),
    "income": (1, 2, 2), "score": (1, 1, 1), "admitted": (1, 2, 1),
}  # fmt: skip


def plan_for(schema):
    return dps.plan(schema, {"m": dps.Marginals(list(schema.names), 1)}, budget=dps.PureDP(1))


@pytest.fixture(scope="module")
def plan():
    return plan_for(SCHEMA)


def counts(fit):
    return {c.name: (c.missing, c.undeclared, c.clamped) for c in fit.columns}


def test_the_counts_are_those_of_cells_outside_on_every_route(plan, tmp_path, monkeypatch):
    monkeypatch.setattr("dpstats.private.sources.BATCH_ROWS", 2)
    frame = pd.DataFrame(CELLS)
    frame.to_csv(tmp_path / "rows.csv", index=False, sep=";")
    frame.to_parquet(tmp_path / "rows.parquet")
    routes = [frame, frame.astype(object), pl.from_pandas(frame), pa.table(frame).to_reader(),
              frame.astype("category"), tmp_path / "rows.csv",
              tmp_path / "rows.parquet"]  # fmt: skip
    for data in routes:
        fit = dps.check(plan, data)
        assert fit.rows == 6
        assert counts(fit) == COUNTED
        assert [c.commonest for c in fit.columns] == [
            (("Male", 2), ("m", 1), ("male ", 1)),
            (("1", 2), ("0", 1), ("maybe", 1)),
            (("2,5", 1), ("9", 1)),
            (("no", 1), ("yes", 1)),
            (("-3", 1), ("1,5", 1), ("1.234,5", 1), ("1e9", 1)),
            (("18", 1), ("x", 1)),
            (("19000", 1), ("2.5.2024", 1), ("2025-01-01", 1)),
        ]


def test_it_says_what_the_values_may_mean(plan):
    advice = {c.name: c.advice for c in dps.check(plan, pd.DataFrame(CELLS, dtype=object)).columns}
    assert advice == {
        "sex": ("'Male': did you mean 'male'?", "'male ': did you mean 'male'?"),
        "married": ("'1': did you mean 'yes'?", "'0': did you mean 'no'?"),
        "code": ("'2,5': did you mean 2.5?",),
        "smoker": (
            "'no': did you mean False?",
            "'yes': did you mean True?",
            "a Boolean reads true, false, 1 and 0; for other texts declare levels, such as "
            "['no', 'yes'], and no boolean",
        ),
        "income": (
            "a decimal comma, as in '1,5': write a decimal point, or declare decimal = ',' under "
            "[file] of the schema if the file is text",
            "thousands separators, as in '1.234,5': write plain numbers",
        ),
        "score": (),
        "admitted": (
            "numbers such as '19000', where dates are declared",
            "dates such as '2.5.2024': write them as 2024-05-01",
        ),
    }


@pytest.fixture
def texts_are_text():
    """Columns of text are not Python objects, which they were before pandas 3."""
    earlier = int(pd.__version__.split(".")[0]) < 3
    with pd.option_context("future.infer_string", True) if earlier else nullcontext():
        yield


def test_other_forms_of_a_value_are_recognised(texts_are_text):
    for column, cells, says in [
        (
            dps.Number("v", 0, 9, edges=[5]),
            ["1", "2"],
            "stored as text; cells that are numbers are read as n",
        ),
        (
            dps.Number("v", "2020-01-01", "2021-01-01", edges=["2020-06-01"]),
            ["2020-01-01"],
            "cells that are dates are",
        ),
        (
            dps.Number("v", 0, 9, edges=[5]),
            pd.to_datetime(["2020-01-01"]),
            "stored as dates; declare low and",
        ),
        (
            dps.Number("v", 0, 9, edges=[5]),
            ["2020-01-01"],
            "dates such as '2020-01-01' as text: declare low",
        ),
        (
            dps.Number("v", 0, 9, edges=[5]),
            ["1.5.2020"],
            "write them as 2024-05-01 and declare low and high",
        ),
        (dps.Number("v", 0, 9, edges=[5]), ["1 234"], "thousands separators, as in '1 234'"),
        (
            dps.Number("v", 0, 9, edges=[5]),
            ["1,234"],
            "thousands separators, or a decimal comma, as in",
        ),
        (dps.Number("v", 0, 9, edges=[5]), ["1'234'567.8"], "thousands separators, as in"),
        (dps.Category("v", ["no", "yes"]), [False, True], "'true': did you mean 'yes'"),
        (dps.Category("v", ["no", "yes"]), [0.0, 1.0], "'1': did you mean 'yes'"),
        (dps.Category("v", {"low": 1, "high": 2}), ["low", 2], "'low': did you mean 1?"),
        (dps.Category("v", {"low": "a", "high": "b"}), ["LOW"], "'LOW': did you mean 'a'?"),
        (dps.Category("v", ["false", "true"]), [0, 1], "'0': did you mean 'false'"),
        (dps.Category("v", ["north", "south"]), ["nroth"], "'nroth': did you mean 'north'"),
        (dps.Category("v", ["1.5", "2", "3"]), ["1,5"], "'1,5': did you mean '1.5'"),
        (dps.Category("v", ["é", "b"]), ["e\u0301"], "did you mean 'é'"),
    ]:
        fit = dps.check(plan_for(dps.Schema([column])), pd.DataFrame({"v": cells}))
        assert any(says in line for line in fit.columns[0].advice), fit


def test_it_prints_well_and_says_that_it_is_not_private(plan):
    fit = dps.check(plan, pd.DataFrame(CELLS))
    for text in (repr(fit), str(fit), fit._repr_html_()):
        assert "not private: do not publish" in text
        assert "did you mean" in text
    assert repr(fit).startswith(TITLE)
    assert '<th scope="row">sex</th><td>1</td><td>4</td><td>0</td>' in fit._repr_html_()
    frame = fit.to_frame()
    assert list(frame) == ["column", "missing", "undeclared", "clamped", "commonest", "advice"]
    assert frame["undeclared"].tolist() == [c[1] for c in COUNTED.values()]
    good = pd.DataFrame({"sex": ["male"], "married": ["no"], "code": [1], "smoker": [True],
                         "income": [3], "score": [22], "admitted": ["2020-05-01"]})  # fmt: skip
    assert "every cell that is not missing fits its declaration" in str(dps.check(plan, good))


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


def test_columns_that_are_absent_are_shown_with_what_there_is(plan, tmp_path):
    frame = pd.DataFrame(CELLS).rename(columns={"sex": "Sex ", "married": "m"})
    fit = dps.check(plan, frame)
    assert fit.absent == ("sex", "married")
    assert "the table has no column 'sex': did you mean 'Sex '?" in str(fit)
    assert "it has 7 columns: 'Sex ', 'm', 'code'" in str(fit)
    assert counts(fit)["income"] == COUNTED["income"]
    (tmp_path / "rows.csv").write_text("person;SEX ;2019\nAnn;female;1\n")
    fit = dps.check(plan, tmp_path / "rows.csv")
    assert (fit.rows, fit.columns) == (0, ())
    assert "'rows.csv' has 3 fields, separated by semicolons: 'person', 'SEX ', '2019'" in str(fit)


def test_a_table_without_its_header_line_is_refused_once_and_not_quoted(plan, tmp_path):
    for first in ["Ann;44;sure\n", "Ann;female;sure\n", "Ann;2.5;44", "\n", ""]:
        (tmp_path / "rows.csv").write_text(first)
        with pytest.raises(dps.DataError) as refused:
            dps.check(plan, tmp_path / "rows.csv")
        said = str(refused.value)
        assert said.startswith("the table lacks its header line: the first line of 'rows.csv' has ")
        assert "Put a line with the names of all columns" in said
        assert said.endswith("; the schema has " + str(list(SCHEMA.names)))
        assert ("looks like a row" in said) == bool(first.strip())
        for cell in ("Ann", "female", "44", "sure"):
            assert cell not in said


def test_common_values_are_found_in_bounded_memory(monkeypatch):
    monkeypatch.setattr("dpstats.private.sources.BATCH_ROWS", 3_000)
    schema = dps.Schema([dps.Category("word", ["no", "yes"])])
    rng = np.random.default_rng(0)
    rare = [f"rare {i}" for i in range(9_000)]
    cells = np.array([*rare, *["common"] * 1_000, "x" * 10**6], dtype=object)
    fit = dps.check(plan_for(schema), pa.table({"word": rng.permutation(cells)}))
    (column,) = fit.columns
    assert column.undeclared == len(cells)
    assert column.commonest[0][0] == "common"
    assert column.commonest[0][1] == 1_000
    assert len(column.commonest) == SHOWN
    tally = fit_of_schema._Tally(schema["word"])
    for start in range(0, len(cells), 500):
        tally.add(pa.array(cells[start : start + 500]))
        assert len(tally.values) <= MOST_VALUES
        assert max(map(len, tally.values)) <= fit_of_schema.LONGEST


def test_days_beyond_the_calendar_are_counted():
    schema = dps.Schema([dps.Number("v", "2020-01-01", "2021-01-01", edges=["2020-06-01"])])
    far = pa.array([10**12, -(10**12), 0], pa.timestamp("s"))
    (column,) = dps.check(plan_for(schema), pa.table({"v": far})).columns
    assert column.clamped == 3
    assert ("day 11574074 from 1970-01-01", 1) in column.commonest


def test_control_characters_of_a_cell_do_not_reach_the_terminal(plan):
    fit = dps.check(plan, pd.DataFrame(CELLS | {"sex": ["\x1b[2J\r"] * 6}))
    assert "\x1b" not in str(fit) + repr(fit) + fit._repr_html_()


def test_it_is_silent_and_spends_nothing(plan, caplog, capsys, tmp_path):
    with caplog.at_level(logging.DEBUG), warnings.catch_warnings():
        warnings.simplefilter("error")
        fit = dps.check(plan, pd.DataFrame(CELLS))
    assert (caplog.records, capsys.readouterr()) == ([], ("", ""))
    assert pickle.loads(pickle.dumps(fit)) == fit


def test_a_table_that_cannot_be_read_is_refused_without_a_cell(plan, tmp_path):
    path = tmp_path / "rows.csv"
    pd.DataFrame(CELLS).to_csv(path, index=False)
    path.write_text(path.read_text() + "secret,2\n")
    with pytest.raises(dps.DataError, match=r"line 8 has more or fewer fields than") as refused:
        dps.check(plan, path)
    assert "secret" not in str(refused.value)
    assert refused.value.__context__ is None
    for frame in refused.traceback:  # its frames hold no cell
        if "dpstats/private" in str(frame.path):
            assert "Male" not in str(frame.frame.f_locals)
    with pytest.raises(dps.RequestError, match=r"check needs a plan, made by dps\.plan; got Sch"):
        dps.check(SCHEMA, path)


def test_a_cell_fits_however_a_table_spells_it(tmp_path):
    schema = dps.Schema([
        dps.Category("digit", ["0", "1"]),
        dps.Category("flag", ["false", "true"]),
        dps.Category("share", [0.1, 0.7]),
        dps.Category("day", ["2024-05-01", "2024-05-02"]),
        dps.Number("score", values=[0.1, 0.7]),
    ])  # fmt: skip
    frame = pd.DataFrame({
        "digit": [0.0, 1.0, math.nan],
        "flag": [True, False, True],
        "share": np.array([0.1, 0.7, 0.3], np.float32),
        "day": pd.to_datetime(["2024-05-01", "2024-05-02 08:30", None], format="ISO8601"),
        "score": np.array([0.1, 0.7, 0.3], np.float32),
    })  # fmt: skip
    frame.to_csv(tmp_path / "rows.csv", index=False)
    for data in (frame, tmp_path / "rows.csv"):
        found = counts(dps.check(plan_for(schema), data))
        assert found == {"digit": (1, 0, 0), "flag": (0, 0, 0), "share": (0, 1, 0),
                         "day": (1, 0, 0), "score": (0, 0, 1)}  # fmt: skip


def test_cells_without_a_value_are_counted_as_the_guide_says():
    """The table in docs/explanation/inference/missing-and-bad-values.md."""
    for cell, number, text in [
        ("", "missing", "missing"), (None, "missing", "missing"), (math.nan, "missing", "missing"),
        ("NaN", "missing", "undeclared"), ("NA", "undeclared", "undeclared"),
        ("null", "undeclared", "undeclared"), ("five", "undeclared", "undeclared"),
        (datetime.date(2024, 5, 1), "undeclared", "undeclared"), ([1], "undeclared", "undeclared"),
    ]:  # fmt: skip
        schema = dps.Schema(
            [dps.Number("x", 0, 9, edges=[5], missing=5), dps.Category("c", ["no", "yes"])]
        )
        frame = pd.DataFrame(
            {"x": pd.Series([cell, 1]), "c": pd.Series([cell, "yes"])}, dtype=object
        )
        found = dps.check(plan_for(schema), frame).columns
        assert [column.missing for column in found] == [
            kind == "missing" for kind in (number, text)
        ]
        assert [column.undeclared for column in found] == [
            kind == "undeclared" for kind in (number, text)
        ]


def test_a_blank_line_is_a_row_of_a_single_column_alone(tmp_path):
    """As docs/explanation/inference/missing-and-bad-values.md says."""
    one = dps.Schema([dps.Number("x", 0, 9, edges=[5], missing=0)])
    two = dps.Schema([*one, dps.Number("y", 0, 9, edges=[5], missing=0)])
    path = tmp_path / "rows.csv"
    for schema, line, rows in ((one, "1\n", 4), (two, "1,1\n", 2)):
        path.write_text(",".join(schema.names) + "\n" + line + "\n" + line + "\n")
        fit = dps.check(plan_for(schema), path)
        assert (fit.rows, fit.columns[0].missing) == (rows, rows - 2)


def test_codes_for_missing_cells_are_counted_and_asked_about():
    cells = {"x": [1, 5, 9, 9, None, 40], "c": ["a", "b", "9", "9", None, "z"]}
    bare = [{"missing": 3}, {"other": "b", "allow_missing": True}]
    coded = [bare[0] | {"missing_values": [9]}, bare[1] | {"missing_values": ["9"]}]
    found = []
    for number, level in (bare, coded):
        columns = [
            dps.Number("x", 1, 5, edges=[3], **number),
            dps.Category("c", ["a", "b"], **level),
        ]
        fit = dps.check(plan_for(dps.Schema(columns)), pd.DataFrame(cells))
        found.append((counts(fit), [column.advice for column in fit.columns]))
    asked = [
        ("9 appears 2 times outside the declaration: a missing code? Then list it in "
         "missing_values",),
        ("9 appears 2 times and is no level: a missing code? Then list it in missing_values",),
    ]  # fmt: skip
    assert found == [
        ({"x": (1, 0, 3), "c": (1, 3, 0)}, asked),
        ({"x": (3, 0, 1), "c": (3, 1, 0)}, [(), ()]),
    ]


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (pa.array([[1], [2], None]), "stored as 'list<item: int64>': no cell of that kind is read"),
        (pa.array([{"a": 1}] * 3), "stored as 'struct<a: int64>': no cell"),
        (pa.array([[("a", 1)]] * 3, pa.map_(pa.string(), pa.int64())), "stored as 'map<string"),
        (pa.array([1, 2, 3], pa.duration("s")), r"stored as 'duration\[s\]': no cell"),
        (pd.Series([[1], [2], [3]]), "stored as objects such as lists: no cell"),
        (pa.array([None] * 3, pa.list_(pa.int8())), None),
        (pa.UnionArray.from_dense(pa.array([0] * 3, pa.int8()), pa.array([0, 1, 2], pa.int32()),
                                  [pa.array([1, 0, 7])]), None),
    ],
)  # fmt: skip
def test_cells_of_several_values_are_named(cells, said):
    kind = pd.DataFrame if isinstance(cells, pd.Series) else pa.table
    schema = dps.Schema([dps.Number("x", 0, 1, missing=0)])
    plan = dps.plan(schema, {"m": dps.Mean("x")}, budget=dps.PureDP(1))
    (column,) = dps.check(plan, kind({"x": cells})).columns
    assert (column.advice == ()) if said is None else re.match(said, column.advice[0])


def test_a_delimiter_that_does_not_fit_is_named(tmp_path):
    for mark, declared in [("|", None), ("|", ","), (";", ","), ("\t", "|")]:
        (tmp_path / "rows.csv").write_text(mark.join(["x", "y"]) + "\n" + mark.join("11") + "\n")
        schema = dps.Schema([dps.Boolean("x"), dps.Boolean("y")],
                            file=declared and {"delimiter": declared})  # fmt: skip
        plan = dps.plan(schema, {"m": dps.Marginals(["x", "y"], 1)}, budget=dps.PureDP(1))
        fit = dps.check(plan, tmp_path / "rows.csv")
        assert fit.absent == ("x", "y")
        assert f"declare delimiter = {mark!r} under [file]" in str(fit)
        (tmp_path / "rows.csv").write_text("x_y,z\n1,1\n")
        assert "delimiter" not in str(dps.check(plan, tmp_path / "rows.csv"))
