"""The density that minimises the largest misfit: a linear program (BL24, Algorithm 1, step 3)."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from dpstats.arrays import Floats
from dpstats.errors import DpstatsError
from dpstats.families.block import Family


class SolverError(DpstatsError):
    """A linear program was not solved to optimality."""


def feasible(family: Family, means: Floats) -> Floats:
    """Noisy means clipped to the range of each function, (|F|,) unit scale.

    Only the minimax program needs it: there a single impossible answer would fix the optimum.
    """
    low = np.concatenate([block.ranges[0] / block.bounds for block in family.blocks])
    high = np.concatenate([block.ranges[1] / block.bounds for block in family.blocks])
    return np.clip(means, low, high)


def minimax_highs(matrix: Any, target: Floats) -> tuple[Floats, float]:
    """Solve min over densities h of max_f |(A h - b)_f| with HiGHS.

    The program is split into two one-sided misfits: A h + s - t = b with 0 <= s <= 2 t, so that
    each function costs one equality and one short row.

    Parameters
    ----------
    matrix : (|F|, m) sparse array
        A, function values at the candidates, unit scale.
    target : (|F|,) float64
        b.

    Returns
    -------
    density : (m,) float64
        Non-negative, sums to one.
    optimum : float

    Raises
    ------
    SolverError
    """
    import highspy
    from scipy import sparse

    functions, m = matrix.shape
    identity = sparse.eye_array(functions)
    column = -np.ones((functions, 1))
    blocks: Any = [
        [matrix, column, identity],
        [None, 2 * column, identity],
        [np.ones((1, m)), None, None],
    ]
    program = sparse.block_array(blocks, format="csc")
    infinity = highspy.kHighsInf
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = m + 1 + functions, 2 * functions + 1
    model.col_cost_ = np.concatenate([np.zeros(m), [1.0], np.zeros(functions)])
    model.col_lower_ = np.zeros(model.num_col_)
    model.col_upper_ = np.full(model.num_col_, infinity)
    model.row_lower_ = np.concatenate([target, np.full(functions, -infinity), [1.0]])
    model.row_upper_ = np.concatenate([target, np.zeros(functions), [1.0]])
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = program.indptr
    model.a_matrix_.index_ = program.indices
    model.a_matrix_.value_ = program.data
    solver = highspy.Highs()
    solver.silent()
    solver.setOptionValue("threads", 1)
    refused = solver.passModel(model) == highspy.HighsStatus.kError  # it would run without it
    solver.run()
    if refused or solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise SolverError("HiGHS did not solve the minimax program")
    density = np.array(solver.getSolution().col_value[:m])
    return _density(density), float(solver.getInfo().objective_function_value)


def minimax_pulp(matrix: Any, target: Floats) -> tuple[Floats, float]:
    """Solve the same program through PuLP and CBC, as written in the paper: the readable reference.

    Parameters and returns are those of `minimax_highs`.
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
