"""What robust errors cost: intervals of `cov_type="HC1"` beside nonrobust ones, on `randhie`.

    python tests/benchmarks/regressions/robust_errors.py [--runs 60]

Visits to physicians on coinsurance, limitation, diseases and health, 20,190 rows of statsmodels,
(1, 1e-6), replacing a row: four regressors as in `data_sets.py`, and the seven of
vignettes/randhie.md. Each analysis is planned alone and released with the real noise on the same
rows; no density is fitted. Printed are the multiple of the noise on fourth moments and their share
of the budget, and for every coefficient the median widths and their ratio; the ratio of the two
standard errors on the table itself, which is no cost of privacy; and that of the noise's own
standard deviations.
"""

import argparse
from types import SimpleNamespace

import numpy as np
import statsmodels.formula.api as smf
from data_sets import coded, visits
from statsmodels.datasets import randhie

import dpstats as dps
from dpstats.measured.answers import answer

TYPES = ("nonrobust", "HC1")
BUDGET = dps.ApproxDP(1, 1e-6)


def four():
    """Visits up to 20."""
    schema, rows, _ = visits()
    return schema, rows, "visits ~ lncoins + limited + disea + poor"


def seven():
    """The schema and the formula of the vignette."""
    rows = randhie.load_pandas().data
    rated = [rows["hlthg"] == 1, rows["hlthf"] == 1, rows["hlthp"] == 1]
    rows["health"] = np.select(rated, ["good", "fair", "poor"], "excellent")
    schema = dps.Schema([
        dps.Number("mdvis", 0, 26, points=53, missing=0),
        dps.Number("lncoins", 0, np.log(101), missing=0), dps.Boolean("idp"),
        dps.Number("physlm", 0, 1, missing=0), dps.Number("disea", 0, 60, missing=0),
        dps.Category("health", ["excellent", "good", "fair", "poor"]),
    ])  # fmt: skip
    rows["idp"] = rows["idp"] > 0.5
    formula = "mdvis ~ lncoins + idp + physlm + disea + C(health)"
    return schema, rows[list(schema.names)], formula


def result(plan, analysis, rows):
    """The analysis on a fresh measurement of the rows."""
    held = dps.measure(plan, rows)
    return analysis.infer(SimpleNamespace(
        schema=held.schema, n=held.n, budget=plan.budget, measurements=held,
        answers=lambda wanted, **options: answer(held, wanted, **options),
    ))  # fmt: skip


def compare(schema, rows, formula, runs):
    """Print a line for every coefficient."""
    rows = coded(schema, rows)
    signs = [c.name for c in schema if isinstance(c, dps.Boolean)]
    exact = [smf.ols(formula, rows.astype(dict.fromkeys(signs, float))).fit(cov_type=of).bse
             for of in TYPES]  # fmt: skip
    widths, noise = [], []
    for of in TYPES:
        analysis = dps.OLS(formula, cov_type=of)
        plan = dps.plan(schema, {"line": analysis}, budget=BUDGET, n=len(rows),
                        reference=dps.Uniform())  # fmt: skip
        for one in plan.blocks:
            if one.block.calibrates:
                share = one.block.cost(BUDGET, plan.neighbours, one.multiplier) / BUDGET.total
                factor = one.block.noise_factor(BUDGET, "replace")
                print(f"{formula}: fourth moments with {factor} times the noise cost "
                      f"{float(share):.1%} of the budget")  # fmt: skip
        found = [result(plan, analysis, rows) for _ in range(runs)]
        widths.append(np.median([np.ptp(one.conf_int(), axis=1) for one in found], axis=0))
        noise.append(np.median([one.privacy_variance for one in found], axis=0) ** 0.5)
    print(f"{'coefficient':<18}{'nonrobust':>10}{'HC1':>8}{'ratio':>8}{'exact':>8}{'noise':>8}")
    for i, name in enumerate(found[0].terms):
        print(f"{name:<18}{widths[0][i]:>10.4f}{widths[1][i]:>8.4f}"
              f"{widths[1][i] / widths[0][i]:>8.2f}{exact[1].iloc[i] / exact[0].iloc[i]:>8.2f}"
              f"{noise[1][i] / noise[0][i]:>8.2f}", flush=True)  # fmt: skip


def main():
    """Print both tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=60)
    runs = parser.parse_args().runs
    for setting in (four, seven):
        compare(*setting(), runs)


if __name__ == "__main__":
    main()
