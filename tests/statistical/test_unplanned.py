"""Questions outside the plan: coverage of bounds, verdicts of explain, and pooled draws."""

import itertools
from dataclasses import replace

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
RUNS = 25


class Setting:
    """A population, a plan of all its pair tables, and releases of samples from it."""

    def __init__(self, sizes, budget, tools):
        self.rng = np.random.default_rng([*sizes, len(budget)])
        self.sizes, self.tools = sizes, tools
        names = [f"c{i}" for i in range(len(sizes))]
        columns = [dps.Category(name, list(range(k))) for name, k in zip(names, sizes, strict=True)]
        self.schema = dps.Schema([*columns, dps.Boolean("unseen")])
        kind, unit = BUDGETS[budget]
        asked = {"pairs": dps.Marginals(names)}
        self.plan = dps.plan(self.schema, asked, budget=kind, unit=unit)
        self.source = tools.noise_of(kind)(17)
        codes = tools.latent_codes(sizes, POPULATION, self.rng)
        self.population = pd.DataFrame(dict(zip(names, codes, strict=True)))
        self.population["unseen"] = self.rng.random(POPULATION) < 0.4
        self.n = ROWS[sizes]
        self.first = dps.release(self.plan, self.sample(), m=2_000, rng=1)

    def sample(self):
        return self.population.iloc[self.rng.integers(0, POPULATION, self.n)]

    def measured(self, rows):
        """The first release with the measurements of other rows."""
        with _noise_from(self.source):
            return replace(self.first, measurements=dps.measure(self.plan, rows))

    def questions(self):
        """Conditions with options: two that follow from the answers, and others."""
        last = len(self.sizes) - 1
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


@pytest.mark.parametrize("target", ["table", "population"])
@pytest.mark.parametrize(("sizes", "budget"), SETTINGS)
def test_bounds_cover(sizes, budget, target, table, tools):
    setting = Setting(sizes, budget, tools)
    asked = setting.questions()
    hits, widths = np.zeros(len(asked)), np.zeros(len(asked))
    for _ in range(RUNS):
        rows = setting.sample()
        release = setting.measured(rows)
        about = rows if target == "table" else setting.population
        for number, (condition, options) in enumerate(asked):
            found = release.bound(condition, **options, target=target)
            truth = value_of(about, condition, **options)
            hits[number] += found.low[0] - 1e-9 <= truth <= found.high[0] + 1e-9
            widths[number] += found.width[0] / RUNS
    for (condition, options), hit, width in zip(asked, hits, widths, strict=True):
        text = " ".join([condition, *itertools.chain(*options.items())])
        table.covers(f"{sizes}, {budget}, {target}", text, hit, RUNS, width=float(width))


@pytest.mark.parametrize(("sizes", "budget"), SETTINGS)
def test_verdicts_do_not_depend_on_the_noise_and_hold(sizes, budget, table, tools):
    setting = Setting(sizes, budget, tools)
    joint = " & ".join(f"c{i} == 0" for i in range(len(sizes)))
    expected = {
        "c0 == 1 & c1 == 0": "measured",
        "c0 in [0, 1] & c1 in [0, 1]": "derivable",
        "c0 == 1": "derivable",
        f"{joint} & unseen": "bounded",
        "c0 == 1 | unseen": "bounded",
        "unseen": "out of reach",
    }
    if len(sizes) > 2:
        expected[joint] = "bounded"
    hits, runs = 0, 6
    for _ in range(runs):
        rows = setting.sample()
        release = setting.measured(rows)
        for condition, verdict in expected.items():
            found = release.explain(condition)
            assert found.verdict == verdict, condition
            low, high = found.bounds.low[0], found.bounds.high[0]
            hits += low - 1e-9 <= rows.eval(condition).mean() <= high + 1e-9
            follows = verdict in ("measured", "derivable")
            try:
                release.infer(dps.Proportion(condition))
            except dps.NotMeasuredError:
                assert not follows
            else:
                assert follows
    table.covers(f"{sizes}, {budget}", "bounds of explain", hits, runs * len(expected))


@pytest.mark.parametrize(("sizes", "budget"), SETTINGS)
def test_pooled_draws_cover(sizes, budget, table, tools):
    setting = Setting(sizes, budget, tools)
    names = [f"c{i}" for i in range(len(sizes))]
    schema = setting.schema.select(names)
    family = dps.Marginals(names).family(schema)
    triples = dps.Family((dps.Cells.table(schema, names[:3]),)) if len(sizes) > 2 else None
    codes = {name: setting.population[name].to_numpy(np.int64) for name in names}
    found = {"above 3 sd": [], "below 3 sd": [], "unmeasured": []}
    runs = 20
    for run in range(runs):
        rows = setting.sample()
        with _noise_from(setting.source):
            release = dps.release(setting.plan, rows, m=2_000, rng=run)
        own = {name: rows[name].to_numpy(np.int64) for name in names}
        draws = release.draws(20, rng=run)
        counts = [draws.tables.counts(int(seed)) for seed in draws.seeds]
        for wanted in (family, triples):
            if wanted is None:
                continue
            values = wanted.evaluate(release.candidates)
            shares = [values.average(c / c.sum()) for c in counts]
            pairs = zip(shares, counts, strict=True)
            pooled = dps.pool(shares, [p * (1 - p) / c.sum() for p, c in pairs], n=release.n)
            low, high = np.asarray(pooled.conf_int()).T
            truth = np.concatenate(wanted.sums(codes)) / POPULATION
            held = (low <= truth) & (truth <= high)
            if wanted is triples:
                found["unmeasured"].append(held)
                continue
            noise = np.sqrt(release.answers(family).noise_variances) * release.n
            large = np.concatenate(family.sums(own)) > 3 * noise
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


GROUPED = list(itertools.product(("all", "some", "within"), BUDGETS))


@pytest.mark.parametrize("target", ["table", "population"])
@pytest.mark.parametrize(("groups", "budget"), GROUPED)
def test_bounds_from_sums_over_groups_cover(groups, budget, target, table, tools):
    rng = np.random.default_rng([len(groups), len(budget)])
    levels, n, runs = list("abcdef"), 2_000, 40
    schema = dps.Schema(
        [
            dps.Category("w", levels),
            dps.Number("x", 0, 100, points=101, allow_missing=True),
            dps.Boolean("z"),
        ]
    )
    of = rng.choice(6, POPULATION, p=[0.3, 0.25, 0.2, 0.15, 0.08, 0.02])
    x = rng.gamma(2 + of, 8).clip(0, 100).round()
    population = pd.DataFrame(
        {
            "w": np.array(levels)[of],
            "x": np.where(rng.random(POPULATION) < 0.05 * (1 + of % 2), np.nan, x),
            "z": rng.random(POPULATION) < 0.3 + 0.05 * of,
        }
    )
    asked = {
        "all": dps.GroupMeans("x", by="w"),
        "some": dps.GroupMeans("x", by="w", groups=("a", "b", "d")),
        "within": dps.GroupMeans("x", by="w", given="z"),
    }[groups]
    kind, unit = BUDGETS[budget]
    plan = dps.plan(schema, {"groups": asked}, budget=kind, unit=unit)
    source = tools.noise_of(kind)(23)
    questions = {
        dps.Mean("x"): lambda rows: rows["x"].mean(),
        dps.Mean("x", given="z"): lambda rows: rows["x"][rows["z"]].mean(),
        dps.Mean("x", given="w in ['a', 'b']"): lambda rows: rows["x"][rows["w"] <= "b"].mean(),
        dps.Proportion("w == 'a'"): lambda rows: (rows["w"] == "a").mean(),
        dps.Proportion("z"): lambda rows: rows["z"].mean(),
    }
    first = dps.release(plan, population[:n], m=200, rng=1)
    hits, widths = np.zeros(len(questions)), np.zeros(len(questions))
    for _ in range(runs):
        rows = population.iloc[rng.integers(0, POPULATION, n)]
        with _noise_from(source):
            release = replace(first, measurements=dps.measure(plan, rows))
        for number, (question, value) in enumerate(questions.items()):
            found = release.bound(question, target=target)
            truth = value(rows if target == "table" else population)
            hits[number] += found.low[0] - 1e-9 <= truth <= found.high[0] + 1e-9
            widths[number] += found.width[0] / runs
    for question, hit, width in zip(questions, hits, widths, strict=True):
        table.covers(f"{groups}, {budget}, {target}", str(question), hit, runs, width=float(width))
