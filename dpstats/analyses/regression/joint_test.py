"""Joint tests of combinations of estimates, with the law of their noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpstats.arrays import Floats
from dpstats.error_rates import least_of_noise
from dpstats.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable
_NEGLIGIBLE = 1e-6  # part of noise in a variance, that needs no draws
_REDUNDANT = 1e-12  # of a standard deviation: a combination of others, up to rounding


def joint_test(
    difference: Floats,
    df: float,
    sampling: Floats,
    noise: Floats,
    draws: Callable[[], Floats],
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Statistic and p-value of an F test that errors explain all of the differences (k,).

    Covariances (k, k) are of sampling, with `df` degrees of freedom, and of noise, of which `draws`
    gives draws (size, k). The p-value is that of F, plus the simulated difference between the
    distribution of the noise and a normal one.
    """
    from scipy import special

    k = len(difference)
    if k == 0:  # every combination is certain
        return 0.0, 1.0
    precision = np.linalg.pinv(noise + sampling, hermitian=True)
    statistic = float(difference @ precision @ difference) / k
    if statistic == 0 or not np.isfinite(statistic):
        return 0.0, 1.0
    classical = float(special.fdtrc(k, df, statistic))
    if np.trace(noise) <= _NEGLIGIBLE * np.trace(sampling):
        return statistic, classical
    drawn = draws()
    size = len(drawn)
    z = rng.standard_normal((size, k)) @ root_of(sampling)
    z /= np.sqrt(rng.chisquare(df, (size, 1)) / df)
    normal = rng.standard_normal((size, k)) @ root_of(noise)
    above = [
        float(np.mean(np.einsum("ij,jk,ik->i", e, precision, e) >= k * statistic))
        for e in (z + drawn, z + normal)
    ]
    least = least_of_noise(float(np.trace(noise)), float(np.trace(noise + sampling)), size)
    return statistic, float(np.clip(classical + above[0] - above[1], least, 1))


def independent(
    combinations: Floats, values: Floats, params: Floats, covariance: Floats
) -> tuple[Floats, Floats]:
    """Independent combinations of variance one, and their values less the estimates.

    Rows are divided by their standard deviations first: units do not decide what is zero up to
    rounding.
    """
    rows = combinations @ root_of(covariance)
    deviations = np.linalg.norm(rows, axis=1)
    size = np.where(deviations > 0, deviations, 1.0)
    left, lengths, _ = np.linalg.svd(rows / size[:, None])
    rank = int(np.sum(lengths > _REDUNDANT))
    wanted = values / size
    if np.any(np.abs(left[:, rank:].T @ wanted) > _REDUNDANT * (np.abs(wanted).max(initial=0.0))):
        raise RequestError(
            "the combinations contradict each other: no coefficients give all of them these "
            "values; test fewer of them together"
        )
    to_reduced = left[:, :rank].T / lengths[:rank, None] / size
    difference = values - combinations @ params
    return np.asarray(to_reduced @ combinations), np.asarray(to_reduced @ difference)


def root_of(covariance: Floats) -> Floats:
    """Symmetric square root of a covariance matrix, its positive part."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T)
