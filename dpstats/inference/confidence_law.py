"""Limits and p-values of one parameter from draws of the noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Floats
from dpstats.checks import Alternative
from dpstats.corrected.roots import find_roots_near
from dpstats.inference.intervals import beyond_draws
from dpstats.inference.student import student_cdf
from dpstats.spending import LEAST_OF_DRAWS

DRAWS = round(1 / LEAST_OF_DRAWS)
_STEP = 1e-12  # of a probability
_LEAST_ERROR = 1e-13  # a sampling error of zero still needs a scale


@dataclass(frozen=True)
class ConfidenceLaw:
    """A mixture over draws of the noise of t (or normal) laws around the value without it.

    Draw k of the noise, subtracted from the noisy answers, gives possible answers without noise: an
    estimate, its standard error and degrees of freedom. At a value v of the parameter the mixture
    H(v) of the t probabilities of (v - centre)/error is the p-value of "the parameter is at most v"
    against larger ones. Without noise it is that of the t test; without sampling error, and where
    the centre is a ratio of noisy sums with a denominator that is positive in all draws, it is the
    exact one of Fieller's test. A draw without an estimate has an infinite error and counts one
    half against either side: with many of them H never comes near 0 or 1, and there is no limit.

    Attributes
    ----------
    centre, error : (m,) float64
        Error positive or infinite.
    df : (m,) float64 or None
        Degrees of freedom; None for normal laws.

    References
    ----------
    Fieller, E. C. (1954). Some problems in interval estimation. J. R. Statist. Soc. B 16, 175-185.
    Weerahandi, S. (1993). Generalized confidence intervals. J. Amer. Statist. Assoc. 88, 899-905.
    """

    centre: Floats
    error: Floats
    df: Floats | None = None

    @property
    def without_sampling(self) -> ConfidenceLaw:
        """The same of the rows themselves: the noise is the only error."""
        return replace(self, error=np.where(np.isfinite(self.error), 0.0, self.error))

    def cdf(self, value: float) -> float:
        """H(value), which increases in the value."""
        from scipy import special

        score = (value - self.centre) / np.maximum(self.error, _LEAST_ERROR)
        tail = special.ndtr(score) if self.df is None else student_cdf(self.df, score)
        return float(np.mean(tail))

    def limits(self, alpha: float, low: float, high: float) -> tuple[float, float]:
        """Ends where H is alpha/2 and 1 - alpha/2, within the possible values [low, high]."""
        from scipy import special

        # Where sampling errors are far below the spacing of the draws, H has steps: of a step at
        # the level the outer end is taken.
        levels = np.array([alpha / 2 - _STEP, 1 - alpha / 2 + _STEP])
        at_low, at_high = (self.cdf(end) - levels for end in (low, high))
        # No change of sign: the limit is beyond the possible values.
        ends = np.where(at_low >= 0, float(low), float(high))
        inside = np.flatnonzero((at_low < 0) & (at_high > 0))

        def short(values: Floats, which: NDArray[np.intp]) -> Floats:
            of = levels[inside[which]]
            return np.asarray(of - [self.cdf(value) for value in values.tolist()])

        # A normal law is close, unless the noise is wide or far from normal.
        spread = float(np.hypot(np.std(self.centre), np.median(self.error)))
        guess = np.median(self.centre) + special.ndtri(levels[inside]) * spread
        step = np.full(inside.size, max(0.05 * spread, _LEAST_ERROR))
        every = np.full(inside.size, low), np.full(inside.size, high)
        ends[inside] = find_roots_near(short, guess, step, *every, tolerance=1e-12)
        return float(ends[0]), float(ends[1])

    def pvalue(
        self,
        value: float,
        alternative: Alternative,
        certified: Callable[[float], tuple[float, float]] | None = None,
    ) -> float:
        """P-value of the hypothesis that the parameter equals `value`.

        At least 1 / DRAWS, unless there are `certified` limits at any alpha: see `beyond_draws`.
        """
        below = self.cdf(value)
        sides = {"larger": below, "smaller": 1 - below, "two-sided": 2 * min(below, 1 - below)}
        found = min(float(sides[alternative]), 1.0)
        if found >= LEAST_OF_DRAWS or certified is None:
            return max(found, LEAST_OF_DRAWS)
        return max(found, beyond_draws(value, alternative, certified))
