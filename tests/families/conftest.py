"""Brute force over pairs of coded rows, shared by the tests of the blocks."""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from dpstats.privacy.neighbours import Sensitivity


def every_row(columns):
    """All rows that a schema can code, column name -> (m,) codes."""
    grids = [range(c.code_range[0], c.code_range[1] + 1) for c in columns]
    rows = np.array(list(itertools.product(*grids)), dtype=np.int64)
    return {c.name: rows[:, i] for i, c in enumerate(columns)}


def largest_change(block, before, after=None) -> Sensitivity:
    """Largest L1 and squared L2 change of the sums, exactly, in units of f = g / B.

    Rows `before` are replaced by every row of `after` (all pairs), or dropped if `after` is None.
    """
    bounds = block.bounds
    common = math.lcm(*map(int, bounds))
    unit = (common // bounds)[:, None]  # integers: values in units of 1 / common

    def values(codes):
        return np.rint(block.evaluate(codes).matrix().toarray()).astype(np.int64) * unit

    old = values(before)
    new = np.zeros((len(old), 1), np.int64) if after is None else values(after)
    l1 = l2 = 0
    for column in new.T:
        change = abs(old - column[:, None])
        l1 = max(l1, int(change.sum(axis=0).max()))
        l2 = max(l2, int((change**2).sum(axis=0).max()))
    return Sensitivity(Fraction(l1, common), Fraction(l2, common**2))


@pytest.fixture(scope="session")
def rows_of() -> Callable:
    return every_row


@pytest.fixture(scope="session")
def change_of() -> Callable:
    return largest_change
