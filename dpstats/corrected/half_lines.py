"""Ends of least-squares coefficients where the noise does not exclude collinear regressors."""

from __future__ import annotations

import itertools

import numpy as np

from dpstats.arrays import Floats
from dpstats.error_rates import bonferroni

MOST_SLOPES = 5  # 32 orthants
_MARGIN = 1e-7  # linear programs are solved to this tolerance
_OPTIMAL, _INFEASIBLE = 0, 2


def half_line_bounds(
    moments: Floats,
    radii: Floats,
    directions: Floats,
    *,
    constant: int | None = None,
    rows: tuple[int, int] | None = None,
    error: float = 0.0,
) -> tuple[Floats, Floats]:
    """Smallest and largest h'b over the coefficients b that moments within the radii allow.

    Parameters
    ----------
    moments, radii, directions, rows, error
        As in `combination_bounds`.
    constant : int, optional
        Which regressor is the constant.

    Returns
    -------
    low, high : (k,) float64
        Infinite where nothing is known: of directions with the constant, and beyond `MOST_SLOPES`
        other regressors.

    Notes
    -----
    Without the constant, whose mean products are taken from the others, the coefficients solve
    S b = c with S = X'X / n of centred regressors. As in `solution_bounds` they are all b with
    |S0 b - c0| <= D |b| + d, a polyhedron in every orthant, bounded or not. S is positive
    semi-definite, so its diagonal is not negative, and b'c = b'S b >= 0, which is linear in an
    orthant too: c0'b + d'|b| >= 0. A sign is certain where all orthants with another are empty.

    For the population d is larger by the sampling part of c: with normal errors of equal variance
    score i has variance s^2 S_ii / n given X and is independent of the residual sum of squares,
    which is at most that of the response; a t quantile for each score, by Bonferroni's inequality.
    """
    from scipy import special

    k, p = directions.shape
    unknown = np.full(k, -np.inf), np.full(k, np.inf)
    df = 1 if rows is None else min(rows) - p
    asked = np.ones(k, dtype=np.bool_)
    if constant is not None:
        centre = _without(moments, radii, constant)
        if centre is None:
            return unknown
        asked = directions[:, constant] == 0
        directions = np.delete(directions, constant, axis=1)
        (moments, radii), p = centre, p - 1
    if not 0 < p <= MOST_SLOPES or df <= 0 or not asked.any():
        return unknown
    own = np.diag_indices(p)
    least, most = np.maximum(moments[own] - radii[own], 0), moments[own] + radii[own]
    if np.any(most <= 0):
        return unknown
    gram, radius, right = moments[:p, :p].copy(), radii[:p, :p].copy(), moments[:p, p]
    gram[own], radius[own], of_right = (most + least) / 2, (most - least) / 2, radii[:p, p]
    if rows is not None:
        quantile = -special.stdtrit(df, bonferroni(error, 2 * p))
        square = max(float(moments[p, p] + radii[p, p]), 0.0) * most / df
        of_right = of_right + quantile * np.sqrt(square)
    low, high = unknown
    low[asked], high[asked] = _extremes(gram, right, radius, of_right, directions[asked])
    return low, high


def _without(moments: Floats, radii: Floats, at: int) -> tuple[Floats, Floats] | None:
    """Mean products about the means (times the number of rows), and their radii.

    With |x y| / a known at x0, y0 and a0, the largest change of x y / a is where all three are
    farthest in the direction that increases |x y| / a.
    """
    count, off = moments[at, at], radii[at, at]
    if off >= count:
        return None
    own, reach = np.delete(moments[at], at), np.delete(radii[at], at)
    rest = (np.delete(np.delete(matrix, at, 0), at, 1) for matrix in (moments, radii))
    products, noise = rest
    farthest = np.abs(own) + reach
    change = np.outer(farthest, farthest) / (count - off) - np.abs(np.outer(own, own)) / count
    return products - np.outer(own, own) / count, noise + change


def _extremes(
    matrix: Floats, right: Floats, radius: Floats, right_radius: Floats, directions: Floats
) -> tuple[Floats, Floats]:
    """Bounds by linear programs in every orthant; infinite where one has no optimum."""
    from scipy import optimize

    k, p = directions.shape
    low, high = np.full(k, np.inf), np.full(k, -np.inf)
    for signs in itertools.product((1.0, -1.0), repeat=p):
        sign = np.array(signs)  # b = sign * u with u >= 0
        upper = np.vstack([
            matrix * sign - radius, -matrix * sign - radius, -(right * sign + right_radius),
        ])  # fmt: skip
        limits = np.concatenate([right + right_radius, -right + right_radius, [0.0]])
        size = np.abs(upper).max(axis=1)
        size[size == 0] = 1  # a row of zeros is as it is
        program = {"A_ub": upper / size[:, None], "b_ub": limits / size + _MARGIN}
        if optimize.linprog(np.zeros(p), **program, method="highs").status == _INFEASIBLE:
            continue
        for i, direction in enumerate(directions * sign):
            ends = []
            for objective in (direction, -direction):
                found = optimize.linprog(objective, **program, method="highs")
                ends.append(float(found.fun or 0.0) if found.status == _OPTIMAL else -np.inf)
            low[i], high[i] = min(low[i], ends[0]), max(high[i], -ends[1])
        if np.all(np.isinf(low)) and np.all(np.isinf(high)):
            break
    empty = low > high  # no orthant is possible: the radii do not hold
    low, high = np.where(empty, -np.inf, low), np.where(empty, np.inf, high)
    return low - _MARGIN * (1 + np.abs(low)), high + _MARGIN * (1 + np.abs(high))
