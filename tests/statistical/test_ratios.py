"""Coverage of ratios of two sums, of independent rows and of redrawn surveys."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dps
from dpstats.privacy.noise import _noise_from

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


@pytest.mark.simulate(SETTINGS, few=(0, 5, 19), runs=(60, 1_000))
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


WEIGHTS = np.exp(np.clip(0.62 * stats.norm.ppf((np.arange(60) + 0.5) / 60), -1.5, 1.5))
WEIGHTS /= WEIGHTS.mean()  # the largest is 20 times the least
CAP = 3.0
STRATA, UNITS, PER_UNIT = 30, 10, 50
SURVEYS = [
    (icc, budget, unit) for icc in (0.05, 0.2) for budget in BUDGETS[1:]
    for unit in ("add_remove", "replace")
]  # fmt: skip


@pytest.mark.simulate(SURVEYS, few=(0, 7), runs=(25, 300))
def test_ratios_of_surveys(setting, runs, table, tools):
    """Costs and incomes that have clusters, of 15,000 rows; widths beside those of no privacy."""
    icc, budget, unit = setting
    design = dps.Design(
        "w", mean=float(np.minimum(WEIGHTS, CAP).mean()), cap=CAP, strata="s", unit="u",
        units={h: list(range(UNITS)) for h in range(STRATA)},
    )  # fmt: skip
    schema = dps.Schema(SCHEMA.columns, design=design)
    n, rng = STRATA * UNITS * PER_UNIT, np.random.default_rng(11)
    effects = rng.normal(size=(2, STRATA, 300)) * icc**0.5
    effects[0] = 0.6 * effects[1] + 0.8 * effects[0]

    at = np.linspace(-6, 6, 2_001)
    shapes = [stats.beta.ppf(stats.norm.cdf(at), a, b) for a, b in ((2, 5), (3, 4))]

    def values(z):
        y, x = (np.interp(own, at, shape) for own, shape in zip(z, shapes, strict=True))
        return np.rint(200 * y) / 200, np.rint(400 * x) / 400

    size = (2, STRATA, 300, 100)
    y, x = values(effects[..., None] + (1 - icc) ** 0.5 * rng.normal(size=size))
    truth = y.sum() / x.sum()
    analysis = dps.Ratio("y", "x")
    plan = dps.plan(schema, {"r": analysis}, budget=budget, unit=unit, n=n, reference=dps.Uniform())
    inside, widths = 0, []
    noise = (tools.Laplace if budget.noise == "laplace" else tools.Gaussian)(3)
    with _noise_from(noise):
        for _ in range(runs):
            chosen = np.argsort(rng.random((STRATA, 300)), axis=1)[:, :UNITS]
            own = [np.take_along_axis(e, chosen, 1).ravel() for e in effects]
            number = np.repeat(np.arange(STRATA * UNITS), PER_UNIT)
            z = np.array(own)[:, number] + (1 - icc) ** 0.5 * rng.normal(size=(2, n))
            y, x = values(z)
            w = rng.choice(WEIGHTS, n)
            frame = pd.DataFrame(
                {"y": y, "x": x, "w": w, "s": number // UNITS, "u": number % UNITS}
            )
            low, high = dps.release(plan, frame, rng=0, m=2, k=10).infer("r").conf_int()
            inside += low <= truth <= high
            w = np.minimum(w, CAP)
            linear = np.bincount(number, w * (y - w @ y / (w @ x) * x)).reshape(STRATA, UNITS)
            variance = UNITS / (UNITS - 1) * linear.var(axis=1).sum() * UNITS
            t = stats.t.ppf(0.975, STRATA * (UNITS - 1))
            widths.append((high - low) / (2 * t * variance**0.5 / (w @ x)))
    name = f"icc {icc}, {budget}, {unit}"
    table.covers(name, "noise_aware", inside, runs, 0.93, float(np.median(widths)))
