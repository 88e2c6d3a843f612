"""The inverse of a noisy covariance matrix, less the bias of the noise.

Equations are those of docs/explanation/inference/graphical-models.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dpstats.analyses.moments.certified_radii import CertifiedRadii
from dpstats.analyses.moments.noisy_covariance import NoisyCovariance
from dpstats.arrays import Floats
from dpstats.caching import Cached
from dpstats.corrected.covariance import LEAST_VARIANCE
from dpstats.corrected.least_squares import positive_definite
from dpstats.error_rates import USUAL_ALPHA

if TYPE_CHECKING:
    from dpstats.checks import Target

_SINGULAR = 2.0  # noise above this many times the least eigenvalue: nothing is inverted


@dataclass(frozen=True)
class NoisyPrecision(Cached):
    """The precision matrix of p columns, from their noisy covariance matrix, in unit scale.

    The noisy S = M - mm' is unbiased once the noise variance of the means is added to its diagonal.
    Its inverse is not: with E the noise, E (Sigma + E)^-1 = Theta + Theta B Theta to second order,
    B_ij = E (E Theta E)_ij (eq. inverse-of-noisy), and S + B is inverted in its place. With T_ij
    the variance of E_ij, B_ii = sum_k T_ik Theta_kk and B_ij = T_ij Theta_ij: a ridge of known size
    (eq. ridge-of-noise). Without noise this is the inverse.
    """

    covariance: NoisyCovariance
    radii: CertifiedRadii = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "radii", CertifiedRadii(self.covariance, norm_alone=True))

    @property
    def p(self) -> int:
        """Number of columns."""
        return self.covariance.p

    @property
    def n(self) -> int:
        """Number of rows, or its estimate."""
        return self.covariance.n

    @cached_property
    def least_eigenvalue(self) -> float:
        """Least eigenvalue of the noisy covariance matrix."""
        return float(np.linalg.eigvalsh(self.covariance.plain)[0])

    @cached_property
    def noise_norm(self) -> float:
        """The 95% quantile of the spectral norm of the noise; infinite if a divisor is hidden."""
        return self.radii.radii(USUAL_ALPHA, "table")[0]

    @cached_property
    def singular(self) -> bool:
        """True if the noise hides how small the least eigenvalue is; nothing is then inverted.

        In simulation the first-order law keeps its level as long as the noise is at most twice the
        least noisy eigenvalue. Where only a bound on the noise is known, the matrix is that of
        published rows, and it is inverted if it can be. Nothing is inverted if a column does not
        vary, or follows from others.
        """
        if not self._regular:
            return True
        if self.covariance.moments.answers.bound_only:
            return self.least_eigenvalue <= 1e-9
        limit = _SINGULAR * self.least_eigenvalue
        return self.n <= self.p + 1 or self.radii.exceed(limit, USUAL_ALPHA)

    @property
    def _regular(self) -> bool:
        """True if all columns vary and the noisy matrix is positive definite, beyond rounding."""
        varies = bool(np.all(self.covariance.variances > LEAST_VARIANCE))
        return varies and positive_definite(self.covariance.plain)

    @cached_property
    def noise_variances(self) -> Floats:
        """(p, p) noise variances of the covariances, to first order (eq. noise-of-covariances)."""
        square = self.covariance.moments.noise_sd**2
        of_mean, mean = square[0, 1:], self.covariance.mean**2
        crossed = mean[:, np.newaxis] * of_mean + of_mean[:, np.newaxis] * mean
        return np.asarray(square[1:, 1:] + crossed + np.diag(np.diag(crossed)))

    @cached_property
    def _inverse(self) -> Floats:
        """Inverse of the covariance of the sample."""
        inverse = np.linalg.inv(self.covariance.sample)
        return np.asarray((inverse + inverse.T) / 2)

    @cached_property
    def matrix(self) -> Floats:
        """(p, p) the precision matrix, divisor n (eq. corrected-inverse); nan if singular."""
        if self.singular:
            return np.full((self.p, self.p), np.nan)
        noise, inverse = self.noise_variances, self._inverse
        ridge = noise * inverse
        np.fill_diagonal(ridge, noise @ np.diag(inverse))
        corrected = np.linalg.inv(self.covariance.sample + ridge)
        return np.asarray((corrected + corrected.T) / 2)

    @cached_property
    def regressions(self) -> Floats:
        """(p, p) rows a_i with u_i = a_i'y the scaled residual of column i given all others.

        The correlation of u_i and u_j is minus the partial correlation of i and j. They are those
        of the sample: the ridge that takes the bias off the matrix would shrink large ones.
        """
        return np.asarray(self._inverse / np.sqrt(np.diag(self._inverse))[:, np.newaxis])

    def bounds(self, alpha: float, target: Target) -> tuple[Floats, Floats]:
        """Certified limits (p, p) of all entries jointly, infinite where they say nothing.

        With S = Sigma + E, |E| at most q in spectral norm, H the inverse of S and h_i its columns,
        Theta = H + H E Theta, so |Theta - H|_ij <= |h_i| |E Theta e_j|. With l the least eigenvalue
        of S and l > q, |E Theta e_j| <= q |Theta e_j|, and Theta = (I - H E)^-1 H gives
        |Theta e_j| <= |h_j| / (1 - q / l). Hence the bound |h_i| |h_j| q l / (l - q) (eq.
        certified-precision).

        For the table, of the covariance with divisor n - 1.
        """
        radius, _ = self.radii.radii(alpha, target)
        sample, least = self.covariance.plain, self.least_eigenvalue
        unknown = np.full((self.p, self.p), np.inf)
        if not (radius < least and self._regular):
            return -unknown, unknown
        inverse = np.linalg.inv(sample)
        length = np.linalg.norm(inverse, axis=0)
        reach = np.outer(length, length) * radius * least / (least - radius)
        low, high = inverse - reach, inverse + reach
        own = np.diag_indices(self.p)
        low[own] = np.maximum(low[own], 0)
        if target == "population":
            return low, high
        most, fewest = (1 / factor for factor in self.radii.corrections(alpha))
        return np.minimum(low * most, low * fewest), np.maximum(high * most, high * fewest)
