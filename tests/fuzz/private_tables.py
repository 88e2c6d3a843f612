"""Private tables with changes: files, and tables in memory, against sums by plain loops."""

from __future__ import annotations

import csv
import gzip
import io
import random
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import mutations
import naive
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from naive import BLOCKS, NAMES, SCHEMA, Cell
from outcomes import EQUAL, Finding, check_sentence

import dpstats as dps
from dpstats.private.tables import exact_sums, open_source

_EPOCH = date(1970, 1, 1)
MARK = "Zq"  # in every text that must not be quoted
_CSV_TOKENS = [*mutations.TOKENS, b"\r\n\r\n", b'"\n', b'\n"', b'a"b', b"\xe2\x80\xa8", b"1e400"]
_TEXTS = [b"a", "b é".encode(), "b e\u0301".encode(), b"7", b"7.0", b" 7", b"A", b"Zq1", b"Zq,2",
          b'Zq"3', b"Zq\n4", b"Zq\r5", b"\xff\xfeZq", b"NA", b"nan", b"NULL", b"", b"true",
          b"Zq" * 300, b"a\0", b"\0", b"=Zq()", b"07", b"7e0", b"+7", b"0x7"]  # fmt: skip
_NUMBERS = [b"1", b"1.0", b"2.5", b"2.50", b"4", b"0", b"5", b"4.99", b"5.25", b"10", b"11", b"-1",
            b"1e400", b"-1e400", b"inf", b"-Infinity", b"nan", b"NaN", b"", b" 2.5 ", b"+4", b"4.",
            b".5", b"5e-324", b"9007199254740993", b"TRUE", b"False", b"1,5", b"1_0", b"0x1",
            b"2.25", b"4.75", b"-0", b"-0.0", b"Zq", b"1e", b"--1", b"\xef\xbc\x91"]  # fmt: skip
_DAYS = [b"2020-01-01", b"2020-12-30", b"2019-02-28", b"2020-02-30", b"2020-02-29", b"2021-01-01",
         b"2020-06-01 08:30", b"2020-06-01T08:30:00Z", b"2020-6-1", b"", b"nan", b"Zq-06-01",
         b"0000-01-01", b"9999-12-31", b" 2020-03-01 ", b"18383", b"2020-00-10",
         b"2020-13-01"]  # fmt: skip
OF_COLUMN = {"c": _TEXTS, "g": _NUMBERS, "b": _NUMBERS, "x": _NUMBERS, "d": _DAYS}
# Python objects, and the text that a file would hold for each.
OBJECTS: list[tuple[Any, Cell]] = [
    (None, None), (float("nan"), None), (pd.NA, None), (pd.NaT, None), (Decimal("NaN"), None),
    (Decimal("sNaN"), None), (1, b"1"), (True, b"true"), (np.bool_(False), b"false"),
    (2.5, b"2.5"), (np.float32(0.1), b"0.1"), (np.int8(4), b"4"), (Decimal("2.50"), b"2.5"),
    (Fraction(5, 2), b"2.5"), (10**400, b"inf"), (-(10**400), b"-inf"), (2**60, b"1e18"),
    (1 + 2j, b"\xff"), ([1, 2], b"\xff"), ({"Zq": 1}, b"\xff"), (object(), b"\xff"),
    (np.array([1.0, 2.0]), b"\xff"), (np.array([]), b"\xff"), ("Zq\ud800", b"\xff"),
    (b"\xffZq", b"\xff"), (date(2020, 3, 1), b"2020-03-01"),
    (np.datetime64("2020-03-01"), b"2020-03-01"),
    (datetime(2020, 3, 1, 8), b"2020-03-01"), (pd.Timestamp("2020-03-01", tz="UTC"), b"2020-03-01"),
    (np.timedelta64(5, "D"), b"\xff"), (ValueError("Zq"), b"\xff"), (lambda: 1, b"\xff"),
]  # fmt: skip


class _Raises:
    """A cell that raises whatever is asked of it, with a private text."""

    def _raise(self, *args: object) -> Any:
        raise RuntimeError("Zq")

    __eq__ = __ne__ = __bool__ = __float__ = __str__ = __repr__ = _raise  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


OBJECTS.append((_Raises(), None))  # it cannot say that it is itself, as NA cannot


class Kinds:
    """The kinds of tables, files being written to a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def by_name(self) -> dict[str, Callable[[random.Random], str]]:
        return {
            "CSV, bytes changed": self.csv_bytes,
            "CSV, cells and structure": self.csv_cells,
            "Parquet, bytes changed": self.parquet_bytes,
            "Parquet, types and groups": self.parquet_types,
            "data frames": self.frames,
            "Arrow, polars, DuckDB": self.arrow,
        }

    def _same(self, data: object, columns: Callable[[], dict[str, Sequence[Cell]]]) -> str:
        """Refused without a cell, or the sums of a plain loop."""
        try:
            totals, rows = exact_sums(open_source(data, SCHEMA), SCHEMA, BLOCKS)
        except dps.DpstatsError as error:
            return check_sentence(error, (MARK,))
        expected = columns()
        if rows != len(expected["c"]):
            raise Finding(f"{rows} rows were read, and there are {len(expected['c'])}")
        if [total.tolist() for total in totals] != naive.sums(expected):
            raise Finding("the sums are not those of a plain loop")
        return EQUAL

    # Text files

    def _cells(self, rng: random.Random) -> dict[str, list[bytes]]:
        """Up to a dozen rows; half of the tables are clean but for one cell."""
        n, wild = rng.choice((0, 1, 2, 5, 12)), rng.random() < 0.5
        columns = {
            name: [rng.choice(cells if wild else cells[:3]) for _ in range(n)]
            for name, cells in OF_COLUMN.items()
        }
        if n and not wild:
            name = rng.choice(NAMES)
            columns[name][rng.randrange(n)] = rng.choice(OF_COLUMN[name])
        return columns

    def csv_bytes(self, rng: random.Random) -> str:
        columns = {n: [cell for cell in cells if 10 not in cell] for n, cells in OF_COLUMN.items()}
        rows = [
            [rng.choice(columns[name][:12]) for name in NAMES] for _ in range(rng.choice((1, 3, 8)))
        ]
        data = _written([[name.encode() for name in NAMES], *rows], b",", b"\n", quote_all=False)
        data = mutations.of_bytes(rng, data, _CSV_TOKENS)
        path = self.folder / "bytes.csv"
        if rng.random() < 0.15:
            path = self.folder / "bytes.csv.gz"
            packed = gzip.compress(data, 1, mtime=0)
            data_of = mutations.of_bytes(rng, packed) if rng.random() < 0.7 else packed
            path.write_bytes(data_of)
            try:
                data = gzip.decompress(data_of)
            except Exception:
                data = b""
        else:
            path.write_bytes(data)
        return self._same(path, lambda: _parsed(data))

    def csv_cells(self, rng: random.Random) -> str:
        columns = self._cells(rng)
        names = [*NAMES, *rng.sample(["Zq extra", "unused", "id"], rng.randrange(3))]
        rng.shuffle(names)
        n = len(columns["c"])
        others = [rng.choice([*_TEXTS, *_NUMBERS]) for _ in range(n)]
        rows = [[columns[name][row] if name in columns else others[row] for name in names]
                for row in range(n)]  # fmt: skip
        header = [name.encode() for name in names]
        match rng.randrange(12):
            case 0:
                del header[rng.randrange(len(header))]
            case 1:
                header.append(rng.choice(header))
            case 2 if rows:
                del rng.choice(rows)[0]
            case 3:
                header = header[::-1]
        if rng.random() < 0.1 and rows:
            rows.insert(rng.randrange(len(rows)), header)  # a header once more is a row
        ends = rng.choice((b"\n", b"\r\n", b"\r"))
        delimiter = rng.choice((b",", b";", b"\t"))
        data = _written([header, *rows], delimiter, ends, quote_all=rng.random() < 0.3)
        data = rng.choice((b"", b"", b"\xef\xbb\xbf")) + data
        path = self.folder / ("cells.csv" if delimiter != b"\t" else "cells.tsv")
        if rng.random() < 0.2:
            path = Path(f"{path}.gz")
            data = gzip.compress(data, 1, mtime=0)
        path.write_bytes(data)

        def expected() -> dict[str, Sequence[Cell]]:
            once = all(header.count(name.encode()) == 1 for name in NAMES)
            if not once or any(len(row) != len(header) for row in rows):
                raise Finding("a table without a column or with a short line was read")
            at = {name: header.index(name.encode()) for name in NAMES}
            return {name: [row[at[name]] for row in rows] for name in NAMES}

        return self._same(path, expected)

    # Parquet

    def _table(self, rng: random.Random) -> tuple[pa.Table, dict[str, list[Cell]]]:
        """A typed table, each column of a type that one of its cells may have decided."""
        n = rng.choice((0, 1, 2, 5, 12))
        arrays, cells = {}, {}
        for name in NAMES:
            arrays[name], cells[name] = _column(rng, name, n)
        if rng.random() < 0.3:
            arrays["extra"] = pa.array(["Zq"] * n)
        return pa.table(arrays), cells

    def _parquet(self, rng: random.Random, table: pa.Table) -> bytes:
        held = io.BytesIO()
        pq.write_table(
            table, held, row_group_size=rng.choice((1, 3, 100)),
            use_dictionary=rng.random() < 0.5, write_statistics=rng.random() < 0.5,
            compression=rng.choice(("none", "snappy", "gzip", "zstd")),
            data_page_version=rng.choice(("1.0", "2.0")),
            write_page_checksum=rng.random() < 0.3,
        )  # fmt: skip
        return held.getvalue()

    def parquet_types(self, rng: random.Random) -> str:
        table, cells = self._table(rng)
        path = self.folder / "types.parquet"
        path.write_bytes(self._parquet(rng, table))
        return self._same(path, lambda: cells)

    def parquet_bytes(self, rng: random.Random) -> str:
        """Reading by way of Python objects is the second opinion on pages that were changed."""
        table, _ = self._table(rng)
        data = mutations.of_bytes(rng, self._parquet(rng, table))
        path = self.folder / "bytes.parquet"
        path.write_bytes(data)

        def expected() -> dict[str, Sequence[Cell]]:
            try:
                read = pq.read_table(pa.BufferReader(data), columns=list(NAMES), use_threads=False)
                return {name: [_cell(c) for c in _plain(read.column(name))] for name in NAMES}
            except Exception as error:
                raise Finding(f"a table was read that pyarrow refuses: {error}") from None

        return self._same(path, expected)

    # In memory

    def frames(self, rng: random.Random) -> str:
        n = rng.choice((0, 1, 2, 5, 12))
        series, cells = {}, {}
        for name in NAMES:
            if rng.random() < 0.5:
                pairs = [
                    *OBJECTS,
                    *((text.decode("utf-8", "replace"), None) for text in OF_COLUMN[name]),
                ]
                chosen = [rng.choice(pairs) for _ in range(n)]
                held = pd.Series([None] * n, dtype=object)
                for i, (value, _) in enumerate(chosen):
                    held.iat[i] = value
                series[name] = held
                cells[name] = [_said(value, text) for value, text in chosen]
                continue
            array, cells[name] = _column(rng, name, n, utf8=True)
            series[name] = _as_series(rng, array)
        frame = pd.DataFrame(series)
        match rng.randrange(14):
            case 0:
                frame = frame.drop(columns=rng.choice(NAMES))
            case 1:
                frame = pd.concat([frame, frame[[rng.choice(NAMES)]]], axis=1)
            case 2:
                frame.index = pd.Index(rng.choices(["Zq", 0, None], k=n), dtype=object)
            case 3:
                frame["Zq"] = 1
                frame[("Zq", 2)] = [_Raises()] * n
            case 4:
                frame.columns = pd.Index([*frame.columns[:-1], rng.choice([0, None, 1.5, "Zd"])])

        def expected() -> dict[str, Sequence[Cell]]:
            if [list(frame.columns).count(name) for name in NAMES] != [1] * len(NAMES):
                raise Finding("a table without a column, or with one twice, was read")
            return cells

        return self._same(frame, expected)

    def arrow(self, rng: random.Random) -> str:
        table, cells = self._table(rng)
        n = table.num_rows
        match rng.randrange(7):
            case 0:
                return self._same(
                    table.to_reader(max_chunksize=rng.choice((1, 3, 100))), lambda: cells
                )
            case 1:
                parts = [table.slice(i, 2) for i in range(0, n, 2)]
                return self._same(pa.concat_tables(parts) if parts else table, lambda: cells)
            case 2:
                return self._same(
                    table.combine_chunks().to_batches()[0] if n else table, lambda: cells
                )
            case 3:
                try:
                    frame = pl.from_arrow(table)
                except Exception:  # a type that polars lacks
                    return self._same(table, lambda: cells)
                return self._same(frame, lambda: cells)
            case 4:
                usable = all(not pa.types.is_dictionary(f.type) for f in table.schema)
                made = duckdb.arrow(table) if usable and n else table
                return self._same(made, lambda: cells)
            case 5:
                data = bytearray(table.slice(0).combine_chunks().to_pydict().__repr__().encode())
                return self._same(rng.choice([bytes(data), list(data), 7, None, {}]), _never)
            case _:
                return self._same(table.slice(rng.choice((0, 0, 1)) * 0), lambda: cells)


def _never() -> dict[str, Sequence[Cell]]:
    raise Finding("what is no table was read")


def _said(value: Any, text: Cell) -> Cell:
    """The text of an object; a str says what it is."""
    return value.encode("utf-8", "surrogatepass") if type(value) is str else text


def _written(rows: list[list[bytes]], delimiter: bytes, ends: bytes, *, quote_all: bool) -> bytes:
    """Delimited text of bytes, quoted where it has to be."""
    lines = []
    for row in rows:
        quoted = [
            b'"' + cell.replace(b'"', b'""') + b'"'
            if quote_all or any(mark in cell for mark in (delimiter, b'"', b"\n", b"\r"))
            else cell
            for cell in row
        ]
        lines.append(delimiter.join(quoted))
    return ends.join([*lines, b""])


def _parsed(data: bytes) -> dict[str, Sequence[Cell]]:
    """The declared columns of delimited text, by Python's own reader."""
    text = data.removeprefix(b"\xef\xbb\xbf").decode("latin-1")
    best: dict[str, Sequence[Cell]] = {}
    for delimiter in ",;\t":
        rows = [r for r in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if r]
        if not rows or any(len(row) != len(rows[0]) for row in rows):
            continue
        names = [name.encode("latin-1").decode("utf-8", "replace") for name in rows[0]]
        if set(NAMES) <= set(names):
            best = {n: [r[names.index(n)].encode("latin-1") for r in rows[1:]] for n in NAMES}
    if not best:
        raise Finding("a table was read in which Python's csv finds no such columns")
    return best


def _column(
    rng: random.Random, name: str, n: int, *, utf8: bool = False
) -> tuple[pa.Array, list[Cell]]:
    """Cells of one Arrow type, and the text of each; some are null."""
    numbers = [0, 1, 2.5, 4, 5, 4.75, 10, -1, 7, float("inf"), float("nan"), 0.1, 3e38]
    integers = [0, 1, 4, 5, 7, 10, -1, 127]
    match rng.randrange(8):
        case 0 | 1:
            texts = [cell for cell in OF_COLUMN[name] if not utf8 or _is_utf8(cell)]
            cells: list[Any] = [rng.choice(texts) for _ in range(n)]
            types = [pa.string(), pa.large_string(), pa.string_view()]
            if not utf8:
                types += [pa.binary(), pa.large_binary(), pa.binary_view()]
            kind = rng.choice(types)
            if any(not _is_utf8(cell) for cell in cells):
                kind = pa.large_binary()
        case 2:
            cells, kind = [rng.choice(numbers) for _ in range(n)], pa.float64()
        case 3:
            cells = [np.float32(rng.choice(numbers)) for _ in range(n)]
            kind = pa.float32()
        case 4:
            cells = [rng.choice(integers) for _ in range(n)]
            kind = rng.choice([pa.int8(), pa.int32(), pa.int64()])
        case 5:
            cells, kind = [rng.random() < 0.5 for _ in range(n)], pa.bool_()
        case 6:
            cells = [datetime(2020, rng.randrange(1, 13), 7) for _ in range(n)]
            kind = rng.choice([pa.date32(), pa.timestamp("us"), pa.timestamp("ns")])
        case _:
            cells = [Decimal(rng.choice(("1", "2.5", "4.75", "-1", "7"))) for _ in range(n)]
            kind = pa.decimal128(12, 3)
    texts_of = [_text(cell) for cell in cells]
    null = rng.choice((0.0, 0.0, 0.3, 1.0))
    for i in range(n):
        if rng.random() < null:
            cells[i] = texts_of[i] = None
    array = pa.array(cells, kind)
    if kind not in (pa.string_view(), pa.binary_view()) and rng.random() < 0.3:
        array = array.dictionary_encode()
    return array, texts_of


def _is_utf8(cell: bytes) -> bool:
    try:
        cell.decode()
    except UnicodeDecodeError:
        return False
    return True


def _text(cell: Any) -> Cell:
    if isinstance(cell, bytes):
        return cell
    if isinstance(cell, bool):
        return str(cell).lower().encode()
    if isinstance(cell, np.floating):
        return str(cell).encode()
    return (cell.isoformat() if isinstance(cell, date) else str(cell)).encode()


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """Cells as Python has them; text as bytes, since it may be broken."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_string_view(kind):
        column, kind = column.cast(pa.large_string()), pa.large_string()
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = column.cast(pa.large_binary())
    if pa.types.is_timestamp(kind):
        column, kind = column.cast(pa.date32()), pa.date32()
    if pa.types.is_date32(kind):  # Python has no date beyond the year 9999
        ends = (date.min - _EPOCH).days, (date.max - _EPOCH).days
        days = column.cast(pa.int32()).to_pylist()
        return [
            None if d is None else _EPOCH + timedelta(min(max(d, ends[0]), ends[1])) for d in days
        ]
    cells = column.to_pylist()
    return [
        np.float32(cell) if cell is not None and kind == pa.float32() else cell for cell in cells
    ]


def _cell(cell: Any) -> Cell:
    return None if cell is None else _text(cell)


def _as_series(rng: random.Random, array: pa.Array) -> pd.Series[Any]:
    """A pandas column by one of the ways that people come to one."""
    if pa.types.is_string_view(array.type):
        array = array.cast(pa.string())
    if pa.types.is_dictionary(array.type) and pa.types.is_floating(array.type.value_type):
        array = array.cast(array.type.value_type)  # pandas has no category NaN
    table = pa.table({"v": array})
    match rng.randrange(4):
        case 0:
            return table.to_pandas(types_mapper=pd.ArrowDtype)["v"]
        case 1:
            return table.to_pandas()["v"]
        case 2:
            held = table.to_pandas()["v"]
            return held if isinstance(held.dtype, pd.CategoricalDtype) else held.astype("category")
        case _:
            return table.to_pandas()["v"].convert_dtypes()
