"""Bounds of three-way cells of the Adult census extract, from all its two-way tables.

    python tests/benchmarks/adult_bounds.py adult.csv [--budget 1|10|1,1e-9] [--cells 150]

The table is the one of `data_sets.py`: eight columns, 28 tables with 1,582 cells, a domain of 1.8
million states. Of two samples of the cells of all 56 three-way tables, one of all cells and one of
those above .005: how many have a lower end above 0, or an upper end below the smallest of their
three pairs', and the widths. Then cells of all eight columns, of which the programs merge the
levels: rows of the table, drawn at random.
"""

import argparse
import itertools
import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
from data_sets import COLUMNS

import dpstats as dps
from dpstats.families.tables.cells import Indicator
from dpstats.schema.conditions import cell_set

COMMON = 0.005
WHOLE = 10  # cells of all columns


def cell_of(columns, levels):
    """The function of one cell of a table."""
    mask = np.zeros([c.bins for c in columns], dtype=np.bool_)
    mask[tuple(levels)] = True
    return Indicator(cell_set(tuple(columns), mask), "cell")


def cells_of(schema, frame):
    """Columns, levels and true share of every cell of every three-way table."""
    for triple in itertools.combinations(schema, 3):
        counts = np.zeros([c.bins for c in triple])
        np.add.at(counts, tuple(frame[c.name].to_numpy() for c in triple), 1)
        for levels, count in np.ndenumerate(counts):
            yield triple, levels, count / len(frame)


def timed(release, columns, levels, true):
    """Ends of a cell, whether they hold its share, and CPU seconds."""
    start = time.process_time()
    found = release.bound(cell_of(columns, levels))
    seconds = time.process_time() - start
    low, high = found.low[0], found.high[0]
    return low, high, low <= true + 1e-12 <= high + 2e-12, seconds


def of_cells(release, cells):
    """Figures of some three-way cells."""
    rows, pairs = [], []
    for triple, levels, true in cells:
        rows.append(timed(release, triple, levels, true))
        pairs.append(min(
            release.bound(cell_of([triple[i], triple[j]], [levels[i], levels[j]])).high[0]
            for i, j in itertools.combinations(range(3), 2)
        ))  # fmt: skip
    low, high, held, seconds = np.array(rows, dtype=float).T
    print(
        f"lower end above 0 {np.mean(low > 0):.3f}, upper end below the pairs' "
        f"{np.mean(high < np.array(pairs) - 1e-9):.3f}, "
        f"width median {np.median(high - low):.5f}, mean {np.mean(high - low):.5f}, smallest "
        f"upper end of a pair, median {np.median(pairs):.5f}; covered {held.mean():.3f}; "
        f"CPU s per bound: mean {seconds.mean():.3f}, most {seconds.max():.3f}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--budget", default="1")
    parser.add_argument("--cells", type=int, default=150)
    given = parser.parse_args()
    names = COLUMNS["8"]
    domain = json.loads(given.path.with_name("adult-domain.json").read_text())
    schema = dps.Schema([dps.Category(name, list(range(domain[name]))) for name in names])
    epsilon, *delta = map(float, given.budget.split(","))
    budget = dps.ApproxDP(epsilon, *delta) if delta else dps.PureDP(epsilon)
    plan = dps.plan(schema, {"pairs": dps.Marginals(names)}, budget=budget)
    frame = pd.read_csv(given.path, usecols=names)[names]
    release = dps.release(plan, frame, m=2_000, rng=1)
    rng = np.random.default_rng(0)
    every = list(cells_of(schema, frame))
    common = [cell for cell in every if cell[2] > COMMON]
    print(f"{budget}; {len(every)} three-way cells, {len(common)} of them above {COMMON}")
    for text, cells in (("all", every), (f"above {COMMON}", common)):
        print(f"{given.cells} cells of {text}:", end=" ", flush=True)
        chosen = rng.choice(len(cells), given.cells, replace=False)
        of_cells(release, [cells[i] for i in chosen])
    rows = frame.iloc[rng.integers(0, len(frame), WHOLE)].to_numpy()
    shares = [(frame == row).all(axis=1).mean() for row in rows]
    found = [timed(release, schema, row, true) for row, true in zip(rows, shares, strict=True)]
    low, high, held, seconds = np.array(found, dtype=float).T
    print(
        f"{WHOLE} cells of all {len(names)} columns, {np.prod([c.bins for c in schema]):,} states: "
        f"width median {np.median(high - low):.5f}; covered {held.mean():.3f}; "
        f"CPU s per bound: mean {seconds.mean():.3f}, most {seconds.max():.3f}"
    )


if __name__ == "__main__":
    main()
