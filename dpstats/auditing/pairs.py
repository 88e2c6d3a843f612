"""The two rows that functions tell apart most, looked for among rows made from the schema.

A search from below: whatever it reaches, neighbours can reach, so a claim below it is wrong. Where
the rows are too many to try all, that nothing passed the claim proves nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from dpstats.arrays import Codes, Floats
from dpstats.families.block import Block
from dpstats.families.tables.cells import ROWS
from dpstats.schema import Column, Number, Schema

Rows = dict[str, Codes]
"""Codes (m,) of every column."""
_MOST_ROWS = 4096  # that are tried one by one
_MOST_VALUES = 4_000_000  # of functions at these rows
_MOST_COMPARED = 400_000_000  # values that are compared over all pairs
_STARTS = 4  # of the ascent
_SWEEPS = 20  # over the columns; far more than an ascent takes
_GAIN = 1e-12  # relative: less is rounding


@dataclass(frozen=True)
class Distance:
    """The weighted size of a change of the functions of some blocks.

    Attributes
    ----------
    blocks : tuple of Block
    weights : tuple of (d,) arrays
        What one unit of each function's change counts.
    power : {1, 2}
        The sum of weighted changes, or of their squares.
    """

    blocks: tuple[Block, ...]
    weights: tuple[Floats, ...]
    power: int

    @property
    def size(self) -> int:
        """Number of functions."""
        return sum(block.size for block in self.blocks)

    def values(self, rows: Rows, of: Sequence[int] | None = None) -> list[Floats]:
        """Weighted values of some blocks (by default all) at m rows, (m, d) each."""
        chosen = range(len(self.blocks)) if of is None else of
        return [_values(self.blocks[i], rows) * self.weights[i] for i in chosen]

    def between(self, one: Floats, other: Floats) -> Floats:
        """Sizes (m,) of changes of weighted values of one block."""
        moved = np.abs(one - other)
        return np.asarray((moved if self.power == 1 else moved**2).sum(axis=1))


@dataclass(frozen=True)
class Pair:
    """Two neighbouring tables of at most one row.

    Attributes
    ----------
    row : dict of name to (1,) codes
    other : dict of name to (1,) codes, or None
        The row in its place, or no row where neighbours add or remove one.
    size : float
        What was reached, as the search computed it.
    every : bool
        Whether all pairs of rows were tried.
    tried : int
        Number of rows that were tried before the ascent.
    """

    row: Rows
    other: Rows | None
    size: float
    every: bool
    tried: int


def codes_of(column: Column, *, coded: bool = True) -> Codes:
    """All codes that a cell can have; the ends of bins where only bins matter."""
    if not isinstance(column, Number):
        return np.arange(column.bins)
    return column.all_codes if coded else np.unique(np.concatenate(column.bin_codes))


def random_rows(columns: Schema, m: int, rng: np.random.Generator) -> Rows:
    """Rows of uniform cells, of which half are at an end of a bin, (m,) each."""
    rows = {}
    for column in columns:
        codes = codes_of(column)
        rows[column.name] = rng.choice(codes, m)
        if isinstance(column, Number):
            ends = np.concatenate([*column.bin_codes, column.all_codes[[0, -1]]])
            at_end = rng.random(m) < 0.5
            rows[column.name][at_end] = rng.choice(ends, int(at_end.sum()))
    return rows


def farthest(
    distance: Distance,
    columns: Schema,
    *,
    replaced: bool,
    rng: np.random.Generator,
    starts: Sequence[Pair] = (),
) -> Pair:
    """The pair with the largest change that was found.

    Parameters
    ----------
    distance : Distance
    columns : Schema
        Those that the blocks depend on; a row has a cell of each.
    replaced : bool
        Neighbours replace a row; else one is added or removed.
    rng : numpy.random.Generator
        Where not all rows are tried.
    starts : sequence of Pair
        Rows to try besides, such as the farthest of single blocks.
    """
    limit = max(2, min(_MOST_ROWS, _MOST_VALUES // distance.size))
    coded = {column.name for block in distance.blocks for column in block.coded}
    codes = {column.name: codes_of(column, coded=column.name in coded) for column in columns}
    every = math.prod(map(len, codes.values())) <= limit
    rows = _all_rows(codes) if every else random_rows(columns, limit, rng)
    values = np.concatenate(distance.values(rows), axis=1)
    i, j, compared = _farthest_of(values, distance.power, replaced)
    found = _pair(distance, row_at(rows, i), row_at(rows, j) if replaced else None)
    m = len(values)
    if every:
        return replace(found, every=compared, tried=m)

    def completed(row: Rows | None) -> Rows | None:
        return None if row is None else random_rows(columns, 1, rng) | row

    given = [_pair(distance, completed(pair.row) or {}, completed(pair.other)) for pair in starts]
    given = sorted(given, key=lambda pair: -pair.size)[: _STARTS - 2]
    while len(given) < _STARTS - 1:
        given.append(_pair(distance, completed({}) or {}, completed({}) if replaced else None))
    risen = (_ascent(distance, columns, pair) for pair in (found, *given))
    return replace(max(risen, key=lambda pair: pair.size), tried=m)


def _values(block: Block, rows: Rows) -> Floats:
    """Values (m, d) of a block; the number of rows is the function one."""
    if block == ROWS:
        return np.ones((len(next(iter(rows.values()))), 1))
    return np.asarray(block.evaluate(rows).matrix().toarray().T, dtype=np.float64)


def _all_rows(codes: Rows) -> Rows:
    every = np.array(list(itertools.product(*(own.tolist() for own in codes.values()))))
    return {name: every[:, i] for i, name in enumerate(codes)}


def row_at(rows: Rows, place: int) -> Rows:
    """One of the rows."""
    return {name: codes[[place]] for name, codes in rows.items()}


def _pair(distance: Distance, row: Rows, other: Rows | None) -> Pair:
    here = distance.values(row)
    there = [np.zeros_like(v) for v in here] if other is None else distance.values(other)
    size = sum(float(distance.between(a, b)[0]) for a, b in zip(here, there, strict=True))
    return Pair(row, other, size, False, 1)


def _farthest_of(values: Floats, power: int, replaced: bool) -> tuple[int, int, bool]:
    """Places of the two most distant of m points (m, d), and whether all pairs were compared.

    Of too many, those most distant from a few points, and from these, as long as it helps.
    """
    from scipy.spatial import distance as metrics

    if not replaced:
        sizes = (np.abs(values) ** power).sum(axis=1)
        return int(sizes.argmax()), 0, True
    places = np.unique(values, axis=0, return_index=True)[1]
    points, m = values[places], len(places)
    metric: Literal["cityblock", "sqeuclidean"] = "cityblock" if power == 1 else "sqeuclidean"
    if m < 2:
        return 0, 0, True
    if m * m * values.shape[1] <= _MOST_COMPARED:
        k = int(metrics.pdist(points, metric).argmax())  # of pairs (0, 1), (0, 2), .., (1, 2), ..
        ends = np.cumsum(np.arange(m - 1, 0, -1))
        i = int(np.searchsorted(ends, k, side="right"))
        return int(places[i]), int(places[m - (int(ends[i]) - k)]), True
    best = (-1.0, 0, 0)
    for anchor in np.linspace(0, m - 1, 16).astype(int).tolist():
        one, reached = anchor, -1.0
        while True:
            apart = metrics.cdist(points[[one]], points, metric)[0]
            other = int(apart.argmax())
            if apart[other] <= reached:
                break
            reached = float(apart[other])
            best = max(best, (reached, int(places[one]), int(places[other])))
            one = other
    return best[1], best[2], False


def _ascent(distance: Distance, columns: Schema, pair: Pair) -> Pair:
    """Change one cell of either row at a time, to the code that helps most, until none does."""
    touched = {
        column.name: [
            i
            for i, block in enumerate(distance.blocks)
            if column.name in {used.name for used in block.columns}
        ]
        for column in columns
    }
    sides: list[Rows | None] = [dict(pair.row), None if pair.other is None else dict(pair.other)]
    held = [
        [np.zeros((1, block.size)) for block in distance.blocks]
        if side is None
        else distance.values(side)
        for side in sides
    ]
    sizes = np.array([float(distance.between(a, b)[0]) for a, b in zip(*held, strict=True)])
    for _ in range(_SWEEPS):
        before = sizes.sum()
        for s, column in itertools.product((0, 1), columns):
            side, blocks = sides[s], touched[column.name]
            if side is None or not blocks:
                continue
            width = sum(distance.blocks[i].size for i in blocks)
            codes = _some(codes_of(column), max(16, _MOST_VALUES // width))
            trial = {name: np.repeat(own, len(codes)) for name, own in side.items()}
            values = distance.values(trial | {column.name: codes}, blocks)
            pairs = zip(values, blocks, strict=True)
            parts = [distance.between(v, held[1 - s][i]) for v, i in pairs]
            total = np.sum(parts, axis=0)
            k = int(total.argmax())
            if total[k] > sizes[blocks].sum() * (1 + _GAIN):
                side[column.name] = codes[[k]]
                for v, i, part in zip(values, blocks, parts, strict=True):
                    held[s][i], sizes[i] = v[[k]], part[k]
        if sizes.sum() <= before * (1 + _GAIN):
            break
    row, other = sides
    assert row is not None
    return Pair(row, other, float(sizes.sum()), False, pair.tried)


def _some(codes: Codes, most: int) -> Codes:
    """All codes, or so many with both ends among them."""
    if len(codes) <= most:
        return codes
    some: Codes = codes[np.unique(np.linspace(0, len(codes) - 1, most).astype(int))]
    return some


def columns_of(schema: Schema, blocks: Sequence[Block]) -> Schema:
    """The columns that some blocks depend on; of the number of rows, the first of all."""
    used = {column.name for block in blocks for column in block.columns}
    return schema.select(used or {schema.names[0]})


def sums_of_rows(block: Block, rows: Mapping[str, Codes] | None) -> list[int]:
    """The sums that would be measured over rows made here, or over none."""
    if rows is None:
        return [0] * block.size
    if block == ROWS:
        return [len(next(iter(rows.values())))]
    found: list[int] = block.sums({c.name: rows[c.name] for c in block.columns}).tolist()
    return found
