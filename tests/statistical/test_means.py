"""Coverage of means, of differences of means and of correlations."""

import numpy as np
import pytest
from scipy import stats

import dpstats as dps

CODES = np.arange(-100, 101)
UNIT = CODES / 100
SCHEMA = dps.Schema([
    dps.Number("x", -1, 1, points=201, missing=0), dps.Number("y", -1, 1, points=201, missing=0),
    dps.Category("g", ["a", "b", "c", "d", "e"]),
])  # fmt: skip
METHODS = ("noise_aware", "certified")


def mass(density):
    return density / density.sum()


LAWS = {
    "wide": mass(stats.norm.pdf(UNIT, 0.1, 0.3)),
    "narrow": mass(stats.norm.pdf(UNIT, 0.4, 0.02)),
    "skew": mass(stats.expon.pdf(UNIT + 1, scale=0.15)),
    "ends": mass(np.where(CODES == 100, 0.3, np.where(CODES == -100, 0.7, 0.0))),
    "top": mass(np.where(CODES == 100, 1.0, 0.0)),
    "constant": mass(np.where(CODES == 60, 1.0, 0.0)),
    # with mean zero
    "even": mass(np.ones(201)),
    "bell": mass(stats.norm.pdf(UNIT, 0, 0.3)),
    "thin": mass(stats.norm.pdf(UNIT, 0, 0.03)),
    "coin": mass(np.where(abs(CODES) == 100, 1.0, 0)),
    "lopsided": mass(np.where(CODES == 100, 1.0, np.where(CODES == -20, 5.0, 0.0))),
}
# (law, n, budget, unit)
MEANS = [
    ("wide", 200, dps.PureDP(5), "replace"), ("wide", 200, dps.PureDP(0.05), "replace"),
    ("wide", 2_000, dps.PureDP(0.5), "replace"), ("wide", 20_000, dps.PureDP(1), "replace"),
    ("wide", 2_000, dps.ZCDP(0.01), "replace"), ("wide", 300, dps.PureDP(0.3), "add_remove"),
    ("wide", 30, dps.PureDP(0.3), "add_remove"), ("wide", 2_000, dps.PureDP(1), "add_remove"),
    ("narrow", 200, dps.PureDP(1), "replace"), ("narrow", 2_000, dps.PureDP(0.2), "replace"),
    ("narrow", 20_000, dps.PureDP(0.5), "replace"), ("narrow", 2_000, dps.PureDP(1), "add_remove"),
    ("narrow", 20_000, dps.PureDP(5), "replace"),
    ("skew", 200, dps.PureDP(1), "replace"), ("skew", 2_000, dps.PureDP(5), "replace"),
    ("ends", 200, dps.PureDP(1), "replace"), ("ends", 2_000, dps.PureDP(0.5), "add_remove"),
    ("constant", 500, dps.PureDP(0.5), "replace"), ("constant", 500, dps.ZCDP(0.1), "add_remove"),
]  # fmt: skip
# (law of the first group, of the second, share of the first, n, budget, unit)
DIFFERENCES = [
    ("wide", "wide", 0.5, 500, dps.PureDP(5), "replace"),
    ("wide", "wide", 0.1, 500, dps.PureDP(1), "replace"),
    ("wide", "narrow", 0.5, 2_000, dps.PureDP(0.5), "replace"),
    ("narrow", "narrow", 0.2, 2_000, dps.PureDP(1), "replace"),
    ("ends", "wide", 0.01, 2_000, dps.PureDP(5), "replace"),
    ("wide", "ends", 0.01, 2_000, dps.PureDP(0.5), "replace"),
    ("wide", "skew", 0.05, 20_000, dps.PureDP(0.2), "add_remove"),
    ("wide", "ends", 0.5, 300, dps.PureDP(0.2), "add_remove"),
    ("ends", "ends", 0.02, 5_000, dps.ZCDP(0.02), "replace"),
    ("wide", "wide", 0.5, 20_000, dps.PureDP(1), "replace"),
    ("top", "wide", 0.03, 2_000, dps.PureDP(0.3), "replace"),
    ("top", "constant", 0.1, 2_000, dps.PureDP(0.2), "add_remove"),
]
# (laws with mean zero, shares of the groups, n, budget, unit)
EQUAL_MEANS = [
    (("bell",) * 3, (1, 1, 1), 500, dps.PureDP(5), "replace"),
    (("bell",) * 4, (70, 20, 8, 2), 2_000, dps.PureDP(1), "replace"),
    (("thin", "bell", "even"), (80, 15, 5), 2_000, dps.PureDP(0.5), "replace"),
    (("even", "bell", "thin", "bell", "even"), (5, 4, 3, 2, 1), 5_000, dps.ZCDP(0.1), "add_remove"),
    (("coin",) * 3, (97, 2, 1), 1_000, dps.PureDP(1), "add_remove"),
    (("bell", "even", "bell"), (1, 1, 1), 500, dps.PureDP(0.1), "replace"),
    (("bell",) * 5, (1, 1, 1, 1, 1), 300, dps.ZCDP(50), "replace"),
    (("lopsided",) * 4, (1, 2, 3, 4), 5_000, dps.PureDP(2), "add_remove"),
    (("thin", "even"), (1, 9), 20_000, dps.ZCDP(0.02), "replace"),
    (("thin",) * 3, (90, 9, 1), 20_000, dps.PureDP(1), "replace"),
    (("coin", "thin", "bell"), (1, 30, 30), 2_000, dps.ZCDP(0.05), "replace"),
    (("bell",) * 5, (40, 5, 2, 2, 1), 1_000, dps.ZCDP(0.5), "replace"),
]  # fmt: skip
# (correlation, means, sds, n, budget, unit)
CORRELATIONS = [
    (0.0, (0, 0), (0.25, 0.25), 500, dps.PureDP(5), "replace"),
    (0.5, (0, 0), (0.25, 0.25), 500, dps.PureDP(1), "replace"),
    (0.9, (0, 0), (0.25, 0.25), 2_000, dps.PureDP(0.5), "replace"),
    (0.9, (0, 0), (0.25, 0.25), 20_000, dps.PureDP(1), "replace"),
    (0.5, (0.5, -0.3), (0.1, 0.2), 2_000, dps.PureDP(1), "replace"),
    (-0.7, (0.5, -0.3), (0.1, 0.2), 20_000, dps.PureDP(0.5), "replace"),
    (0.5, (0.5, -0.3), (0.05, 0.05), 2_000, dps.PureDP(1), "replace"),
    (0.5, (0, 0), (0.25, 0.25), 2_000, dps.PureDP(1), "add_remove"),
    (0.9, (0.5, 0.5), (0.1, 0.1), 20_000, dps.ZCDP(0.02), "add_remove"),
    (0.5, (0, 0), (0.25, 0.25), 200, dps.PureDP(0.05), "add_remove"),
]


def check(analysis, truth, setting, draw, runs, table, tools, seed=5, of_rows=None):
    """Coverage of both methods; the noise-aware one by its test, which is quicker.

    That test and interval agree is tested in tests/analyses. A p-value above 0.05 is coverage. The
    sampling part is that of the t interval, an approximation: .94 is asked for.
    """
    *name, n, budget, unit = setting
    covered, widths = dict.fromkeys(METHODS, 0), {method: [] for method in METHODS}
    tables = {method: [] for method in METHODS}
    plan = dps.plan(SCHEMA, {"it": analysis}, budget=budget, unit=unit)
    for run, (*_, view) in enumerate(tools.fresh(plan, n, draw, runs, seed)):
        result = analysis.infer(view)
        low, high = result.conf_int(method="certified")
        covered["certified"] += low <= truth <= high
        covered["noise_aware"] += result.test(truth).pvalue > 0.05
        widths["certified"].append(high - low)
        if of_rows is not None:
            for method in METHODS:
                tables[method].append(result.conf_int(method=method, target="table"))
        if run < 15:
            widths["noise_aware"].append(np.diff(result.conf_int())[0])
    for method in METHODS:
        text = f"{name}, n = {n}, {budget}, {unit}"
        width = float(np.median(widths[method]))
        table.covers(text, method, covered[method], runs, 0.94, width)
        if of_rows:
            low, high = np.transpose(tables[method])
            inside = np.sum((low <= of_rows) & (of_rows <= high))
            rate, width = 0.95 if method == "certified" else 0.94, float(np.median(high - low))
            table.covers(f"{text}, table", method, inside, runs, rate, width)


def check_mean(setting, runs, table, tools):
    law, n = LAWS[setting[0]], setting[1]

    def draw(rng):
        return {"x": rng.choice(CODES, n, p=law)}

    check(dps.Mean("x"), float(law @ UNIT), setting, draw, runs, table, tools)


def check_difference(setting, runs, table, tools):
    first, second, share, n, *_ = setting

    of_rows = []

    def draw(rng):
        groups = rng.choice(3, n, p=[share, 0.9 * (1 - share), 0.1 * (1 - share)])
        x = rng.choice(CODES, n, p=LAWS[second])
        mine = groups == 0
        x[mine] = rng.choice(CODES, mine.sum(), p=LAWS[first])
        of_rows.append((x[mine].mean() - x[groups == 1].mean()) / 100)
        return {"x": x, "g": groups}

    truth = float((LAWS[first] - LAWS[second]) @ UNIT)
    analysis = dps.MeanDifference("x", by="g", groups=("a", "b"))
    check(analysis, truth, setting, draw, runs, table, tools, of_rows=of_rows)


def check_equal_means(setting, runs, table, tools):
    """Levels of the analysis of variance and of all pairs (Holm), and coverage of every mean, 0."""
    laws, shares, n, *_ = setting
    cut = np.cumsum(shares) / np.sum(shares)
    upper = np.cumsum([LAWS[law] for law in laws], axis=1)

    def draw(rng):
        groups = np.minimum(np.searchsorted(cut, rng.random(n)), len(laws) - 1)
        u = rng.random(n)
        x = np.empty(n, np.int64)
        for i, of in enumerate(upper):
            x[groups == i] = CODES[np.minimum(np.searchsorted(of, u[groups == i]), 200)]
        return {"x": x, "g": groups}

    analysis = dps.GroupMeans("x", by="g", groups=tuple("abcde"[: len(laws)]))
    rejected, covered, each = np.zeros(2, int), 0, np.zeros(len(laws), int)
    every = 5 if runs < 100 else 1  # intervals take long
    plan = dps.plan(SCHEMA, {"it": analysis}, budget=setting[3], unit=setting[4])
    for run, (*_, view) in enumerate(tools.fresh(plan, n, draw, runs, 5)):
        result = analysis.infer(view)
        rejected[0] += result.anova().pvalue <= 0.05
        rejected[1] += result.pairwise().pvalues.min() <= 0.05
        if run % every:
            continue
        ends = result.conf_int(method="certified", simultaneous=True)
        covered += np.all((ends[:, 0] <= 0) & (ends[:, 1] >= 0))
        low, high = np.asarray(result.conf_int()).T
        each += (low <= 0) & (high >= 0)
    text = f"{' '.join(laws)}, {shares}, n = {n}, {setting[3]}, {setting[4]}"
    table.level(text, "Welch's F", rejected[0], runs)
    table.level(text, "pairs, Holm", rejected[1], runs)
    table.covers(text, "all means, certified", covered, runs // every)
    for law, share, mine in zip(laws, shares, each, strict=True):
        table.covers(text, f"mean of {law}, {share}", mine, runs // every)


def check_correlation(setting, runs, table, tools):
    r, means, sds, n, *_ = setting

    def draw(rng):
        z = rng.normal(size=(n, 2))
        z[:, 1] = r * z[:, 0] + np.sqrt(1 - r**2) * z[:, 1]
        x, y = np.rint(100 * (means + sds * z)).clip(-100, 100).astype(np.int64).T
        return {"x": x, "y": y}

    # rounding to steps of .01 adds 1e-4/12 to every variance
    truth = r * np.prod([sd / np.hypot(sd, 0.01 / np.sqrt(12)) for sd in sds])
    check(dps.Correlation(["x", "y"]), truth, setting, draw, runs, table, tools)


def check_odd_correlation(setting, runs, table, tools):
    """Pairs whose correlation varies more than that of normal rows, whatever the number of rows."""
    kind, r, n, *_ = setting

    def draw(rng):
        if kind == "signs":
            x = rng.choice([-100, 100], n)
            return {"x": x, "y": np.where(rng.random(n) < r, x, rng.choice([-100, 100], n))}
        x = rng.integers(-100, 101, n)
        return {"x": x, "y": np.rint(np.abs(x) * rng.uniform(-1, 1, n)).astype(np.int64)}

    check(dps.Correlation(["x", "y"]), r, setting, draw, runs, table, tools)


ODD = [
    ("signs", 0.9, 2_000, dps.PureDP(20), "replace"),
    ("signs", 0.7, 20_000, dps.ZCDP(1), "replace"),
    ("signs", 0.9, 20_000, dps.PureDP(2), "add_remove"),
    ("uneven", 0.0, 2_000, dps.PureDP(20), "replace"),
    # whose measured moments have much noise
    ("signs", 0.8, 2_000, dps.PureDP(3), "replace"),
    ("uneven", 0.0, 2_000, dps.PureDP(3), "replace"),
]  # fmt: skip
CHECKS = (
    [(check_mean, s) for s in MEANS]
    + [(check_difference, s) for s in DIFFERENCES]
    + [(check_equal_means, s) for s in EQUAL_MEANS]
    + [(check_correlation, s) for s in CORRELATIONS]
    + [(check_odd_correlation, s) for s in ODD]
)


@pytest.mark.simulate(CHECKS, few=(11, 22, 31, 47, 53), runs=(50, 2_000))
def test_coverage(setting, runs, table, tools):
    """50 runs: sees a coverage below about .7; 2,000 see .915."""
    check_of, of = setting
    check_of(of, runs, table, tools)
