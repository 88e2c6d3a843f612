"""Logistic regressions in one and two stages: coverage, widths, bias and cost.

    python tests/benchmarks/logistic.py adult adult.csv [--runs 20] [--stages 1 2]
    python tests/benchmarks/logistic.py mixed [--rows 200000] [--runs 20] [--stages 1 2]
    python tests/benchmarks/logistic.py binary [--runs 100] [--stages 1 2]
    python tests/benchmarks/logistic.py randhie|fair|star98|tails|visits [--stages 1 2]

"adult": income above 50,000 by eight predictors (age, years of education, hours, sex, race, capital
gain, marital status, kind of work; 12 coefficients) at (1, 1e-6). Tables of 48,842 rows are drawn
with replacement from the integer-coded file of `data_sets.py`; the truth is the fit to all of
its rows.
"mixed" and "binary": three columns that depend on each other at (1, 1e-6), and two coins without an
intercept at epsilon = 0.5, as in Räisä, Jälkö, Kaski and Honkela (2023). The others are tables of
statsmodels ("visits" is a Poisson regression), drawn with replacement like Adult, at most 20,000
rows of them, and "tails", with regressors of Student's t with 2 degrees of freedom, clipped at 20.

Printed for every coefficient: coverage of the 95% interval, median width over that of statsmodels
without privacy, and bias in standard errors without privacy.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
import statsmodels.api as sm
from measuring import noise_of

import dpstats as dps
from dpstats.privacy.noise import _noise_from

TIGHT = dps.ApproxDP(1, 1e-6)
SLOPES = (-0.5, 1, 0.7, -0.6, 0.5)
FORMULA = "rich ~ age + edu + hours + C(male) + C(white) + C(gain) + C(marital) + C(work)"
NUMBERS = {  # low, high, points, edges
    "age": (17, 91, 75, [25, 30, 35, 40, 45, 50, 55, 65]),
    "edu": (1, 17, 17, [8, 9, 10, 11, 13, 14]),
    "hours": (1, 99, 99, [20, 35, 40, 41, 50, 60]),
}


def adult(path):
    """The schema, all rows and the tables drawn from them."""
    raw = pd.read_csv(path)
    coarse = {
        "male": raw["sex"], "white": raw["race"] == 0, "gain": raw["capital-gain"] > 0,
        "marital": raw["marital-status"].map({0: 0, 6: 0, 2: 1}).fillna(2),
        "work": raw["workclass"].map({0: 0, 1: 1, 2: 1, 3: 2, 4: 2, 5: 2}).fillna(3),
    }  # fmt: skip
    rows = pd.DataFrame({
        "age": raw["age"] + 16, "edu": raw["education-num"] + 1, "hours": raw["hours-per-week"] + 1,
        **{name: of.astype(int) for name, of in coarse.items()}, "rich": raw["income>50K"] == 1,
    })  # fmt: skip
    schema = dps.Schema([
        *(dps.Number(name, low, high, points=points, edges=edges, missing=low)
          for name, (low, high, points, edges) in NUMBERS.items()),
        *(dps.Category(name, list(range(rows[name].max() + 1))) for name in coarse),
        dps.Boolean("rich"),
    ])  # fmt: skip
    return schema, rows, lambda rng: rows.iloc[rng.integers(0, len(rows), len(rows))]


def mixed(rng, n):
    """Three columns that depend on each other, also in their third moments."""
    g = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    u = rng.random(n) < 1 / (1 + np.exp(0.3 - 0.8 * (g == 1)))
    x = rng.normal(size=n) * (0.6 + 0.3 * u * (g == 1)) + 0.5 * (g == 2) + 0.4 * u - 0.2
    x = np.clip(np.rint(x * 8) / 8, -2, 2)
    chance = 1 / (1 + np.exp(0.5 - x - 0.7 * u + 0.6 * (g == 1) - 0.5 * (g == 2)))
    return pd.DataFrame(
        {"x": x, "u": u, "g": np.array(list("abc"))[g], "y": rng.random(n) < chance}
    )


def binary(rng, n):
    """Two coins, of which one matters."""
    u, v = rng.random((2, n)) < 0.5
    return pd.DataFrame(
        {"u": 1.0 * u, "v": 1.0 * v, "y": rng.random(n) < 1 / (1 + np.exp(-1.0 * u))}
    )


MIXED = dps.Schema([
    dps.Number("x", -2, 2, points=33, edges=[-1.5, -1, -0.5, 0, 0.5, 1, 1.5], missing=0),
    dps.Boolean("u"), dps.Category("g", ["a", "b", "c"]), dps.Boolean("y"),
])  # fmt: skip
COINS = (dps.Number(name, 0, 1, points=2, edges=[0.5], missing=0) for name in "uv")
BINARY = dps.Schema([*COINS, dps.Boolean("y")])


def randhie():
    d = sm.datasets.randhie.load_pandas().data
    rows = pd.DataFrame({
        "any": d.mdvis > 0, "lncoins": d.lncoins, "lpi": d.lpi, "limited": d.physlm > 0.5,
        "disea": d.disea, "poor": (d.hlthf + d.hlthp) > 0,
    })  # fmt: skip
    schema = dps.Schema([
        dps.Boolean("any"),
        dps.Number("lncoins", 0, 5, points=21, edges=[1, 3.5, 4.2], missing=0),
        dps.Number("lpi", 0, 8, points=33, edges=[1, 5, 6, 7], missing=0),
        dps.Boolean("limited"),
        dps.Number("disea", 0, 60, points=61, edges=[5, 10, 15, 20, 30], missing=0),
        dps.Boolean("poor"),
    ])  # fmt: skip
    return schema, rows, dps.Logistic("any ~ lncoins + lpi + limited + disea + poor")


def visits():
    d = sm.datasets.randhie.load_pandas().data
    schema, rows, _ = randhie()
    rows = rows.assign(visits=np.minimum(d.mdvis, 20)).drop(columns="any")
    count = dps.Number("visits", 0, 20, points=21, edges=[1, 2, 3, 5, 8, 12], missing=0)
    columns = [*(schema[name] for name in ("lncoins", "lpi", "limited", "disea", "poor")), count]
    schema = dps.Schema(columns)
    return schema, rows, dps.Poisson("visits ~ lncoins + limited + disea + poor")


def fair():
    d = sm.datasets.fair.load_pandas().data
    rows = pd.DataFrame({
        "affair": d.affairs > 0, "age": d.age, "religious": d.religious, "rate": d.rate_marriage,
    })  # fmt: skip
    schema = dps.Schema([
        dps.Boolean("affair"),
        dps.Number("age", 17, 43, points=53, edges=[20, 25, 30, 35, 40], missing=30),
        dps.Number("religious", 1, 4, points=4, edges=[1.5, 2.5, 3.5], missing=2),
        dps.Number("rate", 1, 5, points=5, edges=[1.5, 2.5, 3.5, 4.5], missing=4),
    ])  # fmt: skip
    return schema, rows, dps.Logistic("affair ~ age + religious + rate")


def star98():
    """A row for every fiftieth pupil of a county, above the national median or not."""
    d = sm.datasets.star98.load_pandas().data
    above, below = (d[c].to_numpy() // 50 for c in ("NABOVE", "NBELOW"))
    of = np.repeat(np.arange(len(d)), (above + below).astype(int))
    county = d[["LOWINC", "PERASIAN", "PERBLACK", "PERHISP"]].iloc[of].reset_index(drop=True)
    order = np.concatenate([np.arange(a + b) < a for a, b in zip(above, below, strict=True)])
    rows = county.assign(above=order)
    edges = [10, 20, 35, 50, 70]
    shares = [dps.Number(c, 0, 100, points=101, edges=edges, missing=0) for c in county]
    schema = dps.Schema([dps.Boolean("above"), *shares])
    return schema, rows, dps.Logistic("above ~ LOWINC + PERASIAN + PERBLACK + PERHISP")


def tails():
    rng = np.random.default_rng(1)
    size = 100_000
    x, z = np.clip(rng.standard_t(2, (2, size)), -20, 20)
    g = rng.choice(3, size, p=[0.6, 0.3, 0.1])
    z = np.clip(z + 0.5 * x * (g == 1), -20, 20)
    predictor = -0.5 + 0.3 * x - 0.2 * z + 0.5 * (g == 1)
    y = rng.random(size) < 1 / (1 + np.exp(-predictor))
    rows = pd.DataFrame({"y": y, "x": x, "z": z, "g": np.array(list("abc"))[g]})
    edges = [-8, -4, -2, -1, 0, 1, 2, 4, 8]
    numbers = [dps.Number(c, -20, 20, points=161, edges=edges, missing=0) for c in "xz"]
    schema = dps.Schema([dps.Boolean("y"), *numbers, dps.Category("g", ["a", "b", "c"])])
    return schema, rows, dps.Logistic("y ~ x + z + C(g)")


SETS = {f.__name__: f for f in (randhie, fair, star98, tails, visits)}


def coded(schema, rows):
    """The rows as the schema keeps them: on the grid, inside the bounds."""
    frame = rows.copy()
    for column in schema:
        if isinstance(column, dps.Number):
            step = (column.high - column.low) / (column.points - 1)
            inside = np.clip(rows[column.name], column.low, column.high)
            place = np.rint((inside - column.low) / step)
            frame[column.name] = column.low + step * place
    return frame


def without_privacy(schema, formula, rows, counts=False):
    """Estimates and standard errors of the maximum likelihood fit; of counts HC0."""
    from dpstats.families.formula import Design

    design = Design.of(formula, schema)
    response = design.response[0]
    used = [c.name for c in schema if c.name != response and c.name in formula]
    x = design.matrix({name: rows[name] for name in used}, schema)
    y, b = rows[response].to_numpy(np.float64), np.zeros(x.shape[1])
    for _ in range(30):
        mean = np.exp(x @ b) if counts else 1 / (1 + np.exp(-x @ b))
        information = (x.T * (mean if counts else mean * (1 - mean))) @ x
        b = b + np.linalg.solve(information, x.T @ (y - mean))
    covariance = np.linalg.inv(information)
    if counts:
        covariance = covariance @ (x.T * (y - mean) ** 2) @ x @ covariance
    return b, np.sqrt(np.diag(covariance))


def study(name, schema, analysis, draw, truth, errors, budget, runs, m):
    """Print the figures of one setting."""
    plan = dps.plan(schema, {"it": analysis}, budget=budget)
    found, spent, shares = [], [], []
    for run in range(runs):
        rows = draw(np.random.default_rng(run))
        start = time.process_time()
        with _noise_from(noise_of(budget)(run)):
            release = dps.release(plan, rows, m=m, k=1_000, rng=run)
        result = release.infer("it")
        ends = np.asarray(result.conf_int())
        spent.append(time.process_time() - start)
        found.append(np.column_stack([result.params, ends]))
        shares.append(result.unmeasured.max())
    params, low, high = np.array(found).transpose(2, 0, 1)
    hits = (low <= truth) & (truth <= high)
    width = np.median(high - low, axis=0) / (2 * 1.96 * errors)
    bias = (np.mean(params, axis=0) - truth) / errors
    table = pd.DataFrame(
        {
            "coverage": hits.mean(axis=0), "width": np.median(high - low, axis=0),
            "of statsmodels": width, "bias": bias,
        },
        index=result.terms,
    )  # fmt: skip
    print(f"{name}, {analysis.stages} stage(s), {runs} releases\n{table.round(3)}")
    print(
        f"coverage {hits.mean():.3f}, least {hits.mean(axis=0).min():.3f}; width "
        f"{np.median(width):.2f}, most {width.max():.2f}; bias up to {np.abs(bias).max():.2f}; "
        f"unmeasured share {np.nanmedian(shares):.3f}; {np.median(spent):.2f} CPU s\n",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("setting", choices=["adult", "mixed", "binary", *SETS])
    parser.add_argument("path", type=Path, nargs="?")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--stages", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--m", type=int)
    given = parser.parse_args()
    kind = dps.Logistic
    if given.setting in SETS:
        schema, rows, analysis = SETS[given.setting]()
        rows, kind, n = coded(schema, rows), type(analysis), min(len(rows), 20_000)
        counts = kind is dps.Poisson
        truth, errors = without_privacy(schema, analysis.formula, rows, counts)
        options = (
            f"{given.setting}, n = {n}", schema, analysis.formula,
            lambda rng: rows.iloc[rng.integers(0, len(rows), n)],
            truth, errors * np.sqrt(len(rows) / n), TIGHT,
        )  # fmt: skip
    elif given.setting == "adult":
        schema, rows, draw = adult(given.path)
        truth, errors = without_privacy(schema, FORMULA, rows)
        options = ("Adult", schema, FORMULA, draw, truth, errors, TIGHT)
    elif given.setting == "mixed":
        n, formula = given.rows, "y ~ x + u + C(g)"
        errors = without_privacy(MIXED, formula, mixed(np.random.default_rng(0), n))[1]
        options = (f"mixed, n = {n}", MIXED, formula, lambda rng: mixed(rng, n), np.array(SLOPES),
                   errors, TIGHT)  # fmt: skip
    else:
        n, formula = 2_000, "y ~ 0 + u + v"
        many = 1_000_000
        errors = without_privacy(BINARY, formula, binary(np.random.default_rng(0), many))[1]
        options = ("binary, n = 2000", BINARY, formula, lambda rng: binary(rng, n),
                   np.array([1, 0]), errors * np.sqrt(many / n), dps.PureDP(0.5))  # fmt: skip
    name, schema, formula, *others = options
    for stages in given.stages:
        analysis = kind(formula, stages=stages)
        study(name, schema, analysis, *others, given.runs, given.m)


if __name__ == "__main__":
    main()
