"""Tables of DuckDB and polars: queries run when rows are read, for the needed columns alone.

Cells that Arrow does not carry, or carries in bytes of their own, leave as texts, which mean what
they mean in a file: long integers are one such type, which a single cell can give to a column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from dpstats.private.data_frames import text_of
from dpstats.private.keys import key_of
from dpstats.private.sources import BATCH_ROWS, Source, source_of_stream
from dpstats.schema import RawColumns

_TEXTS = ("hugeint", "uhugeint", "bignum", "varint", "bit", "uuid", "union")  # of DuckDB
_LONG = ("Int128", "UInt128")  # of polars


def open_relation(relation: Any, raw: RawColumns) -> Source:
    """A DuckDB relation, streamed."""
    return source_of_stream(relation.columns, partial(read_relation, relation))


def read_relation(relation: Any, names: Sequence[str]) -> pa.RecordBatchReader:
    """Some columns of a DuckDB relation as Arrow carries them."""
    kinds = dict(zip(relation.columns, relation.types, strict=True))
    cells = []
    for name in names:
        quoted, kind = '"' + name.replace('"', '""') + '"', kinds[name]
        cell = quoted
        if str(kind) == "JSON":
            cell = f"json_extract_string({quoted}, '$')"
        elif kind.id in _TEXTS:
            cell = f"CAST({quoted} AS VARCHAR)"
        cells.append(f"{cell} AS {quoted}")
    return pa.RecordBatchReader.from_stream(relation.project(", ".join(cells)))


def open_polars(frame: Any, raw: RawColumns) -> Source:
    """A polars DataFrame, or a LazyFrame, which is streamed."""

    def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for part in _collected(_carried(frame, names, raw.person)):
            yield from pa.RecordBatchReader.from_stream(part)

    return source_of_stream(frame.collect_schema().names(), batches, getattr(frame, "height", None))


def _carried(frame: Any, names: Sequence[str], person: str | None) -> Any:
    """Some columns of a polars frame as Arrow carries them."""
    import polars as pl

    kinds = frame.collect_schema()
    cells = []
    for name in names:
        cell, kind = pl.col(name), kinds[name]
        if str(kind) in _LONG:
            cell = cell.cast(pl.String)
        elif kind == pl.Object:
            read = partial(_objects, key_of if name == person else text_of)
            cell = cell.map_batches(read, return_dtype=pl.Binary)
        elif kind.is_nested() and any(word in str(kind) for word in (*_LONG, "Object")):
            cell = pl.when(cell.is_not_null()).then(pl.lit(text_of([]))).alias(name)
        cells.append(cell)
    return frame.select(cells)


def _objects(as_text: Callable[[object], bytes | None], cells: Any) -> Any:
    import polars as pl

    return pl.Series(cells.name, [as_text(cell) for cell in cells], dtype=pl.Binary)


def _collected(frame: Any) -> Iterator[Any]:
    """The rows in data frames; those of a LazyFrame a few at a time where polars can."""
    if not hasattr(frame, "collect"):
        yield frame
    elif not hasattr(frame, "collect_batches"):
        yield frame.collect()
    else:
        yield from frame.collect_batches(chunk_size=BATCH_ROWS, maintain_order=True, lazy=True)
