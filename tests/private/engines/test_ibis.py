"""Ibis tables: distinct rows with counts and rows themselves give the same integers."""

import traceback

import numpy as np
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.private.tables import open_source

ibis = pytest.importorskip("ibis")
engine = pytest.importorskip("dpstats.private.engines.ibis")

TEXTS = ["a", "A", "a ", " a", "b\u0301", "\u00c5", "A\u030a", "fi", "\U0001f600", "\\x41", "'"]
ODD = ["", " ", "\0", "a\0", "a\0b", "\u212b", "\ufb01", "\u200b", "a\t", "%", "NULL", "x" * 70_000]
SCHEMA = dps.Schema([
    dps.Category("word", TEXTS, allow_missing=True, other="a"),
    dps.Boolean("times0", missing=True),  # named as the count could be
    dps.Number("a column's \"name\"", -10, 10, points=21, missing=3),
    dps.Number("large", 0, 2.0**64, points=9, missing=0),
])  # fmt: skip
WORD, FLAG, NUMBER, LARGE = SCHEMA.names
BLOCKS = [dps.Cells.table(SCHEMA, [WORD, FLAG]), dps.Moments.of(SCHEMA, [NUMBER, LARGE], [FLAG])]
TYPES = pa.schema({WORD: pa.string(), FLAG: pa.bool_(), NUMBER: pa.int64(), LARGE: pa.uint64()})
OTHERS = ([None, True, False], [None, -(2**63), 2**63 - 1, 0, 3], [None, 2**64 - 1, 2**53 + 1, 0])


def on_duckdb(table):
    """Where texts are equal by default that differ in case and accents."""
    connection = ibis.duckdb.connect()
    connection.con.execute("SET default_collation = 'nocase.noaccent'")
    connection.con.register("given", table)
    connection.con.execute("CREATE TABLE rows AS SELECT * FROM given")
    return connection.table("rows")


def on_polars(table):
    return ibis.polars.connect().create_table("rows", table)


@pytest.fixture
def asked(monkeypatch):
    """The number of columns of every query that was asked."""
    counted, real = [], engine._streamed

    def streamed(table, names):
        counted.append(len(names))
        return real(table, names)

    monkeypatch.setattr(engine, "_streamed", streamed)
    return counted


@pytest.mark.parametrize("backend", [on_duckdb, on_polars])
def test_both_queries_give_the_sums_of_a_loop(backend, loop, sums_of, asked, monkeypatch):
    """The second is asked where there are too many distinct rows for the first."""
    rng = np.random.default_rng(0)
    rows = [
        dict(zip(SCHEMA.names, [text, *(v[rng.integers(len(v))] for v in OTHERS)], strict=True))
        for text in [*TEXTS, *ODD, None]
    ] * 2
    data = backend(pa.Table.from_pylist(rows, TYPES))
    read = [row | {WORD: row[WORD] or None} for row in rows]  # an empty text is missing
    expected = loop.sums(SCHEMA, BLOCKS, read), len(rows)
    distinct = len(rows) // 2
    for most, queries in ((distinct, [5]), (distinct - 1, [5, 4]), (0, [5, 4])):
        asked.clear()
        monkeypatch.setattr(engine, "MOST_GROUPS", most)
        assert sums_of(data, SCHEMA, BLOCKS) == expected
        assert asked == queries


def test_other_types_come_as_rows_and_enums_do_not(asked, sums_of):
    connection = ibis.duckdb.connect()
    levels = ["0", "2024-05-01", "no"]
    schema = dps.Schema([dps.Category("x", levels, allow_missing=True, other="no")])
    for kind, cell in (("DOUBLE", 0), ("DECIMAL(9, 2)", 0), ("HUGEINT", 0), ("DATE", "2024-05-01")):
        cells = f"SELECT unnest(['{cell}', NULL])::{kind} AS x"
        connection.con.execute(f"CREATE OR REPLACE TABLE rows AS {cells}")
        asked.clear()
        (sums,), rows = sums_of(connection.table("rows"), schema)
        assert (sum(sums[:2]), sums[2:], rows, asked) == (1, [0, 1], 2, [1]), kind
    connection.con.execute("CREATE TYPE mood AS ENUM ('A', 'a', 'b')")
    cells = "['A', 'a', 'A', NULL, 'b']"
    connection.con.execute(f"CREATE TABLE moods AS SELECT unnest({cells})::mood AS word, 1 AS n")
    moods = connection.table("moods")
    schema = dps.Schema([dps.Category("word", ["a", "A"], allow_missing=True, other="a")])
    asked.clear()
    assert sums_of(moods.mutate(unused=moods.n / 0), schema) == ([[2, 2, 1]], 5)
    assert asked == [2]


def test_a_failure_holds_no_cell(sums_of):
    connection = ibis.duckdb.connect()
    connection.con.execute("CREATE TABLE rows AS SELECT 'secret 31.7' AS text")
    for kind in ("INTEGER", "DOUBLE"):
        connection.con.execute(f"CREATE OR REPLACE VIEW x AS SELECT text::{kind} AS x FROM rows")
        with pytest.raises(dps.DataError, match=r"^reading the rows failed \(\w+\); ") as caught:
            sums_of(connection.table("x"), dps.Schema([dps.Number("x", 0, 1, edges=[0.5])]))
        assert "secret" not in "".join(traceback.format_exception(caught.value))


VISITS = dps.Schema([dps.Boolean("flag", missing=True),
                     dps.Category("word", ["a", "A", "b"], other="b")])  # fmt: skip


@pytest.mark.parametrize(("backend", "order"), [(on_duckdb, "name"), (on_polars, "visit")])
def test_the_first_rows_of_persons_follow_from_their_own_rows(backend, order, no_noise):
    """By a column, then by all that are used, those without a value first, as in a loop."""
    rng = np.random.default_rng(2)
    pick = {"visit": [None, 1, 2], "name": [None, "B", "a", "A"], "id": [None, 7, 8, 9, 10],
            "flag": [None, True, False], "word": [None, "a", "A", "b"]}  # fmt: skip
    rows = [{n: v[rng.integers(len(v))] for n, v in pick.items()} for _ in range(60)]
    ordered = sorted(
        rows, key=lambda row: [(row[n] is not None, row[n] or 0) for n in (order, "flag", "word")]
    )
    types = pa.schema({"visit": pa.int64(), "name": pa.string(), "id": pa.int64(),
                       "flag": pa.bool_(), "word": pa.string()})  # fmt: skip
    asked = {"flag": dps.Proportion("flag"), "word": dps.Proportion("word == 'A'")}
    plan = dps.plan(VISITS, asked, budget=dps.PureDP(1), unit="add_remove", person="id",
                    rows_per_person=2)  # fmt: skip
    expected = dps.measure(plan, pa.Table.from_pylist(ordered, types)).noisy_sums
    assert not (expected == dps.measure(plan, pa.Table.from_pylist(rows, types)).noisy_sums).all()
    data = backend(pa.Table.from_pylist([rows[i] for i in rng.permutation(60)], types))
    assert (dps.measure(plan, data, order=order).noisy_sums == expected).all()
    fit = dps.check(plan, data, order=order)
    assert fit == dps.check(plan, pa.Table.from_pylist(ordered, types))
    for bad, says in (("when", "must be the name of one column"), (None, "has no order of rows")):
        with pytest.raises(dps.DataError, match=says):
            dps.measure(plan, data, order=bad)
    without = dps.plan(VISITS, asked, budget=dps.PureDP(1), unit="add_remove")
    with pytest.raises(dps.DataError, match="this plan knows no persons"):
        dps.measure(without, data, order=order)


def test_tables_without_types_or_a_column_are_refused(tmp_path):
    connection = ibis.sqlite.connect(tmp_path / "rows.sqlite")
    connection.raw_sql("CREATE TABLE rows (times0 BOOLEAN)")
    with pytest.raises(dps.DataError, match="columns of SQLite hold cells of any type"):
        open_source(connection.table("rows"), SCHEMA)
    with pytest.raises(dps.DataError, match=FLAG):
        open_source(on_polars(pa.table({WORD: ["a"]})), SCHEMA)
