"""Canonical links of generalised linear models: the mean as a function of the predictor."""

from __future__ import annotations

from typing import ClassVar, Protocol

import numpy as np
from scipy import special

from dpstats.arrays import Floats


class Link(Protocol):
    """A mean as an increasing function of the linear predictor.

    Attributes
    ----------
    name : {"logit", "log"}
        As `PilotScore` knows it.
    bounded : bool
        Whether means are.
    """

    name: ClassVar[str]
    bounded: ClassVar[bool]

    def mean(self, predictor: Floats) -> Floats:
        """The mean response."""

    def slope(self, predictor: Floats) -> Floats:
        """Its derivative, positive."""

    def predictor(self, mean: Floats) -> Floats:
        """The inverse; infinite at the ends."""


class Logit:
    """Of a chance: the log odds are linear."""

    name: ClassVar[str] = "logit"
    bounded: ClassVar[bool] = True

    def mean(self, predictor: Floats) -> Floats:
        """The chance."""
        return np.asarray(special.expit(predictor))

    def slope(self, predictor: Floats) -> Floats:
        """S (1 - s)."""
        chance = self.mean(predictor)
        return chance * (1 - chance)

    def predictor(self, mean: Floats) -> Floats:
        """The log odds."""
        return np.asarray(special.logit(mean))


class Log:
    """Of a count: the logarithm of its mean is linear."""

    name: ClassVar[str] = "log"
    bounded: ClassVar[bool] = False

    def mean(self, predictor: Floats) -> Floats:
        """The mean count."""
        return np.exp(predictor)

    def slope(self, predictor: Floats) -> Floats:
        """The mean again."""
        return np.exp(predictor)

    def predictor(self, mean: Floats) -> Floats:
        """Its logarithm."""
        with np.errstate(divide="ignore"):
            return np.log(mean)
