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


def used(pairs=PAIRS):
    """Single levels, and the cells of tables of two columns."""
    tables = [Table(tuple(SCHEMA[name] for name in pair)) for pair in pairs]
    own = np.eye(LEVELS.size, dtype=bool)
    if not tables:
        return own
    family = dps.Family(tuple(tables))
    return own | (LEVELS.matrix(family, np.ones(family.size)) > 0)


def uniform(n, seed=0):
    rng = np.random.default_rng(seed)
    return {f"c{i}": rng.integers(size, size=n) for i, size in enumerate(SIZES)}


def dependent(n, seed=1):
    rng = np.random.default_rng(seed)
    group = rng.integers(3, size=n)
    bins = {}
    for i, size in enumerate(SIZES):
        edges = rng.dirichlet(np.full(size, 0.5), 3).cumsum(axis=1)[group]
        bins[f"c{i}"] = np.minimum((rng.random((n, 1)) > edges).sum(axis=1), size - 1)
    return bins


def counts(bins, levels=LEVELS):
    one_hot = levels.one_hot(bins).astype(float)
    return one_hot @ one_hot.T


def run(bins, wanted, seed=2, which=None):
    which = used() if which is None else which
    return edited(LEVELS, bins, wanted, which, np.random.default_rng(seed))


def distance(bins, wanted, which):
    """Share of the rows that would have to move, at least, for each of the tables to fit."""
    n, own = len(bins["c0"]), np.abs(counts(bins) - wanted)
    return max(
        own[first, second].sum() / 2 / n
        for first in LEVELS.slices.values() for second in LEVELS.slices.values()
        if which[first, second].any() and first != second
    )  # fmt: skip


@pytest.fixture(scope="module")
def fitted():
    before, target = uniform(5_000), counts(dependent(5_000))
    return before, target, run(before, target)


def test_tables_of_the_rows_become_the_wanted_ones(fitted):
    before, target, found = fitted
    assert distance(before, target, used()) > 0.3
    assert distance(found, target, used()) < 0.01


def test_columns_beside_all_pairs_get_their_margins(fitted):
    _, target, found = fitted
    place = LEVELS.slices["c4"]
    assert np.abs(counts(found) - target)[place, place].diagonal().max() <= 10
    pairs = counts(found)[LEVELS.slices["c0"], place] / 5_000  # and depend on nothing
    independent = np.outer(pairs.sum(axis=1), pairs.sum(axis=0))
    assert np.abs(pairs - independent).max() < 0.02


@pytest.mark.parametrize("wanted", [np.nan, np.inf, -1e30])
def test_rows_that_are_worth_nothing_known_stay(wanted):
    rng = np.random.default_rng(0)
    rows = rng.integers(2, size=(3, 50)).astype(np.int16)
    levels = Levels(dps.Schema([dps.Boolean(name) for name in "abc"]))
    target = np.full((6, 6), wanted, dtype=np.float32)
    with np.errstate(all="ignore"):
        found, _ = editing.resampled(levels, rows, target, np.ones_like(target), rng)
    assert np.array_equal(np.sort(found), np.sort(rows))


@pytest.mark.parametrize("n", [30, 100])
def test_few_rows_do_not_overshoot(n):
    """Rows that are drawn at once do not see each other."""
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
    own = rng.integers(20, size=1_000)
    one_hot = levels.one_hot({"a": own, "b": own})
    wanted = (one_hot @ one_hot.T).astype(float)
    start = rng.integers(2, size=1_000)
    used = np.ones(wanted.shape, dtype=bool)
    found = editing.edited(levels, {"a": start, "b": start}, wanted, used, rng)
    one_hot = levels.one_hot(found)
    assert np.abs(one_hot @ one_hot.T - wanted).max() <= 5


def test_whole_rows_move_where_every_column_follows_from_another():
    """No edit of one or two columns leads from one of the six kinds of rows to another."""
    rng = np.random.default_rng(0)
    names = ("a", "b", "c", "d")
    schema = dps.Schema([dps.Category(name, list(range(6))) for name in names])
    levels = Levels(schema)
    own, start = (
        rng.choice(6, 2_000, p=[0.3, 0.25, 0.2, 0.1, 0.1, 0.05]),
        rng.integers(6, size=2_000),
    )
    wanted = counts(dict.fromkeys(names, own), levels)
    used = np.ones(wanted.shape, dtype=bool)
    found = edited(levels, dict.fromkeys(names, start), wanted, used, rng)
    assert np.abs(counts(found, levels) - wanted).max() <= 5
