"""Score test of independence for noisy tables: locally optimal, and Pearson's without noise."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy import special

from dpstats.families.block import Floats

_LEAST_MARGIN = 0.5  # rows; an empty margin would fix a probability at zero


def fit_independence(tables: Floats, n: int, noise: Floats) -> Floats:
    """Expected counts under independence within strata, from noisy counts.

    The noisy counts are projected on the non-negative tables of total n, whose margins are taken
    and shrunk towards equal ones by the noise's part of their spread (James and Stein 1961): where
    noise drowns the margins, a bootstrap from extreme ones would be too liberal.

    Parameters
    ----------
    tables : (..., K, R, C) float64
        Noisy counts: strata, rows, columns.
    n : int
        Number of private rows.
    noise : (K, R, C) float64
        Variances of the noise on them.

    Returns
    -------
    (..., K, R, C) float64
        Positive, of total n.
    """
    shape = tables.shape
    counts = project_to_total(tables.reshape(*shape[:-3], -1), n).reshape(shape)
    of_stratum = _shrunk(counts.sum(axis=(-2, -1)), noise.sum(axis=(-2, -1)))
    rows = _shrunk(counts.sum(axis=-1), noise.sum(axis=-1))
    columns = _shrunk(counts.sum(axis=-2), noise.sum(axis=-2))
    product = rows[..., :, np.newaxis] * columns[..., np.newaxis, :]
    return np.asarray(n * of_stratum[..., np.newaxis, np.newaxis] * product)


def _shrunk(margin: Floats, noise: Floats) -> Floats:
    """Proportions of a margin (..., L), positive, shrunk towards equal ones."""
    equal = margin.mean(axis=-1, keepdims=True)
    spread = np.sum((margin - equal) ** 2, axis=-1, keepdims=True)
    excess = noise.sum(axis=-1, keepdims=True) * (1 - 1 / margin.shape[-1])
    kept = np.maximum(1 - excess / np.maximum(spread, np.maximum(excess, 1e-12)), 0)
    counts = np.maximum(
        np.where(excess > 0, equal + kept * (margin - equal), margin), _LEAST_MARGIN
    )
    return np.asarray(counts / counts.sum(axis=-1, keepdims=True))


def project_to_total(counts: Floats, n: float) -> Floats:
    """Nearest non-negative vectors of sum n, (..., d) float64 (Euclidean, by sorting)."""
    size = counts.shape[-1]
    ordered = -np.sort(-counts, axis=-1)
    excess = np.cumsum(ordered, axis=-1) - n
    kept = np.sum(ordered * np.arange(1, size + 1) > excess, axis=-1, keepdims=True)
    shift = np.take_along_axis(excess, kept - 1, axis=-1) / kept
    return np.asarray(np.maximum(counts - shift, 0))


def score_statistic(
    tables: Floats, expected: Floats, scales: Floats, other_variance: Floats
) -> Floats:
    """Efficient score statistic against all interactions, one number per table.

    A noisy count deviates from its expected count by N(0, expected + other_variance) plus a
    Laplace variable of known scale. Shifts of the mean have score psi and information I; those
    that only change margins are projected out, so the errors of the fit do not enter to first
    order:

        sum psi^2 / I - psi'N (N' I N)^-1 N'psi,    N = changes of row and column margins.

    Without noise psi = (x - e) / e and I = 1 / e, and this is Pearson's statistic. With strata it
    is the sum over them.

    Parameters
    ----------
    tables, expected : (..., K, R, C) float64
        Noisy counts and expected counts.
    scales : (K, R, C) float64
        Scale of a single Laplace noise on the count, or zero.
    other_variance : (K, R, C) float64
        Variance of noise that is not a single Laplace variable.

    Returns
    -------
    (...,) float64

    References
    ----------
    Rao, C. R. (1948). Large sample tests of statistical hypotheses concerning several parameters
    with applications to problems of estimation. Proc. Cambridge Phil. Soc. 44, 50-57.
    van der Vaart, A. W. (1998). Asymptotic Statistics, Section 25.4 (efficient scores).
    """
    deviation = np.sqrt(expected + other_variance)
    score = noisy_score(tables - expected, deviation, scales)
    information = noisy_information(deviation, scales)
    total = np.sum(score**2 / information, axis=(-2, -1))
    # N has a column per row and per column of the table (the last is redundant): a margin
    # changes its cells in proportion to their expected counts.
    mass = information * expected**2
    pull = score * expected
    rows = mass.shape[-2]
    size = rows + mass.shape[-1] - 1
    gram = np.zeros((*mass.shape[:-2], size, size))
    diagonal = np.concatenate([mass.sum(axis=-1), mass.sum(axis=-2)[..., :-1]], axis=-1)
    gram[..., np.arange(size), np.arange(size)] = diagonal
    gram[..., :rows, rows:] = mass[..., :-1]
    gram[..., rows:, :rows] = np.swapaxes(mass[..., :-1], -1, -2)
    unit = 1 / np.sqrt(diagonal)  # ones on the diagonal, for rare and common levels together
    side = unit * np.concatenate([pull.sum(axis=-1), pull.sum(axis=-2)[..., :-1]], axis=-1)
    gram = gram * unit[..., np.newaxis] * unit[..., np.newaxis, :]
    explained = np.sum(side * np.linalg.solve(gram, side[..., np.newaxis])[..., 0], axis=-1)
    return np.asarray(np.maximum(total - explained, 0).sum(axis=-1))


def noisy_score(x: Floats, deviation: Floats, scales: Floats) -> Floats:
    """Minus the derivative of log g, g the density of N(0, deviation^2) + Laplace(scale).

    g(x) is proportional to exp(-x^2 / (2 d^2)) (h(d/s - x/d) + h(d/s + x/d)) with
    h(z) = exp(z^2 / 2) P(N(0, 1) > z), and the score is the difference of the two over their sum,
    over s. Arguments broadcast; a scale of zero is no Laplace noise.
    """
    normal = scales <= 1e-5 * deviation
    scale = np.where(normal, deviation, scales)
    ratio, moved = deviation / scale, x / deviation
    lean = 0.5 * (_log_mills(ratio - moved) - _log_mills(ratio + moved))
    gaussian = x / (deviation**2 + 2 * scales**2)
    return np.asarray(np.where(normal, gaussian, np.tanh(lean) / scale))


def noisy_information(deviation: Floats, scales: Floats) -> Floats:
    """Fisher information of the mean under that density: between one and two over its variance."""
    log_ratio, gain = _gains()
    scale = np.maximum(scales, 1e-12 * deviation)
    gained = np.interp(np.log(deviation / scale), log_ratio, gain)
    return np.asarray(gained / (deviation**2 + 2 * scales**2))


@lru_cache(maxsize=1)
def _gains() -> tuple[Floats, Floats]:
    """Information times variance at ratios deviation / scale, by quadrature."""
    log_ratio = np.linspace(np.log(1e-3), np.log(1e3), 241)
    ratio = np.exp(log_ratio)[:, np.newaxis]
    far = np.arcsinh((10 * ratio + 40) / ratio)
    nodes = far * np.linspace(0, 1, 2001)
    x, step = ratio * np.sinh(nodes), ratio * np.cosh(nodes)
    log_density = -0.5 * (x / ratio) ** 2 + np.logaddexp(
        _log_mills(ratio - x / ratio), _log_mills(ratio + x / ratio)
    )
    weight = np.exp(log_density - log_density.max(axis=1, keepdims=True)) * step
    weight[:, 0] /= 2
    squared = noisy_score(x, ratio, np.ones_like(ratio)) ** 2
    information = (weight * squared).sum(axis=1) / weight.sum(axis=1)
    return log_ratio, information * (ratio[:, 0] ** 2 + 2)


def _log_mills(z: Floats) -> Floats:
    """Log of exp(z^2 / 2) P(N(0, 1) > z) up to a constant, stable on both sides."""
    upper = np.log(special.erfcx(np.maximum(z, -5.0) / np.sqrt(2)))
    lower = special.log_ndtr(-np.minimum(z, -5.0)) + 0.5 * z**2 + np.log(2)
    return np.asarray(np.where(z > -5, upper, lower))
