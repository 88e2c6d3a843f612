"""Limits and p-values of one parameter from draws of the noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpstats.arrays import Floats
from dpstats.checks import Alternative
from dpstats.corrected.roots import find_roots
from dpstats.spending import LEAST_OF_DRAWS

DRAWS = round(1 / LEAST_OF_DRAWS)
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

    def cdf(self, value: float) -> float:
        """H(value), which increases in the value."""
        score = (value - self.centre) / np.maximum(self.error, _LEAST_ERROR)
        tail = special.ndtr(score) if self.df is None else special.stdtr(self.df, score)
        return float(np.mean(tail))

    def limits(self, alpha: float, low: float, high: float) -> tuple[float, float]:
        """Ends where H is alpha/2 and 1 - alpha/2, within the possible values [low, high]."""
        levels = alpha / 2, 1 - alpha / 2

        def excess(values: Floats, which: NDArray[np.intp]) -> Floats:
            return np.array([
                self.cdf(v) - levels[i] for v, i in zip(values.tolist(), which, strict=True)
            ])  # fmt: skip

        ends = np.array([low, high])
        at_low, at_high = (excess(np.full(2, end), np.arange(2)) for end in ends)
        # No change of sign: the limit is beyond the possible values.
        first = find_roots(excess, np.full(2, low), np.full(2, high), tolerance=1e-12)
        found = np.where(at_low >= 0, low, np.where(at_high <= 0, high, first))
        return float(found[0]), float(found[1])

    def pvalue(self, value: float, alternative: Alternative) -> float:
        """P-value of the hypothesis that the parameter equals `value`; at least 1 / DRAWS."""
        below = self.cdf(value)
        sides = {"larger": below, "smaller": 1 - below, "two-sided": 2 * min(below, 1 - below)}
        return float(np.clip(sides[alternative], LEAST_OF_DRAWS, 1))
