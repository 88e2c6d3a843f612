"""How much more correlations of rows vary than those of normal rows.

With u and v the standardised columns, r - rho is the mean of uv - rho (u^2 + v^2)/2 to first order,
whose variance is (1 - rho^2)^2 for normal rows: the error of atanh r has variance 1/n there [1]_.
Else it is larger or smaller at any n; balanced signs have 1 - rho^2. The spread is the ratio.

References
----------
.. [1] H. Hotelling (1953), New light on the correlation coefficient and its transforms. J. R.
   Statist. Soc. B 15, 193-232.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from dpstats.arrays import Floats
from dpstats.errors import NotMeasuredError
from dpstats.families.block import Family
from dpstats.families.monomials import fourth_moments_of_pairs
from dpstats.inference.moments.row_sampling import RowSampling

if TYPE_CHECKING:
    from dpstats.inference.moments.noisy_covariance import NoisyCovariance
    from dpstats.measured.view import ReleaseView

_LEAST = 1e-12
_CLEAR = 2.0  # a measured spread within so many noise sds of zero tells nothing
# (a, b) -> coefficients of 1, r and r^2 of E u^a v^b in E (uv - r (u^2 + v^2)/2)^2
_PARTS = {(2, 2): (1, 0, 0.5), (4, 0): (0, 0, 0.25), (0, 4): (0, 0, 0.25), (3, 1): (0, -1, 0),
          (1, 3): (0, -1, 0)}  # fmt: skip


def correlation_spread(sampling: RowSampling) -> Floats:
    """(p, p) spreads of all pairs, the largest by any of the sampling's laws, at least 1."""
    deviation = np.sqrt(np.maximum(np.diag(sampling.covariance), _LEAST))
    r = np.clip(sampling.covariance / np.outer(deviation, deviation), -1, 1)
    normal = np.maximum((1 - r**2) ** 2, 1 / max(sampling.n, 1) ** 2)
    spread = np.ones_like(r)
    for law in sampling.laws:
        variance = _of_kurtosis(sampling, r) if law == "kurtosis" else _of_points(sampling, r)
        spread = np.maximum(spread, variance / normal)
    return np.asarray(spread)


def measured_spread(release: ReleaseView, covariance: NoisyCovariance) -> Floats:
    """(p, p) spreads from measured third and fourth moments of pairs; 1 where noise hides them.

    Without those functions in the release, 1 everywhere.
    """
    names = [name for name, _ in covariance.moments.features]
    spread = np.ones((len(names), len(names)))
    block = fourth_moments_of_pairs(release.schema, names)
    if block is None:
        return spread
    try:
        answers = release.answers(Family((block,)))
    except NotMeasuredError:
        return spread
    at = {term: f for f, term in enumerate(block.terms)}
    pairs = itertools.combinations(range(len(names)), 2)
    for i, j in pairs:
        weights = _weights(covariance, i, j)
        terms = {(k, m): (((names[i], None),) * k + ((names[j], None),) * m) for k, m in weights}
        places = {power: at.get(tuple(sorted(term))) for power, term in terms.items()}
        value, variance = 0.0, 0.0
        for power, weight in weights.items():
            place = places[power]
            if sum(power) <= 2:
                value += weight * _low_moment(covariance, i, j, power)
            elif place is not None:
                value += weight * float(answers.means[place])
                variance += weight**2 * float(answers.noise_variances[place])
            else:  # two values each: known exactly elsewhere
                value = -np.inf
        if value > _CLEAR * np.sqrt(variance):
            spread[i, j] = spread[j, i] = max(1.0, value)
    return spread


def _weights(covariance: NoisyCovariance, i: int, j: int) -> dict[tuple[int, int], float]:
    """The spread of a pair as a combination of E x^k y^m, (k, m) -> coefficient."""
    plain, (x, y) = covariance.matrix, covariance.mean[[i, j]]
    deviations = np.sqrt(np.maximum([plain[i, i], plain[j, j]], _LEAST))
    r = float(np.clip(plain[i, j] / deviations.prod(), -1, 1))
    normal = max((1 - r**2) ** 2, 1 / max(covariance.n, 1) ** 2)
    weights: dict[tuple[int, int], float] = {}
    for (a, b), parts in _PARTS.items():
        scale = np.polynomial.polynomial.polyval(r, parts) / normal
        scale /= deviations[0] ** a * deviations[1] ** b
        for k, m in itertools.product(range(a + 1), range(b + 1)):
            moved = math.comb(a, k) * math.comb(b, m) * (-x) ** (a - k) * (-y) ** (b - m)
            weights[k, m] = weights.get((k, m), 0.0) + float(scale * moved)
    return weights


def _low_moment(covariance: NoisyCovariance, i: int, j: int, power: tuple[int, int]) -> float:
    """E x^k y^m, k + m at most 2."""
    first, second = ((i + 1,) * power[0] + (j + 1,) * power[1] + (0, 0))[:2]
    return float(covariance.moments.matrix[first, second])


def _of_kurtosis(sampling: RowSampling, r: Floats) -> Floats:
    """Var(uv - r (u^2 + v^2)/2) if E u_i u_j u_k u_l = A_ij A_kl + A_ik A_jl + A_il A_jk."""
    own = np.sqrt(sampling.kurtosis / 3)
    a = r * (own[:, np.newaxis] + own) / 2
    first, second = own[:, np.newaxis], own[np.newaxis, :]
    both = first * second + 2 * a**2  # E u^2 v^2
    fourths = 3 * (first**2 + second**2)  # E u^4 + E v^4
    mixed = 3 * a * (first + second)  # E u^3 v + E u v^3
    return np.asarray(both + r**2 * (fourths + 2 * both) / 4 - r * mixed)


def _of_points(sampling: RowSampling, r: Floats) -> Floats:
    """The same under the fitted density."""
    points, weights = sampling.moved_points(np.random.default_rng(0))
    apart = points - weights @ points
    u = apart / np.sqrt(np.maximum(weights @ apart**2, _LEAST))
    found = np.zeros_like(r)
    for i in range(len(r)):
        psi = u[:, [i]] * u - r[i] * (u[:, [i]] ** 2 + u**2) / 2
        found[i] = weights @ psi**2
    return found


def two_valued_spread(x: Floats, y: Floats, r: Floats, n: Floats) -> Floats:
    """Spreads (size,) of pairs that are -1 or 1, whose means x, y and correlation give all cells.

    Where fewer than one row is expected in the rarest of the cells that lower |r|, as if one were.
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
