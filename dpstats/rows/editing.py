r"""Rows of equal weight, edited until their tables are the wanted ones.

Rows are taken in random order, some at a time, and each of their columns in turn is drawn anew.
With C the counts of the rows (see `Levels`), T those wanted and w_c = 1 / (T_c + 2), a row that is
given level l of a column has, over its cells c = (l, x_k) of tables with other columns k and the
cell (l, l) of the column itself, a weighted squared misfit that is larger by

    sum over c of w_c (2 (C_c - T_c) + 1),

C without the row itself (eq. 11 of docs/explanation/synthetic-rows/generator.md). The level is
drawn with log probabilities of minus this over a temperature that falls (eq. 12), and C follows
every draw: the misfit of the rows themselves is the feedback, in place of the coefficients of a
model. There are always as many rows, none has a weight, and C is exact, so that nothing can
degenerate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes, Floats
from dpstats.families.block import Block, Family
from dpstats.rows.drawing import systematic
from dpstats.rows.gibbs import GibbsSampler, Rows, categorical
from dpstats.rows.levels import Levels, Single
from dpstats.schema import Schema


@dataclass(frozen=True)
class Pass:
    """A pass over all rows."""

    # of columns of parts of the rows: it sets the number of parts. Rows that are drawn at once do
    # not see each other: too few parts for a low temperature overshoot
    draws: int
    temperature: float
    power: float  # of the weights w: lower ones give more to large cells

    def rows_at_once(self, rows: int, levels: Levels) -> int:
        """How many rows are drawn at once; more where a draw of many levels takes long."""
        draws = self.draws * min(1.0, MANY_LEVELS / levels.size)
        return max(LEAST_ROWS, math.ceil(rows * len(levels.slices) / draws))


LEAST_ROWS = 2  # that are drawn at once
MANY_LEVELS = 300
FOLLOWS = 0.95  # share of rows in which one level, or column, follows from another
MOST_CELLS = 500  # of two linked columns
LINKED_DRAWS = 0.25  # share of the parts in which a pair of them is drawn
RESAMPLING_STEPS = 6
COARSE = Pass(5_000, 0.1, 1.0), Pass(5_000, 0.03, 1.0)
FINE = Pass(10_000, 0.01, 0.75), Pass(20_000, 0.003, 0.75), Pass(45_000, 0.0015, 0.75)
# Where cells cannot occur, rows have fewer ways from one level to another.
FINEST = Pass(45_000, 0.0008, 0.75)


class Others:
    """Counts that are not cells of small tables: conditions, and tables of more columns.

    They enter the cost of a level as small tables do (eq. 11), but follow the rows only from one
    part to the next.

    Parameters
    ----------
    schema : Schema
    blocks : sequence of Block
        Of cells, which are 0 or 1 for every row.
    wanted : (|F|,) float64
        Counts.
    """

    def __init__(self, schema: Schema, blocks: Sequence[Block], wanted: Floats) -> None:
        family = Family(tuple(blocks))
        none = {column.name: np.zeros(column.bins) for column in schema}
        self._cost, self._own = (GibbsSampler(schema, family, none) for _ in range(2))
        self._family, self._wanted = family, np.maximum(wanted, 0.0)
        self._misfit = self._weights = np.zeros(family.size)

    def counts(self, bins: dict[str, Codes]) -> Floats:
        """Counts of rows, column name -> (rows,) bins."""
        supports = self._own.supports
        codes = {name: supports[name].codes[bin_] for name, bin_ in bins.items()}
        ones = np.ones(len(next(iter(bins.values()))))
        return self._family.evaluate(codes).average(ones)

    def cover(self, names: Sequence[str]) -> bool:
        """True if one of the blocks depends on all of these columns."""
        used = ({column.name for column in block.columns} for block in self._family.blocks)
        return any(columns.issuperset(names) for columns in used)

    def start(self, bins: dict[str, Codes], power: float) -> None:
        """Begin a pass, with these rows and this power of the weights."""
        self._misfit = self.counts(bins) - self._wanted
        self._weights = 1 / (self._wanted + 2) ** power
        self._own.set_coefficients(self._weights)

    def begin(self, bins: dict[str, Codes], one_hot: Single) -> Rows:
        """Begin a part of the rows."""
        self._before = self.counts(bins)
        self._cost.set_coefficients((2 * self._misfit + 1) * self._weights)
        return Rows(dict(bins), dict(bins), {}, one_hot, self._own.levels)

    def cost(self, name: str, rows: Rows) -> Single:
        """Cost of each level of a column for each row, (levels, rows)."""
        column, old = self._own.schema[name], rows.bins[name]
        cost = self._cost.bin_potentials(column, rows).T
        at = np.arange(len(old))
        cost[old, at] -= 2 * self._own.bin_potentials(column, rows)[at, old]
        return cost

    def end(self, rows: Rows) -> None:
        """End the part: the misfit follows its rows."""
        self._misfit = self._misfit + self.counts(rows.bins) - self._before


def edited(
    levels: Levels,
    bins: dict[str, Codes],
    wanted: Floats,
    used: NDArray[np.bool_],
    rng: np.random.Generator,
    others: Others | None = None,
    passes: Sequence[Pass] = (*COARSE, *FINE),
) -> dict[str, Codes]:
    """Rows whose tables are near the wanted counts, from rows to start with.

    Parameters
    ----------
    levels : Levels
    bins : column name -> (rows,) int64
    wanted : (L, L) float64
        Counts of all levels and pairs of them, symmetric; see `Levels`.
    used : (L, L) bool
        Which of them count.
    rng : numpy Generator
    others : Others, optional
        Counts besides.
    passes : sequence of Pass
    """
    names = list(levels.slices)
    places = [levels.slices[name] for name in names]
    rows = np.stack([bins[name] for name in names]).astype(np.int16)
    number = rows.shape[1]
    target = np.maximum(wanted, 0).astype(np.float32)
    misfit = _counts(levels, rows) - target
    single = [j for j, place in enumerate(places) if place.stop - place.start > 1]
    linked = linked_columns(levels, target, used)
    if others is not None:  # whose cost of a pair of levels is not the sum of the costs of each
        linked = [pair for pair in linked if not others.cover([names[j] for j in pair.columns])]
    for this in passes:
        weights = np.where(used, 1 / (target + 2) ** this.power, 0).astype(np.float32)
        if linked and this is FINE[0]:
            rows, misfit = resampled(levels, rows, target, weights, rng)
        size = this.rows_at_once(number, levels)
        if others is not None:
            others.start(_by_name(levels, rows), this.power)
        rows = rows[:, rng.permutation(number)]
        for first in range(0, number, size):
            part = _Part(levels, rows[:, first : first + size], misfit, weights, others)
            for j in rng.permutation(single):
                part.redraw(j, this.temperature, rng)
            # A pair of a few of the parts: it costs as much as several columns.
            if linked and rng.random() < LINKED_DRAWS:
                part.redraw_both(linked[rng.integers(len(linked))], this.temperature, rng)
            part.end()
    return _by_name(levels, rows)


def _by_name(levels: Levels, rows: NDArray[np.int16]) -> dict[str, Codes]:
    return {name: row.astype(np.int64) for name, row in zip(levels.slices, rows, strict=True)}


class _Part:
    """Some of the rows while their columns are drawn anew; they and the misfit are changed."""

    def __init__(
        self,
        levels: Levels,
        rows: NDArray[np.int16],
        misfit: Single,
        weights: Single,
        others: Others | None,
    ) -> None:
        self.places = list(levels.slices.values())
        self.rows, self.misfit, self.weights = rows, misfit, weights
        self.every = np.arange(rows.shape[1])
        self.alone = np.einsum("ii->i", misfit)  # a view: of single levels
        self.few_held = levels.are_many
        starts = np.array([place.start for place in self.places])
        self.held = rows + starts[:, np.newaxis]  # which levels each row has, (columns, rows)
        self.one_hot = np.zeros((levels.size, len(self.every)), dtype=np.float32)
        self.one_hot[self.held, self.every] = 1
        self.names, self.others = list(levels.slices), others
        self.state: Rows | None = None
        if others is not None:
            self.state = others.begin(_by_name(levels, rows), self.one_hot)

    def cost(self, j: int, without: int | None = None) -> Single:
        """Cost of each level of a column for each row, (levels, rows): eq. 11.

        Cells of column `without`, whose levels are taken out of the rows, do not count.
        """
        place, old = self.places[j], self.rows[j]
        self.one_hot[place] = 0
        if self.few_held:
            held = self.held[[k for k in range(len(self.held)) if k not in (j, without)]]
            cost: Single = self.steepness(held, place).sum(axis=0).T
        else:
            cost = self.steepness(place) @ self.one_hot
        alone = (2 * self.alone[place] + 1) * self.weights.diagonal()[place]
        cost += alone[:, np.newaxis]
        own = self.weights[self.held[j], self.held]
        cost[old, self.every] -= 2 * own.sum(axis=0)
        if without is not None:
            cost[old, self.every] += 2 * own[without]
        if self.others is not None and self.state is not None:
            cost += self.others.cost(self.names[j], self.state)
        return cost

    def steepness(self, *cells: Any) -> Single:
        """Cost of one more row in each of some cells."""
        return np.asarray((2 * self.misfit[cells] + 1) * self.weights[cells])

    def redraw(self, j: int, temperature: float, rng: np.random.Generator) -> None:
        """Draw a column (eq. 12)."""
        logits = self.cost(j) * np.float32(-1 / temperature)
        self.put(j, categorical(logits, rng).astype(np.int16))

    def redraw_both(self, pair: Linked, temperature: float, rng: np.random.Generator) -> None:
        """Draw two columns at once, among the pairs of levels that are wanted."""
        j, k = pair.columns
        self.one_hot[self.places[k]] = 0
        first, second = pair.cells
        joint = self.cost(j, without=k)[first] + self.cost(k, without=j)[second]
        cells = self.places[j].start + first, self.places[k].start + second
        joint += self.steepness(*cells)[:, np.newaxis]
        same = (first[:, np.newaxis] == self.rows[j]) & (second[:, np.newaxis] == self.rows[k])
        joint -= same * (2 * self.weights[self.held[j], self.held[k]])
        drawn = categorical(joint * np.float32(-1 / temperature), rng)
        among = same.any(axis=0)  # rows with another pair keep it
        self.one_hot[self.held[k], self.every] = 1
        self.put(j, np.where(among, first[drawn], self.rows[j]))
        self.one_hot[self.places[k]] = 0
        self.put(k, np.where(among, second[drawn], self.rows[k]))

    def put(self, j: int, new: NDArray[np.int16]) -> None:
        """Give a column, whose levels are taken out of the rows, new ones."""
        place, old = self.places[j], self.rows[j]
        moved = np.flatnonzero(new != old)
        if len(moved):
            if self.few_held:
                self.count(j, moved, old, -1)
                self.count(j, moved, new, 1)
            else:
                change = np.zeros((place.stop - place.start, len(moved)), dtype=np.float32)
                at = np.arange(len(moved))
                change[new[moved], at] = 1
                change[old[moved], at] -= 1
                moves = change @ self.one_hot[:, moved].T
                self.misfit[place] += moves
                self.misfit[:, place] += moves.T
                self.alone[place] += change.sum(axis=1)
            self.rows[j], self.held[j] = new, new + place.start
            if self.state is not None:
                self.state.bins[self.names[j]] = new.astype(np.int64)
        self.one_hot[self.held[j], self.every] = 1

    def count(self, j: int, rows: Codes, level: NDArray[np.int16], change: int) -> None:
        """Add to the misfit of the cells of some of the rows, with this level of a column."""
        own = (self.places[j].start + level[rows]).astype(np.int64)
        held = np.delete(self.held[:, rows], j, axis=0).astype(np.int64)
        size, flat = len(self.misfit), self.misfit.reshape(-1)
        for cells in (own * size + held, held * size + own, own * (size + 1)):
            np.add.at(flat, cells.ravel(), np.float32(change))

    def end(self) -> None:
        """End the part."""
        if self.others is not None and self.state is not None:
            self.others.end(self.state)


@dataclass(frozen=True)
class Linked:
    """Two columns of which one nearly follows from the other, and the cells that are wanted."""

    columns: tuple[int, int]
    cells: tuple[NDArray[np.int16], NDArray[np.int16]]


def linked_columns(
    levels: Levels, wanted: Single | Floats, used: NDArray[np.bool_]
) -> list[Linked]:
    """For every column that is linked to others, the pair with the one that it is linked to most.

    A level that hardly any row has without a certain level of another column, and the other way
    round, cannot be drawn, nor left, one column at a time.
    """
    places, found = list(levels.slices.values()), {}
    for j, own in enumerate(places):
        shares = [
            _linked_share(wanted[own, other]) if k != j and used[own, other].all() else 0.0
            for k, other in enumerate(places)
        ]
        k = int(np.argmax(shares))
        pair = (min(j, k), max(j, k))
        if shares[k] == 0 or pair in found:
            continue
        cells = np.nonzero(wanted[places[pair[0]], places[pair[1]]] >= 0.5)
        if 0 < len(cells[0]) <= MOST_CELLS:
            found[pair] = Linked(pair, (cells[0].astype(np.int16), cells[1].astype(np.int16)))
    return list(found.values())


def _linked_share(table: Single | Floats) -> float:
    """Share of rows in cells without which neither of their two levels would have many rows.

    One and more if the first column follows from the second.
    """
    total = max(float(table.sum()), 1e-9)
    if min(table.shape) == 1:
        return 0.0
    top = float(table.sum(axis=1).max()) / total
    explained = float(table.max(axis=0).sum()) / total
    if explained - top >= FOLLOWS * (1 - top):  # beyond what the commonest level explains
        return 1 + explained
    of_both = np.maximum(table.sum(axis=1, keepdims=True), table.sum(axis=0))
    return float(table[table >= FOLLOWS * of_both].sum()) / total


def resampled(
    levels: Levels,
    rows: NDArray[np.int16],
    wanted: Single,
    weights: Single,
    rng: np.random.Generator,
) -> tuple[NDArray[np.int16], Single]:
    """Rows of which some are copied and others dropped, where that brings the counts closer.

    Each row is worth 1 + v, with the v of a few steps of conjugate gradients towards least squares
    (eq. 18 of docs/explanation/synthetic-rows/generator.md), and gets so many copies, rounded up or
    down: no edit of one or two columns does that where every column follows from another. The
    second is the misfit of these rows.
    """
    number = rows.shape[1]
    rows = rows[:, np.lexsort(rows)]  # copies of alike rows are rounded together
    once = (weights + np.diag(weights.diagonal())) / 2.0  # every pair is there twice
    misfit = _counts(levels, rows) - wanted
    rest = -misfit.astype(np.float64)
    worth = np.zeros(number)
    direction = _sums(levels, rows, once * rest)
    size = float(direction @ direction)
    for _ in range(RESAMPLING_STEPS):
        if size <= 0:
            break
        image = _counts(levels, rows, direction)
        length = size / max(float((once * image**2).sum()), 1e-30)
        worth, rest = worth + length * direction, rest - length * image
        gradient = _sums(levels, rows, once * rest)
        following = float(gradient @ gradient)
        direction, size = gradient + following / size * direction, following
    worth = np.maximum(1 + worth, 0)
    if not 0 < worth.sum() < np.inf:
        return rows, misfit
    found = np.repeat(rows, systematic(worth, number, rng), axis=1)
    after = _counts(levels, found) - wanted
    better = (once * after**2).sum() < (once * misfit**2).sum()
    return (found, after) if better else (rows, misfit)


def _one_hots(levels: Levels, rows: NDArray[np.int16]) -> Iterator[tuple[slice, Single]]:
    """Rows as indicators of their levels, some at a time."""
    for first in range(0, rows.shape[1], 4096):
        piece = slice(first, first + 4096)
        yield piece, levels.one_hot(dict(zip(levels.slices, rows[:, piece], strict=True)))


def _counts(levels: Levels, rows: NDArray[np.int16], worth: Floats | None = None) -> Single:
    """O O' of rows, (L, L), each counted as often as it is worth."""
    total = np.zeros((levels.size, levels.size), dtype=np.float32)
    for piece, one_hot in _one_hots(levels, rows):
        scaled = one_hot if worth is None else one_hot * worth[piece].astype(np.float32)
        total += scaled @ one_hot.T
    return total


def _sums(levels: Levels, rows: NDArray[np.int16], values: Floats) -> Floats:
    """Sum over the cells of each row of values of cells, (rows,)."""
    found = np.empty(rows.shape[1])
    for piece, one_hot in _one_hots(levels, rows):
        found[piece] = ((values @ one_hot) * one_hot).sum(axis=0)
    return found
