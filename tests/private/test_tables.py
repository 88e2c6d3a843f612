"""Every route into the kernel gives the integers of a pure Python loop."""

import csv
import math
import os
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, note, settings
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
tables = st.lists(rows, min_size=1, max_size=12)


def arrow_table(rows, **types):
    kinds = TYPES | types
    return pa.table({
        name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()
    })  # fmt: skip


def in_pieces(table):
    """The table in chunks of one, two, one, two... rows."""
    starts = [start for start in range(table.num_rows) if start % 3 != 2]
    sizes = [1 if start % 3 == 0 else 2 for start in starts]
    parts = zip(starts, sizes, strict=True)
    return pa.concat_tables([table.slice(start, size) for start, size in parts])


def own_dictionaries(rows):
    """Chunks whose dictionaries differ in order and in values, null included."""
    chunks = []
    for i, row in enumerate(rows):
        words = pa.array(
            ["zebra", row["word"], None] if i % 2 else [row["word"], "ape"], pa.string()
        )
        grades = pa.array([row["grade"], 77.0], pa.float64())
        word = pa.DictionaryArray.from_arrays(pa.array([i % 2], pa.int8()), words)
        grade = pa.DictionaryArray.from_arrays(pa.array([0], pa.uint16()), grades)
        plain = arrow_table([row]).drop_columns(["word", "grade"])
        chunks.append(plain.append_column("word", word).append_column("grade", grade))
    return pa.concat_tables(chunks)


def csv_file(rows, folder):
    path = folder / "rows.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(TYPES)
        for row in rows:
            writer.writerow([None if row[name] != row[name] else row[name] for name in TYPES])
    return path


def parquet_file(table, folder, **options):
    path = folder / "rows.parquet"
    pq.write_table(table, path, **options)
    return str(path)


WHOLE = {pa.int64(): pd.Int64Dtype()}
NULLABLE = WHOLE | {pa.string(): pd.StringDtype(), pa.float64(): pd.Float64Dtype(),
                    pa.bool_(): pd.BooleanDtype()}  # fmt: skip


def routes(rows, folder):
    """The same rows on every route, one after the other."""
    table = arrow_table(rows)
    yield "arrow", table
    yield "arrow chunks", in_pieces(table)
    yield "arrow batch", table.combine_chunks().to_batches()[0]
    yield "arrow reader", in_pieces(table).to_reader()
    yield "arrow dictionary", table.set_column(0, "word", table["word"].dictionary_encode())
    yield "arrow dictionaries that differ", own_dictionaries(rows)
    for kind in (pa.large_string(), pa.string_view()):
        yield f"arrow {kind}", arrow_table(rows, word=kind)
    spelled = [row | {"word": row["word"] and row["word"].encode()} for row in rows]
    for kind in (pa.binary(), pa.binary_view()):
        yield f"arrow {kind}", arrow_table(spelled, word=kind)

    frame = table.to_pandas(types_mapper=WHOLE.get)
    objects = pd.DataFrame({n: pd.Series(table[n].to_pylist(), dtype=object) for n in TYPES})
    yield "pandas", frame
    yield "pandas big-endian", frame.assign(score=frame["score"].to_numpy().astype(">f8"))
    yield "pandas objects", objects.set_index(np.zeros(len(rows)))  # an index never matters
    yield "pandas nullable", table.to_pandas(types_mapper=NULLABLE.get)
    yield "pandas categorical", frame.astype({"word": "category", "grade": "category"}).iloc[::-1]
    yield "pandas categories of objects", objects.assign(word=pd.Categorical(objects["word"]))
    yield "pandas on arrow", table.to_pandas(types_mapper=pd.ArrowDtype)
    yield "pandas strided", pd.concat([frame, frame]).iloc[: len(rows)]

    whole = pl.from_arrow(table)
    words = sorted({row["word"] for row in rows if row["word"] is not None})
    yield "polars", whole
    yield "polars chunks", pl.concat([whole[[i]] for i in range(len(rows))], rechunk=False)
    for kind in (pl.Binary, pl.Categorical, pl.Enum(words)):
        yield f"polars {kind}", whole.with_columns(pl.col("word").cast(kind))
    yield "duckdb", duckdb.from_arrow(table)
    yield "csv", csv_file(rows, folder)
    yield "parquet", parquet_file(table, folder, row_group_size=3)
    yield "parquet plain", parquet_file(table, folder, use_dictionary=False)
    yield (
        "parquet without arrow types",
        parquet_file(
            table, folder, row_group_size=2, store_schema=False, use_dictionary=["word", "grade"]
        ),
    )


def sums_of(data, schema, blocks):
    sums, n = exact_sums(open_source(data, schema), schema, blocks)
    return [block.tolist() for block in sums], n


def test_every_route_gives_the_sums_of_the_loop(loop, tmp_path):
    @given(rows=tables)
    @settings(max_examples=12)
    def check(rows):
        expected = loop.sums(loop.schema, loop.blocks, rows), len(rows)
        for route, data in routes(rows, tmp_path):
            note(route)  # the last one failed
            assert sums_of(data, loop.schema, loop.blocks) == expected

    check()


def test_batches_of_any_size_give_the_same_integers(loop, tmp_path, monkeypatch):
    rng = np.random.default_rng(11)
    words = rng.choice(["no", "yes", "Yes"], 220)
    rows = [
        {"word": str(word), "grade": 1.0, "flag": bool(i % 2), "x": float(rng.normal()),
         "y": int(rng.integers(12)), "score": 20.0, "ignored": "x"}
        for i, word in enumerate(words)
    ]  # fmt: skip
    expected = loop.sums(loop.schema, loop.blocks, rows)
    monkeypatch.setattr(sources, "BATCH_ROWS", 64)
    for route, data in routes(rows, tmp_path):
        if route in ("arrow", "arrow reader", "pandas", "polars", "parquet", "csv"):
            assert sums_of(data, loop.schema, loop.blocks) == (expected, 220)


# Structure


SMALL = Schema([Category("word", ["no", "yes"]), Number("x", 0, 1, edges=[0.5])])


def test_tables_of_a_wrong_structure_are_refused_before_rows_are_read(tmp_path):
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
        (lambda _: pd.DataFrame({"word": ["no"]}), "no column 'x'; the plan needs"),
        (lambda _: pd.DataFrame([["no", 1, 2]], columns=["word", "x", "x"]), r"one column named"),
        (lambda _: pa.Table.from_arrays([["no"], [1], [2]], ["word", "x", "x"]), "more than one"),
        (lambda folder: folder / "twice.csv", r"more than one column named \['x'\]"),
    ]:
        (tmp_path / "rows.xlsx").write_text("secret")
        (tmp_path / "broken.parquet").write_text("secret")
        (tmp_path / "twice.csv").write_text("word,x,x\nno,1,2\n")
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


def test_what_is_no_file_is_named(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "link.csv").symlink_to("nothing")
    os.mkfifo(tmp_path / "pipe.csv")
    kinds = {
        "folder": r"there is no \.parquet file in 'folder\.csv'",
        "link": r"'link\.csv' is not a file but a link to nothing",
        "pipe": r"'pipe\.csv' is not a file but a pipe",
    }
    for name, says in kinds.items():
        with pytest.raises(DataError, match=says):
            open_source(tmp_path / f"{name}.csv", SMALL)
    with pytest.raises(DataError, match="a single column; pass a DataFrame"):
        open_source(pd.Series(["no"], name="word"), SMALL)


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


def test_the_names_of_a_table_are_listed(tmp_path):
    frame = pd.DataFrame({"Word": ["no"], "y": [1]})
    frame.to_parquet(tmp_path / "rows.parquet")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    for data in (frame, tmp_path / "rows.parquet"):
        with pytest.raises(DataError, match=r"; the table has \['Word', 'y'\]$"):
            open_source(data, SMALL)
    with pytest.raises(DataError) as refused:  # its first line may be a person's data
        open_source(tmp_path / "rows.csv", SMALL)
    assert "Word" not in str(refused.value)
    assert "has 2 fields, separated by commas" in str(refused.value)


def test_the_number_of_rows_is_known_where_it_costs_nothing(tmp_path):
    rows = [{"word": "no", "grade": 1.0, "flag": True, "x": 0.0, "y": 1, "score": 22.0,
             "ignored": "x"}] * 5  # fmt: skip
    schema = SMALL.select(["word"])
    for route, data in routes(rows, tmp_path):
        known = None if route in ("arrow reader", "duckdb", "csv") else 5
        assert open_source(data, schema).rows == known, route
