"""Streams of Arrow record batches as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from dpstats.private.sources import Source, in_slices, one_by_one


def arrow_stream(data: Any) -> Source:
    """Anything with ``__arrow_c_stream__``; read once, unless it knows its number of rows."""
    rows = data.num_rows if isinstance(data, pa.Table) else getattr(data, "height", None)
    known = isinstance(rows, int)
    reader = pa.RecordBatchReader.from_stream(data)

    def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in reader:
            yield from in_slices(batch.select(list(names)))

    return stream_source(reader.schema, batches, rows=rows if known else None, again=known)


def stream_source(
    schema: pa.Schema,
    batches: Callable[[Sequence[str]], Iterator[pa.RecordBatch]],
    *,
    rows: int | None = None,
    again: bool = True,
) -> Source:
    """A table of known columns whose batches are made anew each time; read once at a time."""
    types = {field.name: field.type for field in schema}
    return Source(
        schema.names, lambda names: one_by_one(batches(names)), rows=rows, types=types, again=again
    )
