"""Coverage of two groups compared, of quantiles, and of bands for a distribution function."""

import numpy as np
import pytest

import dpstats as dps
from dpstats.analyses.counts.group_shares import (
    MEASURES,
    DifferenceIntervals,
    GroupIntervals,
    measure_of,
)

TWO = dps.Schema([dps.Boolean("ill"), dps.Boolean("exposed")])
GAP = dps.Difference("ill", by="exposed")
# (n, share of the first group, budget, first risk, second risk)
TWO_GROUPS = [
    (200, 0.5, dps.PureDP(5), 0.3, 0.2), (200, 0.1, dps.PureDP(1), 0.3, 0.2),
    (200, 0.5, dps.PureDP(0.05), 0.9, 0.4), (200, 0.01, dps.PureDP(5), 0.3, 0.2),
    (2_000, 0.5, dps.PureDP(0.5), 0.05, 0.02), (2_000, 0.1, dps.PureDP(1), 0.3, 0.3),
    (2_000, 0.01, dps.PureDP(5), 0.5, 0.2), (5_000, 0.5, dps.PureDP(0.05), 0.3, 0.2),
    (5_000, 0.1, dps.PureDP(0.3), 0.97, 0.6), (50_000, 0.5, dps.PureDP(0.05), 0.3, 0.2),
    (50_000, 0.1, dps.PureDP(0.05), 0.02, 0.01), (50_000, 0.01, dps.PureDP(5), 0.3, 0.2),
    (50_000, 0.01, dps.PureDP(0.2), 0.3, 0.2),
    (200, 0.5, dps.ZCDP(1), 0.3, 0.2), (2_000, 0.1, dps.ZCDP(0.05), 0.3, 0.3),
    (5_000, 0.5, dps.ZCDP(1e-4), 0.3, 0.2),
]  # fmt: skip
NUMBERS = {
    "even": dps.Number("x", 0, 100, edges=list(range(5, 100, 5))),
    "skew": dps.Number("x", 0, 100, edges=list(range(5, 100, 5))),
    "tens": dps.Number("x", 0, 100, edges=list(range(10, 100, 10))),
    "values": dps.Number("x", values=[0, 17.5, 22, 27, 40]),
}
MASS = {
    "even": np.full(20, 0.05),
    "skew": 0.7 ** np.arange(20) / np.sum(0.7 ** np.arange(20)),
    "tens": 0.8 ** np.arange(10) / np.sum(0.8 ** np.arange(10)),
    "values": np.array([0.02, 0.08, 0.45, 0.35, 0.1]),
}
# (number and mass of its bins, n, budget)
DISTRIBUTIONS = [
    ("even", 200, dps.PureDP(5)), ("even", 200, dps.PureDP(0.05)), ("even", 2_000, dps.PureDP(0.5)),
    ("skew", 200, dps.PureDP(1)), ("skew", 2_000, dps.PureDP(5)),
    ("skew", 50_000, dps.PureDP(0.05)), ("values", 200, dps.PureDP(1)),
    ("values", 50_000, dps.PureDP(0.5)), ("tens", 200, dps.ZCDP(1)),
    ("tens", 2_000, dps.ZCDP(0.01)), ("tens", 50_000, dps.ZCDP(1e-5)),
]  # fmt: skip
PROBABILITIES = (0.1, 0.5, 0.9)
METHODS = ("noise_aware", "certified")


def two_groups(setting, runs, tools, seed=1):
    """Counts of the rows, and noisy ones; cells are (well, ill) x (not exposed, exposed)."""
    n, share, budget, p, q = setting
    plan = dps.plan(TWO, {"a": GAP}, budget=budget, n=n)
    mass = [(1 - q) * (1 - share), (1 - p) * share, q * (1 - share), p * share]
    for rows, _, view in tools.fresh(plan, n, lambda rng: rng.multinomial(n, mass), runs, seed):
        yield rows.reshape(2, 2), view.answers(GAP._counts(TWO), disjoint=True)


@pytest.mark.simulate(TWO_GROUPS, few=(0, 4, 14), runs=(16, 300))
def test_differences(setting, runs, table, tools):
    """16 runs: sees a coverage below about 0.55; 300 see 0.87."""
    p, q = setting[-2:]
    truth = np.array([measure_of(np.array(p), np.array(q), measure) for measure in MEASURES])
    ends = {method: [] for method in (*METHODS, "table")}
    truths, kept = [], 0
    for (well, ill), answers in two_groups(setting, runs, tools):
        both, one = DifferenceIntervals(answers), GroupIntervals(answers.subset(slice(0, 2)))
        for method in METHODS:
            ends[method].append([
                np.append(*pair) for pair in zip(
                    both.conf_int(0.05, method, "population"),
                    one.conf_int(0.05, method, "population"), strict=True,
                )
            ])  # fmt: skip
        kept += one.pvalues(p, "two-sided").item() > 0.05
        ends["table"].append(both.conf_int(0.05, "certified", "table"))
        # of the private rows; without a row in a group any value in the interval will do
        risks = [np.array(ill[g] / max(well[g] + ill[g], 1)) for g in (1, 0)]
        value = np.array([measure_of(*risks, measure) for measure in MEASURES])
        truths.append(np.where(np.isnan(value), ends["table"][-1][0], value))
    table.covers(setting, "in a group, test", kept, runs)
    for method, found in ends.items():
        low, high = np.array(found).transpose(1, 2, 0)
        own = np.transpose(truths) if method == "table" else np.append(truth, p)[:, np.newaxis]
        covered = np.sum((low <= own) & (own <= high), axis=1)
        for what, count, width in zip([*MEASURES, "in a group"], covered, high - low, strict=False):
            table.covers(f"{setting} {what}", method, count, runs, width=float(np.median(width)))


@pytest.mark.simulate(DISTRIBUTIONS, few=(6, 9), runs=(40, 1_000))
def test_distributions(setting, runs, table, tools):
    """Tests of the true bin; intervals and bands, by all edges, in a quarter of the few runs.

    40 tests and 10 intervals see coverages below about 0.7 and 0.4; the slow test sees 0.91.
    """
    name, n, budget = setting
    every = 4 if runs < 100 else 1
    asked, below = dps.Quantile("x", PROBABILITIES), np.cumsum(MASS[name])
    plan = dps.plan(dps.Schema([NUMBERS[name]]), {"a": asked}, budget=budget, n=n)
    # The rows of a bin may lie anywhere in it: all of it must be covered but where F passes p
    # exactly at an edge; there the quantile is that edge.
    bins = np.searchsorted(below - 1e-12, PROBABILITIES)
    ends, bands = ({method: [] for method in METHODS} for _ in range(2))
    kept, few = np.zeros(len(PROBABILITIES)), len(range(0, runs, every))
    drawn = tools.fresh(plan, n, lambda rng: rng.multinomial(n, MASS[name]), runs, 2)
    for run, (*_, view) in enumerate(drawn):
        result = asked.infer(view)
        intervals = result.intervals
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
            what = f"{setting}, quantile {probability} (bins)"
            table.covers(what, method, covered, few, width=float(width))
            table.covers(what, "test", kept[i], runs)
        low, high = np.array(bands[method]).transpose(2, 0, 1)
        covered = np.sum(np.all((low <= below[:-1] + 1e-12) & (below[:-1] <= high + 1e-12), axis=1))
        width = np.mean((high - low).max(axis=1))
        table.covers(f"{setting}, band", method, covered, few, width=float(width))
