"""Least squares from noisy second moments: estimates, and the law of their error."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.regression.joint_test import independent, joint_test
from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.corrected.least_squares import positive_definite
from dpstats.inference.confidence_law import DRAWS, ConfidenceLaw
from dpstats.inference.moment_matrix import ONE
from dpstats.inference.simulation import calibration_generator, draw_noise

if TYPE_CHECKING:
    from dpstats.inference.moment_matrix import NoisyMatrix

WALD, JOINT = 1, 2  # purposes of draws, distinct from those of the noise
_ROUNDING = 2.0**-52


@dataclass(frozen=True)
class LeastSquares(Cached):
    """Normal equations A b = c whose entries are measured with noise of a known law.

    With E the noise on the mean products of regressors x and response y, noisy A and c satisfy

        c - A b = Z / sqrt(n) + E_xy - E_xx b

    exactly at the population's coefficients b, where Z is the sampling error of the mean of
    x (y - x'b), about N(0, s2 Q) for errors of equal variance s2 (see `SamplingCovariance`). So
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
    covariance_of : callable
        The sampling covariance of the coefficients, given this fit.
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
    covariance_of: Callable[[LeastSquares], SamplingCovariance]
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
        noise = self._noise_covariance(self._weights(self.residual[None, :], self.residual))
        return float(np.sqrt(noise[0, 0]))

    @cached_property
    def safe_variance(self) -> float:
        """The same, at least the standard deviation of its noise, and what rounding makes of it."""
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
        """That of the coefficients, from what was measured of it."""
        return self.covariance_of(self)

    @cached_property
    def bounds(self) -> Floats:
        """(p + 1,) no regressor (and response) is larger in absolute value."""
        return np.asarray(np.abs(self.rows).sum(axis=1))  # features lie in [-1, 1]

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
        weights = self._weights(score, self.residual)[0]
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
        if sampling:
            variance = variance + self.sampling.drawn(combination) + extra * self.safe_variance
        return ConfidenceLaw.of_moving_noise(
            estimate, np.sqrt(variance), self.sampling.df, self.noise(combination),
            self.moving(combination, sampling=sampling), gaussian=gaussian,
        )  # fmt: skip

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
        sampling = self.sampling.matrix + self.left_covariance
        covariance = sampling + self.noise_covariance
        reduced, difference = independent(combinations, values, self.params, covariance)
        under = self.params + covariance @ reduced.T @ difference
        scores = reduced @ self.inverse @ self.rows[:-1]
        weights = self._weights(scores, self._residual(under))
        rng = calibration_generator(self.matrix.answers, WALD)
        return joint_test(
            difference, self.sampling.df, reduced @ sampling @ reduced.T,
            self._noise_covariance(weights), lambda: self._noise @ weights.T, rng,
        )  # fmt: skip


@dataclass(frozen=True)
class SamplingCovariance(ABC):
    """Of the coefficients of a fit: A^-1 M A^-1 / n, M the covariance of x (y - x'b).

    Attributes
    ----------
    fit : LeastSquares
        With a regular A where anything is asked.
    clustering : float
        At least 1: the most rows of one unit that is independent of the others, such as a person.
    """

    fit: LeastSquares
    clustering: float = field(default=1.0, kw_only=True)

    about: ClassVar[str]  # what a result says of it
    noisy: ClassVar[str] = ""  # the same where it was measured, if noise is most of it

    @property
    @abstractmethod
    def matrix(self) -> Floats:
        """(p, p)."""

    @abstractmethod
    def variances(self, combinations: Floats) -> Floats:
        """Of combinations (k, p) of the coefficients; (k,)."""

    @property
    @abstractmethod
    def df(self) -> float:
        """Degrees of freedom of the t laws of errors."""

    @property
    def persons(self) -> float:
        """The fewest independent units that the rows can be of."""
        return self.fit.matrix.n / self.clustering

    @property
    def of_rows(self) -> bool:
        """Whether rows are independent."""
        return self.clustering == 1

    def rounded(self, combinations: Floats) -> Floats:
        """(k,) variances that the rounding of the moments may hide."""
        scores = combinations @ self.fit.inverse
        hidden = self.fit.rounding / self.persons
        return np.asarray(np.einsum("ij,ij->i", scores, combinations) * hidden)

    def drawn(self, combination: Floats) -> Floats | float:
        """Variance of a combination (p,), or draws of it without the noise on it."""
        return float(self.variances(combination[None, :])[0])

    def notes(self, combinations: Floats) -> list[str]:
        """Remarks of a result on it."""
        return []
