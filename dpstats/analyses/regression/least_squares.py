"""Least squares from noisy second moments: estimates, and the law of their error."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.corrected.least_squares import (
    combination_bounds,
    half_line_bounds,
    largest_leverage,
    misfit_bound,
    positive_definite,
)
from dpstats.error_rates import bonferroni, for_noise
from dpstats.errors import RequestError
from dpstats.inference.confidence_law import DRAWS, ConfidenceLaw
from dpstats.inference.intervals import Intervals, wider, with_far_tails
from dpstats.inference.joint_coverage import (
    contradicts_certain,
    independent,
    joint_test,
    level_of_draws,
    root_of,
)
from dpstats.inference.moment_matrix import ONE, ZERO
from dpstats.inference.person_forms import MOST_NOISE, PersonForms, small_sample
from dpstats.inference.simulation import calibration_generator, draw_noise

if TYPE_CHECKING:
    from dpstats.analyses.regression.left_out import LeftOut
    from dpstats.checks import Alternative, Target
    from dpstats.inference.intervals import Ends
    from dpstats.inference.moment_matrix import NoisyMatrix
    from dpstats.measured.answers import Answers

_WALD, _JOINT = 1, 2  # purposes of draws, distinct from those of the noise
_ROUNDING = 2.0**-52


@dataclass(frozen=True)
class LeastSquares(Cached):
    """Normal equations A b = c whose entries are measured with noise of a known law.

    The error c - A b is linear in the noise at the population's b (eq. 1a of
    docs/explanation/regression/ols.md). In a test of h'b = v, b is estimated under that
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
        """True if the noisy A is positive definite, as A without noise always is."""
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

    def wald(self, combinations: Floats, values: Floats) -> tuple[float, float, float, float]:
        """F test that combinations (k, p) equal values (k,), with the noise under it."""
        if not self.regular or self.df_resid <= 0:
            return 0.0, 1.0, float(len(values)), max(self.df_resid, 0.0)
        sampling = self.sampling.matrix + self.left_covariance
        covariance = sampling + self.noise_covariance
        hypothesis = combinations, values, self.params, covariance
        if contradicts_certain(*hypothesis):
            return np.inf, 0.0, float(len(values)), self.sampling.df
        reduced, difference = independent(*hypothesis)
        if not len(reduced):  # every combination is certain
            return 0.0, 1.0, 0.0, self.sampling.df
        under = self.params + covariance @ reduced.T @ difference
        weights = self._weights(self.scores(reduced), self._residual(under))
        rng = calibration_generator(self.matrix.answers, _WALD)
        drawn = self.sampling.drawn_jointly(reduced) + reduced @ self.left_covariance @ reduced.T
        return joint_test(
            difference, self.sampling.df, drawn,
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
        """True if the noisy moments are regular and leave residual degrees of freedom."""
        return self.model.regular and self.model.df_resid > 0

    def _check_target(self, target: Target) -> None:
        if self.extra and target == "table":
            raise RequestError(
                "a new response is not in the private table: use target='population', the default"
            )

    def _law(self, i: int, target: Target) -> ConfidenceLaw:
        sampled = target == "population"
        return self._once(
            (i, sampled),
            lambda: self.model.law(self.combinations[i], sampling=sampled, extra=self.extra),
        )

    def __len__(self) -> int:
        return len(self.offsets)

    def noise_aware(self, alpha: float, target: Target) -> Ends:
        """Limits (k,)."""
        self._check_target(target)
        low, high = super().certified(alpha, target)
        short = np.zeros(len(self), dtype=np.bool_)
        for i in np.flatnonzero(~self._unknown).tolist():
            law = self._law(i, target)
            (low[i], high[i]), short[i] = law.limits(alpha), not law.reaches(alpha)
        ends = low + self.offsets, high + self.offsets
        if not short.any():
            return ends
        least, most = super().certified(alpha, target)
        if target == "table" or self.model.sampling.clustering == 1:  # others assume more
            least, most = wider(ends, self.certified(alpha, target))
        return np.where(short, least, ends[0]), np.where(short, most, ends[1])

    def unbounded(self, alpha: float) -> bool:
        """True if some noise-aware interval of a determined combination is unbounded."""
        determined = np.flatnonzero(~self._unknown)
        return any(self._law(int(i), "population").unbounded(alpha) for i in determined)

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
        self._check_target(target)
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
        """Limits of all combinations together, at the level that the joint errors give.

        New responses have independent errors besides those of the coefficients.
        """
        if not self.known or self._unknown.all():
            return self.noise_aware(alpha, target)
        rng = calibration_generator(self.model.matrix.answers, _JOINT)
        some = np.flatnonzero(~self._unknown)
        drawn = [self.model.noise(self.combinations[i], opposites=False) for i in some]
        errors = np.stack(drawn, axis=-1)
        own = self.combinations[some]
        covariance = own @ self.model.left_covariance @ own.T
        if target == "population":
            covariance += own @ self.model.sampling.matrix @ own.T
            covariance += self.extra * self.model.safe_variance * np.eye(len(some))
        if np.any(covariance):
            values, vectors = np.linalg.eigh(covariance)
            z = rng.standard_normal((DRAWS, len(some))) * np.sqrt(np.clip(values, 0, None))
            errors = errors + z @ vectors.T
        return with_far_tails(
            self.noise_aware(level_of_draws(errors, alpha), target),
            alpha,
            DRAWS,
            lambda: self.joint_certified(alpha, target),
        )

    def determined_part(self) -> Floats:
        """(r, k) independent combinations of the combinations that levels do not leave open."""
        return np.eye(len(self)) if self.left is None else self.left.determined_part(self.rows)

    def wald(self, values: Floats) -> tuple[float, float, float, float]:
        """F test that all combinations, determined ones, equal values (k,); see `joint_test`."""
        return self.model.wald(self.combinations, values - self.offsets)

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


_BOUNDED = (
    "where noise hides the variance of persons, sampling variances are the bound, which assumes "
    "errors of equal variance: rows_per_person times those of independent rows; cov_type='HC1' "
    "never takes the bound"
)
_PENALISED = (
    "residuals from penalised coefficients vary with the regressors: the sampling variance is an "
    "upper bound, often a wide one; cov_type='HC1' measures it"
)
_FOURTH = 3  # a purpose of draws, distinct from those of the noise on second moments
_LARGEST_RELATIVE = 0.25  # variance of a variance: beyond it the noise prevails anyway


@dataclass(frozen=True)
class SamplingCovariance(ABC):
    """Sampling covariance of coefficients: A^-1 M A^-1 / n, M the covariance of x (y - x'b)."""

    fit: LeastSquares  # with a regular A where anything is asked
    # At least 1: the most rows of one unit that is independent of the others, such as a person.
    clustering: float = field(default=1.0, kw_only=True)

    about: ClassVar[str]  # what a result says of it
    noisy: ClassVar[str] = ""  # the same where it was measured, if noise is most of it

    @property
    @abstractmethod
    def matrix(self) -> Floats:
        """(p, p)."""

    @abstractmethod
    def variances(self, combinations: Floats) -> Floats:
        """(k,) of combinations (k, p) of the coefficients."""

    @property
    @abstractmethod
    def df(self) -> float:
        """Degrees of freedom of the t laws of errors."""

    @property
    def persons(self) -> float:
        """The fewest independent units that the rows can be of."""
        return self.fit.matrix.n / self.clustering

    def rounded(self, combinations: Floats) -> Floats:
        """(k,) variances that the rounding of the moments may hide."""
        scores = combinations @ self.fit.inverse
        hidden = self.fit.rounding / self.persons
        return np.asarray(np.einsum("ij,ij->i", scores, combinations) * hidden)

    def drawn(self, combination: Floats) -> Floats | float:
        """Variance of a combination (p,), or draws of it without the noise on it."""
        return float(self.variances(combination[None, :])[0])

    def drawn_jointly(self, combinations: Floats) -> Floats:
        """Covariance (k, k) of combinations (k, p), or draws (DRAWS, k, k) without its noise."""
        return np.asarray(combinations @ self.matrix @ combinations.T)

    def notes(self, combinations: Floats) -> list[str]:
        """Remarks of a result on it."""
        return []


@dataclass(frozen=True)
class EqualVariances(SamplingCovariance):
    """Errors of equal variance, s2 A^-1 / n, or a bound: under a penalty and for rows of persons.

    Under a penalty the residual is such an error plus x'd, d the shrinkage; the mean of xx'(x'd)^2
    is at most that of (x'd)^2 times `largest_leverage` times A. Rows that depend on each other have
    at most `clustering` times the covariance, and as many times fewer degrees of freedom.
    """

    about = (
        "sampling variances assume errors of equal variance, also in certified intervals for the "
        "population; those for the table assume nothing"
    )

    @property
    def relative(self) -> float:
        """Standard deviation of the noise on the error variance, over it."""
        return self.fit.noise_of_variance / self.fit.safe_variance if self.fit.safe_variance else 0

    @property
    def df(self) -> float:
        """Degrees of freedom with the relative error of n - p squares and of the noise on them."""
        rows = max(self.fit.df_resid / self.clustering, 1.0)
        return with_noise(rows, self.relative)

    @cached_property
    def matrix(self) -> Floats:
        """(p, p)."""
        fit = self.fit
        middle = fit.inverse @ self._regressors @ fit.inverse * fit.safe_variance
        if self._misfit > 0:
            middle += fit.inverse * self._misfit * largest_leverage(fit.inverse, fit.bounds[:-1])
        return np.asarray(middle / self.persons)

    def variances(self, combinations: Floats) -> Floats:
        """(k,), at most those of `matrix` under a penalty.

        With s = h'A^-1 x the mean of s^2 (x'd)^2 is at most the largest s^2 times the mean of
        (x'd)^2, and that of s^2 times the squared residual at most the mean of s^2 times the
        largest.
        """
        fit, along = self.fit, combinations @ self.matrix
        variances = np.maximum(np.einsum("ij,ij->i", along, combinations), 0.0)
        if self._misfit == 0:
            return np.asarray(variances)
        scores = combinations @ fit.inverse
        squares = np.einsum("ij,jk,ik->i", scores, self._regressors, scores)
        largest = np.abs(scores @ fit.rows[:-1]).sum(axis=1) ** 2
        residual = np.abs(fit.residual).sum() ** 2
        sharp = squares * (fit.safe_variance - self._misfit) + largest * self._misfit
        sharp = np.minimum(sharp, squares * residual) / self.persons
        return np.asarray(np.maximum(np.minimum(variances, sharp), self.rounded(combinations)))

    def notes(self, combinations: Floats) -> list[str]:
        """Note that a penalty makes it a bound."""
        return [_PENALISED] if np.any(self.fit.ridge) else []

    @cached_property
    def _regressors(self) -> Floats:
        """A without the ridge, its positive part."""
        if not np.any(self.fit.ridge):
            return self.fit.gram
        root = root_of(self.fit.second_moments[:-1, :-1])
        return np.asarray(root @ root)

    @cached_property
    def _misfit(self) -> float:
        """Bound on the mean of (x'd)^2; for the least A that its noise makes likely."""
        fit = self.fit
        if not np.any(fit.ridge):
            return 0.0
        size = np.abs(fit.rows[:-1])
        noise = size @ fit.matrix.noise_sd @ size.T
        # About the norm of such noise: Bandeira and van Handel (2016), Ann. Probab. 44, 2479-2506.
        reach = 2 * float(np.sqrt((noise**2).sum(axis=1).max()))
        least = fit.second_moments[:-1, :-1] - reach * np.eye(len(noise))
        misfit = misfit_bound(least, fit.ridge * fit.params, np.zeros(len(noise)))
        return min(fit.safe_variance, misfit)


@dataclass(frozen=True)
class _OfScores(SamplingCovariance):
    """M from noisy products of scores.

    Variances are at least the standard deviation of their own noise, and what rounding may hide.
    """

    measured: FourthMoments | PersonScores  # A noisy M at any residual, and the law of its noise

    @property
    @abstractmethod
    def per_row(self) -> float:
        """1 / n, with a factor for small samples."""

    @cached_property
    def _middle(self) -> Floats:
        """(q, q) noisy M of the features, at the estimated residual."""
        return self.measured.matrix(self.fit.residual)

    @cached_property
    def matrix(self) -> Floats:
        """(p, p); a direction in which noise makes it small has the deviation of that noise."""
        fit, root = self.fit, root_of(self.fit.inverse)
        middle = fit.rows[:-1] @ self._middle @ fit.rows[:-1].T
        values, vectors = np.linalg.eigh(root @ middle @ root)
        scores = vectors.T @ root
        values = self._allowing(values * self.per_row, vectors.T @ np.linalg.pinv(root))
        return np.asarray((scores.T * values) @ scores)

    def variances(self, combinations: Floats) -> Floats:
        """(k,)."""
        along = combinations @ self.matrix
        return self._allowing(np.einsum("ij,ij->i", along, combinations), combinations)

    def _allowing(self, variances: Floats, combinations: Floats) -> Floats:
        least = np.maximum(self.noise_sd(combinations), self.rounded(combinations))
        return np.asarray(np.maximum(variances, least))

    def noise_sd(self, combinations: Floats) -> Floats:
        """(k,) standard deviations of the noise on the variances of combinations (k, p)."""
        scores = combinations @ self.fit.inverse @ self.fit.rows[:-1]
        return self.measured.noise_sd(scores, self.fit.residual) * self.per_row

    def notes(self, combinations: Floats) -> list[str]:
        """Note that noise is more than half of some variance."""
        hidden = np.any(self.noise_sd(combinations) > self.variances(combinations) / 2)
        return [self.noisy] if hidden else []


@dataclass(frozen=True)
class AnyVariances(_OfScores):
    """HC1: independent rows whose errors have any variance, from fourth moments.

    MacKinnon, J. G. and White, H. (1985), J. Econometrics 29, 305-325.
    """

    measured: FourthMoments

    about = (
        "sampling variances allow for errors of any variance (HC1, from fourth moments of columns "
        "rounded to at most 128 steps); certified intervals for the population still assume equal "
        "variance, those for the table nothing"
    )
    noisy = (
        "most of the sampling variance is noise on fourth moments: use more rows, more budget, "
        "allocation='optimal' in the plan, or fewer regressors"
    )

    @property
    def per_row(self) -> float:
        """1 / (n - p), times `clustering`."""
        return self.clustering / max(self.fit.df_resid, 1.0)

    @property
    def df(self) -> float:
        """Degrees of freedom of the rows; the noise has its own draws."""
        return max(self.fit.df_resid / self.clustering, 1.0)

    def variances(self, combinations: Floats) -> Floats:
        """(k,) means of what `drawn` draws, for noise that is about normal."""
        from scipy import special

        scores = combinations @ self.fit.inverse @ self.fit.rows[:-1]
        noisy = np.einsum("ij,jk,ik->i", scores, self._middle, scores) * self.per_row
        sd = self.noise_sd(combinations)
        with np.errstate(divide="ignore", invalid="ignore"):
            at = np.nan_to_num(np.maximum(noisy, 0.0) / sd, posinf=np.inf)
        density = np.exp(-(at**2) / 2) / np.sqrt(2 * np.pi)
        expected = np.maximum(noisy, 0.0) * (2 * special.ndtr(at) - 1) + 2 * sd * density
        return np.asarray(np.maximum(expected, self.rounded(combinations)))

    def drawn(self, combination: Floats) -> Floats:
        """Draws (DRAWS,) of the size of the variance HC1 less the noise on it (eq. 3)."""
        return np.asarray(self.drawn_jointly(combination[None, :])[:, 0, 0])

    def drawn_jointly(self, combinations: Floats) -> Floats:
        """Draws (DRAWS, k, k): matrices of the same, with the sizes of their eigenvalues."""
        fit = self.fit
        scores = combinations @ fit.inverse @ fit.rows[:-1]
        root = root_of(scores @ self._middle @ scores.T)
        less_noise = (root @ root - self.measured.noise(scores, fit.residual)) * self.per_row
        values, vectors = np.linalg.eigh(less_noise)
        sizes = (vectors * np.abs(values)[:, np.newaxis, :]) @ vectors.swapaxes(1, 2)
        return np.asarray(sizes + np.diag(self.rounded(combinations)))


@dataclass(frozen=True)
class OfPersons(_OfScores):
    """Rows of one person may depend on each other too, from products of totals of scores."""

    measured: PersonScores
    # Whether errors are assumed to have equal variance: then the bound of `EqualVariances` takes
    # the place of variances whose noise has a standard deviation of more than `MOST_NOISE` of it.
    # The products that this noise is on have no part in the choice.
    bounded: bool = False

    about = (
        "sampling variances are from products of person totals, of columns rounded to at most 128 "
        "steps: they allow for errors of any variance that depend on each other within persons; "
        "certified intervals for the population still assume equal variance, those for the table "
        "nothing"
    )
    noisy = (
        "most of the sampling variance is noise on products of person totals: use more persons, "
        "more budget, or fewer regressors; or plan without person_totals="
    )

    @cached_property
    def bound(self) -> EqualVariances | None:
        """The covariance that is taken where noise hides that of persons."""
        return EqualVariances(self.fit, clustering=self.clustering) if self.bounded else None

    @property
    def per_row(self) -> float:
        """1 / n, with the factor of `small_sample`."""
        n, p = self.fit.matrix.n, len(self.fit.params)
        return float(small_sample(n, self.clustering, p)) / n

    def _bound_of(self, combinations: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """(k,) bounds on the variances, and whether each takes the place of the variance."""
        if self.bound is None:
            return np.zeros(len(combinations)), np.zeros(len(combinations), dtype=np.bool_)
        most = self.bound.variances(combinations)
        return most, np.asarray(self.noise_sd(combinations) > MOST_NOISE * most)

    def _allowing(self, variances: Floats, combinations: Floats) -> Floats:
        most, taken = self._bound_of(combinations)
        return np.where(taken, most, super()._allowing(variances, combinations))

    def notes(self, combinations: Floats) -> list[str]:
        """Also that the bound is taken for some."""
        taken = self._bound_of(combinations)[1].any()
        return super().notes(combinations) + ([_BOUNDED] if taken else [])

    @cached_property
    def df(self) -> float:
        """Degrees of freedom of G persons, with the largest relative error of a variance."""
        each = np.eye(len(self.fit.params))
        relative, (_, bounded) = np.zeros(len(each)), self._bound_of(each)
        np.divide(self.noise_sd(each), self.variances(each), out=relative, where=~bounded)
        if self.bound is not None:
            relative[bounded] = self.bound.relative
        return with_noise(max(self.persons - 1, 1.0), float(np.max(relative)))


def with_noise(df: float, relative: float) -> float:
    """Degrees of freedom of a variance with `df` and noise of a relative standard deviation.

    A squared relative error of 2 / df is that of `df` squares: F. E. Satterthwaite (1946),
    Biometrics Bulletin 2, 110-114.
    """
    return 1 / (1 / df + min(relative**2, _LARGEST_RELATIVE) / 2)


@dataclass(frozen=True)
class PersonScores:
    """Sums over persons of products of their totals of x (y - x'b), in place of fourth moments.

    At any b a score is a combination of totals of products of a regressor's feature and any other.
    """

    answers: Answers  # to a block of `PersonMoments`
    # (q, q) which of the T totals the product of two features is; -1 for a known zero, or no use
    total: NDArray[np.int64]
    n: float  # number of rows

    @cached_property
    def _forms(self) -> PersonForms:
        return PersonForms(self.answers)

    def _along(self, residual: Floats) -> Floats:
        """(q, T): every feature times the residual, a combination (q,) of the features."""
        along = np.zeros((len(self.total), len(self._forms.products)))
        for row, places in zip(along, self.total, strict=True):
            used = places >= 0
            np.add.at(row, places[used], residual[used])
        return along

    def matrix(self, residual: Floats) -> Floats:
        """(q, q) noisy sum over persons of (total of f u'f)(total of f u'f)', over n."""
        along = self._along(residual)
        return np.asarray(along @ self._forms.products @ along.T / self.n)

    def noise_sd(self, scores: Floats, residual: Floats) -> Floats:
        """(m,) standard deviations of the noise on scores (m, q) of that on either side."""
        return self._forms.noise_sd((scores @ self._along(residual)).T) / self.n


@dataclass(frozen=True)
class FourthMoments:
    """Mean products of two regressors and of two regressors or responses, measured with noise."""

    answers: Answers  # the d distinct measured functions
    # (q, q) which of the P products of two features each is; -1 for a known zero
    pair: NDArray[np.int64]
    # (P, P) which function the product of a pair of regressors' features and of any pair is; -1 for
    # a known zero (or a product of no use), -2 for a known one
    place: NDArray[np.int64]

    @cached_property
    def _values(self) -> Floats:
        """(P, P)."""
        known = {ZERO: 0.0, ONE: 1.0}
        padded = np.concatenate([self.answers.means, [known[ONE], known[ZERO]]])
        return np.asarray(padded[self.place])

    def _pairs(self, one: Floats, other: Floats) -> Floats:
        """(P,) weights of the pairs in the product of two combinations (q,) of the features."""
        used = self.pair >= 0
        products = np.outer(one, other)[used]
        weights = np.bincount(self.pair[used], products, minlength=len(self.place))
        return np.asarray(weights, dtype=np.float64)

    def matrix(self, residual: Floats) -> Floats:
        """(q, q) noisy mean of f f' (u'f)^2 for features f of regressors, u = `residual` (q,)."""
        by_pair = np.append(self._values @ self._pairs(residual, residual), 0.0)
        return np.asarray(by_pair[self.pair])

    def _weights(self, left: Floats, right: Floats, residual: Floats) -> Floats:
        """(k, d) of the noise on the sums in that on the mean of (l'f) (r'f) (u'f)^2, l, r (k, q).

        With f the features and u the residual.
        """
        squares = self._pairs(residual, residual)
        measured = self.place >= 0
        unit = self.answers.n * self.answers.bounds
        return np.array([
            np.bincount(
                self.place[measured], np.outer(self._pairs(*both), squares)[measured],
                minlength=len(unit),
            )
            for both in zip(left, right, strict=True)
        ]) / unit  # fmt: skip

    def noise_sd(self, scores: Floats, residual: Floats) -> Floats:
        """(k,) standard deviations of the noise on the mean of (s'f)^2 (u'f)^2, scores (k, q)."""
        weights = self._weights(scores, scores, residual)
        variances = np.einsum("ij,ij->i", weights @ self.answers.noise_covariance, weights)
        return np.asarray(np.sqrt(np.maximum(variances, 0.0)))

    @cached_property
    def _drawn(self) -> Floats:
        """(DRAWS / 4, d) draws of the noise on the sums."""
        rng = calibration_generator(self.answers, _FOURTH)
        return draw_noise(self.answers, DRAWS // 4, rng)

    def noise(self, scores: Floats, residual: Floats) -> Floats:
        """(DRAWS, k, k) draws of the noise on the mean of (S f) (S f)' (u'f)^2, scores S (k, q).

        Each with its opposite, twice: halves are uncorrelated with draws and their opposites.
        """
        i, j = np.triu_indices(len(scores))
        drawn = np.empty((len(self._drawn), len(scores), len(scores)))
        drawn[:, i, j] = self._drawn @ self._weights(scores[i], scores[j], residual).T
        drawn[:, j, i] = drawn[:, i, j]
        return np.concatenate([drawn, -drawn, drawn, -drawn])
