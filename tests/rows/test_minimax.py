"""The linear program: two solvers, two forms and an independent one agree."""

import numpy as np
import pytest

import dpstats as dps
from dpstats.families.moments import Moments
from dpstats.families.tables.cells import Cells, tables_of_degree
from dpstats.rows import interior
from dpstats.rows import minimax as module
from dpstats.rows.candidates import seen_by
from dpstats.rows.minimax import (
    SolverError,
    feasible,
    minimax_columns,
    minimax_highs,
    minimax_pulp,
)
from dpstats.rows.uniform import Uniform


def booleans(p):
    schema = dps.Schema([dps.Boolean(f"x{i}") for i in range(p)])
    return schema, dps.Family(tuple(Cells.monomials(schema, schema.names, 2)))


def tables():
    sizes = [2, 3, 4]
    schema = dps.Schema([dps.Category(f"c{s}", [f"l{i}" for i in range(s)]) for s in sizes])
    return schema, dps.Family(tuple(tables_of_degree(schema, schema.names, 2)))


def moments():
    schema = dps.Schema([
        dps.Number("x", 0, 1, points=9, missing=0),
        dps.Number("y", -5, 10, points=5, missing=0),
        dps.Category("g", ["a", "b", "c"]),
    ])  # fmt: skip
    return schema, dps.Family((Moments.of(schema, ["x", "y"], ["g"]),))


FAMILIES = {
    "monomials": lambda: booleans(5),
    "tables": tables,
    "moments": moments,
}


def instance(name, seed, m=300, rows=60, noise=0.2):
    """Schema, family, m points drawn independently (not merged), and a noisy target."""
    schema, family = FAMILIES[name]()
    rng = np.random.default_rng(seed)
    private = Uniform("grid").draw(rows, schema, None, rng)
    exact = np.concatenate(family.sums(private)) / (rows * family.bounds)
    target = feasible(family, exact + rng.laplace(0, noise, family.size))
    return schema, family, Uniform("grid").draw(m, schema, None, rng), target


def merged(schema, points, m=300):
    class Drawn(Uniform):
        def cells(self, schema, measured):
            return 0, None

        def draw(self, m, schema, measured, rng):
            return points

    return Drawn().draw_candidates(m, schema, None, None, stratified=False)


@pytest.mark.parametrize("name", FAMILIES)
def test_highs_on_merged_candidates_equals_pulp_on_all_of_them(name):
    schema, family, points, target = instance(name, 1)
    candidates = merged(schema, points)
    seen = seen_by(family, candidates)
    assert len(seen.reference) < 300  # some candidates were merged
    everything = family.evaluate(points)
    as_printed, printed = minimax_pulp(everything.matrix(), target)
    density, optimum = minimax_highs(seen.values.matrix(), target)
    assert optimum == pytest.approx(printed, abs=1e-7)
    assert optimum > 1e-3  # the target is out of reach, so the program has something to do
    for values, solution in (
        (everything, as_printed),
        (family.evaluate(candidates.codes), seen.spread(density)),
    ):
        assert np.all(solution >= 0)
        assert solution.sum() == pytest.approx(1, abs=1e-12)
        found = np.abs(values.average(solution) - target).max()
        assert found == pytest.approx(optimum, abs=1e-7)


@pytest.mark.parametrize("part", [1, 0.5], ids=["exact", "iterated"])
@pytest.mark.parametrize(("name", "noise"), [("tables", 0.1), ("moments", 0.003)])
def test_columns_certify_the_optimum_of_the_whole_program(name, noise, part, monkeypatch):
    """Few candidates at first, so that others must join; the bounds enclose HiGHS's optimum."""
    schema, family = FAMILIES[name]()
    if part < 1:
        monkeypatch.setattr(interior, "EXACT", 0)
        monkeypatch.setattr(interior, "JOINT", int(part * family.size))
    monkeypatch.setattr(module, "LEAST_FIRST", 30)
    monkeypatch.setattr(module, "FIRST", 0.3)
    rng = np.random.default_rng(11)
    private = Uniform().draw(400, schema, None, rng)
    exact_means = np.concatenate(family.sums(private)) / (400 * family.bounds)
    target = feasible(family, exact_means + rng.laplace(0, noise, family.size))
    values = family.evaluate(Uniform().draw(800, schema, None, rng))
    _, optimum = minimax_highs(values.matrix(), target)
    fit = minimax_columns(values, target, 1e-5 * noise)
    assert fit.bound <= optimum + 1e-9
    assert optimum - 1e-9 <= fit.value
    assert fit.gap <= 1e-5 * noise
    found = np.abs(values.average(fit.density) - target).max()
    assert fit.value == pytest.approx(found, abs=1e-12)
    assert np.all(fit.density >= 0)
    assert fit.density.sum() == pytest.approx(1, abs=1e-12)


def test_the_bounds_hold_however_early_the_method_stops(monkeypatch):
    """And if nobody may join: the optimum of those who take part is above that of all."""
    _, family, points, target = instance("monomials", 12)
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
    monkeypatch.setattr(module, "FIRST", 0)
    monkeypatch.setattr(module, "JOINING", 0)
    monkeypatch.setattr(module, "LEAST_JOINING", 0)
    fit = minimax_columns(values, target, 1e-6)
    assert np.count_nonzero(fit.density) == 20
    assert fit.bound < optimum < fit.value - 1e-3
    assert fit.gap > 1e-3


def test_impossible_answers_are_clipped_to_their_range():
    """One noisy count of -40% would fix the optimum whatever the others say."""
    _, family, _, target = instance("tables", 7)
    wild = target.copy()
    wild[0], wild[1] = -0.4, 1.7
    clipped = feasible(family, wild)
    assert clipped[0] == 0
    assert clipped[1] == 1
    np.testing.assert_array_equal(clipped[2:], target[2:])
    _, family = moments()
    low = dict(zip(family.names, feasible(family, np.full(family.size, -9.0)), strict=True))
    lows = {"x": -1, "y": -1, "x^2": 0, "g=a": 0, "x*y": -1, "x*g=a": -1}
    assert {name: low[name] for name in lows} == lows
    np.testing.assert_array_equal(feasible(family, np.full(family.size, 9.0)), 1)


def test_a_program_that_is_not_solved_says_so():
    _, family, points, target = instance("tables", 9)
    matrix = family.evaluate(points).matrix()
    with pytest.raises(SolverError, match="HiGHS did not solve"):
        minimax_highs(matrix, np.full_like(target, np.nan))
    with pytest.raises(SolverError, match="the interior point method did not solve"):
        minimax_columns(family.evaluate(points), np.full_like(target, np.nan), 1e-6)
