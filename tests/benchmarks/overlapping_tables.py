"""Noise of overlapping tables under every choice of weights, against the optimum.

    python tests/benchmarks/overlapping_tables.py [--quick] [--only tables mixed]

Prints, for the columns of Adult at zCDP rho .014973 and at epsilon 1: the root mean squared error
of a published cell and the largest standard deviation of one, in counts, as the plan's own answers
have them, and the CPU seconds of planning (the longest of the four). Under "cells" with rho the
optimum is beside it: adding or removing a row in closed form (ResidualPlanner; Xiao, He, Zhang &
Kifer 2023), replacing one the dual value of the same convex program, which no plan can pass. All
469 tables of one to three columns have 21 million cells: they are planned, their errors follow by
formula. `--quick` leaves the fourteen columns out.

"mixed": the pairs of eight columns beside conditions, a covariance or a regression, replacing a
row. A plan divides the budget between tables and the rest by its `allocation`. Searched is the
share of the tables that makes the sum of all noise variances least, in natural units, a function
of a block of d weighted by d^-1/2 ("balanced") or by one ("cells"); what only calibrates intervals
does not count. Printed are the plan's share and the best one, the sum over its least value, and the
standard deviations of both parts over those at the best share.
"""

import argparse
import time
from dataclasses import replace
from fractions import Fraction

import numpy as np
from scipy import optimize

import dpstats as dps
from dpstats.families.tables.cells import Table, tables_of_degree
from dpstats.families.tables.residuals import Residual
from dpstats.measured.answers import answer
from dpstats.measured.measurements import Measurements
from dpstats.planning.table_split import TableSplit

EIGHT = (9, 16, 7, 15, 6, 5, 2, 2)
FOURTEEN = (85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2)
RHO = 0.014973
ROWS = 48_842
WEIGHTS = ("equal", "balanced", "cells", "max")
NUMBERS = ["x0", "x1", "x2", "x3", "y"]
OTHERS = {
    "5 conditions": {
        str(i): dps.Proportion(f"c{i} == 0 and c{i + 1} == 1 and c{i + 2} == 1") for i in range(5)
    },
    "a covariance of 5": {"covariance": dps.Covariance(NUMBERS)},
    "OLS on 4 regressors": {"line": dps.OLS("y ~ x0 + x1 + x2 + x3")},
}


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
    answers = answers_of(plan.strategy, plan.published)
    table = np.array([law.variance for law in answers.law_table])[answers.law_of]
    return np.sqrt(table.mean()), np.sqrt(table.max()), seconds


def answers_of(strategy, published):
    """Answers without rows: the laws of their noise."""
    size = sum(block.block.size for block in strategy.blocks)
    measured = Measurements(strategy, np.zeros(size), np.zeros(size), not_private=True)
    return answer(measured, published)


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


def beside_others(name, more, budget, allocation, weights):
    """Print how near the share of the tables is to the best one."""
    numbers = [dps.Number(x, -1, 1, points=65, missing=0) for x in NUMBERS]
    pairs = dps.Marginals([c.name for c in schema_of(EIGHT)])
    plan = dps.plan(dps.Schema([*schema_of(EIGHT), *numbers]), {"pairs": pairs, **more},
                    budget=budget, n=ROWS, allocation=allocation, weights=weights)  # fmt: skip
    strategy = plan.strategy
    of_tables = [isinstance(one.block, Table | Residual) for one in strategy.blocks]
    costs = [one.block.cost(budget, strategy.neighbours, one.multiplier) for one in strategy.blocks]
    rest = sum(cost for cost, table in zip(costs, of_tables, strict=True) if not table)
    own = 1 - float(rest / budget.total)

    def parts(share):
        """Weighted noise variances of tables and of the rest."""
        factors = [own / share if table else (1 - own) / (1 - share) for table in of_tables]
        blocks = tuple(replace(one, multiplier=one.multiplier * Fraction(factor))
                       for one, factor in zip(strategy.blocks, factors, strict=True))  # fmt: skip
        answers = answers_of(replace(strategy, blocks=blocks), plan.published)
        found, first = np.zeros(2), 0
        for block in plan.published.blocks:
            variances = answers.noise_variances[first : first + block.size]
            first += block.size
            if not block.calibrates:
                weight = block.size**-0.5 if weights == "balanced" else 1
                found[0 if isinstance(block, Table) else 1] += weight * variances.sum()
        return found

    best = optimize.minimize_scalar(
        lambda share: parts(share).sum(), bounds=(0.02, 0.98), method="bounded"
    )
    now = parts(own)
    sd = np.sqrt(now / parts(best.x))
    print(f"{name:<22}{'rho' if budget.noise == 'gaussian' else 'epsilon':<9}{allocation:<9}"
          f"{weights:<10}{own:>8.3f}{best.x:>8.3f}{now.sum() / best.fun:>9.3f}"
          f"{sd[0]:>9.2f}{sd[1]:>9.2f}", flush=True)  # fmt: skip


def mixed():
    """Print the table of plans with other blocks."""
    print(f"{'pairs of 8 and':<22}{'budget':<9}{'plan':<19}{'share':>8}{'best':>8}{'sum':>9}"
          f"{'tables':>9}{'rest':>9}")  # fmt: skip
    for name, more in OTHERS.items():
        for budget in (dps.ZCDP(RHO), dps.PureDP(1)):
            beside_others(name, more, budget, "equal", "balanced")
            beside_others(name, more, budget, "optimal", "balanced")
            beside_others(name, more, budget, "optimal", "cells")


def tables(quick):
    """Print the table of tables alone."""
    print(f"{'tables':<22}{'neighbours':<12}{'budget':<9}"
          + "".join(f"{w:>20}" for w in WEIGHTS) + f"{'optimum':>9}{'planning':>10}")  # fmt: skip
    for name, levels in (("8 columns, pairs", EIGHT), ("14 columns, pairs", FOURTEEN)):
        for unit in ("add_remove", "replace"):
            pairs = tables_of_degree(schema_of(levels), schema_of(levels).names, 2)
            best = optimum(TableSplit(pairs, unit, "cells"))
            for budget in (dps.ZCDP(RHO), dps.PureDP(1)):
                found = [planned(levels, unit, budget, w) for w in WEIGHTS]
                row(name, unit, budget, found, best if budget.noise == "gaussian" else None)
        if quick:
            return
    schema, degrees = schema_of(FOURTEEN), (1, 2, 3)
    every = [t for d in degrees for t in tables_of_degree(schema, schema.names, d)]
    asked = {str(degree): dps.Marginals(schema.names, degree=degree) for degree in degrees}
    for unit in ("add_remove", "replace"):
        found = []
        for weights in WEIGHTS:
            start = time.process_time()
            plan = dps.plan(schema, asked, budget=dps.ZCDP(RHO), unit=unit, weights=weights,
                            n=ROWS if unit == "replace" else None)  # fmt: skip
            seconds = time.process_time() - start
            assert len(plan.published.blocks) == len(every)
            found.append((*by_formula(TableSplit(every, unit, weights), weights), seconds))
        best = optimum(TableSplit(every, unit, "cells"))
        row("14 columns, up to 3", unit, dps.ZCDP(RHO), found, best)


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=["tables", "mixed"])
    given = parser.parse_args()
    if given.only is None or "tables" in given.only:
        tables(given.quick)
    if given.only is None or "mixed" in given.only:
        mixed()


def row(name, unit, budget, found, best):
    """Print one line."""
    texts = "".join(f"{f'{rms:.2f}; {worst:.1f}':>20}" for rms, worst, _ in found)
    print(f"{name:<22}{unit:<12}{'rho' if budget.noise == 'gaussian' else 'epsilon':<9}{texts}"
          f"{'' if best is None else f'{best:.2f}':>9}"
          f"{max(s for *_, s in found):>8.2f} s", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
