"""The density that minimises the largest misfit: a linear program (BL24, Algorithm 1, step 3)."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np

from dpstats.arrays import Floats
from dpstats.errors import DpstatsError
from dpstats.families.block import Family

Solver = Literal["highs", "pulp"]


class SolverError(DpstatsError):
    """A linear program was not solved to optimality."""


def feasible(family: Family, means: Floats) -> Floats:
    """Noisy means clipped to the range of each function, (|F|,) unit scale.

    Only the minimax program needs it: there a single impossible answer would fix the optimum.
    """
    low = np.concatenate([block.ranges[0] / block.bounds for block in family.blocks])
    high = np.concatenate([block.ranges[1] / block.bounds for block in family.blocks])
    return np.clip(means, low, high)


def minimax(matrix: Any, target: Floats, solver: Solver) -> tuple[Floats, float]:
    """Solve min over densities h of max_f |(A h - b)_f|.

    Parameters
    ----------
    matrix : (|F|, m) sparse array
        A, function values at the candidates, unit scale.
    target : (|F|,) float64
        b.
    solver : {"highs", "pulp"}
        HiGHS, or the program as printed in the paper through PuLP and CBC, which is far slower.

    Returns
    -------
    density : (m,) float64
        Non-negative, sums to one.
    optimum : float

    Raises
    ------
    SolverError
    """
    return (minimax_highs if solver == "highs" else minimax_pulp)(matrix, target)


def minimax_highs(matrix: Any, target: Floats) -> tuple[Floats, float]:
    """Solve the program with HiGHS, through `scipy.optimize.linprog`.

    The program is split into two one-sided misfits: A h + s - t = b with 0 <= s <= 2 t: each
    function costs one equality and one short row. The interior point method ends with a
    crossover to a vertex; it takes a third of the simplex method's time at |F| = 500, m = 10^4.

    Parameters, returns and errors are those of `minimax`.
    """
    from scipy import optimize, sparse

    functions, m = matrix.shape
    identity = sparse.eye_array(functions)
    column = -np.ones((functions, 1))
    equal: Any = [[matrix, column, identity], [np.ones((1, m)), None, None]]
    below: Any = [[sparse.csc_array((functions, m)), 2 * column, identity]]
    equal, below = (sparse.block_array(rows, format="csc") for rows in (equal, below))
    try:
        solved = optimize.linprog(
            np.concatenate([np.zeros(m), [1.0], np.zeros(functions)]),
            A_ub=below,
            b_ub=np.zeros(functions),
            A_eq=equal,
            b_eq=np.concatenate([target, [1.0]]),
            method="highs-ipm",
        )
    except ValueError:  # numbers that are not finite
        raise SolverError("HiGHS did not solve the minimax program") from None
    if solved.x is None or solved.fun is None or not solved.success:
        raise SolverError("HiGHS did not solve the minimax program")
    return _density(solved.x[:m]), float(solved.fun)


def minimax_pulp(matrix: Any, target: Floats) -> tuple[Floats, float]:
    """Solve the program through PuLP and CBC, as printed in the paper: the readable reference.

    Parameters, returns and errors are those of `minimax`.
    """
    import pulp

    values = matrix.toarray()
    functions, m = values.shape
    with warnings.catch_warnings():  # PuLP 3.3 announces the calls of PuLP 4, which is excluded
        warnings.simplefilter("ignore", DeprecationWarning)
        program = pulp.LpProblem("density", pulp.LpMinimize)
        h = [pulp.LpVariable(f"h{i}", lowBound=0) for i in range(m)]
        largest = pulp.LpVariable("largest_misfit", lowBound=0)
        program += largest
        program += pulp.lpSum(h) == 1  # h is a density on the candidates
        for f in range(functions):
            terms = [(h[i], values[f, i]) for i in np.flatnonzero(values[f])]
            mean = pulp.LpAffineExpression(terms)
            program += mean - target[f] <= largest
            program += target[f] - mean <= largest
        status = program.solve(pulp.PULP_CBC_CMD(msg=False))
    if pulp.LpStatus[status] != "Optimal":
        raise SolverError(f"CBC did not solve the minimax program: {pulp.LpStatus[status]}")
    density = np.array([variable.value() or 0.0 for variable in h])
    return _density(density), float(pulp.value(program.objective))


def _density(weights: Floats) -> Floats:
    clipped = np.clip(weights, 0, None)
    return np.asarray(clipped / clipped.sum(), dtype=np.float64)
