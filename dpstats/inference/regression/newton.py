"""Newton's method for noisy scores, which need not have a root."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import linalg
from scipy.linalg import lapack

from dpstats.arrays import Floats

_STEPS = 60
_CLOSE = 1e-10  # change of the linear predictor at which it ends
_LARGEST = 30.0  # of the linear predictor: beyond it a mean is known to nobody


def solved(matrix: Floats, right: Floats) -> Floats:
    """Solution of a positive definite system.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the matrix is not positive definite, up to rounding.
    """
    if not np.isfinite(matrix).all():
        raise linalg.LinAlgError("not finite")
    _, found, failed = lapack.dposv(matrix, right, lower=1)  # cho_solve takes ten times as long
    if failed:
        raise linalg.LinAlgError("not positive definite")
    return np.asarray(found)


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
