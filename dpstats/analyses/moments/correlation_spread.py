"""The sampling variance of correlations relative to normal rows.

With u and v the standardised columns, r - rho is the mean of uv - rho (u^2 + v^2)/2 to first order,
whose variance is (1 - rho^2)^2 for normal rows: the error of atanh r has variance 1/n there [1]_.
For other rows it is larger or smaller at any n (1 - rho^2 for balanced signs). The spread is the
ratio.

References
----------
.. [1] H. Hotelling (1953), New light on the correlation coefficient and its transforms. J. R.
   Statist. Soc. B 15, 193-232.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.analyses.moments.row_sampling import RowSampling, allowing_for_noise
from dpstats.arrays import Floats
from dpstats.errors import NotMeasuredError
from dpstats.families.block import Family
from dpstats.families.coarse_moments import fourth_moments_of_pairs
from dpstats.inference.simulation import calibration_generator

if TYPE_CHECKING:
    from dpstats.analyses.moments.noisy_covariance import NoisyCovariance
    from dpstats.measured.view import ReleaseView

Indices = NDArray[np.intp]

_LEAST = 1e-12
_THINNING = 2  # the purpose of the draws, distinct from those of `NoisyCovariance`
# (a, b) -> coefficients of 1, r and r^2 of E u^a v^b in E (uv - r (u^2 + v^2)/2)^2
_TERMS = {(2, 2): (1, 0, 0.5), (4, 0): (0, 0, 0.25), (0, 4): (0, 0, 0.25), (3, 1): (0, -1, 0),
          (1, 3): (0, -1, 0)}  # fmt: skip


def correlation_spread(release: ReleaseView, covariance: NoisyCovariance, rest: Floats) -> Floats:
    """(p, p) spreads of all pairs, at least 1: the largest under any law of the sampling of rows.

    Measured third and fourth moments of pairs are used too, where the release has them. Their noise
    is allowed for, see `allowing_for_noise`; `rest` is the variance of the noise on every
    correlation (p, p) over that of sampling of normal rows.
    """
    sampling, shape = covariance.sampling, _Standardised.of(covariance.sampling)
    spread = _of_kurtosis(covariance, rest) if "kurtosis" in sampling.laws else np.ones_like(rest)
    if "fitted" in sampling.laws:
        rng = calibration_generator(covariance.moments.answers, _THINNING)
        spread = np.maximum(spread, _of_points(sampling, shape.r, rng) / shape.normal)
    return np.maximum(spread, _measured(release, covariance, shape, rest))


@dataclass(frozen=True)
class _Standardised:
    """First and second moments of p columns, as spreads need them; divisor n throughout.

    Attributes
    ----------
    mean, deviation : (p,) float64
    r : (p, p) float64
        Correlations in [-1, 1].
    normal : (p, p) float64
        n Var(r) of normal rows, (1 - r^2)^2, at least 1 / n^2.
    """

    mean: Floats
    deviation: Floats
    r: Floats
    normal: Floats

    @classmethod
    def of(cls, sampling: RowSampling) -> _Standardised:
        deviation = np.sqrt(np.maximum(np.diag(sampling.covariance), _LEAST))
        r = np.clip(sampling.covariance / np.outer(deviation, deviation), -1, 1)
        normal = np.maximum((1 - r**2) ** 2, 1 / max(sampling.n, 1) ** 2)
        return cls(sampling.mean, deviation, r, normal)

    def largest(self) -> Floats:
        """(p, p) spreads that columns in [-1, 1] cannot exceed.

        With s = (u + v)^2 / (2 + 2r) and d = (u - v)^2 / (2 - 2r), both of mean one, the spread is
        E (s - d)^2 / 4 <= (E s^2 + E d^2) / 4 <= (max s + max d) / 4, and |u| and |v| have maxima.
        """
        reach = (1 + np.abs(self.mean)) / self.deviation
        return np.asarray(np.add.outer(reach, reach) ** 2 / (4 * np.sqrt(self.normal)))


def _measured(
    release: ReleaseView, covariance: NoisyCovariance, shape: _Standardised, rest: Floats
) -> Floats:
    """(p, p) spreads from measured third and fourth moments of pairs.

    1 where they are hidden by their noise, and for a pair of columns of two values, whose moments
    are known without them.
    """
    names = [name for name, _ in covariance.moments.features]
    spread = np.ones_like(shape.r)
    if covariance.moments.ball is not None:
        return spread  # no higher moments are measured of shrunk rows
    block = fourth_moments_of_pairs(release.schema, names, covariance.moments.given)
    if block is None:
        return spread
    try:
        answers = replace(release.answers(Family((block,))), rows=covariance.moments.answers.rows)
    except NotMeasuredError:
        return spread
    i, j = np.triu_indices(len(names), 1)
    at = {term: f for f, term in enumerate(block.terms)}
    value, variance = np.zeros(len(i)), np.zeros(len(i))
    for (k, m), weight in _weights(shape, i, j).items():
        if k + m <= 2:
            one, other = ([i + 1] * k + [j + 1] * m + [np.zeros_like(i)] * 2)[:2]
            value += weight * covariance.moments.matrix[one, other]
            continue
        pairs = zip(i.tolist(), j.tolist(), strict=True)
        terms = (((names[a], None),) * k + ((names[b], None),) * m for a, b in pairs)
        place = np.array([at.get(tuple(sorted(term)), -1) for term in terms])
        value += np.where(place >= 0, weight * answers.means[place], -np.inf)
        variance += weight**2 * answers.noise_variances[place]
    found = allowing_for_noise(value, np.sqrt(variance), rest[i, j])
    spread[i, j] = spread[j, i] = np.minimum(found, shape.largest()[i, j])
    return spread


def _weights(shape: _Standardised, i: Indices, j: Indices) -> dict[tuple[int, int], Floats]:
    """Spreads of pairs as combinations of E x^k y^m: (k, m) -> coefficients (pairs,)."""
    x, y, r = shape.mean[i], shape.mean[j], shape.r[i, j]
    weights: dict[tuple[int, int], Floats] = {}
    for (a, b), coefficients in _TERMS.items():
        scale = np.polynomial.polynomial.polyval(r, coefficients) / shape.normal[i, j]
        scale /= shape.deviation[i] ** a * shape.deviation[j] ** b
        for k, m in itertools.product(range(a + 1), range(b + 1)):
            moved = math.comb(a, k) * math.comb(b, m) * (-x) ** (a - k) * (-y) ** (b - m)
            weights[k, m] = weights.get((k, m), 0.0) + scale * moved
    return weights


def _of_kurtosis(covariance: NoisyCovariance, rest: Floats) -> Floats:
    """(p, p) spreads if E u_i u_j u_k u_l = A_ij A_kl + A_ik A_jl + A_il A_jk, see `RowSampling`.

    With k and l a third of the kurtosis of either column, the variance of uv - r (u^2 + v^2)/2 is
    (1 - r^2) (sqrt(kl) - r^2 (sqrt k + sqrt l)^2 / 4), at most (1 - r^2)^2 sqrt(kl).
    """
    third = covariance.kurtosis / 3
    spread = np.sqrt(np.outer(third, third))
    # To first order in what the floor of the kurtosis has hidden, and in the noise.
    error = np.nan_to_num((covariance.noisy_kurtosis / 3 - third) / third)
    sd = covariance.kurtosis_sd / covariance.kurtosis
    noisy = spread * (1 + np.add.outer(error, error) / 2)
    noise = spread * np.hypot.outer(sd, sd) / 2
    return np.maximum(spread, allowing_for_noise(noisy, noise, rest))


def _of_points(sampling: RowSampling, r: Floats, rng: np.random.Generator) -> Floats:
    """(p, p) variances of uv - r (u^2 + v^2)/2 under the fitted density."""
    points, weights = sampling.moved_points(rng)
    centred = points - weights @ points
    u = centred / np.sqrt(np.maximum(weights @ centred**2, _LEAST))
    found = np.zeros_like(r)
    for i in range(len(r)):
        psi = u[:, [i]] * u - r[i] * (u[:, [i]] ** 2 + u**2) / 2
        found[i] = weights @ psi**2
    return found


def two_valued_spread(x: Floats, y: Floats, r: Floats, n: Floats) -> Floats:
    """Spreads (size,) of pairs that are -1 or 1, whose means x, y and correlation give all cells.

    The rarest of the cells that lower |r| is taken to have an expected count of at least one.
    """
    inside = 1 - 1 / np.maximum(n, 2)
    x, y = np.clip(x, -inside, inside), np.clip(y, -inside, inside)
    product = x * y + r * np.sqrt((1 - x**2) * (1 - y**2))
    variance = np.zeros(len(r))
    cells = [
        (a, b, np.clip(1 + a * x + b * y + a * b * product, 4 / np.maximum(n, 2), None))
        for a in (-1, 1)
        for b in (-1, 1)
    ]
    total = sum(chance for _, _, chance in cells)
    for a, b, chance in cells:
        u, v = (a - x) / np.sqrt(1 - x**2), (b - y) / np.sqrt(1 - y**2)
        variance += chance / total * (u * v - r * (u**2 + v**2) / 2) ** 2
    return np.maximum(variance / np.maximum((1 - r**2) ** 2, 1 / np.maximum(n, 1) ** 2), 1.0)
