"""Certified bounds on the chi-square statistic of independence, for all tables in a box."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Floats
from dpstats.corrected.verdicts import CertifiedChiSquare, Verdict

_MOST_BOXES = 20_000
_MOST_ROUNDS = 60
_MOST_COLLAPSES = 8
_MOST_LEVELS = 6  # all collapses up to here, single levels and cuts of the order beyond
_GAP = 1e-3  # relative
_ROUNDING = 1e-13


def fourfold_bounds(low: Floats, high: Floats) -> tuple[float, float]:
    """Bounds on phi^2 of all 2x2 tables of proportions in a box.

    With r and c the first margins, a the first cell and d = a - rc,

        phi^2 = d^2 / (r (1 - r) c (1 - c)).

    Given (r, c) the box is an interval for d whose ends are bilinear in r and c, so that their
    extremes over a rectangle of margins are at its corners. Branch and bound over rectangles;
    what is returned is the bound over the rectangles that remain, so it holds whenever it stops.

    Parameters
    ----------
    low, high : (2, 2) float64
        Bounds on the cells' proportions; the tables have total one.

    Returns
    -------
    lower, upper : float
        In [0, 1]; (0, 1) when no table is in the box.

    References
    ----------
    Moore, R. E., Kearfott, R. B. and Cloud, M. J. (2009). Introduction to Interval Analysis,
    SIAM: extremes by branch and bound.
    """
    low, high = np.clip(low, 0, 1), np.clip(high, 0, 1)
    r, c = _margin(low, high), _margin(low.T, high.T)
    if r[0] > r[1] or c[0] > c[1] or low.sum() > 1 or high.sum() < 1:
        return 0.0, 1.0
    start = np.array([[r[0], r[1], c[0], c[1]]])
    return _bound(low, high, start, largest=False), _bound(low, high, start, largest=True)


def _margin(low: Floats, high: Floats) -> tuple[float, float]:
    """Bounds on the first row's proportion."""
    return (
        float(max(low[0].sum(), 1 - high[1].sum(), 0)),
        float(min(high[0].sum(), 1 - low[1].sum(), 1)),
    )


def _bound(low: Floats, high: Floats, boxes: Floats, *, largest: bool) -> float:
    """Upper bound on the maximum of phi^2, or lower bound on its minimum."""
    pick, sign = (max, 1) if largest else (min, -1)
    best = done = 0.0 if largest else 1.0  # value found, and bound over boxes no longer split
    for _ in range(_MOST_ROUNDS):
        bottom, top, feasible = _range(low, high, boxes)
        boxes, bounds = boxes[feasible], (top if largest else bottom)[feasible]
        best = pick([best, *_at_centres(low, high, boxes, largest=largest)])
        open_ = sign * (bounds - best) > _GAP * best + 1e-9
        done = pick([done, best, *bounds[~open_]])
        boxes, bounds = boxes[open_], bounds[open_]
        if not len(boxes) or len(boxes) > _MOST_BOXES:
            break
        boxes = _split(boxes)
    else:
        bottom, top, _ = _range(low, high, boxes)
        bounds = top if largest else bottom
    return float(np.clip(pick([done, *bounds]), 0, 1))


def _split(boxes: Floats) -> Floats:
    """Halve every rectangle along its longer side."""
    side = np.where(boxes[:, 1] - boxes[:, 0] >= boxes[:, 3] - boxes[:, 2], 0, 2)
    index = np.arange(len(boxes))
    middle = (boxes[index, side] + boxes[index, side + 1]) / 2
    first, second = boxes.copy(), boxes.copy()
    first[index, side + 1] = middle
    second[index, side] = middle
    return np.concatenate([first, second])


def _ends_of_d(low: Floats, high: Floats, r: Floats, c: Floats) -> tuple[Floats, Floats]:
    """Terms (4, ...) whose maximum is the lower, whose minimum the upper end of d at (r, c)."""
    products = np.stack([-r * c, r * (1 - c), (1 - r) * c, -(1 - r) * (1 - c)])
    shape = (4, *(1,) * r.ndim)
    lower = np.array([low[0, 0], -high[0, 1], -high[1, 0], low[1, 1]]).reshape(shape)
    upper = np.array([high[0, 0], -low[0, 1], -low[1, 0], high[1, 1]]).reshape(shape)
    return lower + products, upper + products


def _range(low: Floats, high: Floats, boxes: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Bounds on phi^2 over rectangles of margins (m, 4), and whether any table may be there."""
    r, c = boxes[:, [0, 0, 1, 1]], boxes[:, [2, 3, 2, 3]]
    lower, upper = _ends_of_d(low, high, r, c)
    d_low = lower.min(axis=-1).max(axis=0)
    d_high = upper.max(axis=-1).min(axis=0)
    v_low, v_high = np.ones(len(boxes)), np.ones(len(boxes))
    for first in (0, 2):
        ends = boxes[:, first : first + 2]
        v_low *= (ends * (1 - ends)).min(axis=1)
        inside = (ends[:, 0] < 0.5) & (ends[:, 1] > 0.5)
        v_high *= np.where(inside, 0.25, (ends * (1 - ends)).max(axis=1))
    nearest = np.maximum(np.maximum(d_low, -d_high), 0)
    furthest = np.maximum(np.abs(d_low), np.abs(d_high))
    bottom = np.where(v_high > 0, nearest**2 / np.maximum(v_high, 1e-300), 0)
    # phi is a correlation, so its square is at most one whatever the intervals say
    top = np.where(v_low > 0, furthest**2 / np.maximum(v_low, 1e-300), 1)
    return np.minimum(bottom, 1), np.minimum(top, 1), d_low <= d_high + 1e-12


def _at_centres(low: Floats, high: Floats, boxes: Floats, *, largest: bool) -> list[float]:
    """Extreme value of phi^2 at the rectangles' centres where a table exists, or nothing."""
    r, c = boxes[:, :2].mean(axis=1), boxes[:, 2:].mean(axis=1)
    lower, upper = _ends_of_d(low, high, r, c)
    d_low, d_high = lower.max(axis=0), upper.min(axis=0)
    variance = r * (1 - r) * c * (1 - c)
    kept = (d_low <= d_high) & (variance > 0)
    if not kept.any():
        return []
    d_low, d_high, variance = d_low[kept], d_high[kept], variance[kept]
    if largest:
        return [float(np.max(np.maximum(d_low**2, d_high**2) / variance))]
    nearest = np.maximum(np.maximum(d_low, -d_high), 0)
    return [float(np.min(nearest**2 / variance))]


def statistic_bounds(low: Floats, high: Floats, n: int) -> tuple[float, float]:
    """Bounds on the chi-square statistic of all R x C tables of counts in a box.

    2x2: `fourfold_bounds`. Larger: merging levels never increases the statistic (Gilula and
    Krieger 1983), so the best certified 2x2 collapse is a lower bound. Upper: the statistic is
    sum (x - m)^2 / m over cells with m = n r c, each term convex in x and in m, so its maximum is
    at a corner of their intervals; never above n (min(R, C) - 1).

    Parameters
    ----------
    low, high : (R, C) float64
        Bounds on the counts; the tables have total n.
    n : int

    Returns
    -------
    lower, upper : float

    References
    ----------
    Gilula, Z. and Krieger, A. M. (1983). The decomposability and monotonicity of Pearson's
    chi-square for collapsed contingency tables. JASA 78, 176-180.
    """
    # slightly wider, so that rounding cannot make a box of one table look empty
    low, high = np.clip(low / n - _ROUNDING, 0, 1), np.clip(high / n + _ROUNDING, 0, 1)
    if low.shape == (2, 2):
        phi = fourfold_bounds(low, high)
        return n * phi[0], n * phi[1]
    return n * _collapse_bound(low, high), n * _corner_bound(low, high)


def _collapse_bound(low: Floats, high: Floats) -> float:
    """Largest certified phi^2 among the collapses that look best at the box's centre."""
    centre = (low + high) / 2
    found = []
    for rows, columns in itertools.product(*(_groups(levels) for levels in low.shape)):
        table = _collapsed(centre, rows, columns)
        table = table / max(table.sum(), 1e-300)
        r, c = table[0].sum(), table[:, 0].sum()
        variance = r * (1 - r) * c * (1 - c)
        if variance > 0:
            found.append(((table[0, 0] - r * c) ** 2 / variance, rows, columns))
    found.sort(key=lambda entry: -entry[0])
    best = 0.0
    for _, rows, columns in found[:_MOST_COLLAPSES]:
        ends = np.clip([_collapsed(end, rows, columns) for end in (low, high)], 0, 1)
        lower, upper = ends
        if lower.sum() <= 1 <= upper.sum():
            r, c = _margin(lower, upper), _margin(lower.T, upper.T)
            box = np.array([[*r, *c]])
            best = max(best, _bound(lower, upper, box, largest=False))
    return best


def _groups(levels: int) -> list[NDArray[np.bool_]]:
    """Ways to merge levels into two groups: the levels of the first."""
    index = np.arange(levels)
    if levels <= _MOST_LEVELS:
        patterns = np.arange(1, 2 ** (levels - 1))
        return list((patterns[:, np.newaxis] >> index & 1).astype(np.bool_))
    return [index == i for i in index] + [index <= i for i in index[1:-2]]


def _collapsed(table: Floats, rows: NDArray[np.bool_], columns: NDArray[np.bool_]) -> Floats:
    by_row = np.stack([table[rows].sum(axis=0), table[~rows].sum(axis=0)])
    return np.stack([by_row[:, columns].sum(axis=1), by_row[:, ~columns].sum(axis=1)], axis=1)


def margin_bounds(low: Floats, high: Floats, axis: int, n: float) -> tuple[Floats, Floats]:
    """Bounds on the margins, sums over `axis`, of the tables of total n in a box."""
    lower, upper = low.sum(axis=axis), high.sum(axis=axis)
    return (
        np.maximum(lower, n - (high.sum() - upper)),
        np.minimum(upper, n - (low.sum() - lower)),
    )


def _corner_bound(low: Floats, high: Floats) -> float:
    """Upper bound on phi^2 by the corners of every cell's intervals."""
    most = float(min(low.shape) - 1)
    r, c = margin_bounds(low, high, 1, 1.0), margin_bounds(low, high, 0, 1.0)
    m_low, m_high = np.outer(r[0], c[0]), np.outer(r[1], c[1])
    if np.any(m_low <= 0) or np.any(m_high < m_low):
        return most
    corners = [(x - m) ** 2 / m for x in (low, high) for m in (m_low, m_high)]
    return min(most, float(np.max(corners, axis=0).sum()))


LEAST_EXPECTED = 5


def independence_verdict(
    low: Floats, high: Floats, sizes: tuple[int, int], alpha: float, beta: float
) -> CertifiedChiSquare:
    """Three-way verdict on Pearson's statistic of the private table, summed over strata.

    With probability 1 - beta the private table lies in the box, so its statistic lies between the
    bounds; that part holds in finite samples, for any data. The critical value is the chi-square
    quantile at alpha - beta, an asymptotic one (the margins are unknown); so there is a verdict
    only where every expected count is certified to be at least five (Cochran 1954).

    Parameters
    ----------
    low, high : (K, R, C) float64
        Bounds on the counts of K strata, not negative.
    sizes : (int, int)
        Bounds on the number of rows, equal where it is public.
    alpha, beta : float
        Total error, and its share that the box and the sizes use.

    References
    ----------
    Cochran, W. G. (1954). Some methods for strengthening the common chi-square tests. Biometrics
    10, 417-451.
    """
    from scipy import special

    strata, rows, columns = low.shape
    critical = float(special.chdtri(strata * (rows - 1) * (columns - 1), alpha - beta))
    lower, upper, least_expected = 0.0, 0.0, np.inf
    for k in range(strata):
        size_low, size_high = _total(low, high, k, sizes)
        if size_low <= 0 or size_low > size_high:
            least_expected, upper = 0.0, upper + size_high * (min(rows, columns) - 1)
            continue
        # Shares of a stratum of unknown size t: the statistic is t phi^2 of the shares.
        ends = low[k] / size_high, high[k] / size_low
        phi = statistic_bounds(*ends, 1)
        lower, upper = lower + size_low * phi[0], upper + size_high * phi[1]
        by_row = margin_bounds(*ends, axis=1, n=1.0)[0].min()
        by_column = margin_bounds(*ends, axis=0, n=1.0)[0].min()
        least_expected = min(least_expected, size_low * max(by_row, 0) * max(by_column, 0))
    verdict: Verdict = "inconclusive"
    reason = ""
    if lower > critical or upper <= critical:
        if least_expected >= LEAST_EXPECTED:
            verdict = "reject" if lower > critical else "accept"
        else:
            reason = (
                f"expected counts of {LEAST_EXPECTED} are not certain, which the chi-square "
                "critical value needs"
            )
    return CertifiedChiSquare(verdict, lower, upper, critical, alpha, beta, sizes, reason)


def _total(low: Floats, high: Floats, k: int, sizes: tuple[int, int]) -> tuple[float, float]:
    """Bounds on the size of stratum k; the lower may pass the upper where no table is possible."""
    lower, upper = low.sum(axis=(1, 2)), high.sum(axis=(1, 2))
    return (
        float(max(lower[k], sizes[0] - (upper.sum() - upper[k]), 0)),
        float(max(min(upper[k], sizes[1] - (lower.sum() - lower[k])), 0)),
    )
