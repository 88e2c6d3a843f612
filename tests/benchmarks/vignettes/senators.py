"""The figures that vignettes/senators.md quotes: many releases with the real noise.

    python tests/benchmarks/vignettes/senators.py [releases]

Every release is of a fresh table, drawn with replacement from that of the vignette.
"""

import numpy as np
from defined import names_of, numbers, show
from statsmodels.duration.survfunc import SurvfuncRight, survdiff

import dpstats as dps


def actuarial(years, left, edges):
    """Survival after each edge, with half of the censored of a bin at risk in it."""
    bins = np.searchsorted(edges, years, side="right")
    events, others = (np.bincount(bins[x], minlength=len(edges) + 1) for x in (left, ~left))
    at_risk = (events + others)[::-1].cumsum()[::-1] - others / 2
    return np.cumprod(1 - events / at_risk)[:-1]


(releases,) = numbers(120)
scope = names_of("senators", before="SurvfuncRight(part")
schema, rows = scope["schema"], scope["rows"]
edges, truth, exact = np.array(schema["years"].edges), {}, {}
for term, part in rows.groupby("term"):
    left = (part["end"] != "in office").to_numpy()
    public = SurvfuncRight(part["years"], left)
    at = np.searchsorted(public.surv_times, edges, side="right") - 1
    truth[f"term={term}"] = actuarial(part["years"].to_numpy(), left, edges)
    exact[f"term={term}"] = 2 * 1.96 * public.surv_prob_se[at]
print("exact log-rank:", survdiff(rows["years"], rows["end"] != "in office", rows["term"]))
asked, found = {"stay": scope["stay"], "ways": scope["ways"]}, []
plan = dps.plan(schema, asked, budget=dps.PureDP(1))
for _ in range(releases):
    release = dps.release(plan, rows.sample(len(rows), replace=True), m=100, k=50)
    stay, deaths = release.infer("stay"), release.infer("ways").curve()
    figures = {"log-rank below .05": stay.logrank().pvalue < 0.05}
    for at in stay.curve().itertuples():
        place = np.searchsorted(edges, at.time)
        held = at.low <= truth[at.group][place] <= at.high
        figures |= {(at.group, at.time, "held"): held,
                    (at.group, at.time, "wider"): (at.high - at.low) / exact[at.group][place],
                    }  # fmt: skip
    figures["held"] = np.mean([one for key, one in figures.items() if key[-1] == "held"])
    deaths = deaths[(deaths["time"] == 15) & (deaths["event"] == "end == 'death'")]
    found.append(figures | {"deaths by 15 apart": deaths["low"].max() > deaths["high"].min()})
show("epsilon 1", found)
