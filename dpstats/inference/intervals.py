"""The protocol of all intervals: what a result needs from the law of its estimates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from dpstats.arrays import Floats
from dpstats.checks import Alternative, Method, Target
from dpstats.spending import LEAST_COMPUTED, LEAST_OF_DRAWS

BEYOND_DRAWS = (
    f"p-values below {LEAST_OF_DRAWS:g}, one over the number of draws, are the least alpha at "
    f"which the certified interval leaves the value out, down to {LEAST_COMPUTED:g}"
)
FEWEST = 5  # draws beyond both limits, from which a limit may be read off draws
_LOG_ACCURACY = 0.01  # of a p-value, upwards


class Intervals(Protocol):
    """How one kind of estimate gets its intervals and tests."""

    def conf_int(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Lower and upper limits, two (d,) arrays."""

    def pvalues(self, value: float, alternative: Alternative) -> Floats:
        """Noise-aware p-values (d,) of: each parameter equals `value`."""

    def simultaneous(self, alpha: float, method: Method, target: Target) -> tuple[Floats, Floats]:
        """Limits that hold jointly for all d parameters with probability 1 - alpha."""

    def subset(self, chosen: slice) -> Intervals:
        """The same for some of the parameters."""


def reached(alpha: float, draws: int) -> bool:
    """Whether enough draws lie beyond a level, so that limits may be read off them."""
    return draws >= FEWEST / alpha


def wider(ends: tuple[Floats, Floats], others: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """The least interval that contains both of two: it errs no more often than either."""
    return np.minimum(ends[0], others[0]), np.maximum(ends[1], others[1])


def with_far_tails(
    ends: tuple[Floats, Floats],
    alpha: float,
    draws: int,
    certified: Callable[[], tuple[Floats, Floats]],
) -> tuple[Floats, Floats]:
    """Limits that were read off draws, widened to certified ones where the draws end.

    Fewer than `FEWEST` of the draws lie beyond a level below FEWEST / draws, and the quantile there
    is that of the extreme draw. Certified limits at the same alpha need no draws.
    """
    return ends if reached(alpha, draws) else wider(ends, certified())


def beyond_draws(
    value: float, alternative: Alternative, limits: Callable[[float], tuple[float, float]]
) -> float:
    """The p-value of a value that hardly any draw of the noise reaches.

    The least alpha at which certified limits leave it out, from `LEAST_COMPUTED` to that of the
    draws: they err with probability alpha at most, whatever the rows, so this is a p-value with no
    draws in it. A one-sided one takes the same limits, whose error on one side is no larger. They
    are nested in alpha: values further out have smaller p-values.
    """

    def left_out(log_alpha: float) -> bool:
        low, high = limits(float(np.exp(log_alpha)))
        sides = {"larger": value < low, "smaller": value > high}
        return sides.get(alternative, not low <= value <= high)

    out, inside = np.log([LEAST_OF_DRAWS, LEAST_COMPUTED]).tolist()
    if not left_out(out):
        return LEAST_OF_DRAWS
    if left_out(inside):
        return LEAST_COMPUTED
    while out - inside > _LOG_ACCURACY:
        middle = (out + inside) / 2
        out, inside = (middle, inside) if left_out(middle) else (out, middle)
    return float(np.exp(out))
