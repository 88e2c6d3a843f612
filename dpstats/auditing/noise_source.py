"""Tests of draws of the installed noise: the loss they prove, and whether they fit its law.

Under epsilon, P(E | D) <= exp(epsilon) P(E | D') for every event E. Under rho, whether E came is a
function of the release, so the Renyi divergence of order a of the two laws of that one bit is at
most a rho for every a > 1 (Bun and Steinke 2016). Under (epsilon, delta), P(E | D) is at most
exp(epsilon) P(E | D') + delta. Each loss grows with P(E | D) and falls with P(E | D') while the
first is larger, so Clopper-Pearson bounds of the two give a lower bound of the loss. The event is
chosen on other draws than those that it is tested on: one test, without a correction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dpstats.arrays import Floats, Integers
from dpstats.privacy.laws import POWERS, LatticeLaw, Noise

MISS = 1e-6
"""Probability that correct noise fails one of the tests."""
_ORDERS = np.geomspace(1.01, 200, 200)[:, None]  # of Renyi divergences; every order is valid
_EVENTS = 400  # thresholds among which an event is chosen
_CELL = 100  # expected draws in a cell, at least
_CELLS = 256
_POINTS = 2**14  # of the lattice at which cells may end
_WIDE = 2.0**10  # scale from which the last four bits are uniform, to 1e-5
_BITS = 16

Loss = Callable[[Floats, Floats], Floats]
"""The loss that probabilities of an event, under either table, prove."""


def epsilon_of(delta: float = 0.0) -> Loss:
    """Epsilon at a delta."""
    return lambda p, q: np.asarray(np.log(np.maximum((p - delta) / q, 1.0)))


def rho_of(p: Floats, q: Floats) -> Floats:
    """Rho, from the Renyi divergences of one bit."""
    inside = _ORDERS * np.log(p) + (1 - _ORDERS) * np.log(q)
    outside = _ORDERS * np.log1p(-p) + (1 - _ORDERS) * np.log1p(-q)
    return np.asarray((np.logaddexp(inside, outside) / (_ORDERS * (_ORDERS - 1))).max(axis=0))


def loss_of(noise: Noise) -> Loss:
    """The loss that is counted for a noise: epsilon of Laplace, rho of Gaussian noise."""
    return rho_of if noise == "gaussian" else epsilon_of()


def log_ratios(
    noisy: Integers, sums: Integers, others: Integers, scales: Floats, noise: Noise
) -> Floats:
    """Log-likelihood ratios (runs,) of noisy sums (runs, d); the normalising constants cancel."""
    power = POWERS[noise]
    here, there = ((np.abs(noisy - own) / scales) ** power for own in (sums, others))
    ratios: Floats = (there - here).sum(axis=1) / power
    return ratios.round(9)  # so that equal ratios stay equal


@dataclass(frozen=True)
class Event:
    """Event that a ratio times `sign` is at least a threshold."""

    threshold: float
    sign: int

    @classmethod
    def choose(cls, loss: Loss, here: Floats, there: Floats) -> Event:
        """The event whose proved loss is largest, for ratios of draws on either table, (runs,)."""
        best = (-1.0, 0.0, 1)
        for sign in (1, -1):
            one, other = (sign * ratios for ratios in (here, there)[::sign])
            thresholds = np.quantile(one, np.linspace(0, 1, _EVENTS), method="lower")
            losses = _proved(loss, thresholds, one, other)
            best = max(best, (float(losses.max()), float(thresholds[losses.argmax()]), sign))
        return cls(*best[1:])

    def proves(self, loss: Loss, here: Floats, there: Floats) -> float:
        """The loss that other draws prove, with confidence 1 - `MISS`."""
        one, other = (self.sign * ratios for ratios in (here, there)[:: self.sign])
        return float(_proved(loss, np.array([self.threshold]), one, other)[0])


def _proved(loss: Loss, thresholds: Floats, here: Floats, there: Floats) -> Floats:
    from scipy.stats import beta

    runs = len(here)
    hits, others = (r.size - np.searchsorted(np.sort(r), thresholds) for r in (here, there))
    with np.errstate(invalid="ignore"):  # no bound is NaN, and becomes the trivial one
        p = np.nan_to_num(beta.ppf(MISS / 2, hits, runs - hits + 1), nan=0.0)
        q = np.nan_to_num(beta.isf(MISS / 2, others + 1, runs - others), nan=1.0)
    apart = p > q
    p, q = np.where(apart, (p, q), 0.5)
    return np.where(apart, loss(p, q), 0.0)  # else nothing is proved


def fit_pvalue(draws: Integers, law: LatticeLaw) -> float:
    """P-value of integers under their exact law: chi-square in cells of 100, or binomial."""
    from scipy.stats import binomtest, chisquare

    least = min(max(_CELL, draws.size / _CELLS) / draws.size, 1.0)
    edge = law.quantile(min(2 * least, 0.999))
    points = np.unique(np.linspace(-edge - 1, edge, _POINTS).astype(np.int64))
    below, ends, last = law.cdf(points), [], 0.0
    while (i := int(np.searchsorted(below, last + least))) < len(points) and 1 - below[i] >= least:
        ends.append(i)
        last = below[i]
    if not ends:
        others = int(np.count_nonzero(draws))
        return float(binomtest(others, draws.size, float(law.tail(1))).pvalue)
    shares = np.diff(np.concatenate([[0.0], below[ends], [1.0]]))
    cells = np.searchsorted(points[ends], draws)  # the first end that is at least the draw
    counts = np.bincount(cells, minlength=len(shares))
    return float(chisquare(counts, draws.size * shares).pvalue)


def last_bits_pvalue(draws: Integers) -> float:
    """P-value of the last four bits of draws of a wide law, which are uniform unless rounded."""
    if draws.size < 2 * _CELL * _BITS:
        return 1.0
    from scipy.stats import chisquare

    return float(chisquare(np.bincount(draws % _BITS, minlength=_BITS)).pvalue)


def fits(
    noise: Integers, scales: Floats, law: Callable[[float, int], LatticeLaw],
    rng: np.random.Generator,
) -> list[float]:  # fmt: skip
    """P-values of noises (runs, d), for every scale: by themselves, and as differences.

    Differences of two functions of one release, and of two releases, have the law of a sum of two
    noises. Noise that is shared by functions, or drawn twice, does not.
    """
    pvalues = []
    for scale in np.unique(scales):
        own = noise[:, scales == scale]
        half, runs = own.shape[1] // 2, len(own) // 2 * 2
        pvalues.append(fit_pvalue(own.ravel(), law(float(scale), 1)))
        if scale >= _WIDE:
            pvalues.append(last_bits_pvalue(own.ravel()))
        differences = [own[0:runs:2] - own[1:runs:2]]
        if half:
            mixed = rng.permuted(own, axis=1)
            differences.append(mixed[:, :half] - mixed[:, half : 2 * half])
        pvalues += [fit_pvalue(one.ravel(), law(float(scale), 2)) for one in differences]
    return pvalues


def together(pvalues: Sequence[float]) -> float:
    """The smallest of several p-values, times their number: that of all of them together."""
    return min(1.0, len(pvalues) * min(pvalues, default=math.inf))
