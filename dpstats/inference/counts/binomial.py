"""Exact inference for one proportion from a noisy count, T = X + Z with X ~ Binomial(n, p)."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpstats.arrays import Floats
from dpstats.checks import (
    Alternative,
    check_alpha,
    check_alternative,
    check_count,
    check_finite,
    check_proportion,
)
from dpstats.corrected.roots import find_roots_near

if TYPE_CHECKING:
    from dpstats.privacy.laws import NoiseLaw


_TAIL = 1e-12  # mass of a law that may be ignored
_NODES_PER_SD = 64  # wide lattices are summed with strides of at most this part of a sd
_CELLS = 1 << 20  # numbers held in memory at a time
_OUTSIDE = 30.0  # standard deviations of the noise below 0 and above n that nodes cover
_SMOOTH_SD = 64.0  # of a noise whose lattice no longer shows in the ends
_STEEP = 700.0  # a logit with which the weights of neighbours differ by more than a float holds
_CDF_COST = 16  # a binomial cdf costs about as much as this many probabilities


def binomial_window(n: ArrayLike, p: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Integers outside which a Binomial(n, p) has mass below 1e-12, and its sd.

    Bernstein: P(|X - np| > h) <= 2 exp(-h^2 / (2 (np(1-p) + h/3))); h solves equality.
    """
    n, p = np.asarray(n, dtype=np.float64), np.asarray(p, dtype=np.float64)
    variance = n * p * (1 - p)
    third = np.log(2 / _TAIL) / 3
    reach = third + np.sqrt(third**2 + 6 * third * variance)
    low = np.maximum(0, np.floor(n * p - reach))
    high = np.minimum(n, np.ceil(n * p + reach))
    return low, high, np.sqrt(variance)


def noisy_binomial_cdf(t: ArrayLike, n: int, p: ArrayLike, law: "NoiseLaw") -> Floats:
    """P(X + Z + U <= t) for X ~ Binomial(n, p), Z ~ `law`, U uniform on (-1/2, 1/2).

    Continuous in `t` and, where there is noise, strictly decreasing in `p`: X is stochastically
    increasing in p and Z + U does not depend on it.

    Parameters
    ----------
    t, p : array_like, broadcast together
        Thresholds in counts (any real number) and proportions in [0, 1].
    n : int
        Number of rows, at least 1.
    law : NoiseLaw
        Law of the noise in counts.

    Returns
    -------
    float64 array of the broadcast shape

    Notes
    -----
    The sum runs over X, or over Z where that has fewer terms, and drops mass 1e-12. A stride
    above 1 is used only where both X and Z have a standard deviation above 128; it is at most
    w = 1/64 of the smaller one. Peano's form of the trapezoidal rule bounds its error by
    w^3 sqrt(3)/216 times the variation of the second derivative of the summand, below 1e-6
    (about 1e-8 in practice).
    """
    t, p = np.broadcast_arrays(np.asarray(t, dtype=np.float64), np.asarray(p, np.float64))
    shape, t, p = t.shape, t.ravel(), p.ravel()
    low, high, sd = binomial_window(n, p)
    stride = np.floor(np.minimum(sd, np.sqrt(law.variance)) / _NODES_PER_SD)
    stride = np.maximum(1, stride)
    reach = law.support(_TAIL)
    over_z = law.lattice & (_CDF_COST * (2 * reach + 1) < high - low + 1)
    nodes = np.where(over_z, 2 * (reach // stride) + 1, (high - low) // stride + 1).astype(int)
    cdf = np.empty(t.size)
    order = np.lexsort((nodes, over_z))
    while order.size:
        # cells of one kind and of similar size together, so that padding stays small
        fit = int(np.searchsorted(nodes[order] * np.arange(1, order.size + 1), _CELLS))
        size = max(1, min(fit, int(np.sum(over_z[order] == over_z[order[0]]))))
        some, order = order[:size], order[size:]
        steps = np.arange(nodes[some].max())
        w = stride[some, None]
        if over_z[some[0]]:
            z = w * (steps - steps.size // 2)
            weight = law.pmf(z)
            value = smoothed_binomial_cdf(t[some, None] - z, n, p[some, None])
        else:
            x = low[some, None] + w * steps
            weight = binomial_weights(x, n, p[some, None])
            value = law.smoothed_cdf(t[some, None] - x)
        cdf[some] = np.sum(weight * value, axis=1) / np.sum(weight, axis=1)
    return cdf.reshape(shape)


def binomial_pmf(x: Floats, n: Floats | int, p: Floats) -> Floats:
    """P(X = x) for X ~ Binomial(n, p); arguments broadcast."""
    from scipy import stats

    return np.asarray(stats.binom.pmf(x, n, p), dtype=np.float64)


def binomial_weights(x: Floats, n: Floats | int, p: Floats) -> Floats:
    """Probabilities of rows of equally spaced integers x (rows, d), each row up to a factor.

    Rows of neighbours by sums of the logarithms of P(X = x + 1) / P(X = x), which is
    (n - x) / (x + 1) p / (1 - p): only rounding errors, in a third of the time.
    """
    from scipy import special

    if x.shape[1] > 1 and np.any(x[:, 1] - x[:, 0] > 1):
        return binomial_pmf(x, n, p)
    with np.errstate(divide="ignore"):
        logit = np.clip(special.logit(p), -_STEEP, _STEEP)
        ratios = np.log(np.maximum(n - x[:, :-1], 0) / (x[:, :-1] + 1)) + logit
    logs = np.cumsum(np.pad(ratios, ((0, 0), (1, 0))), axis=1)
    return np.asarray(np.exp(logs - logs.max(axis=1, keepdims=True)))


def smoothed_binomial_cdf(t: Floats, n: Floats | int, p: Floats) -> Floats:
    """P(X + U <= t) for X ~ Binomial(n, p), U uniform on (-1/2, 1/2); arguments broadcast."""
    from scipy import stats

    k = np.floor(t + 0.5)
    below = np.asarray(stats.binom.cdf(k - 1, n, p), dtype=np.float64)
    return below + binomial_pmf(k, n, p) * (t + 0.5 - k)


def proportion_interval(
    t: ArrayLike, n: int, law: "NoiseLaw", alpha: float = 0.05
) -> tuple[Floats, Floats]:
    """Exact equal-tailed confidence interval for p from T + U.

    F_p(T + U) is uniform under p because F_p is continuous, so {p: alpha/2 <= F_p(T + U) <=
    1 - alpha/2} covers p with probability exactly 1 - alpha; F_p decreases in p, so this set is
    an interval. Its ends are two roots; without a lower (upper) root the end is 0 (1), and an
    empty set becomes the nearer of 0 and 1, which can only cover more.

    Parameters
    ----------
    t : array_like
        Measured noisy counts plus their stored uniforms, T + U.
    n : int
        Number of rows, at least 1.
    law : NoiseLaw
        Law of Z, in counts. Without noise this is the randomised binomial interval.
    alpha : float
        Error probability, in (0, 1/2].

    Returns
    -------
    low, high : float64 arrays of the shape of `t`, in [0, 1]

    Raises
    ------
    RequestError
        If `alpha` or `n` is out of range, or `t` is not finite.

    References
    ----------
    Awan, J. and Slavkovic, A. (2018). Differentially private uniformly most powerful tests for
    binomial data. NeurIPS.
    """
    from scipy import special

    alpha, n, t = check_alpha(alpha), check_count(n), check_finite("t", t)
    # n - X ~ Binomial(n, 1 - p) and Z + U is symmetric
    mirrored, upper = _logit_upper(np.stack([n - t, t]).ravel(), n, law, alpha / 2).reshape(2, -1)
    low, high = special.expit(-mirrored), special.expit(upper)
    return low.reshape(t.shape), high.reshape(t.shape)


def many_proportion_intervals(
    t: Floats, n: int, law: "NoiseLaw", alpha: float
) -> tuple[Floats, Floats]:
    """The intervals of `proportion_interval` for many counts (d,), by cubics where that pays.

    Both ends increase with the count. Strictly between 0 and 1, less t / n, they are smooth
    functions of the count, with a length scale that is the noise's standard deviation sd near 0
    and n, and the distance to these elsewhere. They are solved exactly at nodes spaced an eighth of
    that scale; between nodes each end is the cubic through the nearest four, moved outwards by
    2 10^-4 sd / n, more than the largest error observed (1.4 10^-4 at an alpha of 1e-8). An end
    that is 0 (or 1) at all four nodes is 0 (or 1) between them, and all other ends are solved
    exactly. So is every end where the counts need as many nodes as there are counts, or the noise
    is so small that its lattice shows.
    """
    distinct, which = np.unique(t, return_inverse=True)
    sd = float(np.sqrt(law.variance))
    if sd < (_SMOOTH_SD if law.lattice else _SMOOTH_SD / 8):
        low, high = proportion_interval(distinct, n, law, alpha)
        return low[which], high[which]
    nodes = _nodes(n, sd)
    cell = np.clip(np.searchsorted(nodes, distinct, side="right") - 2, 0, nodes.size - 4)
    around = cell[:, None] + np.arange(4)
    used, index = np.unique(around, return_inverse=True)
    if used.size >= distinct.size:
        low, high = proportion_interval(distinct, n, law, alpha)
        return low[which], high[which]
    at_nodes = np.array(proportion_interval(nodes[used], n, law, alpha))
    values = at_nodes[:, index.reshape(around.shape)]
    inside = np.all((values > 0) & (values < 1), axis=2)
    level = np.all(values == values[:, :, :1], axis=2) & ~inside  # at 0 or 1 all around
    others = [np.delete(nodes[around], j, 1) for j in range(4)]
    weights = [
        np.prod((distinct[:, None] - other) / (nodes[around[:, [j]]] - other), axis=1)
        for j, other in enumerate(others)
    ]
    cubic = np.sum((values - nodes[around] / n) * np.stack(weights, axis=1), axis=2) + distinct / n
    outwards = 2e-4 * sd / n * np.array([[-1.0], [1.0]])
    ends = np.where(level, values[:, :, 0], np.clip(cubic + outwards, 0, 1))
    beyond = (distinct < nodes[0]) | (distinct > nodes[-1])
    alone = beyond | ~np.all(inside | level, axis=0)
    ends[:, alone] = proportion_interval(distinct[alone], n, law, alpha)
    return ends[0, which], ends[1, which]


def _nodes(n: int, sd: float) -> Floats:
    """Counts at which to solve: dense near 0 and n, where the ends bend most."""
    below = sd * np.arange(-_OUTSIDE, 0, 0.125)
    half = 2 * sd * np.expm1(np.arange(0, 2 * np.log1p(n / (4 * sd)), 0.125) / 2)
    nodes = np.concatenate([below, half])
    return np.unique(np.concatenate([nodes, n - nodes]))


def _logit_upper(t: Floats, n: int, law: "NoiseLaw", level: float) -> Floats:
    """Logit of the largest p with P_p(X + Z + U <= t) >= level; -inf or inf at 0 and 1."""
    from scipy import special

    def excess(y: Floats, which: NDArray[np.intp]) -> Floats:
        return noisy_binomial_cdf(t[which], n, special.expit(y), law) - level

    every = np.arange(t.size)
    infinite = np.full(t.size, np.inf)
    at_zero, at_one = excess(-infinite, every), excess(infinite, every)
    root = np.where(at_one >= 0, np.inf, -np.inf)
    inside = np.flatnonzero((at_zero > 0) & (at_one < 0))
    guess, step = _normal_upper(t[inside], n, law, level)
    reach = np.full(inside.size, 50.0)  # expit(-50) = 2e-22
    root[inside] = find_roots_near(lambda y, i: excess(y, inside[i]), guess, step, -reach, reach)
    return root


def _normal_upper(t: Floats, n: int, law: "NoiseLaw", level: float) -> tuple[Floats, Floats]:
    """Logit of the root if X + Z were normal, and a first step from there.

    The larger root p of (n p - t)^2 = z^2 (n p (1 - p) + variance of Z), z the normal quantile.
    """
    from scipy import special

    z2, v = special.ndtri(level) ** 2, law.variance + 1 / 12
    middle, square = t + z2 / 2, n + z2
    root = np.sqrt(np.maximum(middle**2 - square * (t**2 - z2 * v) / n, 0))
    p = np.clip((middle + root) / square, 0.1 / n, 1 - 0.1 / n)
    spread = np.sqrt(n * p * (1 - p) + v)
    return special.logit(p), np.minimum(0.1 * spread / (n * p * (1 - p)), 1.0)


def proportion_pvalue(
    t: ArrayLike, n: int, p0: float, law: "NoiseLaw", alternative: Alternative = "two-sided"
) -> Floats:
    """Exact p-value of p = p0 from T + U.

    F_{p0}(T + U) is uniform under p0, and so are the one-sided p-values; "larger" and "smaller" are
    uniformly most powerful among tests private at 1/scale (discrete Laplace noise, replace one
    row). "two-sided" is twice the smaller one, at most 1: the dual of `proportion_interval`, and
    uniform too.

    Parameters
    ----------
    t, n, law :
        As in `proportion_interval`.
    p0 : float
        Hypothesised proportion, in [0, 1].
    alternative : {"two-sided", "larger", "smaller"}
        "larger" is for the alternative that p is above `p0`.

    Returns
    -------
    float64 array of the shape of `t`, with an absolute error of at most 1e-6

    Raises
    ------
    RequestError
        If `p0`, `n` or `alternative` is out of range, or `t` is not finite.

    References
    ----------
    Awan and Slavkovic (2018), as in `proportion_interval`.
    """
    p0, n, alternative = check_proportion(p0), check_count(n), check_alternative(alternative)
    t = check_finite("t", t)
    if alternative == "smaller":
        return noisy_binomial_cdf(t, n, p0, law)
    larger = noisy_binomial_cdf(n - t, n, 1 - p0, law)
    if alternative == "larger":
        return larger
    smaller = noisy_binomial_cdf(t, n, p0, law)
    return np.asarray(np.minimum(1, 2 * np.minimum(larger, smaller)), dtype=np.float64)
