"""Intervals and tests of linear combinations of least-squares coefficients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.corrected.half_lines import half_line_bounds
from dpstats.corrected.least_squares import combination_bounds
from dpstats.inference.intervals import with_far_tails
from dpstats.inference.joint_coverage import level_of_draws
from dpstats.inference.regression.error_law import ErrorLaw
from dpstats.inference.regression.least_squares import DRAWS, JOINT, LeastSquares
from dpstats.inference.simulation import calibration_generator
from dpstats.spending import bonferroni, for_noise

if TYPE_CHECKING:
    from dpstats.checks import Alternative, Method, Target


@dataclass(frozen=True)
class LinearIntervals(Cached):
    """Intervals of k combinations of the coefficients, plus known numbers.

    Noise-aware: see `LeastSquares`. Certified: the bounds of `dps.corrected.ols` at the noisy
    moments; for the population half of alpha is for the noise, and half for the sampling error.

    Attributes
    ----------
    model : LeastSquares
    combinations : (k, p) float64
        In the basis of the model.
    offsets : (k,) float64
    extra : float
        To predict new responses rather than their mean: the square of a unit of the response.
    """

    model: LeastSquares
    combinations: Floats
    offsets: Floats
    extra: float = 0.0

    @cached_property
    def estimates(self) -> Floats:
        """(k,)."""
        return np.asarray(self.combinations @ self.model.params + self.offsets)

    @cached_property
    def sampling_variance(self) -> Floats:
        """(k,), infinite unless `known`."""
        if not self.known:
            return np.full(len(self.offsets), np.inf)
        return self.model.sampling_variances(self.combinations) + self.extra * max(
            self.model.error_variance, 0.0
        )

    @cached_property
    def privacy_variance(self) -> Floats:
        """(k,), infinite unless `known`."""
        if not self.known:
            return np.full(len(self.offsets), np.inf)
        return self._variances(self.model.noise_covariance)

    def _variances(self, covariance: Floats) -> Floats:
        along = self.combinations @ covariance
        return np.asarray(np.maximum(np.einsum("ij,ij->i", along, self.combinations), 0.0))

    @property
    def known(self) -> bool:
        """Whether the noisy moments are regular and leave residual degrees of freedom."""
        return self.model.regular and self.model.df_resid > 0

    def _law(self, i: int, target: Target) -> ErrorLaw:
        sampled = target == "population"
        extra = self.extra if sampled else 0.0
        return self._once(
            (i, sampled),
            lambda: self.model.law(self.combinations[i], sampling=sampled, extra=extra),
        )

    def conf_int(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Lower and upper limits (k,)."""
        if method == "certified":
            return self._certified(alpha, target)
        ends = [self._law(i, target).interval(alpha) for i in range(len(self.offsets))]
        low, high = np.array(ends).reshape(-1, 2).T
        return with_far_tails(
            (self.estimates + low, self.estimates + high),
            alpha,
            DRAWS,
            lambda: self._certified(alpha, target),
        )

    def unbounded(self, alpha: float) -> bool:
        """Whether some noise-aware interval is unbounded."""
        return any(self._law(i, "population").unbounded(alpha) for i in range(len(self.offsets)))

    def least_spread(self, alpha: float) -> Floats:
        """(k,) standard deviations of regressors below which an interval is likely unbounded.

        For combinations of one coefficient: of its regressor given the others, in the unit of the
        regressor over that of the response. The noise that moves with the tested value is in
        proportion to the inverse of that variance; zero where the noise cannot hide it, nan where
        it does already.
        """
        inverse = np.einsum("ij,jk,ik->i", self.combinations, self.model.inverse, self.combinations)
        laws = [self._law(i, "population") for i in range(len(self.offsets))]
        moving = [np.quantile(np.abs(law.moving), 1 - alpha) for law in laws]
        found = np.sqrt(np.array(moving) / np.where(inverse > 0, inverse, np.nan))
        return np.where(self.known, found, np.nan)

    def _certified(self, alpha: float, target: Target) -> tuple[Floats, Floats]:
        model, sampled = self.model, target == "population"
        size = np.abs(model.rows)
        certain = model.matrix.answers.certain
        beta = for_noise(alpha, certain=certain) if sampled else alpha
        radius = size @ model.matrix.radius(beta) @ size.T
        rows = (model.matrix.n, model.matrix.fewest_rows(beta)) if sampled else None
        low, high = combination_bounds(
            model.second_moments, radius, self.combinations, rows=rows, error=alpha - beta,
            ridge=model.ridge, extra=self.extra, bounds=model.bounds,
        )  # fmt: skip
        unknown = np.isinf(low) & np.isinf(high)
        if np.any(unknown) and not np.any(model.ridge) and self.extra == 0:
            low[unknown], high[unknown] = half_line_bounds(
                model.second_moments, radius, self.combinations[unknown],
                constant=model.constant, rows=rows, error=alpha - beta,
            )  # fmt: skip
        return low + self.offsets, high + self.offsets

    def simultaneous(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Simultaneous limits for all combinations.

        Certified bounds for the table are simultaneous; their sampling part is by Bonferroni.
        Noise-aware: at the level that the joint law of the errors gives.
        """
        k = len(self.offsets)
        if method == "certified":
            each = alpha if target == "table" else bonferroni(alpha, k)
            return self.conf_int(each, method, target)
        if not self.known:
            return self.conf_int(alpha, method, target)
        rng = calibration_generator(self.model.matrix.answers, JOINT)
        noise = np.stack([self._law(i, target).fixed for i in range(k)], axis=-1)
        covariance = self.combinations @ self.model.sampling_covariance @ self.combinations.T
        errors = noise + np.zeros((DRAWS, k))
        if target == "population":
            values, vectors = np.linalg.eigh(covariance)
            z = rng.standard_normal((DRAWS, k)) * np.sqrt(np.clip(values, 0, None))
            errors = errors + z @ vectors.T
        return with_far_tails(
            self.conf_int(level_of_draws(errors, alpha), method, target),
            alpha,
            DRAWS,
            lambda: self.simultaneous(alpha, "certified", target),
        )

    def subset(self, chosen: slice) -> LinearIntervals:
        """The same for some of the combinations."""
        return replace(self, combinations=self.combinations[chosen], offsets=self.offsets[chosen])

    def pvalues(self, value: float | Floats, alternative: Alternative) -> Floats:
        """P-values (k,) that each combination equals `value`."""
        offsets = np.broadcast_to(value, self.offsets.shape) - self.estimates
        laws = [self._law(i, "population") for i in range(len(offsets))]
        found = [law.pvalue(float(t), alternative) for law, t in zip(laws, offsets, strict=True)]
        return np.maximum(found, [law.least_pvalue for law in laws])
