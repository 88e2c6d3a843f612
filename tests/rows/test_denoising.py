"""Denoised tables of two columns: each estimate where it is right, and how they are chosen."""

import numpy as np
import pandas as pd
import pytest

import dpstats as dps
from dpstats.rows import denoising
from dpstats.rows.denoising import PairTables, blend
from dpstats.rows.levels import Levels
from dpstats.rows.loglinear import MOVED, _Tables

N, COLUMNS, BINS = 20_000, 8, 8
SCHEMA = dps.Schema([dps.Category(f"c{i}", list(range(BINS))) for i in range(COLUMNS)])
LEVELS = Levels(SCHEMA)
BETWEEN = LEVELS.column[:, None] != LEVELS.column
UPPER = np.triu(BETWEEN)
SD = {"independent": 80.0, "sparse": 80.0, "factor": 150.0}  # of the noise on cells


def shares(kind, rng):
    """Probabilities of the levels of each column in each of some hidden classes."""
    if kind == "independent":
        return np.ones(1), rng.dirichlet(np.full(BINS, 2.0), (COLUMNS, 1))
    if kind == "sparse":  # every class has a level of its own in every column
        order = np.array([rng.permutation(BINS) for _ in range(COLUMNS)])
        return rng.dirichlet(np.full(BINS, 1.0)), np.eye(BINS)[order]
    return np.full(2, 0.5), rng.dirichlet(np.full(BINS, 1.5), (COLUMNS, 2))


class Simulated:
    """Estimates as `blend` takes them: from the upper triangle of noisy counts."""

    def __init__(self, kind, seed):
        chances, inside = shares(kind, np.random.default_rng(0))
        flat = inside.transpose(0, 2, 1).reshape(LEVELS.size, -1)  # (levels, classes)
        self.margins = np.maximum(N * flat @ chances, 0.5)
        self.truth, self.sd = (N * (flat * chances) @ flat.T)[UPPER], SD[kind]
        rng = np.random.default_rng(seed)
        noise, *self.noises = rng.normal(0, self.sd, (3, len(self.truth)))
        self.values = self.truth + noise
        self.precision = np.full(len(self.values), self.sd**-2.0)

    def estimates(self, values):
        counts, deviations = np.zeros(BETWEEN.shape), np.where(BETWEEN, self.sd, 1.0)
        counts[UPPER] = values
        tables = PairTables(counts + counts.T, deviations, self.margins, LEVELS.column, BETWEEN, N)
        found = tables.independent(), tables.denoised_cells(), tables.low_rank()
        return np.array([estimate[UPPER] for estimate in found])

    def blend(self):
        found, freedom = self.estimates(self.values), 0.0
        for noise in self.noises:
            moved = (self.estimates(self.values + MOVED * noise) - found) / MOVED
            freedom = freedom + moved @ (self.precision * noise) / len(self.noises)
        return *blend(found, self.values, freedom, self.precision), found

    def error(self, found):
        return float(((found - self.truth) ** 2 @ self.precision) / len(found))


@pytest.mark.parametrize("kind", SD)
def test_the_blend_is_about_as_good_as_the_best_of_its_members(kind):
    found = []
    for seed in range(3):
        case = Simulated(kind, seed)
        blended, weights, members = case.blend()
        assert weights.min() >= 0
        assert weights.sum() == pytest.approx(1)
        np.testing.assert_allclose(blended, weights @ members)
        errors = [case.error(own) for own in members]
        best = np.isclose(errors, min(errors))  # without signal the low rank is none
        found.append([case.error(blended), min(errors), weights[best].sum()])
    ours, best, weight = np.mean(found, axis=0)
    assert ours < 1.05 * best + 0.005
    assert weight > 0.6


def test_levels_sum_to_the_rows_and_lose_noise():
    """Two columns of ten equally likely levels and one nearly constant of 40, with noise."""
    truth = np.concatenate([np.full(20, N / 10), [N - 390.0], np.full(39, 10.0)])
    column = np.repeat([0, 1, 2], [10, 10, 40])
    counts = truth + np.random.default_rng(3).normal(0, 200.0, len(truth))
    found = denoising.denoised_levels(counts, np.full(60, 200.0), column, N)
    np.testing.assert_allclose(np.bincount(column, found), N)
    assert found.min() >= 0
    assert np.abs(found - truth)[:20].mean() < 0.7 * np.abs(counts - truth)[:20].mean()
    assert abs(found[20] - truth[20]) < 600  # divided by a sum of noise cut at zero: 2,700 off


def test_tables_agree_on_denoised_levels():
    rows = {f"c{i}": np.arange(400) ** 2 % BINS for i in range(COLUMNS)}
    plan = dps.plan(SCHEMA, {"pairs": dps.Marginals(SCHEMA.names)}, budget=dps.ZCDP(0.01))
    tables = _Tables(dps.measure(plan, pd.DataFrame(rows)))
    found, member = tables.denoised, np.eye(COLUMNS)[LEVELS.column]
    sums = found.counts @ member
    other = LEVELS.column[:, None] != np.arange(COLUMNS)
    wanted = np.broadcast_to(found.margins[:, None], sums.shape)
    np.testing.assert_allclose(sums[other], wanted[other], atol=0.02 * found.n)
    noisy = tables._matrix(tables.noisy) * found.n
    assert np.abs(noisy.diagonal() - found.margins).max() > 0.02 * found.n
    for base in tables.base().values():
        assert np.exp(base).sum() == pytest.approx(1)
