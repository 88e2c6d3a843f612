"""Coverage and level of answers from complete cases and subgroups, cells missing not at random."""

from functools import lru_cache

import numpy as np
import pytest

import dpstats as dps

POINTS = 101
SCHEMA = dps.Schema([
    dps.Number("x", -1, 1, points=POINTS, edges=[-0.4, 0, 0.4], allow_missing=True),
    dps.Number("y", -1, 1, points=POINTS, edges=[0], allow_missing=True),
    dps.Category("g", ["in", "out"]),
])  # fmt: skip
METHODS = ("noise_aware", "certified")
K = POINTS // 2


def drawn(n, rng):
    """Correlated numbers; x is missing more often where it is large; a fifth of rows are "in"."""
    z = rng.normal(size=(n, 2))
    z[:, 1] = 0.6 * z[:, 0] + 0.8 * z[:, 1]
    x, y = np.rint(K * (0.1 + 0.3 * z)).clip(-K, K).astype(np.int64).T
    missing = rng.random(n) < np.where(x > 0, 0.5, 0.1)
    g = (rng.random(n) < 0.8).astype(np.int64)
    y = np.where(g == 0, np.clip(y + K // 5, -K, K), y)
    return {
        "x": np.where(missing, K + 1, x),
        "y": np.where(rng.random(n) < 0.2, K + 1, y),
        "g": g,
    }


@lru_cache(maxsize=1)
def population():
    """A million rows: their own error is far below any width here."""
    return drawn(1_000_000, np.random.default_rng(99))


def truth_of(statistic, given=None):
    """The population's."""
    codes = population()
    kept = np.ones(len(codes["g"]), dtype=bool) if given is None else given(codes)
    return statistic({name: values[kept] for name, values in codes.items()})


def complete(codes, *names):
    kept = np.all([codes[name] <= K for name in names], axis=0)
    return [codes[name][kept] / K for name in names]


def slope(x, y):
    return np.cov(x, y)[0, 1] / x.var()


inside = lambda codes: codes["g"] == 0  # noqa: E731
# name -> analysis, truth, rate asked for of the noise-aware method
ASKED = {
    "mean of x": (dps.Mean("x"), lambda: truth_of(lambda c: complete(c, "x")[0].mean())),
    "mean of y in g": (
        dps.Mean("y", given="g == 'in'"),
        lambda: truth_of(lambda c: complete(c, "y")[0].mean(), inside),
    ),
    "share of x": (
        dps.Proportion("x < 0"),
        lambda: truth_of(lambda c: (complete(c, "x")[0] < 0).mean()),
    ),
    "share of x in g": (
        dps.Proportion("x < 0", given="g == 'in'"),
        lambda: truth_of(lambda c: (complete(c, "x")[0] < 0).mean(), inside),
    ),
    "correlation": (
        dps.Correlation(["x", "y"]),
        lambda: truth_of(lambda c: np.corrcoef(complete(c, "x", "y"))[0, 1]),
    ),
    "correlation in g": (
        dps.Correlation(["x", "y"], given="g == 'in'"),
        lambda: truth_of(lambda c: np.corrcoef(complete(c, "x", "y"))[0, 1], inside),
    ),
    "slope": (
        dps.OLS("y ~ x"),
        lambda: truth_of(lambda c: slope(*complete(c, "x", "y"))),
    ),
    "slope in g": (
        dps.OLS("y ~ x", given="g == 'in'"),
        lambda: truth_of(lambda c: slope(*complete(c, "x", "y")), inside),
    ),
}
SETTINGS = [
    (100, dps.PureDP(0.2), "replace"), (1_000, dps.PureDP(0.3), "replace"),
    (10_000, dps.PureDP(1), "replace"), (2_000, dps.ZCDP(0.01), "replace"),
    (100, dps.PureDP(1), "add_remove"), (2_000, dps.PureDP(0.3), "add_remove"),
    (10_000, dps.ZCDP(0.1), "add_remove"),
]  # fmt: skip


def views(analysis, setting, runs, tools, rows=drawn):
    """What the analysis sees of fresh rows with fresh noise."""
    n, budget, unit = setting
    plan = dps.plan(SCHEMA, {"it": analysis}, budget=budget, unit=unit)
    for *_, view in tools.fresh(plan, n, lambda rng: rows(n, rng), runs, 5):
        yield view


@lru_cache
def value_of(name):
    return float(ASKED[name][1]())


def check(name, setting, runs, table, tools):
    """Coverage of the last parameter by both methods; the sampling part is approximate: .94."""
    analysis, value = ASKED[name][0], value_of(name)
    covered, widths = dict.fromkeys(METHODS, 0), {method: [] for method in METHODS}
    for run, release in enumerate(views(analysis, setting, runs, tools)):
        result = analysis.infer(release)
        low, high = np.reshape(result.conf_int(method="certified"), (-1, 2))[-1]
        covered["certified"] += low <= value <= high
        widths["certified"].append(high - low)
        if result.testable:  # quicker than the interval, which agrees with it
            covered["noise_aware"] += result.test(value).pvalue > 0.05
        else:
            low, high = np.reshape(result.conf_int(), (-1, 2))[-1]
            covered["noise_aware"] += low <= value <= high
        if run < 15:
            widths["noise_aware"].append(np.diff(np.reshape(result.conf_int(), (-1, 2))[-1])[0])
    for method in METHODS:
        table.covers(
            (name, *setting), method, covered[method], runs, 0.94, float(np.median(widths[method]))
        )


def check_quantile(given, setting, runs, table, tools):
    """Coverage of the 0.45 quantile's bin, [0, 0.4): its lower end is close to the quantile."""
    analysis = dps.Quantile("x", 0.55, given=given)
    kept = inside if given else None
    cuts = truth_of(lambda c: [(complete(c, "x")[0] < cut).mean() for cut in (0, 0.4)], kept)
    assert cuts[0] < 0.55 < cuts[1]
    covered = dict.fromkeys(METHODS, 0)
    for release in views(analysis, setting, runs, tools):
        result = analysis.infer(release)
        for method in METHODS:
            low, high = result.conf_int(method=method)
            covered[method] += low <= 0 and high >= 0.4
    for method in METHODS:
        table.covers(f"quantile of x, {given}, {setting}", method, covered[method], runs, 0.95)


QUANTILES = [(given, *setting) for setting in SETTINGS for given in (None, "g == 'in'")]


@pytest.mark.simulate(QUANTILES, few=(7,), runs=(25, 500))
def test_quantiles(setting, runs, table, tools):
    check_quantile(setting[0], setting[1:], runs, table, tools)


def independent_inside(n, rng):
    """As `drawn`, with x and y independent where g is "in", and equal elsewhere."""
    codes = drawn(n, rng)
    shuffled = np.where(codes["g"] == 0, rng.permutation(codes["x"]), codes["x"])
    return {**codes, "y": shuffled}


def check_level(setting, runs, table, tools):
    """Level of the test of independence within a subgroup; dependence outside must not count."""
    analysis = dps.Independence("x", "y", given="g == 'in'", simulations=199)
    rejected = certified = 0
    for release in views(analysis, setting, runs, tools, independent_inside):
        result = analysis.infer(release)
        rejected += result.pvalue <= 0.05
        certified += result.certified.verdict == "reject"
    table.level(setting, "noise_aware", rejected, runs, 0.06)  # a bootstrap: approximate
    table.level(setting, "certified", certified, runs)


@pytest.mark.simulate(SETTINGS[2:], few=(), runs=(0, 1_000))
def test_level_of_independence(setting, runs, table, tools):
    check_level(setting, runs, table, tools)


COVERED = [(name, *setting) for name in ASKED for setting in SETTINGS]


@pytest.mark.simulate(COVERED, few=(13, 41), runs=(30, 2_000))
def test_coverage(setting, runs, table, tools):
    """30 runs: sees a coverage below about .6; 2,000 see .915."""
    check(setting[0], setting[1:], runs, table, tools)
