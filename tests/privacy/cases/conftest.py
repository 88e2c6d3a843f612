"""A guard on the loss of whole plans, exact over all neighbouring tables of one row.

A source in place of the noise marks every draw, so that the scale on every sum is the one that
reached the source; the loss between two tables is then exact: the sum over functions of
abs(S_f - S'_f) / scale_f, in rationals, at most epsilon.
"""

import itertools
import os
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.privacy import noise

CELLS = {
    "c": ["a", "b", None],
    "b": [False, True],
    "d": [False, True],
    "x": [-1.0, -0.5, 0.0, 0.5, 1.0],
    "y": [0.0, 1.0, 2.0],
    "z": [17.5, 22.0, 27.0],
}
TYPES = {"c": pa.string(), "b": pa.bool_(), "d": pa.bool_()}

CALL, COORDINATE, HALF = 2**42, 2**28, 2**27


class Marked:
    """Noise that tells which call and which coordinate it came from; sums are below 2^27."""

    def __init__(self):
        self.scales = []

    def __call__(self, scale, size):
        self.scales.append(scale)
        return len(self.scales) * CALL + np.arange(size) * COORDINATE


def sums_and_scales(plan, table):
    """Sums of all functions, and the scale of the noise that was really drawn for each."""
    source = Marked()
    with noise._noise_from(source):
        measured = dps.measure(plan, table)
    others = [*measured.scores, *measured.of_persons, measured.reference, measured.count]
    others = [block for block in others if block is not None]
    blocks = [*measured.measured, *others]
    marked = np.concatenate([block.sums for block in blocks])
    sums = (marked + HALF) % COORDINATE - HALF
    marks = marked - sums
    calls = marks // CALL
    assert calls.min() >= 1, "a sum without noise"
    assert len(np.unique(marks)) == len(marks), "noise shared by two sums"
    return sums, [Fraction(source.scales[call - 1]) for call in calls]


AGAIN = 4  # tables measured anew under another budget: sums do not depend on it


def largest_loss(plan, known_sums):
    """Largest privacy loss over all tables of one row of the columns in use, exactly.

    Where the plan knows persons: of one person, with as many rows as one may have. Between all
    pairs of them where neighbours replace a row, else between each and the empty one. Laplace
    noise: sum of changes over scales. Gaussian: rho, the sum of their squares over two.
    """
    gaussian = plan.budget.noise == "gaussian"
    names = plan.columns.names
    replaced = plan.unit == "replace"
    every, k = list(itertools.product(*map(CELLS.get, names))), 1
    if plan.person is not None:
        k = plan.rows_per_person
    persons = itertools.combinations_with_replacement(range(len(every)), k)
    tables = [tuple(zip(*(every[i] for i in rows), strict=True)) for rows in persons]
    if not replaced:
        tables.insert(0, ((),) * len(names))
    asked = (tuple(planned.block for planned in plan.strategy.blocks), names, k)
    known = known_sums.get(asked)
    results = []
    for cells in tables if known is None else tables[-AGAIN:]:
        columns = zip(names, cells, strict=True)
        arrays = {n: pa.array(held, TYPES.get(n, pa.float64())) for n, held in columns}
        if plan.person is not None:
            arrays[plan.person] = pa.array(["one person"] * len(cells[0]))
        results.append(sums_and_scales(plan, pa.table(arrays)))
    scales = results[0][1]
    assert all(other == scales for _, other in results), "the noise depends on the data"
    sums = np.stack([total for total, _ in results])
    if known is not None:
        assert np.array_equal(sums, known[-AGAIN:]), "the sums depend on the budget"
        sums = known
    known_sums[asked] = sums
    distinct = sorted(set(scales))
    groups = [np.flatnonzero([s == scale for s in scales]) for scale in distinct]
    largest = Fraction(0)
    for i in range(len(sums) if replaced else 1):
        moved = np.abs(sums[i + 1 :] - sums[i]) ** (2 if gaussian else 1)
        per_scale = np.stack([moved[:, group].sum(axis=1) for group in groups], axis=1)
        for changes in {tuple(change) for change in per_scale.tolist()}:
            costs = [2 * s**2 if gaussian else s for s in distinct]
            loss = sum((c / s for c, s in zip(changes, costs, strict=True)), Fraction(0))
            largest = max(largest, loss)
    return largest


class Guard:
    """Asserts that no row costs more than a plan's budget; the share of it that one row costs.

    Attributes
    ----------
    sums : dict
        Of every table, by blocks; to be cleared where a test plants other sums.
    """

    def __init__(self):
        self.sums = {}

    def largest_loss(self, plan):
        return largest_loss(plan, self.sums)

    def __call__(self, plan):
        loss = self.largest_loss(plan)
        assert loss <= plan.budget.total, "a row costs more than the budget"
        return loss / plan.budget.total


KEPT = Guard()


@pytest.fixture
def guard(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 1)  # tables of a row, thousands of them
    return KEPT
