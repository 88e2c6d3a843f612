"""Least squares from noisy second moments: estimates, and the law of their error."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.corrected.ridge import largest_leverage, misfit_bound, positive_definite
from dpstats.errors import RequestError
from dpstats.inference.moment_matrix import ONE
from dpstats.inference.regression.error_law import ErrorLaw
from dpstats.inference.simulation import calibration_generator, draw_noise
from dpstats.spending import least_of_noise

if TYPE_CHECKING:
    from dpstats.inference.moment_matrix import NoisyMatrix
    from dpstats.inference.regression.fourth_moments import FourthMoments

DRAWS = 5_000
WALD, JOINT = 1, 2  # purposes of draws, distinct from those of the noise
_NEGLIGIBLE = 1e-6
_LARGEST_RELATIVE = 0.25  # variance of a variance: beyond it the noise prevails anyway
_REDUNDANT = 1e-9  # of a standard deviation: a combination of others, up to rounding


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
    fourth : FourthMoments or None
        Those of the features, where errors may vary with the regressors.
    clustering : float
        At least 1: how many times the sampling covariance of independent rows is allowed for, such
        as the most rows of one person. The t laws have as many times fewer degrees of freedom.

    References
    ----------
    Ferrando, C., Wang, S. and Sheldon, D. (2022). Parametric bootstrap for differentially private
    confidence intervals. AISTATS. Fieller, E. C. (1954). Some problems in interval estimation.
    JRSS B 16, 175-185. Anderson, T. W. and Rubin, H. (1949), Ann. Math. Statist. 20, 46-63.
    """

    matrix: NoisyMatrix
    rows: Floats
    ridge: Floats
    fourth: FourthMoments | None = None
    clustering: float = 1.0

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
        """The same, at least the standard deviation of its noise."""
        return max(self.error_variance, self._noise_of_variance)

    @cached_property
    def _df_of_variance(self) -> float:
        """Degrees of freedom of a variance with the same relative error [1]_.

        That of n - p squares is 2 / (n - p); the noise has its own, but for robust errors, whose
        variances are never below that.

        References
        ----------
        .. [1] F. E. Satterthwaite (1946), An approximate distribution of estimates of variance
           components. Biometrics Bulletin 2, 110-114.
        """
        relative = 0.0
        if self.fourth is None and self._safe_variance > 0:
            relative = (self._noise_of_variance / self._safe_variance) ** 2
        return 1 / (
            1 / max(self.df_resid / self.clustering, 1.0) + min(relative, _LARGEST_RELATIVE) / 2
        )

    def _weights(self, left: Floats, right: Floats) -> Floats:
        """Combinations (k, d) of the measured functions that give left E right, left (k, q)."""
        place, size = self.matrix.place.ravel(), len(self.matrix.answers.sums)
        measured = place >= 0
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

    @cached_property
    def sampling_covariance(self) -> Floats:
        """(p, p) of the coefficients: A^-1 M A^-1 / n, M the mean of xx'(y - x'b)^2.

        M from fourth moments and with the factor n / (n - p) of HC1 [1]_, where they were measured;
        a direction in which noise makes it small has the standard deviation of that noise instead.
        Otherwise for errors of equal variance, when M is their variance times A. With a penalty the
        residual is such an error plus x'd, d the shrinkage of the coefficients, and the mean of
        xx'(x'd)^2 is at most that of (x'd)^2 times `largest_leverage` times A with penalty.

        References
        ----------
        .. [1] MacKinnon, J. G. and White, H. (1985). Some heteroskedasticity-consistent covariance
           matrix estimators with improved finite sample properties. J. Econometrics 29, 305-325.
        """
        if self.fourth is not None:
            root = _root(self.inverse)
            middle = self.rows[:-1] @ self.fourth.matrix(self._residual(self.params))
            values, vectors = np.linalg.eigh(root @ middle @ self.rows[:-1].T @ root)
            scores = vectors.T @ root
            values = np.maximum(values, self._fourth_noise(scores))
            return np.asarray((scores.T * values) @ scores * self._per_row)
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
        along = combinations @ self.sampling_covariance
        variances = np.maximum(np.einsum("ij,ij->i", along, combinations), 0.0)
        scores = combinations @ self.inverse
        if self.fourth is not None:
            least = self._fourth_noise(scores) * self._per_row
            return np.asarray(np.maximum(variances, least))
        if self._misfit == 0:
            return np.asarray(variances)
        squares = np.einsum("ij,jk,ik->i", scores, self._regressors, scores)
        largest = np.abs(scores @ self.rows[:-1]).sum(axis=1) ** 2
        residual = np.abs(self._residual(self.params)).sum() ** 2
        sharp = squares * (self._safe_variance - self._misfit) + largest * self._misfit
        sharp = np.minimum(sharp, squares * residual) / self._persons
        return np.asarray(np.minimum(variances, sharp))

    def fourth_hidden(self, combinations: Floats) -> bool:
        """Whether noise on fourth moments is most of the sampling variance of some combination."""
        if self.fourth is None or not self.regular:
            return False
        scores = combinations @ self.inverse
        variances = self.sampling_variances(combinations)
        return bool(np.any(self._fourth_noise(scores) * self._per_row > variances / 2))

    @property
    def _per_row(self) -> float:
        """1 / n with the factor n / (n - p), times `clustering`."""
        return self.clustering / max(self.df_resid, 1.0)

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
        root = _root(self.second_moments[:-1, :-1])
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

    def law(self, combination: Floats, *, sampling: bool = True, extra: float = 0.0) -> ErrorLaw:
        """Law of the error of one linear combination (p,) of the coefficients.

        Parameters
        ----------
        combination : (p,) float64
        sampling : bool
            False: only noise, for the coefficients of the private table itself.
        extra : float
            Multiple of the error variance to add, to predict a new response.
        """
        if not self.regular or (sampling and self.df_resid <= 0):
            return ErrorLaw(np.inf, 1.0, np.zeros(1), np.zeros(1))
        covariance = self.noise_covariance + (self.sampling_covariance if sampling else 0.0)
        along = covariance @ combination
        variance = float(combination @ along)
        # Derivative of the estimate under a hypothesis on the combination by its value.
        length = float(combination @ combination)
        slope = along / variance if variance > 0 else combination / (length or 1.0)
        score = (combination @ self.inverse @ self.rows[:-1])[None, :]
        fixed = self._weights(score, self._residual(self.params))[0]
        moving = self._weights(score, self.rows[:-1].T @ -slope)[0]
        spread = 0.0
        if sampling:
            spread = float(self.sampling_variances(combination[None, :])[0])
            spread += extra * self._safe_variance
        return ErrorLaw(
            float(np.sqrt(spread)), self._df_of_variance, self._noise @ fixed, self._noise @ moving
        )

    def wald(self, combinations: Floats, values: Floats) -> tuple[float, float]:
        """F test that combinations (k, p) of the coefficients equal values (k,).

        The statistic weighs the differences by the inverse of their covariance, sampling and noise,
        at the coefficients under the hypothesis, and is divided by the number of independent
        combinations, k. With normal noise it would have about the F distribution; the p-value is
        that of F plus the simulated difference between the law of the noise and a normal one. It is
        the classical p-value without noise.

        Raises
        ------
        RequestError
            If no coefficients give all combinations their values.
        """
        from scipy import special

        if not self.regular or self.df_resid <= 0:
            return 0.0, 1.0
        covariance = self.sampling_covariance + self.noise_covariance
        difference = values - combinations @ self.params
        reduced, difference = _independent(combinations, values, difference, _root(covariance))
        k = len(reduced)
        if k == 0:
            return 0.0, 1.0
        under = self.params + covariance @ reduced.T @ difference
        scores = reduced @ self.inverse @ self.rows[:-1]
        weights = self._weights(scores, self._residual(under))
        noise = self._noise_covariance(weights)
        sampling = reduced @ self.sampling_covariance @ reduced.T
        precision = np.linalg.pinv(noise + sampling, hermitian=True)
        statistic = float(difference @ precision @ difference) / k
        if statistic == 0 or not np.isfinite(statistic):
            return 0.0, 1.0
        classical = float(special.fdtrc(k, self._df_of_variance, statistic))
        if np.trace(noise) <= _NEGLIGIBLE * np.trace(sampling):
            return statistic, classical
        rng, df = calibration_generator(self.matrix.answers, WALD), self._df_of_variance
        z = rng.standard_normal((DRAWS, k)) @ _root(sampling)
        z /= np.sqrt(rng.chisquare(df, (DRAWS, 1)) / df)
        normal = rng.standard_normal((DRAWS, k)) @ _root(noise)
        above = [
            float(np.mean(np.einsum("ij,jk,ik->i", e, precision, e) >= k * statistic))
            for e in (z + self._noise @ weights.T, z + normal)
        ]
        least = least_of_noise(float(np.trace(noise)), float(np.trace(noise + sampling)), DRAWS)
        pvalue = classical + above[0] - above[1]
        return statistic, float(np.clip(pvalue, least, 1))


def _independent(
    combinations: Floats, values: Floats, difference: Floats, root: Floats
) -> tuple[Floats, Floats]:
    """As many combinations as are independent, uncorrelated and of variance one, with `difference`.

    `root` is the square root of the coefficients' covariance. Rows are divided by their standard
    deviations first, so that their units do not decide whether a row is zero up to rounding.

    Raises
    ------
    RequestError
        If no coefficients give all combinations their values.
    """
    rows = combinations @ root
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
    return np.asarray(to_reduced @ combinations), np.asarray(to_reduced @ difference)


def _root(covariance: Floats) -> Floats:
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T)
