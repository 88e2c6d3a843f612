"""Tables of other engines, known by their types: none is imported unless its table is given."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from dpstats.private.sources import Source
from dpstats.schema import RawColumns

Opener = Callable[[Any, RawColumns], Source]
NAMES = "pandas, polars, Arrow, DuckDB, Spark, Dask, Ibis"
_OPENERS = {  # (package, class) to the module here and its function
    ("dask", "DataFrame"): "dask:open_dask",
    ("duckdb", "DuckDBPyRelation"): "lazy:open_relation",
    ("_duckdb", "DuckDBPyRelation"): "lazy:open_relation",
    ("ibis", "Table"): "ibis:open_ibis",
    ("polars", "DataFrame"): "lazy:open_polars",
    ("polars", "LazyFrame"): "lazy:open_polars",
    ("pyspark", "DataFrame"): "spark:open_spark",
}


def opener(data: object) -> Opener | None:
    """Return the function that opens a table of this kind; None if it is of no engine."""
    module, _, function = _place(data).partition(":")
    if not module:
        return None
    function_of_engine: Opener = getattr(import_module(f"{__name__}.{module}"), function)
    return function_of_engine


def takes_order(data: object) -> bool:
    """True for a table without an order of its rows, which can be sorted by a column."""
    return _place(data) in ("ibis:open_ibis", "spark:open_spark")


def _place(data: object) -> str:
    """Module and function that open a table; "" if it is of no engine."""
    names = ((kind.__module__.partition(".")[0], kind.__name__) for kind in type(data).__mro__)
    return next((_OPENERS[name] for name in names if name in _OPENERS), "")
