"""How many candidates to draw by default, from public numbers and noise alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from dpstats.measured.measurements import Measurements

CANDIDATES, MANY_CANDIDATES = 20_000, 80_000  # by default, and at most
NOISY = 15  # standard deviation of the noise, in rows, from which the first number is enough
PER_FUNCTION = 40  # few functions never need more
LAST_PER_FUNCTION = 8
MOST_PRODUCTS = 1_800_000  # points times blocks, whose products a last fit takes


def for_noise(measurements: Measurements) -> int:
    """Candidates that the noise asks for.

    Little noise tells more of the table apart, which takes more points to represent: with 20,000
    the rows of many tables get worse when the budget grows. Few functions never need more.
    """
    noise = float(np.median(measurements.standard_deviations)) * measurements.n
    most = np.clip(PER_FUNCTION * measurements.family.size, CANDIDATES, MANY_CANDIDATES)
    return int(np.clip(CANDIDATES * NOISY / max(noise, 1e-9), CANDIDATES, most))


def number_of_candidates(measurements: Measurements, fit: Literal["entropy", "minimax"]) -> int:
    """As many as the noise asks for, or a few for each of many functions.

    m points of equal weight represent a small probability p with an error of about sqrt(p / m),
    which no fit mends for functions that noise hides.
    """
    if fit == "minimax":
        return CANDIDATES
    family = measurements.published
    affordable = min(MANY_CANDIDATES, MOST_PRODUCTS // len(family.blocks))
    return max(for_noise(measurements), min(LAST_PER_FUNCTION * family.size, affordable))
