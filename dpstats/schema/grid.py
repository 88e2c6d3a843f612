"""The grid of a number: its bounds, or the lattice that holds its declared values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstats.arrays import Codes
from dpstats.checks import shortest_decimal
from dpstats.errors import SchemaError

MAX_POINTS = 2**20 + 1
_DIGITS = 12  # of points of a logarithmic grid, alike on every machine
MIN_WIDTH, MAX_BOUND = 1e-50, 1e50  # so that variances of products of two columns are floats


def lattice_of(where: str, values: Sequence[float]) -> tuple[float, float, int]:
    """Ends and number of points of the coarsest lattice that holds increasing values."""
    if len(values) < 2:
        raise SchemaError(f"{where}: values must list at least two numbers")
    check_width(where, values[0], values[-1])
    exact = [shortest_decimal(value) for value in values]
    half, mid = (exact[-1] - exact[0]) / 2, (exact[-1] + exact[0]) / 2
    offsets = [half, *(value - mid for value in exact)]
    unit = math.lcm(*(offset.denominator for offset in offsets))
    step = Fraction(math.gcd(*(int(offset * unit) for offset in offsets)), unit)
    points = 2 * int(half / step) + 1
    if points > MAX_POINTS:
        raise SchemaError(
            f"{where}: the values have no common step coarser than 1/{MAX_POINTS - 1} of their "
            "range; round them to fewer decimals, or declare low, high and points"
        )
    return values[0], values[-1], points


def even_points(low: float, high: float, steps: int, *, log: bool) -> NDArray[np.float64]:
    """Points (steps + 1,) from `low` to `high` with equal steps, or those of the logarithm."""
    with np.errstate(over="ignore"):  # bounds that are too large are refused by the caller
        if log:
            exact = np.exp(np.linspace(math.log(low), math.log(high), steps + 1))
            points = np.array([float(f"{value:.{_DIGITS}g}") for value in exact.tolist()])
        else:  # the product first, so that steps of whole numbers give whole numbers
            points = low + (high - low) * np.arange(steps + 1) / steps
    points[0], points[-1] = low, high
    return points


def check_width(where: str, low: float, high: float) -> None:
    """Refuse bounds whose squares, or those of the width, a float may not hold."""
    if not (float(high) - float(low) >= MIN_WIDTH and max(abs(low), abs(high)) <= MAX_BOUND):
        raise SchemaError(
            f"{where}: {low} and {high} are too close or too large: squares of products would not "
            f"be floating-point numbers. Bounds may be up to {MAX_BOUND:g} in absolute value, and "
            f"{MIN_WIDTH:g} apart; store the column in another unit"
        )


def nearest(sorted_values: NDArray[Any], x: NDArray[Any]) -> Codes:
    """Index of the nearest of sorted values, the lower one of a tie."""
    upper = np.clip(np.searchsorted(sorted_values, x), 1, len(sorted_values) - 1)
    lower_is_near = x - sorted_values[upper - 1] <= sorted_values[upper] - x
    return np.where(lower_is_near, upper - 1, upper)
