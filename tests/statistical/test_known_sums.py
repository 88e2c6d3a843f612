"""Coverage and level where rules between columns, and public totals, say more than the noise."""

from dataclasses import replace

import numpy as np
import pytest

import dpstats as dps
from dpstats.analyses.tables.independence import noisy_table
from dpstats.measured.answers import answer
from dpstats.measured.combining import Sources
from dpstats.schema.totals import Total

AGE = dps.Category("age", ["child", "adult", "old"])
MARITAL = dps.Category("marital", ["never", "married", "widowed"])
SEX = dps.Category("sex", ["f", "m"])
TOWN, AREA = dps.Category("town", ["a", "b", "c"]), dps.Category("area", ["n", "s"])
CHILD = dps.Never("age == 'child' and marital != 'never'", set={"marital": "never"})
AREAS = dps.Determines("area", by="town", mapping={"a": "n", "b": "n", "c": "s"})
SCHEMA = dps.Schema([AGE, MARITAL, SEX, TOWN, AREA], rules=[CHILD, AREAS])
# Shares by age and marital; quasi-independent: a factor of the row times one of the column.
JOINT = np.array([[0.2, 0, 0], [0.18, 0.24, 0.06], [0.12, 0.16, 0.04]])
TOWNS = np.array([0.5, 0.3, 0.2])
TABLES = {
    "pair": dps.Marginals(["age", "marital"]),
    "strata": dps.Marginals(["age", "marital", "sex"], degree=3),
    "others": dps.Marginals(["marital", "sex"]),
    "towns": dps.Marginals(["sex", "town"]),
}


def rows(rng, n):
    """Codes of n rows, sex and town independent of the rest."""
    pairs = rng.choice(9, n, p=JOINT.ravel())
    town = rng.choice(3, n, p=TOWNS)
    return {
        "age": pairs // 3,
        "marital": pairs % 3,
        "sex": rng.integers(0, 2, n),
        "town": town,
        "area": (town == 2).astype(np.int64),
    }


def seen(names, budget, unit, n, runs, tools, seed):
    public = n if unit == "replace" else None
    plan = dps.plan(SCHEMA, {k: TABLES[k] for k in names}, budget=budget, unit=unit, n=public)
    return tools.fresh(plan, n, lambda rng: rows(rng, n), runs, seed)


COVERED = [
    ("replace", ("pair", "others"), 400, dps.PureDP(0.5)),
    ("add_remove", ("pair", "others"), 400, dps.PureDP(0.5)),
    ("replace", ("pair", "others"), 2_000, dps.ZCDP(0.02)),
]


@pytest.mark.simulate(COVERED, few=(1,), runs=(8, 2_000))
def test_possible_cells_and_those_of_columns_that_follow_are_covered(setting, runs, table, tools):
    unit, names, n, budget = setting
    pair, area = dps.Marginals(["age", "marital"]), dps.Marginals(["sex", "area"])
    possible, areas = JOINT.ravel() > 0, np.outer([0.5, 0.5], [0.8, 0.2]).ravel()
    for *_, view in seen(names, budget, unit, n, runs, tools, 1):
        ends = np.asarray(pair.infer(view).conf_int())
        assert (ends[~possible, 0] <= 0).all()
        table.hold("possible cell", ends[possible], JOINT.ravel()[possible])
    for *_, view in seen(("towns",), budget, unit, n, runs, tools, 2):
        table.hold("cell of areas", area.infer(view).conf_int(), areas)
    table.finish(f"{unit}, {budget}")


@pytest.mark.simulate(COVERED, few=(1,), runs=(6, 2_000))
def test_totals_keep_coverage_and_shorten_intervals(setting, runs, table, tools):
    """The total is that of each table; of the population and of the table itself."""
    unit, names, n, budget = setting
    widths, cells, possible = np.zeros((2, 2)), JOINT.ravel(), JOINT.ravel() > 0
    for codes, held, view in seen(names, budget, unit, n, runs, tools, 3):
        counts = np.bincount(codes["age"] * 3 + codes["marital"], minlength=9)
        # under add or remove no totals fix n
        totals = [Total("age == 'old'", int(counts[6:].sum()), of="table"),
                  Total("sex == 'f'", int((codes["sex"] == 0).sum()), of="table")]  # fmt: skip
        known = replace(
            held.strategy, schema=dps.Schema(SCHEMA.columns, rules=SCHEMA.rules, totals=totals)
        )
        for place, measured in enumerate((held, replace(held, strategy=known))):
            sources = Sources(measured)
            view.schema = measured.schema
            view.answers = lambda wanted, s=sources, **options: answer(s, wanted, **options)
            result = dps.Marginals(["age", "marital"]).infer(view)
            for target, truth in enumerate((cells, counts / n)):
                name = ("population", "table")[target]
                ends = np.asarray(result.conf_int(target=name))
                widths[place, target] += np.mean(np.diff(ends)) / runs
                if place:
                    near = ends[possible] + [-1e-9, 1e-9]
                    table.hold(f"{name}, cell", near, truth[possible])
    table.finish(f"{unit}, {budget}")
    for target, name in enumerate(("population", "table")):
        table.check(f"{unit}, {budget}, {name}", "width over that without totals",
                    widths[1, target] / widths[0, target], most=0.99)  # fmt: skip


LEVELS = [
    ("replace", None, 400, dps.PureDP(0.5)),
    ("replace", None, 2_000, dps.PureDP(5)),
    ("add_remove", None, 2_000, dps.PureDP(0.5)),
    ("replace", "sex", 1_000, dps.PureDP(1)),
    ("replace", None, 2_000, dps.ZCDP(0.02)),
]


@pytest.mark.simulate(LEVELS, few=(3,), runs=(12, 2_000))
def test_level_of_quasi_independence(setting, runs, table, tools):
    unit, given, n, budget = setting
    names, simulations = ("strata",) if given else ("pair",), 99 if runs < 1_000 else 199
    test = dps.Independence("age", "marital", given=given)
    rng = np.random.default_rng(5)
    for *_, view in seen(names, budget, unit, n, runs, tools, 4):
        table.reject("quasi-independence", noisy_table(test, view).test(simulations, rng)[1], 0.06)
    table.finish(f"{unit}, {given}, {n}, {budget}")
