"""The density that minimises the largest misfit: a linear program (BL24, Algorithm 1, step 3).

The program has a weight for each of m candidates, of which a few per function matter. By default
it is solved over some candidates (`interior`), and others join as they are found to lower the
optimum. Any density gives an upper bound on the optimum, its own largest misfit. Any y with
|y|_1 = 1 gives a lower bound, b'y - max_j (A'y)_j over all m candidates (eq. 16 of
docs/explanation/synthetic-rows/generator.md):

    max_f |(A h - b)_f| >= y'(b - A h) >= b'y - max_j (A'y)_j    for every density h

The second step holds since A h is a mean of columns of A. The method ends when the two are close,
so that its result does not rest on how it was found: the bounds certify it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dpstats.arrays import Floats
from dpstats.errors import DpstatsError
from dpstats.families.block import Family, FamilyValues
from dpstats.rows.interior import Point, start, step
from dpstats.rows.products import Products

Solver = Literal["columns", "highs", "pulp"]

TOLERANCE = 1e-3  # largest distance of the bounds, in noise standard deviations
SMALLEST_TOLERANCE = 1e-9
FIRST, LEAST_FIRST = 1.5, 1000  # candidates at the start, per function and in all
JOINING, LEAST_JOINING = 0.5, 100  # most candidates that join at a time
MAX_STEPS, PATIENCE = 100, 12  # the latter without any progress
AIM = 0.3  # part of the tolerance that the mean product of the method stops at


class SolverError(DpstatsError):
    """A linear program was not solved to optimality."""


@dataclass(frozen=True)
class MinimaxFit:
    """A density and a certificate of how close to the optimum it is."""

    density: Floats  # (m,): non-negative, sums to one
    value: float  # its largest misfit, unit scale: the optimum is at most this
    bound: float  # the optimum is at least this; of the other solvers, the optimum that they report

    @property
    def gap(self) -> float:
        """The value exceeds the optimum by at most this."""
        return max(self.value - self.bound, 0.0)


def feasible(family: Family, means: Floats) -> Floats:
    """Noisy means clipped to the range of each function, (|F|,) unit scale.

    Only the minimax program needs it: there a single impossible answer would fix the optimum.
    """
    low = np.concatenate([block.ranges[0] / block.bounds for block in family.blocks])
    high = np.concatenate([block.ranges[1] / block.bounds for block in family.blocks])
    return np.clip(means, low, high)


def tolerance(deviations: Floats) -> float:
    """How close the bounds shall be, given noise standard deviations (|F|,) of the means."""
    return max(TOLERANCE * float(np.min(deviations)), SMALLEST_TOLERANCE)


def minimax(values: FamilyValues, target: Floats, solver: Solver, within: float) -> MinimaxFit:
    """Solve min over densities h of max_f |(A h - b)_f|.

    Parameters
    ----------
    values : FamilyValues
        A, the |F| functions at the m candidates.
    target : (|F|,) float64
        b.
    solver : {"columns", "highs", "pulp"}
        Column generation; or the program over all candidates at once by HiGHS, or as printed in
        the paper through PuLP and CBC, which is far slower.
    within : float
        For "columns": the largest gap to stop at.
    """
    if solver == "columns":
        return minimax_columns(values, target, within)
    whole = minimax_highs if solver == "highs" else minimax_pulp
    density, optimum = whole(values.matrix(), target)
    return MinimaxFit(density, _largest_misfit(values, density, target), optimum)


def minimax_columns(values: FamilyValues, target: Floats, within: float) -> MinimaxFit:
    """Solve the program over some candidates, which others join, with a certificate.

    The optimum need not be unique. This density is near the centre of the optimal ones, with
    positive weights on all candidates that took part, some per function; a vertex, which the
    other solvers return, has at most |F| + 1.

    Parameters, returns and errors are those of `minimax`; the gap exceeds `within` if rounding
    stops the method early.
    """
    everyone = Products(values, np.ones(len(target)))
    state = _Columns(values, everyone, target)
    with np.errstate(all="ignore"):  # a point that is not finite ends the search
        gaps = []
        for _ in range(MAX_STEPS):
            if not state.advance(AIM * within) or state.gap <= within:
                break
            gaps.append(state.gap)
            if len(gaps) > PATIENCE and state.gap > 0.9 * gaps[-1 - PATIENCE]:
                break
    if not np.isfinite(state.gap):
        raise SolverError("the interior point method did not solve the minimax program")
    density = np.zeros(everyone.points)
    density[state.best_members] = state.best
    return MinimaxFit(density, _largest_misfit(values, density, target), state.bound)


class _Columns:
    """The candidates that take part, the point of the method, and the best bounds."""

    def __init__(self, values: FamilyValues, everyone: Products, target: Floats) -> None:
        self.values, self.everyone, self.target = values, everyone, target
        first = min(everyone.points, max(int(FIRST * len(target)), LEAST_FIRST))
        chosen = np.random.default_rng(0).choice(everyone.points, first, replace=False)
        self.members = np.asarray(chosen, dtype=np.intp)
        self.products = self._products()
        self.point = start(self.products, target)
        self.value, self.bound = np.inf, -np.inf
        self.best_members, self.best = self.members, self.point.weights

    @property
    def gap(self) -> float:
        return float(self.value - self.bound)

    def _products(self) -> Products:
        return Products(self.values.at(self.members), np.ones(len(self.target)))

    def advance(self, aim: float) -> bool:
        """Take an interior-point step, update both bounds, add violated columns.

        Returns False if the step fails, by rounding or numbers that are not finite.
        """
        try:
            following = step(self.products, self.target, self.point, aim / self.point.size)
        except (np.linalg.LinAlgError, ValueError):  # rounding, or numbers that are not finite
            return False
        self.point = following
        if not np.isfinite(following.mu):
            return False
        density = following.weights / following.weights.sum()
        value = float(np.abs(self.products.average(density) - self.target).max())
        if value < self.value:
            self.value, self.best, self.best_members = value, density, self.members
        combined = self.everyone.combine(following.y)
        total = float(np.abs(following.y).sum())
        bound = (float(self.target @ following.y) - float(combined.max())) / max(1.0, total)
        self.bound = max(self.bound, bound, 0.0)
        self._join(following, combined)
        return True

    def _join(self, point: Point, combined: Floats) -> None:
        """Add the candidates that violate the dual's constraints most."""
        excess = point.level - combined
        excess[self.members] = np.inf
        worst = np.flatnonzero(excess < 0)
        most = max(int(JOINING * len(self.target)), LEAST_JOINING)
        if len(worst) > most:
            worst = worst[np.argpartition(excess[worst], most)[:most]]
        if len(worst):
            self.members = np.concatenate([self.members, worst])
            self.point = point.joined(excess[worst])
            self.products = self._products()


def _largest_misfit(values: FamilyValues, density: Floats, target: Floats) -> float:
    return float(np.abs(values.average(density) - target).max())


def minimax_highs(matrix: Any, target: Floats) -> tuple[Floats, float]:
    """Solve the program with HiGHS, through `scipy.optimize.linprog`.

    The program is split into two one-sided misfits: A h + s - t = b with 0 <= s <= 2 t: each
    function costs one equality and one short row. The interior point method ends with a
    crossover to a vertex; it takes a third of the simplex method's time at |F| = 500, m = 10^4.

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

    Parameters, returns and errors are those of `minimax_highs`.
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
