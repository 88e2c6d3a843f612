"""Shares of alpha in the lower tail that make the intervals of a proportion shortest on average.

T + U has a continuous distribution function F_p that decreases in p. For any function a(p) of
public numbers, {p: a(p) <= F_p(T + U) <= 1 - alpha + a(p)} holds p with probability 1 - alpha,
since F_p(T + U) is uniform. If a rises with p the set is an interval: F_p - a(p) and F_p - a(p) -
(1 - alpha) decrease. It is never empty if a goes from 0 to alpha.

An expected width is the integral over p of the probability that p is kept (Pratt 1961). Its mean
over true proportions that are uniform is least if each p is rejected where the density of T under
p is smallest relative to its mean over all proportions. Laplace, Gaussian and binomial laws are
totally positive of every order, so what is left is an interval, with equal ratios at both ends.

References
----------
Pratt, J. W. (1961). Length of confidence intervals. Journal of the American Statistical
Association 56, 549-567.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from dpstats.arrays import Floats
from dpstats.inference.counts.binomial import Tail, noisy_binomial_cdf
from dpstats.spending import bonferroni, lower_tails

if TYPE_CHECKING:
    from dpstats.privacy.laws import NoiseLaw

_STEP = 0.2  # of the logit of p
_NOT_SEEN = 1e-3  # rows expected with a trait, too few to matter
_CELLS = 200  # of the law of T
_WIDE = 30  # sd of a count, beyond which exact sums are long
_QUANTILES = 33
_SHARES = (1 - np.cos(np.linspace(0, np.pi, 65))) / 2  # of alpha, closer to its ends
_BEYOND = 100  # one over the share of alpha outside the cells
_LEAST = 1e-6  # alpha below which densities, differences of probabilities, are not accurate
_MOST = 0.25  # alpha up to which each tail is away from the middle, as `CountPivot` needs
_PER_DOUBLING = 2  # numbers of rows, where the number is not public


@dataclass(frozen=True)
class LowerTail:
    """A share of alpha as a function of p that rises from 0, is one half at 1/2, and odd about it.

    Attributes
    ----------
    alpha : float
    logits, shares : (k,) float64
        Linear in the logit of p between these; `logits` are at most 0.
    """

    alpha: float
    logits: Floats
    shares: Floats

    def __call__(self, logits: Floats) -> Floats:
        """Error probability (r,) of the lower tail at logits of p; of the upper one at minus it."""
        share = np.interp(-np.abs(logits), self.logits, self.shares)
        return np.asarray(self.alpha * np.where(logits > 0, 1 - share, share))


def equal_tails(alpha: float) -> LowerTail:
    """Half of alpha at every p."""
    return LowerTail(alpha, np.zeros(1), np.full(1, 0.5))


@lru_cache(maxsize=512)
def shortest_tails(n: int, law: NoiseLaw, alpha: float, *, sampled: bool = True) -> LowerTail:
    """The share that makes the mean of expected widths over all proportions least.

    It is computed on a grid to a few digits, which only the width notices.

    Parameters
    ----------
    n : int
        Number of rows.
    law : NoiseLaw
        Of the noise on the count.
    alpha : float
        Error probability; the tails are equal below 1e-6 and above a quarter.
    sampled : bool
        The count is binomial; else it is n p itself, as for the private table.
    """
    from scipy import special

    if not _LEAST <= alpha <= _MOST:
        return equal_tails(alpha)
    logits = np.arange(0, _STEP - np.log(_NOT_SEEN / n), _STEP)[::-1] * -1
    p = special.expit(logits)
    edges = [_edges(n * share, n * share * (1 - share) * sampled, law, alpha) for share in p]
    t, of = np.concatenate(edges), np.repeat(p, [len(row) for row in edges])
    cdf = _cdf(t, n, of, law) if sampled else law.smoothed_cdf(t - n * of)
    ends = np.cumsum([len(row) for row in edges])[:-1]
    found = [
        _share(row, below, _mean_density(row, n, law), alpha)
        for row, below in zip(edges, np.split(cdf, ends), strict=True)
    ]
    return LowerTail(alpha, logits, np.minimum(np.maximum.accumulate(found), 0.5))


def shortest_between(sizes: tuple[int, int], law: NoiseLaw, alpha: float) -> Tail:
    """Least error probabilities of a tail at any number of rows between two.

    Every number of rows has its own share, that of the nearest power of the root of 2. A p that is
    rejected at the least of these is rejected at the true number of rows too.
    """
    first, last = (round(_PER_DOUBLING * np.log2(n)) for n in sizes)
    rounded = {round(2 ** (k / _PER_DOUBLING)) for k in range(first, last + 1)}
    tails = [shortest_tails(n, law, alpha) for n in sorted(rounded)]
    return lambda logits: np.min([tail(logits) for tail in tails], axis=0)


def _edges(mean: float, variance: float, law: NoiseLaw, alpha: float) -> Floats:
    """Edges (k,) of cells, of one or more integers, that hold T but for a small share of alpha."""
    rare = bonferroni(alpha, _BEYOND)
    third = -np.log(rare) / 3  # Bernstein, as in `binomial_window`
    reach = law.quantile(rare) + 1 + third + np.sqrt(third**2 + 6 * third * variance)
    step = np.ceil(2 * reach / _CELLS)
    return np.asarray(np.arange(np.floor(mean - reach) - 0.5, mean + reach + step, step))


def _cdf(t: Floats, n: int, p: Floats, law: NoiseLaw) -> Floats:
    """P(X + Z + U <= t), (k,); where Z is wider than a wide X, X has a few normal quantiles.

    The exact sum over X would be long there, and Z smooths it.
    """
    from scipy import special

    sd = np.sqrt(n * p * (1 - p))
    wide = (sd > _WIDE) & (law.variance > sd**2)
    cdf = np.empty(t.shape)
    cdf[~wide] = noisy_binomial_cdf(t[~wide], n, p[~wide], law)
    z = special.ndtri((np.arange(_QUANTILES) + 0.5) / _QUANTILES)
    z /= np.sqrt(np.mean(z**2))
    x = (n * p[wide])[:, np.newaxis] + sd[wide, np.newaxis] * z
    cdf[wide] = np.mean(law.smoothed_cdf(t[wide, np.newaxis] - x), axis=1)
    return cdf


def _mean_density(t: Floats, n: int, law: NoiseLaw) -> Floats:
    """The mean over a uniform p of the density of T, whose X is then uniform on 0, ..., n."""
    middle = (t[1:] + t[:-1]) / 2
    lower = np.minimum(middle, n - middle)  # symmetric; of the lower half digits are kept
    below = law.smoothed_cdf(lower + 0.5) - law.smoothed_cdf(lower - n - 0.5)
    return np.asarray(below / (n + 1))


def _share(t: Floats, cdf: Floats, mean: Floats, alpha: float) -> float:
    """Share of alpha below the region whose ends have equal ratios of densities."""
    tiny = np.finfo(float).tiny
    middle, density = (t[1:] + t[:-1]) / 2, np.diff(cdf) / np.diff(t)
    ratio = np.log(np.maximum(density, tiny)) - np.log(np.maximum(mean, tiny))
    cdf = np.maximum.accumulate(cdf)
    below = lower_tails(alpha, _SHARES)
    low, high = np.interp(below, cdf, t), np.interp(1 - alpha + below, cdf, t)
    excess = np.interp(low, middle, ratio) - np.interp(high, middle, ratio)
    return float(np.interp(0.0, np.maximum.accumulate(excess), _SHARES))
