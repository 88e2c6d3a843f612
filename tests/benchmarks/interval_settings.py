"""Settings of `intervals.py`: populations, plans, analyses, and the values that they estimate.

A population is a table of `POPULATION` rows, from which releases draw rows (or persons) with
replacement: its own values are the truth, without an error of simulation. Names of the package's
results are used in `Estimates` to `Grid` only.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf
from scipy import optimize, sparse, special, stats

import dpstats as dps

POPULATION = 200_000
ABOUT = {  # method, target, and whether limits hold for all terms jointly
    "population": ("noise_aware", "population", False),
    "table": ("noise_aware", "table", False),
    "certified": ("certified", "population", False),
    "certified table": ("certified", "table", False),
    "jointly": ("noise_aware", "population", True),
}
NOISE_AWARE, FOUR = ("population", "table"), ("population", "table", "certified", "certified table")
EFFECTS = ("population", "certified table")


class Estimates:
    """Terms, estimates, limits and p-values of a result with parameters."""

    of_zero = False  # whether the p-value is that of: the value is zero

    def __init__(self, result):
        self.result = result

    terms = property(lambda self: list(self.result.terms))
    params = property(lambda self: np.asarray(self.result.params))

    def ends(self, alpha, about):
        method, target, joint = ABOUT[about]
        options = {"simultaneous": True} if joint else {}
        found = self.result.conf_int(alpha=alpha, method=method, target=target, **options)
        return np.reshape(np.asarray(found), (-1, 2))

    def pvalue(self, term, value):
        return self.result.test(value, term=term).pvalue


class Untested(Estimates):
    pvalue = None


class Effect(Estimates):
    """The effect size of a chi-square test, and its p-value."""

    of_zero, terms = True, ["effect"]
    params = property(lambda self: [self.result.effect])

    def pvalue(self, term, value):
        return self.result.pvalue


class Test(Effect):
    """A test alone: its value is 0 under the null hypothesis, else 1."""

    terms, params = ["test"], [np.nan]


class Support(Untested):
    """Verdicts on coefficients of penalised regression, as limits of: is it not zero?"""

    params = property(lambda self: np.asarray(self.result.params) != 0)

    def ends(self, alpha, about):
        verdicts = self.result.support(alpha=alpha)["verdict"]
        return np.array([(verdict == "in", verdict != "out") for verdict in verdicts])


class Edges(Untested):
    """Verdicts on edges of a tree, as limits of: is it one?"""

    params = property(lambda self: self.result.in_tree)

    def ends(self, alpha, about):
        method, target, _ = ABOUT[about]
        verdicts = self.result.verdicts(alpha=alpha, method=method, target=target)
        return np.array([(verdict == "sure", verdict != "impossible") for verdict in verdicts])


class Band(Untested):
    """The band for a distribution function, at all edges."""

    terms = property(lambda self: self.result.distribution()["edge"].map("{:g}".format).tolist())
    params = property(lambda self: self.result.distribution()["estimate"].to_numpy())

    def ends(self, alpha, about):
        frame = self.result.distribution(alpha=alpha, method=ABOUT[about][0])
        return frame[["band_low", "band_high"]].to_numpy()


class Grid(Untested):
    """The certified set of M-estimation."""

    def ends(self, alpha, about):
        return np.asarray(self.result.conf_int(alpha=alpha, target=ABOUT[about][1]))


@dataclass(frozen=True)
class Ask:
    """An analysis, some of its terms with their values in a table, and how its result is read."""

    analysis: dps.Analysis
    terms: tuple[str, ...]
    values: Callable
    about: tuple[str, ...] = FOUR
    read: type = Estimates
    part: Callable = lambda result: result  # of the result
    within: tuple[float, float] = (-np.inf, np.inf)  # values that may be tested

    of_table = property(lambda self: any("table" in about for about in self.about))

    def own(self, rows):
        """The values of the terms."""
        found = self.values(rows)
        found = found.reindex(self.terms) if isinstance(found, pd.Series) else found
        return dict(zip(self.terms, map(float, found), strict=True))


@dataclass(frozen=True)
class Setting:
    """What is measured, of how many rows (or persons) of which population."""

    asks: dict[str, Ask]
    columns: list
    population: Callable
    n: int
    budget: object
    unit: str = "replace"
    options: dict = field(default_factory=dict)  # of the plan
    planned: dict = field(default_factory=dict)  # if not the analyses of `asks`
    fitted: bool = False  # whether they need the fitted density

    def table(self):
        """The population, with numbers on the grids of the schema."""
        rows = self.population()
        for column in self.columns:
            if isinstance(column, dps.Number):
                step = (column.high - column.low) / (column.points - 1)
                x = rows[column.name].clip(column.low, column.high)
                rows[column.name] = column.low + step * ((x - column.low) / step).round()
        return rows

    def draw(self, population, rng):
        """Rows of one release."""
        if "person" not in population:
            return population.iloc[rng.integers(len(population), size=self.n)].reset_index()
        starts = np.unique(population["person"], return_index=True)[1]
        sizes = np.diff(starts, append=len(population))
        chosen = rng.integers(len(starts), size=self.n)
        places = np.concatenate([np.arange(starts[i], starts[i] + sizes[i]) for i in chosen])
        rows = population.iloc[places].reset_index()
        return rows.assign(person=np.repeat(np.arange(self.n), sizes[chosen]))

    def plan(self):
        """The plan of all releases; persons are measured without a public number of rows."""
        planned = dict(self.planned)
        for name, ask in self.asks.items():
            if not self.planned and ask.analysis not in planned.values():
                planned[name] = ask.analysis
        n = self.n if self.unit == "replace" else None
        return dps.plan(dps.Schema(self.columns), planned, budget=self.budget, n=n, unit=self.unit,
                        **self.options)  # fmt: skip


SETTINGS: dict[str, Setting] = {}


def add(topic, asks, columns, population, cases, **more):
    """Settings of a topic: names to sizes, budgets (a number is an epsilon) and what differs."""
    for name, (n, budget, *other) in cases.items():
        budget = budget if isinstance(budget, dps.ZCDP | dps.ApproxDP) else dps.PureDP(budget)
        own = {"asks": asks, "columns": columns, "population": population, **more}
        SETTINGS[f"{topic}, {name}"] = Setting(n=n, budget=budget, **(own | dict(*other)))


def crossed(shares, **levels):
    """Categories whose cells have these shares, an array with an axis for every column."""
    shares = np.asarray(shares, dtype=float)
    counts = np.rint(POPULATION * shares / shares.sum()).astype(int)
    codes = np.unravel_index(np.repeat(np.arange(counts.size), counts.ravel()), counts.shape)
    named = zip(levels.items(), codes, strict=True)
    return pd.DataFrame({name: np.asarray(list(known))[code] for (name, known), code in named})


def rates(shares, *risks):
    """Groups with these shares, and a Boolean y with these risks in them."""
    shares, risks = np.array(shares), np.array(risks)
    cells = np.column_stack([shares * (1 - risks), shares * risks])
    return crossed(cells, g="abcdef"[: len(shares)], y=[False, True])


def linked(g, h, *risks):
    """Independent columns g and h, and a Boolean y whose risk depends on g."""
    risks = np.array(risks)[:, None]
    shares = np.multiply.outer(np.array(g), h)
    cells = np.stack([shares * (1 - risks), shares * risks], axis=-1)
    return crossed(cells, g="abcdef"[: len(g)], h="xyz", y=[False, True])


def normal(names, covariance=None, df=np.inf, bound=4, shares=(1,)):
    """Numbers with this covariance, but for their bounds, and equal means in independent groups."""
    rng, p = np.random.default_rng(1), len(names)
    z = rng.standard_normal((POPULATION, p)) / np.sqrt(
        1 if np.isinf(df) else rng.chisquare(df, (POPULATION, 1)) / df
    )
    g = crossed(shares, g="abcdef"[: len(shares)])["g"]
    z = pd.DataFrame(z, columns=list(names))
    z -= z.groupby(g).transform("mean")
    root = np.linalg.cholesky(np.eye(p) if covariance is None else np.asarray(covariance))
    z[:] = z.to_numpy() @ np.linalg.inv(np.linalg.cholesky(np.atleast_2d(np.cov(z.T)))).T @ root.T
    bound = np.broadcast_to(bound, p)
    return z.clip(-bound, bound, axis=1).assign(g=g)


def panel(k, alike):
    """Persons with 1 to k rows, most of the variance between them; or with k equal rows each."""
    rng, persons = np.random.default_rng(6), np.arange(POPULATION // k)
    person = np.repeat(persons, k if alike else 1 + persons // 4 % k)
    own = rng.standard_normal((3, len(persons)))[:, person]
    ways = rng.standard_normal((3, len(person))) * (not alike)
    x, e, u = np.clip(0.8 * own + 0.6 * ways, -3, 3)
    g, h = np.array(list("ab"))[person % 2], np.array(list("cd"))[person // 2 % 2]
    y = u + 0.3 * x + 0.3 * (g == "a") > 0.5
    rows = {"person": person, "x": x, "w": 0.5 * x + 0.5 * e, "y": y, "g": g, "h": h}
    return pd.DataFrame(rows)


def paired(law):
    """Costs y and incomes x: in proportion but for an error, often zero, or of little variance."""
    rng = np.random.default_rng(3)
    x = rng.gamma(3, 0.08, POPULATION)
    y = 0.6 * x * rng.gamma(6, 1 / 6, POPULATION)
    if law == "zeros":
        x, y = np.where(rng.random((2, POPULATION)) < [[0.2], [0.7]], 0, [x, 0.5 * x + y])
    elif law == "narrow":
        x, y = rng.normal(0.5, 0.03, POPULATION), rng.normal(0.3, 0.02, POPULATION)
    return pd.DataFrame({"x": x, "y": y})


def incomplete():
    """Correlated numbers, of which the large values of x are missing more often than others."""
    f, rng = normal("xy", [[1, 0.6], [0.6, 1]], bound=3, shares=(1, 3)), np.random.default_rng(4)
    missing = rng.random((2, POPULATION)) < [np.where(f["x"] > 0, 0.5, 0.1), np.full(len(f), 0.2)]
    f["y"] += 0.5 * (f["g"] == "a")
    return f.mask(pd.DataFrame({"x": missing[0], "y": missing[1], "g": False}))


def steep():
    """Little error about a steep line: with a penalty its misfit is where x is not 0."""
    f = crossed(np.outer([1, 38, 1], [1, 1]), x=[-1.0, 0.0, 1.0], e=[-0.1, 0.1])
    return f.assign(y=3 * f["x"] + f["e"])


def means(column, *groups):
    return lambda f: [f[column][f["g"] == g].mean() for g in groups]


def difference(column, one, other):
    return lambda f: [np.subtract(*means(column, one, other)(f))]


def compared(f):
    """Risk difference, risk ratio and odds ratio."""
    p, q = np.array(means("y", "a", "b")(f))
    with np.errstate(divide="ignore", invalid="ignore"):
        return [p - q, p / q, p * (1 - q) / (q * (1 - p))]


def cells(*chosen):
    return lambda f: [np.mean((f["g"] == g) & (f["y"] == y)) for g, y in chosen]


def cohens_w(shares):
    p = pd.Series(shares)
    own = lambda f: f["g"].value_counts(normalize=True).reindex(p.index).fillna(0)  # noqa: E731
    return lambda f: [np.sqrt(((own(f) - p) ** 2 / p).sum())]


def quantiles(levels, rows=lambda f: f):
    return lambda f: np.quantile(rows(f)["x"], levels, method="inverted_cdf")


def covariance(f):
    return np.cov(f[list("abcde")].T)


def correlations(f, matrix=covariance):
    """Of the first column with the second and third."""
    c = matrix(f)
    return (c / np.sqrt(np.outer(np.diag(c), np.diag(c))))[0, 1:3]


def partial_correlations(f):
    return correlations(f, lambda f: -np.linalg.inv(covariance(f)))


def components(f):
    """The first and last eigenvalue, in units of the bounds, and the share of the first."""
    values = np.linalg.eigvalsh(covariance(f) / 16)
    return [values[-1], values[0], values[-1] / values.sum()]


def standardised(f):
    """The first and last eigenvalue of the correlations."""
    return np.linalg.eigvalsh(np.corrcoef(f[list("abcde")].T))[[-1, 0]]


def shrunk(f, names=("a", "b", "c", "d", "e")):
    """Rows of these columns, shrunk to the norm `NORM` in units of their bounds, which are 4."""
    z = f[list(names)]
    return z.div(np.maximum(1, np.linalg.norm(z / 4, axis=1) / NORM), axis=0)


def edges(f):
    """Whether the first column is joined to the second and third."""
    r = np.abs(np.corrcoef(f[list("abcde")].T))
    return sparse.csgraph.minimum_spanning_tree(np.triu(2 - r, 1)).toarray()[0, 1:3] > 0


def fitted(f, formula, kind=smf.ols):
    return kind(formula, f.astype({"y": float})).fit(disp=0).params


def not_zero(f, alpha, l1_ratio):
    """Which coefficients of an elastic net are not zero, in units of the bounds."""
    from sklearn.linear_model import ElasticNet

    net = ElasticNet(alpha=alpha, l1_ratio=l1_ratio, tol=1e-8).fit(f[list("xuv")] / 2, f["y"] / 4)
    return net.coef_ != 0


def huber(f):
    loss = lambda b: special.huber(1, f["y"] - b[0] - b[1] * f["x"]).mean()  # noqa: E731
    return optimize.minimize(loss, [0.0, 0.0]).x


def always(value):
    return lambda f: [value]


def category(levels, name="g"):
    return dps.Category(name, list(levels))


def numbers(names, bound, **more):
    return [dps.Number(name, -bound, bound, missing=0, **more) for name in names]


Y, AB, UNIT, ADDED = dps.Boolean("y"), category("ab"), (0.0, 1.0), {"unit": "add_remove"}

ONE = Ask(dps.Proportion("y"), ("y",), lambda f: [f["y"].mean()], FOUR, within=UNIT)
add("share", {"share": ONE}, [Y], partial(rates, [1], 0.3), {
    "noise": (2_000, 0.02), "balanced": (2_000, 0.07), "sampling": (2_000, 1),
    "Gaussian": (2_000, dps.ZCDP(0.0025)),
    "rare": (1_000, 1, {"population": partial(rates, [1], 0.002)}),
})  # fmt: skip
add("share, add/remove", {"share": ONE}, [Y], partial(rates, [1], 0.9), {
    "noise": (500, 0.05), "balanced": (2_000, 0.1), "sampling": (2_000, 5), "500 rows": (500, 1),
    "300 rows": (300, 0.125, {"population": partial(rates, [1], 0.3)}),
}, **ADDED)  # fmt: skip

GROUP = Ask(dps.Proportion("y", given="g == 'a'"), ("y | g == 'a'",), means("y", "a"), within=UNIT)
add("share in a group", {"share": GROUP}, [AB, Y], partial(rates, (0.5, 0.5), 0.3, 0.6), {
    "noise": (400, 0.1), "balanced": (400, 0.5), "sampling": (4_000, 2),
    "add/remove": (400, 1, ADDED),
    "20 rows, rare": (400, 1, {"population": partial(rates, (0.05, 0.95), 0.02, 0.6)}),
    "hidden": (200, 0.3, {"population": partial(rates, (0.05, 0.95), 0.3, 0.6)} | ADDED),
})  # fmt: skip

TABLE, EVERY = dps.Marginals(["g", "y"]), [(g, y) for g in "ab" for y in (False, True)]
NAMED = tuple(f"g={g}, y={y}" for g, y in EVERY)
add("cells", {
    "cells": Ask(TABLE, NAMED[1:3], cells(*EVERY[1:3]), within=UNIT),
    "all cells": Ask(TABLE, NAMED, cells(*EVERY), ("jointly",), within=UNIT),
}, [AB, Y], partial(rates, (0.9, 0.1), 0.9, 0.9), {
    "noise": (2_000, 0.02), "balanced, add/remove": (2_000, 0.1, ADDED), "sampling": (2_000, 5),
    "Gaussian, add/remove": (2_000, dps.ApproxDP(0.1, 1e-6), ADDED),
    "empty level": (300, 1, {"population": partial(rates, (1, 0), 0.3, 0.5)}),
})  # fmt: skip

RISKS = Ask(dps.Difference("y", by="g", groups=("a", "b")),
            ("risk difference", "risk ratio", "odds ratio"), compared)  # fmt: skip
add("difference", {"risks": RISKS}, [AB, Y], partial(rates, (0.5, 0.5), 0.5, 0.2), {
    "noise": (800, 0.1), "balanced": (800, 0.5), "sampling": (4_000, 3),
    "200 rows each": (400, 0.3, {"population": partial(rates, (0.5, 0.5), 0.5, 0.5)}),
    "rare": (100, 5, {"population": partial(rates, (0.5, 0.5), 0.02, 0.04)}),
    "high, add/remove": (150, 3, {"population": partial(rates, (0.4, 0.6), 0.97, 0.99)} | ADDED),
})  # fmt: skip
add("overlapping tables", {"share": GROUP, "risks": RISKS}, [AB, Y, *map(dps.Boolean, "uv")],
    lambda: rates((0.5, 0.5), 0.3, 0.2).assign(u=True, v=False), {
    "noise": (1_000, dps.ZCDP(0.001)), "balanced": (1_000, dps.ZCDP(0.01)),
    "sampling, add/remove": (1_000, dps.ZCDP(2), ADDED),
    "20 rows": (1_000, dps.ZCDP(0.2), {
        "population": lambda: rates((0.02, 0.98), 0.3, 0.2).assign(u=True, v=False)}),
    "rare": (2_000, dps.ApproxDP(1, 1e-6), {
        "population": lambda: rates((0.5, 0.5), 0.01, 0.02).assign(u=True, v=False)}),
    "rare, add/remove": (500, dps.ApproxDP(3, 1e-6), {
        "population": lambda: rates((0.2, 0.8), 0.02, 0.05).assign(u=True, v=False)} | ADDED),
}, planned={"tables": dps.Marginals(["g", "y", "u", "v"])})  # fmt: skip

THREE, LINKED = (0.5, 0.3, 0.2), [category("abc"), category("xyz", "h"), Y]


def independence(a, b):
    v = lambda f: [stats.contingency.association(pd.crosstab(f[a], f[b]).to_numpy())]  # noqa: E731
    return Ask(dps.Independence(a, b), ("effect",), v, EFFECTS, Effect)


add("independence", {
    "independent": independence("g", "h"), "dependent": independence("g", "y")
}, LINKED, partial(linked, THREE, THREE, 0.3, 0.4, 0.5), {
    "noise": (1_000, 0.3), "balanced": (1_000, 1), "sampling": (4_000, 10),
    "add/remove": (1_000, dps.ZCDP(0.1), ADDED),
    "small and empty levels": (3_000, 1, {
        "columns": [category("abcdef"), *LINKED[1:]],
        "population": partial(linked, (0.485, 0.485, 0.01, 0.01, 0.01, 0), THREE, *[0.3, 0.4] * 3),
    }),
})  # fmt: skip
STRATA = Ask(dps.Independence("g", "h", given="y"), ("effect",), always(0), ("population",), Effect)
add("independence in strata", {"independent": STRATA}, LINKED,
    partial(linked, THREE, THREE, 0.3, 0.3, 0.3), {
    "noise": (1_000, 0.3), "balanced": (2_000, 1), "sampling": (4_000, 10), "sparse": (40, 20),
})  # fmt: skip


def linked_in_b():
    """Columns g and h that are independent where k is a, and equal where it is b."""
    return crossed(np.stack([np.outer(THREE, THREE), np.eye(3) / 3], -1), g="abc", h="xyz", k="ab")


IN_A_ALONE = dps.Independence("g", "h", given="k == 'a'")
add("independence in a group", {
    "independent": Ask(IN_A_ALONE, ("effect",), always(0), ("population",), Effect)
}, [*LINKED[:2], category("ab", "k")], linked_in_b,
    {"noise": (1_000, 0.5), "sampling": (4_000, 10, ADDED)})  # fmt: skip


def goodness(shares):
    return Ask(dps.GoodnessOfFit("g", shares), ("effect",), cohens_w(shares), EFFECTS, Effect)


TRUE, TEN = dict(zip("abc", THREE, strict=True)), dict.fromkeys("abcdefghij", 0.1)
add("goodness of fit", {"true": goodness(TRUE), "false": goodness(dict.fromkeys("abc", 1 / 3))},
    [category("abc")], lambda: crossed(THREE, g="abc"), {
    "noise": (500, 0.05), "balanced": (500, 0.3), "sampling": (2_000, 5),
    "add/remove": (500, dps.ZCDP(0.02), ADDED),
    "few rows": (20, 3, {"asks": {"true": goodness(TEN)}, "columns": [category(TEN)],
                         "population": lambda: crossed([1] * 10, g=TEN)}),
})  # fmt: skip

DECILES, FOURS = ("x: quantile 0.1", "x: quantile 0.5"), range(4, 100, 4)
IN_A = Ask(dps.Quantile("x", [0.5], given="g == 'a'"), DECILES[1:],
           quantiles([0.5], lambda f: f[f["g"] == "a"]))  # fmt: skip
add("quantiles", {"quantiles": Ask(dps.Quantile("x", [0.1, 0.5]), DECILES, quantiles([0.1, 0.5]))},
    [dps.Number("x", 0, 100, edges=FOURS, missing=0), AB],
    lambda: normal("x", shares=(1, 1)).assign(x=lambda f: 50 + 12 * f["x"]), {
    "noise": (2_000, 0.1, ADDED), "balanced": (2_000, 0.5), "sampling": (2_000, 5),
    "100 rows": (100, 2), "in a group": (400, 1, {"asks": {"quantiles": IN_A}}),
})  # fmt: skip

PLACES = (20, 52, 80)
BAND = Ask(dps.Quantile("x", [0.5]), tuple(map(str, PLACES)),
           lambda f: [(f["x"] < edge).mean() for edge in PLACES], ("jointly",), Band)  # fmt: skip
add("distribution", {"band": BAND}, [dps.Number("x", 0, 100, edges=FOURS, missing=0)],
    lambda: normal("x").assign(x=lambda f: 50 + 12 * f["x"]),
    {"noise": (2_000, 0.1), "sampling": (2_000, 5, ADDED), "Gaussian": (300, dps.ZCDP(0.1))}
)  # fmt: skip

MEAN = Ask(dps.Mean("x"), ("mean of x",), lambda f: [f["x"].mean()])
add("mean", {"mean": MEAN}, numbers("x", 5), partial(normal, "x"), {
    "noise": (500, 0.1), "balanced": (2_000, 0.2), "sampling": (2_000, 5),
    "add/remove": (2_000, 0.5, ADDED), "30 rows": (30, 0.5, ADDED),
    "constant": (500, 0.5, {"population": lambda: crossed([1], x=[3.0])}),
    "two values, one rare": (300, 5, {"population": lambda: 5 * crossed([0.99, 0.01], x=[-1, 1])}),
})  # fmt: skip
GAP = Ask(dps.MeanDifference("x", by="g", groups=("a", "b")), ("mean of x: a - b",),
          difference("x", "a", "b"))  # fmt: skip
add("two means", {
    "in a group": Ask(dps.Mean("x", given="g == 'a'"), ("mean of x | g == 'a'",), means("x", "a")),
    "difference": GAP,
}, [AB, *numbers("x", 5)], partial(normal, "x", shares=(1, 1)), {
    "noise": (800, 0.3), "balanced": (4_000, 1), "sampling": (4_000, 10),
    "add/remove": (4_000, 1, ADDED),
    "hidden group": (800, 1, {"population": partial(normal, "x", shares=(5, 95))}),
})  # fmt: skip


RATIO = Ask(dps.Ratio("y", "x"), ("y / x",), lambda f: [f["y"].sum() / f["x"].sum()])
add("ratio", {"ratio": RATIO}, [
    dps.Number("y", 0, 1, points=201, missing=0), dps.Number("x", 0, 1, points=401, missing=0)
], partial(paired, "proportional"), {
    "noise": (500, 0.3), "balanced": (2_000, 1, ADDED), "sampling": (20_000, 1),
    "Gaussian": (500, dps.ApproxDP(1, 1e-6)),
    "often zero": (2_000, 1, {"population": partial(paired, "zeros")}),
    "little variance": (500, 1, {"population": partial(paired, "narrow")} | ADDED),
})  # fmt: skip


def shifted(*shares):
    """Groups with equal means of x, and means of w that differ by .2 from one to the next."""
    return normal("x", shares=shares).assign(w=lambda f: f["x"] + 0.2 * f["g"].map(ord) - 20)


EQUAL, SHIFTED = dps.GroupMeans("x", by="g"), dps.GroupMeans("w", by="g")
add("group means", {
    "means": Ask(EQUAL, ("g=a", "g=c"), means("x", "a", "c")),
    "all means": Ask(EQUAL, ("g=a", "g=b", "g=c"), means("x", *"abc"), ("jointly",)),
    "pairs": Ask(EQUAL, ("a - c",), difference("x", "a", "c"), ("population",),
                 part=lambda result: result.pairwise()),
    "anova of equal": Ask(EQUAL, ("test",), always(0), (), Test, lambda result: result.anova()),
    "anova of shifted": Ask(SHIFTED, ("test",), always(1), (), Test, lambda result: result.anova()),
}, [category("abc"), *numbers("xw", 5)], partial(shifted, *THREE), {
    "noise": (1_000, 1), "balanced": (4_000, 2), "sampling": (4_000, 20),
    "small groups": (1_000, dps.ZCDP(0.5), {
        "columns": [category("abcde"), *numbers("xw", 5)],
        "population": partial(shifted, 0.47, 0.47, 0.03, 0.03)}),
})  # fmt: skip

FIVE, PAIRS = list("abcde"), ("a, b", "a, c")
UPPER = np.triu_indices(5)
FIFTEEN = tuple(f"cov({a}, {b})" if a < b else f"var({a})" for a in FIVE for b in FIVE if a <= b)
FACTOR = np.outer(LOADINGS := [0.9, 0.8, 0.6, 0.5, 0.4], LOADINGS) + 0.3 * np.eye(5)
CHAIN = 0.5 ** np.abs(np.subtract.outer(np.arange(5), np.arange(5)))
TREE, WITHIN = dps.GraphicalModel(FIVE, structure="tree"), (-1.0, 1.0)
PARTIAL = Ask(dps.GraphicalModel(FIVE), PAIRS, partial_correlations, within=WITHIN)
EIGEN = ("PC1 variance", "PC5 variance", "PC1 ratio")
add("moments", {
    "covariances": Ask(dps.Covariance(FIVE), ("var(a)", "cov(a, b)"),
                       lambda f: covariance(f)[0, :2]),
    "all covariances": Ask(dps.Covariance(FIVE), FIFTEEN, lambda f: covariance(f)[UPPER],
                           ("jointly",)),
    "correlations": Ask(dps.Correlation(FIVE[:3]), PAIRS, correlations, within=WITHIN),
    "eigenvalues": Ask(dps.PCA(FIVE), EIGEN, components, read=Untested),
    "standardised": Ask(dps.PCA(FIVE, standardize=True), EIGEN[:2], standardised, read=Untested),
    "partial correlations": PARTIAL,
    "correlations of a tree": Ask(TREE, PAIRS, correlations, within=WITHIN),
    "edges of a tree": Ask(TREE, PAIRS, edges, read=Edges),
}, numbers(FIVE, 4), partial(normal, FIVE, FACTOR), {
    "noise": (2_000, 3), "balanced": (5_000, 10), "sampling": (20_000, 50),
    "tied eigenvalues": (5_000, 10, {"population": partial(normal, FIVE)}),
    "heavy tails": (5_000, 20, {"population": partial(normal, FIVE, CHAIN, 5)}),
    "near singular": (2_000, 10, {"population": partial(normal, FIVE, 0.95 + 0.05 * np.eye(5))}),
    "signs": (5_000, 20, {"population": lambda: 4 * np.sign(normal(FIVE, CHAIN)[FIVE])}),
    "add/remove": (5_000, dps.ZCDP(2), ADDED),
}, fitted=True)  # fmt: skip
NORM = 0.8  # a tenth of the rows are longer
BALL = {"clip_norm": NORM}
add("shrunk rows", {
    "covariances": Ask(dps.Covariance(FIVE, **BALL), ("var(a)", "cov(a, b)"),
                       lambda f: covariance(shrunk(f))[0, :2]),
    "correlations": Ask(dps.Correlation(FIVE, **BALL), PAIRS, lambda f: correlations(shrunk(f)),
                        within=WITHIN),
    "eigenvalues": Ask(dps.PCA(FIVE, **BALL), EIGEN, lambda f: components(shrunk(f)),
                       read=Untested),
    "line": Ask(dps.OLS("e ~ a + d", **BALL), ("a", "d"), lambda f: smf.ols(
        "e ~ a + d", shrunk(f, "ade")).fit().params),
}, numbers(FIVE, 4), partial(normal, FIVE, CHAIN), {
    "noise": (2_000, 3), "balanced": (5_000, dps.ZCDP(2)), "sampling": (20_000, 50),
    "add/remove": (5_000, dps.ZCDP(0.5), ADDED),
}, fitted=True)  # fmt: skip


def linear(slopes=(0.5,), names="x", shape=((1,),), unequal=False, far=0, **more):
    """A response with these slopes, and shifts in levels b and c, whose x in level d is far."""
    shape = np.pad(0.49 * np.asarray(shape), (0, 1))
    shape[-1, -1] = 1
    f, x = normal(f"{names}e", shape, bound=[*[2] * len(names), 4], **more), list(names)
    if unequal:
        f[x] = 4 * stats.norm.cdf(f[x] / 0.7) - 2
    f["x"] += far * (f["g"] == "d")
    spread = 0.15 + 0.35 * f["x"].abs() if unequal else 0.5
    y = 0.2 + f[x] @ slopes + 0.5 * (f["g"] == "b") - 0.5 * (f["g"] == "c")
    return f.assign(y=y + spread * f["e"])


LINE, SLOPE = dps.OLS("y ~ x"), partial(fitted, formula="y ~ x")
XY, AT_ONE = [*numbers("x", 2), *numbers("y", 4)], {"x": [1]}
add("OLS of one", {
    "line": Ask(LINE, ("x",), SLOPE),
    "all of the line": Ask(LINE, ("Intercept", "x"), SLOPE, ("jointly",)),
    "prediction": Ask(LINE, ("0",), lambda f: [SLOPE(f).sum()], NOISE_AWARE,
                      part=lambda result: result.get_prediction(AT_ONE).mean),
}, XY, linear, {
    "noise": (500, 1), "balanced": (20_000, 1), "sampling": (20_000, 5),
    "often singular": (500, 0.3), "add/remove": (5_000, 2, ADDED),
    "missing values": (5_000, 3, {
        "columns": [dps.Number("x", -2, 2, allow_missing=True), XY[1]],
        "population": lambda: linear().assign(x=lambda f: f["x"].where(f.index % 10 > 0))}),
})  # fmt: skip

RIDGE = Ask(dps.OLS("y ~ x", ridge=0.2), ("x",),
            lambda f: [np.cov(f["x"], f["y"])[0, 1] / (f["x"].var() + 0.2)])  # fmt: skip
add("ridge", {"line": RIDGE}, [*numbers("x", 1), *numbers("y", 4)], steep,
    {"noise": (2_000, 1, ADDED), "sampling": (2_000, 50)})  # fmt: skip


def in_a(values):
    return lambda f: values(f[f["g"] == "a"])


def below_zero(f):
    return [(f["x"].dropna() < 0).mean()]


def correlation_of(f):
    return [f["x"].corr(f["y"])]


ONLY = {"given": "g == 'a'"}
add("incomplete rows", {
    "mean": Ask(dps.Mean("x"), MEAN.terms, MEAN.values, EFFECTS),
    "mean in a group": Ask(dps.Mean("y", **ONLY), ("mean of y | g == 'a'",), means("y", "a"),
                           EFFECTS),
    "share in a group": Ask(dps.Proportion("x < 0", **ONLY), ("x < 0 | g == 'a'",),
                            in_a(below_zero), within=UNIT),
    "correlation in a group": Ask(dps.Correlation(["x", "y"], **ONLY), ("x, y",),
                                  in_a(correlation_of), EFFECTS, within=WITHIN),
    "slope": Ask(LINE, ("x",), SLOPE, EFFECTS),
    "slope in a group": Ask(dps.OLS("y ~ x", **ONLY), ("x",), in_a(SLOPE), EFFECTS),
    "quantile": Ask(dps.Quantile("x", [0.5]), DECILES[1:],
                    quantiles([0.5], lambda f: f.dropna(subset="x")), EFFECTS),
}, [*(dps.Number(x, -3, 3, points=101, edges=[-1, 0, 1], allow_missing=True) for x in "xy"), AB],
    incomplete, {
    "noise": (1_000, 1), "balanced": (10_000, 2, ADDED), "sampling": (10_000, 50),
    "few rows": (100, 5), "Gaussian": (10_000, dps.ZCDP(0.1), ADDED),
}, fitted=True)  # fmt: skip

PLANE, PLANES = dps.OLS("y ~ x + u + v"), partial(fitted, formula="y ~ x + u + v")
NEAR = ((1, 0.6, 0), (0.6, 1, 0), (0, 0, 1))
PLANAR = partial(linear, (0.5, -0.3, 0), "xuv", NEAR)
XUVY = [*numbers("xuv", 2), XY[1]]
add("OLS of three", {
    "slopes": Ask(PLANE, ("x",), PLANES),
    "contrast": Ask(PLANE, ("x - u",), lambda f: [PLANES(f)["x"] - PLANES(f)["u"]], NOISE_AWARE,
                    part=lambda result: result.t_test("x - u")),
    "F test of zero": Ask(PLANE, ("test",), always(0), (), Test,
                          lambda result: result.f_test("v = 0")),
    "F test of others": Ask(PLANE, ("test",), always(1), (), Test,
                            lambda result: result.f_test("x = 0, u = 0")),
}, XUVY, PLANAR, {
    "noise": (20_000, 1), "balanced": (20_000, 5), "sampling": (20_000, 30),
    "near singular": (500, 5),
})  # fmt: skip
ROBUST, ROBUSTS = (dps.OLS(formula, cov_type="HC1") for formula in ("y ~ x", PLANE.formula))
COARSE = [*numbers("xuv", 2, points=101), *numbers("y", 4, points=101)]
add("HC1", {"line": Ask(ROBUST, ("x",), SLOPE)}, [COARSE[0], COARSE[3]],
    partial(linear, unequal=True), {
    "noise": (500, 1), "balanced": (2_000, 5), "sampling": (20_000, 5),
    "add/remove": (2_000, 1, ADDED),
})  # fmt: skip
add("HC1 of three", {"slopes": Ask(ROBUSTS, ("x", "u"), PLANES, NOISE_AWARE)},
    COARSE, partial(PLANAR, unequal=True),
    {"noise": (2_000, 5), "balanced": (20_000, 5), "sampling": (20_000, 50)})  # fmt: skip
LEVELS = Ask(dps.OLS("y ~ x + C(g)"), ("x", "C(g)[T.b]"), partial(fitted, formula="y ~ x + C(g)"))
add("OLS with levels", {"slopes": LEVELS}, [category("abcd"), *numbers("xy", 4)],
    partial(linear, shares=(4, 3, 2, 1)), {
    "noise": (4_000, 3), "balanced": (20_000, 5), "sampling": (20_000, 50),
    "empty level": (4_000, 3, {"population": partial(linear, shares=(4, 3, 3, 0))}),
    "14 rows far": (20_000, 5, {
        "population": partial(linear, shares=(0.4, 0.3, 0.2993, 0.0007), far=2)}),
})  # fmt: skip


def outcomes(predictor, even=False, r=0.4, counts=False):
    """A Boolean of these log odds, or counts of these log means; b is commoner where x is large."""
    f = normal("xue", [[1, r, 0], [r, 1, 0], [0, 0, 1]], bound=2.5)
    f["x"] = 4 * stats.norm.cdf(f["x"]) - 2 if even else f["x"]
    f["g"] = np.where((f.index % 5 < 2) | (f["x"] > 1.2), "b", "a")
    eta, uniform = predictor(f), stats.norm.cdf(f["e"])
    if counts:
        return f.assign(y=np.minimum(stats.poisson.ppf(uniform, np.exp(eta)), 9))
    return f.assign(y=uniform < special.expit(eta))


def one_of(constant):
    return lambda f: constant + 0.8 * f["x"]


def several(f, constant=-0.3, factor=1.0):
    return constant + factor * (0.6 * f["x"] - 0.4 * f["u"] + 0.5 * (f["g"] == "b"))


def separated(f):
    return -0.3 + 0.8 * f["x"] + 1e3 * (f["g"] == "b")


def even_edges(bound, bins):
    return {"edges": np.linspace(-bound, bound, bins + 1)[1:-1].tolist()}


RISK, CURVE = dps.Logistic("y ~ x"), partial(fitted, formula="y ~ x", kind=smf.logit)


def effect_of_x(f, formula="y ~ x"):
    return smf.logit(formula, f.astype({"y": float})).fit(disp=0).get_margeff().margeff[-1:]


add("logistic, cells", {
    "coefficients": Ask(RISK, ("Intercept", "x"), CURVE, NOISE_AWARE),
    "prediction": Ask(RISK, ("0",), lambda f: [special.expit(CURVE(f).sum())], NOISE_AWARE,
                      part=lambda result: result.get_prediction(AT_ONE), within=UNIT),
    "effects": Ask(RISK, ("x",), effect_of_x, ("population",), Untested,
                   lambda result: result.get_margeff()),
}, [*numbers("x", 2, **even_edges(2, 6)), Y], partial(outcomes, one_of(-0.3), even=True), {
    "noise": (1_000, 0.3), "balanced": (3_000, 0.7), "sampling": (20_000, 5),
    "normal x": (3_000, 0.7, {
        "columns": [*numbers("x", 2.5, **even_edges(2.5, 6)), Y],
        "population": partial(outcomes, one_of(-0.3))}),
    "rare outcome": (3_000, 3, {"population": partial(outcomes, one_of(-4), even=True)}),
})  # fmt: skip
WITH_G, ENDLESS = dps.Logistic("y ~ x + C(g)"), (("C(g)[T.b]",), always(np.inf), ("population",))
NOTHING = (("test",), always(0), (), Test, lambda r: r.wald_test("x = 0, C(g)[T.b] = 0"))
UNRELATED = partial(outcomes, lambda f: 0 * f["x"] - 0.4)
LEVEL_CURVE = partial(fitted, formula="y ~ x + C(g)", kind=smf.logit)
add("logistic, cells of two", {"coefficients": Ask(WITH_G, LEVELS.terms, LEVEL_CURVE, NOISE_AWARE)},
    [*numbers("x", 2.5, **even_edges(2.5, 6)), AB, Y], partial(outcomes, several), {
    "noise": (1_000, 1), "balanced": (3_000, 2), "sampling": (20_000, 10),
    "empty level": (3_000, 1, {
        "columns": [*numbers("x", 2.5, **even_edges(2.5, 6)), category("abc"), Y]}),
    "no effects": (3_000, 1, {"asks": {"test": Ask(WITH_G, *NOTHING)}, "population": UNRELATED}),
    "separated": (3_000, 2, {"asks": {"coefficients": Ask(WITH_G, *ENDLESS)},
                             "population": partial(outcomes, separated)}),
})  # fmt: skip

FORMULA, PRIVATE, RICH = "y ~ x + u + C(g)", dps.ApproxDP(1, 1e-6), dps.ApproxDP(5, 1e-6)
DENSITY = [*numbers("xu", 2.5, **even_edges(2.5, 8)), AB]
COEFFICIENTS = (LEVELS.terms, partial(fitted, formula=FORMULA, kind=smf.logit), ("population",))
SMALLER = Ask(dps.Logistic("y ~ x + u"), ("x", "u"),
              partial(fitted, formula="y ~ x + u", kind=smf.logit), ("population",))  # fmt: skip
MODEL, STAGES = dps.Logistic(FORMULA), dps.Logistic(FORMULA, stages=2)
add("logistic, density", {
    "coefficients": Ask(MODEL, *COEFFICIENTS),
    "effects": Ask(MODEL, ("u",), partial(effect_of_x, formula="y ~ x + C(g) + u"), ("population",),
                   Untested, lambda result: result.get_margeff()),
}, [*DENSITY, Y], partial(outcomes, several), {
    "noise": (1_000, PRIVATE), "balanced": (5_000, PRIVATE), "sampling": (20_000, RICH),
    "empty level": (5_000, PRIVATE, {"asks": {"coefficients": Ask(MODEL, *COEFFICIENTS)},
                                     "columns": [*DENSITY[:2], category("abc"), Y]}),
    "no effects": (5_000, PRIVATE, {"asks": {"test": Ask(MODEL, *NOTHING)},
                                    "population": UNRELATED}),
    "separated": (6_000, PRIVATE, {"asks": {"coefficients": Ask(MODEL, *ENDLESS)},
                                   "population": partial(outcomes, separated)}),
    "from a larger one": (5_000, PRIVATE, {
        "asks": {"coefficients": SMALLER}, "planned": {"large": MODEL},
        "population": partial(outcomes, lambda f: 0.6 * f["x"] - 0.4 * f["u"] - 0.3)}),
}, fitted=True)  # fmt: skip
add("logistic, two stages", {"coefficients": Ask(STAGES, *COEFFICIENTS)}, [*DENSITY, Y],
    partial(outcomes, several), {
    "balanced": (20_000, PRIVATE),
    "related numbers": (20_000, PRIVATE, {"population": partial(outcomes, several, r=0.98)}),
}, fitted=True)  # fmt: skip
RATES = Ask(dps.Poisson(FORMULA), LEVELS.terms, partial(fitted, formula=FORMULA, kind=smf.poisson),
            ("population",))  # fmt: skip
FEW = partial(several, constant=0.2, factor=0.5)
add("Poisson", {"coefficients": RATES},
    [*DENSITY, dps.Number("y", 0, 9, points=10, edges=range(1, 10), missing=0)],
    partial(outcomes, FEW, counts=True), {
    "noise": (1_000, PRIVATE), "balanced": (5_000, PRIVATE), "sampling": (20_000, RICH),
    "rare": (5_000, PRIVATE, {
        "population": partial(outcomes, partial(FEW, constant=-2.5), counts=True)}),
}, fitted=True)  # fmt: skip


def penalised(analysis, l1_ratio=1):
    values = partial(not_zero, alpha=0.01, l1_ratio=l1_ratio)
    return Ask(analysis, tuple("xuv"), values, ("certified table",), Support)


BIG = {"noise": (2_000, 1), "balanced": (20_000, 5), "sampling": (20_000, 50)}
LASSO = penalised(dps.Lasso(PLANE.formula, alpha=0.01))
NET = penalised(dps.ElasticNet(PLANE.formula, alpha=0.01, l1_ratio=0.5), 0.5)
add("penalised", {"lasso": LASSO, "net": NET}, XUVY, PLANAR, BIG)
HUBER = dps.Huber("y ~ x", k=1.0, grid={"Intercept": (-1, 1, 21), "x": (-1, 1, 21)})
add("Huber", {"line": Ask(HUBER, ("x",), lambda f: huber(f)[1:], FOUR[2:], Grid)}, XY, linear, BIG)


def regression(cov_type):
    return Ask(dps.OLS("w ~ x", cov_type=cov_type), ("x",), partial(fitted, formula="w ~ x"))


OF_ROWS = {
    "share": ONE, "share in a group": GROUP, "risks": RISKS, "mean": MEAN, "difference": GAP,
    "OLS": regression("nonrobust"), "HC1": regression("HC1"),
}  # fmt: skip
OF_PERSONS = {name: replace(ask, about=NOISE_AWARE) for name, ask in OF_ROWS.items()}
COUNTED = {
    "share": OF_PERSONS["share"], "independence": independence("g", "h"),
    "quantiles": Ask(dps.Quantile("x", [0.5]), DECILES[1:], quantiles([0.5]), NOISE_AWARE),
    "goodness of fit": goodness({"a": 0.5, "b": 0.5}),
}  # fmt: skip
HALVES = {"edges": np.arange(-2.5, 3, 0.5).tolist()}
WEIGHTS = {"mean": 4, "difference": 4, "OLS": 60, "HC1": 60}  # noise in proportion to sampling
for topic, asks, totals, (little, more, much) in (
    ("persons", OF_PERSONS, False, (10, 60, 2_000)),
    ("person totals", OF_PERSONS, True, (10, 60, 2_000)),
    ("persons counted", COUNTED, False, (1, 6, 200)),
):  # fmt: skip
    keyed = {"rows_per_person": 5, "person": "person", "person_totals": totals,
             "shares": {name: WEIGHTS.get(name, 1) for name in asks}}  # fmt: skip
    add(topic, asks, [*numbers("x", 5, **HALVES), *numbers("w", 5), AB, category("cd", "h"), Y],
        partial(panel, 5, False), {
        "noise": (400, little), "balanced": (400, more), "sampling": (2_000, much),
        "rows alike": (400, much, {"population": partial(panel, 5, True)}),
    }, options=keyed, **ADDED)  # fmt: skip
