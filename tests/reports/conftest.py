"""One release with hostile names, of most kinds of analyses, and its two pages."""

import numpy as np
import pandas as pd
import pytest

import dpstats as dps

REGION = 'region <b>&"x"$1$'
LEVELS = ["<script>alert(1)</script>", 'so\'uth & "co"', "日本"]
TITLE = "Survey <2026> & co"


@pytest.fixture(scope="session")
def hostile():
    rng = np.random.default_rng(7)
    n = 1_000
    schema = dps.Schema([
        dps.Boolean("smoker"),
        dps.Category(REGION, LEVELS, note="</style><img src=x>"),
        dps.Number("age", 0, 100, edges=[30, 60], missing=40),
        dps.Number("pay", 0, 100, missing=0),
    ])  # fmt: skip
    asked = {
        "ages": dps.Quantile("age", [0.25, 0.5]),
        "wage": dps.OLS("pay ~ age"),
        "link </p>": dps.Independence("smoker", REGION, simulations=99),
        "fit": dps.GoodnessOfFit("smoker", [0.5, 0.5], simulations=99),
        "smoking": dps.Proportion("smoker"),
        "tables": dps.Marginals(["smoker", REGION], 2),
        "curves": dps.Survival("age", "smoker", by=REGION),
    }
    plan = dps.plan(schema, asked, budget=dps.ApproxDP(5, 1e-9), unit="add_remove")
    rows = pd.DataFrame({
        "smoker": rng.random(n) < 0.3, REGION: rng.choice(LEVELS, n),
        "age": rng.normal(45, 15, n), "pay": rng.normal(50, 10, n),
    })  # fmt: skip
    return dps.release(plan, rows, m=100, k=100, rng=0)


@pytest.fixture(scope="session")
def pages(hostile, tmp_path_factory):
    """The text of both pages by audience, and where they are."""
    folder, found = tmp_path_factory.mktemp("pages"), {}
    for audience in ("analysts", "board"):
        path = folder / f"{audience}.html"
        dps.report(hostile, path, audience=audience, title=TITLE)
        found[audience] = path
    return found
