"""Exchanged rows: as many as before, in the schema, with the wanted means."""

from dataclasses import replace

import numpy as np
import pytest

import dpstats as dps
from dpstats.families.moments import Moments
from dpstats.families.tables.cells import Cells, tables_of_degree
from dpstats.rows.exchanging import chosen, exchanged
from dpstats.rows.gibbs import GibbsSampler
from dpstats.rows.loglinear_fit import LogLinearFit
from dpstats.rows.products import Products

N = 4_000
EVEN = np.full(N, 1 / N)
SIZES = {"c0": 3, "c1": 4, "c2": 2}
SCHEMA = dps.Schema(
    [dps.Category(name, list(range(size))) for name, size in SIZES.items()]
    + [dps.Number(f"x{i}", -1, 1, points=41, missing=0) for i in range(3)]
)
TABLES = tuple(tables_of_degree(SCHEMA, list(SIZES), 2))
FAMILIES = {
    "tables": dps.Family(TABLES),
    "moments": dps.Family((Moments.of(SCHEMA, ["x0", "x1", "x2"]),)),
    "mixed": dps.Family((
        *TABLES, Moments.of(SCHEMA, ["x0", "x1"], groups=["c0"]),
        Cells.condition(SCHEMA, "c0 == 1 and c1 == 1"),
    )),
}  # fmt: skip


def rows(n=N):
    """Dependent columns."""
    rng = np.random.default_rng(0)
    mixed = 0.6 * rng.normal(size=n) + 0.8 * rng.normal(size=(6, n))
    codes = np.clip(np.rint(8 * mixed), -20, 20).astype(np.int64)
    for own, size in zip(codes, SIZES.values(), strict=False):
        own[:] = np.digitize(own, np.linspace(-8, 8, size + 1)[1:-1])
    return dict(zip(SCHEMA.names, codes, strict=True))


def independent(family, deviation):
    """Rows of uniform columns, as a fit without associations, and means of dependent ones."""
    supports = GibbsSampler(SCHEMA, family, {}).supports
    base = {name: np.zeros(len(support.codes)) for name, support in supports.items()}
    sampler = GibbsSampler(SCHEMA, family, base)
    truth = np.concatenate(family.sums(rows())) / (N * family.bounds)
    none, deviations = np.zeros(family.size), np.full(family.size, deviation)
    codes = sampler.draw_base(N, np.random.default_rng(1))
    return LogLinearFit(sampler, deviations, codes, truth / deviations, none, none), truth


@pytest.mark.parametrize(("name", "deviation"), [("tables", 1e-5), ("moments", 1), ("mixed", 1)])
def test_means_of_equal_rows_are_the_wanted_ones(name, deviation):
    """Within the error of less than a row per function, for a target that rows of a model have."""
    family = FAMILIES[name]
    fit, truth = independent(family, deviation)
    own = family.evaluate(fit.codes).average(EVEN)
    wanted = own + 0.3 * (truth - own)
    found = exchanged(fit, wanted / deviation, np.random.default_rng(0))
    means = family.evaluate(found).average(EVEN)
    before, after = (np.sqrt(np.mean((got - wanted) ** 2)) for got in (own, means))
    assert before > 30 / N
    assert after < 1 / N
    for column in SCHEMA:
        assert len(found[column.name]) == N
        allowed = column.all_codes if isinstance(column, dps.Number) else range(column.bins)
        assert np.isin(found[column.name], list(allowed)).all()


@pytest.mark.parametrize("deviation", [1e-5, 0.003])
def test_chosen_rows_are_of_the_model_unless_they_miss_by_more_than_noise(deviation):
    fit, truth = independent(FAMILIES["mixed"], deviation)
    moved = fit.moved(np.random.default_rng(0)).codes
    pool = {row for codes in (fit.codes, moved) for row in zip(*codes.values(), strict=True)}
    wanted = (fit.family.evaluate(fit.codes).average(EVEN) + truth) / 2
    found = chosen(fit, wanted / deviation, np.random.default_rng(0))
    error = fit.family.evaluate(found).average(EVEN) - wanted
    assert np.mean(error**2) < max(deviation, 1 / N) ** 2
    of_model = set(zip(*found.values(), strict=True)) <= pool
    assert of_model == (deviation > 1 / N)


@pytest.mark.parametrize("joint", [False, True])
def test_distances_of_points(joint):
    family = FAMILIES["mixed"]
    scales = np.random.default_rng(0).uniform(1, 3, family.size)
    values = family.evaluate(rows(600))
    products = Products(values, scales, joint=joint)
    whole = scales[:, None] * values.matrix().toarray()
    expected = np.linalg.norm(whole[:, 300:] - whole[:, :300], axis=0)
    expected[expected == 0] = np.inf
    np.testing.assert_allclose(products.distances(300), expected, atol=1e-12)


def test_columns_that_move_alone_are_drawn_given_their_own_rows():
    """One of two that determine each other follows the other as it was, not as it becomes."""
    fit, _ = independent(dps.Family(tuple(tables_of_degree(SCHEMA, ["c0", "c2"], 2))), 0.01)
    excluded = np.array([[0, 1], [1, 0], [1, 0]])  # c2 follows from c0
    fit = replace(fit, dual=-0.2 * excluded.ravel())
    before, rng = fit.codes, np.random.default_rng(2)
    alone, swept = fit.moved(rng, alone=True).codes, fit.moved(rng).codes
    assert np.array_equal(alone["c2"], before["c0"] > 0)
    assert np.array_equal(alone["c0"] > 0, before["c2"])
    assert np.array_equal(swept["c2"], swept["c0"] > 0)
    assert np.mean(swept["c2"] != (before["c0"] > 0)) > 0.3
