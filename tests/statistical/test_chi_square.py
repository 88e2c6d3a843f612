"""Chi-square tests on counts: power beside published figures, certified verdicts, empty levels.

Published are the figures of Gaboardi et al. (2016) and of Kifer and Rogers (2017), rerun in their
setting. Levels and effect sizes in other settings are in test_intervals.py.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import dpstats as dps
from dpstats.analyses.tables.independence import noisy_table

EVEN, PUSH = np.full((2, 2), 0.25), np.array([[1, -1], [-1, 1]])
# test, power to reach in many runs, power in few runs of fewer draws, others' power
POWERS = [
    ("independence", 0.46, 0.41, "others .399, .447"),
    ("goodness of fit", 0.34, 0.33, "MCGOF .284, Kifer-Rogers .313, private data .568"),
]
VERDICTS = [(reach, n) for reach in (0.0, 0.05) for n in (4_000, 20_000)]


def results(kind, p, n, budget, runs, tools, seed, simulations=199):
    """Counts of fresh rows in the cells of p, and the results of a test with fresh noise."""
    if kind == "independence":
        columns = [dps.Category(name, [0, 1]) for name in "ab"]
        asked = dps.Independence("a", "b", simulations=simulations)
    else:
        columns = [dps.Category("a", [0, 1, 2, 3])]
        asked = dps.GoodnessOfFit("a", [0.25] * 4, simulations=simulations)
    plan = dps.plan(dps.Schema(columns), {"t": asked}, budget=budget, n=n)
    drawn = tools.fresh(plan, n, lambda rng: rng.multinomial(n, p.ravel()), runs, seed)
    for run, (counts, _, view) in enumerate(drawn):
        yield counts, replace(asked, seed=run).infer(view)


@pytest.mark.simulate(POWERS, few=(0, 1), runs=(70, 4_000))
def test_power_beside_other_private_tests(setting, runs, table, tools):
    """n = 4,000, epsilon .1, shares moved by .01; at most four standard errors less."""
    kind, many, few, others = setting
    simulations, target = (199, few) if runs < 1_000 else (999, many)
    options = 4_000, dps.PureDP(0.1), runs, tools, 5, simulations
    found = sum(r.pvalue <= 0.05 for _, r in results(kind, EVEN + 0.01 * PUSH, *options))
    least = target - 4 * np.sqrt(target * (1 - target) / runs)
    table.check("+-.01, n=4000, eps .1", kind, found / runs, "", others, runs, least)


@pytest.mark.simulate(["goodness of fit"], few=(0,), runs=(40, 1_000))
def test_taking_noisy_counts_for_counts_rejects_too_often(setting, runs, table, tools):
    """The calibrated test holds its level where Pearson's does not."""
    calibrated = pearson = 0
    for _, result in results(setting, EVEN, 1_000, dps.ZCDP(0.0005), runs, tools, 1, 99):
        calibrated += result.pvalue <= 0.05
        pearson += result.pearson_pvalue <= 0.05
    table.level("no effect", "calibrated", calibrated, runs)
    table.check("no effect", "noise ignored", pearson / runs, runs=runs, least=0.4)


@pytest.mark.simulate(VERDICTS, few=(2,), runs=(12, 300))
def test_certified_verdicts(setting, runs, table, tools):
    """Of a table without an effect and of one with; limits of the private statistic."""
    (reach, n), verdicts, held = setting, [], 0
    for counts, result in results("independence", EVEN + reach * PUSH, n, dps.PureDP(1), runs,
                                  tools, n, 99):  # fmt: skip
        certified = result.certified
        statistic = stats.chi2_contingency(counts.reshape(2, 2), correction=False).statistic
        held += certified.low - 1e-9 <= statistic <= certified.high + 1e-9
        verdicts.append(certified.verdict)
    wrong = "accept" if reach else "reject"
    table.level(setting, f"certified: {wrong}", verdicts.count(wrong), runs)
    table.covers(setting, "certified statistic", held, runs)


# Sizes of rows, in standard deviations of their noise if below 0.
SIZES = {
    "none": [500, 500], "1 empty": [500, 500, 0], "5 empty": [500, 500, *[0] * 5],
    "1 row": [500, 500, 1], "1, 2 and 3 sd": [500, 500, -1, -2, -3],
    "six of 2.5 sd": [5_000, 5_000, *[-2.5] * 6], "six of 3.5 sd": [5_000, 5_000, *[-3.5] * 6],
}  # fmt: skip
BUDGETS = {"Laplace": dps.PureDP(0.5), "Gaussian": dps.ZCDP(0.02)}
COLUMNS = [0.9, 0.07, 0.03]


@pytest.mark.simulate(
    [(name, unit, sizes) for name in BUDGETS for unit in ("replace", "add_remove")
     for sizes in SIZES],
    few=(23,), runs=(40, 2_000),
)  # fmt: skip
def test_levels_without_rows_or_with_few(setting, runs, table, tools):
    name, unit, sizes = setting
    test, budget, rng = dps.Independence("a", "b"), BUDGETS[name], np.random.default_rng(6)
    schema = dps.Schema([dps.Category(name, list(range(len(levels))))
                         for name, levels in (("a", SIZES[sizes]), ("b", COLUMNS))])  # fmt: skip
    plan = dps.plan(schema, {"t": test}, budget=budget, unit=unit)
    scale = plan.strategy.scales_of(plan.blocks[0])[0]
    sd = (budget.law(float(scale)).variance * len(COLUMNS)) ** 0.5
    expected = np.outer([n if n >= 0 else -n * sd for n in SIZES[sizes]], COLUMNS).ravel()
    n = round(expected.sum())
    drawn = tools.fresh(plan, n, lambda rng: rng.multinomial(n, expected / expected.sum()), runs, 6)
    for *_, view in drawn:
        pvalue = noisy_table(test, view).test(199, rng)[1]
        for alpha in (0.05, 0.01):
            table.reject(f"independence, {alpha}", pvalue, alpha, alpha)
    table.finish(setting)
