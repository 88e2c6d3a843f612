"""Measures of the risks p and q in two groups: difference, ratio and odds ratio."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from dpstats.arrays import Floats

Measure = Literal["difference", "ratio", "odds ratio"]
MEASURES: tuple[Measure, ...] = get_args(Measure)


def measure_of(p: Floats, q: Floats, measure: Measure) -> Floats:
    """A measure of two risks; inf where it has no bound, nan where it is not defined (0/0)."""
    if measure == "difference":
        return np.asarray(p - q, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if measure == "ratio":
            return np.asarray(p / q, dtype=np.float64)
        return np.asarray(p * (1 - q) / (q * (1 - p)), dtype=np.float64)


def measure_gradients(p: float, q: float) -> Floats:
    """Derivatives (3, 2) of the measures by both risks; nan where a measure is not finite."""
    rows = [(1.0, -1.0), (np.nan, np.nan), (np.nan, np.nan)]
    if q > 0:
        rows[1] = (1 / q, -p / q**2)
        if p < 1:
            rows[2] = ((1 - q) / q / (1 - p) ** 2, -p / (1 - p) / q**2)
    return np.array(rows)
