r"""Rows of equal weight, edited until their tables are the wanted ones.

Rows are taken in random order, some at a time, and each of their columns in turn is drawn anew.
With C the counts of the rows (see `Levels`), T those wanted and w_c = 1 / (T_c + 2), a row that is
given level l of a column has, over its cells c = (l, x_k) of tables with other columns k and the
cell (l, l) of the column itself, a weighted squared misfit that is larger by

    sum over c of w_c (2 (C_c - T_c) + 1),                                                    (1)

C without the row itself. The level is drawn with log probabilities of minus this over a temperature
that falls, and C follows every draw: the misfit of the rows themselves is the feedback, in place of
the coefficients of a model. There are always as many rows, none has a weight, and C is exact, so
that nothing can degenerate.
"""

from __future__ import annotations

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
    pieces : int
        Parts of the rows that are drawn one after the other in a pass. Rows that are drawn at once
        do not see each other: too few parts for a low temperature overshoot.
    first, last : float
        Temperatures.
    power : float
        Of the weights w: lower ones give more to large cells.
    """

    passes: int
    pieces: int
    first: float
    last: float
    power: float


STAGES = (Stage(3, 240, 0.3, 0.03, 1.0), Stage(2, 480, 0.1, 0.02, 0.75))


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
        size = max(1, -(-number // stage.pieces))
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
    """Draw every column of some rows anew by (1); the rows and the misfit are changed."""
    count = piece.shape[1]
    every = np.arange(count)
    one_hot = np.zeros((levels.size, count), dtype=np.float32)
    for j, place in enumerate(places):
        one_hot[place.start + piece[j], every] = 1
    for j in rng.permutation(len(places)):
        place, old = places[j], piece[j]
        width = place.stop - place.start
        if width == 1:
            continue
        own, inside = weights[place], np.arange(place.start, place.stop)
        steep = (2 * misfit[place] + 1) * own
        cost = steep @ one_hot
        # The block of a column with itself has only its diagonal: a row's own level, old or new.
        alone = steep[:, place].diagonal()
        cost += alone[:, np.newaxis]
        cost[old, every] -= 2 * (own @ one_hot)[old, every]
        logits = cost * np.float32(-1 / temperature)
        new = _drawn(logits, rng)
        moved = np.flatnonzero(new != old)
        if len(moved) == 0:
            continue
        change = np.zeros((width, len(moved)), dtype=np.float32)
        at = np.arange(len(moved))
        change[new[moved], at] = 1
        change[old[moved], at] -= 1
        moves = change @ one_hot[:, moved].T
        moves[:, place] = 0
        misfit[place] += moves
        misfit[:, place] += moves.T
        misfit[inside, inside] += change.sum(axis=1)
        one_hot[place] = new == np.arange(width)[:, np.newaxis]
        piece[j] = new


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
