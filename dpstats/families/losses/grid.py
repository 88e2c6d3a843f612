"""Grids of parameter values, at the points of which losses are measured."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpstats.arrays import Floats
from dpstats.checks import as_float, short
from dpstats.errors import RequestError

MOST_PARAMETERS = 3
MOST_GRID_POINTS = 2_048


@dataclass(frozen=True)
class Axis:
    """Evenly spaced values of one parameter, both ends included."""

    name: str
    low: float
    high: float
    points: int

    @property
    def values(self) -> Floats:
        """(points,) increasing."""
        steps = self.points - 1
        return self.low + (self.high - self.low) * np.arange(self.points) / steps

    @property
    def step(self) -> float:
        """Distance of neighbouring values."""
        return (self.high - self.low) / (self.points - 1)


def axes_of(grid: Mapping[str, Sequence[Any]]) -> tuple[Axis, ...]:
    """The axes of a grid given as name -> (low, high, points)."""
    if not isinstance(grid, Mapping) or not grid:
        raise RequestError(
            "grid must name the parameters, each with its least and largest value and the number "
            f"of points, such as {{'Intercept': (-2, 2, 21), 'x': (-2, 2, 21)}}; got {short(grid)}"
        )
    axes = tuple(_axis(name, given) for name, given in grid.items())
    size = math.prod(axis.points for axis in axes)
    if len(axes) > MOST_PARAMETERS or size > MOST_GRID_POINTS:
        raise RequestError(
            f"a grid of {len(axes)} parameters with {size} points; at most {MOST_PARAMETERS} "
            f"parameters and {MOST_GRID_POINTS} points can be measured well: take fewer of them"
        )
    return axes


def _axis(name: Any, given: Any) -> Axis:
    try:
        low, high, points = given
        low, high = as_float(low), as_float(high)
        good = bool(np.isfinite(low) and np.isfinite(high) and low < high)
        good = good and not isinstance(points, bool) and int(points) == points and points >= 3
    except (TypeError, ValueError, OverflowError):
        good = False
    if not good or not isinstance(name, str):
        several = isinstance(given, list | tuple) and len(given) == 3
        shown = f"({', '.join(map(short, given))})" if several else short(given)
        raise RequestError(
            f"the grid of {short(name)} must be its least and its largest value and a number of "
            f"points of at least 3, such as (-2, 2, 21); got {shown}"
        )
    return Axis(name, low, high, int(points))


def grid_names(axes: Sequence[Axis]) -> list[str]:
    """One name per point of the grid, such as ``Intercept=-2, x=0.5``; the last axis runs first."""
    texts = [[f"{axis.name}={value:.6g}" for value in axis.values] for axis in axes]
    return [", ".join(point) for point in itertools.product(*texts)]
