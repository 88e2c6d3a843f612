"""A pure Python loop over rows, and every route on which a table may come: they have to agree."""

import csv
import gzip
import itertools
import logging
import math
import shutil
import warnings
from functools import partial
from importlib.util import find_spec
from types import SimpleNamespace

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpstats as dps
from dpstats.families.group_moments import GroupMoments, PairMoments
from dpstats.families.losses.linear import LinearLosses, PinballLoss
from dpstats.families.pilot_score import PilotScore
from dpstats.families.subgroups import Subgroup
from dpstats.families.tables.lattice import KernelLattice
from dpstats.files import from_csv
from dpstats.measured.measurements import ANSWERS_HEADER
from dpstats.privacy import noise
from dpstats.private.persons import of_persons
from dpstats.private.tables import exact_sums, open_source

SCHEMA = dps.Schema([
    dps.Category("word", ["no", "yes", "é, \"quoted\"\n'ü'"], other="yes", allow_missing=True),
    dps.Category("grade", [1, 2.5, -3], missing=2.5, other=-3),
    dps.Boolean("flag", missing=True),
    dps.Number("x", -1, 2.5, points=15, edges=[0, 0.3, 1.1], missing=0.7),
    dps.Number("y", 0, 10, points=41, edges=[2.5, 5], closed="right", missing=5),
    dps.Number("score", values=[17.5, 22, 27], allow_missing=True),
])  # fmt: skip


def blocks_of(schema):
    """Blocks of every kind, in an order of columns that is not that of the schema."""
    rules = "x >= 0.3 and word == 'yes' or score > 22 and not flag or grade == 1 and y > 5"
    coefficients = {"Intercept": (0, 10, 4), "x": (-4, 5, 3), "flag[T.True]": (0, 2, 3)}
    group = Subgroup.of(schema, "flag and x >= 0.3", ["y", "score"])
    terms = [(), (("x", None),), (("word", 1),), (("x", None), ("y", None), ("grade", 0))]
    return [
        dps.Cells.table(schema, ["score"]),
        dps.Cells.condition(schema, rules),
        dps.Cells.table(schema, ["word", "flag"]),
        dps.Cells.table(schema, ["grade", "x", "y"]),
        dps.Cells.condition(schema, "word != '(missing)'"),
        dps.Moments.of(schema, ["x", "y"], ["word"]),
        dps.Moments.of(schema, ["score"], ["x"], degree=1),
        KernelLattice((schema["x"], schema["y"]), 3, 0.2),
        GroupMoments.by(schema["y"], schema["word"], (0, 2, 3)),
        GroupMoments.by(schema["score"], schema["x"], (1, 3)),
        GroupMoments(schema["y"], (group,)),
        PairMoments((schema["y"], schema["score"]), (group,)),
        dps.Moments.of(schema, ["y", "score"], ["word"], given="not flag and y > 2.5"),
        LinearLosses.of(schema, PinballLoss(0.25), "y ~ x + flag", coefficients),
        PilotScore.of(schema, terms, ("flag", 1), "logit").at(np.array([0.3, -4.7, 1.1, 2.9])),
    ]


def code_of(column, cell):
    """The documented rule for one cell, in plain Python."""
    absent = cell is None or (isinstance(cell, float) and math.isnan(cell))
    if isinstance(column, dps.Category):
        if absent:
            return column.missing_code
        same = (v == cell and isinstance(v, str) == isinstance(cell, str) for v in column.stored)
        return next((code for code, found in enumerate(same) if found), column.other_code)
    if absent and column.allow_missing:
        return (column.points - 1) // 2 + 1
    low, high = float(column.low), float(column.high)
    value = min(max(float(column.missing if absent else cell), low), high)
    if column.values is not None:  # the nearest, the lower one if two are equally near
        nearest = min(column.values, key=lambda v: (abs(v - value), v))
        return int(column._value_codes[column.values.index(nearest)])

    def bin_of(v):
        return sum(e <= v if column.closed == "left" else e < v for e in column.edges)

    k = (column.points - 1) // 2
    code = math.floor((value - (low + high) / 2) * (k / ((high - low) / 2)) + 0.5)
    grid = [low + (high - low) * (i / (2 * k)) for i in range(2 * k)] + [high]
    own = [c for c in range(-k, k + 1) if bin_of(grid[c + k]) == bin_of(value)]
    return min(max(code, own[0]), own[-1])


def naive_sums(schema, blocks, rows):
    """Sums of every block over rows that are coded by a loop: mappings of column name to cell."""
    codes = {c.name: np.array([code_of(c, row[c.name]) for row in rows], np.int64) for c in schema}
    return [block.sums(codes).tolist() for block in blocks]


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


def odd_rows(n):
    """The first n rows of these cells."""
    return pa.table({
        name: pa.array(itertools.islice(itertools.cycle(cells), n), kind)
        for name, (kind, cells) in CELLS.items()
    })  # fmt: skip


@pytest.fixture(scope="session")
def loop():
    """The schema, its blocks, and the loop: `of` gives its sums of a table and the rows."""
    blocks = blocks_of(SCHEMA)
    return SimpleNamespace(
        schema=SCHEMA,
        blocks=blocks,
        blocks_of=blocks_of,
        sums=naive_sums,
        of=lambda table: (naive_sums(SCHEMA, blocks, table.to_pylist()), table.num_rows),
        rows=odd_rows,
    )


@pytest.fixture(scope="session")
def sums_of():
    """Sums of blocks, or of the table of every column, as lists, and the number of rows."""

    def found(data, schema, blocks=None, person=None, most=1, order=None, **of_person):
        blocks = blocks or [dps.Cells.table(schema, [name]) for name in schema.names]
        source = open_source(data, schema, person, order)
        if person is not None:
            source = of_persons(source, person, most, **of_person)
        sums, rows = exact_sums(source, schema, blocks)
        return [block.tolist() for block in sums], rows

    return found


@pytest.fixture(scope="session")
def frames_of():
    """The local variables of the package that the traceback of a caught error holds."""

    def found(caught):
        frames = [one.frame for one in caught.traceback]
        own = [one.f_locals for one in frames if one.f_globals["__name__"].startswith("dpstats")]
        assert own
        return own

    return found


@pytest.fixture
def logged(caplog):
    """All log records since the last time."""

    def taken():
        logs = [(r.name, r.levelname, r.getMessage()) for r in caplog.records]
        caplog.clear()
        return logs

    caplog.set_level(logging.DEBUG)
    return taken


@pytest.fixture
def observed(tmp_path, logged, capfd):
    """All that a caller sees of a measurement and that has to be equal, and the measurements."""

    def observe(plan, data):
        ledger = tmp_path / "ledger"
        ledger.unlink(missing_ok=True)
        dps.Ledger.create(ledger, dps.PureDP(2), unit=plan.unit, person=plan.person)
        before = sorted(tmp_path.rglob("*"))
        draws, steps = [], []

        def same_noise(scale, size):
            draws.append((scale, size))
            return np.arange(size) * 7 - 3

        logged()
        capfd.readouterr()
        with warnings.catch_warnings(record=True) as caught, noise._noise_from(same_noise):
            warnings.simplefilter("always")
            measured = dps.measure(
                plan, data, ledger=ledger, progress=lambda *step: steps.append(step)
            )
        members = measured.to_members()
        answers = from_csv(members["answers.csv"], ANSWERS_HEADER, "")
        return {
            "warnings": [(w.category, str(w.message)) for w in caught],
            "logs": logged(),
            "printed": tuple(capfd.readouterr()),
            "progress": steps,
            "draws": draws,
            "files": [path for path in sorted(tmp_path.rglob("*")) if path not in before],
            "ledger": ledger.read_text().splitlines(),
            "members": list(members),
            "document": members["measurements.json"],
            "answers": [[*row[:3], row[4]] for row in answers],
            "types": [(type(v), getattr(v, "dtype", None), getattr(v, "shape", None))
                      for v in vars(measured).values()],
        }, measured  # fmt: skip

    return observe


# Each route makes a table of an Arrow table and of the same cells as objects, files in a folder.


def inferred(cells):
    """An Arrow array of whatever type holds the cells; text if no other does."""
    try:
        return pa.array(cells)
    except (pa.ArrowException, OverflowError):
        return as_texts(cells)


def as_texts(cells):
    return pa.array([None if c is None or c != c else str(c) for c in cells], pa.string())


def in_pieces(table):
    """Parts of no, one, two, five, one, two, five... rows."""
    sizes = [0, *itertools.islice(itertools.cycle([1, 2, 5]), table.num_rows)]
    starts = itertools.accumulate(sizes, initial=0)
    return [table.slice(*piece) for piece in zip(starts, sizes, strict=False)
            if piece[0] < max(table.num_rows, 1)]  # fmt: skip


def encoded(table, nulls="mask"):
    """The table with a dictionary for every column, or for every piece, null included."""
    columns = (table[name].dictionary_encode(nulls) for name in table.column_names)
    return pa.table(list(columns), table.column_names)


def categories(objects):
    """Each column with categories in the order of its cells."""
    levels = {n: pd.Index(objects[n].dropna().unique(), dtype=object) for n in objects}
    return pd.DataFrame({n: pd.Categorical(objects[n], levels[n]) for n in objects})


def delimited(name, delimiter=",", start="", end="\n", **options):
    """A text file; a missing cell is empty."""

    def write(_, objects, folder):
        text = objects.to_csv(index=False, sep=delimiter, lineterminator="\n", **options)
        content = (start + text.removesuffix("\n") + end).encode()
        zipped = name.lower().endswith("gz")
        (folder / name).write_bytes(gzip.compress(content, mtime=0) if zipped else content)
        return folder / name

    return write


def parquet(**options):
    def write(table, _, folder):
        pq.write_table(table, folder / "rows.parquet", **options)
        return folder / "rows.parquet"

    return write


def folder_of_files(table, _, folder):
    place = folder / "rows"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for i, piece in enumerate(in_pieces(table)):
        pq.write_table(piece, place / f"{i:03}.parquet", row_group_size=4)
    return place


NUMBERS = {pa.int64(): pd.Int64Dtype(), pa.float64(): pd.Float64Dtype(),
           pa.string(): pd.StringDtype(), pa.bool_(): pd.BooleanDtype()}  # fmt: skip
ROUTES = {
    "csv": delimited("rows.csv"),
    "csv, marked and quoted": delimited("rows.csv", ";", "\ufeff", "", quoting=csv.QUOTE_ALL),
    "csv.gz": delimited("rows.csv.gz"),
    "TSV.GZ": delimited("rows.TSV.GZ", "\t"),
    "parquet": parquet(use_dictionary=False, write_statistics=False),
    "parquet, dictionaries": parquet(row_group_size=4),
    "parquet without arrow types": parquet(row_group_size=3, store_schema=False),
    "folder": folder_of_files,
    "pandas": lambda _, objects, __: pd.DataFrame(objects.to_dict("list")),
    "pandas objects": lambda _, objects, __: objects.set_axis([0] * len(objects)),
    "pandas categories": lambda _, objects, __: categories(objects),
    "pandas of arrow": lambda table, *_: table.to_pandas(),
    "pandas nullable": lambda table, *_: table.to_pandas(types_mapper=NUMBERS.get),
    "pandas on arrow": lambda table, *_: table.to_pandas(types_mapper=pd.ArrowDtype),
    "arrow": lambda table, *_: table,
    "arrow chunks": lambda table, *_: pa.concat_tables(in_pieces(table)),
    "any stream": lambda table, *_: SimpleNamespace(  # it says nothing of itself but its columns
        __arrow_c_stream__=table.to_reader(max_chunksize=5).__arrow_c_stream__
    ),
    "arrow dictionaries": lambda table, *_: encoded(table),
    "arrow dictionaries that differ": lambda table, *_: pa.concat_tables(
        [encoded(piece, "encode") for piece in in_pieces(table)]
    ),
    "polars": lambda table, *_: pl.from_arrow(table),
    "polars, lazily": lambda table, *_: pl.concat(
        [pl.from_arrow(piece).lazy() for piece in in_pieces(table)], rechunk=False
    ),
    "duckdb": lambda table, *_: duckdb.from_arrow(table),
}  # fmt: skip

if find_spec("dask"):
    import dask.dataframe as dd

    in_parts = partial(dd.from_pandas, npartitions=3, sort=False)
    ROUTES["dask"] = lambda table, *_: in_parts(table.to_pandas())
    ROUTES["dask objects"] = lambda _, objects, __: in_parts(objects)
if find_spec("ibis"):
    import ibis

    DUCKDB, NUMBER = ibis.duckdb.connect(), itertools.count()

    def on_duckdb(table):
        name = f"rows_{next(NUMBER)}"
        DUCKDB.con.register(name, table)
        return DUCKDB.table(name)

    def distinct(_, objects, __):
        """Columns of text, of which a back end gives the distinct rows and their counts."""
        return on_duckdb(pa.table({name: as_texts(objects[name]) for name in objects}))

    ROUTES["ibis on duckdb"] = lambda table, *_: on_duckdb(table)
    ROUTES["ibis, distinct rows"] = distinct


@pytest.fixture
def on_route(tmp_path):
    """A table on the route of a name, of an Arrow table or of columns of Python cells."""

    def made(name, given):
        if isinstance(given, pa.Table):
            table, cells = given, given.to_pydict()
        else:
            table, cells = pa.table({n: inferred(column) for n, column in given.items()}), given
        objects = pd.DataFrame({n: pd.Series(c, dtype=object) for n, c in cells.items()})
        return ROUTES[name](table, objects, tmp_path)

    return made


# One route of every adapter and of every way in which a cell decides how its column is held.
# The others differ in how an array lies in memory: see test_tables.py.
WAYS = [name for name in (
    "csv", "csv.gz", "parquet, dictionaries", "folder", "pandas", "pandas objects",
    "pandas categories", "arrow chunks", "any stream", "polars, lazily", "duckdb", "dask",
    "ibis on duckdb", "ibis, distinct rows",
) if name in ROUTES]  # fmt: skip
# Those that differ in more than the types of columns: one of every adapter.
ADAPTERS = [w for w in WAYS if w not in ("pandas", "pandas categories", "arrow chunks")]


@pytest.fixture(scope="session")
def routes():
    return SimpleNamespace(every=list(ROUTES), ways=WAYS)


def pytest_generate_tests(metafunc):
    """Tests with `way` run on one route of every kind, those with `adapter` on one of each."""
    for name, routes in (("way", WAYS), ("adapter", ADAPTERS)):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, routes)
