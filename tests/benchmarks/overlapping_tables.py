"""Noise of overlapping tables under every choice of weights, against the optimum.

    python tests/benchmarks/overlapping_tables.py [--quick] [--only tables mixed]

The tables of docs/explanation/inference/overlapping-tables.md. The optimum for "cells" with rho is
that of ResidualPlanner (Xiao, He, Zhang & Kifer 2023) where rows are added or removed, else the
dual value of the same convex program. All 469 tables of one to three columns have 21 million cells:
they are planned, and their errors follow by formula. `--quick` leaves the fourteen columns out.

"mixed" searches the share of the tables that makes the sum of all noise variances least, beside
other blocks; what only calibrates intervals does not count. Printed are the plan's share and the
best one, the sum over its least value, and the standard deviations of both parts over the best.
"""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
from measuring import markdown, parsed, timed
from scipy import optimize

import dpstats as dps
from dpstats.families.tables.cells import Table, tables_of_degree
from dpstats.families.tables.residuals import Residual
from dpstats.measured.answers import answer
from dpstats.measured.measurements import Measurements
from dpstats.planning.table_split import TableSplit

EIGHT = (9, 16, 7, 15, 6, 5, 2, 2)
FOURTEEN = (85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2)
RHO, ROWS = 0.014973, 48_842
BUDGETS = {"rho": dps.ZCDP(RHO), "epsilon": dps.PureDP(1)}
WEIGHTS = ("equal", "balanced", "cells", "max")
NUMBERS = ["x0", "x1", "x2", "x3", "y"]
OTHERS = {
    "5 conditions": {
        str(i): dps.Proportion(f"c{i} == 0 and c{i + 1} == 1 and c{i + 2} == 1") for i in range(5)
    },
    "a covariance of 5": {"covariance": dps.Covariance(NUMBERS)},
    "OLS on 4 regressors": {"line": dps.OLS("y ~ x0 + x1 + x2 + x3")},
}


def schema_of(levels, *more):
    """Categories c0, c1, .. with so many levels, and more columns."""
    columns = [dps.Category(f"c{i}", list(range(n))) for i, n in enumerate(levels)]
    return dps.Schema([*columns, *more])


def planned(schema, degrees, unit, budget, weights):
    """A plan of tables of some degrees, and CPU seconds of planning."""
    asked = {str(degree): dps.Marginals(schema.names, degree=degree) for degree in degrees}
    options = {"unit": unit, "weights": weights, "n": ROWS if unit == "replace" else None}
    return timed(lambda: dps.plan(schema, asked, budget=budget, **options))


def answers_of(strategy, published):
    """Answers without rows: the laws of their noise."""
    size = sum(block.block.size for block in strategy.blocks)
    measured = Measurements(strategy, np.zeros(size), np.zeros(size), not_private=True)
    return answer(measured, published)


def by_answers(plan):
    """(rms, largest sd) of the cells in counts."""
    answers = answers_of(plan.strategy, plan.published)
    variances = np.array([law.variance for law in answers.law_table])[answers.law_of]
    return np.sqrt(variances.mean()), np.sqrt(variances.max())


def by_formula(split, weights):
    """The same at `RHO`, without listing the cells."""
    if weights == "equal":
        shares = np.full(split.seen.shape[1], 1 / split.seen.shape[1])
        own = 1 / (split.seen @ shares)  # in tables of share e at rho = 1, replacing a row
        variances = own * (1.0 if split.unit == "replace" else 0.5)
    else:
        variances = split.shrinkage / (2 * split.precisions)
    found = split.spread @ variances / RHO
    return np.sqrt(found.sum() / split.cells.sum()), np.sqrt(np.max(found / split.cells))


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


def tables(quick):
    lines, whole = [], "14 columns, up to 3"
    for (name, levels, degrees), unit, (kind, budget) in itertools.product(
        (("8 columns, pairs", EIGHT, [2]), ("14 columns, pairs", FOURTEEN, [2]),
         (whole, FOURTEEN, [1, 2, 3]))[: 1 if quick else 3],
        ("add_remove", "replace"), BUDGETS.items(),
    ):  # fmt: skip
        if name == whole and kind == "epsilon":
            continue
        schema, cells, spent = schema_of(levels), [], []
        every = [t for d in degrees for t in tables_of_degree(schema, schema.names, d)]
        for weights in WEIGHTS:
            plan, seconds = planned(schema, degrees, unit, budget, weights)
            assert len(plan.published.blocks) == len(every)
            found = (by_formula(TableSplit(every, unit, weights), weights) if name == whole
                     else by_answers(plan))  # fmt: skip
            cells.append(f"{found[0]:.2f}; {found[1]:.1f}")
            spent.append(seconds)
        best = f"{optimum(TableSplit(every, unit, 'cells')):.2f}" if kind == "rho" else ""
        lines.append([name, unit, kind, *cells, best, max(spent)])
    print(markdown(["tables", "neighbours", "noise", *WEIGHTS, "optimum", "CPU s"], lines))


def beside_others(more, budget, allocation, weights):
    """How near the share of the tables is to the best one."""
    numbers = [dps.Number(x, -1, 1, points=65, missing=0) for x in NUMBERS]
    asked = {"pairs": dps.Marginals(schema_of(EIGHT).names), **more}
    plan = dps.plan(schema_of(EIGHT, *numbers), asked, budget=budget, n=ROWS,
                    allocation=allocation, weights=weights)  # fmt: skip
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
    return [own, best.x, now.sum() / best.fun, *np.sqrt(now / parts(best.x))]


def mixed():
    ways = (("equal", "balanced"), ("optimal", "balanced"), ("optimal", "cells"))
    lines = [
        [name, kind, *way, *beside_others(more, budget, *way)]
        for (name, more), (kind, budget), way in itertools.product(
            OTHERS.items(), BUDGETS.items(), ways
        )
    ]
    head = ["pairs of 8 and", "noise", "allocation", "weights", "share", "best", "sum", "tables"]
    print(markdown([*head, "rest"], lines))


if __name__ == "__main__":
    given = parsed(__doc__, quick=False, only=["tables", "mixed"])
    if "tables" in given.only:
        tables(given.quick)
    if "mixed" in given.only:
        mixed()
