"""Every route into the kernel gives the integers of a pure Python loop."""

import itertools
import math
import os

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dpstats.errors import DataError
from dpstats.families.tables.cells import Cells
from dpstats.private import sources
from dpstats.private.tables import exact_sums, open_source
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


def table_of(rows):
    return pa.table({
        name: pa.array(itertools.islice(itertools.cycle(cells), rows), kind)
        for name, (kind, cells) in CELLS.items()
    })  # fmt: skip


def sums_of(data, schema, blocks):
    sums, n = exact_sums(open_source(data, schema), schema, blocks)
    return [block.tolist() for block in sums], n


# One row is alone in the last batch.
@pytest.mark.parametrize(("rows", "batch_rows"), [(0, 4), (5, 4), (33, 16)])
def test_p36_every_route_gives_the_sums_of_a_loop(
    rows, batch_rows, loop, on_every_route, monkeypatch
):
    monkeypatch.setattr(sources, "BATCH_ROWS", batch_rows)
    table = table_of(rows)
    expected = loop.sums(loop.schema, loop.blocks, table.to_pylist()), rows
    for route, data in on_every_route(table):
        assert sums_of(data, loop.schema, loop.blocks) == expected, route


def test_a_polars_that_cannot_stream_is_read_whole(loop, every_route, monkeypatch):
    monkeypatch.delattr(pl.LazyFrame, "collect_batches", raising=False)
    table = loop.random_rows(30, 0)
    data = every_route["polars, lazily"](table, None, None)
    expected = loop.sums(loop.schema, loop.blocks, table.to_pylist())
    assert sums_of(data, loop.schema, loop.blocks) == (expected, 30)


# Structure


SMALL = Schema([Category("word", ["no", "yes"]), Number("x", 0, 1, edges=[0.5])])


def test_p33_p34_tables_of_a_wrong_structure_are_refused_before_rows_are_read(tmp_path):
    (tmp_path / "link.csv").symlink_to("nothing")
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "rows.xlsx").write_text("secret")
    (tmp_path / "broken.parquet").write_text("secret")
    (tmp_path / "broken.csv.gz").write_bytes(b"\x1f\x8bsecret")
    (tmp_path / "twice.csv").write_text("word,x,x\nno,1,2\n")
    (tmp_path / "first.csv").write_text("secret,1\nno,1\n")
    for data, says in [
        (tmp_path / "none.csv", "there is no file 'none.csv'"),
        (tmp_path / "rows.xlsx",
         r"'rows.xlsx': only .csv, .tsv \(both also .gz\) and .parquet files"),
        (tmp_path / "broken.parquet", r"cannot be opened \(\w+\) and may be damaged"),
        (tmp_path / "broken.csv.gz", r"cannot be opened \(\w+\) and may be damaged"),
        (tmp_path / "link.csv", r"'link\.csv' is not a file but a link to nothing"),
        (tmp_path / "pipe.csv", r"'pipe\.csv' is not a file but a pipe"),
        (tmp_path / "twice.csv", r"more than one column named \['x'\]"),
        (tmp_path / "first.csv", "first line of 'first.csv' has 2 fields"),
        ([1, 2], "must be the path of a .csv, .tsv or .parquet file or of a .*; got list"),
        (pl.LazyFrame({"word": ["no"]}), "no column 'x'; the plan needs"),
        (pd.DataFrame({"word": ["no"], "X": [1]}), r"no column 'x'; .* \['word', 'X'\]$"),
        (pd.Series(["no"], name="word"), "a single column; pass a DataFrame"),
        (pd.DataFrame([["no", 1, 2]], columns=["word", "x", "x"]), "more than one column named"),
        (pa.Table.from_arrays([["no"], [1], [2]], ["word", "x", "x"]), "more than one column"),
    ]:  # fmt: skip
        with pytest.raises(DataError, match=says) as refused:
            open_source(data, SMALL)
        assert "secret" not in str(refused.value)
        assert str(tmp_path) not in str(refused.value)


class Mixed(pd.arrays.IntegerArray):
    """A pandas column of its own kind whose cells Arrow cannot hold, and quotes."""

    def __arrow_array__(self, type=None):
        return pa.array([1.0, "secret"])


def test_a_pandas_column_that_arrow_cannot_hold_is_read_cell_by_cell():
    column = pd.Series(Mixed(np.array([1, 2]), np.zeros(2, bool)))
    with pytest.raises(pa.ArrowInvalid, match="'secret'"):
        pa.Array.from_pandas(column)
    frame = pd.DataFrame({"word": ["no", "no"], "x": column})
    assert sums_of(frame, SMALL, [Cells.table(SMALL, ["x"])]) == ([[0, 2]], 2)


def test_broken_text_is_an_undeclared_value_in_a_pandas_categorical_too():
    schema = Schema([Category("word", ["no", "yes"], missing="no", other="yes")])
    cells = pd.Series(["no", "secret\ud800", "secret\ud800", None], dtype="string[python]")
    for column in (cells, cells.astype("category")):
        source = open_source(pd.DataFrame({"word": column}), schema)
        (table,), _ = exact_sums(source, schema, [Cells.table(schema, ["word"])])
        assert table.tolist() == [2, 2]


def test_a_file_that_breaks_off_is_refused_without_a_cell(tmp_path):
    path = tmp_path / "rows.csv"
    for text in ("word,x\nno,1\nsecret,2,3\n", "word,x\nsecret\n", 'word,x\n"secret,1\nno,1\n'):
        path.write_text(text)
        source = open_source(path, SMALL)
        with pytest.raises(DataError, match=r"^a line has more or fewer fields than") as refused:
            exact_sums(source, SMALL, [Cells.table(SMALL, ["word"])])
        assert "secret" not in str(refused.value)
        assert refused.value.__context__ is None


def test_the_number_of_rows_is_known_where_it_costs_nothing(loop, on_every_route):
    for route, data in on_every_route(
        loop.random_rows(5, 0), ("parquet", "pandas", "arrow", "csv")
    ):
        known = None if route == "csv" else 5
        assert open_source(data, loop.schema).rows == known, route
