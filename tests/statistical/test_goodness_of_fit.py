"""Level and power of the goodness-of-fit test, through the analysis, on multinomial counts.

Published figures: Gaboardi et al. (2016) and Kifer and Rogers (2017), rerun in their setting.
"""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dps
from dpstats.measured.answers import answer
from dpstats.measured.measurements import Measurements
from dpstats.privacy.noise import _noise_from

EQUAL = np.full(4, 0.25)
PUSH = 0.01 * np.array([1, -1, -1, 1])
UNEQUAL = np.array([0.5, 1 / 6, 1 / 6, 1 / 6])
MANY = np.full(30, 1 / 30)
SPARSE = np.r_[0.9, np.full(9, 0.1 / 9)]
SETTINGS = {
    "equal, n 200, eps .05": (EQUAL, 200, 0.05),
    "equal, n 50000, eps 5": (EQUAL, 50_000, 5.0),
    "unequal, n 2000, eps .1": (UNEQUAL, 2000, 0.1),
    "30 cells, n 1000, eps .2": (MANY, 1000, 0.2),
    "sparse, n 200, eps 5": (SPARSE, 200, 5.0),
    "sparse, n 200, eps .05": (SPARSE, 200, 0.05),
}


def results(p0, p, n, epsilon, runs, tools, simulations=399, seed=1):
    """Results of the analysis on so many fresh tables of n rows drawn from p."""
    rng, source = np.random.default_rng(seed), tools.Laplace(seed + 1)
    schema = dps.Schema([dps.Category("c", [f"l{i}" for i in range(len(p0))])])
    asked = dps.GoodnessOfFit("c", list(p0), simulations=simulations)
    plan = dps.plan(schema, {"g": asked}, budget=dps.PureDP(epsilon), n=n)
    for run in range(runs):
        counts = rng.multinomial(n, p)
        noisy = counts + source(float(plan.strategy.scales[0]), len(p))
        measured = Measurements(plan.strategy, noisy, source.uniforms(len(p)))
        release = SimpleNamespace(
            schema=schema,
            n=n,
            budget=plan.budget,
            answers=lambda wanted, m=measured, **options: answer(m, wanted, **options),
        )
        fresh = dps.GoodnessOfFit("c", list(p0), simulations=simulations, seed=run)
        yield counts, fresh.infer(release)


def rates(p0, p, n, epsilon, runs, tools, every=1, **options):
    """Numbers of rejections of each method, and of intervals that cover the effect.

    The certified statement, a search that is long with many cells, and the effect, which comes
    with it, in every so many runs.
    """
    effect = np.sqrt(((p - p0) ** 2 / p0).sum())
    found = dict.fromkeys(("calibrated", "pearson", "certified", "private", "covered", "held"), 0)
    for run, (counts, result) in enumerate(results(p0, p, n, epsilon, runs, tools, **options)):
        exact = stats.chisquare(counts, n * p0)
        found["calibrated"] += result.pvalue <= 0.05
        found["pearson"] += result.pearson_pvalue <= 0.05
        found["private"] += exact.pvalue <= 0.05
        if run % every == 0:
            found["covered"] += result.effect_interval[0] <= effect <= result.effect_interval[1]
            certified = result.certified
            found["certified"] += certified.verdict == "reject"
            found["held"] += certified.low - 1e-9 <= exact.statistic <= certified.high + 1e-9
    return found


def check_level(name, runs, table, tools, every=1, simulations=399):
    p0, n, epsilon = SETTINGS[name]
    found = rates(p0, p0, n, epsilon, runs, tools, every, simulations=simulations)
    few = len(range(0, runs, every))
    table.level(name, "calibrated, level", found["calibrated"], runs)
    table.level(name, "certified, level", found["certified"], few)
    table.covers(name, "effect interval (approximate)", found["covered"], few, 0.93)
    table.covers(name, "certified statistic", found["held"], few)
    naive = 0.15 if epsilon < 1 else 0.0  # what taking noisy counts for counts does
    table.check(name, "pearson (naive), level", found["pearson"] / runs, runs=runs, least=naive)
    return found


@pytest.mark.parametrize("name", list(SETTINGS))
def test_level(name, table, tools):
    """60 tests, 20 intervals and verdicts: levels above about .25, coverages below .6 are seen.

    With 30 cells, whose search is long, 10 verdicts.
    """
    every = 6 if "30 cells" in name else 3
    check_level(name, 60, table, tools, every=every, simulations=99)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(SETTINGS))
def test_level_in_many_tables(name, table, tools):
    found = check_level(name, 1000, table, tools)
    # exact: not conservative either
    table.covers(name, "calibrated, level", found["calibrated"], 1000, 0.05 * 0.95)


def check_power(runs, simulations, table, tools, most_level, powers):
    """Against private tests of the literature; limits are of the calibrated test."""
    setting, power_of = "n 4000, eps .1, +-.01", "MCGOF .284, Kifer-Rogers .313, private data .568"
    options = {"every": 10, "simulations": simulations}
    level = rates(EQUAL, EQUAL, 4000, 0.1, runs, tools, **options)
    power = rates(EQUAL, EQUAL + PUSH, 4000, 0.1, runs, tools, seed=3, **options)
    for method, times in (("certified", runs // 10), ("private", runs)):
        table.row(setting, method + ", level", level[method] / times, "", "", times)
        table.row(setting, method + ", power", power[method] / times, "", power_of, times)
    ours = "calibrated, level", level["calibrated"] / runs
    table.check(setting, *ours, "", "<= .05", runs, most=most_level)
    ours = "calibrated, power", power["calibrated"] / runs
    table.check(setting, *ours, "", power_of, runs, least=powers[0], most=powers[1])


def test_power_next_to_other_private_tests(table, tools):
    """150 tables: four standard errors around .33 keep off the level, .05, and chance."""
    level, reach = 0.05 + 4 * np.sqrt(0.05 * 0.95 / 150), 4 * np.sqrt(0.33 * 0.67 / 150)
    check_power(150, 199, table, tools, level, (0.33 - reach, 0.33 + reach))


@pytest.mark.slow
def test_power_next_to_other_private_tests_in_many_tables(table, tools):
    """To reach: .34, met when the estimate is within two standard errors of it."""
    check_power(4000, 999, table, tools, 0.06, (0.34 - 2 * np.sqrt(0.34 * 0.66 / 4000), 1.0))


def check_synthetic_rows(runs, table, tools, simulations=399):
    """Naive: the synthetic rows taken for data, k = n = 1000."""
    n, epsilon, p0 = 1000, 0.1, EQUAL
    schema = dps.Schema([dps.Category("c", list("abcd"))])
    rng, source = np.random.default_rng(9), tools.Laplace(10)
    naive = ours = 0
    for run in range(runs):
        asked = dps.GoodnessOfFit("c", list(p0), simulations=simulations, seed=run)
        plan = dps.plan(schema, {"g": asked}, budget=dps.PureDP(epsilon), n=n)
        rows = pd.DataFrame({"c": rng.choice(list("abcd"), n, p=p0)})
        with _noise_from(source):
            release = dps.release(plan, rows, m=400, k=n, rng=run)
        counts = release.to_frame()["c"].value_counts().reindex(list("abcd"), fill_value=0)
        naive += stats.chisquare(counts).pvalue <= 0.05
        ours += release.infer("g").pvalue <= 0.05
    table.level("n = k = 1000, eps .1", "calibrated, level", ours, runs)
    chance = (stats.binom.isf(5e-4, runs, 0.05) + 1) / runs  # more than a level of .05 has
    table.check("n = k = 1000, eps .1", "naive on synthetic rows, level", naive / runs, "", ".375",
                runs, least=chance)  # fmt: skip


def test_synthetic_rows_taken_for_data(table, tools):
    check_synthetic_rows(60, table, tools, simulations=99)


@pytest.mark.slow
def test_synthetic_rows_taken_for_data_in_many_releases(table, tools):
    check_synthetic_rows(1000, table, tools)
