"""Schemas as Frictionless Table Schemas, and back; what has no counterpart is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dpstats.checks import short
from dpstats.errors import SchemaError
from dpstats.schema.category import Boolean, Category
from dpstats.schema.conditions import Column
from dpstats.schema.foreign import Declared, bounds_of, whole_points

PROFILE = "https://datapackage.org/profiles/2.0/tableschema.json"
OWN = "dpstats"  # a property of fields: what the standard has no word for
_TRUTHS = (("true", "True", "TRUE", "1"), ("false", "False", "FALSE", "0"))
_TABLES = ("constraints", OWN)
_LISTS = ("missingValues", "trueValues", "falseValues", "categories", "enum")
_READ: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "date": {"format": ("default", "%Y-%m-%d")},
    "integer": {"groupChar": ("",), "bareNumber": (True,)},
    "number": {"decimalChar": (".",), "groupChar": ("",), "bareNumber": (True,)},
}
"""Properties of the cells of a type, with the values that dpstats reads, the default first."""
_PLAIN = {
    "date": "dates such as 2024-05-01", "integer": "plain numbers", "number": "plain numbers",
}  # fmt: skip


def to_frictionless(columns: Iterable[Column]) -> dict[str, Any]:
    """The descriptor of a table with these columns."""
    return {
        "$schema": PROFILE,
        "fields": [_field(column) for column in columns],
        "missingValues": [""],
    }


def _field(column: Column) -> dict[str, Any]:
    plain = column.to_dict()
    field: dict[str, Any] = {"name": plain.pop("name")}
    kind, note = plain.pop("kind"), plain.pop("note", "")
    if codes := plain.pop("missing_values", []):
        field["missingValues"] = ["", *map(str, codes)]
    constraints: dict[str, Any] = {}
    if isinstance(column, Boolean):
        field["type"] = "boolean"
    elif isinstance(column, Category):
        field["type"] = _type_of_levels(column)
        levels = plain["levels"]
        if isinstance(levels, Mapping):
            del plain["levels"]
            field["categories"] = [{"value": v, "label": label} for label, v in levels.items()]
        elif field["type"] != "boolean":
            del plain["levels"]
        constraints["enum"] = list(column.stored)
        if kind != "category" or field["type"] == "boolean":
            plain["kind"] = kind
    elif column.values is not None:
        field["type"] = "integer" if all(isinstance(v, int) for v in column.values) else "number"
        constraints["enum"] = plain.pop("values")
        plain["kind"] = kind
    else:
        constraints = {"minimum": plain.pop("low"), "maximum": plain.pop("high")}
        if column.dates:
            field["type"] = "date"
        elif column.scale != "log" and column.points == whole_points(*constraints.values()):
            field["type"] = "integer"
            del plain["points"]
        else:
            field["type"] = "number"
    if note:
        field["description"] = note
    if not plain.pop("allow_missing", False) and "missing" not in plain:
        constraints = {"required": True, **constraints}
    if constraints:
        field["constraints"] = constraints
    return field | ({OWN: plain} if plain else {})


def _type_of_levels(column: Category) -> str:
    first = column.stored[0]
    if isinstance(first, bool):
        return "boolean"
    if isinstance(first, str):
        return "string"
    return "integer" if all(isinstance(level, int) for level in column.stored) else "number"


def declared_fields(document: Mapping[str, Any]) -> list[Declared]:
    """The columns of a Table Schema, or of a Data Package or Resource that holds one."""
    table = _table_schema(document)
    fields = table.get("fields")
    if not isinstance(fields, Sequence) or not all(isinstance(f, Mapping) for f in fields):
        raise SchemaError("a Table Schema needs a list of fields")
    return [_declared(_drop_nulls(field), table.get("missingValues", [""])) for field in fields]


def declared_between(document: Mapping[str, Any]) -> dict[str, Any]:
    """Plain data of rules between columns, public totals and the design of a Table Schema."""
    own = _table_schema(document).get(OWN, {})
    between = {name: own.get(name, ()) for name in ("rules", "totals")}
    return between | {"design": own.get("design")}


def _table_schema(document: Mapping[str, Any]) -> Mapping[str, Any]:
    table: Any = document
    if table.get("resources") is not None:
        resources = table["resources"]
        if not isinstance(resources, Sequence) or len(resources) != 1:
            raise SchemaError(
                "the data package holds several resources; give the schema of one of them"
            )
        table = resources[0]
    if isinstance(table, Mapping) and table.get("fields") is None and "schema" in table:
        table = table["schema"]
    if not isinstance(table, Mapping):
        raise SchemaError("the Table Schema must be in the file itself, as a mapping with fields")
    return _drop_nulls(table)


def _drop_nulls(plain: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping without what is null, which is absent; its parts must be of their kind."""
    said = {key: value for key, value in plain.items() if value is not None}
    for key, value in said.items():
        listed = isinstance(value, Sequence) and not isinstance(value, str)
        if key in _TABLES and not isinstance(value, Mapping):
            raise SchemaError(f"{key} of a Table Schema must be a mapping, got {short(value)}")
        if key in _LISTS and not listed:
            raise SchemaError(f"{key} of a Table Schema must be a list, got {short(value)}")
        if key in _TABLES:
            said[key] = _drop_nulls(value)
    return said


def _declared(field: Mapping[str, Any], missing: Any) -> Declared:
    name, kind = field.get("name"), field.get("type", "any")
    constraints = field.get("constraints", {})
    plain: dict[str, Any] = {"name": name}
    todo: list[str] = []
    levels = _levels(field, constraints)
    own = dict(field.get(OWN, {}))
    if unread := _unread(field, levels):
        todo.append(unread)
    elif kind == "boolean":
        plain |= {"kind": "boolean"}
    elif levels is not None and own.get("kind") == "number":
        plain |= {"values": levels}
    elif levels is not None and kind in ("string", "integer", "number", "any"):
        plain |= {"levels": levels}
    elif kind in ("integer", "number", "year", "date"):
        words = {"low": "minimum", "high": "maximum"}
        bounds, lacking = bounds_of(constraints, words, whole=kind in ("integer", "year"))
        plain |= bounds
        todo += [text.replace("(", "(constraints.") for text in lacking]
    elif kind == "string":
        todo.append("levels (constraints.enum, or categories)")
    else:
        todo.append(f"levels, or low and high: the type {kind!r} has no counterpart")
    if not constraints.get("required", False):
        given = field.get("missingValues", missing)
        texts = [one.get("value", "") if isinstance(one, Mapping) else one for one in given]
        plain["missing_values"] = [str(text) for text in texts if text not in ("", None)]
        plain |= {} if "missing" in own else {"allow_missing": True}
    if isinstance(field.get("description"), str) and field["description"]:
        plain["note"] = field["description"]
    return Declared(str(name), plain | own, tuple(todo))


def _unread(field: Mapping[str, Any], levels: Any) -> str | None:
    """Advice where cells or labels are written as dpstats does not read them."""
    kind = str(field.get("type"))
    if isinstance(levels, Mapping) and len(levels) < len(field["categories"]):
        return "levels: two of its categories have the same label"
    truths = [field.get(key, []) for key in ("trueValues", "falseValues")]
    pairs = zip(truths, _TRUTHS, strict=True)
    if kind == "boolean" and any(text not in known for texts, known in pairs for text in texts):
        return "levels, such as ['no', 'yes']: it has trueValues of its own"
    for key, read in _READ.get(kind, {}).items():
        if field.get(key, read[0]) not in read:
            return (
                f"low and high, or levels, of a table with {_PLAIN[kind]}: it has "
                f"{key} {short(field[key])}"
            )
    return None


def _levels(field: Mapping[str, Any], constraints: Mapping[str, Any]) -> Any:
    """Levels, with labels if there are any; None without them."""
    categories = field.get("categories")
    if categories and all(isinstance(category, Mapping) for category in categories):
        said = map(_drop_nulls, categories)
        return {str(one.get("label", one.get("value"))): one.get("value") for one in said}
    levels = categories or constraints.get("enum")
    return None if levels is None else list(levels)
