"""Columns that another format declares: what it says, and what dpstats needs besides."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpstats import files
from dpstats.checks import is_finite, is_number, short
from dpstats.errors import FileFormatError, SchemaError
from dpstats.schema.dates import day_of

_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}
_MOST_POINTS = 10_001  # of a grid that has a point for every whole number


@dataclass(frozen=True)
class Declared:
    """One column of another format."""

    name: str
    # keys of a column in a schema file; `missing_values` as text, those that no cell of the column
    # can hold included
    plain: Mapping[str, Any]
    # what must be added, since the format does not say it and it is never learned from data
    todo: tuple[str, ...] = ()


def document_of(given: object) -> Mapping[str, Any]:
    """A mapping, or that of a JSON or YAML file."""
    if isinstance(given, Mapping):
        return given
    path = files.as_path(given)
    language = "YAML" if path.suffix.lower() in (".yaml", ".yml") else "JSON"
    try:
        text = files.read_bytes(path).decode("utf-8-sig")
        document = _parse_yaml(text) if language == "YAML" else files.parse_json(text)
    except FileFormatError as error:
        raise SchemaError(str(error)) from None
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"{path.name} is not valid {language}: {error}") from None
    if not isinstance(document, Mapping):
        raise SchemaError(f"{path.name} must hold a mapping of names")
    return document


def _parse_yaml(text: str) -> object:
    try:
        import yaml
    except ImportError:
        raise FileFormatError("YAML needs PyYAML; install it with: pip install pyyaml") from None

    def plain(node: Any) -> Any:
        """Keys are text, and values those of JSON: YAML 1.1 reads 010 as 8 and no as false."""
        if isinstance(node, yaml.SequenceNode):
            return [plain(value) for value in node.value]
        if isinstance(node, yaml.MappingNode):
            keys = [str(key.value) for key, _ in node.value]
            if len(set(keys)) < len(keys):
                raise ValueError("a key occurs twice")
            return dict(zip(keys, (plain(value) for _, value in node.value), strict=True))
        quoted, word = node.style is not None, node.value.lower()
        if not quoted and word in _WORDS:
            return _WORDS[word]
        number = None if quoted else _number(node.value)
        return node.value if number is None else number

    try:
        root = yaml.compose(text)
        return None if root is None else plain(root)
    except yaml.YAMLError as error:
        raise ValueError(error) from None


def whole_points(low: object, high: object) -> int | None:
    """Points of a grid with one for every whole number; None if there are too many, or none."""
    if not (is_number(low) and is_number(high)) or low != int(low) or high != int(high):  # type: ignore[call-overload]
        return None
    points = int(high) - int(low) + 1  # type: ignore[call-overload]
    return points if 2 <= points <= _MOST_POINTS else None


def bounds_of(
    given: Mapping[str, Any], words: Mapping[str, str], *, whole: bool
) -> tuple[dict[str, Any], list[str]]:
    """Bounds, and points of whole numbers, under words of another format; and what is lacking."""
    plain = {key: given[word] for key, word in words.items() if given.get(word) is not None}
    points = whole_points(plain.get("low"), plain.get("high")) if whole else None
    todo = [f"{key} ({word})" for key, word in words.items() if key not in plain]
    return plain | ({} if points is None else {"points": points}), todo


def completed(
    declared: Sequence[Declared],
    add: Mapping[str, Mapping[str, Any]] | None,
    columns: Sequence[str] | None,
) -> list[dict[str, Any]]:
    """Plain columns of a schema file, with what `add` says in place of what the format does not.

    SchemaError names all that must be added, column by column. None as a value removes a key.
    """
    add = {} if add is None else add
    names = [column.name for column in declared]
    tables = isinstance(add, Mapping) and all(isinstance(one, Mapping) for one in add.values())
    if isinstance(columns, str) or not tables:
        raise SchemaError(
            "columns= is a list of names, and add= a mapping of names to keys of a schema file, "
            "such as {'sex': {'levels': ['f', 'm']}}"
        )
    unknown = [name for name in (*add, *(columns or ())) if name not in names]
    if unknown:
        raise SchemaError(f"there is no column {short(unknown[0])}; columns: {names}")
    complete, lacking = [], []
    for column in declared:
        if columns is not None and column.name not in columns:
            continue
        added = add.get(column.name, {})
        plain = {key: v for key, v in {**column.plain, **added}.items() if v is not None}
        if {"levels", "values"} & set(added):
            plain = {k: v for k, v in plain.items() if k not in ("low", "high", "points", "kind")}
        elif {"low", "high"} <= set(added):  # numbers that the file holds as text
            plain = {k: v for k, v in plain.items() if k not in ("levels", "kind") or k in added}
        if "missing" in added:
            plain.pop("allow_missing", None)
        if "missing_values" in plain and "missing_values" not in added:
            plain["missing_values"] = _fitting(plain["missing_values"], plain)
        missing = [text for text in column.todo if not _is_declared(text, plain)]
        if missing:
            lacking.append(f"{column.name}: {'; '.join(missing)}")
        complete.append(plain)
    if lacking:
        raise SchemaError(
            "dpstats needs what the file does not say, and never learns it from data. Add for\n  "
            + "\n  ".join(lacking)
            + "\nwith add={'name': {'levels': [...]}} or {'name': {'low': ..., 'high': ...}}; or "
            "name the columns to take with columns=[...]"
        )
    return complete


def _fitting(texts: Sequence[str], plain: Mapping[str, Any]) -> list[Any]:
    """Missing values as a column stores them; other text is no value, and missing by itself."""
    levels = plain.get("levels", ())
    stored = levels.values() if isinstance(levels, Mapping) else levels
    if any(isinstance(level, str) for level in stored):
        return list(texts)
    if day_of(plain.get("low")) is not None:
        return [text for text in texts if day_of(text) is not None]
    return [number for number in map(_number, texts) if number is not None]


def _number(text: str) -> int | float | None:
    try:
        number = json.loads(text)
    except ValueError:
        return None
    return number if is_number(number) and is_finite(number) else None


def _is_declared(text: str, plain: Mapping[str, Any]) -> bool:
    """True if a column now declares what a text of its `todo` names."""
    if {"levels", "values"} & set(plain):
        return True
    if text.startswith(("levels", "low and high")):
        return {"low", "high"} <= set(plain)
    return text.split()[0] in plain
