"""Tables on this machine, streamed: data frames, Arrow, DuckDB relations, CSV and Parquet.

Every adapter only feeds record batches to the kernel. Errors of the readers may quote cells and are
not passed on: a reader's failure becomes one fixed message.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from dpstats import files
from dpstats.arrays import Codes, one_blas_thread
from dpstats.checks import Progress
from dpstats.errors import DataError, RequestError
from dpstats.families.block import Block
from dpstats.private import engines
from dpstats.private.data_frames import data_frame
from dpstats.private.delimited import delimited, is_delimited
from dpstats.private.kernel import Kernel
from dpstats.private.parquet import SUFFIXES, is_several, parquet
from dpstats.private.sources import (
    Source,
    describe_failure,
    describe_unopened,
    open_stream,
    without_rows,
)
from dpstats.private.threads import sum_parts
from dpstats.schema import RawColumns, Schema

_FILES = ".csv, .tsv (both also .gz) and .parquet files, and folders of these last,"


def open_source(
    data: object, schema: Schema, person: str | None = None, order: str | None = None
) -> Source:
    """Check the structure of a private table (see `measure`), without reading its rows.

    DataError for a table that cannot be opened, and for missing or duplicate columns.
    """
    source = find_source(data, schema, person, order)
    source.check_names(replace(schema.raw, person=person))
    return source


def find_source(
    data: object, schema: Schema, person: str | None = None, order: str | None = None
) -> Source:
    """Open a table that may lack columns."""
    raw = replace(schema.raw, person=person, order=order)
    return without_rows(partial(_open, data, raw), partial(describe_unopened, "the table"))


def exact_sums(
    source: Source, schema: Schema, blocks: Sequence[Block], progress: Progress | None = None
) -> tuple[list[Codes], int]:
    """Read the rows once: exact sums, one (d,) int64 array per block, and the number of rows.

    No cell is in the message of a DataError.
    """
    kernel = Kernel(schema, blocks)
    if source.rows is not None:
        kernel.check_rows(source.rows)
    reported = Reported(source, progress)

    def work() -> tuple[list[Codes], int]:
        with one_blas_thread(of_scipy=False):
            if source.sums is not None:
                totals = source.sums(kernel)
            else:
                totals = sum_parts(kernel, source.parts(kernel.raw.names), reported)
        reported.all()
        return totals

    return without_rows(work, describe_failure, "; nothing was released or spent")


class Reported:
    """Progress in per cent.

    The calls are the same for every table of a kind, 0 to 100 or a single one without a number:
    how many rows there are can be private.
    """

    def __init__(self, source: Source, progress: Progress | None) -> None:
        self._source, self._say = source, progress or (lambda text, done, total: None)
        self._counted = source.rows is not None or source.share_read is not None
        self._shown = 0
        self._say("reading rows", 0, 100 if self._counted else None)

    def __call__(self, rows: int) -> None:
        """So many rows have been read."""
        if self._counted:
            share_read = self._source.share_read
            share = share_read() if share_read else rows / max(self._source.rows or 0, 1)
            self._up_to(int(100 * min(share, 1)))

    def all(self) -> None:
        """All rows have been read."""
        if self._counted:
            self._up_to(100)

    def _up_to(self, percent: int) -> None:
        while self._shown < percent:
            self._shown += 1
            self._say("reading rows", self._shown, 100)


def _open(data: object, raw: RawColumns) -> Source:
    open_table = engines.opener(data)
    if raw.order is not None and not engines.takes_order(data):
        raise DataError(
            "order= is for Spark DataFrames and Ibis tables, and this table has an order of its "
            "own: sort it, and leave order= out"
        )
    if open_table is not None:
        return open_table(data, raw)
    if isinstance(data, str | Path):
        try:
            path = files.as_path(data)
        except RequestError as error:
            raise DataError(str(error)) from None
        return _files(path, raw)
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(data, pandas.DataFrame):
        return data_frame(data, raw)
    if pandas is not None and isinstance(data, pandas.Series):
        raise DataError("this is a single column; pass a DataFrame, such as series.to_frame()")
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if hasattr(data, "__arrow_c_stream__"):
        return open_stream(data)
    if hasattr(data, "collect"):
        raise DataError("this is a lazy table; call .collect() first")
    raise DataError(
        "the table must be the path of a .csv, .tsv or .parquet file or of a folder of .parquet "
        f"files, a table of {engines.NAMES}, or offer __arrow_c_stream__; got "
        f"{type(data).__name__}"
    )


def _files(path: Path, raw: RawColumns) -> Source:
    if is_several(path):
        return parquet(path)
    if not path.is_file():
        raise DataError(
            f"{path.name!r} is not a file but {files.kind_of(path)}"
            if os.path.lexists(path)
            else f"there is no file {path.name!r}"
        )
    if is_delimited(path):
        return delimited(path, raw)
    if path.suffix.lower() in SUFFIXES:
        return parquet(path)
    raise DataError(f"{path.name!r}: only {_FILES} can be read")
