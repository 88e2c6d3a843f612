"""Bounds by linear programs: equal to the optimum, and valid whatever the solver returns."""

import numpy as np
import pytest
from scipy import optimize, sparse

from dpstats.bounds.programs import Contradiction, Program


def program_of(rng, states=6, functions=4):
    """A program that a table of 20 rows satisfies, and that table."""
    counts = rng.multinomial(20, rng.dirichlet(np.ones(states)))
    matrix = rng.integers(-2, 3, (functions, states)).astype(np.float64)
    sums = matrix @ counts
    low, high = sums - rng.integers(0, 4, functions), sums + rng.integers(0, 4, functions)
    low[rng.random(functions) < 0.2] = -np.inf
    spread = int(rng.integers(0, 3))
    rows = (20.0 - spread, 20.0 + spread)
    return Program(sparse.csr_array(matrix), low, high, rows), counts


def optimum(program, values):
    """By the solver, on a program written otherwise."""
    constraint = optimize.LinearConstraint(program.matrix.toarray(), program.low, program.high)
    total = optimize.LinearConstraint(np.ones((1, len(values))), *program.rows)
    return optimize.milp(values, constraints=[constraint, total]).fun


def test_the_least_sum_is_the_optimum_and_no_more():
    for seed in range(12):
        rng = np.random.default_rng(seed)
        program, counts = program_of(rng)
        values = rng.integers(-3, 4, 6).astype(np.float64)
        found, best = program.least_sum(values), optimum(program, values)
        assert best - 1e-5 <= found <= best + 1e-9
        assert found <= values @ counts


def test_the_least_ratio_is_that_of_the_worst_table():
    below = np.array([1.0, 1, 1, 0, 0, 1])
    above = np.array([1.0, 0, 1, 0, 0, 0])
    for seed in range(6):
        rng = np.random.default_rng(seed)
        program, counts = program_of(rng)
        if below @ counts < 1:
            continue  # no row in the group
        found = program.least_ratio(above, below, 1.0)
        at_least = program.with_sum(below, 1.0)

        def least(x, program=at_least):
            return optimum(program, above - x * below)

        best = optimize.brentq(least, -1e-9, 1 + 1e-9)  # where the least is zero
        assert best - 1e-5 <= found <= best + 1e-7
        assert found <= above @ counts / (below @ counts) + 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_wrong_multipliers_give_a_wider_bound_never_a_wrong_one(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    program, _ = program_of(rng)
    values = rng.integers(-3, 4, 6).astype(np.float64)
    best = optimum(program, values)
    solve = optimize.linprog

    def spoiled(*args, **kwargs):
        found = solve(*args, **kwargs)
        size = len(found.ineqlin.marginals)
        found.ineqlin.marginals = found.ineqlin.marginals + rng.normal(0, 0.3, size)
        return found

    monkeypatch.setattr(optimize, "linprog", spoiled)
    found = [program.least_sum(values) for _ in range(10)]
    assert max(found) <= best + 1e-9
    assert min(found) < best - 1e-3  # they were spoiled


def test_a_solver_that_fails_leaves_what_needs_none(monkeypatch):
    program, _ = program_of(np.random.default_rng(1))
    values = np.array([2.0, 1, 3, 1, 1, 5])
    failed = optimize.OptimizeResult(status=4, fun=None, ineqlin=None)
    monkeypatch.setattr(optimize, "linprog", lambda *args, **kwargs: failed)
    assert program.least_sum(values) == pytest.approx(program.rows[0])
    assert program.least_sum(-values) == pytest.approx(-5 * program.rows[1])
    assert program.least_ratio(np.ones(6), np.ones(6), 1.0) <= 1


def test_no_table_is_a_contradiction():
    one = sparse.csr_array(np.array([[1.0, 1.0], [1.0, 0.0]]))
    program = Program(one, np.array([5.0, 8.0]), np.array([5.0, 8.0]), (5.0, 5.0))
    with pytest.raises(Contradiction):
        program.least_sum(np.ones(2))
    with pytest.raises(Contradiction):
        program.least_ratio(np.ones(2), np.ones(2), 1.0)
