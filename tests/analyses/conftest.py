"""One or more examples of every registered analysis, on a table that suits them all."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.measured.combining import Sources
from dpstats.measured.view import View
from dpstats.privacy import noise

SCORES = dps.TabulatedLoss.of(
    dps.Schema([dps.Number("score", values=[17.5, 22, 27, 40], missing=22)]),
    ["score"],
    {"typical": (17.5, 40, 7)},
    lambda row, at: abs(row["score"] - at["typical"]),
    convex=True,
)
PAIR, THREE = ["age", "pay"], ["age", "pay", "score"]
CLIPPED = {"clip_norm": 0.7, "center": {"pay": 9}}
QUICK = [
    dps.Correlation(["score", "age", "pay"]),
    dps.Covariance(["age", "rent"]),
    dps.Difference("age >= 65", by="smoker"),
    dps.ElasticNet("pay ~ age + score + smoker", l1_ratio=0.5),
    dps.GoodnessOfFit("region", [0.5, 0.3, 0.2], simulations=199),
    dps.GraphicalModel([*THREE, "smoker"], tolerance=0.3),
    dps.GraphicalModel([*PAIR, "smoker"], structure="tree"),
    dps.GroupMeans("pay", by="region"),
    dps.Hazard("age, retired ~ rent + C(region)", given="smoker == 'yes'"),
    dps.Huber("pay ~ 1", k=3),
    dps.Independence("smoker", "age", given="region", simulations=99),
    dps.LossGrid(SCORES),
    dps.Lasso("pay ~ age + score + smoker"),
    dps.Logistic("retired ~ rent*smoker", given="region != 'west'", stages=2),
    dps.Marginals(["smoker", "region"]),
    dps.Mean(["pay", "rent"], given="smoker == 'yes'"),
    dps.MeanDifference("pay", by="region", groups=("south", "north")),
    dps.OLS("age ~ smoker", cov_type="HC1"),
    dps.PCA(THREE, n_components=1, **CLIPPED),
    dps.Poisson("age ~ smoker", given="region == 'north'"),
    dps.Proportion("rent < 10", given="age >= 65"),
    dps.Quantile("rent", given="smoker == 'yes'"),
    dps.Survival("age", "retired", by="smoker", given="region != 'west'", ties="last"),
]
# Other ways that they go, or examples that take seconds.
SLOW = [
    dps.Correlation(["rent", "age"], given="smoker == 'yes'"),
    dps.Covariance(PAIR, clip_norm=0.7),
    dps.GraphicalModel(THREE, **CLIPPED),
    dps.GraphicalModel(THREE, estimator="clime", penalties=[0.1, 0.5]),
    dps.GroupMeans("rent", by="age", given="smoker == 'yes'"),
    dps.Huber("pay ~ age", k=3, grid={"Intercept": (0, 20, 5), "age": (-0.1, 0.5, 5)}),
    dps.LossGrid(
        dps.PinballLoss(0.9), "pay ~ smoker", {"Intercept": (0, 30, 7), "smoker[T.yes]": (-5, 5, 3)}
    ),
    dps.Logistic("retired ~ age"),
    dps.Logistic("retired ~ age + smoker + region"),
    dps.OLS("age ~ region * smoker", ridge=0.01),
    dps.OLS("rent ~ age", given="smoker == 'yes'"),
    dps.PCA(["age", "rent"], standardize=True),
    dps.Poisson("rent ~ age + smoker"),
    dps.Poisson("rent ~ age", stages=2),
    dps.Ratio("pay", "age"),
    dps.Ratio("score", "rent", by="region", given="smoker == 'yes'"),
    dps.Survival("age", ["retired and smoker == 'yes'", "retired and smoker == 'no'"]),
    dps.Survival("score", "retired", by=["smoker", "region"]),
]


def pytest_generate_tests(metafunc):
    """A test that asks for `example` runs over every registered kind."""
    if "quick_example" in metafunc.fixturenames:
        metafunc.parametrize("quick_example", QUICK, ids=str)
    if "example" in metafunc.fixturenames:
        slow = [pytest.param(example, marks=pytest.mark.slow) for example in SLOW]
        metafunc.parametrize("example", [*QUICK, *slow], ids=str)


@pytest.fixture(scope="session")
def examples():
    """Those of a fast run, and all: one or more of each registered kind."""
    return SimpleNamespace(quick=QUICK, all=[*QUICK, *SLOW])


@pytest.fixture(scope="session")
def people():
    """``people.schema`` and its ``people.rows``; the west is almost empty."""
    rng, n = np.random.default_rng(4), 900
    schema = dps.Schema([
        dps.Category("smoker", ["no", "yes"]),
        dps.Category("region", ["north", "south", "west"]),
        dps.Number("age", 0, 120, points=241, edges=[18, 40, 65], missing=40),
        dps.Number("pay", -10, 30, points=401, missing=0),
        dps.Number("score", values=[17.5, 22, 27, 40], missing=22),
        dps.Number("rent", 0, 50, points=101, edges=[10, 25], allow_missing=True),
        dps.Boolean("retired"),
    ])  # fmt: skip
    age = rng.normal(45, 20, n).clip(0, 110).round()
    rows = schema.to_frame({
        "smoker": rng.choice(2, n, p=[0.7, 0.3]),
        "region": rng.choice(3, n, p=[0.6, 0.38, 0.02]),
        **dict.fromkeys(["age", "pay", "score", "rent", "retired"], np.zeros(n, np.int64)),
    }).assign(
        age=age,
        pay=(age / 5 + rng.normal(0, 4, n)).clip(-10, 30).round(1),
        score=rng.choice([17.5, 22, 27, 40], n, p=[0.1, 0.2, 0.4, 0.3]),
        retired=age + rng.normal(0, 20, n) > 65,
        rent=np.where(rng.random(n) < 0.3, np.nan, (age / 3 + rng.normal(0, 5, n)).clip(0, 50)),
    )  # fmt: skip
    return SimpleNamespace(schema=schema, rows=rows)


PERSONS = dps.Schema([
    dps.Boolean("ill"), dps.Boolean("g"), dps.Number("x", -4, 4, points=129, edges=[0], missing=0),
    dps.Number("y", -8, 8, points=129, missing=0), dps.Category("c", ["a", "b", "z"]),
    dps.Number("m", -1, 1, points=21, allow_missing=True),
    dps.Number("visits", 0, 8, points=9, edges=[1, 2, 3], missing=0),
])  # fmt: skip


def rows_of_persons(rng, persons, k, *, balanced=False):
    """Rows of persons, 1 to k of them or k; most of the variation is between persons."""
    ids = np.repeat(np.arange(persons), k if balanced else rng.integers(1, k + 1, persons))
    n = len(ids)
    u, v, w = rng.normal(size=(3, persons))
    x = (v[ids] + 0.5 * rng.normal(size=n)).clip(-4, 4)
    y = (1 + 0.5 * x + 1.2 * u[ids] + (0.5 + 0.2 * np.abs(x)) * rng.normal(size=n)).clip(-8, 8)
    return pd.DataFrame({
        "id": ids, "ill": u[ids] + 0.3 * rng.normal(size=n) > 0.8,
        "g": w[ids] + 0.7 * rng.normal(size=n) > 0,  # a person may be in both groups
        "x": np.round(x * 16) / 16, "y": np.round(y * 8) / 8,
        "c": np.array(["a", "b", "z"])[(ids + rng.integers(0, 2, n)) % 3],
        "m": np.where(rng.random(n) < 0.2, np.nan, np.round(np.tanh(u[ids]), 1)),
        "visits": np.abs(y).round(),
    })  # fmt: skip


@pytest.fixture(scope="session")
def persons():
    """``persons.schema``, and ``persons.rows(rng, persons, k)`` with keys ``id``."""
    return SimpleNamespace(schema=PERSONS, rows=rows_of_persons)


@pytest.fixture(scope="session")
def inferred():
    """Makes a result: of one analysis, by name ``it``, on a release of it alone."""

    def of(schema, rows, analysis, budget=None, *, noise_from=None, **options):
        budget = dps.PureDP(10**6) if budget is None else budget
        options = {"reference": dps.Uniform(), **options}
        plan = dps.plan(schema, {"it": analysis}, budget=budget, **options)
        with noise._noise_from(noise_from) if noise_from else nullcontext():
            return dps.release(plan, rows, m=50, k=10, rng=0).infer("it")

    return of


@pytest.fixture(scope="session")
def redrawn():
    """Results of an analysis of the same rows, each with fresh noise, without synthetic rows."""

    def of(schema, rows, analysis, budget, runs, measured=None, **options):
        plan = dps.plan(schema, {"it": measured or analysis}, budget=budget, **options)
        for _ in range(runs):
            sources = Sources(dps.measure(plan, rows))
            yield analysis.infer(View(sources, sources.measurements.n))

    return of


@pytest.fixture(scope="session")
def released_for_persons(seeded_noise, silent_noise):
    """Makes releases of tables with a column of keys ``id``; without noise if there is no seed."""

    def made(schema, frame, asked, k, *, seed=None, budget=None, **options):
        options |= {"budget": dps.PureDP(10**6) if budget is None else budget, "person": "id"}
        plan = dps.plan(schema, asked, rows_per_person=k, reference=dps.Uniform(), **options)
        with noise._noise_from(silent_noise if seed is None else seeded_noise(seed)):
            return dps.release(plan, frame, m=60, k=10, rng=0)

    return made
