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
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes, Floats
from dpstats.references.levels import Levels, Single


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


def edited(
    levels: Levels,
    bins: dict[str, Codes],
    wanted: Floats,
    used: NDArray[np.bool_],
    rng: np.random.Generator,
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
        ratio = (stage.last / stage.first) ** (1 / max(stage.passes - 1, 1))
        for turn in range(stage.passes):
            rows = rows[:, rng.permutation(number)]
            temperature = stage.first * ratio**turn
            for first in range(0, number, size):
                piece = rows[:, first : first + size]
                _redraw(levels, places, piece, misfit, weights, temperature, rng)
    return {name: rows[j].astype(np.int64) for j, name in enumerate(names)}


def _redraw(
    levels: Levels,
    places: list[slice],
    piece: NDArray[np.int16],
    misfit: Single,
    weights: Single,
    temperature: float,
    rng: np.random.Generator,
) -> None:
    """Draw every column of some rows anew (eq. 12); the rows and the misfit are changed."""
    every = np.arange(piece.shape[1])
    starts = np.array([place.start for place in places])
    held = piece + starts[:, np.newaxis]  # which levels each row has, (columns, rows)
    one_hot = np.zeros((levels.size, len(every)), dtype=np.float32)
    one_hot[held, every] = 1
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
        one_hot[held[j], every] = 1


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
