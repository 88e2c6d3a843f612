"""Marginal effects of the columns of a generalised linear model, at every point of a density."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from dpstats.analyses.regression.coefficient_intervals import Coefficients
from dpstats.arrays import Floats
from dpstats.schema import Number

if TYPE_CHECKING:
    from dpstats.analyses.regression.design_moments import DesignMoments
    from dpstats.analyses.regression.link import Link

_STEP = 1e-3  # in unit scale; regressors are at most quadratic, so differences are exact


class Average(NamedTuple):
    """Mean over the rows of a function of the coefficients.

    Attributes
    ----------
    estimate : float
    sampling, privacy : float
        Variances, to first order.
    low, high : float
        Bounds on the mean error of the estimate, from what bins hide.
    """

    estimate: float
    sampling: float
    privacy: float
    low: float = 0.0
    high: float = 0.0


class Averaging(Coefficients, Protocol):
    """Coefficients, and means over the rows of functions of them."""

    @property
    def x(self) -> Floats:
        """(m, p) regressors at the points of the model; zero outside of it."""

    def average(self, values: Callable[[Floats], Floats]) -> Average:
        """Mean of a function of the points and the coefficients, with its errors."""


def corners(numbers: int) -> Floats:
    """Points (s, J) of a cell in half bins: its middle, those of its sides, and its corners."""
    sides = [sign * one for one in np.eye(numbers) for sign in (-1, 1)]
    ends = list(product((-1.0, 1.0), repeat=numbers)) if numbers > 1 else []
    return np.array([np.zeros(numbers), *sides, *ends])


@dataclass(frozen=True, eq=False)
class MarginalEffect:
    """How the mean changes with one column, at m points.

    Attributes
    ----------
    name : str
        Of a number, what the derivative is by: ``log(wage)`` where the formula has that.
    first, second : (m, p) float64
        For a number, the regressors and their derivative by it; for a level, the regressors at the
        baseline and at this level.
    link : Link
    derivative : bool
    """

    name: str
    first: Floats
    second: Floats
    link: Link
    derivative: bool

    def of(self, b: Floats) -> Floats:
        """(m,) effects at the coefficients b (p,)."""
        if self.derivative:
            return self.link.slope(self.first @ b) * (self.second @ b)
        return self.link.mean(self.second @ b) - self.link.mean(self.first @ b)


def marginal_effects(
    moments: DesignMoments, values: Mapping[str, Floats], link: Link
) -> list[MarginalEffect]:
    """Of all columns of the regressors, at points given as `DesignMoments.regressors_at` takes."""
    columns = (column for column in moments.schema if column.name in values)
    factors = [f for regressor in moments.design.regressors for f in regressor.factors]
    numbers = {name for name, level in factors if level is None}
    found = []
    for column in columns:
        at = values[column.name]
        if column.name in numbers:
            assert isinstance(column, Number)
            here = moments.regressors_at(values)
            sides = [
                moments.regressors_at({**values, column.name: at + d * _STEP}) for d in (-1, 1)
            ]
            change = (sides[1] - sides[0]) / (2 * _STEP) / column.half_range
            found.append(MarginalEffect(column.measured_name, here, change, link, True))
            continue
        first, *others = [
            moments.regressors_at({**values, column.name: np.full_like(at, level)})
            for level in range(column.bins)
        ]
        labels = column.bin_labels
        found += [
            MarginalEffect(f"{column.name}: {labels[0]} to {label}", first, other, link, False)
            for label, other in zip(labels[1:], others, strict=True)
        ]
    return found
