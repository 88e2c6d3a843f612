"""The figures that vignettes/continuous.md quotes: many releases with the real noise.

    python tests/benchmarks/vignettes/continuous.py [releases]

For each reference, and for the plan that asks the question itself: errors of the rows, how often
Wilson's interval on the rows holds the table's own share, and the interval for the slope.
"""

import sys

import numpy as np
import pandas as pd
from defined import names_of
from statsmodels.stats.proportion import proportion_confint


def main(runs):
    import dpstats as dps

    scope = names_of("continuous", until="releases")
    table, poor, largest_error = scope["table"], scope["poor"], scope["largest_error"]
    exact = poor(table)
    question = dps.Proportion("health < 60", given="age >= 45")
    slope = np.polyfit(table["age"], table["health"], 1)[0]
    asked = {"trend": scope["trend"], "older": dps.Quantile("health", [0.5], given="age >= 45")}
    tenth = dps.BernsteinKDE(share="1/10")
    common = {"budget": dps.PureDP(1), "n": scope["n"]}
    plans = scope["plans"] | {"question planned": dps.plan(scope["schema"], asked, **common)}
    try:
        trend = {"trend": scope["trend"]}
        plans["Bernstein, 1/10"] = dps.plan(scope["schema"], trend, **common, reference=tenth)
    except dps.RequestError as refused:
        print(refused)
    shown = {}
    for name, plan in plans.items():
        found = []
        for _ in range(runs):
            release = dps.release(plan, table)
            rows = release.to_frame()
            older = rows[rows["age"] >= 45]
            low, high = proportion_confint(
                (older["health"] < 60).sum(), len(older), method="wilson"
            )
            least, most = release.infer("trend").conf_int()[1]
            figures = {
                "share": poor(rows),
                "share off": abs(poor(rows) - exact),
                "largest error": largest_error(rows),
                "Wilson covers": low <= exact <= high,
                "Wilson width": high - low,
                "slope width": most - least,
                "slope covers": least <= slope <= most,
            }
            if "older" in plan.analyses:
                ends = (
                    release.infer(question).conf_int(),
                    release.infer(question).conf_int(target="table"),
                )
                figures |= {
                    "interval width": np.diff(ends[0])[0],
                    "interval covers": ends[0][0] <= exact <= ends[0][1],
                    "for the table covers": ends[1][0] <= exact <= ends[1][1],
                }
            found.append(figures)
        shown[name] = pd.DataFrame(found).astype(float).mean()
    print(f"{runs} releases; exact share {exact:.4f}, slope {slope:.4f}")
    print(pd.DataFrame(shown).T.round(4).to_string())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
