"""Score test of independence for noisy tables: locally optimal, and Pearson's without noise.

Cells that cannot occur are left out: the null hypothesis is then quasi-independence, expected
counts a_r b_c on the possible cells (eq. quasi-independence of
docs/explanation/inference/zeros-and-totals.md).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Floats
from dpstats.inference.simplex import project_to_total

_LEAST_MARGIN = 0.5  # rows; an empty margin would fix a probability at zero
_LARGEST = 2_000_000  # numbers in a batch of information matrices
_MOST_ROUNDS, _CLOSE = 500, 1e-10  # of iterative proportional fitting, relative
_RANK = 1e-9


def fit_independence(tables: Floats, n: Floats | float, possible: NDArray[np.bool_]) -> Floats:
    """Expected counts under independence within strata, from noisy counts.

    The margins of the nearest non-negative tables of total n, each at least half a row so that no
    probability is fixed at zero. They are not shrunk towards equal ones where noise is large: the
    counts of a product of unequal margins would then appear to be associated.

    Parameters
    ----------
    tables : (..., K, R, C) float64
    n : (...,) float64 or float
    possible : (K, R, C) bool
        Cells that can occur; the others have expected count zero.
    """
    shape = tables.shape
    if not possible.all():
        return _fit_quasi_independence(tables, n, possible)
    n = np.asarray(n, dtype=np.float64)[..., np.newaxis]
    counts = project_to_total(tables.reshape(*shape[:-3], -1), n).reshape(shape)
    of_stratum, rows, columns = (_proportions(counts.sum(axis=axes)) for axes in ((-2, -1), -1, -2))
    product = rows[..., :, np.newaxis] * columns[..., np.newaxis, :]
    scale = n * of_stratum
    return np.asarray(scale[..., np.newaxis, np.newaxis] * product)


def _fit_quasi_independence(
    tables: Floats, n: Floats | float, possible: NDArray[np.bool_]
) -> Floats:
    """Products of row and column factors that have the margins of the nearest possible tables.

    By iterative proportional fitting, which converges since these margins are those of a table. A
    level of less than half a row gets half a row, spread over its possible cells.
    """
    n = np.asarray(n, dtype=np.float64)[..., np.newaxis]
    counts = np.zeros(tables.shape)
    counts[..., possible] = project_to_total(tables[..., possible], n)
    for axis in (-1, -2):
        cells = np.maximum(possible.sum(axis=axis, keepdims=True), 1)
        lacking = np.maximum(_LEAST_MARGIN - counts.sum(axis=axis, keepdims=True), 0)
        counts += lacking / cells * possible
    counts *= n[..., np.newaxis, np.newaxis] / counts.sum(axis=(-3, -2, -1), keepdims=True)
    rows, columns = counts.sum(axis=-1, keepdims=True), counts.sum(axis=-2, keepdims=True)
    expected = np.broadcast_to(possible, counts.shape).astype(np.float64)
    for _ in range(_MOST_ROUNDS):
        expected = expected * _ratio(rows, expected.sum(axis=-1, keepdims=True))
        expected = expected * _ratio(columns, expected.sum(axis=-2, keepdims=True))
        off = np.abs(expected.sum(axis=-1, keepdims=True) - rows)
        if np.all(off <= _CLOSE * np.maximum(rows, 1)):
            break
    return expected


def _ratio(wanted: Floats, margin: Floats) -> Floats:
    """Ratio of two margins, zero for a level without possible cells."""
    return np.divide(wanted, margin, out=np.zeros_like(margin), where=margin > 0)


def degrees_of_freedom(possible: NDArray[np.bool_]) -> int:
    """Degrees of freedom of an association common to all strata, on possible cells (K, R, C)."""
    return len(_free_cells(possible))


def _free_cells(possible: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Cells whose changes, together with those of the margins, give every change of a table.

    They are numbered in C order. If all cells are possible, these are all but the last row and
    column; otherwise a largest independent set of the columns of the summed projections
    (docs/explanation/inference/zeros-and-totals.md, section "Quasi-independence").
    """
    rows, columns = possible.shape[-2:]
    if possible.all():
        return np.arange(rows * columns).reshape(rows, columns)[:-1, :-1].ravel()
    from scipy import linalg

    levels = np.zeros((rows * columns, rows + columns))
    row_of, column_of = np.divmod(np.arange(rows * columns), columns)
    levels[np.arange(rows * columns), row_of] = 1
    levels[np.arange(rows * columns), rows + column_of] = 1
    interactions = np.zeros((rows * columns, rows * columns))
    for mask in possible.reshape(-1, rows * columns):
        inside = levels * mask[:, np.newaxis]
        interactions += np.diag(mask.astype(np.float64)) - inside @ np.linalg.pinv(inside)
    _, triangle, order = linalg.qr(interactions, mode="economic", pivoting=True)
    rank = int(np.sum(np.abs(np.diag(triangle)) > _RANK))
    return np.sort(order[:rank])


def quasi_residual_variances(expected: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """Variances (d,) of the residuals from quasi-independence by sampling and by noise.

    With N the indicators of rows and columns of each stratum and E = diag(expected), a change of
    the counts changes the residuals by M = I - E N (N' E N)^- N' times it. Sampling has covariance
    E up to changes of the margins, which M removes.

    Parameters
    ----------
    expected : (K, R, C) float64
        Zero in cells that cannot occur. Variances are nan where the margins determine a cell.
    noise : (d, d) float64
        Covariance of the noise on the cells, in C order.
    """
    strata, rows, columns = np.indices(expected.shape).reshape(3, -1)
    d, (_, most_rows, most_columns) = expected.size, expected.shape
    levels = np.zeros((d, expected.shape[0], most_rows + most_columns))
    levels[np.arange(d), strata, rows] = levels[np.arange(d), strata, most_rows + columns] = 1
    inside = levels.reshape(d, -1)
    weighted = expected.ravel()[:, np.newaxis] * inside
    moved = np.eye(d) - weighted @ np.linalg.pinv(inside.T @ weighted, hermitian=True) @ inside.T
    sampling = moved**2 @ expected.ravel()
    # Nothing varies in a cell that its margins determine.
    sampling[sampling <= _RANK * expected.ravel()] = np.nan
    return sampling, np.asarray(np.sum((moved @ noise) * moved, axis=1))


def fit_even_independence(
    tables: Floats, n: Floats | float, noise: Floats, possible: NDArray[np.bool_]
) -> Floats:
    """Fit independence with margins shrunk towards equal ones by the noise's share of their spread.

    Where noise exceeds their spread the margins of `fit_independence` are too uneven; see James and
    Stein (1961), Estimation with quadratic loss, Proc. Fourth Berkeley Symposium 1, 361-379.
    """
    expected = fit_independence(tables, n, possible)
    for axes in ((-2, -1), (-1,), (-2,)):
        margin = expected.sum(axis=axes, keepdims=True)
        last = tuple({-3, -2, -1} - set(axes)) if len(axes) == 2 else (-2 if axes == (-1,) else -1,)
        equal = margin.mean(axis=last, keepdims=True)
        spread = np.sum((margin - equal) ** 2, axis=last, keepdims=True)
        size = margin.shape[last[0]]
        excess = noise.sum(axis=axes, keepdims=True).sum(axis=last, keepdims=True) * (1 - 1 / size)
        kept = np.maximum(1 - excess / np.maximum(spread, np.maximum(excess, 1e-12)), 0)
        even = np.where(excess > 0, equal + kept * (margin - equal), margin)
        expected = expected * _ratio(even, margin)
    return np.asarray(expected)


def _proportions(margin: Floats) -> Floats:
    """Positive proportions of a margin (..., L)."""
    counts = np.maximum(margin, _LEAST_MARGIN)
    return np.asarray(counts / counts.sum(axis=-1, keepdims=True))


def score_statistic(
    tables: Floats,
    expected: Floats,
    scales: Floats,
    other_variance: Floats,
    possible: NDArray[np.bool_] | None = None,
) -> Floats:
    """Efficient score statistic of independence, one number per set of strata.

    A noisy count deviates from its expected count by N(0, expected + other_variance) plus a
    Laplace variable of known scale. Shifts of the mean have score psi and information I; with
    J = diag(e^2 I) and N the indicators of rows and columns, changes of the margins are projected
    out, so the errors of the fit do not enter to first order:

        u = e psi - J N (N' J N)^-1 N'(e psi),    V = J - J N (N' J N)^-1 N' J.

    One stratum: u' V^- u over all interactions, without noise Pearson's statistic. Several: the
    association is assumed common to them: u and V are summed over strata first, V with factors
    n_k / (n_k - 1), and without noise this is the (generalised) Cochran-Mantel-Haenszel statistic.
    Simulation calibrates it in every case. Sums are over the `possible` cells (K, R, C), by default
    all; without some of them inverses are generalised ones.

    Rao, C. R. (1948). Large sample tests of statistical hypotheses concerning several parameters
    with applications to problems of estimation. Proc. Cambridge Phil. Soc. 44, 50-57.
    van der Vaart, A. W. (1998). Asymptotic Statistics, Section 25.4 (efficient scores).
    Landis, J. R., Heyman, E. R. and Koch, G. G. (1978). Average partial association in three-way
    contingency tables. Int. Stat. Review 46, 237-254.
    """
    if possible is None:
        possible = np.ones(expected.shape[-3:], np.bool_)
    deviation = np.sqrt(np.where(possible, expected, 1.0) + other_variance)
    pull = expected * noisy_score(tables - expected, deviation, scales)
    mass = expected**2 * noisy_information(deviation, scales)
    if expected.shape[-3] > 1:
        return _common_association(pull, mass, expected.sum(axis=(-2, -1)), possible)
    total = np.sum(pull**2 / np.where(possible, mass, 1.0), axis=(-2, -1))
    side = _margins(pull)
    changes = _margin_changes(mass, side[..., np.newaxis], possible)
    explained = np.sum(side * changes[..., 0], axis=-1)
    return np.asarray(np.maximum(total - explained, 0).sum(axis=-1))


def _margins(table: Floats) -> Floats:
    """Sums (..., R + C - 1) over rows and columns, without the last column, which is redundant."""
    return np.concatenate([table.sum(axis=-1), table.sum(axis=-2)[..., :-1]], axis=-1)


def _margin_changes(mass: Floats, side: Floats, possible: NDArray[np.bool_]) -> Floats:
    """(N' J N)^-1 side, for J = diag(mass) (..., R, C) and side (..., R + C - 1, m)."""
    rows, columns = mass.shape[-2:]
    size = rows + columns - 1
    gram = np.zeros((*mass.shape[:-2], size, size))
    diagonal = _margins(mass)
    gram[..., np.arange(size), np.arange(size)] = diagonal
    gram[..., :rows, rows:] = mass[..., :-1]
    gram[..., rows:, :rows] = np.swapaxes(mass[..., :-1], -1, -2)
    # Ones on the diagonal, for rare and common levels together.
    unit = 1 / np.sqrt(np.where(diagonal > 0, diagonal, np.inf))
    gram = gram * unit[..., np.newaxis] * unit[..., np.newaxis, :]
    if possible.all():
        changes = np.linalg.solve(gram, side * unit[..., np.newaxis])
    else:  # singular where possible cells form separate tables
        changes = np.linalg.pinv(gram, rcond=_RANK, hermitian=True) @ (side * unit[..., np.newaxis])
    return np.asarray(changes * unit[..., np.newaxis])


def _common_association(
    pull: Floats, mass: Floats, sizes: Floats, possible: NDArray[np.bool_]
) -> Floats:
    """Quadratic form of the interactions summed over strata, (...,)."""
    shape = pull.shape
    rows, columns = shape[-2:]
    free = _free_cells(possible)
    interactions = len(free)
    if not interactions:
        return np.zeros(shape[:-3])
    # J N on the interactions: every cell's mass in its row's and in its column's change.
    row_of, column_of = np.divmod(free, columns)
    touches = np.zeros((rows + columns, interactions))
    touches[row_of, np.arange(interactions)] = 1
    touches[rows + column_of, np.arange(interactions)] = 1
    touches = touches[:-1]  # the last column is redundant
    pull = pull.reshape(-1, *shape[-3:])
    mass, sizes = mass.reshape(pull.shape), sizes.reshape(-1, shape[-3])
    correction = np.maximum(sizes, 2) / (np.maximum(sizes, 2) - 1)
    statistics = np.empty(len(pull))
    step = max(1, _LARGEST // (shape[-3] * interactions**2))
    for start in range(0, len(pull), step):
        part = slice(start, start + step)
        own = mass[part].reshape(*mass[part].shape[:2], -1)[..., free]
        moved = _margin_changes(mass[part], touches * own[..., np.newaxis, :], possible)
        score = pull[part].reshape(*own.shape[:2], -1)[..., free]
        score = score - np.einsum("...ni,...n->...i", moved, _margins(pull[part]))
        moved = own[..., np.newaxis] * (np.swapaxes(touches, -1, -2) @ moved)
        information = own[..., np.newaxis] * np.eye(interactions) - moved
        score = score.sum(axis=1)
        information = np.einsum("bk,bkij->bij", correction[part], information)
        diagonal = np.diagonal(information, axis1=1, axis2=2)
        unit = 1 / np.sqrt(np.maximum(diagonal, 1e-300))
        information = information * unit[:, :, np.newaxis] * unit[:, np.newaxis, :]
        score = score * unit
        solved = np.linalg.solve(information, score[..., np.newaxis])[..., 0]
        statistics[part] = np.sum(score * solved, axis=1)
    return np.asarray(statistics.reshape(shape[:-3]))


def cochran_mantel_haenszel(tables: Floats) -> float:
    """The textbook statistic of conditional independence, for non-negative counts (K, R, C).

    With T_k the counts less their expectation given the margins and V_k the hypergeometric
    covariance, (sum T_k)' (sum V_k)^- (sum T_k) over all but the last row and column; strata of
    less than two rows, and empty levels, contribute nothing (Landis, Heyman and Koch 1978).
    """
    sizes = tables.sum(axis=(1, 2))
    tables, sizes = tables[sizes > 1], sizes[sizes > 1]
    if not len(sizes):
        return 0.0
    rows, columns = (tables.sum(axis=axis) / sizes[:, np.newaxis] for axis in (2, 1))
    expected = sizes[:, np.newaxis, np.newaxis] * rows[:, :, np.newaxis] * columns[:, np.newaxis]
    excess = (tables - expected).sum(axis=0)[:-1, :-1].ravel()
    covariance = sum(
        n**2 / (n - 1) * np.kron(_multinomial(r[:-1]), _multinomial(c[:-1]))
        for n, r, c in zip(sizes, rows, columns, strict=True)
    )
    return float(excess @ np.linalg.pinv(covariance, hermitian=True) @ excess)


def _multinomial(shares: Floats) -> Floats:
    """Covariance of the indicators of levels with these probabilities."""
    return np.asarray(np.diag(shares) - np.outer(shares, shares))


def noisy_score(x: Floats, deviation: Floats, scales: Floats) -> Floats:
    """Minus the derivative of log g, g the density of N(0, deviation^2) + Laplace(scale).

    g(x) is proportional to exp(-x^2 / (2 d^2)) (h(d/s - x/d) + h(d/s + x/d)) with
    h(z) = exp(z^2 / 2) P(N(0, 1) > z), and the score is the difference of the two over their sum,
    over s. Arguments broadcast; a scale of zero is no Laplace noise.
    """
    normal = scales <= 1e-5 * deviation
    scale = np.where(normal, deviation, scales)
    ratio, moved = deviation / scale, x / deviation
    lean = 0.5 * (_log_mills(ratio - moved) - _log_mills(ratio + moved))
    gaussian = x / (deviation**2 + 2 * scales**2)
    return np.asarray(np.where(normal, gaussian, np.tanh(lean) / scale))


def noisy_information(deviation: Floats, scales: Floats) -> Floats:
    """Fisher information of the mean under that density: between one and two over its variance."""
    log_ratio, gain = _gains()
    scale = np.maximum(scales, 1e-12 * deviation)
    gained = np.interp(np.log(deviation / scale), log_ratio, gain)
    return np.asarray(gained / (deviation**2 + 2 * scales**2))


@lru_cache(maxsize=1)
def _gains() -> tuple[Floats, Floats]:
    """Information times variance at ratios deviation / scale, by quadrature."""
    log_ratio = np.linspace(np.log(1e-3), np.log(1e3), 241)
    ratio = np.exp(log_ratio)[:, np.newaxis]
    far = np.arcsinh((10 * ratio + 40) / ratio)
    nodes = far * np.linspace(0, 1, 2001)
    x, step = ratio * np.sinh(nodes), ratio * np.cosh(nodes)
    log_density = -0.5 * (x / ratio) ** 2 + np.logaddexp(
        _log_mills(ratio - x / ratio), _log_mills(ratio + x / ratio)
    )
    weight = np.exp(log_density - log_density.max(axis=1, keepdims=True)) * step
    weight[:, 0] /= 2
    squared = noisy_score(x, ratio, np.ones_like(ratio)) ** 2
    information = (weight * squared).sum(axis=1) / weight.sum(axis=1)
    return log_ratio, information * (ratio[:, 0] ** 2 + 2)


def _log_mills(z: Floats) -> Floats:
    """Log of exp(z^2 / 2) P(N(0, 1) > z) up to a constant, stable on both sides."""
    from scipy import special

    upper = np.log(special.erfcx(np.maximum(z, -5.0) / np.sqrt(2)))
    lower = special.log_ndtr(-np.minimum(z, -5.0)) + 0.5 * z**2 + np.log(2)
    return np.asarray(np.where(z > -5, upper, lower))
