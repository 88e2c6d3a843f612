"""Functions of numbers: moments of rows in a ball, kernels on a lattice, scores at a pilot."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from dpstats.verifying.columns import Column
from dpstats.verifying.functions import Block, Feature, Group, Row, Sums, Term

BALL = 2**13
SCORE = 2**16


@dataclass(frozen=True, eq=False)
class BallMoments(Block):
    """Sums of y_i and y_i y_j, y the row in the ball of radius 2^13; and the shrunk rows."""

    center: tuple[Fraction, ...] = ()
    scale: tuple[Fraction, ...] = ()
    norm: Fraction = Fraction(1)

    @cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """Of numbers, squares too."""
        return list(itertools.combinations_with_replacement(range(len(self.columns)), 2))

    @cached_property
    def bounds(self) -> Sequence[int]:
        """Twice the radius, its square, the square over root two rounded up, and four."""
        cross = math.isqrt(BALL**4 // 2) + 1
        products = [BALL**2 if i == j else cross for i, j in self.pairs]
        return [2 * BALL] * len(self.columns) + products + [4]

    def coordinate(self, j: int, code: int) -> int:
        """A number before it is shrunk, to the nearest whole number."""
        low, high = self.columns[j].exact_ends
        middle, half = (low + high) / 2, (high - low) / 2
        unit = BALL / (self.scale[j] * self.norm)
        at = unit * (middle - self.center[j] + half * code / self.columns[j].half)
        return math.floor(at + Fraction(1, 2))

    @cached_property
    def _known(self) -> dict[tuple[int, int], int]:
        return {}

    def shrunk(self, row: Row) -> tuple[list[int], bool]:
        """The row in the ball, and whether it was outside."""
        point = []
        for j, column in enumerate(self.columns):
            key = j, row[column.name]
            if key not in self._known:
                self._known[key] = self.coordinate(*key)
            point.append(self._known[key])
        square = sum(c * c for c in point)
        if square <= BALL**2:
            return point, False
        length = math.isqrt(square - 1) + 1
        return [(abs(c) * BALL // length) * (1 if c > 0 else -1) for c in point], True

    def of(self, row: Row) -> Sums:
        """The numbers, their products, and one if the row was shrunk."""
        point, outside = self.shrunk(row)
        values = [*point, *(point[i] * point[j] for i, j in self.pairs), int(outside)]
        return {f: value for f, value in enumerate(values) if value}


@dataclass(frozen=True, eq=False)
class KernelLattice(Block):
    """Products of reflected Gaussian kernels at the points of a lattice."""

    k: int = 1
    bandwidth: float = 1.0

    @cached_property
    def tables(self) -> list[list[list[int]]]:
        """Of every column, by grid position, the kernel at the lattice points.

        At most 1025 positions are distinguished; the highest kernel is 512, half of that on faces.
        """
        return [self._table(len(column.codes)) for column in self.columns]

    def _table(self, points: int) -> list[list[int]]:
        positions = min(points, 1025)
        columns = []
        for position in range(positions):
            t = position / (positions - 1)
            columns.append([self._kernel(i, t) for i in range(self.k + 1)])
        return columns

    def _kernel(self, i: int, t: float) -> int:
        u = i / self.k
        of = (u - t, u + t, 2 - u - t)
        height = math.fsum(math.exp(-0.5 * (d / self.bandwidth) ** 2) for d in of)
        return round(512 * (0.5 if i in (0, self.k) else 1.0) * height)

    @cached_property
    def bounds(self) -> Sequence[int]:
        """The product of the columns' largest entries."""
        largest = math.prod(max(map(max, table)) for table in self.tables)
        return [largest] * (self.k + 1) ** len(self.columns)

    def position(self, j: int, code: int) -> int:
        """The nearest of the positions that are distinguished."""
        half, steps = self.columns[j].half, len(self.tables[j]) - 1
        return ((code + half) * steps + half) // (2 * half)

    def of(self, row: Row) -> Sums:
        """All lattice points that the row reaches."""
        values = [1]
        for j, column in enumerate(self.columns):
            kernel = self.tables[j][self.position(j, row[column.name])]
            values = [value * factor for value in values for factor in kernel]
        return {f: value for f, value in enumerate(values) if value}


@dataclass(frozen=True, eq=False)
class PilotScore(Block):
    """Terms times the residual of a response at a pilot, in steps of 1/65536."""

    terms: tuple[Term, ...] = ()
    response: Feature = ("", None)
    link: str = ""
    pilot: tuple[int, ...] | None = None
    given: Group | None = None
    _means: dict[int, int] = field(default_factory=dict)

    @cached_property
    def by_name(self) -> dict[str, Column]:
        """Columns by their names."""
        return {column.name: column for column in self.columns}

    @cached_property
    def bounds(self) -> Sequence[int]:
        """65536."""
        return [SCORE] * len(self.terms)

    @cached_property
    def largest(self) -> list[int]:
        """The largest value of every term."""
        return [
            math.prod(self.by_name[name].half for name, level in term if level is None)
            for term in self.terms
        ]

    @cached_property
    def top(self) -> float:
        """The largest response."""
        name, level = self.response
        return 1.0 if level is not None else self._response_value(self.by_name[name].half)

    def _response_value(self, code: int) -> float:
        column = self.by_name[self.response[0]]
        low, high = column.ends
        return (low + high) / 2 + (high - low) / 2 * code / column.half

    def mean(self, step: int) -> int:
        """The mean of the response at a predictor of so many steps of 1/1024."""
        if step not in self._means:
            odds = math.exp(step / 1024)
            share = odds / (1 + odds) if self.link == "logit" else min(odds / self.top, 1.0)
            self._means[step] = round(share * SCORE)
        return self._means[step]

    def of(self, row: Row) -> Sums:
        """The score of the row."""
        if self.given is not None and not self.given.holds(row):
            return {}
        values = []
        for term in self.terms:
            product = 1
            for name, level in term:
                code = row[name]
                product *= code if level is None else int(self.by_name[name].bin_of[code] == level)
            values.append(product)
        pilot = self.pilot or (0,) * len(values)
        terms = zip(values, pilot, self.largest, strict=True)
        predictor = sum(value * slope // largest for value, slope, largest in terms)
        step = max(-(2**15), min(2**15, predictor // 64))
        name, level = self.response
        if level is None:
            response = round(self._response_value(row[name]) / self.top * SCORE)
        else:
            response = SCORE * (self.by_name[name].bin_of[row[name]] == level)
        residual = response - self.mean(step)
        found = {}
        for f, (value, largest) in enumerate(zip(values, self.largest, strict=True)):
            size = min(abs(value * residual) // largest, SCORE)
            if size:
                found[f] = size if (value > 0) == (residual > 0) else -size
        return found

    def codes(self, column: Column) -> Sequence[int]:
        """All codes of numbers, one of every bin of others."""
        used = {feature for term in self.terms for feature in term} | {self.response}
        return column.codes if (column.name, None) in used else self.one_of_each_bin(column)
