"""The figures that vignettes/senators.md quotes: many releases of rows drawn with replacement.

    python tests/benchmarks/vignettes/senators.py [releases]

How often the intervals hold the curve of the whole table, their widths beside those without
privacy, how often the log-rank test rejects, and the gap between the incidences of death.
"""

import sys

import numpy as np
import pandas as pd
from defined import names_of
from statsmodels.duration.survfunc import SurvfuncRight, survdiff


def actuarial(years, left, edges):
    """Survival after each edge, with half of the censored of a bin at risk in it."""
    bins = np.searchsorted(edges, years, side="right")
    events, others = (np.bincount(bins[x], minlength=len(edges) + 1) for x in (left, ~left))
    at_risk = (events + others)[::-1].cumsum()[::-1] - others / 2
    return np.cumprod(1 - events / at_risk)[:-1]


def main(releases):
    import dpstats as dps

    scope = names_of("senators", before="SurvfuncRight(part")
    schema, stay, ways, rows = (scope[name] for name in ("schema", "stay", "ways", "rows"))
    edges = np.array(schema["years"].edges)
    truth, exact = {}, {}
    for term, part in rows.groupby("term"):
        left = (part["end"] != "in office").to_numpy()
        truth[f"term={term}"] = actuarial(part["years"].to_numpy(), left, edges)
        public = SurvfuncRight(part["years"], left)
        at = np.searchsorted(public.surv_times, edges, side="right") - 1
        exact[f"term={term}"] = 2 * 1.96 * public.surv_prob_se[at]
    print("exact log-rank:", survdiff(rows["years"], rows["end"] != "in office", rows["term"]))
    rng = np.random.default_rng()
    for epsilon in (1,):
        plan = dps.plan(schema, {"stay": stay, "ways": ways}, budget=dps.PureDP(epsilon))
        found, tests, gaps = [], [], []
        for _ in range(releases):
            drawn = rows.sample(len(rows), replace=True, random_state=rng)
            release = dps.release(plan, drawn, m=100, k=50)
            curve = release.infer("stay").curve()
            tests.append(release.infer("stay").logrank().pvalue)
            by = curve["group"]
            at = np.searchsorted(edges, curve["time"])
            whole = [truth[label][i] for label, i in zip(by, at, strict=True)]
            width = [exact[label][i] for label, i in zip(by, at, strict=True)]
            held = (curve["low"] <= whole) & (whole <= curve["high"])
            found.append(
                curve.assign(held=held, wider=(curve["high"] - curve["low"]) / width)[
                    ["group", "time", "held", "wider"]
                ]
            )
            deaths = release.infer("ways").curve()
            deaths = deaths[(deaths["time"] == 15) & (deaths["event"] == "end == 'death'")]
            gaps.append(deaths["low"].max() > deaths["high"].min())
        every = pd.concat(found)
        print(f"\nepsilon = {epsilon}, {releases} releases")
        print(
            every.groupby(["group", "time"]).agg(
                held=("held", "mean"), wider=("wider", "median"), reached=("held", "size")
            )
        )
        print(every.groupby("group").agg(held=("held", "mean")))
        print("log-rank below .05:", np.mean(np.array(tests) < 0.05))
        print("intervals of deaths by 15 apart:", np.mean(gaps), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 120)
