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
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes, Floats
from dpstats.families.block import Block, Family
from dpstats.references.gibbs import GibbsSampler, Rows
from dpstats.references.levels import Levels, Single
from dpstats.schema import Schema


@dataclass(frozen=True)
class Stage:
    """Passes over all rows at temperatures that fall geometrically.

    Attributes
    ----------
    passes : int
    draws : int
        Of columns of parts of the rows in a pass: it sets the number of parts. Rows that are drawn
        at once do not see each other: too few parts for a low temperature overshoot.
    first, last : float
        Temperatures.
    power : float
        Of the weights w: lower ones give more to large cells.
    """

    passes: int
    draws: int
    first: float
    last: float
    power: float

    def rows_at_once(self, rows: int, levels: Levels) -> int:
        """How many rows are drawn at once; more where a draw of many levels takes long."""
        draws = self.draws * min(1.0, MANY_LEVELS / levels.size)
        return max(LEAST_ROWS, math.ceil(rows * len(levels.slices) / draws))


LEAST_ROWS = 8  # that are drawn at once
MANY_LEVELS = 300
STAGES = (Stage(2, 5_000, 0.1, 0.03, 1.0), Stage(3, 30_000, 0.03, 0.003, 0.75))


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
        """Of rows, column name -> (rows,) bins."""
        supports = self._own.supports
        codes = {name: supports[name].codes[bin_] for name, bin_ in bins.items()}
        ones = np.ones(len(next(iter(bins.values()))))
        return self._family.evaluate(codes).average(ones)

    def start(self, bins: dict[str, Codes], power: float) -> None:
        """Begin a stage, with these rows and this power of the weights."""
        self._misfit = self.counts(bins) - self._wanted
        self._weights = 1 / (self._wanted + 2) ** power
        self._own.set_coefficients(self._weights)

    def begin(self, bins: dict[str, Codes], one_hot: Single) -> Rows:
        """Begin a part of the rows."""
        self._before = self.counts(bins)
        self._cost.set_coefficients((2 * self._misfit + 1) * self._weights)
        return Rows(dict(bins), dict(bins), {}, one_hot, self._own.levels)

    def cost(self, name: str, rows: Rows) -> Single:
        """What each level of a column costs each row, (levels, rows)."""
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
    """
    names = list(levels.slices)
    places = [levels.slices[name] for name in names]
    rows = np.stack([bins[name] for name in names]).astype(np.int16)
    number = rows.shape[1]
    target = np.maximum(wanted, 0).astype(np.float32)
    misfit = _counts(levels, rows) - target
    for stage in STAGES:
        weights = np.where(used, 1 / (target + 2) ** stage.power, 0).astype(np.float32)
        size = stage.rows_at_once(number, levels)
        if others is not None:
            others.start(_by_name(levels, rows), stage.power)
        ratio = (stage.last / stage.first) ** (1 / max(stage.passes - 1, 1))
        for turn in range(stage.passes):
            rows = rows[:, rng.permutation(number)]
            temperature = stage.first * ratio**turn
            for first in range(0, number, size):
                piece = rows[:, first : first + size]
                _redraw(levels, places, piece, misfit, weights, temperature, rng, others)
    return _by_name(levels, rows)


def _by_name(levels: Levels, rows: NDArray[np.int16]) -> dict[str, Codes]:
    return {name: row.astype(np.int64) for name, row in zip(levels.slices, rows, strict=True)}


def _redraw(
    levels: Levels,
    places: list[slice],
    piece: NDArray[np.int16],
    misfit: Single,
    weights: Single,
    temperature: float,
    rng: np.random.Generator,
    others: Others | None,
) -> None:
    """Draw every column of some rows anew (eq. 12); the rows and the misfit are changed."""
    every = np.arange(piece.shape[1])
    starts = np.array([place.start for place in places])
    held = piece + starts[:, np.newaxis]  # which levels each row has, (columns, rows)
    one_hot = np.zeros((levels.size, len(every)), dtype=np.float32)
    one_hot[held, every] = 1
    names = list(levels.slices)
    state = None if others is None else others.begin(_by_name(levels, piece), one_hot)
    for j in rng.permutation(len(places)):
        place, old = places[j], piece[j]
        width, inside = place.stop - place.start, np.arange(place.start, place.stop)
        if width == 1:
            continue
        one_hot[place] = 0
        steep = (2 * misfit[place] + 1) * weights[place]
        cost = steep @ one_hot  # eq. 11
        cost += steep[:, place].diagonal()[:, np.newaxis]
        cost[old, every] -= 2 * weights[held[j], held].sum(axis=0)
        if others is not None and state is not None:
            cost += others.cost(names[j], state)
        logits = cost * np.float32(-1 / temperature)
        new = _drawn(logits, rng)
        moved = np.flatnonzero(new != old)
        if len(moved):
            change = np.zeros((width, len(moved)), dtype=np.float32)
            at = np.arange(len(moved))
            change[new[moved], at] = 1
            change[old[moved], at] -= 1
            moves = change @ one_hot[:, moved].T
            misfit[place] += moves
            misfit[:, place] += moves.T
            misfit[inside, inside] += change.sum(axis=1)
            piece[j], held[j] = new, new + place.start
            if state is not None:
                state.bins[names[j]] = new.astype(np.int64)
        one_hot[held[j], every] = 1
    if others is not None and state is not None:
        others.end(state)


def _drawn(logits: Single, rng: np.random.Generator) -> NDArray[np.int16]:
    """One level for every column of (levels, rows) log probabilities; overwritten."""
    logits -= logits.max(axis=0)
    edges = np.cumsum(np.exp(logits, out=logits), axis=0, out=logits)
    draws = rng.random(edges.shape[1], dtype=np.float32) * edges[-1]
    return np.asarray((edges[:-1] <= draws).sum(axis=0, dtype=np.int16))


def _counts(levels: Levels, rows: NDArray[np.int16]) -> Single:
    """O O' of rows, (L, L)."""
    total = np.zeros((levels.size, levels.size), dtype=np.float32)
    for first in range(0, rows.shape[1], 4096):
        part = rows[:, first : first + 4096]
        one_hot = levels.one_hot(dict(zip(levels.slices, part, strict=True)))
        total += one_hot @ one_hot.T
    return total
