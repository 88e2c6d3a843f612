"""Limits and p-values of one parameter from draws of the noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.checks import Alternative
from dpstats.error_rates import LEAST_COMPUTED, LEAST_OF_DRAWS
from dpstats.inference.intervals import FEWEST, has_enough_draws
from dpstats.inference.mixture_tails import MixtureTails
from dpstats.roots import find_roots_near

DRAWS = round(1 / LEAST_OF_DRAWS)
BEYOND_DRAWS = (
    f"p-values below {2 * FEWEST / DRAWS:g} take the tail of the noise from its variance: an "
    "approximation, on the large side for Laplace noise"
)
_STEP = 1e-12  # of a probability
_CLOSE = 1e-10  # relative, of a limit beyond the draws
_LEAST = 1e-13  # part of the spread, for a sampling error of zero
_NEGLIGIBLE = 1e-6  # part of noise in a variance
_FARTHEST = 1e9  # spreads; an end beyond is infinite


@dataclass(frozen=True)
class ConfidenceLaw(Cached):
    """A mixture over draws of the noise of t (or normal) laws around the value without it.

    H of eq. mixture in docs/explanation/inference/intervals.md. Fewer than `FEWEST` draws lie
    beyond a level of a thousandth: what the noise adds there to a normal tail is that of one noise
    with the variance of all. For Laplace noise this errs on the safe side to first order: of sums
    of independent Laplace variables the single one has the largest moment generating function
    (Boucheron, Lugosi and Massart 2013, Section 2).

    References
    ----------
    Fieller, E. C. (1954). Some problems in interval estimation. J. R. Statist. Soc. B 16, 175-185.
    Weerahandi, S. (1993). Generalized confidence intervals. J. Amer. Statist. Assoc. 88, 899-905.
    """

    # centre, error: (m,): error positive, or infinite for a draw without an estimate
    centre: Floats
    error: Floats
    df: Floats | None = None  # (m,) or None: degrees of freedom; None for normal laws
    # of the centre, from the noise, to first order; infinite where it has no law
    noise_variance: float = np.inf
    gaussian: bool = False  # whether the noise is, rather than Laplace's
    # of noise that changes with the value tested: estimate, sampling error, and the variance of the
    # noise at a value
    changing: tuple[float, float, Callable[[float], float]] | None = None

    @classmethod
    def of_moving_noise(
        cls,
        estimate: float,
        spread: Floats | float,
        df: float,
        fixed: Floats,
        moving: Floats,
        *,
        gaussian: bool,
    ) -> ConfidenceLaw:
        """Law of a parameter whose estimate errs by S + fixed + t moving if it lies t above it.

        S has a t law with standard deviation `spread`, a number or (m,), infinite where not known;
        -t = S + fixed + t moving in every draw (m,), and one with 1 + moving <= 0 says nothing (eq.
        2 of docs/explanation/regression/ols.md).
        """
        turned = 1 + moving
        known = (turned > 0) & np.isfinite(spread)
        turned = np.where(known, turned, 1.0)
        centre = np.where(known, estimate - fixed / turned, estimate)
        error = np.where(known, spread / turned, np.inf)
        terms = np.mean([moving**2, 2 * fixed * moving, fixed**2], axis=1)
        changing = (
            estimate, float(np.median(spread)), lambda v: float(np.polyval(terms, v - estimate))
        )  # fmt: skip
        return cls(centre, error, np.full(len(fixed), df), float(terms[-1]), gaussian, changing)

    @property
    def without_sampling(self) -> ConfidenceLaw:
        """Law for the rows themselves: the noise is the only error."""
        error = np.where(np.isfinite(self.error), 0.0, self.error)
        changing = self.changing and (self.changing[0], 0.0, self.changing[2])
        return replace(self, error=error, changing=changing)

    def within(self, low: float, high: float) -> ConfidenceLaw:
        """Law with its median in the range of the parameter: all draws are moved alike.

        Else both limits could be one end of the range. An interval only widens, and stays nested in
        alpha.
        """
        middle = float(np.median(self.centre))
        moved = float(np.clip(middle, low, high)) - middle
        return replace(self, centre=self.centre + moved) if moved else self

    def cdf(self, value: float) -> float:
        """H(value), which increases in the value."""
        return self._tail(value, 1.0)

    def _tail(self, value: float, side: float) -> float:
        """H(value), or on side -1 the rest to every digit."""
        from scipy import special

        score = side * (value - self.centre) / self._scales
        tail = special.ndtr(score) if self.df is None else student_cdf(self.df, score)
        return float(np.mean(tail))

    @cached_property
    def _scales(self) -> Floats:
        return np.maximum(self.error, _LEAST * self.spread)

    @cached_property
    def spread(self) -> float:
        """About the standard deviation of H, for draws that are known."""
        known = np.isfinite(self.error)
        if not known.any():
            return 1.0
        quartiles = np.quantile(self.centre[known], [0.25, 0.75])
        noise = float(np.diff(quartiles)[0]) / 1.35
        if known.all():
            noise = max(noise, float(np.std(self.centre)))
        spread = float(np.hypot(noise, np.median(self.error[known])))
        return spread or abs(float(self.centre[0])) or 1.0

    def unbounded(self, alpha: float) -> bool:
        """True if neither limit exists: too many draws have an infinite error."""
        return bool(np.mean(np.isinf(self.error)) >= alpha)

    def limits(
        self, alpha: float, low: float = -np.inf, high: float = np.inf
    ) -> tuple[float, float]:
        """Ends where H is alpha/2 and 1 - alpha/2, within [low, high]; see `reaches`."""
        from scipy import special

        middle, far = float(np.median(self.centre)), _FARTHEST * self.spread
        least, most = max(low, middle - far), min(high, middle + far)
        if not has_enough_draws(alpha / 2, len(self.centre)):
            if self._far_law is not None:
                first, last = self._far_limits(alpha, least, most)
                return (low if first <= least else first), (high if last >= most else last)
            alpha = 2 * FEWEST / len(self.centre)
        if not np.any(np.isfinite(self.error) & (self.error > 0)):
            return self._order_statistics(alpha, low, high)
        # Where sampling errors are far below the spacing of the draws, H has steps: of a step at
        # the level the outer end is taken.
        levels = np.array([alpha / 2 - _STEP, 1 - alpha / 2 + _STEP])
        at_least, at_most = (self.cdf(end) - levels for end in (least, most))
        # No change of sign: the limit is beyond the possible values.
        ends = np.where(at_least >= 0, float(low), float(high))
        inside = np.flatnonzero((at_least < 0) & (at_most > 0))

        def short(values: Floats, which: NDArray[np.intp]) -> Floats:
            of = levels[inside[which]]
            return np.asarray(of - [self.cdf(value) for value in values.tolist()])

        # A normal law is close, unless the noise is wide or far from normal.
        guess = middle + special.ndtri(levels[inside]) * self.spread
        step = np.full(inside.size, 0.05 * self.spread)
        every = np.full(inside.size, least), np.full(inside.size, most)
        tolerance = 1e-12 * self.spread
        ends[inside] = find_roots_near(short, guess, step, *every, tolerance=tolerance)
        return float(ends[0]), float(ends[1])

    def _order_statistics(self, alpha: float, low: float, high: float) -> tuple[float, float]:
        """`limits` where there is no sampling error: order statistics of the draws."""
        known = np.sort(self.centre[np.isfinite(self.error)])
        unknown = (len(self.centre) - len(known)) / 2
        beyond = math.ceil(len(self.centre) * (alpha / 2 - _STEP) - unknown)
        if beyond < 1:
            return low, high
        first, last = np.clip(known[[beyond - 1, len(known) - beyond]], low, high)
        return float(first), float(last)

    def reaches(self, alpha: float) -> bool:
        """True if `limits` have this alpha; else they have the smallest that the draws allow."""
        return self._far_law is not None or has_enough_draws(alpha / 2, len(self.centre))

    @cached_property
    def _far_law(self) -> MixtureTails | None:
        """The law of the error where the draws end; None where it has none."""
        if not np.isfinite(self.noise_variance) or np.any(np.isinf(self.error)):
            return None
        return self._normal_plus_noise(float(np.median(self.error)), self.noise_variance)

    def _normal_plus_noise(self, sampling: float, noise: float) -> MixtureTails:
        """Tails of a normal error and one noise, of a standard deviation and a variance."""
        normal, laplace = sampling**2 + noise * self.gaussian, noise * (not self.gaussian)
        return MixtureTails(np.array([normal]), np.array([[laplace]]), np.ones(1))

    def _with_far_tail(self, value: float, below: float) -> float:
        """The p-value on one side, `below` by the draws, from the tail where they are too few."""
        from scipy import special

        least = FEWEST / len(self.centre)
        if below >= least:
            return below
        if self._far_law is None:
            return least
        tails, distance = self._far_law, abs(value - float(np.median(self.centre)))
        sampling = float(np.median(self.error))
        if self.changing is not None:
            estimate, sampling, noise_at = self.changing
            distance = abs(value - estimate)
            tails = self._normal_plus_noise(sampling, max(noise_at(value), 0.0))
        tail = float(tails.tail(np.array([distance]))[0]) / 2
        sampling = max(sampling, _LEAST * self.spread)
        return min(below + max(tail - float(special.ndtr(-distance / sampling)), 0.0), least)

    def _sides(self, value: float) -> tuple[float, float]:
        """P-values of "at most the value" against larger ones, and the opposite."""
        below, above = self._tail(value, 1.0), self._tail(value, -1.0)
        return self._with_far_tail(value, below), self._with_far_tail(value, above)

    def pvalue(self, value: float, alternative: Alternative) -> float:
        """P-value that the parameter equals `value`, at least 1e-9 unless noise is negligible."""
        larger, smaller = self._sides(value)
        sides = {"larger": larger, "smaller": smaller, "two-sided": 2 * min(larger, smaller)}
        classical = self.noise_variance <= _NEGLIGIBLE * float(np.median(self.error**2))
        return float(np.clip(sides[alternative], 0.0 if classical else LEAST_COMPUTED, 1))

    def _far_limits(self, alpha: float, low: float, high: float) -> tuple[float, float]:
        """As `limits`, where the draws are too few: by bisection of the p-values."""
        ends, middle = [], float(np.clip(np.median(self.centre), low, high))
        for side, end in enumerate((low, high)):
            inside = middle
            if self._sides(end)[side] < alpha / 2:
                while abs(end - inside) > _CLOSE * max(abs(end - middle), self.spread):
                    between = (inside + end) / 2
                    if self._sides(between)[side] < alpha / 2:
                        end = between
                    else:
                        inside = between
            ends.append(end)
        return ends[0], ends[1]


_FEW_DF = 50  # from here the series is within 1e-13, and within 1e-6 of a tail down to 1e-18
_FURTHEST = 1e8  # where either tail of 50 degrees of freedom is 0 in double precision


def student_cdf(df: float | Floats, x: Floats) -> Floats:
    """Probabilities (m,) that t with `df` (a number or (m,), above 0, finite) is at most x.

    From 50 degrees of freedom the normal probability of a score with the same tail, within 1e-13
    and 30 times as fast: Hill, G. W. (1970), Algorithm 395: Student's t-distribution. Comm. ACM 13,
    617-619.
    """
    from scipy import special

    if np.min(df) < _FEW_DF:
        return np.asarray(special.stdtr(df, x))
    a = np.asarray(df, dtype=np.float64) - 0.5
    b = 48 * a * a
    t = np.clip(x, -_FURTHEST, _FURTHEST)
    square = a * np.log1p(t * t / df)
    second = ((4 * square + 33) * square + 240) * square + 855
    series = 1 + (square + 3) / b - second / (10 * b * (b + 0.8 * square * square + 100))
    return np.asarray(special.ndtr(np.copysign(np.sqrt(square) * series, t)))
