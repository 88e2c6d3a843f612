"""Coverage in groups whose counts follow from overlapping tables only, and so share noise."""

from fractions import Fraction

import numpy as np
import pytest

import dpstats as dps
from dpstats.analyses.counts.group_shares import MEASURES, measure_of

SCHEMA = dps.Schema([
    dps.Category("ward", ["n", "s"]), dps.Boolean("urban"), dps.Boolean("ill"),
    dps.Number("age", values=[5, 15, 25, 35]),
])  # fmt: skip
PLANNED = {"pairs": dps.Marginals(list(SCHEMA.names), degree=2)}
AGES = np.array([0.4, 0.2, 0.2, 0.2])  # the median is 15
RATE = dps.Proportion("ill", given="ward == 'n'")
GAP = dps.Difference("ill", by="ward")
MEDIAN = dps.Quantile("age", given="ward == 'n'")
# n, share of ward n, risks in n and s, budget, neighbours
SETTINGS = [
    (1_000, 0.5, 0.3, 0.2, dps.ZCDP(Fraction("0.001")), "replace"),  # noise dominates
    (1_000, 0.5, 0.3, 0.2, dps.ZCDP(2), "add_remove"),  # sampling dominates
    (1_000, 0.02, 0.3, 0.2, dps.ZCDP(Fraction("0.2")), "replace"),
    (2_000, 0.5, 0.01, 0.02, dps.ApproxDP(1, 1e-6), "replace"),
    (500, 0.2, 0.02, 0.05, dps.ApproxDP(3, 1e-6), "add_remove"),
    (300, 0.4, 0.97, 0.99, dps.ZCDP(Fraction("0.1")), "add_remove"),
]


def releases(setting, runs, tools, seed):
    """Counts of fresh rows by ward and illness, and what analyses see with fresh noise."""
    n, share, first, second, budget, unit = setting
    plan = dps.plan(SCHEMA, PLANNED, budget=budget, unit=unit)
    ward, urban, ill, age = np.indices([2, 2, 2, 4]).reshape(4, -1)
    p = np.where(ward == 0, share, 1 - share) * np.where(urban, 0.3, 0.7) * AGES[age]
    risk = np.where(ward == 0, first, second)
    p *= np.where(ill, risk, 1 - risk)
    codes = dict(zip(SCHEMA.names, (ward, urban, ill, SCHEMA["age"].all_codes[age]), strict=True))
    functions = plan.family.evaluate(codes).matrix().toarray()
    rows = []

    def draw(rng):
        rows.append(rng.multinomial(n, p))
        return np.rint(functions @ rows[-1]).astype(np.int64)

    for *_, view in tools.fresh(plan, n, draw, runs, seed):
        yield rows[-1].reshape(2, 2, 2, 4).sum(axis=(1, 3)), view


@pytest.mark.simulate(SETTINGS, few=(5,), runs=(15, 400))
def test_coverage(setting, runs, table, tools):
    """15 runs: sees a coverage below about .4; as inference/counts/test_group_shares.py does .9."""
    risks = setting[2:4]
    truth = [np.array(measure_of(np.array(risks[0]), np.array(risks[1]), m)) for m in MEASURES]
    held, widths = {}, {}

    def add(what, ends, value):
        low, high = map(float, ends)
        inside = low <= value <= high or np.isnan(value)
        held[what] = held.get(what, 0) + inside
        widths.setdefault(what, []).append(high - low)

    seed = 2 * SETTINGS.index(setting)  # noise of its own in each
    for counts, release in releases(setting, runs, tools, seed):
        own = counts[:, 1] / np.maximum(counts.sum(axis=1), 1)
        own[counts.sum(axis=1) == 0] = np.nan
        rate, gap, median = (asked.infer(release) for asked in (RATE, GAP, MEDIAN))
        for method in ("noise_aware", "certified"):
            add(f"rate, {method}", rate.conf_int(method=method), risks[0])
            add(f"rate of the table, {method}",
                rate.conf_int(method=method, target="table"), own[0])  # fmt: skip
            ends = gap.conf_int(method=method)
            of_table = gap.conf_int(method=method, target="table")
            for i, measure in enumerate(MEASURES):
                add(f"{measure}, {method}", ends[i], truth[i])
                value = measure_of(own[0], own[1], measure)
                add(f"{measure} of the table, {method}", of_table[i], float(value))
            add(f"median, {method}", median.conf_int(method=method), 15.0)
        kept = rate.test(risks[0]).pvalue > 0.05
        held["rate, test"] = held.get("rate, test", 0) + kept
    for what, covered in held.items():
        width = float(np.median(widths[what])) if what in widths else ""
        table.covers(setting, what, covered, runs, width=width)
