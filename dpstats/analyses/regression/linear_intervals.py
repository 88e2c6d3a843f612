"""Intervals and tests of linear combinations of least-squares coefficients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.regression.least_squares import JOINT, LeastSquares
from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.corrected.half_lines import half_line_bounds
from dpstats.corrected.least_squares import combination_bounds
from dpstats.error_rates import bonferroni, for_noise
from dpstats.inference.confidence_law import DRAWS, ConfidenceLaw
from dpstats.inference.intervals import Intervals, wider, with_far_tails
from dpstats.inference.joint_coverage import level_of_draws
from dpstats.inference.simulation import calibration_generator

if TYPE_CHECKING:
    from dpstats.analyses.regression.empty_levels import LeftOut
    from dpstats.checks import Alternative, Target
    from dpstats.inference.intervals import Ends


@dataclass(frozen=True)
class LinearIntervals(Intervals, Cached):
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
    undetermined : (k,) bool, optional
        Combinations that levels without rows leave open: no estimate, the whole line.
    left : LeftOut, optional
        These levels; the model is without them.
    """

    model: LeastSquares
    combinations: Floats
    offsets: Floats
    extra: float = 0.0
    undetermined: NDArray[np.bool_] | None = None
    left: LeftOut | None = None

    @classmethod
    def of(
        cls, model: LeastSquares, rows: Floats, offsets: Floats, left: LeftOut, extra: float = 0.0
    ) -> LinearIntervals:
        """Of combinations (k, p) in the whole basis, some of them of levels that are left out."""
        return cls(model, rows[:, left.kept], offsets, extra, left.undetermined(rows), left)

    @property
    def _left_out(self) -> bool:
        return self.left is not None and len(self.left.names) > 0

    @cached_property
    def _unknown(self) -> NDArray[np.bool_]:
        if self.undetermined is None:
            return np.zeros(len(self.offsets), dtype=np.bool_)
        return self.undetermined

    @cached_property
    def estimates(self) -> Floats:
        """(k,), nan where undetermined."""
        return np.where(self._unknown, np.nan, self._centres)

    @cached_property
    def _centres(self) -> Floats:
        return np.asarray(self.combinations @ self.model.params + self.offsets)

    @cached_property
    def sampling_variance(self) -> Floats:
        """(k,), infinite unless `known`."""
        if not self.known:
            return np.full(len(self.offsets), np.inf)
        own = self.model.sampling.variances(self.combinations)
        own = own + self.extra * max(self.model.error_variance, 0.0)
        return np.where(self._unknown, np.inf, own)

    @cached_property
    def privacy_variance(self) -> Floats:
        """(k,), infinite unless `known`."""
        if not self.known:
            return np.full(len(self.offsets), np.inf)
        along = self.combinations @ (self.model.noise_covariance + self.model.left_covariance)
        variances = np.maximum(np.einsum("ij,ij->i", along, self.combinations), 0.0)
        return np.where(self._unknown, np.inf, variances)

    @property
    def known(self) -> bool:
        """Whether the noisy moments are regular and leave residual degrees of freedom."""
        return self.model.regular and self.model.df_resid > 0

    def _law(self, i: int, target: Target) -> ConfidenceLaw:
        sampled = target == "population"
        extra = self.extra if sampled else 0.0
        return self._once(
            (i, sampled),
            lambda: self.model.law(self.combinations[i], sampling=sampled, extra=extra),
        )

    def __len__(self) -> int:
        return len(self.offsets)

    def noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits (k,)."""
        low, high = np.full(len(self.offsets), -np.inf), np.full(len(self.offsets), np.inf)
        known = np.flatnonzero(~self._unknown).tolist()
        for i in known:
            low[i], high[i] = self._law(i, target).limits(alpha)
        ends = low + self.offsets, high + self.offsets
        short = np.zeros(len(self), dtype=np.bool_)
        short[known] = [not self._law(i, target).reaches(alpha) for i in known]
        if not short.any():
            return ends
        low, high = np.full(len(self), -np.inf), np.full(len(self), np.inf)
        if target == "table" or self.model.sampling.of_rows:  # else certified ones do not hold
            low, high = wider(ends, self.certified(alpha, target))
        return np.where(short, low, ends[0]), np.where(short, high, ends[1])

    def unbounded(self, alpha: float) -> bool:
        """Whether some noise-aware interval is unbounded, but for undetermined ones."""
        known = np.flatnonzero(~self._unknown)
        return any(self._law(int(i), "population").unbounded(alpha) for i in known)

    def least_spread(self, alpha: float) -> Floats:
        """(k,) standard deviations of regressors below which an interval is likely unbounded.

        For combinations of one coefficient: of its regressor given the others, in the unit of the
        regressor over that of the response. The noise that moves with the tested value is in
        proportion to the inverse of that variance; zero where the noise cannot hide it, nan where
        it does already.
        """
        inverse = np.einsum("ij,jk,ik->i", self.combinations, self.model.inverse, self.combinations)
        if not self.known:
            return np.full(len(self.offsets), np.nan)
        draws = [self.model.moving(combination) for combination in self.combinations]
        moving = [np.quantile(np.abs(noise), 1 - alpha) for noise in draws]
        found = np.sqrt(np.array(moving) / np.where(inverse > 0, inverse, np.nan))
        return np.where(self._unknown, np.nan, found)

    def certified(self, alpha: float, target: Target) -> Ends:
        """Limits (k,)."""
        model, sampled = self.model, target == "population"
        size = np.abs(model.rows)
        bound_only = model.matrix.answers.bound_only
        beta = for_noise(alpha, bound_only=bound_only) if sampled else alpha
        radius = size @ model.matrix.radius(beta) @ size.T
        rows = (model.matrix.n, model.matrix.fewest_rows(beta)) if sampled else None
        if self.left is not None:
            most = float(model.bounds[-1])
            radius = radius + self.left.radius(model.matrix, beta, most)
        low, high = combination_bounds(
            model.second_moments, radius, self.combinations, rows=rows, error=alpha - beta,
            ridge=model.ridge, extra=self.extra, bounds=model.bounds,
        )  # fmt: skip
        unknown = np.isinf(low) & np.isinf(high)
        if np.any(unknown) and not np.any(model.ridge) and self.extra == 0 and not self._left_out:
            low[unknown], high[unknown] = half_line_bounds(
                model.second_moments, radius, self.combinations[unknown],
                constant=model.constant, rows=rows, error=alpha - beta,
            )  # fmt: skip
        low, high = np.where(self._unknown, -np.inf, low), np.where(self._unknown, np.inf, high)
        return low + self.offsets, high + self.offsets

    def joint_certified(self, alpha: float, target: Target) -> Ends:
        """Limits of all combinations together, as those for the table are."""
        each = alpha if target == "table" else bonferroni(alpha, len(self))
        return self.certified(each, target)

    def joint_noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits of all combinations together, at the level that the joint errors give."""
        if not self.known or self._unknown.all():
            return self.noise_aware(alpha, target)
        rng = calibration_generator(self.model.matrix.answers, JOINT)
        some = np.flatnonzero(~self._unknown)
        drawn = [self.model.noise(self.combinations[i], opposites=False) for i in some]
        errors = np.stack(drawn, axis=-1)
        covariance = self.model.left_covariance
        if target == "population":
            covariance = covariance + self.model.sampling.matrix
        if np.any(covariance):
            own = self.combinations[some]
            values, vectors = np.linalg.eigh(own @ covariance @ own.T)
            z = rng.standard_normal((DRAWS, len(some))) * np.sqrt(np.clip(values, 0, None))
            errors = errors + z @ vectors.T
        return with_far_tails(
            self.noise_aware(level_of_draws(errors, alpha), target),
            alpha,
            DRAWS,
            lambda: self.joint_certified(alpha, target),
        )

    def subset(self, chosen: slice) -> LinearIntervals:
        """The same for some of the combinations."""
        return replace(
            self, combinations=self.combinations[chosen], offsets=self.offsets[chosen],
            undetermined=self._unknown[chosen],
        )  # fmt: skip

    def pvalues(self, value: float | Floats, alternative: Alternative) -> Floats:
        """P-values (k,) that each combination equals `value`."""
        values = np.broadcast_to(value, self.offsets.shape) - self.offsets
        pairs = zip(values.tolist(), self._unknown.tolist(), strict=True)
        return np.array([
            1.0 if unknown else self._law(i, "population").pvalue(value, alternative)
            for i, (value, unknown) in enumerate(pairs)
        ])  # fmt: skip
