"""What people wait for, as multiples of CPU seconds of known work in the same run, or in calls.

Limits are about three times what was measured.
"""

import time
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from scipy import optimize, stats

import dpstats as dps
from dpstats.analyses.counts.binomial import proportion_interval
from dpstats.families.tables.cells import Table
from dpstats.measured import overlapping_tables
from dpstats.measured.answers import answer
from dpstats.privacy.laws import DiscreteLaplace


def seconds(work, runs=2):
    """Least CPU seconds of some runs, and the last result."""
    taken = []
    for _ in range(runs):
        started = time.process_time()
        result = work()
        taken.append(time.process_time() - started)
    return min(taken), result


def noisy_counts(n, cells, law, seed=0):
    """T + U of cells of all sizes."""
    rng = np.random.default_rng(seed)
    shares = np.geomspace(1e-4, 0.5, cells)
    z = np.arange(-law.support(), law.support() + 1)
    noise = rng.choice(z, size=cells, p=law.pmf(z) / law.pmf(z).sum())
    return rng.binomial(n, shares) + noise + rng.uniform(-0.5, 0.5, cells)


def exact_by_scipy(t, n, law, alpha):
    """Two roots of the full sum over X."""

    def cdf(p):
        reach = 8 * np.sqrt(n * p * (1 - p)) + 20
        x = np.arange(max(0, np.floor(n * p - reach)), min(n, n * p + reach) + 1)
        return stats.binom.pmf(x, n, p) @ law.smoothed_cdf(t - x)

    return [
        optimize.brentq(lambda p, level: cdf(p) - level, 1e-9, 1 - 1e-9, xtol=1e-13, args=(level,))
        for level in (1 - alpha / 2, alpha / 2)
    ]


def test_1582_intervals_take_half_the_time_of_100_by_scipy():
    n, law = 48_842, DiscreteLaplace(28.0)
    t = noisy_counts(n, 1_582, law)
    some = np.flatnonzero(t > 150)[::20][:50]
    base, exact = seconds(lambda: [exact_by_scipy(x, n, law, 0.05) for x in t[some]], runs=1)
    ours, (low, high) = seconds(lambda: proportion_interval(t, n, law))
    exact = np.array(exact)
    off = np.abs(np.column_stack([low, high])[some] - exact) / np.ptp(exact, axis=1)[:, None]
    assert off.max() < 1e-6
    assert ours < base * 50 / len(some)


def test_intervals_do_not_grow_with_the_number_of_rows():
    law, taken = DiscreteLaplace(1.0), []
    for n in (10_000, 1_000_000):
        t = noisy_counts(n, 448, law)
        taken.append(seconds(lambda t=t, n=n: proportion_interval(t, n, law), runs=3)[0])
    assert taken[1] < 2 * taken[0]


@pytest.mark.parametrize("columns", [8, 16])  # 28 and 120 tables
def test_answers_do_not_try_every_pair_of_tables(columns, monkeypatch):
    names = [f"c{i}" for i in range(columns)]
    schema = dps.Schema([dps.Category(name, [0, 1, 2]) for name in names])
    rows = pd.DataFrame(np.zeros((20, columns), int), columns=names)
    asked = dps.Marginals(names)
    plan = dps.plan(schema, {"t": asked}, budget=dps.PureDP(1), unit="add_remove")
    measured, calls = dps.measure(plan, rows), Counter()

    def counted(owner, name):
        original = getattr(owner, name)

        def call(*arguments, **options):
            calls[name] += 1
            return original(*arguments, **options)

        monkeypatch.setattr(owner, name, call)

    counted(Table, "derive")
    counted(overlapping_tables, "_spread")
    tables = len(answer(measured, asked.family(schema)).sums) // 9
    assert tables == columns * (columns - 1) // 2
    assert calls["derive"] <= 3 * tables
    assert calls["_spread"] <= 3 * columns * tables  # a table meets 2 (columns - 2) others


def test_column_generation_takes_a_fraction_of_the_whole_program():
    names = [f"c{i}" for i in range(8)]
    schema = dps.Schema([dps.Category(name, list("abcd")) for name in names])
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({name: rng.choice(list("abcd"), 2_000) for name in names})
    asked = {"t": dps.Marginals(names)}
    plan = dps.plan(schema, asked, budget=dps.PureDP(1), reference=dps.Uniform())
    measured = dps.measure(plan, rows)

    def fitted(solver):
        chosen = {"fit": "minimax", "solver": solver, "draw": "iid"}
        return seconds(lambda: dps.synthesize(measured, **chosen, m=6_000, k=10, rng=0), runs=1)

    assert fitted("columns")[0] < 0.8 * fitted("highs")[0]
