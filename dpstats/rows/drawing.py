"""Synthetic rows drawn from weighted candidates."""

from __future__ import annotations

from typing import Literal

import numpy as np

from dpstats.arrays import Codes, Floats
from dpstats.families.block import FamilyValues

Draw = Literal["systematic", "iid"]
MAX_ROUNDS = 400
MOST_PRODUCTS = 10**9  # points times blocks times rounds: a few seconds


def draw_counts(
    weights: Floats, k: int, draw: Draw, values: FamilyValues, rng: np.random.Generator
) -> Codes:
    """How many of k rows each candidate gets, (m,) int64.

    Parameters
    ----------
    weights : (m,) float64
        Of candidates in lexicographic order, summing to one.
    k : int
    draw : {"systematic", "iid"}
        Independent draws (BL24, Algorithm 1, step 4), or one random start and equal steps along
        the sorted candidates (each count is then within one of k times its weight), followed by
        exchanges of rows that bring the means of the family closer to those of the weights.
    values : FamilyValues
        The family at the candidates, for the exchanges.
    rng : numpy Generator
    """
    weights = weights / weights.sum()
    if draw == "iid":
        return rng.multinomial(k, weights).astype(np.int64)
    return _exchanged(systematic(weights, k, rng), weights, values)


def random_order(counts: Codes, seed: int) -> Codes:
    """Which candidate each row is a copy of, (k,) int64, the rows in random order.

    Sorted rows would break whatever splits rows into parts by their place. The order is that of
    raw numbers of the generator, which numpy keeps the same in all its versions.

    Parameters
    ----------
    counts : (m,) int64
        How many rows are copies of each candidate.
    seed : int
    """
    which = np.repeat(np.arange(len(counts)), counts)
    return which[np.argsort(np.random.PCG64(seed).random_raw(len(which)), kind="stable")]


def systematic(weights: Floats, k: int, rng: np.random.Generator) -> Codes:
    """Counts (m,) int64 with sum k: equal steps along the weights (m,) from one random start."""
    edges = np.floor(k * np.cumsum(weights / weights.sum()) + rng.random())
    edges[-1] = k  # the last sum is one up to rounding
    return np.diff(np.minimum(edges, k), prepend=0).astype(np.int64)


def _exchanged(counts: Codes, weights: Floats, values: FamilyValues) -> Codes:
    """Move rows from candidates that overshoot the weighted means to ones that undershoot.

    With R the misfit of the counts, moving one row from i to j changes |R|^2 by about
    2 (v_j - v_i) / k, v = A'R: take the steepest moves many at a time, and halve their number
    whenever the misfit would rise. Rows only go to candidates with a weight worth a fiftieth row.
    """
    k = int(counts.sum())
    if np.abs(counts - k * weights).max() < 1e-6:  # they are the candidates themselves
        return counts
    rounds = min(MAX_ROUNDS, max(1, MOST_PRODUCTS // (len(weights) * len(values.parts))))
    target = values.average(weights)
    pool = np.flatnonzero(k * weights >= min(0.02, k * weights.max()))
    moves = max(1, k // 64)
    misfit = values.average(counts / k) - target
    for _ in range(rounds):
        steepness = values.combine(misfit)
        held = np.flatnonzero(counts)
        moves = min(moves, len(pool), len(held))
        away = held[np.argpartition(-steepness[held], moves - 1)[:moves]]
        towards = pool[np.argpartition(steepness[pool], moves - 1)[:moves]]
        trial = counts.copy()
        trial[away] -= 1
        trial[towards] += 1
        following = values.average(trial / k) - target
        if following @ following < misfit @ misfit:
            counts, misfit = trial, following
        elif moves == 1:
            break
        else:
            moves //= 2
    return counts
