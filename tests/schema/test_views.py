"""Views: two columns of one number of the table, that agree in what is read and in rows."""

import itertools
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpstats as dps
from dpstats.planning.previews.likeness import likeness
from dpstats.private.kernel import Kernel
from dpstats.private.partial_sums import PartialSums
from dpstats.private.tables import exact_sums, open_source
from dpstats.schema.possible import impossible_pairs
from dpstats.schema.repairs import compile_rules
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
    blocks = [
        dps.Cells.table(SCHEMA, ["log_cost"]),
        dps.Cells.table(SCHEMA, ["age", "log_cost"]),
        dps.Cells.table(SCHEMA, ["cost", "log_cost"]),
    ]
    two = without_source(SCHEMA)
    codes = two.encode(pa.RecordBatch.from_pandas(by_hand(rows)))
    wanted = [block.sums(codes) for block in blocks]
    rows.to_csv(tmp_path / "t.csv", index=False)
    pq.write_table(pa.Table.from_pandas(rows), tmp_path / "t.parquet", row_group_size=64)
    tables = [rows, pa.Table.from_pandas(rows), tmp_path / "t.csv", tmp_path / "t.parquet",
              rows.assign(log_cost="x")]  # fmt: skip
    dask, polars = pytest.importorskip("dask.dataframe"), pytest.importorskip("polars")
    tables += [dask.from_pandas(rows, npartitions=3), polars.from_pandas(rows)]
    tables += [polars.from_pandas(rows).lazy()]
    for table in tables:
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
    measured = dps.measure(plan, random_rows(400))
    assert dps.synthesize(measured, rng=0, m=200).k == 400
    assert "a view of 'cost'; missing where 'cost' is" in str(SCHEMA)
    assert "log_cost: missing where 'cost' is" in str(plan)


def test_one_row_changes_the_sums_by_no_more_than_its_own_functions():
    block = dps.Cells.table(SCHEMA, ["cost", "log_cost"])
    kernel, batch = Kernel(SCHEMA, [block]), pa.RecordBatch.from_pandas(random_rows(60, 1))
    assert kernel.raw.names == ("cost",)
    alone = [PartialSums.of(kernel, [batch.slice(i, 1)]).sums for i in range(60)]
    assert all(one.sum() == 1 and one.min() == 0 for one in alone)
    np.testing.assert_array_equal(PartialSums.of(kernel, [batch]).sums, np.sum(alone, axis=0))


ASKED = {
    "moments": {"mean": dps.Mean("cost"), "ols": dps.OLS("log(log_cost) ~ age")},
    "tables": {"t": dps.Marginals(["age", "cost", "log_cost"])},
    "mixed": {"mean": dps.Mean("cost"), "t": dps.Marginals(["age", "log_cost", "sex"])},
}


@pytest.mark.parametrize("epsilon", [0.1, 10_000])
@pytest.mark.parametrize("asked", ASKED)
def test_in_synthetic_rows_views_agree(asked, epsilon):
    plan = dps.plan(SCHEMA, ASKED[asked], budget=dps.PureDP(epsilon), n=3_000)
    measured = dps.measure(plan, random_rows(3_000, 2))
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
        {"t": dps.Marginals(["age", "log_cost"]), "m": dps.Mean("coarse")},
        {"l": dps.Mean("log(log_cost)"), "m": dps.Mean("coarse")},
    ],
)
def test_two_views_agree_where_their_source_is_not_published(asked, tmp_path):
    rows = random_rows(3_000, 5)
    for reference in (None, dps.LogLinear()):
        plan = dps.plan(TWO, asked, budget=dps.PureDP(1), n=3_000, reference=reference)
        assert "cost" not in plan.columns.names
        release = dps.release(plan, rows, rng=0)
        views = [TWO[name].codes_by_source(TWO["cost"]) for name in ("log_cost", "coarse")]
        possible = set(zip(*views, strict=True))
        found = zip(*(release.candidates[name] for name in ("log_cost", "coarse")), strict=True)
        assert possible.issuperset(found)
        release.save(tmp_path / "r.zip", overwrite=True)
        verdict = verify(tmp_path / "r.zip")
        assert verdict.agrees
        assert "any of 1 between published columns" in verdict.text
    pairs = impossible_pairs(plan.columns)
    assert [(first, second) for first, second, _ in pairs] == [("log_cost", "coarse")]
    cells = {(TWO["log_cost"].bins_of(a), TWO["coarse"].bins_of(b)) for a, b in possible}
    assert {*zip(*np.nonzero(~pairs[0][2]), strict=True)} == cells
    assert plan.columns.select(["log_cost", "coarse"]).hidden == (TWO["cost"],)
    assert not plan.columns.select(["log_cost"]).hidden
    points, _ = likeness(None, plan.strategy).points(plan.columns, np.random.default_rng(0))
    assert possible.issuperset(zip(points["log_cost"], points["coarse"], strict=True))


def test_guesses_of_a_view_decide_about_its_source():
    guesses = dps.Guesses(typical={"log_cost": {"mean": 30, "sd": 10}})
    rows = dps.pretend(TWO, 20_000, guesses, rng=0)
    assert list(rows) == ["cost", "age"]
    assert abs(rows.cost.mean() - 30) < 1


@pytest.mark.parametrize("asked", ["moments", "tables"])
def test_rows_follow_the_answers_on_both_columns(asked):
    """Where each column alone would; edges of the two do not refine each other."""
    rows = random_rows(5_000, 3)
    plan = dps.plan(SCHEMA, ASKED[asked], budget=dps.PureDP(10_000), n=5_000,
                    reference=dps.LogLinear())  # fmt: skip
    drawn = dps.release(plan, rows, rng=0).to_frame()
    truth = by_hand(rows).assign(cost=rows.cost.clip(0, 1000))
    logs = np.log(truth.log_cost)
    if asked == "tables":
        for name, cuts in (("cost", [0, 100, 400, 1001]), ("log_cost", [0, 10, 200, 1001])):
            shares = [
                np.histogram(frame[name].dropna(), cuts)[0] / 5_000 for frame in (truth, drawn)
            ]
            np.testing.assert_allclose(*shares, atol=1e-3)
        return
    assert abs(drawn.cost.mean() / truth.cost.mean() - 1) < 0.02
    assert abs(np.log(drawn.log_cost).mean() - logs.mean()) < 0.02
    assert abs(np.log(drawn.log_cost).corr(drawn.age) - logs.corr(truth.age)) < 0.02
    assert abs(drawn.cost.corr(np.log(drawn.log_cost)) - truth.cost.corr(logs)) < 0.05


def test_impossible_cells_are_those_without_a_code_of_the_source():
    [(first, second, cells)] = impossible_pairs(SCHEMA)
    assert (first, second) == ("cost", "log_cost")
    [view] = compile_rules(SCHEMA)
    codes = COST.all_codes
    possible = {*zip(COST.bins_of(codes), view.view.bins_of(view.codes[codes + 500]), strict=True)}
    assert {*zip(*np.nonzero(~cells), strict=True)} == possible
    assert cells.any()


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


@pytest.mark.parametrize("seed", range(40))
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


def test_views_have_orders_with_others():
    number, view = (dps.Number("x", 0, 19, points=20), dps.Number("v", 0, 9, points=4, source="x"))
    other = dps.Number("y", 0, 25, points=26)
    assert dps.Schema([number, view, other], rules=[dps.Order("y >= v")]).rules
    with pytest.raises(dps.SchemaError, match=r"'v' is a view and cannot give way.*'x'"):
        dps.Schema([number, view, other], rules=[dps.Order("y >= v", change="v")])
    fine = dps.Number("x", 0, 10_000, points=10_001)  # a proof goes through bins, not through codes
    log = dps.Number("v", 1, 10_000, edges=[10], scale="log", source="x")
    rule = dps.Never("v >= 10 and g == '1'", set={"g": "2"})
    assert dps.Schema([fine, log, dps.Category("g", list("123"))], rules=[rule]).rules
    both = [dps.Order("y >= v"), dps.Never("v >= 3 and g == '1'", set={"g": "2"})]
    edged = dps.Number("v", 0, 9, points=4, edges=[3], source="x")
    assert dps.Schema([number, edged, other, dps.Category("g", ["1", "2"])], rules=both).rules


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ([dps.Number("v", 0, 9, source="coast"), COST], "source: .*'coast' .did you mean 'cost'"),
        ([dps.Number("v", 0, 9, source="sex"), SEX], "its source 'sex' is no number"),
        ([dps.Number("w", 0, 9, source="log_cost"), *COLUMNS], "is a view itself; name 'cost'"),
        ([dps.Number("v", 0, 9, source="cost", missing=3), COST], "missing where those of"),
        ([dps.Number("v", 0, 9, source="age", allow_missing=True), AGE], "missing where those"),
        ([dps.Number("v", "2024-01-01", "2024-02-01", source="age"), AGE], "both dates"),
        ([dps.Number("v", 0, 999, edges=[500, 501], points=2000, source="age"), AGE],
         r"no row with v \[500, 501\) is allowed by the rules \['v is a view of age'\]"),
    ],
)  # fmt: skip
def test_views_that_cannot_be_used_are_refused(columns, words):
    with pytest.raises(dps.SchemaError, match=words):
        dps.Schema(columns)


def test_a_view_has_the_missing_cells_of_its_source():
    assert SCHEMA["log_cost"].allow_missing
    age = dps.Schema([AGE, dps.Number("young", 0, 30, source="age")])
    assert age["young"].missing == 30
    bare = dps.Schema([dps.Number("x", 0, 9), dps.Number("v", 1, 9, scale="log", source="x")])
    with pytest.raises(dps.RequestError, match="of 'v' need missing= of 'x' in the schema"):
        dps.plan(bare, {"m": dps.Mean("log(v)")}, budget=dps.PureDP(1))


def test_bins_that_a_plan_chooses_may_hold_no_value():
    columns = [dps.Number("x", 0, 9, points=3, missing=0), dps.Number("v", 0, 9, source="x")]
    assert dps.Schema(columns).with_even_edges(["v"])["v"].bins == 8


def test_files_hold_views(tmp_path):
    text = """
        [[column]]
        name = "cost"
        low = 0
        high = 1000
        missing = 0
        [[column]]
        name = "log_cost"
        low = 1
        high = 1000
        scale = "log"
        source = "cost"
    """
    (tmp_path / "s.toml").write_text(text)
    schema = dps.Schema.load(tmp_path / "s.toml")
    assert schema["log_cost"].source == "cost"
    again = dps.Schema.from_dict(json.loads(json.dumps(schema.to_dict())))
    assert again == schema == dps.Schema.from_frictionless(schema.to_frictionless())
    assert list(schema.to_smartnoise("t")[""][""]["t"]) == ["row_privacy", "cost"]
    with pytest.raises(dps.SchemaError, match="no column 'cost'"):
        dps.Schema.from_frictionless(schema.to_frictionless(), columns=["log_cost"])
    asked = {"m": dps.Mean("cost"), "o": dps.Mean("log(log_cost)")}
    plan = dps.plan(schema, asked, budget=dps.PureDP(1))
    plan.save(tmp_path / "plan.json")
    assert dps.Plan.load(tmp_path / "plan.json").digest == plan.digest
    release = dps.release(plan, random_rows(500), rng=0)
    release.save(tmp_path / "r.zip")
    loaded = dps.load(tmp_path / "r.zip")
    assert loaded.schema == schema
    pd.testing.assert_frame_equal(loaded.to_frame(), release.to_frame())
    assert verify(tmp_path / "r.zip").agrees


def test_the_table_of_a_check_and_invented_rows_have_no_views():
    plan = dps.plan(SCHEMA, ASKED["tables"], budget=dps.PureDP(1), n=300)
    fit = dps.check(plan, random_rows(300, 3))
    assert [column.name for column in fit.columns] == ["age", "cost"]
    assert not fit.absent
    assert not fit.broken
    assert dps.check(plan, random_rows(300).drop(columns="cost")).absent == ("cost",)
    assert list(dps.pretend(SCHEMA, 10, rng=0)) == ["age", "cost", "sex"]


def test_previews_are_of_agreeing_rows():
    plan = dps.plan(SCHEMA, ASKED["moments"], budget=dps.PureDP(1), n=300)
    rules = plan.columns.repairs(plan.columns.names)
    for like in (None, dps.pretend(SCHEMA, 500, rng=0)):
        points, _ = likeness(like, plan.strategy).points(plan.columns, np.random.default_rng(0))
        assert sum(rules.broken(points)) == 0
    alone = dps.plan(SCHEMA, {"o": dps.Mean("log(log_cost)")}, budget=dps.PureDP(1), n=300)
    assert alone.columns.names == ("log_cost",)
    for frame in (random_rows(300), by_hand(random_rows(300)).drop(columns="cost")):
        points = likeness(frame, alone.strategy).frame["log_cost"]
        wanted = SCHEMA.encode(pa.RecordBatch.from_pandas(random_rows(300)))["log_cost"]
        np.testing.assert_array_equal(points, wanted)


def test_totals_of_persons_are_of_views_too(no_noise):
    asked = {"m": dps.Mean("log(log_cost)")}
    rows = random_rows(40, 4).assign(id=np.arange(40) // 2)
    options = {"rows_per_person": 2, "person": "id", "person_totals": True}
    plan = dps.plan(SCHEMA, asked, budget=dps.PureDP(1), **options)
    other = dps.plan(without_source(SCHEMA), asked, budget=dps.PureDP(1), **options)
    found, wanted = dps.measure(plan, rows).every, dps.measure(other, by_hand(rows)).every
    for noisy, expected in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(noisy.sums, expected.sums)
