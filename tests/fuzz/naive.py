"""Sums over rows of text cells that a plain loop codes: what all routes have to equal.

A cell is bytes, as a CSV file holds it, or None. The rules are those of
docs/explanation/inference/missing-and-bad-values.md, written down here a second time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date, timedelta

import numpy as np

import dpstats as dps

Cell = bytes | None
SCHEMA = dps.Schema([
    dps.Category("c", ["a", "b é", "7"], allow_missing=True),
    dps.Category("g", [1, 2.5, 4], missing=1, other=4),
    dps.Boolean("b"),
    dps.Number("x", 0, 10, points=21, edges=[5], missing=2),
    dps.Number("d", "2020-01-01", "2020-12-30", missing="2020-07-01"),
])  # fmt: skip
NAMES = SCHEMA.names
BLOCKS = [
    *(dps.Cells.table(SCHEMA, names) for names in (["c", "g"], ["c", "b"], ["g", "b"])),
    dps.Moments.of(SCHEMA, ["x", "d"]),
]
_SPACE = rb"[ \t\n\f\r]*"
_NUMBER = re.compile(
    _SPACE + rb"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf|infinity)" + _SPACE, re.I
)
_TRUTH = re.compile(_SPACE + rb"(true|false)" + _SPACE, re.I)
_NAN = re.compile(_SPACE + rb"nan" + _SPACE, re.I)
_DAY = re.compile(_SPACE + rb"([0-9]{4})-([0-9]{2})-([0-9]{2})(?:[T ][0-9][ -~]*)?" + _SPACE)
_FIRST = date(2020, 1, 1)
_MIDDLE = 182  # days from the first to the middle one


def _number(cell: Cell) -> float | None:
    if cell is None:
        return None
    if truth := _TRUTH.fullmatch(cell):
        return float(truth[1].lower() == b"true")
    return float(cell) if _NUMBER.fullmatch(cell) else None


def _text_level(cell: Cell) -> int:
    exact = {b"a": 0, "b é".encode(): 1, b"7": 2}
    if not cell or cell in exact:
        return exact[cell] if cell else 3
    return 2 if not _TRUTH.fullmatch(cell) and _number(cell) == 7 else 3


def _number_level(cell: Cell) -> int:
    if not cell or _NAN.fullmatch(cell):
        return 0
    return {1.0: 0, 2.5: 1, 4.0: 2}.get(_number(cell) or 0.0, 2)


def _grid(cell: Cell) -> int:
    value = _number(cell)
    if value is None:
        return -6
    code = -10 if value < 0 else 10 if value > 10 else math.floor((value - 5) * 2 + 0.5)
    return min(code, -1) if value < 5 else max(code, 0)


def _day(cell: Cell) -> int:
    found = _DAY.fullmatch(cell or b"")
    if found is None:
        return 0
    year, month, day = map(int, found.groups())
    try:
        at = date(year or 4, month, day)  # the year 0 has the days of a leap year
    except ValueError:
        return 0
    inside = min(max(at, _FIRST), _FIRST + timedelta(2 * _MIDDLE))
    return (inside - _FIRST).days - _MIDDLE


_CODE = {"c": _text_level, "g": _number_level, "b": lambda cell: int(_number(cell) == 1),
         "x": _grid, "d": _day}  # fmt: skip


def sums(columns: dict[str, Sequence[Cell]]) -> list[list[int]]:
    """The sums of `BLOCKS` over the rows of a table, given by columns."""
    codes = {name: np.array([_CODE[name](cell) for cell in columns[name]], int) for name in NAMES}
    return [block.sums(codes).tolist() for block in BLOCKS]
