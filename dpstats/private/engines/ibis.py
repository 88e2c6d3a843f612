"""Ibis expressions: a warehouse returns rows, or where it is safe distinct rows with counts.

Distinct rows are safe where equal cells are equal bytes, and the kernel encodes them as it does all
others: what a text, a missing cell or a number means is not written in SQL.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import ibis
import pyarrow as pa

from dpstats.arrays import Codes
from dpstats.errors import DataError
from dpstats.private.engines.lazy import read_relation
from dpstats.private.kernel import Kernel
from dpstats.private.partial_sums import PartialSums
from dpstats.private.sources import (
    BATCH_ROWS,
    Source,
    check_order,
    one_by_one,
    source_of_stream,
)
from dpstats.private.threads import sum_parts
from dpstats.schema import RawColumns

MOST_GROUPS = 2**20


@ibis.udf.scalar.builtin  # type: ignore[untyped-decorator]
def encode(text: str) -> bytes:  # type: ignore[empty-body]
    """The UTF-8 bytes of a text, by a function of DuckDB."""


# How texts of a back end become cells whose equality is that of their bytes. No other is listed: a
# text may have a collation there, which can ignore case, accents or spaces at the end. DuckDB has
# collations too, and none of bytes.
_AS_BYTES: dict[str, Callable[[Any], Any]] = {
    "datafusion": lambda text: text,
    "duckdb": encode,
    "polars": lambda text: text,
}


class _TooManyGroups(Exception):
    """A signal to read the rows themselves."""


def open_ibis(table: Any, raw: RawColumns) -> Source:
    """An Ibis table expression; it runs when rows are read, for the needed columns alone."""
    backend = table.get_backend().name
    if backend == "sqlite":
        raise DataError(
            "columns of SQLite hold cells of any type, which Ibis does not read; write the table "
            "to a .csv file with 'sqlite3 -header -csv' and pass its path"
        )
    check_order(raw, lambda name: name in table.columns and _is_ordered(table[name].type()))
    keys = [] if raw.person is None or raw.weighted else _sorting(table, raw)
    kinds = {name: kind for name, kind in table.schema().items() if name in raw.names}

    def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return _sorted(table, names, keys) if keys else _streamed(_chosen(table, names), names)

    def sums(kernel: Kernel) -> tuple[list[Codes], int]:
        names = kernel.raw.names
        if backend in _AS_BYTES and all(_is_exact(kinds[name]) for name in names):
            try:
                return _sums_of_groups(kernel, table, _AS_BYTES[backend])
            except _TooManyGroups:
                pass
        return sum_parts(kernel, one_by_one(batches(names)))

    return replace(source_of_stream(table.columns, batches), sums=sums)


def _sorting(table: Any, raw: RawColumns) -> list[Any]:
    """Keys of a sort after which tied rows are equal in all that is summed.

    The given column comes first and then all that are used, so that which rows of a person are
    first follows from that person's rows alone.
    """
    backend, order = table.get_backend().name, raw.order
    if order is None or backend not in _AS_BYTES:
        raise DataError(
            f"the plan uses the first rows of each person, known by {raw.person!r}, and an Ibis "
            "table has no order of rows: on DuckDB, polars and DataFusion say which come first by "
            "the name of a column, such as order='visit'; elsewhere write it to a file in an order "
            "that does not depend on other persons, such as "
            "table.order_by(...).to_parquet('rows.parquet'), and pass its path"
        )
    cells = [table[name] for name in (order, *raw.names) if name in table.columns]
    keys = [_AS_BYTES[backend](cell) if cell.type().is_string() else cell for cell in cells]
    return [key if _is_ordered(key.type()) else key.notnull() for key in keys]


def _is_ordered(kind: Any) -> bool:
    return bool(
        kind.is_numeric() or kind.is_string() or kind.is_binary() or kind.is_boolean()
        or kind.is_date() or kind.is_timestamp()
    )  # fmt: skip


def _sorted(table: Any, names: Sequence[str], keys: Sequence[Any]) -> Iterator[pa.RecordBatch]:
    """As `_streamed`, in the order of some expressions, those without a value first."""
    cells = {f"c{i}": table[name] for i, name in enumerate(names)}
    by = {f"k{i}": key for i, key in enumerate(keys)}
    ordered = table.select(**cells, **by).order_by([ibis.asc(k, nulls_first=True) for k in by])
    for batch in _streamed(ordered, [*cells, *by]):
        yield pa.RecordBatch.from_arrays(batch.columns[: len(names)], names=list(names))


def _is_exact(kind: Any) -> bool:
    """True if the kernel codes equal cells of a type alike: no float, decimal or date."""
    return bool(kind.is_string() or kind.is_integer() or kind.is_boolean())


def _sums_of_groups(
    kernel: Kernel, table: Any, as_bytes: Callable[[Any], Any]
) -> tuple[list[Codes], int]:
    """Exact sums from the distinct rows and their counts, and the number of rows.

    How many distinct rows there are is private. It decides which query is asked and nothing else:
    the sums are the same integers by both.
    """
    names = list(kernel.raw.names)
    times = next(name for name in map("times{}".format, itertools.count()) if name not in names)
    chosen = _chosen(table, names)
    cells = {c: as_bytes(chosen[c]) if chosen[c].type().is_string() else chosen[c]
             for c in chosen.columns}  # fmt: skip
    groups = chosen.select(**cells).group_by(list(cells)).aggregate(times=lambda rows: rows.count())
    batches = _streamed(groups.limit(MOST_GROUPS + 1), [*names, times])
    return PartialSums.of(kernel, _at_most(MOST_GROUPS, batches), times).exact(kernel)


def _at_most(rows: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows -= batch.num_rows
        if rows < 0:
            raise _TooManyGroups
        yield batch


def _chosen(table: Any, names: Sequence[str]) -> Any:
    """Some columns, numbered: back ends differ in which names are one."""
    return table.select(**{f"c{i}": table[name] for i, name in enumerate(names)})


def _streamed(table: Any, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of an expression, with these names of its columns."""
    backend = table.get_backend()
    if backend.name == "duckdb":  # for batches Ibis 12 calls what DuckDB 2 no longer has
        relation = backend._to_duckdb_relation(table)
        reader = read_relation(relation, relation.columns)
    else:
        reader = backend.to_pyarrow_batches(table, chunk_size=BATCH_ROWS)
    for batch in reader:
        yield pa.RecordBatch.from_arrays(batch.columns, names=list(names))
