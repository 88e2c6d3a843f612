"""Spark DataFrames: the kernel runs where the rows are, and only partial sums leave the workers.

Each task sums one partition and hands over its sums as rows. A second, small stage adds them, so
that what reaches the driver does not grow with the number of partitions. The rows of a task that is
tried again replace those of the first try; an accumulator would count them twice.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pyspark import inheritable_thread_target
from pyspark.errors import PythonException
from pyspark.logger import PySparkLogger
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import functions, types
from pyspark.sql.pandas.types import to_arrow_type

from dpstats import __version__
from dpstats.arrays import Codes
from dpstats.errors import DataError
from dpstats.private.kernel import Kernel
from dpstats.private.partial_sums import PartialSums, sum_on_worker
from dpstats.private.persons import PersonWeights, of_persons, used_rows
from dpstats.private.sources import (
    Source,
    check_order,
    join_small,
    one_by_one,
    source_of_stream,
)
from dpstats.schema import Design, RawColumns

T = TypeVar("T")
Batches = Iterable[pa.RecordBatch]
Task = Callable[[Batches], Iterator[pa.RecordBatch]]
PIECE = 2**10  # functions: sums travel in pieces, so that no record batch of them is large
_SCHEMA = pa.schema({
    "piece": pa.int32(), "rows": pa.int64(), "sums": pa.list_(pa.int64()), "refused": pa.string(),
})  # fmt: skip
_FIELDS = "piece int, rows bigint, sums array<bigint>, refused string"
_ADDERS = 32  # tasks that add the pieces
_ORDERED = (
    types.NumericType, types.StringType, types.BinaryType, types.BooleanType, types.DateType,
    types.TimestampType, types.TimestampNTZType,
)  # fmt: skip
_CANCEL = 10  # times, a second apart
_OTHER_PYTHON = (
    "reading the rows failed (PythonException): a step of the query raised an error, or workers "
    "start a Python without the libraries of dpstats; then set PYSPARK_PYTHON to the Python of the "
    "driver before the session starts"
)
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_tags = itertools.count()


def open_spark(frame: Any, raw: RawColumns) -> Source:
    """A Spark DataFrame, of a session in this process or of Spark Connect."""
    if type(frame).__module__.startswith("pyspark.pandas."):
        raise DataError("this is a table of the pandas API on Spark; pass table.to_spark()")
    if frame.isStreaming:
        raise DataError("this DataFrame is a stream without an end; write it to a table first")
    for field in frame.schema.fields:
        if field.name in (*raw.with_keys, raw.order):
            _check_leaves(field)
    source = replace(
        source_of_stream(frame.columns, partial(_streamed, frame)),
        sums=lambda kernel: _sums(kernel, _selected(frame, kernel.raw.names), join_small),
    )

    def can_sort(name: str) -> bool:
        kinds = [field.dataType for field in frame.schema.fields if field.name == name]
        return len(kinds) == 1 and isinstance(kinds[0], _ORDERED)

    check_order(raw, can_sort)
    if raw.person is None:
        return source
    return replace(source, limited=_of_persons(source, frame, raw, raw.person))


def _check_leaves(field: types.StructField) -> None:
    """Refuse a column that Arrow does not carry."""
    try:
        to_arrow_type(field.dataType)
    except Exception:
        kind = field.dataType.typeName()
        raise DataError(
            f"column {field.name!r} has the Spark type {kind}, which cannot leave Spark: cast it, "
            "for instance to a string"
        ) from None


def _column(name: str) -> Any:
    return functions.col("`" + name.replace("`", "``") + "`")


def _selected(frame: Any, names: Sequence[str]) -> Any:
    """Some columns; of none, rows all the same."""
    columns = [_column(name) for name in names]
    return frame.select(*(columns or [functions.lit(1).alias("row")]))


def _of_persons(
    source: Source, frame: Any, raw: RawColumns, person: str
) -> Callable[[int, Design | None], Source]:
    """A function that makes the table of the first rows of each person, or of all, weights scaled.

    All rows of a person go to one partition, since equal keys (see `key_of`) of one column have
    equal hashes. There they are sorted by the given column and then by all columns that are used:
    rows that are left in any order are the same in all that is summed, so that no row of another
    person, and no accident of the cluster, decides which are used.
    """
    order = raw.order
    if order is None and not raw.weighted:
        raise DataError(
            "a Spark DataFrame has no order, and the plan uses the first rows of each person: say "
            "which come first by the name of a column, such as order='visit', or plan with "
            "rows_per_person= alone if nobody has more rows"
        )
    fields = {field.name: field for field in frame.schema.fields}

    def limited(most: int, design: Design | None) -> Source:
        names = [name for name in raw.names if name in fields]  # all of them, except in a check
        ties = [_tie(fields[name]) for name in names]
        names = list(dict.fromkeys([*names, person, *([] if order is None else [order])]))
        rows = _selected(frame, names).repartition(_key(fields[person]))
        if order is not None:
            rows = rows.sortWithinPartitions(_column(order), *ties)

        def sums(kernel: Kernel) -> tuple[list[Codes], int]:
            choose = partial(_used_rows, list(kernel.raw.names), person, most, design)
            return _sums(kernel, rows, choose)

        together = replace(source, parts=lambda names: one_by_one(_streamed(rows, names)))
        return replace(of_persons(together, person, most, design=design), sums=sums)

    return limited


def _key(field: types.StructField) -> Any:
    """Column that is equal where keys are; both signs of zero are one key."""
    of_floats = isinstance(field.dataType, types.FractionalType)
    return _column(field.name) + functions.lit(0) if of_floats else _column(field.name)


def _tie(field: types.StructField) -> Any:
    """An order in which rows are tied only if their cells have the same code."""
    column = _column(field.name)
    if isinstance(field.dataType, types.StringType):  # a collation would tie different texts
        return column.cast("binary")
    return column if isinstance(field.dataType, _ORDERED) else column.isNotNull()


def _used_rows(
    names: list[str], person: str, most: int, design: Design | None, batches: Batches
) -> Batches:
    if design is None:
        return used_rows(join_small(batches), names, person, most)
    # All rows of a person are in one partition, which is read twice.
    rows = list(join_small(batches))
    weights = PersonWeights(design, person, most).read(rows)
    return used_rows(rows, names, person, most, weights=weights)


def _sums(
    kernel: Kernel, frame: Any, rows_of: Callable[[Batches], Batches]
) -> tuple[list[Codes], int]:
    """Exact sums and the number of rows; `rows_of` makes the rows from those of a partition."""
    parts = frame.mapInArrow(_on_workers(summed, kernel, rows_of), _FIELDS)
    size = sum(block.size for block in kernel.blocks)
    pieces = parts.repartition(min(-(-size // PIECE), _ADDERS), "piece")
    sums = pieces.mapInArrow(_on_workers(added), _FIELDS)
    batches = _collected(frame.sparkSession, sums.toArrow).to_batches()
    return _whole(_by_piece(batches), kernel).exact(kernel)


def _collected(session: Any, action: Callable[[], T]) -> T:
    """As `_run`, without the words of a worker that fails, which can quote cells."""
    with suppress(PythonException):
        return _run(session, action)
    raise DataError(_OTHER_PYTHON)


def _on_workers(work: Callable[..., Iterator[pa.RecordBatch]], *arguments: Any) -> Task:
    """A task for workers, which may have another dpstats or none.

    Spark sends the function inside by value: it must not name anything of this module.
    """
    expected, schema = __version__, _SCHEMA
    packed = CloudPickleSerializer().dumps((work, arguments))

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark.serializers import CloudPickleSerializer

        has, loaded = "no dpstats", None
        try:
            from dpstats import __version__ as found

            has = f"dpstats {found}"
            if found == expected:
                has = f"another dpstats {found}"
                loaded = CloudPickleSerializer().loads(packed)
        except Exception:  # of a package that is not there, or not the same
            loaded = None
        if loaded is not None:
            yield from loaded[0](*loaded[1], batches)
            return
        why = f"a Spark worker has {has} and the driver {expected}: install the same on all"
        none = {"piece": 0, "rows": 0, "sums": [], "refused": why}
        yield pa.RecordBatch.from_pylist([none], schema)

    return run


def summed(
    kernel: Kernel, rows_of: Callable[[Batches], Batches], batches: Batches
) -> Iterator[pa.RecordBatch]:
    """On a worker: the partial sums over one partition, in pieces."""
    sums = sum_on_worker(kernel, rows_of(batches))
    for start in range(0, max(len(sums.sums), 1), PIECE):
        yield _numbered(start // PIECE, replace(sums, sums=sums.sums[start : start + PIECE]))


def added(batches: Batches) -> Iterator[pa.RecordBatch]:
    """On a worker: partial sums of several partitions as those of one."""
    for number, sums in _by_piece(batches).items():
        yield _numbered(number, sums)


def _numbered(number: int, sums: PartialSums) -> pa.RecordBatch:
    part = {"piece": number, "rows": sums.rows, "sums": sums.sums, "refused": sums.refused}
    return pa.RecordBatch.from_pylist([part], _SCHEMA)


def _by_piece(batches: Batches) -> dict[int, PartialSums]:
    sums: dict[int, PartialSums] = {}
    for batch in batches:
        for number, rows, values, refused in zip(*batch.columns, strict=True):
            part = PartialSums(rows.as_py(), values.values.to_numpy(), refused.as_py())
            piece = number.as_py()
            sums[piece] = sums[piece] + part if piece in sums else part
    return sums


def _whole(pieces: dict[int, PartialSums], kernel: Kernel) -> PartialSums:
    """Sums from their pieces, of which a refused part gives one and an empty table none."""
    for piece in pieces.values():
        if piece.refused:
            return piece
    nothing = PartialSums.of(kernel, ())
    if not pieces:
        return nothing
    parts = [pieces[number] for number in sorted(pieces)]
    sums = np.concatenate([part.sums for part in parts])
    if len({part.rows for part in parts}) != 1 or len(sums) != len(nothing.sums):
        raise DataError("Spark handed over incomplete sums")
    return PartialSums(parts[0].rows, sums)


def _run(session: Any, action: Callable[[], T]) -> T:
    """The result of an action on the cluster, which is cancelled if this thread is interrupted.

    Spark waits for the end of a job in the thread that has started it, whatever happens to that.
    """
    tag = f"dpstats-{os.getpid()}-{next(_tags)}"
    local = hasattr(session, "_jsparkSession")  # tags of its sessions are known to one thread only
    tags = session.sparkContext if local else session
    add, remove = (tags.addJobTag, tags.removeJobTag) if local else (tags.addTag, tags.removeTag)
    cancel = tags.cancelJobsWithTag if local else tags.interruptTag

    def tagged() -> T:
        add(tag)
        try:
            with _without_words():
                return action()
        finally:
            with suppress(Exception):  # of a cluster that is lost
                remove(tag)

    pool = ThreadPoolExecutor(1)
    future: Future[T] = pool.submit(inheritable_thread_target(session)(tagged))
    try:
        return future.result()
    except BaseException:
        for _ in range(_CANCEL):
            if future.done():
                break
            with suppress(Exception):
                cancel(tag)
            wait([future], timeout=1)
        raise
    finally:
        pool.shutdown(wait=False)


@contextmanager
def _without_words() -> Iterator[None]:
    """Spark's messages, which quote cells, do not reach its Python loggers from this thread."""
    thread = threading.get_ident()
    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]

    def elsewhere(record: logging.LogRecord) -> bool:
        return record.thread != thread

    for logger in loggers:
        logger.addFilter(elsewhere)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(elsewhere)


def _streamed(frame: Any, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows themselves, one partition at a time, for the custodian's screen."""

    def packed(batches: Batches) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            held = pa.array([sink.getvalue().to_pybytes()], pa.binary())
            yield pa.RecordBatch.from_arrays([held], names=["packed"])

    rows = _selected(frame, names).mapInArrow(packed, "packed binary")
    with _without_words():
        for row in rows.toLocalIterator():
            yield from pa.ipc.open_stream(row["packed"])
