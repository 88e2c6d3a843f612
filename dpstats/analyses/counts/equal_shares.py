"""Test that the shares of several groups are equal, from their noisy counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Floats
from dpstats.inference.simulation import calibration_generator, draw_noise

if TYPE_CHECKING:
    from dpstats.measured.answers import Answers

SIMULATIONS = 10_000
_EQUAL = 5  # a purpose of draws, distinct from those of shares


def equal_shares_test(answers: Answers, used: NDArray[np.bool_]) -> tuple[float, float]:
    """Statistic and p-value of: k groups have one share.

    The statistic sums over groups the squares of D_g = T_g - p N_g over their variance, with p the
    share of all of them (eq. 4 of docs/explanation/inference/shares-and-tables.md). It is simulated
    with p, the noisy sizes and the known law of the noise.

    Parameters
    ----------
    answers : Answers
        Of each group the rows with the trait, then those without.
    used : (k,) bool
        Groups that are compared, at least two.
    """
    rng = calibration_generator(answers, _EQUAL)
    noise = draw_noise(answers, SIMULATIONS, rng)[:, np.repeat(used, 2)]
    kept = np.flatnonzero(np.repeat(used, 2))
    covariance = answers.noise_covariance[np.ix_(kept, kept)]
    counts = answers.sums[kept]
    sizes = np.maximum(np.rint(counts[::2] + counts[1::2]), 1).astype(np.int64)
    share = float(_pooled(counts[np.newaxis])[0])
    drawn = rng.binomial(sizes, share, (SIMULATIONS, len(sizes))).astype(np.float64)
    simulated = np.empty_like(noise)
    simulated[:, ::2], simulated[:, 1::2] = drawn, sizes - drawn
    statistic = float(_statistic(counts[np.newaxis], covariance)[0])
    larger = np.count_nonzero(_statistic(simulated + noise, covariance) >= statistic)
    return statistic, (1 + float(larger)) / (1 + SIMULATIONS)


def _pooled(counts: Floats) -> Floats:
    """Share (m,) of all groups, from counts (m, 2k)."""
    yes, rows = counts[:, ::2].sum(axis=1), counts.sum(axis=1)
    return np.where(rows > 0, np.clip(yes / np.maximum(rows, 1e-300), 0, 1), 0.5)


def _statistic(counts: Floats, covariance: Floats) -> Floats:
    """(m,) from counts (m, 2k) with noise of this covariance."""
    share = _pooled(counts)[:, np.newaxis]
    yes, no = counts[:, ::2], counts[:, 1::2]
    own, other = covariance[::2, ::2].diagonal(), covariance[1::2, 1::2].diagonal()
    both = covariance[::2, 1::2].diagonal()
    noise = (1 - share) ** 2 * own - 2 * share * (1 - share) * both + share**2 * other
    variance = np.maximum(yes + no, 0) * share * (1 - share) + noise
    difference = (1 - share) * yes - share * no
    return np.asarray(np.sum(difference**2 / np.maximum(variance, 1e-300), axis=1))
