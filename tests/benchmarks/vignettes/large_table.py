"""The figures that vignettes/large-table.md quotes: many releases with the real noise.

    python tests/benchmarks/vignettes/large_table.py [releases]

Rows and tests of the year; then the widths of one release each with other weights and budgets.
"""

import numpy as np
from defined import names_of, numbers, show

import dpstats as dps


def mean_width(release):
    return np.mean(np.diff(release.infer("pairs").conf_int()))


(releases,) = numbers(20)
scope = names_of("large-table")
table, n, nothing = scope["table"], scope["n"], scope["NOTHING"]
truth, found = scope["shares"](table), []
for _ in range(releases):
    release = dps.release(scope["plan"], table)
    rows, figures = release.to_frame(), {"mean width": mean_width(release)}
    for name, frame in {"rows": rows, "second sample": table.sample(n, replace=True)}.items():
        error = np.abs(scope["shares"](frame) - truth)
        figures |= {f"{name}, mean error": error.mean(), f"{name}, largest": error.max()}
    tests = [release.infer(dps.Independence("year", name, simulations=199)) for name in nothing]
    figures["rows as data reject"] = sum(scope["pearson"](rows, name) <= 0.05 for name in nothing)
    figures["noise-aware tests reject"] = sum(test.pvalue <= 0.05 for test in tests)
    found.append(figures)
show("rows, and tests of the year", found)
usual = np.mean([figures["mean width"] for figures in found])
for name, options in {
    "equal": {"budget": scope["budget"], "weights": "equal"},
    "epsilon 1": {"budget": dps.PureDP(1)},
}.items():
    plan = dps.plan(scope["schema"], scope["asked"], n=n, **options)
    print(name, mean_width(dps.release(plan, table)) / usual, flush=True)
