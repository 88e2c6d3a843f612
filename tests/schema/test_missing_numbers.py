"""Numbers that may be missing: a code and a bin of their own, in every use of the column."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.cli import main
from dpstats.errors import SchemaError
from dpstats.families.tables.cells import Cells
from dpstats.schema import Number, Schema

AGE = Number("age", 0, 100, points=11, edges=[20, 60], allow_missing=True)
SCORE = Number("score", values=[17.5, 22, 27], allow_missing=True)
PLAIN = Number("plain", -1, 1, points=5, allow_missing=True)
SCHEMA = Schema([AGE, SCORE, PLAIN])


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


END = "9999-12-31"
LIKERT = {"allow_missing": True, "missing_values": [8, 9]}


def test_codes_for_missing_cells_that_cannot_be_declared():
    bounds, days = {"low": 1, "high": 5}, {"low": "2024-01-01", "high": END, "missing": END}
    for options in [
        bounds | {"missing_values": [9]}, bounds | {"missing": 3, "missing_values": 9},
        bounds | {"missing": 3, "missing_values": "89"},
        bounds | {"missing": 3, "missing_values": ["NA"]},
        bounds | {"missing": 3, "missing_values": [np.nan]},
        bounds | {"missing": 3, "missing_values": [True]},
        {"values": [1, 2], "missing": 1, "missing_values": [2.0]}, days | {"missing_values": [1]},
    ]:  # fmt: skip
        with pytest.raises(SchemaError, match="'x'"):
            Number("x", **options)
    for levels, options in [
        ([1, 2], {"other": 2, "missing_values": [9]}),
        (["a", "b"], {"missing": "a", "missing_values": ["b"]}),
        ({"a": 1, "b": 2}, {"missing": "a", "missing_values": [2.0]}),
        (["1", "2"], {"missing": "1", "missing_values": [9]}),
        ([1, 2], {"missing": 1, "missing_values": ["9"]}),
        (["a", "b"], {"missing": "a", "missing_values": [""]}),
        ([1, 2], {"missing": 1, "missing_values": [2**53]}),
    ]:  # fmt: skip
        with pytest.raises(SchemaError, match="'x'"):
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
