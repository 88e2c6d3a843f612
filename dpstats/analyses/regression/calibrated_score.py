"""Smooth M-estimators from a release: the fitted density, calibrated to the noisy answers.

A score E psi_b(z) of all rows is wanted, and only the means of a family F were measured, with noise
of covariance S. Candidates z_i with fitted shares h get weights

    w_i = h_i (1 + (F(z_i) - E_h F)' G^-1 (t - E_h F)),   G = Cov_h(F) + nu S,

t the noisy means. Then sum_i w_i psi_b(z_i) = E_h psi_b + c'(t - E_h F), c = G^-1 Cov_h(F, psi_b),
is the regression estimator of survey sampling [1]_: of psi_b it takes what F determines from the
measurements, and only the rest from the fitted density. Its error has three parts:

- sampling, as without privacy;
- noise, c'Sc, of a known law. The fitted density follows the noise as well, in proportion to how
  much of a direction the ridge nu leaves to it; with a small nu that is next to nothing, and c'Sc
  is the whole of it;
- what F does not determine, r = psi_b - c'F: the law of the rows beyond F differs from the fitted
  one by about sqrt(kappa / n) a direction, so this part has the variance Var_h(r) kappa / n. Inside
  the bins of a number only moments are known, and the difference from the law there, up to a
  quarter of the density's own spread where tails are heavy, does not shrink with n. So what of the
  score changes when every number moves to the mean of its bin, and F does not determine, has a
  variance of its own, of r at most; with the score at a pilot in F, so has what of the difference
  of the two scores does. Both are models of how far densities fitted to F are from the
  data, not theorems; their constants are public and fixed beforehand. The share is printed.

One more rule: where the number of rows is not public, its estimate is taken as exact. Its noise
moves the estimate less than the other terms do: 1.05 times the standard error is the most seen.

The estimate solves sum_i w_i psi_b(z_i) = 0. Its derivative, by which errors of the score become
errors of the estimate, is that of the calibrated score: a density that noise has shrunk knows less
of the dependence between columns than the answers do, and its own would make the errors of related
columns too small. Weights may be negative, so no direction has less than a tenth of what h gives
it.

Where a person may have k rows, n / k takes the place of n in all parts but the noise: the sampling
variance is at most k times that of independent rows, and a table in which the rows of every person
are equal has the law of n / k rows.

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
from scipy import linalg

from dpstats.analyses.regression.joint_test import independent, joint_test
from dpstats.analyses.regression.links import Average
from dpstats.analyses.regression.newton import (
    derivatives,
    find_root,
    rejected_beyond,
    solved,
    tail_of,
)
from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.inference.confidence_law import ConfidenceLaw
from dpstats.inference.simulation import calibration_generator, draw_noise

if TYPE_CHECKING:
    from collections.abc import Callable

    from scipy.sparse import csr_array

    from dpstats.analyses.regression.links import Link
    from dpstats.checks import Alternative
    from dpstats.measured.answers import Answers

DRAWS = 5_000
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
class CalibratedScore(Cached):
    """A generalised linear model with a canonical link: psi_b = x (y - mean(x'b))."""

    x: Floats  # (m, p) regressors of the candidates, of size about one
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
        """The fewest that the rows can be of: n, or its estimate, over the rows of one person."""
        return self.n / self.answers.rows.rows_per_person

    @property
    def kappa(self) -> float:
        """How far the fitted density is taken to be from the rows beyond F, over sqrt(persons)."""
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
        return self._once(ridge, lambda: self._factored(min(self.persons / self.kappa, ridge)))

    def _factored(self, nu: float) -> tuple[Floats, bool]:
        g = self._second + self.noise_of_means * nu
        g[np.diag_indices_from(g)] += _JITTER * max(float(np.trace(g)) / len(g), 1e-300)
        return linalg.cho_factor(g, lower=True)

    @cached_property
    def weights(self) -> Floats:
        """(m,) w."""
        gap = self.answers.means - self._fitted_means
        pull = linalg.cho_solve(self._factor(), gap)
        by = self.functions.T @ pull - float(self._fitted_means @ pull)
        return np.asarray(self.density * (1 + by))

    def information(self, b: Floats) -> Floats:
        """(p, p) mean of x x' slope(x'b) with the calibrated weights, positive definite.

        Relative to that under the fitted density, no direction has less than a small part.
        """
        fitted, calibrated = (self._information(by, b) for by in (self.density, self.weights))
        parts, basis = linalg.eigh(calibrated, fitted)
        back = fitted @ basis
        return np.asarray((back * np.maximum(parts, _LEAST_PART)) @ back.T)

    def _information(self, weights: Floats, b: Floats) -> Floats:
        slope = self.link.slope(self.x @ b)
        return np.asarray((self.x.T * (weights * slope)) @ self.x)

    @cached_property
    def carries(self) -> bool:
        """Whether the fitted means are as near the answers as noise and rules allow.

        That is, in the root mean square, within two standard deviations of the noise, of a row and
        of what `kappa` allows. With too few points, or points of another law, they are not: then
        neither the weights nor the rules for errors hold.
        """
        gap = self.answers.means - self._fitted_means
        allowed = np.diag(self._second) * self.kappa / self.persons
        allowed = np.diag(self.noise_of_means) + self.n**-2.0 + allowed
        return bool(np.mean(gap**2 / allowed) <= _FURTHEST**2)

    @cached_property
    def params(self) -> Floats | None:
        """(p,) the estimate; None where the noise leaves none within reach."""
        if not self.carries:
            return None
        fitted = partial(self._information, self.density)
        zero = np.zeros(self.x.shape[1])
        start = find_root(partial(self._score, self.density), fitted, self.x, zero)
        if start is None:
            return None
        score = partial(self._score, self.weights)
        root = find_root(score, self.information, self.x, start)
        return find_root(score, fitted, self.x, start) if root is None else root

    def _score(self, weights: Floats, b: Floats) -> Floats:
        return np.asarray(self.x.T @ (weights * (self.y - self.link.mean(self.x @ b))))

    @property
    def _estimate(self) -> Floats:
        """(p,) where it is known that there is one."""
        assert self.params is not None
        return self.params

    @cached_property
    def _information_at_estimate(self) -> Floats:
        return self.information(self._estimate)

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
        """(p, p) of the coefficients without privacy: the inverse information over n, or HC0.

        Of `persons` in place of n: the most it can be if rows of one person depend on each other.
        """
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
        """Variance of a combination (p,) from what was not measured.

        `rest` is Var_h(r) where a statistic has more of it than the combination.
        """
        own, inside = (
            float(combination @ v @ combination) for v in (self._own_parts[1], self._inside)
        )
        return self._hidden(own if rest is None else rest, own, inside)

    @cached_property
    def _inside(self) -> Floats:
        """(p, p) Var_h of what moving numbers to the means of their bins would change.

        In E x (y - mean(x'b)); the moments with y are measured, so it is of the mean alone, and
        where the score at a pilot is measured, of the difference of the two means.
        """
        moved = self._means(self.coarse, self._estimate) - self._means(self.x, self._estimate)
        return self.parts(solved(self._information_at_estimate, moved.T).T)[1]

    def unmeasured(self, combinations: Floats) -> Floats:
        """(k,) share of the variances of (k, p) that is `density_variance`."""
        variances = self.covariances(combinations).diagonal(axis1=1, axis2=2).sum(axis=0)
        hidden = np.array([self.density_variance(h) for h in combinations])
        return np.asarray(hidden / variances)

    def average(self, values: Callable[[Floats], Floats]) -> Average:
        """Mean over the rows of a function of the candidate (m,) and the coefficients.

        Over those of the subgroup, where the model is of one. The variance of privacy has the
        density's.
        """
        inside = np.any(self.x != 0, axis=1)
        share = max(float(self.weights @ inside), 1 / self.n)

        def mean(b: Floats) -> float:
            return float((self.weights * inside) @ values(b)) / share

        estimate, gradient = mean(self._estimate), derivatives(mean, self._estimate)
        own = inside * (values(self._estimate) - estimate) / share
        influence = (own + self.influence @ gradient)[:, np.newaxis]
        c, rest = self.parts(influence)
        centred = influence - self.density @ influence
        sampling = float(self.density @ centred[:, 0] ** 2) / self.persons
        noise = float(c[:, 0] @ self.noise_of_means @ c[:, 0])
        privacy = noise + self.density_variance(gradient, float(rest[0, 0]))
        return Average(estimate, sampling, privacy)

    def covariances(self, combinations: Floats) -> Floats:
        """(2, k, k) of combinations (k, p), from sampling and from privacy, with the density's."""
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
            float(combination @ self._estimate), math.sqrt(max(variance, 0.0)), self._df, fixed,
            self._moving(combination, fixed), gaussian=self.answers.law(0).gaussian,
        )  # fmt: skip

    def _moving(self, combination: Floats, fixed: Floats) -> Floats:
        """(DRAWS,) error of the score for each unit that the true value lies above the estimate.

        That of the derivative, by which the score grows: from the noise, given draws of that of
        the combination itself as if both were normal, and from what was not measured.
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
        """Nu for the derivative along combinations (k, p): the least one for collinear columns.

        The variance inflation factor is that of a combination's variance over what it would be if
        its columns were unrelated.
        """
        by = self.density * self.link.slope(self.x @ self._estimate)
        alone = np.maximum(by @ self.x**2 - (by @ self.x) ** 2 / by.sum(), 0.0)  # each column's
        varied = alone > _JITTER * max(float(np.max(alone)), 1e-300)  # not the constant
        inverse = np.linalg.inv(self._information_at_estimate)[np.ix_(varied, varied)]
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
        key = ("interval", combination.tobytes(), sampled, alpha)
        return self._once(key, lambda: self._interval(combination, alpha, sampled))

    def _interval(self, combination: Floats, alpha: float, sampled: bool) -> tuple[float, float]:
        """Interval of `law`, prolonged by values which the score does not reject."""
        law, centre = self._law(combination, sampled), float(combination @ self._estimate)
        if not law.reaches(alpha):
            return -np.inf, np.inf
        deviate = partial(self.deviate, combination, sampled=sampled)
        ends = law.limits(alpha)
        return rejected_beyond(self.x, combination, deviate, alpha, ends, centre, law.spread)

    def deviate(self, combination: Floats, value: float, *, sampled: bool) -> float | None:
        """How far the score is from zero if a combination has this value, as a normal deviate.

        Positive where larger values are more likely; None where the others have no solution. Where
        means of counts grow beyond all at the estimate, so does the noise of their score, and less
        is rejected the further the value: it is then left to `law`, and stands as rejected here.
        """
        b = self._under(combination, value)
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

    def _under(self, combination: Floats, value: float) -> Floats | None:
        """(p,) coefficients with this value of a combination; None where there is no solution."""
        along = solved(self._information_at_estimate, combination)
        away = (value - float(combination @ self._estimate)) / float(combination @ along)
        free = linalg.null_space(combination[np.newaxis, :])
        start = self._estimate + along * away
        if not free.shape[1]:
            return np.asarray(start)
        return find_root(partial(self._score, self.weights), self.information, self.x, start, free)

    def pvalue(self, combination: Floats, value: float, alternative: Alternative) -> float:
        """P-value of the hypothesis that a combination has this value in the population."""
        law = self._law(combination, True)
        of_law = law.pvalue(value, alternative)
        z = self.deviate(combination, value, sampled=True)
        return max(of_law, 1.0 if z is None else tail_of(z, alternative))
