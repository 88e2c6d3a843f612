"""One or more examples of every registered analysis, on a table that suits them all."""

from types import SimpleNamespace

import numpy as np
import pytest

import dpstats as dps
from dpstats.analyses.registry import registry
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
EXAMPLES = {
    "correlation": [
        dps.Correlation(["score", "age", "pay"]),
        dps.Correlation(["rent", "age"], given="smoker == 'yes'"),
    ],
    "covariance": [dps.Covariance(["age", "rent"]), dps.Covariance(PAIR, clip_norm=0.7)],
    "difference": [dps.Difference("age >= 65", by="smoker")],
    "elastic_net": [dps.ElasticNet("pay ~ age + score + smoker", l1_ratio=0.5)],
    "goodness_of_fit": [
        dps.GoodnessOfFit("region", [0.5, 0.3, 0.2], simulations=199),
        dps.GoodnessOfFit("smoker", {"yes": 0.4, "no": 0.6}, simulations=99),
    ],
    "graphical_model": [
        dps.GraphicalModel([*THREE, "smoker"], tolerance=0.3),
        dps.GraphicalModel(["age", "rent"], given="smoker == 'yes'"),
        dps.GraphicalModel(THREE, **CLIPPED),
        dps.GraphicalModel([*PAIR, "smoker"], structure="tree"),
        dps.GraphicalModel(THREE, estimator="clime", penalties=[0.1, 0.5]),
    ],
    "group_means": [
        dps.GroupMeans("pay", by="region"),
        dps.GroupMeans("rent", by="age", given="smoker == 'yes'"),
    ],
    "hazard": [
        dps.Hazard("age, retired ~ smoker"),
        dps.Hazard("age, retired ~ rent + C(region)", given="smoker == 'yes'"),
    ],
    "huber": [
        dps.Huber("pay ~ 1", k=3),
        dps.Huber("pay ~ age", k=3, grid={"Intercept": (0, 20, 5), "age": (-0.1, 0.5, 5)}),
    ],
    "independence": [
        dps.Independence("smoker", "region", simulations=199),
        dps.Independence("smoker", "age", given="region", simulations=99),
    ],
    "loss_grid": [
        dps.LossGrid(SCORES),
        dps.LossGrid(
            dps.PinballLoss(0.9),
            "pay ~ smoker",
            {"Intercept": (0, 30, 7), "smoker[T.yes]": (-5, 5, 3)},
        ),
    ],
    "lasso": [
        dps.Lasso("pay ~ age + score + smoker"),
        dps.Lasso("rent ~ age", alpha=0.05, given="smoker == 'yes'"),
    ],
    "logistic": [
        dps.Logistic("retired ~ age"),
        dps.Logistic("retired ~ rent + smoker"),
        dps.Logistic("retired ~ age + smoker + region"),
        dps.Logistic("retired ~ age", given="smoker == 'yes'"),
        dps.Logistic("retired ~ age + smoker", stages=2),
        dps.Logistic("retired ~ rent*smoker", given="region != 'west'", stages=2),
    ],
    "marginals": [dps.Marginals(["smoker", "region"])],
    "mean": [
        dps.Mean("pay"),
        dps.Mean(["pay", "rent"], given="smoker == 'yes'"),
    ],
    "mean_difference": [
        dps.MeanDifference("pay", by="region", groups=("south", "north")),
        dps.MeanDifference("age", by="region", groups=("north", "west")),
    ],
    "ols": [
        dps.OLS("age ~ C(region) + smoker"),
        dps.OLS("age ~ region * smoker", ridge=0.01),
        dps.OLS("age ~ smoker", cov_type="HC1"),
        dps.OLS("pay ~ age + score"),
        dps.OLS("rent ~ age", given="smoker == 'yes'"),
    ],
    "pca": [
        dps.PCA(THREE),
        dps.PCA(["age", "rent"], standardize=True),
        dps.PCA(THREE, n_components=1, **CLIPPED),
    ],
    "poisson": [
        dps.Poisson("rent ~ age + smoker"),
        dps.Poisson("age ~ smoker", given="region == 'north'"),
        dps.Poisson("rent ~ age", stages=2),
    ],
    "proportion": [
        dps.Proportion("smoker == 'yes'"),
        dps.Proportion("rent < 10", given="age >= 65"),
    ],
    "quantile": [
        dps.Quantile("age", [0.1, 0.9]),
        dps.Quantile("rent", given="smoker == 'yes'"),
    ],
    "ratio": [
        dps.Ratio("pay", "age"),
        dps.Ratio("score", "rent", by="region", given="smoker == 'yes'"),
    ],
    "survival": [
        dps.Survival("age", "retired"),
        dps.Survival("age", "retired", by="smoker", given="region != 'west'", ties="last"),
        dps.Survival("age", ["retired and smoker == 'yes'", "retired and smoker == 'no'"]),
        dps.Survival("score", "retired", by=["smoker", "region"]),
    ],
}
# Those that a fast run has: one of each kind, or of each way that it goes.
FAST = {
    "correlation": [0], "covariance": [0], "goodness_of_fit": [0], "graphical_model": [0, 3],
    "group_means": [0], "hazard": [1], "huber": [0], "independence": [1], "lasso": [0],
    "logistic": [5], "loss_grid": [0], "mean": [1], "mean_difference": [0], "ols": [2, 4],
    "pca": [2], "poisson": [0], "proportion": [1], "quantile": [1], "ratio": [0],
    "survival": [1, 2],
}  # fmt: skip


def examples_of(kind):
    """Parameters of a test: at least one example of every registered kind."""
    examples = EXAMPLES.get(kind, [kind])
    fast = FAST.get(kind, range(len(examples)))
    return [
        pytest.param(example, marks=[] if i in fast else [pytest.mark.slow])
        for i, example in enumerate(examples)
    ]


def pytest_generate_tests(metafunc):
    """A test that asks for `example` runs over every registered kind, and fails where none is."""
    if "example" in metafunc.fixturenames:
        examples = [example for kind in registry() for example in examples_of(kind)]
        metafunc.parametrize("example", examples, ids=str)


@pytest.fixture(scope="session")
def examples():
    """By kind: ``examples["mean"]`` is a list."""
    return EXAMPLES


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


@pytest.fixture(scope="session")
def released_for_persons(seeded_noise, silent_noise):
    """Makes releases of tables with a column of keys ``id``; without noise if there is no seed."""

    def made(schema, frame, asked, k, *, seed=None, budget=None, **options):
        budget = dps.PureDP(10**6) if budget is None else budget
        plan = dps.plan(schema, asked, budget=budget, rows_per_person=k, person="id", **options)
        with noise._noise_from(silent_noise if seed is None else seeded_noise(seed)):
            return dps.release(plan, frame, m=60, k=10, rng=0)

    return made
