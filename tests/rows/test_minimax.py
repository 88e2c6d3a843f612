"""The linear program: two solvers, two forms and an independent one agree."""

import numpy as np
import pytest

import dpstats as dps
from dpstats.families.moments import Moments
from dpstats.families.tables.cells import Cells, tables_of_degree
from dpstats.rows import interior
from dpstats.rows import minimax as module
from dpstats.rows.candidates import merged, seen_by
from dpstats.rows.minimax import SolverError, feasible, minimax_columns, minimax_highs
from dpstats.rows.uniform import Uniform

BOOLEANS = dps.Schema([dps.Boolean(f"x{i}") for i in range(5)])
CATEGORIES = dps.Schema([dps.Category(f"c{s}", list(range(s))) for s in (2, 3, 4)])
NUMBERS = dps.Schema([
    dps.Number("x", 0, 1, points=9, missing=0), dps.Number("y", -5, 10, points=5, missing=0),
    dps.Category("g", ["a", "b", "c"]),
])  # fmt: skip
FAMILIES = {
    "monomials": (BOOLEANS, Cells.monomials(BOOLEANS, BOOLEANS.names, 2)),
    "tables": (CATEGORIES, tables_of_degree(CATEGORIES, CATEGORIES.names, 2)),
    "moments": (NUMBERS, [Moments.of(NUMBERS, ["x", "y"], ["g"])]),
}


def instance(name, seed, m=300, rows=60, noise=0.2):
    """Family, m points drawn independently (not merged), and a noisy target."""
    schema, blocks = FAMILIES[name]
    family, rng = dps.Family(tuple(blocks)), np.random.default_rng(seed)
    private = Uniform("grid").draw(rows, schema, None, rng)
    exact = np.concatenate(family.sums(private)) / (rows * family.bounds)
    target = feasible(family, exact + rng.laplace(0, noise, family.size))
    return family, Uniform("grid").draw(m, schema, None, rng), target


def check_density(density, values, target, value):
    assert density.min() >= 0
    assert density.sum() == pytest.approx(1, abs=1e-12)
    assert np.abs(values.average(density) - target).max() == pytest.approx(value, abs=1e-7)


@pytest.mark.parametrize("name", FAMILIES)
def test_highs_on_merged_candidates_equals_pulp_on_all_of_them(name):
    family, points, target = instance(name, 1)
    candidates = merged(FAMILIES[name][0], points, np.full(300, 1 / 300))
    seen = seen_by(family, candidates)
    assert len(seen.reference) < 300  # some candidates were merged
    everything = family.evaluate(points)
    as_printed, printed = module.minimax_pulp(everything.matrix(), target)
    density, optimum = minimax_highs(seen.values.matrix(), target)
    assert optimum == pytest.approx(printed, abs=1e-7)
    assert optimum > 1e-3  # the target is out of reach, so the program has something to do
    check_density(as_printed, everything, target, optimum)
    check_density(seen.spread(density), family.evaluate(candidates.codes), target, optimum)


@pytest.mark.parametrize("part", [1, 0.5], ids=["exact", "iterated"])
@pytest.mark.parametrize(("name", "noise"), [("tables", 0.1), ("moments", 0.003)])
def test_columns_certify_the_optimum_of_the_whole_program(name, noise, part, monkeypatch):
    """Few candidates at first, so that others must join; the bounds enclose HiGHS's optimum."""
    family, points, target = instance(name, 11, m=800, rows=400, noise=noise)
    if part < 1:
        monkeypatch.setattr(interior, "EXACT", 0)
        monkeypatch.setattr(interior, "JOINT", int(part * family.size))
    monkeypatch.setattr(module, "LEAST_FIRST", 30)
    monkeypatch.setattr(module, "FIRST", 0.3)
    values = family.evaluate(points)
    _, optimum = minimax_highs(values.matrix(), target)
    fit = minimax_columns(values, target, 1e-5 * noise)
    assert fit.bound <= optimum + 1e-9
    assert optimum - 1e-9 <= fit.value
    assert fit.gap <= 1e-5 * noise
    check_density(fit.density, values, target, fit.value)


def test_the_bounds_hold_however_early_the_method_stops(monkeypatch):
    """And if nobody may join: the optimum of those who take part is above that of all."""
    family, points, target = instance("monomials", 12)
    values = family.evaluate(points)
    _, optimum = minimax_highs(values.matrix(), target)
    monkeypatch.setattr(module, "LEAST_FIRST", 20)
    gaps = []
    for steps in (1, 4, 8, 24):
        with monkeypatch.context() as patch:
            patch.setattr(module, "MAX_STEPS", steps)
            fit = minimax_columns(values, target, 1e-9)
        assert fit.bound <= optimum + 1e-9 <= fit.value + 2e-9
        gaps.append(fit.gap)
    assert gaps[0] > 1e-2 > 1e-6 > gaps[-1]
    for name in ("FIRST", "JOINING", "LEAST_JOINING"):
        monkeypatch.setattr(module, name, 0)
    fit = minimax_columns(values, target, 1e-6)
    assert np.count_nonzero(fit.density) == 20
    assert fit.bound < optimum < fit.value - 1e-3
    assert fit.gap > 1e-3


def test_impossible_answers_are_clipped_to_their_range():
    """One noisy count of -40% would fix the optimum whatever the others say."""
    family, _, target = instance("tables", 7)
    wild = np.concatenate([[-0.4, 1.7], target[2:]])
    np.testing.assert_array_equal(feasible(family, wild), [0, 1, *target[2:]])
    family, _, _ = instance("moments", 7)
    low = dict(zip(family.names, feasible(family, np.full(family.size, -9.0)), strict=True))
    lows = {"x": -1, "y": -1, "x^2": 0, "g=a": 0, "x*y": -1, "x*g=a": -1}
    assert {name: low[name] for name in lows} == lows
    np.testing.assert_array_equal(feasible(family, np.full(family.size, 9.0)), 1)


def test_a_program_that_is_not_solved_says_so():
    family, points, target = instance("tables", 9)
    values, unknown = family.evaluate(points), np.full_like(target, np.nan)
    with pytest.raises(SolverError, match="HiGHS did not solve"):
        minimax_highs(values.matrix(), unknown)
    with pytest.raises(SolverError, match="the interior point method did not solve"):
        minimax_columns(values, unknown, 1e-6)
