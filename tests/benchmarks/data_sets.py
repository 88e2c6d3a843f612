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

COLUMNS = {
    "8": [
        "workclass", "education-num", "marital-status", "occupation",
        "relationship", "race", "sex", "income>50K",
    ],
    "other": [
        "age", "workclass", "marital-status", "occupation", "race", "sex", "native-country",
        "income>50K",
    ],
}  # fmt: skip
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
    chosen = np.random.default_rng(1).integers(len(table.rows), size=30_000)
    return Codes(table.names, table.levels, table.rows[chosen])


def adult(columns):
    def read(data):
        domain = json.loads((data / "adult-domain.json").read_text())
        names = COLUMNS.get(columns) or list(domain)
        rows = pd.read_csv(data / "adult.csv", usecols=names)[names].to_numpy()
        return Codes(names, [domain[name] for name in names], rows)

    return read


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


def factors(n, p, q, levels):
    """n rows of p columns of equally likely levels, which depend on q normal factors."""

    def make(_):
        rng = np.random.default_rng(1)
        factor, loading = rng.normal(size=(n, q)), 0.7 * rng.normal(size=(q, p))
        sizes = rng.integers(*levels, size=p)
        latent = factor @ loading + rng.normal(size=(n, p))
        return from_columns([
            np.searchsorted(np.quantile(x, np.linspace(0, 1, k + 1)[1:-1]), x)
            for x, k in zip(latent.T, sizes, strict=True)
        ], sizes)  # fmt: skip

    return make


def from_columns(codes, levels):
    names = [f"c{j:02d}" for j in range(len(codes))]
    return Codes(names, [int(k) for k in levels], np.stack(codes, 1))


def impossible(_, n=10_000, p=8, k=11):
    """Levels on a circle: two columns differ by one step at most, so 8 of 11 pairs never occur."""
    rng = np.random.default_rng(2)
    place = rng.choice(k, n, p=rng.dirichlet(np.full(k, 5.0)))
    codes = [rng.permutation(k)[(place + rng.integers(2, size=n)) % k] for _ in range(p)]
    return from_columns(codes, [k] * p)


def determined(_, n=10_000, k=20):
    """A column of five regions that follows from one of 20 towns, and four that depend on it."""
    rng = np.random.default_rng(3)
    town = rng.choice(k, n, p=rng.dirichlet(np.ones(k)))
    others = [dependent(rng, town, k, size) for size in (6, 5, 4, 3)]
    return from_columns([town, town % 5, *others], [k, 5, 6, 5, 4, 3])


def many_levels(_, n=20_000, k=1_000):
    """A column of 1,000 levels, few of them common, and five that depend on it."""
    rng = np.random.default_rng(4)
    share = 1 / np.arange(1, k + 1)
    code = rng.choice(k, n, p=share / share.sum())
    sizes = (6, 5, 4, 3, 2)
    return from_columns([code, *(dependent(rng, code, k, size) for size in sizes)], [k, *sizes])


def chain(_, n=10_000):
    """Each of eight columns follows from the one before."""
    rng = np.random.default_rng(5)
    levels = [16, 16, 12, 12, 8, 8, 4, 2]
    codes = [rng.choice(16, n, p=rng.dirichlet(np.ones(16)))]
    for size, k in itertools.pairwise(levels):
        codes.append(rng.permutation(np.arange(size) % k)[codes[-1]])
    return from_columns(codes, levels)


def near_empty(_, n=10_000, p=8, k=12):
    """Two common levels and ten with a few rows each, which mostly come together."""
    rng = np.random.default_rng(6)
    common = rng.random(n) < 0.4
    codes = [(common ^ (rng.random(n) < 0.2)).astype(int) for _ in range(p)]
    rare = rng.choice(n, 30, replace=False)
    level = rng.integers(2, k, size=30)
    for code in codes:
        kept = rng.random(30) < 0.8
        code[rare[kept]] = level[kept]
    return from_columns(codes, [k] * p)


def dependent(rng, code, k, size):
    """A column whose distribution depends on the level of another."""
    ends = rng.dirichlet(np.full(size, 0.7), k).cumsum(1)
    return np.minimum((rng.random(len(code))[:, None] > ends[code]).sum(1), size - 1)


@dataclass(frozen=True)
class Source:
    """A data set, its budgets, and delta; without one a budget is rho."""

    read: Callable[[Path], Codes]
    sizes: tuple[float, ...]
    delta: float | None = 1e-9

    def measure(self, table, size):
        budget = dps.ZCDP(size) if self.delta is None else dps.ApproxDP(size, self.delta)
        asked = {"pairs": dps.Marginals(table.names)}
        plan = dps.plan(table.schema, asked, budget=budget, unit="add_remove")
        return dps.measure(plan, table.frame)


RHO = (0.01, 0.1, 1, 10, 100, 1000)
SOURCES = {
    "ma20": Source(ma20, (0.1, 1, 10, 100, 1e4), 1e-5),
    "ma30k": Source(ma30k, (1, 3, 10, 100), 1e-5),
    "adult": Source(adult("8"), (1, 10)),
    "adult8": Source(adult("other"), (1,)),
    "adult14": Source(adult("14"), (1,)),
    "wide": Source(factors(20_000, 60, 6, (2, 9)), (1,)),
    "loans": Source(loans, (1, 3, 10)),
    "hundred": Source(factors(100_000, 100, 10, (10, 11)), (1,)),
    "impossible": Source(impossible, RHO, None),
    "determined": Source(determined, RHO, None),
    "levels": Source(many_levels, RHO, None),
    "chain": Source(chain, RHO, None),
    "near-empty": Source(near_empty, RHO, None),
}
