"""Questions outside the plan: coverage of bounds, verdicts of explain, and pooled draws."""

import itertools
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.privacy.noise import _noise_from

pytestmark = pytest.mark.slow

POPULATION = 100_000
SIZES = [(4, 5, 3), (12, 15), (6, 5, 4, 3, 7), (2, 3, 4, 2), (20, 25)]
ROWS = {(4, 5, 3): 2_000, (12, 15): 5_000, (6, 5, 4, 3, 7): 10_000, (2, 3, 4, 2): 1_000,
        (20, 25): 4_000}  # fmt: skip
BUDGETS = {
    "epsilon 0.5": (dps.PureDP(0.5), "replace"),
    "epsilon 2": (dps.PureDP(2), "replace"),
    "rho 0.02": (dps.ZCDP(0.02), "replace"),
    "rho 0.05, n hidden": (dps.ZCDP(0.05), "add_remove"),
    "epsilon 1, n hidden": (dps.PureDP(1), "add_remove"),
}
SETTINGS = list(itertools.product(SIZES, BUDGETS))


class World:
    """A population, a plan, and releases of samples from it."""

    def __init__(self, population, schema, asked, budget, n, rng, source):
        self.population, self.n, self.rng, self.source = population, n, rng, source
        kind, unit = BUDGETS[budget]
        self.plan = dps.plan(schema, {"asked": asked}, budget=kind, unit=unit)
        self.first = dps.release(self.plan, self.sample(), m=2_000, rng=1)

    def sample(self):
        return self.population.iloc[self.rng.integers(0, POPULATION, self.n)]

    def measured(self, rows):
        """The first release with the measurements of other rows."""
        with _noise_from(self.source):
            return replace(self.first, measurements=dps.measure(self.plan, rows))


def of_tables(sizes, budget, tools):
    """All pair tables of some columns, and a column that is in none."""
    rng = np.random.default_rng([*sizes, len(budget)])
    names = [f"c{i}" for i in range(len(sizes))]
    columns = [dps.Category(name, list(range(k))) for name, k in zip(names, sizes, strict=True)]
    codes = tools.latent_codes(sizes, POPULATION, rng)
    population = pd.DataFrame(dict(zip(names, codes, strict=True)))
    population["unseen"] = rng.random(POPULATION) < 0.4
    schema, source = dps.Schema([*columns, dps.Boolean("unseen")]), noise_of(budget, tools, 17)
    return World(population, schema, dps.Marginals(names), budget, ROWS[sizes], rng, source)


def noise_of(budget, tools, seed):
    return tools.noise_of(BUDGETS[budget][0])(seed)


def questions_of(sizes):
    """Conditions with options: two that follow from the answers, and others."""
    last = len(sizes) - 1
    triple = "c0 == 1 & c1 == 0" + (f" & c{last} == 1" if last > 1 else " & unseen")
    return [
        ("c0 == 1 & c1 == 0", {}),
        ("c1 in [0, 1]", {}),
        (triple, {}),
        (triple, {"given": "c1 in [0, 1]"}),
        (triple, {"minus": f"c{last} == 0"}),
        ("c0 == 0 | c1 == 1", {"over": f"c1 == 0 | c{last} == 1"}),
    ]


def value_of(rows, condition, given=None, minus=None, over=None):
    kept = rows if given is None else rows[rows.eval(given)]
    one = kept.eval(condition).mean()
    if minus:
        return one - kept.eval(minus).mean()
    return one / kept.eval(over).mean() if over else one


def check_bounds(world, questions, target, runs, where, table):
    """Coverage of the bounds for questions: what is asked, options, and its value in rows."""
    for _ in range(runs):
        rows = world.sample()
        release = world.measured(rows)
        about = rows if target == "table" else world.population
        for asked, options, value in questions:
            found = release.bound(asked, **options, target=target)
            ends = found.low[0] - 1e-9, found.high[0] + 1e-9
            text = " ".join([str(asked), *itertools.chain(*options.items())])
            table.hold(text, [ends], value(about))
    table.finish(f"{where}, {target}")


@pytest.mark.parametrize("target", ["table", "population"])
@pytest.mark.parametrize(("sizes", "budget"), SETTINGS)
def test_bounds_cover(sizes, budget, target, table, tools):
    questions = [
        (condition, options, partial(value_of, condition=condition, **options))
        for condition, options in questions_of(sizes)
    ]
    world = of_tables(sizes, budget, tools)
    check_bounds(world, questions, target, 25, f"{sizes}, {budget}", table)


GROUPED = list(itertools.product(("all", "some", "within"), BUDGETS))
OF_GROUPS = [
    (dps.Mean("x"), {}, lambda rows: rows["x"].mean()),
    (dps.Mean("x", given="z"), {}, lambda rows: rows["x"][rows["z"]].mean()),
    (dps.Mean("x", given="w in ['a', 'b']"), {}, lambda rows: rows["x"][rows["w"] <= "b"].mean()),
    (dps.Proportion("w == 'a'"), {}, lambda rows: (rows["w"] == "a").mean()),
    (dps.Proportion("z"), {}, lambda rows: rows["z"].mean()),
]


@pytest.mark.parametrize("target", ["table", "population"])
@pytest.mark.parametrize(("groups", "budget"), GROUPED)
def test_bounds_from_sums_over_groups_cover(groups, budget, target, table, tools):
    rng = np.random.default_rng([len(groups), len(budget)])
    number = dps.Number("x", 0, 100, points=101, allow_missing=True)
    schema = dps.Schema([dps.Category("w", list("abcdef")), number, dps.Boolean("z")])
    of = rng.choice(6, POPULATION, p=[0.3, 0.25, 0.2, 0.15, 0.08, 0.02])
    x, lost = rng.gamma(2 + of, 8).clip(0, 100).round(), rng.random(POPULATION)
    population = pd.DataFrame({
        "w": np.array(list("abcdef"))[of], "x": np.where(lost < 0.05 * (1 + of % 2), np.nan, x),
        "z": rng.random(POPULATION) < 0.3 + 0.05 * of,
    })  # fmt: skip
    more = {"all": {}, "some": {"groups": ("a", "b", "d")}, "within": {"given": "z"}}[groups]
    asked, source = dps.GroupMeans("x", by="w", **more), noise_of(budget, tools, 23)
    world = World(population, schema, asked, budget, 2_000, rng, source)
    check_bounds(world, OF_GROUPS, target, 40, f"{groups}, {budget}", table)


@pytest.mark.parametrize(("sizes", "budget"), SETTINGS)
def test_verdicts_do_not_depend_on_the_noise_and_hold(sizes, budget, table, tools):
    world = of_tables(sizes, budget, tools)
    joint = " & ".join(f"c{i} == 0" for i in range(len(sizes)))
    expected = {
        "c0 == 1 & c1 == 0": "measured",
        "c0 in [0, 1] & c1 in [0, 1]": "derivable",
        "c0 == 1": "derivable",
        f"{joint} & unseen": "bounded",
        "c0 == 1 | unseen": "bounded",
        "unseen": "out of reach",
    } | ({joint: "bounded"} if len(sizes) > 2 else {})
    hits, runs = 0, 6
    for _ in range(runs):
        rows = world.sample()
        release = world.measured(rows)
        for condition, verdict in expected.items():
            found = release.explain(condition)
            assert found.verdict == verdict, condition
            low, high = found.bounds.low[0], found.bounds.high[0]
            hits += low - 1e-9 <= rows.eval(condition).mean() <= high + 1e-9
            follows = verdict in ("measured", "derivable")
            unless = nullcontext() if follows else pytest.raises(dps.NotMeasuredError)
            with unless:
                release.infer(dps.Proportion(condition))
    table.covers(f"{sizes}, {budget}", "bounds of explain", hits, runs * len(expected))


@pytest.mark.parametrize(("sizes", "budget"), SETTINGS)
def test_pooled_draws_cover(sizes, budget, table, tools):
    world = of_tables(sizes, budget, tools)
    names = [f"c{i}" for i in range(len(sizes))]
    schema, runs = world.plan.schema.select(names), 20
    pairs = dps.Marginals(names).family(schema)
    families = {"pairs": pairs}
    if len(sizes) > 2:
        families["triples"] = dps.Family((dps.Cells.table(schema, names[:3]),))
    codes = {name: world.population[name].to_numpy(np.int64) for name in names}
    found = {"above 3 sd": [], "below 3 sd": [], "unmeasured": []}
    for run in range(runs):
        rows = world.sample()
        with _noise_from(world.source):
            release = dps.release(world.plan, rows, m=2_000, rng=run)
        draws = release.draws(20, rng=run)
        counts = [draws.tables.counts(int(seed)) for seed in draws.seeds]
        for name, wanted in families.items():
            values = wanted.evaluate(draws.tables.candidates)
            shares = np.array([values.average(c / c.sum()) for c in counts])
            sizes_of = np.array([[c.sum()] for c in counts])
            pooled = dps.pool(shares, shares * (1 - shares) / sizes_of, n=release.n)
            low, high = np.asarray(pooled.conf_int()).T
            truth = np.concatenate(wanted.sums(codes)) / POPULATION
            held = (low <= truth) & (truth <= high)
            if name == "triples":
                found["unmeasured"].append(held)
                continue
            noise = np.sqrt(release.answers(pairs).noise_variances) * release.n
            own = pairs.sums({name: rows[name].to_numpy(np.int64) for name in names})
            large = np.concatenate(own) > 3 * noise
            found["above 3 sd"].append(held[large])
            found["below 3 sd"].append(held[~large])
    where = f"{sizes}, {budget}"
    for kind, held in found.items():
        joined = np.concatenate([np.zeros(0), *held])
        if kind == "above 3 sd":
            error = np.std([h.mean() for h in held if len(h)]) / runs**0.5
            table.check(
                where, kind, joined.mean(), "", ".95", len(joined),
                least=0.93 - 3 * error, most=0.97 + 3 * error,
            )  # fmt: skip
        elif len(joined):
            table.row(where, kind, float(joined.mean()), "", "", len(joined))
