"""Edits of rows: their number and range stay, the misfit is that of the rows, tables are met."""

import numpy as np
import pytest

import dpstats as dps
from dpstats.rows import editing
from dpstats.rows.editing import edited
from dpstats.rows.levels import Levels


def levels_of(*sizes):
    return Levels(dps.Schema([dps.Category(f"c{i}", list(range(s))) for i, s in enumerate(sizes)]))


def counts(bins, levels):
    one_hot = levels.one_hot(bins).astype(float)
    return one_hot @ one_hot.T


def test_tables_of_the_rows_become_the_wanted_ones():
    n, rng = 600, np.random.default_rng(0)
    schema = dps.Schema([
        dps.Category("a", list(range(4))), dps.Category("b", list(range(3))),
        dps.Number("c", 0, 9, points=10, missing=0),
        dps.Category("d", list(range(6))), dps.Category("e", list(range(2))),
    ])  # fmt: skip
    levels, place = Levels(schema), Levels(schema).slices
    common, own = rng.integers(60, size=n), rng.random((5, n)) < 0.4
    wanted, before = (
        {
            column.name: np.where(kept, common, rng.integers(60, size=n)) % column.bins
            for column, kept in zip(schema, which, strict=True)
        }
        for which in (~own, np.zeros_like(own))
    )
    target, used = counts(wanted, levels), np.eye(levels.size, dtype=bool)
    pairs = ["ab", "bd", "ad"]  # e is in a table of its own only
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
    assert np.abs(after - target)[place["e"], place["e"]].diagonal().max() <= 10
    pair = after[place["a"], place["e"]] / n
    assert np.abs(pair - np.outer(pair.sum(axis=1), pair.sum(axis=0))).max() < 0.05


@pytest.mark.parametrize("wanted", [np.nan, np.inf, -1e30])
def test_rows_that_are_worth_nothing_known_stay(wanted):
    rng = np.random.default_rng(0)
    rows = rng.integers(2, size=(3, 50)).astype(np.int16)
    target = np.full((6, 6), wanted, dtype=np.float32)
    with np.errstate(all="ignore"):
        found, _ = editing.resampled(levels_of(2, 2, 2), rows, target, np.ones_like(target), rng)
    assert np.array_equal(np.sort(found), np.sort(rows))


def test_few_rows_do_not_overshoot():
    """Rows that are drawn at once do not see each other."""
    n, levels, rng = 30, levels_of(*[3] * 8), np.random.default_rng(0)
    names = [f"c{i}" for i in range(8)]
    common = rng.integers(3, size=n)
    true = {c: np.where(rng.random(n) < 0.7, common, rng.integers(3, size=n)) for c in names}
    start = {c: rng.integers(3, size=n) for c in names}
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
