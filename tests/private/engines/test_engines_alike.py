"""However rows are cut, ordered and stored, every engine gives the integers of a Python loop."""

import itertools
import math
from collections import Counter
from importlib.util import find_spec

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpstats.private.tables import exact_sums, open_source

TYPES = pa.schema({
    "word": pa.string(), "grade": pa.float64(), "flag": pa.bool_(), "x": pa.float64(),
    "y": pa.int64(), "score": pa.float64(), "ignored": pa.string(),
})  # fmt: skip
ROWS = st.fixed_dictionaries({
    "word": st.sampled_from([None, "no", "yes", "Yes", "yes ", "é, \"quoted\"\n'ü'", "NA", "\0"]),
    "grade": st.sampled_from([None, 1.0, 2.5, -3.0, 1.5, math.nan, -0.0, math.inf]),
    "flag": st.sampled_from([None, True, False]),
    "x": st.none() | st.floats() | st.floats(-2, 3),
    "y": st.none() | st.integers(-3, 13) | st.integers(-(2**63), 2**63 - 1),
    "score": st.sampled_from([None, 17.5, 19.75, 19.76, 22.0, 24.5, 27.0, 99.0, math.nan]),
    "ignored": st.just("x"),
})  # fmt: skip
GROUPED = {"word", "flag", "y"}  # columns of texts, integers and truth values


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
    return dd.from_delayed(frames, meta=TYPES.empty_table().to_pandas(), verify_meta=False)


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


@st.composite
def cases(draw, blocks):
    """Some blocks, rows, and for every engine the rows in another order and cut into pieces."""
    grouped = [b for b in blocks if {c.name for c in b.columns} <= GROUPED]
    asked = draw(st.lists(st.sampled_from(blocks), min_size=1, max_size=4)
                 | st.lists(st.sampled_from(grouped), min_size=1, max_size=3))  # fmt: skip
    rows = draw(st.lists(ROWS, max_size=12))
    partitionings = {}
    for engine in ENGINES:
        cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=5)))
        ordered = draw(st.permutations(rows))
        ends = itertools.pairwise([0, *cuts, len(rows)])
        partitionings[engine] = [ordered[start:end] for start, end in ends]
    return asked, rows, partitionings


def check_case(loop, case, folders):
    """How many partitionings were compared, by engine."""
    blocks, rows, partitionings = case
    used = {c.name for block in blocks for c in block.columns}
    schema = loop.schema.select(used)
    expected = loop.sums(schema, blocks, rows)
    for engine, partitioning in partitionings.items():
        pieces = [pa.Table.from_pylist(piece, TYPES) for piece in partitioning]
        source = open_source(ENGINES[engine](pieces, next(folders)), schema)
        sums, n = exact_sums(source, schema, blocks)
        assert n == len(rows), engine
        assert [block.tolist() for block in sums] == expected, engine
    return Counter(list(partitionings))


@pytest.fixture
def folders(tmp_path):
    return (tmp_path / str(i) for i in itertools.count())


ANY = settings(suppress_health_check=list(HealthCheck))


def test_cuts_order_and_engine_change_no_integer(loop, folders):
    @settings(ANY, max_examples=15)
    @given(cases(loop.blocks))
    def run(case):
        check_case(loop, case, folders)

    run()


@pytest.mark.slow
def test_ten_thousand_partitionings(loop, folders):
    """Prints how many of each engine; seven minutes of CPU time."""
    counted = Counter()

    @settings(ANY, max_examples=math.ceil(10_000 / len(ENGINES)), database=None)
    @given(cases(loop.blocks))
    def run(case):
        counted.update(check_case(loop, case, folders))

    run()
    print(f"{counted.total():,} partitionings: {dict(counted)}")
    assert counted.total() >= 10_000
