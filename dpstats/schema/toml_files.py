"""TOML files, with errors that name the file and the position."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from dpstats import files
from dpstats.checks import did_you_mean, first_few, short
from dpstats.errors import FileFormatError, SchemaError

KEYS = frozenset({
    "rows", "unit", "rows_per_person", "person", "person_totals", "allocation", "weights", "budget",
    "reference", "schema", "column", "analysis", "guesses", "file", "rule", "total", "design",
})  # fmt: skip
_HEADING = re.compile(r"\s*(\[+[^\[\]]+\]+)\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*([\w-]+|"[^"]*"|'[^']*')\s*=""")
_STRING = re.compile(r"""("(?:[^"\\]|\\.)*"|'[^']*')""")
_OPEN = re.compile(r"""(?<![^\s=,\[{])(\.\.\.|"\.\.\."|'\.\.\.')(?![^\s=,\]}])""")
_NOTHING = "nothing is decided yet: uncomment the lines of its kind, or delete the column"
_KINDS = ("a request", "a schema", "guesses")  # one file may hold all of them


def read_toml(path: str | Path, what: str = "schema") -> dict[str, Any]:
    """Read a TOML file of some kind; errors name the file and the position."""
    path = files.as_path(path)
    try:
        files.check_kind(path, f"a {what}", *_KINDS)
        text = files.read_bytes(path).decode("utf-8-sig")  # some editors mark the start
        if left := unfinished(text):
            raise SchemaError("\n  ".join([f"{path.name} is not finished; decide:", *left]))
        document = tomllib.loads(text)
        json.dumps(document, default=str)  # refuses numbers of thousands of digits
    except FileFormatError as error:
        raise SchemaError(str(error)) from None
    except SchemaError:
        raise
    except ValueError as error:  # of TOML, of UTF-8, or a number of thousands of digits
        raise SchemaError(f"{path.name} is not valid TOML: {error}{_cure(error)}") from None
    except RecursionError:
        raise SchemaError(f"{path.name} is nested too deeply") from None
    return document


def check_keys(plain: object, known: Collection[str] = KEYS, where: str = "") -> Mapping[str, Any]:
    """Return a table of which all keys are read; by default the tables and keys of a file."""
    if not isinstance(plain, Mapping):
        raise SchemaError(f"{where or 'the file'} must be a table of keys, got {short(plain)}")
    if unknown := sorted(str(key) for key in plain if key not in known):
        raise SchemaError(
            f"unknown keys {first_few(unknown)}{where and ' in ' + where}"
            f"{did_you_mean(unknown, known)}; known: {sorted(known)}"
        )
    return plain


def changed_fields(value: Any) -> dict[str, Any]:
    """Fields of a dataclass that do not have their default value."""
    return {f.name: v for f in fields(value) if (v := getattr(value, f.name)) != f.default}


def _cure(error: ValueError) -> str:
    """Advice on the commonest fault; the file is not quoted, since it may be a private table."""
    if not str(error).startswith(("Invalid value", "Expected newline")):
        return ""
    return (
        '; text needs double quotes, as in kind = "ols", and single ones inside, as in condition '
        "= \"smoker == 'yes'\"; true and false are in lower case"
    )


def unfinished(text: str) -> list[str]:
    r"""List the places of a file that hold ``...`` and are still to be decided, in order.

    Comments do not count. A column with nothing but its name is one place.

    Examples
    --------
    >>> unfinished('[[column]]\nname = "age"\nlow = 0\nhigh = 9\nmissing = ...')
    ["line 5, column 'age': missing = ..."]
    """
    places: list[tuple[int, str]] = []
    for heading, lines in _tables(text):
        name, keys, last = "", 0, ""
        here: list[tuple[int, str]] = []
        for number, line in lines:
            name = _name(line) or name
            if key := _KEY.match(line) or _HEADING.match(line):
                keys, last = keys + 1, key[1].strip("\"'")
            if _OPEN.search(_STRING.sub(_blank, line).partition("#")[0]):
                here.append((number, f"{last} = ..."))
        column = heading == "[[column]]"
        if column and name and keys == 1:
            here = [(lines[0][0], _NOTHING)]
        where = f"column {name!r}" if column and name else heading or "at the top"
        places += [(number, f"{where}: {what}") for number, what in here]
    return [f"line {number}, {what}" for number, what in places]


def _name(line: str) -> str:
    """The name that a line gives to its column, or ""."""
    if not line.lstrip().startswith("name"):
        return ""
    try:
        return str(tomllib.loads(line).get("name", ""))
    except tomllib.TOMLDecodeError:
        return ""


def _blank(text: re.Match[str]) -> str:
    """A string without its content, which may hold dots of its own."""
    return text[0] if text[0][1:-1] == "..." else '""'


def _tables(text: str) -> Iterator[tuple[str, list[tuple[int, str]]]]:
    """Headings of the tables of a TOML file with their numbered lines, as far as they look so."""
    heading, lines = "", list[tuple[int, str]]()
    for number, line in enumerate(text.splitlines(), 1):
        begun = _HEADING.match(line)
        if begun and not begun[1].startswith("[column."):  # such as [column.levels]
            yield heading, lines
            heading, lines = begun[1], []
        else:
            lines.append((number, line))
    yield heading, lines
