"""Elastic nets from noisy second moments: estimates, and what is certain about the table's own.

With A and c the mean products of regressors and response, the elastic net minimises

    F(b) = b'Ab/2 - c'b + strength (l1 |b|_1 + (1 - l1) |b|^2 / 2),

an intercept free, with the scaling of scikit-learn. Noisy A and c give b^; the private table's own
moments give b*. Both subgradients are monotone, so with E the noise and d = b^ - b*

    d'(A + ridge) d <= d'(E_A b^ - E_c) <= |d|'u,   u = D|b^| + r,

where |E_A| <= D and |E_c| <= r. As the noisy matrix N = A + E_A + ridge has d'(A + ridge)d >= d'Nd
- |d|'D|d|, this bounds d, in the norm of N and in the Euclidean one. A coefficient of b^ beyond its
bound is not zero in b*. And b*_j is zero if its gradient is below the penalty, which is within
u_j + |A_j| |d| of the noisy one. Where the number of rows is noisy too, so is the penalty's share
in sums over rows: its gradient at b^ times the relative error joins u. All this holds at once with
the probability of the radii, for any data. (Loh and Wainwright [1]_ bound the error of the
population's coefficients under such noise.)

References
----------
.. [1] P.-L. Loh and M. J. Wainwright (2012), High-dimensional regression with noisy and missing
   data. Ann. Statist. 40, 1637-1664.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.corrected.least_squares import positive_definite
from dpstats.error_rates import USUAL_ALPHA, bonferroni
from dpstats.errors import RequestError
from dpstats.measured.answers import joint_noise_quantiles

if TYPE_CHECKING:
    from dpstats.inference.moment_matrix import NoisyMatrix

_SWEEPS, _TOLERANCE = 100_000, 1e-12
_LEAST = 1e-9  # relative eigenvalue of the matrix that is fitted


@dataclass(frozen=True, eq=False)
class PenalisedMoments(Cached):
    """Noisy moments of p regressors and a response.

    Attributes
    ----------
    matrix : NoisyMatrix
        Mean products of q features.
    rows : (p + 1, q) float64
        Regressors, then response, as combinations of the features.
    penalised : (p,) float64
        1, or 0 for the constant.
    """

    matrix: NoisyMatrix
    rows: Floats
    penalised: Floats

    @cached_property
    def moments(self) -> Floats:
        """(p + 1, p + 1) noisy mean products, as measured."""
        return np.asarray(self.rows @ self.matrix.matrix @ self.rows.T)

    @cached_property
    def _free(self) -> NDArray[np.intp]:
        """Numbers of the regressors without a penalty: none, or the constant."""
        return np.flatnonzero(self.penalised == 0)

    @cached_property
    def _centred(self) -> Floats:
        """(k + 1, k + 1) moments of the penalised regressors and the response given the constant.

        Moved to the nearest positive definite matrix where noise made it indefinite.
        """
        kept = np.append(np.flatnonzero(self.penalised), len(self.penalised))
        found = self.moments[np.ix_(kept, kept)]
        if len(self._free):
            across = self.moments[np.ix_(self._free, kept)]
            own = self.moments[np.ix_(self._free, self._free)]
            found = found - across.T @ np.linalg.solve(own, across)
        values, vectors = np.linalg.eigh(found)
        least = _LEAST * max(float(values[-1]), 1e-300)
        return np.asarray((vectors * np.maximum(values, least)) @ vectors.T)

    @cached_property
    def largest_penalty(self) -> float:
        """The least strength at which all penalised coefficients are zero, for l1 = 1."""
        return float(np.abs(self._centred[:-1, -1]).max())

    @cached_property
    def usual_penalty(self) -> float:
        """The strength at which no coefficient enters with probability .95 if none is there.

        By Bonferroni's inequality, from the noise on the products of regressors and response and
        the sampling variance of independent ones.
        """
        kept = np.flatnonzero(self.penalised)
        size = np.abs(self.rows)
        noise = (size**2 @ self.matrix.noise_sd**2 @ (size**2).T)[kept, -1]
        own = np.diag(self._centred)
        variance = noise + own[:-1] * own[-1] / max(self.matrix.n, 1)
        level = bonferroni(USUAL_ALPHA, 2 * len(kept))
        return float(-special.ndtri(level) * np.sqrt(variance.max()))

    def path(self, alphas: Floats, l1_ratio: float) -> Floats:
        """(k, p) coefficients at k penalties, decreasing.

        Raises
        ------
        RequestError
            If scikit-learn is not installed.
        """
        try:
            from sklearn.exceptions import ConvergenceWarning
            from sklearn.linear_model import enet_path
        except ImportError:
            raise RequestError(
                "a lasso needs scikit-learn; install it with: pip install 'dpstats[graphs]'"
            ) from None
        values, vectors = np.linalg.eigh(self._centred)
        m = len(values)
        table = (np.sqrt(m * np.maximum(values, 0)) * vectors).T  # m rows with these moments
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # `_residue` is in the verdicts
            found = enet_path(
                np.asfortranarray(table[:, :-1]), table[:, -1], l1_ratio=l1_ratio, alphas=alphas,
                precompute=False, tol=_TOLERANCE, max_iter=_SWEEPS, check_input=False,
            )[1]  # fmt: skip
        coefficients = np.zeros((len(alphas), len(self.penalised)))
        found[np.abs(found) <= _TOLERANCE] = 0.0  # where a coefficient is about to enter
        coefficients[:, self.penalised == 1] = found.T
        if len(self._free):
            own = self.moments[np.ix_(self._free, self._free)]
            left = self.moments[self._free, -1] - coefficients @ self.moments[:-1, self._free]
            coefficients[:, self._free] = np.linalg.solve(own, left.T).T
        return coefficients

    def _radii(self, beta: float) -> Floats:
        """(p + 1, p + 1) bounds on the noise of the moments, with probability 1 - beta."""
        size = np.abs(self.rows)
        return np.asarray(size @ self.matrix.radius(beta) @ size.T)

    def _relative_error_of_rows(self, beta: float) -> float:
        """Bound on the error of the number of rows over that number, with those of `_radii`."""
        answers = self.matrix.answers
        if answers.rows.public:
            return 0.0
        away = abs(float(answers.sums[-1]) - self.matrix.n)  # rounded, or estimated otherwise too
        return (float(joint_noise_quantiles(answers, beta)[-1]) + away) / self.matrix.n

    def support(self, b: Floats, strength: float, l1_ratio: float, beta: float) -> list[str]:
        """For every regressor "in", "out" or "undecided", of the table's own solution.

        Parameters
        ----------
        b : (p,) float64
            The solution at the noisy moments.
        strength, l1_ratio : float
            Of the penalty.
        beta : float
            Error probability of all verdicts together.
        """
        p, radii, relative = len(b), self._radii(beta), self._relative_error_of_rows(beta)
        ridge = strength * (1 - l1_ratio) * self.penalised
        noisy = self.moments[:p, :p] + np.diag(ridge)
        spread = radii[:p, :p] + relative * np.diag(ridge)
        gradient = self.moments[:p, -1] - noisy @ b
        error = spread @ np.abs(b) + radii[:p, -1] + self._residue(gradient, b, strength, l1_ratio)
        error += relative * strength * l1_ratio * self.penalised
        reach = self._distances(noisy, spread, error)
        length = float(np.linalg.norm(reach)) if np.all(np.isfinite(reach)) else np.inf
        pull = np.linalg.norm(np.abs(noisy) + spread, axis=1)
        verdicts = []
        for j in range(p):
            if abs(b[j]) > reach[j]:
                verdicts.append("in")
            elif self.penalised[j] and abs(gradient[j]) + error[j] + pull[j] * length < (
                strength * l1_ratio * (1 - relative)
            ):
                verdicts.append("out")
            else:
                verdicts.append("undecided")
        return verdicts

    def _residue(self, gradient: Floats, b: Floats, strength: float, l1_ratio: float) -> Floats:
        """(p,) how far b is from solving the noisy problem, as where its matrix was moved."""
        penalty = strength * l1_ratio * self.penalised
        inside = np.maximum(np.abs(gradient) - penalty, 0.0)
        return np.asarray(np.where(b == 0, inside, np.abs(gradient - penalty * np.sign(b))))

    def _distances(self, noisy: Floats, spread: Floats, error: Floats) -> Floats:
        """(p,) bounds on |b^ - b*|; infinite where the noise does not exclude a singular matrix."""
        least = float(np.linalg.eigvalsh(noisy)[0])
        q = float(np.linalg.norm(spread, 2))
        if least <= q or not positive_definite(noisy):
            return np.full(len(error), np.inf)
        inverse = np.linalg.inv(noisy)
        plain = float(np.linalg.norm(error)) / (least - q)
        own = np.sqrt(float(error @ np.abs(inverse) @ error)) / (1 - q / least)
        return np.asarray(np.minimum(plain, np.sqrt(np.diag(inverse)) * own))

    def risk(self, b: Floats, beta: float) -> tuple[float, float, float]:
        """Mean squared residual of b over the table: from noisy moments, and certified bounds.

        Noise can make the noisy one negative; the estimate is then zero. Moments are sums over the
        noisy number of rows, so with its relative error r at most 1, the mean over the true number
        is within factors 1 / (1 + r) and 1 / (1 - r) of that over the noisy one.
        """
        residual = np.append(-b, 1.0)
        found = float(residual @ self.moments @ residual)
        reach = float(np.abs(residual) @ self._radii(beta) @ np.abs(residual))
        relative = self._relative_error_of_rows(beta)
        low = max(found - reach, 0.0) / (1 + relative)
        high = max(found + reach, 0.0) / (1 - relative) if relative < 1 else np.inf
        return max(found, 0.0), low, high
