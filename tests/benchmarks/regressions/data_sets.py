"""Tables of statsmodels, and heavy tails, as `logistic.py` declares and fits them.

Every function returns the schema, the rows and the analysis. `tails` is simulated: two regressors
of Student's t with 2 degrees of freedom, clipped at 20, and a group.
"""

import numpy as np
import pandas as pd
import statsmodels.api as sm

import dpstats as dps


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
