"""Bounds of three-way cells of the Adult census extract, from all its two-way tables.

    python tests/benchmarks/adult_bounds.py DATA [--budget 1] [--cells 150]

The table is `adult` of `data_sets.py`. Of samples of all three-way cells and of those above .005:
how many have a lower end above 0, or an upper end below the smallest of their three pairs', and the
widths. Then cells of all eight columns, of which the programs merge the levels.
"""

import itertools
from pathlib import Path

import numpy as np
from data_sets import adult
from measuring import markdown, parsed, timed

import dpstats as dps
from dpstats.families.tables.cells import Indicator
from dpstats.schema.conditions import cell_set

COMMON, WHOLE = 0.005, 10


def bound(release, columns, levels):
    mask = np.zeros([c.bins for c in columns], dtype=np.bool_)
    mask[tuple(levels)] = True
    found = release.bound(Indicator(cell_set(tuple(columns), mask), "cell"))
    return found.low[0], found.high[0]


def cells_of(table):
    """Columns, levels and true share of every cell of every three-way table."""
    for triple in itertools.combinations(range(len(table.names)), 3):
        counts = np.zeros([table.levels[j] for j in triple])
        np.add.at(counts, tuple(table.rows[:, triple].T), 1)
        columns = [table.schema[table.names[j]] for j in triple]
        yield from ((columns, at, count / len(table.rows)) for at, count in np.ndenumerate(counts))


def of_cells(text, release, cells):
    found = []
    for columns, levels, true in cells:
        (low, high), seconds = timed(lambda at=(columns, levels): bound(release, *at))
        found.append((low, high, low <= true + 1e-12 <= high + 2e-12, seconds))
    low, high, held, seconds = np.array(found, dtype=float).T
    width = high - low
    head = ["cells", "above 0", "median width", "mean", "covered", "CPU s", "most"]
    figures = (np.mean(low > 0), np.median(width), width.mean(), held.mean(), seconds.mean())
    print(markdown(head, [[text, *figures, seconds.max()]]))
    return high


def of_pairs(release, columns, levels):
    """The smallest upper end of the three pairs of a cell."""
    pairs = itertools.combinations(zip(columns, levels, strict=True), 2)
    return min(bound(release, *zip(*pair, strict=True))[1] for pair in pairs)


def main():
    given = parsed(__doc__, {"data": Path}, budget=1.0, cells=150)
    table, rng = adult(given.data), np.random.default_rng(0)
    asked = {"pairs": dps.Marginals(table.names)}
    plan = dps.plan(table.schema, asked, budget=dps.PureDP(given.budget))
    release = dps.release(plan, table.frame, m=2_000, rng=1)
    every = list(cells_of(table))
    common = [cell for cell in every if cell[2] > COMMON]
    print(f"{plan.budget}; {len(every)} three-way cells, {len(common)} of them above {COMMON}")
    for text, cells in (("all", every), (f"above {COMMON}", common)):
        cells = [cells[i] for i in rng.choice(len(cells), given.cells, replace=False)]
        high = of_cells(text, release, cells)
        pairs = np.array([of_pairs(release, columns, levels) for columns, levels, _ in cells])
        print(f"upper end below the pairs' {np.mean(high < pairs - 1e-9):.3f}", flush=True)
    rows = table.rows[rng.integers(0, len(table.rows), WHOLE)]
    shares = (table.rows == rows[:, None]).all(axis=2).mean(axis=1)
    cells = [(tuple(table.schema), *at) for at in zip(rows, shares, strict=True)]
    of_cells("all eight columns", release, cells)


if __name__ == "__main__":
    main()
