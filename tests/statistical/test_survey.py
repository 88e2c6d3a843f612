"""Coverage of shares from samples of units with informative weights, by contrasts of the units."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import dpstats as dps
from dpstats.families.contrasts import UNIT
from dpstats.inference.simulation import draw_from
from dpstats.measured.combining import Sources
from dpstats.measured.measurements import Measurements
from dpstats.measured.view import View
from dpstats.schema.design import STEPS

WEIGHTS = np.array([0.25, 0.5, 1, 2, 4]) / 1.55  # of equally likely kinds of rows, of mean one
EFFECTS = np.array([0.8, 0.9, 1, 1.1, 1.2])  # of the kind on the share
ICC = 0.05
ANALYSIS = dps.Proportion("y")
SETTINGS = [
    (strata, units, rows, budget, unit)
    for strata, units, rows in ((20, 2, 50), (15, 3, 100), (30, 10, 50))
    for budget in (dps.PureDP(1), dps.ApproxDP(1, 1e-6))
    for unit in ("add_remove", "replace")
]
MOST = {2_000: 1.65, 4_500: 1.65, 15_000: 1.2}  # of the ratio to the width without privacy


def shares_of_strata(strata):
    return 0.3 * np.exp(np.linspace(-0.4, 0.4, strata))


def drawn(strata, units, rows, rng):
    """Kind, value and number of the unit of every row; units have shares of their own."""
    means, k = np.repeat(shares_of_strata(strata), units), (1 - ICC) / ICC
    shares = rng.beta(k * means, k * (1 - means))
    unit = np.repeat(np.arange(strata * units), np.maximum(rng.poisson(rows, strata * units), 1))
    kind = rng.integers(len(WEIGHTS), size=len(unit))
    return unit, kind, rng.random(len(unit)) < shares[unit] * EFFECTS[kind]


def without_privacy(strata, units, sample):
    """Width of the linearised t interval."""
    unit, kind, y = sample
    w = WEIGHTS[kind]
    z = np.bincount(unit, w * (y - np.average(y, weights=w)), strata * units)
    z = z.reshape(strata, units)
    variance = units / (units - 1) * np.sum((z - z.mean(axis=1, keepdims=True)) ** 2)
    return 2 * stats.t.ppf(0.975, strata * (units - 1)) * np.sqrt(variance) / w.sum()


@pytest.mark.simulate(SETTINGS, few=[0, 5, 7, 11], runs=(250, 2_000))
def test_intervals_of_a_survey_cover(setting, runs, table):
    strata, units, rows, budget, relation = setting
    n = strata * units * rows
    design = dps.Design(
        "w", mean=1, cv=WEIGHTS.std(), high=WEIGHTS.max(), strata="h", unit="u",
        units={h: list(range(units)) for h in range(strata)},
    )  # fmt: skip
    schema = dps.Schema([dps.Boolean("y")], design=design)
    plan = dps.plan(schema, {"it": ANALYSIS}, budget=budget, unit=relation, n=n)
    strategy, cap = replace(plan.strategy, n=None), plan.schema.design.cap
    coded = np.rint(np.minimum(WEIGHTS / cap, 1) * STEPS)
    codes = plan.schema.design.pairs.codes
    unit_codes = np.repeat([codes[h, u] for h in range(strata) for u in range(units)], 2)
    points = {"y": np.tile([0, 1], strata * units), UNIT: unit_codes}
    blocks = [planned.block for planned in strategy.blocks]
    functions = np.concatenate(
        [np.broadcast_to(b.functions(points), (b.size, len(unit_codes))) for b in blocks]
    ).astype(float)
    scales = np.concatenate(strategy.block_scales)
    truth = shares_of_strata(strata).mean() * np.average(EFFECTS, weights=WEIGHTS)
    rng, hits, errors, widths, plain = np.random.default_rng(7), 0, [], [], []
    for _ in range(runs):
        sample = drawn(strata, units, rows, rng)
        unit, kind, y = sample
        sums = functions @ np.bincount(2 * unit + y, coded[kind], len(unit_codes))
        for scale in np.unique(scales):
            same = np.flatnonzero(scales == scale)
            sums[same] += draw_from(budget.law(float(scale)), len(same), rng)
        noisy, uniforms = np.rint(sums).astype(np.int64), rng.random(len(sums)) - 0.5
        held = Measurements(strategy, noisy, uniforms, not_private=True)
        found = ANALYSIS.infer(View(Sources(held), held.n))
        low, high = found.conf_int()
        hits += low <= truth <= high
        errors.append(float(found) - truth)
        widths.append(high - low)
        plain.append(without_privacy(strata, units, sample))
    what = f"n = {n}, {units} units a stratum, {budget.kind} {relation}"
    ratio = float(np.median(widths) / np.median(plain))
    table.covers(what, "share", hits, runs, rate=0.94, width=float(np.median(widths)))
    table.check(what, "width by that without privacy", ratio, most=MOST[n])
    bias = abs(np.mean(errors)) / np.std(errors)
    table.check(what, "bias in standard errors", bias, most=0.35 + 5 / np.sqrt(runs))
