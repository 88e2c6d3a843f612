"""More budget never makes rows worse: the number of candidates follows the noise."""

from fractions import Fraction

import numpy as np
import pytest

import dpstats as dps
from dpstats.measured.measurements import Measurements
from dpstats.references.sizes import CANDIDATES, MANY_CANDIDATES, number_of_candidates

LEVELS = (9, 12, 7, 10, 6, 5, 2, 2)
SCHEMA = dps.Schema([
    dps.Category(f"c{i}", [f"v{j}" for j in range(n)]) for i, n in enumerate(LEVELS)
])  # fmt: skip
PAIRS, TRIPLES = (dps.Marginals(SCHEMA.names, degree=d) for d in (2, 3))
N = 20_000


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


def distance(release, rows, asked):
    """Mean total variation over the tables of an analysis, between synthetic and private rows."""
    family, shares = asked.family(SCHEMA), release.counts / release.k
    found = [
        np.abs(b.evaluate(release.candidates).average(shares) - b.sums(rows) / N).sum() / 2
        for b in family.blocks
    ]
    return float(np.mean(found))


def test_the_number_of_candidates_follows_noise_and_family(rows):
    sizes = [number_of_candidates(measured(rows, rho), "entropy") for rho in ("1/100", "1", "100")]
    assert sizes[0] == CANDIDATES < sizes[1] <= sizes[2] < MANY_CANDIDATES
    assert number_of_candidates(measured(rows, "100"), "minimax") == CANDIDATES
    one = dps.plan(SCHEMA, {"p": dps.Proportion("c0 == 'v1'")}, budget=dps.ZCDP(100), n=N)
    alone = Measurements(one.strategy, np.array([5]), np.zeros(1), not_private=True)
    assert number_of_candidates(alone, "entropy") == CANDIDATES


def test_many_functions_get_more_candidates_while_products_are_affordable():
    def of(columns, bins):
        schema = dps.Schema([dps.Category(f"c{i}", list(range(bins))) for i in range(columns)])
        plan = dps.plan(schema, {"m": dps.Marginals(schema.names)}, budget=dps.ZCDP(0.01), n=N)
        size = sum(block.block.size for block in plan.strategy.blocks)
        zeros = np.zeros(size)
        measurements = Measurements(plan.strategy, zeros.astype(int), zeros, not_private=True)
        return number_of_candidates(measurements, "entropy"), plan.published.size

    assert of(5, 10) == (CANDIDATES, 1_000)
    found, size = of(6, 16)
    assert found == 8 * size == 30_720
    assert of(14, 12)[0] == CANDIDATES  # 91 tables


@pytest.mark.slow
def test_rows_get_no_worse_with_the_budget(rows):
    """Pairs and unmeasured triples, from rho .01 to 1000; 5% for chance."""
    found = []
    for rho in ("1/100", "1/10", "1", "10", "1000"):
        release = dps.synthesize(measured(rows, rho), rng=1)
        found.append([distance(release, rows, asked) for asked in (PAIRS, TRIPLES)])
    pairs, triples = np.array(found).T
    assert np.all(pairs[1:] <= 1.05 * pairs[:-1])
    assert np.all(triples[1:] <= 1.05 * triples[:-1])


@pytest.mark.slow
def test_a_huge_budget_is_no_worse_than_a_large_one(rows):
    large, huge = (dps.synthesize(measured(rows, rho), m=20_000, rng=1) for rho in ("10", "1000"))
    assert distance(huge, rows, TRIPLES) <= 1.1 * distance(large, rows, TRIPLES)
    assert distance(huge, rows, PAIRS) <= 1.1 * distance(large, rows, PAIRS)
