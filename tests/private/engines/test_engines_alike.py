"""However rows are cut, ordered and stored, every engine gives the integers of a Python loop."""

import itertools
import math
from collections import Counter
from importlib.util import find_spec

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings


def of_duckdb(pieces, folder):
    # The default connection lives on; older DuckDB closes one that only its relations hold.
    relations = [duckdb.from_arrow(piece) for piece in pieces]
    return one_of_all(relations, lambda above, below: above.union(below))


def of_polars(pieces, folder):
    return pl.concat([pl.from_arrow(piece).lazy() for piece in pieces])


def of_parquet(pieces, folder):
    folder.mkdir()
    for i, piece in enumerate(pieces):
        pq.write_table(piece, folder / f"{i:03}.parquet", row_group_size=3)
    return folder


def of_dask(pieces, folder):
    import dask.dataframe as dd
    from dask.delayed import delayed

    frames = [delayed(piece.to_pandas(), traverse=False) for piece in pieces]
    return dd.from_delayed(frames, meta=pieces[0].slice(0, 0).to_pandas(), verify_meta=False)


def of_ibis(pieces, folder):
    import ibis

    connection = ibis.duckdb.connect()
    for i, piece in enumerate(pieces):
        connection.con.register(f"piece{i}", piece)
    tables = [connection.table(f"piece{i}") for i in range(len(pieces))]
    return one_of_all(tables, lambda above, below: above.union(below))


def of_ibis_on_polars(pieces, folder):
    import ibis

    return ibis.polars.connect().create_table("pieces", of_polars(pieces, folder))


def one_of_all(tables, union):
    return union(one_of_all(tables[:-1], union), tables[-1]) if len(tables) > 1 else tables[0]


ENGINES = {
    "DuckDB": of_duckdb,
    "polars, lazily": of_polars,
    "a folder of Parquet files": of_parquet,
    **({"Dask": of_dask} if find_spec("dask") else {}),
    **(
        {"Ibis on DuckDB": of_ibis, "Ibis on polars": of_ibis_on_polars}
        if find_spec("ibis")
        else {}
    ),
}


@pytest.fixture
def tables(tmp_path):
    """What makes a table of each engine from pieces."""
    folders = (tmp_path / str(i) for i in itertools.count())
    return {
        engine: lambda pieces, of_engine=of_engine: of_engine(pieces, next(folders))
        for engine, of_engine in ENGINES.items()
    }


def test_cuts_order_and_engine_change_no_integer(loop, drawn, tables):
    @settings(drawn.settings, max_examples=15)
    @given(drawn.cases(loop.blocks, ENGINES))
    def run(case):
        drawn.check(loop, case, tables)

    run()


def test_a_polars_that_cannot_stream_is_read_whole(loop, drawn, tables, monkeypatch):
    monkeypatch.delattr(pl.LazyFrame, "collect_batches", raising=False)

    @settings(drawn.settings, max_examples=5)
    @given(drawn.cases(loop.blocks, ["polars, lazily"]))
    def run(case):
        drawn.check(loop, case, tables)

    run()


@pytest.mark.slow
def test_ten_thousand_partitionings(loop, drawn, tables):
    """Prints how many of each engine; seven minutes of CPU time."""
    counted = Counter()

    examples = math.ceil(10_000 / len(ENGINES))

    @settings(drawn.settings, max_examples=examples, database=None)
    @given(drawn.cases(loop.blocks, ENGINES))
    def run(case):
        drawn.check(loop, case, tables)
        counted.update(list(ENGINES))

    run()
    print(f"{counted.total():,} partitionings: {dict(counted)}")
    assert counted.total() >= 10_000
