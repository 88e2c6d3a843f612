"""Least squares from noisy second moments: estimates, and the law of their error."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.moments.person_variance import MOST_NOISE
from dpstats.analyses.regression.fourth_moments import FourthMoments
from dpstats.analyses.regression.joint_test import independent, joint_test, root_of
from dpstats.analyses.regression.person_scores import PersonScores
from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.corrected.ridge import largest_leverage, misfit_bound, positive_definite
from dpstats.inference.confidence_law import DRAWS, ConfidenceLaw
from dpstats.inference.moment_matrix import ONE
from dpstats.inference.simulation import calibration_generator, draw_noise

if TYPE_CHECKING:
    from dpstats.inference.moment_matrix import NoisyMatrix

WALD, JOINT = 1, 2  # purposes of draws, distinct from those of the noise
_ROUNDING = 2.0**-52
_LARGEST_RELATIVE = 0.25  # variance of a variance: beyond it the noise prevails anyway


@dataclass(frozen=True)
class LeastSquares(Cached):
    """Normal equations A b = c whose entries are measured with noise of a known law.

    With E the noise on the mean products of regressors x and response y, noisy A and c satisfy

        c - A b = Z / sqrt(n) + E_xy - E_xx b

    exactly at the population's coefficients b, where Z is the sampling error of the mean of
    x (y - x'b), about N(0, s2 Q) for errors of equal variance s2 (see `sampling_covariance`). So
    the error of h'A^-1 c is h'A^-1 times that sum: linear in the noise, with no expansion of the
    inverse. Its law depends on b; in a test of h'b = v, b is estimated under that hypothesis, so
    that the noise in A, which grows with b, is accounted for: intervals become unbounded where the
    noise does not exclude a singular A (as Fieller's do), and where noise is small they are the
    classical ones.

    Attributes
    ----------
    matrix : NoisyMatrix
        Mean products of q features.
    rows : (p + 1, q) float64
        Regressors, then response, as combinations of the features.
    ridge : (p,) float64
        Added to the diagonal of A; intervals are then for the coefficients with this penalty.
    fourth : FourthMoments, PersonScores or None
        Those of the features, where errors may vary with the regressors; or products of the scores
        of persons, where rows of one person may depend on each other too.
    equal_variance : bool
        Whether errors are assumed to have equal variance, where `fourth` is of persons: then
        `clustering` times the variance of independent rows is taken where the standard deviation of
        the noise on the variance of persons is more than `MOST_NOISE` of it. The products that this
        noise is on have no part in the choice.
    clustering : float
        At least 1: how many times the sampling covariance of independent rows is allowed for, such
        as the most rows of one person, unless `fourth` is of persons. The t laws have as many
        times fewer degrees of freedom.
    left : (m, q) float64, optional
        Combinations of the features that are zero but in levels that are left out as empty.
    touched : (m, p) bool, optional
        Regressors that are not zero in all rows of each of these levels.

    References
    ----------
    Ferrando, C., Wang, S. and Sheldon, D. (2022). Parametric bootstrap for differentially private
    confidence intervals. AISTATS. Fieller, E. C. (1954). Some problems in interval estimation.
    JRSS B 16, 175-185. Anderson, T. W. and Rubin, H. (1949), Ann. Math. Statist. 20, 46-63.
    """

    matrix: NoisyMatrix
    rows: Floats
    ridge: Floats
    fourth: FourthMoments | PersonScores | None = None
    clustering: float = 1.0
    equal_variance: bool = False
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
        """The residual as a combination of the features, (q,)."""
        return np.asarray(self.rows.T @ np.append(-params, 1.0))

    @cached_property
    def error_variance(self) -> float:
        """Estimated variance of the errors, n / (n - p) times the mean square; may be negative."""
        residual = self._residual(self.params)
        mean_square = float(residual @ self.matrix.matrix @ residual)
        return mean_square * self.matrix.n / max(self.df_resid, 1.0)

    @cached_property
    def _noise_of_variance(self) -> float:
        """Standard deviation of the noise on the error variance."""
        residual = self._residual(self.params)
        noise = self._noise_covariance(self._weights(residual[None, :], residual))
        return float(np.sqrt(noise[0, 0]))

    @cached_property
    def _safe_variance(self) -> float:
        """The same, at least the standard deviation of its noise, and what rounding makes of it."""
        return max(self.error_variance, self._noise_of_variance, self.rounding)

    @cached_property
    def rounding(self) -> float:
        """Error variance that the rounding of the moments may hide, as of a constant response."""
        size = np.abs(self._residual(self.params))
        return float(size @ np.abs(self.matrix.matrix) @ size) * len(self.rows) * _ROUNDING

    @cached_property
    def _df_of_variance(self) -> float:
        """Degrees of freedom of a variance with the same relative error [1]_.

        That of n - p squares is 2 / (n - p); the noise has its own, but for robust errors, whose
        variances are never below that. Of persons it is the largest of the coefficients'.

        References
        ----------
        .. [1] F. E. Satterthwaite (1946), An approximate distribution of estimates of variance
           components. Biometrics Bulletin 2, 110-114.
        """
        relative = 0.0
        if self.fourth is None and self._safe_variance > 0:
            relative = (self._noise_of_variance / self._safe_variance) ** 2
        elif self.of_persons and self.regular:
            each = np.eye(len(self.params))
            noise = self._fourth_noise(each @ self.inverse) * self._per_row
            of_bound = self._noise_of_variance / self._safe_variance if self._safe_variance else 0.0
            shares = np.where(self._hidden(each), of_bound, noise / self.sampling_variances(each))
            relative = float(np.max(shares**2))
        rows = self.matrix.n - self.clustering if self.of_persons else self.df_resid
        return 1 / (1 / max(rows / self.clustering, 1.0) + min(relative, _LARGEST_RELATIVE) / 2)

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
    def sampling_covariance(self) -> Floats:
        """(p, p) of the coefficients: A^-1 M A^-1 / n, M the mean of xx'(y - x'b)^2.

        M from fourth moments and with the factor n / (n - p) of HC1 [1]_, where they were measured,
        or over n the sum over persons of their scores' products, see `PersonScores.factor`; a
        direction in which noise makes it small has the standard deviation of that noise instead.
        Otherwise for errors of equal variance, when M is their variance times A. With a penalty the
        residual is such an error plus x'd, d the shrinkage of the coefficients, and the mean of
        xx'(x'd)^2 is at most that of (x'd)^2 times `largest_leverage` times A with penalty.

        References
        ----------
        .. [1] MacKinnon, J. G. and White, H. (1985). Some heteroskedasticity-consistent covariance
           matrix estimators with improved finite sample properties. J. Econometrics 29, 305-325.
        """
        if self.fourth is not None:
            root = root_of(self.inverse)
            middle = self.rows[:-1] @ self.fourth.matrix(self._residual(self.params))
            values, vectors = np.linalg.eigh(root @ middle @ self.rows[:-1].T @ root)
            scores = vectors.T @ root
            values = self._allowing(values * self._per_row, vectors.T @ np.linalg.pinv(root))
            return np.asarray((scores.T * values) @ scores)
        return self._of_equal_variance

    @cached_property
    def _of_equal_variance(self) -> Floats:
        middle = self.inverse @ self._regressors @ self.inverse * self._safe_variance
        if self._misfit > 0:
            middle += self.inverse * self._misfit * largest_leverage(self.inverse, self.bounds[:-1])
        return np.asarray(middle / self._persons)

    def sampling_variances(self, combinations: Floats) -> Floats:
        """Of combinations (k, p) of the coefficients; (k,).

        At most those of `sampling_covariance` under a penalty: with s = h'A^-1 x the mean of
        s^2 (x'd)^2 is at most the largest s^2 times the mean of (x'd)^2, and that of s^2 times the
        squared residual at most the mean of s^2 times the largest. At least the standard deviation
        of their own noise where fourth moments were measured.
        """
        if self.fourth is None:
            return self._of_equal_variances(combinations)
        along = combinations @ self.sampling_covariance
        return self._allowing(np.einsum("ij,ij->i", along, combinations), combinations)

    def _allowing(self, variances: Floats, combinations: Floats) -> Floats:
        """At least the standard deviation of their noise; or the bound, where they are hidden."""
        scores = combinations @ self.inverse
        least = self._fourth_noise(scores) * self._per_row
        rounding = np.einsum("ij,ij->i", scores, combinations) * self.rounding / self._persons
        found = np.maximum(np.maximum(variances, least), rounding)
        if not self.equal_variance:
            return np.asarray(found)
        most = self._of_equal_variances(combinations)
        return np.asarray(np.where(self._hidden(combinations), most, found))

    def _hidden(self, combinations: Floats) -> NDArray[np.bool_]:
        """(k,) where noise hides the variance of persons so that the bound is taken."""
        if not (self.equal_variance and self.of_persons and self.regular):
            return np.zeros(len(combinations), dtype=np.bool_)
        least = self._fourth_noise(combinations @ self.inverse) * self._per_row
        return np.asarray(least > MOST_NOISE * self._of_equal_variances(combinations))

    def bounded(self, combinations: Floats) -> bool:
        """Whether the bound is taken for some."""
        return bool(np.any(self._hidden(combinations)))

    def _of_equal_variances(self, combinations: Floats) -> Floats:
        along = combinations @ self._of_equal_variance
        variances = np.maximum(np.einsum("ij,ij->i", along, combinations), 0.0)
        scores = combinations @ self.inverse
        if self._misfit == 0:
            return np.asarray(variances)
        squares = np.einsum("ij,jk,ik->i", scores, self._regressors, scores)
        largest = np.abs(scores @ self.rows[:-1]).sum(axis=1) ** 2
        residual = np.abs(self._residual(self.params)).sum() ** 2
        sharp = squares * (self._safe_variance - self._misfit) + largest * self._misfit
        sharp = np.minimum(sharp, squares * residual) / self._persons
        # A constant column has no part in the moments, and its coefficient only rounding.
        least = np.einsum("ij,ij->i", scores, combinations) * self.rounding / self._persons
        return np.asarray(np.maximum(np.minimum(variances, sharp), least))

    def fourth_hidden(self, combinations: Floats) -> bool:
        """Whether noise on fourth moments is most of the sampling variance of some combination."""
        if self.fourth is None or not self.regular:
            return False
        scores = combinations @ self.inverse
        variances = self.sampling_variances(combinations)
        return bool(np.any(self._fourth_noise(scores) * self._per_row > variances / 2))

    @property
    def _per_row(self) -> float:
        """1 / n with the factor n / (n - p), times `clustering`; or with that of persons."""
        if isinstance(self.fourth, PersonScores):
            return self.fourth.factor(len(self.params)) / self.matrix.n
        return self.clustering / max(self.df_resid, 1.0)

    @property
    def of_rows(self) -> bool:
        """Whether rows are independent."""
        return self.clustering == 1 and not self.of_persons

    @property
    def of_persons(self) -> bool:
        """Whether sampling covariances are from the totals of persons."""
        return isinstance(self.fourth, PersonScores)

    @property
    def _persons(self) -> float:
        """Rows over `clustering`."""
        return self.matrix.n / self.clustering

    def _fourth_noise(self, scores: Floats) -> Floats:
        """(k,) standard deviations of the noise on the means of (g'x)^2 (y - x'b)^2, g (k, p)."""
        assert self.fourth is not None
        return self.fourth.noise_sd(scores @ self.rows[:-1], self._residual(self.params))

    @cached_property
    def _regressors(self) -> Floats:
        """A without the ridge, its positive part."""
        if not np.any(self.ridge):
            return self.gram
        root = root_of(self.second_moments[:-1, :-1])
        return np.asarray(root @ root)

    @cached_property
    def bounds(self) -> Floats:
        """(p + 1,) no regressor (and response) is larger in absolute value."""
        return np.asarray(np.abs(self.rows).sum(axis=1))  # features lie in [-1, 1]

    @cached_property
    def _misfit(self) -> float:
        """Bound on the mean of (x'd)^2; for the least A that its noise makes likely."""
        if not np.any(self.ridge):
            return 0.0
        size = np.abs(self.rows[:-1])
        noise = size @ self.matrix.noise_sd @ size.T
        # About the norm of such noise: Bandeira and van Handel (2016), Ann. Probab. 44, 2479-2506.
        reach = 2 * float(np.sqrt((noise**2).sum(axis=1).max()))
        least = self.second_moments[:-1, :-1] - reach * np.eye(len(noise))
        misfit = misfit_bound(least, self.ridge * self.params, np.zeros(len(noise)))
        return min(self._safe_variance, misfit)

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
        """(p, p) of the coefficients' errors from the rows that levels left out may have.

        m times the sum of squares of what each of the m directions may add, at the noisy means and
        the largest coefficients (eqs. 5 to 7 of docs/explanation/regression/ols.md). Noise on the
        means is not taken off: it stands for what the noisy count may be short of.
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
        score = (combination @ self.inverse @ self.rows[:-1])[None, :]
        weights = self._weights(score, self._residual(self.params))[0]
        return self._opposites(weights) if opposites else np.asarray(self._noise @ weights)

    def moving(self, combination: Floats, *, sampling: bool = True) -> Floats:
        """Draws (DRAWS,) of what a unit by which its true value is larger adds to that noise."""
        covariance = self.noise_covariance + self.left_covariance
        covariance = covariance + (self.sampling_covariance if sampling else 0.0)
        along = covariance @ combination
        variance = float(combination @ along)
        # Derivative of the estimate under a hypothesis on the combination by its value.
        length = float(combination @ combination)
        slope = along / variance if variance > 0 else combination / (length or 1.0)
        score = (combination @ self.inverse @ self.rows[:-1])[None, :]
        return self._opposites(self._weights(score, self.rows[:-1].T @ -slope)[0])

    def law(
        self, combination: Floats, *, sampling: bool = True, extra: float = 0.0
    ) -> ConfidenceLaw:
        """Law of one linear combination (p,) of the coefficients (eq. 2).

        Parameters
        ----------
        combination : (p,) float64
        sampling : bool
            False: only noise, for the coefficients of the private table itself.
        extra : float
            Multiple of the error variance to add, to predict a new response.
        """
        estimate, gaussian = float(combination @ self.params), self.matrix.answers.law(0).gaussian
        if not self.regular or (sampling and self.df_resid <= 0):
            unknown, none = np.full(DRAWS, np.inf), np.zeros(DRAWS)
            return ConfidenceLaw.of_moving_noise(
                estimate, unknown, 1.0, none, none, gaussian=gaussian
            )
        variance: Floats | float = float(combination @ self.left_covariance @ combination)
        df = self._df_of_variance
        if sampling and isinstance(self.fourth, FourthMoments):
            variance = variance + self._robust_draws(combination)
            df = max(self.df_resid / self.clustering, 1.0)
        elif sampling:
            variance += float(self.sampling_variances(combination[None, :])[0])
        if sampling:
            variance = variance + extra * self._safe_variance
        return ConfidenceLaw.of_moving_noise(
            estimate, np.sqrt(variance), df, self.noise(combination),
            self.moving(combination, sampling=sampling), gaussian=gaussian,
        )  # fmt: skip

    def _robust_draws(self, combination: Floats) -> Floats:
        """Draws (DRAWS,) of the variance HC1 of a combination (p,), less the noise on it (eq. 3).

        Not below what rounding may hide.
        """
        assert isinstance(self.fourth, FourthMoments)
        own, residual = combination @ self.inverse, self._residual(self.params)
        score = own @ self.rows[:-1]
        noisy = float(score @ self.fourth.matrix(residual) @ score)
        drawn = (max(noisy, 0.0) - self.fourth.noise(score, residual)) * self._per_row
        rounding = float(own @ combination) * self.rounding / self._persons
        return np.maximum(drawn, max(rounding, 0.0))

    def wald(self, combinations: Floats, values: Floats) -> tuple[float, float]:
        """F test that combinations (k, p) of the coefficients equal values (k,).

        See `joint_test`; the covariance is that at the coefficients under the hypothesis.

        Raises
        ------
        RequestError
            If no coefficients give all combinations their values.
        """
        if not self.regular or self.df_resid <= 0:
            return 0.0, 1.0
        sampling = self.sampling_covariance + self.left_covariance
        covariance = sampling + self.noise_covariance
        reduced, difference = independent(combinations, values, self.params, covariance)
        under = self.params + covariance @ reduced.T @ difference
        scores = reduced @ self.inverse @ self.rows[:-1]
        weights = self._weights(scores, self._residual(under))
        rng = calibration_generator(self.matrix.answers, WALD)
        return joint_test(
            difference, self._df_of_variance, reduced @ sampling @ reduced.T,
            self._noise_covariance(weights), lambda: self._noise @ weights.T, rng,
        )  # fmt: skip
