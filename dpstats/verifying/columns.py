"""Columns of the public schema: the codes that a cell can have, and the bin of each code."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from typing import Any

MISSING = "(missing)"
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, eq=False)
class Column:
    """A column as the file declares it.

    Attributes
    ----------
    name : str
    codes : tuple of int
        Every code that a cell can have, that of missing cells last.
    bin_of : mapping of code to int
        The level or bin of each code.
    missing : int or None
        The code of missing cells, where they have their own.
    half : int
        K: a number has codes -K..K; 0 for levels.
    values : mapping of code to float, or to the text of a level
        In original units; without the missing cells.
    ends : (float, float)
        Bounds of a number; of their logarithms if that is the scale.
    exact_ends : (Fraction, Fraction)
        Bounds of a number as they are declared.
    dates, log : bool
    """

    name: str
    codes: tuple[int, ...]
    bin_of: dict[int, int]
    missing: int | None
    half: int
    values: dict[int, Any]
    ends: tuple[float, float] = (0.0, 0.0)
    exact_ends: tuple[Fraction, Fraction] = (Fraction(0), Fraction(0))
    dates: bool = False
    log: bool = False

    @property
    def bins(self) -> int:
        """Number of levels or bins, that of missing cells included."""
        return max(self.bin_of.values()) + 1

    @property
    def is_number(self) -> bool:
        """Whether it has values and not levels."""
        return self.half > 0

    def a_code_of(self, bin_number: int) -> int:
        """Some code in a bin."""
        return next(code for code in self.codes if self.bin_of[code] == bin_number)


def read_column(plain: dict[str, Any]) -> Column:
    """A column from its keys, see ``docs/reference/schema-file.md``."""
    kind = plain.get("kind")
    if kind == "number" or (kind is None and ("low" in plain or "values" in plain)):
        return _number(plain)
    if kind not in (None, "boolean", "category"):
        raise ValueError(f"a column of the unknown kind {kind!r}")
    levels = [False, True] if kind == "boolean" else list(plain["levels"])
    if plain.get("allow_missing", False):
        levels.append(MISSING)
    codes = tuple(range(len(levels)))
    missing = codes[-1] if plain.get("allow_missing", False) else None
    return Column(plain["name"], codes, {c: c for c in codes}, missing, 0, dict(enumerate(levels)))


def exact(value: float) -> Fraction:
    """A declared number as its shortest decimal."""
    return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)


def day(value: Any) -> Any:
    """Days since 1970-01-01 of a date as text; numbers as they are."""
    return (date.fromisoformat(value) - _EPOCH).days if isinstance(value, str) else value


def _number(plain: dict[str, Any]) -> Column:
    values, log = plain.get("values"), plain.get("scale") == "log"
    dates = isinstance(plain.get("low"), str)
    edges = [float(day(edge)) for edge in plain.get("edges", ())]
    if values is None:
        low, high = day(plain["low"]), day(plain["high"])
        points = int(high) - int(low) + 1 if dates else plain.get("points", 1025)
        half = (points - 1) // 2 if points % 2 else points - 1
        used = list(range(-half, half + 1, 1 if points % 2 else 2))
        grid = {code: _between(low, high, code + half, 2 * half, log) for code in used}
    else:
        low, high = values[0], values[-1]
        parts = [exact(value) for value in values]
        middle = (parts[0] + parts[-1]) / 2
        step = parts[-1] - middle
        for value in parts:
            step = _common_divisor(step, value - middle)
        used = [int((value - middle) / step) for value in parts]
        half = used[-1]
        grid = dict(zip(used, map(float, values), strict=True))
    if values is not None and not edges:
        bin_of = {code: i for i, code in enumerate(used)}
    elif plain.get("closed", "left") == "left":
        bin_of = {code: bisect_right(edges, grid[code]) for code in used}
    else:
        bin_of = {code: bisect_left(edges, grid[code]) for code in used}
    missing = half + 1 if plain.get("allow_missing", False) else None
    if missing is not None:
        used.append(missing)
        bin_of[missing] = len(values) if values is not None and not edges else len(edges) + 1
    ends = (math.log(low), math.log(high)) if log else (float(low), float(high))
    return Column(
        plain["name"], tuple(used), bin_of, missing, half, grid, ends,
        (exact(low), exact(high)), dates, log,
    )  # fmt: skip


def _between(low: float, high: float, steps: int, of: int, log: bool) -> float:
    """A point of the grid: `steps` of `of` equal steps from one bound to the other."""
    if steps in (0, of):
        return float(high if steps else low)
    if log:
        first, last = math.log(low), math.log(high)
        return float(f"{math.exp(first + (last - first) / of * steps):.12g}")
    return float(low) + (float(high) - float(low)) * steps / of


def _common_divisor(one: Fraction, other: Fraction) -> Fraction:
    denominator = one.denominator * other.denominator
    numerators = one.numerator * other.denominator, other.numerator * one.denominator
    return Fraction(math.gcd(*numerators), denominator)
