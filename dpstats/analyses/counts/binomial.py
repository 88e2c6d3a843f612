"""Exact inference for one proportion from a noisy count, T = X + Z with X ~ Binomial(n, p)."""

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpstats.arrays import Floats
from dpstats.checks import Alternative, check_alternative, check_proportion
from dpstats.inference.characteristic import Inversion
from dpstats.roots import find_roots_near

if TYPE_CHECKING:
    from dpstats.privacy.laws import NoiseLaw


_TAIL = 1e-12  # mass of a law that may be ignored
_CELLS = 1 << 20  # numbers held in memory at a time
ERROR = 3e-12  # of a probability; counted towards a wider interval
_TOLERANCE = 1e-7  # of an end, in tenths of its standard error; ends are moved outwards by it
_FAR = 50.0  # a logit; that of 2e-22
_STEEP = 700.0  # a logit with which the weights of neighbours differ by more than a float holds


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

    Continuous in `t` and, where there is noise, strictly decreasing in `p`. The sum runs over the X
    within reach of the noise or over the frequencies of `Inversion`, whichever are fewer; the error
    is about 1e-12 (with a tabulated law that has atoms, 1e-5 of an atom).
    """
    from scipy import stats

    t, p = np.broadcast_arrays(np.asarray(t, dtype=np.float64), np.asarray(p, np.float64))
    shape, t, p = t.shape, t.ravel(), p.ravel()
    sizes = np.full(t.size, float(n))
    low, high, _ = binomial_window(n, p)
    inversion, d = _inversion(law), t - n * p
    nodes = inversion.nodes(d, sizes, p) if law.invertible else np.full(t.size, np.inf)
    by_frequency = nodes < (high - low + 1 if law.lattice else np.inf)  # without a table of the cdf
    cdf = np.empty(t.size)
    some = np.flatnonzero(by_frequency)
    cdf[some] = inversion.cdf(d[some], sizes[some], p[some], nodes[some])
    # beyond the reach of Z + U every X counts in full or not at all
    reach = law.support(_TAIL) + 1
    low = np.clip(np.floor(t - reach), low, high)
    high = np.clip(np.ceil(t + reach), low, high)
    order = np.flatnonzero(~by_frequency)
    order = order[np.argsort((high - low)[order])]
    while order.size:
        # cells of similar size together, so that padding stays small
        cells = (high - low + 1)[order] * np.arange(1, order.size + 1)
        some, order = np.split(order, [max(1, int(np.searchsorted(cells, _CELLS)))])
        x = low[some, None] + np.arange(np.max(high[some] - low[some]) + 1)
        weight = binomial_weights(x, n, p[some, None])
        value = law.smoothed_cdf(t[some, None] - x)
        top = np.arange(some.size), np.argmax(weight, axis=1)
        scale = binomial_pmf(x[top], n, p[some]) / weight[top]
        below = stats.binom.cdf(low[some] - 1, n, p[some])
        cdf[some] = below + scale * np.sum(weight * value, axis=1)
    return cdf.reshape(shape)


@lru_cache(maxsize=64)
def _inversion(law: "NoiseLaw") -> Inversion:
    found: dict[tuple[float, float, int], Floats] = {}

    def kept(s: Floats, p: Floats) -> Floats:
        """Most sums share their frequencies, which are few."""
        key = (s[0], s[-1], s.size)
        if key not in found:
            found[key] = law.log_characteristic(s)[np.newaxis]
        return found[key]

    return Inversion(kept, law.support(_TAIL), "lattice" if law.lattice else "uniform")


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


def proportion_interval(
    t: ArrayLike, n: int, law: "NoiseLaw", alpha: float = 0.05
) -> tuple[Floats, Floats]:
    """Exact confidence interval for p from T + U.

    F_p(T + U) is uniform under p because F_p is continuous, so {p: alpha/2 <= F_p(T + U) <=
    1 - alpha/2} covers p with probability exactly 1 - alpha (eq. 6 of
    docs/explanation/inference/shares-and-tables.md); F_p decreases in p, so this set is an
    interval. Its ends are two roots; without a lower (upper) root the end is 0 (1). A T + U outside
    [0, n] is read as the nearer end, which can only cover more: see `within_counts`.

    Awan, J. and Slavkovic, A. (2018). Differentially private uniformly most powerful tests for
    binomial data. NeurIPS.
    """
    from scipy import special

    t = within_counts(np.asarray(t, dtype=np.float64), n)
    # n - X ~ Binomial(n, 1 - p) and Z + U is symmetric
    both = np.stack([n - t, t]).ravel()

    def below(p: Floats, which: NDArray[np.intp]) -> Floats:
        return noisy_binomial_cdf(both[which], n, p, law)

    near = _normal_upper(both, n, law, alpha / 2)
    mirrored, upper = largest_logit(below, alpha / 2, *near).reshape(2, -1)
    low, high = special.expit(-mirrored), special.expit(upper)
    return low.reshape(t.shape), high.reshape(t.shape)


def within_counts(t: Floats, n: float) -> Floats:
    """Noisy counts read as the nearest one that n rows can have.

    Intervals only grow, stay nested in alpha and monotone in the count, and p-values that read it
    alike are dual to them: docs/explanation/inference/shares-and-tables.md, (5).
    """
    return np.clip(t, 0.0, n)


def largest_logit(
    tail: Callable[[Floats, NDArray[np.intp]], Floats], level: float, guess: Floats, step: Floats
) -> Floats:
    """Logits (m,) of the largest proportions whose tails are at least a level, outwards."""
    from scipy import special

    score = special.ndtri(max(level, _TAIL))

    def excess(y: Floats, which: NDArray[np.intp]) -> Floats:
        """Normal score of the probability, which is nearly linear in the logit."""
        tails = tail(special.expit(y), which) + ERROR
        return np.asarray(special.ndtri(np.clip(tails, _TAIL, 1 - _TAIL)) - score)

    far, tolerance = np.full(guess.size, _FAR), _TOLERANCE * step
    return find_roots_near(excess, guess, step, -far, far, tolerance=tolerance) + tolerance


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
    row). "two-sided" is twice the smaller one, at most 1, of a T + U read within [0, n]: the dual
    of `proportion_interval`. It is uniform too, but for larger ones outside; see `within_counts`.

    Awan and Slavkovic (2018), as in `proportion_interval`.
    """
    p0, alternative = check_proportion(p0), check_alternative(alternative)
    t = np.asarray(t, dtype=np.float64)
    if alternative == "two-sided":
        t = within_counts(t, n)
    if alternative == "smaller":
        return noisy_binomial_cdf(t, n, p0, law)
    larger = noisy_binomial_cdf(n - t, n, 1 - p0, law)
    if alternative == "larger":
        return larger
    smaller = noisy_binomial_cdf(t, n, p0, law)
    return np.asarray(np.minimum(1, 2 * np.minimum(larger, smaller)), dtype=np.float64)
