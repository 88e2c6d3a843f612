"""The linear program: two solvers, two forms and an independent one agree."""

import numpy as np
import pytest

import dpstats as dps
from dpstats.families.ball_moments import BallMoments
from dpstats.families.group_moments import GroupMoments
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
    "monomials, p = 3": lambda: booleans(3),
    "monomials, p = 4": lambda: booleans(4),
    "monomials, p = 5": lambda: booleans(5),
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


def merged(schema, family, points, m=300):
    class Drawn(Uniform):
        def cells(self, schema, measured):
            return 0, None

        def draw(self, m, schema, measured, rng):
            return points

    return Drawn().draw_candidates(m, schema, None, None, stratified=False), family


def test_highs_on_merged_candidates_equals_pulp_on_all_of_them():
    for seed in [1, 2]:
        for name in FAMILIES:
            schema, family, points, target = instance(name, seed)
            candidates, _ = merged(schema, family, points)
            seen = seen_by(family, candidates)
            assert len(seen.reference) < 300  # some candidates were merged
            everything = family.evaluate(points)
            as_printed, printed = minimax_pulp(everything.matrix(), target)
            density, optimum = minimax_highs(seen.values.matrix(), target)
            assert optimum == pytest.approx(printed, abs=1e-7)
            assert optimum > 1e-3  # the target is out of reach, so the program has something to do
            weights = seen.spread(density)
            for values, solution in (
                (everything, as_printed),
                (family.evaluate(candidates.codes), weights),
            ):
                assert np.all(solution >= 0)
                assert solution.sum() == pytest.approx(1, abs=1e-12)
                assert np.abs(values.average(solution) - target).max() == pytest.approx(
                    optimum, abs=1e-7
                )


def mixed():
    """Every kind of block."""
    schema = dps.Schema([
        dps.Category("a", list("wxyz")),
        dps.Boolean("b"),
        dps.Number("u", -1, 1, points=7, missing=0, edges=[0]),
        dps.Number("v", values=[0, 1, 4], missing=0),
        dps.Number("w", 0, 1, points=5, edges=[0.5], allow_missing=True),
    ])  # fmt: skip
    return schema, dps.Family((
        Cells.table(schema, ["a", "u"]),
        Cells.table(schema, ["a", "b", "v"]),
        Cells.condition(schema, "b and u >= 0"),
        Moments.of(schema, ["u", "v"], ["a", "b"]),
        Moments.of(schema, ["u", "w"], ["a"], given="b or v > 0"),
        GroupMoments.by(schema["v"], schema["u"], (0, 1)),
        BallMoments.of(schema, ["u", "v"], 0.7),
        Cells.table(schema, ["a", "w"]),
    ))  # fmt: skip


def numbers():
    names = [f"x{i}" for i in range(5)]
    schema = dps.Schema([dps.Number(name, -1, 1, points=9, missing=0) for name in names])
    return schema, dps.Family((Moments.of(schema, names),))


def wide_tables():
    schema = dps.Schema([dps.Category(f"c{i}", list("abcd")) for i in range(5)])
    return schema, dps.Family(tuple(tables_of_degree(schema, schema.names, 2)))


@pytest.mark.parametrize("part", [1, 0.5], ids=["exact", "iterated"])
def test_columns_certify_the_optimum_of_the_whole_program(part, monkeypatch):
    """Few candidates at first, so that others must join; the bounds enclose HiGHS's optimum."""
    for noise in [0.003, 0.1]:
        for kind in [mixed, numbers, wide_tables]:
            schema, family = kind()
            if part < 1:
                monkeypatch.setattr(interior, "EXACT", 0)
                monkeypatch.setattr(interior, "JOINT", int(part * family.size))
            monkeypatch.setattr(module, "LEAST_FIRST", 30)
            monkeypatch.setattr(module, "FIRST", 0.3)
            rng = np.random.default_rng(11)
            private = Uniform().draw(400, schema, None, rng)
            exact_means = np.concatenate(family.sums(private)) / (400 * family.bounds)
            target = feasible(family, exact_means + rng.laplace(0, noise, family.size))
            values = family.evaluate(Uniform().draw(1500, schema, None, rng))
            _, optimum = minimax_highs(values.matrix(), target)
            for within in (1e-3 * noise, 1e-5 * noise):
                fit = minimax_columns(values, target, within)
                assert fit.bound <= optimum + 1e-9
                assert optimum - 1e-9 <= fit.value
                assert fit.gap <= within
                assert fit.value == pytest.approx(
                    np.abs(values.average(fit.density) - target).max(), abs=1e-12
                )
                assert np.all(fit.density >= 0)
                assert fit.density.sum() == pytest.approx(1, abs=1e-12)


def test_the_bounds_hold_at_every_step(monkeypatch):
    """However early the method stops: nothing rests on where it was going."""
    _, family, points, target = instance("monomials, p = 5", 12)
    values = family.evaluate(points)
    _, optimum = minimax_highs(values.matrix(), target)
    monkeypatch.setattr(module, "LEAST_FIRST", 20)
    bounds = []
    for steps in range(1, 25):
        monkeypatch.setattr(module, "MAX_STEPS", steps)
        fit = minimax_columns(values, target, 1e-9)
        assert fit.bound <= optimum + 1e-9 <= fit.value + 2e-9
        bounds.append(fit.gap)
    assert np.all(np.diff(bounds) <= 0)
    assert bounds[0] > 1e-2 > 1e-6 > bounds[-1]


def test_the_bound_is_over_all_candidates(monkeypatch):
    """If nobody may join, the optimum of those who take part is above that of all."""
    _, family, points, target = instance("monomials, p = 5", 12)
    values = family.evaluate(points)
    _, optimum = minimax_highs(values.matrix(), target)
    monkeypatch.setattr(module, "LEAST_FIRST", 20)
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
    _, moment_family = moments()
    low = feasible(moment_family, np.full(moment_family.size, -9.0))
    high = feasible(moment_family, np.full(moment_family.size, 9.0))
    lows = {"x": -1, "y": -1, "x^2": 0, "g=a": 0, "x*y": -1, "x*g=a": -1}
    for name, expected in lows.items():
        assert low[moment_family.names.index(name)] == expected
    np.testing.assert_array_equal(high, 1)


def test_a_program_that_is_not_solved_says_so():
    _, family, points, target = instance("tables", 9)
    matrix = family.evaluate(points).matrix()
    with pytest.raises(SolverError, match="HiGHS did not solve"):
        minimax_highs(matrix, np.full_like(target, np.nan))
    with pytest.raises(SolverError, match="the interior point method did not solve"):
        minimax_columns(family.evaluate(points), np.full_like(target, np.nan), 1e-6)
