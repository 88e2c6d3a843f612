"""Coverage of weighted logistic and Poisson regressions on numbers, in samples of units.

Outcomes of a unit share a normal deviate, whatever their means: those of the population are those
of the model. Weights have a ratio of 20 and are cut at three times their mean.
"""

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

import dpstats as dps
from dpstats.measured.combining import Sources
from dpstats.measured.view import View
from dpstats.privacy.noise import _noise_from

STRATA, UNITS, CAP = 30, 10, 3.0
ANALYSES = {"logit": dps.Logistic("ill ~ x + z"), "log": dps.Poisson("visits ~ x + z")}
TRUE = {"logit": np.array([-1.0, 1.0, 0.5]), "log": np.array([0.5, 0.5, 0.3])}
LATENT = {0.05: {"logit": 0.08, "log": 0.055}, 0.2: {"logit": 0.31, "log": 0.22}}
"""Correlations of the deviates at which those of outcomes are about .05 and .2."""
MOST = {"logit": 6, "log": 18}  # of the ratio to the width without privacy
BUDGETS = {"Gauss": dps.ApproxDP(3, 1e-6), "Laplace": dps.PureDP(3)}
SETTINGS = [
    (link, icc, law, unit) for link in ANALYSES for icc in LATENT for law in BUDGETS
    for unit in ("add_remove", "replace")
]  # fmt: skip


def drawn(rng, link, n, icc):
    """A sample with weights; `x` is of rows, `z` of whole units."""
    size = STRATA * UNITS
    unit = np.repeat(np.arange(size), rng.multinomial(n, rng.dirichlet(np.full(size, 6.0))))
    x = np.rint(100 * np.clip(rng.normal(0, 0.35, n), -1, 1)) / 100
    z = (np.rint(100 * rng.uniform(-1, 1, size)) / 100)[unit]
    predictor = np.column_stack([np.ones(n), x, z]) @ TRUE[link]
    shared = LATENT[icc][link]
    deviate = shared**0.5 * rng.normal(size=size)[unit] + (1 - shared) ** 0.5 * rng.normal(size=n)
    share = stats.norm.cdf(deviate)
    y = share < special.expit(predictor)
    if link == "log":
        y = np.minimum(stats.poisson.ppf(share, np.exp(predictor)), 12)
    weights = np.exp(np.clip(rng.normal(0, 0.62, n), -1.5, 1.5))
    return pd.DataFrame({
        "x": x, "z": z, "ill": y > 0, "visits": y, "w": weights / np.exp(0.62**2 / 2),
        "unit": unit % UNITS, "stratum": unit // UNITS,
    })  # fmt: skip


def without_privacy(frame, link):
    """Widths of the linearised t intervals, with the weights as they are."""
    x = np.column_stack([np.ones(len(frame)), frame["x"], frame["z"]])
    y = frame["ill" if link == "logit" else "visits"].to_numpy(dtype=float)
    mean = {"logit": special.expit, "log": np.exp}[link]
    w, b = frame["w"].to_numpy(), TRUE[link]
    for _ in range(8):
        m = mean(x @ b)
        slope = m * (1 - m) if link == "logit" else m
        inverse = np.linalg.inv((x.T * (w * slope)) @ x)
        b = b + inverse @ (x.T @ (w * (y - m)))
    scores = pd.DataFrame(x * (w * (y - mean(x @ b)))[:, np.newaxis] @ inverse)
    totals = scores.groupby([frame["stratum"], frame["unit"]]).sum()
    covariance = sum(len(own) * np.cov(own.T, ddof=1) for _, own in totals.groupby(level=0))
    return 2 * stats.t.ppf(0.975, STRATA * (UNITS - 1)) * np.sqrt(np.diag(covariance))


@pytest.mark.simulate(SETTINGS, few=[0, 7, 13], runs=(30, 250))
def test_regressions_on_numbers(setting, runs, table, tools):
    link, icc, law, relation = setting
    n, analysis = 15_000, ANALYSES[link]
    units = {h: list(range(UNITS)) for h in range(STRATA)}
    design = dps.Design("w", mean=1, cap=CAP, strata="stratum", unit="unit", units=units)
    columns = [
        dps.Number("x", -1, 1, points=201, missing=0), dps.Boolean("ill"),
        dps.Number("z", -1, 1, points=201, missing=0),
        dps.Number("visits", 0, 12, points=13, missing=0),
    ]  # fmt: skip
    schema = dps.Schema(columns, design=design)
    plan = dps.plan(schema, {"it": analysis}, budget=BUDGETS[law], unit=relation, n=n)
    rng = np.random.default_rng(11)
    inside, widths, plain = [], [], []
    noise = (tools.Laplace if law == "Laplace" else tools.Gaussian)(6)
    with _noise_from(noise):
        for _ in range(runs):
            frame = drawn(rng, link, n, icc)
            sources = Sources(dps.measure(plan, frame))
            low, high = np.asarray(analysis.infer(View(sources, sources.rows.value)).conf_int()).T
            inside.append((low <= TRUE[link]) & (TRUE[link] <= high))
            widths.append(high - low)
            plain.append(without_privacy(frame, link))
    name = f"{link}, correlation {icc}, {law} {relation}"
    ratios = np.median(widths, axis=0) / np.median(plain, axis=0)
    for term, hits, width, ratio in zip(
        ("Intercept", "x", "z"), np.sum(inside, axis=0), np.median(widths, axis=0), ratios,
        strict=True,
    ):  # fmt: skip
        table.covers(name, term, hits, runs, 0.94, float(width))
        table.check(name, f"{term}, width by that without privacy", float(ratio), most=MOST[link])
