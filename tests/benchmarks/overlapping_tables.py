"""Noise of overlapping tables under every choice of weights, against the optimum.

    python tests/benchmarks/overlapping_tables.py [--quick]

Prints, for the columns of Adult at zCDP rho .014973 and at epsilon 1: the root mean squared error
of a published cell and the largest standard deviation of one, in counts, as the plan's own answers
have them, and the CPU seconds of planning. Under "cells" with rho the optimum is beside it: adding
or removing a row in closed form (ResidualPlanner; Xiao, He, Zhang & Kifer 2023), replacing one the
dual value of the same convex program, which no plan can pass. `--quick` leaves the fourteen out.
"""

import argparse
import time

import numpy as np

import dpstats as dps
from dpstats.families.tables.cells import tables_of_degree
from dpstats.measured.answers import answer
from dpstats.measured.measurements import Measurements
from dpstats.planning.table_split import TableSplit

EIGHT = (9, 16, 7, 15, 6, 5, 2, 2)
FOURTEEN = (85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2)
RHO = 0.014973
ROWS = 48_842
WEIGHTS = ("equal", "balanced", "cells", "max")


def schema_of(levels):
    """Categories c0, c1, .. with so many levels."""
    return dps.Schema([dps.Category(f"c{i}", list(range(n))) for i, n in enumerate(levels)])


def planned(levels, unit, budget, weights):
    """(rms, largest sd) of the cells of all pairs in counts, and CPU seconds of planning."""
    schema = schema_of(levels)
    start = time.process_time()
    plan = dps.plan(
        schema, {"pairs": dps.Marginals(schema.names)}, budget=budget, unit=unit, weights=weights,
        n=ROWS if unit == "replace" else None,
    )  # fmt: skip
    seconds = time.process_time() - start
    size = sum(block.block.size for block in plan.strategy.blocks)
    measured = Measurements(plan.strategy, np.zeros(size), np.zeros(size), not_private=True)
    answers = answer(measured, plan.published)
    table = np.array([law.variance for law in answers.law_table])[answers.law_of]
    return np.sqrt(table.mean()), np.sqrt(table.max()), seconds


def optimum(split):
    """Least rms at `RHO` by the dual of the convex program: no noise on residuals passes it.

    For prices q of the changes C that add up to one, r with C r <= 1 has
    sum w_A / r_A >= (sum sqrt(w_A (q C)_A))^2, w_A = b_A c_A / 2.
    """
    wanted = split.shrinkage * np.asarray(np.ones(len(split.tables)) @ split.spread) / 2
    prices = np.full(len(split.changes), 1 / len(split.changes))
    best, reached = 0.0, np.inf
    while reached > 1.0002 * best:
        own = prices @ split.changes
        least = np.sum(np.sqrt(wanted * own))
        best = max(best, least**2)
        spent = np.sqrt(wanted / own) / least  # the best r for these prices
        cost = split.changes @ spent
        reached = min(reached, cost.max() * np.sum(wanted / spent))
        prices *= cost
        prices /= prices.sum()
    return np.sqrt(best / RHO / split.cells.sum())


def by_formula(split, weights):
    """(rms, largest sd) of the cells at `RHO`."""
    if weights == "equal":
        shares = np.full(split.seen.shape[1], 1 / split.seen.shape[1])
        own = 1 / (split.seen @ shares)  # in tables of share e at rho = 1, replacing a row
        variances = own * (1.0 if split.unit == "replace" else 0.5)
    else:
        variances = split.shrinkage / (2 * split.precisions)
    found = split.spread @ variances / RHO
    return np.sqrt(found.sum() / split.cells.sum()), np.sqrt(np.max(found / split.cells))


def main():
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    print(f"{'tables':<22}{'neighbours':<12}{'budget':<9}"
          + "".join(f"{w:>20}" for w in WEIGHTS) + f"{'optimum':>9}{'planning':>10}")  # fmt: skip
    for name, levels in (("8 columns, pairs", EIGHT), ("14 columns, pairs", FOURTEEN)):
        for unit in ("add_remove", "replace"):
            tables = tables_of_degree(schema_of(levels), schema_of(levels).names, 2)
            best = optimum(TableSplit(tables, unit, "cells"))
            for budget in (dps.ZCDP(RHO), dps.PureDP(1)):
                found = [planned(levels, unit, budget, w) for w in WEIGHTS]
                row(name, unit, budget, found, best if budget.noise == "gaussian" else None)
        if quick:
            return
    schema = schema_of(FOURTEEN)
    tables = [t for d in (1, 2, 3) for t in tables_of_degree(schema, schema.names, d)]
    for unit in ("add_remove", "replace"):
        found = []
        for weights in WEIGHTS:
            start = time.process_time()
            found.append((*by_formula(TableSplit(tables, unit, weights), weights),
                          time.process_time() - start))  # fmt: skip
        best = optimum(TableSplit(tables, unit, "cells"))
        row("14 columns, up to 3", unit, dps.ZCDP(RHO), found, best)


def row(name, unit, budget, found, best):
    """Print one line."""
    texts = "".join(f"{f'{rms:.2f}; {worst:.1f}':>20}" for rms, worst, _ in found)
    print(f"{name:<22}{unit:<12}{'rho' if budget.noise == 'gaussian' else 'epsilon':<9}{texts}"
          f"{'' if best is None else f'{best:.2f}':>9}"
          f"{max(s for *_, s in found):>8.2f} s", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
