"""The fit by rows: that of the whole domain, its derivatives, and how far a round may go."""

from dataclasses import replace

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


def dependent_codes(rng):
    group = rng.integers(2, size=N)
    codes = {
        name: np.where(group, rng.integers(size, size=N), rng.integers(size // 2 + 1, size=N))
        for name, size in (("a", 4), ("b", 3), ("c", 5), ("x", 9))
    }
    return {**codes, "x": codes["x"] - 4}


def means_over_the_domain(sampler, means, deviations, penalty):
    """Of the fit over all states with the same penalties, in noise deviations."""
    supports = sampler.supports
    states = np.meshgrid(*(support.codes for support in supports.values()), indexing="ij")
    every = dict(zip(supports, (state.ravel() for state in states), strict=True))
    values, uniform = sampler.family.evaluate(every), np.full(states[0].size, 1 / states[0].size)
    fit = fit_with_penalty(values, uniform, means, deviations, penalty, 1e-8)
    assert fit.converged
    return values.average(fit.density) / deviations


@pytest.mark.parametrize(("family", "deviation"), [(TABLES, 0.003), (MIXED, 0.02)])
def test_it_agrees_with_the_fit_over_the_whole_domain(family, deviation):
    """Within the error of a mean over so many rows; trusted means improve too large penalties."""
    rng = np.random.default_rng(0)
    schema = dps.Schema([c for c in SCHEMA if any(c in b.columns for b in family.blocks)])
    supports = GibbsSampler(schema, family, {}).supports
    base = {name: np.zeros(len(support.codes)) for name, support in supports.items()}
    sampler = GibbsSampler(schema, family, base)
    truth = np.concatenate(family.sums(dependent_codes(rng))) / (N * family.bounds)
    deviations = np.full(family.size, deviation)
    means = truth + deviation * rng.normal(size=family.size)
    found = fit_loglinear(sampler, means, deviations, M, np.random.default_rng(1))
    exact = means_over_the_domain(sampler, means, deviations, found.penalty)
    standard_error = 0.5 / np.sqrt(M) / deviation
    assert np.sqrt(np.mean((found.expected - exact) ** 2)) < 0.6 * standard_error
    assert np.abs(found.expected - exact).max() < 1.5 * standard_error
    rows = family.evaluate(found.codes).average(np.full(M, 1 / M)) / deviation
    assert np.sqrt(np.mean((rows - exact) ** 2)) < 2 * standard_error
    for times in (1, 8):
        fit = replace(found, penalty=times * found.penalty)
        trusted = fit.trusted(np.random.default_rng(0))
        inside = (trusted - fit.expected) * (fit.target - trusted)
        assert np.all(inside >= -1e-9 * np.abs(fit.target).max() ** 2)
        ours, fitted, answers = (
            np.mean((of - truth / deviation) ** 2) for of in (trusted, fit.expected, fit.target)
        )
        assert ours < 1.05 * (fitted if times == 1 else min(fitted, answers))
