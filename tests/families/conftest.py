"""Brute force over pairs of coded rows, shared by the tests of the blocks."""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from dpstats.families.contrasts import UNIT
from dpstats.privacy.neighbours import Sensitivity


def every_row(columns, units=None):
    """All rows that a schema can code, column name -> (m,) codes, each in all of some units."""
    grids = {c.name: range(c.code_range[0], c.code_range[1] + 1) for c in columns}
    grids |= {} if units is None else {UNIT: units}
    rows = np.array(list(itertools.product(*grids.values())), dtype=np.int64)
    return {name: rows[:, i] for i, name in enumerate(grids)}


def values_of(block, codes):
    """Distinct values (d, m) at rows, in units of a common denominator of f = g / B, and that."""
    bounds = block.bounds
    common = math.lcm(*map(int, bounds))
    values = np.rint(block.evaluate(codes).matrix().toarray()).astype(np.int64)
    return np.unique(values * (common // bounds)[:, None], axis=1), common


def farthest_pair(old, new, power):
    """Places of the two columns of arrays (d, m) that are farthest apart.

    Compared in floats, in which sums of integers below 2^53 are exact.
    """
    metric, best, place = ("cityblock", "sqeuclidean")[power - 1], -1.0, (0, 0)
    for at in range(0, old.shape[1], 500):
        apart = cdist(old[:, at : at + 500].T.astype(float), new.T.astype(float), metric)
        i, j = np.unravel_index(int(apart.argmax()), apart.shape)
        if apart[i, j] > best:
            best, place = apart[i, j], (at + i, j)
    return place


def farthest(old, new, common) -> Sensitivity:
    """Largest L1 and squared L2 distance between columns of two arrays (d, m), in integers."""
    norms = []
    for power in (1, 2):
        i, j = farthest_pair(old, new, power)
        moved = [abs(a - b) for a, b in zip(old[:, i].tolist(), new[:, j].tolist(), strict=True)]
        norms.append(Fraction(sum(m**power for m in moved), common**power))
    return Sensitivity(*norms)


def largest_change(block, before, after=None) -> Sensitivity:
    """Largest L1 and squared L2 change of the sums, exactly, in units of f = g / B.

    Rows `before` are replaced by every row of `after` (all pairs), or dropped if `after` is None.
    """
    old, common = values_of(block, before)
    if after is None:
        new = np.zeros((len(old), 1), np.int64)
    else:
        new = old if after is before else values_of(block, after)[0]
    return farthest(old, new, common)


def weighted_change(block, rows, unit, most, k, rng) -> Sensitivity:
    """The same for k rows of a person, each with any weight of 0, 1, .., `most`.

    Of many different rows a few are tried, those that are farthest from each other among them.
    """
    values, common = values_of(block, rows)
    if values.shape[1] > 300:
        values = rng.choice(values, 300, axis=1, replace=False)
    weighted = np.concatenate([weight * values for weight in range(most + 1)], axis=1)
    old = np.unique(weighted, axis=1)
    new = old if unit == "replace" else np.zeros((len(old), 1), np.int64)
    if k == 1:
        return farthest(old, new, common)
    ends = [farthest_pair(old, new, power) for power in (1, 2)]
    some = rng.choice(old.shape[1], 4)
    old = old[:, [*some, *(i for i, _ in ends)]]
    new = new[:, [*some, *(j for _, j in ends)]] if unit == "replace" else new
    sums = []
    for side in (old, new):
        own = itertools.combinations_with_replacement(range(side.shape[1]), k)
        sums.append(side[:, list(own)].sum(axis=2))
    return farthest(*sums, common)


@pytest.fixture(scope="session")
def rows_of() -> Callable:
    return every_row


@pytest.fixture(scope="session")
def change_of() -> Callable:
    return largest_change


@pytest.fixture(scope="session")
def weighted_change_of() -> Callable:
    return weighted_change
