"""The figures that vignettes/continuous.md quotes: many releases with the real noise.

    python tests/benchmarks/vignettes/continuous.py [releases]

For each reference, and for the plan that asks the question itself.
"""

import numpy as np
from defined import names_of, numbers, show
from statsmodels.stats.proportion import proportion_confint

import dpstats as dps

(releases,) = numbers(200)
scope = names_of("continuous", until="releases")
table, poor, trend = scope["table"], scope["poor"], {"trend": scope["trend"]}
exact, slope = poor(table), np.polyfit(table["age"], table["health"], 1)[0]
print(f"exact share {exact:.4f}, slope {slope:.4f}")
question = dps.Proportion("health < 60", given="age >= 45")
older = {"older": dps.Quantile("health", [0.5], given="age >= 45")}
tenth = dps.BernsteinKDE(share="1/10")
common = {"budget": dps.PureDP(1), "n": scope["n"]}
plans = scope["plans"] | {
    "question planned": dps.plan(scope["schema"], trend | older, **common),
    "Bernstein, 1/10": dps.plan(scope["schema"], trend, **common, reference=tenth),
}
for name, plan in plans.items():
    found = []
    for _ in range(releases):
        release = dps.release(plan, table)
        rows = release.to_frame()
        health = rows["health"][rows["age"] >= 45]
        low, high = proportion_confint((health < 60).sum(), len(health), method="wilson")
        least, most = release.infer("trend").conf_int()[1]
        figures = {
            "share": poor(rows),
            "largest error": scope["largest_error"](rows),
            "Wilson covers": low <= exact <= high,
            "slope width": most - least,
        }
        for target in ("population", "table") if "older" in plan.analyses else ():
            low, high = release.infer(question).conf_int(target=target)
            figures |= {f"{target}: width": high - low, f"{target}: covers": low <= exact <= high}
        found.append(figures)
    show(name, found)
