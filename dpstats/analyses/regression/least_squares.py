"""Least squares from noisy second moments: estimates, and the law of their error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.regression.joint_test import independent, joint_test
from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.corrected.least_squares import (
    combination_bounds,
    half_line_bounds,
    positive_definite,
)
from dpstats.error_rates import bonferroni, for_noise
from dpstats.inference.confidence_law import DRAWS, ConfidenceLaw
from dpstats.inference.intervals import Intervals, wider, with_far_tails
from dpstats.inference.joint_coverage import level_of_draws
from dpstats.inference.moment_matrix import ONE
from dpstats.inference.simulation import calibration_generator, draw_noise

if TYPE_CHECKING:
    from dpstats.analyses.regression.empty_levels import LeftOut
    from dpstats.analyses.regression.sampling_covariance import SamplingCovariance
    from dpstats.checks import Alternative, Target
    from dpstats.inference.intervals import Ends
    from dpstats.inference.moment_matrix import NoisyMatrix

_WALD, _JOINT = 1, 2  # purposes of draws, distinct from those of the noise
_ROUNDING = 2.0**-52


@dataclass(frozen=True)
class LeastSquares(Cached):
    """Normal equations A b = c whose entries are measured with noise of a known law.

    The error c - A b is linear in the noise at the population's b
    (docs/explanation/regression/ols.md). In a test of h'b = v, b is estimated under that
    hypothesis: intervals become unbounded where the noise does not exclude a singular A, as
    Fieller's do, and are the classical ones where it is small.

    References
    ----------
    Ferrando, C., Wang, S. and Sheldon, D. (2022). Parametric bootstrap for differentially private
    confidence intervals. AISTATS. Fieller, E. C. (1954). Some problems in interval estimation.
    JRSS B 16, 175-185. Anderson, T. W. and Rubin, H. (1949), Ann. Math. Statist. 20, 46-63.
    """

    matrix: NoisyMatrix  # mean products of q features
    rows: Floats  # (p + 1, q) regressors, then response, as combinations of the features
    ridge: Floats  # (p,) added to the diagonal of A; intervals are then for these coefficients
    covariance_of: Callable[[LeastSquares], SamplingCovariance]
    # Of levels that are left out as empty: combinations (m, q) of the features that are zero but in
    # them, and regressors (m, p) that are not zero in all rows of each.
    left: Floats | None = None
    touched: NDArray[np.bool_] | None = None

    @cached_property
    def second_moments(self) -> Floats:
        """(p + 1, p + 1) noisy mean products of regressors and response."""
        return np.asarray(self.rows @ self.matrix.matrix @ self.rows.T)

    @cached_property
    def gram(self) -> Floats:
        """A, with the ridge."""
        return np.asarray(self.second_moments[:-1, :-1] + np.diag(self.ridge))

    @cached_property
    def constant(self) -> int | None:
        """Which regressor is the constant."""
        answers, place = self.matrix.answers, self.matrix.place
        own = ONE if answers.rows.public else len(answers.sums) - 1
        for i, row in enumerate(self.rows[:-1]):
            (used,) = np.nonzero(row)
            if len(used) == 1 and place[used[0], used[0]] == own:
                return i
        return None

    @cached_property
    def regular(self) -> bool:
        """Whether the noisy A is positive definite, as A without noise always is."""
        return positive_definite(self.gram)

    @cached_property
    def inverse(self) -> Floats:
        """A^-1, or a pseudoinverse, which is used for estimates only."""
        if self.regular:
            return np.asarray(np.linalg.inv(self.gram))
        return np.asarray(np.linalg.pinv(self.gram, hermitian=True))

    @cached_property
    def params(self) -> Floats:
        """(p,) coefficients."""
        return np.asarray(self.inverse @ self.second_moments[:-1, -1])

    @property
    def df_resid(self) -> float:
        """Rows less coefficients."""
        return float(self.matrix.n - len(self.params))

    def _residual(self, params: Floats) -> Floats:
        return np.asarray(self.rows.T @ np.append(-params, 1.0))

    @cached_property
    def residual(self) -> Floats:
        """The residual as a combination of the features, (q,)."""
        return self._residual(self.params)

    @cached_property
    def error_variance(self) -> float:
        """Estimated variance of the errors, n / (n - p) times the mean square; may be negative."""
        mean_square = float(self.residual @ self.matrix.matrix @ self.residual)
        return mean_square * self.matrix.n / max(self.df_resid, 1.0)

    @cached_property
    def noise_of_variance(self) -> float:
        """Standard deviation of the noise on the error variance."""
        noise = self._noise_covariance(self._weights(self.residual[None], self.residual))
        return float(np.sqrt(noise[0, 0]))

    @cached_property
    def safe_variance(self) -> float:
        """Error variance, at least the deviation of its noise, and what rounding makes of it."""
        return max(self.error_variance, self.noise_of_variance, self.rounding)

    @cached_property
    def rounding(self) -> float:
        """Error variance that the rounding of the moments may hide, as of a constant response."""
        size = np.abs(self.residual)
        return float(size @ np.abs(self.matrix.matrix) @ size) * len(self.rows) * _ROUNDING

    def _weights(self, left: Floats, right: Floats) -> Floats:
        """Combinations (k, d) of the measured functions that give left E right, left (k, q)."""
        used = np.flatnonzero(right)
        place, size = self.matrix.place[:, used].ravel(), len(self.matrix.answers.sums)
        measured, right = place >= 0, right[used]
        return np.array(
            [
                np.bincount(place[measured], np.outer(one, right).ravel()[measured], minlength=size)
                for one in left
            ]
        )

    @cached_property
    def _unit(self) -> Floats:
        return np.asarray(self.matrix.n * self.matrix.units, dtype=np.float64)

    def _noise_covariance(self, weights: Floats) -> Floats:
        scaled = weights / self._unit
        return np.asarray(scaled @ self.matrix.answers.noise_covariance @ scaled.T)

    @cached_property
    def _noise(self) -> Floats:
        """(DRAWS, d) draws of the noise on the measured functions, in unit scale."""
        answers = self.matrix.answers
        return draw_noise(answers, DRAWS, calibration_generator(answers)) / self._unit

    def _opposites(self, weights: Floats) -> Floats:
        """Draws (DRAWS,) of a combination (d,) of the noise, each with its opposite."""
        drawn = self._noise[: DRAWS // 2] @ weights
        return np.concatenate([drawn, -drawn])

    @cached_property
    def sampling(self) -> SamplingCovariance:
        """Sampling covariance of the coefficients, from what was measured of it."""
        return self.covariance_of(self)

    @cached_property
    def bounds(self) -> Floats:
        """(p + 1,) no regressor (and response) is larger in absolute value."""
        return np.asarray(np.abs(self.rows).sum(axis=1))  # features lie in [-1, 1]

    def scores(self, combinations: Floats) -> Floats:
        """(k, q) combinations of the features whose products with c - A b err as (k, p) do."""
        return np.asarray(combinations @ self.inverse @ self.rows[:-1])

    def noise_covariance_at(self, params: Floats) -> Floats:
        """(p, p) of the coefficients, if `params` are the true ones."""
        scores = self.inverse @ self.rows[:-1]
        return self._noise_covariance(self._weights(scores, self._residual(params)))

    @cached_property
    def noise_covariance(self) -> Floats:
        """(p, p) of the coefficients, at the estimate."""
        return self.noise_covariance_at(self.params)

    @cached_property
    def left_covariance(self) -> Floats:
        """(p, p) of the errors from rows that levels left out may have (eqs. 5 to 7).

        Noise on the means is not subtracted: it allows for what the noisy count may be short of.
        """
        if self.left is None or self.touched is None or not len(self.left):
            return np.zeros_like(self.inverse)
        most = self.bounds[-1]
        fitted = self.touched @ (np.abs(self.params) * self.bounds[:-1])
        reach = most + np.minimum(fitted, most)  # eq. 6
        errors = self.inverse @ self.rows[:-1] @ self.matrix.matrix @ self.left.T * reach
        return np.asarray(len(self.left) * errors @ errors.T)  # eq. 7

    def noise(self, combination: Floats, *, opposites: bool = True) -> Floats:
        """Draws (DRAWS,) of the noise on a combination (p,), at the estimated coefficients.

        With `opposites` their mean is zero; even functions of them need draws without.
        """
        weights = self._weights(self.scores(combination)[None], self.residual)[0]
        return self._opposites(weights) if opposites else np.asarray(self._noise @ weights)

    def moving(self, combination: Floats, *, sampling: bool = True) -> Floats:
        """Draws (DRAWS,) of what a unit by which its true value is larger adds to that noise."""
        covariance = self.noise_covariance + self.left_covariance
        covariance = covariance + (self.sampling.matrix if sampling else 0.0)
        along = covariance @ combination
        variance = float(combination @ along)
        # Derivative of the estimate under a hypothesis on the combination by its value.
        length = float(combination @ combination)
        slope = along / variance if variance > 0 else combination / (length or 1.0)
        score = self.scores(combination)[None]
        return self._opposites(self._weights(score, self.rows[:-1].T @ -slope)[0])

    def law(
        self, combination: Floats, *, sampling: bool = True, extra: float = 0.0
    ) -> ConfidenceLaw:
        """Law of a combination (p,) of the coefficients (eq. 2); of the table's without `sampling`.

        `extra` is a multiple of the error variance to add, to predict a new response.
        """
        estimate, gaussian = float(combination @ self.params), self.matrix.answers.law(0).gaussian
        if not self.regular or (sampling and self.df_resid <= 0):
            unknown, none = np.full(DRAWS, np.inf), np.zeros(DRAWS)
            return ConfidenceLaw.of_moving_noise(
                estimate, unknown, 1.0, none, none, gaussian=gaussian
            )
        variance: Floats | float = float(combination @ self.left_covariance @ combination)
        if sampling:
            variance = variance + self.sampling.drawn(combination) + extra * self.safe_variance
        return ConfidenceLaw.of_moving_noise(
            estimate, np.sqrt(variance), self.sampling.df, self.noise(combination),
            self.moving(combination, sampling=sampling), gaussian=gaussian,
        )  # fmt: skip

    def wald(self, combinations: Floats, values: Floats) -> tuple[float, float]:
        """F test that combinations (k, p) equal values (k,), with the noise under it."""
        if not self.regular or self.df_resid <= 0:
            return 0.0, 1.0
        sampling = self.sampling.matrix + self.left_covariance
        covariance = sampling + self.noise_covariance
        reduced, difference = independent(combinations, values, self.params, covariance)
        under = self.params + covariance @ reduced.T @ difference
        weights = self._weights(self.scores(reduced), self._residual(under))
        rng = calibration_generator(self.matrix.answers, _WALD)
        return joint_test(
            difference, self.sampling.df, reduced @ sampling @ reduced.T,
            self._noise_covariance(weights), lambda: self._noise @ weights.T, rng,
        )  # fmt: skip


@dataclass(frozen=True)
class LinearIntervals(Intervals, Cached):
    """Intervals of k combinations of the coefficients, plus known numbers.

    Noise-aware: see `LeastSquares`. Certified: the bounds of `dps.corrected.ols` at the noisy
    moments; for the population half of alpha is for the noise, and half for the sampling error.
    """

    model: LeastSquares
    rows: Floats  # (k, p) combinations in the whole basis
    offsets: Floats  # (k,)
    left: LeftOut | None = None  # levels that the model is without
    extra: float = 0.0  # to predict new responses: the square of a unit of the response

    @cached_property
    def combinations(self) -> Floats:
        """(k, p) in the basis of the model."""
        return self.rows if self.left is None else self.rows[:, self.left.kept]

    @cached_property
    def _unknown(self) -> NDArray[np.bool_]:
        """(k,) combinations that levels without rows leave open: no estimate, the whole line."""
        if self.left is None:
            return np.zeros(len(self), dtype=np.bool_)
        return self.left.undetermined(self.rows)

    @cached_property
    def estimates(self) -> Floats:
        """(k,), nan where undetermined."""
        return np.where(self._unknown, np.nan, self.combinations @ self.model.params + self.offsets)

    @cached_property
    def variances(self) -> Floats:
        """(2, k) from sampling and from privacy, infinite unless `known`."""
        if not self.known:
            return np.full((2, len(self)), np.inf)
        model = self.model
        sampling = model.sampling.variances(self.combinations)
        sampling = sampling + self.extra * max(model.error_variance, 0.0)
        along = self.combinations @ (model.noise_covariance + model.left_covariance)
        privacy = np.maximum(np.einsum("ij,ij->i", along, self.combinations), 0.0)
        return np.where(self._unknown, np.inf, [sampling, privacy])

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
        low, high = np.full(len(self), -np.inf), np.full(len(self), np.inf)
        known = np.flatnonzero(~self._unknown).tolist()
        for i in known:
            low[i], high[i] = self._law(i, target).limits(alpha)
        ends = low + self.offsets, high + self.offsets
        short = np.zeros(len(self), dtype=np.bool_)
        short[known] = [not self._law(i, target).reaches(alpha) for i in known]
        if not short.any():
            return ends
        low, high = np.full(len(self), -np.inf), np.full(len(self), np.inf)
        if (
            target == "table" or self.model.sampling.clustering == 1
        ):  # else certified ones do not hold
            low, high = wider(ends, self.certified(alpha, target))
        return np.where(short, low, ends[0]), np.where(short, high, ends[1])

    def unbounded(self, alpha: float) -> bool:
        """Whether some noise-aware interval is unbounded, but for undetermined ones."""
        known = np.flatnonzero(~self._unknown)
        return any(self._law(int(i), "population").unbounded(alpha) for i in known)

    def least_spread(self, alpha: float) -> Floats:
        """(k,) standard deviations of regressors, given the others, below which no end is likely.

        For combinations of one coefficient, in the unit of the regressor over that of the response.
        Zero where the noise cannot hide the variance, nan where it does already.
        """
        inverse = np.einsum("ij,jk,ik->i", self.combinations, self.model.inverse, self.combinations)
        if not self.known:
            return np.full(len(self), np.nan)
        draws = [self.model.moving(combination) for combination in self.combinations]
        moving = [np.quantile(np.abs(noise), 1 - alpha) for noise in draws]
        spread = np.sqrt(np.array(moving) / np.where(inverse > 0, inverse, np.nan))
        return np.where(self._unknown, np.nan, spread)

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
        whole = self.left is None or not self.left.names
        if np.any(unknown) and not np.any(model.ridge) and self.extra == 0 and whole:
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
        rng = calibration_generator(self.model.matrix.answers, _JOINT)
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
        """Intervals of some of the combinations."""
        return replace(self, rows=self.rows[chosen], offsets=self.offsets[chosen])

    def pvalues(self, value: float | Floats, alternative: Alternative) -> Floats:
        """P-values (k,) that each combination equals `value`."""
        values = np.broadcast_to(value, len(self)) - self.offsets
        pairs = zip(values.tolist(), self._unknown.tolist(), strict=True)
        return np.array([
            1.0 if unknown else self._law(i, "population").pvalue(value, alternative)
            for i, (value, unknown) in enumerate(pairs)
        ])  # fmt: skip
