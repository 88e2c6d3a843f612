"""Certified chi-square tests, for a table known only to within a radius."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpstats.arrays import Floats
from dpstats.checks import check_alpha, check_counts, check_finite, check_numbers
from dpstats.error_rates import check_beta
from dpstats.errors import RequestError
from dpstats.roots import find_roots

SIMULATIONS = 19_999  # of the multinomial law, for the critical value
_FEWEST, _DRAWN_CELLS = 4_999, 5_000_000  # beyond 250 cells: least tables, and cells in total
_TAIL = 50  # least number of simulated tables in the tail
_NODES = 4_000  # boxes that the search for the maximum may look at
_TOLERANCE = 1e-9
_SIZES = 9  # numbers of rows that are tried where n is not public; the law hardly changes with n
_LEAST_EXPECTED = 5  # expected count, from which the chi-square law is taken (Cochran 1954)
_MOST_BOXES = 20_000  # rectangles of margins, and halvings of them
_MOST_ROUNDS = 60
_MOST_COLLAPSES = 8
_MOST_LEVELS = 6  # all collapses up to here, single levels and cuts of the order beyond
_GAP = 1e-3  # relative, between a bound and the best table
_ROUNDING = 1e-13

Verdict = Literal["reject", "accept", "inconclusive"]


@dataclass(frozen=True)
class CertifiedChiSquare:
    """A verdict from bounds on the private table's own statistic, which hold for any data.

    For given probabilities the critical value is valid in finite samples; for independence it is
    the chi-square quantile, and there is a verdict only where it is accurate.

    Attributes
    ----------
    verdict : {"reject", "accept", "inconclusive"}
    low, high : float
        Interval for the chi-square statistic of the private table itself.
    critical : float
        The statistic rejects above it at level alpha - beta.
    alpha, beta : float
        Total error, and its share that the interval uses.
    sizes : (int, int)
        Bounds on the number of rows, equal where it is public.
    reason : str
        Why there is no verdict though the interval lies on one side of the critical value, or "".
    """

    verdict: Verdict
    low: float
    high: float
    critical: float
    alpha: float
    beta: float
    sizes: tuple[int, int]
    reason: str = ""

    def __str__(self) -> str:
        if np.isinf(self.critical):
            return f"certified at alpha = {self.alpha:g}: {self.verdict}, {self.reason}"
        return (
            f"certified at alpha = {self.alpha:g}: {self.verdict} (the statistic of the private "
            f"table is between {self.low:.2f} and {self.high:.2f}; the test rejects above "
            f"{self.critical:.2f})" + (f": {self.reason}" if self.reason else "")
        )


def chisquare(
    proportions: ArrayLike,
    radius: ArrayLike,
    n: int | tuple[int, int],
    probabilities: ArrayLike | None = None,
    *,
    alpha: float = 0.05,
    beta: float | None = None,
) -> CertifiedChiSquare:
    """Three-way chi-square test of fit or independence on proportions known to within a radius.

    With probability 1 - beta the private table lies in the box ``proportions +- radius``; then
    Pearson's statistic of the private table lies between its minimum and its maximum over the
    tables of the box, and above `critical` with probability at most alpha - beta under the null.
    So a rejection is wrong with probability at most alpha, whatever the sample size; "accept"
    says that the test on the private table itself, at level alpha - beta, would not reject.

    Parameters
    ----------
    proportions : (d,) array_like, or (R, C) or (K, R, C) to test independence (within K strata)
        Centre: shares of the cells in the synthetic rows, or noisy answers. Real numbers that
        need not sum to one exactly; they are shares of all n rows, also within strata. Counts are
        refused: a sum above 2 plus twice all radii.
    radius : float or array_like of that shape
        ``|proportions - shares in the private rows| <= radius`` for all cells at once with
        probability at least 1 - beta; not negative. For synthetic rows it is that of the analysis
        at alpha = beta: ``release.radius("name", alpha=beta).max``.
    n : int, or (int, int)
        Number of private rows (not of synthetic ones). A tuple (low, high) bounds it, on the event
        of the radius, where it is not public (neighbours add or remove a row).
    probabilities : (d,) array_like, optional
        The null hypothesis; positive, sum 1 (to 1e-9). At least two cells. Default: the null
        hypothesis is independence of rows and columns.
    alpha : float
        Total error probability, in (0, 1/2].
    beta : float, optional
        The probability that the radius fails, a share of `alpha`, in [0, alpha). Default: half of
        it, so a 5% test needs the radius that holds with probability 97.5%.

    Returns
    -------
    CertifiedChiSquare
        If no table lies in the box (its event has failed), the verdict is "inconclusive" and the
        interval holds every table.

    Raises
    ------
    RequestError
        If an argument is out of its range.

    Notes
    -----
    For given probabilities `critical` is an order statistic of 19,999 simulated tables (a fixed
    seed; more at small levels; fewer beyond 250 cells, 4,999 from 1,000 cells on), so that sparse
    tables need no chi-square approximation; the simulation moves a level of 2.5% by about 0.1%
    (0.2% with 4,999). For independence it is the asymptotic
    chi-square quantile, and there is a verdict only where every expected count is certified to be
    at least 5.

    Examples
    --------
    >>> import dpstats as dps
    >>> dps.corrected.chisquare([0.4, 0.3, 0.3], 0.01, 1000, [0.3, 0.35, 0.35]).verdict
    'reject'
    >>> dps.corrected.chisquare([[0.3, 0.2], [0.2, 0.3]], 0.005, 10_000).verdict
    'reject'
    """
    alpha, sizes = check_alpha(alpha), check_counts(n)
    beta = check_beta(alpha, beta)
    centre = check_finite("proportions", proportions)
    width = check_numbers("radius", radius)
    if not np.all(width >= 0) or width.shape not in ((), centre.shape):
        raise RequestError("radius must be one number or one per cell, not negative or missing")
    total = float(np.sum(np.broadcast_to(width, centre.shape)))
    if centre.sum() > 2 + 2 * total:  # no certificate of shares misses by that much
        raise RequestError(
            f"proportions are shares of all rows, whose sum is near 1; these sum to "
            f"{centre.sum():g}, with radii of {total:g} in all. Divide counts and radii by n"
        )
    lower, upper = np.maximum(centre - width, 0), np.minimum(centre + width, 1)
    if probabilities is None:
        if centre.ndim not in (2, 3) or min(centre.shape[-2:]) < 2:
            raise RequestError(
                f"proportions of shape {centre.shape} without probabilities: independence needs a "
                "table (R, C), or (K, R, C) with strata, of at least two rows and two columns; for "
                "goodness of fit give the probabilities"
            )
        strata = (-1, *centre.shape[-2:])
        ends = sizes[0] * lower.reshape(strata), sizes[1] * upper.reshape(strata)
        return independence_verdict(*ends, sizes, alpha, beta)
    p0 = check_probabilities(probabilities)
    if centre.shape != p0.shape:
        raise RequestError(
            f"proportions have shape {centre.shape} and probabilities {p0.shape}; give one "
            "number per cell in each"
        )
    return fit_verdict(sizes[0] * lower, sizes[1] * upper, sizes, p0, alpha, beta)


def fit_verdict(
    low: Floats, high: Floats, sizes: tuple[int, int], p0: Floats, alpha: float, beta: float
) -> CertifiedChiSquare:
    """Verdict on Pearson's statistic of a private table with counts within `low`, `high` (d,).

    The number of rows is within `sizes`: shares are in [low / n_high, high / n_low], and n times
    their distance is bounded at the ends of n. The box and the sizes use `beta` of the total error
    `alpha`.
    """
    smallest, largest = sizes
    lower, upper = np.maximum(low / largest, 0), np.minimum(high / smallest, 1)
    least, most = statistic_range(lower, upper, p0)
    least, most = smallest * least, largest * most
    tried = np.unique(np.linspace(smallest, largest, _SIZES).round().astype(int)).tolist()
    critical = max(critical_value(n, tuple(p0.tolist()), alpha - beta) for n in tried)
    verdict: Verdict = "inconclusive"
    if least > critical:
        verdict = "reject"
    elif most <= critical and most < largest * (1 / p0.min() - 1) * (1 - _TOLERANCE):
        verdict = "accept"  # and the box rules some table out
    return CertifiedChiSquare(verdict, least, most, critical, alpha, beta, sizes)


def check_probabilities(probabilities: ArrayLike) -> Floats:
    """Return probabilities (d,) float64 with sum one, or raise RequestError."""
    p = check_finite("probabilities", probabilities)
    if p.ndim != 1 or len(p) < 2:
        raise RequestError("probabilities must be a list of at least two numbers, one per cell")
    if not np.all((p > 0) & (p < 1)):
        raise RequestError(
            "probabilities must all be positive and below 1. A cell that the null hypothesis rules "
            "out has no chi-square statistic; merge it with another"
        )
    if abs(p.sum() - 1) > _TOLERANCE:
        raise RequestError(
            f"probabilities must sum to 1; these sum to {p.sum():.10g}. Divide them by their sum "
            "if they are shares that were rounded"
        )
    return np.asarray(p / p.sum())


def statistic_range(lower: Floats, upper: Floats, p0: Floats) -> tuple[float, float]:
    """Minimum and maximum of sum (x - p0)^2 / p0 over lower <= x <= upper with sum(x) = 1.

    If the box, inside [0, 1], holds no x with sum 1, the range over all tables. The minimum is
    exact; the maximum is exact to 1e-9 relative, or above it where the search was cut short (many
    cells).
    """
    if lower.sum() > 1 + _TOLERANCE or upper.sum() < 1 - _TOLERANCE or np.any(lower > upper):
        return 0.0, float(1 / p0.min() - 1)
    return _least(lower, upper, p0), _most(lower, upper, p0)


def _least(lower: Floats, upper: Floats, p0: Floats) -> float:
    """Convex: x = clip(p0 (1 + nu)) with the multiplier nu at which it sums to one."""
    if np.all((lower <= p0) & (p0 <= upper)):
        return 0.0

    def table(nu: Floats) -> Floats:
        return np.clip(p0 * (1 + nu[:, np.newaxis]), lower, upper)

    ends = np.array([-1.0]), np.array([np.max(upper / p0)])
    nu = find_roots(lambda nu, _: table(nu).sum(axis=1) - 1, *ends, tolerance=1e-16)
    (x,) = table(nu)
    # nu (sum x - 1) closes what rounding leaves between this and a dual value
    return max(0.0, float(((x - p0) ** 2 / p0).sum() - 2 * abs(nu[0] * (x.sum() - 1))))


def _most(lower: Floats, upper: Floats, p0: Floats) -> float:
    """Branch and bound: chords bound the convex terms, a fractional knapsack their sum.

    At its solution one cell at most is inside its interval: there the chord is above the parabola.
    """
    value, bound, cell, at = _knapsack(lower, upper, p0)
    best, heap, count = value, [(-bound, 0, lower, upper, cell, at)], 0
    while heap and count < _NODES:
        bound = -heap[0][0]
        if bound <= best * (1 + _TOLERANCE) + 1e-15:
            return bound
        _, _, lower, upper, cell, at = heapq.heappop(heap)
        below, above = upper.copy(), lower.copy()
        below[cell] = above[cell] = at
        for box in ((lower, below), (above, upper)):
            value, bound, inside, split = _knapsack(*box, p0)
            best, count = max(best, value), count + 1
            heapq.heappush(heap, (-bound, count, *box, inside, split))
    return max(best, -heap[0][0]) if heap else best


def _knapsack(lower: Floats, upper: Floats, p0: Floats) -> tuple[float, float, int, float]:
    """Value and bound at the best filling of the box, its inner cell and where that is."""
    slope = (lower + upper) / p0 - 2  # of the chord of (x - p0)^2 / p0
    order = np.argsort(-slope, kind="stable")
    room = (upper - lower)[order]
    rest = max(0.0, 1 - lower.sum())
    filled = np.clip(rest - (np.cumsum(room) - room), 0, room)
    x = lower.copy()
    x[order] += filled
    gap = (x - lower) * (upper - x) / p0  # of the chord above the parabola
    cell = int(np.argmax(gap))
    value = float(((x - p0) ** 2 / p0).sum())
    return value, value + float(gap.sum()), cell, float(x[cell])


@lru_cache(maxsize=64)
def critical_value(n: int, probabilities: tuple[float, ...], level: float) -> float:
    """Value that Pearson's statistic of n rows exceeds with probability at most `level`."""
    p0 = np.array(probabilities)
    expected = n * p0
    rng = np.random.default_rng(20_240_509)
    simulations = max(_simulations(len(p0)), min(10**6, int(_TAIL / level)))
    statistics = np.empty(simulations)
    step = max(1, 2_000_000 // len(p0))
    for start in range(0, simulations, step):
        size = min(step, simulations - start)
        counts = rng.multinomial(n, p0, size)
        statistics[start : start + size] = ((counts - expected) ** 2 / expected).sum(axis=1)
    # The k-th smallest of B is exceeded with probability at most (B + 1 - k) / (B + 1).
    k = int(np.ceil((1 - level) * (simulations + 1)))
    if k > simulations:  # a level below 1 / (B + 1): only what no table exceeds
        return float(n * (1 / p0.min() - 1))
    return float(np.sort(statistics)[k - 1]) * (1 + _TOLERANCE)


def _simulations(cells: int) -> int:
    """Tables to simulate; with many cells each takes long, and the statistic varies less."""
    return max(_FEWEST, min(SIMULATIONS, _DRAWN_CELLS // cells))


def fourfold_bounds(low: Floats, high: Floats) -> tuple[float, float]:
    """Bounds in [0, 1] on phi^2 of all 2x2 tables of proportions in a box; (0, 1) if it has none.

    With margins r and c, a the first cell and d = a - rc, phi^2 = d^2 / (r (1 - r) c (1 - c)).
    Given (r, c) the box is an interval for d with ends bilinear in r and c. Branch and bound over
    rectangles of margins (Moore, Kearfott and Cloud 2009, Introduction to Interval Analysis, SIAM)
    holds whenever it stops.
    """
    low, high = np.clip(low, 0, 1), np.clip(high, 0, 1)
    r, c = _first_margins(low, high)
    if r[0] > r[1] or c[0] > c[1] or low.sum() > 1 or high.sum() < 1:
        return 0.0, 1.0
    start = np.array([[r[0], r[1], c[0], c[1]]])
    return _bound(low, high, start, largest=False), _bound(low, high, start, largest=True)


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
    """Bounds on the chi-square statistic of all R x C tables of n counts in a box.

    Merging levels never increases the statistic (Gilula and Krieger 1983, JASA 78, 176-180), so the
    best certified 2x2 collapse is a lower bound. Upper: the terms (x - m)^2 / m, m = n r c, are
    convex in x and in m, so at most those at the corners of their intervals; never above n (min(R,
    C) - 1).
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
    collapses = []
    for rows, columns in itertools.product(*(_groups(levels) for levels in low.shape)):
        table = _collapsed(centre, rows, columns)
        table = table / max(table.sum(), 1e-300)
        r, c = table[0].sum(), table[:, 0].sum()
        variance = r * (1 - r) * c * (1 - c)
        if variance > 0:
            collapses.append(((table[0, 0] - r * c) ** 2 / variance, rows, columns))
    collapses.sort(key=lambda entry: -entry[0])
    best = 0.0
    for _, rows, columns in collapses[:_MOST_COLLAPSES]:
        ends = np.clip([_collapsed(end, rows, columns) for end in (low, high)], 0, 1)
        lower, upper = ends
        if lower.sum() <= 1 <= upper.sum():
            box = np.concatenate(_first_margins(lower, upper))[np.newaxis]
            best = max(best, _bound(lower, upper, box, largest=False))
    return best


def _groups(levels: int) -> list[NDArray[np.bool_]]:
    index = np.arange(levels)
    if levels <= _MOST_LEVELS:
        patterns = np.arange(1, 2 ** (levels - 1))
        return list((patterns[:, np.newaxis] >> index & 1).astype(np.bool_))
    return [index == i for i in index] + [index <= i for i in index[1:-2]]


def _collapsed(table: Floats, rows: NDArray[np.bool_], columns: NDArray[np.bool_]) -> Floats:
    by_row = np.stack([table[rows].sum(axis=0), table[~rows].sum(axis=0)])
    return np.stack([by_row[:, columns].sum(axis=1), by_row[:, ~columns].sum(axis=1)], axis=1)


def margin_bounds(
    low: Floats, high: Floats, axis: int | tuple[int, ...], n: tuple[float, float] = (1.0, 1.0)
) -> tuple[Floats, Floats]:
    """Bounds on the margins, sums over `axis`, of the tables in a box with a total within n."""
    lower, upper = low.sum(axis=axis), high.sum(axis=axis)
    return (
        np.maximum(lower, n[0] - (high.sum() - upper)),
        np.minimum(upper, n[1] - (low.sum() - lower)),
    )


def _first_margins(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Bounds (2,) on the proportions of the first row and of the first column."""
    rows, columns = (np.array(margin_bounds(low, high, axis))[:, 0] for axis in (1, 0))
    return np.clip(rows, 0, 1), np.clip(columns, 0, 1)


def _corner_bound(low: Floats, high: Floats) -> float:
    """Upper bound on phi^2 by the corners of every cell's intervals."""
    most = float(min(low.shape) - 1)
    r, c = margin_bounds(low, high, 1), margin_bounds(low, high, 0)
    m_low, m_high = np.outer(r[0], c[0]), np.outer(r[1], c[1])
    if np.any(m_low <= 0) or np.any(m_high < m_low):
        return most
    corners = [(x - m) ** 2 / m for x in (low, high) for m in (m_low, m_high)]
    return min(most, float(np.max(corners, axis=0).sum()))


def independence_verdict(
    low: Floats, high: Floats, sizes: tuple[int, int], alpha: float, beta: float
) -> CertifiedChiSquare:
    """Three-way verdict on Pearson's statistic of the private table, summed over K strata.

    Bounds on the statistic hold for any data. The critical value is the chi-square quantile, so
    there is a verdict only where every expected count is certified to be at least five (Cochran
    1954, Biometrics 10, 417-451).
    """
    from scipy import special

    strata, rows, columns = low.shape
    critical = float(special.chdtri(strata * (rows - 1) * (columns - 1), alpha - beta))
    lower, upper, least_expected = 0.0, 0.0, np.inf
    ends_of_sizes = np.maximum(margin_bounds(low, high, (1, 2), sizes), 0)
    for k, (size_low, size_high) in enumerate(ends_of_sizes.T.tolist()):
        if size_low <= 0 or size_low > size_high:
            least_expected, upper = 0.0, upper + size_high * (min(rows, columns) - 1)
            continue
        # Shares of a stratum of unknown size t: the statistic is t phi^2 of the shares.
        ends = low[k] / size_high, high[k] / size_low
        phi = statistic_bounds(*ends, 1)
        lower, upper = lower + size_low * phi[0], upper + size_high * phi[1]
        by_row, by_column = (margin_bounds(*ends, axis)[0].min() for axis in (1, 0))
        least_expected = min(least_expected, size_low * max(by_row, 0) * max(by_column, 0))
    verdict: Verdict = "inconclusive"
    reason = ""
    if lower > critical or upper <= critical:
        if least_expected >= _LEAST_EXPECTED:
            verdict = "reject" if lower > critical else "accept"
        else:
            reason = (
                f"expected counts of {_LEAST_EXPECTED} are not certain, which the chi-square "
                "critical value needs"
            )
    return CertifiedChiSquare(verdict, lower, upper, critical, alpha, beta, sizes, reason)
