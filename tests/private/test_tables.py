"""Every route into the kernel gives the integers of a pure Python loop."""

import itertools
import math
import os

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dpstats.errors import DataError
from dpstats.private import sources
from dpstats.private.tables import open_source
from dpstats.schema import Category, Number, Schema

# Cells of every column, in cycles of lengths without a common factor.
CELLS = {
    "word": (pa.string(), ["no", "yes", "é, \"quoted\"\n'ü'", "Yes", "yes ", " no", "NA", "nan",
                           "true", None, "NaN"]),
    "grade": (pa.float64(), [1, 2.5, None, -3, 1.5, math.nan, -0.0]),
    "flag": (pa.bool_(), [True, None, False]),
    "x": (pa.float64(), [0.0, -0.0, 0.3, 0.1 + 0.2, 1.1, math.nan, math.inf, -math.inf, 2.5, -1.0,
                         math.nextafter(0.3, 0), math.nextafter(1.1, 2), 5e-324, 1e308, None, 0.7,
                         1.9]),
    "y": (pa.int64(), [0, 5, None, 2**63 - 1, -(2**63), 13, 2**53 + 1, -3, 10, 3, 6, 1, 9]),
    "score": (pa.float64(), [17.5, 19.75, None, 19.76, 99.0]),
    "ignored": (pa.string(), ["x"]),
}  # fmt: skip


@pytest.mark.parametrize("rows", [0, 33])  # one row is alone in the last batch
def test_p36_every_route_gives_the_sums_of_a_loop(
    rows, loop, sums_of, on_route, every_way, monkeypatch
):
    monkeypatch.setattr(sources, "BATCH_ROWS", 16)
    table = pa.table({
        name: pa.array(itertools.islice(itertools.cycle(cells), rows), kind)
        for name, (kind, cells) in CELLS.items()
    })  # fmt: skip
    expected = loop.of(table)
    for way in every_way:
        assert sums_of(on_route(way, table), loop.schema, loop.blocks) == expected, way


def test_a_polars_that_cannot_stream_is_read_whole(loop, sums_of, on_route, monkeypatch):
    monkeypatch.delattr(pl.LazyFrame, "collect_batches", raising=False)
    table = loop.random_rows(30, 0)
    data = on_route("polars, lazily", table)
    assert sums_of(data, loop.schema, loop.blocks) == loop.of(table)


def test_p33_p34_tables_of_a_wrong_structure_are_refused_before_rows_are_read(tmp_path):
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
        schema = Schema([Category("word", ["no", "yes"]), Number("x", 0, 1, edges=[0.5])])
        with pytest.raises(DataError, match=says) as refused:
            open_source(tmp_path / data if isinstance(data, str) else data, schema)
        assert "secret" not in str(refused.value)
        assert str(tmp_path) not in str(refused.value)


def test_broken_text_is_an_undeclared_value_in_a_pandas_categorical_too(sums_of):
    schema = Schema([Category("word", ["no", "yes"], missing="no", other="yes")])
    cells = pd.Series(["no", "secret\ud800", "secret\ud800", None], dtype="string[python]")
    for column in (cells, cells.astype("category")):
        assert sums_of(pd.DataFrame({"word": column}), schema) == ([[2, 2]], 4)
