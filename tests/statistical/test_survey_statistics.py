"""Quantiles, ratios, chi-square tests and survival curves of redrawn surveys.

Finite populations have 300 units a stratum with effects of their own. Units are drawn, then rows
with weights whose largest is 20 times the smallest, cut at three times their mean.
"""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dps
from dpstats.privacy.noise import _noise_from

CAP = 3.0
# strata, units drawn, rows of a unit
DESIGNS = {"few15k": (30, 2, 250), "many2k": (10, 8, 25), "many15k": (30, 10, 50)}
BUDGETS = {"Laplace": dps.PureDP(1), "Gaussian": dps.ZCDP(0.0276)}
WEIGHTS = np.exp(np.clip(0.62 * stats.norm.ppf((np.arange(60) + 0.5) / 60), -1.5, 1.5))
WEIGHTS /= WEIGHTS.mean()


def schema_of(columns, design):
    strata, drawn, _ = DESIGNS[design]
    units = {h: list(range(drawn)) for h in range(strata)}
    mean = float(np.minimum(WEIGHTS, CAP).mean())
    return dps.Schema(columns, design=dps.Design(
        "w", mean=mean, cap=CAP, strata="s", unit="u", units=units))  # fmt: skip


def drawn(effects, size, rng):
    """Rows of a sample, with the effects (..., n) of their unit in the population."""
    strata, units, per_unit = size
    chosen = np.argsort(rng.random(effects.shape[-2:]), axis=1)[:, :units]
    chosen = np.broadcast_to(chosen, (*effects.shape[:-2], *chosen.shape))
    of_units = np.take_along_axis(effects, chosen, -1).reshape(*effects.shape[:-2], -1)
    rows = np.maximum(5, rng.poisson(rng.gamma(6, per_unit / 6, strata * units)))
    unit = np.repeat(np.arange(strata * units), rows)
    return SimpleNamespace(
        effect=of_units[..., unit], unit=unit,
        frame=pd.DataFrame({"w": rng.choice(WEIGHTS, len(unit)), "s": unit // units,
                            "u": unit % units}),
    )  # fmt: skip


def releases(columns, analysis, setting, complete, runs, tools, icc=0.05, numbers=()):
    """Results of an analysis of redrawn surveys, whose rows `complete` fills in."""
    design, law, unit = setting
    schema, size = schema_of(columns, design), DESIGNS[design]
    rng = np.random.default_rng(5)
    effects = rng.normal(size=(*numbers, size[0], 300)) * icc**0.5
    with _noise_from(tools.noise_of(BUDGETS[law])(4)):
        for _ in range(runs):
            sample = drawn(effects, size, rng)
            rows = sample.frame.assign(**complete(sample, rng))
            plan = dps.plan(
                schema, {"x": analysis}, budget=BUDGETS[law], unit=unit, reference=dps.Uniform(),
                n=int(np.prod(size)) if unit == "add_remove" else len(rows),
            )  # fmt: skip
            yield effects, dps.release(plan, rows, rng=0, m=2, k=10).infer("x")


def normal_shares(effects, cuts, icc=0.05):
    """Shares of a population below normal points, whose units have these effects."""
    return stats.norm.cdf((np.asarray(cuts)[:, None, None] - effects) / (1 - icc) ** 0.5).mean(
        (1, 2)
    )


SETTINGS = [
    (d, law, unit) for d in ("few15k", "many2k") for law in BUDGETS
    for unit in ("add_remove", "replace")
]  # fmt: skip
RATIOS = [
    (icc, "many15k", law, unit) for icc in (0.05, 0.2) for law in BUDGETS
    for unit in ("add_remove", "replace")
]  # fmt: skip


@pytest.mark.simulate(SETTINGS, few=(0,), runs=(8, 300))
def test_level_of_rao_scott(setting, runs, table, tools):
    """A trait with clusters, by groups that partly follow units: independent in the population."""

    def complete(sample, rng):
        group = rng.choice(3, len(sample.unit), p=[0.5, 0.3, 0.2])
        group = np.where(rng.random(len(group)) < 0.3, sample.unit % 3, group)
        below = stats.norm.cdf((stats.norm.ppf(0.3) - sample.effect) / 0.95**0.5)
        return {"g": group, "y": rng.random(len(below)) < below}

    columns = [dps.Category("g", [0, 1, 2]), dps.Boolean("y")]
    asked = dps.Independence("g", "y")
    for _, result in releases(columns, asked, setting, complete, runs, tools):
        table.reject("Rao-Scott", result.pvalue, 0.06)
    table.finish(", ".join(setting))


@pytest.mark.simulate(SETTINGS, few=(0,), runs=(8, 300))
def test_quantiles(setting, runs, table, tools):
    """Coverage of the distribution function at three edges of 32 bins, and of quantiles."""

    def complete(sample, rng):
        return {"x": stats.norm.cdf(sample.effect + 0.95**0.5 * rng.normal(size=len(sample.unit)))}

    edges, some = np.arange(1, 32) / 32, [9, 15, 21]
    columns = [dps.Number("x", 0, 1, edges=edges, missing=0)]
    asked = dps.Quantile("x", [0.3, 0.5, 0.7])
    for effects, result in releases(columns, asked, setting, complete, runs, tools):
        shares = normal_shares(effects, stats.norm.ppf(edges))
        frame = result.distribution()
        table.hold("F", frame[["low", "high"]].to_numpy()[some], shares[some], 0.93)
        quantiles = np.interp(asked.probability, shares, edges)
        table.hold("quantile", result.conf_int(), quantiles)
    table.finish(", ".join(setting))


@pytest.mark.simulate(SETTINGS, few=(0,), runs=(8, 300))
def test_survival(setting, runs, table, tools):
    """Coverage of curves of two groups and of their difference; level of the log-rank test.

    Times have clusters and groups follow units in part, but hazards are the same in both.
    """

    def complete(sample, rng):
        left = stats.norm.cdf(sample.effect + 0.95**0.5 * rng.normal(size=len(sample.unit)))
        died, gone = -np.log(left) / 0.1, rng.exponential(20, len(left))
        group = rng.random(len(left)) < np.where(sample.unit % 2, 0.4, 0.6)
        return {"t": np.minimum(died, gone), "died": died <= gone, "g": group}

    edges, some = [1, 2, 4, 7, 11, 16], [0, 2, 4]
    columns = [
        dps.Number("t", 0, 30, edges=edges, missing=0), dps.Boolean("died"), dps.Boolean("g"),
    ]  # fmt: skip
    asked = dps.Survival("t", "died", by="g")
    for effects, result in releases(columns, asked, setting, complete, runs, tools):
        own = normal_shares(effects, stats.norm.ppf(np.exp(-0.1 * np.array(edges))))[some]
        table.hold("S", np.asarray(result.conf_int())[some], own, 0.93)
        if all(curve.bins > 2 for curve in result.curves):
            table.hold("difference at 4", result.differences(time=4).conf_int(), 0, 0.93)
        table.reject("log-rank", result.logrank().pvalue, 0.06)
    table.finish(", ".join(setting))


@pytest.mark.simulate(RATIOS, few=(7,), runs=(8, 300))
def test_ratios(setting, runs, table, tools):
    """Costs and incomes that have clusters; widths beside those without privacy."""
    icc, plain, at = setting[0], [], np.linspace(-6, 6, 2_001)
    shapes = [stats.beta.ppf(stats.norm.cdf(at), a, b) for a, b in ((2, 5), (3, 4))]
    strata, units, _ = DESIGNS[setting[1]]

    def values(effects, rest):
        first, second = effects
        z = np.array([0.8 * first + 0.6 * second, second]) + (1 - icc) ** 0.5 * rest
        y, x = (np.interp(own, at, shape) for own, shape in zip(z, shapes, strict=True))
        return np.rint(200 * y) / 200, np.rint(400 * x) / 400

    def complete(sample, rng):
        y, x = values(sample.effect, rng.normal(size=sample.effect.shape))
        w = np.minimum(sample.frame["w"].to_numpy(), CAP)
        linear = np.bincount(sample.unit, w * (y - w @ y / (w @ x) * x)).reshape(strata, units)
        variance = linear.var(axis=1, ddof=1).sum() * units
        t = stats.t.ppf(0.975, strata * (units - 1))
        plain.append(2 * t * variance**0.5 / (w @ x))
        return {"y": y, "x": x}

    columns = [dps.Number(name, 0, 1, points=points, missing=0)
               for name, points in (("y", 201), ("x", 401))]  # fmt: skip
    effects, results = zip(*releases(
        columns, dps.Ratio("y", "x"), setting[1:], complete, runs, tools, icc, numbers=(2,)
    ), strict=True)  # fmt: skip
    low, high = np.array([result.conf_int() for result in results]).T
    y, x = values(effects[0][..., np.newaxis], stats.norm.ppf((np.arange(100) + 0.5) / 100))
    truth, ratio = y.sum() / x.sum(), float(np.median((high - low) / plain))
    name, inside = ", ".join(map(str, setting)), np.sum((low <= truth) & (truth <= high))
    table.covers(name, "width by that without privacy", inside, runs, 0.93, ratio)
