"""Newton's method for noisy scores, which need not have a root."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg, optimize, special
from scipy.linalg import lapack

from dpstats.arrays import Floats

if TYPE_CHECKING:
    from dpstats.checks import Alternative

_STEPS = 60
_CLOSE = 1e-10  # change of the linear predictor at which it ends
_OPEN = 1e6  # stands above any statistic, where a value has no solution
_LARGEST = 30.0  # of the linear predictor: beyond it a mean is known to nobody


def solved(matrix: Floats, right: Floats) -> Floats:
    """Solution of a positive definite system; LinAlgError if it is not, up to rounding."""
    if not np.isfinite(matrix).all():
        raise linalg.LinAlgError("not finite")
    _, solution, failed = lapack.dposv(matrix, right, lower=1)  # cho_solve takes ten times as long
    if failed:
        raise linalg.LinAlgError("not positive definite")
    return np.asarray(solution)


def find_root(
    score: Callable[[Floats], Floats],
    information: Callable[[Floats], Floats],
    x: Floats,
    start: Floats,
    free: Floats | None = None,
) -> Floats | None:
    """The b (p,) with a score of zero, from `start` along the columns of `free` (p, k) alone.

    The score may be noisy; its derivative is that of another one, and positive definite. Steps
    change the linear predictor x b (m,) by at most 2. None where the method does not arrive, or
    leaves predictors that any mean could have.
    """
    b, along = start, np.eye(len(start)) if free is None else free
    for _ in range(_STEPS):
        if np.abs(x @ b).max() > _LARGEST:
            return None
        try:
            step = along @ solved(along.T @ information(b) @ along, along.T @ score(b))
        except linalg.LinAlgError:
            return None
        largest = float(np.abs(x @ step).max())
        b = b + step * min(1.0, 2 / max(largest, 1e-300))
        if largest <= _CLOSE:
            return b
    return None


def derivatives(function: Callable[[Floats], float], b: Floats) -> Floats:
    """(p,) at b, by central differences."""
    steps = 1e-5 * np.maximum(np.abs(b), 1.0) * np.eye(len(b))
    return np.array([(function(b + h) - function(b - h)) / (2 * h.max()) for h in steps])


def tail_of(z: float, alternative: Alternative) -> float:
    """P-value of a normal deviate that is positive where larger values are more likely."""
    sides = {"larger": special.ndtr(-z), "smaller": special.ndtr(z)}
    return float(sides.get(alternative, min(1.0, 2 * special.ndtr(-abs(z)))))


def rejected_beyond(
    x: Floats,
    combination: Floats,
    deviate: Callable[[float], float | None],
    alpha: float,
    ends: tuple[float, float],
    centre: float,
    deviation: float,
) -> tuple[float, float]:
    """The interval from the ends on to the first values that are rejected on either side.

    `deviate` gives the normal deviate of a value of a combination (p,); None where no coefficients
    have it: from there, and where predictors x b are beyond any mean, none is rejected.
    """
    furthest = _LARGEST / float(np.abs(x @ np.linalg.pinv(combination[np.newaxis, :])).max())
    limit = -float(special.ndtri(alpha / 2))

    def first_rejected(sign: float, start: float) -> float:
        def left(t: float) -> float:
            """Negative at distances that are rejected."""
            z = deviate(centre + sign * t)
            return _OPEN if z is None else limit + sign * z

        if not math.isfinite(start) or (start > 0 and left(start) < 0):
            return start
        low, step = start, max(deviation, 1e-6) / 2
        while low < furthest:
            high = low + step
            at_high = left(high)
            if at_high == _OPEN:
                break
            if at_high < 0:
                return float(optimize.brentq(left, low, high, xtol=1e-6 * deviation))
            low, step = high, step * 1.5
        return math.inf

    return (
        centre - first_rejected(-1.0, centre - ends[0]),
        centre + first_rejected(1.0, ends[1] - centre),
    )
