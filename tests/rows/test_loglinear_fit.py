"""The fit by rows: that of the whole domain, its derivatives, and how far a round may go."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import dpstats as dps
from dpstats.families.moments import Moments
from dpstats.families.tables.cells import Cells
from dpstats.rows.entropy import fit_with_penalty
from dpstats.rows.gibbs import GibbsSampler, Support
from dpstats.rows.loglinear_fit import fit_loglinear

N, M = 2_000, 16_000
SCHEMA = dps.Schema([
    dps.Category("a", list(range(4))), dps.Category("b", list(range(3))),
    dps.Category("c", list(range(5))), dps.Number("x", -1, 1, points=9, missing=0),
])  # fmt: skip
TABLES = dps.Family((
    Cells.table(SCHEMA, ["a", "b"]), Cells.table(SCHEMA, ["b", "c"]),
    Cells.table(SCHEMA, ["a", "c"]),
))  # fmt: skip
MIXED = dps.Family((
    Cells.table(SCHEMA, ["a", "b"]), Cells.condition(SCHEMA, "a == 1 and c == 2"),
    Moments.of(SCHEMA, ["x"], ["b"]),
))  # fmt: skip


class Problem:
    """Noisy means of a table, and the fit over all states of its domain."""

    def __init__(self, family, deviation, seed=0):
        rng = np.random.default_rng(seed)
        group = rng.integers(2, size=N)
        codes = {
            name: np.where(group, rng.integers(size, size=N), rng.integers(size // 2 + 1, size=N))
            for name, size in (("a", 4), ("b", 3), ("c", 5), ("x", 9))
        }
        codes["x"] -= 4
        self.schema = dps.Schema([c for c in SCHEMA if any(c in b.columns for b in family.blocks)])
        self.family = family
        self.truth = np.concatenate(family.sums(codes)) / (N * family.bounds)
        self.deviations = np.full(family.size, deviation)
        self.means = self.truth + deviation * rng.normal(size=family.size)
        supports = [Support.of(c, c.name in family.coded_columns) for c in self.schema]
        base = {
            name: np.full(len(s.codes), -np.log(len(s.codes)))
            for name, s in zip(self.schema.names, supports, strict=True)
        }
        self.sampler = GibbsSampler(self.schema, family, base)
        states = np.meshgrid(*(s.codes for s in supports), indexing="ij")
        every = {name: s.ravel() for name, s in zip(self.schema.names, states, strict=True)}
        self.values = family.evaluate(every)
        self.states = len(every["a"])

    def fit(self, seed=1, m=M):
        rng = np.random.default_rng(seed)
        return fit_loglinear(self.sampler, self.means, self.deviations, m, rng)

    def exact(self, penalty, means=None):
        """Means of the fit over all states with the same penalties, in noise deviations."""
        uniform = np.full(self.states, 1 / self.states)
        means = self.means if means is None else means
        fit = fit_with_penalty(self.values, uniform, means, self.deviations, penalty, 1e-8)
        assert fit.converged
        return self.values.average(fit.density) / self.deviations


CASES = [(TABLES, 0.003), (MIXED, 0.02)]


@cache
def problem_and_fit(family, deviation):
    """A problem and its fit."""
    problem = Problem(family, deviation)
    return problem, problem.fit()


@pytest.mark.parametrize(("family", "deviation"), CASES)
def test_it_agrees_with_the_fit_over_the_whole_domain(family, deviation):
    """Expected means, within the error of a mean over so many rows."""
    problem, found = problem_and_fit(family, deviation)
    exact = problem.exact(found.penalty)
    standard_error = 0.5 / np.sqrt(M) / deviation
    assert np.sqrt(np.mean((found.expected - exact) ** 2)) < 0.6 * standard_error
    assert np.abs(found.expected - exact).max() < 1.5 * standard_error
    rows = family.evaluate(found.codes).average(np.full(M, 1 / M)) / problem.deviations
    assert np.sqrt(np.mean((rows - exact) ** 2)) < 2 * standard_error


@pytest.mark.parametrize(("family", "deviation"), CASES)
def test_trusted_means_are_between_those_of_the_fit_and_the_answers(family, deviation):
    """Nearer to the truth than either where penalties are too large; the fit's where they serve."""
    problem, found = problem_and_fit(family, deviation)
    truth = problem.truth / deviation

    def error(fit):
        trusted = fit.trusted(np.random.default_rng(0))
        inside = (trusted - fit.expected) * (fit.target - trusted)
        assert np.all(inside >= -1e-9 * np.abs(fit.target).max() ** 2)
        return [np.mean((means - truth) ** 2) for means in (trusted, fit.expected, fit.target)]

    ours, fitted, _ = error(found)
    assert ours < 1.05 * fitted
    strict = replace(found, penalty=8 * found.penalty)
    ours, fitted, answers = error(strict)
    assert ours < 1.05 * min(fitted, answers)
