"""Coverage of ratios of two sums of independent rows; of surveys see test_survey_statistics."""

import numpy as np
import pytest

import dpstats as dps

ROWS = 200_000  # of the population that rows are drawn from
SCHEMA = dps.Schema([
    dps.Number("y", 0, 1, points=201, missing=0), dps.Number("x", 0, 1, points=401, missing=0),
])  # fmt: skip
BUDGETS = (dps.PureDP(0.3), dps.PureDP(1), dps.ApproxDP(1, 1e-6))


def population(law):
    """Values (2, ROWS) of y and x in [0, 1]."""
    rng = np.random.default_rng(3)
    x = rng.gamma(3, 0.08, ROWS)
    if law == "proportional":
        y = 0.6 * x * rng.gamma(6, 1 / 6, ROWS)
    elif law == "many zeros":
        y = np.where(rng.random(ROWS) < 0.7, 0, rng.beta(2, 4, ROWS))
        x = np.where(rng.random(ROWS) < 0.2, 0, x)
    else:  # little variance
        x, y = rng.normal(0.5, 0.03, ROWS), rng.normal(0.3, 0.02, ROWS)
    return np.clip([y, x], 0, 1)


LAWS = ("proportional", "many zeros", "narrow")
SETTINGS = [
    (law, n, budget, unit)
    for law in LAWS for n in (500, 20_000) for budget in BUDGETS
    for unit in ("add_remove", "replace")
]  # fmt: skip


@pytest.mark.simulate(SETTINGS, few=(5, 19), runs=(30, 300))
def test_ratios_of_independent_rows(setting, runs, table, tools):
    """The noise-aware one by its test, which is quicker; for the table, and certified, by limits.

    The sampling part is that of the t interval, an approximation: .93 is asked for.
    """
    law, n, budget, unit = setting
    every = [np.rint((2 * v - 1) * (c.points - 1) / 2).astype(np.int64) for v, c in
             zip(population(law), SCHEMA, strict=True)]  # fmt: skip
    values = [code / (c.points - 1) + 0.5 for code, c in zip(every, SCHEMA, strict=True)]
    truth, of_rows = values[0].sum() / values[1].sum(), []

    def draw(rng):
        chosen = rng.integers(ROWS, size=n)
        of_rows.append(values[0][chosen].sum() / values[1][chosen].sum())
        return {"y": every[0][chosen], "x": every[1][chosen]}

    analysis = dps.Ratio("y", "x")
    plan = dps.plan(SCHEMA, {"it": analysis}, budget=budget, unit=unit)
    found = {"noise_aware": 0, "certified": 0, "table": 0, "certified, table": 0}
    widths, some = [], 0
    for run, (*_, view) in enumerate(tools.fresh(plan, n, draw, runs, 7)):
        result = analysis.infer(view)
        found["noise_aware"] += result.test(truth).pvalue > 0.05
        if run % 3:
            continue
        some += 1
        widths.append(np.ptp(result.conf_int()))
        for name, value, options in (
            ("certified", truth, {"method": "certified"}),
            ("table", of_rows[-1], {"target": "table"}),
            ("certified, table", of_rows[-1], {"target": "table", "method": "certified"}),
        ):
            low, high = result.conf_int(**options)
            found[name] += low <= value <= high
    name = f"{law}, n = {n}, {budget}, {unit}"
    for method, inside in found.items():
        all_runs = runs if method == "noise_aware" else some
        table.covers(name, method, inside, all_runs, 0.93, float(np.median(widths)))
