"""Rules, views and totals: what is refused, how rows are read, and rows that agree."""

import dataclasses
import functools
import itertools
import json
import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpstats as dps
from dpstats.planning.previews.likeness import likeness
from dpstats.planning.requests import load_request
from dpstats.private.kernel import Kernel
from dpstats.private.partial_sums import PartialSums
from dpstats.private.tables import exact_sums, open_source
from dpstats.schema.conditions import read_combinations
from dpstats.schema.possible import impossible_pairs
from dpstats.verifying.arguing import verify

AGE = dps.Number("age", 0, 99, points=100, edges=[15, 65], missing=40)
MARITAL = dps.Category("marital", ["never", "married", "widowed"], allow_missing=True)
TOWN, AREA = dps.Category("town", ["a", "b", "c"]), dps.Category("area", ["n", "s"])
IN, OUT = (dps.Number(c, 0, 9, points=10, edges=[5], allow_missing=True) for c in ("came", "went"))
COST = dps.Number("cost", 0, 1000, points=1001, edges=[100, 400], allow_missing=True)
LOG = dps.Number("log_cost", 1, 1000, scale="log", points=61, edges=[10, 200], source="cost")
DAYS = dps.Number("days", 0, 2000, points=2001, edges=[100, 400], missing=0,
                  source="`last seen` - diagnosed")  # fmt: skip
COLUMNS = [AGE, MARITAL, TOWN, AREA, IN, OUT, LOG, COST, DAYS]
CHILD = dps.Never("age < 15 and marital != 'never'", set={"marital": "never"})
TOWNS = dps.Determines("area", by="town", mapping={"a": "n", "b": "n", "c": "s"})
STAY = dps.Order("went >= came")
SCHEMA = dps.Schema(COLUMNS, rules=[CHILD, TOWNS, STAY])


def random_rows(n, seed=0):
    """Amounts out of bounds, codes that are no level, dates in the wrong order, cells missing."""
    rng = np.random.default_rng(seed)
    first = np.datetime64("2015-01-01") + rng.integers(0, 2000, n)
    last = first + rng.integers(-100, 2500, n)
    last[rng.random(n) < 0.1] = np.datetime64("NaT")
    cost = np.round(np.exp(rng.uniform(-1, 8, n)))
    cost[rng.random(n) < 0.05] = np.nan
    return pd.DataFrame({
        "age": rng.integers(-5, 110, n),
        "marital": rng.choice(["never", "married", "widowed", "?", None], n),
        "town": rng.choice(list("abc"), n),
        "area": rng.choice(list("ns"), n),
        "came": rng.choice([*range(10), np.nan], n),
        "went": rng.choice([*range(10), np.nan], n),
        "cost": cost, "diagnosed": first, "last seen": last,
    })  # fmt: skip


def read_by_hand(rows):
    """The rows as the three rules read them, with columns for the view and the days."""
    age, marital = rows.age.clip(0, 99), rows.marital.where(rows.marital.isin(MARITAL.levels))
    return rows.assign(
        age=age,
        marital=marital.mask((age < 15) & marital.notna(), "never"),
        area=np.where(rows.town == "c", "s", "n"),
        went=rows.went.mask(rows.went < rows.came, rows.came),
        log_cost=rows.cost.clip(1, 1000),
        days=(rows["last seen"] - rows["diagnosed"]).dt.days.fillna(0),
    )


LOG_COLUMN = dataclasses.replace(LOG, source=None, allow_missing=True)
PLAIN = dps.Schema([*COLUMNS[:6], LOG_COLUMN, COST, dataclasses.replace(DAYS, source=None)])


def test_rows_are_read_as_the_rules_say_by_every_engine(tmp_path):
    rows = random_rows(400)
    blocks = [
        dps.Cells.table(SCHEMA, names)
        for names in (["age", "marital"], ["area"], ["town", "area"], ["came", "went"],
                      ["cost", "log_cost"], ["days"])
    ]  # fmt: skip
    codes = PLAIN.encode(pa.RecordBatch.from_pandas(read_by_hand(rows)))
    wanted = [block.sums(codes) for block in blocks]
    rows.to_csv(tmp_path / "t.csv", index=False)
    pq.write_table(pa.Table.from_pandas(rows), tmp_path / "t.parquet", row_group_size=64)
    dask, polars = pytest.importorskip("dask.dataframe"), pytest.importorskip("polars")
    tables = [rows.assign(log_cost="x"), pa.Table.from_pandas(rows), tmp_path / "t.csv",
              tmp_path / "t.parquet", dask.from_pandas(rows, npartitions=3),
              polars.from_pandas(rows).lazy()]  # fmt: skip
    for table in tables:
        sums, n = exact_sums(open_source(table, SCHEMA), SCHEMA, blocks)
        assert n == 400
        for found, expected in zip(sums, wanted, strict=True):
            np.testing.assert_array_equal(found, expected)


def test_a_repair_is_a_function_of_its_row_alone():
    """So that one row changes the sums by no more than without rules."""
    block = dps.Cells.table(SCHEMA, ["age", "marital", "log_cost", "days"])
    batch, kernel = pa.RecordBatch.from_pandas(random_rows(60, 1)), Kernel(SCHEMA, [block])
    assert kernel.raw.names == ("age", "marital", "cost", "last seen", "diagnosed")
    alone = [PartialSums.of(kernel, [batch.slice(i, 1)]).sums for i in range(60)]
    assert all(one.sum() == 1 and one.min() == 0 for one in alone)
    for sent in (kernel, pickle.loads(pickle.dumps(kernel))):  # to the workers of an engine
        np.testing.assert_array_equal(PartialSums.of(sent, [batch]).sums, np.sum(alone, axis=0))


def test_columns_that_decide_about_others_are_read_with_them():
    asked = {"m": dps.Proportion("marital == 'married'"), "s": dps.Proportion("town == 'c'")}
    plan = dps.plan(SCHEMA, asked, budget=dps.PureDP(1))
    assert plan.columns.names == ("marital", "town")  # only these are synthesised
    assert plan.read_columns.names == ("age", "marital", "town")
    with pytest.raises(dps.DataError, match="'age'"):
        dps.measure(plan, random_rows(10).drop(columns="age"))
    assert "Rule 1: never age < 15 and marital != 'never'" in str(plan)


def of_categories(rng):
    """Categories, and rules that may or may not contradict each other."""
    columns, rules = [dps.Category(name, list("uvw")[: rng.integers(2, 4)]) for name in "abcd"], []
    for _ in range(rng.integers(1, 5)):
        first, second = (columns[i] for i in rng.permutation(len(columns))[:2])
        if rng.random() < 0.25:
            mapping = {level: str(rng.choice(second.levels)) for level in first.levels}
            rules.append(dps.Determines(second.name, by=first.name, mapping=mapping))
        else:
            x, y, z = (str(rng.choice(column.levels)) for column in (first, second, second))
            text = f"{first.name} == '{x}' and {second.name} == '{y}'"
            rules.append(dps.Never(text, set={second.name: z}))
    return columns, rules


def of_views(rng):
    """The same of a number, two views of it and a category."""
    views = [
        dps.Number(name, 0, int(rng.integers(5, 12)), points=int(rng.integers(4, 9)),
                   edges=[int(rng.integers(2, 4))], source="x")
        for name in "vw"
    ]  # fmt: skip
    columns = [dps.Number("x", 0, 11, points=12, edges=[4, 8]), *views]
    edges, rules = {column.name: column.edges for column in columns}, []
    for _ in range(rng.integers(1, 4)):
        name = str(rng.choice(["x", "v", "w"]))
        text = f"{name} {rng.choice(['<', '>='])} {rng.choice(edges[name])} and g == '1'"
        to = {"g": "2"} if rng.random() < 0.5 or name != "x" else {"x": int(rng.integers(12))}
        rules.append(dps.Never(text, set=to))
    return [*columns, dps.Category("g", ["1", "2"])], rules


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("columns_and_rules", [of_categories, of_views])
def test_schemas_are_accepted_if_and_only_if_every_row_ends_allowed(columns_and_rules, seed):
    """Against all coded rows of the domain, one by one."""
    columns, rules = columns_and_rules(np.random.default_rng(seed))
    bare, stored = dps.Schema(columns), [c for c in columns if not getattr(c, "source", None)]
    grids = [c.codes_in_use if isinstance(c, dps.Number) else range(c.bins) for c in stored]
    names, rows = [c.name for c in stored], np.array(list(itertools.product(*grids)))
    every = bare.with_views(dict(zip(names, rows.T, strict=True)))
    compiled, read = [rule.compiled(bare) for rule in rules], []
    for i in range(len(rows)):
        row = {name: codes[i : i + 1] for name, codes in every.items()}
        for rule in compiled:
            if rule.broken(row)[0]:
                row |= rule.repaired(row)
                row = bare.with_views({name: row[name] for name in names})
        read.append(row)
    allowed = ~np.any([rule.broken(every) for rule in compiled], axis=0)
    levels = all(len(set(c.bins_of(every[c.name][allowed]))) == c.bins for c in columns)
    if not levels or any(rule.broken(row)[0] for row in read for rule in compiled):
        with pytest.raises(dps.SchemaError):
            dps.Schema(columns, rules=rules)
        return
    schema = dps.Schema(columns, rules=rules)
    for some in itertools.combinations([c.name for c in columns], 2):
        repairs = schema.repairs(some)  # the rules that matter for some columns
        found = repairs.repair({name: every[name] for name in repairs.schema.names})
        for name in some:
            assert found[name].tolist() == [row[name][0] for row in read]


def test_rules_that_cannot_be_used_are_refused():
    for rules, words in [
        ([dps.Never("age < 15 and marital != 'never'", set={"marital": "widowed"})], "its repair"),
        ([dps.Never("age < 15", set={"age": 20})], r"no row with age \[0, 15\) is allowed"),
        ([dps.Never("age < 15 and marital == 'never'", set={"marital": "married"}), CHILD],
         "contradict each other: a row with"),
        ([dps.Never("age < 14 and town == 'a'", set={"town": "b"})], "< 14 cannot be measured"),
        ([dps.Never("age < 15 and town == 'a'", set={"area": "n"})], "does not name"),
        ([dps.Never("age < 15 and town == 'a'", set={"age": 120})], "outside the bounds"),
        ([dps.Determines("area", by="twon", mapping={"a": "n"})], "did you mean"),
        ([dps.Order("went > came")], "allows no went within its bounds"),
        ([dps.Order("went >= town")], "both must be numbers"),
        ([dps.Order("went <= log_cost", change="log_cost")], "a view and cannot give way.*'cost'"),
        ([dps.Determines("age", by="town", mapping={"a": 1})], "must be a category"),
        (["age < 15"], "rules of a schema are dps.Never"),
    ]:  # fmt: skip
        with pytest.raises(dps.SchemaError, match=words):
            dps.Schema(COLUMNS, rules=rules)
    for make, words in [
        (lambda: dps.Determines("area", by="area", mapping={"n": "n"}), "follow from itself"),
        (lambda: dps.Order("went == came"), "by >=, >, <= or <"),
        (lambda: dps.Order("went >= went"), "compares two columns"),
        (lambda: dps.Never("age < 15", set={}), "needs set"),
        (lambda: dps.Never("age < 15", set={"age": [20]}), "no level, number or date"),
        (lambda: dps.Determines("area", by="town", mapping=[["a", "n"], ["a", "s"]]), "twice"),
        (lambda: dps.Order("went >= came", change="age"), "change"),
        (lambda: dps.Determines("area", by="town", mapping="no.csv"), "town: cannot read no.csv"),
    ]:
        with pytest.raises(dps.SchemaError, match=words):
            make()


def test_a_condition_does_not_hold_where_it_depends_on_a_missing_cell():
    schema = dps.Schema([MARITAL, TOWN, IN])
    for text in ["marital != 'never'", "not (marital == 'never')", "marital in ['married']"]:
        assert not read_combinations(text, schema)[1][-1]
    _, either = read_combinations("marital == 'married' or town == 'a'", schema)
    np.testing.assert_array_equal(either[-1], [True, False, False])
    assert read_combinations("marital == '(missing)'", schema)[1][-1]
    assert not read_combinations("came < 5", schema)[1][-1]
    odd = dps.Schema([dps.Category("f", ["x", "a (missing) b"], allow_missing=True)])
    assert not read_combinations("f != 'a (missing) b'", odd)[1][-1]


@pytest.fixture
def pairs(tmp_path):
    """A schema file whose rule names a file of pairs beside it, to be written."""
    lines = ['[[column]]\nname = "town"\nlevels = ["a", "b", "c"]', '[[column]]\nname = "area"',
             "levels = [1, 2]", '[[rule]]\ndetermines = "area"\nby = "town"',
             'mapping = "areas.csv"']  # fmt: skip
    (tmp_path / "s.toml").write_text("\n".join(lines))
    return tmp_path


def test_pairs_are_read_from_a_public_file(pairs):
    (pairs / "areas.csv").write_text("area,note,town\n1,x,a\n1,,b\n2,,c\n")
    schema = dps.Schema.load(pairs / "s.toml")
    assert schema.rules[0].mapping == {"a": "1", "b": "1", "c": "2"}
    codes = {"town": np.arange(3), "area": np.array([1, 0, 0])}
    np.testing.assert_array_equal(schema.repairs(["area"]).repair(codes)["area"], [0, 0, 1])
    analysis = 'name = "t"\nkind = "marginals"\ncolumns = ["town", "area"]\n'
    request = f'schema = "s.toml"\n[budget]\nepsilon = 1\n[[analysis]]\n{analysis}'
    (pairs / "named.toml").write_text(request)
    plan = load_request(pairs / "named.toml")
    (pairs / "areas.csv").write_text("area,town\n1,a\n2,b\n2,c\n")
    assert load_request(pairs / "named.toml").digest != plan.digest
    plan.save(pairs / "plan.json")
    (pairs / "areas.csv").unlink()  # what the file held is in the plan
    assert dps.Plan.load(pairs / "plan.json").schema == schema
    assert dps.Schema.from_frictionless(schema.to_frictionless()) == schema
    for document in (schema.to_frictionless(), json.loads((pairs / "plan.json").read_text())):
        assert "areas.csv" not in json.dumps(document)


def test_files_of_pairs_that_cannot_be_used_are_refused(pairs):
    for text, words in [
        (None, "cannot read areas.csv: No such file"),
        ("town,area\na,1\nb,1\n", "the mapping has no value for .*'c'"),
        ("town,area\na,1\nb,1\nc,2\na,2\n", "the mapping has 'a' twice"),
        ("town,area\na,1\nb,1\nc,3\n", "'3' is not a level of 'area'"),
        ("town,zone\na,1\n", "areas.csv has no column 'area'"),
        ("town,area\na,1,2\n", "cannot be read as CSV"),
        ("\n", "cannot be read as CSV"),
        ("town,area,town\n", "has the column 'town' twice"),
    ]:
        if text is not None:
            (pairs / "areas.csv").write_text(text)
        with pytest.raises(dps.SchemaError, match=f"(?s)area follows from town.*{words}"):
            dps.Schema.load(pairs / "s.toml")


def test_documents_of_others_name_no_files(tmp_path):
    """A plan, a release or a Table Schema never opens a file of whoever loads it."""
    schema = dps.Schema(COLUMNS, rules=[TOWNS])
    (tmp_path / "areas.csv").write_text("town,area\na,n\nb,n\nc,s\n")
    rules = [{**schema.between_columns["rules"][0], "mapping": str(tmp_path / "areas.csv")}]
    with pytest.raises(dps.SchemaError, match="its pairs belong here"):
        dps.Schema.from_frictionless(schema.to_frictionless() | {"dpstats": {"rules": rules}})
    with pytest.raises(dps.SchemaError, match="its pairs belong here"):
        dps.Schema.from_dict(schema.to_dict(), rules=rules)


def test_impossible_cells_of_two_columns_are_those_without_an_allowed_row():
    pairs = impossible_pairs(SCHEMA)
    assert [(first, second) for first, second, _ in pairs] == [
        ("cost", "log_cost"), ("age", "marital"), ("town", "area"), ("went", "came")
    ]  # fmt: skip
    for first, second, cells in pairs:
        columns = SCHEMA[first], SCHEMA[second]
        every = [c.all_codes if isinstance(c, dps.Number) else np.arange(c.bins) for c in columns]
        codes = dict(zip((first, second), map(np.ravel, np.meshgrid(*every)), strict=True))
        allowed = ~SCHEMA.select([first, second]).repairs([first, second]).breaking(codes)
        found = np.ones_like(cells)
        found[tuple(c.bins_of(codes[c.name][allowed]) for c in columns)] = False
        np.testing.assert_array_equal(cells, found)
        assert cells.any()


PAIRS = dps.Marginals(["age", "marital", "town", "area"])
VIEWS = {"stay": dps.Marginals(["came", "went"]), "views": dps.Marginals(["age", "log_cost"])}


@pytest.mark.parametrize(("asked", "reference", "epsilon"), [
    ({"pairs": PAIRS, **VIEWS, "both": dps.Marginals(["cost", "log_cost"])}, None, 0.1),
    ({"pairs": PAIRS}, dps.PerturbedHistogram(), 10_000),
    ({"pairs": PAIRS, "moments": dps.Covariance(["age", "came"])}, dps.LogLinear(), 0.1),
    ({"moments": dps.Mean("age"), "cost": dps.Mean("cost"), **VIEWS}, None, 10_000),
])  # fmt: skip
def test_no_synthetic_row_breaks_a_rule(asked, reference, epsilon):
    plan = dps.plan(SCHEMA, asked, budget=dps.PureDP(epsilon), n=500, reference=reference)
    measured = dps.measure(plan, random_rows(500, 2))
    rules = measured.columns.repairs(measured.columns.names)
    for made in ({}, {"fit": "minimax", "m": 300}):
        release = dps.synthesize(measured, k=400, rng=0, **made)
        assert rules.rules
        assert sum(rules.broken(release.candidates)) == 0
        assert release.counts.sum() == 400
        drawn = release.to_frame()
        if "cost" in drawn:
            np.testing.assert_array_equal(drawn.cost.isna(), drawn.log_cost.isna())
            cost, view = drawn.dropna()[["cost", "log_cost"]].to_numpy().T
            np.testing.assert_array_equal(LOG.encode_numbers(cost), LOG.encode_numbers(view))


def test_plans_and_releases_hold_what_is_between_columns(tmp_path):
    asked = {"m": dps.Marginals(["age", "marital"]), "o": dps.Mean("log(log_cost)"),
             "d": dps.Mean("days")}  # fmt: skip
    totals = {"totals": [dps.Total("age < 15", 5, of="table")]}
    turned = dataclasses.replace(DAYS, source="diagnosed - `last seen`")
    schema, *others = (
        dps.Schema(COLUMNS, rules=SCHEMA.rules, **totals),
        dps.Schema(COLUMNS, rules=SCHEMA.rules),
        dps.Schema(COLUMNS, **totals),
        dps.Schema([*COLUMNS[:-1], turned], rules=SCHEMA.rules, **totals),
    )
    plan = dps.plan(schema, asked, budget=dps.PureDP(1))
    digests = {dps.plan(other, asked, budget=dps.PureDP(1)).digest for other in others}
    assert len(digests | {plan.digest}) == 4
    plan.save(tmp_path / "plan.json")
    assert dps.Plan.load(tmp_path / "plan.json").schema == schema
    dps.release(plan, random_rows(100), rng=0).save(tmp_path / "r.zip")
    assert dps.load(tmp_path / "r.zip").schema == schema
    verdict = verify(tmp_path / "r.zip")
    assert verdict.agrees
    assert "Rules between columns, which change no sensitivity: 3." in verdict.text


def test_previews_are_of_rows_that_break_no_rule():
    plan = dps.plan(SCHEMA, {"p": PAIRS}, budget=dps.PureDP(1), n=2_000)
    rules = plan.columns.repairs(plan.columns.names)
    for like in (None, dps.pretend(SCHEMA, 500, rng=0)):
        points, _ = likeness(like, plan.strategy).points(plan.columns, np.random.default_rng(0))
        assert sum(rules.broken(points)) == 0
    # A frame is read as the table would be, or as rows that lack what only rules need.
    plan = dps.plan(SCHEMA, {"m": dps.Proportion("marital == 'married'")}, budget=dps.PureDP(1))
    rows = random_rows(300)
    whole, alone = (
        likeness(like, plan.strategy).frame["marital"] for like in (rows, rows[["marital"]])
    )
    wanted = SCHEMA.repairs(["marital"]).encode(pa.RecordBatch.from_pandas(rows))["marital"]
    np.testing.assert_array_equal(whole, wanted)
    np.testing.assert_array_equal(alone, MARITAL.encode(pa.array(rows.marital)))
    assert (whole != alone).any()


def test_check_counts_rows_that_break_rules():
    rows = random_rows(300, 3)
    plan = dps.plan(SCHEMA, {"p": PAIRS}, budget=dps.PureDP(1))
    fit = dps.check(plan, rows)
    children = (rows.age < 15) & rows.marital.isin(["married", "widowed"])
    moved = (rows.town == "c") != (rows.area == "s")
    assert dict(fit.broken) == {CHILD.text: children.sum(), TOWNS.text: moved.sum()}
    assert f"rule 'area follows from town': {moved.sum()} rows break it" in repr(fit)
    declared = with_totals(total("marital == 'never'", 5), total("area == 'n'", 1))
    plan = dps.plan(declared, {"a": dps.Marginals(["age", "marital"])}, budget=dps.PureDP(1))
    rows = pd.DataFrame({"age": [3, 30, 40], "marital": ["married", "never", "married"],
                         "town": "a", "area": "s"})  # fmt: skip
    fit = dps.check(plan, rows)  # rows are counted as they are read
    assert fit.totals == (("5 rows of the table have marital == 'never'", 2),)
    assert "counted here: 2" in str(fit)


def test_totals_of_persons_are_of_rows_as_they_are_read(no_noise):
    asked = {"married": dps.Mean("age", given="marital == 'married'")}
    rows = pd.DataFrame({"id": [1, 1, 2, 2], "age": [10, 40, 10, 30], "marital": "married"})
    plan = dps.plan(SCHEMA, asked, budget=dps.PureDP(1), rows_per_person=2, person="id",
                    person_totals=True)  # fmt: skip
    by_hand = rows.assign(marital=["never", "married", "never", "married"])
    found, wanted = (dps.measure(plan, table).every for table in (rows, by_hand))
    assert any(noisy.block.degree == 2 for noisy in found)
    for noisy, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(noisy.sums, other.sums)


def test_rules_on_columns_that_are_not_taken_are_left_out():
    document = SCHEMA.to_frictionless()
    with pytest.warns(UserWarning, match="left out: .*went"):
        some = dps.Schema.from_frictionless(document, columns=["age", "marital", "area"])
    assert list(some.rules) == [CHILD]
    document["dpstats"]["rules"][0]["never"] = "age <"
    with pytest.raises(dps.SchemaError, match="rule 'never age <': cannot read"):
        dps.Schema.from_frictionless(document, columns=["age", "marital", "area"])


total = functools.partial(dps.Total, of="table")


def with_totals(*totals):
    return dps.Schema(COLUMNS[:4], rules=[CHILD, TOWNS], totals=totals)


YOUNG = {"a": dps.Proportion("age < 65")}


def test_totals_that_no_table_has_are_refused_and_those_of_the_population_limit_none():
    declared = with_totals(total("age < 15", 100, of="population"), total("age < 65", 50))
    assert [t.of for t in declared.totals] == ["population", "table"]
    for totals, words in [
        ([total("age < 15", 100), total("age < 65", 50)], ["age < 65", "age < 15", "contradicts"]),
        ([total("age < 15 and marital == 'married'", 1)], ["married", "not possible"]),
        ([total("area == 'n'", 9), total("town == 'a'", 5), total("town == 'b'", 5)],
         ["town == 'b'", "town == 'a'", "area == 'n'"]),
        ([total("age < 15", 10**7), total("age >= 15", 10**7), total("area == 'n'", 2 * 10**7 + 1)],
         ["area == 'n'", "contradicts"]),
        ([total("ages < 15", 1)], ["ages", "did you mean 'age'"]),
        ([total("age < 20", 1)], ["age < 20", "edge"]),
        (["age < 15"], ["dps.Total"]),
    ]:  # fmt: skip
        with pytest.raises(dps.SchemaError) as error:
            with_totals(*totals)
        assert all(word in str(error.value) for word in words), str(error.value)
    for parts in (("age < 15", -1, "table"), ("age < 15", 1.5, "table"), ("age < 15", 1, "rows"),
                  (15, 1, "table")):  # fmt: skip
        with pytest.raises(dps.SchemaError):
            dps.Total(*parts)
    with pytest.raises(dps.SchemaError, match="keys"):
        dps.Schema.from_dict(SCHEMA.to_dict(), totals=[{"condition": "age < 15", "count": 1}])


def test_totals_above_the_number_of_rows_are_refused_before_anything_is_spent(tmp_path):
    declared = with_totals(total("age < 65", 4), total("town == 'c'", 3))
    plan = dps.plan(declared, YOUNG, budget=dps.PureDP(1))
    rows = pd.DataFrame({"age": [3] * 3, "marital": "never", "town": "c", "area": "s"})
    ledger = dps.Ledger.create(tmp_path / "ledger.json", dps.PureDP(2))
    with pytest.raises(dps.DataError, match=r"4 rows of the table.*nothing was spent"):
        dps.release(plan, rows, ledger=ledger)
    assert ledger.spent == 0
    with pytest.raises(dps.SchemaError, match="3 rows"):
        dps.plan(declared, YOUNG, budget=dps.PureDP(1), n=3).check(3)


def test_totals_that_fix_the_number_of_rows_go_with_a_public_one():
    young, north = total("age < 65", 30), total("area == 'n'", 30)
    for totals in [
        (north, total("town == 'c'", 20)),
        (young, total("age >= 65", 20)),
        (young, total("age >= 15", 20), total("area == 'n'", 50)),
    ]:
        assert dps.plan(with_totals(*totals), YOUNG, budget=dps.PureDP(1)).unit == "replace"
        with pytest.raises(dps.RequestError, match=r"50 rows.*add_remove"):
            dps.plan(with_totals(*totals), YOUNG, budget=dps.PureDP(1), unit="add_remove")
    for totals in ((young, total("age >= 15", 30)), (north,)):  # of 30 to 60 rows
        dps.plan(with_totals(*totals), YOUNG, budget=dps.PureDP(1), unit="add_remove")


@pytest.mark.parametrize("unit", ["replace", "add_remove"])
def test_totals_of_the_table_are_refused_where_rows_of_persons_are_left_out(unit):
    declared = with_totals(total("age < 65", 3))
    asked = {"budget": dps.PureDP(1), "unit": unit, "rows_per_person": 2}
    plan = dps.plan(declared, YOUNG, **asked)  # of which no row is left out
    with pytest.raises(dps.RequestError, match=r"beyond the first 2.*leave out the totals"):
        dps.plan(declared, YOUNG, person="id", **asked)
    with pytest.raises(dps.RequestError, match="leave out the totals"):
        dataclasses.replace(plan.strategy, person="id").check()
    dps.plan(with_totals(total("age < 65", 3, of="population")), YOUNG, person="id", **asked)
