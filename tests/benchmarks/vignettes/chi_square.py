"""The figures that vignettes/chi-square.md quotes: many releases with the real noise.

    python tests/benchmarks/vignettes/chi_square.py [null releases] [releases of the table]

First the level on tables without any effect, then the vignette's own table at both budgets.
"""

import numpy as np
from defined import names_of, numbers, show

import dpstats as dps

null_releases, releases = numbers(1_000, 200)
scope = names_of("chi-square", before="null_pvalues(plans")
for epsilon in (0.5, 1, 2):
    budget = dps.PureDP(epsilon)
    plan = dps.plan(scope["schema"], scope["analyses"], budget=budget, n=scope["n"])
    pvalues = scope["null_pvalues"](plan, null_releases, np.random.default_rng())
    share = (pvalues <= 0.05).mean().unstack(level=0)
    print(f"\nno effect, epsilon {epsilon}, {null_releases} releases: share with p <= 0.05")
    print(share.round(3).to_string())
    print("standard errors:", np.sqrt(share * (1 - share) / null_releases).round(4), sep="\n")

exact = {"fit": scope["exact_w"], "income": scope["exact_v"], "gap": scope["exact_gap"]}
for name, plan in scope["plans"].items():
    found = []
    for _ in range(releases):
        release = dps.release(plan, scope["table"])
        results = {test: release.infer(test) for test in ("fit", "income", "within", "gap")}
        row = {}
        for test, result in results.items():
            low, high = np.ravel(result.conf_int())[:2]
            row |= {f"{test} low": low, f"{test} high": high, f"{test} excludes 0": low > 0}
            if test in exact:
                row[f"{test} holds the exact"] = low <= exact[test] <= high
            if test != "gap":
                row |= {f"{test} p <= 0.05": result.pvalue <= 0.05}
                row |= {f"{test} {result.certified.verdict}": True}
        classical = scope["classical"](release.to_frame())
        found.append(row | {f"rows, {test} p <= 0.05": p <= 0.05 for test, p in classical.items()})
    show(f"the table, {name}", found)
