"""Views: two columns of one number of the table, that agree in rows; see test_rules too."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.planning.previews.likeness import likeness
from dpstats.schema.possible import impossible_pairs
from dpstats.verifying.arguing import verify

AGE = dps.Number("age", 0, 99, points=100, edges=[15, 65], missing=40)
COST = dps.Number("cost", 0, 1000, points=1001, edges=[100, 400], allow_missing=True)
LOG = dps.Number("log_cost", 1, 1000, scale="log", points=61, edges=[10, 200], source="cost")
SEX = dps.Category("sex", ["f", "m"])
COLUMNS = [AGE, LOG, COST, SEX]
SCHEMA = dps.Schema(COLUMNS)


def random_rows(n, seed=0):
    """Rows of a table with amounts that rise with age, some missing or out of bounds."""
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 100, n)
    cost = np.round(np.exp(2 + 0.04 * age + rng.normal(0, 0.8, n)))
    cost[rng.random(n) < 0.05] = np.nan
    return pd.DataFrame({"age": age, "cost": cost, "sex": rng.choice(["f", "m"], n)})


def test_a_plan_on_a_view_reads_its_source_and_costs_the_same():
    asked = {"ols": dps.OLS("log(log_cost) ~ age"), "m": dps.Marginals(["log_cost", "sex"])}
    plan = dps.plan(SCHEMA, asked, budget=dps.PureDP(1), n=400)
    assert plan.columns.names == ("age", "log_cost", "sex")
    assert plan.read_columns.names == ("age", "log_cost", "cost", "sex")
    stored = dps.Schema([AGE, replace(LOG, source=None, allow_missing=True), COST, SEX])
    other = dps.plan(stored, asked, budget=dps.PureDP(1), n=400)
    np.testing.assert_array_equal(plan.strategy.scales, other.strategy.scales)
    assert plan.digest != other.digest
    with pytest.raises(dps.DataError, match="'cost'"):
        dps.measure(plan, random_rows(400).drop(columns="cost"))


COARSE = dps.Number("coarse", 0, 500, points=6, edges=[150], source="cost")
TWO = dps.Schema([LOG, COARSE, COST, AGE])  # two views whose source need not be asked for


@pytest.mark.parametrize(
    "asked",
    [
        {"t": dps.Marginals(["log_cost", "coarse"])},
        {"l": dps.Mean("log(log_cost)"), "m": dps.Mean("coarse")},
    ],
)
def test_two_views_agree_where_their_source_is_not_published(asked, tmp_path):
    plan = dps.plan(TWO, asked, budget=dps.PureDP(1), n=300, reference=dps.LogLinear())
    assert "cost" not in plan.columns.names
    release = dps.release(plan, random_rows(300, 5), rng=0)
    views = [TWO[name].codes_by_source(TWO["cost"]) for name in ("log_cost", "coarse")]
    possible = set(zip(*views, strict=True))
    found = zip(*(release.candidates[name] for name in ("log_cost", "coarse")), strict=True)
    assert possible.issuperset(found)
    release.save(tmp_path / "r.zip")
    verdict = verify(tmp_path / "r.zip")
    assert verdict.agrees
    assert "any of 1 between published columns" in verdict.text
    [(first, second, cells)] = impossible_pairs(plan.columns)
    assert (first, second) == ("log_cost", "coarse")
    bins = {(TWO["log_cost"].bins_of(a), TWO["coarse"].bins_of(b)) for a, b in possible}
    assert {*zip(*np.nonzero(~cells), strict=True)} == bins
    points, _ = likeness(None, plan.strategy).points(plan.columns, np.random.default_rng(0))
    assert possible.issuperset(zip(points["log_cost"], points["coarse"], strict=True))


@pytest.mark.parametrize("tables", [True, False])
def test_rows_follow_the_answers_on_both_columns(tables):
    """Where each column alone would; edges of the two do not refine each other."""
    moments = {"mean": dps.Mean("cost"), "ols": dps.OLS("log(log_cost) ~ age")}
    asked = {"t": dps.Marginals(["cost", "log_cost"])} if tables else moments
    n, reference = 1_000, dps.LogLinear()
    rows = random_rows(n, 3)
    plan = dps.plan(SCHEMA, asked, budget=dps.PureDP(10_000), n=n, reference=reference)
    drawn = dps.release(plan, rows, rng=0).to_frame()
    truth = rows.assign(cost=rows.cost.clip(0, 1000), log_cost=rows.cost.clip(1, 1000))
    logs = np.log(truth.log_cost)
    if tables:
        for name, cuts in (("cost", [0, 100, 400, 1001]), ("log_cost", [0, 10, 200, 1001])):
            shares = [np.histogram(frame[name].dropna(), cuts)[0] / n for frame in (truth, drawn)]
            np.testing.assert_allclose(*shares, atol=3e-3)
        return
    assert abs(drawn.cost.mean() / truth.cost.mean() - 1) < 0.02
    assert abs(np.log(drawn.log_cost).mean() - logs.mean()) < 0.02
    assert abs(np.log(drawn.log_cost).corr(drawn.age) - logs.corr(truth.age)) < 0.02
    assert abs(drawn.cost.corr(np.log(drawn.log_cost)) - truth.cost.corr(logs)) < 0.05


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ([dps.Number("v", 0, 9, source="coast"), COST], "source: .*'coast' .did you mean 'cost'"),
        ([dps.Number("v", 0, 9, source="sex"), SEX], "its source 'sex' is no number"),
        ([dps.Number("w", 0, 9, source="log_cost"), *COLUMNS], "is a view itself; name 'cost'"),
        ([dps.Number("v", 0, 9, source="age", allow_missing=True), AGE], "missing where those"),
        ([dps.Number("v", "2024-01-01", "2024-02-01", source="age"), AGE], "both dates"),
        ([dps.Number("v", 0, 999, edges=[500, 501], points=2000, source="age"), AGE],
         r"no row with v \[500, 501\) is allowed by the rules \['v is a view of age'\]"),
    ],
)  # fmt: skip
def test_views_that_cannot_be_used_are_refused(columns, words):
    with pytest.raises(dps.SchemaError, match=words):
        dps.Schema(columns)


def test_a_view_has_the_missing_cells_of_its_source_and_orders_with_others():
    assert SCHEMA["log_cost"].allow_missing
    with pytest.raises(dps.SchemaError, match="no column 'cost'"):
        dps.Schema.from_frictionless(SCHEMA.to_frictionless(), columns=["log_cost"])
    columns = [AGE, dps.Number("young", 0, 30, source="age"), dps.Number("y", 0, 40, points=41)]
    age = dps.Schema(columns, rules=[dps.Order("y >= young")])
    assert age["young"].missing == 30
    bare = dps.Schema([dps.Number("x", 0, 9), dps.Number("v", 1, 9, scale="log", source="x")])
    with pytest.raises(dps.RequestError, match="of 'v' need missing= of 'x' in the schema"):
        dps.plan(bare, {"m": dps.Mean("log(v)")}, budget=dps.PureDP(1))
