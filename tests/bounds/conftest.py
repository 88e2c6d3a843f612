"""Releases of one small survey, each made once."""

import numpy as np
import pandas as pd
import pytest

import dpstats as dps

SCHEMA = dps.Schema([
    dps.Boolean("smoker"), dps.Category("region", ["north", "south", "east"]),
    dps.Number("age", 0, 120, points=121, edges=[18, 40, 65], missing=40),
    dps.Boolean("ill"), dps.Boolean("rich", allow_missing=True),
    dps.Number("income", 0, 100, points=101, edges=[20, 50], missing=20),
])  # fmt: skip
COLUMNS = ["smoker", "region", "age", "ill"]


PLANS = {
    "pairs": ({"pairs": dps.Marginals(COLUMNS)}, dps.PureDP(2), "replace"),
    "pairs, n hidden": ({"pairs": dps.Marginals(COLUMNS)}, dps.ZCDP(0.05), "add_remove"),
    "residuals": ({"pairs": dps.Marginals(COLUMNS)}, dps.ZCDP(0.05), "replace"),
    "conditions": (
        {"a": dps.Proportion("smoker & region == 'north'"), "b": dps.Proportion("ill"),
         "c": dps.Proportion("smoker & age >= 65"), "m": dps.Mean("income")},
        dps.PureDP(2), "replace",
    ),
    "quantile": ({"q": dps.Quantile("age")}, dps.PureDP(2), "replace"),
    "one, n hidden": ({"a": dps.Proportion("region == 'east'")}, dps.PureDP(1), "add_remove"),
}  # fmt: skip


@pytest.fixture(scope="session")
def survey_rows():
    rng, n = np.random.default_rng(11), 3_000
    region = rng.choice(["north", "south", "east"], n, p=[0.5, 0.3, 0.2])
    smoker = rng.random(n) < np.where(region == "north", 0.7, 0.2)
    return pd.DataFrame({
        "smoker": smoker, "region": region, "age": rng.normal(45, 20, n).clip(0, 110).round(),
        "ill": rng.random(n) < np.where(smoker, 0.6, 0.1),
        "rich": rng.choice([True, False, None], n, p=[0.2, 0.7, 0.1]),
        "income": rng.gamma(3, 10, n).clip(0, 100).round(),
    })  # fmt: skip


@pytest.fixture(scope="session")
def unplanned(survey_rows):
    """Releases by the name of their plan."""

    return {
        name: dps.release(
            dps.plan(SCHEMA, asked, budget=budget, unit=unit), survey_rows, m=100, k=50, rng=1
        )
        for name, (asked, budget, unit) in PLANS.items()
    }
