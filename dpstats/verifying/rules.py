"""Rules between columns, read from the file and checked on every published row.

A condition on a missing cell is neither true nor false (Kleene's logic, as in SQL), unless it
compares with "(missing)" itself. A view has the point of its grid nearest to the value of its
source, in the bin of that value.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from functools import cache
from typing import Any

from dpstats.verifying.blocks import Row
from dpstats.verifying.columns import MISSING, Column, day, source_of
from dpstats.verifying.reading import Contents
from dpstats.verifying.shapes import LEVEL, check

_SHAPES: dict[str, dict[str, Any]] = {
    "never": {"never": str, "set": {str: LEVEL}},
    "determines": {"determines": str, "by": str, "mapping": [[LEVEL]]},
    "order": {"order": str, "change": str},
}
_COMPARISONS: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.In: lambda level, of: level in of,
    ast.NotIn: lambda level, of: level not in of,
}  # fmt: skip
_TOKENS = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`|[&|~]""", re.DOTALL)
_WORDS = {"&": " and ", "|": " or ", "~": " not "}
_TIE = 1e-9  # of a range, by which two distances may differ by rounding
Values = Mapping[str, Any]  # of a row by column; None if missing
Possible = Callable[[Any], tuple[Any, ...]]
Rule = tuple[str, set[str], Callable[[Values], bool]]  # text, columns, whether a row breaks it


def check_rules(contents: Contents, rows: Sequence[tuple[Row, int]]) -> None:
    """Check every rule whose columns are published on every row."""
    published = set(rows[0][0]) if rows else set[str]()
    rules = [_read(plain, contents) for plain in contents.document.get("rules", ())]
    rules += _views(contents, published)
    if not rules or not rows:
        return
    columns = [contents.columns[name] for name in published]
    checked = [(text, breaks) for text, names, breaks in rules if names <= published]
    broken = dict.fromkeys((text for text, _ in checked), 0)
    for row, times in rows:
        values = {column.name: _value(column, row[column.name]) for column in columns}
        for text, breaks in checked:
            broken[text] += times * breaks(values)
    for text, count in broken.items():
        contents.require(not count, f"{count:,} published rows break the rule {text!r}")
    if checked and not any(broken.values()):
        contents.said.append(
            f"Rules: no published row breaks any of {len(checked)} between published columns."
        )
    if others := len(rules) - len(checked):
        need = "rule needs" if others == 1 else "rules need"
        contents.said.append(f"{others} {need} columns that are not published.")


def _value(column: Column, code: int) -> Any:
    return None if code == column.missing else column.values[code]


def _read(plain: dict[str, Any], contents: Contents) -> Rule:
    kind = next(key for key in _SHAPES if key in plain)
    check(plain, _SHAPES[kind], "rule")
    if kind != "determines":
        tree, names = _condition(plain[kind], contents.columns)
        broken = kind == "never"
        text = f"never {plain[kind]}" if broken else plain[kind]
        return text, names, lambda row: _truth(tree, row) == broken
    column, by = plain["determines"], plain["by"]
    declared = next(plain for plain in contents.document["schema"] if plain["name"] == by)
    label_of = _labels(declared, contents.columns[by])
    from_label, from_value = (
        {level: v for level, v in plain["mapping"] if isinstance(level, str) == is_text}
        for is_text in (True, False)
    )

    def breaks(row: Values) -> bool:
        value = MISSING if row[column] is None else row[column]
        level = from_label.get(label_of(row[by]), from_value.get(row[by]))
        return level is not None and level != (str(value) if isinstance(level, str) else value)

    return f"{column} follows from {by}", {column, by}, breaks


def _labels(plain: dict[str, Any], column: Column) -> Callable[[Any], str]:
    """Labels of the values of a column in files: levels as text, bins as in ``[0, 18)``."""
    edges = [day(edge) for edge in plain.get("edges", ())]

    def text(value: Any) -> str:
        if column.dates:
            return (date(1970, 1, 1) + timedelta(days=round(value))).isoformat()
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)

    if not column.half or not edges:
        write = text if column.half else str
        return lambda value: MISSING if value is None else write(value)
    left = plain.get("closed", "left") == "left"
    ends = plain["values"] if "values" in plain else [day(plain["low"]), day(plain["high"])]
    cuts = [text(cut) for cut in (ends[0], *edges, ends[-1])]
    labels = [f"[{a}, {b})" if left else f"({a}, {b}]" for a, b in itertools.pairwise(cuts)]
    labels[0], labels[-1] = "[" + labels[0][1:], labels[-1][:-1] + "]"
    place = bisect_right if left else bisect_left
    return lambda value: MISSING if value is None else labels[place(edges, value)]


def _views(contents: Contents, published: set[str]) -> list[Rule]:
    """A rule for each view and its source, and for published views of an unpublished source."""
    rules, views = list[Rule](), dict[str, dict[str, Possible]]()
    for plain in contents.document["schema"]:
        if len(ends := source_of(plain)) == 1:
            source = ends[0]
            possible = _possible_views(plain, contents.columns[plain["name"]])
            rules.append(_view(plain["name"], source, possible))
            if plain["name"] in published and source not in published:
                views.setdefault(source, {})[plain["name"]] = possible
    return rules + [_views_of_one(contents.columns[s], v) for s, v in views.items() if len(v) > 1]


def _view(name: str, source: str, possible: Possible) -> Rule:
    text = f"{name} is a view of {source}"
    return text, {name, source}, lambda row: row[name] not in possible(row[source])


def _views_of_one(source: Column, views: Mapping[str, Possible]) -> Rule:
    values = [_value(source, code) for code in source.codes]
    every = {
        some for v in values for some in itertools.product(*(own(v) for own in views.values()))
    }
    text = f"{' and '.join(views)} are views of {source.name}"
    return text, set(views), lambda row: tuple(row[name] for name in views) not in every


def _possible_views(plain: dict[str, Any], column: Column) -> Possible:
    """Values that a view may have for a value of its source."""
    scale = math.log if column.log else float
    edges = [float(day(edge)) for edge in plain.get("edges", ())]
    place = bisect_right if plain.get("closed", "left") == "left" else bisect_left
    grid = sorted(column.values[code] for code in column.codes if code != column.missing)
    tie = _TIE * (scale(grid[-1]) - scale(grid[0]))
    bins: dict[int, list[float]] = {}
    for point in grid:
        bins.setdefault(place(edges, point), []).append(point)

    @cache
    def possible(value: Any) -> tuple[Any, ...]:
        if value is None:
            return (None,)
        value = min(max(value, grid[0]), grid[-1])
        points = bins[place(edges, value)]
        at = bisect_left(points, value)
        near = {p: abs(scale(p) - scale(value)) for p in points[max(at - 1, 0) : at + 1]}
        return tuple(p for p, distance in near.items() if distance <= min(near.values()) + tie)

    return possible


def _condition(text: str, columns: Mapping[str, Column]) -> tuple[ast.expr, set[str]]:
    """A condition, with the columns in the place of names and days in that of dates."""
    quoted: list[str] = []

    def word(match: re.Match[str]) -> str:
        if match[0][0] != "`":
            return _WORDS.get(match[0], match[0])
        quoted.append(match[0][1:-1])
        return f" _{len(quoted) - 1}_quoted_name "

    source = _TOKENS.sub(word, text).replace("\n", " ").replace("\r", " ").strip()
    tree, names = ast.parse(source, mode="eval").body, set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            written = ast.get_source_segment(source, node) or node.id
            if place := re.fullmatch(r"_(\d+)_quoted_name", written):
                node.id = quoted[int(place[1])]
            else:
                node.id = written if written in columns else unicodedata.normalize("NFKC", written)
            names.add(node.id)
    for node in ast.walk(tree):
        left = node.left if isinstance(node, ast.Compare) else None
        if isinstance(left, ast.Name) and columns[left.id].dates:
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and part.value != MISSING:
                    part.value = day(part.value)
    return tree, names


def _truth(node: ast.expr, row: Values) -> float:
    """Truth of a condition for a row: 1, 0, or 1/2 for neither."""
    match node:
        case ast.BoolOp(op, parts):
            return (max if isinstance(op, ast.Or) else min)(_truth(part, row) for part in parts)
        case ast.UnaryOp(ast.Not(), part):
            return 1 - _truth(part, row)
        case ast.Name(name):
            return 0.5 if row[name] is None else float(bool(row[name]))
        case ast.Compare(ast.Name(name), [op], [ast.Name(other)]):
            if row[name] is None or row[other] is None:
                return 0.5
            return float(_COMPARISONS[type(op)](row[name], row[other]))
        case ast.Compare(ast.Name(name), [op], [right]):
            level = ast.literal_eval(right)
            if row[name] is not None:
                return float(_COMPARISONS[type(op)](row[name], level))
            asked = MISSING in level if isinstance(level, list | tuple | set) else level == MISSING
            return float(_COMPARISONS[type(op)](MISSING, level)) if asked else 0.5
    raise ValueError("a condition that dpstats does not write")
