"""Surveys: coverage and width of weighted shares, and the error of the cap that a plan chooses.

    python tests/benchmarks/survey.py intervals [--runs 500] [--only 2k hard]
    python tests/benchmarks/survey.py caps

"intervals": samples drawn anew from finite populations of units, against the linearised t interval
without privacy and without a cap. "bias" is in standard errors; "planned" and "reached" are widths
over that of no noise and known variance. "caps": root mean squared error at the plan's cap over
that of the best cap in hindsight, if totals had the whole budget and as they are planned.
"""

import itertools
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from measuring import markdown, noise_of_scales, parsed
from scipy import stats

import dpstats as dps
from dpstats.families.contrasts import UNIT
from dpstats.inference.simulation import draw_from
from dpstats.measured.combining import Sources
from dpstats.measured.measurements import Measurements
from dpstats.measured.view import View
from dpstats.planning.survey import best_cap, contrast_plans
from dpstats.privacy.neighbours import Neighbours
from dpstats.schema.design import STEPS

BUDGETS = {"Laplace": dps.PureDP(1), "Gauss": dps.ApproxDP(1, 1e-6)}
LAWS = [(noise, unit) for noise in BUDGETS for unit in ("add_remove", "replace")]
SIZES = {  # strata, units of each, rows of a unit
    "few 15k": (30, 2, 250),
    "many 15k": (30, 10, 50),
    "few 2k": (20, 2, 50),
    "many 2k": (10, 8, 25),
}
KINDS = 60  # of weights
EFFECTS = 1 + 0.3 * (np.arange(KINDS) / KINDS - 0.5)  # on the share: weights are informative
DATA = Path(__file__).parents[1] / "data"
UNITS = 300  # of a stratum of the population
MOST = {  # of the ratio of widths
    (size, *law): most
    for size, ratios in (("2k", (1.1, 1.25, 1.4, 1.65)), ("15k", (1.05, 1.05, 1.2, 1.2)))
    for law, most in zip(LAWS, ratios, strict=True)
}


@dataclass(frozen=True)
class Setting:
    """A population, and how it is sampled."""

    size: str
    icc: float
    ratio: int
    p: float

    def __str__(self):
        return f"{self.size}, {self.icc:g}, {self.ratio}, {self.p:g}"

    @cached_property
    def weights(self):
        """Weights of the kinds of rows of the sample, of mean one."""
        spread = {2: 0.3, 20: 0.62, 100: 0.95}[self.ratio]
        z = stats.norm.ppf((np.arange(KINDS) + 0.5) / KINDS) * spread
        half = np.log(self.ratio) / 2
        weights = np.exp(np.clip(z, -half, half))
        return weights / weights.mean()

    @cached_property
    def shares(self):
        """Shares of the units of the population, (strata, UNITS)."""
        rng = np.random.default_rng([len(str(self)), int(1000 * self.icc), self.ratio])
        strata = SIZES[self.size][0]
        means = np.clip(self.p * np.exp(rng.normal(0, 0.25, strata)), 0.02, 0.9)[:, np.newaxis]
        k = (1 - self.icc) / self.icc
        return rng.beta(means * k, (1 - means) * k, (strata, UNITS))

    @cached_property
    def truth(self):
        """The share of the population, whose kinds are as their weights."""
        return float(self.shares.mean() * np.average(EFFECTS, weights=self.weights))

    @property
    def n(self):
        return int(np.prod(SIZES[self.size]))

    def sample(self, rng):
        """Number of the unit, kind and value of every row of a sample."""
        strata, each, rows = SIZES[self.size]
        drawn = np.argsort(rng.random(self.shares.shape), axis=1)[:, :each]
        shares = np.take_along_axis(self.shares, drawn, axis=1).ravel()
        sizes = np.maximum(rng.poisson(rng.gamma(6, rows / 6, strata * each)), 5)
        unit = np.repeat(np.arange(strata * each), sizes)
        kind = rng.integers(0, KINDS, len(unit))
        return unit, kind, rng.random(len(unit)) < shares[unit] * EFFECTS[kind]


SETTINGS = {
    str(setting): setting
    for setting in [
        *(Setting(size, icc, ratio, 0.3)
          for size in SIZES for icc in (0.05, 0.2) for ratio in (2, 20, 100)),
        *(Setting(size, 0.004, 20, p) for size in SIZES for p in (0.1, 0.3)),
        Setting("many 15k", 0.05, 20, 0.05), Setting("few 15k", 0.05, 20, 0.05),
        Setting("many 2k", 0.05, 20, 0.1),
    ]
}  # fmt: skip


class Weighted:
    """A plan for a share of a setting, and results of samples with its noise."""

    analysis = dps.Proportion("y")

    def __init__(self, setting, noise, unit, **design):
        strata, each, _ = SIZES[setting.size]
        weights = setting.weights
        declared = dps.Design(
            "w", mean=1, high=weights.max(), cv=weights.std(), strata="h", unit="u",
            units={h: list(range(each)) for h in range(strata)}, **design,
        )  # fmt: skip
        schema = dps.Schema([dps.Boolean("y")], design=declared)
        self.plan = dps.plan(
            schema, {"it": self.analysis}, budget=BUDGETS[noise], unit=unit, n=setting.n
        )
        self.strategy = replace(self.plan.strategy, n=None)
        self.design = self.plan.schema.design
        self.coded = np.rint(np.minimum(weights / self.design.cap, 1) * STEPS)
        codes = self.design.pairs.codes
        units = np.array([codes[h, u] for h in range(strata) for u in range(each)])
        points = {"y": np.tile([0, 1], len(units)), UNIT: np.repeat(units, 2)}
        self.functions = np.concatenate([
            np.broadcast_to(p.block.functions(points), (p.block.size, 2 * len(units)))
            for p in self.strategy.blocks
        ]).astype(float)  # fmt: skip
        self.scales = np.concatenate(self.strategy.block_scales)

    def result(self, sample, rng):
        unit, kind, y = sample
        sums = self.functions @ np.bincount(2 * unit + y, self.coded[kind], self.functions.shape[1])
        law = self.plan.budget.law
        sums += noise_of_scales(self.scales, lambda scale, size: draw_from(law(scale), size, rng))
        drawn = rng.random(len(sums)) - 0.5
        held = Measurements(self.strategy, np.rint(sums).astype(np.int64), drawn, not_private=True)
        return self.analysis.infer(View(Sources(held), held.n))


def linearised(setting, sample):
    """Estimate without privacy or cap, its variance by units, and degrees of freedom."""
    strata, each, _ = SIZES[setting.size]
    unit, kind, y = sample
    weights = setting.weights[kind]
    share = np.average(y, weights=weights)
    z = np.bincount(unit, weights * (y - share), strata * each).reshape(strata, each)
    variance = each / (each - 1) * np.sum((z - z.mean(axis=1, keepdims=True)) ** 2)
    return share, variance / weights.sum() ** 2, strata * (each - 1)


def simulated(setting, runs, rng):
    """Coverage, widths and variances without privacy; by plan coverage, widths and estimates."""
    plans = [Weighted(setting, *law) for law in LAWS]
    plain, found = [], [[] for _ in LAWS]
    for _ in range(runs):
        sample = setting.sample(rng)
        share, variance, df = linearised(setting, sample)
        half = stats.t.ppf(0.975, df) * np.sqrt(variance)
        plain.append((abs(share - setting.truth) <= half, 2 * half, variance))
        for plan, results in zip(plans, found, strict=True):
            result = plan.result(sample, rng)
            low, high = result.conf_int()
            results.append((low <= setting.truth <= high, high - low, float(result)))
    return np.array(plain, float).T, zip(plans, np.array(found, float), strict=True)


def intervals(runs, only):
    lines = []
    for name, setting in SETTINGS.items():
        hard = setting.p <= 0.1 or setting.icc < 0.05
        if only and not any(part in name + " hard" * hard for part in only):
            continue
        plain, found = simulated(setting, runs, np.random.default_rng(len(lines)))
        known = 2 * stats.norm.ppf(0.975) * np.sqrt(plain[2].mean())
        for law, (plan, results) in zip(LAWS, found, strict=True):
            covered, widths, estimates = results.T
            (expected,) = contrast_plans(plan.strategy, plan.plan.analyses, setting.n).values()
            bias = (estimates.mean() - setting.truth) / estimates.std()
            width = np.median(widths)
            lines.append([
                name, *law, float(plan.design.cap), expected.count, expected.share, plain[0].mean(),
                covered.mean(), bias, width / np.median(plain[1]), expected.width, width / known,
            ])  # fmt: skip
    head = ["size, icc, ratio, p", "noise", "unit", "cap", "contrasts", "share", "without privacy",
            "coverage", "bias", "width", "planned", "reached"]  # fmt: skip
    print(markdown(head, lines))


def populations():
    """Weights of mean one, traits and design effects of units beside that of weights, by name."""
    rows = pd.read_csv(DATA / "nhanes.csv")
    weights, traits = rows["WTMEC2YR"].to_numpy(), rows["HI_CHOL"].to_numpy()
    known = ~np.isnan(traits)
    of = {"NHANES": (weights[known], traits[known], 1.34)}
    for ratio in (20, 100):
        setting = Setting("many 2k", 0.05, ratio, 0.3)
        weights = np.repeat(setting.weights, 1_000)
        traits = np.concatenate([np.arange(1_000) < round(300 * effect) for effect in EFFECTS])
        of[f"simulated, ratio {ratio}"] = weights, traits, 2.0
    return {name: (w / w.mean(), y, deff) for name, (w, y, deff) in of.items()}


def errors_of_cap(weights, traits, deff, n, cap, budget, unit):
    """Root mean squared errors of a share at a cap, and its bias in standard errors."""
    design = dps.Design("w", mean=1, cv=weights.std(), cap=cap, unit="u", units=list(range(UNITS)))
    schema = dps.Schema([dps.Boolean("y")], design=design)
    plan = dps.plan(schema, {"it": dps.Proportion("y")}, budget=budget, unit=unit, n=n)
    capped = np.minimum(weights, cap)
    share, size = np.average(traits, weights=capped), capped.mean()
    sampling = deff * np.mean((capped * (traits - share)) ** 2) / size**2 / n
    (main,) = plan.strategy.measured
    slopes = np.array([1 - share, -share]) @ np.linalg.inv(main.block.basis)
    per_step = np.sum(slopes**2) * (cap / STEPS / size / n) ** 2
    whole = main.block.multiplier(budget, plan.neighbours, budget.total)
    noise = np.array([
        budget.law(budget.natural_scale(multiplier)).variance * per_step
        for multiplier in (whole, main.multiplier)
    ])  # fmt: skip
    bias = share - np.average(traits, weights=weights)
    return *np.sqrt(sampling + noise + bias**2), bias / np.sqrt(sampling + noise[1])


def caps():
    lines = []
    for (name, (weights, traits, deff)), n, (noise, unit), times in itertools.product(
        populations().items(), (2_000, 15_000), LAWS, (0.3, 1, 3)
    ):
        budget = dps.PureDP(times) if noise == "Laplace" else dps.ApproxDP(times, 1e-6)
        declared = dps.Design("w", mean=1, cv=weights.std(), unit="u", units=list(range(UNITS)))
        chosen = best_cap(declared, budget, Neighbours(unit), n, 1)
        several = np.append(np.geomspace(1, min(10, weights.max()), 25), chosen)
        about = (weights, traits, deff, n)
        errors = [errors_of_cap(*about, float(cap), budget, unit) for cap in several]
        *rms, bias = np.array(errors).T
        ratios, best = [each[-1] / each.min() for each in rms], several[np.argmin(rms[0])]
        lines.append([name, n, noise, unit, times, float(chosen), best, *ratios, bias[-1]])
    head = ["weights", "n", "noise", "unit", "epsilon", "cap", "best cap", "error", "as planned"]
    print(markdown([*head, "bias"], lines))


if __name__ == "__main__":
    given = parsed(__doc__, {"what": ("intervals", "caps")}, runs=500, only=[str])
    if given.what == "caps":
        caps()
    else:
        intervals(given.runs, given.only)
