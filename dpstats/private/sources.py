"""A private table of any kind as a stream of record batches."""

from __future__ import annotations

import itertools
import re
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from dpstats.arrays import Codes
from dpstats.checks import columns_named, first_few
from dpstats.errors import DataError
from dpstats.schema import Design, RawColumns

if TYPE_CHECKING:
    from dpstats.private.kernel import Kernel

BATCH_ROWS = 2**17
_GATHERED = 2**26  # bytes
Part = Iterable[pa.RecordBatch]
T = TypeVar("T")
_READ: weakref.WeakSet[pa.RecordBatchReader] = weakref.WeakSet()  # streams that have no rows left
_UNEVEN = re.compile(r"CSV parse error: (Row #(?P<line>\d+): )?Expected \d+ columns, got \d+")


@dataclass(frozen=True)
class Source:
    """A private table whose structure is known and whose rows have not been read."""

    fields: Sequence[str]  # names of the columns as stored
    # Names of columns to parts with these columns; different threads may take different parts.
    parts: Callable[[Sequence[str]], Iterator[Part]]
    rows: int | None = None  # where known without reading them
    # Share of a file, from 0 to 1, that was read so far, where the number of rows is unknown.
    share_read: Callable[[], float] | None = None
    # What may be said of a file's first line, which should hold names but may hold a person's data.
    first_line: str = ""
    # Where an engine runs the kernel: then `parts` serves only what must see rows in their order.
    sums: Callable[[Kernel], tuple[list[Codes], int]] | None = None
    # Where an engine chooses the rows of persons: their largest number, and the design of a survey.
    limited: Callable[[int, Design | None], Source] | None = None
    again: bool = True  # whether the rows can be read more than once
    decimal: str = "."  # the mark of a text file; a comma is exchanged with points
    # For columns that some files of a table have and others not, one of these, by its place.
    lacking: Mapping[str, str] = field(default_factory=dict)

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """All record batches with some columns, one after the other."""
        return itertools.chain.from_iterable(self.parts(names))

    def check_names(self, raw: RawColumns) -> None:
        """Refuse a table that lacks a column, or the one of keys, or has one twice.

        Types are not looked at: one cell can decide which type a column is stored in.
        """
        lacking = [name for name in raw.with_keys if name not in self.fields]
        if self.first_line and lacking:
            raise DataError(
                f"{self.first_line}, without {columns_named(lacking)}; the plan needs a header "
                f"with the columns {list(raw.with_keys)}: if it has none, put a line with the "
                "names of all columns above it. 'dpstats check' shows the fields of a header"
            )
        absent = [name for name in raw.with_keys if name in self.lacking]
        if absent:
            raise DataError(
                f"{self.lacking[absent[0]]} has no {columns_named(absent[:1])}, which the plan "
                "needs and other files of the table have"
            )
        if lacking and lacking != [raw.person]:
            raise DataError(
                f"the table has no {columns_named(lacking)}; the plan needs "
                f"{list(raw.with_keys)}; the table has {first_few(self.fields)}"
            )
        if lacking:
            raise DataError(
                f"the plan knows persons by the column {raw.person!r}, which the table has not"
            )
        fields = list(self.fields)
        if twice := [name for name in raw.with_keys if fields.count(name) > 1]:
            raise DataError(f"the table has more than one column named {twice}")


def check_order(raw: RawColumns, can_sort: Callable[[str], bool]) -> None:
    """Refuse an order of the rows of persons that a plan does not need, or that is none."""
    if raw.order is not None and (raw.person is None or raw.weighted):
        why = "uses all rows" if raw.weighted else "knows no persons"
        remedy = "" if raw.weighted else ", or plan with person="
        raise DataError(
            f"order= says which rows of a person come first, and this plan {why}: leave it "
            f"out{remedy}"
        )
    if raw.order is not None and not can_sort(raw.order):
        raise DataError(
            f"order={raw.order!r} must be the name of one column, of numbers, text, dates or times"
        )


def require_again(source: Source) -> None:
    """Refuse a stream, which can be read once, before anything is spent."""
    if not source.again:
        raise DataError(
            "the plan reads the rows twice, and this is a stream: write it to a .parquet or .csv "
            "file, or pass a table, such as reader.read_all(), or a DuckDB relation itself"
        )


def describe_failure(error: Exception, *, line: bool = False) -> str:
    """Message of a reader's failure without its own text, which may quote cells.

    With `line`, for the custodian's screen alone, the line where it happened is named if known.
    """
    uneven = _UNEVEN.match(str(error)) if isinstance(error, pa.ArrowInvalid) else None
    if uneven is None:
        return f"reading the rows failed ({type(error).__name__})"
    which = f"line {uneven['line']}" if line and uneven["line"] else "a line"
    return (
        f"{which} has more or fewer fields than the first, or a quote is not closed; put text that "
        'holds the delimiter in quotes, write a quote within it twice (""), and close every quote'
    )


def describe_unopened(what: str, error: Exception) -> str:
    """Message of a failure to open a table, or one of its files."""
    return (
        f"{what} cannot be opened ({type(error).__name__}) and may be damaged or in use; nothing "
        "was released or spent"
    )


def without_rows(work: Callable[[], T], describe: Callable[[Exception], str], end: str = "") -> T:
    """Result of some work; of a failure only a sentence, raised where no frame holds rows.

    A reader's own message may quote cells, so that only that of a DataError is kept. The
    sentence gets an `end` if it does not say what was released or spent.
    """
    failure, stopped = "", None
    try:
        return work()
    except DataError as error:
        failure = str(error)
    except Exception as error:
        failure = describe(error)
    except BaseException as error:  # an interrupt
        stopped = error.with_traceback(None)
        stopped.__cause__ = stopped.__context__ = None
    del work  # it may hold the table
    if stopped is not None:
        raise stopped
    raise DataError(failure if "nothing was" in failure else failure + end)


def in_slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A record batch in pieces of at most BATCH_ROWS rows."""
    for start in range(0, batch.num_rows, BATCH_ROWS):
        yield batch.slice(start, BATCH_ROWS)


def join_small(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Record batches with small ones joined, of which each costs as much as many rows."""
    small: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        small.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= BATCH_ROWS // 2 or size >= _GATHERED:
            yield pa.concat_batches(small)
            small, rows, size = [], 0, 0
    if small:
        yield pa.concat_batches(small)


def one_by_one(batches: Iterable[pa.RecordBatch]) -> Iterator[Part]:
    """Record batches as parts of at most BATCH_ROWS rows."""
    for batch in batches:
        for piece in in_slices(batch):
            yield (piece,)


def open_stream(data: Any) -> Source:
    """Anything with ``__arrow_c_stream__``; read once, unless it knows its number of rows."""
    if isinstance(data, pa.RecordBatchReader) and data in _READ:
        raise DataError(
            "this stream has been read, by dpstats, and has no rows left: make it anew, or pass a "
            "table, such as reader.read_all()"
        )
    rows = data.num_rows if isinstance(data, pa.Table) else getattr(data, "height", None)
    known = isinstance(rows, int)
    first = pa.RecordBatchReader.from_stream(data)

    def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if isinstance(data, pa.RecordBatchReader):
            _READ.add(data)
        for batch in pa.RecordBatchReader.from_stream(data) if known else first:
            yield batch.select(list(names))

    return source_of_stream(first.schema.names, batches, rows if known else None, again=known)


def source_of_stream(
    fields: Sequence[str],
    batches: Callable[[Sequence[str]], Iterator[pa.RecordBatch]],
    rows: int | None = None,
    *,
    again: bool = True,
) -> Source:
    """A table of known columns whose batches are made anew each time; read once at a time."""
    return Source(fields, lambda names: one_by_one(batches(names)), rows, again=again)
