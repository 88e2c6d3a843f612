"""Coverage of weighted regressions on numbers and on cells, in samples of units.

Outcomes of a unit share a normal deviate, whatever their means: those of the population are those
of the model. Weights have a ratio of 20 and are cut at three times their mean.
"""

import itertools

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import special, stats

import dpstats as dps
from dpstats.measured.combining import Sources
from dpstats.measured.view import View
from dpstats.privacy.noise import _noise_from

STRATA, UNITS, CAP = 30, 10, 3.0
ANALYSES = {
    "logit": dps.Logistic("ill ~ x + z"), "log": dps.Poisson("visits ~ x + z"),
    "line": dps.OLS("y ~ x + z"), "line on cells": dps.OLS("y ~ group + urban"),
    "logit on cells": dps.Logistic("ill ~ group + urban"),
}  # fmt: skip
TRUE = {
    "logit": np.array([-1.0, 1.0, 0.5]), "log": np.array([0.5, 0.5, 0.3]),
    "line": np.array([0.05, 0.1, 0.15]), "line on cells": np.array([0.05, 0.08, 0.0, 0.15]),
    "logit on cells": np.array([-1.0, 0.2, 0.0, 0.4]),
}  # fmt: skip
MEANS = {"ill": special.expit, "visits": np.exp, "y": lambda predictor: predictor}
FAMILIES = {"ill": sm.families.Binomial, "visits": sm.families.Poisson, "y": sm.families.Gaussian}
LATENT = {0.05: {"ill": 0.08, "visits": 0.055, "y": 0.05}, 0.2: {"ill": 0.31, "visits": 0.22}}
"""Correlations of the deviates at which those of responses are about .05 and .2."""
MOST = {"log": 18}  # of the ratio to the width without privacy; of others 6
BUDGETS = {"Gauss": dps.ApproxDP(3, 1e-6), "Laplace": dps.PureDP(3)}
SETTINGS = [
    (name, icc, law, unit)
    for name, icc, law in (
        *itertools.product(("logit", "log"), LATENT, BUDGETS),
        ("line", 0.05, "Laplace"), ("line on cells", 0.05, "Gauss"),
        ("logit on cells", 0.05, "Gauss"),
    )
    for unit in ("add_remove", "replace")
]  # fmt: skip


def response_of(name):
    return ANALYSES[name].formula.split(" ~ ")[0]


def regressors(frame, name):
    numbers = [frame["x"], frame["z"]]
    cells = [frame["group"] == 1, frame["group"] == 2, frame["urban"]]
    return np.column_stack([np.ones(len(frame)), *(cells if "cells" in name else numbers)])


def drawn(rng, name, n, icc):
    """A sample with weights; `z` and `urban` are of whole units."""
    size = STRATA * UNITS
    unit = np.repeat(np.arange(size), rng.multinomial(n, rng.dirichlet(np.full(size, 6.0))))
    z, weights = np.rint(100 * rng.uniform(-1, 1, size)) / 100, rng.normal(0, 0.62, n)
    frame = pd.DataFrame({
        "x": np.rint(100 * np.clip(rng.normal(0, 0.35, n), -1, 1)) / 100, "z": z[unit],
        "group": rng.integers(0, 3, n), "urban": (z < 0)[unit], "ill": False, "visits": 0, "y": 0.0,
        "w": np.exp(np.clip(weights, -1.5, 1.5) - 0.62**2 / 2),
        "unit": unit % UNITS, "stratum": unit // UNITS,
    })  # fmt: skip
    response = response_of(name)
    mean, shared = MEANS[response](regressors(frame, name) @ TRUE[name]), LATENT[icc][response]
    deviate = shared**0.5 * rng.normal(size=size)[unit] + (1 - shared) ** 0.5 * rng.normal(size=n)
    share = stats.norm.cdf(deviate)
    y = {"ill": share < mean, "y": np.rint(500 * np.clip(mean + 0.25 * deviate, -1, 1)) / 500}
    if response == "visits":
        y = {"visits": np.minimum(stats.poisson.ppf(share, mean), 12)}
    return frame.assign(**{response: y[response]})


def without_privacy(frame, name):
    """Widths of intervals whose errors are clustered in units, with the weights as they are."""
    response, units = response_of(name), frame["stratum"] * UNITS + frame["unit"]
    y, x = frame[response].to_numpy(dtype=float), regressors(frame, name).astype(float)
    model = sm.GEE(y, x, units, family=FAMILIES[response](), weights=frame["w"].to_numpy())
    return np.diff(model.fit().conf_int())[:, 0]


@pytest.mark.simulate(SETTINGS, few=[13], runs=(6, 250))
def test_weighted_regressions(setting, runs, table, tools):
    name, icc, law, relation = setting
    n, analysis, true = 15_000, ANALYSES[name], TRUE[name]
    units = {h: list(range(UNITS)) for h in range(STRATA)}
    design = dps.Design("w", mean=1, cap=CAP, strata="stratum", unit="unit", units=units)
    columns = [
        dps.Number("x", -1, 1, points=201, missing=0), dps.Boolean("ill"),
        dps.Number("z", -1, 1, points=201, missing=0), dps.Boolean("urban"),
        dps.Number("visits", 0, 12, points=13, missing=0), dps.Category("group", [0, 1, 2]),
        dps.Number("y", -1, 1, points=1001, missing=0),
    ]  # fmt: skip
    schema = dps.Schema(columns, design=design)
    plan = dps.plan(schema, {"it": analysis}, budget=BUDGETS[law], unit=relation, n=n)
    rng = np.random.default_rng(11)
    widths, plain = [], []
    with _noise_from(tools.noise_of(BUDGETS[law])(6)):
        for _ in range(runs):
            frame = drawn(rng, name, n, icc)
            sources = Sources(dps.measure(plan, frame))
            result = analysis.infer(View(sources, sources.rows.value))
            ends = np.asarray(result.conf_int())
            table.hold("term", ends, true, 0.94)
            table.reject("joint test", result.f_test((np.eye(len(true)), true)).pvalue, 0.06)
            widths.append(np.diff(ends)[:, 0])
            plain.append(without_privacy(frame, name))
    what = f"{name}, correlation {icc}, {law} {relation}"
    table.finish(what)
    widest = np.max(np.median(widths, axis=0) / np.median(plain, axis=0))
    table.check(what, "width by that without privacy", widest, most=MOST.get(name, 6))
