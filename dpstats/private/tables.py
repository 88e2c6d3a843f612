"""Tables on this machine: pandas, polars, Arrow, DuckDB relations, CSV and Parquet, streamed.

Every adapter only feeds record batches to the kernel. Errors of the readers may quote cells and are
not passed on: a reader's failure becomes one fixed message.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpstats.arrays import Codes, one_blas_thread
from dpstats.errors import DataError
from dpstats.families.block import Block
from dpstats.private.kernel import Kernel
from dpstats.schema import Category, Column, Schema

if TYPE_CHECKING:
    import pandas as pd

BATCH_ROWS = 2**17
CSV_BLOCK = 2**23
MAX_CSV_BLOCK = 2**31 - 1
Progress = Callable[[str, int, int | None], None]
_NUMBER = r"(?i)^\s*([+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf(inity)?)|true|false)\s*$"


@dataclass(frozen=True)
class Source:
    """A private table whose structure is known and whose rows have not been read.

    Attributes
    ----------
    types : list of (name, Arrow type)
        Columns as stored.
    rows : int or None
        Number of rows, where known without reading them.
    batches : callable
        Column names to an iterator of record batches with these columns.
    """

    types: list[tuple[str, pa.DataType]]
    rows: int | None
    batches: Callable[[Sequence[str]], Iterator[pa.RecordBatch]]


def open_source(data: object, schema: Schema) -> Source:
    """Check the structure of a private table, without reading its rows.

    Parameters
    ----------
    data : path, DataFrame, Table or stream
        A ``.csv`` or ``.parquet`` path, a pandas DataFrame, or anything with
        ``__arrow_c_stream__`` (polars DataFrame, DuckDB relation, Arrow table or reader).
    schema : Schema
        The columns that will be used.

    Raises
    ------
    DataError
        For a table that cannot be opened, missing or duplicate columns, and wrong types.
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
    schema.check_types(source.types)
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

    def reported() -> Iterator[pa.RecordBatch]:
        done = 0
        for batch in source.batches(kernel.schema.names):
            done += batch.num_rows
            yield batch
            if progress is not None:
                progress("reading rows", done, source.rows)

    failure, stopped = "", None
    try:
        with one_blas_thread():
            totals = kernel.total(reported())
    except DataError as error:
        failure = str(error)
    except Exception as error:  # as above
        failure = f"reading the rows failed ({type(error).__name__}); nothing was released or spent"
    except BaseException as error:  # an interrupt
        stopped = error.with_traceback(None)
    if stopped is not None:
        raise stopped
    if failure:  # raised here, where no frame of the traceback holds sums
        raise DataError(failure)
    return totals


def _open(data: object, schema: Schema) -> Source:
    if isinstance(data, str | Path):
        path = Path(data)
        if not path.is_file():
            raise DataError(f"there is no file {path.name!r}")
        if path.suffix.lower() == ".csv":
            return _csv(path, schema)
        if path.suffix.lower() in (".parquet", ".pq"):
            return _parquet(path)
        raise DataError(f"{path.name!r}: only .csv and .parquet files can be read")
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(data, pandas.DataFrame):
        return _pandas(data, schema)
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if hasattr(data, "__arrow_c_stream__"):
        return _stream(data)
    if hasattr(data, "collect"):
        raise DataError("this is a lazy table; call .collect() first")
    raise DataError(
        "the table must be a .csv or .parquet path, a pandas DataFrame, or offer "
        f"__arrow_c_stream__ (polars, DuckDB, Arrow); got {type(data).__name__}"
    )


def _stream(data: Any) -> Source:
    rows = data.num_rows if isinstance(data, pa.Table) else getattr(data, "height", None)
    reader = pa.RecordBatchReader.from_stream(data)

    def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in reader:
            chosen = batch.select(list(names))
            for start in range(0, batch.num_rows, BATCH_ROWS):
                yield chosen.slice(start, BATCH_ROWS)

    types = [(field.name, field.type) for field in reader.schema]
    return Source(types, rows if isinstance(rows, int) else None, batches)


def _parquet(path: Path) -> Source:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)

    def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        # One row group at a time, so that memory does not grow with the file.
        for group in range(file.metadata.num_row_groups):
            yield from file.iter_batches(
                BATCH_ROWS, row_groups=[group], columns=list(names), use_threads=False
            )

    types = [(field.name, field.type) for field in file.schema_arrow]
    return Source(types, file.metadata.num_rows, batches)


def _csv(path: Path, schema: Schema) -> Source:
    """Read cells as bytes, then as the schema declares: no type is ever guessed."""
    import pyarrow.csv as pacsv

    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        header = next(csv.reader(file), [])
    stored = {
        c.name: pa.large_binary() if isinstance(c, Category) and c.holds_text else pa.float64()
        for c in schema
    }

    def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        block, done = CSV_BLOCK, 0
        while True:
            try:
                for batch in read(names, block, done):
                    yield batch
                    done += batch.num_rows
                return
            except pa.ArrowInvalid:  # a row longer than a block, or a damaged file
                if block >= min(path.stat().st_size, MAX_CSV_BLOCK):
                    raise
            block = min(16 * block, MAX_CSV_BLOCK)

    def read(names: Sequence[str], block: int, skip: int) -> Iterator[pa.RecordBatch]:
        reader = pacsv.open_csv(
            path,
            read_options=pacsv.ReadOptions(block_size=block, use_threads=False),
            parse_options=pacsv.ParseOptions(
                newlines_in_values=True, ignore_empty_lines=len(header) > 1
            ),
            convert_options=pacsv.ConvertOptions(
                include_columns=list(names),
                column_types={name: pa.large_binary() for name in names},
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
        for whole in reader:
            batch = whole.slice(min(skip, whole.num_rows))
            skip -= whole.num_rows - batch.num_rows
            arrays = [
                array if stored[name] == pa.large_binary() else _csv_numbers(array, schema[name])
                for name, array in zip(names, batch.columns, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=list(names))

    return Source([(name, stored.get(name, pa.null())) for name in header], None, batches)


def _csv_numbers(texts: pa.Array, column: Column) -> pa.Array:
    """Numbers of cells; in a category, text is an undeclared value rather than a missing one."""
    numbers = numbers_from_text(texts)
    if not isinstance(column, Category):
        return numbers
    absent = pc.fill_null(pc.match_substring_regex(texts, r"(?i)^\s*nan\s*$"), True)
    undeclared = pc.and_(pc.is_null(numbers), pc.invert(absent))
    return pc.if_else(undeclared, pa.scalar(_no_level(column.stored)), numbers)


def numbers_from_text(texts: pa.Array) -> pa.Array:
    """Float64 of cells given as bytes, correctly rounded; true is 1, false 0, other text null."""
    readable = pc.match_substring_regex(texts, _NUMBER)
    kept = pc.if_else(readable, texts, pa.scalar(None, texts.type)).cast(pa.large_string())
    plain = pc.ascii_lower(pc.ascii_ltrim(pc.ascii_trim_whitespace(kept), "+"))
    for word, digit in (("true", "1"), ("false", "0")):
        plain = pc.if_else(pc.equal(plain, word), pa.scalar(digit, plain.type), plain)
    return plain.cast(pa.float64())


def _pandas(frame: pd.DataFrame, schema: Schema) -> Source:
    names = list(frame.columns)
    twice = [name for name in schema.names if names.count(name) > 1]
    if twice:
        raise DataError(f"the table has more than one column named {twice}")
    arrays = {c.name: _pandas_array(frame[c.name], c) for c in schema if c.name in names}

    def batches(wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
        chosen = [arrays[name] for name in wanted]
        for start in range(0, len(frame), BATCH_ROWS):
            yield pa.RecordBatch.from_arrays(
                [array.slice(start, BATCH_ROWS) for array in chosen], names=list(wanted)
            )

    return Source([(name, array.type) for name, array in arrays.items()], len(frame), batches)


def _pandas_array(series: pd.Series[Any], column: Column) -> pa.Array:
    dtype = series.dtype
    held = getattr(getattr(dtype, "categories", None), "dtype", dtype)  # of a Categorical
    if held == np.dtype(object):
        return _objects(series, column)
    array = series.to_numpy() if isinstance(series.dtype, np.dtype) else None
    if array is not None and array.dtype.kind in "iufb" and not array.dtype.isnative:
        return pa.array(array.astype(array.dtype.newbyteorder("=")), from_pandas=True)
    failed = False
    try:
        converted = pa.Array.from_pandas(series)
    except (pa.ArrowException, TypeError, ValueError):
        failed = True
    if failed and str(held) in ("string", "str"):  # broken text: cell by cell instead
        return _objects(series.astype(object), column)
    if failed:
        raise DataError(f"column {column.name!r} is stored as {series.dtype}, which cannot be read")
    return converted.combine_chunks() if isinstance(converted, pa.ChunkedArray) else converted


def _objects(series: pd.Series[Any], column: Column) -> pa.Array:
    """Python objects cell by cell: any cell becomes a level, a number or missing."""
    if not isinstance(column, Category):
        return pa.array([_real(cell) for cell in series], pa.float64(), from_pandas=True)
    # Numbers match as float64, as on every other route: a Decimal 0.1 is the level 0.1.
    text = column.holds_text
    stored = list(column.stored) if text else [float(value) for value in column.stored]
    index: dict[Any, int] = {value: i for i, value in enumerate(stored)}
    if text:  # Parquet files can hold text as bytes
        index |= {str(value).encode(): i for i, value in enumerate(stored)}
    undeclared = len(stored)  # the code of a value that no level has
    found = [
        None if _is_missing(cell) else _look_up(index, cell if text else _real(cell), undeclared)
        for cell in series
    ]
    dictionary = pa.array([*stored, _no_level(stored)])
    return pa.DictionaryArray.from_arrays(pa.array(found, pa.int32()), dictionary)


def _no_level(stored: Sequence[Any]) -> str | float:
    """A text, or a number, that is none of the stored ones."""
    if isinstance(stored[0], str):
        return str(max(stored, key=len)) + "+"
    return 2 * max(abs(float(value)) for value in stored) + 1


def _look_up(index: Mapping[Any, int], cell: object, undeclared: int) -> int:
    try:
        return index.get(cell, undeclared)
    except Exception:  # unhashable, such as a list; a cell may be any object
        return undeclared


def _is_missing(cell: object) -> bool:
    if cell is None:
        return True
    if isinstance(cell, list | np.ndarray):  # a value, though never a declared one
        return False
    try:
        return bool(cell != cell)
    except Exception:  # NA, signalling NaN
        return True


def _real(cell: object) -> float | None:
    real = int | float | np.integer | np.floating | np.bool_ | Decimal | Fraction
    if isinstance(cell, np.timedelta64) or not isinstance(cell, real):  # numpy calls it an integer
        return None
    try:
        return float(cell)
    except OverflowError:
        return np.inf if cell > 0 else -np.inf
    except Exception:  # signalling NaN
        return None
