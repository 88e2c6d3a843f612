"""Plans that hold every kind of block, and what the package says of them."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.verifying import blocks, kinds, reading
from dpstats.verifying.arguing import verify

SCHEMA = dps.Schema([
    dps.Category("region", ["north", "south", "west"]),
    dps.Boolean("smoker"),
    dps.Boolean("retired", allow_missing=True),
    dps.Number("age", 0, 120, points=241, edges=[18, 40, 65], missing=40),
    dps.Number("pay", 1, 1000, points=8, missing=10, scale="log", edges=[100], closed="right"),
    dps.Number("score", values=[17.5, 22, 27, 40], missing=22),
    dps.Number("rent", 0, 50, points=21, edges=[10, 25], allow_missing=True),
    dps.Number("start", "2024-01-01", "2024-02-10", edges=["2024-01-15"], missing="2024-01-02"),
    dps.Number("size", 0, 10, points=11, edges=[4, 7], missing=5),
    dps.Boolean("ill"),
])  # fmt: skip
TYPICAL = dps.TabulatedLoss.of(
    SCHEMA, ["score"], {"m": (17.5, 40, 5)}, lambda row, at: abs(row["score"] - at["m"]),
    convex=True,
)  # fmt: skip
GRID = {"Intercept": (0.0, 10.0, 3), "score": (-0.2, 0.2, 3)}
ASKED = {
    "smoking": dps.Proportion("smoker"),
    "retired": dps.Proportion("retired == True", given="region != 'west'"),
    "tables": dps.Marginals(["region", "smoker", "retired"], degree=2),
    "ages": dps.Quantile("age", [0.25, 0.5]),
    "rates": dps.Ratio("age", "rent", by="region"),
    "rents": dps.GroupMeans("rent", by="region", given="smoker"),
    "means": dps.Mean(["log(pay)", "rent"], given="region != 'west'"),
    "pair": dps.Correlation(["age", "score"]),
    "many": dps.Covariance(["age", "size", "start"]),
    "ball": dps.PCA(["age", "size"], clip_norm=0.7),
    "line": dps.OLS("size ~ age + region", cov_type="HC1"),
    "graph": dps.GraphicalModel(["age", "smoker", "ill"]),
    "odds": dps.Logistic("ill ~ age + smoker", stages=2),
    "logs": dps.Logistic("ill ~ size + smoker + region"),
    "offsets": dps.Logistic("ill ~ size"),
    "typical": dps.LossGrid(TYPICAL),
    "huber": dps.Huber("size ~ score", k=2, grid=GRID),
}
DESIGN = dps.Design(
    "weight", mean=1_000, low=100, high=9_000, cap=2_500, strata="region", unit="school",
    units={"north": [1, 2, 3, 4, 5], "south": [11, 12]},
)  # fmt: skip
OF_SURVEY = [
    dps.Boolean("smoker"), dps.Category("level", ["a", "b", "c"]),
    dps.Number("age", 0, 120, points=25, edges=[18, 65], missing=40),
    dps.Number("size", 0, 10, points=1001, missing=5),
]  # fmt: skip
WEIGHTED = {
    "smoking": dps.Proportion("smoker"),
    "table": dps.Marginals(["smoker", "level"]),
    "age": dps.Mean("age"),
    "ages": dps.GroupMeans("age", by="level"),
    "apart": dps.Difference("smoker", by="level", groups=("a", "b")),
    "rate": dps.Ratio("age", "size", by="smoker"),
}
KDE = dps.BernsteinKDE(["age", "size"], k=3)
BUDGETS = {"pure": dps.PureDP(2), "zcdp": dps.ZCDP(2)}
LOOSE = {"ball_moments", "kernel_lattice", "linear_losses", "moments"}  # a bound in the package


def pytest_generate_tests(metafunc):
    """Both relations, and both norms."""
    if "budget" in metafunc.fixturenames:
        pairs = [("replace", BUDGETS["pure"]), ("add_remove", BUDGETS["zcdp"])]
        metafunc.parametrize(("unit", "budget"), pairs, ids=BUDGETS)
    elif "unit" in metafunc.fixturenames:
        metafunc.parametrize("unit", ["replace", "add_remove"])


@pytest.fixture(scope="session")
def rows():
    rng, n = np.random.default_rng(4), 400
    age = rng.normal(45, 20, n).clip(0, 120).round()
    return pd.DataFrame({
        "region": rng.choice(["north", "south", "west"], n),
        "smoker": rng.random(n) < 0.3,
        "retired": rng.choice(["true", "false", ""], n),
        "age": age,
        "pay": np.exp(rng.normal(3, 1, n)),
        "score": rng.choice([17.5, 22, 27, 40], n),
        "rent": np.where(rng.random(n) < 0.3, np.nan, rng.uniform(0, 50, n)),
        "start": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 40, n), "D"),
        "size": rng.integers(0, 11, n),
        "ill": rng.random(n) < 0.5,
    })  # fmt: skip


@pytest.fixture(scope="session")
def whole():
    """A plan of everything; some of it by other names."""

    def make(budget, unit, *names, **options):
        asked = {name: ASKED[name] for name in names} if names else ASKED
        options = options if names else {"reference": KDE} | options
        return dps.plan(SCHEMA, asked, budget=budget, unit=unit, n=400, **options)

    return make


@pytest.fixture(scope="session")
def reread():
    """The plan as the program reads it from its file."""
    return lambda plan: reading._contents("plan", json.loads(json.dumps(plan.to_dict())))


@pytest.fixture
def judge(tmp_path):
    """The verdict on a plan, or on its document when it was edited."""

    def verdict(plan):
        plain = plan if isinstance(plan, dict) else plan.to_dict()
        (tmp_path / "plan.json").write_text(json.dumps(plain))
        return verify(tmp_path / "plan.json")

    return verdict


def differences_of(plan):
    """Where the program and the package do not say the same of a plan's blocks."""
    held = reading._contents("plan", json.loads(json.dumps(plan.to_dict())))
    power, found = 1 if plan.budget.kind == "pure" else 2, []
    rng = np.random.default_rng(1)
    for number, (planned, one) in enumerate(zip(plan.strategy.blocks, held.blocks, strict=True)):
        block, own, name = planned.block, one.block, f"{number} {one.block.kind}"
        if list(block.bounds) != list(own.bounds):
            found.append(f"{name}: bounds")
        codes = {c.name: rng.choice(held.columns[c.name].codes, 60) for c in block.columns}
        filled = planned.at(0.3).block
        if planned.pending:
            own = kinds.read_block(json.loads(json.dumps(filled.to_dict())), held.columns)
        if block.columns and own.of is not None:
            values = filled.evaluate(codes).matrix().toarray()
            dense = np.zeros_like(values)
            for i, row in enumerate(zip(*codes.values(), strict=True)):
                for f, value in own.of(dict(zip(codes, map(int, row), strict=True))).items():
                    dense[f, i] = value
            if not np.array_equal(dense, values):
                found.append(f"{name}: functions")
        person = plan.neighbours
        claimed = block.moved_by(replace(person, rows_per_person=1, person=None))
        amount = (claimed.l1 if power == 1 else claimed.l2_squared) / person.copies**power
        find = blocks.find_weighted if held.weighted else blocks.find
        finding = find(one.block, plan.unit, power)
        if not finding.reached <= finding.bound <= amount:
            found.append(f"{name}: sensitivity {finding.bound}, claimed {amount}")
        if finding.bound < amount and one.block.kind not in LOOSE:
            found.append(f"{name}: {finding.bound} is less than the claim {amount}")
        if finding.reached * 2 <= amount and not planned.pending:
            found.append(f"{name}: rows reach {finding.reached}, not half of the claim {amount}")
        if finding.bound < amount * Fraction(3, 4):
            found.append(f"{name}: {finding.bound} is far less than the claim {amount}")
    return found


@pytest.fixture(scope="session")
def differences():
    return differences_of


@pytest.fixture(scope="session")
def weighted():
    """A plan of a sample survey."""

    def make(budget, unit, design=DESIGN, **options):
        schema = dps.Schema(OF_SURVEY, design=design)
        return dps.plan(schema, WEIGHTED, budget=budget, unit=unit, n=500, **options)

    return make


@pytest.fixture(scope="session")
def survey():
    rng, n = np.random.default_rng(7), 500
    south = rng.random(n) < 0.4
    return pd.DataFrame({
        "smoker": rng.random(n) < 0.3, "level": rng.choice(list("abc"), n),
        "age": rng.integers(0, 120, n), "weight": rng.lognormal(6.8, 0.6, n),
        "region": np.where(south, "south", "north"),
        "school": np.where(south, rng.integers(11, 13, n), rng.integers(1, 6, n)),
        "size": 10 * rng.random(n),
    })  # fmt: skip
