"""Links of generalised linear models, and what their scores share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy import special

from dpstats.arrays import Floats


@dataclass(frozen=True)
class Link:
    """Canonical link: the mean response as an increasing function of the linear predictor."""

    name: str  # as `PilotScore` knows it
    bounded: bool  # whether means are
    mean: Callable[[Floats], Floats]
    slope: Callable[[Floats], Floats]  # derivative of the mean
    predictor: Callable[[Floats], Floats]  # inverse of the mean, infinite at its ends


def _logistic_slope(predictor: Floats) -> Floats:
    chance = np.asarray(special.expit(predictor))
    return chance * (1 - chance)


def _log(mean: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.log(mean)


LOGIT = Link("logit", True, special.expit, _logistic_slope, special.logit)
LOG = Link("log", False, np.exp, np.exp, _log)


class Average(NamedTuple):
    """Mean over the rows of a function of the coefficients, with its errors to first order."""

    estimate: float
    sampling: float  # variance
    privacy: float  # variance
    low: float = 0.0  # bounds on the mean error of the estimate, from what bins hide
    high: float = 0.0


def corners(numbers: int) -> Floats:
    """Points (s, J) of a cell in half bins: its middle, those of its sides, and its corners."""
    sides = [sign * one for one in np.eye(numbers) for sign in (-1, 1)]
    ends = list(product((-1.0, 1.0), repeat=numbers)) if numbers > 1 else []
    return np.array([np.zeros(numbers), *sides, *ends])
