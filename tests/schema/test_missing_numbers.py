"""Numbers that may be missing: a code and a bin of their own, in every use of the column."""

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.cli import main
from dpstats.errors import ConditionError, RequestError, SchemaError
from dpstats.families.tables.cells import Cells
from dpstats.schema import MISSING_LABEL, Number, Schema

AGE = Number("age", 0, 100, points=11, edges=[20, 60], allow_missing=True)
SCORE = Number("score", values=[17.5, 22, 27], allow_missing=True)
PLAIN = Number("plain", -1, 1, points=5, allow_missing=True)
SCHEMA = Schema([AGE, SCORE, PLAIN])


def test_a_missing_cell_has_a_code_that_no_value_has():
    for column in SCHEMA.columns:
        (code,) = column.encode(pa.array([None], pa.float64())).tolist()
        assert code == column.missing_code == column.half_points + 1
        assert column.all_codes.tolist() == [*column.codes_in_use.tolist(), code]
        assert column.code_range == (-column.half_points, code)
        values = column.encode(pa.array([-1e9, 0.0, 22.0, 1e9, np.inf, -np.inf]))
        assert column.has_value(values).all()
        assert not column.has_value(np.array([code]))[0]


def test_every_code_decodes_and_encodes_to_itself():
    for column in SCHEMA.columns:
        values = column.decode(column.all_codes)
        assert values.dtype == np.float64
        assert np.isnan(values).tolist() == [False] * len(column.codes_in_use) + [True]
        again = column.encode(pa.array(values, from_pandas=True))
        np.testing.assert_array_equal(again, column.all_codes)


def test_the_last_bin_is_that_of_missing_cells():
    assert AGE.bin_labels == ("[0, 20)", "[20, 60)", "[60, 100]", MISSING_LABEL)
    assert SCORE.bin_labels == ("17.5", "22", "27", MISSING_LABEL)
    assert PLAIN.bin_labels == ("[-1, 1]", MISSING_LABEL)
    for column in SCHEMA:
        assert column.bins == column.value_bins + 1 == len(column.bin_labels)
        bins = column.bins_of(column.all_codes)
        assert bins[-1] == column.bins - 1
        assert (bins[:-1] < column.bins - 1).all()
        drawn = column.draw_inside(np.arange(column.bins).repeat(20), np.random.default_rng(0))
        np.testing.assert_array_equal(column.bins_of(drawn), np.arange(column.bins).repeat(20))


def test_units_lie_in_the_unit_interval_and_are_zero_where_missing():
    for column in SCHEMA.columns:
        units = column.units_of(column.all_codes)
        assert np.abs(units).max() == 1
        assert units[-1] == 0


CELLS = pd.DataFrame({
    "age": [None, 0, 19.99, 20, 59, 60, 100],
    "score": [22, None, 17.5, 27, 22, 22, None],
    "plain": [None, 0, 0, 0, 0, None, 1],
})  # fmt: skip


def test_conditions_are_those_of_pandas():
    for condition, expected in [
        ("age < 20", CELLS.age < 20),
        ("age >= 60", CELLS.age >= 60),
        ("not age < 20", ~(CELLS.age < 20)),  # as in pandas, of two values
        ("age != '(missing)'", CELLS.age.notna()),
        ("age == '(missing)'", CELLS.age.isna()),
        ("plain == '(missing)' or age < 20", CELLS.plain.isna() | (CELLS.age < 20)),
        ("score == 22", CELLS.score == 22),
        ("score != 22", CELLS.score != 22),
        ("score <= 22", CELLS.score <= 22),
        ("score in [22, '(missing)']", CELLS.score.isin([22]) | CELLS.score.isna()),
        ("score not in [22]", ~CELLS.score.isin([22])),
    ]:
        codes = SCHEMA.encode(pa.RecordBatch.from_pandas(CELLS))
        assert Cells.condition(SCHEMA, condition).sums(codes).tolist() == [expected.sum()]


def test_without_a_bin_for_missing_cells_conditions_cannot_name_it():
    schema = Schema([Number("age", 0, 100, edges=[20], missing=40)])
    with pytest.raises(ConditionError, match="is a number and cannot be compared"):
        Cells.condition(schema, "age == '(missing)'")
    with pytest.raises(ConditionError, match="cannot be compared with 'unknown'"):
        Cells.condition(SCHEMA, "age == 'unknown'")
    with pytest.raises(ConditionError, match="cannot be compared"):
        Cells.condition(SCHEMA, "age < '(missing)'")


def test_plain_forms_and_rules():
    assert Schema.from_dict(SCHEMA.to_dict()) == SCHEMA
    assert SCHEMA.to_dict()[0]["allow_missing"] is True
    assert (
        AGE.missing_rule()
        == "missing or not a number: counted as '(missing)'; outside: clamped to the bounds"
    )
    assert Number("age", 0, 100, points=11, edges=[20, 60]) != AGE
    AGE.require_missing("moments")
    with pytest.raises(RequestError, match=r"missing= .* or allow_missing=True, to use the rows"):
        Number("x", 0, 1).require_missing("moments")


def test_rules_that_exclude_each_other_are_refused():
    for options, message in [
        ({"allow_missing": True, "missing": 1}, r"missing= \(a value\) or allow_missing=True, not"),
        ({"allow_missing": 1}, "allow_missing must be true or false, got 1"),
    ]:
        with pytest.raises(SchemaError, match=message):
            Number("x", 0, 10, **options)


REFERENCES = [
    dps.Uniform(), dps.Uniform(over="grid"), dps.PerturbedHistogram(), dps.LogLinear(),
    dps.BernsteinKDE(),
]  # fmt: skip


def test_every_reference_draws_missing_cells_and_the_fit_gives_their_share(no_noise):
    for reference in REFERENCES:
        schema = Schema([AGE, Number("pay", 0, 10, points=21, edges=[5], missing=0)])
        rng = np.random.default_rng(1)
        frame = pd.DataFrame({
            "age": np.where(rng.random(600) < 0.25, np.nan, rng.integers(0, 100, 600)),
            "pay": rng.integers(0, 10, 600),
        })  # fmt: skip
        asked = {"mean": dps.Mean("age"), "table": dps.Marginals(["age", "pay"])}
        plan = dps.plan(schema, asked, budget=dps.PureDP(50), n=600, reference=reference)
        rows = dps.release(plan, frame, rng=0, m=3_000).to_frame()
        assert abs(rows["age"].isna().mean() - frame["age"].isna().mean()) < 0.02
        assert abs(rows["age"].mean() - frame["age"].mean()) < 2


def test_a_bernstein_density_names_the_numbers_it_can_cover():
    asked, reference = {"mean": dps.Mean("age")}, dps.BernsteinKDE(columns=["age"])
    with pytest.raises(RequestError, match=r"cannot cover \['age'\].* without allow_missing"):
        dps.plan(SCHEMA, asked, budget=dps.PureDP(1), n=600, reference=reference)
    with pytest.raises(RequestError, match="without allow_missing, and no analysis uses one"):
        dps.plan(SCHEMA, asked, budget=dps.PureDP(1), n=600, reference=dps.BernsteinKDE())


def test_dates_may_be_missing_too():
    column = Number("day", "2024-01-01", "2024-01-31", edges=["2024-01-15"], allow_missing=True)
    cells = pa.array([None, datetime.date(2024, 1, 3), datetime.date(2024, 1, 20)])
    codes = column.encode(cells)
    assert column.bins_of(codes).tolist() == [2, 0, 1]
    assert np.isnat(column.decode(codes)).tolist() == [True, False, False]
    assert column.decode(codes)[1:].astype(str).tolist() == ["2024-01-03", "2024-01-20"]
    again = Schema.from_dict(Schema([column]).to_dict())["day"]
    assert again == column
    assert again.allow_missing


END = "9999-12-31"
LIKERT = {"allow_missing": True, "missing_values": [8, 9]}


def test_codes_for_missing_cells_that_cannot_be_declared():
    bounds, days = {"low": 1, "high": 5}, {"low": "2024-01-01", "high": END, "missing": END}
    for options, message in [
        (bounds | {"missing_values": [9]}, r"'x'.* need missing= .* allow_missing"),
        (bounds | {"missing": 3, "missing_values": 9}, "'x': missing_values must be a list"),
        (bounds | {"missing": 3, "missing_values": "89"}, "missing_values must be a list"),
        (bounds | {"missing": 3, "missing_values": ["NA"]}, "'x': each of missing_values"),
        (bounds | {"missing": 3, "missing_values": [np.nan]}, "'x': each of missing_values"),
        (bounds | {"missing": 3, "missing_values": [True]}, "'x': each of missing_values"),
        ({"values": [1, 2], "missing": 1, "missing_values": [2.0]}, "'x'.* hold 2"),
        (days | {"missing_values": [1]}, "'x': each of missing_values must be a date"),
    ]:
        with pytest.raises(SchemaError, match=message):
            Number("x", **options)
    for levels, options, message in [
        ([1, 2], {"other": 2, "missing_values": [9]}, "'x'.* need missing="),
        (["a", "b"], {"missing": "a", "missing_values": ["b"]}, "'b' is a level"),
        ({"a": 1, "b": 2}, {"missing": "a", "missing_values": [2.0]}, "is a level"),
        (["1", "2"], {"missing": "1", "missing_values": [9]}, "'x' must be text"),
        ([1, 2], {"missing": 1, "missing_values": ["9"]}, "'x' must be a number"),
        (["a", "b"], {"missing": "a", "missing_values": [""]}, "an empty text"),
        ([1, 2], {"missing": 1, "missing_values": [2**53]}, "below 2"),
    ]:
        with pytest.raises(SchemaError, match=message):
            dps.Category("x", levels, **options)
    with pytest.raises(SchemaError, match="1 is a level"):
        dps.Boolean("x", allow_missing=True, missing_values=[1])


def test_codes_for_missing_cells_match_by_value():
    column = Number("x", 0, 120, edges=[60], missing=70, missing_values=np.array([0, -99.9]))
    assert column.missing_values == (0.0, -99.9)
    cells = pa.array([0.0, -0.0, -99.9, 99.9, None], pa.float32())  # the decimal that is stored
    assert (column.encode(cells) == column.missing_code).tolist() == [True, True, True, False, True]
    texts = pa.array(["0", "0.0", "-99.90", " -9.99e1 ", "00"])
    assert (column.encode(texts) == column.missing_code).all()
    text = dps.Category("x", ["a", "1"], other="a", allow_missing=True, missing_values=["9"])
    assert text.encode(pa.array([9.0, 1.0, 7.0])).tolist() == [2, 1, 0]
    assert text.encode(pa.array(["9", "9.0", "09", "7"])).tolist() == [2, 2, 2, 0]


def test_codes_for_missing_cells_are_in_every_file(tmp_path):
    columns = [
        Number("x", 1, 5, points=5, edges=[3], **LIKERT),
        Number("day", "2024-01-01", "2024-12-31", missing="2024-06-01", missing_values=[END]),
        dps.Category("c", ["a", "b"], other="b", allow_missing=True, missing_values=["refused"]),
        dps.Category("d", {"no": 1, "yes": 2}, missing="no", missing_values=[9, 8.5]),
        dps.Boolean("f", missing=False, missing_values=[9]),
    ]  # fmt: skip
    schema = Schema(columns)
    assert Schema.from_dict(schema.to_dict()) == schema
    assert Schema.from_frictionless(schema.to_frictionless()) == schema
    text = "[[column]]\nname = 'x'\nlow = 1\nhigh = 5\npoints = 5\nedges = [3]\n"
    (tmp_path / "s.toml").write_text(text + "allow_missing = true\nmissing_values = [8, 9]\n")
    assert Schema.load(tmp_path / "s.toml")["x"] == columns[0]
    assert "missing, 8, 9 or not a number: counted as '(missing)'" in str(schema)
    assert "missing or 'refused': counted as '(missing)'; undeclared: counted as 'b'" in str(schema)
    plain = [column.to_dict() for column in (Number("x", 1, 5), dps.Boolean("f"))]
    assert not any("missing_values" in keys for keys in plain)  # files of before are as they were


def test_a_mean_leaves_codes_for_missing_cells_out_wherever_it_is_read(tmp_path, no_noise):
    answers = np.repeat([1, 2, 3, 4, 5, 8, 9], [30, 20, 20, 20, 10, 5, 5])
    frame = pd.DataFrame({"x": answers})
    valid = answers[answers < 8].mean()
    schema = Schema([Number("x", 1, 5, points=5, edges=[2, 3, 4, 5], **LIKERT)])
    asked = {"mean": dps.Mean("x"), "high": dps.Proportion("x >= 4"), "x": dps.Marginals(["x"], 1)}
    plan = dps.plan(schema, asked, budget=dps.PureDP(100), n=len(frame))
    plan.save(tmp_path / "plan.json")
    release = dps.release(dps.Plan.load(tmp_path / "plan.json"), frame, rng=0)
    release.save(tmp_path / "release.zip")
    assert main(["verify", str(tmp_path / "plan.json")]) == 0
    release = dps.load(tmp_path / "release.zip")
    assert release.infer("mean").params[0] == pytest.approx(valid)
    assert release.infer("high").params[0] == pytest.approx((answers[answers < 8] >= 4).mean())
    assert release.to_frame()["x"].isna().mean() == pytest.approx(0.1 / 1.1, abs=0.02)


def test_a_value_of_published_rows_is_no_code_for_a_missing_cell():
    column = Number("age", 0, 100, points=101, edges=[50], missing=40, missing_values=[99])
    rows = pd.DataFrame({"age": [99, 10, 20, 30]})
    found = dps.corrected.infer(
        dps.Proportion("age >= 50"), rows, schema=Schema([column]), radius=0.01, n=1_000
    )
    assert found.params[0] == pytest.approx(0.25)
