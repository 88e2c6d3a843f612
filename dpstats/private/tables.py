"""Tables on this machine, streamed: data frames, Arrow, DuckDB relations, CSV and Parquet.

Every adapter only feeds record batches to the kernel. Errors of the readers may quote cells and are
not passed on: a reader's failure becomes one fixed message.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpstats import files
from dpstats.arrays import Codes, one_blas_thread
from dpstats.checks import Progress
from dpstats.errors import DataError
from dpstats.families.block import Block
from dpstats.private import sources
from dpstats.private.data_frames import data_frame
from dpstats.private.delimited import delimited, is_delimited
from dpstats.private.kernel import Kernel
from dpstats.private.sources import Part, Source, in_slices, one_by_one, unread
from dpstats.private.threads import sum_parts
from dpstats.schema import Number, Schema

_FILES = ".csv, .tsv (both also .gz) and .parquet files"


def open_source(data: object, schema: Schema, person: str | None = None) -> Source:
    """Check the structure of a private table, without reading its rows.

    Parameters
    ----------
    data : path, DataFrame, Table or stream
        The path of a ``.csv``, ``.tsv``, ``.csv.gz``, ``.tsv.gz`` or ``.parquet`` file, a pandas
        DataFrame, or anything with ``__arrow_c_stream__`` (polars DataFrame, DuckDB relation,
        Arrow table or reader).
    schema : Schema
        The columns that will be used.
    person : str, optional
        The column of keys, which must be there too.

    Raises
    ------
    DataError
        For a table that cannot be opened, and for missing or duplicate columns.
    """
    source = find_source(data, schema, parsed=True, person=person)
    source.check_names(schema, person)
    return source


def find_source(
    data: object, schema: Schema, *, parsed: bool = False, person: str | None = None
) -> Source:
    """As `open_source`, for a table that may lack columns.

    With `parsed`, numbers in text files may come without their text.

    Raises
    ------
    DataError
        For a table that cannot be opened.
    """
    failure = ""
    try:
        source = _open(data, schema, parsed, person)
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
    reported = Reported(source, progress)
    try:
        with one_blas_thread(of_scipy=False):
            totals = sum_parts(kernel, source.parts(kernel.schema.names), reported)
        reported.all()
    except DataError as error:
        failure = str(error)
    except Exception as error:  # as above
        failure = f"{unread(error)}; nothing was released or spent"
    except BaseException as error:  # an interrupt
        stopped = error.with_traceback(None)
        stopped.__cause__ = stopped.__context__ = None  # a reader's error may quote cells
    if stopped is not None:
        raise stopped
    if failure:  # raised here, where no frame of the traceback holds sums
        raise DataError(failure)
    return totals


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
            known = self._source.share_read
            share = known() if known else rows / max(self._source.rows or 0, 1)
            self._up_to(int(100 * min(share, 1)))

    def all(self) -> None:
        """All rows have been read."""
        if self._counted:
            self._up_to(100)

    def _up_to(self, percent: int) -> None:
        while self._shown < percent:
            self._shown += 1
            self._say("reading rows", self._shown, 100)


def _open(data: object, schema: Schema, parsed: bool, person: str | None) -> Source:
    if isinstance(data, str | Path):
        path = Path(data)
        if not path.is_file():
            raise DataError(
                f"{path.name!r} is not a file but {files.kind_of(path)}"
                if os.path.lexists(path)
                else f"there is no file {path.name!r}"
            )
        if is_delimited(path):
            numbers = [c.name for c in schema if isinstance(c, Number) and not c.dates]
            names = [*schema.names, *([] if person is None else [person])]
            return delimited(path, names, numbers if parsed else ())
        if path.suffix.lower() in (".parquet", ".pq"):
            return _parquet(path)
        raise DataError(f"{path.name!r}: only {_FILES} can be read")
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(data, pandas.DataFrame):
        return data_frame(data, schema, person)
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

    def parts(names: Sequence[str]) -> Iterator[Part]:
        return one_by_one(batches(names))

    types = {field.name: field.type for field in reader.schema}
    return Source(
        reader.schema.names, parts, rows=rows if isinstance(rows, int) else None, types=types
    )


def _parquet(path: Path) -> Source:
    import pyarrow.parquet as pq

    raw = pa.OSFile(os.fsencode(path))  # of any name
    file = pq.ParquetFile(raw)
    free = [file]  # a reader serves one thread at a time

    def read(group: int, names: list[str]) -> Iterator[pa.RecordBatch]:
        reader = free.pop() if free else pq.ParquetFile(raw, metadata=file.metadata)
        left = file.metadata.row_group(group).num_rows
        for batch in reader.iter_batches(
            sources.BATCH_ROWS, row_groups=[group], columns=names, use_threads=False
        ):
            left -= batch.num_rows
            yield batch
        if left:  # the reader stops without an error where the pages of a column end early
            raise DataError(
                "a row group holds another number of rows than the file states; it is damaged: "
                "write it again from its source; nothing was released or spent"
            )
        free.append(reader)

    def parts(names: Sequence[str]) -> Iterator[Part]:
        # One row group at a time in each thread, so that memory does not grow with the file.
        return (read(group, list(names)) for group in range(file.metadata.num_row_groups))

    types = {field.name: field.type for field in file.schema_arrow}
    names = file.schema_arrow.names
    return Source(names, parts, rows=file.metadata.num_rows, types=types)
