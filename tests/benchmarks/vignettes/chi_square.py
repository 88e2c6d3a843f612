"""The figures that vignettes/chi-square.md quotes: many releases with the real noise.

    python tests/benchmarks/vignettes/chi_square.py [null releases] [releases of the table]

First the level: in how many releases of tables without any effect each method rejects at 5%. Then,
for the vignette's own table and both of its budgets, rejections, verdicts, intervals and coverage.
"""

import sys

import numpy as np
import pandas as pd
from defined import names_of

import dpstats as dps


def levels(scope, releases):
    """Shares of releases that reject at 5%, and their standard errors."""
    for epsilon in (0.5, 1, 2):
        plan = dps.plan(
            scope["schema"], scope["analyses"], budget=dps.PureDP(epsilon), n=scope["n"]
        )
        pvalues = scope["null_pvalues"](plan, releases, np.random.default_rng())
        share = (pvalues <= 0.05).mean().unstack(level=0)
        print(f"\nno effect, epsilon {epsilon}, {releases} releases: share with p <= 0.05")
        print(share.round(3).to_string())
        print("standard errors:", np.sqrt(share * (1 - share) / releases).round(4), sep="\n")


def table(scope, releases):
    """What a release of the vignette's table shows."""
    exact = {"fit": scope["exact_w"], "income": scope["exact_v"], "gap": scope["exact_gap"]}
    for name, plan in scope["plans"].items():
        found = []
        for _ in range(releases):
            release = dps.release(plan, scope["table"])
            row = {}
            for test in ("fit", "income", "within"):
                result = release.infer(test)
                verdict = result.certified.verdict
                row |= {f"{test} p <= 0.05": result.pvalue <= 0.05, f"{test} {verdict}": True}
                row |= interval(test, result.conf_int(), exact.get(test))
            result = release.infer("gap")
            row |= interval("gap", result.conf_int()[0], exact["gap"])
            certified = result.conf_int(method="certified")[0]
            row |= interval("gap, certified", certified, exact["gap"])
            row |= {
                f"rows, {test} p <= 0.05": pvalue <= 0.05
                for test, pvalue in scope["classical"](release.to_frame()).items()
            }
            found.append(row)
        frame = pd.DataFrame(found).astype(float)
        print(f"\nthe table, {name}, {releases} releases: sums, means and medians")
        summary = {"sum": frame.sum(), "mean": frame.mean(), "median": frame.median()}
        print(pd.DataFrame(summary).round(3).to_string())


def interval(name, ends, exact):
    low, high = ends
    found = {f"{name} low": low, f"{name} high": high, f"{name} excludes 0": low > 0}
    return found if exact is None else found | {f"{name} holds the exact": low <= exact <= high}


def main(null_releases, releases):
    scope = names_of("chi-square", before="null_pvalues(plans")
    levels(scope, null_releases)
    table(scope, releases)


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    main(*(given + [1_000, 200][len(given) :]))
