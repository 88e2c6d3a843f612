"""The two rows that functions tell apart most, looked for among rows made from the schema.

A search from below: whatever it reaches, neighbours can reach, so a claim below it is wrong. Where
the rows are too many to try all, that nothing passed the claim proves nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from dpstats.arrays import Codes, Floats, Integers
from dpstats.families.block import Block
from dpstats.families.contrasts import UNIT
from dpstats.families.tables.cells import ROWS
from dpstats.schema import Column, Design, Number, Schema
from dpstats.schema.design import STEPS, UNPAIRED

Rows = dict[str, Codes]
"""Codes (m,) of every column, and with a survey design of weights and units."""
WEIGHT = "(weight)"
"""Name of the weights of rows, in steps, among the codes of columns: no column is named so."""
_MOST_ROWS = 4096  # that are tried one by one
_MOST_VALUES = 4_000_000  # of functions at these rows
_MOST_COMPARED = 400_000_000  # values that are compared over all pairs
_STARTS = 4  # of the ascent
_SWEEPS = 20  # over the columns; far more than an ascent takes
_GAIN = 1 + 1e-12  # less is rounding


@dataclass(frozen=True)
class Pair:
    """Two neighbouring tables of one row, the other perhaps of none, and how they were found."""

    row: Rows
    other: Rows | None
    size: float  # what was reached, as the search computed it
    every: bool = False  # all pairs of rows were tried
    tried: int = 1  # rows that were tried before the ascent


def codes_of(column: Column, *, coded: bool = True) -> Codes:
    """All codes that a cell can have; the ends of bins where only bins matter."""
    if not isinstance(column, Number):
        return np.arange(column.bins)
    return column.all_codes if coded else np.unique(np.concatenate(column.bin_codes))


def columns_of(schema: Schema, blocks: Sequence[Block]) -> Schema:
    """The columns that some blocks depend on; of the number of rows, the first of all."""
    used = {column.name for block in blocks for column in block.columns}
    return schema.select(used or {schema.names[0]})


def random_rows(columns: Schema, m: int, rng: np.random.Generator) -> Rows:
    """Rows of uniform cells, of which half are at an end of a bin, (m,) each."""
    rows = {}
    for column in columns:
        cells, ends = (rng.choice(codes_of(column, coded=coded), m) for coded in (True, False))
        rows[column.name] = np.where(rng.random(m) < 0.5, ends, cells)
    return rows


def codes_beside(design: Design | None) -> Rows:
    """Codes of weights and units that a row may have beside its cells.

    Changes are largest at the ends of weights, since their norm is convex in them. All contrasts
    are alike, so that either sign in two pairs of units, and in one of three, shows each change.
    """
    if design is None:
        return {}
    weights = {WEIGHT: np.array([0, STEPS])}
    if not design.has_contrasts or not design.pairs.count:
        return weights
    pairs = {0, min(1, design.pairs.count - 1), design.pairs.count - 1}
    units = [UNPAIRED, *(2 * pair + sign for pair in sorted(pairs) for sign in (0, 1))]
    return weights | {UNIT: np.array(units)}


def sums_of_rows(block: Block, rows: Rows | None) -> Integers:
    """The sums (d,) that would be measured over rows made here, or over none."""
    total = np.zeros(block.size, dtype=np.int64)
    if rows is None:
        return total
    m = len(next(iter(rows.values())))
    weights = rows.get(WEIGHT, np.ones(m, dtype=np.int64))
    for weight in np.unique(weights):
        some = weights == weight
        if block == ROWS:
            total += weight * np.count_nonzero(some)
        else:
            total += weight * block.sums({name: own[some] for name, own in rows.items()})
    return total


@dataclass(frozen=True)
class Search:
    """A search for the pair of rows with the largest weighted change of some blocks."""

    blocks: Sequence[Block]
    weights: Sequence[Floats]  # (d,) each: what one unit of a function's change counts
    power: int  # 1 or 2: of changes, or of their squares
    columns: Schema  # that the blocks depend on; a row has a cell of each
    replaced: bool  # neighbours replace a row; else one is added or removed
    rng: np.random.Generator  # where not all rows are tried
    beside: Rows = field(default_factory=dict)  # codes that rows have of what is no column

    def values(self, rows: Rows) -> Floats:
        """Weighted values (m, d) at m rows."""
        m = len(next(iter(rows.values())))
        values = [
            np.ones((m, 1)) if b == ROWS else b.evaluate(rows).matrix().toarray().T
            for b in self.blocks
        ]
        all_values = np.concatenate(
            [v * w for v, w in zip(values, self.weights, strict=True)], axis=1
        )
        return all_values * rows[WEIGHT][:, np.newaxis] if WEIGHT in rows else all_values

    def _moves(self, one: Floats, other: Floats) -> Floats:
        return np.asarray((np.abs(one - other) ** self.power).sum(axis=1))

    def farthest(self, starts: Sequence[Pair] = ()) -> Pair:
        """The pair with the largest change that was found; pairs of single blocks are starts."""
        coded = {column.name for block in self.blocks for column in block.coded}
        codes = [codes_of(column, coded=column.name in coded) for column in self.columns]
        codes += self.beside.values()
        m = max(2, min(_MOST_ROWS, _MOST_VALUES // sum(len(w) for w in self.weights)))
        every = math.prod(map(len, codes)) <= m
        rows = self.random(m)
        if every:
            cells = np.array(list(itertools.product(*codes)))
            rows = dict(zip([*self.columns.names, *self.beside], cells.T, strict=True))
        values = self.values(rows)
        i, j, compared = self._most_distant(values)
        row, other = ({name: own[[k]] for name, own in rows.items()} for k in (i, j))
        size = self._moves(values[[i]], values[[j]] if self.replaced else 0 * values[[j]])
        best = Pair(row, other if self.replaced else None, size[0], compared, len(values))
        if every:
            return best
        pairs = [best]
        for start in sorted(starts, key=lambda pair: -pair.size)[: _STARTS - 2]:
            pairs.append(replace(start, row=self.random(1) | start.row,
                                 other=start.other and self.random(1) | start.other))  # fmt: skip
        while len(pairs) < _STARTS:
            pairs.append(Pair(self.random(1), self.random(1) if self.replaced else None, 0.0))
        best = max(map(self._ascent, pairs), key=lambda pair: pair.size)
        return replace(best, every=False, tried=len(values))

    def random(self, m: int) -> Rows:
        """Random rows, (m,) each."""
        others = {name: self.rng.choice(own, m) for name, own in self.beside.items()}
        return random_rows(self.columns, m, self.rng) | others

    def _most_distant(self, values: Floats) -> tuple[int, int, bool]:
        """Places of the two most distant of m points (m, d); whether all pairs were compared."""
        from scipy.spatial.distance import cdist

        if not self.replaced:
            return int(self._moves(values, 0 * values).argmax()), 0, True
        places = np.unique(values, axis=0, return_index=True)[1]
        points, m = values[places], len(places)
        every = m * m * values.shape[1] <= _MOST_COMPARED
        metric: Literal["cityblock", "sqeuclidean"]
        metric = "cityblock" if self.power == 1 else "sqeuclidean"
        best = (-1.0, 0, 0)
        for one in range(m) if every else np.linspace(0, m - 1, 16).astype(int).tolist():
            reached = -1.0
            while True:
                apart = cdist(points[[one]], points, metric)[0]
                other = int(apart.argmax())
                best = max(best, (float(apart[other]), int(places[one]), int(places[other])))
                if every or apart[other] <= reached:
                    break
                reached, one = float(apart[other]), other
        return best[1], best[2], every

    def _ascent(self, pair: Pair) -> Pair:
        """Change one cell of either row at a time, to the code that helps most, until none does."""
        sides = [pair.row] if pair.other is None else [pair.row, pair.other]
        values = [self.values(side) for side in sides]
        values += [np.zeros_like(values[0])] * (2 - len(sides))
        size = float(self._moves(*values)[0])
        for _ in range(_SWEEPS):
            before = size
            for s, name in itertools.product(range(len(sides)), sides[0]):
                codes = self.beside[name] if name in self.beside else codes_of(self.columns[name])
                most = max(16, _MOST_VALUES // values[0].shape[1])
                if len(codes) > most:  # so many, both ends among them
                    codes = codes[np.linspace(0, len(codes) - 1, most).astype(int)]
                trial = {other: np.repeat(own, len(codes)) for other, own in sides[s].items()}
                tried = self.values(trial | {name: codes})
                moves = self._moves(tried, values[1 - s])
                k = int(moves.argmax())
                if moves[k] > size * _GAIN:
                    sides[s] = sides[s] | {name: codes[[k]]}
                    values[s], size = tried[[k]], float(moves[k])
            if size <= before * _GAIN:
                break
        return Pair(sides[0], sides[1] if len(sides) == 2 else None, size)
