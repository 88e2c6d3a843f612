"""Level of tests in schemas that declare levels without rows, or with few."""

from dataclasses import replace

import numpy as np
import pytest

import dpstats as dps
from dpstats.analyses.tables.independence import NoisyTable, noisy_table
from dpstats.inference.simulation import draw_from

LEVELS = (0.05, 0.01, 0.001)


def independence(budget, unit, sizes, columns, runs, seed):
    """P-values of tables with these sizes of rows (in sd of their noise if below 0)."""
    schema = dps.Schema([
        dps.Category("a", [f"a{i}" for i in range(len(sizes))]),
        dps.Category("b", [f"b{i}" for i in range(len(columns))]),
    ])  # fmt: skip
    test = dps.Independence("a", "b")
    plan = dps.plan(
        schema, {"t": test}, budget=budget, n=10, unit=unit, reference=dps.Uniform()
    )  # fmt: skip
    rows = schema.to_frame({name: np.zeros(10, np.int64) for name in "ab"})
    table = noisy_table(test, dps.release(plan, rows, rng=0, m=2, k=10))
    law, rng, found = table.answers.law(0), np.random.default_rng(seed), []
    sd = (law.variance * len(columns)) ** 0.5
    expected = np.outer([n if n >= 0 else -n * sd for n in sizes], columns)
    n = round(expected.sum())
    for _ in range(runs):
        sums = rng.multinomial(n, expected.ravel() / expected.sum()) + draw_from(
            law, expected.size, rng
        )
        count = float(n if unit == "replace" else sums.sum())
        answers = replace(
            table.answers, sums=sums.astype(float), rows=replace(table.answers.rows, estimate=count)
        )
        found.append(NoisyTable(answers, table.cells).test(199, rng)[1])
    return np.array(found)


TABLES = {
    "none": [500, 500],
    "1 empty": [500, 500, 0],
    "5 empty": [500, 500, *[0] * 5],
    "1 row": [500, 500, 1],
    "1, 2 and 3 sd": [500, 500, -1, -2, -3],
    "six of 2.5 sd": [5_000, 5_000, *[-2.5] * 6],
    "six of 3.5 sd": [5_000, 5_000, *[-3.5] * 6],
}
BUDGETS = {"Laplace": dps.PureDP(0.5), "Gaussian": dps.ZCDP(0.02)}


@pytest.mark.simulate(
    [(name, unit, sizes) for name in BUDGETS for unit in ("replace", "add_remove")
     for sizes in TABLES],
    few=(23,), runs=(100, 2_000),
)  # fmt: skip
def test_independence(setting, runs, table):
    name, unit, sizes = setting
    found = independence(BUDGETS[name], unit, TABLES[sizes], [0.9, 0.07, 0.03], runs, 6)
    for alpha in LEVELS[:2]:
        rejected = np.sum(found <= alpha)
        table.level(f"{name}, {unit}, {sizes}", f"independence, {alpha}", rejected, runs, alpha)
