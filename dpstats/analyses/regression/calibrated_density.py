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

References
----------
.. [1] J.-C. Deville and C.-E. Sarndal (1992), Calibration estimators in survey sampling. J. Amer.
   Statist. Assoc. 87, 376-382.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import linalg

from dpstats.analyses.regression.marginal_effects import Average
from dpstats.analyses.regression.newton import (
    derivatives,
    find_root,
    solved,
)
from dpstats.arrays import Floats
from dpstats.caching import Cached

if TYPE_CHECKING:
    from collections.abc import Callable

    from scipy.sparse import csr_array

    from dpstats.analyses.regression.link import Link
    from dpstats.measured.answers import Answers

INSIDE = 0.06  # squared relative error of the law inside bins, a direction
JITTER = 1e-10  # of the mean variance of a function: directions without variance stay unused
_LEAST_KAPPA, _ROWS_PER_KAPPA = 100, 200
_RIDGE = 8.0  # the most of nu
_FURTHEST = 2.0  # of the fitted means from the answers; those of a good fit are within one
_LEAST_PART = 0.1  # of the information under the fitted density, that each direction keeps


@dataclass(frozen=True, eq=False)
class CalibratedDensity(Cached):
    """A generalised linear model with a canonical link: psi_b = x (y - mean(x'b)).

    Attributes
    ----------
    x : (m, p) float64
        Regressors of the candidates, of size about one.
    coarse : (m, p) float64
        The same with every number at the mean of its bin.
    y : (m,) float64
        Their response.
    density : (m,) float64
        Fitted shares h.
    functions : (d, m) sparse
        F, in unit scale.
    answers : Answers
        To these functions.
    link : Link
    robust : bool
        Sampling variance for any law of the response given the regressors (HC0), from the fitted
        density; not that of the model.
    pilot : (p,) float64, optional
        Coefficients at which the score itself is among the functions.
    """

    x: Floats
    coarse: Floats
    y: Floats
    density: Floats
    functions: csr_array[Any]
    answers: Answers
    link: Link
    robust: bool = False
    pilot: Floats | None = None

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
        g[np.diag_indices_from(g)] += JITTER * max(float(np.trace(g)) / len(g), 1e-300)
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
        found = find_root(score, self.information, self.x, start)
        return find_root(score, fitted, self.x, start) if found is None else found

    def _score(self, weights: Floats, b: Floats) -> Floats:
        return np.asarray(self.x.T @ (weights * (self.y - self.link.mean(self.x @ b))))

    @property
    def known(self) -> bool:
        """Whether there is an estimate."""
        return self.params is not None

    @cached_property
    def _found_information(self) -> Floats:
        """(p, p) at the estimate."""
        assert self.params is not None
        return self.information(self.params)

    @cached_property
    def influence(self) -> Floats:
        """(m, p) of the candidates on the coefficients: H^-1 psi at the estimate."""
        assert self.params is not None
        psi = self.x * (self.y - self.link.mean(self.x @ self.params))[:, np.newaxis]
        return np.asarray(solved(self._found_information, psi.T).T)

    def parts(self, influence: Floats, ridge: float = _RIDGE) -> tuple[Floats, Floats]:
        """What a statistic with these influences (m, k) takes from the answers, and the rest.

        Returns
        -------
        (d, k) coefficients c of the answers' means, and (k, k) Var_h(r)
        """
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
        assert self.params is not None
        if self.robust:
            return np.asarray((self.influence.T * self.density) @ self.influence / self.persons)
        return np.asarray(np.linalg.inv(self._found_information) / self.persons)

    @cached_property
    def noise_covariance(self) -> Floats:
        """(p, p) of the coefficients, from the noise."""
        c = self._own_parts[0]
        return np.asarray(c.T @ self.noise_of_means @ c)

    def density_variance(self, combination: Floats, rest: float | None = None) -> float:
        """Variance of a combination (p,) from what was not measured.

        `rest` is Var_h(r) where a statistic has more of it than the combination.
        """
        own, inside = (float(combination @ v @ combination) for v in (self._rest, self._inside))
        rest = own if rest is None else rest
        return rest * self.kappa / self.persons + min(own, inside) * INSIDE

    @property
    def _rest(self) -> Floats:
        return self._own_parts[1]

    @cached_property
    def _inside(self) -> Floats:
        """(p, p) Var_h of what moving numbers to the means of their bins would change.

        In E x (y - mean(x'b)); the moments with y are measured, so it is of the mean alone, and
        where the score at a pilot is measured, of the difference of the two means.
        """
        b = self.params
        assert b is not None
        moved = self._means(self.coarse, b) - self._means(self.x, b)
        return self.parts(solved(self._found_information, moved.T).T)[1]

    def unmeasured(self, combinations: Floats) -> Floats:
        """(k,) share of the variances of (k, p) that is `density_variance`."""
        shares = [self.density_variance(h) / sum(self.variances(h)) for h in combinations]
        return np.array(shares)

    def average(self, values: Callable[[Floats], Floats]) -> Average:
        """Mean over the rows of a function of the candidate (m,) and the coefficients.

        Over those of the subgroup, where the model is of one. The variance of privacy has the
        density's.
        """
        assert self.params is not None
        inside = np.any(self.x != 0, axis=1)
        share = max(float(self.weights @ inside), 1 / self.n)

        def mean(b: Floats) -> float:
            return float((self.weights * inside) @ values(b)) / share

        found, gradient = mean(self.params), derivatives(mean, self.params)
        own = inside * (values(self.params) - found) / share
        influence = (own + self.influence @ gradient)[:, np.newaxis]
        c, rest = self.parts(influence)
        centred = influence - self.density @ influence
        sampling = float(self.density @ centred[:, 0] ** 2) / self.persons
        noise = float(c[:, 0] @ self.noise_of_means @ c[:, 0])
        privacy = noise + self.density_variance(gradient, float(rest[0, 0]))
        return Average(found, sampling, privacy)

    def covariance(self, combinations: Floats) -> Floats:
        """(k, k) of combinations (k, p), with the `variances` of each; infinite if not known."""
        if self.params is None:
            return np.full((len(combinations),) * 2, np.inf)
        rest = combinations @ self._rest @ combinations.T
        own, inside = np.diag(rest), np.diag(combinations @ self._inside @ combinations.T)
        part = np.sqrt(np.minimum(own, inside) / np.where(own > 0, own, 1.0))
        known = self.sampling_covariance + self.noise_covariance
        density = rest * (self.kappa / self.persons + INSIDE * np.outer(part, part))
        return np.asarray(combinations @ known @ combinations.T + density)

    def variances(self, combination: Floats) -> tuple[float, float]:
        """Sampling and privacy variance of one combination (p,); the latter with the density's."""
        if self.params is None:
            return np.inf, np.inf
        noise = float(combination @ self.noise_covariance @ combination)
        return (
            float(combination @ self.sampling_covariance @ combination),
            noise + self.density_variance(combination),
        )

    def _means(self, x: Floats, b: Floats) -> Floats:
        """(m, p) x mean(x'b); less that at the pilot, where the score there was measured."""
        at_pilot = 0.0 if self.pilot is None else self.link.mean(x @ self.pilot)
        return np.asarray(x * (self.link.mean(x @ b) - at_pilot)[:, np.newaxis])
