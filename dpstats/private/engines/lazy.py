"""Queries of DuckDB and polars: they run when rows are read, for the needed columns alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from dpstats.private.sources import BATCH_ROWS, Route, Source, in_slices
from dpstats.private.streams import stream_source
from dpstats.schema import Schema


def duckdb_relation(relation: Any, schema: Schema, person: str | None, route: Route) -> Source:
    """A DuckDB relation, streamed."""
    route.refuse("a DuckDB relation")

    def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        quoted = ('"' + name.replace('"', '""') + '"' for name in names)
        for batch in pa.RecordBatchReader.from_stream(relation.project(", ".join(quoted))):
            yield from in_slices(batch.select(list(names)))

    return stream_source(pa.RecordBatchReader.from_stream(relation.limit(0)).schema, batches)


def lazy_frame(frame: Any, schema: Schema, person: str | None, route: Route) -> Source:
    """A polars LazyFrame, streamed."""
    route.refuse("a polars LazyFrame")

    def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for part in _collected(frame.select(list(names))):
            for batch in pa.RecordBatchReader.from_stream(part):
                yield from in_slices(batch)

    return stream_source(pa.RecordBatchReader.from_stream(frame.limit(0).collect()).schema, batches)


def _collected(frame: Any) -> Iterator[Any]:
    """The rows of a LazyFrame in data frames, a few at a time where polars can."""
    if not hasattr(frame, "collect_batches"):
        yield frame.collect()
        return
    yield from frame.collect_batches(chunk_size=BATCH_ROWS, maintain_order=True, lazy=True)
