"""Simulated rows: at every n the mean and covariance of so many rows, and possible ones."""

import numpy as np

import dpstats as dps
from dpstats.inference.simulation import make_generator
from dpstats.planning.previews.likeness import Likeness
from dpstats.planning.previews.pretended import PretendRelease, PretendRows, seen_by_analyses

SCHEMA = dps.Schema([dps.Category("g", ["a", "b", "c"]), dps.Number("x", 0, 1, missing=0)])
PLAN = dps.plan(
    SCHEMA, {"g": dps.Marginals(["g"], degree=1), "x": dps.Mean("x")}, budget=dps.PureDP(1)
)
TABLES = 400


def rows_of(tables=TABLES, m=200):
    codes, _ = Likeness().points(SCHEMA, make_generator(0))
    codes = {name: column[:m] for name, column in codes.items()}
    density = np.arange(1.0, m + 1)
    generators = [make_generator((seed, 2)) for seed in range(tables)]
    return PretendRows(PLAN.strategy, codes, density / density.sum(), generators)


def test_a_moved_table_has_the_sums_the_mean_and_the_covariance_of_n_rows():
    rows, n = rows_of(), 1_500
    codes, weights, own = rows.table(1, n, 1024)
    assert np.isclose(weights.sum(), 1)
    assert weights.min() >= 0  # a mixture of possible rows, since the base is not above n
    means = np.concatenate([b.evaluate(codes).average(weights) for b in PLAN.family.blocks])
    np.testing.assert_allclose(own, n * means, atol=0.5 + 1e-6)
    sums = np.array([rows.table(i, n, 1024)[2] for i in range(TABLES)])
    values = np.concatenate([b.evaluate(rows.codes).matrix().toarray() for b in PLAN.family.blocks])
    mean = values @ rows.density
    expected = n * ((values * rows.density) @ values.T - np.outer(mean, mean))
    errors = np.sqrt(np.diag(expected) / TABLES)
    assert np.all(np.abs(sums.mean(axis=0) - n * mean) < 4 * errors + 0.5)
    ratio = np.var(sums, axis=0) / np.diag(expected)
    assert np.all(np.abs(ratio - 1) < 5 * np.sqrt(2 / TABLES))


def test_persons_have_as_many_equal_rows_as_they_may():
    asked, one = {"x": dps.Mean("x")}, rows_of()
    sums = {}
    for k in (1, 4):
        plan = dps.plan(SCHEMA, asked, budget=dps.PureDP(1), rows_per_person=k)
        rows = PretendRows(plan.strategy, one.codes, one.density, one._generators)
        _, weights, _ = rows.table(0, 1_000)
        assert np.isclose(weights.sum(), 1)
        assert set(np.rint(weights * 1_000) % k) == {0}
        sums[k] = np.array([rows.table(i, 1_500, 1_024)[2] for i in range(TABLES)])
    ratio = np.var(sums[4], axis=0) / np.var(sums[1], axis=0)
    assert np.all(np.abs(ratio / 4 - 1) < 5 * np.sqrt(4 / TABLES))


def noise(n, epsilon, seed=0):
    strategy = seen_by_analyses(PLAN.costing(dps.PureDP(epsilon)).strategy, n)
    codes, weights, sums = rows_of(tables=1).table(0, n)
    return PretendRelease(strategy, n, codes, weights, sums, seed).sources.sums - sums


def test_noise_is_the_same_draw_at_every_n_and_up_to_its_scale_at_every_budget():
    np.testing.assert_array_equal(noise(1000, 0.01), noise(5000, 0.01))
    np.testing.assert_allclose(noise(1000, 0.001), 10 * noise(1000, 0.01), atol=10)
    assert np.any(noise(1000, 0.01) != noise(1000, 0.01, seed=1))
