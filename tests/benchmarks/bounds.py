"""Bounds of three-way cells of the Adult census extract, from all its two-way tables.

    python tests/benchmarks/bounds.py adult.csv [--budget 1|10|1,1e-9] [--cells 300]

The table is the one of `adult.py`: eight columns, 28 tables with 1,582 cells, a domain of 1.8
million states. Of a sample of the cells of all 56 three-way tables: how many have a lower end above
0, or an upper end below the smallest of their three pairs', and the widths.
"""

import argparse
import itertools
import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
from adult import COLUMNS, budget_of

import dpstats as dps
from dpstats.families.conditions import cell_set
from dpstats.families.tables.cells import Indicator


def cell_of(columns, levels):
    """The function of one cell of a table."""
    mask = np.zeros([c.bins for c in columns], dtype=np.bool_)
    mask[tuple(levels)] = True
    return Indicator(cell_set(tuple(columns), mask), "cell")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--budget", default="1")
    parser.add_argument("--cells", type=int, default=300)
    given = parser.parse_args()
    names = COLUMNS["8"]
    domain = json.loads(given.path.with_name("adult-domain.json").read_text())
    schema = dps.Schema([dps.Category(name, list(range(domain[name]))) for name in names])
    budget = budget_of(given.budget)
    plan = dps.plan(schema, {"pairs": dps.Marginals(names)}, budget=budget)
    frame = pd.read_csv(given.path, usecols=names)
    release = dps.release(plan, frame, m=2_000, rng=1)
    rng = np.random.default_rng(0)
    triples = list(itertools.combinations(schema, 3))
    sizes = np.array([np.prod([c.bins for c in triple]) for triple in triples])
    rows = []
    for number in rng.choice(len(triples), given.cells, p=sizes / sizes.sum()):
        triple = triples[number]
        levels = [int(rng.integers(c.bins)) for c in triple]
        start = time.process_time()
        found = release.bound(cell_of(triple, levels))
        seconds = time.process_time() - start
        pairs = [
            release.bound(cell_of([triple[i], triple[j]], [levels[i], levels[j]])).high[0]
            for i, j in itertools.combinations(range(3), 2)
        ]
        true = np.all([frame[c.name] == k for c, k in zip(triple, levels, strict=True)], axis=0)
        rows.append((found.low[0], found.high[0], min(pairs), true.mean(), seconds))
    low, high, pair, true, seconds = np.array(rows).T
    common = true > 0.005
    print(f"{budget}; {given.cells} of {sizes.sum()} cells, {common.sum()} of them above .005")
    for text, which in (("all", np.ones(len(low), dtype=bool)), ("above .005", common)):
        width = (high - low)[which]
        print(
            f"{text}: lower end above 0 {np.mean(low[which] > 0):.3f}, upper end below the pairs' "
            f"{np.mean(high[which] < pair[which] - 1e-9):.3f}, "
            f"width median {np.median(width):.5f}, "
            f"mean {width.mean():.5f}, against the smallest pair's upper end "
            f"{np.median(pair[which]):.5f}"
        )
    inside = (low <= true + 1e-12) & (true <= high + 1e-12)
    print(f"covered {inside.mean():.3f}; CPU s per bound: mean {seconds.mean():.3f}, "
          f"most {seconds.max():.3f}")  # fmt: skip


if __name__ == "__main__":
    main()
