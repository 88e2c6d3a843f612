"""Data sets of `rows.py`: real tables as codes, and tables made up for what is hard to synthesise.

Files are ma2019.csv (NIST excerpts of the American Community Survey 2019, Massachusetts), adult.csv
with adult-domain.json (48,842 rows in codes, of https://github.com/ryan112358/private-pgm, in its
``data/``), and loans.csv (`loans_full_schema` of openintro).
"""

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

import dpstats as dps

ADULT = ["workclass", "education-num", "marital-status", "occupation", "relationship", "race",
         "sex", "income>50K"]  # fmt: skip
OTHER = ["age", "workclass", "marital-status", "occupation", "race", "sex", "native-country",
         "income>50K"]  # fmt: skip
MA_CATEGORIES = [
    "PUMA", "SEX", "MSP", "HISP", "RAC1P", "HOUSING_TYPE", "OWN_RENT", "INDP_CAT", "EDU",
    "PINCP_DECILE", "DVET", "DREM", "DPHY", "DEYE", "DEAR", "NOC", "NPF",
]  # fmt: skip
MA_EDGES = {  # lower ends of bins, but for the first
    "AGEP": [5, 10, 15, 18, 21, *range(25, 74, 4), 79],
    "PINCP": [0, 1, *range(3_000, 18_001, 3_000), 22_000, 27_000, 32_000, 38_000, 45_000, 54_000,
              66_000, 82_000, 110_000, 180_000],
    "POVPIP": [*range(25, 201, 25), *range(230, 441, 30), 470, 501],
}  # fmt: skip


@dataclass(frozen=True)
class Codes:
    """Rows of categories: names and numbers of levels of p columns, and (n, p) codes from 0."""

    names: list[str]
    levels: list[int]
    rows: np.ndarray

    @property
    def schema(self):
        return dps.Schema(
            [dps.Category(c, list(range(k))) for c, k in zip(self.names, self.levels, strict=True)]
        )

    @property
    def frame(self):
        return pd.DataFrame(self.rows, columns=self.names)

    def of(self, rows):
        return Codes(self.names, self.levels, self.rows[rows])


def ma20(data):
    table = pd.read_csv(data / "ma2019.csv", dtype=str, keep_default_na=False)
    codes = {name: pd.factorize(table[name], sort=True)[0] for name in MA_CATEGORIES}
    levels = [int(code.max()) + 1 for code in codes.values()]
    for name, edges in MA_EDGES.items():
        value = pd.to_numeric(table[name].replace("N", np.nan)).to_numpy()
        codes[name] = np.where(np.isnan(value), len(edges) + 1, np.digitize(value, edges))
        levels.append(len(edges) + (1 if name == "AGEP" else 2))  # every age is known
    return Codes(list(codes), levels, np.stack(list(codes.values()), 1))


def ma30k(data):
    table = ma20(data)
    return table.of(np.random.default_rng(1).integers(len(table.rows), size=30_000))


def adult(data, names=ADULT):
    domain = json.loads((data / "adult-domain.json").read_text())
    rows = pd.read_csv(data / "adult.csv", usecols=names)[names].to_numpy()
    return Codes(names, [domain[name] for name in names], rows)


def loans(data):
    """Numbers in ten bins, texts of up to 60 levels; what is missing is a level."""
    table = pd.read_csv(data / "loans.csv").drop(columns="emp_title")
    names, levels, codes = [], [], []
    for name, column in table.items():
        missing = column.isna()
        if column.dtype.kind in "if" and column.nunique() > 12:
            edges = np.unique(np.nanquantile(column, np.linspace(0, 1, 11)[1:-1]))
            code = np.where(missing, len(edges) + 1, np.digitize(column, edges))
            size = len(edges) + 2
        else:
            texts = column.astype(object).where(~missing, "missing").astype(str)
            code, distinct = pd.factorize(texts, sort=True)
            size = len(distinct)
        if size <= 60:
            names.append(name)
            levels.append(size)
            codes.append(code)
    return Codes(names, levels, np.stack(codes, 1))


def made(codes, levels):
    return Codes(
        [f"c{j:02d}" for j in range(len(codes))], list(map(int, levels)), np.stack(codes, 1)
    )


def wide(_, n=20_000, p=60, q=6):
    """Columns of two to eight equally likely levels, which depend on q normal factors."""
    rng = np.random.default_rng(1)
    factor, loading = rng.normal(size=(n, q)), 0.7 * rng.normal(size=(q, p))
    sizes = rng.integers(2, 9, size=p)
    latent = factor @ loading + rng.normal(size=(n, p))
    return made([
        np.searchsorted(np.quantile(x, np.linspace(0, 1, k + 1)[1:-1]), x)
        for x, k in zip(latent.T, sizes, strict=True)
    ], sizes)  # fmt: skip


def chain(_, n=10_000):
    """Each of eight columns follows from the one before."""
    rng = np.random.default_rng(5)
    levels = [16, 16, 12, 12, 8, 8, 4, 2]
    codes = [rng.choice(16, n, p=rng.dirichlet(np.ones(16)))]
    for size, k in itertools.pairwise(levels):
        codes.append(rng.permutation(np.arange(size) % k)[codes[-1]])
    return made(codes, levels)


@dataclass(frozen=True)
class Source:
    """A data set, its budgets, and delta; without one a budget is rho."""

    read: Callable[[Path], Codes]
    sizes: tuple[float, ...]
    delta: float | None = 1e-9

    def plan(self, table, size):
        budget = dps.ZCDP(size) if self.delta is None else dps.ApproxDP(size, self.delta)
        asked = {"pairs": dps.Marginals(table.names)}
        return dps.plan(table.schema, asked, budget=budget, unit="add_remove")


SOURCES = {
    "ma20": Source(ma20, (0.1, 1, 10, 100, 1e4), 1e-5),
    "ma30k": Source(ma30k, (1, 3, 10, 100), 1e-5),
    "adult": Source(adult, (1, 10)),
    "adult8": Source(lambda data: adult(data, OTHER), (1,)),
    "wide": Source(wide, (1,)),
    "loans": Source(loans, (1, 3, 10)),
    "chain": Source(chain, (0.01, 0.1, 1, 10, 100, 1000), None),
}
