"""Schemas as metadata of SmartNoise SQL, and back; what has no counterpart is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dpstats.checks import first_few, short
from dpstats.errors import SchemaError
from dpstats.schema.category import Boolean, Category
from dpstats.schema.conditions import Column
from dpstats.schema.foreign import Declared, bounds_of, whole_points

_OF_TABLE = {
    "rows", "rows_exact", "row_privacy", "max_ids", "sample_max_ids", "clamp_counts",
    "clamp_columns", "use_dpsu", "censor_dims",
}  # fmt: skip


def to_smartnoise(columns: Iterable[Column], table: str) -> dict[str, Any]:
    """Metadata of one table, in a collection and a schema without names."""
    return {"": {"": {table: {"row_privacy": True} | {c.name: _column(c) for c in columns}}}}


def _column(column: Column) -> dict[str, Any]:
    missing: dict[str, Any] = {"nullable": False}
    if column.allow_missing:
        missing = {"nullable": True}
    elif column.missing is not None:
        value = column.missing
        if isinstance(column, Category):
            value = column.stored[column.index(value)]
        missing = {"missing_value": value}
    if isinstance(column, Boolean):
        return {"type": "boolean", **missing}
    if isinstance(column, Category):
        return {"type": "string", "cardinality": len(column.stored), **missing}
    if column.dates:
        return {"type": "datetime", "nullable": missing.get("nullable", False)}
    whole = column.scale != "log" and column.points == whole_points(column.low, column.high)
    bounds = {"lower": column.low, "upper": column.high}
    return {"type": "int" if whole else "float", **bounds, **missing}


def declared_columns(document: Mapping[str, Any], table: str | None) -> list[Declared]:
    """The columns of a table, each with what is lacking; a ``private_id`` is left out."""
    columns = _table(document, table)
    if not columns.get("row_privacy", False) and columns.get("max_ids") not in (None, 1):
        raise SchemaError(
            f"a person may have {short(columns['max_ids'])} rows (max_ids), which a plan says and "
            "no schema: set row_privacy to True in the metadata, and plan with rows_per_person= "
            "(with person= the limit is enforced)"
        )
    return [
        _declared(name, plain)
        for name, plain in columns.items()
        if name not in _OF_TABLE and not (isinstance(plain, Mapping) and plain.get("private_id"))
    ]


def _table(document: Mapping[str, Any], name: str | None) -> Mapping[str, Any]:
    """The table, below its collection and its schema."""
    tables: dict[str, Any] = {}
    for collection, schemas in document.items():
        for schema in schemas.values() if isinstance(schemas, Mapping) else ():
            if collection != "engine" and isinstance(schema, Mapping):
                tables |= schema
    if name is None and len(tables) == 1:
        name = next(iter(tables))
    columns = tables.get(name) if name is not None else None
    if not isinstance(columns, Mapping):
        raise SchemaError(
            "metadata of SmartNoise hold tables below a collection and a schema; name one with "
            f"table=: {first_few(list(tables))}"
        )
    return columns


def _declared(name: str, plain: Any) -> Declared:
    kind = plain.get("type") if isinstance(plain, Mapping) else None
    declaration: dict[str, Any] = {"name": name}
    todo: list[str] = []
    if kind == "boolean":
        declaration["kind"] = "boolean"
    elif kind in ("int", "float"):
        bounds, todo = bounds_of(plain, {"low": "lower", "high": "upper"}, whole=kind == "int")
        declaration |= bounds
    elif kind == "string":
        todo.append("levels")
    elif kind == "datetime":
        todo.append("low and high, as dates")
    else:
        todo.append(f"levels, or low and high: the type {short(kind)} has no counterpart")
    if kind is not None and plain.get("missing_value") is not None:
        declaration["missing"] = plain["missing_value"]
    elif kind is not None and (plain.get("nullable") is None or plain["nullable"]):
        declaration["allow_missing"] = True
    return Declared(name, declaration, tuple(todo))
