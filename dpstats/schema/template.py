"""A schema file to fill in: what to decide for every column, from its name alone."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

_TOP = """\
# Schema of a private table, to be completed. It was written from the names of the columns alone: no
# cell was read, and none may decide what you write. Take levels and bounds from public knowledge:
# the questionnaire, the code book, published statistics, the law. Record the source in a note.
#
# Keep one kind for every column, uncomment its lines, and delete the others. Delete the columns
# that no analysis needs: they are then neither read nor published.
#
# boolean  true and false, or 1 and 0.
# levels   of a category: every level, as the table stores it, text or numbers. With labels:
#          levels = { "not at all" = 1, "a little" = 2 }
# low, high, points
#          of a number: bounds that hold for anybody, to which other values are clamped, and the
#          number of grid points: 121 for the whole numbers from 0 to 120. Wide bounds mean more
#          noise, narrow ones bias. For amounts such as incomes: scale = "log". For dates:
#          low = 2020-01-01. For a few uneven scores, instead of bounds: values = [17.5, 22, 27].
# edges    of a number: what conditions such as "age >= 65" may compare with, and the bins of tables
#          and quantiles.
# missing  what a cell without a value counts as; or allow_missing = true for a level of its own.
#          Means and regressions need one of the two.
# missing_values
#          numbers, or levels, that stand for such a cell, such as 8 and 9 for "don't know".
"""
_COLUMN = """\
[[column]]
name = {name}
# kind = "boolean"               # true and false, or 1 and 0
# levels = ["...", "..."]        # a category: every level that a cell may have
# low = 0                        # a number: bounds from public knowledge,
# high = 100                     #   points, and edges for bins and conditions
# points = 101
# edges = []
# missing = ...                  # a level or a value; or
# allow_missing = true
# missing_values = []            # codes for "don't know" and the like: missing too
# note = "where this comes from"
"""
_KEY_COLUMN = """\
# {name} looks like a key, which tells rows or persons apart. Nothing is measured of a key, and it
# needs no declaration. If a person may have several rows, the request names their key:
# person = {name}, with rows_per_person. To analyse it all the same, declare it as the others:
# [[column]]
# name = {name}
"""
_FILE = """\
# How a .csv or .tsv file of the table is written, if it is not UTF-8 with decimal points.
#
# [file]
# encoding = "latin-1"           # or "cp1252", "cp932"; UTF-16 must be saved as UTF-8
# decimal = ","                  # of numbers such as 1,5
# delimiter = "|"                # by default a comma, semicolon or tab, as in the first line
"""
_GUESSES = """\
# What you publicly know or believe about the rows, for previews alone: a wrong guess makes a
# preview wrong and changes nothing else. Never take it from the private rows.
#
# [guesses]
# correlations = [[{first}, {second}, 0.3]]
#
# [guesses.typical]              # numbers
# {first} = {{ mean = 45, sd = 17 }}
#
# [guesses.shares]               # levels; those that are left out divide the rest
# {second} = {{ "..." = 0.2 }}
#
# [guesses.missing]
# {first} = 0.05
"""


_HEADING = re.compile(r"\s*(\[+[^\[\]]+\]+)\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*([\w-]+|"[^"]*"|'[^']*')\s*=""")
_STRING = re.compile(r"""("(?:[^"\\]|\\.)*"|'[^']*')""")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_KEYS = frozenset(("id", "ids", "uid", "uuid", "guid", "key", "ssn", "pseudonym", "pseudonyms"))
_OPEN = re.compile(r"""(?<![^\s=,\[{])(\.\.\.|"\.\.\."|'\.\.\.')(?![^\s=,\]}])""")
_NOTHING = "nothing is decided yet: uncomment the lines of its kind, or delete the column"


def template(names: Sequence[str], file: Mapping[str, str] = MappingProxyType({})) -> str:
    """Text of a schema file with comments on what to decide; it cannot be loaded before that.

    Parameters
    ----------
    names : sequence of str
        Of the columns.
    file : mapping, optional
        How a text file is written, as in a schema file.

    Examples
    --------
    >>> print(template(["age", "sex"]).split("[[column]]")[1].splitlines()[1])
    name = "age"
    """
    quoted = [json.dumps(name, ensure_ascii=False) for name in names]
    parts = [_TOP]
    for name, text in zip(names, quoted, strict=True):
        parts.append((_KEY_COLUMN if looks_like_key(name) else _COLUMN).format(name=text))
    shown = [text for name, text in zip(names, quoted, strict=True) if not looks_like_key(name)]
    shown = shown or quoted
    parts.append(_file(file) if file else _FILE)
    parts.append(_GUESSES.format(first=shown[0], second=shown[-1]))
    return "\n".join(parts)


def _file(given: Mapping[str, str]) -> str:
    """How a text file is written, with what is not given left as a comment."""
    lines = []
    for line in _FILE.splitlines():
        key = line.removeprefix("# ").partition(" = ")[0]
        lines.append(f"{key} = {json.dumps(given[key])}" if key in given else line)
    return "\n".join([*lines, ""]).replace("#\n# [file]", "[file]")


def looks_like_key(name: str) -> bool:
    """Whether a name has a word such as id, as a column of keys has.

    Examples
    --------
    >>> [looks_like_key(name) for name in ("id", "person_id", "PatientID", "acid", "idle")]
    [True, True, True, False, False]
    """
    return any(word.lower() in _KEYS for word in _WORD.findall(name))


def unfinished(text: str) -> list[str]:
    r"""What is still to be decided in a file: its places that hold ``...``, in their order.

    Comments do not count. A column with nothing but its name is one place.

    Examples
    --------
    >>> unfinished('[[column]]\nname = "age"\nlow = 0\nhigh = 9\nmissing = ...')
    ["line 5, column 'age': missing = ..."]
    """
    found: list[tuple[int, str]] = []
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
        found += [(number, f"{where}: {what}") for number, what in here]
    return [f"line {number}, {what}" for number, what in found]


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
