"""Simultaneous noise-aware intervals: joint levels by simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpstats.arrays import Floats
from dpstats.error_rates import bonferroni
from dpstats.inference.intervals import FEWEST
from dpstats.inference.simulation import calibration_generator, draw_noise

if TYPE_CHECKING:
    from dpstats.measured.answers import Answers

DRAWS = 20_000
LARGEST = 12  # cells; of more than that the joint level shortens intervals by less than 1%


def joint_level(answers: Answers, alpha: float) -> float:
    """Level of each interval at which those of all cells of one table hold jointly.

    The alpha-quantile of the smallest two-sided p-value of the cells, simulated at the estimated
    proportions: approximate, as a parametric bootstrap is.
    """
    d = len(answers.sums)
    if d == 1:
        return alpha
    if d > LARGEST:
        return bonferroni(alpha, d)
    rng = calibration_generator(answers)
    shares = np.clip(answers.means, 0, None)
    if shares.sum() <= 0:
        return bonferroni(alpha, d)
    counts = rng.multinomial(answers.n, shares / shares.sum(), size=DRAWS)
    drawn = counts + draw_noise(answers, DRAWS, rng)
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
