"""Tables on this machine, streamed: data frames, Arrow, DuckDB relations, CSV and Parquet.

Every adapter only feeds record batches to the kernel. Errors of the readers may quote cells and are
not passed on: a reader's failure becomes one fixed message.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpstats import files
from dpstats.arrays import Codes, one_blas_thread
from dpstats.errors import DataError
from dpstats.families.block import Block
from dpstats.private import sources
from dpstats.private.data_frames import data_frame
from dpstats.private.delimited import delimited, is_delimited
from dpstats.private.kernel import Kernel
from dpstats.private.sources import Source, in_slices, unread
from dpstats.schema import Schema

Progress = Callable[[str, int, int | None], None]
_FILES = ".csv, .tsv (both also .gz) and .parquet files"


def open_source(data: object, schema: Schema) -> Source:
    """Check the structure of a private table, without reading its rows.

    Parameters
    ----------
    data : path, DataFrame, Table or stream
        The path of a ``.csv``, ``.tsv``, ``.csv.gz``, ``.tsv.gz`` or ``.parquet`` file, a pandas
        DataFrame, or anything with ``__arrow_c_stream__`` (polars DataFrame, DuckDB relation,
        Arrow table or reader).
    schema : Schema
        The columns that will be used.

    Raises
    ------
    DataError
        For a table that cannot be opened, and for missing or duplicate columns.
    """
    source = find_source(data, schema)
    source.check_names(schema)
    return source


def find_source(data: object, schema: Schema) -> Source:
    """As `open_source`, for a table that may lack columns.

    Raises
    ------
    DataError
        For a table that cannot be opened.
    """
    failure = ""
    try:
        source = _open(data, schema)
    except DataError:
        raise
    except Exception as error:  # a reader's own message may quote cells: keep only its type
        failure = type(error).__name__
    if failure:
        raise DataError(f"the table cannot be opened ({failure}); is it damaged or in use?")
    return source


def exact_sums(
    source: Source, schema: Schema, blocks: Sequence[Block], progress: Progress | None = None
) -> tuple[list[Codes], int]:
    """Read the rows once: exact sums, one (d,) int64 array per block, and the number of rows.

    Raises
    ------
    DataError
        If the rows cannot be read; never with a cell in the message.
    """
    kernel = Kernel(schema, blocks)
    if source.rows is not None:
        kernel.check_rows(source.rows)
    failure, stopped = "", None
    try:
        with one_blas_thread():
            totals = kernel.total(reported(source, kernel.schema.names, progress))
    except DataError as error:
        failure = str(error)
    except Exception as error:  # as above
        failure = f"{unread(error)}; nothing was released or spent"
    except BaseException as error:  # an interrupt
        stopped = error.with_traceback(None)
    if stopped is not None:
        raise stopped
    if failure:  # raised here, where no frame of the traceback holds sums
        raise DataError(failure)
    return totals


def reported(
    source: Source, names: Sequence[str], progress: Progress | None
) -> Iterator[pa.RecordBatch]:
    """The batches of a source; progress is reported in per cent.

    The calls are the same for every table of a kind, 0 to 100 or a single one without a number:
    how many rows there are can be private.
    """
    say = progress or (lambda text, done, total: None)
    done, shown = 0, 0
    counted = source.rows is not None or source.share_read is not None
    say("reading rows", 0, 100 if counted else None)
    for batch in source.batches(names):
        yield batch
        done += batch.num_rows
        share = source.share_read() if source.share_read else done / max(source.rows or 0, 1)
        while counted and shown < int(100 * min(share, 1)):
            shown += 1
            say("reading rows", shown, 100)
    for percent in range(shown + 1, 101) if counted else ():
        say("reading rows", percent, 100)


def _open(data: object, schema: Schema) -> Source:
    if isinstance(data, str | Path):
        path = Path(data)
        if not path.is_file():
            raise DataError(
                f"{path.name!r} is not a file but {files.kind_of(path)}"
                if os.path.lexists(path)
                else f"there is no file {path.name!r}"
            )
        if is_delimited(path):
            return delimited(path, schema.names)
        if path.suffix.lower() in (".parquet", ".pq"):
            return _parquet(path)
        raise DataError(f"{path.name!r}: only {_FILES} can be read")
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(data, pandas.DataFrame):
        return data_frame(data, schema)
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if pandas is not None and isinstance(data, pandas.Series):
        raise DataError("this is a single column; pass a DataFrame, such as series.to_frame()")
    if hasattr(data, "__arrow_c_stream__"):
        return _stream(data)
    if hasattr(data, "collect"):
        raise DataError("this is a lazy table; call .collect() first")
    raise DataError(
        "the table must be the path of a .csv, .tsv or .parquet file, a pandas DataFrame, or offer "
        f"__arrow_c_stream__ (polars, DuckDB, Arrow); got {type(data).__name__}"
    )


def _stream(data: Any) -> Source:
    rows = data.num_rows if isinstance(data, pa.Table) else getattr(data, "height", None)
    reader = pa.RecordBatchReader.from_stream(data)

    def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in reader:
            yield from in_slices(batch.select(list(names)))

    types = {field.name: field.type for field in reader.schema}
    return Source(
        reader.schema.names, batches, rows=rows if isinstance(rows, int) else None, types=types
    )


def _parquet(path: Path) -> Source:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(pa.OSFile(os.fsencode(path)))  # of any name

    def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        # One row group at a time, so that memory does not grow with the file.
        for group in range(file.metadata.num_row_groups):
            yield from file.iter_batches(
                sources.BATCH_ROWS, row_groups=[group], columns=list(names), use_threads=False
            )

    types = {field.name: field.type for field in file.schema_arrow}
    names = file.schema_arrow.names
    return Source(names, batches, rows=file.metadata.num_rows, types=types)
