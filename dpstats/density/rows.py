"""Synthetic rows drawn from weighted candidates."""

from __future__ import annotations

from typing import Literal

import numpy as np

from dpstats.columns import Codes
from dpstats.families.block import Floats

Draw = Literal["systematic", "iid"]


def draw_counts(weights: Floats, k: int, draw: Draw, rng: np.random.Generator) -> Codes:
    """How many of k rows each candidate gets, (m,) int64.

    Parameters
    ----------
    weights : (m,) float64
        Of candidates in lexicographic order, summing to one.
    k : int
    draw : {"systematic", "iid"}
        Independent draws (BL24, Algorithm 1, step 4), or one random start and equal steps along
        the sorted candidates, so that each count is within one of k times its weight and
        neighbouring cells balance.
    rng : numpy Generator
    """
    if draw == "iid":
        return rng.multinomial(k, weights / weights.sum()).astype(np.int64)
    edges = np.floor(k * np.cumsum(weights / weights.sum()) + rng.random())
    edges[-1] = k  # the last sum is one up to rounding
    return np.diff(np.minimum(edges, k), prepend=0).astype(np.int64)
