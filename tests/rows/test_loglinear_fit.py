"""The fit by rows: that of the whole domain, its derivatives, and how far a round may go."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

import dpstats as dps
from dpstats.families.moments import Moments
from dpstats.families.tables.cells import Cells
from dpstats.rows.entropy import fit_with_penalty
from dpstats.rows.gibbs import GibbsSampler
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


@dataclass(frozen=True)
class Problem:
    """Noisy means of a table, and a sampler of the log-linear model of a family."""

    sampler: GibbsSampler
    truth: np.ndarray
    means: np.ndarray
    deviations: np.ndarray

    def exact(self, penalty):
        """Means of the fit over all states with the same penalties, in noise deviations."""
        supports = self.sampler.supports
        states = np.meshgrid(*(support.codes for support in supports.values()), indexing="ij")
        every = dict(zip(supports, (state.ravel() for state in states), strict=True))
        values = self.sampler.family.evaluate(every)
        uniform = np.full(states[0].size, 1 / states[0].size)
        fit = fit_with_penalty(values, uniform, self.means, self.deviations, penalty, 1e-8)
        assert fit.converged
        return values.average(fit.density) / self.deviations


@cache
def problem_and_fit(family, deviation):
    """A problem and its fit."""
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=N)
    codes = {
        name: np.where(group, rng.integers(size, size=N), rng.integers(size // 2 + 1, size=N))
        for name, size in (("a", 4), ("b", 3), ("c", 5), ("x", 9))
    }
    codes["x"] -= 4
    schema = dps.Schema([c for c in SCHEMA if any(c in b.columns for b in family.blocks)])
    supports = GibbsSampler(schema, family, {}).supports
    base = {name: np.zeros(len(support.codes)) for name, support in supports.items()}
    sampler = GibbsSampler(schema, family, base)
    truth = np.concatenate(family.sums(codes)) / (N * family.bounds)
    deviations = np.full(family.size, deviation)
    means = truth + deviation * rng.normal(size=family.size)
    fit = fit_loglinear(sampler, means, deviations, M, np.random.default_rng(1))
    return Problem(sampler, truth, means, deviations), fit


CASES = [(TABLES, 0.003), (MIXED, 0.02)]


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
