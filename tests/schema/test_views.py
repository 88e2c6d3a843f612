"""Views: two columns of one number of the table, that agree in what is read and in rows."""

import itertools

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.planning.previews.likeness import likeness
from dpstats.private.tables import exact_sums, open_source
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


def by_hand(rows):
    """The table with a column for the view, from plain arithmetic on clamped amounts."""
    return rows.assign(log_cost=rows.cost.clip(0, 1000).round().clip(1, 1000))


def without_source(schema):
    """The same columns, as if the table had them all."""
    plain = [dict(column) | {"source": None} for column in schema.to_dict()]
    plain = [{key: v for key, v in column.items() if v is not None} for column in plain]
    return dps.Schema.from_dict(plain)


def test_rows_are_read_from_the_source_by_every_engine(tmp_path):
    rows = random_rows(400)
    blocks = [dps.Cells.table(SCHEMA, [name, "log_cost"]) for name in ("age", "cost")]
    two = without_source(SCHEMA)
    codes = two.encode(pa.RecordBatch.from_pandas(by_hand(rows)))
    wanted = [block.sums(codes) for block in blocks]
    rows.to_csv(tmp_path / "t.csv", index=False)
    polars = pytest.importorskip("polars")
    for table in (rows, rows.assign(log_cost="x"), tmp_path / "t.csv",
                  polars.from_pandas(rows).lazy()):  # fmt: skip
        sums, n = exact_sums(open_source(table, SCHEMA), SCHEMA, blocks)
        assert n == 400
        for found, expected in zip(sums, wanted, strict=True):
            np.testing.assert_array_equal(found, expected)


def test_a_plan_on_a_view_reads_its_source_and_costs_the_same():
    asked = {"ols": dps.OLS("log(log_cost) ~ age"), "m": dps.Marginals(["log_cost", "sex"])}
    plan = dps.plan(SCHEMA, asked, budget=dps.PureDP(1), n=400)
    assert plan.columns.names == ("age", "log_cost", "sex")
    assert plan.read_columns.names == ("age", "log_cost", "cost", "sex")
    other = dps.plan(without_source(SCHEMA), asked, budget=dps.PureDP(1), n=400)
    np.testing.assert_array_equal(plan.strategy.scales, other.strategy.scales)
    assert plan.digest != other.digest
    with pytest.raises(dps.DataError, match="'cost'"):
        dps.measure(plan, random_rows(400).drop(columns="cost"))


ASKED = {
    "moments": {"mean": dps.Mean("cost"), "ols": dps.OLS("log(log_cost) ~ age")},
    "tables": {"t": dps.Marginals(["age", "cost", "log_cost"])},
    "mixed": {"mean": dps.Mean("cost"), "t": dps.Marginals(["age", "log_cost", "sex"])},
}


@pytest.mark.parametrize("asked", ["tables", "mixed"])
def test_in_synthetic_rows_views_agree(asked):
    plan = dps.plan(SCHEMA, ASKED[asked], budget=dps.PureDP(0.1), n=500)
    measured = dps.measure(plan, random_rows(500, 2))
    rules = measured.columns.repairs(measured.columns.names)
    for made in ({}, {"fit": "minimax", "m": 300}):
        release = dps.synthesize(measured, k=400, rng=0, **made)
        assert len(rules.rules) == 1
        assert sum(rules.broken(release.candidates)) == 0
        drawn = release.to_frame()
        np.testing.assert_array_equal(drawn.cost.isna(), drawn.log_cost.isna())
        cost, view = drawn.dropna()[["cost", "log_cost"]].to_numpy().T
        np.testing.assert_array_equal(LOG.encode_numbers(cost), LOG.encode_numbers(view))


COARSE = dps.Number("coarse", 0, 500, points=6, edges=[150], source="cost")
TWO = dps.Schema([LOG, COARSE, COST, AGE])  # two views whose source need not be asked for


@pytest.mark.parametrize(
    "asked",
    [
        {"t": dps.Marginals(["age", "log_cost", "coarse"])},
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


@pytest.mark.parametrize("asked", ["moments", "tables"])
def test_rows_follow_the_answers_on_both_columns(asked):
    """Where each column alone would; edges of the two do not refine each other."""
    n = 1_000
    rows, reference = random_rows(n, 3), dps.LogLinear()
    plan = dps.plan(SCHEMA, ASKED[asked], budget=dps.PureDP(10_000), n=n, reference=reference)
    drawn = dps.release(plan, rows, rng=0).to_frame()
    truth = by_hand(rows).assign(cost=rows.cost.clip(0, 1000))
    logs = np.log(truth.log_cost)
    if asked == "tables":
        for name, cuts in (("cost", [0, 100, 400, 1001]), ("log_cost", [0, 10, 200, 1001])):
            shares = [np.histogram(frame[name].dropna(), cuts)[0] / n for frame in (truth, drawn)]
            np.testing.assert_allclose(*shares, atol=3e-3)
        return
    assert abs(drawn.cost.mean() / truth.cost.mean() - 1) < 0.02
    assert abs(np.log(drawn.log_cost).mean() - logs.mean()) < 0.02
    assert abs(np.log(drawn.log_cost).corr(drawn.age) - logs.corr(truth.age)) < 0.02
    assert abs(drawn.cost.corr(np.log(drawn.log_cost)) - truth.cost.corr(logs)) < 0.05


def random_views(rng):
    """A number, two views of it, a category, and rules that may contradict each other."""
    number = dps.Number("x", 0, 11, points=12, edges=[4, 8])
    views = [
        dps.Number(name, 0, int(rng.integers(5, 12)), points=int(rng.integers(4, 9)),
                   edges=[int(rng.integers(2, 4))], source="x")
        for name in "vw"
    ]  # fmt: skip
    other = dps.Category("g", ["1", "2"])
    rules, edges = [], {"x": (4, 8), **{v.name: v.edges for v in views}}
    for _ in range(rng.integers(1, 4)):
        name = str(rng.choice(["x", "v", "w"]))
        text = f"{name} {rng.choice(['<', '>='])} {rng.choice(edges[name])} and g == '1'"
        to = {"g": "2"} if rng.random() < 0.5 or name != "x" else {"x": int(rng.integers(12))}
        rules.append(dps.Never(text, set=to))
    return [number, *views, other], rules


@pytest.mark.parametrize("seed", range(20))
def test_schemas_are_accepted_if_and_only_if_every_row_ends_allowed(seed):
    """Against all coded rows, one by one, with rules applied in plain Python."""
    columns, rules = random_views(np.random.default_rng(seed))
    bare, x = dps.Schema(columns), columns[0]
    codes = [np.array(c) for c in zip(*itertools.product(x.codes_in_use, range(2)), strict=True)]
    every = bare.with_views({"x": codes[0], "g": codes[1]})
    compiled = [rule.compiled(bare) for rule in rules]
    read = [
        {name: column[i : i + 1] for name, column in every.items()} for i in range(len(codes[0]))
    ]
    for i, row in enumerate(read):
        for rule in compiled:
            if rule.broken(row)[0]:
                stored = {name: (row | rule.repaired(row))[name] for name in ("x", "g")}
                row = bare.with_views(stored)
        read[i] = row
    allowed = ~np.any([rule.broken(every) for rule in compiled], axis=0)
    levels = all(len(set(c.bins_of(every[c.name][allowed]))) == c.bins for c in columns)
    if not levels or any(rule.broken(row)[0] for row in read for rule in compiled):
        with pytest.raises(dps.SchemaError):
            dps.Schema(columns, rules=rules)
        return
    schema = dps.Schema(columns, rules=rules)
    for names in (["v"], ["g"], ["x", "w"]):
        repairs = schema.repairs(names)
        some = repairs.repair({name: every[name] for name in repairs.schema.names})
        for name in names:
            np.testing.assert_array_equal(some[name], [row[name][0] for row in read])


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


def test_a_view_is_compared_with_others_and_does_not_give_way():
    number, view = dps.Number("x", 0, 19, points=20), dps.Number("v", 0, 9, points=4, source="x")
    columns = [number, view, dps.Number("y", 0, 25, points=26)]
    assert dps.Schema(columns, rules=[dps.Order("y >= v")]).rules
    with pytest.raises(dps.SchemaError, match=r"'v' is a view and cannot give way.*'x'"):
        dps.Schema(columns, rules=[dps.Order("y >= v", change="v")])


def test_a_view_has_the_missing_cells_of_its_source():
    assert SCHEMA["log_cost"].allow_missing
    with pytest.raises(dps.SchemaError, match="no column 'cost'"):
        dps.Schema.from_frictionless(SCHEMA.to_frictionless(), columns=["log_cost"])
    age = dps.Schema([AGE, dps.Number("young", 0, 30, source="age")])
    assert age["young"].missing == 30
    bare = dps.Schema([dps.Number("x", 0, 9), dps.Number("v", 1, 9, scale="log", source="x")])
    with pytest.raises(dps.RequestError, match="of 'v' need missing= of 'x' in the schema"):
        dps.plan(bare, {"m": dps.Mean("log(v)")}, budget=dps.PureDP(1))
