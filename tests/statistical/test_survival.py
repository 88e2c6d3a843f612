"""Coverage of survival curves, bands, quantiles and restricted means, and levels of log-rank tests.

Times are exponential on [0, 1], censored at a constant rate and at 1.
"""

import numpy as np
import pytest

import dpstats as dps

BINS = 20
EDGES = np.arange(1, BINS) / BINS
EXACT = 1e-9
BOXES = 50


def draw(rng, n, hazards, censoring, start=0.0):
    """Counts of rows by group, bin and event, as the table has them."""
    group = rng.integers(0, len(hazards), n)
    time = start + rng.exponential(1 / np.asarray(hazards)[group])
    censored = np.minimum(rng.exponential(1 / censoring, n), 1.0)
    bins = np.minimum((np.minimum(time, censored) * BINS).astype(int), BINS - 1)
    cells = (group * BINS + bins) * 2 + (time <= censored)
    return np.bincount(cells, minlength=len(hazards) * BINS * 2)


def asked_of(groups):
    columns = [dps.Number("t", 0, 1, edges=EDGES, missing=0), dps.Boolean("d")]
    if groups > 1:
        columns.insert(0, dps.Category("g", [str(g) for g in range(groups)]))
    return dps.Schema(columns), dps.Survival("t", "d", by="g" if groups > 1 else None)


def own_curve(counts, groups):
    """(G, J - 1) the actuarial curve of the table itself."""
    cells = counts.reshape(groups, BINS, 2)
    left = cells.sum(axis=2)
    at_risk = left[:, ::-1].cumsum(axis=1)[:, ::-1] - cells[:, :, 0] / 2
    return np.cumprod(1 - cells[:, :, 1] / np.maximum(at_risk, EXACT), axis=1)[:, :-1]


def holds(ends, truth):
    low, high = np.asarray(ends).reshape(-1, 2).T
    return (low <= truth + EXACT) & (truth - EXACT <= high)


MANY, FEW, RARE = ([2.0], 0.5), ([0.25], 0.3), ([0.02], 0.3)  # 27%, 81% and 98% are censored
COVERED = [
    ("27%", *MANY, 0.0, 500, dps.PureDP(1), "replace"),
    ("27%", *MANY, 0.0, 2_000, dps.PureDP(1), "replace"),
    ("27%", *MANY, 0.0, 50_000, dps.PureDP(1), "replace"),
    ("27%", *MANY, 0.0, 2_000, dps.PureDP(5), "add_remove"),
    ("81%", *FEW, 0.0, 500, dps.PureDP(0.3), "replace"),
    ("81%", *FEW, 0.0, 2_000, dps.PureDP(1), "replace"),
    ("81%", *FEW, 0.0, 2_000, dps.ApproxDP(1, 1e-6), "replace"),
    ("rare", *RARE, 0.0, 2_000, dps.PureDP(1), "replace"),
    ("rare", *RARE, 0.0, 20_000, dps.PureDP(0.3), "add_remove"),
    ("empty bins", [1.0], 0.5, 0.5, 2_000, dps.PureDP(1), "replace"),
    ("two groups", [2.0, 1.0], 0.5, 0.0, 2_000, dps.PureDP(1), "replace"),
    ("six groups", [1.0] * 6, 0.5, 0.0, 5_000, dps.ApproxDP(5, 1e-6), "replace"),
]


LARGEST_ERRORS = {
    ("27%", 2_000, "replace", str(dps.PureDP(1))): 0.0065,
    ("81%", 2_000, "replace", str(dps.PureDP(1))): 0.0107,
}


@pytest.mark.simulate(COVERED, few=(4,), runs=(8, 400))
def test_curves_are_covered(setting, runs, table, tools):
    name, hazards, censoring, start, n, budget, unit = setting
    groups = len(hazards)
    schema, asked = asked_of(groups)
    plan = dps.plan(
        schema, {"s": asked}, budget=budget, unit=unit, n=n if unit == "replace" else None
    )
    truth = np.exp(-np.outer(hazards, np.maximum(EDGES - start, 0))).ravel()
    horizon, tenth = EDGES[9], start - np.log(0.9) / hazards[0]
    area = min(start, horizon) + (1 - np.exp(-hazards[0] * max(horizon - start, 0))) / hazards[0]
    inside, errors, widths = [], [], []
    fresh = tools.fresh(plan, n, lambda rng: draw(rng, n, hazards, censoring, start), runs, 1)
    for run, (counts, _, view) in enumerate(fresh):
        result, own = asked.infer(view), own_curve(counts, groups).ravel()
        ends, near = np.asarray(result.conf_int()), np.array([-EXACT, EXACT])
        of_table = result.conf_int(target="table")
        inside.append((holds(ends, truth), holds(of_table, own)))
        table.hold("band", result.conf_int(simultaneous=True) + near, truth, 0.93, jointly=True)
        if run < BOXES:  # they hold far more often than they claim
            limits = result.conf_int(method="certified", target="table", simultaneous=True)
            table.hold("certified", limits + near, own, jointly=True)
        known = ~np.isnan(np.asarray(result.params))
        errors.extend((np.asarray(result.params) - own)[known])
        widths.extend(np.diff(ends)[known, 0])
        if result.curves[0].bins >= 10:
            mean = np.asarray(result.restricted_mean(horizon).conf_int()).reshape(-1, 2)
            table.hold("mean to .5", mean[0] + near, area, 0.93)
        bins = result.quantile(0.1)
        table.hold("time of a tenth", (bins["low"][0], bins["high"][0]), tenth)
    text, width = f"{name}, {budget}, {unit}, n = {n}", float(np.mean(widths))
    rates, own_rates = np.mean(inside, axis=0)
    table.covers(text, "edge least covered", round(rates.min() * runs), runs, 0.93, width=width)
    table.covers(text, "table, mean", own_rates.mean() * runs, runs, 0.94)
    table.finish(text)
    if runs < 100:
        return
    table.check(text, "mean over edges", rates.mean(), least=0.94, most=0.985, runs=runs)
    root, most = (
        np.mean(np.square(errors)) ** 0.5,
        LARGEST_ERRORS.get((name, n, unit, str(budget)), np.inf),
    )
    table.check(text, "root mean squared error to the table", root, most=most)


LEVELS = [
    ([2.0] * 2, 0.5, 500, dps.PureDP(0.3)),
    ([2.0] * 2, 0.5, 2_000, dps.PureDP(1)),
    ([0.25] * 2, 0.3, 2_000, dps.PureDP(1)),
    ([0.25] * 3, 0.3, 10_000, dps.ApproxDP(1, 1e-6)),
    ([1.0] * 6, 0.5, 2_000, dps.PureDP(5)),
    ([0.02] * 2, 0.3, 20_000, dps.PureDP(1)),
]


@pytest.mark.simulate(LEVELS, few=(1,), runs=(10, 1_000))
def test_log_rank_tests_keep_their_level(setting, runs, table, tools):
    hazards, censoring, n, budget = setting
    schema, asked = asked_of(len(hazards))
    plan = dps.plan(schema, {"s": asked}, budget=budget, n=n)
    for *_, view in tools.fresh(plan, n, lambda rng: draw(rng, n, hazards, censoring), runs, 2):
        pvalue = asked.infer(view).logrank().pvalue
        table.reject("log-rank", pvalue, 0.06)
        table.reject("log-rank, .01", pvalue, 0.015, alpha=0.01)
    table.finish(f"{len(hazards)} groups, {budget}, n = {n}")


@pytest.mark.simulate([dps.PureDP(1)], few=(0,), runs=(6, 400))
def test_persons_with_several_rows_are_covered(setting, runs, table, tools):
    """Three rows of each person that are all alike, as the bound allows."""
    n, hazards = 3_000, [1.0]
    schema, asked = asked_of(1)
    plan = dps.plan(schema, {"s": asked}, budget=setting, n=n, rows_per_person=3, person="id")
    truth = np.exp(-EDGES)
    for *_, view in tools.fresh(plan, n, lambda rng: 3 * draw(rng, n // 3, hazards, 0.5), runs, 3):
        table.hold("edge", asked.infer(view).conf_int(), truth, 0.93)
    table.finish(setting)
