"""The figures that vignettes/large-table.md quotes: many releases with the real noise.

    python tests/benchmarks/vignettes/large_table.py [releases]

Errors of the rows beside those of a second sample and of independent columns, and the p-values of
the year with columns that it has nothing to do with. Then the intervals of one release each with
other weights and with pure epsilon.
"""

import sys

import numpy as np
import pandas as pd
from defined import names_of


def mean_width(release):
    ends = np.asarray(release.infer("pairs").conf_int())
    return float(np.mean(ends[:, 1] - ends[:, 0]))


def main(releases):
    import dpstats as dps

    scope = names_of("large-table")
    table, asked, n = scope["table"], scope["asked"], scope["n"]
    truth, rng = scope["shares"](table), np.random.default_rng()
    errors, rejected, widths = [], [], []
    for _ in range(releases):
        release = dps.release(scope["plan"], table)
        rows = release.to_frame()
        again = table.sample(n, replace=True, random_state=rng)
        for name, frame in {"rows": rows, "second sample": again}.items():
            error = np.abs(scope["shares"](frame) - truth)
            errors.append({"of": name, "mean": error.mean(), "largest": error.max()})
        for name in scope["NOTHING"]:
            test = release.infer(dps.Independence("year", name, simulations=199))
            rejected.append(
                {"rows as data": scope["pearson"](rows, name) <= 0.05,
                 "noise-aware": test.pvalue <= 0.05}
            )  # fmt: skip
        widths.append(mean_width(release))
    print(f"\n{releases} releases")
    print(pd.DataFrame(errors).groupby("of").mean().round(5).to_string())
    print("rejected of", len(rejected), pd.DataFrame(rejected).sum().to_dict())
    print("mean width", np.mean(widths))
    budget = scope["budget"]
    equal = dps.plan(scope["schema"], asked, budget=budget, n=n, weights="equal")
    pure = dps.plan(scope["schema"], asked, budget=dps.PureDP(1), n=n)
    for name, plan in {"equal": equal, "epsilon 1": pure}.items():
        print(name, mean_width(dps.release(plan, table)) / np.mean(widths), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
