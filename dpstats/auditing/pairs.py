"""The two rows that functions tell apart most, looked for among rows made from the schema.

A search from below: whatever it reaches, neighbours can reach, so a claim below it is wrong. Where
the rows are too many to try all, that nothing passed the claim proves nothing.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np

from dpstats.arrays import Codes, Floats, Integers
from dpstats.families.block import Block
from dpstats.families.contrasts import UNIT
from dpstats.families.tables.cells import ROWS
from dpstats.schema import Column, Number, Schema
from dpstats.schema.design import STEPS, UNPAIRED

Rows = dict[str, Codes]
"""Codes (m,) of every column, of weights, and with a survey design of units."""
WEIGHT = "(weight)"
"""Name of the weights of rows among the codes of columns: no column is named so.

In steps of a survey's cap; else 1, and 0 of a row that is not there.
"""
_MOST_ROWS = 4096  # that are tried one by one
_MOST_VALUES = 4_000_000  # of functions at these rows
_MOST_COMPARED = 400_000_000  # values that are compared over all pairs
_TOGETHER = 64  # rows whose sums are compared with those of each
_STARTS = 4  # of the ascent
_SWEEPS = 20  # over the columns; far more than an ascent takes
_GAIN = 1 + 1e-12  # less is rounding


@dataclass(frozen=True)
class Pair:
    """Two neighbouring tables of one row, and how they were found."""

    row: Rows
    other: Rows
    size: float  # what was reached, as the search computed it
    every: bool = False  # all pairs of rows were tried
    tried: int = 1  # rows that were tried before the ascent


def codes_of(column: Column, *, coded: bool = True) -> Codes:
    """All codes that a cell can have; the ends of bins where only bins matter."""
    if not isinstance(column, Number):
        return np.arange(column.bins)
    return column.all_codes if coded else np.unique(np.concatenate(column.bin_codes))


def sums_of_rows(block: Block, rows: Rows) -> Integers:
    """The sums (d,) that would be measured over rows made here."""
    total, weights = np.zeros(block.size, dtype=np.int64), rows[WEIGHT]
    for weight in np.unique(weights[weights > 0]):
        some = weights == weight
        if block == ROWS:
            total += weight * np.count_nonzero(some)
        else:
            total += weight * block.sums({name: own[some] for name, own in rows.items()})
    return total


@dataclass(frozen=True)
class Search:
    """A search for the pair of rows with the largest weighted change of some blocks."""

    schema: Schema
    blocks: Sequence[Block]
    units: Sequence[Floats | Integers]  # (d,) each: in which changes are counted
    power: int  # 1 or 2: of changes, or of their squares
    replaced: bool  # neighbours replace a row; else one is added or removed
    rng: np.random.Generator  # where not all rows are tried
    rows_per_person: int = 1  # equal rows of a person, who changes sums as many times as far

    @cached_property
    def times(self) -> list[int]:
        """How many times a person changes the sums of each block as far as one row."""
        return [self.rows_per_person**block.degree for block in self.blocks]

    @cached_property
    def codes(self) -> Rows:
        """All codes of the columns that the blocks depend on, of weights and of units.

        Changes are largest at the ends of weights, since their norm is convex in them. All
        contrasts are alike, so that either sign in two pairs of units, and in one of three, shows
        each change.
        """
        used = {column.name for block in self.blocks for column in block.columns}
        used = used or {self.schema.names[0]}  # rows have a cell, even if it does not matter
        codes = {column.name: codes_of(column) for column in self.schema if column.name in used}
        design = self.schema.design
        codes[WEIGHT] = np.array([1] if design is None else [0, STEPS])
        if design is not None and design.has_contrasts and design.pairs.count:
            pairs = sorted({0, min(1, design.pairs.count - 1), design.pairs.count - 1})
            codes[UNIT] = np.array([UNPAIRED, *(2 * p + sign for p in pairs for sign in (0, 1))])
        return codes

    def random(self, m: int) -> Rows:
        """Rows of uniform cells, of which half are at an end of a bin, (m,) each."""
        rows = {}
        for name, codes in self.codes.items():
            column = self.schema[name] if name in self.schema.names else None
            ends = codes if column is None else codes_of(column, coded=False)
            cells, at_ends = self.rng.choice(codes, m), self.rng.choice(ends, m)
            rows[name] = np.where(self.rng.random(m) < 0.5, at_ends, cells)
        return rows

    def values(self, rows: Rows) -> Floats:
        """Weighted values (m, d) at m rows."""
        m = len(rows[WEIGHT])
        values = [
            np.ones((m, 1)) if b == ROWS else b.evaluate(rows).matrix().toarray().T
            for b in self.blocks
        ]
        weighted = [
            v * (k / units) for v, k, units in zip(values, self.times, self.units, strict=True)
        ]
        return np.concatenate(weighted, axis=1) * rows[WEIGHT][:, np.newaxis]

    def totals(self, rows: Rows) -> list[Integers]:
        """Exact sums of every block, (d,) each, as they would be measured."""
        return [k * sums_of_rows(b, rows) for b, k in zip(self.blocks, self.times, strict=True)]

    def change(self, pair: Pair) -> Fraction:
        """The exact sum of changes, or of their squares, each in its unit."""
        total = Fraction(0)
        for here, there, units in zip(
            *map(self.totals, (pair.row, pair.other)), self.units, strict=True
        ):
            of_unit: Counter[float] = Counter()
            for moved, unit in zip((here - there).tolist(), units.tolist(), strict=True):
                of_unit[unit] += abs(moved) ** self.power
            total += sum((t / Fraction(u) ** self.power for u, t in of_unit.items()), Fraction(0))
        return total

    def adds_up(self) -> bool:
        """True if sums over rows are those of every row by itself, which are what is searched."""
        rows = self.random(_TOGETHER)
        every = [{name: own[[i]] for name, own in rows.items()} for i in range(_TOGETHER)]
        single = np.array([np.concatenate(self.totals(row)) for row in every])
        searched = np.rint(self.values(rows) * np.concatenate(self.units))
        together = np.concatenate(self.totals(rows))
        return bool(
            np.array_equal(searched, single) and np.array_equal(together, single.sum(axis=0))
        )

    def farthest(self, starts: Sequence[Pair] = ()) -> Pair:
        """The pair with the largest change that was found; pairs of single blocks are starts."""
        coded = {column.name for block in self.blocks for column in block.coded} | {WEIGHT, UNIT}
        codes = [
            own if name in coded else codes_of(self.schema[name], coded=False)
            for name, own in self.codes.items()
        ]
        size = sum(block.size for block in self.blocks)
        most = min(_MOST_ROWS, _MOST_VALUES // size, math.isqrt(_MOST_COMPARED // size))
        every = math.prod(map(len, codes)) <= max(2, most)
        rows = self.random(max(2, most))
        if every:
            cells = np.array(list(itertools.product(*codes)))
            rows = dict(zip(self.codes, cells.T, strict=True))
        best = replace(self._most_distant(rows), every=every)
        if every:
            return best
        pairs = [best]
        for start in sorted(starts, key=lambda pair: -pair.size)[: _STARTS - 2]:
            pairs.append(self._pair(self.random(1) | start.row, self.random(1) | start.other))
        while len(pairs) < _STARTS:
            pairs.append(self._pair(self.random(1), self.random(1)))
        reached = max(map(self._ascend, pairs), key=lambda pair: pair.size)
        return replace(reached, tried=best.tried)

    def _pair(self, row: Rows, other: Rows) -> Pair:
        if not self.replaced:
            other = row | {WEIGHT: np.array([0])}
        moves = np.abs(self.values(row) - self.values(other)) ** self.power
        return Pair(row, other, float(moves.sum()))

    def _most_distant(self, rows: Rows) -> Pair:
        """The most distant of all pairs of rows, or the largest row."""
        from scipy.spatial.distance import cdist

        values = self.values(rows)
        places = np.unique(values, axis=0, return_index=True)[1]
        points = values[places]
        others = points if self.replaced else np.zeros((1, values.shape[1]))
        metric: Literal["cityblock", "sqeuclidean"]
        metric = "cityblock" if self.power == 1 else "sqeuclidean"
        i = int(np.argmax([cdist(point[None], others, metric).max() for point in points]))
        j = int(cdist(points[[i]], others, metric).argmax())
        row, other = ({n: own[[places[k]]] for n, own in rows.items()} for k in (i, j))
        return replace(self._pair(row, other), tried=len(values))

    def _ascend(self, pair: Pair) -> Pair:
        """Change one cell of either row at a time, to the code that helps most, until none does."""
        most = max(16, _MOST_VALUES // sum(block.size for block in self.blocks))
        for _ in range(_SWEEPS):
            before = pair.size
            for side, (name, codes) in itertools.product(
                range(1 + self.replaced), self.codes.items()
            ):
                sides = [pair.row, pair.other]
                if len(codes) > most:  # so many, both ends among them
                    codes = codes[np.linspace(0, len(codes) - 1, most).astype(int)]
                trial = {n: np.repeat(own, len(codes)) for n, own in sides[side].items()}
                moves = np.abs(self.values(trial | {name: codes}) - self.values(sides[1 - side]))
                sizes = (moves**self.power).sum(axis=1)
                k = int(sizes.argmax())
                if sizes[k] > pair.size * _GAIN:
                    sides[side] = sides[side] | {name: codes[[k]]}
                    pair = self._pair(*sides)
            if pair.size <= before * _GAIN:
                break
        return pair
