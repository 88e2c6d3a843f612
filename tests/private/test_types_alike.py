"""Cells of every type of Arrow, polars and DuckDB have the codes of their plain Python values."""

import datetime as dt
import uuid
from decimal import Decimal

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpstats as dps

OWN = {"allow_missing": True}
SCHEMA = dps.Schema([
    dps.Number("v0", 0, 9, points=10, edges=[2, 5], **OWN),
    dps.Category("v1", ["1", "a", "2024-05-01", "true"], other="a", **OWN),
    dps.Category("v2", [1, 2, 7], other=7, **OWN),
    dps.Boolean("v3", **OWN),
    dps.Number("v4", "2024-01-01", "2024-12-31", edges=["2024-05-02"], **OWN),
])  # fmt: skip
DAY, TIME = dt.date(2024, 5, 1), dt.datetime(2024, 5, 1, 3)
NUMBERS = [1, 2, None, 7]
WORDS = ["1", "a", None, "true", ""]
LISTS = [[1], None, [2]]


class Own(pa.ExtensionType):
    def __init__(self):
        super().__init__(pa.int64(), "own")

    def __arrow_ext_serialize__(self):
        return b""


def extension(kind, cells):
    return pa.ExtensionArray.from_storage(kind, pa.array(cells, kind.storage_type))


def runs(cells, ends=(2, 3, 5, 6), kind=None):
    values = cells if isinstance(cells, pa.Array) else pa.array(cells)
    return pa.RunEndEncodedArray.from_arrays(pa.array(ends[: len(values)], kind), values)


# Types, and the cells of an array of each.
KINDS = [
    ([pa.int8(), pa.int64(), pa.uint64(), pa.float32(), pa.float64()], NUMBERS),
    ([pa.float16()], [None if n is None else np.float16(n) for n in NUMBERS]),
    ([pa.decimal32(5, 2), pa.decimal64(9, 2), pa.decimal128(9, 2), pa.decimal256(50, 2)],
     [None if n is None else Decimal(n) for n in NUMBERS]),
    ([pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(),
      pa.binary_view()], WORDS),
    ([pa.binary(1)], [b"1", b"a", None, b"7"]),
    ([pa.binary(4)], [b"true", b"1.00", None, b"1\0\0\0"]),
    ([pa.binary(0)], [b"", None]),
    ([pa.bool_()], [True, False, None]),
    ([pa.null()], [None] * 3),
    ([pa.date32(), pa.date64()], [DAY, None]),
    ([pa.time32("s"), pa.time64("ns")], [dt.time(1, 2), None]),
    ([*map(pa.timestamp, ("s", "ns")), pa.timestamp("us", "+02:00")], [TIME, None]),
    ([pa.duration("ns")], [dt.timedelta(seconds=1), None]),
    ([pa.list_(pa.int64()), pa.large_list_view(pa.int64()), pa.list_(pa.int64(), 1)], LISTS),
    ([pa.map_(pa.string(), pa.int64())], [[("a", 1)], None]),
]  # fmt: skip


# One array of every type, by name.
TYPES = {str(kind): pa.array(cells, kind) for kinds, cells in KINDS for kind in kinds} | {
    "interval": pa.array([pa.MonthDayNano([1, 2, 3]), None]),
    "struct": pa.array([{"a": 1}, None]),
    "dense union": pa.UnionArray.from_dense(
        pa.array([5, 9, 5, 9, 9], pa.int8()), pa.array([0, 0, 1, 1, 2], pa.int32()),
        [pa.array([1, None]), pa.array(["a", "1", None])], ["n", "t"], [5, 9],
    ),
    "sparse union": pa.UnionArray.from_sparse(
        pa.array([0, 1, 2, 3, 4], pa.int8()),
        [pa.array([1.0, None, None, None, None]), pa.array([None, DAY, None, None, None]),
         pa.array([None, None, True, None, None]), pa.array([None, None, None, [1], None]),
         pa.array([b"a", b"a", b"a", b"a", b"\xff"])],
    ),
    "runs of numbers": runs([1, None, 7]),
    "runs of texts": runs(["1", None, "a"], kind=pa.int16()),
    "runs of a view": runs(pa.array(["1", None, "a"], pa.string_view()), kind=pa.int32()),
    "runs of a dictionary": runs(pa.array(["1", None, "a"]).dictionary_encode()),
    "bool8": extension(pa.bool8(), [1, 0, None, 5]),
    "opaque text": extension(pa.opaque(pa.string(), "x", "y"), WORDS),
    "uuid": extension(pa.uuid(), [uuid.UUID(int=1).bytes, None]),
    "tensor": extension(pa.fixed_shape_tensor(pa.int64(), [1]), LISTS),
    "an extension of somebody": extension(Own(), NUMBERS),
}  # fmt: skip
TYPES |= {
    f"dictionary of {name}": pa.DictionaryArray.from_arrays(
        pa.array([0, None, 1, 0], pa.int8()), TYPES[name][:2]
    )
    for name in ("int64", "binary_view", "bool8", "date32[day]", "struct", "runs of texts")
}  # fmt: skip
NOT_IN_PARQUET = ("union", "binary[0]", "runs", "interval", "dictionary of", "list_view")
if pa.__version__ < "26":  # which does not read back a null among lists of one size
    NOT_IN_PARQUET += ("fixed_size_list", "tensor")
ON_PANDAS = ("uint64", "halffloat", "decimal128(9, 2)", "string_view", "binary", "bool",
             "date32[day]", "timestamp[ns]", "struct", "runs of texts", "uuid")  # fmt: skip


@pytest.fixture
def outcome(sums_of):
    """The sums of every column, of all rows or of the first row of every person."""
    return lambda data, person=None: sums_of(data, SCHEMA, person=person)[0]


def in_all(cells):
    """The same cells in every column."""
    return dict.fromkeys(SCHEMA.names, cells)


def objects(cells):
    return pd.DataFrame(in_all(pd.Series(cells, dtype=object)))


def test_a_type_is_read_as_its_python_values(outcome, tmp_path):
    """In chunks that begin in the middle of an array, in a file, and as chosen rows of persons."""
    plan = dps.plan(SCHEMA, {"m": dps.Marginals(SCHEMA.names, 1)}, budget=dps.PureDP(1))
    of_cells = {}
    for name, cells in TYPES.items():
        plain = cells.to_pylist()
        expected = of_cells.get(repr(plain)) or outcome(objects(plain))
        of_cells[repr(plain)] = expected
        pieces = pa.chunked_array([cells[:1], cells[:0], cells[1:]])
        assert outcome(pa.table(in_all(pieces))) == expected, name
        if not any(word in name for word in NOT_IN_PARQUET):
            pq.write_table(pa.table(in_all(cells)), tmp_path / "rows.parquet")
            assert outcome(tmp_path / "rows.parquet") == expected, name
        twice = pa.table(in_all(pa.chunked_array([cells, cells])))
        keyed = twice.append_column("who", pa.array([*range(len(cells))] * 2))
        assert outcome(keyed, person="who") == expected, name
        if name in ON_PANDAS:
            frame = pd.DataFrame(in_all(pd.Series(pd.arrays.ArrowExtensionArray(pieces))))
            assert outcome(frame) == expected, name
            assert dps.check(plan, frame).rows == len(cells), name
    cells = ['"a"', "1", "null", "true", "[1]", None, '"\\ud800"', '"', "a", '"1"', " null "]
    plain = ["a", 1, None, True, [1], None, "\ud800", '"', "a", "1", None]
    json = pa.table(in_all(extension(pa.json_(), cells)))
    assert outcome(json) == outcome(objects(plain))


POLARS = {
    "Object": (pl.Object, [1, "a", None, [1], DAY, True]),
    "Enum": (pl.Enum(["a", "1"]), ["a", "1", None]),
    "Categorical": (pl.Categorical, ["true", "1", None]),
    "Decimal": (pl.Decimal(38, 1), [Decimal("1"), Decimal("7.5"), None]),
    "Duration": (pl.Duration, [dt.timedelta(1), None]),
    "Array": (pl.Array(pl.Int64, 1), LISTS),
    "Struct": (pl.Struct({"a": pl.Int64}), [{"a": 1}, None]),
}
if hasattr(pl, "Int128"):  # from polars 1.18 on
    POLARS["Int128"] = pl.Int128, [1, 7, None, 2**100]
    POLARS["List of Int128"] = pl.List(pl.Int128), LISTS


def test_a_type_of_polars_is_read_as_its_python_values(outcome):
    for name, (kind, cells) in POLARS.items():
        frame = pl.DataFrame(in_all(pl.Series(cells, dtype=kind)))
        assert outcome(frame) == outcome(frame.lazy()) == outcome(objects(cells)), name


DUCKDB = ["1::HUGEINT", "1::UHUGEINT", "'101'::BIT", "'2'::VARINT", "union_value(num := 1)",
          "'a'::ENUM('a', 'b')", "INTERVAL 1 DAY", "TIMETZ '01:02:03+01'", "'a'::BLOB",
          "map {'a': 1}", "uuid()"]  # fmt: skip


def test_a_type_of_duckdb_is_read_as_its_python_values(outcome):
    with duckdb.connect() as connection:
        named = ", ".join(f"v AS {name}" for name in SCHEMA.names)
        for cell in DUCKDB:
            relation = connection.sql(f"SELECT {named} FROM (SELECT {cell} AS v UNION ALL "
                                      "SELECT NULL)")  # fmt: skip
            expected = outcome(objects([row[0] for row in relation.fetchall()]))
            for lossless in (False, True):
                connection.execute(f"SET arrow_lossless_conversion = {lossless}")
                assert outcome(relation) == expected, cell
