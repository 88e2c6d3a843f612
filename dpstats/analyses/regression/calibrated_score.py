"""Smooth M-estimators from a release: the fitted density, calibrated to the noisy answers.

With h the fitted shares of candidates z_i, t the noisy means of measured functions F and S the
covariance of their noise, candidates get the weights of the regression estimator of surveys [1]_

    w_i = h_i (1 + (F(z_i) - E_h F)' G^-1 (t - E_h F)),   G = Cov_h(F) + nu S,

(eq. 7 of docs/explanation/regression/logistic-regression.md), and the estimate solves
sum_i w_i psi_b(z_i) = 0. Its error has a sampling part, noise c'Sc with c = G^-1 Cov_h(F, psi), and
what F does not determine, r = psi - c'F, which has variance Var_h(r) kappa / n, and inside bins .06
of its own (eq. 8 there): rules, not theorems. Where a person may have k rows, n / k takes the place
of n in all parts but the noise. Why each part is as it is, and the tests of a value, are on that
page.

References
----------
.. [1] J.-C. Deville and C.-E. Sarndal (1992), Calibration estimators in survey sampling. J. Amer.
   Statist. Assoc. 87, 376-382.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from dpstats.analyses.regression.score import (
    DRAWS,
    Average,
    Link,
    Score,
    derivatives,
    find_root,
    solved,
)
from dpstats.arrays import Floats
from dpstats.inference.confidence_law import ConfidenceLaw
from dpstats.inference.joint_coverage import independent, joint_test
from dpstats.inference.simulation import calibration_generator, draw_noise

if TYPE_CHECKING:
    from collections.abc import Callable

    from scipy.sparse import csr_array

    from dpstats.checks import Alternative
    from dpstats.measured.answers import Answers

_WALD, _DERIVATIVE = 1, 2  # purposes of draws, distinct from those of the noise
_INSIDE = 0.06  # squared relative error of the law inside bins, a direction
_JITTER = 1e-10  # of the mean variance of a function: directions without variance stay unused
_LEAST_KAPPA, _ROWS_PER_KAPPA = 100, 200
_RIDGE = 8.0  # the most of nu
_SMALL_RIDGE, _LEAST_RIDGE = 1.0, 0.01  # nu for the derivative; the latter where collinear
_COLLINEAR = 5.0  # variance inflation factor above which columns are taken to be
_FURTHEST = 2.0  # of the fitted means from the answers; those of a good fit are within one
_LEAST_PART = 0.1  # of the information under the fitted density, that each direction keeps
_LEAST_VARIANCE = 1e-300
_GROWN = 0.4  # of the largest predictor of counts: means 1.5 times as large
_REJECTED = 1e3  # stands above any deviate


@dataclass(frozen=True, eq=False)
class CalibratedScore(Score):
    """A generalised linear model with a canonical link: psi_b = x (y - mean(x'b))."""

    # The m points are the candidates, and regressors have size about one.
    inside: NDArray[np.bool_]  # (m,) those that the regression is of; regressors of others are 0
    coarse: Floats  # (m, p) regressors with every number at the mean of its bin
    y: Floats  # (m,) response
    density: Floats  # (m,) fitted shares h
    functions: csr_array[Any]  # (d, m) F, in unit scale
    answers: Answers  # to these functions
    link: Link
    robust: bool = False  # sampling variance for any law of the response (HC0), from the density
    pilot: Floats | None = None  # (p,) coefficients at which the score is among the functions

    @property
    def n(self) -> int:
        """Number of rows, or its estimate."""
        return self.answers.n

    @property
    def persons(self) -> float:
        """Least number of persons: n, or its estimate, divided by the rows that one may have."""
        return self.n / self.answers.rows.rows_per_person

    @property
    def kappa(self) -> float:
        """Assumed model error of the fitted density beyond F: variance in units of 1 / persons."""
        return max(_LEAST_KAPPA, self.persons / _ROWS_PER_KAPPA)

    @cached_property
    def _unit(self) -> Floats:
        return np.asarray(self.n * self.answers.bounds, dtype=np.float64)

    @cached_property
    def noise_of_means(self) -> Floats:
        """(d, d) S, covariance of the noise on the means."""
        return np.asarray(self.answers.noise_covariance / np.outer(self._unit, self._unit))

    @cached_property
    def _fitted_means(self) -> Floats:
        return np.asarray(self.functions @ self.density)

    @cached_property
    def _second(self) -> Floats:
        """(d, d) Cov_h(F)."""
        weighted = self.functions.multiply(self.density[np.newaxis, :]).tocsr()
        second = (weighted @ self.functions.T).toarray()
        return np.asarray(second - np.outer(self._fitted_means, self._fitted_means))

    def _factor(self, ridge: float = _RIDGE) -> tuple[Floats, bool]:
        """Cholesky factor of G with nu = ridge, or the most that n / kappa allows."""

        def factored() -> tuple[Floats, bool]:
            g = self._second + self.noise_of_means * min(self.persons / self.kappa, ridge)
            g[np.diag_indices_from(g)] += _JITTER * max(float(np.trace(g)) / len(g), 1e-300)
            return linalg.cho_factor(g, lower=True)

        return self._once(ridge, factored)

    @cached_property
    def weights(self) -> Floats:
        """(m,) w (eq. 7)."""
        gap = self.answers.means - self._fitted_means
        pull = linalg.cho_solve(self._factor(), gap)
        by = self.functions.T @ pull - float(self._fitted_means @ pull)
        return np.asarray(self.density * (1 + by))

    def information(self, b: Floats) -> Floats:
        """Mean of x x' slope(x'b) with the calibrated weights, which may be negative.

        Each direction keeps a small part of that under the fitted density.
        """
        fitted, calibrated = (self._information(by, b) for by in (self.density, self.weights))
        parts, basis = linalg.eigh(calibrated, fitted)
        back = fitted @ basis
        return np.asarray((back * np.maximum(parts, _LEAST_PART)) @ back.T)

    def _information(self, weights: Floats, b: Floats) -> Floats:
        slope = self.link.slope(self.x @ b)
        return np.asarray((self.x.T * (weights * slope)) @ self.x)

    @cached_property
    def fits(self) -> bool:
        """True if the fitted means are as near the answers as noise, one row and `kappa` allow.

        If not, neither the weights nor the rules for errors hold.
        """
        gap = self.answers.means - self._fitted_means
        allowed = np.diag(self._second) * self.kappa / self.persons
        allowed = np.diag(self.noise_of_means) + self.n**-2.0 + allowed
        return bool(np.mean(gap**2 / allowed) <= _FURTHEST**2)

    @cached_property
    def params(self) -> Floats | None:
        """(p,) the estimate; None where the noise leaves none within reach."""
        if not self.fits:
            return None
        fitted = partial(self._information, self.density)
        zero = np.zeros(self.x.shape[1])
        start = find_root(partial(self._score, self.density), fitted, self.x, zero)
        if start is None:
            return None
        root = self._find_root(start)
        return find_root(self.score, fitted, self.x, start) if root is None else root

    def score(self, b: Floats) -> Floats:
        """Calibrated score (p,)."""
        return self._score(self.weights, b)

    def _score(self, weights: Floats, b: Floats) -> Floats:
        return np.asarray(self.x.T @ (weights * (self.y - self.link.mean(self.x @ b))))

    @cached_property
    def _residual(self) -> Floats:
        """(m,) at the estimate."""
        return np.asarray(self.y - self.link.mean(self.x @ self._estimate))

    @cached_property
    def influence(self) -> Floats:
        """(m, p) of the candidates on the coefficients: H^-1 psi at the estimate."""
        psi = self.x * self._residual[:, np.newaxis]
        return np.asarray(solved(self._information_at_estimate, psi.T).T)

    def parts(self, influence: Floats, ridge: float = _RIDGE) -> tuple[Floats, Floats]:
        """Coefficients c (d, k) of the answers, and Var_h(r) (k, k), for influences (m, k)."""
        centred = influence - self.density @ influence
        weighted = centred * self.density[:, np.newaxis]
        c = linalg.cho_solve(self._factor(ridge), self.functions @ weighted)
        rest = centred - (self.functions.T @ c - self._fitted_means @ c)
        return np.asarray(c), np.asarray((rest.T * self.density) @ rest)

    @cached_property
    def _own_parts(self) -> tuple[Floats, Floats]:
        return self.parts(self.influence)

    @cached_property
    def sampling_covariance(self) -> Floats:
        """(p, p) of the coefficients without privacy: the inverse information, or HC0."""
        if self.robust:
            return np.asarray((self.influence.T * self.density) @ self.influence / self.persons)
        return np.asarray(np.linalg.inv(self._information_at_estimate) / self.persons)

    @cached_property
    def noise_covariance(self) -> Floats:
        """(p, p) of the coefficients, from the noise."""
        c = self._own_parts[0]
        return np.asarray(c.T @ self.noise_of_means @ c)

    def _hidden(self, rest: float, *inside: float) -> float:
        """Variance from what was not measured: Var_h(r), and inside bins the least of some."""
        return rest * self.kappa / self.persons + min(inside) * _INSIDE

    def density_variance(self, combination: Floats, rest: float | None = None) -> float:
        """Variance of a combination (p,) from what was not measured; `rest` is Var_h(r)."""
        own, inside = (
            float(combination @ v @ combination) for v in (self._own_parts[1], self._inside)
        )
        return self._hidden(own if rest is None else rest, own, inside)

    @cached_property
    def _inside(self) -> Floats:
        """(p, p) Var_h of what moving numbers to the means of their bins changes in x mean(x'b)."""
        moved = self._means(self.coarse, self._estimate) - self._means(self.x, self._estimate)
        return self.parts(solved(self._information_at_estimate, moved.T).T)[1]

    def unmeasured(self, combinations: Floats) -> Floats:
        """(k,) share of the variances of (k, p) that is `density_variance`."""
        variances = self.covariances(combinations).diagonal(axis1=1, axis2=2).sum(axis=0)
        hidden = np.array([self.density_variance(h) for h in combinations])
        return np.asarray(hidden / variances)

    def average(self, values: Callable[[Floats], Floats]) -> Average:
        """Mean over the rows, or those of the subgroup; privacy has the density's variance."""
        share = max(float(self.weights @ self.inside), 1 / self.n)

        def mean(b: Floats) -> float:
            return float((self.weights * self.inside) @ values(b)) / share

        estimate, gradient = mean(self._estimate), derivatives(mean, self._estimate)
        own = self.inside * (values(self._estimate) - estimate) / share
        influence = (own + self.influence @ gradient)[:, np.newaxis]
        c, rest = self.parts(influence)
        centred = influence - self.density @ influence
        sampling = float(self.density @ centred[:, 0] ** 2) / self.persons
        noise = float(c[:, 0] @ self.noise_of_means @ c[:, 0])
        privacy = noise + self.density_variance(gradient, float(rest[0, 0]))
        return Average(estimate, sampling, privacy)

    def covariances(self, combinations: Floats) -> Floats:
        """(2, k, k) from sampling and from privacy, with the density's (eq. 8)."""
        rest = combinations @ self._own_parts[1] @ combinations.T
        own, inside = np.diag(rest), np.diag(combinations @ self._inside @ combinations.T)
        part = np.sqrt(np.minimum(own, inside) / np.where(own > 0, own, 1.0))
        density = rest * (self.kappa / self.persons + _INSIDE * np.outer(part, part))
        sampling = combinations @ self.sampling_covariance @ combinations.T
        return np.array([sampling, combinations @ self.noise_covariance @ combinations.T + density])

    def _means(self, x: Floats, b: Floats) -> Floats:
        """(m, p) x mean(x'b); less that at the pilot, where the score there was measured."""
        at_pilot = 0.0 if self.pilot is None else self.link.mean(x @ self.pilot)
        return np.asarray(x * (self.link.mean(x @ b) - at_pilot)[:, np.newaxis])

    @cached_property
    def _noise(self) -> Floats:
        """(DRAWS, p) of the coefficients' errors from the noise."""
        rng = calibration_generator(self.answers)
        return draw_noise(self.answers, DRAWS, rng, self._own_parts[0] / self._unit[:, np.newaxis])

    def law(self, combination: Floats, *, sampling: bool = True) -> ConfidenceLaw:
        """Law of a combination (p,) of the coefficients."""
        variance = self.density_variance(combination)
        if sampling:
            variance += float(combination @ self.sampling_covariance @ combination)
        fixed = self._noise @ combination
        return ConfidenceLaw.of_moving_noise(
            float(combination @ self._estimate), math.sqrt(max(variance, 0.0)), self.df, fixed,
            self._moving(combination, fixed), gaussian=self.answers.law(0).gaussian,
        )  # fmt: skip

    def _moving(self, combination: Floats, fixed: Floats) -> Floats:
        """(DRAWS,) error of the derivative, by which the score grows with the value tested.

        From the noise, given draws of that of the combination as if both were normal, and from
        what was not measured.
        """
        along = solved(self._information_at_estimate, combination)
        toward = along / float(combination @ along)
        own, coarse = (
            -(x @ along) * self.link.slope(x @ self._estimate) * (x @ toward)
            for x in (self.x, self.coarse)
        )
        ridge = self._ridge_along(combination[np.newaxis, :])
        c, rest = self.parts(np.column_stack([own, coarse - own]), ridge)
        variance = self._hidden(rest[0, 0], rest[0, 0], rest[1, 1])
        noise = self.noise_of_means @ c[:, 0]
        variance += float(c[:, 0] @ noise)
        with_fixed = float(self._own_parts[0] @ combination @ noise)
        of_fixed = float(combination @ self.noise_covariance @ combination)
        slope = with_fixed / of_fixed if of_fixed > 0 else 0.0
        left = math.sqrt(max(variance - slope * with_fixed, 0.0))
        rng = calibration_generator(self.answers, _DERIVATIVE)
        return np.asarray(slope * fixed + left * rng.standard_normal(DRAWS))

    def _ridge_along(self, combinations: Floats) -> float:
        """Nu for the derivative along combinations (k, p): the least one for collinear columns."""
        by = self.density * self.inside * self.link.slope(self.x @ self._estimate)
        alone = np.maximum(by @ self.x**2 - (by @ self.x) ** 2 / by.sum(), 0.0)  # each column's
        varied = alone > _JITTER * max(float(np.max(alone)), 1e-300)  # not the constant
        inverse = np.linalg.inv(self._information_at_estimate)[np.ix_(varied, varied)]
        parts = combinations[:, varied]
        inflated = np.einsum("ij,jk,ik->i", parts, inverse, parts)
        unrelated = parts**2 @ (1 / alone[varied])
        return _LEAST_RIDGE if np.any(inflated > _COLLINEAR * unrelated) else _SMALL_RIDGE

    @cached_property
    def df(self) -> int:
        """Persons, of a subgroup alone, less coefficients."""
        inside = float(self.density @ self.inside)
        return max(round(self.persons * inside) - len(self.x.T), 1)

    def wald(self, combinations: Floats, values: Floats) -> tuple[float, float, float, float]:
        """F test with the noise of the score under the hypothesis.

        What was not measured counts as sampling; of its two parts inside bins the smaller one.
        """
        covariance = self.sampling_covariance + self.noise_covariance
        reduced, difference = independent(combinations, values, self._estimate, covariance)
        along = solved(self._information_at_estimate, reduced.T)
        toward = along @ np.linalg.solve(reduced @ along, difference)
        grown = self.link.slope(self.x @ self._estimate) * (self.x @ toward)
        parts = self._residual, -grown
        score, moved = ((self.x @ along) * part[:, np.newaxis] for part in parts)
        own = self.parts(score + moved)[1]
        c = self.parts(score)[0] + self.parts(moved, self._ridge_along(reduced))[0]
        inside = reduced @ self._inside @ reduced.T
        hidden = own * self.kappa / self.persons + min(own, inside, key=np.trace) * _INSIDE
        rng = calibration_generator(self.answers, _WALD)
        return joint_test(
            difference, self.df, reduced @ self.sampling_covariance @ reduced.T + hidden,
            c.T @ self.noise_of_means @ c,
            lambda: draw_noise(self.answers, DRAWS, rng, c / self._unit[:, np.newaxis]), rng,
        )  # fmt: skip

    def _law(self, combination: Floats, sampled: bool) -> ConfidenceLaw:
        key = (combination.tobytes(), sampled)
        return self._once(key, lambda: self.law(combination, sampling=sampled))

    def unbounded(self, combinations: Floats, alpha: float) -> bool:
        """True if some of the intervals are unbounded: by the noise, the derivative may be zero."""
        return any(self._law(h, True).unbounded(alpha) for h in combinations)

    def interval(self, combination: Floats, alpha: float, *, sampled: bool) -> tuple[float, float]:
        """Interval of `law`, prolonged by values which the score does not reject."""

        def ends() -> tuple[float, float]:
            law = self._law(combination, sampled)
            if not law.reaches(alpha):
                return -np.inf, np.inf
            return self._rejected_beyond(
                combination, alpha, law.limits(alpha), law.spread, sampled=sampled
            )

        return self._once(("interval", combination.tobytes(), sampled, alpha), ends)

    def deviate(self, combination: Floats, value: float, *, sampled: bool) -> float | None:
        """See `Score.deviate`.

        Where means of counts grow beyond all at the estimate, so does the noise of their score, and
        less is rejected the further the value: it is left to `law`, and counts as rejected here.
        """
        b = self._under(combination[np.newaxis, :], np.array([value]))
        if b is None:
            return None
        if not self.link.bounded and np.max(self.x @ b) > np.max(self.x @ self._estimate) + _GROWN:
            return math.copysign(_REJECTED, float(combination @ self._estimate) - value)
        try:
            along = solved(self.information(b), combination)
        except linalg.LinAlgError:
            return None
        by, left = self.x @ along, self.y - self.link.mean(self.x @ b)
        moved = self._means(self.coarse, b) @ along - self._means(self.x, b) @ along
        c, rest = self.parts(np.column_stack([by * left, moved]))
        variance = self._hidden(rest[0, 0], rest[0, 0], rest[1, 1])
        if sampled:
            own = along @ combination
            if self.robust:  # of the residuals at the estimate: others are larger the worse b fits
                own = self.density @ (by * self._residual) ** 2
            variance += float(own) / self.persons
        variance += float(c[:, 0] @ self.noise_of_means @ c[:, 0])
        return float(self.weights @ (by * left)) / math.sqrt(max(variance, _LEAST_VARIANCE))

    def pvalue(self, combination: Floats, value: float, alternative: Alternative) -> float:
        """The larger of the p-values of `law` and of the score."""
        of_law = self._law(combination, True).pvalue(value, alternative)
        return max(of_law, super().pvalue(combination, value, alternative))
