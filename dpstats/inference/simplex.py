"""The nearest table without negative counts."""

from __future__ import annotations

import numpy as np

from dpstats.arrays import Floats


def project_to_total(counts: Floats, n: Floats | float) -> Floats:
    """Nearest non-negative vectors (..., d) of sum n > 0, a number or (..., 1), by sorting.

    Held, M., Wolfe, P. and Crowder, H. P. (1974). Validation of subgradient optimization.
    Mathematical Programming 6, 62-88.
    """
    size = counts.shape[-1]
    ordered = -np.sort(-counts, axis=-1)
    excess = np.cumsum(ordered, axis=-1) - n
    kept = np.sum(ordered * np.arange(1, size + 1) > excess, axis=-1, keepdims=True)
    shift = np.take_along_axis(excess, kept - 1, axis=-1) / kept
    return np.asarray(np.maximum(counts - shift, 0))
