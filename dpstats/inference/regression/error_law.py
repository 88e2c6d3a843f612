"""Laws of errors: of one estimate whose noise grows with the value tested, and joint tests."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from dpstats.arrays import Floats
from dpstats.errors import RequestError
from dpstats.inference.student import student_cdf
from dpstats.spending import least_of_noise

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpstats.checks import Alternative

_FURTHEST = 1e9  # standard errors; an end beyond it is infinite
_STEP = 1e-12  # of a p-value: where it is alpha on a step, the outer end is taken
_FEW = 250  # draws for a first approximation of a limit, at little cost
_NEGLIGIBLE = 1e-6  # part of noise in a variance, that needs no draws
_REDUNDANT = 1e-12  # of a standard deviation: a combination of others, up to rounding


@dataclass(frozen=True)
class ErrorLaw:
    """Law of the error of an estimate, if the true value lies t above it: noise plus a t variable.

    Attributes
    ----------
    spread, df : float
        Standard deviation and degrees of freedom of the sampling part; infinite if not known.
    fixed, moving : (draws,) float64
        The noise is ``fixed + t * moving``.
    """

    spread: float
    df: float
    fixed: Floats
    moving: Floats

    def pvalue(self, t: float, alternative: Alternative = "two-sided") -> float:
        """P-value of the hypothesis that the true value lies t above the estimate."""
        if np.isinf(self.spread):
            return 1.0
        noise = self.fixed + t * self.moving
        if alternative == "larger":
            return self._above(-t - noise)
        if alternative == "smaller":
            return self._above(t + noise)
        return min(1.0, self._above(abs(t) - noise) + self._above(abs(t) + noise)) if t else 1.0

    def _above(self, x: Floats) -> float:
        """Mean probability that the sampling part is at least x."""
        if self.spread == 0:
            return float(np.mean(x <= 0))
        return float(np.mean(student_cdf(self.df, -x / self.spread)))

    def unbounded(self, alpha: float) -> bool:
        """Whether the interval at level 1 - alpha has no ends; see `_reach`.

        Two standard errors below alpha, the share of draws that reach any t is too close to it.
        """
        share = np.mean(np.abs(self.moving) >= 1)
        near = 2 * np.sqrt(alpha) / np.sqrt(len(self.moving)) if share > 0 else 0.0
        return bool(np.isinf(self.spread) or share >= alpha - near)

    @property
    def least_pvalue(self) -> float:
        """Floor of p-values, where too few draws are that far out to estimate them."""
        if np.isinf(self.spread):
            return 1.0
        noise = float(np.mean(self.fixed**2))
        return least_of_noise(noise, noise + self.spread**2, len(self.fixed))

    def interval(self, alpha: float) -> tuple[float, float]:
        """How far the true value may lie below and above the estimate, (low, high)."""
        high = self._reach(alpha, 1.0)
        return -(self._reach(alpha, -1.0) if self.moving.any() else high), high

    def _reach(self, alpha: float, sign: float) -> float:
        """The largest |t| that is not rejected.

        Where |moving| < 1 a draw that does not reach t reaches no larger one, so the p-value
        falls but for the share of the other draws; where that share is not below alpha, no t is
        rejected.
        """
        from scipy import optimize

        if self.unbounded(alpha):
            return np.inf
        scale = float(np.hypot(self.spread, np.sqrt(np.mean(self.fixed**2))))
        if scale == 0:
            return 0.0
        if self.spread == 0:
            return float(np.quantile(self._last(sign), 1 - alpha, method="higher"))
        excess = lru_cache(maxsize=None)(lambda t: self.pvalue(sign * t) - alpha + _STEP)
        start, part = self._start(alpha, sign, scale)
        low = high = start
        while excess(high) > 0:
            low, high, part = high, high * (1 + part), min(1.0, 10 * part)
            if high > _FURTHEST * scale:
                return np.inf
        while low > 0 and excess(low) <= 0:
            low, high, part = low * (1 - part), low, min(1.0, 10 * part)
        return float(optimize.brentq(excess, low, high, xtol=1e-11 * high, rtol=1e-12))

    def _start(self, alpha: float, sign: float, scale: float) -> tuple[float, float]:
        """Where to look for the end, and by which part of it to move at first.

        With a draw of |moving| >= 1 there may be more than one end, and a few draws may be near
        another one.
        """
        every = len(self.fixed) // _FEW
        if every > 1 and np.max(np.abs(self.moving)) < 1:
            few = ErrorLaw(self.spread, self.df, self.fixed[::every], self.moving[::every])
            near = few._reach(alpha, sign)
            if 0 < near < np.inf:
                return near, 1e-3
        return scale, 1.0

    def _last(self, sign: float) -> Floats:
        """The largest |t| that each draw of the noise alone reaches."""
        with np.errstate(divide="ignore", invalid="ignore"):
            toward = np.where(self.fixed > 0, 1 - sign * self.moving, 1 + sign * self.moving)
            last = np.abs(self.fixed) / toward
        return np.where(np.abs(self.moving) >= 1, np.inf, np.where(self.fixed == 0, 0.0, last))


def joint_test(
    difference: Floats,
    df: float,
    sampling: Floats,
    noise: Floats,
    draws: Callable[[], Floats],
    rng: np.random.Generator,
) -> tuple[float, float]:
    """F test that errors of independent combinations explain all of their differences (k,).

    The statistic weighs the differences by the inverse of their covariance, sampling and noise, and
    is divided by k. With normal noise it would have about the F distribution; the p-value is that
    of F plus the simulated difference between the law of the noise and a normal one. It is the
    classical p-value without noise.

    Parameters
    ----------
    difference : (k,) float64
    df : float
        Degrees of freedom of the sampling variances.
    sampling, noise : (k, k) float64
        Covariances of the two parts of the error.
    draws : function
        Gives draws (size, k) of the noise.
    rng : numpy Generator

    Returns
    -------
    Statistic and p-value
    """
    from scipy import special

    k = len(difference)
    if k == 0:  # every combination is certain
        return 0.0, 1.0
    precision = np.linalg.pinv(noise + sampling, hermitian=True)
    statistic = float(difference @ precision @ difference) / k
    if statistic == 0 or not np.isfinite(statistic):
        return 0.0, 1.0
    classical = float(special.fdtrc(k, df, statistic))
    if np.trace(noise) <= _NEGLIGIBLE * np.trace(sampling):
        return statistic, classical
    drawn = draws()
    size = len(drawn)
    z = rng.standard_normal((size, k)) @ root_of(sampling)
    z /= np.sqrt(rng.chisquare(df, (size, 1)) / df)
    normal = rng.standard_normal((size, k)) @ root_of(noise)
    above = [
        float(np.mean(np.einsum("ij,jk,ik->i", e, precision, e) >= k * statistic))
        for e in (z + drawn, z + normal)
    ]
    least = least_of_noise(float(np.trace(noise)), float(np.trace(noise + sampling)), size)
    return statistic, float(np.clip(classical + above[0] - above[1], least, 1))


def independent(
    combinations: Floats, values: Floats, params: Floats, covariance: Floats
) -> tuple[Floats, Floats]:
    """As many combinations as are independent, uncorrelated and of variance one.

    With the differences of their values from those at the estimate `params`, of this covariance.
    Rows are divided by their standard deviations first, so that their units do not decide whether
    a row is zero up to rounding.

    Raises
    ------
    RequestError
        If no coefficients give all combinations their values.
    """
    rows = combinations @ root_of(covariance)
    deviations = np.linalg.norm(rows, axis=1)
    size = np.where(deviations > 0, deviations, 1.0)
    left, lengths, _ = np.linalg.svd(rows / size[:, None])
    rank = int(np.sum(lengths > _REDUNDANT))
    wanted = values / size
    if np.any(np.abs(left[:, rank:].T @ wanted) > _REDUNDANT * (np.abs(wanted).max(initial=0.0))):
        raise RequestError(
            "the combinations contradict each other: no coefficients give all of them these "
            "values; test fewer of them together"
        )
    to_reduced = left[:, :rank].T / lengths[:rank, None] / size
    difference = values - combinations @ params
    return np.asarray(to_reduced @ combinations), np.asarray(to_reduced @ difference)


def root_of(covariance: Floats) -> Floats:
    """Symmetric square root of a covariance matrix, its positive part."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T)
