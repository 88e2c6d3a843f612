"""Logistic regressions in one and two stages: coverage, widths, bias and cost.

    python tests/benchmarks/logistic.py adult --data DIR [--runs 20] [--stages 1 2]
    python tests/benchmarks/logistic.py mixed [--rows 200000] [--runs 20] [--stages 1 2]
    python tests/benchmarks/logistic.py randhie|fair|star98|tails [--stages 1 2]

"adult": income above 50,000 by eight predictors (12 coefficients), of adult.csv of `data_sets.py`.
"mixed": three columns that depend on each other. "tails": Student's t with 2 degrees of freedom,
clipped at 20. The others are tables of statsmodels. All at (1, 1e-6). Tables are drawn with
replacement, at most 20,000 rows of the last four; the truth is the fit to all rows. Widths are over
those of statsmodels without privacy, bias is in its standard errors.
"""

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import statsmodels.api as sm
from measuring import noise_of, parsed, timed
from scipy.special import expit

import dpstats as dps
from dpstats.families.formula import Design
from dpstats.privacy.noise import _noise_from


def number(name, low, high, points, edges):
    return dps.Number(name, low, high, points=points, edges=edges, missing=low)


def adult(given):
    raw = pd.read_csv(given.data / "adult.csv")
    coarse = {
        "male": raw["sex"], "white": raw["race"] == 0, "gain": raw["capital-gain"] > 0,
        "marital": raw["marital-status"].map({0: 0, 6: 0, 2: 1}).fillna(2),
        "work": raw["workclass"].map({0: 0, 1: 1, 2: 1, 3: 2, 4: 2, 5: 2}).fillna(3),
    }  # fmt: skip
    rows = pd.DataFrame({
        "age": raw["age"] + 16, "edu": raw["education-num"] + 1, "hours": raw["hours-per-week"] + 1,
        **{name: of.astype(int) for name, of in coarse.items()}, "rich": raw["income>50K"] == 1,
    })  # fmt: skip
    columns = [
        number("age", 17, 91, 75, [25, 30, 35, 40, 45, 50, 55, 65]),
        number("edu", 1, 17, 17, [8, 9, 10, 11, 13, 14]),
        number("hours", 1, 99, 99, [20, 35, 40, 41, 50, 60]),
        *(dps.Category(name, list(range(rows[name].max() + 1))) for name in coarse),
        dps.Boolean("rich"),
    ]  # fmt: skip
    formula = "rich ~ age + edu + hours + C(male) + C(white) + C(gain) + C(marital) + C(work)"
    return columns, rows, formula


def mixed(given):
    """Three columns that depend on each other, also in their third moments."""
    rng, n = np.random.default_rng(0), 10 * given.rows
    g = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    u = rng.random(n) < expit(-0.3 + 0.8 * (g == 1))
    x = rng.normal(size=n) * (0.6 + 0.3 * u * (g == 1)) + 0.5 * (g == 2) + 0.4 * u - 0.2
    x = np.clip(np.rint(x * 8) / 8, -2, 2)
    y = rng.random(n) < expit(-0.5 + x + 0.7 * u - 0.6 * (g == 1) + 0.5 * (g == 2))
    columns = [number("x", -2, 2, 33, [-1.5, -1, -0.5, 0, 0.5, 1, 1.5]), dps.Boolean("u"),
               dps.Category("g", ["a", "b", "c"]), dps.Boolean("y")]  # fmt: skip
    rows = pd.DataFrame({"x": x, "u": u, "g": np.array(list("abc"))[g], "y": y})
    return columns, rows, "y ~ x + u + C(g)"


def randhie(given):
    d = sm.datasets.randhie.load_pandas().data
    rows = pd.DataFrame({
        "any": d.mdvis > 0, "lncoins": d.lncoins, "lpi": d.lpi, "limited": d.physlm > 0.5,
        "disea": d.disea, "poor": (d.hlthf + d.hlthp) > 0,
    })  # fmt: skip
    columns = [
        dps.Boolean("any"), number("lncoins", 0, 5, 21, [1, 3.5, 4.2]),
        number("lpi", 0, 8, 33, [1, 5, 6, 7]), dps.Boolean("limited"),
        number("disea", 0, 60, 61, [5, 10, 15, 20, 30]), dps.Boolean("poor"),
    ]  # fmt: skip
    return columns, rows, "any ~ lncoins + lpi + limited + disea + poor"


def fair(given):
    d = sm.datasets.fair.load_pandas().data
    rows = pd.DataFrame({
        "affair": d.affairs > 0, "age": d.age, "religious": d.religious, "rate": d.rate_marriage,
    })  # fmt: skip
    columns = [
        dps.Boolean("affair"), number("age", 17, 43, 53, [20, 25, 30, 35, 40]),
        number("religious", 1, 4, 4, [1.5, 2.5, 3.5]),
        number("rate", 1, 5, 5, [1.5, 2.5, 3.5, 4.5]),
    ]  # fmt: skip
    return columns, rows, "affair ~ age + religious + rate"


def star98(given):
    """A row for every fiftieth pupil of a county, above the national median or not."""
    d = sm.datasets.star98.load_pandas().data
    above, below = (d[c].to_numpy(int) // 50 for c in ("NABOVE", "NBELOW"))
    county = d[["LOWINC", "PERASIAN", "PERBLACK", "PERHISP"]]
    rows = pd.concat([county.loc[d.index.repeat(above)].assign(above=True),
                      county.loc[d.index.repeat(below)].assign(above=False)])  # fmt: skip
    shares = [number(c, 0, 100, 101, [10, 20, 35, 50, 70]) for c in county]
    return [dps.Boolean("above"), *shares], rows, "above ~ LOWINC + PERASIAN + PERBLACK + PERHISP"


def tails(given):
    rng, size = np.random.default_rng(1), 100_000
    x, z = np.clip(rng.standard_t(2, (2, size)), -20, 20)
    g = rng.choice(3, size, p=[0.6, 0.3, 0.1])
    z = np.clip(z + 0.5 * x * (g == 1), -20, 20)
    y = rng.random(size) < expit(-0.5 + 0.3 * x - 0.2 * z + 0.5 * (g == 1))
    rows = pd.DataFrame({"y": y, "x": x, "z": z, "g": np.array(list("abc"))[g]})
    numbers = [number(c, -20, 20, 161, [-8, -4, -2, -1, 0, 1, 2, 4, 8]) for c in "xz"]
    columns = [dps.Boolean("y"), *numbers, dps.Category("g", ["a", "b", "c"])]
    return columns, rows, "y ~ x + z + C(g)"


SETS = {f.__name__: f for f in (adult, mixed, randhie, fair, star98, tails)}


def coded(schema, rows):
    """The rows as the schema keeps them: on the grid, inside the bounds."""
    frame = rows[list(schema.names)].reset_index(drop=True)
    for column in schema:
        if isinstance(column, dps.Number):
            step = (column.high - column.low) / (column.points - 1)
            inside = frame[column.name].clip(column.low, column.high)
            frame[column.name] = column.low + step * np.rint((inside - column.low) / step)
    return frame


def without_privacy(schema, formula, rows):
    """Estimates and standard errors of the maximum likelihood fit."""
    design = Design.of(formula, schema)
    response = design.response[0]
    used = [c.name for c in schema if c.name != response and c.name in formula]
    x = design.matrix({name: rows[name] for name in used}, schema)
    y = rows[response].to_numpy(np.float64)
    fit = sm.GLM(y, x, sm.families.Binomial()).fit()
    return np.asarray(fit.params), np.asarray(fit.bse)


def limits(plan, rows, seed):
    result = dps.release(plan, rows, k=1_000, rng=seed).infer("it")
    return result, result.conf_int()


def study(name, plan, rows, n, truth, errors, runs):
    found, spent = [], []
    for run in range(runs):
        drawn = rows.iloc[np.random.default_rng(run).integers(0, len(rows), n)]
        with _noise_from(noise_of(plan.budget)(run)):
            (result, ends), seconds = timed(partial(limits, plan, drawn, run))
        found.append(np.column_stack([result.params, ends]))
        spent.append(seconds)
    params, low, high = np.array(found).transpose(2, 0, 1)
    width = np.median(high - low, axis=0)
    table = pd.DataFrame({
        "coverage": ((low <= truth) & (truth <= high)).mean(axis=0), "width": width,
        "of statsmodels": width / (2 * 1.96 * errors),
        "bias": (np.mean(params, axis=0) - truth) / errors,
    }, index=result.terms)  # fmt: skip
    print(f"{name}, n = {n:,}, {runs} releases, {np.median(spent):.2f} CPU s each")
    print(table.round(3), table.agg(["mean", "min", "max"]).round(3), "", sep="\n", flush=True)


def main():
    given = parsed(__doc__, {"setting": tuple(SETS)}, data=Path, rows=200_000, runs=20,
                   stages=[1, 2])  # fmt: skip
    columns, rows, formula = SETS[given.setting](given)
    schema = dps.Schema(columns)
    rows = coded(schema, rows)
    n = {"adult": len(rows), "mixed": given.rows}.get(given.setting, min(len(rows), 20_000))
    truth, errors = without_privacy(schema, formula, rows)
    for stages in given.stages:
        analysis = dps.Logistic(formula, stages=stages)
        plan = dps.plan(schema, {"it": analysis}, budget=dps.ApproxDP(1, 1e-6))
        about = f"{given.setting}, {stages} stage(s)"
        study(about, plan, rows, n, truth, errors * np.sqrt(len(rows) / n), given.runs)


if __name__ == "__main__":
    main()
