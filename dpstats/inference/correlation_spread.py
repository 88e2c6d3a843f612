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

import numpy as np

from dpstats.families.block import Floats
from dpstats.inference.row_sampling import RowSampling

_LEAST = 1e-12


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
