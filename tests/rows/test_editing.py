"""Edits of rows: their number and range stay, the misfit is that of the rows, tables are met."""

import numpy as np
import pytest

import dpstats as dps
from dpstats.rows import editing
from dpstats.rows.editing import edited
from dpstats.rows.levels import Levels


def levels_of(*sizes):
    return Levels(dps.Schema([
        dps.Category(f"c{i}", list(range(size))) if size > 1
        else dps.Number(f"c{i}", 0, 9, points=10, missing=0)
        for i, size in enumerate(sizes)
    ]))  # fmt: skip


def counts(bins, levels):
    one_hot = levels.one_hot(bins).astype(float)
    return one_hot @ one_hot.T


def mixed(rng, levels, n, share):
    """Bins of columns that follow a common one in such a share of n rows."""
    common = rng.integers(60, size=n)
    return {
        name: np.where(rng.random(n) < share, common, rng.integers(60, size=n))
        % (place.stop - place.start)
        for name, place in levels.slices.items()
    }


def test_tables_of_the_rows_become_the_wanted_ones():
    n, rng, levels = 600, np.random.default_rng(0), levels_of(4, 3, 1, 6, 2)
    place = levels.slices
    target, before = counts(mixed(rng, levels, n, 0.6), levels), mixed(rng, levels, n, 0)
    used = np.eye(levels.size, dtype=bool)
    pairs = [("c0", "c1"), ("c1", "c3"), ("c0", "c3")]  # c4 is in a table of its own only
    for one, other in (*pairs, *(pair[::-1] for pair in pairs)):
        used[place[one], place[other]] = True

    def distance(bins):
        """Share of the rows that would have to move, at least, for each of the tables to fit."""
        off = np.abs(counts(bins, levels) - target) / 2 / n
        return max(off[place[one], place[other]].sum() for one, other in pairs)

    found = edited(levels, before, target, used, np.random.default_rng(2))
    assert distance(before) > 0.2
    assert distance(found) < 0.01
    # Columns beside all pairs get their margins, and depend on nothing.
    after = counts(found, levels)
    assert np.abs(after - target)[place["c4"], place["c4"]].diagonal().max() <= 10
    pair = after[place["c0"], place["c4"]] / n
    assert np.abs(pair - np.outer(pair.sum(axis=1), pair.sum(axis=0))).max() < 0.05


def test_rows_that_are_worth_nothing_known_stay():
    rng = np.random.default_rng(0)
    levels, rows = levels_of(2, 2, 2), rng.integers(2, size=(3, 50)).astype(np.int16)
    even = np.ones((6, 6), dtype=np.float32)
    for wanted in (np.nan, np.inf, -1e30):
        target = np.full((6, 6), wanted, dtype=np.float32)
        with np.errstate(all="ignore"):
            found, _ = editing.resampled(levels, rows, target, even, rng)
        assert np.array_equal(np.sort(found), np.sort(rows))


def test_few_rows_do_not_overshoot():
    """Rows that are drawn at once do not see each other."""
    rng, levels = np.random.default_rng(0), levels_of(*[3] * 8)
    true, start = mixed(rng, levels, 30, 0.7), mixed(rng, levels, 30, 0)
    wanted = counts(true, levels)
    found = counts(edited(levels, start, wanted, wanted >= 0, rng), levels)
    assert np.abs(found - wanted).mean() < 0.5


@pytest.mark.parametrize(("columns", "chances", "start"), [
    (2, np.full(20, 0.05), 2), (4, [0.3, 0.25, 0.2, 0.1, 0.1, 0.05], 6),
])  # fmt: skip
def test_columns_that_follow_from_each_other_move_together(columns, chances, start):
    """No edit of one or two columns leads from one kind of rows to another; all begin in few."""
    rng, names = np.random.default_rng(0), [f"c{i}" for i in range(columns)]
    levels = levels_of(*[len(chances)] * columns)
    own, before = rng.choice(len(chances), 400, p=chances), rng.integers(start, size=400)
    wanted = counts(dict.fromkeys(names, own), levels)
    used = np.ones(wanted.shape, dtype=bool)
    found = edited(levels, dict.fromkeys(names, before), wanted, used, rng)
    assert np.abs(counts(found, levels) - wanted).max() <= 5
