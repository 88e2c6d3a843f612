"""Private tables with changes: files, and tables in memory, against sums by plain loops."""

from __future__ import annotations

import csv
import gzip
import io
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import mutations
import naive
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from naive import BLOCKS, NAMES, SCHEMA, Cell
from outcomes import EQUAL, Finding, read

from dpstats.private.tables import exact_sums, open_source

Sums = tuple[int, list[list[int]]]  # the number of rows, and the sums of every block
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


class Kinds:
    """The kinds of tables, files being written to a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def by_name(self) -> dict[str, Callable[[random.Random], str]]:
        return {"CSV": self.csv, "Parquet, bytes changed": self.parquet_bytes}

    def _same(self, data: object, expected: Callable[[], Sums]) -> str:
        """Refused without a cell, or the number of rows and the sums that are expected."""
        found, wanted = read(_sums, data, private=(MARK,)), expected()
        if found != wanted:
            raise Finding(f"{found[0]} rows of {wanted[0]} were read, or their sums differ")
        return EQUAL

    def csv(self, rng: random.Random) -> str:
        """Up to a dozen rows; of half of the files bytes are changed, packed or not."""
        n, wild = rng.choice((0, 1, 2, 5, 12)), rng.random() < 0.5
        columns = {
            name: [rng.choice(cells if wild else cells[:3]) for _ in range(n)]
            for name, cells in OF_COLUMN.items()
        }
        if n and not wild:  # clean but for one cell
            name = rng.choice(NAMES)
            columns[name][rng.randrange(n)] = rng.choice(OF_COLUMN[name])
        names = [*NAMES, *rng.sample(["Zq extra", "unused", "id"], rng.randrange(3))]
        rng.shuffle(names)
        other = [rng.choice([*_TEXTS, *_NUMBERS]) for _ in range(n)]
        rows = [[columns.get(name, other)[row] for name in names] for row in range(n)]
        header = [name.encode() for name in names]
        match rng.randrange(20):
            case 0:
                del header[rng.randrange(len(header))]
            case 1:
                header.append(rng.choice(header))
            case 2 if rows:
                del rng.choice(rows)[0]
            case 3 if rows:
                rows.insert(rng.randrange(len(rows)), header)  # a header once more is a row
        ends, delimiter = rng.choice((b"\n", b"\r\n", b"\r")), rng.choice((b",", b";", b"\t"))
        data = _written([header, *rows], delimiter, ends, quote_all=rng.random() < 0.3)
        data = rng.choice((b"", b"", b"\xef\xbb\xbf")) + data
        if rng.random() < 0.4:
            data = mutations.of_bytes(rng, data, _CSV_TOKENS)
        path, written = self.folder / ("rows.tsv" if delimiter == b"\t" else "rows.csv"), data
        if rng.random() < 0.2:
            path, written = Path(f"{path}.gz"), gzip.compress(data, 1, mtime=0)
            if rng.random() < 0.5:
                written, data = mutations.of_bytes(rng, written), b""
                with suppress(Exception):
                    data = gzip.decompress(written)
        path.write_bytes(written)
        return self._same(path, lambda: _parsed(data))

    def parquet_bytes(self, rng: random.Random) -> str:
        """The table that pyarrow reads at once is the second opinion on pages that were changed."""
        n, held = rng.choice((0, 1, 2, 5, 12)), io.BytesIO()
        pq.write_table(
            pa.table({name: _column(rng, name, n) for name in NAMES}), held,
            row_group_size=rng.choice((1, 3, 100)),
            use_dictionary=rng.random() < 0.5, write_statistics=rng.random() < 0.5,
            compression=rng.choice(("none", "snappy", "gzip", "zstd")),
            data_page_version=rng.choice(("1.0", "2.0")),
            write_page_checksum=rng.random() < 0.3,
        )  # fmt: skip
        data = mutations.of_bytes(rng, held.getvalue())
        path = self.folder / "bytes.parquet"
        path.write_bytes(data)

        def expected() -> Sums:
            try:
                table = pq.read_table(pa.BufferReader(data), columns=list(NAMES), use_threads=False)
            except Exception as error:
                raise Finding(f"a table was read that pyarrow refuses: {error}") from None
            return _sums(table)

        return self._same(path, expected)


def _sums(data: object) -> Sums:
    totals, rows = exact_sums(open_source(data, SCHEMA), SCHEMA, BLOCKS)
    return rows, [total.tolist() for total in totals]


def _written(rows: list[list[bytes]], delimiter: bytes, ends: bytes, *, quote_all: bool) -> bytes:
    """Delimited text of bytes, quoted where it has to be."""

    def quoted(cell: bytes) -> bytes:
        needed = quote_all or any(mark in cell for mark in (delimiter, b'"', b"\n", b"\r"))
        return b'"' + cell.replace(b'"', b'""') + b'"' if needed else cell

    return ends.join([*(delimiter.join(map(quoted, row)) for row in rows), b""])


def _parsed(data: bytes) -> Sums:
    """Rows of delimited text and the sums of a plain loop, by Python's own reader."""
    text = data.removeprefix(b"\xef\xbb\xbf").decode("latin-1")
    best: dict[str, list[Cell]] = {}
    for delimiter in ",;\t":
        rows = [r for r in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if r]
        if not rows or any(len(row) != len(rows[0]) for row in rows):
            continue
        names = [name.encode("latin-1").decode("utf-8", "replace") for name in rows[0]]
        if all(names.count(name) == 1 for name in NAMES):
            best = {n: [r[names.index(n)].encode("latin-1") for r in rows[1:]] for n in NAMES}
    if not best:
        raise Finding("a table was read in which Python's csv finds no such columns")
    return len(best["c"]), naive.sums(best)


def _column(rng: random.Random, name: str, n: int) -> pa.Array:
    """Cells of one Arrow type, some of them null."""
    makers: list[tuple[pa.DataType, Callable[[], Any]]] = [
        (pa.large_binary(), lambda: rng.choice(OF_COLUMN[name])),
        (pa.float64(), lambda: rng.choice([0, 2.5, 4.75, -1, float("inf"), float("nan"), 3e38])),
        (pa.float32(), lambda: np.float32(rng.choice([0, 0.1, 4.75, 3e38]))),
        (pa.int32(), lambda: rng.choice([0, 1, 4, 5, 7, 10, -1, 127])),
        (pa.bool_(), lambda: rng.random() < 0.5),
        (pa.timestamp("us"), lambda: datetime(2020, rng.randrange(1, 13), 7)),
        (pa.decimal128(12, 3), lambda: Decimal(rng.choice(("1", "2.5", "4.75", "-1")))),
    ]
    kind, make = rng.choice(makers)
    null = rng.choice((0.0, 0.0, 0.3, 1.0))
    array = pa.array([None if rng.random() < null else make() for _ in range(n)], kind)
    return array.dictionary_encode() if rng.random() < 0.3 else array
