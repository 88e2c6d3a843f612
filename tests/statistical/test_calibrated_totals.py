"""Coverage of numbers of people where weights add up to known totals."""

import numpy as np
import pandas as pd
import pytest

import dpstats as dps

SEXES, REGIONS = {"f": 51_000, "m": 49_000}, {"a": 50_000, "b": 30_000, "c": 20_000}
MEN, HIGH = SEXES["m"] / 100_000, 60.0
TRUTH = {
    "ill": 0.2 + 0.1 * MEN + 0.05 * 0.7,  # regions add 0, .05 and .1
    "ill men": MEN * (0.3 + 0.05 * 0.7),
}
TOTALS = [
    dps.Total(f"{name} == '{level}'", count, of="population")
    for name, counts in (("sex", SEXES), ("region", REGIONS)) for level, count in counts.items()
]  # fmt: skip
UNITS = {h: list(range(4)) for h in range(15)}
ASKED = {
    "ill": dps.Proportion("ill"),
    "ill men": dps.GroupMeans("ill", by="sex", groups=["f", "m"]),
}
SETTINGS = [
    (budget, unit) for budget in (dps.PureDP(2), dps.ApproxDP(2, 1e-6))
    for unit in ("add_remove", "replace")
]  # fmt: skip


def sample_of(rng):
    """Rows of 60 units whose response depends on sex and region, with weights raked to both."""
    unit = np.repeat(np.arange(60), 100)
    sex = rng.choice(["f", "m"], len(unit), p=[1 - MEN, MEN])
    region = rng.choice(list(REGIONS), len(unit), p=[0.5, 0.3, 0.2])
    risk = 0.2 + 0.1 * (sex == "m") + 0.05 * (region == "b") + 0.1 * (region == "c")
    ill = rng.random(len(unit)) < risk + rng.uniform(-0.12, 0.12, 60)[unit]
    rows = pd.DataFrame({"sex": sex, "region": region, "ill": ill, "h": unit // 4, "u": unit % 4})
    rows = rows[rng.random(len(rows)) < np.where(sex == "m", 0.4, 0.8)].reset_index(drop=True)
    weights = rng.lognormal(0, 0.3, len(rows))
    for _ in range(40):
        for name, counts in (("sex", SEXES), ("region", REGIONS)):
            inside = rows[name].to_numpy()
            sums = {level: weights[inside == level].sum() for level in counts}
            weights = weights * [counts[level] / sums[level] for level in inside]
        weights = np.minimum(weights, HIGH)
    return rows.assign(w=weights)


@pytest.mark.simulate(SETTINGS, few=[3], runs=(6, 500))
def test_known_totals_leave_intervals_of_numbers_of_people_valid(setting, runs, table):
    budget, relation = setting
    rng, widths = np.random.default_rng(5), np.empty((2, runs, len(ASKED)))
    design = dps.Design("w", mean=30, cap=HIGH, high=HIGH, strata="h", unit="u", units=UNITS)
    columns = [dps.Category("sex", list(SEXES)), dps.Category("region", list(REGIONS))]
    for run in range(runs):
        rows = sample_of(rng)
        for known in (0, 1):
            totals = TOTALS if known else []
            schema = dps.Schema([*columns, dps.Boolean("ill")], design=design, totals=totals)
            plan = dps.plan(schema, ASKED, budget=budget, unit=relation, n=len(rows))
            release = dps.release(plan, rows, m=2, k=10)
            for i, name in enumerate(ASKED):
                found = release.infer(name).totals().conf_int()
                ends = np.asarray(found).reshape(-1, 2)[-1]
                widths[known, run, i] = np.diff(ends)[0]
                if known:
                    table.hold(name, ends, 100_000 * TRUTH[name], 0.94)
    what = f"{budget.kind} {relation}"
    table.finish(what)
    without, with_totals = np.median(widths, axis=1)
    for name, ratio in zip(ASKED, with_totals / without, strict=True):
        table.check(what, f"width of {name} by that without totals", ratio, most=1.0)
