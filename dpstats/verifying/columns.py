"""Columns of the public schema: the codes that a cell can have, and the bin of each code."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from functools import cached_property, reduce
from typing import Any

MISSING = "(missing)"
_EPOCH = date(1970, 1, 1)
_NAME = r"(?:`([^`]+)`|([^\W\d]\w*))"
_SOURCE = re.compile(rf"{_NAME}(?: - {_NAME})?")


@dataclass(frozen=True, eq=False)
class Column:
    """A column as the file declares it."""

    name: str
    codes: tuple[int, ...]  # every code that a cell can have, that of missing cells last
    bin_of: dict[int, int]  # the level or bin of each code
    missing: int | None  # the code of missing cells, where they have their own
    half: int  # K: a number has codes -K..K; 0 for levels
    values: dict[int, Any]  # by code, in original units; of a number without the missing cells
    ends: tuple[float, float] = (0.0, 0.0)  # of a number; of its logarithm if that is the scale
    exact_ends: tuple[Fraction, Fraction] = (Fraction(0), Fraction(0))  # as they are declared
    dates: bool = False
    log: bool = False

    @cached_property
    def bins(self) -> int:
        """Number of levels or bins, that of missing cells included."""
        return max(self.bin_of.values()) + 1

    @cached_property
    def one_of_each_bin(self) -> list[int]:
        """A code of every bin."""
        return list({self.bin_of[code]: code for code in self.codes}.values())


def source_of(plain: dict[str, Any]) -> tuple[str, ...]:
    """The number that a column is a view of, both of a difference, or none."""
    text = plain.get("source", "")
    if not ("`" in text or " - " in text):
        return (text,) if text else ()
    found = _SOURCE.fullmatch(text)
    if found is None:
        raise ValueError(f"{plain['name']} has a source that cannot be read")
    return tuple(filter(None, found.groups()))


def read_column(plain: dict[str, Any]) -> Column:
    """A column from its keys, see ``docs/reference/schema-file.md``."""
    kind = plain.get("kind", "number" if {"low", "values"} & set(plain) else "category")
    if kind == "number":
        column = _number(plain)
    else:
        levels = [False, True] if kind == "boolean" else list(plain["levels"])
        levels += [MISSING] if plain.get("allow_missing") else []
        missing = len(levels) - 1 if plain.get("allow_missing") else None
        codes = tuple(range(len(levels)))
        at = {code: code for code in codes}
        column = Column(plain["name"], codes, at, missing, 0, dict(enumerate(levels)))
    if set(column.bin_of.values()) != set(range(column.bins)):
        raise ValueError(f"{column.name} has a bin without codes")
    return column


def day(value: Any) -> Any:
    """Days since 1970-01-01 of a date as text; numbers as they are."""
    return (date.fromisoformat(value) - _EPOCH).days if isinstance(value, str) else value


def _exact(value: float) -> Fraction:
    return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)


def _number(plain: dict[str, Any]) -> Column:
    values, log = plain.get("values"), plain.get("scale") == "log"
    dates = isinstance(plain.get("low"), str)
    edges = [float(day(edge)) for edge in plain.get("edges", ())]
    if values is None:
        low, high = day(plain["low"]), day(plain["high"])
        points = int(high) - int(low) + 1 if dates else plain.get("points", 1025)
        half = (points - 1) // 2 if points % 2 else points - 1
        codes = list(range(-half, half + 1, 1 if points % 2 else 2))
        grid = {code: _between(low, high, code + half, 2 * half, log) for code in codes}
    else:
        low, high = values[0], values[-1]
        middle = (_exact(low) + _exact(high)) / 2
        steps = [_exact(value) - middle for value in values]
        unit = Fraction(1, math.lcm(*(step.denominator for step in steps)))
        unit *= reduce(math.gcd, (int(step / unit) for step in steps))
        codes = [int(step / unit) for step in steps]
        half = codes[-1]
        grid = dict(zip(codes, map(float, values), strict=True))
    if values is not None and not edges:
        bin_of = {code: i for i, code in enumerate(codes)}
    else:
        bisect = bisect_right if plain.get("closed", "left") == "left" else bisect_left
        bin_of = {code: bisect(edges, grid[code]) for code in codes}
    missing = half + 1 if plain.get("allow_missing") else None
    if missing is not None:
        bin_of[missing] = len(values) if values is not None and not edges else len(edges) + 1
        codes.append(missing)
    ends = (math.log(low), math.log(high)) if log else (float(low), float(high))
    exact_ends = _exact(low), _exact(high)
    return Column(
        plain["name"], tuple(codes), bin_of, missing, half, grid, ends, exact_ends, dates, log
    )


def _between(low: float, high: float, steps: int, of: int, log: bool) -> float:
    """A point of the grid: `steps` of `of` equal steps from one bound to the other."""
    if steps in (0, of):
        return float(high if steps else low)
    if log:
        first, last = math.log(low), math.log(high)
        return float(f"{math.exp(first + (last - first) / of * steps):.12g}")
    return float(low) + (float(high) - float(low)) * steps / of
