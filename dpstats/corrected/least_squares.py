"""Bounds on least-squares coefficients from moments, or equations, known to within radii."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpstats.arrays import Floats
from dpstats.checks import check_alpha, check_counts, check_finite
from dpstats.error_rates import bonferroni, check_beta
from dpstats.errors import RequestError

MOST_UNKNOWNS = 10  # beyond it only the bound by the spectral radius
MOST_ORTHANTS = 64
MOST_SLOPES = 5  # of `half_line_bounds`, in 32 orthants
_ROUNDING = 2.0**-50  # of every entry, as given and as the equations are solved
_SINGULAR = 1e-12  # relative, of an eigenvalue
_MARGIN = 1e-7  # linear programs are solved to this tolerance
_OPTIMAL, _INFEASIBLE = 0, 2


def solution_bounds(
    matrix: Floats, right: Floats, radius: Floats, right_radius: Floats, directions: Floats
) -> tuple[Floats, Floats]:
    """Smallest and largest h'b (k,) over all b with A b = c, for every A and c within the radii.

    Infinite where the bounds admit a singular matrix, or that cannot be excluded; h are the rows of
    `directions` (k, p). By eq. 10 of docs/explanation/regression/ols.md, and by linear programs
    over the solutions (eq. 9; Oettli and Prager 1964, Numer. Math. 6, 405-409) in the orthants from
    that of the centre on to those that they touch: if that part is bounded there is no other
    (Jansson 1997, Linear Algebra Appl. 251, 321-340). Radii also hold the rounding of the entries
    and of the solver.
    """
    k, p = directions.shape
    low, high = np.full(k, -np.inf), np.full(k, np.inf)
    try:
        inverse = np.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        return low, high
    centre = inverse @ right
    if not np.all(np.isfinite(centre)):
        return low, high
    exact = not (np.any(radius > 0) or np.any(right_radius > 0))
    radius = radius + p * _ROUNDING * np.abs(matrix)
    right_radius = right_radius + p * _ROUNDING * np.abs(right)
    growth = np.abs(inverse) @ radius
    first = np.abs(inverse) @ (radius @ np.abs(centre) + right_radius)
    largest = np.abs(centre) + first
    if np.max(np.abs(np.linalg.eigvals(growth))) < 1 - _MARGIN:
        largest = np.abs(centre) + np.linalg.solve(np.eye(p) - growth, first)
        reach = np.abs(directions @ inverse) @ (radius @ largest + right_radius)
        low, high = directions @ centre - reach, directions @ centre + reach
    if p <= MOST_UNKNOWNS and not exact:
        # The solver's tolerances are absolute: unknowns and directions of size one.
        unit = np.where(largest > 0, largest, 1.0)
        scaled = directions * unit
        size = np.maximum(np.abs(scaled).max(axis=1), 1e-300)
        scaled /= size[:, None]
        sharp = _by_orthants(matrix * unit, right, radius * unit, right_radius, scaled, centre)
        if sharp is not None:
            low, high = np.maximum(low, size * sharp[0]), np.minimum(high, size * sharp[1])
    return low, high


def _by_orthants(
    matrix: Floats, right: Floats, radius: Floats, right_radius: Floats, directions: Floats,
    centre: Floats,
) -> tuple[Floats, Floats] | None:  # fmt: skip
    """Bounds by linear programs in the orthants that solutions reach, or None."""
    p = len(right)
    start = tuple(np.where(centre < 0, -1, 1).tolist())
    waiting, seen = [start], {start}
    low, high = np.full(len(directions), np.inf), np.full(len(directions), -np.inf)
    while waiting:
        signs = waiting.pop()
        minima = _extremes(signs, matrix, right, radius, right_radius, directions)
        if minima is None:
            return None
        low = np.minimum(low, minima[p + 1 :: 2])
        high = np.maximum(high, -minima[p + 2 :: 2])
        for j in np.flatnonzero(minima[:p] <= _MARGIN):
            other = (*signs[:j], -signs[j], *signs[j + 1 :])
            if other not in seen:
                if len(seen) >= MOST_ORTHANTS:
                    return None
                seen.add(other)
                waiting.append(other)
    slack = _MARGIN * (1 + np.maximum(np.abs(low), np.abs(high)))
    return low - slack, high + slack


def _extremes(
    signs: tuple[int, ...], matrix: Floats, right: Floats, radius: Floats, right_radius: Floats,
    directions: Floats,
) -> Floats | None:  # fmt: skip
    """Minima over the solutions in one orthant: |b_j| for every j, -sum |b_j|, h'b and -h'b.

    They share one linear program, each with its own unknowns. None where one of them has no
    minimum.
    """
    from scipy import optimize, sparse

    sign = np.array(signs, dtype=np.float64)
    upper, limits = _orthant(sign, matrix, right, radius, right_radius)
    objectives = [*np.eye(len(sign)), -np.ones(len(sign))]
    for direction in directions:
        objectives += [direction * sign, -direction * sign]
    unlike, which = np.unique(np.array(objectives) + 0.0, axis=0, return_inverse=True)
    blocks: Any = sparse.block_diag([upper] * len(unlike), format="csc")
    solved = optimize.linprog(
        unlike.ravel(), A_ub=blocks, b_ub=np.tile(limits, len(unlike)), method="highs"
    )
    if solved.status != _OPTIMAL or solved.x is None:
        return None
    least = (unlike * solved.x.reshape(unlike.shape)).sum(axis=1)
    return np.asarray(least[which.ravel()])


def _orthant(
    sign: Floats, matrix: Floats, right: Floats, radius: Floats, right_radius: Floats, *more: Floats
) -> tuple[Floats, Floats]:
    """Scaled rows and limits of the u >= 0 for which sign u is a solution."""
    upper = np.vstack([matrix * sign - radius, -matrix * sign - radius, *more])
    limits = np.concatenate([right + right_radius, -right + right_radius, np.zeros(len(more))])
    size = np.abs(upper).max(axis=1)
    size[size == 0] = 1.0
    return upper / size[:, None], limits / size


def ols(
    second_moments: ArrayLike,
    radius: ArrayLike,
    *,
    n: int | tuple[int, int] | None = None,
    alpha: float = 0.05,
    beta: float | None = None,
    intercept: bool = True,
) -> tuple[Floats, Floats]:
    """Bounds on least-squares coefficients from second moments known only to within a radius.

    Parameters
    ----------
    second_moments : (p + 1, p + 1) array_like
        Mean products of the p regressors (first the constant, for an intercept) and, last, the
        response: ``W.T @ W / k`` for synthetic rows W, or noisy answers.
    radius : float or (p + 1, p + 1) array_like
        Each entry is within this of the private rows' own, all jointly with probability at least
        1 - beta; not negative. One number holds for every entry but the constant's square, which
        is known. For synthetic rows whose numbers are scaled to [-1, 1] and whose moments were
        measured it is that of the analysis at alpha = beta,
        ``release.radius("name", alpha=beta).max``; in other units, scale it entry by entry.
    n : int, or (int, int), optional
        Number of private rows (not of synthetic ones): then the bounds are for the population,
        with a sampling part by normal theory (errors of equal variance). A tuple (low, high) bounds
        it, on the event of the radius, where it is not public; the lower end counts, since standard
        errors fall with n. Default: the bounds are for the coefficients of the private rows
        themselves, and hold for any data.
    alpha : float
        Total error probability, in (0, 1/2].
    beta : float, optional
        The probability that the radius fails, a share of `alpha`, in [0, alpha); with `n` only.
        Default: half of it, so 95% intervals need the radius that holds with probability 97.5%.
    intercept : bool
        Whether the first regressor is the constant. If its mean square has a radius, n is an
        estimate (neighbours add or remove a row), and its least value gives the fewest rows.

    Returns
    -------
    low, high : (p,) float64
        Infinite where the radius admits collinear regressors.

    Raises
    ------
    RequestError
        If an argument is out of its range.

    Notes
    -----
    See `solution_bounds` and, for the sampling part, `combination_bounds`.

    Examples
    --------
    >>> import numpy as np
    >>> import dpstats as dps
    >>> second_moments = np.array([[1, 0, 0.1], [0, 0.5, 0.2], [0.1, 0.2, 0.3]])
    >>> low, high = dps.corrected.ols(second_moments, 0.001, n=1000)
    >>> print(low.round(3), high.round(3))
    [0.066 0.351] [0.134 0.449]
    """
    alpha = check_alpha(alpha)
    beta = check_beta(alpha, beta)
    moments = check_finite("second_moments", second_moments)
    p = len(moments) - 1 if moments.ndim else 0
    if moments.shape != (p + 1, p + 1) or p < 1 or not np.allclose(moments, moments.T):
        raise RequestError("second_moments must be a symmetric square matrix, the response last")
    radii = check_finite("radius", radius, moments.shape).copy()
    if np.ndim(radius) == 0 and intercept:
        radii[0, 0] = 0.0
    if not np.all(radii >= 0):
        raise RequestError("radius must not be negative; give half the box's width")
    if n is None:
        return combination_bounds(moments, radii, np.eye(p))
    n, _ = check_counts(n)
    least = float(moments[0, 0] - radii[0, 0]) if intercept else 1.0
    rows = n, min(n, math.ceil(n * least - 1e-9))
    return combination_bounds(moments, radii, np.eye(p), rows=rows, error=alpha - beta)


def combination_bounds(
    moments: Floats,
    radii: Floats,
    directions: Floats,
    *,
    rows: tuple[int, int] | None = None,
    error: float = 0.0,
    ridge: Floats | None = None,
    extra: float = 0.0,
    bounds: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Bounds (k,) on linear combinations of coefficients, with a penalty or for a new response.

    Moments and radii are as in `ols`, entry by entry. With `rows`, their number and the fewest if
    the radii hold, bounds are for the population, and the sampling part has probability `error`.
    `ridge` (p,) is a penalty on the diagonal of the mean products, `extra` a multiple of the error
    variance to predict a new response, `bounds` (p + 1,) the largest absolute values of regressors
    and response.

    The sampling part is the t quantile times the largest standard error that the radii D admit:
    with D' the diagonal matrix of row sums of D, columns of mean square 1, A >= A0 - D', and the
    residual mean square is at most that of the centre's plus |v|'D|v|, v = (-b0, 1). With a penalty
    the variance is that plus `misfit_bound` times `largest_leverage`, or the largest squared
    residual if that is less.
    """
    from scipy import special

    p, k = len(moments) - 1, len(directions)
    penalty = np.zeros(p) if ridge is None else ridge
    penalised = bool(np.any(penalty)) and rows is not None
    gram, right = moments[:p, :p] + np.diag(penalty), moments[:p, p]
    # Under a penalty the sampling part needs the bounds of each coefficient.
    asked = np.vstack([directions, np.eye(p)]) if penalised else directions
    low, high = solution_bounds(gram, right, radii[:p, :p], radii[:p, p], asked)
    if rows is None:
        return low, high
    n, df = rows[0], min(rows) - p
    own = np.diag(gram)
    unit = np.where(own > 0, own, 1.0) ** -0.5
    least = gram - np.diag(radii[:p, :p] @ unit / unit)
    if df <= 0 or not positive_definite(least):
        return np.full(k, -np.inf), np.full(k, np.inf)
    centre = np.linalg.solve(gram, right)
    residual = np.append(-centre, 1.0)
    square = residual @ moments @ residual + np.abs(residual) @ radii @ np.abs(residual)
    variance = max(0.0, square + penalty @ centre**2) * n / df
    if penalised:
        assert bounds is not None, "a penalty needs the bounds of the columns"
        own_low, own_high = low[k:], high[k:]
        low, high = low[:k], high[:k]
        reach = np.where(penalty > 0, np.maximum(own_high - centre, centre - own_low), 0.0)
        misfit = misfit_bound(least - np.diag(penalty), penalty * centre, penalty * reach)
        misfit = min(variance, misfit)
        variance += misfit * largest_leverage(np.asarray(np.linalg.inv(least)), bounds[:p])
        largest = bounds[:p] @ np.maximum(np.abs(own_low), np.abs(own_high))
        variance = min(variance, (bounds[p] + largest) ** 2)
    leverage = np.einsum("ij,ji->i", directions, np.linalg.solve(least, directions.T))
    reach = -special.stdtrit(df, error / 2) * np.sqrt(variance * (leverage / n + extra))
    return low - reach, high + reach


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

    As `combination_bounds`, for singular matrices ("Certified half-lines" in
    docs/explanation/regression/ols.md); `constant` is which regressor is the constant. Infinite for
    directions with the constant, and beyond `MOST_SLOPES` other regressors.
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
    low[asked], high[asked] = _half_line_extremes(gram, right, radius, of_right, directions[asked])
    return low, high


def _without(moments: Floats, radii: Floats, at: int) -> tuple[Floats, Floats] | None:
    """Mean products about the means (times the number of rows), and their radii.

    |x y| / a changes most where all three are farthest in the direction that increases it.
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


def _half_line_extremes(
    matrix: Floats, right: Floats, radius: Floats, right_radius: Floats, directions: Floats
) -> tuple[Floats, Floats]:
    """Bounds by linear programs in every orthant; infinite where one has no optimum."""
    from scipy import optimize

    k, p = directions.shape
    low, high = np.full(k, np.inf), np.full(k, -np.inf)
    for signs in itertools.product((1.0, -1.0), repeat=p):
        sign = np.array(signs)
        square = -(right * sign + right_radius)  # b'c is not negative
        upper, limits = _orthant(sign, matrix, right, radius, right_radius, square)
        objectives = np.array([np.zeros(p), *(directions * sign), *(-directions * sign)])
        ends: list[float] = []
        for objective in objectives:
            solved = optimize.linprog(objective, A_ub=upper, b_ub=limits + _MARGIN, method="highs")
            if solved.status == _INFEASIBLE and not ends:
                break
            ends.append(float(solved.fun or 0.0) if solved.status == _OPTIMAL else -np.inf)
        else:
            low = np.minimum(low, ends[1 : k + 1])
            high = np.maximum(high, -np.array(ends[k + 1 :]))
            if np.all(np.isinf(low)) and np.all(np.isinf(high)):
                break
    empty = low > high  # no orthant is possible: the radii do not hold
    low, high = np.where(empty, -np.inf, low), np.where(empty, np.inf, high)
    return low - _MARGIN * (1 + np.abs(low)), high + _MARGIN * (1 + np.abs(high))


def misfit_bound(least: Floats, taken: Floats, radius: Floats) -> float:
    """Bound on the mean square of x'd, d the shrinkage by a penalty: (L b)'A^-1 (L b).

    `least` is at most A, and `taken` L b to within the radius. Infinite unless `least` is positive
    definite.
    """
    if not np.any(taken) and not np.any(radius):
        return 0.0
    if not positive_definite(least) or not np.all(np.isfinite(radius)):
        return np.inf
    inverse = np.linalg.inv(least)
    centre = inverse @ taken
    return float(taken @ centre + 2 * np.abs(centre) @ radius + radius @ np.abs(inverse) @ radius)


def largest_leverage(inverse: Floats, bounds: Floats) -> float:
    """Bound on x'G^-1 x over regressors of absolute values at most `bounds` (p,)."""
    return float(bounds @ np.abs(inverse) @ bounds)


def positive_definite(matrix: Floats) -> bool:
    """True if a symmetric matrix is positive definite by more than rounding, in any units."""
    own = np.diag(matrix)
    if not np.all(own > 0):
        return False
    values = np.linalg.eigvalsh(matrix / np.sqrt(np.outer(own, own)))
    return bool(values[0] > _SINGULAR * values[-1])
