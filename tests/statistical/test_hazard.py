"""Coverage and level of hazard regression: a treatment, and a number in four bins."""

import numpy as np
import pytest

import dpstats as dps

EDGES = [round(0.1 * j, 1) for j in range(1, 20)]
SCHEMA = dps.Schema([
    dps.Number("time", 0, 2, points=2_001, edges=EDGES, missing=0), dps.Boolean("event"),
    dps.Boolean("arm"), dps.Number("age", 0, 4, points=401, edges=[1, 2, 3], missing=0),
])  # fmt: skip
ANALYSIS = dps.Hazard("time, event ~ arm + age")
SETTINGS = [
    (n, budget, censored, unit)
    for n in (2_000, 20_000)
    for budget in (dps.PureDP(1), dps.ApproxDP(1, 1e-6))
    for censored, unit in ((0.3, "replace"), (0.8, "add_remove"))
]
# Largest share of tables without an estimate, .01 in the other settings.
LOST = {(2_000, "approx", "replace"): 0.09}
RATIO = -0.5  # of the treatment, in logarithms
SLOPE = 0.25  # of age; a ratio of 2.7 from one end to the other


def draw(n, censored):
    """Codes of n rows: exponential times, and censoring that leaves a share without an event."""
    rate, until = {0.3: (1.3, 0.33), 0.8: (0.18, 0.28)}[censored]

    def rows(rng):
        arm, age = rng.random(n) < 0.5, 4 * rng.random(n)
        event = rng.exponential(1 / (rate * np.exp(RATIO * arm + SLOPE * (age - 2))))
        end = np.minimum(rng.exponential(1 / until, n), 2)
        columns = {"time": np.minimum(event, end), "event": event < end, "arm": arm, "age": age}
        return {
            name: SCHEMA[name].encode_numbers(x) if x.dtype == float else x.astype(np.int64)
            for name, x in columns.items()
        }

    return rows


@pytest.mark.simulate(SETTINGS, few=[0], runs=(6, 600))
def test_intervals_of_a_hazard_ratio_cover_and_tests_have_their_level(setting, runs, table, tools):
    n, budget, censored, unit = setting
    plan = dps.plan(SCHEMA, {"it": ANALYSIS}, budget=budget, unit=unit)
    lost, hits, events = 0, 0, []
    for drawn, _, view in tools.fresh(plan, n, draw(n, censored), runs, 11):
        found = ANALYSIS.infer(view)
        ends = np.asarray(found.conf_int())
        table.hold("coefficient", ends, [RATIO, SLOPE], 0.94)
        table.reject("joint test", found.f_test((np.eye(2), [RATIO, SLOPE])).pvalue, 0.055)
        hits += ends[0, 0] <= RATIO <= ends[0, 1]
        lost += not found.converged
        events.append(float(drawn["event"].mean()))
    what = f"n = {n}, {budget.kind} {unit}, {censored:.0%} censored"
    table.row(what, "censored", 1 - float(np.mean(events)))
    table.finish(what)
    table.row(what, "treatment, with an estimate", (hits - lost) / (runs - lost))
    if runs > 500:  # few may all cover
        table.level(what, "treatment, not too wide", hits, runs, rate=0.97)
    most = LOST.get((n, budget.kind, unit), 0.01)
    table.check(what, "without an estimate", lost / runs, most=most)
