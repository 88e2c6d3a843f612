"""Draws from the law of the noise on answers, to calibrate tests and intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpstats.families.block import Floats

if TYPE_CHECKING:
    from dpstats.answers import Answers


def draw_noise(answers: Answers, size: int, rng: np.random.Generator) -> Floats:
    """Draws (size, d) from the joint law of the noise on d sums.

    A sum of `count` discrete Laplace variables is the difference of two negative binomials, so
    noises that enter with the same weights are drawn together. This simulates a published law; it
    is not privacy noise.

    Parameters
    ----------
    answers : Answers
    size : int
        Number of draws.
    rng : numpy Generator
    """
    total = np.zeros((size, len(answers.sums)))
    for weights, scale, count in answers.noise_groups:
        success = -np.expm1(-1 / scale)
        drawn = rng.negative_binomial(count, success, size) - rng.negative_binomial(
            count, success, size
        )
        total += np.outer(drawn, weights)
    return total
