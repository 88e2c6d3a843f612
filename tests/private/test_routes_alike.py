"""One survey, on every route: the same sums, and accepted or refused alike whatever a cell holds.

What a table is accepted for are the names of its columns. Its types are not looked at, since one
cell can decide them.
"""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

import dpstats as dps
from dpstats.schema import Boolean, Category, Number, Schema

SCHEMA = Schema([
    Category("word", ["no", "yes"], allow_missing=True),
    Category("digit", ["1", "2"], allow_missing=True),
    Category("grade", [0, 1, 2.5], missing=0, other=1),
    Boolean("flag", allow_missing=True),
    Number("x", 0, 8, points=9, edges=[1.5, 5], missing=5),
    Category("day", ["2024-05-01", "2024-05-02"], allow_missing=True),
    Number("pay", 1, 1000, points=4, edges=[20], scale="log", missing=20),
    Number("seen", "2024-01-01", "2024-12-31", edges=["2024-05-02"], missing="2024-06-01"),
    Number("trust", 1, 5, points=5, edges=[3], allow_missing=True, missing_values=[8, 9]),
    Number("left", "2020-01-01", "2024-12-31", edges=["2022-01-01"], allow_missing=True,
           missing_values=["9999-12-31", "2020-01-01"]),
    Category("party", ["1", "2", "else"], other="else", allow_missing=True,
             missing_values=["9", "refused"]),
    Number("wait", 0, 3000, points=3001, edges=[1], allow_missing=True, source="left - seen"),
    Number("odd", -50, 50, points=101, allow_missing=True, source="day - x"),  # never a number
])  # fmt: skip
# As a CSV file writes them; an empty text is a missing cell.
SURVEY = {
    "word": ["no", "yes", "Yes", "", "no"],
    "digit": ["1", "2", "3", "", "1"],
    "grade": ["0", "1", "2.5", "", "7"],
    "flag": ["true", "false", "true", "", "false"],
    "x": ["0", "1.5", "-3", "", "1e9"],
    "day": ["2024-05-01", "2024-05-02", "2024-05-03", "", "2024-05-01"],
    "pay": ["0", "19.5", "-3", "", "32"],
    "seen": ["2024-05-01", "2024-05-02", "1999-05-03", "", "2024-05-01"],
    "trust": ["1", "9", "3", "", "8"],
    "left": ["2020-01-01", "9999-12-31", "2023-05-01", "", "2021-01-01"],
    "party": ["1", "9", "refused", "", "7"],
}
EXPECTED = [[2, 1, 2], [2, 1, 2], [2, 2, 1], [2, 2, 1], [2, 1, 2], [2, 1, 2], [3, 2], [3, 2],
            [1, 1, 3], [1, 1, 3], [1, 0, 1, 3], [2, 2, 1], [0, 5]]  # fmt: skip
NATIVE = {"digit": int, "grade": float, "flag": lambda text: text == "true", "x": float,
          "pay": float, "trust": int, "party": int,
          **dict.fromkeys(["left", "day", "seen"], dt.datetime.fromisoformat)}  # fmt: skip


def native(name, text):
    """The number, bool or date that a text spells, None if it is empty."""
    try:
        return NATIVE.get(name, str)(text) if text else None
    except ValueError:
        return text


TEXTS = {name: [text or None for text in texts] for name, texts in SURVEY.items()}
NATIVES = {name: [native(name, text) for text in texts] for name, texts in SURVEY.items()}


def test_one_survey_has_the_same_sums(way, on_route, sums_of):
    """Its cells as text, and as numbers, bools and dates."""
    for cells in (NATIVES, TEXTS):
        assert sums_of(on_route(way, cells), SCHEMA) == (EXPECTED, 5)
    plan = dps.plan(SCHEMA, {"m": dps.Marginals(["word", "odd"], 1)}, budget=dps.PureDP(1))
    assert dps.check(plan, on_route(way, TEXTS)).rows == 5


DAYS = ["2024-05-01", "2024-05-02"]
MISSING = {"allow_missing": True}
# A declaration, the cells of a data frame with their type, and the sums.
SAVED = {
    "a missing cell makes floats": (
        Category("x", ["0", "1"], **MISSING), [0, 1, 1, None], "float", [1, 2, 1]),
    "levels with zeros before": (
        Category("x", ["01", "02"], **MISSING), [1, 2, 2, 3], "int", [1, 2, 1]),
    "bools": (Category("x", ["false", "true"], **MISSING), [False, True, True], "bool", [1, 2, 0]),
    "bools with a missing cell": (
        Category("x", ["FALSE", "TRUE"], **MISSING), [False, True, None], "object", [1, 1, 1]),
    "bools are not 0 and 1": (
        Category("x", ["0", "1"], **MISSING), [False, True, True], "bool", [0, 0, 3]),
    "float32 levels": (
        Category("x", [0.1, 0.2, 0.3, 0.7]), [0.1, 0.2, 0.3, 0.7], "float32", [1, 1, 1, 1]),
    "float32 text levels": (
        Category("x", ["0.1", "0.7"], **MISSING), [0.1, 0.7, None], "float32", [1, 1, 1]),
    "float32 at an edge": (Number("x", 0, 1, edges=[0.7]), [0.7, 0.6999999], "float32", [1, 1]),
    "times": (
        Category("x", DAYS, **MISSING),
        ["2024-05-01", "2024-05-02 08:30", "2024-05-03", None], "datetime64[ns]", [1, 1, 2]),
    "times in a zone": (
        Category("x", DAYS, **MISSING),
        ["2024-05-01 23:30+02:00", "2024-05-02 00:30+02:00"], "datetime64[ns, UTC+02:00]",
        [1, 1, 0]),
}  # fmt: skip


def test_a_frame_has_the_same_sums_as_the_files_it_writes(tmp_path, sums_of):
    for column, cells, dtype, expected in SAVED.values():
        series = pd.Series(cells, dtype=None if "datetime" in dtype else dtype)
        if "datetime" in dtype:
            series = pd.to_datetime(series, format="ISO8601").astype(dtype)
        frame = pd.DataFrame({"x": series})
        frame.to_csv(tmp_path / "rows.csv", index=False)
        frame.to_parquet(tmp_path / "rows.parquet")
        table = pa.table({"x": pa.array(series, from_pandas=True)})
        pl.from_arrow(table).write_csv(tmp_path / "polars.csv")
        scalars = series.to_numpy() if series.dtype == np.float32 else series
        objects = pd.DataFrame({"x": pd.Series(list(scalars), dtype=object)})
        for data in (frame, objects, table, tmp_path / "rows.csv", tmp_path / "rows.parquet",
                     tmp_path / "polars.csv", pd.read_csv(tmp_path / "rows.csv")):  # fmt: skip
            assert sums_of(data, Schema([column]))[0] == [expected]
