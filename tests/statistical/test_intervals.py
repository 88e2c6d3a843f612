"""Coverage of the intervals of every analysis, and levels of tests, in the benchmarks' settings.

A release has rows drawn with replacement from a population, whose own values are the truth. In a
setting called "noise" the noise is much larger than the sampling error, in "sampling" it is much
smaller: intervals that lack one of the two miss most of the time in one of them.
"""

import numpy as np
import pytest
from interval_settings import SETTINGS

# Fast runs of some settings. Of 18 tests at most 9 may reject, of 12 at most 7, of 6 at most 5; of
# 6 intervals one must hold.
FEW = dict.fromkeys((
    "share, noise", "share, add/remove, balanced", "share in a group, balanced",
    "difference, noise", "mean, noise", "mean, sampling",
), 18) | dict.fromkeys((
    "cells, Gaussian, add/remove", "independence, noise", "OLS of one, noise", "HC1, sampling",
    "logistic, cells, sampling",
), 12) | dict.fromkeys((
    "quantiles, sampling", "group means, balanced", "incomplete rows, noise", "persons, sampling",
), 6)  # fmt: skip
# Rates asked of the noise-aware methods where the sampling error of few rows is far from normal.
HARD = {"mean, two values, one rare": 0.85, "group means, small groups": 0.85}
USUAL = 0.93
# Slow runs: 2,000 find a coverage of .9, 300 one of .85.
LONG = ("share", "cells", "mean", "two means", "OLS of one")
# Median widths (docs/explanation/inference/widths.md, one of a run): at most 1.2 times these.
WIDTHS = {
    "share, noise": {"share, population": 0.154},
    "share in a group, balanced": {"share, population": 0.152},
    "cells, balanced, add/remove": {"cells, population 0": 0.053},
    "difference, balanced": {"risks, population 0": 0.139},
    "mean, noise": {"mean, population": 1.36},
    "two means, balanced": {"in a group, population": 0.0965, "difference, population": 0.136},
    "group means, balanced": {"means, population 0": 0.0958, "pairs, population": 0.195},
    "OLS of one, noise": {"line, population": 1.16},
    "OLS of three, balanced": {"slopes, population": 0.0358, "contrast, population": 0.067},
    "HC1, sampling": {"line, population": 0.0169},
    "logistic, cells, balanced": {"coefficients, population 0": 0.195},
    "logistic, density, balanced": {"coefficients, population 0": 0.43},
}


def many(setting):
    """Not for coverage that is known to be less."""
    return 2_000 if setting.split(", ")[0] in LONG and setting not in HARD else 300


def ends_of(view, about, terms):
    """Limits (d, 2) of the chosen terms."""
    return np.asarray(view.ends(0.05, about), dtype=float)[[view.terms.index(t) for t in terms]]


@pytest.mark.simulate(list(SETTINGS), few=FEW, runs=(None, many))
def test_intervals_cover_and_tests_have_their_level(setting, runs, table, tools):
    """In few runs tests are in all, intervals in six; of four kinds of these the first and last."""
    few, rate = runs < 100, HARD.get(setting, USUAL)
    every, kinds = (runs // 6, slice(None, None, 3)) if few else (1, slice(None))
    case, truth = SETTINGS[setting], {}
    fitted = case.fitted and (not few or setting.startswith("logistic"))
    for run, (population, rows, release) in enumerate(tools.simulated(case, runs, fitted)):
        truth = truth or {name: ask.own(population) for name, ask in case.asks.items()}
        for name, ask in case.asks.items():
            view = ask.read(ask.part(release.infer(ask.analysis)))
            for term, value in truth[name].items() if view.pvalue else ():
                if np.isfinite(value) and (not view.of_zero or abs(value) < 1e-9):
                    table.reject(f"{name}: {term}", view.pvalue(term, value), 1 - rate)
            own = ask.own(rows) if ask.of_table and run % every == 0 else {}
            for about in ask.about[kinds] if run % every == 0 else ():
                values = np.array(list((own if "table" in about else truth[name]).values()))
                near = 1e-6 * np.abs(np.nan_to_num(values, posinf=0)) + 1e-12  # of rounding
                ends = ends_of(view, about, ask.terms) + np.outer(near, [-1, 1])
                values = np.where(np.isnan(values), ends[:, 0], values)  # 0 / 0
                wanted = 0.95 if "certified" in about else rate
                table.hold(f"{name}, {about}", ends, values, wanted, about == "jointly")
    table.finish(setting, WIDTHS.get(setting))
