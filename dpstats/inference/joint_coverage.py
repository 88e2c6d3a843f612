"""Simultaneous intervals and joint tests: the law of the noise by simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpstats.arrays import Floats
from dpstats.error_rates import bonferroni, least_of_noise
from dpstats.inference.intervals import FEWEST, MANY_DRAWS
from dpstats.inference.simulation import calibration_generator, draw_noise

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpstats.measured.answers import Answers

LARGEST = 12  # cells; of more than that the joint level shortens intervals by less than 1%


def joint_level(answers: Answers, alpha: float) -> float:
    """Level of each interval at which those of all cells of one table hold jointly.

    The alpha-quantile of the smallest two-sided p-value of the cells, simulated at the estimated
    proportions: approximate, as a parametric bootstrap is.
    """
    possible = np.flatnonzero(~answers.impossible)
    if len(possible) < len(answers.sums):
        answers = answers.subset(possible.tolist())
    d = len(answers.sums)
    if d <= 1:
        return alpha
    if d > LARGEST:
        return bonferroni(alpha, d)
    rng = calibration_generator(answers)
    shares = np.clip(answers.means, 0, None)
    if shares.sum() <= 0:
        return bonferroni(alpha, d)
    counts = rng.multinomial(answers.n, shares / shares.sum(), size=MANY_DRAWS)
    drawn = counts + draw_noise(answers, MANY_DRAWS, rng)
    drawn += 1e-6 * rng.random(drawn.shape)  # ties in random order
    return level_of_draws(drawn, alpha)


def level_of_draws(drawn: Floats, alpha: float) -> float:
    """Level at which d two-sided statements hold jointly, from joint draws (size, d), by ranks."""
    size, d = drawn.shape
    ranks = np.empty((size, d))
    np.put_along_axis(
        ranks, np.argsort(drawn, axis=0), np.arange(size)[:, np.newaxis] + 0.5, axis=0
    )
    smallest = 2 * np.minimum(ranks, size - ranks).min(axis=1) / size
    if size < FEWEST / alpha:  # the quantile is that of the extreme draw
        return bonferroni(alpha, d)
    return float(np.clip(np.quantile(smallest, alpha), bonferroni(alpha, d), alpha))


_NEGLIGIBLE = 1e-6  # part of noise in a variance, that needs no draws
_ALIKE = 1e-3  # range of relative variances that need none either
_ROUNDING = 1e-8  # of a value
_REDUNDANT = 1e-12  # of a standard deviation: a combination of others, up to rounding


def joint_test(
    difference: Floats,
    df: float,
    sampling: Floats,
    noise: Floats,
    draws: Callable[[], Floats],
    rng: np.random.Generator,
) -> tuple[float, float, float, float]:
    """Statistic, p-value and both df of an F test that errors explain all differences (k,).

    Covariances (k, k) are of sampling, with `df` degrees of freedom, or draws (size, k, k) of it,
    and of noise, of which `draws` gives draws (size, k). The p-value is that of F, plus the
    simulated difference between the distribution of the noise and a normal one. With draws of the
    covariance, F is divided by the largest eigenvalue of each (eq. 3a of
    docs/explanation/regression/ols.md).
    """
    from scipy import special

    k = len(difference)
    if k == 0:
        return 0.0, 1.0, 0.0, df
    mean = sampling.mean(axis=0) if sampling.ndim > 2 else sampling
    precision = np.linalg.pinv(noise + mean, hermitian=True)
    statistic = float(difference @ precision @ difference) / k
    if statistic == 0 or not np.isfinite(statistic):
        return 0.0, 1.0, float(k), df
    largest: Floats = np.ones(1)
    if sampling.ndim > 2:
        half = root_of(precision)
        eigenvalues = np.asarray(np.linalg.eigvalsh(half @ (noise + sampling) @ half)[:, -1])
        largest = eigenvalues if np.ptp(eigenvalues) > _ALIKE else largest
    classical = float(np.mean(special.fdtrc(k, df, statistic / largest)))
    if np.trace(noise) <= _NEGLIGIBLE * np.trace(mean) and len(largest) == 1:
        return statistic, classical, float(k), df
    drawn = draws()
    size = len(drawn)
    z = rng.standard_normal((size, k))
    z /= np.sqrt(rng.chisquare(df, (size, 1)) / df)
    z = (z[:, np.newaxis, :] @ root_of(sampling))[:, 0, :]
    normal = rng.standard_normal((size, k)) @ root_of(noise)
    above = [
        float(np.mean(np.einsum("ij,jk,ik->i", e, precision, e) >= k * statistic))
        for e in (z + drawn, z + normal)
    ]
    least = least_of_noise(float(np.trace(noise)), float(np.trace(noise + mean)), size)
    pvalue = float(np.clip(classical + above[0] - above[1], least, 1))
    return statistic, pvalue, float(k), df


def independent(
    combinations: Floats, values: Floats, params: Floats, covariance: Floats
) -> tuple[Floats, Floats]:
    """Independent combinations of variance one, and their values less the estimates.

    Rows are divided by their standard deviations first: units do not decide what is zero up to
    rounding. Combinations without variance are left out.
    """
    rows = combinations @ root_of(covariance)
    deviations = np.linalg.norm(rows, axis=1)
    size = np.where(deviations > 0, deviations, 1.0)
    left, lengths, _ = np.linalg.svd(rows / size[:, None])
    rank = int(np.sum(lengths > _REDUNDANT))
    to_reduced = left[:, :rank].T / lengths[:rank, None] / size
    difference = values - combinations @ params
    return np.asarray(to_reduced @ combinations), np.asarray(to_reduced @ difference)


def contradicts_certain(
    combinations: Floats, values: Floats, params: Floats, covariance: Floats
) -> bool:
    """True if a combination without variance has another value than this, up to rounding."""
    certain = ~np.any(combinations @ root_of(covariance), axis=1)
    size = np.abs(values) + np.abs(combinations) @ np.abs(params)
    return bool(np.any(certain & (np.abs(values - combinations @ params) > _ROUNDING * size)))


def root_of(covariance: Floats) -> Floats:
    """Symmetric square roots of covariance matrices (..., k, k), their positive parts."""
    values, vectors = np.linalg.eigh(covariance)
    scaled = vectors * np.sqrt(np.clip(values, 0, None))[..., np.newaxis, :]
    return np.asarray(scaled @ vectors.swapaxes(-1, -2))
