"""Certified chi-square tests, for a table known only to within a radius."""

from __future__ import annotations

import heapq
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from dpstats.arrays import Floats
from dpstats.checks import check_alpha, check_counts, check_finite, check_numbers
from dpstats.corrected.independence import independence_verdict
from dpstats.corrected.verdicts import CertifiedChiSquare, Verdict
from dpstats.error_rates import check_beta
from dpstats.errors import RequestError
from dpstats.roots import find_roots

SIMULATIONS = 19_999  # of the multinomial law, for the critical value
_FEWEST, _DRAWN_CELLS = 4_999, 5_000_000  # beyond 250 cells: least tables, and cells in total
_TAIL = 50  # least number of simulated tables in the tail
_NODES = 4_000  # boxes that the search for the maximum may look at
_TOLERANCE = 1e-9
_SIZES = 9  # numbers of rows that are tried where n is not public; the law hardly changes with n


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
    """Verdict on Pearson's statistic of a private table with counts in a box.

    Parameters
    ----------
    low, high : (d,) float64
        Bounds on the counts.
    sizes : (int, int)
        Bounds on the number of rows n, equal where it is public. Otherwise the shares are in the
        box [low / n_high, high / n_low], and n times their distance is bounded at the ends of n.
    p0 : (d,) float64
    alpha, beta : float
        Total error, and its share that the box and the sizes use.
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

    Parameters
    ----------
    lower, upper, p0 : (d,) float64
        Box inside [0, 1]. If it holds no x with sum 1, the range over all tables is returned.

    Returns
    -------
    least, most : float
        `least` is exact; `most` is exact to 1e-9 relative, or above the maximum where the search
        was cut short (many cells).
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

    At the knapsack's solution one cell at most is inside its interval; only there the chord is
    above the parabola, and there the interval is split.
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
