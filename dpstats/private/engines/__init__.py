"""Tables of other engines, known by their types: none is imported unless its table is given."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from dpstats.private.sources import Source
from dpstats.schema import RawColumns

Opener = Callable[[Any, RawColumns, str | None, str | None], Source]
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
    for kind in type(data).__mro__:
        place = _OPENERS.get((kind.__module__.partition(".")[0], kind.__name__))
        if place is not None:
            module, _, function = place.partition(":")
            function_of_engine: Opener = getattr(import_module(f"{__name__}.{module}"), function)
            return function_of_engine
    return None
