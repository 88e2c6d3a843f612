"""The test functions of every kind of block, written from the documented format.

A row is a mapping of column name to code. A block gives the functions that are not zero on it, as
whole numbers, and the bound B of each: ``docs/reference/archive.md`` lists them.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dpstats.verifying.columns import Column

Row = Mapping[str, int]
Sums = dict[int, int]
Feature = tuple[str, int | None]
Term = tuple[Feature, ...]
SIGN = -1
COARSE = 64


@dataclass(frozen=True)
class Group:
    """A subgroup: rows in listed cells of some columns that have a value of others."""

    columns: tuple[Column, ...]
    cells: frozenset[int]
    answered: tuple[Column, ...] = ()

    def holds(self, row: Row) -> bool:
        """Whether a row is in it."""
        inside = cell_of(self.columns, row) in self.cells
        return inside and all(row[c.name] != c.missing for c in self.answered)


def cell_of(columns: Sequence[Column], row: Row) -> int:
    """The flat index of a row's cell, the last column running first."""
    index = 0
    for column in columns:
        index = index * column.bins + column.bin_of[row[column.name]]
    return index


@dataclass(frozen=True, eq=False)
class Block:
    """Functions that are measured together."""

    plain: dict[str, Any]
    columns: tuple[Column, ...]

    @property
    def kind(self) -> str:
        """As the file names it."""
        return str(self.plain["kind"])

    @property
    def size(self) -> int:
        """Number of functions."""
        return len(self.bounds)

    @property
    def bounds(self) -> Sequence[int]:
        """B of every function."""
        raise NotImplementedError

    def of(self, row: Row) -> Sums:
        """The functions that are not zero on a row."""
        raise NotImplementedError

    def codes(self, column: Column) -> Sequence[int]:
        """Codes of a column of which one or another is in every row, as far as functions differ."""
        return column.codes

    def rows(self) -> Iterator[Row]:
        """Every row that the schema can code, of the columns of the block."""
        names = [column.name for column in self.columns]
        for codes in itertools.product(*map(self.codes, self.columns)):
            yield dict(zip(names, codes, strict=True))

    @cached_property
    def states(self) -> int:
        """How many such rows there are."""
        return math.prod(len(self.codes(column)) for column in self.columns)

    def one_of_each_bin(self, column: Column) -> list[int]:
        """A code of every bin."""
        return list({column.bin_of[code]: code for code in column.codes}.values())


class Table(Block):
    """One function for every cell; of no columns, one that is 1 on every row."""

    @cached_property
    def bounds(self) -> Sequence[int]:
        """One."""
        return [1] * math.prod(column.bins for column in self.columns)

    def codes(self, column: Column) -> Sequence[int]:
        """One of every bin."""
        return self.one_of_each_bin(column)

    def of(self, row: Row) -> Sums:
        """The cell of the row."""
        return {cell_of(self.columns, row): 1}


class Condition(Table):
    """One function: whether the row is in one of the listed cells."""

    @cached_property
    def bounds(self) -> Sequence[int]:
        """One."""
        return [1]

    def of(self, row: Row) -> Sums:
        """One or nothing."""
        return {0: 1} if cell_of(self.columns, row) in self.group.cells else {}

    @cached_property
    def group(self) -> Group:
        """The cells."""
        return Group(self.columns, frozenset(self.plain["cells"]))


class Residual(Table):
    """The product over columns of n 1{bin = i} - 1, for every cell i, n bins in the column."""

    @cached_property
    def bounds(self) -> Sequence[int]:
        """The product of n - 1."""
        largest = math.prod(column.bins - 1 for column in self.columns)
        return [largest] * math.prod(column.bins for column in self.columns)

    def of(self, row: Row) -> Sums:
        """All functions; none is zero."""
        values = [1]
        for column in self.columns:
            own = column.bin_of[row[column.name]]
            factors = [column.bins - 1 if i == own else -1 for i in range(column.bins)]
            values = [value * factor for value in values for factor in factors]
        return dict(enumerate(values))


@dataclass(frozen=True, eq=False)
class Moments(Block):
    """Products of values, signs and indicators; in a subgroup, where there is one."""

    terms: tuple[Term, ...] = ()
    given: Group | None = None
    coarse: bool = False

    @cached_property
    def by_name(self) -> dict[str, Column]:
        """Columns by their names."""
        return {column.name: column for column in self.columns}

    def steps(self, name: str) -> int:
        """The largest value of a number in whole steps; coarse moments have 64 at most."""
        half = self.by_name[name].half
        return min(half, COARSE) if self.coarse else half

    @cached_property
    def bounds(self) -> Sequence[int]:
        """The product of the largest values."""
        return [math.prod(self.steps(n) for n, level in t if level is None) for t in self.terms]

    def value(self, feature: Feature, row: Row) -> int:
        """One factor."""
        name, level = feature
        column, code = self.by_name[name], row[name]
        if level == SIGN:
            return 1 if column.bin_of[code] == 1 else -1
        if level is not None:
            return int(column.bin_of[code] == level)
        steps = self.steps(name)
        if steps == column.half:
            return code
        nearest = (2 * steps * abs(code) + column.half) // (2 * column.half)
        return nearest if code > 0 else -nearest

    def of(self, row: Row) -> Sums:
        """The products."""
        if self.given is not None and not self.given.holds(row):
            return {}
        known: dict[Feature, int] = {}
        found = {}
        for f, term in enumerate(self.terms):
            product = 1
            for feature in term:
                if feature not in known:
                    known[feature] = self.value(feature, row)
                product *= known[feature]
                if not product:
                    break
            if product:
                found[f] = product
        return found

    def codes(self, column: Column) -> Sequence[int]:
        """All codes of numbers, one of every bin of others."""
        number = any((column.name, None) in term for term in self.terms)
        return column.codes if number else self.one_of_each_bin(column)


@dataclass(frozen=True, eq=False)
class GroupMoments(Block):
    """In every group (K - c)^2, 2 (K^2 - c^2) and (K + c)^2 for the code c of a number."""

    number: str = ""
    groups: tuple[Group, ...] = ()

    @property
    def half(self) -> int:
        """K."""
        return next(column.half for column in self.columns if column.name == self.number)

    @cached_property
    def bounds(self) -> Sequence[int]:
        """4 K^2."""
        return [4 * self.half**2] * (3 * len(self.groups))

    def of(self, row: Row) -> Sums:
        """The three parts in every group that holds the row."""
        found: Sums = {}
        k, c = self.half, row[self.number]
        for i, group in enumerate(self.groups):
            if group.holds(row):
                parts = ((k - c) ** 2, 2 * (k * k - c * c), (k + c) ** 2)
                found.update({3 * i + j: part for j, part in enumerate(parts) if part})
        return found

    def codes(self, column: Column) -> Sequence[int]:
        """All codes of the number, one of every bin of others."""
        return column.codes if column.name == self.number else self.one_of_each_bin(column)


@dataclass(frozen=True, eq=False)
class BinOffsets(Block):
    """In every cell twice the distance of a number's code from the middle of its bin."""

    number: str = ""

    @property
    def column(self) -> Column:
        """The number."""
        return next(column for column in self.columns if column.name == self.number)

    @cached_property
    def ends(self) -> dict[int, tuple[int, int]]:
        """First and last code of every bin of the number."""
        codes: dict[int, list[int]] = {}
        for code in self.column.codes:
            codes.setdefault(self.column.bin_of[code], []).append(code)
        return {number: (min(own), max(own)) for number, own in codes.items()}

    @cached_property
    def bounds(self) -> Sequence[int]:
        """The width of the bin, one at least."""
        at = [column.name for column in self.columns].index(self.number)
        inner = math.prod(column.bins for column in self.columns[at + 1 :])
        width = [max(last - first, 1) for _, (first, last) in sorted(self.ends.items())]
        cells = math.prod(column.bins for column in self.columns)
        return [width[cell // inner % len(width)] for cell in range(cells)]

    def of(self, row: Row) -> Sums:
        """The distance, in the cell of the row."""
        code = row[self.number]
        first, last = self.ends[self.column.bin_of[code]]
        offset = 2 * code - first - last
        return {cell_of(self.columns, row): offset} if offset else {}

    def codes(self, column: Column) -> Sequence[int]:
        """All codes of the number, one of every bin of others."""
        return column.codes if column.name == self.number else self.one_of_each_bin(column)


def alternatives(terms: Sequence[Term]) -> Counter[tuple[Term, tuple[str, ...]]]:
    """How many terms share all but their levels: a row has a value at one of them at most."""
    found: Counter[tuple[Term, tuple[str, ...]]] = Counter()
    for term in terms:
        values = tuple(f for f in term if f[1] is None or f[1] == SIGN)
        found[values, tuple(f[0] for f in term if f not in values)] += 1
    return found
