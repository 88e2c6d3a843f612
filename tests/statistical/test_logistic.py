"""Coverage of logistic and Poisson regression, from cells and from fitted densities."""

import numpy as np
import pandas as pd
import pytest
from scipy import special

import dpstats as dps
from dpstats.privacy.noise import _noise_from

EDGES = [-1.5, -1, -0.5, 0, 0.5, 1, 1.5]


def arcsine(rng, n):
    """Awan and Wang (2023): x = 2 Beta(.5, .5) - 1, log odds .5 + 2 x."""
    x = 2 * rng.beta(0.5, 0.5, n) - 1
    return {"x": x, "y": rng.random(n) < special.expit(0.5 + 2 * x)}


def two_binary(rng, n):
    u, v = rng.random(n) < 0.5, rng.random(n) < 0.5
    return {"u": u, "v": v, "y": rng.random(n) < special.expit(u + 0.0 * v)}


def number_and_group(rng, n):
    g = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    x = np.clip(np.rint(rng.normal(0.3 * (g == 2), 0.8, n) * 8) / 8, -2, 2)
    y = rng.random(n) < special.expit(-0.5 + x - 0.6 * (g == 1) + 0.5 * (g == 2))
    return {"x": x, "g": np.array(list("abc"))[g], "y": y}


def mixed(rng, n):
    """Three columns that depend on each other, also in their third moments."""
    g = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    u = rng.random(n) < special.expit(-0.3 + 0.8 * (g == 1))
    x = rng.normal(size=n) * (0.6 + 0.3 * u * (g == 1)) + 0.5 * (g == 2) + 0.4 * u - 0.2
    x = np.clip(np.rint(x * 8) / 8, -2, 2)
    predictor = -0.5 + x + 0.7 * u - 0.6 * (g == 1) + 0.5 * (g == 2)
    y = rng.random(n) < special.expit(predictor)
    count = np.minimum(rng.poisson(np.exp(0.2 + 0.3 * x + 0.2 * u)), 12)
    return {"x": x, "u": u, "g": np.array(list("abc"))[g], "y": y, "count": count}


UNIT = dps.Schema([
    dps.Number("x", -1, 1, points=1_025, edges=list(np.linspace(-1, 1, 13)[1:-1]), missing=0),
    dps.Boolean("y"),
])  # fmt: skip
BINARY = dps.Schema([dps.Boolean(name) for name in "uvy"])
MIXED = dps.Schema([
    dps.Number("x", -2, 2, points=33, edges=EDGES, missing=0), dps.Boolean("u"),
    dps.Category("g", ["a", "b", "c"]), dps.Boolean("y"),
    dps.Number("count", 0, 12, points=13, edges=[1, 2, 3, 5], missing=0),
])  # fmt: skip
SLOPES, GROUPS = (-0.5, 1, 0.7, -0.6, 0.5), (-0.5, 1, -0.6, 0.5)
TIGHT = dps.ApproxDP(1, 1e-6)
# name, schema, analysis, rows, truth, n, budget, unit, widest median of the last coefficient
CELLS = [
    ("arcsine", UNIT, "y ~ x", arcsine, (0.5, 2), n, dps.PureDP(e), unit, widest)
    for n, e, unit, widest in [
        (1_000, 1, "replace", 0.66), (1_000, 1, "add_remove", 0.65), (2_000, 0.3, "replace", 1.1),
        (200, 3, "replace", 2.0), (5_000, 10, "replace", 0.3), (1_000, 0.1, "replace", np.inf),
    ]
] + [
    ("two binary", BINARY, "y ~ u + v", two_binary, (0, 1, 0), 2_000, dps.PureDP(0.5), "replace",
     0.5),
    ("two binary", BINARY, "y ~ u*v", two_binary, (0, 1, 0, 0), 2_000, dps.ZCDP(0.05), "add_remove",
     1.0),
    ("number and group", MIXED, "y ~ x + C(g)", number_and_group, GROUPS, 2_000, dps.PureDP(1),
     "replace", 1.2),
    ("number and group", MIXED, "y ~ x + C(g)", number_and_group, GROUPS, 20_000, dps.ZCDP(0.01),
     "add_remove", 0.5),
]  # fmt: skip
DENSITY = [
    ("mixed", MIXED, "y ~ x + u + C(g)", mixed, SLOPES, n, budget, unit, widest)
    for n, budget, unit, widest in [
        (2_000, TIGHT, "replace", 1.3), (20_000, TIGHT, "replace", 0.25),
        (20_000, dps.PureDP(1), "add_remove", 0.5), (2_000, dps.PureDP(10), "replace", 0.7),
    ]
]  # fmt: skip

FOUR = dps.Schema([
    dps.Category("g", list("abcd")) if column.name == "g" else column for column in MIXED
])  # fmt: skip


def with_rare_level(few):
    """Rows of which a few have the level d."""

    def draw(rng, n):
        rows = number_and_group(rng, n) | {"u": rng.random(n) < 0.5}
        rows["g"][:few] = "d"
        return rows

    return draw


# The coefficient of d is not determined, and its interval is the whole line.
EMPTY = [
    (f"{few} rows of d", FOUR, formula, with_rare_level(few), truth, 3_000, budget, unit, np.inf)
    for few in (0, 1, 3)
    for formula, truth, budget, unit in [
        ("y ~ x + C(g)", (*GROUPS, 0), dps.PureDP(1), "replace"),
        ("y ~ x + C(g)", (*GROUPS, 0), dps.ZCDP(0.05), "add_remove"),
        ("y ~ x + u + C(g)", (-0.5, 1, 0, -0.6, 0.5, 0), dps.PureDP(3), "replace"),
    ]
]

# Without privacy the last coefficient has the width .054 at n = 200,000, .168 at 20,000.
TWO_STAGES = [
    ("mixed", MIXED, "y ~ x + u + C(g)", mixed, SLOPES, n, budget, unit, widest)
    for n, budget, unit, widest in [
        (200_000, TIGHT, "replace", 0.06), (20_000, TIGHT, "add_remove", 0.23),
        (20_000, dps.PureDP(1), "replace", 0.26),
    ]
]  # fmt: skip


def releases(analysis, schema, draw, n, budget, unit, runs, tools, seed=7):
    """Releases of fresh rows with fresh noise."""
    plan = dps.plan(schema, {"it": analysis}, budget=budget, unit=unit)
    source = tools.Laplace if budget.noise == "laplace" else tools.Gaussian
    rng = np.random.default_rng(seed)
    for run in range(runs):
        rows = pd.DataFrame(draw(rng, n)).reindex(columns=schema.names, fill_value=0)
        with _noise_from(source(run)):
            held = dps.measure(plan, rows)
        yield dps.synthesize(held, rng=run, k=500)


def check(setting, runs, table, tools, stages=1):
    name, schema, formula, draw, truth, n, budget, unit, widest = setting
    analysis, hits, widths = dps.Logistic(formula, stages=stages), np.zeros(len(truth)), []
    for release in releases(analysis, schema, draw, n, budget, unit, runs, tools):
        ends = np.asarray(release.infer("it").conf_int())
        hits += (ends[:, 0] <= truth) & (np.array(truth) <= ends[:, 1])
        widths.append(ends[-1, 1] - ends[-1, 0])
    what = f"{name}, {formula}, n = {n}, {budget.kind} {unit}, stages {stages}"
    width = float(np.median(widths))
    for term, hit in enumerate(hits):
        table.covers(what, f"coefficient {term}", hit, runs, rate=0.93, width=width)
    assert width <= widest, (what, width)


@pytest.mark.simulate(CELLS, few=(0,), runs=(20, 400))
def test_cells_cover(setting, runs, table, tools):
    check(setting, runs, table, tools)


@pytest.mark.simulate(DENSITY, few=(0,), runs=(10, 200))
def test_fitted_densities_cover(setting, runs, table, tools):
    check(setting, runs, table, tools)


@pytest.mark.simulate(TWO_STAGES, few=(1,), runs=(8, 200))
def test_two_stages_cover(setting, runs, table, tools):
    """Rows whose columns depend on each other in what one stage does not measure."""
    check(setting, runs, table, tools, stages=2)


@pytest.mark.simulate(
    [(stages, *setting) for stages in (1, 2) for setting in EMPTY], few=(3,), runs=(15, 200)
)
def test_other_coefficients_cover_beside_a_level_without_rows(setting, runs, table, tools):
    check(setting[1:], runs, table, tools, stages=setting[0])


def without_effects(rng, n):
    """The same columns, none of which matters."""
    return mixed(rng, n) | {"y": rng.random(n) < 0.4}


GROUP = "C(g)[T.b] = 0, C(g)[T.c] = 0"
PRODUCTS = "u[T.True]:C(g)[T.b] = 0, u[T.True]:C(g)[T.c] = 0"
# formula, hypothesis, rows, budget, unit, stages
JOINT = [
    ("y ~ C(g)", GROUP, 500, dps.PureDP(0.3), "replace", 1),
    ("y ~ u*C(g)", f"{GROUP}, {PRODUCTS}", 2_000, dps.PureDP(0.5), "replace", 1),
    ("y ~ x + C(g)", f"x = 0, {GROUP}", 2_000, dps.PureDP(1), "add_remove", 1),
    ("y ~ x + C(g)", f"x = 0, {GROUP}", 2_000, dps.ZCDP(0.05), "replace", 1),
    ("y ~ x + u + C(g)", f"x = 0, {GROUP}", 2_000, dps.PureDP(2), "replace", 1),
    ("y ~ x + u + C(g)", f"x = 0, {GROUP}", 20_000, TIGHT, "replace", 1),
    ("y ~ x + u + C(g)", GROUP, 20_000, TIGHT, "replace", 2),
]


@pytest.mark.slow
@pytest.mark.parametrize("setting", JOINT, ids=lambda s: f"{s[0]}-{s[2]}-{s[3].kind}-{s[5]}")
def test_joint_tests_hold_their_level(setting, table, tools):
    formula, hypothesis, n, budget, unit, stages = setting
    analysis, rejected, runs = dps.Logistic(formula, stages=stages), 0, 250
    options = MIXED, without_effects, n, budget, unit, runs, tools
    for release in releases(analysis, *options, seed=3):
        rejected += release.infer("it").wald_test(hypothesis).pvalue <= 0.05
    what = f"{formula}, n = {n}, {budget.kind} {unit}, stages {stages}"
    table.level(what, hypothesis, rejected, runs, rate=0.06)


@pytest.mark.slow
def test_smaller_models_of_a_release_cover(table, tools):
    """A regression on x and u from what was measured for one on x, u and g."""
    large, small = dps.Logistic("y ~ x + u + C(g)"), dps.Logistic("y ~ x + u")
    crowd = pd.DataFrame(mixed(np.random.default_rng(0), 1_000_000))
    x = np.column_stack([np.ones(len(crowd)), crowd["x"], crowd["u"]])
    truth = np.zeros(3)
    for _ in range(20):
        mean = special.expit(x @ truth)
        information = (x.T * (mean * (1 - mean))) @ x
        truth += np.linalg.solve(information, x.T @ (crowd["y"] - mean))
    for n, budget in ((2_000, dps.PureDP(5)), (20_000, TIGHT)):
        hits, runs = np.zeros(3), 200
        for release in releases(large, MIXED, mixed, n, budget, "replace", runs, tools):
            found = release.infer(small)
            assert found.terms == ["Intercept", "x", "u[T.True]"]
            ends = np.asarray(found.conf_int())
            hits += (ends[:, 0] <= truth) & (truth <= ends[:, 1])
        for term, hit in zip(found.terms, hits, strict=True):
            table.covers(f"n = {n}, {budget.kind}", term, hit, runs, rate=0.93)


@pytest.mark.slow
@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("formula", ["y ~ u", "y ~ x + u + C(g)"])
def test_a_regressor_that_predicts_the_outcome_keeps_an_infinite_end(formula, stages, table, tools):
    """The coefficient is infinite: an interval with an end does not cover it."""

    def certain(rng, n):
        rows = mixed(rng, n)
        return rows | {"y": rows["y"] | rows["u"]}

    analysis, open_ends, runs = dps.Logistic(formula, stages=stages), 0, 100
    for release in releases(analysis, MIXED, certain, 5_000, TIGHT, "replace", runs, tools, 3):
        found = release.infer("it")
        open_ends += np.isinf(np.asarray(found.conf_int())[found.terms.index("u[T.True]"), 1])
    table.covers(f"{formula}, stages {stages}", "upper end", open_ends, runs, rate=0.95)
