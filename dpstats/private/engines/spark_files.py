"""Parquet files behind a Spark DataFrame, for workers that read them without Spark.

Spark applies views, filters and the policies of a catalogue to rows; a file has none of them. So a
DataFrame must be the bare reading of files, as far as its plan tells, and cells must have the
meaning that Spark gives them: types on which Spark and Arrow differ are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from dpstats.errors import DataError
from dpstats.private.parquet import read_row_group

RowGroup = tuple[str, int]
"""A path and the number of a row group."""
_LISTED = ("InMemoryFileIndex", "CatalogFileIndex")  # Delta and others choose rows of a file too
_OLD_DAYS = b"org.apache.spark.legacyDateTime"  # in files whose days are of the Julian calendar


def row_groups(frame: Any, held: pa.Schema) -> tuple[list[RowGroup], int]:
    """All row groups of the files that a DataFrame reads, and the number of their rows.

    Parameters
    ----------
    frame : DataFrame
    held : Schema
        The used columns, with the types that Spark gives them.

    Raises
    ------
    DataError
        If the DataFrame is not the bare reading of Parquet files that can be opened here, or the
        files hold other columns or types.
    """
    why = _not_plain(frame)
    if why:
        raise DataError(f"direct=True reads files without Spark, and {why}: leave it out")
    groups: list[RowGroup] = []
    rows = 0
    for path in map(_local, frame.inputFiles()):
        with pa.OSFile(path) as raw:
            file = pq.ParquetFile(raw)
            _check_columns(file, held)
            rows += file.metadata.num_rows
            groups += [(path, group) for group in range(file.metadata.num_row_groups)]
    return groups, rows


def of_row_groups(
    groups: Sequence[RowGroup], names: Sequence[str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """On a worker: the rows of the row groups whose numbers the batches hold."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            path, group = groups[number]
            yield from read_row_group(Path(path), group, names)


def _not_plain(frame: Any) -> str:
    """Why the plan of a DataFrame is more than the reading of Parquet files, if it is."""
    if not hasattr(frame, "_jdf"):
        return "the plan of a DataFrame of Spark Connect cannot be seen"
    from py4j.protocol import Py4JError  # not there with Spark Connect alone

    try:
        return _not_files(frame._jdf.queryExecution())
    except Py4JError:
        return "this cluster does not let the plan of a DataFrame be seen"


def _not_files(execution: Any) -> str:
    for plan in (execution.analyzed(), execution.optimizedPlan()):
        while _class(plan) == "SubqueryAlias":
            plan = plan.child()
        if _class(plan) != "LogicalRelation" or _class(plan.relation()) != "HadoopFsRelation":
            return "this DataFrame is not the bare reading of Parquet files, but a query or a view"
        relation = plan.relation()
        if _class(relation.fileFormat()) != "ParquetFileFormat":
            return "the files of this DataFrame are not Parquet files"
        if _class(relation.location()) not in _LISTED:
            return "the table keeps a list of its files or rows by itself"
    return ""


def _class(held: Any) -> str:
    return str(held.getClass().getSimpleName())


def _local(uri: str) -> str:
    parts = urlsplit(uri)
    if parts.scheme not in ("", "file") or parts.netloc:
        raise DataError(
            "direct=True reads files of a folder that driver and workers share, and those of this "
            f"DataFrame have addresses that begin with {parts.scheme}: leave it out"
        )
    return unquote(parts.path)


def _check_columns(file: pq.ParquetFile, held: pa.Schema) -> None:
    """Refuse a file in which a column is missing or may mean something else than to Spark."""
    stored = file.schema_arrow
    for field in held:
        if stored.names.count(field.name) != 1:
            raise DataError(
                f"direct=True: column {field.name!r} is not in all files, but perhaps in the names "
                "of their folders: leave direct=True out"
            )
        found = _plain(stored.field(field.name).type)
        old = pa.types.is_date(found) and _OLD_DAYS in (file.metadata.metadata or {})
        if found != field.type or pa.types.is_timestamp(found) or old:
            raise DataError(
                f"direct=True: column {field.name!r} has the type {found} in a file and "
                f"{field.type} in Spark, which may read it differently: leave direct=True out"
            )


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type of cells, however they are laid out."""
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(kind) else kind
