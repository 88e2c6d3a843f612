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
