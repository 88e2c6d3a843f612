"""Numbers that may be missing: a code and a bin of their own, in every use of the column."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpstats as dps
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
