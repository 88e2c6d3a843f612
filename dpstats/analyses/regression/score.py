"""Scores of generalised linear models with canonical links, solved by Newton's method."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import linalg, optimize, special
from scipy.linalg import lapack

from dpstats.arrays import Floats
from dpstats.caching import Cached

if TYPE_CHECKING:
    from dpstats.checks import Alternative

DRAWS = 5_000
_STEPS = 60
_CLOSE = 1e-10  # change of the linear predictor at which the method ends
_OPEN = 1e6  # stands above any statistic, where a value has no solution
_LARGEST = 30.0  # of the linear predictor: beyond it a mean is known to nobody


@dataclass(frozen=True)
class Link:
    """Canonical link: the mean response as an increasing function of the linear predictor."""

    name: str  # as `PilotScore` knows it
    bounded: bool  # whether means are
    mean: Callable[[Floats], Floats]
    slope: Callable[[Floats], Floats]  # derivative of the mean
    predictor: Callable[[Floats], Floats]  # inverse of the mean, infinite at its ends

    def __reduce__(self) -> tuple[Any, ...]:
        return _named, (self.name,)  # a copy is the same link


def _named(name: str) -> Link:
    return next(link for link in (LOGIT, LOG, IDENTITY) if link.name == name)


def _logistic_slope(predictor: Floats) -> Floats:
    chance = np.asarray(special.expit(predictor))
    return chance * (1 - chance)


def _log(mean: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.log(mean)


LOGIT = Link("logit", True, special.expit, _logistic_slope, special.logit)
LOG = Link("log", False, np.exp, np.exp, _log)
IDENTITY = Link("identity", False, np.asarray, np.ones_like, np.asarray)


class Average(NamedTuple):
    """Mean over the rows of a function of the coefficients, with its errors to first order."""

    estimate: float
    sampling: float  # variance
    privacy: float  # variance
    low: float = 0.0  # bounds on the mean error of the estimate, from what bins hide
    high: float = 0.0


@dataclass(frozen=True, eq=False)
class Score(Cached, ABC):
    """Noisy score of p coefficients, at m points with regressors x."""

    x: Floats  # (m, p)

    @abstractmethod
    def score(self, b: Floats) -> Floats:
        """Score (p,) at coefficients b, which the estimate makes zero."""

    @abstractmethod
    def information(self, b: Floats) -> Floats:
        """Minus the derivative of the score (p, p) or near it, positive semidefinite."""

    @property
    @abstractmethod
    def df(self) -> int:
        """Degrees of freedom of the sampling variance."""

    @property
    @abstractmethod
    def params(self) -> Floats | None:
        """Estimate (p,); None where the noise leaves none within reach."""

    @abstractmethod
    def covariances(self, combinations: Floats) -> Floats:
        """Covariances (2, k, k) of combinations (k, p), from sampling and from privacy."""

    def average(self, values: Callable[[Floats], Floats]) -> Average:
        """Mean over the rows of a function of the points and the coefficients."""
        raise NotImplementedError

    @abstractmethod
    def wald(self, combinations: Floats, values: Floats) -> tuple[float, float, float, float]:
        """F test that combinations (k, p) equal values (k,); see `joint_test`."""

    @abstractmethod
    def deviate(self, combination: Floats, value: float, *, sampled: bool) -> float | None:
        """Distance of the score from zero if a combination has this value, as a normal deviate.

        Positive where larger values are more likely; None where the others have no solution.
        """

    @abstractmethod
    def interval(self, combination: Floats, alpha: float, *, sampled: bool) -> tuple[float, float]:
        """Interval of a combination of the population's coefficients, or of the table's."""

    def pvalue(self, combination: Floats, value: float, alternative: Alternative) -> float:
        """P-value of the hypothesis that a combination has this value in the population.

        A value between the hypothesis and the estimate that is rejected rejects the hypothesis too,
        as it ends the interval (logistic-regression.md, eq. 5). Far away the score alone need not:
        what bins hide grows, or the other coefficients have no solution.
        """
        centre = float(combination @ self._estimate)
        distance, z = value - centre, None
        variance = float(self.covariances(combination[np.newaxis, :]).sum())
        for part in parts_of(abs(distance) / math.sqrt(variance) if variance > 0 else 0.0):
            here = self.deviate(combination, centre + part * distance, sampled=True)
            if here is None:
                break
            z = here if z is None else min(z, here) if distance > 0 else max(z, here)
        if z is None:
            return 1.0
        sides = {"larger": special.ndtr(-z), "smaller": special.ndtr(z)}
        return float(sides.get(alternative, min(1.0, 2 * special.ndtr(-abs(z)))))

    @property
    def _estimate(self) -> Floats:
        assert self.params is not None
        return self.params

    @cached_property
    def _information_at_estimate(self) -> Floats:
        return self.information(self._estimate)

    def _find_root(self, start: Floats, free: Floats | None = None) -> Floats | None:
        return find_root(self.score, self.information, self.x, start, free)

    def _under(self, combinations: Floats, values: Floats) -> Floats | None:
        """Coefficients (p,) of which independent combinations (k, p) have these values (k,).

        The others solve the score; None where they have no solution.
        """
        away = values - combinations @ self._estimate
        along = solved(self._information_at_estimate, combinations.T)
        start = np.asarray(self._estimate + along @ np.linalg.solve(combinations @ along, away))
        free = linalg.null_space(combinations)
        return self._find_root(start, free) if free.shape[1] else start

    def _rejected_beyond(
        self, combination: Floats, alpha: float, ends: tuple[float, float], deviation: float,
        *, sampled: bool,
    ) -> tuple[float, float]:  # fmt: skip
        """Interval from the ends on to the first values that the score rejects on either side.

        From a value that no coefficients have, and where predictors are beyond any mean, none is
        rejected.
        """
        centre = float(combination @ self._estimate)
        along = np.linalg.pinv(combination[np.newaxis, :])
        furthest = _LARGEST / float(np.abs(self.x @ along).max())
        limit = -float(special.ndtri(alpha / 2))

        def first_rejected(sign: float, start: float) -> float:
            def left(t: float) -> float:
                """Negative at distances that are rejected."""
                z = self.deviate(combination, centre + sign * t, sampled=sampled)
                return _OPEN if z is None else limit + sign * z

            if not math.isfinite(start) or (start > 0 and left(start) < 0):
                return start
            low, step = start, max(deviation, 1e-6) / 2
            while low < furthest:
                high = low + step
                at_high = left(high)
                if at_high == _OPEN:
                    break
                if at_high < 0:
                    return float(optimize.brentq(left, low, high, xtol=1e-6 * deviation))
                low, step = high, step * 1.5
            return math.inf

        return (
            centre - first_rejected(-1.0, centre - ends[0]),
            centre + first_rejected(1.0, ends[1] - centre),
        )


def parts_of(errors: float) -> Floats:
    """Parts of a distance of so many standard errors: from about one error on, doubled up to 1."""
    halvings = math.ceil(math.log2(errors)) if 1 < errors < math.inf else 0
    return np.asarray(0.5 ** np.arange(halvings, -1, -1))


def solved(matrix: Floats, right: Floats) -> Floats:
    """Solution of a positive definite system; LinAlgError if it is not, up to rounding."""
    if not np.isfinite(matrix).all():
        raise linalg.LinAlgError("not finite")
    _, solution, failed = lapack.dposv(matrix, right, lower=1)  # cho_solve takes ten times as long
    if failed:
        raise linalg.LinAlgError("not positive definite")
    return np.asarray(solution)


def find_root(
    score: Callable[[Floats], Floats],
    information: Callable[[Floats], Floats],
    x: Floats,
    start: Floats,
    free: Floats | None = None,
) -> Floats | None:
    """Root b (p,) of a score, from `start` along the columns of `free` (p, k) alone.

    The derivative may be that of another score, and is positive definite. Steps change the linear
    predictor x b (m,) by at most 2. None where the method does not arrive, or leaves predictors
    that any mean could have.
    """
    b, along = start, np.eye(len(start)) if free is None else free
    for _ in range(_STEPS):
        if np.abs(x @ b).max() > _LARGEST:
            return None
        try:
            step = along @ solved(along.T @ information(b) @ along, along.T @ score(b))
        except linalg.LinAlgError:
            return None
        largest = float(np.abs(x @ step).max())
        b = b + step * min(1.0, 2 / max(largest, 1e-300))
        if largest <= _CLOSE:
            return b
    return None


def derivatives(function: Callable[[Floats], Any], b: Floats) -> Floats:
    """Derivatives (p,) or (p, k) of a number or vector (k,) at b, by central differences."""
    steps = 1e-5 * np.maximum(np.abs(b), 1.0) * np.eye(len(b))
    return np.array([(function(b + h) - function(b - h)) / (2 * h.max()) for h in steps])
