"""Every route into the kernel gives the integers of a pure Python loop."""

import datetime as dt
import os

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.private import sources
from dpstats.private.tables import open_source


def test_p36_every_route_gives_the_sums_of_a_loop(loop, sums_of, on_route, routes, monkeypatch):
    monkeypatch.setattr(sources, "BATCH_ROWS", 16)
    for rows in (0, 33):  # one row is alone in the last batch
        table = loop.rows(rows)
        expected = loop.of(table)
        for way in routes.every:
            assert sums_of(on_route(way, table), loop.schema, loop.blocks) == expected, way


def test_a_polars_that_cannot_stream_is_read_whole(loop, sums_of, on_route, monkeypatch):
    monkeypatch.delattr(pl.LazyFrame, "collect_batches", raising=False)
    table = loop.rows(30)
    data = on_route("polars, lazily", table)
    assert sums_of(data, loop.schema, loop.blocks) == loop.of(table)


def test_p33_p34_tables_of_a_wrong_structure_are_refused_before_rows_are_read(tmp_path):
    schema = dps.Schema([dps.Category("word", ["no", "yes"]), dps.Number("x", 0, 1, edges=[0.5])])
    (tmp_path / "link.csv").symlink_to("nothing")
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "rows.xlsx").write_text("secret")
    (tmp_path / "broken.parquet").write_text("secret")
    (tmp_path / "broken.csv.gz").write_bytes(b"\x1f\x8bsecret")
    (tmp_path / "twice.csv").write_text("word,x,x\nno,1,2\n")
    (tmp_path / "first.csv").write_text("secret,1\nno,1\n")
    for data, says in [
        ("none.csv", "there is no file 'none.csv'"),
        ("rows.xlsx", r"'rows.xlsx': only .csv, .tsv \(both also .gz\) and .parquet files"),
        ("broken.parquet", r"cannot be opened \(\w+\) and may be damaged"),
        ("broken.csv.gz", r"cannot be opened \(\w+\) and may be damaged"),
        ("link.csv", r"'link\.csv' is not a file but a link to nothing"),
        ("pipe.csv", r"'pipe\.csv' is not a file but a pipe"),
        ("twice.csv", r"more than one column named \['x'\]"),
        ("first.csv", "first line of 'first.csv' has 2 fields"),
        ([1, 2], "must be the path of a .csv, .tsv or .parquet file or of a .*; got list"),
        (pl.LazyFrame({"word": ["no"]}), "no column 'x'; the plan needs"),
        (pd.DataFrame({"word": ["no"], "X": [1]}), r"no column 'x'; .* \['word', 'X'\]$"),
        (pd.Series(["no"], name="word"), "a single column; pass a DataFrame"),
        (pd.DataFrame([["no", 1, 2]], columns=["word", "x", "x"]), "more than one column named"),
        (pa.Table.from_arrays([["no"], [1], [2]], ["word", "x", "x"]), "more than one column"),
    ]:
        with pytest.raises(dps.DataError, match=says) as refused:
            open_source(tmp_path / data if isinstance(data, str) else data, schema)
        assert "secret" not in str(refused.value)
        assert str(tmp_path) not in str(refused.value)


class Mixed(pd.arrays.IntegerArray):
    """A pandas column of its own kind whose cells Arrow cannot hold, and quotes."""

    def __arrow_array__(self, type=None):
        return pa.array([1.0, "secret"])


def test_cells_of_pandas_that_arrow_cannot_hold_are_read_one_by_one(sums_of):
    column = pd.Series(Mixed(np.array([1, 2]), np.zeros(2, bool)))
    schema = dps.Schema([dps.Number("x", 0, 3, edges=[2])])
    assert sums_of(pd.DataFrame({"x": column}), schema) == ([[1, 1]], 2)
    schema = dps.Schema([dps.Category("word", ["no", "yes"], missing="no", other="yes")])
    cells = pd.Series(["no", "secret\ud800", "secret\ud800", None], dtype="string[python]")
    for column in (cells, cells.astype("category")):
        assert sums_of(pd.DataFrame({"word": column}), schema) == ([[2, 2]], 4)


MISSING = {"allow_missing": True}
SURVEY = dps.Schema([
    dps.Category("digit", ["1", "2"], **MISSING),
    dps.Boolean("flag", **MISSING),
    dps.Category("day", ["2024-05-01", "2024-05-02"], **MISSING),
    dps.Number("pay", 1, 1000, points=4, edges=[20], scale="log", missing=20),
    dps.Number("trust", 1, 5, points=5, edges=[3], **MISSING, missing_values=[8, 9]),
    dps.Number("left", "2020-01-01", "2024-12-31", edges=["2022-01-01"], **MISSING,
               missing_values=["9999-12-31", "2020-01-01"]),
    dps.Category("party", ["1", "2", "else"], other="else", missing_values=["9", "refused"],
                 **MISSING),
    dps.Number("wait", 0, 3000, points=3001, edges=[1], **MISSING, source="left - day"),
    dps.Number("odd", -50, 50, points=101, **MISSING, source="day - pay"),  # never a number
])  # fmt: skip
# As a CSV file writes them, with a missing cell; the types of their values; and the sums.
TEXTS = {
    "digit": ["1", "2", "3", None, "1"],
    "flag": ["true", "false", "true", None, "false"],
    "day": ["2024-05-01", "2024-05-02", "1999-05-03", None, "2024-05-01"],
    "pay": ["0", "19.5", "-3", None, "32"],
    "trust": ["1", "9", "3", None, "8"],
    "left": ["2020-01-01", "9999-12-31", "2023-05-01", None, "2021-01-01"],
    "party": ["1", "9", "refused", None, "7"],
}
VALUES = {"digit": int, "flag": lambda text: text == "true", "pay": float,
          "trust": int, "party": lambda text: int(text) if text.isdigit() else text,
          "day": dt.datetime.fromisoformat, "left": dt.datetime.fromisoformat}  # fmt: skip
EXPECTED = [[2, 1, 2], [2, 2, 1], [2, 1, 2], [3, 2], [1, 1, 3], [1, 1, 3], [1, 0, 1, 3], [2, 2, 1],
            [0, 5]]  # fmt: skip


def test_one_survey_has_the_same_sums(way, on_route, sums_of):
    """Its cells as text, and as numbers, bools and dates."""
    values = {n: [c and VALUES[n](c) for c in cells] for n, cells in TEXTS.items()}
    for cells in (values, TEXTS):
        assert sums_of(on_route(way, cells), SURVEY) == (EXPECTED, 5)
    plan = dps.plan(SURVEY, {"m": dps.Marginals(["flag", "odd"], 1)}, budget=dps.PureDP(1))
    assert dps.check(plan, on_route(way, TEXTS)).rows == 5


DAYS = dps.Category("x", ["2024-05-01", "2024-05-02"], **MISSING)
# A declaration, the cells of a data frame with their type, and the sums.
SAVED = [
    (dps.Category("x", ["0", "1"], **MISSING), [0, 1, 1, None], "float", [1, 2, 1]),
    (dps.Category("x", ["01", "02"], **MISSING), [1, 2, 2, 3], "int", [1, 2, 1]),
    (dps.Category("x", ["false", "true"], **MISSING), [False, True, True], "bool", [1, 2, 0]),
    (dps.Category("x", ["FALSE", "TRUE"], **MISSING), [False, True, None], "object", [1, 1, 1]),
    (dps.Category("x", ["0", "1"], **MISSING), [False, True, True], "bool", [0, 0, 3]),
    (dps.Category("x", [0.1, 0.2, 0.3, 0.7]), [0.1, 0.2, 0.3, 0.7], "float32", [1, 1, 1, 1]),
    (dps.Category("x", ["0.1", "0.7"], **MISSING), [0.1, 0.7, None], "float32", [1, 1, 1]),
    (dps.Number("x", 0, 1, edges=[0.7]), [0.7, 0.6999999], "float32", [1, 1]),
    (DAYS, ["2024-05-01", "2024-05-02 08:30", "2024-05-03", None], "datetime64[ns]", [1, 1, 2]),
    (DAYS, ["2024-05-01 23:30+02:00", "2024-05-02 00:30+02:00"], "datetime64[ns, UTC+02:00]",
     [1, 1, 0]),
]  # fmt: skip


def test_a_frame_has_the_same_sums_as_the_files_it_writes(tmp_path, sums_of):
    for column, cells, dtype, expected in SAVED:
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
            assert sums_of(data, dps.Schema([column]))[0] == [expected]
