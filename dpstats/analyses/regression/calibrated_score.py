"""Intervals and tests of models whose score is calibrated to the noisy answers.

A value that is tested, at t above the estimate, has the noise of the score there: that above plus t
times that of the derivative. Here nu is small, so that the noise counts which the fitted density
follows: with the ridge of the estimate half of it would go unseen along the difference of nearly
collinear columns. It is next to nothing where the variance inflation factor shows such columns,
and the interval has no ends where noise hides whether the derivative is zero. Elsewhere it is one:
less would count noise that the fit has smoothed away.

That law is linear in t, and the score is not. Where a regressor predicts the outcome without
error, no finite coefficient solves the score, and yet a noisy one may. So an end of an interval
stands only if the score there, with the other coefficients fitted and by its own variance, rejects
it as well (Rao's test). Else the interval goes on to the first value that is rejected; without one
it has no end. Counts can be all zero, but not beyond all bounds: where their means grow, the law
decides alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg, special

from dpstats.analyses.regression.calibrated_density import (
    INSIDE,
    JITTER,
    CalibratedDensity,
)
from dpstats.analyses.regression.joint_test import independent, joint_test
from dpstats.analyses.regression.newton import (
    find_root,
    first_rejected,
    solved,
    tail_of,
)
from dpstats.arrays import Floats
from dpstats.inference.confidence_law import ConfidenceLaw
from dpstats.inference.simulation import calibration_generator, draw_noise

if TYPE_CHECKING:
    from dpstats.checks import Alternative

DRAWS = 5_000
_WALD, _DERIVATIVE = 1, 2  # purposes of draws, distinct from those of the noise
_SMALL_RIDGE, _LEAST_RIDGE = 1.0, 0.01  # nu for the derivative; the latter where collinear
_COLLINEAR = 5.0  # variance inflation factor above which columns are taken to be
_LEAST_VARIANCE = 1e-300
_GROWN = 0.4  # of the largest predictor of counts: means 1.5 times as large
_REJECTED = 1e3  # stands above any deviate


@dataclass(frozen=True, eq=False)
class CalibratedScore(CalibratedDensity):
    """The same model, with the law of its errors."""

    @cached_property
    def _noise(self) -> Floats:
        """(DRAWS, p) of the coefficients' errors from the noise."""
        rng = calibration_generator(self.answers)
        return draw_noise(self.answers, DRAWS, rng, self._own_parts[0] / self._unit[:, np.newaxis])

    def law(self, combination: Floats, *, sampling: bool = True) -> ConfidenceLaw:
        """Law of a combination (p,) of the coefficients."""
        gaussian = self.answers.law(0).gaussian
        if self.params is None:
            unknown, none = np.full(DRAWS, np.inf), np.zeros(DRAWS)
            return ConfidenceLaw.of_moving_noise(0.0, unknown, 1.0, none, none, gaussian=gaussian)
        variance = self.density_variance(combination)
        if sampling:
            variance += float(combination @ self.sampling_covariance @ combination)
        fixed = self._noise @ combination
        return ConfidenceLaw.of_moving_noise(
            float(combination @ self.params), math.sqrt(max(variance, 0.0)), self._df, fixed,
            self._moving(combination, fixed), gaussian=gaussian,
        )  # fmt: skip

    def _moving(self, combination: Floats, fixed: Floats) -> Floats:
        """(DRAWS,) error of the score for each unit that the true value lies above the estimate.

        That of the derivative, by which the score grows: from the noise, given draws of that of
        the combination itself as if both were normal, and from what was not measured.
        """
        assert self.params is not None
        along = solved(self._found_information, combination)
        toward = along / float(combination @ along)
        own, coarse = (
            -(x @ along) * self.link.slope(x @ self.params) * (x @ toward)
            for x in (self.x, self.coarse)
        )
        ridge = self._ridge_along(combination[np.newaxis, :])
        c, rest = self.parts(np.column_stack([own, coarse - own]), ridge)
        variance = rest[0, 0] * self.kappa / self.persons + min(rest[0, 0], rest[1, 1]) * INSIDE
        noise = self.noise_of_means @ c[:, 0]
        variance += float(c[:, 0] @ noise)
        with_fixed = float(self._own_parts[0] @ combination @ noise)
        of_fixed = float(combination @ self.noise_covariance @ combination)
        slope = with_fixed / of_fixed if of_fixed > 0 else 0.0
        left = math.sqrt(max(variance - slope * with_fixed, 0.0))
        rng = calibration_generator(self.answers, _DERIVATIVE)
        return np.asarray(slope * fixed + left * rng.standard_normal(DRAWS))

    def _ridge_along(self, combinations: Floats) -> float:
        """Nu for the derivative along combinations (k, p): the least one for collinear columns.

        The variance inflation factor is that of a combination's variance over what it would be if
        its columns were unrelated.
        """
        assert self.params is not None
        by = self.density * self.link.slope(self.x @ self.params)
        alone = np.maximum(by @ self.x**2 - (by @ self.x) ** 2 / by.sum(), 0.0)  # each column's
        varied = alone > JITTER * max(float(np.max(alone)), 1e-300)  # not the constant
        inverse = np.linalg.inv(self._found_information)[np.ix_(varied, varied)]
        parts = combinations[:, varied]
        inflated = np.einsum("ij,jk,ik->i", parts, inverse, parts)
        unrelated = parts**2 @ (1 / alone[varied])
        return _LEAST_RIDGE if np.any(inflated > _COLLINEAR * unrelated) else _SMALL_RIDGE

    @cached_property
    def _df(self) -> int:
        """Persons, of a subgroup alone, less coefficients."""
        inside = float(self.density @ np.any(self.x != 0, axis=1))
        return max(round(self.persons * inside) - len(self.x.T), 1)

    def wald(self, combinations: Floats, values: Floats) -> tuple[float, float]:
        """F test that combinations (k, p) of the coefficients equal values (k,); see `joint_test`.

        The noise is that of the score under the hypothesis. What was not measured counts as
        sampling, as in `law`; of its two parts inside bins the one that is smaller over all
        combinations.

        Raises
        ------
        RequestError
            If no coefficients give all combinations their values.
        """
        if self.params is None:
            return 0.0, 1.0
        covariance = self.sampling_covariance + self.noise_covariance
        reduced, difference = independent(combinations, values, self.params, covariance)
        along = solved(self._found_information, reduced.T)
        toward = along @ np.linalg.solve(reduced @ along, difference)
        left = self.y - self.link.mean(self.x @ self.params)
        grown = self.link.slope(self.x @ self.params) * (self.x @ toward)
        score, moved = ((self.x @ along) * part[:, np.newaxis] for part in (left, -grown))
        own = self.parts(score + moved)[1]
        c = self.parts(score)[0] + self.parts(moved, self._ridge_along(reduced))[0]
        inside = reduced @ self._inside @ reduced.T
        hidden = own * self.kappa / self.persons + min(own, inside, key=np.trace) * INSIDE
        rng = calibration_generator(self.answers, _WALD)
        return joint_test(
            difference, self._df, reduced @ self.sampling_covariance @ reduced.T + hidden,
            c.T @ self.noise_of_means @ c,
            lambda: draw_noise(self.answers, DRAWS, rng, c / self._unit[:, np.newaxis]), rng,
        )  # fmt: skip

    def _law(self, combination: Floats, sampled: bool) -> ConfidenceLaw:
        key = (combination.tobytes(), sampled)
        return self._once(key, lambda: self.law(combination, sampling=sampled))

    def unbounded(self, combinations: Floats, alpha: float) -> bool:
        """Whether noise hides if the derivative is zero: some of the intervals have no ends."""
        return any(self._law(h, True).unbounded(alpha) for h in combinations)

    def interval(self, combination: Floats, alpha: float, *, sampled: bool) -> tuple[float, float]:
        """Interval of a combination of the population's coefficients, or of the table's."""
        if self.params is None:
            return -np.inf, np.inf
        key = ("interval", combination.tobytes(), sampled, alpha)
        return self._once(key, lambda: self._interval(combination, alpha, sampled))

    def _interval(self, combination: Floats, alpha: float, sampled: bool) -> tuple[float, float]:
        """That of `law`, prolonged by values which the score does not reject."""
        assert self.params is not None
        law, centre = self._law(combination, sampled), float(combination @ self.params)
        if not law.reaches(alpha):
            return -np.inf, np.inf
        limit = -float(special.ndtri(alpha / 2))

        def end(sign: float, start: float) -> float:
            def kept(t: float) -> float | None:
                z = self.deviate(combination, centre + sign * t, sampled=sampled)
                return None if z is None else limit + sign * z

            return sign * first_rejected(self.x, combination, kept, start, law.spread)

        low, high = law.limits(alpha)
        return centre + end(-1.0, centre - low), centre + end(1.0, high - centre)

    def deviate(self, combination: Floats, value: float, *, sampled: bool) -> float | None:
        """How far the score is from zero if a combination has this value, as a normal deviate.

        Positive where larger values are more likely; None where the others have no solution. Where
        means of counts grow beyond all at the estimate, so does the noise of their score, and less
        is rejected the further the value: it is then left to `law`, and stands as rejected here.
        """
        assert self.params is not None
        b = self._under(combination, value)
        if b is None:
            return None
        if not self.link.bounded and np.max(self.x @ b) > np.max(self.x @ self.params) + _GROWN:
            return math.copysign(_REJECTED, float(combination @ self.params) - value)
        try:
            along = solved(self.information(b), combination)
        except linalg.LinAlgError:
            return None
        by, left = self.x @ along, self.y - self.link.mean(self.x @ b)
        moved = self._means(self.coarse, b) @ along - self._means(self.x, b) @ along
        c, rest = self.parts(np.column_stack([by * left, moved]))
        variance = rest[0, 0] * self.kappa / self.persons + min(rest[0, 0], rest[1, 1]) * INSIDE
        if sampled:
            own = along @ combination
            if self.robust:  # of the residuals at the estimate: others are larger the worse b fits
                own = self.density @ (by * (self.y - self.link.mean(self.x @ self.params))) ** 2
            variance += float(own) / self.persons
        variance += float(c[:, 0] @ self.noise_of_means @ c[:, 0])
        return float(self.weights @ (by * left)) / math.sqrt(max(variance, _LEAST_VARIANCE))

    def _under(self, combination: Floats, value: float) -> Floats | None:
        """(p,) coefficients with this value of a combination; None where there is no solution."""
        assert self.params is not None
        along = solved(self._found_information, combination)
        away = (value - float(combination @ self.params)) / float(combination @ along)
        free = linalg.null_space(combination[np.newaxis, :])
        start = self.params + along * away
        if not free.shape[1]:
            return np.asarray(start)
        return find_root(partial(self._score, self.weights), self.information, self.x, start, free)

    def pvalue(self, combination: Floats, value: float, alternative: Alternative) -> float:
        """P-value of the hypothesis that a combination has this value in the population."""
        if self.params is None:
            return 1.0
        law = self._law(combination, True)
        found = law.pvalue(value, alternative)
        z = self.deviate(combination, value, sampled=True)
        return max(found, 1.0 if z is None else tail_of(z, alternative))
