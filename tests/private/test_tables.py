"""Every route into the kernel gives the integers of a pure Python loop."""

import math
import os
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, note, settings
from hypothesis import strategies as st

from dpstats.errors import DataError
from dpstats.families.tables.cells import Cells
from dpstats.private import sources
from dpstats.private.tables import exact_sums, open_source
from dpstats.schema import Category, Number, Schema

ODD = "é, \"quoted\"\n'ü'"
TYPES = {
    "word": pa.string(), "grade": pa.float64(), "flag": pa.bool_(), "x": pa.float64(),
    "y": pa.int64(), "score": pa.float64(), "ignored": pa.string(),
}  # fmt: skip
floats = st.one_of(
    st.none(),
    st.floats(),
    st.floats(-2, 3),
    st.sampled_from([0.0, -0.0, 0.3, 0.1 + 0.2, 1.1, math.nan, math.inf, -math.inf, 2.5, -1.0,
                     math.nextafter(0.3, 0), math.nextafter(1.1, 2), 5e-324, 1e308]),
)  # fmt: skip
words = st.sampled_from(["no", "yes", ODD, "Yes", "yes ", " no", "NA", "nan", "true"])
rows = st.fixed_dictionaries({
    "word": st.none() | words,
    "grade": st.none() | st.sampled_from([1.0, 2.5, -3.0, 1.5, math.nan, -0.0, math.inf]),
    "flag": st.none() | st.booleans(),
    "x": floats,
    "y": st.none() | st.integers(-3, 13) | st.integers(-(2**63), 2**63 - 1),
    "score": st.none() | st.sampled_from([17.5, 19.75, 19.76, 22.0, 24.5, 27.0, 99.0, math.nan]),
    "ignored": st.just("x"),
})  # fmt: skip


def arrow_table(rows):
    return pa.Table.from_pylist(rows, pa.schema(list(TYPES.items())))


def sums_of(data, schema, blocks):
    sums, n = exact_sums(open_source(data, schema), schema, blocks)
    return [block.tolist() for block in sums], n


def test_p36_every_route_gives_the_sums_of_a_loop(loop, on_every_route, monkeypatch):
    monkeypatch.setattr(sources, "BATCH_ROWS", 4)

    @given(rows=st.lists(rows, max_size=12))
    @example(rows=loop.random_rows(5, 0).to_pylist())  # one row is alone in the last batch
    @settings(max_examples=6)
    def check(rows):
        expected = loop.sums(loop.schema, loop.blocks, rows), len(rows)
        for route, data in on_every_route(arrow_table(rows)):
            note(route)  # the last one failed
            assert sums_of(data, loop.schema, loop.blocks) == expected

    check()


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
    for make, says in [
        (lambda _: "none.csv", "there is no file 'none.csv'"),
        (
            lambda folder: folder / "rows.xlsx",
            r"'rows.xlsx': only .csv, .tsv \(both also .gz\) and .parquet files",
        ),
        (lambda folder: folder / "broken.parquet", r"cannot be opened \(\w+\) and may be damaged"),
        (
            lambda _: [1, 2],
            "must be the path of a .csv, .tsv or .parquet file or of a .*; got list",
        ),
        (lambda _: None, "got NoneType"),
        (
            lambda _: pl.LazyFrame({"word": ["no"]}),
            "no column 'x'; the plan needs",
        ),
        (lambda _: pd.DataFrame({"word": ["no"], "X": [1]}), r"no column 'x'; .* \['word', 'X'\]$"),
        (lambda folder: folder / "first.csv", "first line of 'first.csv' has 2 fields"),
        (lambda _: pd.Series(["no"], name="word"), "a single column; pass a DataFrame"),
        (lambda folder: folder / "link.csv", r"'link\.csv' is not a file but a link to nothing"),
        (lambda folder: folder / "pipe.csv", r"'pipe\.csv' is not a file but a pipe"),
        (lambda _: pd.DataFrame([["no", 1, 2]], columns=["word", "x", "x"]), r"one column named"),
        (lambda _: pa.Table.from_arrays([["no"], [1], [2]], ["word", "x", "x"]), "more than one"),
        (lambda folder: folder / "twice.csv", r"more than one column named \['x'\]"),
    ]:
        (tmp_path / "rows.xlsx").write_text("secret")
        (tmp_path / "broken.parquet").write_text("secret")
        (tmp_path / "twice.csv").write_text("word,x,x\nno,1,2\n")
        (tmp_path / "first.csv").write_text("secret,1\nno,1\n")
        with pytest.raises(DataError, match=says) as refused:
            open_source(make(tmp_path), SMALL)
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


def test_a_file_whose_name_is_no_text(tmp_path):
    plain = tmp_path / "rows.csv"
    for write in (lambda: plain.write_text("word,x\nno,1\n"),
                  lambda: pd.DataFrame({"word": ["no"], "x": [1]}).to_parquet(plain)):  # fmt: skip
        write()
        end = ".csv" if plain.read_bytes().startswith(b"word") else ".parquet"
        other = Path(os.fsdecode(os.fsencode(tmp_path / "r") + b"\xff" + end.encode()))
        plain.rename(other)
        found, n = exact_sums(open_source(other, SMALL), SMALL, [Cells.table(SMALL, ["word"])])
        assert (found[0].sum(), n) == (1, 1)


def test_the_number_of_rows_is_known_where_it_costs_nothing(loop, on_every_route):
    unknown = ("csv", "tsv", "TSV", "arrow reader", "any stream", "duckdb", "polars, lazily",
               "dask", "ibis")  # fmt: skip
    for route, data in on_every_route(loop.random_rows(5, 0)):
        known = None if route.startswith(unknown) else 5
        assert open_source(data, loop.schema).rows == known, route
