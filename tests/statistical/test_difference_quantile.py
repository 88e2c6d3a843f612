"""Coverage of two groups compared, of quantiles, and of bands for a distribution function."""

from dataclasses import replace

import numpy as np
import pytest

import dpstats as dps
from dpstats.analyses.counts.group_shares import DifferenceIntervals
from dpstats.analyses.counts.quantile import QuantileResult
from dpstats.analyses.counts.quantile_intervals import QuantileIntervals
from dpstats.analyses.counts.risk_measures import MEASURES, measure_of
from dpstats.measured.row_count import RowCount

TWO = dps.Schema([dps.Boolean("ill"), dps.Boolean("exposed")])
# (n, share of the first group, epsilon, first risk, second risk)
TWO_GROUPS = [
    (200, 0.5, 5.0, 0.3, 0.2), (200, 0.1, 1.0, 0.3, 0.2), (200, 0.5, 0.05, 0.9, 0.4),
    (200, 0.01, 5.0, 0.3, 0.2), (2_000, 0.5, 0.5, 0.05, 0.02), (2_000, 0.1, 1.0, 0.3, 0.3),
    (2_000, 0.01, 5.0, 0.5, 0.2), (5_000, 0.5, 0.05, 0.3, 0.2), (5_000, 0.1, 0.3, 0.97, 0.6),
    (50_000, 0.5, 0.05, 0.3, 0.2), (50_000, 0.1, 0.05, 0.02, 0.01),
    (50_000, 0.01, 5.0, 0.3, 0.2), (50_000, 0.01, 0.2, 0.3, 0.2),
]  # fmt: skip
AGES = dps.Schema([dps.Number("x", 0, 100, edges=list(range(5, 100, 5)))])
VALUES = dps.Schema([dps.Number("x", values=[0, 17.5, 22, 27, 40])])
# (schema, mass of the bins, n, epsilon)
EVEN, SKEW = np.full(20, 0.05), 0.7 ** np.arange(20) / np.sum(0.7 ** np.arange(20))
UNEVEN = np.array([0.02, 0.08, 0.45, 0.35, 0.1])
DISTRIBUTIONS = [
    (AGES, "even", EVEN, 200, 5.0), (AGES, "even", EVEN, 200, 0.05),
    (AGES, "even", EVEN, 2_000, 0.5),
    (AGES, "skew", SKEW, 200, 1.0), (AGES, "skew", SKEW, 2_000, 5.0),
    (AGES, "skew", SKEW, 50_000, 0.05), (VALUES, "values", UNEVEN, 200, 1.0),
    (VALUES, "values", UNEVEN, 50_000, 0.5),
]  # fmt: skip
PROBABILITIES = (0.1, 0.5, 0.9)
METHODS = ("noise_aware", "certified")


def releases(plan, draw, runs, tools, seed):
    """Answers to the plan's table: fresh rows (cell counts from `draw`) and fresh noise."""
    from dpstats.measured.answers import answer
    from dpstats.measured.measurements import Measurements

    rng, source = np.random.default_rng(seed), tools.Laplace(seed + 1)
    for _ in range(runs):
        counts = draw(rng)
        strategy = replace(plan.strategy, n=int(counts.sum()))
        held = Measurements(strategy, counts, np.zeros(len(counts)))
        held = tools.with_noise(held, source)
        yield lambda wanted, held=held, **options: answer(held, wanted, **options)


def check_difference(setting, runs, table, tools, seed=1):
    n, share, epsilon, p, q = setting
    analysis = dps.Difference("ill", by="exposed")
    plan = dps.plan(TWO, {"a": analysis}, budget=dps.PureDP(epsilon), n=n)
    wanted = analysis._counts(TWO)
    # cells: (well, ill) x (not exposed, exposed)
    mass = [(1 - q) * (1 - share), (1 - p) * share, q * (1 - share), p * share]
    truth = np.array([measure_of(np.array(p), np.array(q), measure) for measure in MEASURES])
    ends = {method: [] for method in (*METHODS, "table")}
    truths, drawn = [], []

    def draw(rng):
        drawn.append(rng.multinomial(n, mass))
        return drawn[-1]

    for answers in releases(plan, draw, runs, tools, seed):
        intervals = DifferenceIntervals(answers(wanted, disjoint=True))
        for method in METHODS:
            ends[method].append(intervals.conf_int(0.05, method, "population"))
        ends["table"].append(intervals.conf_int(0.05, "certified", "table"))
        # of the private rows; without a row in a group any value in the interval will do
        well, ill = drawn[-1].reshape(2, 2)
        risks = [np.array(ill[g] / max(well[g] + ill[g], 1)) for g in (1, 0)]
        value = np.array([measure_of(*risks, measure) for measure in MEASURES])
        truths.append(np.where(np.isnan(value), ends["table"][-1][0], value))
    for method, found in ends.items():
        low, high = np.array(found).transpose(1, 2, 0)
        of_runs = np.transpose(truths) if method == "table" else truth[:, np.newaxis]
        covered = np.sum((low <= of_runs) & (of_runs <= high), axis=1)
        for i, measure in enumerate(MEASURES):
            width = np.median(high[i] - low[i])
            table.covers(f"{setting} {measure}", method, covered[i], runs, width=float(width))


def check_distribution(setting, runs, table, tools, every=1, seed=2):
    """Tests of the true bin in all runs; intervals and bands, by all edges, in every so many."""
    schema, name, mass, n, epsilon = setting
    plan = dps.plan(schema, {"a": dps.Quantile("x")}, budget=dps.PureDP(epsilon), n=n)
    from dpstats.analyses.counts.quantile import _below

    number, below = schema["x"], np.cumsum(mass)
    wanted = [_below(number, j) for j in range(1, number.bins)]
    # The rows of a bin may lie anywhere in it: all of it must be covered but where F passes p
    # exactly at an edge; there the quantile is that edge.
    bins = np.searchsorted(below - 1e-12, PROBABILITIES)
    ends = {method: [] for method in METHODS}
    bands = {method: [] for method in METHODS}
    kept, few = np.zeros(len(PROBABILITIES)), len(range(0, runs, every))
    drawn = releases(plan, lambda rng: rng.multinomial(n, mass), runs, tools, seed)
    for run, answers in enumerate(drawn):
        intervals = QuantileIntervals(answers(wanted), number, PROBABILITIES)
        result = QuantileResult(
            "",
            [""] * 3,
            np.zeros(3),
            np.zeros(3),
            np.zeros(3),
            intervals,
            RowCount(n),
            str(plan.budget),
        )
        kept += [
            intervals._pvalue(true, probability, "two-sided") > 0.05
            for true, probability in zip(bins.tolist(), PROBABILITIES, strict=True)
        ]
        for method in METHODS if run % every == 0 else ():
            ends[method].append(intervals.bins(*intervals.of_edges(0.05, method, "population")))
            frame = result.distribution(method=method)
            bands[method].append(frame[["band_low", "band_high"]].to_numpy())
    for method in METHODS:
        found = np.array(ends[method])  # (runs, 3, 2)
        for i, probability in enumerate(PROBABILITIES):
            covered = np.sum((found[:, i, 0] <= bins[i]) & (bins[i] <= found[:, i, 1]))
            width = np.mean(found[:, i, 1] - found[:, i, 0] + 1)
            setting_name = f"{name}, n = {n}, eps = {epsilon:g}, quantile {probability} (bins)"
            table.covers(setting_name, method, covered, few, width=float(width))
            table.covers(setting_name, "test", kept[i], runs)
        low, high = np.array(bands[method]).transpose(2, 0, 1)
        covered = np.sum(np.all((low <= below[:-1] + 1e-12) & (below[:-1] <= high + 1e-12), axis=1))
        width = np.mean((high - low).max(axis=1))
        band = f"{name}, n = {n}, eps = {epsilon:g}, band"
        table.covers(band, method, covered, few, width=float(width))


@pytest.mark.parametrize("setting", [TWO_GROUPS[0], TWO_GROUPS[4]], ids=str)
def test_a_few_differences(setting, table, tools):
    """16 runs: sees a coverage below about 0.55; the slow test of 300 runs sees 0.87."""
    check_difference(setting, 16, table, tools)


@pytest.mark.parametrize("setting", [DISTRIBUTIONS[i] for i in (3, 6)], ids=lambda s: s[1])
def test_a_few_distributions(setting, table, tools):
    """60 tests, 15 intervals: coverages below about 0.77 and 0.5; the slow test sees 0.91."""
    check_distribution(setting, 60, table, tools, every=4)


@pytest.mark.slow
@pytest.mark.parametrize("setting", TWO_GROUPS, ids=str)
def test_differences(setting, table, tools):
    check_difference(setting, 300, table, tools)


@pytest.mark.slow
@pytest.mark.parametrize("setting", DISTRIBUTIONS, ids=lambda s: f"{s[1]}-{s[3]}-{s[4]}")
def test_distributions(setting, table, tools):
    check_distribution(setting, 1_000, table, tools)


def test_the_check_sees_intervals_that_ignore_the_noise(tools):
    """The score interval at the noisy counts, in a setting where noise is most of the error."""
    from statsmodels.stats.proportion import confint_proportions_2indep

    n, share, epsilon, p, q = 2_000, 0.1, 0.1, 0.3, 0.2
    analysis = dps.Difference("ill", by="exposed")
    plan = dps.plan(TWO, {"a": analysis}, budget=dps.PureDP(epsilon), n=n)
    mass = [(1 - q) * (1 - share), (1 - p) * share, q * (1 - share), p * share]
    covered = 0
    for answers in releases(plan, lambda rng: rng.multinomial(n, mass), 60, tools, 1):
        a, b, c, d = np.maximum(answers(analysis._counts(TWO), disjoint=True).sums, 1)
        low, high = confint_proportions_2indep(a, a + b, c, c + d, compare="diff", method="newcomb")
        covered += low <= p - q <= high
    assert not tools.at_least(int(covered), 60, 0.95)
