"""More budget never makes rows worse."""

from fractions import Fraction

import numpy as np
import pytest

import dpstats as dps
from dpstats.measured.measurements import Measurements

LEVELS = (9, 12, 7, 10, 6)
SCHEMA = dps.Schema([
    dps.Category(f"c{i}", [f"v{j}" for j in range(n)]) for i, n in enumerate(LEVELS)
])  # fmt: skip
PAIRS = dps.Marginals(SCHEMA.names, degree=2)
N = 4_000


@pytest.fixture(scope="module")
def rows():
    """A table of hidden classes: its columns depend on each other."""
    rng = np.random.default_rng(4)
    of = rng.choice(6, N, p=rng.dirichlet(np.full(6, 3.0)))
    codes = {}
    for column in SCHEMA:
        upper = rng.dirichlet(np.full(column.bins, 0.4), 6).cumsum(axis=1)[of]
        drawn = (rng.random((N, 1)) > upper).sum(axis=1)
        codes[column.name] = np.minimum(drawn, column.bins - 1)
    return codes


def measured(rows, rho, seed=1):
    """Measurements with noise that is rounded normal noise of the plan's scales."""
    plan = dps.plan(SCHEMA, {"m": PAIRS}, budget=dps.ZCDP(Fraction(rho)), n=N)
    noise = np.random.default_rng(seed)
    sums = np.concatenate([block.block.sums(rows) for block in plan.strategy.blocks])
    scales = np.concatenate(plan.strategy.block_scales)
    sums = sums + np.rint(noise.normal(size=len(sums)) * scales).astype(np.int64)
    return Measurements(
        plan.strategy, sums, np.zeros(len(sums)), plan.reference.to_dict(), not_private=True
    )


def distance(release, rows):
    """Mean total variation over all pairs, between synthetic and private rows."""
    shares = release.counts / release.k
    return float(np.mean([
        np.abs(b.evaluate(release.candidates).average(shares) - b.sums(rows) / N).sum() / 2
        for b in PAIRS.family(SCHEMA).blocks
    ]))  # fmt: skip


@pytest.fixture(scope="module")
def much(rows):
    return dps.synthesize(measured(rows, "1000"), rng=1)


def test_more_budget_gives_better_rows(rows, much):
    little = dps.synthesize(measured(rows, "1/100"), rng=1)
    assert distance(much, rows) < 0.2 * distance(little, rows)


def test_the_most_common_row_is_as_common_as_in_the_table(rows, much):
    """With much budget no row takes over."""
    keys = np.ravel_multi_index(tuple(rows[c] for c in SCHEMA.names), LEVELS)
    most = np.unique(keys, return_counts=True)[1].max()
    assert much.counts.max() < 1.5 * most + 20
    assert np.count_nonzero(much.counts) > 0.5 * len(np.unique(keys))
