"""Edits of rows: their number and range stay, the misfit is that of the rows, tables are met."""

import numpy as np
import pytest

import dpstats as dps
from dpstats.families.tables.cells import Table
from dpstats.rows import editing
from dpstats.rows.editing import edited
from dpstats.rows.levels import Levels

SIZES = [4, 3, 1, 6, 2]
SCHEMA = dps.Schema([
    dps.Number(f"c{i}", 0, 9, points=10, missing=0) if size == 1
    else dps.Category(f"c{i}", list(range(size)))
    for i, size in enumerate(SIZES)
])  # fmt: skip
LEVELS = Levels(SCHEMA)
PAIRS = [("c0", "c1"), ("c1", "c3"), ("c0", "c3")]  # c4 is in a table of its own only


def used():
    """Single levels, and the cells of tables of two columns."""
    family = dps.Family(tuple(Table(tuple(SCHEMA[name] for name in pair)) for pair in PAIRS))
    cells = LEVELS.matrix(family, np.ones(family.size)) > 0
    return np.eye(LEVELS.size, dtype=bool) | cells


def dependent(n):
    rng = np.random.default_rng(1)
    group = rng.integers(3, size=n)
    bins = {}
    for i, size in enumerate(SIZES):
        edges = rng.dirichlet(np.full(size, 0.5), 3).cumsum(axis=1)[group]
        bins[f"c{i}"] = np.minimum((rng.random((n, 1)) > edges).sum(axis=1), size - 1)
    return bins


def counts(bins, levels=LEVELS):
    one_hot = levels.one_hot(bins).astype(float)
    return one_hot @ one_hot.T


def distance(bins, wanted):
    """Share of the rows that would have to move, at least, for each of the tables to fit."""
    n, own, which = len(bins["c0"]), np.abs(counts(bins) - wanted), used()
    return max(
        own[first, second].sum() / 2 / n
        for first in LEVELS.slices.values() for second in LEVELS.slices.values()
        if which[first, second].any() and first != second
    )  # fmt: skip


def test_tables_of_the_rows_become_the_wanted_ones():
    n, rng = 600, np.random.default_rng(0)
    before = {f"c{i}": rng.integers(size, size=n) for i, size in enumerate(SIZES)}
    target = counts(dependent(n))
    found = edited(LEVELS, before, target, used(), np.random.default_rng(2))
    assert distance(before, target) > 0.3
    assert distance(found, target) < 0.01
    # Columns beside all pairs get their margins, and depend on nothing.
    place = LEVELS.slices["c4"]
    assert np.abs(counts(found) - target)[place, place].diagonal().max() <= 10
    pairs = counts(found)[LEVELS.slices["c0"], place] / n
    independent = np.outer(pairs.sum(axis=1), pairs.sum(axis=0))
    assert np.abs(pairs - independent).max() < 0.05


@pytest.mark.parametrize("wanted", [np.nan, np.inf, -1e30])
def test_rows_that_are_worth_nothing_known_stay(wanted):
    rng = np.random.default_rng(0)
    rows = rng.integers(2, size=(3, 50)).astype(np.int16)
    levels = Levels(dps.Schema([dps.Boolean(name) for name in "abc"]))
    target = np.full((6, 6), wanted, dtype=np.float32)
    with np.errstate(all="ignore"):
        found, _ = editing.resampled(levels, rows, target, np.ones_like(target), rng)
    assert np.array_equal(np.sort(found), np.sort(rows))


def test_few_rows_do_not_overshoot():
    """Rows that are drawn at once do not see each other."""
    n = 30
    schema = dps.Schema([dps.Category(c, list(range(3))) for c in "abcdefgh"])
    levels = Levels(schema)
    rng = np.random.default_rng(0)
    common = rng.integers(3, size=n)
    true = {c: np.where(rng.random(n) < 0.7, common, rng.integers(3, size=n)) for c in "abcdefgh"}
    start = {c: rng.integers(3, size=n) for c in "abcdefgh"}
    wanted = counts(true, levels)
    found = counts(edited(levels, start, wanted, wanted >= 0, rng), levels)
    assert np.abs(found - wanted).mean() < 0.5


def test_a_column_that_follows_from_another_moves_with_it():
    """All rows begin in two levels of a pair of equal columns; 20 are wanted."""
    schema = dps.Schema([dps.Category(c, list(range(20))) for c in "ab"])
    levels = Levels(schema)
    rng = np.random.default_rng(0)
    own, start = rng.integers(20, size=400), rng.integers(2, size=400)
    wanted = counts({"a": own, "b": own}, levels)
    used = np.ones(wanted.shape, dtype=bool)
    found = edited(levels, {"a": start, "b": start}, wanted, used, rng)
    assert np.abs(counts(found, levels) - wanted).max() <= 5


def test_whole_rows_move_where_every_column_follows_from_another():
    """No edit of one or two columns leads from one of the six kinds of rows to another."""
    rng = np.random.default_rng(0)
    names = ("a", "b", "c", "d")
    schema = dps.Schema([dps.Category(name, list(range(6))) for name in names])
    levels = Levels(schema)
    own, start = (
        rng.choice(6, 500, p=[0.3, 0.25, 0.2, 0.1, 0.1, 0.05]),
        rng.integers(6, size=500),
    )
    wanted = counts(dict.fromkeys(names, own), levels)
    used = np.ones(wanted.shape, dtype=bool)
    found = edited(levels, dict.fromkeys(names, start), wanted, used, rng)
    assert np.abs(counts(found, levels) - wanted).max() <= 5
